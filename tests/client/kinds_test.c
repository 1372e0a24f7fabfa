/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of collective through a real daemon with real processes: sizes around each switch of
 * path, rotating roots, both kinds of memory, in place, blocking, with requests and persistent; and
 * the same through the daemon's lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/client/world.h"

enum kind {
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SCAN,
    EXSCAN,
    KINDS
};

/* What a call looks like: which buffers hold a block for each rank, and who has them. */
static const struct {
    const char *name;
    bool reduces, rooted;
    bool send_all, recv_all;
} shapes[KINDS] = {
    [ALL_REDUCE] = {"all_reduce", true, false, false, false},
    [BROADCAST] = {"broadcast", false, true, false, false},
    [REDUCE] = {"reduce", true, true, false, false},
    [ALL_GATHER] = {"all_gather", false, false, false, true},
    [REDUCE_SCATTER] = {"reduce_scatter", true, false, true, false},
    [ALL_TO_ALL] = {"all_to_all", false, false, true, true},
    [GATHER] = {"gather", false, true, false, true},
    [SCATTER] = {"scatter", false, true, true, false},
    [SCAN] = {"scan", true, false, false, false},
    [EXSCAN] = {"exscan", true, false, false, false},
};

enum memory { ZERO_COPY, ANY_POINTER };
enum way { BLOCKING, REQUEST, PERSISTENT, WAYS };

struct plan {
    enum memory memory;
    size_t count_max;
    bool lanes; /* nobody waits in the library while the op is executed */
};

struct test_case {
    enum kind kind;
    enum way way;
    bool in_place;
    int root;
    size_t count;
    uint64_t salt;
};

/* Element i of block k of rank r's input. */
static int32_t input(const struct test_case *c, int r, int k, size_t i) {
    return (int32_t)world_pattern((uint64_t)r * 131 + (uint64_t)k, i + c->salt * 7919) - 400;
}

static int32_t sum_of(const struct test_case *c, int first, int last, int k, size_t i) {
    int32_t sum = 0;
    for (int r = first; r <= last; r++)
        sum += input(c, r, k, i);
    return sum;
}

/* What element i of block k of this rank's output has to be. */
static int32_t expected(const struct test_case *c, int me, int size, int k, size_t i) {
    switch (c->kind) {
    case ALL_REDUCE:
    case REDUCE:
        return sum_of(c, 0, size - 1, 0, i);
    case REDUCE_SCATTER:
        return sum_of(c, 0, size - 1, me, i);
    case SCAN:
        return sum_of(c, 0, me, 0, i);
    case EXSCAN:
        return sum_of(c, 0, me - 1, 0, i);
    case BROADCAST:
        return input(c, c->root, 0, i);
    case SCATTER:
        return input(c, c->root, me, i);
    case ALL_TO_ALL:
        return input(c, k, me, i);
    default: /* all_gather, gather */
        return input(c, k, 0, i);
    }
}

static bool sends(const struct test_case *c, int me) {
    return (c->kind != BROADCAST && c->kind != SCATTER) || me == c->root;
}
static bool receives(const struct test_case *c, int me) {
    if (c->kind == REDUCE || c->kind == GATHER)
        return me == c->root;
    return c->kind != EXSCAN || me > 0;
}

