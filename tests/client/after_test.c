/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that come after others of the same rank, without a wait: data flows from one to the next on
 * every path, errors flow, too, peers that do the same by waiting meet them, and nothing starts
 * early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/client/world.h"

enum memory { ZERO_COPY, ANY_POINTER };

static int32_t *get(enum memory memory, size_t count) {
    void *p = NULL;
    if (memory == ANY_POINTER)
        return world_alloc(count * sizeof(int32_t));
    return occl_mem_alloc(count * sizeof(int32_t), &p) == OCCL_SUCCESS ? p : NULL;
}

static struct occl_op_attr after(const struct occl_request *requests, size_t count) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.after = requests;
    attr.after_count = count;
    return attr;
}

/* all_reduce(a -> b), then all_gather(b -> c), then reduce_scatter(c -> d): d = size^2 * sum. Even
 * ranks chain them; odd ones wait between them, later ones in another order of tags. */
static int chain_of(struct world_rank *me, enum memory memory, size_t count, uint64_t salt) {
    static int32_t *a, *b, *c, *d;
    size_t n = (size_t)me->size;
    struct occl_request first, second, third;
    struct occl_op_attr attr;
    if (!a) {
        a = get(memory, 70000);
        b = get(memory, 70000);
        c = get(memory, 70000 * n);
        d = get(memory, 70000);
    }
    WORLD_CHECK(a && b && c && d);
    for (size_t i = 0; i < count; i++) {
        a[i] = (int32_t)world_pattern((uint64_t)me->rank, i + salt);
        b[i] = d[i] = -1;
    }
    WORLD_OK(occl_all_reduce(a, b, count, OCCL_INT32, OCCL_SUM, me->comm, NULL, &first));
    attr = after(&first, 1);
    if (me->rank % 2) {
        WORLD_OK(occl_wait(first));
        attr = after(NULL, 0);
    }
    WORLD_OK(occl_all_gather(b, c, count, OCCL_INT32, me->comm, &attr, &second));
    attr = after(&second, 1);
    if (me->rank % 2) {
        WORLD_OK(occl_wait(second));
        attr = after(NULL, 0);
    }
    if (salt % 2) { /* a blocking call, too */
        WORLD_OK(occl_reduce_scatter(c, d, count, OCCL_INT32, OCCL_SUM, me->comm, &attr, NULL));
    } else {
        WORLD_OK(occl_reduce_scatter(c, d, count, OCCL_INT32, OCCL_SUM, me->comm, &attr, &third));
        WORLD_OK(occl_wait(third));
    }
    if (me->rank % 2 == 0) {
        WORLD_OK(occl_wait(second));
        WORLD_OK(occl_wait(first));
    }
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (int r = 0; r < me->size; r++)
            sum += (int32_t)world_pattern((uint64_t)r, i + salt);
        WORLD_CHECK(b[i] == sum && d[i] == sum * (int32_t)n);
    }
    return 0;
}

static int chains(struct world_rank *me) {
    static const size_t counts[] = {0, 1, 5, 40, 300, 5000, 70000};
    enum memory memory = *(enum memory *)me->arg;
    for (uint64_t salt = 0; salt < 70; salt++)
        if (chain_of(me, memory, counts[salt % 7], salt))
            return 1;
    return 0;
}

static void run_chains(enum memory memory) {
    struct world w;
    world_start(&w, NULL);
    for (int size = 1; size <= 5; size++)
        assert_int_equal(world_run(&w, size, chains, &memory, 60), 0);
    assert_int_equal(world_stop(&w), 0);
}

static void test_chains_zero_copy(void **state) {
    (void)state;
    run_chains(ZERO_COPY);
}
static void test_chains_any_pointer(void **state) {
    (void)state;
    run_chains(ANY_POINTER);
}
static void test_chains_by_the_daemon(void **state) {
    (void)state;
    run_chains(ZERO_COPY);
}
static void test_chains_staged_for_the_daemon(void **state) {
    (void)state;
    run_chains(ANY_POINTER);
}

