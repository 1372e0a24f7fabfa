/* SPDX-License-Identifier: Apache-2.0 */
/* The direct path: the payload of all (or of the source) is in the record, and every rank computes
 * its own result from it. */
#include <string.h>

#include "client_lib/client.h"
#include "gpu/host/fp_env.h"

static const char *payload(struct client_op *op, uint32_t member) {
    struct occl_line *line = occl_line_at(op->rec, member);
    if (op->payload_bytes <= OCCL_TINY_BYTES)
        return (const char *)line->u.tiny;
    if (op->payload_bytes <= OCCL_INLINE_BYTES)
        return (const char *)line->inlined;
    struct occl_buffer_ref ref = line->u.ref.src;
    const struct occl_records *m = &op->comm->m;
    /* Ranks of a job trust each other's data, not their own bugs: an offset stays in the page. */
    if (ref.space != OCCL_SPACE_PAYLOAD || ref.offset > m->page_bytes ||
        op->payload_bytes > m->page_bytes - ref.offset)
        return NULL;
    return m->base + ref.offset;
}

/* The first n_src members' blocks at `offset` of their payload, into this rank's block. */
static int reduce(struct client_op *op, uint32_t n_src, uint64_t offset) {
    const void *inputs[OCCL_LOCAL_RANKS_MAX];
    uint64_t factors[OCCL_LOCAL_RANKS_MAX];
    void *output = op->recv;
    for (uint32_t i = 0; i < n_src; i++) {
        const char *from = payload(op, i);
        if (!from)
            return OCCL_E_FAULT;
        inputs[i] = from + offset;
        if (op->sig.redop == OCCL_RO_PREMULSUM)
            factors[i] = occl_line_at(op->rec, i)->factor;
    }
    if (n_src > 0)
        client_reduce(&op->sig, n_src, inputs, factors, output);
    return OCCL_OK;
}

/* Block `at` of each member's payload, one behind the other. */
static int collect(struct client_op *op, uint32_t at) {
    for (uint32_t i = 0; i < op->members; i++) {
        const char *from = payload(op, i);
        if (!from)
            return OCCL_E_FAULT;
        memcpy((char *)op->recv + i * op->block_bytes, from + at * op->block_bytes,
               op->block_bytes);
    }
    return OCCL_OK;
}

void client_tell_mismatch(struct client_comm *comm, uint32_t to, uint32_t about,
                          const struct client_difference *difference) {
    struct occl_rank_note *note = occl_note_at(&comm->m, to);
    uint32_t none = 0;
    if (!occl_claim32(&note->async_error, &none,
                      OCCL_REC_WORD(difference->field, OCCL_E_MISMATCH, about)))
        return;
    struct occl_op_key key = occl_line_key(difference->line);
    occl_note32(&note->async_kind, difference->line->kind);
    occl_note32(&note->async_key.peers, key.peers);
    occl_note32(&note->async_key.tag, key.tag);
    occl_note32(&note->async_key.instance, key.instance);
    occl_note64(&note->async_mine, difference->mine);
    occl_note64(&note->async_theirs, difference->theirs);
    occl_publish32(&note->async_told, 1);
}

static uint64_t value_of(const struct occl_line *line, enum occl_signature_field field) {
    struct occl_signature sig = occl_line_signature(line);
    switch (field) {
    case OCCL_FIELD_KIND:
        return sig.kind;
    case OCCL_FIELD_DTYPE:
        return sig.dtype;
    case OCCL_FIELD_REDOP:
        return sig.redop;
    case OCCL_FIELD_ROOT:
        return sig.root;
    case OCCL_FIELD_COUNT:
        return sig.count;
    default:
        return sig.program_id;
    }
}

void client_tell_field(struct client_comm *comm, uint32_t to, const struct occl_line *line,
                       uint32_t about, const struct occl_line *about_line,
                       enum occl_signature_field field) {
    client_tell_mismatch(comm, to, about,
                         &(struct client_difference){field, line, value_of(line, field),
                                                     value_of(about_line, field)});
}

void client_tell_block(struct client_op *op, uint32_t to, const struct occl_local_vectors *vectors,
                       uint32_t sender, uint32_t receiver) {
    uint64_t sent =
        occl_vector_at(vectors->of[sender], op->members, OCCL_VECTOR_SEND_COUNT, receiver);
    uint64_t expected =
        occl_vector_at(vectors->of[receiver], op->members, OCCL_VECTOR_RECV_COUNT, sender);
    bool sends = sender == to;
    client_tell_mismatch(op->comm, to, sends ? receiver : sender,
                         &(struct client_difference){OCCL_FIELD_BLOCK, occl_line_at(op->rec, to),
                                                     sends ? sent : expected,
                                                     sends ? expected : sent});
}

