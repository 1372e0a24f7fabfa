/* SPDX-License-Identifier: Apache-2.0 */
/* Room for copies of private buffers that peers could reach, where a copy is quicker (buffers.c).
 * The daemon gives each process a room when its first communicator with others is made, and the
 * peers map it then (probe.c): no operation asks anybody. It is given out in units, contiguous ones
 * for a copy, whose pages come into being with their first use. Where there is no room, nothing is
 * copied. */
#include <stdlib.h>
#include <sys/mman.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

#define UNITS OCCL_ROOM_UNITS
OCCL_STATIC_ASSERT(OCCL_ROOM_UNITS == 64, "a bit for each unit");

struct client_copies {
    struct client_region *region;
    uint64_t unit_bytes;
    uint64_t used;      /* a bit a unit; atomic */
    uint64_t populated; /* units that have pages; a bit is changed by whoever uses the unit */
    struct client_stage stages[UNITS]; /* of the copy that begins with the unit */
};

static uint64_t bits_of(uint32_t first, uint32_t count) {
    return (count == UNITS ? ~0ull : (1ull << count) - 1) << first;
}

static struct client_copies *make(struct client_region *room) {
    struct client_copies *copies = calloc(1, sizeof *copies);
    if (!copies)
        return NULL;
    copies->region = room;
    copies->unit_bytes = room->bytes / UNITS;
    for (uint32_t i = 0; i < UNITS; i++)
        copies->stages[i] = (struct client_stage){
            .region = room,
            .offset = i * copies->unit_bytes,
            .base = room->base + i * copies->unit_bytes,
        };
    return copies;
}

bool client_copies_open(struct client_region *room) {
    pthread_mutex_lock(&occl_lib.memory);
    if (!occl_lib.copies) {
        occl_lib.copies = make(room);
        if (occl_lib.copies) {
            occl_add32(&room->users, 1); /* for as long as the process is attached */
            occl_publish32(&occl_lib.copies_open, 1);
        }
    }
    bool open = occl_lib.copies != NULL;
    pthread_mutex_unlock(&occl_lib.memory);
    return open;
}

/* NULL before the first communicator with others: any thread may ask. */
static struct client_copies *copies_now(void) {
    return occl_observe32(&occl_lib.copies_open) ? occl_lib.copies : NULL;
}

static bool take(struct client_copies *copies, uint32_t count, uint32_t *out_first) {
    uint64_t used = occl_peek64(&copies->used);
    for (;;) {
        uint64_t starts = ~used; /* where `count` free units begin */
        for (uint32_t i = 1; i < count; i++)
            starts &= ~used >> i;
        if (!starts)
            return false;
        *out_first = (uint32_t)__builtin_ctzll(starts);
        if (occl_claim64(&copies->used, &used, used | bits_of(*out_first, count)))
            return true;
    }
}

struct client_stage *client_copies_take(uint64_t bytes) {
    struct client_copies *copies = copies_now();
    uint32_t first;
    if (!copies || bytes > copies->unit_bytes * UNITS)
        return NULL;
    uint32_t count = (uint32_t)((bytes + copies->unit_bytes - 1) / copies->unit_bytes);
    if (count == 0 || !take(copies, count, &first))
        return NULL;
    struct client_stage *stage = &copies->stages[first];
    uint64_t bits = bits_of(first, count), missing = bits & ~occl_peek64(&copies->populated);
    stage->units = count;
    if (missing && madvise(stage->base, count * copies->unit_bytes, MADV_POPULATE_WRITE) != 0) {
        client_copies_put(stage);
        return NULL;
    }
    if (missing)
        (void)occl_add64(&copies->populated, missing);
    return stage;
}

void client_copies_put(struct client_stage *stage) {
    struct client_copies *copies = copies_now();
    if (!copies)
        return; /* of an attachment that has ended */
    uint32_t first = (uint32_t)(stage - copies->stages), count = stage->units;
    stage->units = 0;
    (void)occl_add64(&copies->used, 0 - bits_of(first, count));
}

void client_copies_trim(void) {
    struct client_copies *copies = copies_now();
    for (uint32_t i = 0; copies && i < UNITS; i++) {
        uint64_t bit = 1ull << i, used = occl_peek64(&copies->used);
        if (!(occl_peek64(&copies->populated) & bit) || (used & bit))
            continue;
        while (!(used & bit) && !occl_claim64(&copies->used, &used, used | bit)) {}
        if (used & bit)
            continue; /* somebody was faster */
        bool had = occl_peek64(&copies->populated) & bit;
        if (had && madvise(copies->stages[i].base, copies->unit_bytes, MADV_REMOVE) == 0)
            (void)occl_add64(&copies->populated, 0 - bit); /* if not, it stays as it is */
        (void)occl_add64(&copies->used, 0 - bit);
    }
}

uint64_t client_copies_room(void) {
    const struct client_copies *copies = copies_now();
    return copies ? copies->unit_bytes * UNITS : 0;
}

uint64_t client_copies_bytes(void) {
    const struct client_copies *copies = copies_now();
    return copies ? (uint64_t)__builtin_popcountll(occl_peek64(&copies->populated)) *
                        copies->unit_bytes
                  : 0;
}

void client_copies_stop(void) {
    occl_note32(&occl_lib.copies_open, 0);
    free(occl_lib.copies);
    occl_lib.copies = NULL;
}
