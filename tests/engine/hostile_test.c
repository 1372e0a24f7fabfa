/* SPDX-License-Identifier: Apache-2.0 */
/* What a client may write into its session page: every field of an entry, the indices of the rings,
 * more than it may, everything at once. Only its own ops and its own session suffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/fixture.h"

static bool faulted(struct fx *fx) {
    return occl_observe64(&fx->faults) != 0;
}

/* A good all-reduce of session 0 and 1 still works. */
static void still_serves(struct fx *fx, const struct fx_comm *comm, uint32_t region, uint32_t tag) {
    for (uint32_t r = 0; r < 2; r++) {
        struct occl_sqe sqe =
            fx_all_reduce(comm, r, fx_key(tag, 0), 8, region, r * 4096, (2 + r) * 4096);
        fx_submit(fx, comm, r, &sqe);
    }
    for (uint32_t r = 0; r < 2; r++)
        fx_expect(fx, comm, r, (uint64_t)tag << 32, OCCL_OK, OCCL_RANK_NONE);
}

struct bad_field {
    const char *what;
    int status;
    void (*spoil)(struct occl_sqe *sqe);
};

#define BAD(name_, statement_)                \
    static void name_(struct occl_sqe *sqe) { \
        statement_;                           \
    }
BAD(bad_comm, sqe->comm = 999)
BAD(bad_priority, sqe->priority = 4)
BAD(bad_flags, sqe->flags = 4)
BAD(bad_vector, sqe->vector.offset = 1)
BAD(bad_factor, sqe->factor = 1)
BAD(bad_tag, sqe->key.tag = OCCL_TAG_LIMIT)
BAD(bad_peers, sqe->key.peers = 0x00000001)
BAD(bad_kind, sqe->signature.kind = 77)
BAD(bad_kind_none, sqe->signature.kind = OCCL_OP_NONE)
BAD(bad_dtype, sqe->signature.dtype = 12)
BAD(bad_dtype_high, sqe->signature.dtype = 255)
BAD(bad_redop, sqe->signature.redop = 99)
BAD(bad_root, sqe->signature.root = 1)
BAD(bad_program, sqe->signature.program_id = 3)
BAD(bad_signature_reserved, sqe->signature.reserved = 1)
BAD(bad_count, sqe->signature.count = UINT64_MAX)
BAD(bad_count_wraps, sqe->signature.count = (1ull << 62) + 1)
BAD(bad_count_long, sqe->signature.count = 3000; sqe->dst.offset = 12288)
BAD(bad_broadcast_root, sqe->signature.kind = OCCL_OP_BROADCAST; sqe->signature.root = 2)
BAD(bad_send_to, sqe->signature.kind = OCCL_OP_SEND; sqe->key.peers = 9; sqe->signature.root = 9)
BAD(bad_send_from, sqe->signature.kind = OCCL_OP_SEND; sqe->key.peers = 1u << 16)
BAD(bad_barrier_count, sqe->signature.kind = OCCL_OP_BARRIER)
BAD(bad_region, sqe->src.region = 55)
BAD(bad_offset, sqe->src.offset = 16384)
BAD(bad_offset_wraps, sqe->dst.offset = UINT64_MAX - 8)
BAD(bad_private, sqe->src.space = OCCL_SPACE_PRIVATE)
BAD(bad_src_space, sqe->src.space = 4)
BAD(bad_space, sqe->dst.space = 9)
BAD(bad_no_buffer, sqe->dst.space = OCCL_SPACE_NONE)
BAD(bad_payload, sqe->src.space = OCCL_SPACE_PAYLOAD; sqe->src.offset = 0)
BAD(bad_payload_wraps, sqe->src.space = OCCL_SPACE_PAYLOAD; sqe->src.offset = UINT64_MAX)
BAD(bad_overlap, sqe->dst.offset = sqe->src.offset + 4)

