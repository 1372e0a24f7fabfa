/* SPDX-License-Identifier: Apache-2.0 */
/* How the peers and the daemon reach this rank's buffers: a region as it is; private memory by
 * cross-memory attach inside the job; a copy in the process's room where that is quicker, and in a
 * staging region where neither works. */
#include "client_lib/client.h"
#include "client_lib/memory.h"

/* Up to so many bytes a copy is quicker whatever the pages are, and up to welcome.copy_max_bytes
 * with ordinary pages (pages.c). Measured on 2 cores, all-reduce, microseconds with a copy and
 * without: 8 ranks, 256 KiB 71 and 196 in ordinary pages, 70 and 198 in huge ones; 1 MiB 456 and
 * 846, 458 and 351; 2 ranks, 1 MiB 59 and 99, 60 and 51. */
#define COPY_ALL_PAGES_BYTES (256u << 10)

static bool copy_is_quicker(const struct client_op *op, const void *ptr, uint64_t bytes,
                            bool is_input) {
    if (is_input && client_source_executes(op))
        return false;
    if (!op->comm->copies || bytes > occl_lib.welcome.copy_max_bytes || op->vector ||
        op->payload_bytes <= client_direct_max())
        return false; /* (between the blocks of a vector may be anything) */
    return bytes <= COPY_ALL_PAGES_BYTES || !client_range_huge(ptr, bytes);
}

static int refer_one(struct client_op *op, const void *ptr, bool is_input, bool must_share,
                     struct occl_buffer_ref *out_ref) {
    struct client_region **region = is_input ? &op->src_region : &op->dst_region;
    uint64_t bytes = is_input ? op->send_bytes : op->recv_bytes;
    uint64_t offset;
    *region = client_region_of(ptr, bytes, &offset);
    if (*region) {
        *out_ref = (struct occl_buffer_ref){OCCL_SPACE_REGION, (*region)->number, offset};
        return OCCL_OK;
    }
    struct client_stage *stage = NULL;
    if (op->comm->cma && !must_share) {
        if (copy_is_quicker(op, ptr, bytes, is_input))
            stage = client_copies_take(bytes);
        if (!stage) {
            *out_ref = (struct occl_buffer_ref){OCCL_SPACE_PRIVATE, 0, (uintptr_t)ptr};
            return OCCL_OK;
        }
    } else {
        stage = client_stage_get(bytes);
        if (!stage)
            return client_error_status();
    }
    *(is_input ? &op->stage_in : &op->stage_out) = stage;
    if (is_input) {
        void *to = stage->base;
        struct occl_copy_job job = {bytes, op->send, 1, 0, &to};
        occl_lib.movers->copy(&job);
        client_charge(op, 2 * bytes);
    }
    *out_ref = (struct occl_buffer_ref){OCCL_SPACE_REGION, stage->region->number, stage->offset};
    return OCCL_OK;
}

int client_refer(struct client_op *op, bool input, bool must_share) {
    int status = OCCL_OK;
    op->src = op->dst = (struct occl_buffer_ref){OCCL_SPACE_NONE, 0, 0};
    if (op->send && op->send_bytes && input)
        status = refer_one(op, op->send, true, must_share, &op->src);
    if (status == OCCL_OK && op->recv && op->recv_bytes)
        status = refer_one(op, op->recv, false, must_share, &op->dst);
    return status;
}

bool client_refer_briefly(struct client_op *op) {
    op->dst = (struct occl_buffer_ref){OCCL_SPACE_NONE, 0, 0};
    if (!op->blocking)
        return false;
    if (!op->recv || op->recv_bytes == 0 || client_region_place(op->recv, op->recv_bytes, &op->dst))
        return true;
    op->dst = (struct occl_buffer_ref){OCCL_SPACE_PRIVATE, 0, (uintptr_t)op->recv};
    return op->comm->cma;
}

static void copy_part(const struct client_op *op, uint64_t offset, uint64_t bytes) {
    void *to = (char *)op->recv + offset;
    struct occl_copy_job job = {bytes, op->stage_out->base + offset, 1, 0, &to};
    occl_lib.movers->copy(&job);
    client_charge(op, 2 * bytes);
}

/* The result from its copy. What lies between blocks is the caller's. */
static void copy_back(const struct client_op *op) {
    bool is_root = occl_kind_is_root(op->traits, op->sig.root, op->line_index);
    uint32_t extent = is_root ? op->traits->recv_root : op->traits->recv_other;
    if (!op->vector || extent != OCCL_EXTENT_ALL) {
        copy_part(op, 0, op->recv_bytes);
        return;
    }
    uint64_t element = occl_dtype_bytes(op->sig.dtype);
    for (uint32_t i = 0; i < op->members; i++)
        copy_part(op, element * occl_vector_at(op->vector, op->members, OCCL_VECTOR_RECV_AT, i),
                  element * occl_vector_at(op->vector, op->members, OCCL_VECTOR_RECV_COUNT, i));
}

/* The daemon says that it has ended the session before it takes the memory away, which then reads
 * as zeros: a copy that came too late is no result. */
static int copy_stood(void) {
    occl_read_fence();
    switch (occl_observe32(&occl_lib.page->session_state)) {
    case OCCL_SESSION_QUARANTINED:
        return OCCL_E_QUARANTINED;
    case OCCL_SESSION_CLOSED:
        return OCCL_E_DAEMON_LOST;
    default:
        return OCCL_OK;
    }
}

static void put(struct client_stage *stage) {
    if (stage && stage->units)
        client_copies_put(stage);
    else
        client_stage_put(stage);
}

/* Somebody who is stopped may still write there. (Units that are not given back are never used
 * again.) */
static void quarantine(struct client_stage *stage) {
    if (stage && !stage->units)
        client_stage_quarantine(stage);
}

int client_unrefer(struct client_op *op, bool copy_out) {
    int status = OCCL_OK;
    if (copy_out && op->stage_out) {
        if (!op->collected)
            copy_back(op);
        status = copy_stood();
    }
    if (op->src_region || op->dst_region) {
        struct client_region *regions[2] = {op->src_region, op->dst_region};
        client_regions_unuse(regions, 2);
    }
    put(op->stage_in);
    client_vector_unshare(op);
    if (op->may_write_rank == OCCL_RANK_NONE)
        put(op->stage_out);
    else
        quarantine(op->stage_out);
    op->src_region = op->dst_region = NULL;
    op->stage_in = op->stage_out = NULL;
    return status;
}
