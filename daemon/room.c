/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: regions to which processes copy private buffers that peers read, where that is quicker
 * than having them read where they are. A process gets one when a communicator of its job first
 * asks for those of its members, and all members get each other's descriptors then: so no operation
 * asks later. It is the process's own, as other regions, but for the quota of regions; it goes with
 * it. */
#include <string.h>

#include "daemon/occld.h"

static uint64_t room_bytes(const struct occl_daemon *daemon) {
    uint64_t unit = OCCL_ROOM_UNITS * OCCL_PAGE_BYTES;
    uint64_t wanted = daemon->config.copy_max_bytes * OCCL_ROOM_COPIES;
    return (wanted + unit - 1) / unit * unit;
}

/* Rooms only save time, so all of them together take so much of a quota at most. */
#define PART_OF_QUOTA 4u

static int check_room(const struct occl_tenant *tenant, uint64_t bytes,
                      struct occl_detail *detail) {
    const struct occl_daemon *daemon = tenant->daemon;
    uint64_t tenant_most = tenant->charge.limit_bytes / PART_OF_QUOTA;
    uint64_t most = daemon->charge.limit_bytes / PART_OF_QUOTA;
    if (daemon->draining)
        return occl_detail_set(detail, OCCL_E_SHUTTING_DOWN, 0, "the daemon is shutting down");
    if (tenant->room_bytes + bytes > tenant_most)
        return occl_detail_set(detail, OCCL_E_QUOTA, 0,
                               "%llu bytes beside %llu: a quarter of quota_registered is %llu",
                               (unsigned long long)bytes, (unsigned long long)tenant->room_bytes,
                               (unsigned long long)tenant_most);
    if (daemon->room_bytes + bytes > most)
        return occl_detail_set(detail, OCCL_E_QUOTA, 0,
                               "%llu bytes beside %llu: a quarter of registered_max is %llu",
                               (unsigned long long)bytes, (unsigned long long)daemon->room_bytes,
                               (unsigned long long)most);
    return OCCL_OK;
}

static int make_room(struct occl_session *session, uint64_t bytes, struct occl_detail *detail) {
    int status = occl_region_make(session, bytes, 0, &session->room, detail);
    if (status != OCCL_OK)
        return status;
    session->job->tenant->room_bytes += session->room->memfd.bytes;
    session->daemon->room_bytes += session->room->memfd.bytes;
    return OCCL_OK;
}

void occl_room_gone(struct occl_session *session) {
    session->job->tenant->room_bytes -= session->room->memfd.bytes;
    session->daemon->room_bytes -= session->room->memfd.bytes;
    session->room = NULL;
}

/* The processes of the communicator without a room; 0 if they are one process only. */
static uint32_t processes_without(const struct occl_comm *comm, struct occl_session **out) {
    uint32_t count = 0;
    bool several = false;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct occl_session *session = comm->seats[rank].session;
        bool seen = !session || session->room;
        several = several || comm->seats[rank].who.session_id != comm->seats[0].who.session_id;
        for (uint32_t i = 0; i < count; i++)
            seen = seen || out[i] == session;
        if (!seen)
            out[count++] = session;
    }
    return several ? count : 0;
}

/* Gives a room to each process of the communicator that has none; if the quotas have no place for
 * all of these, to nobody. */
static void make_rooms(struct occl_comm *comm) {
    struct occl_session *without[OCCL_LOCAL_RANKS_MAX];
    struct occl_job *job = comm->job;
    uint64_t bytes = room_bytes(job->tenant->daemon);
    struct occl_detail detail;
    uint32_t count = bytes ? processes_without(comm, without) : 0;
    int status = count ? check_room(job->tenant, count * bytes, &detail) : OCCL_OK;
    for (uint32_t i = 0; i < count && status == OCCL_OK; i++)
        status = make_room(without[i], bytes, &detail);
    if (status != OCCL_OK && !job->room_refusal_logged)
        OCCL_LOG_INFO(job->tenant->daemon->log, "region",
                      "tenant %s job %s: no room for copies of private memory: %s",
                      job->tenant->text, job->name, detail.text);
    job->room_refusal_logged |= status != OCCL_OK;
}

void occl_room_handle(struct occl_session *session, const struct occl_msg_rooms *msg) {
    const struct occl_seat *seat = occl_comm_seat(session, msg->comm);
    struct occl_msg_rooms_reply reply;
    int fds[OCCL_MESSAGE_FDS_MAX];
    uint32_t fd_count = 0;
    if (!seat || msg->first >= seat->comm->ranks) {
        occl_session_reply(session, msg->h.request, seat ? OCCL_E_INVALID : OCCL_E_HANDLE,
                           "ROOMS: expected a communicator of this process and a rank of it, found "
                           "communicator %u and rank %u",
                           msg->comm, msg->first);
        return;
    }
    struct occl_comm *comm = seat->comm;
    if (comm->state == OCCL_COMM_LIVE)
        make_rooms(comm);
    memset(&reply, 0, sizeof reply);
    occl_msg_init(&reply.h, OCCL_MSG_ROOMS_REPLY, msg->h.request);
    reply.comm = msg->comm;
    reply.first = msg->first;
    reply.bytes = room_bytes(session->daemon);
    for (uint32_t rank = msg->first; rank < comm->ranks && reply.members < OCCL_ROOMS_PER_MESSAGE;
         rank++) {
        const struct occl_session *member = comm->seats[rank].session;
        struct occl_region *room = member ? member->room : NULL;
        struct occl_member_room *answer = &reply.member[reply.members++];
        if (!room)
            continue;
        answer->region = room->number;
        if (occl_region_mapped_by(room, session->id) || !occl_region_add_mapper(room, session->id))
            continue; /* it has been sent, or the client asks for it as for any other region */
        answer->sent = 1;
        fds[fd_count++] = room->memfd.fd;
    }
    occl_session_send(session, &reply, sizeof reply, fds, fd_count);
}
