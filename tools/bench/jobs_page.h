/* SPDX-License-Identifier: Apache-2.0 */
/* The page between tools/bench-jobs and the ranks of one job. The script makes the file, all zero
 * but stop_before; times are those of CLOCK_MONOTONIC, one clock for all processes of the machine.
 *
 * Memory order:
 *
 *   field           written by   read by      store    load     pairs with
 *   ready           each rank    script       acq_rel  plain    nothing: a count only
 *   published       script       ranks        release  acquire  windows[i] below it
 *   windows[i]      script       ranks        plain    plain    ordered by published
 *   stop            script       rank 0       plain    relaxed  nothing: a flag only
 *   stop_before     rank 0       other ranks  release  acquire  the completion of an operation
 *
 * Ranks end at the same operation: rank 0, before it submits operation n, says that n + in_flight
 * is the first that nobody submits. No rank submits that one before n has completed, which needs
 * rank 0's submission of n; so each sees the word in time. */
#ifndef TOOLS_BENCH_JOBS_PAGE_H
#define TOOLS_BENCH_JOBS_PAGE_H

#include <stddef.h>
#include <stdint.h>

#define OCCL_JOBS_WINDOWS_MAX 8

struct occl_jobs_window {
    uint64_t begin_ns, end_ns;
};

struct occl_jobs_page {
    uint64_t ready;       /* ranks that have completed their first operation */
    uint64_t published;   /* windows that are filled in */
    uint64_t stop;        /* not 0: end soon */
    uint64_t stop_before; /* the first operation that is not submitted; UINT64_MAX: none yet */
    struct occl_jobs_window windows[OCCL_JOBS_WINDOWS_MAX];
};

_Static_assert(sizeof(struct occl_jobs_page) == 160, "known to bench-jobs");
_Static_assert(offsetof(struct occl_jobs_page, windows) == 32, "known to bench-jobs");

#endif
