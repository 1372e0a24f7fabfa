/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon of a run: found, or a private one started and cleaned up after.
 *
 * Starting one is guarded by a lock (flock) on the base folder, so that two launchers at once share
 * one daemon and `occlctl clean` never sees a half-made folder. The new folder is locked too, and
 * that descriptor stays with the daemon: as long as the lock is held the folder is not garbage. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/occlctl/base_lock.h"
#include "tools/occlctl/run.h"

#define READY_NS 10000000000ull
#define GONE_NS 2000000000ull
#define STEP_NS 2000000ull
/* Each look at a daemon that is not our child is a connection to it. */
#define PROBE_STEP_NS 50000000ull
#define LOG_NAME "occld.log"
/* Each lost one means that somebody else made progress. */
#define BASE_ATTEMPTS 10000
/* One that ends at once has served others. More than a few times in a row, it is not occld. */
#define STARTS_MAX 20
/* Room for "/run-XXXXXX", a slash and the socket's name behind a base. */
#define BASE_BYTES_MAX (OCCL_SOCKET_PATH_BYTES - 1 - 11 - 1 - (int)sizeof OCCL_PRIVATE_SOCKET_NAME)

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Beside our own program, else by PATH (then just the name, which execvp resolves). */
static void find_program(const struct occl_run_options *options, char *out_path, size_t bytes) {
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (options->occld) {
        (void)snprintf(out_path, bytes, "%s", options->occld); /* exec reports a cut name */
        return;
    }
    if (length > 0) {
        own[length] = '\0';
        char *slash = strrchr(own, '/');
        if (slash) {
            *slash = '\0';
            int wrote = snprintf(out_path, bytes, "%s/occld", own);
            if (wrote > 0 && (size_t)wrote < bytes && is_program(out_path))
                return;
        }
    }
    (void)snprintf(out_path, bytes, "occld"); /* fits */
}

/* Waits until connecting works; the daemon was named by a lock and may still be starting. */
static bool wait_until_live(const struct occl_run_options *options, const char *path, pid_t child) {
    uint64_t end_ns = occl_clock_now_ns(&options->ctl.clock) + READY_NS;
    for (;;) {
        if (occl_locate_probe(path) == OCCL_SOCKET_LIVE)
            return true;
        siginfo_t info = {.si_pid = 0};
        if (child > 0 &&
            (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid))
            return false;
        if (occl_clock_now_ns(&options->ctl.clock) >= end_ns)
            return false;
        occl_clock_sleep_ns(&options->ctl.clock, STEP_NS);
    }
}

/* ---- base folder ---- */

/* Path of the base where a new daemon goes. */
static int choose_base(uid_t *out_uid, char *out_base, struct occl_detail *detail) {
    struct occl_locate_places places;
    occl_locate_places_from_env(&places);
    struct stat status;
    int number = places.runtime_dir && stat(places.runtime_dir, &status) == 0 &&
                         S_ISDIR(status.st_mode) && access(places.runtime_dir, W_OK) == 0
                     ? 0
                     : 1;
    *out_uid = places.uid;
    /* A long runtime directory leaves no room for a socket's path; the other may be shorter. */
    if (!occl_locate_base(&places, number, out_base, BASE_BYTES_MAX + 1) &&
        !occl_locate_base(&places, 1, out_base, BASE_BYTES_MAX + 1))
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "neither XDG_RUNTIME_DIR nor TMPDIR is short enough for a socket");
    return OCCL_OK;
}

/* One attempt; OCCL_WOULD_BLOCK when somebody removed the base before the lock was ours: `clean`
 * and ending launchers take away an empty one. */
static int lock_base(const struct occl_run_options *options, const char *base, uid_t uid,
                     int *out_fd, struct occl_detail *detail) {
    if (mkdir(base, 0700) != 0 && errno != EEXIST)
        return occl_detail_set(detail, OCCL_E_PERMISSION, errno, "cannot make %s: %s", base,
                               strerror(errno));
    int fd = occl_base_lock(&options->ctl.clock, base, OCCL_BASE_WAIT);
    if (fd < 0 && errno == ENOENT)
        return OCCL_WOULD_BLOCK;
    if (fd < 0)
        return occl_detail_set(detail, OCCL_E_PERMISSION, errno, "cannot lock %s: %s", base,
                               strerror(errno));
    if (occl_locate_base_is_safe(base, uid)) {
        *out_fd = fd;
        return OCCL_OK;
    }
    (void)close(fd); /* unlocks */
    return occl_detail_set(detail, OCCL_E_PERMISSION, 0,
                           "%s is not a folder of this user alone (mode 0700)", base);
}

