/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/harness.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench/control.h"
#include "tools/bench/line.h"

/* A stamp costs some 20 ns, so a sample of this length is off by well under one per cent. */
#define SAMPLE_MIN_NS 8000.0
/* Warm-up ends when it took this part of the budget ... */
#define WARM_UP_PART 4
/* ... or at this many calls, whatever the clock says. */
#define WARM_UP_CALLS_MAX 65536u
/* The samples come in blocks; between two the ranks agree whether the budget is spent. */
#define BLOCKS_MAX 8u
#define BLOCK_STAMPS (OCCL_BENCH_STAMPS_MAX / BLOCKS_MAX)
/* Sync mode needs two stamps a sample; one less in loop mode, for the stamp before the first. */
#define BLOCK_SAMPLES_MAX (BLOCK_STAMPS / 2)
/* Room for huge pages, and beyond the data, where a library may read a vector too far. */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define BUFFER_TAIL_BYTES ((size_t)256)

/* State of one run; the buffers live until the process ends. */
struct session {
    struct occl_bench_backend *backend;
    const struct occl_bench_options *options;
    struct occl_bench_control control;
    float *send;
    float *recv;
    FILE *out;
};

/* What was measured at a point; times in nanoseconds a call. */
struct result {
    double min_ns;
    double p50_ns;
    double p99_ns;
    double mean_ns;
    double wrong;
    double line_ns[2]; /* before and after; on rank 0 only */
    uint32_t blocks;
    uint32_t block_samples;
    uint32_t calls_per_sample;
};

void occl_bench_pin(uint32_t rank) {
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) {
        return;
    }
    uint32_t wanted = rank % (uint32_t)CPU_COUNT(&usable);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &usable) || wanted-- != 0) {
            continue;
        }
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        /* Unbound is only a less steady measurement, so a refusal is no error. */
        (void)sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static float *private_buffer(size_t bytes) {
    size_t mapped = bytes + HUGE_PAGE_BYTES;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return NULL;
    }
    size_t skipped = HUGE_PAGE_BYTES - (uintptr_t)start % HUGE_PAGE_BYTES;
    /* Refused where the kernel has no huge pages; the buffer works all the same. */
    (void)madvise(start + skipped, bytes, MADV_HUGEPAGE);
    return (float *)(void *)(start + skipped);
}

static float *buffer(const struct session *session, size_t bytes) {
    const struct occl_bench_backend *backend = session->backend;
    float *memory =
        backend->alloc != NULL ? backend->alloc(backend->self, bytes) : private_buffer(bytes);
    if (memory != NULL) {
        /* Touched now: the page faults belong to no measurement. */
        memset(memory, 0, bytes);
    }
    return memory;
}

static int open_buffers(struct session *session) {
    size_t send_elements = 0;
    size_t recv_elements = 0;
    for (uint32_t p = 0; p < session->options->point_count; p++) {
        const struct occl_bench_point *point = &session->options->points[p];
        size_t count = occl_bench_count(point->op, session->backend->ranks, point->bytes);
        size_t sent = occl_bench_send_elements(point->op, session->backend->ranks, count);
        size_t received = occl_bench_recv_elements(point->op, session->backend->ranks, count);
        send_elements = sent > send_elements ? sent : send_elements;
        recv_elements = received > recv_elements ? received : recv_elements;
    }
    session->send = buffer(session, send_elements * sizeof(float) + BUFFER_TAIL_BYTES);
    session->recv = buffer(session, recv_elements * sizeof(float) + BUFFER_TAIL_BYTES);
    return session->send != NULL && session->recv != NULL ? 0 : 1;
}

/* One call with fresh data, checked on every rank. Sets result->wrong to the sum over the ranks. */
static int verify(struct session *session, const struct occl_bench_point *point, size_t count,
                  struct result *result) {
    const struct occl_bench_backend *backend = session->backend;
    occl_bench_fill(point->op, backend->rank, backend->ranks, count, session->send, session->recv);
    occl_bench_control_meet(&session->control);
    int error = backend->run(backend->self, point->op, session->send, session->recv, count);
    size_t wrong = 0;
    if (error != 0) {
        /* The others may wait for us inside the call, so they cannot be met any more. */
        return error;
    }
    if (session->options->check_stride != 0) {
        wrong = occl_bench_wrong(point->op, backend->rank, backend->ranks, count,
                                 session->options->check_stride, session->recv);
    }
    result->wrong = occl_bench_control_sum(&session->control, (double)wrong);
    return 0;
}

/*
 * Doubles the number of calls until they take long enough. *out_call_ns is the quickest estimate:
 * a disturbance in the warm-up must not leave the measurement with a handful of samples.
 */
