/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/perf/small_floats.h"

#include <math.h>
#include <string.h>

const struct occl_small_float occl_float16 = {5, 10, 0x7bff, 0x7c00, 0x7e00};
const struct occl_small_float occl_bfloat16 = {8, 7, 0x7f7f, 0x7f80, 0x7fc0};
/* All codes but the last are numbers: 448 is the largest. */
const struct occl_small_float occl_float8e4m3 = {4, 3, 0x7e, 0x7f, 0x7f};
const struct occl_small_float occl_float8e5m2 = {5, 2, 0x7b, 0x7c, 0x7e};

static int bias_of(const struct occl_small_float *form) {
    return (1 << (form->exponent_bits - 1)) - 1;
}

/* Shifts low bits away, ties to even. */
static uint32_t round_shift(uint32_t value, int shift) {
    if (shift > 31)
        return 0;
    if (shift == 0)
        return value;
    uint32_t kept = value >> shift;
    uint32_t rest = value & ((1u << shift) - 1u);
    uint32_t half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

uint32_t occl_small_float_from(const struct occl_small_float *form, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 31 << (form->exponent_bits + form->mantissa_bits);
    int field = (int)(bits >> 23 & 0xffu);
    if (isnan(value))
        return form->nan;
    if (isinf(value))
        return form->overflow == form->nan ? form->nan : sign | form->overflow;
    uint32_t significand = (bits & 0x7fffffu) | (field ? 0x800000u : 0u);
    int exponent = (field ? field : 1) - 127 + bias_of(form);
    int shift = 23 - form->mantissa_bits;
    /* The leading one of the significand counts as one in the exponent, hence the minus 1; a carry
     * out of the mantissa raises the exponent, as it should. */
    uint32_t code = exponent < 1 ? round_shift(significand, shift + 1 - exponent)
                                 : ((uint32_t)(exponent - 1) << form->mantissa_bits) +
                                       round_shift(significand, shift);
    if (code > form->largest)
        return form->overflow == form->nan ? form->nan : sign | form->overflow;
    return sign | code;
}

float occl_small_float_to(const struct occl_small_float *form, uint32_t code) {
    uint32_t magnitude = code & ((1u << (form->exponent_bits + form->mantissa_bits)) - 1u);
    float sign = code == magnitude ? 1.0f : -1.0f;
    int exponent = (int)(magnitude >> form->mantissa_bits);
    int mantissa = (int)(magnitude & ((1u << form->mantissa_bits) - 1u));
    int hidden = exponent ? 1 << form->mantissa_bits : 0;
    if (magnitude > form->largest)
        return magnitude == form->overflow && form->overflow != form->nan ? sign * INFINITY : NAN;
    return sign * ldexpf((float)(mantissa + hidden),
                         (exponent ? exponent : 1) - bias_of(form) - form->mantissa_bits);
}
