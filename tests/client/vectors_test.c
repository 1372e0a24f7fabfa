/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives with blocks of different sizes through a real daemon: counts from nothing to very
 * uneven, places with gaps and in any order, in place, both kinds of memory, each way of calling,
 * record and daemon; ranks that disagree; and bad arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/client/world.h"

enum kind { ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, KINDS };
enum way { BLOCKING, REQUEST, PERSISTENT, WAYS };
enum memory { ZERO_COPY, ANY_POINTER };

#define SIZE_MAX_RANKS 8
#define ROOM 400000u
#define GUARD INT32_C(-88888)

struct test_case {
    enum kind kind;
    enum way way;
    int root, size;
    uint32_t shape; /* how large blocks are */
    bool gaps, in_place;
    int starts; /* of a persistent op */
    uint64_t salt;
};

/* Elements of the block from rank i to rank j; every rank computes the same. */
static size_t count_of(const struct test_case *c, int i, int j) {
    uint32_t x;
    if (c->kind == ALL_GATHER || c->kind == GATHER)
        j = 0;
    if (c->kind == REDUCE_SCATTER || c->kind == SCATTER)
        i = 0;
    if (c->kind == ALL_TO_ALL && c->in_place &&
        i > j) /* what is got is as large as what is given */
        return count_of(c, j, i);
    x = world_pattern((uint64_t)i * 17 + (uint64_t)j + c->salt, 5);
    switch (c->shape) {
    case 0:
        return x % 4;
    case 1:
        return x % 3 ? 0 : x % 40;
    case 2:
        return x;
    default: /* one block is nearly everything */
        return (i + j) % c->size == 1 ? 20000 + x * 10 : x % 2;
    }
}

/* Place of block k in a buffer of blocks with these counts: reversed order and gaps, or packed. */
static void places(const struct test_case *c, const size_t *counts, size_t *out_displs,
                   size_t *out_total) {
    size_t at = 0;
    for (int k = 0; k < c->size; k++) {
        int block = c->gaps ? c->size - 1 - k : k;
        out_displs[block] = at;
        at += counts[block] + (c->gaps ? 3 : 0);
    }
    *out_total = at;
}

static int32_t input(const struct test_case *c, int from, int to, size_t i) {
    if (c->kind == ALL_GATHER || c->kind == GATHER)
        to = 0;
    return (int32_t)world_pattern((uint64_t)from * 257 + (uint64_t)to * 31 + c->salt, i) - 300;
}

struct arrays {
    size_t send_counts[SIZE_MAX_RANKS], send_displs[SIZE_MAX_RANKS], send_total;
    size_t recv_counts[SIZE_MAX_RANKS], recv_displs[SIZE_MAX_RANKS], recv_total;
    bool send_many, recv_many; /* several blocks; else one, at the start */
    bool sends, receives;
};

static void make_arrays(const struct test_case *c, int me, struct arrays *a) {
    memset(a, 0, sizeof *a);
    a->send_many = c->kind == REDUCE_SCATTER || c->kind == ALL_TO_ALL || c->kind == SCATTER;
    a->recv_many = c->kind == ALL_GATHER || c->kind == ALL_TO_ALL || c->kind == GATHER;
    a->sends = c->kind != SCATTER || me == c->root;
    a->receives = c->kind != GATHER || me == c->root;
    for (int k = 0; k < c->size; k++) {
        a->send_counts[k] = count_of(c, me, k);
        a->recv_counts[k] = count_of(c, k, me);
    }
    places(c, a->send_counts, a->send_displs, &a->send_total);
    places(c, a->recv_counts, a->recv_displs, &a->recv_total);
    if (c->kind == REDUCE_SCATTER) { /* its blocks always follow each other */
        struct test_case packed = *c;
        packed.gaps = false;
        places(&packed, a->send_counts, a->send_displs, &a->send_total);
    }
    if (!a->send_many)
        a->send_total = count_of(c, me, 0);
    if (!a->recv_many)
        a->recv_total = count_of(c, 0, me);
}

