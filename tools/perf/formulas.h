/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a benchmark row, as nccl-tests define them: pure arithmetic. */
#ifndef TOOLS_PERF_FORMULAS_H
#define TOOLS_PERF_FORMULAS_H

#include <stddef.h>
#include <stdint.h>

/* What an op's bus bandwidth is multiplied with. */
enum occl_perf_factor {
    OCCL_PERF_FACTOR_ONE = 0,        /* broadcast, reduce, send and receive */
    OCCL_PERF_FACTOR_ALL_REDUCE = 1, /* 2 (n-1) / n */
    OCCL_PERF_FACTOR_PART = 2,       /* (n-1) / n */
};

/* GB = 10^9 bytes. time_us > 0. */
double occl_perf_algbw_gbps(uint64_t bytes, double time_us);
double occl_perf_busbw_gbps(enum occl_perf_factor factor, int ranks, uint64_t bytes,
                            double time_us);

/* Blocks of different sizes that together have `total` elements, for any number of ranks. Block k
 * has weight 0 if k % 4 is 1, else 1 + k * 7 % 3; the last one has weight n + 2 whatever k is. It
 * begins at total * (sum of the weights before it) / (sum of all), rounded down, and ends where the
 * next one begins. block in 0..ranks; ranks: where all end. */
uint64_t occl_perf_uneven_at(uint64_t total, int ranks, int block);
static inline uint64_t occl_perf_uneven_count(uint64_t total, int ranks, int block) {
    return occl_perf_uneven_at(total, ranks, block + 1) - occl_perf_uneven_at(total, ranks, block);
}

/* Value below which the share (0..1) of the sorted samples lies, by the nearest rank; 0 for none.
 */
double occl_perf_quantile(const double *sorted, size_t count, double share);
/* Sorts ascending in place. */
void occl_perf_sort(double *samples, size_t count);
/* Mean, and standard deviation over mean (0 for fewer than two samples). */
double occl_perf_mean(const double *samples, size_t count);
double occl_perf_variation(const double *samples, size_t count);

/* Indices of the sorted samples between which the median lies with 95 % confidence, by order
 * statistics; the first and the last where there are too few. count >= 1. */
void occl_perf_median_interval(size_t count, size_t *out_low, size_t *out_high);

/* "8", "64K", "1.5M", "2G": powers of 1024. Returns -1 for anything else. */
int64_t occl_perf_parse_size(const char *text);
/* The size after bytes in a sweep: times factor when factor > 1, else plus step. Never stands
 * still. */
uint64_t occl_perf_next_size(uint64_t bytes, double factor, uint64_t step_bytes);

#endif
