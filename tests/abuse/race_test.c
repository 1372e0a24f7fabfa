/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that race each other: destroy, abort, revoke and finalize against ops in flight, callbacks
 * that use the library, deadlines that pass in the moment of completion, thousands of requests. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

static struct world world;

static int setup(void **state) {
    (void)state;
    world_start(&world, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return world_stop(&world) != 0;
}

/* Two ranks of one process. */
struct pair {
    struct occl_unique_id id;
    struct occl_comm comm[2];
    enum occl_result result[2];
};

static void *create_second(void *arg) {
    struct pair *p = arg;
    p->result[1] = occl_comm_create(&p->id, 1, 2, NULL, &p->comm[1]);
    return NULL;
}

static int make_pair(struct world_rank *me, struct pair *p) {
    pthread_t thread;
    WORLD_OK(occl_get_unique_id(&p->id));
    WORLD_CHECK(pthread_create(&thread, NULL, create_second, p) == 0);
    p->result[0] = occl_comm_create(&p->id, 0, 2, NULL, &p->comm[0]);
    (void)pthread_join(thread, NULL);
    WORLD_CHECK(p->result[0] == OCCL_SUCCESS && p->result[1] == OCCL_SUCCESS);
    return 0;
}

/* ---- who destroys has left; its own ops are canceled ---- */

struct blocked {
    struct occl_comm comm;
    enum occl_result result;
};

static void *block_in_all_reduce(void *arg) {
    struct blocked *b = arg;
    float x = 1;
    b->result = occl_all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, b->comm, NULL, NULL);
    return NULL;
}

static int destroyer(struct world_rank *me) {
    int *destroyed = me->arg;
    if (me->rank == 0) {
        struct blocked b = {me->comm, OCCL_SUCCESS};
        pthread_t thread;
        WORLD_CHECK(pthread_create(&thread, NULL, block_in_all_reduce, &b) == 0);
        usleep(100000);
        WORLD_OK(occl_comm_destroy(me->comm));
        __atomic_store_n(destroyed, 1, __ATOMIC_SEQ_CST);
        (void)pthread_join(thread, NULL);
        /* HANDLE: on a busy machine the thread may come too late */
        WORLD_CHECK(b.result == OCCL_ERROR_CANCELED || b.result == OCCL_ERROR_HANDLE);
        return 0;
    }
    while (!__atomic_load_n(destroyed, __ATOMIC_SEQ_CST))
        usleep(1000);
    struct blocked b = {me->comm, OCCL_SUCCESS};
    (void)block_in_all_reduce(&b);
    WORLD_CHECK(b.result == OCCL_ERROR_PEER_FAILED);
    WORLD_CHECK(strstr(occl_last_error(), "rank 0"));
    WORLD_CHECK(strstr(occl_last_error(), "destroyed its communicator"));
    return 0;
}

static void test_destroy_is_a_leaving_to_the_peers(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 2, destroyer, world_shared(sizeof(int)), 10), 0);
}

/* ---- revoked is revoked ---- */

static int revoked(struct world_rank *me) {
    int *turn = me->arg;
    struct occl_comm alone;
    enum occl_result error = OCCL_SUCCESS;
    float x = 1;
    WORLD_OK(occl_comm_split(me->comm, me->rank, 0, NULL, &alone));
    WORLD_OK(occl_comm_revoke(alone));
    WORLD_CHECK(occl_barrier(alone, NULL, NULL) == OCCL_ERROR_REVOKED);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    if (me->rank == 0)
        WORLD_OK(occl_comm_revoke(me->comm));
    while (error == OCCL_SUCCESS)
        WORLD_OK(occl_comm_get_async_error(me->comm, &error));
    for (int i = 0; i < 50; i++) {
        /* Nobody waits before all have arrived: nothing but the call itself can refuse. */
        struct occl_request request;
        while (__atomic_load_n(turn, __ATOMIC_SEQ_CST) % 2 != me->rank)
            usleep(10);
        enum occl_result result =
            occl_all_reduce(&x, &x, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, &request);
        __atomic_add_fetch(turn, 1, __ATOMIC_SEQ_CST);
        if (result == OCCL_SUCCESS) {
            while (i % 2 == 0 && __atomic_load_n(turn, __ATOMIC_SEQ_CST) < 2 * i + 2)
                usleep(10);
            result = occl_wait(request);
        }
        WORLD_CHECK(result == OCCL_ERROR_REVOKED);
    }
    WORLD_CHECK(occl_send(&x, 1, OCCL_FLOAT32, 1 - me->rank, me->comm, NULL, NULL) ==
                OCCL_ERROR_REVOKED);
    return 0;
}

