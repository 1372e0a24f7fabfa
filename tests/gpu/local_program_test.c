/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of one node: coverage, bounds of the slices, agreement, refusal, and the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/local_program.h"

static struct occl_signature signature(uint32_t kind, uint32_t dtype, uint32_t redop,
                                       uint64_t count) {
    struct occl_signature sig;
    memset(&sig, 0, sizeof sig);
    sig.kind = (uint8_t)kind;
    sig.dtype = (uint8_t)dtype;
    sig.redop = (uint8_t)redop;
    sig.count = count;
    return sig;
}

static struct occl_local_plan plan_of(uint32_t kind, uint32_t dtype, uint64_t count,
                                      uint32_t members) {
    struct occl_signature sig = signature(kind, dtype, OCCL_RO_SUM, count);
    struct occl_local_plan plan;
    assert_int_equal(occl_local_plan_make(&sig, members, false, NULL, &plan), OCCL_OK);
    return plan;
}

/* The strands cut every buffer into consecutive ranges without hole or overlap. */
static void check_cover(const struct occl_local_plan *plan) {
    uint64_t at = 0, traffic = 0;
    for (uint32_t i = 0; i < plan->strand_count; i++) {
        uint64_t bytes, offset = occl_local_strand_range(plan, i, &bytes);
        struct occl_local_piece piece;
        struct occl_local_walk walk;
        assert_int_equal(offset, at);
        assert_int_equal(offset % 64, 0);
        assert_true(bytes > 0);
        /* Its pieces cut it likewise, and none of them leaves its block. */
        occl_local_walk_to(plan, offset, &walk);
        for (uint64_t done = 0, length; done < bytes; done += length) {
            length = occl_local_walk_next(plan, &walk, bytes - done, &piece);
            assert_true(length > 0 && length <= bytes - done && piece.bytes == length);
            assert_true(piece.offset + piece.bytes <= plan->block_bytes);
            assert_true(piece.src_first + piece.src_count <= plan->member_count);
            assert_true(piece.dst_first + piece.dst_count <= plan->member_count);
        }
        at += bytes;
        traffic += occl_local_strand_traffic(plan, i);
    }
    assert_int_equal(at, plan->total_bytes);
    assert_int_equal(traffic, plan->traffic_bytes);
}

static void strands_cover_every_byte_once(void **state) {
    (void)state;
    for (uint32_t kind = 1; kind < OCCL_OP_LIMIT; kind++) {
        const struct occl_kind_traits *traits = occl_kind_traits(kind);
        if (traits->flags & OCCL_KIND_VECTOR)
            continue;
        for (uint32_t members = 1; members <= 64; members = members * 2 + 1)
            for (uint64_t count = 0; count < 5000000; count = count * 3 + 1) {
                if (traits->flags & OCCL_KIND_PAIR && members != 1)
                    continue;
                uint32_t really = traits->flags & OCCL_KIND_PAIR ? 2 : members;
                struct occl_local_plan plan = plan_of(kind, OCCL_DT_FLOAT16, count, really);
                check_cover(&plan);
            }
    }
}

static void slices_keep_their_bounds(void **state) {
    (void)state;
    for (uint32_t members = 1; members <= 64; members++)
        for (uint64_t bytes = 4; bytes <= 256u << 20; bytes = bytes * 2 + 4) {
            struct occl_local_plan plan =
                plan_of(OCCL_OP_ALL_REDUCE, OCCL_DT_FLOAT32, bytes / 4, members);
            uint64_t traffic = occl_local_strand_traffic(&plan, 0);
            if (plan.strand_count > 1)
                assert_true(plan.slice_bytes >= OCCL_SLICE_BYTES_MIN);
            /* Rounding up to whole pages may add a page for each buffer. */
            assert_true(traffic <= OCCL_SLICE_TRAFFIC_BYTES + 2ull * members * OCCL_PAGE_BYTES ||
                        plan.slice_bytes <= OCCL_SLICE_BYTES_MIN + 64);
            if (bytes < 64u << 10 && members <= 8)
                assert_true(plan.strand_count <= 2);
            if (bytes >= 1u << 20)
                assert_true(plan.strand_count >= 4);
        }
}

static void huge_ops_have_bounded_strands(void **state) {
    struct occl_local_plan plan =
        plan_of(OCCL_OP_ALL_REDUCE, OCCL_DT_FLOAT64, (1ull << 59) - 1, 64);
    uint64_t bytes, offset;
    (void)state;
    assert_true(plan.strand_count <= OCCL_LOCAL_STRANDS_MAX);
    offset = occl_local_strand_range(&plan, plan.strand_count - 1, &bytes);
    assert_int_equal(offset + bytes, plan.total_bytes);
}

