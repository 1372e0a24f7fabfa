/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's job: in each round every rank submits 161 all-reduces with the sizes of ResNet-50's
 * gradients, broadcasts with changing roots, and messages around the ring, all tagged and without
 * waiting, in an order of its own; then it waits for whatever completes next, and checks every
 * element.
 *
 *   main.c      options, rounds, report
 *   plan.c      the list of operations and its orders
 *   round.c     one round: fill, submit, wait, check
 *   latency.c   histogram that ranks can add up */
#ifndef TOOLS_DEMO_JOB_JOB_H
#define TOOLS_DEMO_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "client_lib/occl.h"
#include "shm_ipc/clock.h"
#include "tools/demo_job/resnet50.h"
#include "tools/perf/values.h"

#define OCCL_DEMO_BROADCASTS 16
#define OCCL_DEMO_MESSAGES 8
/* Each message is two operations of a rank: it sends one and receives one. */
#define OCCL_DEMO_OPS (OCCL_RESNET50_TENSORS + OCCL_DEMO_BROADCASTS + 2 * OCCL_DEMO_MESSAGES)

enum occl_demo_kind {
    OCCL_DEMO_ALL_REDUCE = 0,
    OCCL_DEMO_BROADCAST = 1,
    OCCL_DEMO_SEND = 2,
    OCCL_DEMO_RECV = 3,
};

struct occl_demo_op {
    enum occl_demo_kind kind;
    uint32_t tag;
    uint32_t elements; /* float32 */
    int root;          /* of a broadcast */
    size_t offset;     /* of its buffer in the arena, in elements */
};

struct occl_demo_plan {
    struct occl_demo_op ops[OCCL_DEMO_OPS];
    int count;
    size_t arena_elements;
    uint64_t bytes; /* that one rank's operations describe, a round */
};

/* The same on all ranks: each op has buffer space of its own, so that all may run at once. */
void occl_demo_plan_make(int ranks, struct occl_demo_plan *out_plan);
/* A permutation of the plan's indices. random: a function of seed, rank and round. Otherwise equal
 * on all ranks, except that odd ranks receive before they send: so that an executor which takes ops
 * strictly in order can finish it. */
void occl_demo_order(const struct occl_demo_plan *plan, bool random, uint64_t seed, int rank,
                     int round, int out_order[OCCL_DEMO_OPS]);

/* ---- latency.c ---- */

/* Logarithmic with 16 steps to the octave: within 5 % of the true value. Plain counters, so that an
 * all-reduce adds up those of all ranks. */
#define OCCL_LATENCY_BUCKETS (16 * 44)
struct occl_latency {
    int64_t buckets[OCCL_LATENCY_BUCKETS];
};
void occl_latency_add(struct occl_latency *latency, uint64_t duration_ns);
/* Upper end of the bucket in which the quantile (0..1) lies; 0 without samples. */
uint64_t occl_latency_quantile_ns(const struct occl_latency *latency, double share);

/* ---- round.c ---- */

struct occl_demo {
    struct occl_comm comm;
    int rank, ranks;
    bool random;
    uint64_t seed;
    struct occl_clock clock;
    struct occl_demo_plan plan;
    float *arena;
    struct occl_latency latency;
    uint64_t busy_ns;     /* from the first submission to the last completion of each round */
    uint64_t ops, wrong;  /* wrong: elements that differ from the reference */
    int progress_fd;      /* -1: none */
    uint64_t done, total; /* ops of this rank, for the progress file */
    struct occl_request requests[OCCL_DEMO_OPS];
    uint64_t submitted_ns[OCCL_DEMO_OPS];
    char period[OCCL_VALUES_PERIOD_BYTES] __attribute__((aligned(8)));
};

/* Fills, submits, waits, checks. SUCCESS also when values are wrong (they are counted); otherwise
 * the first error, already reported. */
enum occl_result occl_demo_round(struct occl_demo *demo, int round);

/* Writes done and total into the progress file, if there is one. */
void occl_demo_note_progress(struct occl_demo *demo);

#endif
