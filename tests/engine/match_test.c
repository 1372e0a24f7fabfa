/* SPDX-License-Identifier: Apache-2.0 */
/* Submissions meet by key, in any order, and end exactly once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/fixture.h"

#define OK(fx_, comm_, rank_, user_) fx_expect(fx_, comm_, rank_, user_, OCCL_OK, OCCL_RANK_NONE)

static void all_reduce_adds(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 4);
    int32_t *data = fx_region(&fx, 1, 8 * 4096, &region);
    for (uint32_t r = 0; r < 4; r++) {
        for (uint32_t i = 0; i < 100; i++)
            data[r * 1024 + i] = (int32_t)(r * 1000 + i);
        struct occl_sqe sqe =
            fx_all_reduce(comm, r, fx_key(7, 0), 100, region, r * 4096, (4 + r) * 4096);
        fx_submit(&fx, comm, r, &sqe);
    }
    for (uint32_t r = 0; r < 4; r++) {
        OK(&fx, comm, r, 7ull << 32);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(data[(4 + r) * 1024 + i], 6000 + 4 * i);
    }
    fx_close(&fx);
    free(data);
}

static void big_all_reduce_uses_strands(void **state) {
    struct fx fx;
    uint32_t region;
    const uint64_t count = 1 << 20;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 3});
    struct fx_comm *comm = fx_simple(&fx, 2);
    int32_t *data = fx_region(&fx, 1, 4 * count * 4, &region);
    for (uint64_t i = 0; i < count; i++) {
        data[i] = (int32_t)i;
        data[count + i] = (int32_t)(2 * i);
    }
    for (uint32_t round = 0; round < 4; round++) {
        memset(data + 2 * count, 0, 8 * count);
        for (uint32_t r = 0; r < 2; r++) {
            struct occl_sqe sqe = fx_all_reduce(comm, r, fx_key(0, round), count, region,
                                                r * count * 4, (2 + r) * count * 4);
            fx_submit(&fx, comm, r, &sqe);
        }
        for (uint32_t r = 0; r < 2; r++)
            OK(&fx, comm, r, round);
        for (uint64_t i = 0; i < count; i++) {
            if (data[2 * count + i] != (int32_t)(3 * i) || data[3 * count + i] != (int32_t)(3 * i))
                fail_msg("element %llu", (unsigned long long)i);
        }
    }
    fx_close(&fx);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_adds),
        cmocka_unit_test(big_all_reduce_uses_strands),
    };
    return cmocka_run_group_tests_name("engine_match", tests, NULL, NULL);
}
