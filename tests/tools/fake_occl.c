/* SPDX-License-Identifier: Apache-2.0 */
/* A library of one rank in one process, for tests of what occl-perf prints: it computes at once,
 * and wrongly when FAKE_WRONG is set. FAKE_ERROR makes every all-reduce of more than one element
 * fail, FAKE_REFUSED those of that class. */
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"

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

enum occl_result occl_all_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                 enum occl_type type, enum occl_redop op, struct occl_comm comm,
                                 const struct occl_op_attr *attr,
                                 struct occl_request *out_request) {
    (void)op;
    (void)comm;
    const char *refused = getenv("FAKE_REFUSED");
    if (count > 1 && getenv("FAKE_ERROR"))
        return OCCL_ERROR_PEER_FAILED;
    if (refused && attr && attr->priority == atoi(refused))
        return OCCL_ERROR_PEER_FAILED;
    return move(sendbuf, recvbuf, count, type, out_request);
}
enum occl_result occl_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                enum occl_type type, int root, struct occl_comm comm,
                                const struct occl_op_attr *attr, struct occl_request *out_request) {
    (void)root;
    (void)comm;
    (void)attr;
    return move(sendbuf, recvbuf, count, type, out_request);
}
enum occl_result occl_barrier(struct occl_comm comm, const struct occl_op_attr *attr,
                              struct occl_request *out_request) {
    (void)comm;
    (void)attr;
    if (out_request)
        out_request->handle = 1;
    return OCCL_SUCCESS;
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
