/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets. A socket file of a dead daemon is replaced, one of a live daemon is an error
 * that names its process. While that is decided the folder is locked, so that two daemons which
 * start together do not both find the file stale; the lock is on the folder itself and leaves no
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/occld.h"

#define ACCEPTS_PER_ROUND 64
#ifndef SO_PASSRIGHTS /* kernel 6.16 */
#define SO_PASSRIGHTS 83
#endif

static int socket_address(const char *path, struct sockaddr_un *out_address,
                          struct occl_detail *detail) {
    memset(out_address, 0, sizeof *out_address);
    out_address->sun_family = AF_UNIX;
    if (!path[0] || strlen(path) >= sizeof out_address->sun_path)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "socket '%s': expected a path of 1 to %zu bytes", path,
                               sizeof out_address->sun_path - 1);
    memcpy(out_address->sun_path, path, strlen(path));
    return OCCL_OK;
}

/* Makes the folder of the socket when it is missing and opens it. */
static int open_folder(struct occl_listener *listener, int *out_fd, struct occl_detail *detail) {
    char folder[sizeof listener->path];
    (void)snprintf(folder, sizeof folder, "%s", listener->path);
    char *slash = strrchr(folder, '/');
    if (!slash)
        (void)snprintf(folder, sizeof folder, ".");
    else
        slash[slash == folder] = '\0';
    if (mkdir(folder, 0755) == 0) {
        listener->made_folder = true;
        /* Whatever the umask says, clients of all users must reach the socket. */
        (void)chmod(folder, 0755);
    } else if (errno != EEXIST) {
        return occl_detail_set(detail, OCCL_E_INVALID, errno,
                               "socket folder %s cannot be made; choose another one with --socket",
                               folder);
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return occl_detail_set(detail, OCCL_E_INVALID, errno, "socket folder %s cannot be opened",
                               folder);
    /* At most as long as another daemon starts. */
    if (flock(fd, LOCK_EX) < 0) {
        int error = errno;
        close(fd);
        return occl_detail_set(detail, OCCL_E_INVALID, error, "socket folder %s cannot be locked",
                               folder);
    }
    *out_fd = fd;
    return OCCL_OK;
}

/* OCCL_OK when the path is free now. */
static int clear_stale(struct occl_listener *listener, const struct sockaddr_un *address,
                       struct occl_detail *detail) {
    struct stat st;
    if (lstat(listener->path, &st) < 0)
        return OCCL_OK;
    if (!S_ISSOCK(st.st_mode))
        return occl_detail_set(detail, OCCL_E_BUSY, 0,
                               "%s exists and is not a socket; choose another path with --socket",
                               listener->path);
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "no socket");
    int rc = connect(probe, (const struct sockaddr *)address, sizeof *address);
    int error = rc < 0 ? errno : 0;
    struct ucred cred = {0, 0, 0};
    socklen_t bytes = sizeof cred;
    if (rc == 0)
        (void)getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &cred, &bytes);
    close(probe);
    if (rc == 0 || error == EAGAIN)
        return occl_detail_set(
            detail, OCCL_E_BUSY, 0,
            "%s is in use by process %d (uid %u); stop it or choose another path "
            "with --socket",
            listener->path, (int)cred.pid, (unsigned)cred.uid);
    if (error == EPROTOTYPE)
        return occl_detail_set(detail, OCCL_E_BUSY, 0,
                               "%s is in use by another kind of program; choose another path with "
                               "--socket",
                               listener->path);
    if (error != ECONNREFUSED && error != ENOENT)
        return occl_detail_set(detail, OCCL_E_BUSY, error, "%s cannot be probed", listener->path);
    if (error == ECONNREFUSED && unlink(listener->path) < 0)
        return occl_detail_set(detail, OCCL_E_BUSY, errno, "%s of a dead daemon cannot be removed",
                               listener->path);
    OCCL_LOG_INFO(listener->daemon->log, "server", "socket %s of a dead daemon removed",
                  listener->path);
    return OCCL_OK;
}

