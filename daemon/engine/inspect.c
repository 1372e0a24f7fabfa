/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine tells about itself: ops, usage of jobs, counters. */
#include "daemon/engine/internal.h"

/* Objects looked at in one step of a call, so that no slice waits long for an inspection. */
#define VIEWS_PER_STEP 256u
/* A client's timestamp that gives more than this is nonsense or a parked lane. */
#define START_NS_MAX 1000000000u

/* 8 buckets an octave; exact below 8 ns. */
static uint32_t bucket_of(uint64_t ns) {
    if (ns < 8)
        return (uint32_t)ns;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(ns);
    uint32_t bucket = (octave - 2) * 8 + (uint32_t)(ns >> (octave - 3) & 7);
    return bucket < OCCL_ENG_BUCKETS ? bucket : OCCL_ENG_BUCKETS - 1;
}

static uint64_t bucket_ns(uint32_t bucket) {
    if (bucket < 8)
        return bucket;
    return (8ull + bucket % 8) << (bucket / 8 - 1);
}

void occl_eng_sample(uint64_t *buckets, uint64_t ns) {
    occl_eng_bump(&buckets[bucket_of(ns)], 1);
}

void occl_eng_started(struct occl_eng_lane *lane, uint64_t submit_ticks, uint64_t now_ticks) {
    if (submit_ticks == 0 || submit_ticks > now_ticks)
        return;
    uint64_t ns = occl_ticks_span_ns(&lane->engine->scale, now_ticks - submit_ticks);
    if (ns <= START_NS_MAX)
        occl_eng_sample(lane->counters.start_ns, ns);
}

static uint64_t median_ns(const struct occl_engine *engine, size_t offset) {
    uint64_t sums[OCCL_ENG_BUCKETS] = {0}, total = 0, seen = 0;
    for (uint32_t l = 0; l < engine->lane_count; l++) {
        const uint64_t *buckets =
            (const uint64_t *)(const void *)((const char *)&engine->lanes[l].counters + offset);
        for (uint32_t b = 0; b < OCCL_ENG_BUCKETS; b++) {
            sums[b] += occl_peek64(&buckets[b]);
            total += occl_peek64(&buckets[b]);
        }
    }
    for (uint32_t b = 0; b < OCCL_ENG_BUCKETS && total; b++) {
        seen += sums[b];
        if (2 * seen >= total)
            return bucket_ns(b);
    }
    return 0;
}

void occl_engine_counters(struct occl_engine *engine, struct occl_engine_counters *out_counters) {
    struct occl_engine_counters sum = {.doorbells = engine->doorbells,
                                       .jobs = engine->jobs_live,
                                       .sessions = occl_peek32(&engine->sessions_live),
                                       .comms = HASH_COUNT(engine->comm_table),
                                       .ops = occl_peek64(&engine->ops_live)};
    for (uint32_t i = 0; i < engine->lane_count; i++) {
        const struct occl_eng_lane_counters *c = &engine->lanes[i].counters;
        sum.ops_completed += occl_peek64(&c->ops_completed);
        sum.ops_failed += occl_peek64(&c->ops_failed);
        sum.preemptions += occl_peek64(&c->preemptions);
        sum.switches += occl_peek64(&c->switches);
        sum.ring_full += occl_peek64(&c->ring_full);
        sum.lane_sleeps += occl_peek64(&c->lane_sleeps);
        sum.lane_wakeups += occl_peek64(&c->lane_wakeups);
        sum.faults += occl_peek64(&c->faults);
        sum.ignored += occl_peek64(&c->ignored);
        sum.system_calls += occl_peek64(&c->system_calls);
    }
    sum.submit_to_start_ns_p50 =
        median_ns(engine, offsetof(struct occl_eng_lane_counters, start_ns));
    sum.switch_ns_p50 = median_ns(engine, offsetof(struct occl_eng_lane_counters, switch_ns));
    *out_counters = sum;
}

bool occl_engine_job_usage(struct occl_engine *engine, uint64_t job_id,
                           struct occl_engine_job_usage *out_usage) {
    const struct occl_eng_job *job = occl_eng_job_find(engine, job_id);
    if (!job)
        return false;
    *out_usage = (struct occl_engine_job_usage){.job_id = job_id,
                                                .lane_cpu_ns = occl_peek64(&job->lane_ns),
                                                .bytes_moved = occl_peek64(&job->lane_bytes),
                                                .ops = occl_peek64(&job->ops),
                                                .preemptions = occl_peek64(&job->preemptions),
                                                .errors = occl_peek64(&job->errors),
                                                .queue_depth = occl_peek64(&job->ops_live)};
    return true;
}

/* ---- ops ---- */

struct views_call {
    struct occl_eng_call call;
    struct occl_engine_op_view *views;
    uint32_t max;
    uint32_t count;
    uint32_t next_op; /* pool indices: they stay valid between steps */
    uint32_t next_run;
};

static uint32_t strands_done(const struct occl_eng_run *run) {
    return run->record ? occl_peek32(&run->record->strands_done) : occl_peek32(&run->done);
}

static void view_op(struct occl_eng_op *op, struct occl_engine_op_view *view) {
    uint32_t first = op->arrived_mask ? (uint32_t)__builtin_ctzll(op->arrived_mask) : 0;
    const struct occl_eng_run *run = op->run;
    *view = (struct occl_engine_op_view){.comm_uid = op->comm->uid,
                                         .key = op->key,
                                         .arrived_mask = op->arrived_mask,
                                         .first_ticks = op->first_ticks,
                                         .strands = op->plan.strand_count};
    if (op->key.peers != OCCL_PEERS_ALL) {
        view->arrived_mask = 0;
        for (uint32_t i = 0; i < op->members; i++) {
            if (op->arrived_mask >> i & 1)
                view->arrived_mask |= 1ull << occl_eng_rank_of(op, i);
        }
    }
    if (op->arrived_mask)
        view->signature = occl_eng_member_at(op, first)->signature;
    if (op->state == OCCL_ENG_OP_HELD || op->state == OCCL_ENG_OP_READY)
        view->state = 1;
    if (run) {
        view->state = 2;
        view->strands_done = strands_done(run);
        view->preemptions = occl_peek32(&run->preemptions);
    }
}

