/* SPDX-License-Identifier: Apache-2.0 */
/* A map from a 32-bit number to a pointer and a small number: regions of a job, communicators of a
 * session. A lane looks up and inserts without allocating; the control loop allocates a bigger
 * table before an insertion needs it and frees the old one after the lane has moved over. */
#ifndef DAEMON_ENGINE_MAP_H
#define DAEMON_ENGINE_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct occl_eng_map_entry {
    void *value; /* NULL: free or deleted, told apart by `used` */
    uint64_t extra;
    uint32_t key;
    uint32_t used; /* 1 also for deleted entries, so that probing goes on */
};

struct occl_eng_map {
    struct occl_eng_map_entry *entries; /* NULL while the map has never held anything */
    uint32_t mask;
    uint32_t used; /* entries with used set */
};

/* Entry of `key` or NULL. Any thread that owns the map; pure. */
struct occl_eng_map_entry *occl_eng_map_find(const struct occl_eng_map *map, uint32_t key);

/* Whether `more` insertions fit without growing. */
bool occl_eng_map_has_room(const struct occl_eng_map *map, uint32_t more);

/* Allocates (control loop) an empty table with room for what `map` holds alive and `more`. The
 * caller passes it to occl_eng_map_move. OCCL_E_NO_MEMORY leaves *out_bigger alone. */
int occl_eng_map_grow(const struct occl_eng_map *map, uint32_t more,
                      struct occl_eng_map *out_bigger);

/* Moves all entries of *map into *bigger and swaps the two: afterwards *bigger is the old table,
 * for the control loop to free. Neither blocks nor allocates. */
void occl_eng_map_move(struct occl_eng_map *map, struct occl_eng_map *bigger);

/* Inserts; the caller has made sure of room and that the key is absent. value is not NULL. */
void occl_eng_map_put(struct occl_eng_map *map, uint32_t key, void *value, uint64_t extra);
void occl_eng_map_delete(struct occl_eng_map *map, uint32_t key);

/* Frees the table; control loop only. The map is empty afterwards. */
void occl_eng_map_free(struct occl_eng_map *map);

#endif
