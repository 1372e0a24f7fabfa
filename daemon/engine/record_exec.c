/* SPDX-License-Identifier: Apache-2.0 */
/* EXECUTE: strands of LOCAL records, for members that do not wait in the library. The record lies
 * in a page that the job writes; everything is copied once, checked, and bounded by private
 * numbers.
 *
 * A lane is no member: it enters the record for each slice (occl_record_lane_enter), which keeps
 * the record from being used for another op until the lane has left. A preempted run is outside. */
#include <sched.h>

#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

/* The part of a line that is copied: all but the inlined payload. */
#define LINE_BYTES offsetof(struct occl_line, inlined)
_Static_assert(LINE_BYTES % 8 == 0, "copied word by word");

static uint32_t rank_of_line(struct occl_op_key key, uint32_t index) {
    if (key.peers == OCCL_PEERS_ALL)
        return index;
    return index == 0 ? key.peers >> 16 : key.peers & 0xffffu;
}

/* Wakes whoever sleeps on a record that was just decided. */
static void announce(struct occl_eng_lane *lane, struct occl_record *record) {
    if (occl_event_wake(&record->event, &record->sleepers, OCCL_WAKES_MAX))
        occl_eng_bump(&lane->counters.system_calls, 1);
}

static void abort_record(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                         struct occl_record *record, int status, uint32_t about_rank) {
    uint32_t now;
    occl_count64(&comm->job->errors, 1);
    if (occl_record_decide(record, OCCL_REC_LOCAL,
                           OCCL_REC_WORD(OCCL_REC_ABORTED, status, about_rank), &now))
        announce(lane, record);
}

void occl_eng_record_abort(struct occl_eng_lane *lane, struct occl_eng_run *run, int status,
                           uint32_t about_rank) {
    if (!occl_record_lane_enter(&run->comm->records, run->slot, run->print))
        return;
    abort_record(lane, run->comm, run->record, status, about_rank);
    occl_record_lane_leave(&run->comm->records, run->slot);
}

/* Copies line `index`; false when its member has not arrived in the run's op. */
static bool copy_line(const struct occl_eng_run *run, uint32_t index, struct occl_line *out_line) {
    const struct occl_line *shared = occl_line_at(run->record, index);
    if (!(occl_flag_bits_of(occl_observe64(&shared->flag), run->print) & OCCL_FLAG_READY))
        return false;
    occl_copy_out(out_line, shared, LINE_BYTES);
    OCCL_ENG_SETTLE(*out_line);
    return true;
}

/* The same for a line that must describe the op as line 0 did. */
static bool copy_equal_line(const struct occl_eng_run *run, uint32_t index,
                            struct occl_line *out_line) {
    if (!copy_line(run, index, out_line))
        return false;
    struct occl_op_key key = occl_line_key(out_line);
    struct occl_signature theirs = occl_line_signature(out_line);
    return key.peers == run->key.peers && key.tag == run->key.tag &&
           key.instance == run->key.instance &&
           occl_signature_differ(&run->signature, &theirs) == OCCL_FIELD_NONE;
}

/* Resolves the buffers of one line into the run. OCCL_E_FAULT: the lane cannot reach one. */
static int fill_line(struct occl_eng_run *run, struct occl_eng_comm *comm, uint32_t index,
                     const struct occl_line *line) {
    uint32_t rank = rank_of_line(run->key, index);
    struct occl_eng_sides sides;
    int status = occl_eng_resolve_sides(comm, rank, &run->signature, index, run->plan.member_count,
                                        &line->u.ref.src, &line->u.ref.dst, &line->vector, &sides);
    /* The line may have changed since the plan was made. */
    if (status == OCCL_OK && run->plan.vectors &&
        !occl_eng_vector_fits(run, &run->signature, index, run->plan.member_count, &sides))
        status = OCCL_E_INVALID;
    if (status != OCCL_OK)
        return OCCL_E_FAULT;
    occl_eng_run_fill(run, index, rank, &sides, line->factor);
    return OCCL_OK;
}

