/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that come after others of the same process. Such an op takes its number and its place in the
 * record (or the ring) when it is called, so the order of calls stays what the peers expect, but it
 * arrives only when the others have completed. Until then its peers see a rank that has not come.
 *
 * Each dependency is a node in the list of the op that is waited for. An op that completes takes
 * its list, under one lock for all, and rings the bell of each that is in it; an op that nobody
 * comes after does no more than look at a counter behind a fence.
 *
 * Who moves on what an op comes after: whoever waits for that one itself; its watcher, if it has
 * one; else whoever waits for the dependent op, or watches it, and sleeps on both (sleep.c). A
 * thread that wants an op which such a sleeper has in hand says so and nudges the sleeper. */
#include <stdlib.h>

#include "client_lib/client.h"
#include "client_lib/waiting.h"

/* after_lock is held. */
static void unlink_node(struct client_after *node) {
    struct client_after **link = &node->of->dependents;
    while (*link && *link != node)
        link = &(*link)->next;
    if (*link)
        *link = node->next;
    occl_add32(&node->of->come_after, UINT32_MAX);
    node->of = NULL;
}

/* after_lock is held. `of` is complete. */
static void note_status(struct client_op *op, const struct client_op *of) {
    if (of->status >= 0 || op->after_status != OCCL_OK)
        return;
    op->after_status = op->failed_status = of->status;
    op->failed_kind = of->sig.kind;
    op->failed_tag = of->tag;
}

/* after_lock is held. The node is in the list before the phase is looked at: whoever completes the
 * other op publishes its phase before it looks at the list. */
static int add(struct client_op *op, struct client_after *node, struct occl_request request) {
    struct client_op *of = client_op_get(request);
    if (!of)
        return client_error_status();
    if (of == op)
        return client_fail(OCCL_E_INVALID, "an operation cannot come after itself");
    *node = (struct client_after){op, of, of->dependents};
    of->dependents = node;
    occl_add32(&of->come_after, 1); /* Dekker with the phase */
    uint32_t phase = occl_look32(&of->phase);
    if (client_op_get(request) == of && phase == CLIENT_OP_ACTIVE) {
        op->after_pending++;
        return OCCL_OK;
    }
    if (phase == CLIENT_OP_COMPLETE)
        note_status(op, of);
    unlink_node(node);
    return OCCL_OK;
}

int client_after_begin(struct client_op *op) {
    int status = OCCL_OK;
    op->after_pending = 0;
    op->after_status = OCCL_OK;
    op->held_back = false;
    op->nodes = NULL;
    if (op->after_count == 0)
        return OCCL_OK;
    occl_note32(&op->after_bell, 0); /* an op on the stack has come here as it was */
    occl_note32(&op->after_sleepers, 0);
    op->nodes = calloc(op->after_count, sizeof *op->nodes); /* lives as long as the wait */
    if (!op->nodes)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for an operation that comes after %u",
                           op->after_count);
    pthread_mutex_lock(&occl_lib.after_lock);
    for (uint32_t i = 0; status == OCCL_OK && i < op->after_count; i++)
        status = add(op, &op->nodes[i], op->after[i]);
    op->held_back = op->after_pending > 0 || op->after_status < 0;
    pthread_mutex_unlock(&occl_lib.after_lock);
    if (status)
        client_after_end(op);
    return status;
}

void client_after_end(struct client_op *op) {
    if (!op->nodes)
        return;
    pthread_mutex_lock(&occl_lib.after_lock);
    for (uint32_t i = 0; i < op->after_count; i++)
        if (op->nodes[i].of)
            unlink_node(&op->nodes[i]);
    pthread_mutex_unlock(&occl_lib.after_lock);
    free(op->nodes);
    op->nodes = NULL;
}

/* after_lock is held. */
static void ring(struct client_op *op) {
    (void)occl_add32(&op->after_bell, 1);
    (void)occl_word_wake(&op->after_bell, &op->after_sleepers, INT32_MAX);
}

void client_after_done(struct client_op *op) {
    occl_bell_fence(); /* its phase was published before */
    if (occl_look32(&op->come_after) == 0)
        return;
    pthread_mutex_lock(&occl_lib.after_lock);
    while (op->dependents) {
        struct client_after *node = op->dependents;
        unlink_node(node);
        note_status(node->op, op);
        /* Its owner may go on at once, but not end it: client_after_end takes the lock. */
        uint32_t left = node->op->after_pending - 1;
        occl_publish32(&node->op->after_pending, left);
        if (left > 0)
            client_held_next(node->op);
        ring(node->op);
    }
    pthread_mutex_unlock(&occl_lib.after_lock);
    client_watch_look(); /* it may be the watcher who sends them on their way */
}

void client_after_nudge(struct client_op *op) {
    pthread_mutex_lock(&occl_lib.after_lock);
    for (struct client_after *node = op->dependents; node; node = node->next)
        ring(node->op);
    pthread_mutex_unlock(&occl_lib.after_lock);
    client_watch_look();
}

struct client_op *client_after_hold(struct client_after *node) {
    struct client_op *of = NULL;
    pthread_mutex_lock(&occl_lib.after_lock);
    if (node->of && occl_look32(&node->of->watched) == 0 && occl_look32(&node->of->wanted) == 0 &&
        client_op_try_hold(node->of))
        of = node->of;
    pthread_mutex_unlock(&occl_lib.after_lock);
    return of;
}

bool client_after_look(struct client_op *op, bool may_execute) {
    for (uint32_t i = 0; i < op->after_count && occl_observe32(&op->after_pending) > 0; i++) {
        struct client_op *of = client_after_hold(&op->nodes[i]);
        if (!of)
            continue;
        struct client_comm *comm = client_comm_of_op(of);
        if (comm) {
            (void)client_advance(of, may_execute);
            client_comm_put(comm);
        }
        client_op_unhold(of);
    }
    return occl_observe32(&op->after_pending) == 0;
}
