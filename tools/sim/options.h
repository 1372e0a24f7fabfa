/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of `occl-sim cluster`. */
#ifndef TOOLS_SIM_OPTIONS_H
#define TOOLS_SIM_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NODES_MAX 16u
#define SIM_RANKS_MAX 64u
#define SIM_JOBS_MAX 16u
#define SIM_OPS_MAX 512u
#define SIM_SLOTS_MAX 1024u

enum sim_fault {
    SIM_FAULT_DELAY = 1,
    SIM_FAULT_REORDER = 2,
    SIM_FAULT_SLOW = 4,
    SIM_FAULT_KILL = 8,
    SIM_FAULT_STOP = 16,
    SIM_FAULT_TIMEOUT = 32, /* ops on one node, and creations, have deadlines; the clock jumps */
    /* sessions only */
    SIM_FAULT_EXEC = 64,
    SIM_FAULT_GARBLE = 128,
    SIM_FAULT_QUOTA = 256,
    SIM_FAULT_DRAIN = 512,
    SIM_FAULT_MISMATCH = 1024, /* clusters only: one rank describes an op differently */
    SIM_FAULT_ALL = 2047,
};

struct sim_options {
    uint64_t seed;
    uint64_t seeds; /* how many, from seed on */
    uint32_t ranks; /* of each job */
    uint32_t nodes;
    uint32_t jobs;
    uint32_t ops;       /* of each job */
    uint32_t slots;     /* pooled run slots of a node; 0: enough for all */
    uint32_t faults;    /* enum sim_fault */
    bool ordered;       /* negative control: each rank's ops strictly in order of submission */
    bool same_order;    /* all ranks submit in the same order */
    const char *folder; /* where sessions make their socket, of a short name; NULL: /tmp */
    bool verbose;
    bool help;
};

/* Parses the words after "cluster". False: *out_message (of `bytes`) says what was expected and
 * found. */
bool sim_options_parse(int argc, char **argv, struct sim_options *out_options, char *out_message,
                       size_t bytes);
/* Text of --help. */
const char *sim_options_usage(void);

#endif
