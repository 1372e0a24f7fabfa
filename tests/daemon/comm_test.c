/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: rendezvous and what can go wrong in it, split, members. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

#define SECOND 1000000000ull

/* ---- rendezvous ---- */

static void ranks_meet_in_any_order(void **state) {
    struct fixture f;
    struct client c[4];
    struct client_comm comms[4];
    struct occl_unique_id_wire id;
    static const uint32_t order[] = {2, 0, 3, 1};
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 4, &f);
    client_unique_id(1, &id);
    for (int i = 0; i < 4; i++) {
        (void)client_comm_ask(&c[order[i]], &id, order[i], 4, 0);
        (void)fixture_pump(&f, 2, NULL, NULL);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(client_receive(&c[i], 1000));
        client_comm_take(&c[i], &comms[i]);
        assert_int_equal(comms[i].rank, i);
        assert_int_equal(comms[i].ranks, 4);
        assert_int_equal(comms[i].uid, comms[0].uid);
    }
    /* One page: what one writes, all see. */
    occl_note_at(&comms[1].records, 1)->ops_done = 42;
    assert_int_equal(occl_note_at(&comms[3].records, 1)->ops_done, 42);
    assert_int_equal(fake_engine_counts().comms, 1);
    for (int i = 0; i < 4; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 4);
    fixture_stop(&f);
}

static void bad_requests_are_refused_alone(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct occl_unique_id_wire id;
    struct occl_unique_id_wire forged;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    client_unique_id(2, &id);
    forged = id;
    forged.bytes[127] = 1;
    (void)client_comm_ask(&c[0], &id, 0, 2, 0);
    const struct {
        const struct occl_unique_id_wire *id;
        uint32_t rank, ranks;
        int status;
        const char *text;
    } cases[] = {
        {&id, 2, 2, OCCL_E_INVALID, "expected 0 to 1, found 2"},
        {&id, 0, 0, OCCL_E_INVALID, "size: expected 1 to 64, found 0"},
        {&id, 0, 65, OCCL_E_INVALID, "found 65"},
        {&id, 0, 2, OCCL_E_BUSY, "rank 0 is taken by process"},
        {&forged, 1, 2, OCCL_E_INVALID, "unique id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)client_comm_ask(&c[1], cases[i].id, cases[i].rank, cases[i].ranks, 0);
        assert_true(client_receive(&c[1], 1000));
        assert_int_equal(client_status(&c[1]), cases[i].status);
        assert_non_null(strstr(c[1].in.reply.detail.text, cases[i].text));
    }
    /* Nobody was harmed: the right request still completes it. */
    (void)client_comm_ask(&c[1], &id, 1, 2, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(client_receive(&c[i], 1000));
        client_comm_take(&c[i], &comms[i]);
        client_comm_unmap(&comms[i]);
    }
    clients_close(c, 2);
    fixture_stop(&f);
}

static void sizes_that_differ_end_it_for_all(void **state) {
    struct fixture f;
    struct client c[2];
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    client_unique_id(3, &id);
    (void)client_comm_ask(&c[0], &id, 0, 2, 0);
    (void)fixture_pump(&f, 2, NULL, NULL);
    (void)client_comm_ask(&c[1], &id, 1, 3, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(client_receive(&c[i], 1000));
        assert_int_equal(client_status(&c[i]), OCCL_E_MISMATCH);
        assert_non_null(strstr(c[i].in.reply.detail.text, "says 3 ranks, rank 0 said 2"));
    }
    clients_close(c, 2);
    fixture_stop(&f);
}

static void id_names_one_communicator_once(void **state) {
    struct fixture f;
    struct client c;
    struct client_comm comm;
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    clients_make_comm(&c, 1, 4, &comm);
    client_unique_id(4, &id);
    for (int i = 0; i < 2; i++) {
        (void)client_comm_ask(&c, &id, 0, 1, 0);
        assert_true(client_receive(&c, 1000));
        assert_int_equal(client_status(&c), OCCL_E_BUSY);
        assert_non_null(strstr(c.in.reply.detail.text, "used before"));
        /* Also after the communicator has gone. */
        if (i == 0)
            assert_int_equal(client_comm_end(&c, comm.number, OCCL_END_DESTROY), OCCL_OK);
    }
    client_comm_unmap(&comm);
    client_close(&c);
    fixture_stop(&f);
}

static void other_jobs_are_kept_out(void **state) {
    struct fixture f;
    struct client a;
    struct client b;
    struct client t;
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&a, &f, "red", "");
    client_attach(&b, &f, "blue", "");
    client_attach(&t, &f, "red", "tag");
    client_unique_id(5, &id);
    (void)client_comm_ask(&a, &id, 0, 2, 0);
    (void)fixture_pump(&f, 2, NULL, NULL);
    (void)client_comm_ask(&b, &id, 1, 2, 0);
    assert_true(client_receive(&b, 1000));
    assert_int_equal(client_status(&b), OCCL_E_PERMISSION);
    assert_non_null(strstr(b.in.reply.detail.text, "job blue"));
    assert_non_null(strstr(b.in.reply.detail.text, "expected job red"));
    /* Another tenant does not learn the job's name. */
    (void)client_comm_ask(&t, &id, 1, 2, 0);
    assert_true(client_receive(&t, 1000));
    assert_int_equal(client_status(&t), OCCL_E_PERMISSION);
    assert_non_null(strstr(t.in.reply.detail.text, "of another tenant"));
    client_close(&a);
    client_close(&b);
    client_close(&t);
    fixture_stop(&f);
}

