/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end of a socket, and what became of it: from the kernel, never from a field.
 *
 * A pidfd names one process for ever, its number only until it is reaped. Sources, best first:
 * SO_PEERPIDFD (kernel 6.5); pidfd_open on the number of the credentials, checked afterwards: the
 * process must be of the same uid and the connection must still stand, so that a number used again
 * is noticed. A pidfd of the client's would have to be closed again, and may be something else:
 * see receive in session.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/occld.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define GROUPS_MAX 1024
/* From the kernel's linux/pidfd.h (6.13, exit code 6.15); Debian's headers are older. */
#define PIDFD_INFO_EXIT_CODE (1ull << 3)
struct pidfd_info_v0 {
    uint64_t mask;
    uint64_t cgroup_id;
    uint32_t pid, tgid, ppid;
    uint32_t ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int32_t exit_code;
};
#define PIDFD_GET_INFO_V0 _IOWR(0xff, 11, struct pidfd_info_v0)
#define PROCESS_EXITING_FLAG 0x4ul
#define THREADS_LOOKED_AT 64

static int system_read(void *self, struct occl_session *session, struct occl_detail *detail) {
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    int fd = session->socket_watch.fd;
    (void)self;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) < 0)
        return occl_detail_set(detail, OCCL_E_INTERNAL, errno, "no credentials of the peer");
    session->pid = cred.pid;
    session->uid = cred.uid;
    session->gid = cred.gid;
    return OCCL_OK;
}

void occl_identity_find_operators(struct occl_daemon *daemon) {
    daemon->operator_gid_known = false;
    if (!daemon->config.operator_group[0])
        return;
    const struct group *group = getgrnam(daemon->config.operator_group);
    if (!group) {
        OCCL_LOG_WARN(daemon->log, "identity", "operator_group %s does not exist",
                      daemon->config.operator_group);
        return;
    }
    daemon->operator_gid = group->gr_gid;
    daemon->operator_gid_known = true;
}

bool occl_identity_is_operator(const struct occl_session *session) {
    const struct occl_daemon *daemon = session->daemon;
    /* uid 0 of a container that was given a socket of its own is a tenant like any other. */
    if (session->listener->index != 0)
        return false;
    if (session->uid == 0 || session->uid == geteuid())
        return true;
    if (!daemon->operator_gid_known)
        return false;
    if (session->gid == daemon->operator_gid)
        return true;
    gid_t groups[GROUPS_MAX];
    socklen_t bytes = sizeof groups;
    if (getsockopt(session->socket_watch.fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
        return false;
    for (size_t i = 0; i < bytes / sizeof *groups; i++)
        if (groups[i] == daemon->operator_gid)
            return true;
    return false;
}

/* ---- small files of /proc ---- */

static ssize_t read_file(const char *path, char *out_text, size_t bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, out_text, bytes - 1);
    close(fd);
    if (got < 0)
        return -EIO;
    out_text[got] = '\0';
    return got;
}

/* The process a pidfd names, in our namespace: -1 once it is reaped, 0 outside of it, -2 unknown.
 */
static long pidfd_process(int pidfd) {
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    if (read_file(path, text, sizeof text) <= 0)
        return -2;
    const char *at = strstr(text, "\nPid:");
    return at ? strtol(at + 5, NULL, 10) : -2;
}

static bool pidfd_has_exited(int pidfd) {
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&poll_fd, 1, 0) > 0;
}

static bool connection_stands(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};
    return poll(&poll_fd, 1, 0) == 0;
}

static uid_t process_uid(pid_t pid) {
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, &st) == 0 ? st.st_uid : (uid_t)-1;
}

