/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one run of an op: take the instance number, meet the peers in the record of that op, or
 * go through the ring when the record's slot is busy. */
#include <sched.h>
#include <string.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"
#include "client_lib/waiting.h"

static uint64_t deadline_of(const struct client_op *op) {
    int64_t timeout = op->timeout_ns;
    if (timeout == 0)
        timeout = (int64_t)op->comm->default_timeout_ns;
    return timeout > 0 ? client_now_ns() + (uint64_t)timeout : 0;
}

/* ---- entering ---- */

/* comm->lock is held. The first op of a run that this rank has in the record: those before it took
 * the ring, those behind it will follow it here. */
static void join_run(struct client_comm *comm, struct occl_place place) {
    uint32_t at = place.slot - OCCL_CLAIM_RUN_FIRST;
    struct client_run *run = &comm->runs[at / OCCL_RUN_OPS];
    if (occl_peek64(&run->print) == place.print && occl_peek32(&run->remaining) > 0)
        return;
    /* The print last: who finds it may leave at once, and must count down what is there. */
    occl_note32(&run->remaining, OCCL_RUN_OPS - at % OCCL_RUN_OPS);
    occl_publish64(&run->print, place.print);
}

/* The claim of the next run is a line that all ranks write. A rank whose op waits for its peers has
 * the time to take it now, instead of when it comes to the first op there. Not if somebody else of
 * this process is at it. */
static void join_ahead(struct client_op *op) {
    struct client_comm *comm = op->comm;
    uint32_t next = (op->key.instance | (OCCL_RUN_OPS - 1)) + 1;
    struct occl_place place = occl_place_of((struct occl_op_key){OCCL_PEERS_ALL, 0, next});
    if (pthread_mutex_trylock(&comm->lock))
        return;
    const struct client_run *run = &comm->runs[(place.slot - OCCL_CLAIM_RUN_FIRST) / OCCL_RUN_OPS];
    if ((int32_t)(next - occl_observe32(&comm->untagged_next)) >= 0 &&
        occl_peek32(&run->remaining) == 0 &&
        occl_claim_enter(occl_claim_of(&comm->m, place.slot), place.print, false) !=
            OCCL_ENTER_RING)
        join_run(comm, place);
    pthread_mutex_unlock(&comm->lock);
}

/* The next op of a run that this rank has joined: the claim stays ours until the rank has left all
 * later ops of the run, this one included. So its number is all that is to be taken, without the
 * lock. */
static bool enter_joined_run(struct client_op *op) {
    struct client_comm *comm = op->comm;
    if (op->tag != 0 || op->peers != OCCL_PEERS_ALL)
        return false;
    uint32_t instance = occl_observe32(&comm->untagged_next);
    op->key = (struct occl_op_key){op->peers, op->tag, instance};
    op->place = occl_place_of(op->key);
    const struct client_run *run =
        &comm->runs[(op->place.slot - OCCL_CLAIM_RUN_FIRST) / OCCL_RUN_OPS];
    if (occl_observe64(&run->print) != op->place.print || occl_observe32(&run->remaining) == 0)
        return false;
    op->rec = occl_record_at(&comm->m, op->place.slot);
    return occl_claim32(&comm->untagged_next, &instance, instance + 1);
}

/* later: leaving the claim of a whole run, a line that all ranks write, waits for this rank's next
 * op, which waits for its peers anyway (client_settle). */
static void leave_place(struct client_comm *comm, uint32_t slot, bool later) {
    uint32_t index = occl_claim_index(slot);
    bool of_run = slot >= OCCL_CLAIM_RUN_FIRST;
    if (of_run && occl_add32(&comm->runs[index - OCCL_CLAIM_RUN_FIRST].remaining, UINT32_MAX) != 1)
        return;
    if (of_run && later) {
        index = occl_swap32(&comm->claim_owed, index);
        if (index == 0)
            return;
    }
    occl_claim_leave(&comm->m, index);
}