static void test_future_ops_of_a_revoked_communicator(void **state) {
    (void)state;
    int *turn = world_shared(sizeof *turn);
    assert_int_equal(world_run(&world, 2, revoked, turn, 20), 0);
}

/* ---- a submission that races the destruction ---- */

struct racer {
    struct pair pair;
    uint32_t delay;
    int stuck;
};

static void *submit_and_wait(void *arg) {
    struct racer *r = arg;
    float x = 1, y;
    for (;;) {
        struct occl_request request;
        enum occl_result result =
            occl_all_reduce(&x, &y, 1, OCCL_FLOAT32, OCCL_SUM, r->pair.comm[0], NULL, &request);
        if (result == OCCL_SUCCESS)
            result = occl_wait_for(request, 5000000000);
        if (result == OCCL_IN_PROGRESS)
            r->stuck = 1;
        if (result != OCCL_SUCCESS)
            return NULL;
    }
}

static int submit_against_destroy(struct world_rank *me) {
    for (uint32_t i = 0; i < 400; i++) {
        struct racer r = {.delay = i * 7 % 200};
        pthread_t threads[3];
        if (make_pair(me, &r.pair))
            return 1;
        for (int t = 0; t < 3; t++)
            WORLD_CHECK(pthread_create(&threads[t], NULL, submit_and_wait, &r) == 0);
        for (volatile uint32_t k = 0; k < r.delay * 200; k++)
            continue;
        WORLD_OK(occl_comm_destroy(r.pair.comm[0]));
        for (int t = 0; t < 3; t++)
            (void)pthread_join(threads[t], NULL);
        WORLD_CHECK(!r.stuck);
        WORLD_OK(occl_comm_destroy(r.pair.comm[1]));
    }
    return 0;
}

static void test_submit_against_destroy(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 1, submit_against_destroy, NULL, 60), 0);
}

/* ---- the table of communicators ---- */

static void *come_and_go(void *arg) {
    int *failed = arg;
    for (int i = 0; i < 400; i++) {
        struct occl_unique_id id;
        struct occl_comm comm;
        struct occl_request request;
        int32_t x = 7, y = 0;
        if (occl_get_unique_id(&id) || occl_comm_create(&id, 0, 1, NULL, &comm)) {
            *failed = 1;
            return NULL;
        }
        if (occl_send(&x, 1, OCCL_INT32, 0, comm, NULL, &request) ||
            occl_recv(&y, 1, OCCL_INT32, 0, comm, NULL, NULL) || occl_wait(request) || y != 7 ||
            occl_comm_destroy(comm))
            *failed = 1;
        (void)occl_barrier(comm, NULL, NULL); /* stale */
    }
    return NULL;
}

static int come_and_go_rank(struct world_rank *me) {
    pthread_t threads[4];
    int failed = 0;
    for (int t = 0; t < 4; t++)
        WORLD_CHECK(pthread_create(&threads[t], NULL, come_and_go, &failed) == 0);
    for (int t = 0; t < 4; t++)
        (void)pthread_join(threads[t], NULL);
    WORLD_CHECK(!failed);
    return 0;
}

static void test_communicators_come_and_go_in_threads(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 1, come_and_go_rank, NULL, 60), 0);
}

/* ---- finalize while others are inside ---- */

struct inside {
    struct occl_comm comm;
    int what;
    enum occl_result result;
};

