/* SPDX-License-Identifier: Apache-2.0 */
/* How ops end: exactly one completion for each submission, and the bookkeeping that goes with it.
 */
#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

uint32_t occl_eng_rank_of(const struct occl_eng_op *op, uint32_t index) {
    if (op->key.peers == OCCL_PEERS_ALL)
        return index;
    return index == 0 ? op->key.peers >> 16 : op->key.peers & 0xffffu;
}

static void push(struct occl_eng_lane *lane, struct occl_eng_session *session,
                 const struct occl_cqe *cqe) {
    if (session->faulted)
        return;
    /* The credit taken at the submission is a free entry, so this cannot fail. */
    struct occl_cqe entry = *cqe;
    OCCL_ENG_SETTLE(entry);
    OCCL_ASSERT(occl_cq_push(&session->cq, &entry) == OCCL_OK);
    if (occl_eng_list_empty(&session->dirty_link))
        occl_eng_list_append(&lane->dirty, &session->dirty_link);
}

void occl_eng_complete_refused(struct occl_eng_lane *lane, struct occl_eng_session *session,
                               struct occl_eng_comm *comm, const struct occl_sqe *sqe, int status,
                               uint32_t about_rank) {
    struct occl_cqe cqe = {.user_data = sqe->user_data, .status = status, .about_rank = about_rank};
    if (comm)
        occl_eng_drop_overflow(comm, sqe->key, 1);
    push(lane, session, &cqe);
    occl_eng_bump(&lane->counters.ops_failed, 1);
    occl_count64(&session->job->errors, 1);
}

/* In ordered mode, an op whose members have all come starts when it is the oldest of each of them.
 */
static void advance_ordered(struct occl_eng_lane *lane, struct occl_eng_session *session) {
    if (!lane->engine->config.ordered || occl_eng_list_empty(&session->members))
        return;
    struct occl_eng_op *op =
        OCCL_ENG_ENTRY(session->members.next, struct occl_eng_member, session_link)->op;
    if (op->state != OCCL_ENG_OP_HELD || !occl_eng_op_at_heads(op))
        return;
    occl_eng_op_set_state(op, OCCL_ENG_OP_READY);
    occl_eng_make_ready(lane, op);
}

bool occl_eng_op_at_heads(struct occl_eng_op *op) {
    for (uint32_t i = 0; i < op->members; i++) {
        const struct occl_eng_session *session = occl_eng_member_at(op, i)->session;
        /* To oneself, both halves stand in one queue: the first at the head is enough. */
        if (session &&
            OCCL_ENG_ENTRY(session->members.next, struct occl_eng_member, session_link)->op != op)
            return false;
    }
    return true;
}

static void retire(struct occl_eng_lane *lane, struct occl_eng_op *op, uint32_t index,
                   const struct occl_cqe *outcome) {
    struct occl_eng_member *m = occl_eng_member_at(op, index);
    struct occl_eng_session *session = m->session;
    struct occl_cqe cqe = *outcome;
    occl_eng_list_take(&m->session_link);
    m->session = NULL;
    if (!session)
        return;
    cqe.user_data = m->user_data;
    push(lane, session, &cqe);
    advance_ordered(lane, session);
}

static void retire_arrived(struct occl_eng_lane *lane, struct occl_eng_op *op,
                           const struct occl_cqe *outcome) {
    for (uint32_t i = 0; i < op->members; i++) {
        if (op->arrived_mask >> i & 1)
            retire(lane, op, i, outcome);
    }
}

void occl_eng_op_fail(struct occl_eng_lane *lane, struct occl_eng_op *op, int status,
                      uint32_t about_rank) {
    if (op->state == OCCL_ENG_OP_ENDED) {
        if (op->comm->failed_status != OCCL_OK)
            occl_eng_op_free(lane, op);
        return;
    }
    if (op->status == OCCL_OK) {
        op->status = status;
        op->about_rank = about_rank;
    }
    if (op->state == OCCL_ENG_OP_RUNNING) {
        /* Its members' buffers may be under a lane's hands: it ends when the last one lets go. */
        occl_eng_run_stop(op->run, status);
        (void)occl_eng_run_reap(lane, op->run); /* false: a later round reaps it */
        return;
    }
    occl_eng_op_end(lane, op);
}

