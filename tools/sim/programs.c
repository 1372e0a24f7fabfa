/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/sim/programs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STRANDS_MAX 8u
#define LINKS_MAX 8u

/* Arrays under construction. Strands are written one after the other. */
struct builder {
    const struct occl_sim_spec *spec;
    struct occl_step *steps;
    struct occl_strand *strands;
    struct occl_link *links;
    uint32_t step_count, strand_count, link_count;
};

static uint32_t add_link(struct builder *b, uint32_t peer, enum occl_link_direction direction) {
    struct occl_link *link = &b->links[b->link_count];
    memset(link, 0, sizeof *link);
    link->peer = peer;
    link->direction = (uint8_t)direction;
    link->depth_slots = b->spec->depth_slots;
    return b->link_count++;
}

static uint32_t add_strand(struct builder *b, uint32_t send_link, uint32_t recv_link) {
    struct occl_strand *strand = &b->strands[b->strand_count];
    strand->first_step = b->step_count;
    strand->step_count = 0;
    strand->send_link = send_link;
    strand->recv_link = recv_link;
    return b->strand_count++;
}

/* A step on one chunk of the last strand: reads one operand of member 0's output, writes member 0's
 * output, where the kind reads or writes locally. */
static struct occl_step *add_step(struct builder *b, enum occl_step_kind kind, uint32_t chunk) {
    struct occl_step *step = &b->steps[b->step_count++];
    memset(step, 0, sizeof *step);
    step->kind = (uint8_t)kind;
    step->chunks = 1;
    step->src_chunk = chunk;
    step->dst_chunk = chunk;
    step->src_buffer = OCCL_BUFFER_OUTPUT;
    step->dst_buffer = OCCL_BUFFER_OUTPUT;
    step->src_member_stride = 1;
    step->dst_member_stride = 1;
    step->dep_strand = OCCL_STEP_NONE;
    if (kind == OCCL_STEP_SEND || kind == OCCL_STEP_COPY || occl_step_reduces(kind))
        step->src_count = 1;
    if (kind != OCCL_STEP_SEND && kind != OCCL_STEP_RECV_REDUCE_SEND && kind != OCCL_STEP_NOP)
        step->dst_count = 1;
    b->strands[b->strand_count - 1].step_count++;
    return step;
}

static struct occl_step *after(struct occl_step *step, uint32_t strand, uint32_t number) {
    step->dep_strand = strand;
    step->dep_step = number;
    return step;
}

/* Strand of `chunks` reductions of all local inputs into member 0's output. No incoming edges from
 * other strands: stage 0 of every index function below, step c has index c. */
static uint32_t add_local_reduce(struct builder *b, uint32_t chunks) {
    uint32_t strand = add_strand(b, OCCL_STEP_NONE, OCCL_STEP_NONE);
    for (uint32_t c = 0; c < chunks; c++) {
        struct occl_step *step = add_step(b, OCCL_STEP_REDUCE, c);
        step->src_buffer = OCCL_BUFFER_INPUT;
        step->src_count = (uint16_t)b->spec->members;
    }
    return strand;
}

/* One copy of member 0's output to the other local members, when `strand` has done `number`. Only
 * incoming edges: the last stage of every index function below. */
static void add_distribute(struct builder *b, uint32_t chunk, uint32_t strand, uint32_t number) {
    struct occl_step *step = after(add_step(b, OCCL_STEP_COPY, chunk), strand, number);
    step->dst_count = (uint16_t)(b->spec->members - 1);
    step->dst_member = 1;
}

/* Ring: stage 1 is the strand of 2n - 1 fused steps. Index of its step i in iteration t is
 * t (2n - 1) + i. Program order: i to i + 1. Data: step i sends what the neighbour receives at step
 * i + 1. Freed slot: received at the neighbour's step i + 1, needed again by a send at i + depth or
 * later, so with depth >= 2 from i + 1 to at least i + 2. All increase; with depth 1 the edge leads
 * from i + 1 to i + 1 and closes a cycle around the ring. */
static void build_ring(struct builder *b) {
    uint32_t n = b->spec->nodes, me = b->spec->me;
    uint32_t local = add_local_reduce(b, n);
    uint32_t send = add_link(b, (me + 1) % n, OCCL_LINK_SEND);
    uint32_t recv = add_link(b, (me + n - 1) % n, OCCL_LINK_RECV);
    uint32_t ring = add_strand(b, send, recv);
    after(add_step(b, OCCL_STEP_SEND, me), local, me);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t chunk = (me + n - i) % n;
        struct occl_step *step = after(
            add_step(b, i < n - 1 ? OCCL_STEP_RECV_REDUCE_SEND : OCCL_STEP_RECV_REDUCE_COPY_SEND,
                     chunk),
            local, chunk);
        step->flags = i == n - 1 ? OCCL_STEP_FINISH : 0;
    }
    for (uint32_t i = 1; i < n; i++)
        add_step(b, i < n - 1 ? OCCL_STEP_RECV_COPY_SEND : OCCL_STEP_RECV, (me + 1 + n - i) % n);
    if (b->spec->members > 1) {
        add_strand(b, OCCL_STEP_NONE, OCCL_STEP_NONE);
        for (uint32_t i = 0; i < n; i++)
            add_distribute(b, (me + 1 + n - i) % n, ring, n - 1 + i);
    }
}

