/* SPDX-License-Identifier: Apache-2.0 */
/* Every type, operator and instruction set against the reference, over sizes, numbers of sources
 * and destinations, positions in memory, in place, out of place and with streamed stores. Since
 * elements do not depend on each other, one reference serves every size and position. Each size
 * meets one way and position at a time, another for each number of sources and instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/host/reduce.h"
#include "tests/gpu_host/reference.h"

enum {
    BLOCK = 4096,          /* of the movers, in bytes */
    BYTES_MAX = 3 * BLOCK, /* and some elements more */
    GUARD = 128,
    ROOM = GUARD + 64 + BYTES_MAX + 64 + GUARD,
    N_MAX = OCCL_MOVE_SRC_MAX,
    LARGE_BYTES = 512 << 10, /* a multiple of all elements and of BYTES_MAX / 3 */
};

enum way { WAY_OUT, WAY_IN, WAY_STREAM, WAY_ONE, WAY_COUNT };

/* Sources as first drawn, and the reference for the operator at hand. */
struct data {
    uint32_t dtype;
    size_t element_bytes;
    size_t count;
    unsigned char *source[N_MAX];
    uint64_t factors[N_MAX];
    unsigned char *expected;
    unsigned char *src_room[N_MAX];
    unsigned char *dst_room[N_MAX];
};

