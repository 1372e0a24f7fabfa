/* SPDX-License-Identifier: Apache-2.0 */
/* Classes, weights and ageing, on lanes (real time, wide tolerances) and in the meter that shares
 * between jobs whose ranks execute strands themselves (virtual time). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client_lib/share.h"
#include "tests/engine/fixture.h"

#define MS 1000000ull

/* ---- lanes ---- */

struct load {
    struct fx *fx;
    struct fx_comm *comm;
    uint64_t job_id;
    uint32_t region;
    void *data;
    uint64_t count;
    uint32_t next; /* instance of the next op */
};

/* A job of one rank: its all-reduce is a copy, as many strands as its bytes ask for. */
static void open_load(struct load *load, struct fx *fx, uint64_t id, uint32_t job_class,
                      uint32_t weight, uint64_t count) {
    (void)fx_job(fx, id, 1, job_class, weight, 4096);
    uint32_t session = fx_session(fx, id, 64, 256);
    *load = (struct load){.fx = fx, .job_id = id, .count = count};
    load->comm = fx_comm(fx, id, session, 1);
    load->data = fx_region(fx, id, 8 * count, &load->region);
}

static void start_op(struct load *load) {
    struct occl_sqe sqe = fx_all_reduce(load->comm, 0, fx_key(0, load->next++), load->count,
                                        load->region, 0, 4 * load->count);
    fx_submit(load->fx, load->comm, 0, &sqe);
}

/* Starts an op for each that has completed; returns how many have. */
static uint32_t keep_going(struct load *load) {
    struct occl_cqe cqe;
    uint32_t completed = 0;
    while (fx_poll(load->fx, load->comm->sessions[0], &cqe)) {
        assert_int_equal(cqe.status, OCCL_OK);
        completed++;
        start_op(load);
    }
    return completed;
}

static uint64_t moved(const struct load *load) {
    struct occl_engine_job_usage usage;
    assert_true(occl_engine_job_usage(load->fx->engine, load->job_id, &usage));
    return usage.bytes_moved;
}

/* Keeps all loads busy until `target` bytes have been moved in all. */
static void saturate(struct load *loads, uint32_t count, uint64_t target) {
    uint64_t until = fx_now_ns() + fx_patience_ns(), sum = 0, next_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < 50; k++)
            start_op(&loads[i]);
    }
    while (sum < target) {
        assert_true(fx_now_ns() < until);
        sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            keep_going(&loads[i]);
            sum += moved(&loads[i]);
        }
        if (fx_now_ns() >= next_ns)
            next_ns = occl_engine_meter(loads[0].fx->engine, fx_now_ns());
        occl_clock_sleep_ns(&loads[0].fx->clock, 200000);
    }
}

/* A machine that takes the core away from the fake clients for long leaves the lanes without ops;
 * one of a few tries is undisturbed. */
#define TRIES 4

static double ratio_once(uint32_t lanes) {
    struct fx fx;
    struct load loads[2];
    fx_open(&fx, &(struct fx_options){.lanes = lanes});
    open_load(&loads[0], &fx, 1, 1, 3, 2 << 20);
    open_load(&loads[1], &fx, 2, 1, 1, 2 << 20);
    saturate(loads, 2, 3ull << 30);
    double ratio = (double)moved(&loads[0]) / (double)moved(&loads[1]);
    fx_close(&fx);
    free(loads[0].data);
    free(loads[1].data);
    return ratio;
}

static void lanes_share_by_weight(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        double ratio = 0;
        for (uint32_t i = 0; i < TRIES && (ratio < 2.7 || ratio > 3.3); i++)
            ratio = ratio_once(lanes);
        if (ratio < 2.7 || ratio > 3.3)
            fail_msg("%u lanes: shares %.2f : 1, expected 3 : 1", lanes, ratio);
    }
}

static double changed_once(void) {
    struct fx fx;
    struct load loads[2];
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    open_load(&loads[0], &fx, 1, 1, 1, 2 << 20);
    open_load(&loads[1], &fx, 2, 1, 1, 2 << 20);
    saturate(loads, 2, 512ull << 20);
    fx.jobs[1].config.job_weight = 4;
    assert_int_equal(occl_engine_job_set(fx.engine, &fx.jobs[1].config), OCCL_OK);
    uint64_t before[2] = {moved(&loads[0]), moved(&loads[1])};
    saturate(loads, 2, before[0] + before[1] + (2ull << 30));
    double ratio = (double)(moved(&loads[1]) - before[1]) / (double)(moved(&loads[0]) - before[0]);
    fx_close(&fx);
    free(loads[0].data);
    free(loads[1].data);
    return ratio;
}

