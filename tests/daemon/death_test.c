/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that end: killed in each phase, stopped, exec, exit; what is left afterwards is
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWNESS 30
#else
#define SLOWNESS 10
#endif
/* Ten milliseconds after the kernel reports the exit, times the tolerance of tests. */
#define DEATH_BOUND_MS (10ull * SLOWNESS)

enum phase {
    PHASE_CONNECTED,
    PHASE_ATTACHED,
    PHASE_REGION,
    PHASE_RENDEZVOUS,
    PHASE_MEMBER,
    PHASE_ARRIVED,
    PHASE_STRAND,
    PHASES,
};

/* A child that gets as far as `phase`, says so on the pipe, and waits to be killed. */
struct victim {
    pid_t pid;
    int said; /* read end */
};

static const struct occl_op_key first_op = {OCCL_PEERS_ALL, 0, 0};

static void victim_main(const struct fixture *f, enum phase phase, int say) {
    struct fixture elsewhere = *f;
    struct client c;
    struct client_comm comm;
    struct occl_unique_id_wire id;
    elsewhere.daemon = NULL;
    client_connect(&c, &elsewhere, NULL);
    if (phase >= PHASE_ATTACHED) {
        client_close(&c);
        client_attach(&c, &elsewhere, "job", "");
    }
    if (phase >= PHASE_REGION) {
        struct occl_msg_region_alloc msg;
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_REGION_ALLOC, 0);
        msg.bytes = 1 << 20;
        client_call(&c, &msg, sizeof msg);
    }
    client_unique_id(77, &id);
    if (phase >= PHASE_RENDEZVOUS)
        (void)client_comm_ask(&c, &id, 1, 2, 0);
    if (phase >= PHASE_MEMBER) {
        if (!client_receive(&c, 10000))
            _exit(3);
        client_comm_take(&c, &comm);
    }
    if (phase >= PHASE_ARRIVED) {
        struct occl_record *rec = client_arrive(&c, &comm, first_op, OCCL_OP_ALL_REDUCE, true, 0);
        if (phase == PHASE_STRAND) {
            occl_publish32(&rec->state, OCCL_REC_LOCAL);
            (void)occl_add32(&occl_line_at(rec, 1)->busy, 1);
        }
    }
    if (write(say, "x", 1) != 1)
        _exit(4);
    for (;;)
        pause();
}

static struct victim victim_start(const struct fixture *f, enum phase phase) {
    struct victim v;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    v.pid = fork();
    if (v.pid == 0) {
        close(ends[0]);
        victim_main(f, phase, ends[1]);
    }
    close(ends[1]);
    v.said = ends[0];
    return v;
}

