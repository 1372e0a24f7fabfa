/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines, exit codes and what people and programs get to read; the daemon is a fake one. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/tools/shell.h"

static const char *folder;
static const char *ctl;
static const char *fake;
static long daemon_pid;
static char socket_path[96];

static void start_daemon(const char *answers, const char *more) {
    daemon_pid = shell_start("exec %s --socket %s --requests %s/request --answers %s %s", fake,
                             socket_path, folder, shell_file(answers), more);
    assert_true(shell_wait(5000, "-S %s", socket_path));
    assert_int_equal(setenv("OCCL_SOCKET", socket_path, 1), 0);
}

static int set_up(void **state) {
    (void)state;
    folder = shell_enter();
    ctl = shell_file("tools/occlctl/occlctl");
    fake = shell_file("tests/tools/fake_daemon");
    (void)snprintf(socket_path, sizeof socket_path, "%s/d.sock", folder);
    daemon_pid = 0;
    return 0;
}

static int set_up_good(void **state) {
    (void)set_up(state);
    start_daemon("tests/tools/answers/good.json", "");
    return 0;
}

static int set_up_bad(void **state) {
    (void)set_up(state);
    start_daemon("tests/tools/answers/bad.json", "");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    if (daemon_pid)
        (void)shell_stop(daemon_pid, SIGKILL);
    shell_leave();
    return 0;
}

#define HAS(text, part) assert_non_null(strstr((text), (part)))
#define HAS_NOT(text, part) assert_null(strstr((text), (part)))

/* The only request of the last command, as the daemon got it. */
static json_t *last_request(void) {
    return shell_json(shell_expect(0, "cat %s/request", folder));
}

static void assert_key(const json_t *object, const char *key, const char *value) {
    const char *found = json_string_value(json_object_get(object, key));
    assert_non_null(found);
    assert_string_equal(found, value);
}

static void wrong_command_lines_are_2(void **state) {
    (void)state;
    static const char *const lines[] = {"",
                                        "bogus",
                                        "status more",
                                        "--bogus",
                                        "status --bogus",
                                        "set",
                                        "set job",
                                        "set job x weight",
                                        "set job x weight 3 more",
                                        "set planet x weight 3",
                                        "set planet x weight 3 --json",
                                        "set daemon other log_level debug",
                                        "set job x weight 3 --watch 1",
                                        "--watch 1 set job x weight 3",
                                        "ping --job x",
                                        "--job x ping",
                                        "config --rank 1",
                                        "--tenant 5 version",
                                        "doctor --comm x",
                                        "clean --job x",
                                        "ping --timeout 0",
                                        "ping --timeout -1",
                                        "ping --timeout soon",
                                        "jobs --rank x",
                                        "jobs --rank -1",
                                        "jobs --watch 0"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const struct shell_result *r = shell_expect(2, "%s %s", ctl, lines[i]);
        assert_string_equal(r->out, "");
        assert_string_not_equal(r->err, "");
    }
}

static void help_lists_every_subcommand(void **state) {
    (void)state;
    static const char *const names[] = {"status", "jobs",   "comms",  "ops", "why",
                                        "usage",  "config", "set",    "run", "clean",
                                        "ping",   "doctor", "version"};
    const struct shell_result *r = shell_expect(0, "%s --help", ctl);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        HAS(r->out, names[i]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        r = shell_expect(0, "%s %s --help", ctl, names[i]);
        HAS(r->out, "--socket");
        HAS(r->out, "Exit status:");
        HAS(r->out, "125");
    }
}

/* Numbers that scripts rely on stand in the help. */
static void help_tells_every_exit_status(void **state) {
    (void)state;
    static const char *const lines[] = {"  0    fine",  "  1    something is wrong",
                                        "  2    wrong", "  3    no daemon answers",
                                        "  4    not",   "  125  `run` only"};
    const struct shell_result *r = shell_expect(0, "%s --help", ctl);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        HAS(r->out, lines[i]);
}

