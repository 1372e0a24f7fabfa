/* SPDX-License-Identifier: Apache-2.0 */
/* What is not complete: undecided records of the communicator pages, and the engine's ops. Each
 * field of a page is read once into a local copy; ranks, masks and times made of them are bounded,
 * so a scribbled page can only make its own job's picture wrong.
 *
 * A record may be left and claimed for another op while it is read. So the claim is looked at again
 * behind the last line: if it is still the same op's, then all that was read was, because a member
 * writes its line only after it saw the claim of its op. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"
#include "shm_ipc/op_kind.h"

#define OPS_FIRST 64

const char *occl_opview_kind(uint32_t kind) {
    const struct occl_kind_traits *traits = occl_kind_traits(kind);
    if (kind == OCCL_OPVIEW_SPLIT)
        return "comm_split";
    if (!traits)
        return "";
    return traits->flags & OCCL_KIND_PAIR ? "send_recv" : traits->name;
}

void occl_opview_ranges(uint64_t mask, char *out_text, uint32_t bytes) {
    uint32_t used = 0;
    out_text[0] = '\0';
    for (uint32_t first = 0; first < 64; first++) {
        if (!(mask >> first & 1))
            continue;
        uint32_t last = first;
        while (last + 1 < 64 && (mask >> (last + 1) & 1))
            last++;
        int length = snprintf(out_text + used, bytes - used, last > first ? "%s%u-%u" : "%s%u",
                              used ? "," : "", first, last);
        if (length < 0 || (uint32_t)length >= bytes - used)
            return;
        used += (uint32_t)length;
        first = last;
    }
}

void occl_opview_free(struct occl_op_list *list) {
    free(list->ops);
    free(list->helds);
    memset(list, 0, sizeof *list);
}

uint64_t occl_opview_holders(const struct occl_op_view *op) {
    return op->state == 0 ? op->members_mask & ~op->arrived_mask : op->busy_mask;
}

/* Without room for them they are ranks that have not come, and nothing is said of why. */
static void append_helds(struct occl_op_list *list, struct occl_op_view *op,
                         const struct occl_held_view *helds) {
    uint32_t count = op->held_count;
    op->held_first = list->held_count;
    if (list->held_count + count > list->held_room && list->held_room < OCCL_HELDS_MAX) {
        uint32_t room = list->held_room ? list->held_room * 2 : OPS_FIRST;
        struct occl_held_view *more = realloc(list->helds, room * sizeof *more);
        if (more) {
            list->helds = more;
            list->held_room = room;
        }
    }
    if (list->held_count + count > list->held_room) {
        op->waiting_mask &= ~op->held_mask;
        op->held_mask = op->held_count = 0;
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        list->helds[list->held_count] = helds[i];
        list->helds[list->held_count++].op = list->count;
    }
}

bool occl_opview_append(struct occl_op_list *list, const struct occl_op_view *op,
                        const struct occl_held_view *helds) {
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : OPS_FIRST;
        struct occl_op_view *ops = realloc(list->ops, room * sizeof *ops);
        if (!ops)
            return false;
        list->ops = ops;
        list->room = room;
    }
    list->ops[list->count] = *op;
    if (op->held_count)
        append_helds(list, &list->ops[list->count], helds);
    list->count++;
    return true;
}

static uint64_t all_ranks(const struct occl_comm *comm) {
    return comm->ranks == 64 ? ~0ull : (1ull << comm->ranks) - 1;
}

/* ranks of a pair, bounded; a pair that names no rank of the communicator needs nobody. */
static uint64_t pair_mask(const struct occl_comm *comm, uint32_t peers) {
    uint32_t source = peers >> 16;
    uint32_t target = peers & 0xffffu;
    if (source >= comm->ranks || target >= comm->ranks)
        return 0;
    return 1ull << source | 1ull << target;
}

/* ---- records ---- */

static void take_times(const struct occl_daemon *daemon, const struct occl_line *line, bool blocked,
                       uint64_t rank_bit, uint64_t now_ns, struct occl_op_view *op) {
    /* A blocking op writes no time before it sleeps; until then it has only just come. */
    uint64_t submitted = line->submit_ticks;
    uint64_t waits = line->wait_since_ticks;
    uint64_t first = submitted ? submitted : waits;
    uint64_t since = first ? occl_ticks_to_ns(&daemon->scale, first) : now_ns;
    bool waiting = waits || blocked;
    if (op->since_ns == 0 || since < op->since_ns)
        op->since_ns = since;
    if (!waiting)
        return;
    op->waiting_mask |= rank_bit;
    if (waits)
        since = occl_ticks_to_ns(&daemon->scale, waits);
    if (since > op->waiting_since_ns)
        op->waiting_since_ns = since;
}

