/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/sim/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: occl-sim cluster [--seed N] [--seeds COUNT] [--ranks R] [--nodes K] [--jobs N]\n"
    "                        [--ops N] [--slots N] [--faults LIST] [--ordered] [--same-order]\n"
    "                        [--verbose]\n"
    "       occl-sim sessions [--seed N] [--seeds COUNT] [--ranks R] [--jobs N] [--ops N]\n"
    "                        [--faults LIST] [--verbose]\n"
    "\n"
    "cluster runs whole clusters on a virtual clock: the real scheduler, executor, pool and\n"
    "arrival records over an in-process fabric. Every rank submits its ops in its own random\n"
    "order with random waits that never form a cycle; every result is compared with a\n"
    "reference. Then it runs the sessions of each node.\n"
    "sessions runs one whole daemon (control side, engine, matching) in process: clients that\n"
    "speak the wire attach, make, split and end communicators, submit ops through records and\n"
    "rings, and end in all ways in the middle of it.\n"
    "\n"
    "  --seed N        decides everything (default 1)\n"
    "  --seeds COUNT   run COUNT seeds, N, N+1, ... (default 1)\n"
    "  --ranks R       ranks of each job, 1..64 (default 4)\n"
    "  --nodes K       nodes, 1..16 (default 2)\n"
    "  --jobs N        jobs sharing the nodes, 1..16 (default 2)\n"
    "  --ops N         ops of each job, 1..512 (default 16)\n"
    "  --slots N       pooled run slots of a node; 0: enough for all (default 0)\n"
    "  --faults LIST   of delay,reorder,slow,kill,stop,timeout, for clusters mismatch, and for\n"
    "                  sessions exec,garble,quota,drain; or none, or all (default none)\n"
    "  --ordered       an executor that serves each rank strictly in order: it deadlocks\n"
    "  --same-order    all ranks submit in the same order\n"
    "  --verbose       one line a seed, and of sessions the trace and the daemon's log\n"
    "\n"
    "Exit status: 0, 1 with the broken invariant and the seed on stderr, 2 for wrong usage.\n";

const char *sim_options_usage(void) {
    return USAGE;
}

static bool parse_number(const char *name, const char *text, uint64_t least, uint64_t most,
                         uint64_t *out_value, char *out_message, size_t bytes) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < least || value > most) {
        snprintf(out_message, bytes, "%s: expected a number from %llu to %llu, found \"%s\"", name,
                 (unsigned long long)least, (unsigned long long)most, text);
        return false;
    }
    *out_value = value;
    return true;
}

static bool parse_faults(const char *text, uint32_t *out_faults, char *out_message, size_t bytes) {
    static const char *const NAMES[] = {"delay", "reorder", "slow",  "kill",  "stop",    "timeout",
                                        "exec",  "garble",  "quota", "drain", "mismatch"};
    uint32_t faults = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        uint32_t bit = 0;
        for (uint32_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
            if (length == strlen(NAMES[i]) && strncmp(text, NAMES[i], length) == 0)
                bit = 1u << i;
        if (length == 3 && strncmp(text, "all", 3) == 0)
            bit = SIM_FAULT_ALL;
        if (bit == 0 && !(length == 4 && strncmp(text, "none", 4) == 0)) {
            snprintf(out_message, bytes,
                     "--faults: expected delay, reorder, slow, kill, stop, timeout, exec, garble, "
                     "quota, drain, mismatch, all or none, found \"%.*s\"",
                     (int)length, text);
            return false;
        }
        faults |= bit;
        text += length + (text[length] == ',');
    }
    *out_faults = faults;
    return true;
}

/* A flag with a number. */
struct number_flag {
    const char *name;
    uint64_t least, most;
    uint64_t *wide;
    uint32_t *narrow;
};

static bool set_number(const struct number_flag *flag, const char *text, char *out_message,
                       size_t bytes) {
    uint64_t value;
    if (!parse_number(flag->name, text, flag->least, flag->most, &value, out_message, bytes))
        return false;
    if (flag->wide != NULL)
        *flag->wide = value;
    else
        *flag->narrow = (uint32_t)value;
    return true;
}

static bool parse_switch(struct sim_options *o, const char *word) {
    if (strcmp(word, "--ordered") == 0)
        o->ordered = true;
    else if (strcmp(word, "--same-order") == 0)
        o->same_order = true;
    else if (strcmp(word, "--verbose") == 0)
        o->verbose = true;
    else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        o->help = true;
    else
        return false;
    return true;
}

bool sim_options_parse(int argc, char **argv, struct sim_options *out_options, char *out_message,
                       size_t bytes) {
    struct sim_options o = {.seed = 1, .seeds = 1, .ranks = 4, .nodes = 2, .jobs = 2, .ops = 16};
    const struct number_flag numbers[] = {
        {"--seed", 0, UINT64_MAX, &o.seed, NULL},
        {"--seeds", 1, UINT64_MAX, &o.seeds, NULL},
        {"--ranks", 1, SIM_RANKS_MAX, NULL, &o.ranks},
        {"--nodes", 1, SIM_NODES_MAX, NULL, &o.nodes},
        {"--jobs", 1, SIM_JOBS_MAX, NULL, &o.jobs},
        {"--ops", 1, SIM_OPS_MAX, NULL, &o.ops},
        {"--slots", 0, SIM_SLOTS_MAX, NULL, &o.slots},
    };
    for (int i = 0; i < argc; i++) {
        const struct number_flag *flag = NULL;
        if (parse_switch(&o, argv[i]))
            continue;
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (strcmp(argv[i], numbers[k].name) == 0)
                flag = &numbers[k];
        if (flag == NULL && strcmp(argv[i], "--faults") != 0) {
            snprintf(out_message, bytes, "unknown option \"%s\"", argv[i]);
            return false;
        }
        if (i + 1 == argc) {
            snprintf(out_message, bytes, "%s: a value is missing", argv[i]);
            return false;
        }
        i++;
        if (flag != NULL ? !set_number(flag, argv[i], out_message, bytes)
                         : !parse_faults(argv[i], &o.faults, out_message, bytes))
            return false;
    }
    *out_options = o;
    return true;
}
