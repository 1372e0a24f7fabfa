/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of gpu/host/reduce.h by example, with literal bits, and the numeric reports that shaped
 * them (test_G..). Each case runs on every instruction set of this CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "gpu/host/fp_env.h"
#include "gpu/host/reduce.h"
#include "tests/gpu_host/reference.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { SRC_MAX = 16, FILL_COUNT = 45 };

static const uint32_t isa_masks[] = {OCCL_ISA_PORTABLE, OCCL_ISA_AVX2, OCCL_ISA_AVX512};

/* Reduces one element on each instruction set, as a single element and in each place of a longer
 * buffer, and requires the given bits. */
static void expect_bits(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *values,
                        size_t n_src, uint64_t expected) {
    const size_t size = occl_dtype_bytes(dtype);
    unsigned char src_bytes[SRC_MAX][FILL_COUNT * 8];
    unsigned char out[FILL_COUNT * 8];
    const void *src[SRC_MAX];
    void *dst[1] = {out};
    for (size_t k = 0; k < n_src; k++) {
        for (size_t i = 0; i < FILL_COUNT; i++)
            reference_put(src_bytes[k], i, size, values[k]);
        src[k] = src_bytes[k];
    }
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
        if (movers == NULL)
            continue;
        for (size_t count = 1; count <= FILL_COUNT; count += FILL_COUNT - 1) {
            const struct occl_reduce_job job = {.dtype = dtype,
                                                .redop = redop,
                                                .count = count,
                                                .n_src = (uint32_t)n_src,
                                                .n_dst = 1,
                                                .src = src,
                                                .dst = dst,
                                                .divisor = divisor};
            memset(out, 0x77, sizeof(out));
            movers->reduce(&job);
            for (size_t i = 0; i < count; i++) {
                uint64_t got = reference_get(out, i, size);
                if (got != expected)
                    print_error("%s %s %s: element %zu of %zu is %#llx\n", movers->isa,
                                occl_dtype_name(dtype), occl_redop_name(redop), i, count,
                                (unsigned long long)got);
                assert_int_equal(got, expected);
            }
        }
    }
}

static void expect_2(uint32_t dtype, uint32_t redop, uint64_t a, uint64_t b, uint64_t expected) {
    const uint64_t values[2] = {a, b};
    expect_bits(dtype, redop, redop == OCCL_RO_AVG ? 2 : 0, values, 2, expected);
}

/* Bits of the special values of a float type. */
struct specials {
    uint32_t dtype;
    uint64_t nan, infinity, minus_infinity, minus_zero, one, largest, denormal, quiet_minus_nan,
        signalling_nan;
};

static const struct specials float_types[] = {
    {OCCL_DT_FLOAT16, 0x7e00, 0x7c00, 0xfc00, 0x8000, 0x3c00, 0x7bff, 0x0001, 0xfe12, 0x7c01},
    {OCCL_DT_BFLOAT16, 0x7fc0, 0x7f80, 0xff80, 0x8000, 0x3f80, 0x7f7f, 0x0001, 0xffd2, 0x7f81},
    {OCCL_DT_FLOAT32, 0x7fc00000, 0x7f800000, 0xff800000, 0x80000000, 0x3f800000, 0x7f7fffff, 1,
     0xffc00012, 0x7f800001},
    {OCCL_DT_FLOAT64, 0x7ff8000000000000, 0x7ff0000000000000, 0xfff0000000000000,
     0x8000000000000000, 0x3ff0000000000000, 0x7fefffffffffffff, 1, 0xfff8000000000012,
     0x7ff0000000000001},
};

static void test_nan_is_canonical(void **state) {
    (void)state;
    static const uint32_t redops[] = {OCCL_RO_SUM, OCCL_RO_MIN, OCCL_RO_MAX, OCCL_RO_AVG};
    for (size_t t = 0; t < COUNT_OF(float_types); t++) {
        const struct specials *s = &float_types[t];
        const uint64_t nans[] = {s->nan, s->quiet_minus_nan, s->signalling_nan};
        for (size_t o = 0; o < COUNT_OF(redops); o++)
            for (size_t n = 0; n < COUNT_OF(nans); n++) {
                expect_bits(s->dtype, redops[o], 1, &nans[n], 1, s->nan);
                expect_2(s->dtype, redops[o], nans[n], s->one, s->nan);
                expect_2(s->dtype, redops[o], s->one, nans[n], s->nan);
                expect_2(s->dtype, redops[o], s->minus_infinity, nans[n], s->nan);
                expect_2(s->dtype, redops[o], nans[n], nans[2 - n], s->nan);
                expect_bits(s->dtype, redops[o], 3, (uint64_t[]){s->one, nans[n], s->one}, 3,
                            s->nan);
            }
        expect_2(s->dtype, OCCL_RO_SUM, s->infinity, s->minus_infinity, s->nan);
        expect_2(s->dtype, OCCL_RO_AVG, s->minus_infinity, s->infinity, s->nan);
    }
}

