/* SPDX-License-Identifier: Apache-2.0 */
/* EXECUTE: lanes run the strands of LOCAL records; records that are no op are ignored, records
 * whose buffers lanes cannot reach are aborted, and nothing a client scribbles hurts anybody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/local_program.h"
#include "tests/engine/fixture.h"

#define RANKS 4
#define COUNT (1u << 20) /* int32: 4 MiB a buffer */

struct stage {
    struct fx fx;
    struct fx_comm *comm;
    uint32_t region;
    int32_t *data;
    struct occl_op_key key;
    struct occl_record *record;
    struct occl_claim *claim;
    struct occl_place place;
};

static void open_stage(struct stage *s, uint32_t lanes) {
    fx_open(&s->fx, &(struct fx_options){.lanes = lanes});
    s->comm = fx_simple(&s->fx, RANKS);
    s->data = fx_region(&s->fx, 1, 2ull * RANKS * COUNT * 4, &s->region);
    for (uint64_t i = 0; i < (uint64_t)RANKS * COUNT; i++)
        s->data[i] = (int32_t)i;
}

static void close_stage(struct stage *s) {
    fx_close(&s->fx);
    free(s->data);
}

/* All ranks arrive as the library does; a member that sees all of them makes the record LOCAL. */
static void arrive_all(struct stage *s, uint32_t number, uint64_t count) {
    /* Numbers below 128 have different slots; 0 is in a run. */
    s->key = number ? fx_key(100, number) : fx_key(0, 1);
    s->place = occl_place_of(s->key);
    s->record = occl_record_at(&s->comm->records, s->place.slot);
    s->claim = occl_claim_of(&s->comm->records, s->place.slot);
    struct occl_signature sig = {
        .kind = OCCL_OP_ALL_REDUCE, .dtype = OCCL_DT_INT32, .redop = OCCL_RO_SUM, .count = count};
    for (uint32_t r = 0; r < RANKS; r++) {
        struct occl_line *line = occl_line_at(s->record, r);
        assert_int_not_equal(occl_claim_enter(s->claim, s->place.print, false), OCCL_ENTER_RING);
        occl_line_fill(line, s->key, &sig);
        line->u.ref.src = (struct occl_buffer_ref){OCCL_SPACE_REGION, s->region, 4ull * r * COUNT};
        line->u.ref.dst =
            (struct occl_buffer_ref){OCCL_SPACE_REGION, s->region, 4ull * (RANKS + r) * COUNT};
        assert_true(occl_record_arrive(line, s->place.print, 0));
    }
    struct occl_look look;
    uint32_t now;
    occl_record_look(s->record, s->place.print, RANKS, &look);
    assert_int_equal(look.outcome, OCCL_OUT_ALL);
    assert_true(occl_record_decide(s->record, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now));
}

static void execute(struct stage *s, uint32_t rank) {
    struct occl_sqe sqe = {.verb = OCCL_SQE_EXECUTE,
                           .priority = 255,
                           .slot = (uint16_t)s->place.slot,
                           .comm = s->comm->numbers[rank],
                           .key = s->key};
    fx_submit(&s->fx, s->comm, rank, &sqe);
}

static void sleep_once(struct stage *s) {
    struct occl_word_seen seen = {&s->record->state, OCCL_REC_LOCAL};
    struct occl_wait_place place = {occl_word_changed, &seen, &s->record->event,
                                    &s->record->sleepers};
    (void)occl_event_sleep(&place, 1000000);
}

static uint32_t wait_state(struct stage *s) {
    uint64_t until = fx_now_ns() + fx_patience_ns();
    while (occl_rec_kind(occl_observe32(&s->record->state)) == OCCL_REC_LOCAL &&
           fx_now_ns() < until)
        sleep_once(s);
    return occl_observe32(&s->record->state);
}

static void leave_all(struct stage *s) {
    for (uint32_t r = 0; r < RANKS; r++)
        occl_claim_leave(&s->comm->records, occl_claim_index(s->place.slot));
}

static void check(struct stage *s, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (uint32_t r = 0; r < RANKS; r++)
            sum += (uint32_t)s->data[(uint64_t)r * COUNT + i];
        for (uint32_t r = 0; r < RANKS; r++) {
            if ((uint32_t)s->data[(uint64_t)(RANKS + r) * COUNT + i] != sum)
                fail_msg("element %llu rank %u", (unsigned long long)i, r);
        }
    }
    memset(s->data + (uint64_t)RANKS * COUNT, 0, 4ull * RANKS * COUNT);
}

