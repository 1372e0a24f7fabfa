/* SPDX-License-Identifier: Apache-2.0 */
#include "client_lib/tag_table.h"

#include <stdlib.h>

static uint64_t hash_of(uint64_t name) {
    return occl_tag_hash(client_tag_peers(name), client_tag_number(name));
}

static uint32_t home_of(const struct client_tags *tags, uint64_t hash) {
    return (uint32_t)(hash >> 32) >> __builtin_clz(tags->capacity - 1);
}

int client_tag_table_resize(struct client_tags *tags, uint32_t capacity) {
    struct client_tags grown = {.capacity = capacity};
    grown.slots = calloc(capacity, sizeof *grown.slots);
    if (!grown.slots)
        return OCCL_E_NO_MEMORY;
    for (uint32_t i = 0; i < tags->capacity; i++)
        if (tags->slots[i].name)
            *client_tag_find(&grown, tags->slots[i].name, hash_of(tags->slots[i].name)) =
                tags->slots[i];
    free(tags->slots);
    tags->slots = grown.slots;
    tags->capacity = capacity;
    return OCCL_OK;
}

/* Empties the slot and moves up what would no longer be found behind it. */
static void erase(struct client_tags *tags, uint32_t hole) {
    uint32_t mask = tags->capacity - 1;
    for (uint32_t at = (hole + 1) & mask; tags->slots[at].name; at = (at + 1) & mask) {
        uint32_t home = home_of(tags, hash_of(tags->slots[at].name));
        if (((at - home) & mask) < ((at - hole) & mask))
            continue; /* its home is behind the hole */
        tags->slots[hole] = tags->slots[at];
        hole = at;
    }
    tags->slots[hole].name = 0;
    tags->used--;
}

void client_tag_table_walk(struct client_tags *tags, uint32_t first, uint32_t span,
                           bool (*stays)(void *arg, uint64_t hash, const struct client_tag *tag),
                           void *arg) {
    if (tags->capacity == 0)
        return;
    uint32_t mask = tags->capacity - 1;
    uint32_t start = home_of(tags, (uint64_t)first << OCCL_TAG_BUCKET_SHIFT);
    uint32_t last = home_of(tags, ((uint64_t)(first + span) << OCCL_TAG_BUCKET_SHIFT) - 1);
    /* Behind the last home come those that found their own taken, up to an empty slot. */
    for (uint32_t step = 0; step <= mask;) {
        uint32_t at = (start + step) & mask;
        const struct client_tag *tag = &tags->slots[at];
        if (tag->name == 0 && step >= last - start)
            return;
        uint64_t hash = tag->name ? hash_of(tag->name) : 0;
        uint32_t upper = (uint32_t)(hash >> OCCL_TAG_BUCKET_SHIFT);
        if (tag->name && upper - first < span && !stays(arg, hash, tag))
            erase(tags, at); /* the slot may have another one now */
        else
            step++;
    }
}
