/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open MPI or MPICH in the benchmark: built with mpicc.openmpi or mpicc.mpich, started by the
 * mpirun of the same library. MPI's own error handling ends the job, so calls return success.
 */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench/harness.h"

static int run(void *self, enum occl_bench_op op, float *send, float *recv, size_t count) {
    MPI_Comm world = MPI_COMM_WORLD;
    (void)self;
    if (count > INT_MAX) {
        return MPI_ERR_COUNT;
    }
    int n = (int)count;
    switch (op) {
    case OCCL_BENCH_ALL_REDUCE:
        return MPI_Allreduce(send, recv, n, MPI_FLOAT, MPI_SUM, world);
    case OCCL_BENCH_BROADCAST:
        return MPI_Bcast(recv, n, MPI_FLOAT, 0, world);
    case OCCL_BENCH_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(send, recv, n, MPI_FLOAT, MPI_SUM, world);
    case OCCL_BENCH_ALL_GATHER:
        return MPI_Allgather(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, world);
    case OCCL_BENCH_ALL_TO_ALL:
        return MPI_Alltoall(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, world);
    case OCCL_BENCH_REDUCE:
        return MPI_Reduce(send, recv, n, MPI_FLOAT, MPI_SUM, 0, world);
    case OCCL_BENCH_GATHER:
        return MPI_Gather(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, 0, world);
    case OCCL_BENCH_SCATTER:
        return MPI_Scatter(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, 0, world);
    case OCCL_BENCH_OPS:
        break;
    }
    return MPI_ERR_OP;
}

/* Finds name and number of the library in the text that it gives of itself. */
static const char *library_name(char *out_version, size_t room) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    const char *name = "mpi";
    MPI_Get_library_version(text, &length);
    if (sscanf(text, "Open MPI v%u.%u.%u", &major, &minor, &patch) >= 2) {
        name = "openmpi";
    } else if (sscanf(text, "MPICH Version: %u.%u.%u", &major, &minor, &patch) >= 2) {
        name = "mpich";
    }
    (void)snprintf(out_version, room, "%u.%u.%u", major, minor, patch);
    return name;
}

int main(int argc, char **argv) {
    struct occl_bench_options options;
    struct occl_bench_backend backend;
    char version[40];
    int rank = 0;
    int ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int status = occl_bench_parse(argc, argv, &options);
    if (status == 0) {
        memset(&backend, 0, sizeof backend);
        backend.peer = library_name(version, sizeof version);
        backend.version = version;
        backend.rank = (uint32_t)rank;
        backend.ranks = (uint32_t)ranks;
        backend.run = run;
        status = occl_bench_measure(&backend, &options);
    }
    if (status != 0 && status != OCCL_BENCH_EXIT_WRONG) {
        /* The other ranks may wait inside a call for this one. */
        MPI_Abort(MPI_COMM_WORLD, status);
    }
    MPI_Finalize();
    return status;
}
