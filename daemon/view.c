/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/view.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/rendezvous.h"

#define BEGINNINGS_MAX 4
/* Engine ops taken at once: a step of a lane, between two slices. */
#define ENGINE_OPS_ONCE 256
#define ENGINE_OPS_COMM 64
/* Pieces between two looks at the clock. */
#define CLAIMS_ONCE 8
#define OPS_ONCE 32

enum phase { PHASE_BEGIN, PHASE_COMMS, PHASE_ENGINE, PHASE_MARK, PHASE_STATES, PHASE_GRAPH };

static uint64_t now_of(const struct occl_view *view) {
    return occl_loop_now_ns(view->daemon->loop);
}

static void forget(struct occl_view *view) {
    occl_opview_free(&view->list);
    occl_why_graph_free(&view->graph);
    free(view->comm_ops);
    view->comm_ops = NULL;
    view->cut = 0;
    view->phase = PHASE_BEGIN;
}

void occl_view_open(struct occl_view *view, struct occl_job *job,
                    const struct occl_view_request *request) {
    memset(view, 0, sizeof *view);
    view->daemon = job->tenant->daemon;
    view->request = *request;
    view->job = job;
    view->job_id = job->id;
}

void occl_view_close(struct occl_view *view) {
    forget(view);
    memset(view, 0, sizeof *view);
}

bool occl_view_holds(struct occl_view *view) {
    view->job = occl_job_find(view->daemon, view->job_id);
    return view->job && view->job->shape == view->shape;
}

bool occl_view_again(struct occl_view *view) {
    forget(view);
    return view->begun < BEGINNINGS_MAX;
}

/* ---- pieces: each returns true when its phase is over ---- */

/* Communicators that lend their share to nobody because they are not looked at do not count. */
static uint32_t share(uint32_t whole, uint32_t parts, uint32_t least) {
    uint32_t part = parts ? whole / parts : whole;
    return part > least ? part : least;
}

static bool takes(const struct occl_view *view, const struct occl_comm *comm) {
    return !view->request.takes || view->request.takes(view->request.arg, comm);
}

/* Places are the same for every view of this shape, so views of one job may take turns. */
static int begin(struct occl_view *view) {
    struct occl_job *job = view->job;
    struct occl_session *session;
    struct occl_comm *comm;
    uint32_t taken = 0, place = 0;
    view->begun++;
    view->shape = job->shape;
    view->now_ns = now_of(view);
    view->comm_count = job->comm_count;
    view->comm_ops = calloc(job->comm_count + 1, sizeof *view->comm_ops);
    view->graph.nodes = calloc(job->session_count + 1, sizeof *view->graph.nodes);
    if (!view->comm_ops || !view->graph.nodes)
        return OCCL_E_NO_MEMORY;
    TAILQ_FOREACH(comm, &job->comms, in_job) {
        comm->place = place++;
        taken += takes(view, comm);
    }
    place = 0;
    TAILQ_FOREACH(session, &job->sessions, in_list) {
        session->place = place;
        view->graph.nodes[place++].session = session;
    }
    view->graph.count = place;
    view->graph.now_ns = view->now_ns;
    view->per_comm_ops = share(OCCL_VIEW_OPS, taken, OCCL_VIEW_COMM_OPS_MIN);
    view->per_comm_lines = share(view->request.lines, taken, OCCL_VIEW_COMM_LINES_MIN);
    view->comm = TAILQ_FIRST(&job->comms);
    view->claim = view->lines = view->of_comm = view->at = 0;
    view->engine_uid = 1;
    return OCCL_OK;
}

static void add_op(struct occl_view *view, const struct occl_op_view *op,
                   const struct occl_held_view *helds) {
    view->comm_ops[op->comm->place]++;
    if (view->of_comm >= view->per_comm_ops || view->list.count >= OCCL_VIEW_OPS_MAX ||
        !occl_opview_append(&view->list, op, helds))
        view->cut++;
    else
        view->of_comm++;
}

