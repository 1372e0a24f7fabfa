/* SPDX-License-Identifier: Apache-2.0 */
/* The root of a broadcast needs nobody: with its payload in the page it is done. What it looks at
 * its peers' lines for is whether another rank takes itself for the root, too; and fetching these
 * lines takes longer than all the rest. So in a row of broadcasts from the same root, whose first
 * one looks at once, each of the later ones is looked at only with the next op (or before somebody
 * asks for asynchronous errors, or ends the communicator). Until then the rank stays in the record,
 * which therefore still belongs to the op. Who arrives second sees the first, so no mismatch is
 * missed. */
#include "client_lib/client.h"

/* owed = print:48 | slot + 1: the op that this rank has not looked at yet; 0: none. */
static uint64_t owed_of(struct occl_place place) {
    return place.print << 16 | (place.slot + 1);
}

/* Both sources have succeeded, each with its own bytes: both are told. */
static void tell_both(struct client_comm *comm, uint32_t other, enum occl_signature_field field) {
    client_tell_mismatch(comm, comm->rank, other, OCCL_OP_BROADCAST, field);
    client_tell_mismatch(comm, other, comm->rank, OCCL_OP_BROADCAST, field);
}

static void look_back(struct client_comm *comm, uint64_t owed) {
    struct occl_place place = {(uint32_t)(owed & 0xffffu) - 1, owed >> 16};
    struct occl_record *rec = occl_record_at(&comm->m, place.slot);
    struct occl_look look;
    uint32_t other;
    occl_record_look(rec, place.print, comm->ranks, &look);
    enum occl_signature_field field =
        occl_record_mismatch(rec, look.source_mask & ~(1ull << comm->rank), comm->rank, &other);
    if (field != OCCL_FIELD_NONE)
        tell_both(comm, other, field);
    client_leave_place(comm, place.slot);
}

void client_source_settle(struct client_comm *comm) {
    if (occl_peek64(&comm->owed) == 0)
        return;
    uint64_t owed = occl_swap64(&comm->owed, 0);
    if (owed)
        look_back(comm, owed);
}

bool client_source_in_row(const struct client_op *op) {
    return op->sig.kind == OCCL_OP_BROADCAST && op->sig.root == op->comm->rank && op->blocking &&
           client_in_stream(op) && occl_peek32(&op->comm->source_row);
}

void client_source_owe(struct client_op *op) {
    uint64_t before = occl_swap64(&op->comm->owed, owed_of(op->place));
    if (before) /* another thread's, or the one before this in the row */
        look_back(op->comm, before);
}
