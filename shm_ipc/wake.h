/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking: the one home of every "announce, look again, sleep" and of its other half
 * "change, look for sleepers, wake". All wake-ups are level-triggered: a sleeper that is woken for
 * nothing looks and sleeps again, a wake-up that comes too early is seen by the second look.
 * Models: tests/model; stress: tests/shm_ipc/wake_test.c.
 *
 * Four uses, one pattern:
 *
 * | who sleeps | on what         | announces       | looks again at | who wakes, after what       |
 * | lane       | its parker      | daemon_sleeping | sq.tail        | loop, told by the DOORBELL  |
 * |            |                 |                 |                | of who published sq.tail    |
 * | any thread | its parker      | word bit 0      | word's number  | whoever calls parker_wake   |
 * | member     | record.event    | record.sleepers | a missing flag,| whoever changed a flag or   |
 * |            |                 |                 | record.state   | the state decisively        |
 * | client     | session.cq_bell | cq_sleepers     | cq_bell        | lane that published cq.tail |
 * |            |                 |                 |                | and then changed the bell   |
 * | client     | several of these, and words of its own process: each of them as above           |
 *
 * Memory order. Announcing and looking, and changing and looking, are a Dekker pattern: at least
 * one side must see the other. With read-modify-writes (add, claim) and looks, which are
 * sequentially consistent, that holds as such; where the change is a plain index store (rings), a
 * bell_fence stands between it and the look at the flag.
 *
 * Daemon threads sleep only on their parkers, which live in the daemon's own memory: a client could
 * move a sleeper on a shared word to a word of its own (FUTEX_REQUEUE). The daemon wakes words in
 * client pages and never waits on them; each wake is limited in number (OCCL_WAKES_MAX).
 * All client sleeps are bounded (OCCL_SLEEP_MAX_NS): a scribbled or lost wake costs time, never
 * progress. */
#ifndef SHM_IPC_WAKE_H
#define SHM_IPC_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/atomics.h"
#include "shm_ipc/clock.h"
#include "shm_ipc/limits.h"

/* Sleepers that one wake releases when the daemon wakes: more threads than that on one word are
 * left to their bounded sleep, so that a client cannot make a lane walk a long queue in the kernel.
 */
#define OCCL_WAKES_MAX 64

/* ---- futex calls: the words lie in shared pages, so they are not private to a process ---- */

/* Sleeps while *word == expected, at most timeout_ns. Returns at a wake, a change, a signal or the
 * time-out, without telling which: the caller looks again. */
void occl_futex_sleep(uint32_t *word, uint32_t expected, uint64_t timeout_ns);
/* Wakes at most count sleepers; returns how many. Does not block. */
int occl_futex_wake(uint32_t *word, uint32_t count);

/* ---- events: records and completion bells ---- */

/* What a thread waits for: `changed` tells whether `what` is no longer as it was when the thread
 * decided to wait; its loads are sequentially consistent. Meanwhile it sleeps on *event, which says
 * nothing itself: a waker changes it, and only when *sleepers is not 0. */
struct occl_wait_place {
    bool (*changed)(const void *what);
    const void *what;
    uint32_t *event;
    uint32_t *sleepers;
};
/* The common case: one word is waited for and slept on. `word` of the place refers to *seen. */
struct occl_word_seen {
    uint32_t *word;
    uint32_t seen;
};
bool occl_word_changed(const void *seen);
static inline struct occl_wait_place occl_wait_on_word(const struct occl_word_seen *seen,
                                                       uint32_t *sleepers) {
    struct occl_wait_place place = {occl_word_changed, seen, seen->word, sleepers};
    return place;
}

/* One bounded sleep: announces in *sleepers, looks once more, sleeps unless it changed, takes the
 * announcement back. True when it made a system call. Client threads only. */
bool occl_event_sleep(const struct occl_wait_place *place, uint64_t timeout_ns);
/* The same on several places at once, until one of them is woken. Where the kernel refuses (before
 * 5.16, or a filter of system calls), it sleeps OCCL_POLL_NS at most, on the first. count in
 * 1..OCCL_PLACES_MAX. */
#define OCCL_PLACES_MAX 64
#define OCCL_POLL_NS 200000ull
bool occl_events_sleep(const struct occl_wait_place *places, uint32_t count, uint64_t timeout_ns);
static inline bool occl_word_sleep(uint32_t *word, uint32_t expected, uint32_t *sleepers,
                                   uint64_t timeout_ns) {
    struct occl_word_seen seen = {word, expected};
    struct occl_wait_place place = occl_wait_on_word(&seen, sleepers);
    return occl_event_sleep(&place, timeout_ns);
}

/* After a claim or add that changed *word: wakes everybody who sleeps on it. True when it made a
 * system call. */
static inline bool occl_word_wake(uint32_t *word, const uint32_t *sleepers, uint32_t count_max) {
    if (occl_look32(sleepers) == 0)
        return false;
    (void)occl_futex_wake(word, count_max); /* how many there were does not matter */
    return true;
}
/* The same where something else changed: the event changes too, for a sleeper that has looked and
 * is not asleep yet. The waker must still be a member of the record (it has not left), or be a lane
 * inside, or the daemon. */
