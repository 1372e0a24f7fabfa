/* SPDX-License-Identifier: Apache-2.0 */
/* Operations through a real daemon with real processes: sizes around every switch of path, ranks,
 * memory kinds, in place, unaligned. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_lib/inspect.h"
#include "tests/client/world.h"
#include "tools/admin/admin.h"

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

/* Elements of float32 on both sides of each switch: tiny, inline, chunk, local, several slices. */
static const size_t counts[] = {0,   1,    2,    7,    8,    9,     31,    32,    33,
                                255, 1000, 1024, 1025, 5000, 16384, 65537, 300001};
#define COUNTS (sizeof counts / sizeof counts[0])
#define COUNT_MAX 300001

enum memory { ZERO_COPY, ANY_POINTER };

static float *get_buffer(enum memory kind, size_t bytes) {
    void *p = NULL;
    if (kind == ANY_POINTER)
        return malloc(bytes);
    return occl_mem_alloc(bytes, &p) == OCCL_SUCCESS ? p : NULL;
}

static int all_reduce_sizes(struct world_rank *me) {
    enum memory kind = *(enum memory *)me->arg;
    float *send = get_buffer(kind, COUNT_MAX * 4 + 64),
          *recv = get_buffer(kind, COUNT_MAX * 4 + 64);
    WORLD_CHECK(send && recv);
    for (size_t c = 0; c < COUNTS; c++) {
        size_t count = counts[c];
        for (int variant = 0; variant < 3; variant++) {
            float *from = variant == 2 ? send + 1 : send, *to = variant == 1 ? from : recv;
            world_fill(from, count, me->rank, c);
            if (to != from)
                memset(to, 0xff, count * 4);
            to[count] = -5.0f;
            WORLD_OK(
                occl_all_reduce(from, to, count, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
            WORLD_CHECK(world_wrong_sum(to, count, me->size, c) == 0);
            WORLD_CHECK(to[count] == -5.0f);
        }
    }
    return 0;
}

static void run_ranks(world_main fn, void *arg) {
    static const int sizes[] = {1, 2, 3, 4, 7, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(world_run(&w, sizes[i], fn, arg, 60), 0);
}

static void test_all_reduce_zero_copy(void **state) {
    enum memory kind = ZERO_COPY;
    (void)state;
    run_ranks(all_reduce_sizes, &kind);
}
static void test_all_reduce_any_pointer(void **state) {
    enum memory kind = ANY_POINTER;
    (void)state;
    run_ranks(all_reduce_sizes, &kind);
}

static int broadcast_sizes(struct world_rank *me) {
    enum memory kind = *(enum memory *)me->arg;
    float *send = get_buffer(kind, COUNT_MAX * 4), *recv = get_buffer(kind, COUNT_MAX * 4);
    WORLD_CHECK(send && recv);
    for (size_t c = 0; c < COUNTS; c++)
        for (int root = 0; root < me->size; root++) {
            size_t count = counts[c];
            bool in_place = (c + (size_t)root) % 2;
            float *to = in_place ? send : recv;
            if (me->rank == root)
                world_fill(send, count, root, c);
            else
                memset(to, 0xff, count * 4);
            WORLD_OK(occl_broadcast(send, to, count, OCCL_FLOAT32, root, me->comm, NULL, NULL));
            for (size_t i = 0; i < count; i++)
                WORLD_CHECK(to[i] == (float)world_pattern((uint64_t)root, i + c));
        }
    return 0;
}
static void test_broadcast_zero_copy(void **state) {
    enum memory kind = ZERO_COPY;
    (void)state;
    run_ranks(broadcast_sizes, &kind);
}
static void test_broadcast_any_pointer(void **state) {
    enum memory kind = ANY_POINTER;
    (void)state;
    run_ranks(broadcast_sizes, &kind);
}

/* Ring of messages: everybody sends to the next and receives from the one before, both kinds. */
static int send_recv_sizes(struct world_rank *me) {
    enum memory kind = *(enum memory *)me->arg;
    int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
    float *send = get_buffer(kind, COUNT_MAX * 4), *recv = get_buffer(kind, COUNT_MAX * 4);
    WORLD_CHECK(send && recv);
    for (size_t c = 0; c < COUNTS; c++) {
        struct occl_request requests[2];
        world_fill(send, counts[c], me->rank, c);
        memset(recv, 0xff, counts[c] * 4);
        WORLD_OK(occl_send(send, counts[c], OCCL_FLOAT32, next, me->comm, NULL, &requests[0]));
        WORLD_OK(occl_recv(recv, counts[c], OCCL_FLOAT32, before, me->comm, NULL, &requests[1]));
        WORLD_OK(occl_wait_all(requests, 2));
        for (size_t i = 0; i < counts[c]; i++)
            WORLD_CHECK(recv[i] == (float)world_pattern((uint64_t)before, i + c));
    }
    return 0;
}
static void test_send_recv_zero_copy(void **state) {
    enum memory kind = ZERO_COPY;
    (void)state;
    run_ranks(send_recv_sizes, &kind);
}
static void test_send_recv_any_pointer(void **state) {
    enum memory kind = ANY_POINTER;
    (void)state;
    run_ranks(send_recv_sizes, &kind);
}

static int barriers(struct world_rank *me) {
    uint32_t *counter = me->arg;
    for (uint32_t round = 1; round <= 200; round++) {
        __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        WORLD_CHECK(__atomic_load_n(counter, __ATOMIC_SEQ_CST) >= round * (uint32_t)me->size);
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    }
    return 0;
}
static void test_barrier(void **state) {
    uint32_t *counter = world_shared(4096);
    static const int sizes[] = {1, 2, 3, 8};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        *counter = 0;
        assert_int_equal(world_run(&w, sizes[i], barriers, counter, 60), 0);
    }
}

static int persistent(struct world_rank *me) {
    float *send = get_buffer(ZERO_COPY, 100000 * 4), *recv = get_buffer(ANY_POINTER, 100000 * 4);
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request small, big;
    attr.tag = 5;
    WORLD_OK(occl_all_reduce_init(send, recv, 10, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &small));
    attr.tag = 6;
    WORLD_OK(
        occl_all_reduce_init(send, recv, 100000, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &big));
    WORLD_OK(occl_wait(small)); /* inactive: at once */
    for (int round = 0; round < 50; round++) {
        world_fill(send, 100000, me->rank, (uint64_t)round);
        WORLD_OK(occl_start(small));
        WORLD_CHECK(occl_start(small) == OCCL_ERROR_USAGE);
        WORLD_OK(occl_wait(small));
        WORLD_CHECK(world_wrong_sum(recv, 10, me->size, (uint64_t)round) == 0);
        WORLD_OK(occl_start(big));
        WORLD_CHECK(occl_request_free(big) == OCCL_ERROR_USAGE);
        WORLD_OK(occl_wait(big));
        WORLD_CHECK(world_wrong_sum(recv, 100000, me->size, (uint64_t)round) == 0);
    }
    WORLD_OK(occl_request_free(small));
    WORLD_CHECK(occl_start(small) == OCCL_ERROR_HANDLE);
    WORLD_OK(occl_request_free(big));
    return 0;
}
static void test_persistent(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, persistent, NULL, 60), 0);
}

