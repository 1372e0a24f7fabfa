/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of gpu/host/reduce.h by example, with literal bits, for products, factors, bits, truth,
 * pairs, small integers and 8-bit floats; sums, minima and averages of the large types are in
 * rules_test. Each case runs on every instruction set of this CPU, in each place of a buffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/host/reduce.h"
#include "tests/gpu_host/reference.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { SRC_MAX = 4, COUNT = 75, ELEMENT_MAX = 16 };

static const uint32_t isa_masks[] = {OCCL_ISA_PORTABLE, OCCL_ISA_AVX2, OCCL_ISA_AVX512};

/* An element of up to 16 bytes: low first. */
struct element {
    uint64_t low, high;
};

static void put(unsigned char *buffer, size_t i, size_t size, struct element x) {
    reference_put(buffer + i * size, 0, size < 8 ? size : 8, x.low);
    if (size == 16)
        reference_put(buffer + i * size, 1, 8, x.high);
}

static void expect_elements(uint32_t dtype, uint32_t redop, const uint64_t *factors, size_t n,
                            const struct element *values, struct element expected) {
    const size_t size = occl_dtype_bytes(dtype);
    unsigned char in[SRC_MAX][COUNT * ELEMENT_MAX], out[COUNT * ELEMENT_MAX];
    unsigned char want[COUNT * ELEMENT_MAX];
    const void *src[SRC_MAX];
    void *dst[1] = {out};
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < n; k++)
            put(in[k], i, size, values[k]);
        put(want, i, size, expected);
    }
    for (size_t k = 0; k < n; k++)
        src[k] = in[k];
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
        if (movers == NULL)
            continue;
        const struct occl_reduce_job job = {.dtype = dtype,
                                            .redop = redop,
                                            .count = COUNT,
                                            .n_src = (uint32_t)n,
                                            .n_dst = 1,
                                            .src = src,
                                            .dst = dst,
                                            .divisor = (uint32_t)n,
                                            .factors = factors};
        memset(out, 0x77, sizeof(out));
        movers->reduce(&job);
        if (memcmp(out, want, COUNT * size) != 0)
            print_error("%s %s %s: %#llx, expected %#llx\n", movers->isa, occl_dtype_name(dtype),
                        occl_redop_name(redop),
                        (unsigned long long)reference_get(out, 0, size < 8 ? size : 8),
                        (unsigned long long)expected.low);
        assert_memory_equal(out, want, COUNT * size);
    }
}

static void expect_1(uint32_t dtype, uint32_t redop, uint64_t a, uint64_t expected) {
    const struct element values[1] = {{a, 0}};
    expect_elements(dtype, redop, NULL, 1, values, (struct element){expected, 0});
}

static void expect_2(uint32_t dtype, uint32_t redop, uint64_t a, uint64_t b, uint64_t expected) {
    const struct element values[2] = {{a, 0}, {b, 0}};
    expect_elements(dtype, redop, NULL, 2, values, (struct element){expected, 0});
}

static void expect_factors(uint32_t dtype, uint64_t a, uint64_t f, uint64_t b, uint64_t g,
                           uint64_t expected) {
    const struct element values[2] = {{a, 0}, {b, 0}};
    const uint64_t factors[2] = {f, g};
    expect_elements(dtype, OCCL_RO_PREMULSUM, factors, 2, values, (struct element){expected, 0});
}

static void test_small_integers_wrap(void **state) {
    (void)state;
    expect_2(OCCL_DT_INT8, OCCL_RO_SUM, 0x7f, 1, 0x80);
    expect_2(OCCL_DT_UINT8, OCCL_RO_SUM, 0xff, 1, 0);
    expect_2(OCCL_DT_INT16, OCCL_RO_SUM, 0x7fff, 0x7fff, 0xfffe);
    expect_2(OCCL_DT_UINT32, OCCL_RO_SUM, 0xffffffff, 2, 1);
    expect_2(OCCL_DT_INT8, OCCL_RO_PROD, 0x10, 0x10, 0);
    expect_2(OCCL_DT_INT8, OCCL_RO_PROD, 0xff, 0x80, 0x80); /* -1 times -128 */
    expect_2(OCCL_DT_UINT8, OCCL_RO_PROD, 15, 17, 255);
    expect_2(OCCL_DT_INT16, OCCL_RO_PROD, 0x0100, 0x0101, 0x0100);
    expect_2(OCCL_DT_INT32, OCCL_RO_PROD, 0x80000000, 3, 0x80000000);
    expect_2(OCCL_DT_UINT64, OCCL_RO_PROD, 0xffffffffffffffff, 0xffffffffffffffff, 1);
    expect_2(OCCL_DT_INT64, OCCL_RO_PROD, 0x100000001, 0x100000001, 0x200000001);
}

