/* SPDX-License-Identifier: Apache-2.0 */
/* How the op of a record ends, one step at a time: what the flags say (against a reference, for all
 * combinations of three members), that it stays, the ends that abort an op, the reset by the last
 * one out, and lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/shm_ipc/records.h"

#define MEMBERS 3u
#define PRINT 0x1234567890abull
#define OTHER 0x1234567890acull
/* A record of a tagged collective. */
#define SLOT (OCCL_PAIRS + 5u)
#define RUN (OCCL_CLAIM_RUN_FIRST + 2u)

/* ---- flags ---- */

static void flags_hold_print_and_bits(void **state) {
    (void)state;
    static const uint64_t prints[] = {0, 1, PRINT, OCCL_WORD_PRINT_MASK};
    for (size_t i = 0; i < sizeof prints / sizeof *prints; i++) {
        uint64_t flag = occl_flag_make(prints[i], 0xabcd);
        assert_int_equal(occl_flag_bits_of(flag, prints[i]), 0xabcd);
        for (uint32_t bit = 0; bit < 48; bit++)
            assert_int_equal(occl_flag_bits_of(flag, prints[i] ^ 1ull << bit), 0);
    }
    /* A new page: nobody is there, also in the op whose print is 0. */
    assert_int_equal(occl_flag_bits_of(0, 0), 0);
}

static void arrival_gives_way_to_poison_only(void **state) {
    (void)state;
    static const uint64_t before[] = {
        0,
        OTHER << 16 | OCCL_FLAG_READY | OCCL_FLAG_LEFT,
        OTHER << 16 | OCCL_FLAG_POISONED,
        PRINT << 16,
        OCCL_WORD_PRINT_MASK << 16 | 0xffff,
    };
    struct occl_line line;
    memset(&line, 0, sizeof line);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        line.flag = before[i];
        assert_true(occl_record_arrive(&line, PRINT, OCCL_FLAG_BLOCKED | OCCL_FLAG_IN_PAGE));
        assert_true(line.flag ==
                    (PRINT << 16 | OCCL_FLAG_READY | OCCL_FLAG_BLOCKED | OCCL_FLAG_IN_PAGE));
    }
    line.flag = PRINT << 16 | OCCL_FLAG_POISONED;
    assert_false(occl_record_arrive(&line, PRINT, OCCL_FLAG_IN_PAGE));
    assert_true(line.flag == (PRINT << 16 | OCCL_FLAG_POISONED));
}

/* ---- what the flags say ---- */

/* All flags that a member can have in the op with PRINT. */
#define MISSING 3u
#define FLAGS (MISSING + 1u + 16u)
static uint64_t flag_number(uint32_t n) {
    static const uint64_t first[MISSING + 1] = {
        0, OTHER << 16 | OCCL_FLAG_READY | OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE,
        OTHER << 16 | OCCL_FLAG_POISONED, PRINT << 16 | OCCL_FLAG_POISONED};
    if (n <= MISSING)
        return first[n];
    n -= MISSING + 1;
    return PRINT << 16 | 7u << OCCL_FLAG_SELECTION_SHIFT | OCCL_FLAG_READY |
           (n & 1 ? OCCL_FLAG_BLOCKED : 0) | (n & 2 ? OCCL_FLAG_IN_PAGE : 0) |
           (n & 4 ? OCCL_FLAG_SOURCE : 0) | (n & 8 ? OCCL_FLAG_LEFT : 0);
}

static void set_flags(struct occl_record *rec, uint32_t combination, uint64_t out_flags[MEMBERS]) {
    for (uint32_t i = 0; i < MEMBERS; i++, combination /= FLAGS) {
        out_flags[i] = flag_number(combination % FLAGS);
        occl_line_at(rec, i)->flag = out_flags[i];
    }
}
#define COMBINATIONS (FLAGS * FLAGS * FLAGS)