static int groups(struct world_rank *me) {
    enum { N = 3000 };
    float *a = malloc(N * 4), *b = malloc(N * 4), *got = malloc(N * 4);
    int other = 1 - me->rank;
    world_fill(a, N, me->rank, 1);
    world_fill(b, N, me->rank, 2);
    WORLD_CHECK(occl_group_end() == OCCL_ERROR_USAGE);
    for (int round = 0; round < 20; round++) {
        WORLD_OK(occl_group_start());
        WORLD_OK(occl_group_start());
        WORLD_OK(occl_send(a, N, OCCL_FLOAT32, other, me->comm, NULL, NULL));
        WORLD_OK(occl_all_reduce(b, b, N, OCCL_FLOAT32, OCCL_MAX, me->comm, NULL, NULL));
        WORLD_OK(occl_group_end());
        WORLD_OK(occl_recv(got, N, OCCL_FLOAT32, other, me->comm, NULL, NULL));
        WORLD_OK(occl_group_end());
        for (size_t i = 0; i < N; i++)
            WORLD_CHECK(got[i] == (float)world_pattern((uint64_t)other, i + 1));
    }
    return 0;
}
static void test_groups(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, groups, NULL, 30), 0);
}

static int splits(struct world_rank *me) {
    struct occl_comm half, none;
    int rank, size, value = me->rank, sum = 0;
    WORLD_OK(occl_comm_split(me->comm, me->rank % 2, -me->rank, NULL, &half));
    WORLD_OK(occl_comm_rank(half, &rank));
    WORLD_OK(occl_comm_size(half, &size));
    int expected = 0;
    for (int r = me->rank % 2; r < me->size; r += 2)
        expected += r;
    WORLD_CHECK(size == (me->size + 1 - me->rank % 2) / 2);
    WORLD_CHECK(rank == (me->size - 1 - me->rank) / 2);
    WORLD_OK(occl_all_reduce(&value, &sum, 1, OCCL_INT32, OCCL_SUM, half, NULL, NULL));
    WORLD_CHECK(sum == expected);
    WORLD_OK(occl_comm_split(me->comm, me->rank == 0 ? 7 : -1, 0, NULL, &none));
    WORLD_CHECK((none.handle != 0) == (me->rank == 0));
    WORLD_OK(occl_comm_destroy(half));
    WORLD_CHECK(occl_comm_destroy(half) == OCCL_ERROR_HANDLE);
    return 0;
}
static void test_split(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 7, splits, NULL, 30), 0);
}

