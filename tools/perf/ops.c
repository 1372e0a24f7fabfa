/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations. A further one is a row here, with its call; filling, checking and sizes
 * follow from the row. */
#include <ctype.h>
#include <string.h>

#include "tools/perf/perf.h"

static enum occl_result call_all_reduce(const struct occl_perf_call *c,
                                        struct occl_request *out_request) {
    return occl_all_reduce(c->send, c->recv, c->count, c->type, c->redop, c->comm, c->attr,
                           out_request);
}

static enum occl_result call_broadcast(const struct occl_perf_call *c,
                                       struct occl_request *out_request) {
    return occl_broadcast(c->send, c->recv, c->count, c->type, c->root, c->comm, c->attr,
                          out_request);
}

static enum occl_result call_reduce(const struct occl_perf_call *c,
                                    struct occl_request *out_request) {
    return occl_reduce(c->send, c->recv, c->count, c->type, c->redop, c->root, c->comm, c->attr,
                       out_request);
}

static enum occl_result call_all_gather(const struct occl_perf_call *c,
                                        struct occl_request *out_request) {
    return occl_all_gather(c->send, c->recv, c->count, c->type, c->comm, c->attr, out_request);
}

static enum occl_result call_reduce_scatter(const struct occl_perf_call *c,
                                            struct occl_request *out_request) {
    return occl_reduce_scatter(c->send, c->recv, c->count, c->type, c->redop, c->comm, c->attr,
                               out_request);
}

static enum occl_result call_all_to_all(const struct occl_perf_call *c,
                                        struct occl_request *out_request) {
    return occl_all_to_all(c->send, c->recv, c->count, c->type, c->comm, c->attr, out_request);
}

static enum occl_result call_gather(const struct occl_perf_call *c,
                                    struct occl_request *out_request) {
    return occl_gather(c->send, c->recv, c->count, c->type, c->root, c->comm, c->attr, out_request);
}

static enum occl_result call_scatter(const struct occl_perf_call *c,
                                     struct occl_request *out_request) {
    return occl_scatter(c->send, c->recv, c->count, c->type, c->root, c->comm, c->attr,
                        out_request);
}

static enum occl_result call_scan(const struct occl_perf_call *c,
                                  struct occl_request *out_request) {
    return occl_scan(c->send, c->recv, c->count, c->type, c->redop, c->comm, c->attr, out_request);
}

static enum occl_result call_exscan(const struct occl_perf_call *c,
                                    struct occl_request *out_request) {
    return occl_exscan(c->send, c->recv, c->count, c->type, c->redop, c->comm, c->attr,
                       out_request);
}

static enum occl_result call_barrier(const struct occl_perf_call *c,
                                     struct occl_request *out_request) {
    return occl_barrier(c->comm, c->attr, out_request);
}

static enum occl_result call_fan_in(const struct occl_perf_call *c,
                                    struct occl_request *out_request) {
    return occl_fan_in(c->root, c->comm, c->attr, out_request);
}

