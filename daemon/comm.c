/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: page, seats, members, and how a member leaves. Leaving is local and waits for
 * nobody; the communicator goes with its last seat. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"

/* Tag of a page without free records: the negative control's ops all go through the ring. */
#define WORD_NEVER_FREE (OCCL_WORD_OVERFLOW_ONE << 13)

struct occl_seat *occl_comm_seat(struct occl_session *session, uint32_t number) {
    struct occl_seat *seat;
    HASH_FIND(in_session, session->seats, &number, sizeof number, seat);
    return seat;
}

/* ---- creation ---- */

static int make_page(struct occl_comm *comm, struct occl_detail *detail) {
    struct occl_daemon *daemon = comm->job->tenant->daemon;
    struct occl_comm_page header;
    void *base;
    occl_comm_page_layout(comm->ranks, comm->uid, &header);
    occl_clock_random(daemon->clock, &header.probe_nonce, sizeof header.probe_nonce);
    int status =
        occl_tenant_charge(comm->job->tenant, header.page_bytes, "a communicator page", detail);
    if (status != OCCL_OK)
        return status;
    status = occl_memfd_create("occl-comm", header.page_bytes, 0, &comm->memfd, detail);
    if (status == OCCL_OK)
        status = occl_memfd_map(comm->memfd.fd, header.page_bytes, OCCL_MAP_WRITE, &base, detail);
    if (status != OCCL_OK) {
        occl_memfd_close(&comm->memfd);
        occl_tenant_uncharge(comm->job->tenant, header.page_bytes);
        return status;
    }
    memcpy(base, &header, sizeof header);
    status = occl_records_open(base, header.page_bytes, &comm->records);
    OCCL_ASSERT(status == OCCL_OK); /* our own layout */
    for (uint32_t i = 0; daemon->ordered && i < OCCL_CLAIMS; i++)
        occl_publish64(&occl_claim_at(&comm->records, i)->word, WORD_NEVER_FREE);
    return OCCL_OK;
}

static void drop_page(struct occl_comm *comm) {
    occl_memfd_unmap(comm->records.base, comm->records.page_bytes);
    occl_memfd_close(&comm->memfd);
    occl_tenant_uncharge(comm->job->tenant, comm->records.page_bytes);
}

static bool take_seat(struct occl_comm *comm, uint32_t rank, struct occl_session *session) {
    struct occl_seat *seat = &comm->seats[rank];
    seat->comm = comm;
    seat->session = session;
    seat->rank = rank;
    seat->number = ++session->next_comm;
    seat->state = OCCL_SEAT_LIVE;
    seat->who.pid = (uint32_t)session->pid;
    seat->who.own_pid = session->own_pid;
    seat->who.rank_hint = session->rank_hint;
    seat->who.session_id = session->id;
    memcpy(seat->who.host, session->daemon->host, sizeof seat->who.host);
    if (!occl_table_add_seat(session, seat)) {
        seat->session = NULL;
        return false;
    }
    comm->seats_taken++;
    return true;
}

static int add_to_engine(struct occl_comm *comm) {
    uint64_t ids[OCCL_LOCAL_RANKS_MAX];
    uint32_t numbers[OCCL_LOCAL_RANKS_MAX];
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        ids[rank] = comm->seats[rank].who.session_id;
        numbers[rank] = comm->seats[rank].number;
    }
    struct occl_engine_comm_config config = {
        .comm_uid = comm->uid,
        .job_id = comm->job->id,
        .ranks = comm->ranks,
        .priority = comm->priority,
        .records = comm->records,
        .session_ids = ids,
        .comm_numbers = numbers,
    };
    int status = occl_engine_comm_add(comm->job->tenant->daemon->engine, &config);
    if (status == OCCL_OK)
        occl_metering_wake(comm->job->tenant->daemon);
    return status;
}

static void answer_members(struct occl_comm *comm, const uint64_t *requests) {
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_msg_comm msg;
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_COMM, requests[rank]);
        msg.comm_uid = comm->uid;
        msg.page_bytes = comm->records.page_bytes;
        msg.comm = comm->seats[rank].number;
        msg.rank = rank;
        msg.ranks = comm->ranks;
        occl_session_send(comm->seats[rank].session, &msg, sizeof msg, &comm->memfd.fd, 1);
    }
}

static struct occl_comm *new_comm(const struct occl_comm_request *request) {
    struct occl_daemon *daemon = request->job->tenant->daemon;
    struct occl_comm *comm = calloc(1, sizeof *comm + request->ranks * sizeof comm->seats[0]);
    if (!comm)
        return NULL;
    comm->job = request->job;
    comm->uid = ++daemon->next_comm;
    comm->ranks = request->ranks;
    comm->priority_set = request->priority <= 3;
    comm->priority = request->priority;
    comm->default_deadline_ns = request->default_deadline_ns;
    comm->memfd.fd = -1;
    comm->state = OCCL_COMM_LIVE;
    comm->about_rank = OCCL_RANK_NONE;
    comm->born_ns = occl_loop_now_ns(daemon->loop);
    TAILQ_INIT(&comm->splits);
    if (request->name[0])
        (void)snprintf(comm->name, sizeof comm->name, "%s", request->name);
    else
        (void)snprintf(comm->name, sizeof comm->name, "comm-%llu", (unsigned long long)comm->uid);
    return comm;
}