static int system_finish(void *self, struct occl_session *session, struct occl_detail *detail) {
    int pidfd = -1;
    (void)self;
    socklen_t bytes = sizeof pidfd;
    int fd = session->socket_watch.fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0) {
        session->pidfd = pidfd;
        (void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
        return OCCL_OK;
    }
    if (errno == ESRCH || errno == ENODATA)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, errno, "process %d is gone already",
                               (int)session->pid);
    if (session->pid == 0)
        return OCCL_OK; /* an alien pid namespace on an old kernel: the socket's end must do */
    pidfd = (int)syscall(SYS_pidfd_open, session->pid, 0);
    if (pidfd < 0)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, errno, "process %d cannot be watched",
                               (int)session->pid);
    uid_t uid = process_uid(session->pid);
    if (uid != session->uid || !connection_stands(fd) || pidfd_has_exited(pidfd)) {
        close(pidfd);
        return occl_detail_set(
            detail, OCCL_E_PROTOCOL, 0,
            "process %d: expected uid %u and a standing connection, found uid %u",
            (int)session->pid, (unsigned)session->uid, (unsigned)uid);
    }
    session->pidfd = pidfd;
    return OCCL_OK;
}

/* ---- what became of it ---- */

/* Field of /proc/PID/stat counted from 1 as in proc(5); fields before the third are not asked for.
 */
static const char *stat_field(const char *text, int number) {
    const char *at = strrchr(text, ')');
    for (int i = 2; at && i < number; i++) {
        at = strchr(at + 1, ' ');
    }
    return at ? at + 1 : NULL;
}

/* Reads /proc/PID/stat of the process itself, not of a later one with its number. */
static bool read_stat(const struct occl_session *session, char *out_text, size_t bytes) {
    char path[64];
    if (session->pid <= 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)session->pid);
    if (read_file(path, out_text, bytes) <= 0)
        return false;
    return session->pidfd < 0 || pidfd_process(session->pidfd) == (long)session->pid;
}

static bool has_ended(const char *stat) {
    const char *state = stat_field(stat, 3);
    return !state || *state == 'Z' || *state == 'X';
}

static bool is_leaving(const char *stat) {
    const char *flags = stat_field(stat, 9);
    return has_ended(stat) || (flags && (strtoul(flags, NULL, 10) & PROCESS_EXITING_FLAG));
}

/* The first thread of a process may end before the others, and is a zombie then: the process is
 * what the others are. Puts the stat of one that goes on in place of that of the first; leaves it
 * when there is none among the first few. */
static void look_at_others(const struct occl_session *session, char *text, size_t bytes) {
    char path[80], other[1024];
    const struct dirent *entry;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)session->pid);
    DIR *threads = opendir(path);
    for (int i = 0; threads && i < THREADS_LOOKED_AT && (entry = readdir(threads)) != NULL; i++) {
        long thread = strtol(entry->d_name, NULL, 10);
        if (thread <= 0)
            continue;
        (void)snprintf(path, sizeof path, "/proc/%d/task/%ld/stat", (int)session->pid, thread);
        if (read_file(path, other, sizeof other) <= 0 || is_leaving(other))
            continue;
        (void)snprintf(text, bytes, "%s", other);
        break;
    }
    if (threads)
        (void)closedir(threads);
}

/* As read_stat, of a thread that goes on if the first one does not. */
static bool read_living_stat(const struct occl_session *session, char *out_text, size_t bytes) {
    if (!read_stat(session, out_text, bytes))
        return false;
    if (has_ended(out_text) && session->pidfd >= 0 && !pidfd_has_exited(session->pidfd))
        look_at_others(session, out_text, bytes);
    return true;
}

void occl_identity_describe_exit(int code, char *out_text, uint32_t bytes) {
    if (WIFSIGNALED(code)) {
        const char *name = sigabbrev_np(WTERMSIG(code));
        (void)snprintf(out_text, bytes, "killed by signal %d (SIG%s)", WTERMSIG(code),
                       name ? name : "?");
    } else {
        (void)snprintf(out_text, bytes, "exited with status %d without detaching",
                       WEXITSTATUS(code));
    }
}

