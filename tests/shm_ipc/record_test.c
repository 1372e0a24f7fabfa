/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival records one step at a time: exact places, the rules of entering, the one decision, the
 * reset by the last one out, lanes, and the checks of a page's header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm_ipc/record.h"
#include "tests/shm_ipc/stress.h"

#define MEMBERS 3u

static struct occl_record *new_record(void) {
    struct occl_record *rec = calloc(1, occl_record_stride(MEMBERS));
    assert_non_null(rec);
    return rec;
}

static struct occl_op_key collective(uint32_t tag, uint32_t instance) {
    struct occl_op_key key = {OCCL_PEERS_ALL, tag, instance};
    return key;
}

/* ---- places ---- */

static void collective_places_are_exact(void **state) {
    (void)state;
    static const uint32_t tags[] = {0, 1, 2, 77, 0x12345678, OCCL_TAG_LIMIT - 1};
    const uint32_t instances = (1u << 22) / STRESS_DIVISOR;
    for (size_t t = 0; t < sizeof tags / sizeof *tags; t++) {
        uint32_t start = occl_place_of(collective(tags[t], 0), OCCL_RECORDS).slot;
        uint64_t wrong = 0;
        for (uint32_t i = 0; i < instances; i++) {
            struct occl_place p = occl_place_of(collective(tags[t], i), OCCL_RECORDS);
            /* The key can be read back from its place: no two keys share one. */
            uint32_t low = (p.slot - start) & (OCCL_RECORDS - 1);
            uint32_t upper = (uint32_t)(p.print & 0xffff);
            wrong += p.slot >= OCCL_RECORDS || p.print >> 16 != tags[t] ||
                     (upper * OCCL_RECORDS | low) != i;
        }
        assert_int_equal(wrong, 0);
    }
}

static void wrapped_instances_keep_their_distance(void **state) {
    (void)state;
    /* Live instances of one tag span at most 2^22 numbers, also across the end of the counter. */
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t now = UINT32_MAX - 500 + i;
        struct occl_place a = occl_place_of(collective(5, now), OCCL_RECORDS);
        struct occl_place b = occl_place_of(collective(5, now + (1u << 22) - 1), OCCL_RECORDS);
        assert_true(a.slot != b.slot || a.print != b.print);
    }
}

static void pairs_never_look_like_collectives(void **state) {
    (void)state;
    uint32_t used[OCCL_RECORDS] = {0};
    for (uint32_t i = 0; i < 64 * OCCL_RECORDS; i++) {
        struct occl_op_key key = {(i % 8) << 16 | (i + 1) % 8, i / 64, i % 64};
        struct occl_place p = occl_place_of(key, OCCL_RECORDS);
        assert_int_equal(p.print >> 47, 1);
        assert_true(p.slot < OCCL_RECORDS);
        used[p.slot]++;
    }
    for (uint32_t i = 0; i < OCCL_RECORDS; i++)
        assert_in_range(used[i], 16, 256);
    assert_int_equal(
        occl_place_of(collective(OCCL_TAG_LIMIT - 1, UINT32_MAX), OCCL_RECORDS).print >> 47, 0);
}

/* ---- entering ---- */

static void first_claims_and_others_join(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    assert_int_equal(occl_record_enter(rec, 0, true), OCCL_ENTER_CLAIMED);
    assert_int_equal(occl_record_enter(rec, 0, true), OCCL_ENTER_JOINED);
    assert_int_equal(rec->word, OCCL_WORD_CLAIMED);
    free(rec);
}

static void busy_slot_sends_to_the_ring(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    assert_int_equal(occl_record_enter(rec, 11, true), OCCL_ENTER_CLAIMED);
    assert_int_equal(occl_record_enter(rec, 22, false), OCCL_ENTER_RING);
    assert_int_equal(rec->word, OCCL_WORD_CLAIMED | 11);
    assert_int_equal(occl_record_enter(rec, 22, true), OCCL_ENTER_RING);
    assert_int_equal(rec->word, OCCL_WORD_OVERFLOW_ONE | OCCL_WORD_CLAIMED | 11);
    /* The op that is there goes on. */
    assert_int_equal(occl_record_enter(rec, 11, true), OCCL_ENTER_JOINED);
    free(rec);
}

