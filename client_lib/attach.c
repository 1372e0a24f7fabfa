/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to the daemon and detaching; forks; the loss of the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client_lib/client.h"
#include "client_lib/locate.h"
#include "client_lib/memory.h"
#include "client_lib/waiting.h"
#include "shm_ipc/fdpass.h"
#include "shm_ipc/region.h"

#define HANDSHAKE_MS 10000
#define CALIBRATION_NS 500000

struct client_library occl_lib = {
    .lifecycle = PTHREAD_MUTEX_INITIALIZER,
    .control = PTHREAD_MUTEX_INITIALIZER,
    .memory = PTHREAD_MUTEX_INITIALIZER,
    .ops_lock = PTHREAD_MUTEX_INITIALIZER,
    .after_lock = PTHREAD_MUTEX_INITIALIZER,
    .watch_start = PTHREAD_MUTEX_INITIALIZER,
    .socket_fd = -1,
};

int client_enter(void) {
    if (__builtin_expect(occl_observe32(&occl_lib.attached) && !occl_peek32(&occl_lib.lost), 1))
        return OCCL_OK;
    if (occl_peek32(&occl_lib.forked))
        return client_fail(OCCL_E_FORKED,
                           "this process is a forked child of the one that attached; call "
                           "occl_init to attach it");
    if (!occl_peek32(&occl_lib.attached))
        return client_fail(OCCL_E_USAGE, "occl_init has not been called");
    return client_fail_lost();
}

int client_fail_lost(void) {
    int status = -(int)occl_peek32(&occl_lib.lost);
    if (status == OCCL_E_QUARANTINED)
        return client_fail(status,
                           "the session with the daemon (pid %u) was ended: the memory it shares "
                           "with this process was found corrupt",
                           occl_lib.welcome.daemon_pid);
    return client_fail(status, "the daemon (pid %u) ended or closed this session",
                       occl_lib.welcome.daemon_pid);
}

int client_begin(bool collect) {
    /* Announced first, then looked; detach closes the door first, then looks who is inside. */
    occl_add32(&occl_lib.inside, 1);
    int status = occl_look32(&occl_lib.attached) ? OCCL_OK : OCCL_E_USAGE;
    if (status || occl_peek32(&occl_lib.lost))
        status = client_enter();
    if (collect && (status == OCCL_E_DAEMON_LOST || status == OCCL_E_QUARANTINED))
        status = OCCL_OK;
    if (status)
        client_end();
    return status;
}

void client_end(void) {
    occl_add32(&occl_lib.inside, UINT32_MAX);
}

void client_mark_lost(int status) {
    uint32_t none = 0;
    (void)occl_claim32(&occl_lib.lost, &none, (uint32_t)-status); /* the first reason stays */
}

/* In the child only this thread exists; locks may be held by threads that do not. Nothing of the
 * attachment is used again. The tables behind handles stay, each entry one generation on, so that a
 * handle of the parent is stale here, also after the child has attached itself. */
static void in_child(void) {
    pthread_mutex_init(&occl_lib.lifecycle, NULL);
    pthread_mutex_init(&occl_lib.control, NULL);
    pthread_mutex_init(&occl_lib.memory, NULL);
    pthread_mutex_init(&occl_lib.ops_lock, NULL);
    pthread_mutex_init(&occl_lib.after_lock, NULL);
    pthread_mutex_init(&occl_lib.watch_start, NULL);
    occl_lib.inside = 0;
    if (occl_lib.socket_fd < 0 && !occl_lib.attached && !occl_lib.forked)
        return;
    if (occl_lib.socket_fd >= 0)
        (void)close(occl_lib.socket_fd);
    client_comms_in_child();
    client_ops_in_child();
    client_watch_in_child();
    occl_lib.depth = occl_lib.attached = occl_lib.lost = 0;
    occl_lib.forked = 1;
    occl_lib.socket_fd = -1;
    occl_lib.page = NULL;
    occl_lib.job = NULL;
    occl_lib.rpc = NULL;
    occl_lib.ring = NULL;
    occl_lib.watcher = NULL;
    occl_lib.own = NULL;
    occl_lib.own_count = occl_lib.own_capacity = 0;
    memset(occl_lib.by_number, 0, sizeof occl_lib.by_number);
    occl_lib.retired = NULL; /* uses of threads that are not here may never end */
    occl_lib.unmapped++;     /* this thread remembers regions of the parent's session */
    occl_lib.staging = NULL;
    occl_lib.copies = NULL;
    occl_lib.copies_open = 0;
}

static int connect_to(const char *path, int *out_fd) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return client_fail(OCCL_E_INVALID, "socket path %s has more than %zu bytes", path,
                           sizeof address.sun_path - 1);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return client_fail(OCCL_E_NO_MEMORY, "socket: %m");
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        int error = errno;
        (void)close(fd);
        errno = error;
        if (error == EACCES || error == EPERM)
            return client_fail(OCCL_E_PERMISSION, "daemon socket %s: %m", path);
        return client_fail(OCCL_E_NO_DAEMON, "no daemon answers on socket %s: %m", path);
    }
    *out_fd = fd;
    return OCCL_OK;
}

