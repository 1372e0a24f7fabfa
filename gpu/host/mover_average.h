/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of integers: exact sums in lanes twice as wide, and quotients by the divisor's
 * reciprocal. Sums are of at most OCCL_MOVE_SRC_MAX = 2^6 elements. Truncating toward zero is
 * rounding down after divisor - 1 has been added to negative sums. */
#ifndef GPU_HOST_MOVER_AVERAGE_H
#define GPU_HOST_MOVER_AVERAGE_H

#include "gpu/host/vec.h"
#include "gpu/host/vec_int.h"

/* What the end of a reduction needs to know, for every form. */
struct ending {
    uint32_t divisor; /* at least 1 */
    uint32_t n_src;
    /* Of floats: whether to multiply by the reciprocal, which gives the same bits, instead. */
    int divisor_is_power;
    /* Of 8-bit floats: at most two of them were added or multiplied, without factors, and halved at
     * most. Then a result next to a tie of theirs is far enough from it for float16 to tell: of
     * numbers a and b of up to 4 bits, the sum keeps 2^-9 of a tie's magnitude away or is on it, as
     * a lies on a multiple of half a unit and b, if not, ends no further down; the product has 8
     * bits. float8_test tries every pair. */
    int few_bits;
    /* For int8_quotient. */
    uint16_t multiplier;
    uint16_t shift;
    double reciprocal; /* 1 / divisor */
    double offset;     /* reciprocal / 2 - 1/2 */
};

static struct ending ending_by(uint32_t divisor, uint32_t n_src) {
    struct ending end = {.divisor = divisor, .n_src = n_src};
    end.divisor_is_power = (divisor & (divisor - 1)) == 0;
    end.reciprocal = 1.0 / divisor;
    end.offset = end.reciprocal / 2 - 0.5;
    /* Every quotient of a sum below 2^14 by 2^14 or more is zero. */
    const uint32_t by = divisor < 16384 ? divisor : 16384;
    const uint32_t bits = 32 - (uint32_t)__builtin_clz(by - 1);
    end.shift = (uint16_t)bits;
    end.multiplier = (uint16_t)(((UINT32_C(1) << (15 + bits)) + by - 1) / by);
    return end;
}

V_INLINE struct ending ending_of(uint32_t divisor, uint32_t n_src, int scaled) {
    struct ending end = {1, n_src, 1, 0, UINT16_C(1) << 15, 0, 1.0, 0.0};
    if (divisor > 1)
        end = ending_by(divisor, n_src);
    end.few_bits = !scaled && n_src <= 2 && divisor <= 2;
    return end;
}

/* Even and odd elements of a vector in lanes twice as wide. */
V_INLINE void sum_i8_widen(vu64 x, vu64 *out) {
    out[0] = (vu64)((vi16)((vu16)x << 8) >> 8);
    out[1] = (vu64)((vi16)x >> 8);
}

V_INLINE void sum_u8_widen(vu64 x, vu64 *out) {
    out[0] = (vu64)((vu16)x & 0xff);
    out[1] = (vu64)((vu16)x >> 8);
}

V_INLINE void sum_i16_widen(vu64 x, vu64 *out) {
    out[0] = (vu64)((vi32)((vu32)x << 16) >> 16);
    out[1] = (vu64)((vi32)x >> 16);
}

V_INLINE void sum_u16_widen(vu64 x, vu64 *out) {
    out[0] = (vu64)((vu32)x & 0xffffu);
    out[1] = (vu64)((vu32)x >> 16);
}

V_INLINE void sum_u32_widen(vu64 x, vu64 *out) {
    out[0] = x & 0xffffffffu;
    out[1] = x >> 32;
}

/* Biased to be unsigned: no instruction set but the widest extends the sign of 64-bit lanes. The
 * end takes the bias of all sources off again. */
V_INLINE void sum_i32_widen(vu64 x, vu64 *out) {
    sum_u32_widen((vu64)((vu32)x ^ 0x80000000u), out);
}

/* Not elements here but halves of each; the upper ones are biased. */
V_INLINE void sum_i64_widen(vu64 x, vu64 *out) {
    sum_u32_widen(x ^ UINT64_C(0x8000000000000000), out);
}

/* The magnitude m is below 2^14. With d <= 2^t and multiplier M = (2^(15+t) + e) / d, e < d, the
 * product m * M / 2^(15+t) exceeds m / d by m * e / (d * 2^(15+t)) < 1 / d, so that its floor is
 * the quotient's. M is below 2^16 since d is above 2^(t-1), and at most 2^14. */
