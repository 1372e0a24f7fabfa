/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of prefixes: what the sources up to a destination's give. As for other reductions there are
 * two ways (mover_loops.h) with the same bits: direct, strip by strip through registers, and
 * blocked, where the block holds the accumulator in its form, for many streams and for streaming to
 * destinations of different alignment. */
#ifndef GPU_HOST_MOVER_PREFIX_H
#define GPU_HOST_MOVER_PREFIX_H

#include "gpu/host/mover_loops.h"

struct prefix {
    const struct loop_functions *loop;
    const struct task *task;
    int exclusive;
    int divide; /* by the number of sources combined */
    int scaled; /* sources have factors */
    int stream;
    struct ending ends[DIRECT_STREAMS_MAX]; /* of the direct way: of each destination */
};

static struct ending prefix_ending(const struct prefix *p, size_t k) {
    const uint32_t combined = (uint32_t)(p->exclusive ? k : k + 1);
    return ending_of(p->divide ? combined : 1, combined, p->scaled);
}

/* Range [lo, hi) of all buffers. To stream, destinations are multiples of V_BYTES at lo. */
typedef void prefix_direct_fn(const struct prefix *p, size_t lo, size_t hi, int stream);

/* chunks whole vectors at offset, or one of bytes bytes. A source is read before the destination of
 * the same number, which may be the same buffer, is written. */
V_INLINE void prefix_strip(enum form form, enum combine how, int scaled, size_t chunks,
                           const struct prefix *p, size_t offset, size_t bytes, int stream) {
    const size_t vectors = form_vectors(form);
    const struct task *task = p->task;
    const struct v_part part = v_part_of(bytes % V_BYTES);
    unsigned char room[V_BYTES];
    vu64 acc[STRIP_VECTORS_MAX] = {{0}}, next[STRIP_VECTORS_MAX], out[STRIP_VECTORS_MAX];
    for (size_t k = 0; k < task->n_src; k++) {
        const unsigned char *from = task->src[k] + offset;
        unsigned char *to = p->exclusive && k == 0 ? NULL : task->dst[k];
        const vu64 factor = factor_of(how, scaled, task, k);
        if (chunks == 1)
            from = chunk_at(from, bytes, &part, room);
        V_UNROLL
        for (size_t c = 0; c < chunks; c++)
            chunk_take(form, how, scaled, from + c * V_BYTES, factor, next + c * vectors);
        V_UNROLL
        for (size_t c = 0; c < chunks && k > 0; c++) {
            vu64 sum[FORM_VECTORS_MAX];
            V_UNROLL
            for (size_t v = 0; v < vectors; v++)
                sum[v] = acc[c * vectors + v];
            chunk_combine(form, how, sum, next + c * vectors);
            V_UNROLL
            for (size_t v = 0; v < vectors; v++)
                next[c * vectors + v] = sum[v];
        }
        if (to != NULL) {
            V_UNROLL
            for (size_t v = 0; v < chunks * vectors; v++)
                out[v] = p->exclusive ? acc[v] : next[v];
            form_divide(form, &p->ends[k], chunks * vectors, out);
            V_UNROLL
            for (size_t c = 0; c < chunks; c++) {
                const vu64 x = chunk_end(form, &p->ends[k], out + c * vectors);
                if (stream)
                    v_stream(to + offset + c * V_BYTES, x);
                else
                    chunk_put(to + offset + c * V_BYTES, x, bytes, &part);
            }
        }
        V_UNROLL
        for (size_t v = 0; v < chunks * vectors; v++)
            acc[v] = next[v];
    }
}

V_INLINE void prefix_direct(enum form form, enum combine how, int scaled, const struct prefix *p,
                            size_t lo, size_t hi, int stream) {
    const size_t chunks = form_chunks(form);
    for (; hi - lo >= chunks * V_BYTES; lo += chunks * V_BYTES)
        prefix_strip(form, how, scaled, chunks, p, lo, V_BYTES, stream);
    for (; lo < hi; lo += V_BYTES)
        prefix_strip(form, how, scaled, 1, p, lo, hi - lo < V_BYTES ? hi - lo : V_BYTES, 0);
}

#define PREFIX_FUNCTION(name, form, how, scaled)                                          \
    static void prefix_##name(const struct prefix *p, size_t lo, size_t hi, int stream) { \
        prefix_direct(FORM_##form, COMBINE_##how, scaled, p, lo, hi, stream);             \
    }
OCCL_MOVER_LOOPS(PREFIX_FUNCTION)

#define PREFIX_ENTRY(name, form, how, scaled) [LOOP_##name] = prefix_##name,
static prefix_direct_fn *const prefix_table[LOOP_COUNT] = {OCCL_MOVER_LOOPS(PREFIX_ENTRY)};

#endif
