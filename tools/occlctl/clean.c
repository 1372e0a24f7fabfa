/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl clean`: removes sockets and private folders of dead daemons of this user.
 *
 * What could be a daemon that is starting is left alone: its folder or pid file is locked, or
 * something in it is younger than STARTING_NS. The base is locked meanwhile, so no launcher makes a
 * folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

#define STARTING_NS 2000000000ll
#define LOCK_STEP_NS 5000000ull

struct findings {
    const struct occl_ctl_options *options;
    json_t *removed, *kept, *failed; /* arrays of {path, why} */
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
    return (long long)occl_clock_wall_ns(&findings->options->clock) - changed_ns < STARTING_NS;
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

/* Whether the folder holds only what daemons put there. */
static bool holds_only_ours(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir)
        return false;
    bool ours = true;
    const struct dirent *entry;
    while (ours && (entry = readdir(dir)) != NULL)
        ours = entry->d_name[0] == '.' || is_own_name(entry->d_name);
    (void)closedir(dir); /* read only */
    return ours;
}

/* Why the folder must stay, or NULL. */
static const char *reason_to_keep(const struct findings *findings,
                                  const struct occl_private_daemon *daemon) {
    char pid_file[OCCL_SOCKET_PATH_BYTES + 16];
    (void)snprintf(pid_file, sizeof pid_file, "%.*s/%s", OCCL_SOCKET_PATH_BYTES, daemon->folder,
                   OCCL_PRIVATE_PID_NAME); /* fits */
    if (daemon->socket_state == OCCL_SOCKET_LIVE)
        return "its daemon lives";
    if (daemon->locked)
        return "its daemon lives or is starting (locked)";
    if (daemon->socket_state == OCCL_SOCKET_FORBIDDEN)
        return "no permission to look";
    if (is_young(findings, daemon->folder) || is_young(findings, daemon->socket) ||
        is_young(findings, pid_file))
        return "younger than 2 s, its daemon may be starting";
    if (!holds_only_ours(daemon->folder))
        return "holds files that are not of occl";
    return NULL;
}

static void remove_private(struct findings *findings, const struct occl_private_daemon *daemon) {
    const char *keep = reason_to_keep(findings, daemon);
    if (keep) {
        note(findings->kept, daemon->folder, keep);
        return;
    }
    int fd = open(daemon->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        note(findings->kept, daemon->folder, "somebody took it just now");
    } else {
        for (size_t i = 0; i < OWN_NAMES; i++)
            (void)unlinkat(fd, own_names[i], 0); /* what is left makes rmdir fail */
        if (rmdir(daemon->folder) == 0)
            note(findings->removed, daemon->folder,
                 daemon->socket_state == OCCL_SOCKET_DEAD
                     ? "nobody listens on its socket and no lock is held: its daemon is dead"
                     : "no socket and no lock: its daemon is gone");
        else
            note(findings->failed, daemon->folder, strerror(errno));
    }
    if (fd >= 0)
        (void)close(fd); /* unlocks */
}

/* Locks a base for us alone, giving up after the user's time limit. */
static int lock_base(const struct findings *findings, const char *base) {
    int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    uint64_t left = (uint64_t)findings->options->timeout_ms * 1000000u / LOCK_STEP_NS + 1;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (left-- == 0) {
            (void)close(fd); /* nothing is locked */
            return -1;
        }
        occl_clock_sleep_ns(&findings->options->clock, LOCK_STEP_NS);
    }
    return fd;
}

static void clean_base(struct findings *findings, const struct occl_locate_places *places,
                       int number) {
    char base[OCCL_SOCKET_PATH_BYTES];
    struct stat status;
    if (!occl_locate_base(places, number, base, sizeof base) || lstat(base, &status) != 0)
        return;
    if (!occl_locate_base_is_safe(base, places->uid)) {
        note(findings->kept, base, "not a folder of this user alone (mode 0700)");
        return;
    }
    int fd = lock_base(findings, base);
    if (fd < 0) {
        note(findings->kept, base, "a launcher holds it");
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

static void clean_socket(struct findings *findings, const char *path) {
    if (!path || !path[0])
        return;
    struct stat before, now;
    if (lstat(path, &before) != 0 || !S_ISSOCK(before.st_mode))
        return;
    enum occl_socket_state state = occl_locate_probe(path);
    if (state != OCCL_SOCKET_DEAD) {
        note(findings->kept, path,
             state == OCCL_SOCKET_LIVE ? "its daemon lives" : "not known to be dead");
        return;
    }
    /* Between bind and listen a starting daemon refuses connections too. */
    if (is_young(findings, path)) {
        note(findings->kept, path, "younger than 2 s, its daemon may be starting");
        return;
    }
    if (lstat(path, &now) != 0 || now.st_ino != before.st_ino || now.st_dev != before.st_dev)
        note(findings->kept, path, "somebody replaced it just now");
    else if (unlink(path) == 0)
        note(findings->removed, path, "nobody listens on it: its daemon is dead");
    else
        note(findings->failed, path, strerror(errno));
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
    struct findings findings = {
        .options = options, .removed = json_array(), .kept = json_array(), .failed = json_array()};
    struct occl_locate_places places;
    occl_locate_places_from_env(&places);
    clean_base(&findings, &places, 0);
    clean_base(&findings, &places, 1);
    if (options->socket) {
        clean_socket(&findings, options->socket);
    } else {
        clean_socket(&findings, places.env_socket);
        clean_socket(&findings, places.system_socket);
    }
    int code = json_array_size(findings.failed) ? OCCL_CTL_PROBLEM : OCCL_CTL_FINE;
    if (options->json) {
        occl_ctl_print_json(json_pack("{s:o, s:o, s:o}", "removed", findings.removed, "kept",
                                      findings.kept, "failed", findings.failed));
        return code;
    }
    print_list(findings.removed, "removed");
    print_list(findings.failed, "could not remove");
    if (options->verbose)
        print_list(findings.kept, "kept");
    if (json_array_size(findings.removed) + json_array_size(findings.failed) == 0)
        (void)printf("nothing to clean\n"); /* as above */
    json_decref(findings.removed);
    json_decref(findings.kept);
    json_decref(findings.failed);
    return code;
}