/* Every key with type, range, unit and an example that the command line takes. */
static void help_of_set_lists_every_key(void **state) {
    (void)state;
    static const char *const keys[] = {"class",
                                       "weight",
                                       "stall_interval",
                                       "quota_sessions",
                                       "quota_communicators",
                                       "quota_ops",
                                       "quota_regions",
                                       "quota_registered",
                                       "operator_group",
                                       "log_level",
                                       "handshake_timeout",
                                       "drain_timeout",
                                       "default_timeout",
                                       "peer_dead",
                                       "unkillable_after",
                                       "metrics_interval",
                                       "job_class",
                                       "job_weight",
                                       "tenant_weight"};
    const struct shell_result *r = shell_expect(0, "%s set --help", ctl);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "\n  %s\n    ", keys[i]);
        HAS(r->out, line);
    }
    HAS(r->out, "\n    bulk, normal, high or urgent (or 0 to 3)\n"
                "    e.g. occlctl set job train class high\n");
    HAS(r->out, "\n    a time (ns, us, ms, s, min, h; plain: ns), 10ms to 24h\n"
                "    e.g. occlctl set job train stall_interval 30s\n");
    HAS(r->out, "\n    a size (B, KiB, MiB, GiB, TiB; plain: bytes), 4KiB to 1024TiB\n");
    HAS(r->out, "\n    one of none|error|warn|info|debug\n");
    HAS_NOT(r->out, "--watch");     /* it means nothing to set */
    HAS_NOT(r->out, "socket_mode"); /* needs a restart */
    /* No line was broken: each of these begins as one of the help's own. */
    r = shell_expect(0, "%s set --help | sed '1,/^Keys of a job/d' | grep -c '^[a-z]'", ctl);
    assert_string_equal(r->out, "2\n"); /* "tenants have the same", "anything, and only" */
}

static void no_daemon_is_3_with_a_hint_in_one_line(void **state) {
    (void)state;
    static const char *const names[] = {
        "status", "jobs", "comms", "ops", "why", "usage", "config", "ping", "set job x weight 3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct shell_result *r = shell_expect(3, "%s %s", ctl, names[i]);
        assert_string_equal(r->out, "");
        HAS(r->err, "no daemon found");
        HAS(r->err, "; start occld");
        assert_ptr_equal(strchr(r->err, '\n'), r->err + strlen(r->err) - 1);
    }
    const struct shell_result *r = shell_expect(3, "%s ping --socket %s/none", ctl, folder);
    HAS(r->err, "/none");
}

static void json_of_an_error_is_one_object(void **state) {
    (void)state;
    json_t *object = shell_json(shell_expect(3, "%s status --json", ctl));
    assert_key(object, "status", "E_NO_DAEMON");
    assert_int_equal(json_integer_value(json_object_get(object, "schema")), 1);
    assert_int_equal(json_integer_value(json_object_get(object, "exit_code")), 3);
    json_decref(object);
}

static void a_silent_daemon_is_3_within_the_limit(void **state) {
    (void)state;
    start_daemon("tests/tools/answers/good.json", "--mute");
    const struct shell_result *r =
        shell_expect(3,
                     "start=$(date +%%s%%N); %s ping --timeout 0.3; code=$?; "
                     "echo $(( ($(date +%%s%%N) - start) / 1000000 )); exit $code",
                     ctl);
    assert_in_range(atoi(r->out), 290, 3000);
    HAS(r->err, "does not answer");
}

