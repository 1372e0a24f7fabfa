/* SPDX-License-Identifier: Apache-2.0 */
/* The direct path: the payload of all (or of the source) is in the record, and every rank computes
 * its own result from it. */
#include <string.h>

#include "client_lib/client.h"
#include "gpu/host/fp_env.h"

const void *client_payload(struct client_op *op, uint32_t member) {
    struct occl_line *line = occl_line_at(op->rec, member);
    if (op->bytes <= OCCL_TINY_BYTES)
        return line->u.tiny;
    if (op->bytes <= OCCL_INLINE_BYTES)
        return line->inlined;
    struct occl_buffer_ref ref = line->u.ref.src;
    const struct occl_records *m = &op->comm->m;
    /* Ranks of a job trust each other's data, not their own bugs: an offset stays in the page. */
    if (ref.space != OCCL_SPACE_PAYLOAD || ref.offset > m->page_bytes ||
        op->bytes > m->page_bytes - ref.offset)
        return NULL;
    return m->base + ref.offset;
}

static int reduce(struct client_op *op) {
    const void *inputs[OCCL_LOCAL_RANKS_MAX];
    void *output = op->recv;
    for (uint32_t i = 0; i < op->members; i++) {
        inputs[i] = client_payload(op, i);
        if (!inputs[i])
            return OCCL_E_FAULT;
    }
    struct occl_reduce_job job = {
        .dtype = op->sig.dtype,
        .redop = op->sig.redop,
        .count = op->sig.count,
        .n_src = op->members,
        .n_dst = 1,
        .src = inputs,
        .dst = &output,
        .divisor = op->sig.redop == OCCL_RO_AVG ? op->members : 0,
    };
    uint32_t fp = occl_fp_env_enter();
    occl_lib.movers->reduce(&job);
    occl_fp_env_leave(fp);
    return OCCL_OK;
}

void client_tell_mismatch(struct client_comm *comm, uint32_t to, uint32_t about, uint32_t kind,
                          enum occl_signature_field field) {
    struct occl_rank_note *note = occl_note_at(&comm->m, to);
    uint32_t none = 0;
    occl_note32(&note->async_kind, kind);
    (void)occl_claim32(&note->async_error, &none, OCCL_REC_WORD(field, OCCL_E_MISMATCH, about));
}

/* The source found out nothing about us: it may have completed long ago. Its communicator gets the
 * mismatch as asynchronous error, once. */
static void tell_source(struct client_op *op, uint32_t member, enum occl_signature_field field) {
    client_tell_mismatch(op->comm, client_member_rank(op, member) % op->comm->ranks, op->comm->rank,
                         op->sig.kind, field);
}

/* Rooted ops are decided by the source alone, so everybody compares with it for himself. More than
 * one source is a mismatch, too: they name different roots. */
static int compare_with_sources(struct client_op *op) {
    uint32_t source;
    uint64_t others = op->look.source_mask & ~(1ull << op->line_index);
    enum occl_signature_field field =
        occl_record_mismatch(op->rec, others, op->line_index, &source);
    if (field == OCCL_FIELD_NONE)
        return OCCL_OK;
    op->about_rank = client_member_rank(op, source);
    op->about_field = field;
    tell_source(op, source, field);
    return OCCL_E_MISMATCH;
}

/* All members are there: each compares all lines before it writes an output byte. */
static int compare_with_all(struct client_op *op) {
    uint32_t other;
    enum occl_signature_field field = occl_record_mismatch(
        op->rec, op->look.ready_mask & ~(1ull << op->line_index), op->line_index, &other);
    if (field == OCCL_FIELD_NONE)
        return OCCL_OK;
    op->about_rank = client_member_rank(op, other);
    op->about_field = field;
    return OCCL_E_MISMATCH;
}

int client_direct_result(struct client_op *op) {
    uint64_t sources = op->look.source_mask;
    int status = sources ? compare_with_sources(op) : compare_with_all(op);
    if (status || op->bytes == 0 || !op->recv)
        return status;
    if (op->sig.kind == OCCL_OP_ALL_REDUCE)
        return sources ? OCCL_E_FAULT : reduce(op); /* a source is never an all-reduce */
    if (!sources)
        return OCCL_E_FAULT; /* equal lines, but the root is none of them: a scribbled page */
    uint32_t source = (uint32_t)__builtin_ctzll(sources);
    const void *from = client_payload(op, source);
    if (!from)
        return OCCL_E_FAULT;
    if (op->recv != op->send || source != op->line_index)
        memcpy(op->recv, from, op->bytes);
    return OCCL_OK;
}

void client_single_result(struct client_op *op) {
    if (op->bytes == 0 || !op->recv)
        return;
    if (op->sig.kind != OCCL_OP_ALL_REDUCE) {
        if (op->recv != op->send)
            memcpy(op->recv, op->send, op->bytes);
        return;
    }
    const void *input = op->send;
    void *output = op->recv;
    struct occl_reduce_job job = {
        .dtype = op->sig.dtype,
        .redop = op->sig.redop,
        .count = op->sig.count,
        .n_src = 1,
        .n_dst = 1,
        .src = &input,
        .dst = &output,
        .divisor = op->sig.redop == OCCL_RO_AVG ? 1 : 0,
    };
    uint32_t fp = occl_fp_env_enter();
    occl_lib.movers->reduce(&job);
    occl_fp_env_leave(fp);
}
