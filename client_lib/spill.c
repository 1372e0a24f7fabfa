/* SPDX-License-Identifier: Apache-2.0 */
/* The ring: ops whose record slot was busy, and requests to the daemon's lanes. Submissions of all
 * threads go through one lock; completions are reaped by whoever waits. Each submission holds a
 * completion credit, so completions always find room. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client_lib/client.h"

/* Entries of the completion ring that are brought into being at once: 64 KiB. */
#define POPULATED_STEP 2048u

struct ring_slot {
    struct client_op *op; /* NULL: nobody waits for the completion any more */
    uint32_t sequence;    /* tells an old completion of the slot from a new one */
    uint32_t next_free;
};

struct client_ring {
    pthread_mutex_t sq_lock; /* producer of the submission ring, credits, slots */
    struct occl_ring_producer sq;
    struct occl_credits credits;
    struct ring_slot *slots; /* those from slot_fresh on have never been used, nor touched */
    uint32_t slot_count, slot_fresh;
    uint32_t slot_free;      /* the first of those that were given back; slot_count: none */
    uint32_t reserved;       /* credits taken so far, counted until all entries are populated */
    uint32_t populated;      /* entries of the completion ring */
    pthread_mutex_t cq_lock; /* consumer of the completion ring; before sq_lock */
    struct occl_ring_consumer cq;
};

int client_ring_start(const struct occl_session_shape *shape) {
    struct client_ring *ring = calloc(1, sizeof *ring);
    struct ring_slot *slots = calloc(shape->cq_entries, sizeof *slots);
    if (!ring || !slots) {
        free(ring);
        free(slots);
        return client_fail(OCCL_E_NO_MEMORY, "no memory for the rings");
    }
    struct occl_ring_place sq = occl_sq_place(occl_lib.page, shape->sq_offset, shape->sq_entries);
    struct occl_ring_place cq = occl_cq_place(occl_lib.page, shape->cq_offset, shape->cq_entries);
    occl_ring_producer_init(&ring->sq, &sq);
    occl_ring_consumer_init(&ring->cq, &cq);
    occl_credits_init(&ring->credits, shape->cq_entries);
    pthread_mutex_init(&ring->sq_lock, NULL);
    pthread_mutex_init(&ring->cq_lock, NULL);
    ring->slots = slots;
    ring->slot_count = ring->slot_free = shape->cq_entries;
    occl_lib.ring = ring;
    return OCCL_OK;
}

void client_ring_stop(void) {
    struct client_ring *ring = occl_lib.ring;
    if (!ring)
        return;
    pthread_mutex_destroy(&ring->sq_lock);
    pthread_mutex_destroy(&ring->cq_lock);
    free(ring->slots);
    free(ring);
    occl_lib.ring = NULL;
}

/* sq_lock is held; one more completion will come. Its entry is this process's memory, not the
 * daemon's, which writes it: so it is brought into being here, before the daemon hears of the op.
 * All at once, when the process attaches, would cost every process a millisecond. */
static bool populate(struct client_ring *ring) {
    const struct occl_ring_place *cq = &ring->cq.at;
    if (ring->populated == cq->entry_count || ring->reserved++ < ring->populated)
        return true;
    uint32_t entries = ring->populated + POPULATED_STEP;
    if (entries > cq->entry_count)
        entries = cq->entry_count;
    char *page = (char *)occl_lib.page;
    size_t from = (size_t)(cq->entries - page) + (size_t)ring->populated * cq->entry_bytes;
    size_t to = (size_t)(cq->entries - page) + (size_t)entries * cq->entry_bytes;
    from &= ~(size_t)(OCCL_PAGE_BYTES - 1);
    if (madvise(page + from, to - from, MADV_POPULATE_WRITE) != 0)
        return false;
    ring->populated = entries;
    return true;
}

int client_ring_reserve(void) {
    struct client_ring *ring = occl_lib.ring;
    client_ring_reap();
    pthread_mutex_lock(&ring->sq_lock);
    bool taken = occl_credits_take(&ring->credits);
    bool there = taken && populate(ring);
    if (taken && !there)
        occl_credits_put(&ring->credits, 1);
    pthread_mutex_unlock(&ring->sq_lock);
    if (there)
        return OCCL_OK;
    if (taken)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for the completions of the ring");
    return client_fail(OCCL_WOULD_BLOCK,
                       "%u operations of this process wait in the daemon, the limit; wait for some "
                       "of them first",
                       ring->slot_count);
}

