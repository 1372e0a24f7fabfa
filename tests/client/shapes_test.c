/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and layouts (class F of the reports from the field) for every operation, and every type and
 * operator where they matter: nothing at all, ranks that have nothing, in place at every root,
 * sizes that ranks do not divide with forbidden pages around them, and memory that is mapped again.
 */
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "shm_ipc/datatype.h"
#include "tests/client/call.h"
#include "tests/gpu_host/reference.h"

#define RANKS_MAX 8
#define PAGE 4096u

static struct world w;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w) == 0 ? 0 : -1;
}

static int setup_ordered(void **state) {
    return world_use_ordered(state) || setup(state) ? -1 : 0;
}
static int teardown_ordered(void **state) {
    int status = teardown(state);
    return world_use_usual(state) || status ? -1 : 0;
}

/* Calls `each` with every type, and every operator where the kind has one. */
static int for_types(struct world_rank *me, struct call *c,
                     int (*each)(struct world_rank *me, struct call *c)) {
    bool reduces = call_traits[c->kind].reduces;
    for (uint32_t type = 0; type < OCCL_DT_LIMIT; type++)
        for (uint32_t op = 0; occl_dtype_name(type) && op < (reduces ? OCCL_RO_LIMIT : 1u); op++) {
            c->type = (enum occl_type)type;
            c->op = (enum occl_redop)op;
            if ((!reduces || reference_supports(type, op)) && each(me, c))
                return 1;
        }
    return 0;
}

/* Blocking, with a factor where one is needed: 1. */
static int run(struct world_rank *me, const struct call *c) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    union {
        float f;
        double d;
        uint64_t u;
    } one = {.u = 1};
    if (c->type == OCCL_FLOAT64)
        one.d = 1;
    else if (reference_is_float(c->type))
        one.f = 1;
    if (call_traits[c->kind].reduces && c->op == OCCL_PREMULSUM)
        attr.factor = &one;
    attr.timeout_ns = 20000000000;
    WORLD_OK(call_submit(c, me->rank, me->size, me->comm, &attr, NULL));
    return 0;
}

static bool all_bytes(const void *memory, size_t bytes, unsigned char value) {
    const unsigned char *at = memory;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value)
            return false;
    return true;
}

/* ---- F01: nothing ---- */

static int nothing(struct world_rank *me, struct call *c) {
    static unsigned char send[64], recv[64];
    bool given = (c->type + c->op + (uint32_t)c->kind) % 2 == 0;
    memset(send, 0x11, sizeof send);
    memset(recv, 0x22, sizeof recv);
    c->count = 0;
    c->send = given ? send : NULL;
    c->recv = given ? recv : NULL;
    if (run(me, c))
        return 1;
    WORLD_CHECK(all_bytes(send, sizeof send, 0x11) && all_bytes(recv, sizeof recv, 0x22));
    return 0;
}

/* More than the page has chunks for, all begun before one is waited for. */
static int nothing_many_times(struct world_rank *me) {
    enum { OPS = 150 };
    struct occl_request requests[OPS];
    for (int kind = 0; kind < CALL_MOVERS; kind++) {
        for (int i = 0; i < OPS; i++) {
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            struct call c = {.kind = (enum call_kind)kind, .type = OCCL_INT32};
            attr.tag = i % 2 ? 1 + (uint32_t)i : 0;
            attr.timeout_ns = 20000000000;
            WORLD_OK(call_submit(&c, me->rank, me->size, me->comm, &attr, &requests[i]));
        }
        WORLD_OK(occl_wait_all(requests, OPS));
    }
    return 0;
}

