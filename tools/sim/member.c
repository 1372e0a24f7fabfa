/* SPDX-License-Identifier: Apache-2.0 */
/* A rank in an arrival record, as the client library is one: it claims or joins, brings its payload
 * where that fits, looks what the flags say, goes on from there, and leaves. Who needs nobody ends
 * at once (client_lib/alone.c). */
#include <string.h>

#include "tools/sim/member.h"

#define DOORBELL_NS 500u
#define WAKE_NS 300u
/* Between two looks of a member whose aborted op is still executed by a lane. */
#define SETTLE_NS 5000u
#define DEADLINE_MAX_NS 60000u
#define DEADLINES_PERMILLE 150u

static struct sim_member member_of(struct sim_cluster *cluster, struct sim_rank *rank,
                                   uint32_t number) {
    struct sim_member m = {.cluster = cluster, .rank = rank};
    m.op = &cluster->jobs[rank->job].ops[number];
    m.request = &rank->requests[number];
    m.page = &cluster->nodes[rank->node].pages[rank->job];
    m.place = occl_place_of(m.op->key);
    m.record = occl_record_at(m.page, m.place.slot);
    m.members = sim_op_members(cluster, m.op, rank->node);
    m.line_index = rank->local;
    if (m.op->key.peers != OCCL_PEERS_ALL)
        m.line_index = rank->rank == m.op->destination;
    const struct occl_signature *sig = &m.request->signature;
    const struct occl_kind_traits *t = m.traits = occl_kind_traits(sig->kind);
    bool root = occl_kind_is_root(t, sig->root, sim_shape_member(m.op, rank->rank));
    m.alone_bits = root ? t->flags & OCCL_KIND_SOURCE ? OCCL_FLAG_SOURCE : 0
                   : t->flags & OCCL_KIND_CONTRIBUTES ? OCCL_FLAG_GIVES
                                                      : 0;
    uint32_t brings = t->send_root > t->send_other ? t->send_root : t->send_other;
    m.payload_bytes = occl_extent_bytes(brings, m.members, sig->count * sizeof(int64_t));
    return m;
}

static bool in_stream(const struct sim_member *m) {
    return m->place.slot >= OCCL_CLAIM_RUN_FIRST;
}

static void complete(const struct sim_member *m, int status) {
    sim_rank_complete(m->cluster, m->rank, m->op->number, status);
}

/* ---- entering and leaving ---- */
/* The first op of a run that this rank has in the record: those before it took the ring. */
static void join_run(const struct sim_member *m) {
    uint32_t at = m->place.slot - OCCL_CLAIM_RUN_FIRST;
    struct sim_run *run = &m->rank->runs[at / OCCL_RUN_OPS];
    if (run->joined && run->print == m->place.print)
        return;
    if (run->joined && run->remaining > 0)
        sim_broken(m->cluster, "run: job %u rank %u joins one before it has left the last",
                   m->rank->job, m->rank->rank);
    *run = (struct sim_run){m->place.print, OCCL_RUN_OPS - at % OCCL_RUN_OPS, true};
}

static void leave_place(const struct sim_member *m) {
    uint32_t index = occl_claim_index(m->place.slot);
    if (in_stream(m) && --m->rank->runs[index - OCCL_CLAIM_RUN_FIRST].remaining > 0)
        return;
    occl_claim_leave(m->page, index);
}

/* It touches nobody's payload any more. */
static void say_left(const struct sim_member *m) {
    struct occl_line *line = sim_member_line(m, m->line_index);
    uint64_t flag = occl_peek64(&line->flag);
    if ((m->payload_bytes > OCCL_INLINE_BYTES || m->op->vectors != NULL) &&
        (occl_flag_bits_of(flag, m->place.print) & OCCL_FLAG_READY))
        occl_publish64(&line->flag, flag | OCCL_FLAG_LEFT);
    m->request->record = NULL;
}

static void leave(const struct sim_member *m) {
    say_left(m);
    leave_place(m);
}

/* ---- deciding ---- */
/* Whoever waits in the record looks again. */
static void wake(const struct sim_member *m) {
    struct sim_job *job = &m->cluster->jobs[m->rank->job];
    for (uint32_t i = 0; i < m->members; i++) {
        uint32_t number = sim_op_member_rank(m->cluster, m->op, m->rank->node, i);
        if (job->ranks[number].requests[m->op->number].record != NULL)
            sim_schedule(m->cluster, m->cluster->now_ns + WAKE_NS, SIM_EVENT_DONE, m->rank->job,
                         number, m->op->number);
    }
}

