/* SPDX-License-Identifier: Apache-2.0 */
/* What a reduction must give, element by element, computed in another way than the movers do:
 * decoded numbers in wider types, explicit rules for NaN and zero, and rounding by arithmetic on
 * the value instead of on its bits. */
#ifndef TESTS_GPU_HOST_REFERENCE_H
#define TESTS_GPU_HOST_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

/* Bits of the element at index i of a buffer, and back. */
uint64_t reference_get(const void *buffer, size_t i, size_t element_bytes);
void reference_put(void *buffer, size_t i, size_t element_bytes, uint64_t bits);

/* The value of a float's bits (any of the four float types), exact; NaN for any NaN. */
double reference_value(uint32_t dtype, uint64_t bits);
/* The bits of a value, rounded to nearest even; the canonical NaN for NaN. */
uint64_t reference_bits(uint32_t dtype, double value);

/* The result for one element, given the bits of each source. */
uint64_t reference_reduce(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *src,
                          size_t n_src);

/* A reproducible stream of numbers. */
struct random {
    uint64_t state;
};
uint64_t random_next(struct random *r);
static inline uint64_t random_below(struct random *r, uint64_t limit) {
    return random_next(r) % limit;
}

/* Bits of an element that tests like: mostly ordinary numbers of widely spread exponents, but also
 * any bit pattern, and the ends of the type. kind chooses (0 .. REFERENCE_KINDS - 1). */
#define REFERENCE_KINDS 4
uint64_t reference_sample(struct random *r, uint32_t dtype, unsigned kind);

#endif
