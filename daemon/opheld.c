/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that come after others of the same rank: what the rank wrote of them, in its line of the
 * record, or, for an op whose way is the ring, in its session page. All of it is tenant bytes: a
 * communicator number that is not the process's, a rank that is not there or an op that the list
 * does not have say nothing more than that the rank is held back. Control loop only. */
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"

/* Keys that a hostile page lays on each other are not looked for any further. */
#define PROBES_MAX 32u

static bool names_op(const struct occl_comm *comm, struct occl_op_key key) {
    return key.peers == OCCL_PEERS_ALL ||
           ((key.peers >> 16) < comm->ranks && (key.peers & 0xffffu) < comm->ranks);
}

/* The communicator by its number in the session. */
static void name_other(struct occl_session *session, uint32_t number, struct occl_op_key key,
                       struct occl_held_view *held) {
    struct occl_seat *seat = session ? occl_comm_seat(session, number) : NULL;
    held->after = OCCL_OP_UNKNOWN;
    held->after_key = key;
    if (!seat || !names_op(seat->comm, key))
        return;
    held->after_comm = seat->comm;
    held->after_rank = seat->rank;
}

bool occl_opheld_line(const struct occl_comm *comm, uint32_t rank, const struct occl_line *line,
                      struct occl_held_view *out_held) {
    uint32_t count = occl_line_after_count(line);
    if (count == 0)
        return false;
    memset(out_held, 0, sizeof *out_held);
    out_held->rank = rank;
    out_held->count = count;
    out_held->since_ns = occl_ticks_to_ns(&comm->job->tenant->daemon->scale, line->submit_ticks);
    name_other(comm->seats[rank].session, line->after_comm, occl_line_after(line), out_held);
    return true;
}

static struct occl_held_op copy_op(const struct occl_held_op *shared) {
    return (struct occl_held_op){{occl_peek32(&shared->key.peers), occl_peek32(&shared->key.tag),
                                  occl_peek32(&shared->key.instance)},
                                 occl_peek32(&shared->comm)};
}

static bool same_key(const struct occl_op_key *a, const struct occl_op_key *b) {
    return a->peers == b->peers && a->tag == b->tag && a->instance == b->instance;
}

bool occl_opheld_page(const struct occl_comm *comm, uint32_t rank, const struct occl_op_key *key,
                      struct occl_held_view *out_held, bool *out_unsure) {
    const struct occl_seat *seat = &comm->seats[rank];
    *out_unsure = false;
    if (!seat->session)
        return false;
    const struct occl_session_page *page = seat->session->page;
    uint64_t ticks = occl_observe64(&page->held_ticks);
    struct occl_held_op held = copy_op(&page->held), after = copy_op(&page->held_after);
    occl_read_fence();
    *out_unsure = occl_peek32(&page->held_total) > 1;
    /* The same time before and behind: then all of it is of one op. */
    if (!ticks || occl_peek64(&page->held_ticks) != ticks || held.comm != seat->number ||
        !same_key(&held.key, key))
        return false;
    memset(out_held, 0, sizeof *out_held);
    out_held->rank = rank;
    out_held->count = 1;
    out_held->since_ns = occl_ticks_to_ns(&comm->job->tenant->daemon->scale, ticks);
    name_other(seat->session, after.comm, after.key, out_held);
    return true;
}

/* ---- what they come after, in the list ---- */

static uint32_t hash_of(const struct occl_comm *comm, const struct occl_op_key *key) {
    uint64_t hash = comm->uid * 0x9e3779b97f4a7c15ull + key->peers;
    hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ull + key->tag;
    hash = (hash ^ (hash >> 31)) * 0x94d049bb133111ebull + key->instance;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(hash >> 32);
}

static void enter(const struct occl_op_list *list, uint32_t *table, uint32_t mask,
                  uint32_t number) {
    const struct occl_op_view *op = &list->ops[number];
    uint32_t at = hash_of(op->comm, &op->key);
    if (op->signature.kind == OCCL_OPVIEW_SPLIT) /* nothing comes after it, whatever its number */
        return;
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        uint32_t *slot = &table[(at + i) & mask];
        if (*slot == 0) {
            *slot = number + 1;
            return;
        }
    }
}

static uint32_t find(const struct occl_op_list *list, const uint32_t *table, uint32_t mask,
                     const struct occl_held_view *held) {
    uint32_t at = hash_of(held->after_comm, &held->after_key);
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        uint32_t number = table[(at + i) & mask];
        if (number == 0)
            break;
        const struct occl_op_view *op = &list->ops[number - 1];
        if (op->comm == held->after_comm && same_key(&op->key, &held->after_key))
            return number - 1;
    }
    return OCCL_OP_UNKNOWN;
}

void occl_opheld_resolve(struct occl_op_list *list) {
    uint32_t slots = 64;
    if (list->held_count == 0)
        return;
    while (slots < 2 * list->count)
        slots *= 2;
    uint32_t *table = calloc(slots, sizeof *table);
    if (!table) /* then nothing is known of them */
        return;
    for (uint32_t i = 0; i < list->count; i++)
        enter(list, table, slots - 1, i);
    for (uint32_t i = 0; i < list->held_count; i++)
        if (list->helds[i].after_comm)
            list->helds[i].after = find(list, table, slots - 1, &list->helds[i]);
    for (uint32_t i = 0; i < list->held_count; i++)
        if (list->helds[i].after == list->helds[i].op) /* no honest op comes after itself */
            list->helds[i].after = OCCL_OP_UNKNOWN;
    free(table);
}

const struct occl_held_view *occl_opheld_of(const struct occl_op_list *list,
                                            const struct occl_op_view *op, uint32_t rank) {
    for (uint32_t i = 0; i < op->held_count; i++)
        if (list->helds[op->held_first + i].rank == rank)
            return &list->helds[op->held_first + i];
    return NULL;
}
