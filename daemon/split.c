/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting a communicator: all ranks of the parent call it, each with a color and a key. Calls
 * meet by their sequence number, so several splits of one parent may be under way. Ranks of one
 * color form a communicator, ordered by key, then by rank in the parent; its rank 0 says name,
 * class and deadline, so that they do not depend on who comes first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"

/* Splits of one parent that wait at once; more is a rank that runs away. */
#define SPLITS_MAX 256

struct part {
    struct occl_session *session; /* NULL: this rank has not called */
    uint64_t request;
    int32_t color, key;
    uint32_t rank;
    uint32_t priority; /* 0..3, or 255: the parent's */
    uint64_t default_deadline_ns;
    char name[OCCL_NAME_BYTES];
};

struct occl_split {
    struct occl_comm *parent;
    uint32_t sequence;
    uint32_t came;
    uint64_t born_ns, last_ns; /* when the first and the last one called */
    struct occl_timer timer;
    TAILQ_ENTRY(occl_split) in_comm;
    struct part parts[];
};

static void destroy(struct occl_split *split) {
    struct occl_comm *parent = split->parent;
    occl_loop_timer_cancel(parent->job->tenant->daemon->loop, &split->timer);
    TAILQ_REMOVE(&parent->splits, split, in_comm);
    free(split);
}

static void fail(struct occl_split *split, int status, const char *text) {
    for (uint32_t rank = 0; rank < split->parent->ranks; rank++) {
        struct part *part = &split->parts[rank];
        /* The one that ended is not told. */
        if (part->session && part->session->phase == OCCL_PHASE_LIVE)
            occl_session_reply(part->session, part->request, status, "%s", text);
    }
    destroy(split);
}

void occl_split_fail_all(struct occl_comm *parent, int status, const char *text) {
    struct occl_split *split;
    while ((split = TAILQ_FIRST(&parent->splits)) != NULL)
        fail(split, status, text);
}

static void timed_out(struct occl_timer *timer) {
    struct occl_split *split = timer->owner;
    char ranks[OCCL_NAME_BYTES * 3];
    char text[OCCL_DETAIL_BYTES];
    uint64_t missing = 0;
    for (uint32_t rank = 0; rank < split->parent->ranks; rank++)
        if (!split->parts[rank].session)
            missing |= 1ull << rank;
    occl_opview_ranges(missing, ranks, sizeof ranks);
    (void)snprintf(
        text, sizeof text,
        "split %u of communicator %s: time-out; of %u ranks these have not called it: %s",
        split->sequence, split->parent->name, split->parent->ranks, ranks);
    fail(split, OCCL_E_TIMEOUT, text);
}

bool occl_split_next(const struct occl_comm *parent, struct occl_split **at,
                     struct occl_op_view *out_op) {
    struct occl_split *split = *at ? TAILQ_NEXT(*at, in_comm) : TAILQ_FIRST(&parent->splits);
    *at = split;
    if (!split)
        return false;
    memset(out_op, 0, sizeof *out_op);
    out_op->comm = split->parent;
    out_op->key = (struct occl_op_key){OCCL_PEERS_ALL, 0, split->sequence};
    out_op->signature.kind = OCCL_OPVIEW_SPLIT;
    for (uint32_t rank = 0; rank < parent->ranks; rank++) {
        out_op->members_mask |= 1ull << rank;
        if (split->parts[rank].session)
            out_op->arrived_mask |= 1ull << rank;
    }
    out_op->waiting_mask = out_op->arrived_mask; /* the call blocks */
    out_op->since_ns = split->born_ns;
    out_op->waiting_since_ns = split->last_ns;
    return true;
}

static int by_color_key_rank(const void *left, const void *right) {
    const struct part *a = left;
    const struct part *b = right;
    if (a->color != b->color)
        return a->color < b->color ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

/* One color: parts [0, count), by their new rank. */
static void make_one(struct occl_split *split, const struct part *parts, uint32_t count) {
    struct occl_session *sessions[OCCL_LOCAL_RANKS_MAX];
    uint64_t requests[OCCL_LOCAL_RANKS_MAX];
    struct occl_detail detail;
    uint64_t uid;
    const struct occl_comm *parent = split->parent;
    for (uint32_t i = 0; i < count; i++) {
        sessions[i] = parts[i].session;
        requests[i] = parts[i].request;
    }
    struct occl_comm_request request = {
        .job = parent->job,
        .name = parts[0].name,
        .ranks = count,
        .priority = parts[0].priority <= 3 ? parts[0].priority : parent->priority,
        .default_deadline_ns = parts[0].default_deadline_ns,
        .sessions = sessions,
        .requests = requests,
    };
    if (occl_comm_create(&request, &uid, &detail) == OCCL_OK)
        return;
    for (uint32_t i = 0; i < count; i++)
        occl_session_reply_detail(sessions[i], requests[i], &detail);
}

static void answer_none(const struct part *part) {
    struct occl_msg_comm msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM, part->request);
    occl_session_send(part->session, &msg, sizeof msg, NULL, 0);
}

