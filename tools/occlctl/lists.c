/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands that print one table each: jobs, comms, ops, usage, config. */
#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int print_rows(FILE *out, const struct occl_ctl_options *options, const json_t *rows,
                      const struct occl_table_column *columns, size_t count) {
    if (!out)
        return OCCL_CTL_FINE;
    if (occl_table_print(out, columns, count, rows, !options->no_headers) == 0)
        return OCCL_CTL_FINE;
    return occl_ctl_fail(options, OCCL_E_NO_MEMORY, "out of memory");
}

/* An empty table may be right; with a filter it may as well be a name that nobody has. */
static void note_no_match(FILE *out, const struct occl_ctl_options *options, const json_t *rows) {
    bool filtered = options->job || options->comm || options->tenant || options->rank >= 0;
    if (out && filtered && json_array_size(rows) == 0)
        (void)fprintf(stderr, "occlctl: nothing matches the filters\n"); /* nowhere else to tell */
}

static int show_jobs(FILE *out, const struct occl_ctl_options *options, const json_t *reply) {
    static const struct occl_table_column columns[] = {
        {"JOB", "job", OCCL_TABLE_TEXT},
        {"TENANT", "tenant", OCCL_TABLE_TEXT},
        {"STATE", "state", OCCL_TABLE_TEXT},
        {"CLASS", "class", OCCL_TABLE_CLASS},
        {"WEIGHT", "weight", OCCL_TABLE_TEXT},
        {"PROCESSES", "sessions", OCCL_TABLE_TEXT},
        {"COMMS", "comms", OCCL_TABLE_TEXT},
        {"WAITING", "ops_waiting", OCCL_TABLE_TEXT},
        {"OLDEST OP", "oldest_op_age_ns", OCCL_TABLE_AGE},
        {"OPS", "ops_total", OCCL_TABLE_TEXT},
        {"ERRORS", "errors_total", OCCL_TABLE_TEXT},
        {"MEMORY", "registered_bytes", OCCL_TABLE_SIZE},
        {"AGE", "age_ns", OCCL_TABLE_AGE},
    };
    note_no_match(out, options, json_object_get(reply, "jobs"));
    return print_rows(out, options, json_object_get(reply, "jobs"), columns, COUNT(columns));
}

int occl_ctl_jobs(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return occl_ctl_query(options, "jobs", show_jobs);
}

/* Below each communicator its members, so that a rank's process is found without a second command.
 */
static int show_comms(FILE *out, const struct occl_ctl_options *options, const json_t *reply) {
    static const struct occl_table_column columns[] = {
        {"COMM", "comm", OCCL_TABLE_TEXT},    {"NUMBER", "comm_uid", OCCL_TABLE_TEXT},
        {"JOB", "job", OCCL_TABLE_TEXT},      {"TENANT", "tenant", OCCL_TABLE_TEXT},
        {"STATE", "state", OCCL_TABLE_TEXT},  {"RANKS", "ranks", OCCL_TABLE_TEXT},
        {"CLASS", "class", OCCL_TABLE_CLASS}, {"WAITING", "ops_waiting", OCCL_TABLE_TEXT},
        {"AGE", "age_ns", OCCL_TABLE_AGE},    {"CAUSE", "cause", OCCL_TABLE_TEXT},
    };
    static const struct occl_table_column member_columns[] = {
        {"  RANK", "rank", OCCL_TABLE_TEXT},
        {"HOST", "host", OCCL_TABLE_TEXT},
        {"PID", "pid", OCCL_TABLE_TEXT},
        {"STATE", "state", OCCL_TABLE_TEXT},
        {"PROCESS", "process", OCCL_TABLE_TEXT},
        {"LAST OP", "last_op.kind", OCCL_TABLE_TEXT},
        {"TAG", "last_op.tag", OCCL_TABLE_TEXT},
        {"INSTANCE", "last_op.instance", OCCL_TABLE_TEXT},
        {"ACTIVE", "last_activity_age_ns", OCCL_TABLE_AGE},
        {"OPS", "ops_total", OCCL_TABLE_TEXT},
        {"MOVED", "bytes_total", OCCL_TABLE_SIZE},
        {"EXECUTED", "executed_bytes_total", OCCL_TABLE_SIZE},
        {"ERRORS", "errors_total", OCCL_TABLE_TEXT},
    };
    const json_t *comms = json_object_get(reply, "comms");
    note_no_match(out, options, comms);
    int code = print_rows(out, options, comms, columns, COUNT(columns));
    size_t index;
    json_t *comm;
    json_array_foreach(comms, index, comm) {
        if (code != OCCL_CTL_FINE || !out || !(options->verbose || options->comm))
            continue;
        (void)fputc('\n', out); /* stdout is checked at exit */
        occl_table_safe_text(out, occl_table_string(comm, "comm"));
        (void)fputs(":\n", out); /* as above */
        code = print_rows(out, options, json_object_get(comm, "members"), member_columns,
                          COUNT(member_columns));
    }
    return code;
}

