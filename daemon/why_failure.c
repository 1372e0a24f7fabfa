/* SPDX-License-Identifier: Apache-2.0 */
/* What a job remembers of communicators that ended, so that `why` can name the culprit after the
 * ops are gone. A ring of the last ones; it goes with the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/why.h"

static struct occl_job_failure *next_slot(struct occl_job *job) {
    if (!job->failures)
        job->failures = calloc(OCCL_FAILURES_KEPT, sizeof *job->failures);
    /* Without memory for it the failure itself still takes its course. */
    if (!job->failures)
        return NULL;
    return &job->failures[job->failures_total++ % OCCL_FAILURES_KEPT];
}

static void remember(const struct occl_comm *comm, int status, uint32_t rank, const char *cause,
                     const char *verdict) {
    struct occl_job_failure *slot = next_slot(comm->job);
    if (!slot)
        return;
    memset(slot, 0, sizeof *slot);
    (void)snprintf(slot->comm, sizeof slot->comm, "%s", comm->name);
    (void)snprintf(slot->cause, sizeof slot->cause, "%s", cause);
    slot->comm_uid = comm->uid;
    slot->status = status;
    slot->rank = rank;
    slot->pid = rank < comm->ranks ? comm->seats[rank].who.pid : 0;
    slot->session_id = rank < comm->ranks ? comm->seats[rank].who.session_id >> 16 : 0;
    slot->verdict = verdict;
    slot->at_ns = occl_loop_now_ns(comm->job->tenant->daemon->loop);
}

void occl_why_comm_ended(const struct occl_comm *comm) {
    const char *verdict = "dead";
    const char *cause = comm->end_text;
    if (comm->state == OCCL_COMM_REVOKED)
        verdict = "revoked";
    else if (comm->state == OCCL_COMM_ABORTED)
        verdict = "aborted";
    else if (comm->about_rank < comm->ranks) {
        cause = comm->seats[comm->about_rank].cause;
        if (strstr(cause, "unkillable"))
            verdict = "unkillable";
    }
    remember(comm, comm->end_status, comm->about_rank, cause, verdict);
}

void occl_why_member_left(struct occl_comm *comm, uint32_t rank) {
    remember(comm, OCCL_E_PEER_FAILED, rank, comm->seats[rank].cause, "left");
}
