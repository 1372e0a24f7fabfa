/* SPDX-License-Identifier: Apache-2.0 */
/* Every type with every operator in every kind of op that reduces, through a real daemon: numbers
 * of ranks, sizes on both sides of the paths' borders, kinds of memory, in place and apart take
 * turns so that each pair of them occurs. The reference is the movers' tests' own. What is not
 * defined is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm_ipc/datatype.h"
#include "tests/client/world.h"
#include "tests/gpu_host/reference.h"

enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, SCAN, EXSCAN, KINDS };
static const char *const kind_names[KINDS] = {"all_reduce", "reduce", "reduce_scatter", "scan",
                                              "exscan"};
static const size_t counts[] = {1, 3, 5, 17, 129, 700, 1500};
#define COUNTS (sizeof counts / sizeof counts[0])
#define COUNT_MAX 1500u
#define RANKS_MAX 8
#define ELEMENT_MAX 16u

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

struct test_case {
    enum kind kind;
    uint32_t dtype, redop;
    size_t count;
    int size, root;
    bool in_place;
    uint32_t number;
};

/* Rank r's input, the same wherever it is asked for. */
static void fill(const struct test_case *c, int r, size_t elements, void *buffer,
                 uint64_t *factor) {
    struct random random = {0x1234567u + c->number * 1000003u + (uint32_t)r};
    unsigned kind = c->number % REFERENCE_KINDS;
    for (size_t i = 0; i < elements; i++)
        reference_sample_at(&random, c->dtype, kind, i, buffer);
    *factor = reference_factor(&random, c->dtype);
}

static enum occl_result submit(const struct test_case *c, const void *send, void *recv,
                               struct occl_comm comm, const struct occl_op_attr *attr) {
    enum occl_type type = (enum occl_type)c->dtype;
    enum occl_redop op = (enum occl_redop)c->redop;
    switch (c->kind) {
    case ALL_REDUCE:
        return occl_all_reduce(send, recv, c->count, type, op, comm, attr, NULL);
    case REDUCE:
        return occl_reduce(send, recv, c->count, type, op, c->root, comm, attr, NULL);
    case REDUCE_SCATTER:
        return occl_reduce_scatter(send, recv, c->count, type, op, comm, attr, NULL);
    case SCAN:
        return occl_scan(send, recv, c->count, type, op, comm, attr, NULL);
    default:
        return occl_exscan(send, recv, c->count, type, op, comm, attr, NULL);
    }
}

struct buffers {
    unsigned char *send, *recv;       /* one kind of memory each */
    unsigned char *inputs[RANKS_MAX]; /* of all ranks, for the reference */
    unsigned char *expected;
};

/* What rank `me` has to get, into b->expected. Returns elements. */
static size_t reference(const struct test_case *c, int me, const struct buffers *b,
                        const uint64_t *factors) {
    size_t first = 0, sources = (size_t)c->size, bytes = occl_dtype_bytes(c->dtype);
    const unsigned char *from[RANKS_MAX];
    if (c->kind == REDUCE && me != c->root)
        return 0;
    if (c->kind == REDUCE_SCATTER)
        first = (size_t)me * c->count;
    if (c->kind == SCAN || c->kind == EXSCAN)
        sources = (size_t)me + (c->kind == SCAN ? 1 : 0);
    if (sources == 0)
        return 0;
    for (size_t r = 0; r < sources; r++)
        from[r] = b->inputs[r] + first * bytes;
    uint32_t divisor = c->redop == OCCL_RO_AVG ? (uint32_t)sources : 0;
    for (size_t i = 0; i < c->count; i++)
        reference_reduce_at(c->dtype, c->redop, divisor, factors, from, sources, i, b->expected);
    return c->count;
}

static int one_case(struct world_rank *me, const struct test_case *c, const struct buffers *b) {
    size_t bytes = occl_dtype_bytes(c->dtype);
    size_t blocks = c->kind == REDUCE_SCATTER ? (size_t)c->size : 1;
    uint64_t factors[RANKS_MAX];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    unsigned char *recv = b->recv;
    union {
        float f;
        uint64_t u;
    } factor;
    for (int r = 0; r < c->size; r++)
        fill(c, r, blocks * c->count, b->inputs[r], &factors[r]);
    memcpy(b->send, b->inputs[me->rank], blocks * c->count * bytes);
    memset(b->recv, 0x5b, COUNT_MAX * ELEMENT_MAX);
    if (c->in_place)
        recv = b->send + (blocks > 1 ? (size_t)me->rank * c->count * bytes : 0);
    factor.u = factors[me->rank];
    if (c->redop == OCCL_RO_PREMULSUM)
        attr.factor = &factor;
    WORLD_OK(submit(c, b->send, recv, me->comm, &attr));
    size_t elements = reference(c, me->rank, b, factors);
    if (memcmp(recv, b->expected, elements * bytes) != 0) {
        size_t i = 0;
        while (memcmp(recv + i * bytes, b->expected + i * bytes, bytes) == 0)
            i++;
        fprintf(stderr,
                "rank %d of %d: %s of %s %s, count %zu, in place %d, root %d: element %zu\n",
                me->rank, c->size, kind_names[c->kind], occl_dtype_name(c->dtype),
                occl_redop_name(c->redop), c->count, c->in_place, c->root, i);
        return 1;
    }
    return 0;
}

