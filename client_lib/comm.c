/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: the handle table, creation and end. */
#include "client_lib/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A few switches on another core: what a rank there may need before it arrives. Measured on 2
 * cores: 12 % less time for 4 ranks; with 4 ranks a core the others take longer than that, and
 * nothing is won. */
#define ELSEWHERE_NS 4000

static struct occl_comm handle_of(const struct client_comm *comm) {
    return (struct occl_comm){((uint64_t)comm->generation << 32) | comm->index};
}

int client_comm_state(struct client_comm *comm, uint32_t *out_rank) {
    uint32_t ended = occl_peek32(&comm->ended);
    uint32_t word = occl_observe32(&occl_records_header(&comm->m)->comm_state);
    *out_rank = occl_rec_rank(word);
    if (ended)
        return -(int)ended;
    if (occl_rec_kind(word) != OCCL_COMM_LIVE)
        return occl_rec_status(word) ? occl_rec_status(word) : OCCL_E_PEER_FAILED;
    uint32_t lost = occl_peek32(&occl_lib.lost);
    return lost ? -(int)lost : OCCL_OK;
}

void client_comm_event(const struct occl_msg_event *event) {
    for (uint32_t i = 0; i < occl_observe32(&occl_lib.comms_used); i++) {
        struct client_comm *comm = client_comm_ask_ref(
            i, occl_observe32(&occl_lib.comms[i]->generation)); /* NULL: not live */
        if (!comm)
            continue;
        bool meant = comm->number == event->number;
        if (meant && !occl_peek32(&comm->event_set)) {
            comm->event = event->detail;
            comm->event.text[sizeof comm->event.text - 1] = 0;
            occl_publish32(&comm->event_set, 1);
        }
        client_comm_answered(comm);
        if (meant)
            return;
    }
}

/* A free slot of the table, or a new one. lib.control is held. */
static int slot_take(struct client_comm **out_comm) {
    for (uint32_t i = 0; i < occl_lib.comms_used; i++)
        if (!(occl_observe32(&occl_lib.comms[i]->generation) & 1) &&
            client_comm_users(occl_lib.comms[i]) == 0) {
            *out_comm = occl_lib.comms[i];
            return OCCL_OK;
        }
    if (occl_lib.comms_used == CLIENT_COMMS_MAX)
        return client_fail(OCCL_E_QUOTA, "%u communicators, the limit of a process",
                           CLIENT_COMMS_MAX);
    struct client_comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for a communicator");
    comm->index = occl_lib.comms_used;
    pthread_mutex_init(&comm->lock, NULL);
    occl_lib.comms[comm->index] = comm;
    occl_publish32(&occl_lib.comms_used, occl_lib.comms_used + 1);
    *out_comm = comm;
    return OCCL_OK;
}

static int fetch_members(struct client_comm *comm) {
    comm->members = calloc(comm->ranks, sizeof *comm->members);
    if (!comm->members)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for the members of a communicator");
    for (uint32_t first = 0; first < comm->ranks;) {
        struct occl_msg_members msg;
        struct occl_msg_members_reply reply;
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_MEMBERS, 0);
        msg.comm = comm->number;
        msg.first = first;
        int status = client_rpc_call(&msg, sizeof msg, -1, &reply, OCCL_MSG_MEMBERS_REPLY, NULL);
        if (status)
            return status;
        if (reply.first != first || reply.members == 0 ||
            reply.members > OCCL_MEMBERS_PER_MESSAGE || first + reply.members > comm->ranks)
            return client_fail(OCCL_E_PROTOCOL, "members %u..%u of %u: bad answer", reply.first,
                               reply.first + reply.members, comm->ranks);
        memcpy(&comm->members[first], reply.member, reply.members * sizeof *comm->members);
        first += reply.members;
    }
    return OCCL_OK;
}