static void give_seats_back(struct occl_comm *comm) {
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_seat *seat = &comm->seats[rank];
        if (seat->session)
            HASH_DELETE(in_session, seat->session->seats, seat);
    }
}

int occl_comm_create(const struct occl_comm_request *request, uint64_t *out_uid,
                     struct occl_detail *detail) {
    struct occl_tenant *tenant = request->job->tenant;
    struct occl_daemon *daemon = tenant->daemon;
    if (tenant->communicators >= tenant->quota_communicators)
        return occl_detail_set(detail, OCCL_E_QUOTA, 0,
                               "tenant %s has %llu of at most %llu communicators "
                               "(quota_communicators)",
                               tenant->text, (unsigned long long)tenant->communicators,
                               (unsigned long long)tenant->quota_communicators);
    struct occl_comm *comm = new_comm(request);
    if (!comm)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a communicator");
    int status = make_page(comm, detail);
    if (status != OCCL_OK)
        goto free_comm;
    bool room = occl_table_add_comm(daemon, comm);
    for (uint32_t rank = 0; room && rank < comm->ranks; rank++)
        room = take_seat(comm, rank, request->sessions[rank]);
    status = room ? add_to_engine(comm) : OCCL_E_NO_MEMORY;
    if (status != OCCL_OK) {
        (void)occl_detail_set(detail, status, 0, "no room for a communicator of %u ranks",
                              comm->ranks);
        goto drop_seats;
    }
    TAILQ_INSERT_TAIL(&comm->job->comms, comm, in_job);
    comm->job->comm_count++;
    comm->job->shape++;
    comm->job->comms_total++;
    comm->job->last_comm_ns = comm->born_ns;
    comm->job->registered_bytes += comm->records.page_bytes;
    tenant->communicators++;
    *out_uid = comm->uid;
    OCCL_LOG_DEBUG(daemon->log, "comm", "communicator %llu (%s) of job %s with %u ranks created",
                   (unsigned long long)comm->uid, comm->name, comm->job->name, comm->ranks);
    answer_members(comm, request->requests);
    occl_stall_wake(tenant);
    return OCCL_OK;
drop_seats:
    give_seats_back(comm);
    if (comm->in_daemon.tbl)
        HASH_DELETE(in_daemon, daemon->comms, comm);
    drop_page(comm);
free_comm:
    free(comm);
    return status;
}

/* ---- the end of a seat and of the communicator ---- */

static void keep_notes(struct occl_comm *comm) {
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_note_view note;
        occl_opview_note(comm, rank, &note);
        comm->job->ops_gone += note.ops_done;
        comm->job->errors_gone += note.errors;
        comm->job->bytes_gone += note.bytes_done;
        comm->job->executed_gone_bytes += note.bytes_executed;
    }
}

static void drop_comm(struct occl_comm *comm) {
    struct occl_job *job = comm->job;
    struct occl_daemon *daemon = job->tenant->daemon;
    OCCL_ASSERT(comm->seats_taken == 0);
    occl_loop_timer_cancel(daemon->loop, &comm->sweep_timer);
    daemon->comms_swept -= comm->swept;
    occl_split_fail_all(comm, OCCL_E_ABORTED, "the parent communicator is gone");
    keep_notes(comm);
    /* After this no lane reads the page. */
    occl_engine_comm_remove(daemon->engine, comm->uid);
    occl_stall_comm_gone(comm);
    TAILQ_REMOVE(&job->comms, comm, in_job);
    HASH_DELETE(in_daemon, daemon->comms, comm);
    job->comm_count--;
    job->shape++;
    job->registered_bytes -= comm->records.page_bytes;
    job->tenant->communicators--;
    drop_page(comm);
    free(comm);
    if (job->comm_count == 0)
        job->seen_oldest_age_ns = 0;
}

static void leave_seat(struct occl_seat *seat, enum occl_seat_state state, const char *cause) {
    HASH_DELETE(in_session, seat->session->seats, seat);
    seat->session = NULL;
    seat->state = state;
    seat->left_ns = occl_loop_now_ns(seat->comm->job->tenant->daemon->loop);
    (void)snprintf(seat->cause, sizeof seat->cause, "%s", cause);
    seat->comm->seats_taken--;
}

/* Destroy and detach: what had arrived is not disturbed, what needs this rank ends. */
static void leave_politely(struct occl_seat *seat, const char *cause) {
    struct occl_comm *comm = seat->comm;
    uint32_t rank = seat->rank;
    leave_seat(seat, OCCL_SEAT_LEFT, cause);
    if (comm->seats_taken == 0) {
        drop_comm(comm);
        return;
    }
    occl_comm_mark_dead(comm, rank);
    comm->left_mask |= 1ull << rank;
    char text[OCCL_DETAIL_BYTES];
    (void)snprintf(text, sizeof text, "communicator %s: rank %u (host %s, pid %u) %s", comm->name,
                   rank, seat->who.host, seat->who.pid, cause);
    occl_split_fail_all(comm, OCCL_E_PEER_FAILED, text);
    occl_comm_sweep_start(comm);
}