/* Makes and locks the base folder; the lock is the descriptor's. Waits for others that start. */
static int open_base(const struct occl_run_options *options, char *out_base, int *out_fd,
                     struct occl_detail *detail) {
    uid_t uid;
    int status = choose_base(&uid, out_base, detail);
    if (status != OCCL_OK)
        return status;
    status = OCCL_WOULD_BLOCK;
    for (int attempt = 0; status == OCCL_WOULD_BLOCK && attempt < BASE_ATTEMPTS; attempt++)
        status = lock_base(options, out_base, uid, out_fd, detail);
    if (status == OCCL_WOULD_BLOCK)
        return occl_detail_set(detail, OCCL_E_BUSY, 0, "%s does not stay", out_base);
    return status;
}

/* ---- starting ---- */

/* pid_fd is the locked pid file: kept open through exec, so that the lock lives as the daemon does.
 */
__attribute__((noreturn)) static void
become_daemon(const char *program, const struct occl_run_daemon *daemon, int pid_fd) {
    char log[OCCL_SOCKET_PATH_BYTES + sizeof LOG_NAME];
    char socket_arg[OCCL_SOCKET_PATH_BYTES];
    (void)snprintf(log, sizeof log, "%s/%s", daemon->folder, LOG_NAME); /* fits */
    memcpy(socket_arg, daemon->socket, sizeof socket_arg);
    (void)setsid(); /* fails only for a group leader, which a child is not */
    occl_run_signals_default();
    int null = open("/dev/null", O_RDONLY);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (null < 0 || out < 0 || dprintf(pid_fd, "%ld\n", (long)getpid()) < 0 ||
        dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(out, STDERR_FILENO) < 0 || chdir("/") != 0 || fcntl(pid_fd, F_SETFD, 0) != 0)
        _exit(OCCL_CTL_LAUNCHER);
    char private_arg[] = "--private";
    char socket_option[] = "--socket";
    char name[] = "occld";
    char *argv[] = {name, private_arg, socket_option, socket_arg, NULL};
    (void)execvp(program, argv); /* returns only with an error */
    (void)fprintf(stderr, "cannot start %s: %s\n", program, strerror(errno)); /* the log */
    _exit(OCCL_CTL_LAUNCHER);
}

/* The last line of the log: why a daemon did not come up. */
static void last_words(const struct occl_run_daemon *daemon, char *out_text, size_t bytes) {
    char path[OCCL_SOCKET_PATH_BYTES + sizeof LOG_NAME];
    char tail[512] = "";
    (void)snprintf(path, sizeof path, "%s/%s", daemon->folder, LOG_NAME); /* fits */
    FILE *log = fopen(path, "re");
    if (log) {
        (void)fseek(log, 0, SEEK_END); /* a short log is read from its start */
        long size = ftell(log);
        (void)fseek(log, size > (long)sizeof tail - 1 ? size - (long)sizeof tail + 1 : 0,
                    SEEK_SET); /* as above */
        size_t got = fread(tail, 1, sizeof tail - 1, log);
        while (got > 0 && tail[got - 1] == '\n')
            got--;
        tail[got] = '\0';
        (void)fclose(log); /* read only */
    }
    const char *line = strrchr(tail, '\n');
    (void)snprintf(out_text, bytes, "%.250s", line ? line + 1 : tail); /* cut is fine */
}

static void remove_folder(const struct occl_run_daemon *daemon) {
    const char *const names[] = {OCCL_PRIVATE_SOCKET_NAME, OCCL_PRIVATE_PID_NAME, LOG_NAME};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[OCCL_SOCKET_PATH_BYTES + 32];
        (void)snprintf(path, sizeof path, "%s/%s", daemon->folder, names[i]); /* fits */
        (void)unlink(path);                                                   /* may be gone */
    }
    (void)rmdir(daemon->folder); /* stays if somebody put something in */
    (void)rmdir(daemon->base);   /* stays while other daemons are in it */
}

