/* SPDX-License-Identifier: Apache-2.0 */
/* The one form in which anything is executed: what one rank (or one node, for its local members)
 * does for an op. Built-in builders, MSCCL XML and Chakra ET are lowered to it; lanes, client
 * threads, GPU blocks and the simulator interpret it with gpu/exec.h.
 *
 *   program   strands + links + chunk counts of the buffers
 *   strand    sequential list of steps; at most one link to send on and one to receive from
 *   link      one end of a connector: (peer, channel, direction, depth in slots)
 *   step      one transfer or local operation on a range of chunks
 *
 * Buffers and operands. Each local member m has an input, an output and a scratch buffer, cut into
 * chunks of geometry.chunk_bytes. Operand i of `src_count` lies in the src buffer of member
 * src_member + i * src_member_stride at chunk src_chunk + i * src_chunk_stride; outputs likewise.
 * So reduce-N over N members, reduce of N chunks of one buffer and copy 1 -> N are one notation. A
 * program of a single rank uses member 0 only.
 *
 * Meaning, with `in` the next message of the strand's receive link, `out` the next of its send link
 * and op the operator of the call (program and step never carry type or operator):
 *
 *   NOP                    only the dependency
 *   SEND                   out = src
 *   RECV                   dst = in
 *   RECV_REDUCE            dst = in op src
 *   RECV_COPY_SEND         dst = in; out = in
 *   RECV_REDUCE_SEND       out = in op src
 *   RECV_REDUCE_COPY_SEND  dst = in op src; out = the same
 *   REDUCE                 dst = src[0] op src[1] op ...  (ACCUMULATE: dst op src[0] op ...)
 *   COPY                   dst = src
 *
 * Every dst may be several outputs. All sources of an element are read before any output of it is
 * written, so an output may be the same place as an input; partial overlap is forbidden.
 *
 * Iterations and messages. A call runs the step list once per *iteration*; iteration k handles
 * slice k of every chunk, so iterations never touch each other's bytes. A step of `chunks` chunks
 * moves them in ceil(chunks / chunks_per_message) *messages* per iteration; each message is one
 * contiguous range and fits a connector slot. One message is one slice: executed whole, then
 * published. The k-th message sent on a link is the k-th received at its other end.
 *
 * Dependencies. A step may wait for one step of another strand of the same program, of the same
 * iteration; further ones are NOPs before it. Steps complete in order inside a strand.
 *
 * Dual header: gnu11 (C++ compatible), C++ and CUDA. No pointer in here is shared between address
 * spaces; an executor on a device gets copies with device addresses. */
#ifndef GPU_STEP_H
#define GPU_STEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define OCCL_DUAL static inline __host__ __device__
#else
#define OCCL_DUAL static inline
#endif
#ifdef __cplusplus
#define OCCL_DUAL_ASSERT(condition, text) static_assert(condition, text)
#else
#define OCCL_DUAL_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#define OCCL_STEP_NONE 0xffffffffu /* no link, no dependency */

enum occl_step_kind {
    OCCL_STEP_NOP = 0,
    OCCL_STEP_SEND = 1,
    OCCL_STEP_RECV = 2,
    OCCL_STEP_RECV_REDUCE = 3,
    OCCL_STEP_RECV_COPY_SEND = 4,
    OCCL_STEP_RECV_REDUCE_SEND = 5,
    OCCL_STEP_RECV_REDUCE_COPY_SEND = 6,
    OCCL_STEP_REDUCE = 7,
    OCCL_STEP_COPY = 8
};
#define OCCL_STEP_KIND_LIMIT 9

enum occl_step_buffer {
    OCCL_BUFFER_NONE = 0,
    OCCL_BUFFER_INPUT = 1,
    OCCL_BUFFER_OUTPUT = 2,
    OCCL_BUFFER_SCRATCH = 3
};

/* The reduced result is final: whatever the operator does once at the end (the division of an
 * average) is done here. On exactly one step of each element's way, chosen by the builder. */
#define OCCL_STEP_FINISH 1u
/* REDUCE: the first output is also operand 0. */
#define OCCL_STEP_ACCUMULATE 2u
/* REDUCE with as many outputs as operands: dst[i] = src[0] op ... op src[i]; EXCLUSIVE, which goes
 * with PREFIX: ... op src[i - 1], and dst[0] is left alone. */
#define OCCL_STEP_PREFIX 4u
#define OCCL_STEP_EXCLUSIVE 8u

struct occl_step {
    uint8_t kind;       /* enum occl_step_kind */
    uint8_t src_buffer; /* enum occl_step_buffer */
    uint8_t dst_buffer;
    uint8_t flags; /* OCCL_STEP_FINISH, ... */
    uint32_t chunks;
    uint32_t src_chunk;
    uint32_t dst_chunk;
    uint16_t src_count; /* operands; 0 where the kind reads nothing local */
    uint16_t dst_count; /* outputs; 0 where the kind writes nothing local */
    uint16_t src_member;
    uint16_t dst_member;
    uint16_t src_member_stride;
    uint16_t dst_member_stride;
    uint32_t src_chunk_stride;
    uint32_t dst_chunk_stride;
    uint32_t dep_strand; /* OCCL_STEP_NONE: no dependency */
    uint32_t dep_step;
    uint32_t reserved; /* 0 */
};
OCCL_DUAL_ASSERT(sizeof(struct occl_step) == 48, "a step stays within one cache line");

