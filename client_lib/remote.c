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

#include "client_lib/client.h"
#include "client_lib/memory.h"

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

/* status of a failed transfer: the process is gone, or its buffer is, or this one lacks something.
 */
static int failed(void) {
    return errno == ESRCH                       ? OCCL_E_PEER_FAILED
           : errno == EMFILE || errno == ENOMEM ? OCCL_E_NO_MEMORY
                                                : OCCL_E_FAULT;
}

static int move(const struct client_side *side, uint64_t offset, void *local, uint64_t bytes,
                bool write) {
    while (bytes) {
        ssize_t n = client_reach((pid_t)side->pid, local, side->remote + offset, bytes, write);
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

/* A piece, or a part of one, in work. */
struct work {
    const struct client_comm *comm;
    const struct occl_local_plan *plan;
    const struct client_side *inputs, *outputs;
    const uint64_t *factors;
    struct occl_local_piece piece;
    char *room;
    uint64_t stride;       /* between two places in the room */
    uint64_t *moved_bytes; /* since the core was given away */
    uint32_t *out_member;  /* the one that is at fault, if somebody is */
};

static uint64_t src_offset(const struct work *w, uint32_t member, uint32_t block) {
    return occl_local_src_offset(w->plan, member, block) + w->piece.offset;
}

static uint64_t dst_offset(const struct work *w, uint32_t member, uint32_t block) {
    return occl_local_dst_offset(w->plan, member, block) + w->piece.offset;
}

/* Offsets of the piece itself. */
static uint64_t from_offset(const struct work *w, uint32_t member) {
    return src_offset(w, member, w->piece.src_block);
}
static uint64_t to_offset(const struct work *w, uint32_t member) {
    return dst_offset(w, member, w->piece.dst_block);
}

/* Brings `bytes` at offset of an input to this address space: where they are, or to `place`. */
static int fetch(struct work *w, const struct client_side *side, uint64_t offset, uint64_t bytes,
                 char *place, const char **out_from) {
    *w->out_member = side->member;
    *out_from = side->ptr ? side->ptr + offset : place;
    if (side->ptr)
        return OCCL_OK;
    return side->pid ? move(side, offset, place, bytes, false) : OCCL_E_FAULT;
}

static int deliver(struct work *w, const struct client_side *side, uint64_t offset, uint64_t bytes,
                   char *from) {
    *w->out_member = side->member;
    int status = move(side, offset, from, bytes, true);
    if (status == OCCL_OK)
        client_give_way(w->comm, bytes, w->moved_bytes);
    return status;
}

/* The outputs of the piece that this process can address. */
static uint32_t local_outputs(const struct work *w, void **out_locals) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->piece.dst_count; i++) {
        uint32_t member = w->piece.dst_first + i;
        if (w->outputs[member].ptr)
            out_locals[count++] = w->outputs[member].ptr + to_offset(w, member);
    }
    return count;
}

/* A member's own block that is in place is there already. */
static bool is_in_place(const struct work *w, uint32_t member) {
    const struct client_side *input = &w->inputs[member], *output = &w->outputs[member];
    return w->piece.kind == OCCL_STEP_COPY && w->piece.src_first == member && input->pid &&
           input->remote + from_offset(w, member) == output->remote + to_offset(w, member);
}

static int deliver_to_others(struct work *w, char *result) {
    int status = OCCL_OK;
    for (uint32_t i = 0; status == OCCL_OK && i < w->piece.dst_count; i++) {
        uint32_t member = w->piece.dst_first + i;
        if (w->outputs[member].pid && !is_in_place(w, member))
            status = deliver(w, &w->outputs[member], to_offset(w, member), w->piece.bytes, result);
    }
    return status;
}

