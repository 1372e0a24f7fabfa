/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a session: accepted, live, ending, gone. Whoever finds a reason to end one calls
 * occl_session_end, which only decides; the tear-down happens after the handlers of the round, so
 * no handler ever holds a session that has vanished.
 *
 * Who refers to a session, and who clears it in the tear-down, in this order:
 *   its request of ADMIN                     occl_admin_session_gone
 *   rendezvous and splits that it waits in   occl_rendezvous_session_gone, occl_comm_session_gone
 *   seats of communicators                   occl_comm_session_gone
 *   regions that it owns                     occl_region_session_gone
 *   lanes, through its page                  occl_engine_session_remove
 *   job, tenant, daemon tables               occl_tenant_leave, below
 * Ids of it that stay elsewhere (mappers of a region, mail of a lane) are looked up and not found.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/occld.h"

#define MESSAGES_PER_ROUND 32
/* Rounds of reading when a process has exited: what a socket holds at most. */
#define LAST_ROUNDS 16
/* How long we wait for the pidfd of a process that is on its way out, to learn its cause. */
#define EXIT_GRACE_NS 5000000ull
#define DISCARDS_MAX 256

struct occl_session *occl_session_find(struct occl_daemon *daemon, uint64_t id) {
    struct occl_session *session;
    HASH_FIND(in_daemon, daemon->sessions, &id, sizeof id, session);
    return session;
}

/* ---- deciding the end ---- */

void occl_session_end(struct occl_session *session, enum occl_session_cause cause, const char *fmt,
                      ...) {
    va_list args;
    if (session->phase == OCCL_PHASE_ENDING)
        return;
    va_start(args, fmt);
    (void)vsnprintf(session->cause_text, sizeof session->cause_text, fmt, args);
    va_end(args);
    session->phase = OCCL_PHASE_ENDING;
    session->cause = cause;
    occl_loop_watch_remove(session->daemon->loop, &session->socket_watch);
    occl_loop_watch_remove(session->daemon->loop, &session->pidfd_watch);
    occl_loop_timer_cancel(session->daemon->loop, &session->deadline);
    STAILQ_INSERT_TAIL(&session->daemon->ending, session, in_ending);
}

static void end_as_died(struct occl_session *session) {
    char cause[OCCL_CAUSE_BYTES];
    occl_identity_exit_cause(session, cause, sizeof cause);
    occl_session_end(session, OCCL_CAUSE_DIED, "%s", cause);
}

/* Of one that cannot be looked at (another pid namespace) nothing is known but that it closed. */
static void exit_grace_over(struct occl_timer *timer) {
    struct occl_session *session = timer->owner;
    if (occl_identity_process_state(session, NULL) == '?')
        occl_session_end(session, OCCL_CAUSE_CLOSED, "closed without detach");
    else
        end_as_died(session);
}

/* The socket ended. A process on its way out closes its descriptors before its pidfd reports: then
 * the cause is worth a few milliseconds. */
static void socket_ended(struct occl_session *session) {
    if (session->job == NULL) {
        occl_session_end(session, OCCL_CAUSE_CLOSED, "connection closed");
        return;
    }
    if (session->pidfd >= 0 && occl_identity_has_exited(session)) {
        end_as_died(session);
        return;
    }
    if (session->pidfd >= 0 && occl_identity_is_exiting(session)) {
        struct occl_loop *loop = session->daemon->loop;
        occl_loop_watch_remove(loop, &session->socket_watch);
        session->deadline.fired = exit_grace_over;
        if (occl_loop_timer_set(loop, &session->deadline, occl_loop_now_ns(loop) + EXIT_GRACE_NS) !=
            OCCL_OK)
            end_as_died(session);
        return;
    }
    occl_session_end(session, OCCL_CAUSE_CLOSED, "closed without detach");
}

/* ---- what the loop reports ---- */

