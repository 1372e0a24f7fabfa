/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is. Each uid of a listening socket has a meter: its requests are answered one after
 * the other, in turns of half a millisecond, one turn a round of the loop, and uids take turns. So
 * the loop is never held longer than a turn, and nobody waits for the answers of others longer than
 * for a turn of each.
 *
 * A turn is paid from the meter's credit, which grows with a sixteenth of the time (operators:
 * half) up to a burst. A single question is thus answered at once, and whoever asks all the time
 * takes a sixteenth of the loop. Everything is paid, also what is refused after it was parsed.
 *
 * A session has one request at a time. While it has one, an administration session is not read from
 * (what it sends waits in its socket); a rank, whose other messages may not wait, is told that it
 * is busy, and so is everybody while too many requests of one uid wait. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"

#define TURN_NS 500000ull
#define TURN_PAID_NS_MAX (2 * TURN_NS) /* the largest piece of work may end behind the turn */
#define BURST_NS 250000000ll
#define SHARE 16
#define OPERATOR_BURST_NS 1000000000ll
#define OPERATOR_SHARE 2
#define REQUESTS_MAX 64
#define SESSIONS_MAX 64
#define OPERATOR_SESSIONS_MAX 1024
/* Meters before those that say nothing any more are thrown away. */
#define METERS_FIRST 64

struct occl_admin_meter {
    uint64_t id; /* listener << 32 | uid */
    bool operator_rights;
    int64_t credit_ns; /* negative: to be earned before the next turn */
    uint64_t filled_ns;
    uint32_t sessions;                         /* of role ADMIN */
    uint32_t count;                            /* of requests */
    TAILQ_HEAD(, occl_admin_request) requests; /* the first one is worked on */
    TAILQ_ENTRY(occl_admin_meter) in_turns;    /* while it has requests */
    UT_hash_handle in_queue;
};

struct occl_admin_queue {
    struct occl_timer timer;
    struct occl_admin_meter *meters;
    uint32_t throw_at;
    TAILQ_HEAD(, occl_admin_meter) turns;
};

/* ---- meters ---- */

static void fill(struct occl_admin_meter *meter, uint64_t now_ns) {
    int64_t share = meter->operator_rights ? OPERATOR_SHARE : SHARE;
    int64_t burst = meter->operator_rights ? OPERATOR_BURST_NS : BURST_NS;
    uint64_t passed = now_ns - meter->filled_ns;
    int64_t earned = passed > (uint64_t)(burst * share) * 2 ? burst * 2 : (int64_t)passed / share;
    meter->credit_ns = meter->credit_ns + earned > burst ? burst : meter->credit_ns + earned;
    meter->filled_ns = now_ns;
}

static bool says_nothing(struct occl_admin_meter *meter, uint64_t now_ns) {
    if (meter->sessions || meter->count)
        return false;
    fill(meter, now_ns);
    return meter->credit_ns >= (meter->operator_rights ? OPERATOR_BURST_NS : BURST_NS);
}

static void throw_meters(struct occl_admin_queue *queue, uint64_t now_ns) {
    struct occl_admin_meter *meter;
    struct occl_admin_meter *next;
    if (HASH_CNT(in_queue, queue->meters) < queue->throw_at)
        return;
    HASH_ITER (in_queue, queue->meters, meter, next) {
        if (!says_nothing(meter, now_ns))
            continue;
        HASH_DELETE(in_queue, queue->meters, meter);
        free(meter);
    }
    uint32_t left = HASH_CNT(in_queue, queue->meters);
    queue->throw_at = left * 2 > METERS_FIRST ? left * 2 : METERS_FIRST;
}

/* NULL: no memory. */
static struct occl_admin_meter *meter_of(const struct occl_session *session) {
    struct occl_admin_queue *queue = session->daemon->admin_queue;
    uint64_t now_ns = occl_loop_now_ns(session->daemon->loop);
    uint64_t id = (uint64_t)session->listener->index << 32 | (uint32_t)session->uid;
    struct occl_admin_meter *meter;
    HASH_FIND(in_queue, queue->meters, &id, sizeof id, meter);
    if (!meter) {
        throw_meters(queue, now_ns);
        meter = calloc(1, sizeof *meter);
        if (!meter)
            return NULL;
        meter->id = id;
        meter->operator_rights = occl_identity_is_operator(session);
        meter->credit_ns = meter->operator_rights ? OPERATOR_BURST_NS : BURST_NS;
        meter->filled_ns = now_ns;
        TAILQ_INIT(&meter->requests);
        HASH_ADD(in_queue, queue->meters, id, sizeof meter->id, meter);
        if (!meter->in_queue.tbl) {
            free(meter);
            return NULL;
        }
    }
    return meter;
}

