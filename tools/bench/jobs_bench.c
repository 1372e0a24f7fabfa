/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a job that all-reduces without end while another job does the same: the client of
 * tools/bench-jobs, which tells it by a shared page (jobs_page.h) what to measure and when to end.
 * Rank 0 prints one JSON object for each window.
 *
 * An operation counts in a window by the part of the time since the one before that lies inside, so
 * a window need not begin or end with an operation. Its latency, from submission to completion,
 * belongs to the window in which it completed. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client_lib/occl.h"
#include "tools/bench/jobs_page.h"
#include "tools/perf/formulas.h"

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_ERROR = 3 };

#define IN_FLIGHT_MAX 64
/* Latencies that are kept, of all windows; memory is used only as they come. */
#define SAMPLES_MAX ((size_t)1 << 23)
/* What rank r sends as element i: small enough for exact sums. */
#define PATTERN 13

struct options {
    const char *control;
    uint64_t bytes;
    uint32_t in_flight; /* 0: blocking calls */
    uint64_t pause_ns;  /* after each operation */
    bool any_memory;    /* of malloc, not of occl_mem_alloc */
};

struct window {
    double ops;
    size_t first, count; /* of its latencies */
};

struct slot {
    float *recv;
    struct occl_request request;
    uint64_t submitted_ns;
};

struct bench {
    struct options options;
    struct occl_jobs_page *page;
    struct occl_comm comm;
    int rank, ranks;
    size_t elements;
    float *send;
    struct slot slots[IN_FLIGHT_MAX];
    uint64_t last_ns; /* completion of the operation before */
    double *samples_us;
    size_t sample_count;
    struct window windows[OCCL_JOBS_WINDOWS_MAX];
};

static const struct argp_option flags[] = {
    {"control", 'c', "FILE", 0, "Page shared with bench-jobs", 0},
    {"bytes", 'b', "SIZE", 0, "Of one rank", 0},
    {"in-flight", 'k', "N", 0, "Operations in flight; 0: blocking calls", 0},
    {"pause-us", 'p', "N", 0, "Pause after each operation", 0},
    {"memory", 'm', "zero-copy|any", 0, "Memory of occl_mem_alloc (default), or of malloc", 0},
    {0},
};

