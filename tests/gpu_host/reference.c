/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu_host/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shm_ipc/datatype.h"

/* Two numbers of 53 bits, added or divided in this type and then rounded to 53 bits, give the same
 * as one rounding: it has more than twice as many bits (113). */
typedef __float128 wide;

struct format {
    int mantissa_bits; /* without the hidden one */
    int exponent_bits;
};

static struct format format_of(uint32_t dtype) {
    switch (dtype) {
    case OCCL_DT_FLOAT16:
        return (struct format){10, 5};
    case OCCL_DT_BFLOAT16:
        return (struct format){7, 8};
    case OCCL_DT_FLOAT32:
        return (struct format){23, 8};
    case OCCL_DT_FLOAT64:
        return (struct format){52, 11};
    default:
        abort();
    }
}

uint64_t reference_get(const void *buffer, size_t i, size_t element_bytes) {
    const unsigned char *p = (const unsigned char *)buffer + i * element_bytes;
    uint64_t bits = 0;
    for (size_t k = element_bytes; k-- > 0;)
        bits = bits << 8 | p[k];
    return bits;
}

void reference_put(void *buffer, size_t i, size_t element_bytes, uint64_t bits) {
    unsigned char *p = (unsigned char *)buffer + i * element_bytes;
    for (size_t k = 0; k < element_bytes; k++)
        p[k] = (unsigned char)(bits >> (8 * k));
}

double reference_value(uint32_t dtype, uint64_t bits) {
    struct format f = format_of(dtype);
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    uint64_t mantissa = bits & ((UINT64_C(1) << f.mantissa_bits) - 1);
    int exponent = (int)(bits >> f.mantissa_bits & ((UINT64_C(1) << f.exponent_bits) - 1));
    double sign = bits >> (f.mantissa_bits + f.exponent_bits) & 1 ? -1.0 : 1.0;
    if (exponent == (1 << f.exponent_bits) - 1)
        return mantissa != 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp((double)mantissa, 1 - bias - f.mantissa_bits);
    mantissa += UINT64_C(1) << f.mantissa_bits;
    return sign * ldexp((double)mantissa, exponent - bias - f.mantissa_bits);
}

uint64_t reference_bits(uint32_t dtype, double value) {
    struct format f = format_of(dtype);
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const uint64_t infinity = ((UINT64_C(1) << f.exponent_bits) - 1) << f.mantissa_bits;
    uint64_t sign = (signbit(value) ? UINT64_C(1) : 0) << (f.mantissa_bits + f.exponent_bits);
    double magnitude = fabs(value);
    if (isnan(value))
        return infinity | UINT64_C(1) << (f.mantissa_bits - 1);
    if (isinf(value))
        return sign | infinity;
    if (magnitude == 0.0)
        return sign;
    /* The unit of the last place, which below the smallest normal number stays the same. */
    int exponent = ilogb(magnitude);
    if (exponent < 1 - bias)
        exponent = 1 - bias;
    double units = nearbyint(ldexp(magnitude, f.mantissa_bits - exponent));
    if (units == ldexp(1.0, f.mantissa_bits + 1)) {
        units /= 2;
        exponent++;
    }
    if (exponent > bias)
        return sign | infinity;
    uint64_t mantissa = (uint64_t)units;
    uint64_t hidden = UINT64_C(1) << f.mantissa_bits;
    if (mantissa < hidden)
        return sign | mantissa;
    return sign | (uint64_t)(exponent + bias) << f.mantissa_bits | (mantissa - hidden);
}

/* Rounds to the type in which sums are kept: float32, except for float64. */
static double to_accumulator(uint32_t dtype, wide x) {
    if (dtype == OCCL_DT_FLOAT64)
        return (double)x;
    return (double)(float)x;
}