static void stores_go_around_a_cache_that_is_too_small(void **state) {
    (void)state;
    const uint64_t cache_bytes = 32u << 20;
    /* 4 inputs and 4 outputs of 2 MiB are half of the cache. */
    struct occl_local_plan half = plan_of(OCCL_OP_ALL_REDUCE, OCCL_DT_FLOAT32, 512u << 10, 4);
    struct occl_local_plan more = plan_of(OCCL_OP_ALL_REDUCE, OCCL_DT_FLOAT32, 513u << 10, 4);
    assert_int_equal(occl_local_move_flags(&half, cache_bytes, false), 0);
    assert_int_equal(occl_local_move_flags(&more, cache_bytes, false), OCCL_MOVE_NONTEMPORAL);
    assert_int_equal(occl_local_move_flags(&more, cache_bytes, true), 0);
    /* 1 input and 3 outputs of 8 MiB just fit. */
    struct occl_local_plan fits = plan_of(OCCL_OP_BROADCAST, OCCL_DT_FLOAT32, 2u << 20, 4);
    struct occl_local_plan large = plan_of(OCCL_OP_BROADCAST, OCCL_DT_FLOAT32, 2049u << 10, 4);
    assert_int_equal(occl_local_move_flags(&fits, cache_bytes, false), 0);
    assert_int_equal(occl_local_move_flags(&large, cache_bytes, false), OCCL_MOVE_NONTEMPORAL);
}

static void nothing_to_do_is_no_strand(void **state) {
    (void)state;
    assert_int_equal(plan_of(OCCL_OP_BARRIER, 0, 0, 7).strand_count, 0);
    assert_int_equal(plan_of(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, 0, 7).strand_count, 0);
}

/* Both sides of a message compute the same plan, although their kinds differ. */
static void sender_and_receiver_agree(void **state) {
    struct occl_local_plan send = plan_of(OCCL_OP_SEND, OCCL_DT_INT64, 12345, 2);
    struct occl_local_plan recv = plan_of(OCCL_OP_RECV, OCCL_DT_INT64, 12345, 2);
    (void)state;
    assert_memory_equal(&send, &recv, sizeof send);
}

static void refuses(struct occl_signature sig, uint32_t members) {
    struct occl_local_plan plan;
    memset(&plan, 0x5a, sizeof plan);
    struct occl_local_plan before = plan;
    assert_int_equal(occl_local_plan_make(&sig, members, false, NULL, &plan), OCCL_E_INVALID);
    assert_memory_equal(&plan, &before, sizeof plan);
}

static void bad_descriptions_are_refused(void **state) {
    struct occl_signature sig;
    (void)state;
    refuses(signature(OCCL_OP_NONE, OCCL_DT_INT32, 0, 1), 2);
    refuses(signature(77, OCCL_DT_INT32, 0, 1), 2);
    refuses(signature(OCCL_OP_ALL_REDUCE, 12, 0, 1), 2);
    refuses(signature(OCCL_OP_ALL_REDUCE, 200, 0, 1), 2);
    refuses(signature(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, OCCL_RO_LIMIT, 1), 2);
    refuses(signature(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, 250, 1), 2);
    refuses(signature(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, 0, 1), 0);
    refuses(signature(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, 0, 1), OCCL_LOCAL_RANKS_MAX + 1);
    refuses(signature(OCCL_OP_ALL_REDUCE, OCCL_DT_INT64, 0, UINT64_MAX), 2);
    refuses(signature(OCCL_OP_ALL_REDUCE, OCCL_DT_INT64, 0, 1ull << 61), 2);
    refuses(signature(OCCL_OP_ALL_GATHER, OCCL_DT_INT64, 0, 1ull << 47), 2);
    refuses(signature(OCCL_OP_SEND, OCCL_DT_INT32, 0, 1), 3);
    sig = signature(OCCL_OP_BROADCAST, OCCL_DT_INT32, 0, 1);
    sig.root = 2;
    refuses(sig, 2);
}

/* ---- bytes ---- */
#define CASE_MEMBERS 5u
#define CASE_COUNT 30011u

static int32_t in[CASE_MEMBERS][CASE_COUNT], out[CASE_MEMBERS][CASE_COUNT];

static void run_all(const struct occl_local_plan *plan, const struct occl_local_buffers *buffers) {
    const struct occl_movers *movers = occl_movers_select(0);
    /* Strands are independent: the last one first. */
    for (uint32_t i = plan->strand_count; i-- > 0;)
        assert_int_equal(occl_local_strand_run(plan, i, movers, buffers), OCCL_OK);
}

static void fill(const void **inputs, void **outputs) {
    for (uint32_t m = 0; m < CASE_MEMBERS; m++) {
        inputs[m] = in[m];
        outputs[m] = out[m];
        for (uint32_t e = 0; e < CASE_COUNT; e++) {
            in[m][e] = (int32_t)(m * 100000 + e);
            out[m][e] = -1;
        }
    }
}

