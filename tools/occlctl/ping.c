/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl ping` and `occlctl version`: is the daemon there, and which one? */
#include "client_lib/occl.h"
#include "shm_ipc/limits.h"
#include "tools/occlctl/human.h"
#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

static int print_ping(const struct occl_ctl_options *options,
                      const struct occl_ctl_connection *connection, json_t *reply,
                      uint64_t took_ns) {
    if (options->json) {
        if (json_object_set_new(reply, "socket", json_string(connection->socket)) != 0 ||
            json_object_set_new(reply, "took_ns", json_integer((json_int_t)took_ns)) != 0)
            return occl_ctl_fail(options, OCCL_E_NO_MEMORY, "out of memory");
        return occl_ctl_print_json(json_incref(reply), OCCL_CTL_FINE);
    }
    char took[OCCL_HUMAN_BYTES];
    (void)printf("occld ");
    occl_table_safe_text(stdout, connection->admin.daemon.version);
    (void)printf(" (pid %u) on ", connection->admin.daemon.pid);
    occl_table_safe_text(stdout, connection->admin.daemon.host);
    (void)printf(" answered in %s at %s\n", occl_human_duration(took_ns, took, sizeof took),
                 connection->socket); /* stdout is checked at exit, here and above */
    return OCCL_CTL_FINE;
}

int occl_ctl_ping(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    struct occl_ctl_connection connection;
    int code;
    if (!occl_ctl_connect(options, &connection, &code))
        return code;
    for (;;) {
        uint64_t start_ns = occl_clock_now_ns(&options->clock);
        json_t *reply =
            occl_ctl_ask(options, &connection.admin, json_pack("{s:s}", "verb", "ping"), &code);
        if (!reply)
            break;
        uint64_t took_ns = occl_clock_now_ns(&options->clock) - start_ns;
        code = print_ping(options, &connection, reply, took_ns);
        json_decref(reply);
        if (options->watch_s <= 0 || !occl_ctl_output_works())
            break;
        occl_clock_sleep_ns(&options->clock, (uint64_t)(options->watch_s * 1e9));
    }
    occl_admin_close(&connection.admin);
    return code;
}

/* A version is useful without a daemon too, so its absence is a fact here and no error. */
int occl_ctl_version(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    char own[OCCL_NAME_BYTES], path[OCCL_SOCKET_PATH_BYTES];
    (void)snprintf(own, sizeof own, "%d.%d.%d", OCCL_VERSION_MAJOR, OCCL_VERSION_MINOR,
                   OCCL_VERSION_PATCH); /* fits */
    struct occl_detail detail = {.status = OCCL_OK};
    struct occl_admin admin = {.fd = -1};
    int status = occl_locate_socket(options->socket, path, sizeof path, &detail);
    if (status == OCCL_OK)
        status = occl_admin_open(path, "occlctl", options->timeout_ms, &admin, &detail);
    occl_admin_close(&admin);
    if (options->json) {
        json_t *daemon =
            status == OCCL_OK
                ? json_pack("{s:s, s:i, s:i}", "version", admin.daemon.version, "abi_version",
                            (int)admin.daemon.abi_version, "pid", (int)admin.daemon.pid)
                : json_null();
        return occl_ctl_print_json(json_pack("{s:s, s:i, s:o, s:s}", "version", own, "schema",
                                             OCCL_CTL_SCHEMA, "daemon", daemon, "daemon_error",
                                             status == OCCL_OK ? "" : detail.text),
                                   OCCL_CTL_FINE);
    }
    (void)printf("occlctl %s\noccld   ", own); /* stdout is checked at exit, here and below */
    occl_table_safe_text(stdout, status == OCCL_OK ? admin.daemon.version : detail.text);
    (void)printf("\n");
    return OCCL_CTL_FINE;
}