static void *stay_inside(void *arg) {
    struct inside *in = arg;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request request;
    struct occl_unique_id id;
    struct occl_comm other;
    float x = 1, y;
    int index;
    void *memory;
    attr.tag = (uint32_t)in->what + 1;
    switch (in->what) {
    case 0:
        in->result = occl_all_reduce(&x, &y, 1, OCCL_FLOAT32, OCCL_SUM, in->comm, &attr, NULL);
        return NULL;
    case 1:
    case 2:
        in->result = occl_all_reduce(&x, &y, 1, OCCL_FLOAT32, OCCL_SUM, in->comm, &attr, &request);
        if (in->result == OCCL_SUCCESS)
            in->result =
                in->what == 1 ? occl_wait(request) : occl_wait_any(&request, 1, -1, &index);
        return NULL;
    case 3:
        (void)occl_get_unique_id(&id);
        in->result = occl_comm_create(&id, 0, 2, NULL, &other);
        return NULL;
    default:
        do
            in->result = occl_mem_alloc(8192, &memory);
        while (in->result == OCCL_SUCCESS && (in->result = occl_mem_free(memory)) == OCCL_SUCCESS);
        return NULL;
    }
}

static int finalize_with_others_inside(struct world_rank *me) {
    WORLD_OK(occl_finalize());
    for (int round = 0; round < 25; round++) {
        struct inside in[5];
        struct pair p;
        pthread_t threads[5];
        double start;
        WORLD_CHECK(world_attach(me->world, "test") == OCCL_SUCCESS);
        if (make_pair(me, &p))
            return 1;
        for (int t = 0; t < 5; t++) {
            in[t] = (struct inside){p.comm[0], t, OCCL_SUCCESS};
            WORLD_CHECK(pthread_create(&threads[t], NULL, stay_inside, &in[t]) == 0);
        }
        usleep((useconds_t)(round * 400));
        start = world_now();
        WORLD_OK(occl_finalize());
        for (int t = 0; t < 5; t++)
            (void)pthread_join(threads[t], NULL);
        WORLD_CHECK(world_now() - start < 3);
        for (int t = 0; t < 5; t++)
            WORLD_CHECK(in[t].result != OCCL_SUCCESS);
    }
    return 0;
}

static void test_finalize_while_others_are_inside(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 1, finalize_with_others_inside, NULL, 60), 0);
}

static void *init_and_finalize(void *arg) {
    struct world_rank *me = arg;
    for (int i = 0; i < 60; i++) {
        void *memory;
        if (world_attach(me->world, "test") != OCCL_SUCCESS)
            return me;
        if (occl_mem_alloc(4096, &memory) != OCCL_SUCCESS)
            return me;
        memset(memory, 1, 4096);
        if (occl_finalize() != OCCL_SUCCESS)
            return me;
    }
    return NULL;
}

static int init_and_finalize_rank(struct world_rank *me) {
    pthread_t threads[4];
    void *failed = NULL, *result;
    WORLD_OK(occl_finalize());
    for (int t = 0; t < 4; t++)
        WORLD_CHECK(pthread_create(&threads[t], NULL, init_and_finalize, me) == 0);
    for (int t = 0; t < 4; t++) {
        (void)pthread_join(threads[t], &result);
        failed = result ? result : failed;
    }
    WORLD_CHECK(failed == NULL);
    return 0;
}

static void test_init_and_finalize_in_threads(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 1, init_and_finalize_rank, NULL, 60), 0);
}

/* ---- abort beside a stopped member ---- */

#define BULK (48u << 20)
static void *bulk(void *arg) {
    struct blocked *b = arg;
    char *memory = malloc(BULK);
    memset(memory, 0, BULK);
    do
        b->result =
            occl_all_reduce(memory, memory, BULK / 4, OCCL_FLOAT32, OCCL_SUM, b->comm, NULL, NULL);
    while (b->result == OCCL_SUCCESS);
    free(memory);
    return NULL;
}

static int abort_beside_stopped(struct world_rank *me) {
    int *stopped = me->arg;
    struct blocked b = {me->comm, OCCL_SUCCESS};
    if (me->rank == 1)
        return bulk(&b) != NULL;
    pthread_t thread;
    WORLD_CHECK(pthread_create(&thread, NULL, bulk, &b) == 0);
    while (!__atomic_load_n(stopped, __ATOMIC_SEQ_CST))
        usleep(1000);
    usleep(200000);
    double start = world_now();
    WORLD_OK(occl_comm_abort(me->comm));
    (void)pthread_join(thread, NULL);
    WORLD_CHECK(world_now() - start < 2.5);
    WORLD_CHECK(b.result == OCCL_ERROR_ABORTED);
    return 0;
}