void client_ring_unreserve(void) {
    struct client_ring *ring = occl_lib.ring;
    pthread_mutex_lock(&ring->sq_lock);
    occl_credits_put(&ring->credits, 1);
    pthread_mutex_unlock(&ring->sq_lock);
}

/* sq_lock is held. Waits for room: the daemon always drains the submission ring. */
static int push(struct client_ring *ring, const struct occl_sqe *entry) {
    for (uint32_t round = 0; occl_sq_push(&ring->sq, entry) == OCCL_WOULD_BLOCK; round++) {
        uint32_t freed;
        if (occl_ring_producer_refresh(&ring->sq, &freed)) {
            client_mark_lost(OCCL_E_QUARANTINED);
            return client_enter();
        }
        if (freed)
            continue;
        int status = client_enter();
        if (status)
            return status;
        client_nap(round);
    }
    occl_ring_publish(&ring->sq);
    return OCCL_OK;
}

/* After the lock: wakes a lane that sleeps. */
static int ring_bell(void) {
    struct occl_msg_plain bell;
    if (!occl_doorbell_needed(&occl_lib.page->daemon_sleeping))
        return OCCL_OK;
    memset(&bell, 0, sizeof bell);
    occl_msg_init(&bell.h, OCCL_MSG_DOORBELL, 0);
    return client_rpc_send(&bell, sizeof bell);
}

static void fill(const struct client_op *op, uint32_t verb, struct occl_sqe *out_entry) {
    memset(out_entry, 0, sizeof *out_entry);
    out_entry->verb = (uint8_t)verb;
    out_entry->priority = op->priority;
    if (verb == OCCL_SQE_SUBMIT)
        out_entry->flags = op->withdrawn ? op->withdrawn : op->why_not;
    out_entry->slot = (uint16_t)op->place.slot;
    out_entry->comm = op->comm->number;
    out_entry->key = op->key;
    out_entry->signature = op->sig;
    out_entry->src = op->src;
    out_entry->dst = op->dst;
    out_entry->submit_ticks = occl_ticks(occl_lib.ticks);
    out_entry->deadline_ns = op->deadline_ns;
    out_entry->factor = op->factor;
    out_entry->vector = op->vector_ref;
}

static uint64_t user_data_of(const struct client_ring *ring, uint32_t slot) {
    return ((uint64_t)ring->slots[slot].sequence << 32) | slot;
}

/* sq_lock is held, a credit reserved: then a slot is free, too. */
static uint32_t take_slot(struct client_ring *ring) {
    uint32_t slot = ring->slot_free;
    if (slot == ring->slot_count)
        slot = ring->slot_fresh++;
    else
        ring->slot_free = ring->slots[slot].next_free;
    OCCL_ASSERT(slot < ring->slot_count);
    return slot;
}

/* The caller has reserved a credit. */
int client_ring_submit(struct client_op *op) {
    struct client_ring *ring = occl_lib.ring;
    struct occl_sqe entry;
    fill(op, OCCL_SQE_SUBMIT, &entry);
    pthread_mutex_lock(&ring->sq_lock);
    uint32_t slot = take_slot(ring);
    ring->slots[slot].op = op;
    op->ring_slot = slot;
    entry.user_data = user_data_of(ring, slot);
    int status = push(ring, &entry);
    if (status) {
        ring->slots[slot].op = NULL;
        ring->slots[slot].sequence++;
        ring->slots[slot].next_free = ring->slot_free;
        ring->slot_free = slot;
    }
    pthread_mutex_unlock(&ring->sq_lock);
    /* A bell that cannot be sent means that the connection is gone: the wait will tell. */
    return status ? status : (ring_bell(), OCCL_OK);
}

