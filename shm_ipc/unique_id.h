/* SPDX-License-Identifier: Apache-2.0 */
/* The 128 bytes that name a communicator before it exists: magic, version, 128 secret bits from the
 * random door, and zeros. Whoever knows the secret may ask to join; the daemon lets in processes of
 * one job only. The bytes are opaque to applications. */
#ifndef SHM_IPC_UNIQUE_ID_H
#define SHM_IPC_UNIQUE_ID_H

#include <stdbool.h>
#include <string.h>

#include "shm_ipc/clock.h"
#include "shm_ipc/wire.h"

#define OCCL_UNIQUE_ID_MAGIC 0x3144494c43434f75ull
#define OCCL_UNIQUE_ID_VERSION 1u
#define OCCL_UNIQUE_ID_SECRET_BYTES 16

struct occl_unique_id_layout {
    uint64_t magic;
    uint32_t version;
    uint32_t reserved;
    uint8_t secret[OCCL_UNIQUE_ID_SECRET_BYTES];
    uint8_t zeros[96];
};
OCCL_ABI_SIZE(occl_unique_id_layout, sizeof(struct occl_unique_id_wire));

/* Any thread; needs no daemon. */
static inline void occl_unique_id_make(const struct occl_clock *clock,
                                       struct occl_unique_id_wire *out_id) {
    struct occl_unique_id_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.magic = OCCL_UNIQUE_ID_MAGIC;
    layout.version = OCCL_UNIQUE_ID_VERSION;
    occl_clock_random(clock, layout.secret, sizeof layout.secret);
    memcpy(out_id, &layout, sizeof layout);
}

/* False: these bytes did not come from occl_unique_id_make of this version. The secret is copied to
 * out_secret when true. */
static inline bool occl_unique_id_read(const struct occl_unique_id_wire *id,
                                       uint8_t out_secret[OCCL_UNIQUE_ID_SECRET_BYTES]) {
    struct occl_unique_id_layout layout;
    memcpy(&layout, id, sizeof layout);
    if (layout.magic != OCCL_UNIQUE_ID_MAGIC || layout.version != OCCL_UNIQUE_ID_VERSION ||
        layout.reserved != 0)
        return false;
    for (uint32_t i = 0; i < sizeof layout.zeros; i++)
        if (layout.zeros[i])
            return false;
    memcpy(out_secret, layout.secret, sizeof layout.secret);
    return true;
}

#endif