/* The table at the top of record.h, by counting. */
struct count {
    uint32_t missing, poisoned, ready, in_page, decisive;
};
static enum occl_outcome outcome_by_table(const uint64_t flags[MEMBERS]) {
    struct count n = {0, 0, 0, 0, 0};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        bool here = flags[i] / 65536 == PRINT;
        bool ready = here && flags[i] % 2 == 1;
        bool in_page = ready && flags[i] / 8 % 2 == 1;
        n.missing += !here;
        n.poisoned += here && !ready;
        n.ready += ready;
        n.in_page += in_page;
        n.decisive += in_page && flags[i] / 16 % 2 == 1;
    }
    assert_int_equal(n.missing + n.poisoned + n.ready, MEMBERS);
    if (n.decisive > 0)
        return OCCL_OUT_DIRECT;
    if (n.missing > 0)
        return OCCL_OUT_OPEN;
    if (n.poisoned > 0)
        return OCCL_OUT_ABORTED;
    return n.in_page == MEMBERS ? OCCL_OUT_DIRECT : OCCL_OUT_ALL;
}

static void look_follows_the_table(void **state) {
    (void)state;
    struct occl_records m = records_new(MEMBERS);
    struct occl_record *rec = occl_record_at(&m, SLOT);
    uint32_t seen[4] = {0};
    for (uint32_t c = 0; c < COMBINATIONS; c++) {
        uint64_t flags[MEMBERS];
        struct occl_look look;
        uint64_t ready = 0, source = 0, blocked = 0;
        uint32_t missing = MEMBERS;
        set_flags(rec, c, flags);
        for (uint32_t i = MEMBERS; i-- > 0;) {
            uint32_t n = c / (i == 2 ? FLAGS * FLAGS : i == 1 ? FLAGS : 1) % FLAGS;
            missing = n < MISSING ? i : missing;
            ready |= (uint64_t)(n > MISSING) << i;
            source |= (uint64_t)(n > MISSING && (n - MISSING - 1) & 4) << i;
            blocked |= (uint64_t)(n > MISSING && (n - MISSING - 1) & 1) << i;
        }
        rec->state = c * 2654435761u;
        occl_record_look(rec, PRINT, MEMBERS, &look);
        assert_int_equal(look.outcome, outcome_by_table(flags));
        assert_int_equal(look.first_missing, missing);
        assert_true(look.ready_mask == ready);
        assert_true(look.source_mask == source);
        assert_true(look.blocked_mask == blocked);
        assert_int_equal(look.state, rec->state);
        seen[look.outcome]++;
    }
    for (int i = 0; i < 4; i++)
        assert_true(seen[i] > 0);
    records_free(&m);
}

static void look_reaches_the_last_rank(void **state) {
    (void)state;
    struct occl_records m = records_new(OCCL_LOCAL_RANKS_MAX);
    struct occl_record *rec = occl_record_at(&m, OCCL_RECORDS - 1);
    struct occl_look look;
    for (uint32_t i = 0; i < 64; i++) {
        occl_record_look(rec, PRINT, 64, &look);
        assert_int_equal(look.outcome, OCCL_OUT_OPEN);
        assert_int_equal(look.first_missing, i);
        occl_line_at(rec, i)->flag = PRINT << 16 | OCCL_FLAG_READY | OCCL_FLAG_IN_PAGE;
    }
    occl_record_look(rec, PRINT, 64, &look);
    assert_int_equal(look.outcome, OCCL_OUT_DIRECT);
    assert_true(look.ready_mask == UINT64_MAX);
    occl_line_at(rec, 63)->flag = PRINT << 16 | OCCL_FLAG_READY | OCCL_FLAG_SOURCE;
    occl_record_look(rec, PRINT, 64, &look);
    assert_int_equal(look.outcome, OCCL_OUT_ALL);
    assert_true(look.source_mask == 1ull << 63);
    records_free(&m);
}

/* Whatever the missing members do afterwards, one that has seen an end has seen *the* end. This is
 * also why a look may read the flags one by one. */
