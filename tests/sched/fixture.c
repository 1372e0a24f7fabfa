/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

struct occl_sched *sched;
uint64_t now;
uint64_t random_state;

uint32_t fixture_random_below(uint32_t limit) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((random_state >> 33) % limit);
}

void fixture_start(struct occl_sched_config config) {
    occl_sched_destroy(sched);
    sched = NULL;
    now = 1000;
    if (config.ops_max == 0)
        config.ops_max = 4096;
    if (config.jobs_max == 0)
        config.jobs_max = 16;
    assert_int_equal(occl_sched_create(&config, &sched), OCCL_OK);
}

void fixture_start_default(void) {
    struct occl_sched_config config;
    memset(&config, 0, sizeof config);
    fixture_start(config);
}

int fixture_teardown(void **state) {
    (void)state;
    occl_sched_destroy(sched);
    sched = NULL;
    return 0;
}

uint32_t fixture_job_of(uint64_t job_id, uint64_t tenant_id, uint32_t tenant_weight,
                        uint32_t job_weight) {
    uint32_t job;
    assert_int_equal(occl_sched_job_add(sched, job_id, tenant_id, tenant_weight, job_weight, &job),
                     OCCL_OK);
    return job;
}

uint64_t fixture_add(uint32_t job, uint32_t op_class, uint64_t user) {
    struct occl_sched_op op = {.job = job, .op_class = op_class, .user = user};
    uint64_t id;
    assert_int_equal(occl_sched_add(sched, &op, now, &id), OCCL_OK);
    return id;
}

struct occl_sched_visit fixture_next(void) {
    struct occl_sched_visit visit;
    assert_true(occl_sched_next(sched, now, &visit));
    return visit;
}

/* Reports `slices` slices and lets the clock run. */
void fixture_report(uint64_t id, uint32_t result, uint32_t slices, uint64_t bytes) {
    struct occl_sched_report r;
    memset(&r, 0, sizeof r);
    r.result = result;
    r.slices = slices;
    r.bytes = bytes;
    now += slices ? slices * SLICE_NS : 100;
    assert_int_equal(occl_sched_report(sched, id, &r, now), OCCL_OK);
}

void fixture_report_wait(uint64_t id, uint32_t step, uint32_t kind, uint32_t peer) {
    struct occl_sched_report r;
    memset(&r, 0, sizeof r);
    r.result = OCCL_SCHED_BLOCKED;
    r.step = step;
    r.wait_kind = kind;
    r.peer = peer;
    now += 100;
    assert_int_equal(occl_sched_report(sched, id, &r, now), OCCL_OK);
}
