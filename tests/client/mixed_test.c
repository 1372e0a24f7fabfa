/* SPDX-License-Identifier: Apache-2.0 */
/* Six threads of each rank in one communicator at once: the untagged stream from two of them, tags
 * whose requests nobody else executes, messages, and memory that comes and goes. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/client/world.h"

enum { THREADS = 6, WINDOW = 8, COUNT = 1000, MESSAGE = 200, LARGE = 1 << 16, ROUNDS = 200 };

static struct world w;

/* Two threads submit these in any order: all are the same. */
static int equal_sums(struct world_rank *me) {
    int32_t in[COUNT], out[COUNT];
    for (int i = 0; i < 4 * ROUNDS; i++) {
        for (int k = 0; k < COUNT; k++)
            in[k] = me->rank + k;
        WORLD_OK(occl_all_reduce(in, out, COUNT, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
        for (int k = 0; k < COUNT; k++)
            WORLD_CHECK(out[k] == me->size * k + me->size * (me->size - 1) / 2);
    }
    return 0;
}

static int tagged(struct world_rank *me, uint32_t first) {
    static _Thread_local int32_t in[WINDOW][COUNT], out[WINDOW][COUNT];
    for (int i = 0; i < ROUNDS; i++) {
        struct occl_request requests[WINDOW];
        for (int j = 0; j < WINDOW; j++) {
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            attr.tag = first + (uint32_t)(i * WINDOW + j);
            for (int k = 0; k < COUNT; k++)
                in[j][k] = me->rank + k + j;
            WORLD_OK(j % 2 ? occl_all_reduce(in[j], out[j], COUNT, OCCL_INT32, OCCL_MAX, me->comm,
                                             &attr, &requests[j])
                           : occl_broadcast(in[j], out[j], COUNT, OCCL_INT32, i % me->size,
                                            me->comm, &attr, &requests[j]));
        }
        WORLD_OK(occl_wait_all(requests, WINDOW));
        for (int j = 0; j < WINDOW; j++)
            for (int k = 0; k < COUNT; k++)
                WORLD_CHECK(out[j][k] == (j % 2 ? me->size - 1 : i % me->size) + k + j);
    }
    return 0;
}

static int messages(struct world_rank *me) {
    int to = (me->rank + 1) % me->size, from = (me->rank + me->size - 1) % me->size;
    int32_t in[MESSAGE], out[MESSAGE];
    for (int i = 0; i < 2 * ROUNDS; i++) {
        struct occl_request sent;
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.tag = (uint32_t)i;
        for (int k = 0; k < MESSAGE; k++)
            in[k] = me->rank * 1000 + i + k;
        WORLD_OK(occl_send(in, MESSAGE, OCCL_INT32, to, me->comm, &attr, &sent));
        WORLD_OK(occl_recv(out, MESSAGE, OCCL_INT32, from, me->comm, &attr, NULL));
        WORLD_OK(occl_wait(sent));
        for (int k = 0; k < MESSAGE; k++)
            WORLD_CHECK(out[k] == from * 1000 + i + k);
    }
    return 0;
}

static int memory(struct world_rank *me) {
    for (int i = 0; i < ROUNDS / 10; i++) {
        void *buffer;
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.tag = 1000000 + (uint32_t)i;
        WORLD_OK(occl_mem_alloc(LARGE * sizeof(int32_t), &buffer));
        int32_t *values = buffer;
        for (int k = 0; k < LARGE; k++)
            values[k] = me->rank + k + i;
        for (int j = 0; j < 2; j++)
            WORLD_OK(occl_all_reduce(values, values, LARGE, OCCL_INT32, OCCL_MAX, me->comm, &attr,
                                     NULL));
        for (int k = 0; k < LARGE; k++)
            WORLD_CHECK(values[k] == me->size - 1 + k + i);
        WORLD_OK(occl_mem_free(buffer));
    }
    return 0;
}

struct worker {
    struct world_rank *me;
    int number, failed;
};
static void *work(void *arg) {
    struct worker *worker = arg;
    struct world_rank *me = worker->me;
    int number = worker->number;
    worker->failed = number < 2    ? equal_sums(me)
                     : number == 2 ? tagged(me, 1)
                     : number == 3 ? tagged(me, 500000)
                     : number == 4 ? messages(me)
                                   : memory(me);
    return NULL;
}
static int all_at_once(struct world_rank *me) {
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){me, i, 0};
        WORLD_CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        failed += workers[i].failed;
    }
    return failed;
}
static void test_all_kinds_at_once(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, all_at_once, NULL, 60), 0);
    assert_int_equal(world_run(&w, 3, all_at_once, NULL, 60), 0);
}

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds_at_once),
    };
    return cmocka_run_group_tests_name("client_mixed", tests, setup, teardown);
}
