/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/admin/admin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm_ipc/fdpass.h"
#include "shm_ipc/limits.h"
#include "shm_ipc/wire.h"

/* An answer is text about everything on a node; more than this is a broken daemon. */
#define REPLY_BYTES_MAX (256u << 20)

union message {
    struct occl_msg_header h;
    struct occl_msg_welcome welcome;
    struct occl_msg_reply reply;
    struct occl_msg_admin_reply admin_reply;
    uint8_t bytes[OCCL_MESSAGE_BYTES_MAX];
};

static int lost(int error, struct occl_detail *detail) {
    if (error == EAGAIN || error == EWOULDBLOCK)
        return occl_detail_set(detail, OCCL_E_TIMEOUT, error,
                               "the daemon accepted the connection but does not answer");
    return occl_detail_set(detail, OCCL_E_DAEMON_LOST, error,
                           "the daemon closed the connection%s%s", error ? ": " : "",
                           error ? strerror(error) : "");
}

static int connect_to(const char *path, int timeout_ms, int *out_fd, struct occl_detail *detail) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path)
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "the socket path is too long: %.200s",
                               path);
    memcpy(address.sun_path, path, length + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "no socket: %s", strerror(errno));
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        (void)close(fd); /* nothing was sent */
        int status = error == EACCES || error == EPERM         ? OCCL_E_PERMISSION
                     : error == EAGAIN || error == EWOULDBLOCK ? OCCL_E_TIMEOUT
                                                               : OCCL_E_NO_DAEMON;
        return occl_detail_set(detail, status, error, "cannot connect to %.200s: %s", path,
                               strerror(error));
    }
    *out_fd = fd;
    return OCCL_OK;
}

/* Receives one datagram and at most one descriptor (-1: none came). */
static int receive(int fd, union message *out_message, int *out_memfd, struct occl_detail *detail) {
    struct occl_fd_message parts;
    occl_fd_prepare_recv(&parts, out_message->bytes, sizeof out_message->bytes);
    ssize_t got = recvmsg(fd, &parts.header, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return lost(got < 0 ? errno : 0, detail);
    int fds[OCCL_MESSAGE_FDS_MAX];
    uint32_t count = 0;
    int status = occl_fd_take(&parts, (uint32_t)got, fds, &count, detail);
    if (status != OCCL_OK)
        return status;
    status = occl_msg_check(out_message->bytes, (uint32_t)got, detail);
    if (status != OCCL_OK || count > 1) {
        occl_fd_close_all(fds);
        count = 0;
    }
    if (status == OCCL_OK)
        *out_memfd = count > 0 ? fds[0] : -1;
    return status;
}

static int send_message(int fd, const void *message, size_t bytes, struct occl_detail *detail) {
    if (send(fd, message, bytes, MSG_NOSIGNAL) == (ssize_t)bytes)
        return OCCL_OK;
    return lost(errno == EPIPE || errno == ECONNRESET ? 0 : errno, detail);
}

/* The error that a reply carries; a reply that claims success where none is due is a broken one. */
static int refusal(const struct occl_detail *said, struct occl_detail *detail) {
    int status = said->status < 0 ? said->status : OCCL_E_PROTOCOL;
    return occl_detail_set(detail, status, said->system_error, "%.*s",
                           (int)strnlen(said->text, sizeof said->text), said->text);
}

static int say_hello(struct occl_admin *admin, const char *program, struct occl_detail *detail) {
    struct occl_msg_hello hello;
    memset(&hello, 0, sizeof hello);
    occl_msg_init(&hello.h, OCCL_MSG_HELLO, ++admin->request);
    hello.abi_min = OCCL_ABI_VERSION_MIN;
    hello.abi_max = OCCL_ABI_VERSION;
    hello.role = OCCL_ROLE_ADMIN;
    hello.rank_hint = -1;
    hello.own_pid = (uint32_t)getpid();
    (void)snprintf(hello.program, sizeof hello.program, "%s", program); /* names are ours */
    int status = send_message(admin->fd, &hello, sizeof hello, detail);
    if (status != OCCL_OK)
        return status;
    union message message;
    int extra = -1;
    status = receive(admin->fd, &message, &extra, detail);
    if (status != OCCL_OK)
        return status;
    if (extra >= 0)
        (void)close(extra); /* an administrator maps no page */
    if (message.h.type == OCCL_MSG_REPLY)
        return refusal(&message.reply.detail, detail);
    if (message.h.type != OCCL_MSG_WELCOME)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "expected WELCOME, found %s",
                               occl_msg_name(message.h.type));
    admin->daemon = (struct occl_admin_daemon){.epoch = message.welcome.daemon_epoch,
                                               .pid = message.welcome.daemon_pid,
                                               .lanes = message.welcome.lanes,
                                               .abi_version = message.h.abi_version};
    _Static_assert(sizeof admin->daemon.host == OCCL_HOST_BYTES, "copied whole");
    _Static_assert(sizeof admin->daemon.version == OCCL_NAME_BYTES, "copied whole");
    memcpy(admin->daemon.host, message.welcome.host, sizeof admin->daemon.host);
    memcpy(admin->daemon.version, message.welcome.version, sizeof admin->daemon.version);
    admin->daemon.host[sizeof admin->daemon.host - 1] = '\0';
    admin->daemon.version[sizeof admin->daemon.version - 1] = '\0';
    return OCCL_OK;
}

