/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that clients treat badly: a completion descriptor made blocking and filled to the
 * brim or emptied, and everything closed under the library's feet. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/abuse/scene.h"

/* ---- the completion descriptor ---- */

enum disturbance { FILL, EMPTY };

/* Afterwards a write, or a read, would wait. */
static void disturb(int fd, enum disturbance what) {
    int flags = fcntl(fd, F_GETFL);
    uint64_t one;
    (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    if (what == FILL)
        for (uint64_t value = UINT64_MAX - 1; value; value /= 2)
            while (write(fd, &value, sizeof value) == sizeof value)
                continue;
    else
        while (read(fd, &one, sizeof one) == sizeof one)
            continue;
    (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

static void count(enum occl_result result, void *arg) {
    if (result == OCCL_SUCCESS)
        __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static int disturbing_rank(struct world_rank *me) {
    enum { OPS = 6, ROUNDS = 30 };
    const enum disturbance *what = me->arg;
    static float in[OPS][3000], out[OPS][3000];
    static int called; /* outlives the callbacks, whatever fails */
    int fd;
    WORLD_OK(occl_completion_fd(&fd));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct occl_request requests[OPS];
        disturb(fd, *what);
        for (int i = 0; i < OPS; i++) {
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            attr.tag = 1 + (uint32_t)i;
            if (i % 2) {
                attr.callback = count;
                attr.callback_arg = &called;
            }
            world_fill(in[i], 3000, me->rank, round);
            WORLD_OK(occl_all_reduce(in[i], out[i], 3000, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr,
                                     &requests[i]));
        }
        if (round % 3 == 1)
            usleep(2000); /* they have completed and are counted */
        disturb(fd, *what);
        WORLD_OK(occl_wait_all(requests, OPS));
        for (int i = 0; i < OPS; i++)
            WORLD_CHECK(world_wrong_sum(out[i], 3000, me->size, round) == 0);
    }
    /* The last ones run into finalize. */
    for (int i = 0; i < 5000 && __atomic_load_n(&called, __ATOMIC_SEQ_CST) < ROUNDS * OPS / 2; i++)
        usleep(1000);
    WORLD_CHECK(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == ROUNDS * OPS / 2);
    return 0;
}

static void check_disturbed(enum disturbance what) {
    struct scene scene;
    scene_open(&scene, NULL);
    assert_int_equal(world_run(&scene.w, 2, disturbing_rank, &what, 20), 0);
    scene_close(&scene);
}

static void test_full_completion_descriptor(void **state) {
    (void)state;
    check_disturbed(FILL);
}

static void test_emptied_completion_descriptor(void **state) {
    (void)state;
    check_disturbed(EMPTY);
}

/* ---- everything closed ---- */

static void *close_all(void *arg) {
    uint64_t random = *(const uint64_t *)arg;
    usleep((useconds_t)(scene_random(&random) % 30000));
    for (int fd = 3; fd < 64; fd++)
        if (scene_random(&random) % 4)
            (void)close(fd);
    return NULL;
}

/* Rank 1 closes what it has and does as if nothing had happened; nobody owes it success. Rank 0's
 * ops succeed with right results or fail for a reason it is told. */
static int closing_rank(struct world_rank *me) {
    const size_t most = 200000;
    uint64_t seed = *(const uint64_t *)me->arg;
    float *b = world_alloc(most * sizeof(float));
    pthread_t thread;
    if (me->rank == 1)
        WORLD_CHECK(pthread_create(&thread, NULL, close_all, &seed) == 0);
    double end = world_now() + 0.2;
    for (uint64_t i = 0;; i++) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        size_t n = (size_t[]){1, 1000, most}[i % 3];
        attr.timeout_ns = 500000000;
        attr.tag = 1 + (uint32_t)(i % 20);
        world_fill(b, n, me->rank, i);
        enum occl_result result =
            occl_all_reduce(b, b, n, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL);
        if (me->rank == 1 && (result != OCCL_SUCCESS || world_now() > end))
            _exit(0);
        if (result == OCCL_ERROR_PEER_FAILED || result == OCCL_ERROR_TIMEOUT)
            return 0;
        WORLD_CHECK(result == OCCL_SUCCESS);
        WORLD_CHECK(world_wrong_sum(b, n, me->size, i) == 0);
    }
}

static void test_clients_that_close_what_they_got(void **state) {
    struct scene scene;
    uint64_t seed = scene_seed();
    double until = world_now() + scene_seconds();
    (void)state;
    scene_open(&scene, NULL);
    for (; world_now() < until; seed++)
        assert_int_equal(world_run(&scene.w, 2, closing_rank, &seed, 10), 0);
    scene_close(&scene);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_completion_descriptor),
        cmocka_unit_test(test_emptied_completion_descriptor),
        cmocka_unit_test(test_clients_that_close_what_they_got),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
