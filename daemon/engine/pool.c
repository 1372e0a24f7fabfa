/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/pool.h"

#include <stddef.h>

#include "shm_ipc/assert.h"
#include "shm_ipc/limits.h"
#include "shm_ipc/status.h"

int occl_eng_pool_init(struct occl_eng_pool *pool, struct occl_arena *arena, uint32_t count,
                       uint64_t object_bytes) {
    char *base = occl_arena_array(arena, count, object_bytes, OCCL_CACHE_LINE_BYTES);
    if (!base)
        return OCCL_E_NO_MEMORY;
    *pool = (struct occl_eng_pool){
        .base = base, .object_bytes = object_bytes, .count = count, .free = NULL};
    return OCCL_OK;
}

void *occl_eng_pool_take(struct occl_eng_pool *pool) {
    void *object = pool->free;
    if (object)
        pool->free = *(void **)object;
    else if (pool->touched < pool->count)
        object = occl_eng_pool_at(pool, pool->touched++);
    else
        return NULL;
    pool->live++;
    return object;
}

void occl_eng_pool_give(struct occl_eng_pool *pool, void *object) {
    OCCL_ASSERT(pool->live > 0);
    *(void **)object = pool->free;
    pool->free = object;
    pool->live--;
}
