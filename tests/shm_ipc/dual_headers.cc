/* SPDX-License-Identifier: Apache-2.0 */
/* The shared headers as C++: compiling this file is the test. */
#include "shm_ipc/abi.h"
#include "shm_ipc/assert.h"
#include "shm_ipc/atomics.h"
#include "shm_ipc/clock.h"
#include "shm_ipc/limits.h"
#include "shm_ipc/record.h"
#include "shm_ipc/ring.h"
#include "shm_ipc/session.h"
#include "shm_ipc/status.h"
#include "shm_ipc/tag_batch.h"
#include "shm_ipc/wake.h"
#include "shm_ipc/wire.h"

/* An object file without a symbol would be legal, but some tools warn of it. */
extern const unsigned occl_dual_headers_record_bytes;
const unsigned occl_dual_headers_record_bytes = sizeof(struct occl_record);
