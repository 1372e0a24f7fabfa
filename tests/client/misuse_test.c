/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong arguments, calls that do not match, stale handles, forks, nested and repeated init: each
 * has a defined status and a text that says what was expected and found; the daemon goes on. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

extern char **environ;
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
static void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
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

static int bad_arguments(struct world_rank *me) {
    static float a[100], b[100];
    struct occl_comm c = me->comm;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request r;
    int number;
    EXPECT(occl_all_reduce(NULL, b, 10, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL),
           OCCL_ERROR_INVALID_ARGUMENT, "sendbuf is NULL");
    EXPECT(occl_all_reduce(a, NULL, 10, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL),
           OCCL_ERROR_INVALID_ARGUMENT, "recvbuf is NULL");
    EXPECT(occl_all_reduce(a, a + 1, 10, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL),
           OCCL_ERROR_INVALID_ARGUMENT, "overlap");
    EXPECT(occl_all_reduce(a, b, 10, (enum occl_type)99, OCCL_SUM, c, NULL, NULL),
           OCCL_ERROR_INVALID_ARGUMENT, "type 99");
    EXPECT(occl_all_reduce(a, b, 10, OCCL_FLOAT32, (enum occl_redop)77, c, NULL, NULL),
           OCCL_ERROR_INVALID_ARGUMENT, "operator 77");
    EXPECT(occl_all_reduce(a, b, SIZE_MAX / 2, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL),
           OCCL_ERROR_INVALID_ARGUMENT, "overflows, expected below 1152921504606846976");
    EXPECT(occl_broadcast(a, b, 10, OCCL_FLOAT32, 9, c, NULL, NULL), OCCL_ERROR_INVALID_ARGUMENT,
           "root 9, expected 0..1");
    EXPECT(occl_broadcast(a, b, 10, OCCL_FLOAT32, -1, c, NULL, NULL), OCCL_ERROR_INVALID_ARGUMENT,
           "root -1");
    EXPECT(occl_send(a, 10, OCCL_FLOAT32, 2, c, NULL, NULL), OCCL_ERROR_INVALID_ARGUMENT, "peer 2");
    attr.tag = OCCL_TAG_MAX;
    EXPECT(occl_barrier(c, &attr, NULL), OCCL_ERROR_INVALID_ARGUMENT, "tag");
    attr = (struct occl_op_attr)OCCL_OP_ATTR_INIT;
    attr.size = 3;
    EXPECT(occl_barrier(c, &attr, NULL), OCCL_ERROR_INVALID_ARGUMENT, "size is 3");
    attr = (struct occl_op_attr)OCCL_OP_ATTR_INIT;
    attr.priority = 8;
    EXPECT(occl_barrier(c, &attr, NULL), OCCL_ERROR_INVALID_ARGUMENT, "priority 8");
    attr = (struct occl_op_attr)OCCL_OP_ATTR_INIT;
    attr.flags = 0x80;
    EXPECT(occl_barrier(c, &attr, NULL), OCCL_ERROR_INVALID_ARGUMENT, "flags 0x80");
    EXPECT(occl_wait((struct occl_request){0}), OCCL_ERROR_HANDLE, "never");
    EXPECT(occl_wait((struct occl_request){0x123400000077ull}), OCCL_ERROR_HANDLE, "request");
    EXPECT(occl_barrier((struct occl_comm){0}, NULL, NULL), OCCL_ERROR_HANDLE, "communicator");
    EXPECT(occl_comm_rank(c, NULL), OCCL_ERROR_INVALID_ARGUMENT, "NULL");
    EXPECT(occl_mem_free(a), OCCL_ERROR_INVALID_ARGUMENT, "occl_mem_alloc");
    EXPECT(occl_mem_alloc(0, (void **)&number), OCCL_ERROR_INVALID_ARGUMENT, "0 bytes");
    EXPECT(occl_all_reduce_init(a, b, 1, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL),
           OCCL_ERROR_INVALID_ARGUMENT, "out_request");
    WORLD_OK(occl_barrier(c, NULL, &r));
    WORLD_OK(occl_wait(r));
    EXPECT(occl_wait(r), OCCL_ERROR_HANDLE, "stale");
    EXPECT(occl_request_free(r), OCCL_ERROR_HANDLE, "stale");
    return 0;
}
static void test_bad_arguments(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, bad_arguments, NULL, 20), 0);
}