static int copy_name(char *to, const char *from, const char *variable, const char *what) {
    const char *value = from ? from : getenv(variable);
    struct occl_detail detail;
    if (!value)
        value = "";
    if (strlen(value) >= OCCL_NAME_BYTES)
        return client_fail(OCCL_E_INVALID, "%s \"%s\" has %zu bytes, expected at most %d", what,
                           value, strlen(value), OCCL_NAME_BYTES - 1);
    (void)snprintf(to, OCCL_NAME_BYTES, "%s", value);
    if (occl_name_check(to, OCCL_NAME_BYTES, what, &detail))
        return client_fail(OCCL_E_INVALID, "%s", detail.text);
    return OCCL_OK;
}

static int32_t rank_hint(void) {
    const char *text = getenv("OCCL_RANK");
    char *end;
    long rank = text ? strtol(text, &end, 10) : -1;
    return text && end != text && rank >= 0 && rank < 1 << 20 ? (int32_t)rank : -1;
}

static int hello(int fd, const struct occl_init_attr *attr) {
    struct occl_msg_hello msg;
    struct occl_detail detail;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_HELLO, 1);
    msg.abi_min = OCCL_ABI_VERSION_MIN;
    msg.abi_max = OCCL_ABI_VERSION;
    msg.role = OCCL_ROLE_RANK;
    msg.rank_hint = rank_hint();
    msg.own_pid = (uint32_t)getpid();
    int status = copy_name(msg.job, attr ? attr->job : NULL, "OCCL_JOB", "job name");
    if (status == OCCL_OK)
        status = copy_name(msg.tag, attr ? attr->tag : NULL, "OCCL_TENANT_TAG", "tenant tag");
    if (status)
        return status;
    /* The program's name is for people; what is not allowed in names becomes '_'. */
    (void)snprintf(msg.program, sizeof msg.program, "%.*s", OCCL_NAME_BYTES - 1,
                   program_invocation_short_name);
    for (char *c = msg.program; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@/-", *c))
            *c = '_';
    status = occl_fd_send(fd, &msg, sizeof msg, NULL, 0, true, &detail);
    return status ? client_fail_detail(&detail) : OCCL_OK;
}

/* Receives the answer to HELLO. On success fds[0] is the session page, fds[1] the job page. */
static int welcome(int fd, int fds[OCCL_MESSAGE_FDS_MAX]) {
    char buffer[OCCL_MESSAGE_BYTES_MAX];
    struct pollfd ready = {fd, POLLIN, 0};
    struct occl_detail detail;
    uint32_t bytes, fd_count;
    int n;
    do
        n = poll(&ready, 1, HANDSHAKE_MS);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return client_fail(OCCL_E_NO_DAEMON, "the daemon did not answer within %d s",
                           HANDSHAKE_MS / 1000);
    int status = occl_fd_recv(fd, buffer, sizeof buffer, true, &bytes, fds, &fd_count, &detail);
    if (status == OCCL_E_DAEMON_LOST)
        return client_fail(OCCL_E_NO_DAEMON, "the daemon closed the connection during attach");
    if (status == OCCL_OK)
        status = occl_msg_check(buffer, bytes, &detail);
    if (status)
        return client_fail_detail(&detail);
    const struct occl_msg_header *h = (const void *)buffer;
    if (h->type == OCCL_MSG_WELCOME && fd_count == 2) {
        memcpy(&occl_lib.welcome, buffer, sizeof occl_lib.welcome);
        return OCCL_OK;
    }
    occl_fd_close_all(fds);
    if (h->type == OCCL_MSG_REPLY)
        return client_fail_detail(&((const struct occl_msg_reply *)(const void *)buffer)->detail);
    return client_fail(OCCL_E_PROTOCOL, "the daemon answered attach with message %s and %u files",
                       occl_msg_name(h->type), fd_count);
}

static int map_pages(const int fds[OCCL_MESSAGE_FDS_MAX]) {
    struct occl_session_shape shape;
    struct occl_session_facts facts;
    struct occl_detail detail;
    const struct occl_msg_welcome *w = &occl_lib.welcome;
    void *page = NULL, *job = NULL;
    int status = occl_memfd_verify(fds[0], w->page_bytes, false, &detail);
    if (status == OCCL_OK)
        status = occl_memfd_verify(fds[1], w->job_page_bytes, true, &detail);
    if (status == OCCL_OK)
        status = occl_memfd_map(fds[0], w->page_bytes, OCCL_MAP_WRITE, &page, &detail);
    if (status == OCCL_OK)
        status = occl_memfd_map(fds[1], w->job_page_bytes, 0, &job, &detail);
    if (status == OCCL_OK)
        status = occl_session_open(page, w->page_bytes, &shape, &facts, &detail);
    if (status) {
        occl_memfd_unmap(page, w->page_bytes);
        occl_memfd_unmap(job, w->job_page_bytes);
        return client_fail_detail(&detail);
    }
    occl_lib.page = page;
    occl_lib.job = job;
    occl_lib.ticks = facts.ticks_source;
    return client_ring_start(&shape);
}

