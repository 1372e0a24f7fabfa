/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/pool.h"
#include "gpu/exec.h"
#include "tools/sim/programs.h"

#define STATES_MAX (1u << 19)
#define POOL_BYTES 320u
#define WIRE_MAX 4u

enum slot_state { SLOT_NONE = 0, SLOT_WAITING = 1, SLOT_HOLDING = 2, SLOT_REVOKING = 3 };

/* One op at one rank. */
struct local_op {
    struct occl_exec_context ring; /* the strand that exchanges */
    uint64_t pool_id;
    uint8_t submitted;
    uint8_t done;
    uint8_t slot;    /* enum slot_state */
    uint8_t arrived; /* the rank knows the ticket */
    uint8_t landed;  /* wire rules: messages landed from the predecessor */
    uint8_t reserved[3];
};

struct state {
    struct local_op ops[MODEL_RANKS_MAX][MODEL_OPS_MAX];
    uint8_t at[MODEL_RANKS_MAX];    /* script position */
    uint8_t tickets[MODEL_OPS_MAX]; /* 0: not issued */
    uint8_t next_ticket;
    uint8_t wire[MODEL_RANKS_MAX][WIRE_MAX]; /* ops of the messages on the wire out of a rank */
    uint8_t wire_count[MODEL_RANKS_MAX];
    uint64_t pools[MODEL_RANKS_MAX][POOL_BYTES / 8];
};

/* What distinguishes two states; the pools follow from it. */
struct key {
    uint8_t progress[MODEL_RANKS_MAX][MODEL_OPS_MAX];
    uint8_t flags[MODEL_RANKS_MAX][MODEL_OPS_MAX];
    uint8_t landed[MODEL_RANKS_MAX][MODEL_OPS_MAX];
    uint8_t at[MODEL_RANKS_MAX];
    uint8_t tickets[MODEL_OPS_MAX];
    uint8_t wire[MODEL_RANKS_MAX][WIRE_MAX];
};

struct edge {
    uint32_t from, to;
};

struct search {
    const struct model_system *system;
    struct occl_sim_program programs[MODEL_RANKS_MAX];
    struct occl_geometry geometry;
    struct state *states;
    struct key *keys;
    uint32_t *table; /* open addressing, at most half full; 0 free, else index + 1 */
    struct edge *edges;
    size_t edge_count, edge_room;
    uint32_t count, room;
    uint32_t table_size;
    struct model_result result;
};

/* ---- the executor's surroundings ---- */
struct env {
    const struct search *search;
    struct state *state;
    uint32_t rank, op;
};

static uint32_t before(const struct env *e) {
    return (e->rank + e->search->system->ranks - 1) % e->search->system->ranks;
}

static uint32_t behind(const struct env *e) {
    return (e->rank + 1) % e->search->system->ranks;
}

static bool on_wire(const struct search *x) {
    return x->system->rule == MODEL_SHARED_WIRE || x->system->rule == MODEL_CREDITED_WIRE;
}

static int has_data(void *environment, uint32_t link, uint64_t message) {
    struct env *e = (struct env *)environment;
    (void)link;
    if (on_wire(e->search))
        return e->state->ops[e->rank][e->op].landed > message;
    return e->state->ops[before(e)][e->op].ring.sent > message;
}

static int has_room(void *environment, uint32_t link, uint64_t message) {
    struct env *e = (struct env *)environment;
    const struct local_op *peer = &e->state->ops[behind(e)][e->op];
    const struct model_system *m = e->search->system;
    (void)link;
    if (on_wire(e->search)) {
        if (m->rule == MODEL_CREDITED_WIRE && message >= peer->ring.received + m->landing_slots)
            return 0;
        return e->state->wire_count[e->rank] < m->slots;
    }
    /* The peer grants landing places only while it holds its slot. */
    if (m->rule == MODEL_POOL && !peer->done && peer->slot != SLOT_HOLDING)
        return 0;
    return message < peer->ring.received + m->depth_slots;
}

static uint64_t progress_of(void *environment, uint32_t strand) {
    struct env *e = (struct env *)environment;
    /* Local reductions depend on nothing: they are done when the op starts. */
    return strand == 0 ? e->search->programs[e->rank].program.strands[0].step_count : 0;
}

static int move_nothing(void *environment, const struct occl_move *move) {
    (void)environment;
    (void)move;
    return 0;
}