static void a_daemon_of_another_version_is_3(void **state) {
    (void)state;
    start_daemon("tests/tools/answers/good.json", "--other-version");
    static const char *const names[] = {
        "status", "jobs", "comms", "ops", "why", "usage", "config", "ping", "set job x weight 3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct shell_result *r = shell_expect(3, "%s %s", ctl, names[i]);
        assert_string_equal(r->out, "");
        HAS(r->err, "this daemon 7 to 8; use the occlctl that came with this daemon\n");
    }
    json_t *object = shell_json(shell_expect(3, "%s status --json", ctl));
    assert_key(object, "status", "E_VERSION");
    json_decref(object);
    const struct shell_result *r = shell_expect(1, "%s doctor", ctl);
    HAS(r->out, "use the occlctl that came with this daemon");
    HAS(shell_expect(0, "%s version", ctl)->out, "this daemon 7 to 8");
    HAS(shell_expect(125, "%s run -n 1 true", ctl)->err, "this daemon 7 to 8");
}

static void something_else_on_the_socket_is_3(void **state) {
    (void)state;
    (void)shell_expect(0, "touch %s/file", folder);
    (void)shell_expect(3, "%s ping --socket %s/file", ctl, folder);
}

static void a_forbidden_socket_is_4(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP a_forbidden_socket_is_4: needs root to become somebody else\n");
        skip();
    }
    start_daemon("tests/tools/answers/good.json", "");
    (void)shell_expect(0, "chmod 755 %s; chmod 600 %s", folder, socket_path);
    const struct shell_result *r = shell("cp %s %s/ctl && chmod 755 %s/ctl && "
                                         "setpriv --reuid=65534 --regid=65534 --clear-groups "
                                         "%s/ctl ping --socket %s",
                                         ctl, folder, folder, folder, socket_path);
    if (strstr(r->err, "setpriv")) {
        print_message("SKIP a_forbidden_socket_is_4: no other user in this namespace\n");
        skip();
    }
    assert_int_equal(r->code, 4);
    HAS(r->err, "the modes of the socket and of the folders above it");
}

static void a_refused_verb_is_4(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(4, "%s jobs", ctl);
    HAS(r->err, "you are not an operator; `occlctl config` shows operator_group\n");
    HAS_NOT(r->err, "owner of the job"); /* who may change as little as anybody */
}

static void other_refusals_keep_the_daemons_text(void **state) {
    (void)state;
    HAS(shell_expect(1, "%s comms --comm x", ctl)->err, "no communicator named x");
    HAS(shell_expect(2, "%s set job train-1 weight heavy", ctl)->err,
        "found heavy; `occlctl set --help` lists what each key accepts\n");
}

static void several_private_daemons_are_a_usage_error(void **state) {
    (void)state;
    long pids[2];
    for (int i = 0; i < 2; i++) {
        (void)shell_expect(0, "umask 077; mkdir -p %s/occl-%u/d%d", folder, (unsigned)geteuid(), i);
        pids[i] = shell_start("exec %s --socket %s/occl-%u/d%d/occld.sock", fake, folder,
                              (unsigned)geteuid(), i);
        assert_true(
            shell_wait(5000, "-S %s/occl-%u/d%d/occld.sock", folder, (unsigned)geteuid(), i));
    }
    const struct shell_result *r = shell_expect(2, "%s ping", ctl);
    HAS(r->err, "2 private daemons run");
    HAS(r->err, "/d0/occld.sock");
    HAS(r->err, "/d1/occld.sock");
    (void)shell_stop(pids[0], SIGKILL);
    /* The other is now the only live one; the dead one's socket is still there. */
    HAS(shell_expect(0, "%s ping", ctl)->out, "/d1/occld.sock");
    (void)shell_stop(pids[1], SIGKILL);
}

static void ping_and_version_tell_who_answered(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s ping", ctl);
    HAS(r->out, "occld 9.9.9-fake");
    HAS(r->out, "fakehost");
    HAS(r->out, socket_path);
    json_t *object = shell_json(shell_expect(0, "%s ping --json", ctl));
    assert_key(object, "socket", socket_path);
    assert_true(json_integer_value(json_object_get(object, "took_ns")) > 0);
    json_decref(object);
    r = shell_expect(0, "%s version", ctl);
    HAS(r->out, "occlctl 0.1.0");
    HAS(r->out, "9.9.9-fake");
    object = shell_json(shell_expect(0, "env -u OCCL_SOCKET %s --json version", ctl));
    assert_true(json_is_null(json_object_get(object, "daemon")));
    json_decref(object);
}

