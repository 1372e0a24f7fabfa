/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of prefixes (scan and exscan): every type, operator and instruction set against the
 * reference of each prefix, over sizes around vectors and blocks, in place, out of place, streamed,
 * and with results that nobody wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/host/reduce.h"
#include "tests/gpu_host/reference.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    SRC_MAX = 14,      /* more than go through registers */
    HALF_BLOCK = 2048, /* of user data: what the movers take at a time, or half of that */
    BYTES_MAX = 2 * HALF_BLOCK + 320,
    GUARD = 64,
    ROOM = BYTES_MAX + 2 * GUARD + 64,
};

enum way { WAY_OUT, WAY_IN, WAY_STREAM, WAY_SOME, WAY_COUNT };

static const uint32_t isa_masks[] = {OCCL_ISA_PORTABLE, OCCL_ISA_AVX2, OCCL_ISA_AVX512};

struct data {
    uint32_t dtype;
    uint32_t redop;
    size_t element_bytes;
    uint64_t factors[SRC_MAX];
    unsigned char source[SRC_MAX][BYTES_MAX];
    unsigned char expected[SRC_MAX][BYTES_MAX]; /* of the sources 0 .. k */
    unsigned char src_room[SRC_MAX][ROOM];
    unsigned char dst_room[SRC_MAX][ROOM];
};

static void draw(struct data *d, uint32_t dtype) {
    struct random r = {dtype + 77};
    d->dtype = dtype;
    d->element_bytes = occl_dtype_bytes(dtype);
    for (size_t k = 0; k < SRC_MAX; k++) {
        for (size_t i = 0; i < BYTES_MAX / d->element_bytes; i++) {
            unsigned kind = (unsigned)random_below(&r, 2 * REFERENCE_KINDS);
            reference_sample_at(&r, dtype, kind < REFERENCE_KINDS ? kind : kind % 3, i,
                                d->source[k]);
        }
        d->factors[k] = reference_factor(&r, dtype);
    }
}

static void expect(struct data *d, uint32_t redop) {
    const unsigned char *src[SRC_MAX];
    d->redop = redop;
    for (size_t k = 0; k < SRC_MAX; k++) {
        src[k] = d->source[k];
        for (size_t i = 0; i < BYTES_MAX / d->element_bytes; i++)
            reference_reduce_at(d->dtype, redop, (uint32_t)k + 1, d->factors, src, k + 1, i,
                                d->expected[k]);
    }
}

/* The buffer has the bytes given, or where these are NULL still those of the guards. */
static void assert_buffer(const unsigned char *buffer, const unsigned char *bytes, size_t count) {
    unsigned char untouched[BYTES_MAX];
    memset(untouched, 0xa5, sizeof(untouched));
    assert_memory_equal(buffer - GUARD, untouched, GUARD);
    assert_memory_equal(buffer, bytes == NULL ? untouched : bytes, count);
    assert_memory_equal(buffer + count, untouched, GUARD);
}

static void check(struct data *d, const struct occl_movers *movers, size_t n_src, enum way way,
                  uint32_t kind, size_t shift, size_t count) {
    const size_t bytes = count * d->element_bytes;
    const void *src[SRC_MAX];
    void *dst[SRC_MAX];
    unsigned char *out[SRC_MAX];
    for (size_t k = 0; k < n_src; k++) {
        unsigned char *from = d->src_room[k] + GUARD + (shift + 5 * k) % 64;
        /* Streamed stores go another way where destinations lie differently in their lines. */
        out[k] = way == WAY_IN
                     ? from
                     : d->dst_room[k] + GUARD + (3 * shift + (shift % 2 == 0 ? 0 : k)) % 64;
        memset(out[k] - GUARD, 0xa5, bytes + 2 * GUARD);
        memset(from - GUARD, 0xa5, bytes + 2 * GUARD);
        memcpy(from, d->source[k], bytes);
        src[k] = from;
        dst[k] = way == WAY_SOME && k % 3 != 1 ? NULL : out[k];
    }
    if (kind == OCCL_MOVE_PREFIX_EXCLUSIVE && shift % 2 == 1)
        dst[0] = NULL;
    const struct occl_reduce_job job = {
        .dtype = d->dtype,
        .redop = d->redop,
        .count = count,
        .n_src = (uint32_t)n_src,
        .n_dst = (uint32_t)n_src,
        .src = src,
        .dst = dst,
        .divisor = 1000, /* any: each destination has its own */
        .factors = d->factors,
        .flags = kind | (way == WAY_STREAM ? OCCL_MOVE_NONTEMPORAL : 0),
    };
    movers->reduce(&job);
    for (size_t k = 0; k < n_src; k++) {
        const size_t combined = kind == OCCL_MOVE_PREFIX ? k + 1 : k;
        const unsigned char *want = combined == 0 ? NULL : d->expected[combined - 1];
        if (way == WAY_IN)
            want = combined == 0 ? d->source[k] : want;
        else
            assert_buffer(src[k], d->source[k], bytes);
        assert_buffer(out[k], dst[k] == NULL && way != WAY_IN ? NULL : want, bytes);
    }
}