static void view_record(const struct occl_eng_run *run, struct occl_engine_op_view *view) {
    uint64_t all = run->comm->ranks == 64 ? UINT64_MAX : (1ull << run->comm->ranks) - 1;
    if (run->key.peers != OCCL_PEERS_ALL)
        all = 1ull << (run->key.peers >> 16) | 1ull << (run->key.peers & 0xffffu);
    *view = (struct occl_engine_op_view){.comm_uid = run->comm->uid,
                                         .key = run->key,
                                         .signature = run->signature,
                                         .arrived_mask = all,
                                         .first_ticks = run->first_ticks,
                                         .strands = run->plan.strand_count,
                                         .strands_done = strands_done(run),
                                         .preemptions = occl_peek32(&run->preemptions),
                                         .state = 2,
                                         .from_record = 1};
}

static bool views_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct views_call *c = call->arg;
    uint32_t looked = 0;
    while (c->next_op < lane->ops.touched && c->count < c->max) {
        if (looked++ == VIEWS_PER_STEP)
            return false;
        struct occl_eng_op *op = occl_eng_pool_at(&lane->ops, c->next_op++);
        if (op->state != OCCL_ENG_OP_FREE && op->state != OCCL_ENG_OP_ENDED)
            view_op(op, &c->views[c->count++]);
    }
    while (c->next_run < lane->runs.touched && c->count < c->max) {
        if (looked++ == VIEWS_PER_STEP)
            return false;
        const struct occl_eng_run *run = occl_eng_pool_at(&lane->runs, c->next_run++);
        if (run->record && run->comm->slot_run[run->slot] == run)
            view_record(run, &c->views[c->count++]);
    }
    return true;
}

uint32_t occl_engine_ops(struct occl_engine *engine, struct occl_engine_op_view *out_ops,
                         uint32_t max) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->lane_count && count < max; i++) {
        struct views_call c = {.views = out_ops + count, .max = max - count};
        c.call = (struct occl_eng_call){.step = views_step, .arg = &c};
        (void)occl_eng_call(&engine->lanes[i], &c.call);
        count += c.count;
    }
    return count;
}

/* ---- ops of one job ---- */

struct job_views_call {
    struct occl_eng_call call;
    const struct occl_eng_job *job;
    struct occl_engine_op_view *views;
    uint64_t comm_uid;
    uint32_t per_comm, max;
    uint32_t count;
};

/* The lists of communicators are the control loop's, which stands still meanwhile. */
static bool job_views_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct job_views_call *c = call->arg;
    uint32_t looked = 0, comms = 0;
    (void)lane;
    for (struct occl_eng_link *l = c->job->comms.next; l != &c->job->comms; l = l->next) {
        struct occl_eng_comm *comm = OCCL_ENG_ENTRY(l, struct occl_eng_comm, job_link);
        uint32_t of_comm = 0;
        if (comm->uid < c->comm_uid)
            continue;
        /* Not the first one: its next turn begins with it. */
        if (comms++ == VIEWS_PER_STEP || (looked && looked + c->per_comm > c->max)) {
            c->comm_uid = comm->uid;
            return true;
        }
        for (struct occl_eng_link *o = comm->ops.next;
             o != &comm->ops && looked < c->max && of_comm < c->per_comm; o = o->next) {
            struct occl_eng_op *op = OCCL_ENG_ENTRY(o, struct occl_eng_op, comm_link);
            looked++;
            if (op->state == OCCL_ENG_OP_FREE || op->state == OCCL_ENG_OP_ENDED)
                continue;
            view_op(op, &c->views[c->count++]);
            of_comm++;
        }
    }
    c->comm_uid = 0;
    return true;
}

uint32_t occl_engine_job_ops(struct occl_engine *engine, uint64_t job_id, uint64_t *inout_comm_uid,
                             uint32_t per_comm, struct occl_engine_op_view *out_ops, uint32_t max) {
    const struct occl_eng_job *job = occl_eng_job_find(engine, job_id);
    struct job_views_call c = {.job = job,
                               .views = out_ops,
                               .comm_uid = *inout_comm_uid,
                               .per_comm = per_comm < max ? per_comm : max,
                               .max = max};
    *inout_comm_uid = 0;
    if (!job || occl_peek64(&job->ops_live) == 0)
        return 0;
    c.call = (struct occl_eng_call){.step = job_views_step, .arg = &c};
    (void)occl_eng_call(job->home, &c.call);
    *inout_comm_uid = c.comm_uid;
    return c.count;
}

bool occl_engine_lane_moves(const struct occl_engine *engine, uint32_t lane, uint64_t *inout_beat) {
    const struct occl_eng_lane_counters *c = &engine->lanes[lane].counters;
    /* In this order: a lane that lies down in between has moved. */
    uint64_t wakeups = occl_peek64(&c->lane_wakeups);
    uint64_t sleeps = occl_peek64(&c->lane_sleeps);
    uint64_t rounds = occl_peek64(&c->rounds);
    bool moves = sleeps != wakeups || rounds != *inout_beat;
    *inout_beat = rounds;
    return moves;
}