/* In the flag. Who has not arrived, because the op was ended before or ends here before its turn,
 * says so, too: nothing but that is added to a flag that is set, and by nobody else. */
static void tell_left(struct occl_line *line, uint64_t print) {
    uint64_t flag = occl_observe64(&line->flag);
    if (!(occl_flag_bits_of(flag, print) & (OCCL_FLAG_READY | OCCL_FLAG_POISONED)) &&
        occl_claim64(&line->flag, &flag,
                     occl_flag_make(print, OCCL_FLAG_POISONED | OCCL_FLAG_LEFT)))
        return;
    occl_publish64(&line->flag, flag | OCCL_FLAG_LEFT);
}

void client_leave(struct client_op *op) {
    struct client_comm *comm = op->comm;
    bool told = client_in_stream(op) && client_chunks_done(op);
    /* Others ask only for ops with chunks. */
    if (!told && (op->payload_bytes > OCCL_INLINE_BYTES || op->vector))
        tell_left(occl_line_at(op->rec, op->line_index), op->place.print);
    if (op->owes_look)
        client_alone_owe(op);
    else
        leave_place(comm, op->place.slot, op->blocking);
}

void client_leave_place(struct client_comm *comm, uint32_t slot) {
    leave_place(comm, slot, false);
}

void client_settle(struct client_comm *comm) {
    client_alone_settle(comm);
    if (occl_peek32(&comm->claim_owed) == 0)
        return;
    uint32_t index = occl_swap32(&comm->claim_owed, 0);
    if (index)
        occl_claim_leave(&comm->m, index);
}

/* Takes the instance number and enters the record; comm->lock is held. OCCL_WOULD_BLOCK: the claim
 * is busy and nothing was taken. with_ring: then the op goes through the ring, where it has room.
 */
static int enter(struct client_op *op, bool with_ring, enum occl_enter *out_how) {
    struct client_comm *comm = op->comm;
    uint32_t instance;
    int status = client_tag_next(op, &instance);
    if (status)
        return status;
    op->key = (struct occl_op_key){op->peers, op->tag, instance};
    op->place = occl_place_of(op->key);
    op->rec = occl_record_at(&comm->m, op->place.slot);
    *out_how =
        occl_claim_enter(occl_claim_of(&comm->m, op->place.slot), op->place.print, with_ring);
    if (*out_how == OCCL_ENTER_FULL || (*out_how == OCCL_ENTER_RING && !with_ring)) {
        client_tag_back(op, instance);
        return OCCL_WOULD_BLOCK;
    }
    if (*out_how != OCCL_ENTER_RING && client_in_stream(op))
        join_run(comm, op->place);
    return OCCL_OK;
}

static int enter_locked(struct client_op *op, bool with_ring, enum occl_enter *out_how) {
    pthread_mutex_lock(&op->comm->lock);
    int status = enter(op, with_ring, out_how);
    pthread_mutex_unlock(&op->comm->lock);
    return status;
}

/* A claim that is busy gets a moment first. The untagged stream walks the slots in order, so its
 * slot is held by a slow reader of an earlier op of the same stream, who is about to leave; a
 * tagged op's slot by anything. */
static int enter_patiently(struct client_op *op, enum occl_enter *out_how) {
    uint32_t patience = op->tag ? OCCL_YIELDS_BEFORE_SLEEP : 4 * OCCL_YIELDS_BEFORE_SLEEP;
    int status = enter_locked(op, false, out_how);
    if (status == OCCL_WOULD_BLOCK)
        client_settle(op->comm); /* it may be this rank that has put off leaving */
    for (uint32_t i = 0; status == OCCL_WOULD_BLOCK && i < patience; i++) {
        client_nap(i);
        status = enter_locked(op, false, out_how);
    }
    return status;
}

/* ---- payload ---- */

static bool reads_send(const struct client_op *op) {
    return op->send && op->send_bytes > 0;
}

