/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/sim.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define POSTS_MAX_DEFAULT 4096u
#define REORDER_FACTOR 16u

enum flight_stage {
    FLIGHT_TRAVELS = 0, /* due at the receiver */
    FLIGHT_RETURNS = 1, /* landed: its completion is due at the sender */
};

/* A message between two nodes, or its completion on the way back. */
struct flight {
    uint64_t due_ns;
    uint64_t number; /* ties go to the earlier post */
    uint32_t from, to;
    uint32_t stage;
    int32_t status;
    struct occl_fabric_post post;
    uint8_t control[OCCL_FABRIC_CONTROL_BYTES];
};

struct landing {
    struct occl_fabric_landing name;
    char *base;
    uint64_t user;
    uint32_t open;
};

struct occl_fabric {
    struct occl_fabric_sim_world *world;
    uint32_t node;
    uint32_t posts;                                     /* accepted, without SENT */
    uint8_t down[OCCL_FABRIC_SIM_NODES_MAX];            /* 1: cut */
    uint8_t down_told[OCCL_FABRIC_SIM_NODES_MAX];       /* DOWN is still to be polled */
    uint64_t control_due_ns[OCCL_FABRIC_SIM_NODES_MAX]; /* of the last control message to a node */
    struct landing *landings;
    uint32_t landing_count, landing_room;
    uint64_t next_key;
    uint64_t now_ns;
};

/* Flights are kept in one heap per node where they are due next, earliest first. */
struct queue {
    struct flight *flights;
    uint32_t count, room;
};

struct occl_fabric_sim_world {
    struct occl_fabric_sim_config config;
    uint64_t random;
    uint64_t next_number;
    uint32_t factor[OCCL_FABRIC_SIM_NODES_MAX];
    struct occl_fabric *endpoints[OCCL_FABRIC_SIM_NODES_MAX];
    struct queue queues[OCCL_FABRIC_SIM_NODES_MAX];
};

static uint64_t next_random(struct occl_fabric_sim_world *w) {
    uint64_t z = (w->random += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* ---- heap ---- */
static bool earlier(const struct flight *a, const struct flight *b) {
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void sift_up(struct queue *q, uint32_t at) {
    while (at > 0 && earlier(&q->flights[at], &q->flights[(at - 1) / 2])) {
        struct flight swap = q->flights[at];
        q->flights[at] = q->flights[(at - 1) / 2];
        q->flights[(at - 1) / 2] = swap;
        at = (at - 1) / 2;
    }
}

static void sift_down(struct queue *q, uint32_t at) {
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < q->count; child++)
            if (earlier(&q->flights[child], &q->flights[least]))
                least = child;
        if (least == at)
            return;
        struct flight swap = q->flights[at];
        q->flights[at] = q->flights[least];
        q->flights[least] = swap;
        at = least;
    }
}

static bool push(struct queue *q, const struct flight *flight) {
    if (q->count == q->room) {
        uint32_t room = q->room * 2 + 64;
        struct flight *flights = (struct flight *)realloc(q->flights, room * sizeof *flights);
        if (flights == NULL)
            return false;
        q->flights = flights;
        q->room = room;
    }
    q->flights[q->count] = *flight;
    sift_up(q, q->count++);
    return true;
}

static struct flight take(struct queue *q, uint32_t at) {
    struct flight flight = q->flights[at];
    q->flights[at] = q->flights[--q->count];
    if (at < q->count) {
        sift_down(q, at);
        sift_up(q, at);
    }
    return flight;
}

/* ---- world ---- */
int occl_fabric_sim_world_create(const struct occl_fabric_sim_config *config,
                                 struct occl_fabric_sim_world **out_world) {
    struct occl_fabric_sim_world *w;
    if (config->nodes == 0 || config->nodes > OCCL_FABRIC_SIM_NODES_MAX ||
        config->delay_min_ns > config->delay_max_ns)
        return OCCL_E_INVALID;
    w = (struct occl_fabric_sim_world *)calloc(1, sizeof *w);
    if (w == NULL)
        return OCCL_E_NO_MEMORY;
    w->config = *config;
    if (w->config.posts_max == 0)
        w->config.posts_max = POSTS_MAX_DEFAULT;
    w->random = config->seed;
    for (uint32_t n = 0; n < OCCL_FABRIC_SIM_NODES_MAX; n++)
        w->factor[n] = 1;
    *out_world = w;
    return OCCL_OK;
}

void occl_fabric_sim_world_destroy(struct occl_fabric_sim_world *world) {
    if (world == NULL)
        return;
    for (uint32_t n = 0; n < OCCL_FABRIC_SIM_NODES_MAX; n++)
        free(world->queues[n].flights);
    free(world);
}

void occl_fabric_sim_slow(struct occl_fabric_sim_world *world, uint32_t node, uint32_t factor) {
    world->factor[node] = factor;
}

uint64_t occl_fabric_sim_next_ns(const struct occl_fabric_sim_world *world, uint32_t node) {
    const struct occl_fabric *f = world->endpoints[node];
    for (uint32_t n = 0; f != NULL && n < world->config.nodes; n++)
        if (f->down_told[n])
            return 0;
    return world->queues[node].count > 0 ? world->queues[node].flights[0].due_ns
                                         : OCCL_FABRIC_SIM_NEVER;
}

uint32_t occl_fabric_sim_in_flight(const struct occl_fabric_sim_world *world) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < world->config.nodes; n++)
        for (uint32_t i = 0; i < world->queues[n].count; i++)
            count += world->queues[n].flights[i].stage == FLIGHT_TRAVELS;
    return count;
}

