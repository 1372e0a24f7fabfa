/* SPDX-License-Identifier: Apache-2.0 */
/* Forgetting tags, step by step: who votes when, which cells are forgotten, what opens next, and
 * that no word in the page can make a member loop or leave its arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shm_ipc/tag_batch.h"
#include "tests/shm_ipc/records.h"

#define RANKS 3

struct scene {
    struct occl_records m;
    struct occl_tag_member member[RANKS];
};

static struct scene begin(void) {
    struct scene s = {.m = records_new(RANKS)};
    for (uint32_t r = 0; r < RANKS; r++)
        occl_tag_member_init(&s.member[r], &s.m, r);
    return s;
}

static void end(struct scene *s) {
    records_free(&s->m);
}

static uint64_t word_of(const struct scene *s) {
    return s->member[0].batch->word;
}

static void set_word(struct scene *s, uint64_t word) {
    s->member[0].batch->word = word;
}

/* The member sees the open batch and votes with the digests that it has. */
static void vote(struct scene *s, uint32_t rank) {
    assert_false(occl_tag_quiet(&s->member[rank]));
    assert_int_equal(occl_tag_visit(&s->member[rank], &s->m), OCCL_TAG_TASK_VOTE);
    occl_tag_cast_vote(&s->member[rank]);
}

static void open_and_vote(struct scene *s) {
    occl_tag_propose(&s->member[0], OCCL_TAG_LEVEL_MAX);
    assert_int_equal(occl_tag_phase_of(word_of(s)), OCCL_TAG_OPEN);
    for (uint32_t r = 0; r < RANKS; r++)
        vote(s, r);
}

static void all_act(struct scene *s) {
    uint64_t word = word_of(s);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(word_of(s), word);
        assert_int_equal(occl_tag_visit(&s->member[r], &s->m), OCCL_TAG_TASK_ACT);
        occl_tag_acted(&s->member[r]);
    }
}

static uint32_t decided_cells(struct scene *s) {
    assert_int_equal(occl_tag_phase_of(word_of(s)), OCCL_TAG_DECIDED);
    return occl_tag_cells(word_of(s));
}

/* A tag of collectives in that cell of the batch. */
static uint32_t tag_in_cell(uint64_t word, uint32_t cell) {
    uint32_t tag = 1;
    while (occl_tag_cell(
               word, occl_tag_bucket(OCCL_PEERS_ALL, occl_tag_hash(OCCL_PEERS_ALL, tag))) != cell)
        tag++;
    return tag;
}

