/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `why`: waits, cycles, communicators being formed, failures, and those at the end of the
 * chains. The items of a job come in this order (struct stage); each is small, and culprits are
 * found whether or not there is room to list the wait that they hold up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"

/* Waits shorter than this are ordinary and no problem. */
#define PROBLEM_WAIT_NS 250000000ull
/* Processes that wait for each other with time-outs of their own never do so for long at a time. */
#define LIKELY_CYCLE_NS 1000000000ull
#define FAILURE_SHOWN_NS 600000000000ull

/* Waits listed of one late rank: the first ones tell enough. */
#define WAITS_IN_MAX 8

enum stage { STAGE_WAITS, STAGE_CYCLES, STAGE_FORMING, STAGE_FAILURES };

/* ---- culprits: each process once with each verdict ---- */

static uint32_t verdict_bit(const char *verdict) {
    static const char *const words[] = {"late",    "stopped", "unkillable", "dead",
                                        "left",    "waiting", "cycle",      "absent",
                                        "revoked", "aborted", "held_back"};
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], verdict) == 0)
            return 1u << i;
    return 0;
}

struct culprit {
    struct occl_wait_node *node; /* NULL: it is gone, or has not attached */
    const char *comm, *host, *verdict, *text;
    uint64_t comm_uid, pid, age_ns;
    uint64_t session_id; /* 0: it has not attached */
    uint32_t rank;
};

static bool named_already(struct occl_admin_request *request, const struct culprit *culprit) {
    struct occl_admin_why *why = &request->why;
    uint32_t bit = verdict_bit(culprit->verdict);
    if (culprit->session_id == 0)
        return false;
    if (culprit->node) {
        bool named = culprit->node->blamed & bit;
        culprit->node->blamed |= bit;
        return named;
    }
    for (uint32_t i = 0; i < why->gone_count; i++)
        if (why->gone[i].session_id == culprit->session_id &&
            strcmp(why->gone[i].verdict, culprit->verdict) == 0)
            return true;
    if (why->gone_count < OCCL_ADMIN_GONE_MAX) {
        why->gone[why->gone_count].session_id = culprit->session_id;
        why->gone[why->gone_count++].verdict = culprit->verdict;
    }
    return false;
}

static void add_culprit(struct occl_admin_request *request, const struct culprit *culprit) {
    if (named_already(request, culprit))
        return;
    if (!occl_admin_room(request, OCCL_ADMIN_LIST_CULPRITS)) {
        request->cut[OCCL_ADMIN_CUT_CULPRITS]++;
        return;
    }
    json_t *object = json_object();
    occl_admin_put_text(object, "job", request->view.job->name);
    occl_admin_put_text(object, "comm", culprit->comm);
    occl_admin_put_number(object, "comm_uid", culprit->comm_uid);
    occl_admin_put_number(object, "rank", culprit->rank);
    occl_admin_put_text(object, "host", culprit->host);
    occl_admin_put_number(object, "pid", culprit->pid);
    occl_admin_put_number(object, "session_id", culprit->session_id);
    occl_admin_put_text(object, "verdict", culprit->verdict);
    occl_admin_put_number(object, "since_ns",
                          occl_clock_wall_ns(request->daemon->clock) - culprit->age_ns);
    occl_admin_put_number(object, "age_ns", culprit->age_ns);
    occl_admin_put_text(object, "text", culprit->text);
    occl_admin_add(request, OCCL_ADMIN_LIST_CULPRITS, object);
}

/* ---- waits ---- */

static json_t *waits_of(const struct occl_wait_graph *graph, const struct occl_wait_node *node) {
    json_t *list = json_array();
    for (uint32_t i = 0; node && i < node->waits_count && i < WAITS_IN_MAX; i++) {
        const struct occl_op_view *op = &graph->list->ops[graph->edges[node->waits_first + i]];
        json_t *entry = json_object();
        occl_admin_put_text(entry, "comm", op->comm->name);
        occl_admin_put_number(entry, "comm_uid", op->comm->uid);
        occl_admin_put_number(entry, "tag", op->key.tag);
        occl_admin_put_number(entry, "instance", op->key.instance);
        occl_admin_put_text(entry, "kind", occl_opview_kind(op->signature.kind));
        (void)json_array_append_new(list, entry);
    }
    return list;
}