static void what_is_decided_stays(void **state) {
    (void)state;
    struct occl_records m = records_new(MEMBERS);
    struct occl_record *rec = occl_record_at(&m, SLOT);
    for (uint32_t c = 0; c < COMBINATIONS; c++) {
        uint64_t flags[MEMBERS];
        struct occl_look look;
        set_flags(rec, c, flags);
        occl_record_look(rec, PRINT, MEMBERS, &look);
        if (look.outcome == OCCL_OUT_OPEN)
            continue;
        enum occl_outcome decided = look.outcome;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            if (occl_flag_bits_of(flags[i], PRINT))
                continue; /* a flag changes once */
            for (uint32_t n = MISSING; n < FLAGS; n++) {
                occl_line_at(rec, i)->flag = flag_number(n);
                occl_record_look(rec, PRINT, MEMBERS, &look);
                assert_int_equal(look.outcome, decided);
            }
            occl_line_at(rec, i)->flag = flags[i];
        }
    }
    records_free(&m);
}

/* ---- deciding ---- */

static void state_words_hold_status_and_rank(void **state) {
    (void)state;
    for (int status = OCCL_E_INTERNAL; status <= 0; status++) {
        for (uint32_t rank = 0; rank <= OCCL_RANK_NONE; rank += 13) {
            uint32_t word = OCCL_REC_WORD(OCCL_REC_ABORTED, status, rank);
            assert_int_equal(occl_rec_kind(word), OCCL_REC_ABORTED);
            assert_int_equal(occl_rec_status(word), status);
            assert_int_equal(occl_rec_rank(word), rank);
        }
    }
}

static void one_decision_wins(void **state) {
    (void)state;
    struct occl_records m = records_new(MEMBERS);
    struct occl_record *rec = occl_record_at(&m, SLOT);
    uint32_t now = 99, aborted = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_TIMEOUT, 2);
    assert_true(occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now));
    assert_int_equal(now, OCCL_REC_LOCAL);
    assert_false(occl_record_decide(rec, OCCL_REC_OPEN, aborted, &now));
    assert_int_equal(now, OCCL_REC_LOCAL);
    assert_true(occl_record_decide(rec, OCCL_REC_LOCAL, aborted, &now));
    assert_false(occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now));
    assert_int_equal(now, aborted);
    records_free(&m);
}

/* ---- aborting ---- */

/* One abort of the op in `rec`, from the flags of combination c and the state `from`. */
static void check_abort(const struct occl_records *m, struct occl_record *rec, uint32_t c,
                        uint32_t from) {
    const uint32_t word = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_TIMEOUT, 1);
    uint64_t flags[MEMBERS];
    struct occl_look look;
    set_flags(rec, c, flags);
    rec->state = from;
    enum occl_outcome before = outcome_by_table(flags);
    bool direct = before == OCCL_OUT_DIRECT;
    bool undecided = from == OCCL_REC_OPEN || from == OCCL_REC_LOCAL;
    bool ours = occl_record_abort(m, SLOT, PRINT, OCCL_E_TIMEOUT, 1);
    assert_int_equal(ours, !direct && undecided);
    assert_int_equal(rec->state, ours ? word : from);
    bool poisons = !direct && from != OCCL_REC_DONE;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        bool missing = flags[i] >> 16 != PRINT;
        uint64_t expected = poisons && missing ? PRINT << 16 | OCCL_FLAG_POISONED : flags[i];
        assert_true(occl_line_at(rec, i)->flag == expected);
    }
    occl_record_look(rec, PRINT, MEMBERS, &look);
    if (!poisons)
        assert_int_equal(look.outcome, before);
    else if (before == OCCL_OUT_ALL)
        assert_int_equal(look.outcome, OCCL_OUT_ALL); /* `state` says how that ended */
    else
        assert_int_equal(look.outcome, OCCL_OUT_ABORTED);
    assert_int_equal(occl_claim_of(m, SLOT)->word, OCCL_WORD_CLAIMED | PRINT);
}