static void scan_claim(struct occl_view *view, uint32_t index) {
    struct occl_comm *comm = view->comm;
    uint32_t members = occl_claim_members(index, comm->ranks);
    uint32_t records = occl_claim_records(index);
    uint64_t word = occl_observe64(&occl_claim_at(&comm->records, index)->word);
    if (!(word & OCCL_WORD_CLAIMED))
        return;
    if (view->lines >= view->per_comm_lines) {
        view->cut += records;
        return;
    }
    view->lines += records * members;
    for (uint32_t i = 0; i < records; i++) {
        struct occl_op_view op;
        struct occl_held_view helds[OCCL_LOCAL_RANKS_MAX];
        if (occl_opview_record(comm, occl_claim_first(index) + i, word & OCCL_WORD_PRINT_MASK,
                               view->now_ns, &op, helds))
            add_op(view, &op, helds);
    }
}

/* Few: see SPLITS_MAX of split.c. */
static void add_splits(struct occl_view *view) {
    struct occl_split *split = NULL;
    struct occl_op_view op;
    while (occl_split_next(view->comm, &split, &op))
        add_op(view, &op, NULL);
}

static void add_notes(struct occl_comm *comm) {
    struct occl_comm_noted sums = {0, 0, 0, 0};
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_note_view note;
        occl_opview_note(comm, rank, &note);
        sums.ops += note.ops_done;
        sums.errors += note.errors;
        sums.bytes += note.bytes_done;
        sums.executed_bytes += note.bytes_executed;
    }
    comm->noted = sums;
}

static bool scan_comms(struct occl_view *view) {
    struct occl_comm *comm = view->comm;
    if (!comm)
        return true;
    bool ops = (view->request.wants & OCCL_VIEW_WANT_OPS) && comm->state == OCCL_COMM_LIVE &&
               takes(view, comm);
    for (uint32_t i = 0; ops && i < CLAIMS_ONCE && view->claim < OCCL_CLAIMS; i++)
        scan_claim(view, view->claim++);
    if (ops && view->claim < OCCL_CLAIMS)
        return false;
    if (ops)
        add_splits(view);
    if (view->request.wants & OCCL_VIEW_WANT_NOTES)
        add_notes(comm);
    view->comm = TAILQ_NEXT(comm, in_job);
    view->claim = view->lines = view->of_comm = 0;
    return false;
}

static bool scan_engine(struct occl_view *view) {
    struct occl_engine_op_view views[ENGINE_OPS_ONCE];
    uint64_t last = 0;
    if (!(view->request.wants & OCCL_VIEW_WANT_OPS) || view->engine_uid == 0)
        return true;
    uint32_t per_comm = view->per_comm_ops < ENGINE_OPS_COMM ? view->per_comm_ops : ENGINE_OPS_COMM;
    uint32_t count = occl_engine_job_ops(view->daemon->engine, view->job_id, &view->engine_uid,
                                         per_comm, views, ENGINE_OPS_ONCE);
    view->of_comm = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct occl_op_view op;
        struct occl_held_view helds[OCCL_LOCAL_RANKS_MAX];
        if (views[i].comm_uid != last)
            view->of_comm = 0;
        last = views[i].comm_uid;
        if (occl_opview_engine(view->daemon, &views[i], &op, helds) && op.comm->job == view->job &&
            takes(view, op.comm))
            add_op(view, &op, helds);
    }
    return view->engine_uid == 0;
}

/* What the engine holds of this job and did not show. */
static void count_engine(struct occl_view *view) {
    struct occl_engine_job_usage usage;
    uint64_t shown = 0;
    if (!(view->request.wants & OCCL_VIEW_WANT_OPS) || view->request.takes ||
        !occl_engine_job_usage(view->daemon->engine, view->job_id, &usage))
        return;
    for (uint32_t i = 0; i < view->list.count; i++)
        shown +=
            !view->list.ops[i].in_record && view->list.ops[i].signature.kind != OCCL_OPVIEW_SPLIT;
    if (usage.queue_depth > shown && shown >= ENGINE_OPS_COMM)
        view->cut += usage.queue_depth - shown;
}

