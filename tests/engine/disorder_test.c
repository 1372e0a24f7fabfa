/* SPDX-License-Identifier: Apache-2.0 */
/* Any order completes; and the negative control: an executor that serves each rank strictly in
 * submission order completes equal orders and hangs with disordered ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/fixture.h"

#define RANKS_MAX 8
#define OPS_MAX 192

/* A program: every rank submits ops 0 .. ops - 1, each in its own order, and collects completions.
 */
struct program {
    struct fx *fx;
    struct fx_comm *comm;
    uint32_t ops;
    uint32_t region;
    int32_t *data;
    uint64_t counts[OPS_MAX];  /* elements */
    uint64_t offsets[OPS_MAX]; /* of op's slot in each rank's part, in elements */
    uint64_t part;             /* elements of a rank's inputs, and of its outputs */
    uint32_t orders[RANKS_MAX][OPS_MAX];
    uint32_t instance;
    uint64_t timeout_ns;
};

struct rank {
    struct program *program;
    uint32_t rank;
    uint32_t completed;
    uint32_t bad;
    pthread_t thread;
};

static void *run_rank(void *arg) {
    struct rank *me = arg;
    struct program *p = me->program;
    uint32_t session = p->comm->sessions[me->rank], seen[OPS_MAX] = {0};
    uint64_t mine = me->rank * 2 * p->part;
    for (uint32_t i = 0; i < p->ops; i++) {
        uint32_t op = p->orders[me->rank][i];
        struct occl_sqe sqe =
            fx_all_reduce(p->comm, me->rank, fx_key(op + 1, p->instance), p->counts[op], p->region,
                          4 * (mine + p->offsets[op]), 4 * (mine + p->part + p->offsets[op]));
        sqe.user_data = op;
        fx_push(p->fx, session, &sqe);
    }
    while (me->completed < p->ops) {
        struct occl_cqe cqe;
        if (!fx_wait(p->fx, session, p->timeout_ns, &cqe))
            break;
        me->completed++;
        me->bad += cqe.status != OCCL_OK || cqe.user_data >= p->ops || seen[cqe.user_data]++;
    }
    return NULL;
}

/* Value of an element of a rank's input, and the sum over ranks. */
static int32_t value(uint32_t op, uint64_t i, uint32_t rank) {
    return (int32_t)(op * 7919 + i * 31 + rank * 1000003);
}

static void fill(struct program *p, uint32_t ranks) {
    for (uint32_t r = 0; r < ranks; r++) {
        int32_t *in = p->data + r * 2 * p->part;
        for (uint32_t op = 0; op < p->ops; op++) {
            for (uint64_t i = 0; i < p->counts[op]; i++)
                in[p->offsets[op] + i] = value(op, i, r);
        }
        memset(in + p->part, 0, 4 * p->part);
    }
}

static void check(struct program *p, uint32_t ranks) {
    for (uint32_t op = 0; op < p->ops; op++) {
        for (uint64_t i = 0; i < p->counts[op]; i++) {
            uint32_t sum = 0;
            for (uint32_t r = 0; r < ranks; r++)
                sum += (uint32_t)value(op, i, r);
            for (uint32_t r = 0; r < ranks; r++) {
                if ((uint32_t)p->data[r * 2 * p->part + p->part + p->offsets[op] + i] != sum)
                    fail_msg("op %u element %llu rank %u", op, (unsigned long long)i, r);
            }
        }
    }
}

/* Runs the program; returns how many completions came in all. */
static uint32_t run(struct program *p, uint32_t ranks) {
    struct rank all[RANKS_MAX];
    uint32_t completed = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        all[r] = (struct rank){.program = p, .rank = r};
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_rank, &all[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        pthread_join(all[r].thread, NULL);
        assert_int_equal(all[r].bad, 0);
        completed += all[r].completed;
    }
    p->instance++;
    return completed;
}

