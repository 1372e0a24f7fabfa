/* SPDX-License-Identifier: Apache-2.0 */
/* occl_wait_any: which request it returns, and that whoever waits for long sleeps meanwhile and
 * wakes at once, however many requests there are and whoever else looks after them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "tests/client/world.h"

#define REQUESTS_MAX 200
#define ROUNDS 5
/* The peer lets this pass before it sends. */
#define PAUSE_S 0.12
/* Who polls every 200 us sleeps some 500 times in a pause. */
#define SLEEPS_MAX 40
/* A sleeper that nobody wakes looks every 50 ms. */
#define PROMPT_S 0.01

struct how {
    int requests;
    int sent;   /* index of the request whose message the peer sends first */
    bool after; /* each is a reduction after a message: the library's own thread looks after it */
};

static double *sent_at;

static void rest(double s) {
    struct timespec pause = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    (void)nanosleep(&pause, NULL);
}

static long sleeps_so_far(void) {
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/* Rank 0 sends message `how->sent` after a pause, after another all others. */
static int send_late(struct world_rank *me, const struct how *how) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    int32_t value = 7;
    rest(PAUSE_S);
    *sent_at = world_now();
    attr.tag = (uint32_t)how->sent + 1;
    WORLD_OK(occl_send(&value, 1, OCCL_INT32, 1, me->comm, &attr, NULL));
    rest(PAUSE_S / 2);
    for (int i = 0; i < how->requests; i++) {
        attr.tag = (uint32_t)i + 1;
        if (i != how->sent)
            WORLD_OK(occl_send(&value, 1, OCCL_INT32, 1, me->comm, &attr, NULL));
    }
    return 0;
}

static int post(struct world_rank *me, const struct how *how, struct occl_comm alone,
                int32_t *values, struct occl_request *requests) {
    for (int i = 0; i < how->requests; i++) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT, behind = OCCL_OP_ATTR_INIT;
        struct occl_request message;
        attr.tag = (uint32_t)i + 1;
        WORLD_OK(occl_recv(&values[i], 1, OCCL_INT32, 0, me->comm, &attr, &message));
        requests[i] = message;
        if (!how->after)
            continue;
        behind.after = &message;
        behind.after_count = 1;
        WORLD_OK(occl_all_reduce(&values[i], &values[i], 1, OCCL_INT32, OCCL_SUM, alone, &behind,
                                 &requests[i]));
    }
    return 0;
}

/* The first completion of a round, and all others. */
static int wait_round(struct world_rank *me, const struct how *how, struct occl_comm alone,
                      double *out_late_s) {
    static int32_t values[REQUESTS_MAX];
    static struct occl_request requests[REQUESTS_MAX];
    memset(values, 0, sizeof values);
    if (post(me, how, alone, values, requests))
        return 1;
    long sleeps = sleeps_so_far();
    int index = -5;
    WORLD_OK(occl_wait_any(requests, how->requests, -1, &index));
    *out_late_s = world_now() - *sent_at;
    sleeps = sleeps_so_far() - sleeps;
    WORLD_CHECK(index == how->sent);
    WORLD_CHECK(values[index] == 7);
    if (sleeps > SLEEPS_MAX) {
        fprintf(stderr, "slept %ld times\n", sleeps);
        return 1;
    }
    for (int left = how->requests - 1; left > 0; left--) {
        requests[index].handle = 0;
        WORLD_OK(occl_wait_any(requests, how->requests, -1, &index));
        WORLD_CHECK(index >= 0 && values[index] == 7);
    }
    requests[index].handle = 0;
    WORLD_OK(occl_wait_any(requests, how->requests, -1, &index));
    WORLD_CHECK(index == -1);
    return 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int wait_rank(struct world_rank *me) {
    const struct how *how = me->arg;
    struct occl_comm alone;
    double late_s[ROUNDS];
    WORLD_OK(occl_comm_split(me->comm, me->rank, 0, NULL, &alone));
    for (int round = 0; round < ROUNDS; round++) {
        if (me->rank == 0 ? send_late(me, how) : wait_round(me, how, alone, &late_s[round]))
            return 1;
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    }
    if (me->rank == 0)
        return 0;
    qsort(late_s, ROUNDS, sizeof *late_s, by_size);
    if (late_s[ROUNDS / 2] > PROMPT_S * world_slowness()) {
        fprintf(stderr, "woke %.1f ms late\n", 1e3 * late_s[ROUNDS / 2]);
        return 1;
    }
    return 0;
}

static void run(struct how how) {
    struct world w;
    sent_at = world_shared(sizeof *sent_at);
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 2, wait_rank, &how, 20), 0);
    assert_int_equal(world_stop(&w), 0);
}

