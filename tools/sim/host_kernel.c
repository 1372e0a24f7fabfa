/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel as the simulated daemon sees it, behind the daemon's own doors: the loop backend that
 * decides which ready descriptor is reported when and in which order, and the identity of
 * processes. Sockets, eventfds and memfds are real; poll is asked without waiting, so what is ready
 * follows from what was done before. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/sim/host.h"

/* A report may come so late when kernels are slow. */
#define HELD_BACK_PERMILLE 200
#define HELD_BACK_MAX_NS 3000000u
#define SKIPPED_PERMILLE 300
/* The least that a kernel makes of it is a few messages. */
#define NARROW_SEND_BYTES 2048
#define POLLED_MAX 2048u

/* ---- the loop's backend ---- */

static int kernel_open(const struct occl_loop_ops *ops, void **out_state) {
    /* The table is the first member of struct sim_kernel, which is not constant. */
    *out_state = (void *)(uintptr_t)ops;
    return 0;
}

static void kernel_close(void *state) {
    (void)state;
}

static int kernel_arm(void *state, int fd, uint32_t events, uint64_t cookie) {
    struct sim_kernel *kernel = state;
    if (kernel->arm_count == kernel->arm_room) {
        kernel->arm_room = kernel->arm_room * 2 + 64;
        kernel->arms = realloc(kernel->arms, kernel->arm_room * sizeof *kernel->arms);
        if (!kernel->arms)
            abort();
    }
    kernel->arms[kernel->arm_count++] = (struct sim_arm){fd, events, cookie, 0};
    return 0;
}

static void take_arm(struct sim_kernel *kernel, uint32_t at) {
    kernel->arm_count--;
    memmove(&kernel->arms[at], &kernel->arms[at + 1],
            (kernel->arm_count - at) * sizeof *kernel->arms);
}

static void kernel_disarm(void *state, int fd, uint64_t cookie) {
    struct sim_kernel *kernel = state;
    for (uint32_t i = 0; i < kernel->arm_count; i++)
        if (kernel->arms[i].fd == fd && kernel->arms[i].cookie == cookie) {
            take_arm(kernel, i);
            return;
        }
}

/* The daemon is shown the end of a process, by its socket or by its pidfd. */
static void note_shown(struct sim_host *host, int fd) {
    for (uint32_t i = 0; i < host->process_count; i++) {
        struct sim_process *p = &host->processes[i];
        bool by_socket = fd == p->daemon_fd && p->fd < 0 && p->phase == SIM_OVER;
        if (p->shown_ns == 0 && (by_socket || (p->exited && fd == p->daemon_pidfd)))
            p->shown_ns = sim_host_now(host) - host->jumped_ns;
    }
}

static uint32_t events_of(short found) {
    uint32_t events = 0;
    if (found & POLLIN)
        events |= OCCL_LOOP_READABLE;
    if (found & POLLOUT)
        events |= OCCL_LOOP_WRITABLE;
    if (found & (POLLHUP | POLLERR | POLLRDHUP | POLLNVAL))
        events |= OCCL_LOOP_HANGUP;
    return events;
}

/* May what poll found for this arm be reported now? */
static bool visible(struct sim_host *host, struct sim_arm *arm, bool ready) {
    uint64_t now = sim_host_now(host);
    if (!ready) {
        arm->visible_ns = 0;
        return false;
    }
    if (arm->visible_ns == 0) {
        arm->visible_ns = now;
        if ((host->options.faults & SIM_FAULT_DELAY) &&
            seeded_permille(&host->seeded, HELD_BACK_PERMILLE))
            arm->visible_ns += seeded_below(&host->seeded, HELD_BACK_MAX_NS);
    }
    if (arm->visible_ns > now) {
        if (arm->visible_ns < host->kernel.due_ns)
            host->kernel.due_ns = arm->visible_ns;
        return false;
    }
    return true;
}

static void poll_arms(struct sim_kernel *kernel, struct pollfd *out_polled) {
    for (uint32_t i = 0; i < kernel->arm_count; i++) {
        const struct sim_arm *arm = &kernel->arms[i];
        short wanted = POLLRDHUP;
        if (arm->events & OCCL_LOOP_READABLE)
            wanted |= POLLIN;
        if (arm->events & OCCL_LOOP_WRITABLE)
            wanted |= POLLOUT;
        out_polled[i] = (struct pollfd){arm->fd, wanted, 0};
    }
    while (poll(out_polled, kernel->arm_count, 0) < 0)
        if (errno != EINTR)
            abort();
}

static void shuffle(struct seeded *s, struct occl_loop_report *reports, int count) {
    for (int i = count - 1; i > 0; i--) {
        uint32_t other = seeded_below(s, (uint32_t)i + 1);
        struct occl_loop_report swap = reports[i];
        reports[i] = reports[other];
        reports[other] = swap;
    }
}

static int kernel_wait(void *state, uint64_t timeout_ns, struct occl_loop_report *out_reports,
                       uint32_t max) {
    struct sim_kernel *kernel = state;
    struct sim_host *host = kernel->host;
    struct pollfd polled[POLLED_MAX];
    bool reorder = host->options.faults & SIM_FAULT_REORDER;
    uint64_t now = sim_host_now(host);
    int count = 0;
    uint32_t kept = 0, arms = kernel->arm_count;
    if (arms > POLLED_MAX)
        abort();
    kernel->due_ns = timeout_ns > SIM_NEVER - now ? SIM_NEVER : now + timeout_ns;
    poll_arms(kernel, polled);
    for (uint32_t i = 0; i < arms; i++) {
        struct sim_arm arm = kernel->arms[i];
        bool now_visible = visible(host, &arm, polled[i].revents != 0);
        if (now_visible && (uint32_t)count < max &&
            !(reorder && seeded_permille(&host->seeded, SKIPPED_PERMILLE))) {
            out_reports[count++] =
                (struct occl_loop_report){arm.cookie, events_of(polled[i].revents)};
            note_shown(host, arm.fd);
            continue;
        }
        if (now_visible)
            kernel->due_ns = now;
        kernel->arms[kept++] = arm;
    }
    kernel->arm_count = kept;
    if (reorder)
        shuffle(&host->seeded, out_reports, count);
    kernel->reported = count > 0;
    return count;
}