static void place(struct program *p, struct fx *fx, uint32_t ranks) {
    p->part = 0;
    for (uint32_t op = 0; op < p->ops; op++) {
        p->offsets[op] = p->part;
        p->part += (p->counts[op] + 15) & ~15ull;
    }
    p->data = fx_region(fx, 1, ranks * 2 * p->part * 4, &p->region);
}

static void shuffle(uint32_t *order, uint32_t count, uint64_t *seed) {
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)(fx_random(seed) % i), t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
}

/* DFCCL's program: eight collectives, rank r starts with number r. */
static void latin_square_of_eight(void **state) {
    static struct program p;
    struct fx fx;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    p = (struct program){
        .fx = &fx, .comm = fx_simple(&fx, 8), .ops = 8, .timeout_ns = fx_patience_ns()};
    for (uint32_t op = 0; op < 8; op++)
        p.counts[op] = 64ull << op * 2; /* 256 B .. 4 MiB */
    place(&p, &fx, 8);
    for (uint32_t r = 0; r < 8; r++) {
        for (uint32_t i = 0; i < 8; i++)
            p.orders[r][i] = (r + i) % 8;
    }
    for (uint32_t round = 0; round < 3; round++) {
        fill(&p, 8);
        assert_int_equal(run(&p, 8), 64);
        check(&p, 8);
    }
    fx_close(&fx);
    free(p.data);
}

/* Gradient sizes as a convolution network has them: many small ones, few of megabytes. */
static void sizes_161_in_seeded_orders(void **state) {
    static struct program p;
    struct fx fx;
    uint64_t seed = 20240617;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 3});
    p = (struct program){
        .fx = &fx, .comm = fx_simple(&fx, 4), .ops = 161, .timeout_ns = fx_patience_ns()};
    for (uint32_t op = 0; op < p.ops; op++)
        p.counts[op] = op % 3 ? 64ull << fx_random(&seed) % 6 : 1024ull << fx_random(&seed) % 9;
    place(&p, &fx, 4);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t r = 0; r < 4; r++)
            shuffle(p.orders[r], p.ops, &seed);
        fill(&p, 4);
        assert_int_equal(run(&p, 4), 4 * 161);
        check(&p, 4);
    }
    fx_close(&fx);
    free(p.data);
}

static void ordered_program(struct program *p, struct fx *fx, bool disorder, uint64_t timeout_ns) {
    fx_open(fx, &(struct fx_options){.ordered = true});
    *p = (struct program){.fx = fx, .comm = fx_simple(fx, 4), .ops = 24, .timeout_ns = timeout_ns};
    uint64_t seed = 7;
    for (uint32_t op = 0; op < p->ops; op++)
        p->counts[op] = 1000 + 100000 * (op % 3);
    place(p, fx, 4);
    for (uint32_t r = 0; r < 4; r++) {
        if (disorder || r == 0)
            shuffle(p->orders[r], p->ops, &seed);
        else
            memcpy(p->orders[r], p->orders[0], sizeof p->orders[0]);
    }
    fill(p, 4);
}

static void ordered_executor_completes_equal_orders(void **state) {
    static struct program p;
    struct fx fx;
    (void)state;
    ordered_program(&p, &fx, false, fx_patience_ns());
    assert_int_equal(run(&p, 4), 4 * 24);
    check(&p, 4);
    fx_close(&fx);
    free(p.data);
}

static void ordered_executor_hangs_on_disorder(void **state) {
    static struct program p;
    struct fx fx;
    (void)state;
    ordered_program(&p, &fx, true, 500000000);
    assert_true(run(&p, 4) < 4 * 24);
    fx_close(&fx); /* ends what hangs */
    free(p.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latin_square_of_eight),
        cmocka_unit_test(sizes_161_in_seeded_orders),
        cmocka_unit_test(ordered_executor_completes_equal_orders),
        cmocka_unit_test(ordered_executor_hangs_on_disorder),
    };
    return cmocka_run_group_tests_name("engine_disorder", tests, NULL, NULL);
}
