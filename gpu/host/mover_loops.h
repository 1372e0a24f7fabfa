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
/* No less than two chunks, so forms of four vectors have more: their conversions are long chains of
 * instructions, which overlap. */
#define STRIP_VECTORS_MAX 8
/* Streams each way up to which the direct way is faster (README, measured figures). */
#define DIRECT_STREAMS_MAX 12
/* A block on the stack, in the form; and the most user data in it. */
#define BLOCK_FORM_BYTES 8192
#define BLOCK_BYTES_MAX 4096
/* Sources that one pass over a block combines. */
#define GROUP_SRC 8

/* A job in bytes. */
struct task {
    const unsigned char *const *src;
    unsigned char *const *dst;
    size_t n_src;
    size_t n_dst;
    const uint64_t *factors; /* one per source; only loops that multiply look at them */
    struct ending end;
};

/* Range [lo, hi) of all buffers. To stream, destinations are multiples of V_BYTES at lo. */
typedef void loop_direct_fn(const struct task *task, size_t lo, size_t hi, int stream);
/* Combines the sources [from, to) into the block that holds the form; the first source of all only
 * starts it. Offset and length are in bytes of user data, at most block_bytes of them. */
typedef void loop_gather_fn(unsigned char *block, const struct task *task, size_t from, size_t to,
                            size_t offset, size_t bytes);
/* Turns the form into the user's bytes; those may go to the start of the block itself. */
typedef void loop_end_fn(unsigned char *out, const unsigned char *block, const struct ending *end,
                         size_t bytes);

struct loop_functions {
    loop_direct_fn *direct;
    loop_gather_fn *gather;
    loop_end_fn *end;
    size_t block_bytes;
    size_t half_block_bytes; /* user data whose form takes half of the room */
};

V_INLINE size_t form_chunks(enum form form) {
    const size_t chunks = STRIP_VECTORS / form_vectors(form);
    return chunks < 2 ? 2 : chunks;
}

V_INLINE vu64 factor_of(enum combine how, int scaled, const struct task *task, size_t k) {
    return scaled ? factor_lanes(how, task->factors[k]) : (vu64){0};
}

/* chunks vectors of user data at offset, through registers. */
V_INLINE void strip(enum form form, enum combine how, int scaled, int stream, size_t chunks,
                    const struct task *task, size_t offset) {
    const size_t vectors = form_vectors(form);
    vu64 acc[STRIP_VECTORS_MAX];
    vu64 x[FORM_VECTORS_MAX];
    const unsigned char *p = task->src[0] + offset;
    vu64 factor = factor_of(how, scaled, task, 0);
    V_UNROLL
    for (size_t c = 0; c < chunks; c++)
        chunk_take(form, how, scaled, p + c * V_BYTES, factor, acc + c * vectors);
    for (size_t k = 1; k < task->n_src; k++) {
        p = task->src[k] + offset;
        factor = factor_of(how, scaled, task, k);
        V_UNROLL
        for (size_t c = 0; c < chunks; c++) {
            chunk_take(form, how, scaled, p + c * V_BYTES, factor, x);
            chunk_combine(form, how, acc + c * vectors, x);
        }
    }
    form_divide(form, &task->end, chunks * vectors, acc);
    /* Chunk c ends in acc[c]: at or before the vectors it was made of, as in loop_end_fn. */
    V_UNROLL
    for (size_t c = 0; c < chunks; c++)
        acc[c] = chunk_end(form, &task->end, acc + c * vectors);
    for (size_t k = 0; k < task->n_dst; k++) {
        unsigned char *to = task->dst[k] + offset;
        if (stream) {
            V_UNROLL
            for (size_t c = 0; c < chunks; c++)
                v_stream(to + c * V_BYTES, acc[c]);
        } else {
            V_UNROLL
            for (size_t c = 0; c < chunks; c++)
                v_store(to + c * V_BYTES, acc[c]);
        }
    }
}

/* There are many loops, so what takes more than an instruction is shared by all. */
#if defined(__AVX512BW__) && V_BYTES == 64
#define V_PARTIAL V_INLINE
#else
#define V_PARTIAL __attribute__((noinline)) static
#endif

V_PARTIAL const unsigned char *chunk_copy(const unsigned char *p, const struct v_part *part,
                                          unsigned char *room) {
    v_store(room, v_load_partial(p, part));
    return room;
}

