/* SPDX-License-Identifier: Apache-2.0 */
/* What `why` reads of ops that are held back: a hint, for nobody but whoever looks for a reason.
 *
 * An op that has its place in a record says so in this rank's line, next to key and signature,
 * while its flag is still not set: since when, after how many others, and after which, the first of
 * them that is not complete. An op whose way is the ring has no line. All such ops of this process
 * are counted in the session page, and the one that was held back last is described there.
 *
 * Everything is written under after_lock: the thread that completes one of the others names the
 * next one, while the op itself is in another thread's hands. */
#include "client_lib/client.h"
#include "client_lib/waiting.h"

/* after_lock is held. NULL: nothing is left to wait for. */
static const struct client_op *first_pending(const struct client_op *op) {
    for (uint32_t i = 0; op->nodes && i < op->after_count; i++)
        if (op->nodes[i].of)
            return op->nodes[i].of;
    return NULL;
}

static void note_held_op(struct occl_held_op *place, const struct client_op *op) {
    occl_note32(&place->key.peers, op->key.peers);
    occl_note32(&place->key.tag, op->key.tag);
    occl_note32(&place->key.instance, op->key.instance);
    occl_note32(&place->comm, op->comm->number);
}

/* The line is whole when `after` is there, and the session page when held_ticks is. */
static void note_line(const struct client_op *op, const struct client_op *of) {
    struct occl_line *line = occl_line_at(op->rec, op->line_index);
    occl_note32(&line->after_tag, of->key.tag);
    occl_note32(&line->after_instance, of->key.instance);
    occl_note32(&line->after_comm, of->comm->number);
    occl_publish32(&line->after,
                   (uint32_t)occl_peers_pack(of->key.peers) << 16 | (op->after_pending & 0xffffu));
}

static void note_page(void) {
    struct occl_session_page *page = occl_lib.page;
    const struct client_op *op = occl_lib.held;
    const struct client_op *of = op ? first_pending(op) : NULL;
    occl_publish64(&page->held_ticks, 0);
    if (!of)
        return;
    occl_bell_fence(); /* who reads the new op has no reason to believe the old time */
    note_held_op(&page->held, op);
    note_held_op(&page->held_after, of);
    occl_publish64(&page->held_ticks, op->held_ticks);
}

static void link_held(struct client_op *op) {
    struct client_op **link = &occl_lib.held;
    while (*link)
        link = &(*link)->next_held;
    op->next_held = NULL;
    *link = op;
    occl_note32(&occl_lib.page->held_total, occl_lib.page->held_total + 1);
    if (occl_lib.held == op)
        note_page();
}

void client_held_note(struct client_op *op) {
    pthread_mutex_lock(&occl_lib.after_lock);
    const struct client_op *of = first_pending(op);
    if (of && op->path == CLIENT_PATH_RECORD) {
        struct occl_line *line = occl_line_at(op->rec, op->line_index);
        op->held_noted = true;
        occl_line_fill(line, op->key, &op->sig);
        occl_note64(&line->submit_ticks, occl_ticks(occl_lib.ticks));
        note_line(op, of);
    } else if (of && op->path == CLIENT_PATH_RING) {
        op->held_noted = true;
        op->held_ticks = occl_ticks(occl_lib.ticks);
        link_held(op);
    }
    pthread_mutex_unlock(&occl_lib.after_lock);
}

void client_held_next(struct client_op *op) {
    const struct client_op *of = op->held_noted ? first_pending(op) : NULL;
    if (of && op->path == CLIENT_PATH_RECORD)
        note_line(op, of);
    else if (of && op == occl_lib.held) {
        op->held_ticks++; /* or who reads meanwhile would take one half for the other's */
        note_page();
    }
}

static void unlink_held(struct client_op *op) {
    struct client_op **link = &occl_lib.held;
    bool described = occl_lib.held == op;
    while (*link && *link != op)
        link = &(*link)->next_held;
    if (*link)
        *link = op->next_held;
    occl_note32(&occl_lib.page->held_total, occl_lib.page->held_total - 1);
    if (described)
        note_page();
}

void client_held_forget(struct client_op *op) {
    if (!op->held_noted)
        return;
    pthread_mutex_lock(&occl_lib.after_lock);
    op->held_noted = false;
    if (op->path == CLIENT_PATH_RECORD) {
        struct occl_line *line = occl_line_at(op->rec, op->line_index);
        occl_note32(&line->after, 0);
        occl_note64(&line->submit_ticks, 0);
    } else {
        unlink_held(op);
    }
    pthread_mutex_unlock(&occl_lib.after_lock);
}
