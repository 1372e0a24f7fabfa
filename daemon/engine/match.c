/* SPDX-License-Identifier: Apache-2.0 */
/* Matching: submissions meet by (communicator, key), never by order. An op starts when its last
 * member has come and all describe it alike. */
#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

/* A checked submission. */
struct arrival {
    struct occl_eng_session *session;
    struct occl_eng_comm *comm;
    const struct occl_sqe *sqe;
    uint32_t rank;
    uint32_t index; /* of the member in the op */
    uint32_t members;
    struct occl_eng_sides sides;
};

static bool is_pair(uint32_t kind) {
    return kind == OCCL_OP_SEND || kind == OCCL_OP_RECV;
}

/* A member that comes to an op which has ended without it. */
static void arrive_late(struct occl_eng_lane *lane, struct occl_eng_op *op,
                        const struct arrival *a) {
    op->arrived_mask |= 1ull << a->index;
    op->arrived++;
    occl_eng_complete_refused(lane, a->session, NULL, a->sqe, op->status, op->about_rank);
    if (op->arrived == op->members)
        occl_eng_op_free(lane, op);
}

/* The op cannot take place: its other members must not wait for a description that never becomes
 * valid. They end with the same status about this rank, also those that have not come yet. */
static void refuse(struct occl_eng_lane *lane, const struct arrival *a, int status) {
    const struct occl_sqe *sqe = a->sqe;
    uint32_t named = a->index == 0 ? sqe->key.peers >> 16 : sqe->key.peers & 0xffffu;
    bool known = is_pair(sqe->signature.kind) ? a->rank == named : sqe->key.peers == OCCL_PEERS_ALL;
    struct occl_eng_op *op = known ? occl_eng_op_find(lane, a->comm, sqe->key) : NULL;
    if (op && (op->arrived_mask >> a->index & 1))
        known = false; /* a second submission of a member: only it is wrong */
    if (known && !op && a->members > 1) {
        int created = occl_eng_op_create(lane, a->comm, sqe->key, a->members, &op);
        if (created != OCCL_OK) { /* no room to remember it: it has to come again */
            occl_eng_complete_refused(lane, a->session, NULL, sqe, created, OCCL_RANK_NONE);
            return;
        }
    }
    if (known && op) {
        occl_eng_op_fail(lane, op, status, a->rank);
        arrive_late(lane, op, a);
        return;
    }
    occl_eng_complete_refused(lane, a->session, a->comm, sqe, status, a->rank);
}

static void arrive(struct occl_eng_op *op, const struct arrival *a) {
    struct occl_eng_member *m = occl_eng_member_at(op, a->index);
    *m = (struct occl_eng_member){.op = op,
                                  .session = a->session,
                                  .user_data = a->sqe->user_data,
                                  .sides = a->sides,
                                  .factor = a->sqe->factor,
                                  .signature = a->sqe->signature};
    occl_eng_list_append(&a->session->members, &m->session_link);
    uint32_t op_class = occl_eng_class_of(a->comm, a->sqe->priority);
    if (op->arrived == 0) {
        op->first_ticks = a->sqe->submit_ticks;
        op->op_class = (uint8_t)op_class;
    } else if (op_class > op->op_class) {
        op->op_class = (uint8_t)op_class; /* the most urgent member decides */
    }
    op->last_ticks = a->sqe->submit_ticks;
    op->arrived_mask |= 1ull << a->index;
    op->arrived++;
}

void occl_eng_make_ready(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    struct occl_eng_job *job = op->comm->job;
    occl_eng_list_append(&job->ready[op->op_class], &op->ready_link);
    if (occl_eng_list_empty(&job->ready_link))
        occl_eng_list_append(&lane->ready_jobs, &job->ready_link);
}

/* Small, and nobody more urgent waits for the lane. */
static bool fits_at_once(const struct occl_eng_lane *lane, const struct occl_eng_op *op) {
    if (lane->at_once_bytes + op->plan.traffic_bytes > OCCL_ENG_AT_ONCE_BYTES)
        return false;
    for (uint32_t c = op->op_class + 1u; c < OCCL_SCHED_CLASSES; c++) {
        if (lane->queued[c])
            return false;
    }
    return !occl_eng_job_gated(op->comm->job);
}

