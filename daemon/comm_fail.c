/* SPDX-License-Identifier: Apache-2.0 */
/* How communicators end before their members leave, and how every undecided op of one gets its end.
 *
 * Order: state and dead mask in the page (whoever submits from now on learns it), events (so that
 * the text is there when a waiter wakes), records, ring ops. A member that looked at the page just
 * before may still claim a record afterwards; therefore the sweep is repeated by timer, with
 * growing gaps, while members are left.
 *
 * A record is decided by one compare-and-swap, here as in the clients, so an op that completed
 * stays complete. Everything read from the page is untrusted: it chooses which record is aborted
 * inside this communicator, nothing else. */
#include <string.h>

#include "daemon/occld.h"
#include "daemon/why.h"
#include "shm_ipc/wake.h"

#define SWEEP_GAP_FIRST_NS 1000000ull
#define SWEEP_GAP_MAX_NS 100000000ull
/* OPEN may become LOCAL between two looks, and then nothing but an end. */
#define DECIDE_TRIES 3

static struct occl_daemon *daemon_of(const struct occl_comm *comm) {
    return comm->job->tenant->daemon;
}

void occl_comm_mark_dead(struct occl_comm *comm, uint32_t rank) {
    (void)occl_or64(&occl_records_header(&comm->records)->dead_mask, 1ull << rank);
}

/* ---- one record ---- */

static bool is_point_to_point(uint64_t word) {
    return (word & OCCL_WORD_CLAIMED) && (word >> 47 & 1);
}

/* Which of two members a line of a point-to-point record stands for. */
static bool pair_rank(struct occl_line *line, uint32_t *out_rank, uint32_t *out_peer) {
    if (!occl_observe32(&line->ready))
        return false;
    uint32_t peers = occl_peek32(&line->peers);
    bool sends = line->kind == OCCL_OP_SEND;
    *out_rank = sends ? peers >> 16 : peers & 0xffffu;
    *out_peer = sends ? peers & 0xffffu : peers >> 16;
    return true;
}

/* A rank that has left and without whose arrival the record cannot be decided; OCCL_RANK_NONE. */
static uint32_t needed_and_left(const struct occl_comm *comm, struct occl_record *rec,
                                uint64_t word) {
    if (!is_point_to_point(word)) {
        for (uint32_t rank = 0; rank < comm->ranks; rank++)
            if ((comm->left_mask >> rank & 1) && !occl_observe32(&occl_line_at(rec, rank)->ready))
                return rank;
        return OCCL_RANK_NONE;
    }
    uint32_t here[2];
    uint32_t peers[2];
    bool ready[2] = {false, false};
    for (uint32_t i = 0; i < 2 && i < comm->ranks; i++)
        ready[i] = pair_rank(occl_line_at(rec, i), &here[i], &peers[i]);
    if (ready[0] == ready[1])
        return OCCL_RANK_NONE;
    uint32_t peer = ready[0] ? peers[0] : peers[1];
    return peer < comm->ranks && (comm->left_mask >> peer & 1) ? peer : OCCL_RANK_NONE;
}

/* True when the record was undecided and is aborted now. */
static bool abort_record(struct occl_record *rec, int status, uint32_t about_rank) {
    uint32_t now = occl_observe32(&rec->state);
    for (int i = 0; i < DECIDE_TRIES; i++) {
        uint32_t kind = occl_rec_kind(now);
        if (kind != OCCL_REC_OPEN && kind != OCCL_REC_LOCAL)
            return false;
        if (occl_record_decide(rec, now, OCCL_REC_WORD(OCCL_REC_ABORTED, status, about_rank),
                               &now)) {
            (void)occl_word_wake(&rec->state, &rec->sleepers, OCCL_WAKES_MAX);
            return true;
        }
    }
    return false;
}

/* ---- all records ---- */

/* The first op that ends for want of a rank that has left: the text tells the others who it was. */
static void tell_of_leaver(struct occl_comm *comm, uint32_t leaver) {
    const struct occl_seat *gone = &comm->seats[leaver];
    char text[OCCL_DETAIL_BYTES];
    if (comm->left_told_mask >> leaver & 1)
        return;
    comm->left_told_mask |= 1ull << leaver;
    (void)snprintf(text, sizeof text, "communicator %s: rank %u (host %s, pid %u) %s", comm->name,
                   leaver, gone->who.host, gone->who.pid, gone->cause);
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_seat *seat = &comm->seats[rank];
        if (seat->session)
            occl_session_event(seat->session, OCCL_EVENT_COMM, seat->number, leaver, gone->who.pid,
                               OCCL_E_PEER_FAILED, text);
    }
    occl_why_member_left(comm, leaver);
}

/* Ring ops of the others go on. One that needs a rank which has left can never complete, and the
 * engine ends the ring ops of a communicator only together: so the first such op ends them all. */