static enum occl_result submit(const struct test_case *c, const int32_t *send, int32_t *recv,
                               struct occl_comm comm, const struct occl_op_attr *attr,
                               struct occl_request *request) {
    const enum occl_type type = OCCL_INT32;
    bool init = c->way == PERSISTENT;
#define CALL(name, ...)                                                                      \
    (init ? occl_##name##_init(send, recv, c->count, type, __VA_ARGS__, comm, attr, request) \
          : occl_##name(send, recv, c->count, type, __VA_ARGS__, comm, attr, request))
#define PLAIN(name)                                                             \
    (init ? occl_##name##_init(send, recv, c->count, type, comm, attr, request) \
          : occl_##name(send, recv, c->count, type, comm, attr, request))
    switch (c->kind) {
    case ALL_REDUCE:
        return CALL(all_reduce, OCCL_SUM);
    case BROADCAST:
        return CALL(broadcast, c->root);
    case REDUCE:
        return CALL(reduce, OCCL_SUM, c->root);
    case ALL_GATHER:
        return PLAIN(all_gather);
    case REDUCE_SCATTER:
        return CALL(reduce_scatter, OCCL_SUM);
    case ALL_TO_ALL:
        return PLAIN(all_to_all);
    case GATHER:
        return CALL(gather, c->root);
    case SCATTER:
        return CALL(scatter, c->root);
    case SCAN:
        return CALL(scan, OCCL_SUM);
    default:
        return CALL(exscan, OCCL_SUM);
    }
#undef CALL
#undef PLAIN
}

/* Runs the case in the way that it asks for; a persistent op twice, which must change nothing. */
static int run(struct world_rank *me, const struct test_case *c, const int32_t *send,
               int32_t *recv) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request request;
    attr.tag = c->salt % 3 == 2 ? (uint32_t)c->salt : 0;
    WORLD_OK(submit(c, send, recv, me->comm, &attr, c->way == BLOCKING ? NULL : &request));
    if (c->way == PERSISTENT)
        WORLD_OK(occl_start(request));
    if (c->way != BLOCKING)
        WORLD_OK(occl_wait(request));
    if (c->way == PERSISTENT)
        WORLD_OK(occl_request_free(request));
    return 0;
}

#define GUARD INT32_C(-77777)

/* Buffers with room for a block of each rank and a guard behind it. */
struct buffers {
    int32_t *send, *recv;
};

static int check_output(struct world_rank *me, const struct test_case *c, const int32_t *recv) {
    int blocks = shapes[c->kind].recv_all ? me->size : 1;
    for (int k = 0; k < blocks; k++)
        for (size_t i = 0; i < c->count; i++) {
            int32_t got = recv[(size_t)k * c->count + i];
            int32_t want = expected(c, me->rank, me->size, k, i);
            if (got != want) {
                fprintf(stderr,
                        "rank %d of %d: %s way %d in_place %d root %d count %zu: block %d element "
                        "%zu is %d, expected %d\n",
                        me->rank, me->size, shapes[c->kind].name, (int)c->way, c->in_place, c->root,
                        c->count, k, i, got, want);
                return 1;
            }
        }
    return 0;
}

static int one_case(struct world_rank *me, const struct test_case *c, const struct buffers *b) {
    bool send_all = shapes[c->kind].send_all, recv_all = shapes[c->kind].recv_all;
    size_t send_count = c->count * (send_all ? (size_t)me->size : 1);
    size_t recv_count = c->count * (recv_all ? (size_t)me->size : 1);
    size_t own = (size_t)me->rank * c->count;
    int32_t *send = b->send, *recv = b->recv;
    if (c->in_place && recv_all && !send_all)
        send = recv + own;
    else if (c->in_place && send_all && !recv_all)
        recv = send + own;
    else if (c->in_place)
        send = recv;
    for (size_t i = 0; i <= recv_count; i++)
        recv[i] = GUARD;
    if (sends(c, me->rank))
        for (size_t i = 0; i < send_count; i++)
            send[i] =
                input(c, me->rank, send_all ? (int)(i / c->count) : 0, send_all ? i % c->count : i);
    if (!c->in_place)
        send[send_count] = recv[recv_count] = GUARD;
    if (run(me, c, sends(c, me->rank) ? send : NULL, receives(c, me->rank) ? recv : NULL))
        return 1;
    if (receives(c, me->rank) && check_output(me, c, recv))
        return 1;
    if (!c->in_place) {
        WORLD_CHECK(send[send_count] == GUARD && recv[recv_count] == GUARD);
        for (size_t i = 0; i < send_count && sends(c, me->rank); i++)
            WORLD_CHECK(send[i] == input(c, me->rank, send_all ? (int)(i / c->count) : 0,
                                         send_all ? i % c->count : i));
    } else if (c->kind == REDUCE_SCATTER) { /* the other blocks are not touched */
        for (size_t i = 0; i < send_count; i++)
            if (i / c->count != (size_t)me->rank)
                WORLD_CHECK(send[i] == input(c, me->rank, (int)(i / c->count), i % c->count));
    }
    return 0;
}

static int32_t *get(enum memory memory, size_t count) {
    void *p = NULL;
    if (memory == ANY_POINTER)
        return world_alloc(count * sizeof(int32_t));
    return occl_mem_alloc(count * sizeof(int32_t), &p) == OCCL_SUCCESS ? p : NULL;
}

static int all_kinds(struct world_rank *me) {
    static const size_t counts[] = {0,   1,   2,   3,    8,    9,    31,    32,   33,
                                    127, 128, 129, 1000, 1024, 1025, 16385, 70001};
    const struct plan *plan = me->arg;
    size_t most = (size_t)me->size * plan->count_max + 1;
    struct buffers b = {get(plan->memory, most), get(plan->memory, most)};
    uint64_t salt = 0;
    WORLD_CHECK(b.send && b.recv);
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
        for (int kind = 0; kind < KINDS && counts[n] <= plan->count_max; kind++)
            for (int in_place = 0; in_place < 2; in_place++) {
                enum way way = plan->lanes ? REQUEST : (enum way)(salt % WAYS);
                struct test_case c = {(enum kind)kind, way,
                                      in_place != 0,   (int)(salt / 2) % me->size,
                                      counts[n],       salt};
                salt++;
                /* A root of a source is in place in its input, which others do not have. */
                if (c.in_place && (kind == BROADCAST || kind == SCATTER) && me->rank != c.root)
                    c.in_place = false;
                if (one_case(me, &c, &b))
                    return 1;
            }
    return 0;
}

static void run_sizes(struct world *w, struct plan *plan) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(world_run(w, sizes[i], all_kinds, plan, 120), 0);
}

