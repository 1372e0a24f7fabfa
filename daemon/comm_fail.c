/* SPDX-License-Identifier: Apache-2.0 */
/* How communicators end before their members leave, and how every undecided op of one gets its end.
 *
 * Order: state and dead mask in the page (whoever submits from now on learns it), events (so that
 * the text is there when a waiter wakes), records, ring ops. A member that looked at the page just
 * before may still claim a record afterwards; therefore the sweep is repeated by timer, with
 * growing gaps, while members are left.
 *
 * A record is ended as the clients end it (occl_record_abort), so an op that completed stays
 * complete. Everything read from the page is untrusted: it chooses which record is aborted
 * inside this communicator, nothing else. */
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"
#include "daemon/why.h"
#include "shm_ipc/wake.h"

#define SWEEP_GAP_FIRST_NS 1000000ull
#define SWEEP_GAP_MAX_NS 100000000ull
/* All sweeps together take at most this part of the loop, however many communicators are swept and
 * whatever their pages say: a page that is written all the time costs the loop 0.2 ms each time. */
#define SWEEP_LOOP_PART 16
/* Of one communicator in a sweep: a quarter of a millisecond of its lane. */
#define RING_OPS_LOOKED_AT 4096

static struct occl_daemon *daemon_of(const struct occl_comm *comm) {
    return comm->job->tenant->daemon;
}

void occl_comm_mark_gone(struct occl_comm *comm, uint32_t rank) {
    (void)occl_or64(&occl_records_header(&comm->records)->gone_mask, 1ull << rank);
}

void occl_comm_mark_dead(struct occl_comm *comm, uint32_t rank) {
    (void)occl_or64(&occl_records_header(&comm->records)->dead_mask, 1ull << rank);
}

/* ---- one record ---- */

static uint32_t peer_of_line(const struct occl_line *line) {
    struct occl_op_key key = occl_line_key(line);
    return line->kind == OCCL_OP_SEND ? key.peers & 0xffffu : key.peers >> 16;
}

/* A rank that has left and without whose arrival the op cannot be decided; OCCL_RANK_NONE. */
static uint32_t needed_and_left(const struct occl_comm *comm, uint32_t slot, uint64_t print) {
    struct occl_record *rec = occl_record_at(&comm->records, slot);
    uint32_t members = occl_claim_members(occl_claim_index(slot), comm->ranks);
    struct occl_look look;
    occl_record_look(rec, print, members, &look);
    /* With a reason in the state the op ends anyway, and not for want of the leaver. */
    if (look.outcome != OCCL_OUT_OPEN || look.state != OCCL_REC_OPEN || look.ready_mask == 0)
        return OCCL_RANK_NONE;
    uint32_t needed = OCCL_RANK_NONE;
    uint64_t missing = comm->left_mask & ~look.ready_mask;
    if (slot < OCCL_PAIRS) /* of two members one is here, and its line names the other */
        needed = peer_of_line(occl_line_at(rec, look.ready_mask & 1 ? 0 : 1));
    else if (missing)
        needed = (uint32_t)__builtin_ctzll(missing);
    if (needed >= comm->ranks || !(comm->left_mask >> needed & 1))
        return OCCL_RANK_NONE;
    /* If the claim is still this op's, it was so all the time, and it stays so: who has left cannot
     * come. Else the flags were another op's. */
    uint64_t word = occl_look64(&occl_claim_of(&comm->records, slot)->word);
    bool still = (word & OCCL_WORD_CLAIMED) && (word & OCCL_WORD_PRINT_MASK) == print;
    return still ? needed : OCCL_RANK_NONE;
}