/* Rank of a line, as the kind of the op demands. */
static uint32_t line_rank(const struct occl_op_view *op, const struct occl_line *line,
                          uint32_t index) {
    if (op->key.peers == OCCL_PEERS_ALL)
        return index;
    return line->kind == OCCL_OP_SEND ? op->key.peers >> 16 : op->key.peers & 0xffffu;
}

/* A line as it is now: its fields are read once, for what is made of them. */
static struct occl_line copy_line(struct occl_line *shared) {
    struct occl_line line;
    memset(&line, 0, sizeof line);
    occl_copy_out(&line, shared, offsetof(struct occl_line, inlined));
    return line;
}

/* Key and signature of the first line that is there. False: they are not what the claim is for. */
static bool take_key(const struct occl_comm *comm, const struct occl_line *line, uint32_t slot,
                     uint64_t print, struct occl_op_view *op) {
    op->key = occl_line_key(line);
    op->signature = occl_line_signature(line);
    struct occl_place place = occl_place_of(op->key);
    op->members_mask =
        op->key.peers == OCCL_PEERS_ALL ? all_ranks(comm) : pair_mask(comm, op->key.peers);
    return op->members_mask && place.slot == slot && place.print == print;
}

static bool still_claimed(const struct occl_comm *comm, uint32_t slot, uint64_t print) {
    occl_read_fence();
    uint64_t word = occl_peek64(&occl_claim_of(&comm->records, slot)->word);
    return (word & OCCL_WORD_CLAIMED) && (word & OCCL_WORD_PRINT_MASK) == print;
}

/* Members that are not there and not given up: do their lines say that they are held back? */
static bool take_helds(struct occl_comm *comm, uint32_t slot, uint64_t print, uint64_t now_ns,
                       struct occl_op_view *op, struct occl_held_view *out_helds) {
    struct occl_record *rec = occl_record_at(&comm->records, slot);
    uint32_t members = occl_claim_members(occl_claim_index(slot), comm->ranks);
    for (uint32_t i = 0; i < members; i++) {
        if ((occl_peek32(&occl_line_at(rec, i)->after) & 0xffffu) == 0)
            continue;
        struct occl_line line = copy_line(occl_line_at(rec, i));
        struct occl_place place = occl_place_of(occl_line_key(&line));
        if (occl_flag_bits_of(line.flag, print) || place.slot != slot || place.print != print)
            continue;
        if (op->members_mask == 0 && !take_key(comm, &line, slot, print, op))
            return false;
        uint32_t rank = line_rank(op, &line, i);
        struct occl_held_view *held = &out_helds[op->held_count];
        if (rank >= comm->ranks || ((op->held_mask | op->arrived_mask) >> rank & 1) ||
            !occl_opheld_line(comm, rank, &line, held))
            continue;
        op->held_mask |= 1ull << rank;
        op->held_count++;
        take_times(comm->job->tenant->daemon, &line, false, 1ull << rank, now_ns, op);
    }
    return true;
}

/* Members that are there. */
static bool take_ready(struct occl_comm *comm, uint32_t slot, uint64_t print, uint64_t now_ns,
                       const struct occl_look *look, struct occl_op_view *op) {
    struct occl_record *rec = occl_record_at(&comm->records, slot);
    for (uint64_t left = look->ready_mask; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        struct occl_line line = copy_line(occl_line_at(rec, i));
        if (!(occl_flag_bits_of(line.flag, print) & OCCL_FLAG_READY))
            continue;
        if (op->members_mask == 0 && !take_key(comm, &line, slot, print, op))
            return false;
        uint32_t rank = line_rank(op, &line, i);
        if (rank >= comm->ranks)
            continue;
        op->arrived_mask |= 1ull << rank;
        if (line.busy && occl_rec_kind(look->state) == OCCL_REC_LOCAL)
            op->busy_mask |= 1ull << rank;
        take_times(comm->job->tenant->daemon, &line, look->blocked_mask >> i & 1, 1ull << rank,
                   now_ns, op);
    }
    return true;
}

