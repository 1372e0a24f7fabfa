/* SPDX-License-Identifier: Apache-2.0 */
/* Host data movers: the loops that read N buffers, combine them and write the result to M buffers,
 * and that copy one buffer to M. One job is one slice; whoever executes strands calls them.
 *
 * Semantics, the same for every instruction set, position, size, block and alignment, to the bit:
 *
 *  - An element's result is ((src[0] op src[1]) op src[2]) ..., in ascending order of the sources.
 *  - float8e4m3, float8e5m2, float16 and bfloat16 are combined in float32 and rounded once, to
 *    nearest even, at the end; float32 and float64 are combined in their own type. Nothing is
 *    contracted or flushed to zero.
 *  - What rounds beyond the largest number becomes infinity, in float8e4m3, which has none, NaN.
 *  - A NaN result is the canonical quiet one: 0x7f in float8e4m3, 0x7e in float8e5m2, 0x7e00,
 *    0x7fc0, 0x7fc00000, 0x7ff8000000000000.
 *  - Integer SUM, PROD and PREMULSUM wrap modulo 2^bits.
 *  - MIN and MAX of floats follow minimum and maximum of IEEE 754-2019: a NaN in any source gives
 *    NaN, and -0 is less than +0.
 *  - AVG is the sum followed by one division by the divisor: for floats in the type in which they
 *    are combined; for integers the sum is exact and the quotient is truncated toward zero (and
 *    then taken modulo 2^bits, which matters only if the divisor is below the number of sources).
 *    Divisor 0 leaves the division out: the partial sum of an average. Beware that a partial sum
 *    of small floats is rounded, and wraps for integers, as any result.
 *  - PREMULSUM multiplies each source by its factor, in the type in which elements are combined,
 *    rounding each product there, and sums the products.
 *  - BAND, BOR and BXOR are for integers, bit by bit. LAND, LOR and LXOR too: an element other than
 *    0 is true, and the result is 1 or 0, also of one source.
 *  - MINLOC and MAXLOC are for pairs: the pair with the least or the greatest value, among equal
 *    values the one with the lowest index (signed). Values are ordered as MIN and MAX order them,
 *    so a NaN is preferred to every number, among NaNs the index decides, and -0 is less than +0
 *    whatever the indices. A NaN comes out canonical.
 *  - One source alone passes through the same arithmetic: its NaNs become canonical.
 *
 * Floating-point environment: the thread has the default one (round to nearest even, denormals
 * kept, exceptions masked). Threads of the application may not: see gpu/host/fp_env.h.
 *
 * Memory: no pointer needs any alignment, not even that of its element. A source may be the very
 * same buffer as any destination (in place), and may occur twice; partial overlap of a source and
 * a destination, or of two destinations, gives any bytes: a tenant may name such places. Nothing
 * outside count elements is read or written. The tenant may change sources meanwhile: any bytes may
 * result, nothing else. */
#ifndef GPU_HOST_REDUCE_H
#define GPU_HOST_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm_ipc/datatype.h"

#define OCCL_MOVE_SRC_MAX 64 /* ranks of one node that a single pass combines */
#define OCCL_MOVE_DST_MAX 64

/* Flags of both jobs. Non-temporal stores do not read the destination's lines first and leave the
 * cache alone: worth it when all inputs and outputs together exceed the last-level cache, harmful
 * below it and in place. The stores are ordered before any later store of the thread when the call
 * returns. */
#define OCCL_MOVE_NONTEMPORAL UINT32_C(1)

/* Flags of the reduce job; n_dst equals n_src. Destination k receives what a job over the sources
 * 0 .. k (PREFIX) or 0 .. k-1 (PREFIX_EXCLUSIVE, which leaves destination 0 untouched) gives, to
 * the bit; of AVG with a divisor other than 0, divided by the number of these sources. A
 * destination may be NULL: nobody wants that one. Destination k may be the very same buffer as
 * source k, and is disjoint from all others. */
#define OCCL_MOVE_PREFIX UINT32_C(2)
#define OCCL_MOVE_PREFIX_EXCLUSIVE UINT32_C(4)

struct occl_reduce_job {
    uint32_t dtype;         /* enum occl_dtype */
    uint32_t redop;         /* enum occl_redop_kind */
    size_t count;           /* elements; 0 does nothing */
    uint32_t n_src;         /* 1 .. OCCL_MOVE_SRC_MAX */
    uint32_t n_dst;         /* 0 .. OCCL_MOVE_DST_MAX; 0 does nothing */
    const void *const *src; /* n_src addresses */
    void *const *dst;       /* n_dst addresses */
    uint32_t divisor;       /* of AVG, other operators ignore it; 0: no division */
    uint32_t flags;         /* OCCL_MOVE_... */
    /* Of PREMULSUM, one per source; other operators ignore it. The bits of a float32 in the lower
     * half, of a float64 in the whole for that type, or an integer, of which the type takes its
     * lower bits. */
    const uint64_t *factors;
};

struct occl_copy_job {
    size_t bytes;
    const void *src;
    uint32_t n_dst; /* 0 .. OCCL_MOVE_DST_MAX */
    uint32_t flags;
    void *const *dst; /* a destination equal to src is left alone */
};

/* Instruction sets, as bits of a mask. */
#define OCCL_ISA_PORTABLE                                                                       \
    UINT32_C(1)                     /* vectors of 16 bytes, whatever the compiler makes of them \
                                     */
#define OCCL_ISA_AVX2 UINT32_C(2)   /* with F16C */
#define OCCL_ISA_AVX512 UINT32_C(4) /* F, BW, DQ, VL, VBMI */

/* Both calls run on the caller's thread, neither block nor allocate, keep no pointer, and use at
 * most 9 KiB of stack. A job outside the limits above, or a pair for which occl_movers_supports is
 * false, is a bug of the caller and aborts: what comes from a tenant is validated before. */
struct occl_movers {
    const char *isa; /* "portable", "avx2", "avx512" */
    void (*reduce)(const struct occl_reduce_job *job);
    void (*copy)(const struct occl_copy_job *job);
};

/* The best movers that this CPU can run among those of isa_mask; mask 0 means the default choice
 * (AVX-512 on CPUs that do not lower their clock for it, else AVX2, else portable). NULL if the
 * mask names nothing that can run here. The result is static and constant. Any thread; call it once
 * and keep the result, it asks the CPU. */
const struct occl_movers *occl_movers_select(uint32_t isa_mask);

/* Bytes of the last-level cache that the calling thread's core reaches, or 32 MiB where the system
 * does not tell: what occl_local_move_flags asks for. Any thread; reads files, so call it once and
 * keep the result. */
uint64_t occl_movers_cache_bytes(void);

/* Whether the movers (all of them) have this pair of numbers. Any thread; pure. */
bool occl_movers_supports(uint32_t dtype, uint32_t redop);

#endif
