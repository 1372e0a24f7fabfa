/* SPDX-License-Identifier: Apache-2.0 */
/* A process that dies and leaves a forked child behind, which never execs and keeps everything that
 * its parent shared with the daemon: mappings, pages and, when it was made behind the library's
 * back, the socket. The parent's death counts; the child delays nothing. */
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

#define REGION_BYTES (40u << 20)

enum how { BY_FORK, BY_CLONE }; /* with and without the library's handler */

struct stage {
    enum how how;
    pid_t child;
    int looping; /* ranks */
    int touched; /* times the child wrote into its mapping */
    double killed_at, seen_at[3];
};

static _Noreturn void be_orphan(struct stage *s, char *memory) {
    __atomic_store_n(&s->child, (pid_t)syscall(SYS_getpid), __ATOMIC_SEQ_CST);
    for (;;) {
        memset(memory, 7, 1 << 20);
        __atomic_add_fetch(&s->touched, 1, __ATOMIC_SEQ_CST);
        usleep(1000);
    }
}

static int rank_with_child(struct world_rank *me) {
    struct stage *s = me->arg;
    void *memory;
    float v = 1, sum;
    WORLD_OK(occl_mem_alloc(me->rank == 1 ? REGION_BYTES : 4096, &memory));
    for (int i = 0;; i++) {
        enum occl_result result =
            occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
        if (result == OCCL_ERROR_PEER_FAILED) {
            s->seen_at[me->rank] = world_now();
            WORLD_CHECK(strstr(occl_last_error(), "rank 1"));
            return 0;
        }
        WORLD_CHECK(result == OCCL_SUCCESS && sum == 3);
        if (i == 20 && me->rank == 1) {
            pid_t pid = s->how == BY_FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (pid == 0)
                be_orphan(s, memory);
        }
        if (i == 40)
            __atomic_add_fetch(&s->looping, 1, __ATOMIC_SEQ_CST);
    }
}

/* The dead rank's share of the quota is free again. */
static int alloc_rank(struct world_rank *me) {
    void *memory;
    WORLD_OK(occl_mem_alloc(REGION_BYTES, &memory));
    memset(memory, 1, REGION_BYTES);
    return 0;
}

static void await(const int *word, int value) {
    for (int i = 0; i < 2000 && __atomic_load_n(word, __ATOMIC_SEQ_CST) < value; i++)
        usleep(5000);
    assert_true(__atomic_load_n(word, __ATOMIC_SEQ_CST) >= value);
}

static void orphan(enum how how) {
    static const char *const quota[] = {"--set", "quota_registered=64MiB", NULL};
    struct scene scene;
    struct stage *s = world_shared(sizeof *s);
    pid_t pids[3];
    s->how = how;
    scene_open(&scene, quota);
    scene_expect_progress(&scene);
    struct scene_holdings before = scene_holdings_of(scene.w.daemon);
    world_spawn(&scene.w, 3, rank_with_child, s, pids);
    await(&s->looping, 3);
    await(&s->touched, 1);
    s->killed_at = world_now();
    (void)kill(pids[1], SIGKILL);
    (void)world_wait(pids[1], 5);
    int failed = 0;
    for (int r = 0; r < 3; r += 2) {
        failed += world_wait(pids[r], 5) != 0;
        if (s->seen_at[r] - s->killed_at > 0.25 * world_slowness()) {
            print_error("rank %d saw the death after %.3f s\n", r, s->seen_at[r] - s->killed_at);
            failed++;
        }
    }
    int alive = kill(s->child, 0);
    scene_expect_holdings(scene.w.daemon, before);
    failed += world_run(&scene.w, 1, alloc_rank, NULL, 10);
    int touched = __atomic_load_n(&s->touched, __ATOMIC_SEQ_CST);
    await(&s->touched, touched + 2); /* its mappings still work */
    (void)kill(s->child, SIGKILL);
    assert_int_equal(alive, 0);
    assert_int_equal(failed, 0);
    scene_close(&scene);
}

static void test_forked_child_outlives_its_parent(void **state) {
    (void)state;
    orphan(BY_FORK);
}

static void test_cloned_child_keeps_even_the_socket(void **state) {
    (void)state;
    orphan(BY_CLONE);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forked_child_outlives_its_parent),
        cmocka_unit_test(test_cloned_child_keeps_even_the_socket),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
