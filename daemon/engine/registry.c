/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs, regions and sessions: what the control loop tells the engine about. */
#include <stdlib.h>

#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

/* ---- jobs ---- */

struct occl_eng_job *occl_eng_job_find(struct occl_engine *engine, uint64_t job_id) {
    for (uint32_t i = 0; i < OCCL_ENG_JOBS_MAX; i++) {
        if (engine->jobs[i].used && engine->jobs[i].id == job_id)
            return &engine->jobs[i];
    }
    return NULL;
}

static struct occl_eng_tenant *tenant_get(struct occl_engine *engine, uint64_t tenant_id) {
    struct occl_eng_tenant *unused = NULL;
    for (uint32_t i = 0; i < OCCL_ENG_JOBS_MAX; i++) {
        struct occl_eng_tenant *t = &engine->tenants[i];
        if (t->jobs && t->id == tenant_id)
            return t;
        if (!t->jobs && !unused)
            unused = t;
    }
    if (unused)
        *unused = (struct occl_eng_tenant){.id = tenant_id};
    return unused;
}

static struct occl_eng_lane *least_loaded(struct occl_engine *engine) {
    uint32_t jobs[OCCL_ENG_LANES_MAX] = {0}, best = 0;
    for (uint32_t i = 0; i < OCCL_ENG_JOBS_MAX; i++) {
        if (engine->jobs[i].used)
            jobs[engine->jobs[i].home->index]++;
    }
    for (uint32_t i = 1; i < engine->lane_count; i++) {
        if (jobs[i] < jobs[best])
            best = i;
    }
    return &engine->lanes[best];
}

static bool weights_valid(const struct occl_engine_job_config *config) {
    return config->job_class < OCCL_SCHED_CLASSES && config->job_weight >= 1 &&
           config->job_weight <= OCCL_SCHED_WEIGHT_MAX && config->tenant_weight >= 1 &&
           config->tenant_weight <= OCCL_SCHED_WEIGHT_MAX;
}

static void job_apply(struct occl_eng_job *job, const struct occl_engine_job_config *config) {
    occl_note32(&job->tenant_weight, config->tenant_weight);
    occl_note32(&job->job_weight, config->job_weight);
    occl_note32(&job->job_class, config->job_class);
    occl_note64(&job->tenant->ops_quota, config->ops_quota);
    if (job->page)
        occl_note32(&job->page->job_class, config->job_class);
}

int occl_engine_job_add(struct occl_engine *engine, const struct occl_engine_job_config *config) {
    if (!weights_valid(config))
        return OCCL_E_INVALID;
    if (occl_eng_job_find(engine, config->job_id))
        return OCCL_E_BUSY;
    struct occl_eng_job *job = engine->jobs;
    while (job < engine->jobs + OCCL_ENG_JOBS_MAX && job->used)
        job++;
    struct occl_eng_tenant *tenant = tenant_get(engine, config->tenant_id);
    if (job == engine->jobs + OCCL_ENG_JOBS_MAX || !tenant)
        return OCCL_E_QUOTA;
    struct occl_eng_lane *home = least_loaded(engine);
    *job = (struct occl_eng_job){.used = true,
                                 .slot = job->slot,
                                 .id = config->job_id,
                                 .tenant = tenant,
                                 .home = home,
                                 .page = config->page};
    occl_eng_list_init(&job->comms);
    occl_eng_list_init(&job->ready_link);
    for (uint32_t c = 0; c < OCCL_SCHED_CLASSES; c++)
        occl_eng_list_init(&job->ready[c]);
    occl_eng_list_append(&engine->live_jobs, &job->live_link);
    tenant->jobs++;
    engine->jobs_live++;
    job_apply(job, config);
    occl_eng_meter_reset(engine, job);
    return OCCL_OK;
}

static bool weights_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct occl_eng_job *job = call->arg;
    uint32_t known = lane->sched_jobs[job->slot];
    if (known)
        (void)occl_sched_job_weights(lane->sched, known - 1, job->tenant_weight,
                                     job->job_weight); /* checked by weights_valid */
    return true;
}

int occl_engine_job_set(struct occl_engine *engine, const struct occl_engine_job_config *config) {
    struct occl_eng_job *job = occl_eng_job_find(engine, config->job_id);
    if (!job)
        return OCCL_E_NOT_FOUND;
    if (!weights_valid(config))
        return OCCL_E_INVALID;
    job_apply(job, config);
    /* The tenant's weight holds for all its jobs. */
    for (uint32_t i = 0; i < OCCL_ENG_JOBS_MAX; i++) {
        if (engine->jobs[i].used && engine->jobs[i].tenant == job->tenant)
            occl_note32(&engine->jobs[i].tenant_weight, config->tenant_weight);
    }
    for (uint32_t i = 0; i < engine->lane_count; i++) {
        struct occl_eng_call call = {.step = weights_step, .arg = job};
        (void)occl_eng_call(&engine->lanes[i], &call);
    }
    return OCCL_OK;
}

