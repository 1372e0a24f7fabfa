/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a process: it enters the claim of the op's record as the library does, arrives there or
 * submits through its ring, executes nothing itself (the lanes do), and looks until the op has
 * ended. */
#include <string.h>

#include "shm_ipc/wake.h"
#include "tools/sim/host.h"

#define DEADLINES_PERMILLE 250
#define PREEMPTED_PERMILLE 150
#define DEADLINE_MAX_NS 3000000u

/* An op at one rank of this process. */
struct part_at {
    struct sim_host *host;
    struct sim_process *process;
    struct sim_hcomm *comm;
    struct sim_meet *meet;
    struct sim_meet_op *op;
    struct sim_part *part;
    uint32_t rank, which;
};

static bool part_at(struct sim_host *host, struct sim_process *process, struct sim_hcomm *comm,
                    uint32_t rank, uint32_t which, struct part_at *out_at) {
    struct sim_meet *meet = &host->jobs[comm->job].meets[comm->meet];
    struct sim_meet_op *op = &meet->ops[which];
    *out_at = (struct part_at){host, process, comm, meet, op, &op->parts[rank], rank, which};
    return sim_ops_members(meet, op) >> rank & 1;
}

uint64_t sim_ops_members(const struct sim_meet *meet, const struct sim_meet_op *op) {
    if (op->key.peers == OCCL_PEERS_ALL)
        return meet->ranks == 64 ? ~0ull : (1ull << meet->ranks) - 1;
    return 1ull << (op->key.peers >> 16) | 1ull << (op->key.peers & 0xffffu);
}

bool sim_ops_needs_region(const struct sim_meet_op *op) {
    return op->signature.kind != OCCL_OP_BARRIER;
}

static bool is_pair(const struct sim_meet_op *op) {
    return op->key.peers != OCCL_PEERS_ALL;
}

static bool sends(const struct part_at *at) {
    return is_pair(at->op) && at->op->key.peers >> 16 == at->rank;
}

/* Line of the record, member of the ring op. */
static uint32_t index_of(const struct part_at *at) {
    return is_pair(at->op) ? !sends(at) : at->rank;
}

static uint32_t member_count(const struct part_at *at) {
    return is_pair(at->op) ? 2 : at->meet->ranks;
}

static uint64_t slot_offset(const struct part_at *at) {
    uint32_t seat = 0;
    for (uint32_t rank = 0; rank < at->rank; rank++)
        seat += at->meet->process_of[rank] == at->process->number;
    return (((uint64_t)at->comm->meet * SIM_MEET_OPS_MAX + at->which) * SIM_SEATS_MAX +
            seat % SIM_SEATS_MAX) *
           SIM_SLOT_BYTES;
}

static struct occl_record *record_of(const struct part_at *at) {
    return occl_record_at(&at->comm->records, at->op->place.slot);
}

/* ---- the end of an op at one rank ---- */

static void check_output(const struct part_at *at) {
    const int64_t *out;
    /* With its session the region has ended, too. */
    if (at->process->misbehaved || at->process->slow || at->process->detaching ||
        !sim_ops_needs_region(at->op) || sends(at))
        return;
    out = (const int64_t *)(const void *)(at->process->region_base + slot_offset(at)) +
          SIM_SLOT_ELEMENTS;
    for (uint32_t e = 0; e < at->op->signature.count; e++) {
        uint64_t expected = 0;
        if (is_pair(at->op))
            expected = (uint64_t)sim_plan_value(at->host, at->op, at->op->key.peers >> 16, e);
        for (uint32_t rank = 0; !is_pair(at->op) && rank < at->meet->ranks; rank++)
            expected += (uint64_t)sim_plan_value(at->host, at->op, rank, e);
        if ((uint64_t)out[e] != expected) {
            sim_host_broken(at->host, "result: op %u of communicator %llu at rank %u, element %u",
                            at->which, (unsigned long long)at->comm->uid, at->rank, e);
            return;
        }
    }
}

