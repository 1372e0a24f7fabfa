/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for whom: ops from pages and engine, verdicts, cycles that are certain and those that
 * are not, stall lines and events. Time stamps of arrivals are set back, so that nothing here
 * waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/why_stage.h"

static void ranges_are_compact(void **state) {
    static const struct {
        uint64_t mask;
        const char *text;
    } cases[] = {
        {0, ""},        {1, "0"},           {0xff, "0-7"},   {0x25, "0,2,5"},
        {0xb, "0-1,3"}, {1ull << 63, "63"}, {~0ull, "0-63"}, {0xc000000000000001ull, "0,62-63"},
    };
    char text[200];
    char tiny[4];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        occl_opview_ranges(cases[i].mask, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
    occl_opview_ranges(0x5555, tiny, sizeof tiny);
    assert_true(strlen(tiny) < sizeof tiny);
}

/* B01, B02, the part of the daemon: an op names those who are missing, not those who are ahead. */
static void B01_missing_ranks_are_named(void **state) {
    struct stage *s = stage_open(8, 0);
    (void)state;
    for (uint32_t rank = 0; rank < 8; rank++) {
        struct occl_rank_note *note = occl_note_at(&s->a[rank].records, rank);
        note->ops_done = rank == 3 ? 7 : 8;
        note->last_kind = OCCL_OP_BROADCAST;
        note->last_key = (struct occl_op_key){OCCL_PEERS_ALL, 0, 3};
        if (rank != 3 && rank != 6)
            wait_in(s, s->a, rank, 800 * MS);
    }
    json_t *answer = ask(s, "{\"verb\":\"ops\"}");
    assert_int_equal(length(answer, "ops"), 1);
    const json_t *op = item(answer, "ops", 0);
    assert_string_equal(text_of(op, "missing_text"), "3,6");
    assert_string_equal(text_of(op, "arrived_text"), "0-2,4-5,7");
    assert_string_equal(text_of(op, "kind"), "all_reduce");
    assert_string_equal(text_of(op, "dtype"), "float32");
    assert_string_equal(text_of(op, "redop"), "sum");
    assert_string_equal(text_of(op, "state"), "waiting");
    assert_int_equal(number_of(op, "count"), 4);
    assert_int_equal(number_of(op, "bytes"), 16);
    assert_int_equal(number_of(op, "instance"), 4);
    assert_true(number_of(op, "age_ns") >= (json_int_t)(800 * MS));
    assert_true(number_of(op, "age_ns") < (json_int_t)(10000 * MS));
    json_decref(answer);
    answer = ask(s, "{\"verb\":\"why\"}");
    assert_true(json_is_true(json_object_get(answer, "problem")));
    assert_int_equal(length(answer, "culprits"), 2);
    assert_int_equal(number_of(item(answer, "culprits", 0), "rank"), 3);
    assert_int_equal(number_of(item(answer, "culprits", 1), "rank"), 6);
    const json_t *late = item(item(answer, "waits", 0), "late", 0);
    assert_string_equal(text_of(json_object_get(late, "last_op"), "kind"), "broadcast");
    assert_int_equal(number_of(late, "ops_total"), 7);
    json_decref(answer);
    stage_close(s);
}

/* All clients of a stage are this process; a late rank runs. */
static void late_rank_is_the_culprit(void **state) {
    struct stage *s = stage_open(3, 0);
    (void)state;
    wait_in(s, s->a, 0, 600 * MS);
    wait_in(s, s->a, 2, 700 * MS);
    threads(&s->c[1], 1, 0);
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "waits"), 1);
    const json_t *wait = item(answer, "waits", 0);
    assert_string_equal(text_of(wait, "missing_text"), "1");
    const json_t *late = item(wait, "late", 0);
    assert_string_equal(text_of(late, "verdict"), "late");
    assert_int_equal(number_of(late, "rank"), 1);
    assert_int_equal(number_of(late, "pid"), getpid());
    assert_int_equal(length(answer, "cycles"), 0);
    const json_t *culprit = item(answer, "culprits", 0);
    assert_int_equal(number_of(culprit, "rank"), 1);
    assert_string_equal(text_of(culprit, "verdict"), "late");
    json_decref(answer);
    stage_close(s);
}

