/* SPDX-License-Identifier: Apache-2.0 */
/* Submissions of all members of one op, with descriptors and vectors that tenants made up and go on
 * changing, through the checks of the daemon, the plan and the walk over its strands. Whatever is
 * accepted stays inside the buffers it describes, writes each output byte once, and does so when
 * it is executed. */
#include "daemon/engine/internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/vector_walk.h"

#include "shm_ipc/datatype.h"

#define VECTORS 1u /* regions */
#define BUFFERS 2u
/* Never touched: where the buffers would be. */
#define BUFFERS_AT (1ull << 40)
#define BUFFERS_BYTES (1ull << 53)

/* The room of the vectors is the tenants' memory. */
struct scene {
    struct fuzz_input *in;
    struct occl_signature sig;
    uint32_t members, element;
    bool rooted;
    uint64_t in_place;
    uint64_t (*shared)[OCCL_VECTOR_NUMBERS_MAX];
    struct occl_eng_comm *comm;
    struct occl_eng_op *op;
    struct occl_eng_run *run;
};

/* Mostly small; now and then at the limits, or anything. */
static uint64_t take_number(const struct scene *s) {
    static const uint64_t edges[] = {
        0,          1,          63,         4096,       65535,          1ull << 31, 1ull << 32,
        1ull << 45, 1ull << 46, 1ull << 47, 1ull << 48, (1ull << 49),   1ull << 50, 1ull << 62,
        1ull << 63, UINT64_MAX, 1ull << 60, 1ull << 61, UINT32_MAX + 1u};
    uint32_t first = fuzz_take8(s->in), second;
    uint64_t value;
    if (first < 200)
        return first < 100 ? first % 20 : first;
    second = fuzz_take8(s->in);
    if (first < 215)
        return (uint64_t)second << 8;
    value = edges[second % (sizeof edges / sizeof edges[0])];
    if (first < 230)
        return value - (first & 1);
    if (first < 248)
        return value / (s->element ? s->element : 1) - (first & 1);
    fuzz_take(s->in, &value, sizeof value);
    return value;
}

static uint8_t take_dtype(struct fuzz_input *in) {
    static const uint8_t types[] = {OCCL_DT_INT8,  OCCL_DT_INT64,        OCCL_DT_INT32,
                                    OCCL_DT_INT16, OCCL_DT_FLOAT16,      OCCL_DT_INT64_INT64,
                                    OCCL_DT_UINT8, OCCL_DT_FLOAT64_INT64};
    uint32_t b = fuzz_take8(in);
    return (uint8_t)(b < 200 ? types[b % sizeof types] : b - 200);
}

static void take_signature(struct scene *s) {
    struct fuzz_input *in = s->in;
    s->sig.kind = (uint8_t)(fuzz_take8(in) % (OCCL_OP_LIMIT + 1));
    const struct occl_kind_traits *traits = occl_kind_traits(s->sig.kind);
    uint32_t flags = traits ? traits->flags : 0, b;
    s->sig.dtype = flags & OCCL_KIND_TYPED ? take_dtype(in) : 0;
    b = fuzz_take8(in);
    s->sig.redop = flags & OCCL_KIND_REDUCES ? (uint8_t)(b % (OCCL_RO_LIMIT + 1)) : 0;
    b = fuzz_take8(in);
    s->members = b < 240 ? 1 + b % 6 : 1 + fuzz_take8(in) % OCCL_LOCAL_RANKS_MAX;
    s->rooted = flags & OCCL_KIND_ROOTED;
    b = fuzz_take8(in);
    s->sig.root = s->rooted ? b % (s->members + (b == 255)) : 0;
    if (flags & OCCL_KIND_PAIR) {
        s->members = 2;
        s->sig.root = 1;
    }
    s->element = (uint32_t)occl_dtype_bytes(s->sig.dtype);
    s->sig.count = flags & OCCL_KIND_VECTOR || !(flags & OCCL_KIND_TYPED) ? 0 : take_number(s);
    b = fuzz_take8(in);
    if (b == 0)
        s->sig.count = take_number(s);
    if (b == 1)
        s->sig.program_id = fuzz_take8(in);
    if (b == 2)
        s->sig.selection_version = (uint8_t)fuzz_take8(in);
}

