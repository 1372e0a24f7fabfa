/* SPDX-License-Identifier: Apache-2.0 */
/* Forks at inconvenient moments: while threads of the process are in every kind of call, from
 * inside a callback, and between any two steps of a thread that frees memory of the library. A
 * program of its own, because the address sanitizer's allocator is not made for forks of processes
 * with threads: a child hangs in it for a lock that another thread held. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* What a child may expect: its parent's handles are stale, and it may attach itself. */
static int child_uses_library(struct world *w, struct occl_comm parents) {
    struct occl_unique_id id;
    struct occl_comm comm;
    void *memory;
    int32_t x = 3, y = 0;
    struct occl_request request;
    (void)alarm(20);
    if (occl_barrier(parents, NULL, NULL) != OCCL_ERROR_FORKED)
        return 1;
    if (world_attach(w, "child") != OCCL_SUCCESS)
        return 2;
    if (occl_barrier(parents, NULL, NULL) != OCCL_ERROR_HANDLE)
        return 3;
    if (occl_get_unique_id(&id) || occl_comm_create(&id, 0, 1, NULL, &comm) ||
        occl_mem_alloc(100000, &memory))
        return 4;
    memset(memory, 1, 100000);
    if (occl_send(&x, 1, OCCL_INT32, 0, comm, NULL, &request) ||
        occl_recv(&y, 1, OCCL_INT32, 0, comm, NULL, NULL) || occl_wait(request) || y != 3)
        return 5;
    return occl_finalize() == OCCL_SUCCESS ? 0 : 6;
}

static int fork_child(struct world_rank *me) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(child_uses_library(me->world, me->comm));
    (void)waitpid(pid, &status, 0);
    return status;
}

struct busy {
    struct world_rank *me;
    int number, stop, failed;
};

static void count(enum occl_result result, void *arg) {
    if (result == OCCL_SUCCESS)
        __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

/* Number 0 and 1 talk to themselves on a communicator of their own, 2 allocates, 3 creates. */
static void *be_busy(void *arg) {
    struct busy *b = arg;
    struct occl_unique_id id;
    struct occl_comm comm;
    int called = 0, calls = 0;
    b->failed = occl_get_unique_id(&id) || occl_comm_create(&id, 0, 1, NULL, &comm);
    while (!b->failed && !__atomic_load_n(&b->stop, __ATOMIC_SEQ_CST)) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        struct occl_request request;
        struct occl_comm other;
        int32_t x[3000] = {1}, y[3000];
        void *memory;
        switch (b->number) {
        case 2:
            b->failed = occl_mem_alloc(20000, &memory) || occl_mem_free(memory);
            break;
        case 3:
            b->failed = occl_get_unique_id(&id) || occl_comm_create(&id, 0, 1, NULL, &other) ||
                        occl_comm_destroy(other);
            break;
        default:
            attr.callback = b->number ? count : NULL;
            attr.callback_arg = &called;
            calls += b->number;
            b->failed = occl_send(x, 3000, OCCL_INT32, 0, comm, &attr, &request) ||
                        occl_recv(y, 3000, OCCL_INT32, 0, comm, NULL, NULL) || occl_wait(request);
        }
    }
    b->failed |= called != calls;
    return NULL;
}

static int fork_among_threads(struct world_rank *me) {
    struct busy busy[4];
    pthread_t threads[4];
    int status = 0;
    for (int t = 0; t < 4; t++) {
        busy[t] = (struct busy){me, t, 0, 0};
        WORLD_CHECK(pthread_create(&threads[t], NULL, be_busy, &busy[t]) == 0);
    }
    for (int i = 0; i < 40 && status == 0; i++)
        status = fork_child(me);
    for (int t = 0; t < 4; t++)
        __atomic_store_n(&busy[t].stop, 1, __ATOMIC_SEQ_CST);
    for (int t = 0; t < 4; t++) {
        (void)pthread_join(threads[t], NULL);
        WORLD_CHECK(!busy[t].failed);
    }
    if (status)
        fprintf(stderr, "a child ended with 0x%x\n", (unsigned)status);
    return status != 0;
}

static void test_fork_among_busy_threads(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 2, fork_among_threads, NULL, 60), 0);
}

static struct world_rank *caller;
static int callback_child = -1;
static void fork_in_callback(enum occl_result result, void *arg) {
    (void)arg;
    int status = result == OCCL_SUCCESS ? fork_child(caller) : 1;
    __atomic_store_n(&callback_child, status, __ATOMIC_SEQ_CST);
}

static int callback_forks(struct world_rank *me) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request request;
    float x = 1;
    caller = me;
    attr.callback = fork_in_callback;
    WORLD_OK(occl_all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &request));
    WORLD_OK(occl_wait(request));
    WORLD_CHECK(__atomic_load_n(&callback_child, __ATOMIC_SEQ_CST) == 0);
    return 0;
}

static void test_fork_in_a_callback(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 2, callback_forks, NULL, 20), 0);
}

/* ---- between two steps ---- */

void __real_free(void *memory);
void __wrap_free(void *memory);

/* This thread forks behind each free of a block, which is in the middle of what the library does.
 */
static _Thread_local struct world_rank *forks_for;
static _Thread_local int forks, fork_failed;

void __wrap_free(void *memory) {
    struct world_rank *me = forks_for;
    __real_free(memory);
    if (!me || !memory)
        return;
    forks_for = NULL;
    forks++;
    fork_failed |= fork_child(me);
    forks_for = me;
}

static int fork_behind_frees(struct world_rank *me) {
    struct occl_unique_id id;
    struct occl_comm comm;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request request;
    int32_t x = 1, y;
    forks_for = me;
    for (int life = 0; life < 2; life++) { /* the second one takes the place of the first */
        WORLD_OK(occl_get_unique_id(&id));
        WORLD_OK(occl_comm_create(&id, 0, 1, NULL, &comm));
        attr.timeout_ns = 1000000;
        for (attr.tag = 1; attr.tag < 40; attr.tag++) /* more tags than the first table holds */
            WORLD_OK(occl_all_reduce(&x, &y, 1, OCCL_INT32, OCCL_SUM, comm, &attr, NULL));
        WORLD_OK(occl_recv(&y, 1, OCCL_INT32, 0, comm, &attr, &request));
        WORLD_CHECK(occl_wait(request) == OCCL_ERROR_TIMEOUT);
        WORLD_OK(occl_comm_destroy(comm));
    }
    forks_for = NULL;
    WORLD_CHECK(forks > 0);
    if (fork_failed)
        fprintf(stderr, "a child ended with 0x%x\n", (unsigned)fork_failed);
    return fork_failed != 0;
}

static void test_fork_behind_each_free(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 1, fork_behind_frees, NULL, 60), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_among_busy_threads),
        cmocka_unit_test(test_fork_in_a_callback),
        cmocka_unit_test(test_fork_behind_each_free),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup, teardown);
}
