/* SPDX-License-Identifier: Apache-2.0 */
/* One row: warm-up, timing, check, out of place and in place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/perf.h"

#define GUARD_BYTES 64
#define GUARD_VALUE 0xa5
#define STALE_VALUE 0xee
/* Percentiles of more samples than this do not become better. */
#define SAMPLES_MAX (1 << 20)
#define CALIBRATE_NS 2000000ull

enum occl_result occl_perf_complain(const struct occl_perf_bench *bench, const char *what,
                                    enum occl_result result) {
    const char *text = occl_last_error();
    (void)fprintf(stderr, "occl-perf: rank %d: %s: %s%s%s\n", bench->rank, what,
                  occl_result_string(result), text[0] ? ": " : "",
                  text); /* nowhere else to report */
    return result;
}

static size_t samples_of(const struct occl_perf_options *options) {
    return options->iterations < SAMPLES_MAX ? (size_t)options->iterations : SAMPLES_MAX;
}

static enum occl_result allocate(const struct occl_perf_options *options, size_t bytes,
                                 char **out_buffer) {
    if (!options->any_memory)
        return occl_mem_alloc(bytes, (void **)out_buffer);
    if (posix_memalign((void **)out_buffer, 4096, bytes) != 0)
        return OCCL_ERROR_NO_MEMORY;
    memset(*out_buffer, 0, bytes); /* pages are touched before anything is timed */
    return OCCL_SUCCESS;
}

static void release(const struct occl_perf_options *options, char *buffer) {
    if (options->any_memory)
        free(buffer);
    else
        (void)occl_mem_free(buffer); /* the process ends, and the region with it */
}

enum occl_result occl_perf_bench_open(const struct occl_perf_options *options, int job,
                                      struct occl_perf_bench *bench) {
    memset(bench, 0, sizeof *bench);
    bench->options = options;
    bench->job = job;
    bench->admin.fd = -1;
    bench->rank = -1;
    bench->clock = occl_clock_system(occl_ticks_source_probe());
    occl_ticks_calibrate(&bench->clock, CALIBRATE_NS, &bench->scale);
    enum occl_result result = occl_init_env(&bench->comm);
    if (result == OCCL_SUCCESS)
        result = occl_comm_rank(bench->comm, &bench->rank);
    if (result == OCCL_SUCCESS)
        result = occl_comm_size(bench->comm, &bench->ranks);
    if (result != OCCL_SUCCESS)
        return occl_perf_complain(bench, "joining", result);
    size_t bytes = options->max_bytes * (size_t)options->aggregate + GUARD_BYTES;
    result = allocate(options, bytes, &bench->send);
    if (result == OCCL_SUCCESS)
        result = allocate(options, bytes, &bench->recv);
    bench->samples = calloc(samples_of(options), sizeof *bench->samples);
    bench->requests = calloc(2 * (size_t)options->aggregate, sizeof *bench->requests);
    if (result == OCCL_SUCCESS && (!bench->samples || !bench->requests))
        result = OCCL_ERROR_NO_MEMORY;
    if (result != OCCL_SUCCESS)
        return occl_perf_complain(bench, "memory", result);
    if (bench->rank == 0)
        occl_perf_admin_open(bench);
    return OCCL_SUCCESS;
}

void occl_perf_bench_close(struct occl_perf_bench *bench) {
    occl_admin_close(&bench->admin);
    release(bench->options, bench->send);
    release(bench->options, bench->recv);
    free(bench->samples);
    free(bench->requests);
    (void)occl_comm_destroy(bench->comm); /* the process ends */
    (void)occl_finalize();                /* as above */
}

/* ---- one go: `aggregate` calls, complete on return ---- */

