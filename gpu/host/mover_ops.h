/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to one chunk (V_BYTES of user data): widen it into its form, multiply, combine, end.
 * The form and the combination are compile-time constants wherever these are called, so each switch
 * disappears. */
#ifndef GPU_HOST_MOVER_OPS_H
#define GPU_HOST_MOVER_OPS_H

#include "gpu/host/mover_average.h"
#include "gpu/host/mover_order.h"
#include "gpu/host/mover_rows.h"
#include "gpu/host/vec.h"
#include "gpu/host/vec_eighth.h"
#include "gpu/host/vec_half.h"
#include "gpu/host/vec_int.h"

#define FORM_VECTORS_MAX 4

/* Vectors that a chunk occupies in its form. */
#define FORM_VECTORS(name, vectors) \
    case FORM_##name:               \
        return vectors;
V_INLINE size_t form_vectors(enum form form) {
    switch (form) { OCCL_MOVER_FORMS(FORM_VECTORS) }
    return 1;
}

static const struct small_float float16_small = {0x7c00, 0x7e00};
static const struct small_float bfloat16_small = {0x7f80, 0x7fc0};
static const struct small_float float8e4m3_small = {0x7e, 0x7f};
static const struct small_float float8e5m2_small = {0x7c, 0x7e};

/* A case for each of the two orders of a type: the one of MIN and MINLOC, and that of MAX and
 * MAXLOC. */
#define CASES_OF_ORDERS(type, result, function, ...) \
    case FORM_LOW_##type:                            \
        result = function(__VA_ARGS__, 1);           \
        break;                                       \
    case FORM_HIGH_##type:                           \
        result = function(__VA_ARGS__, 0);           \
        break;

#define CASE_OF_SUMS(lanes, function) \
    case FORM_SUM_##lanes:            \
        function(x, out);             \
        break;

