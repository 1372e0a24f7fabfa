/* SPDX-License-Identifier: Apache-2.0 */
/* Instance numbers of the untagged stream: results across their wrap, and payload that goes through
 * the page again after billions of small ops that needed no chunk. The tests set the number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client_lib/client.h"
#include "tests/client/world.h"

#define COUNT 1000 /* needs a chunk */

static struct world w;

static struct client_comm *comm_of(const struct world_rank *me) {
    return occl_lib.comms[(uint32_t)me->comm.handle];
}

/* blocking: a rank that waits joins the next run ahead. */
static int sum(struct world_rank *me, size_t count, uint64_t salt, bool blocking) {
    static float in[COUNT], out[COUNT];
    struct occl_request request;
    world_fill(in, count, me->rank, salt);
    WORLD_OK(occl_all_reduce(in, out, count, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL,
                             blocking ? NULL : &request));
    if (!blocking)
        WORLD_OK(occl_wait(request));
    WORLD_CHECK(world_wrong_sum(out, count, me->size, salt) == 0);
    return 0;
}

/* All ranks go on with another number, a multiple of all records of the stream. Nobody is in a run
 * then, and nobody looks at the number: the others are in an op with a tag. */
static int go_on_with(struct world_rank *me, uint32_t instance) {
    struct occl_op_attr attr = {.size = sizeof attr, .tag = 1};
    if (comm_of(me)->untagged_next == instance)
        return 0;
    do
        if (sum(me, 1, 0, false))
            return 1;
    while (comm_of(me)->untagged_next % (OCCL_RUNS * OCCL_RUN_OPS));
    WORLD_OK(occl_barrier(me->comm, &attr, NULL));
    comm_of(me)->untagged_next = instance;
    attr.tag = 2;
    WORLD_OK(occl_barrier(me->comm, &attr, NULL));
    return 0;
}

static int sums_in_page(struct world_rank *me, int ops) {
    int in_page = 0;
    for (int i = 0; i < ops; i++) {
        if (sum(me, COUNT, (uint64_t)i, true))
            return 1;
        in_page += comm_of(me)->last_way == CLIENT_WAY_DIRECT;
    }
    WORLD_CHECK(in_page == ops);
    return 0;
}

static int stream(struct world_rank *me) {
    /* Short of the sign, long after it, short of the wrap, and again far apart. */
    static const uint32_t numbers[] = {0,           0x7fffff00u, 0x90000000u, 0xffffff00u,
                                       0x80001000u, 0x100u,      0xf0000000u};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (go_on_with(me, numbers[i]) || sums_in_page(me, 600))
            return 1;
    return 0;
}
static void test_numbers_wrap(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, stream, NULL, 30), 0);
    assert_int_equal(world_run(&w, 4, stream, NULL, 30), 0);
}

/* Only small ops of calls that do not block, which tell nothing of chunks, up to a number short of
 * the wrap; then more ops with payload in flight than there are chunks. */
static int window(struct world_rank *me) {
    enum { WINDOW = 2 * OCCL_STREAM_CHUNKS };
    static float in[WINDOW][COUNT], out[WINDOW][COUNT];
    struct occl_request requests[WINDOW];
    struct occl_op_attr attr = {.size = sizeof attr, .tag = 3};
    const uint32_t *number = me->arg;
    /* Some of the ops on the way. (Numbers 2^22 apart would find each other's flags.) */
    for (uint32_t n = 0, step = 0x1ff12340u; n < *number;) {
        n = *number - n > step ? n + step : *number;
        if (go_on_with(me, n))
            return 1;
    }
    for (uint64_t i = 0; i < WINDOW; i++) {
        world_fill(in[i], COUNT, me->rank, i);
        WORLD_OK(occl_all_reduce(in[i], out[i], COUNT, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL,
                                 &requests[i]));
    }
    WORLD_OK(occl_barrier(me->comm, &attr, NULL)); /* nothing has been read yet */
    for (uint64_t i = 0; i < WINDOW; i++) {
        WORLD_OK(occl_wait(requests[i]));
        WORLD_CHECK(world_wrong_sum(out[i], COUNT, me->size, i) == 0);
    }
    return 0;
}
static void test_payload_after_small_ops_alone(void **state) {
    static uint32_t numbers[] = {0x3fffff00u, 0x7fffff00u, 0xffbfff00u, 0xffd00000u, 0xffffff00u};
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        assert_int_equal(world_run(&w, 2, window, &numbers[i], 30), 0);
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

/* Each pair and each tag has the records to itself again when its op is over: hundreds of names,
 * each record many times. */
static int names(struct world_rank *me) {
    const struct client_comm *comm = comm_of(me);
    int32_t in = 1, out = 0;
    for (uint32_t tag = 1; tag <= 1000; tag++) {
        struct occl_op_attr attr = {.size = sizeof attr, .tag = tag, .priority = -1};
        if (me->rank == 0)
            WORLD_OK(occl_send(&in, 1, OCCL_INT32, 1, me->comm, &attr, NULL));
        else
            WORLD_OK(occl_recv(&out, 1, OCCL_INT32, 0, me->comm, &attr, NULL));
        WORLD_CHECK(comm->last_way == CLIENT_WAY_DIRECT);
        WORLD_OK(occl_all_reduce(&in, &out, 1, OCCL_INT32, OCCL_SUM, me->comm, &attr, NULL));
        WORLD_CHECK(comm->last_way == CLIENT_WAY_DIRECT);
    }
    return 0;
}
static void test_names_leave_their_records(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, names, NULL, 30), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_wrap),
        cmocka_unit_test(test_payload_after_small_ops_alone),
        cmocka_unit_test(test_names_leave_their_records),
    };
    return cmocka_run_group_tests_name("client_wrap", tests, setup, teardown);
}
