/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of one benchmark program share beside the library under test: a meeting point and
 * room for their time stamps. It is the same for every library, so that none of them pays for, or
 * gains from, its own barrier in the middle of a measurement.
 *
 * Memory order of the fields in the file:
 *
 *   field         written by            read by   store    load     pairs with
 *   arrived       every rank            last      acq_rel  acq_rel  its own earlier additions
 *   generation    the last to arrive    waiters   seq_cst  acquire  waiters' load; the futex word
 *   sleepers      waiters               last      seq_cst  seq_cst  generation (no lost wake-up)
 *   values[r]     rank r                all       plain    plain    ordered by the rendezvous
 *   stamps_ns[r]  rank r                rank 0    plain    plain    ordered by the rendezvous
 *   line          ranks 0 and 1         both      see line.h
 */
#ifndef OCCL_TOOLS_BENCH_CONTROL_H
#define OCCL_TOOLS_BENCH_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* More ranks than any point of the benchmark has; bounds the file. */
#define OCCL_BENCH_RANKS_MAX 64u
/* Stamps a rank can hold: some 4000 samples give a steady median, and 64 ranks need only 2 MiB. */
#define OCCL_BENCH_STAMPS_MAX 4096u

struct occl_bench_control_page;
struct occl_bench_line;

/* One rank's view of the shared file. Owned by the rank's only thread. */
struct occl_bench_control {
    struct occl_bench_control_page *page;
    uint32_t rank;
    uint32_t ranks;
    /* Waiting may burn the core, because there is a core for every rank. */
    bool own_core;
};

/*
 * Maps the file at `path`, which the first rank to come creates; all ranks of one run pass the same
 * path, and no path is used twice. Blocks for the system calls only. Returns 0 or an errno value;
 * out_control is written on success and lives until occl_bench_control_close.
 */
int occl_bench_control_open(const char *path, uint32_t rank, uint32_t ranks,
                            struct occl_bench_control *out_control);

/* Unmaps; takes a control that was never opened (all zero) too. The file stays. */
void occl_bench_control_close(struct occl_bench_control *control);

/* Blocks until every rank has called it; what ranks wrote before is visible to all after it. */
void occl_bench_control_meet(struct occl_bench_control *control);

/* Blocks until every rank brought a number; returns the largest, or the sum. Same on all ranks. */
double occl_bench_control_largest(struct occl_bench_control *control, double value);
double occl_bench_control_sum(struct occl_bench_control *control, double value);

/* The stamps of a rank: OCCL_BENCH_STAMPS_MAX numbers in nanoseconds, in the shared file. */
uint64_t *occl_bench_control_stamps_ns(struct occl_bench_control *control, uint32_t rank);

/* The cache lines that ranks 0 and 1 send to and fro (line.h), in the shared file. */
struct occl_bench_line *occl_bench_control_line(struct occl_bench_control *control);

/* Monotonic time in nanoseconds; one clock for all processes of a machine. */
uint64_t occl_bench_now_ns(void);

/*
 * Starts `ranks` processes by fork, each of which runs rank_main(argument, rank) and exits with its
 * result; waits for all. A rank that fails ends the others (they would wait for it for ever), but
 * not when it returns `soft_exit` (wrong data was counted, all ranks still finish). Returns the
 * first non-zero result, 128 + signal for a rank that a signal ended, or 1 if a fork fails.
 */
int occl_bench_fork_ranks(uint32_t ranks, int soft_exit, int (*rank_main)(void *, uint32_t),
                          void *argument);

#ifdef __cplusplus
}
#endif
#endif
