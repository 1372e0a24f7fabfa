/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors of the movers: V_BYTES wide, chosen by the including file (16, 32 or 64), in the
 * vector extension that gcc and clang share. What the extension cannot say, or says slowly, has an
 * intrinsic per instruction set here; each has the meaning of its portable twin to the bit. */
#ifndef GPU_HOST_VEC_H
#define GPU_HOST_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef V_BYTES
#error "the including file defines V_BYTES"
#endif

#define V_INLINE static inline __attribute__((always_inline))

/* Loops over vectors that live in registers have to be unrolled completely. */
#if defined(__clang__)
#define V_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V_UNROLL _Pragma("GCC unroll 8")
#endif

typedef uint8_t vu8 __attribute__((vector_size(V_BYTES)));
typedef int8_t vi8 __attribute__((vector_size(V_BYTES)));
typedef uint16_t vu16 __attribute__((vector_size(V_BYTES)));
typedef int16_t vi16 __attribute__((vector_size(V_BYTES)));
typedef uint32_t vu32 __attribute__((vector_size(V_BYTES)));
typedef int32_t vi32 __attribute__((vector_size(V_BYTES)));
typedef uint64_t vu64 __attribute__((vector_size(V_BYTES)));
typedef int64_t vi64 __attribute__((vector_size(V_BYTES)));
typedef float vf32 __attribute__((vector_size(V_BYTES)));
typedef double vf64 __attribute__((vector_size(V_BYTES)));

V_INLINE vu8 v_all_u8(uint8_t x) {
    return x - (vu8){0};
}

V_INLINE vu16 v_all_u16(uint16_t x) {
    return x - (vu16){0};
}

V_INLINE vu32 v_all_u32(uint32_t x) {
    return x - (vu32){0};
}

V_INLINE vu64 v_all_u64(uint64_t x) {
    return x - (vu64){0};
}

V_INLINE vf32 v_all_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (vf32)v_all_u32(bits);
}

V_INLINE vf64 v_all_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (vf64)v_all_u64(bits);
}

V_INLINE vu64 v_load(const unsigned char *p) {
    vu64 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

V_INLINE void v_store(unsigned char *p, vu64 v) {
    memcpy(p, &v, sizeof(v));
}

/* The last 1 .. 7 bytes of a buffer as a little word; the rest of it is zero. */
V_INLINE uint64_t word_partial(const unsigned char *p, size_t bytes) {
    uint16_t pair[2];
    uint32_t quad[2];
    if (bytes >= 4) {
        memcpy(&quad[0], p, 4);
        memcpy(&quad[1], p + bytes - 4, 4);
        return quad[0] | (uint64_t)quad[1] << (8 * (bytes - 4));
    }
    if (bytes >= 2) {
        memcpy(&pair[0], p, 2);
        memcpy(&pair[1], p + bytes - 2, 2);
        return pair[0] | (uint64_t)pair[1] << (8 * (bytes - 2));
    }
    return p[0];
}

/* A partial vector: 1 .. V_BYTES - 1 bytes. Made once for all buffers of a job. */
struct v_part {
    size_t bytes;
#if defined(__AVX512BW__) && V_BYTES == 64
    __mmask64 mask;
#elif defined(__AVX2__) && V_BYTES == 32
    __m256i mask; /* lanes of 4 bytes, for multiples of 4 bytes */
#endif
};

V_INLINE struct v_part v_part_of(size_t bytes) {
    struct v_part part;
    part.bytes = bytes;
#if defined(__AVX512BW__) && V_BYTES == 64
    part.mask = ((__mmask64)1 << bytes) - 1;
#elif defined(__AVX2__) && V_BYTES == 32
    part.mask = (__m256i)((vi32){0, 1, 2, 3, 4, 5, 6, 7} < (vi32)v_all_u32((uint32_t)bytes / 4));
#endif
    return part;
}

/* The bytes at p; the rest of the vector is zero. Built in registers: a wider load of what was
 * just stored in pieces would stall. */
V_INLINE vu64 v_load_partial(const unsigned char *p, const struct v_part *part) {
#if defined(__AVX512BW__) && V_BYTES == 64
    return (vu64)_mm512_maskz_loadu_epi8(part->mask, p);
#else
    const size_t bytes = part->bytes;
    vu64 v = {0};
#if defined(__AVX2__) && V_BYTES == 32
    if (bytes % 4 == 0)
        return (vu64)_mm256_maskload_epi32((const int *)(const void *)p, part->mask);
#endif
    V_UNROLL
    for (size_t i = 0; i < V_BYTES / 8; i++) {
        uint64_t word = 0;
        if (bytes >= 8 * i + 8)
            memcpy(&word, p + 8 * i, 8);
        else if (bytes > 8 * i)
            word = word_partial(p + 8 * i, bytes - 8 * i);
        v[i] = word;
    }
    return v;
#endif
}

V_INLINE void v_store_partial(unsigned char *p, vu64 v, const struct v_part *part) {
#if defined(__AVX512BW__) && V_BYTES == 64
    _mm512_mask_storeu_epi8(p, part->mask, (__m512i)v);
#else
    unsigned char whole[V_BYTES];
    const size_t bytes = part->bytes;
    size_t done = 0;
    memcpy(whole, &v, sizeof(v));
    if (V_BYTES > 16 && (bytes & 16) != 0) {
        memcpy(p, whole, 16);
        done = 16;
    }
    if ((bytes & 8) != 0) {
        memcpy(p + done, whole + done, 8);
        done += 8;
    }
    if ((bytes & 4) != 0) {
        memcpy(p + done, whole + done, 4);
        done += 4;
    }
    if ((bytes & 2) != 0) {
        memcpy(p + done, whole + done, 2);
        done += 2;
    }
    if ((bytes & 1) != 0)
        p[done] = whole[done];
#endif
}

/* Past the cache; p is a multiple of V_BYTES. Whole lines of 64 bytes are written one after the
 * other, so that the write combining buffers never leave half full. */
V_INLINE void v_stream(unsigned char *p, vu64 v) {
    void *to = __builtin_assume_aligned(p, V_BYTES);
#if defined(__AVX512F__) && V_BYTES == 64
    _mm512_stream_si512(to, (__m512i)v);
#elif defined(__AVX2__) && V_BYTES == 32
    _mm256_stream_si256(to, (__m256i)v);
#elif defined(__SSE2__) && V_BYTES == 16
    _mm_stream_si128(to, (__m128i)v);
#else
    memcpy(to, &v, sizeof(v));
#endif
}

/* Orders streamed stores before later stores of this thread, as the caller's publication needs. */
V_INLINE void v_stream_end(void) {
#if defined(__x86_64__)
    /* lint: raw_fences: drains this core's write combining buffers; no other thread is involved */
    _mm_sfence();
#endif
}

/* a in the lanes where the mask is all ones, b where it is zero. */
V_INLINE vu64 v_select(vu64 mask, vu64 a, vu64 b) {
#if defined(__AVX2__) && V_BYTES == 32
    return (vu64)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)mask);