static void status_is_fine_or_1(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s status", ctl);
    HAS(r->out, "live, version 9.9.9-fake, pid 42 on nodeA, up 1 min 01 s");
    HAS(r->out, "1.0 MiB registered of at most 1.0 GiB");
    HAS(r->out, "start 450 ns, switch 120 ns");
    HAS(r->out, "problems     none");
}

static void status_with_problems_is_1(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(1, "%s status", ctl);
    HAS(r->out, "problem      job train-1 is stuck");
    HAS(r->out, "problem      one process is unkillable");
    json_t *object = shell_json(shell_expect(1, "%s status --json", ctl));
    json_decref(object);
}

static void tables_are_for_people(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s jobs", ctl);
    HAS(r->out, "JOB");
    HAS(r->out, "train-1");
    HAS(r->out, "high");
    HAS(r->out, "9.0 MiB");
    HAS(r->out, "1 h 01 min");
    HAS(r->out, "1 d 01 h");
    HAS(r->out, "bad?[31mname"); /* a name cannot command the terminal */
    HAS_NOT(r->out, "\033");
    r = shell_expect(0, "%s jobs --no-headers | wc -l", ctl);
    assert_string_equal(r->out, "2\n");
    r = shell_expect(0, "%s comms", ctl);
    HAS(r->out, "world");
    HAS_NOT(r->out, "LAST OP");
    r = shell_expect(0, "%s comms --comm world", ctl);
    HAS(r->out, "LAST OP");
    HAS(r->out, "all_reduce");
    r = shell_expect(0, "%s ops", ctl);
    HAS(r->out, "waits for members");
    HAS(r->out, "4.0 KiB");
    HAS(r->out, "left out: 3 ops of job bad?[31mname of tenant 1001:red\n"
                "left out: 2 ops of job train-1 of tenant 1000\nleft out: 5 in all");
    r = shell_expect(0, "%s usage", ctl);
    HAS(r->out, "2.50 ms");
    HAS(r->out, "1001"); /* a tenant without jobs is there too */
    r = shell_expect(0, "%s config", ctl);
    HAS(r->out, "/etc/occl/occld.conf:3");
}

static void json_is_the_daemons_answer_alone(void **state) {
    (void)state;
    static const char *const names[] = {"status", "jobs",   "comms",  "ops",     "why",
                                        "usage",  "config", "doctor", "version", "clean"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *object = shell_json(shell_expect(0, "%s %s --json", ctl, names[i]));
        assert_int_equal(json_integer_value(json_object_get(object, "schema")), 1);
        json_decref(object);
    }
    json_t *object = shell_json(shell_expect(0, "%s jobs --json", ctl));
    json_t *jobs = json_object_get(object, "jobs");
    assert_int_equal(json_array_size(jobs), 2);
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(jobs, 0), "registered_bytes")), 9437184);
    json_decref(object);
}

static void filters_go_to_the_daemon(void **state) {
    (void)state;
    (void)shell_expect(0, "%s ops --job train-1 --comm world --rank 3", ctl);
    json_t *request = last_request();
    assert_key(request, "verb", "ops");
    assert_key(request, "job", "train-1");
    assert_key(request, "comm", "world");
    assert_int_equal(json_integer_value(json_object_get(request, "rank")), 3);
    json_decref(request);
    (void)shell_expect(0, "%s --job train-1 ops", ctl); /* also before the subcommand */
    request = last_request();
    assert_key(request, "job", "train-1");
    assert_null(json_object_get(request, "comm"));
    json_decref(request);
}

