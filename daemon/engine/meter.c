/* SPDX-License-Identifier: Apache-2.0 */
/* Shares between jobs, whoever executes their strands. The control loop calls the meter by a timer,
 * often only while at least two jobs move bytes.
 *
 * Each job has a virtual time: bytes charged / its share. The jobs of the highest class that have
 * work may run until they are one quantum ahead of the one that is furthest behind, so over any
 * longer time their bytes stand in the proportion of their shares, and a job that is behind never
 * waits. Jobs of lower classes get one slice per ageing period. A job that moves a little and rests
 * in between competes with nobody: it runs as it likes and holds nobody back. One that has been
 * idle comes back at the time of the others, but for a small credit: what it did not use is gone.
 * One that has work and gets no core is not idle.
 *
 * What a rank says it has moved is its own word, in a page it can write. It is taken as growing
 * only; a rank that understates it cheats with its own processor time, and only against the shares.
 */
#include "daemon/engine/internal.h"

#define MEGA 1048576.0
/* While two jobs are active; and to find out whether two are. */
#define PERIOD_NS 1000000u
#define LOOK_PERIOD_NS 100000000u
/* A job counts as moving for so long after it last moved something or stood at its limit: looks
 * stay frequent, and a job whose threads wait for a core is not taken for idle. */
#define MOVING_NS 40000000u
/* Only a job that found no time for its work competes: one that moves a little and waits for its
 * application in between would hold all others to its own pace. Work is sampled at each look; jobs
 * compete from this part of the looks on. */
#define BACKLOG_MIN 0.125
/* However far behind a job is, and whatever its page says, the others wait for it no more than
 * that: the virtual time goes on by one quantum in so many looks, and the quantum grows meanwhile.
 */
#define PATIENCE_LOOKS 20.0
/* Quantum: what all jobs move in two periods, so that nobody stands still between two looks; at
 * least a few slices, at most what keeps a second's shares within a few percent. */
#define QUANTUM_MIN (4.0 * MEGA)
#define QUANTUM_MAX (64.0 * MEGA)
/* Communicators searched for work in one look: of jobs beyond that, movement counts as work. */
#define SEARCHES_MAX 64u
/* Credit of a job that comes back after a pause, in quanta. */
#define CREDIT_QUANTA 4.0

void occl_eng_meter_reset(struct occl_engine *engine, struct occl_eng_job *job) {
    (void)engine;
    job->charged_bytes = job->granted_bytes = 0;
    job->active_at_ns = job->aged_at_ns = 0;
    job->passed = job->delta = 0;
    job->active = job->moving = job->competed = false;
    job->backlog = 0;
}

/* Whether a local op of the communicator is under way. A rank can write these words: then its job
 * competes without need, which costs others no more than PATIENCE_LOOKS allows. */
static bool has_local_op(struct occl_eng_comm *comm) {
    if (comm->failed_status != OCCL_OK)
        return false;
    for (uint32_t index = 0; index < OCCL_CLAIMS; index++) {
        if (!(occl_peek64(&occl_claim_at(&comm->records, index)->word) & OCCL_WORD_CLAIMED))
            continue;
        uint32_t slot = occl_claim_first(index), end = slot + occl_claim_records(index);
        for (; slot < end; slot++)
            if (occl_peek32(&occl_record_at(&comm->records, slot)->state) == OCCL_REC_LOCAL)
                return true;
    }
    return false;
}

/* Only communicators that moved since the last look, or were at work then, are searched for work: a
 * job may have many that rest. */
static uint64_t charged_now(struct occl_eng_job *job, uint32_t *searches_left, bool *out_at_work) {
    uint64_t sum = job->charged_bytes, lane = occl_peek64(&job->lane_bytes);
    *out_at_work = lane != job->lane_seen;
    for (struct occl_eng_link *l = job->comms.next; l != &job->comms; l = l->next) {
        struct occl_eng_comm *comm = OCCL_ENG_ENTRY(l, struct occl_eng_comm, job_link);
        uint64_t before = sum;
        for (uint32_t r = 0; r < comm->ranks; r++) {
            uint64_t now = occl_peek64(&occl_note_at(&comm->records, r)->bytes_executed);
            if (now <= comm->noted_bytes[r])
                continue;
            /* It stays at the end: a sum that begins again would leave an old grant open. */
            if (__builtin_add_overflow(sum, now - comm->noted_bytes[r], &sum))
                sum = UINT64_MAX;
            comm->noted_bytes[r] = now;
        }
        comm->at_work |= sum != before;
        if (!comm->at_work || *out_at_work)
            continue; /* one communicator at work is enough */
        if (*searches_left == 0) {
            comm->at_work = sum != before;
        } else {
            --*searches_left;
            comm->at_work = has_local_op(comm);
        }
        *out_at_work = comm->at_work;
    }
    if (__builtin_add_overflow(sum, lane - job->lane_seen, &sum))
        sum = UINT64_MAX;
    job->lane_seen = lane;
    return sum;
}

