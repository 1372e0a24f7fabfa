/* SPDX-License-Identifier: Apache-2.0 */
/* occl-sim: whole clusters from a seed. */
#include <stdio.h>
#include <string.h>

#include "tools/sim/cluster.h"

static int usage_error(const char *message) {
    fprintf(stderr, "occl-sim: %s\n%s", message, sim_options_usage());
    return 2;
}

static int run_seed(const struct sim_options *options, uint64_t seed) {
    struct sim_result r;
    bool ok = sim_cluster_run(options, seed, &r);
    if (options->verbose)
        printf("seed %llu %s: %.3f ms virtual, %llu events, %llu visits, %llu preemptions, "
               "%llu revocations, %llu through the ring, %llu direct, %llu timed out\n",
               (unsigned long long)seed, ok ? "ok" : "broken", (double)r.virtual_ns / 1e6,
               (unsigned long long)r.events, (unsigned long long)r.visits,
               (unsigned long long)r.preemptions, (unsigned long long)r.revocations,
               (unsigned long long)r.ring_ops, (unsigned long long)r.direct_ops,
               (unsigned long long)r.timeouts);
    if (!ok)
        fprintf(stderr, "occl-sim: invariant broken: %s (seed %llu)\n", r.broken,
                (unsigned long long)seed);
    return ok ? 0 : 1;
}

int main(int argc, char **argv) {
    struct sim_options options;
    char message[200];
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(sim_options_usage(), stdout);
        return 0;
    }
    if (argc < 2)
        return usage_error("expected a command, found none");
    if (strcmp(argv[1], "cluster") != 0) {
        snprintf(message, sizeof message, "expected the command \"cluster\", found \"%.60s\"",
                 argv[1]);
        return usage_error(message);
    }
    if (!sim_options_parse(argc - 2, argv + 2, &options, message, sizeof message))
        return usage_error(message);
    if (options.help) {
        fputs(sim_options_usage(), stdout);
        return 0;
    }
    for (uint64_t i = 0; i < options.seeds; i++) {
        int status = run_seed(&options, options.seed + i);
        if (status != 0)
            return status;
    }
    printf("%llu seed%s: all invariants held\n", (unsigned long long)options.seeds,
           options.seeds == 1 ? "" : "s");
    return 0;
}