static int f01(struct world_rank *me) {
    double start = world_now();
    for (int kind = 0; kind < CALL_MOVERS; kind++) {
        struct call c = {.kind = (enum call_kind)kind, .root = kind % me->size};
        int32_t one = me->rank, sum = 0;
        if (for_types(me, &c, nothing))
            return 1;
        /* The order with later ops is kept. */
        WORLD_OK(occl_all_reduce(&one, &sum, 1, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
        WORLD_CHECK(sum == me->size * (me->size - 1) / 2);
    }
    for (int round = 0; round < 10 && me->rank < 2 && me->size > 1; round++) {
        for (int sender = 0; sender < 2; sender++) /* ordered daemons want one order */
            WORLD_OK(me->rank == sender
                         ? occl_send(NULL, 0, OCCL_FLOAT16, 1 - me->rank, me->comm, NULL, NULL)
                         : occl_recv(NULL, 0, OCCL_FLOAT16, 1 - me->rank, me->comm, NULL, NULL));
    }
    WORLD_CHECK(nothing_many_times(me) == 0);
    WORLD_CHECK(world_now() - start < 15.0 * world_slowness());
    return 0;
}
static void test_F01_zero_elements(void **state) {
    (void)state;
    for (int size = 1; size <= 4; size++)
        assert_int_equal(world_run(&w, size, f01, NULL, 60), 0);
}
static void test_F01_zero_elements_by_the_daemon(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, f01, NULL, 60), 0);
}

/* ---- F02: ranks that have nothing ---- */

enum lack { ONE_GETS_NOTHING, ONE_GIVES_NOTHING, HALF_HAS_NOTHING, ONE_PAIR, NOBODY_HAS, LACKS };

static size_t f02_count(int lack, size_t count, int from, int to) {
    switch (lack) {
    case ONE_GETS_NOTHING:
        return to == 1 ? 0 : count + (size_t)from;
    case ONE_GIVES_NOTHING:
        return from == 1 ? 0 : count + (size_t)to;
    case HALF_HAS_NOTHING:
        return from % 2 || to % 2 ? 0 : count;
    case ONE_PAIR:
        return from == 0 && to == 1 ? count : 0;
    default:
        return 0;
    }
}

struct f02 {
    int lack;
    size_t count;
    bool zero_copy;
    unsigned char *send, *recv;
};

/* What k and this rank send each other by the rules of the kind: a block has one size for all. */
static size_t f02_block(const struct f02 *f, const struct call *c, int from, int to) {
    if (c->kind == CALL_ALL_GATHER_V || c->kind == CALL_GATHER_V)
        to = 1;
    if (c->kind == CALL_REDUCE_SCATTER_V || c->kind == CALL_SCATTER_V)
        from = 0;
    return f02_count(f->lack, f->count, from, to);
}

static int f02_case(struct world_rank *me, struct call *c, const struct f02 *f) {
    const struct call_traits *t = &call_traits[c->kind];
    size_t gives[RANKS_MAX], gets[RANKS_MAX], at = 0;
    int32_t *send = (int32_t *)(void *)f->send, *recv = (int32_t *)(void *)f->recv;
    for (int k = 0; k < me->size; k++) {
        gives[k] = f02_block(f, c, me->rank, k);
        gets[k] = f02_block(f, c, k, me->rank);
        for (size_t i = 0; i < gives[k] && (t->send_all || k == 0); i++)
            send[at++] = (int32_t)(world_pattern(
                (uint64_t)me->rank * 17 + (uint64_t)(t->send_all ? k : 0), i));
    }
    c->count = t->send_all ? f02_block(f, c, 0, me->rank) : gives[0];
    c->send_counts = gives;
    c->recv_counts = c->kind == CALL_REDUCE_SCATTER_V ? gives : gets;
    c->type = OCCL_INT32;
    c->send = at ? send : NULL;
    c->recv = recv;
    memset(recv, 0x33, (RANKS_MAX * (f->count + RANKS_MAX) + 1) * 4);
    if (run(me, c))
        return 1;
    at = 0;
    for (int k = 0; k < me->size && call_receives(c, me->rank); k++) {
        int from = c->kind == CALL_SCATTER_V ? c->root : k;
        for (size_t i = 0; i < gets[k] && (t->recv_all || k == 0); i++) {
            int32_t want = 0;
            for (int r = t->reduces ? 0 : from; r <= (t->reduces ? me->size - 1 : from); r++)
                want += (int32_t)world_pattern(
                    (uint64_t)r * 17 + (uint64_t)(t->send_all ? me->rank : 0), i);
            WORLD_CHECK(recv[at] == want);
            at++;
        }
    }
    WORLD_CHECK(recv[at] == 0x33333333);
    return 0;
}

