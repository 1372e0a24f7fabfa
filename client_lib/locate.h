/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon is: the one rule that the library and all tools share.
 *
 * In this order: the path the caller gave; $OCCL_SOCKET; OCCL_SYSTEM_SOCKET if somebody listens
 * there; this user's one live private daemon. Private daemons live in sub-folders, one each, of
 * $XDG_RUNTIME_DIR/occl and of occl-UID under the temporary directory ($TMPDIR, else /tmp). Both
 * bases belong to the user and have mode 0700; a base that has not is passed over, because anybody
 * could have put it into a shared directory.
 *
 * A private daemon is live when its socket accepts a connection or a lock (flock) is held on its
 * pid file or on its folder. The launcher locks the pid file before the daemon exists and leaves
 * the descriptor to it, so there is no moment in which a starting daemon looks dead; a daemon
 * started by hand locks its folder while it starts. */
#ifndef CLIENT_LIB_LOCATE_H
#define CLIENT_LIB_LOCATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shm_ipc/status.h"

#define OCCL_SYSTEM_SOCKET "/run/occl/occld.sock"
/* Names inside the folder of a private daemon. */
#define OCCL_PRIVATE_SOCKET_NAME "occld.sock"
#define OCCL_PRIVATE_PID_NAME "occld.pid"
/* Path of a socket with its NUL: what fits sockaddr_un. */
#define OCCL_SOCKET_PATH_BYTES 108
/* Private daemons listed at most: more of one user means that something leaks them. */
#define OCCL_PRIVATE_DAEMONS_MAX 64

/* Where to look; every member may be NULL, which leaves that place out. */
struct occl_locate_places {
    const char *env_socket;    /* $OCCL_SOCKET */
    const char *system_socket; /* OCCL_SYSTEM_SOCKET */
    const char *runtime_dir;   /* $XDG_RUNTIME_DIR */
    const char *temp_dir;      /* $TMPDIR, else /tmp */
    uid_t uid;
};

/* What a path of a socket turns out to be. */
enum occl_socket_state {
    OCCL_SOCKET_ABSENT = 0,    /* no such file, or no way to it */
    OCCL_SOCKET_DEAD = 1,      /* a socket file on which nobody listens */
    OCCL_SOCKET_LIVE = 2,      /* somebody listens */
    OCCL_SOCKET_FORBIDDEN = 3, /* this user may not connect */
    OCCL_SOCKET_FOREIGN = 4,   /* not a socket of this kind */
};

/* A sub-folder of a private base. */
struct occl_private_daemon {
    char folder[OCCL_SOCKET_PATH_BYTES];
    char socket[OCCL_SOCKET_PATH_BYTES];
    uint32_t socket_state; /* enum occl_socket_state */
    uint32_t locked;       /* 1: the pid file or the folder is locked */
};

/* Finds the daemon's socket and copies its path to out_path. Reads the environment; probes by
 * connecting, without blocking. explicit_path may be NULL. Any thread; does not allocate beyond
 * what opendir does. OCCL_OK; OCCL_E_NO_DAEMON (the text lists where it looked); OCCL_E_USAGE
 * (several live private daemons, the text lists them); OCCL_E_INVALID (a path too long for a
 * socket). out_path is written only with OCCL_OK. OCCL_OK says where to connect, not that
 * connecting will work: an explicit path and $OCCL_SOCKET are taken as they are, and a daemon that
 * is starting may not listen yet. */
int occl_locate_socket(const char *explicit_path, char *out_path, size_t out_bytes,
                       struct occl_detail *detail) __attribute__((warn_unused_result));

/* The same among given places: what the tests call. */
int occl_locate_among(const struct occl_locate_places *places, const char *explicit_path,
                      char *out_path, size_t out_bytes, struct occl_detail *detail)
    __attribute__((warn_unused_result));

/* Fills *out_places from the environment. The strings belong to the environment: valid until it
 * changes. */
void occl_locate_places_from_env(struct occl_locate_places *out_places);

/* Connects to a socket without blocking and closes again. Never waits. */
enum occl_socket_state occl_locate_probe(const char *path);

/* Path of base number 0 (runtime directory) or 1 (temporary directory) for these places. Returns 0
 * when there is none or the path does not fit. */
int occl_locate_base(const struct occl_locate_places *places, int number, char *out_base,
                     size_t out_bytes) __attribute__((warn_unused_result));

/* 1 if the folder exists, is a directory and no link, belongs to uid and is closed to all others.
 */
int occl_locate_base_is_safe(const char *base, uid_t uid);

/* Lists the sub-folders of all bases, live or not, up to max (<= OCCL_PRIVATE_DAEMONS_MAX); returns
 * how many were written. Sub-folders whose socket path would not fit are left out. */
int occl_locate_list_private(const struct occl_locate_places *places,
                             struct occl_private_daemon *out_daemons, int max);

#endif