static void test_infinities(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT_OF(float_types); t++) {
        const struct specials *s = &float_types[t];
        expect_2(s->dtype, OCCL_RO_SUM, s->infinity, s->one, s->infinity);
        expect_2(s->dtype, OCCL_RO_SUM, s->largest, s->largest, s->infinity);
        expect_2(s->dtype, OCCL_RO_AVG, s->minus_infinity, s->one, s->minus_infinity);
        expect_2(s->dtype, OCCL_RO_MIN, s->infinity, s->largest, s->largest);
        expect_2(s->dtype, OCCL_RO_MAX, s->largest, s->infinity, s->infinity);
        expect_2(s->dtype, OCCL_RO_MIN, s->minus_infinity, s->one, s->minus_infinity);
    }
}

static void test_zero_has_a_sign(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT_OF(float_types); t++) {
        const uint32_t dtype = float_types[t].dtype;
        const uint64_t minus_zero = float_types[t].minus_zero;
        expect_2(dtype, OCCL_RO_MIN, 0, minus_zero, minus_zero);
        expect_2(dtype, OCCL_RO_MIN, minus_zero, 0, minus_zero);
        expect_2(dtype, OCCL_RO_MAX, 0, minus_zero, 0);
        expect_2(dtype, OCCL_RO_MAX, minus_zero, 0, 0);
        expect_2(dtype, OCCL_RO_MAX, minus_zero, minus_zero, minus_zero);
        expect_2(dtype, OCCL_RO_SUM, minus_zero, minus_zero, minus_zero);
        expect_2(dtype, OCCL_RO_SUM, minus_zero, 0, 0);
        expect_2(dtype, OCCL_RO_AVG, minus_zero, minus_zero, minus_zero);
        expect_bits(dtype, OCCL_RO_SUM, 0, &minus_zero, 1, minus_zero);
    }
}

static void test_denormals_are_kept(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT_OF(float_types); t++) {
        const struct specials *s = &float_types[t];
        expect_2(s->dtype, OCCL_RO_SUM, s->denormal, s->denormal, 2);
        expect_2(s->dtype, OCCL_RO_SUM, s->denormal, 0, s->denormal);
        expect_2(s->dtype, OCCL_RO_MAX, s->denormal, s->minus_zero, s->denormal);
        expect_2(s->dtype, OCCL_RO_MIN, s->denormal, s->one, s->denormal);
        expect_2(s->dtype, OCCL_RO_AVG, 3, 3, 3);
        /* 1.5 units of the last place, to even. */
        expect_2(s->dtype, OCCL_RO_AVG, 1, 2, 2);
    }
}

static void test_16_bit_floats_round_to_even(void **state) {
    (void)state;
    /* 2048 + 1 and 2050 + 1 lie between two float16; 2048 + 1 + 1 does not: rounding happens once.
     */
    expect_2(OCCL_DT_FLOAT16, OCCL_RO_SUM, 0x6800, 0x3c00, 0x6800);
    expect_2(OCCL_DT_FLOAT16, OCCL_RO_SUM, 0x6801, 0x3c00, 0x6802);
    expect_bits(OCCL_DT_FLOAT16, OCCL_RO_SUM, 0, (uint64_t[]){0x6800, 0x3c00, 0x3c00}, 3, 0x6801);
    /* A little more than half a unit. */
    expect_bits(OCCL_DT_FLOAT16, OCCL_RO_SUM, 0, (uint64_t[]){0x6800, 0x3c00, 0x0c00}, 3, 0x6801);
    /* 65504 + 15.99 stays, + 16 is the tie that becomes infinity. */
    expect_2(OCCL_DT_FLOAT16, OCCL_RO_SUM, 0x7bff, 0x4bff, 0x7bff);
    expect_2(OCCL_DT_FLOAT16, OCCL_RO_SUM, 0x7bff, 0x4c00, 0x7c00);
    /* The largest denormal and the smallest make the smallest normal. */
    expect_2(OCCL_DT_FLOAT16, OCCL_RO_SUM, 0x03ff, 0x0001, 0x0400);
    /* 256 + 1, 258 + 1 in bfloat16. */
    expect_2(OCCL_DT_BFLOAT16, OCCL_RO_SUM, 0x4380, 0x3f80, 0x4380);
    expect_2(OCCL_DT_BFLOAT16, OCCL_RO_SUM, 0x4381, 0x3f80, 0x4382);
    expect_bits(OCCL_DT_BFLOAT16, OCCL_RO_SUM, 0, (uint64_t[]){0x4380, 0x3f80, 0x3f80}, 3, 0x4381);
    /* Half a unit above the largest number. */
    expect_2(OCCL_DT_BFLOAT16, OCCL_RO_SUM, 0x7f7f, 0x7b00, 0x7f80);
}

