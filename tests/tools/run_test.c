/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher, with a daemon that only talks to administrators. */
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

static int set_up(void **state) {
    (void)state;
    folder = shell_enter();
    ctl = shell_file("tools/occlctl/occlctl");
    fake = shell_file("tests/tools/fake_daemon");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    shell_leave();
    return 0;
}

#define RUN "%s run --occld=%s "

/* No daemon and no folder of one is left. */
static void assert_nothing_left(void) {
    assert_true(shell_wait(3000, "! -e %s/occl-%u", folder, (unsigned)geteuid()));
}

static void success_is_zero_and_leaves_nothing(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, RUN "-n 3 true", ctl, fake);
    assert_string_equal(r->out, "");
    assert_string_equal(r->err, "");
    assert_nothing_left();
}

static void ranks_get_their_environment(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0,
                     RUN "-n 2 --job=j.1 --tag=t sh -c 'echo \"$OCCL_RANK $OCCL_SIZE "
                         "$OCCL_LOCAL_RANK $OCCL_JOB $OCCL_TENANT_TAG ${#OCCL_UNIQUE_ID}\"; "
                         "test -S \"$OCCL_SOCKET\"' | sort",
                     ctl, fake);
    assert_string_equal(r->out, "0 2 0 j.1 t 256\n1 2 1 j.1 t 256\n");
    r = shell_expect(0,
                     RUN "-n 4 sh -c 'echo $OCCL_UNIQUE_ID' | sort -u | wc -l; "
                         "for i in 1 2; do " RUN "-n 1 sh -c 'echo $OCCL_UNIQUE_ID$OCCL_JOB'; "
                         "done | sort -u | wc -l",
                     ctl, fake, ctl, fake);
    assert_string_equal(r->out, "1\n2\n"); /* one id a run, another one each run */
}

static void default_job_name_is_fit_for_a_name(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0, "ln -s /bin/sh '%s/odd name+'; " RUN "-n 1 '%s/odd name+' -c 'echo $OCCL_JOB'", folder,
        ctl, fake, folder);
    assert_int_equal(strncmp(r->out, "odd_name_-", 10), 0);
}

static void exit_status_is_that_of_the_first_rank_that_failed(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        7, RUN "-n 3 sh -c 'case $OCCL_RANK in 1) sleep 0.2; exit 7;; 2) sleep 0.6; exit 9;; esac'",
        ctl, fake);
    assert_non_null(strstr(r->err, "rank 1 "));
    assert_non_null(strstr(r->err, "status 7"));
    assert_null(strstr(r->err, "rank 2"));
    assert_nothing_left();
}

static void exit_status_of_a_signal_is_128_more(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        128 + SIGKILL, RUN "-n 2 sh -c 'test $OCCL_RANK = 0 || kill -9 $$'", ctl, fake);
    assert_non_null(strstr(r->err, "signal 9"));
}

static void launcher_errors_are_125(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(125, RUN "-n 2 /nonexistent/program", ctl, fake);
    assert_non_null(strstr(r->err, "/nonexistent/program"));
    assert_non_null(strstr(r->err, "No such file"));
    assert_nothing_left();
    (void)shell_expect(125, "%s run true", ctl);
    (void)shell_expect(125, "%s run -n 0 true", ctl);
    (void)shell_expect(125, "%s run -n x true", ctl);
    (void)shell_expect(0, RUN "-n 64 true", ctl, fake);
    r = shell_expect(125, RUN "-n 65 true", ctl, fake);
    assert_non_null(strstr(r->err, "-n: expected a number from 1 to 64 (limit: the ranks of a "
                                   "communicator on one node), found '65'"));
    assert_nothing_left();
    (void)shell_expect(125, "%s run -n 2", ctl);
    (void)shell_expect(125, "%s run -n 2 --on-death=perhaps true", ctl);
    (void)shell_expect(125, "%s run --bogus -n 2 true", ctl);
    r = shell_expect(125, "%s run -n 2 --socket=%s/none true", ctl, folder);
    assert_non_null(strstr(r->err, "/none"));
}

static void a_daemon_that_does_not_come_up_is_quoted(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(125,
                     "printf '#!/bin/sh\\necho first; echo the reason >&2; exit 1\\n' >%s/bad; "
                     "chmod +x %s/bad; %s run --occld=%s/bad -n 1 true",
                     folder, folder, ctl, folder);
    assert_non_null(strstr(r->err, "did not come up: the reason"));
    r = shell_expect(125, "%s run --occld=/nonexistent/occld -n 1 true", ctl);
    assert_non_null(strstr(r->err, "cannot start /nonexistent/occld"));
    assert_nothing_left();
}

