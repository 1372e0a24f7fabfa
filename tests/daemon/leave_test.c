/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to leave a communicator: which ops end with it, which go on, what stands in the page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

static const struct occl_op_key first_op = {OCCL_PEERS_ALL, 0, 0};

static void destroy_ends_only_what_needs_the_leaver(void **state) {
    struct fixture f;
    struct client c[3];
    struct client_comm comms[3];
    struct occl_op_key pair = {1u << 16 | 2u, 3, 0};
    struct occl_op_key second = {OCCL_PEERS_ALL, 9, 0};
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 3, &f);
    clients_make_comm(c, 3, 12, comms);
    /* Rank 0 has come to the first op and leaves; the others may still come. */
    struct occl_record *came =
        client_arrive(&c[0], &comms[0], first_op, OCCL_OP_ALL_REDUCE, false, 0);
    /* Rank 1 waits in an op that rank 0 never came to, and in a receive that has nothing to do
     * with it. */
    struct occl_record *needs =
        client_arrive(&c[1], &comms[1], second, OCCL_OP_ALL_REDUCE, true, 0);
    struct occl_record *receive = client_arrive(&c[2], &comms[2], pair, OCCL_OP_RECV, true, 0);
    assert_int_equal(client_comm_end(&c[0], comms[0].number, OCCL_END_DESTROY), OCCL_OK);
    assert_int_equal(client_comm_end(&c[0], comms[0].number, OCCL_END_DESTROY), OCCL_E_HANDLE);
    assert_true(client_event(&c[1], OCCL_EVENT_COMM, 1000));
    assert_int_equal(c[1].in.event.about_rank, 0);
    assert_non_null(strstr(c[1].in.event.detail.text, "destroyed its communicator"));
    uint32_t now = occl_observe32(&needs->state);
    assert_int_equal(occl_rec_kind(now), OCCL_REC_ABORTED);
    assert_int_equal(occl_rec_status(now), OCCL_E_PEER_FAILED);
    assert_int_equal(occl_rec_rank(now), 0);
    assert_int_equal(occl_rec_kind(occl_observe32(&came->state)), OCCL_REC_OPEN);
    assert_int_equal(occl_rec_kind(occl_observe32(&receive->state)), OCCL_REC_OPEN);
    struct occl_comm_page *page = occl_records_header(&comms[1].records);
    assert_int_equal(occl_observe32(&page->comm_state), OCCL_COMM_LIVE);
    assert_int_equal(occl_observe64(&page->dead_mask), 1);
    /* An op that is submitted later and needs the leaver ends as well, by the repeated sweep. */
    struct occl_op_key later = {OCCL_PEERS_ALL, 10, 0};
    struct occl_record *late = client_arrive(&c[2], &comms[2], later, OCCL_OP_BARRIER, true, 0);
    (void)fixture_pump(&f, 300, NULL, NULL);
    assert_int_equal(occl_rec_kind(occl_observe32(&late->state)), OCCL_REC_ABORTED);
    for (int i = 0; i < 3; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 3);
    fixture_stop(&f);
}

static struct occl_op_key untagged(uint32_t instance) {
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, instance};
    return key;
}

static void expect_end(const struct client_comm *comm, struct occl_op_key key,
                       enum occl_outcome outcome, uint32_t word) {
    struct occl_record *rec = occl_record_at(&comm->records, occl_place_of(key).slot);
    assert_int_equal(client_outcome(comm, key), outcome);
    assert_int_equal(occl_observe32(&rec->state), word);
}

