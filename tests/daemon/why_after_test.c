/* SPDX-License-Identifier: Apache-2.0 */
/* What `ops` and `why` say of ops that come after others of the same rank: held-back ranks, cycles
 * through them, those whose way is the ring, and pages that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

#include "tests/daemon/why_stage.h"

static const struct occl_op_key first = {OCCL_PEERS_ALL, 2, 5}, second = {OCCL_PEERS_ALL, 7, 3};

/* Ranks 0 and 2 have come to the second op; rank 1's comes after a broadcast that misses rank 0. */
static void held_back_ranks_say_for_what(void **state) {
    struct stage *s = stage_open(3, 0);
    (void)state;
    (void)client_arrive(&s->c[2], &s->a[2], second, OCCL_OP_ALL_REDUCE, true, 800 * MS);
    threads(&s->c[2], 1, 1);
    for (uint32_t rank = 1; rank < 3; rank++)
        (void)client_arrive(&s->c[rank], &s->a[rank], first, OCCL_OP_BROADCAST, false, 900 * MS);
    (void)client_hold_back(&s->c[1], &s->a[1], second, OCCL_OP_ALL_REDUCE, 700 * MS, s->a[1].number,
                           first);
    json_t *answer = ask(s, "{\"verb\":\"ops\"}");
    assert_int_equal(length(answer, "ops"), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *op = item(answer, "ops", i);
        bool is_second = number_of(op, "tag") == 7;
        assert_int_equal(length(op, "held_back"), is_second);
        assert_string_equal(text_of(op, "missing_text"), is_second ? "0-1" : "0");
        if (!is_second)
            continue;
        const json_t *held = item(op, "held_back", 0), *after = json_object_get(held, "after");
        assert_int_equal(number_of(held, "rank"), 1);
        assert_in_range(number_of(held, "age_ns"), 700 * MS, 60000 * MS);
        assert_int_equal(number_of(after, "tag"), 2);
        assert_int_equal(number_of(after, "instance"), 5);
        assert_string_equal(text_of(after, "kind"), "broadcast");
        assert_string_equal(text_of(op, "step"), "waits for members; held back: 1");
        assert_string_equal(text_of(held, "text"),
                            "it has submitted all_reduce tag 7 #3, which comes after broadcast tag "
                            "2 #5, for which rank 0 has not come");
    }
    json_decref(answer);
    answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "waits"), 2);
    assert_int_equal(length(answer, "cycles"), 0);
    assert_int_equal(length(answer, "culprits"), 1);
    assert_int_equal(number_of(item(answer, "culprits", 0), "rank"), 0);
    for (size_t i = 0; i < 2; i++) {
        const json_t *op = item(answer, "waits", i);
        if (number_of(op, "tag") != 7)
            continue;
        assert_int_equal(length(op, "late"), 2);
        assert_string_equal(text_of(item(op, "late", 0), "verdict"), "late");
        assert_string_equal(text_of(item(op, "late", 1), "verdict"), "held_back");
        assert_non_null(
            strstr(text_of(item(op, "late", 1), "text"), "which comes after broadcast"));
    }
    json_decref(answer);
    stage_close(s);
}

/* Rank 0: A after B; rank 1: B after A. Nobody waits for anything, and it can never end. */
static void hold_in_cycle(struct stage *s, uint64_t ago_ns) {
    (void)client_arrive(&s->c[0], &s->b[0], second, OCCL_OP_BARRIER, false, ago_ns);
    (void)client_hold_back(&s->c[0], &s->a[0], first, OCCL_OP_ALL_REDUCE, ago_ns, s->b[0].number,
                           second);
    (void)client_arrive(&s->c[1], &s->a[1], first, OCCL_OP_ALL_REDUCE, false, ago_ns);
    (void)client_hold_back(&s->c[1], &s->b[1], second, OCCL_OP_BARRIER, ago_ns, s->a[1].number,
                           first);
    for (uint32_t rank = 0; rank < s->ranks; rank++)
        threads(&s->c[rank], 1, 0);
}