static void overflow_keeps_the_slot_closed(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    (void)occl_record_enter(rec, 11, true);
    (void)occl_record_enter(rec, 22, true);
    for (uint32_t i = 0; i < MEMBERS; i++)
        occl_record_leave(rec, MEMBERS);
    assert_int_equal(rec->word, OCCL_WORD_OVERFLOW_ONE);
    /* Its second member must follow the first one into the ring, and a third op must not overtake.
     */
    assert_int_equal(occl_record_enter(rec, 22, true), OCCL_ENTER_RING);
    assert_int_equal(occl_record_enter(rec, 33, true), OCCL_ENTER_RING);
    for (int i = 0; i < 3; i++)
        occl_record_overflow_drop(rec);
    assert_int_equal(rec->word, 0);
    assert_int_equal(occl_record_enter(rec, 33, true), OCCL_ENTER_CLAIMED);
    free(rec);
}

static void full_counter_refuses(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    (void)occl_record_enter(rec, 11, true);
    for (uint32_t i = 0; i < OCCL_WORD_OVERFLOW_MAX; i++)
        assert_int_equal(occl_record_enter(rec, 22, true), OCCL_ENTER_RING);
    uint64_t word = rec->word;
    assert_int_equal(occl_record_enter(rec, 22, true), OCCL_ENTER_FULL);
    assert_int_equal(rec->word, word);
    occl_record_overflow_drop(rec);
    assert_int_equal(occl_record_enter(rec, 22, true), OCCL_ENTER_RING);
    free(rec);
}

/* ---- arriving and comparing ---- */

static const struct occl_signature sample = {OCCL_OP_ALL_REDUCE, 7, 4, 1, 2, 9, 0,
                                             0x123456789abull};

static void lines_hold_key_and_signature(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    struct occl_line *line = occl_line_at(rec, 1);
    occl_line_fill(line, collective(5, 6), &sample);
    struct occl_signature back = occl_line_signature(line);
    assert_memory_equal(&back, &sample, sizeof back);
    assert_int_equal(line->tag, 5);
    assert_int_equal(line->instance, 6);
    assert_int_equal(line->peers, OCCL_PEERS_ALL);
    assert_int_equal(occl_record_arrive(rec, line, OCCL_LINE_BLOCKED), 1);
    assert_int_equal(line->ready, OCCL_LINE_BLOCKED);
    assert_int_equal(occl_record_arrive(rec, occl_line_at(rec, 0), OCCL_LINE_ASYNC), 2);
    assert_int_equal(occl_line_at(rec, 0)->ready, OCCL_LINE_ASYNC);
    free(rec);
}

static void mismatch_names_field_and_rank(void **state) {
    (void)state;
    static const enum occl_signature_field fields[] = {
        OCCL_FIELD_KIND,  OCCL_FIELD_DTYPE,   OCCL_FIELD_REDOP, OCCL_FIELD_ROOT,
        OCCL_FIELD_COUNT, OCCL_FIELD_PROGRAM, OCCL_FIELD_KEY};
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        struct occl_record *rec = new_record();
        uint32_t index = 99;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            struct occl_signature s = sample;
            struct occl_op_key key = collective(5, 6);
            if (i == 2) {
                s.kind += fields[f] == OCCL_FIELD_KIND;
                s.dtype += fields[f] == OCCL_FIELD_DTYPE;
                s.redop += fields[f] == OCCL_FIELD_REDOP;
                s.root += fields[f] == OCCL_FIELD_ROOT;
                s.count += (uint64_t)(fields[f] == OCCL_FIELD_COUNT) << 40;
                s.program_id += fields[f] == OCCL_FIELD_PROGRAM;
                key.instance += fields[f] == OCCL_FIELD_KEY;
            }
            occl_line_fill(occl_line_at(rec, i), key, &s);
            if (i != 2)
                (void)occl_record_arrive(rec, occl_line_at(rec, i), OCCL_LINE_ASYNC);
        }
        /* Who has not arrived is not compared. */
        assert_int_equal(occl_record_mismatch(rec, MEMBERS, 0, &index), OCCL_FIELD_NONE);
        (void)occl_record_arrive(rec, occl_line_at(rec, 2), OCCL_LINE_ASYNC);
        assert_int_equal(occl_record_mismatch(rec, MEMBERS, 0, &index), fields[f]);
        assert_int_equal(index, 2);
        free(rec);
    }
}

