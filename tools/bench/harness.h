/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures one library: buffers, verification, warm-up, number of calls, stamps, results. Every
 * library is a backend of a few functions, so all are measured by the same code.
 *
 * What a sample is:
 *
 *   loop  Calls follow each other. A sample is the time between two moments at which the last rank
 *         returned, divided by the calls between them (several when calls are very short).
 *   sync  All ranks meet, then call once. A sample runs from the first rank that enters to the last
 *         that leaves. Used where one rank only gives or takes, and little: in a loop those who
 *         give run ahead of the others, and the loop would show a rate, not how long an operation
 *         takes.
 *
 * A result is one line of JSON; README.md lists its keys.
 */
#ifndef OCCL_TOOLS_BENCH_HARNESS_H
#define OCCL_TOOLS_BENCH_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/bench/pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* More points than one start of a program measures. */
#define OCCL_BENCH_POINTS_MAX 128u
/* Exit status of a run in which every call worked but some result was wrong. */
#define OCCL_BENCH_EXIT_WRONG 3

struct occl_bench_point {
    enum occl_bench_op op;
    size_t bytes; /* nominal */
    bool sync;
};

struct occl_bench_options {
    const char *control_path; /* see control.h; never NULL after parsing */
    const char *out_path;     /* result lines are appended here; NULL: standard output */
    const char *setting;      /* name of the setting, copied into the results */
    const char *backend;      /* a word for the backend itself (--backend), or NULL */
    uint32_t round;
    uint32_t ranks;      /* --ranks, for programs that start their own ranks; 0: not given */
    uint64_t budget_ns;  /* for the timed calls of one point */
    size_t check_stride; /* look at every n-th element; 0: no check */
    bool pin;            /* bind each rank to one core, by turns */
    int line_cores[2];   /* between these the distance is measured; twice the same: it is not */
    struct occl_bench_point points[OCCL_BENCH_POINTS_MAX];
    uint32_t point_count;
};

/*
 * A library under test, as one rank sees it. Strings and self belong to the program and outlive the
 * run; the functions are called by the rank's only thread and return 0 or non-zero (the run ends).
 */
struct occl_bench_backend {
    const char *peer;    /* openmpi, mpich, gloo, occl, ... */
    const char *version; /* as the library tells it */
    uint32_t rank;
    uint32_t ranks;
    void *self;
    /* Whether the library has the operation; NULL: it has all of them. */
    bool (*supports)(void *self, enum occl_bench_op op);
    /* One blocking call; count as occl_bench_count gives it; broadcast is in place in recv. */
    int (*run)(void *self, enum occl_bench_op op, float *send, float *recv, size_t count);
    /* Where buffers come from; NULL: private memory, with huge pages where the kernel has them. */
    void *(*alloc)(void *self, size_t bytes);
};

/*
 * Reads the command line; prints what is wrong, and how to use it, to standard error. Returns 0 or
 * a non-zero exit status. The strings of argv are kept, not copied.
 */
int occl_bench_parse(int argc, char **argv, struct occl_bench_options *out_options);

/*
 * Measures all points; called by every rank. Blocks until all ranks are done. Returns the exit
 * status: 0, OCCL_BENCH_EXIT_WRONG, or 1 if a call or the machine failed (told on standard error).
 */
int occl_bench_measure(struct occl_bench_backend *backend,
                       const struct occl_bench_options *options);

/* Binds the calling thread to one usable core; ranks beyond the cores start again with the first.
 */
void occl_bench_pin(uint32_t rank);

#ifdef __cplusplus
}
#endif
#endif
