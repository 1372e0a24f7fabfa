/* SPDX-License-Identifier: Apache-2.0 */
/* Floats of 8 and 16 bits by their definition: sign, exponent, mantissa. Written for the reference,
 * to be read rather than to be quick. */
#ifndef TOOLS_PERF_SMALL_FLOATS_H
#define TOOLS_PERF_SMALL_FLOATS_H

#include <stdint.h>

struct occl_small_float {
    int exponent_bits, mantissa_bits;
    uint32_t largest;  /* the code of the largest finite value */
    uint32_t overflow; /* the code of what is beyond: infinity, or NaN where there is none */
    uint32_t nan;      /* the one NaN that results have */
};

extern const struct occl_small_float occl_float16, occl_bfloat16;
extern const struct occl_small_float occl_float8e4m3, occl_float8e5m2;

/* The code of the nearest value, ties to even. A NaN has no sign. */
uint32_t occl_small_float_from(const struct occl_small_float *form, float value);
float occl_small_float_to(const struct occl_small_float *form, uint32_t code);

#endif
