/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of an op bring and what they must get, kind by kind. Sizes and places come from
 * the table of kinds (op_kind.h, vector.h); the right values are told by result_of alone, from
 * which no other part of the simulator or of the code that it drives takes anything. */
#include <stdlib.h>
#include <string.h>

#include "tools/sim/cluster.h"

#define UNWRITTEN (-1)
#define GAP_MAX 4u
#define GUARD 1u /* elements behind a buffer */

/* ---- values ---- */
/* Values of consecutive elements: base, base + slope, ... */
struct ramp {
    int64_t base, slope;
};

/* What a rank brings, from this element of its send buffer on. */
static struct ramp input_from(const struct sim_op *op, uint32_t rank, uint64_t element) {
    uint64_t x = ((uint64_t)op->job << 40 | (uint64_t)op->number << 20 | rank) + 1;
    int64_t slope = rank + 3;
    x *= 0x9e3779b97f4a7c15ull;
    return (struct ramp){(int64_t)(x >> 24) + (int64_t)element * slope, slope};
}

/* ---- who and where ---- */
uint32_t sim_shape_member(const struct sim_op *op, uint32_t rank) {
    return op->key.peers == OCCL_PEERS_ALL ? rank : rank == op->destination;
}

uint32_t sim_shape_members(const struct sim_cluster *cluster, const struct sim_op *op) {
    return op->key.peers == OCCL_PEERS_ALL ? cluster->options.ranks : 2;
}

uint64_t *sim_shape_vector(const struct sim_cluster *cluster, const struct sim_op *op,
                           uint32_t rank) {
    uint32_t n = sim_shape_members(cluster, op);
    return op->vectors == NULL ? NULL : op->vectors + (size_t)rank * OCCL_VECTOR_PARTS * n;
}

static uint64_t vector_at(const struct sim_cluster *cluster, const struct sim_op *op, uint32_t rank,
                          enum occl_vector_part part, uint32_t index) {
    return occl_vector_at(sim_shape_vector(cluster, op, rank), sim_shape_members(cluster, op), part,
                          index);
}

static uint32_t extent(const struct sim_op *op, const struct occl_signature *sig, uint32_t rank,
                       bool receives) {
    const struct occl_kind_traits *t = occl_kind_traits(sig->kind);
    bool root = occl_kind_is_root(t, sig->root, sim_shape_member(op, rank));
    if (receives)
        return root ? t->recv_root : t->recv_other;
    return root ? t->send_root : t->send_other;
}

/* Element at which what `from` has for `to` begins. */
static uint64_t sent_at(const struct sim_cluster *cluster, const struct sim_op *op, uint32_t from,
                        uint32_t to) {
    if (extent(op, &op->signature, from, false) != OCCL_EXTENT_ALL)
        return 0;
    return op->vectors == NULL ? to * op->signature.count
                               : vector_at(cluster, op, from, OCCL_VECTOR_SEND_AT, to);
}

/* Block `from` of what a rank gets: where it goes, and how long it is. */
static uint64_t received_at(const struct sim_cluster *cluster, const struct sim_op *op,
                            uint32_t rank, uint32_t from, uint64_t *out_count) {
    bool all = extent(op, &op->signature, rank, true) == OCCL_EXTENT_ALL;
    bool rooted = occl_kind_traits(op->signature.kind)->flags & OCCL_KIND_ROOTED;
    *out_count = op->signature.count;
    if (op->vectors == NULL)
        return from * op->signature.count;
    uint32_t index = all ? from : rooted ? op->signature.root : 0;
    *out_count = vector_at(cluster, op, rank, OCCL_VECTOR_RECV_COUNT, index);
    return all ? vector_at(cluster, op, rank, OCCL_VECTOR_RECV_AT, from) : 0;
}

/* ---- the reference ---- */
/* What the first `ranks` have for `to`, added up. */
static struct ramp sum_of(const struct sim_cluster *cluster, const struct sim_op *op,
                          uint32_t ranks, uint32_t to) {
    struct ramp sum = {0, 0};
    for (uint32_t r = 0; r < ranks; r++) {
        struct ramp one = input_from(op, r, sent_at(cluster, op, r, to));
        sum.base += one.base;
        sum.slope += one.slope;
    }
    return sum;
}

