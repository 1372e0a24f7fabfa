/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sched/sched.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/sched/state.h"
#include "shm_ipc/limits.h"

#define TABLE_MAX (1u << 24)
#define DEFAULT_AGEING_NS 10000000u
#define DEFAULT_AGEING_ATTEMPTS 4096u
#define DEFAULT_PATIENCE_MIN_NS 200u
#define DEFAULT_PATIENCE_MAX_NS 50000u
#define DEFAULT_QUANTUM_BYTES (256u << 10)
#define DEFAULT_VISIT_SLICES 8u
/* Looks at the head get longer with each one in vain, up to this multiple. */
#define HEAD_STEPS_MAX 4u
/* Patience elsewhere, and after a successful receive, relative to that at the head. */
#define SHORT_FRACTION 8u
#define STICKY_FACTOR 5u
#define SMALL_OP_BYTES (OCCL_SLICE_TRAFFIC_BYTES / 4)

size_t occl_sched_bytes(const struct occl_sched_config *config) {
    return sizeof(struct occl_sched) + config->ops_max * sizeof(struct op_slot) +
           config->jobs_max * (sizeof(struct job_slot) + sizeof(struct tenant_slot)) +
           links_count(config) * sizeof(struct occl_sched_link);
}

static void set_defaults(struct occl_sched_config *c) {
    if (c->ageing_ns == 0)
        c->ageing_ns = DEFAULT_AGEING_NS;
    if (c->ageing_attempts == 0)
        c->ageing_attempts = DEFAULT_AGEING_ATTEMPTS;
    if (c->patience_min_ns == 0)
        c->patience_min_ns = DEFAULT_PATIENCE_MIN_NS;
    if (c->patience_max_ns == 0)
        c->patience_max_ns = DEFAULT_PATIENCE_MAX_NS;
    if (c->patience_max_ns < c->patience_min_ns)
        c->patience_max_ns = c->patience_min_ns;
    if (c->quantum_bytes == 0)
        c->quantum_bytes = DEFAULT_QUANTUM_BYTES;
    if (c->visit_slices_max == 0)
        c->visit_slices_max = DEFAULT_VISIT_SLICES;
}

int occl_sched_create(const struct occl_sched_config *config, struct occl_sched **out_sched) {
    struct occl_sched *s;
    if (config->ops_max == 0 || config->ops_max > TABLE_MAX || config->jobs_max == 0 ||
        config->jobs_max > TABLE_MAX)
        return OCCL_E_INVALID;
    s = (struct occl_sched *)calloc(1, occl_sched_bytes(config));
    if (s == NULL)
        return OCCL_E_NO_MEMORY;
    s->config = *config;
    set_defaults(&s->config);
    s->last_op = OCCL_SCHED_NONE;
    s->stats.service_ns = s->config.patience_min_ns;
    for (uint32_t c = 0; c < OCCL_SCHED_CLASSES; c++) {
        occl_sched_list_reset(&s->classes[c].tenants);
        occl_sched_list_reset(&s->classes[c].blocked);
        occl_sched_list_reset(&s->classes[c].age);
        occl_sched_list_reset(&s->classes[c].arrival);
    }
    for (uint32_t i = 0; i < config->ops_max; i++)
        links_of(s)[link_age(i)].next = i + 1 < config->ops_max ? i + 1 : OCCL_SCHED_NONE;
    *out_sched = s;
    return OCCL_OK;
}

void occl_sched_destroy(struct occl_sched *sched) {
    free(sched);
}

/* ---- jobs ---- */
static bool weight_valid(uint32_t weight) {
    return weight >= 1 && weight <= OCCL_SCHED_WEIGHT_MAX;
}

static void reset_shares(struct share *shares) {
    for (uint32_t c = 0; c < OCCL_SCHED_CLASSES; c++) {
        memset(&shares[c], 0, sizeof shares[c]);
        occl_sched_list_reset(&shares[c].queue);
    }
}