uint64_t client_direct_max(void) {
    uint64_t most = occl_lib.welcome.direct_max_bytes;
    return most < OCCL_DIRECT_MAX_BYTES ? most : OCCL_DIRECT_MAX_BYTES;
}

/* Payload goes into the line or a chunk; larger ops, and those for which no chunk is free, say
 * where their buffers are. True: this rank's bytes are all in the page. */
static int fill_payload(struct client_op *op, struct occl_line *line, bool *out_in_page) {
    *out_in_page = true;
    if (op->sig.redop == OCCL_RO_PREMULSUM)
        line->factor = op->factor;
    if (op->vector)
        return client_vector_publish(op, client_direct_max(), out_in_page);
    if (op->payload_bytes <= OCCL_TINY_BYTES) {
        if (reads_send(op))
            memcpy(line->u.tiny, op->send, op->send_bytes);
        return OCCL_OK;
    }
    if (op->payload_bytes <= OCCL_INLINE_BYTES) {
        if (reads_send(op))
            memcpy(line->inlined, op->send, op->send_bytes);
        return OCCL_OK;
    }
    bool fits = op->payload_bytes <= client_direct_max();
    uint64_t chunk = fits && reads_send(op) ? client_chunk_take(op) : 0;
    int status = chunk && client_refer_briefly(op) ? OCCL_OK : client_refer(op, !chunk, false);
    if (status)
        return status;
    if (chunk) {
        memcpy(op->comm->m.base + chunk, op->send, op->send_bytes);
        op->src = (struct occl_buffer_ref){OCCL_SPACE_PAYLOAD, 0, chunk};
    }
    line->u.ref.src = op->src;
    line->u.ref.dst = op->dst;
    *out_in_page = fits && (chunk || !reads_send(op));
    return OCCL_OK;
}

/* ---- deciding ---- */

void client_wake(struct client_op *op) {
    (void)occl_event_wake(&op->rec->event, &op->rec->sleepers, INT32_MAX);
}

/* Somebody must execute an op that became LOCAL with this rank's arrival: a blocked member does;
 * else the daemon's lanes, where they reach all buffers; else this process's watcher. (Where a
 * member that advances the op makes it LOCAL, it goes on to execute it.) */
static void hand_over(struct client_op *op) {
    if (op->blocking || op->look.blocked_mask)
        return;
    if (client_local_lanes_can(op) && client_ring_execute(op) == OCCL_OK)
        return;
    (void)client_watch(op); /* without a watcher the op runs when somebody waits for it */
}

/* Who has ended alone with a block that differs hears of it, too. */
static void tell_givers(struct client_op *op, const struct occl_local_vectors *vectors) {
    uint32_t sender, receiver;
    for (uint64_t mask = op->look.alone_mask; mask; mask &= mask - 1) {
        uint32_t member = (uint32_t)__builtin_ctzll(mask);
        if (client_vectors_differ(op, vectors, op->look.ready_mask, member, &sender, &receiver))
            client_tell_block(op, member, vectors, sender, receiver);
    }
}

