/* SPDX-License-Identifier: Apache-2.0 */
/* Stuck sets and cycles on the graph of application waits. Every wait names ops; an op goes on when
 * all its missing members come; a process goes on when one of the ops it waits in goes on. So a
 * process is stuck while each op it waits in misses a member that is stuck itself, and the largest
 * such set is found by starting with all that wait and taking away whoever may go on. Nothing in it
 * can move by itself, whatever order the others run in.
 *
 * The time is linear in the edges (process, op), and these are bounded: a page full of invented ops
 * costs a millisecond. */
#include <stdlib.h>
#include <string.h>

#include "daemon/why.h"

static uint64_t missing_of(const struct occl_op_view *op) {
    return op->members_mask & ~op->arrived_mask;
}

static bool op_waits(const struct occl_op_view *op) {
    return op->state == 0 && missing_of(op);
}

struct occl_wait_node *occl_why_node(const struct occl_wait_graph *graph,
                                     const struct occl_session *session) {
    if (!session || session->place >= graph->count ||
        graph->nodes[session->place].session != session)
        return NULL;
    return &graph->nodes[session->place];
}

static struct occl_wait_node *node_at(const struct occl_wait_graph *graph,
                                      const struct occl_op_view *op, uint64_t ranks) {
    return occl_why_node(graph, op->comm->seats[__builtin_ctzll(ranks)].session);
}

/* ---- edges ---- */

static uint32_t edges_of(const struct occl_op_view *op) {
    return op_waits(op) ? (uint32_t)(__builtin_popcountll(op->waiting_mask) +
                                     __builtin_popcountll(missing_of(op)))
                        : 0;
}

static void count_edges(struct occl_wait_graph *graph) {
    uint32_t edges = 0;
    for (graph->ops_count = 0; graph->ops_count < graph->list->count; graph->ops_count++) {
        const struct occl_op_view *op = &graph->list->ops[graph->ops_count];
        struct occl_wait_node *node;
        edges += edges_of(op);
        if (edges > OCCL_WAIT_EDGES_MAX)
            return;
        if (!op_waits(op))
            continue;
        for (uint64_t left = op->waiting_mask; left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                node->waits_count++;
        for (uint64_t left = missing_of(op); left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                node->misses_count++;
    }
}

static void place_edges(struct occl_wait_graph *graph) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < graph->count; i++) {
        struct occl_wait_node *node = &graph->nodes[i];
        node->waits_first = used;
        used += node->waits_count;
        node->misses_first = used;
        used += node->misses_count;
        node->waits_count = node->misses_count = 0;
    }
    for (uint32_t i = 0; i < graph->ops_count; i++) {
        const struct occl_op_view *op = &graph->list->ops[i];
        struct occl_wait_node *node;
        if (!op_waits(op))
            continue;
        for (uint64_t left = op->waiting_mask; left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                graph->edges[node->waits_first + node->waits_count++] = i;
        for (uint64_t left = missing_of(op); left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                graph->edges[node->misses_first + node->misses_count++] = i;
    }
}

/* ---- stuck sets ---- */

struct shrinking {
    struct occl_wait_graph *graph;
    bool definite;
    bool cycle;
    uint32_t *held;  /* by op: its members in the set that hold it up (cycle: that wait in it) */
    uint32_t *queue; /* nodes to take away */
    uint32_t head, tail;
    bool *queued; /* by node */
};

static bool in_set(const struct occl_wait_node *node, bool definite) {
    return node && (definite ? node->definite : node->stuck);
}

static void take_away(struct shrinking *s, const struct occl_wait_node *node) {
    uint32_t place = (uint32_t)(node - s->graph->nodes);
    if (s->queued[place])
        return;
    s->queued[place] = true;
    s->queue[s->tail++] = place;
}

static bool unsettled(const struct shrinking *s, const struct occl_op_view *op) {
    return s->definite && op->waiting_since_ns + OCCL_WAIT_SETTLED_NS > s->graph->now_ns;
}

/* Nobody in the set holds the op up any more: who waits in it may go on. */
static void op_goes_on(struct shrinking *s, uint32_t number) {
    const struct occl_op_view *op = &s->graph->list->ops[number];
    for (uint64_t left = op->waiting_mask; left; left &= left - 1) {
        const struct occl_wait_node *node = node_at(s->graph, op, left);
        if (in_set(node, s->definite))
            take_away(s, node);
    }
}

static void shrink(struct shrinking *s) {
    struct occl_wait_graph *graph = s->graph;
    memset(s->held, 0, graph->ops_count * sizeof *s->held);
    memset(s->queued, 0, graph->count * sizeof *s->queued);
    s->head = s->tail = 0;
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct occl_wait_node *node = &graph->nodes[i];
        for (uint32_t e = 0; in_set(node, s->definite) && e < node->misses_count; e++)
            s->held[graph->edges[node->misses_first + e]]++;
    }
    for (uint32_t i = 0; i < graph->ops_count; i++)
        if (op_waits(&graph->list->ops[i]) &&
            (s->held[i] == 0 || unsettled(s, &graph->list->ops[i])))
            op_goes_on(s, i);
    while (s->head < s->tail) {
        struct occl_wait_node *node = &graph->nodes[s->queue[s->head++]];
        if (s->definite)
            node->definite = false;
        else
            node->stuck = false;
        for (uint32_t e = 0; e < node->misses_count; e++) {
            uint32_t number = graph->edges[node->misses_first + e];
            if (--s->held[number] == 0)
                op_goes_on(s, number);
        }
    }
}

/* Nobody of the cycle waits in the op any more: it waits for its missing members no longer. */
static void op_is_left(struct shrinking *s, uint32_t *awaited, uint32_t number) {
    const struct occl_op_view *op = &s->graph->list->ops[number];
    for (uint64_t left = missing_of(op); left; left &= left - 1) {
        const struct occl_wait_node *node = node_at(s->graph, op, left);
        if (node && node->in_cycle && --awaited[node - s->graph->nodes] == 0)
            take_away(s, node);
    }
}

/* Who only waits for a cycle is its victim: take away whoever nobody left in the set waits for. */
static void find_cycle_members(struct shrinking *s, uint32_t *awaited) {
    struct occl_wait_graph *graph = s->graph;
    memset(s->held, 0, graph->ops_count * sizeof *s->held);
    memset(s->queued, 0, graph->count * sizeof *s->queued);
    s->head = s->tail = 0;
    for (uint32_t i = 0; i < graph->count; i++) {
        struct occl_wait_node *node = &graph->nodes[i];
        node->in_cycle = node->definite;
        for (uint32_t e = 0; node->in_cycle && e < node->waits_count; e++)
            s->held[graph->edges[node->waits_first + e]]++;
    }
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct occl_wait_node *node = &graph->nodes[i];
        for (uint32_t e = 0; node->in_cycle && e < node->misses_count; e++)
            awaited[i] += s->held[graph->edges[node->misses_first + e]] > 0;
        if (node->in_cycle && awaited[i] == 0)
            take_away(s, node);
    }
    while (s->head < s->tail) {
        struct occl_wait_node *node = &graph->nodes[s->queue[s->head++]];
        node->in_cycle = false;
        for (uint32_t e = 0; e < node->waits_count; e++) {
            uint32_t number = graph->edges[node->waits_first + e];
            if (--s->held[number] == 0)
                op_is_left(s, awaited, number);
        }
    }
}