static void test_abort_beside_a_stopped_member(void **state) {
    (void)state;
    int *stopped = world_shared(sizeof *stopped);
    for (int i = 0; i < 4; i++) {
        pid_t pids[2];
        *stopped = 0;
        world_spawn(&world, 2, abort_beside_stopped, stopped, pids);
        usleep((useconds_t)(600000 + i * 7300));
        assert_int_equal(kill(pids[1], SIGSTOP), 0);
        __atomic_store_n(stopped, 1, __ATOMIC_SEQ_CST);
        int status = world_wait(pids[0], 8);
        assert_int_equal(kill(pids[1], SIGKILL), 0);
        (void)world_wait(pids[1], 5);
        assert_int_equal(status, 0);
    }
}

/* ---- callbacks ---- */

struct chain {
    struct occl_comm comm, spare;
    struct occl_request request[128];
    float x, y[128];
    int length, own_test, own_wait, finalized, destroyed;
    enum occl_result submitted;
};

static void link_done(enum occl_result result, void *arg) {
    struct chain *c = arg;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    int n = __atomic_load_n(&c->length, __ATOMIC_SEQ_CST), done;
    if (result != OCCL_SUCCESS)
        c->submitted = result;
    if (n == 1) {
        c->own_test = occl_test(c->request[0], &done);
        c->own_wait = occl_wait(c->request[0]);
        c->finalized = occl_finalize();
        c->destroyed = occl_comm_destroy(c->spare);
    }
    attr.callback = link_done;
    attr.callback_arg = c;
    if (n < 100 && c->submitted == OCCL_SUCCESS)
        c->submitted = occl_all_reduce(&c->x, &c->y[n], 1, OCCL_FLOAT32, OCCL_SUM, c->comm, &attr,
                                       &c->request[n]);
    __atomic_store_n(&c->length, n + 1, __ATOMIC_SEQ_CST);
}

static int callbacks(struct world_rank *me) {
    static struct chain c; /* outlives the callbacks, whatever fails */
    c.comm = me->comm;
    c.x = 1;
    WORLD_OK(occl_comm_split(me->comm, 0, 0, NULL, &c.spare));
    link_done(OCCL_SUCCESS, &c); /* length 0: submits the first */
    for (int i = 0; i < 3000 && __atomic_load_n(&c.length, __ATOMIC_SEQ_CST) < 101; i++)
        usleep(2000);
    WORLD_CHECK(c.submitted == OCCL_SUCCESS);
    WORLD_CHECK(c.length == 101);
    for (int i = 0; i < 100; i++) {
        WORLD_OK(occl_wait(c.request[i]));
        WORLD_CHECK(c.y[i] == (float)me->size);
    }
    WORLD_CHECK(c.own_test == OCCL_IN_PROGRESS);
    WORLD_CHECK(c.own_wait == OCCL_ERROR_USAGE);
    WORLD_CHECK(c.finalized == OCCL_ERROR_USAGE);
    WORLD_CHECK(c.destroyed == OCCL_SUCCESS);
    return 0;
}

static void test_callbacks_use_the_library(void **state) {
    (void)state;
    assert_int_equal(world_run(&world, 3, callbacks, NULL, 20), 0);
}

/* ---- deadlines against completions ---- */

static uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

