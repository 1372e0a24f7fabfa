/* SPDX-License-Identifier: Apache-2.0 */
/* A new tag for each op, without end: counters of tags are forgotten when all ranks are done with
 * them, never before, and a tag that comes again meets nothing of its former life. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_lib/tag_table.h"
#include "tests/client/world.h"

#define RANKS 3
#define WINDOW 8
#define HOT_TAGS 16
#define HOT_FIRST 0x40000000u
/* Twice the least number of counters with which a rank asks for a sweep, and what is added while
 * the sweep runs. Nothing is forgotten: it passes this after a hundredth of the test. */
#define COUNTERS_MAX 12288u

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

static uint32_t fewer(uint32_t count) {
    return world_slowness() > 2 ? count / 16 : count;
}

static struct client_comm *comm_of(const struct world_rank *me) {
    return occl_lib.comms[(uint32_t)me->comm.handle];
}

static void nap_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static uint32_t noise(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

static void shuffle(uint32_t *order, uint32_t count, uint64_t *state) {
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t other = noise(state) % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* ---- all-reduces, each rank in its own order inside a window ---- */

static int64_t share(int rank, uint32_t tag, uint32_t use) {
    return (int64_t)(rank + 1) * tag + use;
}

/* Tags first, first + 1, .. once each; use: how often each was used before. */
static int window(struct world_rank *me, uint32_t first, uint32_t use, uint64_t *state) {
    int64_t in[WINDOW], out[WINDOW];
    struct occl_request request[WINDOW];
    uint32_t order[WINDOW];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    shuffle(order, WINDOW, state);
    for (uint32_t i = 0; i < WINDOW; i++) {
        uint32_t at = order[i];
        attr.tag = first + at;
        in[at] = share(me->rank, attr.tag, use);
        WORLD_OK(occl_all_reduce(&in[at], &out[at], 1, OCCL_INT64, OCCL_SUM, me->comm, &attr,
                                 &request[at]));
    }
    WORLD_OK(occl_wait_all(request, WINDOW));
    for (uint32_t i = 0; i < WINDOW; i++)
        WORLD_CHECK(out[i] ==
                    (int64_t)me->size * (me->size + 1) / 2 * (first + i) + (int64_t)me->size * use);
    return 0;
}

/* Each rank sends to the next one and receives from the one before, half of the messages first. */
static int messages(struct world_rank *me, uint32_t tag, uint64_t *state) {
    int64_t in[2] = {me->rank, -me->rank}, out[2];
    struct occl_request request[4];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    int to = (me->rank + 1) % me->size, from = (me->rank + me->size - 1) % me->size;
    uint32_t order[4];
    shuffle(order, 4, state);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t which = order[i] / 2;
        attr.tag = tag + which;
        if (order[i] % 2)
            WORLD_OK(occl_send(&in[which], 1, OCCL_INT64, to, me->comm, &attr, &request[i]));
        else
            WORLD_OK(occl_recv(&out[which], 1, OCCL_INT64, from, me->comm, &attr, &request[i]));
    }
    WORLD_OK(occl_wait_all(request, 4));
    WORLD_CHECK(out[0] == from);
    WORLD_CHECK(out[1] == -from);
    return 0;
}

static int hot_tag(struct world_rank *me, uint32_t round) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    int64_t in = round, out;
    attr.tag = HOT_FIRST + round % HOT_TAGS;
    WORLD_OK(occl_all_reduce(&in, &out, 1, OCCL_INT64, OCCL_MAX, me->comm, &attr, NULL));
    WORLD_CHECK(out == round);
    return 0;
}

/* Its tag is forgotten between two runs, and the handle does not know. */
static int run_persistent(struct world_rank *me, struct occl_request request, int64_t *io) {
    io[0] = me->rank;
    WORLD_OK(occl_start(request));
    WORLD_OK(occl_wait(request));
    WORLD_CHECK(io[1] == me->size - 1);
    return 0;
}

