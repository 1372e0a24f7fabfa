/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `why`: waits, cycles, failures, and those at the end of the chains. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"
#include "daemon/rendezvous.h"

/* Waits shorter than this are ordinary and no problem. */
#define PROBLEM_WAIT_NS 250000000ull
#define FAILURE_SHOWN_NS 600000000000ull

struct answer {
    struct occl_admin_query *query;
    struct occl_op_list list;
    struct occl_wait_graph graph;
    json_t *waits, *forming, *cycles, *failures, *culprits;
    bool problem;
};

/* ---- culprits: each process once with each verdict ---- */

static bool named_already(const json_t *culprits, uint64_t session_id, const char *verdict) {
    for (size_t i = 0; i < json_array_size(culprits); i++) {
        const json_t *other = json_array_get(culprits, i);
        const char *word = json_string_value(json_object_get(other, "verdict"));
        if (json_integer_value(json_object_get(other, "session_id")) == (json_int_t)session_id &&
            word && strcmp(word, verdict) == 0)
            return true;
    }
    return false;
}

struct culprit {
    const struct occl_job *job;
    const char *comm, *host, *verdict, *text;
    uint64_t comm_uid, pid, age_ns;
    uint64_t session_id; /* 0: it has not attached */
    uint32_t rank;
};

static void add_culprit(struct answer *answer, const struct culprit *culprit) {
    json_t *object;
    if (culprit->session_id &&
        named_already(answer->culprits, culprit->session_id, culprit->verdict))
        return;
    object = json_object();
    occl_admin_put_text(object, "job", culprit->job->name);
    occl_admin_put_text(object, "comm", culprit->comm);
    occl_admin_put_number(object, "comm_uid", culprit->comm_uid);
    occl_admin_put_number(object, "rank", culprit->rank);
    occl_admin_put_text(object, "host", culprit->host);
    occl_admin_put_number(object, "pid", culprit->pid);
    occl_admin_put_number(object, "session_id", culprit->session_id);
    occl_admin_put_text(object, "verdict", culprit->verdict);
    occl_admin_put_number(object, "since_ns",
                          occl_clock_wall_ns(answer->query->daemon->clock) - culprit->age_ns);
    occl_admin_put_number(object, "age_ns", culprit->age_ns);
    occl_admin_put_text(object, "text", culprit->text);
    (void)json_array_append_new(answer->culprits, object);
}

/* ---- waits ---- */

static json_t *waits_of(const struct answer *answer, const struct occl_session *session) {
    json_t *list = json_array();
    for (uint32_t i = 0; session && i < answer->list.count; i++) {
        const struct occl_op_view *op = &answer->list.ops[i];
        for (uint32_t rank = 0; rank < op->comm->ranks; rank++) {
            if (op->comm->seats[rank].session != session || !(op->waiting_mask >> rank & 1))
                continue;
            json_t *entry = json_object();
            occl_admin_put_text(entry, "comm", op->comm->name);
            occl_admin_put_number(entry, "comm_uid", op->comm->uid);
            occl_admin_put_number(entry, "tag", op->key.tag);
            occl_admin_put_number(entry, "instance", op->key.instance);
            occl_admin_put_text(entry, "kind", occl_opview_kind(op->signature.kind));
            (void)json_array_append_new(list, entry);
        }
    }
    return list;
}

static json_t *late_object(struct answer *answer, const struct occl_late_view *view,
                           const char *text) {
    const struct occl_seat *seat = &view->comm->seats[view->rank];
    struct occl_daemon *daemon = answer->query->daemon;
    json_t *object = json_object();
    occl_admin_put_number(object, "rank", view->rank);
    occl_admin_put_text(object, "host", seat->who.host);
    occl_admin_put_number(object, "pid", seat->who.pid);
    occl_admin_put_number(object, "session_id", seat->who.session_id >> 16);
    occl_admin_put_text(object, "process", view->process);
    occl_admin_put_text(object, "verdict", view->verdict);
    occl_admin_put(object, "last_op", occl_admin_last_op(&view->note));
    occl_admin_put(object, "last_activity_age_ns",
                   view->last_activity_ns
                       ? json_integer((json_int_t)occl_admin_age(daemon, view->last_activity_ns))
                       : json_null());
    occl_admin_put_number(object, "ops_total", view->note.ops_done);
    occl_admin_put(object, "waits_in", waits_of(answer, view->session));
    occl_admin_put_text(object, "text", text);
    return object;
}