/* Accepted sockets inherit it: nobody can send us descriptors, whose release could hang us. Older
 * kernels drop them when we receive (session.c). */
static void refuse_descriptors(int fd) {
    int off = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off);
}

static int bind_and_listen(struct occl_listener *listener, const struct sockaddr_un *address,
                           struct occl_detail *detail) {
    struct stat st;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "no socket");
    listener->watch.fd = fd;
    refuse_descriptors(fd);
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) < 0)
        return occl_detail_set(detail, OCCL_E_INVALID, errno, "socket %s cannot be bound",
                               listener->path);
    if (chmod(listener->path, (mode_t)listener->daemon->config.socket_mode) < 0 ||
        lstat(listener->path, &st) < 0 || listen(fd, SOMAXCONN) < 0)
        return occl_detail_set(detail, OCCL_E_INVALID, errno, "socket %s cannot be set up",
                               listener->path);
    listener->device = st.st_dev;
    listener->inode = st.st_ino;
    return OCCL_OK;
}

static void refuse_for_descriptors(struct occl_listener *listener) {
    struct occl_daemon *daemon = listener->daemon;
    struct occl_session *oldest = TAILQ_FIRST(&daemon->strays);
    OCCL_LOG_WARN(daemon->log, "server",
                  "no descriptor left: connections are refused (limit of "
                  "open files)");
    daemon->counters.refused_total++;
    if (oldest) {
        occl_session_end(oldest, OCCL_CAUSE_REFUSED, "no descriptor left");
        return;
    }
    if (daemon->spare_fd < 0)
        return;
    close(daemon->spare_fd);
    int fd = accept4(listener->watch.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void accept_ready(struct occl_watch *watch, uint32_t events) {
    (void)events;
    struct occl_listener *listener = watch->owner;
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            occl_session_accept(listener, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE)
            refuse_for_descriptors(listener);
        if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
}

static struct occl_listener *next_listener(struct occl_daemon *daemon) {
    struct occl_listener *listener = &daemon->listeners[daemon->listener_count];
    *listener = (struct occl_listener){.daemon = daemon, .index = daemon->listener_count};
    listener->watch = (struct occl_watch){-1, accept_ready, listener, 0};
    return listener;
}

static int open_listener(struct occl_daemon *daemon, const char *path, struct occl_detail *detail) {
    struct sockaddr_un address;
    struct occl_listener *listener = next_listener(daemon);
    int folder = -1;
    int status = socket_address(path, &address, detail);
    if (status != OCCL_OK)
        return status;
    (void)snprintf(listener->path, sizeof listener->path, "%s", path);
    daemon->listener_count++;
    status = open_folder(listener, &folder, detail);
    if (status == OCCL_OK)
        status = clear_stale(listener, &address, detail);
    if (status == OCCL_OK)
        status = bind_and_listen(listener, &address, detail);
    if (folder >= 0)
        close(folder);
    if (status != OCCL_OK)
        return status;
    if (occl_loop_watch_add(daemon->loop, &listener->watch, OCCL_LOOP_READABLE) != OCCL_OK)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "socket %s cannot be watched", path);
    OCCL_LOG_INFO(daemon->log, "server", "listening on %s", path);
    return OCCL_OK;
}

/* A listening socket of the service manager. Its file stays the manager's: new connections wait in
 * it until the next daemon has started. */
static int adopt_listener(struct occl_daemon *daemon, int fd, struct occl_detail *detail) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof address - 1; /* a path without an end gets one */
    struct occl_listener *listener = next_listener(daemon);
    int flags = fcntl(fd, F_GETFL);
    if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) <= 0 || flags < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) < 0 || address.sun_path[0] != '/')
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "descriptor %d of the service manager: expected a listening UNIX "
                               "socket with a path, of type seqpacket (ListenSequentialPacket=)",
                               fd);
    daemon->listener_count++;
    listener->watch.fd = fd;
    (void)snprintf(listener->path, sizeof listener->path, "%s", address.sun_path);
    refuse_descriptors(fd);
    if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        occl_loop_watch_add(daemon->loop, &listener->watch, OCCL_LOOP_READABLE) != OCCL_OK)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "socket %s cannot be watched",
                               listener->path);
    OCCL_LOG_INFO(daemon->log, "server", "listening on %s of the service manager", listener->path);
    return OCCL_OK;
}

