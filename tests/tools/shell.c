/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tools/shell.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static char start_folder[PATH_MAX];
static struct shell_result result;

const char *shell_enter(void) {
    if (!start_folder[0])
        assert_non_null(getcwd(start_folder, sizeof start_folder));
    /* Short, because socket paths are; a test's own TMPDIR may be long. */
    (void)snprintf(folder, sizeof folder, "/tmp/occl-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    assert_int_equal(setenv("HOME", folder, 1), 0);
    static const char *const unset[] = {"XDG_RUNTIME_DIR", "OCCL_SOCKET", "OCCL_JOB",
                                        "OCCL_RANK",       "OCCL_SIZE",   "OCCL_UNIQUE_ID",
                                        "OCCL_TENANT_TAG"};
    for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++)
        assert_int_equal(unsetenv(unset[i]), 0);
    return folder;
}

void shell_leave(void) {
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf -- '%s'", folder);
    assert_int_equal(system(command), 0);
}

static int exit_code(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void read_all(const char *name, char *out_text) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(out_text, 1, SHELL_OUTPUT_BYTES - 1, file) : 0;
    out_text[got] = '\0';
    if (file)
        (void)fclose(file);
    (void)unlink(path);
}

static void run(const char *command) {
    char *whole = NULL;
    assert_true(
        asprintf(&whole, "{ %s\n} >'%s/shell.out' 2>'%s/shell.err'", command, folder, folder) > 0);
    int status = system(whole);
    free(whole);
    assert_int_not_equal(status, -1);
    result.code = exit_code(status);
    read_all("shell.out", result.out);
    read_all("shell.err", result.err);
}

__attribute__((format(printf, 1, 0))) static char *format(const char *fmt, va_list args) {
    char *text = NULL;
    assert_true(vasprintf(&text, fmt, args) >= 0);
    return text;
}

const struct shell_result *shell(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *command = format(fmt, args);
    va_end(args);
    run(command);
    free(command);
    return &result;
}

const struct shell_result *shell_expect(int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *command = format(fmt, args);
    va_end(args);
    run(command);
    if (result.code != code)
        print_error("%s\n--- status %d, expected %d; err:\n%s--- out:\n%s---\n", command,
                    result.code, code, result.err, result.out);
    free(command);
    assert_int_equal(result.code, code);
    return &result;
}

const char *shell_file(const char *path) {
    static char paths[4][PATH_MAX];
    static int next;
    char *out = paths[next++ % 4];
    if (!start_folder[0])
        assert_non_null(getcwd(start_folder, sizeof start_folder));
    assert_true(snprintf(out, PATH_MAX, "%s/%s", start_folder, path) < PATH_MAX);
    if (access(out, F_OK) != 0)
        print_error("missing: %s\n", out);
    assert_int_equal(access(out, F_OK), 0);
    return out;
}

long shell_start(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *command = format(fmt, args);
    va_end(args);
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    free(command);
    assert_true(pid > 0);
    return pid;
}

int shell_stop(long pid, int signal_number) {
    int status = 0;
    if (signal_number)
        (void)kill((pid_t)pid, signal_number);
    assert_int_equal(waitpid((pid_t)pid, &status, 0), pid);
    return exit_code(status);
}

int shell_wait(int timeout_ms, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *condition = format(fmt, args);
    va_end(args);
    char *whole = NULL;
    assert_true(asprintf(&whole, "test %s", condition) > 0);
    free(condition);
    struct timespec step = {.tv_nsec = 10000000};
    int holds = 0;
    for (int waited_ms = 0; !holds && waited_ms <= timeout_ms; waited_ms += 10) {
        holds = system(whole) == 0;
        if (!holds)
            (void)nanosleep(&step, NULL);
    }
    free(whole);
    return holds;
}

json_t *shell_json(const struct shell_result *of) {
    json_error_t error;
    json_t *object = json_loads(of->out, 0, &error);
    if (!json_is_object(object))
        print_error("not one JSON object (%s):\n%s---\n", error.text, of->out);
    assert_true(json_is_object(object));
    return object;
}
