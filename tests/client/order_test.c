/* SPDX-License-Identifier: Apache-2.0 */
/* Random orders with all kinds mixed (class A of the reports from the field): each rank, from
 * several threads, submits the same ops in an order of its own, in ways of its own (memory, in
 * place or not, requests, persistent, callbacks, groups), and collects them in another order. Every
 * output is right and nothing behind it is touched. Whatever differs between ranks is no part of
 * the signature. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/call.h"

#define THREADS 3
#define OPS 80 /* of a thread, in a round: more than there are records, so some take the ring */
#define GUARD INT32_C(-55555)

struct plan {
    uint64_t seed;
    int rounds;
    size_t count_max;
    bool private; /* no memory of the library's own */
};

static uint64_t next(uint64_t *random) {
    *random = *random * 6364136223846793005ull + 1442695040888963407ull;
    return *random >> 33;
}

/* One op of one rank, from its description to its check. */
struct job {
    struct call c;
    bool in_place, zero_copy, is_send, is_recv;
    int peer;
    uint32_t tag;
    uint64_t salt;
    int32_t *send, *recv, *memory[2];
    struct occl_request request;
    bool done;
    int called;
};

static const size_t counts[] = {0,    1,    2,    3,    4,    7,    8,    9,     16,   31,  32,
                                33,   127,  128,  129,  255,  256,  257,  511,   512,  513, 1000,
                                1023, 1024, 1025, 4095, 4096, 4097, 9000, 16385, 40000};
#define COUNTS (sizeof counts / sizeof counts[0])

/* The same on all ranks. */
static void describe(const struct plan *plan, int round, int thread, int number, int size,
                     struct job *job) {
    uint64_t random =
        plan->seed * 1000003 + (uint64_t)round * 7919 + (uint64_t)(thread * OPS + number) * 104729;
    (void)next(&random);
    memset(job, 0, sizeof *job);
    job->salt = next(&random);
    job->c.kind = (enum call_kind)(next(&random) % CALL_KINDS);
    job->c.root = (int)(next(&random) % (uint64_t)size);
    do
        job->c.count = counts[next(&random) % COUNTS];
    while (job->c.count > plan->count_max);
    if (job->c.kind >= CALL_MOVERS)
        job->c.count = 0;
    job->c.type = OCCL_INT32;
    job->tag = 1 + (uint32_t)(((round * THREADS) + thread) * OPS + number);
}

static int32_t *get(bool zero_copy, size_t elements) {
    void *p = NULL;
    if (!zero_copy)
        return malloc(elements * 4);
    return occl_mem_alloc(elements * 4, &p) == OCCL_SUCCESS ? p : NULL;
}

/* This rank's own choices, and its buffers. */
static int prepare(struct world_rank *me, const struct plan *plan, uint64_t *random,
                   struct job *job) {
    struct call *c = &job->c;
    const struct call_traits *t = &call_traits[c->kind];
    size_t sends = call_send_elements(c, me->rank, me->size);
    size_t gets = call_recv_elements(c, me->rank, me->size);
    job->zero_copy = !plan->private && next(random) % 2;
    job->in_place = next(random) % 3 == 0 && sends && gets;
    job->memory[0] = get(job->zero_copy, sends + gets + 2);
    job->memory[1] = get(!plan->private && next(random) % 2, gets + 1);
    WORLD_CHECK(job->memory[0] && job->memory[1]);
    job->send = job->memory[0];
    job->recv = job->memory[1];
    if (job->in_place) {
        size_t own = (size_t)me->rank * c->count;
        job->recv = job->memory[0];
        job->send = job->recv + (t->recv_all && !t->send_all ? own : 0);
        if (t->send_all && !t->recv_all) {
            job->send = job->memory[0];
            job->recv = job->send + own;
        }
    }
    for (size_t i = 0; i <= gets; i++)
        job->recv[i] = GUARD;
    call_fill(c, job->salt, me->rank, me->size, job->send);
    c->send = sends ? job->send : NULL;
    c->recv = gets ? job->recv : NULL;
    return 0;
}

static void count_call(enum occl_result result, void *arg) {
    __atomic_store_n((int *)arg, result == OCCL_SUCCESS ? 1 : 2, __ATOMIC_SEQ_CST);
}

static int submit(struct world_rank *me, struct occl_comm comm, uint64_t *random, struct job *job) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = job->tag;
    attr.timeout_ns = 60000000000;
    attr.priority = (int)(next(random) % 5) - 1;
    job->called = -1;
    if (next(random) % 4 == 0) {
        attr.callback = count_call;
        attr.callback_arg = &job->called;
        job->called = 0;
    }
    job->c.init = next(random) % 3 == 0;
    WORLD_OK(call_submit(&job->c, me->rank, me->size, comm, &attr, &job->request));
    if (job->c.init)
        WORLD_OK(occl_start(job->request));
    return 0;
}

