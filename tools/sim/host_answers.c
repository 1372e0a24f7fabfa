/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says to a process, and whether it may say so: each request is answered once, the
 * members of a communicator hear the same, events name somebody who has given the reason. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/sim/host.h"

/* A report that is held back, and the rounds in between. */
#define LATE_ANSWER_NS 10000000u

/* ---- communicators ---- */

struct sim_hcomm *sim_answers_comm(struct sim_host *host, uint64_t uid) {
    for (uint32_t i = 0; i < host->comm_count; i++)
        if (host->comms[i]->uid == uid)
            return host->comms[i];
    return NULL;
}

struct sim_hcomm *sim_answers_find(struct sim_host *host, const struct sim_process *process,
                                   uint32_t number, uint32_t *out_rank) {
    for (uint32_t i = 0; i < host->comm_count; i++)
        for (uint32_t rank = 0; rank < host->comms[i]->ranks; rank++) {
            const struct sim_seat *seat = &host->comms[i]->seats[rank];
            if (seat->answered && seat->process == process->number && seat->number == number) {
                *out_rank = rank;
                return host->comms[i];
            }
        }
    return NULL;
}

static struct sim_hcomm *new_comm(struct sim_host *host, uint32_t job, uint64_t uid,
                                  uint32_t ranks) {
    struct sim_hcomm *comm = sim_host_allocate(1, sizeof *comm);
    comm->uid = uid;
    comm->job = job;
    comm->ranks = ranks;
    comm->split = -1;
    comm->seats = sim_host_allocate(ranks, sizeof *comm->seats);
    if (host->comm_count == host->comm_room) {
        host->comm_room = host->comm_room * 2 + 16;
        host->comms = realloc(host->comms, host->comm_room * sizeof *host->comms);
        if (!host->comms)
            abort();
    }
    host->comms[host->comm_count++] = comm;
    host->result.comms++;
    return comm;
}

/* Members of a split's communicator: those of one color, by key, then by rank in the parent. */
static uint32_t split_members(const struct sim_meet *meet, const struct sim_split_plan *split,
                              int32_t color, uint32_t *out_parent_ranks) {
    uint32_t count = 0;
    for (int32_t key = -1; key <= 1; key++)
        for (uint32_t rank = 0; rank < meet->ranks; rank++)
            if (split->colors[rank] == color && split->keys[rank] == key)
                out_parent_ranks[count++] = rank;
    return count;
}

/* It was asked since the daemon last forgot the job, so the others hear the same. */
static bool is_fresh(const struct sim_host *host, const struct sim_process *process,
                     const struct sim_ask *ask) {
    return ask->asked_ns >= host->jobs[process->job].forgotten_ns;
}

/* The communicator that this ask leads to, and the rank in it. */
static struct sim_hcomm *comm_of_ask(struct sim_host *host, const struct sim_process *process,
                                     const struct sim_ask *ask, uint64_t uid, uint32_t *out_rank) {
    struct sim_meet *meet = &host->jobs[process->job].meets[ask->meet];
    struct sim_hcomm *comm = sim_answers_comm(host, uid);
    uint32_t members[OCCL_LOCAL_RANKS_MAX], count = 0;
    *out_rank = ask->rank;
    if (ask->type == OCCL_MSG_COMM_CREATE) {
        if (comm)
            return comm;
        bool fresh = is_fresh(host, process, ask);
        if (meet->uid && fresh)
            sim_host_broken(host, "twice: meet %u of job %u became two communicators", ask->meet,
                            process->job);
        if (fresh)
            meet->uid = uid;
        comm = new_comm(host, process->job, uid, meet->ranks);
        comm->meet = ask->meet;
        for (uint32_t rank = 0; rank < meet->ranks; rank++)
            comm->seats[rank].process = meet->process_of[rank];
        return comm;
    }
    const struct sim_split_plan *split = &meet->splits[ask->which];
    count = split_members(meet, split, split->colors[ask->rank], members);
    for (uint32_t i = 0; i < count; i++)
        if (members[i] == ask->rank)
            *out_rank = i;
    if (comm)
        return comm;
    comm = new_comm(host, process->job, uid, count);
    comm->meet = ask->meet;
    comm->split = (int32_t)ask->which;
    for (uint32_t i = 0; i < count; i++)
        comm->seats[i].process = meet->process_of[members[i]];
    return comm;
}

