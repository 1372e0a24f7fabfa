/* SPDX-License-Identifier: Apache-2.0 */
/* Submissions meet by key, in any order, and end exactly once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/fixture.h"

#define OK(fx_, comm_, rank_, user_) fx_expect(fx_, comm_, rank_, user_, OCCL_OK, OCCL_RANK_NONE)

static uint64_t ops_in_table(struct fx *fx) {
    struct occl_engine_job_usage usage;
    assert_true(occl_engine_job_usage(fx->engine, 1, &usage));
    return usage.queue_depth;
}

static void all_reduce_adds(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 4);
    int32_t *data = fx_region(&fx, 1, 8 * 4096, &region);
    for (uint32_t r = 0; r < 4; r++) {
        for (uint32_t i = 0; i < 100; i++)
            data[r * 1024 + i] = (int32_t)(r * 1000 + i);
        struct occl_sqe sqe =
            fx_all_reduce(comm, r, fx_key(7, 0), 100, region, r * 4096, (4 + r) * 4096);
        fx_submit(&fx, comm, r, &sqe);
    }
    for (uint32_t r = 0; r < 4; r++) {
        OK(&fx, comm, r, 7ull << 32);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(data[(4 + r) * 1024 + i], 6000 + 4 * i);
    }
    assert_int_equal(ops_in_table(&fx), 0);
    fx_close(&fx);
    free(data);
}

static void big_all_reduce_uses_strands(void **state) {
    struct fx fx;
    uint32_t region;
    const uint64_t count = 1 << 20;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 3});
    struct fx_comm *comm = fx_simple(&fx, 2);
    int32_t *data = fx_region(&fx, 1, 4 * count * 4, &region);
    for (uint64_t i = 0; i < count; i++) {
        data[i] = (int32_t)i;
        data[count + i] = (int32_t)(2 * i);
    }
    for (uint32_t round = 0; round < 4; round++) {
        memset(data + 2 * count, 0, 8 * count);
        for (uint32_t r = 0; r < 2; r++) {
            struct occl_sqe sqe = fx_all_reduce(comm, r, fx_key(0, round), count, region,
                                                r * count * 4, (2 + r) * count * 4);
            fx_submit(&fx, comm, r, &sqe);
        }
        for (uint32_t r = 0; r < 2; r++)
            OK(&fx, comm, r, round);
        for (uint64_t i = 0; i < count; i++) {
            if (data[2 * count + i] != (int32_t)(3 * i) || data[3 * count + i] != (int32_t)(3 * i))
                fail_msg("element %llu", (unsigned long long)i);
        }
    }
    fx_close(&fx);
    free(data);
}

static void broadcast_copies_from_the_root(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 3);
    char *data = fx_region(&fx, 1, 3 * 4096, &region);
    memset(data + 4096, 'r', 1000);
    for (uint32_t r = 0; r < 3; r++) {
        struct occl_sqe sqe = fx_all_reduce(comm, r, fx_key(1, 5), 250, region, r * 4096, r * 4096);
        sqe.signature.kind = OCCL_OP_BROADCAST;
        sqe.signature.root = 1;
        if (r == 1)
            sqe.dst = (struct occl_buffer_ref){0};
        else
            sqe.src = (struct occl_buffer_ref){0};
        fx_submit(&fx, comm, r, &sqe);
    }
    for (uint32_t r = 0; r < 3; r++) {
        OK(&fx, comm, r, (1ull << 32) + 5);
        assert_memory_equal(data + r * 4096, data + 4096, 1000);
        assert_int_equal(data[r * 4096 + 1000], 0);
    }
    fx_close(&fx);
    free(data);
}

static struct occl_sqe message(const struct fx_comm *comm, bool send, uint32_t from, uint32_t to,
                               uint64_t count, uint32_t region, uint64_t offset) {
    uint32_t rank = send ? from : to;
    struct occl_sqe sqe = fx_all_reduce(comm, rank, fx_key(3, 0), count, region, offset, offset);
    sqe.key.peers = from << 16 | to;
    sqe.signature.kind = send ? OCCL_OP_SEND : OCCL_OP_RECV;
    sqe.signature.redop = 0;
    sqe.signature.root = to;
    if (send)
        sqe.dst = (struct occl_buffer_ref){0};
    else
        sqe.src = (struct occl_buffer_ref){0};
    return sqe;
}

static void messages_cross_and_reach_oneself(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 3);
    char *data = fx_region(&fx, 1, 8 * 4096, &region);
    memset(data, 'a', 400);
    memset(data + 4096, 'b', 400);
    const uint32_t pairs[3][2] = {{0, 1}, {1, 0}, {2, 2}};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t from = pairs[i][0], to = pairs[i][1];
        struct occl_sqe in = message(comm, false, from, to, 100, region, (3 + i) * 4096);
        struct occl_sqe out = message(comm, true, from, to, 100, region, from * 4096);
        in.user_data = 10 + i;
        out.user_data = 20 + i;
        fx_submit(&fx, comm, to, &in);
        fx_submit(&fx, comm, from, &out);
        fx_expect(&fx, comm, i == 2 ? 2 : from, 20 + i, OCCL_OK, OCCL_RANK_NONE);
        fx_expect(&fx, comm, to, 10 + i, OCCL_OK, OCCL_RANK_NONE);
    }
    assert_memory_equal(data + 3 * 4096, data, 400);
    assert_memory_equal(data + 4 * 4096, data + 4096, 400);
    fx_close(&fx);
    free(data);
}

static void barriers_and_empty_ops_complete(void **state) {
    struct fx fx;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 5);
    for (uint32_t kind = 0; kind < 2; kind++) {
        for (uint32_t r = 0; r < 5; r++) {
            if (r == 4)
                fx_expect_nothing(&fx, comm, 0);
            struct occl_sqe sqe = fx_all_reduce(comm, r, fx_key(kind, 9), 0, 0, 0, 0);
            if (kind == 1)
                sqe.signature = (struct occl_signature){.kind = OCCL_OP_BARRIER};
            sqe.src = sqe.dst = (struct occl_buffer_ref){0};
            fx_submit(&fx, comm, r, &sqe);
        }
        for (uint32_t r = 0; r < 5; r++)
            OK(&fx, comm, r, ((uint64_t)kind << 32) + 9);
    }
    fx_close(&fx);
}

static void one_rank_alone_completes(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){.lanes = 1});
    struct fx_comm *comm = fx_simple(&fx, 1);
    int32_t *data = fx_region(&fx, 1, 8192, &region);
    data[0] = 42;
    struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(0, 0), 1, region, 0, 4096);
    fx_submit(&fx, comm, 0, &sqe);
    OK(&fx, comm, 0, 0);
    assert_int_equal(data[1024], 42);
    fx_close(&fx);
    free(data);
}

/* Every field of the signature: all members get a mismatch that names it, nothing is written. */
static void mismatch_names_field_and_rank(void **state) {
    static const uint32_t fields[] = {OCCL_FIELD_KIND, OCCL_FIELD_DTYPE, OCCL_FIELD_REDOP,
                                      OCCL_FIELD_ROOT, OCCL_FIELD_COUNT};
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 3);
    int32_t *data = fx_region(&fx, 1, 6 * 4096, &region);
    data[0] = data[1024] = data[2048] = 5;
    for (uint32_t f = 0; f < 5; f++) {
        for (uint32_t r = 0; r < 3; r++) {
            struct occl_sqe sqe =
                fx_all_reduce(comm, r, fx_key(2, f), 10, region, r * 4096, (3 + r) * 4096);
            if (fields[f] == OCCL_FIELD_ROOT)
                sqe.signature.kind = OCCL_OP_BROADCAST;
            if (r == 1) {
                switch (fields[f]) {
                case OCCL_FIELD_KIND:
                    sqe.signature.kind = OCCL_OP_BROADCAST;
                    break;
                case OCCL_FIELD_DTYPE:
                    sqe.signature.dtype = OCCL_DT_FLOAT32;
                    break;
                case OCCL_FIELD_REDOP:
                    sqe.signature.redop = OCCL_RO_MAX;
                    break;
                case OCCL_FIELD_ROOT:
                    sqe.signature.root = 2;
                    break;
                default:
                    sqe.signature.count = 11;
                }
            }
            fx_submit(&fx, comm, r, &sqe);
        }
        for (uint32_t r = 0; r < 3; r++) {
            struct occl_cqe cqe = {0};
            assert_true(fx_wait(&fx, comm->sessions[r], fx_patience_ns(), &cqe));
            assert_int_equal(cqe.status, OCCL_E_MISMATCH);
            assert_int_equal(cqe.field, fields[f]);
            assert_int_equal(cqe.about_rank, r == 1 ? 0 : 1);
        }
        for (uint32_t r = 0; r < 3; r++)
            assert_int_equal(data[(3 + r) * 1024], 0);
    }
    assert_int_equal(ops_in_table(&fx), 0);
    fx_close(&fx);
    free(data);
}