static bool forget_job_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct occl_eng_job *job = call->arg;
    occl_eng_purge(lane, job);
    if (lane->sched_jobs[job->slot])
        OCCL_ASSERT(occl_sched_job_remove(lane->sched, lane->sched_jobs[job->slot] - 1) == OCCL_OK);
    lane->sched_jobs[job->slot] = 0;
    return true;
}

void occl_engine_job_remove(struct occl_engine *engine, uint64_t job_id) {
    struct occl_eng_job *job = occl_eng_job_find(engine, job_id);
    if (!job)
        return;
    struct occl_eng_session *session, *next;
    while (!occl_eng_list_empty(&job->comms))
        occl_engine_comm_remove(
            engine, OCCL_ENG_ENTRY(job->comms.next, struct occl_eng_comm, job_link)->uid);
    HASH_ITER (hh, engine->session_table, session, next) {
        if (session->job == job)
            occl_engine_session_remove(engine, session->id);
    }
    for (uint32_t i = 0; i < engine->lane_count; i++) {
        struct occl_eng_call call = {.step = forget_job_step, .arg = job};
        (void)occl_eng_call(&engine->lanes[i], &call);
    }
    occl_eng_map_free(&job->regions);
    job->tenant->jobs--;
    occl_eng_list_take(&job->live_link);
    job->used = false;
    engine->jobs_live--;
}

/* ---- regions ---- */

struct region_call {
    struct occl_eng_call call;
    struct occl_eng_job *job;
    struct occl_eng_map bigger;
    uint32_t region;
    void *base;
    uint64_t bytes;
};

static bool region_add_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct region_call *c = call->arg;
    (void)lane;
    if (c->bigger.entries)
        occl_eng_map_move(&c->job->regions, &c->bigger);
    occl_eng_map_put(&c->job->regions, c->region, c->base, c->bytes);
    return true;
}

int occl_engine_region_add(struct occl_engine *engine, uint64_t job_id, uint32_t region, void *base,
                           uint64_t bytes) {
    struct occl_eng_job *job = occl_eng_job_find(engine, job_id);
    if (!job)
        return OCCL_E_NOT_FOUND;
    if (!base || region == OCCL_ENG_REGION_NONE)
        return OCCL_E_INVALID;
    if (occl_eng_map_find(&job->regions, region))
        return OCCL_E_BUSY;
    struct region_call c = {.job = job, .region = region, .base = base, .bytes = bytes};
    if (!occl_eng_map_has_room(&job->regions, 1)) {
        int status = occl_eng_map_grow(&job->regions, 1, &c.bigger);
        if (status != OCCL_OK)
            return status;
    }
    c.call = (struct occl_eng_call){.step = region_add_step, .arg = &c};
    (void)occl_eng_call(job->home, &c.call);
    occl_eng_map_free(&c.bigger);
    return OCCL_OK;
}

static bool op_uses(struct occl_eng_op *op, uint32_t region, uint32_t *out_rank) {
    for (uint32_t i = 0; i < op->members; i++) {
        if (!(op->arrived_mask >> i & 1))
            continue;
        const struct occl_eng_member *m = occl_eng_member_at(op, i);
        if (m->sides.src_region == region || m->sides.dst_region == region ||
            m->sides.vector_region == region) {
            *out_rank = occl_eng_rank_of(op, i);
            return true;
        }
    }
    return false;
}

static bool run_uses(const struct occl_eng_run *run, uint32_t region) {
    for (uint32_t i = 0; i < run->plan.member_count; i++) {
        if (run->src_region[i] == region || run->dst_region[i] == region)
            return true;
    }
    return false;
}

static void fail_ops_of_region(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                               uint32_t region) {
    struct occl_eng_link *next;
    uint32_t rank;
    for (struct occl_eng_link *l = comm->ops.next; l != &comm->ops; l = next) {
        struct occl_eng_op *op = OCCL_ENG_ENTRY(l, struct occl_eng_op, comm_link);
        next = l->next;
        if (op->state != OCCL_ENG_OP_ENDED && op_uses(op, region, &rank))
            occl_eng_op_fail(lane, op, OCCL_E_FAULT, rank);
    }
}

/* Stops the runs that use the region; true when none is left. */
static bool stop_runs_of_region(struct occl_eng_lane *lane, struct occl_eng_job *job,
                                uint32_t region) {
    bool none = true;
    struct occl_eng_link *next;
    for (struct occl_eng_link *l = lane->running.next; l != &lane->running; l = next) {
        struct occl_eng_run *run = OCCL_ENG_ENTRY(l, struct occl_eng_run, link);
        next = l->next;
        if (run->job != job || !run_uses(run, region))
            continue;
        occl_eng_run_stop(run, OCCL_E_FAULT);
        none &= occl_eng_run_reap(lane, run);
    }
    return none;
}