/* Nobody waits for anything but a flag in memory: the last op's result. */
static int nobody_waits(struct world_rank *me) {
    static int32_t values[64];
    struct occl_request requests[64];
    for (int i = 0; i < 63; i++) {
        struct occl_op_attr attr = after(&requests[i ? i - 1 : 0], i > 0);
        values[0] = i == 0 ? 1 : values[0];
        WORLD_OK(occl_all_reduce(&values[i], &values[i + 1], 1, OCCL_INT32, OCCL_MAX, me->comm,
                                 &attr, &requests[i]));
    }
    double until = world_now() + 10.0 * world_slowness();
    while (__atomic_load_n(&values[63], __ATOMIC_ACQUIRE) != 1)
        WORLD_CHECK(world_now() < until);
    for (int i = 0; i < 63; i++)
        WORLD_OK(occl_wait(requests[i]));
    return 0;
}

/* Two requests; the later one completes first; the op that comes after both starts after both. */
static int several(struct world_rank *me) {
    int32_t from[2] = {0, 0};
    struct occl_request requests[2];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    if (me->rank == 0) {
        attr.tag = 1;
        WORLD_OK(occl_recv(&from[0], 1, OCCL_INT32, 1, me->comm, &attr, &requests[0]));
        attr.tag = 2;
        WORLD_OK(occl_recv(&from[1], 1, OCCL_INT32, 1, me->comm, &attr, &requests[1]));
        attr = after(requests, 2);
        WORLD_OK(occl_scan(from, from, 2, OCCL_INT32, OCCL_SUM, me->comm, &attr, NULL));
        WORLD_CHECK(from[0] == 7 && from[1] == 9);
        WORLD_OK(occl_wait_all(requests, 2));
        return 0;
    }
    int32_t seven = 7, nine = 9, zero[2] = {0, 0};
    attr.tag = 2;
    WORLD_OK(occl_send(&nine, 1, OCCL_INT32, 0, me->comm, &attr, NULL));
    attr.tag = 1;
    WORLD_OK(occl_send(&seven, 1, OCCL_INT32, 0, me->comm, &attr, NULL));
    WORLD_OK(occl_scan(zero, zero, 2, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_CHECK(zero[0] == 7 && zero[1] == 9);
    return 0;
}

/* Rank 0 waits for a message that comes too late; what comes after it fails with it, and the peer,
 * who has come to that, hears of it. */
static int receive_late(struct world_rank *me, uint32_t tag, struct occl_request *request) {
    static int32_t got;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = tag;
    attr.timeout_ns = 200000000;
    WORLD_OK(occl_recv(&got, 1, OCCL_INT32, 1, me->comm, &attr, request));
    return 0;
}
static int send_late(struct world_rank *me, uint32_t tag) {
    int32_t v = 1;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = tag;
    enum occl_result result = occl_send(&v, 1, OCCL_INT32, 0, me->comm, &attr, NULL);
    WORLD_CHECK(result == OCCL_SUCCESS || result == OCCL_ERROR_TIMEOUT);
    return 0;
}

/* Each side is told what failed: nobody's deadline in the op itself, and no process. */
static int failures(struct world_rank *me) {
    int32_t v = 1, later = -1;
    struct occl_request late, dependent;
    struct occl_op_attr attr;
    if (me->rank == 0) {
        if (receive_late(me, 5, &late))
            return 1;
        attr = after(&late, 1);
        WORLD_OK(occl_all_reduce(&v, &later, 1, OCCL_INT32, OCCL_SUM, me->comm, &attr, &dependent));
        WORLD_CHECK(occl_wait(dependent) == OCCL_ERROR_TIMEOUT);
        WORLD_CHECK(strstr(occl_last_error(), "it comes after recv (tag 5) of this rank"));
        WORLD_CHECK(occl_wait(late) == OCCL_ERROR_TIMEOUT);
        WORLD_CHECK(strstr(occl_last_error(), "missing ranks: 1"));
    } else {
        WORLD_CHECK(occl_all_reduce(&v, &later, 1, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL) ==
                    OCCL_ERROR_ABORTED);
        WORLD_CHECK(strstr(occl_last_error(), "rank 0 (host ") &&
                    strstr(occl_last_error(), "gave it up: what it comes after there failed"));
        if (send_late(me, 5))
            return 1;
    }
    WORLD_CHECK(later == -1);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL)); /* the communicator goes on */
    return 0;
}