static void cycle_of_ops_that_come_after_each_other(void **state) {
    struct stage *s = stage_open(2, 0);
    (void)state;
    hold_in_cycle(s, 100 * MS);
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    for (size_t i = 0; i < length(answer, "cycles"); i++) /* too young to be sure */
        assert_true(json_is_false(json_object_get(item(answer, "cycles", i), "definite")));
    json_decref(answer);
    hold_in_cycle(s, 700 * MS);
    answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "cycles"), 1);
    const json_t *cycle = item(answer, "cycles", 0);
    assert_true(json_is_true(json_object_get(cycle, "definite")));
    assert_int_equal(length(cycle, "members"), 2);
    assert_non_null(strstr(text_of(cycle, "text"),
                           "has submitted all_reduce tag 2 #5 of comm-1, which comes after barrier "
                           "tag 7 #3 of comm-2, for which rank 1 has not come"));
    assert_non_null(strstr(text_of(cycle, "text"),
                           "has submitted barrier tag 7 #3 of comm-2, which comes after all_reduce "
                           "tag 2 #5 of comm-1, for which rank 0 has not come"));
    for (size_t i = 0; i < 2; i++) {
        const json_t *held = json_object_get(item(cycle, "members", i), "held_back");
        assert_int_equal(number_of(held, "rank"), number_of(item(cycle, "members", i), "rank"));
    }
    assert_int_equal(length(answer, "culprits"), 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(text_of(item(answer, "culprits", i), "verdict"), "cycle");
    json_decref(answer);
    stage_close(s);
}

/* It is found without being asked for, and told once to both. */
static void such_a_cycle_is_told_to_its_members(void **state) {
    struct stage *s = stage_open(3, 0);
    (void)state;
    (void)fixture_pump(&s->f, 100, NULL, NULL);
    hold_in_cycle(s, 0);
    /* A third rank takes no part in either op's cycle: it is just not there yet. */
    assert_true(client_event(&s->c[0], OCCL_EVENT_STALL, 5000));
    assert_true(client_event(&s->c[1], OCCL_EVENT_STALL, 1000));
    assert_non_null(strstr(s->c[0].in.event.detail.text, "which comes after"));
    assert_int_equal(fixture_log_count(&s->f, "no order of execution can resolve it"), 1);
    stage_close(s);
}

/* Rank 0 waits for an op that comes after a message of rank 1, who waits in an op for rank 0. Or:
 * the wait has only begun; rank 1 may still come by another thread; the other op is complete. */
static void waits_and_held_back_ops_close_a_cycle(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct stage *s = stage_open(2, 0);
        struct occl_op_key message = {1u << 16 | 0u, 4, 0};
        uint64_t ago = kind == 1 ? 100 * MS : 900 * MS;
        if (kind != 3)
            (void)client_arrive(&s->c[0], &s->a[0], message, OCCL_OP_RECV, false, 900 * MS);
        struct occl_line *line = client_hold_back(&s->c[0], &s->a[0], second, OCCL_OP_BARRIER, ago,
                                                  s->a[0].number, message);
        occl_note64(&line->wait_since_ticks, line->submit_ticks);
        threads(&s->c[0], 1, 1);
        (void)client_arrive(&s->c[1], &s->a[1], second, OCCL_OP_BARRIER, false, 900 * MS);
        wait_in(s, s->b, 1, 900 * MS);
        threads(&s->c[1], kind == 2 ? 2 : 1, 1);
        json_t *answer = ask(s, "{\"verb\":\"why\"}");
        bool definite = length(answer, "cycles") &&
                        json_is_true(json_object_get(item(answer, "cycles", 0), "definite"));
        if (definite != (kind == 0))
            fail_msg("kind %d: %d cycles", kind, (int)length(answer, "cycles"));
        if (kind == 0) {
            const char *text = text_of(item(answer, "cycles", 0), "text");
            assert_non_null(strstr(text, "has submitted barrier tag 7 #3 of comm-1, which comes "
                                         "after send_recv 1->0 tag 4 #0 of comm-1"));
            assert_non_null(strstr(text, "waits in all_reduce #4 of comm-2 for rank 0"));
            assert_int_equal(length(answer, "culprits"), 2);
        }
        json_decref(answer);
        stage_close(s);
    }
}

