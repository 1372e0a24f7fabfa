/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics file: Prometheus text, written under a temporary name and renamed, so that a reader
 * never sees half of one. Rewritten by a timer that runs while processes are attached, and once
 * more when the last has gone: an idle daemon writes nothing and stale jobs vanish. Composed by the
 * loop, written by a scribe: a disk that stands still makes the file old, and nothing else. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/occld.h"
#include "daemon/scribe.h"

/* Some 10000 jobs. Room is touched only as it is used. */
#define ROOM_BYTES (32u << 20)
/* What the end of the daemon waits for the last write. */
#define LAST_WRITE_NS 1000000000u

struct occl_metrics {
    struct occl_timer timer;
    struct occl_scribe *scribe; /* NULL: there is no file, or not yet */
    /* What the scribe needs: it may outlive the daemon, if its last write stands still. */
    char path[OCCL_CONFIG_TEXT_BYTES];
    struct occl_log *log; /* until `over` */
    uint32_t over;
    bool failed; /* logged once until it works again */
};

/* One job's row, gathered once per write: the format wants all samples of a name together. */
struct row {
    char labels[OCCL_TENANT_TEXT_BYTES + OCCL_NAME_BYTES + 32];
    const struct occl_job *job;
    struct occl_job_totals totals;
};

static void head(FILE *out, const char *name, const char *type, const char *help) {
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help,
                   uint64_t value) {
    head(out, name, type, help);
    (void)fprintf(out, "%s %llu\n", name, (unsigned long long)value);
}

enum column {
    COLUMN_SESSIONS,
    COLUMN_COMMS,
    COLUMN_OPS,
    COLUMN_BYTES,
    COLUMN_PREEMPTIONS,
    COLUMN_QUEUE,
    COLUMN_REGISTERED,
    COLUMN_EXECUTED,
};

static uint64_t value_of(const struct row *row, enum column column) {
    switch (column) {
    case COLUMN_SESSIONS:
        return row->job->session_count;
    case COLUMN_COMMS:
        return row->job->comm_count;
    case COLUMN_OPS:
        return row->totals.ops_done;
    case COLUMN_BYTES:
        return row->totals.bytes_done;
    case COLUMN_PREEMPTIONS:
        return row->totals.engine.preemptions;
    case COLUMN_QUEUE:
        return row->totals.engine.queue_depth;
    case COLUMN_REGISTERED:
        return row->job->registered_bytes;
    case COLUMN_EXECUTED:
        return row->totals.bytes_executed + row->totals.engine.bytes_moved;
    }
    return 0;
}

static void write_jobs(FILE *out, const struct row *rows, uint32_t count) {
    static const struct {
        const char *name, *type, *help;
        enum column column;
    } table[] = {
        {"occl_sessions", "gauge", "Attached processes.", COLUMN_SESSIONS},
        {"occl_communicators", "gauge", "Live communicators.", COLUMN_COMMS},
        {"occl_ops_total", "counter", "Operations completed, counted by each rank.", COLUMN_OPS},
        {"occl_op_bytes_total", "counter", "Payload of completed operations, counted by each rank.",
         COLUMN_BYTES},
        {"occl_moved_bytes_total", "counter", "Memory traffic of executed slices.",
         COLUMN_EXECUTED},
        {"occl_preemptions_total", "counter", "Operations that gave up their lane.",
         COLUMN_PREEMPTIONS},
        {"occl_queue_depth", "gauge", "Operations inside the daemon.", COLUMN_QUEUE},
        {"occl_registered_bytes", "gauge", "Shared memory.", COLUMN_REGISTERED},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        head(out, table[i].name, table[i].type, table[i].help);
        for (uint32_t row = 0; row < count; row++)
            (void)fprintf(out, "%s{%s} %llu\n", table[i].name, rows[row].labels,
                          (unsigned long long)value_of(&rows[row], table[i].column));
    }
    head(out, "occl_oldest_incomplete_op_age_seconds", "gauge",
         "Age of the oldest operation that is not complete.");
    for (uint32_t row = 0; row < count; row++)
        (void)fprintf(out, "occl_oldest_incomplete_op_age_seconds{%s} %.3f\n", rows[row].labels,
                      (double)rows[row].totals.oldest_age_ns / 1e9);
    head(out, "occl_daemon_cpu_seconds_total", "counter", "CPU time of lanes for the job.");
    for (uint32_t row = 0; row < count; row++)
        (void)fprintf(out, "occl_daemon_cpu_seconds_total{%s} %.6f\n", rows[row].labels,
                      (double)rows[row].totals.engine.lane_cpu_ns / 1e9);
}

static void write_errors(FILE *out, const struct occl_daemon *daemon) {
    const struct occl_counters *c = &daemon->counters;
    const struct {
        const char *kind;
        uint64_t value;
    } table[] = {
        {"peer_failed", c->peer_failures_total}, {"quarantined", c->quarantined_total},
        {"protocol", c->protocol_total},         {"slow_client", c->slow_total},
        {"refused", c->refused_total},           {"closed_without_detach", c->closed_total},
        {"unkillable", c->unkillable_total},
    };
    head(out, "occl_errors_total", "counter", "Errors by kind.");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        (void)fprintf(out, "occl_errors_total{kind=\"%s\"} %llu\n", table[i].kind,
                      (unsigned long long)table[i].value);
}

