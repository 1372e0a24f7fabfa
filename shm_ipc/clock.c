/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/clock.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "shm_ipc/assert.h"

#define NS_PER_S 1000000000ull

/* ---- the system's clock ---- */

static uint64_t read_clock(clockid_t id) {
    struct timespec t;
    OCCL_ASSERT(clock_gettime(id, &t) == 0);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t occl_ticks_monotonic_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

static uint64_t system_now(void *self) {
    (void)self;
    return read_clock(CLOCK_MONOTONIC);
}

static uint64_t system_wall(void *self) {
    (void)self;
    return read_clock(CLOCK_REALTIME);
}

static uint64_t system_ticks_tsc(void *self) {
    (void)self;
    return occl_ticks(OCCL_TICKS_TSC);
}

static void system_random(void *self, void *out, size_t bytes) {
    (void)self;
    char *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        /* Secrets made without randomness would let strangers join communicators. */
        OCCL_ASSERT(got > 0);
        at += got;
        bytes -= (size_t)got;
    }
}

static void system_sleep(void *self, uint64_t duration_ns) {
    (void)self;
    struct timespec left = {(time_t)(duration_ns / NS_PER_S), (long)(duration_ns % NS_PER_S)};
    int error;
    do {
        error = clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left);
    } while (error == EINTR);
    OCCL_ASSERT(error == 0);
}

static const struct occl_clock_ops system_ns_ops = {
    .now_ns = system_now,
    .wall_ns = system_wall,
    .ticks = system_now,
    .random = system_random,
    .sleep_ns = system_sleep,
};
static const struct occl_clock_ops system_tsc_ops = {
    .now_ns = system_now,
    .wall_ns = system_wall,
    .ticks = system_ticks_tsc,
    .random = system_random,
    .sleep_ns = system_sleep,
};

enum occl_ticks_source occl_ticks_source_probe(void) {
#if defined(__x86_64__)
    /* Bit 8: the counter has a constant rate in all P-, C- and T-states, which is what the kernel
     * shows as constant_tsc and nonstop_tsc. */
    unsigned int a, b, c, d;
    if (__get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8)))
        return OCCL_TICKS_TSC;
#endif
    return OCCL_TICKS_NS;
}

struct occl_clock occl_clock_system(enum occl_ticks_source source) {
    struct occl_clock clock = {&system_ns_ops, NULL, OCCL_TICKS_NS};
    if (source == OCCL_TICKS_TSC) {
        clock.ops = &system_tsc_ops;
        clock.ticks_source = OCCL_TICKS_TSC;
    }
    return clock;
}

/* ---- ticks to nanoseconds ---- */

struct moment {
    uint64_t ticks;
    uint64_t ns;
};

/* The reading whose two tick stamps lie closest together was disturbed least. */
static struct moment read_moment(const struct occl_clock *clock) {
    struct moment best = {0, 0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t before = occl_clock_ticks(clock);
        uint64_t ns = occl_clock_now_ns(clock);
        uint64_t width = occl_clock_ticks(clock) - before;
        if (width < best_width) {
            best_width = width;
            best.ticks = before + width / 2;
            best.ns = ns;
        }
    }
    return best;
}

void occl_ticks_calibrate(const struct occl_clock *clock, uint64_t span_ns,
                          struct occl_ticks_scale *out_scale) {
    out_scale->base_ticks = 0;
    out_scale->base_ns = 0;
    out_scale->ns_per_tick_q32 = 1ull << 32;
    if (clock->ticks_source == OCCL_TICKS_NS)
        return;
    struct moment from = read_moment(clock);
    occl_clock_sleep_ns(clock, span_ns);
    struct moment to = read_moment(clock);
    uint64_t ticks = to.ticks - from.ticks;
    unsigned __int128 ns_q32 = (unsigned __int128)(to.ns - from.ns) << 32;
    out_scale->base_ticks = to.ticks;
    out_scale->base_ns = to.ns;
    if (ticks > 0 && ns_q32 / ticks > 0 && ns_q32 / ticks <= UINT64_MAX)
        out_scale->ns_per_tick_q32 = (uint64_t)(ns_q32 / ticks);
}

static uint64_t saturate(unsigned __int128 value) {
    return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

uint64_t occl_ticks_span_ns(const struct occl_ticks_scale *scale, uint64_t span_ticks) {
    return saturate(((unsigned __int128)span_ticks * scale->ns_per_tick_q32) >> 32);
}

uint64_t occl_ticks_of_ns(const struct occl_ticks_scale *scale, uint64_t span_ns) {
    return saturate(((unsigned __int128)span_ns << 32) / scale->ns_per_tick_q32);
}

uint64_t occl_ticks_to_ns(const struct occl_ticks_scale *scale, uint64_t ticks) {
    if (ticks >= scale->base_ticks) {
        uint64_t after = occl_ticks_span_ns(scale, ticks - scale->base_ticks);
        return saturate((unsigned __int128)scale->base_ns + after);
    }
    uint64_t before = occl_ticks_span_ns(scale, scale->base_ticks - ticks);
    return before < scale->base_ns ? scale->base_ns - before : 0;
}

/* ---- the virtual clock ---- */

static uint64_t virtual_now(void *self) {
    return ((struct occl_clock_virtual *)self)->now_ns;
}

static uint64_t virtual_wall(void *self) {
    const struct occl_clock_virtual *v = self;
    return v->now_ns + v->wall_offset_ns;
}

/* A counter through a mixing function: every seed gives its own stream, and state is one word. */
static uint64_t virtual_word(struct occl_clock_virtual *v) {
    uint64_t x = v->random_state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static void virtual_random(void *self, void *out, size_t bytes) {
    unsigned char *at = out;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = virtual_word(self);
        for (size_t j = i; j < bytes && j < i + 8; j++, word >>= 8)
            at[j] = (unsigned char)word;
    }
}

static void virtual_sleep(void *self, uint64_t duration_ns) {
    occl_clock_virtual_advance(self, duration_ns);
}

static const struct occl_clock_ops virtual_ops = {
    .now_ns = virtual_now,
    .wall_ns = virtual_wall,
    .ticks = virtual_now,
    .random = virtual_random,
    .sleep_ns = virtual_sleep,
};

struct occl_clock occl_clock_virtual_init(struct occl_clock_virtual *v, uint64_t seed) {
    v->now_ns = NS_PER_S;
    /* Any fixed day will do; it must be the same in every run. */
    v->wall_offset_ns = 1700000000ull * NS_PER_S;
    v->random_state = seed;
    struct occl_clock clock = {&virtual_ops, v, OCCL_TICKS_NS};
    return clock;
}

void occl_clock_virtual_advance(struct occl_clock_virtual *v, uint64_t duration_ns) {
    v->now_ns += duration_ns;
}