static json_t *late_object(const struct occl_admin_request *request,
                           const struct occl_late_view *late, const char *text) {
    const struct occl_seat *seat = &late->comm->seats[late->rank];
    const struct occl_wait_graph *graph = &request->view.graph;
    json_t *object = json_object();
    occl_admin_put_number(object, "rank", late->rank);
    occl_admin_put_text(object, "host", seat->who.host);
    occl_admin_put_number(object, "pid", seat->who.pid);
    occl_admin_put_number(object, "session_id", seat->who.session_id >> 16);
    occl_admin_put_text(object, "process", late->process);
    occl_admin_put_text(object, "verdict", late->verdict);
    occl_admin_put(object, "last_op", occl_admin_last_op(&late->note));
    occl_admin_put(object, "last_activity_age_ns",
                   late->last_activity_ns ? json_integer((json_int_t)occl_admin_age(
                                                request->daemon, late->last_activity_ns))
                                          : json_null());
    occl_admin_put_number(object, "ops_total", late->note.ops_done);
    occl_admin_put(object, "waits_in", waits_of(graph, occl_why_node(graph, late->session)));
    occl_admin_put_text(object, "text", text);
    return object;
}

static void forget_late(struct occl_admin_why *why) {
    for (uint32_t rank = 0; rank < OCCL_LOCAL_RANKS_MAX; rank++)
        json_decref(why->late[rank]);
    memset(why->late, 0, sizeof why->late);
    why->comm = NULL;
}

/* What is said of a late rank is the same for all ops of its communicator: made once, shared. */
static json_t *late_of(struct occl_admin_request *request, const struct occl_comm *comm,
                       uint32_t rank) {
    struct occl_admin_why *why = &request->why;
    struct occl_late_view late;
    char text[320];
    if (why->comm != comm)
        forget_late(why);
    why->comm = comm;
    if (!why->late[rank]) {
        occl_why_rank(&request->view.graph, comm, rank, &late);
        occl_why_rank_text(&late, &request->view.list, occl_loop_now_ns(request->daemon->loop),
                           text, sizeof text);
        why->late[rank] = late_object(request, &late, text);
    }
    return why->late[rank];
}

/* Of a rank that the op misses, or that holds it; the caller owns a reference. What is said of one
 * that is held back is of this op alone. */
static json_t *missing_object(struct occl_admin_request *request, const struct occl_op_view *op,
                              uint32_t rank) {
    struct occl_late_view late;
    char text[1024];
    if (!occl_opheld_of(&request->view.list, op, rank))
        return json_incref(late_of(request, op->comm, rank));
    occl_why_missing(&request->view.graph, op, rank, &late);
    occl_why_rank_text(&late, &request->view.list, occl_loop_now_ns(request->daemon->loop), text,
                       sizeof text);
    return late_object(request, &late, text);
}

