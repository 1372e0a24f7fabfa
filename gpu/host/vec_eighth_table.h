/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats with AVX-512 VBMI, whose permutations look up 64 bytes at a time in a table of 128:
 * the value of every such float has no more than the upper 16 bits of a float32 (a bfloat16). On
 * the way out results are rounded as bytes: the upper bytes of the float16 of a whole vector, which
 * hold what the result keeps, and the lower ones, which say whether it moves up. */
#ifndef GPU_HOST_VEC_EIGHTH_TABLE_H
#define GPU_HOST_VEC_EIGHTH_TABLE_H

#include "gpu/host/vec_half.h"

/* bfloat16 bits of the float8 with the bits i, 0 .. 127: normal ones are moved to their place, and
 * the exponent by the difference of the biases. e4m3 divided by 2^down. */
#define E4M3_LEAST(i, down)                            \
    ((i) == 1  ? 0x3b80 - ((down) << 7) - 0x80         \
     : (i) < 4 ? 0x3b80 - ((down) << 7) + ((i)-2) * 64 \
               : 0x3c00 - ((down) << 7) + ((i)-4) * 32)
#define E4M3_BITS(i, down)               \
    ((i) == 0      ? 0                   \
     : (i) < 8     ? E4M3_LEAST(i, down) \
     : (i) == 0x7f ? 0x7fc0              \
                   : ((i) << 4) + ((120 - (down)) << 7))
#define E5M2_LEAST(i) ((i) == 1 ? 0x3780 : 0x3800 + ((i)-2) * 64)
#define E5M2_BITS(i)              \
    ((i) == 0     ? 0             \
     : (i) < 4    ? E5M2_LEAST(i) \
     : (i) > 0x7c ? 0x7fc0        \
     : (i) > 0x7b ? 0x7f80        \
                  : ((i) << 5) + (112 << 7))

#define E4M3_HIGH(i) E4M3_BITS(i, 0) >> 8
#define E4M3_256_HIGH(i) E4M3_BITS(i, 8) >> 8
#define E4M3_LOW(i) E4M3_BITS(i, 0) & 0xff
#define E5M2_HIGH(i) E5M2_BITS(i) >> 8
#define E5M2_LOW(i) E5M2_BITS(i) & 0xff

#define ENTRIES_8(entry, i)                                                         \
    entry((i) + 0), entry((i) + 1), entry((i) + 2), entry((i) + 3), entry((i) + 4), \
        entry((i) + 5), entry((i) + 6), entry((i) + 7)
#define ENTRIES_32(entry, i)                                                    \
    ENTRIES_8(entry, i), ENTRIES_8(entry, (i) + 8), ENTRIES_8(entry, (i) + 16), \
        ENTRIES_8(entry, (i) + 24)
#define ENTRIES_128(entry) \
    { ENTRIES_32(entry, 0), ENTRIES_32(entry, 32), ENTRIES_32(entry, 64), ENTRIES_32(entry, 96) }

struct eighth_table {
    uint8_t bytes[128] __attribute__((aligned(64)));
};
static const struct eighth_table e4m3_high = {ENTRIES_128(E4M3_HIGH)};
static const struct eighth_table e4m3_256_high = {ENTRIES_128(E4M3_256_HIGH)};
static const struct eighth_table e4m3_low = {ENTRIES_128(E4M3_LOW)}; /* of both */
static const struct eighth_table e5m2_high = {ENTRIES_128(E5M2_HIGH)};
static const struct eighth_table e5m2_low = {ENTRIES_128(E5M2_LOW)};

/* Looks at the lower seven bits of each byte. */
V_INLINE vu64 eighth_look_up(vu64 x, const struct eighth_table *table) {
    return (vu64)_mm512_permutex2var_epi8((__m512i)v_load(table->bytes), (__m512i)x,
                                          (__m512i)v_load(table->bytes + 64));
}

/* x | (y & 0x80), which compilers make two instructions of. */
V_INLINE __m512i eighth_sign(__m512i x, __m512i y) {
    return _mm512_ternarylogic_epi32(x, y, _mm512_set1_epi8((char)0x80), 0xf8);
}

