/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's private header: who owns what.
 *
 *   engine ── tenants[], jobs[]        control loop writes, lanes read what is marked atomic
 *     ├─ lane 0 .. n-1                 each its own thread
 *     │    ├─ sessions, communicators  of the jobs whose home lane it is
 *     │    ├─ op table, runs           ops of these jobs; a run is an op (or a record) in execution
 *     │    └─ tasks                    what this lane executes: runs of its own and of other lanes
 *     └─ board                         runs with strands to spare, for other lanes to help with
 *
 * A lane's structs belong to its thread alone. The control loop changes them by a call (control.c):
 * it publishes a function, the lane runs it between two slices, the control loop waits. So lanes
 * take no lock and wait for nobody. The only things several lanes touch are the atomics of a run.
 */
#ifndef DAEMON_ENGINE_INTERNAL_H
#define DAEMON_ENGINE_INTERNAL_H

#include <pthread.h>

/* uthash's default hash falls through its cases without the marks that clang asks for. */
#define HASH_FUNCTION(key_, bytes_, hash_) HASH_FNV(key_, bytes_, hash_)
#include <uthash.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/list.h"
#include "daemon/engine/map.h"
#include "daemon/engine/pool.h"
#include "daemon/sched/sched.h"
#include "gpu/host/reduce.h"
#include "gpu/local_program.h"
#include "shm_ipc/arena.h"
#include "shm_ipc/clock.h"
#include "shm_ipc/guard.h"
#include "shm_ipc/log.h"
#include "shm_ipc/op_kind.h"
#include "shm_ipc/ring.h"
#include "shm_ipc/wake.h"

#define OCCL_ENG_LANES_MAX 64u
/* Jobs and tenants at once on a node; slots are reused. */
#define OCCL_ENG_JOBS_MAX 4096u
/* Members are stored in blocks: 8 is the usual number of ranks on a node. */
#define OCCL_ENG_BLOCK_MEMBERS 8u
#define OCCL_ENG_BLOCKS (OCCL_LOCAL_RANKS_MAX / OCCL_ENG_BLOCK_MEMBERS)
/* Runs of a lane at once. Only ops whose members have all arrived hold one, and such an op needs
 * nothing but lanes to end; so waiting for a run is not waiting for a remote event. */
#define OCCL_ENG_RUNS 1024u
/* Of these, a job may hold OCCL_ENG_JOB_RUNS and a few more for each class above the lowest, and
 * the last ones are left to higher classes: neither a job nor a class can keep the others waiting.
 */
#define OCCL_ENG_JOB_RUNS 64u
#define OCCL_ENG_CLASS_RUNS 16u
/* Places where a lane offers a run; without a free place its own lane executes it alone. */
#define OCCL_ENG_BOARD 64u
/* Tasks a lane takes from the board. */
#define OCCL_ENG_HELPS 64u
/* Entries taken from one session in one visit, and the traffic of small ops executed at once in one
 * round over the sessions: together they bound the time to the next slice of somebody else. */
#define OCCL_ENG_INTAKE_BATCH 16u
#define OCCL_ENG_AT_ONCE_BYTES (OCCL_SLICE_TRAFFIC_BYTES / 4)
/* An op of less traffic is not offered to other lanes: waking one costs more than it saves. */
#define OCCL_ENG_SHARE_BYTES (4u * OCCL_SLICE_TRAFFIC_BYTES)
#define OCCL_ENG_STRANDS_PER_WAKE 4u
/* Numbers in the vectors of all members of an op. */
#define OCCL_ENG_VECTOR_ROOM ((uint64_t)OCCL_LOCAL_RANKS_MAX * OCCL_VECTOR_NUMBERS_MAX)
/* Histogram of durations: 8 steps an octave, 1 ns .. 4 s. */
#define OCCL_ENG_BUCKETS 256u

struct occl_eng_lane;
struct occl_eng_op;
struct occl_eng_run;

struct occl_eng_tenant {
    uint64_t id;
    uint32_t jobs;      /* 0: the slot is free; control loop */
    double jobs_weight; /* sum over its competing jobs; meter */
    uint64_t ops_quota; /* atomic */
    uint64_t ops_live;  /* atomic: ops of this tenant in the tables */
};