/* Block `block` of what a rank gets. */
static struct ramp result_of(const struct sim_cluster *cluster, const struct sim_op *op,
                             uint32_t rank, uint32_t block) {
    uint32_t root = op->signature.root;
    switch (op->signature.kind) {
    case OCCL_OP_RECV:
        return input_from(op, op->source, 0);
    case OCCL_OP_BROADCAST:
        return input_from(op, root, 0);
    case OCCL_OP_SCATTER:
    case OCCL_OP_SCATTER_V:
        return input_from(op, root, sent_at(cluster, op, root, rank));
    case OCCL_OP_ALL_GATHER:
    case OCCL_OP_ALL_GATHER_V:
    case OCCL_OP_GATHER:
    case OCCL_OP_GATHER_V:
        return input_from(op, block, 0);
    case OCCL_OP_ALL_TO_ALL:
    case OCCL_OP_ALL_TO_ALL_V:
        return input_from(op, block, sent_at(cluster, op, block, rank));
    case OCCL_OP_SCAN:
        return sum_of(cluster, op, rank + 1, rank);
    case OCCL_OP_EXSCAN:
        return sum_of(cluster, op, rank, rank);
    default: /* all_reduce, reduce, reduce_scatter and its twin */
        return sum_of(cluster, op, cluster->options.ranks, rank);
    }
}

/* ---- vectors ---- */
static uint64_t draw_length(struct seeded *s, uint32_t ranks) {
    if (seeded_permille(s, 300))
        return 0;
    if (seeded_permille(s, 30))
        return seeded_below(s, 9000) / ranks;
    return seeded_below(s, seeded_permille(s, 500) ? 12 : 160) / (1 + ranks / 4);
}

/* Blocks of one side in any of two orders, with gaps. */
static void draw_places(struct seeded *s, uint64_t *counts, uint32_t n) {
    bool backwards = seeded_permille(s, 300), gaps = seeded_permille(s, 400);
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = backwards ? n - 1 - i : i;
        counts[n + block] = at;
        at += counts[block] + (gaps ? seeded_below(s, GAP_MAX) : 0);
    }
}

/* What a block's length depends on: its sender, where that sends the same to all; its receiver,
 * where that gets the same from all; else both. Who is in place gets what he gives. Some give
 * nothing to anybody. */
static void draw_vectors(struct sim_cluster *cluster, struct sim_op *op) {
    struct seeded *s = &cluster->seeded;
    uint32_t n = sim_shape_members(cluster, op);
    uint64_t of_one[OCCL_LOCAL_RANKS_MAX];
    uint64_t silent = seeded_permille(s, 300) ? seeded_next(s) : 0;
    op->vectors = (uint64_t *)sim_allocate((size_t)n * OCCL_VECTOR_PARTS * n, sizeof(uint64_t));
    for (uint32_t i = 0; i < n; i++)
        of_one[i] = draw_length(s, n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) {
            uint32_t gives = extent(op, &op->signature, i, false);
            uint32_t gets = extent(op, &op->signature, j, true);
            uint64_t count = gives == OCCL_EXTENT_BLOCK ? of_one[i] : of_one[j];
            bool same = (op->in_place_mask >> i | op->in_place_mask >> j) & 1;
            if (gives == OCCL_EXTENT_ALL && gets == OCCL_EXTENT_ALL) {
                count = silent >> i & 1 ? 0 : draw_length(s, n);
                if (same && i > j)
                    count = vector_at(cluster, op, j, OCCL_VECTOR_SEND_COUNT, i);
                else if (same && silent >> j & 1)
                    count = 0;
            }
            if (gives == OCCL_EXTENT_NONE || gets == OCCL_EXTENT_NONE)
                count = 0;
            sim_shape_vector(cluster, op, i)[OCCL_VECTOR_SEND_COUNT * n + j] = count;
            sim_shape_vector(cluster, op, j)[OCCL_VECTOR_RECV_COUNT * n + i] = count;
        }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *vector = sim_shape_vector(cluster, op, i);
        bool all[2] = {extent(op, &op->signature, i, false) == OCCL_EXTENT_ALL,
                       extent(op, &op->signature, i, true) == OCCL_EXTENT_ALL};
        if (all[0])
            draw_places(s, vector + OCCL_VECTOR_SEND_COUNT * n, n);
        if (all[1])
            draw_places(s, vector + OCCL_VECTOR_RECV_COUNT * n, n);
        if (all[0] && all[1] && op->in_place_mask >> i & 1)
            memcpy(vector + OCCL_VECTOR_RECV_AT * n, vector + OCCL_VECTOR_SEND_AT * n,
                   n * sizeof *vector);
    }
}

