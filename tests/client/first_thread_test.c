/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose first thread has ended while others go on: it is alive, and its private memory is
 * within reach of its peers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_lib/client.h"
#include "tests/client/world.h"
#include "tools/admin/admin.h"

#define COUNT 800000 /* more than is copied (copy_max) */

static bool has_ended(pid_t thread) {
    char path[32], text[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[got] = '\0';
    if (file)
        (void)fclose(file);
    const char *behind = strrchr(text, ')');
    return behind && behind[2] == 'Z';
}

/* Asks why until somebody is blamed; 0 if it is rank 1, as late. */
static int look(const struct world_rank *me) {
    struct occl_admin admin;
    struct occl_detail detail;
    json_t *reply = NULL, *culprits = NULL, *why = json_pack("{s:s}", "verb", "why");
    WORLD_OK(occl_admin_open(me->world->socket, "first_thread_test", 5000, &admin, &detail));
    for (int i = 0; i < 100 && json_array_size(culprits) == 0; i++) {
        json_decref(reply);
        (void)usleep(50000);
        WORLD_OK(occl_admin_call(&admin, why, 5000, &reply, &detail));
        culprits = json_object_get(reply, "culprits");
    }
    const json_t *culprit = json_array_get(culprits, 0);
    WORLD_CHECK(json_array_size(culprits) == 1);
    WORLD_CHECK(json_integer_value(json_object_get(culprit, "rank")) == 1);
    WORLD_CHECK(strcmp(json_string_value(json_object_get(culprit, "verdict")), "late") == 0);
    json_decref(reply);
    json_decref(why);
    occl_admin_close(&admin);
    return 0;
}

/* Without a descriptor its other threads cannot be listed: that says nothing of them. */
static int is_not_taken_for_gone(const struct world_rank *me) {
    const struct client_comm *comm = occl_lib.comms[(uint32_t)me->comm.handle];
    struct rlimit usual, none = {0, 0};
    WORLD_CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    none.rlim_max = usual.rlim_max;
    WORLD_CHECK(!client_rank_vanished(comm, 1));
    WORLD_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    bool vanished = client_rank_vanished(comm, 1);
    WORLD_CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    WORLD_CHECK(!vanished);
    return 0;
}

static int go_on(struct world_rank *me) {
    float *send = world_alloc(COUNT * sizeof *send), *recv = world_alloc(COUNT * sizeof *recv);
    struct occl_comm again;
    struct occl_request request;
    int *told = me->arg;
    while (me->rank == 1 && !has_ended(getpid()))
        (void)usleep(1000);
    for (uint64_t i = 0; i < 4; i++) {
        struct occl_comm comm = me->comm;
        if (i >= 2) /* one that was made afterwards */
            WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &again));
        comm = i >= 2 ? again : comm;
        world_fill(send, COUNT, me->rank, i);
        WORLD_OK(occl_all_reduce(send, recv, COUNT, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL));
        WORLD_CHECK(world_wrong_sum(recv, COUNT, me->size, i) == 0);
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    if (me->rank == 0) {
        WORLD_OK(occl_barrier(me->comm, NULL, &request));
        int failed = look(me) || is_not_taken_for_gone(me);
        __atomic_store_n(told, 1, __ATOMIC_SEQ_CST);
        WORLD_OK(occl_wait(request));
        return failed;
    }
    while (me->rank == 1 && !__atomic_load_n(told, __ATOMIC_SEQ_CST)) /* late for the barrier */
        (void)usleep(1000);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}

static void *second_thread(void *arg) {
    int failed = go_on(arg);
    if (occl_finalize() != OCCL_SUCCESS)
        failed = 1;
    _exit(failed);
}

static int first_ends(struct world_rank *me) {
    static struct world_rank copy; /* the stack of the first thread goes with it */
    pthread_t thread;
    if (me->rank != 1)
        return go_on(me);
    copy = *me;
    if (pthread_create(&thread, NULL, second_thread, &copy) != 0)
        return 1;
    pthread_exit(NULL);
}

static void a_rank_lives_without_its_first_thread(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    int failed = world_run(&w, 3, first_ends, world_shared(sizeof(int)), 20);
    (void)world_stop(&w);
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_lives_without_its_first_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
