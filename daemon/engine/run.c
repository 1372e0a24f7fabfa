/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: an op in execution. Any lane claims strands of a run; the home lane starts and ends it. */
#include <string.h>

#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

#define CLAIM(generation, next) ((uint64_t)(generation) << 32 | (next))

struct slice {
    struct occl_eng_run *run;
    const struct occl_movers *movers;
    uint32_t index;
    int status;
};

static void move(void *arg) {
    struct slice *s = arg;
    s->status = occl_local_strand_run(&s->run->plan, s->index, s->movers, &s->run->buffers);
}

int occl_eng_slice(struct occl_eng_lane *lane, struct occl_eng_run *run, uint32_t index) {
    struct slice s = {run, lane->engine->movers, index, OCCL_OK};
    uint64_t address;
    int status = occl_guard_run(run->ranges, run->range_count, move, &s, &address);
    if (status != OCCL_OK) {
        occl_eng_bump(&lane->counters.faults, 1);
        occl_note64(&run->fault_address, address);
        return status;
    }
    OCCL_ASSERT(s.status == OCCL_OK);
    return OCCL_OK;
}

uint32_t occl_eng_run_fault_rank(const struct occl_eng_run *run) {
    uint64_t address = occl_peek64(&run->fault_address);
    for (uint32_t i = 0; i < run->range_count; i++) {
        uint64_t base = (uint64_t)(uintptr_t)run->ranges[i].base;
        if (address >= base && address - base < run->ranges[i].bytes)
            return run->range_rank[i];
    }
    return OCCL_RANK_NONE;
}

void occl_eng_run_fill(struct occl_eng_run *run, uint32_t index, uint32_t rank,
                       const struct occl_eng_sides *sides, uint64_t factor) {
    const struct occl_guard_range ranges[2] = {{sides->src, sides->src_bytes},
                                               {sides->dst, sides->dst_bytes}};
    run->inputs[index] = sides->src;
    run->outputs[index] = sides->dst;
    run->factors[index] = factor;
    run->src_region[index] = sides->src_region;
    run->dst_region[index] = sides->dst_region;
    for (int i = 0; i < 2; i++) {
        if (!ranges[i].base)
            continue;
        run->ranges[run->range_count] = ranges[i];
        run->range_rank[run->range_count++] = (uint8_t)rank;
    }
    if (sides->src && sides->src == sides->dst)
        run->buffers.move_flags &=
            ~OCCL_MOVE_NONTEMPORAL; /* in place the lines are cached anyway */
}

/* Before the first occl_eng_run_fill. */
void occl_eng_run_begin(struct occl_eng_lane *lane, struct occl_eng_run *run) {
    run->range_count = 0;
    /* A lane that still has a task of the run's former life may count one into this one. */
    occl_note32(&run->preemptions, 0);
    run->claims = 0;
    run->started = false;
    run->board_place = 0;
    run->buffers = (struct occl_local_buffers){
        .inputs = run->inputs,
        .outputs = run->outputs,
        .factors = run->factors,
        .move_flags = occl_local_move_flags(&run->plan, lane->engine->cache_bytes, false)};
}

/* The plan of an op with vectors is made again, from the run's own copies of them. */
static int plan_vectors(struct occl_eng_run *run, struct occl_eng_op *op, uint32_t *out_about) {
    int status = occl_eng_op_vectors(run, op, out_about);
    if (status == OCCL_OK)
        status = occl_local_plan_make(&occl_eng_member_at(op, 0)->signature, op->members,
                                      op->plan.exchanges, &run->vectors, &run->plan);
    /* They were changed after the op had arrived. */
    return status == OCCL_OK || status == OCCL_E_FAULT ? status : OCCL_E_INVALID;
}

static int fill_from_op(struct occl_eng_lane *lane, struct occl_eng_run *run,
                        struct occl_eng_op *op, uint32_t *out_about) {
    run->plan = op->plan;
    run->key = op->key;
    run->first_ticks = op->first_ticks;
    run->last_ticks = op->last_ticks;
    run->signature = occl_eng_member_at(op, 0)->signature;
    run->run_class = op->op_class;
    int status = OCCL_OK;
    if (occl_kind_traits(run->signature.kind)->flags & OCCL_KIND_VECTOR)
        status = plan_vectors(run, op, out_about);
    if (status != OCCL_OK)
        return status;
    occl_eng_run_begin(lane, run);
    for (uint32_t i = 0; i < op->members; i++) {
        const struct occl_eng_member *m = occl_eng_member_at(op, i);
        occl_eng_run_fill(run, i, occl_eng_rank_of(op, i), &m->sides, m->factor);
    }
    return OCCL_OK;
}

