/* SPDX-License-Identifier: Apache-2.0 */
/* Stuck sets and cycles on the graph of application waits. Every wait names ops; an op goes on when
 * all its missing members come; a process goes on when one of the ops it waits in goes on. So a
 * process is stuck while each op it waits in misses a member that is stuck itself, and the largest
 * such set is found by starting with all that wait and taking away whoever may go on. Nothing in it
 * can move by itself, whatever order the others run in.
 *
 * A member that is held back has submitted the op, and comes when another op of its own is
 * complete: such an edge leads from op to op and asks no process. So ops are in the set, too, while
 * one of their missing members is, or an op that one of them comes after; a cycle may consist of
 * ops alone, with nobody waiting. If an op comes after several, one of them is known here, which is
 * enough: while that one is stuck, so is the op.
 *
 * Not every op needs all its members. A source decides it alone, and a contributor is done without
 * the others (op_kind.h), if the payload is small, which is not known before they come. So while
 * the source has not come it is the only one that holds up those who wait for it, and who waits in
 * an op of its own that is held back waits for what that one comes after, unless it is the one that
 * needs all. Whoever has come and still waits does need the others.
 *
 * The time is linear in the edges (process, op), and these are bounded: a page full of invented ops
 * costs a millisecond. */
#include <stdlib.h>
#include <string.h>

#include "daemon/why.h"
#include "shm_ipc/op_kind.h"

/* The root, or of a pair the sender. OCCL_LOCAL_RANKS_MAX: there is none. */
static uint32_t root_of(const struct occl_op_view *op, const struct occl_kind_traits *traits) {
    if (traits->flags & OCCL_KIND_PAIR)
        return op->key.peers >> 16;
    return traits->flags & OCCL_KIND_ROOTED ? op->signature.root : OCCL_LOCAL_RANKS_MAX;
}

uint64_t occl_why_needed(const struct occl_op_view *op) {
    const struct occl_kind_traits *traits = occl_kind_traits(op->signature.kind);
    uint32_t root = traits ? root_of(op, traits) : OCCL_LOCAL_RANKS_MAX;
    uint64_t source = root < OCCL_LOCAL_RANKS_MAX ? 1ull << root & op->members_mask : 0;
    if (!source || !(traits->flags & OCCL_KIND_SOURCE) || (op->arrived_mask & source))
        return op->members_mask;
    return source;
}

/* Held back, and what it comes after is all that the rank is known to wait for. */
static bool ends_alone(const struct occl_op_view *op, uint32_t rank) {
    const struct occl_kind_traits *traits = occl_kind_traits(op->signature.kind);
    if (!traits || !(traits->flags & (OCCL_KIND_SOURCE | OCCL_KIND_CONTRIBUTES)))
        return false;
    return (traits->flags & OCCL_KIND_SOURCE) || rank != root_of(op, traits);
}

/* Members that a process has to bring. */
static uint64_t missing_of(const struct occl_op_view *op) {
    return occl_why_needed(op) & ~(op->arrived_mask | op->held_mask | op->unsure_mask);
}