int occl_admin_admit(struct occl_session *session, struct occl_detail *detail) {
    struct occl_admin_meter *meter = meter_of(session);
    if (!meter)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for administration");
    uint32_t most = meter->operator_rights ? OPERATOR_SESSIONS_MAX : SESSIONS_MAX;
    if (meter->sessions >= most)
        return occl_detail_set(detail, OCCL_E_QUOTA, 0,
                               "uid %u has %u administration connections, the limit",
                               (unsigned)session->uid, meter->sessions);
    meter->sessions++;
    return OCCL_OK;
}

/* ---- turns ---- */

static void set_timer(struct occl_daemon *daemon, uint64_t due_ns) {
    if (occl_loop_timer_set(daemon->loop, &daemon->admin_queue->timer, due_ns) != OCCL_OK)
        OCCL_LOG_ERROR(daemon->log, "admin", "no memory for the timer: answers wait");
}

static void remove_request(struct occl_admin_request *request) {
    struct occl_admin_queue *queue = request->daemon->admin_queue;
    struct occl_admin_meter *meter = request->meter;
    TAILQ_REMOVE(&meter->requests, request, in_meter);
    if (--meter->count == 0)
        TAILQ_REMOVE(&queue->turns, meter, in_turns);
    request->asker->asked = NULL;
    occl_admin_forget(request);
    free(request);
}

/* The first in the order of turns that has credit; NULL: *out_ready_ns says when one will. */
static struct occl_admin_meter *whose_turn(struct occl_admin_queue *queue, uint64_t now_ns,
                                           uint64_t *out_ready_ns) {
    struct occl_admin_meter *meter;
    *out_ready_ns = UINT64_MAX;
    TAILQ_FOREACH(meter, &queue->turns, in_turns) {
        fill(meter, now_ns);
        if (meter->credit_ns > 0)
            return meter;
        uint64_t lacks = (uint64_t)(1 - meter->credit_ns) + TURN_NS;
        uint64_t ready_ns = now_ns + lacks * (meter->operator_rights ? OPERATOR_SHARE : SHARE);
        if (ready_ns < *out_ready_ns)
            *out_ready_ns = ready_ns;
    }
    return NULL;
}

/* Its socket is not watched while it waits. Half a hang-up is none: it may still read. */
static bool has_hung_up(const struct occl_session *asker) {
    struct pollfd poll_fd = {.fd = asker->socket_watch.fd};
    return asker->admin && poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLHUP);
}

static void turn(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    struct occl_admin_queue *queue = daemon->admin_queue;
    uint64_t start_ns = occl_loop_now_ns(daemon->loop);
    uint64_t ready_ns = 0;
    struct occl_admin_meter *meter = whose_turn(queue, start_ns, &ready_ns);
    if (!meter) {
        if (ready_ns != UINT64_MAX)
            set_timer(daemon, ready_ns);
        return;
    }
    TAILQ_REMOVE(&queue->turns, meter, in_turns);
    TAILQ_INSERT_TAIL(&queue->turns, meter, in_turns);
    struct occl_admin_request *request = TAILQ_FIRST(&meter->requests);
    struct occl_session *asker = request->asker;
    bool over = has_hung_up(asker) || occl_admin_step(request, start_ns + TURN_NS);
    uint64_t end_ns = occl_loop_now_ns(daemon->loop);
    /* A turn that took longer was kept from its core by others, whom the asker need not pay. */
    uint64_t spent_ns = end_ns - start_ns;
    meter->credit_ns -= (int64_t)(spent_ns < TURN_PAID_NS_MAX ? spent_ns : TURN_PAID_NS_MAX);
    if (over) {
        remove_request(request);
        occl_session_listen(asker);
    }
    if (!TAILQ_EMPTY(&queue->turns))
        set_timer(daemon, end_ns);
}

/* ---- answers ---- */

