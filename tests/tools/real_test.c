/* SPDX-License-Identifier: Apache-2.0 */
/* The tools on the real daemon: launching, measuring, and naming culprits (reports B01, B07, L04).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/tools/shell.h"

static const char *folder;
static char ctl[1024];
static char launch[2100];   /* `occlctl run` with the real daemon */
static char scenario[1024]; /* the program with a fault */
static char occld[1024];

static int set_up(void **state) {
    (void)state;
    folder = shell_enter();
    /* Copies: shell_file keeps only the last few. */
    (void)snprintf(ctl, sizeof ctl, "%s", shell_file("tools/occlctl/occlctl"));
    (void)snprintf(scenario, sizeof scenario, "%s", shell_file("tests/tools/scenario"));
    (void)snprintf(occld, sizeof occld, "%s", shell_file("daemon/occld"));
    (void)snprintf(launch, sizeof launch, "%s run --occld=%s", ctl, occld);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    shell_leave();
    return 0;
}

#define HAS(text, part) assert_non_null(strstr((text), (part)))

static void assert_nothing_left(void) {
    assert_true(shell_wait(5000, "! -e %s/occl-%u", folder, (unsigned)geteuid()));
}

static void a_job_runs_and_its_daemon_ends_with_it(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0, "cd %s && %s -v -n 4 %s fine 0", folder, launch, scenario);
    HAS(r->err, "started a private daemon at");
    HAS(r->err, "rank 3: tag 7: success");
    assert_nothing_left();
}

static void a_program_that_never_attaches_leaves_no_daemon(void **state) {
    (void)state;
    (void)shell_expect(0, "%s -n 2 true", launch);
    assert_nothing_left();
}

/* Nobody but the launcher knows of it. */
static void a_rank_that_dies_before_it_attaches_is_no_hang(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        137,
        "timeout 60 %s -n 3 --on-death=continue sh -c 'test $OCCL_RANK = 1 && kill -9 $$; exec %s "
        "fine 0'",
        launch, scenario);
    HAS(r->err, "rank 1 (host ");
    HAS(r->err, "ended before it came: killed by signal 9");
    assert_nothing_left();
    /* Nor for a rank that comes when the first has failed and gone, and its job with it. */
    r = shell_expect(137,
                     "timeout 60 %s -n 3 --on-death=continue sh -c 'test $OCCL_RANK = 1 && kill -9 "
                     "$$; test $OCCL_RANK = 2 && sleep 1; exec %s fine 0'",
                     launch, scenario);
    const char *told = strstr(r->err, ": joining: ");
    assert_non_null(told);
    HAS(told + 1, ": joining: "); /* both of them */
    assert_nothing_left();
}

static void runs_at_once_share_the_daemon(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0,
                     "cd %s; for i in 1 2 3; do mkdir $i; ( cd $i; %s -n 2 %s fine 0 2>err || "
                     "echo bad $?; grep -c success err ) & done; wait",
                     folder, launch, scenario);
    assert_string_equal(r->out, "2\n2\n2\n");
    assert_nothing_left();
}