static void map_page(struct sim_host *host, struct sim_hcomm *comm, uint64_t bytes, int fd) {
    struct occl_detail detail;
    struct stat st;
    void *base;
    if (fstat(fd, &st) < 0)
        abort();
    if (comm->records.base) {
        if (comm->inode != (uint64_t)st.st_ino)
            sim_host_broken(host, "page: members of communicator %llu got different ones",
                            (unsigned long long)comm->uid);
        return;
    }
    comm->inode = (uint64_t)st.st_ino;
    if (occl_memfd_verify(fd, bytes, false, &detail) != OCCL_OK ||
        occl_memfd_map(fd, bytes, OCCL_MAP_WRITE, &base, &detail) != OCCL_OK ||
        occl_records_open(base, bytes, &comm->records) != OCCL_OK)
        sim_host_broken(host, "page: communicator %llu: %s", (unsigned long long)comm->uid,
                        detail.text);
}

static void take_comm(struct sim_host *host, struct sim_process *process, const struct sim_ask *ask,
                      const struct occl_msg_comm *msg, const int *fds, uint32_t fd_count) {
    const struct sim_meet *meet = &host->jobs[process->job].meets[ask->meet];
    uint32_t rank;
    if (ask->type == OCCL_MSG_COMM_SPLIT && meet->splits[ask->which].colors[ask->rank] < 0) {
        if (msg->ranks != 0 || fd_count != 0)
            sim_host_broken(host, "split: process %u asked for none and got a communicator",
                            process->number);
        return;
    }
    if (ask->odd || fd_count != 1 || msg->ranks == 0) {
        sim_host_broken(host, "answer: process %u got a communicator of %u ranks, %u descriptors",
                        process->number, msg->ranks, fd_count);
        return;
    }
    struct sim_hcomm *comm = comm_of_ask(host, process, ask, msg->comm_uid, &rank);
    if (msg->rank != rank || msg->ranks != comm->ranks || comm->job != process->job ||
        rank >= comm->ranks || comm->seats[rank].process != process->number ||
        comm->seats[rank].answered) {
        sim_host_broken(host,
                        "members: process %u got rank %u of %u in communicator %llu, expected %u "
                        "of %u",
                        process->number, msg->rank, msg->ranks, (unsigned long long)comm->uid, rank,
                        comm->ranks);
        return;
    }
    if (ask->type == OCCL_MSG_COMM_CREATE && meet->failed_status != OCCL_OK &&
        is_fresh(host, process, ask))
        sim_host_broken(host, "outcome: meet %u of job %u failed for one and not for another",
                        ask->meet, process->job);
    comm->seats[rank].answered = true;
    comm->seats[rank].number = msg->comm;
    map_page(host, comm, msg->page_bytes, fds[0]);
}

/* ---- refusals ---- */