static enum occl_result call_fan_out(const struct occl_perf_call *c,
                                     struct occl_request *out_request) {
    return occl_fan_out(c->root, c->comm, c->attr, out_request);
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

/* ---- blocks of different sizes ---- */

/* As many ranks as a node has at most (occl.h). */
#define RANKS_MAX 64

size_t occl_perf_block_at(const struct occl_perf_call *call, int rank, int block) {
    uint64_t at = 0;
    if (!call->op->uneven)
        return (size_t)block * call->count;
    if (!call->op->rotated)
        return occl_perf_uneven_at(call->count, call->ranks, block);
    for (int k = 0; k < block; k++)
        at += occl_perf_uneven_count(call->count, call->ranks, (rank + k) % call->ranks);
    return at;
}

size_t occl_perf_elements(const struct occl_perf_call *call, enum occl_perf_extent extent) {
    if (extent == OCCL_PERF_NO_DATA)
        return 0;
    if (extent == OCCL_PERF_ALL_BLOCKS)
        return occl_perf_block_at(call, call->rank, call->ranks);
    return call->op->uneven ? occl_perf_uneven_count(call->count, call->ranks, call->rank)
                            : call->count;
}

struct uneven {
    size_t counts[RANKS_MAX], displs[RANKS_MAX];
    size_t own; /* of this rank's block */
};

/* False: there are too many ranks. The library copies both arrays in the call. */
static bool uneven_of(const struct occl_perf_call *c, struct uneven *out) {
    if (c->ranks > RANKS_MAX)
        return false;
    for (int k = 0; k < c->ranks; k++) {
        out->displs[k] = occl_perf_block_at(c, c->rank, k);
        out->counts[k] = occl_perf_block_at(c, c->rank, k + 1) - out->displs[k];
    }
    out->own = out->counts[c->rank];
    return true;
}

static enum occl_result call_all_gather_v(const struct occl_perf_call *c,
                                          struct occl_request *out_request) {
    struct uneven u;
    if (!uneven_of(c, &u))
        return OCCL_ERROR_INVALID_ARGUMENT;
    return occl_all_gather_v(c->send, u.own, c->recv, u.counts, u.displs, c->type, c->comm, c->attr,
                             out_request);
}

static enum occl_result call_reduce_scatter_v(const struct occl_perf_call *c,
                                              struct occl_request *out_request) {
    struct uneven u;
    if (!uneven_of(c, &u))
        return OCCL_ERROR_INVALID_ARGUMENT;
    return occl_reduce_scatter_v(c->send, c->recv, u.counts, c->type, c->redop, c->comm, c->attr,
                                 out_request);
}

static enum occl_result call_all_to_all_v(const struct occl_perf_call *c,
                                          struct occl_request *out_request) {
    struct uneven u;
    if (!uneven_of(c, &u))
        return OCCL_ERROR_INVALID_ARGUMENT;
    return occl_all_to_all_v(c->send, u.counts, u.displs, c->recv, u.counts, u.displs, c->type,
                             c->comm, c->attr, out_request);
}

static enum occl_result call_gather_v(const struct occl_perf_call *c,
                                      struct occl_request *out_request) {
    struct uneven u;
    if (!uneven_of(c, &u))
        return OCCL_ERROR_INVALID_ARGUMENT;
    return occl_gather_v(c->send, u.own, c->recv, u.counts, u.displs, c->type, c->root, c->comm,
                         c->attr, out_request);
}

static enum occl_result call_scatter_v(const struct occl_perf_call *c,
                                       struct occl_request *out_request) {
    struct uneven u;
    if (!uneven_of(c, &u))
        return OCCL_ERROR_INVALID_ARGUMENT;
    return occl_scatter_v(c->send, u.counts, u.displs, c->recv, u.own, c->type, c->root, c->comm,
                          c->attr, out_request);
}

#define ONE OCCL_PERF_ONE_BLOCK
#define ALL OCCL_PERF_ALL_BLOCKS

static const struct occl_perf_op ops[] = {
    {.name = "all_reduce",
     .summary = "every rank gets the reduction of all",
     .factor = OCCL_PERF_FACTOR_ALL_REDUCE,
     .send = ONE,
     .recv = ONE,
     .in_place = OCCL_PERF_SAME_BUFFER,
     .result = OCCL_PERF_GETS_REDUCTION,
     .has_redop = true,
     .call = call_all_reduce},
    {.name = "broadcast",
     .summary = "every rank gets the root's data",
     .send = ONE,
     .recv = ONE,
     .in_place = OCCL_PERF_SAME_BUFFER,
     .result = OCCL_PERF_GETS_ROOTS,
     .root_sends = true,
     .has_root = true,
     .call = call_broadcast},
    {.name = "reduce",
     .summary = "the root gets the reduction of all",
     .send = ONE,
     .recv = ONE,
     .in_place = OCCL_PERF_SAME_BUFFER,
     .result = OCCL_PERF_GETS_REDUCTION,
     .root_receives = true,
     .has_redop = true,
     .has_root = true,
     .call = call_reduce},
    {.name = "all_gather",
     .summary = "every rank gets the blocks of all",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ONE,
     .recv = ALL,
     .in_place = OCCL_PERF_SEND_IN_RECV,
     .result = OCCL_PERF_GETS_EACH,
     .call = call_all_gather},
    {.name = "reduce_scatter",
     .summary = "every rank gets its block of the reduction of all",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ALL,
     .recv = ONE,
     .in_place = OCCL_PERF_RECV_IN_SEND,
     .result = OCCL_PERF_GETS_REDUCTION,
     .own_part = true,
     .has_redop = true,
     .call = call_reduce_scatter},
    {.name = "all_to_all",
     .summary = "every rank gets its block from each",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ALL,
     .recv = ALL,
     .in_place = OCCL_PERF_NEVER_IN_PLACE,
     .result = OCCL_PERF_GETS_EACH,
     .own_part = true,
     .call = call_all_to_all},
    {.name = "gather",
     .summary = "the root gets the blocks of all",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ONE,
     .recv = ALL,
     .in_place = OCCL_PERF_SEND_IN_RECV,
     .result = OCCL_PERF_GETS_EACH,
     .root_receives = true,
     .has_root = true,
     .call = call_gather},
    {.name = "scatter",
     .summary = "every rank gets its block from the root",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ALL,
     .recv = ONE,
     .in_place = OCCL_PERF_RECV_IN_SEND,
     .result = OCCL_PERF_GETS_ROOTS,
     .root_sends = true,
     .own_part = true,
     .has_root = true,
     .call = call_scatter},
    {.name = "scan",
     .summary = "every rank gets the reduction of the ranks up to itself",
     .send = ONE,
     .recv = ONE,
     .in_place = OCCL_PERF_SAME_BUFFER,
     .result = OCCL_PERF_GETS_PREFIX,
     .has_redop = true,
     .call = call_scan},
    {.name = "exscan",
     .summary = "every rank gets the reduction of the ranks before itself",
     .send = ONE,
     .recv = ONE,
     .in_place = OCCL_PERF_SAME_BUFFER,
     .result = OCCL_PERF_GETS_EXCLUSIVE_PREFIX,
     .has_redop = true,
     .call = call_exscan},
    {.name = "all_gather_v",
     .summary = "every rank gets the blocks of all, of different sizes",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ONE,
     .recv = ALL,
     .in_place = OCCL_PERF_SEND_IN_RECV,
     .result = OCCL_PERF_GETS_EACH,
     .uneven = true,
     .call = call_all_gather_v},
    {.name = "reduce_scatter_v",
     .summary = "every rank gets its block of the reduction, of different sizes",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ALL,
     .recv = ONE,
     .in_place = OCCL_PERF_RECV_IN_SEND,
     .result = OCCL_PERF_GETS_REDUCTION,
     .own_part = true,
     .has_redop = true,
     .uneven = true,
     .call = call_reduce_scatter_v},
    {.name = "all_to_all_v",
     .summary = "every rank gets its block from each, of different sizes",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ALL,
     .recv = ALL,
     .in_place = OCCL_PERF_NEVER_IN_PLACE,
     .result = OCCL_PERF_GETS_EACH,
     .own_part = true,
     .uneven = true,
     .rotated = true,
     .call = call_all_to_all_v},
    {.name = "gather_v",
     .summary = "the root gets the blocks of all, of different sizes",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ONE,
     .recv = ALL,
     .in_place = OCCL_PERF_SEND_IN_RECV,
     .result = OCCL_PERF_GETS_EACH,
     .root_receives = true,
     .has_root = true,
     .uneven = true,
     .call = call_gather_v},
    {.name = "scatter_v",
     .summary = "every rank gets its block from the root, of different sizes",
     .factor = OCCL_PERF_FACTOR_PART,
     .send = ALL,
     .recv = ONE,
     .in_place = OCCL_PERF_RECV_IN_SEND,
     .result = OCCL_PERF_GETS_ROOTS,
     .root_sends = true,
     .own_part = true,
     .has_root = true,
     .uneven = true,
     .call = call_scatter_v},
    {.name = "barrier", .summary = "every rank waits for all", .call = call_barrier},
    {.name = "fan_in", .summary = "the root waits for all", .has_root = true, .call = call_fan_in},
    {.name = "fan_out",
     .summary = "every rank waits for the root",
     .has_root = true,
     .call = call_fan_out},
    {.name = "sendrecv",
     .summary = "every rank sends to the next one",
     .send = ONE,
     .recv = ONE,
     .in_place = OCCL_PERF_NEVER_IN_PLACE,
     .result = OCCL_PERF_GETS_PREVIOUS,
     .is_pair = true,
     .call = call_sendrecv},
};

/* Names of others that differ from ours by more than case and underscores. */
static const struct {
    const char *theirs, *ours;
} aliases[] = {{"bcast", "broadcast"}, {"reducescatterblock", "reducescatter"}};

const struct occl_perf_op *occl_perf_ops(int *out_count) {
    *out_count = (int)(sizeof ops / sizeof ops[0]);
    return ops;
}

/* Letters only, small; without "_perf" behind. Too long a name becomes one that nothing has. */
static void plain(const char *name, char *out_plain, size_t room) {
    size_t length = strlen(name);
    size_t at = 0;
    if (length > 5 && strcmp(name + length - 5, "_perf") == 0)
        length -= 5;
    for (size_t i = 0; i < length && at + 1 < room; i++)
        if (name[i] != '_' && name[i] != '-')
            out_plain[at++] = (char)tolower((unsigned char)name[i]);
    out_plain[at] = '\0';
}

const struct occl_perf_op *occl_perf_op_find(const char *name) {
    char wanted[64], has[64];
    plain(name, wanted, sizeof wanted);
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(aliases[i].theirs, wanted) == 0)
            plain(aliases[i].ours, wanted, sizeof wanted);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        plain(ops[i].name, has, sizeof has);
        if (strcmp(has, wanted) == 0)
            return &ops[i];
    }
    return NULL;
}