static void abort_ends_what_is_not_direct(void **state) {
    (void)state;
    struct occl_records m = records_new(MEMBERS);
    struct occl_record *rec = occl_record_at(&m, SLOT);
    const uint32_t from[] = {OCCL_REC_OPEN, OCCL_REC_LOCAL, OCCL_REC_DONE,
                             OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_REVOKED, 2)};
    occl_claim_of(&m, SLOT)->word = OCCL_WORD_CLAIMED | PRINT;
    for (uint32_t c = 0; c < COMBINATIONS; c++)
        for (size_t k = 0; k < sizeof from / sizeof *from; k++)
            check_abort(&m, rec, c, from[k]);
    records_free(&m);
}

static void poison_keeps_to_its_op(void **state) {
    (void)state;
    static const uint64_t words[] = {0, OCCL_WORD_CLAIMED | OTHER, PRINT,
                                     OCCL_WORD_OVERFLOW_ONE | OCCL_WORD_CLAIMED | OTHER};
    struct occl_records m = records_new(MEMBERS);
    struct occl_record *rec = occl_record_at(&m, SLOT);
    const uint64_t flags[MEMBERS] = {OTHER << 16 | OCCL_FLAG_READY, 0,
                                     OTHER << 16 | OCCL_FLAG_POISONED};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        occl_claim_of(&m, SLOT)->word = words[k];
        rec->state = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_ABORTED, 0);
        for (uint32_t i = 0; i < MEMBERS; i++)
            occl_line_at(rec, i)->flag = flags[i];
        assert_false(occl_record_abort(&m, SLOT, PRINT, OCCL_E_ABORTED, 0));
        for (uint32_t i = 0; i < MEMBERS; i++)
            assert_true(occl_line_at(rec, i)->flag == flags[i]);
    }
    /* An overflow count does not make it another op. */
    occl_claim_of(&m, SLOT)->word = OCCL_WORD_OVERFLOW_ONE | OCCL_WORD_CLAIMED | PRINT;
    assert_false(occl_record_abort(&m, SLOT, PRINT, OCCL_E_ABORTED, 0));
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_true(occl_line_at(rec, i)->flag == (PRINT << 16 | OCCL_FLAG_POISONED));
    /* Its neighbours are as they were, also the third line of a record of two. */
    assert_int_equal(occl_line_at(occl_record_at(&m, SLOT + 1), 0)->flag, 0);
    occl_claim_of(&m, 3)->word = OCCL_WORD_CLAIMED | PRINT;
    assert_true(occl_record_abort(&m, 3, PRINT, OCCL_E_TIMEOUT, 0));
    assert_true(occl_line_at(occl_record_at(&m, 3), 1)->flag == (PRINT << 16 | OCCL_FLAG_POISONED));
    assert_int_equal(occl_line_at(occl_record_at(&m, 3), 2)->flag, 0);
    records_free(&m);
}

static void late_member_learns_of_the_end(void **state) {
    (void)state;
    struct occl_records m = records_new(MEMBERS);
    struct occl_record *rec = occl_record_at(&m, SLOT);
    struct occl_look look;
    occl_claim_of(&m, SLOT)->word = OCCL_WORD_CLAIMED | PRINT;
    assert_true(occl_record_arrive(occl_line_at(rec, 0), PRINT, OCCL_FLAG_IN_PAGE));
    assert_true(occl_record_abort(&m, SLOT, PRINT, OCCL_E_PEER_FAILED, 2));
    assert_false(occl_record_abort(&m, SLOT, PRINT, OCCL_E_TIMEOUT, 0));
    for (uint32_t i = 1; i < MEMBERS; i++) {
        /* A source, too: it has not been, so nobody has its payload. */
        assert_false(
            occl_record_arrive(occl_line_at(rec, i), PRINT, OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE));
        occl_record_look(rec, PRINT, MEMBERS, &look);
        assert_int_equal(look.outcome, OCCL_OUT_ABORTED);
        assert_int_equal(occl_rec_status(look.state), OCCL_E_PEER_FAILED);
        assert_int_equal(occl_rec_rank(look.state), 2);
    }
    records_free(&m);
}

/* ---- leaving ---- */