/* True when the op was undecided and is aborted now. */
static bool abort_record(struct occl_comm *comm, uint32_t slot, uint64_t print, int status,
                         uint32_t about_rank) {
    struct occl_record *rec = occl_record_at(&comm->records, slot);
    bool ours = occl_record_abort(&comm->records, slot, print, status, about_rank);
    (void)occl_event_wake(&rec->event, &rec->sleepers, OCCL_WAKES_MAX);
    return ours;
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
    uint64_t uid = comm->uid;
    if (comm->ring_ended || !comm->left_mask)
        return;
    struct occl_engine_op_view *views = malloc(RING_OPS_LOOKED_AT * sizeof *views);
    uint32_t count = views ? occl_engine_job_ops(daemon->engine, comm->job->id, &uid,
                                                 RING_OPS_LOOKED_AT, views, RING_OPS_LOOKED_AT)
                           : 0;
    for (uint32_t i = 0; i < count && !comm->ring_ended; i++) {
        struct occl_op_view op;
        struct occl_held_view helds[OCCL_LOCAL_RANKS_MAX];
        if (!occl_opview_engine(daemon, &views[i], &op, helds) || op.comm != comm)
            continue;
        uint64_t needed = op.members_mask & ~op.arrived_mask & comm->left_mask;
        if (!needed)
            continue;
        uint32_t leaver = (uint32_t)__builtin_ctzll(needed);
        comm->ring_ended = true;
        tell_of_leaver(comm, leaver);
        occl_engine_comm_fail(daemon->engine, comm->uid, OCCL_E_PEER_FAILED, leaver);
    }
    free(views);
}

/* The op of one record; how many were aborted. */
static uint32_t sweep_record(struct occl_comm *comm, uint32_t slot, uint64_t print) {
    if (comm->state != OCCL_COMM_LIVE)
        return abort_record(comm, slot, print, comm->end_status, comm->about_rank);
    uint32_t leaver = needed_and_left(comm, slot, print);
    if (leaver == OCCL_RANK_NONE)
        return 0;
    tell_of_leaver(comm, leaver);
    return abort_record(comm, slot, print, OCCL_E_PEER_FAILED, leaver);
}

uint32_t occl_comm_sweep(struct occl_comm *comm) {
    uint32_t aborted = 0;
    if (comm->state == OCCL_COMM_LIVE)
        end_ring_ops(comm);
    for (uint32_t index = 0; index < OCCL_CLAIMS; index++) {
        uint64_t word = occl_observe64(&occl_claim_at(&comm->records, index)->word);
        if (!(word & OCCL_WORD_CLAIMED))
            continue;
        for (uint32_t i = 0; i < occl_claim_records(index); i++)
            aborted += sweep_record(comm, occl_claim_first(index) + i, word & OCCL_WORD_PRINT_MASK);
    }
    return aborted;
}

static void sweep_again(struct occl_timer *timer) {
    struct occl_comm *comm = timer->owner;
    struct occl_daemon *daemon = daemon_of(comm);
    struct occl_loop *loop = daemon->loop;
    uint64_t start_ns = occl_clock_now_ns(daemon->clock);
    if (occl_comm_sweep(comm))
        comm->sweep_gap_ns = SWEEP_GAP_FIRST_NS;
    else if (comm->sweep_gap_ns < SWEEP_GAP_MAX_NS)
        comm->sweep_gap_ns *= 2;
    uint64_t end_ns = occl_clock_now_ns(daemon->clock);
    uint64_t least_ns = (end_ns - start_ns) * SWEEP_LOOP_PART * daemon->comms_swept;
    uint64_t gap_ns = comm->sweep_gap_ns < least_ns ? least_ns : comm->sweep_gap_ns;
    if (occl_loop_timer_set(loop, timer, occl_loop_now_ns(loop) + gap_ns) != OCCL_OK)
        OCCL_LOG_ERROR(daemon_of(comm)->log, "comm", "communicator %llu: no memory for its sweep",
                       (unsigned long long)comm->uid);
}

void occl_comm_sweep_start(struct occl_comm *comm) {
    if (!comm->swept)
        daemon_of(comm)->comms_swept++;
    comm->swept = true;
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
