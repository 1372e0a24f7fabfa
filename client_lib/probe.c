/* SPDX-License-Identifier: Apache-2.0 */
/* Does cross-memory attach work between all pairs of a communicator? Decided once, together, when
 * it is created: every rank publishes the address of a word of its own, reads every other's, and
 * the answers are combined with two tiny all-reduces. It is refused by other users, seccomp filters
 * and separate pid namespaces; then private buffers are copied through shared memory instead. */
#include "client_lib/client.h"
#include "client_lib/memory.h"
#include "client_lib/waiting.h"

static bool can_read(const struct client_comm *comm, uint32_t rank, uint64_t nonce) {
    const struct occl_member *who = &comm->members[rank];
    uint64_t found = 0;
    if (client_same_process(who))
        return true;
    uint64_t address = occl_observe64(&occl_note_at(&comm->m, rank)->probe_address);
    ssize_t n = client_reach((pid_t)who->own_pid, &found, address, sizeof found, false);
    return n == (ssize_t)sizeof found && found == (nonce ^ rank);
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

int client_probe_peers(struct client_comm *comm, int64_t timeout_ns) {
    uint64_t nonce = occl_records_header(&comm->m)->probe_nonce;
    uint64_t word = nonce ^ comm->rank;
    int32_t all = 0, ok = !comm->hints.no_cross_memory;
    occl_publish64(&occl_note_at(&comm->m, comm->rank)->probe_address, (uintptr_t)&word);
    int status = agree(comm, timeout_ns, 1, &all); /* everybody's address is there */
    for (uint32_t rank = 0; status == OCCL_OK && rank < comm->ranks; rank++)
        ok &= can_read(comm, rank, nonce);
    if (status == OCCL_OK)
        status = agree(comm, timeout_ns, ok, &all); /* nobody reads this stack frame any more */
    if (status == OCCL_OK)
        comm->cma = all == 1;
    return status;
}
