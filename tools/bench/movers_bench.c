/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the host data movers on one core: payload GB/s (bytes per buffer / time) of the reduce
 * and copy jobs, by type, operator, number of buffers and size, and the cost of tiny jobs.
 *
 *     movers_bench [--isa portable|avx2|avx512] [--quick] [--huge] [--filter TEXT]
 *                  [--ratios [--prefix]]
 *
 * With --ratios, only how many times as long as the sum of float32 each type and operator takes for
 * 2, 4 and 8 buffers of 16 MiB. Each measurement has one of that sum right before it; printed are
 * the medians of the quotients. With --prefix, of jobs of prefixes (scans) instead of plain ones.
 *
 * The slices of REPEATS rounds visit all variants in turn; printed are the median and the best.
 * "out" writes to other buffers, "in" in place, "nt" to other buffers with non-temporal stores. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "gpu/host/reduce.h"

enum { REPEATS = 7, BUFFERS_MAX = 64, NAME_BYTES = 64, RATIO_BYTES = 16 << 20 };
#define SLICE_SECONDS 0.004
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
/* Not zeros: some processors write lines of zeros twice as fast. */
#define FILL 0x3c

enum target { TARGET_OUT, TARGET_IN, TARGET_NT, TARGET_COUNT };
static const char *const target_names[TARGET_COUNT] = {"out", "in", "nt"};

struct options {
    uint32_t isa;
    int quick;
    int huge;
    int ratios;
    int prefix;
    const char *filter;
};

struct buffers {
    void *src[BUFFERS_MAX];
    void *dst[BUFFERS_MAX];
    size_t bytes;
    uint32_t count;
    uint64_t factors[BUFFERS_MAX]; /* 1.5, as a float32 and almost as a float64 */
};

struct variant {
    char name[NAME_BYTES];
    const struct occl_movers *movers;
    const struct buffers *buffers;
    int is_copy;
    struct occl_reduce_job reduce;
    struct occl_copy_job copy;
    size_t bytes;
    double seconds[REPEATS];
};

/* Of this thread on a core: others that share the machine take turns with it, and do not count. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *get_memory(size_t bytes, int huge) {
    size_t align = huge ? HUGE_PAGE_BYTES : 4096;
    void *p = NULL;
    bytes = (bytes + align - 1) / align * align;
    if (posix_memalign(&p, align, bytes) != 0) {
        fprintf(stderr, "movers_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    (void)madvise(p, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(p, FILL, bytes);
    return p;
}

static void open_buffers(struct buffers *b, uint32_t count, size_t bytes, int huge) {
    b->bytes = bytes;
    b->count = count;
    for (uint32_t i = 0; i < count; i++) {
        b->src[i] = get_memory(bytes, huge);
        b->dst[i] = get_memory(bytes, huge);
        b->factors[i] = UINT64_C(0x3ff800003fc00000);
    }
}

static void close_buffers(struct buffers *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        free(b->src[i]);
        free(b->dst[i]);
    }
}

static void run_once(const struct variant *v) {
    if (v->is_copy)
        v->movers->copy(&v->copy);
    else
        v->movers->reduce(&v->reduce);
}

/* Sums in place grow to infinity, or to zero for integers, so each slice starts afresh. */
static void run_for(struct variant *v, int repeat, double seconds) {
    size_t calls = 0;
    for (uint32_t i = 0; i < v->buffers->count; i++)
        memset(v->buffers->src[i], FILL, v->bytes);
    run_once(v);
    double start = now(), end;
    do {
        for (int i = 0; i < (v->bytes <= 65536 ? 64 : 1); i++, calls++)
            run_once(v);
        end = now();
    } while (end - start < seconds);
    v->seconds[repeat] = (end - start) / (double)calls;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct variant *variants, size_t count, const char *filter) {
    for (int r = -1; r < REPEATS; r++)
        for (size_t i = 0; i < count; i++)
            if (filter == NULL || strstr(variants[i].name, filter) != NULL)
                run_for(&variants[i], r < 0 ? 0 : r, r < 0 ? SLICE_SECONDS / 8 : SLICE_SECONDS);
    for (size_t i = 0; i < count; i++) {
        struct variant *v = &variants[i];
        if (filter != NULL && strstr(v->name, filter) == NULL)
            continue;
        qsort(v->seconds, REPEATS, sizeof(v->seconds[0]), by_value);
        double median = v->seconds[REPEATS / 2];
        printf("%-28s %10zu B %12.3f us %8.2f GB/s, best %8.2f GB/s\n", v->name, v->bytes,
               median * 1e6, (double)v->bytes / median * 1e-9,
               (double)v->bytes / v->seconds[0] * 1e-9);
    }
    fflush(stdout);
}

static struct variant reduce_variant(const struct occl_movers *movers, const struct buffers *b,
                                     uint32_t dtype, uint32_t redop, enum target target) {
    struct variant v = {.movers = movers, .buffers = b, .bytes = b->bytes};
    v.reduce = (struct occl_reduce_job){
        .dtype = dtype,
        .redop = redop,
        .count = b->bytes / occl_dtype_bytes(dtype),
        .n_src = b->count,
        .n_dst = b->count,
        .src = (const void *const *)b->src,
        .dst = target == TARGET_IN ? b->src : b->dst,
        .divisor = redop == OCCL_RO_AVG ? b->count : 0,
        .flags = target == TARGET_NT ? OCCL_MOVE_NONTEMPORAL : 0,
        .factors = b->factors,
    };
    snprintf(v.name, sizeof(v.name), "%s %s n=%u %s", occl_dtype_name(dtype),
             occl_redop_name(redop), b->count, target_names[target]);
    return v;
}

