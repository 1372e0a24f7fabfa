/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: every invariant that only shows when nothing moves any more. The others are
 * checked where they could break: results and exactly-once in rank.c, credits and slots in node.c,
 * phi in lane.c. */
#include "tools/sim/cluster.h"

static const char *const STATES[] = {"waits for local members", "waits for a slot", "is runnable",
                                     "gives its slot back",     "drains",           "has ended"};

/* Everything submitted is complete, and every living rank has gone through its script. */
static void check_ranks(struct sim_cluster *cluster, const struct sim_job *job) {
    for (uint32_t r = 0; r < cluster->options.ranks; r++) {
        const struct sim_rank *rank = &job->ranks[r];
        for (uint32_t i = 0; i < cluster->options.ops && !rank->dead; i++) {
            const struct sim_request *request = &rank->requests[i];
            const struct sim_node_op *op =
                cluster->nodes[rank->node].ops[job->number * cluster->options.ops + i];
            if (!request->submitted || request->completions == 1)
                continue;
            sim_broken(cluster, "no progress: job %u op %u is not complete at rank %u; its node %s",
                       job->number, i, r, op == NULL ? "knows nothing" : STATES[op->state]);
        }
        if (!rank->dead && rank->at != rank->script_length)
            sim_broken(cluster, "no progress: job %u rank %u waits for op %u", job->number, r,
                       rank->script[rank->at].op);
    }
}

static void check_op(struct sim_cluster *cluster, const struct sim_node_op *op) {
    if (op == NULL || cluster->jobs[op->op->job].dead_rank >= 0)
        return;
    if (op->state != SIM_ENDED || op->posts != 0 || op->queued || op->pooled)
        sim_broken(cluster, "quiescence: job %u op %u at node %u %s with %u posts", op->op->job,
                   op->op->number, op->node->number, STATES[op->state], op->posts);
    for (uint32_t i = 0; i < op->link_count; i++) {
        const struct sim_link *link = &op->links[i];
        if (link->sends)
            continue;
        const struct sim_node_op *peer =
            cluster->nodes[link->node].ops[op->op->job * cluster->options.ops + op->op->number];
        uint64_t sent = 0;
        for (uint32_t k = 0; peer != NULL && k < peer->link_count; k++)
            if (peer->links[k].sends && peer->links[k].node == op->node->number)
                sent = peer->links[k].sent;
        if (link->landed != link->received || link->landed != sent || link->open)
            sim_broken(cluster, "connectors: job %u op %u sent %llu landed %llu received %llu",
                       op->op->job, op->op->number, (unsigned long long)sent,
                       (unsigned long long)link->landed, (unsigned long long)link->received);
    }
}

/* Whether two ends of one op go together. Who gave what others need, and ended before them, has
 * succeeded whatever they come to. In an op that somebody describes differently, who ends alone
 * sees that or not, and where each takes what he needs from the page, each ends for himself. A dead
 * member ends an op that the daemon has for those who come, whatever had ended it before. */
static bool agree(const struct sim_job *job, const struct sim_op *op, const struct sim_request *a,
                  const struct sim_request *b) {
    const struct occl_kind_traits *traits = occl_kind_traits(op->signature.kind);
    if (a->status == b->status)
        return true;
    bool odd = op->odd_rank != SIM_NOBODY;
    if (a->alone || b->alone)
        return odd || (traits->flags & OCCL_KIND_CONTRIBUTES &&
                       (!a->alone || a->status == OCCL_OK) && (!b->alone || b->status == OCCL_OK));
    if (a->ring && b->ring && job->dead_rank >= 0)
        return a->status != OCCL_OK && b->status != OCCL_OK;
    bool mismatch = a->status == OCCL_E_MISMATCH || b->status == OCCL_E_MISMATCH;
    bool each = traits->flags & (OCCL_KIND_SOURCE | OCCL_KIND_VECTOR);
    return mismatch && each && odd && !a->ring;
}

/* Who entered an op on one node ends it as the others there do, the dead included. */
static void check_agreement(struct sim_cluster *cluster, const struct sim_job *job) {
    for (uint32_t i = 0; i < cluster->options.ops; i++)
        for (uint32_t n = 0; n < cluster->options.nodes; n++) {
            const struct sim_request *first = NULL;
            for (uint32_t r = job->first_rank[n]; r < job->first_rank[n + 1]; r++) {
                const struct sim_request *request = &job->ranks[r].requests[i];
                if (request->completions == 0 || request->refused)
                    continue;
                if (first != NULL && !agree(job, &job->ops[i], first, request))
                    sim_broken(cluster,
                               "agreement: job %u op %u (%s) ends with %d at rank %u, %d before",
                               job->number, i, occl_kind_traits(job->ops[i].signature.kind)->name,
                               request->status, r, first->status);
                if (first == NULL || first->alone) /* the others are compared with one of theirs */
                    first = request;
            }
        }
}

/* Somebody hears of it when one rank describes an op differently, if nothing else ends the op; and
 * that rank itself, also if it ended alone before another found out. */
