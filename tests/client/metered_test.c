/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for an op whose strands the job may not execute, because its share is used up: the time
 * that the caller gives to the wait holds all the same. The tests take the page that the daemon
 * writes out of the library's sight and put one in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "client_lib/client.h"
#include "tests/client/world.h"

#define COUNT 200000

static struct world w;

static int setup(void **state) {
    /* Copies could be executed by the daemon's lanes, which go by the page that the test hides. */
    static const char *const attached[] = {"--set", "copy_max=0", NULL};
    (void)state;
    world_start(&w, attached);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w);
}

static int gives_up(struct world_rank *me) {
    static float in[COUNT], out[COUNT];
    static struct occl_job_page closed;
    const struct occl_job_page *open = occl_lib.job;
    struct occl_request request;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    closed = *open;
    closed.gate = 1;
    closed.granted_bytes = closed.charged_bytes_seen = 0;
    world_fill(in, COUNT, me->rank, 1);
    occl_lib.job = &closed;
    WORLD_OK(occl_all_reduce(in, out, COUNT, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, &request));
    attr.tag = 1;
    WORLD_OK(occl_barrier(me->comm, &attr, NULL)); /* all have come: the op is to be executed */
    double start = world_now();
    WORLD_CHECK(occl_wait_for(request, 50000000) == OCCL_IN_PROGRESS);
    WORLD_CHECK(world_now() - start < 1 * world_slowness());
    WORLD_OK(occl_barrier(me->comm, &attr, NULL));
    occl_lib.job = open;
    WORLD_OK(occl_wait(request));
    WORLD_CHECK(world_wrong_sum(out, COUNT, me->size, 1) == 0);
    return 0;
}
static void test_wait_for_gives_up(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, gives_up, NULL, 10), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_for_gives_up),
    };
    return cmocka_run_group_tests_name("client_metered", tests, setup, teardown);
}
