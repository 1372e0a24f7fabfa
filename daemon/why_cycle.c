/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles in a graph of waits that has been built: a walk from op to op. From an op it goes to a
 * missing member of the set and the op in which that one waits, or, where a member is held back, to
 * the op that its arrival comes after. */
#include <stdio.h>
#include <string.h>

#include "daemon/why.h"

static bool in_set(const struct occl_wait_node *node, bool definite) {
    return node && (definite ? node->definite : node->stuck);
}

bool occl_why_op_stuck(const struct occl_wait_graph *graph, uint32_t op, bool definite) {
    return op < graph->ops_count &&
           (graph->op_sets[op] & (definite ? OCCL_OP_DEFINITE : OCCL_OP_STUCK));
}

/* From one op to the next. */
struct way {
    uint32_t rank; /* the missing member, of the first op's communicator */
    struct occl_session *session;
    const struct occl_held_view *held; /* NULL: it waits in the next op */
    uint32_t to, to_rank;              /* the op, and the member there */
};

/* A missing member that waits elsewhere. */
static bool leave_by_wait(const struct occl_wait_graph *graph, const struct occl_op_view *op,
                          uint32_t rank, bool definite, struct way *out) {
    const struct occl_wait_node *node = occl_why_node(graph, op->comm->seats[rank].session);
    if (!in_set(node, definite) || node->waits_count == 0)
        return false;
    uint32_t to = graph->edges[node->waits_first];
    const struct occl_op_view *next = &graph->list->ops[to];
    for (uint64_t left = graph->op_waits[to].mask; left; left &= left - 1) {
        uint32_t there = (uint32_t)__builtin_ctzll(left);
        if (occl_why_node(graph, next->comm->seats[there].session) != node)
            continue;
        *out = (struct way){rank, node->session, NULL, to, there};
        return true;
    }
    return false;
}

static bool leave_by_held(const struct occl_wait_graph *graph, const struct occl_op_view *op,
                          bool definite, struct way *out) {
    for (uint32_t i = 0; i < op->held_count; i++) {
        const struct occl_held_view *held = &graph->list->helds[op->held_first + i];
        struct occl_session *session = op->comm->seats[held->rank].session;
        if (!session || !(occl_why_needed(op) >> held->rank & 1) ||
            !occl_why_op_stuck(graph, held->after, definite) ||
            (definite && held->since_ns + OCCL_WAIT_SETTLED_NS > graph->now_ns))
            continue;
        *out = (struct way){held->rank, session, held, held->after, held->after_rank};
        return true;
    }
    return false;
}

static bool leave(const struct occl_wait_graph *graph, uint32_t number, bool definite,
                  struct way *out) {
    const struct occl_op_view *op = &graph->list->ops[number];
    for (uint64_t left =
             occl_why_needed(op) & ~(op->arrived_mask | op->held_mask | op->unsure_mask);
         left; left &= left - 1)
        if (leave_by_wait(graph, op, (uint32_t)__builtin_ctzll(left), definite, out))
            return true;
    return leave_by_held(graph, op, definite, out);
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
        const struct occl_held_view *held = cycle->steps[i].held;
        uint64_t since_ns = held ? held->since_ns : op->waiting_since_ns;
        if (since_ns > cycle->waiting_since_ns)
            cycle->waiting_since_ns = since_ns;
    }
}

static void make_cycle(const struct occl_wait_graph *graph, const struct way *ways, uint32_t count,
                       bool definite, struct occl_cycle *out_cycle) {
    out_cycle->count = count;
    out_cycle->definite = definite;
    for (uint32_t i = 0; i < count; i++) {
        const struct way *way = &ways[i];
        out_cycle->steps[i] = (struct occl_cycle_step){
            .op = &graph->list->ops[way->to],
            .held_op = way->held ? &graph->list->ops[way->held->op] : NULL,
            .held = way->held,
            .session = way->session,
            .rank = way->to_rank,
            .waits_for_rank = ways[(i + 1) % count].rank,
        };
    }
    seal(out_cycle);
}

/* Walks from an op until one comes again; the part in between is a cycle. */
static bool walk(const struct occl_wait_graph *graph, uint32_t start, bool definite,
                 unsigned char *seen, struct occl_cycle *out_cycle) {
    struct way ways[OCCL_CYCLE_MAX];
    uint32_t path[OCCL_CYCLE_MAX];
    uint32_t at = start;
    for (uint32_t count = 0; count < OCCL_CYCLE_MAX; count++) {
        for (uint32_t i = 0; i < count; i++) {
            if (path[i] != at)
                continue;
            make_cycle(graph, ways + i, count - i, definite, out_cycle);
            return true;
        }
        if (seen[at])
            return false;
        seen[at] = 1;
        path[count] = at;
        if (!leave(graph, at, definite, &ways[count]))
            return false;
        at = ways[count].to;
    }
    return false;
}

bool occl_why_next_cycle(const struct occl_wait_graph *graph, struct occl_cycle_walk *way,
                         struct occl_cycle *out_cycle) {
    for (;;) {
        for (; way->at < graph->ops_count; way->at++) {
            uint32_t i = way->at;
            if (!way->seen[i] && occl_why_op_stuck(graph, i, !way->likely) &&
                walk(graph, i, !way->likely, way->seen, out_cycle))
                return true;
        }
        if (way->likely)
            return false;
        way->likely = true;
        way->at = 0;
    }
}

static int step_text(const struct occl_cycle_step *step, char *out_text, uint32_t bytes) {
    char op[96], held[96];
    occl_why_op_text(step->op, op, sizeof op);
    if (!step->held)
        return snprintf(out_text, bytes, "rank %u (pid %d) waits in %s of %s for rank %u",
                        step->rank, (int)step->session->pid, op, step->op->comm->name,
                        step->waits_for_rank);
    occl_why_op_text(step->held_op, held, sizeof held);
    return snprintf(out_text, bytes,
                    "rank %u (pid %d) has submitted %s of %s, which comes after %s of %s, for "
                    "which rank %u has not come",
                    step->held->rank, (int)step->session->pid, held, step->held_op->comm->name, op,
                    step->op->comm->name, step->waits_for_rank);
}

void occl_why_cycle_text(const struct occl_cycle *cycle, char *out_text, uint32_t bytes) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < cycle->count && used + 3 < bytes; i++) {
        if (i)
            used += (uint32_t)snprintf(out_text + used, bytes - used, ", ");
        int length = step_text(&cycle->steps[i], out_text + used, bytes - used);
        if (length < 0)
            return;
        used += (uint32_t)length;
    }
    if (used + 1 < bytes)
        (void)snprintf(out_text + used, bytes - used, ": a cycle");
}
