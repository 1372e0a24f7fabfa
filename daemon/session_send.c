/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to a client. The socket is tried first; what does not fit waits in a bounded queue with
 * its descriptors duplicated, and the loop watches for room. A client that lets the queue overflow
 * is disconnected: the daemon never waits for it. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/occld.h"
#include "shm_ipc/fdpass.h"

struct occl_outgoing {
    STAILQ_ENTRY(occl_outgoing) next;
    uint32_t bytes;
    uint32_t fd_count;
    int fds[OCCL_MESSAGE_FDS_MAX];
    unsigned char data[];
};

static void release(struct occl_outgoing *out) {
    for (uint32_t i = 0; i < out->fd_count; i++)
        close(out->fds[i]);
    free(out);
}

void occl_session_drop_queue(struct occl_session *session) {
    struct occl_outgoing *out;
    while ((out = STAILQ_FIRST(&session->queue)) != NULL) {
        STAILQ_REMOVE_HEAD(&session->queue, next);
        release(out);
    }
    session->queue_bytes = 0;
}

static void watch_for_room(struct occl_session *session, bool wanted) {
    if (!session->socket_watch.slot)
        return;
    uint32_t events = OCCL_LOOP_READABLE | (wanted ? OCCL_LOOP_WRITABLE : 0);
    if (occl_loop_watch_set(session->daemon->loop, &session->socket_watch, events) != OCCL_OK)
        occl_session_end(session, OCCL_CAUSE_SLOW, "the loop refused to watch its socket");
}

static int send_now(struct occl_session *session, const void *data, uint32_t bytes, const int *fds,
                    uint32_t fd_count) {
    struct occl_detail detail;
    return occl_fd_send(session->socket_watch.fd, data, bytes, fds, fd_count, false, &detail);
}

/* What a descriptor that waits counts for: so few of them wait, however small their messages are.
 */
#define FD_COUNTS_FOR_BYTES 1024u

static uint64_t cost_of(uint32_t bytes, uint32_t fd_count) {
    return bytes + (uint64_t)fd_count * FD_COUNTS_FOR_BYTES;
}

static void enqueue(struct occl_session *session, const void *msg, uint32_t bytes, const int *fds,
                    uint32_t fd_count) {
    uint64_t limit = session->daemon->config.send_queue_bytes;
    struct occl_outgoing *out = session->queue_bytes + cost_of(bytes, fd_count) <= limit
                                    ? malloc(sizeof *out + bytes)
                                    : NULL;
    if (!out) {
        session->daemon->counters.slow_total++;
        occl_session_end(session, OCCL_CAUSE_SLOW, "does not read its messages: %llu bytes wait",
                         (unsigned long long)session->queue_bytes);
        return;
    }
    out->bytes = bytes;
    out->fd_count = 0;
    memcpy(out->data, msg, bytes);
    for (uint32_t i = 0; i < fd_count; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (fd < 0) {
            release(out);
            occl_session_end(session, OCCL_CAUSE_SLOW, "no descriptor left to queue a message");
            return;
        }
        out->fds[out->fd_count++] = fd;
    }
    STAILQ_INSERT_TAIL(&session->queue, out, next);
    session->queue_bytes += cost_of(bytes, fd_count);
    watch_for_room(session, true);
}

void occl_session_send(struct occl_session *session, void *msg, uint32_t bytes, const int *fds,
                       uint32_t fd_count) {
    if (session->phase == OCCL_PHASE_ENDING)
        return;
    struct occl_msg_header *header = msg;
    header->abi_version = session->abi_version ? session->abi_version : OCCL_ABI_VERSION;
    int status = OCCL_WOULD_BLOCK;
    if (STAILQ_EMPTY(&session->queue))
        status = send_now(session, msg, bytes, fds, fd_count);
    /* Too many descriptors in flight is a matter of the receiver reading, like a full buffer. */
    if (status == OCCL_WOULD_BLOCK || status == OCCL_E_NO_MEMORY)
        enqueue(session, msg, bytes, fds, fd_count);
    /* Any other failure shows at the socket as its end: the read side decides what it means. */
}

void occl_session_flush(struct occl_session *session) {
    struct occl_outgoing *out;
    while ((out = STAILQ_FIRST(&session->queue)) != NULL) {
        int status = send_now(session, out->data, out->bytes, out->fds, out->fd_count);
        if (status == OCCL_WOULD_BLOCK || status == OCCL_E_NO_MEMORY)
            return;
        STAILQ_REMOVE_HEAD(&session->queue, next);
        session->queue_bytes -= cost_of(out->bytes, out->fd_count);
        release(out);
    }
    if (session->phase != OCCL_PHASE_ENDING)
        watch_for_room(session, false);
}

void occl_session_reply_detail(struct occl_session *session, uint64_t request,
                               const struct occl_detail *detail) {
    struct occl_msg_reply reply;
    memset(&reply, 0, sizeof reply);
    occl_msg_init(&reply.h, OCCL_MSG_REPLY, request);
    reply.detail.status = detail->status;
    reply.detail.system_error = detail->system_error;
    (void)snprintf(reply.detail.text, sizeof reply.detail.text, "%s", detail->text);
    occl_session_send(session, &reply, sizeof reply, NULL, 0);
}

void occl_session_reply(struct occl_session *session, uint64_t request, int status, const char *fmt,
                        ...) {
    struct occl_detail detail;
    va_list args;
    memset(&detail, 0, sizeof detail);
    detail.status = status;
    va_start(args, fmt);
    (void)vsnprintf(detail.text, sizeof detail.text, fmt, args);
    va_end(args);
    occl_session_reply_detail(session, request, &detail);
}

void occl_session_event(struct occl_session *session, enum occl_event_kind kind, uint32_t number,
                        uint32_t about_rank, uint32_t about_pid, int status, const char *text) {
    struct occl_msg_event event;
    memset(&event, 0, sizeof event);
    occl_msg_init(&event.h, OCCL_MSG_EVENT, 0);
    event.kind = kind;
    event.number = number;
    event.about_rank = about_rank;
    event.about_pid = about_pid;
    event.detail.status = status;
    (void)snprintf(event.detail.text, sizeof event.detail.text, "%s", text);
    occl_session_send(session, &event, sizeof event, NULL, 0);
}