static const char *socket_origin(const struct occl_daemon *daemon) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(keys[i].name, "socket") == 0)
            return daemon->origins.text[i];
    return "";
}

/* The passed sockets are all there is. A setting that asks for others is a mistake that nobody
 * would find in a daemon which serves some of them. */
static int adopt_all(struct occl_daemon *daemon, struct occl_detail *detail) {
    char paths[OCCL_CONFIG_TEXT_BYTES] = "";
    size_t used = 0;
    const char *origin = socket_origin(daemon);
    for (uint32_t i = 0; i < daemon->supervision.passed_count; i++) {
        if (daemon->listener_count == OCCL_LISTENERS_MAX)
            return occl_detail_set(detail, OCCL_E_INVALID, 0,
                                   "the service manager passes more than %d sockets",
                                   OCCL_LISTENERS_MAX);
        int status = adopt_listener(daemon, SD_LISTEN_FDS_START + (int)i, detail);
        if (status != OCCL_OK)
            return status;
        int length = snprintf(paths + used, sizeof paths - used, "%s%s", i ? "," : "",
                              daemon->listeners[i].path);
        if (length < 0 || (size_t)length >= sizeof paths - used)
            return occl_detail_set(detail, OCCL_E_INVALID, 0,
                                   "the paths of the service manager's sockets are too long");
        used += (size_t)length;
    }
    if (strcmp(origin, "built-in") != 0 && origin[0] && strcmp(paths, daemon->config.socket) != 0)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "%s: socket is %s, but the service manager passes %s; name the same "
                               "in both, or mask its socket unit",
                               origin, daemon->config.socket, paths);
    return occl_config_assign("socket", paths, OCCL_CONFIG_ORIGIN_PASSED, &daemon->config,
                              &daemon->origins, detail);
}

int occl_server_open(struct occl_daemon *daemon, struct occl_detail *detail) {
    char paths[OCCL_CONFIG_TEXT_BYTES];
    (void)snprintf(paths, sizeof paths, "%s", daemon->config.socket);
    daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (daemon->supervision.passed_count > 0)
        return adopt_all(daemon, detail);
    int status = OCCL_OK;
    char *rest = NULL;
    for (char *path = strtok_r(paths, ",", &rest); path && status == OCCL_OK;
         path = strtok_r(NULL, ",", &rest)) {
        path += strspn(path, " ");
        if (daemon->listener_count == OCCL_LISTENERS_MAX)
            status = occl_detail_set(detail, OCCL_E_INVALID, 0, "socket: more than %d paths",
                                     OCCL_LISTENERS_MAX);
        else
            status = open_listener(daemon, path, detail);
    }
    if (status == OCCL_OK && daemon->listener_count == 0)
        status = occl_detail_set(detail, OCCL_E_INVALID, 0, "socket: expected a path, found none");
    return status;
}

void occl_server_close(struct occl_daemon *daemon) {
    for (uint32_t i = 0; i < daemon->listener_count; i++) {
        struct occl_listener *listener = &daemon->listeners[i];
        struct stat st;
        occl_loop_watch_remove(daemon->loop, &listener->watch);
        if (listener->watch.fd >= 0)
            close(listener->watch.fd);
        /* Somebody may have put another socket in our place. */
        if (listener->inode && lstat(listener->path, &st) == 0 && st.st_dev == listener->device &&
            st.st_ino == listener->inode)
            (void)unlink(listener->path);
        if (listener->made_folder) {
            char *slash = strrchr(listener->path, '/');
            if (slash && slash != listener->path) {
                *slash = '\0';
                (void)rmdir(listener->path);
            }
        }
    }
    daemon->listener_count = 0;
    if (daemon->spare_fd >= 0)
        close(daemon->spare_fd);
    daemon->spare_fd = -1;
}
