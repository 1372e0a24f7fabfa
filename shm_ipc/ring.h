/* SPDX-License-Identifier: Apache-2.0 */
/* Single-producer single-consumer rings over the index words of a session page (abi.h). Submission:
 * the client produces, the daemon consumes; completion: the other way round. Entries are copied in
 * and copied out word by word and exactly once; nothing outside this header touches one in place.
 *
 * Indices are free-running and masked on use. Each side believes only its private copy of its own
 * index. The other side's index is a claim: a distance above the number of entries proves that
 * the page is corrupt and gives OCCL_E_QUARANTINED (the daemon ends the session, the client its
 * attachment), never an assertion.
 *
 * | field          | writer   | reader   | store   | load    | line | why                        |
 * | tail           | producer | consumer | publish | observe | own  | entry bytes written before |
 * | head           | consumer | producer | publish | observe | own  | entry bytes read before    |
 * | entry words    | producer | consumer | note    | peek    | -    | ordered by tail and head   |
 * | own, peer_seen | one side | -        | plain   | plain   | priv | never in shared memory     |
 *
 * One thread is the producer and one the consumer at a time. A client with many submitting threads
 * serialises them with a lock of its own that covers push and publish; so does its reaping side. */
#ifndef SHM_IPC_RING_H
#define SHM_IPC_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/abi.h"
#include "shm_ipc/assert.h"
#include "shm_ipc/atomics.h"
#include "shm_ipc/status.h"

/* Where a ring is, as its holder believes it: counts and offsets come from the holder's own records
 * (daemon: what it decided at attach; client: what occl_session_open returned). */
struct occl_ring_place {
    uint32_t *tail;
    uint32_t *head;
    char *entries;
    uint32_t entry_count; /* a power of two */
    uint32_t entry_bytes; /* a multiple of 8 */
};

struct occl_ring_producer {
    struct occl_ring_place at;
    uint32_t own;       /* tail: entries below it are written */
    uint32_t published; /* tail as the consumer may see it */
    uint32_t peer_seen; /* head as last observed */
};

struct occl_ring_consumer {
    struct occl_ring_place at;
    uint32_t own;       /* head: entries below it are copied out */
    uint32_t published; /* head as the producer may see it */
    uint32_t peer_seen; /* tail as last observed */
};

static inline struct occl_ring_place occl_sq_place(struct occl_session_page *page,
                                                   uint32_t sq_offset, uint32_t sq_entries) {
    struct occl_ring_place at = {&page->sq_tail.value, &page->sq_head.value,
                                 (char *)page + sq_offset, sq_entries,
                                 (uint32_t)sizeof(struct occl_sqe)};
    return at;
}
static inline struct occl_ring_place occl_cq_place(struct occl_session_page *page,
                                                   uint32_t cq_offset, uint32_t cq_entries) {
    struct occl_ring_place at = {&page->cq_tail.value, &page->cq_head.value,
                                 (char *)page + cq_offset, cq_entries,
                                 (uint32_t)sizeof(struct occl_cqe)};
    return at;
}

static inline void occl_ring_place_assert(const struct occl_ring_place *at) {
    OCCL_ASSERT(at->entry_count >= 2);
    OCCL_ASSERT((at->entry_count & (at->entry_count - 1)) == 0);
    OCCL_ASSERT(at->entry_bytes % 8 == 0);
}

/* ---- producer ---- */

/* A fresh ring: both indices are 0 in the page. */
static inline void occl_ring_producer_init(struct occl_ring_producer *p,
                                           const struct occl_ring_place *at) {
    occl_ring_place_assert(at);
    p->at = *at;
    p->own = p->published = p->peer_seen = 0;
}

/* Looks at the consumer's index. *out_freed gets how many entries became free since the last look:
 * what the daemon gives back to its completion credits. OCCL_E_QUARANTINED when the index went
 * backwards or ahead of what was published. */
static inline int occl_ring_producer_refresh(struct occl_ring_producer *p, uint32_t *out_freed) {
    uint32_t head = occl_observe32(p->at.head);
    uint32_t freed = head - p->peer_seen;
    if (freed > p->published - p->peer_seen)
        return OCCL_E_QUARANTINED;
    p->peer_seen = head;
    *out_freed = freed;
    return OCCL_OK;
}

/* Free entries by the last look. */
static inline uint32_t occl_ring_room(const struct occl_ring_producer *p) {
    return p->at.entry_count - (p->own - p->peer_seen);
}

/* Copies an entry in; it becomes visible with occl_ring_publish. OCCL_WOULD_BLOCK when there is no
 * room by the last look: refresh, then try again. */
