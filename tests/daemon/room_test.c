/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms for copies: who gets a part, what it costs, and when it goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm_ipc/region.h"
#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

#define COPY_MAX_BYTES (4u << 20)
#define ROOM_BYTES ((uint64_t)COPY_MAX_BYTES * OCCL_ROOM_COPIES)
#define BLOCK_BYTES 512u /* of st_blocks */

struct rooms {
    struct occl_msg_rooms_reply reply;
    int fds[OCCL_MESSAGE_FDS_MAX]; /* duplicates; -1: none came */
};

static void start(struct fixture *f) {
    fixture_prepare(f);
    f->config.copy_max_bytes = COPY_MAX_BYTES;
    fixture_start(f);
}

/* clients[i] becomes rank i; one that is named again has several ranks. */
static void make_comm(struct client **clients, uint32_t ranks, uint64_t seed,
                      uint32_t *out_numbers) {
    struct occl_unique_id_wire id;
    struct client_comm comm;
    client_unique_id(seed, &id);
    for (uint32_t rank = 0; rank < ranks; rank++)
        (void)client_comm_ask(clients[rank], &id, rank, ranks, 0);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        assert_true(client_receive(clients[rank], 5000));
        client_comm_take(clients[rank], &comm);
        client_comm_unmap(&comm);
        out_numbers[rank] = comm.number;
    }
}

static int ask(struct client *c, uint32_t comm, uint32_t first, struct rooms *out) {
    struct occl_msg_rooms msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_ROOMS, 0);
    msg.comm = comm;
    msg.first = first;
    client_call(c, &msg, sizeof msg);
    memset(out->fds, -1, sizeof out->fds);
    if (c->in.h.type != OCCL_MSG_ROOMS_REPLY)
        return client_status(c);
    memcpy(&out->reply, &c->in, sizeof out->reply);
    uint32_t came = 0;
    for (uint32_t i = 0; i < out->reply.members; i++)
        if (out->reply.member[i].sent)
            out->fds[i] = dup(c->fds[came++]);
    assert_int_equal(c->fd_count, came);
    return OCCL_OK;
}

static void forget(struct rooms *rooms) {
    for (uint32_t i = 0; i < OCCL_MESSAGE_FDS_MAX; i++)
        if (rooms->fds[i] >= 0)
            close(rooms->fds[i]);
}

static uint64_t blocks_bytes(int fd) {
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * BLOCK_BYTES;
}

static void fill(int fd) {
    char *base = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    memset(base, 7, ROOM_BYTES);
    munmap(base, ROOM_BYTES);
}