static void check_row(struct data *d, const struct occl_movers *movers, size_t turn) {
    static const size_t numbers[] = {1, 2, 3, 4, 7, 9, SRC_MAX};
    static const size_t bytes[] = {16, 64, 144, 512, HALF_BLOCK - 16, HALF_BLOCK, 4096, 4352};
    for (size_t n = 0; n < COUNT_OF(numbers); n++)
        for (size_t s = 0; s < COUNT_OF(bytes); s++) {
            enum way way = (enum way)((n + s + turn) % WAY_COUNT);
            size_t whole = bytes[s] / d->element_bytes;
            check(d, movers, numbers[n], way, OCCL_MOVE_PREFIX, 8 * s, whole);
            check(d, movers, numbers[n], way, OCCL_MOVE_PREFIX, 7 + turn, whole + 1);
            check(d, movers, numbers[n], way, OCCL_MOVE_PREFIX_EXCLUSIVE, 16 * s, whole - 1);
            check(d, movers, numbers[n], way, OCCL_MOVE_PREFIX_EXCLUSIVE, 9 + turn, whole + 1);
        }
}

static void test_prefix_every_row(void **state) {
    (void)state;
    struct data *d = malloc(sizeof(*d));
    assert_non_null(d);
    size_t turn = 0;
    for (uint32_t dtype = 0; dtype < OCCL_DT_LIMIT; dtype++) {
        if (occl_dtype_bytes(dtype) == 0)
            continue;
        draw(d, dtype);
        for (uint32_t redop = 0; redop < OCCL_RO_LIMIT; redop++) {
            if (!reference_supports(dtype, redop))
                continue;
            expect(d, redop);
            for (size_t m = 0; m < COUNT_OF(isa_masks); m++, turn++) {
                const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
                if (movers != NULL)
                    check_row(d, movers, turn);
            }
        }
    }
    free(d);
}

/* The most sources; nothing is rounded on the way: 2049 ones in float16 would stay at 2048. */
static void test_prefix_of_many(void **state) {
    (void)state;
    enum { N = OCCL_MOVE_SRC_MAX };
    uint16_t in[N], out[N];
    const void *src[N];
    void *dst[N];
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
        if (movers == NULL)
            continue;
        for (size_t k = 0; k < N; k++) {
            in[k] = k == 0 ? 0x6800 : 0x3c00; /* 2048, 1, 1, ... */
            src[k] = &in[k];
            dst[k] = &out[k];
        }
        const struct occl_reduce_job job = {.dtype = OCCL_DT_FLOAT16,
                                            .redop = OCCL_RO_SUM,
                                            .count = 1,
                                            .n_src = N,
                                            .n_dst = N,
                                            .src = src,
                                            .dst = dst,
                                            .flags = OCCL_MOVE_PREFIX};
        movers->reduce(&job);
        for (size_t k = 0; k < N; k++)
            assert_int_equal(out[k], reference_bits(OCCL_DT_FLOAT16, 2048.0 + (double)k));
    }
}

/* Without a divisor an average's prefixes are those of the sum. */
static void test_prefix_average_without_divisor(void **state) {
    (void)state;
    int32_t in[3] = {7, 8, -30}, out[3];
    const void *src[3] = {&in[0], &in[1], &in[2]};
    void *dst[3] = {&out[0], &out[1], &out[2]};
    struct occl_reduce_job job = {.dtype = OCCL_DT_INT32,
                                  .redop = OCCL_RO_AVG,
                                  .count = 1,
                                  .n_src = 3,
                                  .n_dst = 3,
                                  .src = src,
                                  .dst = dst,
                                  .flags = OCCL_MOVE_PREFIX};
    occl_movers_select(0)->reduce(&job);
    assert_int_equal(out[1], 15);
    assert_int_equal(out[2], -15);
    job.divisor = 3;
    occl_movers_select(0)->reduce(&job);
    assert_int_equal(out[0], 7);
    assert_int_equal(out[1], 7);
    assert_int_equal(out[2], -5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix_every_row),
        cmocka_unit_test(test_prefix_of_many),
        cmocka_unit_test(test_prefix_average_without_divisor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
