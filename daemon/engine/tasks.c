/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's queue: the tasks of its own runs and of runs that other lanes offer on the board. */
#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

#define BOARD_LANE_SHIFT 24
#define BOARD_RUN_MASK 0xffffffu

_Static_assert(OCCL_ENG_RUNS < BOARD_RUN_MASK, "a place of the board holds every run's number");
_Static_assert(OCCL_ENG_LANES_MAX <= 256, "and every lane's");

uint32_t occl_eng_sched_job(struct occl_eng_lane *lane, struct occl_eng_job *job) {
    uint32_t *known = &lane->sched_jobs[job->slot];
    uint32_t index;
    if (*known)
        return *known - 1;
    /* The scheduler has room for every slot, and its weights are checked at job_add. */
    OCCL_ASSERT(occl_sched_job_add(lane->sched, job->slot, job->tenant->id,
                                   occl_peek32(&job->tenant_weight), occl_peek32(&job->job_weight),
                                   &index) == OCCL_OK);
    *known = index + 1;
    return index;
}

void occl_eng_task_init(struct occl_eng_task *task, struct occl_eng_run *run, uint32_t generation) {
    *task = (struct occl_eng_task){.run = run, .job = run->job, .generation = generation};
    occl_eng_list_init(&task->help_link);
    occl_eng_list_init(&task->gate_link);
}

void occl_eng_task_queue(struct occl_eng_lane *lane, struct occl_eng_task *task) {
    struct occl_sched_op op = {.job = occl_eng_sched_job(lane, task->job),
                               .op_class = task->op_class,
                               .user = (uint64_t)(uintptr_t)task,
                               .cost_bytes = task->cost_bytes};
    /* The scheduler has room for every run of the lane and every help. */
    OCCL_ASSERT(occl_sched_add(lane->sched, &op, occl_eng_now_ns(lane), &task->sched_id) ==
                OCCL_OK);
    task->queued = true;
    lane->queued[task->op_class]++;
}

static void unqueued(struct occl_eng_lane *lane, struct occl_eng_task *task) {
    task->queued = false;
    lane->queued[task->op_class]--;
}

void occl_eng_task_drop(struct occl_eng_lane *lane, struct occl_eng_task *task) {
    if (task->queued) {
        OCCL_ASSERT(occl_sched_remove(lane->sched, task->sched_id) == OCCL_OK);
        unqueued(lane, task);
    }
    occl_eng_list_take(&task->gate_link);
    if (lane->last_task == task)
        lane->last_task = NULL;
    if (occl_eng_list_empty(&task->help_link))
        return;
    occl_eng_list_take(&task->help_link);
    occl_eng_pool_give(&lane->helps, task);
}

void occl_eng_offer(struct occl_eng_lane *lane, struct occl_eng_run *run) {
    struct occl_engine *engine = lane->engine;
    if (engine->lane_count == 1)
        return;
    uint64_t offer = (uint64_t)run->generation << 32 | (uint64_t)lane->index << BOARD_LANE_SHIFT |
                     (occl_eng_pool_index(&lane->runs, run) + 1);
    for (uint32_t i = 0; i < OCCL_ENG_BOARD; i++) {
        uint64_t expected = 0;
        if (occl_peek64(&engine->board[i]) != 0 ||
            !occl_claim64(&engine->board[i], &expected, offer))
            continue;
        run->board_place = i + 1;
        (void)occl_add32(&engine->board_version, 1);
        /* Those that are awake find it anyway; to wake one costs about as much as a slice gives. */
        uint32_t wakes = run->plan.strand_count / OCCL_ENG_STRANDS_PER_WAKE;
        for (uint32_t k = 1; k < engine->lane_count && k <= wakes; k++)
            occl_eng_nudge(&engine->lanes[(lane->index + k) % engine->lane_count]);
        return;
    }
}

void occl_eng_withdraw(struct occl_eng_lane *lane, struct occl_eng_run *run) {
    if (run->board_place)
        occl_publish64(&lane->engine->board[run->board_place - 1], 0);
    run->board_place = 0;
}

static bool helps_with(const struct occl_eng_lane *lane, const struct occl_eng_run *run,
                       uint32_t generation) {
    for (struct occl_eng_link *l = lane->helping.next; l != &lane->helping; l = l->next) {
        const struct occl_eng_task *t = OCCL_ENG_ENTRY(l, struct occl_eng_task, help_link);
        if (t->run == run && t->generation == generation)
            return true;
    }
    return false;
}

static bool take_offer(struct occl_eng_lane *lane, uint64_t *place, uint64_t offer) {
    struct occl_eng_lane *home = &lane->engine->lanes[offer >> BOARD_LANE_SHIFT & 0xff];
    struct occl_eng_run *run =
        occl_eng_pool_at(&home->runs, (uint32_t)(offer & BOARD_RUN_MASK) - 1);
    uint32_t generation = (uint32_t)(offer >> 32);
    if (home == lane || helps_with(lane, run, generation))
        return false;
    /* Under a pin, and while the offer stands, the run is the one that was offered. */
    struct occl_eng_task *task = NULL;
    if (occl_eng_run_pin(run, generation) && occl_look64(place) == offer)
        task = occl_eng_pool_take(&lane->helps);
    if (task) {
        occl_eng_task_init(task, run, generation);
        task->op_class = run->run_class;
        task->cost_bytes = run->plan.traffic_bytes;
        occl_eng_list_append(&lane->helping, &task->help_link);
        occl_eng_task_queue(lane, task);
    }
    occl_eng_run_unpin(lane, run, false);
    return task != NULL;
}

