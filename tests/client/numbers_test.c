/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out (class G of the reports from the field, F08 and F09) for all types, operators and
 * reducing kinds: 8-bit floats, groups of one, rounding once, wrap-around, the same bits at every
 * size and in every kind, averages. References are written out here, by hand or in long double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm_ipc/datatype.h"
#include "tests/client/call.h"
#include "tests/gpu_host/reference.h"

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

static const enum call_kind reducing[] = {CALL_ALL_REDUCE,       CALL_REDUCE, CALL_REDUCE_SCATTER,
                                          CALL_REDUCE_SCATTER_V, CALL_SCAN,   CALL_EXSCAN};
#define REDUCING (sizeof reducing / sizeof reducing[0])

static int run(struct world_rank *me, const struct call *c, const void *factor) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.factor = factor;
    WORLD_OK(call_submit(c, me->rank, me->size, me->comm, &attr, NULL));
    return 0;
}

/* Ranks whose inputs are combined for this one: 0 .. result - 1. */
static int combined(const struct call *c, const struct world_rank *me) {
    if (c->kind == CALL_SCAN || c->kind == CALL_EXSCAN)
        return me->rank + (c->kind == CALL_SCAN ? 1 : 0);
    return c->kind == CALL_REDUCE && me->rank != c->root ? 0 : me->size;
}

/* ---- F08: 8-bit floats ---- */

/* A rank's value at i as bits: the largest finite ones of both signs, and ordinary ones. */
static uint8_t float8_input(enum occl_type type, int rank, size_t i) {
    uint8_t largest = type == OCCL_FLOAT8E4M3 ? 0x7e : 0x7b;
    uint32_t x = world_pattern((uint64_t)rank + 5, i);
    if (i % 16 < 2)
        return (uint8_t)(largest | (i % 16 == 1 && rank % 2 ? 0x80 : 0));
    return (uint8_t)(x % largest | (x & 512 ? 0x80 : 0));
}

/* By the formats' definition: sign, exponent, fraction. */
static double float8_value(enum occl_type type, uint8_t bits) {
    int fraction_bits = type == OCCL_FLOAT8E4M3 ? 3 : 2, bias = type == OCCL_FLOAT8E4M3 ? 7 : 15;
    int exponent = (bits & 0x7f) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    double size = exponent ? ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)
                           : ldexp(fraction, 1 - bias - fraction_bits);
    return bits & 0x80 ? -size : size;
}

/* The nearest one, to even; beyond the largest an infinity (e5m2) or the NaN (e4m3). */
static bool float8_is(enum occl_type type, double exact, uint8_t got) {
    uint8_t largest = type == OCCL_FLOAT8E4M3 ? 0x7e : 0x7b;
    double top = float8_value(type, largest),
           step = top - float8_value(type, (uint8_t)(largest - 1));
    bool beyond =
        type == OCCL_FLOAT8E4M3 ? fabs(exact) > top + step / 2 : fabs(exact) >= top + step / 2;
    if (beyond && type == OCCL_FLOAT8E4M3)
        return (got & 0x7f) == 0x7f;
    if (beyond)
        return got == (exact < 0 ? 0xfc : 0x7c);
    if ((got & 0x7f) > largest)
        return false;
    double error = fabs(float8_value(type, got) - exact);
    for (uint8_t at = 0; at <= largest; at++) {
        double other = fabs(copysign(float8_value(type, at), exact) - exact);
        if (other < error || (other == error && (got & 0x7f) != at && got & 1))
            return false;
    }
    return true;
}

static int f08_case(struct world_rank *me, const struct call *c, const uint8_t *recv) {
    int ranks = combined(c, me);
    bool blocks = call_traits[c->kind].send_all;
    for (size_t i = 0; i < c->count && ranks > 0; i++) {
        size_t at = blocks ? (size_t)me->rank * c->count + i : i;
        float sum = 0, most = -INFINITY, least = INFINITY;
        for (int r = 0; r < ranks; r++) {
            float value = (float)float8_value(c->type, float8_input(c->type, r, at));
            sum = r ? sum + value : value;
            most = fmaxf(most, value);
            least = fminf(least, value);
        }
        float want = c->op == OCCL_SUM ? sum : c->op == OCCL_MAX ? most : least;
        if (!float8_is(c->type, want, recv[i])) {
            fprintf(stderr, "rank %d: %s type %d op %d count %zu element %zu: 0x%02x for %g\n",
                    me->rank, call_traits[c->kind].name, (int)c->type, (int)c->op, c->count, i,
                    recv[i], (double)want);
            return 1;
        }
    }
    return 0;
}

