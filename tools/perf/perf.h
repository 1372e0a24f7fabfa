/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of occl-perf share.
 *
 *   main.c        parses, joins the communicator, sweeps, decides the exit code
 *   options.c     flags (those of nccl-tests, and ours)
 *   names.c       names of types, operators and classes
 *   ops.c         the table of operations: how to call one, and what its output must be
 *   measure.c     one row: warm-up, timing, check
 *   check.c       fills buffers, and counts what is wrong in them
 *   background.c  traffic of another communicator beside what is measured
 *   groups.c      several groups of ranks at once
 *   path.c        how it travelled
 *   daemon.c      what the daemon spent on it
 *   report.c      text, CSV; json.c: JSON; plot.c, page.c: a picture, a page
 *   jobs.c        several jobs at once
 *   values.c, small_floats.c, formulas.c   data with its reference; arithmetic */
#ifndef TOOLS_PERF_PERF_H
#define TOOLS_PERF_PERF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "client_lib/occl.h"
#include "shm_ipc/clock.h"
#include "tools/admin/admin.h"
#include "tools/perf/formulas.h"
#include "tools/perf/values.h"

enum occl_perf_exit {
    OCCL_PERF_FINE = 0,
    /* A wrong value, less bandwidth than demanded, or output that could not be written. */
    OCCL_PERF_WRONG = 1,
    OCCL_PERF_USAGE = 2,
    OCCL_PERF_FAILED = 3, /* occl returned an error, or the time limit passed */
};

#define OCCL_PERF_JOBS_MAX 16
#define OCCL_PERF_TYPES 18
#define OCCL_PERF_REDOPS 14
#define OCCL_PERF_PERCENTILES 4

struct occl_perf_op;

enum occl_perf_style { OCCL_PERF_STYLE_NCCL, OCCL_PERF_STYLE_OSU };

/* What is done to a rank's number to find the group it belongs to, as in nccl-tests. */
enum occl_perf_split {
    OCCL_PERF_SPLIT_NONE = 0,
    OCCL_PERF_SPLIT_AND = '&',
    OCCL_PERF_SPLIT_OR = '|',
    OCCL_PERF_SPLIT_MOD = '%',
    OCCL_PERF_SPLIT_DIV = '/',
};

/* Traffic beside what is measured. */
struct occl_perf_load {
    const struct occl_perf_op *op; /* NULL: none */
    uint64_t bytes;
    int priority;
    int in_flight;
};

struct occl_perf_options {
    const struct occl_perf_op *op;
    uint64_t min_bytes, max_bytes, step_bytes;
    double factor;
    int iterations, warmups, aggregate, checks, cycles;
    enum occl_type types[OCCL_PERF_TYPES];
    int type_count;
    enum occl_redop redops[OCCL_PERF_REDOPS];
    int redop_count;
    bool all_types, all_redops; /* pairs that are not defined are passed over */
    int root;                   /* -1: each in turn */
    int timeout_s;
    int jobs;
    int priorities[OCCL_PERF_JOBS_MAX]; /* of each job's operations */
    int priority_count;
    enum occl_perf_split split;
    int split_number;
    struct occl_perf_load load;
    enum occl_perf_style style;
    bool spread;                             /* -I: minimum, maximum, 99th percentile, variation */
    bool percentiles[OCCL_PERF_PERCENTILES]; /* columns of text; in the order of the names */
    bool interval;                           /* columns of text: variation, 95 % of the median */
    bool csv, json;
    bool any_memory;
    bool special_values; /* in what is checked */
    bool blocking;
    double expected_gbps; /* of the average bus bandwidth; 0: none */
    const char *json_file;
    const char *report_file; /* .svg or .html */
};

/* Fills options from the command line; exits with OCCL_PERF_USAGE on errors. */
void occl_perf_parse(int argc, char **argv, struct occl_perf_options *out_options);

/* ---- names.c ---- */

