/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What no library can beat on this machine. With --backend move: the bytes that one address space
 * must move for each point, by one worker and by two. With --backend spin, yield or sleep: the best
 * way for --ranks processes to meet, as a tiny collective in the common harness, which differs only
 * in how a rank waits (always looking; giving the core away; giving it away some times, then
 * sleeping).
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench/control.h"
#include "tools/bench/floor_kernels.h"
#include "tools/bench/floor_meet.h"
#include "tools/bench/harness.h"
#include "tools/bench/line.h"

#define WORKERS_MAX 2u
/* Samples of one way to move; with five ways and two numbers of workers this is enough. */
#define MOVE_SAMPLES_MAX ((uint32_t)400)
#define MOVE_SAMPLES_MIN ((uint32_t)4)

struct job {
    const struct occl_bench_options *options;
    struct occl_bench_place *place;
    enum occl_bench_waiting waiting;
};

static int meet(void *self, enum occl_bench_op op, float *send, float *recv, size_t count) {
    return occl_bench_meet(self, op, send, recv, count);
}

static int visit(void *argument, uint32_t rank) {
    const struct job *job = argument;
    struct occl_bench_visitor visitor = {
        .place = job->place,
        .waiting = job->waiting,
        .rank = rank,
        .ranks = job->options->ranks,
    };
    struct occl_bench_backend backend = {
        .peer = "floor",
        .version = "",
        .rank = rank,
        .ranks = job->options->ranks,
        .self = &visitor,
        .run = meet,
    };
    return occl_bench_measure(&backend, job->options);
}

static void *shared_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    /* As a library would ask; most kernels refuse it for shared memory unless told otherwise. */
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static int measure_meetings(struct job *job) {
    job->place = shared_memory(sizeof *job->place);
    if (job->place == NULL) {
        perror("floor_bench");
        return 1;
    }
    return occl_bench_fork_ranks(job->options->ranks, OCCL_BENCH_EXIT_WRONG, visit, job);
}

/* One measurement of one way to move. */
struct shift {
    const struct occl_bench_move *move;
    enum occl_bench_way way;
    uint32_t workers;
    uint32_t samples;
    struct occl_bench_control controls[WORKERS_MAX];
    uint64_t stamps_ns[MOVE_SAMPLES_MAX + 1];
};

struct worker {
    struct shift *shift;
    uint32_t number;
};

static void *work(void *argument) {
    struct worker *worker = argument;
    struct shift *shift = worker->shift;
    for (uint32_t i = 0; i <= shift->samples; i++) {
        occl_bench_move_part(shift->way, shift->move, worker->number, shift->workers);
        occl_bench_control_meet(&shift->controls[worker->number]);
        if (worker->number == 0) {
            shift->stamps_ns[i] = occl_bench_now_ns();
        }
    }
    return NULL;
}

