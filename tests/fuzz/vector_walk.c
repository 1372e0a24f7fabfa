/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/vector_walk.h"

#include "tests/fuzz/fuzz.h"

#define STRANDS_MAX 256u /* looked at from each end */
#define PIECES_MAX 20000u
#define ROOM_BYTES 65536u /* of all buffers of an op that is executed */
#define GAP 0xa5

/* A sum of products of large numbers. */
__extension__ typedef unsigned __int128 wide;

/* ---- what the op is, from the table of kinds ---- */
static const struct occl_kind_traits *traits_of(const struct occl_local_plan *plan) {
    return occl_kind_traits(plan->kind);
}

static uint32_t extent_of(const struct occl_local_plan *plan, uint32_t member, bool receives) {
    const struct occl_kind_traits *t = traits_of(plan);
    bool root = occl_kind_is_root(t, plan->root, member);
    if (receives)
        return root ? t->recv_root : t->recv_other;
    return root ? t->send_root : t->send_other;
}

/* Bytes that a member gets into block `block` of its output. */
static uint64_t gets(const struct occl_local_plan *plan, uint32_t member, uint32_t block) {
    uint32_t extent = extent_of(plan, member, true), n = plan->member_count;
    bool nothing = traits_of(plan)->flags & OCCL_KIND_EXCLUSIVE && member == 0;
    if (extent == OCCL_EXTENT_NONE || nothing || (extent == OCCL_EXTENT_BLOCK && block > 0))
        return 0;
    if (!plan->vectors)
        return plan->block_bytes;
    /* One block comes from the root, or is described alike for all. */
    uint32_t from = extent == OCCL_EXTENT_ALL ? block : plan->root;
    return plan->element_bytes *
           occl_vector_at(plan->vectors->of[member], n, OCCL_VECTOR_RECV_COUNT, from);
}

static void expect_inside(uint64_t at, uint64_t offset, uint64_t bytes, uint64_t limit) {
    fuzz_expect((wide)at + offset + bytes <= limit);
}

/* ---- coverage: of each (member, block), how far it is written ---- */
struct cover {
    uint64_t done[OCCL_LOCAL_RANKS_MAX][OCCL_LOCAL_RANKS_MAX];
    uint64_t pieces;
    bool all;
};

/* Strands follow the line, so a block is written from its start to its end, without a gap. */
static void write_block(const struct occl_local_plan *plan, const struct walk_sides *sides,
                        struct cover *cover, uint32_t member, uint32_t block, uint64_t offset,
                        uint64_t bytes) {
    fuzz_expect(member < plan->member_count && block < plan->member_count);
    if (bytes == 0)
        return;
    expect_inside(0, offset, bytes, gets(plan, member, block));
    expect_inside(occl_local_dst_offset(plan, member, block), offset, bytes,
                  sides->dst_bytes[member]);
    if (cover->all)
        fuzz_expect(cover->done[member][block] == offset);
    cover->done[member][block] = offset + bytes;
}

static void read_block(const struct occl_local_plan *plan, const struct walk_sides *sides,
                       uint32_t member, uint32_t block, uint64_t offset, uint64_t bytes) {
    fuzz_expect(member < plan->member_count && block < plan->member_count);
    if (bytes == 0)
        return;
    fuzz_expect(sides->has_src[member]);
    expect_inside(occl_local_src_offset(plan, member, block), offset, bytes,
                  sides->src_bytes[member]);
}

