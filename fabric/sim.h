/* SPDX-License-Identifier: Apache-2.0 */
/* Backend sim: all nodes in one process, on a virtual clock, everything that a network may do
 * decided by a seed. A world is the wire between its endpoints; it outlives them. Not thread-safe.
 */
#ifndef FABRIC_SIM_H
#define FABRIC_SIM_H

#include "fabric/fabric.h"

#define OCCL_FABRIC_SIM_NODES_MAX 64u
#define OCCL_FABRIC_SIM_NEVER UINT64_MAX

struct occl_fabric_sim_config {
    uint64_t seed;
    uint32_t nodes;
    uint32_t posts_max;        /* accepted and incomplete posts of one endpoint; 0: 4096 */
    uint64_t delay_min_ns;     /* of a message */
    uint64_t delay_max_ns;     /* control keeps its order whatever its delay */
    uint32_t reorder_permille; /* data messages that take up to 16 times the delay */
};

struct occl_fabric_sim_world;

int occl_fabric_sim_world_create(const struct occl_fabric_sim_config *config,
                                 struct occl_fabric_sim_world **out_world);
/* All endpoints are closed. NULL is allowed. */
void occl_fabric_sim_world_destroy(struct occl_fabric_sim_world *world);
/* Everything from and to the node takes `factor` times as long from now on. */
void occl_fabric_sim_slow(struct occl_fabric_sim_world *world, uint32_t node, uint32_t factor);
/* Cuts the connection between two nodes: what is in flight completes with OCCL_E_PEER_FAILED, both
 * ends get DOWN at their next poll. */
void occl_fabric_sim_cut(struct occl_fabric_sim_world *world, uint32_t a, uint32_t b);
/* When the next message or event of this node is due, or OCCL_FABRIC_SIM_NEVER. */
uint64_t occl_fabric_sim_next_ns(const struct occl_fabric_sim_world *world, uint32_t node);
/* Messages in flight between all nodes. */
uint32_t occl_fabric_sim_in_flight(const struct occl_fabric_sim_world *world);

struct occl_fabric_sim_open {
    struct occl_fabric_sim_world *world;
    uint32_t node;
};
/* open takes a struct occl_fabric_sim_open. */
extern const struct occl_fabric_ops OCCL_FABRIC_SIM;

#endif