/* Runs the shift with all its workers; returns the first error. */
static int work_all(struct shift *shift) {
    struct worker workers[WORKERS_MAX];
    pthread_t second;
    for (uint32_t w = 0; w < shift->workers; w++) {
        workers[w] = (struct worker){.shift = shift, .number = w};
    }
    if (shift->workers > 1) {
        int error = pthread_create(&second, NULL, work, &workers[1]);
        if (error != 0) {
            return error;
        }
    }
    (void)work(&workers[0]);
    return shift->workers > 1 ? pthread_join(second, NULL) : 0;
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Median time of a call in nanoseconds; destroys the stamps. */
static double median_ns(struct shift *shift) {
    for (uint32_t i = 0; i < shift->samples; i++) {
        shift->stamps_ns[i] = shift->stamps_ns[i + 1] - shift->stamps_ns[i];
    }
    qsort(shift->stamps_ns, shift->samples, sizeof shift->stamps_ns[0], ascending);
    return ((double)shift->stamps_ns[(shift->samples - 1) / 2] +
            (double)shift->stamps_ns[shift->samples / 2]) /
           2;
}

/* Streams of a point: what must be read and written at least, out of place. */
static void streams(const struct occl_bench_point *point, uint32_t ranks, float *memory,
                    struct occl_bench_move *out_move) {
    uint32_t in_count = 1;
    uint32_t out_count = 1;
    size_t elements = point->bytes / sizeof(float);
    switch (point->op) {
    case OCCL_BENCH_ALL_REDUCE:
        in_count = out_count = ranks;
        break;
    case OCCL_BENCH_BROADCAST:
        out_count = ranks - 1;
        break;
    case OCCL_BENCH_REDUCE:
    case OCCL_BENCH_REDUCE_SCATTER: /* each rank writes a part of one buffer's size */
        in_count = ranks;
        break;
    case OCCL_BENCH_ALL_GATHER: /* the blocks of all ranks are one buffer's size */
        out_count = ranks;
        break;
    case OCCL_BENCH_ALL_TO_ALL:
        elements *= ranks;
        break;
    case OCCL_BENCH_GATHER:
    case OCCL_BENCH_SCATTER:
    case OCCL_BENCH_OPS:
        break;
    }
    memset(out_move, 0, sizeof *out_move);
    out_move->in_count = in_count;
    out_move->out_count = out_count;
    out_move->elements = elements;
    /* Page-aligned as the buffers of ranks are; each stream has the place of the largest one. */
    size_t stride = (elements + 1023) / 1024 * 1024;
    for (uint32_t k = 0; k < in_count + out_count; k++) {
        if (k < in_count) {
            out_move->in[k] = memory + k * stride;
        } else {
            out_move->out[k - in_count] = memory + k * stride;
        }
    }
}

static size_t wrong_elements(const struct occl_bench_move *move) {
    size_t wrong = 0;
    for (size_t i = 0; i < move->elements; i += 61) {
        float sum = 0;
        for (uint32_t k = 0; k < move->in_count; k++) {
            sum += move->in[k][i];
        }
        for (uint32_t k = 0; k < move->out_count; k++) {
            wrong += move->out[k][i] != sum;
        }
    }
    return wrong;
}

/* One end of the way that a cache line goes to and fro. */
struct line_end {
    struct occl_bench_control control;
    const int *cores;
};

static void *answer_line(void *argument) {
    struct line_end *end = argument;
    (void)occl_bench_line_ns(&end->control, end->cores);
    return NULL;
}

/* The distance of the cores as line.h measures it, between two threads; NAN where it is unknown. */
static double line_ns(struct line_end *ends) {
    pthread_t second;
    if (ends[0].cores[0] == ends[0].cores[1] ||
        pthread_create(&second, NULL, answer_line, &ends[1]) != 0) {
        return NAN;
    }
    double found_ns = occl_bench_line_ns(&ends[0].control, ends[0].cores);
    /* Fails only for a thread that does not exist. */
    (void)pthread_join(second, NULL);
    return found_ns;
}

static int measure_way(const struct occl_bench_options *options,
                       const struct occl_bench_point *point, struct shift *shift,
                       struct line_end *ends, FILE *out) {
    double distance_ns[2] = {line_ns(ends)};
    char line[OCCL_BENCH_LINE_TEXT_BYTES];
    shift->samples = 1;
    int error = work_all(shift);
    if (error != 0) {
        return error;
    }
    size_t wrong = wrong_elements(shift->move);
    double call_ns = median_ns(shift);
    /* A tenth of the budget: up to ten ways are measured for the one floor of the point. */
    double samples = (double)options->budget_ns / 10 / (call_ns + 1);
    shift->samples = samples > MOVE_SAMPLES_MAX   ? MOVE_SAMPLES_MAX
                     : samples < MOVE_SAMPLES_MIN ? MOVE_SAMPLES_MIN
                                                  : (uint32_t)samples;
    error = work_all(shift);
    if (error != 0) {
        return error;
    }
    distance_ns[1] = line_ns(ends);
    occl_bench_line_text(distance_ns, line);
    (void)fprintf(out,
                  "{\"peer\":\"floor\",\"version\":\"\",\"setting\":\"%s-%u\",\"op\":\"%s\","
                  "\"ranks\":%u,\"bytes\":%zu,\"count\":%zu,\"mode\":\"move\",\"round\":%u,"
                  "\"samples\":%u,\"p50_us\":%.4f,\"line_ns\":%s,\"wrong\":%zu}\n",
                  occl_bench_way_name(shift->way), shift->workers, occl_bench_op_name(point->op),
                  options->ranks, point->bytes, shift->move->elements, options->round,
                  shift->samples, median_ns(shift) / 1e3, line, wrong);
    return wrong == 0 ? 0 : OCCL_BENCH_EXIT_WRONG;
}

static int measure_move(const struct occl_bench_options *options,
                        const struct occl_bench_point *point, float *memory, struct line_end *ends,
                        FILE *out) {
    struct occl_bench_move move;
    int status = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    streams(point, options->ranks, memory, &move);
    for (uint32_t w = 1; w <= WORKERS_MAX && (long)w <= cores && status == 0; w++) {
        struct shift *shift = calloc(1, sizeof *shift);
        if (shift == NULL) {
            return 1;
        }
        shift->move = &move;
        shift->workers = w;
        char path[4096];
        (void)snprintf(path, sizeof path, "%s.%u", options->control_path, w);
        for (uint32_t k = 0; k < w && status == 0; k++) {
            status = occl_bench_control_open(path, k, w, &shift->controls[k]);
        }
        for (unsigned way = 0; way < OCCL_BENCH_WAYS && status == 0; way++) {
            shift->way = (enum occl_bench_way)way;
            if (occl_bench_way_fits(shift->way, &move)) {
                status = measure_way(options, point, shift, ends, out);
            }
        }
        for (uint32_t k = 0; k < w; k++) {
            occl_bench_control_close(&shift->controls[k]);
        }
        free(shift);
    }
    return status;
}

static int measure_moves(const struct occl_bench_options *options) {
    size_t most_elements = 0;
    struct occl_bench_move move;
    for (uint32_t p = 0; p < options->point_count; p++) {
        streams(&options->points[p], options->ranks, NULL, &move);
        size_t elements = (move.in_count + move.out_count) * (move.elements + 1024);
        most_elements = elements > most_elements ? elements : most_elements;
    }
    float *memory = shared_memory(most_elements * sizeof(float));
    FILE *out = options->out_path != NULL ? fopen(options->out_path, "a") : stdout;
    if (memory == NULL || out == NULL) {
        perror("floor_bench");
        return 1;
    }
    for (size_t i = 0; i < most_elements; i++) {
        memory[i] = (float)(i % 13);
    }
    struct line_end ends[2] = {{.cores = options->line_cores}, {.cores = options->line_cores}};
    char path[4096];
    int status = 0;
    (void)snprintf(path, sizeof path, "%s.line", options->control_path);
    for (uint32_t k = 0; k < 2 && status == 0; k++) {
        status = occl_bench_control_open(path, k, 2, &ends[k].control);
    }
    for (uint32_t p = 0; p < options->point_count && status == 0; p++) {
        status = measure_move(options, &options->points[p], memory, ends, out);
    }
    for (uint32_t k = 0; k < 2; k++) {
        occl_bench_control_close(&ends[k].control);
    }
    if (out != stdout && fclose(out) != 0) {
        perror(options->out_path);
        status = 1;
    }
    return status;
}

int main(int argc, char **argv) {
    struct occl_bench_options options;
    int status = occl_bench_parse(argc, argv, &options);
    if (status != 0) {
        return status;
    }
    struct job job = {.options = &options};
    const char *backend = options.backend == NULL ? "" : options.backend;
    if (options.ranks < 2 || options.ranks > OCCL_BENCH_RANKS_MAX) {
        (void)fprintf(stderr, "%s: --ranks from 2 to %u is needed\n", argv[0],
                      OCCL_BENCH_RANKS_MAX);
        return 2;
    }
    if (strcmp(backend, "move") == 0) {
        return measure_moves(&options);
    }
    if (strcmp(backend, "spin") == 0) {
        job.waiting = OCCL_BENCH_WAITING_SPIN;
    } else if (strcmp(backend, "yield") == 0) {
        job.waiting = OCCL_BENCH_WAITING_YIELD;
    } else if (strcmp(backend, "sleep") == 0) {
        job.waiting = OCCL_BENCH_WAITING_SLEEP;
    } else {
        (void)fprintf(stderr, "%s: --backend is one of move, spin, yield, sleep\n", argv[0]);
        return 2;
    }
    return measure_meetings(&job);
}