/* Rank 0 leaves in peace. Of a run, only the ops that miss it are poisoned. */
static void destroy_poisons_only_what_misses_the_leaver(void **state) {
    struct fixture f;
    struct client c[3];
    struct client_comm comms[3];
    struct occl_op_key here = {1u << 16 | 2u, 3, 0}, gone = {1u << 16 | 0u, 3, 0};
    struct occl_op_key sent = {1u << 16 | 0u, 4, 0}, came = {0u << 16 | 2u, 5, 0};
    uint32_t aborted = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_PEER_FAILED, 0);
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 3, &f);
    clients_make_comm(c, 3, 17, comms);
    /* Complete before; open, and the leaver has come; a root's payload in the page; open. */
    for (uint32_t i = 0; i < 3; i++)
        (void)client_arrive_with(&c[i], &comms[i], untagged(0), OCCL_OP_ALL_REDUCE, true, 0,
                                 OCCL_FLAG_IN_PAGE);
    (void)client_arrive(&c[0], &comms[0], untagged(1), OCCL_OP_ALL_REDUCE, false, 0);
    (void)client_arrive_with(&c[1], &comms[1], untagged(2), OCCL_OP_BROADCAST, true, 0,
                             OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE);
    (void)client_arrive(&c[1], &comms[1], untagged(3), OCCL_OP_ALL_REDUCE, true, 0);
    (void)client_arrive(&c[1], &comms[1], here, OCCL_OP_SEND, true, 0);
    (void)client_arrive_with(&c[1], &comms[1], gone, OCCL_OP_SEND, true, 0, OCCL_FLAG_SOURCE);
    (void)client_arrive_with(&c[1], &comms[1], sent, OCCL_OP_SEND, true, 0,
                             OCCL_FLAG_SOURCE | OCCL_FLAG_IN_PAGE);
    (void)client_arrive(&c[0], &comms[0], came, OCCL_OP_SEND, true, 0);
    assert_int_equal(client_comm_end(&c[0], comms[0].number, OCCL_END_DESTROY), OCCL_OK);
    assert_true(client_event(&c[1], OCCL_EVENT_COMM, 1000));
    (void)fixture_pump(&f, 50, NULL, NULL); /* more sweeps */
    expect_end(&comms[1], untagged(0), OCCL_OUT_DIRECT, OCCL_REC_OPEN);
    expect_end(&comms[1], untagged(1), OCCL_OUT_OPEN, OCCL_REC_OPEN);
    expect_end(&comms[1], untagged(2), OCCL_OUT_DIRECT, OCCL_REC_OPEN);
    expect_end(&comms[1], untagged(3), OCCL_OUT_ABORTED, aborted);
    expect_end(&comms[1], untagged(4), OCCL_OUT_OPEN, OCCL_REC_OPEN); /* nobody has come to it */
    expect_end(&comms[1], here, OCCL_OUT_OPEN, OCCL_REC_OPEN);
    expect_end(&comms[1], gone, OCCL_OUT_ABORTED, aborted);
    expect_end(&comms[1], sent, OCCL_OUT_DIRECT, OCCL_REC_OPEN);
    expect_end(&comms[1], came, OCCL_OUT_OPEN, OCCL_REC_OPEN);
    /* What does not need it goes on. */
    (void)client_arrive(&c[2], &comms[2], here, OCCL_OP_RECV, true, 0);
    (void)client_arrive(&c[2], &comms[2], came, OCCL_OP_RECV, true, 0);
    (void)client_arrive(&c[1], &comms[1], untagged(1), OCCL_OP_ALL_REDUCE, true, 0);
    (void)client_arrive(&c[2], &comms[2], untagged(1), OCCL_OP_ALL_REDUCE, true, 0);
    (void)fixture_pump(&f, 150, NULL, NULL);
    expect_end(&comms[1], here, OCCL_OUT_ALL, OCCL_REC_OPEN);
    expect_end(&comms[1], came, OCCL_OUT_ALL, OCCL_REC_OPEN);
    expect_end(&comms[1], untagged(1), OCCL_OUT_ALL, OCCL_REC_OPEN);
    for (int i = 0; i < 3; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 3);
    fixture_stop(&f);
}

/* A member has begun to end an op, and has not got far: that is why it ends, not the leaver. What a
 * source completes misses nobody. */
static void leaver_is_not_blamed_for_what_ends_anyway(void **state) {
    struct fixture f;
    struct client c[3];
    struct client_comm comms[3];
    uint32_t now, timed_out = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_TIMEOUT, 1);
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 3, &f);
    clients_make_comm(c, 3, 19, comms);
    struct occl_record *rec =
        client_arrive(&c[1], &comms[1], first_op, OCCL_OP_ALL_REDUCE, true, 0);
    assert_true(occl_record_decide(rec, OCCL_REC_OPEN, timed_out, &now));
    (void)client_arrive_with(&c[1], &comms[1], untagged(1), OCCL_OP_BROADCAST, true, 0,
                             OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE);
    assert_int_equal(client_comm_end(&c[0], comms[0].number, OCCL_END_DESTROY), OCCL_OK);
    assert_false(client_event(&c[1], OCCL_EVENT_COMM, 100));
    expect_end(&comms[1], first_op, OCCL_OUT_OPEN, timed_out);
    expect_end(&comms[1], untagged(1), OCCL_OUT_DIRECT, OCCL_REC_OPEN);
    for (int i = 0; i < 3; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 3);
    fixture_stop(&f);
}