/* What a receiver does not take yet: the op is complete for everybody else. */
static void held_back_from_what_is_there(void **state) {
    struct stage *s = stage_open(2, 0);
    (void)state;
    (void)client_arrive_with(&s->c[1], &s->a[1], second, OCCL_OP_BROADCAST, true, 800 * MS,
                             OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE);
    expect_nothing(s);
    (void)client_arrive(&s->c[0], &s->a[0], first, OCCL_OP_BARRIER, false, 900 * MS);
    (void)client_hold_back(&s->c[0], &s->a[0], second, OCCL_OP_BROADCAST, 700 * MS, s->a[0].number,
                           first);
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "waits"), 2);
    assert_int_equal(length(answer, "culprits"), 1);
    assert_int_equal(number_of(item(answer, "culprits", 0), "rank"), 1);
    json_decref(answer);
    stage_close(s);
}

static void held_back_on_the_way_to_the_ring(void **state) {
    struct stage *s = stage_open(2, 0);
    struct occl_engine_op_view views[2];
    (void)state;
    memset(views, 0, sizeof views);
    for (int i = 0; i < 2; i++) {
        views[i].comm_uid = s->a[0].uid;
        views[i].key = i ? second : first;
        views[i].signature.kind = OCCL_OP_BARRIER;
        views[i].arrived_mask = 1u << i;
        views[i].first_ticks = 1;
    }
    fake_engine_set_ops(views, 2);
    threads(&s->c[0], 1, 0);
    threads(&s->c[1], 1, 0);
    client_hold_back_ring(&s->c[0], &s->a[0], second, 800 * MS, s->a[0].number, first);
    client_hold_back_ring(&s->c[1], &s->a[1], first, 800 * MS, s->a[1].number, second);
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "cycles"), 1);
    assert_true(json_is_true(json_object_get(item(answer, "cycles", 0), "definite")));
    assert_int_equal(length(answer, "culprits"), 2);
    json_decref(answer);
    /* Of another op: not a word of this one. */
    s->c[0].page->held.key.instance++;
    answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "cycles"), 0);
    json_decref(answer);
    /* Nor is anything said of ranks with more such ops than are described: of these two, who wait,
     * it would look as if they waited for each other. */
    for (uint32_t rank = 0; rank < 2; rank++) {
        occl_note64(&s->c[rank].page->held_ticks, 0);
        threads(&s->c[rank], 1, 1);
        for (uint32_t total = 0; total < 3; total += 2) {
            occl_note32(&s->c[0].page->held_total, total);
            answer = ask(s, "{\"verb\":\"why\"}");
            assert_int_equal(length(answer, "cycles"), total == 0);
            json_decref(answer);
        }
    }
    stage_close(s);
}

