/* SPDX-License-Identifier: Apache-2.0 */
/* Instance counters: how often this rank has submitted an op under (peers, tag). A small
 * open-addressing table per communicator; the untagged collective stream has a counter of its own,
 * because it is what most programs use and then nothing is hashed. */
#include <stdlib.h>

#include "client_lib/client.h"

static uint64_t name_of(uint32_t peers, uint32_t tag) {
    return ((((uint64_t)peers << 31) ^ tag) & 0x7fffffffffffffffull) + 1;
}

static struct client_tag *slot_of(struct client_tag *table, uint32_t capacity, uint64_t name) {
    uint64_t hash = name * 0x9e3779b97f4a7c15ull;
    for (uint32_t at = (uint32_t)(hash >> 32);; at++) {
        struct client_tag *slot = &table[at & (capacity - 1)];
        if (slot->name == name || slot->name == 0)
            return slot;
    }
}

static int grow(struct client_comm *comm) {
    uint32_t capacity = comm->tags_capacity ? comm->tags_capacity * 2 : 64;
    struct client_tag *table = calloc(capacity, sizeof *table);
    if (!table)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for %u tag counters", capacity);
    for (uint32_t i = 0; i < comm->tags_capacity; i++)
        if (comm->tags[i].name)
            *slot_of(table, capacity, comm->tags[i].name) = comm->tags[i];
    free(comm->tags);
    comm->tags = table;
    comm->tags_capacity = capacity;
    return OCCL_OK;
}

int client_tag_next(struct client_comm *comm, uint32_t peers, uint32_t tag,
                    uint32_t *out_instance) {
    if (peers == OCCL_PEERS_ALL && tag == 0) {
        *out_instance = comm->untagged_next++;
        return OCCL_OK;
    }
    if (comm->tags_used * 2 >= comm->tags_capacity) {
        int status = grow(comm);
        if (status)
            return status;
    }
    uint64_t name = name_of(peers, tag);
    struct client_tag *slot = slot_of(comm->tags, comm->tags_capacity, name);
    if (slot->name == 0) {
        if (comm->tags_used >= OCCL_QUOTA_LIVE_TAGS)
            return client_fail(OCCL_E_QUOTA,
                               "communicator %s: %u live tags, the limit; tags are counted until the "
                               "communicator is destroyed: use fewer distinct ones",
                               comm->name, comm->tags_used);
        slot->name = name;
        comm->tags_used++;
    }
    *out_instance = slot->next_instance++;
    return OCCL_OK;
}

void client_tag_back(struct client_comm *comm, uint32_t peers, uint32_t tag, uint32_t instance) {
    uint32_t *next = &comm->untagged_next;
    if (peers != OCCL_PEERS_ALL || tag != 0)
        next = &slot_of(comm->tags, comm->tags_capacity, name_of(peers, tag))->next_instance;
    if (*next == instance + 1)
        *next = instance;
}
