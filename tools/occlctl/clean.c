/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl clean`: removes sockets and private folders of dead daemons of this user.
 *
 * Locks say what lives, whatever its age. A launcher makes folders under the lock of the base,
 * which is ours meanwhile, and hands a locked pid file to its daemon. A daemon locks the folder of
 * its socket from before it binds until it listens: whoever holds that lock and finds that nobody
 * listens has found a dead socket. Owners lock exclusively; whoever only looks, or cleans, shares,
 * so that nobody takes him for an owner. Only a folder with nothing in it may belong to somebody
 * who locks nothing: one who has just made it by hand for a daemon to come; it is left alone while
 * it is younger than FRESH_NS.
 *
 * What lives is kept. Remains that are not removed are skipped: told with their reason, exit 1. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/occlctl/base_lock.h"
#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

#define FRESH_NS 2000000000ll

struct findings {
    const struct occl_ctl_options *options;
    json_t *removed, *kept, *skipped, *failed; /* arrays of {path, why} */
};

static void note(json_t *list, const char *path, const char *why) {
    /* Without memory the line is missing; what was done was done. */
    (void)json_array_append_new(list, json_pack("{s:s, s:s}", "path", path, "why", why));
}

static bool is_young(const struct findings *findings, const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0)
        return false;
    /* Change time: nobody can set it back. */
    long long changed_ns = status.st_ctim.tv_sec * 1000000000ll + status.st_ctim.tv_nsec;
    return (long long)occl_clock_wall_ns(&findings->options->clock) - changed_ns < FRESH_NS;
}

static const char *const own_names[] = {OCCL_PRIVATE_SOCKET_NAME, OCCL_PRIVATE_PID_NAME,
                                        "occld.log"};
#define OWN_NAMES (sizeof own_names / sizeof own_names[0])

static bool is_own_name(const char *name) {
    for (size_t i = 0; i < OWN_NAMES; i++)
        if (strcmp(name, own_names[i]) == 0)
            return true;
    return false;
}

enum contents { UNREADABLE, EMPTY, OURS, STRANGE };

/* What is in a folder: only what daemons put there, or other things too. */
static enum contents look_into(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir)
        return UNREADABLE;
    enum contents found = EMPTY;
    const struct dirent *entry;
    while (found != STRANGE && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            found = is_own_name(entry->d_name) ? OURS : STRANGE;
    (void)closedir(dir); /* read only */
    return found;
}

/* Whether somebody holds the pid file: a daemon that a launcher started. */
static bool pid_file_is_locked(int folder_fd) {
    int fd =
        openat(folder_fd, OCCL_PRIVATE_PID_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (fd >= 0)
        (void)close(fd); /* unlocks */
    return locked;
}

/* With the lock of the folder held: removes what is in it and the folder. */
static void remove_contents(struct findings *findings, const char *folder, int fd,
                            bool had_socket) {
    for (size_t i = 0; i < OWN_NAMES; i++)
        (void)unlinkat(fd, own_names[i], 0); /* what is left makes rmdir fail */
    if (rmdir(folder) == 0)
        note(findings->removed, folder,
             had_socket ? "nobody listens on its socket and no lock is held: its daemon is dead"
                        : "no socket and no lock: its daemon is gone");
    else if (errno != ENOENT)
        note(findings->failed, folder, strerror(errno));
}

static void remove_private(struct findings *findings, const struct occl_private_daemon *daemon) {
    if (daemon->socket_state == OCCL_SOCKET_LIVE || daemon->locked) {
        note(findings->kept, daemon->folder,
             daemon->socket_state == OCCL_SOCKET_LIVE ? "its daemon lives"
                                                      : "its daemon lives or is starting (locked)");
        return;
    }
    int fd = open(daemon->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        if (errno != ENOENT) /* a daemon that ends takes its folder with it, also just now */
            note(findings->skipped, daemon->folder, strerror(errno));
        return;
    }
    /* Looked at again under the lock: only now does an answer stay true. */
    if (flock(fd, LOCK_SH | LOCK_NB) != 0 || pid_file_is_locked(fd)) {
        note(findings->kept, daemon->folder, "its daemon lives or is starting (locked)");
    } else {
        enum occl_socket_state state = occl_locate_probe(daemon->socket);
        enum contents contents = look_into(daemon->folder);
        bool gone = contents == UNREADABLE && access(daemon->folder, F_OK) != 0 && errno == ENOENT;
        if (state == OCCL_SOCKET_LIVE)
            note(findings->kept, daemon->folder, "its daemon lives");
        else if (!gone && (state == OCCL_SOCKET_FORBIDDEN || contents == UNREADABLE))
            note(findings->skipped, daemon->folder, "no permission to look");
        else if (contents == STRANGE)
            note(findings->skipped, daemon->folder, "holds files that are not of occl");
        else if (contents == EMPTY && is_young(findings, daemon->folder))
            note(findings->skipped, daemon->folder,
                 "empty and younger than 2 s: somebody may be about to start a daemon in it; clean "
                 "again later");
        else if (!gone)
            remove_contents(findings, daemon->folder, fd, state == OCCL_SOCKET_DEAD);
    }
    (void)close(fd); /* unlocks */
}

static void clean_base(struct findings *findings, const struct occl_locate_places *places,
                       int number) {
    char base[OCCL_SOCKET_PATH_BYTES];
    struct stat status;
    if (!occl_locate_base(places, number, base, sizeof base))
        return;
    if (!occl_locate_base_is_safe(base, places->uid)) {
        /* There may be none, since just now or until just now. */
        if (lstat(base, &status) == 0 && !occl_locate_base_is_safe(base, places->uid))
            note(findings->skipped, base, "not a folder of this user alone (mode 0700)");
        return;
    }
    int fd = occl_base_lock(&findings->options->clock, base,
                            (uint64_t)findings->options->timeout_ms * 1000000u);
    if (fd < 0) {
        if (errno != ENOENT) /* the last launcher took it away just now */
            note(findings->skipped, base,
                 errno == EWOULDBLOCK ? "a launcher has held it for all of --timeout"
                                      : strerror(errno));
        return;
    }
    struct occl_locate_places one = *places;
    if (number == 0)
        one.temp_dir = NULL;
    else
        one.runtime_dir = NULL;
    struct occl_private_daemon daemons[OCCL_PRIVATE_DAEMONS_MAX];
    int count = occl_locate_list_private(&one, daemons, OCCL_PRIVATE_DAEMONS_MAX);
    for (int i = 0; i < count; i++)
        remove_private(findings, &daemons[i]);
    /* Launchers that wait for our lock make a new base when this one is gone. */
    if (rmdir(base) == 0)
        note(findings->removed, base, "it was empty");
    (void)close(fd); /* unlocks */
}

/* Locks the folder of a socket, as daemons do while they start. -1 with errno. */
static int lock_folder_of(const char *path) {
    char folder[OCCL_SOCKET_PATH_BYTES];
    if (strlen(path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    (void)snprintf(folder, sizeof folder, "%s", path); /* fits */
    char *slash = strrchr(folder, '/');
    if (!slash)
        (void)snprintf(folder, sizeof folder, "."); /* fits */
    else
        slash[slash == folder] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0) {
        int error = errno;
        (void)close(fd); /* nothing is locked */
        errno = error;
        return -1;
    }
    return fd;
}

/* named: the user gave this path, so that what is wrong with it is worth telling. */
static void clean_socket(struct findings *findings, const char *path, bool named) {
    json_t *unclear = named ? findings->skipped : findings->kept;
    struct stat status;
    if (!path || !path[0] || lstat(path, &status) != 0)
        return;
    if (!S_ISSOCK(status.st_mode)) {
        note(unclear, path, "not a socket");
        return;
    }
    int fd = lock_folder_of(path);
    if (fd < 0) {
        note(errno == EWOULDBLOCK ? findings->kept : unclear, path,
             errno == EWOULDBLOCK ? "a daemon is starting in its folder (locked)"
                                  : "its folder cannot be locked");
        return;
    }
    /* Under the lock no starting daemon is between bind and listen. */
    enum occl_socket_state state = occl_locate_probe(path);
    if (state == OCCL_SOCKET_LIVE)
        note(findings->kept, path, "its daemon lives");
    else if (state == OCCL_SOCKET_FORBIDDEN)
        note(unclear, path, "this user may not connect, so whether it is dead is not known");
    else if (state != OCCL_SOCKET_DEAD)
        note(unclear, path, "not a socket of occl");
    else if (unlink(path) == 0)
        note(findings->removed, path, "nobody listens on it: its daemon is dead");
    else
        note(findings->failed, path, strerror(errno));
    (void)close(fd); /* unlocks */
}

static void print_list(const json_t *list, const char *word) {
    size_t index;
    json_t *item;
    json_array_foreach(list, index, item) {
        (void)printf("%s ", word); /* stdout is checked at exit, here and below */
        occl_table_safe_text(stdout, occl_table_string(item, "path"));
        (void)printf(": %s\n", occl_table_string(item, "why"));
    }
}

int occl_ctl_clean(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    struct findings findings = {.options = options,
                                .removed = json_array(),
                                .kept = json_array(),
                                .skipped = json_array(),
                                .failed = json_array()};
    struct occl_locate_places places;
    occl_locate_places_from_env(&places);
    clean_base(&findings, &places, 0);
    clean_base(&findings, &places, 1);
    if (options->socket) {
        clean_socket(&findings, options->socket, true);
    } else {
        clean_socket(&findings, places.env_socket, true);
        clean_socket(&findings, places.system_socket, false);
    }
    size_t left = json_array_size(findings.failed) + json_array_size(findings.skipped);
    int code = left ? OCCL_CTL_PROBLEM : OCCL_CTL_FINE;
    if (options->json)
        return occl_ctl_print_json(json_pack("{s:o, s:o, s:o, s:o}", "removed", findings.removed,
                                             "kept", findings.kept, "skipped", findings.skipped,
                                             "failed", findings.failed),
                                   code);
    print_list(findings.removed, "removed");
    print_list(findings.failed, "could not remove");
    print_list(findings.skipped, "skipped");
    if (options->verbose)
        print_list(findings.kept, "kept");
    if (json_array_size(findings.removed) + left == 0)
        (void)printf("nothing to clean\n"); /* as above */
    json_decref(findings.removed);
    json_decref(findings.kept);
    json_decref(findings.skipped);
    json_decref(findings.failed);
    return code;
}
