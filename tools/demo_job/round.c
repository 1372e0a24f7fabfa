/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/demo_job/job.h"

/* What a receive buffer holds before: no sum of inputs has these bits. */
#define STALE 0xee

static int neighbour(const struct occl_demo *demo, int step) {
    return (demo->rank + demo->ranks + step) % demo->ranks;
}

/* Data differ by op and round, so that an old or a foreign buffer is seen. */
static uint32_t seed_of(const struct occl_demo_op *op, int round) {
    return (op->tag * 977u + (uint32_t)round) & ~OCCL_VALUES_SPECIAL;
}

static enum occl_result complain(const struct occl_demo *demo, const char *what,
                                 enum occl_result result) {
    (void)fprintf(stderr, "demo_job: rank %d: %s: %s: %s\n", demo->rank, what,
                  occl_result_string(result), occl_last_error()); /* nowhere else to report */
    return result;
}

static void fill(struct occl_demo *demo, int round) {
    for (int i = 0; i < demo->plan.count; i++) {
        const struct occl_demo_op *op = &demo->plan.ops[i];
        float *buffer = demo->arena + op->offset;
        bool gives = op->kind == OCCL_DEMO_ALL_REDUCE || op->kind == OCCL_DEMO_SEND ||
                     (op->kind == OCCL_DEMO_BROADCAST && op->root == demo->rank);
        if (!gives) {
            memset(buffer, STALE, op->elements * sizeof *buffer);
            continue;
        }
        occl_values_input(OCCL_FLOAT32, demo->rank, seed_of(op, round), demo->period);
        occl_values_fill(OCCL_FLOAT32, demo->period, buffer, op->elements);
    }
}

static enum occl_result submit(struct occl_demo *demo, int index) {
    const struct occl_demo_op *op = &demo->plan.ops[index];
    float *buffer = demo->arena + op->offset;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = op->tag;
    demo->submitted_ns[index] = occl_clock_now_ns(&demo->clock);
    switch (op->kind) {
    case OCCL_DEMO_ALL_REDUCE:
        return occl_all_reduce(buffer, buffer, op->elements, OCCL_FLOAT32, OCCL_SUM, demo->comm,
                               &attr, &demo->requests[index]);
    case OCCL_DEMO_BROADCAST:
        return occl_broadcast(buffer, buffer, op->elements, OCCL_FLOAT32, op->root, demo->comm,
                              &attr, &demo->requests[index]);
    case OCCL_DEMO_SEND:
        return occl_send(buffer, op->elements, OCCL_FLOAT32, neighbour(demo, 1), demo->comm, &attr,
                         &demo->requests[index]);
    case OCCL_DEMO_RECV:
        break;
    }
    return occl_recv(buffer, op->elements, OCCL_FLOAT32, neighbour(demo, -1), demo->comm, &attr,
                     &demo->requests[index]);
}

/* One line of fixed length, written in one piece: a reader sees the old or the new one. */
void occl_demo_note_progress(struct occl_demo *demo) {
    char line[64];
    if (demo->progress_fd < 0)
        return;
    int bytes = snprintf(line, sizeof line, "%10llu %10llu\n", (unsigned long long)demo->done,
                         (unsigned long long)demo->total);
    (void)!pwrite(demo->progress_fd, line, (size_t)bytes, 0); /* only a display misses it */
}

/* Takes completions as they come, whatever their order. */
static enum occl_result wait_for_all(struct occl_demo *demo) {
    for (int left = demo->plan.count; left > 0; left--) {
        int index = -1;
        enum occl_result result = occl_wait_any(demo->requests, demo->plan.count, -1, &index);
        if (result != OCCL_SUCCESS || index < 0) {
            const struct occl_demo_op *op = &demo->plan.ops[index < 0 ? 0 : index];
            char what[64];
            (void)snprintf(what, sizeof what, "waiting (tag %u)", op->tag); /* fits */
            return complain(demo, what, result);
        }
        occl_latency_add(&demo->latency,
                         occl_clock_now_ns(&demo->clock) - demo->submitted_ns[index]);
        demo->requests[index].handle = 0;
        demo->done++;
        demo->ops++;
        occl_demo_note_progress(demo);
    }
    return OCCL_SUCCESS;
}

static void check(struct occl_demo *demo, int round) {
    for (int i = 0; i < demo->plan.count; i++) {
        const struct occl_demo_op *op = &demo->plan.ops[i];
        uint32_t seed = seed_of(op, round);
        if (op->kind == OCCL_DEMO_ALL_REDUCE)
            occl_values_reduce(OCCL_FLOAT32, OCCL_SUM, demo->ranks, seed, demo->period);
        else if (op->kind == OCCL_DEMO_BROADCAST)
            occl_values_input(OCCL_FLOAT32, op->root, seed, demo->period);
        else
            occl_values_input(OCCL_FLOAT32,
                              op->kind == OCCL_DEMO_SEND ? demo->rank : neighbour(demo, -1), seed,
                              demo->period);
        uint64_t wrong = occl_values_count_wrong(OCCL_FLOAT32, demo->period,
                                                 demo->arena + op->offset, op->elements);
        if (wrong)
            (void)fprintf(stderr, "demo_job: rank %d: round %d, tag %u: %llu of %u values wrong\n",
                          demo->rank, round, op->tag, (unsigned long long)wrong,
                          op->elements); /* nowhere else to report */
        demo->wrong += wrong;
    }
}

enum occl_result occl_demo_round(struct occl_demo *demo, int round) {
    int order[OCCL_DEMO_OPS];
    occl_demo_order(&demo->plan, demo->random, demo->seed, demo->rank, round, order);
    fill(demo, round);
    uint64_t start_ns = occl_clock_now_ns(&demo->clock);
    for (int i = 0; i < demo->plan.count; i++) {
        enum occl_result result = submit(demo, order[i]);
        if (result < 0)
            return complain(demo, "submitting", result);
    }
    enum occl_result result = wait_for_all(demo);
    demo->busy_ns += occl_clock_now_ns(&demo->clock) - start_ns;
    if (result == OCCL_SUCCESS)
        check(demo, round);
    return result;
}
