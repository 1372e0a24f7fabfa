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
#include "tools/perf/small_floats.h"
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
    /* The median of 100 lies between the 40th and the 61st with 95 %. */
    size_t low, high;
    occl_perf_median_interval(100, &low, &high);
    assert_int_equal(low, 39);
    assert_int_equal(high, 60);
    occl_perf_median_interval(1, &low, &high);
    assert_int_equal(low + high, 0);
    occl_perf_median_interval(5, &low, &high);
    assert_int_equal(low, 0);
    assert_int_equal(high, 4);
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

static const enum occl_type types[] = {
    OCCL_INT8,          OCCL_UINT8,       OCCL_INT16,      OCCL_UINT16,     OCCL_INT32,
    OCCL_UINT32,        OCCL_INT64,       OCCL_UINT64,     OCCL_FLOAT16,    OCCL_BFLOAT16,
    OCCL_FLOAT32,       OCCL_FLOAT64,     OCCL_FLOAT8E4M3, OCCL_FLOAT8E5M2, OCCL_FLOAT32_INT32,
    OCCL_FLOAT64_INT64, OCCL_INT32_INT32, OCCL_INT64_INT64};
#define TYPES (sizeof types / sizeof types[0])

static uint64_t period_a[2 * OCCL_VALUES_PERIOD], period_b[2 * OCCL_VALUES_PERIOD];

static void inputs_depend_on_rank_and_seed(void **state) {
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
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
    for (size_t t = 0; t < TYPES; t++) {
        for (enum occl_redop op = OCCL_SUM; op <= OCCL_MAXLOC; op++) {
            bool changes = op == OCCL_PREMULSUM || (op >= OCCL_LAND && op <= OCCL_LXOR);
            if (changes || !occl_values_defined(types[t], op))
                continue;
            occl_values_input(types[t], 0, 5, period_a);
            occl_values_reduce(types[t], op, 1, 5, period_b);
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

static void operators_are_defined_as_the_header_says(void **state) {
    (void)state;
    int defined = 0;
    for (size_t t = 0; t < TYPES; t++)
        for (enum occl_redop op = OCCL_SUM; op <= OCCL_MAXLOC; op++)
            defined += occl_values_defined(types[t], op);
    assert_int_equal(defined, 8 * 12 + 6 * 6 + 4 * 2);
    assert_true(occl_values_defined(OCCL_FLOAT8E4M3, OCCL_PREMULSUM));
    assert_false(occl_values_defined(OCCL_FLOAT32, OCCL_BAND));
    assert_false(occl_values_defined(OCCL_FLOAT32, OCCL_MINLOC));
    assert_false(occl_values_defined(OCCL_INT32_INT32, OCCL_SUM));
    assert_true(occl_values_defined(OCCL_INT32_INT32, OCCL_MAXLOC));
}

/* Three ranks in int8, where nearly everything wraps, by a reader's arithmetic. */
static void integers_wrap_and_have_bits(void **state) {
    (void)state;
    static int8_t in[3][OCCL_VALUES_PERIOD];
    int8_t *out = (int8_t *)period_a;
    int seen_zero = 0, seen_one = 0;
    for (int rank = 0; rank < 3; rank++)
        occl_values_input(OCCL_INT8, rank, 4, in[rank]);
    for (enum occl_redop op = OCCL_SUM; op <= OCCL_LXOR; op++) {
        occl_values_reduce(OCCL_INT8, op, 3, 4, out);
        for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
            int a = in[0][i], b = in[1][i], c = in[2][i];
            int low = a < b ? a : b, high = a < b ? b : a;
            const int expected[] = {
                [OCCL_SUM] = a + b + c,           [OCCL_PROD] = a * b * c,
                [OCCL_MAX] = high > c ? high : c, [OCCL_MIN] = low < c ? low : c,
                [OCCL_AVG] = (a + b + c) / 3,     [OCCL_PREMULSUM] = -4 * a - b + 2 * c,
                [OCCL_BAND] = a & b & c,          [OCCL_BOR] = a | b | c,
                [OCCL_BXOR] = a ^ b ^ c,          [OCCL_LAND] = a && b && c,
                [OCCL_LOR] = a || b || c,         [OCCL_LXOR] = (a != 0) ^ (b != 0) ^ (c != 0),
            };
            assert_int_equal(out[i], (int8_t)(uint8_t)expected[op]);
            seen_zero += op == OCCL_LOR && out[i] == 0;
            seen_one += op == OCCL_LAND && out[i] == 1;
        }
    }
    assert_true(seen_zero > 0 && seen_one > 0);
    /* Unsigned: the same bits are large numbers. */
    static uint8_t natural[2][OCCL_VALUES_PERIOD];
    uint8_t *found = (uint8_t *)period_b;
    occl_values_input(OCCL_UINT8, 0, 4, natural[0]);
    occl_values_input(OCCL_UINT8, 1, 4, natural[1]);
    occl_values_reduce(OCCL_UINT8, OCCL_AVG, 2, 4, found);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++)
        assert_int_equal(found[i], (natural[0][i] + natural[1][i]) / 2);
}

static void pairs_tie_at_the_lowest_index(void **state) {
    (void)state;
    struct located {
        int32_t value, index;
    };
    static struct located in[4][OCCL_VALUES_PERIOD];
    struct located *least = (struct located *)(void *)period_a;
    int ties = 0;
    for (int rank = 0; rank < 4; rank++)
        occl_values_input(OCCL_INT32_INT32, rank, 6, in[rank]);
    occl_values_reduce(OCCL_INT32_INT32, OCCL_MINLOC, 4, 6, least);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
        bool is_ranks = false;
        for (int rank = 0; rank < 4; rank++) {
            const struct located *own = &in[rank][i];
            assert_true(least[i].value <= own->value);
            if (least[i].value == own->value)
                assert_true(least[i].index <= own->index);
            ties += least[i].value == own->value && least[i].index < own->index;
            is_ranks = is_ranks || memcmp(own, &least[i], sizeof *own) == 0;
        }
        assert_true(is_ranks);
    }
    assert_true(ties > 100);
    /* The same data in another type: halves, and a wide index. */
    double *wide = (double *)period_b;
    occl_values_reduce(OCCL_FLOAT64_INT64, OCCL_MINLOC, 4, 6, wide);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
        int64_t index;
        memcpy(&index, &wide[2 * i + 1], sizeof index);
        assert_true(wide[2 * i] == least[i].value * 0.5);
        assert_int_equal(index, least[i].index);
    }
}