/* The tenant's slot, or a free one; there are as many tenant slots as job slots. */
static uint32_t tenant_find(struct occl_sched *s, uint64_t tenant_id) {
    struct tenant_slot *tenants = tenants_of(s);
    uint32_t found = OCCL_SCHED_NONE;
    for (uint32_t i = 0; i < s->config.jobs_max; i++) {
        if (tenants[i].jobs > 0 && tenants[i].tenant_id == tenant_id)
            return i;
        if (tenants[i].jobs == 0 && found == OCCL_SCHED_NONE)
            found = i;
    }
    return found;
}

int occl_sched_job_add(struct occl_sched *sched, uint64_t job_id, uint64_t tenant_id,
                       uint32_t tenant_weight, uint32_t job_weight, uint32_t *out_job) {
    struct job_slot *jobs = jobs_of(sched);
    uint32_t job = OCCL_SCHED_NONE, tenant;
    if (!weight_valid(tenant_weight) || !weight_valid(job_weight))
        return OCCL_E_INVALID;
    for (uint32_t i = 0; i < sched->config.jobs_max; i++) {
        if (jobs[i].weight > 0 && jobs[i].job_id == job_id)
            return OCCL_E_BUSY;
        if (jobs[i].weight == 0 && job == OCCL_SCHED_NONE)
            job = i;
    }
    if (job == OCCL_SCHED_NONE)
        return OCCL_E_QUOTA;
    tenant = tenant_find(sched, tenant_id);
    struct tenant_slot *t = &tenants_of(sched)[tenant];
    if (t->jobs == 0) {
        t->tenant_id = tenant_id;
        reset_shares(t->shares);
    }
    t->jobs++;
    t->weight = tenant_weight;
    jobs[job].job_id = job_id;
    jobs[job].bytes = 0;
    jobs[job].tenant = tenant;
    jobs[job].weight = job_weight;
    jobs[job].ops = 0;
    reset_shares(jobs[job].shares);
    *out_job = job;
    return OCCL_OK;
}

static struct job_slot *job_get(const struct occl_sched *s, uint32_t job) {
    if (job >= s->config.jobs_max || jobs_of(s)[job].weight == 0)
        return NULL;
    return &jobs_of(s)[job];
}

int occl_sched_job_weights(struct occl_sched *sched, uint32_t job, uint32_t tenant_weight,
                           uint32_t job_weight) {
    struct job_slot *j = job_get(sched, job);
    if (j == NULL || !weight_valid(tenant_weight) || !weight_valid(job_weight))
        return OCCL_E_INVALID;
    j->weight = job_weight;
    tenants_of(sched)[j->tenant].weight = tenant_weight;
    return OCCL_OK;
}

void occl_sched_job_charge(struct occl_sched *sched, uint32_t job, uint32_t job_class,
                           uint64_t bytes) {
    if (job_get(sched, job) != NULL && job_class < OCCL_SCHED_CLASSES)
        occl_sched_charge(sched, job, job_class, bytes);
}

int occl_sched_job_remove(struct occl_sched *sched, uint32_t job) {
    struct job_slot *j = job_get(sched, job);
    if (j == NULL)
        return OCCL_E_INVALID;
    if (j->ops > 0)
        return OCCL_E_BUSY;
    j->weight = 0;
    tenants_of(sched)[j->tenant].jobs--;
    return OCCL_OK;
}

uint64_t occl_sched_job_bytes(const struct occl_sched *sched, uint32_t job) {
    const struct job_slot *j = job_get(sched, job);
    return j == NULL ? 0 : j->bytes;
}

/* Time never runs backwards in here, even if the caller's sources differ by a little. */
static uint64_t clock_at(struct occl_sched *s, uint64_t now_ns) {
    if (now_ns > s->clock_ns)
        s->clock_ns = now_ns;
    return s->clock_ns;
}

/* ---- ops ---- */
static uint32_t op_find(const struct occl_sched *s, uint64_t id) {
    uint32_t index = (uint32_t)id;
    if (index >= s->config.ops_max || ops_of(s)[index].state == OP_FREE ||
        ops_of(s)[index].generation != (uint32_t)(id >> 32))
        return OCCL_SCHED_NONE;
    return index;
}

