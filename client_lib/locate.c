/* SPDX-License-Identifier: Apache-2.0 */
#include "client_lib/locate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

_Static_assert(OCCL_SOCKET_PATH_BYTES == sizeof(((struct sockaddr_un *)0)->sun_path),
               "a path that passes here fits the address");

#define BASES 2

/* Text of what was looked at, for the message of a failed search. Cut at the end, never overrun. */
struct trail {
    char text[OCCL_DETAIL_BYTES];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void trail_add(struct trail *trail, const char *fmt,
                                                            ...) {
    va_list args;
    va_start(args, fmt);
    size_t room = sizeof trail->text - trail->length;
    int wrote = vsnprintf(trail->text + trail->length, room, fmt, args);
    va_end(args);
    if (wrote > 0)
        trail->length += (size_t)wrote < room ? (size_t)wrote : room - 1;
}

static int copy_path(const char *path, const char *whence, char *out_path, size_t out_bytes,
                     struct occl_detail *detail) {
    size_t length = strlen(path);
    if (length >= OCCL_SOCKET_PATH_BYTES || length >= out_bytes)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "the socket path from %s has %zu bytes, at most %d fit an address: "
                               "%.200s",
                               whence, length, OCCL_SOCKET_PATH_BYTES - 1, path);
    memcpy(out_path, path, length + 1);
    return OCCL_OK;
}

enum occl_socket_state occl_locate_probe(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path)
        return OCCL_SOCKET_ABSENT;
    memcpy(address.sun_path, path, length + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return OCCL_SOCKET_ABSENT;
    int failed = connect(fd, (const struct sockaddr *)&address, sizeof address);
    int error = failed ? errno : 0;
    (void)close(fd); /* a socket without unsent data: nothing to lose */
    switch (error) {
    case 0:
    case EAGAIN: /* its queue of connections is full, so somebody listens */
        return OCCL_SOCKET_LIVE;
    case ECONNREFUSED: {
        struct stat status;
        if (stat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
            return OCCL_SOCKET_FOREIGN;
        return OCCL_SOCKET_DEAD;
    }
    case EACCES:
    case EPERM:
        return OCCL_SOCKET_FORBIDDEN;
    case EPROTOTYPE:
        return OCCL_SOCKET_FOREIGN;
    default:
        return OCCL_SOCKET_ABSENT;
    }
}

/* A lock that can be had is given back at once; only a refused one says that somebody lives. For
 * these microseconds an owner that tries to lock is refused, so owners retry for a moment. */
static uint32_t is_locked(const char *path, int flags) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags);
    if (fd < 0)
        return 0;
    /* Shared, so that two who look at once do not take each other for the owner. */
    uint32_t locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)close(fd); /* read only */
    return locked;
}

int occl_locate_base(const struct occl_locate_places *places, int number, char *out_base,
                     size_t out_bytes) {
    int wrote = -1;
    if (number == 0 && places->runtime_dir && places->runtime_dir[0] == '/')
        wrote = snprintf(out_base, out_bytes, "%s/occl", places->runtime_dir);
    else if (number == 1 && places->temp_dir && places->temp_dir[0] == '/')
        wrote =
            snprintf(out_base, out_bytes, "%s/occl-%u", places->temp_dir, (unsigned)places->uid);
    return wrote > 0 && (size_t)wrote < out_bytes;
}

