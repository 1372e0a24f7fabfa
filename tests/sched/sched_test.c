/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: order, shares, bounds under adversarial arrivals, patience, give-ups, handles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/sched.h"

#define SLICE_BYTES (1u << 20)
#define SLICE_NS 100000u

static struct occl_sched *sched;
static uint64_t now;

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

static uint64_t random_state;
static uint32_t random_below(uint32_t limit) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((random_state >> 33) % limit);
}

static void start(struct occl_sched_config config) {
    occl_sched_destroy(sched);
    sched = NULL;
    now = 1000;
    if (config.ops_max == 0)
        config.ops_max = 4096;
    if (config.jobs_max == 0)
        config.jobs_max = 16;
    assert_int_equal(occl_sched_create(&config, &sched), OCCL_OK);
}

static void start_default(void) {
    struct occl_sched_config config;
    memset(&config, 0, sizeof config);
    start(config);
}

static int teardown(void **state) {
    (void)state;
    occl_sched_destroy(sched);
    sched = NULL;
    return 0;
}

static uint32_t job_of(uint64_t job_id, uint64_t tenant_id, uint32_t tenant_weight,
                       uint32_t job_weight) {
    uint32_t job;
    assert_int_equal(occl_sched_job_add(sched, job_id, tenant_id, tenant_weight, job_weight, &job),
                     OCCL_OK);
    return job;
}

static uint64_t add(uint32_t job, uint32_t op_class, uint64_t user) {
    struct occl_sched_op op = {.job = job, .op_class = op_class, .user = user};
    uint64_t id;
    assert_int_equal(occl_sched_add(sched, &op, now, &id), OCCL_OK);
    return id;
}

static struct occl_sched_visit next(void) {
    struct occl_sched_visit visit;
    assert_true(occl_sched_next(sched, now, &visit));
    return visit;
}

/* Reports `slices` slices and lets the clock run. */
static void report(uint64_t id, uint32_t result, uint32_t slices, uint64_t bytes) {
    struct occl_sched_report r;
    memset(&r, 0, sizeof r);
    r.result = result;
    r.slices = slices;
    r.bytes = bytes;
    now += slices ? slices * SLICE_NS : 100;
    assert_int_equal(occl_sched_report(sched, id, &r, now), OCCL_OK);
}

static void report_wait(uint64_t id, uint32_t step, uint32_t kind, uint32_t peer) {
    struct occl_sched_report r;
    memset(&r, 0, sizeof r);
    r.result = OCCL_SCHED_BLOCKED;
    r.step = step;
    r.wait_kind = kind;
    r.peer = peer;
    now += 100;
    assert_int_equal(occl_sched_report(sched, id, &r, now), OCCL_OK);
}

static void urgent_class_first(void **state) {
    uint64_t low, high;
    (void)state;
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    low = add(job, 0, 0);
    high = add(job, 3, 3);
    for (int i = 0; i < 50; i++) {
        struct occl_sched_visit v = next();
        assert_int_equal(v.id, high);
        assert_int_equal(v.slices_max, 1);
        report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
    }
    struct occl_sched_visit v = next();
    report(v.id, OCCL_SCHED_DONE, 1, SLICE_BYTES);
    while ((v = next()).id != low)
        report(v.id, OCCL_SCHED_DONE, 1, SLICE_BYTES);
    assert_false(occl_sched_next(sched, now, &v));
}

/* Beside an endless urgent op every bulk op gets a slice per ageing period
 * (plus what the bound allows for the decisions in between), and no more than a quarter. */