/* Class of the communicator of that name, as the daemon tells administrators; -1: not there. */
static long class_of(const struct world *world, const char *name) {
    struct occl_admin admin;
    struct occl_detail detail;
    json_t *reply = NULL;
    long found = -1;
    if (occl_admin_open(world->socket, "ops_test", 5000, &admin, &detail) != OCCL_OK)
        return -1;
    json_t *request = json_pack("{s:s, s:s}", "verb", "comms", "comm", name);
    if (occl_admin_call(&admin, request, 5000, &reply, &detail) == OCCL_OK) {
        const json_t *comm = json_array_get(json_object_get(reply, "comms"), 0);
        const json_t *value = json_object_get(comm, "class");
        found = json_is_integer(value) ? (long)json_integer_value(value) : -1;
    }
    json_decref(reply);
    json_decref(request);
    occl_admin_close(&admin);
    return found;
}

/* The child has the class that its rank 0 asked for, else its parent's. */
static int split_priorities(struct world_rank *me) {
    static const struct {
        const char *name;
        int mine, others;
        long class_index;
    } cases[] = {{"urgent", OCCL_PRIORITY_URGENT, OCCL_PRIORITY_BULK, 3},
                 {"bulk", OCCL_PRIORITY_BULK, OCCL_PRIORITY_URGENT, 0},
                 {"inherited", OCCL_PRIORITY_DEFAULT, OCCL_PRIORITY_URGENT, 1}};
    struct occl_comm child, grandchild;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
        attr.name = cases[i].name;
        attr.priority = me->rank == 0 ? cases[i].mine : cases[i].others;
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, &attr, &child));
        WORLD_CHECK(class_of(me->world, cases[i].name) == cases[i].class_index);
        attr.name = "grandchild";
        attr.priority = OCCL_PRIORITY_DEFAULT;
        WORLD_OK(occl_comm_split(child, 0, me->rank, &attr, &grandchild));
        WORLD_CHECK(class_of(me->world, "grandchild") == cases[i].class_index);
        WORLD_OK(occl_barrier(grandchild, NULL, NULL));
        WORLD_OK(occl_comm_destroy(grandchild));
        WORLD_OK(occl_barrier(child, NULL, NULL));
        WORLD_OK(occl_comm_destroy(child));
        /* The names are used again only when nobody holds them any more. */
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    }
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    attr.priority = OCCL_PRIORITY_URGENT + 1;
    WORLD_CHECK(occl_comm_split(me->comm, 0, 0, &attr, &child) == OCCL_ERROR_INVALID_ARGUMENT);
    return 0;
}
static void test_split_priority(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, split_priorities, NULL, 30), 0);
}