static void test_extremes_know_the_sign(void **state) {
    (void)state;
    static const struct {
        uint32_t is_signed, is_unsigned;
        uint64_t least;
    } types[] = {{OCCL_DT_INT8, OCCL_DT_UINT8, 0x80},
                 {OCCL_DT_INT16, OCCL_DT_UINT16, 0x8000},
                 {OCCL_DT_INT32, OCCL_DT_UINT32, 0x80000000},
                 {OCCL_DT_INT64, OCCL_DT_UINT64, 0x8000000000000000}};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        expect_2(types[t].is_signed, OCCL_RO_MIN, types[t].least, 1, types[t].least);
        expect_2(types[t].is_signed, OCCL_RO_MAX, types[t].least, 1, 1);
        expect_2(types[t].is_unsigned, OCCL_RO_MIN, types[t].least, 1, 1);
        expect_2(types[t].is_unsigned, OCCL_RO_MAX, types[t].least, 1, types[t].least);
    }
}

static void test_averages_are_exact(void **state) {
    (void)state;
    expect_2(OCCL_DT_INT8, OCCL_RO_AVG, 0x80, 0x80, 0x80);
    expect_2(OCCL_DT_INT8, OCCL_RO_AVG, 0x80, 0x7f, 0); /* -1/2 */
    expect_2(OCCL_DT_INT8, OCCL_RO_AVG, 0xfd, 0xfc, 0xfd);
    expect_2(OCCL_DT_UINT8, OCCL_RO_AVG, 0xff, 0xfe, 0xfe);
    expect_2(OCCL_DT_INT16, OCCL_RO_AVG, 0x8000, 0x8001, 0x8001);
    expect_2(OCCL_DT_UINT16, OCCL_RO_AVG, 0xffff, 0xffff, 0xffff);
    expect_2(OCCL_DT_UINT32, OCCL_RO_AVG, 0xffffffff, 0xfffffffd, 0xfffffffe);
    expect_2(OCCL_DT_UINT64, OCCL_RO_AVG, 0xffffffffffffffff, 0xfffffffffffffffe,
             0xfffffffffffffffe);
    expect_2(OCCL_DT_INT64, OCCL_RO_AVG, 0x8000000000000000, 0x7fffffffffffffff, 0);
}

/* Every quotient there is of bytes: each sum by each number of ranks. */
static void test_every_average_of_bytes(void **state) {
    (void)state;
    unsigned char a[256], b[256], out[256];
    const void *src[OCCL_MOVE_SRC_MAX];
    void *dst[1] = {out};
    for (size_t i = 0; i < 256; i++)
        a[i] = (unsigned char)i;
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
        if (movers == NULL)
            continue;
        for (uint32_t n = 1; n <= OCCL_MOVE_SRC_MAX; n++)
            for (unsigned step = 0; step < 2 * n; step++) {
                /* The first sources vary together, so that sums reach over the whole range. */
                memset(b, step % 2 == 0 ? 0x7f : 0x80, sizeof(b));
                for (uint32_t k = 0; k < n; k++)
                    src[k] = k <= step / 2 ? a : b;
                struct occl_reduce_job job = {.dtype = OCCL_DT_INT8,
                                              .redop = OCCL_RO_AVG,
                                              .count = 256,
                                              .n_src = n,
                                              .n_dst = 1,
                                              .src = src,
                                              .dst = dst,
                                              .divisor = n};
                const int same = (int)(step / 2 + 1);
                movers->reduce(&job);
                for (int i = 0; i < 256; i++) {
                    int rest = step % 2 == 0 ? 127 : -128;
                    int sum = same * (int8_t)i + ((int)n - same) * rest;
                    assert_int_equal((int8_t)out[i], sum / (int)n);
                }
                job.dtype = OCCL_DT_UINT8;
                movers->reduce(&job);
                for (int i = 0; i < 256; i++) {
                    int rest = step % 2 == 0 ? 0x7f : 0x80;
                    assert_int_equal(out[i], (same * i + ((int)n - same) * rest) / (int)n);
                }
            }
    }
}

/* Of 16 bits, all values of one element: itself n times, so that the quotient is exact, and with
 * others at either end. */