static void system_exit_cause(void *self, const struct occl_session *session, char *out_text,
                              uint32_t bytes) {
    struct pidfd_info_v0 info;
    char text[1024];
    (void)self;
    memset(&info, 0, sizeof info);
    info.mask = PIDFD_INFO_EXIT_CODE;
    if (session->pidfd >= 0 && ioctl(session->pidfd, PIDFD_GET_INFO_V0, &info) == 0 &&
        (info.mask & PIDFD_INFO_EXIT_CODE)) {
        occl_identity_describe_exit(info.exit_code, out_text, bytes);
        return;
    }
    /* Not reaped yet: the zombie's exit code is in its stat, for those who may see it. */
    if (read_stat(session, text, sizeof text)) {
        const char *state = stat_field(text, 3);
        const char *code = stat_field(text, 52);
        long value = code ? strtol(code, NULL, 10) : 0;
        /* Those who may not see it read zero, which then says nothing. */
        if (state && *state == 'Z' && value != 0) {
            occl_identity_describe_exit((int)value, out_text, bytes);
            return;
        }
        if (state && *state == 'Z' && (geteuid() == 0 || geteuid() == session->uid)) {
            occl_identity_describe_exit(0, out_text, bytes);
            return;
        }
    }
    (void)snprintf(out_text, bytes, "cause unknown");
}

static bool system_is_exiting(void *self, const struct occl_session *session) {
    char text[1024];
    (void)self;
    return !read_living_stat(session, text, sizeof text) || is_leaving(text);
}

static bool kill_is_pending(const char *status) {
    static const char *const names[] = {"\nSigPnd:", "\nShdPnd:"};
    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(status, names[i]);
        if (at && (strtoull(at + 8, NULL, 16) & (1ull << 8)))
            return true;
    }
    return false;
}

static char system_process_state(void *self, const struct occl_session *session, bool *out_killed) {
    char path[64];
    char text[4096];
    (void)self;
    if (out_killed)
        *out_killed = false;
    if (pidfd_has_exited(session->pidfd))
        return 'G';
    if (!read_living_stat(session, text, sizeof text))
        return session->pid > 0 ? 'G' : '?';
    const char *field = stat_field(text, 3);
    char state = field ? *field : '?';
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)session->pid);
    if (out_killed && read_file(path, text, sizeof text) > 0)
        *out_killed = kill_is_pending(text);
    return state;
}

struct occl_identity occl_identity_system(void) {
    static const struct occl_identity_ops ops = {
        .read = system_read,
        .finish = system_finish,
        .exit_cause = system_exit_cause,
        .is_exiting = system_is_exiting,
        .process_state = system_process_state,
    };
    return (struct occl_identity){&ops, NULL};
}

/* ---- the door ---- */

static const struct occl_identity *door_of(const struct occl_session *session) {
    return &session->daemon->identity;
}

int occl_identity_read(struct occl_session *session, struct occl_detail *detail) {
    return door_of(session)->ops->read(door_of(session)->self, session, detail);
}

int occl_identity_finish(struct occl_session *session, struct occl_detail *detail) {
    return door_of(session)->ops->finish(door_of(session)->self, session, detail);
}

void occl_identity_exit_cause(const struct occl_session *session, char *out_text, uint32_t bytes) {
    door_of(session)->ops->exit_cause(door_of(session)->self, session, out_text, bytes);
}

bool occl_identity_has_exited(const struct occl_session *session) {
    return pidfd_has_exited(session->pidfd);
}

bool occl_identity_is_exiting(const struct occl_session *session) {
    return door_of(session)->ops->is_exiting(door_of(session)->self, session);
}

char occl_identity_process_state(const struct occl_session *session, bool *out_killed) {
    return door_of(session)->ops->process_state(door_of(session)->self, session, out_killed);
}

const char *occl_identity_state_word(char state) {
    switch (state) {
    case 'R':
        return "running";
    case 'S':
    case 'I':
        return "sleeping";
    case 'D':
        return "uninterruptible";
    case 'T':
    case 't':
        return "stopped";
    case 'Z':
        return "zombie";
    case 'X':
    case 'G':
        return "gone";
    default:
        return "unknown";
    }
}