static int f08(struct world_rank *me) {
    static const size_t counts[] = {1, 15, 16, 17, 64, 4097};
    static const enum occl_type types[] = {OCCL_FLOAT8E4M3, OCCL_FLOAT8E5M2};
    static const enum occl_redop ops[] = {OCCL_SUM, OCCL_MAX, OCCL_MIN};
    static uint8_t send[8 * 4097], recv[8 * 4097];
    for (size_t n = 0; n < REDUCING * 2 * 3 * 6; n++) {
        struct call c = {.kind = reducing[n / 36],
                         .type = types[n / 18 % 2],
                         .op = ops[n / 6 % 3],
                         .count = counts[n % 6],
                         .root = (int)n % me->size,
                         .send = send,
                         .recv = recv};
        for (size_t i = 0; i < c.count * (call_traits[c.kind].send_all ? (size_t)me->size : 1); i++)
            send[i] = float8_input(c.type, me->rank, i);
        memset(recv, 0xee, sizeof recv);
        if (run(me, &c, NULL) || f08_case(me, &c, recv))
            return 1;
        WORLD_CHECK(recv[c.count] == 0xee);
        if (c.kind != CALL_ALL_REDUCE)
            continue;
        /* The same bits everywhere. */
        static uint8_t all[8 * 4097];
        WORLD_OK(occl_all_gather(recv, all, c.count, OCCL_UINT8, me->comm, NULL, NULL));
        for (int r = 0; r < me->size; r++)
            WORLD_CHECK(memcmp(all + (size_t)r * c.count, recv, c.count) == 0);
    }
    return 0;
}
static void test_F08_8_bit_floats(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 1, f08, NULL, 60), 0);
    assert_int_equal(world_run(&w, 2, f08, NULL, 60), 0);
    assert_int_equal(world_run(&w, 5, f08, NULL, 60), 0);
}

/* ---- F09: a group of one ---- */

/* What an operator makes of one value, given and expected as bits. */
static uint64_t f09_expected(uint32_t op, uint64_t bits) {
    if (op == OCCL_LAND || op == OCCL_LOR || op == OCCL_LXOR)
        return bits != 0;
    return bits;
}

static int f09_case(struct world_rank *me, struct call *c, size_t count, bool in_place) {
    static unsigned char send[1000 * 16 + 16], recv[1000 * 16 + 16];
    size_t element = occl_dtype_bytes(c->type);
    union {
        float f;
        double d;
        uint64_t u;
    } one = {.u = 1};
    struct random random = {17u + c->type};
    if (c->type == OCCL_FLOAT64)
        one.d = 1;
    else if (reference_is_float(c->type))
        one.f = 1;
    for (size_t i = 0; i < count; i++) /* ordinary numbers */
        reference_sample_at(&random, c->type, 0, i, send);
    memset(recv, 0x77, sizeof recv);
    c->count = count;
    c->send = send;
    c->recv = in_place ? send : recv;
    bool premul = call_traits[c->kind].reduces && c->op == OCCL_PREMULSUM;
    if (run(me, c, premul ? &one : NULL))
        return 1;
    random = (struct random){17u + c->type};
    static unsigned char given[1000 * 16];
    for (size_t i = 0; i < count && c->kind != CALL_EXSCAN; i++) {
        reference_sample_at(&random, c->type, 0, i, given);
        const unsigned char *got = (const unsigned char *)c->recv + i * element;
        if (element == 16 || reference_is_pair(c->type) || !call_traits[c->kind].reduces) {
            WORLD_CHECK(memcmp(got, given + i * element, element) == 0);
        } else {
            uint64_t bits = reference_get(given, i, element);
            WORLD_CHECK(reference_get(got, 0, element) == f09_expected(c->op, bits));
        }
    }
    size_t written = c->kind == CALL_EXSCAN ? 0 : count * element;
    WORLD_CHECK(recv[in_place ? 0 : written] == 0x77);
    return 0;
}

