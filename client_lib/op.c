/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of ops behind request handles. Memory is never given back while the process lives, so a
 * stale handle finds a generation that differs, not a freed object. */
#include <stdlib.h>
#include <string.h>

#include "client_lib/client.h"
#include "client_lib/waiting.h"

static struct client_op *op_at(uint32_t index) {
    return &occl_lib.op_chunks[index / CLIENT_OP_CHUNK][index % CLIENT_OP_CHUNK];
}

static int add_chunk(void) {
    if (occl_lib.op_chunks_used == CLIENT_OP_CHUNKS)
        return client_fail(OCCL_E_QUOTA, "%u requests are alive, the limit of a process",
                           CLIENT_OP_CHUNKS * CLIENT_OP_CHUNK);
    struct client_op *chunk = calloc(CLIENT_OP_CHUNK, sizeof *chunk);
    if (!chunk)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for requests");
    uint32_t number = occl_lib.op_chunks_used;
    occl_lib.op_chunks[number] = chunk;
    for (uint32_t i = CLIENT_OP_CHUNK; i-- > 0;) {
        chunk[i].index = number * CLIENT_OP_CHUNK + i;
        chunk[i].generation = 1;
        chunk[i].next_free = occl_lib.ops_free;
        occl_lib.ops_free = &chunk[i];
    }
    occl_publish32(&occl_lib.op_chunks_used, number + 1); /* a garbage handle may be looked up */
    return OCCL_OK;
}

void client_ops_in_child(void) {
    occl_lib.ops_free = occl_lib.held = NULL;
    for (uint32_t i = occl_lib.op_chunks_used * CLIENT_OP_CHUNK; i-- > 0;) {
        struct client_op *op = op_at(i);
        op->phase = CLIENT_OP_FREE;
        op->hold = op->watched = op->phase_sleepers = op->come_after = 0;
        op->wanted = op->after_bell = op->after_sleepers = 0;
        op->dependents = NULL;
        op->generation = (op->generation & 0x7fffffffu) + 1;
        op->next_free = occl_lib.ops_free;
        occl_lib.ops_free = op;
    }
}

int client_op_new(struct client_comm *comm, uint32_t generation, struct client_op **out_op) {
    pthread_mutex_lock(&occl_lib.ops_lock);
    int status = occl_lib.ops_free ? OCCL_OK : add_chunk();
    struct client_op *op = occl_lib.ops_free;
    if (status == OCCL_OK)
        occl_lib.ops_free = op->next_free;
    pthread_mutex_unlock(&occl_lib.ops_lock);
    if (status)
        return status;

    /* Somebody may still look at the op's former life (client_op_end): the hold keeps both apart.
     */
    for (uint32_t round = 0; !client_op_try_hold(op); round++)
        client_nap(round);
    memset(op, 0, offsetof(struct client_op, hold)); /* others look at what comes after */
    op->comm = comm;
    op->comm_generation = generation;
    occl_publish32(&op->phase, CLIENT_OP_INACTIVE);
    pthread_mutex_lock(&comm->lock);
    op->next_in_comm = comm->ops;
    op->prev_in_comm = &comm->ops;
    if (comm->ops)
        comm->ops->prev_in_comm = &op->next_in_comm;
    comm->ops = op;
    occl_add32(&comm->pool_ops, 1);
    pthread_mutex_unlock(&comm->lock);
    *out_op = op;
    return OCCL_OK;
}

/* The caller holds the op; the hold ends here. */
void client_op_free(struct client_op *op) {
    struct client_comm *comm = op->comm;
    free(op->text);
    free(op->after);
    op->text = NULL;
    op->after = NULL;
    pthread_mutex_lock(&comm->lock);
    *op->prev_in_comm = op->next_in_comm;
    if (op->next_in_comm)
        op->next_in_comm->prev_in_comm = op->prev_in_comm;
    occl_add32(&comm->pool_ops, UINT32_MAX);
    pthread_mutex_unlock(&comm->lock);

    pthread_mutex_lock(&occl_lib.ops_lock);
    occl_publish32(&op->phase, CLIENT_OP_FREE);
    /* The generation of a handle is never 0, so that {0} is never valid. */
    uint32_t next = (op->generation + 1) & 0x7fffffffu;
    occl_publish32(&op->generation, next ? next : 1);
    op->next_free = occl_lib.ops_free;
    occl_lib.ops_free = op;
    pthread_mutex_unlock(&occl_lib.ops_lock);
    client_op_unhold(op);
}