/* ---- who describes it differently ---- */
/* One more element in a block that it gives or gets, in the form of its kind. */
static void spoil_vector(struct sim_cluster *cluster, struct sim_op *op) {
    uint32_t n = sim_shape_members(cluster, op), rank = op->odd_rank;
    uint64_t *vector = sim_shape_vector(cluster, op, rank);
    uint32_t gives = extent(op, &op->signature, rank, false);
    uint32_t gets = extent(op, &op->signature, rank, true);
    bool rooted = occl_kind_traits(op->signature.kind)->flags & OCCL_KIND_ROOTED;
    bool many = gives == OCCL_EXTENT_ALL || gets == OCCL_EXTENT_ALL;
    bool send = many ? gives == OCCL_EXTENT_ALL : gives == OCCL_EXTENT_BLOCK;
    uint64_t *counts = vector + (send ? OCCL_VECTOR_SEND_COUNT : OCCL_VECTOR_RECV_COUNT) * n;
    if (many)
        counts[seeded_below(&cluster->seeded, n)]++;
    else
        for (uint32_t i = rooted ? op->signature.root : 0; i < n; i += rooted ? n : 1)
            counts[i]++;
}

static void draw_odd(struct sim_cluster *cluster, struct sim_op *op) {
    struct seeded *s = &cluster->seeded;
    const struct occl_kind_traits *t = occl_kind_traits(op->signature.kind);
    uint32_t n = sim_shape_members(cluster, op), odd = seeded_below(s, n);
    bool rooted = t->flags & OCCL_KIND_ROOTED, typed = t->flags & OCCL_KIND_TYPED;
    if (n < 2 || (!rooted && !typed))
        return;
    op->odd_rank = odd;
    if (op->key.peers != OCCL_PEERS_ALL)
        op->odd_rank = odd == 0 ? op->source : op->destination;
    op->odd = SIM_ODD_COUNT;
    if (t->flags & OCCL_KIND_VECTOR)
        op->odd = SIM_ODD_BLOCK;
    else if (rooted && (!typed || seeded_permille(s, 500)))
        op->odd = SIM_ODD_ROOT;
    op->in_place_mask = 0;
}

void sim_shape_draw(struct sim_cluster *cluster, struct sim_op *op) {
    if ((cluster->options.faults & SIM_FAULT_MISMATCH) && seeded_permille(&cluster->seeded, 60))
        draw_odd(cluster, op);
    if (occl_kind_traits(op->signature.kind)->flags & OCCL_KIND_VECTOR)
        draw_vectors(cluster, op);
    if (op->odd == SIM_ODD_BLOCK)
        spoil_vector(cluster, op);
}

static struct occl_signature signature_of(const struct sim_cluster *cluster,
                                          const struct sim_op *op, uint32_t rank) {
    struct occl_signature sig = op->signature;
    if (op->key.peers != OCCL_PEERS_ALL && rank == op->source)
        sig.kind = OCCL_OP_SEND;
    if (rank == op->odd_rank && op->odd == SIM_ODD_COUNT)
        sig.count++;
    if (rank == op->odd_rank && op->odd == SIM_ODD_ROOT)
        sig.root = (sig.root + 1) % sim_shape_members(cluster, op);
    return sig;
}

/* ---- buffers ---- */
/* What the receive buffer holds before the op. */
static void image_before(const struct sim_op *op, const struct sim_request *request, uint32_t rank,
                         int64_t *out) {
    struct ramp mine = input_from(op, rank, 0);
    for (uint64_t e = 0; e < request->receives; e++)
        out[e] = UNWRITTEN;
    for (uint64_t e = 0; request->in_place && e < request->sends; e++)
        if (e + (uint64_t)request->shift < request->receives)
            out[e + (uint64_t)request->shift] = mine.base + (int64_t)e * mine.slope;
}

static void make_rooms(struct sim_request *request) {
    uint64_t before = request->shift < 0 ? (uint64_t)-request->shift : 0;
    uint64_t behind = request->shift > 0 ? (uint64_t)request->shift : 0;
    uint64_t both = request->receives > request->sends ? request->receives : request->sends;
    if (request->in_place) {
        request->rooms[0] =
            (int64_t *)sim_allocate(before + behind + both + GUARD, sizeof(int64_t));
        request->out = request->rooms[0] + before;
        request->in = request->out + request->shift;
        return;
    }
    if (request->sends > 0)
        request->in = request->rooms[0] =
            (int64_t *)sim_allocate(request->sends + GUARD, sizeof(int64_t));
    if (request->receives > 0)
        request->out = request->rooms[1] =
            (int64_t *)sim_allocate(request->receives + GUARD, sizeof(int64_t));
}