static void occl_perf_checks_results_under_the_launcher(void **state) {
    (void)state;
    static const char *const ops[] = {
        "all_reduce",       "broadcast",    "reduce",   "all_gather", "reduce_scatter",
        "all_to_all",       "gather",       "scatter",  "scan",       "exscan",
        "barrier",          "fan_in",       "fan_out",  "sendrecv",   "all_gather_v",
        "reduce_scatter_v", "all_to_all_v", "gather_v", "scatter_v"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const struct shell_result *r =
            shell_expect(0, "%s -n 3 %s --json -c 1 -b 24 -e 64K -f 32 -n 3 -r -1 %s >%s/rows",
                         launch, shell_file("tools/perf/occl-perf"), ops[i], folder);
        assert_string_equal(r->err, "");
        json_t *row = shell_json(shell_expect(0, "head -n 1 %s/rows", folder));
        assert_string_equal(json_string_value(json_object_get(row, "op")), ops[i]);
        assert_int_equal(json_integer_value(json_object_get(row, "ranks")), 3);
        assert_int_equal(json_integer_value(json_object_get(row, "wrong")), 0);
        assert_true(json_is_number(json_object_get(row, "daemon_cpu_us")));
        assert_true(json_is_number(json_object_get(row, "switches")));
        json_decref(row);
    }
    /* All that is defined, of those that reduce. */
    static const char *const reducing[] = {"all_reduce",       "reduce", "reduce_scatter",
                                           "reduce_scatter_v", "scan",   "exscan"};
    for (size_t i = 0; i < sizeof reducing / sizeof reducing[0]; i++) {
        (void)shell_expect(0,
                           "%s -n 2 %s --json -d all -o all --memory any --nonblocking -m 3 -n 2 "
                           "-w 1 -b 1000 %s >%s/rows",
                           launch, shell_file("tools/perf/occl-perf"), reducing[i], folder);
        assert_string_equal(shell_expect(0, "grep -c '\"wrong\":0,' %s/rows", folder)->out,
                            "140\n");
        (void)shell_expect(
            0, "%s -n 3 %s --json -d all -o all --special-values -n 1 -w 0 -b 60000 %s >%s/rows",
            launch, shell_file("tools/perf/occl-perf"), reducing[i], folder);
        assert_string_equal(shell_expect(0, "grep -c '\"wrong\":0,' %s/rows", folder)->out,
                            "140\n");
    }
}

static void occl_perf_measures_groups_at_once(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0, "%s -n 5 %s -M %%2 -J %s/rows -n 3 -b 6K -e 12K -f 2 all_gather", launch,
                     shell_file("tools/perf/occl-perf"), folder);
    HAS(r->out, "#  Rank  3 Group  1 Pid ");
    HAS(r->out, "# total of 2 groups: busbw ");
    for (int i = 0; i < 4; i++) {
        json_t *row = shell_json(shell_expect(0, "sed -n %dp %s/rows", i + 1, folder));
        assert_int_equal(json_integer_value(json_object_get(row, "group")), i % 2);
        assert_int_equal(json_integer_value(json_object_get(row, "groups")), 2);
        assert_int_equal(json_integer_value(json_object_get(row, "ranks")), 3 - i % 2);
        assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 6144 << i / 2);
        assert_int_equal(json_integer_value(json_object_get(row, "wrong")), 0);
        json_decref(row);
    }
}

/* So many calls that their time is more than one period of ageing (10 ms) even where they are
 * quick: the load is of a lower class, and before that nobody owes it a slice. */
static void occl_perf_measures_beside_a_load(void **state) {
    (void)state;
    json_t *row = shell_json(
        shell_expect(0, "%s -n 3 %s --json --background reduce_scatter,1M -n 8000 -b 8 all_reduce",
                     launch, shell_file("tools/perf/occl-perf")));
    const json_t *load = json_object_get(row, "background");
    const json_t *loaded = json_object_get(row, "loaded");
    assert_int_equal(json_integer_value(json_object_get(load, "bytes")), (1 << 20) / 12 * 12);
    assert_int_equal(json_integer_value(json_object_get(load, "wrong")), 0);
    assert_true(json_number_value(json_object_get(load, "ops")) > 0);
    assert_int_equal(json_integer_value(json_object_get(loaded, "wrong")), 0);
    assert_true(json_number_value(json_object_get(loaded, "p99_us")) > 0);
    assert_string_equal(json_string_value(json_object_get(row, "priority")), "high");
    json_decref(row);
}

/* Starts a scenario; returns the launcher's process number when every rank has begun. */
static long start(const char *what, int ranks, int who) {
    long pid = shell_start("cd %s && exec %s --on-death=continue -n %d %s %s %d 6 >out 2>&1",
                           folder, launch, ranks, scenario, what, who);
    for (int rank = 0; rank < ranks; rank++)
        assert_true(shell_wait(10000, "-s %s/scenario.%d", folder, rank));
    return pid;
}

