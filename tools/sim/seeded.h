/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's only source of chance: a stream of numbers decided by its seed. */
#ifndef TOOLS_SIM_SEEDED_H
#define TOOLS_SIM_SEEDED_H

#include <stdbool.h>
#include <stdint.h>

struct seeded {
    uint64_t state;
};

static inline uint64_t seeded_next(struct seeded *s) {
    uint64_t z = (s->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Below limit, which is above 0. */
static inline uint32_t seeded_below(struct seeded *s, uint32_t limit) {
    return (uint32_t)(seeded_next(s) >> 11) % limit;
}

static inline bool seeded_permille(struct seeded *s, uint32_t permille) {
    return seeded_below(s, 1000) < permille;
}

#endif
