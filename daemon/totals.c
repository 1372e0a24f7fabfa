/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over a job, for metrics and administration. */
#include <string.h>

#include "daemon/view.h"

/* A wait this old makes a job slow or stuck in its state word. */
#define LONG_WAIT_NS 2000000000ull

void occl_totals_job(struct occl_job *job, struct occl_job_totals *out_totals) {
    struct occl_daemon *daemon = job->tenant->daemon;
    const struct occl_comm *comm;
    memset(out_totals, 0, sizeof *out_totals);
    out_totals->ops_done = job->ops_gone;
    out_totals->errors = job->errors_gone;
    out_totals->bytes_done = job->bytes_gone;
    out_totals->bytes_executed = job->executed_gone_bytes;
    TAILQ_FOREACH(comm, &job->comms, in_job) {
        out_totals->ops_done += comm->noted.ops;
        out_totals->errors += comm->noted.errors;
        out_totals->bytes_done += comm->noted.bytes;
        out_totals->bytes_executed += comm->noted.executed_bytes;
    }
    if (!occl_engine_job_usage(daemon->engine, job->id, &out_totals->engine))
        memset(&out_totals->engine, 0, sizeof out_totals->engine);
}

void occl_totals_view(const struct occl_view *view, struct occl_job_totals *out_totals) {
    occl_totals_job(view->job, out_totals);
    out_totals->ops_waiting = view->list.count + view->cut;
    for (uint32_t i = 0; i < view->list.count; i++) {
        uint64_t since_ns = view->list.ops[i].since_ns;
        uint64_t age_ns = since_ns < view->now_ns ? view->now_ns - since_ns : 0;
        if (age_ns > out_totals->oldest_age_ns)
            out_totals->oldest_age_ns = age_ns;
    }
    for (uint32_t i = 0; i < view->graph.count; i++)
        out_totals->cycle = out_totals->cycle || view->graph.nodes[i].definite;
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