const char *occl_perf_type_name(enum occl_type type);
const char *occl_perf_redop_name(enum occl_redop redop);
/* "bulk" and so on; NULL for OCCL_PRIORITY_DEFAULT. */
const char *occl_perf_class_name(int priority);
/* Of a job's operations, NULL for the job's own class. */
const char *occl_perf_priority_name(const struct occl_perf_options *options, int job);
/* Names between commas, or "all". Return false when one is unknown, and set *out_bad and
 * *out_bad_length to it. */
bool occl_perf_parse_types(const char *text, struct occl_perf_options *options,
                           const char **out_bad);
bool occl_perf_parse_redops(const char *text, struct occl_perf_options *options,
                            const char **out_bad);
/* A class by name or number; -2: there is no such class. */
int occl_perf_parse_class(const char *text, size_t length);
/* What -d and -o take, in words. */
#define OCCL_PERF_TYPE_WORDS                                                                    \
    "int8, uint8, int16, uint16, int32, uint32, int64, uint64, half, bfloat16, float, double, " \
    "f8e4m3, f8e5m2, float_int, double_long, int_int, long_long or all"
#define OCCL_PERF_REDOP_WORDS \
    "sum, prod, min, max, avg, premulsum, band, bor, bxor, land, lor, lxor, minloc, maxloc or all"

/* ---- ops.c ---- */

/* One call: count elements, of each block where there are blocks, of all together where these are
 * uneven. */
