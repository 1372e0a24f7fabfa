/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: patience at an op that cannot go on, and ops that were given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "tests/sched/fixture.h"

static void patience_is_larger_at_the_head(void **state) {
    uint64_t first, at_head = 0, elsewhere = 0, longest = 0;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    first = fixture_add(job, 1, 0);
    fixture_add(job, 1, 1);
    fixture_add(job, 1, 2);
    for (int i = 0; i < 3; i++)
        fixture_report_wait(fixture_next().id, 0, 1, 0);
    /* A receive after 4 us teaches that links answer in 4 us. */
    for (int i = 0; i < 60; i++) {
        struct occl_sched_visit v = fixture_next();
        struct occl_sched_report r;
        memset(&r, 0, sizeof r);
        r.result = OCCL_SCHED_BLOCKED;
        r.slices = 1;
        r.received = 1;
        r.waited_ns = 4000;
        now += 5000;
        assert_int_equal(occl_sched_report(sched, v.id, &r, now), OCCL_OK);
    }
    struct occl_sched_stats stats;
    occl_sched_stats(sched, &stats);
    assert_in_range(stats.service_ns, 3500, 4500);
    for (int i = 0; i < 30; i++) {
        struct occl_sched_visit v = fixture_next();
        assert_true(v.sticky_ns >= v.patience_ns);
        assert_true(v.sticky_ns >= 4 * stats.service_ns);
        if (v.id == first) {
            assert_true(v.patience_ns >= at_head); /* grows while in vain */
            at_head = v.patience_ns;
        } else {
            elsewhere = v.patience_ns;
        }
        if (v.sticky_ns > longest)
            longest = v.sticky_ns;
        fixture_report_wait(v.id, 0, 1, 0);
    }
    assert_true(at_head >= 6 * stats.service_ns);
    assert_true(elsewhere <= stats.service_ns);
    assert_true(longest <= 50000);
}

/* However slow the peers are: every look ends. */
static void patience_is_capped(void **state) {
    struct occl_sched_config config;
    (void)state;
    memset(&config, 0, sizeof config);
    config.patience_max_ns = 7000;
    fixture_start(config);
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    fixture_add(job, 1, 0);
    for (int i = 0; i < 1000; i++) {
        struct occl_sched_visit v = fixture_next();
        struct occl_sched_report r;
        assert_true(v.patience_ns <= 7000);
        assert_true(v.sticky_ns <= 7000);
        memset(&r, 0, sizeof r);
        r.result = OCCL_SCHED_BLOCKED;
        r.slices = r.received = 1;
        r.waited_ns = 1000000000;
        now += 1000000000;
        assert_int_equal(occl_sched_report(sched, v.id, &r, now), OCCL_OK);
    }
}

static void a_lone_op_runs_several_slices(void **state) {
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    fixture_add(job, 1, 0);
    struct occl_sched_visit v = fixture_next();
    assert_int_equal(v.slices_max, 8);
    fixture_report(v.id, OCCL_SCHED_BUDGET, 8, SLICE_BYTES);
    fixture_add(job, 0, 1);
    assert_int_equal(fixture_next().slices_max, 1);
}

/* ---- give-ups ---- */
static void give_ups_say_since_when(void **state) {
    struct occl_sched_give_up g;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    uint64_t id = fixture_add(job, 1, 0), since;
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.attempts, 0);
    fixture_report_wait(fixture_next().id, 5, 1, 3);
    since = now;
    for (int i = 0; i < 9; i++)
        fixture_report_wait(fixture_next().id, 5, 1, 3);
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.since_ns, since);
    assert_int_equal(g.attempts, 10);
    assert_int_equal(g.step, 5);
    assert_int_equal(g.peer, 3);
    fixture_report_wait(fixture_next().id, 5, 2, 3); /* now for room: another wait */
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.since_ns, now);
    assert_int_equal(g.attempts, 1);
    assert_int_equal(g.wait_kind, 2);
    fixture_report(fixture_next().id, OCCL_SCHED_BUDGET, 1, 1);
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.attempts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(patience_is_larger_at_the_head, fixture_teardown),
        cmocka_unit_test_teardown(patience_is_capped, fixture_teardown),
        cmocka_unit_test_teardown(a_lone_op_runs_several_slices, fixture_teardown),
        cmocka_unit_test_teardown(give_ups_say_since_when, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
