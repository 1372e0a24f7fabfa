/* SPDX-License-Identifier: Apache-2.0 */
/* What all operations have in common: the arguments of a call are checked, an op is described, and
 * it is run, started or kept. */
#include <string.h>

#include "client_lib/call.h"
#include "client_lib/group.h"
#include "client_lib/memory.h"
#include "client_lib/waiting.h"

int client_check_array(const struct client_call *call, const char *what, const void *array,
                       uint64_t bytes) {
    if (client_range_ok(array, bytes, false))
        return OCCL_OK;
    return client_fail(OCCL_E_FAULT, "%s: %s %p of %llu bytes is not mapped for reading",
                       call->name, what, array, (unsigned long long)bytes);
}

static int check_attr(const struct client_call *call) {
    const struct occl_op_attr *attr = call->attr;
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
    if (attr->after_count && !attr->after)
        return client_fail(OCCL_E_INVALID, "%s: after is NULL with after_count %zu", call->name,
                           attr->after_count);
    if (attr->after_count > OCCL_AFTER_MAX)
        return client_fail(OCCL_E_INVALID, "%s: after_count %zu, expected at most %u", call->name,
                           attr->after_count, OCCL_AFTER_MAX);
    if (attr->after_count &&
        client_check_array(call, "after", attr->after, attr->after_count * sizeof *attr->after))
        return OCCL_E_FAULT;
    if (attr->callback && !call->out_request)
        return client_fail(OCCL_E_INVALID, "%s: a callback needs out_request", call->name);
    return OCCL_OK;
}

static int refuse_operator(const struct client_call *call) {
    const char *name = call->redop < 0 ? NULL : occl_redop_name((uint32_t)call->redop);
    if (!name)
        return client_fail(OCCL_E_INVALID, "%s: operator %d is none of enum occl_redop", call->name,
                           call->redop);
    return client_fail(OCCL_E_INVALID, "%s: operator %s is not defined for type %s", call->name,
                       name, occl_dtype_name((uint32_t)call->type));
}

/* Type, operator and size. */
static int check_numbers(const struct client_call *call, struct client_op *op) {
    uint64_t element = 0;
    if (op->traits->flags & OCCL_KIND_TYPED) {
        element = call->type < 0 ? 0 : occl_dtype_bytes((uint32_t)call->type);
        if (element == 0)
            return client_fail(OCCL_E_INVALID, "%s: type %d is none of enum occl_type", call->name,
                               call->type);
    }
    if (op->traits->flags & OCCL_KIND_REDUCES &&
        (call->redop < 0 || !occl_movers_supports((uint32_t)call->type, (uint32_t)call->redop)))
        return refuse_operator(call);
    uint64_t count = op->traits->flags & OCCL_KIND_VECTOR ? 0 : call->count;
    if (!occl_kind_block_bytes(op->traits, count, element, &op->block_bytes))
        return client_fail(OCCL_E_INVALID,
                           "%s: count %zu of %llu-byte elements overflows, expected below %llu",
                           call->name, call->count, (unsigned long long)element,
                           (unsigned long long)occl_kind_count_limit(op->traits, element));
    return OCCL_OK;
}

/* The factor of a premultiplied sum in the form of occl_reduce_job.factors. */
static int take_factor(const struct client_call *call, struct client_op *op) {
    const void *factor = call->attr ? call->attr->factor : NULL;
    bool wanted = (op->traits->flags & OCCL_KIND_REDUCES) && op->sig.redop == OCCL_RO_PREMULSUM;
    if (wanted && !factor)
        return client_fail(OCCL_E_INVALID, "%s: operator premulsum needs occl_op_attr.factor",
                           call->name);
    if (!wanted && factor)
        return client_fail(OCCL_E_INVALID, "%s: occl_op_attr.factor is for operator premulsum only",
                           call->name);
    if (!wanted)
        return OCCL_OK;
    bool is_float = op->sig.dtype == OCCL_DT_FLOAT8E4M3 || op->sig.dtype == OCCL_DT_FLOAT8E5M2 ||
                    op->sig.dtype == OCCL_DT_FLOAT16 || op->sig.dtype == OCCL_DT_BFLOAT16 ||
                    op->sig.dtype == OCCL_DT_FLOAT32;
    uint64_t bytes = is_float ? sizeof(float) : sizeof op->factor;
    int status = client_check_array(call, "occl_op_attr.factor", factor, bytes);
    if (status == OCCL_OK)
        memcpy(&op->factor, factor, bytes);
    return status;
}