static void every_kind(struct plan plan) {
    struct world w;
    world_start(&w, NULL);
    run_sizes(&w, &plan);
    assert_int_equal(world_stop(&w), 0);
}

static void test_every_kind_zero_copy(void **state) {
    (void)state;
    every_kind((struct plan){ZERO_COPY, 70001, false});
}
static void test_every_kind_any_pointer(void **state) {
    (void)state;
    every_kind((struct plan){ANY_POINTER, 70001, false});
}

static void test_every_kind_by_the_daemon(void **state) {
    (void)state;
    every_kind((struct plan){ZERO_COPY, 16385, false});
    every_kind((struct plan){ANY_POINTER, 16385, false});
}

/* ---- half barriers ---- */

struct gate {
    uint32_t arrived, released;
};

static int half_barriers(struct world_rank *me) {
    struct gate *gate = me->arg;
    for (uint32_t round = 1; round <= 200; round++) {
        int root = (int)round % me->size;
        __atomic_fetch_add(&gate->arrived, 1, __ATOMIC_SEQ_CST);
        WORLD_OK(occl_fan_in(root, me->comm, NULL, NULL));
        if (me->rank == root) {
            WORLD_CHECK(__atomic_load_n(&gate->arrived, __ATOMIC_SEQ_CST) ==
                        round * (uint32_t)me->size);
            __atomic_store_n(&gate->released, round, __ATOMIC_SEQ_CST);
        }
        WORLD_OK(occl_fan_out(root, me->comm, NULL, NULL));
        WORLD_CHECK(__atomic_load_n(&gate->released, __ATOMIC_SEQ_CST) >= round);
    }
    return 0;
}

static void test_fan_in_and_fan_out(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    for (int size = 1; size <= 8; size += size) {
        struct gate *gate = world_shared(sizeof *gate);
        assert_int_equal(world_run(&w, size, half_barriers, gate, 60), 0);
    }
    assert_int_equal(world_stop(&w), 0);
}

