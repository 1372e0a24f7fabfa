/* SPDX-License-Identifier: Apache-2.0 */
/* The demo as a whole, on programs that are already built. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/tools/shell.h"

static const char *folder;

static int set_up(void **state) {
    (void)state;
    folder = shell_enter();
    /* Other users must reach the programs. */
    (void)shell_expect(0, "chmod 755 %s && mkdir %s/bin && cp -L %s %s %s/bin", folder, folder,
                       shell_file("daemon/occld"), shell_file("daemon/occld_ordered"), folder);
    (void)shell_expect(0, "cp -L %s %s %s/bin", shell_file("tools/occlctl/occlctl"),
                       shell_file("tools/demo_job/demo_job"), folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    shell_leave();
    return 0;
}

#define HAS(text, part) assert_non_null(strstr((text), (part)))

static void the_demo_passes_and_leaves_nothing(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --binaries %s/bin --rounds 2 --seed 42",
                                                shell_file("tools/demo"), folder);
    HAS(r->out, "seed 42");
    HAS(r->out, "job A (class high): 1544 operations, ");
    HAS(r->out, "job B (class normal): 1544 operations, ");
    HAS(r->out, ", 0 wrong values\n");
    HAS(r->out, "preemptions: ");
    HAS(r->out, "negative control: same orders, ordered executor: hung after ");
    HAS(r->out, " s; equal orders: completed\n");
    static const char last[] = "\ndemo: PASS\n";
    assert_string_equal(r->out + strlen(r->out) - strlen(last), last);
    (void)shell_expect(0, "! ls -d %s/occl-demo.*", folder);
}

static void wrong_options_are_2(void **state) {
    (void)state;
    const char *demo = shell_file("tools/demo");
    (void)shell_expect(2, "%s --bogus", demo);
    (void)shell_expect(2, "%s --seed", demo);
    (void)shell_expect(2, "%s --seed x --binaries %s/bin", demo, folder);
    (void)shell_expect(2, "%s --rounds 0 --binaries %s/bin", demo, folder);
    HAS(shell_expect(0, "%s --help", demo)->out, "tools/demo [--seed N]");
}

/* Stopped in its middle, it takes its processes and files along. */
static void an_interrupted_demo_leaves_nothing(void **state) {
    (void)state;
    const char *demo = shell_file("tools/demo");
    long pid =
        shell_start("exec %s --binaries %s/bin --rounds 50 >%s/out 2>&1", demo, folder, folder);
    /* By the path: other daemons of this machine are none of our business. */
    assert_true(shell_wait(30000, "-n \"$(pgrep -f '^%s/occl-demo[.].*/demo_job')\"", folder));
    assert_int_equal(shell_stop(pid, SIGTERM), 143);
    (void)shell_expect(0, "! ls -d %s/occl-demo.*", folder);
    (void)shell_expect(0, "! pgrep -f '^%s/occl-demo[.]'", folder);
    HAS(shell_expect(0, "tail -n 1 %s/out", folder)->out, "demo: FAIL");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_demo_passes_and_leaves_nothing),
        CASE(wrong_options_are_2),
        CASE(an_interrupted_demo_leaves_nothing),
    };
    return cmocka_run_group_tests_name("demo", tests, NULL, NULL);
}