void occl_eng_op_end(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    struct occl_cqe outcome = {.status = op->status,
                               .about_rank = op->about_rank,
                               .detail = op->status == OCCL_E_TIMEOUT ? op->arrived_mask : 0};
    occl_eng_list_take(&op->ready_link);
    occl_eng_op_set_state(op, OCCL_ENG_OP_ENDED);
    retire_arrived(lane, op, &outcome);
    occl_eng_bump(&lane->counters.ops_failed, 1);
    occl_count64(&op->comm->job->errors, 1);
    if (op->arrived == op->members || op->comm->failed_status != OCCL_OK)
        occl_eng_op_free(lane, op);
}

void occl_eng_op_succeed(struct occl_eng_lane *lane, struct occl_eng_op *op, uint32_t preemptions) {
    struct occl_cqe outcome = {
        .status = OCCL_OK, .about_rank = OCCL_RANK_NONE, .preemptions = preemptions};
    occl_eng_op_set_state(op, OCCL_ENG_OP_ENDED);
    retire_arrived(lane, op, &outcome);
    occl_eng_bump(&lane->counters.ops_completed, 1);
    occl_count64(&op->comm->job->ops, 1);
    occl_eng_op_free(lane, op);
}

static uint64_t value_of(const struct occl_signature *sig, uint32_t field) {
    switch (field) {
    case OCCL_FIELD_KIND:
        return sig->kind;
    case OCCL_FIELD_DTYPE:
        return sig->dtype;
    case OCCL_FIELD_REDOP:
        return sig->redop;
    case OCCL_FIELD_ROOT:
        return sig->root;
    case OCCL_FIELD_COUNT:
        return sig->count;
    default:
        return sig->program_id;
    }
}

/* Each member hears of the first one that differs from itself, or of the one whose vector does. */
static void mismatch_of(struct occl_eng_op *op, uint32_t index, uint32_t vector_of,
                        struct occl_cqe *out_outcome) {
    const struct occl_signature *mine = &occl_eng_member_at(op, index)->signature;
    *out_outcome =
        (struct occl_cqe){.status = OCCL_E_MISMATCH, .about_rank = occl_eng_rank_of(op, index)};
    for (uint32_t i = 0; i < op->members; i++) {
        uint32_t field = occl_signature_differ(mine, &occl_eng_member_at(op, i)->signature);
        if (field != OCCL_FIELD_NONE) {
            out_outcome->field = field;
            out_outcome->detail = value_of(&occl_eng_member_at(op, i)->signature, field);
            out_outcome->about_rank = occl_eng_rank_of(op, i);
            return;
        }
    }
    if (vector_of != OCCL_RANK_NONE) {
        out_outcome->field = OCCL_FIELD_BLOCK;
        out_outcome->about_rank = vector_of;
    }
}

void occl_eng_op_mismatch(struct occl_eng_lane *lane, struct occl_eng_op *op, uint32_t vector_of) {
    occl_eng_op_set_state(op, OCCL_ENG_OP_ENDED);
    for (uint32_t i = 0; i < op->members; i++) {
        struct occl_cqe outcome;
        mismatch_of(op, i, vector_of, &outcome);
        retire(lane, op, i, &outcome);
    }
    occl_eng_bump(&lane->counters.ops_failed, 1);
    occl_count64(&op->comm->job->errors, 1);
    occl_eng_op_free(lane, op);
}

void occl_eng_flush(struct occl_eng_lane *lane) {
    while (!occl_eng_list_empty(&lane->dirty)) {
        struct occl_eng_session *session =
            OCCL_ENG_ENTRY(lane->dirty.next, struct occl_eng_session, dirty_link);
        occl_eng_list_take(&session->dirty_link);
        if (session->faulted)
            continue;
        occl_ring_publish(&session->cq);
        if (occl_cq_wake(&session->page->cq_bell, &session->page->cq_sleepers))
            occl_eng_bump(&lane->counters.system_calls, 1);
    }
}