/* Tree: binary, node k has parent (k - 1) / 2 and children 2k + 1, 2k + 2. Stage 1 (up) and stage 2
 * (down) work chunk by chunk; g = iteration x chunks + chunk. Let W = 4 x nodes. Up steps of node
 * k: the one for child j has index g W + 2 (nodes - k) + j. Program order: g grows. Between the two
 * children of a node: j grows. Data to the parent (a smaller k): 2 (nodes - k) grows by at least 2.
 * Freed slot: from g to g + depth, which adds at least W, more than the rest can take away. Down
 * steps: index g W + 2 k + j, data lead to larger k. Up leads to down at the root and never back.
 */
struct tree {
    uint32_t children[2];
    uint32_t child_count;
    uint32_t up_last; /* strand whose step c completes chunk c of this subtree */
};

static void build_tree_up(struct builder *b, uint32_t local, struct tree *tree) {
    uint32_t me = b->spec->me, chunks = b->spec->chunks;
    uint32_t parent = me == 0 ? OCCL_STEP_NONE : add_link(b, (me - 1) / 2, OCCL_LINK_SEND);
    uint32_t before = local;
    if (tree->child_count == 0) {
        tree->up_last = add_strand(b, parent, OCCL_STEP_NONE);
        for (uint32_t c = 0; c < chunks; c++)
            after(add_step(b, OCCL_STEP_SEND, c), local, c);
        return;
    }
    for (uint32_t j = 0; j < tree->child_count; j++) {
        bool last = j + 1 == tree->child_count;
        uint32_t recv = add_link(b, tree->children[j], OCCL_LINK_RECV);
        uint32_t strand = add_strand(b, last ? parent : OCCL_STEP_NONE, recv);
        for (uint32_t c = 0; c < chunks; c++) {
            enum occl_step_kind kind =
                last && me != 0 ? OCCL_STEP_RECV_REDUCE_SEND : OCCL_STEP_RECV_REDUCE;
            struct occl_step *step = after(add_step(b, kind, c), before, c);
            step->flags = last && me == 0 ? OCCL_STEP_FINISH : 0;
        }
        before = strand;
    }
    tree->up_last = before;
}

/* Returns the strand whose step c puts the final chunk c into member 0's output. */
static uint32_t build_tree_down(struct builder *b, const struct tree *tree) {
    uint32_t me = b->spec->me, chunks = b->spec->chunks;
    uint32_t final = tree->up_last;
    uint32_t sent = 0;
    if (me != 0) {
        uint32_t send =
            tree->child_count > 0 ? add_link(b, tree->children[0], OCCL_LINK_SEND) : OCCL_STEP_NONE;
        final = add_strand(b, send, add_link(b, (me - 1) / 2, OCCL_LINK_RECV));
        for (uint32_t c = 0; c < chunks; c++)
            add_step(b, tree->child_count > 0 ? OCCL_STEP_RECV_COPY_SEND : OCCL_STEP_RECV, c);
        sent = 1;
    }
    for (uint32_t j = sent; j < tree->child_count; j++) {
        add_strand(b, add_link(b, tree->children[j], OCCL_LINK_SEND), OCCL_STEP_NONE);
        for (uint32_t c = 0; c < chunks; c++)
            after(add_step(b, OCCL_STEP_SEND, c), final, c);
    }
    return final;
}

static void build_tree(struct builder *b) {
    struct tree tree = {{0, 0}, 0, 0};
    uint32_t local = add_local_reduce(b, b->spec->chunks), final;
    for (uint32_t child = 2 * b->spec->me + 1; child <= 2 * b->spec->me + 2; child++)
        if (child < b->spec->nodes)
            tree.children[tree.child_count++] = child;
    build_tree_up(b, local, &tree);
    final = build_tree_down(b, &tree);
    if (b->spec->members > 1) {
        add_strand(b, OCCL_STEP_NONE, OCCL_STEP_NONE);
        for (uint32_t c = 0; c < b->spec->chunks; c++)
            add_distribute(b, c, final, c);
    }
}