/* Puts an op into the runnable or blocked queue of its class, and keeps shares active. */
static void enqueue(struct occl_sched *s, uint32_t op, enum op_state state, bool in_front) {
    struct op_slot *o = &ops_of(s)[op];
    struct class_queue *q = &s->classes[o->op_class];
    o->state = (uint8_t)state;
    if (state == OP_BLOCKED) {
        occl_sched_list_insert(s, &q->blocked, link_queue(s, op), OCCL_SCHED_NONE);
        return;
    }
    struct occl_sched_list *queue = &jobs_of(s)[o->job].shares[o->op_class].queue;
    occl_sched_list_insert(s, queue, link_queue(s, op), in_front ? queue->head : OCCL_SCHED_NONE);
    q->runnable++;
    s->stats.runnable++;
    occl_sched_share_update(s, o->job, o->op_class);
}

/* Takes an op out of its queue; the caller updates the shares when nothing follows. */
static void dequeue(struct occl_sched *s, uint32_t op) {
    struct op_slot *o = &ops_of(s)[op];
    struct class_queue *q = &s->classes[o->op_class];
    if (o->state == OP_BLOCKED) {
        occl_sched_list_remove(s, &q->blocked, link_queue(s, op));
    } else if (o->state == OP_RUNNABLE) {
        occl_sched_list_remove(s, &jobs_of(s)[o->job].shares[o->op_class].queue, link_queue(s, op));
        q->runnable--;
        s->stats.runnable--;
    }
}

static void count_visited(struct occl_sched *s, const struct op_slot *o, uint32_t add) {
    struct job_slot *j = &jobs_of(s)[o->job];
    j->shares[o->op_class].visited += add;
    tenants_of(s)[j->tenant].shares[o->op_class].visited += add;
}

int occl_sched_add(struct occl_sched *sched, const struct occl_sched_op *op, uint64_t now_ns,
                   uint64_t *out_id) {
    struct job_slot *j = job_get(sched, op->job);
    uint32_t index = sched->free_op;
    if (j == NULL || op->op_class >= OCCL_SCHED_CLASSES)
        return OCCL_E_INVALID;
    if (index == OCCL_SCHED_NONE)
        return OCCL_E_QUOTA;
    struct op_slot *o = &ops_of(sched)[index];
    struct class_queue *q = &sched->classes[op->op_class];
    sched->free_op = links_of(sched)[link_age(index)].next;
    o->generation++;
    o->user = op->user;
    o->job = op->job;
    o->op_class = (uint8_t)op->op_class;
    o->vain = 0;
    memset(&o->give_up, 0, sizeof o->give_up);
    o->last_visit_ns = clock_at(sched, now_ns);
    o->last_visit_no = sched->stats.decisions;
    occl_sched_list_insert(sched, &q->age, link_age(index), OCCL_SCHED_NONE);
    occl_sched_list_insert(sched, &q->arrival, link_arrival(sched, index), OCCL_SCHED_NONE);
    enqueue(sched, index, OP_RUNNABLE, op->cost_bytes > 0 && op->cost_bytes < SMALL_OP_BYTES);
    j->ops++;
    sched->stats.ops++;
    *out_id = (uint64_t)o->generation << 32 | index;
    return OCCL_OK;
}

static void release(struct occl_sched *s, uint32_t op) {
    struct op_slot *o = &ops_of(s)[op];
    struct class_queue *q = &s->classes[o->op_class];
    if (o->state == OP_VISITED)
        count_visited(s, o, (uint32_t)-1);
    else
        occl_sched_list_remove(s, &q->age, link_age(op));
    dequeue(s, op);
    occl_sched_list_remove(s, &q->arrival, link_arrival(s, op));
    occl_sched_share_update(s, o->job, o->op_class);
    o->state = OP_FREE;
    jobs_of(s)[o->job].ops--;
    s->stats.ops--;
    links_of(s)[link_age(op)].next = s->free_op;
    s->free_op = op;
}

int occl_sched_remove(struct occl_sched *sched, uint64_t id) {
    uint32_t op = op_find(sched, id);
    if (op == OCCL_SCHED_NONE)
        return OCCL_E_HANDLE;
    release(sched, op);
    return OCCL_OK;
}