/* A deadline of ops is none of the creation's: 100 us are too short for ranks to meet. */
static int short_deadlines(struct world_rank *me) {
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    struct occl_comm child;
    attr.default_timeout_ns = 100000;
    for (int i = 0; i < 30; i++) {
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, &attr, &child));
        WORLD_OK(occl_comm_destroy(child));
    }
    return 0;
}
static void test_op_deadline_does_not_end_a_split(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, short_deadlines, NULL, 30), 0);
}

/* Whether the daemon knows a certain cycle. */
static bool is_cycle_known(const struct world *world) {
    struct occl_admin admin;
    struct occl_detail detail;
    json_t *reply = NULL;
    bool known = false;
    if (occl_admin_open(world->socket, "ops_test", 5000, &admin, &detail) != OCCL_OK)
        return false;
    json_t *request = json_pack("{s:s}", "verb", "why");
    if (occl_admin_call(&admin, request, 5000, &reply, &detail) == OCCL_OK)
        known = json_is_true(
            json_object_get(json_array_get(json_object_get(reply, "cycles"), 0), "definite"));
    json_decref(reply);
    json_decref(request);
    occl_admin_close(&admin);
    return known;
}

/* Rank 0 waits in a split for rank 1, who waits in a barrier for rank 0. */
static int split_in_cycle(struct world_rank *me) {
    struct occl_comm child;
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    bool known = me->rank != 2;
    attr.create_timeout_ns = 3000000000 * world_slowness();
    if (me->rank == 0)
        WORLD_CHECK(occl_comm_split(me->comm, 0, 0, &attr, &child) == OCCL_ERROR_TIMEOUT);
    for (double start = world_now(); !known && world_now() < start + 2.5 * world_slowness();
         known = is_cycle_known(me->world))
        (void)usleep(50000);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    WORLD_CHECK(known);
    return 0;
}
static void test_split_in_a_cycle_is_named(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, split_in_cycle, NULL, 30), 0);
}

static uint32_t called;
static void on_done(enum occl_result result, void *arg) {
    if (result == OCCL_SUCCESS)
        __atomic_fetch_add((uint32_t *)arg, 1, __ATOMIC_SEQ_CST);
}
static int asynchronous(struct world_rank *me) {
    enum { OPS = 40, N = 20000 };
    struct occl_request requests[OPS];
    float *send = malloc(N * 4), *recv[OPS];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.callback = on_done;
    attr.callback_arg = &called;
    world_fill(send, N, me->rank, 0);
    for (int i = 0; i < OPS; i++) {
        int tag = me->rank % 2 ? OPS - i : i + 1;
        size_t count = tag % 3 ? N : 5;
        recv[tag - 1] = malloc(N * 4);
        attr.tag = (uint32_t)tag;
        WORLD_OK(occl_all_reduce(send, recv[tag - 1], count, OCCL_FLOAT32, OCCL_SUM, me->comm,
                                 &attr, &requests[i]));
    }
    for (int done = 0; done < OPS; done++) {
        int index;
        WORLD_OK(occl_wait_any(requests, OPS, -1, &index));
        WORLD_CHECK(index >= 0 && requests[index].handle);
        requests[index].handle = 0;
    }
    int none;
    WORLD_OK(occl_wait_any(requests, OPS, -1, &none));
    WORLD_CHECK(none == -1);
    for (int tag = 1; tag <= OPS; tag++)
        WORLD_CHECK(world_wrong_sum(recv[tag - 1], tag % 3 ? N : 5, me->size, 0) == 0);
    WORLD_CHECK(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == OPS);
    return 0;
}
static void test_callbacks_and_wait_any(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, asynchronous, NULL, 30), 0);
}