/* Every number of a small type is its own nearest one; and the ends of the scale, by hand. */
static void small_floats_are_what_their_bits_say(void **state) {
    (void)state;
    const struct occl_small_float *forms[] = {&occl_float16, &occl_bfloat16, &occl_float8e4m3,
                                              &occl_float8e5m2};
    for (int f = 0; f < 4; f++) {
        int bits = forms[f]->exponent_bits + forms[f]->mantissa_bits;
        for (uint32_t code = 0; code < 2u << bits; code++) {
            float value = occl_small_float_to(forms[f], code);
            if (!isnan(value))
                assert_int_equal(occl_small_float_from(forms[f], value), code);
        }
        assert_true(occl_small_float_to(forms[f], 1u << bits) == 0);
        assert_int_equal(occl_small_float_from(forms[f], NAN), forms[f]->nan);
        assert_int_equal(occl_small_float_from(forms[f], -(float)INFINITY),
                         f == 2 ? 0x7fu : forms[f]->overflow | 1u << bits);
    }
    assert_true(occl_small_float_to(&occl_float16, 0x3c00) == 1.0f);
    assert_true(occl_small_float_to(&occl_float16, 0x0001) == 0x1p-24f);
    assert_true(occl_small_float_to(&occl_bfloat16, 0xc040) == -3.0f);
    assert_true(occl_small_float_to(&occl_float8e4m3, 0x7e) == 448.0f);
    assert_int_equal(occl_small_float_from(&occl_float8e4m3, 464.0f), 0x7e); /* a tie, to even */
    assert_int_equal(occl_small_float_from(&occl_float8e4m3, 465.0f), 0x7f);
    assert_int_equal(occl_small_float_from(&occl_float8e4m3, -465.0f), 0x7f);
    assert_int_equal(occl_small_float_from(&occl_float8e4m3, 0x1p-9f), 0x01);
    assert_int_equal(occl_small_float_from(&occl_float8e4m3, -0x1p-10f), 0x80);
    assert_int_equal(occl_small_float_from(&occl_float8e4m3, 0x1.1p-10f), 0x01);
    assert_true(occl_small_float_to(&occl_float8e5m2, 0x7b) == 57344.0f);
    assert_int_equal(occl_small_float_from(&occl_float8e5m2, 61440.0f), 0x7c); /* a tie, to even */
    assert_int_equal(occl_small_float_from(&occl_float8e5m2, 61439.0f), 0x7b);
}

