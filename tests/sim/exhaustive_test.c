/* SPDX-License-Identifier: Apache-2.0 */
/* No order of submission can deadlock: every program of 2 or 3 ranks with up to 3 ops, in every
 * order, with every set of application waits that is not itself a cycle, over 1 to 3 run slots. And
 * the rules that look as if they would do are seen to fail (negative controls). With --full as
 * argument the larger systems are searched too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/model.h"

static bool full;

static const uint8_t ORDERS[6][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
/* Waits after the second last submission at the latest: bit 0 for the first op before the second
 * submission, bit 1 for the first, bit 2 for the second op before the third. */
static const uint8_t WAITS[6] = {0, 1, 2, 4, 5, 6};

static uint32_t order_count(uint32_t ops) {
    return ops == 3 ? 6 : ops;
}

static uint32_t wait_count(uint32_t ops) {
    return ops == 3 ? 6 : ops;
}

static struct model_script script_of(uint32_t ops, uint32_t order, uint32_t waits) {
    struct model_script s;
    uint32_t at = 0;
    memset(&s, 0, sizeof s);
    for (uint32_t i = 0; i < ops; i++) {
        s.items[at++] = MODEL_SUBMIT(ORDERS[order][i]);
        if (i == 0 && ops > 1 && (WAITS[waits] & 1))
            s.items[at++] = MODEL_WAIT(ORDERS[order][0]);
        if (i == 1 && ops > 2 && (WAITS[waits] & 2))
            s.items[at++] = MODEL_WAIT(ORDERS[order][0]);
        if (i == 1 && ops > 2 && (WAITS[waits] & 4))
            s.items[at++] = MODEL_WAIT(ORDERS[order][1]);
    }
    return s;
}

struct totals {
    uint32_t systems, deadlocked, skipped;
    uint64_t states;
    bool phi_fell, complete;
};

/* Place of each op in the order in which a rank submits. */
static void places_of(const struct model_script *script, uint32_t *out_places) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < MODEL_SCRIPT_MAX; i++)
        if (script->items[i] != 0 && script->items[i] < MODEL_WAIT(0))
            out_places[script->items[i] & 0xf] = next++;
}

/* The smallest number such that, for some common reference order, no op is preceded at any rank by
 * more than so many ops that come later in the reference order. */
static uint32_t displacement(const struct model_system *m) {
    uint32_t least = m->ops;
    for (uint32_t reference = 0; reference < order_count(m->ops); reference++) {
        uint32_t most = 0;
        for (uint32_t r = 0; r < m->ranks; r++) {
            uint32_t places[3] = {0, 0, 0};
            places_of(&m->scripts[r], places);
            for (uint32_t i = 0; i < m->ops; i++) {
                uint32_t ahead = 0;
                for (uint32_t j = i + 1; j < m->ops; j++)
                    ahead += places[ORDERS[reference][j]] < places[ORDERS[reference][i]];
                most = ahead > most ? ahead : most;
            }
        }
        least = most < least ? most : least;
    }
    return least;
}

enum which { ALL = 0, EQUAL_ORDERS = 1, WITHOUT_WAITS = 2, WINDOW_SUFFICES = 3, WINDOW_SHORT = 4 };

static bool wanted(const struct model_system *m, enum which which) {
    switch (which) {
    case EQUAL_ORDERS:
        return displacement(m) == 0;
    case WINDOW_SUFFICES:
        return m->slots >= displacement(m) + 1;
    case WINDOW_SHORT:
        return m->slots < displacement(m) + 1;
    default:
        return true;
    }
}

static void search_one(const struct model_system *m, struct totals *totals) {
    struct model_result r;
    model_search(m, &r);
    totals->systems++;
    totals->deadlocked += r.dead > 0;
    totals->states += r.states;
    totals->phi_fell |= r.phi_fell;
    totals->complete &= r.complete;
    if (r.dead > 0 && m->rule == MODEL_POOL) {
        print_message("deadlock: %u slots, %u dead of %u states, scripts", m->slots, r.dead,
                      r.states);
        for (uint32_t k = 0; k < m->ranks; k++)
            for (uint32_t i = 0; i < MODEL_SCRIPT_MAX; i++)
                print_message("%s%02x", i ? " " : " | ", m->scripts[k].items[i]);
        print_message("\n");
    }
}

/* Searches all programs of the system's size. Where ids carry no meaning, rank 0's order is fixed
 * (the ops could be renamed). every: only each so-manieth program. */
static struct totals search_all(struct model_system m, enum which which, uint32_t every) {
    struct totals totals = {.complete = true};
    bool named = m.rule == MODEL_ESCAPE || m.rule == MODEL_WOUND_WAIT;
    uint32_t waits = which >= WITHOUT_WAITS ? 1 : wait_count(m.ops);
    uint32_t kinds = order_count(m.ops) * waits, programs = 1, seen = 0;
    for (uint32_t r = 0; r < m.ranks; r++)
        programs *= kinds;
    for (uint32_t p = 0; p < programs; p++) {
        uint32_t rest = p;
        bool skip = false;
        for (uint32_t r = 0; r < m.ranks; r++, rest /= kinds) {
            uint32_t order = rest % kinds / waits;
            skip |= r == 0 && !named && order != 0;
            m.scripts[r] = script_of(m.ops, order, rest % waits);
        }
        if (skip || !model_scripts_acyclic(&m) || !wanted(&m, which))
            continue;
        if (seen++ % every == 0)
            search_one(&m, &totals);
        else
            totals.skipped++;
    }
    print_message("%u ranks %u ops %u slots: %u systems, %llu states, %u deadlocked\n", m.ranks,
                  m.ops, m.slots, totals.systems, (unsigned long long)totals.states,
                  totals.deadlocked);
    assert_true(totals.systems > 0);
    assert_true(totals.complete);
    assert_false(totals.phi_fell);
    return totals;
}