/* Rank 0 waits for 1, and 1 waits elsewhere for 2, which is late: 2 is to blame, 1 is not. */
static void blame_follows_the_chain(void **state) {
    struct stage *s = stage_open(3, 0);
    struct occl_op_key pair = {2u << 16 | 1u, 0, 0};
    (void)state;
    wait_in(s, s->a, 0, 900 * MS);
    wait_in(s, s->a, 2, 900 * MS);
    (void)client_arrive(&s->c[1], &s->b[1], pair, OCCL_OP_RECV, true, 900 * MS);
    threads(&s->c[1], 1, 1);
    threads(&s->c[2], 2, 1); /* another thread of rank 2 runs */
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "culprits"), 1);
    const json_t *culprit = item(answer, "culprits", 0);
    assert_int_equal(number_of(culprit, "rank"), 2);
    assert_string_equal(text_of(culprit, "verdict"), "late");
    for (size_t i = 0; i < length(answer, "cycles"); i++)
        assert_true(json_is_false(json_object_get(item(answer, "cycles", i), "definite")));
    json_decref(answer);
    stage_close(s);
}

static void close_cycle(struct stage *s, uint64_t ago_ns) {
    wait_in(s, s->a, 0, ago_ns);
    wait_in(s, s->b, 1, ago_ns);
}

/* Rank 0: A, wait, B; rank 1: B, wait, A. */
static void B07_cycle_is_printed_as_a_cycle(void **state) {
    struct stage *s = stage_open(2, 0);
    (void)state;
    close_cycle(s, 700 * MS);
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "cycles"), 1);
    const json_t *cycle = item(answer, "cycles", 0);
    assert_true(json_is_true(json_object_get(cycle, "definite")));
    assert_int_equal(length(cycle, "members"), 2);
    assert_non_null(strstr(text_of(cycle, "text"), "waits in all_reduce #4 of comm-1 for rank 1"));
    assert_non_null(strstr(text_of(cycle, "text"), "waits in all_reduce #4 of comm-2 for rank 0"));
    assert_string_equal(text_of(item(answer, "culprits", 0), "verdict"), "cycle");
    json_decref(answer);
    answer = ask(s, "{\"verb\":\"jobs\"}");
    assert_string_equal(text_of(item(answer, "jobs", 0), "state"), "stuck");
    json_decref(answer);
    stage_close(s);
}

static void cycle_reaches_all_concerned_within_a_second(void **state) {
    struct stage *s = stage_open(3, 0);
    (void)state;
    (void)fixture_pump(&s->f, 100, NULL, NULL);
    wait_in(s, s->a, 0, 0);
    wait_in(s, s->b, 1, 0);
    uint64_t start = now_ms();
    assert_true(client_event(&s->c[0], OCCL_EVENT_STALL, 5000));
    assert_true(client_event(&s->c[1], OCCL_EVENT_STALL, 1000));
    assert_true(now_ms() - start < 10000);
    assert_int_equal(s->c[0].in.event.about_rank, 1);
    assert_int_equal(s->c[0].in.event.number, s->a[0].number);
    assert_non_null(strstr(s->c[0].in.event.detail.text, "a cycle"));
    assert_int_equal(fixture_log_count(&s->f, "no order of execution can resolve it"), 1);
    /* Told once, not at every look. */
    assert_false(client_event(&s->c[0], OCCL_EVENT_STALL, 700));
    stage_close(s);
}

/* No false alarm: each of these looks like a cycle and is none, or not yet. */
static void near_cycles_are_not_definite(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct stage *s = stage_open(3, 0);
        uint64_t ago = kind == 0 ? 100 * MS : 900 * MS; /* too young to be sure */
        wait_in(s, s->a, 0, ago);
        if (kind == 1)
            threads(&s->c[0], 2, 1); /* another thread of rank 0 may still come */
        if (kind == 2) {
            /* Rank 1 has submitted B, and does not wait in it. */
            (void)client_arrive(&s->c[1], &s->b[1], plain, OCCL_OP_ALL_REDUCE, false, ago);
            threads(&s->c[1], 1, 0);
        } else {
            wait_in(s, s->b, 1, ago);
        }
        if (kind == 3) {
            /* Rank 1 also waits (in any) for a message of rank 2, which may come. */
            struct occl_op_key pair = {2u << 16 | 1u, 5, 0};
            (void)client_arrive(&s->c[1], &s->b[1], pair, OCCL_OP_RECV, true, ago);
            threads(&s->c[2], 1, 0);
        }
        json_t *answer = ask(s, "{\"verb\":\"why\"}");
        for (size_t i = 0; i < length(answer, "cycles"); i++)
            if (!json_is_false(json_object_get(item(answer, "cycles", i), "definite")))
                fail_msg("kind %d is no certain cycle", kind);
        for (size_t i = 0; i < length(answer, "culprits"); i++)
            assert_string_not_equal(text_of(item(answer, "culprits", i), "verdict"), "cycle");
        json_decref(answer);
        stage_close(s);
    }
}

