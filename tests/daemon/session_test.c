/* SPDX-License-Identifier: Apache-2.0 */
/* Attach: handshake, versions, malformed messages, strays, quotas, clients that do not read,
 * sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_ipc/session.h"
#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

static void attach_gives_pages(void **state) {
    struct fixture f;
    struct client c;
    struct occl_session_shape shape;
    struct occl_session_facts facts;
    struct occl_detail detail;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    assert_int_equal(occl_session_open(c.page, c.welcome.page_bytes, &shape, &facts, &detail),
                     OCCL_OK);
    assert_int_equal(facts.session_id, c.welcome.session_id);
    assert_int_equal(facts.daemon_epoch, c.welcome.daemon_epoch);
    assert_int_equal(c.job->magic, OCCL_MAGIC_JOB);
    assert_int_equal(c.job->node_ranks, 1);
    assert_int_equal(c.welcome.daemon_pid, getpid());
    assert_int_equal(fake_engine_counts().sessions, 1);
    assert_int_equal(fake_engine_counts().jobs, 1);
    client_close(&c);
    fixture_stop(&f);
}

/* The first `count` CPUs that this thread may run on, from the one of that number on. */
static void bind_to(const cpu_set_t *all, int first, int count) {
    cpu_set_t some;
    CPU_ZERO(&some);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all)) {
            if (seen >= first && seen < first + count)
                CPU_SET(cpu, &some);
            seen++;
        }
    assert_int_equal(sched_setaffinity(0, sizeof some, &some), 0);
}

static bool one_rank_is_left(void *arg) {
    const struct client *c = arg;
    return c->job->job_ranks == 1;
}

/* A launcher binds each rank to a core of its own, or two to one. */
static void cores_are_those_of_all_ranks(void **state) {
    struct fixture f;
    struct client c[4];
    cpu_set_t all;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) {
        print_message("SKIP cores_are_those_of_all_ranks: one CPU\n");
        skip();
    }
    fixture_prepare(&f);
    fixture_start(&f);
    bind_to(&all, 0, 1);
    client_attach(&c[0], &f, "apart", "");
    assert_int_equal(c[0].job->job_cores, 1);
    bind_to(&all, 1, 1);
    client_attach(&c[1], &f, "apart", "");
    client_attach(&c[2], &f, "together", "");
    client_attach(&c[3], &f, "together", "");
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(c[i].job->node_ranks, 4);
        assert_int_equal(c[i].job->node_cores, 2);
        assert_int_equal(c[i].job->job_ranks, 2);
        assert_int_equal(c[i].job->job_cores, i < 2 ? 2 : 1);
    }
    client_close(&c[0]);
    assert_true(fixture_pump(&f, 5000, one_rank_is_left, &c[1]));
    assert_int_equal(c[1].job->job_cores, 1);
    assert_int_equal(c[3].job->node_ranks, 3);
    assert_int_equal(c[3].job->node_cores, 1);
    for (int i = 1; i < 4; i++)
        client_close(&c[i]);
    fixture_stop(&f);
}

static void doorbell_reaches_the_engine(void **state) {
    struct fixture f;
    struct client c;
    struct occl_msg_plain bell;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    memset(&bell, 0, sizeof bell);
    occl_msg_init(&bell.h, OCCL_MSG_DOORBELL, 0);
    client_send(&c, &bell, sizeof bell, -1);
    client_send(&c, &bell, sizeof bell, -1);
    (void)fixture_pump(&f, 20, NULL, NULL);
    assert_int_equal(fake_engine_counts().kicks, 2);
    client_close(&c);
    fixture_stop(&f);
}

static void other_versions_are_refused_with_both_ranges(void **state) {
    struct fixture f;
    struct client c;
    struct occl_msg_hello hello;
    unsigned char longer[sizeof hello + 64];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_hello_fill(&hello, "job", "");
    hello.abi_min = OCCL_ABI_VERSION + 1;
    hello.abi_max = OCCL_ABI_VERSION + 3;
    client_connect(&c, &f, NULL);
    client_hello_raw(&c, &hello);
    assert_int_equal(client_status(&c), OCCL_E_VERSION);
    assert_non_null(strstr(c.in.reply.detail.text, "2 to 4"));
    assert_non_null(strstr(c.in.reply.detail.text, "1 to 1"));
    assert_true(client_sees_end(&c, 1000));
    client_close(&c);

    /* A later version may say hello with more bytes. */
    memset(longer, 0, sizeof longer);
    memcpy(longer, &hello, sizeof hello);
    ((struct occl_msg_header *)longer)->bytes = sizeof longer;
    client_connect(&c, &f, NULL);
    client_send(&c, longer, sizeof longer, -1);
    assert_true(client_receive(&c, 1000));
    assert_int_equal(client_status(&c), OCCL_E_VERSION);
    client_close(&c);

    /* A range that includes ours is spoken at ours. */
    hello.abi_min = 1;
    hello.abi_max = 9;
    client_connect(&c, &f, NULL);
    client_hello_raw(&c, &hello);
    assert_int_equal(c.in.h.type, OCCL_MSG_WELCOME);
    assert_int_equal(c.in.h.abi_version, OCCL_ABI_VERSION);
    client_close(&c);
    fixture_stop(&f);
}