/* Turns a message that will not arrive into its completion, due at once. */
static void fail_flight(struct occl_fabric_sim_world *w, struct flight flight, int status) {
    flight.stage = FLIGHT_RETURNS;
    flight.status = status;
    flight.due_ns = 0;
    /* The heap of the sender has room: the flight was counted when it was posted. */
    if (!push(&w->queues[flight.from], &flight))
        abort();
}

/* Fails everything that travels from a node to another. */
static void fail_between(struct occl_fabric_sim_world *w, uint32_t from, uint32_t to, int status) {
    struct queue *q = &w->queues[to];
    for (uint32_t i = 0; i < q->count;) {
        if (q->flights[i].stage == FLIGHT_TRAVELS && q->flights[i].from == from) {
            fail_flight(w, take(q, i), status);
            i = 0;
        } else {
            i++;
        }
    }
}

void occl_fabric_sim_cut(struct occl_fabric_sim_world *world, uint32_t a, uint32_t b) {
    uint32_t ends[2] = {a, b};
    fail_between(world, a, b, OCCL_E_PEER_FAILED);
    fail_between(world, b, a, OCCL_E_PEER_FAILED);
    for (uint32_t i = 0; i < 2; i++) {
        struct occl_fabric *f = world->endpoints[ends[i]];
        if (f == NULL || f->down[ends[1 - i]])
            continue;
        f->down[ends[1 - i]] = 1;
        f->down_told[ends[1 - i]] = 1;
    }
}

/* ---- ops ---- */
static int sim_open(const void *config, struct occl_fabric **out_fabric) {
    const struct occl_fabric_sim_open *open = (const struct occl_fabric_sim_open *)config;
    struct occl_fabric *f;
    if (open->node >= open->world->config.nodes)
        return OCCL_E_INVALID;
    if (open->world->endpoints[open->node] != NULL)
        return OCCL_E_BUSY;
    f = (struct occl_fabric *)calloc(1, sizeof *f);
    if (f == NULL)
        return OCCL_E_NO_MEMORY;
    f->world = open->world;
    f->node = open->node;
    open->world->endpoints[open->node] = f;
    *out_fabric = f;
    return OCCL_OK;
}

static int sim_connect(struct occl_fabric *f, uint32_t node, uint32_t *out_peer) {
    if (node >= f->world->config.nodes || node == f->node)
        return OCCL_E_INVALID;
    if (f->down[node])
        return OCCL_E_PEER_FAILED;
    *out_peer = node;
    return OCCL_OK;
}

