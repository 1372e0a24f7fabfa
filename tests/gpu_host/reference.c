/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu_host/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shm_ipc/datatype.h"
#include "tests/gpu_host/float8_values.h"

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
    case OCCL_DT_FLOAT8E4M3:
        return (struct format){3, 4};
    case OCCL_DT_FLOAT8E5M2:
        return (struct format){2, 5};
    default:
        abort();
    }
}

/* The values of an 8-bit float and how many there are; NULL for other types. */
static const double *table_of(uint32_t dtype, size_t *out_count) {
    if (dtype == OCCL_DT_FLOAT8E4M3) {
        *out_count = sizeof(float8e4m3_values) / sizeof(float8e4m3_values[0]);
        return float8e4m3_values;
    }
    if (dtype == OCCL_DT_FLOAT8E5M2) {
        *out_count = sizeof(float8e5m2_values) / sizeof(float8e5m2_values[0]);
        return float8e5m2_values;
    }
    return NULL;
}

static double value_by_table(const double *table, size_t count, uint64_t bits) {
    const size_t i = bits & 0x7f;
    const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
    if (i + 1 < count)
        return sign * table[i];
    return i + 1 == count && table == float8e5m2_values ? sign * INFINITY : NAN;
}

/* The nearest value; of two, the one with even bits. */
static uint64_t bits_by_table(const double *table, size_t count, double value) {
    const double magnitude = fabs(value);
    const uint64_t sign = signbit(value) ? 0x80 : 0;
    const bool has_infinity = table == float8e5m2_values;
    if (isnan(value))
        return has_infinity ? 0x7e : 0x7f;
    size_t i = 0;
    while (i + 1 < count && table[i] < magnitude)
        i++;
    if (i > 0 && magnitude < table[i]) {
        double down = magnitude - table[i - 1], up = table[i] - magnitude;
        if (down < up || (down == up && i % 2 == 1))
            i--;
    }
    return i + 1 == count && !has_infinity ? 0x7f : sign | i;
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
    size_t table_count;
    const double *table = table_of(dtype, &table_count);
    if (table != NULL)
        return value_by_table(table, table_count, bits);
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
    size_t table_count;
    const double *table = table_of(dtype, &table_count);
    if (table != NULL)
        return bits_by_table(table, table_count, value);
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

/* a op b, rounded once to the type in which the elements are combined: float32 except for float64.
 * A double has more than twice as many bits as a float32. */
static double combined(uint32_t dtype, char op, double a, double b) {
    if (dtype != OCCL_DT_FLOAT64)
        return (double)(float)(op == '+' ? a + b : op == '*' ? a * b : a / b);
    wide x = a, y = b;
    return (double)(op == '+' ? x + y : op == '*' ? x * y : x / y);
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

static double factor_value(uint32_t dtype, const uint64_t *factors, size_t k) {
    if (dtype == OCCL_DT_FLOAT64)
        return reference_value(OCCL_DT_FLOAT64, factors[k]);
    return reference_value(OCCL_DT_FLOAT32, factors[k] & UINT32_MAX);
}

static uint64_t reduce_float(uint32_t dtype, uint32_t redop, uint32_t divisor,
                             const uint64_t *factors, const uint64_t *src, size_t n_src) {
    double acc = 0;
    for (size_t k = 0; k < n_src; k++) {
        double x = reference_value(dtype, src[k]);
        if (redop == OCCL_RO_PREMULSUM)
            x = combined(dtype, '*', x, factor_value(dtype, factors, k));
        if (k == 0)
            acc = x;
        else if (redop == OCCL_RO_MIN)
            acc = smaller(acc, x);
        else if (redop == OCCL_RO_MAX)
            acc = larger(acc, x);
        else
            acc = combined(dtype, redop == OCCL_RO_PROD ? '*' : '+', acc, x);
    }
    if (redop == OCCL_RO_AVG && divisor != 0)
        acc = combined(dtype, '/', acc,
                       dtype == OCCL_DT_FLOAT64 ? (double)divisor : (double)(float)divisor);
    return reference_bits(dtype, acc);
}

static bool is_signed(uint32_t dtype) {
    return dtype == OCCL_DT_INT8 || dtype == OCCL_DT_INT16 || dtype == OCCL_DT_INT32 ||
           dtype == OCCL_DT_INT64;
}

static unsigned bits_of(uint32_t dtype) {
    return 8 * (unsigned)occl_dtype_bytes(dtype);
}

static uint64_t cut(uint32_t dtype, uint64_t bits) {
    return bits & UINT64_MAX >> (64 - bits_of(dtype));
}

static __int128 int_value(uint32_t dtype, uint64_t bits) {
    __int128 value = cut(dtype, bits);
    if (is_signed(dtype) && bits >> (bits_of(dtype) - 1) & 1)
        value -= (__int128)1 << bits_of(dtype);
    return value;
}

/* Operators that see bits; 64 of them are as good as fewer. */
static uint64_t combined_bits(uint32_t redop, uint64_t a, uint64_t b) {
    switch (redop) {
    case OCCL_RO_SUM:
    case OCCL_RO_PREMULSUM:
        return a + b;
    case OCCL_RO_PROD:
        return a * b;
    case OCCL_RO_BAND:
        return a & b;
    case OCCL_RO_BOR:
        return a | b;
    case OCCL_RO_BXOR:
        return a ^ b;
    case OCCL_RO_LAND:
        return a != 0 && b != 0;
    case OCCL_RO_LOR:
        return a != 0 || b != 0;
    case OCCL_RO_LXOR:
        return (a != 0) != (b != 0);
    default:
        abort();
    }
}

static uint64_t reduce_bits(uint32_t dtype, uint32_t redop, const uint64_t *factors,
                            const uint64_t *src, size_t n_src) {
    uint64_t acc = 0;
    for (size_t k = 0; k < n_src; k++) {
        uint64_t x = cut(dtype, src[k]);
        if (redop == OCCL_RO_PREMULSUM)
            x *= factors[k];
        else if (redop >= OCCL_RO_LAND)
            x = x != 0;
        acc = k == 0 ? x : combined_bits(redop, acc, x);
    }
    return cut(dtype, acc);
}

static uint64_t reduce_int(uint32_t dtype, uint32_t redop, uint32_t divisor,
                           const uint64_t *factors, const uint64_t *src, size_t n_src) {
    if (redop != OCCL_RO_MIN && redop != OCCL_RO_MAX && redop != OCCL_RO_AVG)
        return reduce_bits(dtype, redop, factors, src, n_src);
    __int128 acc = int_value(dtype, src[0]);
    for (size_t k = 1; k < n_src; k++) {
        __int128 x = int_value(dtype, src[k]);
        if (redop == OCCL_RO_AVG)
            acc += x;
        else if (redop == OCCL_RO_MIN ? x < acc : x > acc)
            acc = x;
    }
    if (redop == OCCL_RO_AVG && divisor != 0)
        acc /= (__int128)divisor;
    return cut(dtype, (uint64_t)acc);
}

uint64_t reference_reduce(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *factors,
                          const uint64_t *src, size_t n_src) {
    if (reference_is_float(dtype))
        return reduce_float(dtype, redop, divisor, factors, src, n_src);
    return reduce_int(dtype, redop, divisor, factors, src, n_src);
}

/* The type of a pair's value; the index is the signed integer of the same size. */
static uint32_t value_type(uint32_t dtype) {
    switch (dtype) {
    case OCCL_DT_FLOAT32_INT32:
        return OCCL_DT_FLOAT32;
    case OCCL_DT_FLOAT64_INT64:
        return OCCL_DT_FLOAT64;
    case OCCL_DT_INT32_INT32:
        return OCCL_DT_INT32;
    default:
        return OCCL_DT_INT64;
    }
}

struct pair {
    uint64_t value;
    int64_t index;
};

/* -1, 0 or 1: whether the value a is preferred to b, equal, or not. */
static int preference(uint32_t type, uint32_t redop, uint64_t a, uint64_t b) {
    int below;
    if (reference_is_float(type)) {
        double x = reference_value(type, a), y = reference_value(type, b);
        if (isnan(x) || isnan(y))
            return isnan(y) - isnan(x);
        below = x == y ? (signbit(y) != 0) - (signbit(x) != 0) : x < y ? -1 : 1;
    } else {
        below = int_value(type, a) == int_value(type, b)  ? 0
                : int_value(type, a) < int_value(type, b) ? -1
                                                          : 1;
    }
    return redop == OCCL_RO_MINLOC ? below : -below;
}

static void reduce_pairs(uint32_t dtype, uint32_t redop, const unsigned char *const *src,
                         size_t n_src, size_t i, void *out) {
    const uint32_t type = value_type(dtype);
    const size_t half = occl_dtype_bytes(dtype) / 2;
    struct pair best = {0, 0};
    for (size_t k = 0; k < n_src; k++) {
        struct pair x = {reference_get(src[k], 2 * i, half),
                         (int64_t)reference_get(src[k], 2 * i + 1, half)};
        if (half == 4)
            x.index = (int32_t)x.index;
        int order = k == 0 ? -1 : preference(type, redop, x.value, best.value);
        if (order < 0 || (order == 0 && x.index < best.index))
            best = x;
    }
    if (reference_is_float(type) && isnan(reference_value(type, best.value)))
        best.value = reference_bits(type, NAN);
    reference_put(out, 2 * i, half, best.value);
    reference_put(out, 2 * i + 1, half, (uint64_t)best.index);
}

void reference_reduce_at(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *factors,
                         const unsigned char *const *src, size_t n_src, size_t i, void *out) {
    const size_t size = occl_dtype_bytes(dtype);
    uint64_t bits[64] = {0};
    if (reference_is_pair(dtype)) {
        reduce_pairs(dtype, redop, src, n_src, i, out);
        return;
    }
    for (size_t k = 0; k < n_src; k++)
        bits[k] = reference_get(src[k], i, size);
    reference_put(out, i, size, reference_reduce(dtype, redop, divisor, factors, bits, n_src));
}

bool reference_is_float(uint32_t dtype) {
    return (dtype >= OCCL_DT_FLOAT16 && dtype <= OCCL_DT_FLOAT8E5M2);
}

bool reference_is_pair(uint32_t dtype) {
    return dtype >= OCCL_DT_FLOAT32_INT32 && dtype <= OCCL_DT_INT64_INT64;
}

bool reference_supports(uint32_t dtype, uint32_t redop) {
    if (occl_dtype_bytes(dtype) == 0)
        return false;
    if (reference_is_pair(dtype))
        return redop == OCCL_RO_MINLOC || redop == OCCL_RO_MAXLOC;
    return redop <= OCCL_RO_PREMULSUM || (redop <= OCCL_RO_LXOR && !reference_is_float(dtype));
}

uint64_t random_next(struct random *r) {
    /* splitmix64 */
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t sample_int(struct random *r, uint32_t dtype, unsigned kind) {
    static const int64_t ends[] = {INT64_MIN, INT64_MIN + 1, -1,        0,         1,
                                   INT64_MAX, INT64_MAX - 1, INT32_MIN, INT32_MAX, INT16_MIN,
                                   INT16_MAX, INT8_MIN,      INT8_MAX};
    const unsigned bits = bits_of(dtype);
    uint64_t x = random_next(r);
    if (kind == 0)
        x = (uint64_t)((int64_t)x >> 40);
    else if (kind == 1)
        x = (uint64_t)((int64_t)x >> random_below(r, 64));
    else if (kind == 2) /* many zeros, for the logical operators */
        x = random_below(r, 2) << random_below(r, bits);
    else if (kind == 3)
        x = (uint64_t)ends[random_below(r, sizeof(ends) / sizeof(ends[0]))];
    return cut(dtype, x);
}

static uint64_t sample_float(struct random *r, uint32_t dtype, unsigned kind) {
    struct format f = format_of(dtype);
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const int spread = f.exponent_bits == 4 ? 16 : 40;
    const double ends[] = {0.0,
                           -0.0,
                           INFINITY,
                           -INFINITY,
                           NAN,
                           ldexp(1.0, 1 - bias - f.mantissa_bits),
                           -ldexp(1.0, 1 - bias),
                           ldexp(2.0 - ldexp(1.0, -f.mantissa_bits), bias),
                           -1.0};
    double fraction = (double)(int64_t)random_next(r) / 9223372036854775808.0;
    switch (kind) {
    case 0: /* similar magnitudes, so that sums round */
        return reference_bits(dtype, ldexp(fraction, (int)random_below(r, 8)));
    case 1: /* spread over much of the range, denormals included */
        return reference_bits(
            dtype, ldexp(fraction, (int)random_below(r, (uint64_t)spread) - spread * 3 / 5));
    case 2: /* around one, so that products stay in range */
        return reference_bits(dtype, random_below(r, 2) ? 1 + fraction / 2 : -1 - fraction / 2);
    case 3:
        return reference_bits(dtype, ends[random_below(r, sizeof(ends) / sizeof(ends[0]))]);
    default: /* anything, other NaNs included */
        return cut(dtype, random_next(r));
    }
}

uint64_t reference_sample(struct random *r, uint32_t dtype, unsigned kind) {
    if (reference_is_float(dtype))
        return sample_float(r, dtype, kind);
    return sample_int(r, dtype, kind);
}

void reference_sample_at(struct random *r, uint32_t dtype, unsigned kind, size_t i, void *buffer) {
    const size_t size = occl_dtype_bytes(dtype);
    if (!reference_is_pair(dtype)) {
        reference_put(buffer, i, size, reference_sample(r, dtype, kind));
        return;
    }
    const uint32_t type = value_type(dtype);
    uint64_t value = reference_sample(r, type, random_below(r, 2) ? 3 : kind);
    reference_put(buffer, 2 * i, size / 2, value);
    value = random_below(r, 2) ? random_below(r, 4) - 2 : random_next(r);
    reference_put(buffer, 2 * i + 1, size / 2, value);
}

uint64_t reference_factor(struct random *r, uint32_t dtype) {
    if (!reference_is_float(dtype)) {
        int64_t x = (int64_t)random_next(r);
        return (uint64_t)(random_below(r, 2) ? x >> 58 : x);
    }
    return reference_sample(r, dtype == OCCL_DT_FLOAT64 ? dtype : OCCL_DT_FLOAT32,
                            (unsigned)random_below(r, 3));
}
