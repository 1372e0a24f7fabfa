/* SPDX-License-Identifier: Apache-2.0 */
/* The public operations: arguments are checked, an op is described, and it is run, started or kept.
 */
#include <string.h>

#include "client_lib/client.h"
#include "client_lib/group.h"

/* How a call wants its op. */
enum mode { MODE_RUN, MODE_PERSISTENT };

struct call {
    const char *name;
    uint8_t kind;
    const void *send;
    void *recv;
    size_t count;
    int type;  /* 0: none */
    int redop; /* -1: none */
    int root;  /* broadcast: root; send, recv: the peer */
    struct occl_comm comm;
    const struct occl_op_attr *attr;
    struct occl_request *out_request;
    enum mode mode;
};

static int check_attr(const struct call *call) {
    const struct occl_op_attr *attr = call->attr;
    if (!attr)
        return OCCL_OK;
    if (attr->size != sizeof *attr)
        return client_fail(OCCL_E_INVALID, "%s: occl_op_attr.size is %zu, expected %zu", call->name,
                           attr->size, sizeof *attr);
    if (attr->tag >= OCCL_TAG_MAX)
        return client_fail(OCCL_E_INVALID, "%s: tag %u, expected below %u", call->name, attr->tag,
                           OCCL_TAG_MAX);
    if (attr->flags & ~(uint32_t)OCCL_OP_NO_WAIT_FOR_ROOM)
        return client_fail(OCCL_E_INVALID, "%s: flags 0x%x, expected a combination of 0x%x",
                           call->name, attr->flags, OCCL_OP_NO_WAIT_FOR_ROOM);
    if (attr->priority < OCCL_PRIORITY_DEFAULT || attr->priority > OCCL_PRIORITY_URGENT)
        return client_fail(OCCL_E_INVALID, "%s: priority %d, expected -1..3", call->name,
                           attr->priority);
    if (attr->callback && !call->out_request)
        return client_fail(OCCL_E_INVALID, "%s: a callback needs out_request", call->name);
    return OCCL_OK;
}

/* Type, operator and size. */
static int check_numbers(const struct call *call, uint64_t *out_bytes) {
    uint64_t element = 1;
    if (call->type) {
        element = occl_dtype_bytes((uint32_t)call->type);
        if (element == 0)
            return client_fail(OCCL_E_INVALID, "%s: type %d is none of enum occl_type", call->name,
                               call->type);
    }
    if (call->redop >= 0 && !occl_movers_supports((uint32_t)call->type, (uint32_t)call->redop))
        return client_fail(OCCL_E_INVALID, "%s: operator %d is none of enum occl_redop", call->name,
                           call->redop);
    if (call->redop < -1)
        return client_fail(OCCL_E_INVALID, "%s: operator %d is none of enum occl_redop", call->name,
                           call->redop);
    if (call->count > (UINT64_MAX >> 2) / element)
        return client_fail(OCCL_E_INVALID, "%s: count %zu of %llu-byte elements overflows",
                           call->name, call->count, (unsigned long long)element);
    *out_bytes = call->type ? call->count * element : 0;
    return OCCL_OK;
}

static int check_buffer(const struct call *call, const void *ptr, uint64_t bytes, bool write) {
    if (bytes == 0)
        return OCCL_OK;
    if (!ptr)
        return client_fail(OCCL_E_INVALID, "%s: %s is NULL with %llu bytes", call->name,
                           write ? "recvbuf" : "sendbuf", (unsigned long long)bytes);
    if (!client_range_ok(ptr, bytes, write))
        return client_fail(OCCL_E_FAULT, "%s: %s %p of %llu bytes is not mapped %s", call->name,
                           write ? "recvbuf" : "sendbuf", ptr, (unsigned long long)bytes,
                           write ? "and writable" : "and readable");
    return OCCL_OK;
}

static int check_overlap(const struct call *call, const void *send, const void *recv,
                         uint64_t bytes) {
    uintptr_t a = (uintptr_t)send, b = (uintptr_t)recv;
    if (!send || !recv || a == b || bytes == 0 || a + bytes <= b || b + bytes <= a)
        return OCCL_OK;
    return client_fail(OCCL_E_INVALID,
                       "%s: sendbuf %p and recvbuf %p of %llu bytes overlap; expected equal or "
                       "disjoint",
                       call->name, send, recv, (unsigned long long)bytes);
}

static int check_rank(const struct call *call, const struct client_comm *comm, const char *what) {
    if (call->root < 0 || (uint32_t)call->root >= comm->ranks)
        return client_fail(OCCL_E_INVALID, "%s: %s %d, expected 0..%u", call->name, what,
                           call->root, comm->ranks - 1);
    return OCCL_OK;
}

