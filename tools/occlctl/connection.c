/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching the daemon, asking once or again and again, and telling how it ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_lib/locate.h"
#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

#define CUT_LINES_MAX 10

int occl_ctl_exit_code(int status) {
    switch (status) {
    case OCCL_OK:
        return OCCL_CTL_FINE;
    case OCCL_E_USAGE:
    case OCCL_E_INVALID:
        return OCCL_CTL_USAGE;
    case OCCL_E_NO_DAEMON:
    case OCCL_E_DAEMON_LOST:
    case OCCL_E_TIMEOUT:
    case OCCL_E_VERSION:
    case OCCL_E_PROTOCOL:
        return OCCL_CTL_NO_DAEMON;
    case OCCL_E_PERMISSION:
    case OCCL_E_TENANT_REFUSED:
        return OCCL_CTL_FORBIDDEN;
    default:
        return OCCL_CTL_PROBLEM;
    }
}

const char *occl_ctl_hint(int status) {
    switch (status) {
    case OCCL_E_NO_DAEMON:
        return "start occld, or name its socket with --socket";
    case OCCL_E_DAEMON_LOST:
        return "see the daemon's log";
    case OCCL_E_TIMEOUT:
        return "is the daemon stopped? a longer --timeout waits longer";
    case OCCL_E_VERSION:
        return "use the occlctl that came with this daemon";
    case OCCL_E_PROTOCOL:
        return "is this the socket of occld?";
    case OCCL_E_PERMISSION:
        return "the modes of the socket and of the folders above it say who may connect";
    default:
        return NULL;
    }
}

/* What to do when the daemon was reached and has refused. */
static const char *hint_for_answer(int status, const char *verb) {
    bool set = verb && strcmp(verb, "set") == 0;
    if (status == OCCL_E_PERMISSION)
        return "`occlctl config` shows operator_group";
    if (status == OCCL_E_BUSY)
        return "ask again in a moment";
    if (status == OCCL_E_NOT_FOUND && set)
        return "`occlctl jobs` lists jobs, `occlctl usage` tenants, `occlctl set --help` keys";
    if (status == OCCL_E_NOT_FOUND)
        return "`occlctl jobs` and `occlctl comms` list the names";
    if (status == OCCL_E_INVALID && set)
        return "`occlctl set --help` lists what each key accepts";
    return occl_ctl_hint(status);
}

int occl_ctl_fail(const struct occl_ctl_options *options, int status, const char *text) {
    return occl_ctl_fail_hint(options, status, text, occl_ctl_hint(status));
}

int occl_ctl_fail_hint(const struct occl_ctl_options *options, int status, const char *text,
                       const char *hint) {
    (void)fprintf(stderr, "occlctl: %s%s%s\n", text[0] ? text : occl_status_text(status),
                  hint ? "; " : "", hint ? hint : ""); /* nowhere else to report */
    int code = occl_ctl_exit_code(status);
    if (options->json) {
        json_t *object = json_pack("{s:s, s:s, s:i}", "status", occl_status_name(status), "error",
                                   text[0] ? text : occl_status_text(status), "exit_code", code);
        return occl_ctl_print_json(object, code);
    }
    return code;
}

int occl_ctl_print_json(json_t *object, int code) {
    char *text = NULL;
    if (object && (json_object_get(object, "schema") ||
                   json_object_set_new(object, "schema", json_integer(OCCL_CTL_SCHEMA)) == 0))
        text = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (!text) {
        (void)fprintf(stderr, "occlctl: out of memory\n"); /* nowhere else to report */
        return code == OCCL_CTL_FINE ? OCCL_CTL_PROBLEM : code;
    }
    (void)printf("%s\n", text); /* stdout is checked at exit */
    free(text);
    return code;
}

bool occl_ctl_output_works(void) {
    return fflush(stdout) == 0 && !ferror(stdout);
}