static void changed_weights_count(void **state) {
    double ratio = 0;
    (void)state;
    for (uint32_t i = 0; i < TRIES && (ratio < 3.5 || ratio > 4.5); i++)
        ratio = changed_once();
    if (ratio < 3.5 || ratio > 4.5)
        fail_msg("shares 1 : %.2f, expected 1 : 4", ratio);
}

/* An op of a high class is served at the next slice, however much bulk is queued before it. */
static void high_class_goes_first(void **state) {
    struct fx fx;
    struct load bulk, urgent;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    open_load(&bulk, &fx, 1, 0, 1, 16 << 20); /* 128 MiB of traffic an op */
    open_load(&urgent, &fx, 2, 3, 1, 1 << 17);
    for (uint32_t i = 0; i < 8; i++)
        start_op(&bulk);
    uint64_t until = fx_now_ns() + fx_patience_ns();
    while (moved(&bulk) == 0 && fx_now_ns() < until)
        occl_clock_sleep_ns(&fx.clock, 20000);
    for (uint32_t i = 0; i < 20; i++) {
        struct occl_cqe cqe;
        start_op(&urgent);
        assert_true(fx_wait(&fx, urgent.comm->sessions[0], fx_patience_ns(), &cqe));
    }
    assert_true(moved(&bulk) < 8ull * (128 << 20)); /* 20 ops passed 8 that came before */
    struct occl_engine_counters counters;
    occl_engine_counters(fx.engine, &counters);
    assert_true(counters.preemptions > 0);
    fx_close(&fx);
    free(bulk.data);
    free(urgent.data);
}

/* A low class moves on at the pace of ageing while a higher one never pauses. */
static void low_class_ages(void **state) {
    struct fx fx;
    struct load bulk, urgent[2];
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 1, .ageing_ns = 5 * MS});
    open_load(&bulk, &fx, 1, 0, 1, 4 << 20);
    open_load(&urgent[0], &fx, 2, 3, 1, 4 << 20);
    start_op(&bulk);
    uint64_t start_ns = fx_now_ns();
    for (uint32_t i = 0; i < 24; i++)
        start_op(&urgent[0]);
    while (fx_now_ns() - start_ns < 400 * MS)
        keep_going(&urgent[0]);
    uint64_t periods = 400 / 5, slices = moved(&bulk) >> 20;
    assert_true(moved(&urgent[0]) > 2 * moved(&bulk));
    if (slices < periods / 10)
        fail_msg("%llu slices in %llu periods", (unsigned long long)slices,
                 (unsigned long long)periods);
    fx_close(&fx);
    free(bulk.data);
    free(urgent[0].data);
}

/* ---- meter ---- */

/* Jobs whose ranks execute strands: what a rank moves it adds to its note. */
struct world {
    struct fx fx;
    struct fx_comm *comms[4];
    uint64_t sums[4];
    uint64_t now_ns;
    uint64_t next_ns;
    bool wants[4];
    bool starved[4]; /* wants, but has no core */
};

static void open_world(struct world *w, uint32_t jobs, const uint32_t *classes,
                       const uint32_t *weights) {
    memset(w, 0, sizeof *w);
    fx_open(&w->fx, &(struct fx_options){.lanes = 1});
    w->now_ns = FX_SECOND;
    for (uint32_t j = 0; j < jobs; j++) {
        (void)fx_job(&w->fx, j + 1, 1, classes[j], weights[j], 16);
        uint32_t first = fx_session(&w->fx, j + 1, 16, 16);
        (void)fx_session(&w->fx, j + 1, 16, 16);
        w->comms[j] = fx_comm(&w->fx, j + 1, first, 2);
        w->wants[j] = true;
    }
}

static void move(struct world *w, uint32_t job, uint64_t bytes) {
    struct occl_rank_note *note = occl_note_at(&w->comms[job]->records, w->now_ns / 1000 & 1);
    occl_note64(&note->bytes_executed, note->bytes_executed + bytes);
    w->sums[job] += bytes;
}

