/* SPDX-License-Identifier: Apache-2.0 */
/* Requests over the socket. Callers send; the reader thread receives everything and hands answers
 * to the waiting callers by request number. It also sees the end of the connection first: from then
 * on every call fails at once. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"
#include "shm_ipc/fdpass.h"

struct pending {
    uint64_t request;
    bool done;
    bool interrupted;
    bool cut; /* the answer's descriptors found no room in this process */
    uint32_t bytes;
    int fds[OCCL_MESSAGE_FDS_MAX];
    pthread_cond_t arrived;
    struct pending *next;
    char reply[OCCL_MESSAGE_BYTES_MAX];
};

struct client_rpc {
    pthread_mutex_t lock;
    uint64_t next_request;
    struct pending *waiting;
    pthread_t reader;
    int stop_fd;
    uint32_t stopping;   /* the reader touches nothing any more */
    bool ended;          /* nor does it run */
    pthread_cond_t over; /* monotonic */
};

/* What finalize waits for the reader, which ends at once unless the application has closed the
 * library's descriptors: then nothing wakes it. */
#define JOIN_NS 1000000000u

static void answer(struct client_rpc *rpc, const struct occl_msg_header *h, uint32_t bytes,
                   int fds[OCCL_MESSAGE_FDS_MAX], bool cut) {
    pthread_mutex_lock(&rpc->lock);
    struct pending *p = rpc->waiting;
    while (p && p->request != h->request)
        p = p->next;
    if (p && !p->done) {
        memcpy(p->reply, h, bytes);
        p->bytes = bytes;
        p->cut = cut;
        memcpy(p->fds, fds, sizeof p->fds);
        for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++)
            fds[i] = -1;
        p->done = true;
        pthread_cond_signal(&p->arrived);
    }
    pthread_mutex_unlock(&rpc->lock);
    occl_fd_close_all(fds); /* of an answer nobody waits for any more */
}

static void event(const struct occl_msg_event *e) {
    switch (e->kind) {
    case OCCL_EVENT_COMM:
        client_comm_event(e);
        break;
    case OCCL_EVENT_REGION_GONE:
        client_region_gone(e->number);
        break;
    default:
        break; /* for people: the daemon has logged it */
    }
}

/* One datagram. False at the end of the connection. */
static bool receive(struct client_rpc *rpc, char *buffer) {
    int fds[OCCL_MESSAGE_FDS_MAX];
    uint32_t bytes = 0, fd_count;
    struct occl_detail detail;
    int status = occl_fd_recv(occl_lib.socket_fd, buffer, OCCL_MESSAGE_BYTES_MAX, false, &bytes,
                              fds, &fd_count, &detail);
    bool cut = status == OCCL_E_NO_MEMORY && bytes > 0; /* one request fails, not the session */
    if (status == OCCL_WOULD_BLOCK)
        return true;
    if (status && !cut)
        return false;
    if (occl_msg_check(buffer, bytes, &detail)) {
        occl_fd_close_all(fds);
        return false;
    }
    const struct occl_msg_header *h = (const void *)buffer;
    if (h->type == OCCL_MSG_EVENT && h->request == 0) {
        occl_fd_close_all(fds);
        event((const void *)buffer);
    } else {
        answer(rpc, h, bytes, fds, cut);
    }
    return true;
}

static void fail_all(struct client_rpc *rpc) {
    pthread_mutex_lock(&rpc->lock);
    for (struct pending *p = rpc->waiting; p; p = p->next)
        pthread_cond_signal(&p->arrived);
    pthread_mutex_unlock(&rpc->lock);
}

/* The connection has ended, as the reader or a sender sees first: from now on no call begins. The
 * daemon says in the page why it closed. */
static void note_end(void) {
    uint32_t state = occl_observe32(&occl_lib.page->session_state);
    client_mark_lost(state == OCCL_SESSION_QUARANTINED ? OCCL_E_QUARANTINED : OCCL_E_DAEMON_LOST);
}

