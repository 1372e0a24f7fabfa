/* SPDX-License-Identifier: Apache-2.0 */
/* Hints of a communicator, what it holds, and suspending it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_lib/inspect.h"
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

static enum occl_result split(struct world_rank *me, const char *hints, struct occl_comm *out) {
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    attr.hints = hints;
    return occl_comm_split(me->comm, 0, me->rank, &attr, out);
}

static int sums(struct world_rank *me, struct occl_comm comm) {
    static const size_t counts[] = {1, 40, 900, 50000};
    static float in[50000], out[50000];
    for (size_t i = 0; i < 4; i++) {
        world_fill(in, counts[i], me->rank, i);
        WORLD_OK(occl_all_reduce(in, out, counts[i], OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL));
        WORLD_CHECK(world_wrong_sum(out, counts[i], me->size, i) == 0);
    }
    return 0;
}

static int hints(struct world_rank *me) {
    struct occl_comm comm;
    char value[16];
    const char *bad[] = {"wait", "wait=", "wait=spin", "speed=high", "wait=auto,,x", "=auto"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        WORLD_CHECK(split(me, bad[i], &comm) == OCCL_ERROR_INVALID_ARGUMENT &&
                    strstr(occl_last_error(), "hint"));
    WORLD_OK(split(me, NULL, &comm));
    WORLD_OK(occl_comm_get_hint(comm, "wait", value, sizeof value));
    WORLD_CHECK(strcmp(value, "auto") == 0);
    WORLD_CHECK(occl_comm_get_hint(comm, "speed", value, sizeof value) ==
                OCCL_ERROR_INVALID_ARGUMENT);
    WORLD_CHECK(occl_comm_get_hint(comm, "wait", value, 4) == OCCL_ERROR_INVALID_ARGUMENT);
    WORLD_OK(occl_barrier(comm, NULL, NULL));
    WORLD_OK(occl_comm_destroy(comm));
    /* One rank's wish is enough; each still gets its results. */
    WORLD_OK(split(me, me->rank == 1 ? "cross_memory=off" : "cross_memory=auto,wait=auto", &comm));
    WORLD_OK(occl_comm_get_hint(comm, "cross_memory", value, sizeof value));
    WORLD_CHECK(strcmp(value, "off") == 0 && occl_inspect_cross_memory(comm) == 0);
    if (sums(me, comm))
        return 1;
    WORLD_OK(occl_comm_destroy(comm));
    return 0;
}
static void test_hints(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, hints, NULL, 30), 0);
}

static double cpu_seconds(void) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* A rank that sleeps at once goes to sleep with its first wait: each costs a voluntary switch. */
static int sleeps(struct world_rank *me) {
    struct occl_comm comm;
    struct rusage before, after;
    char value[16];
    WORLD_OK(split(me, "wait=sleep", &comm));
    WORLD_OK(occl_comm_get_hint(comm, "wait", value, sizeof value));
    WORLD_CHECK(strcmp(value, "sleep") == 0);
    (void)getrusage(RUSAGE_SELF, &before);
    double cpu = cpu_seconds();
    for (int i = 0; i < 20; i++) {
        if (me->rank == 0) {
            struct timespec pause = {0, 5000000};
            (void)nanosleep(&pause, NULL);
        }
        WORLD_OK(occl_barrier(comm, NULL, NULL));
    }
    (void)getrusage(RUSAGE_SELF, &after);
    WORLD_CHECK(after.ru_nvcsw - before.ru_nvcsw >= 20);
    WORLD_CHECK(cpu_seconds() - cpu < 0.05 * world_slowness());
    return sums(me, comm);
}
static void test_wait_asleep(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, sleeps, NULL, 30), 0);
}

static struct occl_mem_stats stats_of(struct occl_comm comm) {
    struct occl_mem_stats stats = {.size = sizeof stats};
    if (occl_comm_mem_stats(comm, &stats) != OCCL_SUCCESS)
        memset(&stats, 0xff, sizeof stats);
    return stats;
}