static struct model_system system_of(enum model_rule rule, uint32_t ranks, uint32_t ops,
                                     uint32_t slots) {
    struct model_system m;
    memset(&m, 0, sizeof m);
    m.rule = rule;
    m.ranks = ranks;
    m.ops = ops;
    m.slots = slots;
    m.depth_slots = 2;
    m.landing_slots = 2;
    m.slices = 1;
    return m;
}

static void our_rule_never_deadlocks_two_ranks(void **state) {
    (void)state;
    for (uint32_t ops = 1; ops <= 3; ops++)
        for (uint32_t slots = 1; slots <= 3; slots++)
            assert_int_equal(
                search_all(system_of(MODEL_POOL, 2, ops, slots), ALL, full ? 1 : 4).deadlocked, 0);
}

static void our_rule_never_deadlocks_three_ranks(void **state) {
    (void)state;
    for (uint32_t ops = 1; ops <= 3; ops++)
        for (uint32_t slots = 1; slots <= 3; slots++) {
            struct model_system m = system_of(MODEL_POOL, 3, ops, slots);
            m.slices = ops < 3 ? 1 : 8;
            m.eager = ops == 3;
            assert_int_equal(search_all(m, ALL, ops < 3 ? 1 : full ? 7 : 97).deadlocked, 0);
        }
}

/* The reserve alone, with or without further slots. */
static void our_rule_never_deadlocks_with_a_reserve(void **state) {
    (void)state;
    for (uint32_t slots = 0; slots <= 1; slots++) {
        struct model_system m = system_of(MODEL_POOL, 2, 3, slots);
        m.reserve = 1;
        assert_int_equal(search_all(m, ALL, full ? 1 : 5).deadlocked, 0);
    }
}

static void ordered_executor_deadlocks(void **state) {
    (void)state;
    assert_true(search_all(system_of(MODEL_ORDERED, 2, 2, 0), ALL, 1).deadlocked > 0);
    assert_true(search_all(system_of(MODEL_ORDERED, 2, 3, 0), ALL, 1).deadlocked > 0);
    assert_int_equal(search_all(system_of(MODEL_ORDERED, 2, 3, 0), EQUAL_ORDERS, 1).deadlocked, 0);
}

static void escape_slot_alone_deadlocks(void **state) {
    (void)state;
    assert_true(search_all(system_of(MODEL_ESCAPE, 2, 3, 2), ALL, full ? 1 : 7).deadlocked > 0);
    assert_int_equal(search_all(system_of(MODEL_ESCAPE, 2, 3, 4), ALL, 31).deadlocked, 0);
}

static void plain_wound_wait_deadlocks(void **state) {
    (void)state;
    assert_true(search_all(system_of(MODEL_WOUND_WAIT, 2, 3, 2), ALL, full ? 1 : 7).deadlocked > 0);
}

/* Without application waits a FIFO window of displacement + 1 suffices and one less
 * never does (mistake 7 of daemon/sched/README.md: a submission ring that feeds a bounded window).
 */
static void window_needs_displacement_plus_one(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= 3; ranks++)
        for (uint32_t slots = 1; slots <= 3; slots++) {
            struct model_system m = system_of(MODEL_FIFO_WINDOW, ranks, 3, slots);
            m.slices = 8;
            assert_int_equal(search_all(m, WINDOW_SUFFICES, ranks == 2 || full ? 1 : 5).deadlocked,
                             0);
            if (slots >= ranks) /* two ranks are displaced by at most 1, three by at most 2 */
                continue;
            struct totals totals = search_all(m, WINDOW_SHORT, 1);
            assert_int_equal(totals.deadlocked, totals.systems);
        }
}

/* Mistake 1 of daemon/sched/README.md, and its cure: the same wire with credits. */
static void uncredited_shared_wire_deadlocks(void **state) {
    struct model_system m = system_of(MODEL_SHARED_WIRE, 2, 2, 1);
    (void)state;
    m.landing_slots = 1;
    assert_true(search_all(m, WITHOUT_WAITS, 1).deadlocked > 0);
    m.ops = 1; /* alone it is fine */
    assert_int_equal(search_all(m, WITHOUT_WAITS, 1).deadlocked, 0);
    m.rule = MODEL_CREDITED_WIRE;
    m.landing_slots = 2;
    for (m.ops = 1; m.ops <= 3; m.ops++)
        assert_int_equal(search_all(m, ALL, m.ops < 3 || full ? 1 : 5).deadlocked, 0);
}

/* A fused step with one slot gets stuck alone, whatever the rule. */
static void one_connector_slot_deadlocks_alone(void **state) {
    struct model_system m = system_of(MODEL_POOL, 2, 1, 1);
    (void)state;
    m.depth_slots = 1;
    assert_true(search_all(m, ALL, 1).deadlocked > 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_rule_never_deadlocks_two_ranks),
        cmocka_unit_test(our_rule_never_deadlocks_three_ranks),
        cmocka_unit_test(our_rule_never_deadlocks_with_a_reserve),
        cmocka_unit_test(ordered_executor_deadlocks),
        cmocka_unit_test(escape_slot_alone_deadlocks),
        cmocka_unit_test(plain_wound_wait_deadlocks),
        cmocka_unit_test(window_needs_displacement_plus_one),
        cmocka_unit_test(uncredited_shared_wire_deadlocks),
        cmocka_unit_test(one_connector_slot_deadlocks_alone),
    };
    full = argc > 1 && strcmp(argv[1], "--full") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
