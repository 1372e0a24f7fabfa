/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of op brings and takes: the one table from which client, daemon, plans and tools
 * learn the shape of an op. A new kind is an enumerator in abi.h, its row in op_kind.c, and the
 * blocks of its plan in gpu/local_program.c.
 *
 * Counts are elements of one *block*: what one rank contributes to one receiver. A buffer is one
 * block or, for some kinds, one block for each member, in the order of ranks:
 *
 *   kind            send buffer                 receive buffer
 *   all_reduce      block                       block
 *   broadcast       root: block                 block (root: optional)
 *   reduce          block                       root: block
 *   all_gather      block                       all blocks
 *   reduce_scatter  all blocks                  block
 *   all_to_all      all blocks                  all blocks
 *   gather          block                       root: all blocks
 *   scatter         root: all blocks            block (root: optional)
 *   scan, exscan    block                       block
 *   send, recv      member 0: block             member 1: block
 *   barrier, fan_in, fan_out                    none
 *   ..._v           as without _v, but each block has a size of its own, and its place in a buffer
 * of several blocks is free (vector.h)
 *
 * A *source* decides an op alone: with its payload in the page, receivers wait for nobody else and
 * it waits for nobody (the root of a broadcast, scatter or fan-out; a sender). A *contributor*
 * waits for nobody either, but the root needs all of them (reduce, gather, fan-in). */
#ifndef SHM_IPC_OP_KIND_H
#define SHM_IPC_OP_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm_ipc/abi.h"
#include "shm_ipc/vector.h"

enum occl_extent {
    OCCL_EXTENT_NONE = 0,
    OCCL_EXTENT_BLOCK = 1,
    OCCL_EXTENT_ALL = 2, /* a block for each member */
};

#define OCCL_KIND_TYPED 1u        /* has an element type and a count */
#define OCCL_KIND_REDUCES 2u      /* has an operator */
#define OCCL_KIND_ROOTED 4u       /* signature.root is a rank with a part of its own */
#define OCCL_KIND_PAIR 8u         /* two members; signature.root is the destination */
#define OCCL_KIND_SOURCE 16u      /* the root (pair: the sender) is a source */
#define OCCL_KIND_CONTRIBUTES 32u /* the others than the root are contributors */
#define OCCL_KIND_PREFIX 64u      /* member i gets the members up to itself */
#define OCCL_KIND_EXCLUSIVE 128u  /* ... but not itself; member 0 gets nothing */
#define OCCL_KIND_VECTOR 256u     /* blocks of different sizes: each member brings a vector */

struct occl_kind_traits {
    const char *name; /* as users write it */
    uint32_t flags;   /* OCCL_KIND_... */
    /* enum occl_extent of the root (pair: member 0) and of the others; equal where not rooted */
    uint8_t send_root, send_other;
    uint8_t recv_root, recv_other;
};

extern const struct occl_kind_traits occl_kind_table[OCCL_OP_LIMIT];

/* NULL for a number that is no kind, so it also validates. Static. Any thread; pure. */
static inline const struct occl_kind_traits *occl_kind_traits(uint32_t kind) {
    return kind < OCCL_OP_LIMIT && occl_kind_table[kind].name ? &occl_kind_table[kind] : NULL;
}

/* Whether `member` plays the root's part. root: of the signature. */
static inline bool occl_kind_is_root(const struct occl_kind_traits *traits, uint32_t root,
                                     uint32_t member) {
    return traits->flags & OCCL_KIND_PAIR ? member == 0 : member == root;
}

static inline uint64_t occl_extent_bytes(uint32_t extent, uint32_t members, uint64_t block_bytes) {
    /* NONE and BLOCK are their own number of blocks. */
    return block_bytes * (extent == OCCL_EXTENT_ALL ? members : extent);
}

/* Bytes of a member's buffers in an op whose block has block_bytes (occl_kind_block_bytes). */
static inline uint64_t occl_kind_send_bytes(const struct occl_kind_traits *traits, uint32_t root,
                                            uint32_t member, uint32_t members,
                                            uint64_t block_bytes) {
    bool is_root = occl_kind_is_root(traits, root, member);
    return occl_extent_bytes(is_root ? traits->send_root : traits->send_other, members,
                             block_bytes);
}
static inline uint64_t occl_kind_recv_bytes(const struct occl_kind_traits *traits, uint32_t root,
                                            uint32_t member, uint32_t members,
                                            uint64_t block_bytes) {
    bool is_root = occl_kind_is_root(traits, root, member);
    return occl_extent_bytes(is_root ? traits->recv_root : traits->recv_other, members,
                             block_bytes);
}

/* The receive buffer may be missing: a root that has in place what it would get, and member 0 of an
 * exclusive scan, which gets nothing. */
static inline bool occl_kind_recv_optional(const struct occl_kind_traits *traits, uint32_t root,
                                           uint32_t member) {
    const uint32_t rooted_source = OCCL_KIND_SOURCE | OCCL_KIND_ROOTED;
    return (traits->flags & OCCL_KIND_EXCLUSIVE && member == 0) ||
           ((traits->flags & rooted_source) == rooted_source &&
            occl_kind_is_root(traits, root, member));
}

