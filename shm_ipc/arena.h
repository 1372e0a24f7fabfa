/* SPDX-License-Identifier: Apache-2.0 */
/* Bump arenas. Memory of a lane, a loop or a tenant is sized from limits at start, handed out once
 * and never returned piecewise; after the seal an allocation is a bug of ours and aborts. */
#ifndef SHM_IPC_ARENA_H
#define SHM_IPC_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a tenant may hold and holds. Owned by the tenant; one thread (the control loop). */
struct occl_charge {
    uint64_t limit_bytes;
    uint64_t used_bytes;
    uint64_t peak_bytes;
};
/* OCCL_OK, or OCCL_E_QUOTA with nothing charged. Giving back more than was taken aborts. */
int occl_charge_take(struct occl_charge *charge, uint64_t bytes)
    __attribute__((warn_unused_result));
void occl_charge_give(struct occl_charge *charge, uint64_t bytes);

/* One owner thread at a time. */
struct occl_arena {
    char *base;
    uint64_t bytes;
    uint64_t used_bytes;
    struct occl_charge *charge; /* NULL: nobody pays */
    bool sealed;
};

/* Maps an arena of bytes (rounded up to pages, zeroed on demand). With a charge the whole size is
 * charged at once, so that nothing inside it can fail on a quota later; *charge outlives the arena.
 * OCCL_E_INVALID (0 bytes), OCCL_E_QUOTA, OCCL_E_NO_MEMORY; *out_arena is then untouched. */
int occl_arena_create(uint64_t bytes, struct occl_charge *charge, struct occl_arena *out_arena)
    __attribute__((warn_unused_result));
/* Unmaps and gives the charge back. Half-built (zeroed) and destroyed arenas are fine. */
void occl_arena_destroy(struct occl_arena *arena);

/* Zeroed memory, aligned to align_bytes (a power of two, at most a page), valid until the arena is
 * destroyed. NULL when it does not fit. Aborts after the seal. */
void *occl_arena_alloc(struct occl_arena *arena, uint64_t bytes, uint64_t align_bytes)
    __attribute__((warn_unused_result));
/* count elements, without overflow of the product. */
void *occl_arena_array(struct occl_arena *arena, uint64_t count, uint64_t element_bytes,
                       uint64_t align_bytes) __attribute__((warn_unused_result));
void occl_arena_seal(struct occl_arena *arena);

#endif
