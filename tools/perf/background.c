/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic of a second communicator beside what is measured: some ops in flight all the time. They
 * are submitted without blocking by the thread that measures, between two timed iterations, so that
 * no third party competes for the cores. */
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"

struct slot {
    struct occl_perf_site site;
    struct occl_request request; /* handle 0: nothing in flight */
};

struct occl_perf_traffic {
    struct occl_comm comm;
    struct occl_perf_call call;
    struct occl_op_attr attr;
    uint64_t bytes;
    uint64_t submitted, ended; /* since the start */
    int next;                  /* slots take turns, so that ranks submit in the same order */
    uint64_t began_ticks;
    int slot_count;
    struct slot slots[];
};

#define SEED 77

static struct occl_perf_call call_at(const struct occl_perf_traffic *traffic,
                                     const struct slot *slot) {
    struct occl_perf_call call = traffic->call;
    call.attr = &traffic->attr;
    occl_perf_place(&slot->site, &call);
    return call;
}

static enum occl_result open_slots(struct occl_perf_bench *bench,
                                   struct occl_perf_traffic *traffic) {
    size_t bytes = bench->options->load.bytes + OCCL_PERF_GUARD_BYTES;
    enum occl_result result = OCCL_SUCCESS;
    for (int i = 0; result == OCCL_SUCCESS && i < traffic->slot_count; i++) {
        struct occl_perf_site *site = &traffic->slots[i].site;
        result = occl_perf_allocate(bench->options, bytes, &site->send);
        if (result == OCCL_SUCCESS)
            result = occl_perf_allocate(bench->options, bytes, &site->recv);
    }
    return result;
}

enum occl_result occl_perf_traffic_open(struct occl_perf_bench *bench) {
    const struct occl_perf_load *load = &bench->options->load;
    struct occl_perf_traffic *traffic =
        calloc(1, sizeof *traffic + (size_t)load->in_flight * sizeof traffic->slots[0]);
    if (!traffic)
        return occl_perf_complain(bench, "load", OCCL_ERROR_NO_MEMORY);
    bench->traffic = traffic;
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    attr.name = "load";
    attr.priority = load->priority;
    enum occl_result result =
        occl_comm_split(bench->world, 0, bench->world_rank, &attr, &traffic->comm);
    size_t blocks = (size_t)occl_perf_op_blocks(load->op, bench->world_ranks);
    size_t width = occl_values_bytes(OCCL_FLOAT32);
    traffic->attr = (struct occl_op_attr)OCCL_OP_ATTR_INIT;
    traffic->slot_count = load->in_flight;
    traffic->call = (struct occl_perf_call){
        .op = load->op,
        .count = load->bytes / width / blocks,
        .type = OCCL_FLOAT32,
        .redop = OCCL_SUM,
        .comm = traffic->comm,
        .rank = bench->world_rank,
        .ranks = bench->world_ranks,
    };
    traffic->bytes = traffic->call.count * width * blocks;
    if (result == OCCL_SUCCESS)
        result = open_slots(bench, traffic);
    return result == OCCL_SUCCESS ? result : occl_perf_complain(bench, "load", result);
}

void occl_perf_traffic_close(struct occl_perf_bench *bench) {
    struct occl_perf_traffic *traffic = bench->traffic;
    if (!traffic)
        return;
    for (int i = 0; i < traffic->slot_count; i++) {
        occl_perf_release(bench->options, traffic->slots[i].site.send);
        occl_perf_release(bench->options, traffic->slots[i].site.recv);
    }
    (void)occl_comm_destroy(traffic->comm); /* the process ends */
    free(traffic);
    bench->traffic = NULL;
}

static enum occl_result submit(struct occl_perf_traffic *traffic, struct slot *slot) {
    struct occl_perf_call call = call_at(traffic, slot);
    enum occl_result result = call.op->call(&call, &slot->request);
    traffic->submitted += result >= 0;
    return result;
}