V_INLINE vu16 int8_quotient(const struct ending *end, vu64 sum) {
    vu16 negative = (vu16)((vi16)sum < 0);
    vu16 m = ((vu16)sum ^ negative) - negative;
    vu16 q = v_multiply_high_u16(m + m, v_all_u16(end->multiplier));
    q = v_shift_right_u16(q, end->shift);
    return (q ^ negative) - negative;
}

V_INLINE vu64 sum_8_end(const struct ending *end, const vu64 *acc) {
    return (vu64)((int8_quotient(end, acc[0]) & 0xff) | (int8_quotient(end, acc[1]) << 8));
}

/* The magnitude m is at most 64 * 65535 = 2^22 - 64. (m + 1/2) / divisor is at least
 * 1 / (2 divisor) away from any integer, and rounding the reciprocal (twice) and the product to 24
 * bits moves it by less than (m + 1/2) * (2^-23 + 2^-46) / divisor, which is less: cut off, it is
 * the quotient. */
V_INLINE vu32 int16_quotient(const struct ending *end, vu64 sum) {
    vf32 x = __builtin_convertvector((vi32)sum, vf32);
    vf32 half = (vf32)(((vu32)x & 0x80000000u) | 0x3f000000u);
    vf32 quotient = (x + half) * (float)end->reciprocal;
    return (vu32) __builtin_convertvector(quotient, vi32);
}

V_INLINE vu64 sum_16_end(const struct ending *end, const vu64 *acc) {
    return (vu64)((int16_quotient(end, acc[0]) & 0xffffu) | (int16_quotient(end, acc[1]) << 16));
}

/* The floor of t / divisor, for |t| < 2^50. Adding 3 * 2^51 to a number of less than 2^51 rounds it
 * to an integer, which stands in the lowest bits. So t becomes a double, exactly, and (t + 1/2) /
 * divisor - 1/2 is rounded; that is at least 1 / (2 divisor) away from where rounding turns over.
 * Rounding the reciprocal, the product and the sum moves it by less than 3 |t| / (2^53 divisor),
 * rounding the offset and small sums by less than 2^-53: less together if 3 |t| + divisor < 2^52.
 */
V_INLINE vu64 floor_quotient(const struct ending *end, vu64 t) {
    const double big = 6755399441055744.0;
    const uint64_t big_bits = UINT64_C(0x4338000000000000);
    vf64 exact = (vf64)(t + big_bits) - big;
    vf64 quotient = exact * end->reciprocal + end->offset;
    return (vu64)(quotient + big) - big_bits;
}

V_INLINE vu64 int32_quotient(const struct ending *end, uint64_t bias, vu64 biased) {
    vu64 sum = biased - bias;
    vu64 negative = (vu64)((vi64)sum < 0);
    return floor_quotient(end, sum + (negative & (uint64_t)(end->divisor - 1)));
}

V_INLINE vu64 sum_32_end(const struct ending *end, uint64_t bias, const vu64 *acc) {
    vu64 even = int32_quotient(end, bias, acc[0]);
    vu64 odd = int32_quotient(end, bias, acc[1]);
    return (even & 0xffffffffu) | (odd << 32);
}

/* The sum is upper * 2^32 + lower, both below 2^38 in magnitude. Long division in the base 2^32, or
 * 2^16 for large divisors; a digit may exceed its base, since all digits are added up at the end.
 * Remainders are below the divisor, so their lower 32 bits are all of them. */
V_INLINE vu64 sum_64_end(const struct ending *end, uint64_t bias, const vu64 *acc) {
    const vu64 divisor = v_all_u64(end->divisor);
    vu64 upper = acc[1] - bias;
    vu64 negative = (vu64)((vi64)(upper + (acc[0] >> 32)) < 0);
    vu64 lower = acc[0] + (negative & (uint64_t)(end->divisor - 1));
    vu64 first = floor_quotient(end, upper);
    vu64 rest = upper - v_multiply_low_halves(first, divisor);
    if (end->divisor <= UINT32_C(1) << 17)
        return (first << 32) + floor_quotient(end, (rest << 32) + lower);
    vu64 digit = ((rest & 0xffffffffu) << 16) + (lower >> 16);
    vu64 second = floor_quotient(end, digit);
    rest = (digit - v_multiply_low_halves(second, divisor)) & 0xffffffffu;
    vu64 third = floor_quotient(end, (rest << 16) + (lower & 0xffffu));
    return (first << 32) + (second << 16) + third;
}

#endif