static int sim_landing_open(struct occl_fabric *f, void *base, uint32_t slot_count,
                            uint32_t slot_bytes, uint64_t landing_user,
                            struct occl_fabric_landing *out_landing) {
    uint32_t at = 0;
    if (base == NULL || slot_count == 0 || slot_bytes == 0)
        return OCCL_E_INVALID;
    while (at < f->landing_count && f->landings[at].open)
        at++;
    if (at == f->landing_room) {
        uint32_t room = f->landing_room * 2 + 16;
        struct landing *l = (struct landing *)realloc(f->landings, room * sizeof *l);
        if (l == NULL)
            return OCCL_E_NO_MEMORY;
        f->landings = l;
        f->landing_room = room;
    }
    if (at == f->landing_count)
        f->landing_count++;
    f->landings[at].name.key = ++f->next_key << 20 | at;
    f->landings[at].name.slot_count = slot_count;
    f->landings[at].name.slot_bytes = slot_bytes;
    f->landings[at].base = (char *)base;
    f->landings[at].user = landing_user;
    f->landings[at].open = 1;
    *out_landing = f->landings[at].name;
    return OCCL_OK;
}

static struct landing *landing_find(struct occl_fabric *f, uint64_t key) {
    uint32_t at = (uint32_t)(key & 0xfffffu);
    if (at >= f->landing_count || !f->landings[at].open || f->landings[at].name.key != key)
        return NULL;
    return &f->landings[at];
}

static int sim_landing_close(struct occl_fabric *f, uint64_t key) {
    struct queue *q = &f->world->queues[f->node];
    struct landing *l = landing_find(f, key);
    if (l == NULL)
        return OCCL_E_NOT_FOUND;
    l->open = 0;
    for (uint32_t i = 0; i < q->count;) {
        const struct flight *flight = &q->flights[i];
        if (flight->stage == FLIGHT_TRAVELS && flight->post.message == OCCL_FABRIC_DATA &&
            flight->post.landing_key == key) {
            fail_flight(f->world, take(q, i), OCCL_E_CANCELED);
            i = 0;
        } else {
            i++;
        }
    }
    return OCCL_OK;
}

static uint64_t delay_of(struct occl_fabric_sim_world *w, uint32_t from, uint32_t to, bool data) {
    uint64_t span = w->config.delay_max_ns - w->config.delay_min_ns + 1;
    uint64_t delay = w->config.delay_min_ns + next_random(w) % span;
    if (data && next_random(w) % 1000 < w->config.reorder_permille)
        delay *= 1 + next_random(w) % REORDER_FACTOR;
    return delay * w->factor[from] * w->factor[to];
}

static int sim_post(struct occl_fabric *f, const struct occl_fabric_post *post) {
    struct occl_fabric_sim_world *w = f->world;
    bool data = post->message == OCCL_FABRIC_DATA;
    struct flight flight;
    if (post->peer >= w->config.nodes || post->peer == f->node ||
        post->message > OCCL_FABRIC_DATA ||
        (!data && (post->length == 0 || post->length > OCCL_FABRIC_CONTROL_BYTES)) ||
        (post->length > 0 && post->bytes == NULL))
        return OCCL_E_INVALID;
    if (f->down[post->peer] || w->endpoints[post->peer] == NULL)
        return OCCL_E_PEER_FAILED;
    /* Control has room of its own: data can never hold it up. */
    if (f->posts >= w->config.posts_max * (data ? 1 : 2))
        return OCCL_WOULD_BLOCK;
    memset(&flight, 0, sizeof flight);
    flight.number = w->next_number++;
    flight.from = f->node;
    flight.to = post->peer;
    flight.post = *post;
    flight.due_ns = f->now_ns + delay_of(w, f->node, post->peer, data);
    if (!data) {
        memcpy(flight.control, post->bytes, post->length);
        if (flight.due_ns < f->control_due_ns[post->peer])
            flight.due_ns = f->control_due_ns[post->peer];
        f->control_due_ns[post->peer] = flight.due_ns;
    }
    if (!push(&w->queues[post->peer], &flight))
        return OCCL_E_NO_MEMORY;
    f->posts++;
    return OCCL_OK;
}

static int sim_flush(struct occl_fabric *f, uint32_t peer) {
    if (peer >= f->world->config.nodes)
        return OCCL_E_INVALID;
    fail_between(f->world, f->node, peer, OCCL_E_CANCELED);
    /* What has landed completes at once, too. */
    struct queue *q = &f->world->queues[f->node];
    for (uint32_t i = 0; i < q->count; i++)
        if (q->flights[i].stage == FLIGHT_RETURNS && q->flights[i].to == peer) {
            q->flights[i].due_ns = 0;
            sift_up(q, i);
        }
    return OCCL_OK;
}