static const uint32_t isa_masks[] = {OCCL_ISA_PORTABLE, OCCL_ISA_AVX2, OCCL_ISA_AVX512};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void *must_alloc(size_t bytes) {
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

static void open_data(struct data *d, uint32_t dtype) {
    d->dtype = dtype;
    d->element_bytes = occl_dtype_bytes(dtype);
    d->count = BYTES_MAX / d->element_bytes;
    d->expected = must_alloc(BYTES_MAX);
    struct random r = {dtype};
    for (size_t k = 0; k < N_MAX; k++) {
        d->source[k] = must_alloc(BYTES_MAX);
        d->src_room[k] = must_alloc(ROOM);
        d->dst_room[k] = must_alloc(ROOM);
        for (size_t i = 0; i < d->count; i++) {
            /* Specials and arbitrary bits are rare where many sources meet: a sum over 64 of them
             * would always be NaN. */
            unsigned kind = (unsigned)(i % REFERENCE_KINDS);
            if (kind >= REFERENCE_KINDS_PLAIN && random_below(&r, 4) != 0)
                kind = (unsigned)random_below(&r, REFERENCE_KINDS_PLAIN);
            reference_sample_at(&r, dtype, kind, i, d->source[k]);
        }
        d->factors[k] = reference_factor(&r, dtype);
    }
}

static void close_data(struct data *d) {
    for (size_t k = 0; k < N_MAX; k++) {
        free(d->source[k]);
        free(d->src_room[k]);
        free(d->dst_room[k]);
    }
    free(d->expected);
}

static void expect(struct data *d, uint32_t redop, uint32_t divisor, size_t n_src) {
    for (size_t i = 0; i < d->count; i++)
        reference_reduce_at(d->dtype, redop, divisor, d->factors,
                            (const unsigned char *const *)d->source, n_src, i, d->expected);
}

static void assert_surroundings(const unsigned char *room, const unsigned char *buffer,
                                size_t bytes) {
    unsigned char guard[GUARD];
    memset(guard, 0xa5, sizeof(guard));
    assert_memory_equal(buffer - GUARD, guard, GUARD);
    assert_memory_equal(buffer + bytes, guard, GUARD);
    assert_true(buffer - GUARD >= room);
}

static void explain(const struct data *d, const struct occl_movers *movers, uint32_t redop,
                    size_t n_src, enum way way, size_t shift, size_t count,
                    const unsigned char *got) {
    const size_t size = d->element_bytes < 8 ? d->element_bytes : 8;
    for (size_t i = 0; i < count * d->element_bytes / size; i++) {
        uint64_t a = reference_get(got, i, size);
        uint64_t b = reference_get(d->expected, i, size);
        if (a != b) {
            print_error("%s %s %s: %zu sources, way %d, shift %zu, count %zu: element %zu is "
                        "%#llx, expected %#llx\n",
                        movers->isa, occl_dtype_name(d->dtype), occl_redop_name(redop), n_src,
                        (int)way, shift, count, i, (unsigned long long)a, (unsigned long long)b);
            fail();
        }
    }
}

/* One job: buffers at positions that follow from shift, guards around them. */
static void check(struct data *d, const struct occl_movers *movers, uint32_t redop,
                  uint32_t divisor, size_t n_src, enum way way, size_t shift, size_t count) {
    const size_t bytes = count * d->element_bytes;
    const size_t n_dst = way == WAY_ONE ? 1 : n_src;
    /* An odd shift gives each buffer a position of its own, an even one the same to all. */
    const size_t spread = shift % 2 == 0 ? 0 : 5;
    const void *src[N_MAX];
    void *dst[N_MAX];
    for (size_t k = 0; k < n_src; k++) {
        unsigned char *p = d->src_room[k] + GUARD + (shift + spread * k) % 64;
        memset(p - GUARD, 0xa5, bytes + 2 * GUARD);
        memcpy(p, d->source[k], bytes);
        src[k] = p;
    }
    for (size_t k = 0; k < n_dst; k++) {
        unsigned char *p = d->dst_room[k] + GUARD + (3 * shift + spread * k) % 64;
        memset(p - GUARD, 0xa5, bytes + 2 * GUARD);
        /* In place, the last source's buffer receives too, whichever it is. */
        dst[k] = way == WAY_IN ? (void *)((uintptr_t)src[n_src - 1 - k]) : p;
    }
    const struct occl_reduce_job job = {
        .dtype = d->dtype,
        .redop = redop,
        .count = count,
        .n_src = (uint32_t)n_src,
        .n_dst = (uint32_t)n_dst,
        .src = src,
        .dst = dst,
        .divisor = divisor,
        .factors = redop == OCCL_RO_PREMULSUM ? d->factors : NULL,
        .flags = way == WAY_STREAM ? OCCL_MOVE_NONTEMPORAL : 0,
    };
    movers->reduce(&job);
    for (size_t k = 0; k < n_dst; k++) {
        if (memcmp(dst[k], d->expected, bytes) != 0)
            explain(d, movers, redop, n_src, way, shift, count, dst[k]);
        assert_surroundings(way == WAY_IN ? d->src_room[n_src - 1 - k] : d->dst_room[k], dst[k],
                            bytes);
    }
    for (size_t k = 0; k < n_src && way != WAY_IN; k++)
        assert_memory_equal(src[k], d->source[k], bytes);
}

/* Sizes in elements: nothing, one, odd ones, ends of vectors of each width, ends of the direct path
 * and of a block, several blocks. */
static size_t sizes_of(const struct data *d, size_t *out) {
    static const size_t bytes[] = {16, 32, 64, 128, 256, 512, 1024, BLOCK, 2 * BLOCK};
    size_t n = 0;
    out[n++] = 0;
    out[n++] = 1;
    out[n++] = 3;
    for (size_t i = 0; i < COUNT_OF(bytes); i++) {
        size_t whole = bytes[i] / d->element_bytes;
        out[n++] = whole - 1;
        out[n++] = whole;
        out[n++] = whole + 1;
    }
    out[n++] = d->count - 5;
    return n;
}

static void check_row(struct data *d, const struct occl_movers *movers, uint32_t redop,
                      uint32_t divisor, size_t n_src, size_t turn) {
    size_t sizes[40];
    size_t n_sizes = sizes_of(d, sizes);
    for (size_t s = 0; s < n_sizes; s++) {
        size_t shift = turn % 3 == 0 ? 0 : 7 + s + turn;
        check(d, movers, redop, divisor, n_src, (enum way)((s + turn) % WAY_COUNT), shift,
              sizes[s]);
    }
    /* Positions, at a size with a tail, direct and beyond. */
    for (size_t shift = turn % 8; shift < 64; shift += 8) {
        enum way way = (enum way)(turn / 8 % WAY_COUNT);
        check(d, movers, redop, divisor, n_src, way, shift, 77);
        check(d, movers, redop, divisor, n_src, way, shift, 601);
    }
}

/* Two sources repeated to a large buffer, in place. */
static void check_large(struct data *d, const struct occl_movers *movers, uint32_t redop) {
    unsigned char *buffer[2];
    const void *src[2];
    for (size_t k = 0; k < 2; k++) {
        src[k] = buffer[k] = must_alloc(LARGE_BYTES);
        for (size_t lo = 0; lo < LARGE_BYTES; lo += 2 * BLOCK)
            memcpy(buffer[k] + lo, d->source[k], 2 * BLOCK);
    }
    const struct occl_reduce_job job = {
        .dtype = d->dtype,
        .redop = redop,
        .count = LARGE_BYTES / d->element_bytes,
        .n_src = 2,
        .n_dst = 2,
        .src = src,
        .dst = (void *const *)buffer,
        .divisor = 2,
        .factors = d->factors,
    };
    movers->reduce(&job);
    for (size_t k = 0; k < 2; k++) {
        for (size_t lo = 0; lo < LARGE_BYTES; lo += 2 * BLOCK)
            assert_memory_equal(buffer[k] + lo, d->expected, 2 * BLOCK);
        free(buffer[k]);
    }
}

static void check_type(uint32_t dtype) {
    static const size_t few[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 64};
    struct data d;
    open_data(&d, dtype);
    for (size_t n = 0; n < COUNT_OF(few); n++)
        for (uint32_t redop = 0; redop < OCCL_RO_LIMIT; redop++) {
            uint32_t divisor = redop == OCCL_RO_AVG ? (uint32_t)few[n] : 0;
            if (!reference_supports(dtype, redop))
                continue;
            expect(&d, redop, divisor, few[n]);
            for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
                const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
                if (movers == NULL)
                    continue;
                check_row(&d, movers, redop, divisor, few[n], 5 * n + m + redop);
                if (few[n] == 2)
                    check_large(&d, movers, redop);
            }
        }
    close_data(&d);
}

#define TYPE_TEST(name, TYPE)               \
    static void test_##name(void **state) { \
        (void)state;                        \
        check_type(OCCL_DT_##TYPE);         \
    }
