/* SPDX-License-Identifier: Apache-2.0 */
/* The public operations: each names its kind and passes on what it has got. */
#include "client_lib/call.h"

OCCL_PUBLIC enum occl_result occl_all_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                             enum occl_type type, enum occl_redop op,
                                             struct occl_comm comm, const struct occl_op_attr *attr,
                                             struct occl_request *out_request) {
    struct client_call call = {.name = "all_reduce",
                               .kind = OCCL_OP_ALL_REDUCE,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_reduce_init(const void *sendbuf, void *recvbuf, size_t count,
                                                  enum occl_type type, enum occl_redop op,
                                                  struct occl_comm comm,
                                                  const struct occl_op_attr *attr,
                                                  struct occl_request *out_request) {
    struct client_call call = {.name = "all_reduce_init",
                               .kind = OCCL_OP_ALL_REDUCE,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                            enum occl_type type, int root, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    struct client_call call = {.name = "broadcast",
                               .kind = OCCL_OP_BROADCAST,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_broadcast_init(const void *sendbuf, void *recvbuf, size_t count,
                                                 enum occl_type type, int root,
                                                 struct occl_comm comm,
                                                 const struct occl_op_attr *attr,
                                                 struct occl_request *out_request) {
    struct client_call call = {.name = "broadcast_init",
                               .kind = OCCL_OP_BROADCAST,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                         enum occl_type type, enum occl_redop op, int root,
                                         struct occl_comm comm, const struct occl_op_attr *attr,
                                         struct occl_request *out_request) {
    struct client_call call = {.name = "reduce",
                               .kind = OCCL_OP_REDUCE,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_reduce_init(const void *sendbuf, void *recvbuf, size_t count,
                                              enum occl_type type, enum occl_redop op, int root,
                                              struct occl_comm comm,
                                              const struct occl_op_attr *attr,
                                              struct occl_request *out_request) {
    struct client_call call = {.name = "reduce_init",
                               .kind = OCCL_OP_REDUCE,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_gather(const void *sendbuf, void *recvbuf, size_t count,
                                             enum occl_type type, struct occl_comm comm,
                                             const struct occl_op_attr *attr,
                                             struct occl_request *out_request) {
    struct client_call call = {.name = "all_gather",
                               .kind = OCCL_OP_ALL_GATHER,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_gather_init(const void *sendbuf, void *recvbuf, size_t count,
                                                  enum occl_type type, struct occl_comm comm,
                                                  const struct occl_op_attr *attr,
                                                  struct occl_request *out_request) {
    struct client_call call = {.name = "all_gather_init",
                               .kind = OCCL_OP_ALL_GATHER,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_reduce_scatter(const void *sendbuf, void *recvbuf, size_t count,
                                                 enum occl_type type, enum occl_redop op,
                                                 struct occl_comm comm,
                                                 const struct occl_op_attr *attr,
                                                 struct occl_request *out_request) {
    struct client_call call = {.name = "reduce_scatter",
                               .kind = OCCL_OP_REDUCE_SCATTER,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_reduce_scatter_init(const void *sendbuf, void *recvbuf,
                                                      size_t count, enum occl_type type,
                                                      enum occl_redop op, struct occl_comm comm,
                                                      const struct occl_op_attr *attr,
                                                      struct occl_request *out_request) {
    struct client_call call = {.name = "reduce_scatter_init",
                               .kind = OCCL_OP_REDUCE_SCATTER,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_to_all(const void *sendbuf, void *recvbuf, size_t count,
                                             enum occl_type type, struct occl_comm comm,
                                             const struct occl_op_attr *attr,
                                             struct occl_request *out_request) {
    struct client_call call = {.name = "all_to_all",
                               .kind = OCCL_OP_ALL_TO_ALL,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_all_to_all_init(const void *sendbuf, void *recvbuf, size_t count,
                                                  enum occl_type type, struct occl_comm comm,
                                                  const struct occl_op_attr *attr,
                                                  struct occl_request *out_request) {
    struct client_call call = {.name = "all_to_all_init",
                               .kind = OCCL_OP_ALL_TO_ALL,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_gather(const void *sendbuf, void *recvbuf, size_t count,
                                         enum occl_type type, int root, struct occl_comm comm,
                                         const struct occl_op_attr *attr,
                                         struct occl_request *out_request) {
    struct client_call call = {.name = "gather",
                               .kind = OCCL_OP_GATHER,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_gather_init(const void *sendbuf, void *recvbuf, size_t count,
                                              enum occl_type type, int root, struct occl_comm comm,
                                              const struct occl_op_attr *attr,
                                              struct occl_request *out_request) {
    struct client_call call = {.name = "gather_init",
                               .kind = OCCL_OP_GATHER,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_scatter(const void *sendbuf, void *recvbuf, size_t count,
                                          enum occl_type type, int root, struct occl_comm comm,
                                          const struct occl_op_attr *attr,
                                          struct occl_request *out_request) {
    struct client_call call = {.name = "scatter",
                               .kind = OCCL_OP_SCATTER,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_scatter_init(const void *sendbuf, void *recvbuf, size_t count,
                                               enum occl_type type, int root, struct occl_comm comm,
                                               const struct occl_op_attr *attr,
                                               struct occl_request *out_request) {
    struct client_call call = {.name = "scatter_init",
                               .kind = OCCL_OP_SCATTER,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_scan(const void *sendbuf, void *recvbuf, size_t count,
                                       enum occl_type type, enum occl_redop op,
                                       struct occl_comm comm, const struct occl_op_attr *attr,
                                       struct occl_request *out_request) {
    struct client_call call = {.name = "scan",
                               .kind = OCCL_OP_SCAN,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_scan_init(const void *sendbuf, void *recvbuf, size_t count,
                                            enum occl_type type, enum occl_redop op,
                                            struct occl_comm comm, const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    struct client_call call = {.name = "scan_init",
                               .kind = OCCL_OP_SCAN,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_exscan(const void *sendbuf, void *recvbuf, size_t count,
                                         enum occl_type type, enum occl_redop op,
                                         struct occl_comm comm, const struct occl_op_attr *attr,
                                         struct occl_request *out_request) {
    struct client_call call = {.name = "exscan",
                               .kind = OCCL_OP_EXSCAN,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_exscan_init(const void *sendbuf, void *recvbuf, size_t count,
                                              enum occl_type type, enum occl_redop op,
                                              struct occl_comm comm,
                                              const struct occl_op_attr *attr,
                                              struct occl_request *out_request) {
    struct client_call call = {.name = "exscan_init",
                               .kind = OCCL_OP_EXSCAN,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .redop = (int)op,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_barrier(struct occl_comm comm, const struct occl_op_attr *attr,
                                          struct occl_request *out_request) {
    struct client_call call = {.name = "barrier",
                               .kind = OCCL_OP_BARRIER,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_barrier_init(struct occl_comm comm,
                                               const struct occl_op_attr *attr,
                                               struct occl_request *out_request) {
    struct client_call call = {.name = "barrier_init",
                               .kind = OCCL_OP_BARRIER,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_fan_in(int root, struct occl_comm comm,
                                         const struct occl_op_attr *attr,
                                         struct occl_request *out_request) {
    struct client_call call = {.name = "fan_in",
                               .kind = OCCL_OP_FAN_IN,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_fan_in_init(int root, struct occl_comm comm,
                                              const struct occl_op_attr *attr,
                                              struct occl_request *out_request) {
    struct client_call call = {.name = "fan_in_init",
                               .kind = OCCL_OP_FAN_IN,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_fan_out(int root, struct occl_comm comm,
                                          const struct occl_op_attr *attr,
                                          struct occl_request *out_request) {
    struct client_call call = {.name = "fan_out",
                               .kind = OCCL_OP_FAN_OUT,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_fan_out_init(int root, struct occl_comm comm,
                                               const struct occl_op_attr *attr,
                                               struct occl_request *out_request) {
    struct client_call call = {.name = "fan_out_init",
                               .kind = OCCL_OP_FAN_OUT,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .root = root,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_send(const void *sendbuf, size_t count, enum occl_type type,
                                       int peer, struct occl_comm comm,
                                       const struct occl_op_attr *attr,
                                       struct occl_request *out_request) {
    struct client_call call = {.name = "send",
                               .kind = OCCL_OP_SEND,
                               .send = sendbuf,
                               .count = count,
                               .type = (int)type,
                               .root = peer,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_send_init(const void *sendbuf, size_t count, enum occl_type type,
                                            int peer, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    struct client_call call = {.name = "send_init",
                               .kind = OCCL_OP_SEND,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .send = sendbuf,
                               .count = count,
                               .type = (int)type,
                               .root = peer,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_recv(void *recvbuf, size_t count, enum occl_type type, int peer,
                                       struct occl_comm comm, const struct occl_op_attr *attr,
                                       struct occl_request *out_request) {
    struct client_call call = {.name = "recv",
                               .kind = OCCL_OP_RECV,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = peer,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}

OCCL_PUBLIC enum occl_result occl_recv_init(void *recvbuf, size_t count, enum occl_type type,
                                            int peer, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    struct client_call call = {.name = "recv_init",
                               .kind = OCCL_OP_RECV,
                               .mode = CLIENT_CALL_PERSISTENT,
                               .recv = recvbuf,
                               .count = count,
                               .type = (int)type,
                               .root = peer,
                               .comm = comm,
                               .attr = attr,
                               .out_request = out_request};
    return client_call(&call);
}
