/* SPDX-License-Identifier: Apache-2.0 */
/* A client process: its connection, its ledger of requests, its pages, its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm_ipc/fdpass.h"
#include "tools/sim/host.h"

#define WITHOUT_PIDFD_PERMILLE 80
#define PROMPT_END_NS 50000u
#define LATE_END_NS 20000000u
/* The socket outlives the process: a child of it has it open. */
#define INHERITED_PERMILLE 100

/* ---- connection ---- */

void sim_process_connect(struct sim_host *host, struct sim_process *process) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bool messy = !host->jobs[process->job].innocent;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", host->socket);
    process->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (process->fd < 0)
        abort();
    process->phase = SIM_CONNECTED;
    process->connected_ns = sim_host_now(host);
    if (connect(process->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (!host->daemon_over)
            sim_host_broken(host, "connect: process %u: %s", process->number, strerror(errno));
        sim_process_over(host, process);
        return;
    }
    if (!(messy && seeded_permille(&host->seeded, WITHOUT_PIDFD_PERMILLE)))
        process->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sim_kernel_connecting(host, process);
}

void sim_process_over(struct sim_host *host, struct sim_process *process) {
    if (process->phase == SIM_OVER)
        return;
    sim_host_note(host, 3, process->number, process->phase);
    process->phase = SIM_OVER;
    process->ask_count = 0; /* answered, or the connection is closed */
    process->wake_ns = SIM_NEVER;
}

bool sim_process_send(struct sim_host *host, struct sim_process *process, const void *data,
                      uint32_t bytes) {
    struct occl_detail detail;
    int status = occl_fd_send(process->fd, data, bytes, NULL, 0, false, &detail);
    if (status == OCCL_OK) {
        host->progress = true;
        return true;
    }
    if (status != OCCL_WOULD_BLOCK && status != OCCL_E_NO_MEMORY && status != OCCL_E_DAEMON_LOST)
        sim_host_broken(host, "send: process %u: %s", process->number, detail.text);
    return false;
}

bool sim_process_ask(struct sim_host *host, struct sim_process *process, void *msg, uint32_t bytes,
                     const struct sim_ask *ask) {
    struct occl_msg_header *header = msg;
    if (process->ask_count == SIM_ASKS_MAX)
        return false;
    header->request = process->next_request;
    if (!sim_process_send(host, process, msg, bytes))
        return false;
    struct sim_ask *kept = &process->asks[process->ask_count++];
    *kept = *ask;
    kept->request = process->next_request++;
    kept->type = header->type;
    kept->asked_ns = sim_host_now(host);
    kept->jumped_ns = host->jumped_ns;
    sim_host_note(host, 4, process->number, (uint64_t)header->type << 32 | kept->request);
    return true;
}

bool sim_process_gave_reason(const struct sim_process *process) {
    return process->exiting || process->phase == SIM_OVER || process->misbehaved || process->slow ||
           process->detaching || process->eof_ns != SIM_NEVER;
}

/* ---- receiving ---- */

/* Why the daemon may close a connection of somebody who keeps the rules. */
static bool may_be_closed(const struct sim_host *host, const struct sim_process *process) {
    bool overdue = process->phase <= SIM_GREETED && sim_host_now(host) - process->connected_ns >=
                                                        host->daemon->config.handshake_timeout_ns;
    return process->detaching || process->refused || process->misbehaved || process->slow ||
           overdue || host->drained_ns != 0;
}

/* What it has in its memory stays, unless it has given the daemon a reason. */
static void check_memory(struct sim_host *host, const struct sim_process *process) {
    if (!process->region_base || process->region_freed || process->misbehaved || process->slow ||
        process->detaching)
        return;
    for (uint32_t i = 0; i < OCCL_PAGE_BYTES; i++)
        if (process->region_base[SIM_SLOTS_BYTES + i] != SIM_OWN_BYTE) {
            sim_host_broken(host, "memory: that of process %u has changed", process->number);
            return;
        }
}

