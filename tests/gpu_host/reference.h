/* SPDX-License-Identifier: Apache-2.0 */
/* What a reduction must give, element by element, computed in another way than the movers do:
 * decoded numbers in wider types, explicit rules for NaN and zero, and rounding by arithmetic on
 * the value, or by looking for the nearest one, instead of on its bits. */
#ifndef TESTS_GPU_HOST_REFERENCE_H
#define TESTS_GPU_HOST_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of the element at index i of a buffer, and back. */
uint64_t reference_get(const void *buffer, size_t i, size_t element_bytes);
void reference_put(void *buffer, size_t i, size_t element_bytes, uint64_t bits);

/* The value of a float's bits (any of the float types), exact; NaN for any NaN. */
double reference_value(uint32_t dtype, uint64_t bits);
/* The bits of a value, rounded to nearest even; the canonical NaN for NaN. */
uint64_t reference_bits(uint32_t dtype, double value);

bool reference_is_float(uint32_t dtype);
bool reference_is_pair(uint32_t dtype);
/* Whether the rules define this pair. */
bool reference_supports(uint32_t dtype, uint32_t redop);

/* The result for one element of up to 8 bytes, pairs excepted, given the bits of each source.
 * factors as in struct occl_reduce_job. */
uint64_t reference_reduce(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *factors,
                          const uint64_t *src, size_t n_src);

/* The same for element i of buffers, pairs included; to element i of out. */
void reference_reduce_at(uint32_t dtype, uint32_t redop, uint32_t divisor, const uint64_t *factors,
                         const unsigned char *const *src, size_t n_src, size_t i, void *out);

/* A reproducible stream of numbers. */
struct random {
    uint64_t state;
};
uint64_t random_next(struct random *r);
static inline uint64_t random_below(struct random *r, uint64_t limit) {
    return random_next(r) % limit;
}

/* Element i of a buffer that tests like: mostly ordinary numbers of widely spread exponents, but
 * also any bit pattern, and the ends of the type. kind chooses (0 .. REFERENCE_KINDS - 1); those
 * below REFERENCE_KINDS_PLAIN are ordinary. Values of pairs are often equal. */
#define REFERENCE_KINDS_PLAIN 3
#define REFERENCE_KINDS 5
void reference_sample_at(struct random *r, uint32_t dtype, unsigned kind, size_t i, void *buffer);
uint64_t reference_sample(struct random *r, uint32_t dtype, unsigned kind);
/* A factor for sources of this type. */
uint64_t reference_factor(struct random *r, uint32_t dtype);

#endif
