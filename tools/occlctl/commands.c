/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of subcommands: dispatch, help and completion read it. */
#include <string.h>

#include "tools/occlctl/occlctl.h"

#define QUERY (OCCL_CTL_FILTERS | OCCL_CTL_WATCHES)
#define NODE_QUERY OCCL_CTL_WATCHES

static const struct occl_ctl_command commands[] = {
    {"status", "", "The daemon in a few lines: is anything wrong?", 0, 0, occl_ctl_status, NULL,
     QUERY, NULL},
    {"jobs", "", "Jobs with their tenant, class, weight and state", 0, 0, occl_ctl_jobs, NULL,
     QUERY, NULL},
    {"comms", "", "Communicators with their ranks", 0, 0, occl_ctl_comms, NULL, QUERY, NULL},
    {"ops", "", "Operations that are not complete", 0, 0, occl_ctl_ops, NULL, QUERY, NULL},
    {"why", "", "Who waits for whom, since when; cycles of waits", 0, 0, occl_ctl_why, NULL, QUERY,
     NULL},
    {"usage", "", "What each tenant and job has used", 0, 0, occl_ctl_usage, NULL, QUERY, NULL},
    {"config", "", "Each setting with its value and origin", 0, 0, occl_ctl_config, NULL,
     NODE_QUERY, NULL},
    {"set", "job NAME KEY VALUE\ntenant NAME KEY VALUE\ndaemon KEY VALUE",
     "Change a job, a tenant or the daemon while it runs", 3, 4, occl_ctl_set, NULL, 0,
     occl_ctl_set_help},
    {"run", "-n N PROGRAM [ARGUMENT...]", "Launch N ranks of a program", 0, 0, NULL, occl_ctl_run,
     0, NULL},
    {"clean", "", "Remove what dead daemons of this user left behind", 0, 0, occl_ctl_clean, NULL,
     OCCL_CTL_REPEATABLE, NULL},
    {"ping", "", "Does the daemon answer, and how fast?", 0, 0, occl_ctl_ping, NULL, NODE_QUERY,
     NULL},
    {"doctor", "", "Check what the kernel and this user's limits allow", 0, 0, occl_ctl_doctor,
     NULL, OCCL_CTL_REPEATABLE, NULL},
    {"version", "", "Versions of occlctl and of the daemon", 0, 0, occl_ctl_version, NULL,
     OCCL_CTL_REPEATABLE, NULL},
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

void occl_ctl_exit_help(FILE *out) {
    /* To memory: checked by its owner. */
    (void)fputs("Exit status:\n"
                "  0    fine\n"
                "  1    something is wrong (status, why, doctor), remains were left (clean),\n"
                "       the request failed, or standard output could not be written\n"
                "  2    wrong command line, or several private daemons run and none was named\n"
                "  3    no daemon answers: absent, silent, lost, of another version\n"
                "  4    not permitted\n"
                "  125  `run` only: the launcher itself failed, such as its command line or\n"
                "       the writing of labelled output; all other numbers are the program's\n",
                out);
}