/* ---- identity ---- */

/* The process at the other end of an accepted connection. */
static struct sim_process *process_of(struct sim_host *host, const struct occl_session *session) {
    for (uint32_t i = 0; i < host->process_count; i++)
        if (host->processes[i].daemon_fd == session->socket_watch.fd)
            return &host->processes[i];
    abort();
}

/* The daemon has closed it, for here it is again. */
static void forget_number(struct sim_host *host, int fd) {
    for (uint32_t i = 0; i < host->process_count; i++) {
        if (host->processes[i].daemon_fd == fd)
            host->processes[i].daemon_fd = -1;
        if (host->processes[i].daemon_pidfd == fd)
            host->processes[i].daemon_pidfd = -1;
    }
}

void sim_kernel_connecting(struct sim_host *host, struct sim_process *process) {
    host->kernel.connecting[host->kernel.connecting_count++] = process->number;
}

/* Connections are accepted in the order in which they were made. */
static int identity_read(void *self, struct occl_session *session, struct occl_detail *detail) {
    struct sim_host *host = self;
    struct sim_kernel *kernel = &host->kernel;
    (void)detail;
    if (kernel->connecting_first == kernel->connecting_count)
        abort();
    struct sim_process *process = &host->processes[kernel->connecting[kernel->connecting_first++]];
    forget_number(host, session->socket_watch.fd);
    process->daemon_fd = session->socket_watch.fd;
    session->pid = process->bell >= 0 ? (pid_t)process->pid : 0;
    session->uid = host->jobs[process->job].uid;
    session->gid = session->uid;
    if (process->mishap == SIM_MISHAP_DEAF) {
        int bytes = NARROW_SEND_BYTES;
        (void)setsockopt(process->daemon_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
    return OCCL_OK;
}

static int identity_finish(void *self, struct occl_session *session, struct occl_detail *detail) {
    struct sim_process *process = process_of(self, session);
    if (process->exited)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, ESRCH, "process %d is gone already",
                               (int)session->pid);
    if (process->bell < 0)
        return OCCL_OK; /* in a pid namespace that the daemon cannot see */
    session->pidfd = fcntl(process->bell, F_DUPFD_CLOEXEC, 3);
    forget_number(self, session->pidfd);
    process->daemon_pidfd = session->pidfd;
    return session->pidfd >= 0 ? OCCL_OK : OCCL_E_NO_MEMORY;
}

static void identity_exit_cause(void *self, const struct occl_session *session, char *out_text,
                                uint32_t bytes) {
    const struct sim_process *process = process_of(self, session);
    (void)snprintf(out_text, bytes, "%s", process->exited ? process->cause : "cause unknown");
}

static bool identity_is_exiting(void *self, const struct occl_session *session) {
    return process_of(self, session)->exiting;
}

static char identity_process_state(void *self, const struct occl_session *session,
                                   bool *out_killed) {
    struct sim_host *host = self;
    const struct sim_process *process = process_of(host, session);
    if (out_killed)
        *out_killed = process->killed_pending;
    if (process->exited)
        return 'Z';
    if (process->killed_pending)
        return 'D';
    return process->stopped_until_ns > sim_host_now(host) ? 'T' : 'S';
}

struct occl_identity sim_kernel_identity(struct sim_host *host) {
    static const struct occl_identity_ops ops = {
        .read = identity_read,
        .finish = identity_finish,
        .exit_cause = identity_exit_cause,
        .is_exiting = identity_is_exiting,
        .process_state = identity_process_state,
    };
    return (struct occl_identity){&ops, host};
}

/* ---- ends ---- */

void sim_kernel_tick(struct sim_host *host, struct sim_process *process) {
    uint64_t now = sim_host_now(host);
    if (process->eof_ns <= now) {
        process->eof_ns = SIM_NEVER;
        host->progress = true;
        sim_host_note(host, 1, process->number, now);
        if (process->fd >= 0)
            (void)close(process->fd);
        process->fd = -1;
        sim_process_over(host, process);
    }
    if (process->exit_ns <= now) {
        uint64_t one = 1;
        process->exit_ns = SIM_NEVER;
        process->exited = true;
        host->progress = true;
        sim_host_note(host, 2, process->number, now);
        if (process->bell >= 0 && write(process->bell, &one, sizeof one) != (ssize_t)sizeof one)
            abort();
        /* A child of it may have the socket still. */
        if (process->eof_ns == SIM_NEVER)
            sim_process_over(host, process);
    }
}

void sim_kernel_open(struct sim_host *host) {
    struct sim_kernel *kernel = &host->kernel;
    kernel->loop_ops = (struct occl_loop_ops){
        .name = "simulated",
        .open = kernel_open,
        .close = kernel_close,
        .arm = kernel_arm,
        .disarm = kernel_disarm,
        .wait = kernel_wait,
    };
    kernel->host = host;
    kernel->due_ns = SIM_NEVER;
    kernel->connecting = sim_host_allocate(host->process_count, sizeof *kernel->connecting);
}

void sim_kernel_close(struct sim_host *host) {
    free(host->kernel.arms);
    free(host->kernel.connecting);
}
