/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated applications do: ops, random orders, random waits without a cycle. */
#include <stdlib.h>

#include "tools/sim/cluster.h"

#define ELEMENTS_SMALL_MAX 200u
#define ELEMENTS_LARGE 9000u /* two local strands */

static bool takes_part(const struct sim_op *op, uint32_t rank) {
    return op->key.peers == OCCL_PEERS_ALL || rank == op->source || rank == op->destination;
}

/* ---- who ---- */
uint32_t sim_op_member_rank(const struct sim_cluster *cluster, const struct sim_op *op,
                            uint32_t node, uint32_t member) {
    const struct sim_job *job = &cluster->jobs[op->job];
    if (op->key.peers == OCCL_PEERS_ALL)
        return job->first_rank[node] + member;
    if (member == 0 && job->ranks[op->source].node == node)
        return op->source;
    return op->destination;
}

uint32_t sim_op_members(const struct sim_cluster *cluster, const struct sim_op *op, uint32_t node) {
    const struct sim_job *job = &cluster->jobs[op->job];
    if (op->key.peers == OCCL_PEERS_ALL)
        return job->first_rank[node + 1] - job->first_rank[node];
    return (job->ranks[op->source].node == node) + (job->ranks[op->destination].node == node);
}

uint32_t sim_op_nodes(const struct sim_cluster *cluster, const struct sim_op *op) {
    uint32_t nodes = 0;
    for (uint32_t n = 0; n < cluster->options.nodes; n++)
        nodes += sim_op_members(cluster, op, n) > 0;
    return nodes;
}

struct sim_op *sim_op_of_key(struct sim_cluster *cluster, uint32_t job, struct occl_op_key key) {
    for (uint32_t i = 0; i < cluster->options.ops; i++) {
        struct sim_op *op = &cluster->jobs[job].ops[i];
        if (op->key.peers == key.peers && op->key.tag == key.tag &&
            op->key.instance == key.instance)
            return op;
    }
    return NULL;
}

/* ---- ops ---- */
static bool same_stream(const struct sim_op *a, const struct sim_op *b) {
    return a->key.peers == b->key.peers && a->key.tag == b->key.tag;
}

static void make_pair(struct sim_cluster *cluster, struct sim_op *op) {
    struct seeded *s = &cluster->seeded;
    uint32_t ranks = cluster->options.ranks;
    op->signature.kind = OCCL_OP_RECV;
    op->source = seeded_below(s, ranks);
    op->destination = (op->source + 1 + seeded_below(s, ranks - 1)) % ranks;
    op->signature.root = op->destination;
    op->key.peers = op->source << 16 | op->destination;
    op->shape = OCCL_SIM_PAIR;
}

/* Between nodes there are programs for these. */
static void make_kind_between(struct sim_cluster *cluster, struct sim_op *op) {
    struct seeded *s = &cluster->seeded;
    uint32_t ranks = cluster->options.ranks, kind = seeded_below(s, 8);
    if (kind < 2 && ranks > 1) {
        make_pair(cluster, op);
    } else if (kind < 4) {
        op->signature.kind = OCCL_OP_BROADCAST;
        op->signature.root = seeded_below(s, ranks);
        op->shape = OCCL_SIM_CHAIN_BROADCAST;
    } else {
        op->signature.kind = OCCL_OP_ALL_REDUCE;
        op->shape = kind % 2 ? OCCL_SIM_TREE_ALL_REDUCE : OCCL_SIM_RING_ALL_REDUCE;
    }
}

/* On one node, any. */
static void make_kind_local(struct sim_cluster *cluster, struct sim_op *op) {
    struct seeded *s = &cluster->seeded;
    uint32_t kind;
    do
        kind = 1 + seeded_below(s, OCCL_OP_LIMIT - 1);
    while (occl_kind_traits(kind) == NULL);
    op->signature.kind = (uint8_t)kind;
    if (occl_kind_traits(kind)->flags & OCCL_KIND_ROOTED)
        op->signature.root = seeded_below(s, cluster->options.ranks);
    if (!(occl_kind_traits(kind)->flags & OCCL_KIND_PAIR))
        return;
    if (cluster->options.ranks > 1)
        make_pair(cluster, op);
    else
        op->signature.kind = OCCL_OP_BARRIER;
}

static void make_count(struct sim_cluster *cluster, struct sim_op *op) {
    struct seeded *s = &cluster->seeded;
    const struct occl_kind_traits *t = occl_kind_traits(op->signature.kind);
    uint32_t count = seeded_permille(s, 40) ? ELEMENTS_LARGE : seeded_below(s, ELEMENTS_SMALL_MAX);
    bool many = t->send_root == OCCL_EXTENT_ALL || t->recv_root == OCCL_EXTENT_ALL;
    op->slot_bytes = count == ELEMENTS_LARGE ? 8192u : 32u << seeded_below(s, 6);
    if (many && (count == ELEMENTS_LARGE || seeded_permille(s, 700)))
        count /= cluster->options.ranks; /* of each block */
    if ((t->flags & (OCCL_KIND_TYPED | OCCL_KIND_VECTOR)) == OCCL_KIND_TYPED)
        op->signature.count = count;
}

