/* SPDX-License-Identifier: Apache-2.0 */
/* occl-sim: whole clusters from a seed. */
#include <stdio.h>
#include <string.h>

#include "tools/sim/cluster.h"
#include "tools/sim/host.h"

/* The sessions of node n have the seed n times this further on. */
#define NODE_SEEDS 1000000000ull

static int usage_error(const char *message) {
    fprintf(stderr, "occl-sim: %s\n%s", message, sim_options_usage());
    return 2;
}

static int tell_broken(const char *broken, uint64_t seed) {
    fprintf(stderr, "occl-sim: invariant broken: %s (seed %llu)\n", broken,
            (unsigned long long)seed);
    return 1;
}

static int run_cluster(const struct sim_options *options, uint64_t seed) {
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
    return ok ? 0 : tell_broken(r.broken, seed);
}

/* The sessions of a node: one whole daemon. */
static int run_sessions(const struct sim_options *options, uint64_t seed, uint32_t node) {
    struct sim_host_result r;
    char broken[sizeof r.broken + 32];
    bool ok = sim_host_run(options, seed + node * NODE_SEEDS, &r);
    if (options->verbose)
        printf("seed %llu %s: sessions: trace %016llx, %.3f ms virtual, %llu messages, %llu "
               "communicators, %llu deaths, %llu refusals, %llu ops through the ring, %llu in "
               "records, %llu failed\n",
               (unsigned long long)seed, ok ? "ok" : "broken", (unsigned long long)r.trace,
               (double)r.virtual_ns / 1e6, (unsigned long long)r.messages,
               (unsigned long long)r.comms, (unsigned long long)r.deaths,
               (unsigned long long)r.refusals, (unsigned long long)r.ring_ops,
               (unsigned long long)r.record_ops, (unsigned long long)r.ops_failed);
    snprintf(broken, sizeof broken, "sessions of node %u: %s", node, r.broken);
    return ok ? 0 : tell_broken(broken, seed);
}

/* The sessions of each node of a cluster: the ranks that live there. */
static int run_nodes(const struct sim_options *options, uint64_t seed) {
    for (uint32_t node = 0; node < options->nodes; node++) {
        struct sim_options one = *options;
        one.ranks =
            options->ranks * (node + 1) / options->nodes - options->ranks * node / options->nodes;
        if (one.ranks == 0)
            continue;
        int status = run_sessions(&one, seed, node);
        if (status != 0)
            return status;
    }
    return 0;
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
    bool sessions = strcmp(argv[1], "sessions") == 0;
    if (!sessions && strcmp(argv[1], "cluster") != 0) {
        snprintf(message, sizeof message,
                 "expected the command \"cluster\" or \"sessions\", found \"%.60s\"", argv[1]);
        return usage_error(message);
    }
    if (!sim_options_parse(argc - 2, argv + 2, &options, message, sizeof message))
        return usage_error(message);
    if (options.help) {
        fputs(sim_options_usage(), stdout);
        return 0;
    }
    for (uint64_t i = 0; i < options.seeds; i++) {
        int status = sessions ? run_sessions(&options, options.seed + i, 0)
                              : run_cluster(&options, options.seed + i);
        if (status == 0 && !sessions && !options.ordered)
            status = run_nodes(&options, options.seed + i);
        if (status != 0)
            return status;
    }
    printf("%llu seed%s: all invariants held\n", (unsigned long long)options.seeds,
           options.seeds == 1 ? "" : "s");
    return 0;
}