/* Whatever a line says: the daemon answers, names nobody who is not there, and blames no peer. */
static void a_hostile_line_says_nothing(void **state) {
    struct stage *s = stage_open(2, 0);
    static const struct {
        uint32_t number;
        struct occl_op_key after;
    } lies[] = {
        {0, {OCCL_PEERS_ALL, 2, 5}},          /* no communicator */
        {UINT32_MAX, {OCCL_PEERS_ALL, 2, 5}}, /* nor that */
        {1, {63u << 16 | 62u, 2, 5}},         /* ranks that are not there */
        {1, {OCCL_PEERS_ALL, UINT32_MAX, 0}}, /* no such op */
        {1, {OCCL_PEERS_ALL, 7, 3}},          /* itself */
    };
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct occl_line *line = client_hold_back(&s->c[0], &s->a[0], second, OCCL_OP_BARRIER,
                                                  700 * MS, lies[i].number, lies[i].after);
        line->after |= 0xffffu;
        json_t *answer = ask(s, "{\"verb\":\"why\"}");
        assert_int_equal(length(answer, "waits"), 1);
        assert_int_equal(length(answer, "cycles"), 0);
        const json_t *late = item(item(answer, "waits", 0), "late", 0);
        assert_string_equal(text_of(late, "verdict"), "held_back");
        assert_int_equal(number_of(item(answer, "culprits", 0), "rank"), 0);
        json_decref(answer);
        answer = ask(s, "{\"verb\":\"ops\"}");
        assert_int_equal(length(item(answer, "ops", 0), "held_back"), 1);
        json_decref(answer);
    }
    /* A key that is not the record's, or a flag that is set: no held-back op. */
    struct occl_line *line =
        client_hold_back(&s->c[0], &s->a[0], second, OCCL_OP_BARRIER, 0, s->a[0].number, first);
    line->instance++;
    expect_nothing(s);
    line->instance--;
    line->flag = occl_flag_make(occl_place_of(second).print, OCCL_FLAG_POISONED);
    expect_nothing(s);
    stage_close(s);
}

/* Noise in every line of every record, in the session page, and in the claims. */
static void noise_is_read_and_bounded(void **state) {
    struct stage *s = stage_open(4, 0);
    uint64_t noise = 1;
    (void)state;
    for (int round = 0; round < 20; round++) {
        for (uint32_t index = 0; index < OCCL_CLAIMS; index++) {
            struct occl_claim *claim = occl_claim_at(&s->a[0].records, index);
            for (uint32_t r = 0; r < occl_claim_records(index); r++) {
                uint32_t slot = occl_claim_first(index) + r;
                /* A key that belongs there, so that the line is looked at. */
                struct occl_op_key key = {OCCL_PEERS_ALL, 1 + round, 0};
                struct occl_signature sig = {.kind = OCCL_OP_BARRIER};
                while (index >= OCCL_PAIRS && index < OCCL_CLAIM_RUN_FIRST &&
                       occl_place_of(key).slot != slot)
                    key.instance++;
                if (index >= OCCL_CLAIM_RUN_FIRST)
                    key = (struct occl_op_key){OCCL_PEERS_ALL, 0, slot - OCCL_CLAIM_RUN_FIRST};
                occl_note64(&claim->word, OCCL_WORD_CLAIMED | occl_place_of(key).print);
                for (uint32_t rank = 0; rank < 4; rank++) {
                    struct occl_line *line =
                        occl_line_at(occl_record_at(&s->a[0].records, slot), rank);
                    noise = noise * 6364136223846793005ull + 1442695040888963407ull;
                    occl_line_fill(line, key, &sig);
                    line->submit_ticks = noise;
                    line->wait_since_ticks = noise >> (noise & 63);
                    line->after = (uint32_t)(noise >> 32) | 1;
                    line->after_tag = noise >> 20 & 3;
                    line->after_instance = noise >> 24 & 31;
                    line->after_comm = noise >> 40 & 3;
                }
            }
        }
        for (uint32_t rank = 0; rank < 4; rank++)
            memset(&s->c[rank].page->held_ticks, (int)noise, 48);
        json_t *answer = ask(s, "{\"verb\":\"why\"}");
        assert_true(length(answer, "waits") > 0);
        json_decref(answer);
        json_decref(ask(s, "{\"verb\":\"ops\"}"));
        (void)fixture_pump(&s->f, 5, NULL, NULL);
    }
    stage_close(s);
}

/* How many cycles are certain, and whether this rank alone is blamed, as late. */
static uint32_t certain_cycles(struct stage *s, uint32_t late_rank, bool *out_only_late) {
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    uint32_t certain = 0;
    for (size_t i = 0; i < length(answer, "cycles"); i++)
        certain += json_is_true(json_object_get(item(answer, "cycles", i), "definite"));
    *out_only_late = length(answer, "culprits") == 1 &&
                     number_of(item(answer, "culprits", 0), "rank") == late_rank &&
                     strcmp(text_of(item(answer, "culprits", 0), "verdict"), "late") == 0;
    json_decref(answer);
    return certain;
}