static void note_backlog(struct occl_engine *engine, struct occl_eng_job *job, bool at_work) {
    if (!engine->metering)
        job->backlog = at_work || job->delta > 0; /* looks are rare: the next ones know better */
    else if (at_work)
        job->backlog += (1 - job->backlog) / 8;
    else
        job->backlog -= job->backlog / (job->delta > 0 ? 8 : 4);
}

/* Sums up all jobs; returns how many are moving, and the highest class of those that compete. A
 * look may come late, so activity is told from one look to the next, not by the time alone. */
static uint32_t look(struct occl_engine *engine, uint64_t now_ns, uint32_t *out_class) {
    struct occl_eng_link *jobs = &engine->live_jobs;
    uint32_t moving = 0, searches_left = SEARCHES_MAX;
    *out_class = 0;
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        bool at_work;
        uint64_t sum = charged_now(job, &searches_left, &at_work);
        bool at_limit = job->moving && occl_peek32(&job->metered) && sum >= job->granted_bytes;
        job->delta = (double)(sum - job->charged_bytes);
        job->charged_bytes = sum;
        note_backlog(engine, job, at_work || at_limit);
        if (job->delta > 0 || at_limit)
            job->active_at_ns = now_ns;
        job->moving = job->delta > 0 || at_limit || now_ns - job->active_at_ns < MOVING_NS;
        job->active = job->moving && job->backlog >= BACKLOG_MIN;
        moving += job->moving;
        if (job->active && occl_peek32(&job->job_class) > *out_class)
            *out_class = occl_peek32(&job->job_class);
    }
    return moving;
}

static bool competes(const struct occl_eng_job *job, uint32_t top_class) {
    return job->active && occl_peek32(&job->job_class) == top_class;
}

/* Shares of the competing jobs: by tenant weight, inside a tenant by job weight; they add up to 1.
 */
static void share_out(struct occl_engine *engine, uint32_t top_class) {
    struct occl_eng_link *jobs = &engine->live_jobs;
    double tenants = 0;
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        if (competes(job, top_class))
            job->tenant->jobs_weight = 0;
    }
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        if (!competes(job, top_class))
            continue;
        if (job->tenant->jobs_weight == 0)
            tenants += occl_peek32(&job->tenant_weight);
        job->tenant->jobs_weight += occl_peek32(&job->job_weight);
    }
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        if (competes(job, top_class))
            job->share = occl_peek32(&job->tenant_weight) / tenants *
                         occl_peek32(&job->job_weight) / job->tenant->jobs_weight;
    }
}

static double bounded(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

/* Virtual time of the job that is furthest behind among those that competed at the last look, too;
 * not touched when there is none. True when patience has moved it on. */
static bool advance_running(struct occl_engine *engine, uint32_t top_class, double *out_behind) {
    struct occl_eng_link *jobs = &engine->live_jobs;
    double least = engine->virtual_bytes + engine->quantum_bytes / PATIENCE_LOOKS, most = 0;
    bool any = false;
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        if (!competes(job, top_class) || !job->competed)
            continue;
        job->passed += job->delta / job->share;
        if (!any || job->passed < *out_behind)
            *out_behind = job->passed;
        if (!any || job->passed > most)
            most = job->passed;
        any = true;
    }
    bool impatient = any && *out_behind < least && least < most;
    if (any && *out_behind < least)
        *out_behind = least < most ? least : most;
    /* Who is left behind by that keeps a credit, as after a pause. */
    double floor = *out_behind - CREDIT_QUANTA * engine->quantum_bytes;
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        if (competes(job, top_class) && job->competed && job->passed < floor)
            job->passed = floor;
    }
    return impatient;
}

/* Moves the virtual times on; returns that of the job that is furthest behind. A job that comes
 * back, from idleness or from another class, starts near the others. */