static json_t *why_after_a_second(int code) {
    (void)shell_expect(0, "sleep 1");
    return shell_json(shell_expect(code, "%s why --json", ctl));
}

static void end(long pid) {
    (void)shell("cd %s && kill -CONT $(cat scenario.*); kill -KILL $(cat scenario.*)", folder);
    (void)shell_stop(pid, SIGTERM);
}

static void assert_culprit(const char *what, const char *verdict) {
    long pid = start(what, 4, 2);
    json_t *why = why_after_a_second(1);
    json_t *culprits = json_object_get(why, "culprits");
    assert_int_equal(json_array_size(culprits), 1);
    json_t *culprit = json_array_get(culprits, 0);
    assert_int_equal(json_integer_value(json_object_get(culprit, "rank")), 2);
    assert_string_equal(json_string_value(json_object_get(culprit, "verdict")), verdict);
    const struct shell_result *r = shell_expect(0, "cat %s/scenario.2", folder);
    assert_int_equal(json_integer_value(json_object_get(culprit, "pid")), atol(r->out));
    json_decref(why);
    HAS(shell_expect(1, "%s why", ctl)->out, "culprit: rank 2");
    end(pid);
}

static void b01_why_names_the_late_rank(void **state) {
    (void)state;
    assert_culprit("late", "late");
}

static void why_names_the_stopped_rank(void **state) {
    (void)state;
    assert_culprit("stopped", "stopped");
}

static void why_names_the_dead_rank(void **state) {
    (void)state;
    assert_culprit("dead", "dead");
}

static void b07_why_prints_a_cycle_as_a_cycle(void **state) {
    (void)state;
    long pid = start("cycle", 2, 0);
    json_t *why = why_after_a_second(1);
    json_t *cycles = json_object_get(why, "cycles");
    assert_int_equal(json_array_size(cycles), 1);
    assert_int_equal(json_array_size(json_object_get(json_array_get(cycles, 0), "members")), 2);
    json_decref(why);
    HAS(shell_expect(1, "%s why", ctl)->out, "cycle of application waits:");
    end(pid);
}

static void why_follows_what_an_op_comes_after(void **state) {
    (void)state;
    long pid = start("after", 2, 0);
    json_t *why = why_after_a_second(1);
    json_t *cycles = json_object_get(why, "cycles");
    assert_int_equal(json_array_size(cycles), 1);
    assert_true(json_is_true(json_object_get(json_array_get(cycles, 0), "definite")));
    assert_int_equal(json_array_size(json_object_get(why, "culprits")), 2);
    json_decref(why);
    const struct shell_result *r = shell_expect(1, "%s why", ctl);
    HAS(r->out, "cycle of application waits:");
    HAS(r->out, "has submitted all_reduce tag 22 #0 on");
    HAS(r->out, ", which comes after all_reduce tag 11 #0 on");
    HAS(shell_expect(0, "%s ops", ctl)->out, "waits for members; held back: 0");
    end(pid);
}

/* ---- no false alarm ---- */

#define LOOKS 10
#define RANKS 4
/* A wait longer than this is a problem (daemon/ADMIN.md). */
#define PROBLEM_NS 250000000ll

/* How long the threads of each rank have wanted a core and got none, at a time. */
struct starved {
    long long at_ns, ns[RANKS];
};

static long long now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* The scheduler's own count: time on the CPU, time in the run queue, times run. */
static struct starved look_at_scheduler(const long *pids) {
    struct starved starved = {.at_ns = now_ns()};
    for (int rank = 0; rank < RANKS; rank++) {
        const struct shell_result *r = shell("cat /proc/%ld/task/*/schedstat", pids[rank]);
        long long ran, waited, times;
        int length;
        for (const char *at = r->out;
             sscanf(at, "%lld %lld %lld%n", &ran, &waited, &times, &length) == 3; at += length)
            starved.ns[rank] += waited;
    }
    return starved;
}