/* Copies of the members' vectors, for the plan. */
static bool take_vectors(struct occl_eng_run *run, const struct occl_eng_comm *comm,
                         uint32_t members) {
    struct occl_line line;
    struct occl_eng_sides sides;
    for (uint32_t i = 0; i < members; i++) {
        if (!copy_line(run, i, &line) ||
            occl_eng_resolve_sides(comm, rank_of_line(run->key, i), &run->signature, i, members,
                                   &line.u.ref.src, &line.u.ref.dst, &line.vector,
                                   &sides) != OCCL_OK ||
            occl_eng_run_vector(run, &run->signature, i, members, &sides) != OCCL_OK)
            return false;
    }
    return true;
}

static bool in_place(const struct occl_eng_run *run, uint32_t members) {
    struct occl_line line;
    for (uint32_t i = 0; i < members; i++)
        if (copy_line(run, i, &line) && occl_line_in_place(&line))
            return true;
    return false;
}

/* The key, signature and plan of the record, from its first line. False: no op to execute. */
static bool describe(struct occl_eng_run *run, const struct occl_eng_comm *comm) {
    struct occl_line line;
    uint32_t ranks = comm->ranks;
    uint64_t bytes;
    if (!copy_line(run, 0, &line))
        return false;
    run->key = occl_line_key(&line);
    run->signature = occl_line_signature(&line);
    struct occl_place place = occl_place_of(run->key);
    if (place.slot != run->slot || place.print != run->print)
        return false;
    if (occl_eng_check_signature(&run->signature, ranks, &bytes) != OCCL_OK)
        return false;
    bool pair = run->signature.kind == OCCL_OP_SEND || run->signature.kind == OCCL_OP_RECV;
    if (pair == (run->key.peers == OCCL_PEERS_ALL))
        return false;
    if (pair && ((run->key.peers >> 16) >= ranks || (run->key.peers & 0xffffu) >= ranks))
        return false;
    uint32_t members = pair ? 2 : ranks;
    bool vectors = occl_kind_traits(run->signature.kind)->flags & OCCL_KIND_VECTOR;
    if (vectors && !take_vectors(run, comm, members))
        return false;
    return occl_local_plan_make(&run->signature, members, in_place(run, members),
                                vectors ? &run->vectors : NULL, &run->plan) == OCCL_OK &&
           run->plan.strand_count > 0;
}

/* With the record entered. OCCL_OK: the run can be queued. OCCL_E_INVALID: nothing to execute.
 * OCCL_E_FAULT: a buffer that lanes cannot reach; the record is aborted. */
static int fill_record(struct occl_eng_lane *lane, struct occl_eng_run *run,
                       struct occl_eng_comm *comm) {
    if (!describe(run, comm))
        return OCCL_E_INVALID;
    occl_eng_run_begin(lane, run);
    int status = OCCL_OK;
    uint32_t about = OCCL_RANK_NONE;
    for (uint32_t i = 0; i < run->plan.member_count; i++) {
        struct occl_line line;
        if (!copy_equal_line(run, i, &line))
            return OCCL_E_INVALID;
        if (i == 0)
            run->first_ticks = line.submit_ticks;
        if (status == OCCL_OK) {
            status = fill_line(run, comm, i, &line);
            about = rank_of_line(run->key, i);
        }
    }
    if (status != OCCL_OK)
        abort_record(lane, comm, run->record, status, about);
    return status;
}

bool occl_eng_record_start(struct occl_eng_lane *lane, struct occl_eng_comm *comm, uint32_t slot,
                           uint64_t print, uint32_t op_class, uint64_t submit_ticks) {
    struct occl_eng_run *run = occl_eng_run_take(lane, comm, op_class);
    if (!run)
        return false;
    run->record = occl_record_at(&comm->records, slot);
    run->slot = slot;
    run->print =
        print; /* a later op of the slot, whose buffers lanes may not reach, is not meant */
    run->run_class = op_class;
    run->last_ticks = submit_ticks;
    int status = OCCL_E_INVALID;
    if (occl_record_lane_enter(&comm->records, slot, print)) {
        status = fill_record(lane, run, comm);
        occl_record_lane_leave(&comm->records, slot);
    }
    if (status != OCCL_OK) {
        occl_eng_bump(&lane->counters.ignored, 1);
        occl_eng_run_give_back(lane, run);
        return true;
    }
    comm->slot_run[slot] = run;
    occl_eng_run_queue(lane, run);
    return true;
}

