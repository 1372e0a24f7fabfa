/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to one chunk (V_BYTES of user data): widen it into its form, combine, end. The form
 * and the combination are compile-time constants wherever these are called, so each switch
 * disappears. */
#ifndef GPU_HOST_MOVER_OPS_H
#define GPU_HOST_MOVER_OPS_H

#include "gpu/host/mover_rows.h"
#include "gpu/host/vec.h"
#include "gpu/host/vec_half.h"

#define FORM_VECTORS_MAX 2

/* Vectors that a chunk occupies in its form. */
V_INLINE size_t form_vectors(enum form form) {
    return form == FORM_RAW || form == FORM_FLOAT32 || form == FORM_FLOAT64 ? 1 : 2;
}

/* What the end of a reduction needs to know, for every form. */
struct ending {
    uint32_t divisor; /* at least 1 */
    uint32_t n_src;
};

V_INLINE void chunk_widen(enum form form, const unsigned char *p, vu64 *out) {
    switch (form) {
    case FORM_RAW:
    case FORM_FLOAT32:
    case FORM_FLOAT64:
        out[0] = v_load(p);
        break;
    case FORM_FLOAT16:
        float16_widen(p, out);
        break;
    case FORM_BFLOAT16:
        bfloat16_widen(p, out);
        break;
    case FORM_SUM_I32: {
        /* Biased to be unsigned: splitting lanes then needs no sign extension. int32_end takes
         * the bias of all sources off again. */
        vu64 x = (vu64)((vu32)v_load(p) ^ 0x80000000u);
        out[0] = x & 0xffffffffu;
        out[1] = x >> 32;
        break;
    }
    case FORM_SUM_I64:
        out[0] = v_load(p);
        out[1] = (vu64)((vi64)out[0] < 0);
        break;
    }
}

/* minimum and maximum of IEEE 754-2019 from the processor's: equal lanes differ at most in the sign
 * of zero, where "or" prefers -0 and "and" +0; a NaN in b is returned already, one in a is made. */
V_INLINE vu64 minimum_f32(vf32 a, vf32 b) {
    vu64 x = (vu64)v_less_f32(a, b);
    return x | ((vu64)a & (vu64)(a == b)) | (vu64)(a != a);
}

V_INLINE vu64 maximum_f32(vf32 a, vf32 b) {
    vu64 x = (vu64)v_more_f32(a, b);
    return (x & ((vu64)a | ~(vu64)(a == b))) | (vu64)(a != a);
}

V_INLINE vu64 minimum_f64(vf64 a, vf64 b) {
    vu64 x = (vu64)v_less_f64(a, b);
    return x | ((vu64)a & (vu64)(a == b)) | (vu64)(a != a);
}

V_INLINE vu64 maximum_f64(vf64 a, vf64 b) {
    vu64 x = (vu64)v_more_f64(a, b);
    return (x & ((vu64)a | ~(vu64)(a == b))) | (vu64)(a != a);
}

V_INLINE vu64 combine_vector(enum combine how, vu64 a, vu64 b) {
    switch (how) {
    case COMBINE_ADD_U32:
        return (vu64)((vu32)a + (vu32)b);
    case COMBINE_ADD_F32:
        return (vu64)((vf32)a + (vf32)b);
    case COMBINE_ADD_F64:
        return (vu64)((vf64)a + (vf64)b);
    case COMBINE_MIN_I32:
        return v_min_i32((vi32)a, (vi32)b);
    case COMBINE_MAX_I32:
        return v_max_i32((vi32)a, (vi32)b);
    case COMBINE_MIN_I64:
        return v_min_i64((vi64)a, (vi64)b);
    case COMBINE_MAX_I64:
        return v_max_i64((vi64)a, (vi64)b);
    case COMBINE_MIN_F32:
        return minimum_f32((vf32)a, (vf32)b);
    case COMBINE_MAX_F32:
        return maximum_f32((vf32)a, (vf32)b);
    case COMBINE_MIN_F64:
        return minimum_f64((vf64)a, (vf64)b);
    case COMBINE_MAX_F64:
        return maximum_f64((vf64)a, (vf64)b);
    case COMBINE_ADD_U64:
    case COMBINE_ADD_U128:
        break;
    }
    return a + b;
}

