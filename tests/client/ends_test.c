/* SPDX-License-Identifier: Apache-2.0 */
/* Ends in the middle of all kinds: a rank is killed, stopped and killed, aborts, revokes, destroys,
 * or its ops time out, while the ranks of its job are in a random mix of all operations, some of
 * them ahead of others. Whoever is left hears the right error soon, with right results until then;
 * the job beside it and the daemon go on. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/call.h"

#define RANKS 4
#define AHEAD 6 /* requests that are kept in flight */
#define COUNT_MAX 30000u

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

enum end { KILLED, STOPPED_AND_KILLED, ABORTS, REVOKES, DESTROYS, TIMES_OUT, ENDS };

struct play {
    enum end end;
    int victim;
    uint32_t kinds; /* mask */
    uint64_t seed;
    bool private;
    uint32_t moving[RANKS]; /* ops done */
    uint32_t now;           /* the victim is to act */
    uint32_t ended;         /* ranks that have nothing active any more */
};

static uint64_t next(uint64_t *random) {
    *random = *random * 6364136223846793005ull + 1442695040888963407ull;
    return *random >> 33;
}

struct flight {
    struct call c;
    uint64_t number;
    int32_t *send, *recv;
    struct occl_request request;
    bool active;
};

static void describe(const struct play *play, uint64_t number, struct call *c) {
    static const size_t counts[] = {0, 1, 8, 33, 129, 500, 1025, 9000, COUNT_MAX};
    uint64_t random = play->seed * 31 + number * 7919;
    (void)next(&random);
    do
        c->kind = (enum call_kind)(next(&random) % CALL_KINDS);
    while (!(play->kinds >> c->kind & 1));
    c->root = (int)(next(&random) % RANKS);
    c->count = c->kind < CALL_MOVERS ? counts[next(&random) % 9] : 0;
    c->type = OCCL_INT32;
    c->init = false;
}

static enum occl_result finish(struct world_rank *me, struct flight *f, int *failed) {
    enum occl_result result = occl_wait(f->request);
    f->active = false;
    *failed =
        result == OCCL_SUCCESS && call_wrong(&f->c, f->number, me->rank, me->size, f->recv) != 0;
    return result;
}

/* Goes on until something ends it. */
static enum occl_result play_on(struct world_rank *me, struct play *play, struct flight *flights,
                                int *failed) {
    enum occl_result result = OCCL_SUCCESS;
    uint64_t random = play->seed + (uint64_t)me->rank;
    for (uint64_t number = 0; result == OCCL_SUCCESS && !*failed; number++) {
        struct flight *f = &flights[number % AHEAD];
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        if (f->active && (result = finish(me, f, failed)) != OCCL_SUCCESS)
            break;
        describe(play, number, &f->c);
        f->number = number;
        f->c.send = f->send;
        f->c.recv = f->recv;
        call_fill(&f->c, number, me->rank, me->size, f->send);
        attr.tag = number % 5 ? 0 : 1 + (uint32_t)(number % 100);
        if (play->end == TIMES_OUT)
            attr.timeout_ns = 200000000;
        bool blocking = next(&random) % 3 == 0;
        if (me->rank == play->victim && __atomic_load_n(&play->now, __ATOMIC_SEQ_CST)) {
            if (play->end == ABORTS)
                return occl_comm_abort(me->comm) ? OCCL_ERROR_INTERNAL : OCCL_ERROR_ABORTED;
            if (play->end == DESTROYS)
                return occl_comm_destroy(me->comm) ? OCCL_ERROR_INTERNAL : OCCL_ERROR_CANCELED;
            if (play->end == REVOKES)
                return occl_comm_revoke(me->comm) ? OCCL_ERROR_INTERNAL : OCCL_ERROR_REVOKED;
            if (play->end == TIMES_OUT)
                return OCCL_ERROR_TIMEOUT; /* it just does not come any more */
        }
        result =
            call_submit(&f->c, me->rank, me->size, me->comm, &attr, blocking ? NULL : &f->request);
        f->active = !blocking && result == OCCL_SUCCESS;
        if (blocking && result == OCCL_SUCCESS)
            *failed = call_wrong(&f->c, number, me->rank, me->size, f->recv) != 0;
        __atomic_store_n(&play->moving[me->rank], (uint32_t)number, __ATOMIC_SEQ_CST);
    }
    return result;
}

static bool expected(const struct play *play, int rank, enum occl_result result) {
    switch (play->end) {
    case ABORTS:
        return result == OCCL_ERROR_ABORTED;
    case REVOKES:
        return result == OCCL_ERROR_REVOKED;
    case DESTROYS:
        return result == (rank == play->victim ? OCCL_ERROR_CANCELED : OCCL_ERROR_PEER_FAILED);
    case TIMES_OUT:
        return result == OCCL_ERROR_TIMEOUT;
    default:
        return result == OCCL_ERROR_PEER_FAILED;
    }
}