static double advance(struct occl_engine *engine, uint32_t top_class) {
    struct occl_eng_link *jobs = &engine->live_jobs;
    double moved = 0, behind = engine->virtual_bytes;
    bool impatient = advance_running(engine, top_class, &behind);
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        if (competes(job, top_class))
            moved += job->delta;
    }
    /* While patience sets the pace, what is moved tells nothing of the machine. */
    double quantum_bytes =
        impatient ? engine->quantum_bytes * 9 / 8 : engine->quantum_bytes * 7 / 8 + moved / 4;
    engine->quantum_bytes = bounded(quantum_bytes, QUANTUM_MIN, QUANTUM_MAX);
    engine->virtual_bytes = behind;
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        bool competed = job->competed;
        job->competed = competes(job, top_class);
        if (competed || !job->competed)
            continue;
        double middle = engine->virtual_bytes, quantum = engine->quantum_bytes;
        job->passed = bounded(job->passed, middle - CREDIT_QUANTA * quantum, middle + quantum);
        /* What was moved before the meter looked was moved without competition. */
        if (engine->metering)
            job->passed += job->delta / job->share;
        if (job->passed < behind)
            behind = job->passed;
    }
    engine->virtual_bytes = behind; /* those who came back have their time, too */
    return behind;
}

static void set_gate(struct occl_eng_job *job, bool closed) {
    /* What lanes may still move of the grant, in their own count. */
    uint64_t rest =
        job->granted_bytes > job->charged_bytes ? job->granted_bytes - job->charged_bytes : 0;
    occl_note64(&job->lane_limit_bytes, job->lane_seen + rest);
    occl_publish32(&job->metered, closed);
    if (!job->page)
        return;
    bool changed = closed ? job->granted_bytes != occl_peek64(&job->page->granted_bytes)
                          : occl_peek32(&job->page->gate) != 0;
    occl_note64(&job->page->charged_bytes_seen, job->charged_bytes);
    occl_publish64(&job->page->granted_bytes, job->granted_bytes);
    occl_publish32(&job->page->gate, closed);
    if (!changed)
        return;
    (void)occl_add32(&job->page->gate_bell, 1);
    (void)occl_futex_wake(&job->page->gate_bell, OCCL_WAKES_MAX); /* bounded sleeps need no more */
}

static void grant(struct occl_engine *engine, struct occl_eng_job *job, double behind,
                  uint32_t top_class, uint64_t now_ns) {
    uint64_t limit = 0;
    if (occl_peek32(&job->job_class) < top_class) {
        if (now_ns - job->aged_at_ns >= engine->config.ageing_ns) {
            job->aged_at_ns = now_ns;
            limit = job->charged_bytes + OCCL_SLICE_TRAFFIC_BYTES;
        }
    } else {
        /* A job that does nothing may start at once; the next look finds it. */
        double room = engine->quantum_bytes;
        if (job->active)
            room = (room - (job->passed - behind)) * job->share;
        if (room > 0)
            limit = job->charged_bytes + (uint64_t)room;
    }
    if (limit > job->granted_bytes)
        job->granted_bytes = limit;
}

/* Lanes that keep tasks back look whether they may go on. */
static void tell_lanes(struct occl_engine *engine) {
    (void)occl_add32(&engine->grants_version, 1);
    for (uint32_t i = 0; i < engine->lane_count; i++) {
        if (occl_look32(&engine->lanes[i].keeps_back))
            occl_eng_nudge(&engine->lanes[i]);
    }
}

static void open_gate(struct occl_eng_job *job) {
    job->passed = 0;
    job->competed = false;
    set_gate(job, false);
}

static void open_all(struct occl_engine *engine) {
    struct occl_eng_link *jobs = &engine->live_jobs;
    if (!engine->metering)
        return;
    engine->metering = false;
    engine->virtual_bytes = 0;
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next)
        open_gate(OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link));
    tell_lanes(engine);
}

uint64_t occl_engine_meter(struct occl_engine *engine, uint64_t now_ns) {
    struct occl_eng_link *jobs = &engine->live_jobs;
    uint32_t top_class;
    if (engine->jobs_live < 2) {
        open_all(engine);
        return 0;
    }
    if (look(engine, now_ns, &top_class) < 2) {
        open_all(engine);
        return now_ns + LOOK_PERIOD_NS;
    }
    share_out(engine, top_class);
    double behind = advance(engine, top_class);
    engine->metering = true;
    for (struct occl_eng_link *l = jobs->next; l != jobs; l = l->next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, live_link);
        grant(engine, job, behind, top_class, now_ns);
        set_gate(job, true);
    }
    tell_lanes(engine);
    return now_ns + PERIOD_NS;
}
