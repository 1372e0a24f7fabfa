/* SPDX-License-Identifier: Apache-2.0 */
/* One row: warm-up, timing, check, out of place and in place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/perf.h"

/* Percentiles of more samples than this do not become better. */
#define SAMPLES_MAX (1 << 20)
#define CALIBRATE_NS 2000000ull

enum occl_result occl_perf_complain(const struct occl_perf_bench *bench, const char *what,
                                    enum occl_result result) {
    const char *text = occl_last_error();
    char who[24] = "";
    if (bench->rank >= 0)                                          /* or it is none yet */
        (void)snprintf(who, sizeof who, "rank %d: ", bench->rank); /* fits */
    (void)fprintf(stderr, "occl-perf: %s%s: %s%s%s\n", who, what, occl_result_string(result),
                  text[0] ? ": " : "", text); /* nowhere else to report */
    return result;
}

static size_t samples_of(const struct occl_perf_options *options) {
    return options->iterations < SAMPLES_MAX ? (size_t)options->iterations : SAMPLES_MAX;
}

enum occl_result occl_perf_allocate(const struct occl_perf_options *options, size_t bytes,
                                    char **out_buffer) {
    if (!options->any_memory)
        return occl_mem_alloc(bytes, (void **)out_buffer);
    if (posix_memalign((void **)out_buffer, 4096, bytes) != 0)
        return OCCL_ERROR_NO_MEMORY;
    memset(*out_buffer, 0, bytes); /* pages are touched before anything is timed */
    return OCCL_SUCCESS;
}

void occl_perf_release(const struct occl_perf_options *options, char *buffer) {
    if (options->any_memory)
        free(buffer);
    else
        (void)occl_mem_free(buffer); /* the process ends, and the region with it */
}

/* How many of the sizes of -b and -e the larger buffer has: 1 as nccl-tests counts, but OSU's
 * programs count a rank's block. */
static size_t sizes_of(const struct occl_perf_bench *bench) {
    return bench->options->style == OCCL_PERF_STYLE_OSU &&
                   occl_perf_op_is_osu_block(bench->options->op)
               ? (size_t)occl_perf_op_blocks(bench->options->op, bench->ranks)
               : 1;
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
    enum occl_result result = occl_init_env(&bench->world);
    if (result == OCCL_SUCCESS)
        result = occl_comm_rank(bench->world, &bench->world_rank);
    if (result == OCCL_SUCCESS)
        result = occl_comm_size(bench->world, &bench->world_ranks);
    if (result == OCCL_SUCCESS)
        result = occl_perf_groups_open(bench);
    if (result != OCCL_SUCCESS)
        return occl_perf_complain(bench, "joining", result);
    /* Calls of a group lie behind each other, each aligned for every type. */
    bench->stride_bytes = (options->max_bytes * sizes_of(bench) + 63) / 64 * 64;
    size_t bytes = bench->stride_bytes * (size_t)options->aggregate + OCCL_PERF_GUARD_BYTES;
    result = occl_perf_allocate(options, bytes, &bench->send);
    if (result == OCCL_SUCCESS)
        result = occl_perf_allocate(options, bytes, &bench->recv);
    bench->samples = calloc(samples_of(options), sizeof *bench->samples);
    bench->requests = calloc(2 * (size_t)options->aggregate, sizeof *bench->requests);
    if (result == OCCL_SUCCESS && (!bench->samples || !bench->requests))
        result = OCCL_ERROR_NO_MEMORY;
    if (result != OCCL_SUCCESS)
        return occl_perf_complain(bench, "memory", result);
    if (bench->rank == 0)
        occl_perf_admin_open(bench);
    return options->load.op ? occl_perf_traffic_open(bench) : OCCL_SUCCESS;
}

void occl_perf_bench_close(struct occl_perf_bench *bench) {
    occl_perf_traffic_close(bench);
    occl_admin_close(&bench->admin);
    occl_perf_release(bench->options, bench->send);
    occl_perf_release(bench->options, bench->recv);
    free(bench->samples);
    free(bench->requests);
    (void)occl_comm_destroy(bench->world); /* the process ends */
    (void)occl_finalize();                 /* as above */
}

/* ---- one go: `aggregate` calls, complete on return ---- */

