/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of `occlctl doctor`: each tries the thing itself, since version numbers say little about
 * kernels that are patched or fenced in. */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_ipc/limits.h"
#include "tools/occlctl/doctor.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define OLDEST_KERNEL_MAJOR 6
#define OLDEST_KERNEL_MINOR 1
#define FILES_FEW 1024

__attribute__((format(printf, 5, 6))) static void set_fact(struct occl_doctor_fact *fact,
                                                           const char *name,
                                                           enum occl_doctor_grade grade,
                                                           const char *hint, const char *fmt, ...) {
    va_list args;
    memset(fact, 0, sizeof *fact);
    (void)snprintf(fact->name, sizeof fact->name, "%s", name); /* fits */
    (void)snprintf(fact->hint, sizeof fact->hint, "%s",
                   grade == OCCL_DOCTOR_GOOD ? "" : hint); /* fits */
    fact->grade = grade;
    va_start(args, fmt);
    (void)vsnprintf(fact->value, sizeof fact->value, fmt, args); /* cut is fine */
    va_end(args);
}

static void probe_kernel(struct occl_doctor_fact *fact) {
    struct utsname name;
    int major = 0, minor = 0;
    if (uname(&name) != 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
        memset(&name, 0, sizeof name);
    bool old = major < OLDEST_KERNEL_MAJOR ||
               (major == OLDEST_KERNEL_MAJOR && minor < OLDEST_KERNEL_MINOR);
    set_fact(fact, "kernel", old ? OCCL_DOCTOR_BAD : OCCL_DOCTOR_GOOD,
             "occl is tested on Linux 6.1 and newer", "%s", name.release);
}

static void probe_io_uring(struct occl_doctor_fact *fact) {
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    long fd = syscall(SYS_io_uring_setup, 4, &params);
    if (fd < 0) {
        set_fact(fact, "io_uring", OCCL_DOCTOR_SLOWER,
                 "the daemon uses epoll instead; see kernel.io_uring_disabled and seccomp", "%s",
                 strerror(errno));
        return;
    }
    (void)close((int)fd); /* nothing was submitted */
    set_fact(fact, "io_uring", OCCL_DOCTOR_GOOD, "", "works");
}

static void probe_memfd(struct occl_doctor_fact *fact) {
    int fd = memfd_create("occl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool works = fd >= 0 && ftruncate(fd, OCCL_PAGE_BYTES) == 0 &&
                 fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    int error = errno;
    if (fd >= 0)
        (void)close(fd); /* a probe */
    set_fact(fact, "sealed memfd", works ? OCCL_DOCTOR_GOOD : OCCL_DOCTOR_BAD,
             "occl shares memory only this way; see seccomp", "%s",
             works ? "works" : strerror(error));
}

static void probe_pidfd(struct occl_doctor_fact *fact) {
    long fd = syscall(SYS_pidfd_open, getpid(), 0);
    int error = errno;
    if (fd >= 0)
        (void)close((int)fd); /* a probe */
    set_fact(fact, "pidfd", fd >= 0 ? OCCL_DOCTOR_GOOD : OCCL_DOCTOR_BAD,
             "deaths are seen through it; see seccomp", "%s", fd >= 0 ? "works" : strerror(error));
}

static void probe_peer_pidfd(struct occl_doctor_fact *fact) {
    int ends[2] = {-1, -1};
    int fd = -1;
    socklen_t bytes = sizeof fd;
    bool works = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 &&
                 getsockopt(ends[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            (void)close(ends[i]); /* a probe */
    if (fd >= 0)
        (void)close(fd); /* a probe */
    set_fact(fact, "pidfd of a peer", works ? OCCL_DOCTOR_GOOD : OCCL_DOCTOR_SLOWER,
             "Linux 6.5 and newer; the client sends its own instead", "%s",
             works ? "works" : "not here");
}

/* Reads a word of a child's memory, as ranks of one job do. */
static void probe_attach(struct occl_doctor_fact *fact) {
    static const char hint[] = "buffers outside occl_mem_alloc are copied twice instead; see "
                               "kernel.yama.ptrace_scope and seccomp";
    uint64_t word = 0x6f63636c;
    uint64_t seen = 0;
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            (void)pause(); /* until the parent ends us */
    }
    struct iovec local = {&seen, sizeof seen};
    struct iovec remote = {&word, sizeof word};
    ssize_t got = child > 0 ? process_vm_readv(child, &local, 1, &remote, 1, 0) : -1;
    int error = errno;
    if (child > 0) {
        (void)kill(child, SIGKILL); /* our child, not reaped */
        (void)waitpid(child, NULL, 0);
    }
    bool works = got == (ssize_t)sizeof seen && seen == word;
    set_fact(fact, "cross-memory attach", works ? OCCL_DOCTOR_GOOD : OCCL_DOCTOR_SLOWER, hint, "%s",
             works ? "works (on a child of ours)" : strerror(error));
}

static void read_line(const char *path, char *out_text, size_t bytes) {
    out_text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(out_text, (int)bytes, file))
        out_text[0] = '\0';
    out_text[strcspn(out_text, "\n")] = '\0';
    (void)fclose(file); /* read only */
}

static void probe_huge_pages(struct occl_doctor_fact *fact) {
    char mode[120], count[32];
    read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", mode, sizeof mode);
    read_line("/proc/sys/vm/nr_hugepages", count, sizeof count);
    const char *chosen = strchr(mode, '[');
    bool transparent =
        chosen && (strncmp(chosen, "[always", 7) == 0 || strncmp(chosen, "[advise", 7) == 0 ||
                   strncmp(chosen, "[within_size", 12) == 0 || strncmp(chosen, "[force", 6) == 0);
    bool reserved = strtol(count, NULL, 10) > 0;
    int length = chosen ? (int)strcspn(chosen + 1, "]") : 0;
    set_fact(fact, "huge pages", transparent || reserved ? OCCL_DOCTOR_GOOD : OCCL_DOCTOR_SLOWER,
             "ordinary pages are used; set transparent_hugepage/shmem_enabled to advise, or "
             "vm.nr_hugepages",
             "%s reserved, transparent for shared memory: %.*s", count[0] ? count : "?",
             length ? length : 7, length ? chosen + 1 : "unknown");
}

static void print_limit(rlim_t limit, const char *unit, rlim_t divisor, char *out_text,
                        size_t bytes) {
    if (limit == RLIM_INFINITY)
        (void)snprintf(out_text, bytes, "unlimited"); /* fits */
    else
        (void)snprintf(out_text, bytes, "%llu %s", (unsigned long long)(limit / divisor),
                       unit); /* fits */
}

static void probe_memlock(struct occl_doctor_fact *fact) {
    struct rlimit limit = {0, 0};
    char text[48];
    (void)getrlimit(RLIMIT_MEMLOCK, &limit); /* a valid number */
    print_limit(limit.rlim_cur, "KiB", 1024, text, sizeof text);
    bool small = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (64u << 20);
    set_fact(fact, "locked memory", small && geteuid() ? OCCL_DOCTOR_SLOWER : OCCL_DOCTOR_GOOD,
             "enough for one node; network paths need more (LimitMEMLOCK, ulimit -l)", "%s", text);
}

static void probe_files(struct occl_doctor_fact *fact) {
    struct rlimit limit = {0, 0};
    char text[48];
    (void)getrlimit(RLIMIT_NOFILE, &limit); /* a valid number */
    print_limit(limit.rlim_cur, "descriptors", 1, text, sizeof text);
    set_fact(fact, "open files",
             limit.rlim_cur <= FILES_FEW ? OCCL_DOCTOR_SLOWER : OCCL_DOCTOR_GOOD,
             "a daemon with many clients needs more (LimitNOFILE, ulimit -n)", "%s", text);
}

static void probe_cpus(struct occl_doctor_fact *fact) {
    cpu_set_t set;
    CPU_ZERO(&set);
    int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    set_fact(fact, "cpu set", allowed < 2 ? OCCL_DOCTOR_SLOWER : OCCL_DOCTOR_GOOD,
             "ranks and lanes take turns on one core", "%d of %ld cores", allowed, online);
}

int occl_doctor_kernel(struct occl_doctor_fact *out_facts) {
    static void (*const probes[])(struct occl_doctor_fact *) = {
        probe_kernel, probe_io_uring,   probe_memfd,   probe_pidfd, probe_peer_pidfd,
        probe_attach, probe_huge_pages, probe_memlock, probe_files, probe_cpus,
    };
    int count = (int)(sizeof probes / sizeof probes[0]);
    for (int i = 0; i < count; i++)
        probes[i](&out_facts[i]);
    return count;
}
