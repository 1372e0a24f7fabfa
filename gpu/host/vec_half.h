/* SPDX-License-Identifier: Apache-2.0 */
/* A vector full of 16-bit floats as two vectors of float32, and back. Which element goes to which
 * lane of which vector is free, since all that happens between is lane by lane; so the portable
 * form splits each 32-bit lane into its lower and upper half and needs no shuffle. */
#ifndef GPU_HOST_VEC_HALF_H
#define GPU_HOST_VEC_HALF_H

#include "gpu/host/vec.h"

V_INLINE void bfloat16_load(const unsigned char *p, vu64 *out_pair) {
    vu32 x = (vu32)v_load(p);
    out_pair[0] = (vu64)(x << 16);
    out_pair[1] = (vu64)(x & 0xffff0000u);
}

/* To nearest even by adding just under half a unit, or exactly half when the last bit is odd. The
 * only NaN that arrives here is the canonical one, which the addition leaves a NaN. */
V_INLINE vu64 bfloat16_narrow(const vu64 *pair) {
    vu32 low = (vu32)pair[0];
    vu32 high = (vu32)pair[1];
    low += 0x7fffu + ((low >> 16) & 1u);
    high += 0x7fffu + ((high >> 16) & 1u);
    return v_interleave_u16(high, low >> 16);
}

#if defined(__AVX512F__) && V_BYTES == 64
#define V_FLOAT16_CUT
V_INLINE void float16_widen(vu64 x, vu64 *out_pair) {
    out_pair[0] = (vu64)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)x));
    out_pair[1] = (vu64)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)x, 1));
}

V_INLINE void float16_load(const unsigned char *p, vu64 *out_pair) {
    __m256i low, high;
    memcpy(&low, p, 32);
    memcpy(&high, p + 32, 32);
    out_pair[0] = (vu64)_mm512_cvtph_ps(low);
    out_pair[1] = (vu64)_mm512_cvtph_ps(high);
}

V_INLINE vu64 float16_narrow(const vu64 *pair) {
    __m256i low = _mm512_cvtps_ph((__m512)pair[0], _MM_FROUND_TO_NEAREST_INT);
    __m256i high = _mm512_cvtps_ph((__m512)pair[1], _MM_FROUND_TO_NEAREST_INT);
    return (vu64)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Rounded toward zero: the largest number instead of infinity. */
V_INLINE vu64 float16_cut(const vu64 *pair) {
    __m256i low = _mm512_cvtps_ph((__m512)pair[0], _MM_FROUND_TO_ZERO);
    __m256i high = _mm512_cvtps_ph((__m512)pair[1], _MM_FROUND_TO_ZERO);
    return (vu64)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

#elif defined(__F16C__) && V_BYTES == 32
#define V_FLOAT16_CUT
V_INLINE void float16_widen(vu64 x, vu64 *out_pair) {
    out_pair[0] = (vu64)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)x));
    out_pair[1] = (vu64)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)x, 1));
}

V_INLINE void float16_load(const unsigned char *p, vu64 *out_pair) {
    __m128i low, high;
    memcpy(&low, p, 16);
    memcpy(&high, p + 16, 16);
    out_pair[0] = (vu64)_mm256_cvtph_ps(low);
    out_pair[1] = (vu64)_mm256_cvtph_ps(high);
}

V_INLINE vu64 float16_narrow(const vu64 *pair) {
    __m128i low = _mm256_cvtps_ph((__m256)pair[0], _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph((__m256)pair[1], _MM_FROUND_TO_NEAREST_INT);
    return (vu64)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Rounded toward zero: the largest number instead of infinity. */
V_INLINE vu64 float16_cut(const vu64 *pair) {
    __m128i low = _mm256_cvtps_ph((__m256)pair[0], _MM_FROUND_TO_ZERO);
    __m128i high = _mm256_cvtps_ph((__m256)pair[1], _MM_FROUND_TO_ZERO);
    return (vu64)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

#else
/* Float16 in the lower half of each lane, the upper half zero. The exponent is moved by the
 * difference of the biases (127 - 15); infinity and NaN need that twice. A denormal has no hidden
 * one: it is given one and, as a number, loses it again. */
V_INLINE vu64 float16_lane_widen(vu32 x) {
    const uint32_t rebias = (127u - 15u) << 23;
    vu32 sign = (x & 0x8000u) << 16;
    vu32 body = (x & 0x7fffu) << 13;
    vu32 exponent = body & (0x7c00u << 13);
    vu32 normal = body + rebias;
    vu32 special = (vu32)(exponent == (0x7c00u << 13)) & rebias;
    vu32 is_denormal = (vu32)(exponent == 0u);
    vf32 hidden = (vf32)v_all_u32(rebias + (1u << 23));
    vu32 denormal = (vu32)((vf32)(normal + (1u << 23)) - hidden);
    return (vu64)(sign |
                  (vu32)v_select((vu64)is_denormal, (vu64)denormal, (vu64)(normal + special)));
}

V_INLINE void float16_widen(vu64 x, vu64 *out_pair) {
    out_pair[0] = float16_lane_widen((vu32)x & 0xffffu);
    out_pair[1] = float16_lane_widen((vu32)x >> 16);
}

V_INLINE void float16_load(const unsigned char *p, vu64 *out_pair) {
    float16_widen(v_load(p), out_pair);
}

/* Three ranges by magnitude: below the smallest normal float16, an addition puts the last kept bit
 * at the end of the float32 and so rounds; normal ones round as bfloat16 does; from 65520 on the
 * result is infinity, or NaN if it was one (the canonical one, see bfloat16_narrow). */
V_INLINE vu32 float16_lane_narrow(vu32 x) {
    vu32 sign = (x >> 16) & 0x8000u;
    vu32 body = x & 0x7fffffffu;
    const uint32_t aligner = ((127u - 15u) + (23u - 10u) + 1u) << 23;
    vu32 denormal = (vu32)((vf32)body + (vf32)v_all_u32(aligner)) - aligner;
    vu32 normal = (body - ((127u - 15u) << 23) + 0xfffu + ((body >> 13) & 1u)) >> 13;
    vu32 is_denormal = (vu32)((vi32)body < (vi32)v_all_u32((127u - 14u) << 23));
    vu32 is_nan = (vu32)((vi32)body > (vi32)v_all_u32(0xffu << 23));
    vu32 is_special = (vu32)((vi32)body >= (vi32)v_all_u32((127u + 16u) << 23));
    vu32 special = 0x7c00u | (is_nan & 0x0200u);
    vu64 finite = v_select((vu64)is_denormal, (vu64)denormal, (vu64)normal);
    return sign | (vu32)v_select((vu64)is_special, (vu64)special, finite);
}

V_INLINE vu64 float16_narrow(const vu64 *pair) {
    vu32 low = float16_lane_narrow((vu32)pair[0]);
    vu32 high = float16_lane_narrow((vu32)pair[1]);
    return (vu64)(low | (high << 16));
}
#endif

#endif