/* Every float16 and bfloat16 passes through unchanged (NaNs become canonical), and every one of
 * them rounds from the float32 that a division makes as the reference says. */
static void test_16_bit_floats_all_values(void **state) {
    (void)state;
    static const uint32_t dtypes[] = {OCCL_DT_FLOAT16, OCCL_DT_BFLOAT16};
    static const uint32_t divisors[] = {1, 3, 10};
    static uint16_t in[65536], out[65536];
    const void *src[1] = {in};
    void *dst[1] = {out};
    for (size_t i = 0; i < COUNT_OF(in); i++)
        in[i] = (uint16_t)i;
    for (size_t t = 0; t < COUNT_OF(dtypes); t++)
        for (size_t v = 0; v < COUNT_OF(divisors); v++)
            for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
                const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
                const struct occl_reduce_job job = {.dtype = dtypes[t],
                                                    .redop = OCCL_RO_AVG,
                                                    .count = COUNT_OF(in),
                                                    .n_src = 1,
                                                    .n_dst = 1,
                                                    .src = src,
                                                    .dst = dst,
                                                    .divisor = divisors[v]};
                if (movers == NULL)
                    continue;
                movers->reduce(&job);
                for (size_t i = 0; i < COUNT_OF(in); i++) {
                    uint64_t bits = i;
                    assert_int_equal(out[i], reference_reduce(dtypes[t], OCCL_RO_AVG, divisors[v],
                                                              NULL, &bits, 1));
                    if (divisors[v] == 1 && !isnan(reference_value(dtypes[t], i)))
                        assert_int_equal(out[i], i);
                }
            }
}

/* The order of the sources is the order of the additions. */
static void test_sources_ascend(void **state) {
    (void)state;
    const uint64_t big = 0x4b800000, minus_big = 0xcb800000, one = 0x3f800000; /* 2^24 */
    expect_bits(OCCL_DT_FLOAT32, OCCL_RO_SUM, 0, (uint64_t[]){big, one, minus_big}, 3, 0);
    expect_bits(OCCL_DT_FLOAT32, OCCL_RO_SUM, 0, (uint64_t[]){big, minus_big, one}, 3, one);
    expect_bits(OCCL_DT_FLOAT32, OCCL_RO_SUM, 0, (uint64_t[]){one, big, minus_big}, 3, 0);
}

static void test_int_average_truncates(void **state) {
    (void)state;
    static const uint32_t dtypes[] = {OCCL_DT_INT32, OCCL_DT_INT64};
    for (size_t t = 0; t < COUNT_OF(dtypes); t++) {
        const uint64_t mask = dtypes[t] == OCCL_DT_INT32 ? UINT32_MAX : UINT64_MAX;
        const uint64_t largest = mask >> 1, smallest = largest + 1;
        expect_2(dtypes[t], OCCL_RO_AVG, 3, 4, 3);
        expect_2(dtypes[t], OCCL_RO_AVG, -3 & mask, -4 & mask, -3 & mask);
        expect_2(dtypes[t], OCCL_RO_AVG, 1, -2 & mask, 0);
        expect_2(dtypes[t], OCCL_RO_AVG, largest, largest, largest);
        expect_2(dtypes[t], OCCL_RO_AVG, smallest, smallest, smallest);
        expect_2(dtypes[t], OCCL_RO_AVG, smallest, largest, 0);
        expect_bits(dtypes[t], OCCL_RO_AVG, 3, (uint64_t[]){largest, largest, largest - 1}, 3,
                    largest - 1);
    }
}

/* Quotients next to an integer: the reciprocal of 49, for one, is a little too small. */
static void test_int_average_is_exact(void **state) {
    (void)state;
    static const uint32_t dtypes[] = {OCCL_DT_INT32, OCCL_DT_INT64};
    for (size_t t = 0; t < COUNT_OF(dtypes); t++)
        for (int64_t divisor = 1; divisor <= 64; divisor++)
            for (int64_t q = -33554431; q <= 33554431; q += 33554431)
                for (int64_t rest = -1; rest <= 1; rest++) {
                    const uint64_t x = (uint64_t)(q * divisor + rest);
                    const uint64_t mask = dtypes[t] == OCCL_DT_INT32 ? UINT32_MAX : UINT64_MAX;
                    const uint64_t value = x & mask;
                    expect_bits(dtypes[t], OCCL_RO_AVG, (uint32_t)divisor, &value, 1,
                                (uint64_t)((q * divisor + rest) / divisor) & mask);
                }
}