/* Unmapped and protected buffers: the caller gets an error, at all sizes, and the daemon lives. */
static int bad_buffers(struct world_rank *me) {
    static const size_t counts[] = {1, 20, 500, 100000};
    static float good[100000];
    char *hole = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *read_only = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < 4; i++) {
        EXPECT(occl_all_reduce(hole, good, counts[i], OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL),
               OCCL_ERROR_FAULT, "sendbuf");
        EXPECT(occl_all_reduce(good, read_only, counts[i], OCCL_FLOAT32, OCCL_SUM, me->comm, NULL,
                               NULL),
               OCCL_ERROR_FAULT, "recvbuf");
        EXPECT(occl_all_reduce((void *)0x10, good, counts[i], OCCL_FLOAT32, OCCL_SUM, me->comm,
                               NULL, NULL),
               OCCL_ERROR_FAULT, "sendbuf");
    }
    WORLD_OK(occl_all_reduce(read_only, good, 1000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    const size_t ones[] = {1, 1};
    const size_t *bad[] = {(const size_t *)(uintptr_t)0x10, (const size_t *)(const void *)hole};
    for (size_t i = 0; i < 2; i++) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        EXPECT(
            occl_all_gather_v(good, 1, good + 10, bad[i], NULL, OCCL_FLOAT32, me->comm, NULL, NULL),
            OCCL_ERROR_FAULT, "recvcounts");
        EXPECT(
            occl_all_gather_v(good, 1, good + 10, ones, bad[i], OCCL_FLOAT32, me->comm, NULL, NULL),
            OCCL_ERROR_FAULT, "displacements");
        EXPECT(occl_all_to_all_v(good, bad[i], NULL, good + 10, ones, NULL, OCCL_FLOAT32, me->comm,
                                 NULL, NULL),
               OCCL_ERROR_FAULT, "sendcounts");
        attr.factor = bad[i];
        EXPECT(occl_all_reduce(good, good, 1, OCCL_FLOAT32, OCCL_PREMULSUM, me->comm, &attr, NULL),
               OCCL_ERROR_FAULT, "factor");
        EXPECT(occl_all_reduce(good, good, 1, OCCL_FLOAT64, OCCL_PREMULSUM, me->comm, &attr, NULL),
               OCCL_ERROR_FAULT, "factor");
        attr = (struct occl_op_attr)OCCL_OP_ATTR_INIT;
        attr.after = (const struct occl_request *)(const void *)bad[i];
        attr.after_count = 3;
        EXPECT(occl_all_reduce(good, good, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL),
               OCCL_ERROR_FAULT, "after");
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_bad_buffers(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, bad_buffers, NULL, 20), 0);
}

/* C01: counts that differ, on every path. */
static int c01(struct world_rank *me) {
    static const size_t pairs[][2] = {{1, 2}, {100, 200}, {25600, 51200}, {1000000, 1000001}};
    float *a = world_alloc(1000001 * 4), *b = world_alloc(1000001 * 4);
    for (int i = 0; i < 4; i++) {
        size_t mine = pairs[i][me->rank];
        char one[24], two[24];
        memset(b, 0x5a, 1000001 * 4);
        double start = world_now();
        enum occl_result result =
            occl_all_reduce(a, b, mine, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
        WORLD_CHECK(result == OCCL_ERROR_MISMATCH);
        WORLD_CHECK(world_now() - start < 1.0 * world_slowness());
        (void)snprintf(one, sizeof one, "%zu on ranks 0", pairs[i][0]);
        (void)snprintf(two, sizeof two, "%zu on ranks 1", pairs[i][1]);
        WORLD_CHECK(strstr(occl_last_error(), "count"));
        WORLD_CHECK(strstr(occl_last_error(), one) && strstr(occl_last_error(), two));
        for (size_t k = 0; k < 1000001 * 4; k++)
            WORLD_CHECK(((unsigned char *)b)[k] == 0x5a);
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_C01_counts_differ(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, c01, NULL, 20), 0);
}

/* C02: each field in turn; the message names it, both values and who holds them. */
static int c02(struct world_rank *me) {
    static float a[8], b[8];
    bool odd = me->rank == 2;
    EXPECT(odd ? occl_barrier(me->comm, NULL, NULL)
               : occl_all_reduce(a, b, 4, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL),
           OCCL_ERROR_MISMATCH, "kind");
    WORLD_CHECK(strstr(occl_last_error(), "all_reduce on ranks 0 1 3"));
    WORLD_CHECK(strstr(occl_last_error(), "barrier on ranks 2"));
    EXPECT(
        occl_all_reduce(a, b, 4, odd ? OCCL_INT32 : OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL),
        OCCL_ERROR_MISMATCH, "type: float32 on ranks 0 1 3; int32 on ranks 2");
    EXPECT(occl_all_reduce(a, b, 4, OCCL_FLOAT32, odd ? OCCL_MAX : OCCL_MIN, me->comm, NULL, NULL),
           OCCL_ERROR_MISMATCH, "operator: min on ranks 0 1 3; max on ranks 2");
    WORLD_CHECK(strstr(occl_last_error(), "#2"));
    /* A broadcast root completes alone: those who disagree learn it, the root asynchronously. */
    enum occl_result late,
        result = occl_broadcast(a, b, 4, OCCL_FLOAT32, odd ? 2 : 0, me->comm, NULL, NULL);
    WORLD_CHECK(result == OCCL_SUCCESS || strstr(occl_last_error(), "root"));
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    WORLD_OK(occl_comm_get_async_error(me->comm, &late));
    int bad = result == OCCL_ERROR_MISMATCH || late == OCCL_ERROR_MISMATCH, most = 0;
    WORLD_OK(occl_all_reduce(&bad, &most, 1, OCCL_INT32, OCCL_MAX, me->comm, NULL, NULL));
    WORLD_CHECK(most == 1);
    return 0;
}
static void test_C02_each_field_is_named(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, c02, NULL, 20), 0);
}