static void check_piece(const struct occl_local_plan *plan, const struct walk_sides *sides,
                        struct cover *cover, const struct occl_local_piece *p) {
    bool skips = p->flags & OCCL_STEP_PREFIX && p->flags & OCCL_STEP_EXCLUSIVE;
    fuzz_expect(p->bytes % plan->element_bytes == 0 && p->back_bytes % plan->element_bytes == 0);
    fuzz_expect(p->offset % plan->element_bytes == 0);
    fuzz_expect(p->src_count > 0 && p->dst_count > 0 && p->src_first < plan->member_count &&
                p->dst_first < plan->member_count &&
                p->src_count <= plan->member_count - p->src_first &&
                p->dst_count <= plan->member_count - p->dst_first);
    for (uint32_t i = 0; i < p->src_count; i++)
        read_block(plan, sides, p->src_first + i, p->src_block, p->offset, p->bytes);
    for (uint32_t i = skips; i < p->dst_count; i++)
        write_block(plan, sides, cover, p->dst_first + i, p->dst_block, p->offset, p->bytes);
    fuzz_expect(p->exchanges || p->back_bytes == 0);
    if (!p->exchanges)
        return;
    fuzz_expect(p->bytes <= OCCL_LOCAL_EXCHANGE_BYTES &&
                p->back_bytes <= OCCL_LOCAL_EXCHANGE_BYTES && p->src_first != p->dst_first);
    read_block(plan, sides, p->dst_first, p->dst_block, p->offset, p->back_bytes);
    write_block(plan, sides, cover, p->src_first, p->src_block, p->offset, p->back_bytes);
}

static void check_strand(const struct occl_local_plan *plan, const struct walk_sides *sides,
                         struct cover *cover, uint32_t index) {
    struct occl_local_walk walk;
    struct occl_local_piece piece;
    uint64_t bytes, at = occl_local_strand_range(plan, index, &bytes);
    fuzz_expect(bytes > 0 && at < plan->total_bytes && bytes <= plan->total_bytes - at);
    fuzz_expect((wide)occl_local_strand_traffic(plan, index) == (wide)bytes * plan->sides);
    occl_local_walk_to(plan, at, &walk);
    while (bytes > 0 && cover->pieces < PIECES_MAX) {
        uint64_t part = occl_local_walk_next(plan, &walk, bytes, &piece);
        fuzz_expect(part > 0 && part <= bytes);
        fuzz_expect(part == (piece.bytes > piece.back_bytes ? piece.bytes : piece.back_bytes));
        check_piece(plan, sides, cover, &piece);
        bytes -= part;
        cover->pieces++;
    }
    cover->all = cover->all && bytes == 0;
}

static void check_numbers(const struct occl_local_plan *plan) {
    wide room = (wide)plan->slice_bytes * plan->strand_count;
    wide traffic = (wide)plan->total_bytes * plan->sides;
    if (plan->total_bytes == 0) {
        fuzz_expect(plan->strand_count == 0 && plan->traffic_bytes == 0);
        return;
    }
    fuzz_expect(plan->strand_count > 0 && plan->strand_count <= OCCL_LOCAL_STRANDS_MAX);
    fuzz_expect(plan->slice_bytes % 64 == 0 && plan->slice_bytes >= 64);
    fuzz_expect(room >= plan->total_bytes && room - plan->total_bytes < plan->slice_bytes);
    fuzz_expect(plan->traffic_bytes == (traffic > UINT64_MAX ? UINT64_MAX : (uint64_t)traffic));
}

static void check_coverage(const struct occl_local_plan *plan, const struct cover *cover) {
    for (uint32_t m = 0; m < plan->member_count; m++)
        for (uint32_t b = 0; b < plan->member_count; b++)
            fuzz_expect(cover->done[m][b] == gets(plan, m, b));
}

void walk_check(const struct occl_local_plan *plan, const struct walk_sides *sides) {
    struct cover cover = {.all = true};
    check_numbers(plan);
    uint32_t count = plan->strand_count;
    for (uint32_t i = 0; i < count && i < STRANDS_MAX; i++)
        check_strand(plan, sides, &cover, i);
    cover.all = cover.all && count <= STRANDS_MAX;
    if (cover.all)
        check_coverage(plan, &cover);
    cover.pieces = 0;
    for (uint32_t i = count > 2 * STRANDS_MAX ? count - STRANDS_MAX : STRANDS_MAX; i < count; i++)
        check_strand(plan, sides, &cover, i);
}

/* ---- execution ---- */
struct rooms {
    unsigned char *src[OCCL_LOCAL_RANKS_MAX], *dst[OCCL_LOCAL_RANKS_MAX];
    const void *inputs[OCCL_LOCAL_RANKS_MAX];
    void *outputs[OCCL_LOCAL_RANKS_MAX];
    uint64_t factors[OCCL_LOCAL_RANKS_MAX];
    bool anyone_in_place;
};

