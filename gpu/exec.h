/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: a resumable, budgeted interpreter of strands. Lanes, client threads, the simulator
 * and GPU blocks are loops around occl_exec_run; patience, scheduling and waiting are theirs.
 *
 * Laws, each with the line of code that keeps it:
 *  1. It never waits: a guard is looked at once, a false one returns OCCL_EXEC_BLOCKED.
 *  2. A slice is all or nothing: data *and* room *and* dependency are true before anything moves,
 * so that nothing has to be undone.
 *  3. Published after its data: move, then the sent message, then the freed slot, then progress.
 *  4. Counters only grow, and resume repeats nothing: the context is exactly (iteration, step,
 *     message) and the two message counters; there is no start-of-run adjustment.
 *  5. Bounded: every step looked at costs one of slices_max, NOPs included.
 *
 * The context belongs to whoever runs the strand; one thread at a time. It is plain data: it may be
 * copied, stored and loaded elsewhere between two runs. */
#ifndef GPU_EXEC_H
#define GPU_EXEC_H

#include "gpu/step.h"

enum occl_exec_result {
    OCCL_EXEC_DONE = 0,    /* the strand is complete */
    OCCL_EXEC_BLOCKED = 1, /* report.wait_kind says on what */
    OCCL_EXEC_BUDGET = 2,  /* slices_max steps done, more to do */
    OCCL_EXEC_FAULT = 3    /* move failed: the op must be aborted, report.fault is its status */
};

enum occl_exec_wait {
    OCCL_WAIT_NONE = 0,
    OCCL_WAIT_DATA = 1, /* the peer of wait_link has not sent */
    OCCL_WAIT_ROOM = 2, /* the peer of wait_link has granted no credit */
    OCCL_WAIT_STEP = 3  /* strand wait_strand has not completed wait_step */
};

struct occl_exec_context {
    uint64_t progress; /* steps completed, over all iterations */
    uint64_t sent;     /* messages */
    uint64_t received;
    uint32_t strand;
    uint32_t iteration;
    uint32_t step;    /* index inside the strand */
    uint32_t message; /* of the current step */
    uint64_t slices;  /* executed in all: the op's share of phi */
    uint64_t reserved[2];
};
OCCL_DUAL_ASSERT(sizeof(struct occl_exec_context) == 64, "a context is one cache line");

/* One data movement, handed to the mover: all that a slice does to memory. Offsets are bytes from
 * the start of the member's buffer. */
struct occl_move {
    uint8_t kind; /* enum occl_step_kind */
    uint8_t flags;
    uint8_t src_buffer;
    uint8_t dst_buffer;
    uint16_t src_count;
    uint16_t dst_count;
    uint16_t src_member;
    uint16_t dst_member;
    uint16_t src_member_stride;
    uint16_t dst_member_stride;
    uint64_t src_offset;
    uint64_t dst_offset;
    uint64_t src_stride_bytes;
    uint64_t dst_stride_bytes;
    uint64_t bytes; /* 0 is possible at a clipped end: nothing moves, counters do */
    uint64_t recv_message;
    uint64_t send_message;
    uint32_t recv_link; /* OCCL_STEP_NONE where the kind does not receive */
    uint32_t send_link;
};

/* What the surroundings supply. All slots are mandatory; none may wait. Message numbers count from
 * 0 per link. A guard that was true stays true until the message is published. */
struct occl_exec_ops {
    int (*has_data)(void *env, uint32_t link, uint64_t message); /* it has landed */
    int (*has_room)(void *env, uint32_t link, uint64_t message); /* a credit for it is here */
    uint64_t (*progress_of)(void *env, uint32_t strand);         /* observes publish_progress */
    /* Moves the data and publishes nothing. 0, or a negative status and nothing that counts. */
    int (*move)(void *env, const struct occl_move *move);
    void (*publish_send)(void *env, uint32_t link, uint64_t message, uint64_t bytes);
    void (*publish_recv)(void *env, uint32_t link, uint64_t message); /* the slot is free again */
    void (*publish_progress)(void *env, uint32_t strand, uint64_t progress);
};