static enum occl_result go(struct occl_perf_bench *bench, const struct occl_perf_call *call,
                           int calls) {
    const struct occl_perf_options *options = bench->options;
    const struct occl_perf_op *op = options->op;
    struct occl_request *request = options->blocking ? NULL : bench->requests;
    int each = op->is_pair ? 2 : 1;
    bool group = op->is_pair || calls > 1;
    enum occl_result result = group ? occl_group_start() : OCCL_SUCCESS;
    size_t step = options->max_bytes;
    for (int i = 0; result >= 0 && i < calls; i++) {
        struct occl_perf_call one = *call;
        if (one.send)
            one.send = (const char *)one.send + (size_t)i * step;
        one.recv = (char *)one.recv + (size_t)i * step;
        result = op->call(&one, request ? request + i * each : NULL);
    }
    if (group) {
        enum occl_result ended = occl_group_end();
        result = result < 0 ? result : ended;
    }
    if (request && result >= 0)
        result = occl_wait_all(request, calls * each);
    return result;
}

static struct occl_perf_call call_of(struct occl_perf_bench *bench, const struct occl_perf_row *row,
                                     const struct occl_op_attr *attr, bool in_place) {
    return (struct occl_perf_call){
        .send = in_place ? bench->recv : bench->send,
        .recv = bench->recv,
        .count = row->count,
        .type = row->type,
        .redop = row->redop,
        .root = row->root < 0 ? 0 : row->root,
        .comm = bench->comm,
        .rank = bench->rank,
        .ranks = bench->ranks,
        .attr = attr,
    };
}

/* ---- timing ---- */

/* Mean over ranks: each contributes its own. */
static enum occl_result mean_over_ranks(struct occl_perf_bench *bench, double *in_out_value) {
    double mine = *in_out_value;
    double all;
    enum occl_result result =
        occl_all_reduce(&mine, &all, 1, OCCL_FLOAT64, OCCL_SUM, bench->comm, NULL, NULL);
    if (result == OCCL_SUCCESS)
        *in_out_value = all / bench->ranks;
    return result;
}

static void summarize(struct occl_perf_bench *bench, const struct occl_perf_row *row,
                      struct occl_perf_timing *timing) {
    size_t count = samples_of(bench->options);
    timing->variation = occl_perf_variation(bench->samples, count);
    occl_perf_sort(bench->samples, count);
    timing->p50_us = occl_perf_quantile(bench->samples, count, 0.50);
    timing->p99_us = occl_perf_quantile(bench->samples, count, 0.99);
    timing->min_us = bench->samples[0];
    timing->max_us = bench->samples[count - 1];
    timing->algbw_gbps = occl_perf_algbw_gbps(row->bytes, timing->time_us);
    timing->busbw_gbps =
        occl_perf_busbw_gbps(bench->options->op->factor, bench->ranks, row->bytes, timing->time_us);
}

static enum occl_result time_calls(struct occl_perf_bench *bench, const struct occl_perf_call *call,
                                   double *out_mean_us) {
    const struct occl_perf_options *options = bench->options;
    enum occl_ticks_source source = bench->clock.ticks_source;
    size_t samples = samples_of(options);
    double us_per_tick =
        (double)occl_ticks_span_ns(&bench->scale, 1000000) / 1e9 / options->aggregate;
    enum occl_result result = OCCL_SUCCESS;
    uint64_t first = occl_ticks(source), before = first;
    for (int i = 0; result >= 0 && i < options->iterations; i++) {
        result = go(bench, call, options->aggregate);
        uint64_t now = occl_ticks(source);
        if ((size_t)i < samples)
            bench->samples[i] = (double)(now - before) * us_per_tick;
        before = now;
    }
    *out_mean_us = (double)(before - first) * us_per_tick / options->iterations;
    return result;
}

static void add_spent(struct occl_perf_row *row, const struct occl_perf_options *options,
                      const struct occl_perf_spent *before, const struct occl_perf_spent *after) {
    double ops = (double)options->iterations * options->aggregate;
    if (!before->valid || !after->valid) {
        row->daemon_cpu_us = row->switches = row->preemptions = -1;
        return;
    }
    /* Two placements share the row. */
    double parts = options->op->has_in_place ? 2 : 1;
    row->daemon_cpu_us += (after->cpu_us - before->cpu_us) / ops / parts;
    row->switches += (after->switches - before->switches) / ops / parts;
    row->preemptions += (after->preemptions - before->preemptions) / ops / parts;
}

/* ---- check ---- */

