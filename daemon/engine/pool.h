/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of equal objects in a lane's arena: taking and giving back are a few instructions and never
 * allocate. Untouched objects cost address space only. One thread. */
#ifndef DAEMON_ENGINE_POOL_H
#define DAEMON_ENGINE_POOL_H

#include <stdint.h>

#include "shm_ipc/arena.h"

struct occl_eng_pool {
    char *base;
    uint64_t object_bytes;
    uint32_t count;
    uint32_t touched; /* objects below it were handed out at least once */
    uint32_t live;
    void *free; /* the first word of a free object links to the next */
};

/* OCCL_E_NO_MEMORY when the arena is too small. */
int occl_eng_pool_init(struct occl_eng_pool *pool, struct occl_arena *arena, uint32_t count,
                       uint64_t object_bytes);
/* Zeroed the first time an object is handed out, later as it was given back but for its first word.
 * NULL: all are taken. */
void *occl_eng_pool_take(struct occl_eng_pool *pool);
void occl_eng_pool_give(struct occl_eng_pool *pool, void *object);

static inline void *occl_eng_pool_at(const struct occl_eng_pool *pool, uint32_t index) {
    return pool->base + index * pool->object_bytes;
}
static inline uint32_t occl_eng_pool_index(const struct occl_eng_pool *pool, const void *object) {
    return (uint32_t)((uint64_t)((const char *)object - pool->base) / pool->object_bytes);
}

#endif