bool client_decide_all(struct client_op *op) {
    uint32_t other, now;
    bool nothing = false;
    enum occl_signature_field field =
        occl_record_mismatch(op->rec, op->look.ready_mask, op->line_index, &other);
    uint32_t sender, receiver;
    const struct occl_local_vectors *vectors;
    int status = OCCL_OK;
    if (field == OCCL_FIELD_NONE && op->vector) {
        status = client_vectors_get(op, op->look.ready_mask, &vectors);
        if (status == OCCL_OK && client_vectors_differ(op, vectors, op->look.ready_mask,
                                                       OCCL_LOCAL_RANKS_MAX, &sender, &receiver)) {
            field = OCCL_FIELD_BLOCK;
            other = sender;
        } else if (status == OCCL_OK) {
            nothing = client_vectors_empty(op, vectors);
        }
    }
    uint32_t word = field == OCCL_FIELD_NONE ? OCCL_REC_LOCAL
                                             : OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_MISMATCH,
                                                             client_member_rank(op, other));
    if (status == OCCL_E_CANCELED) /* here (own_status); to the peers, this rank leaves */
        status = OCCL_E_PEER_FAILED;
    if (status)
        word = OCCL_REC_WORD(OCCL_REC_ABORTED, status, op->comm->rank);
    /* A member's session may have ended since this op was submitted, and its memory with it. */
    uint32_t state = occl_observe32(&occl_records_header(&op->comm->m)->comm_state);
    if (word == OCCL_REC_LOCAL && occl_rec_kind(state) != OCCL_COMM_LIVE)
        word = OCCL_REC_WORD(OCCL_REC_ABORTED,
                             occl_rec_status(state) ? occl_rec_status(state) : OCCL_E_PEER_FAILED,
                             occl_rec_rank(state));
    bool won = occl_record_decide(op->rec, OCCL_REC_OPEN, word, &now);
    /* No strand's end would tell. (If this rank dies here, its death ends the op.) */
    if (won && nothing && now == OCCL_REC_LOCAL)
        (void)occl_record_decide(op->rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now);
    op->look.state = now;
    if (won)
        client_wake(op);
    if (won && field == OCCL_FIELD_BLOCK)
        tell_givers(op, vectors);
    else if (won && field != OCCL_FIELD_NONE)
        client_tell_alone(op);
    return won && now == OCCL_REC_LOCAL;
}

/* A thread that goes on to wait for the op looks at the record itself; what the arrival means for
 * others must be seen to here. */
static void follow_up(struct client_op *op) {
    if (op->blocking && occl_look32(&op->rec->sleepers) == 0)
        return;
    occl_record_look(op->rec, op->place.print, op->members, &op->look);
    bool local = op->look.outcome == OCCL_OUT_ALL && op->look.state == OCCL_REC_OPEN &&
                 client_decide_all(op);
    if (local)
        hand_over(op);
    else if (op->look.outcome != OCCL_OUT_OPEN)
        client_wake(op);
}

/* For peers that give up their core when they wait: whether that would help us. */
static void note_core(const struct client_comm *comm) {
    if (comm->policy.yields == 0 || client_spins(comm))
        return;
    struct occl_rank_note *note = occl_note_at(&comm->m, comm->rank);
    uint32_t cpu = (uint32_t)sched_getcpu();
    if (occl_peek32(&note->cpu) != cpu)
        occl_note32(&note->cpu, cpu);
}

/* While this op waits, the line of the next one of the stream comes into this core's cache; its
 * peers have read it last. (With the next chunk, too, more is lost than won.) */
static void prefetch_next(const struct client_op *op) {
    uint32_t at = op->place.slot - OCCL_CLAIM_RUN_FIRST;
    uint32_t next = OCCL_CLAIM_RUN_FIRST + (at + 1) % (OCCL_RUNS * OCCL_RUN_OPS);
    occl_prefetch_write(occl_line_at(occl_record_at(&op->comm->m, next), op->line_index));
}

static void arrive(struct client_op *op) {
    struct occl_line *line = occl_line_at(op->rec, op->line_index);
    bool in_page;
    occl_line_fill(line, op->key, &op->sig);
    int status = fill_payload(op, line, &in_page);
    note_core(op->comm);
    if (!op->blocking)
        occl_note64(&line->submit_ticks, occl_ticks(occl_lib.ticks));
    if (status) { /* the peers must hear of it */
        (void)occl_record_abort(&op->comm->m, op->place.slot, op->place.print, status,
                                op->comm->rank);
        client_wake(op);
        return;
    }
    uint32_t alone = op->alone_bits;
    bool ends_alone = alone && in_page;
    uint32_t bits = (uint32_t)op->sig.selection_version << OCCL_FLAG_SELECTION_SHIFT | alone |
                    (op->blocking && !ends_alone ? OCCL_FLAG_BLOCKED : 0) |
                    (in_page ? OCCL_FLAG_IN_PAGE : 0) | (client_is_clean(op) ? OCCL_FLAG_CLEAN : 0);
    bool in_row = client_alone_in_row(op);
    bool arrived = occl_record_arrive(line, op->place.print, bits);
    if (client_in_stream(op)) {
        prefetch_next(op);
        occl_note32(&op->comm->alone_row, ends_alone);
    }
    if (arrived && ends_alone) {
        client_alone_finish(op, in_row); /* in a row, it looks back at the one before */
        if (in_row)
            return;
    } else if (arrived) {
        follow_up(op);
    }
    if (op->blocking) /* the moment noted for it when it completes at once, or soon (advance.c) */
        op->seen_ticks = occl_ticks(occl_lib.ticks);
    client_settle(op->comm);
    if (arrived && !alone && op->blocking && client_in_stream(op) &&
        op->key.instance % OCCL_RUN_OPS == OCCL_RUN_OPS / 2)
        join_ahead(op);
}

