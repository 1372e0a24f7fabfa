/* SPDX-License-Identifier: Apache-2.0 */
/* The local path: whoever is there claims strands of a LOCAL record and runs them. A strand is one
 * slice at most; between two strands the thread looks whether the op still goes on and whether the
 * job may go on (weights), and after a slice's worth of bytes it gives the core to others when
 * ranks outnumber cores. */
#include <sched.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"
#include "gpu/host/fp_env.h"

struct view {
    struct occl_local_plan plan;
    struct client_side inputs[OCCL_LOCAL_RANKS_MAX], outputs[OCCL_LOCAL_RANKS_MAX];
    const void *input_ptrs[OCCL_LOCAL_RANKS_MAX];
    void *output_ptrs[OCCL_LOCAL_RANKS_MAX];
    uint64_t factors[OCCL_LOCAL_RANKS_MAX];
    struct client_region *regions[2 * OCCL_LOCAL_RANKS_MAX];
    uint32_t region_count;
    bool remote; /* some buffer needs cross-memory attach */
    uint32_t move_flags;
};

uint32_t client_member_rank(const struct client_op *op, uint32_t member) {
    if (op->key.peers == OCCL_PEERS_ALL)
        return member;
    return member == 0 ? op->key.peers >> 16 : op->key.peers & 0xffffu;
}

int client_local_plan(struct client_op *op, struct occl_local_plan *out) {
    const struct occl_local_vectors *vectors = NULL;
    bool in_place = false;
    int status = OCCL_OK;
    if (op->vector)
        status = client_vectors_get(op, ~0ull, &vectors);
    if (status)
        return status;
    if (op->sig.kind == OCCL_OP_ALL_TO_ALL ||
        op->sig.kind == OCCL_OP_ALL_TO_ALL_V) /* other plans do not depend on it */
        for (uint32_t i = 0; i < op->members; i++)
            in_place = in_place || occl_line_in_place(occl_line_at(op->rec, i));
    status = occl_local_plan_make(&op->sig, op->members, in_place, vectors, out);
    op->strand_count = status == OCCL_OK ? out->strand_count : 0;
    op->planned = status == OCCL_OK;
    return status;
}

/* One buffer of one member, as this thread reaches it. */
static int resolve(struct client_op *op, struct view *v, uint32_t member,
                   struct occl_buffer_ref ref, uint64_t bytes, struct client_side *out_side) {
    struct client_comm *comm = op->comm;
    const struct occl_member *who = &comm->members[client_member_rank(op, member) % comm->ranks];
    *out_side = (struct client_side){.member = member};
    switch (ref.space) {
    case OCCL_SPACE_NONE:
        return OCCL_OK;
    case OCCL_SPACE_REGION: {
        int status;
        struct client_region *region = client_region_map(ref.region, &status);
        if (!region)
            return status;
        v->regions[v->region_count++] = region;
        if (ref.offset > region->bytes || bytes > region->bytes - ref.offset)
            return OCCL_E_FAULT;
        out_side->ptr = region->base + ref.offset;
        return OCCL_OK;
    }
    case OCCL_SPACE_PAYLOAD:
        if (ref.offset > comm->m.page_bytes || bytes > comm->m.page_bytes - ref.offset)
            return OCCL_E_FAULT;
        out_side->ptr = comm->m.base + ref.offset;
        return OCCL_OK;
    case OCCL_SPACE_PRIVATE:
        if (client_same_process(who)) {
            union {
                uint64_t address;
                char *ptr;
            } at = {.address = ref.offset};
            out_side->ptr = at.ptr;
        } else {
            out_side->pid = who->own_pid;
            out_side->remote = ref.offset;
            v->remote = true;
        }
        return OCCL_OK;
    default:
        return OCCL_E_FAULT;
    }
}

static void close_view(struct view *v) {
    client_regions_unuse(v->regions, v->region_count);
}

static int open_view(struct client_op *op, struct view *v, uint32_t *out_member) {
    v->region_count = 0;
    v->remote = false;
    bool in_place = false;
    const struct occl_local_plan *plan = &v->plan;
    int status = client_local_plan(op, &v->plan);
    for (uint32_t i = 0; status == OCCL_OK && i < op->members; i++) {
        struct occl_line *line = occl_line_at(op->rec, i);
        struct occl_buffer_ref src = line->u.ref.src, dst = line->u.ref.dst;
        *out_member = i;
        struct occl_kind_sizes sizes = {0, 0, 0};
        const uint64_t *vector = plan->vectors ? plan->vectors->of[i] : NULL;
        (void)occl_kind_measure(op->traits, plan->root, i, op->members, op->block_bytes,
                                plan->element_bytes, vector, &sizes); /* checked with the plan */
        status = resolve(op, v, i, src, sizes.send_bytes, &v->inputs[i]);
        if (status == OCCL_OK)
            status = resolve(op, v, i, dst, sizes.recv_bytes, &v->outputs[i]);
        v->factors[i] = op->sig.redop == OCCL_RO_PREMULSUM ? line->factor : 0;
        v->input_ptrs[i] = v->inputs[i].ptr;
        v->output_ptrs[i] = v->outputs[i].ptr;
        in_place = in_place || (v->input_ptrs[i] && v->input_ptrs[i] == v->output_ptrs[i]);
    }
    if (status)
        close_view(v);
    else
        v->move_flags = occl_local_move_flags(&v->plan, occl_lib.cache_bytes, in_place);
    return status;
}

/* A call into the kernel costs as much as it takes to copy 16 KiB and more, so strands that follow
 * each other are copied at once: so much of the buffer, but no more than so much in all. Between
 * two calls the core is given up as between two slices (remote.c). */
