/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/perf/values.h"

#include <string.h>

size_t occl_values_bytes(enum occl_type type) {
    switch (type) {
    case OCCL_FLOAT16:
    case OCCL_BFLOAT16:
        return 2;
    case OCCL_INT32:
    case OCCL_FLOAT32:
        return 4;
    case OCCL_INT64:
    case OCCL_FLOAT64:
        return 8;
    }
    return 0;
}

/* Small whole numbers around zero that depend on everything. */
static int level(int rank, size_t index, uint32_t seed) {
    uint64_t mixed = (uint64_t)index * 131u + (uint64_t)rank * 29u + (uint64_t)seed * 17u +
                     (uint64_t)rank * index;
    return (int)(mixed % 61u) - 30;
}

/* ---- 16-bit floats, by their definition; inputs here are finite ---- */

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t to_bfloat16(float value) {
    uint32_t bits = float_bits(value);
    uint32_t half_way = 0x7fffu + ((bits >> 16) & 1u); /* ties to even */
    return (uint16_t)((bits + half_way) >> 16);
}

static float from_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds shift low bits away, ties to even. */
static uint32_t round_shift(uint32_t value, uint32_t shift) {
    if (shift > 31)
        return 0;
    uint32_t kept = value >> shift;
    uint32_t rest = value & ((1u << shift) - 1u);
    uint32_t half = shift ? 1u << (shift - 1u) : 0;
    return kept + (shift && (rest > half || (rest == half && (kept & 1u))));
}

static uint16_t to_float16(float value) {
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    int exponent = (int)(bits >> 23 & 0xffu) - 127 + 15;
    uint32_t mantissa = bits & 0x7fffffu;
    if (exponent >= 31)
        return (uint16_t)(sign | 0x7c00u);
    if (exponent <= 0) {
        if (exponent < -10)
            return (uint16_t)sign;
        return (uint16_t)(sign | round_shift(mantissa | 0x800000u, (uint32_t)(14 - exponent)));
    }
    /* A carry out of the mantissa raises the exponent, as it should, up to infinity. */
    return (uint16_t)(sign | (((uint32_t)exponent << 10) + round_shift(mantissa, 13)));
}

static float from_float16(uint16_t half) {
    float sign = half & 0x8000u ? -1.0f : 1.0f;
    int exponent = half >> 10 & 31;
    float mantissa = (float)(half & 0x3ffu);
    if (exponent == 0)
        return sign * mantissa * 0x1p-24f;
    float scale = 1.0f;
    for (int e = exponent; e < 25; e++)
        scale *= 0.5f;
    for (int e = exponent; e > 25; e--)
        scale *= 2.0f;
    return sign * (mantissa + 1024.0f) * scale;
}

/* ---- elements as numbers ---- */

static void put_float(enum occl_type type, void *period, size_t index, float value) {
    if (type == OCCL_FLOAT32)
        ((float *)period)[index] = value;
    else
        ((uint16_t *)period)[index] = type == OCCL_FLOAT16 ? to_float16(value) : to_bfloat16(value);
}

/* Tenths are exact in no binary type, so sums and the final rounding have something to round. */
static float float_input(enum occl_type type, int rank, size_t index, uint32_t seed) {
    float value = (float)level(rank, index, seed) * 0.1f;
    if (type == OCCL_FLOAT16)
        return from_float16(to_float16(value));
    return type == OCCL_BFLOAT16 ? from_bfloat16(to_bfloat16(value)) : value;
}

static double double_input(int rank, size_t index, uint32_t seed) {
    return (double)level(rank, index, seed) * 0.1;
}

/* Wide enough that sums of int32 wrap for some elements. */
static int64_t integer_input(enum occl_type type, int rank, size_t index, uint32_t seed) {
    int64_t value = level(rank, index, seed);
    if (index % 7 == 3)
        value *= type == OCCL_INT32 ? 50000017 : 200000000000000003;
    return value;
}