int occl_eng_run_at_once(struct occl_eng_lane *lane, struct occl_eng_op *op,
                         uint32_t *out_about_rank) {
    struct occl_eng_run *run = &lane->scratch;
    uint64_t before = occl_eng_ticks(lane);
    int filled = fill_from_op(lane, run, op, out_about_rank);
    if (filled != OCCL_OK)
        return filled;
    occl_eng_started(lane, run->last_ticks, before);
    for (uint32_t i = 0; i < run->plan.strand_count; i++) {
        int status = occl_eng_slice(lane, run, i);
        if (status != OCCL_OK) {
            *out_about_rank = occl_eng_run_fault_rank(run);
            return status;
        }
    }
    struct occl_eng_job *job = op->comm->job;
    uint64_t ticks = occl_eng_ticks(lane) - before;
    occl_count64(&job->lane_bytes, run->plan.traffic_bytes);
    occl_count64(&job->lane_ns, occl_ticks_span_ns(&lane->engine->scale, ticks));
    occl_sched_job_charge(lane->sched, occl_eng_sched_job(lane, job), op->op_class,
                          run->plan.traffic_bytes);
    return OCCL_OK;
}

struct occl_eng_run *occl_eng_run_take(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                                       uint32_t run_class) {
    uint32_t below_top = OCCL_SCHED_CLASSES - 1 - run_class;
    if (comm->job->runs >= OCCL_ENG_JOB_RUNS + run_class * OCCL_ENG_CLASS_RUNS ||
        lane->runs.count - lane->runs.live <= below_top * OCCL_ENG_CLASS_RUNS)
        return NULL;
    struct occl_eng_run *run = occl_eng_pool_take(&lane->runs);
    if (!run)
        return NULL;
    run->generation++;
    if (!run->home) { /* once: lanes with an old task still read it */
        run->home = lane;
        run->vector_room =
            lane->vector_rooms + occl_eng_pool_index(&lane->runs, run) * OCCL_ENG_VECTOR_ROOM;
    }
    run->job = comm->job;
    run->comm = comm;
    run->op = NULL;
    run->record = NULL;
    occl_note32(&run->stop, OCCL_ENG_RUN_GOES);
    occl_note32(&run->done, 0);
    occl_eng_task_init(&run->home_task, run, run->generation);
    comm->runs++;
    comm->job->runs++;
    occl_eng_list_append(&lane->running, &run->link);
    return run;
}

void occl_eng_run_give_back(struct occl_eng_lane *lane, struct occl_eng_run *run) {
    occl_eng_withdraw(lane, run);
    occl_eng_task_drop(lane, &run->home_task);
    /* No task names the new generation, so whoever still holds one finds the run ended. */
    run->generation++;
    occl_publish64(&run->claim, CLAIM(run->generation, 0xffffffffu));
    run->record = NULL;
    run->comm->runs--;
    run->job->runs--;
    occl_eng_list_take(&run->link);
    occl_eng_pool_give(&lane->runs, run);
}

void occl_eng_run_queue(struct occl_eng_lane *lane, struct occl_eng_run *run) {
    occl_publish64(&run->claim, CLAIM(run->generation, 0));
    run->home_task.op_class = run->run_class;
    run->home_task.cost_bytes = run->plan.traffic_bytes;
    occl_eng_task_queue(lane, &run->home_task);
    if (run->plan.strand_count > 1 && run->plan.traffic_bytes >= OCCL_ENG_SHARE_BYTES)
        occl_eng_offer(lane, run);
}

bool occl_eng_run_start(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    struct occl_eng_run *run = occl_eng_run_take(lane, op->comm, op->op_class);
    if (!run)
        return false;
    uint32_t about = OCCL_RANK_NONE;
    int status = fill_from_op(lane, run, op, &about);
    if (status != OCCL_OK) {
        occl_eng_run_give_back(lane, run);
        occl_eng_op_fail(lane, op, status, about);
        return true;
    }
    run->op = op;
    op->run = run;
    occl_eng_op_set_state(op, OCCL_ENG_OP_RUNNING);
    occl_eng_run_queue(lane, run);
    return true;
}

void occl_eng_run_stop(struct occl_eng_run *run, int reason) {
    uint32_t expected = OCCL_ENG_RUN_GOES;
    (void)occl_claim32(&run->stop, &expected, (uint32_t)reason); /* false: stopped before */
}

