/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over a job, for metrics and administration. */
#include <string.h>

#include "daemon/why.h"

/* A wait this old makes a job slow or stuck in its state word. */
#define LONG_WAIT_NS 2000000000ull

void occl_totals_scan(struct occl_daemon *daemon, struct occl_op_list *out_list) {
    struct occl_comm *comm;
    struct occl_comm *next;
    memset(out_list, 0, sizeof *out_list);
    HASH_ITER (in_daemon, daemon->comms, comm, next) {
        if (comm->state == OCCL_COMM_LIVE)
            occl_opview_scan_comm(comm, out_list);
    }
    occl_opview_scan_engine(daemon, out_list);
}

static void add_notes(const struct occl_comm *comm, struct occl_job_totals *totals) {
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_note_view note;
        occl_opview_note(comm, rank, &note);
        totals->ops_done += note.ops_done;
        totals->errors += note.errors;
        totals->bytes_done += note.bytes_done;
        totals->bytes_executed += note.bytes_executed;
    }
}

void occl_totals_job(struct occl_job *job, const struct occl_op_list *list,
                     struct occl_job_totals *out_totals) {
    struct occl_daemon *daemon = job->tenant->daemon;
    struct occl_comm *comm;
    uint64_t now = occl_loop_now_ns(daemon->loop);
    memset(out_totals, 0, sizeof *out_totals);
    out_totals->ops_done = job->ops_gone;
    out_totals->errors = job->errors_gone;
    out_totals->bytes_done = job->bytes_gone;
    out_totals->bytes_executed = job->executed_gone_bytes;
    TAILQ_FOREACH(comm, &job->comms, in_job)
    add_notes(comm, out_totals);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct occl_op_view *op = &list->ops[i];
        if (op->comm->job != job)
            continue;
        uint64_t age = op->since_ns < now ? now - op->since_ns : 0;
        out_totals->ops_waiting++;
        if (age > out_totals->oldest_age_ns)
            out_totals->oldest_age_ns = age;
    }
    if (!occl_engine_job_usage(daemon->engine, job->id, &out_totals->engine))
        memset(&out_totals->engine, 0, sizeof out_totals->engine);
}

const char *occl_totals_state(struct occl_job *job, const struct occl_job_totals *totals) {
    uint64_t now = occl_loop_now_ns(job->tenant->daemon->loop);
    if (totals->ops_done != job->ops_seen) {
        job->ops_seen = totals->ops_done;
        job->ops_seen_ns = now;
    }
    bool moves = job->ops_seen_ns && now - job->ops_seen_ns < LONG_WAIT_NS;
    /* A communicator made since then means that the job has gone on without the dead. */
    if (job->last_death_ns > job->last_comm_ns)
        return "dead";
    if (job->last_ending_ns > job->last_comm_ns)
        return "failed";
    if (job->comms_total == 0)
        return "starting";
    if (totals->cycle)
        return "stuck";
    if (totals->oldest_age_ns > LONG_WAIT_NS)
        return moves ? "slow" : "stuck";
    return totals->ops_waiting || moves ? "running" : "idle";
}