/* What is said of an op is not what its dependency failed with: its ranks agree, and live. */
static int dependency_mismatches(struct world_rank *me) {
    int32_t v[4] = {0}, sum[4], later = -1;
    struct occl_request first, dependent;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = 7;
    WORLD_OK(
        occl_all_reduce(v, sum, me->rank ? 3 : 2, OCCL_INT32, OCCL_SUM, me->comm, &attr, &first));
    attr = after(&first, 1);
    WORLD_OK(occl_all_reduce(v, &later, 1, OCCL_INT32, OCCL_SUM, me->comm, &attr, &dependent));
    enum occl_result result = occl_wait(dependent);
    WORLD_CHECK(result == OCCL_ERROR_MISMATCH || result == OCCL_ERROR_ABORTED);
    WORLD_CHECK(strstr(occl_last_error(), result == OCCL_ERROR_MISMATCH
                                              ? "it comes after all_reduce (tag 7) of this rank"
                                              : "gave it up"));
    WORLD_CHECK(occl_wait(first) == OCCL_ERROR_MISMATCH);
    WORLD_CHECK(strstr(occl_last_error(), "disagree on the count"));
    WORLD_CHECK(later == -1);
    return 0;
}

/* A broadcast whose root has come long ago: not even its bytes arrive before the turn. */
static int source_has_come(struct world_rank *me) {
    int32_t v = 1, got = -1;
    struct occl_request late, dependent;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    if (me->rank == 0) {
        if (receive_late(me, 6, &late))
            return 1;
        attr = after(&late, 1);
        WORLD_OK(occl_broadcast(NULL, &got, 1, OCCL_INT32, 1, me->comm, &attr, &dependent));
        WORLD_CHECK(occl_wait_for(dependent, 50000000) == OCCL_IN_PROGRESS && got == -1);
        WORLD_CHECK(occl_wait(dependent) == OCCL_ERROR_TIMEOUT && got == -1);
        WORLD_CHECK(occl_wait(late) == OCCL_ERROR_TIMEOUT);
    } else {
        enum occl_result result = occl_broadcast(&v, NULL, 1, OCCL_INT32, 1, me->comm, NULL, NULL);
        WORLD_CHECK(result == OCCL_SUCCESS || result == OCCL_ERROR_ABORTED);
        struct timespec pause = {0, 400000000};
        (void)nanosleep(&pause, NULL);
        if (send_late(me, 6))
            return 1;
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}

/* Its own deadline runs while it waits for its turn. */
static int deadline(struct world_rank *me) {
    int32_t v = 1, got = -1;
    struct occl_request first, second;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = 9;
    if (me->rank == 0) {
        WORLD_OK(occl_recv(&got, 1, OCCL_INT32, 1, me->comm, &attr, &first));
        attr = after(&first, 1);
        attr.timeout_ns = 100000000;
        WORLD_OK(occl_barrier(me->comm, &attr, &second));
        WORLD_CHECK(occl_wait(second) == OCCL_ERROR_TIMEOUT);
        WORLD_OK(occl_wait(first));
        WORLD_CHECK(got == 1);
    } else {
        WORLD_CHECK(occl_barrier(me->comm, NULL, NULL) == OCCL_ERROR_TIMEOUT);
        WORLD_OK(occl_send(&v, 1, OCCL_INT32, 0, me->comm, &attr, NULL));
    }
    return 0;
}

/* Destroyed while ops wait for their turn: all of them end. */
static int destroyed(struct world_rank *me) {
    int32_t v = 1, sum = -1;
    struct occl_request first, second;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = 9;
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    if (me->rank == 0) {
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_INT32, OCCL_SUM, me->comm, &attr, &first));
        attr = after(&first, 1);
        WORLD_OK(occl_barrier(me->comm, &attr, &second));
        WORLD_OK(occl_comm_destroy(me->comm));
        WORLD_CHECK(occl_wait(second) == OCCL_ERROR_CANCELED);
        WORLD_CHECK(occl_wait(first) == OCCL_ERROR_CANCELED);
    } else {
        WORLD_CHECK(occl_barrier(me->comm, NULL, NULL) == OCCL_ERROR_PEER_FAILED);
    }
    return 0;
}