static void every_field_of_an_entry(void **state) {
    static const struct bad_field fields[] = {
        {"comm", OCCL_E_HANDLE, bad_comm},
        {"priority", OCCL_E_INVALID, bad_priority},
        {"flags", OCCL_E_INVALID, bad_flags},
        {"vector", OCCL_E_INVALID, bad_vector},
        {"factor", OCCL_E_INVALID, bad_factor},
        {"tag", OCCL_E_INVALID, bad_tag},
        {"peers", OCCL_E_INVALID, bad_peers},
        {"kind", OCCL_E_INVALID, bad_kind},
        {"kind none", OCCL_E_INVALID, bad_kind_none},
        {"dtype", OCCL_E_INVALID, bad_dtype},
        {"dtype high", OCCL_E_INVALID, bad_dtype_high},
        {"redop", OCCL_E_INVALID, bad_redop},
        {"root", OCCL_E_INVALID, bad_root},
        {"program", OCCL_E_INVALID, bad_program},
        {"signature reserved", OCCL_E_INVALID, bad_signature_reserved},
        {"count", OCCL_E_INVALID, bad_count},
        {"count wraps", OCCL_E_INVALID, bad_count_wraps},
        {"count long", OCCL_E_FAULT, bad_count_long},
        {"broadcast root", OCCL_E_INVALID, bad_broadcast_root},
        {"send to", OCCL_E_INVALID, bad_send_to},
        {"send from", OCCL_E_INVALID, bad_send_from},
        {"barrier count", OCCL_E_INVALID, bad_barrier_count},
        {"region", OCCL_E_FAULT, bad_region},
        {"offset", OCCL_E_FAULT, bad_offset},
        {"offset wraps", OCCL_E_FAULT, bad_offset_wraps},
        {"private", OCCL_E_INVALID, bad_private},
        {"source space", OCCL_E_INVALID, bad_src_space},
        {"space", OCCL_E_INVALID, bad_space},
        {"no buffer", OCCL_E_INVALID, bad_no_buffer},
        {"payload", OCCL_E_FAULT, bad_payload},
        {"payload wraps", OCCL_E_FAULT, bad_payload_wraps},
        {"overlap", OCCL_E_INVALID, bad_overlap},
    };
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 2);
    void *data = fx_region(&fx, 1, 4 * 4096, &region);
    for (uint32_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(500 + i, 0), 8, region, 0, 8192);
        struct occl_cqe cqe = {0};
        sqe.user_data = i;
        fields[i].spoil(&sqe);
        fx_submit(&fx, comm, 0, &sqe);
        assert_true(fx_wait(&fx, comm->sessions[0], fx_patience_ns(), &cqe));
        if (cqe.status != fields[i].status || cqe.user_data != i)
            fail_msg("%s: status %d", fields[i].what, cqe.status);
    }
    still_serves(&fx, comm, region, 1);
    assert_false(faulted(&fx));
    fx_close(&fx);
    free(data);
}

static void a_stranger_to_a_pair_spoils_nothing(void **state) {
    struct fx fx;
    uint32_t region;
    (void)state;
    fx_open(&fx, &(struct fx_options){0});
    struct fx_comm *comm = fx_simple(&fx, 3);
    void *data = fx_region(&fx, 1, 4 * 4096, &region);
    struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(1, 0), 8, region, 0, 4096);
    sqe.key.peers = 0u << 16 | 1u;
    sqe.signature.redop = 0;
    sqe.signature.root = 1;
    sqe.signature.kind = OCCL_OP_SEND;
    sqe.user_data = 50;
    struct occl_sqe stranger = sqe, recv = sqe;
    stranger.comm = comm->numbers[2];
    recv.comm = comm->numbers[1];
    recv.signature.kind = OCCL_OP_RECV;
    fx_submit(&fx, comm, 0, &sqe);
    fx_submit(&fx, comm, 2, &stranger);
    fx_expect(&fx, comm, 2, 50, OCCL_E_INVALID, 2);
    fx_submit(&fx, comm, 1, &recv);
    fx_expect(&fx, comm, 0, 50, OCCL_OK, OCCL_RANK_NONE);
    fx_expect(&fx, comm, 1, 50, OCCL_OK, OCCL_RANK_NONE);
    fx_close(&fx);
    free(data);
}

/* Ends with session 0 quarantined, once, while 1 and 2 work on. */
static void expect_quarantine(struct fx *fx, int status, struct fx_comm *others, uint32_t region) {
    assert_true(fx_until(fx, faulted));
    assert_int_equal(occl_observe64(&fx->faulted_session), fx->sessions[0].id);
    assert_int_equal(-(int)occl_observe64(&fx->fault_status), status);
    still_serves(fx, others, region, 3);
    occl_clock_sleep_ns(&fx->clock, 5000000);
    assert_int_equal(occl_observe64(&fx->faults), 1);
    occl_engine_session_remove(fx->engine, fx->sessions[0].id);
    still_serves(fx, others, region, 4);
}

static void open_three(struct fx *fx, struct fx_comm **out_others, uint32_t *out_region,
                       void **out_data) {
    fx_open(fx, &(struct fx_options){0});
    (void)fx_job(fx, 1, 1, 1, 1, 4096);
    for (uint32_t r = 0; r < 3; r++)
        (void)fx_session(fx, 1, 16, 16);
    (void)fx_comm(fx, 1, 0, 2);
    *out_others = fx_comm(fx, 1, 1, 2);
    *out_data = fx_region(fx, 1, 4 * 4096, out_region);
}

static void kick(struct fx *fx) {
    occl_engine_kick(fx->engine, fx->sessions[0].id);
}

