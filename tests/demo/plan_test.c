/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of ResNet-50, the orders in which ranks submit, and the histogram of latencies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tools/demo_job/job.h"

static void resnet50_has_161_tensors_and_25557032_parameters(void **state) {
    (void)state;
    uint32_t elements[OCCL_RESNET50_TENSORS];
    assert_int_equal(occl_resnet50_shapes(elements), 161);
    uint64_t sum = 0;
    uint32_t least = UINT32_MAX, most = 0;
    for (int i = 0; i < 161; i++) {
        sum += elements[i];
        least = elements[i] < least ? elements[i] : least;
        most = elements[i] > most ? elements[i] : most;
    }
    assert_int_equal(sum, 25557032);
    assert_int_equal(least * sizeof(float), 256);
    assert_int_equal(most * sizeof(float), 9 << 20);
    assert_int_equal(elements[0], 64 * 3 * 7 * 7);
    assert_int_equal(elements[159], 1000 * 2048);
    assert_int_equal(elements[160], 1000);
    /* Squares of 3x3 in each stage, as the paper's table has them: 3, 4, 6, 3. */
    static const uint32_t width[4] = {64, 128, 256, 512};
    static const int blocks[4] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; stage++) {
        int found = 0;
        for (int i = 0; i < 161; i++)
            found += elements[i] == width[stage] * width[stage] * 9;
        assert_int_equal(found, blocks[stage]);
    }
}

static void plan_gives_each_operation_its_own_buffer(void **state) {
    (void)state;
    static struct occl_demo_plan plan;
    occl_demo_plan_make(4, &plan);
    assert_int_equal(plan.count, OCCL_DEMO_OPS);
    size_t end = 0;
    int kinds[4] = {0};
    for (int i = 0; i < plan.count; i++) {
        assert_true(plan.ops[i].offset >= end);
        end = plan.ops[i].offset + plan.ops[i].elements;
        kinds[plan.ops[i].kind]++;
    }
    assert_true(end <= plan.arena_elements);
    assert_int_equal(kinds[OCCL_DEMO_ALL_REDUCE], 161);
    assert_int_equal(kinds[OCCL_DEMO_BROADCAST], OCCL_DEMO_BROADCASTS);
    assert_int_equal(kinds[OCCL_DEMO_SEND], OCCL_DEMO_MESSAGES);
    assert_int_equal(kinds[OCCL_DEMO_RECV], OCCL_DEMO_MESSAGES);
    for (int i = 0; i < 161; i++)
        assert_int_equal(plan.ops[i].tag, i + 1);
}

static void assert_permutation(const int *order, int count) {
    char seen[OCCL_DEMO_OPS] = {0};
    for (int i = 0; i < count; i++) {
        assert_in_range(order[i], 0, count - 1);
        assert_int_equal(seen[order[i]]++, 0);
    }
}

static void random_orders_are_permutations_that_differ(void **state) {
    (void)state;
    static struct occl_demo_plan plan;
    int a[OCCL_DEMO_OPS], b[OCCL_DEMO_OPS];
    occl_demo_plan_make(4, &plan);
    occl_demo_order(&plan, true, 7, 0, 0, a);
    assert_permutation(a, plan.count);
    occl_demo_order(&plan, true, 7, 0, 0, b);
    assert_memory_equal(a, b, sizeof a); /* a function of its arguments */
    static const struct {
        uint64_t seed;
        int rank, round;
    } others[] = {{8, 0, 0}, {7, 1, 0}, {7, 0, 1}};
    for (int i = 0; i < 3; i++) {
        occl_demo_order(&plan, true, others[i].seed, others[i].rank, others[i].round, b);
        assert_permutation(b, plan.count);
        assert_memory_not_equal(a, b, sizeof a);
    }
}

/* Runs the orders on an executor that takes each rank's operations strictly in order and finishes
 * one when all its members are at it. Returns whether all complete. */
static int ordered_executor_completes(const struct occl_demo_plan *plan, int ranks, bool random,
                                      uint64_t seed) {
    static int order[8][OCCL_DEMO_OPS];
    int at[8] = {0};
    for (int rank = 0; rank < ranks; rank++)
        occl_demo_order(plan, random, seed, rank, 0, order[rank]);
    for (int progressed = 1; progressed;) {
        progressed = 0;
        for (int rank = 0; rank < ranks; rank++) {
            if (at[rank] == plan->count)
                continue;
            int index = order[rank][at[rank]];
            enum occl_demo_kind kind = plan->ops[index].kind;
            int next = (rank + 1) % ranks;
            if (kind == OCCL_DEMO_SEND) {
                /* The receive of the same message stands behind its send in the plan. */
                if (at[next] < plan->count && order[next][at[next]] == index + 1) {
                    at[rank]++;
                    at[next]++;
                    progressed = 1;
                }
            } else if (kind != OCCL_DEMO_RECV && rank == 0) {
                int there = 0;
                for (int r = 0; r < ranks; r++)
                    there += at[r] < plan->count && order[r][at[r]] == index;
                for (int r = 0; there == ranks && r < ranks; r++)
                    at[r]++;
                progressed |= there == ranks;
            }
        }
    }
    for (int rank = 0; rank < ranks; rank++)
        if (at[rank] != plan->count)
            return 0;
    return 1;
}

static void an_ordered_executor_finishes_equal_orders_only(void **state) {
    (void)state;
    static struct occl_demo_plan plan;
    for (int ranks = 2; ranks <= 8; ranks++) {
        occl_demo_plan_make(ranks, &plan);
        assert_true(ordered_executor_completes(&plan, ranks, false, 1));
        for (uint64_t seed = 1; seed <= 50; seed++)
            assert_false(ordered_executor_completes(&plan, ranks, true, seed));
    }
}

static void latency_is_within_a_sixteenth(void **state) {
    (void)state;
    static struct occl_latency latency;
    static const uint64_t durations[] = {1, 15, 16, 17, 31, 32, 1000, 123456789, 60000000000};
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        memset(&latency, 0, sizeof latency);
        occl_latency_add(&latency, durations[i]);
        uint64_t found = occl_latency_quantile_ns(&latency, 0.5);
        assert_true(found >= durations[i] && found <= durations[i] + durations[i] / 16);
    }
    memset(&latency, 0, sizeof latency);
    assert_int_equal(occl_latency_quantile_ns(&latency, 0.99), 0);
    for (uint64_t i = 1; i <= 1000; i++)
        occl_latency_add(&latency, i * 1000);
    assert_in_range(occl_latency_quantile_ns(&latency, 0.5), 500000, 532000);
    assert_in_range(occl_latency_quantile_ns(&latency, 0.99), 990000, 1055000);
    occl_latency_add(&latency, UINT64_MAX); /* fits into the last bucket */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet50_has_161_tensors_and_25557032_parameters),
        cmocka_unit_test(plan_gives_each_operation_its_own_buffer),
        cmocka_unit_test(random_orders_are_permutations_that_differ),
        cmocka_unit_test(an_ordered_executor_finishes_equal_orders_only),
        cmocka_unit_test(latency_is_within_a_sixteenth),
    };
    return cmocka_run_group_tests_name("demo_plan", tests, NULL, NULL);
}
