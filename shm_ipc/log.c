/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shm_ipc/status.h"

#define WINDOW_SHIFT 16
#define WINDOW_LINES_MASK 0xffffull
/* Text of one message before it is escaped; JSON escaping may double it. */
#define MESSAGE_BYTES 800

static const char *const level_names[] = {"none", "error", "warn", "info", "debug"};

const char *occl_log_level_name(enum occl_log_level level) {
    return (unsigned)level < sizeof level_names / sizeof *level_names ? level_names[level]
                                                                      : "unknown";
}

int occl_log_level_parse(const char *name, enum occl_log_level *out_level) {
    for (unsigned i = 0; i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out_level = (enum occl_log_level)i;
            return OCCL_OK;
        }
    }
    return OCCL_E_INVALID;
}

void occl_log_init(struct occl_log *log, const struct occl_log_config *config) {
    memset(log, 0, sizeof *log);
    log->config = *config;
    log->level = config->level;
}

/* ---- a line under construction: what does not fit is cut ---- */

struct line {
    char text[OCCL_LOG_LINE_BYTES];
    size_t bytes;
    size_t limit; /* leaves room for what has to come last */
};

static void put_char(struct line *line, char c) {
    if (line->bytes < line->limit)
        line->text[line->bytes++] = c;
}

static void put_text(struct line *line, const char *text) {
    for (; *text; text++)
        put_char(line, *text);
}

/* Printable ASCII as it is, everything else '?': a name of a tenant can forge neither a line nor a
 * terminal sequence. */
static char sanitised(char c) {
    return c >= ' ' && c <= '~' ? c : '?';
}

static void put_message(struct line *line, const char *message, bool json) {
    for (; *message; message++) {
        char c = sanitised(*message);
        if (!json || (c != '"' && c != '\\')) {
            put_char(line, c);
        } else if (line->bytes + 2 <= line->limit) { /* never half an escape */
            put_char(line, '\\');
            put_char(line, c);
        }
    }
}

static void put_time(struct line *line, uint64_t wall_ns) {
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm parts;
    char text[64];
    if (gmtime_r(&seconds, &parts) == NULL)
        memset(&parts, 0, sizeof parts);
    size_t bytes = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + bytes, sizeof text - bytes, ".%03uZ", (unsigned)(wall_ns / 1000000u % 1000u));
    put_text(line, text);
}

static void put_suppressed(struct line *line, uint64_t suppressed, bool json) {
    char text[64];
    if (suppressed == 0)
        return;
    snprintf(text, sizeof text, json ? ",\"suppressed\":%llu" : " (suppressed %llu)",
             (unsigned long long)suppressed);
    put_text(line, text);
}

static void compose(struct line *line, const struct occl_log *log, const struct occl_log_site *site,
                    const char *message, uint64_t suppressed) {
    const bool json = log->config.format == OCCL_LOG_FORMAT_JSON;
    const char *level = occl_log_level_name((enum occl_log_level)site->level);
    const struct occl_clock *clock = log->config.clock;
    line->bytes = 0;
    line->limit = sizeof line->text - 64;
    switch (log->config.format) {
    case OCCL_LOG_FORMAT_JSON:
        put_text(line, "{\"time\":\"");
        put_time(line, occl_clock_wall_ns(clock));
        put_text(line, "\",\"level\":\"");
        put_text(line, level);
        put_text(line, "\",\"module\":\"");
        put_text(line, site->module);
        put_text(line, "\",\"text\":\"");
        break;
    case OCCL_LOG_FORMAT_JOURNAL: {
        /* Priorities of syslog: err 3, warning 4, info 6, debug 7. */
        static const char prefix[] = "33467";
        put_char(line, '<');
        put_char(line, prefix[site->level < sizeof prefix - 1 ? site->level : 0]);
        put_text(line, ">");
        put_text(line, site->module);
        put_text(line, ": ");
        break;
    }
    case OCCL_LOG_FORMAT_TEXT:
        put_time(line, occl_clock_wall_ns(clock));
        put_char(line, ' ');
        put_text(line, level);
        put_char(line, ' ');
        put_text(line, site->module);
        put_text(line, ": ");
        break;
    }
    put_message(line, message, json);
    line->limit = sizeof line->text - 2;
    if (json)
        put_char(line, '"');
    put_suppressed(line, suppressed, json);
    if (json)
        put_char(line, '}');
}

