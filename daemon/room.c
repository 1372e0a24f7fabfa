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

/* Rooms only save time, so they leave most of what is left to what is needed. */
#define SHARE_OF_REST 4u

static bool is_small_part(const struct occl_charge *charge, uint64_t bytes) {
    return charge->used_bytes < charge->limit_bytes &&
           bytes <= (charge->limit_bytes - charge->used_bytes) / SHARE_OF_REST;
}

static int make_room(struct occl_session *session, uint64_t bytes, struct occl_detail *detail) {
    const struct occl_tenant *tenant = session->job->tenant;
    if (session->daemon->draining)
        return occl_detail_set(detail, OCCL_E_SHUTTING_DOWN, 0, "the daemon is shutting down");
    if (!is_small_part(&tenant->charge, bytes) || !is_small_part(&tenant->daemon->charge, bytes))
        return occl_detail_set(detail, OCCL_E_QUOTA, 0,
                               "%llu bytes are more than a quarter of what is left of "
                               "quota_registered or registered_max",
                               (unsigned long long)bytes);
    return occl_region_make(session, bytes, 0, &session->room, detail);
}

static bool has_several_processes(const struct occl_comm *comm) {
    for (uint32_t rank = 1; rank < comm->ranks; rank++)
        if (comm->seats[rank].who.session_id != comm->seats[0].who.session_id)
            return true;
    return false;
}

/* Gives a room to each process of the communicator that has none, as far as there is place. */
static void make_rooms(struct occl_comm *comm) {
    struct occl_job *job = comm->job;
    uint64_t bytes = room_bytes(job->tenant->daemon);
    struct occl_detail detail;
    int status = OCCL_OK;
    if (bytes == 0 || !has_several_processes(comm))
        return;
    for (uint32_t rank = 0; rank < comm->ranks && status == OCCL_OK; rank++) {
        struct occl_session *session = comm->seats[rank].session;
        if (session && !session->room)
            status = make_room(session, bytes, &detail);
    }
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
