/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/map.h"

#include <stdlib.h>

#include "shm_ipc/status.h"

#define ENTRIES_MIN 16u

static uint32_t place_of(const struct occl_eng_map *map, uint32_t key) {
    return (key * 0x9e3779b1u >> 7) & map->mask;
}

struct occl_eng_map_entry *occl_eng_map_find(const struct occl_eng_map *map, uint32_t key) {
    if (!map->entries)
        return NULL;
    /* The table is never more than half used, so a free entry ends every probe. */
    for (uint32_t i = place_of(map, key);; i = (i + 1) & map->mask) {
        struct occl_eng_map_entry *e = &map->entries[i];
        if (!e->used)
            return NULL;
        if (e->value && e->key == key)
            return e;
    }
}

bool occl_eng_map_has_room(const struct occl_eng_map *map, uint32_t more) {
    return map->entries && 2 * ((uint64_t)map->used + more) <= (uint64_t)map->mask + 1;
}

int occl_eng_map_grow(const struct occl_eng_map *map, uint32_t more,
                      struct occl_eng_map *out_bigger) {
    uint32_t alive = 0;
    for (uint32_t i = 0; map->entries && i <= map->mask; i++)
        alive += map->entries[i].value != NULL;
    uint64_t size = ENTRIES_MIN;
    while (size < 4 * ((uint64_t)alive + more))
        size *= 2;
    struct occl_eng_map_entry *entries = calloc(size, sizeof *entries);
    if (!entries)
        return OCCL_E_NO_MEMORY;
    *out_bigger = (struct occl_eng_map){.entries = entries, .mask = (uint32_t)size - 1};
    return OCCL_OK;
}

void occl_eng_map_move(struct occl_eng_map *map, struct occl_eng_map *bigger) {
    for (uint32_t i = 0; map->entries && i <= map->mask; i++) {
        const struct occl_eng_map_entry *e = &map->entries[i];
        if (e->value)
            occl_eng_map_put(bigger, e->key, e->value, e->extra);
    }
    struct occl_eng_map old = *map;
    *map = *bigger;
    *bigger = old;
}

void occl_eng_map_put(struct occl_eng_map *map, uint32_t key, void *value, uint64_t extra) {
    uint32_t i = place_of(map, key);
    while (map->entries[i].value)
        i = (i + 1) & map->mask;
    map->used += !map->entries[i].used;
    map->entries[i] = (struct occl_eng_map_entry){value, extra, key, 1};
}

void occl_eng_map_delete(struct occl_eng_map *map, uint32_t key) {
    struct occl_eng_map_entry *e = occl_eng_map_find(map, key);
    if (e)
        e->value = NULL;
}

void occl_eng_map_free(struct occl_eng_map *map) {
    free(map->entries);
    *map = (struct occl_eng_map){0};
}
