/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of node programs: what one node does for an op whose members live on several nodes.
 * Local members 0..members-1 are combined by strands of their own, one exchange runs between the
 * nodes, and the result is distributed to the local members.
 *
 * Next to each builder stands the index function that proves assumption A (run alone, it cannot get
 * stuck): a number for each step such that every dependency leads from a smaller to a larger
 * number. Dependencies are program order, (strand, step) dependencies, message k sent -> message k
 * received, and the freed slot: message k received -> message k + depth sent. */
#ifndef TOOLS_SIM_PROGRAMS_H
#define TOOLS_SIM_PROGRAMS_H

#include "gpu/step.h"

enum occl_sim_shape {
    OCCL_SIM_RING_ALL_REDUCE = 0,
    OCCL_SIM_TREE_ALL_REDUCE = 1,
    OCCL_SIM_CHAIN_BROADCAST = 2,
    OCCL_SIM_PAIR = 3
};

struct occl_sim_spec {
    enum occl_sim_shape shape;
    uint32_t nodes;       /* taking part, numbered 0..nodes-1 in this op */
    uint32_t me;          /* this node's number */
    uint32_t members;     /* local members of the op on this node */
    uint32_t root_node;   /* chain: where the data are; pair: the sender */
    uint32_t root_member; /* chain, at root_node: which local member has them */
    uint32_t chunks;      /* tree, chain, pair: how finely it is pipelined; ring: ignored */
    uint32_t depth_slots; /* of every connector */
};

/* The builder's arrays live behind program; occl_sim_program_free releases them. */
struct occl_sim_program {
    struct occl_program program;
    void *memory;
};

/* Builds the program of one node. Allocates; aborts without memory. The spec must be consistent:
 * numbers below their counts, at least 2 nodes, 2 of them for a pair. */
void occl_sim_program_build(const struct occl_sim_spec *spec, struct occl_sim_program *out_program);
void occl_sim_program_free(struct occl_sim_program *program);

#endif
