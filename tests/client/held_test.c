/* SPDX-License-Identifier: Apache-2.0 */
/* What a held-back op says of itself in its line, for `why`: after how many others, and which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "client_lib/client.h"
#include "tests/client/world.h"

static struct world w;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w);
}

static int message(struct world_rank *me, uint32_t tag, struct occl_request *request) {
    static int32_t value;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = tag;
    if (me->rank == 0)
        WORLD_OK(occl_recv(&value, 1, OCCL_INT32, 1, me->comm, &attr, request));
    else
        WORLD_OK(occl_send(&value, 1, OCCL_INT32, 0, me->comm, &attr, NULL));
    return 0;
}

/* Rank 0's all-reduce comes after three messages, which come one by one. */
static int one_by_one(struct world_rank *me) {
    struct occl_request before[3], request;
    int32_t in = 1, out = 0;
    if (me->rank == 0) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        for (uint32_t i = 0; i < 3; i++)
            if (message(me, i + 1, &before[i]))
                return 1;
        attr.after = before;
        attr.after_count = 3;
        WORLD_OK(occl_all_reduce(&in, &out, 1, OCCL_INT32, OCCL_SUM, me->comm, &attr, &request));
        struct client_op *op = client_op_get(request);
        const struct occl_line *line = occl_line_at(op->rec, op->line_index);
        for (uint32_t left = 3; left > 0; left--) {
            WORLD_CHECK(occl_line_after_count(line) == left);
            WORLD_CHECK(line->after_tag == 4 - left);
            WORLD_OK(occl_barrier(me->comm, NULL, NULL)); /* go on */
            WORLD_OK(occl_wait(before[3 - left]));
        }
        WORLD_OK(occl_wait(request));
        WORLD_CHECK(occl_line_after_count(line) == 0);
    } else {
        WORLD_OK(occl_all_reduce(&in, &out, 1, OCCL_INT32, OCCL_SUM, me->comm, NULL, &request));
        for (uint32_t i = 0; i < 3; i++) {
            WORLD_OK(occl_barrier(me->comm, NULL, NULL));
            if (message(me, i + 1, NULL))
                return 1;
        }
        WORLD_OK(occl_wait(request));
    }
    WORLD_CHECK(out == 2);
    return 0;
}
static void test_others_complete_one_by_one(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, one_by_one, NULL, 30), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_complete_one_by_one),
    };
    return cmocka_run_group_tests_name("client_held", tests, setup, teardown);
}
