/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/call.h"

#include <stdio.h>

const struct call_traits call_traits[CALL_KINDS] = {
    /* name, reduces, rooted, vector, send_all, recv_all, source, sink */
    [CALL_ALL_REDUCE] = {"all_reduce", true, false, false, false, false, false, false},
    [CALL_BROADCAST] = {"broadcast", false, true, false, false, false, true, false},
    [CALL_REDUCE] = {"reduce", true, true, false, false, false, false, true},
    [CALL_ALL_GATHER] = {"all_gather", false, false, false, false, true, false, false},
    [CALL_REDUCE_SCATTER] = {"reduce_scatter", true, false, false, true, false, false, false},
    [CALL_ALL_TO_ALL] = {"all_to_all", false, false, false, true, true, false, false},
    [CALL_GATHER] = {"gather", false, true, false, false, true, false, true},
    [CALL_SCATTER] = {"scatter", false, true, false, true, false, true, false},
    [CALL_SCAN] = {"scan", true, false, false, false, false, false, false},
    [CALL_EXSCAN] = {"exscan", true, false, false, false, false, false, false},
    [CALL_ALL_GATHER_V] = {"all_gather_v", false, false, true, false, true, false, false},
    [CALL_REDUCE_SCATTER_V] = {"reduce_scatter_v", true, false, true, true, false, false, false},
    [CALL_ALL_TO_ALL_V] = {"all_to_all_v", false, false, true, true, true, false, false},
    [CALL_GATHER_V] = {"gather_v", false, true, true, false, true, false, true},
    [CALL_SCATTER_V] = {"scatter_v", false, true, true, true, false, true, false},
    [CALL_BARRIER] = {"barrier", false, false, false, false, false, false, false},
    [CALL_FAN_IN] = {"fan_in", false, true, false, false, false, false, true},
    [CALL_FAN_OUT] = {"fan_out", false, true, false, false, false, true, false},
};