static void test_averages_of_shorts(void **state) {
    (void)state;
    enum { ALL = 65536 };
    static uint16_t a[ALL], least[ALL], most[ALL], out[ALL];
    const void *src[OCCL_MOVE_SRC_MAX];
    void *dst[1] = {out};
    for (size_t i = 0; i < ALL; i++) {
        a[i] = (uint16_t)i;
        least[i] = 0x8000;
        most[i] = 0xffff;
    }
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
        if (movers == NULL)
            continue;
        for (uint32_t n = 1; n <= OCCL_MOVE_SRC_MAX; n++)
            for (int mix = 0; mix < 3; mix++) {
                const int same = mix == 0 ? (int)n : (int)(n + 2) / 3;
                for (int k = 0; k < (int)n; k++)
                    src[k] = k < same ? a : mix == 1 ? least : most;
                struct occl_reduce_job job = {.dtype = OCCL_DT_INT16,
                                              .redop = OCCL_RO_AVG,
                                              .count = ALL,
                                              .n_src = n,
                                              .n_dst = 1,
                                              .src = src,
                                              .dst = dst,
                                              .divisor = n};
                const int rest = mix == 1 ? -32768 : -1;
                movers->reduce(&job);
                for (int i = 0; i < ALL; i++)
                    if ((int16_t)out[i] != (same * (int16_t)i + ((int)n - same) * rest) / (int)n)
                        fail_msg("%s: int16 %d of %u, mix %d", movers->isa, i, n, mix);
                job.dtype = OCCL_DT_UINT16;
                movers->reduce(&job);
                for (int i = 0; i < ALL; i++)
                    if (out[i] != (same * i + ((int)n - same) * (rest & 0xffff)) / (int)n)
                        fail_msg("%s: uint16 %d of %u, mix %d", movers->isa, i, n, mix);
            }
    }
}

static void test_factors_of_integers(void **state) {
    (void)state;
    const uint64_t minus_1 = UINT64_MAX;
    expect_factors(OCCL_DT_INT8, 5, minus_1, 2, 3, 1);
    expect_factors(OCCL_DT_INT8, 5, 0x101, 2, 0, 5); /* the factor is 1 modulo 256 */
    expect_factors(OCCL_DT_UINT16, 0xffff, 2, 1, 1, 0xffff);
    expect_factors(OCCL_DT_INT32, 0x7fffffff, 2, 0, 9, 0xfffffffe);
    expect_factors(OCCL_DT_UINT64, 3, minus_1, 4, 1, 1);
    expect_factors(OCCL_DT_INT64, 1, 0x123456789abcdef0, 0, 1, 0x123456789abcdef0);
}

/* Each product is rounded on its own: fused, the first of these would not be zero. */
static void test_factors_of_floats(void **state) {
    (void)state;
    const uint64_t x = 0x3f800001, square = 0x3f800002, minus_1 = 0xbf800000; /* 1 + 2^-23 */
    expect_factors(OCCL_DT_FLOAT32, x, x, square, minus_1, 0);
    expect_factors(OCCL_DT_FLOAT32, square, minus_1, x, x, 0);
    expect_factors(OCCL_DT_FLOAT64, 0x3ff0000000000001, 0x3ff0000000000001, 0x3ff0000000000002,
                   0xbff0000000000000, 0);
    /* A product beyond the type, but not beyond float32. */
    expect_factors(OCCL_DT_FLOAT16, 0x7bff, 0x40000000, 0x7bff, minus_1, 0x7bff);
    expect_factors(OCCL_DT_FLOAT8E4M3, 0x7e, 0x40000000, 0x7e, minus_1, 0x7e);
    expect_factors(OCCL_DT_FLOAT8E5M2, 0x7b, 0x40000000, 0x7b, minus_1, 0x7b);
    expect_factors(OCCL_DT_BFLOAT16, 0x3f80, 0x3fc00000, 0, 0, 0x3fc0);
    expect_factors(OCCL_DT_FLOAT32, 0x7f800000, 0, 0, 0, 0x7fc00000); /* infinity times 0 */
    /* 1 times 2^-149. */
    expect_factors(OCCL_DT_FLOAT32, 0x3f800000, 1, 0, 0, 1);
    /* The products of one float8e4m3 leave the range of float32 where they are: 2^120 * 256. */
    expect_factors(OCCL_DT_FLOAT8E4M3, 0x78, 0x7b800000, 0x78, 0xfb800000, 0x7f);
    expect_factors(OCCL_DT_FLOAT8E4M3, 0x70, 0x7b800000, 0x70, 0xfb800000, 0);
}

