/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what a tenant wrote. They see private copies only. */
#include "daemon/engine/internal.h"

int occl_eng_check_signature(const struct occl_signature *sig, uint32_t ranks,
                             uint64_t *out_bytes) {
    uint64_t element = occl_dtype_bytes(sig->dtype);
    if (sig->program_id != 0 || sig->reserved != 0)
        return OCCL_E_INVALID;
    switch (sig->kind) {
    case OCCL_OP_ALL_REDUCE:
        if (!occl_movers_supports(sig->dtype, sig->redop) || sig->root != 0)
            return OCCL_E_INVALID;
        break;
    case OCCL_OP_BROADCAST:
    case OCCL_OP_SEND:
    case OCCL_OP_RECV:
        if (element == 0 || sig->redop != 0 || sig->root >= ranks)
            return OCCL_E_INVALID;
        break;
    case OCCL_OP_BARRIER:
        if (sig->dtype != 0 || sig->redop != 0 || sig->root != 0 || sig->count != 0)
            return OCCL_E_INVALID;
        break;
    default:
        return OCCL_E_INVALID;
    }
    /* The bound of occl_local_plan_make; no sum of offsets and lengths overflows below it. */
    if (element && sig->count >= (1ull << 62) / element)
        return OCCL_E_INVALID;
    *out_bytes = sig->count * element;
    return OCCL_OK;
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

/* The ranges of one rank's own buffers: the same place (in place) or disjoint. */
static bool check_overlap(const struct occl_sqe *sqe, uint64_t bytes) {
    const struct occl_buffer_ref *a = &sqe->src, *b = &sqe->dst;
    if (a->space != b->space || a->space == OCCL_SPACE_NONE)
        return true;
    if (a->space == OCCL_SPACE_REGION && a->region != b->region)
        return true;
    uint64_t distance = a->offset > b->offset ? a->offset - b->offset : b->offset - a->offset;
    return distance == 0 || distance >= bytes;
}

int occl_eng_check_sqe(const struct occl_sqe *sqe, uint32_t ranks, uint32_t rank,
                       uint64_t *out_bytes) {
    uint64_t bytes;
    if (sqe->flags > OCCL_SQE_OVER_QUOTA || sqe->reserved[0] != 0 || sqe->reserved[1] != 0 ||
        sqe->reserved[2] != 0 || (sqe->priority > 3 && sqe->priority != 255))
        return OCCL_E_INVALID;
    int status = occl_eng_check_signature(&sqe->signature, ranks, &bytes);
    if (status != OCCL_OK)
        return status;
    if (!check_key(sqe, ranks, rank) || !check_overlap(sqe, bytes))
        return OCCL_E_INVALID;
    *out_bytes = bytes;
    return OCCL_OK;
}

bool occl_eng_needs_src(uint32_t kind, uint32_t root, uint32_t index) {
    return kind == OCCL_OP_ALL_REDUCE || (kind == OCCL_OP_BROADCAST && index == root) ||
           ((kind == OCCL_OP_SEND || kind == OCCL_OP_RECV) && index == 0);
}

bool occl_eng_needs_dst(uint32_t kind, uint32_t root, uint32_t index,
                        const struct occl_buffer_ref *dst) {
    /* A root that works in place names no output; one that works out of place gets its copy. */
    return kind == OCCL_OP_ALL_REDUCE ||
           (kind == OCCL_OP_BROADCAST && (index != root || dst->space != OCCL_SPACE_NONE)) ||
           ((kind == OCCL_OP_SEND || kind == OCCL_OP_RECV) && index == 1);
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

uint32_t occl_eng_class_of(const struct occl_eng_comm *comm, uint32_t priority) {
    uint32_t job_class = occl_peek32(&comm->job->job_class);
    uint32_t granted = comm->priority > 3 ? job_class : comm->priority;
    if (priority > 3)
        return granted;
    /* What a rank asks for an op may not exceed what the control side has granted. */
    uint32_t most = granted > job_class ? granted : job_class;
    return priority < most ? priority : most;
}
