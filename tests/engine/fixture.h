/* SPDX-License-Identifier: Apache-2.0 */
/* Fake clients for the engine: session, communicator and job pages that the test makes itself and
 * writes as a client would. One thread drives a rank at a time. */
#ifndef TESTS_ENGINE_FIXTURE_H
#define TESTS_ENGINE_FIXTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/engine.h"
#include "shm_ipc/clock.h"
#include "shm_ipc/datatype.h"
#include "shm_ipc/log.h"
#include "shm_ipc/ring.h"
#include "shm_ipc/wake.h"

#define FX_SESSIONS 72
#define FX_COMMS 16
#define FX_JOBS 8
#define FX_SECOND 1000000000ull

struct fx_session {
    uint64_t id;
    uint64_t job_id;
    void *memory;
    struct occl_session_page *page;
    struct occl_ring_producer sq;
    struct occl_ring_consumer cq;
    uint32_t next_comm;
};

struct fx_comm {
    uint64_t uid;
    uint64_t job_id;
    uint32_t ranks;
    void *memory;
    struct occl_records records;
    uint32_t sessions[64]; /* index in fx.sessions */
    uint32_t numbers[64];
};

struct fx_job {
    uint64_t id;
    uint32_t next_region;
    struct occl_job_page *page;
    struct occl_engine_job_config config;
};

struct fx {
    struct occl_engine *engine;
    struct occl_clock clock;
    struct occl_log log;
    pthread_mutex_t control; /* the engine's functions belong to one thread at a time */
    uint32_t session_count, comm_count, job_count;
    struct fx_session sessions[FX_SESSIONS];
    struct fx_comm comms[FX_COMMS];
    struct fx_job jobs[FX_JOBS];
    /* events, from lanes */
    uint64_t faults;
    uint64_t faulted_session;
    uint64_t fault_status;
    uint64_t log_lines;
};

struct fx_options {
    uint32_t lanes; /* 0: 2 */
    bool ordered;
    uint64_t ops_max;
    uint64_t ageing_ns;
    const uint32_t *cpus;
};

/* All end the test on failure. */
void fx_open(struct fx *fx, const struct fx_options *options);
void fx_close(struct fx *fx);
struct fx_job *fx_job(struct fx *fx, uint64_t id, uint64_t tenant, uint32_t job_class,
                      uint32_t weight, uint64_t quota);
/* Returns its index. */
uint32_t fx_session(struct fx *fx, uint64_t job_id, uint32_t sq_entries, uint32_t cq_entries);
/* A communicator of sessions first .. first + ranks - 1. */
struct fx_comm *fx_comm(struct fx *fx, uint64_t job_id, uint32_t first, uint32_t ranks);
/* A job with `ranks` sessions and one communicator. */
struct fx_comm *fx_simple(struct fx *fx, uint32_t ranks);
/* Memory that is also a region of the job; freed by the caller after fx_close. */
void *fx_region(struct fx *fx, uint64_t job_id, uint64_t bytes, uint32_t *out_region);

struct occl_op_key fx_key(uint32_t tag, uint32_t instance);
/* An all-reduce of int32 sums; src and dst are offsets in region. */
struct occl_sqe fx_all_reduce(const struct fx_comm *comm, uint32_t rank, struct occl_op_key key,
                              uint64_t count, uint32_t region, uint64_t src, uint64_t dst);
/* Pushes, publishes, and rings the doorbell when the flag says so. */
void fx_push(struct fx *fx, uint32_t session, const struct occl_sqe *sqe);
void fx_submit(struct fx *fx, const struct fx_comm *comm, uint32_t rank,
               const struct occl_sqe *sqe);
bool fx_poll(struct fx *fx, uint32_t session, struct occl_cqe *out_cqe);
/* Waits; false after timeout_ns. */
bool fx_wait(struct fx *fx, uint32_t session, uint64_t timeout_ns, struct occl_cqe *out_cqe);
/* Waits for one completion and checks it. */
void fx_expect(struct fx *fx, const struct fx_comm *comm, uint32_t rank, uint64_t user_data,
               int status, uint32_t about_rank);
/* Nothing comes for a while. */
void fx_expect_nothing(struct fx *fx, const struct fx_comm *comm, uint32_t rank);
uint64_t fx_now_ns(void);
/* Sanitizer builds get more time. */
uint64_t fx_patience_ns(void);
/* Waits until cond(fx) holds. */
bool fx_until(struct fx *fx, bool (*cond)(struct fx *fx));
uint64_t fx_random(uint64_t *state);

#endif