/* In place: where the member's send buffer begins, counted from its receive buffer. Buffers of one
 * size are equal; the smaller one of two is the member's own block in the larger one. */
static inline int64_t occl_kind_in_place(const struct occl_kind_traits *traits, uint32_t root,
                                         uint32_t member, uint64_t block_bytes) {
    bool is_root = occl_kind_is_root(traits, root, member);
    uint32_t send = is_root ? traits->send_root : traits->send_other;
    uint32_t recv = is_root ? traits->recv_root : traits->recv_other;
    uint64_t own = member * block_bytes; /* of kinds with several blocks; else it may wrap */
    return send == recv ? 0 : (int64_t)(send == OCCL_EXTENT_BLOCK ? own : 0 - own);
}

/* A member's buffers: bytes, and in_place as above. */
struct occl_kind_sizes {
    uint64_t send_bytes, recv_bytes;
    int64_t in_place;
};

/* Whether the sides of a vector that are no more than one block say so in the one way. */
static inline bool occl_kind_vector_regular(const struct occl_kind_traits *traits, uint32_t root,
                                            uint32_t member, uint32_t members,
                                            const uint64_t *vector) {
    bool is_root = occl_kind_is_root(traits, root, member);
    uint32_t send = is_root ? traits->send_root : traits->send_other;
    uint32_t recv = is_root ? traits->recv_root : traits->recv_other;
    uint32_t place = traits->flags & OCCL_KIND_ROOTED ? root : members;
    return (send == OCCL_EXTENT_ALL || occl_vector_is_block(vector, members, OCCL_VECTOR_SEND_COUNT,
                                                            send != OCCL_EXTENT_NONE, place)) &&
           (recv == OCCL_EXTENT_ALL || occl_vector_is_block(vector, members, OCCL_VECTOR_RECV_COUNT,
                                                            recv != OCCL_EXTENT_NONE, place));
}

/* Those of any kind. vector: of a kind that has one, else ignored. False: the vector has not the
 * form of its kind (vector.h), or describes more than any memory holds. */
static inline bool occl_kind_measure(const struct occl_kind_traits *traits, uint32_t root,
                                     uint32_t member, uint32_t members, uint64_t block_bytes,
                                     uint32_t element_bytes, const uint64_t *vector,
                                     struct occl_kind_sizes *out) {
    bool is_root = occl_kind_is_root(traits, root, member);
    uint32_t send = is_root ? traits->send_root : traits->send_other;
    uint32_t recv = is_root ? traits->recv_root : traits->recv_other;
    if (!(traits->flags & OCCL_KIND_VECTOR)) {
        uint64_t own = member * block_bytes;
        out->send_bytes = occl_extent_bytes(send, members, block_bytes);
        out->recv_bytes = occl_extent_bytes(recv, members, block_bytes);
        out->in_place = send == recv ? 0 : (int64_t)(send == OCCL_EXTENT_BLOCK ? own : 0 - own);
        return true;
    }
    if (!occl_kind_vector_regular(traits, root, member, members, vector) ||
        !occl_vector_extent(vector, members, OCCL_VECTOR_SEND_COUNT, element_bytes,
                            &out->send_bytes) ||
        !occl_vector_extent(vector, members, OCCL_VECTOR_RECV_COUNT, element_bytes,
                            &out->recv_bytes))
        return false;
    /* The smaller one of two is the member's own block in the larger one. */
    uint64_t taken = occl_vector_at(vector, members, OCCL_VECTOR_RECV_AT, member);
    uint64_t given = occl_vector_at(vector, members, OCCL_VECTOR_SEND_AT, member);
    out->in_place = send == recv                ? 0
                    : send == OCCL_EXTENT_BLOCK ? (int64_t)(taken * element_bytes)
                                                : -(int64_t)(given * element_bytes);
    return true;
}

/* Counts below this pass whatever the kind and the type: an element has at most 16 bytes. */
#define OCCL_KIND_COUNT_PLAIN (1ull << 46)
/* Counts of a kind without a vector are below this: no memory holds as much, and no sum or product
 * with numbers of members overflows below. element_bytes: at least 1. */
static inline uint64_t occl_kind_count_limit(const struct occl_kind_traits *traits,
                                             uint64_t element_bytes) {
    bool all = traits->send_root == OCCL_EXTENT_ALL || traits->send_other == OCCL_EXTENT_ALL ||
               traits->recv_root == OCCL_EXTENT_ALL || traits->recv_other == OCCL_EXTENT_ALL;
    return (all ? 1ull << 50 : 1ull << 62) / element_bytes;
}
/* Bytes of a block of `count` elements. False: too many. element_bytes: 0 where there is no type.
 */
static inline bool occl_kind_block_bytes(const struct occl_kind_traits *traits, uint64_t count,
                                         uint64_t element_bytes, uint64_t *out_bytes) {
    *out_bytes = count * element_bytes;
    if (__builtin_expect(count < OCCL_KIND_COUNT_PLAIN, 1))
        return true;
    return !element_bytes || count < occl_kind_count_limit(traits, element_bytes);
}

#endif