/* Ranks 0 and 1 are the cycle; rank 2 waits for it, and rank 3 for rank 2: victims. */
static void victims_of_a_cycle_are_not_blamed(void **state) {
    struct stage *s = stage_open(4, 0);
    static const uint32_t waits_for[] = {1, 0, 0, 2};
    (void)state;
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct occl_op_key pair = {waits_for[rank] << 16 | rank, 1, 0};
        (void)client_arrive(&s->c[rank], &s->a[rank], pair, OCCL_OP_RECV, true, 800 * MS);
        threads(&s->c[rank], 1, 1);
    }
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "waits"), 4);
    assert_int_equal(length(answer, "culprits"), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *culprit = item(answer, "culprits", i);
        assert_string_equal(text_of(culprit, "verdict"), "cycle");
        assert_true(number_of(culprit, "rank") < 2);
    }
    json_decref(answer);
    stage_close(s);
}

static void cycle_over_three_processes(void **state) {
    struct stage *s = stage_open(3, 0);
    (void)state;
    /* 0 waits for a message of 1, 1 of 2, 2 of 0. */
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct occl_op_key pair = {(rank + 1) % 3 << 16 | rank, 1, 0};
        (void)client_arrive(&s->c[rank], &s->a[rank], pair, OCCL_OP_RECV, true, 800 * MS);
        threads(&s->c[rank], 1, 1);
    }
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    const json_t *cycle = item(answer, "cycles", 0);
    assert_true(json_is_true(json_object_get(cycle, "definite")));
    assert_int_equal(length(cycle, "members"), 3);
    assert_non_null(strstr(text_of(cycle, "text"), "send_recv 1->0 tag 1 #0"));
    json_decref(answer);
    stage_close(s);
}

/* B05: one warning, growing gaps, a line when it resolved; adjustable while it runs. */
static void B05_warnings_grow_and_resolve(void **state) {
    struct stage *s = stage_open(2, 60000 * MS);
    int status;
    (void)state;
    (void)client_arrive_with(&s->c[0], &s->a[0], plain, OCCL_OP_BARRIER, true, 300 * MS,
                             OCCL_FLAG_IN_PAGE);
    threads(&s->c[0], 1, 1);
    threads(&s->c[1], 1, 0);
    (void)fixture_pump(&s->f, 400, NULL, NULL);
    assert_int_equal(fixture_log_count(&s->f, "has waited"), 0);
    json_t *answer = client_admin(&s->c[0],
                                  "{\"verb\":\"set\",\"kind\":\"job\",\"name\":\"job\",\"key\":"
                                  "\"stall_interval\",\"value\":\"200ms\"}",
                                  &status);
    assert_int_equal(status, OCCL_OK);
    json_decref(answer);
    (void)fixture_pump(&s->f, 2000, NULL, NULL);
    /* At 0, 0.2 and 0.6 and 1.4 s by the rule, each seen at the next look of 250 ms. */
    uint32_t lines = fixture_log_count(&s->f, "has waited");
    assert_in_range(lines, 2, 4);
    assert_non_null(strstr(s->f.log_text, "barrier #4"));
    assert_non_null(strstr(s->f.log_text, "for ranks 1; rank 1 (host"));
    (void)client_arrive_with(&s->c[1], &s->a[1], plain, OCCL_OP_BARRIER, false, 0,
                             OCCL_FLAG_IN_PAGE);
    (void)fixture_pump(&s->f, 600, NULL, NULL);
    assert_int_equal(fixture_log_count(&s->f, "goes on after"), 1);
    stage_close(s);
}

static void expect_op(struct stage *s, uint32_t instance, const char *op_state, const char *arrived,
                      const char *missing) {
    json_t *answer = ask(s, "{\"verb\":\"ops\"}");
    assert_int_equal(length(answer, "ops"), 1);
    const json_t *op = item(answer, "ops", 0);
    assert_int_equal(number_of(op, "instance"), instance);
    assert_string_equal(text_of(op, "state"), op_state);
    assert_string_equal(text_of(op, "arrived_text"), arrived);
    assert_string_equal(text_of(op, "missing_text"), missing);
    json_decref(answer);
}