static enum occl_result submit(const struct test_case *c, const struct arrays *a, int me,
                               const int32_t *send, int32_t *recv, struct occl_comm comm,
                               const struct occl_op_attr *attr, struct occl_request *request) {
    const size_t *sd = c->gaps ? a->send_displs : NULL, *rd = c->gaps ? a->recv_displs : NULL;
    bool init = c->way == PERSISTENT;
#define CALL(name, ...)                                          \
    (init ? occl_##name##_init(__VA_ARGS__, comm, attr, request) \
          : occl_##name(__VA_ARGS__, comm, attr, request))
    switch (c->kind) {
    case ALL_GATHER:
        return CALL(all_gather_v, send, a->send_total, recv, a->recv_counts, rd, OCCL_INT32);
    case REDUCE_SCATTER:
        return CALL(reduce_scatter_v, send, recv, a->send_counts, OCCL_INT32, OCCL_SUM);
    case ALL_TO_ALL:
        return CALL(all_to_all_v, send, a->send_counts, sd, recv, a->recv_counts, rd, OCCL_INT32);
    case GATHER:
        return CALL(gather_v, send, a->send_total, recv, me == c->root ? a->recv_counts : NULL,
                    me == c->root ? rd : NULL, OCCL_INT32, c->root);
    default:
        return CALL(scatter_v, send, me == c->root ? a->send_counts : NULL,
                    me == c->root ? sd : NULL, recv, a->recv_total, OCCL_INT32, c->root);
    }
#undef CALL
}

static int32_t expected(const struct test_case *c, int me, int k, size_t i) {
    int32_t sum = 0;
    if (c->kind == SCATTER)
        return input(c, c->root, me, i);
    if (c->kind != REDUCE_SCATTER)
        return input(c, k, me, i);
    for (int r = 0; r < c->size; r++)
        sum += input(c, r, me, i);
    return sum;
}

static int check_block(struct world_rank *me, const struct test_case *c, int k, size_t count,
                       const int32_t *got) {
    for (size_t i = 0; i < count; i++)
        if (got[i] != expected(c, me->rank, k, i)) {
            fprintf(stderr,
                    "rank %d of %d: kind %d way %d root %d shape %u gaps %d in place %d: block %d "
                    "of %zu, element %zu is %d, expected %d\n",
                    me->rank, me->size, (int)c->kind, (int)c->way, c->root, c->shape, c->gaps,
                    c->in_place, k, count, i, got[i], expected(c, me->rank, k, i));
            return 1;
        }
    return 0;
}

static int run(struct world_rank *me, const struct test_case *c, const struct arrays *a,
               const int32_t *send, int32_t *recv) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request request;
    attr.tag = c->salt % 4 == 3 ? (uint32_t)c->salt : 0;
    WORLD_OK(
        submit(c, a, me->rank, send, recv, me->comm, &attr, c->way == BLOCKING ? NULL : &request));
    for (int round = 0; round < c->starts && c->way != BLOCKING; round++) {
        if (c->way == PERSISTENT)
            WORLD_OK(occl_start(request));
        if (c->way != BLOCKING)
            WORLD_OK(occl_wait(request));
    }
    if (c->way == PERSISTENT)
        WORLD_OK(occl_request_free(request));
    return 0;
}

static int one_case(struct world_rank *me, const struct test_case *c, int32_t *send,
                    int32_t *recv) {
    struct arrays a;
    make_arrays(c, me->rank, &a);
    WORLD_CHECK(a.send_total < ROOM && a.recv_total < ROOM);
    if (c->in_place && a.sends && a.receives) {
        if (a.send_many && !a.recv_many)
            recv = send + a.send_displs[me->rank];
        else
            send = recv + (a.recv_many && !a.send_many ? a.recv_displs[me->rank] : 0);
    }
    for (size_t i = 0; i <= a.recv_total && a.receives; i++)
        recv[i] = GUARD;
    for (int k = 0; k < c->size && a.sends; k++)
        for (size_t i = 0; i < a.send_counts[k] && (a.send_many || k == 0); i++)
            send[(a.send_many ? a.send_displs[k] : 0) + i] = input(c, me->rank, k, i);
    if (run(me, c, &a, a.sends ? send : NULL, a.receives ? recv : NULL))
        return 1;
    for (int k = 0; k < c->size && a.receives; k++)
        if ((a.recv_many || k == 0) &&
            check_block(me, c, k, a.recv_counts[k], recv + (a.recv_many ? a.recv_displs[k] : 0)))
            return 1;
    /* Between blocks and behind the last one nothing is written. */
    if (a.receives && !c->in_place) {
        WORLD_CHECK(recv[a.recv_total] == GUARD);
        for (int k = 0; k < c->size && a.recv_many && c->gaps; k++)
            WORLD_CHECK(recv[a.recv_displs[k] + a.recv_counts[k]] == GUARD);
    }
    return 0;
}

