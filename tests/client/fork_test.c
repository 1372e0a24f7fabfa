/* SPDX-License-Identifier: Apache-2.0 */
/* A process whose threads are in the library forks. A program of its own, because the address
 * sanitizer's allocator is not made for forks of processes with threads: a child may hang in it. */
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

#define EXPECT(call, result, words)                                                           \
    do {                                                                                      \
        enum occl_result got_ = (call);                                                       \
        if (got_ != (result) || !strstr(occl_last_error(), words)) {                          \
            fprintf(stderr, "rank %d: line %d: %s gave %d \"%s\", expected %d with \"%s\"\n", \
                    me->rank, __LINE__, #call, (int)got_, occl_last_error(), (int)(result),   \
                    words);                                                                   \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

/* E01: a busy process forks; each child is refused, then attaches itself and does its own work. */
static uint32_t e01_stop;
struct e01_thread {
    struct world_rank *me;
    struct occl_comm comm;
    int failed;
};
static int e01_busy(struct world_rank *me, struct occl_comm comm) {
    for (uint64_t i = 0;; i++) {
        float v = (float)me->rank, sum = 0;
        int stop = (int)__atomic_load_n(&e01_stop, __ATOMIC_SEQ_CST), all = 0;
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL));
        WORLD_CHECK(sum == 1);
        WORLD_OK(occl_all_reduce(&stop, &all, 1, OCCL_INT32, OCCL_MIN, comm, NULL, NULL));
        if (all)
            return 0;
    }
}
static void *e01_main(void *arg) {
    struct e01_thread *t = arg;
    t->failed = e01_busy(t->me, t->comm);
    return NULL;
}
static int e01_child(struct world_rank *me) {
    struct occl_unique_id id;
    struct occl_comm c;
    float v = 2, sum = 0;
    if (occl_barrier(me->comm, NULL, NULL) != OCCL_ERROR_FORKED ||
        occl_finalize() != OCCL_ERROR_FORKED)
        return 1;
    WORLD_CHECK(world_attach(me->world, "child") == OCCL_SUCCESS);
    EXPECT(occl_barrier(me->comm, NULL, NULL), OCCL_ERROR_HANDLE, "stale");
    WORLD_OK(occl_get_unique_id(&id));
    WORLD_OK(occl_comm_create(&id, 0, 1, NULL, &c));
    WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL));
    WORLD_CHECK(sum == 2);
    WORLD_OK(occl_finalize());
    return 0;
}
static int e01(struct world_rank *me) {
    enum { THREADS = 4, FORKS = 50 };
    struct e01_thread threads[THREADS];
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct e01_thread){me, {0}, 0};
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &threads[i].comm));
    }
    for (int i = 0; i < THREADS; i++)
        WORLD_CHECK(pthread_create(&ids[i], NULL, e01_main, &threads[i]) == 0);
    int failed = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(e01_child(me));
        failed += world_wait(pid, 20) != 0;
    }
    __atomic_store_n(&e01_stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < THREADS; i++) {
        WORLD_CHECK(pthread_join(ids[i], NULL) == 0);
        failed += threads[i].failed;
    }
    WORLD_CHECK(failed == 0);
    return 0;
}
static void test_E01_fork_under_load(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, e01, NULL, 120), 0);
}

/* E02: what the parent's thread knows of its regions is nothing to the child: there the same
 * address is memory like any other, and the number may be that of another region of the child's
 * own. */
enum { E02_COUNT = 1 << 16 };
struct e02_shared {
    struct occl_unique_id id;
    uint32_t ready;
};
static int e02_child(struct world_rank *me, const int32_t *inherited) {
    struct e02_shared *shared = me->arg;
    struct occl_comm c;
    void *own;
    int32_t *out = malloc(E02_COUNT * sizeof *out);
    WORLD_CHECK(world_attach(me->world, "heirs") == OCCL_SUCCESS);
    if (me->rank == 0) {
        WORLD_OK(occl_get_unique_id(&shared->id));
        __atomic_store_n(&shared->ready, 1, __ATOMIC_SEQ_CST);
    }
    while (!__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST))
        usleep(1000);
    WORLD_OK(occl_mem_alloc(E02_COUNT * sizeof *out, &own));
    memset(own, 0x55, E02_COUNT * sizeof *out);
    WORLD_OK(occl_comm_create(&shared->id, me->rank, 2, NULL, &c));
    WORLD_CHECK(out != NULL);
    WORLD_OK(occl_all_reduce(inherited, out, E02_COUNT, OCCL_INT32, OCCL_SUM, c, NULL, NULL));
    for (int i = 0; i < E02_COUNT; i++)
        WORLD_CHECK(out[i] == 2 * i + 1);
    WORLD_OK(occl_finalize());
    return 0;
}
static int e02(struct world_rank *me) {
    void *buffer;
    WORLD_OK(occl_mem_alloc(E02_COUNT * sizeof(int32_t), &buffer));
    int32_t *values = buffer;
    memset(values, 0, E02_COUNT * sizeof *values);
    WORLD_OK(
        occl_all_reduce(values, values, E02_COUNT, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
    for (int i = 0; i < E02_COUNT; i++)
        values[i] = i + me->rank;
    pid_t pid = fork();
    if (pid == 0)
        _exit(e02_child(me, values));
    WORLD_CHECK(world_wait(pid, 20) == 0);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_E02_child_uses_the_parents_memory(void **state) {
    (void)state;
    struct e02_shared *shared = world_shared(sizeof *shared);
    assert_int_equal(world_run(&w, 2, e02, shared, 60), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_E01_fork_under_load),
        cmocka_unit_test(test_E02_child_uses_the_parents_memory),
    };
    return cmocka_run_group_tests_name("client_fork", tests, setup, teardown);
}
