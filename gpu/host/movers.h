/* SPDX-License-Identifier: Apache-2.0 */
/* The movers by instruction set; users get them from occl_movers_select. */
#ifndef GPU_HOST_MOVERS_H
#define GPU_HOST_MOVERS_H

#include "gpu/host/reduce.h"

extern const struct occl_movers occl_movers_portable;
#if defined(__x86_64__)
extern const struct occl_movers occl_movers_avx2;
extern const struct occl_movers occl_movers_avx512;
#endif

#endif