void sim_shape_open(struct sim_cluster *cluster, const struct sim_op *op, struct sim_rank *rank) {
    struct sim_request *request = &rank->requests[op->number];
    struct occl_signature sig = signature_of(cluster, op, rank->rank);
    const struct occl_kind_traits *t = occl_kind_traits(sig.kind);
    uint32_t member = sim_shape_member(op, rank->rank);
    struct occl_kind_sizes sizes = {0, 0, 0};
    request->signature = sig;
    if (t->flags & OCCL_KIND_TYPED &&
        !occl_kind_measure(t, sig.root, member, sim_shape_members(cluster, op),
                           sig.count * sizeof(int64_t), sizeof(int64_t),
                           sim_shape_vector(cluster, op, rank->rank), &sizes))
        sim_broken(cluster, "measure: job %u op %u rank %u", op->job, op->number, rank->rank);
    request->sends = sizes.send_bytes / sizeof(int64_t);
    request->receives = sizes.recv_bytes / sizeof(int64_t);
    bool optional = occl_kind_recv_optional(t, sig.root, member);
    if ((t->flags & OCCL_KIND_EXCLUSIVE && member == 0) || (optional && op->left_out))
        request->receives = 0;
    request->in_place =
        op->in_place_mask >> rank->rank & 1 && request->sends > 0 && request->receives > 0;
    request->shift = request->in_place ? sizes.in_place / (int64_t)sizeof(int64_t) : 0;
    make_rooms(request);
    for (uint64_t e = 0; request->out != NULL && e < request->receives + GUARD; e++)
        request->out[e] = UNWRITTEN;
    struct ramp mine = input_from(op, rank->rank, 0);
    for (uint64_t e = 0; e < request->sends; e++)
        request->in[e] = mine.base + (int64_t)e * mine.slope;
}

/* ---- the end ---- */
static void expect_results(const struct sim_cluster *cluster, const struct sim_op *op,
                           uint32_t rank, int64_t *want) {
    bool all = extent(op, &op->signature, rank, true) == OCCL_EXTENT_ALL;
    uint32_t blocks = all ? sim_shape_members(cluster, op) : 1;
    for (uint32_t b = 0; b < blocks; b++) {
        uint64_t count, at = received_at(cluster, op, rank, b, &count);
        struct ramp result = result_of(cluster, op, rank, b);
        for (uint64_t e = 0; e < count; e++)
            want[at + e] = result.base + (int64_t)e * result.slope;
    }
}

static void check_received(struct sim_cluster *cluster, const struct sim_op *op,
                           struct sim_rank *rank, int32_t status) {
    const struct sim_request *request = &rank->requests[op->number];
    int64_t *want;
    if (request->out == NULL || (status != OCCL_OK && status != OCCL_E_MISMATCH))
        return;
    if (status == OCCL_OK &&
        rank->rank == op->odd_rank) /* what it asked for is nobody's reference */
        return;
    want = (int64_t *)sim_allocate(request->receives, sizeof *want);
    image_before(op, request, rank->rank, want);
    if (status == OCCL_OK)
        expect_results(cluster, op, rank->rank, want);
    for (uint64_t e = 0; e < request->receives; e++)
        if (request->out[e] != want[e]) {
            sim_broken(cluster, "result: job %u op %u (%s) rank %u element %llu is %lld, not %lld",
                       op->job, op->number, occl_kind_traits(op->signature.kind)->name, rank->rank,
                       (unsigned long long)e, (long long)request->out[e], (long long)want[e]);
            break;
        }
    free(want);
}

void sim_shape_check(struct sim_cluster *cluster, const struct sim_op *op, struct sim_rank *rank,
                     int32_t status) {
    struct sim_request *request = &rank->requests[op->number];
    struct ramp mine = input_from(op, rank->rank, 0);
    check_received(cluster, op, rank, status);
    for (uint64_t e = 0; e < request->sends; e++) {
        bool is_output = request->in_place && e + (uint64_t)request->shift < request->receives;
        if (!is_output && request->in[e] != mine.base + (int64_t)e * mine.slope) {
            sim_broken(cluster, "input overwritten: job %u op %u rank %u", op->job, op->number,
                       rank->rank);
            break;
        }
    }
    if (!request->in_place && request->out != NULL && request->out[request->receives] != UNWRITTEN)
        sim_broken(cluster, "written behind the end: job %u op %u rank %u", op->job, op->number,
                   rank->rank);
    /* The application goes on with it. */
    for (uint64_t e = 0; e < request->sends; e++)
        request->in[e] = ~request->in[e];
}
