/* SPDX-License-Identifier: Apache-2.0 */
/* What a member brings into a record and takes from it, as the client library does: small payload
 * in the line, other in a chunk of its own part of the page, vectors in front of it; what does not
 * fit is named. */
#include <string.h>

#include "tools/sim/member.h"

/* ---- chunks ---- */
static bool chunk_is_free(const struct sim_member *m, const struct sim_chunk *chunk) {
    if (!chunk->in_use)
        return true;
    uint64_t word = occl_observe64(&occl_claim_of(m->page, chunk->slot)->word);
    if ((word & (OCCL_WORD_CLAIMED | OCCL_WORD_PRINT_MASK)) != (OCCL_WORD_CLAIMED | chunk->print))
        return true;
    struct occl_record *record = occl_record_at(m->page, chunk->slot);
    for (uint32_t i = 0; i < chunk->members; i++)
        if (!(occl_flag_bits_of(occl_observe64(&occl_line_at(record, i)->flag), chunk->print) &
              OCCL_FLAG_LEFT))
            return false;
    return true;
}

/* Offset of a free chunk in the page, or 0. */
static uint64_t chunk_take(const struct sim_member *m) {
    for (uint32_t i = 0; i < OCCL_PAYLOAD_CHUNKS; i++) {
        struct sim_chunk *chunk = &m->rank->chunks[i];
        if (!chunk_is_free(m, chunk))
            continue;
        *chunk = (struct sim_chunk){m->place.print, m->place.slot, m->members, true};
        return m->page->payload_offset + (uint64_t)m->rank->local * m->page->payload_stride +
               (uint64_t)i * m->page->payload_chunk_bytes;
    }
    return 0;
}

/* ---- bringing ---- */
/* Only whether two of them are equal counts. */
static struct occl_buffer_ref ref_of(const int64_t *buffer) {
    struct occl_buffer_ref none = {OCCL_SPACE_NONE, 0, 0};
    return buffer == NULL
               ? none
               : (struct occl_buffer_ref){OCCL_SPACE_PRIVATE, 0, (uint64_t)(uintptr_t)buffer};
}

static void name_buffers(const struct sim_member *m, uint64_t chunk) {
    struct occl_line *line = sim_member_line(m, m->line_index);
    line->u.ref.src = chunk != 0 ? (struct occl_buffer_ref){OCCL_SPACE_PAYLOAD, 0, chunk}
                                 : ref_of(m->request->in);
    line->u.ref.dst = ref_of(m->request->out);
}

/* The payload's blocks follow each other, whatever gaps the buffer has. */
static void pack(const struct sim_member *m, uint64_t *vector, int64_t *to) {
    uint32_t n = m->members;
    uint64_t packed = 0;
    bool root = occl_kind_is_root(m->traits, m->request->signature.root, m->line_index);
    if ((root ? m->traits->send_root : m->traits->send_other) != OCCL_EXTENT_ALL) {
        memcpy(to, m->request->in, m->request->sends * sizeof *to);
        return;
    }
    for (uint32_t j = 0; j < n; j++) {
        uint64_t count = vector[OCCL_VECTOR_SEND_COUNT * n + j];
        uint64_t *at = &vector[OCCL_VECTOR_SEND_AT * n + j];
        memcpy(to + packed, m->request->in + *at, count * sizeof *to);
        *at = packed;
        packed += count;
    }
}

static bool publish_vector(const struct sim_member *m) {
    struct occl_line *line = sim_member_line(m, m->line_index);
    const uint64_t *mine = sim_shape_vector(m->cluster, m->op, m->rank->rank);
    uint32_t bytes = occl_vector_bytes(m->members);
    uint64_t chunk = chunk_take(m), payload = m->request->sends * sizeof(int64_t);
    bool fits = chunk != 0 && m->op->direct && bytes + payload <= m->page->payload_chunk_bytes;
    name_buffers(m, fits && payload > 0 ? chunk + bytes : 0);
    line->vector = (struct occl_buffer_ref){OCCL_SPACE_REGION, m->rank->rank, 0};
    if (chunk == 0)
        return false;
    char *base = m->page->base + chunk;
    uint64_t copy[OCCL_VECTOR_NUMBERS_MAX];
    memcpy(copy, mine, bytes);
    if (fits && payload > 0)
        pack(m, copy, (int64_t *)(void *)(base + bytes));
    memcpy(base, copy, bytes);
    line->vector = (struct occl_buffer_ref){OCCL_SPACE_PAYLOAD, 0, chunk};
    return fits;
}

