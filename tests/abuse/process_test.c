/* SPDX-License-Identifier: Apache-2.0 */
/* A process exits while its threads are in every kind of call. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

static struct world world;

static int setup(void **state) {
    (void)state;
    world_start(&world, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return world_stop(&world) != 0;
}

static void count(enum occl_result result, void *arg) {
    if (result == OCCL_SUCCESS)
        __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void *block(void *arg) {
    struct world_rank *me = arg;
    float x = 1;
    (void)occl_all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
    return NULL;
}

static void *leave(void *arg) {
    (void)arg;
    usleep(50000);
    exit(0);
}

static int exit_in_thread(struct world_rank *me) {
    pthread_t threads[3];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request request;
    float x = 1;
    int calls = 0;
    attr.tag = 5;
    attr.callback = count;
    attr.callback_arg = &calls;
    if (me->rank == 1) { /* the one that stays hears of it */
        WORLD_CHECK(occl_all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &request) ==
                    OCCL_SUCCESS);
        WORLD_OK(occl_wait(request));
        attr.callback = NULL;
        attr.tag = 6;
        WORLD_CHECK(occl_barrier(me->comm, &attr, NULL) == OCCL_ERROR_PEER_FAILED);
        WORLD_CHECK(strstr(occl_last_error(), "rank 0"));
        return 0;
    }
    WORLD_OK(occl_all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &request));
    for (int t = 0; t < 2; t++)
        WORLD_CHECK(pthread_create(&threads[t], NULL, block, me) == 0);
    WORLD_CHECK(pthread_create(&threads[2], NULL, leave, NULL) == 0);
    return block(me) != NULL || pause();
}

static void test_exit_in_a_thread(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 2, exit_in_thread, NULL, 20), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_in_a_thread),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup, teardown);
}
