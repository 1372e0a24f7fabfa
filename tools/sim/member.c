/* SPDX-License-Identifier: Apache-2.0 */
/* A rank in an arrival record, as the client library is one: it claims or joins, brings its payload
 * where that fits, looks what the flags say, goes on from there, and leaves. */
#include <string.h>

#include "tools/sim/cluster.h"

#define DOORBELL_NS 500u
#define WAKE_NS 300u
/* Between two looks of a member whose aborted op is still executed by a lane. */
#define SETTLE_NS 5000u
#define DEADLINE_MAX_NS 60000u
#define DEADLINES_PERMILLE 150u

/* One op at one rank, with everything that the steps below need. */
struct member {
    struct sim_cluster *cluster;
    struct sim_rank *rank;
    struct sim_op *op;
    struct sim_request *request;
    struct occl_records *page;
    struct occl_place place;
    uint32_t members, line_index;
};

static struct member member_of(struct sim_cluster *cluster, struct sim_rank *rank,
                               uint32_t number) {
    struct member m = {.cluster = cluster, .rank = rank};
    m.op = &cluster->jobs[rank->job].ops[number];
    m.request = &rank->requests[number];
    m.page = &cluster->nodes[rank->node].pages[rank->job];
    m.place = occl_place_of(m.op->key);
    m.members = sim_op_members(cluster, m.op, rank->node);
    m.line_index = rank->local;
    if (m.op->key.peers != OCCL_PEERS_ALL)
        m.line_index = rank->rank == m.op->destination;
    return m;
}

static struct occl_line *line_of(const struct member *m) {
    return occl_line_at(m->request->record, m->line_index);
}

static uint64_t bytes_of(const struct member *m) {
    return m->op->signature.count * 8;
}

static bool is_source(const struct member *m) {
    return (m->op->signature.kind == OCCL_OP_BROADCAST && m->rank->rank == m->op->signature.root) ||
           (m->op->signature.kind == OCCL_OP_RECV && m->rank->rank == m->op->source);
}

/* ---- payload ---- */
static bool chunk_is_free(const struct member *m, const struct sim_chunk *chunk) {
    if (!chunk->in_use)
        return true;
    uint64_t word = occl_observe64(&occl_claim_of(m->page, chunk->slot)->word);
    if ((word & (OCCL_WORD_CLAIMED | OCCL_WORD_PRINT_MASK)) != (OCCL_WORD_CLAIMED | chunk->print))
        return true;
    struct occl_record *record = occl_record_at(m->page, chunk->slot);
    for (uint32_t i = 0; i < chunk->members; i++)
        if (!(occl_flag_bits_of(occl_observe64(&occl_line_at(record, i)->flag), chunk->print) &
              OCCL_FLAG_LEFT))
            return false;
    return true;
}

/* Offset of a free chunk in the page, or 0. */
static uint64_t chunk_take(const struct member *m) {
    for (uint32_t i = 0; i < OCCL_PAYLOAD_CHUNKS; i++) {
        struct sim_chunk *chunk = &m->rank->chunks[i];
        if (!chunk_is_free(m, chunk))
            continue;
        *chunk = (struct sim_chunk){m->place.print, m->place.slot, m->members, true};
        return m->page->payload_offset + (uint64_t)m->rank->local * m->page->payload_stride +
               (uint64_t)i * m->page->payload_chunk_bytes;
    }
    return 0;
}

/* True: what this rank contributes is in the page now. */
static bool fill_payload(const struct member *m) {
    struct occl_line *line = line_of(m);
    const int64_t *in = m->request->in;
    uint64_t bytes = bytes_of(m);
    bool alone = sim_op_nodes(m->cluster, m->op) == 1;
    if (!m->op->direct || !alone || bytes > OCCL_DIRECT_MAX_BYTES)
        return false;
    if (in == NULL || bytes == 0)
        return true;
    if (bytes <= OCCL_TINY_BYTES) {
        memcpy(line->u.tiny, in, bytes);
    } else if (bytes <= OCCL_INLINE_BYTES) {
        memcpy(line->inlined, in, bytes);
    } else {
        uint64_t chunk = chunk_take(m);
        line->u.ref.src = (struct occl_buffer_ref){OCCL_SPACE_PAYLOAD, 0, chunk};
        if (chunk == 0)
            return false;
        memcpy(m->page->base + chunk, in, bytes);
    }
    return true;
}

static void copy_payload(const struct member *m, uint32_t index, int64_t *out_values) {
    const struct occl_line *line = occl_line_at(m->request->record, index);
    uint64_t bytes = bytes_of(m);
    const void *from = bytes <= OCCL_TINY_BYTES     ? (const void *)line->u.tiny
                       : bytes <= OCCL_INLINE_BYTES ? (const void *)line->inlined
                                                    : m->page->base + line->u.ref.src.offset;
    memcpy(out_values, from, bytes);
}

