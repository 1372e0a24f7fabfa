/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines. A level says who must act: error the operator now, warn the operator later, info
 * nobody (life cycle), debug a developer. Messages are lower case, "name value", ids first, system
 * error last: "session 7 ring distance 4096: session quarantined". The function that decides an
 * error logs it, once.
 *
 * Each call site may write OCCL_LOG_BURST lines in OCCL_LOG_WINDOW_NS; what it holds back is
 * counted and the count printed with its next line (or by occl_log_flush). So no tenant can fill a
 * disk, and no lane is slowed by more than a few writes a second. errno is preserved. A line is one
 * write of at most OCCL_LOG_LINE_BYTES; control characters in it become '?', so that a name cannot
 * forge lines.
 *
 * Thread-safe without a lock: any thread may log; nothing allocates. A write to a full pipe blocks:
 * the daemon's goes through a thread of its own (daemon/scribe.h), and lanes log only failures. */
#ifndef SHM_IPC_LOG_H
#define SHM_IPC_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm_ipc/atomics.h"
#include "shm_ipc/clock.h"

#define OCCL_LOG_LINE_BYTES 1024
#define OCCL_LOG_SITES 128 /* call sites with a budget of their own; more of them share one */
#define OCCL_LOG_BURST 10
#define OCCL_LOG_WINDOW_NS 5000000000ull

enum occl_log_level {
    OCCL_LOG_LEVEL_NONE = 0,
    OCCL_LOG_LEVEL_ERROR = 1,
    OCCL_LOG_LEVEL_WARN = 2,
    OCCL_LOG_LEVEL_INFO = 3,
    OCCL_LOG_LEVEL_DEBUG = 4,
};
enum occl_log_format {
    OCCL_LOG_FORMAT_TEXT = 0,    /* time level module: message */
    OCCL_LOG_FORMAT_JSON = 1,    /* one object a line: time, level, module, text, suppressed */
    OCCL_LOG_FORMAT_JOURNAL = 2, /* "<4>module: message": the journal adds time and level */
};

/* Constant, one per call site; its address is the site's identity. */
struct occl_log_site {
    const char *module;
    const char *file;
    uint32_t line;
    uint32_t level; /* enum occl_log_level */
};

struct occl_log_config {
    enum occl_log_level level; /* lines above it are dropped */
    enum occl_log_format format;
    int fd;                         /* where lines go when write is NULL; stays the caller's */
    const struct occl_clock *clock; /* outlives the log */
    /* Receives whole lines without the newline; called on the logging thread. NULL: fd. */
    void (*write)(void *self, enum occl_log_level level, const char *line, size_t bytes);
    void *self;
};

/* Budget of a call site: site is claimed once; window and lines are one word, so that a burst is
 * counted exactly whoever races. */
struct occl_log_budget {
    uint64_t site;         /* address of the struct occl_log_site, 0: free */
    uint64_t window_lines; /* window number << 16 | lines written in it */
    uint64_t suppressed;
};

struct occl_log {
    struct occl_log_config config;
    uint32_t level; /* may change while running: occl_log_set_level */
    uint64_t lines_total;
    uint64_t suppressed_total;
    struct occl_log_budget budgets[OCCL_LOG_SITES];
};

void occl_log_init(struct occl_log *log, const struct occl_log_config *config);
/* Writes one line for each site that has something suppressed. At shutdown, and from a timer. */
void occl_log_flush(struct occl_log *log);
static inline void occl_log_set_level(struct occl_log *log, enum occl_log_level level) {
    occl_note32(&log->level, level);
}
static inline bool occl_log_enabled(const struct occl_log *log, enum occl_log_level level) {
    return log != NULL && (uint32_t)level <= occl_peek32(&log->level);
}
/* "error" and so on; occl_log_level_parse returns OCCL_E_INVALID for any other word. */
const char *occl_log_level_name(enum occl_log_level level);
int occl_log_level_parse(const char *name, enum occl_log_level *out_level);

/* Behind the macros. */
void occl_log_emit(struct occl_log *log, const struct occl_log_site *site, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* log may be NULL: then nothing is evaluated and nothing written. */
#define OCCL_LOG_AT(log_, level_, module_, ...)                                               \
    do {                                                                                      \
        static const struct occl_log_site occl_site_ = {module_, __FILE__, __LINE__, level_}; \
        if (occl_log_enabled((log_), (level_)))                                               \
            occl_log_emit((log_), &occl_site_, __VA_ARGS__);                                  \
    } while (0)
#define OCCL_LOG_ERROR(log_, module_, ...) \
    OCCL_LOG_AT(log_, OCCL_LOG_LEVEL_ERROR, module_, __VA_ARGS__)
#define OCCL_LOG_WARN(log_, module_, ...) \
    OCCL_LOG_AT(log_, OCCL_LOG_LEVEL_WARN, module_, __VA_ARGS__)
#define OCCL_LOG_INFO(log_, module_, ...) \
    OCCL_LOG_AT(log_, OCCL_LOG_LEVEL_INFO, module_, __VA_ARGS__)
#define OCCL_LOG_DEBUG(log_, module_, ...) \
    OCCL_LOG_AT(log_, OCCL_LOG_LEVEL_DEBUG, module_, __VA_ARGS__)

#endif