static void look_at(const struct sim_member *m, struct occl_look *out_look) {
    occl_record_look(m->record, m->place.print, m->members, out_look);
}

/* An op that nobody has spoiled meets only what is like it. */
static void expect_odd(const struct sim_member *m) {
    if (m->op->odd_rank == SIM_NOBODY)
        sim_broken(m->cluster, "matching: job %u op %u met another op", m->op->job, m->op->number);
}

/* LOCAL, DONE where there is nothing to execute, or ABORTED where descriptions differ. */
static void decide_all(const struct sim_member *m, struct occl_look *look) {
    uint32_t other, receiver, now;
    bool nothing = false;
    bool differ =
        occl_record_mismatch(m->record, look->ready_mask, m->line_index, &other) != OCCL_FIELD_NONE;
    if (!differ && m->op->vectors != NULL)
        differ = sim_payload_vectors_differ(m, look->ready_mask, OCCL_LOCAL_RANKS_MAX, &other,
                                            &receiver, &nothing);
    if (differ)
        expect_odd(m);
    uint32_t word =
        differ ? OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_MISMATCH, other) : OCCL_REC_LOCAL;
    if (!occl_record_decide(m->record, OCCL_REC_OPEN, word, &look->state))
        return;
    if (nothing && !differ && occl_record_decide(m->record, OCCL_REC_LOCAL, OCCL_REC_DONE, &now))
        look->state = now;
    wake(m);
    if (differ)
        sim_payload_tell(m, look);
    if (look->state == OCCL_REC_LOCAL)
        sim_schedule(m->cluster, m->cluster->now_ns + DOORBELL_NS, SIM_EVENT_EXECUTE, m->rank->job,
                     m->rank->node, m->op->number);
}

static int obstacle(const struct sim_member *m, uint32_t *out_rank) {
    uint32_t state = occl_observe32(&occl_records_header(m->page)->comm_state);
    *out_rank = occl_rec_rank(state);
    if (occl_rec_kind(state) != OCCL_COMM_LIVE)
        return occl_rec_status(state);
    *out_rank = m->rank->rank;
    return m->cluster->now_ns >= m->request->deadline_ns ? OCCL_E_TIMEOUT : OCCL_OK;
}

/* As far as a member gets that is interrupted: the reason is written, some of the missing members
 * are poisoned, nobody is woken. False: the op has a reason already. */
static bool abort_in_part(const struct sim_member *m) {
    struct seeded *s = &m->cluster->seeded;
    uint32_t now;
    if (!occl_record_decide(m->record, OCCL_REC_OPEN,
                            OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_TIMEOUT, m->rank->rank), &now))
        return false;
    m->op->aborted_ns = m->cluster->now_ns;
    for (uint32_t i = 0; i < m->members; i++) {
        uint64_t *place = &sim_member_line(m, i)->flag;
        uint64_t flag = occl_look64(place);
        if (occl_flag_bits_of(flag, m->place.print) == 0 && seeded_permille(s, 500))
            (void)occl_claim64(place, &flag, occl_flag_make(m->place.print, OCCL_FLAG_POISONED));
    }
    /* All look by chance, this rank too when it goes on. */
    for (uint32_t i = 0; i < m->members; i++)
        sim_schedule(m->cluster, m->cluster->now_ns + seeded_below(s, 10000), SIM_EVENT_DONE,
                     m->rank->job, sim_op_member_rank(m->cluster, m->op, m->rank->node, i),
                     m->op->number);
    return true;
}

/* True when the op has to end, or somebody has said why it does: the record was told so. */
static bool try_abort(const struct sim_member *m, const struct occl_look *look) {
    uint32_t about;
    int status = obstacle(m, &about);
    if (status == OCCL_OK && occl_rec_kind(look->state) != OCCL_REC_ABORTED)
        return false;
    if (status == OCCL_E_TIMEOUT && look->outcome == OCCL_OUT_OPEN && !m->request->interrupted &&
        seeded_permille(&m->cluster->seeded, 500)) {
        m->request->interrupted = true;
        if (abort_in_part(m))
            return false;
    }
    if (occl_record_abort(m->page, m->place.slot, m->place.print, status, about) &&
        m->op->aborted_ns == 0)
        m->op->aborted_ns = m->cluster->now_ns;
    wake(m);
    return true;
}