static void each_process_has_one_that_all_are_sent(void **state) {
    struct fixture f;
    struct client c[3];
    struct client *all[3] = {&c[0], &c[1], &c[2]};
    struct rooms r[3], again, wider[3];
    struct occl_detail detail;
    uint32_t two[2], two_again[2], three[3];
    (void)state;
    start(&f);
    clients_attach(c, 3, &f);
    make_comm(all, 2, 1, two);
    uint64_t level = f.daemon->charge.used_bytes;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(&c[i], two[i], 0, &r[i]), OCCL_OK);
        assert_int_equal(r[i].reply.members, 2);
        assert_int_equal(r[i].reply.bytes, ROOM_BYTES);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(r[i].reply.member[rank].region, r[0].reply.member[rank].region);
            assert_int_equal(occl_memfd_verify(r[i].fds[rank], ROOM_BYTES, false, &detail),
                             OCCL_OK);
            assert_int_equal(blocks_bytes(r[i].fds[rank]), 0);
        }
    }
    uint32_t first = r[0].reply.member[0].region, second = r[0].reply.member[1].region;
    assert_true(first != 0 && second != 0 && first != second);
    assert_int_equal(f.daemon->charge.used_bytes, level + 2 * ROOM_BYTES);
    assert_int_equal(fake_engine_counts().regions, 2);
    /* Another communicator of the same processes: what was sent is not sent again. */
    make_comm(all, 2, 2, two_again);
    assert_int_equal(ask(&c[0], two_again[0], 0, &again), OCCL_OK);
    assert_int_equal(again.reply.member[1].region, second);
    assert_int_equal(again.reply.member[1].sent, 0);
    assert_int_equal(fake_engine_counts().regions, 2);
    /* One process more. */
    make_comm(all, 3, 3, three);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(&c[i], three[i], 0, &wider[i]), OCCL_OK);
        assert_int_equal(wider[i].reply.member[0].region, first);
        assert_int_equal(wider[i].reply.member[0].sent, i == 2);
        assert_int_equal(wider[i].reply.member[2].sent, 1);
        forget(&wider[i]);
    }
    assert_int_equal(fake_engine_counts().regions, 3);
    /* From a rank on; beyond the last; of a communicator that is not its own. */
    assert_int_equal(ask(&c[2], three[2], 2, &again), OCCL_OK);
    assert_int_equal(again.reply.members, 1);
    assert_int_equal(again.reply.first, 2);
    assert_int_equal(ask(&c[2], three[2], 3, &again), OCCL_E_INVALID);
    assert_int_equal(ask(&c[2], 77, 0, &again), OCCL_E_HANDLE);
    forget(&r[0]);
    forget(&r[1]);
    clients_close(c, 3);
    fixture_stop(&f);
}

static void a_room_goes_with_its_process(void **state) {
    struct fixture f;
    struct client c[2];
    struct client *all[2] = {&c[0], &c[1]};
    struct rooms r;
    uint32_t numbers[2];
    (void)state;
    start(&f);
    clients_attach(c, 2, &f);
    make_comm(all, 2, 1, numbers);
    assert_int_equal(ask(&c[1], numbers[1], 0, &r), OCCL_OK);
    fill(r.fds[0]);
    fill(r.fds[1]);
    uint64_t level = f.daemon->charge.used_bytes;
    client_close(&c[0]);
    assert_true(client_event(&c[1], OCCL_EVENT_REGION_GONE, 500));
    assert_int_equal(c[1].in.event.number, r.reply.member[0].region);
    assert_int_equal(blocks_bytes(r.fds[0]), 0);
    assert_int_equal(blocks_bytes(r.fds[1]), ROOM_BYTES);
    assert_int_equal(fake_engine_counts().regions, 1);
    assert_true(f.daemon->charge.used_bytes <= level - ROOM_BYTES);
    client_close(&c[1]);
    (void)fixture_pump(&f, 50, NULL, NULL);
    assert_int_equal(f.daemon->charge.used_bytes, 0);
    forget(&r);
    fixture_stop(&f);
}

/* Whoever gives its own room back gets another one, and only pays for one. */
static void a_room_can_be_freed(void **state) {
    struct fixture f;
    struct client c[2];
    struct client *all[2] = {&c[0], &c[1]};
    struct rooms r, again;
    uint32_t numbers[2];
    (void)state;
    start(&f);
    clients_attach(c, 2, &f);
    make_comm(all, 2, 1, numbers);
    assert_int_equal(ask(&c[0], numbers[0], 0, &r), OCCL_OK);
    uint64_t level = f.daemon->charge.used_bytes;
    struct occl_msg_region_map msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION_FREE, 0);
    msg.region = r.reply.member[0].region;
    client_call(&c[0], &msg, sizeof msg);
    assert_int_equal(f.daemon->charge.used_bytes, level - ROOM_BYTES);
    assert_int_equal(ask(&c[0], numbers[0], 0, &again), OCCL_OK);
    assert_true(again.reply.member[0].region > r.reply.member[1].region);
    assert_int_equal(again.reply.member[0].sent, 1);
    assert_int_equal(f.daemon->charge.used_bytes, level);
    forget(&r);
    forget(&again);
    clients_close(c, 2);
    fixture_stop(&f);
}

