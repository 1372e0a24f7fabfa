/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/host/movers.h"

#include "gpu/host/mover_rows.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Instruction sets that this CPU and its operating system can run. */
static uint32_t isa_present(void) {
    uint32_t mask = OCCL_ISA_PORTABLE;
#if defined(__x86_64__)
    unsigned int eax, ebx, ecx = 0, edx;
    /* Clang's __builtin_cpu_supports knows no F16C; that the system saves its registers follows
     * from AVX2. */
    int f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    if (__builtin_cpu_supports("avx2") && f16c)
        mask |= OCCL_ISA_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi"))
        mask |= OCCL_ISA_AVX512;
#endif
    return mask;
}

/* The first CPUs with AVX-512 lower the clock of the whole core for it, so its neighbours would
 * pay. None of them has VBMI2, which came with the generation that does not (Ice Lake, Zen 4). */
static uint32_t isa_default(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vbmi2"))
        return OCCL_ISA_PORTABLE | OCCL_ISA_AVX2 | OCCL_ISA_AVX512;
#endif
    return OCCL_ISA_PORTABLE | OCCL_ISA_AVX2;
}

const struct occl_movers *occl_movers_select(uint32_t isa_mask) {
    uint32_t usable = isa_present();
    usable &= isa_mask == 0 ? isa_default() : isa_mask;
#if defined(__x86_64__)
    if ((usable & OCCL_ISA_AVX512) != 0)
        return &occl_movers_avx512;
    if ((usable & OCCL_ISA_AVX2) != 0)
        return &occl_movers_avx2;
#endif
    return (usable & OCCL_ISA_PORTABLE) != 0 ? &occl_movers_portable : NULL;
}

#define ROW_PRESENT(type, op, loop) [OCCL_DT_##type][OCCL_RO_##op] = true,
static const bool row_present[OCCL_DT_LIMIT][OCCL_RO_LIMIT] = {OCCL_MOVER_ROWS(ROW_PRESENT)};

bool occl_movers_supports(uint32_t dtype, uint32_t redop) {
    return dtype < OCCL_DT_LIMIT && redop < OCCL_RO_LIMIT && row_present[dtype][redop];
}