static int32_t *get(enum memory memory) {
    void *p = NULL;
    if (memory == ANY_POINTER)
        return world_alloc(ROOM * sizeof(int32_t));
    return occl_mem_alloc(ROOM * sizeof(int32_t), &p) == OCCL_SUCCESS ? p : NULL;
}

static int all_cases(struct world_rank *me) {
    int32_t *send = get(*(enum memory *)me->arg), *recv = get(*(enum memory *)me->arg);
    uint64_t salt = 0;
    WORLD_CHECK(send && recv);
    for (int kind = 0; kind < KINDS; kind++)
        for (uint32_t shape = 0; shape < 4; shape++)
            for (int variant = 0; variant < 12; variant++, salt++) {
                struct test_case c = {.kind = (enum kind)kind,
                                      .way = (enum way)(variant % WAYS),
                                      .root = (int)salt % me->size,
                                      .size = me->size,
                                      .shape = shape,
                                      .gaps = (variant & 1) != 0,
                                      .in_place = variant >= 6,
                                      .salt = salt};
                c.starts = c.way == PERSISTENT && !c.in_place ? 2 : 1; /* on all ranks */
                /* A root that scatters is in place in its input, which others do not have. */
                if (kind == SCATTER && me->rank != c.root)
                    c.in_place = false;
                if (one_case(me, &c, send, recv))
                    return 1;
            }
    return 0;
}

static void every_case(enum memory memory) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
    struct world w;
    world_start(&w, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(world_run(&w, sizes[i], all_cases, &memory, 120), 0);
    assert_int_equal(world_stop(&w), 0);
}

static void test_uneven_blocks_zero_copy(void **state) {
    (void)state;
    every_case(ZERO_COPY);
}
static void test_uneven_blocks_any_pointer(void **state) {
    (void)state;
    every_case(ANY_POINTER);
}

static void test_uneven_blocks_by_the_daemon(void **state) {
    (void)state;
    every_case(ZERO_COPY);
}
static void test_uneven_blocks_staged_for_the_daemon(void **state) {
    (void)state;
    every_case(ANY_POINTER);
}

/* The last rank is in place, so that all pairs exchange their blocks; of the others only one gives
 * something, once the lower, once the higher one. */
static int only_one_way(struct world_rank *me) {
    enum { N = 30000 };
    int32_t *data = get(*(enum memory *)me->arg), *out = get(*(enum memory *)me->arg);
    int last = me->size - 1;
    WORLD_CHECK(data && out);
    for (int giver = 0; giver < 2; giver++) {
        size_t sends[3] = {0}, gets[3] = {0};
        int taker = 1 - giver;
        bool gives = me->rank == giver, takes = me->rank == taker, own = me->rank == last;
        sends[taker] = gives ? N : 0;
        gets[giver] = takes ? N : 0;
        sends[last] = gets[last] = own ? N : 0;
        for (int i = 0; i < N; i++) {
            data[i] = me->rank * 1000000 + i;
            out[i] = GUARD;
        }
        const int32_t *from = gives || own ? data : NULL;
        int32_t *to = own ? data : takes ? out : NULL;
        WORLD_OK(
            occl_all_to_all_v(from, sends, NULL, to, gets, NULL, OCCL_INT32, me->comm, NULL, NULL));
        for (int i = 0; i < N; i++)
            WORLD_CHECK(out[i] == (takes ? giver * 1000000 + i : GUARD) &&
                        data[i] == me->rank * 1000000 + i);
    }
    return 0;
}