static void write_daemon(FILE *out, const struct occl_daemon *daemon) {
    struct occl_engine_counters engine;
    occl_engine_counters(daemon->engine, &engine);
    head(out, "occl_build_info", "gauge", "Version of the daemon.");
    (void)fprintf(out, "occl_build_info{version=\"%s\",abi=\"%u\"} 1\n", OCCL_DAEMON_VERSION,
                  OCCL_ABI_VERSION);
    single(out, "occl_sessions_accepted_total", "counter", "Processes that have attached.",
           daemon->counters.sessions_total);
    single(out, "occl_strays_total", "counter", "Connections that never said hello.",
           daemon->counters.strays_total);
    single(out, "occl_ring_full_total", "counter", "Times a ring or pool of the daemon was full.",
           engine.ring_full);
    single(out, "occl_doorbells_total", "counter", "Doorbells rung by clients.", engine.doorbells);
    single(out, "occl_lane_wakeups_total", "counter", "Times a lane woke.", engine.lane_wakeups);
}

static uint32_t gather(struct occl_daemon *daemon, struct row *rows, uint32_t room) {
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    struct occl_job *job;
    uint32_t count = 0;
    HASH_ITER (in_daemon, daemon->tenants, tenant, next) {
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant) {
            if (count == room)
                break;
            struct row *row = &rows[count++];
            row->job = job;
            (void)snprintf(row->labels, sizeof row->labels, "tenant=\"%s\",job=\"%s\"",
                           tenant->text, job->name);
            occl_totals_job(job, &row->totals);
            row->totals.oldest_age_ns = job->seen_oldest_age_ns;
        }
    }
    return count;
}

/* Allocated, with a terminating zero; NULL: no memory. */
static char *compose(struct occl_daemon *daemon, size_t *out_bytes) {
    struct row *rows = calloc(daemon->job_count + 1, sizeof *rows);
    char *text = NULL;
    FILE *out = rows ? open_memstream(&text, out_bytes) : NULL;
    if (!out) {
        free(rows);
        return NULL;
    }
    uint32_t count = gather(daemon, rows, daemon->job_count);
    write_daemon(out, daemon);
    write_errors(out, daemon);
    if (count)
        write_jobs(out, rows, count);
    free(rows);
    int bad = ferror(out);
    if (fclose(out) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}

static int write_file(const char *path, const char *temporary, const char *text, size_t bytes) {
    FILE *out = fopen(temporary, "we");
    if (!out)
        return errno;
    size_t written = fwrite(text, 1, bytes, out);
    if (fclose(out) != 0 || written != bytes)
        return EIO;
    return rename(temporary, path) == 0 ? 0 : errno;
}

/* The scribe's. Of texts that have had to wait, the last. */
static void write_last(void *self, const char *text, size_t bytes, uint64_t lost) {
    struct occl_metrics *metrics = self;
    const char *path = metrics->path;
    char temporary[OCCL_CONFIG_TEXT_BYTES + 32];
    size_t last = bytes - 1; /* each ends with a zero */
    (void)lost;
    while (last > 0 && text[last - 1])
        last--;
    (void)snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, (int)getpid());
    int error = write_file(path, temporary, text + last, bytes - 1 - last);
    if (error) {
        (void)unlink(temporary);
        if (!metrics->failed && !occl_peek32(&metrics->over))
            OCCL_LOG_WARN(metrics->log, "metrics", "%s cannot be written: %s", path,
                          strerror(error));
    }
    metrics->failed = error != 0;
}

static void write_now(struct occl_daemon *daemon) {
    size_t bytes;
    char *text = compose(daemon, &bytes);
    if (text && daemon->metrics->scribe)
        (void)occl_scribe_hand(daemon->metrics->scribe, text, bytes + 1); /* or it is old, then */
    else if (text) /* at the start, where nobody waits yet */
        write_last(daemon->metrics, text, bytes + 1, 0);
    else
        OCCL_LOG_WARN(daemon->log, "metrics", "no memory to compose %s",
                      daemon->config.metrics_file);
    free(text);
}

static void interval_over(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    write_now(daemon);
    if (daemon->rank_sessions == 0)
        return;
    if (occl_loop_timer_set(daemon->loop, timer,
                            occl_loop_now_ns(daemon->loop) + daemon->config.metrics_interval_ns) !=
        OCCL_OK)
        OCCL_LOG_ERROR(daemon->log, "metrics", "no memory for the timer");
}

void occl_metrics_wake(struct occl_daemon *daemon) {
    if (!daemon->config.metrics_file[0] || !daemon->metrics || daemon->metrics->timer.place)
        return;
    interval_over(&daemon->metrics->timer);
}

int occl_metrics_create(struct occl_daemon *daemon) {
    daemon->metrics = calloc(1, sizeof *daemon->metrics);
    if (!daemon->metrics)
        return OCCL_E_NO_MEMORY;
    daemon->metrics->timer = (struct occl_timer){.fired = interval_over, .owner = daemon};
    daemon->metrics->log = daemon->log;
    (void)snprintf(daemon->metrics->path, sizeof daemon->metrics->path, "%s",
                   daemon->config.metrics_file);
    if (!daemon->metrics->path[0])
        return OCCL_OK;
    write_now(daemon);
    return occl_scribe_create("occld-metrics", ROOM_BYTES, write_last, daemon->metrics,
                              &daemon->metrics->scribe);
}

void occl_metrics_destroy(struct occl_daemon *daemon) {
    if (!daemon->metrics)
        return;
    occl_loop_timer_cancel(daemon->loop, &daemon->metrics->timer);
    struct occl_metrics *metrics = daemon->metrics;
    daemon->metrics = NULL;
    if (!occl_scribe_destroy(metrics->scribe, LAST_WRITE_NS)) {
        occl_note32(&metrics->over, 1);
        return;
    }
    if (metrics->path[0] && daemon->engine)
        (void)unlink(metrics->path);
    free(metrics);
}
