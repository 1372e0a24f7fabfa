/* SPDX-License-Identifier: Apache-2.0 */
/* occl-perf: sweeps sizes, types, reductions and roots of one operation. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/perf.h"

struct run {
    const struct occl_perf_options *options;
    struct occl_perf_bench bench;
    struct occl_perf_shared *shared;
    struct occl_perf_report report;
    struct occl_perf_row *rows; /* of all groups; NULL where there is one */
    bool leader;                /* prints: rank 0 of job 0 */
    int64_t wrong;
};

static void on_alarm(int number) {
    static const char text[] = "occl-perf: the time limit passed (-T)\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1); /* on the way out */
    _exit(OCCL_PERF_FAILED);
}

/* The header names each rank's process; each puts its own number into its place. */
static enum occl_result print_head(struct run *run) {
    size_t ranks = (size_t)run->bench.world_ranks;
    int64_t *mine = calloc(2 * ranks, sizeof *mine);
    if (!mine)
        return occl_perf_complain(&run->bench, "memory", OCCL_ERROR_NO_MEMORY);
    mine[run->bench.world_rank] = getpid();
    enum occl_result result = occl_all_reduce(mine, mine + ranks, ranks, OCCL_INT64, OCCL_SUM,
                                              run->bench.world, NULL, NULL);
    if (result != OCCL_SUCCESS)
        (void)occl_perf_complain(&run->bench, "first all_reduce", result); /* returned below */
    else if (run->leader)
        occl_perf_report_head(&run->report, mine + ranks);
    free(mine);
    return result;
}

static int64_t wrong_of(const struct occl_perf_row *row) {
    const int64_t found[] = {row->out_of_place.wrong, row->in_place.wrong, row->loaded.wrong,
                             row->background.wrong};
    int64_t wrong = 0;
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++)
        wrong += found[i] > 0 ? found[i] : 0;
    return wrong;
}

static enum occl_result one_row(struct run *run, uint64_t bytes, enum occl_type type,
                                enum occl_redop redop, int root) {
    struct occl_perf_row *row = occl_perf_jobs_row(run->shared, run->bench.job);
    const struct occl_perf_row *rows = occl_perf_jobs_row(run->shared, 0);
    int count = run->options->jobs;
    occl_perf_jobs_meet(run->shared);
    /* Only now has the leader printed the row before. */
    *row = (struct occl_perf_row){.bytes = bytes, .type = type, .redop = redop, .root = root};
    enum occl_result result = occl_perf_measure(&run->bench, row);
    if (result == OCCL_SUCCESS && run->rows) {
        rows = run->rows;
        count = run->bench.groups;
        result = occl_perf_groups_gather(&run->bench, row, run->rows);
    }
    if (result != OCCL_SUCCESS)
        return result;
    for (int group = 0; run->rows && group < count; group++)
        run->wrong += wrong_of(&rows[group]); /* those of other ranks, too */
    run->wrong += run->rows ? 0 : wrong_of(row);
    occl_perf_jobs_meet(run->shared);
    if (run->leader)
        occl_perf_report_rows(&run->report, rows, count);
    return OCCL_SUCCESS;
}

static enum occl_result all_roots(struct run *run, uint64_t bytes, enum occl_type type,
                                  enum occl_redop redop) {
    const struct occl_perf_options *o = run->options;
    if (!o->op->has_root)
        return one_row(run, bytes, type, redop, -1);
    int first = o->root < 0 ? 0 : o->root;
    int last = o->root < 0 ? run->bench.least_ranks - 1 : o->root;
    enum occl_result result = OCCL_SUCCESS;
    for (int root = first; result == OCCL_SUCCESS && root <= last; root++)
        result = one_row(run, bytes, type, redop, root);
    return result;
}