static void timeout_names_the_missing_ranks(void **state) {
    struct fixture f;
    struct client c[2];
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    client_unique_id(6, &id);
    (void)client_comm_ask(&c[0], &id, 0, 8, 10 * SECOND);
    (void)client_comm_ask(&c[1], &id, 5, 8, SECOND / 20);
    for (int i = 0; i < 2; i++) {
        assert_true(client_receive(&c[i], 2000));
        assert_int_equal(client_status(&c[i]), OCCL_E_TIMEOUT);
        assert_non_null(strstr(c[i].in.reply.detail.text, "1-4,6-7"));
    }
    /* Who comes too late is told at once. */
    (void)client_comm_ask(&c[0], &id, 3, 8, 0);
    assert_true(client_receive(&c[0], 500));
    assert_int_equal(client_status(&c[0]), OCCL_E_TIMEOUT);
    clients_close(c, 2);
    fixture_stop(&f);
}

/* state of the answer, or the status of the refusal as text. */
static const char *rank_ended(struct client *asker, const struct occl_unique_id_wire *id,
                              int rank) {
    static char state[32];
    char text[2 * sizeof id->bytes + 1], request[512];
    int status;
    for (size_t i = 0; i < sizeof id->bytes; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", id->bytes[i]);
    (void)snprintf(request, sizeof request,
                   "{\"verb\":\"rank_ended\",\"unique_id\":\"%s\",\"rank\":%d,\"pid\":77,"
                   "\"status\":9}",
                   text, rank);
    json_t *answer = client_admin(asker, request, &status);
    if (status == OCCL_OK)
        (void)snprintf(state, sizeof state, "%s",
                       json_string_value(json_object_get(answer, "state")));
    else
        (void)snprintf(state, sizeof state, "%s", occl_status_name(status));
    json_decref(answer);
    return state;
}

/* A launcher tells of ranks that died before they attached: the others wait no longer. */
static void who_ends_before_it_came_is_told_of(void **state) {
    struct fixture f;
    struct client c[4];
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 4, &f);
    client_unique_id(31, &id);
    assert_string_equal(rank_ended(&c[3], &id, 1), "unknown"); /* nobody waits yet */
    (void)client_comm_ask(&c[0], &id, 0, 3, 0);
    (void)client_comm_ask(&c[2], &id, 2, 3, 0);
    assert_string_equal(rank_ended(&c[3], &id, 2), "elsewhere"); /* it is there */
    assert_string_equal(rank_ended(&c[3], &id, 3), "elsewhere"); /* nobody waits for it */
    assert_string_equal(rank_ended(&c[3], &id, 1), "failed");
    for (int i = 0; i < 4; i += 2) {
        assert_true(client_receive(&c[i], 5000));
        assert_int_equal(c[i].in.h.type, OCCL_MSG_REPLY);
        assert_int_equal(c[i].in.reply.detail.status, OCCL_E_PEER_FAILED);
        assert_non_null(strstr(c[i].in.reply.detail.text, "rank 1 (host"));
        assert_non_null(strstr(c[i].in.reply.detail.text, "pid 77) ended before it came: killed by "
                                                          "signal 9"));
    }
    assert_string_equal(rank_ended(&c[3], &id, 1), "failed");
    (void)client_comm_ask(&c[1], &id, 1, 3, 0); /* and so is one that comes after all */
    assert_true(client_receive(&c[1], 5000));
    assert_int_equal(c[1].in.reply.detail.status, OCCL_E_PEER_FAILED);
    memset(id.bytes, 7, sizeof id.bytes);
    assert_string_equal(rank_ended(&c[3], &id, 1), "E_INVALID");
    clients_close(c, 4);
    fixture_stop(&f);
}

