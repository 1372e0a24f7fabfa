/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: after each round, when nothing moves any more, and when all have left. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/rendezvous.h"
#include "tools/sim/host.h"

/* From the kernel's report to the end of the communicator, and what the rounds in between take. */
#define DEATH_BOUND_NS 10000000u
#define DEATH_MARGIN_NS 1000000u

/* It ended without saying goodbye, and was a member of its job before. */
static bool failed(const struct sim_process *process) {
    return process->page && process->phase == SIM_OVER && !process->detaching;
}

static uint32_t state_of(const struct sim_hcomm *comm) {
    if (!comm->records.base)
        return OCCL_COMM_LIVE;
    return occl_rec_kind(occl_observe32(&occl_records_header(&comm->records)->comm_state));
}

void sim_check_deaths(struct sim_host *host) {
    uint64_t now = sim_host_now(host) - host->jumped_ns;
    for (uint32_t i = 0; i < host->comm_count; i++) {
        const struct sim_hcomm *comm = host->comms[i];
        for (uint32_t rank = 0; rank < comm->ranks; rank++) {
            const struct sim_process *p = &host->processes[comm->seats[rank].process];
            if (p->shown_ns == 0 || p->detaching || comm->seats[rank].left || !p->page ||
                now < p->shown_ns + DEATH_BOUND_NS + DEATH_MARGIN_NS || !comm->records.base)
                continue;
            uint64_t dead = occl_observe64(&occl_records_header(&comm->records)->dead_mask);
            if (state_of(comm) == OCCL_COMM_LIVE || !(dead >> rank & 1))
                sim_host_broken(host, "late: rank %u of communicator %llu ended and nobody knows",
                                rank, (unsigned long long)comm->uid);
        }
    }
}

static bool knows(const struct occl_daemon *daemon, const struct sim_hjob *job) {
    const struct occl_tenant *tenant;
    const struct occl_job *found;
    for (tenant = daemon->tenants; tenant; tenant = tenant->in_daemon.next)
        TAILQ_FOREACH(found, &tenant->jobs, in_tenant)
    if (tenant->uid == job->uid && strcmp(found->name, job->name) == 0)
        return true;
    return false;
}

void sim_check_jobs(struct sim_host *host) {
    for (uint32_t i = 0; i < host->options.jobs; i++) {
        struct sim_hjob *job = &host->jobs[i];
        bool known = knows(host->daemon, job);
        if (job->known && !known) {
            job->forgotten_ns = sim_host_now(host);
            for (uint32_t m = 0; m < job->meet_count; m++) {
                job->meets[m].failed_status = OCCL_OK;
                job->meets[m].first_due_ns = SIM_NEVER;
                job->meets[m].uid = 0;
                memset(job->meets[m].asked, 0, job->meets[m].ranks * sizeof(bool));
            }
        }
        job->known = known;
    }
}

/* ---- at rest ---- */

/* A process that can still do its part. */
static bool can_come(const struct sim_process *process) {
    return sim_process_lives(process) && !process->detaching;
}

static bool listens(const struct sim_process *process) {
    return can_come(process) && process->phase == SIM_ATTACHED && !process->misbehaved;
}

static bool create_may_wait(const struct sim_host *host, const struct sim_hjob *job,
                            const struct sim_meet *meet) {
    bool all = true, doubtful = false;
    for (uint32_t rank = 0; rank < meet->ranks; rank++) {
        const struct sim_process *p = &host->processes[meet->process_of[rank]];
        all = all && meet->asked[rank];
        /* Whether the daemon has read what it sent before its end, nobody knows. */
        bool unread = p->misbehaved || p->slow;
        doubtful = doubtful || (meet->asked[rank] && unread);
        if (!meet->asked[rank] || can_come(p) || unread || p->phase != SIM_OVER)
            continue;
        return false;
    }
    if (doubtful && !job->innocent)
        return true;
    return !all && sim_host_now(host) < meet->first_due_ns && !host->drained_ns && !meet->uid &&
           meet->failed_status == OCCL_OK;
}