#define CALL(name, ...)                                             \
    (c->init ? occl_##name##_init(__VA_ARGS__, comm, attr, request) \
             : occl_##name(__VA_ARGS__, comm, attr, request))

static enum occl_result submit_equal(const struct call *c, struct occl_comm comm,
                                     const struct occl_op_attr *attr,
                                     struct occl_request *request) {
    switch (c->kind) {
    case CALL_ALL_REDUCE:
        return CALL(all_reduce, c->send, c->recv, c->count, c->type, c->op);
    case CALL_BROADCAST:
        return CALL(broadcast, c->send, c->recv, c->count, c->type, c->root);
    case CALL_REDUCE:
        return CALL(reduce, c->send, c->recv, c->count, c->type, c->op, c->root);
    case CALL_ALL_GATHER:
        return CALL(all_gather, c->send, c->recv, c->count, c->type);
    case CALL_REDUCE_SCATTER:
        return CALL(reduce_scatter, c->send, c->recv, c->count, c->type, c->op);
    case CALL_ALL_TO_ALL:
        return CALL(all_to_all, c->send, c->recv, c->count, c->type);
    case CALL_GATHER:
        return CALL(gather, c->send, c->recv, c->count, c->type, c->root);
    case CALL_SCATTER:
        return CALL(scatter, c->send, c->recv, c->count, c->type, c->root);
    case CALL_SCAN:
        return CALL(scan, c->send, c->recv, c->count, c->type, c->op);
    case CALL_EXSCAN:
        return CALL(exscan, c->send, c->recv, c->count, c->type, c->op);
    case CALL_FAN_IN:
        return CALL(fan_in, c->root);
    case CALL_FAN_OUT:
        return CALL(fan_out, c->root);
    default:
        return c->init ? occl_barrier_init(comm, attr, request) : occl_barrier(comm, attr, request);
    }
}

enum occl_result call_submit(const struct call *c, int rank, int size, struct occl_comm comm,
                             const struct occl_op_attr *attr, struct occl_request *request) {
    size_t equal[WORLD_RANKS_MAX];
    const size_t *gives = c->send_counts ? c->send_counts : equal;
    const size_t *gets = c->recv_counts ? c->recv_counts : equal;
    for (int k = 0; k < size; k++)
        equal[k] = c->count;
    switch (c->kind) {
    case CALL_ALL_GATHER_V:
        return CALL(all_gather_v, c->send, c->count, c->recv, gets, c->recv_displs, c->type);
    case CALL_REDUCE_SCATTER_V:
        return CALL(reduce_scatter_v, c->send, c->recv, gets, c->type, c->op);
    case CALL_ALL_TO_ALL_V:
        return CALL(all_to_all_v, c->send, gives, c->send_displs, c->recv, gets, c->recv_displs,
                    c->type);
    case CALL_GATHER_V:
        return CALL(gather_v, c->send, c->count, c->recv, rank == c->root ? gets : NULL,
                    c->recv_displs, c->type, c->root);
    case CALL_SCATTER_V:
        return CALL(scatter_v, c->send, rank == c->root ? gives : NULL, c->send_displs, c->recv,
                    c->count, c->type, c->root);
    default:
        return submit_equal(c, comm, attr, request);
    }
}

size_t call_send_elements(const struct call *c, int rank, int size) {
    return call_sends(c, rank) ? c->count * (call_traits[c->kind].send_all ? (size_t)size : 1) : 0;
}

size_t call_recv_elements(const struct call *c, int rank, int size) {
    return call_receives(c, rank) ? c->count * (call_traits[c->kind].recv_all ? (size_t)size : 1)
                                  : 0;
}

int32_t call_input(uint64_t salt, int rank, int block, size_t i) {
    return (int32_t)world_pattern((uint64_t)rank * 131 + (uint64_t)block, i + salt * 7919) - 400;
}

void call_fill(const struct call *c, uint64_t salt, int rank, int size, void *send) {
    size_t elements = call_send_elements(c, rank, size);
    int32_t *words = send;
    uint8_t *bytes = send;
    for (size_t i = 0; i < elements; i++) {
        int32_t value = call_input(salt, rank, (int)(i / c->count), i % c->count);
        if (c->type == OCCL_UINT8)
            bytes[i] = (uint8_t)value;
        else
            words[i] = value;
    }
}

static int32_t sum_of(uint64_t salt, int first, int last, int block, size_t i) {
    int32_t sum = 0;
    for (int r = first; r <= last; r++)
        sum += call_input(salt, r, block, i);
    return sum;
}

/* Element i of block k of rank's output. */
static int32_t expected(const struct call *c, uint64_t salt, int rank, int size, int k, size_t i) {
    switch (c->kind) {
    case CALL_ALL_REDUCE:
    case CALL_REDUCE:
        return sum_of(salt, 0, size - 1, 0, i);
    case CALL_REDUCE_SCATTER:
    case CALL_REDUCE_SCATTER_V:
        return sum_of(salt, 0, size - 1, rank, i);
    case CALL_SCAN:
        return sum_of(salt, 0, rank, 0, i);
    case CALL_EXSCAN:
        return sum_of(salt, 0, rank - 1, 0, i);
    case CALL_BROADCAST:
        return call_input(salt, c->root, 0, i);
    case CALL_SCATTER:
    case CALL_SCATTER_V:
        return call_input(salt, c->root, rank, i);
    case CALL_ALL_TO_ALL:
    case CALL_ALL_TO_ALL_V:
        return call_input(salt, k, rank, i);
    default: /* all_gather, gather */
        return call_input(salt, k, 0, i);
    }
}

size_t call_wrong(const struct call *c, uint64_t salt, int rank, int size, const void *recv) {
    size_t elements = call_recv_elements(c, rank, size), wrong = 0;
    const int32_t *words = recv;
    const uint8_t *bytes = recv;
    bool small = c->type == OCCL_UINT8;
    for (size_t at = 0; at < elements; at++) {
        int k = (int)(at / c->count);
        int32_t want = expected(c, salt, rank, size, k, at % c->count);
        int32_t got = small ? bytes[at] : words[at];
        if (got == (small ? want & 0xff : want))
            continue;
        if (wrong++ == 0)
            fprintf(stderr,
                    "rank %d of %d: %s root %d count %zu: block %d element %zu is %d, expected "
                    "%d\n",
                    rank, size, call_traits[c->kind].name, c->root, c->count, k, at % c->count, got,
                    want);
    }
    return wrong;
}
