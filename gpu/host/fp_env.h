/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point environment that the movers assume. An application's thread may run with
 * denormals flushed to zero (fast-math start-up code and some libraries set that), and its results
 * would then differ from those of the other ranks. So whoever runs strands on a thread that is not
 * ours brackets them with enter and leave; the daemon's lanes may assert occl_fp_env_is_default. */
#ifndef GPU_HOST_FP_ENV_H
#define GPU_HOST_FP_ENV_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

/* All exceptions masked, round to nearest, nothing flushed. The six sticky flags do not matter. */
#define OCCL_FP_ENV_DEFAULT UINT32_C(0x1f80)
#define OCCL_FP_ENV_STICKY UINT32_C(0x003f)

static inline bool occl_fp_env_is_default(void) {
    return (_mm_getcsr() & ~OCCL_FP_ENV_STICKY) == OCCL_FP_ENV_DEFAULT;
}

/* Returns the environment for occl_fp_env_leave on the same thread. A few nanoseconds; the register
 * is written only when it differs. */
static inline uint32_t occl_fp_env_enter(void) {
    uint32_t before = _mm_getcsr();
    if ((before & ~OCCL_FP_ENV_STICKY) != OCCL_FP_ENV_DEFAULT)
        _mm_setcsr(OCCL_FP_ENV_DEFAULT);
    return before;
}

static inline void occl_fp_env_leave(uint32_t before) {
    if ((before & ~OCCL_FP_ENV_STICKY) != OCCL_FP_ENV_DEFAULT)
        _mm_setcsr(before);
}
#else
/* Elsewhere the default environment of the platform is taken for granted. */
static inline bool occl_fp_env_is_default(void) {
    return true;
}
static inline uint32_t occl_fp_env_enter(void) {
    return 0;
}
static inline void occl_fp_env_leave(uint32_t before) {
    (void)before;
}
#endif

#endif