static bool victim_is_ready(void *arg) {
    struct victim *v = arg;
    char byte;
    struct timespec none = {0, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(v->said, &set);
    return pselect(v->said + 1, &set, NULL, NULL, &none, NULL) == 1 && read(v->said, &byte, 1) == 1;
}

static void victim_reap(struct victim *v) {
    int status;
    assert_int_equal(waitpid(v->pid, &status, 0), v->pid);
    close(v->said);
}

static bool only_one_session(void *arg) {
    const struct fixture *f = arg;
    return f->daemon->rank_sessions <= 1 && f->daemon->stray_count == 0;
}

static void kill_in_phase(enum phase phase) {
    struct fixture f;
    struct client c;
    struct client other;
    struct client_comm comm = {0};
    struct client_comm other_comm;
    struct occl_unique_id_wire id;
    struct victim v;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_attach(&other, &f, "bystander", "");
    clients_make_comm(&other, 1, 5, &other_comm);
    uint64_t level = f.daemon->charge.used_bytes;
    client_unique_id(77, &id);
    if (phase >= PHASE_RENDEZVOUS)
        (void)client_comm_ask(&c, &id, 0, 2, 0);
    if (phase == PHASE_RENDEZVOUS)
        client_close(&c); /* the victim waits alone, and its peer's end is the other death */
    v = victim_start(&f, phase);
    assert_true(fixture_pump(&f, 5000, victim_is_ready, &v));
    struct occl_record *rec = NULL;
    if (phase >= PHASE_MEMBER) {
        assert_true(client_receive(&c, 1000));
        client_comm_take(&c, &comm);
    }
    if (phase == PHASE_ARRIVED || phase == PHASE_STRAND)
        rec = occl_record_at(&comm.records, occl_place_of(first_op).slot);
    kill(v.pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)v.pid, &info, WEXITED | WNOWAIT), 0);
    uint64_t died_ms = now_ms();
    if (phase >= PHASE_MEMBER) {
        assert_true(client_event(&c, OCCL_EVENT_COMM, 5000));
        assert_true(now_ms() - died_ms <= DEATH_BOUND_MS);
        assert_int_equal(c.in.event.about_rank, 1);
        assert_int_equal(c.in.event.about_pid, v.pid);
        assert_int_equal(c.in.event.detail.status, OCCL_E_PEER_FAILED);
        assert_non_null(strstr(c.in.event.detail.text, "killed by signal 9 (SIGKILL)"));
        assert_non_null(strstr(c.in.event.detail.text, f.daemon->host));
        assert_int_equal(occl_observe64(&occl_records_header(&comm.records)->dead_mask), 2);
        assert_int_equal(occl_observe64(&occl_records_header(&comm.records)->gone_mask), 2);
        assert_int_equal(fake_engine_counts().last_fail_rank, 1);
    }
    if (rec)
        assert_int_equal(occl_observe32(&rec->state),
                         OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_PEER_FAILED, 1));
    victim_reap(&v);
    if (phase < PHASE_MEMBER)
        (void)fixture_pump(&f, 100, NULL, NULL);
    /* The other job noticed nothing. */
    assert_int_equal(occl_observe32(&occl_records_header(&other_comm.records)->comm_state),
                     OCCL_COMM_LIVE);
    if (phase >= PHASE_MEMBER) {
        assert_int_equal(client_comm_end(&c, comm.number, OCCL_END_DESTROY), OCCL_OK);
        client_comm_unmap(&comm);
    }
    if (phase != PHASE_RENDEZVOUS)
        assert_int_equal(f.daemon->charge.used_bytes, level);
    client_close(&c);
    client_comm_unmap(&other_comm);
    client_close(&other);
    fixture_stop(&f);
}

static void kill_while_connected(void **state) {
    (void)state;
    kill_in_phase(PHASE_CONNECTED);
}
static void kill_while_attached(void **state) {
    (void)state;
    kill_in_phase(PHASE_ATTACHED);
}
static void kill_with_a_region(void **state) {
    (void)state;
    kill_in_phase(PHASE_REGION);
}
static void kill_in_rendezvous(void **state) {
    (void)state;
    kill_in_phase(PHASE_RENDEZVOUS);
}
static void kill_of_a_member(void **state) {
    (void)state;
    kill_in_phase(PHASE_MEMBER);
}
static void kill_inside_an_op(void **state) {
    (void)state;
    kill_in_phase(PHASE_ARRIVED);
}
static void kill_inside_a_strand(void **state) {
    (void)state;
    kill_in_phase(PHASE_STRAND);
}

static void rendezvous_ends_when_a_waiter_dies(void **state) {
    struct fixture f;
    struct client c;
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_unique_id(77, &id);
    (void)client_comm_ask(&c, &id, 0, 3, 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct fixture elsewhere = f;
        struct client child;
        elsewhere.daemon = NULL;
        client_attach(&child, &elsewhere, "job", "");
        (void)client_comm_ask(&child, &id, 2, 3, 0);
        _exit(9);
    }
    while (client_receive(&c, 5000) && c.in.h.type != OCCL_MSG_REPLY)
        continue;
    assert_int_equal(client_status(&c), OCCL_E_PEER_FAILED);
    assert_non_null(strstr(c.in.reply.detail.text, "rank 2"));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    client_close(&c);
    fixture_stop(&f);
}

/* ---- what is not known ---- */

static bool seems_to_exit(void *self, const struct occl_session *session) {
    (void)self;
    (void)session;
    return true;
}
static char cannot_be_seen(void *self, const struct occl_session *session, bool *out_killed) {
    (void)self;
    (void)session;
    if (out_killed)
        *out_killed = false;
    return '?';
}

/* The socket of a process has ended that cannot be looked at, or that is on its way out for long:
 * its pidfd does not say that it has exited, so nobody may take it for gone. */