static int statistics(struct world_rank *me) {
    struct occl_comm comm;
    struct occl_mem_stats before, after, bad = {.size = 1};
    void *p;
    WORLD_OK(split(me, "cross_memory=off", &comm));
    before = stats_of(comm);
    WORLD_CHECK(before.page_bytes > 100000 && before.payload_bytes > 50000 &&
                before.payload_bytes < before.page_bytes);
    WORLD_OK(occl_mem_alloc(1 << 20, &p));
    after = stats_of(comm);
    WORLD_CHECK(after.region_bytes >= before.region_bytes + (1 << 20));
    WORLD_CHECK(after.staging_bytes == before.staging_bytes);
    WORLD_OK(occl_mem_free(p));
    WORLD_CHECK(stats_of(comm).region_bytes == before.region_bytes);
    if (sums(me, comm)) /* private memory, copied */
        return 1;
    WORLD_CHECK(stats_of(comm).staging_bytes > before.staging_bytes);
    WORLD_CHECK(occl_comm_mem_stats(comm, &bad) == OCCL_ERROR_INVALID_ARGUMENT);
    WORLD_CHECK(occl_comm_mem_stats(comm, NULL) == OCCL_ERROR_INVALID_ARGUMENT);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_statistics(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, statistics, NULL, 30), 0);
}

static int suspending(struct world_rank *me) {
    struct occl_comm comm;
    int32_t v = 1, sum = 0;
    enum occl_result result;
    static float big[3000000], out[3000000];
    WORLD_OK(split(me, "cross_memory=off", &comm));
    for (int round = 0; round < 5; round++) {
        if (sums(me, comm))
            return 1;
        WORLD_OK(occl_all_reduce(big, out, 3000000, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL));
        uint64_t used = stats_of(comm).staging_bytes;
        /* A peer may still be on its way out of the last ops. */
        for (double until = world_now() + 5;;) {
            result = occl_comm_suspend(comm);
            if (result != OCCL_TRY_AGAIN)
                break;
            WORLD_CHECK(world_now() < until);
        }
        WORLD_CHECK(result == OCCL_SUCCESS);
        WORLD_CHECK(stats_of(comm).staging_bytes + 20000000 < used);
        WORLD_CHECK(occl_all_reduce(&v, &sum, 1, OCCL_INT32, OCCL_SUM, comm, NULL, NULL) ==
                        OCCL_ERROR_USAGE &&
                    strstr(occl_last_error(), "suspended"));
        if (me->rank == 0) { /* the peers wait meanwhile */
            struct timespec pause = {0, 20000000};
            (void)nanosleep(&pause, NULL);
        }
        WORLD_OK(occl_comm_resume(comm));
    }
    /* Not while something is under way. */
    struct occl_request request;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = 4;
    if (me->rank == 0) {
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_INT32, OCCL_SUM, comm, &attr, &request));
        WORLD_CHECK(occl_comm_suspend(comm) == OCCL_ERROR_USAGE);
        WORLD_OK(occl_barrier(comm, NULL, NULL));
        WORLD_OK(occl_wait(request));
    } else {
        WORLD_OK(occl_barrier(comm, NULL, NULL));
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_INT32, OCCL_SUM, comm, &attr, NULL));
    }
    WORLD_CHECK(sum == me->size);
    WORLD_OK(occl_comm_resume(comm)); /* without suspend: nothing */
    return 0;
}
static void test_suspend_and_resume(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, suspending, NULL, 60), 0);
}

/* A blocking op, whose payload is in a chunk, and then one that is not blocking: that the first
 * one's payload has been read must still be known. */
static int after_mixed_ops(struct world_rank *me) {
    static float in[256], out[256];
    struct occl_request request;
    enum occl_result result;
    double until = world_now() + 10 * world_slowness();
    WORLD_OK(occl_all_reduce(in, out, 256, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_OK(occl_all_reduce(in, out, 2, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, &request));
    WORLD_OK(occl_wait(request));
    while ((result = occl_comm_suspend(me->comm)) == OCCL_TRY_AGAIN)
        WORLD_CHECK(world_now() < until);
    WORLD_OK(result);
    WORLD_OK(occl_comm_resume(me->comm));
    return 0;
}
static void test_suspend_after_mixed_ops(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, after_mixed_ops, NULL, 30), 0);
}

