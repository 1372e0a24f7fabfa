/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: formats, escaping, levels, the budget of each call site, errno, many threads. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/log.h"
#include "shm_ipc/status.h"

struct bench {
    struct occl_clock_virtual v;
    struct occl_clock clock;
    struct occl_log log;
    char last[OCCL_LOG_LINE_BYTES];
    enum occl_log_level last_level;
    uint32_t lines;
};

static void keep(void *self, enum occl_log_level level, const char *line, size_t bytes) {
    struct bench *b = self;
    assert_true(bytes < OCCL_LOG_LINE_BYTES);
    assert_int_equal(strlen(line), bytes);
    memcpy(b->last, line, bytes + 1);
    b->last_level = level;
    b->lines++;
}

static void set_up(struct bench *b, enum occl_log_format format) {
    memset(b, 0, sizeof *b);
    b->clock = occl_clock_virtual_init(&b->v, 1);
    struct occl_log_config config = {OCCL_LOG_LEVEL_INFO, format, -1, &b->clock, keep, b};
    occl_log_init(&b->log, &config);
}

static void lines_have_their_format(void **state) {
    (void)state;
    struct bench b;
    set_up(&b, OCCL_LOG_FORMAT_TEXT);
    OCCL_LOG_WARN(&b.log, "ring", "session %d distance %u", 7, 4096u);
    assert_string_equal(b.last, "2023-11-14T22:13:21.000Z warn ring: session 7 distance 4096");
    assert_int_equal(b.last_level, OCCL_LOG_LEVEL_WARN);
    set_up(&b, OCCL_LOG_FORMAT_JOURNAL);
    OCCL_LOG_ERROR(&b.log, "loop", "socket lost");
    assert_string_equal(b.last, "<3>loop: socket lost");
    OCCL_LOG_INFO(&b.log, "loop", "job started");
    assert_string_equal(b.last, "<6>loop: job started");
    set_up(&b, OCCL_LOG_FORMAT_JSON);
    OCCL_LOG_INFO(&b.log, "loop", "job \"a\\b\" started");
    assert_string_equal(b.last, "{\"time\":\"2023-11-14T22:13:21.000Z\",\"level\":\"info\","
                                "\"module\":\"loop\",\"text\":\"job \\\"a\\\\b\\\" started\"}");
}

static void names_cannot_forge_lines(void **state) {
    (void)state;
    struct bench b;
    set_up(&b, OCCL_LOG_FORMAT_TEXT);
    OCCL_LOG_INFO(&b.log, "m", "job %s", "x\n2023 error daemon: fake\x1b[2J\x7f\xff");
    assert_null(strchr(b.last, '\n'));
    assert_non_null(strstr(b.last, "job x?2023 error daemon: fake?[2J??"));
}

static void long_lines_are_cut(void **state) {
    (void)state;
    char text[3000];
    memset(text, '"', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int format = OCCL_LOG_FORMAT_TEXT; format <= OCCL_LOG_FORMAT_JOURNAL; format++) {
        struct bench b;
        set_up(&b, (enum occl_log_format)format);
        OCCL_LOG_INFO(&b.log, "m", "%s", text);
        assert_int_equal(b.lines, 1);
        if (format == OCCL_LOG_FORMAT_JSON) {
            /* Still an object: the cut never falls into an escape. */
            size_t end = strlen(b.last);
            assert_string_equal(b.last + end - 4, "\\\"\"}");
            size_t backslashes = 0, quotes = 0;
            for (const char *c = strstr(b.last, "text\":\"") + 7; *c; c++) {
                backslashes += *c == '\\';
                quotes += *c == '"';
            }
            assert_int_equal(quotes, backslashes + 1);
        }
    }
}

static void levels_filter(void **state) {
    (void)state;
    struct bench b;
    int evaluated = 0;
    set_up(&b, OCCL_LOG_FORMAT_TEXT);
    OCCL_LOG_DEBUG(&b.log, "m", "%d", ++evaluated);
    assert_int_equal(b.lines, 0);
    assert_int_equal(evaluated, 0);
    occl_log_set_level(&b.log, OCCL_LOG_LEVEL_DEBUG);
    OCCL_LOG_DEBUG(&b.log, "m", "%d", ++evaluated);
    assert_int_equal(b.lines, 1);
    occl_log_set_level(&b.log, OCCL_LOG_LEVEL_NONE);
    OCCL_LOG_ERROR(&b.log, "m", "%d", ++evaluated);
    assert_int_equal(b.lines, 1);
    struct occl_log *none = NULL;
    OCCL_LOG_ERROR(none, "m", "%d", ++evaluated);
    assert_int_equal(evaluated, 1);
    for (int level = OCCL_LOG_LEVEL_NONE; level <= OCCL_LOG_LEVEL_DEBUG; level++) {
        enum occl_log_level parsed = OCCL_LOG_LEVEL_NONE;
        const char *name = occl_log_level_name((enum occl_log_level)level);
        assert_int_equal(occl_log_level_parse(name, &parsed), OCCL_OK);
        assert_int_equal(parsed, level);
    }
    enum occl_log_level parsed;
    assert_int_equal(occl_log_level_parse("loud", &parsed), OCCL_E_INVALID);
    assert_string_equal(occl_log_level_name((enum occl_log_level)17), "unknown");
}

