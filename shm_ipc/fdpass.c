/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/fdpass.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "shm_ipc/assert.h"

void occl_fd_prepare_send(struct occl_fd_message *message, const void *data, uint32_t bytes,
                          const int *fds, uint32_t fd_count) {
    OCCL_ASSERT(fd_count <= OCCL_MESSAGE_FDS_MAX);
    memset(message, 0, sizeof *message);
    /* sendmsg only reads; the interface has no const. */
    message->iov.iov_base = (void *)(uintptr_t)data;
    message->iov.iov_len = bytes;
    message->header.msg_iov = &message->iov;
    message->header.msg_iovlen = 1;
    if (fd_count == 0)
        return;
    message->header.msg_control = message->control.bytes;
    message->header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(&message->header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
}

void occl_fd_prepare_recv(struct occl_fd_message *message, void *buffer, uint32_t capacity_bytes) {
    memset(message, 0, sizeof *message);
    message->iov.iov_base = buffer;
    message->iov.iov_len = capacity_bytes;
    message->header.msg_iov = &message->iov;
    message->header.msg_iovlen = 1;
    message->header.msg_control = message->control.bytes;
    message->header.msg_controllen = sizeof message->control.bytes;
}

void occl_fd_close_all(int fds[OCCL_MESSAGE_FDS_MAX]) {
    for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]); /* received, never written: nothing can be lost */
        fds[i] = -1;
    }
}

/* Collects what the kernel installed. The padding of the control buffer has room for one descriptor
 * more than allowed, so the number is checked and the surplus closed. */
static uint32_t collect(struct msghdr *header, int out_fds[OCCL_MESSAGE_FDS_MAX]) {
    uint32_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = c->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int), count++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            if (count < OCCL_MESSAGE_FDS_MAX)
                out_fds[count] = fd;
            else
                (void)close(fd);
        }
    }
    return count;
}

int occl_fd_take(struct occl_fd_message *message, uint32_t received_bytes,
                 int out_fds[OCCL_MESSAGE_FDS_MAX], uint32_t *out_fd_count,
                 struct occl_detail *detail) {
    int flags = message->header.msg_flags;
    int status = OCCL_OK;
    for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++)
        out_fds[i] = -1;
    uint32_t count = collect(&message->header, out_fds);
    if (flags & MSG_TRUNC)
        status = occl_detail_set(detail, OCCL_E_TRUNCATED, 0, "datagram longer than %zu bytes",
                                 message->iov.iov_len);
    else if ((flags & MSG_CTRUNC) && count < OCCL_MESSAGE_FDS_MAX)
        status = occl_detail_set(detail, OCCL_E_NO_MEMORY, EMFILE,
                                 "no descriptor is left in this process (RLIMIT_NOFILE)");
    else if (flags & MSG_CTRUNC)
        status = occl_detail_set(detail, OCCL_E_TRUNCATED, 0,
                                 "descriptors cut off after %u: expected at most %d", count,
                                 OCCL_MESSAGE_FDS_MAX);
    else if (count > OCCL_MESSAGE_FDS_MAX)
        status = occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                                 "%u descriptors in one message: expected at most %d", count,
                                 OCCL_MESSAGE_FDS_MAX);
    else if (received_bytes == 0)
        /* An empty datagram is no message either, so it may end the connection like its end. */
        status = occl_detail_set(detail, OCCL_E_DAEMON_LOST, 0, "connection ended");
    if (status != OCCL_OK) {
        occl_fd_close_all(out_fds);
        return status;
    }
    *out_fd_count = count;
    return OCCL_OK;
}

static int status_of(int error) {
    switch (error) {
    case EAGAIN:
        return OCCL_WOULD_BLOCK;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
    case ECONNREFUSED:
        return OCCL_E_DAEMON_LOST;
    case ENOMEM:
    case ENOBUFS:
    case ETOOMANYREFS:
    case EMFILE:
    case ENFILE:
        return OCCL_E_NO_MEMORY;
    default:
        return OCCL_E_INTERNAL;
    }
}

static int fail(struct occl_detail *detail, const char *what, int error) {
    int status = status_of(error);
    if (status == OCCL_WOULD_BLOCK)
        return status;
    return occl_detail_set(detail, status, error, "%s: %s", what, strerror(error));
}

int occl_fd_send(int socket_fd, const void *data, uint32_t bytes, const int *fds, uint32_t fd_count,
                 bool wait, struct occl_detail *detail) {
    struct occl_fd_message message;
    occl_fd_prepare_send(&message, data, bytes, fds, fd_count);
    ssize_t sent;
    do {
        sent = sendmsg(socket_fd, &message.header, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return fail(detail, "send", errno);
    /* SEQPACKET sends whole datagrams or nothing. */
    OCCL_DCHECK((size_t)sent == bytes);
    return OCCL_OK;
}

int occl_fd_recv(int socket_fd, void *buffer, uint32_t capacity_bytes, bool wait,
                 uint32_t *out_bytes, int out_fds[OCCL_MESSAGE_FDS_MAX], uint32_t *out_fd_count,
                 struct occl_detail *detail) {
    struct occl_fd_message message;
    ssize_t got;
    do {
        occl_fd_prepare_recv(&message, buffer, capacity_bytes);
        got = recvmsg(socket_fd, &message.header, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return fail(detail, "receive", errno);
    int status = occl_fd_take(&message, (uint32_t)got, out_fds, out_fd_count, detail);
    if (status == OCCL_OK || status == OCCL_E_NO_MEMORY)
        *out_bytes = (uint32_t)got;
    return status;
}
