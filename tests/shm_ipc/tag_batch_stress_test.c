/* SPDX-License-Identifier: Apache-2.0 */
/* Members on threads that use and forget tags as fast as they can, each in an order of its own. The
 * k-th op of a tag has the same number at all of them, and no number comes twice. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "shm_ipc/tag_batch.h"
#include "tests/shm_ipc/records.h"

#define RANKS 4
#define TAGS 192
#define ROUNDS (10000u / STRESS_DIVISOR)
/* Members meet now and then: where all are far apart nobody agrees on anything. */
#define MEET_EVERY 2

struct shared {
    struct occl_records m;
    uint64_t number_of[TAGS][ROUNDS / 4]; /* of the k-th op, + 1; a tag is used in each 8th round */
    uint32_t here[ROUNDS / MEET_EVERY + 1];
    uint32_t wrong;
    uint64_t forgotten;
};
static struct shared s;

struct rank {
    struct occl_tag_member member;
    uint32_t starts[OCCL_TAG_BUCKETS];
    uint32_t count[TAGS]; /* of tag i + 1; where it starts: none */
    uint32_t ops[TAGS];
    uint32_t next[TAGS]; /* no number below comes any more */
    uint64_t forgotten;
    uint64_t noise;
};

static uint64_t hash_of(uint32_t at) {
    return occl_tag_hash(OCCL_PEERS_ALL, at + 1);
}

static uint64_t part(const struct rank *r, uint32_t at, uint32_t count) {
    uint32_t start = r->starts[occl_tag_bucket(OCCL_PEERS_ALL, hash_of(at))];
    return count == start ? 0
                          : occl_tag_term(hash_of(at), count) *
                                occl_tag_weight(&r->member, OCCL_PEERS_ALL, false);
}

static void act(struct rank *r) {
    struct occl_tag_member *t = &r->member;
    uint32_t cells = occl_tag_cells(t->word);
    for (uint32_t i = 0; i < occl_tag_span(t->word); i++)
        if (cells >> (i >> occl_tag_level(t->word)) & 1)
            r->starts[occl_tag_first(t->word) + i] +=
                occl_tag_advance(t, i >> occl_tag_level(t->word));
    for (uint32_t at = 0; at < TAGS; at++) {
        uint32_t bucket = occl_tag_bucket(OCCL_PEERS_ALL, hash_of(at));
        uint32_t cell = occl_tag_cell(t->word, bucket);
        if (cell == OCCL_TAG_CELLS || !(cells >> cell & 1))
            continue;
        r->forgotten += r->count[at] != r->starts[bucket];
        r->count[at] = r->starts[bucket];
    }
    occl_tag_acted(t);
}

static void visit(struct rank *r) {
    struct occl_tag_member *t = &r->member;
    enum occl_tag_task task = occl_tag_visit(t, &s.m);
    if (task == OCCL_TAG_TASK_ACT)
        act(r);
    if (task != OCCL_TAG_TASK_VOTE)
        return;
    for (uint32_t cell = 0; cell < OCCL_TAG_CELLS; cell++)
        t->digest[cell] = t->reach[cell] = 0;
    for (uint32_t at = 0; at < TAGS; at++) {
        uint32_t bucket = occl_tag_bucket(OCCL_PEERS_ALL, hash_of(at));
        uint32_t cell = occl_tag_cell(t->word, bucket), reach = r->count[at] - r->starts[bucket];
        if (cell == OCCL_TAG_CELLS)
            continue;
        t->digest[cell] += part(r, at, r->count[at]);
        t->reach[cell] = reach > t->reach[cell] ? reach : t->reach[cell];
    }
    occl_tag_cast_vote(t);
}

static void submit(struct rank *r, uint32_t at) {
    struct occl_tag_member *t = &r->member;
    uint32_t bucket = occl_tag_bucket(OCCL_PEERS_ALL, hash_of(at));
    if (!occl_tag_quiet(t))
        visit(r);
    if (t->voted && occl_tag_touch(t, bucket))
        act(r);
    uint32_t number = r->count[at]++, cell = occl_tag_cell(t->word, bucket);
    if (t->voted && cell < OCCL_TAG_CELLS) {
        uint32_t reach = r->count[at] - r->starts[bucket];
        t->digest[cell] += part(r, at, r->count[at]) - part(r, at, number);
        t->reach[cell] = reach > t->reach[cell] ? reach : t->reach[cell];
    }
    uint64_t other = 0;
    bool fine =
        occl_claim64(&s.number_of[at][r->ops[at]], &other, number + 1ull) || other == number + 1ull;
    if (!fine || number < r->next[at])
        occl_add32(&s.wrong, 1);
    r->next[at] = number + 1;
    r->ops[at]++;
}

static void *run(void *arg) {
    struct rank *r = arg;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        /* Each tag is used in the round or not, at all members alike; in an order of its own. */
        uint32_t first = stress_noise(&r->noise) % TAGS;
        for (uint32_t i = 0; i < TAGS; i++) {
            uint32_t at = (first + i * 5) % TAGS;
            if (occl_tag_mix(round * 1000003ull + at) % 8 == 0)
                submit(r, at);
        }
        occl_tag_propose(&r->member, 6 + round % 3);
        if (round % MEET_EVERY)
            continue;
        uint32_t *here = &s.here[round / MEET_EVERY];
        uint64_t since = stress_now_ns();
        occl_add32(here, 1);
        while (occl_look32(here) < RANKS) {
            visit(r); /* as a rank that waits */
            (void)sched_yield();
            stress_watch(since, "a meeting of all members");
        }
    }
    occl_add64(&s.forgotten, r->forgotten);
    return NULL;
}

static void members_agree_in_any_order(void **state) {
    (void)state;
    static struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    s.m = records_new(RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i].noise = 11 + i;
        occl_tag_member_init(&ranks[i].member, &s.m, i);
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    print_message("%llu counts forgotten in %llu batches\n", (unsigned long long)s.forgotten,
                  (unsigned long long)occl_tag_number(ranks[0].member.word));
    assert_int_equal(s.wrong, 0);
    assert_true(s.forgotten > RANKS * TAGS / 4);
    records_free(&s.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_agree_in_any_order),
    };
    return cmocka_run_group_tests_name("tag_batch_stress", tests, NULL, NULL);
}