/* A root in a row of its own broadcasts leaves its look at the others for the next op; another rank
 * that takes itself for the root is found all the same, whoever comes first. */
static int second_root(struct world_rank *me) {
    static int32_t a[30]; /* in the lines: the root never waits for a chunk */
    struct occl_comm comm;
    for (int odd = 0; odd < 40; odd++) {
        enum occl_result late = OCCL_SUCCESS, result = OCCL_SUCCESS;
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
        for (int i = 0; i < 40; i++) {
            int root = me->rank == 1 && i == odd ? 1 : 0;
            /* Rank 1 comes second, or first, or at the same moment. */
            bool second = i == odd && odd % 3 != 2 && me->rank == odd % 3;
            bool first = i == odd && odd % 3 != 2 && me->rank == 1 - odd % 3;
            if (second)
                WORLD_OK(occl_recv(NULL, 0, OCCL_INT32, 1 - me->rank, comm, NULL, NULL));
            enum occl_result one =
                occl_broadcast(a, a, odd % 2 ? 8 : 30, OCCL_INT32, root, comm, NULL, NULL);
            WORLD_CHECK(one == OCCL_SUCCESS || (one == OCCL_ERROR_MISMATCH && i == odd));
            result = one ? one : result;
            if (first)
                WORLD_OK(occl_send(NULL, 0, OCCL_INT32, 1 - me->rank, comm, NULL, NULL));
        }
        WORLD_OK(occl_barrier(comm, NULL, NULL));
        WORLD_OK(occl_comm_get_async_error(comm, &late));
        int bad = result == OCCL_ERROR_MISMATCH || late == OCCL_ERROR_MISMATCH, most = 0;
        WORLD_OK(occl_all_reduce(&bad, &most, 1, OCCL_INT32, OCCL_MAX, me->comm, NULL, NULL));
        WORLD_CHECK(most == 1);
        WORLD_OK(occl_comm_destroy(comm));
    }
    return 0;
}
static void test_second_root_is_found(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, second_root, NULL, 30), 0);
    assert_int_equal(world_run(&w, 3, second_root, NULL, 30), 0);
}

/* A broadcast that meets other collectives: those ranks get the mismatch as result, and its root,
 * who has completed, as asynchronous error; nobody else does. */
static int other_kind(struct world_rank *me) {
    static int32_t a[8], b[8];
    for (int round = 0; round < 4 * me->size; round++) {
        int root = round % me->size;
        bool last = round / me->size % 2;
        struct occl_comm comm;
        enum occl_result late, result;
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
        if ((me->rank == root) == last)
            usleep(2000);
        if (me->rank == root)
            result = occl_broadcast(a, b, 8, OCCL_INT32, root, comm, NULL, NULL);
        else if (round / me->size < 2)
            result = occl_all_reduce(a, b, 8, OCCL_INT32, OCCL_SUM, comm, NULL, NULL);
        else
            result = occl_barrier(comm, NULL, NULL);
        WORLD_CHECK(result == (me->rank == root ? OCCL_SUCCESS : OCCL_ERROR_MISMATCH));
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        WORLD_OK(occl_comm_get_async_error(comm, &late));
        WORLD_CHECK(late == (me->rank == root ? OCCL_ERROR_MISMATCH : OCCL_SUCCESS));
        WORLD_OK(occl_comm_destroy(comm));
    }
    return 0;
}
static void test_root_learns_of_other_kinds(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, other_kind, NULL, 30), 0);
    assert_int_equal(world_run(&w, 3, other_kind, NULL, 30), 0);
}