/* An answer's memory is the daemon's, and whoever keeps the descriptor keeps it: so it is taken
 * back when the session asks again or ends. */
static void drop_answer(struct occl_session *session) {
    if (session->answer.fd < 0)
        return;
    /* Nothing to do about a failure: it is a matter of memory only. */
    (void)fallocate(session->answer.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    (off_t)session->answer.bytes);
    occl_memfd_close(&session->answer);
}

/* ---- requests ---- */

void occl_admin_send_failure(struct occl_session *session, uint64_t number,
                             const struct occl_detail *detail) {
    struct occl_msg_admin_reply reply;
    memset(&reply, 0, sizeof reply);
    occl_msg_init(&reply.h, OCCL_MSG_ADMIN_REPLY, number);
    reply.detail = *detail;
    occl_session_send(session, &reply, sizeof reply, NULL, 0);
}

static void refuse(struct occl_session *session, uint64_t number, int status, const char *text) {
    struct occl_detail detail;
    (void)occl_detail_set(&detail, status, 0, "%s", text);
    occl_admin_send_failure(session, number, &detail);
}

void occl_admin_handle(struct occl_session *session, const struct occl_msg_admin *msg) {
    struct occl_daemon *daemon = session->daemon;
    struct occl_admin_meter *meter = meter_of(session);
    size_t length = strnlen(msg->text, sizeof msg->text);
    if (session->asked || (meter && meter->count >= REQUESTS_MAX)) {
        refuse(session, msg->h.request, OCCL_E_BUSY,
               session->asked ? "busy: this session's last request has not been answered yet"
                              : "busy: too many requests of this user wait for their answers");
        return;
    }
    if (length == sizeof msg->text) {
        refuse(session, msg->h.request, OCCL_E_PROTOCOL, "ADMIN: the text is not terminated");
        return;
    }
    struct occl_admin_request *request = meter ? calloc(1, sizeof *request + length + 1) : NULL;
    if (!request) {
        refuse(session, msg->h.request, OCCL_E_NO_MEMORY, "no memory for the request");
        return;
    }
    request->asker = session;
    request->daemon = daemon;
    request->meter = meter;
    request->operator_rights = occl_identity_is_operator(session);
    request->number = msg->h.request;
    request->memfd.fd = -1;
    memcpy(request->text, msg->text, length);
    meter->operator_rights = request->operator_rights;
    drop_answer(session);
    TAILQ_INSERT_TAIL(&meter->requests, request, in_meter);
    if (meter->count++ == 0)
        TAILQ_INSERT_TAIL(&daemon->admin_queue->turns, meter, in_turns);
    session->asked = request;
    if (session->admin)
        occl_loop_watch_remove(daemon->loop, &session->socket_watch);
    uint64_t now_ns = occl_loop_now_ns(daemon->loop);
    struct occl_timer *timer = &daemon->admin_queue->timer;
    if (!timer->place || timer->due_ns > now_ns)
        set_timer(daemon, now_ns);
}

void occl_admin_session_gone(struct occl_session *session) {
    struct occl_admin_queue *queue = session->daemon->admin_queue;
    if (session->asked)
        remove_request(session->asked);
    drop_answer(session);
    if (session->admin && queue) {
        struct occl_admin_meter *meter = meter_of(session);
        if (meter && meter->sessions)
            meter->sessions--;
    }
}

int occl_admin_create(struct occl_daemon *daemon) {
    struct occl_admin_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return OCCL_E_NO_MEMORY;
    queue->timer = (struct occl_timer){.fired = turn, .owner = daemon};
    queue->throw_at = METERS_FIRST;
    TAILQ_INIT(&queue->turns);
    daemon->admin_queue = queue;
    return OCCL_OK;
}

void occl_admin_destroy(struct occl_daemon *daemon) {
    struct occl_admin_queue *queue = daemon->admin_queue;
    struct occl_admin_meter *meter;
    struct occl_admin_meter *next;
    if (!queue)
        return;
    occl_loop_timer_cancel(daemon->loop, &queue->timer);
    HASH_ITER (in_queue, queue->meters, meter, next) {
        OCCL_ASSERT(meter->count == 0); /* all sessions are gone */
        HASH_DELETE(in_queue, queue->meters, meter);
        free(meter);
    }
    free(queue);
    daemon->admin_queue = NULL;
}
