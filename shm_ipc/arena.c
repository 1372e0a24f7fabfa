/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/arena.h"

#include <string.h>
#include <sys/mman.h>

#include "shm_ipc/assert.h"
#include "shm_ipc/limits.h"
#include "shm_ipc/status.h"

int occl_charge_take(struct occl_charge *charge, uint64_t bytes) {
    if (bytes > charge->limit_bytes || charge->used_bytes > charge->limit_bytes - bytes)
        return OCCL_E_QUOTA;
    charge->used_bytes += bytes;
    if (charge->used_bytes > charge->peak_bytes)
        charge->peak_bytes = charge->used_bytes;
    return OCCL_OK;
}

void occl_charge_give(struct occl_charge *charge, uint64_t bytes) {
    OCCL_ASSERT(bytes <= charge->used_bytes);
    charge->used_bytes -= bytes;
}

int occl_arena_create(uint64_t bytes, struct occl_charge *charge, struct occl_arena *out_arena) {
    const uint64_t page = OCCL_PAGE_BYTES;
    if (bytes == 0 || bytes > INT64_MAX - page)
        return OCCL_E_INVALID;
    bytes = (bytes + page - 1) / page * page;
    if (charge != NULL) {
        int status = occl_charge_take(charge, bytes);
        if (status != OCCL_OK)
            return status;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        if (charge != NULL)
            occl_charge_give(charge, bytes);
        return OCCL_E_NO_MEMORY;
    }
    memset(out_arena, 0, sizeof *out_arena);
    out_arena->base = base;
    out_arena->bytes = bytes;
    out_arena->charge = charge;
    return OCCL_OK;
}

void occl_arena_destroy(struct occl_arena *arena) {
    if (arena == NULL || arena->base == NULL)
        return;
    /* Unmapping a whole mapping of our own cannot fail. */
    OCCL_ASSERT(munmap(arena->base, arena->bytes) == 0);
    if (arena->charge != NULL)
        occl_charge_give(arena->charge, arena->bytes);
    memset(arena, 0, sizeof *arena);
}

void *occl_arena_alloc(struct occl_arena *arena, uint64_t bytes, uint64_t align_bytes) {
    OCCL_ASSERT(!arena->sealed);
    OCCL_ASSERT(align_bytes > 0 && (align_bytes & (align_bytes - 1)) == 0);
    OCCL_ASSERT(align_bytes <= OCCL_PAGE_BYTES);
    uint64_t at = (arena->used_bytes + align_bytes - 1) & ~(align_bytes - 1);
    if (at > arena->bytes || bytes > arena->bytes - at)
        return NULL;
    arena->used_bytes = at + bytes;
    return arena->base + at;
}

void *occl_arena_array(struct occl_arena *arena, uint64_t count, uint64_t element_bytes,
                       uint64_t align_bytes) {
    uint64_t bytes;
    if (__builtin_mul_overflow(count, element_bytes, &bytes))
        return NULL;
    return occl_arena_alloc(arena, bytes, align_bytes);
}

void occl_arena_seal(struct occl_arena *arena) {
    arena->sealed = true;
}