/* A communicator of these processes is told of no room, and nothing is charged. */
static void expect_none(struct fixture *f, struct client **clients, uint32_t ranks) {
    struct rooms r;
    uint32_t numbers[2];
    make_comm(clients, ranks, 1, numbers);
    uint64_t level = f->daemon->charge.used_bytes;
    assert_int_equal(ask(clients[0], numbers[0], 0, &r), OCCL_OK);
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(r.reply.member[i].region, 0);
    assert_int_equal(f->daemon->charge.used_bytes, level);
    assert_int_equal(fake_engine_counts().regions, 0);
}

static void none_within_one_process(void **state) {
    struct fixture f;
    struct client c;
    struct client *both[2] = {&c, &c};
    (void)state;
    start(&f);
    client_attach(&c, &f, "job", "");
    expect_none(&f, both, 2);
    client_close(&c);
    fixture_stop(&f);
}

static void none_if_none_are_wanted(void **state) {
    struct fixture f;
    struct client c[2];
    struct client *all[2] = {&c[0], &c[1]};
    (void)state;
    fixture_prepare(&f);
    f.config.copy_max_bytes = 0;
    fixture_start(&f);
    clients_attach(c, 2, &f);
    expect_none(&f, all, 2);
    clients_close(c, 2);
    fixture_stop(&f);
}

/* Rooms take a quarter of a quota at most, and those of one communicator are all or none. */
static void most_of_the_quota_is_left_to_others(void **state) {
    struct fixture f;
    struct client c[3];
    struct client *all[3] = {&c[0], &c[1], &c[2]};
    struct rooms r;
    uint32_t two[2], three[3];
    (void)state;
    start(&f);
    clients_attach(c, 3, &f);
    make_comm(all, 2, 1, two);
    struct occl_charge *charges[2] = {&f.daemon->tenants->charge, &f.daemon->charge};
    for (int i = 0; i < 2; i++) {
        uint64_t limit = charges[i]->limit_bytes, used = charges[i]->used_bytes;
        charges[i]->limit_bytes = 4 * 2 * ROOM_BYTES - 1;
        assert_int_equal(ask(&c[0], two[0], 0, &r), OCCL_OK);
        assert_int_equal(r.reply.member[0].region, 0);
        assert_int_equal(r.reply.member[1].region, 0);
        assert_int_equal(charges[i]->used_bytes, used);
        charges[i]->limit_bytes = limit;
    }
    assert_int_equal(fixture_log_count(&f, "no room for copies"), 1);
    charges[0]->limit_bytes = 4 * 2 * ROOM_BYTES;
    assert_int_equal(ask(&c[0], two[0], 0, &r), OCCL_OK);
    assert_true(r.reply.member[0].region != 0 && r.reply.member[1].region != 0);
    forget(&r);
    /* Those count for the next one, until they go. */
    make_comm(all, 3, 2, three);
    assert_int_equal(ask(&c[2], three[2], 0, &r), OCCL_OK);
    assert_int_not_equal(r.reply.member[0].region, 0);
    assert_int_equal(r.reply.member[2].region, 0);
    forget(&r);
    client_close(&c[0]);
    (void)fixture_pump(&f, 50, NULL, NULL);
    assert_int_equal(f.daemon->room_bytes, ROOM_BYTES);
    assert_int_equal(f.daemon->tenants->room_bytes, ROOM_BYTES);
    clients_close(c + 1, 2);
    (void)fixture_pump(&f, 50, NULL, NULL);
    assert_int_equal(f.daemon->room_bytes, 0);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_process_has_one_that_all_are_sent),
        cmocka_unit_test(a_room_goes_with_its_process),
        cmocka_unit_test(a_room_can_be_freed),
        cmocka_unit_test(none_within_one_process),
        cmocka_unit_test(none_if_none_are_wanted),
        cmocka_unit_test(most_of_the_quota_is_left_to_others),
    };
    return cmocka_run_group_tests_name("daemon_room", tests, NULL, NULL);
}