static void communicator_quota_is_named(void **state) {
    struct fixture f;
    struct client c;
    struct client_comm comm;
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    f.config.quota_communicators = 1;
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    clients_make_comm(&c, 1, 7, &comm);
    client_unique_id(8, &id);
    (void)client_comm_ask(&c, &id, 0, 1, 0);
    assert_true(client_receive(&c, 1000));
    assert_int_equal(client_status(&c), OCCL_E_QUOTA);
    assert_non_null(strstr(c.in.reply.detail.text, "quota_communicators"));
    client_comm_unmap(&comm);
    client_close(&c);
    fixture_stop(&f);
}

/* ---- split and members ---- */

static void fill_split(struct client *c, uint32_t comm, int32_t color, int32_t key,
                       uint32_t sequence, struct occl_msg_comm_split *out_msg) {
    memset(out_msg, 0, sizeof *out_msg);
    occl_msg_init(&out_msg->h, OCCL_MSG_COMM_SPLIT, ++c->request);
    out_msg->comm = comm;
    out_msg->color = color;
    out_msg->key = key;
    out_msg->sequence = sequence;
    out_msg->priority = 255;
}

static uint64_t ask_split(struct client *c, uint32_t comm, int32_t color, int32_t key,
                          uint32_t sequence) {
    struct occl_msg_comm_split msg;
    fill_split(c, comm, color, key, sequence, &msg);
    client_send(c, &msg, sizeof msg, -1);
    return c->request;
}

static void split_orders_by_color_key_rank(void **state) {
    struct fixture f;
    struct client c[5];
    struct client_comm comms[5];
    struct client_comm parts[5];
    static const struct {
        int32_t color, key;
        uint32_t rank, ranks;
    } want[] = {{1, 5, 2, 3}, {-1, 0, 0, 0}, {1, 5, 1, 3}, {0, 0, 0, 1}, {1, -3, 0, 3}};
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 5, &f);
    clients_make_comm(c, 5, 9, comms);
    for (uint32_t i = 0; i < 5; i++) {
        /* Ranks 0 and 2 share color and key: the parent's rank decides, so swap the wish. */
        (void)ask_split(&c[i], comms[i].number, want[i].color, i == 0 ? 6 : want[i].key, 0);
    }
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(client_receive(&c[i], 1000));
        if (want[i].ranks == 0) {
            assert_int_equal(c[i].in.h.type, OCCL_MSG_COMM);
            assert_int_equal(c[i].in.comm.ranks, 0);
            assert_int_equal(c[i].fd_count, 0);
            continue;
        }
        client_comm_take(&c[i], &parts[i]);
        assert_int_equal(parts[i].rank, want[i].rank);
        assert_int_equal(parts[i].ranks, want[i].ranks);
        client_comm_unmap(&parts[i]);
    }
    assert_int_equal(fake_engine_counts().comms, 3);
    for (int i = 0; i < 5; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 5);
    fixture_stop(&f);
}

/* The new rank 0 says class, deadline and name, whoever comes first; 255 takes the parent's. */
static void split_takes_what_its_rank_0_says(void **state) {
    static const struct {
        uint32_t asked, other; /* of the new ranks 0 and 1 */
        uint32_t class_index;
    } cases[] = {{3, 0, 3}, {0, 3, 0}, {255, 2, 255}};
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct client_comm parts[2];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 2, &f);
    clients_make_comm(c, 2, 9, comms);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct occl_msg_comm_split msg;
        /* The parent's rank 1 becomes rank 0; it comes last. */
        fill_split(&c[0], comms[0].number, 0, 1, i, &msg);
        msg.priority = cases[i].other;
        msg.default_deadline_ns = 7;
        (void)snprintf(msg.name, sizeof msg.name, "other");
        client_send(&c[0], &msg, sizeof msg, -1);
        (void)fixture_pump(&f, 5, NULL, NULL);
        fill_split(&c[1], comms[1].number, 0, 0, i, &msg);
        msg.priority = cases[i].asked;
        msg.default_deadline_ns = 5000 + i;
        (void)snprintf(msg.name, sizeof msg.name, "part-%u", i);
        client_send(&c[1], &msg, sizeof msg, -1);
        for (uint32_t r = 0; r < 2; r++) {
            assert_true(client_receive(&c[r], 1000));
            client_comm_take(&c[r], &parts[r]);
            client_comm_unmap(&parts[r]);
        }
        assert_int_equal(fake_engine_counts().last_comm_class, cases[i].class_index);
        char request[64];
        int status;
        (void)snprintf(request, sizeof request, "{\"verb\":\"comms\",\"comm\":\"part-%u\"}", i);
        json_t *answer = client_admin(&c[0], request, &status);
        const json_t *made = json_array_get(json_object_get(answer, "comms"), 0);
        assert_int_equal(json_integer_value(json_object_get(made, "class")),
                         cases[i].class_index > 3 ? 1 : cases[i].class_index);
        assert_int_equal(json_integer_value(json_object_get(made, "default_deadline_ns")),
                         5000 + i);
        json_decref(answer);
    }
    for (int i = 0; i < 2; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 2);
    fixture_stop(&f);
}