/* Fills what depends on the kind. */
static int describe(const struct call *call, struct client_comm *comm, struct client_op *op) {
    int status = OCCL_OK;
    op->peers = OCCL_PEERS_ALL;
    op->members = comm->ranks;
    op->line_index = comm->rank;
    op->send = call->send;
    op->recv = call->recv;
    switch (call->kind) {
    case OCCL_OP_BROADCAST:
        status = check_rank(call, comm, "root");
        op->sig.root = (uint32_t)call->root;
        if ((uint32_t)call->root != comm->rank)
            op->send = NULL;
        else if (!call->recv)
            op->recv = NULL;
        break;
    case OCCL_OP_SEND:
        status = check_rank(call, comm, "peer");
        op->peers = comm->rank << 16 | (uint32_t)call->root;
        op->sig.root = (uint32_t)call->root;
        op->members = 2;
        op->line_index = 0;
        break;
    case OCCL_OP_RECV:
        status = check_rank(call, comm, "peer");
        op->peers = (uint32_t)call->root << 16 | comm->rank;
        op->sig.root = comm->rank;
        op->members = 2;
        op->line_index = 1;
        break;
    default:
        break;
    }
    return status;
}

static int check_buffers(const struct call *call, struct client_op *op) {
    int status = OCCL_OK;
    bool root = call->kind == OCCL_OP_BROADCAST && op->sig.root == op->line_index;
    if (call->kind == OCCL_OP_ALL_REDUCE || call->kind == OCCL_OP_SEND || root)
        status = check_buffer(call, op->send, op->bytes, false);
    if (status == OCCL_OK && (call->kind == OCCL_OP_ALL_REDUCE || call->kind == OCCL_OP_RECV ||
                              (call->kind == OCCL_OP_BROADCAST && (!root || op->recv))))
        status = check_buffer(call, op->recv, op->bytes, true);
    if (status == OCCL_OK)
        status = check_overlap(call, op->send, op->recv, op->bytes);
    /* In place at the root: nothing is written there. */
    if (root && op->recv == op->send)
        op->recv = NULL;
    return status;
}

static int fill(const struct call *call, struct client_comm *comm, struct client_op *op) {
    int status = check_attr(call);
    if (status == OCCL_OK)
        status = check_numbers(call, &op->bytes);
    if (status)
        return status;
    op->comm = comm;
    op->comm_generation = (uint32_t)(call->comm.handle >> 32); /* the table's may have moved on */
    op->sig.kind = call->kind;
    op->sig.dtype = (uint8_t)call->type;
    op->sig.redop = call->redop >= 0 ? (uint8_t)call->redop : 0;
    op->sig.count = call->type ? call->count : 0;
    op->priority = 255;
    if (call->attr) {
        op->tag = call->attr->tag;
        op->flags = call->attr->flags;
        op->timeout_ns = call->attr->timeout_ns;
        op->callback = call->attr->callback;
        op->callback_arg = call->attr->callback_arg;
        if (call->attr->priority >= 0)
            op->priority = (uint8_t)call->attr->priority;
    }
    status = describe(call, comm, op);
    return status ? status : check_buffers(call, op);
}

static int run_blocking(const struct call *call, struct client_comm *comm) {
    struct client_op op;
    memset(&op, 0, sizeof op);
    int status = fill(call, comm, &op);
    if (status)
        return status;
    op.blocking = true;
    op.on_stack = true;
    status = client_submit(&op);
    if (status)
        return status;
    client_thread_uses();
    (void)client_wait_complete(&op, 0); /* without a limit it ends complete */
    return op.status;
}

/* Starts a filled pool op; the caller holds it. */
int client_start(struct client_op *op) {
    bool watched = op->callback || client_watch_wanted();
    int status = watched ? client_watch_ready() : OCCL_OK;
    if (status == OCCL_OK)
        status = client_submit(op);
    if (status == OCCL_OK && watched)
        status = client_watch(op);
    return status;
}

static int run_request(const struct call *call, struct client_comm *comm,
                       struct occl_request *out_request) {
    struct client_op scratch;
    memset(&scratch, 0, sizeof scratch);
    int status = fill(call, comm, &scratch);
    if (status)
        return status;
    struct client_op *op;
    status = client_op_new(comm, scratch.comm_generation, &op);
    if (status)
        return status;
    client_op_describe(op, &scratch);
    op->persistent = call->mode == MODE_PERSISTENT;
    struct occl_request handle = client_op_handle(op);
    if (!op->persistent)
        status = client_start(op);
    if (status) {
        client_op_free(op);
        return status;
    }
    client_thread_uses();
    client_op_unhold(op);
    *out_request = handle;
    return OCCL_OK;
}

static enum occl_result perform(const struct call *call) {
    int status;
    struct client_comm *comm = client_comm_get(call->comm, &status);
    if (!comm)
        return status;
    struct occl_request request;
    if (call->mode == MODE_PERSISTENT && !call->out_request)
        status = client_fail(OCCL_E_INVALID, "%s: out_request is NULL", call->name);
    else if (call->out_request)
        status = run_request(call, comm, call->out_request);
    else if (client_group_depth() > 0) {
        status = run_request(call, comm, &request);
        if (status == OCCL_OK)
            status = client_group_add(request);
    } else {
        status = run_blocking(call, comm);
    }
    client_comm_put(comm);
    return status;
}