/* All are there and bytes lie outside the page. */
static void advance_all(const struct sim_member *m, struct occl_look *look) {
    if (look->state == OCCL_REC_OPEN)
        decide_all(m, look);
    if (look->state == OCCL_REC_LOCAL && try_abort(m, look))
        look->state = occl_look32(&m->record->state);
    if (look->state != OCCL_REC_DONE)
        return;
    m->cluster->local_kinds |= 1u << m->op->signature.kind;
    leave(m);
    complete(m, OCCL_OK);
}

/* A result from the page; the op is decided for all. */
static void end_direct(const struct sim_member *m, const struct occl_look *look) {
    int status = sim_payload_result(m, look);
    if (status == OCCL_E_MISMATCH)
        expect_odd(m);
    else
        m->cluster->direct_kinds |= 1u << m->op->signature.kind;
    m->cluster->direct_ops++;
    leave(m);
    complete(m, status);
}

static void end_aborted(const struct sim_member *m, uint32_t state) {
    /* Its buffers are the application's again when no lane is inside any more. */
    if (occl_look32(&m->record->lanes_busy) != 0) {
        sim_schedule(m->cluster, m->cluster->now_ns + SETTLE_NS, SIM_EVENT_DONE, m->rank->job,
                     m->rank->rank, m->op->number);
        return;
    }
    if (occl_rec_kind(state) != OCCL_REC_ABORTED)
        sim_broken(m->cluster, "reason: job %u op %u ended without one", m->op->job, m->op->number);
    leave(m);
    complete(m, occl_rec_status(state));
}

void sim_member_look(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t op) {
    struct occl_look look;
    if (rank->dead || rank->requests[op].record == NULL)
        return;
    struct sim_member m = member_of(cluster, rank, op);
    look_at(&m, &look);
    if (look.outcome == OCCL_OUT_OPEN) {
        if (!try_abort(&m, &look))
            return;
        look_at(&m, &look);
    }
    switch (look.outcome) {
    case OCCL_OUT_DIRECT:
        end_direct(&m, &look);
        return;
    case OCCL_OUT_ALL:
        advance_all(&m, &look);
        if (m.request->record != NULL && occl_rec_kind(look.state) == OCCL_REC_ABORTED)
            end_aborted(&m, look.state);
        return;
    case OCCL_OUT_ABORTED:
        end_aborted(&m, look.state);
        return;
    default:
        sim_broken(cluster, "abort: job %u op %u is open after it", m.op->job, op);
    }
}

/* ---- ending alone ---- */
void sim_member_settle(struct sim_cluster *cluster, struct sim_rank *rank) {
    struct occl_look look;
    uint32_t other;
    if (rank->owed == SIM_NOBODY)
        return;
    struct sim_member m = member_of(cluster, rank, rank->owed);
    rank->owed = SIM_NOBODY;
    look_at(&m, &look);
    if (occl_record_mismatch(m.record, look.alone_mask & ~(1ull << m.line_index), m.line_index,
                             &other) != OCCL_FIELD_NONE) {
        expect_odd(&m);
        m.request->told = true;
        sim_payload_tell(&m, &look);
    }
    leave_place(&m);
}

/* Its payload is in the page and it needs nobody. In a row of such ops it looks at its peers with
 * the next one, and stays in the record until then. */
static void end_alone(const struct sim_member *m, bool in_row) {
    uint64_t me = 1ull << m->line_index;
    struct occl_look look = {.outcome = OCCL_OUT_DIRECT,
                             .first_missing = m->members,
                             .ready_mask = me,
                             .alone_mask = me,
                             .source_mask = m->alone_bits & OCCL_FLAG_SOURCE ? me : 0};
    wake(m);
    m->request->alone = true;
    m->cluster->alone_ops++;
    if (!in_row) {
        look_at(m, &look);
        end_direct(m, &look);
        return;
    }
    int status = sim_payload_result(m, &look);
    if (status != OCCL_OK) /* its own vector differs from itself */
        expect_odd(m);
    say_left(m);
    sim_member_settle(m->cluster, m->rank);
    m->rank->owed = m->op->number;
    complete(m, status);
}

/* ---- submitting ---- */
/* False: through the ring, or nowhere. A pair whose other member is on another node has no record;
 * it goes through the ring and is not counted. */