static int suspend_and_resume(struct world_rank *me) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    enum occl_result result;
    double until = world_now() + 10 * world_slowness();
    while ((result = occl_comm_suspend(me->comm)) == OCCL_TRY_AGAIN)
        WORLD_CHECK(world_now() < until);
    WORLD_OK(result);
    WORLD_OK(occl_comm_resume(me->comm));
    attr.tag = 1; /* nobody goes on before all have come so far */
    WORLD_OK(occl_barrier(me->comm, &attr, NULL));
    return 0;
}

/* Ranks whose calls block say in their notes what they have read, the others in the flags of their
 * ops: together that is all ranks. Later ops would free the records; there are none. */
static int after_calls_of_both_kinds(struct world_rank *me) {
    static float in[256], out[256];
    struct occl_request request;
    bool blocks = me->rank % 2 == 0;
    for (uint64_t i = 0; i < 3; i++) {
        world_fill(in, 256, me->rank, i);
        WORLD_OK(occl_all_reduce(in, out, 256, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL,
                                 blocks ? NULL : &request));
        if (!blocks)
            WORLD_OK(occl_wait(request));
        WORLD_CHECK(world_wrong_sum(out, 256, me->size, i) == 0);
    }
    return suspend_and_resume(me);
}
static void test_suspend_after_calls_of_both_kinds(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, after_calls_of_both_kinds, NULL, 30), 0);
    assert_int_equal(world_run(&w, 3, after_calls_of_both_kinds, NULL, 30), 0);
}

/* Ops that a rank does not arrive at, because they have ended before it comes, or before its turn:
 * it reads nothing, and says so, too. */
static int after_ops_given_up(struct world_rank *me) {
    static float in[256], out[256];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT, tagged = OCCL_OP_ATTR_INIT;
    struct occl_request request, before;
    attr.timeout_ns = 20000000;
    tagged.tag = 1;
    if (me->rank == 0) {
        WORLD_CHECK(occl_all_reduce(in, out, 256, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL) ==
                    OCCL_ERROR_TIMEOUT);
        WORLD_OK(occl_barrier(me->comm, &tagged, NULL));
    } else {
        WORLD_OK(occl_barrier(me->comm, &tagged, NULL));
        WORLD_OK(occl_all_reduce(in, out, 256, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, &request));
        WORLD_CHECK(occl_wait(request) == OCCL_ERROR_TIMEOUT);
    }
    if (suspend_and_resume(me))
        return 1;
    if (me->rank == 0) {
        WORLD_OK(occl_broadcast(in, NULL, 256, OCCL_FLOAT32, 0, me->comm, NULL, NULL));
        WORLD_OK(occl_barrier(me->comm, &tagged, NULL));
    } else {
        WORLD_OK(occl_barrier(me->comm, &tagged, NULL)); /* the source has come */
        attr.tag = 2;
        WORLD_OK(occl_recv(out, 1, OCCL_FLOAT32, 0, me->comm, &attr, &before));
        struct occl_op_attr after = OCCL_OP_ATTR_INIT;
        after.after = &before;
        after.after_count = 1;
        WORLD_OK(occl_broadcast(NULL, out, 256, OCCL_FLOAT32, 0, me->comm, &after, &request));
        WORLD_CHECK(occl_wait(request) == OCCL_ERROR_TIMEOUT);
        WORLD_CHECK(occl_wait(before) == OCCL_ERROR_TIMEOUT);
    }
    return suspend_and_resume(me);
}
/* A rank that never comes reads nothing of an op that was given up without it, unless its source
 * has come. */