bool occl_ctl_connect(const struct occl_ctl_options *options,
                      struct occl_ctl_connection *out_connection, int *out_exit) {
    struct occl_ctl_connection connection;
    struct occl_detail detail = {.status = OCCL_OK};
    int status =
        occl_locate_socket(options->socket, connection.socket, sizeof connection.socket, &detail);
    if (status == OCCL_OK)
        status = occl_admin_open(connection.socket, "occlctl", options->timeout_ms,
                                 &connection.admin, &detail);
    if (status != OCCL_OK) {
        *out_exit = occl_ctl_fail(options, status, detail.text);
        return false;
    }
    *out_connection = connection;
    return true;
}

json_t *occl_ctl_request(const struct occl_ctl_options *options, const char *verb) {
    json_t *request = json_pack("{s:s}", "verb", verb);
    if (!request)
        return NULL;
    int failed = 0;
    if (options->job)
        failed |= json_object_set_new(request, "job", json_string(options->job));
    if (options->comm)
        failed |= json_object_set_new(request, "comm", json_string(options->comm));
    if (options->tenant)
        failed |= json_object_set_new(request, "tenant", json_string(options->tenant));
    if (options->rank >= 0)
        failed |= json_object_set_new(request, "rank", json_integer(options->rank));
    if (failed) {
        json_decref(request);
        return NULL;
    }
    return request;
}

json_t *occl_ctl_ask(const struct occl_ctl_options *options, struct occl_admin *admin,
                     json_t *request, int *out_exit) {
    struct occl_detail detail = {.status = OCCL_OK};
    json_t *reply = NULL;
    int status = OCCL_E_NO_MEMORY;
    if (request)
        status = occl_admin_call(admin, request, options->timeout_ms, &reply, &detail);
    const char *hint = hint_for_answer(status, json_string_value(json_object_get(request, "verb")));
    json_decref(request);
    if (status == OCCL_OK)
        return reply;
    *out_exit = occl_ctl_fail_hint(options, status, detail.text, hint);
    return NULL;
}

/* What the daemon left out of its answer, behind all else: an answer that is not whole says so. */
static void print_cut(FILE *out, const json_t *reply) {
    const json_t *cut = json_object_get(reply, "cut");
    size_t index;
    json_t *entry;
    json_array_foreach(cut, index, entry) {
        if (index == CUT_LINES_MAX)
            break;
        (void)fprintf(out, "left out: %lld %s of job ", occl_table_integer(entry, "count"),
                      occl_table_string(entry, "what")); /* stdout is checked at exit */
        occl_table_safe_text(out, occl_table_string(entry, "job"));
        (void)fputs(" of tenant ", out);
        occl_table_safe_text(out, occl_table_string(entry, "tenant"));
        (void)fputc('\n', out);
    }
    if (json_array_size(cut))
        (void)fprintf(out,
                      "left out: %lld in all; the share of a tenant in one answer is limited, "
                      "--job and --comm look closer\n",
                      occl_table_integer(reply, "cut_total")); /* as above */
}

static int ask_and_show(const struct occl_ctl_options *options, struct occl_admin *admin,
                        const char *verb, occl_ctl_show_function *show) {
    int code = OCCL_CTL_PROBLEM;
    json_t *reply = occl_ctl_ask(options, admin, occl_ctl_request(options, verb), &code);
    if (!reply)
        return code;
    code = show(options->json ? NULL : stdout, options, reply);
    if (options->json)
        return occl_ctl_print_json(reply, code);
    print_cut(stdout, reply);
    json_decref(reply);
    return code;
}

int occl_ctl_query(const struct occl_ctl_options *options, const char *verb,
                   occl_ctl_show_function *show) {
    struct occl_ctl_connection connection;
    int code;
    if (!occl_ctl_connect(options, &connection, &code))
        return code;
    for (;;) {
        if (options->watch_s > 0 && !options->json && isatty(STDOUT_FILENO))
            (void)fputs("\033[H\033[2J", stdout); /* stdout is checked below */
        code = ask_and_show(options, &connection.admin, verb, show);
        if (options->watch_s <= 0 || code > OCCL_CTL_PROBLEM || !occl_ctl_output_works())
            break;
        occl_clock_sleep_ns(&options->clock, (uint64_t)(options->watch_s * 1e9));
    }
    occl_admin_close(&connection.admin);
    return code;
}
