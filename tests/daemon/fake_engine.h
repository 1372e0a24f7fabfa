/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake engine saw, and what its lanes would say. One engine a process. */
#ifndef TESTS_DAEMON_FAKE_ENGINE_H
#define TESTS_DAEMON_FAKE_ENGINE_H

#include "daemon/engine/engine.h"

#define FAKE_OPS_MAX 16

struct fake_engine_counts {
    uint64_t jobs, sessions, comms, regions; /* held now */
    uint64_t kicks, fails, job_sets;
    uint32_t last_weight, last_class, last_comm_class;
    int last_fail_status;
    uint32_t last_fail_rank;
};
struct fake_engine_counts fake_engine_counts(void);
void fake_engine_fault(uint64_t session_id, int status, const char *reason);
/* What occl_engine_ops reports from now on. */
/* Lanes hang in a slice from now on, or go round. */
void fake_engine_hang(bool hangs);
void fake_engine_set_ops(const struct occl_engine_op_view *ops, uint32_t count);

#endif
