/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that the daemon has no room for: its table is full, or the tenant's quota is used up. Their
 * rank ends them at once or at its deadline, and the peers, who come later, must hear of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client_lib/inspect.h"
#include "shm_ipc/limits.h"
#include "tests/client/world.h"

#define ROOM 256u
#define IN_RECORDS ((uint32_t)(OCCL_RUNS * OCCL_RUN_OPS))
/* Ops of a rank that is ahead: in records, then in the daemon. */
#define TAKEN (IN_RECORDS + ROOM)
#define REFUSED 20u
#define LATER 200u

struct refusal {
    int64_t timeout_ns; /* of the ops that are refused; 0: they end without one */
    enum occl_result result;
};

/* Rank 0 is ahead by all of them; the last ones find no room. */
static int run_ahead(const struct world_rank *me, const struct refusal *refusal,
                     struct occl_comm comm) {
    static struct occl_request requests[TAKEN + REFUSED];
    static int32_t values[TAKEN + REFUSED];
    for (uint32_t i = 0; i < TAKEN + REFUSED; i++) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.timeout_ns = i < TAKEN ? 0 : refusal->timeout_ns;
        values[i] = (int32_t)i;
        WORLD_OK(occl_all_reduce(&values[i], &values[i], 1, OCCL_INT32, OCCL_SUM, comm, &attr,
                                 &requests[i]));
    }
    for (uint32_t i = TAKEN; i < TAKEN + REFUSED; i++)
        WORLD_CHECK(occl_wait(requests[i]) == refusal->result);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    for (uint32_t i = 0; i < TAKEN; i++) {
        WORLD_OK(occl_wait(requests[i]));
        WORLD_CHECK(values[i] == 2 * (int32_t)i);
    }
    return 0;
}

static int follow(const struct world_rank *me, const struct refusal *refusal,
                  struct occl_comm comm) {
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    for (uint32_t i = 0; i < TAKEN + REFUSED; i++) {
        int32_t value = (int32_t)i;
        enum occl_result result =
            occl_all_reduce(&value, &value, 1, OCCL_INT32, OCCL_SUM, comm, NULL, NULL);
        WORLD_CHECK(result == (i < TAKEN ? OCCL_SUCCESS : refusal->result));
        WORLD_CHECK(i >= TAKEN || value == 2 * (int32_t)i);
    }
    return 0;
}

static int refused(struct world_rank *me) {
    const struct refusal *refusal = me->arg;
    struct occl_comm comm;
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
    int failed = me->rank == 0 ? run_ahead(me, refusal, comm) : follow(me, refusal, comm);
    if (failed)
        return failed;
    /* All claims open again: the ops are back in records. */
    uint32_t in_ring = 0;
    for (uint32_t i = 0; i < LATER; i++) {
        int32_t value = 1;
        WORLD_OK(occl_all_reduce(&value, &value, 1, OCCL_INT32, OCCL_SUM, comm, NULL, NULL));
        WORLD_CHECK(value == 2);
        in_ring += i >= LATER / 2 && occl_inspect_last_path(comm) == 3;
    }
    WORLD_CHECK(in_ring == 0);
    WORLD_OK(occl_comm_destroy(comm));
    return 0;
}

static void run_with(const char *setting, struct refusal refusal) {
    struct world w;
    const char *extra[] = {"--set", setting, NULL};
    world_start(&w, extra);
    int failed = world_run(&w, 2, refused, &refusal, 30);
    int stopped = world_stop(&w);
    assert_int_equal(failed, 0);
    assert_int_equal(stopped, 0);
}

static void a_full_table_and_a_deadline_end_the_op_for_all(void **state) {
    (void)state;
    run_with("ops_max=256", (struct refusal){20000000, OCCL_ERROR_TIMEOUT});
}

static void a_used_up_quota_ends_the_op_for_all(void **state) {
    (void)state;
    run_with("quota_ops=256", (struct refusal){0, OCCL_ERROR_QUOTA});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_table_and_a_deadline_end_the_op_for_all),
        cmocka_unit_test(a_used_up_quota_ends_the_op_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
