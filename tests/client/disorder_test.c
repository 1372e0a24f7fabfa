/* SPDX-License-Identifier: Apache-2.0 */
/* Any order completes: orders that differ on every rank, threads, several communicators and jobs,
 * messages in both directions, waits in between. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
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

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}
static void shuffle(int *order, int count, uint64_t *random) {
    for (int i = count - 1; i > 0; i--) {
        int k = (int)(next_random(random) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}
static void pause_us(long us) {
    struct timespec t = {0, us * 1000};
    (void)nanosleep(&t, NULL);
}

/* DFCCL's test: 8 collectives of 8 sizes on 8 ranks, rank r starts at r: a Latin square, no two
 * ranks agree on any position. */
static int latin_square(struct world_rank *me) {
    static const size_t bytes[8] = {256, 4096, 16384, 65536, 262144, 524288, 1048576, 4194304};
    float *send[8], *recv[8];
    for (int k = 0; k < 8; k++) {
        void *p, *q;
        WORLD_OK(occl_mem_alloc(bytes[k], &p));
        WORLD_OK(occl_mem_alloc(bytes[k], &q));
        send[k] = p;
        recv[k] = q;
    }
    for (int round = 0; round < 10; round++) {
        struct occl_request requests[8];
        for (int i = 0; i < 8; i++) {
            int k = (i + me->rank) % 8;
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            attr.tag = (uint32_t)k + 1;
            world_fill(send[k], bytes[k] / 4, me->rank, (uint64_t)round);
            WORLD_OK(occl_all_reduce(send[k], recv[k], bytes[k] / 4, OCCL_FLOAT32, OCCL_SUM,
                                     me->comm, &attr, &requests[i]));
        }
        WORLD_OK(occl_wait_all(requests, 8));
        for (int k = 0; k < 8; k++)
            WORLD_CHECK(world_wrong_sum(recv[k], bytes[k] / 4, me->size, (uint64_t)round) == 0);
    }
    return 0;
}
static void test_latin_square_8x8(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 8, latin_square, NULL, 60), 0);
}

/* 161 ops of many sizes in an order of its own on each rank, twice over, all outstanding at once:
 * far more than a communicator has records, so part of them goes through the ring. */
struct many {
    uint64_t seed;
    int ops;
    bool zero_copy;
};
static int many_ops(struct world_rank *me) {
    const struct many *many = me->arg;
    enum { MOST = 400 };
    static int order[MOST];
    static struct occl_request requests[MOST];
    static float *send[MOST], *recv[MOST];
    static size_t counts[MOST];
    uint64_t random = many->seed;
    for (int i = 0; i < many->ops; i++) {
        counts[i] = 1 + next_random(&random) % (i % 4 ? 3000 : 60000);
        order[i] = i;
        if (many->zero_copy) {
            void *p = NULL;
            WORLD_OK(occl_mem_alloc(counts[i] * 8, &p));
            send[i] = p;
            recv[i] = send[i] + counts[i];
        } else {
            send[i] = malloc(counts[i] * 4);
            recv[i] = malloc(counts[i] * 4);
        }
    }
    random = many->seed * 31 + (uint64_t)me->rank + 1;
    for (int round = 0; round < 3; round++) {
        shuffle(order, many->ops, &random);
        for (int i = 0; i < many->ops; i++) {
            int k = order[i];
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            attr.tag = (uint32_t)k + 1;
            world_fill(send[k], counts[k], me->rank, (uint64_t)round);
            WORLD_OK(occl_all_reduce(send[k], recv[k], counts[k], OCCL_FLOAT32, OCCL_SUM, me->comm,
                                     &attr, &requests[k]));
        }
        shuffle(order, many->ops, &random);
        for (int i = 0; i < many->ops; i++)
            WORLD_OK(occl_wait(requests[order[i]]));
        for (int k = 0; k < many->ops; k++)
            WORLD_CHECK(world_wrong_sum(recv[k], counts[k], me->size, (uint64_t)round) == 0);
    }
    return 0;
}
static void test_161_ops_zero_copy(void **state) {
    struct many many = {2024, 161, true};
    (void)state;
    assert_int_equal(world_run(&w, 4, many_ops, &many, 60), 0);
}
static void test_161_ops_any_pointer(void **state) {
    struct many many = {77, 161, false};
    (void)state;
    assert_int_equal(world_run(&w, 4, many_ops, &many, 60), 0);
}
static void test_400_ops_8_ranks(void **state) {
    struct many many = {5, 400, true};
    (void)state;
    assert_int_equal(world_run(&w, 8, many_ops, &many, 90), 0);
}