/* C03: many good steps, then one that differs. */
static int c03(struct world_rank *me) {
    static float a[64], b[64];
    for (int i = 0; i < 20000; i++)
        WORLD_OK(occl_all_reduce(a, b, 8, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    double start = world_now();
    EXPECT(
        occl_all_reduce(a, b, me->rank == 1 ? 9 : 8, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL),
        OCCL_ERROR_MISMATCH, "#20000");
    WORLD_CHECK(world_now() - start < 1.0 * world_slowness());
    return 0;
}
static void test_C03_after_20000_good_steps(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, c03, NULL, 60), 0);
}

/* Creation: taken ranks, sizes that differ, ids used twice, another job, a time limit. */
static int creation(struct world_rank *me) {
    struct occl_unique_id *ids = me->arg;
    struct occl_comm c;
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    enum occl_result result;
    attr.create_timeout_ns = 300000000;
    if (me->rank == 0) {
        EXPECT(occl_comm_create(&ids[0], 3, 3, NULL, &c), OCCL_ERROR_INVALID_ARGUMENT,
               "rank 3, expected 0..2");
        EXPECT(occl_comm_create(&ids[0], 0, 100000, NULL, &c), OCCL_ERROR_INVALID_ARGUMENT,
               "size 100000");
        EXPECT(occl_comm_create(&ids[0], 0, 3, &attr, &c), OCCL_ERROR_TIMEOUT, "1-2");
        struct occl_unique_id zero;
        memset(&zero, 0, sizeof zero);
        result = occl_comm_create(&zero, 0, 1, NULL, &c);
        WORLD_CHECK(result == OCCL_ERROR_INVALID_ARGUMENT);
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    /* Both claim rank 0 of one id: one of them is refused; the other gives up. */
    result = occl_comm_create(&ids[1], 0, 2, &attr, &c);
    WORLD_CHECK(result == OCCL_ERROR_BUSY || result == OCCL_ERROR_TIMEOUT);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    /* Used once, an id is used up. */
    WORLD_OK(occl_comm_create(&ids[2], me->rank, me->size, NULL, &c));
    WORLD_OK(occl_comm_destroy(c));
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    result = occl_comm_create(&ids[2], me->rank, me->size, &attr, &c);
    WORLD_CHECK(result == OCCL_ERROR_BUSY);
    /* Sizes that differ. */
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    result = occl_comm_create(&ids[3], me->rank, 2 + me->rank, &attr, &c);
    WORLD_CHECK(result == OCCL_ERROR_MISMATCH || result == OCCL_ERROR_TIMEOUT);
    WORLD_CHECK(result == OCCL_ERROR_TIMEOUT || strstr(occl_last_error(), "says"));
    return 0;
}
static void test_creation_errors(void **state) {
    struct occl_unique_id *ids = world_shared(sizeof *ids * 8);
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(occl_get_unique_id(&ids[i]), OCCL_SUCCESS);
    assert_int_equal(world_run(&w, 2, creation, ids, 30), 0);
}

static int no_daemon(struct world_rank *me) {
    struct occl_init_attr attr = {sizeof attr, "/nonexistent/occld.sock", NULL, NULL};
    WORLD_OK(occl_finalize());
    EXPECT(occl_init(&attr), OCCL_ERROR_NO_DAEMON, "/nonexistent/occld.sock");
    EXPECT(occl_barrier(me->comm, NULL, NULL), OCCL_ERROR_USAGE, "occl_init");
    EXPECT(occl_finalize(), OCCL_ERROR_USAGE, "without occl_init");
    attr.socket = me->world->socket;
    attr.job = "no spaces allowed";
    EXPECT(occl_init(&attr), OCCL_ERROR_INVALID_ARGUMENT, "job");
    attr.job = NULL;
    attr.size = 1;
    EXPECT(occl_init(&attr), OCCL_ERROR_INVALID_ARGUMENT, "size is 1");
    WORLD_CHECK(world_attach(me->world, "again") == OCCL_SUCCESS);
    EXPECT(occl_barrier(me->comm, NULL, NULL), OCCL_ERROR_HANDLE, "stale");
    return 0;
}
static void test_no_daemon_and_use_before_init(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 1, no_daemon, NULL, 20), 0);
}