#define DEADLINES 1500
static int deadlines(struct world_rank *me) {
    int8_t *results = me->arg; /* [DEADLINES][rank] */
    const size_t most = 40000;
    int32_t *in = malloc(most * 4), *out = malloc(most * 4);
    for (uint32_t i = 0; i < DEADLINES; i++) {
        size_t count = (size_t[]){1, 20, 500, 1500, 40000}[i % 5];
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        struct occl_request request;
        attr.tag = 1 + i % 7;
        uint32_t x = mix(i);
        attr.timeout_ns = 1000 + (int64_t)(x % 1000) * (int64_t)(x >> 10 & 1 ? 1000 : 60);
        if (i % 32 == 1) /* some complete, and some are late, however busy the machine is */
            attr.timeout_ns = x % 2 ? 1 : 5000000000;
        for (size_t k = 0; k < count; k++) {
            in[k] = me->rank + (int32_t)k;
            out[k] = -1;
        }
        if (i % 16 == 0)
            WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        for (volatile uint32_t k = 0; k < mix(i * 64 + (uint32_t)me->rank) % 30000; k++)
            continue;
        enum occl_result result;
        if (i % 3 == 0) {
            result = occl_all_reduce(in, out, count, OCCL_INT32, OCCL_SUM, me->comm, &attr, NULL);
        } else {
            WORLD_OK(
                occl_all_reduce(in, out, count, OCCL_INT32, OCCL_SUM, me->comm, &attr, &request));
            do
                result = occl_wait_for(request, i % 3 == 1 ? 20000 : 100000000);
            while (result == OCCL_IN_PROGRESS);
        }
        WORLD_CHECK(result == OCCL_SUCCESS || result == OCCL_ERROR_TIMEOUT);
        results[i * (uint32_t)me->size + (uint32_t)me->rank] = (int8_t)(1 - result);
        int32_t base = me->size * (me->size - 1) / 2;
        for (size_t k = 0; result == OCCL_SUCCESS && k < count; k++)
            WORLD_CHECK(out[k] == base + me->size * (int32_t)k);
    }
    free(in);
    free(out);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}

static void check_deadlines(int ranks) {
    int8_t *results = world_shared((size_t)(DEADLINES * ranks));
    int good = 0, late = 0;
    assert_int_equal(world_run(&world, ranks, deadlines, results, 60), 0);
    for (int i = 0; i < DEADLINES; i++) {
        for (int r = 1; r < ranks; r++)
            assert_int_equal(results[i * ranks + r], results[i * ranks]);
        good += results[i * ranks] == 1;
        late += results[i * ranks] != 1;
    }
    assert_true(good > 0 && late > 0);
}

static void test_deadlines_against_completions(void **state) {
    (void)state;
    check_deadlines(2);
    check_deadlines(4);
}

/* ---- thousands ---- */

struct many {
    int count;
    bool any;
};
static int thousands(struct world_rank *me) {
    const struct many *m = me->arg;
    struct occl_request *requests = calloc((size_t)m->count, sizeof *requests);
    int32_t *in = calloc((size_t)m->count, 4), *out = calloc((size_t)m->count, 4);
    int left = m->count;
    for (int i = 0; i < m->count; i++) {
        int k = me->rank ? m->count - 1 - i : i;
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.tag = (uint32_t)k + 1;
        in[k] = k + me->rank;
        WORLD_OK(occl_all_reduce(&in[k], &out[k], 1, OCCL_INT32, OCCL_SUM, me->comm, &attr,
                                 &requests[k]));
    }
    while (m->any && left > 0) {
        int index = -1;
        WORLD_OK(occl_wait_any(requests, m->count, -1, &index));
        WORLD_CHECK(index >= 0 && out[index] == 2 * index + 1);
        requests[index].handle = 0;
        left--;
    }
    if (m->any) {
        int index = 0;
        WORLD_OK(occl_wait_any(requests, m->count, -1, &index));
        WORLD_CHECK(index == -1);
    } else {
        WORLD_OK(occl_wait_all(requests, m->count));
        for (int i = 0; i < m->count; i++)
            WORLD_CHECK(out[i] == 2 * i + 1);
    }
    free(requests);
    free(in);
    free(out);
    return 0;
}

static void test_thousands_of_requests_crosswise(void **state) {
    (void)state;
    struct many some = {2000, true}, most = {4000, false};
    assert_int_equal(world_run(&world, 2, thousands, &some, 30), 0);
    assert_int_equal(world_run(&world, 2, thousands, &most, 30), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroy_is_a_leaving_to_the_peers),
        cmocka_unit_test(test_future_ops_of_a_revoked_communicator),
        cmocka_unit_test(test_submit_against_destroy),
        cmocka_unit_test(test_communicators_come_and_go_in_threads),
        cmocka_unit_test(test_finalize_while_others_are_inside),
        cmocka_unit_test(test_init_and_finalize_in_threads),
        cmocka_unit_test(test_abort_beside_a_stopped_member),
        cmocka_unit_test(test_callbacks_use_the_library),
        cmocka_unit_test(test_deadlines_against_completions),
        cmocka_unit_test(test_thousands_of_requests_crosswise),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup, teardown);
}
