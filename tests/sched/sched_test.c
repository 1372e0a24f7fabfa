/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: order, shares, bounds under adversarial arrivals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "tests/sched/fixture.h"

/* Counts what the scheduler allocates after its creation; the linker sends its calls here. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
static uint64_t allocations;
void *__wrap_malloc(size_t bytes) {
    allocations++;
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    allocations++;
    return __real_calloc(count, bytes);
}

static void urgent_class_first(void **state) {
    uint64_t low, high;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    low = fixture_add(job, 0, 0);
    high = fixture_add(job, 3, 3);
    for (int i = 0; i < 50; i++) {
        struct occl_sched_visit v = fixture_next();
        assert_int_equal(v.id, high);
        assert_int_equal(v.slices_max, 1);
        fixture_report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
    }
    struct occl_sched_visit v = fixture_next();
    fixture_report(v.id, OCCL_SCHED_DONE, 1, SLICE_BYTES);
    while ((v = fixture_next()).id != low)
        fixture_report(v.id, OCCL_SCHED_DONE, 1, SLICE_BYTES);
    assert_false(occl_sched_next(sched, now, &v));
}

/* Beside an endless urgent op every bulk op gets a slice per ageing period
 * (plus what the bound allows for the decisions in between), and no more than a quarter. */
static void lower_classes_age(void **state) {
    uint64_t visits[20] = {0}, last[20], decisions = 0, aged = 0;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    for (uint32_t i = 0; i < 20; i++) {
        fixture_add(job, i % 3, i);
        last[i] = now;
    }
    fixture_add(job, 3, 99);
    while (now < 1000000000) {
        struct occl_sched_visit v = fixture_next();
        decisions++;
        if (v.user != 99) {
            uint64_t bound = 10000000 + 4ull * 21 * SLICE_NS;
            assert_true(v.aged);
            assert_int_equal(v.slices_max, 1);
            assert_true(now - last[v.user] >= 10000000);
            assert_true(now - last[v.user] <= bound);
            visits[v.user]++;
            aged++;
        }
        fixture_report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
        if (v.user != 99)
            last[v.user] = now;
    }
    for (uint32_t i = 0; i < 20; i++)
        assert_true(visits[i] >= 1000 / 19);
    assert_true(aged * 4 <= decisions + 4);
}

/* A source of time that goes back a little makes nobody old. */
static void time_does_not_run_backwards(void **state) {
    struct occl_sched_visit v;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    fixture_add(job, 0, 0);
    now += 1000;
    fixture_add(job, 3, 3);
    for (int i = 0; i < 20; i++) {
        assert_true(occl_sched_next(sched, now - 900 + 50 * (uint64_t)(i % 3), &v));
        assert_int_equal(v.user, 3);
        assert_false(v.aged);
        fixture_report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
        now -= SLICE_NS;
    }
}

/* With so many old bulk ops that all are due all the time, the urgent op keeps its three quarters.
 */
static void ageing_takes_a_quarter_at_most(void **state) {
    uint32_t urgent = 0;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    for (uint32_t i = 0; i < 1000; i++)
        fixture_add(job, 0, i);
    fixture_add(job, 3, 5000);
    for (uint32_t i = 0; i < 4000; i++) {
        struct occl_sched_visit v = fixture_next();
        urgent += v.user == 5000;
        fixture_report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
    }
    assert_in_range(urgent, 3000, 3500);
}

/* Share of tenant A's bytes, in thousandths, over n visits; every op stays runnable. */
static uint32_t share_of(uint32_t job, uint32_t visits, uint32_t uneven) {
    uint64_t all = 0, own = 0;
    for (uint32_t i = 0; i < visits; i++) {
        struct occl_sched_visit v = fixture_next();
        uint64_t bytes = uneven && v.user == 1 ? SLICE_BYTES / uneven : SLICE_BYTES;
        all += bytes;
        own += v.user == job ? bytes : 0;
        fixture_report(v.id, OCCL_SCHED_BUDGET, 1, bytes);
    }
    return (uint32_t)(own * 1000 / all);
}

