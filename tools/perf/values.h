/* SPDX-License-Identifier: Apache-2.0 */
/* Test data and the independent reference. Inputs repeat with a prime period, so that filling and
 * checking cost a copy and a comparison, and a block that lands in a wrong place is still seen: no
 * power of two is a multiple of the period.
 *
 * The reference shares no code with the library: it is the plain loop over ranks in ascending
 * order, with the rules that occl.h states (8- and 16-bit floats accumulate in float32 and round
 * once; avg divides once after the sum; integers wrap, their avg is the exact sum divided toward
 * zero; -0 is below +0; a NaN of any rank makes the result of arithmetic, min and max the canonical
 * quiet one, and wins in minloc and maxloc; minloc and maxloc take the lowest index of equal
 * values). */
#ifndef TOOLS_PERF_VALUES_H
#define TOOLS_PERF_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client_lib/occl.h"

#define OCCL_VALUES_PERIOD 4093
/* One period of the widest type, a pair. */
#define OCCL_VALUES_PERIOD_BYTES (OCCL_VALUES_PERIOD * 16)

/* Bytes of an element; 0 for an unknown type. */
size_t occl_values_bytes(enum occl_type type);

/* Whether the operator combines elements of the type. */
bool occl_values_defined(enum occl_type type, enum occl_redop op);

/* Added to a seed: inputs of float types hold NaNs (the quiet one, and one with a sign and a
 * payload), infinities, zeros of both signs and the largest number, two of three elements on some
 * rank. */
#define OCCL_VALUES_SPECIAL 0x80000000u

/* One period of what rank contributes; seed tells rounds apart. out_period has room for
 * OCCL_VALUES_PERIOD_BYTES and is aligned to 8. */
void occl_values_input(enum occl_type type, int rank, uint32_t seed, void *out_period);

/* The factor of a rank in premulsum, in the form that occl_op_attr.factor wants: a float, a double,
 * an int64_t or a uint64_t. Not for pairs. */
union occl_values_factor {
    float single;
    double wide;
    int64_t integer;
    uint64_t natural;
};
union occl_values_factor occl_values_factor_of(enum occl_type type, int rank);

/* One period of the reduction over ranks 0..ranks-1 of their inputs, in ascending order; ranks >= 1
 * and the operator defined for the type. */
void occl_values_reduce(enum occl_type type, enum occl_redop op, int ranks, uint32_t seed,
                        void *out_period);

/* Fills count elements of buffer with the repeated period, from its element `first` (any number)
 * on. */
void occl_values_fill_from(enum occl_type type, const void *period, size_t first, void *buffer,
                           size_t count);
/* How many of count elements differ in any bit from the repeated period, from its element `first`
 * on. */
uint64_t occl_values_count_wrong_from(enum occl_type type, const void *period, size_t first,
                                      const void *buffer, size_t count);

/* The same from the period's beginning. */
static inline void occl_values_fill(enum occl_type type, const void *period, void *buffer,
                                    size_t count) {
    occl_values_fill_from(type, period, 0, buffer, count);
}
static inline uint64_t occl_values_count_wrong(enum occl_type type, const void *period,
                                               const void *buffer, size_t count) {
    return occl_values_count_wrong_from(type, period, 0, buffer, count);
}

#endif