/* E04: destroy twice, use after destroy, destroy from two threads, destroy with an op in flight. */
static struct occl_comm shared_comm;
static uint32_t destroyed;
static void *destroy_thread(void *arg) {
    enum occl_result result = occl_comm_destroy(shared_comm);
    (void)arg;
    if (result == OCCL_SUCCESS)
        __atomic_fetch_add(&destroyed, 1, __ATOMIC_SEQ_CST);
    return (void *)(intptr_t)(result != OCCL_SUCCESS && result != OCCL_ERROR_HANDLE);
}
static int e04(struct world_rank *me) {
    struct occl_comm c;
    struct occl_request request;
    float v = 1, sum;
    WORLD_OK(occl_comm_split(me->comm, 0, 0, NULL, &c));
    WORLD_OK(occl_comm_destroy(c));
    EXPECT(occl_comm_destroy(c), OCCL_ERROR_HANDLE, "stale");
    EXPECT(occl_comm_abort(c), OCCL_ERROR_HANDLE, "stale");
    EXPECT(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL), OCCL_ERROR_HANDLE,
           "stale");
    WORLD_OK(occl_comm_split(me->comm, 0, 0, NULL, &shared_comm));
    destroyed = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        WORLD_CHECK(pthread_create(&threads[i], NULL, destroy_thread, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        WORLD_CHECK(pthread_join(threads[i], &failed) == 0 && !failed);
    }
    WORLD_CHECK(destroyed == 1);
    /* In flight: only rank 0 submits. */
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &c));
    if (me->rank == 0) {
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, c, NULL, &request));
        WORLD_OK(occl_comm_destroy(c));
        EXPECT(occl_wait(request), OCCL_ERROR_CANCELED, "");
        EXPECT(occl_wait(request), OCCL_ERROR_HANDLE, "stale");
    } else {
        WORLD_OK(occl_comm_destroy(c));
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_E04_destroy_twice(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, e04, NULL, 30), 0);
}

/* E02: a buffer in the middle of a page; the child sees the rest of the page. */
static int e02(struct world_rank *me) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(page, 7, 4096);
    WORLD_OK(occl_broadcast(page + 1001, page + 1001, 25, OCCL_INT32, 0, me->comm, NULL, NULL));
    pid_t pid = fork();
    if (pid == 0) {
        page[0] = 9;
        _exit(page[4095] == 7 && page[500] == 7 && page[0] == 9 ? 0 : 1);
    }
    WORLD_CHECK(world_wait(pid, 10) == 0);
    WORLD_CHECK(page[0] == 7);
    return 0;
}
static void test_E02_unaligned_buffer_and_fork(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, e02, NULL, 20), 0);
}

/* E03: programs started while ops run; the children inherit none of our descriptors. */
static int e03(struct world_rank *me) {
    static float a[50000], b[50000];
    for (int i = 0; i < 30; i++) {
        struct occl_request request;
        world_fill(a, 50000, me->rank, (uint64_t)i);
        WORLD_OK(occl_all_reduce(a, b, 50000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, &request));
        if (i % 3 == 0) {
            WORLD_CHECK(system("! ls -l /proc/self/fd | grep -q -E 'memfd|pidfd'") == 0);
        } else if (i % 3 == 1) {
            FILE *pipe = popen("ls -l /proc/self/fd | grep -c -E 'memfd|pidfd'", "r");
            char line[16] = "";
            WORLD_CHECK(pipe && fgets(line, sizeof line, pipe));
            (void)pclose(pipe);
            WORLD_CHECK(atoi(line) == 0);
        } else {
            pid_t pid;
            char name[] = "true";
            char *argv[] = {name, NULL};
            WORLD_CHECK(posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0);
            WORLD_CHECK(world_wait(pid, 10) == 0);
        }
        WORLD_OK(occl_wait(request));
        WORLD_CHECK(world_wrong_sum(b, 50000, me->size, (uint64_t)i) == 0);
    }
    return 0;
}
static void test_E03_exec_while_ops_run(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, e03, NULL, 60), 0);
}

/* Under the address sanitizer freed memory stays resident for a while; there its leak checker
 * judges instead. */
