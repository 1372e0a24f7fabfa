/* SPDX-License-Identifier: Apache-2.0 */
/* Moving an active op on: looks at its record (or the completion ring), does what this rank can do,
 * and finishes it once. Completion is tested before abort: what has been decided stays decided. */
#include "client_lib/client.h"
#include "client_lib/memory.h"
#include "client_lib/waiting.h"

/* Of what OCCL_DAEMON_LOST_BOUND_NS leaves: the loss was found out before. */
#define LOST_BOUND_NS (OCCL_DAEMON_LOST_BOUND_NS / 2u)

static void note_completion(struct client_op *op) {
    struct occl_rank_note *note = occl_note_at(&op->comm->m, op->comm->rank);
    if (op->key.tag == CLIENT_LIBRARY_TAG || op->withdrawn)
        return; /* no op of the application */
    if (op->status != OCCL_OK) {
        occl_count64(&note->errors, 1);
        return;
    }
    occl_note32(&note->last_key.peers, op->key.peers);
    occl_note32(&note->last_key.tag, op->key.tag);
    occl_note32(&note->last_key.instance, op->key.instance);
    occl_note32(&note->last_kind, op->sig.kind);
    occl_note64(&note->last_ticks, op->seen_ticks ? op->seen_ticks : occl_ticks(occl_lib.ticks));
    occl_count64(&note->ops_done, 1);
    occl_count64(&note->bytes_done,
                 op->send_bytes > op->recv_bytes ? op->send_bytes : op->recv_bytes);
}

/* This rank's ops after destroy or abort end with that status, whatever the peers were told. */
static int own_status(struct client_op *op, int status) {
    uint32_t ended = occl_peek32(&op->comm->ended);
    return ended && status != OCCL_OK ? -(int)ended : status;
}

void client_finish(struct client_op *op, int status, bool result_is_staged) {
    if (op->after_status < 0 && status == OCCL_E_ABORTED && op->about_rank == op->comm->rank)
        status = op->after_status; /* what the peers know as aborted by this rank */
    op->status = own_status(op, status);
    if (op->nodes) {
        client_held_forget(op);
        client_after_end(op);
    }
    if (op->announced)
        client_announce(op, false);
    if (op->path == CLIENT_PATH_NONE) { /* it went nowhere: alone, or its communicator has ended */
        if (op->status < 0)
            (void)client_explain(op);
    } else {
        if (client_refers(op)) {
            int copied = client_unrefer(op, result_is_staged && op->status == OCCL_OK);
            if (copied != OCCL_OK)
                op->status = own_status(op, copied);
        }
        note_completion(op);
        if (op->path == CLIENT_PATH_RECORD) {
            /* Texts are made from the record, so before it is left. */
            if (op->status < 0)
                (void)client_explain(op);
            if (!op->blocking)
                occl_note64(&occl_line_at(op->rec, op->line_index)->submit_ticks, 0);
            client_chunks_clean(op);
            client_leave(op);
        } else if (op->status < 0) {
            (void)client_explain(op);
        }
    }
    occl_publish32(&op->phase, CLIENT_OP_COMPLETE);
    if (!op->on_stack)
        client_after_done(op);
}

static bool deadline_passed(const struct client_op *op) {
    return op->deadline_ns && client_now_ns() >= op->deadline_ns;
}

/* The op cannot go on: 0, or the status and the rank it is about. */
static int obstacle(struct client_op *op, uint32_t *out_rank) {
    int status = client_comm_state(op->comm, out_rank);
    if (status == OCCL_OK && deadline_passed(op)) {
        *out_rank = op->comm->rank;
        status = OCCL_E_TIMEOUT;
    }
    return status;
}

/* True when the op has to end, or somebody has said why it does: the record was told so. */
static bool try_abort(struct client_op *op) {
    uint32_t rank;
    int status = obstacle(op, &rank);
    if (status == OCCL_OK && occl_rec_kind(op->look.state) != OCCL_REC_ABORTED)
        return false;
    if (occl_peek32(&op->comm->ended)) {
        /* Canceled is what it is here (own_status); to the peers, this rank has left. */
        rank = op->comm->rank;
        status = status == OCCL_E_CANCELED ? OCCL_E_PEER_FAILED : status;
    }
    (void)occl_record_abort(&op->comm->m, op->place.slot, op->place.print, status, rank);
    client_wake(op);
    return true;
}