/* Slots are never freed, so that a lane may look at one through an old reference. */
struct occl_eng_job {
    /* control loop */
    bool used;
    uint32_t slot;
    uint64_t id;
    struct occl_eng_tenant *tenant;
    struct occl_eng_lane *home;
    struct occl_job_page *page;
    struct occl_eng_link live_link; /* engine.live_jobs */
    struct occl_eng_link comms;     /* occl_eng_comm.job_link */
    uint32_t sessions;
    /* home lane */
    struct occl_eng_map regions;                    /* number -> base, bytes */
    struct occl_eng_link ready[OCCL_SCHED_CLASSES]; /* ops that wait for a run */
    struct occl_eng_link ready_link;                /* lane.ready_jobs while one is not empty */
    uint32_t runs;                                  /* live runs */
    /* atomic */
    uint32_t tenant_weight;
    uint32_t job_weight;
    uint32_t job_class;
    uint32_t metered; /* lanes keep to lane_limit_bytes */
    uint64_t lane_limit_bytes;
    uint64_t lane_bytes; /* traffic executed by lanes */
    uint64_t lane_ns, ops, preemptions, errors, ops_live;
    /* meter (control loop) */
    uint64_t charged_bytes; /* lanes and client threads */
    uint64_t granted_bytes;
    uint64_t active_at_ns; /* last look that found it moving or at its limit */
    uint64_t aged_at_ns;
    uint64_t lane_seen; /* lane_bytes at the last look */
    double share;       /* of all competing jobs */
    double passed;      /* charged bytes / share: the job's virtual time */
    double delta;       /* charged since the look before */
    double backlog;     /* part of the latest looks that found work waiting or under way, 0..1 */
    bool moving;        /* it moved something lately, or had work */
    bool active;        /* at the last look: moving, and backlogged for long enough to compete */
    bool competed;      /* at the last look */
};

struct occl_eng_session {
    uint64_t id;
    struct occl_eng_job *job;
    struct occl_session_page *page;
    struct occl_ring_consumer sq;
    struct occl_ring_producer cq;
    struct occl_credits credits;
    struct occl_eng_map comms;    /* number -> occl_eng_comm, extra: rank */
    struct occl_eng_link members; /* of live ops, in submission order */
    struct occl_eng_link lane_link;
    struct occl_eng_link dirty_link; /* completions written but not published */
    bool faulted;                    /* reported; its rings are not touched any more */
    UT_hash_handle hh;               /* control loop */
};

struct occl_eng_comm {
    uint64_t uid;
    uint32_t serial; /* small number for hashing */
    uint32_t ranks;
    uint32_t priority; /* 255: the job's class */
    struct occl_eng_job *job;
    struct occl_records records;
    int failed_status; /* OCCL_OK: live */
    uint32_t failed_about;
    uint32_t runs; /* live runs of this communicator */
    struct occl_eng_link ops;
    struct occl_eng_link wanted_link;    /* in lane.wanted while wanted is not 0 */
    uint64_t wanted[OCCL_RECORDS / 64];  /* records to execute once there is a run for them */
    uint64_t wanted_print[OCCL_RECORDS]; /* which op of the record */
    struct occl_eng_run *slot_run[OCCL_RECORDS];
    struct occl_eng_session *sessions[OCCL_LOCAL_RANKS_MAX]; /* NULL: removed */
    uint32_t numbers[OCCL_LOCAL_RANKS_MAX];
    /* control loop */
    struct occl_eng_link job_link;
    uint64_t noted_bytes[OCCL_LOCAL_RANKS_MAX]; /* bytes_executed as last seen: it only grows */
    bool at_work;                               /* the last look found a local op under way */
    UT_hash_handle hh;
};

#define OCCL_ENG_REGION_NONE 0xffffffffu
/* A checked member's buffers, as far as the kind of op has them. */
struct occl_eng_sides {
    void *src, *dst;
    const void *vector; /* shared: of a kind that has one; copied again before it is used */
    uint64_t src_bytes, dst_bytes;
    uint32_t src_region, dst_region, vector_region; /* OCCL_ENG_REGION_NONE where there is none */
};

/* One rank's submission. Lives while its completion has not been written. */
struct occl_eng_member {
    struct occl_eng_link session_link;
    struct occl_eng_op *op;
    struct occl_eng_session *session; /* NULL: the session is gone, nobody waits for a completion */
    uint64_t user_data;
    struct occl_eng_sides sides;
    uint64_t factor;
    struct occl_signature signature;
};

