/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/status.h"

#include <stdarg.h>
#include <stdio.h>

struct row {
    int status;
    const char *name;
    const char *text;
};

/* One line per status: the table, its completeness check and the lookup all come from here. */
#define OCCL_STATUSES(X)                                                                 \
    X(OK, "success")                                                                     \
    X(PENDING, "accepted, not complete yet")                                             \
    X(WOULD_BLOCK, "a ring, quota or pool is full for the moment; retry after progress") \
    X(E_INVALID, "an argument is wrong")                                                 \
    X(E_HANDLE, "the handle is stale, destroyed or foreign")                             \
    X(E_USAGE, "the call came at a wrong time")                                          \
    X(E_NO_MEMORY, "the system refused memory or descriptors")                           \
    X(E_UNSUPPORTED, "valid, but this build or kernel cannot do it")                     \
    X(E_QUOTA, "a limit of the tenant is reached")                                       \
    X(E_TIMEOUT, "the deadline of the operation passed")                                 \
    X(E_MISMATCH, "the members described the operation differently")                     \
    X(E_FAULT, "a buffer is not mapped or not accessible")                               \
    X(E_CANCELED, "the operation was withdrawn by its own rank")                         \
    X(E_FORKED, "called in a forked child that has not attached itself")                 \
    X(E_TRUNCATED, "a reply or message did not fit")                                     \
    X(E_BUSY, "the name, rank or object is in use")                                      \
    X(E_NOT_FOUND, "there is no such job, communicator, operation or key")               \
    X(E_NO_DAEMON, "no daemon listens where we looked")                                  \
    X(E_PERMISSION, "this user may not use the socket or the verb")                      \
    X(E_VERSION, "library and daemon have no ABI version in common")                     \
    X(E_DAEMON_LOST, "the daemon ended while we were attached")                          \
    X(E_QUARANTINED, "the daemon found this session's shared memory corrupt")            \
    X(E_PROTOCOL, "a message is malformed")                                              \
    X(E_TENANT_REFUSED, "the tenant may not attach now")                                 \
    X(E_PEER_FAILED, "a member died or its session was closed")                          \
    X(E_REVOKED, "a member revoked the communicator")                                    \
    X(E_ABORTED, "this rank or a peer aborted the communicator")                         \
    X(E_SHUTTING_DOWN, "the daemon drains and takes no new work")                        \
    X(E_INTERNAL, "a contained bug of occl; see the daemon's log")

#define ROW(name, text) {OCCL_##name, #name, text},
static const struct row rows[] = {OCCL_STATUSES(ROW)};

/* The compiler warns of a status that has no row: a switch over the enumeration without default. */
#define CASE(name, text) case OCCL_##name:
__attribute__((unused)) static void every_status_has_a_row(enum occl_status status) {
    switch (status) {
        OCCL_STATUSES(CASE)
        break;
    }
}

static const struct row *row_of(int status) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status)
            return &rows[i];
    return NULL;
}

const char *occl_status_name(int status) {
    const struct row *row = row_of(status);
    return row ? row->name : "UNKNOWN";
}

const char *occl_status_text(int status) {
    const struct row *row = row_of(status);
    return row ? row->text : "unknown status";
}

int occl_detail_set(struct occl_detail *detail, int status, int system_error, const char *fmt,
                    ...) {
    if (detail == NULL)
        return status;
    detail->status = status;
    detail->system_error = system_error;
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(detail->text, sizeof detail->text, fmt, args) < 0)
        detail->text[0] = '\0';
    va_end(args);
    return status;
}
