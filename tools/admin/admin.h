/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of role ADMIN to the daemon: one JSON request, one JSON answer at a time. Used by
 * occlctl, occl-perf and the launcher; verbs and schemas are in daemon/ADMIN.md. */
#ifndef TOOLS_ADMIN_ADMIN_H
#define TOOLS_ADMIN_ADMIN_H

#include <jansson.h>
#include <stdint.h>

#include "shm_ipc/status.h"

/* What the daemon said of itself when the connection was made. */
struct occl_admin_daemon {
    uint64_t epoch;
    uint32_t pid;
    uint32_t lanes;
    uint32_t abi_version;
    char host[64];
    char version[64];
};

struct occl_admin {
    int fd;
    uint64_t request; /* number of the last request */
    struct occl_admin_daemon daemon;
};

/* Connects to socket_path and says hello as `program`, which the daemon logs; "occlctl-run" is a
 * launcher, for which a private daemon stays. Blocks up to timeout_ms for each of connecting and
 * the answer. The caller owns *out_admin and closes it. OCCL_OK; OCCL_E_NO_DAEMON (nobody listens);
 * OCCL_E_PERMISSION; OCCL_E_TIMEOUT (it listens and does not answer); OCCL_E_VERSION,
 * OCCL_E_PROTOCOL and whatever the daemon answers. Nothing stays open after an error. */
int occl_admin_open(const char *socket_path, const char *program, int timeout_ms,
                    struct occl_admin *out_admin, struct occl_detail *detail)
    __attribute__((warn_unused_result));

/* Sends the request object and waits up to timeout_ms for the answer, an object that the caller
 * releases with json_decref. The daemon's own error statuses are returned with its text.
 * OCCL_E_DAEMON_LOST when the connection ends; OCCL_E_TIMEOUT, after which the connection can only
 * be closed; OCCL_E_INVALID when the request does not fit a message. */
int occl_admin_call(struct occl_admin *admin, const json_t *request, int timeout_ms,
                    json_t **out_reply, struct occl_detail *detail)
    __attribute__((warn_unused_result));

/* Safe on a closed or zeroed connection whose fd is -1. */
void occl_admin_close(struct occl_admin *admin);

#endif