static int f02(struct world_rank *me) {
    static const size_t counts[] = {1, 100, 2000, 30000};
    struct f02 f = {.zero_copy = me->arg != NULL};
    size_t most = RANKS_MAX * (30000 + RANKS_MAX) * 4 + 64;
    void *memory[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        if (f.zero_copy)
            WORLD_OK(occl_mem_alloc(most, &memory[i]));
        else
            memory[i] = world_alloc(most);
    }
    f.send = memory[0];
    f.recv = memory[1];
    for (int kind = CALL_ALL_GATHER_V; kind < CALL_MOVERS; kind++)
        for (f.lack = 0; f.lack < LACKS; f.lack++)
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                struct call c = {.kind = (enum call_kind)kind, .root = (int)i % me->size};
                f.count = counts[i];
                if (f02_case(me, &c, &f)) {
                    fprintf(stderr, "%s lack %d count %zu\n", call_traits[kind].name, f.lack,
                            f.count);
                    return 1;
                }
            }
    return 0;
}
static void test_F02_ranks_that_have_nothing(void **state) {
    static const int sizes[] = {2, 3, 4, 7};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(world_run(&w, sizes[i], f02, NULL, 60), 0);
        assert_int_equal(world_run(&w, sizes[i], f02, &w, 60), 0);
    }
}
static void test_F02_ranks_that_have_nothing_by_the_daemon(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, f02, NULL, 60), 0);
    assert_int_equal(world_run(&w, 4, f02, &w, 60), 0);
}

/* ---- F06: in place at every root ---- */

#define F06_BYTES (RANKS_MAX * 1001u * 16u)

/* Any bytes, the same whenever this rank is asked; NaNs among them. */
static void f06_fill(const struct world_rank *me, const struct call *c, unsigned char *to,
                     size_t elements) {
    struct random random = {1000u + (uint64_t)me->rank * 7919 + c->type};
    for (size_t i = 0; i < elements; i++)
        reference_sample_at(&random, c->type, 2, i, to);
}

static int f06_case(struct world_rank *me, struct call *c) {
    static unsigned char send[F06_BYTES], recv[F06_BYTES], both[F06_BYTES];
    static const size_t counts[] = {1, 3, 1000};
    const struct call_traits *t = &call_traits[c->kind];
    size_t element = occl_dtype_bytes(c->type);
    for (size_t n = 0; n < 6; n++) { /* the root leaves a buffer out, or names its own block */
        c->count = counts[n % 3];
        bool is_root = me->rank == c->root, left_out = n >= 3;
        size_t block = c->count * element, own = (size_t)me->rank * block;
        size_t sends = call_send_elements(c, me->rank, me->size);
        size_t gets = call_recv_elements(c, me->rank, me->size) * element;
        f06_fill(me, c, send, sends);
        memset(recv, 0x44, sizeof recv);
        c->send = send;
        c->recv = recv;
        if (run(me, c))
            return 1;
        if (is_root) { /* now in place; the others as before */
            bool inner = t->recv_all != t->send_all;
            memset(both, 0x44, sizeof both);
            memcpy(both + (t->recv_all ? own : 0), send, sends * element);
            c->send = t->source ? both : left_out ? NULL : both + (inner ? own : 0);
            c->recv = !t->source ? both : left_out ? NULL : both + (inner ? own : 0);
        } else {
            memset(both, 0x44, sizeof both);
            c->recv = both;
        }
        if (run(me, c))
            return 1;
        const unsigned char *got = is_root && t->source && t->send_all ? both + own : both;
        if (gets && memcmp(recv, got, gets) != 0) {
            fprintf(stderr, "rank %d: %s root %d type %s op %d count %zu left out %d\n", me->rank,
                    t->name, c->root, occl_dtype_name(c->type), (int)c->op, c->count, left_out);
            return 1;
        }
        if (is_root && t->source) /* what it gives is not changed */
            WORLD_CHECK(memcmp(both, send, sends * element) == 0);
    }
    return 0;
}

static int f06(struct world_rank *me) {
    for (int kind = 0; kind < CALL_MOVERS; kind++)
        for (int root = 0; root < me->size; root++) {
            struct call c = {.kind = (enum call_kind)kind, .root = root};
            if (call_traits[kind].rooted && for_types(me, &c, f06_case))
                return 1;
        }
    return 0;
}
static void test_F06_in_place_at_every_root(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, f06, NULL, 60), 0);
    assert_int_equal(world_run(&w, 4, f06, NULL, 60), 0);
}
static void test_F06_in_place_at_every_root_by_the_daemon(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, f06, NULL, 60), 0);
}