static long resident_kib(void) {
    if (world_slowness() > 2)
        return 0;
    FILE *f = fopen("/proc/self/statm", "r");
    long size, resident = 0;
    if (f && fscanf(f, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * 4;
}
static int open_files(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += lseek(fd, 0, SEEK_CUR) != -1 || errno != EBADF;
    return count;
}

/* E05: many rounds of init, communicator, op, finalize; nested inits are counted. */
static int e05(struct world_rank *me) {
    long before = 0;
    int files = 0;
    WORLD_OK(occl_finalize());
    for (int i = 0; i < 300; i++) {
        struct occl_unique_id id;
        struct occl_comm c;
        float v = 1, sum = 0;
        WORLD_CHECK(world_attach(me->world, "rounds") == OCCL_SUCCESS);
        WORLD_CHECK(world_attach(me->world, "rounds") == OCCL_SUCCESS);
        WORLD_OK(occl_get_unique_id(&id));
        WORLD_OK(occl_comm_create(&id, 0, 1, NULL, &c));
        WORLD_OK(occl_finalize());
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL));
        WORLD_OK(occl_finalize());
        if (i == 50) {
            before = resident_kib();
            files = open_files();
        }
    }
    WORLD_CHECK(resident_kib() - before < 1024L * world_slowness());
    WORLD_CHECK(open_files() == files);
    WORLD_CHECK(world_attach(me->world, "end") == OCCL_SUCCESS);
    return 0;
}
static void test_E05_init_and_finalize_rounds(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 1, e05, NULL, 120), 0);
}

/* J02: communicators come and go under a small limit of descriptors. J03, J04: they are small. */
static int j02(struct world_rank *me) {
    int files = open_files();
    for (int i = 0; i < 500; i++) {
        struct occl_comm c;
        float v = 1, sum = 0;
        WORLD_OK(occl_comm_split(me->comm, 0, 0, NULL, &c));
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, c, NULL, NULL));
        WORLD_CHECK(sum == 2);
        WORLD_OK(occl_comm_destroy(c));
    }
    WORLD_CHECK(open_files() == files);
    struct occl_comm many[50];
    long before = resident_kib();
    for (int i = 0; i < 50; i++) {
        float v = 1, sum = 0;
        WORLD_OK(occl_comm_split(me->comm, 0, 0, NULL, &many[i]));
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, many[i], NULL, NULL));
    }
    WORLD_CHECK((resident_kib() - before) / 50 < 1024);
    return 0;
}
static void test_J02_J03_communicators_are_cheap(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, j02, NULL, 60), 0);
}

/* J05: memory does not grow with the number of ops. */
static int j05(struct world_rank *me) {
    float v = 1, sum = 0;
    static float big[20000];
    long before = 0;
    for (int i = 0; i < 200000; i++) {
        struct occl_request r;
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL,
                                 i % 2 ? &r : NULL));
        if (i % 2)
            WORLD_OK(occl_wait(r));
        if (i % 1000 == 0)
            WORLD_OK(
                occl_all_reduce(big, big, 20000, OCCL_FLOAT32, OCCL_MAX, me->comm, NULL, NULL));
        if (i == 20000)
            before = resident_kib();
    }
    WORLD_CHECK(resident_kib() - before < 256L * world_slowness());
    return 0;
}
static void test_J05_no_growth_per_op(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, j05, NULL, 120), 0);
}

/* E06: leaving main without destroy or finalize. */
static int e06(struct world_rank *me) {
    float v = 1, sum = 0;
    WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    pause_ms(10);
    exit(0);
}
static void test_E06_exit_without_destroy(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        double start = world_now();
        assert_int_equal(world_run(&w, 3, e06, NULL, 20), 0);
        assert_true(world_now() - start < 2.0 * world_slowness());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_bad_buffers),
        cmocka_unit_test(test_C01_counts_differ),
        cmocka_unit_test(test_C02_each_field_is_named),
        cmocka_unit_test(test_second_root_is_found),
        cmocka_unit_test(test_root_learns_of_other_kinds),
        cmocka_unit_test(test_C03_after_20000_good_steps),
        cmocka_unit_test(test_creation_errors),
        cmocka_unit_test(test_no_daemon_and_use_before_init),
        cmocka_unit_test(test_E02_unaligned_buffer_and_fork),
        cmocka_unit_test(test_E03_exec_while_ops_run),
        cmocka_unit_test(test_E04_destroy_twice),
        cmocka_unit_test(test_E05_init_and_finalize_rounds),
        cmocka_unit_test(test_E06_exit_without_destroy),
        cmocka_unit_test(test_J02_J03_communicators_are_cheap),
        cmocka_unit_test(test_J05_no_growth_per_op),
    };
    return cmocka_run_group_tests_name("client_misuse", tests, setup, teardown);
}