static int fresh_tags(struct world_rank *me) {
    uint64_t state = 77u + (uint64_t)me->rank;
    struct occl_request persistent;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    int64_t io[2] = {0, 0};
    attr.tag = HOT_FIRST - 1;
    WORLD_OK(occl_all_reduce_init(&io[0], &io[1], 1, OCCL_INT64, OCCL_MAX, me->comm, &attr,
                                  &persistent));
    const struct client_tags *tags = &comm_of(me)->tags;
    uint32_t rounds = fewer((OCCL_QUOTA_LIVE_TAGS + 50000) / WINDOW), most = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        if (window(me, 1 + round * WINDOW, 0, &state) || hot_tag(me, round) ||
            (round % 4 == 0 && messages(me, 1 + round, &state)) ||
            (round % 1000 == 0 && run_persistent(me, persistent, io)))
            return 1;
        most = tags->used > most ? tags->used : most;
        WORLD_CHECK(tags->used <= COUNTERS_MAX);
    }
    WORLD_CHECK(tags->capacity <= 4 * COUNTERS_MAX);
    if (me->rank == 0)
        printf("%u tags, at most %u counters\n", rounds * WINDOW + rounds / 2, most);
    return 0;
}
static void test_more_tags_than_counters(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, RANKS, fresh_tags, NULL, 60), 0);
}

/* ---- on two threads, and alone ---- */

struct worker {
    struct world_rank *me;
    uint32_t first;
    int failed;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    uint64_t state = worker->first + (uint64_t)worker->me->rank;
    for (uint32_t i = 0; i < fewer(16000) && !worker->failed; i++)
        worker->failed = window(worker->me, worker->first + i * WINDOW, 0, &state);
    return NULL;
}

static int two_threads(struct world_rank *me) {
    struct worker workers[2] = {{me, 1, 0}, {me, 0x20000000, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        WORLD_CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    for (int i = 0; i < 2; i++)
        WORLD_CHECK(pthread_join(threads[i], NULL) == 0 && !workers[i].failed);
    WORLD_CHECK(comm_of(me)->tags.used <= COUNTERS_MAX);
    return 0;
}
static void test_two_threads_of_each_rank(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, two_threads, NULL, 60), 0);
}

static int to_oneself(struct world_rank *me) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    for (attr.tag = 1; attr.tag < 20000; attr.tag++) {
        int64_t in = attr.tag, out = 0;
        struct occl_request request;
        WORLD_OK(occl_recv(&out, 1, OCCL_INT64, 0, me->comm, &attr, &request));
        WORLD_OK(occl_send(&in, 1, OCCL_INT64, 0, me->comm, &attr, NULL));
        WORLD_OK(occl_wait(request));
        WORLD_CHECK(out == in);
        WORLD_CHECK(comm_of(me)->tags.used <= COUNTERS_MAX);
    }
    return 0;
}
static void test_a_rank_alone(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 1, to_oneself, NULL, 60), 0);
}

/* ---- a tag's next lives ---- */

#define CYCLE_WINDOWS 1000u

static int next_lives(struct world_rank *me) {
    uint64_t state = 5u + (uint64_t)me->rank;
    const struct client_tags *tags = &comm_of(me)->tags;
    uint32_t lives = fewer(32) > 4 ? fewer(32) : 4, gone = 0;
    for (uint32_t life = 0; life < lives; life++)
        for (uint32_t i = 0; i < CYCLE_WINDOWS; i++) {
            uint32_t tag = 1 + i * WINDOW;
            uint64_t name = client_tag_name(OCCL_PEERS_ALL, tag, false);
            if (life && client_tag_find(tags, name, occl_tag_hash(OCCL_PEERS_ALL, tag))->name == 0)
                gone++;
            if (window(me, tag, life, &state))
                return 1;
        }
    /* Most of them had been forgotten when they came again. */
    WORLD_CHECK(gone > (lives - 1) * CYCLE_WINDOWS / 2);
    return 0;
}
static void test_a_tag_comes_again(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, RANKS, next_lives, NULL, 60), 0);
}

