/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes around every border: of the lines, of the page's chunks, of strands and slices, of cache
 * lines and pages, byte by byte, for every kind; in all mixtures of ranks that work in place and
 * ranks that do not, in the library's memory and in their own; and with as many ranks as there can
 * be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/client/call.h"

#define GUARD 0xa7

struct plan {
    const size_t *counts; /* of bytes; each with its neighbours, if wide */
    size_t count_of_counts, most;
    bool wide;
};

/* Where a rank's buffers are in this case; the others choose otherwise. */
struct buffers {
    uint8_t *memory[2][2]; /* own, the library's; two of each */
};

static int one_case(struct world_rank *me, struct call *c, const struct buffers *b, uint64_t salt) {
    const struct call_traits *t = &call_traits[c->kind];
    size_t sends = call_send_elements(c, me->rank, me->size);
    size_t gets = call_recv_elements(c, me->rank, me->size);
    size_t own = (size_t)me->rank * c->count;
    uint64_t mix = world_pattern((uint64_t)me->rank, salt);
    bool in_place = mix % 2 && sends && gets;
    /* Not aligned to anything, mostly. */
    uint8_t *send = b->memory[mix / 2 % 2][0] + mix / 4 % 64;
    uint8_t *recv = b->memory[mix / 256 % 2][1] + mix / 8 % 64;
    if (in_place && t->send_all && !t->recv_all)
        recv = send + own;
    else if (in_place)
        send = recv + (t->recv_all && !t->send_all ? own : 0);
    recv[-1] = recv[gets] = GUARD;
    memset(recv, 0, gets);
    c->send = sends ? send : NULL;
    c->recv = gets ? recv : NULL;
    call_fill(c, salt, me->rank, me->size, send);
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = 30000000000;
    WORLD_OK(call_submit(c, me->rank, me->size, me->comm, &attr, NULL));
    if (call_wrong(c, salt, me->rank, me->size, recv)) {
        fprintf(stderr, "salt %llu, in place %d\n", (unsigned long long)salt, in_place);
        return 1;
    }
    if (!in_place)
        WORLD_CHECK(recv[-1] == GUARD && recv[gets] == GUARD);
    return 0;
}

static int around(struct world_rank *me) {
    const struct plan *plan = me->arg;
    size_t bytes = (size_t)me->size * (plan->most + 2) + 256;
    struct buffers b;
    uint64_t salt = (uint64_t)me->size;
    for (int i = 0; i < 2; i++) {
        void *p;
        b.memory[0][i] = (uint8_t *)world_alloc(bytes) + 64;
        WORLD_OK(occl_mem_alloc(bytes, &p));
        b.memory[1][i] = (uint8_t *)p + 64;
    }
    for (size_t i = 0; i < plan->count_of_counts; i++)
        for (int kind = 0; kind < CALL_MOVERS; kind++)
            for (int near = plan->wide ? -1 : 0; near <= (plan->wide ? 1 : 0); near++, salt++) {
                /* The border may be one of a block, or of all of them. */
                bool all = call_traits[kind].send_all && i % 2;
                size_t border = plan->counts[i] / (all ? (size_t)me->size : 1);
                struct call c = {.kind = (enum call_kind)kind,
                                 .type = OCCL_UINT8,
                                 .root = (int)(salt % (uint64_t)me->size),
                                 .count = border + (size_t)near};
                if (border > 0 && one_case(me, &c, &b, salt))
                    return 1;
            }
    return 0;
}

static void run(const struct plan *plan, const int *sizes, size_t count) {
    struct world w;
    world_start(&w, NULL);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(world_run(&w, sizes[i], around, (void *)(uintptr_t)plan, 60), 0);
    assert_int_equal(world_stop(&w), 0);
}

static const size_t small[] = {1,    8,    16,   24,   32,   40,   48,   64,   96,
                               112,  128,  136,  192,  256,  320,  448,  512,  576,
                               768,  960,  1024, 1365, 1536, 2040, 2048, 2560, 3072,
                               3584, 3968, 4000, 4032, 4064, 4096, 4160};
static const size_t large[] = {8192,   16384,  32768,  65536,  98304,  131072,
                               196608, 262144, 524288, 786432, 1048576};

static void test_borders_of_lines_and_page(void **state) {
    static const int sizes[] = {1, 2, 3, 5, 8};
    const struct plan plan = {small, sizeof small / sizeof small[0], 4162, true};
    (void)state;
    run(&plan, sizes, 5);
}
static void test_borders_of_strands(void **state) {
    static const int sizes[] = {2, 3};
    const struct plan plan = {large, sizeof large / sizeof large[0], 1048578, true};
    (void)state;
    run(&plan, sizes, 2);
}
static void test_64_ranks(void **state) {
    static const int sizes[] = {64};
    static const size_t counts[] = {1, 8, 33, 64, 129, 4097, 20000};
    const struct plan plan = {counts, sizeof counts / sizeof counts[0], 20000, false};
    (void)state;
    run(&plan, sizes, 1);
}

static void test_borders_of_lines_and_page_by_the_daemon(void **state) {
    test_borders_of_lines_and_page(state);
}
static void test_borders_of_strands_by_the_daemon(void **state) {
    test_borders_of_strands(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders_of_lines_and_page),
        cmocka_unit_test(test_borders_of_strands),
        cmocka_unit_test(test_64_ranks),
        cmocka_unit_test_setup_teardown(test_borders_of_lines_and_page_by_the_daemon,
                                        world_use_ordered, world_use_usual),
        cmocka_unit_test_setup_teardown(test_borders_of_strands_by_the_daemon, world_use_ordered,
                                        world_use_usual),
    };
    return cmocka_run_group_tests_name("client_borders", tests, NULL, NULL);
}