static int player(struct world_rank *me) {
    struct play *play = me->arg;
    struct flight flights[AHEAD];
    int failed = 0, ignored;
    for (int i = 0; i < AHEAD; i++) {
        void *memory[2];
        for (int k = 0; k < 2; k++) {
            size_t bytes = RANKS * COUNT_MAX * 4;
            if (play->private)
                memory[k] = world_alloc(bytes);
            else
                WORLD_OK(occl_mem_alloc(bytes, &memory[k]));
        }
        flights[i] = (struct flight){.send = memory[0], .recv = memory[1]};
    }
    enum occl_result result = play_on(me, play, flights, &failed);
    WORLD_CHECK(!failed);
    if (!expected(play, me->rank, result)) {
        fprintf(stderr, "rank %d: end %d by rank %d: result %d: %s\n", me->rank, (int)play->end,
                play->victim, (int)result, occl_last_error());
        return 1;
    }
    /* The rest ends, too, one way or the other; and nobody may write any more. */
    double start = world_now();
    for (int i = 0; i < AHEAD; i++)
        if (flights[i].active) {
            (void)finish(me, &flights[i], &ignored);
            WORLD_CHECK(!ignored);
        }
    WORLD_CHECK(world_now() - start < 3.0 * world_slowness());
    /* Who leaves ends what others wait for, with another error than a time-out. */
    __atomic_fetch_add(&play->ended, 1, __ATOMIC_SEQ_CST);
    while (play->end == TIMES_OUT && __atomic_load_n(&play->ended, __ATOMIC_SEQ_CST) < RANKS)
        usleep(1000);
    return 0;
}

static void let_end(struct play plan) {
    struct play *play = world_shared(sizeof *play);
    pid_t pids[RANKS];
    uint64_t random = plan.seed * 77;
    int failed = 0;
    *play = plan;
    world_spawn(&w, RANKS, player, play, pids);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 4000 && __atomic_load_n(&play->moving[r], __ATOMIC_SEQ_CST) < 20; i++)
            usleep(2000);
    usleep((useconds_t)(next(&random) % 20000));
    __atomic_store_n(&play->now, 1, __ATOMIC_SEQ_CST);
    if (plan.end == STOPPED_AND_KILLED) {
        (void)kill(pids[plan.victim], SIGSTOP);
        usleep(20000);
    }
    if (plan.end == KILLED || plan.end == STOPPED_AND_KILLED)
        (void)kill(pids[plan.victim], SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        int status = world_wait(pids[r], 15);
        bool killed = r == plan.victim && plan.end <= STOPPED_AND_KILLED;
        if (status == -1)
            fprintf(stderr, "rank %d did not end\n", r);
        failed += !killed && status != 0;
    }
    if (failed)
        fprintf(stderr, "end %d, victim %d, kinds 0x%x, seed %llu, private %d\n", (int)plan.end,
                plan.victim, plan.kinds, (unsigned long long)plan.seed, plan.private);
    assert_int_equal(failed, 0);
}

#define BIT(kind) (1u << (kind))

static void each_mix(enum end end) {
    static const uint32_t mixes[] = {
        BIT(CALL_KINDS) - 1,
        BIT(CALL_ALL_TO_ALL_V) | BIT(CALL_ALL_TO_ALL),
        BIT(CALL_REDUCE_SCATTER) | BIT(CALL_REDUCE_SCATTER_V),
        BIT(CALL_SCAN) | BIT(CALL_EXSCAN),
        BIT(CALL_GATHER) | BIT(CALL_GATHER_V) | BIT(CALL_REDUCE) | BIT(CALL_FAN_IN),
        BIT(CALL_SCATTER) | BIT(CALL_SCATTER_V) | BIT(CALL_BROADCAST) | BIT(CALL_FAN_OUT),
    };
    const char *seeds = getenv("ENDS_SEED"), *rounds = getenv("ENDS_ROUNDS");
    uint64_t seed = seeds ? strtoull(seeds, NULL, 0) : 1;
    for (int round = 0; round < (rounds ? atoi(rounds) : 1); round++)
        for (size_t i = 0; i < 2 * sizeof mixes / sizeof mixes[0]; i++, seed++)
            let_end((struct play){.end = end,
                                  .victim = (int)(seed % RANKS),
                                  .kinds = mixes[i / 2],
                                  .seed = seed,
                                  .private = i % 2 != 0});
}

static void test_killed(void **state) {
    (void)state;
    each_mix(KILLED);
}
static void test_stopped_and_killed(void **state) {
    (void)state;
    each_mix(STOPPED_AND_KILLED);
}
static void test_abort(void **state) {
    (void)state;
    each_mix(ABORTS);
}
static void test_revoke(void **state) {
    (void)state;
    each_mix(REVOKES);
}
static void test_destroy(void **state) {
    (void)state;
    each_mix(DESTROYS);
}
static void test_time_out(void **state) {
    (void)state;
    each_mix(TIMES_OUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_stopped_and_killed),
        cmocka_unit_test(test_abort),   cmocka_unit_test(test_revoke),
        cmocka_unit_test(test_destroy), cmocka_unit_test(test_time_out),
    };
    return cmocka_run_group_tests_name("client_ends", tests, setup, teardown);
}