static bool lives_on_one_node(const struct sim_cluster *cluster, const struct sim_job *job) {
    uint32_t nodes = 0;
    for (uint32_t n = 0; n < cluster->options.nodes; n++)
        nodes += job->first_rank[n] < job->first_rank[n + 1];
    return nodes == 1;
}

static void make_op(struct sim_cluster *cluster, struct sim_job *job, uint32_t number) {
    struct seeded *s = &cluster->seeded;
    struct sim_op *op = &job->ops[number];
    op->number = number;
    op->job = job->number;
    op->key.peers = OCCL_PEERS_ALL;
    op->odd_rank = SIM_NOBODY;
    if (lives_on_one_node(cluster, job))
        make_kind_local(cluster, op);
    else
        make_kind_between(cluster, op);
    const struct occl_kind_traits *traits = occl_kind_traits(op->signature.kind);
    op->signature.dtype = traits->flags & OCCL_KIND_TYPED ? OCCL_DT_INT64 : 0;
    op->signature.redop = traits->flags & OCCL_KIND_REDUCES ? OCCL_RO_SUM : 0;
    /* Tag 0 is the untagged stream; others collide now and then and then count instances. */
    op->key.tag = seeded_permille(s, job->untagged_permille)
                      ? 0
                      : 1 + seeded_below(s, cluster->options.ops * 2);
    for (uint32_t i = 0; i < number; i++)
        op->key.instance += same_stream(&job->ops[i], op);
    make_count(cluster, op);
    op->op_class = seeded_below(s, OCCL_SCHED_CLASSES);
    op->chunks = 1 + seeded_below(s, 6);
    op->depth = 2 + seeded_below(s, SIM_DEPTH_MAX - 1);
    op->in_place_mask = 0;
    if (seeded_permille(s, 300))
        op->in_place_mask = seeded_permille(s, 500) ? UINT64_MAX : seeded_next(s);
    op->direct = seeded_permille(s, 600);
    if (lives_on_one_node(cluster, job)) {
        op->left_out = seeded_permille(s, 300);
        sim_shape_draw(cluster, op);
    }
}

static void shuffle(struct seeded *s, uint32_t *numbers, uint32_t count) {
    for (uint32_t i = count; i > 1; i--) {
        uint32_t k = seeded_below(s, i), swap = numbers[i - 1];
        numbers[i - 1] = numbers[k];
        numbers[k] = swap;
    }
}

/* ---- scripts ---- */
/* Ops of one stream are matched by order of calls, so each rank calls them in the same order. */
static void keep_streams_in_order(const struct sim_job *job, uint32_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = i + 1; k < count; k++)
            if (numbers[k] < numbers[i] &&
                same_stream(&job->ops[numbers[i]], &job->ops[numbers[k]])) {
                uint32_t swap = numbers[i];
                numbers[i] = numbers[k];
                numbers[k] = swap;
            }
}

/* A rank may wait for an op only if everything that it submits later comes later in the hidden
 * order: then each wait leads upwards in that order, and no cycle can arise. */
static void make_script(struct sim_cluster *cluster, struct sim_job *job, struct sim_rank *rank,
                        const uint32_t *numbers, uint32_t count) {
    struct seeded *s = &cluster->seeded;
    uint32_t waits_permille = seeded_below(s, 3) * 200, length = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t lowest = UINT32_MAX, k;
        rank->script[length].word = SIM_SUBMIT;
        rank->script[length++].op = numbers[i];
        for (k = i + 1; k < count; k++)
            if (job->ops[numbers[k]].order < lowest)
                lowest = job->ops[numbers[k]].order;
        k = seeded_below(s, i + 1);
        if (seeded_permille(s, waits_permille) && job->ops[numbers[k]].order < lowest) {
            rank->script[length].word = SIM_WAIT;
            rank->script[length++].op = numbers[k];
        }
    }
    rank->script_length = length;
}

static void make_rank(struct sim_cluster *cluster, struct sim_job *job, struct sim_rank *rank,
                      uint32_t *numbers) {
    uint32_t ops = cluster->options.ops, count = 0;
    rank->script = (struct sim_item *)sim_allocate(2 * (size_t)ops, sizeof *rank->script);
    rank->requests = (struct sim_request *)sim_allocate(ops, sizeof *rank->requests);
    rank->submitted = (uint32_t *)sim_allocate(ops, sizeof *rank->submitted);
    rank->stop_at_ns = rank->kill_at_ns = UINT64_MAX;
    rank->owed = SIM_NOBODY;
    for (uint32_t i = 0; i < ops; i++) {
        rank->requests[i].member = takes_part(&job->ops[i], rank->rank);
        if (rank->requests[i].member)
            numbers[count++] = i;
    }
    if (!cluster->options.same_order)
        shuffle(&cluster->seeded, numbers, count);
    keep_streams_in_order(job, numbers, count);
    make_script(cluster, job, rank, numbers, count);
}