/* Makes the daemon's folder and its locked pid file. */
static int make_folder(struct occl_run_daemon *daemon, int *out_pid_fd,
                       struct occl_detail *detail) {
    char pid_file[OCCL_SOCKET_PATH_BYTES];
    (void)snprintf(daemon->folder, sizeof daemon->folder, "%.*s/run-XXXXXX", BASE_BYTES_MAX,
                   daemon->base); /* fits */
    if (!mkdtemp(daemon->folder))
        return occl_detail_set(detail, OCCL_E_PERMISSION, errno, "cannot make a folder in %s: %s",
                               daemon->base, strerror(errno));
    (void)snprintf(daemon->socket, sizeof daemon->socket, "%.*s/%s", BASE_BYTES_MAX + 11,
                   daemon->folder, OCCL_PRIVATE_SOCKET_NAME); /* fits */
    (void)snprintf(pid_file, sizeof pid_file, "%.*s/%s", BASE_BYTES_MAX + 11, daemon->folder,
                   OCCL_PRIVATE_PID_NAME); /* fits */
    int fd = open(pid_file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        int error = errno;
        if (fd >= 0)
            (void)close(fd); /* nothing was written */
        remove_folder(daemon);
        return occl_detail_set(detail, OCCL_E_PERMISSION, error, "cannot lock %s: %s", pid_file,
                               strerror(error));
    }
    *out_pid_fd = fd;
    return OCCL_OK;
}

static int start_private(const struct occl_run_options *options, struct occl_run_daemon *daemon,
                         struct occl_detail *detail) {
    char program[PATH_MAX];
    int pid_fd = -1;
    find_program(options, program, sizeof program);
    int made = make_folder(daemon, &pid_fd, detail);
    if (made != OCCL_OK)
        return made;
    pid_t pid = fork();
    if (pid == 0)
        become_daemon(program, daemon, pid_fd);
    int fork_error = errno;
    (void)close(pid_fd); /* the daemon's copy holds the lock */
    if (pid > 0 && wait_until_live(options, daemon->socket, pid)) {
        daemon->pid = pid;
        return OCCL_OK;
    }
    char words[256] = "";
    int ended = -1;
    last_words(daemon, words, sizeof words);
    if (pid > 0) {
        (void)kill(pid, SIGKILL);      /* our child, not reaped */
        (void)waitpid(pid, &ended, 0); /* killed: ends */
    }
    remove_folder(daemon);
    if (pid < 0)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, fork_error, "fork: %s",
                               strerror(fork_error));
    /* Another launcher has found it, used it and ended it before this one looked. */
    bool served = ended == 0;
    return occl_detail_set(detail, served ? OCCL_E_DAEMON_LOST : OCCL_E_NO_DAEMON, 0,
                           "the private daemon (%.120s) %s: %s", program,
                           served ? "has ended at once" : "did not come up",
                           words[0] ? words : "it said nothing");
}

/* Whether an attempt failed because a daemon is just ending or not listening yet. */
static bool is_passing(int status) {
    return status == OCCL_E_NO_DAEMON || status == OCCL_E_DAEMON_LOST ||
           status == OCCL_E_SHUTTING_DOWN;
}

static int connect_admin(const struct occl_run_options *options, struct occl_run_daemon *daemon,
                         struct occl_detail *detail) {
    return occl_admin_open(daemon->socket, "occlctl-run", options->ctl.timeout_ms, &daemon->admin,
                           detail);
}

/* With the base locked: uses a daemon that lives, or starts one when there is none.
 * OCCL_WOULD_BLOCK, with the detail: one is starting or ending, try again. */
static int find_or_start_once(const struct occl_run_options *options,
                              struct occl_run_daemon *daemon, struct occl_detail *detail) {
    int base_fd = -1;
    bool again = true;
    int status = open_base(options, daemon->base, &base_fd, detail);
    if (status != OCCL_OK)
        return status;
    status = occl_locate_socket(NULL, daemon->socket, sizeof daemon->socket, detail);
    if (status == OCCL_E_NO_DAEMON) {
        status = start_private(options, daemon, detail);
        again = status != OCCL_E_NO_DAEMON && ++daemon->started < STARTS_MAX;
    }
    if (status == OCCL_OK)
        status = connect_admin(options, daemon, detail);
    (void)close(base_fd); /* unlocks */
    return is_passing(status) && again ? OCCL_WOULD_BLOCK : status;
}

static int find_or_start(const struct occl_run_options *options, struct occl_run_daemon *daemon,
                         struct occl_detail *detail) {
    uint64_t end_ns = occl_clock_now_ns(&options->ctl.clock) + READY_NS;
    int status;
    while ((status = find_or_start_once(options, daemon, detail)) == OCCL_WOULD_BLOCK &&
           occl_clock_now_ns(&options->ctl.clock) < end_ns) {
        if (daemon->pid > 0)
            occl_run_daemon_close(options, daemon); /* ours was another launcher's, too, and ends */
        occl_clock_sleep_ns(&options->ctl.clock, STEP_NS);
    }
    if (daemon->pid == 0)
        daemon->base[0] = '\0';
    return status == OCCL_WOULD_BLOCK ? detail->status : status;
}

