/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of a reduction, generated for each row. Two ways through the data:
 *
 *   direct   strip by strip: all sources into registers, then to all destinations. One strip is
 *            four lines of each stream (two without AVX2, for want of registers) in the form
 *            combined: whole lines, so that buffers with equal page offsets do not throw each other
 *            out of their one set of the L1 cache, and no more, since the lines of all streams are
 *            in flight at once.
 *   blocked  block by block: a few sources at a time into a block in the L1 cache, the result from
 *            there to one destination after another. For more streams than the prefetchers and the
 *            cache's sets hold, and for streaming to destinations of different alignment.
 *
 * Both are the same sequence of operations on each element, so they give the same bits. */
#ifndef GPU_HOST_MOVER_LOOPS_H
#define GPU_HOST_MOVER_LOOPS_H

#include "gpu/host/mover_ops.h"
#include "gpu/host/reduce.h"

#define STRIP_VECTORS (V_BYTES < 64 ? 8 : 4)
/* User data of a block; its form takes up to FORM_VECTORS_MAX times as much, on the stack. */
#define BLOCK_BYTES 4096
/* Sources that one pass over a block combines. */
#define GROUP_SRC 8

/* A job in bytes. */
struct task {
    const unsigned char *const *src;
    unsigned char *const *dst;
    size_t n_src;
    size_t n_dst;
    struct ending end;
};

/* Range [lo, hi) of all buffers. */
typedef void row_direct_fn(const struct task *task, size_t lo, size_t hi);
/* Combines n_src sources into the block that holds the form; the first group only widens its first
 * source. Offset and length are in bytes of user data, at most BLOCK_BYTES of them. */
typedef void row_gather_fn(unsigned char *block, const unsigned char *const *src, size_t n_src,
                           int first, size_t offset, size_t bytes);
/* Turns the form into the user's bytes, in place at the start of the block. */
typedef void row_end_fn(unsigned char *block, const struct ending *end, size_t bytes);

struct row {
    row_direct_fn *direct;
    row_direct_fn *direct_stream; /* destinations are multiples of V_BYTES at lo */
    row_gather_fn *gather;
    row_end_fn *end;
};

/* chunks vectors of user data at offset, through registers. */
V_INLINE void strip(enum form form, enum combine how, int divide, int stream, size_t chunks,
                    const struct task *task, size_t offset) {
    const size_t vectors = form_vectors(form);
    vu64 acc[STRIP_VECTORS];
    vu64 x[FORM_VECTORS_MAX];
    const unsigned char *p = task->src[0] + offset;
    V_UNROLL
    for (size_t c = 0; c < chunks; c++)
        chunk_widen(form, p + c * V_BYTES, acc + c * vectors);
    for (size_t k = 1; k < task->n_src; k++) {
        p = task->src[k] + offset;
        V_UNROLL
        for (size_t c = 0; c < chunks; c++) {
            chunk_widen(form, p + c * V_BYTES, x);
            chunk_combine(form, how, acc + c * vectors, x);
        }
    }
    /* Chunk c ends in acc[c]: at or before the vectors it was made of, as in row_end_fn. */
    V_UNROLL
    for (size_t c = 0; c < chunks; c++)
        acc[c] = chunk_end(form, divide, &task->end, acc + c * vectors);
    for (size_t k = 0; k < task->n_dst; k++) {
        unsigned char *to = task->dst[k] + offset;
        V_UNROLL
        for (size_t c = 0; c < chunks; c++) {
            if (stream)
                v_stream(to + c * V_BYTES, acc[c]);
            else
                v_store(to + c * V_BYTES, acc[c]);
        }
    }
}

/* The last bytes of the buffers, fewer than a vector. */
V_INLINE void strip_partial(enum form form, enum combine how, int divide, const struct task *task,
                            size_t offset, size_t bytes) {
    vu64 acc[FORM_VECTORS_MAX];
    vu64 x[FORM_VECTORS_MAX];
    unsigned char whole[V_BYTES];
    const struct v_part part = v_part_of(bytes);
    v_store(whole, v_load_partial(task->src[0] + offset, &part));
    chunk_widen(form, whole, acc);
    for (size_t k = 1; k < task->n_src; k++) {
        v_store(whole, v_load_partial(task->src[k] + offset, &part));
        chunk_widen(form, whole, x);
        chunk_combine(form, how, acc, x);
    }
    acc[0] = chunk_end(form, divide, &task->end, acc);
    for (size_t k = 0; k < task->n_dst; k++)
        v_store_partial(task->dst[k] + offset, acc[0], &part);
}