static bool region_remove_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct region_call *c = call->arg;
    if (call->rounds == 0) {
        occl_eng_map_delete(&c->job->regions, c->region);
        struct occl_eng_link *comms = &c->job->comms;
        for (struct occl_eng_link *l = comms->next; l != comms; l = l->next)
            fail_ops_of_region(lane, OCCL_ENG_ENTRY(l, struct occl_eng_comm, job_link), c->region);
    }
    return stop_runs_of_region(lane, c->job, c->region);
}

void occl_engine_region_remove(struct occl_engine *engine, uint64_t job_id, uint32_t region) {
    struct occl_eng_job *job = occl_eng_job_find(engine, job_id);
    if (!job || !occl_eng_map_find(&job->regions, region))
        return;
    struct region_call c = {.job = job, .region = region};
    c.call = (struct occl_eng_call){.step = region_remove_step, .arg = &c};
    (void)occl_eng_call(job->home, &c.call);
}

/* ---- sessions ---- */

static bool session_add_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct occl_eng_session *session = call->arg;
    occl_eng_list_append(&lane->sessions, &session->lane_link);
    return true;
}

int occl_engine_session_add(struct occl_engine *engine,
                            const struct occl_engine_session_config *config) {
    struct occl_eng_job *job = occl_eng_job_find(engine, config->job_id);
    struct occl_eng_session *session;
    if (!job)
        return OCCL_E_NOT_FOUND;
    HASH_FIND(hh, engine->session_table, &config->session_id, sizeof config->session_id, session);
    if (session)
        return OCCL_E_BUSY;
    if (!config->page || config->cq_entries < OCCL_RING_ENTRIES_MIN ||
        config->sq_entries < OCCL_RING_ENTRIES_MIN)
        return OCCL_E_INVALID;
    session = calloc(1, sizeof *session);
    if (!session)
        return OCCL_E_NO_MEMORY;
    session->id = config->session_id;
    session->job = job;
    session->page = config->page;
    struct occl_ring_place sq = occl_sq_place(config->page, config->sq_offset, config->sq_entries);
    struct occl_ring_place cq = occl_cq_place(config->page, config->cq_offset, config->cq_entries);
    occl_ring_consumer_init(&session->sq, &sq);
    occl_ring_producer_init(&session->cq, &cq);
    occl_credits_init(&session->credits, config->cq_entries);
    occl_eng_list_init(&session->members);
    occl_eng_list_init(&session->lane_link);
    occl_eng_list_init(&session->dirty_link);
    HASH_ADD(hh, engine->session_table, id, sizeof session->id, session);
    job->sessions++;
    (void)occl_add32(&engine->sessions_live, 1);
    struct occl_eng_call call = {.step = session_add_step, .arg = session};
    (void)occl_eng_call(job->home, &call);
    return OCCL_OK;
}

static uint32_t rank_of_member(struct occl_eng_member *member) {
    struct occl_eng_op *op = member->op;
    for (uint32_t i = 0; i < op->members; i++) {
        if ((op->arrived_mask >> i & 1) && occl_eng_member_at(op, i) == member)
            return occl_eng_rank_of(op, i);
    }
    return OCCL_RANK_NONE;
}

static bool session_remove_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct occl_eng_session *session = call->arg;
    occl_eng_list_take(&session->lane_link);
    occl_eng_list_take(&session->dirty_link);
    for (uint32_t i = 0; session->comms.entries && i <= session->comms.mask; i++) {
        const struct occl_eng_map_entry *e = &session->comms.entries[i];
        if (e->value)
            ((struct occl_eng_comm *)e->value)->sessions[e->extra] = NULL;
    }
    /* Its submissions are forgotten before their ops end, so that nothing is written to its page.
     */
    while (!occl_eng_list_empty(&session->members)) {
        struct occl_eng_member *m =
            OCCL_ENG_ENTRY(session->members.next, struct occl_eng_member, session_link);
        occl_eng_list_take(&m->session_link);
        m->session = NULL;
        occl_eng_op_fail(lane, m->op, OCCL_E_PEER_FAILED, rank_of_member(m));
    }
    return true;
}

void occl_engine_session_remove(struct occl_engine *engine, uint64_t session_id) {
    struct occl_eng_session *session;
    HASH_FIND(hh, engine->session_table, &session_id, sizeof session_id, session);
    if (!session)
        return;
    struct occl_eng_call call = {.step = session_remove_step, .arg = session};
    (void)occl_eng_call(session->job->home, &call);
    HASH_DEL(engine->session_table, session);
    session->job->sessions--;
    (void)occl_add32(&engine->sessions_live, (uint32_t)-1);
    occl_eng_map_free(&session->comms);
    free(session);
}

void occl_engine_kick(struct occl_engine *engine, uint64_t session_id) {
    struct occl_eng_session *session;
    HASH_FIND(hh, engine->session_table, &session_id, sizeof session_id, session);
    engine->doorbells++;
    if (session)
        occl_eng_nudge(session->job->home);
}