/* A running op is a wait only while a process inside it does not run: large ops simply take long.
 */
static bool is_held(const struct answer *answer, const struct occl_op_view *op) {
    for (uint32_t rank = 0; op->state != 0 && rank < op->comm->ranks; rank++) {
        struct occl_late_view view;
        if (!(op->busy_mask >> rank & 1))
            continue;
        occl_why_rank(&answer->graph, op->comm, rank, &view);
        if (strcmp(view.verdict, "stopped") == 0 || strcmp(view.verdict, "unkillable") == 0)
            return true;
    }
    return op->state == 0 && occl_opview_holders(op) != 0;
}

static void add_wait(struct answer *answer, const struct occl_op_view *op) {
    struct occl_daemon *daemon = answer->query->daemon;
    json_t *object = occl_admin_op(answer->query, op);
    json_t *late = json_array();
    uint64_t age = occl_admin_age(daemon, op->since_ns);
    uint64_t holders = occl_opview_holders(op);
    for (uint32_t rank = 0; rank < op->comm->ranks; rank++) {
        struct occl_late_view view;
        char text[320];
        if (!(holders >> rank & 1))
            continue;
        occl_why_rank(&answer->graph, op->comm, rank, &view);
        occl_why_rank_text(&view, occl_loop_now_ns(daemon->loop), text, sizeof text);
        (void)json_array_append_new(late, late_object(answer, &view, text));
        struct culprit culprit = {
            .job = op->comm->job,
            .comm = op->comm->name,
            .host = op->comm->seats[rank].who.host,
            .verdict = view.verdict,
            .text = text,
            .comm_uid = op->comm->uid,
            .pid = op->comm->seats[rank].who.pid,
            .session_id = op->comm->seats[rank].who.session_id >> 16,
            .age_ns = age,
            .rank = rank,
        };
        if (view.culprit && age > PROBLEM_WAIT_NS)
            add_culprit(answer, &culprit);
    }
    answer->problem = answer->problem || age > PROBLEM_WAIT_NS;
    occl_admin_put(object, "late", late);
    (void)json_array_append_new(answer->waits, object);
}

static void add_waits(struct answer *answer) {
    for (uint32_t i = 0; i < answer->list.count; i++) {
        const struct occl_op_view *op = &answer->list.ops[i];
        if (is_held(answer, op) && occl_admin_wants_op(answer->query, op) &&
            json_array_size(answer->waits) < OCCL_ADMIN_OPS_MAX)
            add_wait(answer, op);
    }
}

/* ---- cycles ---- */

static json_t *step_object(const struct occl_cycle_step *step) {
    json_t *object = json_object();
    occl_admin_put_number(object, "rank", step->rank);
    occl_admin_put_number(object, "pid", (uint64_t)step->session->pid);
    occl_admin_put_text(object, "comm", step->op->comm->name);
    occl_admin_put_number(object, "comm_uid", step->op->comm->uid);
    occl_admin_put_number(object, "tag", step->op->key.tag);
    occl_admin_put_number(object, "instance", step->op->key.instance);
    occl_admin_put_text(object, "kind", occl_opview_kind(step->op->signature.kind));
    occl_admin_put_number(object, "waits_for_rank", step->waits_for_rank);
    occl_admin_put_number(object, "waits_for_pid",
                          step->op->comm->seats[step->waits_for_rank].who.pid);
    return object;
}

static void add_cycles(struct answer *answer) {
    unsigned char *seen = answer->graph.count ? calloc(1, answer->graph.count) : NULL;
    struct occl_cycle cycle;
    while (seen && occl_why_next_cycle(&answer->graph, seen, &cycle)) {
        char text[2048];
        json_t *object;
        json_t *members;
        if (!occl_admin_wants_comm(answer->query, cycle.steps[0].op->comm))
            continue;
        object = json_object();
        members = json_array();
        for (uint32_t i = 0; i < cycle.count; i++)
            (void)json_array_append_new(members, step_object(&cycle.steps[i]));
        occl_why_cycle_text(&cycle, text, sizeof text);
        occl_admin_put_bool(object, "definite", cycle.definite);
        occl_admin_put_text(object, "text", text);
        occl_admin_put(object, "members", members);
        (void)json_array_append_new(answer->cycles, object);
        answer->problem = answer->problem || cycle.definite;
    }
    free(seen);
}