static void a_second_submission_is_refused_alone(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 2);
    int32_t *data = fx_region(&fx, 1, 4 * 4096, &region);
    struct occl_sqe first = fx_all_reduce(comm, 0, fx_key(0, 0), 1, region, 0, 4096);
    struct occl_sqe again = first;
    again.user_data = 77;
    fx_submit(&fx, comm, 0, &first);
    fx_submit(&fx, comm, 0, &again);
    fx_expect(&fx, comm, 0, 77, OCCL_E_INVALID, 0);
    struct occl_sqe other = fx_all_reduce(comm, 1, fx_key(0, 0), 1, region, 8192, 12288);
    fx_submit(&fx, comm, 1, &other);
    OK(&fx, comm, 0, 0);
    OK(&fx, comm, 1, 0);
    fx_close(&fx);
    free(data);
}

static void cancel_ends_the_op_for_everybody(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 3);
    int32_t *data = fx_region(&fx, 1, 6 * 4096, &region);
    struct occl_sqe sqe[3];
    for (uint32_t r = 0; r < 3; r++)
        sqe[r] = fx_all_reduce(comm, r, fx_key(0, 3), 1, region, r * 4096, (3 + r) * 4096);
    fx_submit(&fx, comm, 0, &sqe[0]);
    fx_submit(&fx, comm, 1, &sqe[1]);
    fx_expect_nothing(&fx, comm, 0);
    struct occl_sqe cancel = {.verb = OCCL_SQE_CANCEL, .comm = comm->numbers[1], .user_data = 3};
    fx_submit(&fx, comm, 1, &cancel);
    fx_expect(&fx, comm, 0, 3, OCCL_E_TIMEOUT, 1);
    fx_expect(&fx, comm, 1, 3, OCCL_E_TIMEOUT, 1);
    assert_int_equal(ops_in_table(&fx), 1); /* remembered for the member that has not come */
    fx_submit(&fx, comm, 2, &sqe[2]);
    fx_expect(&fx, comm, 2, 3, OCCL_E_TIMEOUT, 1);
    assert_int_equal(ops_in_table(&fx), 0);
    /* Of something that has completed, or never was. */
    fx_submit(&fx, comm, 1, &cancel);
    fx_expect_nothing(&fx, comm, 1);
    fx_close(&fx);
    free(data);
}

