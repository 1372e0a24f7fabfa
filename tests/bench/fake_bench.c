/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up library in the harness of the benchmark, to see that right results count as right and
 * wrong ones as wrong. --backend says how it behaves:
 *
 *   right      does what it should
 *   slow       the same, but each call takes at least two milliseconds
 *   flipped    the last element on the last rank that gets something is one too large
 *   shifted    rank 0 gets its elements one place off
 *   unwritten  writes nothing anywhere
 *   failing    the last rank's calls return an error
 *
 * A rank that the harness leaves with other cores than it had before fails.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tools/bench/control.h"
#include "tools/bench/harness.h"

#define ARENA_ELEMENTS ((size_t)65536)

/* Where the ranks of the made-up library see each other's data. */
struct arena {
    float sent[8][ARENA_ELEMENTS];
};

struct job {
    const struct occl_bench_options *options;
    struct arena *arena;
};

struct rank {
    struct job *job;
    struct occl_bench_control meeting;
};

static bool behaves(const struct rank *rank, const char *how) {
    const char *backend = rank->job->options->backend;
    return backend != NULL && strcmp(backend, how) == 0;
}

/* Element i that a rank has to receive. */
static float received(const struct rank *rank, enum occl_bench_op op, size_t i, size_t count) {
    const struct arena *arena = rank->job->arena;
    size_t me = rank->meeting.rank;
    float sum = 0;
    switch (op) {
    case OCCL_BENCH_BROADCAST:
        return arena->sent[0][i];
    case OCCL_BENCH_SCATTER:
        return arena->sent[0][me * count + i];
    case OCCL_BENCH_ALL_GATHER:
    case OCCL_BENCH_GATHER:
        return arena->sent[i / count][i % count];
    case OCCL_BENCH_ALL_TO_ALL:
        return arena->sent[i / count][me * count + i % count];
    case OCCL_BENCH_ALL_REDUCE:
    case OCCL_BENCH_REDUCE:
    case OCCL_BENCH_REDUCE_SCATTER:
    case OCCL_BENCH_OPS:
        break;
    }
    for (uint32_t r = 0; r < rank->meeting.ranks; r++) {
        sum += arena->sent[r][op == OCCL_BENCH_REDUCE_SCATTER ? me * count + i : i];
    }
    return sum;
}

static int run(void *self, enum occl_bench_op op, float *send, float *recv, size_t count) {
    struct rank *rank = self;
    uint32_t me = rank->meeting.rank;
    bool last = me + 1 == rank->meeting.ranks;
    size_t sent = occl_bench_send_elements(op, rank->meeting.ranks, count);
    size_t elements = occl_bench_recv_elements(op, rank->meeting.ranks, count);
    if (sent > ARENA_ELEMENTS || (last && behaves(rank, "failing"))) {
        return 5;
    }
    memcpy(rank->job->arena->sent[me], op == OCCL_BENCH_BROADCAST ? recv : send,
           sent * sizeof(float));
    occl_bench_control_meet(&rank->meeting);
    if (behaves(rank, "slow")) {
        const struct timespec pause = {.tv_nsec = 2000000};
        (void)nanosleep(&pause, NULL);
    }
    size_t shift = me == 0 && behaves(rank, "shifted") ? 1 : 0;
    for (size_t i = 0; i < elements && !behaves(rank, "unwritten"); i++) {
        recv[i] = received(rank, op, (i + shift) % elements, count);
    }
    bool at_root = op == OCCL_BENCH_REDUCE || op == OCCL_BENCH_GATHER;
    if ((at_root ? me == 0 : last) && behaves(rank, "flipped")) {
        recv[elements - 1] += 1;
    }
    occl_bench_control_meet(&rank->meeting);
    return 0;
}

static int rank_main(void *argument, uint32_t number) {
    struct rank rank = {.job = argument};
    const struct occl_bench_options *options = rank.job->options;
    struct occl_bench_backend backend = {
        .peer = "openmpi",
        .version = "0",
        .rank = number,
        .ranks = options->ranks,
        .self = &rank,
        .run = run,
    };
    char path[4096];
    (void)snprintf(path, sizeof path, "%s.fake", options->control_path);
    if (occl_bench_control_open(path, number, options->ranks, &rank.meeting) != 0) {
        return 1;
    }
    cpu_set_t before;
    cpu_set_t after;
    int status = sched_getaffinity(0, sizeof before, &before);
    status = status == 0 ? occl_bench_measure(&backend, options) : 1;
    if (sched_getaffinity(0, sizeof after, &after) != 0 || !CPU_EQUAL(&before, &after)) {
        status = 1;
    }
    occl_bench_control_close(&rank.meeting);
    return status;
}

int main(int argc, char **argv) {
    struct occl_bench_options options;
    struct job job = {.options = &options};
    int status = occl_bench_parse(argc, argv, &options);
    if (status != 0) {
        return status;
    }
    job.arena =
        mmap(NULL, sizeof *job.arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.arena == MAP_FAILED || options.ranks < 2 || options.ranks > 8) {
        return 1;
    }
    return occl_bench_fork_ranks(options.ranks, OCCL_BENCH_EXIT_WRONG, rank_main, &job);
}