static unsigned char value_at(uint32_t member, uint64_t at) {
    return (unsigned char)(member * 37 + at * 11 + (at >> 8) * 5 + 1);
}

/* Exactly as large as described: the sanitizer sees each byte beyond. */
static void open_rooms(const struct occl_local_plan *plan, const struct walk_sides *sides,
                       struct rooms *r) {
    for (uint32_t m = 0; m < plan->member_count; m++) {
        uint64_t in = sides->src_bytes[m], out = sides->dst_bytes[m];
        if (sides->in_place[m] && in < out)
            in = out;
        if (sides->has_src[m])
            r->src[m] = malloc(in);
        if (sides->has_dst[m] && !sides->in_place[m])
            r->dst[m] = malloc(out);
        for (uint64_t i = 0; r->src[m] && i < in; i++)
            r->src[m][i] = value_at(m, i);
        if (r->dst[m])
            memset(r->dst[m], GAP, out);
        r->inputs[m] = r->src[m];
        r->outputs[m] = sides->in_place[m] ? r->src[m] : r->dst[m];
        r->anyone_in_place = r->anyone_in_place || sides->in_place[m];
    }
}

/* The bytes of block `block` of member m's output, which were copied from member `from`. */
static void check_copied(const struct occl_local_plan *plan, const struct rooms *r, uint32_t m,
                         uint32_t block, uint32_t from) {
    bool addressed = extent_of(plan, from, false) == OCCL_EXTENT_ALL;
    uint64_t in = occl_local_src_offset(plan, from, addressed ? m : 0);
    uint64_t out = occl_local_dst_offset(plan, m, block);
    for (uint64_t i = 0; i < gets(plan, m, block); i++)
        fuzz_expect(r->dst[m][out + i] == value_at(from, in + i));
}

/* Blocks of an output that overlap are written in any order. */
static bool apart(const struct occl_local_plan *plan, uint32_t m, uint64_t bytes,
                  unsigned char *covered) {
    memset(covered, 0, bytes);
    for (uint32_t b = 0; b < plan->member_count; b++)
        for (uint64_t i = 0; i < gets(plan, m, b); i++)
            if (covered[occl_local_dst_offset(plan, m, b) + i]++)
                return false;
    return true;
}

static void check_output(const struct occl_local_plan *plan, const struct walk_sides *sides,
                         const struct rooms *r, uint32_t m) {
    unsigned char covered[ROOM_BYTES];
    uint32_t root = traits_of(plan)->flags & OCCL_KIND_ROOTED ? plan->root : 0;
    bool copies = !occl_local_reduces(plan);
    bool all = extent_of(plan, m, true) == OCCL_EXTENT_ALL;
    if (!r->dst[m] || !apart(plan, m, sides->dst_bytes[m], covered))
        return;
    for (uint64_t i = 0; i < sides->dst_bytes[m]; i++)
        fuzz_expect(covered[i] || r->dst[m][i] == GAP);
    for (uint32_t b = 0; copies && !r->anyone_in_place && b < plan->member_count; b++)
        check_copied(plan, r, m, b, all ? b : root);
}

void walk_execute(const struct occl_local_plan *plan, const struct walk_sides *sides,
                  const struct occl_movers *movers) {
    struct rooms r;
    uint64_t sum = 0;
    for (uint32_t m = 0; m < plan->member_count; m++) {
        if (sides->src_bytes[m] > ROOM_BYTES || sides->dst_bytes[m] > ROOM_BYTES)
            return;
        sum += sides->src_bytes[m] + sides->dst_bytes[m];
    }
    if (sum > ROOM_BYTES)
        return;
    memset(&r, 0, sizeof r);
    open_rooms(plan, sides, &r);
    struct occl_local_buffers buffers = {r.inputs, r.outputs, r.factors, 0};
    for (uint32_t i = plan->strand_count; i-- > 0;)
        fuzz_expect(occl_local_strand_run(plan, i, movers, &buffers) == OCCL_OK);
    for (uint32_t m = 0; m < plan->member_count; m++) {
        check_output(plan, sides, &r, m);
        free(r.src[m]);
        free(r.dst[m]);
    }
}