static void write_line(struct occl_log *log, const struct occl_log_site *site, const char *message,
                       uint64_t suppressed) {
    struct line line;
    compose(&line, log, site, message, suppressed);
    occl_count64(&log->lines_total, 1);
    if (log->config.write != NULL) {
        line.text[line.bytes] = '\0';
        log->config.write(log->config.self, (enum occl_log_level)site->level, line.text,
                          line.bytes);
        return;
    }
    line.text[line.bytes++] = '\n';
    ssize_t done;
    do {
        done = write(log->config.fd, line.text, line.bytes);
    } while (done < 0 && errno == EINTR);
    /* A log that cannot be written has nowhere to say so. */
}

/* ---- budgets ---- */

/* Open addressing from a hash of the site's address; when the table is full, sites share the last
 * place they looked at. */
static struct occl_log_budget *budget_of(struct occl_log *log, const struct occl_log_site *site) {
    uint64_t key = (uint64_t)(uintptr_t)site;
    uint64_t hash = (key * 0x9e3779b97f4a7c15ull) >> 32;
    struct occl_log_budget *budget = NULL;
    for (uint64_t i = 0; i < OCCL_LOG_SITES; i++) {
        budget = &log->budgets[(hash + i) % OCCL_LOG_SITES];
        uint64_t found = occl_observe64(&budget->site);
        if (found == 0 && occl_claim64(&budget->site, &found, key))
            return budget;
        if (found == key)
            return budget;
    }
    return budget;
}

static bool spend(struct occl_log_budget *budget, uint64_t now_ns) {
    /* Window 0 is "never used", so that a fresh budget and a clock at 0 agree. */
    uint64_t window = now_ns / OCCL_LOG_WINDOW_NS + 1;
    uint64_t found = occl_peek64(&budget->window_lines);
    for (;;) {
        uint64_t lines = found >> WINDOW_SHIFT == window ? found & WINDOW_LINES_MASK : 0;
        if (lines >= OCCL_LOG_BURST)
            return false;
        if (occl_claim64(&budget->window_lines, &found, (window << WINDOW_SHIFT) | (lines + 1)))
            return true;
    }
}

static uint64_t take_suppressed(struct occl_log_budget *budget) {
    uint64_t count = occl_peek64(&budget->suppressed);
    while (count > 0 && !occl_claim64(&budget->suppressed, &count, 0))
        continue;
    return count;
}

void occl_log_emit(struct occl_log *log, const struct occl_log_site *site, const char *fmt, ...) {
    int saved_errno = errno;
    struct occl_log_budget *budget = budget_of(log, site);
    if (spend(budget, occl_clock_now_ns(log->config.clock))) {
        char message[MESSAGE_BYTES];
        va_list args;
        va_start(args, fmt);
        errno = saved_errno; /* for %m */
        if (vsnprintf(message, sizeof message, fmt, args) < 0)
            message[0] = '\0';
        va_end(args);
        write_line(log, site, message, take_suppressed(budget));
    } else {
        occl_count64(&budget->suppressed, 1);
        occl_count64(&log->suppressed_total, 1);
    }
    errno = saved_errno;
}

void occl_log_flush(struct occl_log *log) {
    int saved_errno = errno;
    for (uint32_t i = 0; i < OCCL_LOG_SITES; i++) {
        struct occl_log_budget *budget = &log->budgets[i];
        uint64_t key = occl_observe64(&budget->site);
        uint64_t count = key ? take_suppressed(budget) : 0;
        if (count == 0)
            continue;
        const struct occl_log_site *site = (const struct occl_log_site *)(uintptr_t)key;
        char message[MESSAGE_BYTES];
        snprintf(message, sizeof message, "%s line %u: more of these lines were held back",
                 site->file, site->line);
        write_line(log, site, message, count);
    }
    errno = saved_errno;
}