static void options_of_the_program_stay_its_own(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0, RUN "-n 1 sh -c 'echo \"$@\"' name x -n 5 --label --json; " RUN "-n 1 -- echo --x", ctl,
        fake, ctl, fake);
    assert_string_equal(r->out, "x -n 5 --label --json\n--x\n");
}

static void labels_begin_each_line(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0, RUN "-n 3 --label sh -c 'printf \"a\\nb\\nlast of $OCCL_RANK\"; echo e >&2' | sort", ctl,
        fake);
    assert_string_equal(r->out, "0: a\n0: b\n0: last of 0\n1: a\n1: b\n1: last of 1\n"
                                "2: a\n2: b\n2: last of 2\n");
    assert_non_null(strstr(r->err, "0: e\n"));
    assert_non_null(strstr(r->err, "2: e\n"));
    r = shell_expect(0, RUN "-n 2 sh -c 'echo plain'", ctl, fake);
    assert_string_equal(r->out, "plain\nplain\n");
}

/* Three ranks and two cores at most: the first and the third share one. The reference are the cores
 * as the kernel tells them, of which threads share one. */
static void bound_ranks_take_the_cores_by_turns(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0,
                     "cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//'); "
                     "core() { cat /sys/devices/system/cpu/cpu$1/topology/thread_siblings_list; }; "
                     "first=$(core $cpu); other=''; "
                     "for c in $(seq 0 4095); do [ -e /sys/devices/system/cpu/cpu$c ] || break; "
                     "taskset -c $c true 2>/dev/null || continue; "
                     "[ \"$(core $c)\" != \"$first\" ] && other=$c && break; done; "
                     "taskset -c $cpu${other:+,$other} " RUN
                     "-n 3 --bind=core sh -c 'taskset -cp $$ | sed \"s/.*: /$OCCL_RANK /\"' "
                     "| sort > bound; "
                     "{ echo 0 $cpu; echo 1 ${other:-$cpu}; echo 2 $cpu; } > expected; cat bound; "
                     "cmp bound expected",
                     ctl, fake);
    assert_non_null(strstr(r->out, "2 "));
    /* Bound before: that stays the limit. Without the option nothing is bound. */
    r = shell_expect(0,
                     "cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//'); taskset -c $cpu " RUN
                     "-n 2 --bind=core sh -c 'taskset -cp $$ | sed s/.*://' | sort -u | wc -l; " RUN
                     "-n 2 --bind=none sh -c 'taskset -cp $$ | sed s/.*://' > free; "
                     "taskset -cp $$ | sed s/.*:// > mine; cat mine mine | cmp - free",
                     ctl, fake, ctl, fake);
    assert_string_equal(r->out, "1\n");
    (void)shell_expect(125, RUN "-n 1 --bind=socket true", ctl, fake);
    /* Cores that are only described would bind nothing. */
    r = shell_expect(125, "HWLOC_SYNTHETIC='core:4 pu:1' " RUN "-n 1 --bind=core true", ctl, fake);
    assert_non_null(strstr(r->err, "none of this machine"));
}

static void labelled_output_that_is_lost_is_125(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("SKIP labelled_output_that_is_lost_is_125: no /dev/full\n");
        skip();
    }
    const struct shell_result *r =
        shell_expect(125, RUN "-n 2 --label echo x >/dev/full", ctl, fake);
    assert_non_null(strstr(r->err, "output of the ranks could not be written: No space left"));
    /* A line without an end is written too, or not. */
    (void)shell_expect(125, RUN "-n 1 --label printf x >/dev/full", ctl, fake);
    /* The ranks go on, and one that failed is the more important news. */
    r = shell_expect(7, RUN "-n 1 --label sh -c 'echo x; touch %s/on; exit 7' >/dev/full", ctl,
                     fake, folder);
    assert_non_null(strstr(r->err, "could not be written"));
    (void)shell_expect(0, "test -e %s/on", folder);
    (void)shell_expect(0, RUN "-n 1 --label true >/dev/full", ctl, fake); /* nothing to lose */
    (void)shell_expect(0, RUN "-n 1 true >&-", ctl, fake);
    assert_nothing_left();
}