static void refused_create(struct sim_host *host, const struct sim_process *process,
                           const struct sim_ask *ask, int status) {
    struct sim_meet *meet = &host->jobs[process->job].meets[ask->meet];
    bool reason = false;
    if (meet->uid)
        sim_host_broken(host, "outcome: meet %u of job %u succeeded for one and not for another",
                        ask->meet, process->job);
    if (meet->failed_status == OCCL_OK)
        meet->failed_status = status;
    /* Who comes after a drain has begun is refused for that, and may read it before others read
     * that their time was over before. */
    bool over_before = meet->failed_status == OCCL_E_SHUTTING_DOWN && status == OCCL_E_TIMEOUT &&
                       meet->first_due_ns <= host->drained_ns;
    if (meet->failed_status != status && status != OCCL_E_SHUTTING_DOWN && !over_before)
        sim_host_broken(host, "outcome: meet %u of job %u failed with %s and with %s", ask->meet,
                        process->job, occl_status_name(meet->failed_status),
                        occl_status_name(status));
    for (uint32_t rank = 0; rank < meet->ranks; rank++)
        reason |= sim_process_gave_reason(&host->processes[meet->process_of[rank]]);
    if (status == OCCL_E_PEER_FAILED && !reason)
        sim_host_broken(host, "peer failed: meet %u of job %u, and nobody has", ask->meet,
                        process->job);
    if (status == OCCL_E_TIMEOUT && meet->first_due_ns > sim_host_now(host))
        sim_host_broken(host, "time-out: meet %u of job %u, before its time", ask->meet,
                        process->job);
}

static void check_refusal(struct sim_host *host, struct sim_process *process,
                          const struct sim_ask *ask, int status, const char *text) {
    const struct sim_hjob *job = &host->jobs[process->job];
    host->result.refusals++;
    if (ask->type == OCCL_MSG_REGION_MAP)
        process->mapped_region = 0;
    if (ask->odd)
        return;
    /* Once a drain has begun, one refusal leads to another. */
    if (job->innocent && !host->drained_ns)
        sim_host_broken(host, "innocent: process %u of job %u was refused: %s", process->number,
                        process->job, text);
    if (ask->type == OCCL_MSG_COMM_CREATE && is_fresh(host, process, ask))
        refused_create(host, process, ask, status);
    if (ask->type == OCCL_MSG_HELLO)
        process->refused = true;
    if (text[0] == '\0')
        sim_host_broken(host, "text: process %u got status %s without one", process->number,
                        occl_status_name(status));
}

/* ---- the other answers ---- */

static void take_welcome(struct sim_host *host, struct sim_process *process,
                         const struct occl_msg_welcome *msg, const int *fds, uint32_t fd_count) {
    struct occl_session_shape shape;
    struct occl_session_facts facts;
    struct occl_detail detail;
    void *base;
    process->welcome = *msg;
    if (fd_count != 2 ||
        occl_memfd_map(fds[0], msg->page_bytes, OCCL_MAP_WRITE, &base, &detail) != OCCL_OK ||
        occl_session_open(base, msg->page_bytes, &shape, &facts, &detail) != OCCL_OK) {
        sim_host_broken(host, "attach: process %u got no pages", process->number);
        return;
    }
    process->page = base;
    struct occl_ring_place sq = occl_sq_place(base, shape.sq_offset, shape.sq_entries);
    struct occl_ring_place cq = occl_cq_place(base, shape.cq_offset, shape.cq_entries);
    occl_ring_producer_init(&process->sq, &sq);
    occl_ring_consumer_init(&process->cq, &cq);
    process->phase = SIM_ATTACHED;
}

static void take_region(struct sim_host *host, struct sim_process *process,
                        const struct sim_ask *ask, const struct occl_msg_region *msg,
                        const int *fds, uint32_t fd_count) {
    struct occl_detail detail;
    void *base;
    if (fd_count != 1) {
        sim_host_broken(host, "region: process %u got %u descriptors", process->number, fd_count);
        return;
    }
    if (ask->type == OCCL_MSG_REGION_MAP) {
        if (msg->region != ask->which)
            sim_host_broken(host, "region: process %u got %u for %u", process->number, msg->region,
                            ask->which);
        process->mapped = true;
        return;
    }
    if (msg->bytes < SIM_REGION_BYTES ||
        occl_memfd_map(fds[0], SIM_REGION_BYTES, OCCL_MAP_WRITE, &base, &detail) != OCCL_OK) {
        sim_host_broken(host, "region: process %u cannot map it", process->number);
        return;
    }
    process->region = msg->region;
    process->region_base = base;
    memset(process->region_base + SIM_SLOTS_BYTES, SIM_OWN_BYTE, OCCL_PAGE_BYTES);
}

