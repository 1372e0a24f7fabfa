/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the daemon and of clients at awkward moments: in one round with something else, with
 * messages unread, with tables full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/rendezvous.h"
#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

/* As daemon/rendezvous.c: used ids that are remembered. */
#define USED_MAX 16384

static void stop_at_once(struct occl_watch *watch, uint32_t events) {
    struct fixture *f = watch->owner;
    uint64_t count;
    (void)events;
    assert_int_equal(read(watch->fd, &count, sizeof count), sizeof count);
    occl_daemon_stop(f->daemon);
}

/* A HELLO that has a job already and gets no page is refused in the round in which SIGTERM comes.
 * On epoll descriptors are reported in the order in which they became ready. */
static void stop_in_the_round_of_a_refusal(void **state) {
    struct fixture f;
    struct client first, second;
    struct occl_msg_hello hello;
    uint64_t one = 1;
    (void)state;
    fixture_prepare(&f);
    (void)snprintf(f.config.loop, sizeof f.config.loop, "epoll");
    f.config.quota_registered_bytes = 1200000; /* one session page and its job's */
    fixture_start(&f);
    struct occl_watch watch = {eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), stop_at_once, &f, 0};
    assert_int_equal(occl_loop_watch_add(f.daemon->loop, &watch, OCCL_LOOP_READABLE), OCCL_OK);
    client_attach(&first, &f, "job", "");
    client_connect(&second, &f, NULL);
    (void)occl_daemon_step(f.daemon, 0);
    client_hello_fill(&hello, "job", "");
    client_send(&second, &hello, sizeof hello, -1);
    assert_int_equal(write(watch.fd, &one, sizeof one), sizeof one);
    (void)occl_daemon_step(f.daemon, 0);
    assert_true(f.daemon->draining);
    assert_true(client_receive(&second, 1000));
    assert_int_equal(client_status(&second), OCCL_E_QUOTA);
    assert_true(client_event(&first, OCCL_EVENT_SHUTDOWN, 1000));
    occl_loop_watch_remove(f.daemon->loop, &watch);
    close(watch.fd);
    client_close(&second);
    client_close(&first);
    fixture_stop(&f);
}

/* What a process has in its memory stays when the daemon ends before it. */
static void memory_outlives_the_daemon(void **state) {
    struct fixture f;
    struct client c;
    struct occl_msg_region_alloc msg;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION_ALLOC, 0);
    msg.bytes = OCCL_PAGE_BYTES;
    client_call(&c, &msg, sizeof msg);
    assert_int_equal(c.in.h.type, OCCL_MSG_REGION);
    char *memory = mmap(NULL, OCCL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c.fds[0], 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memcpy(memory, "weights", 8);
    fixture_stop(&f);
    c.fixture = NULL;
    assert_string_equal(memory, "weights");
    munmap(memory, OCCL_PAGE_BYTES);
    client_close(&c);
}

/* A client that ends with messages unread resets the connection; what it sent before counts. */
static void goodbye_counts_with_messages_unread(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct occl_msg_plain msg;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    for (int i = 0; i < 2; i++)
        client_attach(&c[i], &f, "job", "");
    clients_make_comm(c, 2, 31, comms);
    memset(&msg, 0, sizeof msg);
    /* The first one never reads that it has ended. */
    assert_int_equal(client_comm_end(&c[1], comms[1].number, OCCL_END_REVOKE), OCCL_OK);
    occl_msg_init(&msg.h, OCCL_MSG_DETACH, 77);
    client_send(&c[0], &msg, sizeof msg, -1);
    client_close(&c[0]);
    (void)fixture_pump(&f, 50, NULL, NULL);
    assert_int_equal(f.daemon->counters.detached_total, 1);
    assert_int_equal(f.daemon->counters.closed_total, 0);
    assert_int_equal(f.daemon->counters.peer_failures_total, 0);
    for (int i = 0; i < 2; i++)
        client_comm_unmap(&comms[i]);
    client_close(&c[1]);
    fixture_stop(&f);
}

/* Ends a rendezvous at once: its two ranks disagree about the size. */
static void use_up(struct client *c, uint64_t seed) {
    struct occl_unique_id_wire id;
    client_unique_id(seed, &id);
    (void)client_comm_ask(c, &id, 0, 2, 0);
    (void)client_comm_ask(c, &id, 1, 3, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(client_receive(c, 5000));
        assert_int_equal(client_status(c), OCCL_E_MISMATCH);
    }
}

/* The oldest rendezvous waits, the table is full of used ids, and all who wait are refused: nothing
 * that is walked over may go meanwhile (an address sanitizer sees it). */
static void table_of_ids_is_trimmed_behind_the_walk(void **state) {
    struct fixture f;
    struct client c;
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_unique_id(1, &id);
    (void)client_comm_ask(&c, &id, 0, 2, 0);
    for (uint64_t i = 2; i <= USED_MAX; i++)
        use_up(&c, i);
    client_unique_id(USED_MAX + 1, &id);
    (void)client_comm_ask(&c, &id, 0, 2, 0);
    (void)fixture_pump(&f, 10, NULL, NULL);
    assert_true(HASH_CNT(in_daemon, f.daemon->meetings) >= USED_MAX);
    occl_daemon_stop(f.daemon);
    assert_int_equal(HASH_CNT(in_daemon, f.daemon->meetings), USED_MAX);
    for (int i = 0; i < 2; i++) {
        assert_true(client_receive(&c, 1000));
        assert_int_equal(client_status(&c), OCCL_E_SHUTTING_DOWN);
    }
    client_close(&c);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_in_the_round_of_a_refusal),
        cmocka_unit_test(memory_outlives_the_daemon),
        cmocka_unit_test(goodbye_counts_with_messages_unread),
        cmocka_unit_test(table_of_ids_is_trimmed_behind_the_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