/* A01: many communicators of the same ranks, one thread each. */
struct thread_job {
    struct world_rank *me;
    struct occl_comm comm;
    int number, ops, failed;
};
static int thread_ops(struct world_rank *me, const struct thread_job *job) {
    uint64_t random = (uint64_t)job->number * 100 + (uint64_t)me->rank,
             sizes = (uint64_t)job->number;
    float *buffer = malloc(1 << 20), *result = malloc(1 << 20);
    for (int i = 0; i < job->ops; i++) {
        size_t count = 256 + next_random(&sizes) % (i % 10 ? 4096 : 200000);
        world_fill(buffer, count, me->rank, (uint64_t)i);
        WORLD_OK(
            occl_all_reduce(buffer, result, count, OCCL_FLOAT32, OCCL_SUM, job->comm, NULL, NULL));
        WORLD_CHECK(world_wrong_sum(result, count, me->size, (uint64_t)i) == 0);
        if (next_random(&random) % 8 == 0)
            pause_us((long)(next_random(&random) % 500));
    }
    free(buffer);
    free(result);
    return 0;
}
static void *thread_main(void *arg) {
    struct thread_job *job = arg;
    job->failed = thread_ops(job->me, job);
    return NULL;
}
static int a01(struct world_rank *me) {
    enum { COMMS = 16 };
    struct thread_job jobs[COMMS];
    pthread_t threads[COMMS];
    for (int c = 0; c < COMMS; c++) {
        jobs[c] = (struct thread_job){me, {0}, c, 40, 0};
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &jobs[c].comm));
    }
    for (int c = 0; c < COMMS; c++)
        WORLD_CHECK(pthread_create(&threads[c], NULL, thread_main, &jobs[c]) == 0);
    for (int c = 0; c < COMMS; c++)
        WORLD_CHECK(pthread_join(threads[c], NULL) == 0);
    for (int c = 0; c < COMMS; c++) {
        WORLD_CHECK(jobs[c].failed == 0);
        WORLD_OK(occl_comm_destroy(jobs[c].comm));
    }
    return 0;
}
static void test_A01_a_thread_per_communicator(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, a01, NULL, 120), 0);
}

/* A02: bursts against a slow peer, more outstanding than any ring holds. */
static int a02(struct world_rank *me) {
    enum { OPS = 3000 };
    static struct occl_request requests[OPS];
    static int in[OPS], out[OPS];
    for (int i = 0; i < OPS; i++) {
        in[i] = i * (me->rank + 1);
        enum occl_result result =
            occl_all_reduce(&in[i], &out[i], 1, OCCL_INT32, OCCL_SUM, me->comm, NULL, &requests[i]);
        WORLD_CHECK(result == OCCL_SUCCESS);
        if (me->rank == 1 && i % 10 == 0)
            pause_us(200);
    }
    WORLD_OK(occl_wait_all(requests, OPS));
    for (int i = 0; i < OPS; i++)
        WORLD_CHECK(out[i] == i * 3);
    return 0;
}
static void test_A02_burst_against_a_slow_peer(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, a02, NULL, 60), 0);
}

/* A03: sends and receives on two communicators, interleaved differently, 10 MB each. */
static int a03(struct world_rank *me) {
    enum { N = 10000000 / 4 };
    struct occl_comm x, y;
    float *out = world_alloc(N * 4), *in = world_alloc(N * 4);
    struct occl_request send;
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &x));
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &y));
    world_fill(out, N, me->rank, 3);
    struct occl_comm first = me->rank ? y : x, second = me->rank ? x : y;
    int other = 1 - me->rank;
    WORLD_OK(occl_send(out, N, OCCL_FLOAT32, other, first, NULL, &send));
    WORLD_OK(occl_recv(in, N, OCCL_FLOAT32, other, second, NULL, NULL));
    WORLD_OK(occl_wait(send));
    for (size_t i = 0; i < N; i++)
        WORLD_CHECK(in[i] == (float)world_pattern((uint64_t)other, i + 3));
    return 0;
}
static void test_A03_two_communicators_crosswise(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, a03, NULL, 60), 0);
}

