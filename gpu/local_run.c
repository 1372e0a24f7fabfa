/* SPDX-License-Identifier: Apache-2.0 */
/* Execution of strands of one node: each piece is a strand of one step, or of three where two
 * members exchange, and goes through the executor. */
#include "gpu/local_program.h"

/* Chunk numbers of the steps are block numbers: no block is that large, so the executor's offsets
 * are block << BLOCK_SHIFT. */
#define BLOCK_SHIFT 48
_Static_assert(OCCL_LOCAL_RANKS_MAX <= 1u << (64 - BLOCK_SHIFT), "block numbers fit");

/* Surroundings of a piece without links or dependencies: the movers and the addresses. */
struct local_env {
    const struct occl_local_plan *plan;
    const struct occl_local_piece *piece;
    const struct occl_movers *movers;
    const struct occl_local_buffers *buffers;
    char *scratch; /* OCCL_LOCAL_EXCHANGE_BYTES, for exchanges */
};

static uint64_t src_offset(const struct local_env *env, uint32_t member,
                           const struct occl_move *move) {
    uint32_t block = (uint32_t)(move->src_offset >> BLOCK_SHIFT);
    return occl_local_src_offset(env->plan, member, block) + env->piece->offset;
}

static uint64_t dst_offset(const struct local_env *env, uint32_t member,
                           const struct occl_move *move) {
    uint32_t block = (uint32_t)(move->dst_offset >> BLOCK_SHIFT);
    return occl_local_dst_offset(env->plan, member, block) + env->piece->offset;
}

/* Addresses of the operands. Outputs that are missing where they may be are left out, or NULL where
 * their place counts. */
static int gather(const struct local_env *env, const struct occl_move *move, const void **src,
                  void **dst, uint32_t *out_dst_count) {
    bool prefix = move->flags & OCCL_STEP_PREFIX;
    uint32_t count = 0;
    for (uint32_t i = 0; i < move->src_count; i++) {
        uint32_t member = move->src_member + i;
        const char *base = (const char *)env->buffers->inputs[member];
        if (base == NULL)
            return OCCL_E_INVALID;
        src[i] = base + src_offset(env, member, move);
    }
    for (uint32_t i = 0; i < move->dst_count; i++) {
        uint32_t member = move->dst_member + i;
        char *base = (char *)env->buffers->outputs[member];
        if (base != NULL)
            dst[count++] = base + dst_offset(env, member, move);
        else if (prefix && (move->flags & OCCL_STEP_EXCLUSIVE) && i == 0)
            dst[count++] = NULL;
        else if (move->kind == OCCL_STEP_REDUCE || member != move->src_member)
            return OCCL_E_INVALID;
    }
    *out_dst_count = count;
    return OCCL_OK;
}

static uint32_t reduce_flags(const struct local_env *env, const struct occl_move *move) {
    uint32_t flags = env->buffers->move_flags;
    if (move->flags & OCCL_STEP_PREFIX)
        flags |= move->flags & OCCL_STEP_EXCLUSIVE ? OCCL_MOVE_PREFIX_EXCLUSIVE : OCCL_MOVE_PREFIX;
    return flags;
}

/* The way back of an exchange: from an input to scratch, or from there to an output. */
static int gather_back(const struct local_env *env, const struct occl_move *move, const void **src,
                       void **dst) {
    const char *in = (const char *)env->buffers->inputs[move->src_member];
    char *out = (char *)env->buffers->outputs[move->dst_member];
    if (move->dst_buffer == OCCL_BUFFER_SCRATCH) {
        if (in == NULL)
            return OCCL_E_INVALID;
        src[0] = in + src_offset(env, move->src_member, move);
        dst[0] = env->scratch;
    } else {
        if (out == NULL)
            return OCCL_E_INVALID;
        src[0] = env->scratch;
        dst[0] = out + dst_offset(env, move->dst_member, move);
    }
    return OCCL_OK;
}