static void only_the_exited_are_gone(void **state) {
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        struct fixture f;
        struct client c[2];
        struct client_comm comms[2];
        fixture_prepare(&f);
        fixture_start(&f);
        struct occl_identity_ops ops = *f.daemon->identity.ops;
        ops.is_exiting = seems_to_exit;
        if (!seen)
            ops.process_state = cannot_be_seen;
        f.daemon->identity.ops = &ops;
        for (int i = 0; i < 2; i++)
            client_attach(&c[i], &f, "job", "");
        clients_make_comm(c, 2, 1, comms);
        client_close(&c[1]);
        assert_true(client_event(&c[0], OCCL_EVENT_COMM, 5000));
        const char *cause = seen ? "cause unknown" : "closed without detach";
        assert_non_null(strstr(c[0].in.event.detail.text, cause));
        const struct occl_comm_page *page = occl_records_header(&comms[0].records);
        assert_int_equal(occl_observe64(&page->dead_mask), 2);
        assert_int_equal(occl_observe64(&page->gone_mask), 0);
        client_comm_unmap(&comms[0]);
        client_comm_unmap(&comms[1]);
        client_close(&c[0]);
        fixture_stop(&f);
    }
}

/* The text says how the process ended, where the kernel tells. */
static void exit_status_is_named(void **state) {
    struct fixture f;
    struct client c;
    struct client_comm comm;
    struct occl_unique_id_wire id;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_unique_id(77, &id);
    (void)client_comm_ask(&c, &id, 0, 2, 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct fixture elsewhere = f;
        struct client child;
        elsewhere.daemon = NULL;
        client_attach(&child, &elsewhere, "job", "");
        (void)client_comm_ask(&child, &id, 1, 2, 0);
        _exit(client_receive(&child, 5000) ? 41 : 1);
    }
    while (client_receive(&c, 5000) && c.in.h.type != OCCL_MSG_COMM)
        continue;
    client_comm_take(&c, &comm);
    assert_true(client_event(&c, OCCL_EVENT_COMM, 5000));
    assert_non_null(strstr(c.in.event.detail.text, "exited with status 41"));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    client_comm_unmap(&comm);
    client_close(&c);
    fixture_stop(&f);
}

/* A process that closes its socket and lives on (exec does that) did not die: it closed. */
static void closing_without_detach_is_named_so(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c[0], &f, "job", "");
    client_attach(&c[1], &f, "job", "");
    clients_make_comm(c, 2, 1, comms);
    client_comm_unmap(&comms[1]);
    client_close(&c[1]);
    assert_true(client_event(&c[0], OCCL_EVENT_COMM, 1000));
    assert_non_null(strstr(c[0].in.event.detail.text, "closed without detach"));
    assert_int_equal(f.daemon->counters.closed_total, 1);
    client_comm_unmap(&comms[0]);
    client_close(&c[0]);
    fixture_stop(&f);
}

/* DETACH is a polite end: no failure, even when the process exits right behind it. */
static void detach_is_no_failure(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct occl_msg_plain bye;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c[0], &f, "job", "");
    client_attach(&c[1], &f, "job", "");
    clients_make_comm(c, 2, 1, comms);
    memset(&bye, 0, sizeof bye);
    occl_msg_init(&bye.h, OCCL_MSG_DETACH, 0);
    client_call(&c[1], &bye, sizeof bye);
    assert_int_equal(client_status(&c[1]), OCCL_OK);
    assert_true(client_sees_end(&c[1], 500));
    assert_false(client_event(&c[0], OCCL_EVENT_COMM, 100));
    assert_int_equal(occl_observe32(&occl_records_header(&comms[0].records)->comm_state),
                     OCCL_COMM_LIVE);
    assert_int_equal(f.daemon->counters.peer_failures_total, 0);
    for (int i = 0; i < 2; i++) {
        client_comm_unmap(&comms[i]);
        client_close(&c[i]);
    }
    fixture_stop(&f);
}