static int fetch_inputs(struct work *w, const void **out_from) {
    int status = OCCL_OK;
    for (uint32_t i = 0; status == OCCL_OK && i < w->piece.src_count; i++) {
        uint32_t member = w->piece.src_first + i;
        const char *from;
        status = fetch(w, &w->inputs[member], from_offset(w, member), w->piece.bytes,
                       w->room + i * w->stride, &from);
        out_from[i] = from;
    }
    return status;
}

static struct occl_reduce_job job_of(const struct work *w, const void *const *from,
                                     void *const *to) {
    return (struct occl_reduce_job){.dtype = w->plan->dtype,
                                    .redop = w->plan->redop,
                                    .count = w->piece.bytes / w->plan->element_bytes,
                                    .n_src = w->piece.src_count,
                                    .src = from,
                                    .dst = to,
                                    .divisor = w->plan->member_count,
                                    .factors = w->factors};
}

static int reduce_piece(struct work *w) {
    const void *from[OCCL_LOCAL_RANKS_MAX];
    void *to[OCCL_LOCAL_RANKS_MAX + 1];
    int status = fetch_inputs(w, from);
    if (status)
        return status;
    struct occl_reduce_job job = job_of(w, from, to);
    job.n_dst = local_outputs(w, to);
    if (job.n_dst == 0)
        to[job.n_dst++] = w->room + w->piece.src_count * w->stride;
    occl_lib.movers->reduce(&job);
    return deliver_to_others(w, to[0]);
}

/* Every output is another one: those of others get a place in the room of their own. */
static int prefix_piece(struct work *w) {
    const void *from[OCCL_LOCAL_RANKS_MAX];
    void *to[OCCL_LOCAL_RANKS_MAX];
    bool exclusive = w->piece.flags & OCCL_STEP_EXCLUSIVE;
    int status = fetch_inputs(w, from);
    if (status)
        return status;
    for (uint32_t i = 0; i < w->piece.dst_count; i++) {
        const struct client_side *side = &w->outputs[i];
        to[i] = side->ptr   ? side->ptr + to_offset(w, i)
                : side->pid ? w->room + (w->piece.src_count + i) * w->stride
                            : NULL;
        if (!to[i] && !(exclusive && i == 0))
            return OCCL_E_FAULT;
    }
    struct occl_reduce_job job = job_of(w, from, to);
    job.n_dst = w->piece.dst_count;
    job.flags = exclusive ? OCCL_MOVE_PREFIX_EXCLUSIVE : OCCL_MOVE_PREFIX;
    occl_lib.movers->reduce(&job);
    for (uint32_t i = exclusive; status == OCCL_OK && i < w->piece.dst_count; i++)
        if (w->outputs[i].pid)
            status = deliver(w, &w->outputs[i], to_offset(w, i), w->piece.bytes, to[i]);
    return status;
}

static int copy_piece(struct work *w) {
    void *locals[OCCL_LOCAL_RANKS_MAX];
    const struct client_side *source = &w->inputs[w->piece.src_first];
    uint32_t count = local_outputs(w, locals);
    const char *from;
    /* What comes from elsewhere lands in a buffer of ours, if there is one. */
    char *place = !source->ptr && count ? locals[--count] : w->room;
    int status = fetch(w, source, from_offset(w, w->piece.src_first), w->piece.bytes, place, &from);
    if (status)
        return status;
    struct occl_copy_job job = {w->piece.bytes, from, count, 0, locals};
    occl_lib.movers->copy(&job);
    union {
        const char *read;
        char *unchanged; /* the kernel takes it without const, and only reads it */
    } result = {from};
    return deliver_to_others(w, result.unchanged);
}

static int put(struct work *w, const struct client_side *side, uint64_t offset, uint64_t bytes,
               char *from) {
    if (!side->ptr)
        return side->pid ? deliver(w, side, offset, bytes, from) : OCCL_E_FAULT;
    void *to = side->ptr + offset;
    struct occl_copy_job job = {bytes, from, 1, 0, &to};
    occl_lib.movers->copy(&job);
    return OCCL_OK;
}

