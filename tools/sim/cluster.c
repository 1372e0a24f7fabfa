/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual clock, events, and one run from start to end. */
#include "tools/sim/cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 20000000u
#define START_NS 1000000u

void *sim_allocate(size_t count, size_t bytes) {
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) {
        fputs("occl-sim: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void sim_broken(struct sim_cluster *cluster, const char *format, ...) {
    va_list args;
    if (cluster->broken[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(cluster->broken, sizeof cluster->broken, format, args);
    va_end(args);
}

/* ---- events ---- */
static bool earlier(const struct sim_event *a, const struct sim_event *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

void sim_schedule(struct sim_cluster *cluster, uint64_t at_ns, enum sim_event_kind kind, uint32_t a,
                  uint32_t b, uint32_t c) {
    struct sim_event event = {at_ns, cluster->event_number++, (uint32_t)kind, a, b, c};
    uint32_t at = cluster->event_count++;
    if (at == cluster->event_room) {
        cluster->event_room = cluster->event_room * 2 + 256;
        cluster->events = (struct sim_event *)realloc(cluster->events, cluster->event_room *
                                                                           sizeof *cluster->events);
        if (cluster->events == NULL)
            abort();
    }
    while (at > 0 && earlier(&event, &cluster->events[(at - 1) / 2])) {
        cluster->events[at] = cluster->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    cluster->events[at] = event;
}

static struct sim_event take_event(struct sim_cluster *cluster) {
    struct sim_event first = cluster->events[0];
    struct sim_event last = cluster->events[--cluster->event_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= cluster->event_count)
            break;
        if (child + 1 < cluster->event_count &&
            earlier(&cluster->events[child + 1], &cluster->events[child]))
            child++;
        if (!earlier(&cluster->events[child], &last))
            break;
        cluster->events[at] = cluster->events[child];
        at = child;
    }
    cluster->events[at] = last;
    return first;
}

/* Inside a record it dies when it gets there. */
static void kill_rank(struct sim_cluster *cluster, struct sim_rank *rank) {
    rank->dies = rank->kill_how;
    if (rank->dies == SIM_DIES_ABORTING)
        sim_member_die_aborting(cluster, rank);
    else if (rank->dies == SIM_DIES_OUTSIDE)
        sim_rank_kill(cluster, rank);
}

static void dispatch(struct sim_cluster *cluster, const struct sim_event *e) {
    struct sim_job *job = e->kind == SIM_EVENT_LANE ? NULL : &cluster->jobs[e->a];
    switch ((enum sim_event_kind)e->kind) {
    case SIM_EVENT_RANK:
        sim_rank_go_on(cluster, &job->ranks[e->b]);
        return;
    case SIM_EVENT_KILL:
        kill_rank(cluster, &job->ranks[e->b]);
        return;
    case SIM_EVENT_REAP:
        sim_node_poll(&cluster->nodes[job->ranks[e->b].node]);
        sim_node_fail_job(&cluster->nodes[job->ranks[e->b].node], e->a, e->b);
        return;
    case SIM_EVENT_DONE:
        sim_member_look(cluster, &job->ranks[e->b], e->c);
        return;
    case SIM_EVENT_EXECUTE:
        sim_node_poll(&cluster->nodes[e->b]);
        sim_node_execute(&cluster->nodes[e->b], &job->ops[e->c]);
        return;
    case SIM_EVENT_RING:
        sim_node_poll(&cluster->nodes[job->ranks[e->b].node]);
        sim_node_ring(&cluster->nodes[job->ranks[e->b].node], &job->ops[e->c], e->b);
        return;
    case SIM_EVENT_CANCEL:
        sim_node_poll(&cluster->nodes[job->ranks[e->b].node]);
        sim_node_cancel(&cluster->nodes[job->ranks[e->b].node], &job->ops[e->c], e->b);
        return;
    case SIM_EVENT_LANE:
        sim_lane_run(&cluster->nodes[e->a]);
        return;
    }
}

/* ---- one run ---- */
static void make_world(struct sim_cluster *cluster) {
    const struct sim_options *o = &cluster->options;
    struct occl_fabric_sim_config config = {.seed = o->seed ^ 0x5eed,
                                            .nodes = o->nodes,
                                            .posts_max = 1u << 20,
                                            .delay_min_ns = 800,
                                            .delay_max_ns = 1500};
    if (o->faults & SIM_FAULT_DELAY)
        config.delay_max_ns = 100000;
    if (o->faults & SIM_FAULT_REORDER)
        config.reorder_permille = 250;
    if (occl_fabric_sim_world_create(&config, &cluster->world) != OCCL_OK)
        abort();
    cluster->nodes = (struct sim_node *)sim_allocate(o->nodes, sizeof *cluster->nodes);
    for (uint32_t n = 0; n < o->nodes; n++) {
        cluster->nodes[n].number = n;
        sim_node_open(cluster, &cluster->nodes[n]);
    }
    if (o->faults & SIM_FAULT_SLOW) {
        uint32_t node = seeded_below(&cluster->seeded, o->nodes);
        cluster->nodes[node].slow_factor = 2 + seeded_below(&cluster->seeded, 19);
        occl_fabric_sim_slow(cluster->world, node, cluster->nodes[node].slow_factor);
    }
}

/* Advances to whatever is due next. False: nothing is due ever again. */
static bool advance(struct sim_cluster *cluster) {
    uint64_t due = cluster->event_count > 0 ? cluster->events[0].at_ns : UINT64_MAX;
    struct sim_node *node = NULL;
    for (uint32_t n = 0; n < cluster->options.nodes; n++) {
        uint64_t at = occl_fabric_sim_next_ns(cluster->world, n);
        if (at < due) {
            due = at;
            node = &cluster->nodes[n];
        }
    }
    if (due == UINT64_MAX)
        return false;
    if (due > cluster->now_ns)
        cluster->now_ns = due;
    cluster->event_total++;
    if (node != NULL) {
        sim_node_poll(node);
    } else {
        struct sim_event event = take_event(cluster);
        dispatch(cluster, &event);
    }
    return true;
}

static void end_world(struct sim_cluster *cluster) {
    for (uint32_t n = 0; n < cluster->options.nodes; n++)
        sim_node_close(&cluster->nodes[n]);
    sim_check_posts(cluster);
    occl_fabric_sim_world_destroy(cluster->world);
    sim_workload_free(cluster);
    free(cluster->nodes);
    free(cluster->events);
}

bool sim_cluster_run(const struct sim_options *options, uint64_t seed,
                     struct sim_result *out_result) {
    struct sim_cluster cluster;
    memset(&cluster, 0, sizeof cluster);
    cluster.options = *options;
    cluster.options.seed = seed;
    cluster.seeded.state = seed;
    cluster.now_ns = START_NS;
    sim_workload_make(&cluster);
    make_world(&cluster);
    for (uint32_t j = 0; j < options->jobs; j++)
        for (uint32_t r = 0; r < options->ranks; r++)
            sim_rank_start(&cluster, &cluster.jobs[j].ranks[r],
                           START_NS + seeded_below(&cluster.seeded, 5000));
    while (cluster.broken[0] == '\0' && advance(&cluster))
        if (cluster.event_total == EVENTS_MAX)
            sim_broken(&cluster, "no progress: %u events and no end", EVENTS_MAX);
    sim_check_end(&cluster);
    memset(out_result, 0, sizeof *out_result);
    out_result->virtual_ns = cluster.now_ns - START_NS;
    out_result->events = cluster.event_total;
    out_result->visits = cluster.visits;
    out_result->revocations = cluster.revocations;
    out_result->preemptions = cluster.preemptions;
    out_result->ring_ops = cluster.ring_ops;
    out_result->direct_ops = cluster.direct_ops;
    out_result->timeouts = cluster.timeouts;
    out_result->alone_ops = cluster.alone_ops;
    out_result->mismatches = cluster.mismatches;
    out_result->direct_kinds = cluster.direct_kinds;
    out_result->local_kinds = cluster.local_kinds;
    out_result->ring_kinds = cluster.ring_kinds;
    end_world(&cluster);
    memcpy(out_result->broken, cluster.broken, sizeof out_result->broken);
    return cluster.broken[0] == '\0';
}