uint32_t client_busy_rank(struct client_op *op) {
    uint64_t gone = occl_observe64(&occl_records_header(&op->comm->m)->gone_mask);
    uint32_t busy_rank = OCCL_RANK_NONE;
    if (occl_look32(&op->rec->lanes_busy) && !occl_peek32(&occl_lib.lost))
        busy_rank = op->comm->rank; /* a lane: it leaves within a slice */
    for (uint32_t i = 0; i < op->members; i++) {
        uint32_t rank = client_member_rank(op, i);
        if (occl_look32(&occl_line_at(op->rec, i)->busy) && !(gone >> (rank & 63) & 1) &&
            !client_rank_vanished(op->comm, rank % op->comm->ranks))
            busy_rank = rank;
    }
    return busy_rank;
}

/* Nobody else executes strands of this aborted op any more. A member stopped inside a strand is
 * waited for only so long; then the error names it and the buffers stay suspect. */
static bool settled(struct client_op *op) {
    uint32_t busy_rank = client_busy_rank(op);
    if (busy_rank == OCCL_RANK_NONE)
        return true;
    uint64_t now_ns = client_now_ns();
    if (op->aborted_since_ns == 0)
        op->aborted_since_ns = now_ns;
    uint64_t bound_ns = occl_lib.welcome.peer_dead_ns;
    if (occl_peek32(&op->comm->ended) && bound_ns > CLIENT_END_BOUND_NS)
        bound_ns = CLIENT_END_BOUND_NS; /* who destroys or aborts waits no longer than that */
    if (occl_peek32(&occl_lib.lost) && bound_ns > LOST_BOUND_NS)
        bound_ns = LOST_BOUND_NS;
    if (now_ns - op->aborted_since_ns < bound_ns)
        return false;
    op->may_write_rank = busy_rank;
    return true;
}

static void look(struct client_op *op) {
    occl_record_look(op->rec, op->place.print, op->members, &op->look);
}

/* All are there and the bytes are elsewhere: the state goes on. */
static bool advance_all(struct client_op *op, bool may_execute) {
    if (op->look.state == OCCL_REC_OPEN)
        (void)client_decide_all(op); /* the state tells */
    op->seen_ticks = 0;
    if (op->look.state == OCCL_REC_LOCAL && may_execute) {
        client_local_execute(op);
        op->look.state = occl_look32(&op->rec->state);
    }
    if (op->look.state == OCCL_REC_LOCAL && try_abort(op))
        op->look.state = occl_look32(&op->rec->state);
    if (op->look.state == OCCL_REC_DONE) {
        occl_note32(&op->comm->last_way, CLIENT_WAY_LOCAL);
        client_finish(op, OCCL_OK, true);
        return true;
    }
    return false;
}

static bool advance_record(struct client_op *op, bool may_execute) {
    look(op);
    if (op->look.outcome == OCCL_OUT_OPEN) {
        if (!try_abort(op))
            return false;
        look(op);
    }
    if (op->look.outcome == OCCL_OUT_DIRECT) {
        occl_note32(&op->comm->last_way, CLIENT_WAY_DIRECT);
        client_finish(op, client_direct_result(op), false);
        return true;
    }
    if (op->look.outcome == OCCL_OUT_ALL && advance_all(op, may_execute))
        return true;
    uint32_t state = op->look.state;
    bool aborted = op->look.outcome == OCCL_OUT_ABORTED ||
                   (op->look.outcome == OCCL_OUT_ALL && occl_rec_kind(state) == OCCL_REC_ABORTED);
    if (!aborted || !settled(op))
        return false;
    op->about_rank = occl_rec_rank(state);
    client_finish(op, occl_rec_status(state) ? occl_rec_status(state) : OCCL_E_ABORTED, false);
    return true;
}

#define SUBMIT_AGAIN_NS 1000000ull

/* The peers' submissions will wait in the daemon for this rank's: it has to hear that the op has
 * ended, if not now, then when it has room. Until then the op keeps its count, so that no later op
 * of the same claim meets in a record, where a peer would wait for this op alone. */
static bool leave_word(const struct client_op *op, uint32_t why) {
    struct client_op *word;
    if (client_watch_ready() != OCCL_OK ||
        client_op_new(op->comm, op->comm_generation, &word) != OCCL_OK)
        return false;
    if (op->vector && client_op_room(word, op) != OCCL_OK) {
        client_op_free(word);
        return false;
    }
    client_op_describe(word, op);
    word->after_count = 0;
    word->callback = NULL;
    word->send = word->recv = NULL;
    word->key = op->key;
    word->place = op->place;
    word->rec = op->rec;
    word->path = CLIENT_PATH_RING;
    word->about_rank = word->may_write_rank = OCCL_RANK_NONE;
    word->withdrawn = why;
    word->ring_done = 1;
    word->ring_status = OCCL_WOULD_BLOCK;
    occl_publish32(&word->phase, CLIENT_OP_ACTIVE);
    (void)client_watch(word); /* cannot fail: the watcher is there */
    client_op_unhold(word);
    return true;
}

