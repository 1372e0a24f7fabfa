/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/perf/formulas.h"

#include <math.h>
#include <stdlib.h>

double occl_perf_algbw_gbps(uint64_t bytes, double time_us) {
    return time_us > 0 ? (double)bytes / 1e9 / (time_us / 1e6) : 0;
}

double occl_perf_busbw_gbps(enum occl_perf_factor factor, int ranks, uint64_t bytes,
                            double time_us) {
    double algbw = occl_perf_algbw_gbps(bytes, time_us);
    double n = ranks;
    switch (factor) {
    case OCCL_PERF_FACTOR_ALL_REDUCE:
        return algbw * 2 * (n - 1) / n;
    case OCCL_PERF_FACTOR_PART:
        return algbw * (n - 1) / n;
    case OCCL_PERF_FACTOR_ONE:
        break;
    }
    return algbw;
}

uint64_t occl_perf_uneven_at(uint64_t total, int ranks, int block) {
    uint64_t before = 0, all = 0;
    for (int k = 0; k < ranks; k++) {
        uint64_t weight = k == ranks - 1 ? (uint64_t)ranks + 2
                          : k % 4 == 1   ? 0
                                         : 1 + (uint64_t)k * 7 % 3;
        before += k < block ? weight : 0;
        all += weight;
    }
    return (uint64_t)((unsigned __int128)total * before / all);
}

double occl_perf_quantile(const double *sorted, size_t count, double share) {
    if (count == 0)
        return 0;
    double place = ceil(share * (double)count);
    size_t index = place < 1 ? 0 : (size_t)place - 1;
    return sorted[index < count ? index : count - 1];
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void occl_perf_sort(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, compare);
}

double occl_perf_mean(const double *samples, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += samples[i];
    return count ? sum / (double)count : 0;
}

double occl_perf_variation(const double *samples, size_t count) {
    double mean = occl_perf_mean(samples, count);
    double sum = 0;
    if (count < 2 || mean <= 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        sum += (samples[i] - mean) * (samples[i] - mean);
    return sqrt(sum / (double)(count - 1)) / mean;
}

void occl_perf_median_interval(size_t count, size_t *out_low, size_t *out_high) {
    /* How many samples lie below the median is binomial: half of them, with a deviation of half the
     * root of their number. */
    double reach = 1.96 * sqrt((double)count) / 2;
    double low = floor((double)count / 2 - reach);
    *out_low = low < 1 ? 0 : (size_t)low - 1;
    *out_high = count - 1 - *out_low;
}

int64_t occl_perf_parse_size(const char *text) {
    char *end;
    double value = strtod(text, &end);
    double unit = 1;
    if (end == text || !(value >= 0))
        return -1;
    switch (*end) {
    case 'k':
    case 'K':
        unit = 1024.0;
        end++;
        break;
    case 'm':
    case 'M':
        unit = 1024.0 * 1024;
        end++;
        break;
    case 'g':
    case 'G':
        unit = 1024.0 * 1024 * 1024;
        end++;
        break;
    default:
        break;
    }
    /* 64 KiB may also be written 64KiB or 64KB. */
    if (unit > 1 && *end == 'i')
        end++;
    if (*end == 'B')
        end++;
    if (*end != '\0' || value * unit > 1e15)
        return -1;
    return (int64_t)(value * unit);
}

uint64_t occl_perf_next_size(uint64_t bytes, double factor, uint64_t step_bytes) {
    uint64_t next = factor > 1 ? (uint64_t)((double)bytes * factor) : bytes + step_bytes;
    return next > bytes ? next : bytes + 1;
}