/* ---- communicators that are being created ---- */

static const struct occl_session *by_hint(const struct occl_job *job, uint32_t rank) {
    const struct occl_session *session;
    TAILQ_FOREACH(session, &job->sessions, in_list)
    if (session->rank_hint == (int32_t)rank)
        return session;
    return NULL;
}

static json_t *absent_object(struct answer *answer, const struct occl_rendezvous *meeting,
                             uint32_t rank, uint64_t age) {
    const struct occl_session *session = by_hint(meeting->job, rank);
    json_t *object = json_object();
    char text[256];
    bool killed = false;
    char state = session ? occl_identity_process_state(session, &killed) : '?';
    const char *verdict = state == 'T' || state == 't' ? "stopped" : "absent";
    if (session)
        (void)snprintf(text, sizeof text,
                       "rank %u (host %s, pid %d) is attached and has not asked for the "
                       "communicator; process %s",
                       rank, answer->query->daemon->host, (int)session->pid,
                       occl_identity_state_word(state));
    else
        (void)snprintf(text, sizeof text, "rank %u (host %s) has not attached", rank,
                       answer->query->daemon->host);
    occl_admin_put_number(object, "rank", rank);
    occl_admin_put_text(object, "host", answer->query->daemon->host);
    occl_admin_put(object, "pid", session ? json_integer(session->pid) : json_null());
    occl_admin_put_text(object, "process", occl_identity_state_word(state));
    occl_admin_put_text(object, "verdict", verdict);
    occl_admin_put_text(object, "text", text);
    struct culprit culprit = {
        .job = meeting->job,
        .comm = meeting->name,
        .host = answer->query->daemon->host,
        .verdict = verdict,
        .text = text,
        .pid = session ? (uint64_t)session->pid : 0,
        .session_id = session ? session->id >> 16 : 0,
        .age_ns = age,
        .rank = rank,
    };
    if (age > PROBLEM_WAIT_NS)
        add_culprit(answer, &culprit);
    return object;
}

static void add_forming_one(struct answer *answer, const struct occl_rendezvous *meeting) {
    json_t *object = json_object();
    json_t *late = json_array();
    char text[200];
    uint64_t all = meeting->ranks == 64 ? ~0ull : (1ull << meeting->ranks) - 1;
    uint64_t arrived = occl_rendezvous_arrived_mask(meeting);
    uint64_t age = occl_admin_age(answer->query->daemon, meeting->born_ns);
    occl_admin_put_text(object, "job", meeting->job->name);
    occl_admin_put_text(object, "comm", meeting->name);
    occl_admin_put_number(object, "ranks", meeting->ranks);
    occl_admin_put(object, "arrived", occl_admin_ranks(arrived));
    occl_opview_ranges(arrived, text, sizeof text);
    occl_admin_put_text(object, "arrived_text", text);
    occl_admin_put(object, "missing", occl_admin_ranks(all & ~arrived));
    occl_opview_ranges(all & ~arrived, text, sizeof text);
    occl_admin_put_text(object, "missing_text", text);
    occl_admin_put_number(object, "age_ns", age);
    for (uint32_t rank = 0; rank < meeting->ranks; rank++)
        if (!(arrived >> rank & 1))
            (void)json_array_append_new(late, absent_object(answer, meeting, rank, age));
    occl_admin_put(object, "late", late);
    (void)json_array_append_new(answer->forming, object);
    answer->problem = answer->problem || age > PROBLEM_WAIT_NS;
}

static void add_forming(struct answer *answer) {
    struct occl_rendezvous *meeting;
    struct occl_rendezvous *next;
    HASH_ITER (in_daemon, answer->query->daemon->meetings, meeting, next) {
        if (meeting->waiting && occl_admin_sees(answer->query, meeting->job) &&
            (!answer->query->comm || strcmp(answer->query->comm, meeting->name) == 0))
            add_forming_one(answer, meeting);
    }
}

