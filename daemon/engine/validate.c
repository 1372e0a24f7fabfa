/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what a tenant wrote. They see private copies only. */
#include "daemon/engine/internal.h"

int occl_eng_check_signature(const struct occl_signature *sig, uint32_t ranks,
                             uint64_t *out_bytes) {
    const struct occl_kind_traits *traits = occl_kind_traits(sig->kind);
    uint64_t element = 0;
    if (sig->program_id != 0 || sig->reserved != 0 || !traits)
        return OCCL_E_INVALID;
    if (traits->flags & OCCL_KIND_TYPED) {
        element = occl_dtype_bytes(sig->dtype);
        if (element == 0)
            return OCCL_E_INVALID;
    } else if (sig->dtype != 0) {
        return OCCL_E_INVALID;
    }
    bool counted = (traits->flags & (OCCL_KIND_TYPED | OCCL_KIND_VECTOR)) == OCCL_KIND_TYPED;
    if (!counted && sig->count != 0)
        return OCCL_E_INVALID;
    if (traits->flags & OCCL_KIND_REDUCES ? !occl_movers_supports(sig->dtype, sig->redop)
                                          : sig->redop != 0)
        return OCCL_E_INVALID;
    if (traits->flags & (OCCL_KIND_ROOTED | OCCL_KIND_PAIR) ? sig->root >= ranks : sig->root != 0)
        return OCCL_E_INVALID;
    return occl_kind_block_bytes(traits, sig->count, element, out_bytes) ? OCCL_OK : OCCL_E_INVALID;
}

static bool check_key(const struct occl_sqe *sqe, uint32_t ranks, uint32_t rank) {
    uint8_t kind = sqe->signature.kind;
    if (sqe->key.tag >= OCCL_TAG_LIMIT)
        return false;
    if (kind != OCCL_OP_SEND && kind != OCCL_OP_RECV)
        return sqe->key.peers == OCCL_PEERS_ALL;
    uint32_t source = sqe->key.peers >> 16, destination = sqe->key.peers & 0xffffu;
    if (source >= ranks || destination >= ranks || sqe->signature.root != destination)
        return false;
    return rank == (kind == OCCL_OP_SEND ? source : destination);
}

/* The ranges of one rank's own buffers: in place as its kind has it, or disjoint. What overlaps
 * with a vector makes wrong bytes for that rank, and is the client's to refuse. */
static bool check_overlap(const struct occl_sqe *sqe, uint32_t ranks, uint32_t rank,
                          uint64_t block) {
    const struct occl_kind_traits *traits = occl_kind_traits(sqe->signature.kind);
    const struct occl_buffer_ref *src = &sqe->src, *dst = &sqe->dst;
    uint32_t root = sqe->signature.root;
    if (traits->flags & (OCCL_KIND_PAIR | OCCL_KIND_VECTOR) || src->space != dst->space ||
        src->space == OCCL_SPACE_NONE)
        return true;
    if (src->space == OCCL_SPACE_REGION && src->region != dst->region)
        return true;
    uint64_t sends = occl_kind_send_bytes(traits, root, rank, ranks, block);
    uint64_t receives = occl_kind_recv_bytes(traits, root, rank, ranks, block);
    uint64_t in_place = dst->offset + (uint64_t)occl_kind_in_place(traits, root, rank, block);
    if (sends == 0 || receives == 0 || src->offset == in_place)
        return true;
    return src->offset >= dst->offset ? src->offset - dst->offset >= receives
                                      : dst->offset - src->offset >= sends;
}

int occl_eng_check_sqe(const struct occl_sqe *sqe, uint32_t ranks, uint32_t rank,
                       uint64_t *out_bytes) {
    uint64_t bytes;
    if (sqe->flags > OCCL_SQE_CANCELED || (sqe->priority > 3 && sqe->priority != 255))
        return OCCL_E_INVALID;
    int status = occl_eng_check_signature(&sqe->signature, ranks, &bytes);
    if (status != OCCL_OK)
        return status;
    /* What the op does not have must be 0. */
    bool vector = sqe->vector.space != 0 || sqe->vector.region != 0 || sqe->vector.offset != 0;
    if ((vector && !(occl_kind_traits(sqe->signature.kind)->flags & OCCL_KIND_VECTOR)) ||
        (sqe->factor != 0 && sqe->signature.redop != OCCL_RO_PREMULSUM))
        return OCCL_E_INVALID;
    if (!check_key(sqe, ranks, rank) || !check_overlap(sqe, ranks, rank, bytes))
        return OCCL_E_INVALID;
    *out_bytes = bytes;
    return OCCL_OK;
}