/* acc = acc combined with x, both in the form. */
V_INLINE void chunk_combine(enum form form, enum combine how, vu64 *acc, const vu64 *x) {
    if (how == COMBINE_ADD_U128) {
        acc[0] += x[0];
        /* A true lane is -1, so subtracting it adds the carry. */
        acc[1] += x[1] - (vu64)(acc[0] < x[0]);
        return;
    }
    V_UNROLL
    for (size_t i = 0; i < form_vectors(form); i++)
        acc[i] = combine_vector(how, acc[i], x[i]);
}

V_INLINE vu64 float32_end(int divide, const struct ending *end, vu64 bits) {
    vf32 x = (vf32)bits;
    if (divide)
        x = x / v_all_f32((float)end->divisor);
    return v_canonical_f32(x);
}

V_INLINE vu64 float64_end(int divide, const struct ending *end, vu64 bits) {
    vf64 x = (vf64)bits;
    if (divide)
        x = x / v_all_f64((double)end->divisor);
    return v_canonical_f64(x);
}

/* Quotient of a biased sum, exact, in the lower 32 bits of each lane. The magnitude m is at most
 * 2^37 (64 sources) and exact as a double. (m + 1/2) / divisor is at least 1 / (2 divisor) away
 * from any integer, and rounding the reciprocal and the product moves it by less than m / 2^51 of
 * that: its floor is that of m / divisor. Adding 2^52 rounds to an integer, perhaps one too far. */
V_INLINE vu64 int32_quotient(const struct ending *end, vu64 biased) {
    const double big = 4503599627370496.0; /* 2^52: its lowest bit is worth one */
    const uint64_t big_bits = UINT64_C(0x4330000000000000);
    vu64 sum = biased - ((uint64_t)end->n_src << 31);
    vu64 negative = (vu64)((vi64)sum < 0);
    vu64 m = (sum ^ negative) - negative;
    vf64 exact = (vf64)(m | big_bits) - big;
    vf64 quotient = (exact + 0.5) * (1.0 / end->divisor);
    vf64 rounded = quotient + big;
    vu64 q = (vu64)rounded - big_bits + (vu64)(rounded - big > quotient);
    return (q ^ negative) - negative;
}

/* One lane of a 128-bit sum. Dividing 32 bits at a time keeps every step within 64 bits, since
 * the magnitude is below 2^70 and the remainder below 2^32. Not inline: the divisions take longer
 * than the call. */
__attribute__((noinline)) static uint64_t int64_quotient(uint32_t divisor, uint64_t low,
                                                         uint64_t high) {
    uint64_t negative = 0 - (high >> 63);
    low ^= negative;
    high ^= negative;
    low -= negative;
    high += (low == 0) & negative;
    uint64_t q;
    if (high == 0) {
        q = low / divisor;
    } else {
        uint64_t upper = high << 32 | low >> 32;
        uint64_t lower = (upper % divisor) << 32 | (low & 0xffffffffu);
        q = ((upper / divisor) << 32) + lower / divisor;
    }
    return (q ^ negative) - negative;
}

/* The result of a chunk as the user's bytes. */
V_INLINE vu64 chunk_end(enum form form, int divide, const struct ending *end, const vu64 *acc) {
    vu64 pair[2];
    switch (form) {
    case FORM_RAW:
        break;
    case FORM_FLOAT32:
        return float32_end(divide, end, acc[0]);
    case FORM_FLOAT64:
        return float64_end(divide, end, acc[0]);
    case FORM_FLOAT16:
        pair[0] = float32_end(divide, end, acc[0]);
        pair[1] = float32_end(divide, end, acc[1]);
        return float16_narrow(pair);
    case FORM_BFLOAT16:
        pair[0] = float32_end(divide, end, acc[0]);
        pair[1] = float32_end(divide, end, acc[1]);
        return bfloat16_narrow(pair);
    case FORM_SUM_I32:
        return (int32_quotient(end, acc[0]) & 0xffffffffu) | int32_quotient(end, acc[1]) << 32;
    case FORM_SUM_I64: {
        vu64 q = {0};
        V_UNROLL
        for (size_t i = 0; i < V_BYTES / 8; i++)
            q[i] = int64_quotient(end->divisor, acc[0][i], acc[1][i]);
        return q;
    }
    }
    return acc[0];
}

#endif
