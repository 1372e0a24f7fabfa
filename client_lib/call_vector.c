/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays of a call with blocks of different sizes become a vector (shm_ipc/vector.h). */
#include <string.h>

#include "client_lib/call.h"

/* One side of a vector: counts, and places that are given or follow each other. */
static int fill_side(const struct client_call *call, uint32_t members, uint64_t limit,
                     const size_t *counts, const size_t *displs, bool is_send, uint64_t *out_counts,
                     uint64_t *out_at) {
    const char *side = is_send ? "send" : "recv";
    uint64_t next = 0;
    if (!counts)
        return client_fail(OCCL_E_INVALID, "%s: %scounts is NULL, expected %u counts", call->name,
                           side, members);
    int status = client_check_array(call, is_send ? "sendcounts" : "recvcounts", counts,
                                    members * sizeof *counts);
    if (status == OCCL_OK && displs)
        status = client_check_array(call, is_send ? "send displacements" : "receive displacements",
                                    displs, members * sizeof *displs);
    if (status)
        return status;
    for (uint32_t i = 0; i < members; i++) {
        uint64_t at = displs ? displs[i] : next;
        if (counts[i] >= limit || at >= limit)
            return client_fail(OCCL_E_INVALID,
                               "%s: %scounts[%u] is %zu at displacement %llu, expected both below "
                               "%llu elements",
                               call->name, side, i, counts[i], (unsigned long long)at,
                               (unsigned long long)limit);
        out_counts[i] = counts[i];
        out_at[i] = at;
        next = at + counts[i];
    }
    return OCCL_OK;
}

static bool blocks_overlap(const uint64_t *counts, const uint64_t *at, uint32_t i, uint32_t j) {
    return counts[i] && counts[j] && at[i] < at[j] + counts[j] && at[j] < at[i] + counts[i];
}

/* No element may be written twice. Blocks that go upwards, as they mostly do, need one look each.
 */
static int check_places(const struct client_call *call, uint32_t members, const uint64_t *counts,
                        const uint64_t *at) {
    uint64_t end = 0;
    bool upwards = true;
    for (uint32_t i = 0; i < members && upwards; i++) {
        upwards = counts[i] == 0 || at[i] >= end;
        end = counts[i] ? at[i] + counts[i] : end;
    }
    for (uint32_t i = 0; i < members && !upwards; i++)
        for (uint32_t j = 0; j < i; j++)
            if (blocks_overlap(counts, at, i, j))
                return client_fail(
                    OCCL_E_INVALID,
                    "%s: the blocks of rank %u (%llu elements at %llu) and rank %u (%llu at %llu) "
                    "overlap in recvbuf",
                    call->name, j, (unsigned long long)counts[j], (unsigned long long)at[j], i,
                    (unsigned long long)counts[i], (unsigned long long)at[i]);
    return OCCL_OK;
}

/* The same block for everybody in the mask of members. */
static void fill_block(uint64_t *out_counts, uint32_t members, uint64_t count, uint32_t only) {
    for (uint32_t i = 0; i < members; i++)
        if (only == OCCL_LOCAL_RANKS_MAX || i == only)
            out_counts[i] = count;
}

/* In place, what is sent is what is got. */
static int check_in_place(const struct client_call *call, const uint64_t *vector,
                          uint32_t members) {
    const uint64_t *gets = vector + OCCL_VECTOR_RECV_COUNT * members;
    if (call->send != call->recv || memcmp(vector, gets, 2 * members * sizeof *vector) == 0)
        return OCCL_OK;
    return client_fail(OCCL_E_INVALID,
                       "%s: sendbuf is recvbuf (in place), but counts or displacements of both "
                       "differ; expected equal ones",
                       call->name);
}

int client_call_vector(const struct client_call *call, const struct client_op *op,
                       uint64_t *out_vector) {
    uint32_t n = op->members, everybody = OCCL_LOCAL_RANKS_MAX, root = op->sig.root;
    uint64_t limit = (1ull << 50) / occl_dtype_bytes(op->sig.dtype);
    uint64_t *gives = out_vector + OCCL_VECTOR_SEND_COUNT * n;
    uint64_t *gives_at = out_vector + OCCL_VECTOR_SEND_AT * n;
    uint64_t *gets = out_vector + OCCL_VECTOR_RECV_COUNT * n;
    uint64_t *gets_at = out_vector + OCCL_VECTOR_RECV_AT * n;
    int status = OCCL_OK;
    memset(out_vector, 0, occl_vector_bytes(n));
    if (call->count >= limit)
        return client_fail(
            OCCL_E_INVALID, "%s: count %zu of %llu-byte elements overflows, expected below %llu",
            call->name, call->count, (unsigned long long)occl_dtype_bytes(op->sig.dtype),
            (unsigned long long)limit);
    switch (op->sig.kind) {
    case OCCL_OP_ALL_GATHER_V:
        fill_block(gives, n, call->count, everybody);
        status =
            fill_side(call, n, limit, call->recv_counts, call->recv_displs, false, gets, gets_at);
        break;
    case OCCL_OP_REDUCE_SCATTER_V:
        status = fill_side(call, n, limit, call->recv_counts, NULL, false, gives, gives_at);
        if (status == OCCL_OK)
            fill_block(gets, n, call->recv_counts[op->line_index], everybody);
        break;
    case OCCL_OP_GATHER_V:
        fill_block(gives, n, call->count, root);
        if (op->line_index == root)
            status = fill_side(call, n, limit, call->recv_counts, call->recv_displs, false, gets,
                               gets_at);
        break;
    case OCCL_OP_SCATTER_V:
        fill_block(gets, n, call->count, root);
        if (op->line_index == root)
            status = fill_side(call, n, limit, call->send_counts, call->send_displs, true, gives,
                               gives_at);
        break;
    default: /* all_to_all_v */
        status =
            fill_side(call, n, limit, call->send_counts, call->send_displs, true, gives, gives_at);
        if (status == OCCL_OK)
            status = fill_side(call, n, limit, call->recv_counts, call->recv_displs, false, gets,
                               gets_at);
        if (status == OCCL_OK)
            status = check_in_place(call, out_vector, n);
        break;
    }
    /* Where all members give one block, it is not one for each of them. */
    bool apart = op->sig.kind != OCCL_OP_REDUCE_SCATTER_V;
    return status == OCCL_OK && apart ? check_places(call, n, gets, gets_at) : status;
}
