/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: stale handles, limits, copies, several ops under visit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sched/fixture.h"

static void stale_handles_are_refused(void **state) {
    struct occl_sched_give_up g;
    struct occl_sched_report r;
    (void)state;
    fixture_start_default();
    uint32_t job = fixture_job_of(1, 1, 1, 1);
    uint64_t id = fixture_add(job, 1, 0), again;
    struct occl_sched_visit v = fixture_next();
    assert_int_equal(occl_sched_job_remove(sched, job), OCCL_E_BUSY);
    assert_int_equal(occl_sched_remove(sched, id), OCCL_OK); /* under visit */
    again = fixture_add(job, 1, 1);
    memset(&r, 0, sizeof r);
    assert_int_equal(occl_sched_report(sched, v.id, &r, now), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_report(sched, again, &r, now), OCCL_E_HANDLE); /* not visited */
    assert_int_equal(occl_sched_remove(sched, id), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_set_class(sched, id, 1), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_wake(sched, id), OCCL_E_HANDLE);
    assert_int_equal(occl_sched_give_up(sched, UINT64_MAX, &g), OCCL_E_HANDLE);
    assert_int_equal(fixture_next().id, again);
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
    fixture_start(config);
    assert_false(occl_sched_next(sched, now, &v));
    assert_int_equal(occl_sched_job_add(sched, 1, 1, 0, 1, &job), OCCL_E_INVALID);
    assert_int_equal(occl_sched_job_add(sched, 1, 1, 1, OCCL_SCHED_WEIGHT_MAX + 1, &job),
                     OCCL_E_INVALID);
    assert_int_equal(occl_sched_add(sched, &op, now, &id), OCCL_E_INVALID); /* no such job */
    job = fixture_job_of(1, 1, 1, 1);
    assert_int_equal(occl_sched_job_add(sched, 1, 1, 1, 1, &job), OCCL_E_BUSY);
    assert_int_equal(occl_sched_job_add(sched, 2, 1, 1, 1, &job), OCCL_E_QUOTA);
    fixture_add(job, 0, 0);
    fixture_add(job, 3, 0);
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
    fixture_start(config);
    uint32_t job = fixture_job_of(1, 1, 1, 1), other = fixture_job_of(2, 2, 3, 1);
    for (uint32_t i = 0; i < 20; i++)
        fixture_add(i % 3 ? job : other, i % 4, i);
    size_t bytes = occl_sched_bytes(&config);
    struct occl_sched *copy = (struct occl_sched *)malloc(bytes);
    assert_non_null(copy);
    for (uint32_t i = 0; i < 50; i++)
        fixture_report(fixture_next().id, i % 5 ? OCCL_SCHED_BUDGET : OCCL_SCHED_BLOCKED,
                       i % 5 ? 1 : 0, 1000 * i);
    memcpy(copy, sched, bytes);
    uint64_t seen[200], start_ns = now;
    for (uint32_t round = 0; round < 2; round++) {
        now = start_ns;
        for (uint32_t i = 0; i < 200; i++) {
            struct occl_sched_visit v = fixture_next();
            if (round == 0)
                seen[i] = v.id;
            assert_int_equal(v.id, seen[i]);
            fixture_report(v.id, i % 7 ? OCCL_SCHED_BUDGET : OCCL_SCHED_BLOCKED, i % 7 ? 1 : 0,
                           1000 * i);
        }
        memcpy(sched, copy, bytes);
    }
    free(copy);
}

/* Several ops under visit at once: none is handed out twice, reports may come in any order. */
static void several_ops_under_visit(void **state) {
    (void)state;
    fixture_start_default();
    uint32_t jobs[2] = {fixture_job_of(1, 1, 1, 1), fixture_job_of(2, 2, 5, 1)};
    for (uint32_t i = 0; i < 12; i++)
        fixture_add(jobs[i % 2], 1 + i % 2, i);
    random_state = 3;
    uint64_t flying[6];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        if (count < 6 && fixture_random_below(2)) {
            struct occl_sched_visit v = fixture_next();
            for (uint32_t k = 0; k < count; k++)
                assert_true(flying[k] != v.id);
            flying[count++] = v.id;
        } else if (count > 0) {
            uint32_t k = fixture_random_below(count);
            fixture_report(flying[k],
                           fixture_random_below(3) ? OCCL_SCHED_BUDGET : OCCL_SCHED_BLOCKED, 1,
                           999);
            flying[k] = flying[--count];
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(stale_handles_are_refused, fixture_teardown),
        cmocka_unit_test_teardown(limits_are_statuses, fixture_teardown),
        cmocka_unit_test_teardown(a_copy_is_a_snapshot, fixture_teardown),
        cmocka_unit_test_teardown(several_ops_under_visit, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