struct occl_perf_call {
    const struct occl_perf_op *op;
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

/* How large a buffer is. */
enum occl_perf_extent {
    OCCL_PERF_NO_DATA,
    OCCL_PERF_ONE_BLOCK,  /* count elements; the own block, where blocks are uneven */
    OCCL_PERF_ALL_BLOCKS, /* count for each rank; all of them */
};

enum occl_perf_in_place {
    OCCL_PERF_NEVER_IN_PLACE,
    OCCL_PERF_SAME_BUFFER,
    OCCL_PERF_SEND_IN_RECV, /* what is sent is the own block of the receive buffer */
    OCCL_PERF_RECV_IN_SEND, /* what is received takes the place of the own block */
};

/* What the blocks that a rank receives hold. */
enum occl_perf_result {
    OCCL_PERF_GETS_NOTHING,
    OCCL_PERF_GETS_REDUCTION,        /* of all ranks */
    OCCL_PERF_GETS_PREFIX,           /* of ranks 0 .. own */
    OCCL_PERF_GETS_EXCLUSIVE_PREFIX, /* of ranks 0 .. own - 1; rank 0 nothing */
    OCCL_PERF_GETS_ROOTS,            /* the root's input */
    OCCL_PERF_GETS_PREVIOUS,         /* the input of the rank before */
    OCCL_PERF_GETS_EACH,             /* block k: the input of rank k */
};

struct occl_perf_op {
    const char *name;
    const char *summary;
    enum occl_perf_factor factor;
    enum occl_perf_extent send, recv;
    enum occl_perf_in_place in_place;
    enum occl_perf_result result;
    bool root_sends, root_receives; /* only the root does, the others' buffers are ignored */
    bool own_part;                  /* block k of the result belongs to rank k */
    bool has_redop, has_root;
    bool uneven;  /* blocks differ (formulas.h) */
    bool rotated; /* rank r sends block (r + k) % ranks to rank k, so all send equally much */
    bool is_pair; /* two calls a go: always inside a group */
    /* Submits; out_request NULL blocks. */
    enum occl_result (*call)(const struct occl_perf_call *call, struct occl_request *out_request);
};

/* Where block `block` of the buffer with all blocks of that rank begins, in elements; block may be
 * ranks: the end. The same for what it sends and what it receives. */
size_t occl_perf_block_at(const struct occl_perf_call *call, int rank, int block);
/* Elements of a buffer of this extent, of the call's rank. */
size_t occl_perf_elements(const struct occl_perf_call *call, enum occl_perf_extent extent);

const struct occl_perf_op *occl_perf_ops(int *out_count);
/* By our name, or any that nccl-tests, MPI or OSU's programs have for it: case, underscores and a
 * "_perf" behind do not count. */
const struct occl_perf_op *occl_perf_op_find(const char *name);

static inline bool occl_perf_op_has_data(const struct occl_perf_op *op) {
    return op->send != OCCL_PERF_NO_DATA;
}
/* Blocks of `count` elements in the larger buffer. */
static inline int occl_perf_op_blocks(const struct occl_perf_op *op, int ranks) {
    return op->uneven                                                             ? 1
           : op->send == OCCL_PERF_ALL_BLOCKS || op->recv == OCCL_PERF_ALL_BLOCKS ? ranks
                                                                                  : 1;
}

/* Whether OSU's programs count the bytes of a rank's block, and not those of all. */
static inline bool occl_perf_op_is_osu_block(const struct occl_perf_op *op) {
    return !op->uneven && (op->result == OCCL_PERF_GETS_EACH || (op->own_part && !op->has_redop));
}

/* ---- check.c ---- */

#define OCCL_PERF_GUARD_BYTES 64

/* Where an op works: two buffers out of place, in place only recv. Each has room for the larger
 * extent and a guard behind. */
struct occl_perf_site {
    char *send, *recv;
    bool in_place;
};

/* Sets send and recv of *call, which has all else. */
void occl_perf_place(const struct occl_perf_site *site, struct occl_perf_call *call);
/* Fills the buffers: the inputs of a round, and behind and beside them what no op leaves. period:
 * room for one. */
void occl_perf_fill(const struct occl_perf_site *site, const struct occl_perf_call *call,
                    uint32_t seed, void *period);
/* After the op: elements of both buffers that are not as they must be, guards too. */
uint64_t occl_perf_count_wrong(const struct occl_perf_site *site, const struct occl_perf_call *call,
                               uint32_t seed, void *period);

/* ---- measure.c ---- */

struct occl_perf_timing {
    double time_us;                 /* mean over iterations and ranks */
    double slowest_us, quickest_us; /* means of the slowest and the quickest rank */
    double percentiles_us[OCCL_PERF_PERCENTILES], min_us, max_us; /* of rank 0 */
    double variation;                                             /* standard deviation over mean */
    double low_us, high_us;                                       /* 95 % interval of the median */
    double algbw_gbps, busbw_gbps;
    int64_t wrong; /* over all ranks; -1: not checked */
    bool valid;
};

/* The load while the loaded timing was taken; rank 0's view. */
struct occl_perf_background {
    uint64_t bytes; /* of one op, as it was run */
    double ops;     /* that ended meanwhile */
    double busbw_gbps;
    int64_t wrong; /* over all ranks; -1: not checked */
};

struct occl_perf_row {
    uint64_t bytes, count;
    enum occl_type type;
    enum occl_redop redop;
    int root; /* -1: none */
    int job;  /* 0 .. jobs-1 */
    int group, ranks;
    struct occl_perf_timing out_of_place, in_place;
    struct occl_perf_timing loaded; /* out of place, beside the load */
    struct occl_perf_background background;
    char transport[24];
    /* Over all timed iterations of the row, by op; negative: not known. */
    double daemon_cpu_us;
    double switches;
    double preemptions;
};

struct occl_perf_bench {
    const struct occl_perf_options *options;
    struct occl_clock clock;
    struct occl_ticks_scale scale;
    struct occl_comm world; /* all ranks of the job */
    int world_rank, world_ranks;
    struct occl_comm comm; /* what is measured: the world, or one of its groups */
    int rank, ranks;
    int group, groups;
    int least_ranks; /* of the smallest group */
    int job;
    char *send, *recv; /* each of stride_bytes x aggregate and a guard behind */
    size_t stride_bytes;
    struct occl_perf_traffic *traffic; /* the load; NULL: none */
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

/* Submits `calls` calls, each stride_bytes behind the one before, and waits for all. */
enum occl_result occl_perf_go(struct occl_perf_bench *bench, const struct occl_perf_call *call,
                              int calls);
/* Memory as the options want it, touched; and back. */
enum occl_result occl_perf_allocate(const struct occl_perf_options *options, size_t bytes,
                                    char **out_buffer);
void occl_perf_release(const struct occl_perf_options *options, char *buffer);

/* ---- groups.c ---- */

/* The group of a rank, numbered from 0 by what the split makes of the ranks; *out_groups: how many
 * there are. */
int occl_perf_group_of(const struct occl_perf_options *options, int rank, int ranks,
                       int *out_groups);
/* Sets comm, rank, ranks, group and groups from the world. Collective over it. */
enum occl_result occl_perf_groups_open(struct occl_perf_bench *bench);
/* Brings each group's row to all ranks: rows has one place a group. Collective over the world. */
enum occl_result occl_perf_groups_gather(struct occl_perf_bench *bench,
                                         const struct occl_perf_row *mine,
                                         struct occl_perf_row *rows);

/* ---- background.c ---- */

/* Makes the communicator and the buffers of the load. Collective over the world. */
enum occl_result occl_perf_traffic_open(struct occl_perf_bench *bench);
void occl_perf_traffic_close(struct occl_perf_bench *bench);
/* Fills the pipe, and waits until the first op has ended. */
enum occl_result occl_perf_traffic_start(struct occl_perf_bench *bench);
/* Submits anew what has ended. Does not block. */
enum occl_result occl_perf_traffic_refill(struct occl_perf_bench *bench);
/* Lets all ranks submit equally many, waits for them and looks at the results. */
enum occl_result occl_perf_traffic_stop(struct occl_perf_bench *bench,
                                        struct occl_perf_background *out_background);

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

/* ---- report.c, json.c, plot.c, page.c ---- */

struct occl_perf_report {
    const struct occl_perf_options *options;
    FILE *out;
    FILE *json_file; /* NULL: none */
    double busbw_sum;
    int busbw_count;
    int64_t wrong;
    int ranks, groups;
    struct occl_perf_row *kept; /* for the picture; NULL without one */
    size_t kept_count, kept_room;
    struct occl_perf_row last; /* OSU: the one printed last */
    bool has_last;
};

extern const char *const occl_perf_percentile_names[OCCL_PERF_PERCENTILES];
extern const double occl_perf_percentile_shares[OCCL_PERF_PERCENTILES];

/* pids: of each rank. */
void occl_perf_report_head(struct occl_perf_report *report, const int64_t *pids);
/* rows: one a job or one a group, all measured at once; adds a line with their total when there are
 * several. */
void occl_perf_report_rows(struct occl_perf_report *report, const struct occl_perf_row *rows,
                           int count);
/* Prints the footer and returns the exit code that the numbers deserve. */
int occl_perf_report_foot(struct occl_perf_report *report);

/* The numbers of a timing under the names that CSV and JSON give them. */
struct occl_perf_field {
    const char *name;
    size_t offset; /* of a double in struct occl_perf_timing */
    bool is_late;  /* CSV: behind the columns that were there before */
};
extern const struct occl_perf_field occl_perf_fields[];
static inline double occl_perf_field_of(const struct occl_perf_timing *timing,
                                        const struct occl_perf_field *field) {
    double value;
    memcpy(&value, (const char *)timing + field->offset, sizeof value);
    return value;
}

/* "none" where the op has none. */
const char *occl_perf_row_type(const struct occl_perf_report *report,
                               const struct occl_perf_row *row);
const char *occl_perf_row_redop(const struct occl_perf_report *report,
                                const struct occl_perf_row *row);

/* Writes one object and a line feed. */
void occl_perf_json_row(const struct occl_perf_report *report, const struct occl_perf_row *row,
                        FILE *out);
/* Writes the kept rows as a picture. */
void occl_perf_plot(const struct occl_perf_report *report, FILE *out);
/* Writes report_file, by its ending; false when that failed. */
bool occl_perf_write_report(const struct occl_perf_report *report);

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
