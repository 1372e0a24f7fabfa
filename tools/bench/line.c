/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/line.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

/* The quickest batch counts: an interrupt, or a partner that is still on its way, only lengthens.
 */
#define BATCHES 12u
/* Long against reading the clock, short against the time between two interrupts. */
#define BATCH_TRIPS 32u

/* Binds the calling thread; false, and nothing is changed, if the core is not to be had. */
static bool bind_to(int core, cpu_set_t *out_before) {
    cpu_set_t before;
    cpu_set_t one;
    if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(0, sizeof before, &before) != 0) {
        return false;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        return false;
    }
    *out_before = before;
    return true;
}

static double quickest_trip_ns(struct occl_bench_line *line) {
    double quickest_ns = INFINITY;
    uint32_t number = line->ping;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        uint64_t start_ns = occl_bench_now_ns();
        for (uint32_t trip = 0; trip < BATCH_TRIPS; trip++) {
            number++;
            __atomic_store_n(&line->ping, number, __ATOMIC_RELEASE);
            while (__atomic_load_n(&line->pong, __ATOMIC_ACQUIRE) != number) {}
        }
        quickest_ns = fmin(quickest_ns, (double)(occl_bench_now_ns() - start_ns) / BATCH_TRIPS);
    }
    return quickest_ns;
}

static void answer(struct occl_bench_line *line) {
    uint32_t number = line->pong;
    for (uint32_t trip = 0; trip < BATCHES * BATCH_TRIPS; trip++) {
        number++;
        while (__atomic_load_n(&line->ping, __ATOMIC_ACQUIRE) != number) {}
        __atomic_store_n(&line->pong, number, __ATOMIC_RELEASE);
    }
}

double occl_bench_line_ns(struct occl_bench_control *control, const int cores[2]) {
    struct occl_bench_line *line = occl_bench_control_line(control);
    bool is_end = control->rank < 2;
    double found_ns = NAN;
    cpu_set_t before;
    if (control->ranks < 2 || cores[0] == cores[1]) {
        return NAN;
    }
    bool bound = is_end && bind_to(cores[control->rank], &before);
    /* Each end must know of the other: it would wait for ever for one that did not start. */
    bool both = occl_bench_control_sum(control, bound ? 1 : 0) > 1;
    if (both && control->rank == 0) {
        found_ns = quickest_trip_ns(line);
    } else if (both && is_end) {
        answer(line);
    }
    if (bound) {
        /* The mask was valid a moment ago. If a core has gone meanwhile, the rank stays bound to
         * one of those that its launcher gave it or that the tool may use. */
        (void)sched_setaffinity(0, sizeof before, &before);
    }
    occl_bench_control_meet(control);
    return found_ns;
}

void occl_bench_line_text(const double line_ns[2], char out_text[OCCL_BENCH_LINE_TEXT_BYTES]) {
    bool known = isfinite(line_ns[0]) && isfinite(line_ns[1]);
    (void)snprintf(out_text, OCCL_BENCH_LINE_TEXT_BYTES, known ? "[%.1f,%.1f]" : "null", line_ns[0],
                   line_ns[1]);
}
