/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a job apart into calls of the loops: which way through the data, heads and tails of
 * streamed stores, and the fan-out of one buffer to several, which the copy job consists of.
 * Included once per instruction set, after V_BYTES and OCCL_MOVERS are defined. */
#ifndef GPU_HOST_MOVER_JOBS_H
#define GPU_HOST_MOVER_JOBS_H

#include "gpu/host/mover_loops.h"
#include "gpu/host/mover_prefix.h"
#include "gpu/host/movers.h"
#include "shm_ipc/assert.h"

#define LINE_BYTES 64
/* A job of up to this many bytes per buffer is direct: no set-up. */
#define DIRECT_BYTES_MAX 1024
/* The source of a fan-out is read from memory once, and from the first caches for the rest. */
#define COPY_BLOCK_BYTES (32u << 10)

/* Distance from p to the next line. */
V_INLINE size_t line_gap(const unsigned char *p) {
    return (0 - (uintptr_t)p) % LINE_BYTES;
}

/* Copies with streamed stores of whole lines, ordinary ones at both ends. */
static void copy_stream(unsigned char *to, const unsigned char *from, size_t bytes) {
    size_t done = line_gap(to);
    if (bytes < done + LINE_BYTES) {
        memmove(to, from, bytes);
        return;
    }
    memmove(to, from, done);
    for (; bytes - done >= LINE_BYTES; done += LINE_BYTES) {
        vu64 line[LINE_BYTES / V_BYTES];
        V_UNROLL
        for (size_t v = 0; v < LINE_BYTES / V_BYTES; v++)
            line[v] = v_load(from + done + v * V_BYTES);
        V_UNROLL
        for (size_t v = 0; v < LINE_BYTES / V_BYTES; v++)
            v_stream(to + done + v * V_BYTES, line[v]);
    }
    memmove(to + done, from + done, bytes - done);
}

V_INLINE void fan_out(unsigned char *const *dst, size_t n_dst, size_t offset,
                      const unsigned char *from, size_t bytes, int stream) {
    for (size_t k = 0; k < n_dst; k++) {
        unsigned char *to = dst[k] + offset;
        if (to == from)
            continue;
        if (stream)
            copy_stream(to, from, bytes);
        else
            memmove(to, from, bytes);
    }
}

static void reduce_blocked(const struct loop_functions *loop, const struct task *task, size_t bytes,
                           int stream) {
    unsigned char block[BLOCK_FORM_BYTES] __attribute__((aligned(LINE_BYTES)));
    for (size_t lo = 0; lo < bytes; lo += loop->block_bytes) {
        size_t length = bytes - lo < loop->block_bytes ? bytes - lo : loop->block_bytes;
        for (size_t k = 0; k < task->n_src; k += GROUP_SRC)
            loop->gather(block, task, k, k + GROUP_SRC < task->n_src ? k + GROUP_SRC : task->n_src,
                         lo, length);
        loop->end(block, block, &task->end, length);
        fan_out(task->dst, task->n_dst, lo, block, length, stream);
    }
}

/* Whether all destinations, those that are NULL excepted, have the same position in their lines,
 * and so can be streamed to in whole vectors once the head, which must hold whole elements, is
 * done. */
static int same_phase(const struct task *task, size_t element_bytes, size_t *out_head) {
    size_t gap = LINE_BYTES;
    for (size_t k = 0; k < task->n_dst; k++) {
        if (task->dst[k] == NULL)
            continue;
        if (gap < LINE_BYTES && line_gap(task->dst[k]) != gap)
            return 0;
        gap = line_gap(task->dst[k]);
    }
    *out_head = gap % LINE_BYTES;
    return gap % element_bytes == 0;
}

/* A result of the exclusive form is written before the source of the same number is read: if that
 * is the same buffer, and for streamed stores, it waits in the upper half of the block. */
static void prefix_block(const struct prefix *p, size_t lo, size_t length) {
    unsigned char block[BLOCK_FORM_BYTES] __attribute__((aligned(LINE_BYTES)));
    unsigned char *const kept = block + BLOCK_FORM_BYTES / 2;
    const struct task *task = p->task;
    for (size_t k = 0; k < task->n_src; k++) {
        unsigned char *to = p->exclusive && k == 0 ? NULL : task->dst[k];
        const int waits = to != NULL && (p->stream || (p->exclusive && to == task->src[k]));
        const struct ending end = prefix_ending(p, k);
        if (!p->exclusive)
            p->loop->gather(block, task, k, k + 1, lo, length);
        if (to != NULL)
            p->loop->end(waits ? kept : to + lo, block, &end, length);
        if (p->exclusive && k + 1 < task->n_src)
            p->loop->gather(block, task, k, k + 1, lo, length);
        if (waits)
            fan_out(&to, 1, lo, kept, length, p->stream);
    }
}