static void test_products_of_floats(void **state) {
    (void)state;
    expect_2(OCCL_DT_FLOAT32, OCCL_RO_PROD, 0x3fc00000, 0xc0000000, 0xc0400000);
    expect_2(OCCL_DT_FLOAT32, OCCL_RO_PROD, 0x7f800000, 0, 0x7fc00000);
    expect_2(OCCL_DT_FLOAT32, OCCL_RO_PROD, 0x80000000, 0x40000000, 0x80000000);
    expect_2(OCCL_DT_FLOAT32, OCCL_RO_PROD, 1, 0x3f000000, 0); /* to even */
    expect_2(OCCL_DT_FLOAT32, OCCL_RO_PROD, 0x00800000, 0x3f000000, 0x00400000);
    expect_2(OCCL_DT_FLOAT16, OCCL_RO_PROD, 0x7bff, 0x4000, 0x7c00);
    expect_2(OCCL_DT_BFLOAT16, OCCL_RO_PROD, 0x7f7f, 0xbf80, 0xff7f);
    /* 1.125 * 1.125 = 1.265625, between 1.25 and 1.375. */
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_PROD, 0x39, 0x39, 0x3a);
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_PROD, 0x01, 0x30, 0x00); /* 2^-9 / 2, to even */
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_PROD, 0x03, 0x30, 0x02);
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_PROD, 0x7e, 0xb8, 0xfe);
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_PROD, 0x7e, 0xc0, 0x7f); /* NaN, without a sign */
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_PROD, 0x7b, 0xc0, 0xfc);
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_PROD, 0x7c, 0x00, 0x7e);
}

static void test_float8_sums(void **state) {
    (void)state;
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_SUM, 0x7e, 0x58, 0x7e); /* 448 + 16, a tie */
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_SUM, 0x7e, 0x59, 0x7f); /* 448 + 18 */
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_SUM, 0xfe, 0xd9, 0x7f);
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_SUM, 0x07, 0x01, 0x08); /* denormals make a normal */
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_SUM, 0x80, 0x80, 0x80);
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_SUM, 0xff, 0x00, 0x7f);
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_SUM, 0x7b, 0x6c, 0x7c); /* 57344 + 4096, a tie */
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_SUM, 0x7b, 0x6b, 0x7b);
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_SUM, 0x7c, 0xfc, 0x7e);
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_SUM, 0x03, 0x01, 0x04);
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_MIN, 0x7f, 0xfe, 0x7f);
    expect_2(OCCL_DT_FLOAT8E4M3, OCCL_RO_MAX, 0x7e, 0xff, 0x7f);
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_MIN, 0x7d, 0xfc, 0x7e);
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_MAX, 0x7c, 0xff, 0x7e);
    expect_2(OCCL_DT_FLOAT8E5M2, OCCL_RO_MIN, 0x00, 0x80, 0x80);
}

static void test_bits_and_truth(void **state) {
    (void)state;
    static const uint32_t types[] = {OCCL_DT_INT8,  OCCL_DT_UINT8,  OCCL_DT_INT16, OCCL_DT_UINT16,
                                     OCCL_DT_INT32, OCCL_DT_UINT32, OCCL_DT_INT64, OCCL_DT_UINT64};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const uint64_t top = UINT64_C(1) << (8 * occl_dtype_bytes(types[t]) - 1);
        expect_2(types[t], OCCL_RO_BAND, top | 3, 6, 2);
        expect_2(types[t], OCCL_RO_BOR, top, 5, top | 5);
        expect_2(types[t], OCCL_RO_BXOR, top | 1, top | 2, 3);
        expect_1(types[t], OCCL_RO_BAND, top | 9, top | 9);
        expect_2(types[t], OCCL_RO_LAND, top, 2, 1);
        expect_2(types[t], OCCL_RO_LAND, top, 0, 0);
        expect_2(types[t], OCCL_RO_LOR, 0, top, 1);
        expect_2(types[t], OCCL_RO_LOR, 0, 0, 0);
        expect_2(types[t], OCCL_RO_LXOR, 1, 2, 0);
        expect_2(types[t], OCCL_RO_LXOR, 0, top, 1);
        for (uint32_t redop = OCCL_RO_LAND; redop <= OCCL_RO_LXOR; redop++) {
            expect_1(types[t], redop, top, 1);
            expect_1(types[t], redop, 0, 0);
        }
    }
}

/* A pair of halves of the given bits. */
static struct element pair_of(uint32_t dtype, uint64_t value, int64_t index) {
    if (occl_dtype_bytes(dtype) == 16)
        return (struct element){value, (uint64_t)index};
    return (struct element){value | (uint64_t)index << 32, 0};
}

