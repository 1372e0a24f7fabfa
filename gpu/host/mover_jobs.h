/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a job apart into calls of the loops: which way through the data, heads and tails of
 * streamed stores, and the fan-out of one buffer to several, which the copy job consists of.
 * Included once per instruction set, after V_BYTES and OCCL_MOVERS are defined. */
#ifndef GPU_HOST_MOVER_JOBS_H
#define GPU_HOST_MOVER_JOBS_H

#include "gpu/host/mover_loops.h"
#include "gpu/host/movers.h"
#include "shm_ipc/assert.h"

#define LINE_BYTES 64
/* Streams each way up to which the direct way is faster (README, measured figures). */
#define DIRECT_STREAMS_MAX 12
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
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, done);
    for (; bytes - done >= LINE_BYTES; done += LINE_BYTES) {
        vu64 line[LINE_BYTES / V_BYTES];
        V_UNROLL
        for (size_t v = 0; v < LINE_BYTES / V_BYTES; v++)
            line[v] = v_load(from + done + v * V_BYTES);
        V_UNROLL
        for (size_t v = 0; v < LINE_BYTES / V_BYTES; v++)
            v_stream(to + done + v * V_BYTES, line[v]);
    }
    memcpy(to + done, from + done, bytes - done);
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
            memcpy(to, from, bytes);
    }
}

static void reduce_blocked(const struct row *row, const struct task *task, size_t bytes,
                           int stream) {
    unsigned char block[BLOCK_BYTES * FORM_VECTORS_MAX] __attribute__((aligned(LINE_BYTES)));
    for (size_t lo = 0; lo < bytes; lo += BLOCK_BYTES) {
        size_t length = bytes - lo < BLOCK_BYTES ? bytes - lo : BLOCK_BYTES;
        for (size_t k = 0; k < task->n_src; k += GROUP_SRC) {
            size_t group = task->n_src - k < GROUP_SRC ? task->n_src - k : GROUP_SRC;
            row->gather(block, task->src + k, group, k == 0, lo, length);
        }
        row->end(block, &task->end, length);
        fan_out(task->dst, task->n_dst, lo, block, length, stream);
    }
}

/* Whether all destinations have the same position in their lines, and so can be streamed to in
 * whole vectors once the head, which must hold whole elements, is done. */
static int same_phase(const struct task *task, size_t element_bytes) {
    size_t gap = line_gap(task->dst[0]);
    for (size_t k = 1; k < task->n_dst; k++)
        if (line_gap(task->dst[k]) != gap)
            return 0;
    return gap % element_bytes == 0;
}

static void reduce(const struct occl_reduce_job *job) {
    OCCL_ASSERT(occl_movers_supports(job->dtype, job->redop));
    OCCL_ASSERT(job->n_src >= 1);
    OCCL_ASSERT(job->n_src <= OCCL_MOVE_SRC_MAX);
    OCCL_ASSERT(job->n_dst <= OCCL_MOVE_DST_MAX);
    if (job->count == 0 || job->n_dst == 0)
        return;
    const struct row *row = &row_table[job->dtype][job->redop];
    const size_t element_bytes = occl_dtype_bytes(job->dtype);
    const size_t bytes = job->count * element_bytes;
    const struct task task = {
        .src = (const unsigned char *const *)job->src,
        .dst = (unsigned char *const *)job->dst,
        .n_src = job->n_src,
        .n_dst = job->n_dst,
        .end = {job->divisor == 0 ? 1 : job->divisor, job->n_src},
    };
    const int stream = (job->flags & OCCL_MOVE_NONTEMPORAL) != 0;
    const int few = task.n_src <= DIRECT_STREAMS_MAX && task.n_dst <= DIRECT_STREAMS_MAX;
    if (bytes <= DIRECT_BYTES_MAX || (few && !stream)) {
        row->direct(&task, 0, bytes);
        return;
    }
    if (few && same_phase(&task, element_bytes)) {
        size_t head = line_gap(task.dst[0]);
        row->direct(&task, 0, head);
        row->direct_stream(&task, head, bytes);
    } else {
        reduce_blocked(row, &task, bytes, stream);
    }
    if (stream)
        v_stream_end();
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