/* False: no run is free. */
static bool start(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    uint32_t about = OCCL_RANK_NONE;
    if (op->plan.strand_count == 0) {
        occl_eng_op_succeed(lane, op, 0);
        return true;
    }
    if (fits_at_once(lane, op)) {
        lane->at_once_bytes += op->plan.traffic_bytes;
        int status = occl_eng_run_at_once(lane, op, &about);
        if (status == OCCL_OK)
            occl_eng_op_succeed(lane, op, 0);
        else
            occl_eng_op_fail(lane, op, status, about);
        return true;
    }
    if (op->state != OCCL_ENG_OP_READY)
        occl_eng_op_set_state(op, OCCL_ENG_OP_READY);
    return occl_eng_run_start(lane, op);
}

static bool in_place(struct occl_eng_op *op) {
    for (uint32_t i = 0; i < op->members; i++) {
        const struct occl_eng_sides *sides = &occl_eng_member_at(op, i)->sides;
        if (sides->src && sides->src == sides->dst)
            return true;
    }
    return false;
}

static void all_arrived(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    const struct occl_signature *first = &occl_eng_member_at(op, 0)->signature;
    for (uint32_t i = 1; i < op->members; i++) {
        if (occl_signature_differ(first, &occl_eng_member_at(op, i)->signature) !=
            OCCL_FIELD_NONE) {
            occl_eng_op_mismatch(lane, op, OCCL_RANK_NONE);
            return;
        }
    }
    const struct occl_local_vectors *vectors = NULL;
    uint32_t about = OCCL_RANK_NONE;
    int status = OCCL_OK;
    if (occl_kind_traits(first->kind)->flags & OCCL_KIND_VECTOR) {
        /* The run makes its own copies, and its plan from them. */
        status = occl_eng_op_vectors(&lane->scratch, op, &about);
        vectors = &lane->scratch.vectors;
    }
    if (status == OCCL_E_MISMATCH) {
        occl_eng_op_mismatch(lane, op, about);
        return;
    }
    if (status == OCCL_OK)
        status = occl_local_plan_make(first, op->members, in_place(op), vectors, &op->plan);
    op->plan.vectors = NULL;
    if (status != OCCL_OK) {
        occl_eng_op_fail(lane, op, status, about);
        return;
    }
    if (lane->engine->config.ordered && !occl_eng_op_at_heads(op)) {
        occl_eng_op_set_state(op, OCCL_ENG_OP_HELD);
        return;
    }
    if (!start(lane, op))
        occl_eng_make_ready(lane, op);
}

/* Finds communicator and member of an entry; answers it when it names none. */
static bool identify(struct occl_eng_lane *lane, struct occl_eng_session *session,
                     const struct occl_sqe *sqe, struct arrival *out_arrival) {
    const struct occl_eng_map_entry *e = occl_eng_map_find(&session->comms, sqe->comm);
    if (!e) {
        occl_eng_complete_refused(lane, session, NULL, sqe, OCCL_E_HANDLE, OCCL_RANK_NONE);
        return false;
    }
    struct occl_eng_comm *comm = e->value;
    if (comm->failed_status != OCCL_OK) {
        occl_eng_complete_refused(lane, session, comm, sqe, comm->failed_status,
                                  comm->failed_about);
        return false;
    }
    uint32_t kind = sqe->signature.kind;
    *out_arrival =
        (struct arrival){.session = session,
                         .comm = comm,
                         .sqe = sqe,
                         .rank = (uint32_t)e->extra,
                         .index = is_pair(kind) ? kind == OCCL_OP_RECV : (uint32_t)e->extra,
                         .members = is_pair(kind) ? 2 : comm->ranks};
    return true;
}

/* Why an op has ended before the daemon heard of it. */
static int status_of_word(uint32_t flags) {
    return flags == OCCL_SQE_TIMED_OUT    ? OCCL_E_TIMEOUT
           : flags == OCCL_SQE_OVER_QUOTA ? OCCL_E_QUOTA
                                          : OCCL_E_ABORTED;
}