static double smaller(double a, double b) {
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

static double larger(double a, double b) {
    return -smaller(-a, -b);
}

static uint64_t reduce_float(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *src,
                             size_t n_src) {
    double acc = reference_value(dtype, src[0]);
    for (size_t k = 1; k < n_src; k++) {
        double x = reference_value(dtype, src[k]);
        if (redop == OCCL_RO_MIN)
            acc = smaller(acc, x);
        else if (redop == OCCL_RO_MAX)
            acc = larger(acc, x);
        else
            acc = to_accumulator(dtype, (wide)acc + (wide)x);
    }
    if (redop == OCCL_RO_AVG && divisor != 0) {
        double by = dtype == OCCL_DT_FLOAT64 ? (double)divisor : (double)(float)divisor;
        acc = to_accumulator(dtype, (wide)acc / (wide)by);
    }
    return reference_bits(dtype, acc);
}

static uint64_t reduce_int(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *src,
                           size_t n_src) {
    __int128 acc = 0;
    for (size_t k = 0; k < n_src; k++) {
        __int128 x = dtype == OCCL_DT_INT32 ? (int32_t)(uint32_t)src[k] : (int64_t)src[k];
        if (k == 0)
            acc = x;
        else if (redop == OCCL_RO_MIN)
            acc = x < acc ? x : acc;
        else if (redop == OCCL_RO_MAX)
            acc = x > acc ? x : acc;
        else
            acc += x;
    }
    if (redop == OCCL_RO_AVG && divisor != 0)
        acc /= (__int128)divisor;
    uint64_t bits = (uint64_t)acc;
    return dtype == OCCL_DT_INT32 ? (uint32_t)bits : bits;
}

uint64_t reference_reduce(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *src,
                          size_t n_src) {
    if (dtype == OCCL_DT_INT32 || dtype == OCCL_DT_INT64)
        return reduce_int(dtype, redop, divisor, src, n_src);
    return reduce_float(dtype, redop, divisor, src, n_src);
}

uint64_t random_next(struct random *r) {
    /* splitmix64 */
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t sample_int(struct random *r, uint32_t dtype, unsigned kind) {
    static const int64_t ends[] = {INT64_MIN,     INT64_MIN + 1, -1,        0,        1,
                                   INT64_MAX - 1, INT64_MAX,     INT32_MIN, INT32_MAX};
    uint64_t x = random_next(r);
    if (kind == 0)
        x = (uint64_t)((int64_t)x >> 40);
    else if (kind == 1)
        x = (uint64_t)((int64_t)x >> random_below(r, 64));
    else if (kind == 2)
        x = (uint64_t)ends[random_below(r, sizeof(ends) / sizeof(ends[0]))];
    return dtype == OCCL_DT_INT32 ? (uint32_t)x : x;
}

static uint64_t sample_float(struct random *r, uint32_t dtype, unsigned kind) {
    struct format f = format_of(dtype);
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const double ends[] = {0.0,
                           -0.0,
                           INFINITY,
                           -INFINITY,
                           NAN,
                           ldexp(1.0, 1 - bias - f.mantissa_bits),
                           -ldexp(1.0, 1 - bias),
                           ldexp(2.0 - ldexp(1.0, -f.mantissa_bits), bias),
                           -1.0};
    const uint64_t mask = UINT64_MAX >> (63 - f.mantissa_bits - f.exponent_bits);
    double fraction = (double)(int64_t)random_next(r) / 9223372036854775808.0;
    switch (kind) {
    case 0: /* similar magnitudes, so that sums round */
        return reference_bits(dtype, ldexp(fraction, (int)random_below(r, 8)));
    case 1: /* spread over much of the range, denormals included */
        return reference_bits(dtype, ldexp(fraction, (int)random_below(r, 40) - 24));
    case 2:
        return reference_bits(dtype, ends[random_below(r, sizeof(ends) / sizeof(ends[0]))]);
    default: /* anything, other NaNs included */
        return random_next(r) & mask;
    }
}

uint64_t reference_sample(struct random *r, uint32_t dtype, unsigned kind) {
    if (dtype == OCCL_DT_INT32 || dtype == OCCL_DT_INT64)
        return sample_int(r, dtype, kind);
    return sample_float(r, dtype, kind);
}