static void publish_send(void *environment, uint32_t link, uint64_t message, uint64_t bytes) {
    struct env *e = (struct env *)environment;
    (void)link;
    (void)message;
    (void)bytes;
    if (on_wire(e->search))
        e->state->wire[e->rank][e->state->wire_count[e->rank]++] = (uint8_t)(e->op + 1);
}

static void publish_recv(void *environment, uint32_t link, uint64_t message) {
    (void)environment;
    (void)link;
    (void)message;
}

static void publish_progress(void *environment, uint32_t strand, uint64_t progress) {
    (void)environment;
    (void)strand;
    (void)progress;
}

static const struct occl_exec_ops OPS = {
    .has_data = has_data,
    .has_room = has_room,
    .progress_of = progress_of,
    .move = move_nothing,
    .publish_send = publish_send,
    .publish_recv = publish_recv,
    .publish_progress = publish_progress,
};

/* ---- rules: who may run ---- */
static struct occl_pool *pool_of(struct state *s, uint32_t rank) {
    return (struct occl_pool *)(void *)s->pools[rank];
}

/* Position of the submission of `op` in the rank's script. */
static uint32_t submitted_at(const struct search *x, uint32_t rank, uint32_t op) {
    for (uint32_t i = 0; i < MODEL_SCRIPT_MAX; i++)
        if (x->system->scripts[rank].items[i] == MODEL_SUBMIT(op))
            return i;
    return MODEL_SCRIPT_MAX;
}

static uint32_t earlier_open(const struct search *x, const struct state *s, uint32_t rank,
                             uint32_t op) {
    uint32_t count = 0;
    for (uint32_t o = 0; o < x->system->ops; o++)
        count += s->ops[rank][o].submitted && !s->ops[rank][o].done &&
                 submitted_at(x, rank, o) < submitted_at(x, rank, op);
    return count;
}

static bool smallest_open(const struct search *x, const struct state *s, uint32_t rank,
                          uint32_t op) {
    for (uint32_t o = 0; o < op && o < x->system->ops; o++)
        if (s->ops[rank][o].submitted && !s->ops[rank][o].done)
            return false;
    return true;
}

static uint32_t held(const struct search *x, const struct state *s, uint32_t rank) {
    uint32_t count = 0;
    for (uint32_t o = 0; o < x->system->ops; o++)
        count += s->ops[rank][o].slot == SLOT_HOLDING;
    return count;
}

/* Gives out slots after anything changed at a rank. */
static void assign(const struct search *x, struct state *s, uint32_t rank) {
    uint64_t id, user;
    enum occl_pool_action action;
    switch (x->system->rule) {
    case MODEL_POOL:
        while ((action = occl_pool_step(pool_of(s, rank), &id, &user)) != OCCL_POOL_NONE)
            s->ops[rank][user].slot = action == OCCL_POOL_GRANT ? SLOT_HOLDING : SLOT_REVOKING;
        return;
    case MODEL_ESCAPE:
        for (uint32_t i = 0; i < MODEL_SCRIPT_MAX; i++) {
            uint32_t op = x->system->scripts[rank].items[i] - MODEL_SUBMIT(0);
            if (op >= x->system->ops || s->ops[rank][op].slot != SLOT_WAITING)
                continue;
            if (held(x, s, rank) + 1 < x->system->slots ||
                (held(x, s, rank) < x->system->slots && smallest_open(x, s, rank, op)))
                s->ops[rank][op].slot = SLOT_HOLDING;
        }
        return;
    case MODEL_WOUND_WAIT: {
        uint32_t left = x->system->slots;
        for (uint32_t op = 0; op < x->system->ops; op++) {
            struct local_op *o = &s->ops[rank][op];
            if (o->slot == SLOT_NONE)
                continue;
            o->slot = left > 0 ? SLOT_HOLDING : SLOT_WAITING;
            left -= left > 0;
        }
        return;
    }
    default:
        return;
    }
}

static bool may_run(const struct search *x, const struct state *s, uint32_t rank, uint32_t op) {
    const struct local_op *o = &s->ops[rank][op];
    if (!o->submitted || o->done)
        return false;
    switch (x->system->rule) {
    case MODEL_ORDERED:
        return earlier_open(x, s, rank, op) == 0;
    case MODEL_FIFO_WINDOW:
        return earlier_open(x, s, rank, op) < x->system->slots;
    case MODEL_SHARED_WIRE:
    case MODEL_CREDITED_WIRE:
        return true;
    default:
        return o->slot == SLOT_HOLDING;
    }
}

