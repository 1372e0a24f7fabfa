/* SPDX-License-Identifier: Apache-2.0 */
/* The one status enumeration of occl. Zero is success, positive values are not errors (the caller
 * has a retry contract), negative values are errors grouped by blast radius, because the question
 * of whoever handles one is "what do I tear down?". The numbers are ABI: they travel in completion
 * entries, records and socket messages, and client_lib/occl.h repeats them under public names. */
#ifndef SHM_IPC_STATUS_H
#define SHM_IPC_STATUS_H

#include <stddef.h>
#include <stdint.h>

enum occl_status {
    OCCL_OK = 0,
    OCCL_PENDING = 1,     /* accepted, not complete */
    OCCL_WOULD_BLOCK = 2, /* a ring, quota or pool is full for the moment: retry after progress */

    /* blast radius: the call */
    OCCL_E_INVALID = -1,     /* an argument is wrong: size, enum value, pointer, rank, count */
    OCCL_E_HANDLE = -2,      /* stale, destroyed or foreign handle */
    OCCL_E_USAGE = -3,       /* right arguments at a wrong time: start while active, no init */
    OCCL_E_NO_MEMORY = -4,   /* the system refused memory or descriptors */
    OCCL_E_UNSUPPORTED = -5, /* valid, but this build or kernel cannot do it */
    OCCL_E_QUOTA = -6,       /* a limit of the tenant is reached */
    OCCL_E_TIMEOUT = -7,     /* the deadline of the op passed */
    OCCL_E_MISMATCH = -8,    /* the members described the op differently */
    OCCL_E_FAULT = -9,       /* a buffer is not mapped or not accessible */
    OCCL_E_CANCELED = -10,   /* the op was withdrawn by its own rank */
    OCCL_E_FORKED = -11,     /* called in a forked child that has not attached itself */
    OCCL_E_TRUNCATED = -12,  /* a reply or message did not fit where it must */
    OCCL_E_BUSY = -13,       /* the name, rank or object is in use */
    OCCL_E_NOT_FOUND = -14,  /* no such job, communicator, op, key */

    /* blast radius: the session (this process) */
    OCCL_E_NO_DAEMON = -20,   /* no daemon listens where we looked */
    OCCL_E_PERMISSION = -21,  /* the socket or the verb is not for this user */
    OCCL_E_VERSION = -22,     /* library and daemon have no ABI version in common */
    OCCL_E_DAEMON_LOST = -23, /* the daemon ended while we were attached */
    OCCL_E_QUARANTINED = -24, /* the daemon found this session's shared memory corrupt */
    OCCL_E_PROTOCOL = -25,    /* a malformed message */

    /* blast radius: the tenant */
    OCCL_E_TENANT_REFUSED = -40, /* the tenant may not attach now */

    /* blast radius: the communicator */
    OCCL_E_PEER_FAILED = -60, /* a member died or its session was closed */
    OCCL_E_REVOKED = -61,     /* a member revoked the communicator */
    OCCL_E_ABORTED = -62,     /* this rank or a peer aborted the communicator */

    /* blast radius: the node */
    OCCL_E_SHUTTING_DOWN = -80, /* the daemon drains: no new work */
    OCCL_E_INTERNAL = -81,      /* a bug of ours that was contained; see the daemon's log */
};

/* Name as in the enum without the prefix ("E_TIMEOUT"), and a sentence for people. Both return
 * static strings; an unknown number gives "UNKNOWN". Any thread. */
const char *occl_status_name(int status);
const char *occl_status_text(int status);

/* Control-path detail: owned by the caller, filled where the error was decided. */
#define OCCL_DETAIL_BYTES 480
struct occl_detail {
    int32_t status;               /* enum occl_status */
    int32_t system_error;         /* errno of the first failure, or 0 */
    char text[OCCL_DETAIL_BYTES]; /* what, where, expected, found; NUL-terminated */
};

/* Fills *detail (may be NULL) and returns status, so that a function can decide and return in one
 * line. system_error is stored as given. printf rules apply to fmt. */
int occl_detail_set(struct occl_detail *detail, int status, int system_error, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
