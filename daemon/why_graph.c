/* SPDX-License-Identifier: Apache-2.0 */
/* Stuck sets and cycles on the graph of application waits. Every wait names ops; an op goes on when
 * all its missing members come; a process goes on when one of the ops it waits in goes on. So a
 * process is stuck while each op it waits in misses a member that is stuck itself, and the largest
 * such set is found by starting with all that wait and taking away whoever may go on. Nothing in it
 * can move by itself, whatever order the others run in. */
#include <stdlib.h>
#include <string.h>

#include "daemon/why.h"

static bool op_waits(const struct occl_op_view *op) {
    return op->state == 0 && op->members_mask & ~op->arrived_mask;
}

struct occl_wait_node *occl_why_node(const struct occl_wait_graph *graph,
                                     const struct occl_session *session) {
    for (uint32_t i = 0; session && i < graph->count; i++)
        if (graph->nodes[i].session == session)
            return &graph->nodes[i];
    return NULL;
}

/* Calls once for each op in which a rank of the session waits. NULL: no more. */
static const struct occl_op_view *next_wait(const struct occl_op_list *list,
                                            const struct occl_session *session, uint32_t *at,
                                            uint32_t *out_rank) {
    for (; *at < list->count; ++*at) {
        const struct occl_op_view *op = &list->ops[*at];
        if (!op_waits(op))
            continue;
        for (uint32_t rank = 0; rank < op->comm->ranks; rank++) {
            if (op->comm->seats[rank].session == session && (op->waiting_mask >> rank & 1)) {
                *out_rank = rank;
                ++*at;
                return op;
            }
        }
    }
    return NULL;
}

static bool in_set(const struct occl_wait_node *node, bool definite) {
    return node && (definite ? node->definite : node->stuck);
}

/* A missing member of op that is in the set; OCCL_RANK_NONE. */
static uint32_t missing_in_set(const struct occl_wait_graph *graph, const struct occl_op_view *op,
                               bool definite) {
    for (uint32_t rank = 0; rank < op->comm->ranks; rank++) {
        if (!((op->members_mask & ~op->arrived_mask) >> rank & 1))
            continue;
        if (in_set(occl_why_node(graph, op->comm->seats[rank].session), definite))
            return rank;
    }
    return OCCL_RANK_NONE;
}

static bool may_go_on(const struct occl_wait_graph *graph, const struct occl_wait_node *node,
                      bool definite) {
    const struct occl_op_view *op;
    uint32_t at = 0;
    uint32_t rank;
    while ((op = next_wait(graph->list, node->session, &at, &rank)) != NULL) {
        if (definite && op->waiting_since_ns + OCCL_WAIT_SETTLED_NS > graph->now_ns)
            return true;
        if (missing_in_set(graph, op, definite) == OCCL_RANK_NONE)
            return true;
    }
    return false;
}

static void shrink(struct occl_wait_graph *graph, bool definite) {
    bool changed = true;
    /* Each round takes at least one away, so there are at most count rounds. */
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < graph->count; i++) {
            struct occl_wait_node *node = &graph->nodes[i];
            if (!in_set(node, definite) || !may_go_on(graph, node, definite))
                continue;
            if (definite)
                node->definite = false;
            else
                node->stuck = false;
            changed = true;
        }
    }
}

static bool is_awaited(const struct occl_wait_graph *graph, const struct occl_wait_node *node) {
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct occl_wait_node *other = &graph->nodes[i];
        const struct occl_op_view *op;
        uint32_t at = 0;
        uint32_t rank;
        if (!other->in_cycle)
            continue;
        while ((op = next_wait(graph->list, other->session, &at, &rank)) != NULL)
            for (uint32_t m = 0; m < op->comm->ranks; m++)
                if (((op->members_mask & ~op->arrived_mask) >> m & 1) &&
                    op->comm->seats[m].session == node->session)
                    return true;
    }
    return false;
}

/* Who only waits for a cycle is its victim: take away whoever nobody left in the set waits for. */
static void find_cycle_members(struct occl_wait_graph *graph) {
    bool changed = true;
    for (uint32_t i = 0; i < graph->count; i++)
        graph->nodes[i].in_cycle = graph->nodes[i].definite;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < graph->count; i++) {
            struct occl_wait_node *node = &graph->nodes[i];
            if (!node->in_cycle || is_awaited(graph, node))
                continue;
            node->in_cycle = false;
            changed = true;
        }
    }
}

static bool all_threads_wait(const struct occl_session *session) {
    /* The waiting ones first: a thread that starts to wait in between only makes us less sure. */
    uint32_t waiting = occl_observe32(&session->page->threads_waiting);
    uint32_t using = occl_observe32(&session->page->threads_using);
    return waiting > 0 && waiting >= using;
}