void client_op_describe(struct client_op *op, const struct client_op *from) {
    op->sig = from->sig;
    op->peers = from->peers;
    op->tag = from->tag;
    op->line_index = from->line_index;
    op->members = from->members;
    op->send = from->send;
    op->recv = from->recv;
    op->traits = from->traits;
    op->block_bytes = from->block_bytes;
    op->send_bytes = from->send_bytes;
    op->recv_bytes = from->recv_bytes;
    op->payload_bytes = from->payload_bytes;
    op->factor = from->factor;
    op->alone_bits = from->alone_bits;
    if (from->vector) { /* the room was made with the op (client_op_room) */
        memcpy(op->vector_room, from->vector, occl_vector_bytes(op->members));
        op->vector = op->vector_room;
    }
    op->after_count = op->after ? from->after_count : 0;
    if (op->after_count)
        memcpy(op->after, from->after, op->after_count * sizeof *op->after);
    op->timeout_ns = from->timeout_ns;
    op->flags = from->flags;
    op->priority = from->priority;
    op->callback = from->callback;
    op->callback_arg = from->callback_arg;
}

int client_op_room(struct client_op *op, const struct client_op *from) {
    if (from->vector && !op->vector_room)
        op->vector_room = malloc(OCCL_VECTOR_NUMBERS_MAX * sizeof *op->vector_room);
    if (from->after_count)
        op->after = malloc(from->after_count * sizeof *op->after);
    bool enough = (op->vector_room || !from->vector) && (op->after || !from->after_count);
    return enough ? OCCL_OK : client_fail(OCCL_E_NO_MEMORY, "no memory for a request");
}

struct occl_request client_op_handle(const struct client_op *op) {
    return (struct occl_request){((uint64_t)op->generation << 32) | op->index};
}

struct client_op *client_op_get(struct occl_request handle) {
    uint32_t index = (uint32_t)handle.handle, generation = (uint32_t)(handle.handle >> 32);
    if (generation == 0 || index >= occl_observe32(&occl_lib.op_chunks_used) * CLIENT_OP_CHUNK) {
        client_fail(OCCL_E_HANDLE, "request 0x%llx was never given out",
                    (unsigned long long)handle.handle);
        return NULL;
    }
    struct client_op *op = op_at(index);
    if (occl_observe32(&op->generation) != generation ||
        occl_observe32(&op->phase) == CLIENT_OP_FREE) {
        client_fail(OCCL_E_HANDLE, "request 0x%llx is stale: it was waited for or freed",
                    (unsigned long long)handle.handle);
        return NULL;
    }
    return op;
}

bool client_op_try_hold(struct client_op *op) {
    uint32_t free_value = 0;
    return occl_claim32(&op->hold, &free_value, 1);
}

void client_op_unhold(struct client_op *op) {
    occl_publish32(&op->hold, 0);
}

void client_op_end(struct client_comm *comm, uint32_t generation, struct client_op *op, int status,
                   uint64_t give_up_ns) {
    /* A holder comes back soon: the daemon has aborted the op's record, or is lost. */
    for (uint32_t round = 0; !client_op_try_hold(op); round++)
        client_nap(round);
    if (occl_observe32(&op->phase) == CLIENT_OP_ACTIVE && op->comm == comm &&
        op->comm_generation == generation) {
        if (!client_wait_complete(op, give_up_ns)) {
            if (op->path == CLIENT_PATH_RING)
                client_ring_abandon(op);
            else
                op->may_write_rank = client_busy_rank(op);
            client_finish(op, status, false);
        }
    }
    client_op_unhold(op);
}
