/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that one address space has to move for a collective: sum the same range of several
 * inputs and write it to several outputs. Several ways of doing so; which one is best depends on
 * caches and sizes, so all are measured. Built for the machine it runs on (-march=native).
 */
#ifndef OCCL_TOOLS_BENCH_FLOOR_KERNELS_H
#define OCCL_TOOLS_BENCH_FLOOR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More inputs, or outputs, than any point has. */
#define OCCL_BENCH_STREAMS_MAX 64u

enum occl_bench_way {
    OCCL_BENCH_WAY_LINES,     /* one vector of all inputs at a time, plain stores */
    OCCL_BENCH_WAY_LINES_NT,  /* the same with non-temporal stores */
    OCCL_BENCH_WAY_BLOCKS,    /* a block of one input at a time into a sum that stays in L1 */
    OCCL_BENCH_WAY_BLOCKS_NT, /* the same with non-temporal stores */
    OCCL_BENCH_WAY_MEMCPY,    /* the C library's copy, by blocks; one input only */
    OCCL_BENCH_WAYS,
};

/* One move. Addresses are aligned to a page; owned by the caller. */
struct occl_bench_move {
    const float *in[OCCL_BENCH_STREAMS_MAX];
    float *out[OCCL_BENCH_STREAMS_MAX];
    uint32_t in_count;
    uint32_t out_count;
    size_t elements; /* of each stream */
};

const char *occl_bench_way_name(enum occl_bench_way way);

/* Whether it is worth measuring: a copy needs one input, non-temporal stores more than a cache. */
bool occl_bench_way_fits(enum occl_bench_way way, const struct occl_bench_move *move);

/*
 * Does the part of the move that belongs to worker `worker` of `workers`. Any thread, neither
 * blocks nor allocates; what it wrote is visible to other threads after an ordinary release.
 */
void occl_bench_move_part(enum occl_bench_way way, const struct occl_bench_move *move,
                          uint32_t worker, uint32_t workers);

#endif
