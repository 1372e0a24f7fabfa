/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: who holds, who gives back, for whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "daemon/sched/pool.h"

static struct occl_pool *pool;

static uint32_t start(uint32_t shared, uint32_t reserve) {
    struct occl_pool_config config = {.shared_units = shared, .ops_max = 64, .comms_max = 4};
    uint32_t comm;
    occl_pool_destroy(pool);
    pool = NULL;
    assert_int_equal(occl_pool_create(&config, &pool), OCCL_OK);
    assert_int_equal(occl_pool_comm_add(pool, 10, reserve, &comm), OCCL_OK);
    return comm;
}

static int teardown(void **state) {
    (void)state;
    occl_pool_destroy(pool);
    pool = NULL;
    return 0;
}

static uint64_t request(uint32_t comm, uint32_t units, uint64_t user) {
    uint64_t id;
    assert_int_equal(occl_pool_request(pool, comm, units, user, &id), OCCL_OK);
    return id;
}

static void expect(enum occl_pool_action action, uint64_t user) {
    uint64_t id, found = UINT64_MAX;
    assert_int_equal(occl_pool_step(pool, &id, &found), action);
    if (action != OCCL_POOL_NONE)
        assert_int_equal(found, user);
}

static void arrived_ops_take_from_those_that_have_not(void **state) {
    (void)state;
    uint32_t comm = start(1, 0);
    uint64_t early = request(comm, 1, 1), late = request(comm, 1, 2);
    expect(OCCL_POOL_GRANT, 1);
    expect(OCCL_POOL_NONE, 0);
    assert_int_equal(occl_pool_arrived(pool, late, 7), OCCL_OK);
    expect(OCCL_POOL_REVOKE, 1);
    expect(OCCL_POOL_NONE, 0); /* nothing to give before it is returned */
    assert_int_equal(occl_pool_returned(pool, early), OCCL_OK);
    expect(OCCL_POOL_GRANT, 2);
    expect(OCCL_POOL_NONE, 0);
    assert_int_equal(occl_pool_release(pool, late), OCCL_OK);
    expect(OCCL_POOL_GRANT, 1);
}

static void the_older_wounds_the_youngest(void **state) {
    (void)state;
    uint32_t comm = start(2, 0);
    uint64_t a = request(comm, 1, 5), b = request(comm, 1, 9), c = request(comm, 1, 7);
    (void)occl_pool_arrived(pool, a, 5);
    (void)occl_pool_arrived(pool, b, 9);
    expect(OCCL_POOL_GRANT, 5);
    expect(OCCL_POOL_GRANT, 9);
    (void)occl_pool_arrived(pool, c, 7);
    expect(OCCL_POOL_REVOKE, 9); /* not 5, which is older than 7 */
    assert_int_equal(occl_pool_returned(pool, b), OCCL_OK);
    expect(OCCL_POOL_GRANT, 7);
    expect(OCCL_POOL_NONE, 0); /* 9 waits: it is the youngest */
    assert_int_equal(occl_pool_release(pool, a), OCCL_OK);
    expect(OCCL_POOL_GRANT, 9);
}

static void an_arriving_holder_keeps_its_units(void **state) {
    (void)state;
    uint32_t comm = start(1, 0);
    uint64_t a = request(comm, 1, 1), b = request(comm, 1, 2);
    expect(OCCL_POOL_GRANT, 1);
    (void)occl_pool_arrived(pool, a, 1);
    (void)occl_pool_arrived(pool, b, 2);
    expect(OCCL_POOL_NONE, 0);
    struct occl_pool_stats stats;
    occl_pool_stats(pool, &stats);
    assert_int_equal(stats.unarrived_units, 0);
}

static void while_the_oldest_waits_nobody_overtakes(void **state) {
    (void)state;
    uint32_t comm = start(3, 0);
    uint64_t a = request(comm, 2, 1), big = request(comm, 3, 2), small = request(comm, 1, 3);
    (void)occl_pool_arrived(pool, a, 1);
    expect(OCCL_POOL_GRANT, 1);
    (void)occl_pool_arrived(pool, big, 2);
    (void)occl_pool_arrived(pool, small, 3);
    expect(OCCL_POOL_NONE, 0); /* one unit is free, but the oldest wants three at once */
    assert_int_equal(occl_pool_release(pool, a), OCCL_OK);
    expect(OCCL_POOL_GRANT, 2);
}

static void the_reserve_belongs_to_its_communicator(void **state) {
    uint32_t other;
    (void)state;
    uint32_t comm = start(1, 1);
    assert_int_equal(occl_pool_comm_add(pool, 11, 1, &other), OCCL_OK);
    uint64_t a = request(other, 1, 1), b = request(other, 1, 2), c = request(comm, 1, 3);
    (void)occl_pool_arrived(pool, a, 1);
    (void)occl_pool_arrived(pool, b, 2);
    (void)occl_pool_arrived(pool, c, 3);
    expect(OCCL_POOL_GRANT, 3); /* from the reserve of comm */
    expect(OCCL_POOL_GRANT, 1); /* from its own */
    expect(OCCL_POOL_GRANT, 2); /* shared */
    (void)request(comm, 1, 4);
    expect(OCCL_POOL_NONE, 0); /* not arrived: no reserve */
    assert_int_equal(occl_pool_release(pool, b), OCCL_OK);
    expect(OCCL_POOL_GRANT, 4); /* shared, revocable */
    assert_int_equal(occl_pool_comm_remove(pool, comm), OCCL_E_BUSY);
}

