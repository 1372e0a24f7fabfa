/* SPDX-License-Identifier: Apache-2.0 */
/* A process that has no descriptor left, and regions that a rank can no longer map because the
 * daemon has ended: the error says what is missing and whose fault it is. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

#define DESCRIPTORS 64
#define BYTES ((size_t)1 << 20)
#define KILLS 5

/* Returns how many were opened; afterwards the table is full. */
static int fill_table(int *out_fds) {
    struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};
    int count = 0;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    while (count < DESCRIPTORS && (out_fds[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    return count;
}

static int without_descriptors(struct world_rank *me) {
    int fds[DESCRIPTORS], count = me->rank == 0 ? fill_table(fds) : 0;
    void *memory;
    struct occl_comm pair;
    enum occl_result split;
    if (me->rank == 0) {
        WORLD_CHECK(occl_mem_alloc(BYTES, &memory) == OCCL_ERROR_NO_MEMORY);
        WORLD_CHECK(strstr(occl_last_error(), "descriptor") != NULL);
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL)); /* only that call has failed */
    split = occl_comm_split(me->comm, 0, 0, NULL, &pair);
    WORLD_CHECK(split == (me->rank == 0 ? OCCL_ERROR_NO_MEMORY : OCCL_ERROR_PEER_FAILED));
    while (count)
        (void)close(fds[--count]);
    WORLD_OK(occl_comm_split(me->comm, 0, 0, NULL, &pair));
    WORLD_OK(occl_mem_alloc(BYTES, &memory));
    WORLD_OK(occl_all_reduce(memory, memory, BYTES / 4, OCCL_FLOAT32, OCCL_SUM, pair, NULL, NULL));
    WORLD_OK(occl_comm_destroy(pair));
    return 0;
}

static void a_full_descriptor_table_fails_one_call(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    int failed = world_run(&w, 2, without_descriptors, NULL, 20);
    (void)world_stop(&w);
    assert_int_equal(failed, 0);
}

/* Neither rank can map the other's region. */
static int unreachable(struct world_rank *me) {
    int fds[DESCRIPTORS];
    void *memory;
    WORLD_OK(occl_mem_alloc(BYTES, &memory));
    int count = fill_table(fds);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    enum occl_result result =
        occl_all_reduce(memory, memory, BYTES / 4, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
    WORLD_CHECK(result == OCCL_ERROR_NO_MEMORY);
    WORLD_CHECK(strstr(occl_last_error(), "cannot map the memory of its peers") != NULL);
    while (count)
        (void)close(fds[--count]);
    WORLD_OK(
        occl_all_reduce(memory, memory, BYTES / 4, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    return 0;
}

static void who_cannot_map_a_region_says_so(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    int failed = world_run(&w, 2, unreachable, NULL, 20);
    (void)world_stop(&w);
    assert_int_equal(failed, 0);
}

/* Each op needs regions that its peers have not mapped yet, so that the daemon's end meets many of
 * them on the way. */
static int mapping(struct world_rank *me) {
    int *turns = me->arg;
    for (;;) {
        void *memory;
        enum occl_result result = occl_mem_alloc(BYTES / 16, &memory);
        if (result == OCCL_SUCCESS)
            result = occl_all_reduce(memory, memory, BYTES / 64, OCCL_FLOAT32, OCCL_SUM, me->comm,
                                     NULL, NULL);
        if (result == OCCL_SUCCESS)
            result = occl_mem_free(memory);
        __atomic_add_fetch(turns, 1, __ATOMIC_SEQ_CST);
        if (result != OCCL_SUCCESS) {
            WORLD_CHECK(result == OCCL_ERROR_DAEMON_LOST);
            return 0;
        }
    }
}

static void the_end_of_the_daemon_is_nobodys_buffer(void **state) {
    (void)state;
    for (int i = 0; i < KILLS; i++) {
        struct world w;
        pid_t pids[4];
        int failed = 0, *turns = world_shared(sizeof *turns);
        world_start(&w, NULL);
        world_spawn(&w, 4, mapping, turns, pids);
        while (__atomic_load_n(turns, __ATOMIC_SEQ_CST) < 40)
            (void)usleep(1000);
        (void)kill(w.daemon, SIGKILL);
        for (int r = 0; r < 4; r++)
            failed += world_wait(pids[r], 10) != 0;
        (void)world_stop(&w);
        assert_int_equal(failed, 0);
    }
}

/* As programs that become daemons do. */
static int closing(struct world_rank *me) {
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    for (int fd = 3; fd < 1024; fd++)
        (void)close(fd);
    double start = world_now();
    (void)occl_finalize();
    WORLD_CHECK(world_now() - start < 5.0 * world_slowness());
    _exit(0);
}

static void finalize_returns_without_its_descriptors(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    int failed = world_run(&w, 2, closing, NULL, 20);
    (void)world_stop(&w);
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_descriptor_table_fails_one_call),
        cmocka_unit_test(who_cannot_map_a_region_says_so),
        cmocka_unit_test(the_end_of_the_daemon_is_nobodys_buffer),
        cmocka_unit_test(finalize_returns_without_its_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
