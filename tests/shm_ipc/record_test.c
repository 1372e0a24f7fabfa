/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival records: where an op's record is, the rules of entering its claim, what a line holds, and
 * the checks of a page's header. How ops end: record_decide_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/shm_ipc/records.h"

#define MEMBERS 3u
/* Instances of one tag that are alive at the same time. */
#define LIVE (1u << 22)

/* ---- places ---- */

/* Whether two of the LIVE instances from `first` on have the same slot and print: for each slot a
 * bit for each of the 2^16 prints that a tag has there. */
static uint64_t shared_places(uint32_t tag, uint32_t first, uint32_t slot_from, uint32_t slot_to) {
    uint8_t *seen = calloc(OCCL_RECORDS, 8192);
    uint64_t wrong = 0;
    assert_non_null(seen);
    for (uint32_t i = 0; i < LIVE; i++) {
        struct occl_place p = occl_place_of(records_collective(tag, first + i));
        if (p.slot < slot_from || p.slot >= slot_to || p.print >> 16 != tag) {
            wrong++;
            continue;
        }
        uint32_t low = (uint32_t)p.print & 0xffff;
        uint8_t *byte = &seen[p.slot * 8192 + low / 8], bit = (uint8_t)(1u << low % 8);
        wrong += (*byte & bit) != 0;
        *byte |= bit;
    }
    free(seen);
    return wrong;
}

static void tagged_places_are_exact(void **state) {
    (void)state;
    static const uint32_t tags[] = {1, 77, 0x12345678, OCCL_TAG_LIMIT - 1};
    for (size_t t = 0; t < sizeof tags / sizeof *tags; t++)
        assert_int_equal(shared_places(tags[t], 0, OCCL_PAIRS, OCCL_CLAIM_RUN_FIRST), 0);
    /* Also where the counter wraps. */
    assert_int_equal(shared_places(5, UINT32_MAX - LIVE / 2, OCCL_PAIRS, OCCL_CLAIM_RUN_FIRST), 0);
}

static void untagged_places_are_exact(void **state) {
    (void)state;
    assert_int_equal(shared_places(0, 0, OCCL_CLAIM_RUN_FIRST, OCCL_RECORDS), 0);
    assert_int_equal(shared_places(0, UINT32_MAX - LIVE / 2, OCCL_CLAIM_RUN_FIRST, OCCL_RECORDS),
                     0);
}

static void untagged_stream_walks_through_runs(void **state) {
    (void)state;
    struct occl_place last = occl_place_of(records_collective(0, 4096 * OCCL_RUN_OPS - 1));
    for (uint32_t i = 4096 * OCCL_RUN_OPS; i < 8192 * OCCL_RUN_OPS; i++) {
        struct occl_place p = occl_place_of(records_collective(0, i));
        if (i % OCCL_RUN_OPS == 0) {
            /* Another run, at its first record: the stream never skips ops of a claim. */
            assert_int_not_equal(occl_claim_index(p.slot), occl_claim_index(last.slot));
            assert_int_equal(occl_claim_first(occl_claim_index(p.slot)), p.slot);
        } else {
            assert_int_equal(p.slot, last.slot + 1);
            assert_int_equal(p.print, last.print);
        }
        last = p;
    }
}

static void every_record_is_used(void **state) {
    (void)state;
    uint32_t used[OCCL_RECORDS] = {0};
    const uint32_t ops = 64 * OCCL_RECORDS;
    static const uint32_t ends[] = {0, OCCL_PAIRS, OCCL_CLAIM_RUN_FIRST, OCCL_RECORDS};
    for (uint32_t i = 0; i < ops; i++) {
        used[occl_place_of(records_pair(i % 8, (i + 1) % 8, i / 64, i % 64)).slot]++;
        used[occl_place_of(records_collective(1 + i % 64, i / 64)).slot]++;
        used[occl_place_of(records_collective(0, i)).slot]++;
    }
    for (int part = 0; part < 3; part++) {
        uint32_t mean = ops / (ends[part + 1] - ends[part]), sum = 0;
        for (uint32_t slot = ends[part]; slot < ends[part + 1]; slot++) {
            assert_in_range(used[slot], mean / 4, mean * 4);
            sum += used[slot];
        }
        /* Each kind has its own: a lane relies on the number of members. */
        assert_int_equal(sum, ops);
    }
}