static void say(struct bench *b, int number) {
    OCCL_LOG_WARN(&b->log, "m", "number %d", number);
}

static void each_site_has_a_budget(void **state) {
    (void)state;
    struct bench b;
    set_up(&b, OCCL_LOG_FORMAT_TEXT);
    for (int i = 0; i < 1000; i++)
        say(&b, i);
    assert_int_equal(b.lines, OCCL_LOG_BURST);
    assert_null(strstr(b.last, "suppressed"));
    /* Another site is not concerned. */
    OCCL_LOG_WARN(&b.log, "m", "elsewhere");
    assert_int_equal(b.lines, OCCL_LOG_BURST + 1);
    assert_int_equal(b.log.suppressed_total, 1000 - OCCL_LOG_BURST);
    occl_clock_virtual_advance(&b.v, OCCL_LOG_WINDOW_NS);
    say(&b, 1000);
    assert_non_null(strstr(b.last, "number 1000 (suppressed 990)"));
    say(&b, 1001);
    assert_null(strstr(b.last, "suppressed"));
    assert_int_equal(b.lines, OCCL_LOG_BURST + 3);
}

static void flush_prints_what_was_held_back(void **state) {
    (void)state;
    struct bench b;
    set_up(&b, OCCL_LOG_FORMAT_JSON);
    for (int i = 0; i < 25; i++)
        say(&b, i);
    occl_log_flush(&b.log);
    assert_int_equal(b.lines, OCCL_LOG_BURST + 1);
    assert_non_null(strstr(b.last, "log_test.c"));
    assert_non_null(strstr(b.last, "\"suppressed\":15}"));
    occl_log_flush(&b.log);
    assert_int_equal(b.lines, OCCL_LOG_BURST + 1);
}

static void more_sites_than_budgets_share(void **state) {
    (void)state;
    static struct occl_log_site sites[OCCL_LOG_SITES + 50];
    struct bench b;
    set_up(&b, OCCL_LOG_FORMAT_TEXT);
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) {
        struct occl_log_site site = {"m", "file.c", (uint32_t)i, OCCL_LOG_LEVEL_INFO};
        sites[i] = site;
        occl_log_emit(&b.log, &sites[i], "site %zu", i);
    }
    assert_in_range(b.lines, OCCL_LOG_SITES, OCCL_LOG_SITES + 50);
}

static void errno_is_preserved(void **state) {
    (void)state;
    struct bench b;
    int ends[2];
    set_up(&b, OCCL_LOG_FORMAT_TEXT);
    errno = ENOSPC;
    OCCL_LOG_ERROR(&b.log, "m", "write: %m");
    assert_int_equal(errno, ENOSPC);
    assert_non_null(strstr(b.last, "No space left"));
    /* A log that cannot be written. */
    assert_int_equal(pipe(ends), 0);
    (void)close(ends[1]);
    struct occl_log_config config = {
        OCCL_LOG_LEVEL_INFO, OCCL_LOG_FORMAT_TEXT, ends[0], &b.clock, NULL, NULL};
    occl_log_init(&b.log, &config);
    errno = ERANGE;
    OCCL_LOG_ERROR(&b.log, "m", "lost");
    assert_int_equal(errno, ERANGE);
    (void)close(ends[0]);
}

/* ---- threads ---- */

#define THREADS 4
#define EACH 5000

static void *shout(void *arg) {
    struct occl_log *log = arg;
    for (int i = 0; i < EACH; i++)
        OCCL_LOG_INFO(log, "m", "shout %d", i);
    return NULL;
}

static void threads_share_a_budget_exactly(void **state) {
    (void)state;
    struct occl_clock_virtual v;
    struct occl_clock clock = occl_clock_virtual_init(&v, 1);
    struct occl_log log;
    int ends[2];
    char text[64 << 10];
    pthread_t threads[THREADS];
    assert_int_equal(pipe(ends), 0);
    struct occl_log_config config = {
        OCCL_LOG_LEVEL_INFO, OCCL_LOG_FORMAT_TEXT, ends[1], &clock, NULL, NULL};
    occl_log_init(&log, &config);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, shout, &log), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], text + used, sizeof text - used - 1)) > 0)
        used += (size_t)got;
    (void)close(ends[0]);
    text[used] = '\0';
    uint32_t lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, OCCL_LOG_BURST);
    assert_int_equal(log.lines_total, OCCL_LOG_BURST);
    assert_int_equal(log.suppressed_total, THREADS * EACH - OCCL_LOG_BURST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_their_format),
        cmocka_unit_test(names_cannot_forge_lines),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(levels_filter),
        cmocka_unit_test(each_site_has_a_budget),
        cmocka_unit_test(flush_prints_what_was_held_back),
        cmocka_unit_test(more_sites_than_budgets_share),
        cmocka_unit_test(errno_is_preserved),
        cmocka_unit_test(threads_share_a_budget_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
