/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/mesh.h"

#undef NDEBUG /* the asserts are what this file checks with */
#include <assert.h>
#include <string.h>

static void note(struct mesh *mesh, char what) {
    if (mesh->trace_length + 1 < sizeof mesh->trace)
        mesh->trace[mesh->trace_length++] = what;
}

static struct mesh_wire *wire_of(struct mesh_node *node, uint32_t link) {
    const struct occl_link *l = &node->program->links[link];
    return l->direction == OCCL_LINK_SEND ? &node->mesh->wires[node->number][l->peer]
                                          : &node->mesh->wires[l->peer][node->number];
}

static int has_data(void *env, uint32_t link, uint64_t message) {
    struct mesh_node *node = (struct mesh_node *)env;
    node->mesh->looks++;
    return wire_of(node, link)->sent > message;
}

static int has_room(void *env, uint32_t link, uint64_t message) {
    struct mesh_node *node = (struct mesh_node *)env;
    node->mesh->looks++;
    return message < wire_of(node, link)->received + node->mesh->depth;
}

static uint64_t progress_of(void *env, uint32_t strand) {
    struct mesh_node *node = (struct mesh_node *)env;
    node->mesh->looks++;
    return node->published[strand];
}

static int64_t *buffer_of(struct mesh_node *node, uint32_t buffer, uint32_t member) {
    if (buffer == OCCL_BUFFER_SCRATCH)
        return node->scratch;
    assert(member < MESH_MEMBERS_MAX);
    if (buffer == OCCL_BUFFER_INPUT && !node->in_place)
        return node->input[member];
    return node->output[member];
}

static int64_t *operand(struct mesh_node *node, const struct occl_move *move, uint32_t index,
                        bool dst) {
    uint32_t member = dst ? move->dst_member + index * move->dst_member_stride
                          : move->src_member + index * move->src_member_stride;
    uint64_t offset = dst ? move->dst_offset + index * move->dst_stride_bytes
                          : move->src_offset + index * move->src_stride_bytes;
    assert(offset % 8 == 0 && offset + move->bytes <= sizeof node->scratch);
    return buffer_of(node, dst ? move->dst_buffer : move->src_buffer, member) + offset / 8;
}

static int move_data(void *env, const struct occl_move *move) {
    struct mesh_node *node = (struct mesh_node *)env;
    int64_t value[MESH_SLOT_BYTES_MAX / 8];
    uint64_t count = move->bytes / 8;
    uint32_t first = 0;
    if (node->mesh->refuse_moves > 0) {
        node->mesh->refuse_moves--;
        return -1;
    }
    note(node->mesh, 'm');
    node->mesh->moves++;
    assert(move->bytes <= MESH_SLOT_BYTES_MAX);
    memset(value, 0, sizeof value);
    if (move->recv_link != OCCL_STEP_NONE) {
        struct mesh_wire *wire = wire_of(node, move->recv_link);
        assert(wire->bytes[move->recv_message % node->mesh->depth] == move->bytes);
        memcpy(value, wire->slots[move->recv_message % node->mesh->depth], move->bytes);
    } else if (move->flags & OCCL_STEP_ACCUMULATE) {
        memcpy(value, operand(node, move, 0, true), move->bytes);
    } else {
        memcpy(value, operand(node, move, 0, false), move->bytes);
        first = 1;
    }
    for (uint32_t i = first; i < move->src_count; i++)
        for (uint64_t e = 0; e < count; e++)
            value[e] += operand(node, move, i, false)[e];
    for (uint32_t i = 0; i < move->dst_count; i++)
        memcpy(operand(node, move, i, true), value, move->bytes);
    if (move->send_link != OCCL_STEP_NONE) {
        struct mesh_wire *wire = wire_of(node, move->send_link);
        wire->bytes[move->send_message % node->mesh->depth] = move->bytes;
        memcpy(wire->slots[move->send_message % node->mesh->depth], value, move->bytes);
    }
    return 0;
}

static void publish_send(void *env, uint32_t link, uint64_t message, uint64_t bytes) {
    struct mesh_node *node = (struct mesh_node *)env;
    (void)bytes;
    note(node->mesh, 's');
    assert(wire_of(node, link)->sent == message);
    wire_of(node, link)->sent++;
}

static void publish_recv(void *env, uint32_t link, uint64_t message) {
    struct mesh_node *node = (struct mesh_node *)env;
    note(node->mesh, 'r');
    assert(wire_of(node, link)->received == message);
    wire_of(node, link)->received++;
}

static void publish_progress(void *env, uint32_t strand, uint64_t progress) {
    struct mesh_node *node = (struct mesh_node *)env;
    note(node->mesh, 'p');
    assert(node->published[strand] + 1 == progress);
    node->published[strand] = progress;
}

const struct occl_exec_ops MESH_OPS = {
    .has_data = has_data,
    .has_room = has_room,
    .progress_of = progress_of,
    .move = move_data,
    .publish_send = publish_send,
    .publish_recv = publish_recv,
    .publish_progress = publish_progress,
};

void mesh_start(struct mesh *mesh, uint32_t nodes, uint32_t depth,
                const struct occl_geometry *geometry) {
    memset(mesh, 0, sizeof *mesh);
    mesh->geometry = *geometry;
    mesh->node_count = nodes;
    mesh->depth = depth;
    for (uint32_t n = 0; n < nodes; n++) {
        mesh->nodes[n].mesh = mesh;
        mesh->nodes[n].number = n;
    }
}

void mesh_load(struct mesh *mesh, uint32_t node, const struct occl_program *program) {
    mesh->nodes[node].program = program;
    assert(program->strand_count <= MESH_STRANDS_MAX);
    for (uint32_t s = 0; s < program->strand_count; s++)
        occl_exec_start(&mesh->nodes[node].contexts[s], s);
}

enum occl_exec_result mesh_run(struct mesh *mesh, uint32_t node, uint32_t strand,
                               uint32_t slices_max, struct occl_exec_report *out_report) {
    struct mesh_node *n = &mesh->nodes[node];
    return occl_exec_run(&n->contexts[strand], n->program, &mesh->geometry, &MESH_OPS, n,
                         slices_max, out_report);
}

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

bool mesh_settle(struct mesh *mesh, uint64_t seed, uint32_t slices_max) {
    uint64_t state = seed + 1;
    for (;;) {
        bool moved = false, open = false;
        uint64_t start = next_random(&state);
        for (uint32_t i = 0; i < mesh->node_count * MESH_STRANDS_MAX; i++) {
            uint32_t at = (uint32_t)((start + i) % (mesh->node_count * MESH_STRANDS_MAX));
            uint32_t node = at / MESH_STRANDS_MAX, strand = at % MESH_STRANDS_MAX;
            struct occl_exec_report report;
            if (strand >= mesh->nodes[node].program->strand_count)
                continue;
            open |= mesh_run(mesh, node, strand, slices_max, &report) != OCCL_EXEC_DONE;
            moved |= report.slices > 0;
        }
        if (!open)
            return true;
        if (!moved)
            return false;
    }
}