/* ---- a rank that does not come ---- */

/* With all ranks there, what has piled up goes. */
static int shrinks(struct world_rank *me, uint64_t *state) {
    const struct client_tags *tags = &comm_of(me)->tags;
    for (uint32_t i = 0; i < 600; i++)
        if (window(me, 0x20000000u + i * WINDOW, 0, state))
            return 1;
    WORLD_CHECK(tags->used <= COUNTERS_MAX);
    WORLD_CHECK(tags->capacity <= 4 * COUNTERS_MAX);
    return 0;
}

static int absent_rank(struct world_rank *me) {
    struct client_tags *tags = &comm_of(me)->tags;
    volatile uint32_t *stage = me->arg; /* [r]: rank r is there; 2 is about to stop */
    uint64_t state = 9u + (uint64_t)me->rank;
    uint32_t pairs = fewer(60000);
    for (uint32_t i = 0; i < 60; i++)
        if (window(me, 1 + i * WINDOW, 0, &state))
            return 1;
    if (me->rank == 2) {
        stage[2] = 1;
        (void)raise(SIGSTOP);
    } else {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        uint32_t before = tags->used;
        for (uint32_t i = 0; i < pairs; i++) {
            int64_t in = i, out;
            struct occl_request request;
            attr.tag = 1 + i;
            WORLD_OK(occl_send(&in, 1, OCCL_INT64, 1 - me->rank, me->comm, &attr, &request));
            WORLD_OK(occl_recv(&out, 1, OCCL_INT64, 1 - me->rank, me->comm, &attr, NULL));
            WORLD_OK(occl_wait(request));
            WORLD_CHECK(out == i);
        }
        /* Without rank 2 at most the batch that was under way can be decided. */
        WORLD_CHECK(tags->used > before + pairs);
        stage[me->rank] = 1;
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return shrinks(me, &state);
}
static void test_a_stopped_rank_only_delays(void **state) {
    (void)state;
    volatile uint32_t *stage = world_shared(4096);
    pid_t pids[RANKS];
    world_spawn(&w, RANKS, absent_rank, (void *)(uintptr_t)stage, pids);
    for (int i = 0; i < 60000 && !(stage[0] && stage[1] && stage[2]); i++)
        nap_ms(1);
    (void)kill(pids[2], SIGCONT);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(world_wait(pids[rank], 30), 0);
}

/* ---- a rank that uses no tags ---- */

#define MESSAGES 50

static int rare_rank(struct world_rank *me) {
    const struct client_tags *tags = &comm_of(me)->tags;
    uint32_t rounds = fewer(2000), most = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        for (uint32_t i = 0; me->rank < 2 && i < MESSAGES; i++) {
            int64_t in = i, out;
            struct occl_request request;
            attr.tag = 1 + round * MESSAGES + i;
            WORLD_OK(occl_send(&in, 1, OCCL_INT64, 1 - me->rank, me->comm, &attr, &request));
            WORLD_OK(occl_recv(&out, 1, OCCL_INT64, 1 - me->rank, me->comm, &attr, NULL));
            WORLD_OK(occl_wait(request));
            WORLD_CHECK(out == i);
        }
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        most = tags->used > most ? tags->used : most;
    }
    if (me->rank == 0)
        printf("%u tags, at most %u counters\n", 2 * rounds * MESSAGES, most);
    WORLD_CHECK(most <= 2 * COUNTERS_MAX);
    return 0;
}
static void test_a_rank_without_tags_takes_part(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, RANKS, rare_rank, NULL, 60), 0);
}

/* ---- ops that a rank has not submitted ---- */

#define LATE_TAGS 8
#define LATE_FIRST 0x30000000u

