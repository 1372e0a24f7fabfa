/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl doctor`: what this machine, the socket and the daemon allow, each with a hint. Works
 * without a daemon, whose absence is then one of the findings. */
#include "tools/occlctl/doctor.h"

#include <string.h>
#include <sys/stat.h>

#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

static const char *grade_word(uint32_t grade) {
    return grade == OCCL_DOCTOR_GOOD ? "good" : grade == OCCL_DOCTOR_SLOWER ? "slower" : "bad";
}

static json_t *fact_object(const char *name, const char *value, uint32_t grade, const char *hint) {
    return json_pack("{s:s, s:s, s:b, s:s, s:s}", "name", name, "value", value, "ok",
                     grade != OCCL_DOCTOR_BAD, "grade", grade_word(grade), "hint", hint);
}

/* The folder and mode of the socket: who may connect at all. */
static void add_socket(json_t *facts, const char *path) {
    struct stat status;
    char value[OCCL_SOCKET_PATH_BYTES + 64];
    if (stat(path, &status) != 0)
        return;
    (void)snprintf(value, sizeof value, "%s, mode %04o, owner %u", path, status.st_mode & 07777,
                   (unsigned)status.st_uid); /* fits */
    (void)json_array_append_new(
        facts, fact_object("socket", value, OCCL_DOCTOR_GOOD, "")); /* else the fact is missing */
}

/* Asks the daemon for its own facts; returns the status of reaching it. */
static int add_daemon(json_t *facts, const struct occl_ctl_options *options) {
    struct occl_detail detail = {.status = OCCL_OK};
    struct occl_admin admin = {.fd = -1};
    char path[OCCL_SOCKET_PATH_BYTES], value[200];
    int status = occl_locate_socket(options->socket, path, sizeof path, &detail);
    if (status == OCCL_OK) {
        add_socket(facts, path);
        status = occl_admin_open(path, "occlctl", options->timeout_ms, &admin, &detail);
    }
    json_t *request = status == OCCL_OK ? json_pack("{s:s}", "verb", "doctor") : NULL;
    json_t *reply = NULL;
    if (request)
        status = occl_admin_call(&admin, request, options->timeout_ms, &reply, &detail);
    json_decref(request);
    const char *hint = occl_ctl_hint(status);
    if (status != OCCL_OK) {
        (void)json_array_append_new(facts, fact_object("daemon", detail.text, OCCL_DOCTOR_BAD,
                                                       hint ? hint : "")); /* as above */
    } else {
        (void)snprintf(value, sizeof value, "version %s, pid %u", admin.daemon.version,
                       admin.daemon.pid); /* fits */
        (void)json_array_append_new(
            facts, fact_object("daemon", value, OCCL_DOCTOR_GOOD, "")); /* as above */
    }
    size_t index;
    json_t *fact;
    json_array_foreach(json_object_get(reply, "facts"), index, fact) {
        bool ok = !json_is_false(json_object_get(fact, "ok"));
        char name[64];
        const struct occl_table_column column = {"", "value", OCCL_TABLE_TEXT};
        (void)snprintf(name, sizeof name, "daemon: %s",
                       occl_table_string(fact, "name")); /* cut is fine */
        occl_table_cell(fact, &column, value, sizeof value);
        (void)json_array_append_new(
            facts, fact_object(name, value, ok ? OCCL_DOCTOR_GOOD : OCCL_DOCTOR_SLOWER,
                               occl_table_string(fact, "hint"))); /* as above */
    }
    json_decref(reply);
    occl_admin_close(&admin);
    return status;
}

int occl_ctl_doctor(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    struct occl_doctor_fact kernel[OCCL_DOCTOR_FACTS_MAX];
    json_t *facts = json_array();
    int count = occl_doctor_kernel(kernel);
    for (int i = 0; i < count; i++)
        (void)json_array_append_new(facts,
                                    fact_object(kernel[i].name, kernel[i].value, kernel[i].grade,
                                                kernel[i].hint)); /* as above */
    (void)add_daemon(facts, options); /* its failure is a fact of the list */
    bool ok = true;
    size_t index;
    json_t *fact;
    json_array_foreach(facts, index, fact) ok = ok && json_is_true(json_object_get(fact, "ok"));
    static const struct occl_table_column columns[] = {{"GRADE", "grade", OCCL_TABLE_TEXT},
                                                       {"FACT", "name", OCCL_TABLE_TEXT},
                                                       {"VALUE", "value", OCCL_TABLE_TEXT},
                                                       {"HINT", "hint", OCCL_TABLE_TEXT}};
    int code = ok ? OCCL_CTL_FINE : OCCL_CTL_PROBLEM;
    if (options->json)
        code = occl_ctl_print_json(json_pack("{s:b, s:O}", "ok", ok, "facts", facts), code);
    else if (occl_table_print(stdout, columns, 4, facts, !options->no_headers) != 0)
        code = occl_ctl_fail(options, OCCL_E_NO_MEMORY, "out of memory");
    json_decref(facts);
    return code;
}