static uint64_t number_of(struct argp_state *state, const char *name, const char *text,
                          uint64_t most) {
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || number > most)
        argp_error(state, "%s wants a number from 0 to %llu, found '%s'", name,
                   (unsigned long long)most, text);
    return number;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    int64_t bytes;
    switch (key) {
    case 'c':
        options->control = arg;
        return 0;
    case 'b':
        bytes = occl_perf_parse_size(arg);
        if (bytes < (int64_t)sizeof(float))
            argp_error(state, "--bytes wants a size from 4 bytes on, found '%s'", arg);
        options->bytes = (uint64_t)bytes;
        return 0;
    case 'k':
        options->in_flight = (uint32_t)number_of(state, "--in-flight", arg, IN_FLIGHT_MAX);
        return 0;
    case 'p':
        options->pause_ns = 1000 * number_of(state, "--pause-us", arg, 10000000);
        return 0;
    case 'm':
        options->any_memory = strcmp(arg, "any") == 0;
        if (!options->any_memory && strcmp(arg, "zero-copy") != 0)
            argp_error(state, "--memory wants zero-copy or any, found '%s'", arg);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    case ARGP_KEY_END:
        if (!options->control || !options->bytes)
            argp_error(state, "--control and --bytes are needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool complain(const struct bench *bench, const char *what, enum occl_result result) {
    (void)fprintf(stderr, "jobs_bench: rank %d: %s: %s: %s\n", bench->rank, what,
                  occl_result_string(result), occl_last_error()); /* nowhere else to report */
    return false;
}

/* ---- set-up ---- */

static bool open_page(struct bench *bench) {
    int fd = open(bench->options.control, O_RDWR | O_CLOEXEC);
    void *page = fd < 0
                     ? MAP_FAILED
                     : mmap(NULL, sizeof *bench->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        perror(bench->options.control);
    else
        bench->page = page;
    if (fd >= 0)
        (void)close(fd); /* the mapping stays */
    return page != MAP_FAILED;
}

static enum occl_result allocate(const struct bench *bench, float **out_buffer) {
    size_t bytes = bench->elements * sizeof(float);
    if (!bench->options.any_memory)
        return occl_mem_alloc(bytes, (void **)out_buffer);
    if (posix_memalign((void **)out_buffer, 4096, bytes) != 0)
        return OCCL_ERROR_NO_MEMORY;
    memset(*out_buffer, 0, bytes); /* pages are touched before anything is timed */
    return OCCL_SUCCESS;
}

static uint32_t slots_of(const struct bench *bench) {
    return bench->options.in_flight ? bench->options.in_flight : 1;
}

static bool set_up(struct bench *bench) {
    enum occl_result result = occl_init_env(&bench->comm);
    if (result == OCCL_SUCCESS)
        result = occl_comm_rank(bench->comm, &bench->rank);
    if (result == OCCL_SUCCESS)
        result = occl_comm_size(bench->comm, &bench->ranks);
    if (result != OCCL_SUCCESS)
        return complain(bench, "joining", result);
    bench->elements = bench->options.bytes / sizeof(float);
    result = allocate(bench, &bench->send);
    for (uint32_t i = 0; result == OCCL_SUCCESS && i < slots_of(bench); i++)
        result = allocate(bench, &bench->slots[i].recv);
    if (result != OCCL_SUCCESS)
        return complain(bench, "memory", result);
    for (size_t i = 0; i < bench->elements; i++)
        bench->send[i] = (float)(i % PATTERN + (size_t)bench->rank);
    bench->samples_us = mmap(NULL, SAMPLES_MAX * sizeof(double), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bench->samples_us == MAP_FAILED)
        return complain(bench, "memory", OCCL_ERROR_NO_MEMORY);
    return true;
}

/* ---- the loop ---- */

static double overlap_ns(uint64_t from, uint64_t to, const struct occl_jobs_window *window) {
    uint64_t begin = from > window->begin_ns ? from : window->begin_ns;
    uint64_t end = to < window->end_ns ? to : window->end_ns;
    return end > begin ? (double)(end - begin) : 0;
}

/* Windows are few, and far apart in time: a loop over all costs nothing that could be measured. */
static void account(struct bench *bench, const struct slot *slot, uint64_t done_ns) {
    uint64_t published = __atomic_load_n(&bench->page->published, __ATOMIC_ACQUIRE);
    if (published > OCCL_JOBS_WINDOWS_MAX)
        published = OCCL_JOBS_WINDOWS_MAX;
    for (uint64_t i = 0; i < published; i++) {
        const struct occl_jobs_window *times = &bench->page->windows[i];
        struct window *window = &bench->windows[i];
        /* Two that complete in the same nanosecond still are two. */
        uint64_t last_ns = bench->last_ns < done_ns ? bench->last_ns : done_ns - 1;
        window->ops += overlap_ns(last_ns, done_ns, times) / (double)(done_ns - last_ns);
        if (done_ns < times->begin_ns || done_ns >= times->end_ns ||
            bench->sample_count == SAMPLES_MAX)
            continue;
        if (window->count++ == 0)
            window->first = bench->sample_count;
        bench->samples_us[bench->sample_count++] = (double)(done_ns - slot->submitted_ns) / 1e3;
    }
    bench->last_ns = done_ns;
}

static enum occl_result submit(struct bench *bench, struct slot *slot) {
    slot->submitted_ns = now_ns();
    return occl_all_reduce(bench->send, slot->recv, bench->elements, OCCL_FLOAT32, OCCL_SUM,
                           bench->comm, NULL, bench->options.in_flight ? &slot->request : NULL);
}

static enum occl_result complete(struct bench *bench, struct slot *slot) {
    enum occl_result result = bench->options.in_flight ? occl_wait(slot->request) : OCCL_SUCCESS;
    if (result == OCCL_SUCCESS)
        account(bench, slot, now_ns());
    return result;
}

/* Whether operation n is submitted. */
static bool goes_on(struct bench *bench, uint64_t n) {
    struct occl_jobs_page *page = bench->page;
    uint64_t before = __atomic_load_n(&page->stop_before, __ATOMIC_ACQUIRE);
    if (bench->rank == 0 && before == UINT64_MAX && __atomic_load_n(&page->stop, __ATOMIC_RELAXED))
        __atomic_store_n(&page->stop_before, n + slots_of(bench), __ATOMIC_RELEASE);
    return n < before;
}

static void rest(const struct bench *bench) {
    struct timespec pause = {.tv_sec = (time_t)(bench->options.pause_ns / 1000000000u),
                             .tv_nsec = (long)(bench->options.pause_ns % 1000000000u)};
    if (bench->options.pause_ns)
        (void)nanosleep(&pause, NULL); /* a shorter pause is one too */
}

static bool work(struct bench *bench) {
    uint32_t slots = slots_of(bench);
    uint64_t submitted = 0, completed = 0;
    enum occl_result result = OCCL_SUCCESS;
    bench->last_ns = now_ns();
    while (result == OCCL_SUCCESS) {
        while (result == OCCL_SUCCESS && submitted < completed + slots &&
               goes_on(bench, submitted)) {
            result = submit(bench, &bench->slots[submitted % slots]);
            submitted += result == OCCL_SUCCESS;
        }
        if (result != OCCL_SUCCESS || completed == submitted)
            break;
        result = complete(bench, &bench->slots[completed % slots]);
        if (completed++ == 0)
            (void)__atomic_add_fetch(&bench->page->ready, 1, __ATOMIC_ACQ_REL);
        rest(bench);
    }
    return result == OCCL_SUCCESS ? true : complain(bench, "all_reduce", result);
}

/* ---- results ---- */

static int64_t count_wrong(const struct bench *bench) {
    int64_t wrong = 0;
    size_t ranks = (size_t)bench->ranks;
    for (uint32_t s = 0; s < slots_of(bench); s++)
        for (size_t i = 0; i < bench->elements; i++)
            wrong +=
                bench->slots[s].recv[i] != (float)(ranks * (i % PATTERN) + ranks * (ranks - 1) / 2);
    return wrong;
}

/* Latencies of the rank that had the worst; operations and bytes of rank 0, as all complete the
 * same. */
static bool report_window(struct bench *bench, uint64_t index, int64_t wrong) {
    struct window *window = &bench->windows[index];
    const struct occl_jobs_window *times = &bench->page->windows[index];
    double *samples = bench->samples_us + window->first;
    occl_perf_sort(samples, window->count);
    double worst[3] = {occl_perf_quantile(samples, window->count, 0.5),
                       occl_perf_quantile(samples, window->count, 0.99),
                       window->count ? samples[window->count - 1] : 0};
    enum occl_result result =
        occl_all_reduce(worst, worst, 3, OCCL_FLOAT64, OCCL_MAX, bench->comm, NULL, NULL);
    if (result != OCCL_SUCCESS)
        return complain(bench, "report", result);
    if (bench->rank != 0)
        return true;
    double span_ns = (double)(times->end_ns - times->begin_ns);
    (void)printf("{\"window\":%llu,\"seconds\":%.6f,\"ops\":%.3f,\"bytes\":%.0f,\"samples\":%zu,"
                 "\"p50_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f,\"wrong\":%lld}\n",
                 (unsigned long long)index, span_ns / 1e9, window->ops,
                 window->ops * (double)(bench->elements * sizeof(float)), window->count, worst[0],
                 worst[1], worst[2], (long long)wrong); /* checked by fflush in main */
    return true;
}

int main(int argc, char **argv) {
    static struct bench bench = {.rank = -1};
    const struct argp argp = {
        .options = flags,
        .parser = parse,
        .doc = "A rank of a job that all-reduces until it is told to stop; see tools/bench-jobs."};
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &bench.options) != 0)
        return EXIT_USAGE;
    if (!open_page(&bench) || !set_up(&bench) || !work(&bench))
        return EXIT_ERROR;
    int64_t wrong = count_wrong(&bench);
    enum occl_result result =
        occl_all_reduce(&wrong, &wrong, 1, OCCL_INT64, OCCL_SUM, bench.comm, NULL, NULL);
    if (result != OCCL_SUCCESS) {
        (void)complain(&bench, "report", result); /* the exit status says it as well */
        return EXIT_ERROR;
    }
    for (uint64_t i = 0; i < bench.page->published && i < OCCL_JOBS_WINDOWS_MAX; i++)
        if (!report_window(&bench, i, wrong))
            return EXIT_ERROR;
    (void)occl_finalize(); /* the process ends */
    if (fflush(stdout) != 0)
        return EXIT_ERROR;
    return wrong ? EXIT_WRONG : 0;
}