static enum occl_result sweep_sizes(struct run *run, enum occl_type type, enum occl_redop redop) {
    const struct occl_perf_options *o = run->options;
    if (!occl_perf_op_has_data(o->op))
        return all_roots(run, 0, type, redop);
    enum occl_result result = OCCL_SUCCESS;
    for (uint64_t bytes = o->min_bytes; result == OCCL_SUCCESS && bytes <= o->max_bytes;
         bytes = occl_perf_next_size(bytes, o->factor, o->step_bytes))
        result = all_roots(run, bytes, type, redop);
    return result;
}

static enum occl_result sweep(struct run *run) {
    const struct occl_perf_options *o = run->options;
    int types = occl_perf_op_has_data(o->op) ? o->type_count : 1;
    int redops = o->op->has_redop ? o->redop_count : 1;
    enum occl_result result = OCCL_SUCCESS;
    for (int cycle = 0; result == OCCL_SUCCESS && (o->cycles == 0 || cycle < o->cycles); cycle++)
        for (int t = 0; result == OCCL_SUCCESS && t < types; t++)
            for (int r = 0; result == OCCL_SUCCESS && r < redops; r++)
                if (!o->op->has_redop || occl_values_defined(o->types[t], o->redops[r]))
                    result = sweep_sizes(run, o->types[t], o->redops[r]);
    return result;
}

/* Opens what only the leader writes, and room for the rows of groups. Not OCCL_PERF_FINE after an
 * error was reported. */
static int open_report(struct run *run) {
    run->report = (struct occl_perf_report){.options = run->options,
                                            .out = stdout,
                                            .ranks = run->bench.world_ranks,
                                            .groups = run->bench.groups};
    if (run->bench.groups > 1) {
        run->rows = calloc((size_t)run->bench.groups, sizeof *run->rows);
        if (!run->rows) {
            (void)occl_perf_complain(&run->bench, "memory", OCCL_ERROR_NO_MEMORY);
            return OCCL_PERF_FAILED;
        }
    }
    if (!run->leader || !run->options->json_file)
        return OCCL_PERF_FINE;
    run->report.json_file = fopen(run->options->json_file, "we");
    if (run->report.json_file)
        return OCCL_PERF_FINE;
    (void)fprintf(stderr, "occl-perf: -J %s: %s\n", run->options->json_file, strerror(errno));
    return OCCL_PERF_WRONG; /* as any output that could not be written */
}

int main(int argc, char **argv) {
    static struct run run; /* the period's table is large for a stack */
    struct occl_perf_options options;
    occl_perf_parse(argc, argv, &options);
    run.options = &options;
    if (options.timeout_s) {
        (void)signal(SIGALRM, on_alarm); /* a valid number */
        (void)alarm((unsigned)options.timeout_s);
    }
    int job = occl_perf_jobs_fork(&options, &run.shared);
    if (occl_perf_bench_open(&options, job, &run.bench) != OCCL_SUCCESS)
        return OCCL_PERF_FAILED;
    run.leader = run.bench.world_rank == 0 && job == 0;
    if (options.op->has_root && options.root >= run.bench.least_ranks) {
        if (run.leader)
            (void)fprintf(stderr, "occl-perf: root %d, but there are %d ranks%s\n", options.root,
                          run.bench.least_ranks, /* nowhere else to report */
                          run.bench.groups > 1 ? " in the smallest group" : "");
        return OCCL_PERF_USAGE;
    }
    int code = open_report(&run);
    if (code != OCCL_PERF_FINE)
        return code;
    if (print_head(&run) != OCCL_SUCCESS || sweep(&run) != OCCL_SUCCESS)
        return OCCL_PERF_FAILED;
    code = run.wrong ? OCCL_PERF_WRONG : OCCL_PERF_FINE;
    if (run.leader) {
        int judged = occl_perf_report_foot(&run.report);
        code = judged > code ? judged : code;
    }
    free(run.rows);
    free(run.report.kept);
    occl_perf_bench_close(&run.bench);
    return job == 0 ? occl_perf_jobs_join(run.shared, code) : code;
}