/* One rounding of the exact sum, and float32's own error on the way, bounds a bfloat16 sum: with 8
 * and 16 sources, for spread exponents and for one big value among many small ones. */
static void test_G01_bfloat16_sum_is_accurate(void **state) {
    (void)state;
    enum { COUNT = 2000 };
    static uint16_t in[SRC_MAX][COUNT], out[COUNT];
    struct random r = {1};
    const void *src[SRC_MAX];
    void *dst[1] = {out};
    for (size_t k = 0; k < SRC_MAX; k++) {
        src[k] = in[k];
        for (size_t i = 0; i < COUNT; i++) {
            int exponent = i % 2 == 0 ? (int)random_below(&r, 16) - 8 : k == 0 ? 8 : 0;
            double fraction = 1.0 + (double)random_below(&r, 128) / 128;
            in[k][i] = (uint16_t)reference_bits(OCCL_DT_BFLOAT16, ldexp(fraction, exponent));
        }
    }
    for (size_t n = 8; n <= SRC_MAX; n += 8)
        for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
            const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
            const struct occl_reduce_job job = {.dtype = OCCL_DT_BFLOAT16,
                                                .redop = OCCL_RO_SUM,
                                                .count = COUNT,
                                                .n_src = (uint32_t)n,
                                                .n_dst = 1,
                                                .src = src,
                                                .dst = dst};
            if (movers == NULL)
                continue;
            movers->reduce(&job);
            for (size_t i = 0; i < COUNT; i++) {
                double exact = 0;
                for (size_t k = 0; k < n; k++)
                    exact += reference_value(OCCL_DT_BFLOAT16, in[k][i]);
                double error = fabs(reference_value(OCCL_DT_BFLOAT16, out[i]) - exact);
                double bound = ldexp(1.0, -8) + (double)(n - 1) * ldexp(1.0, -24);
                assert_true(error <= exact * bound);
            }
        }
}

static void test_G02_int_sums_wrap(void **state) {
    (void)state;
    expect_2(OCCL_DT_INT32, OCCL_RO_SUM, 0x7fffffff, 1, 0x80000000);
    expect_2(OCCL_DT_INT32, OCCL_RO_SUM, 0x7fffffff, 0x7fffffff, 0xfffffffe);
    expect_2(OCCL_DT_INT32, OCCL_RO_SUM, 0x80000000, 0x80000000, 0);
    expect_2(OCCL_DT_INT32, OCCL_RO_MIN, 0x80000000, 0x7fffffff, 0x80000000);
    expect_2(OCCL_DT_INT32, OCCL_RO_MAX, 0x80000000, 0x7fffffff, 0x7fffffff);
    expect_2(OCCL_DT_INT64, OCCL_RO_SUM, 0x7fffffffffffffff, 1, 0x8000000000000000);
    expect_2(OCCL_DT_INT64, OCCL_RO_SUM, 0x8000000000000000, 0x8000000000000000, 0);
    expect_2(OCCL_DT_INT64, OCCL_RO_SUM, 0xffffffff, 1, 0x100000000);
    expect_2(OCCL_DT_INT64, OCCL_RO_MIN, 0x8000000000000000, 0x7fffffffffffffff,
             0x8000000000000000);
    expect_2(OCCL_DT_INT64, OCCL_RO_MAX, 0x80000000, 0x7fffffff, 0x80000000);
}

/* Rows of bfloat16, reduced as 1, 4, 64 and 1024 copies in one job and at other positions, keep
 * their bits. */
