/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about tenants, jobs and communicators: jobs, comms, usage. */
#include <string.h>
#include <sys/stat.h>

#include "daemon/admin.h"

static const char *process_word(const struct occl_session *session) {
    bool killed;
    return session ? occl_identity_state_word(occl_identity_process_state(session, &killed))
                   : "gone";
}

/* ---- jobs ---- */

static json_t *processes(const struct occl_job *job) {
    json_t *list = json_array();
    const struct occl_session *session;
    TAILQ_FOREACH(session, &job->sessions, in_list) {
        json_t *entry = json_object();
        if (!session->page)
            continue;
        occl_admin_put_number(entry, "session_id", session->id >> 16);
        occl_admin_put_number(entry, "pid", (uint64_t)session->pid);
        occl_admin_put_number(entry, "own_pid", session->own_pid);
        occl_admin_put(entry, "rank_hint",
                       session->rank_hint < 0 ? json_null() : json_integer(session->rank_hint));
        occl_admin_put_text(entry, "program", session->program);
        occl_admin_put_number(entry, "uid", session->uid);
        occl_admin_put_text(entry, "process", process_word(session));
        occl_admin_put_number(entry, "threads_using", occl_peek32(&session->page->threads_using));
        occl_admin_put_number(entry, "threads_waiting",
                              occl_peek32(&session->page->threads_waiting));
        (void)json_array_append_new(list, entry);
    }
    return list;
}

static json_t *origins(const struct occl_job *job) {
    json_t *object = json_object();
    occl_admin_put_text(object, "class", job->class_set ? "set" : "default");
    occl_admin_put_text(object, "weight", job->weight_set ? "set" : "default");
    occl_admin_put_text(object, "stall_interval", job->stall_set ? "set" : "default");
    return object;
}

bool occl_admin_in_cycle(const struct occl_wait_graph *graph, const struct occl_job *job) {
    for (uint32_t i = 0; i < graph->count; i++)
        if (graph->nodes[i].definite && graph->nodes[i].session->job == job)
            return true;
    return false;
}

static json_t *job_object(const struct occl_admin_query *query, struct occl_job *job,
                          const struct occl_wait_graph *graph) {
    struct occl_job_totals totals;
    json_t *object = json_object();
    occl_totals_job(job, graph->list, &totals);
    totals.cycle = occl_admin_in_cycle(graph, job);
    occl_admin_put_text(object, "job", job->name);
    occl_admin_put_number(object, "job_id", job->id);
    occl_admin_put_text(object, "tenant", job->tenant->text);
    occl_admin_put_number(object, "uid", job->tenant->uid);
    occl_admin_put_text(object, "tag", job->tenant->tag);
    occl_admin_put_text(object, "state", occl_totals_state(job, &totals));
    occl_admin_put_number(object, "class", job->job_class);
    occl_admin_put_number(object, "weight", job->weight);
    occl_admin_put_number(object, "tenant_weight", job->tenant->weight);
    occl_admin_put_number(object, "stall_interval_ns", job->stall_interval_ns);
    occl_admin_put(object, "origins", origins(job));
    occl_admin_put_number(object, "sessions", job->session_count);
    occl_admin_put_number(object, "comms", job->comm_count);
    occl_admin_put_number(object, "regions", HASH_CNT(in_job, job->regions));
    occl_admin_put_number(object, "registered_bytes", job->registered_bytes);
    occl_admin_put_number(object, "ops_total", totals.ops_done);
    occl_admin_put_number(object, "errors_total", totals.errors);
    occl_admin_put_number(object, "deaths_total", job->deaths_total);
    occl_admin_put_number(object, "ops_waiting", totals.ops_waiting);
    occl_admin_put_number(object, "oldest_op_age_ns", totals.oldest_age_ns);
    occl_admin_put_number(object, "age_ns", occl_admin_age(query->daemon, job->born_ns));
    occl_admin_put(object, "processes", processes(job));
    return object;
}