/* ---- failures ---- */

static void add_failure(struct answer *answer, const struct occl_job *job,
                        const struct occl_job_failure *failure) {
    json_t *object = json_object();
    const char *host = answer->query->daemon->host;
    uint64_t age = occl_admin_age(answer->query->daemon, failure->at_ns);
    char text[OCCL_DETAIL_BYTES + 128];
    (void)snprintf(text, sizeof text, "rank %u (host %s, pid %u): %s", failure->rank, host,
                   failure->pid, failure->cause);
    occl_admin_put_text(object, "job", job->name);
    occl_admin_put_text(object, "comm", failure->comm);
    occl_admin_put_number(object, "comm_uid", failure->comm_uid);
    occl_admin_put_text(object, "status", occl_status_name(failure->status));
    occl_admin_put(object, "rank",
                   failure->rank == OCCL_RANK_NONE ? json_null() : json_integer(failure->rank));
    occl_admin_put_text(object, "host", host);
    occl_admin_put_number(object, "pid", failure->pid);
    occl_admin_put_text(object, "cause", failure->cause);
    occl_admin_put_text(object, "verdict", failure->verdict);
    occl_admin_put_number(object, "age_ns", age);
    (void)json_array_append_new(answer->failures, object);
    struct culprit culprit = {
        .job = job,
        .comm = failure->comm,
        .host = host,
        .verdict = failure->verdict,
        .text = text,
        .comm_uid = failure->comm_uid,
        .pid = failure->pid,
        .session_id = failure->session_id,
        .age_ns = age,
        .rank = failure->rank,
    };
    /* A job that has made a communicator since has gone on without the failed one. */
    if (job->last_comm_ns > failure->at_ns)
        return;
    add_culprit(answer, &culprit);
    answer->problem = true;
}

static bool wants_failure(const struct occl_admin_query *query,
                          const struct occl_job_failure *failure) {
    char number[24];
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)failure->comm_uid);
    return !query->comm || strcmp(query->comm, failure->comm) == 0 ||
           strcmp(query->comm, number) == 0;
}

static void add_failures(struct answer *answer) {
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    struct occl_job *job;
    HASH_ITER (in_daemon, answer->query->daemon->tenants, tenant, next) {
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant) {
            if (!job->failures || !occl_admin_sees(answer->query, job))
                continue;
            uint64_t first = job->failures_total > OCCL_FAILURES_KEPT
                                 ? job->failures_total - OCCL_FAILURES_KEPT
                                 : 0;
            for (uint64_t i = first; i < job->failures_total; i++) {
                const struct occl_job_failure *failure = &job->failures[i % OCCL_FAILURES_KEPT];
                if (wants_failure(answer->query, failure) &&
                    occl_admin_age(answer->query->daemon, failure->at_ns) < FAILURE_SHOWN_NS)
                    add_failure(answer, job, failure);
            }
        }
    }
}

int occl_admin_why(struct occl_admin_query *query, json_t *object) {
    struct answer answer = {.query = query};
    occl_totals_scan(query->daemon, &answer.list);
    int status = occl_why_graph_build(query->daemon, &answer.list, &answer.graph);
    if (status != OCCL_OK) {
        occl_opview_free(&answer.list);
        return occl_detail_set(&query->detail, status, 0, "no memory for the graph of waits");
    }
    answer.waits = json_array();
    answer.forming = json_array();
    answer.cycles = json_array();
    answer.failures = json_array();
    answer.culprits = json_array();
    add_waits(&answer);
    add_cycles(&answer);
    add_forming(&answer);
    add_failures(&answer);
    occl_why_graph_free(&answer.graph);
    occl_opview_free(&answer.list);
    occl_admin_put(object, "waits", answer.waits);
    occl_admin_put(object, "forming", answer.forming);
    occl_admin_put(object, "cycles", answer.cycles);
    occl_admin_put(object, "failures", answer.failures);
    occl_admin_put(object, "culprits", answer.culprits);
    occl_admin_put_bool(object, "problem", answer.problem);
    return OCCL_OK;
}