static int warm_up(struct session *session, const struct occl_bench_point *point, size_t count,
                   double *out_call_ns) {
    const struct occl_bench_backend *backend = session->backend;
    double enough_ns = (double)session->options->budget_ns / WARM_UP_PART;
    double quickest_ns = INFINITY;
    for (uint32_t calls = 1;; calls *= 2) {
        int error = 0;
        occl_bench_control_meet(&session->control);
        uint64_t start_ns = occl_bench_now_ns();
        for (uint32_t i = 0; i < calls && error == 0; i++) {
            error = backend->run(backend->self, point->op, session->send, session->recv, count);
        }
        double mine_ns = (double)(occl_bench_now_ns() - start_ns);
        if (error != 0) {
            return error;
        }
        double slowest_ns = occl_bench_control_largest(&session->control, mine_ns);
        quickest_ns = fmin(quickest_ns, slowest_ns / calls);
        if (slowest_ns >= enough_ns || calls >= WARM_UP_CALLS_MAX) {
            *out_call_ns = quickest_ns;
            return 0;
        }
    }
}

/* Samples of a block and calls in each sample; the same on all ranks, since call_ns is. */
static void plan(const struct session *session, bool sync, double call_ns, struct result *result) {
    double block_ns = (double)session->options->budget_ns / BLOCKS_MAX;
    /* A handful gives a median; calls of a second are not worth so much patience. */
    uint32_t least = call_ns > 1e9 ? 1 : call_ns > 3e8 ? 2 : 5;
    double sample_ns = call_ns;
    result->calls_per_sample = 1;
    if (!sync && call_ns < SAMPLE_MIN_NS) {
        result->calls_per_sample = (uint32_t)(SAMPLE_MIN_NS / fmax(call_ns, 10)) + 1;
        sample_ns = call_ns * result->calls_per_sample;
    } else if (sync) {
        /* The meeting before each call takes longer than a call that runs ahead in the warm-up. */
        sample_ns = fmax(call_ns, SAMPLE_MIN_NS);
    }
    double samples = block_ns / sample_ns;
    result->block_samples = samples > BLOCK_SAMPLES_MAX ? BLOCK_SAMPLES_MAX
                            : samples < least           ? least
                                                        : (uint32_t)samples;
}

/* One block in loop mode: the stamp before the first sample, then one after each. */
static int time_loop(struct session *session, const struct occl_bench_point *point, size_t count,
                     const struct result *result, uint64_t *stamps_ns) {
    const struct occl_bench_backend *backend = session->backend;
    for (uint32_t i = 0; i <= result->block_samples; i++) {
        for (uint32_t k = 0; k < result->calls_per_sample; k++) {
            int error = backend->run(backend->self, point->op, session->send, session->recv, count);
            if (error != 0) {
                return error;
            }
        }
        stamps_ns[i] = occl_bench_now_ns();
    }
    return 0;
}

