/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of steps that must decide in one compare-and-swap, run against each other at the same
 * moment many times (also under the thread sanitizer): arrival and poison, the end of a claim and
 * an op that goes to the ring, the last member out and a lane that comes in. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/shm_ipc/records.h"

#define MEMBERS 3u
#define ROUNDS (300000u / STRESS_DIVISOR)
/* Of one race: on a loaded machine two threads meet some thousand times a second. */
#define RACE_NS 4000000000ull
#define SLOT (OCCL_PAIRS + 5u)

struct race {
    struct occl_records records;
    uint32_t turn; /* rounds that both sides have begun, times two */
    uint32_t over;
    bool came; /* what the two sides found in this round */
    enum occl_enter first, second;
    void (*left_side)(struct race *, uint64_t print);
    void (*right_side)(struct race *, uint64_t print);
};

/* Both sides are here; each then dawdles a little, so that the moment moves. */
static void meet(struct race *r, uint32_t until, uint64_t *noise) {
    (void)occl_add32(&r->turn, 1);
    for (uint32_t spins = 0; occl_look32(&r->turn) < until; spins++) {
        occl_relax();
        if (spins % 512 == 511)
            (void)sched_yield();
    }
    if (noise != NULL)
        for (uint32_t i = stress_noise(noise) % 12; i > 0; i--)
            (void)occl_look32(&r->turn);
}

static void *run_right(void *arg) {
    struct race *r = arg;
    uint64_t noise = 5;
    for (uint32_t i = 0;; i++) {
        meet(r, 4 * i + 2, &noise);
        if (occl_observe32(&r->over))
            return NULL;
        r->right_side(r, i + 1);
        meet(r, 4 * i + 4, NULL);
    }
}

/* Prepares a round, lets both sides run, and judges it. */
static void run_race(struct race *r, void (*prepare)(struct race *, uint64_t),
                     bool (*judge)(struct race *, uint64_t)) {
    pthread_t right;
    uint64_t noise = 6, start = stress_now_ns();
    uint32_t wrong = 0;
    r->records = records_new(MEMBERS);
    assert_int_equal(pthread_create(&right, NULL, run_right, r), 0);
    for (uint32_t i = 0;; i++) {
        if (i == ROUNDS || stress_now_ns() - start > RACE_NS)
            occl_publish32(&r->over, 1);
        prepare(r, i + 1);
        meet(r, 4 * i + 2, &noise);
        if (r->over)
            break;
        r->left_side(r, i + 1);
        meet(r, 4 * i + 4, NULL);
        wrong += !judge(r, i + 1);
    }
    assert_int_equal(pthread_join(right, NULL), 0);
    assert_int_equal(wrong, 0);
    records_free(&r->records);
}

/* ---- arrival and poison ---- */

static void prepare_arrival(struct race *r, uint64_t print) {
    struct occl_record *rec = occl_record_at(&r->records, SLOT);
    occl_publish64(&occl_claim_of(&r->records, SLOT)->word, OCCL_WORD_CLAIMED | print);
    occl_note32(&rec->state, OCCL_REC_OPEN);
}

static void member_arrives(struct race *r, uint64_t print) {
    struct occl_record *rec = occl_record_at(&r->records, SLOT);
    r->came = occl_record_arrive(occl_line_at(rec, 1), print, OCCL_FLAG_IN_PAGE);
}

static void other_gives_up(struct race *r, uint64_t print) {
    (void)occl_record_abort(&r->records, SLOT, print, OCCL_E_TIMEOUT, 0);
}

static bool one_of_them_decided(struct race *r, uint64_t print) {
    struct occl_record *rec = occl_record_at(&r->records, SLOT);
    uint64_t flag = occl_look64(&occl_line_at(rec, 1)->flag);
    uint32_t expected = r->came ? OCCL_FLAG_READY | OCCL_FLAG_IN_PAGE : OCCL_FLAG_POISONED;
    return flag == occl_flag_make(print, expected);
}

static void a_flag_changes_once(void **state) {
    (void)state;
    struct race r = {.turn = 0, .left_side = other_gives_up, .right_side = member_arrives};
    run_race(&r, prepare_arrival, one_of_them_decided);
}

/* ---- the end of a claim and an op that goes to the ring ---- */

static void prepare_claim(struct race *r, uint64_t print) {
    struct occl_claim *claim = occl_claim_of(&r->records, SLOT);
    occl_publish32(&claim->left, MEMBERS - 1);
    occl_publish64(&claim->word, OCCL_WORD_CLAIMED | (print + ROUNDS + 2));
}

/* The last member of the earlier op leaves and enters the next one. */
static void leave_and_enter(struct race *r, uint64_t print) {
    occl_claim_leave(&r->records, SLOT);
    r->first = occl_claim_enter(occl_claim_of(&r->records, SLOT), print, true);
}

static void enter_only(struct race *r, uint64_t print) {
    r->second = occl_claim_enter(occl_claim_of(&r->records, SLOT), print, true);
}

static bool both_took_one_way(struct race *r, uint64_t print) {
    uint64_t word = occl_look64(&occl_claim_of(&r->records, SLOT)->word);
    if (r->first == OCCL_ENTER_RING && r->second == OCCL_ENTER_RING)
        return word == 2 * OCCL_WORD_OVERFLOW_ONE;
    bool claimed = (r->first == OCCL_ENTER_CLAIMED && r->second == OCCL_ENTER_JOINED) ||
                   (r->first == OCCL_ENTER_JOINED && r->second == OCCL_ENTER_CLAIMED);
    return claimed && word == (OCCL_WORD_CLAIMED | print);
}

static void an_op_is_whole_in_one_place(void **state) {
    (void)state;
    struct race r = {.turn = 0, .left_side = leave_and_enter, .right_side = enter_only};
    run_race(&r, prepare_claim, both_took_one_way);
}

/* ---- the last member out and a lane that comes in ---- */

static void prepare_last(struct race *r, uint64_t print) {
    struct occl_claim *claim = occl_claim_of(&r->records, SLOT);
    occl_publish32(&claim->left, MEMBERS - 1);
    occl_publish64(&claim->word, OCCL_WORD_CLAIMED | print);
    occl_publish32(&occl_record_at(&r->records, SLOT)->state, OCCL_REC_LOCAL);
}

static void member_leaves(struct race *r, uint64_t print) {
    (void)print;
    occl_claim_leave(&r->records, SLOT);
}

static void lane_comes_and_goes(struct race *r, uint64_t print) {
    r->came = occl_record_lane_enter(&r->records, SLOT, print);
    if (!r->came)
        return;
    /* While it is inside the record is that op's. */
    if (occl_look64(&occl_claim_of(&r->records, SLOT)->word) != (OCCL_WORD_CLAIMED | print) ||
        occl_look32(&occl_record_at(&r->records, SLOT)->state) != OCCL_REC_LOCAL)
        r->first = OCCL_ENTER_FULL;
    occl_record_lane_leave(&r->records, SLOT);
}

static bool claim_is_free(struct race *r, uint64_t print) {
    (void)print;
    return records_in_use(&r->records) == 0 && r->first != OCCL_ENTER_FULL;
}

static void the_last_one_out_frees_the_claim(void **state) {
    (void)state;
    struct race r = {.turn = 0, .left_side = member_leaves, .right_side = lane_comes_and_goes};
    run_race(&r, prepare_last, claim_is_free);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flag_changes_once),
        cmocka_unit_test(an_op_is_whole_in_one_place),
        cmocka_unit_test(the_last_one_out_frees_the_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