struct occl_eng_block {
    struct occl_eng_member members[OCCL_ENG_BLOCK_MEMBERS];
};

enum occl_eng_op_state {
    OCCL_ENG_OP_FREE = 0,
    OCCL_ENG_OP_WAITING = 1, /* the last member's submission moves it on, or a failure */
    OCCL_ENG_OP_HELD = 2,  /* ordered mode: not at the head everywhere; a retired op moves it on */
    OCCL_ENG_OP_READY = 3, /* a free run moves it on */
    OCCL_ENG_OP_RUNNING = 4, /* the last strand, or stop and the last pin */
    OCCL_ENG_OP_ENDED = 5,   /* failed before all had come: late members get the status; freed when
                                all have come or the communicator is removed */
};

struct occl_eng_op {
    struct occl_eng_op *hash_next;
    struct occl_eng_comm *comm;
    struct occl_op_key key;
    uint32_t members; /* of the op: ranks, or 2 */
    uint32_t arrived;
    uint8_t state; /* enum occl_eng_op_state */
    uint8_t op_class;
    uint8_t reserved[2];
    int32_t status; /* ENDED, or of a stopped run */
    uint32_t about_rank;
    uint64_t arrived_mask;
    uint64_t first_ticks; /* first member's submission */
    uint64_t last_ticks;
    struct occl_eng_link comm_link;
    struct occl_eng_link ready_link;
    struct occl_eng_run *run;
    struct occl_local_plan plan;
    struct occl_eng_block *blocks[OCCL_ENG_BLOCKS];
};

static inline struct occl_eng_member *occl_eng_member_at(struct occl_eng_op *op, uint32_t index) {
    return &op->blocks[index / OCCL_ENG_BLOCK_MEMBERS]->members[index % OCCL_ENG_BLOCK_MEMBERS];
}

/* A reference to a run in the queue of one lane. */
struct occl_eng_task {
    uint64_t pool_link;
    struct occl_eng_run *run;
    struct occl_eng_job *job;
    uint64_t sched_id;
    uint64_t cost_bytes;
    uint32_t generation; /* of the run; another one: the run has ended */
    uint32_t op_class;
    bool queued; /* known to the lane's scheduler */
    bool pass;   /* one slice whatever the meter says: it has waited for the ageing period */
    struct occl_eng_link help_link; /* lane.helping */
    struct occl_eng_link gate_link; /* lane.gated: its job waits for a grant */
};

/* Why a run takes no more strands. Negative: the status with which its op fails. */
#define OCCL_ENG_RUN_GOES 0
#define OCCL_ENG_RUN_OVER 1 /* a record: decided or handed out by others */

/* An op or a record in execution. Runs live in the home lane's pool and are never unmapped.
 *
 * | field    | writer | reader | store | load  | why                                              |
 * | claim    | lanes  | lanes  | claim | look  | generation << 32, next strand                    |
 * | pins     | lanes  | home   | add   | look  | 0 after stop: nobody looks at the rest (Dekker)  |
 * | stop     | lanes  | lanes  | claim | look  | first reason wins                                |
 * | done     | lanes  | home   | add   | look  | strands executed; their bytes before it          |
 * | the rest | home   | lanes  | plain | plain | written before the generation is published, read |
 * |          |        |        |       |       | by lanes that hold a pin and saw the generation  |
 */
struct occl_eng_run {
    uint64_t pool_link; /* the pool's while the run is free */
    uint64_t claim;
    uint32_t pins;
    uint32_t stop; /* as int32_t */
    uint32_t done;
    uint32_t generation; /* home lane's copy */
    uint32_t claims;     /* of a record: private count that bounds what a scribbler can cause */
    uint32_t preemptions;
    struct occl_eng_lane *home;
    struct occl_eng_job *job;
    struct occl_eng_comm *comm;
    struct occl_eng_op *op; /* NULL: a record */
    struct occl_record *record;
    uint64_t print;
    uint32_t slot;
    uint32_t board_place; /* 1 + index, 0: not offered */
    uint32_t run_class;
    bool started; /* home: submit-to-start is measured once */
    struct occl_op_key key;
    struct occl_signature signature;
    uint64_t first_ticks, last_ticks;
    uint64_t fault_address;
    struct occl_local_plan plan;
    struct occl_local_buffers buffers;
    struct occl_eng_task home_task;
    struct occl_eng_link link; /* lane.running */
    uint32_t range_count;
    uint32_t src_region[OCCL_LOCAL_RANKS_MAX];
    uint32_t dst_region[OCCL_LOCAL_RANKS_MAX];
    const void *inputs[OCCL_LOCAL_RANKS_MAX];
    void *outputs[OCCL_LOCAL_RANKS_MAX];
    uint64_t factors[OCCL_LOCAL_RANKS_MAX];
    struct occl_local_vectors vectors;
    uint64_t *vector_room; /* private copies: OCCL_ENG_VECTOR_ROOM numbers; fixed for the run */
    struct occl_guard_range ranges[2 * OCCL_LOCAL_RANKS_MAX];
    uint8_t range_rank[2 * OCCL_LOCAL_RANKS_MAX];
};