/* An output that does not block takes everything too, only later. */
static void a_full_pipe_is_waited_for(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0,
        "python3 -c 'import os, subprocess, sys, time; r, w = os.pipe(); os.set_blocking(w, 0); "
        "p = subprocess.Popen(sys.argv[1:], stdout=w); os.close(w); time.sleep(1); "
        "n = sum(iter(lambda: len(os.read(r, 65536)), 0)); print(n, p.wait())' "
        "%s run --occld=%s -n 1 --label sh -c 'head -c 400000 /dev/zero | tr \"\\0\" \"\\n\"'",
        ctl, fake);
    assert_string_equal(r->out, "1600000 0\n"); /* "0: " before each line */
}

static void names_are_checked_before_anything_starts(void **state) {
    (void)state;
    static const char *const lines[] = {"--tag a/b",
                                        "--tag a:b",
                                        "--tag a@b",
                                        "--tag 'a b'",
                                        "--tag ''",
                                        "--job 'a b'",
                                        "--job ''",
                                        "--job 'a\nb'",
                                        "--tag $(printf '%064d' 0)",
                                        "--job $(printf '%064d' 0)"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const struct shell_result *r =
            shell_expect(125, RUN "-n 1 %s touch %s/started", ctl, fake, lines[i], folder);
        assert_non_null(strstr(r->err, lines[i][2] == 't' ? "--tag" : "--job"));
        (void)shell_expect(0, "test ! -e %s/started -a ! -e %s/occl-%u", folder, folder,
                           (unsigned)geteuid());
    }
    const struct shell_result *r =
        shell_expect(125, "OCCL_TENANT_TAG=a/b " RUN "-n 1 touch %s/started", ctl, fake, folder);
    assert_non_null(strstr(r->err, "OCCL_TENANT_TAG 'a/b'"));
    /* Options of queries, before the word `run`. */
    (void)shell_expect(125, "%s --json run -n 1 true", ctl);
    (void)shell_expect(125, "%s --watch 1 run -n 1 true", ctl);
    r = shell_expect(0, RUN "-n 1 --job a.b/c:d@e_f-g --tag A.b-1_2 true", ctl, fake);
    assert_string_equal(r->err, "");
}

static void lines_of_ranks_do_not_mix(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0,
        RUN "-n 4 --label sh -c 'for i in 1 2 3 4 5 6 7 8; do head -c 3000 /dev/zero | tr \"\\0\" "
            "$OCCL_RANK; echo; done' | awk '{ rank = substr($0, 1, 1); text = substr($0, 4); "
            "gsub(rank, \"\", text); if (length($0) != 3003 || text != \"\") bad++; lines++ } "
            "END { print lines, bad + 0 }'",
        ctl, fake);
    assert_string_equal(r->out, "32 0\n");
}

static void long_lines_are_cut_and_nothing_is_lost(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0,
                     RUN "-n 1 --label sh -c 'head -c 200000 /dev/zero | tr \"\\0\" x; echo' | "
                         "sed 's/^0: //' | tr -d '\\n' | wc -c",
                     ctl, fake);
    assert_string_equal(r->out, "200000\n");
}

static void standard_input_is_rank_0s(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0, "echo hello | " RUN "-n 3 --label sh -c 'cat; echo end' | sort", ctl, fake);
    assert_string_equal(r->out, "0: end\n0: hello\n1: end\n2: end\n");
}

static void survivors_are_ended_after_a_failure(void **state) {
    (void)state;
    /* Rank 1 fails; rank 0 takes SIGTERM and says when it came. */
    const struct shell_result *r = shell_expect(
        3,
        "start=$(date +%%s%%N); " RUN
        "-n 2 sh -c 'if test $OCCL_RANK = 1; then exit 3; fi; trap \"echo terminated; exit 0\" "
        "TERM; while :; do sleep 0.05; done'; code=$?; "
        "echo $(( ($(date +%%s%%N) - start) / 1000000000 )); exit $code",
        ctl, fake);
    assert_int_equal(strncmp(r->out, "terminated\n", 11), 0);
    int seconds = atoi(r->out + 11);
    assert_in_range(seconds, 5, 8);
}

static void a_survivor_that_ignores_sigterm_is_killed(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        3,
        "start=$(date +%%s); " RUN
        "-n 2 sh -c 'if test $OCCL_RANK = 1; then exit 3; fi; trap \"\" TERM; "
        "while :; do sleep 0.05; done'; code=$?; echo $(($(date +%%s) - start)); exit $code",
        ctl, fake);
    assert_in_range(atoi(r->out), 9, 14);
    assert_nothing_left();
}