/* What the meter sees of a job's work: a local op under way. */
static void show_work(struct world *w, uint32_t job, bool at_work) {
    const struct occl_records *m = &w->comms[job]->records;
    uint32_t slot = OCCL_CLAIM_RUN_FIRST + 5;
    occl_note64(&occl_claim_of(m, slot)->word, at_work ? OCCL_WORD_CLAIMED : 0);
    occl_note32(&occl_record_at(m, slot)->state, at_work ? OCCL_REC_LOCAL : OCCL_REC_OPEN);
}

/* Runs `ms` milliseconds in steps of 50 us: those that want and may move share the machine. */
static void live(struct world *w, uint32_t jobs, uint64_t ms, uint64_t bytes_per_step) {
    for (uint64_t step = 0; step < ms * 20; step++) {
        uint32_t running = 0;
        bool may[4] = {false};
        for (uint32_t j = 0; j < jobs; j++) {
            if (w->comms[j])
                show_work(w, j, w->wants[j]);
            may[j] = w->wants[j] && !w->starved[j] && occl_share_may_run(w->fx.jobs[j].page);
            running += may[j];
        }
        for (uint32_t j = 0; j < jobs; j++) {
            if (may[j])
                move(w, j, bytes_per_step / running);
        }
        w->now_ns += 50000;
        if (w->now_ns >= w->next_ns && w->next_ns != UINT64_MAX)
            w->next_ns = occl_engine_meter(w->fx.engine, w->now_ns);
    }
}

static void close_to(double found, double expected, double tolerance) {
    if (found < expected * (1 - tolerance) || found > expected * (1 + tolerance))
        fail_msg("%.3f, expected %.3f", found, expected);
}

static void metered_bytes_follow_weights(void **state) {
    static const uint32_t classes[] = {1, 1, 1}, weights[] = {3, 1, 4};
    struct world w;
    (void)state;
    open_world(&w, 3, classes, weights);
    w.wants[2] = false;
    live(&w, 2, 200, 500000); /* 10 GB/s; the meter finds them competing */
    memset(w.sums, 0, sizeof w.sums);
    live(&w, 2, 2000, 500000);
    close_to((double)w.sums[0] / (double)w.sums[1], 3, 0.03);
    close_to((double)(w.sums[0] + w.sums[1]), 2e3 * 20 * 500000, 0.02); /* nobody stood still */
    w.wants[2] = true;
    live(&w, 3, 200, 500000);
    memset(w.sums, 0, sizeof w.sums);
    live(&w, 3, 2000, 500000);
    close_to((double)w.sums[0] / (double)w.sums[1], 3, 0.03);
    close_to((double)w.sums[2] / (double)w.sums[1], 4, 0.03);
    fx_close(&w.fx);
}

/* Weights of tenants come first; a job's weight counts inside its tenant. */
static void tenants_share_before_jobs(void **state) {
    static const uint32_t classes[] = {1, 1, 1}, weights[] = {1, 3, 9};
    struct world w;
    (void)state;
    open_world(&w, 3, classes, weights);
    occl_engine_job_remove(w.fx.engine, 3);
    (void)fx_job(&w.fx, 4, 2, 1, 9, 16);
    w.fx.jobs[3].config.tenant_weight = 2;
    assert_int_equal(occl_engine_job_set(w.fx.engine, &w.fx.jobs[3].config), OCCL_OK);
    uint32_t first = fx_session(&w.fx, 4, 16, 16);
    (void)fx_session(&w.fx, 4, 16, 16);
    w.comms[3] = fx_comm(&w.fx, 4, first, 2);
    w.wants[2] = false;
    w.wants[3] = true;
    live(&w, 4, 200, 500000);
    memset(w.sums, 0, sizeof w.sums);
    live(&w, 4, 2000, 500000);
    close_to((double)w.sums[1] / (double)w.sums[0], 3, 0.03);
    close_to((double)w.sums[3] / (double)(w.sums[0] + w.sums[1]), 2, 0.03);
    fx_close(&w.fx);
}

static void shares_hold_at_any_speed(void **state) {
    static const uint32_t classes[] = {2, 2}, weights[] = {1, 5};
    const uint64_t speeds[] = {20000, 100000, 5000000};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct world w;
        open_world(&w, 2, classes, weights);
        live(&w, 2, 200, speeds[i]);
        memset(w.sums, 0, sizeof w.sums);
        live(&w, 2, 3000, speeds[i]);
        close_to((double)w.sums[1] / (double)w.sums[0], 5, 0.05);
        fx_close(&w.fx);
    }
}

