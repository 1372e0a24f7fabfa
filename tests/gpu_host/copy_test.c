/* SPDX-License-Identifier: Apache-2.0 */
/* The copy job, the choice of instruction set, and the tables of names and sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/host/reduce.h"
#include "tests/gpu_host/reference.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { GUARD = 128, BYTES_MAX = 40000, ROOM = BYTES_MAX + 2 * GUARD + 64, DST_MAX = 9 };

static const uint32_t isa_masks[] = {OCCL_ISA_PORTABLE, OCCL_ISA_AVX2, OCCL_ISA_AVX512};

static unsigned char source_room[ROOM];
static unsigned char room[DST_MAX][ROOM];

static void check(const struct occl_movers *movers, size_t bytes, size_t n_dst, size_t shift,
                  uint32_t flags, int with_source) {
    unsigned char *src = source_room + GUARD + shift % 64;
    void *dst[DST_MAX];
    for (size_t k = 0; k < n_dst; k++) {
        unsigned char *p = room[k] + GUARD + (shift * 3 + k * 7) % 64;
        memset(p - GUARD, 0xa5, bytes + 2 * GUARD);
        dst[k] = p;
    }
    if (with_source)
        dst[n_dst / 2] = src;
    const struct occl_copy_job job = {
        .bytes = bytes, .src = src, .n_dst = (uint32_t)n_dst, .flags = flags, .dst = dst};
    movers->copy(&job);
    for (size_t k = 0; k < n_dst; k++) {
        const unsigned char *p = dst[k];
        assert_memory_equal(p, src, bytes);
        for (size_t i = 1; i <= GUARD && p != src; i++) {
            assert_int_equal(p[-(ptrdiff_t)i], 0xa5);
            assert_int_equal(p[bytes + i - 1], 0xa5);
        }
    }
}

static void test_copy_all_sizes_and_positions(void **state) {
    (void)state;
    static const size_t sizes[] = {0,    1,    2,    3,    7,     8,     31,   32,   33,
                                   63,   64,   65,   127,  128,   200,   1000, 4095, 4096,
                                   4097, 8191, 8192, 8193, 16384, 30001, 39999};
    struct random r = {5};
    for (size_t i = 0; i < ROOM; i++)
        source_room[i] = (unsigned char)random_next(&r);
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
        if (movers == NULL)
            continue;
        for (size_t s = 0; s < COUNT_OF(sizes); s++)
            for (size_t shift = 0; shift < 64; shift += sizes[s] < 5000 ? 1 : 9)
                for (uint32_t flags = 0; flags <= OCCL_MOVE_NONTEMPORAL; flags++) {
                    size_t n_dst = (s + shift) % (DST_MAX + 1);
                    check(movers, sizes[s], n_dst, shift, flags, 0);
                    check(movers, sizes[s], 1, shift, flags, 0);
                    if (n_dst > 0)
                        check(movers, sizes[s], n_dst, shift, flags, 1);
                }
    }
}

/* A mask chooses the best of what it names and the CPU has; the default is AVX-512 only on CPUs of
 * a generation that has VBMI2, too. */
/* A tenant may name places that overlap: any bytes result there, but nothing else happens. */
static void test_overlap_stays_inside(void **state) {
    (void)state;
    static const size_t sizes[] = {100, 5000, 39000};
    static const ptrdiff_t shifts[] = {-60, -1, 1, 60};
    for (size_t m = 0; m < COUNT_OF(isa_masks); m++) {
        const struct occl_movers *movers = occl_movers_select(isa_masks[m]);
        for (size_t i = 0; movers && i < COUNT_OF(sizes) * COUNT_OF(shifts) * 2; i++) {
            size_t bytes = sizes[i / 8];
            unsigned char *src = room[0] + GUARD;
            unsigned char *to = src + shifts[i / 2 % 4];
            void *dst[1] = {to};
            for (size_t k = 0; k < ROOM; k++)
                room[0][k] = (unsigned char)(k * 31);
            const struct occl_copy_job job = {.bytes = bytes,
                                              .src = src,
                                              .n_dst = 1,
                                              .flags = i % 2 ? OCCL_MOVE_NONTEMPORAL : 0,
                                              .dst = dst};
            movers->copy(&job);
            size_t first = (size_t)(to - room[0]);
            for (size_t k = 0; k < ROOM; k++)
                if (k < first || k >= first + bytes)
                    assert_int_equal(room[0][k], (unsigned char)(k * 31));
        }
    }
}