static bool lanes_are_out(struct fx *fx) {
    struct occl_engine_op_view view;
    return occl_engine_ops(fx->engine, &view, 1) == 0;
}

static uint64_t ignored(struct stage *s) {
    struct occl_engine_counters counters;
    occl_engine_counters(s->fx.engine, &counters);
    return counters.ignored;
}

static void lanes_execute_a_local_record(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        struct stage s;
        open_stage(&s, lanes);
        for (uint32_t round = 0; round < 10; round++) {
            arrive_all(&s, round, COUNT - round);
            for (uint32_t r = 0; r <= round % RANKS; r++) /* several may ask */
                execute(&s, r);
            assert_int_equal(wait_state(&s), OCCL_REC_DONE);
            check(&s, COUNT - round);
            leave_all(&s);
        }
        close_stage(&s);
    }
}

/* A member executes strands, too. */
static void lanes_and_members_share_strands(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, 2);
    const struct occl_movers *movers = occl_movers_select(0);
    struct occl_local_plan plan;
    struct occl_signature sig = {
        .kind = OCCL_OP_ALL_REDUCE, .dtype = OCCL_DT_INT32, .redop = OCCL_RO_SUM, .count = COUNT};
    assert_int_equal(occl_local_plan_make(&sig, RANKS, false, NULL, &plan), OCCL_OK);
    const void *inputs[RANKS];
    void *outputs[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        inputs[r] = s.data + (uint64_t)r * COUNT;
        outputs[r] = s.data + (uint64_t)(RANKS + r) * COUNT;
    }
    struct occl_local_buffers buffers = {inputs, outputs, NULL, 0};
    uint32_t mine = 0;
    for (uint32_t round = 0; round < 10; round++) {
        uint32_t index, now;
        arrive_all(&s, round, COUNT);
        execute(&s, 0);
        while ((index = occl_record_claim_strand(s.record, plan.strand_count, round)) <
               plan.strand_count) {
            assert_int_equal(occl_local_strand_run(&plan, index, movers, &buffers), OCCL_OK);
            mine++;
            if (occl_add32(&s.record->strands_done, 1) + 1 == plan.strand_count)
                (void)occl_record_decide(s.record, OCCL_REC_LOCAL, OCCL_REC_DONE, &now);
        }
        assert_int_equal(wait_state(&s), OCCL_REC_DONE);
        check(&s, COUNT);
        leave_all(&s);
    }
    assert_true(mine > 0);
    close_stage(&s);
}

/* Ring ops of a communicator end when one needs a member that has left; its records go on. */
static void records_go_on_without_the_ring(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, 1);
    occl_engine_comm_fail(s.fx.engine, s.comm->uid, OCCL_E_PEER_FAILED, 3);
    arrive_all(&s, 1, COUNT);
    execute(&s, 0);
    assert_int_equal(wait_state(&s), OCCL_REC_DONE);
    check(&s, COUNT);
    leave_all(&s);
    close_stage(&s);
}

struct forgery {
    const char *what;
    uint32_t outcome; /* kind of the state afterwards */
    void (*forge)(struct stage *s);
};

#define FORGE(name_, statement_)                             \
    static void name_(struct stage *s) {                     \
        struct occl_line *line = occl_line_at(s->record, 1); \
        (void)line;                                          \
        statement_;                                          \
    }
FORGE(forge_open, occl_note32(&s->record->state, OCCL_REC_OPEN))
FORGE(forge_ready, occl_note64(&line->flag, 0))
FORGE(forge_ready_first, occl_note64(&occl_line_at(s->record, 0)->flag, 0))
FORGE(forge_flag_print,
      occl_note64(&line->flag, occl_flag_make(s->place.print + 1, OCCL_FLAG_READY)))
FORGE(forge_poisoned, occl_note64(&line->flag, occl_flag_make(s->place.print, OCCL_FLAG_POISONED)))
FORGE(forge_tag, line->tag++)
FORGE(forge_tag_first, occl_line_at(s->record, 0)->tag++)
FORGE(forge_peers, line->peers = 1)
FORGE(forge_root, line->root = 255)
FORGE(forge_kind, line->kind = OCCL_OP_BROADCAST)
FORGE(forge_kind_first, occl_line_at(s->record, 0)->kind = 99)
FORGE(forge_pair_kind,
      for (int i = 0; i < RANKS; i++) occl_line_at(s->record, i)->kind = OCCL_OP_SEND)
