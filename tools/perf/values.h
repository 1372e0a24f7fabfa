/* SPDX-License-Identifier: Apache-2.0 */
/* Test data and the independent reference. Inputs repeat with a prime period, so that filling and
 * checking cost a copy and a comparison, and a block that lands in a wrong place is still seen: no
 * power of two is a multiple of the period.
 *
 * The reference shares no code with the library: it is the plain loop over ranks, with the rules
 * that occl.h states (16-bit floats accumulate in float32 and round once; avg divides once after
 * the sum; integers wrap, their avg is the exact sum divided toward zero). */
#ifndef TOOLS_PERF_VALUES_H
#define TOOLS_PERF_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "client_lib/occl.h"

#define OCCL_VALUES_PERIOD 4093
/* One period of the widest type. */
#define OCCL_VALUES_PERIOD_BYTES (OCCL_VALUES_PERIOD * 8)

/* Bytes of an element; 0 for an unknown type. */
size_t occl_values_bytes(enum occl_type type);

/* One period of what rank contributes; seed tells rounds apart. out_period has room for
 * OCCL_VALUES_PERIOD_BYTES and is aligned to 8. */
void occl_values_input(enum occl_type type, int rank, uint32_t seed, void *out_period);

/* One period of the reduction over ranks 0..ranks-1 of their inputs, in ascending order. */
void occl_values_reduce(enum occl_type type, enum occl_redop op, int ranks, uint32_t seed,
                        void *out_period);

/* Fills count elements of buffer with the repeated period. */
void occl_values_fill(enum occl_type type, const void *period, void *buffer, size_t count);
/* How many of count elements differ in any bit from the repeated period. */
uint64_t occl_values_count_wrong(enum occl_type type, const void *period, const void *buffer,
                                 size_t count);

#endif