static void measure_machine(void) {
    occl_lib.cache_bytes = occl_movers_cache_bytes();
    occl_lib.movers = occl_movers_select(0);
    occl_lib.clock = occl_clock_system(occl_lib.ticks);
    occl_ticks_calibrate(&occl_lib.clock, CALIBRATION_NS, &occl_lib.scale);
}

static void unmap_pages(void) {
    client_ring_stop();
    if (occl_lib.page)
        occl_memfd_unmap(occl_lib.page, occl_lib.welcome.page_bytes);
    if (occl_lib.job) {
        union {
            const struct occl_job_page *shared;
            void *mapping;
        } job = {.shared = occl_lib.job};
        occl_memfd_unmap(job.mapping, occl_lib.welcome.job_page_bytes);
    }
    occl_lib.page = NULL;
    occl_lib.job = NULL;
}

static int attach(const struct occl_init_attr *attr) {
    char path[OCCL_SOCKET_PATH_BYTES];
    struct occl_detail detail;
    int fd = -1, fds[OCCL_MESSAGE_FDS_MAX] = {-1, -1};
    if (occl_locate_socket(attr ? attr->socket : NULL, path, sizeof path, &detail))
        return client_fail_detail(&detail);
    int status = connect_to(path, &fd);
    if (status)
        return status;
    status = hello(fd, attr);
    if (status == OCCL_OK)
        status = welcome(fd, fds);
    if (status == OCCL_OK) {
        status = map_pages(fds);
        occl_fd_close_all(fds);
    }
    if (status)
        goto undo;
    measure_machine();
    occl_lib.socket_fd = fd;
    occl_lib.lost = 0;
    client_inside_start(); /* before there is a second thread */
    status = client_rpc_start();
    if (status == OCCL_OK)
        return OCCL_OK;
undo:
    unmap_pages();
    (void)close(fd);
    occl_lib.socket_fd = -1;
    return status;
}

OCCL_PUBLIC enum occl_result occl_init(const struct occl_init_attr *attr) {
    if (attr && attr->size != sizeof *attr)
        return client_fail(OCCL_E_INVALID, "occl_init_attr.size is %zu, expected %zu", attr->size,
                           sizeof *attr);
    int status = OCCL_OK;
    if (client_in_callback())
        return client_fail(OCCL_E_USAGE, "occl_init in a callback");
    pthread_mutex_lock(&occl_lib.lifecycle);
    if (!occl_lib.atfork_set) {
        if (pthread_atfork(NULL, NULL, in_child))
            status = client_fail(OCCL_E_NO_MEMORY, "pthread_atfork failed");
        else
            occl_lib.atfork_set = 1;
    }
    if (status == OCCL_OK && occl_lib.depth == 0)
        status = attach(attr);
    if (status == OCCL_OK) {
        occl_lib.depth++;
        occl_lib.forked = 0;
        occl_publish32(&occl_lib.attached, 1);
    }
    pthread_mutex_unlock(&occl_lib.lifecycle);
    return status;
}

/* Closes the door, then ends what the calls inside wait for until they have all gone; a call that
 * was just let in may make a communicator or wait for an answer once more. */
static void drive_out(void) {
    uint32_t open = 1;
    (void)occl_claim32(&occl_lib.attached, &open, 0);
    client_comms_end();
    for (uint32_t round = 0; occl_look32(&occl_lib.inside); round++) {
        client_rpc_interrupt();
        client_comms_end();
        client_nap(round);
    }
    client_comms_stop();
}

static void detach(void) {
    drive_out();
    client_watch_stop();
    struct occl_msg_plain msg;
    struct occl_msg_reply reply;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_DETACH, 0);
    (void)client_rpc_call(&msg, sizeof msg, -1, &reply, OCCL_MSG_REPLY, NULL); /* best effort */
    client_rpc_stop();
    client_memory_stop();
    unmap_pages();
    (void)close(occl_lib.socket_fd);
    occl_lib.socket_fd = -1;
}

OCCL_PUBLIC enum occl_result occl_finalize(void) {
    int status = OCCL_OK;
    if (client_in_callback())
        return client_fail(OCCL_E_USAGE, "occl_finalize in a callback");
    pthread_mutex_lock(&occl_lib.lifecycle);
    if (occl_lib.forked)
        status = client_fail(OCCL_E_FORKED, "this process is a forked child that has not attached");
    else if (occl_lib.depth == 0)
        status = client_fail(OCCL_E_USAGE, "occl_finalize without occl_init");
    else if (--occl_lib.depth == 0)
        detach();
    pthread_mutex_unlock(&occl_lib.lifecycle);
    return status;
}

OCCL_PUBLIC enum occl_result occl_get_version(int *out_version) {
    if (!out_version)
        return client_fail(OCCL_E_INVALID, "out_version is NULL");
    *out_version = OCCL_VERSION_MAJOR * 10000 + OCCL_VERSION_MINOR * 100 + OCCL_VERSION_PATCH;
    return OCCL_SUCCESS;
}