/* The daemon's table of ops was full: nothing was taken in, and the op's slot is still closed for
 * it. */
static void submit_again(struct client_op *op) {
    uint64_t now_ns = client_now_ns();
    if (now_ns < op->again_ns || client_ring_reserve() != OCCL_OK)
        return;                              /* a later look tries again */
    op->again_ns = now_ns + SUBMIT_AGAIN_NS; /* else both sides would do nothing but ask */
    op->cancel_sent = false;
    op->ring_done = 0;
    if (client_ring_submit(op) == OCCL_OK)
        return;
    client_ring_unreserve();
    op->ring_done = 1;
}

/* Nothing was taken in. (An op that a peer could not bring in ends with the peer's rank.) */
static bool refused(const struct client_op *op) {
    return op->ring_status == OCCL_WOULD_BLOCK ||
           (op->ring_status == OCCL_E_QUOTA && op->about_rank == OCCL_RANK_NONE);
}

static bool advance_ring(struct client_op *op) {
    uint32_t rank;
    client_ring_reap();
    if (occl_observe32(&op->ring_done) && refused(op)) {
        int ended = obstacle(op, &rank);
        bool timed_out = ended == OCCL_E_TIMEOUT;
        if (ended == OCCL_OK && (op->withdrawn || op->ring_status == OCCL_WOULD_BLOCK)) {
            submit_again(op);
            return false;
        }
        if (ended) {
            op->ring_status = ended;
            op->about_rank = rank;
        }
        /* A communicator that has ended tells all its members; the others only this one. */
        if ((ended && !timed_out) ||
            !leave_word(op, timed_out ? OCCL_SQE_TIMED_OUT : OCCL_SQE_OVER_QUOTA))
            occl_claim_overflow_drop(occl_claim_of(&op->comm->m, op->place.slot));
    }
    if (occl_observe32(&op->ring_done)) {
        occl_note32(&op->comm->last_way, CLIENT_WAY_DAEMON);
        client_finish(op, op->ring_status, true);
        return true;
    }
    int status = obstacle(op, &rank);
    if (status == OCCL_OK)
        return false;
    /* The daemon answers a cancel, a failed communicator and everything else with the one
     * completion of this op; only a daemon that is gone answers nothing. */
    uint32_t lost = occl_peek32(&occl_lib.lost);
    if (lost) {
        client_ring_abandon(op);
        client_finish(op, -(int)lost, false);
        return true;
    }
    if (status == OCCL_E_TIMEOUT && !op->cancel_sent)
        client_ring_cancel(op);
    return false;
}

/* An op whose turn has not come only looks whether it has to end. */
static bool advance_held_back(struct client_op *op) {
    uint32_t rank;
    int status = obstacle(op, &rank);
    if (op->path == CLIENT_PATH_RECORD) {
        look(op);
        if (status == OCCL_OK && occl_rec_kind(op->look.state) != OCCL_REC_ABORTED)
            return false;
        op->after_status =
            status ? status : OCCL_E_ABORTED; /* no result, whoever comes meanwhile */
        return advance_record(op, false);
    }
    if (status == OCCL_OK)
        return false;
    op->after_status = status;
    if (status == OCCL_E_TIMEOUT) { /* the daemon has to hear of it */
        client_submit_now(op, OCCL_SQE_TIMED_OUT);
        return occl_observe32(&op->phase) != CLIENT_OP_ACTIVE;
    }
    if (op->path == CLIENT_PATH_RING) { /* the communicator's end tells everybody */
        client_ring_unreserve();
        occl_claim_overflow_drop(occl_claim_of(&op->comm->m, op->place.slot));
    }
    client_finish(op, status, false);
    return true;
}

bool client_advance(struct client_op *op, bool may_execute) {
    uint32_t phase = occl_observe32(&op->phase);
    if (phase != CLIENT_OP_ACTIVE)
        return true;
    /* (In a communicator that this rank has ended all ops end alike, also one whose turn comes
     * because the end has canceled those before it: advance_held_back.) */
    if (op->held_back && client_after_look(op, may_execute) && !occl_peek32(&op->comm->ended))
        client_submit_now(op, OCCL_SQE_CANCELED);
    if (occl_observe32(&op->phase) != CLIENT_OP_ACTIVE)
        return true;
    if (op->held_back)
        return advance_held_back(op);
    return op->path == CLIENT_PATH_RING ? advance_ring(op) : advance_record(op, may_execute);
}
