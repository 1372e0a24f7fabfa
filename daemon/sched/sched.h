/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler of one run slot (a lane, a GPU block, a simulated lane): which of its ops is
 * visited next, with how much patience and for how many slices. Pure: no clock, no thread, no I/O;
 * time is passed in as nanoseconds, and an earlier one than before counts as the latest. The README
 * states and proves its bounds.
 *
 *     visit = occl_sched_next(now)         nothing to do: false
 *     run at most visit.slices_max slices; while blocked, keep looking for visit.patience_ns, after
 *     the first successful receive of the visit for visit.sticky_ns
 *     occl_sched_report(id, what happened, now)
 *
 * Several ops may be under visit at once (a caller with several threads holds its own lock around
 * the calls); an op under visit is not handed out again before its report.
 *
 * Order. Classes 3 (most urgent) to 0 are strict, except that an op of a lower class which has not
 * been visited for the ageing period is visited all the same, and so is any op that has not been
 * visited for ageing_attempts decisions (one decision in OCCL_SCHED_AGED_EVERY at most). Inside a
 * class, bytes are shared by deficit round robin between tenants, then between a tenant's jobs; a
 * job's ops take turns. Ops whose last visit was in vain ("blocked") are looked at between visits
 * of runnable ones, OCCL_SCHED_LOOKS at a time, and with patience when nothing is runnable.
 *
 * Memory is one block without pointers, allocated at creation: a copy of occl_sched_bytes() bytes
 * is a snapshot. Nothing allocates afterwards. Calls take constant time (next: amortised, each turn
 * of the round robin is paid by bytes charged), but for job_add, which searches the job table, and
 * set_class, which searches the queue of the new class. */
#ifndef DAEMON_SCHED_SCHED_H
#define DAEMON_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm_ipc/limits.h"
#include "shm_ipc/status.h"

#define OCCL_SCHED_CLASSES 4u
/* At most every 4th decision is an aged one, so ageing takes at most a quarter of the decisions
 * from the classes above. */
#define OCCL_SCHED_AGED_EVERY 4u
/* Blocked ops looked at between two visits of runnable ops. */
#define OCCL_SCHED_LOOKS 4u
#define OCCL_SCHED_WEIGHT_MAX ((uint32_t)OCCL_WEIGHT_MAX)
#define OCCL_SCHED_NONE 0xffffffffu

struct occl_sched_config {
    uint32_t ops_max;   /* ops in the queue at once */
    uint32_t jobs_max;  /* also the largest number of tenants */
    uint64_t ageing_ns; /* 0: 10 ms */
    uint64_t
        ageing_attempts; /* decisions after which an op is aged, whatever the clock says; 0: 4096 */
    uint64_t patience_min_ns;  /* 0: 200 ns */
    uint64_t patience_max_ns;  /* 0: 50 us; the cap of every look, sticky ones included */
    uint64_t quantum_bytes;    /* deficit per round and unit of weight; 0: 256 KiB */
    uint32_t visit_slices_max; /* slices of one visit when nobody else is runnable; 0: 8 */
};

struct occl_sched;

/* Bytes of the one block; config is not checked. */
size_t occl_sched_bytes(const struct occl_sched_config *config);
/* Allocates. OCCL_E_INVALID (a maximum is 0 or above 2^24), OCCL_E_NO_MEMORY. */
int occl_sched_create(const struct occl_sched_config *config, struct occl_sched **out_sched);
/* NULL is allowed. */
void occl_sched_destroy(struct occl_sched *sched);

/* ---- jobs ---- */
/* Registers a job. Weights are 1..OCCL_SCHED_WEIGHT_MAX; the last tenant_weight given for a tenant
 * counts. *out_job is the job's index. OCCL_E_INVALID, OCCL_E_BUSY (job_id known), OCCL_E_QUOTA. */
int occl_sched_job_add(struct occl_sched *sched, uint64_t job_id, uint64_t tenant_id,
                       uint32_t tenant_weight, uint32_t job_weight, uint32_t *out_job);
/* Changes weights while running; counts from the next round on. OCCL_E_INVALID. */
int occl_sched_job_weights(struct occl_sched *sched, uint32_t job, uint32_t tenant_weight,
                           uint32_t job_weight);
/* Bytes that others executed for this job (client threads) in `job_class`: they count against its
 * and its tenant's share. */
void occl_sched_job_charge(struct occl_sched *sched, uint32_t job, uint32_t job_class,
                           uint64_t bytes);
/* The job has no ops left in the queue (OCCL_E_BUSY otherwise). */
int occl_sched_job_remove(struct occl_sched *sched, uint32_t job);

