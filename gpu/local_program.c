/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/local_program.h"

#include <string.h>

#include "shm_ipc/datatype.h"

/* From this size on an op is worth more than one executor: 32 KiB take about 10 us. */
#define SPLIT_BYTES (32u << 10)
/* With fewer strands than this the executors end at very different times. */
#define STRANDS_WANTED 8u
#define PAGE_ALIGN_FROM_BYTES (64u << 10)

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* Buffers read and written per byte of the op. */
static uint64_t sides_of(uint32_t kind, uint32_t members) {
    switch (kind) {
    case OCCL_OP_ALL_REDUCE:
        return 2 * (uint64_t)members;
    case OCCL_OP_BROADCAST:
        return members;
    default:
        return 2;
    }
}

static uint64_t slice_bytes_of(uint64_t total, uint64_t sides) {
    uint64_t most = OCCL_SLICE_TRAFFIC_BYTES / sides;
    uint64_t strands, wanted, slice;
    if (most < OCCL_SLICE_BYTES_MIN)
        most = OCCL_SLICE_BYTES_MIN;
    strands = (total + most - 1) / most;
    wanted = total / SPLIT_BYTES;
    if (wanted > STRANDS_WANTED)
        wanted = STRANDS_WANTED;
    if (strands < wanted)
        strands = wanted;
    if (strands > OCCL_LOCAL_STRANDS_MAX)
        strands = OCCL_LOCAL_STRANDS_MAX;
    if (strands == 0)
        strands = 1;
    slice = (total + strands - 1) / strands;
    /* Whole pages where it costs nothing: neighbouring executors then share no page. */
    return round_up(slice, slice >= PAGE_ALIGN_FROM_BYTES ? OCCL_PAGE_BYTES : 64);
}

static bool members_valid(const struct occl_signature *sig, uint32_t members) {
    if (members < 1 || members > OCCL_LOCAL_RANKS_MAX)
        return false;
    switch (sig->kind) {
    case OCCL_OP_BROADCAST:
        return sig->root < members;
    case OCCL_OP_SEND:
    case OCCL_OP_RECV:
        return members == 2;
    default:
        return true;
    }
}

int occl_local_plan_make(const struct occl_signature *sig, uint32_t members,
                         struct occl_local_plan *out) {
    struct occl_local_plan plan;
    uint64_t element = 0, sides;
    if (!members_valid(sig, members))
        return OCCL_E_INVALID;
    switch (sig->kind) {
    case OCCL_OP_ALL_REDUCE:
        /* A signature carries no factors, and the movers abort without. */
        if (occl_redop_name(sig->redop) == NULL || sig->redop == OCCL_RO_PREMULSUM)
            return OCCL_E_INVALID;
        __attribute__((fallthrough));
    case OCCL_OP_BROADCAST:
    case OCCL_OP_SEND:
    case OCCL_OP_RECV:
        element = occl_dtype_bytes(sig->dtype);
        if (element == 0 || sig->count >= (1ull << 62) / element)
            return OCCL_E_INVALID;
        break;
    case OCCL_OP_BARRIER:
        break;
    default:
        return OCCL_E_INVALID;
    }
    memset(&plan, 0, sizeof plan);
    plan.kind = sig->kind == OCCL_OP_RECV ? (uint8_t)OCCL_OP_SEND : sig->kind;
    plan.dtype = sig->dtype;
    plan.redop = sig->redop;
    plan.element_bytes = (uint8_t)element;
    plan.member_count = members;
    plan.root = sig->kind == OCCL_OP_BROADCAST ? sig->root : 0;
    plan.total_bytes = sig->count * element;
    sides = sides_of(sig->kind, members);
    /* Saturates instead of wrapping: 2^62 bytes among 64 members are no real op. */
    plan.traffic_bytes =
        plan.total_bytes > UINT64_MAX / sides ? UINT64_MAX : plan.total_bytes * sides;
    if (plan.total_bytes > 0) {
        plan.slice_bytes = slice_bytes_of(plan.total_bytes, sides);
        plan.strand_count =
            (uint32_t)((plan.total_bytes + plan.slice_bytes - 1) / plan.slice_bytes);
    }
    *out = plan;
    return OCCL_OK;
}

/* Measured on 2 cores with a cache of 32 MiB, each alone or shared: sums are faster around it from
 * half of it on, since the inputs need room, too; copies only when it cannot hold them all. */
uint32_t occl_local_move_flags(const struct occl_local_plan *plan, uint64_t cache_bytes,
                               bool in_place) {
    uint64_t held = plan->kind == OCCL_OP_ALL_REDUCE ? cache_bytes / 2 : cache_bytes;
    return !in_place && plan->traffic_bytes > held ? OCCL_MOVE_NONTEMPORAL : 0;
}

