/* SPDX-License-Identifier: Apache-2.0 */
/* The table of instance counters: open addressing with linear probing, a counter's place given by
 * the upper bits of its hash. So the counters of neighbouring buckets (shm_ipc/tag_batch.h) are
 * neighbours in the table, and a look at some buckets touches nothing else. All calls: comm.lock.
 */
#ifndef CLIENT_LIB_TAG_TABLE_H
#define CLIENT_LIB_TAG_TABLE_H

#include "client_lib/client.h"

/* At most half of the table is used. */
#define CLIENT_TAGS_SLOTS_MIN 64u

static inline uint32_t client_tag_peers(uint64_t name) {
    return (uint32_t)((name - 1) >> 32);
}
static inline uint32_t client_tag_number(uint64_t name) {
    return (uint32_t)(name - 1) >> 1;
}
/* Sends and receives count apart: they meet when a rank talks to itself. */
static inline bool client_tag_receives(uint64_t name) {
    return (name - 1) & 1;
}
static inline uint64_t client_tag_name(uint32_t peers, uint32_t tag, bool receives) {
    return (((uint64_t)peers << 32) | ((uint64_t)tag << 1) | receives) + 1;
}

/* The counter of a name with that hash, or the empty slot where it belongs. The table has one. */
static inline struct client_tag *client_tag_find(const struct client_tags *tags, uint64_t name,
                                                 uint64_t hash) {
    uint32_t mask = tags->capacity - 1;
    uint32_t at = (uint32_t)(hash >> 32) >> __builtin_clz(mask);
    while (tags->slots[at].name != name && tags->slots[at].name != 0)
        at = (at + 1) & mask;
    return &tags->slots[at];
}

/* Makes the table so large; at least twice `used`, a power of two. Allocates. NO_MEMORY: the table
 * is as it was, no error text. */
int client_tag_table_resize(struct client_tags *tags, uint32_t capacity);

/* Counters whose hash has these upper 12 bits or up to span - 1 more. The callback says whether the
 * counter stays; it is asked again about one that moved where another one was taken out. */
void client_tag_table_walk(struct client_tags *tags, uint32_t first, uint32_t span,
                           bool (*stays)(void *arg, uint64_t hash, const struct client_tag *tag),
                           void *arg);

#endif