/* ---- transitions: each returns whether it changed the state ---- */
static bool step_script(const struct search *x, struct state *s, uint32_t rank) {
    uint8_t item = x->system->scripts[rank].items[s->at[rank]];
    uint32_t op = item & 0xfu;
    struct local_op *o = &s->ops[rank][op];
    if (s->at[rank] == MODEL_SCRIPT_MAX || item == 0)
        return false;
    if (item >= MODEL_WAIT(0)) {
        if (!o->done)
            return false;
        s->at[rank]++;
        return true;
    }
    s->at[rank]++;
    o->submitted = 1;
    o->slot = SLOT_WAITING;
    occl_exec_start(&o->ring, 1);
    if (x->system->rule == MODEL_POOL) {
        int status = occl_pool_request(pool_of(s, rank), 0, 1, op, &o->pool_id);
        assert(status == OCCL_OK);
        (void)status;
        bool all = true;
        for (uint32_t r = 0; r < x->system->ranks; r++)
            all &= s->ops[r][op].submitted;
        if (all)
            s->tickets[op] = ++s->next_ticket;
    }
    assign(x, s, rank);
    return true;
}

static bool step_arrival(const struct search *x, struct state *s, uint32_t rank, uint32_t op) {
    struct local_op *o = &s->ops[rank][op];
    if (s->tickets[op] == 0 || o->arrived || o->done)
        return false;
    o->arrived = 1;
    (void)occl_pool_arrived(pool_of(s, rank), o->pool_id, s->tickets[op]);
    assign(x, s, rank);
    return true;
}

static bool step_return(const struct search *x, struct state *s, uint32_t rank, uint32_t op) {
    struct local_op *o = &s->ops[rank][op];
    if (o->slot != SLOT_REVOKING)
        return false;
    o->slot = SLOT_WAITING;
    (void)occl_pool_returned(pool_of(s, rank), o->pool_id);
    assign(x, s, rank);
    return true;
}

/* Everything that only takes time happens. */
static void settle(const struct search *x, struct state *s) {
    for (bool moved = x->system->eager; moved;) {
        moved = false;
        for (uint32_t r = 0; r < x->system->ranks; r++)
            for (uint32_t o = 0; o < x->system->ops; o++) {
                moved |= step_arrival(x, s, r, o);
                moved |= step_return(x, s, r, o);
            }
    }
}

static bool step_run(const struct search *x, struct state *s, uint32_t rank, uint32_t op,
                     bool *out_phi_fell) {
    struct env e = {x, s, rank, op};
    struct local_op *o = &s->ops[rank][op];
    struct occl_exec_report report;
    uint64_t slices = o->ring.slices;
    enum occl_exec_result result;
    if (!may_run(x, s, rank, op))
        return false;
    result = occl_exec_run(&o->ring, &x->programs[rank].program, &x->geometry, &OPS, &e,
                           x->system->slices, &report);
    *out_phi_fell |= o->ring.slices < slices;
    if (result == OCCL_EXEC_DONE) {
        o->done = 1;
        o->slot = SLOT_NONE;
        if (x->system->rule == MODEL_POOL)
            (void)occl_pool_release(pool_of(s, rank), o->pool_id);
        assign(x, s, rank);
        return true;
    }
    return report.slices > 0;
}

/* The head of the wire lands, if its op has a landing place. */
static bool step_wire(const struct search *x, struct state *s, uint32_t rank) {
    uint32_t to = (rank + 1) % x->system->ranks;
    if (s->wire_count[rank] == 0)
        return false;
    struct local_op *o = &s->ops[to][s->wire[rank][0] - 1];
    if (o->landed >= o->ring.received + x->system->landing_slots)
        return false;
    o->landed++;
    s->wire_count[rank]--;
    memmove(&s->wire[rank][0], &s->wire[rank][1], WIRE_MAX - 1);
    s->wire[rank][WIRE_MAX - 1] = 0;
    return true;
}

static bool is_final(const struct search *x, const struct state *s) {
    for (uint32_t r = 0; r < x->system->ranks; r++)
        for (uint32_t o = 0; o < x->system->ops; o++)
            if (!s->ops[r][o].done)
                return false;
    return true;
}

