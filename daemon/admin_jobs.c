/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about tenants, jobs and communicators: jobs, comms, usage. */
#include <string.h>
#include <sys/stat.h>

#include "daemon/admin.h"

static const char *process_word(const struct occl_admin_request *request,
                                const struct occl_session *session) {
    const struct occl_wait_node *node = occl_why_node(&request->view.graph, session);
    return occl_identity_state_word(!session ? 'G' : node && node->state ? node->state : '?');
}

/* ---- jobs ---- */

static json_t *process_object(const struct occl_admin_request *request,
                              const struct occl_session *session) {
    json_t *entry = json_object();
    occl_admin_put_number(entry, "session_id", session->id >> 16);
    occl_admin_put_number(entry, "pid", (uint64_t)session->pid);
    occl_admin_put_number(entry, "own_pid", session->own_pid);
    occl_admin_put(entry, "rank_hint",
                   session->rank_hint < 0 ? json_null() : json_integer(session->rank_hint));
    occl_admin_put_text(entry, "program", session->program);
    occl_admin_put_number(entry, "uid", session->uid);
    occl_admin_put_text(entry, "process", process_word(request, session));
    occl_admin_put_number(entry, "threads_using", occl_peek32(&session->page->threads_using));
    occl_admin_put_number(entry, "threads_waiting", occl_peek32(&session->page->threads_waiting));
    return entry;
}

static json_t *origins(const struct occl_job *job) {
    json_t *object = json_object();
    occl_admin_put_text(object, "class", job->class_set ? "set" : "default");
    occl_admin_put_text(object, "weight", job->weight_set ? "set" : "default");
    occl_admin_put_text(object, "stall_interval", job->stall_set ? "set" : "default");
    return object;
}

static json_t *job_object(const struct occl_admin_request *request) {
    struct occl_job *job = request->view.job;
    struct occl_job_totals totals;
    json_t *object = json_object();
    occl_totals_view(&request->view, &totals);
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
    occl_admin_put_number(object, "age_ns", occl_admin_age(request->daemon, job->born_ns));
    return object;
}

/* The job, then its processes one by one, then the brackets behind them. */
static bool jobs_item(struct occl_admin_request *request) {
    const struct occl_session *session = request->session;
    if (request->stage == 0) {
        if (!occl_admin_room(request, OCCL_ADMIN_LIST_MAIN)) {
            request->cut[OCCL_ADMIN_CUT_JOBS]++;
            return false;
        }
        occl_admin_open(request, OCCL_ADMIN_LIST_MAIN, job_object(request), "processes");
        request->session = TAILQ_FIRST(&request->view.job->sessions);
        request->stage = 1;
        return true;
    }
    if (!session) {
        occl_admin_close(request, OCCL_ADMIN_LIST_MAIN);
        return false;
    }
    request->session = TAILQ_NEXT(session, in_list);
    if (session->page && occl_admin_room(request, OCCL_ADMIN_LIST_MAIN))
        occl_admin_element(request, OCCL_ADMIN_LIST_MAIN, process_object(request, session));
    else if (session->page)
        request->cut[OCCL_ADMIN_CUT_PROCESSES]++;
    return true;
}

const struct occl_admin_verb occl_admin_verb_jobs = {
    .name = "jobs",
    .wants =
        OCCL_VIEW_WANT_OPS | OCCL_VIEW_WANT_NOTES | OCCL_VIEW_WANT_STATES | OCCL_VIEW_WANT_GRAPH,
    .lists = {[OCCL_ADMIN_LIST_MAIN] = "jobs", [OCCL_ADMIN_LIST_CUT] = "cut"},
    .item = jobs_item,
};

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

static json_t *member_object(const struct occl_admin_request *request, const struct occl_comm *comm,
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
    occl_admin_put_text(object, "process", process_word(request, seat->session));
    occl_admin_put(object, "last_op", occl_admin_last_op(&note));
    occl_admin_put(object, "last_activity_age_ns",
                   note.last_ns
                       ? json_integer((json_int_t)occl_admin_age(request->daemon, note.last_ns))
                       : json_null());
    occl_admin_put_number(object, "ops_total", note.ops_done);
    occl_admin_put_number(object, "bytes_total", note.bytes_done);
    occl_admin_put_number(object, "executed_bytes_total", note.bytes_executed);
    occl_admin_put_number(object, "errors_total", note.errors);
    return object;
}

