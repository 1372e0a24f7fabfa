/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/floor_kernels.h"

#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
#define VECTOR_ELEMENTS (VECTOR_BYTES / sizeof(float))

#define GROUP_VECTORS 4

/* A block and its sum fit into the first cache together with the lines in flight. */
#define BLOCK_ELEMENTS ((size_t)2048)
/* Blocks of the library's copy: the input stays in the second cache while it goes to all outputs.
 */
#define MEMCPY_ELEMENTS ((size_t)16384)
/* Below this total, non-temporal stores throw out of the caches what fits into them ... */
#define NT_FROM_BYTES ((size_t)2 << 20)
/* ... and above this one plain stores read every line before they overwrite it, for nothing. */
#define PLAIN_UP_TO_BYTES ((size_t)128 << 20)

static const char *const way_names[OCCL_BENCH_WAYS] = {
    [OCCL_BENCH_WAY_LINES] = "lines",   [OCCL_BENCH_WAY_LINES_NT] = "lines-nt",
    [OCCL_BENCH_WAY_BLOCKS] = "blocks", [OCCL_BENCH_WAY_BLOCKS_NT] = "blocks-nt",
    [OCCL_BENCH_WAY_MEMCPY] = "memcpy",
};

const char *occl_bench_way_name(enum occl_bench_way way) {
    return way_names[way];
}

static bool is_non_temporal(enum occl_bench_way way) {
    return way == OCCL_BENCH_WAY_LINES_NT || way == OCCL_BENCH_WAY_BLOCKS_NT;
}

bool occl_bench_way_fits(enum occl_bench_way way, const struct occl_bench_move *move) {
    size_t total_bytes = (move->in_count + move->out_count) * move->elements * sizeof(float);
    if (way == OCCL_BENCH_WAY_MEMCPY) {
        return move->in_count == 1;
    }
    return is_non_temporal(way) ? total_bytes >= NT_FROM_BYTES : total_bytes <= PLAIN_UP_TO_BYTES;
}

static inline void store(float *to, vector value, bool non_temporal) {
#if defined(__AVX512F__)
    if (non_temporal) {
        _mm512_stream_ps(to, (__m512)value);
        return;
    }
#elif defined(__AVX__)
    if (non_temporal) {
        _mm256_stream_ps(to, (__m256)value);
        return;
    }
#elif defined(__SSE2__)
    if (non_temporal) {
        _mm_stream_ps(to, (__m128)value);
        return;
    }
#endif
    (void)non_temporal;
    memcpy(to, &value, sizeof value);
}

static inline vector load(const float *from) {
    vector value;
    memcpy(&value, from, sizeof value);
    return value;
}

/*
 * With constant numbers of inputs and outputs the compiler keeps all addresses in registers. Four
 * vectors of one stream before the next stream: fewer changes of memory page, and time for loads.
 */
static inline __attribute__((always_inline)) void lines(const struct occl_bench_move *move,
                                                        uint32_t in_count, uint32_t out_count,
                                                        bool non_temporal, size_t first,
                                                        size_t end) {
    size_t i = first;
    for (; i + GROUP_VECTORS * VECTOR_ELEMENTS <= end; i += GROUP_VECTORS * VECTOR_ELEMENTS) {
        vector sum[GROUP_VECTORS];
        for (uint32_t v = 0; v < GROUP_VECTORS; v++) {
            sum[v] = load(move->in[0] + i + v * VECTOR_ELEMENTS);
        }
        for (uint32_t k = 1; k < in_count; k++) {
            for (uint32_t v = 0; v < GROUP_VECTORS; v++) {
                sum[v] += load(move->in[k] + i + v * VECTOR_ELEMENTS);
            }
        }
        for (uint32_t k = 0; k < out_count; k++) {
            for (uint32_t v = 0; v < GROUP_VECTORS; v++) {
                store(move->out[k] + i + v * VECTOR_ELEMENTS, sum[v], non_temporal);
            }
        }
    }
    for (; i < end; i += VECTOR_ELEMENTS) {
        vector sum = load(move->in[0] + i);
        for (uint32_t k = 1; k < in_count; k++) {
            sum += load(move->in[k] + i);
        }
        for (uint32_t k = 0; k < out_count; k++) {
            store(move->out[k] + i, sum, non_temporal);
        }
    }
}