/* What the flags say: an op is shown until it is decided, whatever its members still do. */
static void ops_are_shown_while_undecided(void **state) {
    struct stage *s = stage_open(2, 0);
    static const struct occl_op_key direct = {OCCL_PEERS_ALL, 0, 5};
    uint32_t now;
    (void)state;
    /* Open, then all there, running, done. */
    struct occl_record *rec =
        client_arrive(&s->c[0], &s->a[0], plain, OCCL_OP_ALL_REDUCE, true, 800 * MS);
    threads(&s->c[0], 1, 1);
    expect_op(s, 4, "waiting", "0", "1");
    (void)client_arrive_with(&s->c[1], &s->a[1], plain, OCCL_OP_ALL_REDUCE, true, 800 * MS,
                             OCCL_FLAG_IN_PAGE);
    assert_int_equal(client_outcome(&s->a[0], plain), OCCL_OUT_ALL);
    expect_op(s, 4, "runnable", "0-1", "");
    assert_true(occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now));
    expect_op(s, 4, "running", "0-1", "");
    assert_true(occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now));
    expect_nothing(s);
    /* Everybody's payload is in the page: open, and complete with the last arrival. */
    (void)client_arrive_with(&s->c[0], &s->a[0], direct, OCCL_OP_ALL_REDUCE, true, 800 * MS,
                             OCCL_FLAG_IN_PAGE);
    expect_op(s, 5, "waiting", "0", "1");
    (void)client_arrive_with(&s->c[1], &s->a[1], direct, OCCL_OP_ALL_REDUCE, true, 800 * MS,
                             OCCL_FLAG_IN_PAGE);
    assert_int_equal(client_outcome(&s->a[0], direct), OCCL_OUT_DIRECT);
    expect_nothing(s);
    stage_close(s);
}

/* A root or sender whose payload is in the page needs nobody any more. */
static void sources_wait_for_nobody(void **state) {
    struct stage *s = stage_open(3, 0);
    struct occl_op_key pair = {0u << 16 | 2u, 7, 0};
    (void)state;
    (void)client_arrive_with(&s->c[1], &s->a[1], plain, OCCL_OP_BROADCAST, true, 800 * MS,
                             OCCL_FLAG_IN_PAGE);
    threads(&s->c[1], 1, 1);
    expect_op(s, 4, "waiting", "1", "0,2");
    (void)client_arrive_with(&s->c[0], &s->a[0], plain, OCCL_OP_BROADCAST, true, 800 * MS,
                             OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE);
    (void)client_arrive_with(&s->c[0], &s->a[0], pair, OCCL_OP_SEND, true, 800 * MS,
                             OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE);
    expect_nothing(s);
    /* The payload of another root is too large for the page. */
    (void)client_arrive_with(&s->c[0], &s->b[0], plain, OCCL_OP_BROADCAST, true, 800 * MS,
                             OCCL_FLAG_SOURCE);
    expect_op(s, 4, "waiting", "0", "1-2");
    stage_close(s);
}

