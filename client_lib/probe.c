/* SPDX-License-Identifier: Apache-2.0 */
/* Does cross-memory attach work between all pairs of a communicator, and has each rank mapped the
 * rooms for copies of all others (copies.c)? Decided together, when it is created. Every rank
 * publishes the address of a word of its own, reads every other's, and the answers are combined
 * with tiny all-reduces. Attach is refused by other users, seccomp filters and separate pid
 * namespaces; then private buffers are copied through shared memory instead, and nobody needs a
 * room. */
#include <errno.h>
#include <string.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"
#include "client_lib/waiting.h"
#include "shm_ipc/fdpass.h"

/* What the rank's word has to be: unknown to everybody else before. */
static uint64_t word_of(const struct client_comm *comm, uint32_t rank) {
    return occl_records_header(&comm->m)->probe_nonce ^ rank;
}

/* 0: it is there. EFAULT: not, so the process is another program, or the rank has left the
 * communicator (its memory serves another one). Else why it cannot be read. */
static int read_word(const struct client_comm *comm, uint32_t rank) {
    const struct occl_member *who = &comm->members[rank];
    uint64_t found = 0;
    if (client_same_process(who))
        return 0;
    uint64_t address = occl_observe64(&occl_note_at(&comm->m, rank)->probe_address);
    ssize_t n = client_reach((pid_t)who->own_pid, &found, address, sizeof found, false);
    return n < 0 ? errno : n == (ssize_t)sizeof found && found == word_of(comm, rank) ? 0 : EFAULT;
}

bool client_rank_vanished(const struct client_comm *comm, uint32_t rank) {
    int error = comm->cma ? read_word(comm, rank) : 0;
    return error == ESRCH || error == EFAULT;
}

/* min over all ranks of a small number; the library's own op. */
static int agree(struct client_comm *comm, int64_t timeout_ns, int32_t mine, int32_t *out_least) {
    struct client_op op = {
        .comm = comm,
        .comm_generation = comm->generation,
        .sig = {.kind = OCCL_OP_ALL_REDUCE,
                .dtype = OCCL_DT_INT32,
                .redop = OCCL_RO_MIN,
                .count = 1},
        .peers = OCCL_PEERS_ALL,
        .tag = CLIENT_LIBRARY_TAG,
        .timeout_ns = timeout_ns,
        .line_index = comm->rank,
        .members = comm->ranks,
        .traits = occl_kind_traits(OCCL_OP_ALL_REDUCE),
        .send = &mine,
        .recv = out_least,
        .block_bytes = sizeof mine,
        .send_bytes = sizeof mine,
        .recv_bytes = sizeof mine,
        .payload_bytes = sizeof mine,
        .blocking = true,
        .on_stack = true,
    };
    int status = client_submit(&op);
    if (status)
        return status;
    (void)client_wait_complete(&op, 0); /* without a limit it ends complete */
    return op.status;
}

static int probe_attach(struct client_comm *comm, int64_t timeout_ns) {
    int32_t all = 0, ok = !comm->hints.no_cross_memory;
    occl_note64(&comm->probe_word, word_of(comm, comm->rank));
    occl_publish64(&occl_note_at(&comm->m, comm->rank)->probe_address,
                   (uintptr_t)&comm->probe_word);
    int status = agree(comm, timeout_ns, 1, &all); /* everybody's address is there */
    for (uint32_t rank = 0; status == OCCL_OK && rank < comm->ranks; rank++)
        ok &= read_word(comm, rank) == 0;
    if (status == OCCL_OK)
        status = agree(comm, timeout_ns, ok, &all);
    if (status == OCCL_OK)
        comm->cma = all == 1;
    return status;
}

/* One answer about rooms: maps what came along, all of it, for it is not sent again, and what did
 * not. False: one is missing. */
static bool map_rooms(const struct client_comm *comm, const struct occl_msg_rooms_reply *reply,
                      int fds[OCCL_MESSAGE_FDS_MAX]) {
    bool all = reply->members > 0 && reply->members <= OCCL_ROOMS_PER_MESSAGE;
    for (uint32_t i = 0, came = 0; all && i < reply->members; i++)
        if (reply->member[i].region && reply->member[i].sent)
            client_region_adopt(reply->member[i].region, fds[came++], reply->bytes);
    for (uint32_t i = 0; all && i < reply->members; i++) {
        uint32_t number = reply->member[i].region;
        int status;
        struct client_region *room = number ? client_region_map(number, &status) : NULL;
        all = room && (reply->first + i != comm->rank || client_copies_open(room));
        client_regions_unuse(&room, 1);
    }
    occl_fd_close_all(fds);
    return all;
}

static bool get_rooms(const struct client_comm *comm) {
    struct occl_msg_rooms_reply reply = {.first = 0, .members = 0};
    bool all = true;
    for (uint32_t first = 0; all && first < comm->ranks; first += reply.members) {
        struct occl_msg_rooms msg;
        int fds[OCCL_MESSAGE_FDS_MAX];
        memset(&msg, 0, sizeof msg);
        occl_msg_init(&msg.h, OCCL_MSG_ROOMS, 0);
        msg.comm = comm->number;
        msg.first = first;
        all = client_rpc_call(&msg, sizeof msg, -1, &reply, OCCL_MSG_ROOMS_REPLY, fds) == OCCL_OK &&
              reply.first == first && map_rooms(comm, &reply, fds);
    }
    return all;
}

static int probe_rooms(struct client_comm *comm, int64_t timeout_ns) {
    int32_t all = 0, mine;
    bool kept = client_error_keep(true); /* without copies the communicator is none the worse */
    mine = get_rooms(comm);
    client_error_keep(kept);
    int status = agree(comm, timeout_ns, mine, &all);
    if (status == OCCL_OK)
        comm->copies = all == 1;
    return status;
}

static bool has_several_processes(const struct client_comm *comm) {
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
        if (!client_same_process(&comm->members[rank]))
            return true;
    return false;
}

int client_probe_peers(struct client_comm *comm, int64_t timeout_ns) {
    int status = probe_attach(comm, timeout_ns);
    if (status == OCCL_OK && comm->cma && occl_lib.welcome.copy_max_bytes > 0 &&
        has_several_processes(comm))
        status = probe_rooms(comm, timeout_ns);
    return status;
}
