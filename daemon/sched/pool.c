/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sched/pool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MAX (1u << 20)
#define NONE 0xffffffffu

enum holder_state {
    HOLDER_FREE = 0,     /* moved on by request */
    HOLDER_WAITING = 1,  /* by step (grant), release */
    HOLDER_HOLDING = 2,  /* by step (revoke), release */
    HOLDER_REVOKING = 3, /* by returned, release */
};

struct holder {
    uint64_t user;
    uint64_t ticket; /* valid when arrived */
    uint64_t order;  /* of requests: among ops without ticket the first comes first */
    uint32_t generation;
    uint32_t comm;
    uint32_t units;
    uint8_t state; /* enum holder_state */
    uint8_t arrived;
    uint8_t in_reserve; /* what it holds is its communicator's reserve */
    uint8_t reserved;
};

struct pool_comm {
    uint64_t uid;
    uint32_t used;
    uint32_t reserve_units;
    uint32_t reserve_free;
    uint32_t ops;
};

struct occl_pool {
    struct occl_pool_config config;
    struct occl_pool_stats stats;
    uint64_t next_order;
    /* struct pool_comm comms[comms_max] and struct holder holders[ops_max] follow */
};

static struct pool_comm *comms_of(const struct occl_pool *p) {
    return (struct pool_comm *)((uintptr_t)p + sizeof *p);
}

static struct holder *holders_of(const struct occl_pool *p) {
    return (struct holder *)((uintptr_t)comms_of(p) +
                             p->config.comms_max * sizeof(struct pool_comm));
}

size_t occl_pool_bytes(const struct occl_pool_config *config) {
    return sizeof(struct occl_pool) + config->comms_max * sizeof(struct pool_comm) +
           config->ops_max * sizeof(struct holder);
}

int occl_pool_create(const struct occl_pool_config *config, struct occl_pool **out_pool) {
    struct occl_pool *p;
    if (config->ops_max == 0 || config->ops_max > TABLE_MAX || config->comms_max == 0 ||
        config->comms_max > TABLE_MAX)
        return OCCL_E_INVALID;
    p = (struct occl_pool *)calloc(1, occl_pool_bytes(config));
    if (p == NULL)
        return OCCL_E_NO_MEMORY;
    p->config = *config;
    p->stats.shared_free = config->shared_units;
    *out_pool = p;
    return OCCL_OK;
}

void occl_pool_destroy(struct occl_pool *pool) {
    free(pool);
}

int occl_pool_comm_add(struct occl_pool *pool, uint64_t comm_uid, uint32_t reserve_units,
                       uint32_t *out_comm) {
    struct pool_comm *comms = comms_of(pool);
    for (uint32_t i = 0; i < pool->config.comms_max; i++) {
        if (comms[i].used)
            continue;
        comms[i].used = 1;
        comms[i].uid = comm_uid;
        comms[i].reserve_units = reserve_units;
        comms[i].reserve_free = reserve_units;
        comms[i].ops = 0;
        *out_comm = i;
        return OCCL_OK;
    }
    return OCCL_E_QUOTA;
}

int occl_pool_comm_remove(struct occl_pool *pool, uint32_t comm) {
    if (comm >= pool->config.comms_max || !comms_of(pool)[comm].used)
        return OCCL_E_HANDLE;
    if (comms_of(pool)[comm].ops > 0)
        return OCCL_E_BUSY;
    comms_of(pool)[comm].used = 0;
    return OCCL_OK;
}

static struct holder *find(const struct occl_pool *p, uint64_t id) {
    uint32_t index = (uint32_t)id;
    struct holder *h;
    if (index >= p->config.ops_max)
        return NULL;
    h = &holders_of(p)[index];
    return h->state != HOLDER_FREE && h->generation == (uint32_t)(id >> 32) ? h : NULL;
}

