/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that run ahead of others: givers of thousands of reductions, gathers and fan-ins whose root
 * comes late or is slow, sources that nobody has listened to yet, roots that change, tags that the
 * root takes in another order. What is ahead is held back somewhere, nothing grows, nobody hangs,
 * and every result is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/call.h"

#define RANKS_MAX 8

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

/* Bytes of its own memory that a process has in use; pid 0: this one. What is shared (pages of
 * communicators, copies for ranks that cannot reach each other's memory) grows to a bound that
 * depends on how they do. */
static long resident(pid_t pid) {
    char path[64];
    long pages = 0, all = 0, shared = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)(pid ? pid : getpid()));
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%ld %ld %ld", &all, &pages, &shared) != 3)
        pages = shared = 0;
    if (file)
        (void)fclose(file);
    return (pages - shared) * 4096;
}

struct race {
    bool late;      /* the root comes when nobody moves on any more */
    bool slow;      /* the root takes its time for each op */
    bool turns;     /* each op has another root */
    uint32_t kinds; /* mask of enum call_kind */
    int ops;
    size_t count_max;
    uint32_t submitted[RANKS_MAX]; /* progress */
};

static int kind_at(const struct race *race, uint64_t number) {
    int kinds[CALL_KINDS], used = 0;
    for (int kind = 0; kind < CALL_KINDS; kind++)
        if (race->kinds >> kind & 1)
            kinds[used++] = kind;
    return kinds[world_pattern(7, number) % (uint32_t)used];
}

/* Until the others have not moved for a while. */
static void await_standstill(const struct race *race, int me, int size) {
    uint32_t before = 0, still = 0;
    while (still < 5) {
        uint32_t sum = 0;
        usleep(20000);
        for (int r = 0; r < size; r++)
            sum += r == me ? 0 : __atomic_load_n(&race->submitted[r], __ATOMIC_SEQ_CST);
        still = sum == before && sum > 0 ? still + 1 : 0;
        before = sum;
    }
}

static int runner(struct world_rank *me) {
    struct race *race = me->arg;
    int32_t *send = world_alloc(RANKS_MAX * (race->count_max + 1) * 4);
    int32_t *recv = world_alloc(RANKS_MAX * (race->count_max + 1) * 4);
    long before = 0;
    for (int i = 0; i < race->ops; i++) {
        struct call c = {.kind = (enum call_kind)kind_at(race, (uint64_t)i),
                         .type = OCCL_INT32,
                         .root = race->turns ? i % me->size : 0,
                         .count = 1 + world_pattern(3, (uint64_t)i) % race->count_max,
                         .send = send,
                         .recv = recv};
        if (c.kind >= CALL_MOVERS)
            c.count = 0;
        if (race->late && i == 0 && me->rank == 0)
            await_standstill(race, 0, me->size);
        if (race->slow && i % 8 == 0 && me->rank == c.root)
            usleep(100);
        call_fill(&c, (uint64_t)i, me->rank, me->size, send);
        memset(recv, 0, call_recv_elements(&c, me->rank, me->size) * 4);
        WORLD_OK(call_submit(&c, me->rank, me->size, me->comm, NULL, NULL));
        WORLD_CHECK(call_wrong(&c, (uint64_t)i, me->rank, me->size, recv) == 0);
        __atomic_store_n(&race->submitted[me->rank], (uint32_t)i + 1, __ATOMIC_SEQ_CST);
        if (i == race->ops / 2) /* what is kept for reuse has been made */
            before = resident(0);
    }
    WORLD_CHECK(resident(0) - before < 1 << 20);
    return 0;
}

#define BIT(kind) (1u << (kind))
#define GIVERS (BIT(CALL_REDUCE) | BIT(CALL_GATHER) | BIT(CALL_GATHER_V) | BIT(CALL_FAN_IN))
#define SOURCES (BIT(CALL_BROADCAST) | BIT(CALL_SCATTER) | BIT(CALL_SCATTER_V) | BIT(CALL_FAN_OUT))

