/* SPDX-License-Identifier: Apache-2.0 */
/* A library of one rank in one process, for tests of what occl-perf prints: it computes at once,
 * and wrongly when FAKE_WRONG is set. FAKE_ERROR makes every all-reduce of more than one element
 * fail, FAKE_REFUSED those of that class. */
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"
#include "tools/perf/small_floats.h"

enum occl_result occl_init_env(struct occl_comm *out_comm) {
    out_comm->handle = 1;
    return OCCL_SUCCESS;
}
enum occl_result occl_finalize(void) {
    return OCCL_SUCCESS;
}
const char *occl_result_string(enum occl_result result) {
    return result == OCCL_SUCCESS ? "success" : "a fake error";
}
const char *occl_last_error(void) {
    return "the fake said so";
}
enum occl_result occl_comm_destroy(struct occl_comm comm) {
    (void)comm;
    return OCCL_SUCCESS;
}
enum occl_result occl_comm_rank(struct occl_comm comm, int *out_rank) {
    (void)comm;
    *out_rank = 0;
    return OCCL_SUCCESS;
}
enum occl_result occl_comm_size(struct occl_comm comm, int *out_size) {
    (void)comm;
    *out_size = 1;
    return OCCL_SUCCESS;
}
enum occl_result occl_comm_split(struct occl_comm comm, int color, int key,
                                 const struct occl_comm_attr *attr, struct occl_comm *out_comm) {
    (void)color;
    (void)key;
    (void)attr;
    out_comm->handle = comm.handle + 1;
    return OCCL_SUCCESS;
}
enum occl_result occl_mem_alloc(size_t bytes, void **out_ptr) {
    *out_ptr = calloc(1, bytes);
    return *out_ptr ? OCCL_SUCCESS : OCCL_ERROR_NO_MEMORY;
}
enum occl_result occl_mem_free(void *ptr) {
    free(ptr);
    return OCCL_SUCCESS;
}

static enum occl_result move(const void *from, void *to, size_t count, enum occl_type type,
                             struct occl_request *out_request) {
    size_t bytes = count * occl_values_bytes(type);
    if (bytes && from != to)
        memcpy(to, from, bytes);
    /* Not the exchanges of one element by which ranks add up what they found. */
    if (bytes > 8 && getenv("FAKE_WRONG"))
        ((char *)to)[bytes / 2] ^= 1;
    if (out_request)
        out_request->handle = 1;
    return OCCL_SUCCESS;
}

static const struct occl_small_float *small_float(enum occl_type type) {
    return type == OCCL_FLOAT16      ? &occl_float16
           : type == OCCL_BFLOAT16   ? &occl_bfloat16
           : type == OCCL_FLOAT8E4M3 ? &occl_float8e4m3
           : type == OCCL_FLOAT8E5M2 ? &occl_float8e5m2
                                     : NULL;
}

/* The operators that change even a single rank's element. */
static void alone(void *buffer, size_t i, enum occl_type type, enum occl_redop op,
                  const struct occl_op_attr *attr) {
    size_t width = occl_values_bytes(type);
    const struct occl_small_float *small = small_float(type);
    uint64_t bits = 0;
    memcpy(&bits, (char *)buffer + i * width, width);
    if (op != OCCL_PREMULSUM)
        bits = bits != 0;
    else if (type == OCCL_FLOAT32)
        ((float *)buffer)[i] *= *(const float *)attr->factor;
    else if (type == OCCL_FLOAT64)
        ((double *)buffer)[i] *= *(const double *)attr->factor;
    else if (small)
        bits = occl_small_float_from(small, occl_small_float_to(small, (uint32_t)bits) *
                                                *(const float *)attr->factor);
    else
        bits *= *(const uint64_t *)attr->factor;
    if (op != OCCL_PREMULSUM || (type != OCCL_FLOAT32 && type != OCCL_FLOAT64))
        memcpy((char *)buffer + i * width, &bits, width);
}