static int check_buffer(const struct client_call *call, const void *ptr, uint64_t bytes,
                        bool write) {
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

/* In place as the kind has it, or disjoint. */
static int check_overlap(const struct client_call *call, const struct client_op *op,
                         int64_t in_place) {
    uintptr_t send = (uintptr_t)op->send, recv = (uintptr_t)op->recv;
    if (op->traits->flags & OCCL_KIND_PAIR || !send || !recv || op->send_bytes == 0 ||
        op->recv_bytes == 0 || send == recv + (uintptr_t)in_place ||
        send + op->send_bytes <= recv || recv + op->recv_bytes <= send)
        return OCCL_OK;
    if (in_place == 0 && op->send_bytes == op->recv_bytes)
        return client_fail(OCCL_E_INVALID,
                           "%s: sendbuf %p and recvbuf %p of %llu bytes overlap; expected equal or "
                           "disjoint",
                           call->name, op->send, op->recv, (unsigned long long)op->send_bytes);
    return client_fail(OCCL_E_INVALID,
                       "%s: sendbuf %p of %llu bytes and recvbuf %p of %llu bytes overlap; "
                       "expected disjoint, or sendbuf at recvbuf %+lld bytes (in place)",
                       call->name, op->send, (unsigned long long)op->send_bytes, op->recv,
                       (unsigned long long)op->recv_bytes, (long long)in_place);
}

static int check_rank(const struct client_call *call, const struct client_comm *comm,
                      const char *what) {
    if (call->root < 0 || (uint32_t)call->root >= comm->ranks)
        return client_fail(OCCL_E_INVALID, "%s: %s %d, expected 0..%u", call->name, what,
                           call->root, comm->ranks - 1);
    return OCCL_OK;
}

/* Who takes part, and as what. */
static int place(const struct client_call *call, struct client_comm *comm, struct client_op *op) {
    uint32_t flags = op->traits->flags;
    int status = OCCL_OK;
    op->peers = OCCL_PEERS_ALL;
    op->members = comm->ranks;
    op->line_index = comm->rank;
    if (flags & (OCCL_KIND_ROOTED | OCCL_KIND_PAIR)) {
        status = check_rank(call, comm, flags & OCCL_KIND_PAIR ? "peer" : "root");
        op->sig.root = (uint32_t)call->root;
    }
    if (flags & OCCL_KIND_PAIR) {
        bool receives = call->kind == OCCL_OP_RECV;
        uint32_t peer = (uint32_t)call->root;
        op->peers = receives ? peer << 16 | comm->rank : comm->rank << 16 | peer;
        op->sig.root = receives ? comm->rank : peer;
        op->members = 2;
        op->line_index = receives;
    }
    return status;
}

static uint32_t alone_bits(uint32_t flags, bool is_root) {
    if (is_root)
        return flags & OCCL_KIND_SOURCE ? OCCL_FLAG_SOURCE : 0;
    return flags & OCCL_KIND_CONTRIBUTES ? OCCL_FLAG_GIVES : 0;
}

/* The sizes of this rank's buffers, and what "in place" means for it. */
static int measure(const struct client_call *call, struct client_op *op, int64_t *out_in_place) {
    const struct occl_kind_traits *traits = op->traits;
    uint32_t root = op->sig.root, member = op->line_index;
    struct occl_kind_sizes sizes;
    int status = op->vector ? client_call_vector(call, op, op->vector) : OCCL_OK;
    if (status)
        return status;
    if (!occl_kind_measure(traits, root, member, op->members, op->block_bytes,
                           (uint32_t)occl_dtype_bytes(op->sig.dtype), op->vector, &sizes))
        return client_fail(OCCL_E_INVALID, "%s: the counts overflow", call->name);
    if (traits->flags & OCCL_KIND_EXCLUSIVE && member == 0)
        sizes.recv_bytes = 0;
    uint32_t brings =
        traits->send_root > traits->send_other ? traits->send_root : traits->send_other;
    op->payload_bytes = occl_extent_bytes(brings, op->members, op->block_bytes);
    op->send_bytes = sizes.send_bytes;
    op->recv_bytes = sizes.recv_bytes;
    op->send = op->send_bytes ? call->send : NULL;
    op->recv = op->recv_bytes ? call->recv : NULL;
    /* A root that gives may say so by leaving its send buffer out. */
    const uint32_t rooted_sink = OCCL_KIND_ROOTED | OCCL_KIND_CONTRIBUTES;
    bool gets = (traits->flags & rooted_sink) == rooted_sink && member == root;
    if (gets && !op->send && op->recv && op->send_bytes)
        op->send = (char *)op->recv + sizes.in_place;
    op->alone_bits = alone_bits(traits->flags, occl_kind_is_root(traits, root, member));
    *out_in_place = sizes.in_place;
    return OCCL_OK;
}

static int check_buffers(const struct client_call *call, struct client_op *op, int64_t in_place) {
    bool optional = occl_kind_recv_optional(op->traits, op->sig.root, op->line_index);
    int status = check_buffer(call, op->send, op->send_bytes, false);
    if (status == OCCL_OK && (op->recv || !optional))
        status = check_buffer(call, op->recv, op->recv_bytes, true);
    if (status == OCCL_OK)
        status = check_overlap(call, op, in_place);
    /* In place at the root of a source: nothing is written there. */
    if (optional && op->recv && (uintptr_t)op->send == (uintptr_t)op->recv + (uintptr_t)in_place)
        op->recv = NULL;
    return status;
}

/* What the caller's attributes say; without them, what stands for them. */
static int take_attr(const struct client_call *call, struct client_op *op) {
    const struct occl_op_attr *attr = call->attr;
    op->tag = op->flags = op->after_count = 0;
    op->timeout_ns = 0;
    op->after = NULL;
    op->priority = 255;
    op->callback = NULL;
    op->callback_arg = NULL;
    if (!attr)
        return OCCL_OK;
    int status = check_attr(call);
    if (status)
        return status;
    op->tag = attr->tag;
    op->flags = attr->flags;
    op->timeout_ns = attr->timeout_ns;
    op->callback = attr->callback;
    op->callback_arg = attr->callback_arg;
    op->after_count = (uint32_t)attr->after_count;
    union {
        const struct occl_request *read;
        struct occl_request *unchanged; /* a pool op gets a copy, which it owns */
    } after = {attr->after};
    op->after = op->after_count ? after.unchanged : NULL;
    if (attr->priority >= 0)
        op->priority = (uint8_t)attr->priority;
    return OCCL_OK;
}

/* Sets what an op has that is fixed at its creation. vector: room for a kind that has one. */
static int fill(const struct client_call *call, struct client_comm *comm, uint64_t *vector,
                struct client_op *op) {
    const struct occl_kind_traits *traits = occl_kind_traits(call->kind);
    bool typed = traits->flags & OCCL_KIND_TYPED, reduces = traits->flags & OCCL_KIND_REDUCES;
    bool blocks_differ = traits->flags & OCCL_KIND_VECTOR;
    int64_t in_place = 0;
    op->traits = traits;
    op->comm = comm;
    op->comm_generation = (uint32_t)(call->comm.handle >> 32); /* the table's may have moved on */
    op->vector = blocks_differ ? vector : NULL;
    op->factor = 0;
    op->persistent = op->blocking = op->on_stack = false;
    int status = take_attr(call, op);
    if (status == OCCL_OK)
        status = check_numbers(call, op);
    if (status)
        return status;
    op->sig = (struct occl_signature){
        .kind = call->kind,
        .dtype = typed ? (uint8_t)call->type : 0,
        .redop = reduces ? (uint8_t)call->redop : 0,
        .count = typed && !blocks_differ ? call->count : 0,
    };
    if (call->attr || op->sig.redop == OCCL_RO_PREMULSUM)
        status = take_factor(call, op);
    if (status == OCCL_OK)
        status = place(call, comm, op);
    if (status == OCCL_OK)
        status = measure(call, op, &in_place);
    return status ? status : check_buffers(call, op, in_place);
}

static int run_blocking(const struct client_call *call, struct client_comm *comm,
                        uint64_t *vector) {
    struct client_op op; /* as client.h says: not cleared */
    int status = fill(call, comm, vector, &op);
    if (status)
        return status;
    op.blocking = op.on_stack = true;
    status = client_submit(&op);
    if (status)
        return status;
    client_thread_uses();
    (void)client_wait_complete(&op, 0); /* without a limit it ends complete */
    return op.status;
}

/* Apart, so that other calls need no room for a vector. */
static __attribute__((noinline)) int run_vector(const struct client_call *call,
                                                struct client_comm *comm) {
    uint64_t vector[OCCL_VECTOR_NUMBERS_MAX];
    return run_blocking(call, comm, vector);
}

/* Starts a filled pool op; the caller holds it. */
int client_start(struct client_op *op) {
    /* Who comes after others needs somebody to send it on its way. */
    bool watched = op->callback || op->after_count || client_watch_wanted();
    int status = watched ? client_watch_ready() : OCCL_OK;
    if (status == OCCL_OK)
        status = client_submit(op);
    if (status == OCCL_OK && watched)
        status = client_watch(op);
    return status;
}

static int run_request(const struct client_call *call, struct client_comm *comm,
                       struct occl_request *out_request) {
    struct client_op scratch;
    uint64_t vector[OCCL_VECTOR_NUMBERS_MAX];
    int status = fill(call, comm, vector, &scratch);
    if (status)
        return status;
    struct client_op *op;
    status = client_op_new(comm, scratch.comm_generation, &op);
    if (status)
        return status;
    status = client_op_room(op, &scratch);
    if (status) {
        client_op_free(op);
        return status;
    }
    client_op_describe(op, &scratch);
    op->persistent = call->mode == CLIENT_CALL_PERSISTENT;
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

enum occl_result client_call(const struct client_call *call) {
    int status;
    struct client_comm *comm = client_comm_get(call->comm, &status);
    if (!comm)
        return status;
    struct occl_request request;
    if (call->mode == CLIENT_CALL_PERSISTENT && !call->out_request)
        status = client_fail(OCCL_E_INVALID, "%s: out_request is NULL", call->name);
    else if (call->out_request)
        status = run_request(call, comm, call->out_request);
    else if (client_group_depth() > 0) {
        status = run_request(call, comm, &request);
        if (status == OCCL_OK)
            status = client_group_add(request);
    } else {
        bool vector = occl_kind_traits(call->kind)->flags & OCCL_KIND_VECTOR;
        status = vector ? run_vector(call, comm) : run_blocking(call, comm, NULL);
    }
    client_comm_put(comm);
    return status;
}