void client_tell_alone(struct client_op *op) {
    const struct occl_line *mine = occl_line_at(op->rec, op->line_index);
    uint64_t others = op->look.alone_mask & ~(1ull << op->line_index);
    for (; others; others &= others - 1) {
        uint32_t member = (uint32_t)__builtin_ctzll(others);
        const struct occl_line *line = occl_line_at(op->rec, member);
        enum occl_signature_field field = occl_line_differ(mine, line);
        uint32_t bits = occl_flag_bits_of(occl_look64(&line->flag), op->place.print);
        if (field != OCCL_FIELD_NONE && (bits & OCCL_FLAG_IN_PAGE))
            client_tell_field(op->comm, client_member_rank(op, member) % op->comm->ranks, line,
                              op->comm->rank, mine, field);
    }
}

/* Compares this rank's description with those of `others`. */
static int compare(struct client_op *op, uint64_t others) {
    uint32_t other;
    enum occl_signature_field field =
        occl_record_mismatch(op->rec, others & ~(1ull << op->line_index), op->line_index, &other);
    if (field == OCCL_FIELD_NONE)
        return OCCL_OK;
    op->about_rank = client_member_rank(op, other);
    op->about_field = field;
    client_tell_alone(op);
    return OCCL_E_MISMATCH;
}

/* The bytes that a member's vector says it has for this rank, in its payload; NULL: a scribbled
 * page. */
static const char *vector_payload(struct client_op *op, const struct occl_local_vectors *vectors,
                                  uint32_t member, uint64_t *out_bytes) {
    const struct occl_records *m = &op->comm->m;
    struct occl_buffer_ref ref = occl_line_at(op->rec, member)->u.ref.src;
    uint64_t element = occl_dtype_bytes(op->sig.dtype);
    const uint64_t *vector = vectors->of[member];
    uint64_t count = occl_vector_at(vector, op->members, OCCL_VECTOR_SEND_COUNT, op->line_index);
    uint64_t at =
        occl_vector_at(vector, op->members, OCCL_VECTOR_SEND_AT, op->line_index) * element;
    *out_bytes = count * element;
    if (*out_bytes == 0)
        return m->base;
    if (ref.space != OCCL_SPACE_PAYLOAD || ref.offset > m->page_bytes ||
        at > m->page_bytes - ref.offset || *out_bytes > m->page_bytes - ref.offset - at)
        return NULL;
    return m->base + ref.offset + at;
}

/* Blocks of different sizes, from the members in mask; all agree. */
static int take_vectors(struct client_op *op, const struct occl_local_vectors *vectors,
                        uint64_t mask) {
    const void *inputs[OCCL_LOCAL_RANKS_MAX];
    uint64_t factors[OCCL_LOCAL_RANKS_MAX];
    uint64_t element = occl_dtype_bytes(op->sig.dtype), bytes = 0;
    bool reduces = op->traits->flags & OCCL_KIND_REDUCES;
    for (uint32_t i = 0; i < op->members; i++) {
        if (!(mask >> i & 1))
            continue;
        const char *from = vector_payload(op, vectors, i, &bytes);
        if (!from)
            return OCCL_E_FAULT;
        inputs[i] = from;
        factors[i] = op->sig.redop == OCCL_RO_PREMULSUM ? occl_line_at(op->rec, i)->factor : 0;
        uint64_t at = occl_vector_at(op->vector, op->members, OCCL_VECTOR_RECV_AT, i) * element;
        if (!reduces && bytes)
            memcpy((char *)op->recv + at, from, bytes);
    }
    if (reduces) {
        struct occl_signature sig = op->sig;
        sig.count = bytes / element;
        client_reduce(&sig, op->members, inputs, factors, op->recv);
    }
    return OCCL_OK;
}

/* This rank compares what it gets from those in mask with what they send, then takes it. */
static int result_of_vectors(struct client_op *op, uint64_t mask) {
    const struct occl_local_vectors *vectors;
    uint32_t sender, receiver, me = op->line_index;
    int status = client_vectors_get(op, mask | 1ull << me, &vectors);
    if (status)
        return status;
    if (client_vectors_differ(op, vectors, mask | 1ull << me, me, &sender, &receiver)) {
        uint32_t other = sender == me ? receiver : sender;
        op->about_rank = other;
        op->about_field = OCCL_FIELD_BLOCK;
        if (op->look.alone_mask >> other & 1)
            client_tell_block(op, other, vectors, sender, receiver);
        return OCCL_E_MISMATCH;
    }
    return op->recv && op->recv_bytes ? take_vectors(op, vectors, mask) : OCCL_OK;
}

