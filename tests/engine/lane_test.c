/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane costs: no allocation and no system call per op while it is awake, no CPU while there
 * is nothing to do; and where it may run. The linker sends the allocations of everything in this
 * binary through the counters below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/engine/fixture.h"

static uint64_t allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t bytes) {
    occl_count64(&allocations, 1);
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    occl_count64(&allocations, 1);
    return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
    occl_count64(&allocations, 1);
    return __real_realloc(old, bytes);
}
void *__wrap_aligned_alloc(size_t align, size_t bytes) {
    occl_count64(&allocations, 1);
    return __real_aligned_alloc(align, bytes);
}
void __wrap_free(void *memory) {
    occl_count64(&allocations, 1);
    __real_free(memory);
}

static void all_reduce_once(struct fx *fx, struct fx_comm *comm, uint32_t region, uint32_t tag,
                            uint64_t count) {
    for (uint32_t r = 0; r < comm->ranks; r++) {
        struct occl_sqe sqe = fx_all_reduce(comm, r, fx_key(tag, 0), count, region, 4 * count * r,
                                            4 * count * (comm->ranks + r));
        fx_submit(fx, comm, r, &sqe);
    }
    for (uint32_t r = 0; r < comm->ranks; r++)
        fx_expect(fx, comm, r, (uint64_t)tag << 32, OCCL_OK, OCCL_RANK_NONE);
}

static void progress_allocates_nothing(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 2});
    struct fx_comm *comm = fx_simple(&fx, 4);
    void *data = fx_region(&fx, 1, 32ull << 20, &region);
    assert_true(occl_peek64(&allocations) > 0); /* the counter counts */
    uint64_t before = occl_observe64(&allocations);
    for (uint32_t i = 0; i < 300; i++)
        all_reduce_once(&fx, comm, region, i, i % 10 ? 100 : 1 << 20);
    struct occl_sqe bad = fx_all_reduce(comm, 0, fx_key(900, 0), 100, 99, 0, 4096);
    fx_submit(&fx, comm, 0, &bad);
    fx_expect(&fx, comm, 0, 900ull << 32, OCCL_E_FAULT, 0);
    assert_int_equal(occl_observe64(&allocations) - before, 0);
    fx_close(&fx);
    free(data);
}

static uint64_t system_calls(struct fx *fx) {
    struct occl_engine_counters counters;
    occl_engine_counters(fx->engine, &counters);
    return counters.system_calls;
}

/* A machine that is shared may take the core away at any time; some batches are undisturbed. */
static void no_system_call_per_op_while_awake(void **state) {
    struct fx fx;
    uint32_t region, clean = 0;
    (void)state;
    if (occl_cores_allowed() < 2) {
        print_message("SKIP no_system_call_per_op_while_awake: one core only\n");
        skip();
    }
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    struct fx_comm *comm = fx_simple(&fx, 1);
    void *data = fx_region(&fx, 1, 8192, &region);
    uint64_t until = fx_now_ns() + fx_patience_ns();
    for (uint32_t tag = 0; clean == 0 && fx_now_ns() < until; tag += 100) {
        struct occl_cqe cqe;
        uint64_t before = 0;
        for (uint32_t i = 0; i < 60; i++) {
            struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(tag + i, 0), 16, region, 0, 4096);
            fx_submit(&fx, comm, 0, &sqe);
            while (!fx_poll(&fx, comm->sessions[0], &cqe))
                occl_relax();
            if (i == 9)
                before = system_calls(&fx); /* awake by now */
        }
        clean += system_calls(&fx) == before;
    }
    assert_true(clean > 0);
    fx_close(&fx);
    free(data);
}

/* Submissions that come just when the lane goes to sleep: each is seen, by the doorbell or by the
 * lane's last look. */
static void a_lane_that_falls_asleep_misses_nothing(void **state) {
    struct fx fx;
    uint32_t region;
    uint64_t random = 5;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    struct fx_comm *comm = fx_simple(&fx, 1);
    void *data = fx_region(&fx, 1, 8192, &region);
    for (uint32_t i = 0; i < 20000; i++) {
        struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(i, 0), 16, region, 0, 4096);
        uint64_t until = fx_now_ns() + 15000 + fx_random(&random) % 20000;
        if (i % 200 == 0)
            occl_clock_sleep_ns(&fx.clock, 5 * 1000000); /* asleep, however busy the machine is */
        while (fx_now_ns() < until)
            occl_relax();
        fx_submit(&fx, comm, 0, &sqe);
        fx_expect(&fx, comm, 0, (uint64_t)i << 32, OCCL_OK, OCCL_RANK_NONE);
    }
    struct occl_engine_counters counters;
    occl_engine_counters(fx.engine, &counters);
    assert_true(counters.lane_sleeps > 0);
    fx_close(&fx);
    free(data);
}

static uint64_t cpu_ns(void) {
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * FX_SECOND + (uint64_t)t.tv_nsec;
}