/* ---- vectors ---- */
static uint32_t sends_as(const struct scene *s, uint32_t member) {
    const struct occl_kind_traits *t = occl_kind_traits(s->sig.kind);
    return s->rooted && member == s->sig.root ? t->send_root : t->send_other;
}
static uint32_t receives_as(const struct scene *s, uint32_t member) {
    const struct occl_kind_traits *t = occl_kind_traits(s->sig.kind);
    return s->rooted && member == s->sig.root ? t->recv_root : t->recv_other;
}

/* Places of a side's blocks: one behind the other, with gaps. */
static void take_places(const struct scene *s, uint64_t *counts, uint32_t extent) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->members; i++) {
        uint32_t gap = extent == OCCL_EXTENT_ALL ? fuzz_take8(s->in) : 0;
        at += gap % 4 == 3 ? gap / 4 : 0;
        counts[s->members + i] = extent == OCCL_EXTENT_ALL ? at : 0;
        at += counts[i];
    }
}

/* Such as members write that agree: what a block's size depends on follows from the kind. */
static void take_agreed(const struct scene *s) {
    uint32_t n = s->members;
    uint64_t of_one[OCCL_LOCAL_RANKS_MAX];
    for (uint32_t i = 0; i < n; i++)
        of_one[i] = take_number(s);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            uint32_t from = sends_as(s, i), to = receives_as(s, j);
            uint64_t count = from == OCCL_EXTENT_BLOCK ? of_one[i] : of_one[j];
            if (from == OCCL_EXTENT_ALL && to == OCCL_EXTENT_ALL)
                count = n > 8 ? of_one[(i + j) % n] : take_number(s);
            if (from == OCCL_EXTENT_NONE || to == OCCL_EXTENT_NONE)
                count = 0;
            s->shared[i][OCCL_VECTOR_SEND_COUNT * n + j] = count;
            s->shared[j][OCCL_VECTOR_RECV_COUNT * n + i] = count;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        take_places(s, s->shared[i] + OCCL_VECTOR_SEND_COUNT * n, sends_as(s, i));
        take_places(s, s->shared[i] + OCCL_VECTOR_RECV_COUNT * n, receives_as(s, i));
    }
}

static void take_anything(const struct scene *s) {
    for (uint32_t i = 0; i < s->members; i++)
        for (uint32_t k = 0; k < OCCL_VECTOR_PARTS * s->members; k++)
            s->shared[i][k] = take_number(s);
}

/* Tenants change a few numbers. */
static void scribble(const struct scene *s) {
    uint32_t b = fuzz_take8(s->in);
    for (uint32_t i = b < 160 ? 0 : b % 5; i > 0; i--) {
        uint32_t member = fuzz_take8(s->in) % s->members;
        uint32_t at = fuzz_take8(s->in) % (OCCL_VECTOR_PARTS * s->members);
        uint64_t *number = &s->shared[member][at];
        *number = fuzz_take8(s->in) % 2 ? *number + take_number(s) : take_number(s);
    }
}

