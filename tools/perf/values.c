/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/perf/values.h"

#include <math.h>
#include <string.h>

#include "tools/perf/small_floats.h"

/* How the elements of a type are computed with. */
enum family {
    FAMILY_NONE,
    FAMILY_SIGNED,
    FAMILY_UNSIGNED,
    FAMILY_SINGLE, /* float32, and what accumulates in it */
    FAMILY_DOUBLE,
    FAMILY_PAIR,
};

/* Wide enough for every exact sum of 64-bit integers, signed or not. */
typedef __int128 wide;

struct traits {
    enum family family;
    size_t bytes;
    const struct occl_small_float *small; /* SINGLE that is not float32 */
    int64_t stretch;                      /* integers: some inputs are so many times larger */
};

static struct traits traits_of(enum occl_type type) {
    switch (type) {
    case OCCL_INT8:
        return (struct traits){FAMILY_SIGNED, 1, NULL, 4};
    case OCCL_UINT8:
        return (struct traits){FAMILY_UNSIGNED, 1, NULL, 4};
    case OCCL_INT16:
        return (struct traits){FAMILY_SIGNED, 2, NULL, 1009};
    case OCCL_UINT16:
        return (struct traits){FAMILY_UNSIGNED, 2, NULL, 1009};
    case OCCL_INT32:
        return (struct traits){FAMILY_SIGNED, 4, NULL, 50000017};
    case OCCL_UINT32:
        return (struct traits){FAMILY_UNSIGNED, 4, NULL, 50000017};
    case OCCL_INT64:
        return (struct traits){FAMILY_SIGNED, 8, NULL, 200000000000000003};
    case OCCL_UINT64:
        return (struct traits){FAMILY_UNSIGNED, 8, NULL, 200000000000000003};
    case OCCL_FLOAT8E4M3:
        return (struct traits){FAMILY_SINGLE, 1, &occl_float8e4m3, 0};
    case OCCL_FLOAT8E5M2:
        return (struct traits){FAMILY_SINGLE, 1, &occl_float8e5m2, 0};
    case OCCL_FLOAT16:
        return (struct traits){FAMILY_SINGLE, 2, &occl_float16, 0};
    case OCCL_BFLOAT16:
        return (struct traits){FAMILY_SINGLE, 2, &occl_bfloat16, 0};
    case OCCL_FLOAT32:
        return (struct traits){FAMILY_SINGLE, 4, NULL, 0};
    case OCCL_FLOAT64:
        return (struct traits){FAMILY_DOUBLE, 8, NULL, 0};
    case OCCL_FLOAT32_INT32:
    case OCCL_INT32_INT32:
        return (struct traits){FAMILY_PAIR, 8, NULL, 0};
    case OCCL_FLOAT64_INT64:
    case OCCL_INT64_INT64:
        return (struct traits){FAMILY_PAIR, 16, NULL, 0};
    }
    return (struct traits){FAMILY_NONE, 0, NULL, 0};
}

size_t occl_values_bytes(enum occl_type type) {
    return traits_of(type).bytes;
}

bool occl_values_defined(enum occl_type type, enum occl_redop op) {
    enum family family = traits_of(type).family;
    switch (op) {
    case OCCL_SUM:
    case OCCL_PROD:
    case OCCL_MAX:
    case OCCL_MIN:
    case OCCL_AVG:
    case OCCL_PREMULSUM:
        return family != FAMILY_PAIR && family != FAMILY_NONE;
    case OCCL_BAND:
    case OCCL_BOR:
    case OCCL_BXOR:
    case OCCL_LAND:
    case OCCL_LOR:
    case OCCL_LXOR:
        return family == FAMILY_SIGNED || family == FAMILY_UNSIGNED;
    case OCCL_MINLOC:
    case OCCL_MAXLOC:
        return family == FAMILY_PAIR;
    }
    return false;
}

/* Small whole numbers around zero that depend on everything. */
static int level(int rank, size_t index, uint32_t seed) {
    uint64_t mixed = (uint64_t)index * 131u + (uint64_t)rank * 29u + (uint64_t)seed * 17u +
                     (uint64_t)rank * index;
    return (int)(mixed % 61u) - 30;
}

