/* SPDX-License-Identifier: Apache-2.0 */
#define V_BYTES 16
#include "gpu/host/mover_jobs.h"

const struct occl_movers occl_movers_portable = {"portable", reduce, copy};
