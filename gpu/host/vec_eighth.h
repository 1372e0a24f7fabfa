/* SPDX-License-Identifier: Apache-2.0 */
/* A vector full of 8-bit floats as four vectors of float32, and back, by way of float16, for which
 * there are instructions. On the way in that is exact. On the way out it is too: the float32 is
 * first rounded "to odd" to a few bits more than the result keeps, that is, it is cut off and its
 * last bit set if anything was lost. Such a number fits float16, and rounding it to nearest gives
 * what rounding the original would have given, since it lies on the same side of every tie. A
 * float32 of few bits (mover_average.h) needs no such care: as a float16 it is never on a tie that
 * it was not on.
 *
 * e5m2 is the upper byte of a float16. e4m3 has an exponent of four bits with another bias: moved
 * to the same place it is a float16 worth 2^-8 of the value, denormals included. Its largest number
 * is 448 and it has no infinity: what rounds further up becomes NaN, which is 0x7f or 0xff. */
#ifndef GPU_HOST_VEC_EIGHTH_H
#define GPU_HOST_VEC_EIGHTH_H

#include "gpu/host/vec_half.h"

/* Bits of a float32 that only round. Five bits of the mantissa are left, so even a denormal e5m2's
 * tie, 2^-17, and what follows it are numbers that float16 has. So are those of e4m3, whose
 * smallest tie, 2^-10, is 2^-18 as 2^-8 of the value: float16 ends at 2^-24. */
#define EIGHTH_ODD_BITS 18
#define EIGHTH_ODD_LAST (UINT32_C(1) << EIGHTH_ODD_BITS)

/* A float32 whose bits from the last that is kept on tell whether it is above, on or below a tie:
 * the carry of the ones added below sets that bit if anything would be lost. */
V_INLINE vu64 eighth_odd(vu64 bits, int few_bits) {
    vu32 x = (vu32)bits;
    return few_bits ? bits : (vu64)(x | ((x + (EIGHTH_ODD_LAST - 1)) & EIGHTH_ODD_LAST));
}

/* float16 bits of two vectors, for rounding to the 8-bit floats. What is beyond float16 may become
 * its largest number, which is beyond the largest tie, too. */
V_INLINE vu64 eighth_float16(const vu64 *pair, int few_bits) {
    vu64 odd[2] = {eighth_odd(pair[0], few_bits), eighth_odd(pair[1], few_bits)};
#if defined(V_FLOAT16_CUT)
    return float16_cut(odd);
#else
    const vu64 kept = (vu64)v_all_u32(few_bits ? UINT32_MAX : 0u - EIGHTH_ODD_LAST);
    odd[0] &= kept;
    odd[1] &= kept;
    return float16_narrow(odd);
#endif
}

#if defined(__AVX512VBMI__) && V_BYTES == 64
#include "gpu/host/vec_eighth_table.h"
#else
/* The even bytes of each 16-bit lane to the first two vectors, the odd ones to the others. */
V_INLINE void float8e5m2_widen(vu64 x, vu64 *out) {
    float16_widen((vu64)((vu16)x << 8), out);
    float16_widen((vu64)((vu16)x & 0xff00), out + 2);
}

/* 2^-8 of the values. An arithmetic shift copies the sign down to where it is cleared again. */
V_INLINE void float8e4m3_widen_256(vu64 x, vu64 *out) {
    const vu16 kept = v_all_u16(0xbf80);
    vu16 is_nan = (vu16)((vu8)((vu8)x & 0x7f) == v_all_u8(0x7f));
    vu16 even = ((vu16)((vi16)((vu16)x << 8) >> 1) & kept) | (is_nan << 8);
    vu16 odd = ((vu16)((vi16)x >> 1) & kept) | (is_nan & 0xff00);
    float16_widen((vu64)even, out);
    float16_widen((vu64)odd, out + 2);
}

V_INLINE void float8e4m3_widen(vu64 x, vu64 *out) {
    float8e4m3_widen_256(x, out);
    V_UNROLL
    for (size_t i = 0; i < 4; i++)
        out[i] = (vu64)((vf32)out[i] * 256.0f);
}

V_INLINE vu16 float8e5m2_round(const vu64 *pair, int few_bits) {
    vu16 h = (vu16)eighth_float16(pair, few_bits);
    vu16 is_nan = (vu16)((vi16)(h & 0x7fff) > (vi16)v_all_u16(0x7c00));
    h = (vu16)v_select((vu64)is_nan, (vu64)v_all_u16(0x7e00), (vu64)h);
    return h + 0x7f + ((h >> 8) & 1);
}

V_INLINE vu64 float8e5m2_narrow(const vu64 *acc, int few_bits) {
    vu16 even = float8e5m2_round(acc, few_bits);
    vu16 odd = float8e5m2_round(acc + 2, few_bits);
    return (vu64)((even >> 8) | (odd & 0xff00));
}

/* Of 2^-8 of the values; a result in the lower byte of each lane. */
V_INLINE vu16 float8e4m3_round(const vu64 *pair, int few_bits) {
    vu16 h = (vu16)eighth_float16(pair, few_bits);
    vu16 body = h & 0x7fff;
    vu16 rounded = (body + 0x3f + ((body >> 7) & 1)) >> 7;
    vu16 is_nan = (vu16)((vi16)rounded > (vi16)v_all_u16(0x7e));
    return (vu16)v_select((vu64)is_nan, (vu64)v_all_u16(0x7f), (vu64)(rounded | ((h >> 8) & 0x80)));
}

V_INLINE vu64 float8e4m3_narrow_256(const vu64 *acc, int few_bits) {
    return (vu64)(float8e4m3_round(acc, few_bits) | (float8e4m3_round(acc + 2, few_bits) << 8));
}
#endif

#endif