#define CASE_OF_TRUTH(w, result, value, operation) \
    case FORM_TRUTH_##w:                           \
        result = (vu64)((vu##w)(value)operation);  \
        break;

V_INLINE void chunk_widen(enum form form, const unsigned char *p, vu64 *out) {
    const vu64 x = v_load(p);
    switch (form) {
    case FORM_RAW:
    case FORM_FLOAT32:
    case FORM_FLOAT64:
        out[0] = x;
        break;
    case FORM_FLOAT16:
        float16_load(p, out);
        break;
    case FORM_BFLOAT16:
        bfloat16_load(p, out);
        break;
    case FORM_FLOAT8E4M3:
        float8e4m3_widen(x, out);
        break;
    case FORM_FLOAT8E4M3_256:
        float8e4m3_widen_256(x, out);
        break;
    case FORM_FLOAT8E5M2:
        float8e5m2_widen(x, out);
        break;
        CASES_OF_ORDERS(FLOAT16, out[0], extreme_16_widen, x, float16_small)
        CASES_OF_ORDERS(BFLOAT16, out[0], extreme_16_widen, x, bfloat16_small)
        CASES_OF_ORDERS(FLOAT8E4M3, out[0], extreme_8_widen, x, float8e4m3_small)
        CASES_OF_ORDERS(FLOAT8E5M2, out[0], extreme_8_widen, x, float8e5m2_small)
        CASE_OF_SUMS(I8, sum_i8_widen)
        CASE_OF_SUMS(U8, sum_u8_widen)
        CASE_OF_SUMS(I16, sum_i16_widen)
        CASE_OF_SUMS(U16, sum_u16_widen)
        CASE_OF_SUMS(I32, sum_i32_widen)
        CASE_OF_SUMS(U32, sum_u32_widen)
        CASE_OF_SUMS(I64, sum_i64_widen)
        CASE_OF_SUMS(U64, sum_u32_widen)
        CASE_OF_TRUTH(8, out[0], x, != 0)
        CASE_OF_TRUTH(16, out[0], x, != 0)
        CASE_OF_TRUTH(32, out[0], x, != 0)
        CASE_OF_TRUTH(64, out[0], x, != 0)
        CASES_OF_ORDERS(PAIR_F32, out[0], pair_f32_widen, x)
        CASES_OF_ORDERS(PAIR_I32, out[0], pair_i32_widen, x)
        CASES_OF_ORDERS(PAIR_F64, out[0], pair_f64_widen, x)
        CASES_OF_ORDERS(PAIR_I64, out[0], pair_i64_widen, x)
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

#define CASES_OF_EXTREMES(letter, kind, lanes, w, less, more) \
    case COMBINE_MIN_##letter##w:                             \
        return less(kind##w, lanes##w, a, b);                 \
    case COMBINE_MAX_##letter##w:                             \
        return more(kind##w, lanes##w, a, b);

#define CASE_OF_ARITHMETIC(name, lanes, operation) \
    case COMBINE_##name:                           \
        return (vu64)((lanes)a operation(lanes) b);

V_INLINE vu64 combine_vector(enum combine how, vu64 a, vu64 b) {
    switch (how) {
        CASE_OF_ARITHMETIC(ADD_U8, vu8, +)
        CASE_OF_ARITHMETIC(ADD_U16, vu16, +)
        CASE_OF_ARITHMETIC(ADD_U32, vu32, +)
        CASE_OF_ARITHMETIC(ADD_U64, vu64, +)
        CASE_OF_ARITHMETIC(ADD_F32, vf32, +)
        CASE_OF_ARITHMETIC(ADD_F64, vf64, +)
    case COMBINE_MUL_U8:
        return v_multiply_u8(a, b);
        CASE_OF_ARITHMETIC(MUL_U16, vu16, *)
        CASE_OF_ARITHMETIC(MUL_U32, vu32, *)
        CASE_OF_ARITHMETIC(MUL_U64, vu64, *)
        CASE_OF_ARITHMETIC(MUL_F32, vf32, *)
        CASE_OF_ARITHMETIC(MUL_F64, vf64, *)
        CASE_OF_ARITHMETIC(AND, vu64, &)
        CASE_OF_ARITHMETIC(OR, vu64, |)
        CASE_OF_ARITHMETIC(XOR, vu64, ^)
        CASES_OF_EXTREMES(I, epi, vi, 8, v_less, v_more)
        CASES_OF_EXTREMES(I, epi, vi, 16, v_less, v_more)
        CASES_OF_EXTREMES(I, epi, vi, 32, v_less, v_more)
        CASES_OF_EXTREMES(I, epi, vi, 64, v_less_64, v_more_64)
        CASES_OF_EXTREMES(U, epu, vu, 8, v_less, v_more)
        CASES_OF_EXTREMES(U, epu, vu, 16, v_less, v_more)
        CASES_OF_EXTREMES(U, epu, vu, 32, v_less, v_more)
        CASES_OF_EXTREMES(U, epu, vu, 64, v_less_64, v_more_64)
    case COMBINE_MIN_F32:
        return minimum_f32((vf32)a, (vf32)b);
    case COMBINE_MAX_F32:
        return maximum_f32((vf32)a, (vf32)b);
    case COMBINE_MIN_F64:
        return minimum_f64((vf64)a, (vf64)b);
    case COMBINE_MAX_F64:
        return maximum_f64((vf64)a, (vf64)b);
    case COMBINE_MIN_PAIR:
        return pair_less(a, b);
    }
    return a;
}

/* acc = acc combined with x, both in the form. */
V_INLINE void chunk_combine(enum form form, enum combine how, vu64 *acc, const vu64 *x) {
    V_UNROLL
    for (size_t i = 0; i < form_vectors(form); i++)
        acc[i] = combine_vector(how, acc[i], x[i]);
}

/* The multiplication that goes with an addition, and a factor in all of its lanes. */
V_INLINE enum combine product_of(enum combine how) {
    switch (how) {
    case COMBINE_ADD_U8:
        return COMBINE_MUL_U8;
    case COMBINE_ADD_U16:
        return COMBINE_MUL_U16;
    case COMBINE_ADD_U32:
        return COMBINE_MUL_U32;
    case COMBINE_ADD_U64:
        return COMBINE_MUL_U64;
    case COMBINE_ADD_F32:
        return COMBINE_MUL_F32;
    default:
        return COMBINE_MUL_F64;
    }
}

V_INLINE vu64 factor_lanes(enum combine how, uint64_t factor) {
    switch (how) {
    case COMBINE_ADD_U8:
        return (vu64)v_all_u8((uint8_t)factor);
    case COMBINE_ADD_U16:
        return (vu64)v_all_u16((uint16_t)factor);
    case COMBINE_ADD_U32:
    case COMBINE_ADD_F32:
        return (vu64)v_all_u32((uint32_t)factor);
    default:
        return v_all_u64(factor);
    }
}

/* As chunk_widen; times the factor, if sources have one. */
V_INLINE void chunk_take(enum form form, enum combine how, int scaled, const unsigned char *p,
                         vu64 factor, vu64 *out) {
    chunk_widen(form, p, out);
    if (!scaled)
        return;
    V_UNROLL
    for (size_t i = 0; i < form_vectors(form); i++)
        out[i] = combine_vector(product_of(how), out[i], factor);
}

/* The division of an average of floats, of all vectors at once. A power of two has an exact
 * reciprocal: multiplying by it rounds the same number, once, as dividing does. */
V_INLINE void divide_f32(const struct ending *end, size_t vectors, vu64 *acc) {
    if (end->divisor_is_power) {
        V_UNROLL
        for (size_t i = 0; i < vectors; i++)
            acc[i] = (vu64)((vf32)acc[i] * (float)end->reciprocal);
    } else {
        V_UNROLL
        for (size_t i = 0; i < vectors; i++)
            acc[i] = (vu64)((vf32)acc[i] / (float)end->divisor);
    }
}

V_INLINE void divide_f64(const struct ending *end, size_t vectors, vu64 *acc) {
    V_UNROLL
    for (size_t i = 0; i < vectors; i++)
        acc[i] = (vu64)((vf64)acc[i] / (double)end->divisor);
}

V_INLINE void form_divide(enum form form, const struct ending *end, size_t vectors, vu64 *acc) {
    if (end->divisor == 1)
        return;
    switch (form) {
    case FORM_FLOAT32:
    case FORM_FLOAT16:
    case FORM_BFLOAT16:
    case FORM_FLOAT8E4M3_256:
    case FORM_FLOAT8E5M2:
        divide_f32(end, vectors, acc);
        break;
    case FORM_FLOAT64:
        divide_f64(end, vectors, acc);
        break;
    default:
        break;
    }
}

/* The result of a chunk as the user's bytes, after form_divide. */
V_INLINE vu64 chunk_end(enum form form, const struct ending *end, const vu64 *acc) {
    vu64 x = acc[0];
    vu64 all[FORM_VECTORS_MAX];
    switch (form) {
    case FORM_RAW:
        break;
    case FORM_FLOAT32:
        return v_canonical_f32((vf32)x);
    case FORM_FLOAT64:
        return v_canonical_f64((vf64)x);
    case FORM_FLOAT16:
    case FORM_BFLOAT16:
        all[0] = v_canonical_f32((vf32)x);
        all[1] = v_canonical_f32((vf32)acc[1]);
        return form == FORM_FLOAT16 ? float16_narrow(all) : bfloat16_narrow(all);
    case FORM_FLOAT8E4M3:
        V_UNROLL
        for (size_t i = 0; i < 4; i++)
            all[i] = (vu64)((vf32)acc[i] * (1.0f / 256));
        return float8e4m3_narrow_256(all, end->few_bits);
    case FORM_FLOAT8E4M3_256:
        return float8e4m3_narrow_256(acc, end->few_bits);
    case FORM_FLOAT8E5M2:
        return float8e5m2_narrow(acc, end->few_bits);
        CASES_OF_ORDERS(FLOAT16, x, extreme_16_end, x, float16_small)
        CASES_OF_ORDERS(BFLOAT16, x, extreme_16_end, x, bfloat16_small)
        CASES_OF_ORDERS(FLOAT8E4M3, x, extreme_8_end, x, float8e4m3_small)
        CASES_OF_ORDERS(FLOAT8E5M2, x, extreme_8_end, x, float8e5m2_small)
    case FORM_SUM_I8:
    case FORM_SUM_U8:
        return sum_8_end(end, acc);
    case FORM_SUM_I16:
    case FORM_SUM_U16:
        return sum_16_end(end, acc);
    case FORM_SUM_I32:
        return sum_32_end(end, (uint64_t)end->n_src << 31, acc);
    case FORM_SUM_U32:
        return sum_32_end(end, 0, acc);
    case FORM_SUM_I64:
        return sum_64_end(end, (uint64_t)end->n_src << 31, acc);
    case FORM_SUM_U64:
        return sum_64_end(end, 0, acc);
        CASE_OF_TRUTH(8, x, x, &1)
        CASE_OF_TRUTH(16, x, x, &1)
        CASE_OF_TRUTH(32, x, x, &1)
        CASE_OF_TRUTH(64, x, x, &1)
        CASES_OF_ORDERS(PAIR_F32, x, pair_f32_end, x)
        CASES_OF_ORDERS(PAIR_I32, x, pair_i32_end, x)
        CASES_OF_ORDERS(PAIR_F64, x, pair_f64_end, x)
        CASES_OF_ORDERS(PAIR_I64, x, pair_i64_end, x)
    }
    return x;
}

#endif