static void pairs_never_look_like_collectives(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        struct occl_place p = occl_place_of(records_pair(i % 64, (i + 1) % 64, i % 5, i));
        assert_int_equal(p.print >> 47, 1);
        assert_true(p.print <= OCCL_WORD_PRINT_MASK);
        assert_true(p.slot < OCCL_PAIRS);
        /* The way back is another op, and so is every other tag and instance. */
        assert_true(p.print != occl_place_of(records_pair((i + 1) % 64, i % 64, i % 5, i)).print);
        assert_true(p.print != occl_place_of(records_pair(i % 64, (i + 1) % 64, 7, i)).print);
        assert_true(p.print !=
                    occl_place_of(records_pair(i % 64, (i + 1) % 64, i % 5, i + 1)).print);
    }
    assert_int_equal(occl_place_of(records_collective(OCCL_TAG_LIMIT - 1, UINT32_MAX)).print >> 47,
                     0);
}

static void claims_cover_the_records(void **state) {
    (void)state;
    uint32_t slot = 0;
    for (uint32_t index = 0; index < OCCL_CLAIMS; index++) {
        assert_int_equal(occl_claim_first(index), slot);
        assert_int_equal(occl_claim_records(index),
                         index < OCCL_CLAIM_RUN_FIRST ? 1 : OCCL_RUN_OPS);
        assert_int_equal(occl_claim_members(index, 17), index < OCCL_PAIRS ? 2 : 17);
        /* One rank sends to itself: that is two members, too. */
        assert_int_equal(occl_claim_members(index, 1), index < OCCL_PAIRS ? 2 : 1);
        for (uint32_t i = 0; i < occl_claim_records(index); i++)
            assert_int_equal(occl_claim_index(slot++), index);
    }
    assert_int_equal(slot, OCCL_RECORDS);
}

/* ---- entering ---- */

static void first_claims_and_others_join(void **state) {
    (void)state;
    struct occl_claim claim = {0, 0, {0}};
    assert_int_equal(occl_claim_enter(&claim, 0, true), OCCL_ENTER_CLAIMED);
    assert_int_equal(occl_claim_enter(&claim, 0, true), OCCL_ENTER_JOINED);
    assert_int_equal(occl_claim_enter(&claim, 0, false), OCCL_ENTER_JOINED);
    assert_int_equal(claim.word, OCCL_WORD_CLAIMED);
    struct occl_claim other = {0, 0, {0}};
    assert_int_equal(occl_claim_enter(&other, OCCL_WORD_PRINT_MASK, false), OCCL_ENTER_CLAIMED);
    assert_int_equal(other.word, OCCL_WORD_CLAIMED | OCCL_WORD_PRINT_MASK);
}

static void busy_claim_sends_to_the_ring(void **state) {
    (void)state;
    struct occl_claim claim = {0, 0, {0}};
    assert_int_equal(occl_claim_enter(&claim, 11, true), OCCL_ENTER_CLAIMED);
    assert_int_equal(occl_claim_enter(&claim, 22, false), OCCL_ENTER_RING);
    assert_int_equal(claim.word, OCCL_WORD_CLAIMED | 11);
    assert_int_equal(occl_claim_enter(&claim, 22, true), OCCL_ENTER_RING);
    assert_int_equal(claim.word, OCCL_WORD_OVERFLOW_ONE | OCCL_WORD_CLAIMED | 11);
    /* The ops that are there go on. */
    assert_int_equal(occl_claim_enter(&claim, 11, true), OCCL_ENTER_JOINED);
    occl_claim_overflow_drop(&claim);
    assert_int_equal(claim.word, OCCL_WORD_CLAIMED | 11);
}