/* A function of the control loop that a lane runs between two slices. `step` returns false to be
 * called again in the lane's next round: that is how the control loop waits for helpers. */
struct occl_eng_call {
    bool (*step)(struct occl_eng_lane *lane, struct occl_eng_call *call);
    uint32_t done; /* atomic */
    uint32_t rounds;
    int status;
    void *arg; /* what the function works on */
};

struct occl_eng_lane_counters { /* single writer: the lane; read by the control loop */
    uint64_t ops_completed, ops_failed, preemptions, switches, ring_full, lane_sleeps, lane_wakeups,
        faults, ignored, system_calls, rounds;
    uint64_t start_ns[OCCL_ENG_BUCKETS];  /* submit to start */
    uint64_t switch_ns[OCCL_ENG_BUCKETS]; /* leaving one op to starting the next */
};

struct occl_eng_lane {
    struct occl_engine *engine;
    uint32_t index;
    uint32_t cpu;
    bool bound;
    pthread_t thread;
    /* written by others, atomic */
    struct occl_parker parker __attribute__((aligned(OCCL_CACHE_LINE_BYTES)));
    uint32_t look;       /* 1: a run of this lane changed */
    uint32_t keeps_back; /* 1: gated is not empty; written by the lane, read by the meter */
    uint64_t call;       /* address of a struct occl_eng_call, 0: none */
    /* the lane's own from here on */
    struct occl_eng_link sessions __attribute__((aligned(OCCL_CACHE_LINE_BYTES)));
    uint32_t session_count;
    struct occl_eng_link dirty;
    struct occl_eng_link wanted;
    struct occl_eng_link ready_jobs; /* take turns */
    struct occl_eng_link running;
    struct occl_eng_link gated;
    struct occl_eng_link helping;
    struct occl_arena arena;
    struct occl_eng_pool ops, blocks, runs, helps;
    uint64_t *vector_rooms; /* one for each run, then one for scratch */
    struct occl_eng_op **buckets;
    uint32_t bucket_mask;
    uint32_t *sched_jobs; /* by job slot: 1 + index in sched, 0: not known to it */
    struct occl_sched *sched;
    struct occl_eng_task *last_task;
    uint32_t last_generation;
    uint64_t left_ticks;                 /* when the last visit ended */
    uint32_t queued[OCCL_SCHED_CLASSES]; /* tasks in sched, by class */
    uint64_t at_once_bytes;              /* executed in this round over the sessions */
    uint32_t board_seen;
    uint32_t grants_seen;
    uint64_t gated_since_ns;
    bool stopping;
    bool asleep; /* driven: between two turns, until the parker's word is no longer sleep_token */
    uint32_t sleep_token;
    uint64_t slept_ns;
    struct occl_eng_run scratch; /* an op that is executed at once */
    struct occl_eng_lane_counters counters;
};

struct occl_engine {
    struct occl_engine_config config;
    const struct occl_clock *clock;
    struct occl_log *log;
    struct occl_engine_events events;
    void *owner;
    struct occl_ticks_scale scale;
    const struct occl_movers *movers;
    uint64_t cache_bytes; /* the last-level cache, as one core reaches it */
    uint32_t cores;
    uint32_t lane_count;
    struct occl_eng_lane *lanes;
    /* atomic, several writers */
    uint64_t ops_live __attribute__((aligned(OCCL_CACHE_LINE_BYTES)));
    uint32_t sessions_live;
    uint32_t board_version; /* changes after a place of the board was filled */
    uint32_t grants_version;
    uint64_t board[OCCL_ENG_BOARD]; /* generation << 32 | lane << 24 | run index + 1; 0: free */
    /* control loop */
    struct occl_eng_tenant *tenants;
    struct occl_eng_job *jobs;
    struct occl_eng_session *session_table;
    struct occl_eng_comm *comm_table;
    struct occl_eng_link live_jobs;
    uint32_t jobs_live;
    uint32_t comm_serial;
    uint64_t doorbells;
    /* meter */
    bool metering;
    double quantum_bytes;
    double virtual_bytes;
};

