/* SPDX-License-Identifier: Apache-2.0 */
/* The check of occl-perf against operations carried out by hand for several ranks: what is right
 * counts as right, and whatever is changed afterwards counts as wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/perf/perf.h"

#define RANKS 3
#define ROOT 1
#define SEED 11
#define COUNT_MAX 5000

static int64_t period[2 * OCCL_VALUES_PERIOD];

struct job {
    const struct occl_perf_op *op;
    size_t count;
    bool in_place;
    struct occl_perf_site sites[RANKS];
    struct occl_perf_call calls[RANKS];
    int32_t inputs[RANKS][RANKS * COUNT_MAX]; /* as they were before */
};

static struct job *open_job(const struct occl_perf_op *op, size_t count, bool in_place) {
    struct job *job = calloc(1, sizeof *job);
    size_t bytes = RANKS * count * 4 + OCCL_PERF_GUARD_BYTES;
    assert_non_null(job);
    job->op = op;
    job->count = count;
    job->in_place = in_place;
    for (int rank = 0; rank < RANKS; rank++) {
        job->sites[rank] = (struct occl_perf_site){calloc(1, bytes), calloc(1, bytes), in_place};
        struct occl_perf_call *call = &job->calls[rank];
        *call = (struct occl_perf_call){.op = op,
                                        .count = count,
                                        .type = OCCL_INT32,
                                        .redop = OCCL_SUM,
                                        .root = ROOT,
                                        .rank = rank,
                                        .ranks = RANKS};
        occl_perf_place(&job->sites[rank], call);
        occl_perf_fill(&job->sites[rank], call, SEED, period);
        size_t sent = occl_perf_elements(call, op->send);
        memcpy(job->inputs[rank], call->send, sent * 4);
    }
    return job;
}

static void close_job(struct job *job) {
    for (int rank = 0; rank < RANKS; rank++) {
        free(job->sites[rank].send);
        free(job->sites[rank].recv);
    }
    free(job);
}

static bool is(const struct job *job, const char *name) {
    return strcmp(job->op->name, name) == 0;
}

static int32_t sum_of(const struct job *job, int ranks, size_t i) {
    uint32_t sum = 0;
    for (int rank = 0; rank < ranks; rank++)
        sum += (uint32_t)job->inputs[rank][i];
    return (int32_t)sum;
}

/* Element i of what a rank receives, by the words of occl.h. */
static int32_t element(const struct job *job, int rank, size_t i) {
    size_t k = i / job->count, at = i % job->count, own = (size_t)rank * job->count;
    if (is(job, "all_reduce") || is(job, "reduce"))
        return sum_of(job, RANKS, i);
    if (is(job, "reduce_scatter"))
        return sum_of(job, RANKS, own + i);
    if (is(job, "scan"))
        return sum_of(job, rank + 1, i);
    if (is(job, "exscan"))
        return sum_of(job, rank, i);
    if (is(job, "broadcast"))
        return job->inputs[ROOT][i];
    if (is(job, "scatter"))
        return job->inputs[ROOT][own + i];
    if (is(job, "all_gather") || is(job, "gather"))
        return job->inputs[k][at];
    if (is(job, "all_to_all"))
        return job->inputs[k][own + at];
    assert_true(is(job, "sendrecv"));
    return job->inputs[(rank + RANKS - 1) % RANKS][i];
}

/* Elements that a rank receives. */
static size_t received(const struct job *job, int rank) {
    bool only_root = is(job, "reduce") || is(job, "gather");
    if ((only_root && rank != ROOT) || (is(job, "exscan") && rank == 0))
        return 0;
    bool all = is(job, "all_gather") || is(job, "gather") || is(job, "all_to_all");
    return all ? RANKS * job->count : job->count;
}

static void carry_out(struct job *job) {
    for (int rank = 0; rank < RANKS; rank++)
        for (size_t i = 0; i < received(job, rank); i++)
            ((int32_t *)job->calls[rank].recv)[i] = element(job, rank, i);
}

static uint64_t wrong(struct job *job, int rank) {
    return occl_perf_count_wrong(&job->sites[rank], &job->calls[rank], SEED, period);
}

/* Changes one element and sees that exactly that is counted. */
static void expect_noticed(struct job *job, int rank, void *at) {
    int32_t *element_at = at;
    *element_at ^= 4;
    assert_int_equal(wrong(job, rank), 1);
    *element_at ^= 4;
    assert_int_equal(wrong(job, rank), 0);
}

