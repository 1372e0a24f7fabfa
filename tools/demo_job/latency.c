/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/demo_job/job.h"

#define STEPS 16
/* Durations below one octave's worth of steps have a bucket each. */

static int bucket_of(uint64_t duration_ns) {
    if (duration_ns < STEPS)
        return (int)duration_ns;
    int octave = 63 - __builtin_clzll(duration_ns); /* >= 4 */
    int step = (int)(duration_ns >> (octave - 4)) - STEPS;
    int bucket = (octave - 3) * STEPS + step;
    return bucket < OCCL_LATENCY_BUCKETS ? bucket : OCCL_LATENCY_BUCKETS - 1;
}

static uint64_t upper_end(int bucket) {
    if (bucket < STEPS)
        return (uint64_t)bucket;
    int octave = bucket / STEPS + 3;
    uint64_t step = (uint64_t)(bucket % STEPS + STEPS);
    return ((step + 1) << (octave - 4)) - 1;
}

void occl_latency_add(struct occl_latency *latency, uint64_t duration_ns) {
    latency->buckets[bucket_of(duration_ns)]++;
}

uint64_t occl_latency_quantile_ns(const struct occl_latency *latency, double share) {
    int64_t all = 0, below = 0;
    for (int i = 0; i < OCCL_LATENCY_BUCKETS; i++)
        all += latency->buckets[i];
    for (int i = 0; i < OCCL_LATENCY_BUCKETS; i++) {
        below += latency->buckets[i];
        if (all > 0 && (double)below >= share * (double)all)
            return upper_end(i);
    }
    return 0;
}
