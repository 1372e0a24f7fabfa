/* SPDX-License-Identifier: Apache-2.0 */
/*
 * occl in the benchmark, through the public API only; started by `occlctl run -n N`. Buffers are
 * zero-copy memory of occl, or with --backend private ordinary memory as any program has it.
 */
#include <occl.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench/harness.h"

static enum occl_result call(enum occl_bench_op op, float *send, float *recv, size_t count,
                             struct occl_comm comm) {
    switch (op) {
    case OCCL_BENCH_ALL_REDUCE:
        return occl_all_reduce(send, recv, count, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL);
    case OCCL_BENCH_BROADCAST:
        return occl_broadcast(recv, recv, count, OCCL_FLOAT32, 0, comm, NULL, NULL);
    case OCCL_BENCH_REDUCE_SCATTER:
        return occl_reduce_scatter(send, recv, count, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL);
    case OCCL_BENCH_ALL_GATHER:
        return occl_all_gather(send, recv, count, OCCL_FLOAT32, comm, NULL, NULL);
    case OCCL_BENCH_ALL_TO_ALL:
        return occl_all_to_all(send, recv, count, OCCL_FLOAT32, comm, NULL, NULL);
    case OCCL_BENCH_REDUCE:
        return occl_reduce(send, recv, count, OCCL_FLOAT32, OCCL_SUM, 0, comm, NULL, NULL);
    case OCCL_BENCH_GATHER:
        return occl_gather(send, recv, count, OCCL_FLOAT32, 0, comm, NULL, NULL);
    case OCCL_BENCH_SCATTER:
        return occl_scatter(send, recv, count, OCCL_FLOAT32, 0, comm, NULL, NULL);
    case OCCL_BENCH_OPS:
        break;
    }
    return OCCL_ERROR_UNSUPPORTED;
}

static int run(void *self, enum occl_bench_op op, float *send, float *recv, size_t count) {
    const struct occl_comm *comm = self;
    enum occl_result result = call(op, send, recv, count, *comm);
    if (result != OCCL_SUCCESS) {
        (void)fprintf(stderr, "occl: %s: %s\n", occl_result_string(result), occl_last_error());
    }
    return result == OCCL_SUCCESS ? 0 : 1;
}

static void *alloc(void *self, size_t bytes) {
    void *memory = NULL;
    (void)self;
    if (occl_mem_alloc(bytes, &memory) != OCCL_SUCCESS) {
        (void)fprintf(stderr, "occl: %s\n", occl_last_error());
        return NULL;
    }
    return memory;
}

static int measure(struct occl_comm comm, const struct occl_bench_options *options) {
    struct occl_bench_backend backend;
    char version[40];
    int number = 0;
    int rank = 0;
    int ranks = 0;
    if (occl_get_version(&number) != OCCL_SUCCESS || occl_comm_rank(comm, &rank) != OCCL_SUCCESS ||
        occl_comm_size(comm, &ranks) != OCCL_SUCCESS) {
        (void)fprintf(stderr, "occl: %s\n", occl_last_error());
        return 1;
    }
    (void)snprintf(version, sizeof version, "%d.%d.%d", number / 10000, number / 100 % 100,
                   number % 100);
    memset(&backend, 0, sizeof backend);
    backend.peer = "occl";
    backend.version = version;
    backend.rank = (uint32_t)rank;
    backend.ranks = (uint32_t)ranks;
    backend.self = &comm;
    backend.run = run;
    if (options->backend == NULL || strcmp(options->backend, "private") != 0) {
        backend.alloc = alloc;
    }
    return occl_bench_measure(&backend, options);
}

int main(int argc, char **argv) {
    struct occl_bench_options options;
    struct occl_comm comm = {0};
    int status = occl_bench_parse(argc, argv, &options);
    if (status != 0) {
        return status;
    }
    if (occl_init_env(&comm) != OCCL_SUCCESS) {
        (void)fprintf(stderr, "occl: %s\n", occl_last_error());
        return 1;
    }
    status = measure(comm, &options);
    if (occl_finalize() != OCCL_SUCCESS && status == 0) {
        (void)fprintf(stderr, "occl: %s\n", occl_last_error());
        status = 1;
    }
    return status;
}