static void an_older_ticket_takes_the_reserve(void **state) {
    (void)state;
    uint32_t comm = start(0, 1);
    uint64_t young = request(comm, 1, 8), old = request(comm, 1, 4);
    (void)occl_pool_arrived(pool, young, 8);
    expect(OCCL_POOL_GRANT, 8);
    (void)occl_pool_arrived(pool, old, 4);
    expect(OCCL_POOL_REVOKE, 8);
    (void)occl_pool_returned(pool, young);
    expect(OCCL_POOL_GRANT, 4);
}

static void wrong_calls_are_refused(void **state) {
    struct occl_pool_config config = {.shared_units = 1, .ops_max = 0, .comms_max = 1};
    struct occl_pool *none = NULL;
    uint64_t id;
    (void)state;
    uint32_t comm = start(2, 1);
    assert_int_equal(occl_pool_create(&config, &none), OCCL_E_INVALID);
    assert_int_equal(occl_pool_request(pool, comm, 2, 0, &id), OCCL_E_INVALID);
    assert_int_equal(occl_pool_request(pool, comm, 0, 0, &id), OCCL_E_INVALID);
    assert_int_equal(occl_pool_request(pool, 3, 1, 0, &id), OCCL_E_INVALID);
    id = request(comm, 1, 0);
    assert_int_equal(occl_pool_returned(pool, id), OCCL_E_HANDLE);
    assert_int_equal(occl_pool_release(pool, id), OCCL_OK);
    assert_int_equal(occl_pool_release(pool, id), OCCL_E_HANDLE);
    assert_int_equal(occl_pool_arrived(pool, id, 1), OCCL_E_HANDLE);
    id = request(comm, 1, 1);
    uint64_t same = request(comm, 1, 2);
    assert_int_equal(occl_pool_arrived(pool, id, 5), OCCL_OK);
    assert_int_equal(occl_pool_arrived(pool, same, 5), OCCL_E_INVALID); /* not distinct */
    assert_int_equal(occl_pool_arrived(pool, same, OCCL_POOL_TICKET(5, 1)), OCCL_OK);
    assert_int_equal(occl_pool_release(pool, id), OCCL_OK);
    assert_int_equal(occl_pool_release(pool, same), OCCL_OK);
    assert_int_equal(occl_pool_comm_remove(pool, comm), OCCL_OK);
    assert_int_equal(occl_pool_comm_remove(pool, comm), OCCL_E_HANDLE);
}

/* Random histories: units are conserved, nobody holds in part, and when everything has arrived and
 * revocations return, all ops get their units in the end. */
static void random_histories_end(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t ids[40], random = seed, id, user;
        uint8_t holds[40] = {0}, done[40] = {0}, arrived[40] = {0}, revoking[40] = {0};
        uint32_t comm = start(1 + seed % 3, seed % 2), left = 40, moves = 0;
        for (uint32_t i = 0; i < 40; i++)
            ids[i] = request(comm, 1, i);
        while (left > 0) {
            enum occl_pool_action action;
            struct occl_pool_stats stats;
            uint32_t i;
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            i = (uint32_t)(random >> 33) % 40;
            assert_true(++moves < 100000);
            if (!arrived[i] && random >> 62) {
                arrived[i] = 1;
                (void)occl_pool_arrived(pool, ids[i], (i * 7) % 40);
            } else if (revoking[i]) {
                revoking[i] = 0;
                assert_int_equal(occl_pool_returned(pool, ids[i]), OCCL_OK);
            } else if (holds[i] && arrived[i] && !done[i]) {
                done[i] = 1;
                left--;
                assert_int_equal(occl_pool_release(pool, ids[i]), OCCL_OK);
                holds[i] = 0;
            }
            while ((action = occl_pool_step(pool, &id, &user)) != OCCL_POOL_NONE) {
                assert_int_equal(holds[user], action == OCCL_POOL_REVOKE);
                holds[user] = action == OCCL_POOL_GRANT;
                revoking[user] = action == OCCL_POOL_REVOKE;
            }
            occl_pool_stats(pool, &stats);
            assert_true(stats.holding + stats.revoking <= 1 + seed % 3 + seed % 2);
            assert_int_equal(stats.ops, left);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(arrived_ops_take_from_those_that_have_not, teardown),
        cmocka_unit_test_teardown(the_older_wounds_the_youngest, teardown),
        cmocka_unit_test_teardown(an_arriving_holder_keeps_its_units, teardown),
        cmocka_unit_test_teardown(while_the_oldest_waits_nobody_overtakes, teardown),
        cmocka_unit_test_teardown(the_reserve_belongs_to_its_communicator, teardown),
        cmocka_unit_test_teardown(an_older_ticket_takes_the_reserve, teardown),
        cmocka_unit_test_teardown(wrong_calls_are_refused, teardown),
        cmocka_unit_test_teardown(random_histories_end, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