/* Inserts by age: a change of class does not make an op younger. */
static void insert_by_age(struct occl_sched *s, uint32_t op) {
    const struct op_slot *ops = ops_of(s);
    struct occl_sched_list *age = &s->classes[ops[op].op_class].age;
    uint32_t before = OCCL_SCHED_NONE, at = age->tail;
    while (at != OCCL_SCHED_NONE && ops[at].last_visit_no > ops[op].last_visit_no) {
        before = at;
        at = links_of(s)[at].prev;
    }
    occl_sched_list_insert(s, age, link_age(op), before);
}

int occl_sched_set_class(struct occl_sched *sched, uint64_t id, uint32_t op_class) {
    uint32_t op = op_find(sched, id);
    if (op == OCCL_SCHED_NONE)
        return OCCL_E_HANDLE;
    if (op_class >= OCCL_SCHED_CLASSES)
        return OCCL_E_INVALID;
    struct op_slot *o = &ops_of(sched)[op];
    enum op_state state = (enum op_state)o->state;
    uint32_t old_class = o->op_class;
    occl_sched_list_remove(sched, &sched->classes[old_class].arrival, link_arrival(sched, op));
    if (state == OP_VISITED)
        count_visited(sched, o, (uint32_t)-1);
    else
        occl_sched_list_remove(sched, &sched->classes[old_class].age, link_age(op));
    dequeue(sched, op);
    occl_sched_share_update(sched, o->job, old_class);
    o->op_class = (uint8_t)op_class;
    occl_sched_list_insert(sched, &sched->classes[op_class].arrival, link_arrival(sched, op),
                           OCCL_SCHED_NONE);
    if (state == OP_VISITED) {
        count_visited(sched, o, 1);
        occl_sched_share_update(sched, o->job, op_class);
        return OCCL_OK;
    }
    insert_by_age(sched, op);
    enqueue(sched, op, state, false);
    return OCCL_OK;
}

int occl_sched_wake(struct occl_sched *sched, uint64_t id) {
    uint32_t op = op_find(sched, id);
    if (op == OCCL_SCHED_NONE)
        return OCCL_E_HANDLE;
    if (ops_of(sched)[op].state == OP_BLOCKED) {
        dequeue(sched, op);
        enqueue(sched, op, OP_RUNNABLE, true);
    }
    return OCCL_OK;
}

/* ---- visits ---- */
static uint32_t top_runnable(const struct occl_sched *s) {
    for (uint32_t c = OCCL_SCHED_CLASSES; c-- > 0;)
        if (s->classes[c].runnable > 0)
            return c;
    return OCCL_SCHED_NONE;
}

/* The oldest op that ageing brings forward, or OCCL_SCHED_NONE. Time counts for classes below the
 * highest with work, decisions count for all. */
static uint32_t aged_op(const struct occl_sched *s, uint32_t top, uint64_t now_ns) {
    const struct op_slot *ops = ops_of(s);
    uint32_t found = OCCL_SCHED_NONE;
    for (uint32_t c = 0; c < OCCL_SCHED_CLASSES; c++) {
        uint32_t op = s->classes[c].age.head;
        if (op == OCCL_SCHED_NONE)
            continue;
        bool by_time = top != OCCL_SCHED_NONE && c < top &&
                       now_ns - ops[op].last_visit_ns >= s->config.ageing_ns;
        bool by_count = s->stats.decisions - ops[op].last_visit_no >= s->config.ageing_attempts;
        if ((by_time || by_count) &&
            (found == OCCL_SCHED_NONE || ops[op].last_visit_no < ops[found].last_visit_no))
            found = op;
    }
    return found;
}

/* The blocked op of classes >= lowest whose visit is longest ago, or OCCL_SCHED_NONE. */
static uint32_t oldest_blocked(const struct occl_sched *s, uint32_t lowest, uint32_t *out_count) {
    const struct op_slot *ops = ops_of(s);
    uint32_t found = OCCL_SCHED_NONE, count = 0;
    for (uint32_t c = lowest; c < OCCL_SCHED_CLASSES; c++) {
        const struct occl_sched_list *blocked = &s->classes[c].blocked;
        if (blocked->count == 0)
            continue;
        uint32_t op = op_at_queue(s, blocked->head);
        count += blocked->count;
        if (found == OCCL_SCHED_NONE || ops[op].last_visit_no < ops[found].last_visit_no)
            found = op;
    }
    *out_count = count;
    return found;
}

