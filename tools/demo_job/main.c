/* SPDX-License-Identifier: Apache-2.0 */
#include <argp.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/demo_job/job.h"

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_ERROR = 3 };

struct options {
    int rounds;
    uint64_t seed;
    bool random;
    const char *progress_file;
};

static const struct argp_option flags[] = {
    {"rounds", 'r', "N", 0, "Rounds (default 3)", 0},
    {"seed", 's', "N", 0, "Seed of the orders (default: from the clock; printed)", 0},
    {"order", 'o', "random|equal", 0, "Each rank its own order (default), or all the same", 0},
    {"progress-file", 'p', "FILE", 0, "Rank 0 writes how many of its operations are done", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    char *end;
    switch (key) {
    case 'r':
        options->rounds = (int)strtol(arg, &end, 10);
        if (end == arg || *end || options->rounds < 1)
            argp_error(state, "--rounds wants a number above 0, found '%s'", arg);
        return 0;
    case 's':
        options->seed = strtoull(arg, &end, 0);
        if (end == arg || *end)
            argp_error(state, "--seed wants a number, found '%s'", arg);
        return 0;
    case 'o':
        options->random = strcmp(arg, "random") == 0;
        if (!options->random && strcmp(arg, "equal") != 0)
            argp_error(state, "--order wants random or equal, found '%s'", arg);
        return 0;
    case 'p':
        options->progress_file = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Joins, agrees on rank 0's seed, allocates. False after reporting an error. */
static bool set_up(struct occl_demo *demo, const struct options *options) {
    enum occl_result result = occl_init_env(&demo->comm);
    if (result == OCCL_SUCCESS)
        result = occl_comm_rank(demo->comm, &demo->rank);
    if (result == OCCL_SUCCESS)
        result = occl_comm_size(demo->comm, &demo->ranks);
    demo->seed = options->seed ? options->seed : occl_clock_wall_ns(&demo->clock) / 1000000;
    if (result == OCCL_SUCCESS)
        result = occl_broadcast(&demo->seed, &demo->seed, 1, OCCL_INT64, 0, demo->comm, NULL, NULL);
    if (result == OCCL_SUCCESS) {
        occl_demo_plan_make(demo->ranks, &demo->plan);
        result =
            occl_mem_alloc(demo->plan.arena_elements * sizeof *demo->arena, (void **)&demo->arena);
    }
    if (result != OCCL_SUCCESS) {
        (void)fprintf(stderr, "demo_job: %s: %s\n", occl_result_string(result),
                      occl_last_error()); /* nowhere else to report */
        return false;
    }
    demo->total = (uint64_t)demo->plan.count * (uint64_t)options->rounds;
    demo->random = options->random;
    demo->progress_fd = -1;
    if (options->progress_file && demo->rank == 0) {
        demo->progress_fd =
            open(options->progress_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (demo->progress_fd < 0) {
            perror(options->progress_file);
            return false;
        }
        occl_demo_note_progress(demo);
    }
    return true;
}

/* Adds up what all ranks saw; rank 0 prints it as one JSON object. */
static enum occl_result report(struct occl_demo *demo, const struct options *options,
                               double seconds) {
    int64_t counts[2] = {(int64_t)demo->ops, (int64_t)demo->wrong};
    enum occl_result result =
        occl_all_reduce(counts, counts, 2, OCCL_INT64, OCCL_SUM, demo->comm, NULL, NULL);
    if (result == OCCL_SUCCESS)
        result = occl_all_reduce(demo->latency.buckets, demo->latency.buckets, OCCL_LATENCY_BUCKETS,
                                 OCCL_INT64, OCCL_SUM, demo->comm, NULL, NULL);
    if (result != OCCL_SUCCESS || demo->rank != 0)
        return result;
    double bytes = (double)demo->plan.bytes * options->rounds * demo->ranks;
    const char *job = getenv("OCCL_JOB"); /* lint: banned_calls: set by the launcher */
    json_t *object =
        json_pack("{s:i, s:s, s:i, s:i, s:I, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:I}", "schema", 1,
                  "job", job ? job : "", "ranks", demo->ranks, "rounds", options->rounds, "seed",
                  (json_int_t)demo->seed, "order", demo->random ? "random" : "equal", "ops",
                  (json_int_t)counts[0], "bytes", (json_int_t)bytes, "seconds", seconds, "GBps",
                  bytes / seconds / 1e9, "p50_us",
                  (double)occl_latency_quantile_ns(&demo->latency, 0.5) / 1e3, "p99_us",
                  (double)occl_latency_quantile_ns(&demo->latency, 0.99) / 1e3, "wrong",
                  (json_int_t)counts[1]);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (text)
        (void)puts(text); /* checked by fflush in main */
    free(text);
    json_decref(object);
    return result;
}

int main(int argc, char **argv) {
    static struct occl_demo demo; /* large for a stack */
    struct options options = {.rounds = 3, .random = true};
    const struct argp argp = {
        .options = flags,
        .parser = parse,
        .doc = "Submits the gradients of ResNet-50, broadcasts and messages in conflicting "
               "orders and checks every value. Start it with `occlctl run -n RANKS demo_job`."};
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
        return EXIT_USAGE;
    demo.clock = occl_clock_system(OCCL_TICKS_NS);
    if (!set_up(&demo, &options))
        return EXIT_ERROR;
    for (int round = 0; round < options.rounds; round++)
        if (occl_demo_round(&demo, round) != OCCL_SUCCESS)
            return EXIT_ERROR;
    if (report(&demo, &options, (double)demo.busy_ns / 1e9) != OCCL_SUCCESS) {
        (void)fprintf(stderr, "demo_job: rank %d: report: %s\n", demo.rank,
                      occl_last_error()); /* nowhere else to report */
        return EXIT_ERROR;
    }
    (void)occl_mem_free(demo.arena);    /* the process ends */
    (void)occl_comm_destroy(demo.comm); /* as above */
    (void)occl_finalize();              /* as above */
    if (fflush(stdout) != 0)
        return EXIT_ERROR;
    return demo.wrong ? EXIT_WRONG : 0;
}
