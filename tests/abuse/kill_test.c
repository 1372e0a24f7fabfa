/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are killed and stopped at any moment, beside another tenant that checks its results.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/abuse/scene.h"

struct stage {
    int joined; /* ranks */
    int quiet;  /* the parent sends no more signals */
};

static int victim_ops(struct world_rank *me) {
    struct stage *stage = me->arg;
    uint64_t random = scene_seed() + (uint64_t)me->rank;
    const size_t most = 300000;
    float *private = world_alloc(most * sizeof(float));
    void *zero_copy;
    struct occl_comm half;
    __atomic_add_fetch(&stage->joined, 1, __ATOMIC_SEQ_CST);
    if (occl_mem_alloc(most * sizeof(float), &zero_copy) ||
        occl_comm_split(me->comm, me->rank / 2, 0, NULL, &half))
        return 0; /* a peer was killed before */
    for (uint64_t i = 0;; i++) {
        struct occl_request requests[8];
        enum occl_result result = OCCL_SUCCESS;
        for (int k = 0; k < 8; k++) {
            int n = me->rank % 2 ? 7 - k : k;
            size_t count = (size_t[]){1, 20, 700, 5000, 0, 40, 37000, 1}[n];
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            float *b = (scene_random(&random) & 1 ? private : (float *)zero_copy) + n * 37000;
            attr.tag = (uint32_t)n + 1;
            result = occl_all_reduce(b, b, count, OCCL_FLOAT32, OCCL_MAX, n % 3 ? me->comm : half,
                                     &attr, &requests[k]);
            if (result)
                break;
        }
        if (result == OCCL_SUCCESS)
            result = occl_wait_all(requests, 8);
        if (result == OCCL_SUCCESS && i % 8 == 0)
            result = occl_barrier(me->comm, NULL, NULL);
        if (result == OCCL_ERROR_PEER_FAILED)
            return 0;
        if (result != OCCL_SUCCESS) {
            fprintf(stderr, "victim rank %d: %d: %s\n", me->rank, (int)result, occl_last_error());
            return 3;
        }
    }
}

/* No survivor comes to its exit before the parent has sent its last signal. At exit a sanitizer's
 * leak check attaches to the process by ptrace and waits for the stop which the kernel makes of the
 * attachment: a SIGCONT in that moment discards the stop, and both then wait for ever. */
static int victim(struct world_rank *me) {
    const struct stage *stage = me->arg;
    int code = victim_ops(me);
    for (int ms = 0; ms < 20000 && !__atomic_load_n(&stage->quiet, __ATOMIC_SEQ_CST); ms++)
        usleep(1000);
    return code;
}

static void test_kill_and_stop_at_any_moment(void **state) {
    (void)state;
    struct scene scene;
    uint64_t random = scene_seed();
    struct stage *stage = world_shared(sizeof *stage);
    scene_open(&scene, NULL);
    double until = world_now() + scene_seconds();
    int rounds = 0;
    while (world_now() < until) {
        int size = 2 + (int)(scene_random(&random) % 3),
            last = (int)(scene_random(&random) % (uint64_t)size);
        pid_t pids[WORLD_RANKS_MAX];
        __atomic_store_n(&stage->joined, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&stage->quiet, 0, __ATOMIC_SEQ_CST);
        world_spawn(&scene.w, size, victim, stage, pids);
        /* Who never came is not missed by anybody: without a limit its peers wait for it. */
        while (__atomic_load_n(&stage->joined, __ATOMIC_SEQ_CST) < size)
            usleep(500);
        usleep((useconds_t)(scene_random(&random) % 60000));
        for (int k = (int)(scene_random(&random) % 4); k > 0; k--) {
            pid_t pid = pids[scene_random(&random) % (uint64_t)size];
            (void)kill(pid, SIGSTOP);
            usleep((useconds_t)(scene_random(&random) % 20000));
            if (scene_random(&random) % 3)
                (void)kill(pid, SIGCONT);
        }
        (void)kill(pids[last], SIGKILL);
        usleep((useconds_t)(scene_random(&random) % 2000));
        for (int r = 0; r < size; r++)
            (void)kill(pids[r], SIGCONT);
        __atomic_store_n(&stage->quiet, 1, __ATOMIC_SEQ_CST);
        for (int r = 0; r < size; r++) {
            int status = world_wait(pids[r], 10);
            if (r != last && status != 0) {
                fprintf(stderr, "round %d: rank %d of %d ended with 0x%x\n", rounds, r, size,
                        (unsigned)status);
                assert_int_equal(status, 0);
            }
        }
        rounds++;
    }
    printf("    %d rounds\n", rounds);
    scene_close(&scene);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_and_stop_at_any_moment),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