/* Between occl_copy_out, which writes words, and the use of the object by its members: the compiler
 * may otherwise take the two for unrelated. */
#define OCCL_ENG_SETTLE(object_) __asm__ volatile("" : "+m"(object_))

/* ---- control.c ---- */
/* Runs step on the lane and waits. Control loop only. */
int occl_eng_call(struct occl_eng_lane *lane, struct occl_eng_call *call);
/* One step of a pending call, if any; on the lane. True when it ended. */
bool occl_eng_call_serve(struct occl_eng_lane *lane);
/* Lanes: something for `lane` changed. */
void occl_eng_nudge(struct occl_eng_lane *lane);
struct occl_eng_job *occl_eng_job_find(struct occl_engine *engine, uint64_t job_id);

/* ---- lane.c ---- */
void *occl_eng_lane_main(void *lane);
/* One round of a driven lane. False: it sleeps. */
bool occl_eng_lane_turn(struct occl_eng_lane *lane);

/* ---- intake.c: submission rings ---- */
/* One bounded visit to each session of the lane. True when an entry was taken. */
bool occl_eng_intake(struct occl_eng_lane *lane);
/* True when a ring of the lane holds an entry. */
bool occl_eng_intake_pending(struct occl_eng_lane *lane);
void occl_eng_session_fault(struct occl_eng_lane *lane, struct occl_eng_session *session,
                            int status, const char *reason);

/* ---- validate.c: pure checks of copied entries ---- */
/* Bytes of an op per rank for a valid signature; OCCL_E_INVALID otherwise. */
int occl_eng_check_signature(const struct occl_signature *sig, uint32_t ranks, uint64_t *out_bytes);
int occl_eng_check_sqe(const struct occl_sqe *sqe, uint32_t ranks, uint32_t rank,
                       uint64_t *out_bytes);
/* Address of a buffer, or a status. line: LINE refs point into it; NULL: they are refused. */
int occl_eng_resolve(const struct occl_eng_comm *comm, uint32_t rank,
                     const struct occl_buffer_ref *ref, uint64_t bytes, void **out_address,
                     uint32_t *out_region);
/* The buffers that the member's kind of op has. */
int occl_eng_resolve_sides(const struct occl_eng_comm *comm, uint32_t rank,
                           const struct occl_signature *sig, uint32_t index, uint32_t members,
                           const struct occl_buffer_ref *src, const struct occl_buffer_ref *dst,
                           const struct occl_buffer_ref *vector, struct occl_eng_sides *out);
/* ---- vectors.c: ops with blocks of different sizes ---- */
/* Copies a tenant's vector. OCCL_E_FAULT: its memory is gone. */
int occl_eng_vector_copy(const void *shared, uint32_t members, uint64_t *out);
/* The run's private copy of a vector describes no more than what was resolved. */
bool occl_eng_vector_fits(const struct occl_eng_run *run, const struct occl_signature *sig,
                          uint32_t index, uint32_t members, const struct occl_eng_sides *sides);
/* Makes the private copy of member `index` in the run, which has to fit. */
int occl_eng_run_vector(struct occl_eng_run *run, const struct occl_signature *sig, uint32_t index,
                        uint32_t members, const struct occl_eng_sides *sides);
/* Those of all members of an op that has arrived: OCCL_OK, OCCL_E_MISMATCH when they disagree, or
 * why one cannot be used. *out_about: the rank. */
int occl_eng_op_vectors(struct occl_eng_run *run, struct occl_eng_op *op, uint32_t *out_about);
uint32_t occl_eng_class_of(const struct occl_eng_comm *comm, uint32_t priority);

/* ---- table.c: ops by (communicator, key) ---- */
struct occl_eng_op *occl_eng_op_find(struct occl_eng_lane *lane, const struct occl_eng_comm *comm,
                                     struct occl_op_key key);