static void check_odd(struct sim_cluster *cluster, const struct sim_job *job) {
    for (uint32_t i = 0; i < cluster->options.ops; i++) {
        const struct sim_op *op = &job->ops[i];
        bool heard = false, found = false;
        if (op->odd_rank == SIM_NOBODY || job->dead_rank >= 0)
            continue;
        for (uint32_t r = 0; r < cluster->options.ranks; r++) {
            const struct sim_request *request = &job->ranks[r].requests[i];
            heard = heard || request->told || request->status != OCCL_OK;
            found = found || request->status == OCCL_E_MISMATCH;
        }
        const struct sim_request *odd = &job->ranks[op->odd_rank].requests[i];
        if (!heard || (found && odd->status == OCCL_OK && !odd->told))
            sim_broken(cluster, "unheard: rank %u describes job %u op %u (%s) differently",
                       op->odd_rank, job->number, i, occl_kind_traits(op->signature.kind)->name);
    }
}

/* The run in which the untagged stream of a job ends, as it must be: claimed by all its members
 * until the stream goes on. */
static bool is_last_run(const struct sim_cluster *cluster, const struct sim_job *job,
                        const struct occl_records *page, uint32_t node, uint32_t index) {
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, 0};
    for (uint32_t i = 0; i < cluster->options.ops; i++)
        key.instance += job->ops[i].key.peers == OCCL_PEERS_ALL && job->ops[i].key.tag == 0;
    struct occl_place place = occl_place_of(key);
    const struct occl_claim *claim = occl_claim_at(page, index);
    if (key.instance % OCCL_RUN_OPS == 0 || occl_claim_index(place.slot) != index ||
        occl_observe64(&claim->word) != (OCCL_WORD_CLAIMED | place.print) ||
        occl_observe32(&claim->left) != 0)
        return false;
    for (uint32_t r = job->first_rank[node]; r < job->first_rank[node + 1]; r++) {
        const struct sim_run *run = &job->ranks[r].runs[index - OCCL_CLAIM_RUN_FIRST];
        if (!run->joined || run->print != place.print ||
            run->remaining != OCCL_RUN_OPS - key.instance % OCCL_RUN_OPS)
            return false;
    }
    return true;
}

/* What a free record keeps would be the next op's. */
static bool is_free(const struct occl_records *page, uint32_t index, uint64_t word) {
    const struct occl_claim *claim = occl_claim_at(page, index);
    bool fresh = occl_observe64(&claim->word) == word && occl_observe32(&claim->left) == 0;
    for (uint32_t i = 0; i < occl_claim_records(index); i++) {
        const struct occl_record *record = occl_record_at(page, occl_claim_first(index) + i);
        fresh = fresh && record->state == OCCL_REC_OPEN &&
                occl_record_strands_claimed(record) == 0 && record->strands_done == 0 &&
                record->lanes_busy == 0;
    }
    return fresh;
}

static void check_claims(struct sim_cluster *cluster, const struct sim_node *node) {
    uint64_t word = cluster->options.ordered ? SIM_WORD_NEVER_FREE : 0;
    for (uint32_t j = 0; j < cluster->options.jobs; j++) {
        const struct sim_job *job = &cluster->jobs[j];
        const struct occl_records *page = &node->pages[j];
        for (uint32_t i = 0; page->base != NULL && job->dead_rank < 0 && i < OCCL_CLAIMS; i++)
            if (!is_free(page, i, word) &&
                !(i >= OCCL_CLAIM_RUN_FIRST && is_last_run(cluster, job, page, node->number, i)))
                sim_broken(cluster, "claim %u of job %u at node %u is not free: %#llx", i, j,
                           node->number,
                           (unsigned long long)occl_observe64(&occl_claim_at(page, i)->word));
    }
}

static void check_node(struct sim_cluster *cluster, const struct sim_node *node) {
    const struct sim_options *o = &cluster->options;
    struct occl_sched_stats sched;
    struct occl_pool_stats pool;
    occl_sched_stats(node->sched, &sched);
    occl_pool_stats(node->pool, &pool);
    cluster->preemptions += sched.preemptions;
    if (sched.gap_attempts_max > occl_sched_gap_bound(node->sched, node->most_ops))
        sim_broken(cluster, "attempts: %llu between two visits of one op, bound %llu",
                   (unsigned long long)sched.gap_attempts_max,
                   (unsigned long long)occl_sched_gap_bound(node->sched, node->most_ops));
    for (uint32_t i = 0; i < o->jobs * o->ops; i++)
        check_op(cluster, node->ops[i]);
    check_claims(cluster, node);
    if (sched.ops != 0 || pool.ops != 0 || pool.holding != 0 || pool.revoking != 0)
        sim_broken(cluster, "quiescence: node %u has %u ops in the queue, %u in the pool",
                   node->number, sched.ops, pool.ops);
}

void sim_check_end(struct sim_cluster *cluster) {
    if (cluster->broken[0] != '\0')
        return;
    for (uint32_t j = 0; j < cluster->options.jobs; j++) {
        check_ranks(cluster, &cluster->jobs[j]);
        check_agreement(cluster, &cluster->jobs[j]);
        check_odd(cluster, &cluster->jobs[j]);
    }
    for (uint32_t n = 0; n < cluster->options.nodes; n++)
        check_node(cluster, &cluster->nodes[n]);
    if (occl_fabric_sim_in_flight(cluster->world) != 0)
        sim_broken(cluster, "quiescence: messages are in flight");
}

void sim_check_posts(struct sim_cluster *cluster) {
    for (uint32_t n = 0; n < cluster->options.nodes; n++)
        if (cluster->nodes[n].posts != cluster->nodes[n].completions)
            sim_broken(cluster, "fabric: %llu posts, %llu completions at node %u",
                       (unsigned long long)cluster->nodes[n].posts,
                       (unsigned long long)cluster->nodes[n].completions, n);
}