int occl_pool_request(struct occl_pool *pool, uint32_t comm, uint32_t units, uint64_t user,
                      uint64_t *out_id) {
    struct holder *holders = holders_of(pool);
    struct pool_comm *c;
    uint32_t most;
    if (comm >= pool->config.comms_max || !comms_of(pool)[comm].used)
        return OCCL_E_INVALID;
    c = &comms_of(pool)[comm];
    most = c->reserve_units > 0 ? c->reserve_units : pool->config.shared_units;
    if (units == 0 || units > most)
        return OCCL_E_INVALID;
    for (uint32_t i = 0; i < pool->config.ops_max; i++) {
        struct holder *h = &holders[i];
        if (h->state != HOLDER_FREE)
            continue;
        h->generation++;
        h->user = user;
        h->ticket = 0;
        h->order = pool->next_order++;
        h->comm = comm;
        h->units = units;
        h->state = HOLDER_WAITING;
        h->arrived = 0;
        h->in_reserve = 0;
        c->ops++;
        pool->stats.ops++;
        pool->stats.waiting++;
        *out_id = (uint64_t)h->generation << 32 | i;
        return OCCL_OK;
    }
    return OCCL_E_QUOTA;
}

int occl_pool_arrived(struct occl_pool *pool, uint64_t id, uint64_t ticket) {
    struct holder *h = find(pool, id);
    if (h == NULL)
        return OCCL_E_HANDLE;
    for (uint32_t i = 0; i < pool->config.ops_max; i++) {
        const struct holder *other = &holders_of(pool)[i];
        if (other != h && other->state != HOLDER_FREE && other->arrived && other->comm == h->comm &&
            other->ticket == ticket)
            return OCCL_E_INVALID;
    }
    if (!h->arrived && (h->state == HOLDER_HOLDING || h->state == HOLDER_REVOKING))
        pool->stats.unarrived_units -= h->units;
    h->arrived = 1;
    h->ticket = ticket;
    return OCCL_OK;
}

/* Puts what the op holds back where it came from. */
static void give_back(struct occl_pool *p, struct holder *h) {
    if (h->in_reserve)
        comms_of(p)[h->comm].reserve_free += h->units;
    else
        p->stats.shared_free += h->units;
    if (!h->arrived)
        p->stats.unarrived_units -= h->units;
    h->in_reserve = 0;
}

int occl_pool_returned(struct occl_pool *pool, uint64_t id) {
    struct holder *h = find(pool, id);
    if (h == NULL || h->state != HOLDER_REVOKING)
        return OCCL_E_HANDLE;
    give_back(pool, h);
    h->state = HOLDER_WAITING;
    pool->stats.revoking--;
    pool->stats.waiting++;
    return OCCL_OK;
}

int occl_pool_release(struct occl_pool *pool, uint64_t id) {
    struct holder *h = find(pool, id);
    if (h == NULL)
        return OCCL_E_HANDLE;
    if (h->state == HOLDER_WAITING) {
        pool->stats.waiting--;
    } else {
        give_back(pool, h);
        pool->stats.holding -= h->state == HOLDER_HOLDING;
        pool->stats.revoking -= h->state == HOLDER_REVOKING;
    }
    h->state = HOLDER_FREE;
    comms_of(pool)[h->comm].ops--;
    pool->stats.ops--;
    return OCCL_OK;
}

/* Total order of arrived ops, equal at all members. */
static bool older(const struct occl_pool *p, const struct holder *a, const struct holder *b) {
    if (a->ticket != b->ticket)
        return a->ticket < b->ticket;
    return comms_of(p)[a->comm].uid < comms_of(p)[b->comm].uid;
}

static enum occl_pool_action grant(struct occl_pool *p, struct holder *h, bool from_reserve) {
    if (from_reserve)
        comms_of(p)[h->comm].reserve_free -= h->units;
    else
        p->stats.shared_free -= h->units;
    h->in_reserve = from_reserve;
    h->state = HOLDER_HOLDING;
    if (!h->arrived)
        p->stats.unarrived_units += h->units;
    p->stats.waiting--;
    p->stats.holding++;
    p->stats.grants++;
    return OCCL_POOL_GRANT;
}

static enum occl_pool_action revoke(struct occl_pool *p, struct holder *h) {
    h->state = HOLDER_REVOKING;
    p->stats.holding--;
    p->stats.revoking++;
    p->stats.revocations++;
    return OCCL_POOL_REVOKE;
}

/* The oldest arrived op that waits, of one communicator or (NONE) of all. */
static struct holder *oldest_waiting(struct occl_pool *p, uint32_t comm) {
    struct holder *found = NULL;
    for (uint32_t i = 0; i < p->config.ops_max; i++) {
        struct holder *h = &holders_of(p)[i];
        if (h->state == HOLDER_WAITING && h->arrived && (comm == NONE || h->comm == comm) &&
            (found == NULL || older(p, h, found)))
            found = h;
    }
    return found;
}