int occl_admin_jobs(struct occl_admin_query *query, json_t *answer) {
    struct occl_op_list list;
    struct occl_wait_graph graph;
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    struct occl_job *job;
    json_t *jobs = json_array();
    occl_totals_scan(query->daemon, &list);
    if (occl_why_graph_build(query->daemon, &list, &graph) != OCCL_OK)
        graph = (struct occl_wait_graph){&list, 0, NULL, 0};
    HASH_ITER (in_daemon, query->daemon->tenants, tenant, next) {
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant) {
            if (occl_admin_sees(query, job))
                (void)json_array_append_new(jobs, job_object(query, job, &graph));
        }
    }
    occl_why_graph_free(&graph);
    occl_opview_free(&list);
    occl_admin_put(answer, "jobs", jobs);
    return OCCL_OK;
}

/* ---- comms ---- */

json_t *occl_admin_last_op(const struct occl_note_view *note) {
    if (note->ops_done == 0)
        return json_null();
    json_t *object = json_object();
    occl_admin_put_text(object, "kind", occl_opview_kind(note->last_kind));
    occl_admin_put_number(object, "tag", note->last_key.tag);
    occl_admin_put_number(object, "instance", note->last_key.instance);
    return object;
}

static json_t *member_object(const struct occl_admin_query *query, const struct occl_comm *comm,
                             uint32_t rank) {
    static const char *const states[] = {"live", "left", "gone"};
    const struct occl_seat *seat = &comm->seats[rank];
    struct occl_note_view note;
    json_t *object = json_object();
    occl_opview_note(comm, rank, &note);
    occl_admin_put_number(object, "rank", rank);
    occl_admin_put_text(object, "host", seat->who.host);
    occl_admin_put_number(object, "pid", seat->who.pid);
    occl_admin_put_number(object, "own_pid", seat->who.own_pid);
    occl_admin_put_number(object, "session_id", seat->who.session_id >> 16);
    occl_admin_put(object, "rank_hint",
                   seat->who.rank_hint < 0 ? json_null() : json_integer(seat->who.rank_hint));
    occl_admin_put_text(object, "state", states[seat->state]);
    occl_admin_put_text(object, "cause", seat->cause);
    occl_admin_put_text(object, "process", process_word(seat->session));
    occl_admin_put(object, "last_op", occl_admin_last_op(&note));
    occl_admin_put(object, "last_activity_age_ns",
                   note.last_ns
                       ? json_integer((json_int_t)occl_admin_age(query->daemon, note.last_ns))
                       : json_null());
    occl_admin_put_number(object, "ops_total", note.ops_done);
    occl_admin_put_number(object, "bytes_total", note.bytes_done);
    occl_admin_put_number(object, "executed_bytes_total", note.bytes_executed);
    occl_admin_put_number(object, "errors_total", note.errors);
    return object;
}

static json_t *comm_object(const struct occl_admin_query *query, const struct occl_comm *comm,
                           const struct occl_op_list *list) {
    static const char *const states[] = {"live", "failed", "revoked", "aborted", "destroyed"};
    json_t *object = json_object();
    json_t *members = json_array();
    struct stat st = {0};
    uint64_t waiting = 0;
    for (uint32_t i = 0; i < list->count; i++)
        waiting += list->ops[i].comm == comm;
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        if (query->rank < 0 || query->rank == rank)
            (void)json_array_append_new(members, member_object(query, comm, rank));
    (void)fstat(comm->memfd.fd, &st);
    occl_admin_put_text(object, "comm", comm->name);
    occl_admin_put_number(object, "comm_uid", comm->uid);
    occl_admin_put_text(object, "job", comm->job->name);
    occl_admin_put_text(object, "tenant", comm->job->tenant->text);
    occl_admin_put_text(object, "state", states[comm->state]);
    occl_admin_put_text(object, "cause", comm->end_text);
    occl_admin_put(object, "about_rank",
                   comm->about_rank < comm->ranks ? json_integer(comm->about_rank) : json_null());
    occl_admin_put_number(object, "ranks", comm->ranks);
    occl_admin_put_number(object, "class",
                          comm->priority_set ? comm->priority : comm->job->job_class);
    occl_admin_put_text(object, "class_origin", comm->priority_set ? "api" : "job");
    occl_admin_put_number(object, "default_deadline_ns",
                          comm->default_deadline_ns ? comm->default_deadline_ns
                                                    : query->daemon->config.default_timeout_ns);
    occl_admin_put_text(object, "default_deadline_origin",
                        comm->default_deadline_ns ? "api" : "default");
    occl_admin_put_number(object, "page_bytes", comm->records.page_bytes);
    occl_admin_put_number(object, "resident_bytes", (uint64_t)st.st_blocks * 512);
    occl_admin_put_number(object, "ops_waiting", waiting);
    occl_admin_put_number(object, "age_ns", occl_admin_age(query->daemon, comm->born_ns));
    occl_admin_put(object, "members", members);
    return object;
}