static void *reader(void *arg) {
    struct client_rpc *rpc = arg;
    char *buffer = malloc(OCCL_MESSAGE_BYTES_MAX);
    struct pollfd fds[2] = {{occl_lib.socket_fd, POLLIN, 0}, {rpc->stop_fd, POLLIN, 0}};
    bool live = buffer != NULL, stop = false;
    while (live && !stop) {
        int ready = poll(fds, 2, -1);
        live = ready >= 0 || errno == EINTR;
        stop = (ready > 0 && fds[1].revents) || occl_observe32(&rpc->stopping);
        if (ready > 0 && !stop && fds[0].revents)
            live = receive(rpc, buffer);
    }
    free(buffer);
    if (!occl_observe32(&rpc->stopping)) {
        if (!live)
            note_end();
        fail_all(rpc);
    }
    pthread_mutex_lock(&rpc->lock);
    rpc->ended = true;
    pthread_cond_signal(&rpc->over);
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}

int client_rpc_start(void) {
    struct client_rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for the connection");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&rpc->over, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&rpc->lock, NULL);
    rpc->next_request = 1;
    rpc->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rpc->stop_fd < 0) {
        int status = client_fail(OCCL_E_NO_MEMORY, "eventfd: %m");
        free(rpc);
        return status;
    }
    /* The application's signals are not for the library's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&rpc->reader, NULL, reader, rpc);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        (void)close(rpc->stop_fd);
        free(rpc);
        return client_fail(OCCL_E_NO_MEMORY, "cannot start a thread: %s", strerror(failed));
    }
    (void)pthread_setname_np(rpc->reader, "occl-reader");
    occl_lib.rpc = rpc;
    return OCCL_OK;
}

void client_rpc_stop(void) {
    struct client_rpc *rpc = occl_lib.rpc;
    if (!rpc)
        return;
    uint64_t one = 1;
    uint64_t until_ns = client_now_ns() + JOIN_NS;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    int error = 0;
    occl_publish32(&rpc->stopping, 1);
    (void)!write(rpc->stop_fd, &one, sizeof one); /* a full counter wakes just as well */
    pthread_mutex_lock(&rpc->lock);
    while (!rpc->ended && error == 0)
        error = pthread_cond_timedwait(&rpc->over, &rpc->lock, &until);
    bool ended = rpc->ended;
    pthread_mutex_unlock(&rpc->lock);
    occl_lib.rpc = NULL;
    if (!ended) {
        (void)pthread_detach(rpc->reader); /* it sleeps until the process ends, with its rpc */
        return;
    }
    pthread_join(rpc->reader, NULL);
    pthread_cond_destroy(&rpc->over);
    (void)close(rpc->stop_fd);
    pthread_mutex_destroy(&rpc->lock);
    free(rpc);
}

int client_rpc_send(const void *msg, uint32_t bytes) {
    struct occl_detail detail;
    int status = occl_fd_send(occl_lib.socket_fd, msg, bytes, NULL, 0, false, &detail);
    if (status == OCCL_E_DAEMON_LOST)
        note_end();
    /* A full socket holds earlier doorbells: the daemon reads those. */
    return status == OCCL_WOULD_BLOCK ? OCCL_OK : status;
}

/* Waits for the answer; rpc->lock is held. */
static int wait_answer(struct client_rpc *rpc, struct pending *p) {
    while (!p->done && !p->interrupted && !occl_peek32(&occl_lib.lost))
        pthread_cond_wait(&p->arrived, &rpc->lock);
    return p->done ? OCCL_OK : p->interrupted ? OCCL_E_CANCELED : OCCL_E_DAEMON_LOST;
}