/* One outcome for all: nobody succeeds where another has failed. */
static void check_agreement(const struct part_at *at) {
    for (uint32_t rank = 0; rank < at->meet->ranks; rank++) {
        const struct sim_part *other = &at->op->parts[rank];
        if (other->phase == SIM_PART_DONE &&
            (other->status == OCCL_OK) != (at->part->status == OCCL_OK))
            sim_host_broken(at->host,
                            "agreement: op %u of communicator %llu ended with %s at rank %u and "
                            "with %s at rank %u",
                            at->which, (unsigned long long)at->comm->uid,
                            occl_status_name(other->status), rank,
                            occl_status_name(at->part->status), at->rank);
    }
}

static void check_blame(const struct part_at *at) {
    uint32_t about = at->part->about_rank;
    const struct sim_process *other =
        about < at->meet->ranks ? &at->host->processes[at->comm->seats[about].process] : NULL;
    bool gone = other && (sim_process_gave_reason(other) || at->comm->seats[about].left);
    if (at->part->status == OCCL_E_PEER_FAILED && !gone)
        sim_host_broken(at->host, "peer failed: op %u of communicator %llu names rank %u",
                        at->which, (unsigned long long)at->comm->uid, about);
}

static void end_part(const struct part_at *at, int32_t status, uint32_t about_rank) {
    struct sim_part *part = at->part;
    const struct sim_hjob *job = &at->host->jobs[at->comm->job];
    part->status = part->over_quota ? OCCL_E_QUOTA : status;
    part->about_rank = part->over_quota ? at->rank : about_rank;
    part->phase = SIM_PART_DONE;
    at->host->progress = true;
    sim_host_note(at->host, 8, at->process->number,
                  at->comm->uid << 32 ^ (uint64_t)at->which << 16 ^ (uint64_t)(-part->status));
    if (part->status == OCCL_OK)
        check_output(at);
    else
        at->host->result.ops_failed++;
    if (part->status != OCCL_OK && job->innocent && !at->host->drained_ns)
        sim_host_broken(at->host, "innocent: op %u of communicator %llu ended with %s", at->which,
                        (unsigned long long)at->comm->uid, occl_status_name(part->status));
    check_agreement(at);
    check_blame(at);
    if (at->process->wake_ns == SIM_NEVER)
        at->process->wake_ns = sim_host_now(at->host) + seeded_below(&at->host->seeded, 20000);
}

/* ---- records ---- */

static void leave_record(const struct part_at *at) {
    struct occl_line *line = occl_line_at(record_of(at), index_of(at));
    /* What it wrote goes back before the claim may be another op's. */
    occl_note64(&line->submit_ticks, 0);
    occl_claim_leave(&at->comm->records, occl_claim_index(at->op->place.slot));
}

/* Tells the lanes that all have come to a record whose bytes are elsewhere. */
static void push_execute(const struct part_at *at) {
    struct sim_process *process = at->process;
    uint32_t freed;
    struct occl_sqe sqe = {.verb = OCCL_SQE_EXECUTE,
                           .priority = 255,
                           .slot = (uint16_t)at->op->place.slot,
                           .comm = at->comm->seats[at->rank].number,
                           .key = at->op->key};
    (void)occl_ring_producer_refresh(&process->sq, &freed);
    if (at->part->executes || process->misbehaved || occl_sq_push(&process->sq, &sqe) != OCCL_OK)
        return;
    at->part->executes = true;
    occl_ring_publish(&process->sq);
    if (occl_doorbell_needed(&process->page->daemon_sleeping)) {
        struct occl_msg_plain bell;
        memset(&bell, 0, sizeof bell);
        occl_msg_init(&bell.h, OCCL_MSG_DOORBELL, 0);
        (void)sim_process_send(at->host, process, &bell, sizeof bell);
    }
}