/* ---- the daemon's part ---- */
static struct occl_sqe sqe_of(const struct scene *s, uint32_t member) {
    bool pair = s->sig.kind == OCCL_OP_SEND || s->sig.kind == OCCL_OP_RECV;
    struct occl_sqe sqe = {.verb = OCCL_SQE_SUBMIT,
                           .priority = 255,
                           .key = {pair ? 1u : OCCL_PEERS_ALL, 0, 0},
                           .signature = s->sig,
                           .src = {OCCL_SPACE_REGION, BUFFERS, 0},
                           .dst = {OCCL_SPACE_REGION, BUFFERS, BUFFERS_BYTES / 2}};
    if (pair)
        sqe.signature.kind = member == 0 ? OCCL_OP_SEND : OCCL_OP_RECV;
    const struct occl_kind_traits *traits = occl_kind_traits(s->sig.kind);
    if (traits && traits->flags & OCCL_KIND_VECTOR)
        sqe.vector =
            (struct occl_buffer_ref){OCCL_SPACE_REGION, VECTORS, member * sizeof s->shared[0]};
    if (s->in_place >> member & 1)
        sqe.dst.offset = sqe.src.offset;
    uint32_t b = fuzz_take8(s->in);
    if (b >= 240) {
        struct occl_buffer_ref *ref = b % 3 == 0 ? &sqe.src : b % 3 == 1 ? &sqe.dst : &sqe.vector;
        ref->space = fuzz_take8(s->in) % 5;
        ref->offset = take_number(s);
        ref->region = fuzz_take8(s->in) % 4;
        if (ref == &sqe.vector && ref->region == BUFFERS)
            ref->region = VECTORS; /* there is no memory to read */
    }
    return sqe;
}

static void expect_inside(const void *at, uint64_t bytes, const void *base, uint64_t base_bytes) {
    uint64_t offset = (uint64_t)(uintptr_t)at - (uint64_t)(uintptr_t)base;
    fuzz_expect(at == NULL || (offset <= base_bytes && bytes <= base_bytes - offset));
}

/* What was resolved lies in the regions, or in the member's own payload. */
static void check_sides(const struct scene *s, uint32_t member,
                        const struct occl_eng_sides *sides) {
    const struct occl_records *r = &s->comm->records;
    const char *payload = r->base + r->payload_offset + (uint64_t)member * r->payload_stride;
    const union {
        uint64_t address;
        const char *base;
    } buffers = {.address = BUFFERS_AT};
    const void *at[3] = {sides->src, sides->dst, sides->vector};
    uint64_t bytes[3] = {sides->src_bytes, sides->dst_bytes, occl_vector_bytes(s->members)};
    uint32_t region[3] = {sides->src_region, sides->dst_region, sides->vector_region};
    for (int i = 0; i < 3; i++) {
        if (region[i] == VECTORS)
            expect_inside(at[i], bytes[i], s->shared, sizeof s->shared[0] * s->members);
        else if (region[i] == BUFFERS)
            expect_inside(at[i], bytes[i], buffers.base, BUFFERS_BYTES);
        else
            expect_inside(at[i], bytes[i], payload, r->payload_stride);
    }
}

/* One submission after the other, as occl_eng_submit takes them. */
static bool submit_all(const struct scene *s) {
    bool accepted = true;
    for (uint32_t i = 0; i < s->members; i++) {
        struct occl_sqe sqe = sqe_of(s, i);
        struct occl_eng_member *m = occl_eng_member_at(s->op, i);
        uint64_t block;
        memset(m, 0, sizeof *m);
        m->signature = sqe.signature;
        int status = occl_eng_check_sqe(&sqe, s->comm->ranks, i, &block);
        if (status == OCCL_OK)
            status = occl_eng_resolve_sides(s->comm, i, &sqe.signature, i, s->members, &sqe.src,
                                            &sqe.dst, &sqe.vector, &m->sides);
        accepted = accepted && status == OCCL_OK;
        if (status == OCCL_OK)
            check_sides(s, i, &m->sides);
        else
            fuzz_expect(status == OCCL_E_INVALID || status == OCCL_E_FAULT);
    }
    return accepted;
}

static bool somebody_in_place(const struct scene *s) {
    for (uint32_t i = 0; i < s->members; i++) {
        const struct occl_eng_sides *sides = &occl_eng_member_at(s->op, i)->sides;
        if (sides->src && sides->src == sides->dst)
            return true;
    }
    return false;
}

/* The op of all members starts: copies of the vectors, then the plan. */
static bool start(const struct scene *s, struct occl_local_plan *plan) {
    const struct occl_local_vectors *vectors = NULL;
    uint32_t about = 0;
    if (occl_kind_traits(s->sig.kind)->flags & OCCL_KIND_VECTOR) {
        int status = occl_eng_op_vectors(s->run, s->op, &about);
        fuzz_expect(about < s->members);
        if (status != OCCL_OK)
            return false;
        vectors = &s->run->vectors;
    }
    fuzz_expect(occl_local_plan_make(&occl_eng_member_at(s->op, 0)->signature, s->members,
                                     somebody_in_place(s), vectors, plan) == OCCL_OK);
    return true;
}