/* A communicator that ends poisons whoever is missing, in the unused records of a run too; what was
 * complete stays so. */
static void revoke_poisons_all_that_is_open(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct occl_op_key tagged = {OCCL_PEERS_ALL, 9, 0}, pair = {0u << 16 | 1u, 3, 0};
    uint32_t aborted = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_REVOKED, 1);
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    clients_make_comm(c, 2, 18, comms);
    for (uint32_t i = 0; i < 2; i++) {
        (void)client_arrive_with(&c[i], &comms[i], untagged(0), OCCL_OP_ALL_REDUCE, true, 0,
                                 OCCL_FLAG_IN_PAGE);
        (void)client_arrive(&c[i], &comms[i], untagged(1), OCCL_OP_ALL_REDUCE, true, 0);
    }
    (void)client_arrive(&c[0], &comms[0], untagged(2), OCCL_OP_ALL_REDUCE, true, 0);
    (void)client_arrive(&c[0], &comms[0], tagged, OCCL_OP_BARRIER, true, 0);
    (void)client_arrive_with(&c[0], &comms[0], pair, OCCL_OP_SEND, true, 0,
                             OCCL_FLAG_SOURCE | OCCL_FLAG_IN_PAGE);
    assert_int_equal(client_comm_end(&c[1], comms[1].number, OCCL_END_REVOKE), OCCL_OK);
    assert_true(client_event(&c[0], OCCL_EVENT_COMM, 1000));
    expect_end(&comms[0], untagged(0), OCCL_OUT_DIRECT, OCCL_REC_OPEN);
    expect_end(&comms[0], untagged(1), OCCL_OUT_ALL, aborted); /* nobody is missing, yet it ends */
    expect_end(&comms[0], untagged(2), OCCL_OUT_ABORTED, aborted);
    expect_end(&comms[0], tagged, OCCL_OUT_ABORTED, aborted);
    expect_end(&comms[0], pair, OCCL_OUT_DIRECT, OCCL_REC_OPEN);
    /* Who comes later learns of the end at once. */
    (void)client_arrive_with(&c[1], &comms[1], untagged(2), OCCL_OP_ALL_REDUCE, true, 0,
                             OCCL_FLAG_IN_PAGE);
    (void)client_arrive(&c[1], &comms[1], untagged(15), OCCL_OP_ALL_REDUCE, true, 0);
    expect_end(&comms[0], untagged(2), OCCL_OUT_ABORTED, aborted);
    expect_end(&comms[0], untagged(15), OCCL_OUT_ABORTED, aborted);
    for (int i = 0; i < 2; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 2);
    fixture_stop(&f);
}

/* Ring ops of the others go on while none of them needs the leaver. */
static void destroy_leaves_ring_ops_of_others_alone(void **state) {
    struct fixture f;
    struct client c[3];
    struct client_comm comms[3];
    struct occl_engine_op_view view;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 3, &f);
    clients_make_comm(c, 3, 16, comms);
    memset(&view, 0, sizeof view);
    view.comm_uid = comms[0].uid;
    view.key = (struct occl_op_key){1u << 16 | 2u, 0, 0};
    view.signature.kind = OCCL_OP_SEND;
    view.arrived_mask = 2;
    fake_engine_set_ops(&view, 1);
    assert_int_equal(client_comm_end(&c[0], comms[0].number, OCCL_END_DESTROY), OCCL_OK);
    (void)fixture_pump(&f, 50, NULL, NULL);
    assert_int_equal(fake_engine_counts().fails, 0);
    view.key = (struct occl_op_key){1u << 16 | 0u, 0, 0};
    fake_engine_set_ops(&view, 1);
    assert_true(client_event(&c[1], OCCL_EVENT_COMM, 1000));
    assert_int_equal(fake_engine_counts().fails, 1);
    assert_int_equal(fake_engine_counts().last_fail_status, OCCL_E_PEER_FAILED);
    assert_int_equal(fake_engine_counts().last_fail_rank, 0);
    for (int i = 0; i < 3; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 3);
    fixture_stop(&f);
}

