/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi: nothing in this file may
 * run before the CPU was asked. */
#define V_BYTES 64
#include "gpu/host/mover_jobs.h"

const struct occl_movers occl_movers_avx512 = {"avx512", reduce, copy};