static void look_at(const struct occl_perf_op *op, size_t count, bool in_place) {
    struct job *job = open_job(op, count, in_place);
    carry_out(job);
    for (int rank = 0; rank < RANKS; rank++) {
        struct occl_perf_call *call = &job->calls[rank];
        size_t got = received(job, rank);
        if (wrong(job, rank) != 0)
            print_error("%s, %zu elements, %s, rank %d\n", op->name, count,
                        in_place ? "in place" : "out of place", rank);
        assert_int_equal(wrong(job, rank), 0);
        for (size_t i = 0; i<got; i += got> 16 ? got / 16 : 1)
            expect_noticed(job, rank, (int32_t *)call->recv + i);
        bool all = op->send == OCCL_PERF_ALL_BLOCKS || op->recv == OCCL_PERF_ALL_BLOCKS;
        size_t extent = in_place                           ? (all ? RANKS : 1) * count
                        : op->recv == OCCL_PERF_ALL_BLOCKS ? RANKS * count
                                                           : count;
        job->sites[rank].recv[4 * extent] ^= 1; /* the guard */
        assert_int_equal(wrong(job, rank), 1);
        job->sites[rank].recv[4 * extent] ^= 1;
        /* What the op may not touch: the input, and the blocks beside an output in place. */
        if (!in_place && (!op->root_sends || rank == ROOT))
            expect_noticed(job, rank, job->sites[rank].send + 4 * (count - 1));
        if (in_place && (is(job, "reduce_scatter") || (is(job, "scatter") && rank == ROOT)))
            expect_noticed(job, rank,
                           job->sites[rank].recv + 4 * count * (size_t)((rank + 1) % RANKS));
        if (got == 0) {
            job->sites[rank].recv[0] ^= 1;
            assert_int_equal(wrong(job, rank), 1);
        }
    }
    close_job(job);
}

static void every_operation_is_checked_block_by_block(void **state) {
    (void)state;
    int count, looked = 0;
    const struct occl_perf_op *ops = occl_perf_ops(&count);
    for (int i = 0; i < count; i++) {
        if (!occl_perf_op_has_data(&ops[i]) || ops[i].uneven)
            continue;
        static const size_t counts[] = {1, 7, OCCL_VALUES_PERIOD, COUNT_MAX};
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            look_at(&ops[i], counts[c], false);
            if (ops[i].in_place != OCCL_PERF_NEVER_IN_PLACE)
                look_at(&ops[i], counts[c], true);
        }
        looked++;
    }
    assert_int_equal(looked, 11);
}

/* ---- blocks of different sizes ---- */

/* The sizes by the words of formulas.h, for 3 ranks: weights 1, 0, 5. */
static size_t part(size_t total, int k) {
    return k == 0 ? total / 6 : k == 1 ? 0 : total - total / 6;
}

static void uneven_blocks_are_as_documented(void **state) {
    (void)state;
    static const uint64_t totals[] = {0, 1, 5, 8, 1000, 1ull << 40};
    for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++) {
        for (int k = 0; k < RANKS; k++)
            assert_int_equal(occl_perf_uneven_count(totals[t], RANKS, k), part(totals[t], k));
        for (int ranks = 1; ranks <= 64; ranks++) {
            uint64_t sum = 0;
            for (int k = 0; k < ranks; k++)
                sum += occl_perf_uneven_count(totals[t], ranks, k);
            assert_int_equal(sum, totals[t]);
        }
    }
    /* One large, some empty. */
    for (int k = 0; k < 8; k++) {
        uint64_t count = occl_perf_uneven_count(8000, 8, k);
        assert_true((count == 0) == (k % 4 == 1));
        assert_true(k == 7 || count * 2 < occl_perf_uneven_count(8000, 8, 7));
    }
}

/* Element i of what a rank receives in such an op; *out_count: how many it receives. */
static int32_t uneven_element(const struct job *job, int rank, size_t i, size_t *out_count) {
    size_t total = job->count, own = part(total, rank), before = 0, at = 0;
    for (int k = 0; k < rank; k++)
        before += part(total, k);
    *out_count = is(job, "reduce_scatter_v") || is(job, "scatter_v") ? own
                 : is(job, "gather_v") && rank != ROOT               ? 0
                                                                     : total;
    if (i >= *out_count)
        return 0;
    if (is(job, "reduce_scatter_v"))
        return sum_of(job, RANKS, before + i);
    if (is(job, "scatter_v"))
        return job->inputs[ROOT][before + i];
    for (int from = 0;; from++) {
        bool rotated = is(job, "all_to_all_v");
        size_t block = part(total, rotated ? (from + rank) % RANKS : from);
        size_t sent_at = 0;
        for (int k = 0; rotated && k < rank; k++)
            sent_at += part(total, (from + k) % RANKS);
        if (i < at + block)
            return job->inputs[from][sent_at + i - at];
        at += block;
    }
}