/* Rank 2 waits in a fan-out of rank 0, who is late; rank 1 waits for a message of rank 2 before it
 * comes to the fan-out. Nobody needs rank 1: when rank 0 comes, all go on. A barrier needs it. */
static void a_late_source_closes_no_cycle(void **state) {
    const struct occl_op_key message = {2u << 16 | 1u, 4, 0};
    const uint8_t kinds[] = {OCCL_OP_FAN_OUT, OCCL_OP_BROADCAST, OCCL_OP_SCATTER, OCCL_OP_BARRIER};
    (void)state;
    for (size_t i = 0; i < sizeof kinds; i++) {
        struct stage *s = stage_open(3, 0);
        bool only_late;
        (void)client_arrive(&s->c[2], &s->a[2], first, kinds[i], true, 900 * MS);
        (void)client_arrive(&s->c[1], &s->a[1], message, OCCL_OP_RECV, true, 900 * MS);
        threads(&s->c[1], 1, 1);
        threads(&s->c[2], 1, 1);
        uint32_t certain = certain_cycles(s, 0, &only_late);
        assert_int_equal(certain, kinds[i] == OCCL_OP_BARRIER);
        assert_int_equal(only_late, kinds[i] != OCCL_OP_BARRIER);
        stage_close(s);
    }
}

/* Rank 1 waits in a fan-in to rank 0, which comes after a message of rank 2, who is late; rank 0
 * waits for a message that rank 1 sends afterwards. Rank 1 will be done without rank 0, in a
 * broadcast of its own, too; in one of rank 0 not, which then is the one to wait for. */
static void held_back_givers_wait_for_nobody_else(void **state) {
    const struct occl_op_key before = {2u << 16 | 1u, 4, 0}, behind = {1u << 16 | 0u, 4, 0};
    const struct {
        uint8_t kind;
        uint32_t root;
        bool cycle;
    } cases[] = {
        {OCCL_OP_FAN_IN, 0, false},    {OCCL_OP_REDUCE, 0, false},
        {OCCL_OP_BROADCAST, 1, false}, {OCCL_OP_REDUCE, 1, true}, /* the root needs all */
        {OCCL_OP_BARRIER, 0, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage *s = stage_open(3, 0);
        bool only_late;
        (void)client_arrive(&s->c[1], &s->a[1], before, OCCL_OP_RECV, false, 900 * MS);
        struct occl_line *line = client_hold_back(&s->c[1], &s->a[1], second, cases[i].kind,
                                                  900 * MS, s->a[1].number, before);
        line->root = cases[i].root;
        occl_note64(&line->wait_since_ticks, line->submit_ticks);
        (void)client_arrive(&s->c[0], &s->a[0], behind, OCCL_OP_RECV, true, 900 * MS);
        threads(&s->c[0], 1, 1);
        threads(&s->c[1], 1, 1);
        uint32_t certain = certain_cycles(s, 2, &only_late);
        assert_int_equal(certain, cases[i].cycle);
        assert_int_equal(only_late, !cases[i].cycle);
        stage_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_back_ranks_say_for_what),
        cmocka_unit_test(cycle_of_ops_that_come_after_each_other),
        cmocka_unit_test(such_a_cycle_is_told_to_its_members),
        cmocka_unit_test(waits_and_held_back_ops_close_a_cycle),
        cmocka_unit_test(a_late_source_closes_no_cycle),
        cmocka_unit_test(held_back_givers_wait_for_nobody_else),
        cmocka_unit_test(held_back_from_what_is_there),
        cmocka_unit_test(held_back_on_the_way_to_the_ring),
        cmocka_unit_test(a_hostile_line_says_nothing),
        cmocka_unit_test(noise_is_read_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
