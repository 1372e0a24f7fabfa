/* SPDX-License-Identifier: Apache-2.0 */
/* Staging: copies of private buffers in shared memory, for ops that go through the daemon and for
 * ranks that cannot reach each other's memory. Sizes are powers of two. Small ones are pieces of a
 * region of SLAB_BYTES, so that thousands of small copies need few regions; large ones have a
 * region each, kept for reuse up to KEPT_BYTES in all. */
#include <stdlib.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

#define CLASS_BYTES_MIN 256ull
#define CLASSES 40u
#define SLAB_BYTES (1ull << 20)
#define SLAB_CLASS_MAX (64ull << 10) /* up to this size copies share a region */
#define KEPT_BYTES (128ull << 20)

struct client_staging {
    pthread_mutex_t lock;
    struct client_stage *free[CLASSES];
    struct client_stage *quarantined;
    uint64_t kept_bytes;  /* of the free ones that own a region */
    uint64_t total_bytes; /* of all regions of staging; atomic */
};

static uint64_t class_bytes(uint32_t index) {
    return CLASS_BYTES_MIN << index;
}

static uint32_t class_of(uint64_t bytes) {
    uint32_t index = 0;
    while (index + 1 < CLASSES && class_bytes(index) < bytes)
        index++;
    return index;
}

static struct client_staging *staging(void) {
    pthread_mutex_lock(&occl_lib.memory);
    if (!occl_lib.staging) {
        occl_lib.staging = calloc(1, sizeof *occl_lib.staging);
        if (occl_lib.staging)
            pthread_mutex_init(&occl_lib.staging->lock, NULL);
    }
    struct client_staging *s = occl_lib.staging;
    pthread_mutex_unlock(&occl_lib.memory);
    if (!s)
        (void)client_fail(OCCL_E_NO_MEMORY, "no memory for staging");
    return s;
}

static struct client_stage *make(struct client_region *region, uint64_t offset, uint32_t index) {
    struct client_stage *stage = calloc(1, sizeof *stage);
    if (!stage) {
        (void)client_fail(OCCL_E_NO_MEMORY, "no memory for staging");
        return NULL;
    }
    stage->region = region;
    stage->offset = offset;
    stage->base = region->base + offset;
    stage->class_index = index;
    return stage;
}

/* s->lock is held. */
static void put(struct client_staging *s, struct client_stage *stage) {
    stage->next = s->free[stage->class_index];
    s->free[stage->class_index] = stage;
}

/* A new region cut into pieces: one is returned, the others are free. */
static struct client_stage *add_slab(struct client_staging *s, uint32_t index) {
    struct client_region *region;
    struct client_stage *first = NULL;
    if (client_region_alloc(SLAB_BYTES, &region))
        return NULL;
    (void)occl_add64(&s->total_bytes, SLAB_BYTES);
    for (uint64_t offset = 0; offset + class_bytes(index) <= SLAB_BYTES;
         offset += class_bytes(index)) {
        struct client_stage *stage = make(region, offset, index);
        if (!stage)
            break; /* fewer pieces than fit are still pieces */
        if (!first) {
            first = stage;
            continue;
        }
        pthread_mutex_lock(&s->lock);
        put(s, stage);
        pthread_mutex_unlock(&s->lock);
    }
    return first;
}

struct client_stage *client_stage_get(uint64_t bytes) {
    struct client_staging *s = staging();
    uint32_t index = class_of(bytes);
    struct client_region *region;
    if (!s)
        return NULL;
    pthread_mutex_lock(&s->lock);
    struct client_stage *stage = s->free[index];
    if (stage) {
        s->free[index] = stage->next;
        if (class_bytes(index) > SLAB_CLASS_MAX)
            s->kept_bytes -= class_bytes(index);
    }
    pthread_mutex_unlock(&s->lock);
    if (!stage && class_bytes(index) <= SLAB_CLASS_MAX)
        stage = add_slab(s, index);
    else if (!stage && client_region_alloc(class_bytes(index), &region) == OCCL_OK) {
        (void)occl_add64(&s->total_bytes, class_bytes(index));
        stage = make(region, 0, index);
    }
    return stage;
}

/* Gives a large piece's region back. An executor of this process may be about to give its use back:
 * then the piece is kept. Other errors mean that the daemon is gone, and the region with it. */
static void give_back(struct client_staging *s, struct client_stage *stage) {
    uint64_t bytes = class_bytes(stage->class_index);
    bool kept = client_error_keep(true); /* the call that gives it back has not failed */
    int status = client_region_release(stage->region, 0);
    client_error_keep(kept);
    if (status == OCCL_E_USAGE) {
        pthread_mutex_lock(&s->lock);
        s->kept_bytes += bytes;
        put(s, stage);
        pthread_mutex_unlock(&s->lock);
        return;
    }
    (void)occl_add64(&s->total_bytes, 0 - bytes);
    free(stage);
}

void client_stage_trim(void) {
    struct client_staging *s = occl_lib.staging;
    struct client_stage *list = NULL;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    for (uint32_t index = 0; index < CLASSES; index++) {
        while (class_bytes(index) > SLAB_CLASS_MAX && s->free[index]) {
            struct client_stage *stage = s->free[index];
            s->free[index] = stage->next;
            s->kept_bytes -= class_bytes(index);
            stage->next = list;
            list = stage;
        }
    }
    pthread_mutex_unlock(&s->lock);
    while (list) {
        struct client_stage *stage = list;
        list = stage->next;
        give_back(s, stage);
    }
}

uint64_t client_stage_bytes(void) {
    return occl_lib.staging ? occl_peek64(&occl_lib.staging->total_bytes) : 0;
}

void client_stage_put(struct client_stage *stage) {
    struct client_staging *s = occl_lib.staging;
    if (!stage)
        return;
    uint64_t bytes = class_bytes(stage->class_index);
    bool keep = true;
    pthread_mutex_lock(&s->lock);
    if (bytes > SLAB_CLASS_MAX) {
        keep = s->kept_bytes + bytes <= KEPT_BYTES;
        if (keep)
            s->kept_bytes += bytes;
    }
    if (keep)
        put(s, stage);
    pthread_mutex_unlock(&s->lock);
    if (!keep)
        give_back(s, stage);
}

void client_stage_quarantine(struct client_stage *stage) {
    struct client_staging *s = occl_lib.staging;
    if (!stage)
        return;
    pthread_mutex_lock(&s->lock);
    stage->next = s->quarantined;
    s->quarantined = stage;
    pthread_mutex_unlock(&s->lock);
}

static void free_list(struct client_stage *list) {
    while (list) {
        struct client_stage *stage = list;
        list = stage->next;
        free(stage);
    }
}

/* The regions go with the attachment. */
void client_stage_stop(void) {
    struct client_staging *s = occl_lib.staging;
    if (!s)
        return;
    for (uint32_t index = 0; index < CLASSES; index++)
        free_list(s->free[index]);
    free_list(s->quarantined);
    pthread_mutex_destroy(&s->lock);
    free(s);
    occl_lib.staging = NULL;
}