/* The communicator that has this number in the session; NULL: none any more. */
static const struct sim_hcomm *comm_of_number(const struct sim_host *host,
                                              const struct sim_process *process, uint32_t number) {
    for (uint32_t i = 0; i < host->comm_count; i++)
        for (uint32_t rank = 0; rank < host->comms[i]->ranks; rank++) {
            const struct sim_seat *seat = &host->comms[i]->seats[rank];
            if (seat->answered && seat->process == process->number && seat->number == number)
                return host->comms[i];
        }
    return NULL;
}

/* A process has one room, which it shares with nobody. */
static void check_room(struct sim_host *host, struct sim_process *owner, uint32_t room) {
    if (owner->room && owner->room != room)
        sim_host_broken(host, "room: process %u has %u and %u", owner->number, owner->room, room);
    owner->room = room;
    for (uint32_t i = 0; i < host->process_count; i++) {
        const struct sim_process *other = &host->processes[i];
        if (other != owner && other->job == owner->job &&
            (other->room == room || other->region == room))
            sim_host_broken(host, "room: %u is of process %u and of %u", room, owner->number,
                            other->number);
    }
}

static void take_room(struct sim_host *host, struct sim_process *process,
                      const struct occl_member_room *room, uint64_t bytes, int fd) {
    struct occl_detail detail;
    for (uint32_t i = 0; i < process->room_count; i++)
        if (process->rooms[i] == room->region)
            sim_host_broken(host, "room: process %u was sent %u twice", process->number,
                            room->region);
    if (process->room_count == SIM_ROOMS_MAX ||
        occl_memfd_verify(fd, bytes, false, &detail) != OCCL_OK)
        sim_host_broken(host, "room: process %u was sent %u others, then %u of %llu bytes",
                        process->number, process->room_count, room->region,
                        (unsigned long long)bytes);
    else
        process->rooms[process->room_count++] = room->region;
}

static void take_rooms(struct sim_host *host, struct sim_process *process,
                       const struct sim_ask *ask, const struct occl_msg_rooms_reply *msg,
                       const int *fds, uint32_t fd_count) {
    const struct sim_hcomm *comm = comm_of_number(host, process, ask->which);
    uint32_t came = 0;
    bool several = false, own = false;
    if (!comm || msg->first != 0 || msg->members > OCCL_ROOMS_PER_MESSAGE) {
        sim_host_broken(host, "room: process %u got those of communicator number %u",
                        process->number, ask->which);
        return;
    }
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        several = several || comm->seats[rank].process != process->number;
    for (uint32_t rank = 0; rank < msg->members; rank++) {
        const struct occl_member_room *room = &msg->member[rank];
        if (room->region)
            check_room(host, &host->processes[comm->seats[rank].process], room->region);
        if (room->sent && came < fd_count)
            take_room(host, process, room, msg->bytes, fds[came]);
        came += room->sent;
        own = own || (room->region && comm->seats[rank].process == process->number);
    }
    bool told_all = msg->members == comm->ranks;
    if (came != fd_count || (several && told_all && !host->options.faults && !own))
        sim_host_broken(host, "room: process %u got %u descriptors for %u rooms, %s its own",
                        process->number, fd_count, came, own ? "among them" : "but not");
}

static bool is_room(struct sim_process *process, uint32_t region) {
    for (uint32_t i = 0; i < process->room_count; i++)
        if (process->rooms[i] == region) {
            process->rooms[i] = 0;
            return true;
        }
    return false;
}

static void take_end_reply(struct sim_host *host, struct sim_process *process,
                           const struct sim_ask *ask) {
    for (uint32_t i = 0; i < host->comm_count; i++)
        for (uint32_t rank = 0; rank < host->comms[i]->ranks; rank++) {
            struct sim_seat *seat = &host->comms[i]->seats[rank];
            if (seat->answered && seat->process == process->number && seat->number == ask->which)
                seat->ending = false;
        }
}

/* ---- events ---- */