static int check(struct world_rank *me, const struct job *job) {
    const struct call *c = &job->c;
    size_t gets = call_recv_elements(c, me->rank, me->size);
    if (call_wrong(c, job->salt, me->rank, me->size, job->recv)) {
        fprintf(stderr, "in place %d, zero copy %d, persistent %d, tag %u\n", job->in_place,
                job->zero_copy, c->init, job->tag);
        return 1;
    }
    if (!job->in_place)
        WORLD_CHECK(job->recv[gets] == GUARD);
    return 0;
}

static void release(struct job *job) {
    for (int i = 0; i < 2; i++)
        if (occl_mem_free(job->memory[i]) != OCCL_SUCCESS)
            free(job->memory[i]);
}

/* Waits in one of the ways that there are, until all are done. */
static int collect(struct world_rank *me, uint64_t *random, struct job *jobs) {
    struct occl_request requests[OPS];
    for (int left = OPS; left > 0;) {
        int index = -1, done = 0;
        for (int i = 0; i < OPS; i++)
            requests[i] = jobs[i].done ? (struct occl_request){0} : jobs[i].request;
        if (next(random) % 2) {
            WORLD_OK(occl_wait_any(requests, OPS, -1, &index));
        } else {
            index = (int)(next(random) % OPS);
            if (jobs[index].done)
                continue;
            enum occl_result result = occl_test(requests[index], &done);
            if (result == OCCL_IN_PROGRESS && next(random) % 4)
                continue;
            if (result == OCCL_IN_PROGRESS)
                result = occl_wait(requests[index]);
            WORLD_OK(result);
        }
        WORLD_CHECK(index >= 0 && !jobs[index].done);
        jobs[index].done = true;
        left--;
        if (check(me, &jobs[index]))
            return 1;
    }
    for (int i = 0; i < OPS; i++) {
        for (int ms = 0; ms < 20000 && __atomic_load_n(&jobs[i].called, __ATOMIC_SEQ_CST) == 0;
             ms++)
            usleep(1000);
        WORLD_CHECK(__atomic_load_n(&jobs[i].called, __ATOMIC_SEQ_CST) % 2 != 0);
        if (jobs[i].c.init)
            WORLD_OK(occl_request_free(jobs[i].request));
        release(&jobs[i]);
    }
    return 0;
}

struct thread {
    pthread_t id;
    struct world_rank *me;
    int index, failed;
};

static int one_round(struct thread *t, int round, uint64_t *random, struct job *jobs) {
    struct world_rank *me = t->me;
    const struct plan *plan = me->arg;
    int order[OPS];
    for (int i = 0; i < OPS; i++) {
        describe(plan, round, t->index, i, me->size, &jobs[i]);
        if (prepare(me, plan, random, &jobs[i]))
            return 1;
        order[i] = i;
    }
    for (int i = OPS - 1; i > 0; i--) {
        int j = (int)(next(random) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i < OPS; i++) {
        if (submit(me, me->comm, random, &jobs[order[i]]))
            return 1;
        if (next(random) % 16 == 0)
            usleep((useconds_t)(next(random) % 300));
    }
    return collect(me, random, jobs);
}

static void *thread_main(void *arg) {
    struct thread *t = arg;
    const struct plan *plan = t->me->arg;
    struct job *jobs = calloc(OPS, sizeof *jobs);
    uint64_t random = plan->seed + (uint64_t)(t->me->rank * THREADS + t->index) * 77;
    for (int round = 0; round < plan->rounds && !t->failed; round++)
        t->failed = one_round(t, round, &random, jobs);
    if (t->failed) /* the others would wait for it */
        (void)occl_comm_abort(t->me->comm);
    free(jobs);
    return NULL;
}

static int in_any_order(struct world_rank *me) {
    struct thread threads[THREADS];
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.me = me, .index = i};
        WORLD_CHECK(pthread_create(&threads[i].id, NULL, thread_main, &threads[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i].id, NULL);
        failed |= threads[i].failed;
    }
    return failed;
}

static void run(struct plan plan) {
    static const int sizes[] = {2, 3, 4, 8};
    const char *seed = getenv("ORDER_SEED"), *rounds = getenv("ORDER_ROUNDS");
    struct world w;
    plan.seed = seed ? strtoull(seed, NULL, 0) : 20261130;
    plan.rounds = rounds ? atoi(rounds) : 3;
    world_start(&w, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(world_run(&w, sizes[i], in_any_order, &plan, 60), 0);
    assert_int_equal(world_stop(&w), 0);
}

static void test_A01_A05_all_kinds_in_any_order(void **state) {
    (void)state;
    run((struct plan){.count_max = 40000});
}
static void test_A01_A05_all_kinds_between_any_pointers(void **state) {
    (void)state;
    run((struct plan){.count_max = 10000, .private = true});
}
static void test_A01_A05_all_small_kinds_in_any_order(void **state) {
    (void)state;
    run((struct plan){.count_max = 600});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_A01_A05_all_kinds_in_any_order),
        cmocka_unit_test(test_A01_A05_all_kinds_between_any_pointers),
        {"test_A01_A05_all_kinds_between_any_pointers_attached",
         test_A01_A05_all_kinds_between_any_pointers, world_use_no_copies, world_use_copies, NULL},
        cmocka_unit_test(test_A01_A05_all_small_kinds_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
