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
    else if (node && node->blocked)
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
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].verdict, verdict) == 0)
            return table[i].text;
    return verdict;
}

void occl_why_rank_text(const struct occl_late_view *view, uint64_t now_ns, char *out_text,
                        uint32_t bytes) {
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
    (void)snprintf(out_text, bytes, "rank %u (host %s, pid %u): %s; process %s; %s", view->rank,
                   seat->who.host, seat->who.pid, explain(view->verdict), view->process, last);
}