/* ---- F07: sizes that the ranks do not divide, between forbidden pages ---- */

#define F07_PAGES 20u
/* Pages with a forbidden one before and behind them. */
static unsigned char *fence(void) {
    size_t bytes = (F07_PAGES + 2) * PAGE;
    unsigned char *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + PAGE, F07_PAGES * PAGE, PROT_READ | PROT_WRITE))
        abort();
    return p + PAGE;
}
/* A buffer that ends, or begins, where memory does. */
static unsigned char *fenced(unsigned char *memory, size_t bytes, bool at_end) {
    return at_end ? memory + F07_PAGES * PAGE - bytes : memory;
}

/* `total` elements cut as evenly as it goes. */
static size_t share(size_t total, int size, int rank) {
    return total / (size_t)size + ((size_t)rank < total % (size_t)size ? 1 : 0);
}

static int f07_case(struct world_rank *me, struct call *c, size_t total, bool at_end) {
    static unsigned char *memory[2];
    const struct call_traits *t = &call_traits[c->kind];
    size_t element = occl_dtype_bytes(c->type), counts[RANKS_MAX], equal[RANKS_MAX], sum = 0;
    size_t mine = share(total, me->size, me->rank), before = 0;
    for (int i = 0; i < 2; i++)
        memory[i] = memory[i] ? memory[i] : fence();
    for (int k = 0; k < me->size; k++) {
        counts[k] = share(total, me->size, k);
        equal[k] = mine; /* all to all: what rank k gets from anybody is its share */
        before += k < me->rank ? counts[k] : 0;
        sum += mine;
    }
    bool to_all = c->kind == CALL_ALL_TO_ALL_V;
    size_t sends = t->send_all ? total : mine;
    size_t gets = to_all ? sum : t->recv_all ? total : mine;
    if (!call_sends(c, me->rank))
        sends = 0;
    if (!call_receives(c, me->rank))
        gets = 0;
    unsigned char *send = fenced(memory[0], sends * element, at_end);
    unsigned char *recv = fenced(memory[1], gets * element, at_end);
    for (size_t i = 0; i < sends; i++) { /* small numbers, as bytes: exact in every type used */
        size_t index = t->send_all ? i : before + i;
        memset(send + i * element, 0, element);
        send[i * element] =
            (unsigned char)((index * 3 + (t->send_all ? (size_t)me->rank : 0)) % 20);
    }
    memset(recv, 0x66, gets * element);
    c->count = mine;
    c->send_counts = counts;
    c->recv_counts = to_all ? equal : counts;
    c->send = sends ? send : NULL;
    c->recv = gets ? recv : NULL;
    if (run(me, c))
        return 1;
    for (size_t i = 0; i < gets; i++) {
        size_t from = to_all && mine ? i / mine : 0, want = 0;
        size_t index = to_all && mine ? before + i % mine : t->recv_all ? i : before + i;
        if (t->reduces)
            for (int r = 0; r < me->size; r++)
                want += (index * 3 + (size_t)r) % 20;
        else
            want = (index * 3 + (to_all ? from : t->send_all ? (size_t)c->root : 0)) % 20;
        WORLD_CHECK(recv[i * element] == (unsigned char)want);
    }
    return 0;
}

static int f07(struct world_rank *me) {
    static const size_t totals[] = {1, 2, 3, 5, 17, 73, 1021};
    static const enum occl_type types[] = {OCCL_UINT8, OCCL_INT16, OCCL_INT32, OCCL_UINT64};
    for (int kind = CALL_ALL_GATHER_V; kind < CALL_MOVERS; kind++)
        for (size_t i = 0; i < 7 * 4 * 2; i++) {
            struct call c = {
                .kind = (enum call_kind)kind, .type = types[i / 7 % 4], .root = (int)i % me->size};
            if (f07_case(me, &c, totals[i % 7], i >= 28)) {
                fprintf(stderr, "%s of %zu elements of type %d\n", call_traits[kind].name,
                        totals[i % 7], (int)c.type);
                return 1;
            }
        }
    return 0;
}
static void test_F07_73_elements_over_4_ranks(void **state) {
    (void)state;
    for (int size = 1; size <= 8; size++)
        assert_int_equal(world_run(&w, size, f07, NULL, 60), 0);
}
static void test_F07_73_elements_over_4_ranks_by_the_daemon(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, f07, NULL, 60), 0);
}

