/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of subcommands: dispatch, help and completion read it. */
#include <string.h>

#include "tools/occlctl/occlctl.h"

static const struct occl_ctl_command commands[] = {
    {"status", "", "The daemon in a few lines: is anything wrong?", 0, 0, occl_ctl_status, NULL},
    {"jobs", "", "Jobs with their tenant, class, weight and state", 0, 0, occl_ctl_jobs, NULL},
    {"comms", "", "Communicators with their ranks", 0, 0, occl_ctl_comms, NULL},
    {"ops", "", "Operations that are not complete", 0, 0, occl_ctl_ops, NULL},
    {"why", "", "Who waits for whom, since when; cycles of waits", 0, 0, occl_ctl_why, NULL},
    {"usage", "", "What each tenant and job has used", 0, 0, occl_ctl_usage, NULL},
    {"config", "", "Each setting with its value and origin", 0, 0, occl_ctl_config, NULL},
    {"set", "KIND NAME KEY VALUE", "Change a tenant or job while it runs (`set job NAME weight 3`)",
     3, 4, occl_ctl_set, NULL},
    {"run", "-n N PROGRAM [ARGUMENT...]", "Launch N ranks of a program", 0, 0, NULL, occl_ctl_run},
    {"clean", "", "Remove what dead daemons of this user left behind", 0, 0, occl_ctl_clean, NULL},
    {"ping", "", "Does the daemon answer, and how fast?", 0, 0, occl_ctl_ping, NULL},
    {"doctor", "", "Check what the kernel and this user's limits allow", 0, 0, occl_ctl_doctor,
     NULL},
    {"version", "", "Versions of occlctl and of the daemon", 0, 0, occl_ctl_version, NULL},
    {0},
};

const struct occl_ctl_command *occl_ctl_commands(void) {
    return commands;
}

const struct occl_ctl_command *occl_ctl_command_find(const char *name) {
    for (const struct occl_ctl_command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