static void a_filter_that_nothing_matches_is_told(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s jobs --job train-1", ctl);
    assert_string_equal(r->err, "");
    (void)shell_expect(0, "%s usage --tenant 7:x", ctl);
    json_t *request = last_request();
    assert_key(request, "tenant", "7:x");
    json_decref(request);
    /* The fake one's answer to an unknown verb is empty; so is a table of nothing. */
    (void)shell_expect(0, "printf '{\"jobs\": {\"jobs\": []}}' >%s/empty.json", folder);
    (void)shell_stop(daemon_pid, SIGKILL);
    daemon_pid =
        shell_start("exec %s --socket %s --answers %s/empty.json", fake, socket_path, folder);
    assert_true(shell_wait(5000, "-S %s", socket_path));
    (void)shell("sleep 0.2");
    r = shell_expect(0, "%s jobs --job nobody", ctl);
    HAS(r->err, "nothing matches the filters");
    assert_string_equal(shell_expect(0, "%s jobs", ctl)->err, "");
}

static void set_translates_words(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s set job train-1 weight 3", ctl);
    assert_string_equal(r->out, "job train-1: weight 100 -> 3\n");
    (void)shell_expect(0, "%s set job train-1 class high", ctl);
    json_t *request = last_request();
    assert_key(request, "key", "class");
    assert_key(request, "value", "high"); /* the daemon knows names and numbers */
    json_decref(request);
    (void)shell_expect(0, "%s set job train-1 stall-interval 30s", ctl);
    request = last_request();
    assert_key(request, "key", "stall_interval");
    assert_key(request, "value", "30s");
    json_decref(request);
    (void)shell_expect(0, "%s set daemon log-level debug", ctl);
    request = last_request();
    assert_key(request, "kind", "daemon");
    assert_key(request, "name", "occld");
    json_decref(request);
}

static void why_without_a_problem_is_0(void **state) {
    (void)state;
    HAS(shell_expect(0, "%s why", ctl)->out, "nothing is wrong: ");
    HAS(shell_expect(0, "%s why --job nobody", ctl)->out,
        "nothing is wrong where the filters look");
}

static void why_names_culprits_and_cycles(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(1, "%s why", ctl);
    HAS(r->out,
        "culprit: rank 3 (host nodeA, pid 1203): its process is stopped (stopped since 4.50 s)\n");
    HAS(r->out, "all_reduce tag 5 #3 on world of train-1 (float32 sum, 262144 elements, 1.0 MiB) "
                "has waited 4.50 s\n  arrived: 0-2; missing: 3\n");
    HAS(r->out, "rank 3 on nodeA pid 1203: stopped, process stopped, last did broadcast #8, "
                "active 4.60 s ago, waits in barrier #1 on side");
    HAS(r->out, "from 1 to 0");
    HAS(r->out, "     rank 0 pid 1200 waits in all_reduce tag 1 #0 on A for rank 1 pid 1201\n"
                "  -> rank 1 pid 1201 waits in barrier tag 2 #4 on B for rank 0 pid 1200\n");
    HAS(r->out, "communicator gone of old ended 1 min 00 s ago: rank 2 on nodeA pid 900: killed by "
                "signal 9");
    HAS(r->out, "communicator new of young (4 ranks) has been forming for 700 ms\n"
                "  arrived: 0-1; missing: 2-3\n");
    HAS_NOT(r->out, "\033");
    json_t *object = shell_json(shell_expect(1, "%s why --json", ctl));
    assert_true(json_is_true(json_object_get(object, "problem")));
    json_decref(object);
}

static void watch_asks_again_until_the_daemon_ends(void **state) {
    (void)state;
    (void)shell_expect(0,
                       "%s jobs --watch 0.05 --no-headers >%s/watched 2>&1 & "
                       "sleep 0.6; kill -KILL %ld; wait; true",
                       ctl, folder, daemon_pid);
    const struct shell_result *r = shell_expect(0, "grep -c train-1 %s/watched", folder);
    assert_in_range(atoi(r->out), 3, 13);
    HAS(shell_expect(0, "tail -n 1 %s/watched", folder)->out, "closed the connection");
}

