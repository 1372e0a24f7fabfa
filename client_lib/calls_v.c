/* SPDX-License-Identifier: Apache-2.0 */
/* The public operations with blocks of different sizes. */
#include "client_lib/call.h"

OCCL_PUBLIC enum occl_result occl_all_gather_v(const void *sendbuf, size_t sendcount, void *recvbuf,
                                               const size_t *recvcounts, const size_t *displs,
                                               enum occl_type type, struct occl_comm comm,
                                               const struct occl_op_attr *attr,
                                               struct occl_request *out_request) {
    struct client_call call = {.name = "all_gather_v",
                               .kind = OCCL_OP_ALL_GATHER_V,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = sendcount,
                               .recv_counts = recvcounts,
                               .recv_displs = displs,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_gather_v_init(const void *sendbuf, size_t sendcount,
                                                    void *recvbuf, const size_t *recvcounts,
                                                    const size_t *displs, enum occl_type type,
                                                    struct occl_comm comm,
                                                    const struct occl_op_attr *attr,
                                                    struct occl_request *out_request) {
    struct client_call call = {.name = "all_gather_v_init",
                               .kind = OCCL_OP_ALL_GATHER_V,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = sendcount,
                               .recv_counts = recvcounts,
                               .recv_displs = displs,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_reduce_scatter_v(const void *sendbuf, void *recvbuf,
                                                   const size_t *recvcounts, enum occl_type type,
                                                   enum occl_redop op, struct occl_comm comm,
                                                   const struct occl_op_attr *attr,
                                                   struct occl_request *out_request) {
    struct client_call call = {.name = "reduce_scatter_v",
                               .kind = OCCL_OP_REDUCE_SCATTER_V,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .recv_counts = recvcounts,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result
occl_reduce_scatter_v_init(const void *sendbuf, void *recvbuf, const size_t *recvcounts,
                           enum occl_type type, enum occl_redop op, struct occl_comm comm,
                           const struct occl_op_attr *attr, struct occl_request *out_request) {
    struct client_call call = {.name = "reduce_scatter_v_init",
                               .kind = OCCL_OP_REDUCE_SCATTER_V,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .recv_counts = recvcounts,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_to_all_v(const void *sendbuf, const size_t *sendcounts,
                                               const size_t *sdispls, void *recvbuf,
                                               const size_t *recvcounts, const size_t *rdispls,
                                               enum occl_type type, struct occl_comm comm,
                                               const struct occl_op_attr *attr,
                                               struct occl_request *out_request) {
    struct client_call call = {.name = "all_to_all_v",
                               .kind = OCCL_OP_ALL_TO_ALL_V,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .send_counts = sendcounts,
                               .send_displs = sdispls,
                               .recv_counts = recvcounts,
                               .recv_displs = rdispls,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_to_all_v_init(const void *sendbuf, const size_t *sendcounts,
                                                    const size_t *sdispls, void *recvbuf,
                                                    const size_t *recvcounts, const size_t *rdispls,
                                                    enum occl_type type, struct occl_comm comm,
                                                    const struct occl_op_attr *attr,
                                                    struct occl_request *out_request) {
    struct client_call call = {.name = "all_to_all_v_init",
                               .kind = OCCL_OP_ALL_TO_ALL_V,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .send_counts = sendcounts,
                               .send_displs = sdispls,
                               .recv_counts = recvcounts,
                               .recv_displs = rdispls,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_gather_v(const void *sendbuf, size_t sendcount, void *recvbuf,
                                           const size_t *recvcounts, const size_t *displs,
                                           enum occl_type type, int root, struct occl_comm comm,
                                           const struct occl_op_attr *attr,
                                           struct occl_request *out_request) {
    struct client_call call = {.name = "gather_v",
                               .kind = OCCL_OP_GATHER_V,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = sendcount,
                               .recv_counts = recvcounts,
                               .recv_displs = displs,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result
occl_gather_v_init(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                   const size_t *displs, enum occl_type type, int root, struct occl_comm comm,
                   const struct occl_op_attr *attr, struct occl_request *out_request) {
    struct client_call call = {.name = "gather_v_init",
                               .kind = OCCL_OP_GATHER_V,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = sendcount,
                               .recv_counts = recvcounts,
                               .recv_displs = displs,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_scatter_v(const void *sendbuf, const size_t *sendcounts,
                                            const size_t *displs, void *recvbuf, size_t recvcount,
                                            enum occl_type type, int root, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    struct client_call call = {.name = "scatter_v",
                               .kind = OCCL_OP_SCATTER_V,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = recvcount,
                               .send_counts = sendcounts,
                               .send_displs = displs,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_scatter_v_init(const void *sendbuf, const size_t *sendcounts,
                                                 const size_t *displs, void *recvbuf,
                                                 size_t recvcount, enum occl_type type, int root,
                                                 struct occl_comm comm,
                                                 const struct occl_op_attr *attr,
                                                 struct occl_request *out_request) {
    struct client_call call = {.name = "scatter_v_init",
                               .kind = OCCL_OP_SCATTER_V,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = recvcount,
                               .send_counts = sendcounts,
                               .send_displs = displs,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}