static void race(struct race plan, int size) {
    struct race *shared = world_shared(sizeof *shared);
    *shared = plan;
    long before = resident(w.daemon);
    assert_int_equal(world_run(&w, size, runner, shared, 60), 0);
    assert_true(resident(w.daemon) - before < 8 << 20);
}

static void test_givers_whose_root_comes_late(void **state) {
    (void)state;
    for (int kind = 0; kind < CALL_KINDS; kind++)
        if (GIVERS >> kind & 1)
            race((struct race){.late = true, .kinds = BIT(kind), .ops = 4000, .count_max = 20}, 3);
    race((struct race){.late = true, .kinds = GIVERS, .ops = 8000, .count_max = 200}, 4);
}
static void test_givers_whose_root_is_slow(void **state) {
    (void)state;
    race((struct race){.slow = true, .kinds = GIVERS, .ops = 8000, .count_max = 300}, 4);
    race((struct race){.slow = true, .kinds = GIVERS, .ops = 2000, .count_max = 3000}, 2);
}
static void test_sources_that_nobody_listens_to_yet(void **state) {
    (void)state;
    race((struct race){.slow = true, .kinds = SOURCES, .ops = 8000, .count_max = 300}, 4);
    race((struct race){.slow = true, .turns = true, .kinds = SOURCES, .ops = 8000, .count_max = 30},
         4);
}
static void test_roots_take_turns(void **state) {
    (void)state;
    race((struct race){.turns = true, .kinds = GIVERS | SOURCES, .ops = 10000, .count_max = 300},
         4);
    race((struct race){.turns = true,
                       .kinds = BIT(CALL_FAN_IN) | BIT(CALL_FAN_OUT),
                       .ops = 20000,
                       .count_max = 1},
         3);
    race((struct race){.turns = true, .kinds = BIT(CALL_KINDS) - 1, .ops = 4000, .count_max = 900},
         8);
}

/* Givers submit all tags first; the root takes them from the last to the first. */
static int backwards(struct world_rank *me) {
    enum { OPS = 1500 };
    static struct occl_request requests[OPS];
    static int32_t gives[OPS][4 * RANKS_MAX], gets[OPS][4 * RANKS_MAX];
    for (int i = 0; i < OPS; i++) {
        int number = me->rank == 0 ? OPS - 1 - i : i;
        struct call c = {.kind = (enum call_kind)kind_at(me->arg, (uint64_t)number),
                         .type = OCCL_INT32,
                         .count = 3,
                         .send = gives[number],
                         .recv = gets[number]};
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.tag = 1 + (uint32_t)number;
        call_fill(&c, (uint64_t)number, me->rank, me->size, gives[number]);
        WORLD_OK(call_submit(&c, me->rank, me->size, me->comm, &attr, &requests[number]));
    }
    for (int i = 0; i < OPS; i++) {
        struct call c = {
            .kind = (enum call_kind)kind_at(me->arg, (uint64_t)i), .type = OCCL_INT32, .count = 3};
        WORLD_OK(occl_wait(requests[i]));
        WORLD_CHECK(call_wrong(&c, (uint64_t)i, me->rank, me->size, gets[i]) == 0);
    }
    return 0;
}
static void test_tags_taken_backwards(void **state) {
    struct race plan = {.kinds = GIVERS & ~BIT(CALL_FAN_IN)};
    (void)state;
    assert_int_equal(world_run(&w, 4, backwards, &plan, 60), 0);
    plan.kinds = (GIVERS | SOURCES) & ~(BIT(CALL_FAN_IN) | BIT(CALL_FAN_OUT));
    assert_int_equal(world_run(&w, 3, backwards, &plan, 60), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_givers_whose_root_comes_late),
        cmocka_unit_test(test_givers_whose_root_is_slow),
        cmocka_unit_test(test_sources_that_nobody_listens_to_yet),
        cmocka_unit_test(test_roots_take_turns),
        cmocka_unit_test(test_tags_taken_backwards),
    };
    return cmocka_run_group_tests_name("client_ahead", tests, setup, teardown);
}