/* ---- search ---- */
static void key_of(const struct state *s, struct key *out_key) {
    memset(out_key, 0, sizeof *out_key);
    for (uint32_t r = 0; r < MODEL_RANKS_MAX; r++)
        for (uint32_t o = 0; o < MODEL_OPS_MAX; o++) {
            const struct local_op *op = &s->ops[r][o];
            out_key->progress[r][o] = (uint8_t)op->ring.slices;
            out_key->landed[r][o] = op->landed;
            out_key->flags[r][o] =
                (uint8_t)(op->submitted | op->done << 1 | op->slot << 2 | op->arrived << 4);
        }
    memcpy(out_key->at, s->at, sizeof s->at);
    memcpy(out_key->tickets, s->tickets, sizeof s->tickets);
    memcpy(out_key->wire, s->wire, sizeof s->wire);
}

static uint64_t hash_of(const struct key *key) {
    const uint8_t *bytes = (const uint8_t *)key;
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < sizeof *key; i++)
        h = (h ^ bytes[i]) * 1099511628211ull;
    return h ^ h >> 29;
}

static void grow(struct search *x) {
    uint32_t room = x->room * 2;
    x->states = (struct state *)realloc(x->states, room * sizeof *x->states);
    x->keys = (struct key *)realloc(x->keys, room * sizeof *x->keys);
    free(x->table);
    x->table = (uint32_t *)calloc(2 * (size_t)room, sizeof *x->table);
    if (x->states == NULL || x->keys == NULL || x->table == NULL)
        abort();
    x->room = room;
    x->table_size = 2 * room;
    for (uint32_t i = 0; i < x->count; i++) {
        uint64_t at = hash_of(&x->keys[i]);
        while (x->table[at & (x->table_size - 1)] != 0)
            at++;
        x->table[at & (x->table_size - 1)] = i + 1;
    }
}

static uint32_t intern(struct search *x, const struct state *s) {
    struct key key;
    if (x->count == x->room && x->room < STATES_MAX)
        grow(x);
    key_of(s, &key);
    for (uint64_t at = hash_of(&key);; at++) {
        uint32_t *entry = &x->table[at & (x->table_size - 1)];
        if (*entry != 0 && memcmp(&x->keys[*entry - 1], &key, sizeof key) != 0)
            continue;
        if (*entry == 0) {
            if (x->count == x->room) {
                x->result.complete = false;
                return 0;
            }
            x->states[x->count] = *s;
            x->keys[x->count] = key;
            *entry = ++x->count;
        }
        return *entry - 1;
    }
}

static void add_edge(struct search *x, uint32_t from, struct state *s) {
    settle(x, s);
    if (x->edge_count == x->edge_room) {
        x->edge_room = x->edge_room * 2 + 4096;
        x->edges = (struct edge *)realloc(x->edges, x->edge_room * sizeof *x->edges);
        if (x->edges == NULL)
            abort();
    }
    x->edges[x->edge_count].from = from;
    x->edges[x->edge_count++].to = intern(x, s);
}

static void expand(struct search *x, uint32_t from) {
    size_t edges = x->edge_count;
    for (uint32_t r = 0; r < x->system->ranks; r++) {
        struct state s = x->states[from];
        if (step_script(x, &s, r))
            add_edge(x, from, &s);
        s = x->states[from];
        if (on_wire(x) && step_wire(x, &s, r))
            add_edge(x, from, &s);
        for (uint32_t o = 0; o < x->system->ops; o++) {
            s = x->states[from];
            if (step_run(x, &s, r, o, &x->result.phi_fell))
                add_edge(x, from, &s);
            if (x->system->rule != MODEL_POOL)
                continue;
            s = x->states[from];
            if (step_arrival(x, &s, r, o))
                add_edge(x, from, &s);
            s = x->states[from];
            if (step_return(x, &s, r, o))
                add_edge(x, from, &s);
        }
    }
    if (x->edge_count == edges && !is_final(x, &x->states[from]))
        x->result.stuck++;
}

