/* SPDX-License-Identifier: Apache-2.0 */
/* The 8-bit floats: every value in, and on the way out the float32 around every place where
 * rounding turns over, and many others. A factor makes any float32 of one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/host/reduce.h"
#include "tests/gpu_host/float8_values.h"
#include "tests/gpu_host/reference.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const uint32_t isa_masks[] = {OCCL_ISA_PORTABLE, OCCL_ISA_AVX2, OCCL_ISA_AVX512};
static const uint32_t dtypes[] = {OCCL_DT_FLOAT8E4M3, OCCL_DT_FLOAT8E5M2};

/* Every pair of values, by every operator, and so each value through each form; a division makes
 * results that are halfway between two. */
static void check_all_pairs(uint32_t divisor) {
    enum { ALL = 65536 };
    static unsigned char a[ALL], b[ALL], out[ALL], expected[ALL];
    const void *src[2] = {a, b};
    void *dst[1] = {out};
    const uint64_t factors[2] = {0x3fc00000, 0xbe800000}; /* 1.5, -0.25 */
    for (size_t i = 0; i < ALL; i++) {
        a[i] = (unsigned char)i;
        b[i] = (unsigned char)(i >> 8);
    }
    for (size_t t = 0; t < COUNT_OF(dtypes); t++)
        for (uint32_t redop = 0; redop <= OCCL_RO_PREMULSUM; redop++) {
            struct occl_reduce_job job = {.dtype = dtypes[t],
                                          .redop = redop,
                                          .count = ALL,
                                          .n_src = 2,
                                          .n_dst = 1,
                                          .src = src,
                                          .dst = dst,
                                          .divisor = divisor,
                                          .factors = factors};
            for (size_t i = 0; i < ALL; i++)
                reference_reduce_at(dtypes[t], redop, divisor, factors,
                                    (const unsigned char *[]){a, b}, 2, i, expected);
            for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
                const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
                if (movers == NULL)
                    continue;
                movers->reduce(&job);
                for (size_t i = 0; i < ALL; i++)
                    if (out[i] != expected[i])
                        fail_msg("%s %s %s: %#x and %#x give %#x, expected %#x", movers->isa,
                                 occl_dtype_name(dtypes[t]), occl_redop_name(redop), a[i], b[i],
                                 out[i], expected[i]);
            }
        }
}

static void test_all_pairs(void **state) {
    (void)state;
    check_all_pairs(3);
}

/* Halves need less care than other quotients (few_bits of the movers). */
static void test_all_pairs_halved(void **state) {
    (void)state;
    check_all_pairs(2);
}

/* One source alone keeps every value; NaNs become the canonical one. */
static void test_values_pass(void **state) {
    (void)state;
    unsigned char in[256], out[256];
    const void *src[1] = {in};
    void *dst[1] = {out};
    for (size_t i = 0; i < 256; i++)
        in[i] = (unsigned char)i;
    for (size_t t = 0; t < COUNT_OF(dtypes); t++)
        for (uint32_t redop = 0; redop <= OCCL_RO_AVG; redop++)
            for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
                const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
                struct occl_reduce_job job = {.dtype = dtypes[t],
                                              .redop = redop,
                                              .count = 256,
                                              .n_src = 1,
                                              .n_dst = 1,
                                              .src = src,
                                              .dst = dst};
                if (movers == NULL)
                    continue;
                movers->reduce(&job);
                for (size_t i = 0; i < 256; i++) {
                    const size_t body = i & 0x7f;
                    if (dtypes[t] == OCCL_DT_FLOAT8E4M3)
                        assert_int_equal(out[i], body == 0x7f ? 0x7f : i);
                    else
                        assert_int_equal(out[i], body > 0x7c ? 0x7e : i);
                }
            }
}

/* Asked once: a virtual machine takes long to tell what its CPU can. */
struct sets {
    const struct occl_movers *movers[COUNT_OF(isa_masks)];
};

static struct sets sets_present(void) {
    struct sets sets;
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++)
        sets.movers[m] = occl_movers_select(isa_masks[m]);
    return sets;
}

/* The float32 x, of either sign, as the result of a job. */
static void check_out(const struct sets *sets, uint32_t t, float x) {
    const unsigned char one = dtypes[t] == OCCL_DT_FLOAT8E4M3 ? 0x38 : 0x3c;
    for (int sign = 0; sign < 2; sign++) {
        uint32_t bits;
        uint64_t factor;
        unsigned char out = 0;
        const void *src[1] = {&one};
        void *dst[1] = {&out};
        memcpy(&bits, &x, sizeof(bits));
        bits ^= (uint32_t)sign << 31;
        factor = bits | UINT64_C(0xdead) << 48; /* the upper half is ignored */
        const uint64_t expected = reference_bits(dtypes[t], reference_value(OCCL_DT_FLOAT32, bits));
        for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
            const struct occl_movers *movers = sets->movers[m];
            struct occl_reduce_job job = {.dtype = dtypes[t],
                                          .redop = OCCL_RO_PREMULSUM,
                                          .count = 1,
                                          .n_src = 1,
                                          .n_dst = 1,
                                          .src = src,
                                          .dst = dst,
                                          .factors = &factor};
            if (movers == NULL)
                continue;
            movers->reduce(&job);
            if (out != expected)
                fail_msg("%s %s: %#x gives %#x, expected %#x", movers->isa,
                         occl_dtype_name(dtypes[t]), bits, out, (unsigned)expected);
        }
    }
}

static void test_rounding_at_every_tie(void **state) {
    (void)state;
    const struct sets sets = sets_present();
    for (uint32_t t = 0; t < COUNT_OF(dtypes); t++) {
        const double *values = t == 0 ? float8e4m3_values : float8e5m2_values;
        const size_t count = t == 0 ? COUNT_OF(float8e4m3_values) : COUNT_OF(float8e5m2_values);
        for (size_t i = 0; i < count; i++) {
            const float tie = i + 1 < count ? (float)((values[i] + values[i + 1]) / 2) : 0;
            const float around[] = {(float)values[i], tie};
            for (size_t a = 0; a < COUNT_OF(around); a++) {
                float up = around[a], down = around[a];
                for (int step = 0; step < 4; step++) {
                    check_out(&sets, t, up);
                    check_out(&sets, t, down);
                    up = nextafterf(up, INFINITY);
                    down = nextafterf(down, 0);
                }
                for (int bit = -24; bit < 0; bit++) {
                    check_out(&sets, t, around[a] * (1 + ldexpf(1, bit)));
                    check_out(&sets, t, around[a] * (1 - ldexpf(1, bit)));
                }
            }
        }
    }
}

/* The whole range of float32, NaNs, infinities and denormals included, in prime steps. */
static void test_rounding_everywhere(void **state) {
    (void)state;
    const struct sets sets = sets_present();
    for (uint64_t bits = 0; bits <= 0x7fffffff; bits += 24533) {
        uint32_t low = (uint32_t)bits;
        float x;
        memcpy(&x, &low, sizeof(x));
        check_out(&sets, 0, x);
        check_out(&sets, 1, x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pairs),           cmocka_unit_test(test_all_pairs_halved),
        cmocka_unit_test(test_values_pass),         cmocka_unit_test(test_rounding_at_every_tie),
        cmocka_unit_test(test_rounding_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