FORGE(forge_dtype_all, for (int i = 0; i < RANKS; i++) occl_line_at(s->record, i)->dtype = 12)
FORGE(forge_count, line->count++)
FORGE(forge_count_all,
      for (int i = 0; i < RANKS; i++) occl_line_at(s->record, i)->count = 0x7fffffffull << 32)
FORGE(forge_count_long,
      for (int i = 0; i < RANKS; i++) occl_line_at(s->record, i)->count = 1u << 30)
FORGE(forge_word, s->claim->word ^= 1)
FORGE(forge_left, s->claim->left = RANKS)
FORGE(forge_private, line->u.ref.src.space = OCCL_SPACE_PRIVATE)
FORGE(forge_space, line->u.ref.dst.space = 0x80000001)
FORGE(forge_region, line->u.ref.dst.region = 4000000000u)
FORGE(forge_offset, line->u.ref.src.offset = ~0ull)
FORGE(forge_payload, line->u.ref.src.space = OCCL_SPACE_PAYLOAD; line->u.ref.src.offset = 64)

/* As a client would scribble: beside a lane that may still look. */
static void clear(struct stage *s) {
    uint64_t *words = (uint64_t *)(void *)s->record;
    for (uint64_t i = 0; i < s->comm->records.record_stride / 8; i++)
        occl_note64(&words[i], 0);
    occl_note64(&s->claim->word, 0);
    occl_note32(&s->claim->left, 0);
}

static void forged_records_hurt_nobody(void **state) {
    static const struct forgery forgeries[] = {
        {"open", OCCL_REC_OPEN, forge_open},
        {"ready", OCCL_REC_LOCAL, forge_ready},
        {"ready first", OCCL_REC_LOCAL, forge_ready_first},
        {"flag print", OCCL_REC_LOCAL, forge_flag_print},
        {"poisoned", OCCL_REC_LOCAL, forge_poisoned},
        {"tag", OCCL_REC_LOCAL, forge_tag},
        {"tag first", OCCL_REC_LOCAL, forge_tag_first},
        {"peers", OCCL_REC_LOCAL, forge_peers},
        {"root", OCCL_REC_LOCAL, forge_root},
        {"kind", OCCL_REC_LOCAL, forge_kind},
        {"kind first", OCCL_REC_LOCAL, forge_kind_first},
        {"pair kind", OCCL_REC_LOCAL, forge_pair_kind},
        {"dtype", OCCL_REC_LOCAL, forge_dtype_all},
        {"count", OCCL_REC_LOCAL, forge_count},
        {"count all", OCCL_REC_LOCAL, forge_count_all},
        {"count long", OCCL_REC_ABORTED, forge_count_long},
        {"word", OCCL_REC_LOCAL, forge_word},
        {"left", OCCL_REC_LOCAL, forge_left},
        {"private", OCCL_REC_ABORTED, forge_private},
        {"space", OCCL_REC_ABORTED, forge_space},
        {"region", OCCL_REC_ABORTED, forge_region},
        {"offset", OCCL_REC_ABORTED, forge_offset},
        {"payload", OCCL_REC_ABORTED, forge_payload},
    };
    struct stage s;
    (void)state;
    open_stage(&s, 2);
    for (uint32_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++) {
        uint64_t before = ignored(&s);
        arrive_all(&s, 3 * i, 1000);
        forgeries[i].forge(&s);
        execute(&s, 0);
        uint64_t until = fx_now_ns() + fx_patience_ns();
        while (ignored(&s) == before && fx_now_ns() < until)
            occl_clock_sleep_ns(&s.fx.clock, 50000);
        (void)lanes_are_out(&s.fx); /* a call to the lane: it is done with the entry */
        uint32_t now = occl_observe32(&s.record->state);
        if (occl_rec_kind(now) != forgeries[i].outcome)
            fail_msg("%s: state %#x", forgeries[i].what, now);
        if (forgeries[i].outcome == OCCL_REC_ABORTED)
            assert_int_equal(occl_rec_status(now), OCCL_E_FAULT);
        for (uint32_t e = 0; e < 1000; e++)
            assert_int_equal(s.data[(uint64_t)RANKS * COUNT + e], 0);
        clear(&s);
    }
    /* A slot number that is not the key's, or not a slot at all. */
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t before = ignored(&s);
        arrive_all(&s, 90 + i, 1000);
        s.place.slot = i ? 60000 : (s.place.slot + 1) % OCCL_RECORDS;
        execute(&s, 0);
        uint64_t until = fx_now_ns() + fx_patience_ns();
        while (ignored(&s) == before && fx_now_ns() < until)
            occl_clock_sleep_ns(&s.fx.clock, 50000);
        assert_int_equal(ignored(&s), before + 1);
    }
    arrive_all(&s, 100, 1000);
    execute(&s, 1);
    assert_int_equal(wait_state(&s), OCCL_REC_DONE);
    check(&s, 1000);
    close_stage(&s);
}