static void all_reduce_writes_the_sum_everywhere(void **state) {
    const void *inputs[CASE_MEMBERS];
    void *outputs[CASE_MEMBERS];
    struct occl_local_buffers buffers = {inputs, outputs, NULL, 0};
    struct occl_local_plan plan =
        plan_of(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, CASE_COUNT, CASE_MEMBERS);
    (void)state;
    fill(inputs, outputs);
    inputs[3] = outputs[3]; /* member 3 in place */
    memcpy(out[3], in[3], sizeof out[3]);
    run_all(&plan, &buffers);
    for (uint32_t m = 0; m < CASE_MEMBERS; m++)
        for (uint32_t e = 0; e < CASE_COUNT; e++)
            assert_int_equal(out[m][e], 1000000 + 5 * e);
}

static void average_divides_by_the_members(void **state) {
    const void *inputs[CASE_MEMBERS];
    void *outputs[CASE_MEMBERS];
    struct occl_local_buffers buffers = {inputs, outputs, NULL, 0};
    struct occl_signature sig =
        signature(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, OCCL_RO_AVG, CASE_COUNT);
    struct occl_local_plan plan;
    (void)state;
    fill(inputs, outputs);
    assert_int_equal(occl_local_plan_make(&sig, CASE_MEMBERS, false, NULL, &plan), OCCL_OK);
    run_all(&plan, &buffers);
    assert_int_equal(out[4][77], 200000 + 77);
}

static void broadcast_copies_from_the_root(void **state) {
    const void *inputs[CASE_MEMBERS];
    void *outputs[CASE_MEMBERS];
    struct occl_local_buffers buffers = {inputs, outputs, NULL, 0};
    struct occl_signature sig = signature(OCCL_OP_BROADCAST, OCCL_DT_INT32, 0, CASE_COUNT);
    struct occl_local_plan plan;
    (void)state;
    fill(inputs, outputs);
    for (uint32_t m = 0; m < CASE_MEMBERS; m++)
        inputs[m] = m == 2 ? in[2] : NULL;
    outputs[2] = NULL; /* the root has no output */
    sig.root = 2;
    assert_int_equal(occl_local_plan_make(&sig, CASE_MEMBERS, false, NULL, &plan), OCCL_OK);
    run_all(&plan, &buffers);
    for (uint32_t m = 0; m < CASE_MEMBERS; m++)
        assert_int_equal(out[m][30000], m == 2 ? -1 : 230000);
}

static void send_copies_to_the_receiver_only(void **state) {
    const void *inputs[CASE_MEMBERS];
    void *outputs[CASE_MEMBERS];
    struct occl_local_buffers buffers = {inputs, outputs, NULL, 0};
    struct occl_local_plan plan = plan_of(OCCL_OP_RECV, OCCL_DT_INT32, CASE_COUNT, 2);
    (void)state;
    fill(inputs, outputs);
    inputs[1] = NULL;
    outputs[0] = NULL;
    run_all(&plan, &buffers);
    assert_int_equal(out[1][30010], 30010);
    assert_int_equal(out[0][30010], -1);
}

static void a_missing_address_is_an_error(void **state) {
    const void *inputs[CASE_MEMBERS];
    void *outputs[CASE_MEMBERS];
    struct occl_local_buffers buffers = {inputs, outputs, NULL, 0};
    struct occl_local_plan plan =
        plan_of(OCCL_OP_ALL_REDUCE, OCCL_DT_INT32, CASE_COUNT, CASE_MEMBERS);
    (void)state;
    fill(inputs, outputs);
    inputs[1] = NULL;
    assert_int_equal(occl_local_strand_run(&plan, 0, occl_movers_select(0), &buffers),
                     OCCL_E_INVALID);
    inputs[1] = in[1];
    outputs[0] = NULL;
    assert_int_equal(occl_local_strand_run(&plan, 0, occl_movers_select(0), &buffers),
                     OCCL_E_INVALID);
    assert_int_equal(out[2][0], -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strands_cover_every_byte_once),
        cmocka_unit_test(slices_keep_their_bounds),
        cmocka_unit_test(huge_ops_have_bounded_strands),
        cmocka_unit_test(stores_go_around_a_cache_that_is_too_small),
        cmocka_unit_test(nothing_to_do_is_no_strand),
        cmocka_unit_test(sender_and_receiver_agree),
        cmocka_unit_test(bad_descriptions_are_refused),
        cmocka_unit_test(all_reduce_writes_the_sum_everywhere),
        cmocka_unit_test(average_divides_by_the_members),
        cmocka_unit_test(broadcast_copies_from_the_root),
        cmocka_unit_test(send_copies_to_the_receiver_only),
        cmocka_unit_test(a_missing_address_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