static bool enter(const struct sim_member *m) {
    bool half = m->op->key.peers != OCCL_PEERS_ALL && m->members == 1;
    struct occl_claim *claim = occl_claim_of(m->page, m->place.slot);
    switch (half ? OCCL_ENTER_RING : occl_claim_enter(claim, m->place.print, true)) {
    case OCCL_ENTER_RING:
        m->cluster->ring_ops += !half;
        m->request->ring = true;
        sim_schedule(m->cluster, m->cluster->now_ns + DOORBELL_NS, SIM_EVENT_RING, m->rank->job,
                     m->rank->rank, m->op->number);
        return false;
    case OCCL_ENTER_FULL:
        sim_broken(m->cluster, "overflow counter is full: job %u op %u", m->rank->job,
                   m->op->number);
        return false;
    default:
        break;
    }
    m->request->record = m->record;
    if (in_stream(m))
        join_run(m);
    return true;
}

/* What the arrival means for others must be seen to here. */
static void follow_up(const struct sim_member *m) {
    struct occl_look look;
    look_at(m, &look);
    if (look.outcome == OCCL_OUT_ALL && look.state == OCCL_REC_OPEN)
        decide_all(m, &look);
    else if (look.outcome != OCCL_OUT_OPEN)
        wake(m);
}

static void set_deadline(const struct sim_member *m) {
    struct seeded *s = &m->cluster->seeded;
    m->request->deadline_ns = UINT64_MAX;
    /* Between nodes it is the daemons that agree on the end of an op, not the record. */
    if (!(m->cluster->options.faults & SIM_FAULT_TIMEOUT) || sim_op_nodes(m->cluster, m->op) > 1 ||
        !seeded_permille(s, DEADLINES_PERMILLE))
        return;
    m->request->deadline_ns = m->cluster->now_ns + seeded_below(s, DEADLINE_MAX_NS);
    sim_schedule(m->cluster, m->request->deadline_ns + (m->request->ring ? DOORBELL_NS : 0),
                 m->request->ring ? SIM_EVENT_CANCEL : SIM_EVENT_DONE, m->rank->job, m->rank->rank,
                 m->op->number);
}

static void arrive(const struct sim_member *m) {
    struct sim_rank *rank = m->rank;
    occl_line_fill(sim_member_line(m, m->line_index), m->op->key, &m->request->signature);
    bool in_page = sim_payload_publish(m), ends_alone = m->alone_bits && in_page;
    bool in_row = ends_alone && in_stream(m) && rank->alone_row;
    bool came = occl_record_arrive(sim_member_line(m, m->line_index), m->place.print,
                                   m->alone_bits | (in_page ? OCCL_FLAG_IN_PAGE : 0));
    if (rank->dies == SIM_DIES_ARRIVED) {
        sim_rank_kill(m->cluster, rank);
        return;
    }
    if (in_stream(m))
        rank->alone_row = ends_alone;
    if (came && ends_alone) {
        end_alone(m, in_row);
        if (!in_row)
            sim_member_settle(m->cluster, rank);
        return;
    }
    set_deadline(m);
    if (came)
        follow_up(m);
    sim_member_settle(m->cluster, rank);
    sim_member_look(m->cluster, rank, m->op->number);
}

void sim_member_submit(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t number) {
    struct sim_member m = member_of(cluster, rank, number);
    if (occl_rec_kind(occl_observe32(&occl_records_header(m.page)->comm_state)) != OCCL_COMM_LIVE) {
        m.request->refused = true;
        sim_rank_complete(cluster, rank, number, OCCL_E_PEER_FAILED);
        return;
    }
    if (!enter(&m)) {
        if (m.request->ring)
            set_deadline(&m);
        return;
    }
    if (rank->dies == SIM_DIES_ENTERED)
        sim_rank_kill(cluster, rank);
    else
        arrive(&m);
}

/* ---- dying ---- */
void sim_member_die_aborting(struct sim_cluster *cluster, struct sim_rank *rank) {
    for (uint32_t i = 0; i < rank->submitted_count; i++) {
        struct sim_member m = member_of(cluster, rank, rank->submitted[i]);
        struct occl_look look;
        if (m.request->record == NULL)
            continue;
        look_at(&m, &look);
        if (look.outcome == OCCL_OUT_OPEN) {
            (void)abort_in_part(&m);
            break;
        }
    }
    sim_rank_kill(cluster, rank);
}