/* The timer fires late, up to 60 ms at a time: shares hold, nobody starves. */
static void late_looks_keep_the_shares(void **state) {
    static const uint32_t classes[] = {1, 1}, weights[] = {3, 1};
    struct world w;
    uint64_t seed = 3;
    (void)state;
    open_world(&w, 2, classes, weights);
    live(&w, 2, 200, 500000);
    memset(w.sums, 0, sizeof w.sums);
    for (uint32_t i = 0; i < 1000; i++) {
        live(&w, 2, 10, 500000);
        if (w.next_ns < w.now_ns + 5 * MS)
            w.next_ns += fx_random(&seed) % (60 * MS);
    }
    close_to((double)w.sums[0] / (double)w.sums[1], 3, 0.1);
    fx_close(&w.fx);
}

/* A job that changes its class meets others whose virtual time is far away. */
static void a_changed_class_starts_near_the_others(void **state) {
    static const uint32_t classes[] = {0, 2}, weights[] = {1, 1};
    struct world w;
    (void)state;
    open_world(&w, 2, classes, weights);
    live(&w, 2, 1000, 500000);
    w.fx.jobs[0].config.job_class = 2;
    assert_int_equal(occl_engine_job_set(w.fx.engine, &w.fx.jobs[0].config), OCCL_OK);
    memset(w.sums, 0, sizeof w.sums);
    live(&w, 2, 1000, 500000);
    close_to((double)w.sums[0] / (double)w.sums[1], 1, 0.1);
    fx_close(&w.fx);
}

static void gate_opens_for_one_job_alone(void **state) {
    static const uint32_t classes[] = {1, 1}, weights[] = {1, 3};
    struct world w;
    (void)state;
    open_world(&w, 2, classes, weights);
    live(&w, 2, 300, 500000);
    assert_int_equal(occl_observe32(&w.fx.jobs[0].page->gate), 1);
    uint32_t bell = occl_share_token(w.fx.jobs[0].page);
    w.wants[1] = false;
    live(&w, 2, 50, 500000);
    assert_int_equal(occl_observe32(&w.fx.jobs[0].page->gate), 0);
    assert_true(occl_share_token(w.fx.jobs[0].page) != bell);
    w.sums[0] = 0;
    live(&w, 2, 500, 500000);
    close_to((double)w.sums[0], 500.0 * 20 * 500000, 0.001);
    /* What job 2 did not use is gone but for a small credit. */
    w.wants[1] = true;
    live(&w, 2, 200, 500000);
    memset(w.sums, 0, sizeof w.sums);
    live(&w, 2, 2000, 500000);
    close_to((double)w.sums[1] / (double)w.sums[0], 3, 0.03);
    fx_close(&w.fx);
}

static void lower_class_gets_a_slice_per_period(void **state) {
    static const uint32_t classes[] = {0, 2}, weights[] = {100, 1};
    struct world w;
    (void)state;
    open_world(&w, 2, classes, weights);
    live(&w, 2, 200, 500000);
    memset(w.sums, 0, sizeof w.sums);
    live(&w, 2, 1000, 500000);
    uint64_t slices = w.sums[0] / OCCL_SLICE_TRAFFIC_BYTES;
    assert_true(slices >= 90); /* 100 periods of 10 ms */
    assert_true(w.sums[1] > 10 * w.sums[0]);
    w.wants[1] = false;
    live(&w, 2, 50, 500000);
    assert_int_equal(occl_observe32(&w.fx.jobs[0].page->gate), 0);
    fx_close(&w.fx);
}

/* Job 1 has little to do and waits for its application in between, so job 2 has all the rest: also
 * where job 1 has the higher class. */
static void a_job_with_little_work_holds_nobody_back(void **state) {
    static const uint32_t weights[] = {1, 1};
    (void)state;
    for (uint32_t top = 1; top <= 2; top++) {
        const uint32_t classes[] = {top, 1};
        struct world w;
        open_world(&w, 2, classes, weights);
        for (uint32_t i = 0; i < 2000; i++) {
            if (i == 400)
                memset(w.sums, 0, sizeof w.sums);
            w.wants[0] = false;
            live(&w, 2, 1, 500000);
            /* Found at work in one look of twenty. */
            if (i % 20 == 0)
                show_work(&w, 0, true);
            move(&w, 0, 65536);
        }
        close_to((double)w.sums[1], 1600.0 * 20 * 500000, 0.1);
        fx_close(&w.fx);
    }
}

