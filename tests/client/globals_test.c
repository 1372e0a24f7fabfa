/* SPDX-License-Identifier: Apache-2.0 */
/* E06: programs whose destructors use the library after main, that leave from a thread, and that
 * load and close the library again and again. They are C++ programs of their own (globals.cc,
 * plugin.cc); each is to end with its own status in time, and to leave nothing in the daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/abuse/scene.h"

static struct world w;
static struct scene_holdings before;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    usleep(50000);
    before = scene_holdings_of(w.daemon);
    return setenv("OCCL_SOCKET", w.socket, 1);
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w) == 0 ? 0 : -1;
}

static void run(const char *program, const char *first, const char *second, int limit_s) {
    char path[256];
    const char *folder = getenv("PROGRAMS") ? getenv("PROGRAMS") : "tests/client";
    (void)snprintf(path, sizeof path, "%s/%s", folder, program);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl(path, path, first, second, (char *)NULL);
        perror(path);
        _exit(127);
    }
    int status = world_wait(pid, limit_s);
    if (status == -1)
        print_error("%s %s did not end\n", program, first);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        print_error("%s %s ended with 0x%x\n", program, first, (unsigned)status);
    assert_true(status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    scene_expect_holdings(w.daemon, before);
}

static void test_E06_destructors_after_main(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++)
        run("globals", "careful", NULL, 2);
}

static void test_E06_globals_that_are_left(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++)
        run("globals", "careless", NULL, 2);
}

static void test_E06_destructors_beside_busy_threads(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++)
        run("globals", "busy", NULL, 2);
}

static void test_E06_exit_from_a_second_thread(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++)
        run("globals", "thread", NULL, 2);
}

static void test_E06_library_is_loaded_and_closed(void **state) {
    const char *library = getenv("LIBOCCL") ? getenv("LIBOCCL") : "client_lib/liboccl.so.0";
    (void)state;
    run("plugin", library, "24", 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_E06_destructors_after_main),
        cmocka_unit_test(test_E06_globals_that_are_left),
        cmocka_unit_test(test_E06_destructors_beside_busy_threads),
        cmocka_unit_test(test_E06_exit_from_a_second_thread),
        cmocka_unit_test(test_E06_library_is_loaded_and_closed),
    };
    return cmocka_run_group_tests_name("client_globals", tests, setup, teardown);
}