static int f09(struct world_rank *me) {
    static const size_t counts[] = {0, 1, 1000};
    for (int kind = 0; kind < CALL_MOVERS; kind++)
        for (uint32_t type = 0; type < OCCL_DT_LIMIT; type++)
            for (uint32_t op = 0; occl_dtype_name(type) && op < OCCL_RO_LIMIT; op++)
                for (int way = 0; way < 6; way++) {
                    struct call c = {.kind = (enum call_kind)kind,
                                     .type = (enum occl_type)type,
                                     .op = (enum occl_redop)op};
                    bool reduces = call_traits[kind].reduces;
                    if (reduces ? !reference_supports(type, op) : op > 0)
                        continue;
                    if (f09_case(me, &c, counts[way % 3], way >= 3)) {
                        fprintf(stderr, "%s of type %s op %u way %d\n", call_traits[kind].name,
                                occl_dtype_name(type), op, way);
                        return 1;
                    }
                }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    WORLD_OK(occl_fan_in(0, me->comm, NULL, NULL));
    WORLD_OK(occl_fan_out(0, me->comm, NULL, NULL));
    return 0;
}
static void test_F09_a_group_of_one(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 1, f09, NULL, 60), 0);
}

/* ---- G01: one rounding ---- */

static float g01_value(int rank, size_t i) {
    if (i % 4 == 0) /* one big, many small */
        return rank == 0 ? 256.0f : 0.5f;
    return ldexpf((float)world_pattern((uint64_t)rank, i) / 512 - 1,
                  (int)(i * 5 + (size_t)rank * 3) % 12 - 6);
}

/* Half a unit in the last place of the result, and what float32 loses on the way. */
static int g01(struct world_rank *me) {
    static const struct {
        enum occl_type type;
        int bits; /* of the fraction, with the leading one */
    } types[] = {{OCCL_BFLOAT16, 8}, {OCCL_FLOAT16, 11}, {OCCL_FLOAT32, 24}, {OCCL_FLOAT64, 53}};
    enum { COUNT = 600 };
    static uint64_t send[COUNT * 16], recv[COUNT * 16];
    for (size_t n = 0; n < 4 * REDUCING; n++) {
        struct call c = {.kind = reducing[n / 4],
                         .type = types[n % 4].type,
                         .op = OCCL_SUM,
                         .root = me->size - 1,
                         .count = COUNT,
                         .send = send,
                         .recv = recv};
        size_t element = occl_dtype_bytes(c.type), blocks = call_traits[c.kind].send_all ? 16 : 1;
        for (size_t i = 0; i < COUNT * (blocks > 1 ? (size_t)me->size : 1); i++)
            reference_put(send, i, element, reference_bits(c.type, (double)g01_value(me->rank, i)));
        if (run(me, &c, NULL))
            return 1;
        int ranks = combined(&c, me);
        for (size_t i = 0; i < COUNT && ranks > 0; i++) {
            size_t at = blocks > 1 ? (size_t)me->rank * COUNT + i : i;
            long double exact = 0, size = 0;
            for (int r = 0; r < ranks; r++) {
                long double v = (long double)reference_value(
                    c.type, reference_bits(c.type, (double)g01_value(r, at)));
                exact += v;
                size += fabsl(v);
            }
            long double got = (long double)reference_value(c.type, reference_get(recv, i, element));
            long double way = c.type == OCCL_FLOAT64 ? 0x1p-52L : 0x1p-23L;
            long double most = fabsl(exact) * ldexpl(1, -types[n % 4].bits) + size * way * ranks;
            if (c.type == OCCL_FLOAT16)
                most += 0x1p-25L; /* its denormals */
            WORLD_CHECK(fabsl(got - exact) <= most);
        }
    }
    return 0;
}
static void test_G01_one_rounding(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 8, g01, NULL, 60), 0);
    assert_int_equal(world_run(&w, 16, g01, NULL, 60), 0);
}

/* ---- G02: integers wrap; G05: averages do not ---- */

/* Two's complement in `bits` bits. */
static __int128 wrapped(__int128 value, unsigned bits, bool is_signed) {
    unsigned __int128 one = 1, kept = (unsigned __int128)value & ((one << bits) - 1);
    if (is_signed && kept >> (bits - 1))
        return (__int128)kept - (__int128)(one << bits);
    return (__int128)kept;
}