static void take_comm_event(struct sim_host *host, struct sim_process *process,
                            const struct occl_msg_event *msg) {
    uint32_t rank, about = msg->about_rank;
    struct sim_hcomm *comm = sim_answers_find(host, process, msg->number, &rank);
    int status = msg->detail.status;
    if (!comm) {
        sim_host_broken(host, "event: process %u has no communicator %u", process->number,
                        msg->number);
        return;
    }
    struct sim_seat *seat = &comm->seats[rank];
    const struct sim_seat *other = about < comm->ranks ? &comm->seats[about] : NULL;
    bool left = other && (other->left || host->processes[other->process].detaching);
    bool left_event = status == OCCL_E_PEER_FAILED && left && !strstr(msg->detail.text, "failed: ");
    if (host->jobs[process->job].innocent && !left_event && !host->drained_ns)
        sim_host_broken(host, "innocent: process %u heard: %s", process->number, msg->detail.text);
    if (status == OCCL_E_PEER_FAILED &&
        (!other || !(left || sim_process_gave_reason(&host->processes[other->process]))))
        sim_host_broken(host, "peer failed: communicator %llu names rank %u, which has not",
                        (unsigned long long)comm->uid, about);
    if (other && !left_event && status == OCCL_E_PEER_FAILED &&
        host->processes[other->process].detaching && !host->processes[other->process].misbehaved &&
        !host->processes[other->process].slow)
        sim_host_broken(host, "goodbye: process %u has detached, and rank %u heard: %s",
                        other->process, rank, msg->detail.text);
    if ((status == OCCL_E_REVOKED || status == OCCL_E_ABORTED) && !comm->revoked)
        sim_host_broken(host, "revoked: communicator %llu, by nobody",
                        (unsigned long long)comm->uid);
    if (status == OCCL_E_PEER_FAILED && other && host->processes[other->process].bell >= 0 &&
        msg->about_pid != host->processes[other->process].pid)
        sim_host_broken(host, "pid: communicator %llu names process %u for rank %u",
                        (unsigned long long)comm->uid, msg->about_pid, about);
    if (left_event && (seat->leavers_told >> about & 1))
        sim_host_broken(host, "event: process %u was told twice that rank %u left", process->number,
                        about);
    if (left_event)
        seat->leavers_told |= 1ull << about;
    else if (seat->end_events++)
        sim_host_broken(host, "event: communicator %llu ended twice for rank %u",
                        (unsigned long long)comm->uid, rank);
}

static void take_event(struct sim_host *host, struct sim_process *process,
                       const struct occl_msg_event *msg) {
    sim_host_note(host, 7, process->number,
                  (uint64_t)msg->kind << 48 ^ (uint64_t)msg->number << 24 ^
                      (uint64_t)msg->about_rank << 8 ^ (uint64_t)(-msg->detail.status));
    switch (msg->kind) {
    case OCCL_EVENT_COMM:
        take_comm_event(host, process, msg);
        return;
    case OCCL_EVENT_SHUTDOWN:
        if (!host->drained_ns || process->told_of_shutdown)
            sim_host_broken(host, "event: process %u was told of a shutdown", process->number);
        process->told_of_shutdown = true;
        return;
    case OCCL_EVENT_REGION_GONE:
        if (is_room(process, msg->number))
            return;
        if (msg->number != process->mapped_region)
            sim_host_broken(host, "event: process %u has not mapped region %u", process->number,
                            msg->number);
        process->mapped_region = 0;
        process->mapped = false;
        return;
    default:
        /* A stall: waits of half a second never form a cycle here. */
        sim_host_broken(host, "event: process %u was told of a stall: %s", process->number,
                        msg->detail.text);
    }
}

/* ---- all of them ---- */

static bool take_from_ledger(struct sim_process *process, uint64_t request,
                             struct sim_ask *out_ask) {
    for (uint32_t i = 0; i < process->ask_count; i++) {
        if (process->asks[i].request != request)
            continue;
        *out_ask = process->asks[i];
        process->asks[i] = process->asks[--process->ask_count];
        return true;
    }
    return false;
}

