/* SPDX-License-Identifier: Apache-2.0 */
/* Every type with every operator through the daemon: a covering set over ranks, sizes, memory kinds
 * and placement, against a reference of its own (128-bit integers, long double, own rounding). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/client/world.h"

static struct world w;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w) == 0 ? 0 : -1;
}

static const enum occl_type types[] = {OCCL_INT32,   OCCL_INT64,   OCCL_FLOAT16,
                                       OCCL_FLOAT32, OCCL_FLOAT64, OCCL_BFLOAT16};
static const enum occl_redop redops[] = {OCCL_SUM, OCCL_MIN, OCCL_MAX, OCCL_AVG};
enum { TYPES = 6, REDOPS = 4 };

static size_t bytes_of(enum occl_type type) {
    switch (type) {
    case OCCL_FLOAT16:
    case OCCL_BFLOAT16:
        return 2;
    case OCCL_INT32:
    case OCCL_FLOAT32:
        return 4;
    default:
        return 8;
    }
}

/* bfloat16 is the upper half of a float32; to nearest even. */
static uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* float16: sign, 5 bits of exponent, 10 of fraction; to nearest even by rounding to the unit of the
 * last place. Only finite values below its largest come here. */
static uint16_t to_float16(float value) {
    int exponent;
    float size = fabsf(value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    (void)frexpf(size, &exponent);
    if (exponent < -13)
        exponent = -13;
    long units = lrintf(ldexpf(size, 11 - exponent)); /* of 2^(exponent - 11) */
    if (units < 1024)
        return (uint16_t)(sign | units);
    return (uint16_t)(sign + units + (exponent + 13) * 1024L);
}
static float from_float16(uint16_t half) {
    int exponent = half >> 10 & 31;
    float size = exponent ? ldexpf((float)(1024 + (half & 1023)), exponent - 25)
                          : ldexpf((float)(half & 1023), -24);
    return half & 0x8000 ? -size : size;
}

/* Small whole numbers: exact in every type, also summed up over 8 ranks. */
static int value_of(int rank, size_t index) {
    return (int)(world_pattern((uint64_t)rank, index) % 31) - 15;
}

static void store(void *at, enum occl_type type, long double value) {
    switch (type) {
    case OCCL_INT32: {
        int32_t v = (int32_t)value;
        memcpy(at, &v, 4);
        break;
    }
    case OCCL_INT64: {
        int64_t v = (int64_t)value;
        memcpy(at, &v, 8);
        break;
    }
    case OCCL_FLOAT16: {
        uint16_t v = to_float16((float)value);
        memcpy(at, &v, 2);
        break;
    }
    case OCCL_BFLOAT16: {
        uint16_t v = to_bfloat16((float)value);
        memcpy(at, &v, 2);
        break;
    }
    case OCCL_FLOAT32: {
        float v = (float)value;
        memcpy(at, &v, 4);
        break;
    }
    case OCCL_FLOAT64: {
        double v = (double)value;
        memcpy(at, &v, 8);
        break;
    }
    default: /* products_test has the others */
        abort();
    }
}

/* The result as the header promises it: floats divide once, in the accumulation type. */
static long double expected(enum occl_type type, enum occl_redop redop, int size, size_t index) {
    int sum = 0, least = value_of(0, index), most = least;
    for (int r = 0; r < size; r++) {
        int v = value_of(r, index);
        sum += v;
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    switch (redop) {
    case OCCL_SUM:
        return sum;
    case OCCL_MIN:
        return least;
    case OCCL_MAX:
        return most;
    default:
        break;
    }
    if (type == OCCL_INT32 || type == OCCL_INT64)
        return sum / size; /* C truncates toward zero */
    if (type == OCCL_FLOAT64)
        return (double)sum / (double)size;
    return (float)sum / (float)size;
}

struct combination {
    int number;
};

static int all_pairs(struct world_rank *me) {
    static const size_t counts[] = {1, 3, 17, 64, 130, 1000, 2049, 40000};
    const struct combination *c = me->arg;
    for (int pair = 0; pair < TYPES * REDOPS; pair++) {
        enum occl_type type = types[pair % TYPES];
        enum occl_redop redop = redops[pair / TYPES];
        int mix = pair * 7 + c->number * 5; /* varies the rest against type and operator */
        size_t count = counts[mix % 8], bytes = count * bytes_of(type);
        bool in_place = mix / 3 % 2, any_pointer = (mix / 2 + me->rank * (c->number % 2)) % 2;
        size_t shift = (size_t)(mix % 3) * bytes_of(type);
        char *send, *recv, *ours = malloc(bytes + 64), *also = malloc(bytes + 64);
        void *p = NULL, *q = NULL;
        if (!any_pointer) {
            WORLD_OK(occl_mem_alloc(bytes + 64, &p));
            WORLD_OK(occl_mem_alloc(bytes + 64, &q));
        }
        send = (any_pointer ? ours : (char *)p) + shift;
        recv = in_place ? send : (any_pointer ? also : (char *)q) + shift;
        for (size_t i = 0; i < count; i++)
            store(send + i * bytes_of(type), type, value_of(me->rank, i));
        WORLD_OK(occl_all_reduce(send, recv, count, type, redop, me->comm, NULL, NULL));
        for (size_t i = 0; i < count; i++) {
            char right[8];
            store(right, type, expected(type, redop, me->size, i));
            if (memcmp(right, recv + i * bytes_of(type), bytes_of(type)) != 0) {
                fprintf(stderr, "rank %d: type %d operator %d count %zu element %zu is wrong\n",
                        me->rank, (int)type, (int)redop, count, i);
                return 1;
            }
        }
        if (!any_pointer) {
            WORLD_OK(occl_mem_free(p));
            WORLD_OK(occl_mem_free(q));
        }
        free(ours);
        free(also);
    }
    return 0;
}
static void test_types_and_operators(void **state) {
    static const int sizes[] = {1, 2, 3, 4, 7, 8};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int round = 0; round < 4; round++) {
            struct combination c = {i + 6 * round};
            assert_int_equal(world_run(&w, sizes[i], all_pairs, &c, 60), 0);
        }
}

/* The same program gives the same bits, whoever executes: direct, local, lanes, at any position.
 * G03: rows of bfloat16 summed alone and as part of larger messages. */
static int same_bits(struct world_rank *me) {
    enum { ROW = 512, ROWS = 1024 };
    uint16_t *rows = malloc(ROW * ROWS * 2), *out = malloc(ROW * ROWS * 2), first[ROW];
    static const int copies[] = {1, 4, 64, 1024};
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < ROW; i++)
            rows[row * ROW + i] = to_bfloat16(
                ldexpf((float)value_of(me->rank, (size_t)i) + 0.37f, (i * 7 + me->rank) % 13 - 6));
    for (int k = 0; k < 4; k++) {
        struct occl_request request;
        size_t count = (size_t)copies[k] * ROW;
        if (k % 2) {
            WORLD_OK(occl_all_reduce(rows, out, count, OCCL_BFLOAT16, OCCL_SUM, me->comm, NULL,
                                     &request));
            WORLD_OK(occl_wait(request));
        } else {
            WORLD_OK(
                occl_all_reduce(rows, out, count, OCCL_BFLOAT16, OCCL_SUM, me->comm, NULL, NULL));
        }
        if (k == 0)
            memcpy(first, out, sizeof first);
        for (int row = 0; row < copies[k]; row++)
            WORLD_CHECK(memcmp(first, out + row * ROW, sizeof first) == 0);
    }
    /* G01: one rounding of the exact sum, within half a unit in the last place plus float32's part.
     */
    for (int i = 0; i < ROW; i++) {
        long double exact = 0, size = 0;
        for (int r = 0; r < me->size; r++) {
            long double v = from_bfloat16(
                to_bfloat16(ldexpf((float)value_of(r, (size_t)i) + 0.37f, (i * 7 + r) % 13 - 6)));
            exact += v;
            size += fabsl(v);
        }
        long double error = fabsl(from_bfloat16(first[i]) - exact);
        WORLD_CHECK(error <= fabsl(exact) / 256 + size * 1e-6L);
    }
    free(rows);
    free(out);
    return 0;
}
static void test_G01_G03_same_bits_at_every_size(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 8, same_bits, NULL, 60), 0);
}

/* G05: the mean is finite where the sum is not. G02: integers wrap. */
static int extremes(struct world_rank *me) {
    uint16_t large = to_float16(60000.0f), mean = 0;
    int32_t big = INT32_MAX, wrapped = 0;
    int64_t huge = INT64_MIN, average = 0;
    WORLD_OK(occl_all_reduce(&large, &mean, 1, OCCL_FLOAT16, OCCL_AVG, me->comm, NULL, NULL));
    WORLD_CHECK(mean == large && from_float16(mean) == 60000.0f);
    WORLD_OK(occl_all_reduce(&big, &wrapped, 1, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_CHECK(wrapped == (int32_t)((uint32_t)INT32_MAX * (uint32_t)me->size));
    WORLD_OK(occl_all_reduce(&huge, &average, 1, OCCL_INT64, OCCL_AVG, me->comm, NULL, NULL));
    WORLD_CHECK(average == huge);
    return 0;
}
static void test_G02_G05_extremes(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, extremes, NULL, 20), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_and_operators),
        cmocka_unit_test(test_G01_G03_same_bits_at_every_size),
        cmocka_unit_test(test_G02_G05_extremes),
    };
    return cmocka_run_group_tests_name("client_types", tests, setup, teardown);
}