int occl_admin_open(const char *socket_path, const char *program, int timeout_ms,
                    struct occl_admin *out_admin, struct occl_detail *detail) {
    struct occl_admin admin;
    memset(&admin, 0, sizeof admin);
    admin.fd = -1;
    int status = connect_to(socket_path, timeout_ms, &admin.fd, detail);
    if (status == OCCL_OK)
        status = say_hello(&admin, program, detail);
    if (status != OCCL_OK) {
        occl_admin_close(&admin);
        return status;
    }
    *out_admin = admin;
    return OCCL_OK;
}

static int read_reply(int memfd, uint64_t bytes, json_t **out_reply, struct occl_detail *detail) {
    struct stat status;
    if (memfd < 0 || fstat(memfd, &status) != 0 || bytes > REPLY_BYTES_MAX ||
        (uint64_t)status.st_size < bytes || bytes == 0)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "the answer's text is missing or not of the stated size");
    char *text = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, memfd, 0);
    if (text == MAP_FAILED)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "cannot map the answer: %s",
                               strerror(errno));
    json_error_t error;
    json_t *reply = json_loadb(text, bytes, 0, &error);
    (void)munmap(text, bytes); /* our own mapping */
    if (!json_is_object(reply)) {
        json_decref(reply);
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "the answer is not a JSON object: %s",
                               error.text);
    }
    *out_reply = reply;
    return OCCL_OK;
}

int occl_admin_call(struct occl_admin *admin, const json_t *request, int timeout_ms,
                    json_t **out_reply, struct occl_detail *detail) {
    struct occl_msg_admin ask;
    memset(&ask, 0, sizeof ask);
    occl_msg_init(&ask.h, OCCL_MSG_ADMIN, ++admin->request);
    size_t length = json_dumpb(request, ask.text, sizeof ask.text - 1, JSON_COMPACT);
    if (length == 0 || length >= sizeof ask.text)
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "the request has %zu bytes, at most %zu",
                               length, sizeof ask.text - 1);
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    (void)setsockopt(admin->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit); /* worked before */
    int status = send_message(admin->fd, &ask, sizeof ask, detail);
    while (status == OCCL_OK) {
        union message message;
        int memfd = -1;
        status = receive(admin->fd, &message, &memfd, detail);
        if (status != OCCL_OK)
            break;
        if (message.h.type == OCCL_MSG_EVENT) {
            if (memfd >= 0)
                (void)close(memfd); /* events carry none */
            continue;               /* news for everybody, such as that the daemon drains */
        }
        if (message.h.type == OCCL_MSG_REPLY)
            status = refusal(&message.reply.detail, detail);
        else if (message.h.type != OCCL_MSG_ADMIN_REPLY || message.h.request != admin->request)
            status = occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "expected ADMIN_REPLY, found %s",
                                     occl_msg_name(message.h.type));
        else if (message.admin_reply.detail.status != OCCL_OK)
            status = refusal(&message.admin_reply.detail, detail);
        else
            status = read_reply(memfd, message.admin_reply.text_bytes, out_reply, detail);
        if (memfd >= 0)
            (void)close(memfd); /* its text is parsed */
        break;
    }
    return status;
}

void occl_admin_close(struct occl_admin *admin) {
    if (admin->fd >= 0)
        (void)close(admin->fd); /* nothing is in flight that we want */
    admin->fd = -1;
}