static int misuse(struct world_rank *me) {
    int32_t v = 1, sum = 0;
    struct occl_request done, inactive, again;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.after_count = 1;
    WORLD_CHECK(occl_barrier(me->comm, &attr, NULL) == OCCL_ERROR_INVALID_ARGUMENT);
    attr.after_count = SIZE_MAX;
    attr.after = &done;
    WORLD_CHECK(occl_barrier(me->comm, &attr, NULL) == OCCL_ERROR_INVALID_ARGUMENT);
    WORLD_OK(occl_barrier(me->comm, NULL, &done));
    WORLD_OK(occl_wait(done));
    attr = after(&done, 1);
    WORLD_CHECK(occl_barrier(me->comm, &attr, NULL) == OCCL_ERROR_HANDLE); /* stale */
    /* Complete but not waited for, and persistent but not started: nothing to wait for. */
    WORLD_OK(occl_barrier_init(me->comm, NULL, &inactive));
    WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_INT32, OCCL_SUM, me->comm, NULL, &done));
    struct occl_request both[2] = {done, inactive};
    attr = after(both, 2);
    WORLD_OK(occl_all_reduce_init(&sum, &sum, 1, OCCL_INT32, OCCL_MAX, me->comm, &attr, &again));
    WORLD_OK(occl_start(again));
    WORLD_OK(occl_wait(again));
    WORLD_CHECK(sum == me->size);
    WORLD_OK(occl_wait(done));
    WORLD_CHECK(occl_start(again) == OCCL_ERROR_HANDLE);
    WORLD_OK(occl_request_free(again));
    WORLD_OK(occl_request_free(inactive));
    return 0;
}

static void run_two(world_main fn) {
    struct world w;
    world_start(&w, NULL);
    assert_int_equal(world_run(&w, 2, fn, NULL, 30), 0);
    assert_int_equal(world_stop(&w), 0);
}

#define TWO(name)                                           \
    static void test_##name(void **state) {                 \
        (void)state;                                        \
        run_two(name);                                      \
    }                                                       \
    static void test_##name##_by_the_daemon(void **state) { \
        (void)state;                                        \
        run_two(name);                                      \
    }
TWO(nobody_waits)
TWO(failures)
TWO(dependency_mismatches)
TWO(source_has_come)
TWO(deadline)
TWO(destroyed)
TWO(misuse)

static void test_several(void **state) {
    (void)state;
    run_two(several);
}

#define BOTH(name)                                                                      \
    cmocka_unit_test(test_##name),                                                      \
        cmocka_unit_test_setup_teardown(test_##name##_by_the_daemon, world_use_ordered, \
                                        world_use_usual)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_zero_copy),
        cmocka_unit_test(test_chains_any_pointer),
        cmocka_unit_test_setup_teardown(test_chains_by_the_daemon, world_use_ordered,
                                        world_use_usual),
        cmocka_unit_test_setup_teardown(test_chains_staged_for_the_daemon, world_use_ordered,
                                        world_use_usual),
        BOTH(nobody_waits),
        cmocka_unit_test(test_several), /* out of order */
        BOTH(failures),
        BOTH(dependency_mismatches),
        BOTH(source_has_come),
        BOTH(deadline),
        BOTH(destroyed),
        BOTH(misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
