/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the scheduler: one block of memory that holds the header, the tables and the list
 * links. All references are indices, so that a copy of the block is a snapshot. */
#ifndef DAEMON_SCHED_STATE_H
#define DAEMON_SCHED_STATE_H

#include "daemon/sched/sched.h"

/* Doubly linked lists of small integers. Each element of each kind of list has its own link number;
 * see the link_ functions below. */
struct occl_sched_link {
    uint32_t prev, next;
};
struct occl_sched_list {
    uint32_t head, tail; /* link numbers, OCCL_SCHED_NONE when empty */
    uint32_t count;
};

enum op_state {
    OP_FREE = 0,     /* moved on by add */
    OP_RUNNABLE = 1, /* by next, remove */
    OP_BLOCKED = 2,  /* by next, wake, remove */
    OP_VISITED = 3,  /* by report, remove */
};

struct op_slot {
    uint64_t user;
    uint64_t last_visit_ns; /* end of the last visit, or the time of add */
    uint64_t last_visit_no; /* decisions made until then */
    struct occl_sched_give_up give_up;
    uint32_t generation;
    uint32_t job;
    uint32_t vain; /* visits without a slice since the last one with */
    uint8_t op_class;
    uint8_t state; /* enum op_state */
    uint8_t reserved[2];
};

/* A taker of shares: a tenant or a job, in one class. */
struct share {
    int64_t deficit_bytes;
    struct occl_sched_list queue; /* tenant: its active jobs; job: its runnable ops */
    uint32_t visited;             /* ops under visit */
    uint32_t active;              /* 1: linked into its parent's queue */
};

struct job_slot {
    uint64_t job_id;
    uint64_t bytes;
    uint32_t tenant;
    uint32_t weight; /* 0: free */
    uint32_t ops;
    uint32_t reserved;
    struct share shares[OCCL_SCHED_CLASSES];
};
struct tenant_slot {
    uint64_t tenant_id;
    uint32_t weight;
    uint32_t jobs; /* 0: free */
    struct share shares[OCCL_SCHED_CLASSES];
};

struct class_queue {
    struct occl_sched_list tenants; /* active ones, in round-robin order */
    struct occl_sched_list blocked; /* ops, oldest visit first */
    struct occl_sched_list age;     /* all ops not under visit, oldest visit first */
    struct occl_sched_list arrival; /* all ops, oldest first: the head of the queue is its head */
    uint32_t runnable;              /* ops */
    uint32_t reserved;
};

struct occl_sched {
    struct occl_sched_config config; /* defaults filled in */
    struct occl_sched_stats stats;
    uint64_t aged_decision; /* number of the last aged decision */
    uint64_t clock_ns;      /* latest time that was passed in */
    uint32_t looks_left;
    uint32_t last_op; /* index, to count switches */
    uint32_t free_op; /* head of the chain through the age links */
    uint32_t reserved;
    struct class_queue classes[OCCL_SCHED_CLASSES];
    /* tables follow: links, ops, jobs, tenants */
};

static inline size_t links_count(const struct occl_sched_config *config) {
    return 3 * (size_t)config->ops_max + 2 * (size_t)OCCL_SCHED_CLASSES * config->jobs_max;
}
static inline struct op_slot *ops_of(const struct occl_sched *s) {
    return (struct op_slot *)((uintptr_t)s + sizeof *s);
}
static inline struct job_slot *jobs_of(const struct occl_sched *s) {
    return (struct job_slot *)((uintptr_t)ops_of(s) + s->config.ops_max * sizeof(struct op_slot));
}
static inline struct tenant_slot *tenants_of(const struct occl_sched *s) {
    return (struct tenant_slot *)((uintptr_t)jobs_of(s) +
                                  s->config.jobs_max * sizeof(struct job_slot));
}
static inline struct occl_sched_link *links_of(const struct occl_sched *s) {
    return (struct occl_sched_link *)((uintptr_t)tenants_of(s) +
                                      s->config.jobs_max * sizeof(struct tenant_slot));
}

/* Link numbers. An op has three: by age, by arrival, and in its runnable or blocked queue. */
static inline uint32_t link_age(uint32_t op) {
    return op;
}
static inline uint32_t link_arrival(const struct occl_sched *s, uint32_t op) {
    return s->config.ops_max + op;
}
static inline uint32_t link_queue(const struct occl_sched *s, uint32_t op) {
    return 2 * s->config.ops_max + op;
}
static inline uint32_t link_job(const struct occl_sched *s, uint32_t job, uint32_t op_class) {
    return 3 * s->config.ops_max + job * OCCL_SCHED_CLASSES + op_class;
}
static inline uint32_t link_tenant(const struct occl_sched *s, uint32_t tenant, uint32_t op_class) {
    return 3 * s->config.ops_max + (s->config.jobs_max + tenant) * OCCL_SCHED_CLASSES + op_class;
}
/* The inverse of the four above, for heads of lists. */
static inline uint32_t op_at_arrival(const struct occl_sched *s, uint32_t link) {
    return link - s->config.ops_max;
}
static inline uint32_t op_at_queue(const struct occl_sched *s, uint32_t link) {
    return link - 2 * s->config.ops_max;
}
static inline uint32_t job_at(const struct occl_sched *s, uint32_t link) {
    return (link - 3 * s->config.ops_max) / OCCL_SCHED_CLASSES;
}
static inline uint32_t tenant_at(const struct occl_sched *s, uint32_t link) {
    return (link - 3 * s->config.ops_max) / OCCL_SCHED_CLASSES - s->config.jobs_max;
}

void occl_sched_list_reset(struct occl_sched_list *list);
/* Inserts `link` before `before`; OCCL_SCHED_NONE: at the tail. */
void occl_sched_list_insert(struct occl_sched *s, struct occl_sched_list *list, uint32_t link,
                            uint32_t before);
void occl_sched_list_remove(struct occl_sched *s, struct occl_sched_list *list, uint32_t link);

/* Links job and tenant of a runnable op into their parents' queues, or takes them out when they
 * have neither runnable ops nor ops under visit. */
void occl_sched_share_update(struct occl_sched *s, uint32_t job, uint32_t op_class);
void occl_sched_charge(struct occl_sched *s, uint32_t job, uint32_t op_class, uint64_t bytes);
/* Next op of a class by deficit round robin; the class has a runnable op. */
uint32_t occl_sched_share_pick(struct occl_sched *s, uint32_t op_class);

#endif