/* Zeros of both signs are in the data: -0 is below +0, and the sum of -0 and +0 is +0. */
static void zeros_have_signs(void **state) {
    (void)state;
    static float in[2][OCCL_VALUES_PERIOD];
    float *out = (float *)period_a;
    int seen = 0;
    for (int rank = 0; rank < 2; rank++)
        occl_values_input(OCCL_FLOAT32, rank, 2, in[rank]);
    for (enum occl_redop op = OCCL_SUM; op <= OCCL_MIN; op++) {
        occl_values_reduce(OCCL_FLOAT32, op, 2, 2, out);
        for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
            if (in[0][i] != 0 || in[1][i] != 0)
                continue;
            seen++;
            assert_true(!signbit(in[0][i]) && signbit(in[1][i]));
            assert_int_equal(signbit(out[i]) != 0, op == OCCL_MIN || op == OCCL_PROD);
        }
    }
    assert_true(seen > 0);
}

/* The three types of factors, and rounding once: in float32 for what is smaller. */
static void factors_multiply_each_rank(void **state) {
    (void)state;
    static uint16_t in[3][OCCL_VALUES_PERIOD];
    static double wide[3][OCCL_VALUES_PERIOD];
    uint16_t *out = (uint16_t *)period_a;
    double *sum = (double *)period_b;
    for (int rank = 0; rank < 3; rank++) {
        occl_values_input(OCCL_FLOAT16, rank, 8, in[rank]);
        occl_values_input(OCCL_FLOAT64, rank, 8, wide[rank]);
    }
    occl_values_reduce(OCCL_FLOAT16, OCCL_PREMULSUM, 3, 8, out);
    occl_values_reduce(OCCL_FLOAT64, OCCL_PREMULSUM, 3, 8, sum);
    for (int i = 0; i < OCCL_VALUES_PERIOD; i++) {
        float narrow_sum = 0;
        double wide_sum = 0;
        for (int rank = 0; rank < 3; rank++) {
            float term = occl_small_float_to(&occl_float16, in[rank][i]) *
                         occl_values_factor_of(OCCL_FLOAT16, rank).single;
            double wide_term = wide[rank][i] * occl_values_factor_of(OCCL_FLOAT64, rank).wide;
            narrow_sum = rank ? narrow_sum + term : term;
            wide_sum = rank ? wide_sum + wide_term : wide_term;
        }
        assert_int_equal(out[i], occl_small_float_from(&occl_float16, narrow_sum));
        assert_memory_equal(&sum[i], &wide_sum, sizeof wide_sum);
    }
    assert_true(occl_values_factor_of(OCCL_UINT64, 1).natural == 5);
    assert_true(occl_values_factor_of(OCCL_INT64, 0).integer == -4);
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
    char *buffer = malloc((size_t)4 * OCCL_VALUES_PERIOD_BYTES);
    for (size_t t = 0; t < TYPES; t++) {
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
    /* From the middle of the period on, over its end. */
    occl_values_input(OCCL_INT32, 2, 1, period_a);
    for (size_t first = 0; first < 3 * OCCL_VALUES_PERIOD; first += 4000) {
        occl_values_fill_from(OCCL_INT32, period_a, first, buffer, 5000);
        for (size_t i = 0; i < 5000; i += 77)
            assert_memory_equal(buffer + 4 * i,
                                (char *)period_a + 4 * ((first + i) % OCCL_VALUES_PERIOD), 4);
        assert_int_equal(occl_values_count_wrong_from(OCCL_INT32, period_a, first, buffer, 5000),
                         0);
        assert_true(occl_values_count_wrong_from(OCCL_INT32, period_a, first + 1, buffer, 5000) >
                    4000);
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

/* Special values, by hand: the lesser one as IEEE 754-2019 has it, and a NaN with one bit pattern.
 */
static uint32_t least_of_three(uint32_t in[3][OCCL_VALUES_PERIOD], size_t i) {
    uint32_t best = in[0][i];
    for (int rank = 0; rank < 3; rank++) {
        float a, b;
        memcpy(&a, &best, sizeof a);
        memcpy(&b, &in[rank][i], sizeof b);
        if (isnan(a) || isnan(b))
            return 0x7fc00000u;
        if (b < a || (b == a && signbit(b)))
            best = in[rank][i];
    }
    return best;
}

static void special_values_are_there_and_reduced(void **state) {
    (void)state;
    static uint32_t in[3][OCCL_VALUES_PERIOD], least[OCCL_VALUES_PERIOD], sum[OCCL_VALUES_PERIOD];
    size_t nans = 0, payloads = 0, infinities = 0, zeros = 0, opposed = 0;
    for (int rank = 0; rank < 3; rank++)
        occl_values_input(OCCL_FLOAT32, rank, 5 | OCCL_VALUES_SPECIAL, in[rank]);
    occl_values_reduce(OCCL_FLOAT32, OCCL_MIN, 3, 5 | OCCL_VALUES_SPECIAL, least);
    occl_values_reduce(OCCL_FLOAT32, OCCL_SUM, 3, 5 | OCCL_VALUES_SPECIAL, sum);
    for (size_t i = 0; i < OCCL_VALUES_PERIOD; i++) {
        bool plus = false, minus = false, nan = false;
        assert_int_equal(least[i], least_of_three(in, i));
        for (int rank = 0; rank < 3; rank++) {
            plus |= in[rank][i] == 0x7f800000u;
            minus |= in[rank][i] == 0xff800000u;
            nan |= (in[rank][i] & 0x7fffffffu) > 0x7f800000u;
            nans += in[rank][i] == 0x7fc00000u;
            payloads += in[rank][i] == 0xffd12345u;
        }
        infinities += plus || minus;
        opposed += plus && minus && !nan;
        if (nan || (plus && minus))
            assert_int_equal(sum[i], 0x7fc00000u);
        else if (plus)
            assert_int_equal(sum[i], 0x7f800000u);
        zeros += least[i] == 0x80000000u && (in[0][i] == 0 || in[1][i] == 0 || in[2][i] == 0);
    }
    assert_true(nans > 100 && payloads > 100 && infinities > 100 && zeros > 100 && opposed > 10);
    /* What has no such values is as ever, but for nothing. */
    occl_values_input(OCCL_INT32, 1, 5 | OCCL_VALUES_SPECIAL, in[0]);
    occl_values_input(OCCL_INT32, 1, 5, in[1]);
    assert_memory_equal(in[0], in[1], sizeof in[0]);
}

/* A NaN is preferred to numbers, then the index; zeros differ. */
static void special_pairs_are_ordered(void **state) {
    (void)state;
    struct {
        uint32_t value;
        int32_t index;
    } in[2][OCCL_VALUES_PERIOD], most[OCCL_VALUES_PERIOD];
    size_t nans = 0;
    for (int rank = 0; rank < 2; rank++)
        occl_values_input(OCCL_FLOAT32_INT32, rank, 7 | OCCL_VALUES_SPECIAL, in[rank]);
    occl_values_reduce(OCCL_FLOAT32_INT32, OCCL_MAXLOC, 2, 7 | OCCL_VALUES_SPECIAL, most);
    for (size_t i = 0; i < OCCL_VALUES_PERIOD; i++) {
        bool nan[2];
        for (int rank = 0; rank < 2; rank++)
            nan[rank] = (in[rank][i].value & 0x7fffffffu) > 0x7f800000u;
        if (!nan[0] && !nan[1])
            continue;
        int32_t index = nan[0] && nan[1]
                            ? in[0][i].index < in[1][i].index ? in[0][i].index : in[1][i].index
                            : in[nan[1]][i].index;
        nans += nan[0] && nan[1];
        assert_int_equal(most[i].value, 0x7fc00000u);
        assert_int_equal(most[i].index, index);
    }
    assert_true(nans > 10);
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
        cmocka_unit_test(operators_are_defined_as_the_header_says),
        cmocka_unit_test(integers_wrap_and_have_bits),
        cmocka_unit_test(pairs_tie_at_the_lowest_index),
        cmocka_unit_test(small_floats_are_what_their_bits_say),
        cmocka_unit_test(zeros_have_signs),
        cmocka_unit_test(factors_multiply_each_rank),
        cmocka_unit_test(sixteen_bit_floats_round_to_nearest_even),
        cmocka_unit_test(filling_and_counting_agree),
        cmocka_unit_test(special_values_are_there_and_reduced),
        cmocka_unit_test(special_pairs_are_ordered),
    };
    return cmocka_run_group_tests_name("perf", tests, NULL, NULL);
}