static void look_at_uneven(const struct occl_perf_op *op, size_t total, bool in_place) {
    struct job *job = open_job(op, total, in_place);
    size_t got, none;
    for (int rank = 0; rank < RANKS; rank++) {
        int32_t *recv = job->calls[rank].recv;
        (void)uneven_element(job, rank, 0, &got);
        for (size_t i = 0; i < got; i++)
            recv[i] = uneven_element(job, rank, i, &none);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int32_t *recv = job->calls[rank].recv;
        (void)uneven_element(job, rank, 0, &got);
        if (wrong(job, rank) != 0)
            print_error("%s, %zu elements, %s, rank %d\n", op->name, total,
                        in_place ? "in place" : "out of place", rank);
        assert_int_equal(wrong(job, rank), 0);
        for (size_t i = 0; i<got; i += got> 16 ? got / 16 : 1)
            expect_noticed(job, rank, recv + i);
        size_t extent = !in_place && op->recv == OCCL_PERF_ONE_BLOCK ? part(total, rank) : total;
        job->sites[rank].recv[4 * extent] ^= 1; /* the guard */
        assert_int_equal(wrong(job, rank), 1);
    }
    close_job(job);
}

static void uneven_operations_are_checked_block_by_block(void **state) {
    (void)state;
    int count, looked = 0;
    const struct occl_perf_op *ops = occl_perf_ops(&count);
    for (int i = 0; i < count; i++) {
        static const size_t totals[] = {1, 7, OCCL_VALUES_PERIOD, COUNT_MAX};
        for (size_t t = 0; ops[i].uneven && t < sizeof totals / sizeof totals[0]; t++) {
            look_at_uneven(&ops[i], totals[t], false);
            if (ops[i].in_place != OCCL_PERF_NEVER_IN_PLACE)
                look_at_uneven(&ops[i], totals[t], true);
        }
        looked += ops[i].uneven;
    }
    assert_int_equal(looked, 5);
}

/* Nothing at all happened: everything that should have come is missing. */
static void what_never_came_is_counted(void **state) {
    (void)state;
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "scatter"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct job *job = open_job(occl_perf_op_find(names[i]), 100, false);
        for (int rank = 0; rank < RANKS; rank++)
            assert_true(wrong(job, rank) == received(job, rank));
        close_job(job);
    }
}

/* Blocks that changed places are seen, whatever the size. */
static void blocks_in_a_wrong_order_are_counted(void **state) {
    (void)state;
    static const char *const names[] = {"all_gather", "all_to_all"};
    static char kept[4 * COUNT_MAX];
    for (size_t i = 0; i < 2; i++) {
        for (size_t count = 64; count <= 4096; count *= 8) {
            struct job *job = open_job(occl_perf_op_find(names[i]), count, false);
            carry_out(job);
            char *recv = job->sites[0].recv;
            memcpy(kept, recv, 4 * count);
            memmove(recv, recv + 4 * count, 4 * count);
            memcpy(recv + 4 * count, kept, 4 * count);
            assert_true(wrong(job, 0) > count);
            close_job(job);
        }
    }
}

static void operations_have_the_names_of_others_too(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"all_reduce", "all_reduce"},
                                          {"allreduce", "all_reduce"},
                                          {"all_reduce_perf", "all_reduce"},
                                          {"AllReduce", "all_reduce"},
                                          {"alltoall", "all_to_all"},
                                          {"alltoall_perf", "all_to_all"},
                                          {"allgather", "all_gather"},
                                          {"bcast", "broadcast"},
                                          {"reduce_scatter_block", "reduce_scatter"},
                                          {"sendrecv", "sendrecv"},
                                          {"send_recv", "sendrecv"},
                                          {"fanin", "fan_in"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct occl_perf_op *op = occl_perf_op_find(rows[i][0]);
        assert_non_null(op);
        assert_string_equal(op->name, rows[i][1]);
    }
    assert_null(occl_perf_op_find(""));
    assert_null(occl_perf_op_find("all"));
    assert_null(occl_perf_op_find("hypercube"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_checked_block_by_block),
        cmocka_unit_test(uneven_blocks_are_as_documented),
        cmocka_unit_test(uneven_operations_are_checked_block_by_block),
        cmocka_unit_test(what_never_came_is_counted),
        cmocka_unit_test(blocks_in_a_wrong_order_are_counted),
        cmocka_unit_test(operations_have_the_names_of_others_too),
    };
    return cmocka_run_group_tests_name("perf_check", tests, NULL, NULL);
}