/* Who waits for any of several ops for long looks at them ever more rarely. */
static int wait_any_for_long(struct world_rank *me) {
    struct occl_request requests[2];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct rusage before, after;
    int index;
    for (int i = 0; i < 2 && me->rank == 0; i++) {
        attr.tag = (uint32_t)i + 1;
        WORLD_OK(occl_barrier(me->comm, &attr, &requests[i]));
    }
    if (me->rank == 0) {
        (void)getrusage(RUSAGE_SELF, &before);
        WORLD_CHECK(occl_wait_any(requests, 2, 2000000000, &index) == OCCL_IN_PROGRESS);
        (void)getrusage(RUSAGE_SELF, &after);
        WORLD_CHECK(after.ru_nvcsw - before.ru_nvcsw < 3000);
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    for (int i = 0; i < 2 && me->rank == 1; i++) {
        attr.tag = (uint32_t)i + 1;
        WORLD_OK(occl_barrier(me->comm, &attr, NULL));
    }
    return me->rank == 0 ? occl_wait_all(requests, 2) != OCCL_SUCCESS : 0;
}
static void test_waiting_for_any_costs_little(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, wait_any_for_long, NULL, 30), 0);
}

static int paths(struct world_rank *me) {
    static float small[2], big[100000];
    WORLD_OK(occl_all_reduce(small, small, 2, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_CHECK(occl_inspect_last_path(me->comm) == 1);
    WORLD_OK(occl_all_reduce(big, big, 100000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_CHECK(occl_inspect_last_path(me->comm) == 2);
    WORLD_CHECK(occl_inspect_cross_memory(me->comm) == 1);
    return 0;
}
static void test_paths(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, paths, NULL, 30), 0);
}

/* The root runs ahead of the receivers, each on a core of its own: a receiver may arrive between
 * the root's arrival and its decision, and must not take itself for the source. */
static int root_ahead(struct world_rank *me) {
    static const size_t counts_of[] = {2, 16, 256, 1024};
    static unsigned char buffer[4096];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(me->rank % 2, &one);
    (void)sched_setaffinity(0, sizeof one, &one); /* without it the window is rarer, not gone */
    for (size_t s = 0; s < 4; s++)
        for (int i = 0; i < 50000; i++) {
            unsigned char expected = (unsigned char)(i * 7 + (int)s);
            if (me->rank == 0)
                memset(buffer, expected, counts_of[s] * 4);
            WORLD_OK(
                occl_broadcast(buffer, buffer, counts_of[s], OCCL_INT32, 0, me->comm, NULL, NULL));
            WORLD_CHECK(buffer[0] == expected && buffer[counts_of[s] * 4 - 1] == expected);
        }
    return 0;
}
static void test_broadcast_root_ahead(void **state) {
    (void)state;
    for (int size = 2; size <= 3; size++)
        assert_int_equal(world_run(&w, size, root_ahead, NULL, 120), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_all_reduce_zero_copy),
        cmocka_unit_test(test_all_reduce_any_pointer),
        cmocka_unit_test(test_broadcast_zero_copy),
        cmocka_unit_test(test_broadcast_any_pointer),
        cmocka_unit_test(test_send_recv_zero_copy),
        cmocka_unit_test(test_send_recv_any_pointer),
        cmocka_unit_test(test_persistent),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_priority),
        cmocka_unit_test(test_op_deadline_does_not_end_a_split),
        cmocka_unit_test(test_split_in_a_cycle_is_named),
        cmocka_unit_test(test_callbacks_and_wait_any),
        cmocka_unit_test(test_waiting_for_any_costs_little),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_broadcast_root_ahead),
    };
    return cmocka_run_group_tests_name("client_ops", tests, setup, teardown);
}