static bool split_may_wait(const struct sim_host *host, const struct sim_meet *meet,
                           const struct sim_ask *ask) {
    const struct sim_split_plan *split = &meet->splits[ask->which];
    bool all = true;
    for (uint32_t i = 0; i < host->comm_count; i++) {
        const struct sim_hcomm *comm = host->comms[i];
        if (comm->uid != meet->uid)
            continue;
        if (state_of(comm) != OCCL_COMM_LIVE)
            return false;
        for (uint32_t rank = 0; rank < comm->ranks; rank++) {
            if (comm->seats[rank].left || !can_come(&host->processes[comm->seats[rank].process]))
                return false;
            all = all && split->asked[rank];
        }
    }
    return !all && sim_host_now(host) < ask->due_ns;
}

static void check_asks(struct sim_host *host, const struct sim_process *process) {
    const struct sim_hjob *job = &host->jobs[process->job];
    for (uint32_t i = 0; i < process->ask_count; i++) {
        const struct sim_ask *ask = &process->asks[i];
        bool may = false;
        if (ask->type == OCCL_MSG_COMM_CREATE && !ask->odd)
            may = create_may_wait(host, job, &job->meets[ask->meet]);
        else if (ask->type == OCCL_MSG_COMM_SPLIT)
            may = split_may_wait(host, &job->meets[ask->meet], ask);
        if (!may)
            sim_host_broken(host, "unanswered: %s %llu of process %u (job %u)",
                            occl_msg_name(ask->type), (unsigned long long)ask->request,
                            process->number, process->job);
    }
}

/* An op that has not ended must miss somebody who can still come, and nobody who cannot. */
static bool op_may_wait(const struct sim_host *host, const struct sim_hcomm *comm,
                        const struct sim_meet *meet, const struct sim_meet_op *op) {
    bool awaited = false;
    if (state_of(comm) != OCCL_COMM_LIVE)
        return false;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        const struct sim_seat *seat = &comm->seats[rank];
        if (!(sim_ops_members(meet, op) >> rank & 1) || op->parts[rank].phase != SIM_PART_NONE)
            continue;
        awaited = true;
        if (seat->left || !can_come(&host->processes[seat->process]))
            return false;
    }
    return awaited;
}

static void check_ops(struct sim_host *host, const struct sim_hcomm *comm, uint32_t rank) {
    const struct sim_meet *meet = &host->jobs[comm->job].meets[comm->meet];
    if (comm->split >= 0)
        return;
    for (uint32_t which = 0; which < meet->op_count; which++) {
        const struct sim_meet_op *op = &meet->ops[which];
        enum sim_part_phase phase = op->parts[rank].phase;
        if (phase != SIM_PART_RECORD && phase != SIM_PART_RING)
            continue;
        bool withdrawn = phase == SIM_PART_RING && op->parts[rank].withdrawn;
        if (withdrawn || !op_may_wait(host, comm, meet, op))
            sim_host_broken(host, "stuck: op %u of communicator %llu at rank %u (%s)", which,
                            (unsigned long long)comm->uid, rank,
                            phase == SIM_PART_RECORD ? "record" : "ring");
    }
}

/* A region that a process has mapped exists, or it was told. */
static void check_mapped(struct sim_host *host, const struct sim_process *process) {
    const struct sim_hjob *job = &host->jobs[process->job];
    bool exists = false;
    for (uint32_t i = job->first_process; i < job->first_process + job->ranks; i++) {
        const struct sim_process *p = &host->processes[i];
        exists |= p->region == process->mapped_region && !p->region_freed && can_come(p);
    }
    if (process->mapped && !exists)
        sim_host_broken(host, "untold: process %u has mapped region %u, which has gone",
                        process->number, process->mapped_region);
}

