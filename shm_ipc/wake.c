/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/wake.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm_ipc/assert.h"

#define NS_PER_S 1000000000ull

static void futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns, int op) {
    struct timespec limit = {(time_t)(timeout_ns / NS_PER_S), (long)(timeout_ns % NS_PER_S)};
    long result =
        syscall(SYS_futex, word, op, expected, timeout_ns == UINT64_MAX ? NULL : &limit, NULL, 0);
    /* Changed, woken, interrupted and timed out are all the same to a level-triggered sleeper.
     * EFAULT cannot be a reason to spin: a hole is filled with zeros, an unmapped page faults. */
    (void)result;
}

static long futex_wake(uint32_t *word, uint32_t count, int op) {
    int limit = count > INT32_MAX ? INT32_MAX : (int)count;
    return syscall(SYS_futex, word, op, limit, NULL, NULL, 0);
}

void occl_futex_sleep(uint32_t *word, uint32_t expected, uint64_t timeout_ns) {
    futex_wait(word, expected, timeout_ns, FUTEX_WAIT);
}

int occl_futex_wake(uint32_t *word, uint32_t count) {
    long woken = futex_wake(word, count, FUTEX_WAKE);
    return woken > 0 ? (int)woken : 0;
}

bool occl_word_changed(const void *seen) {
    const struct occl_word_seen *it = seen;
    return occl_look32(it->word) != it->seen;
}

bool occl_event_sleep(const struct occl_wait_place *place, uint64_t timeout_ns) {
    bool slept = false;
    uint32_t event = occl_observe32(place->event);
    (void)occl_add32(place->sleepers, 1);
    if (!place->changed(place->what)) {
        occl_futex_sleep(place->event, event, timeout_ns);
        slept = true;
    }
    (void)occl_add32(place->sleepers, 0u - 1u);
    return slept;
}

/* Built against headers that may not know the call: the numbers are the kernel's ABI. */
#define NR_FUTEX_WAITV 449
#define WAITV_SIZE_U32 2u
struct waitv {
    uint64_t value, address;
    uint32_t flags, reserved;
};

/* False: the kernel does not do it. Changed, woken, interrupted and timed out are all the same. */
static bool futex_wait_any(const struct waitv *words, uint32_t count, uint64_t timeout_ns) {
    bool for_ever = timeout_ns == UINT64_MAX;
    struct occl_clock clock = occl_clock_system(OCCL_TICKS_NS);
    uint64_t end_ns = for_ever ? 0 : occl_clock_now_ns(&clock) + timeout_ns;
    struct timespec until = {(time_t)(end_ns / NS_PER_S), (long)(end_ns % NS_PER_S)};
    long result =
        syscall(NR_FUTEX_WAITV, words, count, 0, for_ever ? NULL : &until, CLOCK_MONOTONIC);
    return result >= 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
}

bool occl_events_sleep(const struct occl_wait_place *places, uint32_t count, uint64_t timeout_ns) {
    struct waitv words[OCCL_PLACES_MAX];
    bool changed = false;
    OCCL_ASSERT(count > 0 && count <= OCCL_PLACES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        words[i] = (struct waitv){occl_observe32(places[i].event), (uintptr_t)places[i].event,
                                  WAITV_SIZE_U32, 0};
        (void)occl_add32(places[i].sleepers, 1);
    }
    for (uint32_t i = 0; i < count && !changed; i++)
        changed = places[i].changed(places[i].what);
    if (!changed && !futex_wait_any(words, count, timeout_ns))
        occl_futex_sleep(places[0].event, (uint32_t)words[0].value,
                         timeout_ns < OCCL_POLL_NS ? timeout_ns : OCCL_POLL_NS);
    for (uint32_t i = 0; i < count; i++)
        (void)occl_add32(places[i].sleepers, 0u - 1u);
    return !changed;
}

void occl_parker_park(struct occl_parker *parker, uint32_t token, uint64_t timeout_ns) {
    uint32_t expected = token;
    if (!occl_claim32(&parker->word, &expected, token | 1u))
        return; /* woken since prepare */
    futex_wait(&parker->word, token | 1u, timeout_ns, FUTEX_WAIT_PRIVATE);
    /* Timed out or interrupted: take the announcement back, unless a waker just did. */
    expected = token | 1u;
    (void)occl_claim32(&parker->word, &expected, token);
}

bool occl_parker_wake(struct occl_parker *parker) {
    uint32_t found = occl_look32(&parker->word);
    while (!occl_claim32(&parker->word, &found, (found & ~1u) + 2))
        continue;
    if (!(found & 1u))
        return false;
    (void)futex_wake(&parker->word, 1, FUTEX_WAKE_PRIVATE);
    return true;
}

/* A rank that is not late comes within a few microseconds; the rest of the spin phase gives the
 * core to others now and then, because "as many cores as ranks" says nothing of other programs. */
#define SPIN_STEP_NS 4000
#define SPIN_STEPS 10
/* A spin step ends after so many pauses even if the ticks stand still (a scribbled source). */
#define PAUSES_PER_STEP_MAX 4096

void occl_wait_policy_choose(uint32_t runnable, uint32_t cores, enum occl_ticks_source ticks_source,
                             const struct occl_ticks_scale *scale,
                             struct occl_wait_policy *out_policy) {
    out_policy->ticks_source = ticks_source;
    out_policy->spin_steps = runnable <= cores ? SPIN_STEPS : 0;
    out_policy->spin_step_ticks = occl_ticks_of_ns(scale, SPIN_STEP_NS);
    out_policy->yields = OCCL_YIELDS_BEFORE_SLEEP;
    out_policy->sleep_ns_max = OCCL_SLEEP_MAX_NS;
}

uint32_t occl_cores_allowed(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    /* EINVAL: the machine has more CPUs than the set holds. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

/* True when the place changed within the step. */
static bool spin(const struct occl_wait_policy *policy, const struct occl_wait_place *place) {
    uint64_t start = occl_ticks(policy->ticks_source);
    for (int i = 0; i < PAUSES_PER_STEP_MAX; i++) {
        if (place->changed(place->what))
            return true;
        occl_relax();
        /* Reading the counter costs about as much as a pause. */
        if (i % 8 == 7 && occl_ticks(policy->ticks_source) - start >= policy->spin_step_ticks)
            break;
    }
    return place->changed(place->what);
}

static void yield_once(struct occl_waiter *waiter) {
    (void)sched_yield(); /* cannot fail on Linux */
    waiter->yield_calls++;
}

enum occl_wait_step occl_waiter_step(struct occl_waiter *waiter,
                                     const struct occl_wait_policy *policy,
                                     const struct occl_wait_place *place, uint64_t sleep_ns_limit) {
    if (place->changed(place->what))
        return OCCL_WAIT_CHANGED;
    if (waiter->spins < policy->spin_steps) {
        if (waiter->spins > 0)
            yield_once(waiter);
        waiter->spins++;
        return spin(policy, place) ? OCCL_WAIT_CHANGED : OCCL_WAIT_SPUN;
    }
    if (waiter->yields < policy->yields || sleep_ns_limit == 0) {
        waiter->yields++;
        yield_once(waiter);
        return place->changed(place->what) ? OCCL_WAIT_CHANGED : OCCL_WAIT_YIELDED;
    }
    uint64_t limit = sleep_ns_limit < policy->sleep_ns_max ? sleep_ns_limit : policy->sleep_ns_max;
    if (occl_event_sleep(place, limit))
        waiter->sleep_calls++;
    return place->changed(place->what) ? OCCL_WAIT_CHANGED : OCCL_WAIT_SLEPT;
}
