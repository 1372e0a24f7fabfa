/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations that are measured, the data that goes in and what must come out.
 *
 * Element i of rank r is a small integer, (mix(i) + 5 r) mod 16, so that sums are exact in float
 * whatever the order, and the expected sum depends on mix(i) alone: a table of 16 entries.
 */
#ifndef OCCL_TOOLS_BENCH_PATTERN_H
#define OCCL_TOOLS_BENCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum occl_bench_op {
    OCCL_BENCH_ALL_REDUCE,
    OCCL_BENCH_BROADCAST,
    OCCL_BENCH_REDUCE_SCATTER,
    OCCL_BENCH_ALL_GATHER,
    OCCL_BENCH_ALL_TO_ALL,
    OCCL_BENCH_REDUCE,
    OCCL_BENCH_GATHER,
    OCCL_BENCH_SCATTER,
    OCCL_BENCH_OPS, /* how many there are */
};

/* Name as in the results; NULL for a number that is no operation. */
const char *occl_bench_op_name(enum occl_bench_op op);

/* Finds an operation by name; false if there is none. */
bool occl_bench_op_find(const char *name, size_t name_length, enum occl_bench_op *out_op);

/*
 * Elements of a call whose nominal size is `bytes`, sizes counted as nccl-tests does: what a rank
 * holds in its larger buffer. For the operations with blocks it is the elements of one block, and
 * at least one, even if that is more than `bytes`.
 */
size_t occl_bench_count(enum occl_bench_op op, uint32_t ranks, size_t bytes);

/* Elements that a rank sends and receives in a call of `count`, where it does: the root, 0, sends
 * in a scatter, and receives in a reduce and a gather. All ranks have buffers of this size. */
size_t occl_bench_send_elements(enum occl_bench_op op, uint32_t ranks, size_t count);
size_t occl_bench_recv_elements(enum occl_bench_op op, uint32_t ranks, size_t count);

/*
 * Writes what rank `rank` sends, and into the receive buffer what no operation yields. A broadcast
 * is in place, so rank 0's receive buffer gets its data.
 */
void occl_bench_fill(enum occl_bench_op op, uint32_t rank, uint32_t ranks, size_t count,
                     float *send, float *recv);

/* Counts wrong elements of the receive buffer, if the rank receives, looking at every `stride`-th
 * (1: all of them). */
size_t occl_bench_wrong(enum occl_bench_op op, uint32_t rank, uint32_t ranks, size_t count,
                        size_t stride, const float *recv);

#ifdef __cplusplus
}
#endif
#endif