static void prefix_blocked(const struct prefix *p, size_t bytes) {
    const size_t step = p->loop->half_block_bytes;
    for (size_t lo = 0; lo < bytes; lo += step)
        prefix_block(p, lo, bytes - lo < step ? bytes - lo : step);
}

static void prefix(const struct occl_reduce_job *job, size_t row, const struct task *task,
                   size_t bytes) {
    struct prefix p = {
        .loop = &loop_table[row],
        .task = task,
        .exclusive = (job->flags & OCCL_MOVE_PREFIX_EXCLUSIVE) != 0,
        .scaled = job->redop == OCCL_RO_PREMULSUM,
        .divide = job->redop == OCCL_RO_AVG && job->divisor != 0,
        .stream = (job->flags & OCCL_MOVE_NONTEMPORAL) != 0,
    };
    size_t head = 0;
    OCCL_ASSERT(job->n_dst == job->n_src);
    if (task->n_src > DIRECT_STREAMS_MAX ||
        (p.stream && !same_phase(task, occl_dtype_bytes(job->dtype), &head))) {
        prefix_blocked(&p, bytes);
    } else {
        for (size_t k = 0; k < task->n_src; k++)
            p.ends[k] = prefix_ending(&p, k);
        head = head < bytes ? head : bytes;
        prefix_table[row](&p, 0, head, 0);
        prefix_table[row](&p, head, bytes, p.stream);
    }
    if (p.stream)
        v_stream_end();
}

static void reduce_plain(const struct occl_reduce_job *job, const struct loop_functions *loop,
                         const struct task *task, size_t bytes) {
    const int stream = (job->flags & OCCL_MOVE_NONTEMPORAL) != 0;
    const int few = task->n_src <= DIRECT_STREAMS_MAX && task->n_dst <= DIRECT_STREAMS_MAX;
    if (bytes <= DIRECT_BYTES_MAX || (few && !stream)) {
        loop->direct(task, 0, bytes, 0);
        return;
    }
    size_t head;
    if (few && same_phase(task, occl_dtype_bytes(job->dtype), &head)) {
        loop->direct(task, 0, head, 0);
        loop->direct(task, head, bytes, 1);
    } else {
        reduce_blocked(loop, task, bytes, stream);
    }
    if (stream)
        v_stream_end();
}

static void reduce(const struct occl_reduce_job *job) {
    OCCL_ASSERT(job->dtype < OCCL_DT_LIMIT && job->redop < OCCL_RO_LIMIT);
    const size_t row = row_table[job->dtype][job->redop];
    OCCL_ASSERT(row != LOOP_NONE);
    OCCL_ASSERT(job->n_src >= 1);
    OCCL_ASSERT(job->n_src <= OCCL_MOVE_SRC_MAX);
    OCCL_ASSERT(job->n_dst <= OCCL_MOVE_DST_MAX);
    OCCL_ASSERT(job->factors != NULL || job->redop != OCCL_RO_PREMULSUM);
    if (job->count == 0 || job->n_dst == 0)
        return;
    const size_t bytes = job->count * occl_dtype_bytes(job->dtype);
    const struct task task = {
        .src = (const unsigned char *const *)job->src,
        .dst = (unsigned char *const *)job->dst,
        .n_src = job->n_src,
        .n_dst = job->n_dst,
        .factors = job->factors,
        .end = ending_of(job->redop == OCCL_RO_AVG ? job->divisor : 1, job->n_src,
                         job->redop == OCCL_RO_PREMULSUM),
    };
    if ((job->flags & (OCCL_MOVE_PREFIX | OCCL_MOVE_PREFIX_EXCLUSIVE)) != 0)
        prefix(job, row, &task, bytes);
    else
        reduce_plain(job, &loop_table[row], &task, bytes);
}

static void copy(const struct occl_copy_job *job) {
    const unsigned char *from = job->src;
    unsigned char *const *dst = (unsigned char *const *)job->dst;
    const int stream = (job->flags & OCCL_MOVE_NONTEMPORAL) != 0;
    OCCL_ASSERT(job->n_dst <= OCCL_MOVE_DST_MAX);
    /* One destination needs no blocks, which only cut its lines. */
    const size_t step = job->n_dst == 1 ? job->bytes : COPY_BLOCK_BYTES;
    for (size_t lo = 0; lo < job->bytes; lo += step) {
        size_t length = job->bytes - lo < step ? job->bytes - lo : step;
        fan_out(dst, job->n_dst, lo, from + lo, length, stream);
    }
    if (stream)
        v_stream_end();
}

#endif
