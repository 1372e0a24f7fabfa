/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors that a tenant wrote, or goes on writing: each number out of range, forms that are not
 * those of the kind, references to nowhere, and changes between submission and execution. Nothing
 * outside the tenant's regions is touched, and every op ends. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm_ipc/op_kind.h"
#include "tests/engine/fixture.h"

#define RANKS 2u
#define COUNT 8u /* elements of each block */
/* Places in the region: vectors, inputs, outputs. */
#define VECTOR_AT(rank) ((rank)*512u)
#define SRC_AT(rank) (4096u * (1u + (rank)))
#define DST_AT(rank) (4096u * (3u + (rank)))
#define REGION_BYTES (6u * 4096u)

static const uint8_t kinds[] = {OCCL_OP_ALL_GATHER_V, OCCL_OP_REDUCE_SCATTER_V,
                                OCCL_OP_ALL_TO_ALL_V, OCCL_OP_GATHER_V, OCCL_OP_SCATTER_V};
#define KINDS (sizeof kinds / sizeof kinds[0])
#define ROOT 1u

static void fill_side(uint64_t *counts, uint32_t extent, bool rooted) {
    for (uint32_t i = 0; i < RANKS; i++) {
        bool here =
            extent == OCCL_EXTENT_ALL || (extent == OCCL_EXTENT_BLOCK && (!rooted || i == ROOT));
        counts[i] = here ? COUNT : 0;
        counts[RANKS + i] = extent == OCCL_EXTENT_ALL ? i * COUNT : 0;
    }
}

/* The vector of an op whose blocks all have COUNT elements. */
static void good_vector(uint32_t kind, uint32_t rank, uint64_t *out) {
    const struct occl_kind_traits *t = occl_kind_traits(kind);
    bool rooted = t->flags & OCCL_KIND_ROOTED;
    bool is_root = rooted && rank == ROOT;
    fill_side(out + OCCL_VECTOR_SEND_COUNT * RANKS, is_root ? t->send_root : t->send_other, rooted);
    fill_side(out + OCCL_VECTOR_RECV_COUNT * RANKS, is_root ? t->recv_root : t->recv_other, rooted);
}

static struct occl_sqe vector_sqe(const struct fx_comm *comm, uint32_t kind, uint32_t rank,
                                  uint32_t tag, uint32_t region) {
    const struct occl_kind_traits *t = occl_kind_traits(kind);
    struct occl_sqe sqe =
        fx_all_reduce(comm, rank, fx_key(tag, 0), 0, region, SRC_AT(rank), DST_AT(rank));
    sqe.signature.kind = (uint8_t)kind;
    sqe.signature.redop = t->flags & OCCL_KIND_REDUCES ? OCCL_RO_SUM : 0;
    sqe.signature.root = t->flags & OCCL_KIND_ROOTED ? ROOT : 0;
    sqe.vector = (struct occl_buffer_ref){OCCL_SPACE_REGION, region, VECTOR_AT(rank)};
    sqe.user_data = tag;
    return sqe;
}

struct scene {
    struct fx fx;
    struct fx_comm *comm;
    char *data;
    uint32_t region;
};

static void scene_open(struct scene *s) {
    fx_open(&s->fx, &(struct fx_options){0});
    s->comm = fx_simple(&s->fx, RANKS);
    s->data = fx_region(&s->fx, 1, REGION_BYTES, &s->region);
}
static void scene_close(struct scene *s) {
    assert_int_equal(occl_observe64(&s->fx.faults), 0);
    fx_close(&s->fx);
    free(s->data);
}

static uint64_t *vector_of(struct scene *s, uint32_t rank) {
    return (uint64_t *)(void *)(s->data + VECTOR_AT(rank));
}