bool sim_payload_publish(const struct sim_member *m) {
    struct occl_line *line = sim_member_line(m, m->line_index);
    const int64_t *in = m->request->in;
    uint64_t bytes = m->request->sends * sizeof *in;
    if (sim_op_nodes(m->cluster, m->op) > 1)
        return false;
    if (m->op->vectors != NULL)
        return publish_vector(m);
    if (m->payload_bytes == 0)
        return true;
    if (!m->op->direct || m->payload_bytes > OCCL_DIRECT_MAX_BYTES) {
        name_buffers(m, 0);
        return false;
    }
    if (m->payload_bytes <= OCCL_INLINE_BYTES) {
        if (bytes > 0)
            memcpy(m->payload_bytes <= OCCL_TINY_BYTES ? line->u.tiny : line->inlined, in, bytes);
        return true;
    }
    uint64_t chunk = bytes > 0 ? chunk_take(m) : 0;
    name_buffers(m, chunk);
    if (chunk != 0)
        memcpy(m->page->base + chunk, in, bytes);
    return chunk != 0 || bytes == 0;
}

/* ---- taking ---- */
static const int64_t *payload_of(const struct sim_member *m, uint32_t index) {
    const struct occl_line *line = sim_member_line(m, index);
    const void *from = m->payload_bytes <= OCCL_TINY_BYTES     ? (const void *)line->u.tiny
                       : m->payload_bytes <= OCCL_INLINE_BYTES ? (const void *)line->inlined
                                                               : NULL;
    if (m->op->vectors == NULL && from != NULL)
        return (const int64_t *)from;
    if (line->u.ref.src.space != OCCL_SPACE_PAYLOAD)
        return NULL;
    return (const int64_t *)(const void *)(m->page->base + line->u.ref.src.offset);
}

const uint64_t *sim_payload_vector(const struct sim_cluster *cluster, const struct sim_op *op,
                                   const struct occl_records *page, const struct occl_line *line) {
    if (line->vector.space == OCCL_SPACE_PAYLOAD)
        return (const uint64_t *)(const void *)(page->base + line->vector.offset);
    return sim_shape_vector(cluster, op, line->vector.region);
}

bool sim_payload_vectors_differ(const struct sim_member *m, uint64_t mask, uint32_t mine,
                                uint32_t *out_sender, uint32_t *out_receiver, bool *out_nothing) {
    const uint64_t *of[OCCL_LOCAL_RANKS_MAX];
    uint32_t n = m->members;
    *out_nothing = true;
    for (uint32_t i = 0; i < n; i++)
        if (mask >> i & 1)
            of[i] = sim_payload_vector(m->cluster, m->op, m->page, sim_member_line(m, i));
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) {
            if (!(mask >> i & 1) || !(mask >> j & 1) ||
                (mine != OCCL_LOCAL_RANKS_MAX && i != mine && j != mine))
                continue;
            *out_nothing = *out_nothing && occl_vector_at(of[i], n, OCCL_VECTOR_SEND_COUNT, j) == 0;
            if (occl_vector_pair_agrees(of, n, i, j))
                continue;
            *out_sender = i;
            *out_receiver = j;
            return true;
        }
    return false;
}

static void tell(const struct sim_member *m, uint32_t index) {
    uint32_t rank = sim_op_member_rank(m->cluster, m->op, m->rank->node, index);
    m->cluster->jobs[m->rank->job].ranks[rank].requests[m->op->number].told = true;
}

void sim_payload_tell(const struct sim_member *m, const struct occl_look *look) {
    const struct occl_line *mine = sim_member_line(m, m->line_index);
    uint32_t sender, receiver;
    bool nothing;
    for (uint64_t mask = look->alone_mask & ~(1ull << m->line_index); mask; mask &= mask - 1) {
        uint32_t index = (uint32_t)__builtin_ctzll(mask);
        const struct occl_line *line = sim_member_line(m, index);
        uint32_t bits = occl_flag_bits_of(occl_look64(&line->flag), m->place.print);
        bool differs =
            occl_line_differ(mine, line) != OCCL_FIELD_NONE ||
            (m->op->vectors != NULL &&
             sim_payload_vectors_differ(m, look->ready_mask, index, &sender, &receiver, &nothing));
        if (differs && (bits & OCCL_FLAG_IN_PAGE))
            tell(m, index);
    }
}

