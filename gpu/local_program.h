/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of one node: an op whose members all live in one address space is a set of strands that
 * are independent of each other. Whoever is there claims strand numbers
 * (occl_record_claim_strand) and runs them, so every executor must compute the same plan: it is a
 * pure function of the signature, the vectors, the number of members and whether one of them works
 * in place; strands are computed from their number, never stored.
 *
 * The *line* of an op is what there is to do, in bytes, block after block (op_kind.h):
 *
 *   all_reduce      1 block: read it of every input, write the result to every output
 *   reduce          1 block: ... to the root's output
 *   scan, exscan    1 block: member i gets what was combined of members 0..i (0..i-1)
 *   broadcast       1 block: copy the root's input to every output
 *   send, recv      1 block: copy the input of member 0 (sender) to member 1 (receiver)
 *   reduce_scatter  n blocks: block b of every input becomes the output of member b
 *   all_gather      n blocks: the input of member b becomes block b of every output
 *   gather          n blocks: the input of member b becomes block b of the root's output
 *   scatter         n blocks: block b of the root's input becomes the output of member b
 *   all_to_all      n x n blocks: block j of input i becomes block i of output j; with somebody in
 *                   place n (n + 1) / 2 blocks, each of which exchanges (i, j) and (j, i)
 *   ..._v           the same with blocks of different sizes, as the members' vectors say; an
 * exchange goes on until the longer one of its two blocks is done barrier, fan_in, fan_out, or no
 * bytes: no strands; the op is complete when all have arrived
 *
 * A strand is a stretch of the line and so one or more *pieces*, each inside one block. One strand
 * is one slice: the executor gives the core back between two of them. Index function (why a plan
 * cannot get stuck): every strand has index 0, no links and no dependencies, so the dependency
 * graph has no edges at all. */
#ifndef GPU_LOCAL_PROGRAM_H
#define GPU_LOCAL_PROGRAM_H

#include "gpu/exec.h"
#include "gpu/host/reduce.h"
#include "shm_ipc/op_kind.h"
#include "shm_ipc/status.h"

#define OCCL_LOCAL_STRANDS_MAX (1u << 24)
/* Longest piece of an exchange: it goes through scratch. */
#define OCCL_LOCAL_EXCHANGE_BYTES 4096u

/* The vectors of an op's members, checked copies. */
struct occl_local_vectors {
    const uint64_t *of[OCCL_LOCAL_RANKS_MAX];
};

struct occl_local_plan {
    const struct occl_local_vectors *vectors; /* NULL: all blocks have block_bytes */
    uint64_t block_bytes;
    uint64_t total_bytes;   /* of the line */
    uint64_t slice_bytes;   /* of every strand but the last; a multiple of 64 */
    uint64_t traffic_bytes; /* of the whole op: what is charged */
    uint32_t strand_count;
    uint32_t member_count;
    uint32_t root;
    uint32_t sides; /* bytes read and written per byte of the line */
    uint8_t kind;   /* enum occl_op_kind; send and recv both appear as OCCL_OP_SEND */
    uint8_t dtype;
    uint8_t redop;
    uint8_t element_bytes;
    bool exchanges; /* all_to_all(_v) with a member in place */
};

/* Plans the op of `sig` among `members` ranks of a node (2 for send and recv, also to oneself).
 * in_place: a member's send and receive buffer are one. vectors: of a kind that has them, constant
 * while the plan is used; else NULL. Pure. OCCL_OK, or OCCL_E_INVALID and *out untouched: unknown
 * kind, type or operator, members not in 1..OCCL_LOCAL_RANKS_MAX, root out of range, more bytes
 * than occl_kind_block_bytes allows, vectors that do not agree. */
int occl_local_plan_make(const struct occl_signature *sig, uint32_t members, bool in_place,
                         const struct occl_local_vectors *vectors, struct occl_local_plan *out);

/* Stretch of the line of strand `index` (below strand_count). Pure. */
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
    return bytes * plan->sides;
}

/* OCCL_MOVE_NONTEMPORAL where stores that go around the caches are faster, else 0. cache_bytes:
 * occl_movers_cache_bytes. in_place: some member's output is its input; those lines are cached. */
uint32_t occl_local_move_flags(const struct occl_local_plan *plan, uint64_t cache_bytes,
                               bool in_place);

/* Whether the strands combine values, as opposed to moving them. */
bool occl_local_reduces(const struct occl_local_plan *plan);

/* A part of a strand inside one block of the line: `bytes` at `offset` of src_block in the inputs
 * of src_count members from src_first on, to dst_block in the outputs of dst_count members from
 * dst_first on. An exchange also moves back_bytes of dst_block of input dst_first to src_block of
 * output src_first; its sources are all read before anything is written. */
struct occl_local_piece {
    uint64_t offset; /* inside the block */
    uint64_t bytes, back_bytes;
    uint32_t src_first, src_count, src_block;
    uint32_t dst_first, dst_count, dst_block;
    uint8_t kind;   /* OCCL_STEP_REDUCE or OCCL_STEP_COPY */
    uint8_t flags;  /* OCCL_STEP_PREFIX, ... */
    bool exchanges; /* two different members */
};

/* A place in the line. */
struct occl_local_walk {
    uint64_t offset; /* inside the block */
    uint32_t block;
    uint32_t from, to; /* all_to_all: the members of the block */
};

/* Goes to byte `at` of the line, below total_bytes. Pure. */
void occl_local_walk_to(const struct occl_local_plan *plan, uint64_t at,
                        struct occl_local_walk *out);
/* The piece that begins there, and goes behind it. Returns how much of the line it is: 1 .. most
 * bytes. */
uint64_t occl_local_walk_next(const struct occl_local_plan *plan, struct occl_local_walk *walk,
                              uint64_t most, struct occl_local_piece *out);

/* Where a block lies in a member's input or output, in bytes. Pure. */
static inline uint64_t occl_local_src_offset(const struct occl_local_plan *plan, uint32_t member,
                                             uint32_t block) {
    return plan->vectors
               ? plan->element_bytes * occl_vector_at(plan->vectors->of[member], plan->member_count,
                                                      OCCL_VECTOR_SEND_AT, block)
               : block * plan->block_bytes;
}
static inline uint64_t occl_local_dst_offset(const struct occl_local_plan *plan, uint32_t member,
                                             uint32_t block) {
    return plan->vectors
               ? plan->element_bytes * occl_vector_at(plan->vectors->of[member], plan->member_count,
                                                      OCCL_VECTOR_RECV_AT, block)
               : block * plan->block_bytes;
}

/* Addresses of the op's buffers in the executor's address space. */
struct occl_local_buffers {
    const void *const *inputs; /* member_count; NULL where the member's input is not read */
    void *const *outputs;    /* member_count; NULL where the member has no output, or is a root that
                                has its own block in place */
    const uint64_t *factors; /* member_count, of a premultiplied sum; else NULL */
    uint32_t move_flags;     /* OCCL_MOVE_... */
};

/* Executes strand `index` whole, through occl_exec_run: the one way in which lanes and client
 * threads touch the bytes of a local op. Neither blocks nor allocates; takes one slice of time. The
 * caller guarantees the bytes of op_kind.h behind each address, guards against SIGBUS and keeps the
 * default floating-point environment. OCCL_OK, or OCCL_E_INVALID when an address that is needed is
 * NULL. */
int occl_local_strand_run(const struct occl_local_plan *plan, uint32_t index,
                          const struct occl_movers *movers,
                          const struct occl_local_buffers *buffers);

#endif