void occl_local_strand_step(const struct occl_local_plan *plan, uint32_t index,
                            struct occl_step *out_step) {
    struct occl_step step;
    memset(&step, 0, sizeof step);
    step.src_buffer = OCCL_BUFFER_INPUT;
    step.dst_buffer = OCCL_BUFFER_OUTPUT;
    step.chunks = 1;
    step.src_chunk = index;
    step.dst_chunk = index;
    step.src_member_stride = 1;
    step.dst_member_stride = 1;
    step.dep_strand = OCCL_STEP_NONE;
    if (plan->kind == OCCL_OP_ALL_REDUCE) {
        step.kind = OCCL_STEP_REDUCE;
        step.flags = OCCL_STEP_FINISH;
        step.src_count = (uint16_t)plan->member_count;
        step.dst_count = (uint16_t)plan->member_count;
    } else {
        step.kind = OCCL_STEP_COPY;
        step.src_count = 1;
        step.src_member = (uint16_t)plan->root;
        step.dst_count = plan->kind == OCCL_OP_SEND ? 1 : (uint16_t)plan->member_count;
        step.dst_member = plan->kind == OCCL_OP_SEND ? 1 : 0;
    }
    *out_step = step;
}

/* Surroundings of a strand without links or dependencies: the movers and the addresses. */
struct local_env {
    const struct occl_local_plan *plan;
    const struct occl_movers *movers;
    const struct occl_local_buffers *buffers;
};

/* Addresses of the operands; members without a buffer are left out of the outputs. */
static int gather(const struct local_env *env, const struct occl_move *move, const void **src,
                  void **dst, uint32_t *out_dst_count) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < move->src_count; i++) {
        const char *base = (const char *)env->buffers->inputs[move->src_member + i];
        if (base == NULL)
            return OCCL_E_INVALID;
        src[i] = base + move->src_offset;
    }
    for (uint32_t i = 0; i < move->dst_count; i++) {
        uint32_t member = move->dst_member + i;
        char *base = (char *)env->buffers->outputs[member];
        if (base != NULL)
            dst[count++] = base + move->dst_offset;
        else if (move->kind == OCCL_STEP_REDUCE || member != move->src_member)
            return OCCL_E_INVALID;
    }
    *out_dst_count = count;
    return OCCL_OK;
}

static int local_move(void *environment, const struct occl_move *move) {
    const struct local_env *env = (const struct local_env *)environment;
    const void *src[OCCL_LOCAL_RANKS_MAX];
    void *dst[OCCL_LOCAL_RANKS_MAX];
    uint32_t dst_count;
    int status = gather(env, move, src, dst, &dst_count);
    if (status < 0)
        return status;
    if (move->kind == OCCL_STEP_REDUCE) {
        struct occl_reduce_job job = {.dtype = env->plan->dtype,
                                      .redop = env->plan->redop,
                                      .count = move->bytes / env->plan->element_bytes,
                                      .n_src = move->src_count,
                                      .n_dst = dst_count,
                                      .src = src,
                                      .dst = dst,
                                      .divisor = env->plan->member_count,
                                      .flags = env->buffers->move_flags};
        env->movers->reduce(&job);
    } else {
        struct occl_copy_job job = {.bytes = move->bytes,
                                    .src = src[0],
                                    .n_dst = dst_count,
                                    .flags = env->buffers->move_flags,
                                    .dst = dst};
        env->movers->copy(&job);
    }
    return OCCL_OK;
}

/* A local strand has no links, so nobody asks; an answer that stops is the safe one. */
static int no_link(void *env, uint32_t link, uint64_t message) {
    (void)env;
    (void)link;
    (void)message;
    return 0;
}

static uint64_t no_progress(void *env, uint32_t strand) {
    (void)env;
    (void)strand;
    return 0;
}

static void no_send(void *env, uint32_t link, uint64_t message, uint64_t bytes) {
    (void)env;
    (void)link;
    (void)message;
    (void)bytes;
}

static void no_recv(void *env, uint32_t link, uint64_t message) {
    (void)env;
    (void)link;
    (void)message;
}

/* The caller publishes: it adds to record.strands_done after the call. */
static void no_publication(void *env, uint32_t strand, uint64_t progress) {
    (void)env;
    (void)strand;
    (void)progress;
}

static const struct occl_exec_ops LOCAL_OPS = {
    .has_data = no_link,
    .has_room = no_link,
    .progress_of = no_progress,
    .move = local_move,
    .publish_send = no_send,
    .publish_recv = no_recv,
    .publish_progress = no_publication,
};

int occl_local_strand_run(const struct occl_local_plan *plan, uint32_t index,
                          const struct occl_movers *movers,
                          const struct occl_local_buffers *buffers) {
    struct local_env env = {.plan = plan, .movers = movers, .buffers = buffers};
    struct occl_step step;
    struct occl_strand strand = {
        .step_count = 1, .send_link = OCCL_STEP_NONE, .recv_link = OCCL_STEP_NONE};
    struct occl_program program = {.steps = &step,
                                   .strands = &strand,
                                   .step_count = 1,
                                   .strand_count = 1,
                                   .member_count = plan->member_count};
    struct occl_geometry geometry = {.chunk_bytes = plan->slice_bytes,
                                     .slice_bytes = plan->slice_bytes,
                                     .clip_bytes = plan->total_bytes,
                                     .iterations = 1,
                                     .chunks_per_message = 1};
    struct occl_exec_context context;
    struct occl_exec_report report;
    occl_local_strand_step(plan, index, &step);
    occl_exec_start(&context, 0);
    if (occl_exec_run(&context, &program, &geometry, &LOCAL_OPS, &env, 1, &report) !=
        OCCL_EXEC_DONE)
        return report.fault < 0 ? report.fault : OCCL_E_INTERNAL;
    return OCCL_OK;
}
