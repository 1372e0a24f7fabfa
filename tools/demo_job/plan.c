/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/demo_job/job.h"

/* Tags 1..161 are the tensors'; the others are far away. */
#define TAG_BROADCAST 1001u
#define TAG_MESSAGE 2001u

static void add_op(struct occl_demo_plan *plan, enum occl_demo_kind kind, uint32_t tag,
                   uint32_t elements, int root) {
    struct occl_demo_op *op = &plan->ops[plan->count++];
    *op = (struct occl_demo_op){kind, tag, elements, root, plan->arena_elements};
    /* Each buffer begins on a cache line of its own. */
    plan->arena_elements += (elements + 15u) & ~15u;
    plan->bytes += (uint64_t)elements * sizeof(float);
}

void occl_demo_plan_make(int ranks, struct occl_demo_plan *out_plan) {
    uint32_t elements[OCCL_RESNET50_TENSORS];
    *out_plan = (struct occl_demo_plan){.count = 0};
    int tensors = occl_resnet50_shapes(elements);
    for (int i = 0; i < tensors; i++)
        add_op(out_plan, OCCL_DEMO_ALL_REDUCE, (uint32_t)i + 1, elements[i], -1);
    for (int i = 0; i < OCCL_DEMO_BROADCASTS; i++)
        add_op(out_plan, OCCL_DEMO_BROADCAST, TAG_BROADCAST + (uint32_t)i,
               elements[i * 10 % tensors], i % ranks);
    for (int i = 0; i < OCCL_DEMO_MESSAGES; i++) {
        /* From 4 bytes to 1 MiB: some go inside a line, some do not. */
        uint32_t size = i < 6 ? 1u << 2 * i : 1u << (2 * i + 4);
        add_op(out_plan, OCCL_DEMO_SEND, TAG_MESSAGE + (uint32_t)i, size, -1);
        add_op(out_plan, OCCL_DEMO_RECV, TAG_MESSAGE + (uint32_t)i, size, -1);
    }
}

/* splitmix64: one 64-bit state, all seeds are good. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void swap(int *a, int *b) {
    int kept = *a;
    *a = *b;
    *b = kept;
}

void occl_demo_order(const struct occl_demo_plan *plan, bool random, uint64_t seed, int rank,
                     int round, int out_order[OCCL_DEMO_OPS]) {
    for (int i = 0; i < plan->count; i++)
        out_order[i] = i;
    if (random) {
        uint64_t state = seed + (uint64_t)rank * 1000003u + (uint64_t)round * 7919u;
        for (int i = plan->count - 1; i > 0; i--)
            swap(&out_order[i], &out_order[next_random(&state) % (uint64_t)(i + 1)]);
        return;
    }
    for (int i = 0; rank % 2 == 1 && i + 1 < plan->count; i++)
        if (plan->ops[i].kind == OCCL_DEMO_SEND && plan->ops[i + 1].kind == OCCL_DEMO_RECV)
            swap(&out_order[i], &out_order[i + 1]);
}