OCCL_PUBLIC enum occl_result occl_all_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                             enum occl_type type, enum occl_redop op,
                                             struct occl_comm comm, const struct occl_op_attr *attr,
                                             struct occl_request *out_request) {
    struct call call = {
        "all_reduce", OCCL_OP_ALL_REDUCE, sendbuf, recvbuf, count, (int)type, (int)op, 0, comm,
        attr,         out_request,        MODE_RUN};
    return perform(&call);
}

OCCL_PUBLIC enum occl_result occl_all_reduce_init(const void *sendbuf, void *recvbuf, size_t count,
                                                  enum occl_type type, enum occl_redop op,
                                                  struct occl_comm comm,
                                                  const struct occl_op_attr *attr,
                                                  struct occl_request *out_request) {
    struct call call = {"all_reduce_init",
                        OCCL_OP_ALL_REDUCE,
                        sendbuf,
                        recvbuf,
                        count,
                        (int)type,
                        (int)op,
                        0,
                        comm,
                        attr,
                        out_request,
                        MODE_PERSISTENT};
    return perform(&call);
}

static enum occl_result broadcast(const char *name, enum mode mode, const void *sendbuf,
                                  void *recvbuf, size_t count, enum occl_type type, int root,
                                  struct occl_comm comm, const struct occl_op_attr *attr,
                                  struct occl_request *out_request) {
    struct call call = {name, OCCL_OP_BROADCAST, sendbuf, recvbuf, count, (int)type, -1, root, comm,
                        attr, out_request,       mode};
    return perform(&call);
}

OCCL_PUBLIC enum occl_result occl_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                            enum occl_type type, int root, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    return broadcast("broadcast", MODE_RUN, sendbuf, recvbuf, count, type, root, comm, attr,
                     out_request);
}

OCCL_PUBLIC enum occl_result occl_broadcast_init(const void *sendbuf, void *recvbuf, size_t count,
                                                 enum occl_type type, int root,
                                                 struct occl_comm comm,
                                                 const struct occl_op_attr *attr,
                                                 struct occl_request *out_request) {
    return broadcast("broadcast_init", MODE_PERSISTENT, sendbuf, recvbuf, count, type, root, comm,
                     attr, out_request);
}

OCCL_PUBLIC enum occl_result occl_barrier(struct occl_comm comm, const struct occl_op_attr *attr,
                                          struct occl_request *out_request) {
    struct call call = {"barrier", OCCL_OP_BARRIER, NULL,    NULL, 0, 0, -1, 0, comm,
                        attr,      out_request,     MODE_RUN};
    return perform(&call);
}

OCCL_PUBLIC enum occl_result occl_barrier_init(struct occl_comm comm,
                                               const struct occl_op_attr *attr,
                                               struct occl_request *out_request) {
    struct call call = {"barrier_init", OCCL_OP_BARRIER, NULL,           NULL, 0, 0, -1, 0, comm,
                        attr,           out_request,     MODE_PERSISTENT};
    return perform(&call);
}

OCCL_PUBLIC enum occl_result occl_send(const void *sendbuf, size_t count, enum occl_type type,
                                       int peer, struct occl_comm comm,
                                       const struct occl_op_attr *attr,
                                       struct occl_request *out_request) {
    struct call call = {"send", OCCL_OP_SEND, sendbuf, NULL, count,       (int)type,
                        -1,     peer,         comm,    attr, out_request, MODE_RUN};
    return perform(&call);
}

OCCL_PUBLIC enum occl_result occl_send_init(const void *sendbuf, size_t count, enum occl_type type,
                                            int peer, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    struct call call = {"send_init", OCCL_OP_SEND, sendbuf, NULL, count,       (int)type,
                        -1,          peer,         comm,    attr, out_request, MODE_PERSISTENT};
    return perform(&call);
}

OCCL_PUBLIC enum occl_result occl_recv(void *recvbuf, size_t count, enum occl_type type, int peer,
                                       struct occl_comm comm, const struct occl_op_attr *attr,
                                       struct occl_request *out_request) {
    struct call call = {"recv", OCCL_OP_RECV, NULL, recvbuf, count,       (int)type,
                        -1,     peer,         comm, attr,    out_request, MODE_RUN};
    return perform(&call);
}

OCCL_PUBLIC enum occl_result occl_recv_init(void *recvbuf, size_t count, enum occl_type type,
                                            int peer, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request) {
    struct call call = {"recv_init", OCCL_OP_RECV, NULL, recvbuf, count,       (int)type,
                        -1,          peer,         comm, attr,    out_request, MODE_PERSISTENT};
    return perform(&call);
}