static void check_seats(struct sim_host *host, const struct sim_hcomm *comm) {
    const struct occl_comm_page *page = occl_records_header(&comm->records);
    bool ended = state_of(comm) != OCCL_COMM_LIVE;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        const struct sim_seat *seat = &comm->seats[rank];
        const struct sim_process *p = &host->processes[seat->process];
        if (failed(p) && p->shown_ns && !seat->left && !ended)
            sim_host_broken(host, "unnoticed: rank %u of communicator %llu has failed", rank,
                            (unsigned long long)comm->uid);
        bool gone = (failed(p) && p->shown_ns) || (p->phase == SIM_OVER && !p->misbehaved);
        if (gone && !(occl_observe64(&page->dead_mask) >> rank & 1) && !host->daemon_over)
            sim_host_broken(host, "dead mask: rank %u of communicator %llu", rank,
                            (unsigned long long)comm->uid);
        if ((occl_observe64(&page->gone_mask) >> rank & 1) && !p->exited)
            sim_host_broken(host, "gone mask: rank %u of communicator %llu has not exited", rank,
                            (unsigned long long)comm->uid);
        if (!seat->answered || seat->left || !listens(p))
            continue;
        if (seat->end_events != ended)
            sim_host_broken(host, "events: rank %u of communicator %llu heard of %u ends", rank,
                            (unsigned long long)comm->uid, seat->end_events);
        check_ops(host, comm, rank);
    }
}

void sim_check_rest(struct sim_host *host) {
    for (uint32_t i = 0; i < host->process_count; i++) {
        const struct sim_process *p = &host->processes[i];
        if (host->jobs[p->job].innocent && !host->drained_ns &&
            !(p->phase == SIM_OVER && p->detaching))
            sim_host_broken(host, "no progress: process %u of job %u is not through", p->number,
                            p->job);
        if (listens(p)) {
            check_asks(host, p);
            check_mapped(host, p);
        }
    }
    for (uint32_t i = 0; i < host->comm_count; i++) {
        bool anybody = false;
        for (uint32_t rank = 0; rank < host->comms[i]->ranks; rank++)
            anybody |= !host->comms[i]->seats[rank].left &&
                       can_come(&host->processes[host->comms[i]->seats[rank].process]);
        if (host->comms[i]->records.base && anybody)
            check_seats(host, host->comms[i]);
    }
}

/* ---- when all have left ---- */

uint32_t sim_check_descriptors(void) {
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        abort();
    while (readdir(folder))
        count++;
    (void)closedir(folder);
    return count;
}

static void expect_none(struct sim_host *host, const char *what, uint64_t found) {
    if (found != 0)
        sim_host_broken(host, "left behind: %llu %s", (unsigned long long)found, what);
}

void sim_check_empty(struct sim_host *host) {
    const struct occl_daemon *d = host->daemon;
    struct occl_engine_counters engine;
    occl_engine_counters(d->engine, &engine);
    /* Whoever connected in its last round is sent away when it is destroyed. */
    if (!host->daemon_over)
        expect_none(host, "sessions", HASH_CNT(in_daemon, d->sessions));
    if (!host->daemon_over)
        expect_none(host, "strays", d->stray_count);
    expect_none(host, "tenants", HASH_CNT(in_daemon, d->tenants));
    expect_none(host, "communicators", HASH_CNT(in_daemon, d->comms));
    expect_none(host, "unique ids", HASH_CNT(in_daemon, d->meetings));
    expect_none(host, "tenants counted", d->tenant_count);
    expect_none(host, "jobs counted", d->job_count);
    expect_none(host, "processes counted", d->rank_sessions);
    expect_none(host, "swept communicators", d->comms_swept);
    expect_none(host, "bytes charged", d->charge.used_bytes);
    expect_none(host, "jobs in the engine", engine.jobs);
    expect_none(host, "sessions in the engine", engine.sessions);
    expect_none(host, "communicators in the engine", engine.comms);
    expect_none(host, "ops in the engine", engine.ops);
    if (host->daemon_over)
        return;
    /* Listener, mailbox, and the simulator's own. */
    if (occl_loop_watches(d->loop) != 3)
        sim_host_broken(host, "left behind: %u watches", occl_loop_watches(d->loop) - 3);
    if (host->kernel.due_ns != SIM_NEVER)
        sim_host_broken(host, "left behind: a timer");
}