static void want(struct occl_eng_lane *lane, struct occl_eng_comm *comm, uint32_t slot,
                 uint64_t print) {
    comm->wanted_print[slot] = print; /* the op of an earlier wish has left the slot */
    comm->wanted[slot / 64] |= 1ull << slot % 64;
    if (occl_eng_list_empty(&comm->wanted_link))
        occl_eng_list_append(&lane->wanted, &comm->wanted_link);
}

bool occl_eng_record_start_wanted(struct occl_eng_lane *lane, struct occl_eng_comm *comm) {
    bool left = false;
    for (uint32_t word = 0; word < OCCL_RECORDS / 64; word++) {
        uint64_t bits = comm->wanted[word];
        while (bits) {
            uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
            bits &= bits - 1;
            if (comm->slot_run[slot]) {
                left = true; /* of an earlier op; reaped once its last lane has let go */
                continue;
            }
            if (!occl_eng_record_start(lane, comm, slot, comm->wanted_print[slot],
                                       occl_eng_class_of(comm, 255), 0))
                return false;
            comm->wanted[word] &= ~(1ull << slot % 64);
        }
    }
    if (!left)
        occl_eng_list_take(&comm->wanted_link);
    return true;
}

void occl_eng_execute(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                      const struct occl_sqe *sqe) {
    struct occl_place place = occl_place_of(sqe->key);
    if (place.slot != sqe->slot || (sqe->priority > 3 && sqe->priority != 255)) {
        occl_eng_bump(&lane->counters.ignored, 1);
        return;
    }
    struct occl_eng_run *run = comm->slot_run[place.slot];
    if (run && run->print == place.print)
        return; /* several ranks may ask for the same record */
    if (run || !occl_eng_record_start(lane, comm, place.slot, place.print,
                                      occl_eng_class_of(comm, sqe->priority), sqe->submit_ticks))
        want(lane, comm, place.slot, place.print);
}

/* Executes the claimed strand; decides the record when it was the last one or faulted. */
static bool execute_strand(struct occl_eng_lane *lane, struct occl_eng_run *run, uint32_t index,
                           uint64_t *out_bytes) {
    uint32_t count = run->plan.strand_count, now;
    int status = occl_eng_slice(lane, run, index);
    if (status != OCCL_OK) {
        abort_record(lane, run->comm, run->record, status, occl_eng_run_fault_rank(run));
        return false;
    }
    *out_bytes = occl_local_strand_traffic(&run->plan, index);
    if (occl_add32(&run->record->strands_done, 1) + 1 != count)
        return true; /* the next claim tells whether any are left */
    if (occl_record_decide(run->record, OCCL_REC_LOCAL, OCCL_REC_WORD(OCCL_REC_DONE, 0, 0), &now)) {
        occl_count64(&run->job->ops, 1);
        occl_eng_bump(&lane->counters.ops_completed, 1);
        announce(lane, run->record);
    }
    return false;
}

bool occl_eng_record_slice(struct occl_eng_lane *lane, struct occl_eng_run *run,
                           uint64_t *out_bytes) {
    struct occl_record *record = run->record;
    uint32_t count = run->plan.strand_count;
    bool more = false;
    if (occl_record_lane_enter(&run->comm->records, run->slot, run->print)) {
        /* The private count bounds the work, whatever the shared one is made to say. */
        if (occl_add32(&run->claims, 1) < count) {
            uint32_t index = occl_record_claim_strand(record, count, (uint32_t)sched_getcpu());
            if (index < count)
                more = execute_strand(lane, run, index, out_bytes);
        }
        occl_record_lane_leave(&run->comm->records, run->slot);
    }
    if (!more)
        occl_eng_run_stop(run, OCCL_ENG_RUN_OVER);
    return more;
}