static const char *text_in(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* A running op is a wait only while a process inside it does not run: large ops simply take long.
 */
static bool is_held(struct occl_admin_request *request, const struct occl_op_view *op) {
    uint64_t holders = occl_opview_holders(op);
    if (op->state == 0)
        return holders != 0;
    for (uint64_t left = holders; left; left &= left - 1) {
        struct occl_late_view late;
        occl_why_rank(&request->view.graph, op->comm, (uint32_t)__builtin_ctzll(left), &late);
        if (strcmp(late.verdict, "stopped") == 0 || strcmp(late.verdict, "unkillable") == 0)
            return true;
    }
    return false;
}

static void blame(struct occl_admin_request *request, const struct occl_op_view *op, uint32_t rank,
                  uint64_t age_ns) {
    const struct occl_seat *seat = &op->comm->seats[rank];
    json_t *late = missing_object(request, op, rank);
    struct occl_late_view view;
    occl_why_missing(&request->view.graph, op, rank, &view);
    struct culprit culprit = {
        .node = occl_why_node(&request->view.graph, seat->session),
        .comm = op->comm->name,
        .host = seat->who.host,
        .verdict = view.verdict,
        .text = text_in(late, "text"),
        .comm_uid = op->comm->uid,
        .pid = seat->who.pid,
        .session_id = seat->who.session_id >> 16,
        .age_ns = age_ns,
        .rank = rank,
    };
    if (view.culprit)
        add_culprit(request, &culprit);
    json_decref(late);
}

static void add_wait(struct occl_admin_request *request, const struct occl_op_view *op) {
    uint64_t age_ns = occl_admin_age(request->daemon, op->since_ns);
    uint64_t holders = occl_opview_holders(op);
    for (uint64_t left = holders; left && age_ns > PROBLEM_WAIT_NS; left &= left - 1)
        blame(request, op, (uint32_t)__builtin_ctzll(left), age_ns);
    request->problem = request->problem || age_ns > PROBLEM_WAIT_NS;
    if (!occl_admin_room(request, OCCL_ADMIN_LIST_MAIN)) {
        request->cut[OCCL_ADMIN_CUT_WAITS]++;
        return;
    }
    json_t *object = occl_admin_op(request, op);
    json_t *late = json_array();
    for (uint64_t left = holders; left; left &= left - 1)
        (void)json_array_append_new(late,
                                    missing_object(request, op, (uint32_t)__builtin_ctzll(left)));
    occl_admin_put(object, "late", late);
    occl_admin_add(request, OCCL_ADMIN_LIST_MAIN, object);
}

static bool wait_item(struct occl_admin_request *request) {
    const struct occl_op_list *list = &request->view.list;
    if (request->at == list->count)
        return false;
    const struct occl_op_view *op = &list->ops[request->at++];
    if (occl_admin_wants_op(request, op) && is_held(request, op))
        add_wait(request, op);
    return true;
}

/* ---- cycles ---- */

static json_t *step_object(const struct occl_cycle_step *step) {
    json_t *object = json_object();
    json_t *held = json_null();
    if (step->held_op) {
        held = json_object();
        occl_admin_put_text(held, "comm", step->held_op->comm->name);
        occl_admin_put_number(held, "comm_uid", step->held_op->comm->uid);
        occl_admin_put_number(held, "tag", step->held_op->key.tag);
        occl_admin_put_number(held, "instance", step->held_op->key.instance);
        occl_admin_put_text(held, "kind", occl_opview_kind(step->held_op->signature.kind));
        occl_admin_put_number(held, "rank", step->held->rank);
    }
    occl_admin_put(object, "held_back", held);
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

/* All of them only wait, in ops that are old, so somebody has to be named. */
static bool lasts(const struct occl_admin_request *request, const struct occl_cycle *cycle) {
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct occl_cycle_step *step = &cycle->steps[i];
        const struct occl_wait_node *node = occl_why_node(&request->view.graph, step->session);
        if (!node || !node->fully_blocked ||
            occl_admin_age(request->daemon, step->op->since_ns) < LIKELY_CYCLE_NS)
            return false;
    }
    return true;
}

static void blame_all(struct occl_admin_request *request, const struct occl_cycle *cycle) {
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct occl_cycle_step *step = &cycle->steps[i];
        const struct occl_comm *comm = step->op->comm;
        const struct occl_seat *seat = &comm->seats[step->rank];
        json_t *late = json_incref(late_of(request, comm, step->rank));
        struct culprit culprit = {
            .node = occl_why_node(&request->view.graph, step->session),
            .comm = comm->name,
            .host = seat->who.host,
            .verdict = "waiting",
            .text = text_in(late, "text"),
            .comm_uid = comm->uid,
            .pid = seat->who.pid,
            .session_id = seat->who.session_id >> 16,
            .age_ns = occl_admin_age(request->daemon, step->op->since_ns),
            .rank = step->rank,
        };
        add_culprit(request, &culprit);
        json_decref(late);
    }
}