/* The counters of the record are scribbled while lanes work on it: bounded work, no harm beyond. */
static void scribbled_counters_end(void **state) {
    struct stage s;
    (void)state;
#ifdef __SANITIZE_THREAD__
    open_stage(&s, 1); /* two lanes could be sent to the same bytes, which this client asks for */
#else
    open_stage(&s, 2);
#endif
    uint64_t random = 99;
    for (uint32_t round = 0; round < 20; round++) {
        arrive_all(&s, round, COUNT);
        execute(&s, 0);
        for (uint32_t i = 0; i < 200; i++) {
            occl_note32(&s.record->strands_next[fx_random(&random) % OCCL_STRAND_SEGMENTS],
                        (uint32_t)fx_random(&random) % 4);
            occl_note32(&s.record->strands_done, (uint32_t)fx_random(&random));
            occl_note32(&s.record->lanes_busy, (uint32_t)fx_random(&random));
            occl_relax();
        }
        struct occl_sqe sqe[RANKS];
        for (uint32_t r = 0; r < RANKS; r++) {
            sqe[r] = fx_all_reduce(s.comm, r, fx_key(5000, round), 10, s.region, 4ull * r * COUNT,
                                   4ull * (RANKS + r) * COUNT);
            fx_submit(&s.fx, s.comm, r, &sqe[r]);
        }
        for (uint32_t r = 0; r < RANKS; r++)
            fx_expect(&s.fx, s.comm, r, sqe[r].user_data, OCCL_OK, OCCL_RANK_NONE);
    }
    close_stage(&s);
}

/* An aborted record is let go at the next slice, and lanes_busy goes back to 0. */
static void abort_is_seen_at_the_next_slice(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        struct stage s;
        uint32_t now;
        open_stage(&s, 2);
        arrive_all(&s, round, COUNT);
        execute(&s, 0);
        occl_clock_sleep_ns(&s.fx.clock, round * 20000);
        bool won = occl_record_decide(s.record, OCCL_REC_LOCAL,
                                      OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_ABORTED, 1), &now);
        assert_int_equal(occl_rec_kind(now), won ? OCCL_REC_ABORTED : OCCL_REC_DONE);
        assert_true(fx_until(&s.fx, lanes_are_out));
        uint64_t until = fx_now_ns() + fx_patience_ns();
        while (occl_observe32(&s.record->lanes_busy) && fx_now_ns() < until)
            occl_clock_sleep_ns(&s.fx.clock, 10000);
        assert_int_equal(occl_observe32(&s.record->lanes_busy), 0);
        leave_all(&s);
        close_stage(&s);
    }
}

/* Region and communicator go while lanes execute a record. */
static void removals_stop_record_runs(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 12; round++) {
        struct stage s;
        open_stage(&s, 3);
        arrive_all(&s, 1, COUNT);
        execute(&s, 0);
        occl_clock_sleep_ns(&s.fx.clock, round * 30000);
        if (round % 2) {
            occl_engine_region_remove(s.fx.engine, 1, s.region);
            uint32_t now = occl_observe32(&s.record->state);
            /* LOCAL: the lane has not come to the EXECUTE yet. */
            assert_true(now == OCCL_REC_DONE || now == OCCL_REC_LOCAL ||
                        occl_rec_status(now) == OCCL_E_FAULT);
            memset(s.data, 0x11, 4ull * RANKS * COUNT);
        } else {
            occl_engine_comm_remove(s.fx.engine, s.comm->uid);
            memset(s.comm->memory, 0x11, s.comm->records.page_bytes);
            occl_clock_sleep_ns(&s.fx.clock, 500000);
            const unsigned char *page = s.comm->memory;
            for (uint64_t i = 0; i < s.comm->records.page_bytes; i++)
                assert_int_equal(page[i], 0x11);
        }
        close_stage(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_execute_a_local_record),
        cmocka_unit_test(lanes_and_members_share_strands),
        cmocka_unit_test(records_go_on_without_the_ring),
        cmocka_unit_test(forged_records_hurt_nobody),
        cmocka_unit_test(scribbled_counters_end),
        cmocka_unit_test(abort_is_seen_at_the_next_slice),
        cmocka_unit_test(removals_stop_record_runs),
    };
    return cmocka_run_group_tests_name("engine_record", tests, NULL, NULL);
}