/* What the watchdog goes by: sleeping and going round are signs of life, standing is none. */
static void a_standing_lane_shows_no_sign_of_life(void **state) {
    struct fx fx;
    uint64_t beat = 0;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    occl_clock_sleep_ns(&fx.clock, 100000000);
    for (int i = 0; i < 3; i++)
        assert_true(occl_engine_lane_moves(fx.engine, 0, &beat)); /* asleep */
    fx_close(&fx);

    static const struct occl_engine_events events = {NULL};
    struct occl_engine_config config = {.lanes = 1, .driven = true, .ops_max = 256};
    struct occl_engine *engine;
    beat = 0;
    assert_int_equal(occl_engine_create(&config, &fx.clock, &fx.log, &events, &fx, &engine),
                     OCCL_OK);
    (void)occl_engine_turn(engine, 0);
    assert_true(occl_engine_lane_moves(engine, 0, &beat));
    assert_false(occl_engine_lane_moves(engine, 0, &beat)); /* not turned since */
    occl_engine_destroy(engine);
}

static void idle_lanes_use_no_cpu(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 4});
    struct fx_comm *comm = fx_simple(&fx, 4);
    void *data = fx_region(&fx, 1, 1 << 20, &region);
    all_reduce_once(&fx, comm, region, 1, 1000);
    struct occl_sqe waiting = fx_all_reduce(comm, 0, fx_key(2, 0), 100, region, 0, 4096);
    fx_submit(&fx, comm, 0, &waiting); /* an op that waits for members costs nothing either */
    occl_clock_sleep_ns(&fx.clock, 100000000);
    struct occl_engine_counters before, after;
    occl_engine_counters(fx.engine, &before);
    uint64_t cpu_before = cpu_ns();
    occl_clock_sleep_ns(&fx.clock, FX_SECOND);
    uint64_t cpu = cpu_ns() - cpu_before;
    occl_engine_counters(fx.engine, &after);
    assert_int_equal(after.lane_sleeps, before.lane_sleeps);
    assert_true(cpu < 10000000);
    all_reduce_once(&fx, comm, region, 3, 1000); /* and the doorbell wakes them */
    fx_close(&fx);
    free(data);
}

static void a_cpu_that_may_not_be_used_is_no_failure(void **state) {
    static const uint32_t cpus[] = {0, 5000};
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 2, .cpus = cpus});
    struct fx_comm *comm = fx_simple(&fx, 2);
    void *data = fx_region(&fx, 1, 16 << 20, &region);
    all_reduce_once(&fx, comm, region, 1, 1 << 20);
    uint64_t until = fx_now_ns() + fx_patience_ns();
    while (occl_observe64(&fx.log_lines) == 0 && fx_now_ns() < until)
        occl_clock_sleep_ns(&fx.clock, 1000000);
    assert_int_equal(occl_observe64(&fx.log_lines), 1);
    fx_close(&fx);
    free(data);
}

static void ops_are_shown(void **state) {
    struct fx fx;
    uint32_t region;
    struct occl_engine_op_view views[4];
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 2});
    struct fx_comm *comm = fx_simple(&fx, 3);
    void *data = fx_region(&fx, 1, 1 << 20, &region);
    for (uint32_t r = 0; r < 3; r += 2) {
        struct occl_sqe sqe = fx_all_reduce(comm, r, fx_key(6, 1), 100, region, 0, 4096);
        fx_submit(&fx, comm, r, &sqe);
    }
    uint64_t until = fx_now_ns() + fx_patience_ns();
    while ((occl_engine_ops(fx.engine, views, 4) != 1 || views[0].arrived_mask != 5) &&
           fx_now_ns() < until)
        occl_clock_sleep_ns(&fx.clock, 100000);
    assert_int_equal(occl_engine_ops(fx.engine, views, 4), 1);
    assert_int_equal(views[0].comm_uid, comm->uid);
    assert_int_equal(views[0].key.tag, 6);
    assert_int_equal(views[0].arrived_mask, 5);
    assert_int_equal(views[0].signature.count, 100);
    assert_int_equal(views[0].state, 0);
    assert_true(views[0].first_ticks > 0);
    /* The same, asked job by job: the end is told, and a job without ops has none. */
    uint64_t next = 1;
    memset(views, 0, sizeof views);
    assert_int_equal(occl_engine_job_ops(fx.engine, 1, &next, 4, views, 4), 1);
    assert_int_equal(next, 0);
    assert_int_equal(views[0].comm_uid, comm->uid);
    assert_int_equal(views[0].arrived_mask, 5);
    next = comm->uid + 1;
    assert_int_equal(occl_engine_job_ops(fx.engine, 1, &next, 4, views, 4), 0);
    next = 1;
    assert_int_equal(occl_engine_job_ops(fx.engine, 99, &next, 4, views, 4), 0);
    assert_int_equal(next, 0);
    fx_close(&fx);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_allocates_nothing),
        cmocka_unit_test(no_system_call_per_op_while_awake),
        cmocka_unit_test(a_lane_that_falls_asleep_misses_nothing),
        cmocka_unit_test(a_standing_lane_shows_no_sign_of_life),
        cmocka_unit_test(idle_lanes_use_no_cpu),
        cmocka_unit_test(a_cpu_that_may_not_be_used_is_no_failure),
        cmocka_unit_test(ops_are_shown),
    };
    return cmocka_run_group_tests_name("engine_lane", tests, NULL, NULL);
}