static inline bool occl_event_wake(uint32_t *event, const uint32_t *sleepers, uint32_t count_max) {
    if (occl_look32(sleepers) == 0)
        return false;
    (void)occl_add32(event, 1);
    (void)occl_futex_wake(event, count_max);
    return true;
}

/* After occl_ring_publish on a completion ring: wakes the session's sleepers. Daemon, and a
 * client's thread that has taken out completions others wait for. True when it made a system call.
 *
 * The bell changes every time, also when nobody sleeps: so a waiter that reads the bell, then looks
 * for what it needs, then sleeps on the bell as it was (occl_waiter_step) misses nothing, whatever
 * it looks at. The addition is a full barrier, so this costs no more than a fence would. */
static inline bool occl_cq_wake(uint32_t *cq_bell, const uint32_t *cq_sleepers) {
    (void)occl_add32(cq_bell, 1);
    return occl_word_wake(cq_bell, cq_sleepers, OCCL_WAKES_MAX);
}

/* ---- submission doorbell ---- */

/* Daemon, before a lane parks: sets the flag of a session whose ring it has found empty. The lane
 * looks at sq.tail once more afterwards, and parks only if it is still empty. */
static inline void occl_doorbell_arm(uint32_t *daemon_sleeping) {
    occl_note32(daemon_sleeping, 1);
    occl_bell_fence();
}
/* Daemon, awake again. */
static inline void occl_doorbell_disarm(uint32_t *daemon_sleeping) {
    occl_note32(daemon_sleeping, 0);
}
/* Client, after occl_ring_publish on the submission ring: true when a DOORBELL message is needed.
 * A full socket may swallow it: then others are queued, and the daemon reads them all. */
static inline bool occl_doorbell_needed(const uint32_t *daemon_sleeping) {
    occl_bell_fence();
    return occl_peek32(daemon_sleeping) != 0;
}

/* ---- parkers: private sleep of one thread ---- */

/* word = sequence:31 | sleeping:1. Any thread wakes, one thread parks. A wake between prepare and
 * park makes park return at once, so what the owner looks at in between cannot be missed. */
struct occl_parker {
    uint32_t word;
};
static inline void occl_parker_init(struct occl_parker *parker) {
    occl_note32(&parker->word, 0);
}
/* Owner: before it looks for work one last time. */
static inline uint32_t occl_parker_prepare(struct occl_parker *parker) {
    return occl_look32(&parker->word) & ~1u;
}
/* Owner: sleeps until a wake that came after prepare returned token, or for timeout_ns
 * (UINT64_MAX: no limit). May return early. */
void occl_parker_park(struct occl_parker *parker, uint32_t token, uint64_t timeout_ns);
/* True when it made a system call. Never blocks. */
bool occl_parker_wake(struct occl_parker *parker);

/* ---- how a client waits ---- */

/* Phases: spin with pauses while every rank can have a core; then yield the core some times; then
 * sleep in bounded pieces. All numbers are fixed at attach or at creation of a communicator. */
struct occl_wait_policy {
    enum occl_ticks_source ticks_source;
    uint32_t spin_steps;      /* 0: ranks outnumber cores, never spin */
    uint64_t spin_step_ticks; /* length of one spin step; between two steps the core is yielded */
    uint32_t yields;          /* before the first sleep */
    uint64_t sleep_ns_max;
};
/* ranks and lanes that may run at once against cores they may use. */
void occl_wait_policy_choose(uint32_t runnable, uint32_t cores, enum occl_ticks_source ticks_source,
                             const struct occl_ticks_scale *scale,
                             struct occl_wait_policy *out_policy);
/* CPUs in the affinity mask of the calling thread; at least 1. */
uint32_t occl_cores_allowed(void);

enum occl_wait_step {
    OCCL_WAIT_CHANGED = 0, /* the place is no longer as it was */
    OCCL_WAIT_SPUN = 1,
    OCCL_WAIT_YIELDED = 2,
    OCCL_WAIT_SLEPT = 3,
};

/* One wait, on the waiting thread's stack. The system calls are counted, for tests and for notes.
 */
struct occl_waiter {
    uint32_t spins;
    uint32_t yields;
    uint64_t yield_calls;
    uint64_t sleep_calls;
};
static inline void occl_waiter_start(struct occl_waiter *waiter) {
    waiter->spins = waiter->yields = 0;
    waiter->yield_calls = waiter->sleep_calls = 0;
}
/* Makes one step of waiting unless the place has changed, and returns, so that the caller looks at
 * its other conditions (deadline, communicator state, daemon alive). A sleep lasts at most
 * min(policy->sleep_ns_max, sleep_ns_limit); a limit of 0 never sleeps. */
enum occl_wait_step occl_waiter_step(struct occl_waiter *waiter,
                                     const struct occl_wait_policy *policy,
                                     const struct occl_wait_place *place, uint64_t sleep_ns_limit);

#endif