static void test_select_follows_the_mask(void **state) {
    (void)state;
    const struct occl_movers *movers = occl_movers_select(OCCL_ISA_PORTABLE);
    assert_non_null(movers);
    assert_string_equal(movers->isa, "portable");
    assert_null(occl_movers_select(UINT32_C(1) << 31));
    if (occl_movers_select(OCCL_ISA_AVX2) == NULL) {
        printf("SKIP test_select_follows_the_mask: no AVX2 on this CPU, its movers are untested\n");
        skip();
    }
    assert_string_equal(occl_movers_select(OCCL_ISA_AVX2 | OCCL_ISA_PORTABLE)->isa, "avx2");
    bool wide = occl_movers_select(OCCL_ISA_AVX512) != NULL;
#if defined(__x86_64__)
    wide = wide && __builtin_cpu_supports("avx512vbmi2");
#endif
    assert_string_equal(occl_movers_select(0)->isa, wide ? "avx512" : "avx2");
}

static void test_select_avx512_on_request(void **state) {
    (void)state;
    const struct occl_movers *movers = occl_movers_select(OCCL_ISA_AVX512);
    if (movers == NULL) {
        printf("SKIP test_select_avx512_on_request: no AVX-512 here: its movers are untested\n");
        skip();
    }
    assert_string_equal(movers->isa, "avx512");
    assert_ptr_equal(occl_movers_select(UINT32_MAX), movers);
}

/* What one core reaches: at least its own second-level cache, and not all caches of a large socket
 * added up, which sysconf gives on chiplets. */
static void test_cache_is_that_of_a_core(void **state) {
    (void)state;
    uint64_t bytes = occl_movers_cache_bytes();
    assert_in_range(bytes, 128u << 10, 2048u << 20);
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    unsigned long long kib = 0;
    if (file == NULL || fscanf(file, "%lluK", &kib) != 1) {
        printf("SKIP test_cache_is_that_of_a_core: the kernel names no third-level cache\n");
        if (file != NULL)
            (void)fclose(file);
        skip();
    }
    (void)fclose(file);
    assert_int_equal(bytes, kib << 10);
}

/* Names and sizes exist for the same numbers; where NCCL has the type or operator they are NCCL's.
 */
static void test_tables_agree(void **state) {
    (void)state;
    static const struct {
        uint32_t dtype;
        size_t bytes;
        const char *name;
    } types[] = {{0, 1, "int8"},           {1, 1, "uint8"},
                 {2, 4, "int32"},          {3, 4, "uint32"},
                 {4, 8, "int64"},          {5, 8, "uint64"},
                 {6, 2, "float16"},        {7, 4, "float32"},
                 {8, 8, "float64"},        {9, 2, "bfloat16"},
                 {10, 1, "float8e4m3"},    {11, 1, "float8e5m2"},
                 {32, 2, "int16"},         {33, 2, "uint16"},
                 {36, 8, "float32_int32"}, {37, 16, "float64_int64"},
                 {38, 8, "int32_int32"},   {39, 16, "int64_int64"}};
    static const char *const redops[] = {"sum",       "prod", "max",    "min",   "avg",
                                         "premulsum", "band", "bor",    "bxor",  "land",
                                         "lor",       "lxor", "minloc", "maxloc"};
    size_t known = 0;
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        assert_int_equal(occl_dtype_bytes(types[t].dtype), types[t].bytes);
        assert_string_equal(occl_dtype_name(types[t].dtype), types[t].name);
    }
    for (uint32_t dtype = 0; dtype < 300; dtype++) {
        known += occl_dtype_bytes(dtype) != 0;
        assert_true((occl_dtype_bytes(dtype) != 0) == (occl_dtype_name(dtype) != NULL));
    }
    assert_int_equal(known, COUNT_OF(types));
    for (uint32_t redop = 0; redop < COUNT_OF(redops); redop++)
        assert_string_equal(occl_redop_name(redop), redops[redop]);
    for (uint32_t redop = COUNT_OF(redops); redop < 300; redop++)
        assert_null(occl_redop_name(redop));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy_all_sizes_and_positions),
        cmocka_unit_test(test_overlap_stays_inside),
        cmocka_unit_test(test_select_follows_the_mask),
        cmocka_unit_test(test_select_avx512_on_request),
        cmocka_unit_test(test_cache_is_that_of_a_core),
        cmocka_unit_test(test_tables_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