/* A04: a controller's two commands arrive in another order on each of 3 workers. */
static int a04(struct world_rank *me) {
    struct occl_comm g[2];
    float v[2] = {1, 2}, sum[2] = {0, 0};
    struct occl_request r[2];
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &g[0]));
    WORLD_OK(occl_comm_split(me->comm, 0, -me->rank, NULL, &g[1]));
    for (int round = 0; round < 100; round++) {
        int first = (me->rank + round) % 2;
        for (int i = 0; i < 2; i++) {
            int op = (first + i) % 2;
            WORLD_OK(
                occl_all_reduce(&v[op], &sum[op], 1, OCCL_FLOAT32, OCCL_SUM, g[op], NULL, &r[op]));
        }
        WORLD_OK(occl_wait(r[1 - first]));
        WORLD_OK(occl_wait(r[first]));
        WORLD_CHECK(sum[0] == 3 && sum[1] == 6);
    }
    return 0;
}
static void test_A04_commands_in_any_order(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, a04, NULL, 30), 0);
}

/* A05: two threads of a rank on one communicator, with tags. */
struct a05_arg {
    struct world_rank *me;
    uint32_t tag;
    int failed;
};
static int a05_ops(struct world_rank *me, uint32_t tag) {
    static const size_t sizes[3] = {0, 10, 30000};
    size_t count = sizes[tag];
    float *a = world_alloc(count * 4), *b = world_alloc(count * 4);
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = tag;
    for (int i = 0; i < 100; i++) {
        world_fill(a, count, me->rank, (uint64_t)i);
        WORLD_OK(occl_all_reduce(a, b, count, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL));
        WORLD_CHECK(world_wrong_sum(b, count, me->size, (uint64_t)i) == 0);
    }
    return 0;
}
static void *a05_thread(void *arg) {
    struct a05_arg *a = arg;
    a->failed = a05_ops(a->me, a->tag);
    return NULL;
}
static int a05(struct world_rank *me) {
    struct a05_arg args[2] = {{me, 1, 0}, {me, 2, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        WORLD_CHECK(pthread_create(&threads[i], NULL, a05_thread, &args[(i + me->rank) % 2]) == 0);
    for (int i = 0; i < 2; i++)
        WORLD_CHECK(pthread_join(threads[i], NULL) == 0);
    return args[0].failed | args[1].failed;
}
static void test_A05_two_threads_one_communicator(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, a05, NULL, 60), 0);
}

/* Without tags the threads' calls meet in any order: a mismatch that shows both, never a hang. */
static void *a05_untagged(void *arg) {
    struct a05_arg *a = arg;
    static float buffer[2][2000];
    size_t count = a->tag == 1 ? 10 : 2000;
    enum occl_result result = occl_all_reduce(buffer[a->tag - 1], buffer[a->tag - 1], count,
                                              OCCL_FLOAT32, OCCL_SUM, a->me->comm, NULL, NULL);
    a->failed = result != OCCL_SUCCESS &&
                (result != OCCL_ERROR_MISMATCH || !strstr(occl_last_error(), "2000") ||
                 !strstr(occl_last_error(), "10"));
    return NULL;
}
static int a05_ii(struct world_rank *me) {
    struct a05_arg args[2] = {{me, 1, 0}, {me, 2, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        WORLD_CHECK(pthread_create(&threads[i], NULL, a05_untagged, &args[(i + me->rank) % 2]) ==
                    0);
        pause_us(3000);
    }
    for (int i = 0; i < 2; i++)
        WORLD_CHECK(pthread_join(threads[i], NULL) == 0);
    return args[0].failed | args[1].failed;
}
static void test_A05_untagged_threads_mismatch_or_complete(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, a05_ii, NULL, 30), 0);
}

/* Waits between submissions along a random acyclic order that is the same on all ranks: each rank
 * submits in its own order but waits only for ops that are earlier in the common order. */