enum occl_result occl_all_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                 enum occl_type type, enum occl_redop op, struct occl_comm comm,
                                 const struct occl_op_attr *attr,
                                 struct occl_request *out_request) {
    (void)comm;
    const char *refused = getenv("FAKE_REFUSED");
    if (count > 1 && getenv("FAKE_ERROR"))
        return OCCL_ERROR_PEER_FAILED;
    if (refused && attr && attr->priority == atoi(refused))
        return OCCL_ERROR_PEER_FAILED;
    enum occl_result result = move(sendbuf, recvbuf, count, type, out_request);
    if (op == OCCL_PREMULSUM || (op >= OCCL_LAND && op <= OCCL_LXOR))
        for (size_t i = 0; i < count; i++)
            alone(recvbuf, i, type, op, attr);
    return result;
}
/* With a single rank all of these are copies; one that reduces is an all-reduce. */
enum occl_result occl_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                enum occl_type type, int root, struct occl_comm comm,
                                const struct occl_op_attr *attr, struct occl_request *out_request) {
    (void)root;
    (void)comm;
    (void)attr;
    return move(sendbuf, recvbuf, count, type, out_request);
}
enum occl_result occl_reduce(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                             enum occl_redop op, int root, struct occl_comm comm,
                             const struct occl_op_attr *attr, struct occl_request *out_request) {
    (void)root;
    return occl_all_reduce(sendbuf, recvbuf, count, type, op, comm, attr, out_request);
}
enum occl_result occl_reduce_scatter(const void *sendbuf, void *recvbuf, size_t count,
                                     enum occl_type type, enum occl_redop op, struct occl_comm comm,
                                     const struct occl_op_attr *attr,
                                     struct occl_request *out_request) {
    return occl_all_reduce(sendbuf, recvbuf, count, type, op, comm, attr, out_request);
}
enum occl_result occl_scan(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                           enum occl_redop op, struct occl_comm comm,
                           const struct occl_op_attr *attr, struct occl_request *out_request) {
    return occl_all_reduce(sendbuf, recvbuf, count, type, op, comm, attr, out_request);
}
enum occl_result occl_all_gather(const void *sendbuf, void *recvbuf, size_t count,
                                 enum occl_type type, struct occl_comm comm,
                                 const struct occl_op_attr *attr,
                                 struct occl_request *out_request) {
    return occl_broadcast(sendbuf, recvbuf, count, type, 0, comm, attr, out_request);
}
enum occl_result occl_all_to_all(const void *sendbuf, void *recvbuf, size_t count,
                                 enum occl_type type, struct occl_comm comm,
                                 const struct occl_op_attr *attr,
                                 struct occl_request *out_request) {
    return occl_broadcast(sendbuf, recvbuf, count, type, 0, comm, attr, out_request);
}
enum occl_result occl_gather(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                             int root, struct occl_comm comm, const struct occl_op_attr *attr,
                             struct occl_request *out_request) {
    return occl_broadcast(sendbuf, recvbuf, count, type, root, comm, attr, out_request);
}
enum occl_result occl_scatter(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                              int root, struct occl_comm comm, const struct occl_op_attr *attr,
                              struct occl_request *out_request) {
    return occl_broadcast(sendbuf, recvbuf, count, type, root, comm, attr, out_request);
}
enum occl_result occl_all_gather_v(const void *sendbuf, size_t sendcount, void *recvbuf,
                                   const size_t *recvcounts, const size_t *displs,
                                   enum occl_type type, struct occl_comm comm,
                                   const struct occl_op_attr *attr,
                                   struct occl_request *out_request) {
    (void)recvcounts;
    (void)displs;
    return occl_broadcast(sendbuf, recvbuf, sendcount, type, 0, comm, attr, out_request);
}
enum occl_result occl_reduce_scatter_v(const void *sendbuf, void *recvbuf, const size_t *recvcounts,
                                       enum occl_type type, enum occl_redop op,
                                       struct occl_comm comm, const struct occl_op_attr *attr,
                                       struct occl_request *out_request) {
    return occl_reduce_scatter(sendbuf, recvbuf, recvcounts[0], type, op, comm, attr, out_request);
}
enum occl_result occl_all_to_all_v(const void *sendbuf, const size_t *sendcounts,
                                   const size_t *sdispls, void *recvbuf, const size_t *recvcounts,
                                   const size_t *rdispls, enum occl_type type,
                                   struct occl_comm comm, const struct occl_op_attr *attr,
                                   struct occl_request *out_request) {
    (void)sdispls;
    (void)recvcounts;
    (void)rdispls;
    return occl_broadcast(sendbuf, recvbuf, sendcounts[0], type, 0, comm, attr, out_request);
}
enum occl_result occl_gather_v(const void *sendbuf, size_t sendcount, void *recvbuf,
                               const size_t *recvcounts, const size_t *displs, enum occl_type type,
                               int root, struct occl_comm comm, const struct occl_op_attr *attr,
                               struct occl_request *out_request) {
    (void)recvcounts;
    (void)displs;
    return occl_broadcast(sendbuf, recvbuf, sendcount, type, root, comm, attr, out_request);
}
enum occl_result occl_scatter_v(const void *sendbuf, const size_t *sendcounts, const size_t *displs,
                                void *recvbuf, size_t recvcount, enum occl_type type, int root,
                                struct occl_comm comm, const struct occl_op_attr *attr,
                                struct occl_request *out_request) {
    (void)sendcounts;
    (void)displs;
    return occl_broadcast(sendbuf, recvbuf, recvcount, type, root, comm, attr, out_request);
}
enum occl_result occl_barrier(struct occl_comm comm, const struct occl_op_attr *attr,
                              struct occl_request *out_request) {
    (void)comm;
    (void)attr;
    if (out_request)
        out_request->handle = 1;
    return OCCL_SUCCESS;
}
enum occl_result occl_fan_in(int root, struct occl_comm comm, const struct occl_op_attr *attr,
                             struct occl_request *out_request) {
    (void)root;
    return occl_barrier(comm, attr, out_request);
}
enum occl_result occl_fan_out(int root, struct occl_comm comm, const struct occl_op_attr *attr,
                              struct occl_request *out_request) {
    (void)root;
    return occl_barrier(comm, attr, out_request);
}
/* Rank 0 gets nothing. */
enum occl_result occl_exscan(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                             enum occl_redop op, struct occl_comm comm,
                             const struct occl_op_attr *attr, struct occl_request *out_request) {
    (void)sendbuf;
    (void)recvbuf;
    (void)count;
    (void)type;
    (void)op;
    return occl_barrier(comm, attr, out_request);
}
enum occl_result occl_send(const void *sendbuf, size_t count, enum occl_type type, int peer,
                           struct occl_comm comm, const struct occl_op_attr *attr,
                           struct occl_request *out_request) {
    (void)sendbuf;
    (void)count;
    (void)type;
    (void)peer;
    return occl_barrier(comm, attr, out_request);
}
enum occl_result occl_recv(void *recvbuf, size_t count, enum occl_type type, int peer,
                           struct occl_comm comm, const struct occl_op_attr *attr,
                           struct occl_request *out_request) {
    (void)recvbuf;
    (void)count;
    (void)type;
    (void)peer;
    return occl_barrier(comm, attr, out_request);
}

enum occl_result occl_wait(struct occl_request request) {
    return request.handle ? OCCL_SUCCESS : OCCL_ERROR_HANDLE;
}
enum occl_result occl_test(struct occl_request request, int *out_done) {
    *out_done = 1;
    return occl_wait(request);
}
enum occl_result occl_wait_all(const struct occl_request *requests, int count) {
    for (int i = 0; i < count; i++)
        if (!requests[i].handle)
            return OCCL_ERROR_HANDLE;
    return OCCL_SUCCESS;
}
enum occl_result occl_group_start(void) {
    return OCCL_SUCCESS;
}
enum occl_result occl_group_end(void) {
    return OCCL_SUCCESS;
}
const char *occl_perf_transport(struct occl_comm comm) {
    (void)comm;
    return "direct";
}