/* All completion credits are taken, or the slot's overflow count is at its limit: thousands of ops
 * of this process wait in the daemon. Either ends when some of them do; the slot may become free.
 */
static int wait_for_room(const struct client_op *op, uint32_t round) {
    struct client_comm *comm = op->comm;
    uint32_t rank;
    int status = client_comm_state(comm, &rank);
    if (status)
        return client_fail(status, "communicator %s: %s", comm->name, occl_status_text(status));
    if (op->deadline_ns && client_now_ns() >= op->deadline_ns)
        return client_fail(
            OCCL_E_TIMEOUT,
            "communicator %s: the deadline passed while the op waited for room among "
            "this process's ops in the daemon; nothing was submitted",
            comm->name);
    client_ring_reap();
    client_settle(comm); /* what another thread of this rank has put off since */
    client_nap(round);
    return OCCL_OK;
}

static void give_back_room(struct client_op *op) {
    (void)client_unrefer(op, false);
    client_ring_unreserve();
}

/* Before the instance number is taken: if there is no room for copies now, nothing has been
 * submitted, and the peers wait for another try. */
static int reserve_room(struct client_op *op) {
    int status = client_ring_reserve();
    if (status == OCCL_OK) {
        status = client_refer(op, true, true);
        if (status == OCCL_OK)
            status = client_vector_share(op);
        if (status)
            give_back_room(op);
    }
    return status;
}

static int submit_ring(struct client_op *op) {
    op->path = CLIENT_PATH_RING;
    occl_note32(&op->comm->last_way, CLIENT_WAY_DAEMON);
    int status = client_ring_submit(op);
    if (status) {
        give_back_room(op);
        occl_claim_overflow_drop(occl_claim_of(&op->comm->m, op->place.slot));
    }
    return status;
}

/* Through the record or, where its slot stays busy, through the ring. */
static int find_way(struct client_op *op) {
    enum occl_enter how = OCCL_ENTER_RING;
    bool reserved = false, may_wait = !(op->flags & OCCL_OP_NO_WAIT_FOR_ROOM);
    int status = enter_patiently(op, &how);
    for (uint32_t round = 0; status == OCCL_WOULD_BLOCK; round++) {
        int room = reserved ? OCCL_OK : reserve_room(op);
        reserved = room == OCCL_OK;
        status = reserved || room == OCCL_WOULD_BLOCK ? enter_locked(op, reserved, &how) : room;
        if (status == OCCL_WOULD_BLOCK && !may_wait)
            break;
        int ended = status == OCCL_WOULD_BLOCK ? wait_for_room(op, round) : OCCL_OK;
        status = ended ? ended : status;
    }
    if (status == OCCL_OK && how == OCCL_ENTER_RING) {
        op->path = CLIENT_PATH_RING;
        return op->held_back ? OCCL_OK : submit_ring(op);
    }
    if (reserved) /* it could not enter, or its slot became free meanwhile */
        give_back_room(op);
    op->path = CLIENT_PATH_RECORD;
    return status;
}