static void end_ring_ops(struct occl_comm *comm) {
    struct occl_daemon *daemon = daemon_of(comm);
    struct occl_op_list list = {NULL, 0, 0, false};
    if (comm->ring_ended || !comm->left_mask)
        return;
    occl_opview_scan_engine(daemon, &list);
    for (uint32_t i = 0; i < list.count && !comm->ring_ended; i++) {
        const struct occl_op_view *op = &list.ops[i];
        uint64_t needed = op->members_mask & ~op->arrived_mask & comm->left_mask;
        if (op->comm != comm || !needed)
            continue;
        uint32_t leaver = (uint32_t)__builtin_ctzll(needed);
        comm->ring_ended = true;
        tell_of_leaver(comm, leaver);
        occl_engine_comm_fail(daemon->engine, comm->uid, OCCL_E_PEER_FAILED, leaver);
    }
    occl_opview_free(&list);
}

uint32_t occl_comm_sweep(struct occl_comm *comm) {
    uint32_t aborted = 0;
    bool ended = comm->state != OCCL_COMM_LIVE;
    if (!ended)
        end_ring_ops(comm);
    for (uint32_t slot = 0; slot < comm->records.records; slot++) {
        struct occl_record *rec = occl_record_at(&comm->records, slot);
        uint64_t word = occl_observe64(&rec->word);
        if (!(word & OCCL_WORD_CLAIMED))
            continue;
        uint32_t about = ended ? comm->about_rank : needed_and_left(comm, rec, word);
        if (!ended && about == OCCL_RANK_NONE)
            continue;
        /* A LOCAL record has all its members; one that has left waits for nothing of it. */
        if (!ended && occl_rec_kind(occl_observe32(&rec->state)) != OCCL_REC_OPEN)
            continue;
        if (!ended)
            tell_of_leaver(comm, about);
        if (abort_record(rec, ended ? comm->end_status : OCCL_E_PEER_FAILED, about))
            aborted++;
    }
    return aborted;
}

static void sweep_again(struct occl_timer *timer) {
    struct occl_comm *comm = timer->owner;
    struct occl_loop *loop = daemon_of(comm)->loop;
    if (occl_comm_sweep(comm))
        comm->sweep_gap_ns = SWEEP_GAP_FIRST_NS;
    else if (comm->sweep_gap_ns < SWEEP_GAP_MAX_NS)
        comm->sweep_gap_ns *= 2;
    if (occl_loop_timer_set(loop, timer, occl_loop_now_ns(loop) + comm->sweep_gap_ns) != OCCL_OK)
        OCCL_LOG_ERROR(daemon_of(comm)->log, "comm", "communicator %llu: no memory for its sweep",
                       (unsigned long long)comm->uid);
}

void occl_comm_sweep_start(struct occl_comm *comm) {
    comm->sweep_gap_ns = SWEEP_GAP_FIRST_NS;
    comm->sweep_timer.fired = sweep_again;
    comm->sweep_timer.owner = comm;
    sweep_again(&comm->sweep_timer);
}

/* ---- the end ---- */

static void tell_members(struct occl_comm *comm) {
    uint32_t pid = comm->about_rank < comm->ranks ? comm->seats[comm->about_rank].who.pid : 0;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_seat *seat = &comm->seats[rank];
        if (seat->session)
            occl_session_event(seat->session, OCCL_EVENT_COMM, seat->number, comm->about_rank, pid,
                               comm->end_status, comm->end_text);
    }
}

void occl_comm_end(struct occl_comm *comm, enum occl_comm_state state, int status,
                   uint32_t about_rank, const char *text) {
    struct occl_daemon *daemon = daemon_of(comm);
    if (comm->state != OCCL_COMM_LIVE)
        return;
    comm->state = state;
    comm->end_status = status;
    comm->about_rank = about_rank;
    comm->ended_ns = occl_loop_now_ns(daemon->loop);
    (void)snprintf(comm->end_text, sizeof comm->end_text, "%s", text);
    /* Members may set the word too; ours is the one that the daemon's answers repeat. */
    occl_publish32(&occl_records_header(&comm->records)->comm_state,
                   OCCL_REC_WORD(state, status, about_rank));
    tell_members(comm);
    (void)occl_comm_sweep(comm);
    occl_engine_comm_fail(daemon->engine, comm->uid, status, about_rank);
    occl_split_fail_all(comm, status, text);
    comm->job->endings_total++;
    comm->job->last_ending_ns = comm->ended_ns;
    occl_why_comm_ended(comm);
    OCCL_LOG_INFO(daemon->log, "comm", "job %s %s", comm->job->name, text);
    if (comm->seats_taken)
        occl_comm_sweep_start(comm);
}

void occl_comm_end_all(struct occl_daemon *daemon) {
    struct occl_comm *comm;
    struct occl_comm *next;
    HASH_ITER (in_daemon, daemon->comms, comm, next) {
        occl_comm_end(comm, OCCL_COMM_ABORTED, OCCL_E_SHUTTING_DOWN, OCCL_RANK_NONE,
                      "the daemon has shut down");
    }
}