static void bad_hello_says_what(void **state) {
    static const struct {
        const char *job, *tag, *expected;
    } cases[] = {
        {"a b", "", "job name"},
        {"ok", "x:y", "tenant tag"},
        {"ok", "x\n", "tenant tag"},
    };
    struct fixture f;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client c;
        struct occl_msg_hello hello;
        client_hello_fill(&hello, cases[i].job, cases[i].tag);
        client_connect(&c, &f, NULL);
        client_hello_raw(&c, &hello);
        assert_int_equal(c.in.h.type, OCCL_MSG_REPLY);
        assert_int_not_equal(client_status(&c), OCCL_OK);
        assert_non_null(strstr(c.in.reply.detail.text, cases[i].expected));
        client_close(&c);
    }
    fixture_stop(&f);
}

/* Each malformed datagram ends its own session with a reason; the bystander notices nothing. */
static void malformed_messages_end_only_their_session(void **state) {
    struct fixture f;
    struct client bystander;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&bystander, &f, "quiet", "");
    for (int kind = 0; kind < 8; kind++) {
        struct client c;
        struct occl_msg_region_alloc msg;
        uint32_t bytes = sizeof msg;
        client_attach(&c, &f, "noisy", "");
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_REGION_ALLOC, 7);
        msg.bytes = 4096;
        if (kind == 0)
            msg.h.magic++;
        if (kind == 1)
            msg.h.type = 99;
        if (kind == 2)
            msg.h.bytes++;
        if (kind == 3)
            bytes = 10;
        if (kind == 4)
            msg.h.request = 0;
        if (kind == 5)
            msg.h.reserved = 1;
        if (kind == 6)
            occl_msg_init(&msg.h, OCCL_MSG_REGION, 7); /* a message of the daemon's */
        if (kind == 7)
            bytes = 1;
        client_send(&c, &msg, bytes, -1);
        assert_true(client_receive(&c, 1000));
        assert_int_equal(client_status(&c), OCCL_E_PROTOCOL);
        assert_true(c.in.reply.detail.text[0] != '\0');
        assert_true(client_sees_end(&c, 1000));
        client_close(&c);
        assert_int_equal(f.daemon->counters.protocol_total, (unsigned)kind + 1);
    }
    struct occl_msg_region_alloc ok;
    memset(&ok, 0, sizeof ok);
    occl_msg_init(&ok.h, OCCL_MSG_REGION_ALLOC, 0);
    ok.bytes = 4096;
    client_call(&bystander, &ok, sizeof ok);
    assert_int_equal(bystander.in.h.type, OCCL_MSG_REGION);
    client_close(&bystander);
    fixture_stop(&f);
}

/* Unread messages at the close would reset the connection before the client has read the reason. */
static void reason_is_readable_behind_unread_messages(void **state) {
    struct fixture f;
    struct client c;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    for (int i = 0; i < 5; i++)
        client_send(&c, "garbage", 7, -1);
    (void)fixture_pump(&f, 20, NULL, NULL);
    assert_null(f.daemon->sessions);
    assert_true(client_receive(&c, 1000));
    assert_int_equal(client_status(&c), OCCL_E_PROTOCOL);
    client_close(&c);
    fixture_stop(&f);
}