static void last_leaver_resets(void **state) {
    (void)state;
    static const uint32_t indices[] = {4, OCCL_PAIRS + 9, RUN};
    struct occl_records m = records_new(MEMBERS);
    for (size_t k = 0; k < sizeof indices / sizeof *indices; k++) {
        uint32_t index = indices[k], members = index < OCCL_PAIRS ? 2 : MEMBERS;
        uint32_t first = occl_claim_first(index), count = occl_claim_records(index);
        struct occl_claim *claim = occl_claim_at(&m, index);
        (void)occl_claim_enter(claim, PRINT, true);
        (void)occl_claim_enter(claim, OTHER, true); /* somebody in the ring: stays counted */
        for (uint32_t i = 0; i < count; i++) {
            struct occl_record *rec = occl_record_at(&m, first + i);
            occl_line_at(rec, 1)->flag = occl_flag_make(PRINT, OCCL_FLAG_READY | i << 8);
            occl_line_at(rec, 1)->wait_since_ticks = 5;
            rec->event = 77;
            rec->state = i % 3 == 0   ? OCCL_REC_DONE
                         : i % 3 == 1 ? OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_FAULT, 1)
                                      : OCCL_REC_OPEN;
            rec->strands_next[i % OCCL_STRAND_SEGMENTS] = rec->strands_done = i % 3 == 2 ? 0 : 9;
        }
        for (uint32_t r = 0; r + 1 < members; r++) {
            occl_claim_leave(&m, index);
            assert_int_equal(claim->left, r + 1);
            assert_int_equal(occl_record_at(&m, first)->state, OCCL_REC_DONE);
        }
        occl_claim_leave(&m, index);
        assert_true(claim->word == OCCL_WORD_OVERFLOW_ONE);
        occl_claim_overflow_drop(claim);
        for (uint32_t i = 0; i < count; i++) {
            struct occl_record *rec = occl_record_at(&m, first + i);
            /* Flags and events are not reset; only the rank takes back what it alone wrote. */
            assert_true(occl_line_at(rec, 1)->flag ==
                        occl_flag_make(PRINT, OCCL_FLAG_READY | i << 8));
            assert_int_equal(occl_line_at(rec, 1)->wait_since_ticks, 5);
            assert_int_equal(rec->event, 77);
        }
    }
    assert_int_equal(records_in_use(&m), 0);
    records_free(&m);
}

/* ---- lanes ---- */

static void lane_enters_only_its_own_local_op(void **state) {
    (void)state;
    static const uint32_t slots[] = {2, SLOT, OCCL_RECORDS - 3};
    struct occl_records m = records_new(MEMBERS);
    for (size_t k = 0; k < sizeof slots / sizeof *slots; k++) {
        uint32_t slot = slots[k], now;
        struct occl_record *rec = occl_record_at(&m, slot);
        struct occl_claim *claim = occl_claim_of(&m, slot);
        assert_false(occl_record_lane_enter(&m, slot, 0)); /* free */
        rec->state = OCCL_REC_LOCAL;
        assert_false(occl_record_lane_enter(&m, slot, 0)); /* free, whatever the state says */
        rec->state = OCCL_REC_OPEN;
        (void)occl_claim_enter(claim, PRINT, true);
        assert_false(occl_record_lane_enter(&m, slot, PRINT)); /* open */
        (void)occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now);
        assert_false(occl_record_lane_enter(&m, slot, OTHER)); /* another op */
        assert_int_equal(claim->left, 0);
        assert_int_equal(rec->lanes_busy, 0);
        assert_true(occl_record_lane_enter(&m, slot, PRINT));
        assert_int_equal(rec->lanes_busy, 1);
        (void)occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now);
        assert_false(occl_record_lane_enter(&m, slot, PRINT)); /* nothing left to do */
        assert_int_equal(rec->lanes_busy, 1);
        occl_record_lane_leave(&m, slot);
        assert_int_equal(rec->lanes_busy, 0);
        assert_int_equal(claim->left, 0);
    }
    records_free(&m);
}