static void revoke_and_abort_reach_everybody(void **state) {
    static const struct {
        uint32_t how;
        int status;
        uint32_t state;
    } cases[] = {{OCCL_END_REVOKE, OCCL_E_REVOKED, OCCL_COMM_REVOKED},
                 {OCCL_END_ABORT, OCCL_E_ABORTED, OCCL_COMM_ABORTED}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        struct client c[2];
        struct client_comm comms[2];
        fixture_prepare(&f);
        fixture_start(&f);
        clients_attach(c, 2, &f);
        clients_make_comm(c, 2, 13, comms);
        struct occl_record *rec =
            client_arrive(&c[0], &comms[0], first_op, OCCL_OP_ALL_REDUCE, true, 0);
        assert_int_equal(client_comm_end(&c[1], comms[1].number, cases[i].how), OCCL_OK);
        assert_true(client_event(&c[0], OCCL_EVENT_COMM, 1000));
        assert_int_equal(c[0].in.event.detail.status, cases[i].status);
        assert_int_equal(c[0].in.event.number, comms[0].number);
        assert_int_equal(occl_observe32(&rec->state),
                         OCCL_REC_WORD(OCCL_REC_ABORTED, cases[i].status, 1));
        assert_int_equal(occl_observe32(&occl_records_header(&comms[0].records)->comm_state),
                         OCCL_REC_WORD(cases[i].state, cases[i].status, 1));
        assert_int_equal(fake_engine_counts().last_fail_status, cases[i].status);
        /* Revoke leaves the seat, abort gives it up. */
        assert_int_equal(client_comm_end(&c[1], comms[1].number, OCCL_END_DESTROY),
                         cases[i].how == OCCL_END_REVOKE ? OCCL_OK : OCCL_E_HANDLE);
        assert_int_equal(client_comm_end(&c[0], comms[0].number, OCCL_END_DESTROY), OCCL_OK);
        assert_int_equal(fake_engine_counts().comms, 0);
        for (int k = 0; k < 2; k++)
            client_comm_unmap(&comms[k]);
        clients_close(c, 2);
        fixture_stop(&f);
    }
}

/* A member that claims a record just after the end is woken by the repeated sweep. */
static void late_claims_after_the_end_are_swept(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    clients_make_comm(c, 2, 14, comms);
    assert_int_equal(client_comm_end(&c[1], comms[1].number, OCCL_END_REVOKE), OCCL_OK);
    struct occl_record *rec = client_arrive(&c[0], &comms[0], first_op, OCCL_OP_BARRIER, true, 0);
    (void)fixture_pump(&f, 300, NULL, NULL);
    assert_int_equal(occl_rec_kind(occl_observe32(&rec->state)), OCCL_REC_ABORTED);
    for (int i = 0; i < 2; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 2);
    fixture_stop(&f);
}

/* Whatever stands in the page, the daemon lives and the end goes through. */
static void scribbled_page_harms_only_its_job(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    int status;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    clients_make_comm(c, 2, 15, comms);
    for (unsigned pattern = 0; pattern < 4; pattern++) {
        static const unsigned char bytes[] = {0xff, 0x01, 0xa5, 0x80};
        memset(comms[0].records.base, bytes[pattern], comms[0].bytes);
        json_t *answer = client_admin(&c[0], "{\"verb\":\"why\"}", &status);
        json_decref(answer);
        answer = client_admin(&c[0], "{\"verb\":\"ops\"}", &status);
        json_decref(answer);
        answer = client_admin(&c[0], "{\"verb\":\"comms\"}", &status);
        json_decref(answer);
        (void)fixture_pump(&f, 300, NULL, NULL);
    }
    assert_int_equal(client_comm_end(&c[1], comms[1].number, OCCL_END_ABORT), OCCL_OK);
    (void)fixture_pump(&f, 20, NULL, NULL);
    for (int i = 0; i < 2; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 2);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroy_ends_only_what_needs_the_leaver),
        cmocka_unit_test(destroy_poisons_only_what_misses_the_leaver),
        cmocka_unit_test(leaver_is_not_blamed_for_what_ends_anyway),
        cmocka_unit_test(revoke_poisons_all_that_is_open),
        cmocka_unit_test(destroy_leaves_ring_ops_of_others_alone),
        cmocka_unit_test(revoke_and_abort_reach_everybody),
        cmocka_unit_test(late_claims_after_the_end_are_swept),
        cmocka_unit_test(scribbled_page_harms_only_its_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