V_PARTIAL void chunk_put_part(unsigned char *p, vu64 x, const struct v_part *part) {
    v_store_partial(p, x, part);
}

/* Where a chunk of 1 .. V_BYTES bytes can be read as a whole vector: at p, or in room, padded with
 * zeros. */
V_INLINE const unsigned char *chunk_at(const unsigned char *p, size_t bytes,
                                       const struct v_part *part, unsigned char *room) {
    if (bytes != V_BYTES)
        p = chunk_copy(p, part, room);
    return p;
}

V_INLINE void chunk_put(unsigned char *p, vu64 x, size_t bytes, const struct v_part *part) {
    if (bytes == V_BYTES)
        v_store(p, x);
    else
        chunk_put_part(p, x, part);
}

/* One vector or less at the end of the buffers. */
V_INLINE void strip_last(enum form form, enum combine how, int scaled, const struct task *task,
                         size_t offset, size_t bytes) {
    vu64 acc[FORM_VECTORS_MAX];
    vu64 x[FORM_VECTORS_MAX];
    unsigned char room[V_BYTES];
    const struct v_part part = v_part_of(bytes % V_BYTES);
    chunk_take(form, how, scaled, chunk_at(task->src[0] + offset, bytes, &part, room),
               factor_of(how, scaled, task, 0), acc);
    for (size_t k = 1; k < task->n_src; k++) {
        chunk_take(form, how, scaled, chunk_at(task->src[k] + offset, bytes, &part, room),
                   factor_of(how, scaled, task, k), x);
        chunk_combine(form, how, acc, x);
    }
    form_divide(form, &task->end, form_vectors(form), acc);
    acc[0] = chunk_end(form, &task->end, acc);
    for (size_t k = 0; k < task->n_dst; k++)
        chunk_put(task->dst[k] + offset, acc[0], bytes, &part);
}

V_INLINE void direct(enum form form, enum combine how, int scaled, const struct task *task,
                     size_t lo, size_t hi, int stream) {
    const size_t chunks = form_chunks(form);
    for (; hi - lo >= chunks * V_BYTES; lo += chunks * V_BYTES)
        strip(form, how, scaled, stream, chunks, task, lo);
    /* Less than a strip is not worth streaming. */
    for (; lo < hi; lo += V_BYTES)
        strip_last(form, how, scaled, task, lo, hi - lo < V_BYTES ? hi - lo : V_BYTES);
}

/* As strip, between a block in memory and a group of sources. */
V_INLINE void gather_strip(enum form form, enum combine how, int scaled, size_t chunks,
                           unsigned char *block, const struct task *task, size_t from, size_t to,
                           size_t offset) {
    const size_t vectors = form_vectors(form);
    vu64 acc[STRIP_VECTORS_MAX];
    vu64 x[FORM_VECTORS_MAX];
    size_t k = from;
    if (k == 0) {
        const unsigned char *p = task->src[k] + offset;
        vu64 factor = factor_of(how, scaled, task, k++);
        V_UNROLL
        for (size_t c = 0; c < chunks; c++)
            chunk_take(form, how, scaled, p + c * V_BYTES, factor, acc + c * vectors);
    } else {
        V_UNROLL
        for (size_t v = 0; v < chunks * vectors; v++)
            acc[v] = v_load(block + v * V_BYTES);
    }
    for (; k < to; k++) {
        const unsigned char *p = task->src[k] + offset;
        vu64 factor = factor_of(how, scaled, task, k);
        V_UNROLL
        for (size_t c = 0; c < chunks; c++) {
            chunk_take(form, how, scaled, p + c * V_BYTES, factor, x);
            chunk_combine(form, how, acc + c * vectors, x);
        }
    }
    V_UNROLL
    for (size_t v = 0; v < chunks * vectors; v++)
        v_store(block + v * V_BYTES, acc[v]);
}