/* ---- integers ---- */

/* Keeps the low bits, as the type's own arithmetic does. */
static wide narrow(const struct traits *traits, wide value) {
    int unused = 64 - 8 * (int)traits->bytes;
    uint64_t low = (uint64_t)(unsigned __int128)value << unused;
    return traits->family == FAMILY_SIGNED ? (wide)((int64_t)low >> unused) : (wide)(low >> unused);
}

/* Wide enough that sums wrap for some elements; for the logical operators some are 0 on all ranks,
 * and some on all but one or few. */
static wide integer_input(const struct traits *traits, int rank, size_t index, uint32_t seed) {
    wide value = level(rank, index, seed & ~OCCL_VALUES_SPECIAL);
    if (index % 10 == 2 || (index % 10 == 7 && (size_t)rank != index % 4))
        value = 0;
    if (index % 7 == 3)
        value *= traits->stretch;
    return narrow(traits, value);
}

static wide combine_integers(enum occl_redop op, wide a, wide b) {
    switch (op) {
    case OCCL_PROD: /* the low bits of the product need only the low bits of the factors */
        return (wide)((uint64_t)(unsigned __int128)a * (uint64_t)(unsigned __int128)b);
    case OCCL_MIN:
        return b < a ? b : a;
    case OCCL_MAX:
        return b > a ? b : a;
    case OCCL_BAND:
        return a & b;
    case OCCL_BOR:
        return a | b;
    case OCCL_BXOR:
        return a ^ b;
    case OCCL_LAND:
        return a && b;
    case OCCL_LOR:
        return a || b;
    case OCCL_LXOR:
        return !a != !b;
    case OCCL_SUM:
    case OCCL_AVG:
    case OCCL_PREMULSUM:
    case OCCL_MINLOC:
    case OCCL_MAXLOC:
        break;
    }
    return a + b;
}

static wide reduce_integers(enum occl_type type, const struct traits *traits, enum occl_redop op,
                            int ranks, size_t index, uint32_t seed) {
    wide result = 0;
    for (int rank = 0; rank < ranks; rank++) {
        wide next = integer_input(traits, rank, index, seed);
        if (op == OCCL_PREMULSUM)
            next =
                combine_integers(OCCL_PROD, next, (wide)occl_values_factor_of(type, rank).integer);
        result = rank ? combine_integers(op, result, next) : next;
    }
    if (op == OCCL_AVG)
        result /= ranks;
    if (op == OCCL_LAND || op == OCCL_LOR || op == OCCL_LXOR)
        result = result != 0; /* that of one rank, too */
    return narrow(traits, result);
}

static void put_integer(const struct traits *traits, void *period, size_t index, wide value) {
    uint64_t low = (uint64_t)(unsigned __int128)value; /* little endian, as all that occl runs on */
    memcpy((char *)period + index * traits->bytes, &low, traits->bytes);
}

/* ---- special values ---- */

/* What is special about an element; elements that are so on some rank are not on all. */
enum special {
    ORDINARY,
    QUIET_NAN,
    OTHER_NAN,
    PLUS_INF,
    MINUS_INF,
    PLUS_ZERO,
    MINUS_ZERO,
    LARGEST
};

static enum special special_of(int rank, size_t index, uint32_t seed) {
    if (!(seed & OCCL_VALUES_SPECIAL) || index % 3 == 1)
        return ORDINARY;
    uint64_t mixed = (uint64_t)index * 2654435761u + (uint64_t)rank * 40503u + seed;
    mixed ^= mixed >> 15;
    mixed *= 0x9e3779b97f4a7c15ull;
    /* Zeros and infinities meet more often than a NaN hides them. */
    static const enum special kinds[16] = {QUIET_NAN,  OTHER_NAN,  PLUS_INF,   PLUS_INF,
                                           MINUS_INF,  PLUS_ZERO,  PLUS_ZERO,  PLUS_ZERO,
                                           MINUS_ZERO, MINUS_ZERO, MINUS_ZERO, LARGEST};
    size_t kind = mixed >> 60;
    if (index % 9 == 0) /* zeros on all ranks */
        return kind % 2 ? PLUS_ZERO : MINUS_ZERO;
    return kinds[kind];
}

