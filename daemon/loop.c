/* SPDX-License-Identifier: Apache-2.0 */
/* What both backends share: the table of watches with generations, the queue of one round and the
 * heap of timers. */
#include "daemon/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Reports taken in one round: bounds how long timers wait behind descriptors. */
#define REPORTS_PER_ROUND 256
#define SLOTS_FIRST 64

struct slot {
    struct occl_watch *watch; /* NULL: free */
    uint32_t generation;      /* changes with each arm that must not be mistaken for an older one */
    uint32_t events;
    uint32_t next_free; /* slot number + 1 */
    bool armed;
};

struct occl_loop {
    const struct occl_clock *clock;
    const struct occl_loop_ops *ops;
    void *state;
    struct slot *slots; /* slot 0 is never used, so that 0 means "not added" */
    uint32_t slots_size;
    uint32_t first_free;
    uint32_t watches;
    struct occl_timer **heap; /* heap[1] is due first; heap[0] is unused */
    uint32_t timers;
    uint32_t heap_size;
    struct occl_loop_report reports[REPORTS_PER_ROUND];
};

static uint64_t cookie_of(const struct occl_loop *loop, uint32_t number) {
    return ((uint64_t)loop->slots[number].generation << 32) | number;
}

static bool forbidden(int error) {
    return error == EPERM || error == ENOSYS || error == ENOMEM || error == EACCES ||
           error == EINVAL;
}

int occl_loop_create(const struct occl_clock *clock, const struct occl_loop_ops *wanted,
                     struct occl_loop **out_loop, int *out_refused) {
    struct occl_loop *loop = calloc(1, sizeof *loop);
    int refused = 0;
    if (!loop)
        return OCCL_E_NO_MEMORY;
    loop->clock = clock;
    loop->ops = wanted ? wanted : occl_loop_uring();
    int rc = loop->ops->open(loop->ops, &loop->state);
    if (rc < 0 && !wanted && forbidden(-rc)) {
        refused = -rc;
        loop->ops = occl_loop_epoll();
        rc = loop->ops->open(loop->ops, &loop->state);
    }
    if (rc < 0) {
        free(loop);
        return rc == -ENOMEM ? OCCL_E_NO_MEMORY : OCCL_E_UNSUPPORTED;
    }
    *out_refused = refused;
    *out_loop = loop;
    return OCCL_OK;
}

void occl_loop_destroy(struct occl_loop *loop) {
    if (!loop)
        return;
    for (uint32_t i = 1; i < loop->slots_size; i++)
        if (loop->slots[i].watch)
            occl_loop_watch_remove(loop, loop->slots[i].watch);
    while (loop->timers)
        occl_loop_timer_cancel(loop, loop->heap[1]);
    loop->ops->close(loop->state);
    free(loop->slots);
    free(loop->heap);
    free(loop);
}

const char *occl_loop_name(const struct occl_loop *loop) {
    return loop->ops->name;
}

uint64_t occl_loop_now_ns(const struct occl_loop *loop) {
    return occl_clock_now_ns(loop->clock);
}

uint32_t occl_loop_watches(const struct occl_loop *loop) {
    return loop->watches;
}

/* ---- watches ---- */

static int grow_slots(struct occl_loop *loop) {
    uint32_t size = loop->slots_size ? loop->slots_size * 2 : SLOTS_FIRST;
    struct slot *slots = realloc(loop->slots, size * sizeof *slots);
    if (!slots)
        return OCCL_E_NO_MEMORY;
    uint32_t from = loop->slots_size ? loop->slots_size : 1;
    memset(slots + loop->slots_size, 0, (size - loop->slots_size) * sizeof *slots);
    loop->slots = slots;
    for (uint32_t i = size; i-- > from;) {
        slots[i].next_free = loop->first_free;
        loop->first_free = i;
    }
    loop->slots_size = size;
    return OCCL_OK;
}

static int arm(struct occl_loop *loop, uint32_t number) {
    struct slot *slot = &loop->slots[number];
    int rc = loop->ops->arm(loop->state, slot->watch->fd, slot->events, cookie_of(loop, number));
    slot->armed = rc == 0;
    return rc < 0 ? OCCL_E_NO_MEMORY : OCCL_OK;
}

static void disarm(struct occl_loop *loop, uint32_t number) {
    struct slot *slot = &loop->slots[number];
    if (slot->armed)
        loop->ops->disarm(loop->state, slot->watch->fd, cookie_of(loop, number));
    slot->armed = false;
    slot->generation++;
}

int occl_loop_watch_add(struct occl_loop *loop, struct occl_watch *watch, uint32_t events) {
    if (!loop->first_free && grow_slots(loop) != OCCL_OK)
        return OCCL_E_NO_MEMORY;
    uint32_t number = loop->first_free;
    struct slot *slot = &loop->slots[number];
    loop->first_free = slot->next_free;
    slot->watch = watch;
    slot->events = events;
    slot->generation++;
    watch->slot = number;
    loop->watches++;
    int status = arm(loop, number);
    if (status != OCCL_OK)
        occl_loop_watch_remove(loop, watch);
    return status;
}