static int resolve_payload(const struct occl_eng_comm *comm, uint32_t rank, uint64_t offset,
                           uint64_t bytes, void **out_address) {
    const struct occl_records *r = &comm->records;
    uint64_t first = r->payload_offset + (uint64_t)rank * r->payload_stride;
    if (offset < first || offset - first > r->payload_stride ||
        bytes > r->payload_stride - (offset - first))
        return OCCL_E_FAULT;
    *out_address = r->base + offset;
    return OCCL_OK;
}

int occl_eng_resolve(const struct occl_eng_comm *comm, uint32_t rank,
                     const struct occl_buffer_ref *ref, uint64_t bytes, void **out_address,
                     uint32_t *out_region) {
    *out_region = OCCL_ENG_REGION_NONE;
    switch (ref->space) {
    case OCCL_SPACE_REGION: {
        const struct occl_eng_map_entry *e = occl_eng_map_find(&comm->job->regions, ref->region);
        if (!e || ref->offset > e->extra || bytes > e->extra - ref->offset)
            return OCCL_E_FAULT;
        *out_address = (char *)e->value + ref->offset;
        *out_region = ref->region;
        return OCCL_OK;
    }
    case OCCL_SPACE_PAYLOAD:
        return resolve_payload(comm, rank, ref->offset, bytes, out_address);
    default:
        /* OCCL_SPACE_PRIVATE, too: the daemon never touches a tenant's address space. */
        return OCCL_E_INVALID;
    }
}

/* Finds and measures a member's vector. */
static int resolve_vector(const struct occl_eng_comm *comm, uint32_t rank,
                          const struct occl_signature *sig, uint32_t index, uint32_t members,
                          const struct occl_buffer_ref *ref, struct occl_eng_sides *out,
                          struct occl_kind_sizes *out_sizes) {
    uint64_t vector[OCCL_VECTOR_NUMBERS_MAX];
    void *address;
    int status = occl_eng_resolve(comm, rank, ref, occl_vector_bytes(members), &address,
                                  &out->vector_region);
    if (status != OCCL_OK)
        return status;
    if ((uintptr_t)address % sizeof(uint64_t) != 0)
        return OCCL_E_INVALID;
    out->vector = address;
    status = occl_eng_vector_copy(address, members, vector);
    if (status == OCCL_OK &&
        !occl_kind_measure(occl_kind_traits(sig->kind), sig->root, index, members, 0,
                           (uint32_t)occl_dtype_bytes(sig->dtype), vector, out_sizes))
        status = OCCL_E_INVALID;
    return status;
}

int occl_eng_resolve_sides(const struct occl_eng_comm *comm, uint32_t rank,
                           const struct occl_signature *sig, uint32_t index, uint32_t members,
                           const struct occl_buffer_ref *src, const struct occl_buffer_ref *dst,
                           const struct occl_buffer_ref *vector, struct occl_eng_sides *out) {
    const struct occl_kind_traits *traits = occl_kind_traits(sig->kind);
    uint32_t element = (uint32_t)occl_dtype_bytes(sig->dtype);
    struct occl_kind_sizes sizes = {0, 0, 0};
    int status = OCCL_OK;
    *out = (struct occl_eng_sides){.src_region = OCCL_ENG_REGION_NONE,
                                   .dst_region = OCCL_ENG_REGION_NONE,
                                   .vector_region = OCCL_ENG_REGION_NONE};
    if (traits->flags & OCCL_KIND_VECTOR)
        status = resolve_vector(comm, rank, sig, index, members, vector, out, &sizes);
    else if (traits->flags & OCCL_KIND_TYPED)
        (void)occl_kind_measure(traits, sig->root, index, members, sig->count * element, element,
                                NULL, &sizes);
    bool left_out =
        dst->space == OCCL_SPACE_NONE && occl_kind_recv_optional(traits, sig->root, index);
    out->src_bytes = sizes.send_bytes;
    out->dst_bytes = sizes.recv_bytes;
    if (status == OCCL_OK && sizes.send_bytes)
        status = occl_eng_resolve(comm, rank, src, sizes.send_bytes, &out->src, &out->src_region);
    if (status == OCCL_OK && sizes.recv_bytes && !left_out)
        status = occl_eng_resolve(comm, rank, dst, sizes.recv_bytes, &out->dst, &out->dst_region);
    return status;
}

uint32_t occl_eng_class_of(const struct occl_eng_comm *comm, uint32_t priority) {
    uint32_t job_class = occl_peek32(&comm->job->job_class);
    uint32_t granted = comm->priority > 3 ? job_class : comm->priority;
    if (priority > 3)
        return granted;
    /* What a rank asks for an op may not exceed what the control side has granted. */
    uint32_t most = granted > job_class ? granted : job_class;
    return priority < most ? priority : most;
}