int occl_ctl_comms(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return occl_ctl_query(options, "comms", show_comms);
}

static int show_ops(FILE *out, const struct occl_ctl_options *options, const json_t *reply) {
    static const struct occl_table_column columns[] = {
        {"KIND", "kind", OCCL_TABLE_TEXT},
        {"COMM", "comm", OCCL_TABLE_TEXT},
        {"TAG", "tag", OCCL_TABLE_TEXT},
        {"INSTANCE", "instance", OCCL_TABLE_TEXT},
        {"STATE", "state", OCCL_TABLE_TEXT},
        {"TYPE", "dtype", OCCL_TABLE_TEXT},
        {"REDOP", "redop", OCCL_TABLE_TEXT},
        {"SIZE", "bytes", OCCL_TABLE_SIZE},
        {"ROOT", "root", OCCL_TABLE_TEXT},
        {"FROM", "source", OCCL_TABLE_TEXT},
        {"TO", "destination", OCCL_TABLE_TEXT},
        {"ARRIVED", "arrived_text", OCCL_TABLE_TEXT},
        {"MISSING", "missing_text", OCCL_TABLE_TEXT},
        {"AGE", "age_ns", OCCL_TABLE_AGE},
        {"PATH", "path", OCCL_TABLE_TEXT},
        {"PREEMPTED", "preemptions", OCCL_TABLE_TEXT},
        {"STEP", "step", OCCL_TABLE_TEXT},
        {"JOB", "job", OCCL_TABLE_TEXT},
    };
    return print_rows(out, options, json_object_get(reply, "ops"), columns, COUNT(columns));
}

int occl_ctl_ops(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return occl_ctl_query(options, "ops", show_ops);
}

/* One row a job, with its tenant's name and use beside it; a tenant without jobs has a row too. */
static json_t *usage_rows(const json_t *reply) {
    json_t *rows = json_array();
    size_t t;
    json_t *tenant;
    json_array_foreach(json_object_get(reply, "tenants"), t, tenant) {
        json_t *jobs = json_object_get(tenant, "jobs");
        size_t count = json_array_size(jobs);
        for (size_t j = 0; rows && j < (count ? count : 1); j++) {
            json_t *job = json_array_get(jobs, j);
            json_t *row = job ? json_copy(job) : json_object();
            if (!row || json_object_set(row, "of", tenant) != 0 ||
                json_array_append_new(rows, row) != 0) {
                json_decref(rows);
                return NULL;
            }
        }
    }
    return rows;
}

static int show_usage(FILE *out, const struct occl_ctl_options *options, const json_t *reply) {
    static const struct occl_table_column columns[] = {
        {"TENANT", "of.tenant", OCCL_TABLE_TEXT},
        {"SHARE", "of.weight", OCCL_TABLE_TEXT},
        {"PROCESSES", "of.sessions", OCCL_TABLE_TEXT},
        {"MEMORY", "of.registered_bytes", OCCL_TABLE_SIZE},
        {"PEAK", "of.registered_peak_bytes", OCCL_TABLE_SIZE},
        {"JOB", "job", OCCL_TABLE_TEXT},
        {"OPS", "ops_total", OCCL_TABLE_TEXT},
        {"MOVED", "bytes_moved_total", OCCL_TABLE_SIZE},
        {"BY ITSELF", "executed_bytes_total", OCCL_TABLE_SIZE},
        {"LANE CPU", "lane_cpu_ns", OCCL_TABLE_AGE},
        {"PREEMPTED", "preemptions_total", OCCL_TABLE_TEXT},
        {"QUEUE", "queue_depth", OCCL_TABLE_TEXT},
        {"ERRORS", "errors_total", OCCL_TABLE_TEXT},
    };
    json_t *rows = out ? usage_rows(reply) : NULL;
    note_no_match(out, options, rows);
    int code = out && !rows ? occl_ctl_fail(options, OCCL_E_NO_MEMORY, "out of memory")
                            : print_rows(out, options, rows, columns, COUNT(columns));
    json_decref(rows);
    return code;
}

int occl_ctl_usage(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return occl_ctl_query(options, "usage", show_usage);
}

static int show_config(FILE *out, const struct occl_ctl_options *options, const json_t *reply) {
    static const struct occl_table_column columns[] = {
        {"SETTING", "name", OCCL_TABLE_TEXT},
        {"VALUE", "value", OCCL_TABLE_TEXT},
        {"ORIGIN", "origin", OCCL_TABLE_TEXT},
        {"CHANGES WHILE RUNNING", "reloadable", OCCL_TABLE_TEXT},
        {"ACCEPTS", "accepts", OCCL_TABLE_TEXT},
        {"MEANING", "help", OCCL_TABLE_TEXT},
    };
    return print_rows(out, options, json_object_get(reply, "config"), columns,
                      options->verbose ? COUNT(columns) : COUNT(columns) - 2);
}

int occl_ctl_config(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return occl_ctl_query(options, "config", show_config);
}
