/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/pattern.h"

#include <string.h>

/* No sum or element of the pattern is negative, so an untouched element is always seen. */
#define UNTOUCHED (-1.0f)

static const char *const op_names[OCCL_BENCH_OPS] = {
    [OCCL_BENCH_ALL_REDUCE] = "all_reduce",
    [OCCL_BENCH_BROADCAST] = "broadcast",
    [OCCL_BENCH_REDUCE_SCATTER] = "reduce_scatter",
    [OCCL_BENCH_ALL_GATHER] = "all_gather",
    [OCCL_BENCH_ALL_TO_ALL] = "all_to_all",
    [OCCL_BENCH_REDUCE] = "reduce",
    [OCCL_BENCH_GATHER] = "gather",
    [OCCL_BENCH_SCATTER] = "scatter",
};

const char *occl_bench_op_name(enum occl_bench_op op) {
    return (unsigned)op < OCCL_BENCH_OPS ? op_names[op] : NULL;
}

bool occl_bench_op_find(const char *name, size_t name_length, enum occl_bench_op *out_op) {
    for (unsigned op = 0; op < OCCL_BENCH_OPS; op++) {
        if (strlen(op_names[op]) == name_length && memcmp(op_names[op], name, name_length) == 0) {
            *out_op = (enum occl_bench_op)op;
            return true;
        }
    }
    return false;
}

static bool has_blocks(enum occl_bench_op op) {
    return op == OCCL_BENCH_REDUCE_SCATTER || op == OCCL_BENCH_ALL_GATHER ||
           op == OCCL_BENCH_ALL_TO_ALL || op == OCCL_BENCH_GATHER || op == OCCL_BENCH_SCATTER;
}

size_t occl_bench_count(enum occl_bench_op op, uint32_t ranks, size_t bytes) {
    size_t count = bytes / sizeof(float) / (has_blocks(op) ? ranks : 1);
    return count > 0 ? count : 1;
}

size_t occl_bench_send_elements(enum occl_bench_op op, uint32_t ranks, size_t count) {
    bool all =
        op == OCCL_BENCH_REDUCE_SCATTER || op == OCCL_BENCH_ALL_TO_ALL || op == OCCL_BENCH_SCATTER;
    return all ? count * ranks : count;
}

size_t occl_bench_recv_elements(enum occl_bench_op op, uint32_t ranks, size_t count) {
    bool all =
        op == OCCL_BENCH_ALL_GATHER || op == OCCL_BENCH_ALL_TO_ALL || op == OCCL_BENCH_GATHER;
    return all ? count * ranks : count;
}

/* Multiplicative hashing: no short period, so data that landed at a wrong place is seen. */
static uint32_t mix(size_t i) {
    return ((uint32_t)i * 2654435761u) >> 28;
}

static float element(uint32_t rank, size_t i) {
    return (float)((mix(i) + 5 * rank) & 15);
}

void occl_bench_fill(enum occl_bench_op op, uint32_t rank, uint32_t ranks, size_t count,
                     float *send, float *recv) {
    size_t sent = occl_bench_send_elements(op, ranks, count);
    size_t received = occl_bench_recv_elements(op, ranks, count);
    for (size_t i = 0; i < sent; i++) {
        send[i] = element(rank, i);
    }
    if (op == OCCL_BENCH_BROADCAST && rank == 0) {
        memcpy(recv, send, received * sizeof(float));
        return;
    }
    for (size_t i = 0; i < received; i++) {
        recv[i] = UNTOUCHED;
    }
}

/* Compares with the elements of one rank, from its element `first` on. */
static size_t wrong_copy(const float *got, size_t count, size_t stride, uint32_t source,
                         size_t first) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i += stride) {
        wrong += got[i] != element(source, first + i);
    }
    return wrong;
}

static size_t wrong_sum(const float *got, size_t count, size_t stride, uint32_t ranks,
                        size_t first) {
    float expected[16];
    for (uint32_t mixed = 0; mixed < 16; mixed++) {
        expected[mixed] = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            expected[mixed] += (float)((mixed + 5 * r) & 15);
        }
    }
    size_t wrong = 0;
    for (size_t i = 0; i < count; i += stride) {
        wrong += got[i] != expected[mix(first + i)];
    }
    return wrong;
}

size_t occl_bench_wrong(enum occl_bench_op op, uint32_t rank, uint32_t ranks, size_t count,
                        size_t stride, const float *recv) {
    size_t wrong = 0;
    if ((op == OCCL_BENCH_REDUCE || op == OCCL_BENCH_GATHER) && rank != 0) {
        return 0;
    }
    switch (op) {
    case OCCL_BENCH_ALL_REDUCE:
    case OCCL_BENCH_REDUCE:
        return wrong_sum(recv, count, stride, ranks, 0);
    case OCCL_BENCH_REDUCE_SCATTER:
        return wrong_sum(recv, count, stride, ranks, rank * count);
    case OCCL_BENCH_BROADCAST:
        return wrong_copy(recv, count, stride, 0, 0);
    case OCCL_BENCH_SCATTER:
        return wrong_copy(recv, count, stride, 0, rank * count);
    case OCCL_BENCH_ALL_GATHER:
    case OCCL_BENCH_GATHER:
        for (uint32_t r = 0; r < ranks; r++) {
            wrong += wrong_copy(recv + r * count, count, stride, r, 0);
        }
        return wrong;
    case OCCL_BENCH_ALL_TO_ALL:
        for (uint32_t r = 0; r < ranks; r++) {
            wrong += wrong_copy(recv + r * count, count, stride, r, rank * count);
        }
        return wrong;
    case OCCL_BENCH_OPS:
        break;
    }
    return wrong;
}