int client_ring_execute(struct client_op *op) {
    struct client_ring *ring = occl_lib.ring;
    struct occl_sqe entry;
    fill(op, OCCL_SQE_EXECUTE, &entry);
    entry.src = entry.dst = entry.vector = (struct occl_buffer_ref){OCCL_SPACE_NONE, 0, 0};
    pthread_mutex_lock(&ring->sq_lock);
    int status = push(ring, &entry);
    pthread_mutex_unlock(&ring->sq_lock);
    return status ? status : ring_bell();
}

void client_ring_cancel(struct client_op *op) {
    struct client_ring *ring = occl_lib.ring;
    struct occl_sqe entry;
    fill(op, OCCL_SQE_CANCEL, &entry);
    pthread_mutex_lock(&ring->sq_lock);
    /* Another thread may have taken the completion out; the slot may be another op's by now. */
    bool still = ring->slots[op->ring_slot].op == op;
    entry.user_data = user_data_of(ring, op->ring_slot);
    if (still && push(ring, &entry) == OCCL_OK)
        op->cancel_sent = true;
    pthread_mutex_unlock(&ring->sq_lock);
    (void)ring_bell();
}

/* Takes the op out of its slot; the slot and the credit go back with the completion, or with the
 * session. */
void client_ring_abandon(struct client_op *op) {
    struct client_ring *ring = occl_lib.ring;
    pthread_mutex_lock(&ring->cq_lock); /* whoever reaps has delivered what it took out */
    pthread_mutex_lock(&ring->sq_lock);
    if (op->ring_slot < ring->slot_count && ring->slots[op->ring_slot].op == op)
        ring->slots[op->ring_slot].op = NULL;
    pthread_mutex_unlock(&ring->sq_lock);
    pthread_mutex_unlock(&ring->cq_lock);
}

/* The op of a completion, or NULL; frees its slot and credit. */
static struct client_op *retire(struct client_ring *ring, const struct occl_cqe *entry) {
    uint32_t slot = (uint32_t)entry->user_data;
    struct client_op *op = NULL;
    pthread_mutex_lock(&ring->sq_lock);
    if (slot < ring->slot_count && user_data_of(ring, slot) == entry->user_data) {
        op = ring->slots[slot].op;
        ring->slots[slot].op = NULL;
        ring->slots[slot].sequence++;
        ring->slots[slot].next_free = ring->slot_free;
        ring->slot_free = slot;
        occl_credits_put(&ring->credits, 1);
    }
    pthread_mutex_unlock(&ring->sq_lock);
    return op;
}

/* The last thing this thread does with the op: its owner may return from a blocking call at once.
 */
static void deliver(struct client_op *op, const struct occl_cqe *entry) {
    op->about_rank = entry->about_rank;
    op->about_field = entry->field;
    op->ring_detail = entry->detail;
    op->ring_status = entry->status;
    occl_publish32(&op->ring_done, 1);
}

/* cq_lock is held. What occl_cq_pop said at last; *delivered counts up. */
static int drain(struct client_ring *ring, uint32_t *delivered) {
    struct occl_cqe entry;
    int status;
    while ((status = occl_cq_pop(&ring->cq, &entry)) == OCCL_OK) {
        occl_ring_release(
            &ring->cq); /* before the credit, so that the daemon sees the room first */
        struct client_op *op = retire(ring, &entry);
        if (op) {
            deliver(op, &entry);
            ++*delivered;
        }
    }
    return status;
}

void client_ring_reap(void) {
    struct client_ring *ring = occl_lib.ring;
    uint32_t delivered = 0;
    int status = OCCL_OK;
    /* One reaper at a time; the others look at their op, and then sleep on the bell, which has rung
     * for what came in while the reaper was leaving. So the reaper, gone, looks once more: Dekker
     * with the lock. */
    do {
        if (pthread_mutex_trylock(&ring->cq_lock))
            break;
        status = drain(ring, &delivered);
        pthread_mutex_unlock(&ring->cq_lock);
        occl_bell_fence();
    } while (status == OCCL_WOULD_BLOCK && occl_ring_has_more(&ring->cq));
    if (delivered) /* another thread of this process may sleep on what was just taken out */
        (void)occl_cq_wake(&occl_lib.page->cq_bell, &occl_lib.page->cq_sleepers);
    if (status < 0)
        client_mark_lost(status);
}