static void overflow_keeps_the_claim_closed(void **state) {
    (void)state;
    struct occl_records m = records_new(MEMBERS);
    static const uint32_t indices[] = {OCCL_PAIRS + 7, OCCL_CLAIM_RUN_FIRST + 1};
    for (size_t k = 0; k < sizeof indices / sizeof *indices; k++) {
        struct occl_claim *claim = occl_claim_at(&m, indices[k]);
        (void)occl_claim_enter(claim, 11, true);
        (void)occl_claim_enter(claim, 22, true);
        for (uint32_t i = 0; i < MEMBERS; i++)
            occl_claim_leave(&m, indices[k]);
        assert_int_equal(claim->word, OCCL_WORD_OVERFLOW_ONE);
        /* The op's second member must follow the first one into the ring, and a third op must not
         * overtake. */
        assert_int_equal(occl_claim_enter(claim, 22, true), OCCL_ENTER_RING);
        assert_int_equal(occl_claim_enter(claim, 33, true), OCCL_ENTER_RING);
        assert_int_equal(occl_claim_enter(claim, 0, false), OCCL_ENTER_RING);
        for (int i = 0; i < 3; i++)
            occl_claim_overflow_drop(claim);
        assert_int_equal(claim->word, 0);
        assert_int_equal(occl_claim_enter(claim, 33, true), OCCL_ENTER_CLAIMED);
    }
    records_free(&m);
}

static void full_counter_refuses(void **state) {
    (void)state;
    struct occl_claim claim = {0, 0, {0}};
    (void)occl_claim_enter(&claim, 11, true);
    for (uint32_t i = 0; i < OCCL_WORD_OVERFLOW_MAX; i++)
        assert_int_equal(occl_claim_enter(&claim, 22, true), OCCL_ENTER_RING);
    uint64_t word = claim.word;
    assert_int_equal(occl_claim_enter(&claim, 22, true), OCCL_ENTER_FULL);
    assert_int_equal(claim.word, word);
    assert_int_equal(occl_claim_enter(&claim, 11, true), OCCL_ENTER_JOINED);
    occl_claim_overflow_drop(&claim);
    assert_int_equal(occl_claim_enter(&claim, 22, true), OCCL_ENTER_RING);
}

static void scribbled_count_stays_closed(void **state) {
    (void)state;
    /* Dropping from 0 wraps: nothing but the count changes, and nobody claims. */
    struct occl_claim claim = {OCCL_WORD_CLAIMED | 11, 0, {0}};
    occl_claim_overflow_drop(&claim);
    assert_int_equal(claim.word & ~(0ull - OCCL_WORD_OVERFLOW_ONE), OCCL_WORD_CLAIMED | 11);
    assert_int_equal(occl_claim_enter(&claim, 22, true), OCCL_ENTER_FULL);
    claim.word = 0;
    occl_claim_overflow_drop(&claim);
    assert_int_equal(occl_claim_enter(&claim, 22, true), OCCL_ENTER_FULL);
}

/* ---- lines ---- */