static void advance_record(const struct part_at *at, struct occl_look *look) {
    struct occl_record *record = record_of(at);
    uint32_t other;
    if (look->state == OCCL_REC_OPEN) {
        if (occl_record_mismatch(record, look->ready_mask, index_of(at), &other) != OCCL_FIELD_NONE)
            sim_host_broken(at->host, "matching: op %u of communicator %llu met another op",
                            at->which, (unsigned long long)at->comm->uid);
        (void)occl_record_decide(record, OCCL_REC_OPEN, OCCL_REC_LOCAL, &look->state);
    }
    if (look->state == OCCL_REC_LOCAL)
        push_execute(at);
}

static void look_at_record(const struct part_at *at) {
    struct occl_look look;
    uint64_t now = sim_host_now(at->host);
    struct occl_record *record = record_of(at);
    occl_record_look(record, at->op->place.print, member_count(at), &look);
    if (at->part->deadline_ns <= now && look.outcome != OCCL_OUT_DIRECT) {
        at->part->deadline_ns = SIM_NEVER;
        (void)occl_record_abort(&at->comm->records, at->op->place.slot, at->op->place.print,
                                OCCL_E_TIMEOUT, at->rank);
        occl_record_look(record, at->op->place.print, member_count(at), &look);
    }
    if (look.outcome == OCCL_OUT_ALL)
        advance_record(at, &look);
    bool done = look.outcome == OCCL_OUT_DIRECT ||
                (look.outcome == OCCL_OUT_ALL && look.state == OCCL_REC_DONE);
    bool aborted = look.outcome == OCCL_OUT_ABORTED ||
                   (look.outcome == OCCL_OUT_ALL && occl_rec_kind(look.state) == OCCL_REC_ABORTED);
    if (!done && !aborted)
        return;
    /* Its buffers are its own again when no lane is inside any more. */
    if (aborted && occl_look32(&record->lanes_busy) != 0)
        return;
    leave_record(at);
    if (done)
        end_part(at, OCCL_OK, OCCL_RANK_NONE);
    else
        end_part(at, occl_rec_status(look.state), occl_rec_rank(look.state));
}

static void arrive(const struct part_at *at) {
    struct occl_line *line = occl_line_at(record_of(at), index_of(at));
    struct occl_signature signature = at->op->signature;
    uint64_t offset = slot_offset(at);
    bool in_page = !sim_ops_needs_region(at->op);
    if (sends(at))
        signature.kind = OCCL_OP_SEND;
    occl_line_fill(line, at->op->key, &signature);
    if (!in_page) {
        line->u.ref.src = (struct occl_buffer_ref){OCCL_SPACE_REGION, at->process->region, offset};
        line->u.ref.dst = (struct occl_buffer_ref){OCCL_SPACE_REGION, at->process->region,
                                                   offset + SIM_SLOT_BYTES / 2};
    }
    occl_note64(&line->submit_ticks, sim_host_now(at->host));
    at->part->phase = SIM_PART_RECORD;
    at->host->result.record_ops++;
    (void)occl_record_arrive(line, at->op->place.print, in_page ? OCCL_FLAG_IN_PAGE : 0);
    look_at_record(at);
}

/* ---- rings ---- */

static uint64_t user_data_of(const struct part_at *at) {
    return (uint64_t)at->part->life << 32 | (uint64_t)at->comm->meet << 24 |
           (uint64_t)at->which << 16 | (at->rank + 1);
}

/* Into the ring, and the doorbell where the lane sleeps. False: the ring is full. */
static bool push(const struct part_at *at, const struct occl_sqe *sqe) {
    struct sim_process *process = at->process;
    uint32_t freed;
    (void)occl_ring_producer_refresh(&process->sq, &freed);
    if (occl_sq_push(&process->sq, sqe) != OCCL_OK)
        return false;
    occl_ring_publish(&process->sq);
    if (occl_doorbell_needed(&process->page->daemon_sleeping)) {
        struct occl_msg_plain bell;
        memset(&bell, 0, sizeof bell);
        occl_msg_init(&bell.h, OCCL_MSG_DOORBELL, 0);
        (void)sim_process_send(at->host, process, &bell, sizeof bell);
    }
    return true;
}

