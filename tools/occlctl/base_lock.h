/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a base: the folder that holds the private daemons' folders of one user. Under it
 * daemons' folders are made, searched, cleaned and removed, and the base itself. */
#ifndef TOOLS_OCCLCTL_BASE_LOCK_H
#define TOOLS_OCCLCTL_BASE_LOCK_H

#include "shm_ipc/clock.h"

#define OCCL_BASE_WAIT UINT64_MAX

/* Locks the base, waiting for wait_ns nanoseconds at most, or, with OCCL_BASE_WAIT, as long as
 * others hold it. A descriptor whose close unlocks; -1 with errno: ENOENT there is none, or the one
 * that was there has been removed meanwhile, EWOULDBLOCK others have held it all the time. */
int occl_base_lock(const struct occl_clock *clock, const char *base, uint64_t wait_ns);

#endif