static int local_move(void *environment, const struct occl_move *move) {
    const struct local_env *env = (const struct local_env *)environment;
    const void *src[OCCL_LOCAL_RANKS_MAX];
    void *dst[OCCL_LOCAL_RANKS_MAX];
    uint32_t dst_count = 1;
    uint64_t bytes = move->bytes;
    bool back = move->src_buffer != OCCL_BUFFER_INPUT || move->dst_buffer != OCCL_BUFFER_OUTPUT;
    int status = back ? gather_back(env, move, src, dst) : gather(env, move, src, dst, &dst_count);
    if (status < 0)
        return status;
    if (env->piece->exchanges) /* its two ways may be of different lengths */
        bytes = back ? env->piece->back_bytes : env->piece->bytes;
    if (move->kind == OCCL_STEP_REDUCE) {
        struct occl_reduce_job job = {.dtype = env->plan->dtype,
                                      .redop = env->plan->redop,
                                      .count = bytes / env->plan->element_bytes,
                                      .n_src = move->src_count,
                                      .n_dst = dst_count,
                                      .src = src,
                                      .dst = dst,
                                      .divisor = env->plan->member_count,
                                      .factors = env->buffers->factors,
                                      .flags = reduce_flags(env, move)};
        env->movers->reduce(&job);
    } else {
        struct occl_copy_job job = {.bytes = bytes,
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

/* Filled where it is used, not copied: a copy in wide pieces of what has just been written in small
 * ones waits until all earlier stores have left the core, and with it the next piece would wait for
 * the one before. */
static void step_of(const struct occl_local_piece *piece, struct occl_step *out) {
    *out = (struct occl_step){.kind = piece->kind,
                              .src_buffer = OCCL_BUFFER_INPUT,
                              .dst_buffer = OCCL_BUFFER_OUTPUT,
                              .flags = piece->flags,
                              .chunks = 1,
                              .src_chunk = piece->src_block,
                              .dst_chunk = piece->dst_block,
                              .src_count = (uint16_t)piece->src_count,
                              .dst_count = (uint16_t)piece->dst_count,
                              .src_member = (uint16_t)piece->src_first,
                              .dst_member = (uint16_t)piece->dst_first,
                              .src_member_stride = 1,
                              .dst_member_stride = 1,
                              .dep_strand = OCCL_STEP_NONE};
}

/* What comes back is saved first: the place it comes from may be the one that is written to. A way
 * without bytes has no step: its members may have no buffers. */
static uint32_t exchange_steps(const struct occl_local_piece *piece, struct occl_step steps[3]) {
    struct occl_step save, there, back;
    uint32_t count = 0;
    step_of(piece, &save);
    there = back = save;
    save.src_member = (uint16_t)piece->dst_first;
    save.src_chunk = piece->dst_block;
    save.dst_buffer = OCCL_BUFFER_SCRATCH;
    back.src_buffer = OCCL_BUFFER_SCRATCH;
    back.dst_member = (uint16_t)piece->src_first;
    back.dst_chunk = piece->src_block;
    if (piece->back_bytes > 0)
        steps[count++] = save;
    if (piece->bytes > 0)
        steps[count++] = there;
    if (piece->back_bytes > 0)
        steps[count++] = back;
    return count;
}

static int piece_run(struct local_env *env) {
    const struct occl_local_piece *piece = env->piece;
    struct occl_step steps[3];
    uint32_t count = 1;
    if (piece->exchanges)
        count = exchange_steps(piece, steps);
    else
        step_of(piece, &steps[0]);
    struct occl_strand strand = {
        .step_count = count, .send_link = OCCL_STEP_NONE, .recv_link = OCCL_STEP_NONE};
    struct occl_program program = {.steps = steps,
                                   .strands = &strand,
                                   .step_count = count,
                                   .strand_count = 1,
                                   .member_count = env->plan->member_count};
    struct occl_geometry geometry = {
        .chunk_bytes = 1ull << BLOCK_SHIFT,
        .slice_bytes = piece->bytes > piece->back_bytes ? piece->bytes : piece->back_bytes,
        .clip_bytes = UINT64_MAX,
        .iterations = 1,
        .chunks_per_message = 1};
    struct occl_exec_context context;
    struct occl_exec_report report;
    occl_exec_start(&context, 0);
    if (occl_exec_run(&context, &program, &geometry, &LOCAL_OPS, env, count, &report) !=
        OCCL_EXEC_DONE)
        return report.fault < 0 ? report.fault : OCCL_E_INTERNAL;
    return OCCL_OK;
}

int occl_local_strand_run(const struct occl_local_plan *plan, uint32_t index,
                          const struct occl_movers *movers,
                          const struct occl_local_buffers *buffers) {
    char scratch[OCCL_LOCAL_EXCHANGE_BYTES];
    struct occl_local_piece piece;
    struct local_env env = {plan, &piece, movers, buffers, scratch};
    struct occl_local_walk walk;
    uint64_t bytes, at = occl_local_strand_range(plan, index, &bytes);
    int status = OCCL_OK;
    occl_local_walk_to(plan, at, &walk);
    while (status == OCCL_OK && bytes > 0) {
        bytes -= occl_local_walk_next(plan, &walk, bytes, &piece);
        status = piece_run(&env);
    }
    return status;
}