static bool submit_to_ring(const struct part_at *at) {
    uint64_t offset = slot_offset(at);
    struct occl_sqe sqe = {.verb = OCCL_SQE_SUBMIT,
                           .priority = 255,
                           .comm = at->comm->seats[at->rank].number,
                           .key = at->op->key,
                           .signature = at->op->signature,
                           .submit_ticks = sim_host_now(at->host)};
    if (sends(at))
        sqe.signature.kind = OCCL_OP_SEND;
    at->part->life++;
    sqe.user_data = user_data_of(at);
    if (at->part->over_quota) {
        sqe.flags = OCCL_SQE_OVER_QUOTA;
    } else if (sim_ops_needs_region(at->op)) {
        sqe.src = (struct occl_buffer_ref){OCCL_SPACE_REGION, at->process->region, offset};
        sqe.dst = (struct occl_buffer_ref){OCCL_SPACE_REGION, at->process->region,
                                           offset + SIM_SLOT_BYTES / 2};
        if (is_pair(at->op) && sends(at))
            sqe.dst = (struct occl_buffer_ref){0};
        else if (is_pair(at->op))
            sqe.src = (struct occl_buffer_ref){0};
    }
    if (!push(at, &sqe)) {
        at->part->life--;
        return false;
    }
    at->part->phase = SIM_PART_RING;
    at->host->result.ring_ops++;
    return true;
}

/* Where this process has that rank; NULL. */
static struct sim_hcomm *comm_of_meet(struct sim_host *host, const struct sim_process *process,
                                      uint32_t meet, uint32_t rank) {
    for (uint32_t i = 0; i < host->comm_count; i++) {
        struct sim_hcomm *comm = host->comms[i];
        if (comm->job == process->job && comm->meet == meet && comm->split < 0 &&
            rank < comm->ranks && comm->seats[rank].answered &&
            comm->seats[rank].process == process->number)
            return comm;
    }
    return NULL;
}

static void take_completion(struct sim_host *host, struct sim_process *process,
                            const struct occl_cqe *cqe) {
    uint32_t meet = cqe->user_data >> 24 & 0xff, which = cqe->user_data >> 16 & 0xff;
    uint32_t rank = (uint32_t)(cqe->user_data & 0xffff) - 1;
    struct sim_hcomm *comm = comm_of_meet(host, process, meet, rank);
    struct part_at at;
    if (!comm || which >= host->jobs[process->job].meets[meet].op_count ||
        !part_at(host, process, comm, rank, which, &at) || at.part->phase != SIM_PART_RING ||
        at.part->life != cqe->user_data >> 32) {
        sim_host_broken(host, "completion: process %u got %#llx, which it does not wait for",
                        process->number, (unsigned long long)cqe->user_data);
        return;
    }
    host->progress = true;
    bool no_room = cqe->status == OCCL_WOULD_BLOCK ||
                   (cqe->status == OCCL_E_QUOTA && cqe->about_rank == OCCL_RANK_NONE);
    if (no_room) {
        at.part->phase = SIM_PART_AGAIN;
        at.part->over_quota |= cqe->status == OCCL_E_QUOTA;
        process->wake_ns = sim_host_now(host) + 20000 + seeded_below(&host->seeded, 100000);
        return;
    }
    end_part(&at, cqe->status, cqe->about_rank);
}

static void cancel(const struct part_at *at) {
    struct occl_sqe sqe = {.verb = OCCL_SQE_CANCEL, .priority = 255, .user_data = user_data_of(at)};
    if (!push(at, &sqe))
        return;
    at->part->deadline_ns = SIM_NEVER;
    at->part->withdrawn = true;
}

/* ---- both ---- */