static void find_ranks(long *pids) {
    json_t *jobs = shell_json(shell_expect(0, "%s jobs --json", ctl));
    const json_t *job = json_array_get(json_object_get(jobs, "jobs"), 0);
    const json_t *processes = json_object_get(job, "processes");
    assert_int_equal(json_array_size(processes), RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        pids[rank] = (long)json_integer_value(
            json_object_get(json_array_get(processes, (size_t)rank), "pid"));
    json_decref(jobs);
}

/* Who wanted a core and had none is late, and `why` says so; that is no false alarm. The part of a
 * wait for which its culprit's own threads were not starved is what counts. */
static void expect_starved(const json_t *culprit, const long *pids, const struct starved *looks,
                           int last) {
    long pid = (long)json_integer_value(json_object_get(culprit, "pid"));
    long long age_ns = json_integer_value(json_object_get(culprit, "age_ns"));
    int first = last, rank = 0;
    while (first > 0 && looks[first].at_ns > looks[last].at_ns - age_ns)
        first--;
    while (rank < RANKS - 1 && pids[rank] != pid)
        rank++;
    assert_int_equal(pids[rank], pid);
    long long starved_ns = looks[last].ns[rank] - looks[first].ns[rank];
    print_message("process %ld was late for %.0f ms and starved for %.0f ms\n", pid,
                  (double)age_ns / 1e6, (double)starved_ns / 1e6);
    assert_true(age_ns - starved_ns <= PROBLEM_NS);
}

static void why_raises_no_false_alarm(void **state) {
    (void)state;
    struct starved looks[LOOKS + 1];
    long pids[RANKS];
    long pid = shell_start("exec %s -n %d %s --json -N 0 -T 20 -b 8 -e 1M -f 8 all_reduce >%s/rows",
                           launch, RANKS, shell_file("tools/perf/occl-perf"), folder);
    assert_true(shell_wait(10000, "-s %s/rows", folder));
    find_ranks(pids);
    looks[0] = look_at_scheduler(pids);
    for (int i = 1; i <= LOOKS; i++) {
        const struct shell_result *r = shell("sleep 0.1; %s why --json", ctl);
        assert_in_range(r->code, 0, 1);
        json_t *why = shell_json(r);
        looks[i] = look_at_scheduler(pids);
        const json_t *culprits = json_object_get(why, "culprits");
        for (size_t k = 0; k < json_array_size(culprits); k++)
            expect_starved(json_array_get(culprits, k), pids, looks, i);
        const json_t *cycles = json_object_get(why, "cycles");
        for (size_t k = 0; k < json_array_size(cycles); k++)
            assert_true(json_is_false(json_object_get(json_array_get(cycles, k), "definite")));
        assert_int_equal(json_array_size(json_object_get(why, "failures")), 0);
        json_decref(why);
    }
    (void)shell_stop(pid, SIGTERM);
}

/* Report L01: each query as JSON alone, with the schema's number. */
static void l01_every_query_is_json(void **state) {
    (void)state;
    long pid = start("late", 2, 1);
    static const char *const names[] = {"status", "jobs",   "comms", "ops",
                                        "usage",  "config", "ping",  "version"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *object = shell_json(shell_expect(0, "%s %s --json", ctl, names[i]));
        assert_int_equal(json_integer_value(json_object_get(object, "schema")), 1);
        json_decref(object);
        assert_string_not_equal(shell_expect(0, "%s %s", ctl, names[i])->out, "");
    }
    end(pid);
}

static void set_changes_a_running_job(void **state) {
    (void)state;
    long pid = start("late", 2, 1);
    const struct shell_result *r = shell_expect(0, "%s jobs --no-headers | cut -d' ' -f1", ctl);
    char job[128];
    (void)snprintf(job, sizeof job, "%.*s", (int)strcspn(r->out, "\n"), r->out);
    HAS(shell_expect(0, "%s set job %s class high", ctl, job)->out, "class normal -> high");
    HAS(shell_expect(0, "%s set job %s class 0", ctl, job)->out, "class high -> bulk");
    HAS(shell_expect(2, "%s set job %s class lofty", ctl, job)->err,
        "bulk, normal, high or urgent");
    json_t *object = shell_json(shell_expect(0, "%s set job %s class high --json", ctl, job));
    const json_t *changed = json_object_get(object, "changed");
    assert_string_equal(json_string_value(json_object_get(changed, "from")), "bulk");
    assert_string_equal(json_string_value(json_object_get(changed, "to")), "high");
    json_decref(object);
    HAS(shell_expect(0, "%s comms", ctl)->out, "high"); /* also what existed before */
    HAS(shell_expect(0, "%s set job %s weight 3", ctl, job)->out, " -> 3");
    HAS(shell_expect(0, "%s set job %s stall-interval 30s", ctl, job)->out, "10s -> 30s");
    HAS(shell_expect(0, "%s set daemon job-class urgent", ctl)->out, "normal -> urgent");
    HAS(shell_expect(0, "%s config", ctl)->out, "urgent");
    HAS(shell_expect(0, "%s jobs", ctl)->out, "high");
    (void)shell_expect(2, "%s set job %s weight heavy", ctl, job);
    (void)shell_expect(1, "%s set job nobody weight 3", ctl);
    end(pid);
}

/* A daemon at `folder`/s that answers. Its socket is there before it listens. */
static long start_occld(void) {
    long pid = shell_start("exec %s --socket %s/s 2>/dev/null", occld, folder);
    (void)shell_expect(
        0, "for i in $(seq 100); do %s ping --socket %s/s 2>&1 && exit; sleep 0.05; done; exit 1",
        ctl, folder);
    return pid;
}

/* The table of daemon/README.md and of `occld --help`. */
static void occld_ends_with_the_statuses_it_promises(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --help", occld);
    HAS(r->out, "Exit status:\n  0   ended as it was asked to");
    HAS(r->out, "\n  1   could not start");
    HAS(r->out, "\n  64  wrong command line\n");
    static const char *const wrong[] = {"--bogus", "more", "--set lanes", "--socket"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_string_equal(shell_expect(64, "%s %s", occld, wrong[i])->out, "");
    static const char *const fine[] = {"--keys", "--check-config", "--version", "--help"};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        (void)shell_expect(0, "%s %s", occld, fine[i]);
        if (access("/dev/full", W_OK) == 0)
            HAS(shell_expect(1, "%s %s >/dev/full", occld, fine[i])->err, "No space left");
    }
    HAS(shell_expect(1, "%s --lanes many", occld)->err, "lanes: expected a whole number, 0 to 64");
    HAS(shell_expect(1, "%s --socket %s", occld, folder)->err, "is not a socket");
    long pid = start_occld();
    HAS(shell_expect(1, "%s --socket %s/s", occld, folder)->err, "is in use by process");
    assert_int_equal(shell_stop(pid, SIGTERM), 0);
    pid = start_occld();
    assert_int_equal(shell_stop(pid, SIGINT), 0);
}

/* A daemon that was killed leaves its socket; clean takes it away at once, and no live one's. */
static void clean_takes_what_a_killed_daemon_left(void **state) {
    (void)state;
    long pid = start_occld();
    HAS(shell_expect(0, "%s clean -v --socket %s/s", ctl, folder)->out, "its daemon lives");
    (void)shell_stop(pid, SIGKILL);
    /* The kernel takes an io_uring down behind the end of its process; until then it listens. */
    HAS(shell_expect(0,
                     "for i in $(seq 100); do %s clean --socket %s/s; test -e %s/s || break; "
                     "sleep 0.05; done",
                     ctl, folder, folder)
            ->out,
        "its daemon is dead");
    (void)shell_expect(0, "test ! -e %s/s", folder);
}

/* Nobody is attached: every query is fine and says so. */
static void an_empty_daemon_answers_everything(void **state) {
    (void)state;
    long pid = start_occld();
    assert_int_equal(setenv("OCCL_SOCKET", shell_expect(0, "printf %s/s", folder)->out, 1), 0);
    static const char *const names[] = {"status", "jobs",  "comms",  "ops",
                                        "why",    "usage", "config", "ping"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct shell_result *r = shell_expect(0, "%s %s", ctl, names[i]);
        assert_string_not_equal(r->out, "");
        assert_string_equal(r->err, "");
        json_decref(shell_json(shell_expect(0, "%s %s --json", ctl, names[i])));
    }
    HAS(shell_expect(0, "%s jobs --job nobody", ctl)->err, "nothing matches the filters");
    HAS(shell_expect(1, "%s set job nobody class high", ctl)->err,
        "no job is named nobody; `occlctl jobs` lists jobs");
    HAS(shell_expect(2, "%s set daemon lanes 2", ctl)->err, "lanes needs a restart");
    HAS(shell_expect(2, "%s ops --rank 64", ctl)->err, "rank: expected a number from 0 to 63");
    assert_int_equal(unsetenv("OCCL_SOCKET"), 0);
    assert_int_equal(shell_stop(pid, SIGTERM), 0);
}

/* An owner may look, and is told who may change. */
static void set_without_permission_says_who_may(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP set_without_permission_says_who_may: needs root to become another\n");
        skip();
    }
    long pid = start_occld();
    const struct shell_result *r =
        shell("chmod 755 %s; cp %s %s/ctl; setpriv --reuid=65534 --regid=65534 --clear-groups "
              "%s/ctl set daemon log_level debug --socket %s/s",
              folder, ctl, folder, folder, folder);
    if (strstr(r->err, "setpriv")) {
        print_message("SKIP set_without_permission_says_who_may: no other user here\n");
        (void)shell_stop(pid, SIGKILL);
        skip();
    }
    assert_int_equal(r->code, 4);
    HAS(r->err, "uid 65534 may not change anything, also not its own jobs; root may "
                "(operator_group names no group); `occlctl config` shows operator_group\n");
    (void)shell_stop(pid, SIGTERM);
}

