/* SPDX-License-Identifier: Apache-2.0 */
/* The same small run of the executor for every language: two nodes exchange a ring all-reduce of
 * one element per chunk through one-word connectors. Compiled as C, C++ and CUDA; all digests
 * agree. */
#ifndef TESTS_GPU_DUAL_BODY_H
#define TESTS_GPU_DUAL_BODY_H

#include "gpu/exec.h"

struct dual_node {
    struct dual_world *world;
    uint32_t number;
    struct occl_exec_context context;
    uint64_t value[2];
};
struct dual_world {
    struct dual_node nodes[2];
    uint64_t slots[2][2]; /* [sender][message % 2] */
    uint64_t sent[2], received[2];
    uint64_t digest;
};

OCCL_DUAL void dual_mix(struct dual_world *world, uint64_t value) {
    world->digest = (world->digest ^ value) * 1099511628211ull;
}
OCCL_DUAL int dual_has_data(void *env, uint32_t link, uint64_t message) {
    struct dual_node *node = (struct dual_node *)env;
    (void)link;
    return node->world->sent[1 - node->number] > message;
}
OCCL_DUAL int dual_has_room(void *env, uint32_t link, uint64_t message) {
    struct dual_node *node = (struct dual_node *)env;
    (void)link;
    return message < node->world->received[node->number] + 2;
}
OCCL_DUAL uint64_t dual_progress_of(void *env, uint32_t strand) {
    (void)strand;
    return ((struct dual_node *)env)->context.progress;
}
OCCL_DUAL int dual_move(void *env, const struct occl_move *move) {
    struct dual_node *node = (struct dual_node *)env;
    uint64_t value = 0;
    if (move->recv_link != OCCL_STEP_NONE)
        value = node->world->slots[1 - node->number][move->recv_message % 2];
    if (move->src_count > 0)
        value += node->value[move->src_offset / 8];
    if (move->dst_count > 0)
        node->value[move->dst_offset / 8] = value;
    if (move->send_link != OCCL_STEP_NONE)
        node->world->slots[node->number][move->send_message % 2] = value;
    dual_mix(node->world, value);
    return 0;
}
OCCL_DUAL void dual_publish_send(void *env, uint32_t link, uint64_t message, uint64_t bytes) {
    struct dual_node *node = (struct dual_node *)env;
    (void)link;
    (void)bytes;
    node->world->sent[node->number] = message + 1;
}
OCCL_DUAL void dual_publish_recv(void *env, uint32_t link, uint64_t message) {
    struct dual_node *node = (struct dual_node *)env;
    (void)link;
    node->world->received[1 - node->number] = message + 1;
}
OCCL_DUAL void dual_publish_progress(void *env, uint32_t strand, uint64_t progress) {
    (void)strand;
    dual_mix(((struct dual_node *)env)->world, progress);
}

OCCL_DUAL void dual_step(struct occl_step *step, uint32_t kind, uint32_t chunk, int src, int dst) {
    unsigned char *bytes = (unsigned char *)step;
    size_t i;
    for (i = 0; i < sizeof *step; i++)
        bytes[i] = 0;
    step->kind = (uint8_t)kind;
    step->src_buffer = OCCL_BUFFER_OUTPUT;
    step->dst_buffer = OCCL_BUFFER_OUTPUT;
    step->chunks = 1;
    step->src_chunk = chunk;
    step->dst_chunk = chunk;
    step->src_count = (uint16_t)src;
    step->dst_count = (uint16_t)dst;
    step->dep_strand = OCCL_STEP_NONE;
}

/* Runs both nodes in turn, one slice a visit, and returns a digest of everything that happened and
 * of the sizes of all structs; 0 if the run got stuck or is wrong. */
OCCL_DUAL uint64_t dual_digest(void) {
    struct dual_world world;
    struct occl_step steps[2][3];
    struct occl_strand strand;
    struct occl_program programs[2];
    struct occl_geometry geometry;
    struct occl_exec_ops ops;
    uint32_t n, round, done = 0;
    strand.first_step = 0;
    strand.step_count = 3;
    strand.send_link = 0;
    strand.recv_link = 1;
    ops.has_data = dual_has_data;
    ops.has_room = dual_has_room;
    ops.progress_of = dual_progress_of;
    ops.move = dual_move;
    ops.publish_send = dual_publish_send;
    ops.publish_recv = dual_publish_recv;
    ops.publish_progress = dual_publish_progress;
    world.digest = 14695981039346656037ull;
    dual_mix(&world, sizeof(struct occl_step) << 8 | sizeof(struct occl_strand));
    dual_mix(&world, sizeof(struct occl_link) << 8 | sizeof(struct occl_geometry));
    dual_mix(&world, sizeof(struct occl_exec_context) << 8 | sizeof(struct occl_move));
    if (!occl_geometry_make(16, 8, 2, 8, 0, &geometry))
        return 0;
    for (n = 0; n < 2; n++) {
        world.sent[n] = 0;
        world.received[n] = 0;
        world.nodes[n].world = &world;
        world.nodes[n].number = n;
        world.nodes[n].value[0] = 10 + n;
        world.nodes[n].value[1] = 20 + n;
        dual_step(&steps[n][0], OCCL_STEP_SEND, n, 1, 0);
        dual_step(&steps[n][1], OCCL_STEP_RECV_REDUCE_COPY_SEND, 1 - n, 1, 1);
        dual_step(&steps[n][2], OCCL_STEP_RECV, n, 0, 1);
        programs[n].steps = steps[n];
        programs[n].strands = &strand;
        programs[n].links = 0;
        programs[n].step_count = 3;
        programs[n].strand_count = 1;
        occl_exec_start(&world.nodes[n].context, 0);
    }
    for (round = 0; round < 32 && done != 3; round++) {
        struct occl_exec_report report;
        n = round % 2;
        if (occl_exec_run(&world.nodes[n].context, &programs[n], &geometry, &ops, &world.nodes[n],
                          1, &report) == OCCL_EXEC_DONE)
            done |= 1u << n;
    }
    if (done != 3)
        return 0;
    for (n = 0; n < 2; n++)
        if (world.nodes[n].value[0] != 21 || world.nodes[n].value[1] != 41)
            return 0;
    return world.digest;
}

#endif