static uint64_t count_wrong(struct occl_perf_bench *bench, const struct occl_perf_call *call,
                            uint32_t seed, bool in_place) {
    size_t bytes = call->count * occl_values_bytes(call->type);
    uint64_t wrong = 0;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        wrong += (unsigned char)bench->recv[bytes + i] != GUARD_VALUE;
    if (bench->options->op->expect(call, seed, bench->period))
        wrong += occl_values_count_wrong(call->type, bench->period, bench->recv, call->count);
    if (!in_place) {
        /* The input of an out-of-place op belongs to the caller. */
        occl_values_input(call->type, bench->rank, seed, bench->period);
        wrong += occl_values_count_wrong(call->type, bench->period, bench->send, call->count);
    }
    return wrong;
}

static enum occl_result check(struct occl_perf_bench *bench, const struct occl_perf_call *call,
                              bool in_place, int64_t *out_wrong) {
    size_t bytes = call->count * occl_values_bytes(call->type);
    int64_t wrong = 0;
    int64_t all = 0;
    enum occl_result result = OCCL_SUCCESS;
    for (int i = 0; result >= 0 && i < bench->options->checks; i++) {
        uint32_t seed = (uint32_t)(2 * i + in_place) + 1;
        occl_values_input(call->type, bench->rank, seed, bench->period);
        memset(bench->recv, STALE_VALUE, bytes);
        memset(bench->recv + bytes, GUARD_VALUE, GUARD_BYTES);
        occl_values_fill(call->type, bench->period, in_place ? bench->recv : bench->send,
                         call->count);
        result = go(bench, call, 1);
        if (result >= 0)
            wrong += (int64_t)count_wrong(bench, call, seed, in_place);
    }
    if (result >= 0)
        result = occl_all_reduce(&wrong, &all, 1, OCCL_INT64, OCCL_SUM, bench->comm, NULL, NULL);
    if (result >= 0)
        *out_wrong = all > wrong ? all : wrong; /* whatever happened to the sum, we know ours */
    return result;
}

/* ---- a row ---- */

static enum occl_result measure_place(struct occl_perf_bench *bench, struct occl_perf_row *row,
                                      const struct occl_op_attr *attr, bool in_place,
                                      struct occl_perf_timing *timing) {
    const struct occl_perf_options *options = bench->options;
    struct occl_perf_call call = call_of(bench, row, attr, in_place);
    enum occl_result result = OCCL_SUCCESS;
    timing->wrong = -1;
    for (int i = 0; result >= 0 && i < options->warmups; i++)
        result = go(bench, &call, options->aggregate);
    struct occl_perf_spent before = occl_perf_spent_now(bench);
    if (result >= 0)
        result = occl_barrier(bench->comm, NULL, NULL);
    if (result >= 0)
        result = time_calls(bench, &call, &timing->time_us);
    if (result >= 0) {
        row->transport = occl_perf_transport(bench->comm);
        result = mean_over_ranks(bench, &timing->time_us);
    }
    struct occl_perf_spent after = occl_perf_spent_now(bench);
    add_spent(row, options, &before, &after);
    if (result >= 0)
        summarize(bench, row, timing);
    if (result >= 0 && options->checks > 0)
        result = check(bench, &call, in_place, &timing->wrong);
    timing->valid = result >= 0;
    return result;
}

enum occl_result occl_perf_measure(struct occl_perf_bench *bench, struct occl_perf_row *row) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.priority = bench->options->priorities[bench->job];
    row->count = row->bytes / occl_values_bytes(row->type);
    row->bytes = row->count * occl_values_bytes(row->type);
    row->job = bench->job;
    row->daemon_cpu_us = row->switches = row->preemptions = 0;
    memset(&row->in_place, 0, sizeof row->in_place);
    memset(&row->out_of_place, 0, sizeof row->out_of_place);
    enum occl_result result = measure_place(bench, row, &attr, false, &row->out_of_place);
    if (result >= 0 && bench->options->op->has_in_place)
        result = measure_place(bench, row, &attr, true, &row->in_place);
    return result >= 0 ? OCCL_SUCCESS : occl_perf_complain(bench, bench->options->op->name, result);
}