static int random_waits(struct world_rank *me) {
    enum { OPS = 60 };
    uint64_t random = 99u + (uint64_t)me->rank;
    static float in[OPS], out[OPS];
    static struct occl_request requests[OPS];
    static bool waited[OPS];
    for (int base = 0; base < OPS; base += 6) {
        int order[6] = {0, 1, 2, 3, 4, 5};
        shuffle(order, 6, &random);
        for (int i = 0; i < 6; i++) {
            int k = base + order[i];
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            attr.tag = (uint32_t)k + 1;
            in[k] = (float)(k + me->rank);
            WORLD_OK(occl_all_reduce(&in[k], &out[k], 1, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr,
                                     &requests[k]));
            int earlier = base ? (int)(next_random(&random) % (uint64_t)base) : -1;
            if (earlier >= 0 && !waited[earlier]) {
                WORLD_OK(occl_wait(requests[earlier]));
                waited[earlier] = true;
            }
        }
    }
    for (int k = 0; k < OPS; k++) {
        if (!waited[k])
            WORLD_OK(occl_wait(requests[k]));
        WORLD_CHECK(out[k] == (float)(k * me->size + me->size * (me->size - 1) / 2));
    }
    return 0;
}
static void test_random_waits(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, random_waits, NULL, 30), 0);
}

/* A new tag for every step, as a program may do that numbers its steps. */
static int many_tags(struct world_rank *me) {
    int one = 1, sum = 0;
    for (uint32_t tag = 1; tag <= 150000; tag++) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.tag = tag;
        WORLD_OK(occl_all_reduce(&one, &sum, 1, OCCL_INT32, OCCL_SUM, me->comm, &attr, NULL));
        WORLD_CHECK(sum == me->size);
    }
    return 0;
}
static void test_a_new_tag_for_every_step(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, many_tags, NULL, 60), 0);
}

/* Four jobs at once, each with orders of its own. */
/* ---- more ops than records, in opposite orders ---- */

#define OPPOSITE_OPS 6000

static int opposite_orders(struct world_rank *me) {
    static struct occl_request requests[OPPOSITE_OPS];
    static int32_t values[OPPOSITE_OPS];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    for (int i = 0; i < OPPOSITE_OPS; i++) {
        int op = me->rank ? OPPOSITE_OPS - 1 - i : i;
        values[op] = op + me->rank;
        attr.tag = 1 + (uint32_t)op;
        WORLD_OK(occl_all_reduce(&values[op], &values[op], 1, OCCL_INT32, OCCL_SUM, me->comm, &attr,
                                 &requests[op]));
    }
    WORLD_OK(occl_wait_all(requests, OPPOSITE_OPS));
    for (int op = 0; op < OPPOSITE_OPS; op++)
        WORLD_CHECK(values[op] == 2 * op + 1);
    return 0;
}

static void test_thousands_in_opposite_orders(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, opposite_orders, NULL, 100), 0);
}

static void test_four_jobs(void **state) {
    pid_t pids[4][4];
    static struct many many[4];
    (void)state;
    for (int j = 0; j < 4; j++) {
        many[j] = (struct many){(uint64_t)j + 1, 100, j % 2 == 0};
        world_spawn(&w, 4, many_ops, &many[j], pids[j]);
    }
    int failed = 0;
    for (int j = 0; j < 4; j++)
        for (int r = 0; r < 4; r++)
            failed += world_wait(pids[j][r], 60) != 0;
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latin_square_8x8),
        cmocka_unit_test(test_161_ops_zero_copy),
        cmocka_unit_test(test_161_ops_any_pointer),
        cmocka_unit_test(test_400_ops_8_ranks),
        cmocka_unit_test(test_A01_a_thread_per_communicator),
        cmocka_unit_test(test_A02_burst_against_a_slow_peer),
        cmocka_unit_test(test_A03_two_communicators_crosswise),
        cmocka_unit_test(test_A04_commands_in_any_order),
        cmocka_unit_test(test_A05_two_threads_one_communicator),
        cmocka_unit_test(test_A05_untagged_threads_mismatch_or_complete),
        cmocka_unit_test(test_random_waits),
        cmocka_unit_test(test_a_new_tag_for_every_step),
        cmocka_unit_test(test_thousands_in_opposite_orders),
        cmocka_unit_test(test_four_jobs),
    };
    return cmocka_run_group_tests_name("client_disorder", tests, setup, teardown);
}