static void with_continue_the_others_go_on(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        128 + SIGKILL,
        RUN "-n 2 --on-death=continue sh -c 'if test $OCCL_RANK = 1; then kill -9 $$; fi; "
            "sleep 6; echo done'",
        ctl, fake);
    assert_string_equal(r->out, "done\n");
}

static void signals_are_forwarded(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        /* The terminal's own signals do not reach a background job of sh; ours do. */
        long pid = shell_start("exec " RUN
                               "-n 2 sh -c 'trap \"touch %s/got.$OCCL_RANK; exit 4\" TERM INT; "
                               "touch %s/ready.$OCCL_RANK; while :; do sleep 0.05; done'",
                               ctl, fake, folder, folder);
        assert_true(shell_wait(5000, "-e %s/ready.0 -a -e %s/ready.1", folder, folder));
        assert_int_equal(shell_stop(pid, signals[i]), 4);
        (void)shell_expect(0, "cd %s && rm got.0 got.1 ready.0 ready.1", folder);
        assert_nothing_left();
    }
}

static void a_second_signal_kills(void **state) {
    (void)state;
    long pid = shell_start("exec " RUN
                           "-n 1 sh -c 'trap \"\" TERM; touch %s/ready; while :; do sleep 0.05; "
                           "done'",
                           ctl, fake, folder);
    assert_true(shell_wait(5000, "-e %s/ready", folder));
    (void)shell("kill -TERM %ld; sleep 0.3", pid);
    assert_int_equal(shell_stop(pid, SIGTERM), 128 + SIGKILL);
}

static void ranks_die_with_the_launcher(void **state) {
    (void)state;
    long pid = shell_start("exec " RUN "-n 2 sh -c 'echo $$ >%s/pid.$OCCL_RANK; exec sleep 60'",
                           ctl, fake, folder);
    assert_true(shell_wait(5000, "-s %s/pid.0 -a -s %s/pid.1", folder, folder));
    assert_int_equal(shell_stop(pid, SIGKILL), 128 + SIGKILL);
    assert_true(shell_wait(3000, "! -d /proc/$(cat %s/pid.0) -a ! -d /proc/$(cat %s/pid.1)", folder,
                           folder));
}

static void a_running_daemon_is_used(void **state) {
    (void)state;
    long daemon = shell_start("exec %s --socket %s/d.sock", fake, folder);
    assert_true(shell_wait(5000, "-S %s/d.sock", folder));
    const struct shell_result *r =
        shell_expect(0, "OCCL_SOCKET=%s/d.sock " RUN "-v -n 1 sh -c 'echo $OCCL_SOCKET'", folder,
                     ctl, "/nonexistent");
    assert_non_null(strstr(r->out, "/d.sock\n"));
    assert_non_null(strstr(r->err, "using the daemon at"));
    r = shell_expect(0, RUN "--socket=%s/d.sock -n 1 sh -c 'echo $OCCL_SOCKET'", ctl,
                     "/nonexistent", folder);
    assert_non_null(strstr(r->out, "/d.sock\n"));
    (void)shell_stop(daemon, SIGTERM);
}

static void a_second_shell_finds_and_shares_the_private_daemon(void **state) {
    (void)state;
    long pid = shell_start("exec " RUN
                           "-v -n 1 sh -c 'echo $OCCL_SOCKET >%s/first; while test ! -e %s/stop; "
                           "do sleep 0.05; done' 2>%s/err",
                           ctl, fake, folder, folder, folder);
    assert_true(shell_wait(5000, "-s %s/first", folder));
    (void)shell_expect(0, "grep -q 'started a private daemon' %s/err", folder);
    const struct shell_result *r = shell_expect(0, "%s ping", ctl);
    assert_non_null(strstr(r->out, "9.9.9-fake"));
    r = shell_expect(0, RUN "-v -n 1 sh -c 'echo $OCCL_SOCKET' | cmp - %s/first", ctl, fake,
                     folder);
    assert_non_null(strstr(r->err, "using the daemon at"));
    (void)shell_expect(0, "touch %s/stop", folder);
    assert_int_equal(shell_stop(pid, 0), 0);
    assert_nothing_left();
    (void)shell_expect(3, "%s ping", ctl);
}

static void launchers_at_once_share_one_daemon(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0,
                     "for i in 1 2 3 4 5; do " RUN
                     "-n 1 sh -c 'sleep 1; echo $OCCL_SOCKET' & done | sort -u | wc -l; wait",
                     ctl, fake);
    assert_string_equal(r->out, "1\n");
    assert_nothing_left();
}

