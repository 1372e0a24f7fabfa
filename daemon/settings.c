/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings.h"

#include <string.h>

#include "shm_ipc/limits.h"

#define MS 1000000ull
#define HOUR (3600000 * MS)
#define TIB (1ull << 40)
#define PAGE 4096

static const struct occl_setting settings[] = {
    {"job", "class", OCCL_CONFIG_CLASS, 0, 3,
     "class of its ops, unless op or communicator asked for one", "high"},
    {"job", "weight", OCCL_CONFIG_NUMBER, 1, OCCL_WEIGHT_MAX, "its share inside its tenant", "300"},
    {"job", "stall_interval", OCCL_CONFIG_TIME, 10 * MS, 24 * HOUR,
     "age at which a waiting op of it is reported in the log", "30s"},
    {"tenant", "weight", OCCL_CONFIG_NUMBER, 1, OCCL_WEIGHT_MAX, "its share of the node", "300"},
    {"tenant", "quota_sessions", OCCL_CONFIG_NUMBER, 1, 1048576, "attached processes", "64"},
    {"tenant", "quota_communicators", OCCL_CONFIG_NUMBER, 1, 1048576, "communicators", "1024"},
    {"tenant", "quota_ops", OCCL_CONFIG_NUMBER, 1, 1048576, "ops inside the daemon", "65536"},
    {"tenant", "quota_regions", OCCL_CONFIG_NUMBER, 1, 1048576, "memory regions", "4096"},
    {"tenant", "quota_registered", OCCL_CONFIG_SIZE, PAGE, 1024 * TIB,
     "shared memory; at most the daemon's registered_max", "1GiB"},
};

const struct occl_setting *occl_settings(uint32_t *out_count) {
    *out_count = sizeof settings / sizeof *settings;
    return settings;
}

const struct occl_setting *occl_setting_find(const char *kind, const char *name) {
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(settings[i].kind, kind) == 0 && strcmp(settings[i].name, name) == 0)
            return &settings[i];
    return NULL;
}