static double special_value(enum special special, double largest, double ordinary) {
    switch (special) {
    case QUIET_NAN:
    case OTHER_NAN:
        return (double)NAN;
    case PLUS_INF:
        return (double)INFINITY;
    case MINUS_INF:
        return -(double)INFINITY;
    case PLUS_ZERO:
        return 0.0;
    case MINUS_ZERO:
        return -0.0;
    case LARGEST:
        return largest;
    case ORDINARY:
        break;
    }
    return ordinary;
}

/* A NaN with a sign and, where there is room for one, a payload: what is moved keeps its bits. */
static uint64_t other_nan(enum occl_type type) {
    switch ((int)type) {
    case OCCL_FLOAT8E4M3:
        return 0xff;
    case OCCL_FLOAT8E5M2:
        return 0xfd;
    case OCCL_FLOAT16:
        return 0xfe15;
    case OCCL_BFLOAT16:
        return 0xffd5;
    case OCCL_FLOAT32:
    case OCCL_FLOAT32_INT32:
        return 0xffd12345u;
    default:
        return 0xfffa123456789abcull;
    }
}

static bool is_float(enum occl_type type, const struct traits *traits) {
    return traits->family == FAMILY_SINGLE || traits->family == FAMILY_DOUBLE ||
           type == OCCL_FLOAT32_INT32 || type == OCCL_FLOAT64_INT64;
}

/* ---- floats ---- */

static float round_to(const struct traits *traits, float value) {
    return traits->small
               ? occl_small_float_to(traits->small, occl_small_float_from(traits->small, value))
               : value;
}

/* Tenths are exact in no binary type, so sums and the final rounding have something to round. Zeros
 * of both signs meet. */
static double tenths(int rank, size_t index, uint32_t seed, double tenth) {
    int value = index % 13 == 6 ? 0 : level(rank, index, seed & ~OCCL_VALUES_SPECIAL);
    return value ? value * tenth : rank % 2 ? -0.0 : 0.0;
}

static float single_input(const struct traits *traits, int rank, size_t index, uint32_t seed) {
    float ordinary = round_to(traits, (float)tenths(rank, index, seed, (double)0.1f));
    float largest = traits->small ? occl_small_float_to(traits->small, traits->small->largest)
                                  : 0x1.fffffep127f;
    return round_to(traits, (float)special_value(special_of(rank, index, seed), (double)largest,
                                                 (double)ordinary));
}

static double double_input(int rank, size_t index, uint32_t seed) {
    return special_value(special_of(rank, index, seed), 0x1.fffffffffffffp1023,
                         tenths(rank, index, seed, 0.1));
}

