/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one run of an op: take the instance number, meet the peers in the record of that op, or
 * go through the ring when the record's slot is busy. */
#include <sched.h>
#include <string.h>

#include "client_lib/client.h"

static uint64_t deadline_of(const struct client_op *op) {
    int64_t timeout = op->timeout_ns;
    if (timeout == 0)
        timeout = (int64_t)op->comm->default_timeout_ns;
    return timeout > 0 ? client_now_ns() + (uint64_t)timeout : 0;
}

/* ---- payload chunks: 4 KiB pieces of the page that this rank owns ----
 * A chunk is in use until the record it belongs to has been left by all members, which shows in the
 * record's word: the rank that takes a chunk looks, nobody has to give it back. */

static bool chunk_is_free(struct client_comm *comm, const struct client_chunk *chunk) {
    if (!chunk->in_use)
        return true;
    uint64_t word = occl_observe64(&occl_record_at(&comm->m, chunk->slot)->word);
    return (word & (OCCL_WORD_CLAIMED | OCCL_WORD_PRINT_MASK)) != chunk->word;
}

/* comm->lock is held. Offset of a free chunk in the page, or 0. */
static uint64_t chunk_take(struct client_op *op) {
    struct client_comm *comm = op->comm;
    for (uint32_t i = 0; i < OCCL_PAYLOAD_CHUNKS; i++) {
        struct client_chunk *chunk = &comm->chunks[i];
        if (!chunk_is_free(comm, chunk))
            continue;
        chunk->in_use = 1;
        chunk->slot = op->place.slot;
        chunk->word = OCCL_WORD_CLAIMED | op->place.print;
        return comm->m.payload_offset + (uint64_t)comm->rank * comm->m.payload_stride +
               (uint64_t)i * comm->m.payload_chunk_bytes;
    }
    return 0;
}

/* ---- entering ---- */

/* Takes the instance number and enters the record; comm->lock is held. A slot that is busy gets a
 * moment first: in a stream of small ops it is a slow reader of an earlier op that holds it. */
static int enter(struct client_op *op, bool reserved, enum occl_enter *out_how) {
    struct client_comm *comm = op->comm;
    uint32_t instance;
    int status = client_tag_next(op, &instance);
    if (status)
        return status;
    op->key = (struct occl_op_key){op->peers, op->tag, instance};
    op->place = occl_place_of(op->key, comm->m.records);
    op->rec = occl_record_at(&comm->m, op->place.slot);
    *out_how = occl_record_enter(op->rec, op->place.print, false);
    /* The untagged stream walks the slots in order, so its slot is held by an earlier op of the
     * same stream, which is about to end; a tagged op's slot by anything. */
    uint32_t patience = op->tag ? OCCL_YIELDS_BEFORE_SLEEP : 4 * OCCL_YIELDS_BEFORE_SLEEP;
    for (uint32_t i = 0; *out_how == OCCL_ENTER_RING && i < patience; i++) {
        client_nap(i);
        *out_how = occl_record_enter(op->rec, op->place.print, false);
    }
    if (*out_how == OCCL_ENTER_RING && reserved)
        *out_how = occl_record_enter(op->rec, op->place.print, true);
    else if (*out_how == OCCL_ENTER_RING)
        status = OCCL_WOULD_BLOCK; /* the caller reserves ring room and comes again */
    if (*out_how == OCCL_ENTER_FULL)
        status = OCCL_WOULD_BLOCK; /* nothing was counted */
    if (status)
        client_tag_back(op, instance);
    return status;
}

/* ---- payload ---- */

static bool reads_send(const struct client_op *op) {
    return op->send && op->bytes > 0;
}

/* Largest payload that every rank computes for itself: the daemon's setting, the same for all. What
 * fits into a line is always direct. */
static uint64_t direct_max(void) {
    uint64_t most = occl_lib.welcome.direct_max_bytes;
    return most < OCCL_DIRECT_MAX_BYTES ? most : OCCL_DIRECT_MAX_BYTES;
}

/* Payload goes into the line or a chunk; larger ops, and those for which no chunk is free, say
 * where their buffers are. True: this rank's bytes are all in the page. */