static void lower_classes_age(void **state) {
    uint64_t visits[20] = {0}, last[20], decisions = 0, aged = 0;
    (void)state;
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    for (uint32_t i = 0; i < 20; i++) {
        add(job, i % 3, i);
        last[i] = now;
    }
    add(job, 3, 99);
    while (now < 1000000000) {
        struct occl_sched_visit v = next();
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
        report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
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
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    add(job, 0, 0);
    now += 1000;
    add(job, 3, 3);
    for (int i = 0; i < 20; i++) {
        assert_true(occl_sched_next(sched, now - 900 + 50 * (uint64_t)(i % 3), &v));
        assert_int_equal(v.user, 3);
        assert_false(v.aged);
        report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
        now -= SLICE_NS;
    }
}

/* With so many old bulk ops that all are due all the time, the urgent op keeps its three quarters.
 */
static void ageing_takes_a_quarter_at_most(void **state) {
    uint32_t urgent = 0;
    (void)state;
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    for (uint32_t i = 0; i < 1000; i++)
        add(job, 0, i);
    add(job, 3, 5000);
    for (uint32_t i = 0; i < 4000; i++) {
        struct occl_sched_visit v = next();
        urgent += v.user == 5000;
        report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
    }
    assert_in_range(urgent, 3000, 3500);
}

/* Share of tenant A's bytes, in thousandths, over n visits; every op stays runnable. */
static uint32_t share_of(uint32_t job, uint32_t visits, uint32_t uneven) {
    uint64_t all = 0, own = 0;
    for (uint32_t i = 0; i < visits; i++) {
        struct occl_sched_visit v = next();
        uint64_t bytes = uneven && v.user == 1 ? SLICE_BYTES / uneven : SLICE_BYTES;
        all += bytes;
        own += v.user == job ? bytes : 0;
        report(v.id, OCCL_SCHED_BUDGET, 1, bytes);
    }
    return (uint32_t)(own * 1000 / all);
}

static void weights_share_bytes(void **state) {
    (void)state;
    for (uint32_t uneven = 0; uneven <= 16; uneven += 8) {
        start_default();
        uint32_t a = job_of(10, 100, 3, 1), b = job_of(11, 101, 1, 1);
        for (int i = 0; i < 8; i++)
            add(a, 1, a);
        for (int i = 0; i < 200; i++) /* more ops give no bigger share */
            add(b, 1, b);
        assert_in_range(share_of(a, 20000, uneven), 712, 788);
        assert_int_equal(occl_sched_job_weights(sched, a, 1, 1), OCCL_OK);
        assert_int_equal(occl_sched_job_weights(sched, b, 4, 1), OCCL_OK);
        assert_in_range(share_of(a, 20000, uneven), 190, 210);
    }
}

static void jobs_share_inside_their_tenant(void **state) {
    uint64_t bytes[3] = {0};
    (void)state;
    start_default();
    uint32_t a1 = job_of(1, 100, 1, 2), a2 = job_of(2, 100, 1, 1), b = job_of(3, 200, 1, 1);
    add(a1, 2, a1);
    add(a2, 2, a2);
    add(b, 2, b);
    for (uint32_t i = 0; i < 30000; i++) {
        struct occl_sched_visit v = next();
        bytes[v.user]++;
        report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
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
    start_default();
    uint32_t a = job_of(1, 1, 1, 1), b = job_of(2, 2, 1, 1);
    add(a, 1, a);
    add(b, 1, b);
    for (uint32_t i = 0; i < 20000; i++) {
        struct occl_sched_visit v = next();
        report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
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
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    uint64_t blocked = add(job, 1, 7);
    struct occl_sched_visit v = next();
    report_wait(v.id, 0, 1, 2);
    add(job, 1, 8);
    for (int i = 0; i < 1000; i++) {
        v = next();
        if (v.id == blocked) {
            assert_int_equal(v.patience_ns, 0);
            looks++;
            report_wait(v.id, 0, 1, 2);
        } else {
            runs++;
            report(v.id, OCCL_SCHED_BUDGET, 1, SLICE_BYTES);
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
    uint32_t burst = random_below(4) == 0 ? random_below(16) : random_below(2);
    while (burst-- > 0 && a->count < most) {
        struct occl_sched_op op = {.job = jobs[random_below(4)],
                                   .op_class = random_below(8) == 0 ? random_below(4) : 3,
                                   .cost_bytes = random_below(2)};
        assert_int_equal(occl_sched_add(sched, &op, now, &a->ids[a->count]), OCCL_OK);
        a->count++;
    }
    if (a->count > a->most)
        a->most = a->count;
    if (a->count == 0)
        return;
    uint32_t victim = random_below(a->count);
    switch (random_below(16)) {
    case 0:
        assert_int_equal(occl_sched_set_class(sched, a->ids[victim], random_below(4)), OCCL_OK);
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
        start(config);
        random_state = seed;
        for (uint32_t i = 0; i < 4; i++)
            jobs[i] = job_of(i, i / 2, 1 + random_below(50), 1 + random_below(50));
        allocations = 0;
        for (uint32_t i = 0; i < 20000; i++) {
            struct occl_sched_visit v;
            adversary_moves(&a, jobs, most);
            if (!occl_sched_next(sched, now, &v))
                continue;
            uint32_t what = random_below(10);
            if (what == 0) {
                for (uint32_t k = 0; k < a.count; k++)
                    if (a.ids[k] == v.id)
                        a.ids[k] = a.ids[--a.count];
                report(v.id, OCCL_SCHED_DONE, 1, SLICE_BYTES);
            } else if (what < 5) {
                report_wait(v.id, what, 1, 0);
            } else {
                report(v.id, OCCL_SCHED_BUDGET, v.slices_max, random_below(2 * SLICE_BYTES));
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
    start(config);
    uint32_t hot = job_of(1, 1, 1000, 1000), cold = job_of(2, 2, 1, 1);
    uint64_t cold_id = add(cold, 0, 5), visits = 0;
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

/* ---- patience ---- */
static void patience_is_larger_at_the_head(void **state) {
    uint64_t first, at_head = 0, elsewhere = 0, longest = 0;
    (void)state;
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    first = add(job, 1, 0);
    add(job, 1, 1);
    add(job, 1, 2);
    for (int i = 0; i < 3; i++)
        report_wait(next().id, 0, 1, 0);
    /* A receive after 4 us teaches that links answer in 4 us. */
    for (int i = 0; i < 60; i++) {
        struct occl_sched_visit v = next();
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
        struct occl_sched_visit v = next();
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
        report_wait(v.id, 0, 1, 0);
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
    start(config);
    uint32_t job = job_of(1, 1, 1, 1);
    add(job, 1, 0);
    for (int i = 0; i < 1000; i++) {
        struct occl_sched_visit v = next();
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
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    add(job, 1, 0);
    struct occl_sched_visit v = next();
    assert_int_equal(v.slices_max, 8);
    report(v.id, OCCL_SCHED_BUDGET, 8, SLICE_BYTES);
    add(job, 0, 1);
    assert_int_equal(next().slices_max, 1);
}

/* ---- give-ups ---- */
static void give_ups_say_since_when(void **state) {
    struct occl_sched_give_up g;
    (void)state;
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    uint64_t id = add(job, 1, 0), since;
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.attempts, 0);
    report_wait(next().id, 5, 1, 3);
    since = now;
    for (int i = 0; i < 9; i++)
        report_wait(next().id, 5, 1, 3);
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.since_ns, since);
    assert_int_equal(g.attempts, 10);
    assert_int_equal(g.step, 5);
    assert_int_equal(g.peer, 3);
    report_wait(next().id, 5, 2, 3); /* now for room: another wait */
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.since_ns, now);
    assert_int_equal(g.attempts, 1);
    assert_int_equal(g.wait_kind, 2);
    report(next().id, OCCL_SCHED_BUDGET, 1, 1);
    assert_int_equal(occl_sched_give_up(sched, id, &g), OCCL_OK);
    assert_int_equal(g.attempts, 0);
}

/* ---- handles and limits ---- */
static void stale_handles_are_refused(void **state) {
    struct occl_sched_give_up g;
    struct occl_sched_report r;
    (void)state;
    start_default();
    uint32_t job = job_of(1, 1, 1, 1);
    uint64_t id = add(job, 1, 0), again;
    struct occl_sched_visit v = next();
    assert_int_equal(occl_sched_job_remove(sched, job), OCCL_E_BUSY);
    assert_int_equal(occl_sched_remove(sched, id), OCCL_OK); /* under visit */
    again = add(job, 1, 1);
    memset(&r, 0, sizeof r);
    assert_int_equal(occl_sched_report(sched, v.id, &r, now), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_report(sched, again, &r, now), OCCL_E_HANDLE); /* not visited */
    assert_int_equal(occl_sched_remove(sched, id), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_set_class(sched, id, 1), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_wake(sched, id), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_give_up(sched, UINT64_MAX, &g), OCCL_E_HANDLE);
    assert_int_equal(next().id, again);
    assert_int_equal(occl_sched_remove(sched, again), OCCL_OK);
    assert_int_equal(occl_sched_job_remove(sched, job), OCCL_OK);
    assert_int_equal(occl_sched_job_remove(sched, job), OCCL_E_INVALID);
}

static void limits_are_statuses(void **state) {
    struct occl_sched_config config = {.ops_max = 2, .jobs_max = 1};
    struct occl_sched_op op = {.job = 0, .op_class = 0};
    struct occl_sched *other = NULL;
    struct occl_sched_visit v;
    uint32_t job;
    uint64_t id;
    (void)state;
    start(config);
    assert_false(occl_sched_next(sched, now, &v));
    assert_int_equal(occl_sched_job_add(sched, 1, 1, 0, 1, &job), OCCL_E_INVALID);
    assert_int_equal(occl_sched_job_add(sched, 1, 1, 1, OCCL_SCHED_WEIGHT_MAX + 1, &job),
                     OCCL_E_INVALID);
    assert_int_equal(occl_sched_add(sched, &op, now, &id), OCCL_E_INVALID); /* no such job */
    job = job_of(1, 1, 1, 1);
    assert_int_equal(occl_sched_job_add(sched, 1, 1, 1, 1, &job), OCCL_E_BUSY);
    assert_int_equal(occl_sched_job_add(sched, 2, 1, 1, 1, &job), OCCL_E_QUOTA);
    add(job, 0, 0);
    add(job, 3, 0);
    assert_int_equal(occl_sched_add(sched, &op, now, &id), OCCL_E_QUOTA);
    op.op_class = 4;
    assert_int_equal(occl_sched_add(sched, &op, now, &id), OCCL_E_INVALID);
    config.jobs_max = 0;
    assert_int_equal(occl_sched_create(&config, &other), OCCL_E_INVALID);
    assert_null(other);
    occl_sched_destroy(NULL);
}

/* A copy of the block goes on exactly as the original. */
static void a_copy_is_a_snapshot(void **state) {
    struct occl_sched_config config = {.ops_max = 64, .jobs_max = 4};
    (void)state;
    start(config);
    uint32_t job = job_of(1, 1, 1, 1), other = job_of(2, 2, 3, 1);
    for (uint32_t i = 0; i < 20; i++)
        add(i % 3 ? job : other, i % 4, i);
    size_t bytes = occl_sched_bytes(&config);
    struct occl_sched *copy = (struct occl_sched *)malloc(bytes);
    assert_non_null(copy);
    for (uint32_t i = 0; i < 50; i++)
        report(next().id, i % 5 ? OCCL_SCHED_BUDGET : OCCL_SCHED_BLOCKED, i % 5 ? 1 : 0, 1000 * i);
    memcpy(copy, sched, bytes);
    uint64_t seen[200], start_ns = now;
    for (uint32_t round = 0; round < 2; round++) {
        now = start_ns;
        for (uint32_t i = 0; i < 200; i++) {
            struct occl_sched_visit v = next();
            if (round == 0)
                seen[i] = v.id;
            assert_int_equal(v.id, seen[i]);
            report(v.id, i % 7 ? OCCL_SCHED_BUDGET : OCCL_SCHED_BLOCKED, i % 7 ? 1 : 0, 1000 * i);
        }
        memcpy(sched, copy, bytes);
    }
    free(copy);
}

/* Several ops under visit at once: none is handed out twice, reports may come in any order. */
static void several_ops_under_visit(void **state) {
    (void)state;
    start_default();
    uint32_t jobs[2] = {job_of(1, 1, 1, 1), job_of(2, 2, 5, 1)};
    for (uint32_t i = 0; i < 12; i++)
        add(jobs[i % 2], 1 + i % 2, i);
    random_state = 3;
    uint64_t flying[6];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        if (count < 6 && random_below(2)) {
            struct occl_sched_visit v = next();
            for (uint32_t k = 0; k < count; k++)
                assert_true(flying[k] != v.id);
            flying[count++] = v.id;
        } else if (count > 0) {
            uint32_t k = random_below(count);
            report(flying[k], random_below(3) ? OCCL_SCHED_BUDGET : OCCL_SCHED_BLOCKED, 1, 999);
            flying[k] = flying[--count];
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(urgent_class_first, teardown),
        cmocka_unit_test_teardown(lower_classes_age, teardown),
        cmocka_unit_test_teardown(time_does_not_run_backwards, teardown),
        cmocka_unit_test_teardown(ageing_takes_a_quarter_at_most, teardown),
        cmocka_unit_test_teardown(weights_share_bytes, teardown),
        cmocka_unit_test_teardown(jobs_share_inside_their_tenant, teardown),
        cmocka_unit_test_teardown(outside_work_is_charged, teardown),
        cmocka_unit_test_teardown(blocked_ops_are_looked_at, teardown),
        cmocka_unit_test_teardown(gap_stays_below_the_bound, teardown),
        cmocka_unit_test_teardown(floods_starve_nobody, teardown),
        cmocka_unit_test_teardown(patience_is_larger_at_the_head, teardown),
        cmocka_unit_test_teardown(patience_is_capped, teardown),
        cmocka_unit_test_teardown(a_lone_op_runs_several_slices, teardown),
        cmocka_unit_test_teardown(give_ups_say_since_when, teardown),
        cmocka_unit_test_teardown(stale_handles_are_refused, teardown),
        cmocka_unit_test_teardown(limits_are_statuses, teardown),
        cmocka_unit_test_teardown(a_copy_is_a_snapshot, teardown),
        cmocka_unit_test_teardown(several_ops_under_visit, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