V_INLINE void direct(enum form form, enum combine how, int divide, int stream,
                     const struct task *task, size_t lo, size_t hi) {
    const size_t chunks = STRIP_VECTORS / form_vectors(form);
    for (; hi - lo >= chunks * V_BYTES; lo += chunks * V_BYTES)
        strip(form, how, divide, stream, chunks, task, lo);
    /* Less than a strip is not worth streaming. */
    for (; hi - lo >= V_BYTES; lo += V_BYTES)
        strip(form, how, divide, 0, 1, task, lo);
    if (lo < hi)
        strip_partial(form, how, divide, task, lo, hi - lo);
}

/* As strip, between a block in memory and a group of sources. */
V_INLINE void gather_strip(enum form form, enum combine how, size_t chunks, unsigned char *block,
                           const unsigned char *const *src, size_t n_src, int first,
                           size_t offset) {
    const size_t vectors = form_vectors(form);
    vu64 acc[STRIP_VECTORS];
    vu64 x[FORM_VECTORS_MAX];
    size_t k = 0;
    if (first) {
        const unsigned char *p = src[k++] + offset;
        V_UNROLL
        for (size_t c = 0; c < chunks; c++)
            chunk_widen(form, p + c * V_BYTES, acc + c * vectors);
    } else {
        V_UNROLL
        for (size_t v = 0; v < chunks * vectors; v++)
            acc[v] = v_load(block + v * V_BYTES);
    }
    for (; k < n_src; k++) {
        const unsigned char *p = src[k] + offset;
        V_UNROLL
        for (size_t c = 0; c < chunks; c++) {
            chunk_widen(form, p + c * V_BYTES, x);
            chunk_combine(form, how, acc + c * vectors, x);
        }
    }
    V_UNROLL
    for (size_t v = 0; v < chunks * vectors; v++)
        v_store(block + v * V_BYTES, acc[v]);
}

V_INLINE void gather_partial(enum form form, enum combine how, unsigned char *block,
                             const unsigned char *const *src, size_t n_src, int first,
                             size_t offset, size_t bytes) {
    unsigned char whole[V_BYTES];
    const unsigned char *at = whole;
    const struct v_part part = v_part_of(bytes);
    for (size_t k = 0; k < n_src; k++) {
        v_store(whole, v_load_partial(src[k] + offset, &part));
        gather_strip(form, how, 1, block, &at, 1, first && k == 0, 0);
    }
}

V_INLINE void gather(enum form form, enum combine how, unsigned char *block,
                     const unsigned char *const *src, size_t n_src, int first, size_t offset,
                     size_t bytes) {
    const size_t vectors = form_vectors(form);
    const size_t chunks = STRIP_VECTORS / vectors;
    size_t done = 0;
    for (; bytes - done >= chunks * V_BYTES; done += chunks * V_BYTES)
        gather_strip(form, how, chunks, block + done * vectors, src, n_src, first, offset + done);
    for (; bytes - done >= V_BYTES; done += V_BYTES)
        gather_strip(form, how, 1, block + done * vectors, src, n_src, first, offset + done);
    if (done < bytes)
        gather_partial(form, how, block + done * vectors, src, n_src, first, offset + done,
                       bytes - done);
}

V_INLINE void end_block(enum form form, int divide, unsigned char *block, const struct ending *end,
                        size_t bytes) {
    const size_t vectors = form_vectors(form);
    vu64 acc[FORM_VECTORS_MAX];
    for (size_t done = 0; done < bytes; done += V_BYTES) {
        V_UNROLL
        for (size_t v = 0; v < vectors; v++)
            acc[v] = v_load(block + done * vectors + v * V_BYTES);
        v_store(block + done, chunk_end(form, divide, end, acc));
    }
}

#define ROW_FUNCTIONS(type, op, form, how, divide)                                                \
    static void direct_##type##_##op(const struct task *task, size_t lo, size_t hi) {             \
        direct(form, how, divide, 0, task, lo, hi);                                               \
    }                                                                                             \
    static void stream_##type##_##op(const struct task *task, size_t lo, size_t hi) {             \
        direct(form, how, divide, 1, task, lo, hi);                                               \
    }                                                                                             \
    static void gather_##type##_##op(unsigned char *block, const unsigned char *const *src,       \
                                     size_t n_src, int first, size_t offset, size_t bytes) {      \
        gather(form, how, block, src, n_src, first, offset, bytes);                               \
    }                                                                                             \
    static void end_##type##_##op(unsigned char *block, const struct ending *end, size_t bytes) { \
        end_block(form, divide, block, end, bytes);                                               \
    }
OCCL_MOVER_ROWS(ROW_FUNCTIONS)

#define ROW_ENTRY(type, op, form, how, divide)                                    \
    [OCCL_DT_##type][OCCL_RO_##op] = {direct_##type##_##op, stream_##type##_##op, \
                                      gather_##type##_##op, end_##type##_##op},
static const struct row row_table[OCCL_DT_LIMIT][OCCL_RO_LIMIT] = {OCCL_MOVER_ROWS(ROW_ENTRY)};

#endif