/* ---- F10: the same address, other memory ---- */

enum change { UNMAPPED, MAPPED_OVER, MOVED, TRIMMED, OF_THE_LIBRARY, CHANGES, PLAIN };
#define F10_BYTES (1u << 21)

static void *map_at(void *at, int flags) {
    void *p =
        mmap(at, F10_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}
static void *map_over(void *at) {
    return map_at(at, at ? MAP_FIXED : 0);
}

/* Memory for one round, mostly where that of the round before was. */
static void *f10_get(enum change change, void *last) {
    void *p = last;
    switch (change) {
    case MAPPED_OVER:
        return map_over(last);
    case MOVED: { /* other pages move to the address */
        void *other = map_over(NULL);
        if (last &&
            mremap(other, F10_BYTES, F10_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, last) != last)
            abort();
        return last ? last : other;
    }
    case TRIMMED:
        return malloc(F10_BYTES);
    case OF_THE_LIBRARY:
        return occl_mem_alloc(F10_BYTES, &p) == OCCL_SUCCESS ? p : NULL;
    default: /* there if nobody else came meanwhile */
        return map_at(last, 0);
    }
}

static void f10_put(enum change change, void *p) {
    if (change == UNMAPPED || change == PLAIN)
        (void)munmap(p, F10_BYTES);
    if (change == TRIMMED) {
        free(p);
        (void)malloc_trim(0);
    }
    if (change == OF_THE_LIBRARY)
        (void)occl_mem_free(p);
}

static int f10(struct world_rank *me) {
    static const size_t counts[] = {5, 200, 40000};
    void *last[2] = {NULL, NULL};
    uint64_t salt = 0;
    for (int round = 0; round < 12 * CHANGES; round++) {
        /* An even round of the library's memory is followed by plain memory at its address. */
        enum change change = (enum change)(round / 12);
        if (change == OF_THE_LIBRARY && round % 2)
            change = PLAIN;
        for (int kind = 0; kind < CALL_MOVERS; kind++, salt++) {
            struct call c = {.kind = (enum call_kind)kind,
                             .type = OCCL_INT32,
                             .root = round % me->size,
                             .count = counts[salt % 3]};
            for (int i = 0; i < 2; i++)
                WORLD_CHECK((last[i] = f10_get(change, last[i])) != NULL);
            c.send = last[0];
            c.recv = last[1];
            call_fill(&c, salt, me->rank, me->size, last[0]);
            if (run(me, &c))
                return 1;
            WORLD_CHECK(call_wrong(&c, salt, me->rank, me->size, last[1]) == 0);
            for (int i = 0; i < 2; i++)
                f10_put(change, last[i]);
        }
        if (change == TRIMMED || (round + 1) % 12 == 0)
            last[0] = last[1] = NULL;
    }
    return 0;
}
static void test_F10_memory_that_is_mapped_again(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, f10, NULL, 60), 0);
    assert_int_equal(world_run(&w, 3, f10, NULL, 60), 0);
}

int main(void) {
    const struct CMUnitTest usual[] = {
        cmocka_unit_test(test_F01_zero_elements),
        cmocka_unit_test(test_F02_ranks_that_have_nothing),
        cmocka_unit_test(test_F06_in_place_at_every_root),
        cmocka_unit_test(test_F07_73_elements_over_4_ranks),
        cmocka_unit_test(test_F10_memory_that_is_mapped_again),
    };
    const struct CMUnitTest ordered[] = {
        cmocka_unit_test(test_F01_zero_elements_by_the_daemon),
        cmocka_unit_test(test_F02_ranks_that_have_nothing_by_the_daemon),
        cmocka_unit_test(test_F06_in_place_at_every_root_by_the_daemon),
        cmocka_unit_test(test_F07_73_elements_over_4_ranks_by_the_daemon),
    };
    int failed = cmocka_run_group_tests_name("client_shapes", usual, setup, teardown);
    return failed + cmocka_run_group_tests_name("client_shapes_by_the_daemon", ordered,
                                                setup_ordered, teardown_ordered);
}