static bool op_waits(const struct occl_op_view *op) {
    return op->state == 0 && (op->members_mask & ~op->arrived_mask);
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

/* ---- who waits for what ---- */

static void move_wait(struct occl_wait_graph *graph, const struct occl_held_view *held) {
    struct occl_op_wait *from = &graph->op_waits[held->op];
    if (!(from->mask >> held->rank & 1) || !ends_alone(&graph->list->ops[held->op], held->rank))
        return;
    from->mask &= ~(1ull << held->rank);
    if (held->after >= graph->list->count)
        return;
    struct occl_op_wait *to = &graph->op_waits[held->after];
    to->mask |= 1ull << held->after_rank;
    if (to->since_ns < from->since_ns)
        to->since_ns = from->since_ns;
}

static void find_waits(struct occl_wait_graph *graph) {
    const struct occl_op_list *list = graph->list;
    for (uint32_t i = 0; i < list->count; i++)
        graph->op_waits[i] =
            (struct occl_op_wait){list->ops[i].waiting_mask, list->ops[i].waiting_since_ns};
    for (uint32_t i = 0; i < list->held_count; i++)
        if (list->helds[i].op < list->count)
            move_wait(graph, &list->helds[i]);
}

/* ---- edges ---- */

static uint32_t edges_of(const struct occl_wait_graph *graph, uint32_t number) {
    const struct occl_op_view *op = &graph->list->ops[number];
    return op_waits(op) ? (uint32_t)(__builtin_popcountll(graph->op_waits[number].mask) +
                                     __builtin_popcountll(missing_of(op)))
                        : 0;
}

static void count_edges(struct occl_wait_graph *graph) {
    uint32_t edges = 0;
    for (graph->ops_count = 0; graph->ops_count < graph->list->count; graph->ops_count++) {
        const struct occl_op_view *op = &graph->list->ops[graph->ops_count];
        struct occl_wait_node *node;
        edges += edges_of(graph, graph->ops_count);
        if (edges > OCCL_WAIT_EDGES_MAX)
            return;
        if (!op_waits(op))
            continue;
        for (uint64_t left = graph->op_waits[graph->ops_count].mask; left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                node->waits_count++;
        for (uint64_t left = op->waiting_mask; left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                node->open_waits++;
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
        for (uint64_t left = graph->op_waits[i].mask; left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                graph->edges[node->waits_first + node->waits_count++] = i;
        for (uint64_t left = missing_of(op); left; left &= left - 1)
            if ((node = node_at(graph, op, left)) != NULL)
                graph->edges[node->misses_first + node->misses_count++] = i;
    }
}

/* Lists of held-back ranks by the op that theirs comes after; numbers are one too large. */
static void place_helds(struct occl_wait_graph *graph) {
    const struct occl_op_list *list = graph->list;
    for (uint32_t i = list->held_count; i-- > 0;) {
        uint32_t after = list->helds[i].after;
        if (after >= graph->ops_count)
            continue;
        graph->after_next[i] = graph->after_head[after];
        graph->after_head[after] = i + 1;
    }
}

/* ---- stuck sets ---- */

struct shrinking {
    struct occl_wait_graph *graph;
    bool definite;
    uint32_t *held;  /* by op: how many hold it up (find_cycle_members: wait for it, by vertex) */
    uint32_t *queue; /* vertices to take away: ops, and behind them processes */
    uint32_t head, tail;
    bool *queued; /* by vertex */
};

static bool in_set(const struct occl_wait_node *node, bool definite) {
    return node && (definite ? node->definite : node->stuck);
}

static uint32_t vertex_of(const struct shrinking *s, const struct occl_wait_node *node) {
    return s->graph->ops_count + (uint32_t)(node - s->graph->nodes);
}

static void take_away(struct shrinking *s, uint32_t vertex) {
    if (s->queued[vertex])
        return;
    s->queued[vertex] = true;
    s->queue[s->tail++] = vertex;
}

static bool settled(const struct occl_wait_graph *graph, uint64_t since_ns) {
    return since_ns + OCCL_WAIT_SETTLED_NS <= graph->now_ns;
}

static bool unsettled(const struct shrinking *s, uint32_t number) {
    return s->definite && !settled(s->graph, s->graph->op_waits[number].since_ns);
}

/* The op that this one comes after holds it up, for it needs the rank. */
static bool held_counts(const struct occl_wait_graph *graph, const struct occl_held_view *held,
                        bool definite) {
    return held->op < graph->ops_count && occl_why_op_stuck(graph, held->after, definite) &&
           (occl_why_needed(&graph->list->ops[held->op]) >> held->rank & 1) &&
           (!definite || settled(graph, held->since_ns));
}

static void release(struct shrinking *s, uint32_t number) {
    if (--s->held[number] == 0)
        take_away(s, number);
}

/* Nobody in the set holds the op up any more: who waits in it may go on, and what comes after it.
 */
static void op_goes_on(struct shrinking *s, uint32_t number) {
    const struct occl_wait_graph *graph = s->graph;
    const struct occl_op_view *op = &graph->list->ops[number];
    for (uint64_t left = graph->op_waits[number].mask; left; left &= left - 1) {
        const struct occl_wait_node *node = node_at(graph, op, left);
        if (in_set(node, s->definite))
            take_away(s, vertex_of(s, node));
    }
    for (uint32_t i = graph->after_head[number]; i; i = graph->after_next[i - 1]) {
        const struct occl_held_view *held = &graph->list->helds[i - 1];
        if (held_counts(graph, held, s->definite))
            release(s, held->op);
    }
    graph->op_sets[number] &= (unsigned char)~(s->definite ? OCCL_OP_DEFINITE : OCCL_OP_STUCK);
}

static void node_goes_on(struct shrinking *s, struct occl_wait_node *node) {
    if (s->definite)
        node->definite = false;
    else
        node->stuck = false;
    for (uint32_t e = 0; e < node->misses_count; e++)
        release(s, s->graph->edges[node->misses_first + e]);
}

static void start(struct shrinking *s, uint32_t vertices) {
    memset(s->held, 0, vertices * sizeof *s->held);
    memset(s->queued, 0, vertices * sizeof *s->queued);
    s->head = s->tail = 0;
}

static void shrink(struct shrinking *s) {
    struct occl_wait_graph *graph = s->graph;
    const struct occl_op_list *list = graph->list;
    start(s, graph->ops_count + graph->count);
    for (uint32_t i = 0; i < graph->ops_count; i++)
        if (op_waits(&list->ops[i]))
            graph->op_sets[i] |= s->definite ? OCCL_OP_DEFINITE : OCCL_OP_STUCK;
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct occl_wait_node *node = &graph->nodes[i];
        for (uint32_t e = 0; in_set(node, s->definite) && e < node->misses_count; e++)
            s->held[graph->edges[node->misses_first + e]]++;
    }
    for (uint32_t i = 0; i < list->held_count; i++)
        if (held_counts(graph, &list->helds[i], s->definite))
            s->held[list->helds[i].op]++;
    for (uint32_t i = 0; i < graph->ops_count; i++)
        if (op_waits(&list->ops[i]) && (s->held[i] == 0 || unsettled(s, i)))
            take_away(s, i);
    while (s->head < s->tail) {
        uint32_t vertex = s->queue[s->head++];
        if (vertex < graph->ops_count)
            op_goes_on(s, vertex);
        else
            node_goes_on(s, &graph->nodes[vertex - graph->ops_count]);
    }
}

/* ---- members of cycles ---- */

static void no_longer_awaited(struct shrinking *s, uint32_t vertex) {
    if (--s->held[vertex] == 0)
        take_away(s, vertex);
}

static bool edge_in_cycle(const struct shrinking *s, const struct occl_held_view *held) {
    return held_counts(s->graph, held, true) && occl_why_op_stuck(s->graph, held->op, true);
}

/* What the vertex waits for: counts it, or takes the count back. */
static void for_awaited(struct shrinking *s, uint32_t vertex, bool count) {
    const struct occl_wait_graph *graph = s->graph;
    if (vertex >= graph->ops_count) {
        const struct occl_wait_node *node = &graph->nodes[vertex - graph->ops_count];
        for (uint32_t e = 0; e < node->waits_count; e++) {
            uint32_t number = graph->edges[node->waits_first + e];
            if (occl_why_op_stuck(graph, number, true) && count)
                s->held[number]++;
            else if (occl_why_op_stuck(graph, number, true))
                no_longer_awaited(s, number);
        }
        return;
    }
    const struct occl_op_view *op = &graph->list->ops[vertex];
    for (uint64_t left = missing_of(op); left; left &= left - 1) {
        const struct occl_wait_node *node = node_at(graph, op, left);
        if (in_set(node, true) && count)
            s->held[vertex_of(s, node)]++;
        else if (in_set(node, true))
            no_longer_awaited(s, vertex_of(s, node));
    }
    for (uint32_t i = 0; i < op->held_count; i++) {
        const struct occl_held_view *held = &graph->list->helds[op->held_first + i];
        if (edge_in_cycle(s, held) && count)
            s->held[held->after]++;
        else if (edge_in_cycle(s, held))
            no_longer_awaited(s, held->after);
    }
}

/* Who only waits for a cycle is its victim: take away what nobody left in the set waits for. */
static void find_cycle_members(struct shrinking *s) {
    struct occl_wait_graph *graph = s->graph;
    uint32_t vertices = graph->ops_count + graph->count;
    start(s, vertices);
    for (uint32_t v = 0; v < vertices; v++)
        if (v < graph->ops_count ? occl_why_op_stuck(graph, v, true)
                                 : graph->nodes[v - graph->ops_count].definite)
            for_awaited(s, v, true);
    for (uint32_t v = 0; v < vertices; v++)
        if (s->held[v] == 0 && (v < graph->ops_count ? occl_why_op_stuck(graph, v, true)
                                                     : graph->nodes[v - graph->ops_count].definite))
            take_away(s, v);
    while (s->head < s->tail)
        for_awaited(s, s->queue[s->head++], false);
    for (uint32_t i = 0; i < graph->count; i++)
        graph->nodes[i].in_cycle =
            graph->nodes[i].definite && !s->queued[vertex_of(s, &graph->nodes[i])];
    /* Whoever has made an op come after another is in it as well, waiting or not. */
    for (uint32_t i = 0; i < graph->list->held_count; i++) {
        const struct occl_held_view *held = &graph->list->helds[i];
        if (!edge_in_cycle(s, held) || s->queued[held->op] || s->queued[held->after])
            continue;
        const struct occl_op_view *op = &graph->list->ops[held->op];
        struct occl_wait_node *node = occl_why_node(graph, op->comm->seats[held->rank].session);
        if (node)
            node->in_cycle = true;
    }
}

/* All of them, and in ops that were seen open: a thread whose op is complete, or runs, is counted
 * as waiting until it wakes up, and goes on then. */
static bool all_threads_wait(const struct occl_wait_node *node) {
    const struct occl_session_page *page = node->session->page;
    /* The waiting ones first: a thread that starts to wait in between only makes us less sure. */
    uint32_t waiting = occl_observe32(&page->threads_waiting);
    uint32_t using = occl_observe32(&page->threads_using);
    return waiting > 0 && waiting >= using && node->open_waits >= waiting;
}

static void build(struct occl_wait_graph *graph, struct shrinking *s) {
    find_waits(graph);
    count_edges(graph);
    place_edges(graph);
    place_helds(graph);
    for (uint32_t i = 0; i < graph->count; i++) {
        struct occl_wait_node *node = &graph->nodes[i];
        node->blocked = node->stuck = node->waits_count > 0;
        node->fully_blocked = node->definite = node->blocked && all_threads_wait(node);
    }
    shrink(s);
    s->definite = true;
    shrink(s);
    find_cycle_members(s);
}

int occl_why_graph_build(struct occl_wait_graph *graph) {
    struct shrinking s = {.graph = graph};
    uint32_t ops = graph->list->count, vertices = ops + graph->count;
    graph->edges = calloc(OCCL_WAIT_EDGES_MAX, sizeof *graph->edges);
    graph->op_waits = calloc(ops + 1, sizeof *graph->op_waits);
    graph->op_sets = calloc(ops + 1, sizeof *graph->op_sets);
    graph->after_head = calloc(ops + 1, sizeof *graph->after_head);
    graph->after_next = calloc(graph->list->held_count + 1, sizeof *graph->after_next);
    s.held = calloc(vertices + 1, sizeof *s.held);
    s.queue = calloc(vertices + 1, sizeof *s.queue);
    s.queued = calloc(vertices + 1, sizeof *s.queued);
    int status = graph->edges && graph->op_waits && graph->op_sets && graph->after_head &&
                         graph->after_next && s.held && s.queue && s.queued
                     ? OCCL_OK
                     : OCCL_E_NO_MEMORY;
    if (status == OCCL_OK)
        build(graph, &s);
    free(s.held);
    free(s.queue);
    free(s.queued);
    return status;
}

void occl_why_graph_free(struct occl_wait_graph *graph) {
    free(graph->nodes);
    free(graph->edges);
    free(graph->op_waits);
    free(graph->op_sets);
    free(graph->after_head);
    free(graph->after_next);
    memset(graph, 0, sizeof *graph);
}