/* Whom to revoke for `need`, and what earlier revocations will bring. */
static struct holder *victim_for(struct occl_pool *p, const struct holder *need, bool in_reserve,
                                 uint32_t *out_coming) {
    struct holder *found = NULL;
    *out_coming = 0;
    for (uint32_t i = 0; i < p->config.ops_max; i++) {
        struct holder *h = &holders_of(p)[i];
        bool there = h->in_reserve == in_reserve && (!in_reserve || h->comm == need->comm);
        if (!there)
            continue;
        if (h->state == HOLDER_REVOKING)
            *out_coming += h->units;
        if (h->state != HOLDER_HOLDING || (h->arrived && !older(p, need, h)))
            continue;
        if (found == NULL || (found->arrived && (!h->arrived || older(p, found, h))))
            found = h;
    }
    return found;
}

/* Revokes for `need` unless enough is free or on its way. */
static enum occl_pool_action revoke_for(struct occl_pool *p, const struct holder *need,
                                        bool in_reserve, struct holder **out_holder) {
    uint32_t free_units = in_reserve ? comms_of(p)[need->comm].reserve_free : p->stats.shared_free;
    uint32_t coming;
    struct holder *victim = victim_for(p, need, in_reserve, &coming);
    if (victim == NULL || free_units + coming >= need->units)
        return OCCL_POOL_NONE;
    *out_holder = victim;
    return revoke(p, victim);
}

/* Grants and revocations in the reserves: each communicator's oldest waiting op has the first
 * claim. `oldest` of all is left out when shared units will do for it. */
static enum occl_pool_action decide_reserves(struct occl_pool *p, bool may_revoke,
                                             const struct holder *not_for,
                                             struct holder **out_holder) {
    for (uint32_t c = 0; c < p->config.comms_max; c++) {
        struct pool_comm *comm = &comms_of(p)[c];
        struct holder *need;
        if (!comm->used || comm->reserve_units == 0 || (need = oldest_waiting(p, c)) == NULL)
            continue;
        *out_holder = need;
        if (comm->reserve_free >= need->units)
            return grant(p, need, true);
        if (may_revoke && need != not_for &&
            revoke_for(p, need, true, out_holder) != OCCL_POOL_NONE)
            return OCCL_POOL_REVOKE;
    }
    return OCCL_POOL_NONE;
}

/* Free units for ops without ticket, in the order of their requests; only while no arrived op
 * waits. */
static enum occl_pool_action decide_unarrived(struct occl_pool *p, struct holder **out_holder) {
    struct holder *first = NULL;
    for (uint32_t i = 0; i < p->config.ops_max; i++) {
        struct holder *h = &holders_of(p)[i];
        if (h->state == HOLDER_WAITING && (first == NULL || h->order < first->order))
            first = h;
    }
    if (first == NULL || p->stats.shared_free < first->units)
        return OCCL_POOL_NONE;
    *out_holder = first;
    return grant(p, first, false);
}

static enum occl_pool_action decide(struct occl_pool *p, struct holder **out_holder) {
    struct holder *need;
    uint32_t coming = 0;
    enum occl_pool_action action = decide_reserves(p, false, NULL, out_holder);
    if (action != OCCL_POOL_NONE)
        return action;
    need = oldest_waiting(p, NONE);
    if (need == NULL)
        return decide_unarrived(p, out_holder);
    /* While the oldest waits nobody else takes shared units. */
    if (need->units <= p->config.shared_units) {
        *out_holder = need;
        if (p->stats.shared_free >= need->units)
            return grant(p, need, false);
        if (revoke_for(p, need, false, out_holder) != OCCL_POOL_NONE)
            return OCCL_POOL_REVOKE;
        (void)victim_for(p, need, false, &coming);
    }
    return decide_reserves(p, true, p->stats.shared_free + coming >= need->units ? need : NULL,
                           out_holder);
}

enum occl_pool_action occl_pool_step(struct occl_pool *pool, uint64_t *out_id, uint64_t *out_user) {
    struct holder *h = NULL;
    enum occl_pool_action action = decide(pool, &h);
    if (action == OCCL_POOL_NONE)
        return action;
    *out_id = (uint64_t)h->generation << 32 | (uint32_t)(h - holders_of(pool));
    *out_user = h->user;
    return action;
}

void occl_pool_stats(const struct occl_pool *pool, struct occl_pool_stats *out_stats) {
    *out_stats = pool->stats;
}
