/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting: of a copy between two processes, the source's own thread writes strand after strand
 * from its private buffer into the receiver's room (buffers.c), and the receiver brings each to the
 * caller's buffer while the source goes on with the next. So each byte is copied twice, by two
 * threads at once, and the kernel is not asked to reach from one process into the other.
 *
 * Which strands are done is known without a word for each: the source is the only executor, and
 * claims one at a time, so once as many are done as were claimed at some moment, those are. It
 * holds for as long as this rank executes none itself, and lanes cannot, because of the private
 * buffer. */
#include "client_lib/client.h"
#include "client_lib/memory.h"

/* How long the source is waited for before this rank executes what is left: a strand or two. */
#define PATIENCE_NS 20000u

/* The member that gives, if that is one of two; else op->members. */
static uint32_t giver(const struct client_op *op) {
    if (op->members != 2)
        return op->members;
    if (op->sig.kind == OCCL_OP_BROADCAST)
        return op->sig.root;
    return op->sig.kind == OCCL_OP_SEND || op->sig.kind == OCCL_OP_RECV ? 0 : op->members;
}

bool client_source_executes(const struct client_op *op) {
    return op->blocking && giver(op) == op->line_index && client_spins(op->comm);
}

static bool can_collect(const struct client_op *op) {
    uint32_t source = giver(op);
    if (op->executed || op->brief || source == op->members || source == op->line_index ||
        !op->stage_out || !op->stage_out->units || !client_spins(op->comm))
        return false;
    if (!(op->look.blocked_mask >> source & 1))
        return false; /* it may be elsewhere */
    const struct occl_member *who = &op->comm->members[client_member_rank(op, source)];
    return occl_line_at(op->rec, source)->u.ref.src.space == OCCL_SPACE_PRIVATE &&
           !client_same_process(who);
}

static void bring(const struct client_op *op, const struct occl_local_plan *plan, uint32_t strand) {
    uint64_t bytes, offset = occl_local_strand_range(plan, strand, &bytes);
    void *to = (char *)op->recv + offset;
    struct occl_copy_job job = {bytes, op->stage_out->base + offset, 1, 0, &to};
    occl_lib.movers->copy(&job);
    client_charge(op, 2 * bytes);
}

/* Those of `done` that are not in `brought`. */
static void bring_new(const struct client_op *op, const struct occl_local_plan *plan,
                      const struct occl_strand_claims *done, struct occl_strand_claims *brought) {
    for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
        for (; brought->of[s] < done->of[s]; brought->of[s]++, brought->sum++)
            bring(op, plan, occl_record_segment_first(s, plan->strand_count) + brought->of[s]);
}

bool client_collect(struct client_op *op) {
    struct occl_record *rec = op->rec;
    struct occl_local_plan plan;
    struct occl_strand_claims seen = {.sum = 0}, brought = {.sum = 0};
    uint64_t patience = occl_ticks_of_ns(&occl_lib.scale, PATIENCE_NS);
    if (!can_collect(op) || client_local_plan(op, &plan) != OCCL_OK)
        return false;
    uint64_t moved_ticks = occl_ticks(occl_lib.ticks);
    for (;;) {
        /* In this order: what was claimed before the look at what is done. */
        uint32_t done = occl_look32(&rec->strands_done), state = occl_look32(&rec->state);
        if (state == OCCL_REC_DONE || (seen.sum > brought.sum && done >= seen.sum)) {
            if (state == OCCL_REC_DONE)
                (void)occl_record_claims(rec, plan.strand_count, &seen); /* all of them */
            bring_new(op, &plan, &seen, &brought);
            moved_ticks = occl_ticks(occl_lib.ticks);
        }
        if (state != OCCL_REC_LOCAL) {
            op->collected = state == OCCL_REC_DONE;
            return true;
        }
        struct occl_strand_claims now;
        if (occl_record_claims(rec, plan.strand_count, &now))
            seen = now;
        if (occl_ticks(occl_lib.ticks) - moved_ticks > patience)
            return false;
        occl_relax();
    }
}