/* Threads of other programs take the cores away from job 1 for 30 ms at a time: it has work, so
 * what it could not move stays its due. */
static void a_job_without_cores_keeps_its_share(void **state) {
    static const uint32_t classes[] = {1, 1}, weights[] = {3, 1};
    struct world w;
    (void)state;
    open_world(&w, 2, classes, weights);
    for (uint32_t i = 0; i < 4000; i++) {
        if (i == 400)
            memset(w.sums, 0, sizeof w.sums);
        w.starved[0] = i % 60 < 30;
        live(&w, 2, 1, 500000);
    }
    close_to((double)w.sums[0] / (double)w.sums[1], 3, 0.1);
    fx_close(&w.fx);
}

/* A job that always says it has work and moves next to nothing costs others at most what the
 * meter's patience allows. */
static void pretended_work_stops_nobody(void **state) {
    static const uint32_t classes[] = {1, 1}, weights[] = {1, 1};
    struct world w;
    (void)state;
    open_world(&w, 2, classes, weights);
    w.starved[0] = true;
    for (uint32_t i = 0; i < 2000; i++) {
        live(&w, 2, 1, 500000);
        move(&w, 0, 1);
    }
    memset(w.sums, 0, sizeof w.sums);
    for (uint32_t i = 0; i < 1000; i++) {
        live(&w, 2, 1, 500000);
        move(&w, 0, 1);
    }
    if (w.sums[1] < 1000ull * 20 * 500000 / 10)
        fail_msg("%llu bytes", (unsigned long long)w.sums[1]);
    fx_close(&w.fx);
}

static void a_note_that_shrinks_is_not_believed(void **state) {
    static const uint32_t classes[] = {1, 1}, weights[] = {1, 1};
    struct world w;
    (void)state;
    open_world(&w, 2, classes, weights);
    live(&w, 2, 200, 500000);
    uint64_t seen = occl_observe64(&w.fx.jobs[0].page->charged_bytes_seen);
    for (uint32_t r = 0; r < 2; r++)
        occl_note64(&occl_note_at(&w.comms[0]->records, r)->bytes_executed, 5);
    live(&w, 2, 100, 500000);
    assert_true(occl_observe64(&w.fx.jobs[0].page->charged_bytes_seen) >= seen);
    fx_close(&w.fx);
}

static void one_job_needs_no_timer(void **state) {
    static const uint32_t classes[] = {1, 1}, weights[] = {1, 1};
    struct world w;
    (void)state;
    open_world(&w, 1, classes, weights);
    assert_int_equal(occl_engine_meter(w.fx.engine, w.now_ns), 0);
    fx_close(&w.fx);
    open_world(&w, 2, classes, weights);
    assert_int_equal(occl_engine_meter(w.fx.engine, w.now_ns), w.now_ns + 100 * MS);
    fx_close(&w.fx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_share_by_weight),
        cmocka_unit_test(changed_weights_count),
        cmocka_unit_test(high_class_goes_first),
        cmocka_unit_test(low_class_ages),
        cmocka_unit_test(metered_bytes_follow_weights),
        cmocka_unit_test(tenants_share_before_jobs),
        cmocka_unit_test(shares_hold_at_any_speed),
        cmocka_unit_test(late_looks_keep_the_shares),
        cmocka_unit_test(a_changed_class_starts_near_the_others),
        cmocka_unit_test(gate_opens_for_one_job_alone),
        cmocka_unit_test(lower_class_gets_a_slice_per_period),
        cmocka_unit_test(a_job_with_little_work_holds_nobody_back),
        cmocka_unit_test(a_job_without_cores_keeps_its_share),
        cmocka_unit_test(pretended_work_stops_nobody),
        cmocka_unit_test(a_note_that_shrinks_is_not_believed),
        cmocka_unit_test(one_job_needs_no_timer),
    };
    return cmocka_run_group_tests_name("engine_share", tests, NULL, NULL);
}
