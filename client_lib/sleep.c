/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on several ops at once: on one that is held back, on what it comes after, on what that
 * comes after, and so on. Whoever changes any of them wakes the sleeper, so nothing is polled.
 *
 * Ops that nobody has in hand are held while the thread sleeps, so that their records stay theirs.
 * An op that another thread has in hand needs no place of its own: that thread completes it and
 * rings the bell of what comes after it (after.c), or gives it up and nudges. A holder that does
 * neither, because it only looked, is found out after OCCL_SLEEP_MAX_NS. */
#include "client_lib/client.h"
#include "client_lib/waiting.h"

void client_sleep_start(struct client_sleep *sleep, uint64_t limit_ns) {
    sleep->target_count = sleep->bell_count = sleep->place_count = sleep->op_count = 0;
    sleep->limit_ns = limit_ns;
    sleep->moved = false;
}

void client_sleep_shorten(struct client_sleep *sleep, uint64_t limit_ns) {
    if (limit_ns < sleep->limit_ns)
        sleep->limit_ns = limit_ns;
}

void client_sleep_place(struct client_sleep *sleep, const struct occl_wait_place *place) {
    if (sleep->place_count < OCCL_PLACES_MAX)
        sleep->places[sleep->place_count++] = *place;
    else
        client_sleep_shorten(sleep, OCCL_POLL_NS);
}

bool client_sleep_keep(struct client_sleep *sleep, struct client_op *op, struct client_comm *comm) {
    if (sleep->op_count == CLIENT_SLEEP_OPS) {
        client_sleep_shorten(sleep, OCCL_POLL_NS);
        return false;
    }
    sleep->ops[sleep->op_count] = op;
    sleep->comms[sleep->op_count++] = comm;
    return true;
}

static void add_other(struct client_sleep *sleep, struct client_after *node) {
    struct client_op *of = client_after_hold(node);
    struct client_comm *comm = of ? client_comm_of_op(of) : NULL;
    if (comm && client_sleep_keep(sleep, of, comm)) {
        (void)client_sleep_add(sleep, of); /* `moved` tells */
        return;
    }
    if (comm)
        client_comm_put(comm);
    if (of) /* its communicator is about to end, or there is no room */
        client_op_unhold(of);
    if (of && !comm)
        client_sleep_shorten(sleep, OCCL_POLL_NS);
}

/* The op is still held back: its bell, an abort of its record, and what it comes after. */
static void add_held_back(struct client_sleep *sleep, struct client_op *op, uint32_t bell) {
    struct occl_word_seen *seen = &sleep->bells[sleep->bell_count++];
    *seen = (struct occl_word_seen){&op->after_bell, bell};
    struct occl_wait_place place = occl_wait_on_word(seen, &op->after_sleepers);
    client_sleep_place(sleep, &place);
    if (op->path == CLIENT_PATH_RECORD) {
        place = client_wait_on_record(&sleep->targets[sleep->target_count - 1]);
        client_sleep_place(sleep, &place);
    }
    for (uint32_t i = 0; i < op->after_count; i++)
        add_other(sleep, &op->nodes[i]);
}

bool client_sleep_watched(struct client_sleep *sleep, struct client_op *op) {
    if (!occl_observe32(&op->watched) || sleep->bell_count >= CLIENT_SLEEP_OPS)
        return false;
    struct occl_word_seen *seen = &sleep->bells[sleep->bell_count++];
    *seen = (struct occl_word_seen){&op->watched, 1};
    struct occl_wait_place place = occl_wait_on_word(seen, &op->phase_sleepers);
    client_sleep_place(sleep, &place);
    return true;
}

bool client_sleep_add(struct client_sleep *sleep, struct client_op *op) {
    if (sleep->target_count == CLIENT_SLEEP_OPS) {
        client_sleep_shorten(sleep, OCCL_POLL_NS);
        sleep->moved = client_advance(op, true) || sleep->moved;
        return occl_observe32(&op->phase) == CLIENT_OP_ACTIVE;
    }
    struct client_wait_target *target = &sleep->targets[sleep->target_count++];
    uint32_t bell = occl_look32(&op->after_bell);
    bool was_held_back = op->held_back;
    client_wait_before(op, target);
    if (client_advance(op, true)) {
        sleep->moved = true;
        return false;
    }
    target->limit_ns = client_sleep_limit(op, 0);
    client_wait_after(op, target);
    client_sleep_shorten(sleep, target->metered ? OCCL_POLL_NS : target->limit_ns);
    if (op->held_back)
        add_held_back(sleep, op, bell);
    else if (was_held_back) /* it has just arrived: what is to be waited for is another place */
        sleep->moved = true;
    else
        client_sleep_place(sleep, &target->place);
    return true;
}

void client_sleep_end(struct client_sleep *sleep) {
    if (!sleep->moved && sleep->place_count > 0)
        (void)occl_events_sleep(sleep->places, sleep->place_count, sleep->limit_ns);
    else if (!sleep->moved) /* all are in other hands */
        occl_clock_sleep_ns(&occl_lib.clock, sleep->limit_ns);
    while (sleep->op_count > 0) {
        struct client_op *op = sleep->ops[--sleep->op_count];
        client_comm_put(sleep->comms[sleep->op_count]);
        client_op_unhold(op);
    }
}