/* Takes the page that the daemon sent. On failure everything is undone except the daemon's side. */
static int open_page(struct client_comm *comm, const struct occl_msg_comm *reply, int fd) {
    void *base = mmap(NULL, reply->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return client_fail(OCCL_E_NO_MEMORY, "mapping a communicator page of %llu bytes failed: %m",
                           (unsigned long long)reply->page_bytes);
    int status = occl_records_open(base, reply->page_bytes, &comm->m);
    if (status == OCCL_OK && (comm->m.ranks != reply->ranks || reply->rank >= reply->ranks))
        status = OCCL_E_PROTOCOL;
    if (status) {
        (void)munmap(base, reply->page_bytes);
        return client_fail(status,
                           "the daemon's communicator page does not fit this library "
                           "(ABI %u)",
                           OCCL_ABI_VERSION);
    }
    comm->m.page_bytes = reply->page_bytes;
    client_tags_init(comm);
    return OCCL_OK;
}

static void comm_reset(struct client_comm *comm) {
    client_tags_free(comm);
    free(comm->members);
    comm->members = NULL;
    comm->untagged_next = 0;
    comm->splits = 0;
    comm->last_way = CLIENT_WAY_NONE;
    comm->neighbour = OCCL_RANK_NONE;
    comm->event_set = comm->ended = 0;
    comm->cma = 0;
    comm->copies = false;
    comm->suspended = 0;
    memset(comm->chunks, 0, sizeof comm->chunks);
    memset(comm->runs, 0, sizeof comm->runs);
    comm->chunk_next = 0;
    comm->owed = 0;
    comm->claim_owed = 0;
    comm->alone_row = 0;
    memset(comm->stream_users, 0, sizeof comm->stream_users);
    comm->clean_instance = 0;
}

static int tell_end(uint32_t number, enum occl_comm_end_how how) {
    struct occl_msg_comm_end msg;
    struct occl_msg_reply reply;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_END, 0);
    msg.comm = number;
    msg.how = how;
    int status = client_rpc_call(&msg, sizeof msg, -1, &reply, OCCL_MSG_REPLY, NULL);
    return status ? status : reply.detail.status;
}

/* A communicator whose page found no descriptor here is given up: the peers learn that this rank
 * has left it. */
static int ask_for_comm(const void *msg, uint32_t bytes, struct occl_msg_comm *reply,
                        int fds[OCCL_MESSAGE_FDS_MAX]) {
    fds[0] = -1;
    reply->ranks = 0;
    int status = client_rpc_call(msg, bytes, -1, reply, OCCL_MSG_COMM, fds);
    if (status && reply->ranks)
        (void)tell_end(reply->comm, OCCL_END_DESTROY); /* the first error is the one to report */
    return status;
}