/* ---- ops ---- */
struct occl_sched_op {
    uint32_t job;        /* index from job_add */
    uint32_t op_class;   /* 0..3 */
    uint64_t user;       /* comes back in the visit */
    uint64_t cost_bytes; /* traffic of the op, a hint, 0: unknown. An op below a quarter of a slice
                            starts in front of its job's queue */
};
/* Adds a runnable op. It counts as visited now, so that arrivals cannot starve anybody. *out_id is
 * its handle (with a generation: a stale one is refused). OCCL_E_INVALID, OCCL_E_QUOTA (ops_max).
 */
int occl_sched_add(struct occl_sched *sched, const struct occl_sched_op *op, uint64_t now_ns,
                   uint64_t *out_id);
/* Removes an op, also one under visit (its report is then ignored). OCCL_E_HANDLE. */
int occl_sched_remove(struct occl_sched *sched, uint64_t id);
/* Moves an op to another class. OCCL_E_HANDLE, OCCL_E_INVALID. */
int occl_sched_set_class(struct occl_sched *sched, uint64_t id, uint32_t op_class);
/* Something arrived for a blocked op: it is runnable again. A hint, never needed for progress.
 * OCCL_E_HANDLE. */
int occl_sched_wake(struct occl_sched *sched, uint64_t id);

/* ---- visits ---- */
struct occl_sched_visit {
    uint64_t id;
    uint64_t user;
    uint64_t patience_ns; /* how long to keep looking while a guard is false */
    uint64_t sticky_ns;   /* the same after the first successful receive of this visit */
    uint32_t slices_max;
    bool aged; /* visited because of its age; slices_max is 1 */
};
/* False: the queue holds no op that is not under visit. */
bool occl_sched_next(struct occl_sched *sched, uint64_t now_ns, struct occl_sched_visit *out_visit);

enum occl_sched_result {
    OCCL_SCHED_DONE = 0,    /* the op leaves the queue; its id is stale from now on */
    OCCL_SCHED_BLOCKED = 1, /* a guard is false */
    OCCL_SCHED_BUDGET = 2   /* slices_max done, more to do */
};
struct occl_sched_report {
    uint32_t result;     /* enum occl_sched_result */
    uint32_t slices;     /* executed in this visit: 0 means that it was in vain */
    uint32_t received;   /* messages received in this visit */
    uint64_t bytes;      /* charged to job and tenant */
    uint64_t elapsed_ns; /* the whole visit */
    uint64_t waited_ns;  /* of these, looking at false guards that came true (0 if none did) */
    /* BLOCKED: where and on what, for the give-up record */
    uint32_t strand;
    uint32_t step;
    uint32_t wait_kind; /* enum occl_exec_wait */
    uint32_t peer;      /* rank or node whose data or room is missing, or OCCL_SCHED_NONE */
};
/* OCCL_E_HANDLE when the op was removed meanwhile: nothing is charged. */
int occl_sched_report(struct occl_sched *sched, uint64_t id, const struct occl_sched_report *report,
                      uint64_t now_ns);

/* ---- inspection ---- */
/* The last give-up of an op, for "who waits for whom". since_ns and attempts start again when the
 * op makes progress or waits for something else. */
struct occl_sched_give_up {
    uint64_t since_ns;
    uint32_t attempts; /* in vain since then; 0: the op does not wait */
    uint32_t strand;
    uint32_t step;
    uint32_t wait_kind;
    uint32_t peer;
};
int occl_sched_give_up(const struct occl_sched *sched, uint64_t id,
                       struct occl_sched_give_up *out_give_up);

struct occl_sched_stats {
    uint64_t decisions;
    uint64_t switches;    /* decisions for another op than the one before */
    uint64_t preemptions; /* visits that ended with BUDGET */
    uint64_t vain;        /* visits without a slice */
    uint64_t aged;
    uint64_t gap_attempts_max; /* most decisions between two visits of one op */
    uint64_t gap_ns_max;       /* most time between two visits of one op */
    uint64_t service_ns;       /* learned: wait until a guard comes true */
    uint32_t ops;
    uint32_t runnable;
};
void occl_sched_stats(const struct occl_sched *sched, struct occl_sched_stats *out_stats);
/* The proved bound on decisions between two visits of one op while the queue holds at most `ops`.
 */
uint64_t occl_sched_gap_bound(const struct occl_sched *sched, uint32_t ops);
/* Bytes charged to a job since it was added. */
uint64_t occl_sched_job_bytes(const struct occl_sched *sched, uint32_t job);

#endif