static void lines_hold_key_and_signature(void **state) {
    (void)state;
    static const struct occl_signature signatures[] = {
        {OCCL_OP_ALL_REDUCE, 7, 4, 255, 2, 9, 0, 0x123456789abull},
        {OCCL_OP_BROADCAST, 1, 0, 0, 63, 65535, 0, UINT64_MAX},
        {OCCL_OP_SEND, 255, 255, 0, 0, 0, 0, 0},
    };
    const struct occl_op_key keys[] = {
        records_collective(5, 6),  records_collective(0, UINT32_MAX),
        records_pair(0, 0, 1, 2),  records_pair(63, 1, OCCL_TAG_LIMIT - 1, UINT32_MAX),
        records_pair(1, 63, 0, 0), records_pair(63, 63, 3, 4),
    };
    for (size_t s = 0; s < sizeof signatures / sizeof *signatures; s++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            struct occl_line line;
            memset(&line, 0xa5, sizeof line);
            occl_line_fill(&line, keys[k], &signatures[s]);
            /* Filling publishes nothing. */
            assert_true(line.flag == 0xa5a5a5a5a5a5a5a5);
            assert_int_equal(line.u.tiny[0], 0xa5);
            /* The version of the selection table comes with the flag. */
            line.flag = occl_flag_make(
                1, signatures[s].selection_version << OCCL_FLAG_SELECTION_SHIFT | OCCL_FLAG_READY);
            struct occl_signature sig = occl_line_signature(&line);
            struct occl_op_key key = occl_line_key(&line);
            assert_memory_equal(&sig, &signatures[s], sizeof sig);
            assert_memory_equal(&key, &keys[k], sizeof key);
        }
    }
}

static const struct occl_signature sample = {OCCL_OP_ALL_REDUCE, 7, 4, 0, 2, 9, 0,
                                             0x123456789abull};

static void mismatch_names_field_and_rank(void **state) {
    (void)state;
    static const enum occl_signature_field fields[] = {
        OCCL_FIELD_KIND,  OCCL_FIELD_DTYPE,   OCCL_FIELD_REDOP, OCCL_FIELD_ROOT,
        OCCL_FIELD_COUNT, OCCL_FIELD_PROGRAM, OCCL_FIELD_KEY,   OCCL_FIELD_KEY};
    struct occl_records m = records_new(MEMBERS);
    struct occl_record *rec = occl_record_at(&m, 0);
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        uint32_t index = 99;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            struct occl_signature s = sample;
            struct occl_op_key key = records_collective(5, 6);
            if (i == 2) {
                s.kind += fields[f] == OCCL_FIELD_KIND;
                s.dtype += fields[f] == OCCL_FIELD_DTYPE;
                s.redop += fields[f] == OCCL_FIELD_REDOP;
                s.root += fields[f] == OCCL_FIELD_ROOT;
                s.count += (uint64_t)(fields[f] == OCCL_FIELD_COUNT) << 40;
                s.program_id += fields[f] == OCCL_FIELD_PROGRAM;
                key.instance += f == 6;
                key.peers = f == 7 ? 0x10000u : key.peers;
            }
            occl_line_fill(occl_line_at(rec, i), key, &s);
        }
        /* Who is not in the mask is not compared; who is, both ways. */
        assert_int_equal(occl_record_mismatch(rec, 3, 0, &index), OCCL_FIELD_NONE);
        assert_int_equal(occl_record_mismatch(rec, 1, 0, &index), OCCL_FIELD_NONE);
        assert_int_equal(occl_record_mismatch(rec, 0, 2, &index), OCCL_FIELD_NONE);
        assert_int_equal(index, 99);
        assert_int_equal(occl_record_mismatch(rec, 7, 0, &index), fields[f]);
        assert_int_equal(index, 2);
        assert_int_equal(occl_record_mismatch(rec, 6, 2, &index), fields[f]);
        assert_int_equal(index, 1);
    }
    records_free(&m);
}

static void send_agrees_with_recv_only(void **state) {
    (void)state;
    struct occl_signature a = sample, b = sample;
    a.kind = OCCL_OP_SEND;
    b.kind = OCCL_OP_RECV;
    assert_int_equal(occl_signature_differ(&a, &b), OCCL_FIELD_NONE);
    assert_int_equal(occl_signature_differ(&b, &a), OCCL_FIELD_NONE);
    struct occl_line x, y;
    occl_line_fill(&x, records_pair(63, 62, 1, 2), &a);
    occl_line_fill(&y, records_pair(63, 62, 1, 2), &b);
    assert_int_equal(occl_line_differ(&x, &y), OCCL_FIELD_NONE);
    /* Two messages whose prints collide: the same signature, other peers. */
    occl_line_fill(&y, records_pair(62, 63, 1, 2), &b);
    assert_int_equal(occl_line_differ(&x, &y), OCCL_FIELD_KEY);
    b.kind = OCCL_OP_BROADCAST;
    assert_int_equal(occl_signature_differ(&a, &b), OCCL_FIELD_KIND);
    /* The versions of the selection table may differ: the lowest wins. */
    b = a;
    b.selection_version++;
    assert_int_equal(occl_signature_differ(&a, &b), OCCL_FIELD_NONE);
}