/* What one run did. Progress is judged per run: slices is 0 when it was in vain. */
struct occl_exec_report {
    uint32_t slices;
    uint32_t received; /* messages received in this run: the signal of stickiness */
    uint64_t payload_bytes;
    uint64_t traffic_bytes; /* read and written: what is charged */
    uint32_t wait_kind;     /* enum occl_exec_wait; NONE unless BLOCKED */
    uint32_t wait_link;
    uint32_t wait_strand;
    uint32_t wait_step;
    uint32_t step; /* where the strand stands now */
    int32_t fault;
};

OCCL_DUAL void occl_exec_start(struct occl_exec_context *context, uint32_t strand) {
    context->progress = 0;
    context->sent = 0;
    context->received = 0;
    context->strand = strand;
    context->iteration = 0;
    context->step = 0;
    context->message = 0;
    context->slices = 0;
    context->reserved[0] = 0;
    context->reserved[1] = 0;
}

/* Clips a transfer at the end of a user buffer; operands in scratch are never clipped. */
OCCL_DUAL uint64_t occl_exec_clip(const struct occl_geometry *geometry, uint32_t buffer,
                                  uint64_t offset, uint64_t bytes) {
    if (buffer != OCCL_BUFFER_INPUT && buffer != OCCL_BUFFER_OUTPUT)
        return bytes;
    if (offset >= geometry->clip_bytes)
        return 0;
    return bytes < geometry->clip_bytes - offset ? bytes : geometry->clip_bytes - offset;
}

/* The movement of the context's current message. */
OCCL_DUAL void occl_exec_move_of(const struct occl_exec_context *context,
                                 const struct occl_strand *strand, const struct occl_step *step,
                                 const struct occl_geometry *geometry, struct occl_move *out) {
    uint32_t first = context->message * geometry->chunks_per_message;
    uint32_t chunks = step->chunks - first;
    uint64_t inside = (uint64_t)context->iteration * geometry->slice_bytes;
    uint64_t bytes = geometry->chunk_bytes - inside;
    if (chunks > geometry->chunks_per_message)
        chunks = geometry->chunks_per_message;
    if (bytes > geometry->slice_bytes)
        bytes = geometry->slice_bytes;
    bytes *= chunks; /* chunks is 1 unless a slice is a whole chunk */
    out->kind = step->kind;
    out->flags = step->flags;
    out->src_buffer = step->src_buffer;
    out->dst_buffer = step->dst_buffer;
    out->src_count = step->src_count;
    out->dst_count = step->dst_count;
    out->src_member = step->src_member;
    out->dst_member = step->dst_member;
    out->src_member_stride = step->src_member_stride;
    out->dst_member_stride = step->dst_member_stride;
    out->src_offset = ((uint64_t)step->src_chunk + first) * geometry->chunk_bytes + inside;
    out->dst_offset = ((uint64_t)step->dst_chunk + first) * geometry->chunk_bytes + inside;
    out->src_stride_bytes = step->src_chunk_stride * geometry->chunk_bytes;
    out->dst_stride_bytes = step->dst_chunk_stride * geometry->chunk_bytes;
    /* The operand that lies furthest back decides; members do not matter. */
    if (step->src_count > 0)
        bytes =
            occl_exec_clip(geometry, step->src_buffer,
                           out->src_offset + (step->src_count - 1u) * out->src_stride_bytes, bytes);
    if (step->dst_count > 0)
        bytes =
            occl_exec_clip(geometry, step->dst_buffer,
                           out->dst_offset + (step->dst_count - 1u) * out->dst_stride_bytes, bytes);
    out->bytes = bytes;
    out->recv_link = occl_step_receives(step->kind) ? strand->recv_link : OCCL_STEP_NONE;
    out->send_link = occl_step_sends(step->kind) ? strand->send_link : OCCL_STEP_NONE;
    out->recv_message = context->received;
    out->send_message = context->sent;
}

/* Which guard of the current message is false. All guards are looked at before anything moves. */
OCCL_DUAL enum occl_exec_wait occl_exec_guard(const struct occl_exec_context *context,
                                              const struct occl_program *program,
                                              const struct occl_strand *strand,
                                              const struct occl_step *step,
                                              const struct occl_exec_ops *ops, void *env) {
    if (step->dep_strand != OCCL_STEP_NONE && context->message == 0) {
        uint64_t steps = program->strands[step->dep_strand].step_count;
        uint64_t target = context->iteration * steps + step->dep_step + 1;
        if (ops->progress_of(env, step->dep_strand) < target)
            return OCCL_WAIT_STEP;
    }
    if (occl_step_receives(step->kind) && !ops->has_data(env, strand->recv_link, context->received))
        return OCCL_WAIT_DATA;
    if (occl_step_sends(step->kind) && !ops->has_room(env, strand->send_link, context->sent))
        return OCCL_WAIT_ROOM;
    return OCCL_WAIT_NONE;
}

