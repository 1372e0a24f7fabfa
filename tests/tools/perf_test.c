/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of a row, and the reference that results are checked against. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/perf/formulas.h"
#include "tools/perf/values.h"

static void assert_close(double found, double expected) {
    if (fabs(found - expected) > 1e-9 * fabs(expected) + 1e-12)
        print_error("found %.12g, expected %.12g\n", found, expected);
    assert_true(fabs(found - expected) <= 1e-9 * fabs(expected) + 1e-12);
}

static void bandwidths_are_those_of_nccl_tests(void **state) {
    (void)state;
    /* 10^9 bytes in one second are 1 GB/s. */
    assert_close(occl_perf_algbw_gbps(1000000000, 1e6), 1);
    assert_close(occl_perf_algbw_gbps(1 << 20, 100), 10.48576);
    assert_close(occl_perf_busbw_gbps(OCCL_PERF_FACTOR_ALL_REDUCE, 8, 1 << 20, 100),
                 10.48576 * 2 * 7 / 8);
    assert_close(occl_perf_busbw_gbps(OCCL_PERF_FACTOR_ALL_REDUCE, 2, 1 << 20, 100), 10.48576);
    assert_close(occl_perf_busbw_gbps(OCCL_PERF_FACTOR_PART, 4, 1 << 20, 100), 10.48576 * 3 / 4);
    assert_close(occl_perf_busbw_gbps(OCCL_PERF_FACTOR_ONE, 4, 1 << 20, 100), 10.48576);
    assert_close(occl_perf_algbw_gbps(1, 0), 0);
}

static void quantiles_are_by_nearest_rank(void **state) {
    (void)state;
    double samples[100];
    for (int i = 0; i < 100; i++)
        samples[i] = 100 - i;
    occl_perf_sort(samples, 100);
    assert_close(samples[0], 1);
    assert_close(occl_perf_quantile(samples, 100, 0.5), 50);
    assert_close(occl_perf_quantile(samples, 100, 0.99), 99);
    assert_close(occl_perf_quantile(samples, 100, 1), 100);
    assert_close(occl_perf_quantile(samples, 100, 0), 1);
    assert_close(occl_perf_quantile(samples, 1, 0.99), 1);
    assert_close(occl_perf_quantile(samples, 0, 0.5), 0);
    assert_close(occl_perf_mean(samples, 100), 50.5);
    const double equal[] = {3, 3, 3};
    assert_close(occl_perf_variation(equal, 3), 0);
    const double two[] = {1, 3};
    assert_close(occl_perf_variation(two, 2), sqrt(2) / 2);
    assert_close(occl_perf_variation(two, 1), 0);
}

static void sizes_are_read_as_powers_of_1024(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } rows[] = {{"8", 8},          {"0", 0},          {"1K", 1024},     {"64k", 65536},
                {"1.5M", 1572864}, {"2G", 1ll << 31}, {"64KiB", 65536}, {"64KB", 65536},
                {"8B", 8},         {"", -1},          {"x", -1},        {"-1", -1},
                {"1T", -1},        {"1KK", -1},       {"8 ", -1},       {"nan", -1},
                {"1e30", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(occl_perf_parse_size(rows[i].text), rows[i].bytes);
}

static void a_sweep_never_stands_still(void **state) {
    (void)state;
    assert_int_equal(occl_perf_next_size(8, 4, 0), 32);
    assert_int_equal(occl_perf_next_size(8, 1, 16), 24);
    assert_int_equal(occl_perf_next_size(1, 1.5, 0), 2);
    assert_int_equal(occl_perf_next_size(0, 2, 0), 1);
    assert_int_equal(occl_perf_next_size(5, 1, 0), 6);
}

static const enum occl_type types[] = {OCCL_INT32,    OCCL_INT64,   OCCL_FLOAT16,
                                       OCCL_BFLOAT16, OCCL_FLOAT32, OCCL_FLOAT64};
static const enum occl_redop redops[] = {OCCL_SUM, OCCL_MIN, OCCL_MAX, OCCL_AVG};

static uint64_t period_a[OCCL_VALUES_PERIOD], period_b[OCCL_VALUES_PERIOD];

static void inputs_depend_on_rank_and_seed(void **state) {
    (void)state;
    for (size_t t = 0; t < 6; t++) {
        size_t bytes = OCCL_VALUES_PERIOD * occl_values_bytes(types[t]);
        occl_values_input(types[t], 0, 1, period_a);
        occl_values_input(types[t], 0, 1, period_b);
        assert_memory_equal(period_a, period_b, bytes);
        occl_values_input(types[t], 1, 1, period_b);
        assert_memory_not_equal(period_a, period_b, bytes);
        occl_values_input(types[t], 0, 2, period_b);
        assert_memory_not_equal(period_a, period_b, bytes);
    }
}

static void reduction_of_one_rank_is_its_input(void **state) {
    (void)state;
    for (size_t t = 0; t < 6; t++) {
        for (size_t o = 0; o < 4; o++) {
            occl_values_input(types[t], 0, 5, period_a);
            occl_values_reduce(types[t], redops[o], 1, 5, period_b);
            assert_memory_equal(period_a, period_b,
                                OCCL_VALUES_PERIOD * occl_values_bytes(types[t]));
        }
    }
}

/* The rules of occl.h, computed here from the inputs as a reader would. */
static void reductions_follow_the_rules(void **state) {
    (void)state;
    enum { RANKS = 5 };
    static int32_t in32[RANKS][OCCL_VALUES_PERIOD];
    static float inf[RANKS][OCCL_VALUES_PERIOD];
    for (int rank = 0; rank < RANKS; rank++) {
        occl_values_input(OCCL_INT32, rank, 9, in32[rank]);
        occl_values_input(OCCL_FLOAT32, rank, 9, inf[rank]);
    }
    int32_t *out32 = (int32_t *)period_a;
    float *outf = (float *)period_b;
    int wrapped = 0;
    occl_values_reduce(OCCL_INT32, OCCL_SUM, RANKS, 9, out32);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
        int64_t sum = 0;
        for (int rank = 0; rank < RANKS; rank++)
            sum += in32[rank][i];
        assert_int_equal(out32[i], (int32_t)(uint32_t)(uint64_t)sum);
        wrapped += sum != (int32_t)(uint32_t)(uint64_t)sum;
    }
    assert_true(wrapped > 0); /* the case is in the data */
    occl_values_reduce(OCCL_INT32, OCCL_AVG, RANKS, 9, out32);
    occl_values_reduce(OCCL_FLOAT32, OCCL_AVG, RANKS, 9, outf);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
        int64_t sum = 0;
        float fsum = inf[0][i];
        for (int rank = 0; rank < RANKS; rank++) {
            sum += in32[rank][i];
            fsum = rank ? fsum + inf[rank][i] : fsum;
        }
        assert_int_equal(out32[i], sum / RANKS);
        assert_true(outf[i] == fsum / (float)RANKS);
    }
    occl_values_reduce(OCCL_FLOAT32, OCCL_MIN, RANKS, 9, outf);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++)
        for (int rank = 0; rank < RANKS; rank++)
            assert_true(outf[i] <= inf[rank][i]);
}

