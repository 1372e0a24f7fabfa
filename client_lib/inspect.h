/* SPDX-License-Identifier: Apache-2.0 */
/* For occl-perf and tests: what applications do not need to know. */
#ifndef CLIENT_LIB_INSPECT_H
#define CLIENT_LIB_INSPECT_H

#include "client_lib/occl.h"

/* Path of the last op that completed on this rank of comm: 1 direct, 2 local, 3 ring (the daemon's
 * lanes), 0 none yet, -1 bad handle. */
int occl_inspect_last_path(struct occl_comm comm);
/* 1 when cross-memory attach works between all ranks of comm, 0 when private buffers are staged. */
int occl_inspect_cross_memory(struct occl_comm comm);

#endif