static int without_a_peer(struct world_rank *me) {
    static float in[256], out[256];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = 7;
    attr.timeout_ns = 20000000;
    if (me->rank == 0)
        WORLD_CHECK(occl_all_reduce(in, out, 256, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL) ==
                    OCCL_ERROR_TIMEOUT);
    if (suspend_and_resume(me))
        return 1;
    world_fill(in, 256, 0, 0);
    attr.tag = 8;
    attr.timeout_ns = 0;
    if (me->rank == 0)
        WORLD_OK(occl_broadcast(in, NULL, 256, OCCL_FLOAT32, 0, me->comm, &attr, NULL));
    enum occl_result result = occl_comm_suspend(me->comm);
    WORLD_CHECK(result == (me->rank == 0 ? OCCL_TRY_AGAIN : OCCL_SUCCESS));
    WORLD_OK(occl_comm_resume(me->comm));
    attr.tag = 1;
    WORLD_OK(occl_barrier(me->comm, &attr, NULL));
    attr.tag = 8;
    if (me->rank == 1)
        WORLD_OK(occl_broadcast(NULL, out, 256, OCCL_FLOAT32, 0, me->comm, &attr, NULL));
    WORLD_CHECK(me->rank == 0 || memcmp(in, out, sizeof in) == 0);
    return suspend_and_resume(me);
}
static void test_suspend_without_a_peer(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, without_a_peer, NULL, 30), 0);
}

static void test_suspend_after_ops_given_up(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, after_ops_given_up, NULL, 30), 0);
}

/* A thread that suspends whenever it can, beside one whose payloads lie in what is given back. */
struct beside {
    struct occl_comm comm;
    uint32_t stop, suspended;
};

static void *suspends(void *arg) {
    struct beside *b = arg;
    while (!__atomic_load_n(&b->stop, __ATOMIC_SEQ_CST)) {
        if (occl_comm_suspend(b->comm) == OCCL_SUCCESS)
            b->suspended++;
        (void)occl_comm_resume(b->comm);
    }
    return NULL;
}

static int beside_submissions(struct world_rank *me) {
    static float in[900], out[900];
    struct beside b = {me->comm, 0, 0};
    pthread_t thread;
    int failed = 0;
    WORLD_CHECK(pthread_create(&thread, NULL, suspends, &b) == 0);
    for (uint64_t i = 0; i < 3000 && !failed; i++) {
        enum occl_result result;
        world_fill(in, 900, me->rank, i);
        if (i % 100 == 0)
            (void)usleep(1000); /* the other thread gets its turn, also on one core */
        do
            result = occl_all_reduce(in, out, 900, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
        while (result == OCCL_ERROR_USAGE);
        failed = result != OCCL_SUCCESS || world_wrong_sum(out, 900, me->size, i) != 0;
    }
    __atomic_store_n(&b.stop, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(thread, NULL);
    WORLD_CHECK(!failed);
    WORLD_CHECK(b.suspended > 0);
    return 0;
}
static void test_suspend_beside_submissions(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, beside_submissions, NULL, 60), 0);
}

/* A thread that watches for errors is inside the communicator now and then, but is no operation. */
static void *asks(void *arg) {
    struct beside *b = arg;
    enum occl_result error;
    while (!__atomic_load_n(&b->stop, __ATOMIC_SEQ_CST))
        (void)occl_comm_get_async_error(b->comm, &error);
    return NULL;
}

static int beside_questions(struct world_rank *me) {
    struct beside b = {me->comm, 0, 0};
    pthread_t thread;
    int refused = 0;
    WORLD_CHECK(pthread_create(&thread, NULL, asks, &b) == 0);
    for (int i = 0; i < 300; i++) {
        if (i % 10 == 0)
            (void)usleep(1000); /* the other thread gets its turn, also on one core */
        refused += occl_comm_suspend(me->comm) != OCCL_SUCCESS;
        refused += occl_comm_resume(me->comm) != OCCL_SUCCESS;
    }
    __atomic_store_n(&b.stop, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(thread, NULL);
    WORLD_CHECK(refused == 0);
    return 0;
}
static void test_suspend_beside_questions(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, beside_questions, NULL, 60), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_wait_asleep),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_suspend_and_resume),
        cmocka_unit_test(test_suspend_after_mixed_ops),
        cmocka_unit_test(test_suspend_after_calls_of_both_kinds),
        cmocka_unit_test(test_suspend_after_ops_given_up),
        cmocka_unit_test(test_suspend_without_a_peer),
        cmocka_unit_test(test_suspend_beside_submissions),
        cmocka_unit_test(test_suspend_beside_questions),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
