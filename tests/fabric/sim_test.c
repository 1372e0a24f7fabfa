/* SPDX-License-Identifier: Apache-2.0 */
/* The sim backend: conformance, and what is its own: determinism and the faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fabric/sim.h"
#include "tests/fabric/conformance.h"

struct sim_pair {
    struct occl_fabric_sim_world *world;
    uint64_t now;
};

static void open_pair(void *self, uint64_t seed, struct occl_fabric **out_pair) {
    struct sim_pair *p = (struct sim_pair *)self;
    struct occl_fabric_sim_config config = {.seed = seed,
                                            .nodes = 2,
                                            .posts_max = 200,
                                            .delay_min_ns = 50,
                                            .delay_max_ns = 900,
                                            .reorder_permille = 300};
    assert_int_equal(occl_fabric_sim_world_create(&config, &p->world), OCCL_OK);
    for (uint32_t n = 0; n < 2; n++) {
        struct occl_fabric_sim_open open = {p->world, n};
        assert_int_equal(OCCL_FABRIC_SIM.open(&open, &out_pair[n]), OCCL_OK);
    }
}

static void end_pair(void *self) {
    struct sim_pair *p = (struct sim_pair *)self;
    assert_int_equal(occl_fabric_sim_in_flight(p->world), 0);
    occl_fabric_sim_world_destroy(p->world);
    p->world = NULL;
}

static void cut(void *self) {
    occl_fabric_sim_cut(((struct sim_pair *)self)->world, 0, 1);
}

static uint64_t pass(void *self) {
    return ((struct sim_pair *)self)->now += 100;
}

/* Order in which 40 data messages land, and when the last one did. */
static uint64_t landing_order(uint64_t seed, uint32_t slow_factor, uint64_t *out_last_ns) {
    struct sim_pair p = {NULL, 0};
    struct occl_fabric *ends[2];
    struct occl_fabric_landing landing;
    static char bytes[64];
    uint64_t digest = 0;
    open_pair(&p, seed, ends);
    occl_fabric_sim_slow(p.world, 1, slow_factor);
    assert_int_equal(OCCL_FABRIC_SIM.landing_open(ends[1], bytes, 1, 64, 0, &landing), OCCL_OK);
    for (uint64_t i = 0; i < 40; i++) {
        struct occl_fabric_post post = {.peer = 1,
                                        .message = OCCL_FABRIC_DATA,
                                        .bytes = "abcdefgh",
                                        .length = 8,
                                        .immediate = i,
                                        .landing_key = landing.key};
        assert_int_equal(OCCL_FABRIC_SIM.post(ends[0], &post), OCCL_OK);
    }
    for (uint32_t landed = 0; landed < 40;) {
        struct occl_fabric_event e;
        uint64_t due = occl_fabric_sim_next_ns(p.world, 1);
        assert_true(due != OCCL_FABRIC_SIM_NEVER);
        if (OCCL_FABRIC_SIM.poll(ends[1], due, &e, 1) == 0)
            continue;
        digest = digest * 31 + e.immediate;
        *out_last_ns = due;
        landed++;
    }
    struct occl_fabric_event rest[64];
    (void)OCCL_FABRIC_SIM.close(ends[0], rest, 64);
    (void)OCCL_FABRIC_SIM.close(ends[1], rest, 64);
    end_pair(&p);
    return digest;
}

static void a_seed_decides_everything(void **state) {
    uint64_t last, orders = 0, in_order = 0, first = 0;
    (void)state;
    for (uint64_t i = 0; i < 40; i++)
        in_order = in_order * 31 + i;
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint64_t order = landing_order(seed, 1, &last);
        assert_true(order == landing_order(seed, 1, &last));
        first = seed == 0 ? order : first;
        orders += order != first;
        assert_true(order != in_order); /* data overtake each other */
    }
    assert_true(orders > 10);
}

static void a_slow_node_is_slow(void **state) {
    uint64_t fast, slow;
    (void)state;
    (void)landing_order(4, 1, &fast);
    (void)landing_order(4, 10, &slow);
    assert_true(slow >= 9 * fast);
}

int main(void) {
    struct sim_pair pair = {NULL, 0};
    const struct conformance_harness harness = {
        .ops = &OCCL_FABRIC_SIM,
        .open_pair = open_pair,
        .end_pair = end_pair,
        .cut = cut,
        .pass = pass,
        .self = &pair,
    };
    const struct CMUnitTest own[] = {
        cmocka_unit_test(a_seed_decides_everything),
        cmocka_unit_test(a_slow_node_is_slow),
    };
    int failures = occl_fabric_conformance(&harness);
    return failures + cmocka_run_group_tests(own, NULL, NULL);
}