static void random_datagrams_do_no_harm(void **state) {
    struct fixture f;
    uint32_t seed = 1;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    for (int i = 0; i < 300; i++) {
        struct client c;
        unsigned char noise[OCCL_MESSAGE_BYTES_MAX + 64];
        uint32_t bytes = 1 + (seed = seed * 1103515245u + 12345u) % (sizeof noise - 1);
        for (uint32_t at = 0; at < bytes; at++)
            noise[at] = (unsigned char)((seed = seed * 1103515245u + 12345u) >> 16);
        if (i & 1) {
            client_attach(&c, &f, "noise", "");
            /* A valid header makes the noise reach the handlers. */
            uint32_t type = 1 + seed % OCCL_MSG_ROOMS_REPLY;
            if (type != OCCL_MSG_DETACH && occl_msg_bytes(type)) {
                bytes = occl_msg_bytes(type);
                occl_msg_init((struct occl_msg_header *)noise, type, 5);
            }
        } else {
            client_connect(&c, &f, NULL);
        }
        client_send(&c, noise, bytes, i % 3 ? -1 : 0);
        (void)client_receive(&c, 5);
        client_close(&c);
    }
    (void)fixture_pump(&f, 20, NULL, NULL);
    assert_null(f.daemon->sessions);
    fixture_stop(&f);
}

/* M01: strays are dropped by the deadline, counted, and logged once; nobody waits for them. */
static void M01_strays_are_dropped(void **state) {
    enum { STRAYS = 1000 };
    struct fixture f;
    static struct client strays[STRAYS];
    struct client members[2];
    struct client_comm comms[2];
    (void)state;
    fixture_prepare(&f);
    f.config.handshake_timeout_ns = 300000000;
    fixture_start(&f);
    client_attach(&members[0], &f, "job", "");
    for (int i = 0; i < STRAYS; i++) {
        client_connect(&strays[i], &f, NULL);
        if (i % 64 == 0)
            (void)fixture_pump(&f, 1, NULL, NULL);
    }
    client_attach(&members[1], &f, "job", "");
    clients_make_comm(members, 2, 1, comms);
    assert_true(f.daemon->stray_count > 0);
    (void)fixture_pump(&f, 600, NULL, NULL);
    assert_int_equal(f.daemon->stray_count, 0);
    assert_int_equal(f.daemon->counters.strays_total, STRAYS);
    assert_int_equal(fixture_log_count(&f, "did not say hello"), 1);
    for (int i = 0; i < STRAYS; i++)
        client_close(&strays[i]);
    for (int i = 0; i < 2; i++) {
        client_comm_unmap(&comms[i]);
        client_close(&members[i]);
    }
    fixture_stop(&f);
}

static void too_many_strays_drop_the_oldest(void **state) {
    struct fixture f;
    struct client strays[20];
    struct client c;
    (void)state;
    fixture_prepare(&f);
    f.config.strays_max = 8;
    fixture_start(&f);
    for (int i = 0; i < 20; i++) {
        client_connect(&strays[i], &f, NULL);
        (void)fixture_pump(&f, 1, NULL, NULL);
    }
    assert_true(f.daemon->stray_count <= 8);
    client_attach(&c, &f, "job", "");
    assert_true(client_sees_end(&strays[0], 500));
    client_close(&c);
    for (int i = 0; i < 20; i++)
        client_close(&strays[i]);
    fixture_stop(&f);
}

static void session_quota_is_named(void **state) {
    struct fixture f;
    struct client c[3];
    struct occl_msg_hello hello;
    (void)state;
    fixture_prepare(&f);
    f.config.quota_sessions = 2;
    fixture_start(&f);
    client_attach(&c[0], &f, "one", "");
    client_attach(&c[1], &f, "two", "");
    client_connect(&c[2], &f, NULL);
    client_hello_fill(&hello, "three", "");
    client_hello_raw(&c[2], &hello);
    assert_int_equal(client_status(&c[2]), OCCL_E_QUOTA);
    assert_non_null(strstr(c[2].in.reply.detail.text, "2 of at most 2 sessions"));
    client_close(&c[2]);
    /* Another tag is another tenant. */
    client_attach(&c[2], &f, "three", "blue");
    for (int i = 0; i < 3; i++)
        client_close(&c[i]);
    fixture_stop(&f);
}

static void tenant_limit_refuses_the_tenant(void **state) {
    struct fixture f;
    struct client a;
    struct client b;
    struct occl_msg_hello hello;
    (void)state;
    fixture_prepare(&f);
    f.config.tenants_max = 1;
    fixture_start(&f);
    client_attach(&a, &f, "one", "");
    client_connect(&b, &f, NULL);
    client_hello_fill(&hello, "one", "other");
    client_hello_raw(&b, &hello);
    assert_int_equal(client_status(&b), OCCL_E_TENANT_REFUSED);
    client_close(&a);
    client_close(&b);
    fixture_stop(&f);
}

