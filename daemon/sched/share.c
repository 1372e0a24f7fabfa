/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and deficit round robin. */
#include "daemon/sched/state.h"

/* Largest debt that is remembered: what others executed for a job in one charging interval. */
#define DEBT_MAX_BYTES ((int64_t)64 << 20)

void occl_sched_list_reset(struct occl_sched_list *list) {
    list->head = OCCL_SCHED_NONE;
    list->tail = OCCL_SCHED_NONE;
    list->count = 0;
}

void occl_sched_list_insert(struct occl_sched *s, struct occl_sched_list *list, uint32_t link,
                            uint32_t before) {
    struct occl_sched_link *links = links_of(s);
    uint32_t prev = before == OCCL_SCHED_NONE ? list->tail : links[before].prev;
    links[link].prev = prev;
    links[link].next = before;
    if (prev == OCCL_SCHED_NONE)
        list->head = link;
    else
        links[prev].next = link;
    if (before == OCCL_SCHED_NONE)
        list->tail = link;
    else
        links[before].prev = link;
    list->count++;
}

void occl_sched_list_remove(struct occl_sched *s, struct occl_sched_list *list, uint32_t link) {
    struct occl_sched_link *links = links_of(s);
    uint32_t prev = links[link].prev, next = links[link].next;
    if (prev == OCCL_SCHED_NONE)
        list->head = next;
    else
        links[prev].next = next;
    if (next == OCCL_SCHED_NONE)
        list->tail = prev;
    else
        links[next].prev = prev;
    list->count--;
}

/* A taker that leaves keeps its debt and loses its credit: nobody saves up a burst by idling. */
static void set_active(struct occl_sched *s, struct occl_sched_list *parent, struct share *share,
                       uint32_t link, bool active) {
    if (active == (share->active != 0))
        return;
    share->active = active;
    if (active) {
        occl_sched_list_insert(s, parent, link, OCCL_SCHED_NONE);
        return;
    }
    occl_sched_list_remove(s, parent, link);
    if (share->deficit_bytes > 0)
        share->deficit_bytes = 0;
}

void occl_sched_share_update(struct occl_sched *s, uint32_t job, uint32_t op_class) {
    struct job_slot *j = &jobs_of(s)[job];
    struct tenant_slot *t = &tenants_of(s)[j->tenant];
    struct share *js = &j->shares[op_class], *ts = &t->shares[op_class];
    set_active(s, &ts->queue, js, link_job(s, job, op_class),
               js->queue.count > 0 || js->visited > 0);
    set_active(s, &s->classes[op_class].tenants, ts, link_tenant(s, j->tenant, op_class),
               ts->queue.count > 0);
}

static void take(struct share *share, uint64_t bytes) {
    int64_t amount = bytes > (uint64_t)DEBT_MAX_BYTES ? DEBT_MAX_BYTES : (int64_t)bytes;
    share->deficit_bytes -= amount;
    if (share->deficit_bytes < -DEBT_MAX_BYTES)
        share->deficit_bytes = -DEBT_MAX_BYTES;
}

void occl_sched_charge(struct occl_sched *s, uint32_t job, uint32_t op_class, uint64_t bytes) {
    struct job_slot *j = &jobs_of(s)[job];
    j->bytes += bytes;
    take(&j->shares[op_class], bytes);
    take(&tenants_of(s)[j->tenant].shares[op_class], bytes);
}

/* Whether the taker at the head may be served; if not it gets its credit and goes to the tail. One
 * that is alone is served in any case and owes nothing: there is nobody to be fair to. */
static bool may_serve(struct occl_sched *s, struct occl_sched_list *parent, struct share *share,
                      uint32_t link, uint32_t weight, bool has_work) {
    int64_t credit = (int64_t)s->config.quantum_bytes * weight;
    if (parent->count == 1) {
        if (share->deficit_bytes <= 0)
            share->deficit_bytes = credit;
        return true;
    }
    if (share->deficit_bytes > 0 && has_work)
        return true;
    if (share->deficit_bytes <= 0)
        share->deficit_bytes += credit;
    occl_sched_list_remove(s, parent, link);
    occl_sched_list_insert(s, parent, link, OCCL_SCHED_NONE);
    return false;
}

static uint32_t runnable_of(const struct occl_sched *s, uint32_t tenant, uint32_t op_class) {
    const struct occl_sched_link *links = links_of(s);
    uint32_t link = tenants_of(s)[tenant].shares[op_class].queue.head;
    for (; link != OCCL_SCHED_NONE; link = links[link].next)
        if (jobs_of(s)[job_at(s, link)].shares[op_class].queue.count > 0)
            return 1;
    return 0;
}

uint32_t occl_sched_share_pick(struct occl_sched *s, uint32_t op_class) {
    struct occl_sched_list *tenants = &s->classes[op_class].tenants;
    for (;;) {
        uint32_t tenant_link = tenants->head;
        uint32_t tenant = tenant_at(s, tenant_link);
        struct tenant_slot *t = &tenants_of(s)[tenant];
        struct share *ts = &t->shares[op_class];
        /* Only with several ops under visit can an active taker be without runnable ops. */
        bool has_work = ts->visited == 0 || runnable_of(s, tenant, op_class);
        if (!may_serve(s, tenants, ts, tenant_link, t->weight, has_work) || !has_work)
            continue;
        for (;;) {
            uint32_t link = ts->queue.head;
            struct job_slot *j = &jobs_of(s)[job_at(s, link)];
            struct share *js = &j->shares[op_class];
            if (may_serve(s, &ts->queue, js, link, j->weight, js->queue.count > 0) &&
                js->queue.count > 0)
                return op_at_queue(s, js->queue.head);
        }
    }
}
