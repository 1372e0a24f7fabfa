/* SPDX-License-Identifier: Apache-2.0 */
/* The clock-and-randomness door: the only place where occl asks for the time, for random bytes, or
 * to be woken by time passing. Whoever needs one of these gets a struct occl_clock at construction;
 * the simulator and the tests pass a virtual one that a seed determines.
 *
 * Hot paths take timestamps in ticks, which cost no call where the time-stamp counter is invariant;
 * the source is decided once (occl_ticks_source_probe), is written into the session page, and every
 * holder of that page uses the same. Ticks are turned into nanoseconds where somebody reads them.
 */
#ifndef SHM_IPC_CLOCK_H
#define SHM_IPC_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values are ABI (session page). */
enum occl_ticks_source {
    OCCL_TICKS_NS = 1,  /* CLOCK_MONOTONIC in nanoseconds */
    OCCL_TICKS_TSC = 2, /* the processor's counter: constant rate, runs in all sleep states */
};

/* All slots are mandatory. Any thread, unless the implementation says otherwise. None allocates. */
struct occl_clock_ops {
    /* CLOCK_MONOTONIC: deadlines, ageing, waiting. */
    uint64_t (*now_ns)(void *self);
    /* Nanoseconds since 1970 in UTC: log lines and reports only; may jump. */
    uint64_t (*wall_ns)(void *self);
    /* In units of ticks_source. */
    uint64_t (*ticks)(void *self);
    /* Fills out with bytes fit for secrets. Never fails: the system's implementation aborts when
     * the kernel has no randomness to give. */
    void (*random)(void *self, void *out, size_t bytes);
    /* Blocks the calling thread for at least this long; the virtual clock only moves its time. */
    void (*sleep_ns)(void *self, uint64_t duration_ns);
};

/* Passed by pointer to whoever needs it; the owner keeps it alive. */
struct occl_clock {
    const struct occl_clock_ops *ops;
    void *self;
    enum occl_ticks_source ticks_source;
};

static inline uint64_t occl_clock_now_ns(const struct occl_clock *clock) {
    return clock->ops->now_ns(clock->self);
}
static inline uint64_t occl_clock_wall_ns(const struct occl_clock *clock) {
    return clock->ops->wall_ns(clock->self);
}
static inline uint64_t occl_clock_ticks(const struct occl_clock *clock) {
    return clock->ops->ticks(clock->self);
}
static inline void occl_clock_random(const struct occl_clock *clock, void *out, size_t bytes) {
    clock->ops->random(clock->self, out, bytes);
}
static inline void occl_clock_sleep_ns(const struct occl_clock *clock, uint64_t duration_ns) {
    clock->ops->sleep_ns(clock->self, duration_ns);
}

/* ---- the system's clock ---- */

/* TSC where the processor promises that the counter is invariant, else NS. */
enum occl_ticks_source occl_ticks_source_probe(void);
/* A clock without state: the result may be copied and needs no clean-up. */
struct occl_clock occl_clock_system(enum occl_ticks_source source);

/* CLOCK_MONOTONIC; the slow half of occl_ticks. */
uint64_t occl_ticks_monotonic_ns(void);

/* Timestamp for hot paths of real threads. An unknown source (a scribbled page) reads as NS. */
static inline uint64_t occl_ticks(enum occl_ticks_source source) {
#if defined(__x86_64__)
    if (source == OCCL_TICKS_TSC)
        return __builtin_ia32_rdtsc();
#endif
    (void)source;
    return occl_ticks_monotonic_ns();
}

/* ns = base_ns + (ticks - base_ticks) * ns_per_tick_q32 / 2^32 */
struct occl_ticks_scale {
    uint64_t base_ticks;
    uint64_t base_ns;
    uint64_t ns_per_tick_q32; /* 32 fractional bits; never 0 */
};

/* Measures the scale over span_ns (2 ms give about 0.01 %); sleeps that long when the ticks are not
 * nanoseconds already. Control path. */
void occl_ticks_calibrate(const struct occl_clock *clock, uint64_t span_ns,
                          struct occl_ticks_scale *out_scale);
/* CLOCK_MONOTONIC of a timestamp, which may come from a page that a tenant writes: any number is
 * accepted, the result saturates at 0 and UINT64_MAX. */
uint64_t occl_ticks_to_ns(const struct occl_ticks_scale *scale, uint64_t ticks);
/* Length of a span of ticks, and ticks that a span lasts; both saturate. */
uint64_t occl_ticks_span_ns(const struct occl_ticks_scale *scale, uint64_t span_ticks);
uint64_t occl_ticks_of_ns(const struct occl_ticks_scale *scale, uint64_t span_ns);

/* ---- the virtual clock ---- */

/* Owned by one thread at a time. Time moves only by occl_clock_virtual_advance and sleep_ns; ticks
 * are nanoseconds; the random bytes are a function of the seed and of the calls before. */
struct occl_clock_virtual {
    uint64_t now_ns;
    uint64_t wall_offset_ns;
    uint64_t random_state;
};
/* *v must outlive the result. Time starts at 1 s, so that "one second ago" exists. */
struct occl_clock occl_clock_virtual_init(struct occl_clock_virtual *v, uint64_t seed);
void occl_clock_virtual_advance(struct occl_clock_virtual *v, uint64_t duration_ns);

#endif