/* Sums of few bfloat16 values are exact in a double: the result must be the nearest bfloat16. */
static void sixteen_bit_floats_round_to_nearest_even(void **state) {
    (void)state;
    enum { RANKS = 8 };
    static uint16_t in[RANKS][OCCL_VALUES_PERIOD];
    for (int rank = 0; rank < RANKS; rank++)
        occl_values_input(OCCL_BFLOAT16, rank, 3, in[rank]);
    uint16_t *out = (uint16_t *)period_a;
    occl_values_reduce(OCCL_BFLOAT16, OCCL_SUM, RANKS, 3, out);
    int rounded = 0;
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
        double exact = 0, found;
        for (int rank = 0; rank < RANKS; rank++) {
            uint32_t bits = (uint32_t)in[rank][i] << 16;
            float value;
            memcpy(&value, &bits, sizeof value);
            exact += value;
        }
        uint32_t bits = (uint32_t)out[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        found = value;
        /* Eight bits of precision: half a unit in the last place at most, ties to even. */
        double ulp = exact == 0 ? 0 : ldexp(1, ilogb(exact) - 7);
        assert_true(fabs(found - exact) <= ulp / 2);
        if (fabs(found - exact) == ulp / 2 && exact != found)
            assert_int_equal(out[i] & 1, 0);
        rounded += found != exact;
    }
    assert_true(rounded > 0);
    uint16_t *half = (uint16_t *)period_b;
    occl_values_input(OCCL_FLOAT16, 0, 3, half);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
        /* By definition: sign, exponent, mantissa; inputs are normal or zero, and rounded tenths.
         */
        int exponent = half[i] >> 10 & 31;
        double value = exponent ? ldexp(1024 + (half[i] & 1023), exponent - 25) : 0;
        assert_true(value <= 3.001);
        assert_true(fabs(value - (double)(float)(round(value * 10) * 0.1f)) <=
                    ldexp(1, exponent - 26));
    }
}

static void filling_and_counting_agree(void **state) {
    (void)state;
    static const size_t counts[] = {0,
                                    1,
                                    7,
                                    OCCL_VALUES_PERIOD - 1,
                                    OCCL_VALUES_PERIOD,
                                    OCCL_VALUES_PERIOD + 1,
                                    3 * OCCL_VALUES_PERIOD + 11};
    char *buffer = malloc(4 * OCCL_VALUES_PERIOD_BYTES);
    for (size_t t = 0; t < 6; t++) {
        size_t width = occl_values_bytes(types[t]);
        occl_values_input(types[t], 2, 1, period_a);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            occl_values_fill(types[t], period_a, buffer, counts[c]);
            assert_int_equal(occl_values_count_wrong(types[t], period_a, buffer, counts[c]), 0);
            if (counts[c] < 7)
                continue;
            buffer[5 * width] ^= 1;
            buffer[(counts[c] - 1) * width] ^= 2;
            assert_int_equal(occl_values_count_wrong(types[t], period_a, buffer, counts[c]), 2);
        }
    }
    /* Two blocks of a power of two that changed places are seen. */
    occl_values_input(OCCL_INT32, 2, 1, period_a);
    occl_values_fill(OCCL_INT32, period_a, buffer, 2048);
    char kept[4096];
    memcpy(kept, buffer, 4096);
    memmove(buffer, buffer + 4096, 4096);
    memcpy(buffer + 4096, kept, 4096);
    assert_true(occl_values_count_wrong(OCCL_INT32, period_a, buffer, 2048) > 1000);
    free(buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bandwidths_are_those_of_nccl_tests),
        cmocka_unit_test(quantiles_are_by_nearest_rank),
        cmocka_unit_test(sizes_are_read_as_powers_of_1024),
        cmocka_unit_test(a_sweep_never_stands_still),
        cmocka_unit_test(inputs_depend_on_rank_and_seed),
        cmocka_unit_test(reduction_of_one_rank_is_its_input),
        cmocka_unit_test(reductions_follow_the_rules),
        cmocka_unit_test(sixteen_bit_floats_round_to_nearest_even),
        cmocka_unit_test(filling_and_counting_agree),
    };
    return cmocka_run_group_tests_name("perf", tests, NULL, NULL);
}