static int comm_open(const struct occl_msg_comm *reply, int fd, const struct occl_comm_attr *attr,
                     struct occl_comm *out_comm) {
    pthread_mutex_lock(&occl_lib.control);
    struct client_comm *comm = NULL;
    int status = slot_take(&comm);
    if (status == OCCL_OK) {
        comm_reset(comm);
        comm->number = reply->comm;
        comm->rank = reply->rank;
        comm->ranks = reply->ranks;
        comm->uid = reply->comm_uid;
        comm->default_timeout_ns = attr && attr->default_timeout_ns > 0
                                       ? (uint64_t)attr->default_timeout_ns
                                       : occl_lib.welcome.default_timeout_ns;
        if (attr && attr->name)
            (void)snprintf(comm->name, sizeof comm->name, "%s", attr->name);
        else
            (void)snprintf(comm->name, sizeof comm->name, "comm-%llu",
                           (unsigned long long)reply->comm_uid);
        uint32_t cores = occl_peek32(&occl_lib.job->job_cores); /* all members have attached */
        occl_wait_policy_choose(reply->ranks, cores, occl_lib.ticks, &occl_lib.scale,
                                &comm->policy);
        (void)client_hints_parse(attr ? attr->hints : NULL, &comm->hints); /* checked before */
        if (comm->hints.sleeps)
            comm->policy.spin_steps = comm->policy.yields = 0;
        comm->elsewhere_ticks = comm->hints.sleeps ? 0
                                : reply->ranks <= 2 * cores
                                    ? occl_ticks_of_ns(&occl_lib.scale, ELSEWHERE_NS)
                                    : 0;
        status = open_page(comm, reply, fd);
    }
    if (status == OCCL_OK) {
        client_comm_adopt(comm);
        client_comm_hold(comm); /* counted: somebody with a stale handle may look in */
        occl_publish32(&comm->generation, comm->generation + 1);
    }
    pthread_mutex_unlock(&occl_lib.control);
    if (status) {
        (void)tell_end(reply->comm, OCCL_END_DESTROY); /* the first error is the one to report */
        return status;
    }
    status = fetch_members(comm);
    comm->cma = comm->ranks == 1; /* one process reaches all of its memory */
    if (status == OCCL_OK && comm->ranks > 1)
        status = client_probe_peers(
            comm, attr && attr->create_timeout_ns > 0 ? attr->create_timeout_ns : -1);
    struct occl_comm handle = handle_of(comm);
    client_comm_put(comm);
    if (status) {
        (void)client_comm_close(handle, OCCL_END_DESTROY, OCCL_E_CANCELED);
        return status;
    }
    *out_comm = handle;
    return OCCL_OK;
}

/* Ends this rank's ops that are still active; their requests stay for whoever waits for them. All
 * of them together wait only so long for members that are stopped inside a strand. */
static void end_ops(struct client_comm *comm, uint32_t generation, int status) {
    uint64_t give_up_ns = client_now_ns() + CLIENT_END_BOUND_NS;
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        struct client_op *op = comm->ops;
        while (op &&
               (occl_peek32(&op->phase) != CLIENT_OP_ACTIVE || op->comm_generation != generation))
            op = op->next_in_comm;
        pthread_mutex_unlock(&comm->lock);
        if (!op)
            return;
        client_op_end(comm, generation, op, status, give_up_ns);
    }
}

/* The caller has taken a reference, which ends here. */
static int close_referenced(struct client_comm *comm, uint32_t generation,
                            enum occl_comm_end_how how, int status_for_ops) {
    uint32_t expected = generation;
    /* The one that moves the generation on owns the end. */
    if (!occl_claim32(&comm->generation, &expected, generation + 1)) {
        client_comm_put(comm);
        return client_fail(OCCL_E_HANDLE, "communicator is stale: another thread destroyed it");
    }
    client_settle(comm);
    occl_publish32(&comm->ended, (uint32_t)-status_for_ops);
    int status = tell_end(comm->number, how);
    end_ops(comm, generation, status_for_ops);
    /* Threads inside come back within a slice: their records are aborted. Our own reference keeps
     * the slot from being taken for a new communicator before the page is unmapped. */
    for (uint32_t round = 0; client_comm_users(comm) > 1; round++)
        client_nap(round);
    end_ops(comm, generation, status_for_ops); /* what a thread inside has submitted meanwhile */
    (void)munmap(comm->m.base, comm->m.page_bytes);
    client_comm_put(comm);
    /* A lost daemon has ended the communicator already; the caller's handle is gone either way. */
    return occl_peek32(&occl_lib.lost) ? OCCL_OK : status;
}

int client_comm_close(struct occl_comm handle, enum occl_comm_end_how how, int status_for_ops) {
    int status;
    uint32_t generation = (uint32_t)(handle.handle >> 32);
    struct client_comm *comm = client_comm_get(handle, &status);
    bool lost = occl_peek32(&occl_lib.attached) && occl_peek32(&occl_lib.lost);
    if (!comm && lost) /* the handle still has to go */
        comm = client_comm_ref((uint32_t)handle.handle, generation);
    return comm ? close_referenced(comm, generation, how, status_for_ops) : status;
}

