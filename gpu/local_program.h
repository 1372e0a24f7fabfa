/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of one node: an op whose members all live in one address space is a set of strands of
 * one step each, independent of each other. Whoever is there claims strand numbers
 * (occl_record_claim_strand) and runs them, so every executor must compute the same plan: it is a
 * pure function of the signature and the number of members, and strands are computed from their
 * number, never stored.
 *
 *   all-reduce   strand i: read bytes [o, o + n) of every input, write them to every output
 *   broadcast    strand i: copy the range of the root's input to every output
 *   send, recv   strand i: copy the range of member 0 (sender) to member 1 (receiver)
 *   barrier, or no bytes: no strands; the op is complete when all have arrived
 *
 * One strand is one slice: the executor gives the core back between two of them. Index function
 * (why a plan cannot get stuck): every strand has index 0, no links and no dependencies, so the
 * dependency graph has no edges at all. */
#ifndef GPU_LOCAL_PROGRAM_H
#define GPU_LOCAL_PROGRAM_H

#include "gpu/exec.h"
#include "gpu/host/reduce.h"
#include "shm_ipc/abi.h"
#include "shm_ipc/status.h"

#define OCCL_LOCAL_STRANDS_MAX (1u << 24)

struct occl_local_plan {
    uint64_t total_bytes;   /* per rank */
    uint64_t slice_bytes;   /* of every strand but the last; a multiple of 64 */
    uint64_t traffic_bytes; /* of the whole op: what is charged */
    uint32_t strand_count;
    uint32_t member_count;
    uint32_t root;
    uint8_t kind; /* enum occl_op_kind; send and recv both appear as OCCL_OP_SEND */
    uint8_t dtype;
    uint8_t redop;
    uint8_t element_bytes;
};

/* Plans the op of `sig` among `members` ranks of a node (2 for send and recv, also to oneself).
 * Pure. OCCL_OK, or OCCL_E_INVALID and *out untouched: unknown kind, type or operator, members not
 * in 1..OCCL_LOCAL_RANKS_MAX, root out of range, count x element size of 2^62 bytes or more. */
int occl_local_plan_make(const struct occl_signature *sig, uint32_t members,
                         struct occl_local_plan *out);

/* Byte range of strand `index` (below strand_count) in every buffer. Pure. */
static inline uint64_t occl_local_strand_range(const struct occl_local_plan *plan, uint32_t index,
                                               uint64_t *out_bytes) {
    uint64_t offset = index * plan->slice_bytes;
    uint64_t rest = plan->total_bytes - offset;
    *out_bytes = rest < plan->slice_bytes ? rest : plan->slice_bytes;
    return offset;
}

/* Traffic of one strand: what its executor charges. */
static inline uint64_t occl_local_strand_traffic(const struct occl_local_plan *plan,
                                                 uint32_t index) {
    uint64_t bytes;
    (void)occl_local_strand_range(plan, index, &bytes);
    return bytes * (plan->traffic_bytes / plan->total_bytes);
}

/* OCCL_MOVE_NONTEMPORAL where stores that go around the caches are faster, else 0. cache_bytes:
 * occl_movers_cache_bytes. in_place: some member's output is its input; those lines are cached. */
uint32_t occl_local_move_flags(const struct occl_local_plan *plan, uint64_t cache_bytes,
                               bool in_place);

/* The step of strand `index`: chunk `index` of a program whose chunks are slices. */
void occl_local_strand_step(const struct occl_local_plan *plan, uint32_t index,
                            struct occl_step *out_step);

/* Addresses of the op's buffers in the executor's address space. */
struct occl_local_buffers {
    const void *const *inputs; /* member_count; NULL where the member's input is not read */
    void *const *outputs; /* member_count; NULL where the member has no output (a broadcast root) */
    uint32_t move_flags;  /* OCCL_MOVE_... */
};

/* Executes strand `index` whole, through occl_exec_run: the one way in which lanes and client
 * threads touch the bytes of a local op. Neither blocks nor allocates; takes one slice of time. The
 * caller guarantees total_bytes behind each address, guards against SIGBUS and keeps the default
 * floating-point environment. OCCL_OK, or OCCL_E_INVALID when an address that is needed is NULL. */
int occl_local_strand_run(const struct occl_local_plan *plan, uint32_t index,
                          const struct occl_movers *movers,
                          const struct occl_local_buffers *buffers);

#endif
