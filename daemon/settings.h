/* SPDX-License-Identifier: Apache-2.0 */
/* What `occlctl set` can change of a job or a tenant: the one table behind the daemon's checks and
 * the help of occlctl. What it can change of the daemon are the reloadable keys of config.h. */
#ifndef DAEMON_SETTINGS_H
#define DAEMON_SETTINGS_H

#include "daemon/config.h"

struct occl_setting {
    const char *kind; /* "job" or "tenant" */
    const char *name;
    enum occl_config_type type; /* a number of some kind: never a text or a choice */
    uint64_t min, max;          /* of a size: the daemon's registered_max may be less */
    const char *help;
    const char *example; /* a value */
};

/* The table; *out_count entries, those of a kind together. Static. */
const struct occl_setting *occl_settings(uint32_t *out_count);
/* NULL: there is none of that name. */
const struct occl_setting *occl_setting_find(const char *kind, const char *name);

#endif
