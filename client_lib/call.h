/* SPDX-License-Identifier: Apache-2.0 */
/* A call of an operation, as its public function has got it. */
#ifndef CLIENT_LIB_CALL_H
#define CLIENT_LIB_CALL_H

#include "client_lib/client.h"

/* How a call wants its op. */
enum client_call_mode { CLIENT_CALL_RUN = 0, CLIENT_CALL_PERSISTENT = 1 };

struct client_call {
    const char *name; /* of the function, without occl_ */
    uint8_t kind;     /* enum occl_op_kind */
    enum client_call_mode mode;
    const void *send;
    void *recv;
    size_t count;
    int type;
    int redop;
    int root; /* send, recv: the peer */
    /* blocks of different sizes: arrays of a number for each rank, or NULL; the one block of a rank
     * that sends or gets only one is `count` */
    const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
    struct occl_comm comm;
    const struct occl_op_attr *attr;
    struct occl_request *out_request;
};

/* A small array of the caller's that is about to be read. FAULT with the error text. */
int client_check_array(const struct client_call *call, const char *what, const void *array,
                       uint64_t bytes);

/* call_vector.c: makes the vector of a call whose kind has one. */
int client_call_vector(const struct client_call *call, const struct client_op *op,
                       uint64_t *out_vector);

/* Checks the call, and runs, starts or keeps its op. */
enum occl_result client_call(const struct client_call *call);

#endif