/* One claim, sixteen records: those in use and undecided are shown, no others. */
static void a_run_shows_only_what_is_used(void **state) {
    struct stage *s = stage_open(2, 0);
    static const struct {
        uint32_t instance, rank;
    } came[] = {{17, 0}, {18, 0}, {18, 1}, {20, 1}, {31, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof came / sizeof *came; i++) {
        struct occl_op_key key = {OCCL_PEERS_ALL, 0, came[i].instance};
        uint32_t rank = came[i].rank;
        (void)client_arrive_with(&s->c[rank], &s->a[rank], key, OCCL_OP_ALL_REDUCE, true,
                                 (800 - i) * MS, OCCL_FLAG_IN_PAGE);
    }
    json_t *answer = ask(s, "{\"verb\":\"ops\"}");
    uint32_t seen = 0;
    assert_int_equal(length(answer, "ops"), 3);
    for (size_t i = 0; i < 3; i++)
        seen |= 1u << number_of(item(answer, "ops", i), "instance");
    assert_int_equal(seen, 1u << 17 | 1u << 20 | 1u << 31);
    json_decref(answer);
    stage_close(s);
}

static void engine_ops_are_shown_with_their_state(void **state) {
    struct stage *s = stage_open(2, 0);
    struct occl_engine_op_view view;
    (void)state;
    memset(&view, 0, sizeof view);
    view.comm_uid = s->a[0].uid;
    view.key = (struct occl_op_key){OCCL_PEERS_ALL, 6, 2};
    view.signature.kind = OCCL_OP_BROADCAST;
    view.signature.root = 1;
    view.signature.dtype = 2;
    view.signature.count = 10;
    view.arrived_mask = 3;
    view.state = 2;
    view.strands = 8;
    view.strands_done = 3;
    view.preemptions = 5;
    fake_engine_set_ops(&view, 1);
    json_t *answer = ask(s, "{\"verb\":\"ops\",\"comm\":\"comm-1\"}");
    const json_t *op = item(answer, "ops", 0);
    assert_string_equal(text_of(op, "path"), "daemon");
    assert_string_equal(text_of(op, "state"), "running");
    assert_int_equal(number_of(op, "root"), 1);
    assert_int_equal(number_of(op, "preemptions"), 5);
    assert_int_equal(number_of(op, "strands_done"), 3);
    assert_int_equal(number_of(op, "tag"), 6);
    json_decref(answer);
    answer = ask(s, "{\"verb\":\"ops\",\"comm\":\"comm-2\"}");
    assert_int_equal(length(answer, "ops"), 0);
    json_decref(answer);
    /* An op that a lane executes for a record is in the page already. */
    view.from_record = 1;
    fake_engine_set_ops(&view, 1);
    answer = ask(s, "{\"verb\":\"ops\"}");
    assert_int_equal(length(answer, "ops"), 0);
    json_decref(answer);
    stage_close(s);
}

static void forming_communicators_are_waits_too(void **state) {
    struct stage *s = stage_open(2, 0);
    struct occl_unique_id_wire id;
    (void)state;
    client_unique_id(99, &id);
    (void)client_comm_ask(&s->c[0], &id, 1, 4, 0);
    (void)fixture_pump(&s->f, 300, NULL, NULL);
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "forming"), 1);
    const json_t *forming = item(answer, "forming", 0);
    assert_string_equal(text_of(forming, "missing_text"), "0,2-3");
    assert_string_equal(text_of(item(forming, "late", 0), "verdict"), "absent");
    assert_true(length(answer, "culprits") >= 1);
    json_decref(answer);
    stage_close(s);
}

/* Crosswise, for a second and a half, but the last call to wait is only a moment old. */
static void ranks_that_wait_with_timeouts_are_named(void **state) {
    struct stage *s = stage_open(2, 0);
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct client_comm *comms = rank ? s->b : s->a;
        const struct occl_op_key other = {OCCL_PEERS_ALL, 9, rank};
        struct occl_record *young =
            client_arrive(&s->c[rank], &comms[rank], other, OCCL_OP_ALL_REDUCE, false, 10 * MS);
        struct occl_record *old =
            client_arrive(&s->c[rank], &comms[rank], plain, OCCL_OP_ALL_REDUCE, true, 1500 * MS);
        occl_note64(&occl_line_at(old, rank)->wait_since_ticks,
                    occl_line_at(young, rank)->submit_ticks);
        threads(&s->c[rank], 1, 1);
    }
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_int_equal(length(answer, "cycles"), 1);
    assert_true(json_is_false(json_object_get(item(answer, "cycles", 0), "definite")));
    assert_int_equal(length(answer, "culprits"), 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(text_of(item(answer, "culprits", i), "verdict"), "waiting");
    json_decref(answer);
    stage_close(s);
}

/* Rank 0 waits for rank 1 in one thread, and rank 1 for rank 0; a second thread of rank 0 is still
 * counted as waiting, but its op is complete: it goes on, and may bring what rank 1 waits for. */
static void a_thread_that_wakes_up_is_no_cycle(void **state) {
    (void)state;
    for (int open = 0; open < 2; open++) {
        struct stage *s = stage_open(3, 0);
        const struct occl_op_key pair = {1u << 16 | 0u, 9, 0}; /* open: misses rank 1, too */
        wait_in(s, s->a, 0, 1500 * MS);
        wait_in(s, s->b, 1, 1500 * MS);
        if (open)
            (void)client_arrive(&s->c[0], &s->a[0], pair, OCCL_OP_RECV, true, 900 * MS);
        threads(&s->c[0], 2, 2);
        json_t *answer = ask(s, "{\"verb\":\"why\"}");
        bool definite = length(answer, "cycles") &&
                        json_is_true(json_object_get(item(answer, "cycles", 0), "definite"));
        assert_int_equal(definite, open);
        for (size_t i = 0; i < length(answer, "culprits"); i++) {
            const json_t *culprit = item(answer, "culprits", i);
            bool of_cycle = open && number_of(culprit, "rank") < 2;
            assert_string_equal(text_of(culprit, "verdict"), of_cycle ? "cycle" : "late");
        }
        json_decref(answer);
        stage_close(s);
    }
}