static void submission_tail_too_far(void **state) {
    struct fx fx;
    struct fx_comm *others;
    uint32_t region;
    void *data;
    (void)state;
    open_three(&fx, &others, &region, &data);
    occl_publish32(&fx.sessions[0].page->sq_tail.value, 17);
    kick(&fx);
    expect_quarantine(&fx, OCCL_E_QUARANTINED, others, region);
    fx_close(&fx);
    free(data);
}

static void submission_tail_backwards(void **state) {
    struct fx fx;
    struct fx_comm *others;
    uint32_t region;
    void *data;
    (void)state;
    open_three(&fx, &others, &region, &data);
    occl_publish32(&fx.sessions[0].page->sq_tail.value, UINT32_MAX);
    kick(&fx);
    expect_quarantine(&fx, OCCL_E_QUARANTINED, others, region);
    fx_close(&fx);
    free(data);
}

static void unknown_verb(void **state) {
    struct fx fx;
    struct fx_comm *others;
    uint32_t region;
    void *data;
    (void)state;
    open_three(&fx, &others, &region, &data);
    struct occl_sqe sqe = {.verb = 9};
    fx_push(&fx, 0, &sqe);
    expect_quarantine(&fx, OCCL_E_PROTOCOL, others, region);
    fx_close(&fx);
    free(data);
}

/* 16 completion entries: the 17th op that is neither complete nor consumed is one too many. */
static void more_ops_than_completion_entries(void **state) {
    struct fx fx;
    struct fx_comm *others;
    uint32_t region;
    void *data;
    (void)state;
    open_three(&fx, &others, &region, &data);
    for (uint32_t i = 0; i < 17; i++) {
        struct occl_sqe sqe = fx_all_reduce(&fx.comms[0], 0, fx_key(0, i), 8, region, 0, 4096);
        fx_push(&fx, 0, &sqe);
    }
    expect_quarantine(&fx, OCCL_E_QUARANTINED, others, region);
    fx_close(&fx);
    free(data);
}

static void completion_head_scribbled(void **state) {
    struct fx fx;
    struct fx_comm *others;
    uint32_t region;
    void *data;
    (void)state;
    open_three(&fx, &others, &region, &data);
    occl_publish32(&fx.sessions[0].page->cq_head.value, 1000);
    for (uint32_t i = 0; i < 17; i++) {
        struct occl_sqe sqe = fx_all_reduce(&fx.comms[0], 0, fx_key(0, i), 8, region, 0, 4096);
        fx_push(&fx, 0, &sqe);
    }
    expect_quarantine(&fx, OCCL_E_QUARANTINED, others, region);
    fx_close(&fx);
    free(data);
}

/* Consuming gives credits back: any number of ops goes through 16 entries. */
static void credits_come_back(void **state) {
    struct fx fx;
    struct fx_comm *others;
    uint32_t region;
    void *data;
    (void)state;
    open_three(&fx, &others, &region, &data);
    for (uint32_t i = 0; i < 100; i++)
        still_serves(&fx, others, region, 10 + i);
    assert_false(faulted(&fx));
    fx_close(&fx);
    free(data);
}

/* Random bytes in entries and indices, for a while, beside a session that works. */
static void scribbling_client(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct fx fx;
        struct fx_comm *others;
        uint32_t region;
        void *data;
        uint64_t random = seed;
        open_three(&fx, &others, &region, &data);
        struct fx_session *s = &fx.sessions[0];
        for (uint32_t i = 0; i < 300; i++) {
            union {
                struct occl_sqe sqe;
                uint64_t words[16];
            } u;
            for (uint32_t w = 0; w < 16; w++)
                u.words[w] = fx_random(&random) >> fx_random(&random) % 64;
            u.sqe.verb = (uint8_t)(1 + fx_random(&random) % 4);
            u.sqe.comm = 1;
            u.sqe.slot = (uint16_t)fx_random(&random);
            occl_copy_in(s->sq.at.entries + i % 16 * sizeof u.sqe, u.words, sizeof u.sqe);
            occl_publish32(&s->page->sq_tail.value, ++s->sq.own);
            occl_note32(&s->page->cq_head.value, (uint32_t)fx_random(&random) % 8);
            kick(&fx);
            if (i % 50 == 0)
                still_serves(&fx, others, region, 20 + i);
        }
        occl_engine_session_remove(fx.engine, s->id);
        still_serves(&fx, others, region, 5);
        fx_close(&fx);
        free(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_an_entry),
        cmocka_unit_test(a_stranger_to_a_pair_spoils_nothing),
        cmocka_unit_test(submission_tail_too_far),
        cmocka_unit_test(submission_tail_backwards),
        cmocka_unit_test(unknown_verb),
        cmocka_unit_test(more_ops_than_completion_entries),
        cmocka_unit_test(completion_head_scribbled),
        cmocka_unit_test(credits_come_back),
        cmocka_unit_test(scribbling_client),
    };
    return cmocka_run_group_tests_name("engine_hostile", tests, NULL, NULL);
}