static void doctor_checks_the_machine(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s doctor", ctl);
    static const char *const facts[] = {"io_uring",     "sealed memfd", "pidfd",
                                        "cross-memory", "huge pages",   "locked memory",
                                        "cpu set",      "socket",       "daemon: loop"};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        HAS(r->out, facts[i]);
    json_t *object = shell_json(shell_expect(1, "env -u OCCL_SOCKET %s doctor --json", ctl));
    assert_true(json_is_false(json_object_get(object, "ok"))); /* no daemon there */
    assert_true(json_array_size(json_object_get(object, "facts")) > 9);
    json_decref(object);
}

static void a_full_disk_is_no_success(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("SKIP a_full_disk_is_no_success: no /dev/full\n");
        skip();
    }
    /* Whatever prints, as text and as JSON, also where argp ends the process. */
    static const char *const lines[] = {
        "status",    "jobs",           "comms",          "ops",
        "why",       "usage",          "config",         "ping",
        "doctor",    "clean",          "version",        "--help",
        "--version", "--usage",        "set --help",     "set job train-1 weight 3",
        "config -v", "jobs --watch 1", "ping --watch 1", "version --watch 1"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        HAS(shell_expect(1, "%s %s >/dev/full", ctl, lines[i])->err, "occlctl: standard output: ");
        if (lines[i][0] != '-' && !strstr(lines[i], "--help"))
            HAS(shell_expect(1, "%s %s --json >/dev/full", ctl, lines[i])->err,
                "occlctl: standard output: ");
    }
    HAS(shell_expect(125, "%s run --help >/dev/full", ctl)->err, "No space left");
    /* An exit status that says more stays. */
    HAS(shell_expect(3, "%s ping --json --socket %s/none >/dev/full", ctl, folder)->err,
        "No space left");
    /* Closed: nothing may go into whatever gets its number. */
    HAS(shell_expect(1, "%s status >&-", ctl)->err, "Bad file descriptor");
    HAS(shell_expect(1, "%s jobs --watch 1 >&-", ctl)->err, "occlctl: standard output: ");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define GOOD(name) cmocka_unit_test_setup_teardown(name, set_up_good, tear_down)
#define BAD(name) cmocka_unit_test_setup_teardown(name, set_up_bad, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(wrong_command_lines_are_2),
        CASE(help_lists_every_subcommand),
        CASE(help_tells_every_exit_status),
        CASE(help_of_set_lists_every_key),
        CASE(no_daemon_is_3_with_a_hint_in_one_line),
        CASE(json_of_an_error_is_one_object),
        CASE(a_silent_daemon_is_3_within_the_limit),
        CASE(a_daemon_of_another_version_is_3),
        CASE(something_else_on_the_socket_is_3),
        CASE(a_forbidden_socket_is_4),
        BAD(a_refused_verb_is_4),
        BAD(other_refusals_keep_the_daemons_text),
        CASE(several_private_daemons_are_a_usage_error),
        GOOD(ping_and_version_tell_who_answered),
        GOOD(status_is_fine_or_1),
        BAD(status_with_problems_is_1),
        GOOD(tables_are_for_people),
        GOOD(json_is_the_daemons_answer_alone),
        GOOD(filters_go_to_the_daemon),
        GOOD(a_filter_that_nothing_matches_is_told),
        GOOD(set_translates_words),
        GOOD(why_without_a_problem_is_0),
        BAD(why_names_culprits_and_cycles),
        GOOD(watch_asks_again_until_the_daemon_ends),
        GOOD(doctor_checks_the_machine),
        GOOD(a_full_disk_is_no_success),
    };
    return cmocka_run_group_tests_name("occlctl", tests, NULL, NULL);
}