static inline int occl_ring_push(struct occl_ring_producer *p, const void *entry) {
    if (occl_ring_room(p) == 0)
        return OCCL_WOULD_BLOCK;
    uint32_t index = p->own & (p->at.entry_count - 1);
    occl_copy_in(p->at.entries + (uint64_t)index * p->at.entry_bytes, entry, p->at.entry_bytes);
    p->own++;
    return OCCL_OK;
}
static inline void occl_ring_publish(struct occl_ring_producer *p) {
    p->published = p->own;
    occl_publish32(p->at.tail, p->own);
}

/* ---- consumer ---- */

static inline void occl_ring_consumer_init(struct occl_ring_consumer *c,
                                           const struct occl_ring_place *at) {
    occl_ring_place_assert(at);
    c->at = *at;
    c->own = c->published = c->peer_seen = 0;
}

/* Looks at the producer's index. OCCL_OK: something is there; OCCL_WOULD_BLOCK: nothing;
 * OCCL_E_QUARANTINED: an impossible distance, or an index that went backwards. */
static inline int occl_ring_consumer_refresh(struct occl_ring_consumer *c) {
    uint32_t tail = occl_observe32(c->at.tail);
    uint32_t distance = tail - c->own;
    if (distance > c->at.entry_count || distance < c->peer_seen - c->own)
        return OCCL_E_QUARANTINED;
    c->peer_seen = tail;
    return distance ? OCCL_OK : OCCL_WOULD_BLOCK;
}

/* Copies the next entry out. The slot belongs to the producer again after occl_ring_release, so
 * that a batch costs one store to the shared line. Statuses as refresh. */
static inline int occl_ring_pop(struct occl_ring_consumer *c, void *out_entry) {
    if (c->own == c->peer_seen) {
        int status = occl_ring_consumer_refresh(c);
        if (status != OCCL_OK)
            return status;
    }
    uint32_t index = c->own & (c->at.entry_count - 1);
    occl_copy_out(out_entry, c->at.entries + (uint64_t)index * c->at.entry_bytes,
                  c->at.entry_bytes);
    c->own++;
    return OCCL_OK;
}
static inline void occl_ring_release(struct occl_ring_consumer *c) {
    if (c->published == c->own)
        return;
    c->published = c->own;
    occl_publish32(c->at.head, c->own);
}

/* Whether the producer has published more than the consumer has released. Any thread, beside the
 * consumer: a moment's truth. */
static inline bool occl_ring_has_more(const struct occl_ring_consumer *c) {
    return occl_observe32(c->at.tail) != occl_observe32(c->at.head);
}

/* ---- completion credits ----
 *
 * Each accepted submission holds a credit from admission until its completion entry has been
 * consumed, and there are as many credits as completion entries; so a completion always finds room.
 * The client takes one before it pushes a submission and puts it back after it has released the
 * completion. The daemon, which believes nothing, keeps a second count: it takes one before it pops
 * a submission (none: it leaves the entry in the ring) and puts back what
 * occl_ring_producer_refresh reports as freed. A client that keeps the rule never meets the
 * daemon's limit, because it releases completions before it publishes the submission that reuses
 * them. */
struct occl_credits {
    uint32_t limit;
    uint32_t taken;
};
static inline void occl_credits_init(struct occl_credits *credits, uint32_t limit) {
    credits->limit = limit;
    credits->taken = 0;
}
static inline bool occl_credits_take(struct occl_credits *credits) {
    if (credits->taken == credits->limit)
        return false;
    credits->taken++;
    return true;
}
static inline void occl_credits_put(struct occl_credits *credits, uint32_t count) {
    OCCL_ASSERT(count <= credits->taken);
    credits->taken -= count;
}

/* ---- typed names ---- */

static inline int occl_sq_push(struct occl_ring_producer *p, const struct occl_sqe *entry) {
    OCCL_DCHECK(p->at.entry_bytes == sizeof *entry);
    return occl_ring_push(p, entry);
}
static inline int occl_sq_pop(struct occl_ring_consumer *c, struct occl_sqe *out_entry) {
    OCCL_DCHECK(c->at.entry_bytes == sizeof *out_entry);
    return occl_ring_pop(c, out_entry);
}
static inline int occl_cq_push(struct occl_ring_producer *p, const struct occl_cqe *entry) {
    OCCL_DCHECK(p->at.entry_bytes == sizeof *entry);
    return occl_ring_push(p, entry);
}
static inline int occl_cq_pop(struct occl_ring_consumer *c, struct occl_cqe *out_entry) {
    OCCL_DCHECK(c->at.entry_bytes == sizeof *out_entry);
    return occl_ring_pop(c, out_entry);
}

#endif
