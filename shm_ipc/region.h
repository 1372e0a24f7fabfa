/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory as sealed memfds. The daemon creates every one of them, fixes its size by seals and
 * hands out the descriptor; the client verifies what it received, maps it and populates it with its
 * own threads, so that pages are charged and placed where they are used. What seals cannot forbid
 * is a hole: it reads as zeros in ordinary memory, and is a bus error in huge pages once the pool
 * is empty (guard.h). Control path; any thread. */
#ifndef SHM_IPC_REGION_H
#define SHM_IPC_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/status.h"

enum occl_memfd_flags {
    OCCL_MEMFD_HUGE = 1, /* huge pages when the pool has enough of them, else ordinary memory */
};

struct occl_memfd {
    int fd;         /* close-on-exec; the holder closes it */
    uint32_t huge;  /* 1: it consists of huge pages */
    uint64_t bytes; /* whole pages of its kind */
};

/* Creates a memfd of at least bytes (rounded up to its page size), zeroed, sealed against
 * shrinking, growing and further seals. name appears in /proc/PID/maps. OCCL_E_INVALID (0 or absurd
 * size), OCCL_E_NO_MEMORY (with the system's error in *detail, which may be NULL). */
int occl_memfd_create(const char *name, uint64_t bytes, uint32_t flags,
                      struct occl_memfd *out_memfd, struct occl_detail *detail)
    __attribute__((warn_unused_result));
/* As above, and only the creator can write: *out_base is its writable mapping, and every later
 * mapping of the descriptor is read-only. For pages that many clients read. */
int occl_memfd_create_one_way(const char *name, uint64_t bytes, struct occl_memfd *out_memfd,
                              void **out_base, struct occl_detail *detail)
    __attribute__((warn_unused_result));
/* Closes the descriptor; mappings stay. Zeroed structs and repeated calls are fine. */
void occl_memfd_close(struct occl_memfd *memfd);

enum occl_map_flags {
    OCCL_MAP_WRITE = 1,
    OCCL_MAP_POPULATE = 2, /* touch every page now, on this thread: a client's own regions */
    OCCL_MAP_LARGE = 4,    /* ask for transparent huge pages; ignored where there are none */
};
/* Maps the first bytes of fd, shared. OCCL_E_NO_MEMORY, OCCL_E_PERMISSION (writable mapping of a
 * one-way page), OCCL_E_INVALID. */
int occl_memfd_map(int fd, uint64_t bytes, uint32_t flags, void **out_base,
                   struct occl_detail *detail) __attribute__((warn_unused_result));
void occl_memfd_unmap(void *base, uint64_t bytes);

/* Does a received descriptor keep its promise: a memfd of bytes (exactly), sealed against size
 * changes and, when one_way, against future writers? OCCL_E_PROTOCOL with a text that says what was
 * found. Without this check a peer could truncate the file under our loads. */
int occl_memfd_verify(int fd, uint64_t bytes, bool one_way, struct occl_detail *detail)
    __attribute__((warn_unused_result));

/* Free huge pages of OCCL_HUGE_PAGE_BYTES right now; a hint. */
uint64_t occl_huge_pages_free(void);

#endif