/* A new op in WAITING. OCCL_E_QUOTA (tenant), OCCL_WOULD_BLOCK (table). */
int occl_eng_op_create(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                       struct occl_op_key key, uint32_t members, struct occl_eng_op **out_op);
void occl_eng_op_free(struct occl_eng_lane *lane, struct occl_eng_op *op);
void occl_eng_drop_overflow(struct occl_eng_comm *comm, struct occl_op_key key, uint32_t count);
/* The one way to change a state; asserts that the move is legal. */
void occl_eng_op_set_state(struct occl_eng_op *op, enum occl_eng_op_state state);

/* ---- match.c ---- */
void occl_eng_submit(struct occl_eng_lane *lane, struct occl_eng_session *session,
                     const struct occl_sqe *sqe);
void occl_eng_cancel(struct occl_eng_lane *lane, struct occl_eng_session *session,
                     const struct occl_sqe *sqe);
/* Starts ready ops and wanted records while there are runs. True when one was started. */
bool occl_eng_start_ready(struct occl_eng_lane *lane);
/* The op waits for a run in its job's queue. */
void occl_eng_make_ready(struct occl_eng_lane *lane, struct occl_eng_op *op);

/* ---- finish.c ---- */
/* Ends an op for all members that have come. On a running one it only sets stop. */
void occl_eng_op_fail(struct occl_eng_lane *lane, struct occl_eng_op *op, int status,
                      uint32_t about_rank);
/* All strands are done (or there were none). */
void occl_eng_op_succeed(struct occl_eng_lane *lane, struct occl_eng_op *op, uint32_t preemptions);
/* All have come and described the op differently. */
void occl_eng_op_mismatch(struct occl_eng_lane *lane, struct occl_eng_op *op, uint32_t vector_of);
/* Ends an op that is not running, with the status stored in it. */
void occl_eng_op_end(struct occl_eng_lane *lane, struct occl_eng_op *op);
/* Ordered mode: is the op the oldest one of each of its members? */
bool occl_eng_op_at_heads(struct occl_eng_op *op);
/* Completion of a submission that no op in the table counts. comm is NULL when none is named, or
 * when the op that it came too late for has counted it. */
void occl_eng_complete_refused(struct occl_eng_lane *lane, struct occl_eng_session *session,
                               struct occl_eng_comm *comm, const struct occl_sqe *sqe, int status,
                               uint32_t about_rank);
/* Publishes completions and wakes the clients that sleep on them. */
void occl_eng_flush(struct occl_eng_lane *lane);
uint32_t occl_eng_rank_of(const struct occl_eng_op *op, uint32_t index);

/* ---- run.c ---- */
/* Executes a small op whole on this lane; OCCL_OK, or the status with which it fails. */
int occl_eng_run_at_once(struct occl_eng_lane *lane, struct occl_eng_op *op,
                         uint32_t *out_about_rank);
/* Gives the op a run and queues it. False: no run is free. */
bool occl_eng_run_start(struct occl_eng_lane *lane, struct occl_eng_op *op);
/* A run whose fields the caller fills in, then queues. NULL: none is free for this job and class.
 */
struct occl_eng_run *occl_eng_run_take(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                                       uint32_t run_class);
void occl_eng_run_give_back(struct occl_eng_lane *lane, struct occl_eng_run *run);
/* Before the first fill; run->plan is set. */
void occl_eng_run_begin(struct occl_eng_lane *lane, struct occl_eng_run *run);
void occl_eng_run_fill(struct occl_eng_run *run, uint32_t index, uint32_t rank,
                       const struct occl_eng_sides *sides, uint64_t factor);
void occl_eng_run_queue(struct occl_eng_lane *lane, struct occl_eng_run *run);
/* First reason wins. */
void occl_eng_run_stop(struct occl_eng_run *run, int reason);
/* One slice of a task. False: it has nothing left to claim, and leaves the lane's queue. */
bool occl_eng_task_slice(struct occl_eng_lane *lane, struct occl_eng_task *task,
                         uint64_t *out_bytes);