/* From the one whose payload is all that is needed. */
static int take_from_source(struct client_op *op) {
    uint32_t source = (uint32_t)__builtin_ctzll(op->look.source_mask);
    bool own = source == op->line_index;
    uint64_t at = op->sig.kind == OCCL_OP_SCATTER ? op->comm->rank * op->block_bytes : 0;
    const char *from = own ? (const char *)op->send : payload(op, source);
    if (!from)
        return OCCL_E_FAULT;
    if (from + at != (const char *)op->recv)
        memmove(op->recv, from + at, op->block_bytes);
    return OCCL_OK;
}

static int take_from_all(struct client_op *op) {
    uint32_t rank = op->comm->rank;
    switch (op->sig.kind) {
    case OCCL_OP_ALL_REDUCE:
    case OCCL_OP_REDUCE:
        return reduce(op, op->members, 0);
    case OCCL_OP_REDUCE_SCATTER:
        return reduce(op, op->members, rank * op->block_bytes);
    case OCCL_OP_SCAN:
        return reduce(op, rank + 1, 0);
    case OCCL_OP_EXSCAN:
        return reduce(op, rank, 0);
    case OCCL_OP_ALL_GATHER:
    case OCCL_OP_GATHER:
        return collect(op, 0);
    case OCCL_OP_ALL_TO_ALL:
        return collect(op, rank);
    default:
        return OCCL_E_FAULT; /* equal lines, but the source is none of them: a scribbled page */
    }
}

/* What others need is compared before any output byte is written: with the source, by who needs
 * nobody else; among those that end alone; else with all. */
int client_direct_result(struct client_op *op) {
    if (op->after_status < 0)
        return op->after_status; /* it has ended before its turn */
    uint64_t sources = op->look.source_mask;
    bool needs_source = (op->traits->flags & OCCL_KIND_SOURCE) != 0;
    uint64_t others = op->alone_bits ? op->look.alone_mask
                      : sources      ? sources
                                     : op->look.ready_mask;
    int status = compare(op, others);
    if (status == OCCL_OK && op->vector && !(needs_source ? !sources : sources != 0)) {
        /* Who ends alone gets nothing, or what it has itself. */
        uint64_t from = op->alone_bits ? 1ull << op->line_index
                        : sources      ? sources
                                       : op->look.ready_mask;
        return result_of_vectors(op, from);
    }
    if (status || op->recv_bytes == 0 || !op->recv)
        return status;
    if (needs_source ? !sources : sources != 0)
        return OCCL_E_FAULT; /* equal lines that cannot be: a scribbled page */
    return needs_source ? take_from_source(op) : take_from_all(op);
}

void client_reduce(const struct occl_signature *sig, uint32_t n_src, const void *const *inputs,
                   const uint64_t *factors, void *output) {
    struct occl_reduce_job job = {
        .dtype = sig->dtype,
        .redop = sig->redop,
        .count = sig->count,
        .n_src = n_src,
        .n_dst = 1,
        .src = inputs,
        .dst = &output,
        .divisor = sig->redop == OCCL_RO_AVG ? n_src : 0,
        .factors = sig->redop == OCCL_RO_PREMULSUM ? factors : NULL,
    };
    uint32_t fp = occl_fp_env_enter();
    occl_lib.movers->reduce(&job);
    occl_fp_env_leave(fp);
}

/* The only rank's block goes from its place in the send buffer to the one in the receive buffer. */
static void single_vector_result(struct client_op *op) {
    uint64_t element = occl_dtype_bytes(op->sig.dtype);
    struct occl_signature sig = op->sig;
    sig.count = op->vector[OCCL_VECTOR_SEND_COUNT];
    const void *from = (const char *)op->send + op->vector[OCCL_VECTOR_SEND_AT] * element;
    char *to = (char *)op->recv + op->vector[OCCL_VECTOR_RECV_AT] * element;
    if (op->traits->flags & OCCL_KIND_REDUCES)
        client_reduce(&sig, 1, &from, &op->factor, to);
    else if (to != from)
        memcpy(to, from, sig.count * element);
}

void client_single_result(struct client_op *op) {
    if (op->vector && op->recv && op->send && op->vector[OCCL_VECTOR_SEND_COUNT])
        single_vector_result(op);
    if (op->vector)
        return;
    if (op->recv_bytes == 0 || !op->recv || op->sig.kind == OCCL_OP_EXSCAN)
        return;
    if (op->traits->flags & OCCL_KIND_REDUCES)
        client_reduce(&op->sig, 1, &op->send, &op->factor, op->recv);
    else if (op->recv != op->send)
        memcpy(op->recv, op->send, op->block_bytes);
}
