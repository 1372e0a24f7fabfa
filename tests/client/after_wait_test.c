/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank waits for an op that comes after others: asleep until the last of them is complete,
 * and awake at once then, whoever waits for what: a blocking call, a request that only the library
 * looks after, another thread that waits for the first op before or after, or gives that up. */
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

#define ROUNDS 12
/* The peer lets this pass before it sends. */
#define PAUSE_NS 60000000l
/* A sleeper that nobody wakes looks every 50 ms. */
#define PROMPT_S 0.008

enum who {
    BLOCKING,       /* a blocking call comes after the message */
    REQUEST,        /* a request, which is waited for */
    CHAIN,          /* a request after a request after the message */
    SEVERAL,        /* after two messages, the later one first */
    OTHER_BEFORE,   /* another thread waits for the message already */
    OTHER_BEHIND,   /* another thread comes to wait for it while the call sleeps */
    OTHER_GIVES_UP, /* another thread waits for it, and gives up in between */
    ELSEWHERE,      /* the message is of another communicator */
};

struct how {
    enum who who;
    bool in_order; /* the daemon serves each rank in the order of its ops */
};

/* Shared by the ranks: when the last message was sent, and in which round the other thread has last
 * given up (from 1). */
static struct shared {
    double sent_at;
    int gave_up;
} * shared;

static void rest(long ns) {
    struct timespec pause = {0, ns};
    (void)nanosleep(&pause, NULL);
}

struct waiter {
    struct occl_request request;
    long delay_ns;
    int64_t timeout_ns; /* 0: none */
    int round;
    enum occl_result result;
};

static void *wait_too(void *arg) {
    struct waiter *waiter = arg;
    rest(waiter->delay_ns);
    waiter->result = waiter->timeout_ns ? occl_wait_for(waiter->request, waiter->timeout_ns)
                                        : occl_wait(waiter->request);
    if (waiter->timeout_ns)
        __atomic_store_n(&shared->gave_up, waiter->round, __ATOMIC_RELEASE);
    return NULL;
}

/* One round of the rank that waits. *out_late_s: from the sending to the end of what came after. */
static int wait_round(struct world_rank *me, struct occl_comm comm, enum who who, int round,
                      double *out_late_s) {
    int32_t from[2] = {0, 0}, to[2] = {0, 0}, last[2] = {0, 0};
    struct occl_request messages[2], second, third;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    pthread_t thread;
    bool other = who == OTHER_BEFORE || who == OTHER_BEHIND || who == OTHER_GIVES_UP;
    size_t count = who == SEVERAL ? 2 : 1;
    for (size_t i = 0; i < count; i++) {
        attr.tag = (uint32_t)i + 1;
        WORLD_OK(occl_recv(&from[i], 1, OCCL_INT32, 1, comm, &attr, &messages[i]));
    }
    struct waiter waiter = {messages[0], who == OTHER_BEHIND ? PAUSE_NS / 2 : 0,
                            who == OTHER_GIVES_UP ? PAUSE_NS / 2 : 0, round, OCCL_SUCCESS};
    if (other)
        WORLD_CHECK(pthread_create(&thread, NULL, wait_too, &waiter) == 0);
    if (who == OTHER_BEFORE || who == OTHER_GIVES_UP)
        rest(PAUSE_NS / 6);
    attr = (struct occl_op_attr)OCCL_OP_ATTR_INIT;
    attr.after = messages;
    attr.after_count = count;
    if (who == REQUEST || who == CHAIN) {
        WORLD_OK(occl_all_reduce(from, to, 2, OCCL_INT32, OCCL_SUM, me->comm, &attr, &second));
        attr.after = &second;
        if (who == CHAIN)
            WORLD_OK(occl_all_reduce(to, last, 2, OCCL_INT32, OCCL_SUM, me->comm, &attr, &third));
        WORLD_OK(occl_wait(who == CHAIN ? third : second));
        if (who == CHAIN)
            WORLD_OK(occl_wait(second));
    } else {
        WORLD_OK(occl_all_reduce(from, to, 2, OCCL_INT32, OCCL_SUM, me->comm, &attr, NULL));
    }
    *out_late_s = world_now() - shared->sent_at;
    if (other)
        WORLD_CHECK(pthread_join(thread, NULL) == 0);
    WORLD_CHECK(waiter.result == (who == OTHER_GIVES_UP ? OCCL_IN_PROGRESS : OCCL_SUCCESS));
    if (other && who != OTHER_GIVES_UP)
        return to[0] != 7;
    WORLD_OK(occl_wait_all(messages, (int)count));
    WORLD_CHECK(to[0] == 7 && to[1] == (who == SEVERAL ? 7 : 0));
    WORLD_CHECK(who != CHAIN || last[0] == 7);
    return 0;
}

static int take_part(struct world_rank *me, enum who who, struct occl_request *requests) {
    static int32_t zero[2], to[2], last[2];
    WORLD_OK(occl_all_reduce(zero, to, 2, OCCL_INT32, OCCL_SUM, me->comm, NULL, &requests[0]));
    if (who == CHAIN)
        WORLD_OK(
            occl_all_reduce(zero, last, 2, OCCL_INT32, OCCL_SUM, me->comm, NULL, &requests[1]));
    return 0;
}

