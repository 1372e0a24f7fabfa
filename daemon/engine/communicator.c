/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: added, failed, removed by the control loop. */
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

struct comm_call {
    struct occl_eng_call call;
    struct occl_eng_comm *comm;
    struct occl_eng_map *bigger; /* one per rank; empty where the session's map has room */
    int status;
    uint32_t about_rank;
    bool remove;
};

static struct occl_eng_comm *comm_find(struct occl_engine *engine, uint64_t comm_uid) {
    struct occl_eng_comm *comm;
    HASH_FIND(hh, engine->comm_table, &comm_uid, sizeof comm_uid, comm);
    return comm;
}

static bool comm_add_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct comm_call *c = call->arg;
    struct occl_eng_comm *comm = c->comm;
    (void)lane;
    for (uint32_t r = 0; r < comm->ranks; r++) {
        struct occl_eng_map *map = &comm->sessions[r]->comms;
        if (c->bigger[r].entries)
            occl_eng_map_move(map, &c->bigger[r]);
        occl_eng_map_put(map, comm->numbers[r], comm, r);
    }
    return true;
}

/* Tables for sessions whose own is full: one per session, big enough for all its ranks. */
static int grow_maps(struct occl_eng_comm *comm, struct occl_eng_map *bigger) {
    for (uint32_t r = 0; r < comm->ranks; r++) {
        struct occl_eng_session *session = comm->sessions[r];
        bool seen = false;
        for (uint32_t q = 0; q < r; q++)
            seen |= comm->sessions[q] == session;
        if (seen || occl_eng_map_has_room(&session->comms, comm->ranks))
            continue;
        int status = occl_eng_map_grow(&session->comms, comm->ranks, &bigger[r]);
        if (status != OCCL_OK)
            return status;
    }
    return OCCL_OK;
}

static int find_sessions(struct occl_engine *engine, const struct occl_engine_comm_config *config,
                         struct occl_eng_comm *comm) {
    for (uint32_t r = 0; r < config->ranks; r++) {
        struct occl_eng_session *session;
        HASH_FIND(hh, engine->session_table, &config->session_ids[r], sizeof(uint64_t), session);
        if (!session)
            return OCCL_E_NOT_FOUND;
        if (session->job != comm->job)
            return OCCL_E_INVALID;
        if (occl_eng_map_find(&session->comms, config->comm_numbers[r]))
            return OCCL_E_BUSY;
        comm->sessions[r] = session;
        comm->numbers[r] = config->comm_numbers[r];
    }
    return OCCL_OK;
}

int occl_engine_comm_add(struct occl_engine *engine, const struct occl_engine_comm_config *config) {
    struct occl_eng_job *job = occl_eng_job_find(engine, config->job_id);
    if (!job)
        return OCCL_E_NOT_FOUND;
    if (config->ranks < 1 || config->ranks > OCCL_LOCAL_RANKS_MAX ||
        config->records.records != OCCL_RECORDS || config->records.ranks != config->ranks)
        return OCCL_E_INVALID;
    if (comm_find(engine, config->comm_uid))
        return OCCL_E_BUSY;
    struct occl_eng_comm *comm = calloc(1, sizeof *comm);
    struct occl_eng_map *bigger = calloc(config->ranks, sizeof *bigger);
    int status = comm && bigger ? OCCL_OK : OCCL_E_NO_MEMORY;
    if (status == OCCL_OK) {
        comm->uid = config->comm_uid;
        comm->ranks = config->ranks;
        comm->priority = config->priority;
        comm->job = job;
        comm->records = config->records;
        comm->failed_about = OCCL_RANK_NONE;
        occl_eng_list_init(&comm->ops);
        occl_eng_list_init(&comm->wanted_link);
        status = find_sessions(engine, config, comm);
    }
    if (status == OCCL_OK)
        status = grow_maps(comm, bigger);
    if (status == OCCL_OK) {
        comm->serial = ++engine->comm_serial;
        HASH_ADD(hh, engine->comm_table, uid, sizeof comm->uid, comm);
        occl_eng_list_append(&job->comms, &comm->job_link);
        struct comm_call c = {.comm = comm, .bigger = bigger};
        c.call = (struct occl_eng_call){.step = comm_add_step, .arg = &c};
        (void)occl_eng_call(job->home, &c.call);
        comm = NULL;
    }
    for (uint32_t r = 0; bigger && r < config->ranks; r++)
        occl_eng_map_free(&bigger[r]);
    free(bigger);
    free(comm);
    return status;
}

static void fail_ops(struct occl_eng_lane *lane, struct occl_eng_comm *comm) {
    struct occl_eng_link *next;
    for (struct occl_eng_link *l = comm->ops.next; l != &comm->ops; l = next) {
        next = l->next;
        occl_eng_op_fail(lane, OCCL_ENG_ENTRY(l, struct occl_eng_op, comm_link),
                         comm->failed_status, comm->failed_about);
    }
}

/* Before the page goes. Records are the control loop's to end: of an aborted one no lane executes
 * another strand, and one that is not aborted goes on, also while ring ops are refused because they
 * might need a member that has left. */
static void stop_records(struct occl_eng_lane *lane, struct occl_eng_comm *comm) {
    memset(comm->wanted, 0, sizeof comm->wanted);
    occl_eng_list_take(&comm->wanted_link);
    for (uint32_t slot = 0; slot < OCCL_RECORDS; slot++) {
        struct occl_eng_run *run = comm->slot_run[slot];
        if (!run)
            continue;
        occl_eng_run_stop(run, OCCL_ENG_RUN_OVER);
        (void)occl_eng_run_reap(lane, run); /* false: a later round reaps it */
    }
}

static bool comm_end_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    struct comm_call *c = call->arg;
    struct occl_eng_comm *comm = c->comm;
    if (call->rounds == 0) {
        if (comm->failed_status == OCCL_OK) {
            comm->failed_status = c->status;
            comm->failed_about = c->about_rank;
        }
        fail_ops(lane, comm);
        if (c->remove)
            stop_records(lane, comm);
    }
    if (!c->remove)
        return true;
    if (comm->runs != 0) {
        occl_eng_runs_reap(lane);
        return false;
    }
    OCCL_ASSERT(occl_eng_list_empty(&comm->ops));
    for (uint32_t r = 0; r < comm->ranks; r++) {
        if (comm->sessions[r])
            occl_eng_map_delete(&comm->sessions[r]->comms, comm->numbers[r]);
    }
    return true;
}

void occl_engine_comm_fail(struct occl_engine *engine, uint64_t comm_uid, int status,
                           uint32_t about_rank) {
    struct occl_eng_comm *comm = comm_find(engine, comm_uid);
    if (!comm)
        return;
    struct comm_call c = {.comm = comm, .status = status, .about_rank = about_rank};
    c.call = (struct occl_eng_call){.step = comm_end_step, .arg = &c};
    (void)occl_eng_call(comm->job->home, &c.call);
}

void occl_engine_comm_remove(struct occl_engine *engine, uint64_t comm_uid) {
    struct occl_eng_comm *comm = comm_find(engine, comm_uid);
    if (!comm)
        return;
    struct comm_call c = {
        .comm = comm, .status = OCCL_E_ABORTED, .about_rank = OCCL_RANK_NONE, .remove = true};
    c.call = (struct occl_eng_call){.step = comm_end_step, .arg = &c};
    (void)occl_eng_call(comm->job->home, &c.call);
    HASH_DEL(engine->comm_table, comm);
    occl_eng_list_take(&comm->job_link);
    free(comm);
}