struct integer {
    enum occl_type type;
    unsigned bits;
    bool is_signed;
};
static const struct integer integers[] = {{OCCL_INT8, 8, true},   {OCCL_UINT8, 8, false},
                                          {OCCL_INT16, 16, true}, {OCCL_UINT16, 16, false},
                                          {OCCL_INT32, 32, true}, {OCCL_UINT32, 32, false},
                                          {OCCL_INT64, 64, true}, {OCCL_UINT64, 64, false}};

/* Rank r's i-th value: those of the report, extremes, ordinary ones. */
static __int128 integer_input(const struct integer *t, int rank, size_t i) {
    __int128 top = ((__int128)1 << (t->bits - (t->is_signed ? 1 : 0))) - 1;
    __int128 bottom = t->is_signed ? -top - 1 : 0;
    switch (i % 6) {
    case 0: /* int8 120 + 100, uint8 200 + 100 */
        return rank % 2 ? 100 : t->is_signed ? 120 : 200;
    case 1:
        return top;
    case 2:
        return bottom;
    case 3:
        return rank % 2 ? top : bottom;
    case 4:
        return rank % 2 ? 3 : t->is_signed ? -1 : top;
    default:
        return wrapped((__int128)world_pattern((uint64_t)rank, i) * 0x123456789abcdefll, t->bits,
                       t->is_signed);
    }
}

static __int128 integer_expected(const struct integer *t, enum occl_redop op, int ranks, size_t i) {
    __int128 result = integer_input(t, 0, i), sum = result;
    for (int r = 1; r < ranks; r++) {
        __int128 v = integer_input(t, r, i);
        sum += v;
        if (op == OCCL_PROD)
            result = wrapped((__int128)((unsigned __int128)result * (unsigned __int128)v), t->bits,
                             t->is_signed);
        else if (op == OCCL_MAX)
            result = v > result ? v : result;
        else if (op == OCCL_MIN)
            result = v < result ? v : result;
    }
    if (op == OCCL_AVG)
        return sum / ranks; /* exact, toward zero */
    return wrapped(op == OCCL_SUM ? sum : result, t->bits, t->is_signed);
}

static int g02(struct world_rank *me) {
    static const enum occl_redop ops[] = {OCCL_SUM, OCCL_PROD, OCCL_AVG, OCCL_MAX, OCCL_MIN};
    static const size_t counts[] = {6, 500, 20000};
    uint64_t *send = world_alloc(20000 * 8 * 8), *recv = world_alloc(20000 * 8 * 8);
    for (size_t n = 0; n < REDUCING * 8 * 5 * 3; n++) {
        const struct integer *t = &integers[n / 3 % 8];
        struct call c = {.kind = reducing[n / 120],
                         .type = t->type,
                         .op = ops[n / 24 % 5],
                         .root = (int)n % me->size,
                         .count = counts[n % 3],
                         .send = send,
                         .recv = recv};
        bool blocks = call_traits[c.kind].send_all;
        for (size_t i = 0; i < c.count * (blocks ? (size_t)me->size : 1); i++)
            reference_put(send, i, t->bits / 8, (uint64_t)integer_input(t, me->rank, i));
        if (run(me, &c, NULL))
            return 1;
        int ranks = combined(&c, me);
        uint64_t mask = t->bits == 64 ? UINT64_MAX : ((uint64_t)1 << t->bits) - 1;
        for (size_t i = 0; i < c.count && ranks > 0; i++) {
            uint64_t want = (uint64_t)integer_expected(t, c.op, ranks,
                                                       blocks ? (size_t)me->rank * c.count + i : i);
            if ((reference_get(recv, i, t->bits / 8) ^ want) & mask) {
                fprintf(stderr, "rank %d: %s type %d op %d element %zu is 0x%llx, not 0x%llx\n",
                        me->rank, call_traits[c.kind].name, (int)c.type, (int)c.op, i,
                        (unsigned long long)reference_get(recv, i, t->bits / 8),
                        (unsigned long long)(want & mask));
                return 1;
            }
        }
    }
    return 0;
}
static void test_G02_G05_integers_wrap_and_averages_do_not(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, g02, NULL, 60), 0);
    assert_int_equal(world_run(&w, 3, g02, NULL, 60), 0);
}

/* ---- G05: averages of floats ---- */

