/* SPDX-License-Identifier: Apache-2.0 */
/* Runs shell commands for tests of programs and keeps what they said. */
#ifndef TESTS_TOOLS_SHELL_H
#define TESTS_TOOLS_SHELL_H

#include <jansson.h>

#define SHELL_OUTPUT_BYTES 65536

struct shell_result {
    int code; /* exit status, 128 + signal */
    char out[SHELL_OUTPUT_BYTES];
    char err[SHELL_OUTPUT_BYTES];
};

/* Makes a fresh folder below the temporary directory and lets the environment point there: TMPDIR
 * and HOME; XDG_RUNTIME_DIR and all OCCL_ variables are unset. Returns its path; one at a time. */
const char *shell_enter(void);
/* Removes the folder with all in it. */
void shell_leave(void);

/* Runs the command with sh; output beyond the buffers is cut. The result belongs to the caller's
 * next call. */
const struct shell_result *shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, and the test fails with the output unless the exit status is as expected. */
const struct shell_result *shell_expect(int code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Absolute path of a file that is a data dependency of the test, by its place in the repository.
 * Four may be in use at once. */
const char *shell_file(const char *path);

/* Starts a command in the background (exec'ed, so that the number is its own) and returns its
 * process number. */
long shell_start(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Sends a signal (0: none) and waits; returns the exit status, 128 + signal. */
int shell_stop(long pid, int signal_number);
/* Waits up to timeout_ms for the condition `test ...` of sh to hold; returns 1 if it does. */
int shell_wait(int timeout_ms, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parses out as one JSON object, nothing before or behind; the test fails otherwise. The caller
 * releases it. */
json_t *shell_json(const struct shell_result *result);

#endif