/* Answers that fit a request. */
static bool fits(uint32_t request, uint32_t answer) {
    switch (request) {
    case OCCL_MSG_HELLO:
        return answer == OCCL_MSG_WELCOME;
    case OCCL_MSG_REGION_ALLOC:
    case OCCL_MSG_REGION_MAP:
        return answer == OCCL_MSG_REGION;
    case OCCL_MSG_COMM_CREATE:
    case OCCL_MSG_COMM_SPLIT:
        return answer == OCCL_MSG_COMM;
    case OCCL_MSG_MEMBERS:
        return answer == OCCL_MSG_MEMBERS_REPLY;
    case OCCL_MSG_ROOMS:
        return answer == OCCL_MSG_ROOMS_REPLY;
    default:
        return false;
    }
}

static void take_reply(struct sim_host *host, struct sim_process *process,
                       const struct sim_ask *ask, const struct occl_msg_reply *msg) {
    if (msg->detail.status != OCCL_OK)
        check_refusal(host, process, ask, msg->detail.status, msg->detail.text);
    if (ask->type == OCCL_MSG_COMM_END)
        take_end_reply(host, process, ask);
}

/* A time-out ends a creation or split in time; jumps of the clock do not count. */
static void check_due(struct sim_host *host, const struct sim_process *process,
                      const struct sim_ask *ask) {
    bool timed = (ask->type == OCCL_MSG_COMM_CREATE || ask->type == OCCL_MSG_COMM_SPLIT) &&
                 ask->due_ns != SIM_NEVER && !ask->odd;
    bool reads = !process->misbehaved && !process->slow && process->stopped_until_ns == 0;
    if (timed && reads &&
        sim_host_now(host) - (host->jumped_ns - ask->jumped_ns) > ask->due_ns + LATE_ANSWER_NS)
        sim_host_broken(host, "time-out: %s %llu of process %u was answered late",
                        occl_msg_name(ask->type), (unsigned long long)ask->request,
                        process->number);
}

void sim_answers_take(struct sim_host *host, struct sim_process *process, const void *datagram,
                      int *fds, uint32_t fd_count) {
    const struct occl_msg_header *header = datagram;
    struct sim_ask ask;
    if (header->type == OCCL_MSG_EVENT && header->request == 0) {
        take_event(host, process, datagram);
        return;
    }
    const struct occl_msg_reply *reply = datagram;
    int status = header->type == OCCL_MSG_REPLY ? reply->detail.status : OCCL_OK;
    sim_host_note(host, 6, process->number,
                  header->request << 24 ^ (uint64_t)header->type << 16 ^ (uint64_t)(-status));
    /* What was no message has no number. */
    if (process->misbehaved && header->request == 0 && header->type == OCCL_MSG_REPLY)
        return;
    if (!take_from_ledger(process, header->request, &ask)) {
        if (!process->misbehaved)
            sim_host_broken(host, "answer: process %u has not asked, or was answered: %s %llu",
                            process->number, occl_msg_name(header->type),
                            (unsigned long long)header->request);
        return;
    }
    check_due(host, process, &ask);
    if (header->type == OCCL_MSG_REPLY)
        take_reply(host, process, &ask, datagram);
    else if (!fits(ask.type, header->type))
        sim_host_broken(host, "answer: process %u got %s for %s", process->number,
                        occl_msg_name(header->type), occl_msg_name(ask.type));
    else if (header->type == OCCL_MSG_WELCOME)
        take_welcome(host, process, datagram, fds, fd_count);
    else if (header->type == OCCL_MSG_REGION)
        take_region(host, process, &ask, datagram, fds, fd_count);
    else if (header->type == OCCL_MSG_COMM)
        take_comm(host, process, &ask, datagram, fds, fd_count);
    else if (header->type == OCCL_MSG_ROOMS_REPLY)
        take_rooms(host, process, &ask, datagram, fds, fd_count);
}