static int g05(struct world_rank *me) {
    static const enum occl_type types[] = {OCCL_FLOAT8E4M3, OCCL_FLOAT8E5M2, OCCL_FLOAT16,
                                           OCCL_BFLOAT16,   OCCL_FLOAT32,    OCCL_FLOAT64};
    static const double largest[] = {448, 57344, 65504, 0x1.fep127, 0x1p125, 0x1p1020};
    for (size_t n = 0; n < 6 * REDUCING; n++) {
        uint64_t send[16] = {0}, recv[2] = {0};
        struct call c = {.kind = reducing[n / 6],
                         .type = types[n % 6],
                         .op = OCCL_AVG,
                         .count = 2,
                         .send = send,
                         .recv = recv};
        size_t element = occl_dtype_bytes(c.type);
        /* The sum passes the largest value (of 16 bits and less) while the mean does not; and
         * thirds are rounded once. bfloat16's sum would pass float32, too. */
        double big = c.type == OCCL_BFLOAT16 ? 0x1p125 : largest[n % 6];
        for (size_t i = 0; i < 2 * (size_t)me->size; i++)
            reference_put(send, i, element, reference_bits(c.type, i % 2 ? me->rank == 0 : big));
        if (run(me, &c, NULL))
            return 1;
        int ranks = combined(&c, me);
        if (ranks == 0)
            continue;
        double third = c.type == OCCL_FLOAT64 ? 1.0 / ranks : (double)(1.0f / (float)ranks);
        WORLD_CHECK(reference_get(recv, 0, element) == reference_bits(c.type, big));
        WORLD_CHECK(reference_get(recv, 1, element) == reference_bits(c.type, third));
    }
    return 0;
}
static void test_G05_averages_of_3_ranks(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, g05, NULL, 20), 0);
}

/* ---- G03: the same bits at every size, in every kind ---- */

static int g03(struct world_rank *me) {
    enum { ROW = 64, ROWS = 512 };
    static const int copies[] = {1, 4, 64, ROWS};
    static const enum occl_redop ops[] = {OCCL_SUM, OCCL_PROD, OCCL_AVG};
    size_t most = (size_t)me->size * ROW * ROWS * 8;
    unsigned char *send = world_alloc(most), *recv = world_alloc(most), first[ROW * 8] = {0};
    unsigned char whole[3][ROW * 8] = {{0}};
    for (uint32_t type = 0; type < OCCL_DT_LIMIT; type++)
        for (size_t n = 0; n < REDUCING * 3 * 4 && occl_dtype_name(type); n++) {
            struct call c = {.kind = reducing[n / 12],
                             .type = (enum occl_type)type,
                             .op = ops[n / 4 % 3],
                             .count = (size_t)copies[n % 4] * ROW,
                             .root = 1,
                             .send = send,
                             .recv = recv};
            size_t element = occl_dtype_bytes(type);
            if (!reference_supports(type, c.op))
                continue;
            /* All rows, of all blocks, are the same. */
            struct random random = {99u + (uint64_t)me->rank};
            for (size_t i = 0; i < ROW; i++)
                reference_sample_at(&random, type, 2, i, send);
            size_t rows =
                (size_t)copies[n % 4] * (call_traits[c.kind].send_all ? (size_t)me->size : 1);
            for (size_t row = 1; row < rows; row++)
                memcpy(send + row * ROW * element, send, ROW * element);
            if (run(me, &c, NULL))
                return 1;
            if (!call_receives(&c, me->rank))
                continue;
            if (n % 4 == 0)
                memcpy(first, recv, ROW * element);
            /* A reduction of all ranks has the same bits in every kind. */
            if (c.kind == CALL_ALL_REDUCE)
                memcpy(whole[n / 4 % 3], recv, ROW * element);
            else if (combined(&c, me) == me->size)
                WORLD_CHECK(memcmp(whole[n / 4 % 3], recv, ROW * element) == 0);
            for (size_t row = 0; row < (size_t)copies[n % 4]; row++)
                WORLD_CHECK(memcmp(first, recv + row * ROW * element, ROW * element) == 0);
        }
    return 0;
}
static void test_G03_same_bits_at_every_size(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, g03, NULL, 60), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_F08_8_bit_floats),
        cmocka_unit_test(test_F09_a_group_of_one),
        cmocka_unit_test(test_G01_one_rounding),
        cmocka_unit_test(test_G02_G05_integers_wrap_and_averages_do_not),
        cmocka_unit_test(test_G03_same_bits_at_every_size),
        cmocka_unit_test(test_G05_averages_of_3_ranks),
    };
    return cmocka_run_group_tests_name("client_numbers", tests, setup, teardown);
}