static bool missing(const struct sim_member *m, uint32_t index) {
    sim_broken(m->cluster, "payload: job %u op %u has none of member %u", m->op->job, m->op->number,
               index);
    return false;
}

/* Blocks of different sizes, from the members in mask. */
static int take_vectors(const struct sim_member *m, uint64_t mask) {
    const uint64_t *mine =
        sim_payload_vector(m->cluster, m->op, m->page, sim_member_line(m, m->line_index));
    bool reduces = m->traits->flags & OCCL_KIND_REDUCES, first = true;
    for (; mask; mask &= mask - 1, first = false) {
        uint32_t i = (uint32_t)__builtin_ctzll(mask);
        const uint64_t *vector =
            sim_payload_vector(m->cluster, m->op, m->page, sim_member_line(m, i));
        uint64_t count = occl_vector_at(vector, m->members, OCCL_VECTOR_SEND_COUNT, m->line_index);
        uint64_t at = occl_vector_at(vector, m->members, OCCL_VECTOR_SEND_AT, m->line_index);
        int64_t *out = m->request->out;
        const int64_t *from = payload_of(m, i);
        if (count == 0)
            continue;
        if (from == NULL && !missing(m, i))
            return OCCL_OK;
        out += reduces ? 0 : occl_vector_at(mine, m->members, OCCL_VECTOR_RECV_AT, i);
        for (uint64_t e = 0; e < count; e++)
            out[e] = (reduces && !first ? out[e] : 0) + from[at + e];
    }
    return OCCL_OK;
}

static int result_of_vectors(const struct sim_member *m, uint64_t mask, uint64_t alone_mask) {
    uint32_t me = m->line_index, sender, receiver;
    bool nothing;
    if (sim_payload_vectors_differ(m, mask | 1ull << me, me, &sender, &receiver, &nothing)) {
        uint32_t other = sender == me ? receiver : sender;
        if (alone_mask >> other & 1)
            tell(m, other);
        return OCCL_E_MISMATCH;
    }
    return m->request->out != NULL && m->request->receives > 0 ? take_vectors(m, mask) : OCCL_OK;
}

/* Equal blocks: of the source, the sum of the first members, or one of each member. */
static void take_blocks(const struct sim_member *m, uint64_t sources) {
    uint32_t flags = m->traits->flags, me = m->line_index, many = m->members;
    uint64_t count = m->request->signature.count, bytes = count * sizeof(int64_t);
    int64_t *out = m->request->out;
    bool all = m->traits->send_root == OCCL_EXTENT_ALL;
    uint64_t at = all ? me * count : 0;
    if (sources) {
        uint32_t source = (uint32_t)__builtin_ctzll(sources);
        const int64_t *from = source == me ? m->request->in : payload_of(m, source);
        if (from != NULL || missing(m, source))
            memmove(out, from + at, bytes);
        return;
    }
    if (flags & OCCL_KIND_PREFIX)
        many = me + !(flags & OCCL_KIND_EXCLUSIVE);
    for (uint32_t i = 0; i < many; i++) {
        const int64_t *from = payload_of(m, i);
        if (from == NULL && !missing(m, i))
            return;
        for (uint64_t e = 0; e < count; e++)
            if (flags & OCCL_KIND_REDUCES)
                out[e] = (i > 0 ? out[e] : 0) + from[at + e];
            else
                out[i * count + e] = from[at + e];
    }
}

int sim_payload_result(const struct sim_member *m, const struct occl_look *look) {
    bool needs_source = m->traits->flags & OCCL_KIND_SOURCE;
    uint64_t sources = look->source_mask;
    uint64_t others = m->alone_bits ? look->alone_mask : sources ? sources : look->ready_mask;
    uint32_t other;
    if (occl_record_mismatch(m->record, others & ~(1ull << m->line_index), m->line_index, &other) !=
        OCCL_FIELD_NONE) {
        sim_payload_tell(m, look);
        return OCCL_E_MISMATCH;
    }
    bool whole = needs_source ? sources != 0 : sources == 0;
    if (m->op->vectors != NULL && whole)
        return result_of_vectors(m,
                                 m->alone_bits ? 1ull << m->line_index
                                 : sources     ? sources
                                               : look->ready_mask,
                                 look->alone_mask);
    if (m->request->out == NULL || m->request->receives == 0)
        return OCCL_OK;
    if (!whole)
        sim_broken(m->cluster, "source: job %u op %u has none", m->op->job, m->op->number);
    else
        take_blocks(m, needs_source ? sources : 0);
    return OCCL_OK;
}
