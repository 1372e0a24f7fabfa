/* SPDX-License-Identifier: Apache-2.0 */
/* How the processes of a communicator find each other: by the 128-bit secret of the unique id. The
 * first that comes fixes size and job; the communicator is made when the last rank comes.
 *
 * An id names one communicator, once. A rendezvous that failed (time-out, death, disagreement)
 * stays known for a while, so that a rank that comes too late is told why at once instead of
 * waiting for ranks that have given up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"
#include "daemon/rendezvous.h"

/* Communicators that one process may be waiting for at once. */
#define WAITING_MAX 256
/* Used ids that are remembered, over all jobs: 16 MiB of daemon memory. */
#define USED_MAX 16384

struct occl_rendezvous *occl_rendezvous_find(struct occl_daemon *daemon,
                                             const uint8_t secret[OCCL_UNIQUE_ID_SECRET_BYTES]) {
    struct occl_rendezvous *meeting;
    HASH_FIND(in_daemon, daemon->meetings, secret, OCCL_UNIQUE_ID_SECRET_BYTES, meeting);
    return meeting;
}

static void stop_waiting(struct occl_rendezvous *meeting) {
    if (!meeting->waiting)
        return;
    meeting->waiting = false;
    TAILQ_REMOVE(&meeting->job->meetings, meeting, in_job);
    meeting->job->shape++;
}

static void destroy(struct occl_daemon *daemon, struct occl_rendezvous *meeting) {
    occl_loop_timer_cancel(daemon->loop, &meeting->timer);
    stop_waiting(meeting);
    /* NOLINTNEXTLINE(clang-analyzer-*): the analyzer loses the links between elements */
    HASH_DELETE(in_daemon, daemon->meetings, meeting);
    free(meeting->waiters);
    free(meeting);
}

uint64_t occl_rendezvous_arrived_mask(const struct occl_rendezvous *meeting) {
    uint64_t mask = 0;
    for (uint32_t rank = 0; rank < meeting->ranks; rank++)
        if (meeting->waiters[rank].session)
            mask |= 1ull << rank;
    return mask;
}

/* Keeps the id as used. */
static void retire(struct occl_daemon *daemon, struct occl_rendezvous *meeting) {
    occl_loop_timer_cancel(daemon->loop, &meeting->timer);
    for (uint32_t rank = 0; rank < meeting->ranks; rank++)
        if (meeting->waiters[rank].session)
            meeting->waiters[rank].session->meetings--;
    free(meeting->waiters);
    meeting->waiters = NULL;
    stop_waiting(meeting);
}

/* The oldest used ids go: the table iterates in the order of insertion. Not while somebody walks
 * through the table, or holds a rendezvous. */
static void trim(struct occl_daemon *daemon) {
    struct occl_rendezvous *meeting;
    struct occl_rendezvous *next;
    if (HASH_CNT(in_daemon, daemon->meetings) <= USED_MAX)
        return;
    HASH_ITER (in_daemon, daemon->meetings, meeting, next) {
        if (!meeting->waiting)
            destroy(daemon, meeting);
        if (HASH_CNT(in_daemon, daemon->meetings) <= USED_MAX)
            return;
    }
}

static void fail(struct occl_daemon *daemon, struct occl_rendezvous *meeting, int status,
                 const char *text) {
    meeting->status = status;
    (void)snprintf(meeting->text, sizeof meeting->text, "%s", text);
    for (uint32_t rank = 0; rank < meeting->ranks; rank++) {
        struct occl_waiter_seat *waiter = &meeting->waiters[rank];
        if (waiter->session)
            occl_session_reply(waiter->session, waiter->request, status, "%s", text);
    }
    OCCL_LOG_INFO(daemon->log, "comm", "job %s %s", meeting->job->name, text);
    retire(daemon, meeting);
}

static void timed_out(struct occl_timer *timer) {
    struct occl_rendezvous *meeting = timer->owner;
    struct occl_daemon *daemon = meeting->job->tenant->daemon;
    char ranks[OCCL_NAME_BYTES * 3];
    char text[OCCL_DETAIL_BYTES];
    uint64_t all = meeting->ranks == 64 ? ~0ull : (1ull << meeting->ranks) - 1;
    occl_opview_ranges(all & ~occl_rendezvous_arrived_mask(meeting), ranks, sizeof ranks);
    (void)snprintf(
        text, sizeof text,
        "communicator %s: time-out while it was created; of %u ranks these have not come: "
        "%s",
        meeting->name, meeting->ranks, ranks);
    fail(daemon, meeting, OCCL_E_TIMEOUT, text);
    trim(daemon);
}

/* ---- one request ---- */