static void send_agrees_with_recv_only(void **state) {
    (void)state;
    struct occl_signature a = sample, b = sample;
    a.kind = OCCL_OP_SEND;
    b.kind = OCCL_OP_RECV;
    assert_int_equal(occl_signature_differ(&a, &b), OCCL_FIELD_NONE);
    assert_int_equal(occl_signature_differ(&b, &a), OCCL_FIELD_NONE);
    b.kind = OCCL_OP_BROADCAST;
    assert_int_equal(occl_signature_differ(&a, &b), OCCL_FIELD_KIND);
    /* The versions of the selection table may differ: the lowest wins. */
    b = a;
    b.selection_version++;
    assert_int_equal(occl_signature_differ(&a, &b), OCCL_FIELD_NONE);
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
    struct occl_record *rec = new_record();
    uint32_t now = 99, aborted = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_TIMEOUT, 2);
    assert_true(occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now));
    assert_int_equal(now, OCCL_REC_LOCAL);
    assert_false(occl_record_decide(rec, OCCL_REC_OPEN, aborted, &now));
    assert_int_equal(now, OCCL_REC_LOCAL);
    assert_true(occl_record_decide(rec, OCCL_REC_LOCAL, aborted, &now));
    assert_false(occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now));
    assert_int_equal(now, aborted);
    free(rec);
}

static void last_leaver_resets(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    uint32_t now;
    (void)occl_record_enter(rec, 11, true);
    (void)occl_record_enter(rec, 22, true); /* somebody in the ring: stays counted */
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct occl_line *line = occl_line_at(rec, i);
        occl_line_fill(line, collective(1, 1), &sample);
        line->wait_since_ticks = 5;
        (void)occl_record_arrive(rec, line, OCCL_LINE_BLOCKED);
    }
    rec->strands_next = rec->strands_done = 9;
    (void)occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_DIRECT, &now);
    occl_record_leave(rec, MEMBERS);
    occl_record_leave(rec, MEMBERS);
    assert_int_equal(rec->state, OCCL_REC_DIRECT);
    assert_int_equal(rec->arrived, MEMBERS);
    occl_record_leave(rec, MEMBERS);
    assert_int_equal(rec->word, OCCL_WORD_OVERFLOW_ONE);
    assert_int_equal(rec->state, OCCL_REC_OPEN);
    assert_int_equal(rec->arrived, 0);
    assert_int_equal(rec->left, 0);
    assert_int_equal(rec->strands_next, 0);
    assert_int_equal(rec->strands_done, 0);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(occl_line_at(rec, i)->ready, 0);
        /* Only the rank takes back what it alone knows to have written. */
        assert_int_equal(occl_line_at(rec, i)->wait_since_ticks, 5);
    }
    free(rec);
}

/* ---- lanes ---- */

static void lane_enters_only_its_own_local_op(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    uint32_t now;
    assert_false(occl_record_lane_enter(rec, 0, MEMBERS)); /* free */
    (void)occl_record_enter(rec, 11, true);
    assert_false(occl_record_lane_enter(rec, 11, MEMBERS)); /* open */
    (void)occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now);
    assert_false(occl_record_lane_enter(rec, 12, MEMBERS)); /* another op */
    assert_int_equal(rec->left, 0);
    assert_int_equal(rec->lanes_busy, 0);
    assert_true(occl_record_lane_enter(rec, 11, MEMBERS));
    assert_int_equal(rec->lanes_busy, 1);
    (void)occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now);
    assert_false(occl_record_lane_enter(rec, 11, MEMBERS)); /* nothing left to do */
    occl_record_lane_leave(rec, MEMBERS);
    assert_int_equal(rec->lanes_busy, 0);
    assert_int_equal(rec->left, 0);
    free(rec);
}

static void lane_inside_holds_the_record(void **state) {
    (void)state;
    struct occl_record *rec = new_record();
    uint32_t now;
    (void)occl_record_enter(rec, 11, true);
    (void)occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now);
    assert_true(occl_record_lane_enter(rec, 11, MEMBERS));
    assert_true(occl_record_lane_enter(rec, 11, MEMBERS)); /* a second lane */
    (void)occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now);
    for (uint32_t i = 0; i < MEMBERS; i++)
        occl_record_leave(rec, MEMBERS);
    assert_int_equal(rec->word, OCCL_WORD_CLAIMED | 11);
    assert_int_equal(rec->state, OCCL_REC_DONE);
    /* All members have left: no further lane comes in, the last one inside resets. */
    assert_false(occl_record_lane_enter(rec, 11, MEMBERS));
    occl_record_lane_leave(rec, MEMBERS);
    assert_int_equal(rec->word, OCCL_WORD_CLAIMED | 11);
    occl_record_lane_leave(rec, MEMBERS);
    assert_int_equal(rec->word, 0);
    assert_int_equal(rec->state, OCCL_REC_OPEN);
    free(rec);
}