void client_rpc_interrupt(void) {
    struct client_rpc *rpc = occl_lib.rpc;
    pthread_mutex_lock(&rpc->lock);
    for (struct pending *p = rpc->waiting; p; p = p->next) {
        p->interrupted = true;
        pthread_cond_signal(&p->arrived);
    }
    pthread_mutex_unlock(&rpc->lock);
}

static int take_answer(struct pending *p, void *out_reply, uint32_t reply_type,
                       int out_fds[OCCL_MESSAGE_FDS_MAX]) {
    const struct occl_msg_header *h = (const void *)p->reply;
    const struct occl_msg_reply *reply = (const void *)p->reply;
    int status = OCCL_OK;
    if (h->type == reply_type)
        memcpy(out_reply, p->reply, p->bytes);
    if (h->type == OCCL_MSG_REPLY && reply->detail.status != OCCL_OK)
        status = client_fail_detail(&reply->detail);
    else if (h->type != reply_type)
        status = client_fail(OCCL_E_PROTOCOL, "the daemon answered with message %s, expected %s",
                             occl_msg_name(h->type), occl_msg_name(reply_type));
    else if (p->cut)
        status = client_fail(OCCL_E_NO_MEMORY,
                             "%s: no descriptor is left in this process "
                             "(RLIMIT_NOFILE)",
                             occl_msg_name(h->type));
    if (status == OCCL_OK && out_fds)
        memcpy(out_fds, p->fds, sizeof p->fds);
    else
        occl_fd_close_all(p->fds);
    return status;
}

int client_rpc_call(const void *msg, uint32_t bytes, int send_fd, void *out_reply,
                    uint32_t reply_type, int out_fds[OCCL_MESSAGE_FDS_MAX]) {
    struct client_rpc *rpc = occl_lib.rpc;
    struct pending *p = calloc(1, sizeof *p);
    char *copy = malloc(bytes);
    struct occl_detail detail;
    if (!p || !copy || !rpc) {
        free(p);
        free(copy);
        return rpc ? client_fail(OCCL_E_NO_MEMORY, "no memory for a request") : client_fail_lost();
    }
    memcpy(copy, msg, bytes);
    pthread_cond_init(&p->arrived, NULL);
    for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++)
        p->fds[i] = -1;
    pthread_mutex_lock(&rpc->lock);
    p->request = rpc->next_request++;
    ((struct occl_msg_header *)(void *)copy)->request = p->request;
    p->next = rpc->waiting;
    rpc->waiting = p;
    pthread_mutex_unlock(&rpc->lock);

    int status = OCCL_E_DAEMON_LOST;
    if (!occl_peek32(&occl_lib.lost)) {
        status =
            occl_fd_send(occl_lib.socket_fd, copy, bytes, &send_fd, send_fd >= 0, true, &detail);
        if (status == OCCL_E_DAEMON_LOST)
            note_end();
    }
    /* A split waits for other ranks, as an op does: `why` is told. Once the daemon has it, so that
     * nobody is seen to wait who has not asked yet. */
    bool waits_for_ranks = ((const struct occl_msg_header *)msg)->type == OCCL_MSG_COMM_SPLIT;
    if (waits_for_ranks)
        occl_add32(&occl_lib.page->threads_waiting, 1);
    pthread_mutex_lock(&rpc->lock);
    if (status == OCCL_OK)
        status = wait_answer(rpc, p);
    if (waits_for_ranks)
        occl_add32(&occl_lib.page->threads_waiting, UINT32_MAX);
    struct pending **link = &rpc->waiting;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    pthread_mutex_unlock(&rpc->lock);

    if (status == OCCL_OK)
        status = take_answer(p, out_reply, reply_type, out_fds);
    else if (status == OCCL_E_CANCELED)
        status = client_fail(status, "another thread called occl_finalize");
    else if (status == OCCL_E_DAEMON_LOST)
        status = client_fail_lost();
    else
        status = client_fail_detail(&detail);
    pthread_cond_destroy(&p->arrived);
    free(p);
    free(copy);
    return status;
}