static void test_exchanges_that_go_one_way(void **state) {
    static enum memory memories[] = {ZERO_COPY, ANY_POINTER};
    struct world w;
    (void)state;
    world_start(&w, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(world_run(&w, 3, only_one_way, &memories[i], 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

/* Ranks 1 and 3 disagree on what goes from one to the other; how much else there is decides the
 * path. */
static int one_block_differs(struct world_rank *me) {
    static const size_t usual[] = {3, 40000};
    for (size_t u = 0; u < 2; u++) {
        size_t n = usual[u], sends[4] = {n, n, n, n}, gets[4] = {n, n, n, n};
        int32_t *send = calloc(8 * n, 4), *recv = calloc(8 * n, 4);
        if (me->rank == 1)
            sends[3] = n - 1;
        enum occl_result result = occl_all_to_all_v(send, sends, NULL, recv, gets, NULL, OCCL_INT32,
                                                    me->comm, NULL, NULL);
        bool concerned = me->rank == 1 || me->rank == 3;
        /* A small op ends well where nothing is wrong; a large one, or by the daemon, for nobody.
         */
        WORLD_CHECK(result == OCCL_ERROR_MISMATCH || (!concerned && result == OCCL_SUCCESS));
        if (concerned)
            WORLD_CHECK(strstr(occl_last_error(), "rank 1 sends") ||
                        strstr(occl_last_error(), "a block that rank 1 sends"));
        WORLD_OK(occl_barrier(me->comm, NULL, NULL)); /* the communicator goes on */
        free(send);
        free(recv);
    }
    return 0;
}

/* A giver has gone when the root finds out. */
static int giver_differs(struct world_rank *me) {
    size_t counts[2] = {4, 5};
    int32_t data[16] = {0}, all[16] = {0};
    enum occl_result async = OCCL_SUCCESS;
    enum occl_result result = occl_gather_v(data, me->rank ? 6 : 4, all, counts, NULL, OCCL_INT32,
                                            0, me->comm, NULL, NULL);
    if (me->rank == 0) {
        WORLD_CHECK(result == OCCL_ERROR_MISMATCH);
        return 0;
    }
    for (double until = world_now() + 5; result == OCCL_SUCCESS && async == OCCL_SUCCESS;) {
        WORLD_OK(occl_comm_get_async_error(me->comm, &async));
        WORLD_CHECK(world_now() < until);
    }
    WORLD_CHECK(result == OCCL_ERROR_MISMATCH || async == OCCL_ERROR_MISMATCH);
    return 0;
}

/* Another giver's block is too large for the page: all have to come. One that has gone is told. */
static int small_giver_differs(struct world_rank *me) {
    enum { N = 40000 };
    size_t counts[3] = {4, 5, N}, gives = me->rank == 1 ? 6 : counts[me->rank];
    int32_t *data = calloc(N, 4), *all = calloc(N + 16, 4);
    enum occl_result async = OCCL_SUCCESS;
    enum occl_result result =
        occl_gather_v(data, gives, all, counts, NULL, OCCL_INT32, 0, me->comm, NULL, NULL);
    free(data);
    free(all);
    if (me->rank != 1) {
        WORLD_CHECK(result == OCCL_ERROR_MISMATCH);
        return 0;
    }
    for (double until = world_now() + 5; result == OCCL_SUCCESS && async == OCCL_SUCCESS;) {
        WORLD_OK(occl_comm_get_async_error(me->comm, &async));
        WORLD_CHECK(world_now() < until);
    }
    return 0;
}

static void test_disagreement(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 4, one_block_differs, NULL, 30), 0);
    assert_int_equal(world_run(&w, 2, giver_differs, NULL, 30), 0);
    assert_int_equal(world_run(&w, 3, small_giver_differs, NULL, 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

static void test_disagreement_by_the_daemon(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 4, one_block_differs, NULL, 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

#define REFUSED(call, text)                                   \
    do {                                                      \
        WORLD_CHECK((call) == OCCL_ERROR_INVALID_ARGUMENT);   \
        WORLD_CHECK(strstr(occl_last_error(), text) != NULL); \
    } while (0)

static int bad_arrays(struct world_rank *me) {
    int32_t a[64] = {0}, b[64] = {0};
    size_t ones[2] = {1, 1}, over[2] = {SIZE_MAX, 1}, negative[2] = {(size_t)-3, 1};
    size_t both_at_0[2] = {0, 0}, crossed[2] = {4, 3}, twos[2] = {2, 2}, far[2] = {0, SIZE_MAX - 1};
    struct occl_comm comm = me->comm;
    const enum occl_type t = OCCL_INT32;
    REFUSED(occl_all_gather_v(a, 1, b, NULL, NULL, t, comm, NULL, NULL), "recvcounts is NULL");
    REFUSED(occl_all_gather_v(a, 1, b, over, NULL, t, comm, NULL, NULL), "recvcounts[0]");
    REFUSED(occl_all_gather_v(a, 1, b, negative, NULL, t, comm, NULL, NULL), "recvcounts[0]");
    REFUSED(occl_all_gather_v(a, 1, b, ones, far, t, comm, NULL, NULL), "displacement");
    REFUSED(occl_all_gather_v(a, SIZE_MAX / 2, b, ones, NULL, t, comm, NULL, NULL),
            "4-byte elements overflows, expected below 281474976710656");
    REFUSED(occl_all_gather_v(a, 1, b, ones, both_at_0, t, comm, NULL, NULL), "overlap");
    REFUSED(occl_all_gather_v(a, 2, b, twos, crossed, t, comm, NULL, NULL), "overlap");
    REFUSED(occl_all_to_all_v(a, NULL, NULL, b, ones, NULL, t, comm, NULL, NULL), "sendcounts");
    REFUSED(occl_all_to_all_v(a, ones, NULL, b, NULL, NULL, t, comm, NULL, NULL), "recvcounts");
    REFUSED(occl_all_to_all_v(a, ones, NULL, a, twos, NULL, t, comm, NULL, NULL), "in place");
    REFUSED(occl_all_to_all_v(a, twos, NULL, a + 1, twos, NULL, t, comm, NULL, NULL), "overlap");
    REFUSED(occl_reduce_scatter_v(a, b, NULL, t, OCCL_SUM, comm, NULL, NULL), "recvcounts");
    REFUSED(occl_gather_v(a, 1, b, ones, NULL, t, 2, comm, NULL, NULL), "root 2");
    REFUSED(occl_scatter_v(a, ones, NULL, b, 1, (enum occl_type)77, 0, comm, NULL, NULL),
            "type 77");
    if (me->rank == 0) {
        REFUSED(occl_gather_v(a, 1, b, NULL, NULL, t, 0, comm, NULL, NULL), "recvcounts is NULL");
        REFUSED(occl_scatter_v(a, NULL, NULL, b, 1, t, 0, comm, NULL, NULL), "sendcounts is NULL");
        WORLD_CHECK(occl_scatter_v(NULL, ones, NULL, b, 1, t, 0, comm, NULL, NULL) ==
                    OCCL_ERROR_INVALID_ARGUMENT);
    }
    /* Nothing of it was submitted. */
    WORLD_OK(occl_all_gather_v(a, 1, b, ones, NULL, t, comm, NULL, NULL));
    return 0;
}

static void test_bad_arrays(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 2, bad_arrays, NULL, 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uneven_blocks_zero_copy),
        cmocka_unit_test(test_uneven_blocks_any_pointer),
        cmocka_unit_test_setup_teardown(test_uneven_blocks_by_the_daemon, world_use_ordered,
                                        world_use_usual),
        cmocka_unit_test_setup_teardown(test_uneven_blocks_staged_for_the_daemon, world_use_ordered,
                                        world_use_usual),
        cmocka_unit_test(test_exchanges_that_go_one_way),
        cmocka_unit_test_setup_teardown(test_exchanges_that_go_one_way, world_use_ordered,
                                        world_use_usual),
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test_setup_teardown(test_disagreement_by_the_daemon, world_use_ordered,
                                        world_use_usual),
        cmocka_unit_test(test_bad_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