void occl_eng_submit(struct occl_eng_lane *lane, struct occl_eng_session *session,
                     const struct occl_sqe *sqe) {
    struct arrival a;
    uint64_t block_bytes;
    if (!identify(lane, session, sqe, &a))
        return;
    int status = occl_eng_check_sqe(sqe, a.comm->ranks, a.rank, &block_bytes);
    if (status == OCCL_OK && sqe->flags)
        status = status_of_word(sqe->flags);
    else if (status == OCCL_OK)
        status = occl_eng_resolve_sides(a.comm, a.rank, &sqe->signature, a.index, a.members,
                                        &sqe->src, &sqe->dst, &sqe->vector, &a.sides);
    if (status != OCCL_OK) {
        refuse(lane, &a, status);
        return;
    }
    struct occl_eng_op *op = occl_eng_op_find(lane, a.comm, sqe->key);
    if (!op) {
        status = occl_eng_op_create(lane, a.comm, sqe->key, a.members, &op);
        if (status != OCCL_OK) {
            /* The claim stays closed for it: it comes again, or leaves word why not. */
            occl_eng_complete_refused(lane, session, NULL, sqe, status, OCCL_RANK_NONE);
            return;
        }
    }
    if (op->arrived_mask >> a.index & 1) {
        occl_eng_complete_refused(lane, session, a.comm, sqe, OCCL_E_INVALID, a.rank);
        return;
    }
    if (op->state == OCCL_ENG_OP_ENDED) {
        arrive_late(lane, op, &a);
        return;
    }
    arrive(op, &a);
    if (op->arrived == op->members)
        all_arrived(lane, op);
}

void occl_eng_cancel(struct occl_eng_lane *lane, struct occl_eng_session *session,
                     const struct occl_sqe *sqe) {
    struct occl_eng_link *link = session->members.next;
    /* Bounded by the session's completion credits. */
    for (; link != &session->members; link = link->next) {
        struct occl_eng_member *m = OCCL_ENG_ENTRY(link, struct occl_eng_member, session_link);
        if (m->user_data != sqe->user_data)
            continue;
        struct occl_eng_op *op = m->op;
        for (uint32_t i = 0; i < op->members; i++) {
            if ((op->arrived_mask >> i & 1) && occl_eng_member_at(op, i) == m) {
                occl_eng_op_fail(lane, op, OCCL_E_TIMEOUT, occl_eng_rank_of(op, i));
                return;
            }
        }
    }
    /* Not found: its completion is under way. */
}

/* The most urgent ready op of a job. False: none can start now. */
static bool start_of_job(struct occl_eng_lane *lane, struct occl_eng_job *job) {
    for (uint32_t c = OCCL_SCHED_CLASSES; c-- > 0;) {
        if (occl_eng_list_empty(&job->ready[c]))
            continue;
        struct occl_eng_op *op = OCCL_ENG_ENTRY(job->ready[c].next, struct occl_eng_op, ready_link);
        occl_eng_list_take(&op->ready_link);
        if (start(lane, op))
            return true;
        /* Back to its place: the first of its class. */
        occl_eng_list_append(job->ready[c].next, &op->ready_link);
    }
    return false;
}

static bool has_ready(const struct occl_eng_job *job) {
    for (uint32_t c = 0; c < OCCL_SCHED_CLASSES; c++) {
        if (!occl_eng_list_empty(&job->ready[c]))
            return true;
    }
    return false;
}

bool occl_eng_start_ready(struct occl_eng_lane *lane) {
    bool started = false;
    struct occl_eng_link *next, *last = lane->ready_jobs.prev;
    bool more = !occl_eng_list_empty(&lane->ready_jobs);
    /* Each job once, one op at a time; a job that has started one goes to the end. */
    for (struct occl_eng_link *l = lane->ready_jobs.next; more; l = next) {
        struct occl_eng_job *job = OCCL_ENG_ENTRY(l, struct occl_eng_job, ready_link);
        next = l->next;
        more = l != last;
        bool one = start_of_job(lane, job);
        started |= one;
        if (!has_ready(job)) {
            occl_eng_list_take(l);
        } else if (one) {
            occl_eng_list_take(l);
            occl_eng_list_append(&lane->ready_jobs, l);
        }
    }
    for (struct occl_eng_link *l = lane->wanted.next; l != &lane->wanted; l = next) {
        struct occl_eng_comm *comm = OCCL_ENG_ENTRY(l, struct occl_eng_comm, wanted_link);
        next = l->next;
        started |= occl_eng_record_start_wanted(lane, comm);
    }
    return started;
}