static ssize_t take_datagram(int fd, struct msghdr *message) {
    ssize_t got;
    do {
        got = recvmsg(fd, message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Into the daemon's inbox, without room for descriptors: the kernel drops those that came along. A
 * descriptor of a file system that the client serves itself would hang us in close, which waits for
 * that server's answer. Processes are known by the socket's credentials instead. */
static int receive(struct occl_session *session, uint32_t *out_bytes, struct occl_detail *detail) {
    struct occl_daemon *daemon = session->daemon;
    struct iovec inbox = {daemon->inbox, sizeof daemon->inbox};
    struct msghdr message = {.msg_iov = &inbox, .msg_iovlen = 1};
    ssize_t got = take_datagram(session->socket_watch.fd, &message);
    /* A client that ended without reading all of ours has reset the connection. The kernel says so
     * once, before it hands out what the client had sent: its last words. */
    if (got < 0 && errno == ECONNRESET)
        got = take_datagram(session->socket_watch.fd, &message);
    if (got < 0 && errno == EAGAIN)
        return OCCL_WOULD_BLOCK;
    /* An empty datagram is no message either, so it may end the connection like its end. */
    if (got <= 0)
        return occl_detail_set(detail, OCCL_E_DAEMON_LOST, got < 0 ? errno : 0, "connection ended");
    if (message.msg_flags & MSG_TRUNC)
        return occl_detail_set(detail, OCCL_E_TRUNCATED, 0, "datagram longer than %zu bytes",
                               sizeof daemon->inbox);
    *out_bytes = (uint32_t)got;
    return OCCL_OK;
}

static void read_messages(struct occl_session *session) {
    struct occl_daemon *daemon = session->daemon;
    /* One that waits for an answer of ADMIN is not listened to (admin_queue.c). */
    for (int i = 0; i < MESSAGES_PER_ROUND && session->phase != OCCL_PHASE_ENDING &&
                    !(session->admin && session->asked);
         i++) {
        uint32_t bytes = 0;
        struct occl_detail detail;
        int status = receive(session, &bytes, &detail);
        if (status == OCCL_WOULD_BLOCK)
            return;
        if (status == OCCL_E_DAEMON_LOST) {
            socket_ended(session);
            return;
        }
        if (status != OCCL_OK) {
            daemon->counters.protocol_total++;
            occl_session_reply_detail(session, 0, &detail);
            occl_session_end(session, OCCL_CAUSE_PROTOCOL, "%s", detail.text);
            return;
        }
        occl_dispatch(session, bytes);
    }
}

static void socket_ready(struct occl_watch *watch, uint32_t events) {
    struct occl_session *session = watch->owner;
    if (events & OCCL_LOOP_WRITABLE)
        occl_session_flush(session);
    /* What a client sent before its end is still worth reading (DETACH, then close). */
    if (session->phase != OCCL_PHASE_ENDING && (events & (OCCL_LOOP_READABLE | OCCL_LOOP_HANGUP)))
        read_messages(session);
}

void occl_session_listen(struct occl_session *session) {
    if (session->phase == OCCL_PHASE_ENDING || session->socket_watch.slot)
        return;
    uint32_t events = OCCL_LOOP_READABLE | (STAILQ_EMPTY(&session->queue) ? 0 : OCCL_LOOP_WRITABLE);
    if (occl_loop_watch_add(session->daemon->loop, &session->socket_watch, events) != OCCL_OK)
        occl_session_end(session, OCCL_CAUSE_SLOW, "the loop refused to watch its socket");
}

static void pidfd_ready(struct occl_watch *watch, uint32_t events) {
    struct occl_session *session = watch->owner;
    (void)events;
    /* A process that said goodbye and exited is not a death: its last words come first. Bounded,
     * for another process may have its socket and go on. */
    for (int i = 0; i < LAST_ROUNDS && session->socket_watch.slot; i++)
        read_messages(session);
    end_as_died(session);
}

static void hello_overdue(struct occl_timer *timer) {
    struct occl_session *session = timer->owner;
    struct occl_daemon *daemon = session->daemon;
    daemon->counters.strays_total++;
    if (!daemon->strays_logged)
        OCCL_LOG_WARN(
            daemon->log, "session",
            "uid %u process %d connected and did not say hello: dropped (further ones are "
            "only counted)",
            (unsigned)session->uid, (int)session->pid);
    daemon->strays_logged = true;
    occl_session_end(session, OCCL_CAUSE_REFUSED, "no hello in time");
}

/* ---- accepted ---- */

static void drop_oldest_stray(struct occl_daemon *daemon) {
    struct occl_session *oldest;
    TAILQ_FOREACH(oldest, &daemon->strays, in_list) {
        if (oldest->phase == OCCL_PHASE_STRAY) {
            daemon->counters.strays_total++;
            occl_session_end(oldest, OCCL_CAUSE_REFUSED, "too many connections without hello");
            return;
        }
    }
}

void occl_session_accept(struct occl_listener *listener, int fd) {
    struct occl_daemon *daemon = listener->daemon;
    struct occl_detail detail;
    struct occl_session *session = calloc(1, sizeof *session);
    if (!session) {
        close(fd);
        return;
    }
    session->daemon = daemon;
    session->listener = listener;
    /* id << 16 | epoch: a session lives once, so its epoch is 1. */
    session->id = ++daemon->next_session << 16 | 1;
    session->pidfd = -1;
    session->page_memfd.fd = -1;
    session->answer.fd = -1;
    session->accepted_ns = occl_loop_now_ns(daemon->loop);
    session->socket_watch = (struct occl_watch){fd, socket_ready, session, 0};
    session->pidfd_watch = (struct occl_watch){-1, pidfd_ready, session, 0};
    session->deadline = (struct occl_timer){.fired = hello_overdue, .owner = session};
    STAILQ_INIT(&session->queue);
    if (!occl_table_add_session(daemon, session)) {
        close(fd);
        free(session);
        return;
    }
    if (daemon->stray_count >= daemon->config.strays_max)
        drop_oldest_stray(daemon);
    TAILQ_INSERT_TAIL(&daemon->strays, session, in_list);
    daemon->stray_count++;
    if (occl_identity_read(session, &detail) != OCCL_OK ||
        occl_loop_watch_add(daemon->loop, &session->socket_watch, OCCL_LOOP_READABLE) != OCCL_OK ||
        occl_loop_timer_set(daemon->loop, &session->deadline,
                            session->accepted_ns + daemon->config.handshake_timeout_ns) != OCCL_OK)
        occl_session_end(session, OCCL_CAUSE_REFUSED, "no memory to serve it");
}

/* ---- tear-down ---- */

static const struct {
    const char *word;
    bool warn;
    uint32_t page_state;
} causes[] = {
    [OCCL_CAUSE_NONE] = {"ended", false, OCCL_SESSION_CLOSED},
    [OCCL_CAUSE_DETACHED] = {"detached", false, OCCL_SESSION_CLOSED},
    [OCCL_CAUSE_DIED] = {"died", false, OCCL_SESSION_CLOSED},
    [OCCL_CAUSE_CLOSED] = {"closed", false, OCCL_SESSION_CLOSED},
    [OCCL_CAUSE_PROTOCOL] = {"ended by a protocol error", true, OCCL_SESSION_CLOSED},
    [OCCL_CAUSE_QUARANTINED] = {"quarantined", true, OCCL_SESSION_QUARANTINED},
    [OCCL_CAUSE_SLOW] = {"disconnected", true, OCCL_SESSION_CLOSED},
    [OCCL_CAUSE_UNKILLABLE] = {"fenced", true, OCCL_SESSION_CLOSED},
    [OCCL_CAUSE_SHUTDOWN] = {"ended", false, OCCL_SESSION_OVER},
    [OCCL_CAUSE_REFUSED] = {"refused", false, OCCL_SESSION_CLOSED},
};

static void note_death(struct occl_job *job) {
    job->deaths_total++;
    job->last_death_ns = occl_loop_now_ns(job->tenant->daemon->loop);
}

static void count_end(struct occl_session *session) {
    struct occl_counters *counters = &session->daemon->counters;
    if (session->cause == OCCL_CAUSE_DIED || session->cause == OCCL_CAUSE_UNKILLABLE)
        note_death(session->job);
    if (session->cause == OCCL_CAUSE_CLOSED)
        counters->closed_total++;
    if (session->cause == OCCL_CAUSE_DETACHED)
        counters->detached_total++;
    if (session->cause == OCCL_CAUSE_QUARANTINED)
        counters->quarantined_total++;
}

static void log_end(const struct occl_session *session) {
    struct occl_log *log = session->daemon->log;
    unsigned long long number = session->id >> 16;
    if (!session->job) {
        if (causes[session->cause].warn)
            OCCL_LOG_WARN(log, "session", "connection %llu uid %u process %d %s: %s", number,
                          (unsigned)session->uid, (int)session->pid, causes[session->cause].word,
                          session->cause_text);
        return;
    }
    if (causes[session->cause].warn)
        OCCL_LOG_WARN(log, "session", "session %llu tenant %s job %s process %d %s: %s", number,
                      session->job->tenant->text, session->job->name, (int)session->pid,
                      causes[session->cause].word, session->cause_text);
    else
        OCCL_LOG_INFO(log, "session", "session %llu tenant %s job %s process %d %s: %s", number,
                      session->job->tenant->text, session->job->name, (int)session->pid,
                      causes[session->cause].word, session->cause_text);
}

static void leave_job(struct occl_session *session) {
    struct occl_daemon *daemon = session->daemon;
    /* The process may live on: tell it before anything is taken away. */
    if (session->page)
        occl_publish32(&session->page->session_state, causes[session->cause].page_state);
    count_end(session);
    occl_rendezvous_session_gone(session);
    occl_comm_session_gone(session);
    occl_region_session_gone(session);
    if (session->in_engine)
        occl_engine_session_remove(daemon->engine, session->id);
    session->in_engine = false;
    if (session->page)
        occl_memfd_unmap(session->page, session->shape.page_bytes);
    session->page = NULL;
    occl_memfd_close(&session->page_memfd);
    occl_tenant_uncharge(session->job->tenant, session->shape.page_bytes);
    occl_tenant_leave(session);
}

/* Unread messages at the close would turn our last words into a connection reset at the peer. */
static void discard_input(int fd) {
    char byte;
    for (int i = 0; i < DISCARDS_MAX; i++)
        if (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) <= 0)
            return;
}

static void tear_down(struct occl_session *session) {
    struct occl_daemon *daemon = session->daemon;
    log_end(session);
    occl_admin_session_gone(session);
    if (session->job) {
        leave_job(session);
    } else if (session->admin) {
        TAILQ_REMOVE(&daemon->admins, session, in_list);
    } else {
        TAILQ_REMOVE(&daemon->strays, session, in_list);
        daemon->stray_count--;
    }
    occl_session_flush(session);
    occl_session_drop_queue(session);
    HASH_DELETE(in_daemon, daemon->sessions, session);
    discard_input(session->socket_watch.fd);
    close(session->socket_watch.fd);
    if (session->pidfd >= 0)
        close(session->pidfd);
    free(session);
}

void occl_session_reap(struct occl_daemon *daemon) {
    struct occl_session *session;
    bool any = false;
    while ((session = STAILQ_FIRST(&daemon->ending)) != NULL) {
        STAILQ_REMOVE_HEAD(&daemon->ending, in_ending);
        tear_down(session);
        any = true;
    }
    if (any)
        occl_daemon_check_end(daemon);
}