/* This rank's result of a DIRECT op, from the payload of the source or of all. */
static void direct_result(const struct member *m, const struct occl_look *look) {
    int64_t values[OCCL_DIRECT_MAX_BYTES / 8], *out = m->request->out;
    uint64_t from = look->source_mask ? look->source_mask : look->ready_mask;
    uint32_t other;
    if (occl_record_mismatch(m->request->record, from & ~(1ull << m->line_index), m->line_index,
                             &other) != OCCL_FIELD_NONE)
        sim_broken(m->cluster, "matching: job %u op %u met another op", m->op->job, m->op->number);
    if (look->source_mask == 0 && m->op->signature.kind != OCCL_OP_ALL_REDUCE)
        sim_broken(m->cluster, "source: job %u op %u has none", m->op->job, m->op->number);
    if (out == NULL || bytes_of(m) == 0)
        return;
    memset(out, 0, bytes_of(m));
    for (; from; from &= from - 1) {
        copy_payload(m, (uint32_t)__builtin_ctzll(from), values);
        for (uint64_t e = 0; e < m->op->signature.count; e++)
            out[e] += values[e];
    }
}

/* ---- entering and leaving ---- */
/* The first op of a run that this rank has in the record: those before it took the ring. */
static void join_run(const struct member *m) {
    uint32_t at = m->place.slot - OCCL_CLAIM_RUN_FIRST;
    struct sim_run *run = &m->rank->runs[at / OCCL_RUN_OPS];
    if (run->joined && run->print == m->place.print)
        return;
    if (run->joined && run->remaining > 0)
        sim_broken(m->cluster, "run: job %u rank %u joins one before it has left the last",
                   m->rank->job, m->rank->rank);
    *run = (struct sim_run){m->place.print, OCCL_RUN_OPS - at % OCCL_RUN_OPS, true};
}

static void leave(const struct member *m) {
    struct occl_line *line = line_of(m);
    uint32_t index = occl_claim_index(m->place.slot);
    uint64_t flag = occl_peek64(&line->flag);
    if (bytes_of(m) > OCCL_INLINE_BYTES &&
        (occl_flag_bits_of(flag, m->place.print) & OCCL_FLAG_READY))
        occl_publish64(&line->flag, flag | OCCL_FLAG_LEFT);
    m->request->record = NULL;
    if (m->place.slot >= OCCL_CLAIM_RUN_FIRST &&
        --m->rank->runs[index - OCCL_CLAIM_RUN_FIRST].remaining > 0)
        return;
    occl_claim_leave(m->page, index);
}

/* ---- deciding ---- */
/* Whoever waits in the record looks again. */
static void wake(const struct member *m) {
    struct sim_job *job = &m->cluster->jobs[m->rank->job];
    for (uint32_t i = 0; i < m->members; i++) {
        uint32_t number = sim_op_member_rank(m->cluster, m->op, m->rank->node, i);
        if (job->ranks[number].requests[m->op->number].record != NULL)
            sim_schedule(m->cluster, m->cluster->now_ns + WAKE_NS, SIM_EVENT_DONE, m->rank->job,
                         number, m->op->number);
    }
}

static void look_at(const struct member *m, struct occl_look *out_look) {
    occl_record_look(m->request->record, m->place.print, m->members, out_look);
}

static void decide_all(const struct member *m, struct occl_look *look) {
    uint32_t other;
    if (occl_record_mismatch(m->request->record, look->ready_mask, m->line_index, &other) !=
        OCCL_FIELD_NONE)
        sim_broken(m->cluster, "matching: job %u op %u met another op", m->op->job, m->op->number);
    if (!occl_record_decide(m->request->record, OCCL_REC_OPEN, OCCL_REC_LOCAL, &look->state))
        return;
    wake(m);
    sim_schedule(m->cluster, m->cluster->now_ns + DOORBELL_NS, SIM_EVENT_EXECUTE, m->rank->job,
                 m->rank->node, m->op->number);
}

static int obstacle(const struct member *m, uint32_t *out_rank) {
    uint32_t state = occl_observe32(&occl_records_header(m->page)->comm_state);
    *out_rank = occl_rec_rank(state);
    if (occl_rec_kind(state) != OCCL_COMM_LIVE)
        return occl_rec_status(state);
    *out_rank = m->rank->rank;
    return m->cluster->now_ns >= m->request->deadline_ns ? OCCL_E_TIMEOUT : OCCL_OK;
}

/* As far as a member gets that is interrupted: the reason is written, some of the missing members
 * are poisoned, nobody is woken. False: the op has a reason already. */
