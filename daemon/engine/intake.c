/* SPDX-License-Identifier: Apache-2.0 */
/* Submission rings: a bounded number of entries of each session per round, copied out once. What
 * the entry says is judged by match.c and record_exec.c; a ring that cannot be right ends the
 * session. */
#include "daemon/engine/internal.h"

void occl_eng_session_fault(struct occl_eng_lane *lane, struct occl_eng_session *session,
                            int status, const char *reason) {
    if (session->faulted)
        return;
    session->faulted = true;
    occl_eng_bump(&lane->counters.faults, 1);
    OCCL_LOG_WARN(lane->engine->log, "engine", "session %llu quarantined: %s",
                  (unsigned long long)session->id, reason);
    lane->engine->events.session_fault(lane->engine->owner, session->id, status, reason);
}

/* The credit that reserves a completion entry until the client has consumed it. */
static bool take_credit(struct occl_eng_lane *lane, struct occl_eng_session *session) {
    uint32_t freed;
    if (occl_credits_take(&session->credits))
        return true;
    if (occl_ring_producer_refresh(&session->cq, &freed) != OCCL_OK) {
        occl_eng_session_fault(lane, session, OCCL_E_QUARANTINED, "completion ring: bad head");
        return false;
    }
    occl_credits_put(&session->credits, freed);
    if (occl_credits_take(&session->credits))
        return true;
    /* The library takes its own credit first, so only a broken client gets here. */
    occl_eng_bump(&lane->counters.ring_full, 1);
    occl_eng_session_fault(lane, session, OCCL_E_QUARANTINED,
                           "more ops outstanding than completion entries");
    return false;
}

static void take_entry(struct occl_eng_lane *lane, struct occl_eng_session *session,
                       const struct occl_sqe *sqe) {
    const struct occl_eng_map_entry *e;
    switch (sqe->verb) {
    case OCCL_SQE_SUBMIT:
        if (take_credit(lane, session))
            occl_eng_submit(lane, session, sqe);
        return;
    case OCCL_SQE_CANCEL:
        occl_eng_cancel(lane, session, sqe);
        return;
    case OCCL_SQE_EXECUTE:
        e = occl_eng_map_find(&session->comms, sqe->comm);
        if (!e || sqe->flags != 0)
            occl_eng_bump(&lane->counters.ignored, 1); /* nobody waits for an answer */
        else
            occl_eng_execute(lane, e->value, sqe);
        return;
    default:
        /* No completion can be right for a verb that does not exist. */
        occl_eng_session_fault(lane, session, OCCL_E_PROTOCOL, "submission ring: unknown verb");
    }
}

static bool take_batch(struct occl_eng_lane *lane, struct occl_eng_session *session) {
    uint32_t taken = 0;
    while (taken < OCCL_ENG_INTAKE_BATCH && !session->faulted) {
        struct occl_sqe sqe;
        int status = occl_sq_pop(&session->sq, &sqe);
        if (status == OCCL_WOULD_BLOCK)
            break;
        if (status != OCCL_OK) {
            occl_eng_session_fault(lane, session, status, "submission ring: bad tail");
            break;
        }
        OCCL_ENG_SETTLE(sqe);
        taken++;
        take_entry(lane, session, &sqe);
    }
    if (taken && !session->faulted)
        occl_ring_release(&session->sq);
    return taken != 0;
}

bool occl_eng_intake(struct occl_eng_lane *lane) {
    bool any = false;
    lane->at_once_bytes = 0;
    for (struct occl_eng_link *l = lane->sessions.next; l != &lane->sessions; l = l->next) {
        struct occl_eng_session *session = OCCL_ENG_ENTRY(l, struct occl_eng_session, lane_link);
        if (!session->faulted && take_batch(lane, session))
            any = true;
    }
    return any;
}

bool occl_eng_intake_pending(struct occl_eng_lane *lane) {
    for (struct occl_eng_link *l = lane->sessions.next; l != &lane->sessions; l = l->next) {
        struct occl_eng_session *session = OCCL_ENG_ENTRY(l, struct occl_eng_session, lane_link);
        if (!session->faulted && (session->sq.own != session->sq.peer_seen ||
                                  occl_ring_consumer_refresh(&session->sq) != OCCL_WOULD_BLOCK))
            return true;
    }
    return false;
}
