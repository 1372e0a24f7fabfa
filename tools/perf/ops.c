/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations. A further one is a row here, with its call and its expectation. */
#include <string.h>

#include "tools/perf/perf.h"

static enum occl_result call_all_reduce(const struct occl_perf_call *c,
                                        struct occl_request *out_request) {
    return occl_all_reduce(c->send, c->recv, c->count, c->type, c->redop, c->comm, c->attr,
                           out_request);
}

static bool expect_all_reduce(const struct occl_perf_call *c, uint32_t seed, void *out_period) {
    occl_values_reduce(c->type, c->redop, c->ranks, seed, out_period);
    return true;
}

static enum occl_result call_broadcast(const struct occl_perf_call *c,
                                       struct occl_request *out_request) {
    return occl_broadcast(c->send, c->recv, c->count, c->type, c->root, c->comm, c->attr,
                          out_request);
}

static bool expect_broadcast(const struct occl_perf_call *c, uint32_t seed, void *out_period) {
    occl_values_input(c->type, c->root, seed, out_period);
    return true;
}

static enum occl_result call_barrier(const struct occl_perf_call *c,
                                     struct occl_request *out_request) {
    return occl_barrier(c->comm, c->attr, out_request);
}

static bool expect_nothing(const struct occl_perf_call *c, uint32_t seed, void *out_period) {
    (void)c;
    (void)seed;
    (void)out_period;
    return false;
}

/* A ring: each rank sends to the next and receives from the one before. */
static enum occl_result call_sendrecv(const struct occl_perf_call *c,
                                      struct occl_request *out_requests) {
    int to = (c->rank + 1) % c->ranks;
    int from = (c->rank + c->ranks - 1) % c->ranks;
    enum occl_result sent = occl_send(c->send, c->count, c->type, to, c->comm, c->attr,
                                      out_requests ? &out_requests[0] : NULL);
    if (sent < 0)
        return sent;
    return occl_recv(c->recv, c->count, c->type, from, c->comm, c->attr,
                     out_requests ? &out_requests[1] : NULL);
}

static bool expect_sendrecv(const struct occl_perf_call *c, uint32_t seed, void *out_period) {
    occl_values_input(c->type, (c->rank + c->ranks - 1) % c->ranks, seed, out_period);
    return true;
}

static const struct occl_perf_op ops[] = {
    {"all_reduce", "every rank gets the reduction of all", OCCL_PERF_FACTOR_ALL_REDUCE, true, true,
     false, true, false, call_all_reduce, expect_all_reduce},
    {"broadcast", "every rank gets the root's data", OCCL_PERF_FACTOR_ONE, true, false, true, true,
     false, call_broadcast, expect_broadcast},
    {"barrier", "every rank waits for all", OCCL_PERF_FACTOR_ONE, false, false, false, false, false,
     call_barrier, expect_nothing},
    {"sendrecv", "every rank sends to the next one", OCCL_PERF_FACTOR_ONE, true, false, false,
     false, true, call_sendrecv, expect_sendrecv},
};

const struct occl_perf_op *occl_perf_ops(int *out_count) {
    *out_count = (int)(sizeof ops / sizeof ops[0]);
    return ops;
}

const struct occl_perf_op *occl_perf_op_find(const char *name) {
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(ops[i].name, name) == 0)
            return &ops[i];
    return NULL;
}
