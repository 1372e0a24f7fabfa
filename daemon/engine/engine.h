/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: the daemon's lanes (executor threads) and the ops that go through the rings. This
 * header is the seam between the control side (sockets, sessions, communicators: one thread, the
 * control loop) and the data side (lanes).
 *
 * Ownership and threads. The control loop calls every occl_engine_ function; none of them blocks
 * longer than one slice (100 us, 10 x in sanitizer builds), none waits for a client. Lanes own the
 * consumer index of submission rings, the producer index of completion rings, the op tables and the
 * run queues: each session has a home lane (the one of its job). Whatever the engine is given stays
 * owned by the caller and must stay valid until the matching _remove has returned: after it no lane
 * touches the object any more.
 *
 * Lanes sleep on private futexes when nothing is runnable and then use no CPU. Before a lane sleeps
 * it sets daemon_sleeping in its sessions' pages and looks at their rings once more
 * (shm_ipc/wake.h); a client that finds the flag set sends DOORBELL on its socket and the control
 * loop calls occl_engine_kick. */
#ifndef DAEMON_ENGINE_ENGINE_H
#define DAEMON_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/abi.h"
#include "shm_ipc/record.h"
#include "shm_ipc/status.h"

struct occl_engine;
struct occl_clock;
struct occl_log;

/* Called on lane threads; the implementation hands the message to the control loop and returns at
 * once (no blocking, no allocation). */
struct occl_engine_events {
    /* Corrupt ring or entry: the control loop quarantines the session. reason is a static string.
     */
    void (*session_fault)(void *owner, uint64_t session_id, int status, const char *reason);
};

struct occl_engine_config {
    uint32_t lanes;            /* 1..64 */
    const uint32_t *lane_cpus; /* one CPU number per lane, or NULL: not bound */
    bool ordered;              /* negative control: serve each rank strictly in submission order */
    bool driven; /* lanes have no threads: the control loop's own moves them on (simulator) */
    uint64_t ageing_ns; /* a runnable lower class gets one slice per this time; default 10 ms */
    uint64_t patience_min_ns, patience_max_ns;
    uint64_t ops_max; /* ops in the table at once, over all tenants: allocated at creation */
};

int occl_engine_create(const struct occl_engine_config *config, const struct occl_clock *clock,
                       struct occl_log *log, const struct occl_engine_events *events, void *owner,
                       struct occl_engine **out_engine);
/* Stops and joins the lanes; incomplete ring ops end with OCCL_E_SHUTTING_DOWN first. */
void occl_engine_destroy(struct occl_engine *engine);
/* Driven lanes only: what the lane's thread would do in one round (everything that waits, one
 * slice), or nothing while it sleeps. False: it sleeps, until a doorbell or a call wakes it. */
bool occl_engine_turn(struct occl_engine *engine, uint32_t lane);

/* ---- jobs: unit of weight, class and metering ---- */
struct occl_engine_job_config {
    uint64_t job_id;
    uint64_t tenant_id;
    uint32_t job_class;         /* 0 bulk .. 3 urgent */
    uint32_t job_weight;        /* > 0, shares inside the tenant */
    uint32_t tenant_weight;     /* > 0 */
    uint64_t ops_quota;         /* ring ops of the tenant at once */
    struct occl_job_page *page; /* the daemon's writable mapping */
};
int occl_engine_job_add(struct occl_engine *engine, const struct occl_engine_job_config *config);
/* Changes class or weights of a running job (occlctl set). */
int occl_engine_job_set(struct occl_engine *engine, const struct occl_engine_job_config *config);
void occl_engine_job_remove(struct occl_engine *engine, uint64_t job_id);

/* ---- regions: what lanes may read and write, by job-wide number ---- */
int occl_engine_region_add(struct occl_engine *engine, uint64_t job_id, uint32_t region, void *base,
                           uint64_t bytes);
/* Ops that use the region end with OCCL_E_FAULT; returns when no lane touches it. */
void occl_engine_region_remove(struct occl_engine *engine, uint64_t job_id, uint32_t region);

/* ---- sessions ---- */
struct occl_engine_session_config {
    uint64_t session_id;
    uint64_t job_id;
    struct occl_session_page *page;  /* mapping of the session memfd */
    uint32_t sq_entries, cq_entries; /* as decided by the daemon, never read from the page */
    uint32_t sq_offset, cq_offset;
};
int occl_engine_session_add(struct occl_engine *engine,
                            const struct occl_engine_session_config *config);
