/* SPDX-License-Identifier: Apache-2.0 */
/* The session page as a whole: the daemon formats it once, before it hands the page out, and keeps
 * the shape; the client checks the header once, after mapping, and keeps its copy. Neither reads
 * the header's geometry again. */
#ifndef SHM_IPC_SESSION_H
#define SHM_IPC_SESSION_H

#include "shm_ipc/abi.h"
#include "shm_ipc/status.h"

struct occl_session_shape {
    uint64_t page_bytes; /* whole pages */
    uint32_t sq_entries; /* powers of two, OCCL_RING_ENTRIES_MIN and more */
    uint32_t cq_entries; /* not below sq_entries */
    uint32_t sq_offset;  /* bytes from the page's start */
    uint32_t cq_offset;
};

struct occl_session_facts {
    uint64_t session_id;
    uint64_t daemon_epoch;
    uint32_t abi_version;
    uint32_t ticks_source; /* enum occl_ticks_source */
};

/* Shape for a client that asked for sq_wanted entries (0: the default). Wishes are rounded up to a
 * power of two and clamped to OCCL_RING_ENTRIES_MIN..OCCL_CQ_ENTRIES. Pure. */
void occl_session_shape_choose(uint32_t sq_wanted, struct occl_session_shape *out_shape);

/* Writes the header of a zeroed page of shape->page_bytes, state LIVE. Daemon. */
void occl_session_format(struct occl_session_page *page, const struct occl_session_shape *shape,
                         const struct occl_session_facts *facts);

/* Checks the header of a mapping of mapped_bytes and copies what it says. Client. OCCL_E_VERSION
 * (wrong magic or version), OCCL_E_PROTOCOL (geometry that does not fit); the outputs are then
 * untouched and *detail (may be NULL) says what was found. */
int occl_session_open(const struct occl_session_page *page, uint64_t mapped_bytes,
                      struct occl_session_shape *out_shape, struct occl_session_facts *out_facts,
                      struct occl_detail *detail) __attribute__((warn_unused_result));

#endif