static bool counted(const struct world_rank *me, uint32_t tag) {
    const struct client_tags *tags = &comm_of(me)->tags;
    uint64_t name = client_tag_name(OCCL_PEERS_ALL, tag, false);
    return tags->capacity &&
           client_tag_find(tags, name, occl_tag_hash(OCCL_PEERS_ALL, tag))->name == name;
}

/* All end with a time-out, whoever comes first. */
static int late_ops(struct world_rank *me, int64_t timeout_ns) {
    int64_t in[LATE_TAGS] = {0}, out[LATE_TAGS];
    struct occl_request request[LATE_TAGS];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = timeout_ns;
    for (uint32_t i = 0; i < LATE_TAGS; i++) {
        attr.tag = LATE_FIRST + i;
        WORLD_OK(occl_all_reduce(&in[i], &out[i], 1, OCCL_INT64, OCCL_SUM, me->comm, &attr,
                                 &request[i]));
    }
    for (uint32_t i = 0; i < LATE_TAGS; i++)
        WORLD_CHECK(occl_wait(request[i]) == OCCL_ERROR_TIMEOUT);
    return 0;
}

static int late_rank(struct world_rank *me) {
    const struct client_tags *tags = &comm_of(me)->tags;
    uint64_t state = 3u + (uint64_t)me->rank;
    uint32_t rounds = fewer(8000);
    if (me->rank < 2 && late_ops(me, 20000000))
        return 1;
    for (uint32_t i = 0; i < rounds; i++) {
        if (window(me, 1 + i * WINDOW, 0, &state))
            return 1;
        WORLD_CHECK(tags->used <= COUNTERS_MAX);
    }
    for (uint32_t i = 0; i < LATE_TAGS; i++)
        WORLD_CHECK(counted(me, LATE_FIRST + i) == (me->rank < 2));
    if (me->rank == 2 && late_ops(me, 0))
        return 1;
    uint32_t still = 1;
    for (uint32_t i = 0; i < rounds; i++) {
        if (window(me, 0x10000000u + i * WINDOW, 0, &state))
            return 1;
        for (uint32_t k = still = 0; k < LATE_TAGS; k++)
            still += counted(me, LATE_FIRST + k);
    }
    WORLD_CHECK(still == 0);
    return window(me, LATE_FIRST, 0, &state);
}
static void test_tags_live_until_all_have_come(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, RANKS, late_rank, NULL, 60), 0);
}

/* ---- the quota ---- */

static int too_many(struct world_rank *me) {
    volatile uint32_t *stage = me->arg;
    const struct client_tags *tags = &comm_of(me)->tags;
    uint64_t state = 1;
    for (uint32_t i = 0; i < HOT_TAGS; i++)
        if (hot_tag(me, i))
            return 1;
    while (me->rank == 1 && !stage[0])
        nap_ms(1); /* it does not call the library */
    if (me->rank == 0) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        int64_t in = 1, out;
        struct occl_request request;
        enum occl_result result = OCCL_SUCCESS;
        for (attr.tag = 1; result == OCCL_SUCCESS; attr.tag++) {
            WORLD_CHECK(attr.tag <= OCCL_QUOTA_LIVE_TAGS);
            result = occl_send(&in, 1, OCCL_INT64, 0, me->comm, &attr, &request);
            if (result != OCCL_SUCCESS)
                break;
            result = occl_recv(&out, 1, OCCL_INT64, 0, me->comm, &attr, NULL);
            WORLD_OK(occl_wait(request));
        }
        WORLD_CHECK(result == OCCL_ERROR_QUOTA);
        WORLD_CHECK(strstr(occl_last_error(), "1048576 live tags") != NULL);
        WORLD_CHECK(strstr(occl_last_error(), "submitted as many operations") != NULL);
        stage[0] = 1;
    }
    /* Tags that are counted still serve; with the other rank there the others go. */
    for (uint32_t i = HOT_TAGS; i < HOT_TAGS + 2000; i++)
        if (hot_tag(me, i))
            return 1;
    WORLD_CHECK(tags->used <= OCCL_QUOTA_LIVE_TAGS / 8);
    return window(me, 1, 0, &state);
}
static void test_quota_is_for_live_tags(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, too_many, world_shared(4096), 60), 0);
}