void client_comms_end(void) {
    for (uint32_t i = 0; i < occl_observe32(&occl_lib.comms_used); i++) {
        uint32_t generation = occl_observe32(&occl_lib.comms[i]->generation);
        if (client_comm_ref(i, generation))
            (void)close_referenced(occl_lib.comms[i], generation, OCCL_END_DESTROY,
                                   OCCL_E_CANCELED);
    }
}

void client_comms_stop(void) {
    client_comms_end();
    for (uint32_t i = 0; i < occl_lib.comms_used; i++) {
        /* Another thread may be at the end of the same communicator. */
        for (uint32_t round = 0; client_comm_users(occl_lib.comms[i]) > 0; round++)
            client_nap(round);
        comm_reset(occl_lib.comms[i]);
    }
}

void client_comms_in_child(void) {
    for (uint32_t i = 0; i < occl_lib.comms_used; i++) {
        struct client_comm *comm = occl_lib.comms[i];
        pthread_mutex_init(&comm->lock, NULL);
        comm->asking = comm->refs = comm->owner_refs = comm->at_door = 0;
        comm->owner = 0;
        comm->ops = NULL;
        comm->pool_ops = 0;
        /* Another thread may have been about to free or replace them: they stay where they are. */
        client_tags_in_child(comm);
        comm->members = NULL;
        comm->generation += comm->generation & 1;
    }
}

static int check_attr(const struct occl_comm_attr *attr) {
    if (!attr)
        return OCCL_OK;
    if (attr->size != sizeof *attr)
        return client_fail(OCCL_E_INVALID, "occl_comm_attr.size is %zu, expected %zu", attr->size,
                           sizeof *attr);
    if (attr->priority < OCCL_PRIORITY_DEFAULT || attr->priority > OCCL_PRIORITY_URGENT)
        return client_fail(OCCL_E_INVALID, "priority %d, expected -1..3", attr->priority);
    struct occl_detail detail;
    char name[OCCL_NAME_BYTES];
    struct client_hints hints;
    int status = client_hints_parse(attr->hints, &hints);
    if (status)
        return status;
    if (attr->name) {
        if (strlen(attr->name) >= sizeof name)
            return client_fail(OCCL_E_INVALID,
                               "communicator name of %zu bytes, expected at most %zu",
                               strlen(attr->name), sizeof name - 1);
        memset(name, 0, sizeof name);
        (void)snprintf(name, sizeof name, "%s", attr->name);
        if (occl_name_check(name, sizeof name, "communicator name", &detail))
            return client_fail(OCCL_E_INVALID, "%s", detail.text);
    }
    return OCCL_OK;
}

OCCL_PUBLIC enum occl_result occl_comm_create(const struct occl_unique_id *id, int rank, int size,
                                              const struct occl_comm_attr *attr,
                                              struct occl_comm *out_comm) {
    if (!id || !out_comm)
        return client_fail(OCCL_E_INVALID, "%s is NULL", id ? "out_comm" : "id");
    if (size < 1 || size > OCCL_LOCAL_RANKS_MAX)
        return client_fail(OCCL_E_INVALID, "size %d, expected 1..%d", size, OCCL_LOCAL_RANKS_MAX);
    if (rank < 0 || rank >= size)
        return client_fail(OCCL_E_INVALID, "rank %d, expected 0..%d", rank, size - 1);
    int status = check_attr(attr);
    if (status == OCCL_OK)
        status = client_begin(false);
    if (status)
        return status;
    struct occl_msg_comm_create msg;
    struct occl_msg_comm reply;
    int fds[OCCL_MESSAGE_FDS_MAX];
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_CREATE, 0);
    memcpy(msg.unique_id.bytes, id->bytes, sizeof msg.unique_id.bytes);
    msg.rank = (uint32_t)rank;
    msg.ranks = (uint32_t)size;
    msg.priority = attr && attr->priority >= 0 ? (uint32_t)attr->priority : 255;
    if (attr) {
        msg.timeout_ns = attr->create_timeout_ns > 0 ? (uint64_t)attr->create_timeout_ns : 0;
        msg.default_deadline_ns =
            attr->default_timeout_ns > 0 ? (uint64_t)attr->default_timeout_ns : 0;
        (void)snprintf(msg.name, sizeof msg.name, "%s", attr->name ? attr->name : "");
    }
    status = ask_for_comm(&msg, sizeof msg, &reply, fds);
    if (status == OCCL_OK)
        status = comm_open(&reply, fds[0], attr, out_comm);
    if (fds[0] >= 0)
        (void)close(fds[0]);
    client_end();
    return status;
}