/* D04, the part of the control side: a stopped process is not dead. */
static void D04_stopped_is_not_dead(void **state) {
    struct fixture f;
    struct client c;
    struct client_comm comm;
    struct occl_unique_id_wire id;
    int status;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_unique_id(77, &id);
    (void)client_comm_ask(&c, &id, 0, 2, 0);
    struct victim v = victim_start(&f, PHASE_MEMBER);
    assert_true(fixture_pump(&f, 5000, victim_is_ready, &v));
    assert_true(client_receive(&c, 1000));
    client_comm_take(&c, &comm);
    (void)client_arrive(&c, &comm, first_op, OCCL_OP_ALL_REDUCE, true, 600000000);
    kill(v.pid, SIGSTOP);
    assert_int_equal(waitpid(v.pid, &status, WUNTRACED), v.pid);
    assert_false(client_event(&c, OCCL_EVENT_COMM, 400));
    json_t *answer = client_admin(&c, "{\"verb\":\"why\"}", &status);
    const json_t *culprits = json_object_get(answer, "culprits");
    assert_int_equal(json_array_size(culprits), 1);
    const json_t *culprit = json_array_get(culprits, 0);
    assert_string_equal(json_string_value(json_object_get(culprit, "verdict")), "stopped");
    assert_int_equal(json_integer_value(json_object_get(culprit, "pid")), v.pid);
    json_decref(answer);
    kill(v.pid, SIGCONT);
    assert_int_equal(waitpid(v.pid, &status, WCONTINUED), v.pid);
    answer = client_admin(&c, "{\"verb\":\"why\"}", &status);
    culprit = json_array_get(json_object_get(answer, "culprits"), 0);
    assert_string_equal(json_string_value(json_object_get(culprit, "verdict")), "late");
    json_decref(answer);
    kill(v.pid, SIGSTOP);
    kill(v.pid, SIGKILL);
    assert_true(client_event(&c, OCCL_EVENT_COMM, 5000));
    victim_reap(&v);
    answer = client_admin(&c, "{\"verb\":\"why\"}", &status);
    culprit = json_array_get(json_object_get(answer, "culprits"), 0);
    assert_string_equal(json_string_value(json_object_get(culprit, "verdict")), "dead");
    assert_int_equal(json_integer_value(json_object_get(culprit, "pid")), v.pid);
    json_decref(answer);
    client_comm_unmap(&comm);
    client_close(&c);
    fixture_stop(&f);
}

/* Stopped in the middle of a strand: all have come, and yet one is to blame. */
static void stopped_inside_a_strand_is_named(void **state) {
    struct fixture f;
    struct client c;
    struct client_comm comm;
    struct occl_unique_id_wire id;
    int status;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_unique_id(77, &id);
    (void)client_comm_ask(&c, &id, 0, 2, 0);
    struct victim v = victim_start(&f, PHASE_STRAND);
    assert_true(fixture_pump(&f, 5000, victim_is_ready, &v));
    assert_true(client_receive(&c, 1000));
    client_comm_take(&c, &comm);
    (void)client_arrive(&c, &comm, first_op, OCCL_OP_ALL_REDUCE, true, 600000000);
    /* While it runs a large op simply takes long. */
    json_t *answer = client_admin(&c, "{\"verb\":\"why\"}", &status);
    assert_int_equal(json_array_size(json_object_get(answer, "culprits")), 0);
    json_decref(answer);
    kill(v.pid, SIGSTOP);
    assert_int_equal(waitpid(v.pid, &status, WUNTRACED), v.pid);
    answer = client_admin(&c, "{\"verb\":\"why\"}", &status);
    const json_t *culprit = json_array_get(json_object_get(answer, "culprits"), 0);
    assert_string_equal(json_string_value(json_object_get(culprit, "verdict")), "stopped");
    assert_int_equal(json_integer_value(json_object_get(culprit, "rank")), 1);
    json_decref(answer);
    kill(v.pid, SIGKILL);
    victim_reap(&v);
    client_comm_unmap(&comm);
    client_close(&c);
    fixture_stop(&f);
}

/* ---- a process that was killed and does not go away ---- */

#define FREEZER "/sys/fs/cgroup/freezer"

static bool write_text(const char *folder, const char *file, const char *text) {
    char path[192];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *out = fopen(path, "w");
    if (!out)
        return false;
    bool good = fputs(text, out) >= 0;
    return fclose(out) == 0 && good;
}