/* Both ranks bring a good one: it works, and the result is what the kind promises. */
static void still_serves(struct scene *s, uint32_t kind, uint32_t tag) {
    const struct occl_kind_traits *t = occl_kind_traits(kind);
    for (uint32_t r = 0; r < RANKS; r++) {
        good_vector(kind, r, vector_of(s, r));
        for (uint32_t i = 0; i <= 2 * COUNT; i++) {
            ((int32_t *)(void *)(s->data + SRC_AT(r)))[i] = (int32_t)(r * 100 + i);
            ((int32_t *)(void *)(s->data + DST_AT(r)))[i] = -1;
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        struct occl_sqe sqe = vector_sqe(s->comm, kind, r, tag, s->region);
        fx_submit(&s->fx, s->comm, r, &sqe);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        fx_expect(&s->fx, s->comm, r, tag, OCCL_OK, OCCL_RANK_NONE);
    /* The last block of the root, which receives in every kind. */
    const int32_t *out = (const void *)(s->data + DST_AT(ROOT));
    bool all = t->recv_root == OCCL_EXTENT_ALL;
    for (uint32_t i = 0; i < COUNT; i++) {
        int32_t from_1 = (int32_t)(100 + i + (t->send_root == OCCL_EXTENT_ALL ? COUNT : 0));
        int32_t want = kind == OCCL_OP_REDUCE_SCATTER_V ? 2 * from_1 - 100 : from_1;
        assert_int_equal(out[(all ? COUNT : 0) + i], want);
    }
    assert_int_equal(out[(all ? 2 : 1) * COUNT], -1);
}

/* What rank ROOT, or the other one, writes into its own vector or entry. */
struct bad {
    const char *what;
    uint32_t kind, rank;
    int status;
    void (*spoil)(uint64_t *vector, struct occl_sqe *sqe);
};

#define BAD(name_, statement_)                                        \
    static void name_(uint64_t *v __attribute__((unused)),            \
                      struct occl_sqe *sqe __attribute__((unused))) { \
        statement_;                                                   \
    }
#define SEND(i) v[OCCL_VECTOR_SEND_COUNT * RANKS + (i)]
#define SEND_PLACE(i) v[OCCL_VECTOR_SEND_AT * RANKS + (i)]
#define RECV(i) v[OCCL_VECTOR_RECV_COUNT * RANKS + (i)]
#define RECV_PLACE(i) v[OCCL_VECTOR_RECV_AT * RANKS + (i)]
BAD(no_vector, sqe->vector.space = OCCL_SPACE_NONE)
BAD(private_vector, sqe->vector.space = OCCL_SPACE_PRIVATE)
BAD(no_space, sqe->vector.space = 7)
BAD(no_region, sqe->vector.region = 999)
BAD(region_end, sqe->vector.offset = REGION_BYTES - 8)
BAD(region_far, sqe->vector.offset = UINT64_MAX - 7)
BAD(misaligned, sqe->vector.offset += 4)
BAD(payload_of_nobody, sqe->vector.space = OCCL_SPACE_PAYLOAD; sqe->vector.offset = UINT64_MAX - 63)
BAD(count_set, sqe->signature.count = 1)
BAD(factor_set, sqe->factor = 1)
BAD(send_huge, SEND(0) = 1ull << 50)
BAD(send_wraps, SEND(0) = UINT64_MAX; SEND_PLACE(0) = 2)
BAD(place_huge, RECV_PLACE(1) = 1ull << 62)
BAD(sum_past_region, SEND(1) = REGION_BYTES / 4; SEND_PLACE(1) = 1)
BAD(place_past_region, RECV_PLACE(0) = (1ull << 40))
/* Forms that are not those of the kind: plans look a single block up in one place. */
BAD(block_sent_from_elsewhere, SEND_PLACE(0) = 1ull << 40)
BAD(block_taken_elsewhere, RECV_PLACE(0) = 1ull << 40)
BAD(block_taken_at_root_elsewhere, RECV_PLACE(ROOT) = 4)
BAD(other_block_for_another, SEND(1) = 1)
BAD(other_block_from_another, RECV(1) = 1)
BAD(gift_to_nobody, SEND(0) = COUNT)
BAD(gets_though_it_does_not, RECV(ROOT) = COUNT)
BAD(gives_though_it_does_not, SEND(ROOT) = COUNT)

static void every_bad_vector_is_refused(void **state) {
    static const struct bad bads[] = {
        {"none", OCCL_OP_ALL_TO_ALL_V, 0, OCCL_E_INVALID, no_vector},
        {"private", OCCL_OP_ALL_TO_ALL_V, 0, OCCL_E_INVALID, private_vector},
        {"space", OCCL_OP_ALL_TO_ALL_V, 1, OCCL_E_INVALID, no_space},
        {"region", OCCL_OP_ALL_TO_ALL_V, 0, OCCL_E_FAULT, no_region},
        {"end of the region", OCCL_OP_GATHER_V, 0, OCCL_E_FAULT, region_end},
        {"offset", OCCL_OP_GATHER_V, 1, OCCL_E_FAULT, region_far},
        {"alignment", OCCL_OP_SCATTER_V, 1, OCCL_E_INVALID, misaligned},
        {"payload", OCCL_OP_SCATTER_V, 0, OCCL_E_FAULT, payload_of_nobody},
        {"count", OCCL_OP_ALL_GATHER_V, 0, OCCL_E_INVALID, count_set},
        {"factor", OCCL_OP_REDUCE_SCATTER_V, 0, OCCL_E_INVALID, factor_set},
        {"send count", OCCL_OP_ALL_TO_ALL_V, 0, OCCL_E_INVALID, send_huge},
        {"send count wraps", OCCL_OP_ALL_TO_ALL_V, 0, OCCL_E_INVALID, send_wraps},
        {"receive place", OCCL_OP_ALL_TO_ALL_V, 1, OCCL_E_INVALID, place_huge},
        {"sum past region", OCCL_OP_ALL_TO_ALL_V, 1, OCCL_E_FAULT, sum_past_region},
        {"place past region", OCCL_OP_ALL_TO_ALL_V, 0, OCCL_E_FAULT, place_past_region},
        {"all_gather source place", OCCL_OP_ALL_GATHER_V, 0, OCCL_E_INVALID,
         block_sent_from_elsewhere},
        {"gather source place", OCCL_OP_GATHER_V, 0, OCCL_E_INVALID, block_sent_from_elsewhere},
        {"scatter place", OCCL_OP_SCATTER_V, 0, OCCL_E_INVALID, block_taken_elsewhere},
        {"scatter place at root", OCCL_OP_SCATTER_V, 0, OCCL_E_INVALID,
         block_taken_at_root_elsewhere},
        {"reduce_scatter place", OCCL_OP_REDUCE_SCATTER_V, 1, OCCL_E_INVALID,
         block_taken_elsewhere},
        {"all_gather blocks", OCCL_OP_ALL_GATHER_V, 0, OCCL_E_INVALID, other_block_for_another},
        {"reduce_scatter blocks", OCCL_OP_REDUCE_SCATTER_V, 0, OCCL_E_INVALID,
         other_block_from_another},
        {"gather to nobody", OCCL_OP_GATHER_V, 0, OCCL_E_INVALID, gift_to_nobody},
        {"gather gets", OCCL_OP_GATHER_V, 0, OCCL_E_INVALID, gets_though_it_does_not},
        {"scatter gives", OCCL_OP_SCATTER_V, 0, OCCL_E_INVALID, gives_though_it_does_not},
    };
    struct scene s;
    (void)state;
    scene_open(&s);
    for (uint32_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        const struct bad *bad = &bads[i];
        struct occl_cqe cqe = {0};
        struct occl_sqe sqe = vector_sqe(s.comm, bad->kind, bad->rank, 100 + i, s.region);
        good_vector(bad->kind, bad->rank, vector_of(&s, bad->rank));
        bad->spoil(vector_of(&s, bad->rank), &sqe);
        fx_submit(&s.fx, s.comm, bad->rank, &sqe);
        if (!fx_wait(&s.fx, s.comm->sessions[bad->rank], fx_patience_ns() / 10, &cqe))
            fail_msg("%s: taken in", bad->what);
        if (cqe.status != bad->status || cqe.user_data != 100 + i)
            fail_msg("%s: status %d", bad->what, cqe.status);
    }
    for (uint32_t k = 0; k < KINDS; k++)
        still_serves(&s, kinds[k], 1 + k);
    scene_close(&s);
}

/* The numbers of two good vectors need not agree. */
static void blocks_that_differ_are_named(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    for (uint32_t k = 0; k < KINDS; k++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            uint64_t *v = vector_of(&s, r);
            struct occl_sqe sqe = vector_sqe(s.comm, kinds[k], r, 10 + k, s.region);
            good_vector(kinds[k], r, v);
            for (uint32_t i = 0; i < RANKS && r == 0; i++)
                v[i] -= v[i] ? 1 : 0, v[2 * RANKS + i] -= v[2 * RANKS + i] ? 2 : 0;
            fx_submit(&s.fx, s.comm, r, &sqe);
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            struct occl_cqe cqe = {0};
            assert_true(fx_wait(&s.fx, s.comm->sessions[r], fx_patience_ns(), &cqe));
            assert_int_equal(cqe.status, OCCL_E_MISMATCH);
            assert_int_equal(cqe.field, OCCL_FIELD_BLOCK);
        }
        still_serves(&s, kinds[k], 20 + k);
    }
    scene_close(&s);
}

/* Where somebody is in place, pairs of members exchange their blocks. Who gives nothing has no
 * buffer, whichever of the two it is. */
static void exchanges_go_one_way(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    for (uint32_t giver = 0; giver < RANKS; giver++) {
        memset(s.data, 0, REGION_BYTES);
        for (uint32_t r = 0; r < RANKS; r++) {
            struct occl_sqe sqe = vector_sqe(s.comm, OCCL_OP_ALL_TO_ALL_V, r, 1 + giver, s.region);
            uint64_t *v = vector_of(&s, r);
            v[OCCL_VECTOR_SEND_COUNT * RANKS + 0] = r == giver ? COUNT : 0;
            v[OCCL_VECTOR_SEND_COUNT * RANKS + 1] = r == giver ? COUNT : 0;
            v[OCCL_VECTOR_SEND_AT * RANKS + 1] = r == giver ? COUNT : 0;
            v[OCCL_VECTOR_RECV_COUNT * RANKS + giver] = COUNT;
            if (r == giver) { /* in place, with its own block where the other's would be */
                sqe.dst = sqe.src;
                v[OCCL_VECTOR_RECV_AT * RANKS + giver] = giver * COUNT;
            } else {
                sqe.src = (struct occl_buffer_ref){OCCL_SPACE_NONE, 0, 0};
            }
            for (uint32_t i = 0; i < RANKS * COUNT; i++)
                ((int32_t *)(void *)(s.data + SRC_AT(r)))[i] = (int32_t)(r * 100 + i);
            fx_submit(&s.fx, s.comm, r, &sqe);
        }
        for (uint32_t r = 0; r < RANKS; r++)
            fx_expect(&s.fx, s.comm, r, 1 + giver, OCCL_OK, OCCL_RANK_NONE);
        uint32_t taker = 1 - giver;
        const int32_t *out = (const void *)(s.data + DST_AT(taker));
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(out[i], giver * 100 + taker * COUNT + i);
    }
    scene_close(&s);
}

/* What a kind does not have must be 0 in its entries. */
static void fields_of_other_kinds(void **state) {
    struct scene s;
    uint32_t tag = 1000;
    (void)state;
    scene_open(&s);
    for (uint32_t kind = 1; kind < OCCL_OP_LIMIT; kind++) {
        const struct occl_kind_traits *t = occl_kind_traits(kind);
        if (t->flags & OCCL_KIND_PAIR)
            continue;
        for (int field = 0; field < 5; field++) {
            struct occl_sqe sqe = vector_sqe(s.comm, kind, 0, ++tag, s.region);
            struct occl_cqe cqe = {0};
            if (!(t->flags & OCCL_KIND_VECTOR))
                sqe.vector = (struct occl_buffer_ref){0, 0, 0};
            if (!(t->flags & OCCL_KIND_TYPED))
                sqe.signature.dtype = 0;
            if (field == 0)
                sqe.factor = 3;
            else if (field == 1 && !(t->flags & OCCL_KIND_VECTOR))
                sqe.vector.offset = 8;
            else if (field == 2 && !(t->flags & OCCL_KIND_REDUCES))
                sqe.signature.redop = OCCL_RO_PREMULSUM;
            else if (field == 3 && !(t->flags & OCCL_KIND_ROOTED))
                sqe.signature.root = 1;
            else if (field == 4 && (!(t->flags & OCCL_KIND_TYPED) || t->flags & OCCL_KIND_VECTOR))
                sqe.signature.count = 1;
            else
                continue;
            fx_submit(&s.fx, s.comm, 0, &sqe);
            assert_true(fx_wait(&s.fx, s.comm->sessions[0], fx_patience_ns(), &cqe));
            if (cqe.status != OCCL_E_INVALID)
                fail_msg("%s field %d: status %d", t->name, field, cqe.status);
        }
    }
    scene_close(&s);
}

/* ---- a vector that does not stand still ---- */

struct scribbler {
    struct scene *scene;
    uint32_t stop, kind;
};

static void *scribble(void *arg) {
    struct scribbler *me = arg;
    uint64_t random = 7;
    while (!occl_observe32(&me->stop)) {
        uint64_t x = fx_random(&random), good[OCCL_VECTOR_PARTS * RANKS];
        uint32_t rank = (uint32_t)(x & 1), at = (uint32_t)(x >> 1) % (OCCL_VECTOR_PARTS * RANKS);
        uint64_t *v = vector_of(me->scene, rank);
        static const uint64_t values[] = {0, 1, COUNT, 2 * COUNT, 1000, 1ull << 40, 1ull << 63};
        good_vector(occl_peek32(&me->kind), rank, good);
        if (x >> 8 & 3)
            for (uint32_t i = 0; i < OCCL_VECTOR_PARTS * RANKS; i++)
                occl_note64(&v[i], good[i]);
        else
            occl_note64(&v[at], values[(x >> 16) % (sizeof values / sizeof values[0])]);
    }
    return NULL;
}

static void changed_while_it_is_used(void **state) {
    struct scene s;
    pthread_t thread;
    uint32_t ended[4] = {0};
    (void)state;
    scene_open(&s);
    struct scribbler arg = {&s, 0, kinds[0]};
    assert_int_equal(pthread_create(&thread, NULL, scribble, &arg), 0);
    for (uint32_t n = 0; n < 20000; n++) {
        uint32_t kind = kinds[n / 16 % KINDS];
        occl_note32(&arg.kind, kind);
        for (uint32_t r = 0; r < RANKS; r++) {
            struct occl_sqe sqe = vector_sqe(s.comm, kind, r, 1 + n % 1000, s.region);
            sqe.key.instance = n / 1000;
            fx_submit(&s.fx, s.comm, r, &sqe);
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            struct occl_cqe cqe = {0};
            assert_true(fx_wait(&s.fx, s.comm->sessions[r], fx_patience_ns(), &cqe));
            uint32_t which = cqe.status == OCCL_OK           ? 0
                             : cqe.status == OCCL_E_INVALID  ? 1
                             : cqe.status == OCCL_E_MISMATCH ? 2
                                                             : 3;
            if (which == 3)
                assert_int_equal(cqe.status, OCCL_E_FAULT);
            ended[which]++;
        }
    }
    occl_publish32(&arg.stop, 1);
    (void)pthread_join(thread, NULL);
    /* All four occur, else the race was none. */
    for (uint32_t i = 0; i < 4; i++)
        assert_true(ended[i] > 0);
    for (uint32_t k = 0; k < KINDS; k++)
        still_serves(&s, kinds[k], 2000 + k);
    scene_close(&s);
}

/* ---- EXECUTE: vectors named in a record's lines ---- */

/* A record that is LOCAL, as members make it, and a call for lanes. */
static struct occl_record *local_record(struct scene *s, uint32_t kind, struct occl_op_key key) {
    struct occl_place place = occl_place_of(key);
    struct occl_records *m = &s->comm->records;
    struct occl_record *record = occl_record_at(m, place.slot);
    struct occl_claim *claim = occl_claim_of(m, place.slot);
    uint32_t now;
    for (uint32_t r = 0; r < RANKS; r++) {
        struct occl_line *line = occl_line_at(record, r);
        struct occl_sqe sqe = vector_sqe(s->comm, kind, r, 0, s->region);
        assert_int_not_equal(occl_claim_enter(claim, place.print, false), OCCL_ENTER_RING);
        occl_line_fill(line, key, &sqe.signature);
        line->u.ref.src = sqe.src;
        line->u.ref.dst = sqe.dst;
        line->vector = sqe.vector;
        assert_true(occl_record_arrive(line, place.print, 0));
    }
    assert_true(occl_record_decide(record, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now));
    struct occl_sqe call = {.verb = OCCL_SQE_EXECUTE,
                            .priority = 255,
                            .slot = (uint16_t)place.slot,
                            .comm = s->comm->numbers[0],
                            .key = key};
    fx_submit(&s->fx, s->comm, 0, &call);
    return record;
}

static uint64_t ignored(struct scene *s) {
    struct occl_engine_counters counters;
    occl_engine_counters(s->fx.engine, &counters);
    return counters.ignored;
}

/* DONE, ABORTED, or LOCAL when lanes found nothing to execute; then the members end and leave it.
 */
static uint32_t outcome_of(struct scene *s, struct occl_record *record, struct occl_op_key key,
                           uint64_t ignored_before) {
    struct occl_records *m = &s->comm->records;
    struct occl_place place = occl_place_of(key);
    uint64_t until = fx_now_ns() + fx_patience_ns();
    while (occl_rec_kind(occl_observe32(&record->state)) == OCCL_REC_LOCAL &&
           ignored(s) == ignored_before && fx_now_ns() < until)
        occl_clock_sleep_ns(&s->fx.clock, 20000);
    assert_true(fx_now_ns() < until);
    uint32_t state = occl_rec_kind(occl_observe32(&record->state));
    if (state == OCCL_REC_LOCAL)
        (void)occl_record_abort(m, place.slot, place.print, OCCL_E_ABORTED, 0);
    for (uint32_t r = 0; r < RANKS; r++)
        occl_claim_leave(m, occl_claim_index(place.slot));
    return state;
}

static void lanes_execute_blocks_of_a_record(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    for (uint32_t k = 0; k < KINDS; k++) {
        struct occl_op_key key = fx_key(100, 1 + k);
        for (uint32_t r = 0; r < RANKS; r++)
            good_vector(kinds[k], r, vector_of(&s, r));
        uint64_t before = ignored(&s);
        memset(s.data + DST_AT(ROOT), 7, 4 * COUNT);
        struct occl_record *record = local_record(&s, kinds[k], key);
        assert_int_equal(outcome_of(&s, record, key, before), OCCL_REC_DONE);
        assert_int_not_equal(s.data[DST_AT(ROOT)], 7);
    }
    scene_close(&s);
}

static void scribbled_vectors_of_a_record(void **state) {
    struct scene s;
    pthread_t thread;
    uint32_t ended[OCCL_REC_ABORTED + 1] = {0};
    (void)state;
    scene_open(&s);
    struct scribbler arg = {&s, 0, kinds[0]};
    assert_int_equal(pthread_create(&thread, NULL, scribble, &arg), 0);
    for (uint32_t n = 0; n < 3000; n++) {
        struct occl_op_key key = fx_key(100, 1 + n % 100 + n / 100 * 128);
        occl_note32(&arg.kind, kinds[n / 16 % KINDS]);
        uint64_t before = ignored(&s);
        struct occl_record *record = local_record(&s, kinds[n / 16 % KINDS], key);
        ended[outcome_of(&s, record, key, before)]++;
    }
    occl_publish32(&arg.stop, 1);
    (void)pthread_join(thread, NULL);
    assert_true(ended[OCCL_REC_DONE] > 0 && ended[OCCL_REC_DONE] < 3000);
    for (uint32_t k = 0; k < KINDS; k++)
        still_serves(&s, kinds[k], 2000 + k);
    scene_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bad_vector_is_refused),
        cmocka_unit_test(blocks_that_differ_are_named),
        cmocka_unit_test(exchanges_go_one_way),
        cmocka_unit_test(fields_of_other_kinds),
        cmocka_unit_test(changed_while_it_is_used),
        cmocka_unit_test(lanes_execute_blocks_of_a_record),
        cmocka_unit_test(scribbled_vectors_of_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