static void whoever_leaves_last_takes_the_folder_away(void **state) {
    (void)state;
    /* The first launcher is gone for long when the second one's job ends. */
    const struct shell_result *r = shell_expect(
        0,
        "cd %s; " RUN "-n 1 sh -c 'touch up; until test -e second; do sleep 0.05; done' & "
        "until test -e up; do sleep 0.05; done; " RUN
        "-n 1 sh -c 'touch second; sleep 4; ls -d %s/occl-%u/*'; wait; test ! -e %s/occl-%u",
        folder, ctl, fake, ctl, "/nonexistent", folder, (unsigned)geteuid(), folder,
        (unsigned)geteuid());
    assert_non_null(strstr(r->out, "/run-"));
}

/* Another launcher can find a daemon, use it and so end it before its own launcher looks. */
static void a_daemon_that_others_have_ended_is_started_anew(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0,
        "printf '#!/bin/sh\\necho >>%s/starts; test $(wc -l <%s/starts) -lt 4 && exit 0; exec %s "
        "\"$@\"\\n' >%s/brief; chmod +x %s/brief; %s run --occld=%s/brief -n 1 cat %s/starts",
        folder, folder, fake, folder, folder, ctl, folder, folder);
    assert_string_equal(r->out, "\n\n\n\n");
    assert_string_equal(r->err, "");
    assert_nothing_left();
    /* But not for ever. */
    r = shell_expect(125,
                     "printf '#!/bin/sh\\necho >>%s/ends; echo done\\n' >%s/brief; "
                     "%s run --occld=%s/brief -n 1 true; code=$?; wc -l <%s/ends; exit $code",
                     folder, folder, ctl, folder, folder);
    assert_string_equal(r->out, "20\n");
    assert_non_null(strstr(r->err, "/brief) has ended at once: done"));
    assert_nothing_left();
}

static void a_starting_daemon_is_waited_for(void **state) {
    (void)state;
    (void)shell_expect(0, "umask 077; mkdir -p %s/occl-%u/late", folder, (unsigned)geteuid());
    long daemon = shell_start("exec %s --private --locked --late-ms 700 --socket "
                              "%s/occl-%u/late/occld.sock",
                              fake, folder, (unsigned)geteuid());
    assert_true(shell_wait(5000, "-e %s/occl-%u/late/occld.pid", folder, (unsigned)geteuid()));
    const struct shell_result *r =
        shell_expect(0, RUN "-n 1 sh -c 'echo $OCCL_SOCKET'", ctl, "/nonexistent");
    assert_non_null(strstr(r->out, "/late/occld.sock\n"));
    (void)shell_stop(daemon, SIGTERM);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(success_is_zero_and_leaves_nothing),
        CASE(ranks_get_their_environment),
        CASE(default_job_name_is_fit_for_a_name),
        CASE(exit_status_is_that_of_the_first_rank_that_failed),
        CASE(exit_status_of_a_signal_is_128_more),
        CASE(launcher_errors_are_125),
        CASE(a_daemon_that_does_not_come_up_is_quoted),
        CASE(options_of_the_program_stay_its_own),
        CASE(labels_begin_each_line),
        CASE(bound_ranks_take_the_cores_by_turns),
        CASE(labelled_output_that_is_lost_is_125),
        CASE(a_full_pipe_is_waited_for),
        CASE(names_are_checked_before_anything_starts),
        CASE(lines_of_ranks_do_not_mix),
        CASE(long_lines_are_cut_and_nothing_is_lost),
        CASE(standard_input_is_rank_0s),
        CASE(survivors_are_ended_after_a_failure),
        CASE(a_survivor_that_ignores_sigterm_is_killed),
        CASE(with_continue_the_others_go_on),
        CASE(signals_are_forwarded),
        CASE(a_second_signal_kills),
        CASE(ranks_die_with_the_launcher),
        CASE(a_running_daemon_is_used),
        CASE(a_second_shell_finds_and_shares_the_private_daemon),
        CASE(launchers_at_once_share_one_daemon),
        CASE(whoever_leaves_last_takes_the_folder_away),
        CASE(a_daemon_that_others_have_ended_is_started_anew),
        CASE(a_starting_daemon_is_waited_for),
    };
    return cmocka_run_group_tests_name("occlctl_run", tests, NULL, NULL);
}
