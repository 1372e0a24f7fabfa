/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for every plan that was made: how its strands walk, and what they do. */
#ifndef TESTS_FUZZ_VECTOR_WALK_H
#define TESTS_FUZZ_VECTOR_WALK_H

#include "gpu/local_program.h"

/* The members' buffers, as they were described and resolved. */
struct walk_sides {
    uint64_t src_bytes[OCCL_LOCAL_RANKS_MAX], dst_bytes[OCCL_LOCAL_RANKS_MAX];
    bool has_src[OCCL_LOCAL_RANKS_MAX], has_dst[OCCL_LOCAL_RANKS_MAX];
    bool in_place[OCCL_LOCAL_RANKS_MAX];
};

/* Numbers of the plan, and each piece of its strands (of large ops: of some strands) is inside the
 * buffers; where all are looked at, each byte of each block that a member gets is written once and
 * nothing else. */
void walk_check(const struct occl_local_plan *plan, const struct walk_sides *sides);
/* Runs an op that is small in buffers of exactly those sizes, also in place; bytes between the
 * blocks stay, and copied blocks are right. */
void walk_execute(const struct occl_local_plan *plan, const struct walk_sides *sides,
                  const struct occl_movers *movers);

#endif