OCCL_PUBLIC enum occl_result occl_comm_split(struct occl_comm parent, int color, int key,
                                             const struct occl_comm_attr *attr,
                                             struct occl_comm *out_comm) {
    if (!out_comm)
        return client_fail(OCCL_E_INVALID, "out_comm is NULL");
    int status = check_attr(attr);
    if (status)
        return status;
    status = client_begin(false);
    if (status)
        return status;
    struct client_comm *comm = client_comm_ask(parent, &status);
    if (!comm) {
        client_end();
        return status;
    }
    struct occl_msg_comm_split msg;
    struct occl_msg_comm reply;
    int fds[OCCL_MESSAGE_FDS_MAX];
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_SPLIT, 0);
    msg.comm = comm->number;
    msg.color = color;
    msg.key = key;
    msg.sequence = occl_add32(&comm->splits, 1);
    msg.priority = attr && attr->priority >= 0 ? (uint32_t)attr->priority : 255;
    if (attr) {
        msg.timeout_ns = attr->create_timeout_ns > 0 ? (uint64_t)attr->create_timeout_ns : 0;
        msg.default_deadline_ns =
            attr->default_timeout_ns > 0 ? (uint64_t)attr->default_timeout_ns : 0;
        (void)snprintf(msg.name, sizeof msg.name, "%s", attr->name ? attr->name : "");
    }
    client_comm_answered(comm);
    status = ask_for_comm(&msg, sizeof msg, &reply, fds);
    if (status == OCCL_OK && reply.ranks == 0)
        *out_comm = (struct occl_comm){0};
    else if (status == OCCL_OK)
        status = comm_open(&reply, fds[0], attr, out_comm);
    if (fds[0] >= 0)
        (void)close(fds[0]);
    client_end();
    return status;
}

OCCL_PUBLIC enum occl_result occl_comm_destroy(struct occl_comm comm) {
    return client_comm_close(comm, OCCL_END_DESTROY, OCCL_E_CANCELED);
}

OCCL_PUBLIC enum occl_result occl_comm_abort(struct occl_comm comm) {
    return client_comm_close(comm, OCCL_END_ABORT, OCCL_E_ABORTED);
}

OCCL_PUBLIC enum occl_result occl_comm_revoke(struct occl_comm handle) {
    int status;
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm)
        return status;
    status = tell_end(comm->number, OCCL_END_REVOKE);
    client_comm_answered(comm);
    return status;
}

OCCL_PUBLIC enum occl_result occl_comm_rank(struct occl_comm handle, int *out_rank) {
    if (!out_rank)
        return client_fail(OCCL_E_INVALID, "out_rank is NULL");
    int status;
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm)
        return status;
    *out_rank = (int)comm->rank;
    client_comm_answered(comm);
    return OCCL_SUCCESS;
}

OCCL_PUBLIC enum occl_result occl_comm_size(struct occl_comm handle, int *out_size) {
    if (!out_size)
        return client_fail(OCCL_E_INVALID, "out_size is NULL");
    int status;
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm)
        return status;
    *out_size = (int)comm->ranks;
    client_comm_answered(comm);
    return OCCL_SUCCESS;
}