static void lane_inside_holds_the_claim(void **state) {
    (void)state;
    static const uint32_t slots[] = {2, SLOT, OCCL_RECORDS - 3};
    struct occl_records m = records_new(MEMBERS);
    for (size_t k = 0; k < sizeof slots / sizeof *slots; k++) {
        uint32_t slot = slots[k], now;
        struct occl_record *rec = occl_record_at(&m, slot);
        struct occl_claim *claim = occl_claim_of(&m, slot);
        (void)occl_claim_enter(claim, PRINT, true);
        (void)occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now);
        assert_true(occl_record_lane_enter(&m, slot, PRINT));
        assert_true(occl_record_lane_enter(&m, slot, PRINT)); /* a second lane */
        (void)occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now);
        for (uint32_t i = 0; i < (slot < OCCL_PAIRS ? 2 : MEMBERS); i++)
            occl_claim_leave(&m, occl_claim_index(slot));
        assert_true(claim->word == (OCCL_WORD_CLAIMED | PRINT));
        assert_int_equal(rec->state, OCCL_REC_DONE);
        /* All members have left: no further lane comes in, the last one inside resets. */
        assert_false(occl_record_lane_enter(&m, slot, PRINT));
        occl_record_lane_leave(&m, slot);
        assert_true(claim->word == (OCCL_WORD_CLAIMED | PRINT));
        occl_record_lane_leave(&m, slot);
        assert_int_equal(claim->word, 0);
    }
    assert_int_equal(records_in_use(&m), 0);
    records_free(&m);
}

/* ---- what members may write there ---- */

static void scribbled_words_are_survived(void **state) {
    (void)state;
    static const uint32_t lefts[] = {MEMBERS, MEMBERS + 1, 0xffff, 0xffffffff, 0x7fff0002};
    static const uint32_t states[] = {OCCL_REC_LOCAL, 1, 0xff, 0xffffff00, 0xffffff02, 0xffffffff};
    for (size_t i = 0; i < sizeof lefts / sizeof *lefts; i++) {
        for (size_t k = 0; k < sizeof states / sizeof *states; k++) {
            struct occl_records m = records_new(MEMBERS);
            struct occl_record *rec = occl_record_at(&m, SLOT);
            struct occl_look look;
            occl_claim_of(&m, SLOT)->word = OCCL_WORD_CLAIMED | PRINT;
            occl_claim_of(&m, SLOT)->left = lefts[i];
            rec->state = states[k];
            rec->lanes_busy = 0xffffffff;
            memset(occl_line_at(rec, 0), 0xff, 3 * sizeof(struct occl_line));
            if (occl_record_lane_enter(&m, SLOT, PRINT))
                occl_record_lane_leave(&m, SLOT);
            (void)occl_record_abort(&m, SLOT, PRINT, OCCL_E_ABORTED, 0);
            occl_record_look(rec, OCCL_WORD_PRINT_MASK, MEMBERS, &look);
            assert_true(look.ready_mask <= 7);
            occl_claim_overflow_drop(occl_claim_of(&m, SLOT));
            /* The damage stays in that record. */
            assert_int_equal(occl_record_at(&m, SLOT + 1)->state, OCCL_REC_OPEN);
            assert_int_equal(occl_line_at(occl_record_at(&m, SLOT - 1), 2)->flag, 0);
            records_free(&m);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_hold_print_and_bits),
        cmocka_unit_test(arrival_gives_way_to_poison_only),
        cmocka_unit_test(look_follows_the_table),
        cmocka_unit_test(look_reaches_the_last_rank),
        cmocka_unit_test(what_is_decided_stays),
        cmocka_unit_test(state_words_hold_status_and_rank),
        cmocka_unit_test(one_decision_wins),
        cmocka_unit_test(abort_ends_what_is_not_direct),
        cmocka_unit_test(poison_keeps_to_its_op),
        cmocka_unit_test(late_member_learns_of_the_end),
        cmocka_unit_test(last_leaver_resets),
        cmocka_unit_test(lane_enters_only_its_own_local_op),
        cmocka_unit_test(lane_inside_holds_the_claim),
        cmocka_unit_test(scribbled_words_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