enum occl_result occl_perf_traffic_start(struct occl_perf_bench *bench) {
    struct occl_perf_traffic *traffic = bench->traffic;
    enum occl_result result = OCCL_SUCCESS;
    traffic->submitted = traffic->ended = 0;
    traffic->next = 0;
    for (int i = 0; i < traffic->slot_count; i++) {
        struct occl_perf_call call = call_at(traffic, &traffic->slots[i]);
        occl_perf_fill(&traffic->slots[i].site, &call, SEED, bench->period);
    }
    for (int i = 0; result >= 0 && i < traffic->slot_count; i++)
        result = submit(traffic, &traffic->slots[i]);
    if (result >= 0) /* from here on it is under way on all ranks */
        result = occl_barrier(bench->world, NULL, NULL);
    traffic->began_ticks = occl_ticks(bench->clock.ticks_source);
    return result;
}

enum occl_result occl_perf_traffic_refill(struct occl_perf_bench *bench) {
    struct occl_perf_traffic *traffic = bench->traffic;
    for (int i = 0; i < traffic->slot_count; i++) {
        struct slot *slot = &traffic->slots[traffic->next];
        int done = 0;
        enum occl_result result = occl_test(slot->request, &done);
        if (!done)
            return result < 0 ? result : OCCL_SUCCESS;
        traffic->ended++;
        if (result >= 0)
            result = submit(traffic, slot);
        if (result < 0)
            return result;
        traffic->next = (traffic->next + 1) % traffic->slot_count;
    }
    return OCCL_SUCCESS;
}

/* The oldest one ends and, if `again`, another one takes its place. */
static enum occl_result wait_for_oldest(struct occl_perf_traffic *traffic, bool again) {
    struct slot *slot = &traffic->slots[traffic->next];
    enum occl_result result = occl_wait(slot->request);
    traffic->next = (traffic->next + 1) % traffic->slot_count;
    return result >= 0 && again ? submit(traffic, slot) : result;
}

static enum occl_result check(struct occl_perf_bench *bench, int64_t *out_wrong) {
    struct occl_perf_traffic *traffic = bench->traffic;
    int64_t wrong = 0, all = 0;
    for (int i = 0; i < traffic->slot_count; i++) {
        struct occl_perf_call call = call_at(traffic, &traffic->slots[i]);
        wrong +=
            (int64_t)occl_perf_count_wrong(&traffic->slots[i].site, &call, SEED, bench->period);
    }
    enum occl_result result =
        occl_all_reduce(&wrong, &all, 1, OCCL_INT64, OCCL_SUM, bench->world, NULL, NULL);
    *out_wrong = all > wrong ? all : wrong;
    return result;
}

enum occl_result occl_perf_traffic_stop(struct occl_perf_bench *bench,
                                        struct occl_perf_background *out_background) {
    struct occl_perf_traffic *traffic = bench->traffic;
    uint64_t ticks = occl_ticks(bench->clock.ticks_source) - traffic->began_ticks;
    double us = (double)occl_ticks_span_ns(&bench->scale, ticks) / 1e3;
    int64_t most = (int64_t)traffic->submitted;
    enum occl_result result =
        occl_all_reduce(&most, &most, 1, OCCL_INT64, OCCL_MAX, bench->world, NULL, NULL);
    out_background->ops = (double)traffic->ended;
    out_background->bytes = traffic->bytes;
    out_background->busbw_gbps = occl_perf_busbw_gbps(traffic->call.op->factor, bench->world_ranks,
                                                      traffic->bytes * traffic->ended, us);
    out_background->wrong = -1;
    while (result >= 0 && (int64_t)traffic->submitted < most)
        result = wait_for_oldest(traffic, true);
    for (int i = 0; result >= 0 && i < traffic->slot_count; i++)
        result = wait_for_oldest(traffic, false);
    if (result >= 0 && bench->options->checks > 0)
        result = check(bench, &out_background->wrong);
    return result;
}
