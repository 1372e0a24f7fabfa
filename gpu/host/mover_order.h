/* SPDX-License-Identifier: Apache-2.0 */
/* Floats and pairs as integers whose order is that of the rules, so that minima and maxima are one
 * integer instruction. The bits of a float, with all but the sign inverted where it is negative,
 * are in the order of the values, -0 below +0; NaNs are at both ends, by their sign. */
#ifndef GPU_HOST_MOVER_ORDER_H
#define GPU_HOST_MOVER_ORDER_H

#include "gpu/host/vec.h"
#include "gpu/host/vec_int.h"

/* A small float format: where NaNs begin, and the one that results. */
struct small_float {
    uint16_t infinity; /* the largest bits of a number, without sign */
    uint16_t nan;
};

V_INLINE vu16 order_16(vu16 x) {
    return x ^ ((vu16)((vi16)x >> 15) & 0x7fff);
}

V_INLINE vu8 order_8(vu8 x) {
    return x ^ ((vu8)((vi8)x < 0) & 0x7f);
}

/* Modulo 2^16, moving up by the number of positive NaNs puts these to the lower end, and moving
 * down by as many puts the negative ones to the upper end. */
V_INLINE vu64 extreme_16_widen(vu64 x, struct small_float f, int low) {
    const uint16_t nans = (uint16_t)(0x7fff - f.infinity);
    return (vu64)(order_16((vu16)x) + v_all_u16(low ? nans : (uint16_t)-nans));
}

V_INLINE vu64 extreme_16_end(vu64 acc, struct small_float f, int low) {
    const uint16_t nans = (uint16_t)(0x7fff - f.infinity);
    vu16 x = order_16((vu16)acc - v_all_u16(low ? nans : (uint16_t)-nans));
    vu16 is_nan = (vu16)((vi16)(x & 0x7fff) > (vi16)v_all_u16(f.infinity));
    return v_select((vu64)is_nan, (vu64)v_all_u16(f.nan), (vu64)x);
}

V_INLINE vu64 extreme_8_widen(vu64 x, struct small_float f, int low) {
    const uint8_t nans = (uint8_t)(0x7f - f.infinity);
    return (vu64)(order_8((vu8)x) + v_all_u8(low ? nans : (uint8_t)-nans));
}

V_INLINE vu64 extreme_8_end(vu64 acc, struct small_float f, int low) {
    const uint8_t nans = (uint8_t)(0x7f - f.infinity);
    vu8 x = order_8((vu8)acc - v_all_u8(low ? nans : (uint8_t)-nans));
    vu8 is_nan = (vu8)((vi8)(x & 0x7f) > (vi8)v_all_u8((uint8_t)f.infinity));
    return v_select((vu64)is_nan, (vu64)v_all_u8((uint8_t)f.nan), (vu64)x);
}

/* Pairs. Whatever the operator, the least integer wins: for MAXLOC the value's is inverted. NaNs
 * become canonical first, so that among them the index decides, and are then the least. An index
 * is compared as a signed number.
 *
 * Pairs of 8 bytes: the value to the upper half, and the index, biased to be unsigned, below. */
V_INLINE vu64 swap_halves(vu64 x) {
    return (x << 32) | (x >> 32);
}

#define PAIR_INDEX_BIAS 0x80000000u
#define PAIR_INVERT UINT64_C(0xffffffff00000000)
/* The canonical NaN has the highest order of all: just above the other positive ones is the lower
 * end. */
#define PAIR_NANS_F32 UINT64_C(0x0040000000000000)
#define PAIR_NANS_F64 UINT64_C(0x0008000000000000)

V_INLINE vu64 pair_f32_order(vu64 x) {
    vu64 sign = (vu64)((vi32)x >> 31);
    return x ^ (sign & UINT64_C(0x7fffffff00000000));
}

V_INLINE vu64 pair_f32_widen(vu64 x, int low) {
    x = v_select(v_even_u32(), v_canonical_f32((vf32)x), x);
    x = pair_f32_order(swap_halves(x)) ^ PAIR_INDEX_BIAS;
    return low ? x + PAIR_NANS_F32 : x ^ PAIR_INVERT;
}

V_INLINE vu64 pair_f32_end(vu64 x, int low) {
    x = low ? x - PAIR_NANS_F32 : x ^ PAIR_INVERT;
    return swap_halves(pair_f32_order(x ^ PAIR_INDEX_BIAS));
}

V_INLINE vu64 pair_i32_widen(vu64 x, int low) {
    return swap_halves(x) ^ (low ? 0 : PAIR_INVERT) ^ PAIR_INDEX_BIAS;
}

V_INLINE vu64 pair_i32_end(vu64 x, int low) {
    return swap_halves(x ^ (low ? 0 : PAIR_INVERT) ^ PAIR_INDEX_BIAS);
}

/* Pairs of 16 bytes: as they lie in memory. */
V_INLINE vu64 pair_f64_order(vu64 x) {
    vu64 is_negative = (vu64)((vi64)x < 0);
    return x ^ (is_negative & v_even_u64() & UINT64_C(0x7fffffffffffffff));
}

V_INLINE vu64 pair_f64_widen(vu64 x, int low) {
    x = pair_f64_order(v_select(v_even_u64(), v_canonical_f64((vf64)x), x));
    return low ? x + (v_even_u64() & PAIR_NANS_F64) : x ^ v_even_u64();
}

V_INLINE vu64 pair_f64_end(vu64 x, int low) {
    x = low ? x - (v_even_u64() & PAIR_NANS_F64) : x ^ v_even_u64();
    return pair_f64_order(x);
}

V_INLINE vu64 pair_i64_widen(vu64 x, int low) {
    return low ? x : x ^ v_even_u64();
}

V_INLINE vu64 pair_i64_end(vu64 x, int low) {
    return pair_i64_widen(x, low);
}

/* b where its value is less, or as great with a lesser index. */
V_INLINE vu64 pair_less(vu64 a, vu64 b) {
    vu64 is_less = (vu64)((vi64)b < (vi64)a);
    vu64 is_equal = (vu64)((vi64)b == (vi64)a);
    vu64 wins = is_less | (is_equal & v_swap_pairs(is_less));
    return v_select(v_first_of_pairs(wins), b, a);
}

#endif