static bool abort_in_part(const struct member *m) {
    struct seeded *s = &m->cluster->seeded;
    uint32_t now;
    if (!occl_record_decide(m->request->record, OCCL_REC_OPEN,
                            OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_TIMEOUT, m->rank->rank), &now))
        return false;
    m->op->aborted_ns = m->cluster->now_ns;
    for (uint32_t i = 0; i < m->members; i++) {
        uint64_t *place = &occl_line_at(m->request->record, i)->flag;
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
static bool try_abort(const struct member *m, const struct occl_look *look) {
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
static void advance_all(const struct member *m, struct occl_look *look) {
    if (look->state == OCCL_REC_OPEN)
        decide_all(m, look);
    if (look->state == OCCL_REC_LOCAL && try_abort(m, look))
        look->state = occl_look32(&m->request->record->state);
    if (look->state != OCCL_REC_DONE)
        return;
    leave(m);
    sim_rank_complete(m->cluster, m->rank, m->op->number, OCCL_OK);
}

static void end_aborted(const struct member *m, uint32_t state) {
    /* Its buffers are the application's again when no lane is inside any more. */
    if (occl_look32(&m->request->record->lanes_busy) != 0) {
        sim_schedule(m->cluster, m->cluster->now_ns + SETTLE_NS, SIM_EVENT_DONE, m->rank->job,
                     m->rank->rank, m->op->number);
        return;
    }
    if (occl_rec_kind(state) != OCCL_REC_ABORTED)
        sim_broken(m->cluster, "reason: job %u op %u ended without one", m->op->job, m->op->number);
    leave(m);
    sim_rank_complete(m->cluster, m->rank, m->op->number, occl_rec_status(state));
}

void sim_member_look(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t op) {
    struct member m = member_of(cluster, rank, op);
    struct occl_look look;
    if (rank->dead || m.request->record == NULL)
        return;
    look_at(&m, &look);
    if (look.outcome == OCCL_OUT_OPEN) {
        if (!try_abort(&m, &look))
            return;
        look_at(&m, &look);
    }
    switch (look.outcome) {
    case OCCL_OUT_DIRECT:
        direct_result(&m, &look);
        cluster->direct_ops++;
        leave(&m);
        sim_rank_complete(cluster, rank, op, OCCL_OK);
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

/* ---- submitting ---- */
/* False: through the ring, or nowhere. A pair whose other member is on another node has no record;
 * it goes through the ring and is not counted. */
static bool enter(const struct member *m) {
    bool half = m->op->key.peers != OCCL_PEERS_ALL && m->members == 1;
    struct occl_claim *claim = occl_claim_of(m->page, m->place.slot);
    switch (half ? OCCL_ENTER_RING : occl_claim_enter(claim, m->place.print, true)) {
    case OCCL_ENTER_RING:
        m->cluster->ring_ops += !half;
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
    m->request->record = occl_record_at(m->page, m->place.slot);
    if (m->place.slot >= OCCL_CLAIM_RUN_FIRST)
        join_run(m);
    return true;
}

/* What the arrival means for others must be seen to here. */
static void follow_up(const struct member *m) {
    struct occl_look look;
    look_at(m, &look);
    if (look.outcome == OCCL_OUT_ALL && look.state == OCCL_REC_OPEN)
        decide_all(m, &look);
    else if (look.outcome != OCCL_OUT_OPEN)
        wake(m);
}

static void set_deadline(const struct member *m) {
    struct seeded *s = &m->cluster->seeded;
    m->request->deadline_ns = UINT64_MAX;
    /* Between nodes it is the daemons that agree on the end of an op, not the record. */
    if (!(m->cluster->options.faults & SIM_FAULT_TIMEOUT) || sim_op_nodes(m->cluster, m->op) > 1 ||
        !seeded_permille(s, DEADLINES_PERMILLE))
        return;
    m->request->deadline_ns = m->cluster->now_ns + seeded_below(s, DEADLINE_MAX_NS);
    sim_schedule(m->cluster, m->request->deadline_ns, SIM_EVENT_DONE, m->rank->job, m->rank->rank,
                 m->op->number);
}

void sim_member_submit(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t number) {
    struct member m = member_of(cluster, rank, number);
    struct occl_signature signature = m.op->signature;
    uint32_t bits = 0;
    if (occl_rec_kind(occl_observe32(&occl_records_header(m.page)->comm_state)) != OCCL_COMM_LIVE) {
        m.request->refused = true;
        sim_rank_complete(cluster, rank, number, OCCL_E_PEER_FAILED);
        return;
    }
    if (!enter(&m))
        return;
    if (rank->dies == SIM_DIES_ENTERED) {
        sim_rank_kill(cluster, rank);
        return;
    }
    if (m.op->key.peers != OCCL_PEERS_ALL && rank->rank == m.op->source)
        signature.kind = OCCL_OP_SEND;
    occl_line_fill(line_of(&m), m.op->key, &signature);
    bits |= fill_payload(&m) ? OCCL_FLAG_IN_PAGE : 0;
    bits |= is_source(&m) ? OCCL_FLAG_SOURCE : 0;
    bool came = occl_record_arrive(line_of(&m), m.place.print, bits);
    if (rank->dies == SIM_DIES_ARRIVED) {
        sim_rank_kill(cluster, rank);
        return;
    }
    set_deadline(&m);
    if (came)
        follow_up(&m);
    sim_member_look(cluster, rank, number);
}

/* ---- dying ---- */
void sim_member_die_aborting(struct sim_cluster *cluster, struct sim_rank *rank) {
    for (uint32_t i = 0; i < rank->submitted_count; i++) {
        struct member m = member_of(cluster, rank, rank->submitted[i]);
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
