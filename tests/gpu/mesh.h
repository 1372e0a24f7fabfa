/* SPDX-License-Identifier: Apache-2.0 */
/* Test surroundings of the executor: the programs of several nodes in one process, with connectors
 * of bounded depth between them. Elements are int64, the operator is the sum. */
#ifndef TESTS_GPU_MESH_H
#define TESTS_GPU_MESH_H

#include <stdbool.h>

#include "gpu/exec.h"

#define MESH_NODES_MAX 9u
#define MESH_STRANDS_MAX 8u
#define MESH_MEMBERS_MAX 4u
#define MESH_DEPTH_MAX 8u
#define MESH_SLOT_BYTES_MAX 1024u
#define MESH_ELEMENTS_MAX 4096u

/* Connector from one node to another, one channel (all programs here use channel 0). */
struct mesh_wire {
    uint64_t sent, received;
    uint64_t bytes[MESH_DEPTH_MAX];
    unsigned char slots[MESH_DEPTH_MAX][MESH_SLOT_BYTES_MAX];
};

struct mesh;
struct mesh_node {
    struct mesh *mesh;
    uint32_t number;
    const struct occl_program *program;
    struct occl_exec_context contexts[MESH_STRANDS_MAX];
    uint64_t published[MESH_STRANDS_MAX];
    int64_t input[MESH_MEMBERS_MAX][MESH_ELEMENTS_MAX];
    int64_t output[MESH_MEMBERS_MAX][MESH_ELEMENTS_MAX];
    int64_t scratch[MESH_ELEMENTS_MAX];
    bool in_place;
};

struct mesh {
    struct occl_geometry geometry;
    uint32_t node_count;
    uint32_t depth;
    uint64_t moves;
    uint64_t looks;   /* at guards */
    int refuse_moves; /* > 0: so many moves fail with -1 */
    char trace[64];   /* order of hooks: m move, s sent, r received, p progress */
    uint32_t trace_length;
    struct mesh_node nodes[MESH_NODES_MAX];
    struct mesh_wire wires[MESH_NODES_MAX][MESH_NODES_MAX];
};

extern const struct occl_exec_ops MESH_OPS;

void mesh_start(struct mesh *mesh, uint32_t nodes, uint32_t depth,
                const struct occl_geometry *geometry);
/* Starts the contexts of a node on its program. */
void mesh_load(struct mesh *mesh, uint32_t node, const struct occl_program *program);
enum occl_exec_result mesh_run(struct mesh *mesh, uint32_t node, uint32_t strand,
                               uint32_t slices_max, struct occl_exec_report *out_report);
/* Runs strands in an order given by seed until all are done (true) or none can move (false). */
bool mesh_settle(struct mesh *mesh, uint64_t seed, uint32_t slices_max);

#endif