static int send_round(struct world_rank *me, struct occl_comm comm, struct how how, int round) {
    int32_t seven = 7;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request requests[2];
    enum who who = how.who;
    if (!how.in_order && take_part(me, who, requests))
        return 1;
    rest(PAUSE_NS);
    while (who == OTHER_GIVES_UP && __atomic_load_n(&shared->gave_up, __ATOMIC_ACQUIRE) < round)
        rest(PAUSE_NS / 10);
    for (uint32_t tag = who == SEVERAL ? 2 : 1; tag > 0; tag--) {
        attr.tag = tag;
        shared->sent_at = world_now();
        WORLD_OK(occl_send(&seven, 1, OCCL_INT32, 0, comm, &attr, NULL));
        if (tag == 2)
            rest(PAUSE_NS);
    }
    if (how.in_order && take_part(me, who, requests))
        return 1;
    WORLD_OK(occl_wait_all(requests, who == CHAIN ? 2 : 1));
    return 0;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A quarter of the rounds is prompt at least: in the others somebody else may have had the cores.
 */
static int rounds(struct world_rank *me) {
    struct how how = *(struct how *)me->arg;
    enum who who = how.who;
    struct occl_comm comm = me->comm;
    double late_s[ROUNDS];
    struct rusage before, after;
    if (who == ELSEWHERE)
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
    for (int i = 0; i < ROUNDS; i++) {
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        if (i == 0) /* the library's threads have begun */
            (void)getrusage(RUSAGE_SELF, &before);
        if (me->rank == 0 ? wait_round(me, comm, who, i + 1, &late_s[i])
                          : send_round(me, comm, how, i + 1))
            return 1;
    }
    (void)getrusage(RUSAGE_SELF, &after);
    if (me->rank == 1)
        return 0;
    qsort(late_s, ROUNDS, sizeof *late_s, by_value);
    long switches = after.ru_nvcsw - before.ru_nvcsw;
    printf("case %d: %.2f ms late, %.2f at most; %.0f switches a round\n", (int)who,
           late_s[ROUNDS / 4] * 1e3, late_s[ROUNDS - 1] * 1e3, (double)switches / ROUNDS);
    /* Looking every millisecond would be 60 switches a round, every 200 us 300. */
    WORLD_CHECK(late_s[ROUNDS / 4] < PROMPT_S * world_slowness());
    WORLD_CHECK(switches / ROUNDS < 50 * world_slowness());
    return 0;
}

static void run(enum who who, bool in_order) {
    struct how how = {who, in_order};
    struct world w;
    shared = world_shared(sizeof *shared);
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 2, rounds, &how, 60), 0);
    assert_int_equal(world_stop(&w), 0);
}

#define CASE(name, who)                              \
    static void name(void **state) {                 \
        (void)state;                                 \
        run(who, false);                             \
    }                                                \
    static void name##_by_the_daemon(void **state) { \
        (void)state;                                 \
        run(who, true);                              \
    }
CASE(blocking_call, BLOCKING)
CASE(request, REQUEST)
CASE(chain_of_requests, CHAIN)
static void several_at_once(void **state) {
    (void)state;
    run(SEVERAL, false);
}
CASE(another_thread_waits, OTHER_BEFORE)
CASE(another_thread_comes_to_wait, OTHER_BEHIND)
CASE(another_thread_gives_up, OTHER_GIVES_UP)
CASE(another_communicator, ELSEWHERE)

/* Alone in its communicator it has no record, and still waits for its turn. */
static int alone(struct world_rank *me) {
    int32_t got = 0, copy = 0, seven = 7;
    struct occl_comm self;
    struct occl_request message;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    WORLD_OK(occl_comm_split(me->comm, me->rank, 0, NULL, &self));
    if (me->rank == 1) {
        rest(PAUSE_NS);
        WORLD_OK(occl_send(&seven, 1, OCCL_INT32, 0, me->comm, NULL, NULL));
        return 0;
    }
    WORLD_OK(occl_recv(&got, 1, OCCL_INT32, 1, me->comm, NULL, &message));
    attr.after = &message;
    attr.after_count = 1;
    WORLD_OK(occl_all_reduce(&got, &copy, 1, OCCL_INT32, OCCL_SUM, self, &attr, NULL));
    WORLD_CHECK(copy == 7);
    WORLD_OK(occl_wait(message));
    return 0;
}

static void alone_in_its_communicator(void **state) {
    struct world w;
    (void)state;
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 2, alone, NULL, 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

#define BOTH(name)          \
    cmocka_unit_test(name), \
        cmocka_unit_test_setup_teardown(name##_by_the_daemon, world_use_ordered, world_use_usual)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        BOTH(blocking_call),
        BOTH(request),
        BOTH(chain_of_requests),
        cmocka_unit_test(several_at_once), /* out of order */
        BOTH(another_thread_waits),
        BOTH(another_thread_comes_to_wait),
        BOTH(another_thread_gives_up),
        BOTH(another_communicator),
        cmocka_unit_test(alone_in_its_communicator),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