static int check_request(const struct occl_msg_comm_create *msg, struct occl_detail *detail) {
    if (msg->ranks < 1 || msg->ranks > OCCL_LOCAL_RANKS_MAX)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "communicator size: expected 1 to %u, found %u",
                               OCCL_LOCAL_RANKS_MAX, msg->ranks);
    if (msg->rank >= msg->ranks)
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "rank: expected 0 to %u, found %u",
                               msg->ranks - 1, msg->rank);
    if (msg->priority > 3 && msg->priority != 255)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "priority: expected 0 to 3, or 255 for the job's, found %u",
                               msg->priority);
    if (msg->flags & ~(uint32_t)OCCL_COMM_FLAG_NOT_REPRODUCIBLE)
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "communicator flags %#x are unknown",
                               msg->flags);
    return occl_name_check(msg->name, sizeof msg->name, "communicator name", detail);
}

static struct occl_rendezvous *
start(struct occl_session *session, const struct occl_msg_comm_create *msg, const uint8_t *secret) {
    struct occl_rendezvous *meeting = calloc(1, sizeof *meeting);
    struct occl_waiter_seat *waiters = calloc(msg->ranks, sizeof *waiters);
    if (!meeting || !waiters) {
        free(meeting);
        free(waiters);
        return NULL;
    }
    memcpy(meeting->secret, secret, sizeof meeting->secret);
    meeting->job = session->job;
    meeting->waiters = waiters;
    meeting->waiting = true;
    meeting->ranks = msg->ranks;
    meeting->priority = msg->priority;
    meeting->default_deadline_ns = msg->default_deadline_ns;
    meeting->first_rank = msg->rank;
    meeting->born_ns = occl_loop_now_ns(session->daemon->loop);
    meeting->timer = (struct occl_timer){.fired = timed_out, .owner = meeting};
    (void)snprintf(meeting->name, sizeof meeting->name, "%s", msg->name[0] ? msg->name : "unnamed");
    meeting->named = msg->name[0] != '\0';
    if (!occl_table_add_meeting(session->daemon, meeting)) {
        free(meeting);
        free(waiters);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&meeting->job->meetings, meeting, in_job);
    return meeting;
}

/* May this process join what is there? Disagreement about the communicator ends it for all; a
 * process that claims a rank that is taken is refused alone. */
static int admit(struct occl_session *session, const struct occl_msg_comm_create *msg,
                 struct occl_rendezvous *meeting, struct occl_detail *detail) {
    if (meeting->job != session->job)
        return occl_detail_set(
            detail, OCCL_E_PERMISSION, 0,
            "unique id: it belongs to a communicator of another job; this process "
            "is of job %s of tenant %s, expected job %s",
            session->job->name, session->job->tenant->text,
            meeting->job->tenant == session->job->tenant ? meeting->job->name
                                                         : "of another tenant");
    if (!meeting->waiting && meeting->status == OCCL_OK)
        return occl_detail_set(detail, OCCL_E_BUSY, 0,
                               "unique id: used before, for communicator %s; make a new one",
                               meeting->name);
    if (!meeting->waiting)
        return occl_detail_set(detail, meeting->status, 0, "%s", meeting->text);
    if (meeting->ranks != msg->ranks) {
        char text[OCCL_DETAIL_BYTES];
        (void)snprintf(text, sizeof text,
                       "communicator %s: rank %u (pid %d) says %u ranks, rank %u said %u",
                       meeting->name, msg->rank, (int)session->pid, msg->ranks, meeting->first_rank,
                       meeting->ranks);
        fail(session->daemon, meeting, OCCL_E_MISMATCH, text);
        return occl_detail_set(detail, OCCL_E_MISMATCH, 0, "%s", text);
    }
    const struct occl_session *holder = meeting->waiters[msg->rank].session;
    if (holder)
        return occl_detail_set(detail, OCCL_E_BUSY, 0,
                               "communicator %s: rank %u is taken by process %d%s", meeting->name,
                               msg->rank, (int)holder->pid, holder == session ? " (this one)" : "");
    return OCCL_OK;
}

static void complete(struct occl_daemon *daemon, struct occl_rendezvous *meeting) {
    struct occl_session *sessions[OCCL_LOCAL_RANKS_MAX];
    uint64_t requests[OCCL_LOCAL_RANKS_MAX];
    struct occl_detail detail;
    for (uint32_t rank = 0; rank < meeting->ranks; rank++) {
        sessions[rank] = meeting->waiters[rank].session;
        requests[rank] = meeting->waiters[rank].request;
    }
    struct occl_comm_request request = {
        .job = meeting->job,
        .name = meeting->named ? meeting->name : "",
        .ranks = meeting->ranks,
        .priority = meeting->priority,
        .default_deadline_ns = meeting->default_deadline_ns,
        .sessions = sessions,
        .requests = requests,
    };
    if (occl_comm_create(&request, &meeting->comm_uid, &detail) == OCCL_OK)
        retire(daemon, meeting);
    else
        fail(daemon, meeting, detail.status, detail.text);
}

static void arm_timer(struct occl_daemon *daemon, struct occl_rendezvous *meeting,
                      uint64_t timeout_ns) {
    uint64_t due;
    if (timeout_ns == 0 || __builtin_add_overflow(occl_loop_now_ns(daemon->loop), timeout_ns, &due))
        return;
    /* The shortest patience of all counts: whoever gives up ends it for all. */
    if (meeting->timer.place && meeting->timer.due_ns <= due)
        return;
    if (occl_loop_timer_set(daemon->loop, &meeting->timer, due) != OCCL_OK)
        fail(daemon, meeting, OCCL_E_NO_MEMORY, "no memory for a timer");
}