/* Both ways of a pair of members, one of whom may be in place: all is read before anything is
 * written. Who gives nothing may have no buffer. */
static int exchange_piece(struct work *w) {
    const uint32_t member[2] = {w->piece.src_first, w->piece.dst_first};
    const uint32_t block[2] = {w->piece.src_block, w->piece.dst_block};
    const uint64_t bytes[2] = {w->piece.bytes, w->piece.back_bytes};
    int status = OCCL_OK;
    for (uint32_t i = 0; status == OCCL_OK && i < 2; i++) {
        char *place = w->room + i * w->stride;
        const char *from;
        if (bytes[i] == 0)
            continue;
        status = fetch(w, &w->inputs[member[i]], src_offset(w, member[i], block[i]), bytes[i],
                       place, &from);
        void *to = place;
        struct occl_copy_job job = {bytes[i], from, 1, 0, &to};
        if (status == OCCL_OK && from != place)
            occl_lib.movers->copy(&job);
    }
    /* What member 0 of the pair gave goes to member 1, and back. */
    for (uint32_t i = 0; status == OCCL_OK && i < 2; i++) {
        uint32_t to = 1 - i;
        if (bytes[i] == 0)
            continue;
        status = put(w, &w->outputs[member[to]], dst_offset(w, member[to], block[to]), bytes[i],
                     w->room + i * w->stride);
    }
    return status;
}

static int run_piece(struct work *w) {
    if (w->piece.exchanges)
        return exchange_piece(w);
    if (w->piece.flags & OCCL_STEP_PREFIX)
        return prefix_piece(w);
    return w->piece.kind == OCCL_STEP_REDUCE ? reduce_piece(w) : copy_piece(w);
}

/* A copy lands in a buffer of its own, or once in scratch: each call into the kernel should move
 * much. A reduction holds a part of every input at once, a scan of every output, too. */
static uint64_t part_bytes(const struct occl_local_plan *plan) {
    if (plan->exchanges)
        return OCCL_PAGE_BYTES;
    if (!occl_local_reduces(plan))
        return SCRATCH_BYTES / 2;
    bool prefix = occl_kind_traits(plan->kind)->flags & OCCL_KIND_PREFIX;
    uint64_t places = prefix ? 2u * plan->member_count : plan->member_count + 1u;
    uint64_t part = (SCRATCH_BYTES / places & ~(uint64_t)4095) - OCCL_PAGE_BYTES;
    return part < PIECE_BYTES_MAX ? part : PIECE_BYTES_MAX;
}

int client_remote_strands(const struct client_comm *comm, const struct occl_local_plan *plan,
                          uint32_t index, uint32_t strands, const struct client_side *inputs,
                          const struct client_side *outputs, const uint64_t *factors,
                          uint32_t *out_member) {
    char *room = scratch();
    uint64_t moved_bytes = 0, last_bytes, part = part_bytes(plan);
    uint64_t at = (uint64_t)index * plan->slice_bytes;
    uint64_t end = occl_local_strand_range(plan, index + strands - 1, &last_bytes) + last_bytes;
    if (!room)
        return OCCL_E_NO_MEMORY;
    struct work w = {.comm = comm,
                     .plan = plan,
                     .inputs = inputs,
                     .outputs = outputs,
                     .factors = factors,
                     .room = room,
                     /* Three lines more than the part keep the inputs out of one set of the cache.
                      */
                     .stride = part + OCCL_CACHE_LINE_BYTES * 3,
                     .moved_bytes = &moved_bytes,
                     .out_member = out_member};
    struct occl_local_walk walk;
    int status = OCCL_OK;
    occl_local_walk_to(plan, at, &walk);
    while (status == OCCL_OK && at < end) {
        at += occl_local_walk_next(plan, &walk, end - at < part ? end - at : part, &w.piece);
        status = run_piece(&w);
    }
    return status;
}