/* Executes the current message: move, then publish. 0 or the mover's status. */
OCCL_DUAL int occl_exec_slice(struct occl_exec_context *context, const struct occl_strand *strand,
                              const struct occl_step *step, const struct occl_geometry *geometry,
                              const struct occl_exec_ops *ops, void *env,
                              struct occl_exec_report *report) {
    struct occl_move move;
    uint32_t sides;
    int status;
    occl_exec_move_of(context, strand, step, geometry, &move);
    status = ops->move(env, &move);
    if (status < 0)
        return status;
    sides = (uint32_t)step->src_count + step->dst_count;
    if (move.send_link != OCCL_STEP_NONE) {
        ops->publish_send(env, move.send_link, context->sent, move.bytes);
        context->sent++;
        sides++;
    }
    if (move.recv_link != OCCL_STEP_NONE) {
        ops->publish_recv(env, move.recv_link, context->received);
        context->received++;
        report->received++;
        sides++;
    }
    report->payload_bytes += move.bytes;
    report->traffic_bytes += move.bytes * sides;
    return 0;
}

/* Moves the context past the current message, and publishes the step when it was the last one. */
OCCL_DUAL void occl_exec_advance(struct occl_exec_context *context,
                                 const struct occl_strand *strand, const struct occl_step *step,
                                 const struct occl_geometry *geometry,
                                 const struct occl_exec_ops *ops, void *env) {
    uint64_t next = (uint64_t)(context->message + 1) * geometry->chunks_per_message;
    context->slices++;
    if (step->kind != OCCL_STEP_NOP && next < step->chunks) {
        context->message++;
        return;
    }
    context->message = 0;
    context->progress++;
    context->step++;
    if (context->step == strand->step_count) {
        context->step = 0;
        context->iteration++;
    }
    ops->publish_progress(env, context->strand, context->progress);
}

/* Runs one strand until it is done, a guard is false, or slices_max steps or slices are done. The
 * report is overwritten. Neither blocks nor allocates; the bound is slices_max movements, each of
 * at most one connector slot. A strand that is done stays done. */
OCCL_DUAL enum occl_exec_result
occl_exec_run(struct occl_exec_context *context, const struct occl_program *program,
              const struct occl_geometry *geometry, const struct occl_exec_ops *ops, void *env,
              uint32_t slices_max, struct occl_exec_report *report) {
    const struct occl_strand *strand = &program->strands[context->strand];
    report->slices = 0;
    report->received = 0;
    report->payload_bytes = 0;
    report->traffic_bytes = 0;
    report->wait_kind = OCCL_WAIT_NONE;
    report->wait_link = OCCL_STEP_NONE;
    report->wait_strand = OCCL_STEP_NONE;
    report->wait_step = 0;
    report->fault = 0;
    for (;;) {
        const struct occl_step *step;
        enum occl_exec_wait wait;
        report->step = context->step;
        if (context->iteration == geometry->iterations || strand->step_count == 0)
            return OCCL_EXEC_DONE;
        if (report->slices == slices_max)
            return OCCL_EXEC_BUDGET;
        step = &program->steps[strand->first_step + context->step];
        wait = occl_exec_guard(context, program, strand, step, ops, env);
        if (wait != OCCL_WAIT_NONE) {
            report->wait_kind = (uint32_t)wait;
            report->wait_link = wait == OCCL_WAIT_DATA   ? strand->recv_link
                                : wait == OCCL_WAIT_ROOM ? strand->send_link
                                                         : OCCL_STEP_NONE;
            report->wait_strand = step->dep_strand;
            report->wait_step = step->dep_step;
            return OCCL_EXEC_BLOCKED;
        }
        if (step->kind != OCCL_STEP_NOP) {
            report->fault = occl_exec_slice(context, strand, step, geometry, ops, env, report);
            if (report->fault < 0)
                return OCCL_EXEC_FAULT;
        }
        report->slices++;
        occl_exec_advance(context, strand, step, geometry, ops, env);
    }
}

#endif