/* Counts the states from which no final state can be reached, by walking the edges backwards. */
static uint32_t count_dead(const struct search *x) {
    uint8_t *alive = (uint8_t *)calloc(x->count, 1);
    uint32_t *start = (uint32_t *)calloc((size_t)x->count + 2, sizeof *start);
    uint32_t *from = (uint32_t *)malloc((x->edge_count + 1) * sizeof *from);
    uint32_t *stack = (uint32_t *)malloc(((size_t)x->count + 1) * sizeof *stack);
    uint32_t depth = 0, dead = 0;
    if (alive == NULL || start == NULL || from == NULL || stack == NULL)
        abort();
    for (size_t i = 0; i < x->edge_count; i++)
        start[x->edges[i].to + 2]++;
    for (uint32_t i = 0; i < x->count; i++)
        start[i + 2] += start[i + 1];
    for (size_t i = 0; i < x->edge_count; i++)
        from[start[x->edges[i].to + 1]++] = x->edges[i].from;
    for (uint32_t i = 0; i < x->count; i++)
        if (is_final(x, &x->states[i])) {
            alive[i] = 1;
            stack[depth++] = i;
        }
    while (depth > 0) {
        uint32_t at = stack[--depth];
        for (uint32_t k = start[at]; k < start[at + 1]; k++)
            if (!alive[from[k]]) {
                alive[from[k]] = 1;
                stack[depth++] = from[k];
            }
    }
    for (uint32_t i = 0; i < x->count; i++)
        dead += !alive[i];
    free(alive);
    free(start);
    free(from);
    free(stack);
    return dead;
}

static void start_state(const struct search *x, struct state *s) {
    struct occl_pool_config config = {
        .shared_units = x->system->slots, .ops_max = MODEL_OPS_MAX, .comms_max = 1};
    memset(s, 0, sizeof *s);
    if (x->system->rule != MODEL_POOL)
        return;
    assert(occl_pool_bytes(&config) <= POOL_BYTES);
    for (uint32_t r = 0; r < x->system->ranks; r++) {
        struct occl_pool *pool;
        uint32_t comm;
        if (occl_pool_create(&config, &pool) != OCCL_OK)
            abort();
        (void)occl_pool_comm_add(pool, 1, x->system->reserve, &comm);
        memcpy(s->pools[r], pool, occl_pool_bytes(&config));
        occl_pool_destroy(pool);
    }
}

void model_search(const struct model_system *system, struct model_result *out_result) {
    struct search x;
    struct state first;
    memset(&x, 0, sizeof x);
    x.system = system;
    x.result.complete = true;
    x.room = 512;
    grow(&x);
    if (!occl_geometry_make(8ull * system->ranks, 8, system->ranks, 8, 0, &x.geometry))
        abort();
    for (uint32_t r = 0; r < system->ranks; r++) {
        struct occl_sim_spec spec = {.shape = OCCL_SIM_RING_ALL_REDUCE,
                                     .nodes = system->ranks,
                                     .me = r,
                                     .members = 1,
                                     .depth_slots = system->depth_slots};
        occl_sim_program_build(&spec, &x.programs[r]);
    }
    start_state(&x, &first);
    (void)intern(&x, &first);
    for (uint32_t i = 0; i < x.count && x.result.complete; i++)
        expand(&x, i);
    x.result.states = x.count;
    x.result.dead = count_dead(&x);
    for (uint32_t r = 0; r < system->ranks; r++)
        occl_sim_program_free(&x.programs[r]);
    free(x.states);
    free(x.keys);
    free(x.table);
    free(x.edges);
    *out_result = x.result;
}

bool model_scripts_acyclic(const struct model_system *system) {
    uint32_t at[MODEL_RANKS_MAX] = {0};
    for (bool moved = true; moved;) {
        uint32_t submitted[MODEL_OPS_MAX] = {0};
        moved = false;
        for (uint32_t r = 0; r < system->ranks; r++)
            for (uint32_t i = 0; i < at[r]; i++)
                if (system->scripts[r].items[i] < MODEL_WAIT(0))
                    submitted[system->scripts[r].items[i] & 0xf]++;
        for (uint32_t r = 0; r < system->ranks; r++) {
            uint8_t item = at[r] < MODEL_SCRIPT_MAX ? system->scripts[r].items[at[r]] : 0;
            if (item == 0 || (item >= MODEL_WAIT(0) && submitted[item & 0xf] < system->ranks))
                continue;
            at[r]++;
            moved = true;
        }
    }
    for (uint32_t r = 0; r < system->ranks; r++)
        if (at[r] < MODEL_SCRIPT_MAX && system->scripts[r].items[at[r]] != 0)
            return false;
    return true;
}