/* ---- the page ---- */

static void layout_fits_and_is_aligned(void **state) {
    (void)state;
    for (uint32_t ranks = 1; ranks <= OCCL_LOCAL_RANKS_MAX; ranks++) {
        struct occl_comm_page h;
        occl_comm_page_layout(ranks, 1234, &h);
        assert_int_equal(h.notes_offset % OCCL_CACHE_LINE_BYTES, 0);
        assert_int_equal(h.claims_offset % OCCL_CACHE_LINE_BYTES, 0);
        assert_int_equal(h.record_stride % OCCL_CACHE_LINE_BYTES, 0);
        assert_int_equal(h.records_offset % OCCL_PAGE_BYTES, 0);
        assert_int_equal(h.payload_stride % OCCL_CACHE_LINE_BYTES, 0);
        assert_int_equal(h.records, OCCL_RECORDS);
        assert_true(h.notes_offset >= sizeof h);
        assert_true(h.notes_offset + ranks * sizeof(struct occl_rank_note) <= h.tags_offset);
        assert_int_equal(h.tags_offset % OCCL_CACHE_LINE_BYTES, 0);
        assert_true(h.tags_offset + OCCL_TAG_BATCH_BYTES + ranks * OCCL_TAG_VOTE_BYTES <=
                    h.claims_offset);
        assert_true(h.claims_offset + OCCL_CLAIMS * sizeof(struct occl_claim) <= h.records_offset);
        assert_true(h.records_offset + h.records * (uint64_t)h.record_stride <= h.payload_offset);
        assert_true(h.payload_offset + ranks * (uint64_t)h.payload_stride <= h.page_bytes);
        /* A message to oneself has two lines, also where there is one rank. */
        uint32_t lines = ranks < 2 ? 2 : ranks;
        assert_int_equal(h.record_stride,
                         sizeof(struct occl_record) + lines * sizeof(struct occl_line));
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
    assert_ptr_equal(occl_claim_of(&m, 3), page + good.claims_offset + 3 * 64);
    assert_ptr_equal(occl_claim_of(&m, OCCL_RECORDS - 1),
                     page + good.claims_offset + (OCCL_CLAIMS - 1) * 64);
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

/* Every strand once, whatever the mix of cores, and first those of the core's own stretch. */
static void strands_are_claimed_once(void **state) {
    (void)state;
    struct occl_records m = records_new(2);
    struct occl_record *rec = occl_record_at(&m, 0);
    for (uint32_t count = 0; count < 70; count++) {
        for (uint32_t cores = 1; cores <= 9; cores++) {
            uint8_t seen[70] = {0};
            memset(rec->strands_next, 0, sizeof rec->strands_next);
            for (uint32_t i = 0; i < count; i++) {
                assert_true(occl_record_strands_left(rec, count));
                uint32_t strand = occl_record_claim_strand(rec, count, i * 7 % cores);
                assert_true(strand < count);
                assert_int_equal(seen[strand]++, 0);
            }
            assert_false(occl_record_strands_left(rec, count));
            assert_int_equal(occl_record_claim_strand(rec, count, cores), count);
            assert_int_equal(occl_record_strands_claimed(rec), count);
        }
    }
    memset(rec->strands_next, 0, sizeof rec->strands_next);
    assert_int_equal(occl_record_claim_strand(rec, 64, 0), 0);
    assert_int_equal(occl_record_claim_strand(rec, 64, 1), 32);
    assert_int_equal(occl_record_claim_strand(rec, 64, 0), 1);
    assert_int_equal(occl_record_claim_strand(rec, 64, 2), 16);
    assert_int_equal(occl_record_claim_strand(rec, 64, 1), 33);
    /* Several at once, never beyond their segment. */
    for (uint32_t wanted = 1; wanted < 12; wanted++) {
        uint32_t sum = 0, claimed = 1;
        uint8_t seen[70] = {0};
        memset(rec->strands_next, 0, sizeof rec->strands_next);
        for (uint32_t i = 0; claimed; i++) {
            uint32_t strand = occl_record_claim_strands(rec, 70, i, wanted, &claimed);
            assert_true(claimed <= wanted && strand + claimed <= 70);
            for (uint32_t k = 0; k < claimed; k++)
                assert_int_equal(seen[strand + k]++, 0);
            sum += claimed;
        }
        assert_int_equal(sum, 70);
    }
    /* Scribbled counters. */
    for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
        rec->strands_next[s] = s % 2 ? UINT32_MAX : 0;
    for (uint32_t i = 0; i < 32; i++)
        assert_true(occl_record_claim_strand(rec, 64, i) < 64);
    assert_int_equal(occl_record_claim_strand(rec, 64, 0), 64);
    assert_true(occl_record_claim_strand(rec, UINT32_MAX, 3) < UINT32_MAX);
    records_free(&m);
}

/* What the claims say was claimed, is what was claimed, for every number of strands. */
static void claims_name_the_strands(void **state) {
    struct occl_records m = records_new(2);
    struct occl_record *rec = occl_record_at(&m, 0);
    (void)state;
    for (uint32_t count = 1; count <= 70; count++) {
        uint8_t claimed[70] = {0};
        memset(rec->strands_next, 0, sizeof rec->strands_next);
        for (uint32_t taken = 0; taken <= count; taken++) {
            struct occl_strand_claims claims;
            uint8_t named[70] = {0};
            assert_true(occl_record_claims(rec, count, &claims));
            assert_int_equal(claims.sum, taken);
            for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
                for (uint32_t i = 0; i < claims.of[s]; i++)
                    named[occl_record_segment_first(s, count) + i]++;
            assert_memory_equal(named, claimed, sizeof named);
            uint32_t strand = occl_record_claim_strand(rec, count, taken * 5);
            assert_int_equal(strand < count, taken < count);
            if (strand < count)
                claimed[strand]++;
        }
    }
    /* Tries that found none, and scribbled counters. */
    struct occl_strand_claims claims;
    for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
        rec->strands_next[s] = UINT32_MAX - s;
    assert_true(occl_record_claims(rec, 9, &claims));
    assert_int_equal(claims.sum, 9);
    records_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_name_the_strands),
        cmocka_unit_test(strands_are_claimed_once),
        cmocka_unit_test(tagged_places_are_exact),
        cmocka_unit_test(untagged_places_are_exact),
        cmocka_unit_test(untagged_stream_walks_through_runs),
        cmocka_unit_test(every_record_is_used),
        cmocka_unit_test(pairs_never_look_like_collectives),
        cmocka_unit_test(claims_cover_the_records),
        cmocka_unit_test(first_claims_and_others_join),
        cmocka_unit_test(busy_claim_sends_to_the_ring),
        cmocka_unit_test(overflow_keeps_the_claim_closed),
        cmocka_unit_test(full_counter_refuses),
        cmocka_unit_test(scribbled_count_stays_closed),
        cmocka_unit_test(lines_hold_key_and_signature),
        cmocka_unit_test(mismatch_names_field_and_rank),
        cmocka_unit_test(send_agrees_with_recv_only),
        cmocka_unit_test(layout_fits_and_is_aligned),
        cmocka_unit_test(header_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