static void words_hold_their_fields(void **state) {
    (void)state;
    uint64_t word =
        occl_tag_word_with(occl_tag_word(0x1ffffff, 7, 0x1fff, 8), OCCL_TAG_CLOSED, 0xa5a5);
    assert_int_equal(occl_tag_number(word), 0x1ffffff);
    assert_int_equal(occl_tag_widest(word), 7);
    assert_int_equal(occl_tag_first(word), 0x1fff);
    assert_int_equal(occl_tag_level(word), 8);
    assert_int_equal(occl_tag_phase_of(word), OCCL_TAG_CLOSED);
    assert_int_equal(occl_tag_cells(word), 0xa5a5);
    assert_int_equal(occl_tag_level(occl_tag_word(1, 0, 0, 15)), OCCL_TAG_LEVEL_MAX);
    word = occl_tag_word(1, 0, 512, 2);
    assert_int_equal(occl_tag_cell(word, 511), OCCL_TAG_CELLS);
    assert_int_equal(occl_tag_cell(word, 512), 0);
    assert_int_equal(occl_tag_cell(word, 516), 1);
    assert_int_equal(occl_tag_cell(word, 512 + 63), 15);
    assert_int_equal(occl_tag_cell(word, 512 + 64), OCCL_TAG_CELLS);
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void counts_of_neighbours_differ(void **state) {
    (void)state;
    static uint64_t terms[400 * 200];
    uint32_t used = 0;
    for (uint32_t tag = 1; tag <= 400; tag++)
        for (uint32_t count = 0; count < 200; count++)
            terms[used++] =
                occl_tag_term(occl_tag_hash(tag % 2 ? OCCL_PEERS_ALL : tag << 16, tag / 2), count);
    qsort(terms, used, sizeof terms[0], compare);
    for (uint32_t i = 1; i < used; i++)
        assert_true(terms[i] != terms[i - 1]);
}

/* Tags in any regular order fill the buckets evenly: 16 each. */
static void buckets_are_even(void **state) {
    (void)state;
    for (uint32_t stride = 1; stride < 20000; stride = stride * 7 + 1) {
        static uint32_t in_bucket[OCCL_TAG_BUCKETS];
        memset(in_bucket, 0, sizeof in_bucket);
        for (uint32_t i = 0; i < 16 * OCCL_TAG_BUCKETS; i++) {
            uint32_t peers = i % 2 ? OCCL_PEERS_ALL : (i / 2 % 4) << 16 | (i / 2 + 1) % 4;
            uint32_t tag = 1 + i / 2 * stride;
            in_bucket[occl_tag_bucket(peers, occl_tag_hash(peers, tag))]++;
        }
        for (uint32_t i = 0; i < OCCL_TAG_BUCKETS; i++)
            assert_true(in_bucket[i] < 64);
    }
}

static void quiet_until_somebody_asks(void **state) {
    (void)state;
    struct scene s = begin();
    assert_true(occl_tag_quiet(&s.member[1]));
    occl_tag_propose(&s.member[0], OCCL_TAG_LEVEL_MAX);
    uint64_t word = word_of(&s);
    occl_tag_propose(&s.member[1], OCCL_TAG_LEVEL_MAX); /* one is under way */
    assert_int_equal(word_of(&s), word);
    vote(&s, 2);
    assert_int_equal(occl_tag_visit(&s.member[2], &s.m), OCCL_TAG_TASK_NONE);
    assert_int_equal(word_of(&s), word);
    end(&s);
}

static void equal_counts_are_forgotten(void **state) {
    (void)state;
    struct scene s = begin();
    uint64_t hash = occl_tag_hash(OCCL_PEERS_ALL, 7), other = occl_tag_hash(1 << 16, 7);
    for (uint32_t r = 0; r < RANKS; r++) {
        struct occl_tag_member *t = &s.member[r];
        t->digest[3] = occl_tag_term(hash, 5) * occl_tag_weight(t, OCCL_PEERS_ALL, false);
        t->reach[3] = 5;
        /* Rank 2 is one op behind. */
        t->digest[4] = occl_tag_term(hash, 5 - r / 2) * occl_tag_weight(t, OCCL_PEERS_ALL, false);
        /* Rank 0 has received what rank 1 has sent, in cell 5; not all of it in cell 6. */
        if (r < 2) {
            t->digest[5] = occl_tag_term(other, 9) * occl_tag_weight(t, 1 << 16, r == 1);
            t->digest[6] = occl_tag_term(other, 9 - r) * occl_tag_weight(t, 1 << 16, r == 1);
        }
        t->reach[5] = 9 + r;
    }
    s.member[1].reach[7] = 0x80000000u; /* too far to be told from what comes behind it */
    open_and_vote(&s);
    assert_int_equal(occl_tag_visit(&s.member[1], &s.m), OCCL_TAG_TASK_ACT);
    assert_int_equal(decided_cells(&s), 0xffff & ~(1 << 4 | 1 << 6 | 1 << 7));
    assert_int_equal(occl_tag_advance(&s.member[2], 3), 5);
    assert_int_equal(occl_tag_advance(&s.member[2], 5), 11);
    end(&s);
}

static void as_many_members_as_there_are_bits(void **state) {
    (void)state;
    struct occl_records m = records_new(OCCL_LOCAL_RANKS_MAX);
    static struct occl_tag_member member[OCCL_LOCAL_RANKS_MAX];
    uint64_t hash = occl_tag_hash(OCCL_PEERS_ALL, 7);
    for (uint32_t r = 0; r < OCCL_LOCAL_RANKS_MAX; r++) {
        struct occl_tag_member *t = &member[r];
        occl_tag_member_init(t, &m, r);
        occl_tag_propose(t, OCCL_TAG_LEVEL_MAX);
        assert_int_equal(occl_tag_visit(t, &m), OCCL_TAG_TASK_VOTE);
        t->digest[1] = occl_tag_term(hash, 5) * occl_tag_weight(t, OCCL_PEERS_ALL, false);
        t->digest[2] = occl_tag_term(hash, 5 + r / 63) * occl_tag_weight(t, OCCL_PEERS_ALL, false);
        assert_int_equal(occl_tag_visit(&member[0], &m),
                         r ? OCCL_TAG_TASK_NONE : OCCL_TAG_TASK_VOTE);
        occl_tag_cast_vote(t);
    }
    assert_int_equal(occl_tag_visit(&member[63], &m), OCCL_TAG_TASK_ACT);
    assert_int_equal(occl_tag_cells(member[63].word), 0xffff & ~(1 << 2));
    for (uint32_t r = 0; r < OCCL_LOCAL_RANKS_MAX; r++) {
        assert_int_equal(occl_tag_phase_of(member[0].batch->word), OCCL_TAG_DECIDED);
        assert_int_equal(occl_tag_visit(&member[r], &m), OCCL_TAG_TASK_ACT);
        occl_tag_acted(&member[r]);
    }
    assert_int_equal(occl_tag_phase_of(member[0].batch->word), OCCL_TAG_OPEN);
    records_free(&m);
}

static void one_missing_member_and_one_more_do_not_cancel_out(void **state) {
    (void)state;
    struct scene s = begin();
    uint64_t hash = occl_tag_hash(OCCL_PEERS_ALL, 7);
    for (uint32_t r = 0; r < RANKS; r++)
        s.member[r].digest[0] =
            occl_tag_term(hash, 4 + r) * occl_tag_weight(&s.member[r], OCCL_PEERS_ALL, false);
    open_and_vote(&s);
    assert_int_equal(occl_tag_visit(&s.member[0], &s.m), OCCL_TAG_TASK_ACT);
    assert_int_equal(decided_cells(&s), 0xfffe);
    end(&s);
}

/* Bucket of the batch's cell. */
static uint32_t bucket_in(const struct scene *s, uint32_t cell) {
    return occl_tag_first(word_of(s)) + (cell << occl_tag_level(word_of(s)));
}

static void marked_cells_stay_until_they_are_renewed(void **state) {
    (void)state;
    struct scene s = begin();
    open_and_vote(&s);
    assert_false(occl_tag_touch(&s.member[1], bucket_in(&s, 2)));
    assert_int_equal(s.member[1].votes[1].stale, 1 << 2);
    assert_false(occl_tag_touch(&s.member[2], bucket_in(&s, 9)));
    s.member[2].digest[9] = 1; /* a count has changed */
    /* Member 2 renews its own before it evaluates: only member 1's mark is left. */
    assert_int_equal(occl_tag_visit(&s.member[2], &s.m), OCCL_TAG_TASK_ACT);
    assert_int_equal(s.member[2].votes[2].digest[9], 1);
    assert_int_equal(decided_cells(&s), 0xffff & ~(1 << 2 | 1 << 9));
    end(&s);
}

static void too_many_marks_are_waited_for_a_while(void **state) {
    (void)state;
    struct scene s = begin();
    open_and_vote(&s);
    for (uint32_t cell = 0; cell < 12; cell++)
        assert_false(occl_tag_touch(&s.member[1], bucket_in(&s, cell)));
    assert_int_equal(occl_tag_visit(&s.member[0], &s.m), OCCL_TAG_TASK_NONE);
    assert_int_equal(occl_tag_visit(&s.member[2], &s.m), OCCL_TAG_TASK_NONE);
    uint32_t visits = 0;
    while (occl_tag_visit(&s.member[0], &s.m) == OCCL_TAG_TASK_NONE)
        assert_true(visits++ < 100);
    assert_int_equal(decided_cells(&s), 0xf000);
    end(&s);
}

static void touches_of_a_closed_batch_count(void **state) {
    (void)state;
    struct scene s = begin();
    open_and_vote(&s);
    uint64_t open = word_of(&s);
    set_word(&s, open + (1 << 16)); /* somebody evaluates it */
    assert_int_equal(occl_tag_phase_of(word_of(&s)), OCCL_TAG_CLOSED);
    assert_int_equal(occl_tag_visit(&s.member[0], &s.m), OCCL_TAG_TASK_NONE);
    assert_false(occl_tag_touch(&s.member[1], bucket_in(&s, 3)));
    assert_int_equal(occl_tag_cells(word_of(&s)), 1 << 3);
    assert_false(occl_tag_touch(&s.member[2], bucket_in(&s, 3)));
    /* Decided: who comes now acts first. */
    set_word(&s, occl_tag_word_with(open, OCCL_TAG_DECIDED, 0xfff7));
    assert_false(occl_tag_touch(&s.member[1], bucket_in(&s, 3))); /* marked: nothing to forget */
    assert_true(occl_tag_touch(&s.member[1], bucket_in(&s, 4)));
    assert_int_equal(s.member[1].word, word_of(&s));
    end(&s);
}

static void collectives_in_records_are_not_forgotten(void **state) {
    (void)state;
    struct scene s = begin();
    open_and_vote(&s);
    uint32_t tag = tag_in_cell(word_of(&s), 11);
    struct occl_place place = occl_place_of(records_collective(tag, 300));
    assert_int_equal(occl_print_tag(place.print), tag);
    assert_int_equal(occl_claim_enter(occl_claim_of(&s.m, place.slot), place.print, false),
                     OCCL_ENTER_CLAIMED);
    assert_int_equal(occl_tag_visit(&s.member[0], &s.m), OCCL_TAG_TASK_ACT);
    assert_int_equal(decided_cells(&s), 0xffff & ~(1 << 11));
    end(&s);
}

static void next_batch_waits_for_all(void **state) {
    (void)state;
    struct scene s = begin();
    open_and_vote(&s);
    assert_int_equal(occl_tag_visit(&s.member[0], &s.m), OCCL_TAG_TASK_ACT);
    occl_tag_acted(&s.member[0]);
    assert_true(occl_tag_quiet(&s.member[0]));
    assert_int_equal(occl_tag_visit(&s.member[1], &s.m), OCCL_TAG_TASK_ACT);
    occl_tag_acted(&s.member[1]);
    occl_tag_propose(&s.member[0], OCCL_TAG_LEVEL_MAX);
    assert_int_equal(occl_tag_phase_of(word_of(&s)), OCCL_TAG_DECIDED);
    assert_int_equal(occl_tag_visit(&s.member[2], &s.m), OCCL_TAG_TASK_ACT);
    occl_tag_acted(&s.member[2]); /* the last one goes on with the sweep */
    assert_int_equal(occl_tag_phase_of(word_of(&s)), OCCL_TAG_OPEN);
    assert_int_equal(occl_tag_number(word_of(&s)), 2);
    assert_int_equal(occl_tag_first(word_of(&s)), OCCL_TAG_CELLS << 6);
    end(&s);
}

/* A whole sweep, in which all agree on each cell or on none; returns how many batches it took. No
 * bucket is left out. */
static uint32_t sweep(struct scene *s, bool agree, uint32_t widest) {
    uint32_t batches = 0, reached = 0;
    bool last = false;
    occl_tag_propose(&s->member[0], widest);
    while (!last) {
        for (uint32_t r = 0; r < RANKS; r++)
            vote(s, r);
        for (uint32_t cell = 0; !agree && cell < OCCL_TAG_CELLS; cell++)
            s->member[0].votes[0].digest[cell] = 1;
        assert_true(occl_tag_first(word_of(s)) <= reached);
        assert_true(occl_tag_level(word_of(s)) <= widest);
        assert_int_equal(occl_tag_visit(&s->member[0], &s->m), OCCL_TAG_TASK_ACT);
        uint64_t word = word_of(s);
        last = occl_tag_sweep_ends(word);
        if (agree || occl_tag_level(word) == 0)
            reached = occl_tag_first(word) + occl_tag_span(word);
        all_act(s);
        batches++;
    }
    assert_int_equal(reached, OCCL_TAG_BUCKETS);
    assert_int_equal(occl_tag_phase_of(word_of(s)),
                     OCCL_TAG_DECIDED); /* nobody goes on by itself */
    return batches;
}

static void cells_follow_agreement(void **state) {
    (void)state;
    struct scene s = begin();
    /* 1024, 1024, 2048, 4096 buckets */
    assert_int_equal(sweep(&s, true, OCCL_TAG_LEVEL_MAX), 4);
    /* Down to single buckets, then all of them. */
    assert_int_equal(sweep(&s, false, OCCL_TAG_LEVEL_MAX), 6 + OCCL_TAG_BUCKETS / OCCL_TAG_CELLS);
    assert_int_equal(sweep(&s, true, OCCL_TAG_LEVEL_MAX), 4);
    assert_int_equal(sweep(&s, true, 7), 5);
    assert_int_equal(sweep(&s, true, 1), OCCL_TAG_BUCKETS / OCCL_TAG_CELLS / 2);
    assert_int_equal(sweep(&s, true, 0), OCCL_TAG_BUCKETS / OCCL_TAG_CELLS);
    end(&s);
}

static void nothing_in_the_page_is_believed(void **state) {
    (void)state;
    struct scene s = begin();
    uint64_t noise = 1;
    for (uint32_t i = 0; i < 300000; i++) {
        uint32_t rank = stress_noise(&noise) % RANKS;
        struct occl_tag_member *t = &s.member[rank];
        uint64_t *words = (uint64_t *)(void *)t->batch;
        uint32_t count = (OCCL_TAG_BATCH_BYTES + RANKS * OCCL_TAG_VOTE_BYTES) / 8;
        if (i % 3 == 0)
            words[i % 2 ? 0 : stress_noise(&noise) % count] =
                (uint64_t)stress_noise(&noise) << 33 ^ (uint64_t)stress_noise(&noise) << 2 ^ i;
        enum occl_tag_task task = occl_tag_visit(t, &s.m);
        if (task == OCCL_TAG_TASK_VOTE)
            occl_tag_cast_vote(t);
        if (t->voted && occl_tag_touch(t, stress_noise(&noise) % OCCL_TAG_BUCKETS))
            task = OCCL_TAG_TASK_ACT;
        assert_true(occl_tag_first(t->word) < OCCL_TAG_BUCKETS);
        assert_true(occl_tag_span(t->word) <= OCCL_TAG_CELLS << OCCL_TAG_LEVEL_MAX);
        if (task == OCCL_TAG_TASK_ACT)
            occl_tag_acted(t);
        occl_tag_propose(t, OCCL_TAG_LEVEL_MAX);
    }
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_hold_their_fields),
        cmocka_unit_test(counts_of_neighbours_differ),
        cmocka_unit_test(buckets_are_even),
        cmocka_unit_test(quiet_until_somebody_asks),
        cmocka_unit_test(equal_counts_are_forgotten),
        cmocka_unit_test(as_many_members_as_there_are_bits),
        cmocka_unit_test(one_missing_member_and_one_more_do_not_cancel_out),
        cmocka_unit_test(marked_cells_stay_until_they_are_renewed),
        cmocka_unit_test(too_many_marks_are_waited_for_a_while),
        cmocka_unit_test(touches_of_a_closed_batch_count),
        cmocka_unit_test(collectives_in_records_are_not_forgotten),
        cmocka_unit_test(next_batch_waits_for_all),
        cmocka_unit_test(cells_follow_agreement),
        cmocka_unit_test(nothing_in_the_page_is_believed),
    };
    return cmocka_run_group_tests_name("tag_batch", tests, NULL, NULL);
}