/* A message arrives: bytes, then event; its completion starts back. False: no event for the node.
 */
static bool deliver(struct occl_fabric *f, struct flight *flight, struct occl_fabric_event *out) {
    bool data = flight->post.message == OCCL_FABRIC_DATA;
    flight->status = OCCL_OK;
    if (data) {
        struct landing *l = landing_find(f, flight->post.landing_key);
        if (l == NULL)
            flight->status = OCCL_E_CANCELED;
        else if (flight->post.landing_slot >= l->name.slot_count ||
                 flight->post.length > l->name.slot_bytes)
            flight->status = OCCL_E_INVALID;
        if (flight->status == OCCL_OK) {
            if (flight->post.length > 0)
                memcpy(l->base + (size_t)flight->post.landing_slot * l->name.slot_bytes,
                       flight->post.bytes, flight->post.length);
            out->user = l->user;
            out->slot = flight->post.landing_slot;
            out->immediate = flight->post.immediate;
        }
    } else {
        memcpy(out->control, flight->control, flight->post.length);
    }
    out->kind = data ? OCCL_FABRIC_LANDED : OCCL_FABRIC_MESSAGE;
    out->peer = flight->from;
    out->length = flight->post.length;
    flight->stage = FLIGHT_RETURNS;
    flight->due_ns += delay_of(f->world, flight->to, flight->from, true);
    return flight->status == OCCL_OK;
}

static bool next_event(struct occl_fabric *f, struct occl_fabric_event *out) {
    struct queue *q = &f->world->queues[f->node];
    while (q->count > 0 && q->flights[0].due_ns <= f->now_ns) {
        struct flight flight = take(q, 0);
        memset(out, 0, sizeof *out);
        if (flight.stage == FLIGHT_RETURNS) {
            out->kind = OCCL_FABRIC_SENT;
            out->peer = flight.to;
            out->status = flight.status;
            out->user = flight.post.user;
            f->posts--;
            return true;
        }
        bool visible = deliver(f, &flight, out);
        /* The sender may have closed: then nobody waits for the completion. */
        if (f->world->endpoints[flight.from] != NULL &&
            !push(&f->world->queues[flight.from], &flight))
            abort();
        if (visible)
            return true;
    }
    for (uint32_t n = 0; n < f->world->config.nodes; n++)
        if (f->down_told[n]) {
            memset(out, 0, sizeof *out);
            out->kind = OCCL_FABRIC_DOWN;
            out->peer = n;
            out->status = OCCL_E_PEER_FAILED;
            f->down_told[n] = 0;
            return true;
        }
    return false;
}

static uint32_t sim_poll(struct occl_fabric *f, uint64_t now_ns,
                         struct occl_fabric_event *out_events, uint32_t max) {
    uint32_t count = 0;
    if (now_ns > f->now_ns)
        f->now_ns = now_ns;
    while (count < max && next_event(f, &out_events[count]))
        count++;
    return count;
}

static uint32_t sim_close(struct occl_fabric *f, struct occl_fabric_event *out_events,
                          uint32_t max) {
    struct occl_fabric_sim_world *w = f->world;
    uint32_t count = 0;
    for (uint32_t n = 0; n < w->config.nodes; n++) {
        (void)sim_flush(f, n);
        if (n == f->node || w->endpoints[n] == NULL)
            continue;
        fail_between(w, n, f->node, OCCL_E_PEER_FAILED);
        if (!w->endpoints[n]->down[f->node]) {
            w->endpoints[n]->down[f->node] = 1;
            w->endpoints[n]->down_told[f->node] = 1;
        }
    }
    count = sim_poll(f, f->now_ns, out_events, max);
    w->queues[f->node].count = 0;
    w->endpoints[f->node] = NULL;
    free(f->landings);
    free(f);
    return count;
}

const struct occl_fabric_ops OCCL_FABRIC_SIM = {
    .name = "sim",
    .capabilities = 0,
    .open = sim_open,
    .close = sim_close,
    .connect = sim_connect,
    .landing_open = sim_landing_open,
    .landing_close = sim_landing_close,
    .post = sim_post,
    .flush = sim_flush,
    .poll = sim_poll,
};
