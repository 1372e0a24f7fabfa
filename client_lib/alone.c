/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that a rank ends alone. The source of an op (the root of a broadcast, scatter or fan-out; a
 * sender) needs nobody: with its payload in the page it is done, and so are its receivers once they
 * have seen it. A giver (whoever is not the root of a reduction, gather or fan-in) needs nobody
 * either, but the root needs all of them.
 *
 * What such a rank looks at its peers' lines for is whether another one that ends alone has
 * described the op differently, say with another root: nobody else would notice. Fetching these
 * lines takes longer than all the rest. So in a row of such ops, whose first one looks at once,
 * each of the later ones is looked at only with the next op (or before somebody asks for
 * asynchronous errors, or ends the communicator). Until then the rank stays in the record, which
 * therefore still belongs to the op. Who arrives second sees the first, so no mismatch is missed.
 */
#include "client_lib/client.h"

/* owed = print:48 | slot + 1: the op that this rank has not looked at yet; 0: none. */
static uint64_t owed_of(struct occl_place place) {
    return place.print << 16 | (place.slot + 1);
}

/* Both have ended with success, for different ops: both are told. */
static void tell_both(struct client_comm *comm, struct occl_record *rec, uint32_t other,
                      enum occl_signature_field field) {
    const struct occl_line *mine = occl_line_at(rec, comm->rank),
                           *theirs = occl_line_at(rec, other);
    client_tell_field(comm, comm->rank, mine, other, theirs, field);
    client_tell_field(comm, other, theirs, comm->rank, mine, field);
}

static void look_back(struct client_comm *comm, uint64_t owed) {
    struct occl_place place = {(uint32_t)(owed & 0xffffu) - 1, owed >> 16};
    struct occl_record *rec = occl_record_at(&comm->m, place.slot);
    struct occl_look look;
    uint32_t other;
    occl_record_look(rec, place.print, comm->ranks, &look);
    enum occl_signature_field field =
        occl_record_mismatch(rec, look.alone_mask & ~(1ull << comm->rank), comm->rank, &other);
    if (field != OCCL_FIELD_NONE)
        tell_both(comm, rec, other, field);
    client_leave_place(comm, place.slot);
}

void client_alone_settle(struct client_comm *comm) {
    if (occl_peek64(&comm->owed) == 0)
        return;
    uint64_t owed = occl_swap64(&comm->owed, 0);
    if (owed)
        look_back(comm, owed);
}

bool client_alone_in_row(const struct client_op *op) {
    return op->alone_bits && op->blocking && client_in_stream(op) &&
           occl_peek32(&op->comm->alone_row);
}

void client_alone_owe(struct client_op *op) {
    uint64_t before = occl_swap64(&op->comm->owed, owed_of(op->place));
    if (before) /* another thread's, or the one before this in the row */
        look_back(op->comm, before);
}

void client_alone_finish(struct client_op *op, bool in_row) {
    client_wake(op);
    if (in_row)
        op->look = (struct occl_look){.outcome = OCCL_OUT_DIRECT,
                                      .first_missing = op->members,
                                      .ready_mask = 1ull << op->line_index,
                                      .alone_mask = 1ull << op->line_index,
                                      .source_mask = 1ull << op->line_index};
    else
        occl_record_look(op->rec, op->place.print, op->members, &op->look);
    op->owes_look = in_row;
    occl_note32(&op->comm->last_way, CLIENT_WAY_DIRECT);
    client_finish(op, client_direct_result(op), false);
}