/* ---- a rank that writes what it likes ---- */

static int scribbler(struct world_rank *me) {
    volatile uint32_t *stage = me->arg;
    struct client_comm *comm = comm_of(me);
    uint64_t *words = (uint64_t *)(void *)(comm->m.base + comm->m.tags_offset), state = 6;
    uint32_t count = (OCCL_TAG_BATCH_BYTES + RANKS * OCCL_TAG_VOTE_BYTES) / 8;
    double until = world_now() + 1;
    for (uint32_t i = 0; !stage[0]; i++) {
        int64_t in = 1, out[WINDOW];
        struct occl_request request[WINDOW];
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.timeout_ns = 5000000;
        for (uint32_t k = 0; k < WINDOW; k++) {
            attr.tag = 1 + (i * WINDOW + k) % 5000;
            WORLD_OK(occl_all_reduce(&in, &out[k], 1, OCCL_INT64, OCCL_SUM, me->comm, &attr,
                                     &request[k]));
            uint64_t word = occl_tag_word_with(
                occl_tag_word(occl_tag_number(words[0]) + i % 2, i % 9, noise(&state), i % 16),
                (enum occl_tag_phase)(noise(&state) % 4), noise(&state));
            if (me->rank == 0)
                occl_note64(&words[k % 2 ? 0 : noise(&state) % count], word);
        }
        for (uint32_t k = 0; k < WINDOW; k++) {
            enum occl_result result = occl_wait(request[k]);
            WORLD_CHECK(result == OCCL_SUCCESS || result == OCCL_ERROR_TIMEOUT || stage[0]);
        }
        if (me->rank == 0 && world_now() > until)
            stage[0] = 1;
    }
    return 0;
}
static void test_a_scribbling_rank_ends_nobody(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, RANKS, scribbler, world_shared(4096), 30), 0);
    /* Nor does it harm the next job. */
    assert_int_equal(world_run(&w, RANKS, next_lives, NULL, 60), 0);
}

/* ---- a rank that dies ---- */

static int mortal(struct world_rank *me) {
    uint64_t state = 21u + (uint64_t)me->rank;
    int64_t in = 1, out;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    for (uint32_t i = 0; i < 300; i++)
        if (window(me, 1 + i * WINDOW, 0, &state))
            return 1;
    if (me->rank == 2)
        (void)raise(SIGKILL);
    for (attr.tag = 0x50000000u;; attr.tag++) {
        enum occl_result result =
            occl_all_reduce(&in, &out, 1, OCCL_INT64, OCCL_SUM, me->comm, &attr, NULL);
        if (result == OCCL_ERROR_PEER_FAILED)
            break;
        WORLD_OK(result);
    }
    WORLD_OK(occl_comm_destroy(me->comm));
    return 0;
}
static void test_a_rank_dies_in_between(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, RANKS, mortal, NULL, 30), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_tags_than_counters),
        cmocka_unit_test(test_two_threads_of_each_rank),
        cmocka_unit_test(test_a_rank_alone),
        cmocka_unit_test(test_a_tag_comes_again),
        cmocka_unit_test(test_a_stopped_rank_only_delays),
        cmocka_unit_test(test_a_rank_without_tags_takes_part),
        cmocka_unit_test(test_tags_live_until_all_have_come),
        cmocka_unit_test(test_quota_is_for_live_tags),
        cmocka_unit_test(test_a_scribbling_rank_ends_nobody),
        cmocka_unit_test(test_a_rank_dies_in_between),
    };
    return cmocka_run_group_tests_name("tags", tests, setup, teardown);
}
