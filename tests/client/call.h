/* SPDX-License-Identifier: Apache-2.0 */
/* Any operation of the library as a value, so that a test can go through all of them: what a kind
 * is like, a call of it with one int32 pattern or with buffers of the test's own, and what has to
 * come out. */
#ifndef TESTS_CLIENT_CALL_H
#define TESTS_CLIENT_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/client/world.h"

enum call_kind {
    CALL_ALL_REDUCE,
    CALL_BROADCAST,
    CALL_REDUCE,
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_ALL_TO_ALL,
    CALL_GATHER,
    CALL_SCATTER,
    CALL_SCAN,
    CALL_EXSCAN,
    CALL_ALL_GATHER_V,
    CALL_REDUCE_SCATTER_V,
    CALL_ALL_TO_ALL_V,
    CALL_GATHER_V,
    CALL_SCATTER_V,
    CALL_MOVERS, /* those before it have buffers */
    CALL_BARRIER = CALL_MOVERS,
    CALL_FAN_IN,
    CALL_FAN_OUT,
    CALL_KINDS
};

struct call_traits {
    const char *name;
    bool reduces, rooted, vector;
    bool send_all, recv_all; /* a block for each rank */
    bool source;             /* only the root sends; small ones end there alone */
    bool sink;               /* only the root receives; small ones end elsewhere alone */
};
extern const struct call_traits call_traits[CALL_KINDS];

struct call {
    enum call_kind kind;
    bool init; /* the persistent form: out_request has to be started */
    enum occl_type type;
    enum occl_redop op;
    int root;
    size_t count; /* elements of a block */
    /* ..._v only; NULL: count for each rank. Displacements NULL: blocks follow each other. */
    const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
    const void *send;
    void *recv;
};

static inline bool call_sends(const struct call *c, int rank) {
    return c->kind < CALL_MOVERS && (!call_traits[c->kind].source || rank == c->root);
}
static inline bool call_receives(const struct call *c, int rank) {
    return c->kind < CALL_MOVERS && (!call_traits[c->kind].sink || rank == c->root) &&
           (c->kind != CALL_EXSCAN || rank > 0);
}
/* A small op ends at this rank whatever the others do. */
static inline bool call_ends_alone(const struct call *c, int rank) {
    const struct call_traits *t = &call_traits[c->kind];
    return (t->source && rank == c->root) || (t->sink && rank != c->root);
}

enum occl_result call_submit(const struct call *c, int rank, int size, struct occl_comm comm,
                             const struct occl_op_attr *attr, struct occl_request *out_request);

/* ---- one pattern: int32, or its lowest byte as uint8; sum, blocks of equal size ---- */

/* Elements of rank's buffers. */
size_t call_send_elements(const struct call *c, int rank, int size);
size_t call_recv_elements(const struct call *c, int rank, int size);
int32_t call_input(uint64_t salt, int rank, int block, size_t i);
/* Fills the send buffer of rank (nothing, where it does not send). */
void call_fill(const struct call *c, uint64_t salt, int rank, int size, void *send);
/* How many elements of rank's output are wrong; prints the first one. */
size_t call_wrong(const struct call *c, uint64_t salt, int rank, int size, const void *recv);

#endif
