/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams with descriptors on the SEQPACKET socket. Two layers: struct occl_fd_message prepares a
 * msghdr and takes one apart (for a loop that does its own sendmsg and recvmsg, also by io_uring),
 * and occl_fd_send / occl_fd_recv do the system call too.
 *
 * No descriptor leaks: whatever is wrong with a received datagram (longer than the buffer, more
 * descriptors than allowed, truncated control data), all descriptors that the kernel installed for
 * it are closed before the error is returned. Received ones are close-on-exec. */
#ifndef SHM_IPC_FDPASS_H
#define SHM_IPC_FDPASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "shm_ipc/limits.h"
#include "shm_ipc/status.h"

/* Room for the descriptors we accept and for credentials, should somebody turn those on. */
#define OCCL_FD_CONTROL_BYTES \
    (CMSG_SPACE(OCCL_MESSAGE_FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred)))

/* Points into itself: stays where it is between prepare and the end of the system call. */
struct occl_fd_message {
    struct msghdr header;
    struct iovec iov;
    union {
        struct cmsghdr align;
        char bytes[OCCL_FD_CONTROL_BYTES];
    } control;
};

/* Neither blocks nor allocates. data and fds stay the caller's until the send is done. fd_count is
 * at most OCCL_MESSAGE_FDS_MAX. */
void occl_fd_prepare_send(struct occl_fd_message *message, const void *data, uint32_t bytes,
                          const int *fds, uint32_t fd_count);
void occl_fd_prepare_recv(struct occl_fd_message *message, void *buffer, uint32_t capacity_bytes);
/* Judges a recvmsg that returned received_bytes (>= 0) with MSG_CMSG_CLOEXEC. OCCL_OK: the
 * descriptors in out_fds (room for OCCL_MESSAGE_FDS_MAX; unused ones are -1) are the caller's.
 * OCCL_E_TRUNCATED: datagram or control data did not fit. OCCL_E_PROTOCOL: too many descriptors.
 * OCCL_E_NO_MEMORY: the table of descriptors is full; the datagram is whole, but for them.
 * OCCL_E_DAEMON_LOST: end of the connection. On errors nothing is left open. */
int occl_fd_take(struct occl_fd_message *message, uint32_t received_bytes,
                 int out_fds[OCCL_MESSAGE_FDS_MAX], uint32_t *out_fd_count,
                 struct occl_detail *detail) __attribute__((warn_unused_result));
void occl_fd_close_all(int fds[OCCL_MESSAGE_FDS_MAX]);

/* One datagram. wait: block until there is room. OCCL_OK, OCCL_WOULD_BLOCK (only without wait),
 * OCCL_E_DAEMON_LOST (the peer is gone), OCCL_E_NO_MEMORY (also: too many descriptors in flight),
 * OCCL_E_INTERNAL. Never raises SIGPIPE. */
int occl_fd_send(int socket_fd, const void *data, uint32_t bytes, const int *fds, uint32_t fd_count,
                 bool wait, struct occl_detail *detail) __attribute__((warn_unused_result));
/* One datagram into buffer. Statuses of occl_fd_take and of occl_fd_send. *out_bytes is set on
 * success, and on OCCL_E_NO_MEMORY if it was the descriptors that found no room. */
int occl_fd_recv(int socket_fd, void *buffer, uint32_t capacity_bytes, bool wait,
                 uint32_t *out_bytes, int out_fds[OCCL_MESSAGE_FDS_MAX], uint32_t *out_fd_count,
                 struct occl_detail *detail) __attribute__((warn_unused_result));

#endif
