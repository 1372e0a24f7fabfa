/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated application process: goes through its script, submits, waits. */
#include "tools/sim/cluster.h"

#define THINK_MAX_NS 3000u
/* The death or time-out of a member ends the op at every other member within this time, whatever
 * lanes execute: report of the exit, one slow and delayed control message, with a wide margin. */
#define FAILURE_BOUND_NS 20000000u

/* At most one event of a rank is due; an earlier one replaces it. */
static void go_on_at(struct sim_cluster *cluster, struct sim_rank *rank, uint64_t at_ns) {
    if (at_ns >= rank->event_ns)
        return;
    rank->event_ns = at_ns;
    sim_schedule(cluster, at_ns, SIM_EVENT_RANK, rank->job, rank->rank, 0);
}

static void submit(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t number) {
    struct sim_request *request = &rank->requests[number];
    request->submitted = true;
    request->submitted_ns = cluster->now_ns;
    rank->submitted[rank->submitted_count++] = number;
    sim_shape_open(cluster, &cluster->jobs[rank->job].ops[number], rank);
    sim_member_submit(cluster, rank, number);
}

/* An error has its cause, and comes soon after it. */
static void check_failure(struct sim_cluster *cluster, const struct sim_rank *rank, uint32_t op) {
    const struct sim_request *request = &rank->requests[op];
    const struct sim_job *job = &cluster->jobs[rank->job];
    uint64_t since = job->killed_ns, aborted_ns = job->ops[op].aborted_ns;
    bool timeout = request->status == OCCL_E_TIMEOUT && aborted_ns > 0;
    bool mismatch = request->status == OCCL_E_MISMATCH && job->ops[op].odd_rank != SIM_NOBODY;
    since = aborted_ns > since ? aborted_ns : since;
    since = request->submitted_ns > since ? request->submitted_ns : since;
    cluster->timeouts += timeout;
    cluster->mismatches += mismatch;
    if (mismatch) /* it ends when the last one comes */
        return;
    if (cluster->now_ns > since + FAILURE_BOUND_NS)
        sim_broken(cluster, "late: job %u op %u rank %u learned of the end after %llu us",
                   rank->job, op, rank->rank, (unsigned long long)(cluster->now_ns - since) / 1000);
    if (job->dead_rank < 0 && !timeout)
        sim_broken(cluster, "status: job %u op %u rank %u failed with %d though nobody died",
                   rank->job, op, rank->rank, request->status);
}

void sim_rank_complete(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t op,
                       int32_t status) {
    struct sim_request *request = &rank->requests[op];
    if (rank->dead)
        return;
    if (!request->submitted || ++request->completions != 1) {
        sim_broken(cluster, "exactly once: job %u op %u rank %u completed %u times", rank->job, op,
                   rank->rank, request->completions);
        return;
    }
    request->status = status;
    if (status != OCCL_OK)
        check_failure(cluster, rank, op);
    sim_shape_check(cluster, &cluster->jobs[rank->job].ops[op], rank, status);
    while (rank->head < rank->submitted_count &&
           rank->requests[rank->submitted[rank->head]].completions > 0)
        rank->head++;
    if (cluster->options.ordered)
        sim_lane_wake(&cluster->nodes[rank->node]);
    go_on_at(cluster, rank, cluster->now_ns);
}

void sim_rank_start(struct sim_cluster *cluster, struct sim_rank *rank, uint64_t at_ns) {
    rank->event_ns = UINT64_MAX;
    go_on_at(cluster, rank, at_ns);
}

void sim_rank_go_on(struct sim_cluster *cluster, struct sim_rank *rank) {
    if (rank->event_ns != cluster->now_ns) /* replaced by an earlier one */
        return;
    rank->event_ns = UINT64_MAX;
    if (rank->dead || rank->at == rank->script_length) {
        if (!rank->dead)
            sim_member_settle(cluster, rank);
        return;
    }
    if (cluster->now_ns >= rank->stop_at_ns && rank->stop_for_ns > 0) {
        rank->busy_until_ns = cluster->now_ns + rank->stop_for_ns; /* SIGSTOP */
        rank->stop_for_ns = 0;
    }
    struct sim_item item = rank->script[rank->at];
    if (rank->busy_until_ns > cluster->now_ns) {
        go_on_at(cluster, rank, rank->busy_until_ns);
        return;
    }
    if (item.word == SIM_WAIT && rank->requests[item.op].completions == 0)
        return; /* its completion brings us back */
    rank->at++;
    if (item.word == SIM_SUBMIT) {
        rank->busy_until_ns = cluster->now_ns + seeded_below(&cluster->seeded, THINK_MAX_NS);
        submit(cluster, rank, item.op);
    }
    go_on_at(cluster, rank,
             rank->busy_until_ns > cluster->now_ns ? rank->busy_until_ns : cluster->now_ns);
}

void sim_rank_kill(struct sim_cluster *cluster, struct sim_rank *rank) {
    struct sim_job *job = &cluster->jobs[rank->job];
    rank->dead = true;
    if (job->dead_rank < 0) {
        job->dead_rank = (int32_t)rank->rank;
        job->killed_ns = cluster->now_ns;
    }
    /* The kernel reports the exit a little later. */
    sim_schedule(cluster, cluster->now_ns + 1000 + seeded_below(&cluster->seeded, 50000),
                 SIM_EVENT_REAP, rank->job, rank->rank, 0);
}
