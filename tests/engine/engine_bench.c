/* SPDX-License-Identifier: Apache-2.0 */
/* What the ring path costs: submit to start, completion, switch between ops. Prints one line per
 * figure; the README of the engine quotes it. Not a test: nothing is asserted about speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/fixture.h"

#define ROUNDS 7
#define OPS 20000

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* One rank, one lane, one core each: a round trip through both rings with 64 bytes moved. */
static void round_trip(void) {
    static uint64_t ns[OPS];
    uint64_t medians[ROUNDS], starts[ROUNDS];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct fx fx;
        uint32_t region;
        fx_open(&fx, &(struct fx_options){.lanes = 1});
        struct fx_comm *comm = fx_simple(&fx, 1);
        void *data = fx_region(&fx, 1, 8192, &region);
        for (uint32_t i = 0; i < OPS; i++) {
            struct occl_cqe cqe;
            struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(0, i), 16, region, 0, 4096);
            uint64_t before = fx_now_ns();
            fx_submit(&fx, comm, 0, &sqe);
            while (!fx_poll(&fx, comm->sessions[0], &cqe))
                occl_relax();
            ns[i] = fx_now_ns() - before;
        }
        qsort(ns, OPS, sizeof ns[0], by_value);
        medians[round] = ns[OPS / 2];
        struct occl_engine_counters counters;
        occl_engine_counters(fx.engine, &counters);
        starts[round] = counters.submit_to_start_ns_p50;
        if (round == ROUNDS - 1)
            printf("round trip of 64 B, last round: p99 %llu ns, system calls per op %.3f\n",
                   (unsigned long long)ns[OPS * 99 / 100], (double)counters.system_calls / OPS);
        fx_close(&fx);
        free(data);
    }
    qsort(medians, ROUNDS, sizeof medians[0], by_value);
    qsort(starts, ROUNDS, sizeof starts[0], by_value);
    printf("submit to start, median of %d rounds: %llu ns (%llu .. %llu)\n", ROUNDS,
           (unsigned long long)starts[ROUNDS / 2], (unsigned long long)starts[0],
           (unsigned long long)starts[ROUNDS - 1]);
    printf("round trip of 64 B, median of %d rounds: %llu ns (%llu .. %llu)\n", ROUNDS,
           (unsigned long long)medians[ROUNDS / 2], (unsigned long long)medians[0],
           (unsigned long long)medians[ROUNDS - 1]);
}

/* A full ring at a time: what one lane needs for an op of eight ranks when it never waits. */
static void rate(void) {
    struct fx fx;
    uint32_t region;
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    struct fx_comm *comm = fx_simple(&fx, 8);
    char *data = fx_region(&fx, 1, 16 * 4096, &region);
    uint32_t ops = 0;
    uint64_t start = fx_now_ns();
    while (ops < 20000) {
        for (uint32_t r = 0; r < 8; r++) {
            for (uint32_t i = 0; i < 50; i++) {
                struct occl_sqe sqe =
                    fx_all_reduce(comm, r, fx_key(0, ops + i), 2, region, r * 4096, (8 + r) * 4096);
                fx_submit(&fx, comm, r, &sqe);
            }
        }
        for (uint32_t r = 0; r < 8; r++) {
            for (uint32_t i = 0; i < 50; i++) {
                struct occl_cqe cqe;
                while (!fx_wait(&fx, comm->sessions[r], FX_SECOND, &cqe))
                    continue;
            }
        }
        ops += 50;
    }
    struct occl_engine_job_usage usage;
    (void)occl_engine_job_usage(fx.engine, 1, &usage); /* the job exists */
    printf("8 ranks, 8 B, one client thread for all: %.0f ns an op (8 submissions, 8 completions), "
           "%llu ns of them moving\n",
           (double)(fx_now_ns() - start) / ops, (unsigned long long)(usage.lane_cpu_ns / ops));
    fx_close(&fx);
    free(data);
}

/* Many ops of several jobs at once: each slice is another op's. */
static void switches(void) {
    struct fx fx;
    struct fx_comm *comms[4];
    uint32_t regions[4];
    char *data[4];
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    for (uint32_t j = 0; j < 4; j++) {
        (void)fx_job(&fx, j + 1, 1 + j % 2, 1, 1 + j, 64);
        uint32_t session = fx_session(&fx, j + 1, 64, 64);
        comms[j] = fx_comm(&fx, j + 1, session, 1);
        data[j] = fx_region(&fx, j + 1, 32 << 20, &regions[j]);
    }
    for (uint32_t round = 0; round < 20; round++) {
        struct occl_cqe cqe;
        for (uint32_t j = 0; j < 4; j++) {
            for (uint32_t i = 0; i < 8; i++) {
                struct occl_sqe sqe =
                    fx_all_reduce(comms[j], 0, fx_key(i, round), 4 << 20, regions[j], 0, 16 << 20);
                fx_submit(&fx, comms[j], 0, &sqe);
            }
        }
        for (uint32_t j = 0; j < 4; j++) {
            for (uint32_t i = 0; i < 8; i++) {
                while (!fx_wait(&fx, comms[j]->sessions[0], FX_SECOND, &cqe))
                    continue;
            }
        }
    }
    struct occl_engine_counters counters;
    occl_engine_counters(fx.engine, &counters);
    printf("switch from one op to another, median: %llu ns (%llu switches, %llu preemptions)\n",
           (unsigned long long)counters.switch_ns_p50, (unsigned long long)counters.switches,
           (unsigned long long)counters.preemptions);
    fx_close(&fx);
    for (uint32_t j = 0; j < 4; j++)
        free(data[j]);
}

/* Big ops, all lanes. */
static void bandwidth(uint32_t lanes) {
    struct fx fx;
    uint32_t region;
    const uint64_t count = 4 << 20;
    fx_open(&fx, &(struct fx_options){.lanes = lanes});
    struct fx_comm *comm = fx_simple(&fx, 4);
    char *data = fx_region(&fx, 1, 8 * 4 * count, &region);
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < 15; i++) {
        uint64_t before = fx_now_ns();
        for (uint32_t r = 0; r < 4; r++) {
            struct occl_sqe sqe = fx_all_reduce(comm, r, fx_key(0, i), count, region, r * 4 * count,
                                                (4 + r) * 4 * count);
            fx_submit(&fx, comm, r, &sqe);
        }
        for (uint32_t r = 0; r < 4; r++)
            fx_expect(&fx, comm, r, i, OCCL_OK, OCCL_RANK_NONE);
        uint64_t took = fx_now_ns() - before;
        best = took < best ? took : best;
    }
    printf("all-reduce of 16 MiB, 4 ranks, %u lanes: best of 15 %.2f ms, %.1f GB/s of traffic\n",
           lanes, (double)best / 1e6, 8.0 * 4 * (double)count / (double)best);
    fx_close(&fx);
    free(data);
}

static void bench(void **state) {
    (void)state;
    round_trip();
    rate();
    switches();
    bandwidth(1);
    bandwidth(2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bench)};
    return cmocka_run_group_tests_name("engine_bench", tests, NULL, NULL);
}