static void connection_ended(struct sim_host *host, struct sim_process *process) {
    if (!may_be_closed(host, process))
        sim_host_broken(host, "closed: the connection of process %u ended for no reason",
                        process->number);
    (void)close(process->fd);
    process->fd = -1;
    process->lost = true;
    check_memory(host, process);
    host->progress = true;
    sim_process_over(host, process);
}

void sim_process_receive(struct sim_host *host, struct sim_process *process) {
    uint64_t now = sim_host_now(host);
    union {
        uint64_t align;
        char bytes[OCCL_MESSAGE_BYTES_MAX];
    } buffer;
    while (process->fd >= 0 && !process->exiting && process->stopped_until_ns <= now &&
           process->deaf_until_ns <= now && process->phase != SIM_OVER) {
        int fds[OCCL_MESSAGE_FDS_MAX];
        uint32_t bytes = 0, fd_count = 0;
        struct occl_detail detail;
        int status = occl_fd_recv(process->fd, buffer.bytes, sizeof buffer.bytes, false, &bytes,
                                  fds, &fd_count, &detail);
        if (status == OCCL_WOULD_BLOCK)
            return;
        if (status != OCCL_OK) {
            connection_ended(host, process);
            return;
        }
        host->progress = true;
        process->messages++;
        process->steps++;
        host->result.messages++;
        if (occl_msg_check(buffer.bytes, bytes, &detail) != OCCL_OK)
            sim_host_broken(host, "message: process %u got %s", process->number, detail.text);
        else
            sim_answers_take(host, process, buffer.bytes, fds, fd_count);
        occl_fd_close_all(fds);
        if (process->wake_ns == SIM_NEVER)
            process->wake_ns = now + seeded_below(&host->seeded, 20000);
        if (seeded_permille(&host->seeded, 300))
            return;
    }
}

/* ---- the end ---- */

static void write_cause(struct sim_host *host, struct sim_process *process, enum sim_mishap how) {
    if (how == SIM_MISHAP_EXITED)
        (void)snprintf(process->cause, sizeof process->cause,
                       "exited with status %u without detaching", seeded_below(&host->seeded, 4));
    else
        (void)snprintf(process->cause, sizeof process->cause, "killed by signal 9 (SIGKILL)");
}

/* The kernel closes the socket and reports the exit: one soon after the other, or late and in any
 * order. */
void sim_process_die(struct sim_host *host, struct sim_process *process, enum sim_mishap how) {
    struct seeded *s = &host->seeded;
    uint64_t now = sim_host_now(host);
    bool late = host->options.faults & SIM_FAULT_DELAY;
    if (process->exiting)
        return;
    sim_host_note(host, 5, process->number, how);
    host->progress = true;
    process->wake_ns = SIM_NEVER;
    process->eof_ns = now + seeded_below(s, late ? LATE_END_NS : PROMPT_END_NS);
    if (how == SIM_MISHAP_EXEC) {
        process->eof_ns = now;
        return;
    }
    process->exiting = true;
    host->result.deaths++;
    write_cause(host, process, how);
    process->exit_ns = late ? now + seeded_below(s, LATE_END_NS)
                            : process->eof_ns + seeded_below(s, PROMPT_END_NS);
    if (process->bell >= 0 && late && seeded_permille(s, INHERITED_PERMILLE))
        process->eof_ns = SIM_NEVER;
    if (process->fd < 0)
        process->eof_ns = SIM_NEVER;
}

void sim_process_free(struct sim_host *host, struct sim_process *process) {
    (void)host;
    if (process->fd >= 0)
        (void)close(process->fd);
    if (process->bell >= 0)
        (void)close(process->bell);
    if (process->page)
        occl_memfd_unmap(process->page, process->welcome.page_bytes);
    if (process->region_base)
        occl_memfd_unmap(process->region_base, SIM_REGION_BYTES);
    process->fd = process->bell = -1;
    process->page = NULL;
    process->region_base = NULL;
}