static void make_faults(struct sim_cluster *cluster, struct sim_job *job) {
    struct seeded *s = &cluster->seeded;
    uint32_t faults = cluster->options.faults, ranks = cluster->options.ranks;
    if (faults & SIM_FAULT_STOP) {
        struct sim_rank *rank = &job->ranks[seeded_below(s, ranks)];
        rank->stop_at_ns = cluster->now_ns + seeded_below(s, 200000);
        rank->stop_for_ns = 100000 + seeded_below(s, 5000000);
    }
    /* One job in two, so that there is always a chance to see that others notice nothing. */
    if ((faults & SIM_FAULT_KILL) && (job->number + cluster->options.seed) % 2 == 0) {
        struct sim_rank *rank = &job->ranks[seeded_below(s, ranks)];
        rank->kill_at_ns =
            cluster->now_ns + seeded_below(s, seeded_permille(s, 500) ? 30000 : 300000);
        rank->kill_how = seeded_below(s, SIM_DIES_COUNT);
        sim_schedule(cluster, rank->kill_at_ns, SIM_EVENT_KILL, job->number, rank->rank, 0);
    }
}

static void make_job(struct sim_cluster *cluster, struct sim_job *job, uint32_t *numbers) {
    uint32_t ranks = cluster->options.ranks, nodes = cluster->options.nodes;
    uint32_t ops = cluster->options.ops;
    job->ops = (struct sim_op *)sim_allocate(ops, sizeof *job->ops);
    job->ranks = (struct sim_rank *)sim_allocate(ranks, sizeof *job->ranks);
    job->tenant_weight = 1 + seeded_below(&cluster->seeded, 4);
    job->job_weight = 1 + seeded_below(&cluster->seeded, 4);
    job->untagged_permille = seeded_permille(&cluster->seeded, 300) ? 700 : 125;
    job->dead_rank = -1;
    /* One job in four lives on one of several nodes, between those that do not. */
    uint32_t home =
        seeded_permille(&cluster->seeded, 250) ? seeded_below(&cluster->seeded, nodes) : SIM_NOBODY;
    for (uint32_t n = 0; n <= nodes; n++)
        job->first_rank[n] = home == SIM_NOBODY ? n * ranks / nodes : n > home ? ranks : 0;
    for (uint32_t n = 0; n < nodes; n++)
        for (uint32_t r = job->first_rank[n]; r < job->first_rank[n + 1]; r++) {
            job->ranks[r].job = job->number;
            job->ranks[r].rank = r;
            job->ranks[r].node = n;
            job->ranks[r].local = r - job->first_rank[n];
        }
    for (uint32_t i = 0; i < ops; i++) {
        make_op(cluster, job, i);
        numbers[i] = i;
    }
    shuffle(&cluster->seeded, numbers, ops);
    for (uint32_t i = 0; i < ops; i++)
        job->ops[numbers[i]].order = i;
    for (uint32_t r = 0; r < ranks; r++)
        make_rank(cluster, job, &job->ranks[r], numbers);
    make_faults(cluster, job);
}

void sim_workload_make(struct sim_cluster *cluster) {
    uint32_t *numbers = (uint32_t *)sim_allocate(cluster->options.ops, sizeof *numbers);
    cluster->jobs = (struct sim_job *)sim_allocate(cluster->options.jobs, sizeof *cluster->jobs);
    for (uint32_t j = 0; j < cluster->options.jobs; j++) {
        cluster->jobs[j].number = j;
        make_job(cluster, &cluster->jobs[j], numbers);
    }
    free(numbers);
}

void sim_workload_free(struct sim_cluster *cluster) {
    for (uint32_t j = 0; cluster->jobs != NULL && j < cluster->options.jobs; j++) {
        struct sim_job *job = &cluster->jobs[j];
        for (uint32_t r = 0; r < cluster->options.ranks; r++) {
            struct sim_rank *rank = &job->ranks[r];
            for (uint32_t i = 0; i < cluster->options.ops; i++) {
                free(rank->requests[i].rooms[0]);
                free(rank->requests[i].rooms[1]);
            }
            free(rank->script);
            free(rank->requests);
            free(rank->submitted);
        }
        for (uint32_t i = 0; i < cluster->options.ops; i++)
            free(job->ops[i].vectors);
        free(job->ranks);
        free(job->ops);
    }
    free(cluster->jobs);
}