static void one(void **state) {
    (void)state;
    run((struct how){1, 0, false});
}

static void first_of_three(void **state) {
    (void)state;
    run((struct how){3, 0, false});
}

static void last_of_three(void **state) {
    (void)state;
    run((struct how){3, 2, false});
}

/* As many as one sleep has places for. */
static void last_of_forty(void **state) {
    (void)state;
    run((struct how){40, 39, false});
}

static void one_that_is_looked_after(void **state) {
    (void)state;
    run((struct how){1, 0, true});
}

static void last_of_forty_that_are_looked_after(void **state) {
    (void)state;
    run((struct how){40, 39, true});
}

/* ---- with other threads ---- */

struct other {
    struct occl_request request;
    enum occl_result result;
};

static void *wait_for_it(void *arg) {
    struct other *other = arg;
    other->result = occl_wait(other->request);
    return NULL;
}

/* Another thread waits for one of them, and either gets it. */
static int wait_beside(struct world_rank *me) {
    const struct how *how = me->arg;
    int32_t values[2] = {0, 0};
    struct occl_request requests[2];
    struct occl_comm none = {0};
    if (me->rank == 0)
        return send_late(me, how);
    if (post(me, how, none, values, requests))
        return 1;
    pthread_t thread;
    struct other other = {requests[0], OCCL_SUCCESS};
    WORLD_CHECK(pthread_create(&thread, NULL, wait_for_it, &other) == 0);
    rest(PAUSE_S / 6);
    int index = -5, results[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        enum occl_result result = occl_wait_any(requests, 2, -1, &index);
        WORLD_CHECK(index == 0 || index == 1);
        WORLD_CHECK(result == OCCL_SUCCESS || (index == 0 && result == OCCL_ERROR_HANDLE));
        results[index] = result == OCCL_SUCCESS ? 1 : 2;
        requests[index].handle = 0;
    }
    WORLD_CHECK(pthread_join(thread, NULL) == 0);
    WORLD_CHECK(results[1] == 1);
    WORLD_CHECK(other.result == (results[0] == 1 ? OCCL_ERROR_HANDLE : OCCL_SUCCESS));
    WORLD_CHECK(values[0] == 7 && values[1] == 7);
    return 0;
}

static void beside_a_waiter(void **state) {
    (void)state;
    for (int sent = 0; sent < 2; sent++) {
        struct world w;
        struct how how = {2, sent, false};
        sent_at = world_shared(sizeof *sent_at);
        world_start(&w, NULL);
        assert_int_equal(world_run(&w, 2, wait_beside, &how, 20), 0);
        assert_int_equal(world_stop(&w), 0);
    }
}

/* ---- limits of time ---- */

static int wait_briefly(struct world_rank *me) {
    const struct how *how = me->arg;
    int32_t values[3];
    struct occl_request requests[3];
    struct occl_comm none = {0};
    if (me->rank == 0)
        return send_late(me, how);
    if (post(me, how, none, values, requests))
        return 1;
    for (int count = 1; count <= 3; count += 2) {
        int index = -5;
        double start = world_now();
        WORLD_CHECK(occl_wait_any(requests, count, 20000000, &index) == OCCL_IN_PROGRESS);
        double took_s = world_now() - start;
        WORLD_CHECK(index == -1 && took_s >= 0.02 && took_s < 0.2 * world_slowness());
        start = world_now();
        WORLD_CHECK(occl_wait_any(requests, count, 0, &index) == OCCL_IN_PROGRESS);
        WORLD_CHECK(index == -1 && world_now() - start < 0.02 * world_slowness());
    }
    return occl_wait_all(requests, 3) == OCCL_SUCCESS ? 0 : 1;
}

static void gives_up_in_time(void **state) {
    (void)state;
    struct world w;
    struct how how = {3, 1, false};
    sent_at = world_shared(sizeof *sent_at);
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 2, wait_briefly, &how, 20), 0);
    assert_int_equal(world_stop(&w), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one),
        cmocka_unit_test(first_of_three),
        cmocka_unit_test(last_of_three),
        cmocka_unit_test(last_of_forty),
        cmocka_unit_test(one_that_is_looked_after),
        cmocka_unit_test(last_of_forty_that_are_looked_after),
        cmocka_unit_test(beside_a_waiter),
        cmocka_unit_test(gives_up_in_time),
    };
    return cmocka_run_group_tests_name("wait_any", tests, NULL, NULL);
}
