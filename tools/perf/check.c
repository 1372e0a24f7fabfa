/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the buffers of a call and counts what is wrong in them afterwards, block by block: what the
 * op must have written, and all else as it was. */
#include <string.h>

#include "tools/perf/perf.h"

#define GUARD_VALUE 0xa5
#define STALE_VALUE 0xee

static int blocks_of(enum occl_perf_extent extent, int ranks) {
    return extent == OCCL_PERF_NO_DATA ? 0 : extent == OCCL_PERF_ONE_BLOCK ? 1 : ranks;
}

/* The buffer at site->recv: in place it is both buffers in one. */
static enum occl_perf_extent outer_extent(const struct occl_perf_site *site,
                                          const struct occl_perf_op *op) {
    return site->in_place && op->send > op->recv ? op->send : op->recv;
}

void occl_perf_place(const struct occl_perf_site *site, struct occl_perf_call *call) {
    size_t own = occl_perf_block_at(call, call->rank, call->rank) * occl_values_bytes(call->type);
    call->recv = site->recv;
    call->send = site->in_place ? site->recv : site->send;
    if (site->in_place && call->op->in_place == OCCL_PERF_SEND_IN_RECV)
        call->send = site->recv + own;
    if (site->in_place && call->op->in_place == OCCL_PERF_RECV_IN_SEND)
        call->recv = site->recv + own;
}

static bool sends(const struct occl_perf_call *call) {
    return occl_perf_op_has_data(call->op) && (!call->op->root_sends || call->rank == call->root);
}

static bool receives(const struct occl_perf_call *call) {
    if (call->op->result == OCCL_PERF_GETS_EXCLUSIVE_PREFIX && call->rank == 0)
        return false;
    return occl_perf_op_has_data(call->op) &&
           (!call->op->root_receives || call->rank == call->root);
}

void occl_perf_fill(const struct occl_perf_site *site, const struct occl_perf_call *call,
                    uint32_t seed, void *period) {
    size_t outer_bytes =
        occl_perf_elements(call, outer_extent(site, call->op)) * occl_values_bytes(call->type);
    size_t sent = occl_perf_elements(call, call->op->send);
    memset(site->recv, STALE_VALUE, outer_bytes);
    memset(site->recv + outer_bytes, GUARD_VALUE, OCCL_PERF_GUARD_BYTES);
    if (!sends(call))
        return;
    occl_values_input(call->type, call->rank, seed, period);
    /* In place the input lies in the outer buffer. */
    char *input = (char *)(uintptr_t)call->send;
    occl_values_fill(call->type, period, input, sent);
}

/* One period of what the block of this rank's result that came from `from` repeats. */
static void expect(const struct occl_perf_call *call, int from, uint32_t seed, void *out_period) {
    switch (call->op->result) {
    case OCCL_PERF_GETS_REDUCTION:
        occl_values_reduce(call->type, call->redop, call->ranks, seed, out_period);
        break;
    case OCCL_PERF_GETS_PREFIX:
        occl_values_reduce(call->type, call->redop, call->rank + 1, seed, out_period);
        break;
    case OCCL_PERF_GETS_EXCLUSIVE_PREFIX:
        occl_values_reduce(call->type, call->redop, call->rank, seed, out_period);
        break;
    case OCCL_PERF_GETS_ROOTS:
        occl_values_input(call->type, call->root, seed, out_period);
        break;
    case OCCL_PERF_GETS_PREVIOUS:
        occl_values_input(call->type, (call->rank + call->ranks - 1) % call->ranks, seed,
                          out_period);
        break;
    case OCCL_PERF_GETS_EACH:
        occl_values_input(call->type, from, seed, out_period);
        break;
    case OCCL_PERF_GETS_NOTHING:
        break;
    }
}

static uint64_t count_other_bytes(const char *from, size_t bytes, unsigned char value) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += (unsigned char)from[i] != value;
    return wrong;
}

/* The result begins at block `at` of the outer buffer, the input (in place) at block `from`. */
struct layout {
    int result_at, result_blocks;
    int input_at, input_blocks;
};

static struct layout layout_of(const struct occl_perf_site *site,
                               const struct occl_perf_call *call) {
    const struct occl_perf_op *op = call->op;
    struct layout layout = {0, 0, 0, 0};
    if (receives(call))
        layout.result_blocks = blocks_of(op->recv, call->ranks);
    if (site->in_place && sends(call))
        layout.input_blocks = blocks_of(op->send, call->ranks);
    if (site->in_place && op->in_place == OCCL_PERF_SEND_IN_RECV)
        layout.input_at = call->rank;
    if (site->in_place && op->in_place == OCCL_PERF_RECV_IN_SEND)
        layout.result_at = call->rank;
    return layout;
}

/* Elements before a block of the outer buffer, and before the one behind it. */
static size_t outer_at(const struct occl_perf_site *site, const struct occl_perf_call *call,
                       int block) {
    if (outer_extent(site, call->op) == OCCL_PERF_ALL_BLOCKS)
        return occl_perf_block_at(call, call->rank, block);
    return block ? occl_perf_elements(call, OCCL_PERF_ONE_BLOCK) : 0;
}

static uint64_t count_block(const struct occl_perf_site *site, const struct occl_perf_call *call,
                            const struct layout *layout, int block, uint32_t seed, void *period) {
    size_t width = occl_values_bytes(call->type);
    size_t at = outer_at(site, call, block), count = outer_at(site, call, block + 1) - at;
    const char *found = site->recv + at * width;
    int of_result = block - layout->result_at;
    int of_input = block - layout->input_at;
    size_t first = 0;
    if (of_result >= 0 && of_result < layout->result_blocks) {
        /* The period is the same for all blocks, but where each is another rank's. */
        if (of_result == 0 || call->op->result == OCCL_PERF_GETS_EACH)
            expect(call, of_result, seed, period);
        /* From where it was in the buffer of whom it came from. */
        if (call->op->own_part)
            first = occl_perf_block_at(call, of_result, call->rank);
    } else if (of_input >= 0 && of_input < layout->input_blocks) {
        occl_values_input(call->type, call->rank, seed, period);
        first = occl_perf_block_at(call, call->rank, of_input);
    } else {
        return count_other_bytes(found, count * width, STALE_VALUE);
    }
    return occl_values_count_wrong_from(call->type, period, first, found, count);
}

uint64_t occl_perf_count_wrong(const struct occl_perf_site *site, const struct occl_perf_call *call,
                               uint32_t seed, void *period) {
    struct layout layout = layout_of(site, call);
    enum occl_perf_extent outer = outer_extent(site, call->op);
    int blocks = blocks_of(outer, call->ranks);
    size_t outer_bytes = occl_perf_elements(call, outer) * occl_values_bytes(call->type);
    uint64_t wrong = 0;
    for (int block = 0; block < blocks; block++)
        wrong += count_block(site, call, &layout, block, seed, period);
    wrong += count_other_bytes(site->recv + outer_bytes, OCCL_PERF_GUARD_BYTES, GUARD_VALUE);
    if (site->in_place || !sends(call))
        return wrong;
    /* The input of an out-of-place op belongs to the caller. */
    size_t sent = occl_perf_elements(call, call->op->send);
    occl_values_input(call->type, call->rank, seed, period);
    return wrong + occl_values_count_wrong(call->type, period, site->send, sent);
}
