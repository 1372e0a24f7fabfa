/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of occl-perf share.
 *
 *   main.c      parses, joins the communicator, sweeps, decides the exit code
 *   options.c   flags (those of nccl-tests, and ours)
 *   ops.c       the table of operations: how to call one, and what its output must be
 *   measure.c   one row: warm-up, timing, check
 *   path.c      how it travelled
 *   daemon.c    what the daemon spent on it
 *   report.c    text, CSV, JSON
 *   jobs.c      several jobs at once
 *   values.c, formulas.c   data with its reference; arithmetic */
#ifndef TOOLS_PERF_PERF_H
#define TOOLS_PERF_PERF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "client_lib/occl.h"
#include "shm_ipc/clock.h"
#include "tools/admin/admin.h"
#include "tools/perf/formulas.h"
#include "tools/perf/values.h"

enum occl_perf_exit {
    OCCL_PERF_FINE = 0,
    OCCL_PERF_WRONG = 1, /* a wrong value, or less bandwidth than demanded */
    OCCL_PERF_USAGE = 2,
    OCCL_PERF_FAILED = 3, /* occl returned an error, or the time limit passed */
};

#define OCCL_PERF_JOBS_MAX 16
#define OCCL_PERF_TYPES 6
#define OCCL_PERF_REDOPS 4

struct occl_perf_op;

struct occl_perf_options {
    const struct occl_perf_op *op;
    uint64_t min_bytes, max_bytes, step_bytes;
    double factor;
    int iterations, warmups, aggregate, checks, cycles;
    enum occl_type types[OCCL_PERF_TYPES];
    int type_count;
    enum occl_redop redops[OCCL_PERF_REDOPS];
    int redop_count;
    int root; /* -1: each in turn */
    int timeout_s;
    int jobs;
    int priorities[OCCL_PERF_JOBS_MAX]; /* of each job's operations */
    int priority_count;
    bool spread; /* -I: minimum, maximum, 99th percentile, variation */
    bool csv, json;
    bool any_memory;
    bool blocking;
    double expected_gbps; /* of the average bus bandwidth; 0: none */
    const char *json_file;
};

/* Fills options from the command line; exits with OCCL_PERF_USAGE on errors. */
void occl_perf_parse(int argc, char **argv, struct occl_perf_options *out_options);
const char *occl_perf_type_name(enum occl_type type);
const char *occl_perf_redop_name(enum occl_redop redop);
/* Of a job's operations: "bulk" and so on, NULL for the job's own class. */
const char *occl_perf_priority_name(const struct occl_perf_options *options, int job);

/* ---- ops.c ---- */

/* One call: buffers of count elements. */
struct occl_perf_call {
    const void *send;
    void *recv;
    size_t count;
    enum occl_type type;
    enum occl_redop redop;
    int root;
    struct occl_comm comm;
    int rank, ranks;
    const struct occl_op_attr *attr;
};

struct occl_perf_op {
    const char *name;
    const char *summary;
    enum occl_perf_factor factor;
    bool has_data, has_redop, has_root, has_in_place;
    bool is_pair; /* two calls a go: always inside a group */
    /* Submits; out_request NULL blocks. */
    enum occl_result (*call)(const struct occl_perf_call *call, struct occl_request *out_request);
    /* One period of what this rank's output must hold; false: the output is not to change. */
    bool (*expect)(const struct occl_perf_call *call, uint32_t seed, void *out_period);
};

const struct occl_perf_op *occl_perf_ops(int *out_count);
const struct occl_perf_op *occl_perf_op_find(const char *name);

/* ---- measure.c ---- */

struct occl_perf_timing {
    double time_us;                        /* mean over iterations and ranks */
    double p50_us, p99_us, min_us, max_us; /* of rank 0 */
    double variation;
    double algbw_gbps, busbw_gbps;
    int64_t wrong; /* over all ranks; -1: not checked */
    bool valid;
};

struct occl_perf_row {
    uint64_t bytes, count;
    enum occl_type type;
    enum occl_redop redop;
    int root; /* -1: none */
    int job;  /* 0 .. jobs-1 */
    struct occl_perf_timing out_of_place, in_place;
    const char *transport; /* static */
    /* Over all timed iterations of the row, by op; negative: not known. */
    double daemon_cpu_us;
    double switches;
    double preemptions;
};

struct occl_perf_bench {
    const struct occl_perf_options *options;
    struct occl_clock clock;
    struct occl_ticks_scale scale;
    struct occl_comm comm;
    int rank, ranks;
    int job;
    char *send, *recv; /* each of max_bytes x aggregate and a guard behind */
    double *samples;
    struct occl_request *requests;
    struct occl_admin admin; /* rank 0 only; fd -1: none */
    char period[OCCL_VALUES_PERIOD_BYTES] __attribute__((aligned(8)));
};

/* Joins the communicator of the environment and allocates. SUCCESS, or an error already reported.
 */
enum occl_result occl_perf_bench_open(const struct occl_perf_options *options, int job,
                                      struct occl_perf_bench *out_bench);
void occl_perf_bench_close(struct occl_perf_bench *bench);
/* Measures one row; type, redop, root and bytes of *row are set by the caller. */
enum occl_result occl_perf_measure(struct occl_perf_bench *bench, struct occl_perf_row *row);
/* Prints "occl-perf: rank N: what: text" and returns the result. */
enum occl_result occl_perf_complain(const struct occl_perf_bench *bench, const char *what,
                                    enum occl_result result);

/* path.c: how the last op of this rank travelled, a static text. */
const char *occl_perf_transport(struct occl_comm comm);

/* ---- daemon.c ---- */

struct occl_perf_spent {
    double cpu_us, switches, preemptions;
    bool valid;
};
/* What the job has used up to now, asked of the daemon; invalid where it cannot be known. */
struct occl_perf_spent occl_perf_spent_now(struct occl_perf_bench *bench);
void occl_perf_admin_open(struct occl_perf_bench *bench);

/* ---- report.c ---- */

struct occl_perf_report {
    const struct occl_perf_options *options;
    FILE *out;
    FILE *json_file; /* NULL: none */
    double busbw_sum;
    int busbw_count;
    int64_t wrong;
    int ranks;
};

/* pids: of each rank. */
void occl_perf_report_head(struct occl_perf_report *report, const int64_t *pids);
/* rows: one a job, all of the same size; adds a line with their total when there are several. */
void occl_perf_report_rows(struct occl_perf_report *report, const struct occl_perf_row *rows,
                           int jobs);
/* Prints the footer and returns the exit code that the numbers deserve. */
int occl_perf_report_foot(struct occl_perf_report *report);

/* ---- jobs.c ---- */

struct occl_perf_shared;

/* Turns this process into options->jobs processes, one a job; each gets the environment of its own
 * job. Returns this process's job number. *out_shared is the memory that the processes of this rank
 * share. */
int occl_perf_jobs_fork(const struct occl_perf_options *options,
                        struct occl_perf_shared **out_shared);
/* Meets the other jobs of this rank. */
void occl_perf_jobs_meet(struct occl_perf_shared *shared);
/* The row of a job, in the shared memory. */
struct occl_perf_row *occl_perf_jobs_row(struct occl_perf_shared *shared, int job);
/* Job 0: waits for the others and returns the worst exit code of all. */
int occl_perf_jobs_join(struct occl_perf_shared *shared, int code);

#endif
