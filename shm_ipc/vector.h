/* SPDX-License-Identifier: Apache-2.0 */
/* What a member of an op with blocks of different sizes (the kinds that end in _v) brings and
 * takes. A vector is four arrays of as many numbers as the op has members, in elements:
 *
 *   SEND_COUNT[j]  what it sends to member j         SEND_AT[j]  where that lies in its send buffer
 *   RECV_COUNT[i]  what it gets from member i        RECV_AT[i]  where that goes in its receive
 * buffer
 *
 * Two members agree when each sends the other what the other gets. A side that is one block begins
 * at 0: kinds in which a rank sends it to all, or gets it from all, fill the whole array of counts
 * with it; kinds with a root have it at the root's place only. All other numbers are 0. Plans rely
 * on this form: they look such a block up in one place.
 *
 * Vectors lie in memory that other processes write. The daemon, and executors in clients, take a
 * copy and check that (occl_kind_measure). */
#ifndef SHM_IPC_VECTOR_H
#define SHM_IPC_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/limits.h"

enum occl_vector_part {
    OCCL_VECTOR_SEND_COUNT = 0,
    OCCL_VECTOR_SEND_AT = 1,
    OCCL_VECTOR_RECV_COUNT = 2,
    OCCL_VECTOR_RECV_AT = 3,
};
#define OCCL_VECTOR_PARTS 4u
#define OCCL_VECTOR_NUMBERS_MAX (OCCL_VECTOR_PARTS * OCCL_LOCAL_RANKS_MAX)

/* Bytes of a vector among so many members. */
static inline uint32_t occl_vector_bytes(uint32_t members) {
    return OCCL_VECTOR_PARTS * members * (uint32_t)sizeof(uint64_t);
}

static inline uint64_t occl_vector_at(const uint64_t *vector, uint32_t members,
                                      enum occl_vector_part part, uint32_t index) {
    return vector[part * members + index];
}

/* Bytes from the start of a buffer to the end of its last block. False: beyond any memory. */
static inline bool occl_vector_extent(const uint64_t *vector, uint32_t members,
                                      enum occl_vector_part counts, uint32_t element_bytes,
                                      uint64_t *out_bytes) {
    const uint64_t limit = (1ull << 50) / element_bytes;
    uint64_t end = 0;
    for (uint32_t i = 0; i < members; i++) {
        uint64_t count = vector[counts * members + i], at = vector[(counts + 1) * members + i];
        if (count >= limit || at >= limit)
            return false;
        if (count > 0 && at + count > end)
            end = at + count;
    }
    *out_bytes = end * element_bytes;
    return true;
}

/* Whether a side that is no more than one block has the form above. one: there is a block; root:
 * where it is, or members when it is everywhere. */
static inline bool occl_vector_is_block(const uint64_t *vector, uint32_t members,
                                        enum occl_vector_part counts, bool one, uint32_t root) {
    for (uint32_t i = 0; i < members; i++) {
        uint64_t count = vector[counts * members + i], at = vector[(counts + 1) * members + i];
        bool here = one && (root == members || i == root);
        if (at != 0 || count != (here ? vector[counts * members + (root == members ? 0 : i)] : 0))
            return false;
    }
    return true;
}

/* Whether what `sender` sends is what `receiver` gets. */
static inline bool occl_vector_pair_agrees(const uint64_t *const *vectors, uint32_t members,
                                           uint32_t sender, uint32_t receiver) {
    return occl_vector_at(vectors[sender], members, OCCL_VECTOR_SEND_COUNT, receiver) ==
           occl_vector_at(vectors[receiver], members, OCCL_VECTOR_RECV_COUNT, sender);
}

#endif