static void start_run(struct client_op *op) {
    const struct occl_buffer_ref nowhere = {OCCL_SPACE_NONE, 0, 0};
    op->key = (struct occl_op_key){op->peers, op->tag, 0};
    op->place = (struct occl_place){0, 0};
    op->rec = NULL;
    op->look = (struct occl_look){.outcome = OCCL_OUT_OPEN};
    op->src = op->dst = op->vector_ref = nowhere;
    op->src_region = op->dst_region = NULL;
    op->stage_in = op->stage_out = op->stage_vector = NULL;
    op->strand_count = 0;
    op->planned = op->brief = op->held_back = op->announced = op->owes_look = false;
    op->counted = op->cancel_sent = op->held_noted = op->executed = op->collected = false;
    op->nodes = NULL;
    op->after_pending = op->why_not = op->withdrawn = 0;
    op->after_status = op->failed_status = OCCL_OK;
    op->aborted_since_ns = op->seen_ticks = op->again_ns = 0;
    op->deadline_ns = deadline_of(op);
    op->path = CLIENT_PATH_NONE;
    op->about_rank = op->may_write_rank = OCCL_RANK_NONE;
    op->ring_slot = op->ring_done = 0;
    op->ring_status = OCCL_OK;
    op->about_field = OCCL_FIELD_NONE;
    op->status = OCCL_PENDING;
    op->ring_detail = 0;
    occl_note32(&op->phase, CLIENT_OP_ACTIVE);
}

/* A copy for the daemon was made with the call, before the data was there. */
static void copy_again(struct client_op *op) {
    if (!op->stage_in)
        return;
    void *to = op->stage_in->base;
    struct occl_copy_job job = {op->send_bytes, op->send, 1, 0, &to};
    occl_lib.movers->copy(&job);
}

void client_submit_now(struct client_op *op, uint32_t why_not) {
    bool failed = op->after_status < 0;
    client_held_forget(op);
    op->held_back = false;
    if (op->path == CLIENT_PATH_NONE) { /* alone in its communicator */
        if (!failed)
            client_single_result(op);
        client_finish(op, op->after_status, false);
    } else if (op->path == CLIENT_PATH_RECORD && failed) {
        (void)occl_record_abort(&op->comm->m, op->place.slot, op->place.print, OCCL_E_ABORTED,
                                op->comm->rank);
        client_wake(op);
    } else if (op->path == CLIENT_PATH_RECORD) {
        arrive(op);
    } else {
        copy_again(op);
        op->why_not = failed ? why_not : 0;
        int status = submit_ring(op);
        if (status) /* the daemon is gone, or about to be */
            client_finish(op, status, false);
    }
}

int client_submit(struct client_op *op) {
    if (occl_look32(&op->comm->suspended) && client_comm_suspended(op->comm))
        return client_fail(OCCL_E_USAGE, "communicator %s is suspended", op->comm->name);
    start_run(op);
    int status = op->after_count ? client_after_begin(op) : OCCL_OK;
    if (status) {
        occl_note32(&op->phase, CLIENT_OP_INACTIVE);
        return status;
    }
    /* Nobody meets in a communicator that has ended, also if all ranks came at the same moment. */
    int ended = client_comm_state(op->comm, &op->about_rank);
    if (ended || (op->members == 1 && !op->held_back)) {
        if (!ended)
            client_single_result(op);
        client_finish(op, ended, false);
        return OCCL_OK;
    }
    op->about_rank = OCCL_RANK_NONE;
    if (op->members == 1)
        return OCCL_OK;
    if (enter_joined_run(op))
        op->path = CLIENT_PATH_RECORD;
    else
        status = find_way(op);
    if (status) {
        client_after_end(op);
        occl_note32(&op->phase, CLIENT_OP_INACTIVE);
    } else if (op->held_back) {
        client_held_note(op);
    } else if (op->path == CLIENT_PATH_RECORD) {
        arrive(op);
    }
    return status;
}
