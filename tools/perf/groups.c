/* SPDX-License-Identifier: Apache-2.0 */
/* Several groups of ranks, each with a communicator of its own, measured at the same time. */
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"

static int color_of(const struct occl_perf_options *options, int rank) {
    switch (options->split) {
    case OCCL_PERF_SPLIT_AND:
        return rank & options->split_number;
    case OCCL_PERF_SPLIT_OR:
        return rank | options->split_number;
    case OCCL_PERF_SPLIT_MOD:
        return rank % options->split_number;
    case OCCL_PERF_SPLIT_DIV:
        return rank / options->split_number;
    case OCCL_PERF_SPLIT_NONE:
        break;
    }
    return 0;
}

/* Whether no rank before has the color of this one. */
static bool is_first(const struct occl_perf_options *options, int rank) {
    for (int before = 0; before < rank; before++)
        if (color_of(options, before) == color_of(options, rank))
            return false;
    return true;
}

int occl_perf_group_of(const struct occl_perf_options *options, int rank, int ranks,
                       int *out_groups) {
    int own = color_of(options, rank);
    int group = 0;
    *out_groups = 0;
    for (int other = 0; other < ranks; other++) {
        if (!is_first(options, other))
            continue;
        ++*out_groups;
        group += color_of(options, other) < own;
    }
    return group;
}

enum occl_result occl_perf_groups_open(struct occl_perf_bench *bench) {
    bench->group =
        occl_perf_group_of(bench->options, bench->world_rank, bench->world_ranks, &bench->groups);
    bench->comm = bench->world;
    bench->rank = bench->world_rank;
    bench->ranks = bench->least_ranks = bench->world_ranks;
    if (bench->options->split == OCCL_PERF_SPLIT_NONE)
        return OCCL_SUCCESS;
    enum occl_result result =
        occl_comm_split(bench->world, bench->group, bench->world_rank, NULL, &bench->comm);
    if (result == OCCL_SUCCESS)
        result = occl_comm_rank(bench->comm, &bench->rank);
    if (result == OCCL_SUCCESS)
        result = occl_comm_size(bench->comm, &bench->ranks);
    int32_t least = bench->ranks;
    if (result == OCCL_SUCCESS)
        result = occl_all_reduce(&least, &least, 1, OCCL_INT32, OCCL_MIN, bench->world, NULL, NULL);
    bench->least_ranks = least;
    return result;
}

enum occl_result occl_perf_groups_gather(struct occl_perf_bench *bench,
                                         const struct occl_perf_row *mine,
                                         struct occl_perf_row *rows) {
    /* Each place gets the bytes of one rank and zeros of the others: a sum of integers moves them
     * unchanged. */
    _Static_assert(sizeof *rows % sizeof(int64_t) == 0, "a row is a whole number of words");
    size_t words = (size_t)bench->groups * sizeof *rows / sizeof(int64_t);
    memset(rows, 0, (size_t)bench->groups * sizeof *rows);
    if (bench->rank == 0)
        rows[bench->group] = *mine;
    return occl_all_reduce(rows, rows, words, OCCL_INT64, OCCL_SUM, bench->world, NULL, NULL);
}