/* Head of the queue: the longest queued op of the highest class. Similar everywhere, hence where
 * peers meet. */
static bool is_head(const struct occl_sched *s, uint32_t op) {
    for (uint32_t c = OCCL_SCHED_CLASSES; c-- > 0;)
        if (s->classes[c].arrival.count > 0)
            return op_at_arrival(s, s->classes[c].arrival.head) == op;
    return false;
}

static uint64_t clamp_ns(const struct occl_sched *s, uint64_t ns) {
    if (ns < s->config.patience_min_ns)
        return s->config.patience_min_ns;
    return ns > s->config.patience_max_ns ? s->config.patience_max_ns : ns;
}

/* How long a visit may look at a false guard. With other work at hand a look is a single one; after
 * a success it pays to stay a little even then. */
static void set_patience(const struct occl_sched *s, uint32_t op, struct occl_sched_visit *visit) {
    uint64_t service = s->stats.service_ns;
    uint32_t vain = ops_of(s)[op].vain;
    uint32_t steps = vain < HEAD_STEPS_MAX ? vain + 1 : HEAD_STEPS_MAX;
    bool others = s->stats.runnable > (ops_of(s)[op].state == OP_RUNNABLE ? 1u : 0u);
    if (others || visit->aged) {
        visit->patience_ns = 0;
        visit->sticky_ns = clamp_ns(s, service);
        return;
    }
    visit->patience_ns = is_head(s, op) ? clamp_ns(s, 2 * service * steps)
                                        : clamp_ns(s, 2 * service / SHORT_FRACTION);
    visit->sticky_ns = clamp_ns(s, STICKY_FACTOR * service);
    if (visit->sticky_ns < visit->patience_ns)
        visit->sticky_ns = visit->patience_ns;
}

static uint32_t decide(struct occl_sched *s, uint64_t now_ns, bool *out_aged) {
    uint32_t top = top_runnable(s), count;
    uint32_t op = OCCL_SCHED_NONE;
    *out_aged = false;
    if (s->stats.decisions >= s->aged_decision + OCCL_SCHED_AGED_EVERY)
        op = aged_op(s, top, now_ns);
    if (op != OCCL_SCHED_NONE) {
        *out_aged = true;
        s->aged_decision = s->stats.decisions;
        s->stats.aged++;
        return op;
    }
    op = oldest_blocked(s, top == OCCL_SCHED_NONE ? 0 : top, &count);
    if (top == OCCL_SCHED_NONE)
        return op;
    if (op != OCCL_SCHED_NONE && s->looks_left > 0) {
        s->looks_left--;
        return op;
    }
    s->looks_left = count < OCCL_SCHED_LOOKS ? count : OCCL_SCHED_LOOKS;
    return occl_sched_share_pick(s, top);
}

bool occl_sched_next(struct occl_sched *sched, uint64_t now_ns,
                     struct occl_sched_visit *out_visit) {
    bool aged;
    now_ns = clock_at(sched, now_ns);
    uint32_t op = decide(sched, now_ns, &aged);
    if (op == OCCL_SCHED_NONE)
        return false;
    struct op_slot *o = &ops_of(sched)[op];
    uint64_t gap = sched->stats.decisions - o->last_visit_no;
    if (gap > sched->stats.gap_attempts_max)
        sched->stats.gap_attempts_max = gap;
    if (now_ns - o->last_visit_ns > sched->stats.gap_ns_max)
        sched->stats.gap_ns_max = now_ns - o->last_visit_ns;
    out_visit->id = (uint64_t)o->generation << 32 | op;
    out_visit->user = o->user;
    out_visit->aged = aged;
    set_patience(sched, op, out_visit);
    dequeue(sched, op);
    occl_sched_list_remove(sched, &sched->classes[o->op_class].age, link_age(op));
    out_visit->slices_max = aged || sched->stats.runnable > 0 ? 1 : sched->config.visit_slices_max;
    o->state = OP_VISITED;
    count_visited(sched, o, 1);
    occl_sched_share_update(sched, o->job, o->op_class);
    sched->stats.decisions++;
    if (sched->last_op != op)
        sched->stats.switches++;
    sched->last_op = op;
    return true;
}