/* Who only gives does not wait for the root. */
static int givers_run_ahead(struct world_rank *me) {
    uint32_t *given = me->arg;
    int32_t value = me->rank, sum = 0, all[8];
    if (me->rank == 0)
        while (__atomic_load_n(given, __ATOMIC_SEQ_CST) < (uint32_t)me->size - 1)
            ;
    for (int i = 0; i < 8; i++) {
        WORLD_OK(occl_reduce(&value, &sum, 1, OCCL_INT32, OCCL_SUM, 0, me->comm, NULL, NULL));
        WORLD_OK(occl_gather(&value, all, 1, OCCL_INT32, 0, me->comm, NULL, NULL));
        WORLD_OK(occl_fan_in(0, me->comm, NULL, NULL));
        if (me->rank == 0) {
            WORLD_CHECK(sum == me->size * (me->size - 1) / 2);
            for (int r = 0; r < me->size; r++)
                WORLD_CHECK(all[r] == r);
        }
    }
    __atomic_fetch_add(given, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void test_givers_run_ahead(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 4, givers_run_ahead, world_shared(sizeof(uint32_t)), 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

/* ---- disagreements ---- */

/* Two ranks take different ones for the root; none of them has to wait for the other. */
static int two_roots(struct world_rank *me) {
    enum occl_result async = OCCL_SUCCESS;
    int32_t value = 1, sum = 0;
    enum occl_result result = occl_reduce(&value, &sum, 1, OCCL_INT32, OCCL_SUM,
                                          me->rank < 2 ? 0 : 2, me->comm, NULL, NULL);
    /* Ranks 0 and 2 wait as roots and see it; the others hear of it, at once or later. */
    if (me->rank == 0 || me->rank == 2) {
        WORLD_CHECK(result == OCCL_ERROR_MISMATCH && strstr(occl_last_error(), "root"));
        WORLD_CHECK(sum == 0);
        return 0;
    }
    for (double until = world_now() + 5; result == OCCL_SUCCESS && async == OCCL_SUCCESS;) {
        WORLD_OK(occl_comm_get_async_error(me->comm, &async));
        WORLD_CHECK(world_now() < until);
    }
    WORLD_CHECK(result == OCCL_ERROR_MISMATCH || async == OCCL_ERROR_MISMATCH);
    return 0;
}

/* A giver and a source, neither of whom waits for anybody, describe different ops. */
static int giver_meets_source(struct world_rank *me) {
    enum occl_result async = OCCL_SUCCESS, result;
    int32_t value = 1, sum = 0;
    if (me->rank == 0)
        result = occl_broadcast(&value, NULL, 1, OCCL_INT32, 0, me->comm, NULL, NULL);
    else
        result = occl_reduce(&value, &sum, 1, OCCL_INT32, OCCL_SUM, 0, me->comm, NULL, NULL);
    for (double until = world_now() + 5; result == OCCL_SUCCESS && async == OCCL_SUCCESS;) {
        WORLD_OK(occl_comm_get_async_error(me->comm, &async));
        WORLD_CHECK(world_now() < until);
    }
    WORLD_CHECK(result == OCCL_ERROR_MISMATCH || async == OCCL_ERROR_MISMATCH);
    return 0;
}

static int large_counts_differ(struct world_rank *me) {
    size_t count = me->rank == 1 ? 50001 : 50000;
    int32_t *send = world_alloc(count * 4), *recv = world_alloc(4 * count * 4);
    memset(send, 0, count * 4);
    memset(recv, 1, 16);
    WORLD_CHECK(occl_all_gather(send, recv, count, OCCL_INT32, me->comm, NULL, NULL) ==
                OCCL_ERROR_MISMATCH);
    WORLD_CHECK(strstr(occl_last_error(), "count") && strstr(occl_last_error(), "50001"));
    WORLD_CHECK(recv[0] == 0x01010101);
    return 0;
}

static void test_disagreements(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 4, two_roots, NULL, 30), 0);
    assert_int_equal(world_run(&w, 2, giver_meets_source, NULL, 30), 0);
    assert_int_equal(world_run(&w, 4, large_counts_differ, NULL, 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_zero_copy),
        cmocka_unit_test(test_every_kind_any_pointer),
        {"test_every_kind_any_pointer_attached", test_every_kind_any_pointer, world_use_no_copies,
         world_use_copies, NULL},
        cmocka_unit_test_setup_teardown(test_every_kind_by_the_daemon, world_use_ordered,
                                        world_use_usual),
        cmocka_unit_test(test_fan_in_and_fan_out),
        cmocka_unit_test(test_givers_run_ahead),
        cmocka_unit_test(test_disagreements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