static void expect_pair(uint32_t dtype, uint32_t redop, uint64_t a, int64_t i, uint64_t b,
                        int64_t j, uint64_t value, int64_t index) {
    const struct element values[2] = {pair_of(dtype, a, i), pair_of(dtype, b, j)};
    const struct element swapped[2] = {values[1], values[0]};
    expect_elements(dtype, redop, NULL, 2, values, pair_of(dtype, value, index));
    expect_elements(dtype, redop, NULL, 2, swapped, pair_of(dtype, value, index));
}

static void test_pairs_of_integers(void **state) {
    (void)state;
    static const uint32_t types[] = {OCCL_DT_INT32_INT32, OCCL_DT_INT64_INT64};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const uint64_t all = t == 0 ? UINT32_MAX : UINT64_MAX;
        const uint64_t least = all / 2 + 1, largest = all / 2;
        expect_pair(types[t], OCCL_RO_MINLOC, all, 7, 1, 2, all, 7);
        expect_pair(types[t], OCCL_RO_MAXLOC, all, 7, 1, 2, 1, 2);
        expect_pair(types[t], OCCL_RO_MINLOC, 5, 3, 5, 2, 5, 2);
        expect_pair(types[t], OCCL_RO_MAXLOC, 5, 3, 5, 2, 5, 2);
        expect_pair(types[t], OCCL_RO_MINLOC, 5, -1, 5, 0, 5, -1);
        expect_pair(types[t], OCCL_RO_MAXLOC, 5, -1, 5, 0, 5, -1);
        expect_pair(types[t], OCCL_RO_MINLOC, least, 9, largest, 0, least, 9);
        expect_pair(types[t], OCCL_RO_MAXLOC, least, 0, largest, 9, largest, 9);
    }
}

static void test_pairs_of_floats(void **state) {
    (void)state;
    static const struct {
        uint32_t dtype;
        uint64_t one, minus_zero, infinity, nan, other_nan, minus_nan;
    } types[] = {
        {OCCL_DT_FLOAT32_INT32, 0x3f800000, 0x80000000, 0x7f800000, 0x7fc00000, 0x7f800001,
         0xffc00007},
        {OCCL_DT_FLOAT64_INT64, 0x3ff0000000000000, 0x8000000000000000, 0x7ff0000000000000,
         0x7ff8000000000000, 0x7ff0000000000001, 0xfff8000000000007},
    };
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const uint32_t dtype = types[t].dtype;
        const uint64_t one = types[t].one, minus_zero = types[t].minus_zero, nan = types[t].nan;
        const uint64_t infinity = types[t].infinity, minus = minus_zero;
        for (uint32_t redop = OCCL_RO_MINLOC; redop <= OCCL_RO_MAXLOC; redop++) {
            expect_pair(dtype, redop, one, 4, one, -4, one, -4);
            expect_pair(dtype, redop, nan, 9, one, 1, nan, 9);
            expect_pair(dtype, redop, types[t].other_nan, 9, infinity, 1, nan, 9);
            expect_pair(dtype, redop, types[t].minus_nan, 9, minus | infinity, 1, nan, 9);
            expect_pair(dtype, redop, types[t].minus_nan, 9, types[t].other_nan, 8, nan, 8);
            expect_pair(dtype, redop, nan, 5, types[t].minus_nan, 6, nan, 5);
            const struct element alone = pair_of(dtype, types[t].minus_nan, 3);
            expect_elements(dtype, redop, NULL, 1, &alone, pair_of(dtype, nan, 3));
        }
        expect_pair(dtype, OCCL_RO_MINLOC, minus | one, 2, one, 1, minus | one, 2);
        expect_pair(dtype, OCCL_RO_MAXLOC, minus | one, 1, one, 2, one, 2);
        expect_pair(dtype, OCCL_RO_MINLOC, minus | 1, 2, minus_zero, 1, minus | 1, 2);
        expect_pair(dtype, OCCL_RO_MINLOC, minus_zero, 2, 0, 1, minus_zero, 2);
        expect_pair(dtype, OCCL_RO_MAXLOC, minus_zero, 1, 0, 2, 0, 2);
        expect_pair(dtype, OCCL_RO_MAXLOC, infinity, 8, one, 2, infinity, 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_integers_wrap), cmocka_unit_test(test_extremes_know_the_sign),
        cmocka_unit_test(test_averages_are_exact),  cmocka_unit_test(test_every_average_of_bytes),
        cmocka_unit_test(test_averages_of_shorts),  cmocka_unit_test(test_factors_of_integers),
        cmocka_unit_test(test_factors_of_floats),   cmocka_unit_test(test_products_of_floats),
        cmocka_unit_test(test_float8_sums),         cmocka_unit_test(test_bits_and_truth),
        cmocka_unit_test(test_pairs_of_integers),   cmocka_unit_test(test_pairs_of_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