#else
    return (mask & a) | (~mask & b);
#endif
}

/* x, with the canonical bits instead of any NaN. Where x has one type throughout, gcc keeps it in
 * one register. */
V_INLINE vu64 v_canonical_f32(vf32 x) {
    vu64 nan = (vu64)v_all_u32(0x7fc00000u);
#if defined(__AVX512F__) && V_BYTES == 64
    __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (vu64)_mm512_mask_mov_epi32((__m512i)x, is_nan, (__m512i)nan);
#elif defined(__AVX2__) && V_BYTES == 32
    __m256 is_nan = _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q);
    return (vu64)_mm256_blendv_ps((__m256)x, (__m256)nan, is_nan);
#else
    return v_select((vu64)(x != x), nan, (vu64)x);
#endif
}

V_INLINE vu64 v_canonical_f64(vf64 x) {
    vu64 nan = v_all_u64(UINT64_C(0x7ff8000000000000));
#if defined(__AVX512F__) && V_BYTES == 64
    __mmask8 is_nan = _mm512_cmp_pd_mask((__m512d)x, (__m512d)x, _CMP_UNORD_Q);
    return (vu64)_mm512_mask_mov_epi64((__m512i)x, is_nan, (__m512i)nan);
#elif defined(__AVX2__) && V_BYTES == 32
    __m256d is_nan = _mm256_cmp_pd((__m256d)x, (__m256d)x, _CMP_UNORD_Q);
    return (vu64)_mm256_blendv_pd((__m256d)x, (__m256d)nan, is_nan);
#else
    return v_select((vu64)(x != x), nan, (vu64)x);
#endif
}

/* The odd 16-bit lanes of odd, the even ones of even. */
V_INLINE vu64 v_interleave_u16(vu32 odd, vu32 even) {
#if defined(__AVX512BW__) && V_BYTES == 64
    return (vu64)_mm512_mask_mov_epi16((__m512i)even, 0xaaaaaaaau, (__m512i)odd);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vu64)_mm256_blend_epi16((__m256i)even, (__m256i)odd, 0xaa);
#else
    return (vu64)((odd & 0xffff0000u) | (even & 0xffffu));
#endif
}

/* a < b ? a : b and a > b ? a : b, lane by lane, literally: b also where the lanes are equal or
 * unordered, which is what the processor's instructions do. */
V_INLINE vf32 v_less_f32(vf32 a, vf32 b) {
#if defined(__AVX512F__) && V_BYTES == 64
    return (vf32)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vf32)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return (vf32)v_select((vu64)(a < b), (vu64)a, (vu64)b);
#endif
}

V_INLINE vf32 v_more_f32(vf32 a, vf32 b) {
#if defined(__AVX512F__) && V_BYTES == 64
    return (vf32)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vf32)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return (vf32)v_select((vu64)(a > b), (vu64)a, (vu64)b);
#endif
}

V_INLINE vf64 v_less_f64(vf64 a, vf64 b) {
#if defined(__AVX512F__) && V_BYTES == 64
    return (vf64)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vf64)_mm256_min_pd((__m256d)a, (__m256d)b);
#else
    return (vf64)v_select((vu64)(a < b), (vu64)a, (vu64)b);
#endif
}

V_INLINE vf64 v_more_f64(vf64 a, vf64 b) {
#if defined(__AVX512F__) && V_BYTES == 64
    return (vf64)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__) && V_BYTES == 32
    return (vf64)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
    return (vf64)v_select((vu64)(a > b), (vu64)a, (vu64)b);
#endif
}

#endif