/* While a lane holds a pin, a run of the generation it expects, not stopped, does not change. */
bool occl_eng_run_pin(struct occl_eng_run *run, uint32_t generation);
/* ended: the home lane should look whether the run can be reaped. */
void occl_eng_run_unpin(struct occl_eng_lane *lane, struct occl_eng_run *run, bool ended);
/* Ends the lane's runs that have ended or stopped. */
void occl_eng_runs_reap(struct occl_eng_lane *lane);
bool occl_eng_run_reap(struct occl_eng_lane *lane, struct occl_eng_run *run);
/* Executes strand `index` under the guard; OCCL_OK or OCCL_E_FAULT. */
int occl_eng_slice(struct occl_eng_lane *lane, struct occl_eng_run *run, uint32_t index);

/* The rank whose buffer faulted, or OCCL_RANK_NONE. */
uint32_t occl_eng_run_fault_rank(const struct occl_eng_run *run);

/* ---- tasks.c: a lane's queue ---- */
/* Index of the job in the lane's scheduler, which registers it when needed. */
uint32_t occl_eng_sched_job(struct occl_eng_lane *lane, struct occl_eng_job *job);
void occl_eng_task_init(struct occl_eng_task *task, struct occl_eng_run *run, uint32_t generation);
void occl_eng_task_queue(struct occl_eng_lane *lane, struct occl_eng_task *task);
void occl_eng_task_drop(struct occl_eng_lane *lane, struct occl_eng_task *task);
/* Takes offered runs of other lanes. True when there was one. */
bool occl_eng_help(struct occl_eng_lane *lane);
void occl_eng_offer(struct occl_eng_lane *lane, struct occl_eng_run *run);
void occl_eng_withdraw(struct occl_eng_lane *lane, struct occl_eng_run *run);
bool occl_eng_job_gated(const struct occl_eng_job *job);
/* Tasks of jobs that wait for a grant become runnable again. True when some did. */
bool occl_eng_regate(struct occl_eng_lane *lane, uint64_t now_ns);
/* Lets go of tasks of other lanes' runs of this job (NULL: of all jobs). */
void occl_eng_purge(struct occl_eng_lane *lane, const struct occl_eng_job *job);
/* One slice of the task that the scheduler chooses. False: nothing is runnable. */
bool occl_eng_visit(struct occl_eng_lane *lane);

/* ---- record_exec.c: EXECUTE of LOCAL records ---- */
void occl_eng_execute(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                      const struct occl_sqe *sqe);
/* Starts the record in `slot` if it still serves the op with this print. False: no run is free, try
 * again. */
bool occl_eng_record_start(struct occl_eng_lane *lane, struct occl_eng_comm *comm, uint32_t slot,
                           uint64_t print, uint32_t op_class, uint64_t submit_ticks);
/* Starts the records that `comm` has marked as wanted. False: no run is free. */
bool occl_eng_record_start_wanted(struct occl_eng_lane *lane, struct occl_eng_comm *comm);
/* One slice of a record run under a pin. True: there may be more to do. */
bool occl_eng_record_slice(struct occl_eng_lane *lane, struct occl_eng_run *run,
                           uint64_t *out_bytes);
void occl_eng_record_abort(struct occl_eng_lane *lane, struct occl_eng_run *run, int status,
                           uint32_t about_rank);

/* ---- inspect.c ---- */
void occl_eng_sample(uint64_t *buckets, uint64_t ns);
/* An op whose last member wrote submit_ticks (a client's number) starts at now_ticks. */
void occl_eng_started(struct occl_eng_lane *lane, uint64_t submit_ticks, uint64_t now_ticks);
/* Read inline where ticks are the processor's; else from the clock, which may be a virtual one. */
static inline uint64_t occl_eng_ticks(const struct occl_eng_lane *lane) {
    const struct occl_clock *clock = lane->engine->clock;
    if (clock->ticks_source == OCCL_TICKS_TSC)
        return occl_ticks(OCCL_TICKS_TSC);
    return occl_clock_ticks(clock);
}
static inline uint64_t occl_eng_now_ns(const struct occl_eng_lane *lane) {
    return occl_ticks_to_ns(&lane->engine->scale, occl_eng_ticks(lane));
}
static inline void occl_eng_bump(uint64_t *counter, uint64_t by) {
    occl_note64(counter, *counter + by); /* single writer */
}

/* ---- meter.c ---- */
/* Forgets what the meter knew of a slot that is being reused. */
void occl_eng_meter_reset(struct occl_engine *engine, struct occl_eng_job *job);

#endif