static bool all_threads_wait(const struct occl_session *session) {
    /* The waiting ones first: a thread that starts to wait in between only makes us less sure. */
    uint32_t waiting = occl_observe32(&session->page->threads_waiting);
    uint32_t using = occl_observe32(&session->page->threads_using);
    return waiting > 0 && waiting >= using;
}

int occl_why_graph_build(struct occl_wait_graph *graph) {
    count_edges(graph);
    struct shrinking s = {.graph = graph};
    uint32_t *awaited = calloc(graph->count + 1, sizeof *awaited);
    graph->edges = calloc(OCCL_WAIT_EDGES_MAX, sizeof *graph->edges);
    s.held = calloc(graph->ops_count + 1, sizeof *s.held);
    s.queue = calloc(graph->count + 1, sizeof *s.queue);
    s.queued = calloc(graph->count + 1, sizeof *s.queued);
    int status =
        awaited && graph->edges && s.held && s.queue && s.queued ? OCCL_OK : OCCL_E_NO_MEMORY;
    if (status == OCCL_OK) {
        place_edges(graph);
        for (uint32_t i = 0; i < graph->count; i++) {
            struct occl_wait_node *node = &graph->nodes[i];
            node->blocked = node->stuck = node->waits_count > 0;
            node->fully_blocked = node->definite = node->blocked && all_threads_wait(node->session);
        }
        shrink(&s);
        s.definite = true;
        shrink(&s);
        find_cycle_members(&s, awaited);
    }
    free(awaited);
    free(s.held);
    free(s.queue);
    free(s.queued);
    return status;
}

void occl_why_graph_free(struct occl_wait_graph *graph) {
    free(graph->nodes);
    free(graph->edges);
    memset(graph, 0, sizeof *graph);
}

/* ---- cycles ---- */

/* A missing member of op that is in the set; OCCL_RANK_NONE. */
static uint32_t missing_in_set(const struct occl_wait_graph *graph, const struct occl_op_view *op,
                               bool definite) {
    for (uint64_t left = missing_of(op); left; left &= left - 1)
        if (in_set(node_at(graph, op, left), definite))
            return (uint32_t)__builtin_ctzll(left);
    return OCCL_RANK_NONE;
}

/* One step along the waits of a stuck node: the op it waits in and the stuck member that is
 * missing. */
static struct occl_wait_node *step_from(const struct occl_wait_graph *graph,
                                        const struct occl_wait_node *node, bool definite,
                                        struct occl_cycle_step *out_step) {
    if (node->waits_count == 0)
        return NULL;
    const struct occl_op_view *op = &graph->list->ops[graph->edges[node->waits_first]];
    uint32_t missing = missing_in_set(graph, op, definite);
    if (missing == OCCL_RANK_NONE)
        return NULL;
    uint64_t left = op->waiting_mask;
    while (left && node_at(graph, op, left) != node)
        left &= left - 1;
    if (!left)
        return NULL;
    *out_step =
        (struct occl_cycle_step){op, node->session, (uint32_t)__builtin_ctzll(left), missing};
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

bool occl_why_next_cycle(const struct occl_wait_graph *graph, struct occl_cycle_walk *way,
                         struct occl_cycle *out_cycle) {
    for (;;) {
        for (; way->at < graph->count; way->at++) {
            uint32_t i = way->at;
            if (!way->seen[i] && in_set(&graph->nodes[i], !way->likely) &&
                walk(graph, i, !way->likely, way->seen, out_cycle))
                return true;
        }
        if (way->likely)
            return false;
        way->likely = true;
        way->at = 0;
    }
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