static void split_checks_its_fields(void **state) {
    struct fixture f;
    struct client c;
    struct client_comm comm;
    struct occl_msg_comm_split msg;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(&c, 1, &f);
    clients_make_comm(&c, 1, 9, &comm);
    static const uint32_t bad[] = {4, 254, 256, UINT32_MAX};
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fill_split(&c, comm.number, 0, 0, 0, &msg);
        msg.priority = bad[i];
        client_send(&c, &msg, sizeof msg, -1);
        assert_true(client_receive(&c, 1000));
        assert_int_equal(client_status(&c), OCCL_E_INVALID);
        assert_non_null(strstr(c.in.reply.detail.text, "priority: expected 0 to 3"));
    }
    fill_split(&c, comm.number, 0, 0, 0, &msg);
    msg.reserved = 1;
    client_send(&c, &msg, sizeof msg, -1);
    assert_true(client_receive(&c, 1000));
    assert_int_equal(client_status(&c), OCCL_E_PROTOCOL);
    client_comm_unmap(&comm);
    clients_close(&c, 1);
    fixture_stop(&f);
}

static void split_fails_when_a_member_leaves(void **state) {
    struct fixture f;
    struct client c[3];
    struct client_comm comms[3];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    clients_attach(c, 3, &f);
    clients_make_comm(c, 3, 10, comms);
    (void)ask_split(&c[0], comms[0].number, 0, 0, 0);
    (void)fixture_pump(&f, 2, NULL, NULL);
    /* Twice under one number is a mistake of the caller alone. */
    (void)ask_split(&c[0], comms[0].number, 0, 0, 0);
    assert_true(client_receive(&c[0], 500));
    assert_int_equal(client_status(&c[0]), OCCL_E_BUSY);
    assert_int_equal(client_comm_end(&c[2], comms[2].number, OCCL_END_DESTROY), OCCL_OK);
    assert_true(client_receive(&c[0], 500));
    assert_int_equal(client_status(&c[0]), OCCL_E_PEER_FAILED);
    assert_non_null(strstr(c[0].in.reply.detail.text, "rank 2"));
    (void)ask_split(&c[1], comms[1].number, 0, 0, 0);
    assert_true(client_receive(&c[1], 500));
    assert_int_equal(client_status(&c[1]), OCCL_E_PEER_FAILED);
    for (int i = 0; i < 3; i++)
        client_comm_unmap(&comms[i]);
    clients_close(c, 3);
    fixture_stop(&f);
}

static void members_are_named_in_pages(void **state) {
    enum { RANKS = 40 };
    struct fixture f;
    static struct client c;
    struct occl_msg_members msg;
    struct occl_unique_id_wire id;
    struct client_comm comm;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_unique_id(11, &id);
    /* One process may hold several ranks. */
    for (uint32_t rank = 0; rank < RANKS; rank++)
        (void)client_comm_ask(&c, &id, rank, RANKS, 0);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_true(client_receive(&c, 1000));
        client_comm_take(&c, &comm);
        client_comm_unmap(&comm);
    }
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_MEMBERS, 0);
    msg.comm = comm.number;
    msg.first = 32;
    client_call(&c, &msg, sizeof msg);
    assert_int_equal(c.in.h.type, OCCL_MSG_MEMBERS_REPLY);
    assert_int_equal(c.in.members.members, RANKS - 32);
    assert_int_equal(c.in.members.ranks, RANKS);
    assert_int_equal(c.in.members.member[0].pid, getpid());
    assert_int_equal(c.in.members.member[0].state, 0);
    msg.first = RANKS;
    client_call(&c, &msg, sizeof msg);
    assert_int_equal(client_status(&c), OCCL_E_INVALID);
    msg.comm = 4711;
    client_call(&c, &msg, sizeof msg);
    assert_int_equal(client_status(&c), OCCL_E_HANDLE);
    client_close(&c);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_in_any_order),
        cmocka_unit_test(bad_requests_are_refused_alone),
        cmocka_unit_test(sizes_that_differ_end_it_for_all),
        cmocka_unit_test(id_names_one_communicator_once),
        cmocka_unit_test(other_jobs_are_kept_out),
        cmocka_unit_test(timeout_names_the_missing_ranks),
        cmocka_unit_test(who_ends_before_it_came_is_told_of),
        cmocka_unit_test(communicator_quota_is_named),
        cmocka_unit_test(split_orders_by_color_key_rank),
        cmocka_unit_test(split_takes_what_its_rank_0_says),
        cmocka_unit_test(split_checks_its_fields),
        cmocka_unit_test(split_fails_when_a_member_leaves),
        cmocka_unit_test(members_are_named_in_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