/* The old freezer keeps even a killed process where it is. */
static void killed_process_that_stays_is_fenced(void **state) {
    struct fixture f;
    struct client c;
    struct client_comm comm;
    struct occl_unique_id_wire id;
    char cage[96];
    char pid[32];
    int status;
    (void)state;
    (void)snprintf(cage, sizeof cage, FREEZER "/occl-test-%d", (int)getpid());
    if (mkdir(cage, 0755) != 0 || !write_text(cage, "freezer.state", "THAWED")) {
        (void)rmdir(cage);
        print_message("SKIP killed_process_that_stays_is_fenced: no cgroup v1 freezer here\n");
        skip();
    }
    fixture_prepare(&f);
    f.config.unkillable_after_ns = 300000000;
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    client_unique_id(77, &id);
    (void)client_comm_ask(&c, &id, 0, 2, 0);
    struct victim v = victim_start(&f, PHASE_MEMBER);
    assert_true(fixture_pump(&f, 5000, victim_is_ready, &v));
    assert_true(client_receive(&c, 1000));
    client_comm_take(&c, &comm);
    (void)client_arrive(&c, &comm, first_op, OCCL_OP_ALL_REDUCE, true, 600000000);
    (void)snprintf(pid, sizeof pid, "%d", (int)v.pid);
    assert_true(write_text(cage, "tasks", pid));
    assert_true(write_text(cage, "freezer.state", "FROZEN"));
    kill(v.pid, SIGKILL);
    bool told = client_event(&c, OCCL_EVENT_COMM, 10000);
    assert_true(write_text(cage, "freezer.state", "THAWED"));
    victim_reap(&v);
    assert_int_equal(rmdir(cage), 0);
    assert_true(told);
    assert_non_null(strstr(c.in.event.detail.text, "unkillable"));
    assert_int_equal(f.daemon->counters.unkillable_total, 1);
    json_t *answer = client_admin(&c, "{\"verb\":\"why\"}", &status);
    const json_t *culprit = json_array_get(json_object_get(answer, "culprits"), 0);
    assert_string_equal(json_string_value(json_object_get(culprit, "verdict")), "unkillable");
    json_decref(answer);
    client_comm_unmap(&comm);
    client_close(&c);
    fixture_stop(&f);
}

/* D01, the part of the control side: cycles of attach, kill and attach leave the level where it
 * was. */
static void D01_kill_cycles_keep_the_level(void **state) {
    enum { CYCLES = 50 };
    struct fixture f;
    struct client keeper;
    uint32_t level = 0;
    uint64_t bytes = 0;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&keeper, &f, "keeper", "");
    for (int i = 0; i < CYCLES; i++) {
        struct client c;
        struct client_comm comm;
        struct occl_unique_id_wire id;
        client_attach(&c, &f, "job", "");
        client_unique_id(77, &id);
        (void)client_comm_ask(&c, &id, 0, 2, 0);
        struct victim v = victim_start(&f, PHASE_ARRIVED);
        assert_true(fixture_pump(&f, 5000, victim_is_ready, &v));
        assert_true(client_receive(&c, 1000));
        client_comm_take(&c, &comm);
        kill(v.pid, SIGKILL);
        victim_reap(&v);
        assert_true(client_event(&c, OCCL_EVENT_COMM, 5000));
        client_comm_unmap(&comm);
        client_close(&c);
        assert_true(fixture_pump(&f, 2000, only_one_session, &f));
        if (i == 0) {
            level = open_descriptors();
            bytes = f.daemon->charge.used_bytes;
        }
        assert_int_equal(open_descriptors(), level);
        assert_int_equal(f.daemon->charge.used_bytes, bytes);
        assert_int_equal(f.daemon->job_count, 1);
    }
    client_close(&keeper);
    fixture_stop(&f);
}

/* J02, the part of the control side: create and destroy keep descriptors and memory level. */
static void J02_create_destroy_keeps_descriptors(void **state) {
    enum { ROUNDS = 2000 };
    struct fixture f;
    struct client c;
    uint32_t level = 0;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    for (int i = 0; i < ROUNDS; i++) {
        struct client_comm comm;
        clients_make_comm(&c, 1, 1000 + (uint64_t)i, &comm);
        assert_int_equal(client_comm_end(&c, comm.number, OCCL_END_DESTROY), OCCL_OK);
        client_comm_unmap(&comm);
        if (i == 0)
            level = open_descriptors();
    }
    assert_int_equal(open_descriptors(), level);
    assert_int_equal(fake_engine_counts().comms, 0);
    client_close(&c);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_while_connected),
        cmocka_unit_test(kill_while_attached),
        cmocka_unit_test(kill_with_a_region),
        cmocka_unit_test(kill_in_rendezvous),
        cmocka_unit_test(kill_of_a_member),
        cmocka_unit_test(kill_inside_an_op),
        cmocka_unit_test(kill_inside_a_strand),
        cmocka_unit_test(rendezvous_ends_when_a_waiter_dies),
        cmocka_unit_test(only_the_exited_are_gone),
        cmocka_unit_test(exit_status_is_named),
        cmocka_unit_test(closing_without_detach_is_named_so),
        cmocka_unit_test(detach_is_no_failure),
        cmocka_unit_test(D04_stopped_is_not_dead),
        cmocka_unit_test(stopped_inside_a_strand_is_named),
        cmocka_unit_test(killed_process_that_stays_is_fenced),
        cmocka_unit_test(D01_kill_cycles_keep_the_level),
        cmocka_unit_test(J02_create_destroy_keeps_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
