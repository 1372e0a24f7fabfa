/* SPDX-License-Identifier: Apache-2.0 */
/* Instance counters: how often this rank has submitted an op under (peers, tag). A small
 * open-addressing table per communicator; the untagged collective stream has a counter of its own,
 * because it is what most programs use and then nothing is hashed. */
#include <stdlib.h>

#include "client_lib/client.h"

/* Sends and receives count apart: they meet when a rank talks to itself. */
static uint64_t name_of(const struct client_op *op) {
    bool receives = op->sig.kind == OCCL_OP_RECV;
    return (((uint64_t)op->peers << 32) | ((uint64_t)op->tag << 1) | receives) + 1;
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

int client_tag_next(struct client_op *op, uint32_t *out_instance) {
    struct client_comm *comm = op->comm;
    if (op->peers == OCCL_PEERS_ALL && op->tag == 0) {
        *out_instance = occl_add32(&comm->untagged_next, 1); /* enter_joined_run takes no lock */
        return OCCL_OK;
    }
    if (comm->tags_used * 2 >= comm->tags_capacity) {
        int status = grow(comm);
        if (status)
            return status;
    }
    uint64_t name = name_of(op);
    struct client_tag *slot = slot_of(comm->tags, comm->tags_capacity, name);
    if (slot->name == 0) {
        if (comm->tags_used >= OCCL_QUOTA_LIVE_TAGS)
            return client_fail(
                OCCL_E_QUOTA,
                "communicator %s: %u live tags, the limit; tags are counted until the "
                "communicator is destroyed: use fewer distinct ones",
                comm->name, comm->tags_used);
        slot->name = name;
        comm->tags_used++;
    }
    *out_instance = slot->next_instance++;
    return OCCL_OK;
}

void client_tag_back(struct client_op *op, uint32_t instance) {
    struct client_comm *comm = op->comm;
    if (op->peers == OCCL_PEERS_ALL && op->tag == 0) {
        uint32_t after = instance + 1;
        (void)occl_claim32(&comm->untagged_next, &after, instance);
        return;
    }
    uint32_t *next = &slot_of(comm->tags, comm->tags_capacity, name_of(op))->next_instance;
    if (*next == instance + 1)
        *next = instance;
}