static struct variant copy_variant(const struct occl_movers *movers, const struct buffers *b,
                                   enum target target) {
    struct variant v = {.movers = movers, .buffers = b, .bytes = b->bytes, .is_copy = 1};
    v.copy = (struct occl_copy_job){
        .bytes = b->bytes,
        .src = b->src[0],
        .n_dst = b->count,
        .flags = target == TARGET_NT ? OCCL_MOVE_NONTEMPORAL : 0,
        .dst = b->dst,
    };
    snprintf(v.name, sizeof(v.name), "copy to=%u %s", b->count, target_names[target]);
    return v;
}

static void measure_size(const struct occl_movers *movers, uint32_t n, size_t bytes,
                         const struct options *options) {
    struct buffers b;
    struct variant variants[OCCL_DT_LIMIT * OCCL_RO_LIMIT * TARGET_COUNT];
    size_t count = 0;
    open_buffers(&b, n, bytes, options->huge);
    for (uint32_t dtype = 0; dtype < OCCL_DT_LIMIT; dtype++)
        for (uint32_t redop = 0; redop < OCCL_RO_LIMIT; redop++) {
            if (!occl_movers_supports(dtype, redop))
                continue;
            if (options->quick && redop != OCCL_RO_SUM)
                continue;
            for (int t = 0; t < TARGET_COUNT; t++)
                if (t != TARGET_NT || bytes > 65536)
                    variants[count++] = reduce_variant(movers, &b, dtype, redop, (enum target)t);
        }
    variants[count++] = copy_variant(movers, &b, TARGET_OUT);
    variants[count++] = copy_variant(movers, &b, TARGET_NT);
    measure(variants, count, options->filter);
    close_buffers(&b);
}

static double median_of(double *values) {
    qsort(values, REPEATS, sizeof(values[0]), by_value);
    return values[REPEATS / 2];
}

static double ratio(struct variant *unit, struct variant *v) {
    double quotients[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        run_for(unit, r, SLICE_SECONDS);
        run_for(v, r, SLICE_SECONDS);
        quotients[r] = v->seconds[r] / unit->seconds[r];
    }
    return median_of(quotients);
}

static void measure_ratios(const struct occl_movers *movers, const struct options *options) {
    static const uint32_t counts[] = {2, 4, 8};
    printf("# time / time of float32 sum at 16 MiB: out, in place and streamed, of 2, 4 and 8\n");
    struct buffers buffers[sizeof(counts) / sizeof(counts[0])];
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        open_buffers(&buffers[c], counts[c], RATIO_BYTES, options->huge);
    for (uint32_t dtype = 0; dtype < OCCL_DT_LIMIT; dtype++)
        for (uint32_t redop = 0; redop < OCCL_RO_LIMIT; redop++) {
            if (!occl_movers_supports(dtype, redop))
                continue;
            char name[NAME_BYTES];
            snprintf(name, sizeof(name), "%-14s %-10s", occl_dtype_name(dtype),
                     occl_redop_name(redop));
            if (options->filter != NULL && strstr(name, options->filter) == NULL)
                continue;
            printf("%s", name);
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                for (int t = 0; t < TARGET_COUNT; t++) {
                    struct variant unit = reduce_variant(movers, &buffers[c], OCCL_DT_FLOAT32,
                                                         OCCL_RO_SUM, (enum target)t);
                    struct variant v =
                        reduce_variant(movers, &buffers[c], dtype, redop, (enum target)t);
                    v.reduce.flags |= options->prefix ? OCCL_MOVE_PREFIX : 0;
                    printf(" %5.2f", ratio(&unit, &v));
                }
            printf("\n");
            fflush(stdout);
        }
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        close_buffers(&buffers[c]);
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case 'i':
        options->isa = strcmp(arg, "portable") == 0 ? OCCL_ISA_PORTABLE
                       : strcmp(arg, "avx2") == 0   ? OCCL_ISA_AVX2
                       : strcmp(arg, "avx512") == 0 ? OCCL_ISA_AVX512
                                                    : 0;
        if (options->isa == 0)
            argp_error(state, "--isa expected portable, avx2 or avx512, found %s", arg);
        return 0;
    case 'q':
        options->quick = 1;
        return 0;
    case 'h':
        options->huge = 1;
        return 0;
    case 'r':
        options->ratios = 1;
        return 0;
    case 'p':
        options->prefix = 1;
        return 0;
    case 'f':
        options->filter = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv) {
    static const struct argp_option known[] = {
        {"isa", 'i', "NAME", 0, "portable, avx2 or avx512; otherwise the default", 0},
        {"quick", 'q', NULL, 0, "only sums", 0},
        {"huge", 'h', NULL, 0, "huge pages", 0},
        {"ratios", 'r', NULL, 0, "only quotients to the sum of float32", 0},
        {"prefix", 'p', NULL, 0, "with --ratios: of prefixes", 0},
        {"filter", 'f', "TEXT", 0, "only variants whose name contains TEXT", 0},
        {0}};
    static const struct argp parser = {known, parse, NULL, "Measures the host data movers.",
                                       NULL,  NULL,  NULL};
    static const size_t sizes[] = {8, 1024, 4096, 16384, 65536, 262144, 1048576, 16777216};
    static const uint32_t counts[] = {2, 4, 8, 16};
    struct options options = {0};
    argp_parse(&parser, argc, argv, 0, NULL, &options);
    const struct occl_movers *movers = occl_movers_select(options.isa);
    if (movers == NULL) {
        fprintf(stderr, "movers_bench: this CPU cannot run the movers asked for\n");
        return 1;
    }
    printf("# movers %s, pages of %s\n", movers->isa, options.huge ? "2 MiB" : "4 KiB");
    if (options.ratios) {
        measure_ratios(movers, &options);
        return 0;
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            measure_size(movers, counts[c], sizes[s], &options);
    return 0;
}