/* Answers pile up at a client that does not read: it is disconnected, the daemon goes on. */
static void client_that_does_not_read_is_disconnected(void **state) {
    struct fixture f;
    struct client c;
    struct client other;
    (void)state;
    fixture_prepare(&f);
    f.config.send_queue_bytes = 65536;
    fixture_start(&f);
    client_attach(&c, &f, "deaf", "");
    client_attach(&other, &f, "fine", "");
    for (int i = 0; i < 4000 && f.daemon->counters.slow_total == 0; i++) {
        struct occl_msg_region_map msg;
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_REGION_MAP, (uint64_t)i + 1);
        msg.region = 77;
        client_send(&c, &msg, sizeof msg, -1);
        (void)occl_daemon_step(f.daemon, 0);
    }
    assert_int_equal(f.daemon->counters.slow_total, 1);
    (void)fixture_pump(&f, 10, NULL, NULL);
    assert_int_equal(f.daemon->rank_sessions, 1);
    assert_int_equal(fixture_log_count(&f, "does not read"), 1);
    client_close(&c);
    client_close(&other);
    fixture_stop(&f);
}

/* What waits in the queue of a slow reader arrives in order, with descriptors, once it reads. */
static void slow_reader_gets_everything(void **state) {
    enum { CALLS = 600 };
    struct fixture f;
    struct client c;
    uint64_t next = 0;
    (void)state;
    fixture_prepare(&f);
    f.config.send_queue_bytes = 1 << 20;
    fixture_start(&f);
    client_attach(&c, &f, "slow", "");
    next = c.request + 1;
    for (int i = 0; i < CALLS; i++) {
        struct occl_msg_region_map msg;
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_REGION_MAP, ++c.request);
        client_send(&c, &msg, sizeof msg, -1);
        (void)occl_daemon_step(f.daemon, 0);
    }
    for (int i = 0; i < CALLS; i++) {
        assert_true(client_receive(&c, 2000));
        assert_int_equal(c.in.h.request, next++);
    }
    client_close(&c);
    fixture_stop(&f);
}

static void lane_fault_quarantines_the_session(void **state) {
    struct fixture f;
    struct client c;
    struct client other;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "bad", "");
    client_attach(&other, &f, "good", "");
    fake_engine_fault(c.welcome.session_id, OCCL_E_QUARANTINED, "ring distance 4096");
    (void)fixture_pump(&f, 20, NULL, NULL);
    assert_int_equal(occl_observe32(&c.page->session_state), OCCL_SESSION_QUARANTINED);
    assert_true(client_sees_end(&c, 500));
    assert_int_equal(f.daemon->counters.quarantined_total, 1);
    assert_int_equal(fixture_log_count(&f, "ring distance 4096"), 1);
    assert_int_equal(f.daemon->rank_sessions, 1);
    client_close(&c);
    client_close(&other);
    fixture_stop(&f);
}

/* ---- sockets ---- */