/* One block in sync mode: two stamps a sample. */
static int time_sync(struct session *session, const struct occl_bench_point *point, size_t count,
                     const struct result *result, uint64_t *stamps_ns) {
    const struct occl_bench_backend *backend = session->backend;
    for (uint32_t i = 0; i < result->block_samples; i++) {
        occl_bench_control_meet(&session->control);
        stamps_ns[2 * i] = occl_bench_now_ns();
        int error = backend->run(backend->self, point->op, session->send, session->recv, count);
        stamps_ns[2 * i + 1] = occl_bench_now_ns();
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

/* Blocks until the budget is spent: how many fit is seen, not foretold by the warm-up. */
static int time_blocks(struct session *session, const struct occl_bench_point *point, size_t count,
                       struct result *result) {
    uint64_t *stamps_ns = occl_bench_control_stamps_ns(&session->control, session->backend->rank);
    uint64_t start_ns = occl_bench_now_ns();
    result->blocks = 0;
    while (result->blocks < BLOCKS_MAX) {
        uint64_t *block_ns = stamps_ns + result->blocks * BLOCK_STAMPS;
        occl_bench_control_meet(&session->control);
        int error = point->sync ? time_sync(session, point, count, result, block_ns)
                                : time_loop(session, point, count, result, block_ns);
        if (error != 0) {
            return error;
        }
        result->blocks++;
        double spent_ns = (double)(occl_bench_now_ns() - start_ns);
        if (occl_bench_control_largest(&session->control, spent_ns) >=
            (double)session->options->budget_ns) {
            break;
        }
    }
    return 0;
}

/* The latest (or earliest) of all ranks' stamps number `index`. */
static uint64_t stamp_of_all(struct session *session, uint32_t index, bool latest) {
    uint64_t found_ns = occl_bench_control_stamps_ns(&session->control, 0)[index];
    for (uint32_t r = 1; r < session->backend->ranks; r++) {
        uint64_t ns = occl_bench_control_stamps_ns(&session->control, r)[index];
        if (latest ? ns > found_ns : ns < found_ns) {
            found_ns = ns;
        }
    }
    return found_ns;
}

/* Turns the stamps of a block into samples at out_ns. */
static void block_samples(struct session *session, bool sync, const struct result *result,
                          uint32_t block, double *out_ns) {
    uint32_t first = block * BLOCK_STAMPS;
    uint64_t before_ns = stamp_of_all(session, first, !sync);
    for (uint32_t i = 0; i < result->block_samples; i++) {
        if (sync) {
            before_ns = stamp_of_all(session, first + 2 * i, false);
        }
        uint64_t end_ns = stamp_of_all(session, first + (sync ? 2 * i + 1 : i + 1), true);
        out_ns[i] = (double)(end_ns - before_ns) / result->calls_per_sample;
        before_ns = end_ns;
    }
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void summarise(struct session *session, bool sync, struct result *result) {
    static double samples_ns[BLOCKS_MAX * BLOCK_SAMPLES_MAX];
    double sum_ns = 0;
    for (uint32_t block = 0; block < result->blocks; block++) {
        block_samples(session, sync, result, block, samples_ns + block * result->block_samples);
    }
    uint32_t count = result->blocks * result->block_samples;
    for (uint32_t i = 0; i < count; i++) {
        sum_ns += samples_ns[i];
    }
    qsort(samples_ns, count, sizeof samples_ns[0], ascending);
    result->min_ns = samples_ns[0];
    result->p50_ns = (samples_ns[(count - 1) / 2] + samples_ns[count / 2]) / 2;
    result->p99_ns = samples_ns[(uint32_t)(0.99 * (count - 1) + 0.5)];
    result->mean_ns = sum_ns / count;
}

static void print_result(const struct session *session, const struct occl_bench_point *point,
                         size_t count, const struct result *result) {
    uint32_t samples = result->blocks * result->block_samples;
    char line[OCCL_BENCH_LINE_TEXT_BYTES];
    occl_bench_line_text(result->line_ns, line);
    (void)fprintf(session->out,
                  "{\"peer\":\"%s\",\"version\":\"%s\",\"setting\":\"%s\",\"op\":\"%s\","
                  "\"ranks\":%u,\"bytes\":%zu,\"count\":%zu,\"mode\":\"%s\",\"round\":%u,"
                  "\"samples\":%u,\"calls\":%u,\"min_us\":%.4f,\"p50_us\":%.4f,\"p99_us\":%.4f,"
                  "\"mean_us\":%.4f,\"line_ns\":%s,\"wrong\":%.0f}\n",
                  session->backend->peer, session->backend->version, session->options->setting,
                  occl_bench_op_name(point->op), session->backend->ranks, point->bytes, count,
                  point->sync ? "sync" : "loop", session->options->round, samples,
                  samples * result->calls_per_sample, result->min_ns / 1e3, result->p50_ns / 1e3,
                  result->p99_ns / 1e3, result->mean_ns / 1e3, line, result->wrong);
    /* A later failure must not take this line with it; a full disk is seen when the file closes. */
    (void)fflush(session->out);
}

static int measure_point(struct session *session, const struct occl_bench_point *point,
                         double *io_wrong) {
    struct occl_bench_backend *backend = session->backend;
    size_t count = occl_bench_count(point->op, backend->ranks, point->bytes);
    struct result result = {0};
    double call_ns = 0;
    result.line_ns[0] = occl_bench_line_ns(&session->control, session->options->line_cores);
    int error = verify(session, point, count, &result);
    if (error == 0) {
        error = warm_up(session, point, count, &call_ns);
    }
    if (error != 0) {
        return error;
    }
    plan(session, point->sync, call_ns, &result);
    error = time_blocks(session, point, count, &result);
    if (error != 0) {
        return error;
    }
    result.line_ns[1] = occl_bench_line_ns(&session->control, session->options->line_cores);
    *io_wrong += result.wrong;
    if (backend->rank == 0) {
        summarise(session, point->sync, &result);
        print_result(session, point, count, &result);
    }
    return 0;
}

static int measure_points(struct session *session) {
    const struct occl_bench_options *options = session->options;
    struct occl_bench_backend *backend = session->backend;
    double wrong = 0;
    for (uint32_t p = 0; p < options->point_count; p++) {
        const struct occl_bench_point *point = &options->points[p];
        if (backend->supports != NULL && !backend->supports(backend->self, point->op)) {
            continue;
        }
        int error = measure_point(session, point, &wrong);
        if (error != 0) {
            (void)fprintf(stderr, "%s rank %u: %s of %zu bytes failed: %d\n", backend->peer,
                          backend->rank, occl_bench_op_name(point->op), point->bytes, error);
            return 1;
        }
    }
    return wrong > 0 ? OCCL_BENCH_EXIT_WRONG : 0;
}

int occl_bench_measure(struct occl_bench_backend *backend,
                       const struct occl_bench_options *options) {
    struct session session = {.backend = backend, .options = options, .out = stdout};
    if (options->pin) {
        occl_bench_pin(backend->rank);
    }
    int error = occl_bench_control_open(options->control_path, backend->rank, backend->ranks,
                                        &session.control);
    if (error != 0) {
        (void)fprintf(stderr, "%s: cannot use %s: %s\n", backend->peer, options->control_path,
                      strerror(error));
        return 1;
    }
    if (backend->rank == 0 && options->out_path != NULL) {
        session.out = fopen(options->out_path, "a");
    }
    int status = 1;
    if (session.out == NULL || open_buffers(&session) != 0) {
        perror(backend->peer);
    } else {
        status = measure_points(&session);
    }
    if (session.out != NULL && session.out != stdout && fclose(session.out) != 0) {
        perror(options->out_path);
        status = 1;
    }
    occl_bench_control_close(&session.control);
    return status;
}