TYPE_TEST(reduce_int8, INT8)
TYPE_TEST(reduce_uint8, UINT8)
TYPE_TEST(reduce_int16, INT16)
TYPE_TEST(reduce_uint16, UINT16)
TYPE_TEST(reduce_int32, INT32)
TYPE_TEST(reduce_uint32, UINT32)
TYPE_TEST(reduce_int64, INT64)
TYPE_TEST(reduce_uint64, UINT64)
TYPE_TEST(reduce_float8e4m3, FLOAT8E4M3)
TYPE_TEST(reduce_float8e5m2, FLOAT8E5M2)
TYPE_TEST(reduce_float16, FLOAT16)
TYPE_TEST(reduce_bfloat16, BFLOAT16)
TYPE_TEST(reduce_float32, FLOAT32)
TYPE_TEST(reduce_float64, FLOAT64)
TYPE_TEST(reduce_float32_int32, FLOAT32_INT32)
TYPE_TEST(reduce_float64_int64, FLOAT64_INT64)
TYPE_TEST(reduce_int32_int32, INT32_INT32)
TYPE_TEST(reduce_int64_int64, INT64_INT64)

/* More destinations than sources, none, and the same source twice. */
static void test_reduce_destinations(void **state) {
    (void)state;
    float a[600], out[OCCL_MOVE_DST_MAX][600];
    const void *src[2] = {a, a};
    void *dst[OCCL_MOVE_DST_MAX];
    for (size_t i = 0; i < COUNT_OF(a); i++)
        a[i] = (float)i + 0.25f;
    for (size_t k = 0; k < OCCL_MOVE_DST_MAX; k++)
        dst[k] = out[k];
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++)
        for (uint32_t n_dst = 0; n_dst <= OCCL_MOVE_DST_MAX; n_dst++) {
            const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
            const struct occl_reduce_job job = {.dtype = OCCL_DT_FLOAT32,
                                                .redop = OCCL_RO_SUM,
                                                .count = COUNT_OF(a),
                                                .n_src = 2,
                                                .n_dst = n_dst,
                                                .src = src,
                                                .dst = dst,
                                                .flags = n_dst % 2 ? OCCL_MOVE_NONTEMPORAL : 0};
            if (movers == NULL)
                continue;
            memset(out, 0, sizeof(out));
            movers->reduce(&job);
            for (size_t k = 0; k < OCCL_MOVE_DST_MAX; k++)
                for (size_t i = 0; i < COUNT_OF(a); i++)
                    assert_true(out[k][i] == (k < n_dst ? 2 * a[i] : 0.0f));
        }
}

/* AVG without a divisor is the sum; other operators ignore the divisor; 7 of 3 sources is allowed
 * and so is one below the number of sources. */
static void test_reduce_divisors(void **state) {
    (void)state;
    static const uint32_t divisors[] = {0, 1, 2, 3, 7, 64, 1000003, 131072, 131073, UINT32_MAX};
    for (uint32_t dtype = 0; dtype < OCCL_DT_FLOAT32_INT32; dtype++) {
        struct data d;
        if (occl_dtype_bytes(dtype) == 0)
            continue;
        open_data(&d, dtype);
        for (size_t v = 0; v < COUNT_OF(divisors); v++)
            for (uint32_t redop = OCCL_RO_SUM; redop <= OCCL_RO_AVG; redop++)
                for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
                    const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
                    if (movers == NULL)
                        continue;
                    d.count = 700;
                    expect(&d, redop, divisors[v], 3);
                    check(&d, movers, redop, divisors[v], 3, WAY_OUT, 0, 700);
                }
        close_data(&d);
    }
}

/* The rows that exist are those of the rules. */
static void test_reduce_rows(void **state) {
    (void)state;
    for (uint32_t dtype = 0; dtype < 100; dtype++)
        for (uint32_t redop = 0; redop < 100; redop++)
            assert_true(occl_movers_supports(dtype, redop) == reference_supports(dtype, redop));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_int8),          cmocka_unit_test(test_reduce_uint8),
        cmocka_unit_test(test_reduce_int16),         cmocka_unit_test(test_reduce_uint16),
        cmocka_unit_test(test_reduce_int32),         cmocka_unit_test(test_reduce_uint32),
        cmocka_unit_test(test_reduce_int64),         cmocka_unit_test(test_reduce_uint64),
        cmocka_unit_test(test_reduce_float8e4m3),    cmocka_unit_test(test_reduce_float8e5m2),
        cmocka_unit_test(test_reduce_float16),       cmocka_unit_test(test_reduce_bfloat16),
        cmocka_unit_test(test_reduce_float32),       cmocka_unit_test(test_reduce_float64),
        cmocka_unit_test(test_reduce_float32_int32), cmocka_unit_test(test_reduce_float64_int64),
        cmocka_unit_test(test_reduce_int32_int32),   cmocka_unit_test(test_reduce_int64_int64),
        cmocka_unit_test(test_reduce_destinations),  cmocka_unit_test(test_reduce_divisors),
        cmocka_unit_test(test_reduce_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