static void stale_socket_is_replaced(void **state) {
    struct fixture f;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    fixture_prepare(&f);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", f.socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    fixture_start(&f);
    struct stat st;
    assert_int_equal(stat(f.socket, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666);
    fixture_stop(&f);
}

/* I09: an occupied socket names its owner. */
static void I09_live_socket_is_an_error_with_the_owner(void **state) {
    struct fixture f;
    struct occl_daemon *second;
    struct occl_detail detail;
    char pid[32];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    struct occl_daemon_options options = {.config = &f.config, .clock = &f.clock, .log = NULL};
    assert_int_equal(occl_daemon_create(&options, &second, &detail), OCCL_E_BUSY);
    (void)snprintf(pid, sizeof pid, "process %d", (int)getpid());
    assert_non_null(strstr(detail.text, pid));
    assert_non_null(strstr(detail.text, "--socket"));
    (void)fixture_pump(&f, 5, NULL, NULL);
    fixture_stop(&f);
}

static void ordinary_file_is_not_removed(void **state) {
    struct fixture f;
    struct occl_daemon *daemon;
    struct occl_detail detail;
    (void)state;
    fixture_prepare(&f);
    int fd = open(f.socket, O_CREAT | O_WRONLY, 0644);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(occl_config_settle(1 << 30, &f.config, &detail), OCCL_OK);
    struct occl_daemon_options options = {.config = &f.config, .clock = &f.clock, .log = NULL};
    assert_int_equal(occl_daemon_create(&options, &daemon, &detail), OCCL_E_BUSY);
    assert_int_equal(access(f.socket, F_OK), 0);
    assert_int_equal(unlink(f.socket), 0);
    assert_int_equal(rmdir(f.folder), 0);
}

/* I09: five jobs of several users on default settings. */
static void I09_five_jobs_of_several_users(void **state) {
    enum { JOBS = 5 };
    struct fixture f;
    pid_t children[JOBS];
    int gate[2];
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP I09_five_jobs_of_several_users: needs root to change users\n");
        skip();
    }
    fixture_prepare(&f);
    fixture_start(&f);
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < JOBS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct client c;
            char byte;
            struct fixture elsewhere = f;
            elsewhere.daemon = NULL;
            close(gate[1]);
            if (setgid((gid_t)(5000 + i)) != 0 || setuid((uid_t)(5000 + i)) != 0)
                _exit(77);
            client_attach(&c, &elsewhere, "same-name", "");
            _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
        }
    }
    close(gate[0]);
    for (int i = 0; i < 500 && f.daemon->job_count < JOBS; i++)
        (void)occl_daemon_step(f.daemon, 10000000);
    uint32_t jobs = f.daemon->job_count;
    uint32_t tenants = f.daemon->tenant_count;
    close(gate[1]);
    bool skipped = false;
    for (int i = 0; i < JOBS; i++) {
        int status;
        (void)fixture_pump(&f, 5, NULL, NULL);
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        skipped = skipped || (WIFEXITED(status) && WEXITSTATUS(status) == 77);
        if (!skipped)
            assert_int_equal(status, 0);
    }
    (void)fixture_pump(&f, 50, NULL, NULL);
    fixture_stop(&f);
    if (skipped) {
        print_message("SKIP I09_five_jobs_of_several_users: other users are not mapped here\n");
        skip();
    }
    assert_int_equal(jobs, JOBS);
    assert_int_equal(tenants, JOBS);
}

/* A tenant that was given a socket of its own is another tenant, and no operator. */
static void further_sockets_make_further_tenants(void **state) {
    struct fixture f;
    struct client a;
    struct client b;
    char second[128];
    struct occl_msg_hello hello;
    int status;
    (void)state;
    fixture_prepare(&f);
    (void)snprintf(second, sizeof second, "%s2", f.socket);
    (void)snprintf(f.config.socket, sizeof f.config.socket, "%s, %s", f.socket, second);
    fixture_start(&f);
    client_attach(&a, &f, "job", "");
    client_connect(&b, &f, second);
    client_hello_fill(&hello, "job", "");
    client_hello_raw(&b, &hello);
    assert_int_equal(b.in.h.type, OCCL_MSG_WELCOME);
    assert_int_equal(f.daemon->tenant_count, 2);
    json_t *answer = client_admin(&b, "{\"verb\":\"jobs\"}", &status);
    assert_int_equal(json_array_size(json_object_get(answer, "jobs")), 1);
    json_decref(answer);
    assert_null(client_admin(&b,
                             "{\"verb\":\"set\",\"kind\":\"daemon\",\"name\":\"occld\",\"key\":"
                             "\"log_level\",\"value\":\"warn\"}",
                             &status));
    assert_int_equal(status, OCCL_E_PERMISSION);
    client_close(&a);
    client_close(&b);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attach_gives_pages),
        cmocka_unit_test(cores_are_those_of_all_ranks),
        cmocka_unit_test(doorbell_reaches_the_engine),
        cmocka_unit_test(other_versions_are_refused_with_both_ranges),
        cmocka_unit_test(bad_hello_says_what),
        cmocka_unit_test(malformed_messages_end_only_their_session),
        cmocka_unit_test(reason_is_readable_behind_unread_messages),
        cmocka_unit_test(random_datagrams_do_no_harm),
        cmocka_unit_test(M01_strays_are_dropped),
        cmocka_unit_test(too_many_strays_drop_the_oldest),
        cmocka_unit_test(session_quota_is_named),
        cmocka_unit_test(tenant_limit_refuses_the_tenant),
        cmocka_unit_test(client_that_does_not_read_is_disconnected),
        cmocka_unit_test(slow_reader_gets_everything),
        cmocka_unit_test(lane_fault_quarantines_the_session),
        cmocka_unit_test(stale_socket_is_replaced),
        cmocka_unit_test(I09_live_socket_is_an_error_with_the_owner),
        cmocka_unit_test(ordinary_file_is_not_removed),
        cmocka_unit_test(I09_five_jobs_of_several_users),
        cmocka_unit_test(further_sockets_make_further_tenants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