bool occl_eng_run_reap(struct occl_eng_lane *lane, struct occl_eng_run *run) {
    struct occl_eng_op *op = run->op;
    bool complete = op && occl_look32(&run->done) == run->plan.strand_count;
    if (complete)
        occl_eng_run_stop(run, OCCL_ENG_RUN_OVER);
    int reason = (int32_t)occl_look32(&run->stop);
    if (reason == OCCL_ENG_RUN_GOES || occl_look32(&run->pins) != 0)
        return false;
    uint32_t preemptions = occl_peek32(&run->preemptions);
    uint32_t about = reason == OCCL_E_FAULT ? occl_eng_run_fault_rank(run) : OCCL_RANK_NONE;
    if (!op) {
        if (reason < 0)
            occl_eng_record_abort(lane, run, reason, about);
        run->comm->slot_run[run->slot] = NULL;
        occl_eng_run_give_back(lane, run);
        return true;
    }
    op->run = NULL;
    occl_eng_run_give_back(lane, run);
    if (complete) {
        occl_eng_op_succeed(lane, op, preemptions);
        return true;
    }
    if (op->status == OCCL_OK) {
        op->status = reason;
        op->about_rank = about;
    }
    occl_eng_op_end(lane, op);
    return true;
}

void occl_eng_runs_reap(struct occl_eng_lane *lane) {
    struct occl_eng_link *next;
    for (struct occl_eng_link *l = lane->running.next; l != &lane->running; l = next) {
        next = l->next;
        (void)occl_eng_run_reap(lane, OCCL_ENG_ENTRY(l, struct occl_eng_run, link));
    }
}

/* Claims a strand of a ring run. The generation in the word makes a claim of a run that has ended
 * meanwhile fail. */
static bool claim_strand(struct occl_eng_run *run, uint32_t generation, uint32_t *out_index) {
    uint64_t word = occl_look64(&run->claim);
    for (;;) {
        if (word >> 32 != generation || (uint32_t)word >= run->plan.strand_count)
            return false;
        if (occl_claim64(&run->claim, &word, word + 1)) {
            *out_index = (uint32_t)word;
            return true;
        }
    }
}

/* One slice of a ring run. False: no strand is left to claim. */
static bool ring_slice(struct occl_eng_lane *lane, struct occl_eng_run *run, uint32_t generation,
                       uint64_t *out_bytes) {
    uint32_t index;
    if (!claim_strand(run, generation, &index))
        return false;
    int status = occl_eng_slice(lane, run, index);
    if (status != OCCL_OK) {
        occl_eng_run_stop(run, status);
        return false;
    }
    *out_bytes = occl_local_strand_traffic(&run->plan, index);
    /* The last strand may end the run; its fields stay while this lane's pin is there. */
    (void)occl_add32(&run->done, 1);
    return (uint32_t)occl_look64(&run->claim) < run->plan.strand_count;
}

bool occl_eng_run_pin(struct occl_eng_run *run, uint32_t generation) {
    (void)occl_add32(&run->pins, 1);
    return occl_look64(&run->claim) >> 32 == generation &&
           occl_look32(&run->stop) == OCCL_ENG_RUN_GOES;
}

void occl_eng_run_unpin(struct occl_eng_lane *lane, struct occl_eng_run *run, bool ended) {
    struct occl_eng_lane *home = run->home; /* the same in every life of a run */
    (void)occl_add32(&run->pins, (uint32_t)-1);
    if (home == lane || (!ended && occl_look32(&run->stop) == OCCL_ENG_RUN_GOES))
        return; /* the home lane looks at its own visits itself */
    occl_note32(&home->look, 1);
    occl_eng_nudge(home);
}

bool occl_eng_task_slice(struct occl_eng_lane *lane, struct occl_eng_task *task,
                         uint64_t *out_bytes) {
    struct occl_eng_run *run = task->run;
    bool more = false, ended = false;
    *out_bytes = 0;
    if (occl_eng_run_pin(run, task->generation)) {
        if (run->home == lane && !run->started) {
            run->started = true;
            occl_eng_started(lane, run->last_ticks, occl_eng_ticks(lane));
        }
        if (run->record) {
            more = occl_eng_record_slice(lane, run, out_bytes);
        } else {
            more = ring_slice(lane, run, task->generation, out_bytes);
            ended = occl_look32(&run->done) == run->plan.strand_count;
        }
    }
    occl_eng_run_unpin(lane, run, ended);
    return more;
}