static void leave_by_failure(struct occl_seat *seat, const char *cause) {
    struct occl_comm *comm = seat->comm;
    uint32_t rank = seat->rank;
    char text[OCCL_DETAIL_BYTES];
    leave_seat(seat, OCCL_SEAT_GONE, cause);
    comm->job->tenant->daemon->counters.peer_failures_total++;
    (void)snprintf(text, sizeof text, "communicator %s: rank %u (host %s, pid %u) failed: %s",
                   comm->name, rank, seat->who.host, seat->who.pid, cause);
    occl_comm_mark_dead(comm, rank);
    occl_comm_end(comm, OCCL_COMM_FAILED, OCCL_E_PEER_FAILED, rank, text);
    if (comm->seats_taken == 0)
        drop_comm(comm);
}

/* Also where it has left before: a thread of it may have been inside an op when it was killed. */
static void mark_gone_everywhere(const struct occl_session *session) {
    struct occl_comm *comm;
    TAILQ_FOREACH(comm, &session->job->comms, in_job)
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        if (comm->seats[rank].who.session_id == session->id)
            occl_comm_mark_gone(comm, rank);
}

void occl_comm_session_gone(struct occl_session *session) {
    struct occl_seat *seat;
    struct occl_seat *next;
    /* Not by the cause: it also says so of one that is about to exit. */
    if (session->pidfd >= 0 && occl_identity_has_exited(session))
        mark_gone_everywhere(session);
    bool polite = session->cause == OCCL_CAUSE_DETACHED;
    HASH_ITER (in_session, session->seats, seat, next) {
        if (polite)
            leave_politely(seat, "detached");
        else
            leave_by_failure(seat, session->cause_text);
    }
    OCCL_ASSERT(session->seats == NULL);
}

/* ---- requests ---- */

static struct occl_seat *seat_or_reply(struct occl_session *session, uint64_t request,
                                       uint32_t number) {
    struct occl_seat *seat = occl_comm_seat(session, number);
    if (!seat)
        occl_session_reply(
            session, request, OCCL_E_HANDLE,
            "communicator number %u: this process has none of that number (destroyed, "
            "or never created)",
            number);
    return seat;
}

void occl_comm_handle_end(struct occl_session *session, const struct occl_msg_comm_end *msg) {
    struct occl_seat *seat = seat_or_reply(session, msg->h.request, msg->comm);
    if (!seat)
        return;
    struct occl_comm *comm = seat->comm;
    uint32_t rank = seat->rank;
    char text[OCCL_DETAIL_BYTES];
    switch (msg->how) {
    case OCCL_END_DESTROY:
        leave_politely(seat, "destroyed its communicator");
        break;
    case OCCL_END_REVOKE:
        (void)snprintf(text, sizeof text, "communicator %s: revoked by rank %u (host %s, pid %u)",
                       comm->name, rank, seat->who.host, seat->who.pid);
        occl_comm_end(comm, OCCL_COMM_REVOKED, OCCL_E_REVOKED, rank, text);
        break;
    case OCCL_END_ABORT:
        (void)snprintf(text, sizeof text, "communicator %s: aborted by rank %u (host %s, pid %u)",
                       comm->name, rank, seat->who.host, seat->who.pid);
        occl_comm_end(comm, OCCL_COMM_ABORTED, OCCL_E_ABORTED, rank, text);
        leave_politely(seat, "aborted its communicator");
        break;
    default:
        occl_session_reply(session, msg->h.request, OCCL_E_INVALID,
                           "COMM_END: expected 1 (destroy), 2 (revoke) or 3 (abort), found %u",
                           msg->how);
        return;
    }
    occl_session_reply(session, msg->h.request, OCCL_OK, "done");
}

void occl_comm_handle_members(struct occl_session *session, const struct occl_msg_members *msg) {
    struct occl_seat *seat = seat_or_reply(session, msg->h.request, msg->comm);
    struct occl_msg_members_reply reply;
    if (!seat)
        return;
    struct occl_comm *comm = seat->comm;
    if (msg->first >= comm->ranks) {
        occl_session_reply(session, msg->h.request, OCCL_E_INVALID,
                           "MEMBERS: expected a first rank below %u, found %u", comm->ranks,
                           msg->first);
        return;
    }
    memset(&reply, 0, sizeof reply);
    occl_msg_init(&reply.h, OCCL_MSG_MEMBERS_REPLY, msg->h.request);
    reply.comm = msg->comm;
    reply.first = msg->first;
    reply.ranks = comm->ranks;
    for (uint32_t rank = msg->first; rank < comm->ranks && reply.members < OCCL_MEMBERS_PER_MESSAGE;
         rank++) {
        struct occl_member *member = &reply.member[reply.members++];
        *member = comm->seats[rank].who;
        member->state = comm->seats[rank].state != OCCL_SEAT_LIVE;
    }
    occl_session_send(session, &reply, sizeof reply, NULL, 0);
}