static void write_input(const struct part_at *at) {
    int64_t *in;
    if (!sim_ops_needs_region(at->op))
        return;
    in = (int64_t *)(void *)(at->process->region_base + slot_offset(at));
    for (uint32_t e = 0; e < at->op->signature.count; e++)
        in[e] = sim_plan_value(at->host, at->op, at->rank, e);
}

static void set_deadline(const struct part_at *at) {
    struct seeded *s = &at->host->seeded;
    at->part->deadline_ns = SIM_NEVER;
    if ((at->host->options.faults & SIM_FAULT_TIMEOUT) && !at->host->jobs[at->comm->job].innocent &&
        seeded_permille(s, DEADLINES_PERMILLE))
        at->part->deadline_ns = sim_host_now(at->host) + seeded_below(s, DEADLINE_MAX_NS);
}

bool sim_ops_submit(struct sim_host *host, struct sim_process *process, struct sim_hcomm *comm,
                    uint32_t rank, uint32_t which) {
    struct part_at at;
    if (!part_at(host, process, comm, rank, which, &at))
        return false;
    if (at.part->phase == SIM_PART_AGAIN)
        return submit_to_ring(&at);
    const struct occl_comm_page *page = occl_records_header(&comm->records);
    if (!at.part->looked && occl_rec_kind(occl_observe32(&page->comm_state)) != OCCL_COMM_LIVE) {
        at.part->phase = SIM_PART_REFUSED;
        return true;
    }
    /* It may lose its core between the look and the arrival. */
    if (!at.part->looked && seeded_permille(&host->seeded, PREEMPTED_PERMILLE)) {
        at.part->looked = true;
        return true;
    }
    uint32_t freed;
    (void)occl_ring_producer_refresh(&process->sq, &freed);
    if (occl_ring_room(&process->sq) < 2)
        return false;
    write_input(&at);
    set_deadline(&at);
    host->progress = true;
    sim_host_note(host, 9, process->number, comm->uid << 16 ^ which);
    struct occl_claim *claim = occl_claim_of(&comm->records, at.op->place.slot);
    switch (occl_claim_enter(claim, at.op->place.print, true)) {
    case OCCL_ENTER_CLAIMED:
    case OCCL_ENTER_JOINED:
        arrive(&at);
        return true;
    case OCCL_ENTER_RING:
        return submit_to_ring(&at);
    default:
        return false;
    }
}

static void look_at_parts(struct sim_host *host, struct sim_process *process,
                          struct sim_hcomm *comm, uint32_t rank) {
    const struct sim_meet *meet = &host->jobs[comm->job].meets[comm->meet];
    struct part_at at;
    for (uint32_t which = 0; which < meet->op_count; which++) {
        if (!part_at(host, process, comm, rank, which, &at))
            continue;
        if (at.part->phase == SIM_PART_RECORD)
            look_at_record(&at);
        else if (at.part->phase == SIM_PART_RING && at.part->deadline_ns <= sim_host_now(host) &&
                 !process->misbehaved)
            cancel(&at);
    }
}

void sim_ops_look(struct sim_host *host, struct sim_process *process) {
    struct occl_cqe cqe = {0};
    bool any = false;
    while (occl_cq_pop(&process->cq, &cqe) == OCCL_OK) {
        /* It is written in words and read by its members. */
        __asm__ volatile("" : "+m"(cqe));
        any = true;
        take_completion(host, process, &cqe);
    }
    if (any)
        occl_ring_release(&process->cq);
    for (uint32_t i = 0; i < host->comm_count; i++) {
        struct sim_hcomm *comm = host->comms[i];
        for (uint32_t rank = 0; comm->split < 0 && comm->job == process->job && rank < comm->ranks;
             rank++)
            if (comm->seats[rank].answered && comm->seats[rank].process == process->number &&
                !comm->seats[rank].left)
                look_at_parts(host, process, comm, rank);
    }
}