enum occl_result occl_perf_go(struct occl_perf_bench *bench, const struct occl_perf_call *call,
                              int calls) {
    const struct occl_perf_options *options = bench->options;
    const struct occl_perf_op *op = options->op;
    struct occl_request *request = options->blocking ? NULL : bench->requests;
    int each = op->is_pair ? 2 : 1;
    bool group = op->is_pair || calls > 1;
    enum occl_result result = group ? occl_group_start() : OCCL_SUCCESS;
    for (int i = 0; result >= 0 && i < calls; i++) {
        struct occl_perf_call one = *call;
        one.send = (const char *)one.send + (size_t)i * bench->stride_bytes;
        one.recv = (char *)one.recv + (size_t)i * bench->stride_bytes;
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

static struct occl_perf_call call_of(const struct occl_perf_bench *bench,
                                     const struct occl_perf_row *row,
                                     const struct occl_op_attr *attr,
                                     const struct occl_perf_site *site) {
    struct occl_perf_call call = {
        .op = bench->options->op,
        .count = row->count,
        .type = row->type,
        .redop = row->redop,
        .root = row->root < 0 ? 0 : row->root,
        .comm = bench->comm,
        .rank = bench->rank,
        .ranks = bench->ranks,
        .attr = attr,
    };
    occl_perf_place(site, &call);
    return call;
}

/* ---- timing ---- */

/* From each rank's own mean: the mean of all, the slowest and the quickest. */
static enum occl_result over_ranks(struct occl_perf_bench *bench, double mine_us,
                                   struct occl_perf_timing *timing) {
    double ends[2] = {mine_us, -mine_us};
    double all;
    enum occl_result result =
        occl_all_reduce(&mine_us, &all, 1, OCCL_FLOAT64, OCCL_SUM, bench->comm, NULL, NULL);
    if (result == OCCL_SUCCESS)
        result = occl_all_reduce(ends, ends, 2, OCCL_FLOAT64, OCCL_MAX, bench->comm, NULL, NULL);
    timing->time_us = all / bench->ranks;
    timing->slowest_us = ends[0];
    timing->quickest_us = -ends[1];
    return result;
}

static void summarize(struct occl_perf_bench *bench, const struct occl_perf_row *row,
                      struct occl_perf_timing *timing) {
    size_t count = samples_of(bench->options);
    size_t low, high;
    timing->variation = occl_perf_variation(bench->samples, count);
    occl_perf_sort(bench->samples, count);
    for (int i = 0; i < OCCL_PERF_PERCENTILES; i++)
        timing->percentiles_us[i] =
            occl_perf_quantile(bench->samples, count, occl_perf_percentile_shares[i]);
    timing->min_us = bench->samples[0];
    timing->max_us = bench->samples[count - 1];
    occl_perf_median_interval(count, &low, &high);
    timing->low_us = bench->samples[low];
    timing->high_us = bench->samples[high];
    timing->algbw_gbps = occl_perf_algbw_gbps(row->bytes, timing->time_us);
    timing->busbw_gbps =
        occl_perf_busbw_gbps(bench->options->op->factor, bench->ranks, row->bytes, timing->time_us);
}

/* Beside a load each iteration is timed by itself, since the load is submitted anew between two. */
static enum occl_result time_calls(struct occl_perf_bench *bench, const struct occl_perf_call *call,
                                   bool loaded, double *out_mean_us) {
    const struct occl_perf_options *options = bench->options;
    enum occl_ticks_source source = bench->clock.ticks_source;
    size_t samples = samples_of(options);
    double us_per_tick =
        (double)occl_ticks_span_ns(&bench->scale, 1000000) / 1e9 / options->aggregate;
    enum occl_result result = OCCL_SUCCESS;
    uint64_t spent = 0;
    uint64_t before = occl_ticks(source);
    for (int i = 0; result >= 0 && i < options->iterations; i++) {
        if (loaded) {
            result = occl_perf_traffic_refill(bench);
            if (result < 0)
                break;
            before = occl_ticks(source);
        }
        result = occl_perf_go(bench, call, options->aggregate);
        uint64_t now = occl_ticks(source);
        if ((size_t)i < samples)
            bench->samples[i] = (double)(now - before) * us_per_tick;
        spent += now - before;
        before = now;
    }
    *out_mean_us = (double)spent * us_per_tick / options->iterations;
    return result;
}

/* OSU's programs know no such thing. */
static bool has_in_place(const struct occl_perf_options *options) {
    return options->op->in_place != OCCL_PERF_NEVER_IN_PLACE &&
           options->style != OCCL_PERF_STYLE_OSU;
}

static void add_spent(struct occl_perf_row *row, const struct occl_perf_options *options,
                      const struct occl_perf_spent *before, const struct occl_perf_spent *after) {
    double ops = (double)options->iterations * options->aggregate;
    if (!before->valid || !after->valid) {
        row->daemon_cpu_us = row->switches = row->preemptions = -1;
        return;
    }
    /* Two placements share the row. */
    double parts = has_in_place(options) ? 2 : 1;
    row->daemon_cpu_us += (after->cpu_us - before->cpu_us) / ops / parts;
    row->switches += (after->switches - before->switches) / ops / parts;
    row->preemptions += (after->preemptions - before->preemptions) / ops / parts;
}

static enum occl_result check(struct occl_perf_bench *bench, const struct occl_perf_site *site,
                              const struct occl_perf_call *call, int64_t *out_wrong) {
    int64_t wrong = 0;
    int64_t all = 0;
    enum occl_result result = OCCL_SUCCESS;
    for (int i = 0; result >= 0 && i < bench->options->checks; i++) {
        uint32_t seed = (uint32_t)(2 * i + site->in_place) + 1;
        seed |= bench->options->special_values ? OCCL_VALUES_SPECIAL : 0;
        occl_perf_fill(site, call, seed, bench->period);
        result = occl_perf_go(bench, call, 1);
        if (result >= 0)
            wrong += (int64_t)occl_perf_count_wrong(site, call, seed, bench->period);
    }
    if (result >= 0)
        result = occl_all_reduce(&wrong, &all, 1, OCCL_INT64, OCCL_SUM, bench->comm, NULL, NULL);
    if (result >= 0)
        *out_wrong = all > wrong ? all : wrong; /* whatever happened to the sum, we know ours */
    return result;
}

/* ---- a row ---- */

/* Ordinary numbers in all buffers: what an earlier row left there may be denormal in this type, and
 * slow. */
static void prepare(struct occl_perf_bench *bench, const struct occl_perf_site *site,
                    const struct occl_perf_call *call) {
    for (int i = 0; i < bench->options->aggregate; i++) {
        size_t at = (size_t)i * bench->stride_bytes;
        struct occl_perf_site next = {site->send + at, site->recv + at, site->in_place};
        struct occl_perf_call its = *call;
        occl_perf_place(&next, &its);
        occl_perf_fill(&next, &its, 0, bench->period);
    }
}

static enum occl_result measure_place(struct occl_perf_bench *bench, struct occl_perf_row *row,
                                      const struct occl_op_attr *attr, bool in_place,
                                      struct occl_perf_timing *timing) {
    const struct occl_perf_options *options = bench->options;
    struct occl_perf_site site = {bench->send, bench->recv, in_place};
    struct occl_perf_call call = call_of(bench, row, attr, &site);
    bool loaded = timing == &row->loaded;
    enum occl_result result = loaded ? occl_perf_traffic_start(bench) : OCCL_SUCCESS;
    double mean_us = 0;
    timing->wrong = -1;
    prepare(bench, &site, &call);
    for (int i = 0; result >= 0 && i < options->warmups; i++)
        result = occl_perf_go(bench, &call, options->aggregate);
    struct occl_perf_spent before = occl_perf_spent_now(bench);
    if (result >= 0) /* of the world: all groups begin together */
        result = occl_barrier(bench->world, NULL, NULL);
    if (result >= 0)
        result = time_calls(bench, &call, loaded, &mean_us);
    if (result >= 0 && loaded)
        result = occl_perf_traffic_stop(bench, &row->background);
    if (result >= 0) {
        (void)snprintf(row->transport, sizeof row->transport, "%s",
                       occl_perf_transport(bench->comm)); /* fits */
        result = over_ranks(bench, mean_us, timing);
    }
    struct occl_perf_spent after = occl_perf_spent_now(bench);
    if (!loaded) /* the ledger does not tell the load from what is measured */
        add_spent(row, options, &before, &after);
    if (result >= 0)
        summarize(bench, row, timing);
    if (result >= 0 && options->checks > 0)
        result = check(bench, &site, &call, &timing->wrong);
    timing->valid = result >= 0;
    return result;
}

enum occl_result occl_perf_measure(struct occl_perf_bench *bench, struct occl_perf_row *row) {
    const struct occl_perf_options *options = bench->options;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    union occl_values_factor factor = occl_values_factor_of(row->type, bench->rank);
    size_t width = occl_values_bytes(row->type);
    size_t blocks = (size_t)occl_perf_op_blocks(options->op, bench->ranks);
    attr.priority = options->priorities[bench->job];
    if (options->op->has_redop && row->redop == OCCL_PREMULSUM)
        attr.factor = &factor;
    row->count = row->bytes * sizes_of(bench) / width / blocks;
    row->bytes = row->count * width * blocks;
    row->job = bench->job;
    row->group = bench->group;
    row->ranks = bench->ranks;
    row->daemon_cpu_us = row->switches = row->preemptions = 0;
    memset(&row->in_place, 0, sizeof row->in_place);
    memset(&row->out_of_place, 0, sizeof row->out_of_place);
    memset(&row->loaded, 0, sizeof row->loaded);
    memset(&row->background, 0, sizeof row->background);
    enum occl_result result = measure_place(bench, row, &attr, false, &row->out_of_place);
    if (result >= 0 && has_in_place(options))
        result = measure_place(bench, row, &attr, true, &row->in_place);
    if (result >= 0 && bench->traffic)
        result = measure_place(bench, row, &attr, false, &row->loaded);
    return result >= 0 ? OCCL_SUCCESS : occl_perf_complain(bench, options->op->name, result);
}
