/* SPDX-License-Identifier: Apache-2.0 */
/* Integers of every width: minimum and maximum, products, and the few things besides that the
 * vector extension says slowly. */
#ifndef GPU_HOST_VEC_INT_H
#define GPU_HOST_VEC_INT_H

#include "gpu/host/vec.h"

#define V_PLAIN_LESS(lanes, a, b) v_select((vu64)((lanes)(a) < (lanes)(b)), (a), (b))
#define V_PLAIN_MORE(lanes, a, b) v_select((vu64)((lanes)(a) > (lanes)(b)), (a), (b))

/* v_less and v_more: the minimum and the maximum, lane by lane. The kind is that of the
 * intrinsics (epi8, epu32, ...), lanes the vector type that goes with it. AVX2 has no lanes of 64
 * bits here, for which there is v_less_64. */
#if defined(__AVX512BW__) && V_BYTES == 64
#define v_less(kind, lanes, a, b) ((vu64)_mm512_min_##kind((__m512i)(a), (__m512i)(b)))
#define v_more(kind, lanes, a, b) ((vu64)_mm512_max_##kind((__m512i)(a), (__m512i)(b)))
#define v_less_64(kind, lanes, a, b) v_less(kind, lanes, a, b)
#define v_more_64(kind, lanes, a, b) v_more(kind, lanes, a, b)
#elif defined(__AVX2__) && V_BYTES == 32
#define v_less(kind, lanes, a, b) ((vu64)_mm256_min_##kind((__m256i)(a), (__m256i)(b)))
#define v_more(kind, lanes, a, b) ((vu64)_mm256_max_##kind((__m256i)(a), (__m256i)(b)))
#define v_less_64(kind, lanes, a, b) V_PLAIN_LESS(lanes, a, b)
#define v_more_64(kind, lanes, a, b) V_PLAIN_MORE(lanes, a, b)
#else
#define v_less(kind, lanes, a, b) V_PLAIN_LESS(lanes, a, b)
#define v_more(kind, lanes, a, b) V_PLAIN_MORE(lanes, a, b)
#define v_less_64(kind, lanes, a, b) V_PLAIN_LESS(lanes, a, b)
#define v_more_64(kind, lanes, a, b) V_PLAIN_MORE(lanes, a, b)
#endif

/* No instruction multiplies bytes. In lanes of 16 bits the lower byte of the product is that of the
 * lower bytes, and the upper byte, times 256, meets nothing of the lower one if that is cleared. */
V_INLINE vu64 v_multiply_u8(vu64 a, vu64 b) {
    vu16 even = ((vu16)a * (vu16)b) & 0xff;
    vu16 odd = ((vu16)a & 0xff00) * ((vu16)b >> 8);
    return (vu64)(even | odd);
}

/* The upper 16 bits of the product of unsigned lanes. */
V_INLINE vu16 v_multiply_high_u16(vu16 a, vu16 b) {
#if defined(__AVX512BW__) && V_BYTES == 64
    return (vu16)_mm512_mulhi_epu16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vu16)_mm256_mulhi_epu16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__) && V_BYTES == 16
    return (vu16)_mm_mulhi_epu16((__m128i)a, (__m128i)b);
#else
    vu32 even = ((vu32)a & 0xffffu) * ((vu32)b & 0xffffu);
    vu32 odd = ((vu32)a >> 16) * ((vu32)b >> 16);
    return (vu16)((even >> 16) | (odd & 0xffff0000u));
#endif
}

/* One count for all lanes, which most instruction sets cannot do per lane of 16 bits. */
V_INLINE vu16 v_shift_right_u16(vu16 x, unsigned int count) {
#if defined(__AVX512BW__) && V_BYTES == 64
    return (vu16)_mm512_srl_epi16((__m512i)x, _mm_cvtsi32_si128((int)count));
#elif defined(__AVX2__) && V_BYTES == 32
    return (vu16)_mm256_srl_epi16((__m256i)x, _mm_cvtsi32_si128((int)count));
#elif defined(__SSE2__) && V_BYTES == 16
    return (vu16)_mm_srl_epi16((__m128i)x, _mm_cvtsi32_si128((int)count));
#else
    return x >> v_all_u16((uint16_t)count);
#endif
}

/* The lower halves of the lanes multiplied to whole lanes. */
V_INLINE vu64 v_multiply_low_halves(vu64 a, vu64 b) {
#if defined(__AVX512F__) && V_BYTES == 64
    return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vu64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__) && V_BYTES == 16
    return (vu64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* The lanes of each pair of 64-bit lanes: exchanged, or the first one twice. */
V_INLINE vu64 v_swap_pairs(vu64 x) {
#if defined(__AVX512F__) && V_BYTES == 64
    return (vu64)_mm512_shuffle_epi32((__m512i)x, _MM_PERM_BADC);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vu64)_mm256_shuffle_epi32((__m256i)x, 0x4e);
#elif defined(__SSE2__) && V_BYTES == 16
    return (vu64)_mm_shuffle_epi32((__m128i)x, 0x4e);
#else
    vu64 y = x;
    for (size_t i = 0; i < V_BYTES / 8; i++)
        y[i] = x[i ^ 1];
    return y;
#endif
}

V_INLINE vu64 v_first_of_pairs(vu64 x) {
#if defined(__AVX512F__) && V_BYTES == 64
    return (vu64)_mm512_shuffle_epi32((__m512i)x, _MM_PERM_BABA);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vu64)_mm256_shuffle_epi32((__m256i)x, 0x44);
#elif defined(__SSE2__) && V_BYTES == 16
    return (vu64)_mm_shuffle_epi32((__m128i)x, 0x44);
#else
    vu64 y = x;
    for (size_t i = 0; i < V_BYTES / 8; i++)
        y[i] = x[i & ~(size_t)1];
    return y;
#endif
}

/* All ones in every second lane: the values of pairs of 8 and of 16 bytes. */
V_INLINE vu64 v_even_u32(void) {
    return v_all_u64(0xffffffffu);
}

V_INLINE vu64 v_even_u64(void) {
#if V_BYTES == 64
    return (vu64){UINT64_MAX, 0, UINT64_MAX, 0, UINT64_MAX, 0, UINT64_MAX, 0};
#elif V_BYTES == 32
    return (vu64){UINT64_MAX, 0, UINT64_MAX, 0};
#else
    return (vu64){UINT64_MAX, 0};
#endif
}

#endif