static void test_G03_bits_do_not_depend_on_size(void **state) {
    (void)state;
    enum { ROW = 7, COPIES = 1024, SOURCES = 9 };
    static uint16_t in[SOURCES][ROW * COPIES + 1], out[ROW * COPIES + 1];
    static const size_t copies[] = {1, 4, 64, COPIES};
    uint16_t first[ROW];
    struct random r = {3};
    const void *src[SOURCES];
    for (size_t k = 0; k < SOURCES; k++)
        for (size_t i = 0; i < COUNT_OF(in[k]); i++)
            in[k][i] =
                i < ROW ? (uint16_t)reference_sample(&r, OCCL_DT_BFLOAT16, 0) : in[k][i - ROW];
    for (size_t c = 0; c < COUNT_OF(copies) * COUNT_OF(isa_masks) * 4; c++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[c % COUNT_OF(isa_masks)]);
        const size_t skip = c / 12 % 2;
        void *dst[1] = {out + c / 6 % 2};
        if (movers == NULL)
            continue;
        for (size_t k = 0; k < SOURCES; k++)
            src[k] = in[k] + skip;
        const struct occl_reduce_job job = {.dtype = OCCL_DT_BFLOAT16,
                                            .redop = OCCL_RO_SUM,
                                            .count = ROW * copies[c / 12],
                                            .n_src = SOURCES,
                                            .n_dst = 1,
                                            .src = src,
                                            .dst = dst,
                                            .flags = c / 3 % 2 ? OCCL_MOVE_NONTEMPORAL : 0};
        movers->reduce(&job);
        const uint16_t *result = dst[0];
        if (c == 0)
            memcpy(first, result, sizeof(first));
        for (size_t i = 0; i < job.count; i++)
            assert_int_equal(result[i], first[(i + skip) % ROW]);
    }
}

/* Averages of 3: float16 whose sum passes 65504 while the mean does not stays finite and right, and
 * integers truncate without an intermediate overflow. */
static void test_G05_average(void **state) {
    (void)state;
    expect_bits(OCCL_DT_FLOAT16, OCCL_RO_AVG, 3, (uint64_t[]){0x7bff, 0x7bff, 0x7bff}, 3, 0x7bff);
    expect_bits(OCCL_DT_FLOAT16, OCCL_RO_AVG, 3, (uint64_t[]){0x7a00, 0x7b00, 0x7900}, 3, 0x7a00);
    expect_bits(OCCL_DT_BFLOAT16, OCCL_RO_AVG, 3, (uint64_t[]){0x4040, 0x4080, 0x40a0}, 3, 0x4080);
    expect_bits(OCCL_DT_FLOAT32, OCCL_RO_AVG, 3, (uint64_t[]){0x3f800000, 0, 0}, 3, 0x3eaaaaab);
    expect_bits(OCCL_DT_FLOAT64, OCCL_RO_AVG, 3, (uint64_t[]){0x3ff0000000000000, 0, 0}, 3,
                0x3fd5555555555555);
    expect_bits(OCCL_DT_INT32, OCCL_RO_AVG, 3, (uint64_t[]){0x7fffffff, 0x7fffffff, 0x7ffffffd}, 3,
                0x7ffffffe);
    expect_bits(OCCL_DT_INT64, OCCL_RO_AVG, 3,
                (uint64_t[]){0x8000000000000000, 0x8000000000000000, 0x8000000000000001}, 3,
                0x8000000000000001);
}

/* A thread with flushed denormals and another rounding gets the default environment, and its own
 * back afterwards. */
static void test_fp_env_is_restored(void **state) {
    (void)state;
#if defined(__x86_64__)
    const uint32_t theirs = (OCCL_FP_ENV_DEFAULT | 0x8040) ^ 0x6000;
    const uint64_t denormals[2] = {1, 1};
    assert_true(occl_fp_env_is_default());
    uint32_t before = occl_fp_env_enter();
    occl_fp_env_leave(before);
    assert_true(occl_fp_env_is_default());
    _mm_setcsr(theirs);
    bool found = occl_fp_env_is_default();
    before = occl_fp_env_enter();
    bool entered = occl_fp_env_is_default();
    expect_bits(OCCL_DT_FLOAT32, OCCL_RO_SUM, 0, denormals, 2, 2);
    occl_fp_env_leave(before);
    uint32_t after = _mm_getcsr();
    _mm_setcsr(OCCL_FP_ENV_DEFAULT);
    assert_false(found);
    assert_true(entered);
    assert_int_equal(after, theirs);
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan_is_canonical),
        cmocka_unit_test(test_infinities),
        cmocka_unit_test(test_zero_has_a_sign),
        cmocka_unit_test(test_denormals_are_kept),
        cmocka_unit_test(test_16_bit_floats_round_to_even),
        cmocka_unit_test(test_16_bit_floats_all_values),
        cmocka_unit_test(test_sources_ascend),
        cmocka_unit_test(test_int_average_truncates),
        cmocka_unit_test(test_int_average_is_exact),
        cmocka_unit_test(test_G01_bfloat16_sum_is_accurate),
        cmocka_unit_test(test_G02_int_sums_wrap),
        cmocka_unit_test(test_G03_bits_do_not_depend_on_size),
        cmocka_unit_test(test_G05_average),
        cmocka_unit_test(test_fp_env_is_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