/* Of each 16 bytes, the first four to the first vector and so on. */
V_INLINE void eighth_widen(vu64 x, const struct eighth_table *high, const struct eighth_table *low,
                           vu64 *out) {
    const __m512i zero = {0};
    const __m512i upper = eighth_sign((__m512i)eighth_look_up(x, high), (__m512i)x);
    const __m512i lower = (__m512i)eighth_look_up(x, low);
    const __m512i first = _mm512_unpacklo_epi8(lower, upper);
    const __m512i last = _mm512_unpackhi_epi8(lower, upper);
    out[0] = (vu64)_mm512_unpacklo_epi16(zero, first);
    out[1] = (vu64)_mm512_unpackhi_epi16(zero, first);
    out[2] = (vu64)_mm512_unpacklo_epi16(zero, last);
    out[3] = (vu64)_mm512_unpackhi_epi16(zero, last);
}

V_INLINE void float8e5m2_widen(vu64 x, vu64 *out) {
    eighth_widen(x, &e5m2_high, &e5m2_low, out);
}

V_INLINE void float8e4m3_widen(vu64 x, vu64 *out) {
    eighth_widen(x, &e4m3_high, &e4m3_low, out);
}

/* 2^-8 of the values. */
V_INLINE void float8e4m3_widen_256(vu64 x, vu64 *out) {
    eighth_widen(x, &e4m3_256_high, &e4m3_low, out);
}

/* The positions of the upper bytes among the 128 bytes of the float16 of four vectors, in the order
 * of eighth_widen. */
#define EIGHTH_PLACE(i) ((i) % 16 / 8 * 64 + (i) % 8 / 4 * 32 + (i) / 16 * 8 + (i) % 4 * 2 + 1)
static const struct eighth_places {
    uint8_t bytes[64] __attribute__((aligned(64)));
} eighth_places = {{ENTRIES_32(EIGHTH_PLACE, 0), ENTRIES_32(EIGHTH_PLACE, 32)}};

V_INLINE void eighth_split(const vu64 *acc, int few_bits, __m512i *out_upper, __m512i *out_lower) {
    const __m512i upper = (__m512i)v_load(eighth_places.bytes);
    const __m512i lower = (__m512i)((vu8)v_load(eighth_places.bytes) - 1);
    const __m512i first = (__m512i)eighth_float16(acc, few_bits);
    const __m512i last = (__m512i)eighth_float16(acc + 2, few_bits);
    *out_upper = _mm512_permutex2var_epi8(first, upper, last);
    *out_lower = _mm512_permutex2var_epi8(first, lower, last);
}

/* The lower byte is rounded: up above one half, and at one half if the result would be odd. */
V_INLINE vu64 float8e5m2_narrow(const vu64 *acc, int few_bits) {
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i half = _mm512_set1_epi8((char)0x80);
    __m512i x, rest;
    eighth_split(acc, few_bits, &x, &rest);
    rest = _mm512_adds_epu8(rest, _mm512_and_si512(x, one));
    const __mmask64 is_up = _mm512_cmpgt_epu8_mask(rest, half);
    const __mmask64 is_nan =
        _mm512_cmpgt_epu8_mask(_mm512_andnot_si512(half, x), _mm512_set1_epi8(0x7c));
    x = _mm512_mask_add_epi8(x, is_up, x, one);
    return (vu64)_mm512_mask_mov_epi8(x, is_nan, _mm512_set1_epi8(0x7e));
}

/* Of 2^-8 of the values. The uppermost bit of the lower byte is the last of the result: both bytes
 * move up by one place, and it to the end of the first; as the end of the other it makes a half
 * more than one half. What overflows has bit 7 set then, or is 0x7f. */
V_INLINE vu64 float8e4m3_narrow_256(const vu64 *acc, int few_bits) {
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i nan = _mm512_set1_epi8(0x7f);
    const __m512i half = _mm512_set1_epi8((char)0x80);
    __m512i upper, rest;
    eighth_split(acc, few_bits, &upper, &rest);
    const __mmask64 is_odd = _mm512_movepi8_mask(rest);
    __m512i x = _mm512_add_epi8(upper, upper);
    x = _mm512_mask_add_epi8(x, is_odd, x, one);
    rest = _mm512_add_epi8(rest, rest);
    rest = _mm512_mask_add_epi8(rest, is_odd, rest, one);
    x = _mm512_mask_adds_epu8(x, _mm512_cmpgt_epu8_mask(rest, half), x, one);
    x = _mm512_min_epu8(x, nan);
    const __mmask64 is_nan = _mm512_cmpeq_epi8_mask(x, nan);
    return (vu64)_mm512_mask_mov_epi8(eighth_sign(x, upper), is_nan, nan);
}

#endif
