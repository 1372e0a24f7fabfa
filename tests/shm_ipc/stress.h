/* SPDX-License-Identifier: Apache-2.0 */
/* What the stress tests share: a clock for watchdogs, shared anonymous memory, and sizes that
 * shrink under sanitizers. */
#ifndef TESTS_SHM_IPC_STRESS_H
#define TESTS_SHM_IPC_STRESS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "shm_ipc/clock.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STRESS_DIVISOR 8u
#else
#define STRESS_DIVISOR 1u
#endif

/* A lost wake-up shows as a stand-still; this is far beyond anything a loaded machine does. */
#define STRESS_PATIENCE_NS 60000000000ull

static inline uint64_t stress_now_ns(void) {
    return occl_ticks_monotonic_ns();
}

/* Ends the process when a wait has lasted too long: a hung test says nothing. */
static inline void stress_watch(uint64_t since_ns, const char *what) {
    if (stress_now_ns() - since_ns < STRESS_PATIENCE_NS)
        return;
    (void)fprintf(stderr, "watchdog: %s stands still\n", what);
    abort();
}

static inline void *stress_shared(uint64_t bytes) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        abort();
    return base;
}

/* Repeatable noise: one word of state per party. */
static inline uint32_t stress_noise(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

#endif