int occl_locate_base_is_safe(const char *base, uid_t uid) {
    struct stat status;
    return lstat(base, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == uid &&
           (status.st_mode & 077) == 0;
}

/* Fills *out_daemon for one sub-folder; 0 if the entry is no folder or its paths do not fit. */
static int inspect_folder(const char *base, const char *name,
                          struct occl_private_daemon *out_daemon) {
    struct occl_private_daemon daemon;
    memset(&daemon, 0, sizeof daemon);
    char pid_file[OCCL_SOCKET_PATH_BYTES];
    int folder_bytes = snprintf(daemon.folder, sizeof daemon.folder, "%s/%s", base, name);
    int socket_bytes = snprintf(daemon.socket, sizeof daemon.socket, "%s/%s/%s", base, name,
                                OCCL_PRIVATE_SOCKET_NAME);
    int pid_bytes =
        snprintf(pid_file, sizeof pid_file, "%s/%s/%s", base, name, OCCL_PRIVATE_PID_NAME);
    if (folder_bytes < 0 || (size_t)folder_bytes >= sizeof daemon.folder || socket_bytes < 0 ||
        (size_t)socket_bytes >= sizeof daemon.socket || pid_bytes < 0 ||
        (size_t)pid_bytes >= sizeof pid_file)
        return 0;
    struct stat status;
    if (lstat(daemon.folder, &status) != 0 || !S_ISDIR(status.st_mode))
        return 0;
    daemon.socket_state = occl_locate_probe(daemon.socket);
    /* The pid file is looked at only when nothing else speaks for life: see is_locked. */
    daemon.locked = is_locked(daemon.folder, O_DIRECTORY) ||
                    (daemon.socket_state != OCCL_SOCKET_LIVE && is_locked(pid_file, 0));
    *out_daemon = daemon;
    return 1;
}

int occl_locate_list_private(const struct occl_locate_places *places,
                             struct occl_private_daemon *out_daemons, int max) {
    int count = 0;
    for (int number = 0; number < BASES; number++) {
        char base[OCCL_SOCKET_PATH_BYTES];
        if (!occl_locate_base(places, number, base, sizeof base) ||
            !occl_locate_base_is_safe(base, places->uid))
            continue;
        DIR *folder = opendir(base);
        if (!folder)
            continue;
        const struct dirent *entry;
        while (count < max && (entry = readdir(folder)) != NULL)
            if (entry->d_name[0] != '.')
                count += inspect_folder(base, entry->d_name, &out_daemons[count]);
        (void)closedir(folder); /* read only */
    }
    return count;
}

static int is_live(const struct occl_private_daemon *daemon) {
    return daemon->locked || daemon->socket_state == OCCL_SOCKET_LIVE;
}

static const char *state_text(enum occl_socket_state state) {
    switch (state) {
    case OCCL_SOCKET_DEAD:
        return "nobody listens";
    case OCCL_SOCKET_LIVE:
        return "live";
    case OCCL_SOCKET_FORBIDDEN:
        return "no permission";
    case OCCL_SOCKET_FOREIGN:
        return "not a socket of occl";
    case OCCL_SOCKET_ABSENT:
        break;
    }
    return "absent";
}

static int choose_private(const struct occl_locate_places *places, struct trail *trail,
                          char *out_path, size_t out_bytes, struct occl_detail *detail) {
    struct occl_private_daemon daemons[OCCL_PRIVATE_DAEMONS_MAX];
    int count = occl_locate_list_private(places, daemons, OCCL_PRIVATE_DAEMONS_MAX);
    int live = 0;
    int chosen = -1;
    struct trail list = {.length = 0};
    for (int i = 0; i < count; i++) {
        if (!is_live(&daemons[i]))
            continue;
        trail_add(&list, "%s%s", live ? ", " : "", daemons[i].socket);
        live++;
        chosen = i;
    }
    if (live == 1)
        return copy_path(daemons[chosen].socket, "a private daemon", out_path, out_bytes, detail);
    if (live > 1)
        return occl_detail_set(detail, OCCL_E_USAGE, 0,
                               "%d private daemons run: %.380s; name one with OCCL_SOCKET", live,
                               list.text);
    for (int number = 0; number < BASES; number++) {
        char base[OCCL_SOCKET_PATH_BYTES];
        if (!occl_locate_base(places, number, base, sizeof base))
            continue;
        struct stat status;
        const char *why = "no live daemon";
        if (lstat(base, &status) != 0)
            why = errno == ENOENT ? "absent" : "cannot be read";
        else if (!occl_locate_base_is_safe(base, places->uid))
            why = "not a folder of this user alone (mode 0700), ignored";
        trail_add(trail, ", %s/* (%s)", base, why);
    }
    return occl_detail_set(detail, OCCL_E_NO_DAEMON, 0, "no daemon found; looked at %.440s",
                           trail->text);
}

int occl_locate_among(const struct occl_locate_places *places, const char *explicit_path,
                      char *out_path, size_t out_bytes, struct occl_detail *detail) {
    if (explicit_path && explicit_path[0])
        return copy_path(explicit_path, "the caller", out_path, out_bytes, detail);
    if (places->env_socket && places->env_socket[0])
        return copy_path(places->env_socket, "OCCL_SOCKET", out_path, out_bytes, detail);
    struct trail trail = {.length = 0};
    trail_add(&trail, "$OCCL_SOCKET (not set)");
    if (places->system_socket) {
        enum occl_socket_state state = occl_locate_probe(places->system_socket);
        /* A socket that exists but is closed to this user is the answer too: the private daemon of
         * a user whom the operator locked out would hide the real cause. */
        if (state == OCCL_SOCKET_LIVE || state == OCCL_SOCKET_FORBIDDEN)
            return copy_path(places->system_socket, "the system", out_path, out_bytes, detail);
        trail_add(&trail, ", %s (%s)", places->system_socket, state_text(state));
    }
    return choose_private(places, &trail, out_path, out_bytes, detail);
}

void occl_locate_places_from_env(struct occl_locate_places *out_places) {
    /* The documented inputs of this rule; nothing else of the library's search reads them. */
    const char *socket_path = getenv("OCCL_SOCKET");     /* lint: banned_calls: see above */
    const char *runtime_dir = getenv("XDG_RUNTIME_DIR"); /* lint: banned_calls: see above */
    const char *temp_dir = getenv("TMPDIR");             /* lint: banned_calls: see above */
    *out_places = (struct occl_locate_places){
        .env_socket = socket_path,
        .system_socket = OCCL_SYSTEM_SOCKET,
        .runtime_dir = runtime_dir,
        .temp_dir = temp_dir && temp_dir[0] == '/' ? temp_dir : "/tmp",
        .uid = geteuid(),
    };
}

int occl_locate_socket(const char *explicit_path, char *out_path, size_t out_bytes,
                       struct occl_detail *detail) {
    struct occl_locate_places places;
    occl_locate_places_from_env(&places);
    return occl_locate_among(&places, explicit_path, out_path, out_bytes, detail);
}