static bool cycle_item(struct occl_admin_request *request) {
    struct occl_wait_graph *graph = &request->view.graph;
    struct occl_cycle_walk *walk = &request->why.cycles;
    struct occl_cycle cycle;
    char text[2048];
    if (!walk->seen)
        walk->seen = calloc(1, graph->ops_count + 1);
    if (!walk->seen || !occl_why_next_cycle(graph, walk, &cycle))
        return false;
    if (!occl_admin_wants_comm(request, cycle.steps[0].op->comm))
        return true;
    request->problem = request->problem || cycle.definite;
    if (!cycle.definite && lasts(request, &cycle))
        blame_all(request, &cycle);
    if (!occl_admin_room(request, OCCL_ADMIN_LIST_CYCLES)) {
        request->cut[OCCL_ADMIN_CUT_CYCLES]++;
        return true;
    }
    json_t *object = json_object();
    json_t *members = json_array();
    for (uint32_t i = 0; i < cycle.count; i++)
        (void)json_array_append_new(members, step_object(&cycle.steps[i]));
    occl_why_cycle_text(&cycle, text, sizeof text);
    occl_admin_put_bool(object, "definite", cycle.definite);
    occl_admin_put_text(object, "text", text);
    occl_admin_put(object, "members", members);
    occl_admin_add(request, OCCL_ADMIN_LIST_CYCLES, object);
    return true;
}

/* ---- communicators that are being created ---- */

static json_t *absent_object(struct occl_admin_request *request,
                             const struct occl_rendezvous *meeting, uint32_t rank, uint64_t age) {
    struct occl_wait_node *node = request->why.by_hint[rank];
    const struct occl_session *session = node ? node->session : NULL;
    json_t *object = json_object();
    char text[256];
    char state = node && node->state ? node->state : '?';
    const char *verdict = state == 'T' || state == 't' ? "stopped" : "absent";
    if (session)
        (void)snprintf(text, sizeof text,
                       "rank %u (host %s, pid %d) is attached and has not asked for the "
                       "communicator; process %s",
                       rank, request->daemon->host, (int)session->pid,
                       occl_identity_state_word(state));
    else
        (void)snprintf(text, sizeof text, "rank %u (host %s) has not attached", rank,
                       request->daemon->host);
    occl_admin_put_number(object, "rank", rank);
    occl_admin_put_text(object, "host", request->daemon->host);
    occl_admin_put(object, "pid", session ? json_integer(session->pid) : json_null());
    occl_admin_put_text(object, "process", occl_identity_state_word(state));
    occl_admin_put_text(object, "verdict", verdict);
    occl_admin_put_text(object, "text", text);
    struct culprit culprit = {
        .node = node,
        .comm = meeting->name,
        .host = request->daemon->host,
        .verdict = verdict,
        .text = text,
        .pid = session ? (uint64_t)session->pid : 0,
        .session_id = session ? session->id >> 16 : 0,
        .age_ns = age,
        .rank = rank,
    };
    if (age > PROBLEM_WAIT_NS)
        add_culprit(request, &culprit);
    return object;
}

static void add_forming(struct occl_admin_request *request, const struct occl_rendezvous *meeting) {
    uint64_t age = occl_admin_age(request->daemon, meeting->born_ns);
    request->problem = request->problem || age > PROBLEM_WAIT_NS;
    if (!occl_admin_room(request, OCCL_ADMIN_LIST_FORMING)) {
        request->cut[OCCL_ADMIN_CUT_FORMING]++;
        return;
    }
    json_t *object = json_object();
    json_t *late = json_array();
    char text[200];
    uint64_t all = meeting->ranks == 64 ? ~0ull : (1ull << meeting->ranks) - 1;
    uint64_t arrived = occl_rendezvous_arrived_mask(meeting);
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
    for (uint64_t left = all & ~arrived; left; left &= left - 1)
        (void)json_array_append_new(
            late, absent_object(request, meeting, (uint32_t)__builtin_ctzll(left), age));
    occl_admin_put(object, "late", late);
    occl_admin_add(request, OCCL_ADMIN_LIST_FORMING, object);
}

