/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best ways for processes to meet and to exchange a few bytes: tiny collectives through one
 * shared page, which differ only in how a rank waits. What no library can beat for small messages.
 */
#ifndef OCCL_TOOLS_BENCH_FLOOR_MEET_H
#define OCCL_TOOLS_BENCH_FLOOR_MEET_H

#include <stddef.h>
#include <stdint.h>

#include "tools/bench/control.h"
#include "tools/bench/pattern.h"

/* What a rank can bring to a meeting: all sizes below 64 KiB that are measured. */
#define OCCL_BENCH_MEET_ELEMENTS ((size_t)4096)

enum occl_bench_waiting {
    OCCL_BENCH_WAITING_SPIN,  /* always looking */
    OCCL_BENCH_WAITING_YIELD, /* giving the core away */
    OCCL_BENCH_WAITING_SLEEP, /* giving it away some times, then sleeping */
};

/* What a rank lays down. turn: how often it did so for a root; written by the rank, read by the
 * root: release and acquire. */
struct occl_bench_brought {
    _Alignas(64) uint32_t turn;
    _Alignas(64) float elements[2][OCCL_BENCH_MEET_ELEMENTS];
};

/*
 * A place to meet; all zeros at the start. Where all wait for all, the last to arrive moves the
 * generation; that release store publishes what all brought (and their sum), and the waiters'
 * acquire load sees it. Where all wait for the root, it moves the generation and does not wait;
 * where the root waits for all, it looks at each one's turn. Two of everything, by turns: a slow
 * rank may still read one while the next is made, and nobody is two meetings ahead. Who runs ahead
 * of a root (or as a root) by two writes the same data once more.
 */
struct occl_bench_place {
    _Alignas(64) uint32_t arrived;
    _Alignas(64) uint32_t generation;
    uint32_t sleepers;
    _Alignas(64) float sum[2][OCCL_BENCH_MEET_ELEMENTS];
    struct occl_bench_brought brought[OCCL_BENCH_RANKS_MAX];
};

/* A rank at its place; owned by its only thread. */
struct occl_bench_visitor {
    struct occl_bench_place *place;
    enum occl_bench_waiting waiting;
    uint32_t rank;
    uint32_t ranks;
    uint32_t calls; /* the generation before the present call */
    uint32_t turns; /* calls in which the root waited for all */
};

/* One collective, the same on all ranks; a broadcast is in place in recv. Blocks. Returns 0, or 1
 * for more elements than can be brought. */
int occl_bench_meet(struct occl_bench_visitor *visitor, enum occl_bench_op op, const float *send,
                    float *recv, size_t count);

#endif