static int add_nodes(struct occl_wait_graph *graph) {
    const struct occl_op_list *list = graph->list;
    uint32_t room = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct occl_op_view *op = &list->ops[i];
        for (uint32_t rank = 0; op_waits(op) && rank < op->comm->ranks; rank++) {
            struct occl_session *session = op->comm->seats[rank].session;
            if (!session || !(op->waiting_mask >> rank & 1) || occl_why_node(graph, session))
                continue;
            if (graph->count == room) {
                room = room ? room * 2 : 32;
                struct occl_wait_node *nodes = realloc(graph->nodes, room * sizeof *nodes);
                if (!nodes)
                    return OCCL_E_NO_MEMORY;
                graph->nodes = nodes;
            }
            bool fully = all_threads_wait(session);
            graph->nodes[graph->count++] =
                (struct occl_wait_node){session, true, fully, true, fully, false};
        }
    }
    return OCCL_OK;
}

int occl_why_graph_build(struct occl_daemon *daemon, const struct occl_op_list *list,
                         struct occl_wait_graph *out_graph) {
    struct occl_wait_graph graph = {list, occl_loop_now_ns(daemon->loop), NULL, 0};
    int status = add_nodes(&graph);
    if (status != OCCL_OK) {
        free(graph.nodes);
        return status;
    }
    shrink(&graph, false);
    shrink(&graph, true);
    find_cycle_members(&graph);
    *out_graph = graph;
    return OCCL_OK;
}

void occl_why_graph_free(struct occl_wait_graph *graph) {
    free(graph->nodes);
    memset(graph, 0, sizeof *graph);
}

/* ---- cycles ---- */

/* One step along the waits of a stuck node: the op it waits in and the stuck member that is
 * missing. */
static struct occl_wait_node *step_from(const struct occl_wait_graph *graph,
                                        const struct occl_wait_node *node, bool definite,
                                        struct occl_cycle_step *out_step) {
    uint32_t at = 0;
    uint32_t rank;
    const struct occl_op_view *op = next_wait(graph->list, node->session, &at, &rank);
    if (!op)
        return NULL;
    uint32_t missing = missing_in_set(graph, op, definite);
    if (missing == OCCL_RANK_NONE)
        return NULL;
    *out_step = (struct occl_cycle_step){op, node->session, rank, missing};
    return occl_why_node(graph, op->comm->seats[missing].session);
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
    hash *= 0xbf58476d1ce4e5b9ull;
    return hash ^ (hash >> 29);
}

static void seal(struct occl_cycle *cycle) {
    cycle->signature = 0;
    cycle->waiting_since_ns = 0;
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct occl_op_view *op = cycle->steps[i].op;
        uint64_t hash = mix(op->comm->uid, (uint64_t)op->key.peers << 32 | op->key.tag);
        hash = mix(hash, op->key.instance);
        /* A sum, so that it does not matter where the walk began. */
        cycle->signature += mix(hash, cycle->steps[i].session->id);
        if (op->waiting_since_ns > cycle->waiting_since_ns)
            cycle->waiting_since_ns = op->waiting_since_ns;
    }
}

/* Walks from a node until one comes again; the part in between is a cycle. */
static bool walk(const struct occl_wait_graph *graph, uint32_t start, bool definite,
                 unsigned char *seen, struct occl_cycle *out_cycle) {
    struct occl_cycle_step steps[OCCL_CYCLE_MAX];
    uint32_t path[OCCL_CYCLE_MAX];
    uint32_t count = 0;
    uint32_t at = start;
    while (count < OCCL_CYCLE_MAX) {
        for (uint32_t i = 0; i < count; i++) {
            if (path[i] != at)
                continue;
            out_cycle->count = count - i;
            out_cycle->definite = definite;
            memcpy(out_cycle->steps, steps + i, out_cycle->count * sizeof *steps);
            seal(out_cycle);
            return true;
        }
        if (seen[at])
            return false;
        seen[at] = 1;
        path[count] = at;
        const struct occl_wait_node *next =
            step_from(graph, &graph->nodes[at], definite, &steps[count]);
        if (!next)
            return false;
        count++;
        at = (uint32_t)(next - graph->nodes);
    }
    return false;
}

bool occl_why_next_cycle(const struct occl_wait_graph *graph, unsigned char *seen,
                         struct occl_cycle *out_cycle) {
    for (int definite = 1; definite >= 0; definite--) {
        for (uint32_t i = 0; i < graph->count; i++) {
            if (!seen[i] && in_set(&graph->nodes[i], definite) &&
                walk(graph, i, definite, seen, out_cycle))
                return true;
        }
    }
    return false;
}

void occl_why_cycle_text(const struct occl_cycle *cycle, char *out_text, uint32_t bytes) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < cycle->count && used + 1 < bytes; i++) {
        const struct occl_cycle_step *step = &cycle->steps[i];
        char op[96];
        occl_why_op_text(step->op, op, sizeof op);
        int length =
            snprintf(out_text + used, bytes - used,
                     "%srank %u (pid %d) waits in %s of %s for rank %u", i ? ", " : "", step->rank,
                     (int)step->session->pid, op, step->op->comm->name, step->waits_for_rank);
        if (length < 0)
            return;
        used += (uint32_t)length;
    }
    if (used + 1 < bytes)
        (void)snprintf(out_text + used, bytes - used, ": a cycle");
}