static bool forming_item(struct occl_admin_request *request) {
    const struct occl_rendezvous *meeting = request->why.meeting;
    if (!meeting)
        return false;
    request->why.meeting = TAILQ_NEXT(meeting, in_job);
    if (!request->comm || strcmp(request->comm, meeting->name) == 0)
        add_forming(request, meeting);
    return true;
}

/* ---- failures ---- */

static void add_failure(struct occl_admin_request *request,
                        const struct occl_job_failure *failure) {
    const struct occl_job *job = request->view.job;
    const char *host = request->daemon->host;
    uint64_t age = occl_admin_age(request->daemon, failure->at_ns);
    char text[OCCL_DETAIL_BYTES + 128];
    json_t *object = json_object();
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
    occl_admin_add(request, OCCL_ADMIN_LIST_FAILURES, object);
    struct culprit culprit = {
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
    add_culprit(request, &culprit);
    request->problem = true;
}

static bool wants_failure(const struct occl_admin_request *request,
                          const struct occl_job_failure *failure) {
    char number[24];
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)failure->comm_uid);
    return !request->comm || strcmp(request->comm, failure->comm) == 0 ||
           strcmp(request->comm, number) == 0;
}

/* A few, of a fixed number: one item. */
static bool failure_item(struct occl_admin_request *request) {
    const struct occl_job *job = request->view.job;
    uint64_t kept =
        job->failures_total < OCCL_FAILURES_KEPT ? job->failures_total : OCCL_FAILURES_KEPT;
    for (uint64_t i = job->failures_total - kept; job->failures && i < job->failures_total; i++) {
        const struct occl_job_failure *failure = &job->failures[i % OCCL_FAILURES_KEPT];
        if (wants_failure(request, failure) &&
            occl_admin_age(request->daemon, failure->at_ns) < FAILURE_SHOWN_NS)
            add_failure(request, failure);
    }
    return false;
}

/* ---- the verb ---- */

void occl_admin_why_begin(struct occl_admin_request *request) {
    struct occl_admin_why *why = &request->why;
    const struct occl_wait_graph *graph = &request->view.graph;
    memset(why, 0, sizeof *why);
    why->meeting = TAILQ_FIRST(&request->view.job->meetings);
    for (uint32_t i = 0; i < graph->count; i++)
        if (graph->nodes[i].first_of_hint)
            why->by_hint[graph->nodes[i].session->rank_hint] = &graph->nodes[i];
    if (graph->edges)
        request->cut[OCCL_ADMIN_CUT_WAITS] = request->view.list.count - graph->ops_count;
}

void occl_admin_why_end(struct occl_admin_request *request) {
    forget_late(&request->why);
    free(request->why.cycles.seen);
    request->why.cycles.seen = NULL;
}

static bool why_item(struct occl_admin_request *request) {
    static bool (*const items[])(struct occl_admin_request *) = {
        [STAGE_WAITS] = wait_item,
        [STAGE_CYCLES] = cycle_item,
        [STAGE_FORMING] = forming_item,
        [STAGE_FAILURES] = failure_item,
    };
    if (!items[request->stage](request))
        request->stage++;
    return request->stage <= STAGE_FAILURES;
}

static void why_finish(struct occl_admin_request *request) {
    occl_admin_put_bool(request->answer, "problem", request->problem);
}

const struct occl_admin_verb occl_admin_verb_why = {
    .name = "why",
    .wants =
        OCCL_VIEW_WANT_OPS | OCCL_VIEW_WANT_HOLDERS | OCCL_VIEW_WANT_ABSENT | OCCL_VIEW_WANT_GRAPH,
    .lists =
        {
            [OCCL_ADMIN_LIST_MAIN] = "waits",
            [OCCL_ADMIN_LIST_FORMING] = "forming",
            [OCCL_ADMIN_LIST_CYCLES] = "cycles",
            [OCCL_ADMIN_LIST_FAILURES] = "failures",
            [OCCL_ADMIN_LIST_CULPRITS] = "culprits",
            [OCCL_ADMIN_LIST_CUT] = "cut",
        },
    .item = why_item,
    .finish = why_finish,
};