static void use(const struct scene *s, const struct occl_local_plan *plan) {
    struct walk_sides sides;
    memset(&sides, 0, sizeof sides);
    for (uint32_t i = 0; i < s->members; i++) {
        const struct occl_eng_sides *from = &occl_eng_member_at(s->op, i)->sides;
        sides.src_bytes[i] = from->src_bytes;
        sides.dst_bytes[i] = from->dst_bytes;
        sides.has_src[i] = from->src != NULL;
        sides.has_dst[i] = from->dst != NULL;
        sides.in_place[i] = from->src != NULL && from->src == from->dst;
    }
    walk_check(plan, &sides);
    walk_execute(plan, &sides, occl_movers_select(OCCL_ISA_PORTABLE));
}

/* ---- the scene ---- */
struct stage {
    struct occl_eng_comm comm;
    struct occl_eng_job job;
    struct occl_eng_op op;
    struct occl_eng_block blocks[OCCL_ENG_BLOCKS];
    struct occl_eng_run run;
    uint64_t room[OCCL_ENG_VECTOR_ROOM];
    uint64_t shared[OCCL_LOCAL_RANKS_MAX][OCCL_VECTOR_NUMBERS_MAX];
};

/* One for all inputs: what is in it is written before it is read. */
static struct stage *stage_open(void) {
    static struct stage *stage;
    struct occl_comm_page header;
    if (stage)
        return stage;
    stage = calloc(1, sizeof *stage);
    fuzz_expect(stage != NULL && occl_guard_install() == OCCL_OK);
    struct occl_eng_map map = {0};
    fuzz_expect(occl_eng_map_grow(&map, 2, &stage->job.regions) == OCCL_OK);
    union {
        uint64_t address;
        void *base;
    } buffers = {.address = BUFFERS_AT};
    occl_eng_map_put(&stage->job.regions, BUFFERS, buffers.base, BUFFERS_BYTES);
    occl_eng_map_put(&stage->job.regions, VECTORS, stage->shared, 0);
    occl_comm_page_layout(OCCL_LOCAL_RANKS_MAX, 1, &header);
    char *page = calloc(1, header.page_bytes);
    fuzz_expect(page != NULL);
    memcpy(page, &header, sizeof header);
    fuzz_expect(occl_records_open(page, header.page_bytes, &stage->comm.records) == OCCL_OK);
    stage->comm.job = &stage->job;
    for (uint32_t i = 0; i < OCCL_ENG_BLOCKS; i++)
        stage->op.blocks[i] = &stage->blocks[i];
    stage->run.vector_room = stage->room;
    return stage;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct fuzz_input in = {data, bytes};
    struct stage *stage = stage_open();
    struct scene s = {.in = &in,
                      .shared = stage->shared,
                      .comm = &stage->comm,
                      .op = &stage->op,
                      .run = &stage->run};
    struct occl_local_plan plan;
    take_signature(&s);
    uint32_t how = fuzz_take8(&in);
    s.in_place = how & 1 ? fuzz_take8(&in) : 0;
    stage->comm.ranks = stage->op.members = s.members;
    stage->op.key.peers = OCCL_PEERS_ALL;
    occl_eng_map_find(&stage->job.regions, VECTORS)->extra = sizeof s.shared[0] * s.members;
    const struct occl_kind_traits *traits = occl_kind_traits(s.sig.kind);
    if (how % 16 < 14 && traits)
        take_agreed(&s);
    else
        take_anything(&s);
    scribble(&s);
    if (!submit_all(&s))
        return 0;
    scribble(&s); /* behind the daemon's back */
    if (!start(&s, &plan))
        return 0;
    memset(stage->shared, 0xff, sizeof s.shared[0] * s.members);
    use(&s, &plan);
    return 0;
}