static void a_refused_member_ends_the_op(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 3);
    int32_t *data = fx_region(&fx, 1, 6 * 4096, &region);
    for (uint32_t first = 0; first < 2; first++) {
        struct occl_sqe good = fx_all_reduce(comm, 0, fx_key(4, first), 1, region, 0, 4096);
        struct occl_sqe bad = fx_all_reduce(comm, 1, fx_key(4, first), 1, region, 6 * 4096, 0);
        struct occl_sqe late = fx_all_reduce(comm, 2, fx_key(4, first), 1, region, 8192, 12288);
        if (first == 0)
            fx_submit(&fx, comm, 0, &good);
        fx_submit(&fx, comm, 1, &bad);
        fx_expect(&fx, comm, 1, bad.user_data, OCCL_E_FAULT, 1);
        if (first == 1)
            fx_submit(&fx, comm, 0, &good);
        fx_expect(&fx, comm, 0, good.user_data, OCCL_E_FAULT, 1);
        fx_submit(&fx, comm, 2, &late);
        fx_expect(&fx, comm, 2, late.user_data, OCCL_E_FAULT, 1);
        assert_int_equal(ops_in_table(&fx), 0);
    }
    fx_close(&fx);
    free(data);
}

static void quota_refuses_new_ops_but_never_members(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    (void)fx_job(&fx, 1, 1, 1, 1, 4);
    (void)fx_session(&fx, 1, 64, 256);
    (void)fx_session(&fx, 1, 64, 256);
    struct fx_comm *comm = fx_comm(&fx, 1, 0, 2);
    int32_t *data = fx_region(&fx, 1, 4 * 4096, &region);
    for (uint32_t i = 0; i < 5; i++) {
        struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(0, i), 1, region, 0, 4096);
        fx_submit(&fx, comm, 0, &sqe);
    }
    fx_expect(&fx, comm, 0, 4, OCCL_E_QUOTA, OCCL_RANK_NONE);
    for (uint32_t i = 0; i < 4; i++) {
        struct occl_sqe sqe = fx_all_reduce(comm, 1, fx_key(0, i), 1, region, 8192, 12288);
        fx_submit(&fx, comm, 1, &sqe);
        OK(&fx, comm, 1, i);
        OK(&fx, comm, 0, i);
    }
    fx_close(&fx);
    free(data);
}