/* Learns how long a guard takes to come true: measured inside a visit, or since the give-up. */
static void learn(struct occl_sched *s, const struct op_slot *o,
                  const struct occl_sched_report *report, uint64_t now_ns) {
    uint64_t sample = report->waited_ns, old = s->stats.service_ns;
    if (sample == 0 && o->give_up.attempts > 0)
        sample = now_ns - o->give_up.since_ns;
    if (report->received == 0 || sample == 0)
        return;
    if (sample > s->config.patience_max_ns)
        sample = s->config.patience_max_ns;
    s->stats.service_ns = sample > old ? old + (sample - old + 7) / 8 : old - (old - sample) / 8;
}

static void note_give_up(struct op_slot *o, const struct occl_sched_report *r, uint64_t now_ns) {
    struct occl_sched_give_up *g = &o->give_up;
    bool same = r->slices == 0 && g->attempts > 0 && g->strand == r->strand && g->step == r->step &&
                g->wait_kind == r->wait_kind && g->peer == r->peer;
    if (!same) {
        g->since_ns = now_ns;
        g->attempts = 0;
    }
    g->attempts += g->attempts < UINT32_MAX;
    g->strand = r->strand;
    g->step = r->step;
    g->wait_kind = r->wait_kind;
    g->peer = r->peer;
}

int occl_sched_report(struct occl_sched *sched, uint64_t id, const struct occl_sched_report *report,
                      uint64_t now_ns) {
    uint32_t op = op_find(sched, id);
    if (op == OCCL_SCHED_NONE || ops_of(sched)[op].state != OP_VISITED)
        return OCCL_E_HANDLE;
    struct op_slot *o = &ops_of(sched)[op];
    now_ns = clock_at(sched, now_ns);
    occl_sched_charge(sched, o->job, o->op_class, report->bytes);
    if (report->slices > 0) {
        learn(sched, o, report, now_ns);
        o->vain = 0;
        o->give_up.attempts = 0;
    } else {
        sched->stats.vain++;
        o->vain += o->vain < UINT32_MAX;
    }
    if (report->result == OCCL_SCHED_DONE) {
        release(sched, op);
        return OCCL_OK;
    }
    o->last_visit_ns = now_ns;
    o->last_visit_no = sched->stats.decisions;
    count_visited(sched, o, (uint32_t)-1);
    occl_sched_list_insert(sched, &sched->classes[o->op_class].age, link_age(op), OCCL_SCHED_NONE);
    if (report->result == OCCL_SCHED_BLOCKED) {
        note_give_up(o, report, now_ns);
        enqueue(sched, op, OP_BLOCKED, false);
        occl_sched_share_update(sched, o->job, o->op_class);
    } else {
        sched->stats.preemptions++;
        enqueue(sched, op, OP_RUNNABLE, false);
    }
    return OCCL_OK;
}

/* ---- inspection ---- */
int occl_sched_give_up(const struct occl_sched *sched, uint64_t id,
                       struct occl_sched_give_up *out_give_up) {
    uint32_t op = op_find(sched, id);
    if (op == OCCL_SCHED_NONE)
        return OCCL_E_HANDLE;
    *out_give_up = ops_of(sched)[op].give_up;
    return OCCL_OK;
}

void occl_sched_stats(const struct occl_sched *sched, struct occl_sched_stats *out_stats) {
    *out_stats = sched->stats;
}

uint64_t occl_sched_gap_bound(const struct occl_sched *sched, uint32_t ops) {
    return sched->config.ageing_attempts + (uint64_t)OCCL_SCHED_AGED_EVERY * ((uint64_t)ops + 1);
}
