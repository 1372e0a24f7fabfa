/* SPDX-License-Identifier: Apache-2.0 */
/* Strands over private memory of other processes of the job, by cross-memory attach, in pieces that
 * stay in the second-level cache: each input is read into scratch, the pieces are combined there
 * and in the buffers that this process can address, and the result is written to the others. Memory
 * sees each byte once, as on the zero-copy path; the kernel's copy is what it costs.
 *
 * Only client threads come here, for processes of their own job and user: the daemon never touches
 * a tenant's address space. */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "client_lib/client.h"

#define SCRATCH_BYTES (1u << 20)
#define PIECE_BYTES_MAX (64u << 10)

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void scratch_make(void) {
    (void)pthread_key_create(&scratch_key, free); /* without a key each strand allocates */
}

static char *scratch(void) {
    pthread_once(&scratch_once, scratch_make);
    char *mine = pthread_getspecific(scratch_key);
    if (!mine) {
        mine = aligned_alloc(OCCL_PAGE_BYTES, SCRATCH_BYTES);
        (void)pthread_setspecific(scratch_key, mine);
    }
    return mine;
}

/* status of a failed transfer: the process is gone, or its buffer is. */
static int failed(void) {
    return errno == ESRCH ? OCCL_E_PEER_FAILED : OCCL_E_FAULT;
}

static int move(const struct client_side *side, uint64_t offset, void *local, uint64_t bytes,
                bool write) {
    while (bytes) {
        union {
            uint64_t address;
            void *pointer; /* of the other process: never dereferenced here */
        } at = {.address = side->remote + offset};
        struct iovec here = {local, bytes}, there = {at.pointer, bytes};
        ssize_t n = write ? process_vm_writev((pid_t)side->pid, &here, 1, &there, 1, 0)
                          : process_vm_readv((pid_t)side->pid, &here, 1, &there, 1, 0);
        if (n <= 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed();
        offset += (uint64_t)n;
        local = (char *)local + n;
        bytes -= (uint64_t)n;
    }
    return OCCL_OK;
}

struct work {
    const struct client_comm *comm;
    const struct occl_local_plan *plan;
    const struct client_side *inputs, *outputs;
    uint64_t at, bytes; /* the piece */
    char *room;
    uint64_t stride; /* between two inputs in the room; the result comes after the last */
    void *locals[OCCL_LOCAL_RANKS_MAX + 1];
    uint32_t local_count;
    bool any_remote_output;
    uint64_t *moved_bytes; /* since the core was given away */
};

static void find_outputs(struct work *w) {
    w->local_count = 0;
    w->any_remote_output = false;
    for (uint32_t i = 0; i < w->plan->member_count; i++) {
        if (w->outputs[i].ptr)
            w->locals[w->local_count++] = w->outputs[i].ptr + w->at;
        w->any_remote_output |= w->outputs[i].pid != 0;
    }
}

static int send_result(struct work *w, void *result, uint32_t *out_member) {
    for (uint32_t i = 0; w->any_remote_output && i < w->plan->member_count; i++) {
        if (w->outputs[i].pid == 0)
            continue;
        *out_member = w->outputs[i].member;
        int status = move(&w->outputs[i], w->at, result, w->bytes, true);
        if (status)
            return status;
        client_give_way(w->comm, w->bytes, w->moved_bytes);
    }
    return OCCL_OK;
}

static int reduce_piece(struct work *w, uint32_t *out_member) {
    const void *from[OCCL_LOCAL_RANKS_MAX];
    uint32_t n = w->plan->member_count;
    for (uint32_t i = 0; i < n; i++) {
        *out_member = w->inputs[i].member;
        if (w->inputs[i].ptr) {
            from[i] = w->inputs[i].ptr + w->at;
            continue;
        }
        if (w->inputs[i].pid == 0)
            return OCCL_E_FAULT;
        from[i] = w->room + i * w->stride;
        int status = move(&w->inputs[i], w->at, w->room + i * w->stride, w->bytes, false);
        if (status)
            return status;
    }
    if (w->local_count == 0)
        w->locals[w->local_count++] = w->room + n * w->stride;
    struct occl_reduce_job job = {
        .dtype = w->plan->dtype,
        .redop = w->plan->redop,
        .count = w->bytes / w->plan->element_bytes,
        .n_src = n,
        .n_dst = w->local_count,
        .src = from,
        .dst = w->locals,
        .divisor = n,
    };
    occl_lib.movers->reduce(&job);
    return send_result(w, w->locals[0], out_member);
}

static int copy_piece(struct work *w, uint32_t *out_member) {
    const struct client_side *source = &w->inputs[w->plan->root];
    *out_member = source->member;
    if (!source->ptr && source->pid == 0)
        return OCCL_E_FAULT;
    /* What comes from elsewhere lands in a buffer of ours, if there is one. */
    char *from = source->ptr      ? source->ptr + w->at
                 : w->local_count ? w->locals[--w->local_count]
                                  : w->room;
    if (!source->ptr) {
        int status = move(source, w->at, from, w->bytes, false);
        if (status)
            return status;
    }
    struct occl_copy_job job = {w->bytes, from, w->local_count, 0, w->locals};
    occl_lib.movers->copy(&job);
    return send_result(w, from, out_member);
}

int client_remote_strands(const struct client_comm *comm, const struct occl_local_plan *plan,
                          uint32_t index, uint32_t strands, const struct client_side *inputs,
                          const struct client_side *outputs, uint32_t *out_member) {
    char *room = scratch();
    uint64_t moved_bytes = 0, last_bytes, at = (uint64_t)index * plan->slice_bytes;
    uint64_t total = occl_local_strand_range(plan, index + strands - 1, &last_bytes) - at;
    total += last_bytes;
    if (!room)
        return OCCL_E_NO_MEMORY;
    /* A copy lands in a buffer of its own, or once in scratch: each call into the kernel should
     * move much. A reduction holds a piece of every input at once. */
    uint64_t step = SCRATCH_BYTES / 2;
    if (plan->kind == OCCL_OP_ALL_REDUCE) {
        step = (SCRATCH_BYTES / (plan->member_count + 1u) & ~(uint64_t)4095) - OCCL_PAGE_BYTES;
        if (step > PIECE_BYTES_MAX)
            step = PIECE_BYTES_MAX;
    }
    while (total) {
        struct work w = {
            .comm = comm,
            .moved_bytes = &moved_bytes,
            .plan = plan,
            .inputs = inputs,
            .outputs = outputs,
            .at = at,
            .bytes = total < step ? total : step,
            .room = room,
            /* Three lines more than the piece keep the inputs out of one set of the cache. */
            .stride = step + OCCL_CACHE_LINE_BYTES * 3,
        };
        find_outputs(&w);
        int status = plan->kind == OCCL_OP_ALL_REDUCE ? reduce_piece(&w, out_member)
                                                      : copy_piece(&w, out_member);
        if (status)
            return status;
        at += w.bytes;
        total -= w.bytes;
    }
    return OCCL_OK;
}