static void a_full_table_asks_to_try_again(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){.ops_max = 8});
    struct fx_comm *comm = fx_simple(&fx, 2);
    int32_t *data = fx_region(&fx, 1, 4 * 4096, &region);
    for (uint32_t i = 0; i < 9; i++) {
        struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(0, i), 1, region, 0, 4096);
        fx_submit(&fx, comm, 0, &sqe);
    }
    fx_expect(&fx, comm, 0, 8, OCCL_WOULD_BLOCK, OCCL_RANK_NONE);
    struct occl_sqe sqe = fx_all_reduce(comm, 1, fx_key(0, 3), 1, region, 8192, 12288);
    fx_submit(&fx, comm, 1, &sqe);
    OK(&fx, comm, 1, 3);
    OK(&fx, comm, 0, 3);
    sqe = fx_all_reduce(comm, 0, fx_key(0, 8), 1, region, 0, 4096);
    fx_submit(&fx, comm, 0, &sqe);
    fx_expect_nothing(&fx, comm, 0); /* now it has a place */
    fx_close(&fx);
    free(data);
}

static uint64_t overflow_of(const struct occl_claim *claim) {
    return occl_observe64(&claim->word) >> OCCL_WORD_OVERFLOW_SHIFT;
}

/* The overflow count of a key's claim goes down when the last member has come, not before:
 * else a late one would find the claim free and wait there alone. */
static void overflow_goes_back_when_all_have_come(void **state) {
    struct fx fx;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 2);
    struct occl_op_key key = fx_key(11, 3);
    struct occl_place place = occl_place_of(key);
    struct occl_claim *claim = occl_claim_of(&comm->records, place.slot);
    struct occl_place other = {place.slot, place.print + 1};
    assert_int_equal(occl_claim_enter(claim, other.print, true), OCCL_ENTER_CLAIMED);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(occl_claim_enter(claim, place.print, true), OCCL_ENTER_RING);
        struct occl_sqe sqe = fx_all_reduce(comm, r, key, 0, 0, 0, 0);
        sqe.src = sqe.dst = (struct occl_buffer_ref){0};
        fx_submit(&fx, comm, r, &sqe);
        if (r == 0) {
            fx_expect_nothing(&fx, comm, 0);
            assert_int_equal(overflow_of(claim), 1);
        }
    }
    OK(&fx, comm, 0, (11ull << 32) + 3);
    OK(&fx, comm, 1, (11ull << 32) + 3);
    assert_int_equal(overflow_of(claim), 0);
    struct occl_sqe sqe = fx_all_reduce(comm, 0, key, 0, 0, 0, 0);
    struct occl_sqe cancel = {
        .verb = OCCL_SQE_CANCEL, .comm = comm->numbers[0], .user_data = sqe.user_data};
    sqe.src = sqe.dst = (struct occl_buffer_ref){0};
    assert_int_equal(occl_claim_enter(claim, place.print, true), OCCL_ENTER_RING);
    fx_submit(&fx, comm, 0, &sqe);
    fx_submit(&fx, comm, 0, &cancel);
    fx_expect(&fx, comm, 0, sqe.user_data, OCCL_E_TIMEOUT, 0);
    assert_int_equal(overflow_of(claim), 1);
    assert_int_equal(occl_claim_enter(claim, place.print, true), OCCL_ENTER_RING);
    sqe.comm = comm->numbers[1];
    fx_submit(&fx, comm, 1, &sqe);
    fx_expect(&fx, comm, 1, sqe.user_data, OCCL_E_TIMEOUT, 0);
    assert_int_equal(overflow_of(claim), 0);
    fx_close(&fx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_adds),
        cmocka_unit_test(big_all_reduce_uses_strands),
        cmocka_unit_test(broadcast_copies_from_the_root),
        cmocka_unit_test(messages_cross_and_reach_oneself),
        cmocka_unit_test(barriers_and_empty_ops_complete),
        cmocka_unit_test(one_rank_alone_completes),
        cmocka_unit_test(mismatch_names_field_and_rank),
        cmocka_unit_test(a_second_submission_is_refused_alone),
        cmocka_unit_test(cancel_ends_the_op_for_everybody),
        cmocka_unit_test(a_refused_member_ends_the_op),
        cmocka_unit_test(quota_refuses_new_ops_but_never_members),
        cmocka_unit_test(a_full_table_asks_to_try_again),
        cmocka_unit_test(overflow_goes_back_when_all_have_come),
    };
    return cmocka_run_group_tests_name("engine_match", tests, NULL, NULL);
}