static unsigned char *get(bool zero_copy, size_t bytes) {
    void *p = NULL;
    if (!zero_copy)
        return world_alloc(bytes);
    return occl_mem_alloc(bytes, &p) == OCCL_SUCCESS ? p : NULL;
}

static int all_products(struct world_rank *me) {
    size_t most = RANKS_MAX * COUNT_MAX * ELEMENT_MAX;
    struct buffers sets[2];
    uint32_t number = 0;
    for (int s = 0; s < 2; s++) {
        sets[s].send = get(s == 0, most);
        sets[s].recv = get(s == 0, most);
        sets[s].expected = world_alloc(most);
        for (int r = 0; r < RANKS_MAX; r++)
            WORLD_CHECK((sets[s].inputs[r] = world_alloc(most)) != NULL);
        WORLD_CHECK(sets[s].send && sets[s].recv && sets[s].expected);
    }
    for (uint32_t dtype = 0; dtype < OCCL_DT_LIMIT; dtype++)
        for (uint32_t redop = 0; redop < OCCL_RO_LIMIT && occl_dtype_name(dtype); redop++) {
            if (!reference_supports(dtype, redop)) {
                struct test_case c = {ALL_REDUCE, dtype, redop, 1, me->size, 0, false, 0};
                struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
                uint64_t factor = 1;
                attr.factor = redop == OCCL_RO_PREMULSUM ? &factor : NULL;
                WORLD_CHECK(submit(&c, sets[0].send, sets[0].recv, me->comm, &attr) ==
                            OCCL_ERROR_INVALID_ARGUMENT);
                WORLD_CHECK(strstr(occl_last_error(), "not defined") != NULL);
                continue;
            }
            for (int kind = 0; kind < KINDS; kind++, number++) {
                struct test_case c = {.kind = (enum kind)kind,
                                      .dtype = dtype,
                                      .redop = redop,
                                      .count = counts[(number + (uint32_t)me->size) % COUNTS],
                                      .size = me->size,
                                      .root = (int)(number % (uint32_t)me->size),
                                      .in_place = (number / 2 + (uint32_t)me->size) % 2 != 0,
                                      .number = number};
                if (one_case(me, &c, &sets[number % 2]))
                    return 1;
            }
        }
    return 0;
}

static void test_every_type_operator_and_kind(void **state) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(world_run(&w, sizes[i], all_products, NULL, 120), 0);
}

#define REFUSED(call, text)                                   \
    do {                                                      \
        WORLD_CHECK((call) == OCCL_ERROR_INVALID_ARGUMENT);   \
        WORLD_CHECK(strstr(occl_last_error(), text) != NULL); \
    } while (0)

static int bad_operators(struct world_rank *me) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_comm comm = me->comm;
    float a[4] = {0}, b[4] = {0}, factor = 2;
    REFUSED(occl_all_reduce(a, b, 4, OCCL_FLOAT32, OCCL_PREMULSUM, comm, NULL, NULL), "factor");
    REFUSED(occl_reduce(a, b, 4, OCCL_FLOAT32, OCCL_PREMULSUM, 0, comm, &attr, NULL), "factor");
    REFUSED(occl_all_reduce(a, b, 4, OCCL_FLOAT32, OCCL_MINLOC, comm, NULL, NULL),
            "operator minloc is not defined for type float32");
    REFUSED(occl_scan(a, b, 1, OCCL_FLOAT32_INT32, OCCL_SUM, comm, NULL, NULL),
            "operator sum is not defined for type float32_int32");
    REFUSED(occl_all_reduce(a, b, 4, OCCL_FLOAT16, OCCL_BXOR, comm, NULL, NULL), "bxor");
    REFUSED(occl_all_reduce(a, b, 4, OCCL_FLOAT32, (enum occl_redop)14, comm, NULL, NULL),
            "operator 14");
    REFUSED(occl_all_reduce(a, b, 4, (enum occl_type)12, OCCL_SUM, comm, NULL, NULL), "type 12");
    attr.factor = &factor;
    REFUSED(occl_all_reduce(a, b, 4, OCCL_FLOAT32, OCCL_SUM, comm, &attr, NULL), "factor");
    REFUSED(occl_broadcast(a, b, 4, OCCL_FLOAT32, 0, comm, &attr, NULL), "factor");
    return 0;
}
static void test_bad_operators(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, bad_operators, NULL, 30), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_operator_and_kind),
        cmocka_unit_test(test_bad_operators),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