static void ask_split(struct client *client, const struct client_comm *comm, uint32_t sequence) {
    struct occl_msg_comm_split msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_SPLIT, 70 + sequence);
    msg.comm = comm->number;
    msg.sequence = sequence;
    msg.priority = 255;
    client_send(client, &msg, sizeof msg, -1);
    threads(client, 1, 1);
}

/* Ranks 0 and 2 wait in a split, rank 1 has not called it; or it waits in an op for rank 0. */
static void splits_are_waits_too(void **state) {
    (void)state;
    for (int in_cycle = 0; in_cycle < 2; in_cycle++) {
        struct stage *s = stage_open(3, 0);
        ask_split(&s->c[0], &s->a[0], 4);
        ask_split(&s->c[2], &s->a[2], 4);
        if (in_cycle) /* its key is the same */
            wait_in(s, s->a, 1, 900 * MS);
        (void)fixture_pump(&s->f, 700, NULL, NULL);
        json_t *answer = ask(s, "{\"verb\":\"why\"}");
        assert_int_equal(length(answer, "waits"), 1 + in_cycle);
        for (size_t i = 0; i < length(answer, "waits"); i++) {
            const json_t *wait = item(answer, "waits", i);
            bool is_split = strcmp(text_of(wait, "kind"), "comm_split") == 0;
            assert_int_equal(is_split, !in_cycle || strcmp(text_of(wait, "arrived_text"), "1"));
            assert_string_equal(text_of(wait, "missing_text"), is_split ? "1" : "0,2");
            assert_string_equal(text_of(wait, "path"), is_split ? "daemon" : "record");
            assert_int_equal(number_of(wait, "instance"), 4);
        }
        assert_int_equal(length(answer, "cycles"), in_cycle);
        assert_int_equal(length(answer, "culprits"), in_cycle ? 3 : 1);
        for (size_t i = 0; i < length(answer, "culprits"); i++)
            assert_string_equal(text_of(item(answer, "culprits", i), "verdict"),
                                in_cycle ? "cycle" : "late");
        if (!in_cycle)
            assert_int_equal(number_of(item(answer, "culprits", 0), "rank"), 1);
        json_decref(answer);
        stage_close(s);
    }
}

static void quiet_job_has_no_problem(void **state) {
    struct stage *s = stage_open(2, 0);
    (void)state;
    wait_in(s, s->a, 0, 5 * MS); /* an ordinary short wait */
    json_t *answer = ask(s, "{\"verb\":\"why\"}");
    assert_true(json_is_false(json_object_get(answer, "problem")));
    assert_int_equal(length(answer, "culprits"), 0);
    json_decref(answer);
    stage_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_compact),
        cmocka_unit_test(B01_missing_ranks_are_named),
        cmocka_unit_test(late_rank_is_the_culprit),
        cmocka_unit_test(blame_follows_the_chain),
        cmocka_unit_test(B07_cycle_is_printed_as_a_cycle),
        cmocka_unit_test(cycle_reaches_all_concerned_within_a_second),
        cmocka_unit_test(near_cycles_are_not_definite),
        cmocka_unit_test(victims_of_a_cycle_are_not_blamed),
        cmocka_unit_test(cycle_over_three_processes),
        cmocka_unit_test(B05_warnings_grow_and_resolve),
        cmocka_unit_test(ops_are_shown_while_undecided),
        cmocka_unit_test(sources_wait_for_nobody),
        cmocka_unit_test(a_run_shows_only_what_is_used),
        cmocka_unit_test(engine_ops_are_shown_with_their_state),
        cmocka_unit_test(forming_communicators_are_waits_too),
        cmocka_unit_test(ranks_that_wait_with_timeouts_are_named),
        cmocka_unit_test(a_thread_that_wakes_up_is_no_cycle),
        cmocka_unit_test(splits_are_waits_too),
        cmocka_unit_test(quiet_job_has_no_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