static void complete(struct occl_split *split) {
    struct part parts[OCCL_LOCAL_RANKS_MAX];
    uint32_t ranks = split->parent->ranks;
    memcpy(parts, split->parts, ranks * sizeof *parts);
    qsort(parts, ranks, sizeof *parts, by_color_key_rank);
    for (uint32_t first = 0; first < ranks;) {
        uint32_t last = first + 1;
        if (parts[first].color < 0) {
            answer_none(&parts[first]);
        } else {
            while (last < ranks && parts[last].color == parts[first].color)
                last++;
            make_one(split, &parts[first], last - first);
        }
        first = last;
    }
    destroy(split);
}

static struct occl_split *find_or_start(struct occl_comm *parent,
                                        const struct occl_msg_comm_split *msg,
                                        struct occl_detail *detail) {
    struct occl_split *split;
    uint32_t count = 0;
    TAILQ_FOREACH(split, &parent->splits, in_comm) {
        if (split->sequence == msg->sequence)
            return split;
        count++;
    }
    if (count >= SPLITS_MAX) {
        (void)occl_detail_set(detail, OCCL_E_QUOTA, 0,
                              "communicator %s: %u splits wait for ranks already", parent->name,
                              count);
        return NULL;
    }
    split = calloc(1, sizeof *split + parent->ranks * sizeof split->parts[0]);
    if (!split) {
        (void)occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a split");
        return NULL;
    }
    split->parent = parent;
    split->sequence = msg->sequence;
    split->timer = (struct occl_timer){.fired = timed_out, .owner = split};
    TAILQ_INSERT_TAIL(&parent->splits, split, in_comm);
    return split;
}

static int check_request(struct occl_session *session, const struct occl_msg_comm_split *msg,
                         const struct occl_seat *seat, struct occl_detail *detail) {
    if (!seat)
        return occl_detail_set(detail, OCCL_E_HANDLE, 0,
                               "communicator number %u: this process has none of that number",
                               msg->comm);
    if (session->daemon->draining)
        return occl_detail_set(detail, OCCL_E_SHUTTING_DOWN, 0, "the daemon is shutting down");
    if (msg->priority > 3 && msg->priority != 255)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "priority: expected 0 to 3, or 255 for the parent's, found %u",
                               msg->priority);
    if (msg->reserved != 0)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "COMM_SPLIT: reserved field %#x, not 0",
                               msg->reserved);
    const struct occl_comm *parent = seat->comm;
    if (parent->state != OCCL_COMM_LIVE)
        return occl_detail_set(detail, parent->end_status, 0, "%s", parent->end_text);
    for (uint32_t rank = 0; rank < parent->ranks; rank++) {
        if (parent->left_mask >> rank & 1)
            return occl_detail_set(detail, OCCL_E_PEER_FAILED, 0,
                                   "communicator %s: rank %u (host %s, pid %u) %s", parent->name,
                                   rank, parent->seats[rank].who.host, parent->seats[rank].who.pid,
                                   parent->seats[rank].cause);
    }
    return occl_name_check(msg->name, sizeof msg->name, "communicator name", detail);
}

void occl_split_handle(struct occl_session *session, const struct occl_msg_comm_split *msg) {
    struct occl_loop *loop = session->daemon->loop;
    struct occl_seat *seat = occl_comm_seat(session, msg->comm);
    struct occl_detail detail;
    if (check_request(session, msg, seat, &detail) != OCCL_OK) {
        occl_session_reply_detail(session, msg->h.request, &detail);
        return;
    }
    struct occl_split *split = find_or_start(seat->comm, msg, &detail);
    if (!split) {
        occl_session_reply_detail(session, msg->h.request, &detail);
        return;
    }
    if (split->parts[seat->rank].session) {
        occl_session_reply(session, msg->h.request, OCCL_E_BUSY,
                           "split %u of communicator %s: rank %u has called it already",
                           msg->sequence, seat->comm->name, seat->rank);
        return;
    }
    struct part *part = &split->parts[seat->rank];
    *part = (struct part){.session = session,
                          .request = msg->h.request,
                          .color = msg->color,
                          .key = msg->key,
                          .rank = seat->rank,
                          .priority = msg->priority,
                          .default_deadline_ns = msg->default_deadline_ns};
    (void)snprintf(part->name, sizeof part->name, "%s", msg->name); /* checked: it is terminated */
    split->came++;
    split->last_ns = occl_loop_now_ns(loop);
    if (split->came == 1)
        split->born_ns = split->last_ns;
    if (split->came == seat->comm->ranks) {
        complete(split);
        return;
    }
    uint64_t due;
    if (msg->timeout_ns == 0 ||
        __builtin_add_overflow(occl_loop_now_ns(loop), msg->timeout_ns, &due))
        return;
    if ((!split->timer.place || split->timer.due_ns > due) &&
        occl_loop_timer_set(loop, &split->timer, due) != OCCL_OK)
        fail(split, OCCL_E_NO_MEMORY, "no memory for a timer");
}