struct occl_strand {
    uint32_t first_step; /* into program.steps */
    uint32_t step_count;
    uint32_t send_link; /* into program.links, or OCCL_STEP_NONE */
    uint32_t recv_link;
};

enum occl_link_direction { OCCL_LINK_SEND = 0, OCCL_LINK_RECV = 1 };

/* One end of a connector. A (peer, channel, direction) occurs once in a program; several strands
 * may carry the same channel number, with different peers or directions. */
struct occl_link {
    uint32_t peer;
    uint16_t channel;
    uint8_t direction; /* enum occl_link_direction */
    uint8_t reserved;
    uint32_t depth_slots; /* what the program needs so that it cannot get stuck when run alone */
};

/* The chunk index means the same part of the collective's data at both ends of every message, so a
 * size that does not divide into chunks is served by clipping at the end of the user buffers. */
#define OCCL_PROGRAM_CLIPS 1u
#define OCCL_PROGRAM_IN_PLACE 2u     /* may be used with input = output */
#define OCCL_PROGRAM_OUT_OF_PLACE 4u /* may be used with separate buffers */

/* Owned by whoever built it; constant while anybody executes it. */
struct occl_program {
    const struct occl_step *steps;
    const struct occl_strand *strands;
    const struct occl_link *links;
    uint32_t step_count;
    uint32_t strand_count;
    uint32_t link_count;
    uint32_t member_count; /* local members whose buffers it names */
    uint32_t chunks;       /* the larger user buffer is cut into so many */
    uint32_t input_chunks;
    uint32_t output_chunks;
    uint32_t scratch_chunks;
    uint32_t flags; /* OCCL_PROGRAM_... */
    uint32_t reserved;
};

/* How one call cuts its bytes. All members of the op compute the same one: it depends on the
 * program's chunk count, the call and the slot size, which travel in the signature and program id.
 */
struct occl_geometry {
    uint64_t chunk_bytes;
    uint64_t slice_bytes; /* of a chunk handled by one iteration */
    uint64_t clip_bytes;  /* end of the user buffers; scratch is never clipped */
    uint32_t iterations;
    uint32_t chunks_per_message;
};

OCCL_DUAL int occl_step_receives(uint32_t kind) {
    return kind >= OCCL_STEP_RECV && kind <= OCCL_STEP_RECV_REDUCE_COPY_SEND;
}

OCCL_DUAL int occl_step_sends(uint32_t kind) {
    return kind == OCCL_STEP_SEND ||
           (kind >= OCCL_STEP_RECV_COPY_SEND && kind <= OCCL_STEP_RECV_REDUCE_COPY_SEND);
}

/* Whether the kind combines values (as opposed to moving them). */
OCCL_DUAL int occl_step_reduces(uint32_t kind) {
    return kind == OCCL_STEP_RECV_REDUCE || kind == OCCL_STEP_RECV_REDUCE_SEND ||
           kind == OCCL_STEP_RECV_REDUCE_COPY_SEND || kind == OCCL_STEP_REDUCE;
}

/* Cuts a call of buffer_bytes (the larger user buffer) for a program of `chunks` chunks and
 * connector slots of slot_bytes. element_bytes is a power of two. Pure. Returns 1 and fills *out,
 * or 0 where the call cannot be cut: a slot below one element, an uneven size while clips is 0, or
 * more than 2^32 - 1 iterations. Zero bytes give no iteration at all. */
OCCL_DUAL int occl_geometry_make(uint64_t buffer_bytes, uint64_t element_bytes, uint32_t chunks,
                                 uint64_t slot_bytes, int clips, struct occl_geometry *out) {
    uint64_t slot, chunk, unit, iterations, per_message;
    if (chunks == 0 || element_bytes == 0 || slot_bytes < element_bytes ||
        buffer_bytes % element_bytes != 0)
        return 0;
    slot = slot_bytes - slot_bytes % element_bytes;
    if (slot_bytes >= 64)
        slot = slot_bytes - slot_bytes % 64; /* keeps slices off shared cache lines */
    chunk = buffer_bytes / chunks;
    if (buffer_bytes % chunks != 0 || chunk % element_bytes != 0) {
        if (!clips)
            return 0;
        unit = buffer_bytes / chunks >= 4096 ? 64 : element_bytes;
        chunk = (buffer_bytes / chunks / unit + 1) * unit;
    }
    out->chunk_bytes = chunk;
    out->clip_bytes = buffer_bytes;
    out->slice_bytes = chunk < slot ? chunk : slot;
    iterations = chunk == 0 ? 0 : (chunk + out->slice_bytes - 1) / out->slice_bytes;
    if (iterations > 0xffffffffu)
        return 0;
    out->iterations = (uint32_t)iterations;
    per_message = iterations == 1 ? slot / chunk : 1;
    out->chunks_per_message = per_message > chunks ? chunks : (uint32_t)per_message;
    if (out->chunks_per_message == 0)
        out->chunks_per_message = 1;
    return 1;
}

#endif
