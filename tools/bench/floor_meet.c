/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/floor_meet.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Yields before a waiter sleeps. */
#define YIELDS_BEFORE_SLEEP 16u

static void publish(struct occl_bench_place *place, uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&place->sleepers, __ATOMIC_SEQ_CST) != 0) {
        /* Waking nobody is no error. */
        (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

/* Until *word has come to `least`; numbers may wrap around. */
static void wait_for(const struct occl_bench_visitor *visitor, uint32_t *word, uint32_t least) {
    struct occl_bench_place *place = visitor->place;
    uint32_t yields = 0;
    for (;;) {
        uint32_t found = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if ((int32_t)(found - least) >= 0) {
            return;
        }
        if (visitor->waiting == OCCL_BENCH_WAITING_SPIN) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        } else if (visitor->waiting == OCCL_BENCH_WAITING_YIELD || yields++ < YIELDS_BEFORE_SLEEP) {
            (void)sched_yield();
        } else {
            __atomic_add_fetch(&place->sleepers, 1, __ATOMIC_SEQ_CST);
            /* Every way back is handled by looking again. */
            (void)syscall(SYS_futex, word, FUTEX_WAIT, found, NULL, NULL, 0);
            __atomic_sub_fetch(&place->sleepers, 1, __ATOMIC_SEQ_CST);
        }
    }
}

static const float *brought_by(const struct occl_bench_visitor *visitor, uint32_t rank) {
    return visitor->place->brought[rank].elements[visitor->calls % 2];
}

static void lay_down(struct occl_bench_visitor *visitor, const float *send, size_t elements) {
    float *own = visitor->place->brought[visitor->rank].elements[visitor->calls % 2];
    memcpy(own, send, elements * sizeof(float));
}

/* Adds up `count` elements of what all brought, from the element `first` on. */
static void add_up(const struct occl_bench_visitor *visitor, size_t first, float *sum,
                   size_t count) {
    memcpy(sum, brought_by(visitor, 0) + first, count * sizeof(float));
    for (uint32_t r = 1; r < visitor->ranks; r++) {
        const float *next = brought_by(visitor, r) + first;
        for (size_t i = 0; i < count; i++) {
            sum[i] += next[i];
        }
    }
}

/* Block k of recv becomes what rank k brought, from its element `first` on. */
static void collect(const struct occl_bench_visitor *visitor, size_t first, float *recv,
                    size_t count) {
    for (uint32_t r = 0; r < visitor->ranks; r++) {
        memcpy(recv + r * count, brought_by(visitor, r) + first, count * sizeof(float));
    }
}

/* All wait for all; the last one adds up into `sum` where it is not NULL. */
static void arrive(struct occl_bench_visitor *visitor, float *sum, size_t count) {
    struct occl_bench_place *place = visitor->place;
    if (__atomic_add_fetch(&place->arrived, 1, __ATOMIC_ACQ_REL) != visitor->ranks) {
        wait_for(visitor, &place->generation, visitor->calls + 1);
        return;
    }
    if (sum != NULL) {
        add_up(visitor, 0, sum, count);
    }
    __atomic_store_n(&place->arrived, 0, __ATOMIC_RELAXED);
    publish(place, &place->generation, visitor->calls + 1);
}

/* All wait for the root, which laid `elements` down in the sum. */
static void fan_out(struct occl_bench_visitor *visitor, const float *from, size_t elements) {
    struct occl_bench_place *place = visitor->place;
    if (visitor->rank == 0) {
        memcpy(place->sum[visitor->calls % 2], from, elements * sizeof(float));
        publish(place, &place->generation, visitor->calls + 1);
    } else {
        wait_for(visitor, &place->generation, visitor->calls + 1);
    }
}

/* The root waits for all. */
static void fan_in(struct occl_bench_visitor *visitor) {
    struct occl_bench_place *place = visitor->place;
    visitor->turns++;
    if (visitor->rank != 0) {
        publish(place, &place->brought[visitor->rank].turn, visitor->turns);
        return;
    }
    for (uint32_t r = 1; r < visitor->ranks; r++) {
        wait_for(visitor, &place->brought[r].turn, visitor->turns);
    }
}

int occl_bench_meet(struct occl_bench_visitor *visitor, enum occl_bench_op op, const float *send,
                    float *recv, size_t count) {
    float *sum = visitor->place->sum[visitor->calls % 2];
    size_t own = visitor->rank * count;
    size_t sent = occl_bench_send_elements(op, visitor->ranks, count);
    if (sent > OCCL_BENCH_MEET_ELEMENTS) {
        return 1;
    }
    if (op != OCCL_BENCH_BROADCAST && op != OCCL_BENCH_SCATTER) {
        lay_down(visitor, send, sent);
    }
    switch (op) {
    case OCCL_BENCH_ALL_REDUCE:
        arrive(visitor, sum, count);
        memcpy(recv, sum, count * sizeof(float));
        break;
    case OCCL_BENCH_REDUCE_SCATTER:
        arrive(visitor, NULL, 0);
        add_up(visitor, own, recv, count);
        break;
    case OCCL_BENCH_ALL_GATHER:
        arrive(visitor, NULL, 0);
        collect(visitor, 0, recv, count);
        break;
    case OCCL_BENCH_ALL_TO_ALL:
        arrive(visitor, NULL, 0);
        collect(visitor, own, recv, count);
        break;
    case OCCL_BENCH_BROADCAST:
        fan_out(visitor, recv, count);
        if (visitor->rank != 0) {
            memcpy(recv, sum, count * sizeof(float));
        }
        break;
    case OCCL_BENCH_SCATTER:
        fan_out(visitor, send, sent);
        memcpy(recv, sum + own, count * sizeof(float));
        break;
    case OCCL_BENCH_REDUCE:
        fan_in(visitor);
        if (visitor->rank == 0) {
            add_up(visitor, 0, recv, count);
        }
        break;
    case OCCL_BENCH_GATHER:
        fan_in(visitor);
        if (visitor->rank == 0) {
            collect(visitor, 0, recv, count);
        }
        break;
    case OCCL_BENCH_OPS:
        return 1;
    }
    visitor->calls++;
    return 0;
}