static int fill_payload(struct client_op *op, struct occl_line *line, bool *out_in_page) {
    *out_in_page = true;
    if (op->bytes <= OCCL_TINY_BYTES) {
        if (reads_send(op))
            memcpy(line->u.tiny, op->send, op->bytes);
        return OCCL_OK;
    }
    if (op->bytes <= OCCL_INLINE_BYTES) {
        if (reads_send(op))
            memcpy(line->inlined, op->send, op->bytes);
        return OCCL_OK;
    }
    uint64_t chunk = 0;
    if (op->bytes <= direct_max() && reads_send(op)) {
        pthread_mutex_lock(&op->comm->lock);
        chunk = chunk_take(op);
        pthread_mutex_unlock(&op->comm->lock);
    }
    int status = client_refer(op, false);
    if (status)
        return status;
    if (chunk) {
        memcpy(op->comm->m.base + chunk, op->send, op->bytes);
        op->src = (struct occl_buffer_ref){OCCL_SPACE_PAYLOAD, 0, chunk};
    }
    line->u.ref.src = op->src;
    line->u.ref.dst = op->dst;
    *out_in_page = op->bytes <= direct_max() && (chunk || !reads_send(op));
    return OCCL_OK;
}

/* ---- deciding ---- */

static bool payload_in_page(struct client_op *op) {
    if (op->bytes <= OCCL_INLINE_BYTES)
        return true;
    if (op->bytes > direct_max())
        return false;
    for (uint32_t i = 0; i < op->members; i++) {
        uint32_t space = occl_line_at(op->rec, i)->u.ref.src.space;
        if (space != OCCL_SPACE_PAYLOAD && space != OCCL_SPACE_NONE)
            return false;
    }
    return true;
}

static void wake(struct client_op *op) {
    (void)occl_word_wake(&op->rec->state, &op->rec->sleepers, INT32_MAX);
}

/* Somebody must execute a LOCAL op: a blocked member does; else the daemon's lanes, where they
 * reach all buffers; else this process's watcher. */
static int hand_over(struct client_op *op) {
    if (op->blocking)
        return OCCL_OK;
    for (uint32_t i = 0; i < op->members; i++)
        if (occl_peek32(&occl_line_at(op->rec, i)->ready) == OCCL_LINE_BLOCKED)
            return OCCL_OK;
    if (client_local_lanes_can(op) && client_ring_execute(op) == OCCL_OK)
        return OCCL_OK;
    return client_watch(op);
}

/* Whose payload counts in a DIRECT record. A reduction needs everybody's: any index will do. */
static uint32_t source_of(const struct client_op *op) {
    if (op->sig.kind == OCCL_OP_BROADCAST)
        return op->sig.root;
    return 0; /* the sender's line, in a record of two */
}

/* This rank arrived last: the signatures are compared before any output byte is written. */
static void decide_all_arrived(struct client_op *op) {
    uint32_t other, now;
    enum occl_signature_field field =
        occl_record_mismatch(op->rec, op->members, op->line_index, &other);
    if (field != OCCL_FIELD_NONE) {
        uint32_t word = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_MISMATCH, other);
        if (occl_record_decide(op->rec, OCCL_REC_OPEN, word, &now))
            wake(op);
        return;
    }
    bool direct = payload_in_page(op);
    uint32_t word = direct ? OCCL_REC_WORD(OCCL_REC_DIRECT, 0, source_of(op)) : OCCL_REC_LOCAL;
    if (!occl_record_decide(op->rec, OCCL_REC_OPEN, word, &now))
        return;
    wake(op);
    if (!direct)
        (void)hand_over(op); /* without a watcher the op runs when somebody waits for it */
}

/* A root or sender whose payload is in the page has done its part: the op is decided and this
 * rank's result does not depend on the others any more. */
static void decide_source(struct client_op *op) {
    uint32_t now;
    uint32_t word = OCCL_REC_WORD(OCCL_REC_DIRECT, 0, op->line_index);
    if (occl_record_decide(op->rec, OCCL_REC_OPEN, word, &now))
        wake(op);
}