/* As gather_strip, one vector or less. The block has room for the whole. */
V_INLINE void gather_last(enum form form, enum combine how, int scaled, unsigned char *block,
                          const struct task *task, size_t from, size_t to, size_t offset,
                          size_t bytes) {
    const size_t vectors = form_vectors(form);
    vu64 acc[FORM_VECTORS_MAX];
    vu64 x[FORM_VECTORS_MAX];
    unsigned char room[V_BYTES];
    const struct v_part part = v_part_of(bytes % V_BYTES);
    V_UNROLL
    for (size_t v = 0; v < vectors; v++)
        acc[v] = v_load(block + v * V_BYTES);
    for (size_t k = from; k < to; k++) {
        chunk_take(form, how, scaled, chunk_at(task->src[k] + offset, bytes, &part, room),
                   factor_of(how, scaled, task, k), x);
        if (k > 0) {
            chunk_combine(form, how, acc, x);
            continue;
        }
        V_UNROLL
        for (size_t v = 0; v < vectors; v++)
            acc[v] = x[v];
    }
    V_UNROLL
    for (size_t v = 0; v < vectors; v++)
        v_store(block + v * V_BYTES, acc[v]);
}

V_INLINE void gather(enum form form, enum combine how, int scaled, unsigned char *block,
                     const struct task *task, size_t from, size_t to, size_t offset, size_t bytes) {
    const size_t vectors = form_vectors(form);
    const size_t chunks = form_chunks(form);
    size_t done = 0;
    for (; bytes - done >= chunks * V_BYTES; done += chunks * V_BYTES)
        gather_strip(form, how, scaled, chunks, block + done * vectors, task, from, to,
                     offset + done);
    for (; done < bytes; done += V_BYTES)
        gather_last(form, how, scaled, block + done * vectors, task, from, to, offset + done,
                    bytes - done < V_BYTES ? bytes - done : V_BYTES);
}

V_INLINE void end_block(enum form form, unsigned char *out, const unsigned char *block,
                        const struct ending *end, size_t bytes) {
    const size_t vectors = form_vectors(form);
    const struct v_part part = v_part_of(bytes % V_BYTES);
    vu64 acc[FORM_VECTORS_MAX];
    for (size_t done = 0; done < bytes; done += V_BYTES) {
        size_t length = bytes - done < V_BYTES ? bytes - done : V_BYTES;
        V_UNROLL
        for (size_t v = 0; v < vectors; v++)
            acc[v] = v_load(block + done * vectors + v * V_BYTES);
        form_divide(form, end, vectors, acc);
        chunk_put(out + done, chunk_end(form, end, acc), length, &part);
    }
}

#define END_FUNCTION(form, vectors)                                        \
    static void end_##form(unsigned char *out, const unsigned char *block, \
                           const struct ending *end, size_t bytes) {       \
        end_block(FORM_##form, out, block, end, bytes);                    \
    }
OCCL_MOVER_FORMS(END_FUNCTION)

#define LOOP_FUNCTIONS(name, form, how, scaled)                                            \
    static void direct_##name(const struct task *task, size_t lo, size_t hi, int stream) { \
        direct(FORM_##form, COMBINE_##how, scaled, task, lo, hi, stream);                  \
    }                                                                                      \
    static void gather_##name(unsigned char *block, const struct task *task, size_t from,  \
                              size_t to, size_t offset, size_t bytes) {                    \
        gather(FORM_##form, COMBINE_##how, scaled, block, task, from, to, offset, bytes);  \
    }
OCCL_MOVER_LOOPS(LOOP_FUNCTIONS)

#define FORM_BLOCK_BYTES(form, vectors)                                    \
    BLOCK_BYTES_OF_##form = BLOCK_FORM_BYTES / (vectors) < BLOCK_BYTES_MAX \
                                ? BLOCK_FORM_BYTES / (vectors)             \
                                : BLOCK_BYTES_MAX,                         \
    HALF_BYTES_OF_##form = BLOCK_FORM_BYTES / 2 / (vectors),
enum { OCCL_MOVER_FORMS(FORM_BLOCK_BYTES) };

#define LOOP_ENTRY(name, form, how, scaled)                                           \
    [LOOP_##name] = {direct_##name, gather_##name, end_##form, BLOCK_BYTES_OF_##form, \
                     HALF_BYTES_OF_##form},
static const struct loop_functions loop_table[LOOP_COUNT] = {OCCL_MOVER_LOOPS(LOOP_ENTRY)};

#define ROW_ENTRY(type, op, loop) [OCCL_DT_##type][OCCL_RO_##op] = LOOP_##loop,
static const uint8_t row_table[OCCL_DT_LIMIT][OCCL_RO_LIMIT] = {OCCL_MOVER_ROWS(ROW_ENTRY)};

#endif