static void weights_share_bytes(void **state) {
    (void)state;
    for (uint32_t uneven = 0; uneven <= 16; uneven += 8) {
        fixture_start_default();
        uint32_t a = fixture_job_of(10, 100, 3, 1), b = fixture_job_of(11, 101, 1, 1);
        for (int i = 0; i < 8; i++)
            fixture_add(a, 1, a);
        for (int i = 0; i < 200; i++) /* more ops give no bigger share */
            fixture_add(b, 1, b);
        assert_in_range(share_of(a, 20000, uneven), 712, 788);
        assert_int_equal(occl_sched_job_weights(sched, a, 1, 1), OCCL_OK);
        assert_int_equal(occl_sched_job_weights(sched, b, 4, 1), OCCL_OK);
        assert_in_range(share_of(a, 20000, uneven), 190, 210);
    }
}

static void jobs_share_inside_their_tenant(void **state) {
    uint64_t bytes[3] = {0};
    (void)state;
    fixture_start_default();
    uint32_t a1 = fixture_job_of(1, 100, 1, 2), a2 = fixture_job_of(2, 100, 1, 1),
             b = fixture_job_of(3, 200, 1, 1);
    fixture_add(a1, 2, a1);
    fixture_add(a2, 2, a2);
    fixture_add(b, 2, b);
    for (uint32_t i = 0; i < 30000; i++) {
        struct occl_sched_visit v = fixture_next();
        bytes[v.user]++;
        fixture_report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
    }
    assert_in_range(bytes[a1], 9500, 10500);
    assert_in_range(bytes[a2], 4750, 5250);
    assert_in_range(bytes[b], 14250, 15750);
    assert_int_equal(occl_sched_job_bytes(sched, b), bytes[b] * SLICE_BYTES);
}

/* What client threads executed for a job counts as if lanes had done it. */
static void outside_work_is_charged(void **state) {
    uint64_t lanes = 0, outside = 0;
    (void)state;
    fixture_start_default();
    uint32_t a = fixture_job_of(1, 1, 1, 1), b = fixture_job_of(2, 2, 1, 1);
    fixture_add(a, 1, a);
    fixture_add(b, 1, b);
    for (uint32_t i = 0; i < 20000; i++) {
        struct occl_sched_visit v = fixture_next();
        fixture_report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
        lanes += v.user == a;
        if (i % 4 == 0) {
            occl_sched_job_charge(sched, a, 1, SLICE_BYTES);
            outside++;
        }
    }
    assert_in_range((lanes + outside) * 1000 / (20000 + outside), 475, 525);
}

/* A blocked op is looked at between the visits of runnable ones, cheaply, and never in their place.
 */
static void blocked_ops_are_looked_at(void **state) {
    uint32_t looks = 0, runs = 0;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    uint64_t blocked = fixture_add(job, 1, 7);
    struct occl_sched_visit v = fixture_next();
    fixture_report_wait(v.id, 0, 1, 2);
    fixture_add(job, 1, 8);
    for (int i = 0; i < 1000; i++) {
        v = fixture_next();
        if (v.id == blocked) {
            assert_int_equal(v.patience_ns, 0);
            looks++;
            fixture_report_wait(v.id, 0, 1, 2);
        } else {
            runs++;
            fixture_report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
        }
    }
    assert_in_range(looks, 450, 501);
    assert_int_equal(occl_sched_wake(sched, blocked), OCCL_OK);
    struct occl_sched_stats stats;
    occl_sched_stats(sched, &stats);
    assert_int_equal(stats.runnable, 2);
    assert_int_equal(stats.vain, looks + 1);
}

/* ---- the bound, against an adversary ---- */
struct adversary {
    uint64_t ids[512];
    uint32_t count, most;
};

static void adversary_moves(struct adversary *a, const uint32_t *jobs, uint32_t most) {
    uint32_t burst =
        fixture_random_below(4) == 0 ? fixture_random_below(16) : fixture_random_below(2);
    while (burst-- > 0 && a->count < most) {
        struct occl_sched_op op = {.job = jobs[fixture_random_below(4)],
                                   .op_class =
                                       fixture_random_below(8) == 0 ? fixture_random_below(4) : 3,
                                   .cost_bytes = fixture_random_below(2)};
        assert_int_equal(occl_sched_add(sched, &op, now, &a->ids[a->count]), OCCL_OK);
        a->count++;
    }
    if (a->count > a->most)
        a->most = a->count;
    if (a->count == 0)
        return;
    uint32_t victim = fixture_random_below(a->count);
    switch (fixture_random_below(16)) {
    case 0:
        assert_int_equal(occl_sched_set_class(sched, a->ids[victim], fixture_random_below(4)),
                         OCCL_OK);
        break;
    case 1:
        assert_int_equal(occl_sched_wake(sched, a->ids[victim]), OCCL_OK);
        break;
    case 2:
        assert_int_equal(occl_sched_remove(sched, a->ids[victim]), OCCL_OK);
        a->ids[victim] = a->ids[--a->count];
        break;
    default:
        break;
    }
}

