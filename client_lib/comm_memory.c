/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator holds, and giving back what it needs only while ops are under way. */
#include <sys/mman.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

OCCL_PUBLIC enum occl_result occl_comm_mem_stats(struct occl_comm handle,
                                                 struct occl_mem_stats *out_stats) {
    if (!out_stats)
        return client_fail(OCCL_E_INVALID, "out_stats is NULL");
    if (out_stats->size != sizeof *out_stats)
        return client_fail(OCCL_E_INVALID, "occl_mem_stats.size is %zu, expected %zu",
                           out_stats->size, sizeof *out_stats);
    int status;
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm)
        return status;
    pthread_mutex_lock(&comm->lock);
    out_stats->counter_bytes = (uint64_t)comm->tags.capacity * sizeof *comm->tags.slots;
    pthread_mutex_unlock(&comm->lock);
    out_stats->page_bytes = comm->m.page_bytes;
    out_stats->payload_bytes = comm->m.payload_stride;
    client_regions_measure(&out_stats->region_bytes, &out_stats->mapped_bytes);
    out_stats->region_bytes += client_copies_room();
    out_stats->mapped_bytes -= client_copies_room(); /* it is a part of one of these */
    out_stats->staging_bytes = client_stage_bytes() + client_copies_bytes();
    client_comm_answered(comm);
    return OCCL_SUCCESS;
}

/* comm->lock is held. Ops of blocking calls are threads inside; not those that wait for the answer
 * (looked at first: who comes later counts as an op), and those that ask, as this one does. */
static bool has_ops(const struct client_comm *comm) {
    client_comm_order(comm);
    uint32_t waiting = occl_look32(&comm->at_door);
    if (client_comm_users_seen(comm) > waiting)
        return true;
    /* After that: who has gone meanwhile has left its op active. */
    for (const struct client_op *op = comm->ops; op; op = op->next_in_comm)
        if (occl_observe32(&op->phase) == CLIENT_OP_ACTIVE)
            return true;
    return false;
}

static int has_outstanding(const struct client_comm *comm) {
    return client_fail(OCCL_E_USAGE, "communicator %s: operations of this rank are outstanding",
                       comm->name);
}

/* A thread counts itself inside before it looks whether the communicator is suspended, and here it
 * is said before they are counted: so either it is seen here, or it sees. Who comes while that is
 * being decided waits for the answer (client_comm_suspended). */
static int suspend(struct client_comm *comm) {
    uint32_t before = CLIENT_COMM_IN_USE;
    int status = OCCL_OK;
    client_settle(comm);
    /* Who is inside already is not made to wait for an answer that is known. */
    if (client_comm_users_seen(comm) > occl_look32(&comm->at_door))
        return has_outstanding(comm);
    pthread_mutex_lock(&comm->lock);
    if (!occl_claim32(&comm->suspended, &before, CLIENT_COMM_DECIDING)) {
        pthread_mutex_unlock(&comm->lock);
        return OCCL_OK; /* it is suspended */
    }
    if (has_ops(comm))
        status = has_outstanding(comm);
    else if (!client_chunks_reset(comm))
        status =
            client_fail(OCCL_WOULD_BLOCK,
                        "communicator %s: a peer still reads a payload of this rank", comm->name);
    if (status) {
        occl_publish32(&comm->suspended, CLIENT_COMM_IN_USE);
        pthread_mutex_unlock(&comm->lock);
        return status;
    }
    /* Whole pages inside this rank's room: what is left of the others is their neighbours'. */
    uint64_t first = comm->m.payload_offset + (uint64_t)comm->rank * comm->m.payload_stride;
    uint64_t end = (first + comm->m.payload_stride) & ~(uint64_t)(OCCL_PAGE_BYTES - 1);
    first = (first + OCCL_PAGE_BYTES - 1) & ~(uint64_t)(OCCL_PAGE_BYTES - 1);
    (void)madvise(comm->m.base + first, end - first, MADV_REMOVE); /* if not, it stays in use */
    occl_publish32(&comm->suspended, CLIENT_COMM_SUSPENDED);
    pthread_mutex_unlock(&comm->lock);
    client_stage_trim();
    client_copies_trim();
    return OCCL_OK;
}

bool client_comm_suspended(struct client_comm *comm) {
    uint32_t state = occl_look32(&comm->suspended);
    while (state == CLIENT_COMM_DECIDING) {
        (void)occl_add32(&comm->at_door, 1);
        for (uint32_t round = 0; occl_look32(&comm->suspended) == CLIENT_COMM_DECIDING; round++)
            client_nap(round);
        (void)occl_add32(&comm->at_door, UINT32_MAX);
        /* Again: the next decision may have begun, and have passed this thread over. */
        state = occl_look32(&comm->suspended);
    }
    return state == CLIENT_COMM_SUSPENDED;
}

OCCL_PUBLIC enum occl_result occl_comm_suspend(struct occl_comm handle) {
    int status;
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm)
        return status;
    status = suspend(comm);
    client_comm_answered(comm);
    return status;
}

OCCL_PUBLIC enum occl_result occl_comm_resume(struct occl_comm handle) {
    int status;
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm)
        return status;
    pthread_mutex_lock(&comm->lock); /* not in the middle of suspending */
    occl_publish32(&comm->suspended, CLIENT_COMM_IN_USE);
    pthread_mutex_unlock(&comm->lock);
    client_comm_answered(comm);
    return OCCL_SUCCESS;
}
