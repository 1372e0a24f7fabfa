/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl clean`: only what is dead goes, also while daemons start and stop (report D07). */
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
static char base[96];

static int set_up(void **state) {
    (void)state;
    folder = shell_enter();
    ctl = shell_file("tools/occlctl/occlctl");
    fake = shell_file("tests/tools/fake_daemon");
    (void)snprintf(base, sizeof base, "%s/occl-%u", folder, (unsigned)geteuid());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    shell_leave();
    return 0;
}

#define HAS(text, part) assert_non_null(strstr((text), (part)))

/* Leaves what a killed private daemon leaves. */
static void leave_dead(const char *name) {
    (void)shell_expect(0, "umask 077; mkdir -p %s/%s; touch %s/%s/occld.log %s/%s/occld.pid", base,
                       name, base, name, base, name);
    long pid = shell_start("exec %s --socket %s/%s/occld.sock", fake, base, name);
    assert_true(shell_wait(5000, "-S %s/%s/occld.sock", base, name));
    (void)shell_stop(pid, SIGKILL);
    assert_true(shell_wait(100, "-S %s/%s/occld.sock", base, name));
}

static void nothing_there_is_fine(void **state) {
    (void)state;
    assert_string_equal(shell_expect(0, "%s clean", ctl)->out, "nothing to clean\n");
}

/* At once: a lock says what lives, not its age. */
static void folder_of_a_dead_daemon_goes_and_says_why(void **state) {
    (void)state;
    leave_dead("one");
    const struct shell_result *r = shell_expect(0, "%s clean", ctl);
    HAS(r->out, "removed ");
    HAS(r->out, "/one: nobody listens on its socket and no lock is held");
    (void)shell_expect(0, "test ! -e %s", base);
}

static void json_lists_what_went(void **state) {
    (void)state;
    leave_dead("one");
    json_t *object = shell_json(shell_expect(0, "%s clean --json", ctl));
    json_t *removed = json_object_get(object, "removed");
    assert_int_equal(json_array_size(removed), 2); /* the folder and the base */
    assert_non_null(
        strstr(json_string_value(json_object_get(json_array_get(removed, 0), "path")), "/one"));
    static const char *const others[] = {"kept", "skipped", "failed"};
    for (int i = 0; i < 3; i++) {
        assert_true(json_is_array(json_object_get(object, others[i])));
        assert_int_equal(json_array_size(json_object_get(object, others[i])), 0);
    }
    json_decref(object);
}

/* Nothing in it says whose it is: it is left for 2 s, and that is told and no success. */
static void a_fresh_empty_folder_is_skipped_and_told(void **state) {
    (void)state;
    (void)shell_expect(0, "umask 077; mkdir -p %s/empty", base);
    const struct shell_result *r = shell_expect(1, "%s clean", ctl);
    HAS(r->out, "skipped ");
    HAS(r->out, "/empty: empty and younger than 2 s");
    json_t *object = shell_json(shell_expect(1, "%s clean --json", ctl));
    assert_int_equal(json_array_size(json_object_get(object, "skipped")), 1);
    json_decref(object);
    HAS(shell_expect(0, "sleep 2.1; %s clean", ctl)->out, "/empty: no socket and no lock");
    (void)shell_expect(0, "test ! -e %s", base);
}

/* A daemon holds the lock of its folder from before it binds until it listens; until then its
 * socket looks dead. */
static void a_socket_between_bind_and_listen_stays(void **state) {
    (void)state;
    leave_dead("one");
    long held = shell_start("exec flock %s/one sleep 60", base);
    assert_false(shell_wait(0, "! -d %s/one", base));
    (void)shell_expect(0, "sleep 0.2; %s clean; %s clean --socket %s/one/occld.sock", ctl, ctl,
                       base);
    (void)shell_expect(0, "test -S %s/one/occld.sock", base);
    (void)shell("pkill -KILL -P %ld", held);
    (void)shell_stop(held, SIGKILL);
    (void)shell_expect(0, "sleep 0.1; %s clean --socket %s/one/occld.sock; test ! -e %s", ctl, base,
                       base);
}

static void what_lives_or_is_locked_stays(void **state) {
    (void)state;
    leave_dead("dead");
    (void)shell_expect(0, "umask 077; mkdir %s/live %s/locked %s/held", base, base, base);
    long live = shell_start("exec %s --socket %s/live/occld.sock", fake, base);
    long locked =
        shell_start("exec %s --locked --late-ms 60000 --socket %s/locked/occld.sock", fake, base);
    long held = shell_start("exec flock %s/held sleep 60", base);
    assert_true(shell_wait(5000, "-S %s/live/occld.sock -a -e %s/locked/occld.pid", base, base));
    (void)shell_expect(0, "sleep 0.2");
    const struct shell_result *r = shell_expect(0, "%s clean -v", ctl);
    HAS(r->out, "removed ");
    HAS(r->out, "/dead: ");
    HAS(r->out, "/live: its daemon lives");
    HAS(r->out, "/locked: its daemon lives or is starting (locked)");
    HAS(r->out, "/held: its daemon lives or is starting (locked)");
    (void)shell_expect(0, "cd %s && test -d live -a -d locked -a -d held -a ! -e dead", base);
    (void)shell_stop(live, SIGKILL);
    (void)shell_stop(locked, SIGKILL);
    (void)shell("pkill -KILL -P %ld", held);
    (void)shell_stop(held, SIGKILL);
}

static void strange_files_are_not_touched(void **state) {
    (void)state;
    leave_dead("one");
    (void)shell_expect(0, "touch %s/one/.precious", base);
    HAS(shell_expect(1, "%s clean", ctl)->out, "holds files that are not of occl");
    (void)shell_expect(0, "test -e %s/one/.precious -a -S %s/one/occld.sock", base, base);
}

static void a_base_of_others_is_not_touched(void **state) {
    (void)state;
    leave_dead("one");
    (void)shell_expect(0, "chmod 755 %s", base);
    HAS(shell_expect(1, "%s clean", ctl)->out, "not a folder of this user alone");
    (void)shell_expect(0, "test -S %s/one/occld.sock", base);
}

static void a_named_socket_goes_when_dead(void **state) {
    (void)state;
    long pid = shell_start("exec %s --socket %s/s", fake, folder);
    assert_true(shell_wait(5000, "-S %s/s", folder));
    (void)shell_expect(0, "%s clean --socket %s/s; test -S %s/s", ctl, folder, folder);
    (void)shell_stop(pid, SIGKILL);
    HAS(shell_expect(0, "%s clean --socket %s/s", ctl, folder)->out,
        "nobody listens on it: its daemon is dead");
    const struct shell_result *r = shell_expect(
        1, "test ! -e %s/s; touch %s/file; %s clean --socket %s/file", folder, folder, ctl, folder);
    HAS(r->out, "/file: not a socket");
    (void)shell_expect(0, "test -e %s/file", folder);
}

/* Many may look at the same remains at once: a shared lock speaks for nobody. */
static void who_looks_is_no_owner(void **state) {
    (void)state;
    leave_dead("one");
    const struct shell_result *r =
        shell_expect(0, "flock -s %s/one flock -s %s/one/occld.pid %s clean", base, base, ctl);
    HAS(r->out, "/one: nobody listens on its socket and no lock is held");
}

/* While it waits for the lock, the last launcher takes the base away, and another one makes it anew
 * and is about to start a daemon in it. */
static void a_base_that_was_replaced_is_not_the_locked_one(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0,
        "cd %s; umask 077; mkdir %s new; exec 8<%s 9<new; flock 8; flock 9; "
        "( exec 8<&- 9<&-; %s clean >/dev/null ) & sleep 0.3; "
        "mkdir new/run-x; : >new/run-x/occld.pid; mv -T new %s; exec 8<&-; sleep 0.5; "
        "test -e %s/run-x/occld.pid && echo kept; exec 9<&-; wait; test -e %s || echo cleaned",
        folder, base, base, ctl, base, base, base);
    assert_string_equal(r->out, "kept\ncleaned\n");
}

/* Launchers start and end private daemons while clean runs in a tight loop; one of four daemons is
 * killed, so that there is always something to clean. */
static void d07_clean_in_a_loop_disturbs_nobody(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0,
        "cd %s; ( while test ! -e stop; do %s clean >>cleaned || echo bad >>failed; done ) & "
        "loop=$!; for worker in 1 2; do ( for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do "
        "%s run --occld=%s -n 2 sh -c 'sleep 0.0$((OCCL_RANK + 2)); test -S $OCCL_SOCKET' "
        "|| echo bad >>failed; done ) & workers=\"$workers $!\"; done; "
        "wait $workers; touch stop; wait $loop; cat failed 2>/dev/null; test ! -s failed",
        folder, ctl, ctl, fake);
    assert_string_equal(r->out, "");
    assert_string_equal(r->err, "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(nothing_there_is_fine),
        CASE(folder_of_a_dead_daemon_goes_and_says_why),
        CASE(json_lists_what_went),
        CASE(a_fresh_empty_folder_is_skipped_and_told),
        CASE(a_socket_between_bind_and_listen_stays),
        CASE(what_lives_or_is_locked_stays),
        CASE(strange_files_are_not_touched),
        CASE(a_base_of_others_is_not_touched),
        CASE(a_named_socket_goes_when_dead),
        CASE(who_looks_is_no_owner),
        CASE(a_base_that_was_replaced_is_not_the_locked_one),
        CASE(d07_clean_in_a_loop_disturbs_nobody),
    };
    return cmocka_run_group_tests_name("occlctl_clean", tests, NULL, NULL);
}