static void gap_stays_below_the_bound(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct occl_sched_config config = {.ops_max = 512,
                                           .jobs_max = 8,
                                           .ageing_attempts = 8 << seed % 6,
                                           /* by time, often or never */
                                           .ageing_ns = seed % 2 ? 300000 : UINT64_MAX / 2};
        struct adversary a = {.count = 0, .most = 0};
        uint32_t jobs[4], most = 4u << seed % 7;
        struct occl_sched_stats stats;
        fixture_start(config);
        random_state = seed;
        for (uint32_t i = 0; i < 4; i++)
            jobs[i] = fixture_job_of(i, i / 2, 1 + fixture_random_below(50),
                                     1 + fixture_random_below(50));
        allocations = 0;
        for (uint32_t i = 0; i < 20000; i++) {
            struct occl_sched_visit v;
            adversary_moves(&a, jobs, most);
            if (!occl_sched_next(sched, now, &v))
                continue;
            uint32_t what = fixture_random_below(10);
            if (what == 0) {
                for (uint32_t k = 0; k < a.count; k++)
                    if (a.ids[k] == v.id)
                        a.ids[k] = a.ids[--a.count];
                fixture_report(v.id, OCCL_SCHED_DONE, 1, SLICE_BYTES);
            } else if (what < 5) {
                fixture_report_wait(v.id, what, 1, 0);
            } else {
                fixture_report(v.id, OCCL_SCHED_BUDGET, v.slices_max,
                               fixture_random_below(2 * SLICE_BYTES));
            }
        }
        occl_sched_stats(sched, &stats);
        assert_int_equal(allocations, 0);
        assert_true(stats.decisions > 10000);
        assert_true(stats.gap_attempts_max <= occl_sched_gap_bound(sched, a.most));
        assert_int_equal(stats.ops, a.count);
    }
}

/* Floods of urgent small ops, each new one in front: the cold op is visited all the same, even when
 * the clock stands still. */
static void floods_starve_nobody(void **state) {
    struct occl_sched_config config;
    (void)state;
    memset(&config, 0, sizeof config);
    config.ageing_attempts = 100;
    fixture_start(config);
    uint32_t hot = fixture_job_of(1, 1, 1000, 1000), cold = fixture_job_of(2, 2, 1, 1);
    uint64_t cold_id = fixture_add(cold, 0, 5), visits = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        struct occl_sched_op op = {.job = hot, .op_class = 3, .cost_bytes = 8};
        struct occl_sched_visit v;
        struct occl_sched_report r;
        uint64_t id;
        assert_int_equal(occl_sched_add(sched, &op, now, &id), OCCL_OK);
        assert_true(occl_sched_next(sched, now, &v));
        memset(&r, 0, sizeof r);
        r.result = v.id == cold_id ? OCCL_SCHED_BUDGET : OCCL_SCHED_DONE;
        r.slices = 1;
        r.bytes = v.id == cold_id ? SLICE_BYTES : 8;
        assert_int_equal(occl_sched_report(sched, v.id, &r, now), OCCL_OK);
        visits += v.id == cold_id;
    }
    /* The flood leaves one op more in the queue each time that the cold one is visited. */
    assert_in_range(visits, 100, 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(urgent_class_first, fixture_teardown),
        cmocka_unit_test_teardown(lower_classes_age, fixture_teardown),
        cmocka_unit_test_teardown(time_does_not_run_backwards, fixture_teardown),
        cmocka_unit_test_teardown(ageing_takes_a_quarter_at_most, fixture_teardown),
        cmocka_unit_test_teardown(weights_share_bytes, fixture_teardown),
        cmocka_unit_test_teardown(jobs_share_inside_their_tenant, fixture_teardown),
        cmocka_unit_test_teardown(outside_work_is_charged, fixture_teardown),
        cmocka_unit_test_teardown(blocked_ops_are_looked_at, fixture_teardown),
        cmocka_unit_test_teardown(gap_stays_below_the_bound, fixture_teardown),
        cmocka_unit_test_teardown(floods_starve_nobody, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