int occl_loop_watch_set(struct occl_loop *loop, struct occl_watch *watch, uint32_t events) {
    struct slot *slot = &loop->slots[watch->slot];
    if (slot->events == events)
        return OCCL_OK;
    slot->events = events;
    /* Not armed: its report is in the queue of this round, and it is armed again behind it. */
    if (!slot->armed)
        return OCCL_OK;
    disarm(loop, watch->slot);
    return arm(loop, watch->slot);
}

void occl_loop_watch_remove(struct occl_loop *loop, struct occl_watch *watch) {
    if (!watch->slot)
        return;
    struct slot *slot = &loop->slots[watch->slot];
    disarm(loop, watch->slot);
    slot->watch = NULL;
    slot->next_free = loop->first_free;
    loop->first_free = watch->slot;
    watch->slot = 0;
    loop->watches--;
}

/* ---- timers: a binary heap ---- */

static void place(struct occl_loop *loop, uint32_t at, struct occl_timer *timer) {
    loop->heap[at] = timer;
    timer->place = at;
}

static void sift(struct occl_loop *loop, uint32_t at) {
    struct occl_timer *timer = loop->heap[at];
    while (at > 1 && loop->heap[at / 2]->due_ns > timer->due_ns) {
        place(loop, at, loop->heap[at / 2]);
        at /= 2;
    }
    for (;;) {
        uint32_t child = at * 2;
        if (child > loop->timers)
            break;
        if (child < loop->timers && loop->heap[child + 1]->due_ns < loop->heap[child]->due_ns)
            child++;
        if (loop->heap[child]->due_ns >= timer->due_ns)
            break;
        place(loop, at, loop->heap[child]);
        at = child;
    }
    place(loop, at, timer);
}

int occl_loop_timer_set(struct occl_loop *loop, struct occl_timer *timer, uint64_t due_ns) {
    timer->due_ns = due_ns;
    if (!timer->place) {
        if (loop->timers + 1 >= loop->heap_size) {
            uint32_t size = loop->heap_size ? loop->heap_size * 2 : SLOTS_FIRST;
            struct occl_timer **heap = realloc(loop->heap, size * sizeof(struct occl_timer *));
            if (!heap)
                return OCCL_E_NO_MEMORY;
            loop->heap = heap;
            loop->heap_size = size;
        }
        loop->timers++;
        place(loop, loop->timers, timer);
    }
    sift(loop, timer->place);
    return OCCL_OK;
}

void occl_loop_timer_cancel(struct occl_loop *loop, struct occl_timer *timer) {
    uint32_t at = timer->place;
    if (!at)
        return;
    timer->place = 0;
    struct occl_timer *last = loop->heap[loop->timers--];
    if (last == timer)
        return;
    place(loop, at, last);
    sift(loop, at);
}

/* ---- one round ---- */

static uint64_t wait_budget(const struct occl_loop *loop, uint64_t max_wait_ns) {
    if (!loop->timers)
        return max_wait_ns;
    uint64_t now = occl_loop_now_ns(loop);
    uint64_t due = loop->heap[1]->due_ns;
    uint64_t until = due > now ? due - now : 0;
    return until < max_wait_ns ? until : max_wait_ns;
}

static void call_watch(struct occl_loop *loop, const struct occl_loop_report *report) {
    uint32_t number = (uint32_t)report->cookie;
    if (number >= loop->slots_size || cookie_of(loop, number) != report->cookie ||
        !loop->slots[number].watch)
        return;
    struct occl_watch *watch = loop->slots[number].watch;
    watch->ready(watch, report->events);
    /* The handler may have removed the watch, or the table may have moved. */
    if (cookie_of(loop, number) == report->cookie && loop->slots[number].watch == watch &&
        arm(loop, number) != OCCL_OK)
        watch->ready(watch, OCCL_LOOP_HANGUP);
}

static void call_timers(struct occl_loop *loop) {
    uint64_t now = occl_loop_now_ns(loop);
    /* A timer that sets itself again is due later than now, so this ends. */
    while (loop->timers && loop->heap[1]->due_ns <= now) {
        struct occl_timer *timer = loop->heap[1];
        occl_loop_timer_cancel(loop, timer);
        timer->fired(timer);
    }
}

int occl_loop_run_once(struct occl_loop *loop, uint64_t max_wait_ns) {
    int count = loop->ops->wait(loop->state, wait_budget(loop, max_wait_ns), loop->reports,
                                REPORTS_PER_ROUND);
    if (count < 0)
        return OCCL_E_INTERNAL;
    /* Not armed from here on: a report has been consumed, whatever the handlers before it do. */
    for (int i = 0; i < count; i++) {
        uint32_t number = (uint32_t)loop->reports[i].cookie;
        if (number < loop->slots_size && cookie_of(loop, number) == loop->reports[i].cookie)
            loop->slots[number].armed = false;
    }
    for (int i = 0; i < count; i++)
        call_watch(loop, &loop->reports[i]);
    call_timers(loop);
    return OCCL_OK;
}