static bool is_source(const struct client_op *op) {
    return (op->sig.kind == OCCL_OP_BROADCAST && op->sig.root == op->comm->rank) ||
           op->sig.kind == OCCL_OP_SEND;
}

static int arrive(struct client_op *op) {
    struct occl_line *line = occl_line_at(op->rec, op->line_index);
    bool in_page;
    occl_line_fill(line, op->key, &op->sig);
    int status = fill_payload(op, line, &in_page);
    struct occl_rank_note *note = occl_note_at(&op->comm->m, op->comm->rank);
    uint32_t cpu = (uint32_t)sched_getcpu();
    if (occl_peek32(&note->cpu) != cpu)
        occl_note32(&note->cpu, cpu);
    if (!op->blocking)
        occl_note64(&line->submit_ticks, occl_ticks(occl_lib.ticks));
    if (status) { /* the peers must hear of it, before one of them takes this line for complete */
        uint32_t now;
        if (occl_record_decide(op->rec, OCCL_REC_OPEN,
                               OCCL_REC_WORD(OCCL_REC_ABORTED, status, op->comm->rank), &now))
            wake(op);
    }
    uint32_t arrived =
        occl_record_arrive(op->rec, line, op->blocking ? OCCL_LINE_BLOCKED : OCCL_LINE_ASYNC);
    if (status)
        return OCCL_OK;
    if (in_page && is_source(op))
        decide_source(op);
    else if (arrived == op->members &&
             occl_rec_kind(occl_observe32(&op->rec->state)) == OCCL_REC_OPEN)
        decide_all_arrived(op);
    return OCCL_OK;
}

static int submit_ring(struct client_op *op) {
    op->path = CLIENT_PATH_RING;
    int status = client_ring_submit(op);
    if (status) {
        client_unrefer(op, false);
        client_ring_unreserve();
        occl_record_overflow_drop(op->rec);
    }
    return status;
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
    client_nap(round);
    return OCCL_OK;
}

int client_submit(struct client_op *op) {
    struct client_comm *comm = op->comm;
    enum occl_enter how = OCCL_ENTER_RING;
    bool reserved = false;
    uint32_t round = 0;
    op->status = OCCL_PENDING;
    op->about_rank = OCCL_RANK_NONE;
    op->about_field = OCCL_FIELD_NONE;
    op->cancel_sent = 0;
    op->announced = false;
    op->ring_done = 0;
    op->aborted_since_ns = 0;
    op->may_write_rank = OCCL_RANK_NONE;
    op->deadline_ns = deadline_of(op);
    op->path = CLIENT_PATH_NONE;
    occl_note32(&op->phase, CLIENT_OP_ACTIVE);
    /* Nobody meets in a communicator that has ended, also if all ranks came at the same moment. */
    int ended = client_comm_state(comm, &op->about_rank);
    if (ended || op->members == 1) {
        if (!ended)
            client_single_result(op);
        client_finish(op, ended, false);
        return OCCL_OK;
    }
    op->about_rank = OCCL_RANK_NONE;
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        int status = enter(op, reserved, &how);
        pthread_mutex_unlock(&comm->lock);
        if (status == OCCL_OK)
            break;
        bool may_wait = !(op->flags & OCCL_OP_NO_WAIT_FOR_ROOM);
        if (status == OCCL_WOULD_BLOCK && !reserved) {
            status = client_ring_reserve();
            reserved = status == OCCL_OK;
            /* Before the instance number is taken: if there is no room for copies now, nothing has
             * been submitted, and the peers wait for another try. */
            if (reserved)
                status = client_refer(op, true);
        }
        if (status == OCCL_WOULD_BLOCK && may_wait)
            status = wait_for_room(op, round++);
        if (status) {
            if (reserved) {
                client_unrefer(op, false);
                client_ring_unreserve();
            }
            occl_note32(&op->phase, CLIENT_OP_INACTIVE);
            return status;
        }
    }
    if (how == OCCL_ENTER_RING) {
        occl_note32(&comm->last_path, 3);
        return submit_ring(op);
    }
    if (reserved) { /* the slot became free meanwhile */
        client_unrefer(op, false);
        client_ring_unreserve();
    }
    op->path = CLIENT_PATH_RECORD;
    return arrive(op);
}