#define REMOTE_COPY_BYTES (512u << 10)
#define REMOTE_TRAFFIC_BYTES (4u << 20)

static uint32_t strands_wanted(const struct view *v) {
    if (!v->remote || occl_local_reduces(&v->plan))
        return 1;
    uint64_t strands = REMOTE_COPY_BYTES / v->plan.slice_bytes;
    uint64_t most = REMOTE_TRAFFIC_BYTES / occl_local_strand_traffic(&v->plan, 0);
    strands = strands < most ? strands : most;
    return strands > 1 ? (uint32_t)strands : 1;
}

void client_charge(const struct client_op *op, uint64_t traffic) {
    occl_count64(&occl_note_at(&op->comm->m, op->comm->rank)->bytes_executed, traffic);
}

static int run_strand(const struct client_comm *comm, struct view *v, uint32_t index,
                      uint32_t strands, uint32_t *out_member) {
    if (v->remote)
        return client_remote_strands(comm, &v->plan, index, strands, v->inputs, v->outputs,
                                     v->factors, out_member);
    struct occl_local_buffers buffers = {v->input_ptrs, v->output_ptrs, v->factors, v->move_flags};
    return occl_local_strand_run(&v->plan, index, occl_lib.movers, &buffers);
}

/* A fault, or a death, is the member's; what else keeps this rank from executing is its own. */
static void abort_op(struct client_op *op, int status, uint32_t member) {
    bool own = status != OCCL_E_FAULT && status != OCCL_E_PEER_FAILED;
    uint32_t now, rank = own ? op->comm->rank : client_member_rank(op, member);
    if (status == OCCL_E_CANCELED) /* here (own_status); to the peers, this rank leaves */
        status = OCCL_E_PEER_FAILED;
    if (occl_record_decide(op->rec, OCCL_REC_LOCAL, OCCL_REC_WORD(OCCL_REC_ABORTED, status, rank),
                           &now))
        client_wake(op);
}

void client_give_way(const struct client_comm *comm, uint64_t traffic, uint64_t *moved_bytes) {
    *moved_bytes += traffic;
    if (*moved_bytes + traffic <= OCCL_SLICE_TRAFFIC_BYTES)
        return;
    *moved_bytes = 0;
    if (!client_spins(comm))
        (void)sched_yield(); /* cannot fail on Linux */
}

/* A copy in a peer's memory may serve another op as soon as the peer has seen that this one is
 * done, and that op may be executed by another thread here: an order that goes through the peer, of
 * which a sanitizer of this process's threads has to be told. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static void order(const struct view *v, void (*by)(void *address)) {
    for (uint32_t i = 0; i < v->region_count; i++)
        if (!v->regions[i]->own)
            by(&v->regions[i]->number);
}
static void order_before(const struct view *v) {
    order(v, __tsan_acquire);
}
static void order_behind(const struct view *v) {
    order(v, __tsan_release);
}
#else
static inline void order_before(const struct view *v) {
    (void)v;
}
static inline void order_behind(const struct view *v) {
    (void)v;
}
#endif

static void run_strands(struct client_op *op, struct view *v) {
    struct occl_record *rec = op->rec;
    uint32_t count = v->plan.strand_count, wanted = strands_wanted(v), member = 0, strands, now;
    uint64_t moved_bytes = 0;
    while (occl_look32(&rec->state) == OCCL_REC_LOCAL) { /* Dekker with busy, raised before */
        if (!occl_share_may_run(occl_lib.job))
            return;
        uint32_t index =
            occl_record_claim_strands(rec, count, (uint32_t)sched_getcpu(), wanted, &strands);
        if (strands == 0)
            return;
        order_before(v);
        int status = run_strand(op->comm, v, index, strands, &member);
        if (status) {
            abort_op(op, status, member);
            return;
        }
        uint64_t traffic = 0;
        for (uint32_t i = 0; i < strands; i++)
            traffic += occl_local_strand_traffic(&v->plan, index + i);
        client_charge(op, traffic);
        order_behind(v);
        if (occl_add32(&rec->strands_done, strands) + strands == count) {
            if (occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now))
                client_wake(op);
            return;
        }
        if (op->brief)
            return;
        client_give_way(op->comm, traffic, &moved_bytes);
    }
}

void client_local_execute(struct client_op *op) {
    struct occl_record *rec = op->rec;
    struct view v;
    uint32_t member = 0;
    if (client_collect(op))
        return;
    op->executed = true;
    if (op->planned && !occl_record_strands_left(rec, op->strand_count))
        return; /* all claimed: nothing to open */
    int status = open_view(op, &v, &member);
    if (status) {
        abort_op(op, status, member);
        return;
    }
    struct occl_line *line = occl_line_at(rec, op->line_index);
    occl_add32(&line->busy, 1);
    uint32_t fp = occl_fp_env_enter();
    run_strands(op, &v);
    occl_fp_env_leave(fp);
    occl_add32(&line->busy, UINT32_MAX);
    if (occl_rec_kind(occl_observe32(&rec->state)) == OCCL_REC_ABORTED)
        client_wake(op);
    close_view(&v);
}

bool client_local_lanes_can(struct client_op *op) {
    for (uint32_t i = 0; i < op->members; i++) {
        struct occl_line *line = occl_line_at(op->rec, i);
        if (line->u.ref.src.space == OCCL_SPACE_PRIVATE ||
            line->u.ref.dst.space == OCCL_SPACE_PRIVATE)
            return false;
    }
    return true;
}