static bool less(double a, double b) {
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static float combine_singles(enum occl_redop op, float a, float b) {
    switch ((int)op) {
    case OCCL_PROD:
        return a * b;
    case OCCL_MIN:
        return isnan(a) || less((double)a, (double)b) ? a : b;
    case OCCL_MAX:
        return isnan(a) || less((double)b, (double)a) ? a : b;
    default:
        return a + b;
    }
}

static double combine_doubles(enum occl_redop op, double a, double b) {
    switch ((int)op) {
    case OCCL_PROD:
        return a * b;
    case OCCL_MIN:
        return isnan(a) || less(a, b) ? a : b;
    case OCCL_MAX:
        return isnan(a) || less(b, a) ? a : b;
    default:
        return a + b;
    }
}

static float reduce_singles(enum occl_type type, const struct traits *traits, enum occl_redop op,
                            int ranks, size_t index, uint32_t seed) {
    float result = 0;
    for (int rank = 0; rank < ranks; rank++) {
        float next = single_input(traits, rank, index, seed);
        if (op == OCCL_PREMULSUM)
            next *= occl_values_factor_of(type, rank).single;
        result = rank ? combine_singles(op, result, next) : next;
    }
    return op == OCCL_AVG ? result / (float)ranks : result;
}

static double reduce_doubles(enum occl_redop op, int ranks, size_t index, uint32_t seed) {
    double result = 0;
    for (int rank = 0; rank < ranks; rank++) {
        double next = double_input(rank, index, seed);
        if (op == OCCL_PREMULSUM)
            next *= occl_values_factor_of(OCCL_FLOAT64, rank).wide;
        result = rank ? combine_doubles(op, result, next) : next;
    }
    return op == OCCL_AVG ? result / (double)ranks : result;
}

/* A NaN is the canonical one, whatever arithmetic made of it. */
static void put_bits32(uint32_t *at, float value) {
    uint32_t canonical = 0x7fc00000u;
    memcpy(at, isnan(value) ? (const void *)&canonical : &value, sizeof *at);
}

static void put_bits64(uint64_t *at, double value) {
    uint64_t canonical = 0x7ff8000000000000ull;
    memcpy(at, isnan(value) ? (const void *)&canonical : &value, sizeof *at);
}

static void put_single(const struct traits *traits, void *period, size_t index, float value) {
    if (traits->small)
        put_integer(traits, period, index, (wide)occl_small_float_from(traits->small, value));
    else
        put_bits32((uint32_t *)period + index, value);
}

/* ---- pairs ---- */

struct pair {
    double value; /* a small whole number, or special */
    int64_t index;
};

/* Few values, so that ranks tie; the lowest index of a tie is that of any rank. */
static struct pair pair_input(bool floats, int rank, size_t index, uint32_t seed) {
    enum special special = floats ? special_of(rank, index, seed) : ORDINARY;
    return (struct pair){
        special_value(special, 1e30, level(rank, index, seed & ~OCCL_VALUES_SPECIAL) / 10),
        (int64_t)((index * 13 + (size_t)rank * 57 + (seed & 0xffffu)) % 101)};
}

/* Whether `next` is preferred: a NaN to numbers, the lower index among equals. */
static bool prefers(enum occl_redop op, struct pair best, struct pair next) {
    if (isnan(best.value) || isnan(next.value))
        return isnan(next.value) && (!isnan(best.value) || next.index < best.index);
    if (op == OCCL_MINLOC ? less(next.value, best.value) : less(best.value, next.value))
        return true;
    bool worse = op == OCCL_MINLOC ? less(best.value, next.value) : less(next.value, best.value);
    return !worse && next.index < best.index;
}

static struct pair reduce_pairs(bool floats, enum occl_redop op, int ranks, size_t index,
                                uint32_t seed) {
    struct pair best = pair_input(floats, 0, index, seed);
    for (int rank = 1; rank < ranks; rank++) {
        struct pair next = pair_input(floats, rank, index, seed);
        if (prefers(op, best, next))
            best = next;
    }
    return best;
}

static void put_pair(enum occl_type type, void *period, size_t index, struct pair pair) {
    int32_t *narrow_at = (int32_t *)period + 2 * index;
    int64_t *wide_at = (int64_t *)period + 2 * index;
    switch ((int)type) {
    case OCCL_FLOAT32_INT32:
        put_bits32((uint32_t *)narrow_at, (float)(pair.value * 0.5));
        narrow_at[1] = (int32_t)pair.index;
        break;
    case OCCL_INT32_INT32:
        narrow_at[0] = (int32_t)pair.value;
        narrow_at[1] = (int32_t)pair.index;
        break;
    case OCCL_FLOAT64_INT64:
        put_bits64((uint64_t *)wide_at, pair.value * 0.5);
        wide_at[1] = pair.index;
        break;
    default:
        wide_at[0] = (int64_t)pair.value;
        wide_at[1] = pair.index;
        break;
    }
}

/* ---- periods ---- */

union occl_values_factor occl_values_factor_of(enum occl_type type, int rank) {
    switch (traits_of(type).family) {
    case FAMILY_SIGNED:
        return (union occl_values_factor){.integer = (rank % 5) * 3 - 4};
    case FAMILY_UNSIGNED:
        return (union occl_values_factor){.natural = (uint64_t)(rank % 5) * 3 + 2};
    case FAMILY_DOUBLE:
        return (union occl_values_factor){.wide = 0.7 - 0.3 * (rank % 5)};
    case FAMILY_SINGLE:
        return (union occl_values_factor){.single = 0.7f - 0.3f * (float)(rank % 5)};
    case FAMILY_PAIR:
    case FAMILY_NONE:
        break;
    }
    return (union occl_values_factor){.natural = 0};
}

void occl_values_input(enum occl_type type, int rank, uint32_t seed, void *out_period) {
    struct traits traits = traits_of(type);
    bool floats = is_float(type, &traits);
    for (size_t i = 0; i < OCCL_VALUES_PERIOD; i++) {
        switch (traits.family) {
        case FAMILY_SIGNED:
        case FAMILY_UNSIGNED:
            put_integer(&traits, out_period, i, integer_input(&traits, rank, i, seed));
            break;
        case FAMILY_SINGLE:
            put_single(&traits, out_period, i, single_input(&traits, rank, i, seed));
            break;
        case FAMILY_DOUBLE:
            put_bits64((uint64_t *)out_period + i, double_input(rank, i, seed));
            break;
        case FAMILY_PAIR:
            put_pair(type, out_period, i, pair_input(floats, rank, i, seed));
            break;
        case FAMILY_NONE:
            break;
        }
        uint64_t nan = other_nan(type);
        size_t bytes = traits.family == FAMILY_PAIR ? traits.bytes / 2 : traits.bytes;
        if (floats && special_of(rank, i, seed) == OTHER_NAN)
            memcpy((char *)out_period + i * traits.bytes, &nan, bytes);
    }
}

void occl_values_reduce(enum occl_type type, enum occl_redop op, int ranks, uint32_t seed,
                        void *out_period) {
    struct traits traits = traits_of(type);
    bool floats = is_float(type, &traits);
    for (size_t i = 0; i < OCCL_VALUES_PERIOD; i++) {
        switch (traits.family) {
        case FAMILY_SIGNED:
        case FAMILY_UNSIGNED:
            put_integer(&traits, out_period, i, reduce_integers(type, &traits, op, ranks, i, seed));
            break;
        case FAMILY_SINGLE:
            put_single(&traits, out_period, i, reduce_singles(type, &traits, op, ranks, i, seed));
            break;
        case FAMILY_DOUBLE:
            put_bits64((uint64_t *)out_period + i, reduce_doubles(op, ranks, i, seed));
            break;
        case FAMILY_PAIR:
            put_pair(type, out_period, i, reduce_pairs(floats, op, ranks, i, seed));
            break;
        case FAMILY_NONE:
            break;
        }
    }
}

/* ---- whole buffers ---- */

void occl_values_fill_from(enum occl_type type, const void *period, size_t first, void *buffer,
                           size_t count) {
    size_t width = occl_values_bytes(type);
    char *to = buffer;
    for (first %= OCCL_VALUES_PERIOD; count > 0; first = 0) {
        size_t room = OCCL_VALUES_PERIOD - first;
        size_t part = count < room ? count : room;
        memcpy(to, (const char *)period + first * width, part * width);
        to += part * width;
        count -= part;
    }
}

uint64_t occl_values_count_wrong_from(enum occl_type type, const void *period, size_t first,
                                      const void *buffer, size_t count) {
    size_t width = occl_values_bytes(type);
    const char *found = buffer;
    uint64_t wrong = 0;
    for (first %= OCCL_VALUES_PERIOD; count > 0; first = 0) {
        size_t room = OCCL_VALUES_PERIOD - first;
        size_t part = count < room ? count : room;
        const char *expected = (const char *)period + first * width;
        if (memcmp(found, expected, part * width) != 0)
            for (size_t i = 0; i < part; i++)
                wrong += memcmp(found + i * width, expected + i * width, width) != 0;
        found += part * width;
        count -= part;
    }
    return wrong;
}