/* Notes base and folder of a private daemon that another launcher started. */
static void note_private(struct occl_run_daemon *daemon) {
    struct occl_locate_places places;
    occl_locate_places_from_env(&places);
    for (int number = 0; number < 2; number++) {
        char base[OCCL_SOCKET_PATH_BYTES];
        if (!occl_locate_base(&places, number, base, sizeof base) ||
            !occl_locate_base_is_safe(base, places.uid))
            continue;
        size_t length = strlen(base);
        const char *name = daemon->socket + length + 1;
        if (strncmp(daemon->socket, base, length) != 0 || daemon->socket[length] != '/')
            continue;
        const char *slash = strchr(name, '/');
        if (!slash || strcmp(slash + 1, OCCL_PRIVATE_SOCKET_NAME) != 0)
            continue;
        memcpy(daemon->base, base, sizeof base);
        (void)snprintf(daemon->folder, sizeof daemon->folder, "%.*s", (int)(slash - daemon->socket),
                       daemon->socket); /* fits: a part of it */
    }
}

int occl_run_daemon_open(const struct occl_run_options *options, struct occl_run_daemon *out_daemon,
                         struct occl_detail *detail) {
    struct occl_run_daemon daemon;
    memset(&daemon, 0, sizeof daemon);
    daemon.admin.fd = -1;
    int status =
        occl_locate_socket(options->ctl.socket, daemon.socket, sizeof daemon.socket, detail);
    if (status == OCCL_OK)
        status = connect_admin(options, &daemon, detail);
    /* An ending daemon, or one that is starting: settle it under the lock. A daemon that the user
     * named is taken as it is. */
    struct occl_locate_places places;
    occl_locate_places_from_env(&places);
    bool named = options->ctl.socket || (places.env_socket && places.env_socket[0]);
    if (is_passing(status) && !named)
        status = find_or_start(options, &daemon, detail);
    if (status != OCCL_OK) {
        occl_run_daemon_close(options, &daemon);
        return status;
    }
    if (daemon.pid == 0)
        note_private(&daemon);
    if (options->ctl.verbose)
        (void)fprintf(stderr, "occlctl run: %s %s\n",
                      daemon.pid ? "started a private daemon at" : "using the daemon at",
                      daemon.socket); /* nowhere else to report */
    *out_daemon = daemon;
    return OCCL_OK;
}

/* Whether the daemon has ended: our child by its status, another's by its socket and its lock. */
static bool has_ended(const struct occl_run_daemon *daemon) {
    if (daemon->pid > 0)
        return waitpid(daemon->pid, NULL, WNOHANG) == daemon->pid;
    if (occl_locate_probe(daemon->socket) == OCCL_SOCKET_LIVE)
        return false;
    char pid_file[OCCL_SOCKET_PATH_BYTES + 16];
    (void)snprintf(pid_file, sizeof pid_file, "%s/%s", daemon->folder,
                   OCCL_PRIVATE_PID_NAME); /* fits */
    int fd = open(pid_file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT;
    bool ended = flock(fd, LOCK_SH | LOCK_NB) == 0; /* shared: who looks is no owner */
    (void)close(fd);                                /* unlocks */
    return ended;
}

static void remove_locked(const struct occl_run_options *options,
                          const struct occl_run_daemon *daemon) {
    int base_fd = occl_base_lock(&options->ctl.clock, daemon->base, OCCL_BASE_WAIT);
    if (base_fd < 0)
        return; /* gone, and the folder with it */
    remove_folder(daemon);
    (void)close(base_fd); /* unlocks */
}

void occl_run_daemon_close(const struct occl_run_options *options, struct occl_run_daemon *daemon) {
    bool ours = daemon->pid > 0;
    occl_admin_close(&daemon->admin); /* the daemon ends when no launcher and no job is left */
    if (!daemon->base[0])
        return;
    /* Whoever leaves a private daemon last cleans up; one that others use is left to them. */
    uint64_t end_ns = occl_clock_now_ns(&options->ctl.clock) + GONE_NS;
    while (occl_clock_now_ns(&options->ctl.clock) < end_ns) {
        if (has_ended(daemon)) {
            remove_locked(options, daemon);
            break;
        }
        occl_clock_sleep_ns(&options->ctl.clock, ours ? STEP_NS : PROBE_STEP_NS);
    }
    daemon->pid = 0;
}
