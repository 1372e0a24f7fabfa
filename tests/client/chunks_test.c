/* SPDX-License-Identifier: Apache-2.0 */
/* Payload chunks in the page: none is written again while somebody may still read it, whoever
 * submits ahead of the others and whoever reads late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/client/world.h"

/* More ops in flight than there are chunks. */
#define WINDOW_MAX 40
#define COUNT_MAX 1024

static struct world w;

struct flight {
    struct occl_request request;
    int op;
    size_t count;
    int root; /* -1: all-reduce */
    int32_t in[COUNT_MAX], out[COUNT_MAX];
};

struct plan {
    int ops;
    int window_of_rank0;  /* 1: it blocks in each op */
    int window_of_others; /* 0: another one after each drain */
    bool broadcasts;
};

static int32_t value_of(int rank, int op, size_t i) {
    return (int32_t)(world_pattern((uint64_t)rank * 1000003u + (uint64_t)op, i) >> 8);
}

static int check(struct world_rank *me, struct flight *f) {
    for (size_t i = 0; i < f->count; i++) {
        int32_t expected = 0;
        for (int r = 0; r < me->size; r++)
            expected += f->root < 0 || f->root == r ? value_of(r, f->op, i) : 0;
        WORLD_CHECK(f->out[i] == expected);
    }
    return 0;
}

static int start(struct world_rank *me, struct flight *f, int op, bool broadcasts, bool blocking) {
    static const size_t counts[] = {2, 30, 33, 256, COUNT_MAX};
    uint64_t draw = world_pattern(77, (uint64_t)op);
    struct occl_request *request = blocking ? NULL : &f->request;
    f->op = op;
    f->count = counts[draw % 5];
    f->root = broadcasts && draw / 8 % 2 ? (int)(draw / 64 % (uint64_t)me->size) : -1;
    memset(f->out, 0, sizeof f->out);
    for (size_t i = 0; i < f->count; i++)
        f->in[i] = value_of(me->rank, op, i);
    if (f->root < 0)
        WORLD_OK(occl_all_reduce(f->in, f->out, f->count, OCCL_INT32, OCCL_SUM, me->comm, NULL,
                                 request));
    else
        WORLD_OK(
            occl_broadcast(f->in, f->out, f->count, OCCL_INT32, f->root, me->comm, NULL, request));
    return blocking ? check(me, f) : 0;
}

static int stream(struct world_rank *me) {
    static struct flight flights[WINDOW_MAX];
    const struct plan *plan = me->arg;
    uint64_t seed = (uint64_t)me->rank + 5;
    for (int op = 0; op < plan->ops;) {
        int window = me->rank == 0 ? plan->window_of_rank0 : plan->window_of_others;
        if (window == 0)
            window = 1 + (int)(world_pattern(seed++, 3) % WINDOW_MAX);
        int started = 0;
        for (; started < window && op < plan->ops; started++, op++) {
            int failed = start(me, &flights[started], op, plan->broadcasts, window == 1);
            if (failed)
                return failed;
        }
        for (int i = 0; window > 1 && i < started; i++) {
            WORLD_OK(occl_wait(flights[i].request));
            int failed = check(me, &flights[i]);
            if (failed)
                return failed;
        }
    }
    return 0;
}

static void run(int size, struct plan plan) {
    assert_int_equal(world_run(&w, size, stream, &plan, 60), 0);
}

/* Rank 0 goes from op to op, the others read what it brought when they wait for 40 of them. */
static void test_late_readers(void **state) {
    (void)state;
    run(2, (struct plan){4000, 1, WINDOW_MAX, false});
    run(3, (struct plan){4000, 1, WINDOW_MAX, true});
}

/* Everybody blocks now and then, and has some in flight in between. */
static void test_random_windows(void **state) {
    (void)state;
    run(2, (struct plan){4000, 0, 0, true});
    run(4, (struct plan){4000, 0, 0, true});
}

/* Only blocking calls: the flags say that chunks are free. */
static void test_blocking_calls(void **state) {
    (void)state;
    run(2, (struct plan){8000, 1, 1, true});
    run(4, (struct plan){4000, 1, 1, true});
}

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_readers),
        cmocka_unit_test(test_random_windows),
        cmocka_unit_test(test_blocking_calls),
    };
    return cmocka_run_group_tests_name("client_chunks", tests, setup, teardown);
}