bool occl_opview_record(struct occl_comm *comm, uint32_t slot, uint64_t print, uint64_t now_ns,
                        struct occl_op_view *out_op, struct occl_held_view *out_helds) {
    struct occl_record *rec = occl_record_at(&comm->records, slot);
    struct occl_look look;
    uint32_t members = occl_claim_members(occl_claim_index(slot), comm->ranks);
    occl_record_look(rec, print, members, &look);
    uint32_t kind = occl_rec_kind(look.state);
    bool undecided = look.outcome == OCCL_OUT_OPEN || look.outcome == OCCL_OUT_ALL;
    if (look.outcome == OCCL_OUT_ABORTED || kind == OCCL_REC_DONE || kind == OCCL_REC_ABORTED)
        return false;
    struct occl_op_view op;
    memset(&op, 0, sizeof op);
    op.comm = comm;
    op.in_record = true;
    if (!take_ready(comm, slot, print, now_ns, &look, &op) ||
        !take_helds(comm, slot, print, now_ns, &op, out_helds))
        return false;
    if (!undecided && !op.held_mask)
        return false;
    if (!undecided) { /* complete for all but those that do not take it yet */
        op.members_mask = op.arrived_mask | op.held_mask;
        op.waiting_mask &= op.held_mask;
    }
    if (kind == OCCL_REC_LOCAL) {
        op.state = 2;
        op.strands = occl_record_strands_claimed(rec);
        op.strands_done = occl_peek32(&rec->strands_done);
    }
    if (op.members_mask == 0 || !still_claimed(comm, slot, print))
        return false;
    *out_op = op;
    return true;
}

bool occl_opview_any(struct occl_comm *comm) {
    uint64_t now_ns = occl_loop_now_ns(comm->job->tenant->daemon->loop);
    for (uint32_t index = 0; index < OCCL_CLAIMS; index++) {
        uint64_t word = occl_observe64(&occl_claim_at(&comm->records, index)->word);
        for (uint32_t i = 0; (word & OCCL_WORD_CLAIMED) && i < occl_claim_records(index); i++) {
            struct occl_op_view op;
            struct occl_held_view helds[OCCL_LOCAL_RANKS_MAX];
            if (occl_opview_record(comm, occl_claim_first(index) + i, word & OCCL_WORD_PRINT_MASK,
                                   now_ns, &op, helds))
                return true;
        }
    }
    return false;
}

/* ---- engine ---- */

bool occl_opview_engine(struct occl_daemon *daemon, const struct occl_engine_op_view *view,
                        struct occl_op_view *out_op, struct occl_held_view *out_helds) {
    struct occl_comm *comm;
    struct occl_op_view *op = out_op;
    HASH_FIND(in_daemon, daemon->comms, &view->comm_uid, sizeof view->comm_uid, comm);
    /* Ops of records are in the pages already. */
    if (!comm || view->from_record)
        return false;
    memset(op, 0, sizeof *op);
    op->comm = comm;
    op->key = view->key;
    op->signature = view->signature;
    op->members_mask =
        view->key.peers == OCCL_PEERS_ALL ? all_ranks(comm) : pair_mask(comm, view->key.peers);
    op->arrived_mask = view->arrived_mask & all_ranks(comm);
    op->since_ns = occl_ticks_to_ns(&daemon->scale, view->first_ticks);
    op->preemptions = view->preemptions;
    op->attempts = view->attempts;
    op->strands = view->strands;
    op->strands_done = view->strands_done;
    op->state = view->state;
    op->waiting_since_ns = op->since_ns;
    for (uint64_t left = op->members_mask & ~op->arrived_mask; left; left &= left - 1) {
        uint32_t rank = (uint32_t)__builtin_ctzll(left);
        bool unsure;
        if (occl_opheld_page(comm, rank, &op->key, &out_helds[op->held_count], &unsure)) {
            op->held_mask |= 1ull << rank;
            op->held_count++;
        } else if (unsure) {
            op->unsure_mask |= 1ull << rank;
        }
    }
    /* Who waits in a ring op is not written anywhere; a member with a waiting thread may. */
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        const struct occl_session *session = comm->seats[rank].session;
        if (((op->arrived_mask | op->held_mask) >> rank & 1) && session &&
            occl_peek32(&session->page->threads_waiting))
            op->waiting_mask |= 1ull << rank;
    }
    return true;
}

/* ---- notes ---- */

void occl_opview_note(const struct occl_comm *comm, uint32_t rank,
                      struct occl_note_view *out_note) {
    struct occl_rank_note *note = occl_note_at(&comm->records, rank);
    uint64_t ticks = occl_peek64(&note->last_ticks);
    out_note->last_key =
        (struct occl_op_key){occl_peek32(&note->last_key.peers), occl_peek32(&note->last_key.tag),
                             occl_peek32(&note->last_key.instance)};
    out_note->last_kind = occl_peek32(&note->last_kind);
    out_note->last_ns = ticks ? occl_ticks_to_ns(&comm->job->tenant->daemon->scale, ticks) : 0;
    out_note->ops_done = occl_peek64(&note->ops_done);
    out_note->bytes_done = occl_peek64(&note->bytes_done);
    out_note->bytes_executed = occl_peek64(&note->bytes_executed);
    out_note->errors = occl_peek64(&note->errors);
}