/* The session is gone: its ring ops are forgotten, no completion is written any more. */
void occl_engine_session_remove(struct occl_engine *engine, uint64_t session_id);
/* Doorbell: wake the session's home lane. */
void occl_engine_kick(struct occl_engine *engine, uint64_t session_id);

/* ---- communicators ---- */
struct occl_engine_comm_config {
    uint64_t comm_uid;
    uint64_t job_id;
    uint32_t ranks;
    uint32_t priority;            /* class 0..3; 255: whatever the job's class is at the moment */
    struct occl_records records;  /* the daemon's own layout on its own mapping */
    const uint64_t *session_ids;  /* ranks of them: member r's session; copied */
    const uint32_t *comm_numbers; /* the communicator's number in that session (sqe.comm); copied */
};
int occl_engine_comm_add(struct occl_engine *engine, const struct occl_engine_comm_config *config);
/* Ends every ring op of the communicator with `status` about `about_rank` (exactly one completion
 * per submitted member) and refuses new ones with the same status. Records are the caller's: when
 * the communicator has ended it has set comm_state and sweeps them; those that it leaves alone are
 * executed as before, for ring ops also end when only one of them needs a member that has left.
 * Idempotent. */
void occl_engine_comm_fail(struct occl_engine *engine, uint64_t comm_uid, int status,
                           uint32_t about_rank);
void occl_engine_comm_remove(struct occl_engine *engine, uint64_t comm_uid);

/* ---- metering: shares of jobs whose ranks execute strands themselves (meter.c) ----
 * Sums up what every job has charged, opens or closes the gates in the job pages and grants bytes
 * by class and weight. Control loop, by timer. Returns when to call again (CLOCK_MONOTONIC), or 0
 * when nothing has to be metered before the next job or communicator is added. Neither blocks nor
 * allocates; a few microseconds. */
uint64_t occl_engine_meter(struct occl_engine *engine, uint64_t now_ns);

/* ---- inspection: a consistent copy per op, taken between two slices of its home lane ---- */
struct occl_engine_op_view {
    uint64_t comm_uid;
    struct occl_op_key key;
    struct occl_signature signature;
    uint64_t arrived_mask;
    uint64_t first_ticks; /* first member's submission */
    uint32_t strands, strands_done;
    uint32_t preemptions, attempts;
    uint8_t state;       /* 0 waiting for members, 1 runnable, 2 running */
    uint8_t from_record; /* 1: EXECUTE of a LOCAL record */
};
uint32_t occl_engine_ops(struct occl_engine *engine, struct occl_engine_op_view *out_ops,
                         uint32_t max);
/* Ops in the tables, of the communicators of one job, from *inout_comm_uid on in the order of their
 * numbers; at most max, and at most per_comm of one communicator. Looks at max objects at most, in
 * one step of the job's home lane. *inout_comm_uid becomes where to go on, 0 at the end. Blocks as
 * long as a lane's slice; not at all for a job without ops in the tables. */
uint32_t occl_engine_job_ops(struct occl_engine *engine, uint64_t job_id, uint64_t *inout_comm_uid,
                             uint32_t per_comm, struct occl_engine_op_view *out_ops, uint32_t max);

struct occl_engine_job_usage {
    uint64_t job_id;
    uint64_t lane_cpu_ns, bytes_moved, ops, preemptions, errors;
    uint64_t queue_depth;
};
bool occl_engine_job_usage(struct occl_engine *engine, uint64_t job_id,
                           struct occl_engine_job_usage *out_usage);

struct occl_engine_counters {
    uint64_t ops_completed, ops_failed, preemptions, switches, doorbells, ring_full, lane_sleeps,
        lane_wakeups, faults;
    uint64_t submit_to_start_ns_p50, switch_ns_p50; /* measured, 0 before the first op */
    uint64_t ignored;                               /* EXECUTE that named nothing to do */
    uint64_t system_calls;                          /* yields, sleeps and wakes of lanes */
    uint64_t jobs, sessions, comms, ops;            /* held now */
};
void occl_engine_counters(struct occl_engine *engine, struct occl_engine_counters *out_counters);

/* Whether the lane sleeps or has gone round since *inout_beat was filled; 0 the first time. Never
 * blocks, so it also tells of a lane that hangs in a slice. */
bool occl_engine_lane_moves(const struct occl_engine *engine, uint32_t lane, uint64_t *inout_beat);

#endif