void occl_values_input(enum occl_type type, int rank, uint32_t seed, void *out_period) {
    for (size_t i = 0; i < OCCL_VALUES_PERIOD; i++) {
        switch (type) {
        case OCCL_INT32:
            ((int32_t *)out_period)[i] = (int32_t)integer_input(type, rank, i, seed);
            break;
        case OCCL_INT64:
            ((int64_t *)out_period)[i] = integer_input(type, rank, i, seed);
            break;
        case OCCL_FLOAT64:
            ((double *)out_period)[i] = double_input(rank, i, seed);
            break;
        case OCCL_FLOAT16:
        case OCCL_BFLOAT16:
        case OCCL_FLOAT32:
            put_float(type, out_period, i, float_input(type, rank, i, seed));
            break;
        }
    }
}

/* ---- reductions ---- */

static float reduce_float(enum occl_type type, enum occl_redop op, int ranks, size_t index,
                          uint32_t seed) {
    float result = float_input(type, 0, index, seed);
    for (int rank = 1; rank < ranks; rank++) {
        float next = float_input(type, rank, index, seed);
        if (op == OCCL_MIN)
            result = next < result ? next : result;
        else if (op == OCCL_MAX)
            result = next > result ? next : result;
        else
            result += next;
    }
    return op == OCCL_AVG ? result / (float)ranks : result;
}

static double reduce_double(enum occl_redop op, int ranks, size_t index, uint32_t seed) {
    double result = double_input(0, index, seed);
    for (int rank = 1; rank < ranks; rank++) {
        double next = double_input(rank, index, seed);
        if (op == OCCL_MIN)
            result = next < result ? next : result;
        else if (op == OCCL_MAX)
            result = next > result ? next : result;
        else
            result += next;
    }
    return op == OCCL_AVG ? result / (double)ranks : result;
}

/* The exact sum fits 128 bits; the cast back wraps. */
static int64_t reduce_integer(enum occl_type type, enum occl_redop op, int ranks, size_t index,
                              uint32_t seed) {
    __int128 result = integer_input(type, 0, index, seed);
    for (int rank = 1; rank < ranks; rank++) {
        int64_t next = integer_input(type, rank, index, seed);
        if (op == OCCL_MIN)
            result = next < result ? next : result;
        else if (op == OCCL_MAX)
            result = next > result ? next : result;
        else
            result += next;
    }
    if (op == OCCL_AVG)
        result /= ranks;
    return type == OCCL_INT32 ? (int32_t)(uint32_t)(unsigned __int128)result
                              : (int64_t)(uint64_t)(unsigned __int128)result;
}

void occl_values_reduce(enum occl_type type, enum occl_redop op, int ranks, uint32_t seed,
                        void *out_period) {
    for (size_t i = 0; i < OCCL_VALUES_PERIOD; i++) {
        switch (type) {
        case OCCL_INT32:
            ((int32_t *)out_period)[i] = (int32_t)reduce_integer(type, op, ranks, i, seed);
            break;
        case OCCL_INT64:
            ((int64_t *)out_period)[i] = reduce_integer(type, op, ranks, i, seed);
            break;
        case OCCL_FLOAT64:
            ((double *)out_period)[i] = reduce_double(op, ranks, i, seed);
            break;
        case OCCL_FLOAT16:
        case OCCL_BFLOAT16:
        case OCCL_FLOAT32:
            put_float(type, out_period, i, reduce_float(type, op, ranks, i, seed));
            break;
        }
    }
}

/* ---- whole buffers ---- */

void occl_values_fill(enum occl_type type, const void *period, void *buffer, size_t count) {
    size_t width = occl_values_bytes(type);
    char *to = buffer;
    while (count > 0) {
        size_t part = count < OCCL_VALUES_PERIOD ? count : OCCL_VALUES_PERIOD;
        memcpy(to, period, part * width);
        to += part * width;
        count -= part;
    }
}

uint64_t occl_values_count_wrong(enum occl_type type, const void *period, const void *buffer,
                                 size_t count) {
    size_t width = occl_values_bytes(type);
    const char *from = buffer;
    uint64_t wrong = 0;
    while (count > 0) {
        size_t part = count < OCCL_VALUES_PERIOD ? count : OCCL_VALUES_PERIOD;
        if (memcmp(from, period, part * width) != 0)
            for (size_t i = 0; i < part; i++)
                wrong += memcmp(from + i * width, (const char *)period + i * width, width) != 0;
        from += part * width;
        count -= part;
    }
    return wrong;
}
