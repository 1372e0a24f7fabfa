/* SPDX-License-Identifier: Apache-2.0 */
/* One scheduler and one clock for the tests of the scheduler; cmocka's asserts inside. */
#ifndef TESTS_SCHED_FIXTURE_H
#define TESTS_SCHED_FIXTURE_H

#include <stdint.h>

#include "daemon/sched/sched.h"

#define SLICE_BYTES (1u << 20)
#define SLICE_NS 100000u

extern struct occl_sched *sched; /* the one under test, NULL: none */
extern uint64_t now;             /* ns; what the scheduler is told */
extern uint64_t random_state;    /* of fixture_random_below */

uint32_t fixture_random_below(uint32_t limit);
/* Replaces `sched` by a new one; limits of 0 become roomy ones. */
void fixture_start(struct occl_sched_config config);
void fixture_start_default(void);
int fixture_teardown(void **state);

uint32_t fixture_job_of(uint64_t job_id, uint64_t tenant_id, uint32_t tenant_weight,
                        uint32_t job_weight);
/* Adds an op, returns its id. */
uint64_t fixture_add(uint32_t job, uint32_t op_class, uint64_t user);
/* The next visit; there must be one. */
struct occl_sched_visit fixture_next(void);
/* Reports `slices` slices and lets the clock run. */
void fixture_report(uint64_t id, uint32_t result, uint32_t slices, uint64_t bytes);
void fixture_report_wait(uint64_t id, uint32_t step, uint32_t kind, uint32_t peer);

#endif