/* Chain: node at position p of the chain that starts at the root; g as above. Index g x nodes + p.
 * Data: p grows. Program order: g grows by 1, the index by nodes. Freed slot: from (g, p + 1) to
 * (g + depth, p), which adds depth x nodes - 1 >= 1. Fused and with depth 1 it still cannot get
 * stuck, because a chain has no cycle. */
static void build_chain(struct builder *b) {
    uint32_t n = b->spec->nodes, me = b->spec->me;
    uint32_t position = (me + n - b->spec->root_node) % n;
    uint32_t send = position == n - 1 ? OCCL_STEP_NONE : add_link(b, (me + 1) % n, OCCL_LINK_SEND);
    uint32_t recv = position == 0 ? OCCL_STEP_NONE : add_link(b, (me + n - 1) % n, OCCL_LINK_RECV);
    add_strand(b, send, recv);
    for (uint32_t c = 0; c < b->spec->chunks; c++) {
        struct occl_step *step;
        if (position == 0) {
            step = add_step(b, OCCL_STEP_SEND, c);
            step->src_buffer = OCCL_BUFFER_INPUT;
            step->src_member = (uint16_t)b->spec->root_member;
            continue;
        }
        step = add_step(b, position < n - 1 ? OCCL_STEP_RECV_COPY_SEND : OCCL_STEP_RECV, c);
        step->dst_count = (uint16_t)b->spec->members;
    }
    if (position == 0) {
        add_strand(b, OCCL_STEP_NONE, OCCL_STEP_NONE);
        for (uint32_t c = 0; c < b->spec->chunks; c++) {
            struct occl_step *step = add_step(b, OCCL_STEP_COPY, c);
            step->src_buffer = OCCL_BUFFER_INPUT;
            step->src_member = (uint16_t)b->spec->root_member;
            step->dst_count = (uint16_t)b->spec->members;
        }
    }
}

/* Pair: a chain of two nodes with one member each; one step of many chunks, so that the executor
 * splits it into messages. Index as for the chain. */
static void build_pair(struct builder *b) {
    bool sender = b->spec->me == b->spec->root_node;
    uint32_t link = add_link(b, 1 - b->spec->me, sender ? OCCL_LINK_SEND : OCCL_LINK_RECV);
    struct occl_step *step;
    add_strand(b, sender ? link : OCCL_STEP_NONE, sender ? OCCL_STEP_NONE : link);
    step = add_step(b, sender ? OCCL_STEP_SEND : OCCL_STEP_RECV, 0);
    step->chunks = b->spec->chunks;
    if (sender)
        step->src_buffer = OCCL_BUFFER_INPUT;
}

void occl_sim_program_build(const struct occl_sim_spec *spec,
                            struct occl_sim_program *out_program) {
    uint32_t chunks = spec->shape == OCCL_SIM_RING_ALL_REDUCE ? spec->nodes : spec->chunks;
    size_t steps_max = (size_t)STRANDS_MAX * 2 * chunks + STRANDS_MAX;
    size_t step_bytes = steps_max * sizeof(struct occl_step);
    size_t strand_bytes = STRANDS_MAX * sizeof(struct occl_strand);
    struct builder b = {.spec = spec};
    char *memory = calloc(1, step_bytes + strand_bytes + LINKS_MAX * sizeof(struct occl_link));
    if (memory == NULL)
        abort();
    b.steps = (struct occl_step *)(void *)memory;
    b.strands = (struct occl_strand *)(void *)(memory + step_bytes);
    b.links = (struct occl_link *)(void *)(memory + step_bytes + strand_bytes);
    switch (spec->shape) {
    case OCCL_SIM_RING_ALL_REDUCE:
        build_ring(&b);
        break;
    case OCCL_SIM_TREE_ALL_REDUCE:
        build_tree(&b);
        break;
    case OCCL_SIM_CHAIN_BROADCAST:
        build_chain(&b);
        break;
    case OCCL_SIM_PAIR:
        build_pair(&b);
        break;
    }
    memset(out_program, 0, sizeof *out_program);
    out_program->memory = memory;
    out_program->program.steps = b.steps;
    out_program->program.strands = b.strands;
    out_program->program.links = b.links;
    out_program->program.step_count = b.step_count;
    out_program->program.strand_count = b.strand_count;
    out_program->program.link_count = b.link_count;
    out_program->program.member_count = spec->members;
    out_program->program.chunks = chunks;
    out_program->program.input_chunks = chunks;
    out_program->program.output_chunks = chunks;
    out_program->program.flags =
        OCCL_PROGRAM_CLIPS | OCCL_PROGRAM_IN_PLACE | OCCL_PROGRAM_OUT_OF_PLACE;
}

void occl_sim_program_free(struct occl_sim_program *program) {
    free(program->memory);
    program->memory = NULL;
}