int occl_admin_comms(struct occl_admin_query *query, json_t *answer) {
    struct occl_op_list list;
    struct occl_comm *comm;
    struct occl_comm *next;
    json_t *comms = json_array();
    occl_totals_scan(query->daemon, &list);
    HASH_ITER (in_daemon, query->daemon->comms, comm, next) {
        if (occl_admin_wants_comm(query, comm))
            (void)json_array_append_new(comms, comm_object(query, comm, &list));
    }
    occl_opview_free(&list);
    occl_admin_put(answer, "comms", comms);
    return OCCL_OK;
}

/* ---- usage ---- */

static json_t *job_usage(struct occl_job *job, const struct occl_op_list *list) {
    struct occl_job_totals totals;
    json_t *object = json_object();
    occl_totals_job(job, list, &totals);
    occl_admin_put_text(object, "job", job->name);
    occl_admin_put_number(object, "job_id", job->id);
    occl_admin_put_number(object, "lane_cpu_ns", totals.engine.lane_cpu_ns);
    occl_admin_put_number(object, "bytes_moved_total", totals.engine.bytes_moved);
    occl_admin_put_number(object, "executed_bytes_total", totals.bytes_executed);
    occl_admin_put_number(object, "op_bytes_total", totals.bytes_done);
    occl_admin_put_number(object, "ops_total", totals.ops_done);
    occl_admin_put_number(object, "preemptions_total", totals.engine.preemptions);
    occl_admin_put_number(object, "errors_total", totals.errors);
    occl_admin_put_number(object, "queue_depth", totals.engine.queue_depth);
    occl_admin_put_number(object, "registered_bytes", job->registered_bytes);
    return object;
}

static json_t *tenant_usage(const struct occl_admin_query *query, struct occl_tenant *tenant,
                            const struct occl_op_list *list) {
    json_t *object = json_object();
    json_t *quota = json_object();
    json_t *jobs = json_array();
    struct occl_job *job;
    TAILQ_FOREACH(job, &tenant->jobs, in_tenant)
    if (occl_admin_sees(query, job))
        (void)json_array_append_new(jobs, job_usage(job, list));
    occl_admin_put_number(quota, "sessions", tenant->quota_sessions);
    occl_admin_put_number(quota, "comms", tenant->quota_communicators);
    occl_admin_put_number(quota, "ops", tenant->quota_ops);
    occl_admin_put_number(quota, "regions", tenant->quota_regions);
    occl_admin_put_number(quota, "registered_bytes", tenant->charge.limit_bytes);
    occl_admin_put_text(object, "tenant", tenant->text);
    occl_admin_put_number(object, "uid", tenant->uid);
    occl_admin_put_text(object, "tag", tenant->tag);
    occl_admin_put_number(object, "weight", tenant->weight);
    occl_admin_put_number(object, "sessions", tenant->sessions);
    occl_admin_put_number(object, "comms", tenant->communicators);
    occl_admin_put_number(object, "regions", tenant->regions);
    occl_admin_put_number(object, "registered_bytes", tenant->charge.used_bytes);
    occl_admin_put_number(object, "registered_peak_bytes", tenant->charge.peak_bytes);
    occl_admin_put(object, "quota", quota);
    occl_admin_put(object, "jobs", jobs);
    return object;
}

int occl_admin_usage(struct occl_admin_query *query, json_t *answer) {
    struct occl_op_list list;
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    json_t *tenants = json_array();
    occl_totals_scan(query->daemon, &list);
    HASH_ITER (in_daemon, query->daemon->tenants, tenant, next) {
        const struct occl_job *first = TAILQ_FIRST(&tenant->jobs);
        bool visible = false;
        for (const struct occl_job *job = first; job; job = TAILQ_NEXT(job, in_tenant))
            visible = visible || occl_admin_sees(query, job);
        if (visible)
            (void)json_array_append_new(tenants, tenant_usage(query, tenant, &list));
    }
    occl_opview_free(&list);
    occl_admin_put(answer, "tenants", tenants);
    return OCCL_OK;
}