static void a_killed_daemon_is_cleaned(void **state) {
    (void)state;
    long pid = start("late", 2, 1);
    const struct shell_result *r =
        shell_expect(0, "cat %s/occl-%u/*/occld.pid", folder, (unsigned)geteuid());
    (void)shell_expect(0, "kill -KILL %ld", atol(r->out));
    /* Ranks hear of it and end; the launcher takes its folder away. */
    assert_int_not_equal(shell_stop(pid, 0), 125);
    assert_nothing_left();
    HAS(shell_expect(0, "cat %s/out", folder)->out, "daemon");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_job_runs_and_its_daemon_ends_with_it),
        CASE(a_program_that_never_attaches_leaves_no_daemon),
        CASE(a_rank_that_dies_before_it_attaches_is_no_hang),
        CASE(runs_at_once_share_the_daemon),
        CASE(occl_perf_checks_results_under_the_launcher),
        CASE(occl_perf_measures_groups_at_once),
        CASE(occl_perf_measures_beside_a_load),
        CASE(b01_why_names_the_late_rank),
        CASE(why_names_the_stopped_rank),
        CASE(why_names_the_dead_rank),
        CASE(b07_why_prints_a_cycle_as_a_cycle),
        CASE(why_follows_what_an_op_comes_after),
        CASE(why_raises_no_false_alarm),
        CASE(l01_every_query_is_json),
        CASE(set_changes_a_running_job),
        CASE(occld_ends_with_the_statuses_it_promises),
        CASE(clean_takes_what_a_killed_daemon_left),
        CASE(an_empty_daemon_answers_everything),
        CASE(set_without_permission_says_who_may),
        CASE(a_killed_daemon_is_cleaned),
    };
    return cmocka_run_group_tests_name("tools_real", tests, NULL, NULL);
}