bool occl_eng_help(struct occl_eng_lane *lane) {
    struct occl_engine *engine = lane->engine;
    uint32_t version = occl_observe32(&engine->board_version);
    bool found = false;
    if (version == lane->board_seen)
        return false;
    lane->board_seen = version;
    for (uint32_t i = 0; i < OCCL_ENG_BOARD; i++) {
        uint64_t offer = occl_observe64(&engine->board[i]);
        if (offer != 0 && take_offer(lane, &engine->board[i], offer))
            found = true;
    }
    return found;
}

bool occl_eng_job_gated(const struct occl_eng_job *job) {
    return occl_peek32(&job->metered) &&
           occl_peek64(&job->lane_bytes) >= occl_peek64(&job->lane_limit_bytes);
}

bool occl_eng_regate(struct occl_eng_lane *lane, uint64_t now_ns) {
    uint32_t version = occl_observe32(&lane->engine->grants_version);
    if (occl_eng_list_empty(&lane->gated))
        return false;
    /* The meter belongs to another thread: without it each op still gets its slice by age. */
    bool aged = now_ns - lane->gated_since_ns >= lane->engine->config.ageing_ns;
    if (version == lane->grants_seen && !aged)
        return false;
    lane->grants_seen = version;
    bool woken = false;
    struct occl_eng_link *next;
    for (struct occl_eng_link *l = lane->gated.next; l != &lane->gated; l = next) {
        struct occl_eng_task *task = OCCL_ENG_ENTRY(l, struct occl_eng_task, gate_link);
        next = l->next;
        if (!aged && occl_eng_job_gated(task->job))
            continue;
        occl_eng_list_take(l);
        task->pass = aged;
        occl_eng_task_queue(lane, task);
        woken = true;
    }
    lane->gated_since_ns = now_ns;
    occl_publish32(&lane->keeps_back, !occl_eng_list_empty(&lane->gated));
    return woken;
}

void occl_eng_purge(struct occl_eng_lane *lane, const struct occl_eng_job *job) {
    struct occl_eng_link *next;
    for (struct occl_eng_link *l = lane->helping.next; l != &lane->helping; l = next) {
        struct occl_eng_task *task = OCCL_ENG_ENTRY(l, struct occl_eng_task, help_link);
        next = l->next;
        if (!job || task->job == job)
            occl_eng_task_drop(lane, task);
    }
}

/* The job has used up its grant: the task waits outside the scheduler, so that others go on. */
static void gate(struct occl_eng_lane *lane, struct occl_eng_task *task) {
    OCCL_ASSERT(occl_sched_remove(lane->sched, task->sched_id) == OCCL_OK);
    unqueued(lane, task);
    if (occl_eng_list_empty(&lane->gated))
        lane->gated_since_ns = occl_eng_now_ns(lane);
    occl_eng_list_append(&lane->gated, &task->gate_link);
    occl_publish32(&lane->keeps_back, 1); /* before the look at grants_version in park() */
}

/* The task before this one has been taken off a lane while it had more to do. */
static void note_switch(struct occl_eng_lane *lane, const struct occl_eng_task *task,
                        uint64_t picked_ticks) {
    struct occl_eng_task *last = lane->last_task;
    if (last == task && lane->last_generation == task->generation)
        return;
    occl_eng_bump(&lane->counters.switches, 1);
    uint64_t ticks = occl_eng_ticks(lane) - picked_ticks;
    occl_eng_sample(lane->counters.switch_ns, occl_ticks_span_ns(&lane->engine->scale, ticks));
    if (last && last->queued && last->generation == lane->last_generation) {
        occl_eng_bump(&lane->counters.preemptions, 1);
        (void)occl_add32(&last->run->preemptions, 1);
        occl_count64(&last->job->preemptions, 1);
    }
    lane->last_generation = task->generation;
}

bool occl_eng_visit(struct occl_eng_lane *lane) {
    struct occl_sched_visit visit;
    uint64_t picked = occl_eng_ticks(lane), bytes;
    if (!occl_sched_next(lane->sched, occl_ticks_to_ns(&lane->engine->scale, picked), &visit))
        return false;
    struct occl_eng_task *task = (struct occl_eng_task *)(uintptr_t)visit.user;
    if (occl_eng_job_gated(task->job) && !task->pass) {
        gate(lane, task);
        return true;
    }
    task->pass = false;
    note_switch(lane, task, picked);
    lane->last_task = task;
    struct occl_eng_job *job = task->job;
    bool more = occl_eng_task_slice(lane, task, &bytes);
    uint64_t now = occl_eng_ticks(lane);
    struct occl_sched_report report = {.result = more ? OCCL_SCHED_BUDGET : OCCL_SCHED_DONE,
                                       .slices = bytes != 0,
                                       .bytes = bytes,
                                       .elapsed_ns =
                                           occl_ticks_span_ns(&lane->engine->scale, now - picked)};
    OCCL_ASSERT(occl_sched_report(lane->sched, visit.id, &report,
                                  occl_ticks_to_ns(&lane->engine->scale, now)) == OCCL_OK);
    occl_count64(&job->lane_bytes, bytes);
    occl_count64(&job->lane_ns, report.elapsed_ns);
    if (more)
        return true;
    unqueued(lane, task);
    if (!occl_eng_list_empty(&task->help_link))
        occl_eng_task_drop(lane, task);
    else
        (void)occl_eng_run_reap(lane, task->run); /* false: a helper is still inside */
    return true;
}
