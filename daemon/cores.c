/* SPDX-License-Identifier: Apache-2.0 */
/* Cores and the processes that want them. A rank may spin while it waits if every rank can have a
 * core of its own. How many there are for all of them together, no process can know alone: a
 * launcher may have bound each to one. So the daemon asks the kernel where each attached process
 * may run, and tells in the job pages how many cores the ranks of the job, and of the node, have
 * between them. What a process changes later is not seen; a rank is then only slower than it could
 * be. */
#include <sched.h>
#include <unistd.h>

#include "daemon/occld.h"

/* All that are online: for a process that the kernel does not let us ask about. */
static void all_cores(cpu_set_t *out_set) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(out_set);
    for (int i = 0; i < online && i < CPU_SETSIZE; i++)
        CPU_SET(i, out_set);
}

void occl_cores_ask(struct occl_session *session) {
    CPU_ZERO(&session->cores);
    if (session->pid <= 0 ||
        sched_getaffinity(session->pid, sizeof session->cores, &session->cores) != 0)
        all_cores(&session->cores); /* it has ended, is hidden, or has more CPUs than the set */
}

static void tell_job(struct occl_job *job, uint32_t node_ranks, uint32_t node_cores) {
    cpu_set_t cores;
    struct occl_session *session;
    CPU_ZERO(&cores);
    TAILQ_FOREACH(session, &job->sessions, in_list)
    CPU_OR(&cores, &cores, &session->cores);
    occl_note32(&job->page->job_ranks, job->session_count);
    occl_note32(&job->page->job_cores, (uint32_t)CPU_COUNT(&cores));
    occl_note32(&job->page->node_ranks, node_ranks);
    occl_note32(&job->page->node_cores, node_cores);
}

void occl_cores_tell(struct occl_daemon *daemon) {
    cpu_set_t cores;
    struct occl_tenant *tenant, *next_tenant;
    struct occl_job *job;
    struct occl_session *session;
    CPU_ZERO(&cores);
    HASH_ITER (in_daemon, daemon->tenants, tenant, next_tenant)
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant)
    TAILQ_FOREACH(session, &job->sessions, in_list)
    CPU_OR(&cores, &cores, &session->cores);
    HASH_ITER (in_daemon, daemon->tenants, tenant, next_tenant)
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant)
    tell_job(job, daemon->rank_sessions, (uint32_t)CPU_COUNT(&cores));
}