static bool mark_holders(struct occl_view *view) {
    if (!(view->request.wants & OCCL_VIEW_WANT_HOLDERS))
        return true;
    for (uint32_t i = 0; i < OPS_ONCE && view->at < view->list.count; i++) {
        const struct occl_op_view *op = &view->list.ops[view->at++];
        if (op->since_ns + view->request.holders_ns > view->now_ns)
            continue;
        for (uint64_t left = occl_opview_holders(op); left; left &= left - 1) {
            uint32_t rank = (uint32_t)__builtin_ctzll(left);
            struct occl_wait_node *node =
                occl_why_node(&view->graph, op->comm->seats[rank].session);
            if (node)
                node->wanted = true;
        }
    }
    return view->at == view->list.count;
}

/* The first process of each hint: whom a communicator that is being formed may mean. */
static void mark_absent(struct occl_view *view) {
    uint64_t seen = 0;
    if (!(view->request.wants & OCCL_VIEW_WANT_ABSENT) || TAILQ_EMPTY(&view->job->meetings))
        return;
    for (uint32_t i = 0; i < view->graph.count; i++) {
        int32_t hint = view->graph.nodes[i].session->rank_hint;
        if (hint < 0 || hint >= OCCL_LOCAL_RANKS_MAX || (seen >> hint & 1))
            continue;
        seen |= 1ull << hint;
        view->graph.nodes[i].wanted = view->graph.nodes[i].first_of_hint = true;
    }
}

static bool read_state(struct occl_view *view) {
    bool all = view->request.wants & OCCL_VIEW_WANT_STATES;
    while (view->at < view->graph.count) {
        struct occl_wait_node *node = &view->graph.nodes[view->at++];
        if (!node->wanted && !all)
            continue;
        node->state =
            occl_identity_process_state(node->session, node->wanted ? &node->killed : NULL);
        return false;
    }
    return true;
}

/* ---- steps ---- */

static bool piece(struct occl_view *view) {
    switch ((enum phase)view->phase) {
    case PHASE_COMMS:
        return scan_comms(view);
    case PHASE_ENGINE:
        if (!scan_engine(view))
            return false;
        count_engine(view);
        return true;
    case PHASE_MARK:
        if (!mark_holders(view))
            return false;
        mark_absent(view);
        view->at = 0;
        return true;
    case PHASE_STATES:
        return read_state(view);
    case PHASE_BEGIN:
    case PHASE_GRAPH:
        break;
    }
    return true;
}

static enum occl_view_state work(struct occl_view *view, uint64_t until_ns) {
    if (view->phase == PHASE_BEGIN) {
        if (view->begun == BEGINNINGS_MAX)
            return OCCL_VIEW_RESTLESS;
        if (begin(view) != OCCL_OK)
            return OCCL_VIEW_FAILED;
        view->phase = PHASE_COMMS;
    }
    do {
        if (view->phase == PHASE_GRAPH) {
            bool wanted = view->request.wants & OCCL_VIEW_WANT_GRAPH;
            view->graph.list = &view->list;
            occl_opheld_resolve(&view->list);
            if (wanted && occl_why_graph_build(&view->graph) != OCCL_OK)
                return OCCL_VIEW_FAILED;
            return OCCL_VIEW_DONE;
        }
        view->phase += piece(view);
    } while (now_of(view) < until_ns);
    return OCCL_VIEW_MORE;
}

enum occl_view_state occl_view_step(struct occl_view *view, uint64_t until_ns) {
    uint64_t start_ns = now_of(view);
    view->job = occl_job_find(view->daemon, view->job_id);
    if (!view->job)
        return OCCL_VIEW_GONE;
    if (view->phase != PHASE_BEGIN && view->job->shape != view->shape)
        forget(view);
    enum occl_view_state state = work(view, until_ns);
    view->spent_ns += now_of(view) - start_ns;
    return state;
}