void occl_rendezvous_handle(struct occl_session *session, const struct occl_msg_comm_create *msg) {
    struct occl_daemon *daemon = session->daemon;
    struct occl_detail detail;
    uint8_t secret[OCCL_UNIQUE_ID_SECRET_BYTES] = {0};
    int status = check_request(msg, &detail);
    if (status == OCCL_OK && !occl_unique_id_read(&msg->unique_id, secret))
        status = occl_detail_set(&detail, OCCL_E_INVALID, 0,
                                 "unique id: these bytes were not made by this version of the "
                                 "library");
    if (status == OCCL_OK && daemon->draining)
        status = occl_detail_set(&detail, OCCL_E_SHUTTING_DOWN, 0, "the daemon is shutting down");
    if (status == OCCL_OK && session->meetings >= WAITING_MAX)
        status = occl_detail_set(&detail, OCCL_E_QUOTA, 0,
                                 "this process waits for %u communicators already, the limit",
                                 session->meetings);
    struct occl_rendezvous *meeting =
        status == OCCL_OK ? occl_rendezvous_find(daemon, secret) : NULL;
    if (meeting)
        status = admit(session, msg, meeting, &detail);
    else if (status == OCCL_OK && !(meeting = start(session, msg, secret)))
        status = occl_detail_set(&detail, OCCL_E_NO_MEMORY, 0, "no memory for a communicator");
    if (status != OCCL_OK || !meeting) {
        occl_session_reply_detail(session, msg->h.request, &detail);
        return;
    }
    meeting->waiters[msg->rank] = (struct occl_waiter_seat){session, msg->h.request};
    meeting->came++;
    session->meetings++;
    if (meeting->came == meeting->ranks)
        complete(daemon, meeting);
    else
        arm_timer(daemon, meeting, msg->timeout_ns);
    trim(daemon);
}

/* ---- the end of others ---- */

void occl_rendezvous_session_gone(struct occl_session *session) {
    struct occl_daemon *daemon = session->daemon;
    struct occl_rendezvous *meeting, *next;
    if (session->meetings == 0)
        return;
    for (meeting = TAILQ_FIRST(&session->job->meetings); meeting; meeting = next) {
        next = TAILQ_NEXT(meeting, in_job);
        uint32_t rank = meeting->ranks;
        for (uint32_t i = 0; i < meeting->ranks; i++) {
            if (meeting->waiters[i].session == session) {
                meeting->waiters[i].session = NULL;
                rank = i;
            }
        }
        if (rank == meeting->ranks)
            continue;
        char text[OCCL_DETAIL_BYTES];
        (void)snprintf(text, sizeof text,
                       "communicator %s: rank %u (host %s, pid %d) failed while it was created: %s",
                       meeting->name, rank, daemon->host, (int)session->pid, session->cause_text);
        fail(daemon, meeting, OCCL_E_PEER_FAILED, text);
    }
    trim(daemon);
}

const char *occl_rendezvous_rank_ended(struct occl_daemon *daemon, struct occl_rendezvous *meeting,
                                       uint32_t rank, long pid, const char *cause) {
    char text[OCCL_DETAIL_BYTES];
    if (!meeting)
        return "unknown";
    if (!meeting->waiting)
        return meeting->status == OCCL_OK ? "settled" : "failed";
    if (rank >= meeting->ranks || meeting->waiters[rank].session)
        return "elsewhere";
    (void)snprintf(text, sizeof text,
                   "communicator %s: rank %u (host %s, pid %ld) ended before it came: %s",
                   meeting->name, rank, daemon->host, pid, cause);
    fail(daemon, meeting, OCCL_E_PEER_FAILED, text);
    trim(daemon);
    return "failed";
}

void occl_rendezvous_job_gone(struct occl_job *job) {
    struct occl_daemon *daemon = job->tenant->daemon;
    struct occl_rendezvous *meeting;
    struct occl_rendezvous *next;
    HASH_ITER (in_daemon, daemon->meetings, meeting, next) {
        if (meeting->job == job)
            destroy(daemon, meeting);
    }
}

void occl_rendezvous_refuse_all(struct occl_daemon *daemon) {
    struct occl_rendezvous *meeting;
    struct occl_rendezvous *next;
    HASH_ITER (in_daemon, daemon->meetings, meeting, next) {
        if (meeting->waiting)
            fail(daemon, meeting, OCCL_E_SHUTTING_DOWN, "the daemon is shutting down");
    }
    trim(daemon);
}

void occl_rendezvous_destroy_all(struct occl_daemon *daemon) {
    struct occl_rendezvous *meeting;
    struct occl_rendezvous *next;
    HASH_ITER (in_daemon, daemon->meetings, meeting, next) {
        destroy(daemon, meeting);
    }
}