static void lane_survives_scribbled_counts(void **state) {
    (void)state;
    static const uint32_t lefts[] = {MEMBERS, MEMBERS + 1, 0xffff, 0xffffffff, 0x7fff0002};
    for (size_t i = 0; i < sizeof lefts / sizeof *lefts; i++) {
        struct occl_record *rec = new_record();
        rec->word = OCCL_WORD_CLAIMED | 11;
        rec->state = OCCL_REC_LOCAL;
        rec->left = lefts[i];
        rec->lanes_busy = 0xffffffff;
        if (occl_record_lane_enter(rec, 11, MEMBERS))
            occl_record_lane_leave(rec, MEMBERS);
        occl_record_overflow_drop(rec);
        free(rec);
    }
}

/* ---- the page ---- */

static void layout_fits_and_is_aligned(void **state) {
    (void)state;
    for (uint32_t ranks = 1; ranks <= OCCL_LOCAL_RANKS_MAX; ranks++) {
        struct occl_comm_page h;
        occl_comm_page_layout(ranks, 1234, &h);
        assert_int_equal(h.notes_offset % OCCL_CACHE_LINE_BYTES, 0);
        assert_int_equal(h.record_stride % OCCL_CACHE_LINE_BYTES, 0);
        assert_int_equal(h.records_offset % OCCL_PAGE_BYTES, 0);
        assert_int_equal(h.payload_stride % OCCL_CACHE_LINE_BYTES, 0);
        assert_true(h.notes_offset >= sizeof h);
        assert_true(h.notes_offset + ranks * sizeof(struct occl_rank_note) <= h.records_offset);
        assert_true(h.records_offset + h.records * (uint64_t)h.record_stride <= h.payload_offset);
        assert_true(h.payload_offset + ranks * (uint64_t)h.payload_stride <= h.page_bytes);
        /* A message to oneself has two lines, also where there is one rank. */
        assert_true(sizeof(struct occl_record) + 2 * sizeof(struct occl_line) <= h.record_stride);
    }
}

static void header_is_checked(void **state) {
    (void)state;
    struct occl_comm_page good;
    struct occl_records m;
    occl_comm_page_layout(4, 99, &good);
    char *page = calloc(1, good.page_bytes);
    assert_non_null(page);
    struct occl_comm_page *h = (struct occl_comm_page *)(void *)page;
    *h = good;
    assert_int_equal(occl_records_open(page, good.page_bytes, &m), OCCL_OK);
    assert_int_equal(m.ranks, 4);
    assert_ptr_equal(occl_records_header(&m), h);
    assert_ptr_equal(occl_record_at(&m, 3), page + good.records_offset + 3ull * good.record_stride);
    assert_ptr_equal(occl_line_at(occl_record_at(&m, 0), 1),
                     page + good.records_offset + 128 + 256);
    assert_int_equal(occl_records_open(page, good.page_bytes - 1, &m), OCCL_E_PROTOCOL);
    assert_int_equal(occl_records_open(page, 100, &m), OCCL_E_PROTOCOL);
    /* Any changed word of the geometry is found. */
    for (size_t at = 0; at < offsetof(struct occl_comm_page, reserved0); at += 4) {
        if (at >= offsetof(struct occl_comm_page, comm_uid) &&
            at < offsetof(struct occl_comm_page, records))
            continue;
        uint32_t word;
        *h = good;
        memcpy(&word, page + at, 4);
        word += 64;
        memcpy(page + at, &word, 4);
        assert_true(occl_records_open(page, good.page_bytes, &m) < 0);
    }
    *h = good;
    h->ranks = 0;
    assert_int_equal(occl_records_open(page, good.page_bytes, &m), OCCL_E_PROTOCOL);
    h->ranks = OCCL_LOCAL_RANKS_MAX + 1;
    assert_int_equal(occl_records_open(page, good.page_bytes, &m), OCCL_E_PROTOCOL);
    free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collective_places_are_exact),
        cmocka_unit_test(wrapped_instances_keep_their_distance),
        cmocka_unit_test(pairs_never_look_like_collectives),
        cmocka_unit_test(first_claims_and_others_join),
        cmocka_unit_test(busy_slot_sends_to_the_ring),
        cmocka_unit_test(overflow_keeps_the_slot_closed),
        cmocka_unit_test(full_counter_refuses),
        cmocka_unit_test(lines_hold_key_and_signature),
        cmocka_unit_test(mismatch_names_field_and_rank),
        cmocka_unit_test(send_agrees_with_recv_only),
        cmocka_unit_test(state_words_hold_status_and_rank),
        cmocka_unit_test(one_decision_wins),
        cmocka_unit_test(last_leaver_resets),
        cmocka_unit_test(lane_enters_only_its_own_local_op),
        cmocka_unit_test(lane_inside_holds_the_record),
        cmocka_unit_test(lane_survives_scribbled_counts),
        cmocka_unit_test(layout_fits_and_is_aligned),
        cmocka_unit_test(header_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
