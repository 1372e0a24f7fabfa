/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled with -mavx2 -mf16c: nothing in this file may run before the CPU was asked. */
#define V_BYTES 32
#include "gpu/host/mover_jobs.h"

const struct occl_movers occl_movers_avx2 = {"avx2", reduce, copy};