/* Chooses the copy of `lines` that is made for these numbers of streams. */
static inline __attribute__((always_inline)) void
lines_of_any(const struct occl_bench_move *move, bool non_temporal, size_t first, size_t end) {
    uint32_t in_count = move->in_count;
    uint32_t out_count = move->out_count;
    if (in_count == 2 && out_count == 2) {
        lines(move, 2, 2, non_temporal, first, end);
    } else if (in_count == 4 && out_count == 4) {
        lines(move, 4, 4, non_temporal, first, end);
    } else if (in_count == 8 && out_count == 8) {
        lines(move, 8, 8, non_temporal, first, end);
    } else if (in_count == 2 && out_count == 1) {
        lines(move, 2, 1, non_temporal, first, end);
    } else if (in_count == 4 && out_count == 1) {
        lines(move, 4, 1, non_temporal, first, end);
    } else if (in_count == 8 && out_count == 1) {
        lines(move, 8, 1, non_temporal, first, end);
    } else if (in_count == 1 && out_count == 2) {
        lines(move, 1, 2, non_temporal, first, end);
    } else if (in_count == 1 && out_count == 4) {
        lines(move, 1, 4, non_temporal, first, end);
    } else if (in_count == 1 && out_count == 8) {
        lines(move, 1, 8, non_temporal, first, end);
    } else if (in_count == 1 && out_count == 1) {
        lines(move, 1, 1, non_temporal, first, end);
    } else if (in_count == 1 && out_count == 3) {
        lines(move, 1, 3, non_temporal, first, end);
    } else if (in_count == 1 && out_count == 7) {
        lines(move, 1, 7, non_temporal, first, end);
    } else {
        lines(move, in_count, out_count, non_temporal, first, end);
    }
}

static inline __attribute__((always_inline)) void
blocks(const struct occl_bench_move *move, bool non_temporal, size_t first, size_t end) {
    _Alignas(64) float sum[BLOCK_ELEMENTS];
    for (size_t start = first; start < end; start += BLOCK_ELEMENTS) {
        size_t count = end - start < BLOCK_ELEMENTS ? end - start : BLOCK_ELEMENTS;
        memcpy(sum, move->in[0] + start, count * sizeof(float));
        for (uint32_t k = 1; k < move->in_count; k++) {
            for (size_t i = 0; i < count; i += VECTOR_ELEMENTS) {
                store(sum + i, load(sum + i) + load(move->in[k] + start + i), false);
            }
        }
        for (uint32_t k = 0; k < move->out_count; k++) {
            for (size_t i = 0; i < count; i += VECTOR_ELEMENTS) {
                store(move->out[k] + start + i, load(sum + i), non_temporal);
            }
        }
    }
}

static void copies(const struct occl_bench_move *move, size_t first, size_t end) {
    for (size_t start = first; start < end; start += MEMCPY_ELEMENTS) {
        size_t count = end - start < MEMCPY_ELEMENTS ? end - start : MEMCPY_ELEMENTS;
        for (uint32_t k = 0; k < move->out_count; k++) {
            memcpy(move->out[k] + start, move->in[0] + start, count * sizeof(float));
        }
    }
}

void occl_bench_move_part(enum occl_bench_way way, const struct occl_bench_move *move,
                          uint32_t worker, uint32_t workers) {
    /* Parts begin at whole cache lines, so that two workers never write the same one. */
    size_t line_elements = 64 / sizeof(float);
    size_t all_lines = move->elements / line_elements;
    size_t first = all_lines * worker / workers * line_elements;
    size_t end = all_lines * (worker + 1) / workers * line_elements;
    switch (way) {
    case OCCL_BENCH_WAY_LINES:
        lines_of_any(move, false, first, end);
        break;
    case OCCL_BENCH_WAY_LINES_NT:
        lines_of_any(move, true, first, end);
        break;
    case OCCL_BENCH_WAY_BLOCKS:
        blocks(move, false, first, end);
        break;
    case OCCL_BENCH_WAY_BLOCKS_NT:
        blocks(move, true, first, end);
        break;
    case OCCL_BENCH_WAY_MEMCPY:
        copies(move, first, end);
        break;
    case OCCL_BENCH_WAYS:
        break;
    }
#if defined(__SSE2__)
    /* Non-temporal stores are not ordered by a release alone. */
    _mm_sfence();
#endif
}
