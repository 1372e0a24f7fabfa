/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict over one rank that others wait for. */
#include <stdio.h>
#include <string.h>

#include "daemon/why.h"

void occl_why_op_text(const struct occl_op_view *op, char *out_text, uint32_t bytes) {
    char tag[32] = "";
    char pair[32] = "";
    if (op->key.tag)
        (void)snprintf(tag, sizeof tag, " tag %u", op->key.tag);
    if (op->key.peers != OCCL_PEERS_ALL)
        (void)snprintf(pair, sizeof pair, " %u->%u", op->key.peers >> 16, op->key.peers & 0xffffu);
    (void)snprintf(out_text, bytes, "%s%s%s #%u", occl_opview_kind(op->signature.kind), pair, tag,
                   op->key.instance);
}

/* A process with a thread that does not wait may still come: it is late, whatever its others do. */
static const char *verdict_of_wait(const struct occl_wait_node *node) {
    if (node->in_cycle)
        return "cycle";
    return node->fully_blocked ? "waiting" : "late";
}

void occl_why_rank(const struct occl_wait_graph *graph, const struct occl_comm *comm, uint32_t rank,
                   struct occl_late_view *out_view) {
    const struct occl_seat *seat = &comm->seats[rank];
    memset(out_view, 0, sizeof *out_view);
    out_view->comm = comm;
    out_view->rank = rank;
    out_view->session = seat->session;
    occl_opview_note(comm, rank, &out_view->note);
    out_view->last_activity_ns = out_view->note.last_ns;
    if (!seat->session) {
        out_view->process = seat->state == OCCL_SEAT_GONE ? "gone" : "unknown";
        out_view->verdict = seat->state == OCCL_SEAT_GONE ? "dead" : "left";
        out_view->culprit = true;
        return;
    }
    /* States were read with the graph: whoever has none was not there or not asked for. */
    const struct occl_wait_node *node = occl_why_node(graph, seat->session);
    char state = node && node->state ? node->state : '?';
    out_view->process = occl_identity_state_word(state);
    if (state == 'G' || state == 'Z' || state == 'X')
        out_view->verdict = "dead";
    else if (node && node->killed)
        out_view->verdict = "unkillable";
    else if (state == 'T' || state == 't')
        out_view->verdict = "stopped";
    else if (node && (node->blocked || node->in_cycle))
        out_view->verdict = verdict_of_wait(node);
    else
        out_view->verdict = "late";
    /* Whoever only waits for somebody else is not to blame; a cycle blames all its members. */
    out_view->culprit = strcmp(out_view->verdict, "waiting") != 0;
}

static const char *explain(const char *verdict) {
    static const struct {
        const char *verdict, *text;
    } table[] = {
        {"late", "it has not come"},
        {"stopped", "its process is stopped"},
        {"unkillable", "it was killed and does not go away"},
        {"dead", "its process is gone"},
        {"left", "it has destroyed the communicator"},
        {"waiting", "it waits for others"},
        {"cycle", "it waits in a cycle"},
        {"held_back", "it has submitted it"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].verdict, verdict) == 0)
            return table[i].text;
    return verdict;
}

void occl_why_missing(const struct occl_wait_graph *graph, const struct occl_op_view *op,
                      uint32_t rank, struct occl_late_view *out_view) {
    occl_why_rank(graph, op->comm, rank, out_view);
    const struct occl_held_view *held = occl_opheld_of(graph->list, op, rank);
    if (!held)
        return;
    out_view->op = op;
    out_view->held = held;
    if (held->after != OCCL_OP_UNKNOWN)
        out_view->after = &graph->list->ops[held->after];
    if (strcmp(out_view->verdict, "late") != 0 && strcmp(out_view->verdict, "waiting") != 0)
        return;
    /* Whoever the other op waits for is to blame; if that one is not to be seen, nobody else is. */
    out_view->verdict = "held_back";
    out_view->culprit = out_view->after == NULL;
}

/* "broadcast tag 2 #5", and what is known of it. */
static void after_text(const struct occl_op_list *list, const struct occl_op_view *op,
                       const struct occl_held_view *held, char *out_text, uint32_t bytes) {
    char name[96], where[OCCL_NAME_BYTES + 8] = "", ranks[192];
    if (!held->after_comm) {
        (void)snprintf(out_text, bytes, "an operation that cannot be told");
        return;
    }
    if (held->after_comm != op->comm)
        (void)snprintf(where, sizeof where, " of %s", held->after_comm->name);
    if (held->after == OCCL_OP_UNKNOWN) {
        const struct occl_op_view unseen = {.key = held->after_key};
        occl_why_op_text(&unseen, name, sizeof name);
        (void)snprintf(out_text, bytes, "operation%s%s, which is not seen to wait", name, where);
        return;
    }
    const struct occl_op_view *after = &list->ops[held->after];
    uint64_t missing = after->members_mask & ~after->arrived_mask;
    occl_why_op_text(after, name, sizeof name);
    occl_opview_ranges(missing, ranks, sizeof ranks);
    if (missing)
        (void)snprintf(out_text, bytes, "%s%s, for which %s %s %s not come", name, where,
                       missing & (missing - 1) ? "ranks" : "rank", ranks,
                       missing & (missing - 1) ? "have" : "has");
    else
        (void)snprintf(out_text, bytes, "%s%s, which is not complete", name, where);
}

void occl_why_held_text(const struct occl_op_list *list, const struct occl_op_view *op,
                        const struct occl_held_view *held, char *out_text, uint32_t bytes) {
    char name[96], after[560], more[32] = "";
    occl_why_op_text(op, name, sizeof name);
    after_text(list, op, held, after, sizeof after);
    if (held->count > 1)
        (void)snprintf(more, sizeof more, "%u operations, first ", held->count);
    (void)snprintf(out_text, bytes, "it has submitted %s, which comes after %s%s", name, more,
                   after);
}

/* Why the rank is not there. */
static void reason_text(const struct occl_late_view *view, const struct occl_op_list *list,
                        char *out_text, uint32_t bytes) {
    char held[720];
    bool only_held = strcmp(view->verdict, "held_back") == 0;
    (void)snprintf(out_text, bytes, "%s", explain(view->verdict));
    if (!view->held)
        return;
    occl_why_held_text(list, view->op, view->held, held, sizeof held);
    (void)snprintf(out_text, bytes, "%s%s%s", only_held ? "" : explain(view->verdict),
                   only_held ? "" : "; ", held);
}

void occl_why_rank_text(const struct occl_late_view *view, const struct occl_op_list *list,
                        uint64_t now_ns, char *out_text, uint32_t bytes) {
    char reason[800];
    const struct occl_seat *seat = &view->comm->seats[view->rank];
    char last[96] = "no op done here yet";
    if (view->last_activity_ns && view->note.ops_done) {
        const struct occl_op_view op = {
            .key = view->note.last_key,
            .signature = {.kind = (uint8_t)view->note.last_kind},
        };
        char name[64];
        uint64_t age = now_ns > view->last_activity_ns ? now_ns - view->last_activity_ns : 0;
        occl_why_op_text(&op, name, sizeof name);
        (void)snprintf(last, sizeof last, "last finished %s %.1f s ago", name, (double)age / 1e9);
    }
    reason_text(view, list, reason, sizeof reason);
    (void)snprintf(out_text, bytes, "rank %u (host %s, pid %u): %s; process %s; %s", view->rank,
                   seat->who.host, seat->who.pid, reason, view->process, last);
}
