/* SPDX-License-Identifier: Apache-2.0 */
/* Zero-copy memory that comes and goes while ops run: a thread remembers where its buffers lie, and
 * must forget what another one has freed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/client/world.h"

#define THREADS 3
#define COUNT 20000 /* through the regions, not the page */

static struct world w;

/* Each thread has a tag of its own and the same order on all ranks. */
struct worker {
    struct world_rank *me;
    int number;
    int rounds;
    int failed;
};

static int work(struct worker *worker) {
    struct world_rank *me = worker->me;
    struct occl_op_attr attr = {.size = sizeof attr, .priority = OCCL_PRIORITY_DEFAULT};
    attr.tag = (uint32_t)worker->number + 1;
    for (int round = 0; round < worker->rounds; round++) {
        size_t count = round % 3 ? COUNT : 300;
        void *a = NULL, *b = NULL;
        WORLD_OK(occl_mem_alloc(count * 4, &a));
        WORLD_OK(occl_mem_alloc(count * 4, &b));
        for (int again = 0; again < 4; again++) {
            int32_t *in = a, *out = b;
            for (size_t i = 0; i < count; i++)
                in[i] = (int32_t)(me->rank + round * 16 + again + (int)i);
            WORLD_OK(occl_all_reduce(in, out, count, OCCL_INT32, OCCL_SUM, me->comm, &attr, NULL));
            int32_t first = me->size * (round * 16 + again) + me->size * (me->size - 1) / 2;
            for (size_t i = 0; i < count; i++)
                WORLD_CHECK(out[i] == first + me->size * (int32_t)i);
        }
        WORLD_OK(occl_mem_free(a));
        WORLD_OK(occl_mem_free(b));
    }
    return 0;
}

static void *thread_main(void *arg) {
    struct worker *worker = arg;
    worker->failed = work(worker);
    return NULL;
}

static int come_and_go(struct world_rank *me) {
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){me, t, *(const int *)me->arg, 0};
        WORLD_CHECK(pthread_create(&threads[t], NULL, thread_main, &workers[t]) == 0);
    }
    int failed = 0;
    for (int t = 0; t < THREADS; t++) {
        (void)pthread_join(threads[t], NULL);
        failed += workers[t].failed;
    }
    return failed;
}
static void test_memory_comes_and_goes(void **state) {
    (void)state;
    int rounds = 60;
    assert_int_equal(world_run(&w, 2, come_and_go, &rounds, 60), 0);
    rounds = 30;
    assert_int_equal(world_run(&w, 3, come_and_go, &rounds, 60), 0);
}

/* In use: not freed. Not in use any more: freed at once. Freed: unknown. */
static int in_use(struct world_rank *me) {
    void *a = NULL;
    struct occl_request sum, message;
    WORLD_OK(occl_mem_alloc(COUNT * 4, &a));
    for (int round = 0; round < 20; round++) {
        if (me->rank == 0) {
            WORLD_OK(occl_all_reduce(a, a, COUNT, OCCL_INT32, OCCL_SUM, me->comm, NULL, &sum));
            WORLD_CHECK(occl_mem_free(a) == OCCL_ERROR_USAGE);
            WORLD_CHECK(strstr(occl_last_error(), "in use by 2 operations"));
        }
        WORLD_OK(occl_send(NULL, 0, OCCL_INT32, 1 - me->rank, me->comm, NULL, &message));
        WORLD_OK(occl_recv(NULL, 0, OCCL_INT32, 1 - me->rank, me->comm, NULL, NULL));
        WORLD_OK(occl_wait(message));
        if (me->rank == 0)
            WORLD_OK(occl_wait(sum));
        else
            WORLD_OK(occl_all_reduce(a, a, COUNT, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    }
    WORLD_OK(occl_mem_free(a));
    return 0;
}

static int freed(struct world_rank *me) {
    void *a = NULL;
    WORLD_OK(occl_mem_alloc(COUNT * 4, &a));
    WORLD_OK(occl_all_reduce(a, a, COUNT, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_OK(occl_mem_free(a));
    WORLD_CHECK(occl_mem_free(a) == OCCL_ERROR_INVALID_ARGUMENT);
    WORLD_CHECK(occl_all_reduce(a, a, COUNT, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL) ==
                OCCL_ERROR_FAULT);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_memory_in_use_stays(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, in_use, NULL, 30), 0);
    assert_int_equal(world_run(&w, 2, freed, NULL, 30), 0);
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
        cmocka_unit_test(test_memory_comes_and_goes),
        cmocka_unit_test(test_memory_in_use_stays),
    };
    return cmocka_run_group_tests_name("client_memory", tests, setup, teardown);
}