static json_t *comm_object(const struct occl_admin_request *request, const struct occl_comm *comm) {
    static const char *const states[] = {"live", "failed", "revoked", "aborted", "destroyed"};
    json_t *object = json_object();
    json_t *members = json_array();
    struct stat st = {0};
    uint64_t waiting = request->view.comm_ops[comm->place];
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        if (request->rank < 0 || request->rank == rank)
            (void)json_array_append_new(members, member_object(request, comm, rank));
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
                                                    : request->daemon->config.default_timeout_ns);
    occl_admin_put_text(object, "default_deadline_origin",
                        comm->default_deadline_ns ? "api" : "default");
    occl_admin_put_number(object, "page_bytes", comm->records.page_bytes);
    occl_admin_put_number(object, "resident_bytes", (uint64_t)st.st_blocks * 512);
    occl_admin_put_number(object, "ops_waiting", waiting);
    occl_admin_put_number(object, "age_ns", occl_admin_age(request->daemon, comm->born_ns));
    occl_admin_put(object, "members", members);
    return object;
}

static bool comms_item(struct occl_admin_request *request) {
    const struct occl_comm *comm = request->stage ? TAILQ_NEXT(request->at_comm, in_job)
                                                  : TAILQ_FIRST(&request->view.job->comms);
    if (!comm)
        return false;
    request->stage = 1;
    request->at_comm = comm;
    if (!occl_admin_wants_comm(request, comm))
        return true;
    if (occl_admin_room(request, OCCL_ADMIN_LIST_MAIN))
        occl_admin_add(request, OCCL_ADMIN_LIST_MAIN, comm_object(request, comm));
    else
        request->cut[OCCL_ADMIN_CUT_COMMS]++;
    return true;
}

const struct occl_admin_verb occl_admin_verb_comms = {
    .name = "comms",
    .only_comms = true,
    .wants = OCCL_VIEW_WANT_OPS | OCCL_VIEW_WANT_STATES,
    .lists = {[OCCL_ADMIN_LIST_MAIN] = "comms", [OCCL_ADMIN_LIST_CUT] = "cut"},
    .item = comms_item,
};

/* ---- usage ---- */

static json_t *job_usage(struct occl_job *job) {
    struct occl_job_totals totals;
    json_t *object = json_object();
    occl_totals_job(job, &totals);
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

static json_t *tenant_usage(const struct occl_tenant *tenant) {
    json_t *object = json_object();
    json_t *quota = json_object();
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
    return object;
}

/* One item a job, inside its tenant; tenants come one after the other. */
static bool usage_item(struct occl_admin_request *request) {
    struct occl_job *job = request->view.job;
    if (request->at++)
        return false;
    if (!occl_admin_room(request, OCCL_ADMIN_LIST_MAIN)) {
        request->cut[OCCL_ADMIN_CUT_JOBS]++;
        return false;
    }
    if (request->open_tenant != job->tenant->id) {
        if (request->open_tenant)
            occl_admin_close(request, OCCL_ADMIN_LIST_MAIN);
        occl_admin_open(request, OCCL_ADMIN_LIST_MAIN, tenant_usage(job->tenant), "jobs");
        request->open_tenant = job->tenant->id;
    }
    occl_admin_element(request, OCCL_ADMIN_LIST_MAIN, job_usage(job));
    return true;
}

static void usage_finish(struct occl_admin_request *request) {
    if (request->open_tenant)
        occl_admin_close(request, OCCL_ADMIN_LIST_MAIN);
}

const struct occl_admin_verb occl_admin_verb_usage = {
    .name = "usage",
    .wants = OCCL_VIEW_WANT_NOTES,
    .lists = {[OCCL_ADMIN_LIST_MAIN] = "tenants", [OCCL_ADMIN_LIST_CUT] = "cut"},
    .item = usage_item,
    .finish = usage_finish,
};
