/* SPDX-License-Identifier: Apache-2.0 */
/* An op whose members are all on one node: taken in as daemon/engine does (descriptions compared,
 * vectors copied, measured and compared, the plan made from what the members said), executed by
 * strands of gpu/local_program. */
#include <string.h>

#include "tools/sim/cluster.h"

/* ---- movers ---- */
/* Destination i gets the sources before it, and its own unless exclusive. */
static void reduce_prefixes(const struct occl_reduce_job *job, size_t e) {
    int64_t sums[OCCL_LOCAL_RANKS_MAX], sum = 0;
    for (uint32_t i = 0; i < job->n_src; i++) {
        int64_t value = ((const int64_t *)job->src[i])[e];
        sums[i] = job->flags & OCCL_MOVE_PREFIX_EXCLUSIVE ? sum : sum + value;
        sum += value;
    }
    for (uint32_t i = 0; i < job->n_dst; i++)
        if (i > 0 || !(job->flags & OCCL_MOVE_PREFIX_EXCLUSIVE))
            ((int64_t *)job->dst[i])[e] = sums[i];
}

static void reduce_int64(const struct occl_reduce_job *job) {
    for (size_t e = 0; e < job->count; e++) {
        int64_t sum = 0;
        if (job->flags & (OCCL_MOVE_PREFIX | OCCL_MOVE_PREFIX_EXCLUSIVE)) {
            reduce_prefixes(job, e);
            continue;
        }
        for (uint32_t i = 0; i < job->n_src; i++)
            sum += ((const int64_t *)job->src[i])[e];
        for (uint32_t i = 0; i < job->n_dst; i++)
            ((int64_t *)job->dst[i])[e] = sum;
    }
}

static void copy_bytes(const struct occl_copy_job *job) {
    for (uint32_t i = 0; i < job->n_dst; i++)
        if (job->dst[i] != job->src)
            memcpy(job->dst[i], job->src, job->bytes);
}

static const struct occl_movers MOVERS = {
    .isa = "simulated", .reduce = reduce_int64, .copy = copy_bytes};

/* ---- what the members said ---- */
static struct sim_request *request_of(const struct sim_node_op *op, uint32_t member) {
    struct sim_cluster *cluster = op->node->cluster;
    uint32_t rank = sim_op_member_rank(cluster, op->op, op->node->number, member);
    return &cluster->jobs[op->op->job].ranks[rank].requests[op->op->number];
}

static uint32_t rank_of(const struct sim_node_op *op, uint32_t member) {
    return sim_op_member_rank(op->node->cluster, op->op, op->node->number, member);
}

static struct occl_signature signature_of(const struct sim_node_op *op, uint32_t member) {
    return op->in_record ? occl_line_signature(occl_line_at(op->record, member))
                         : request_of(op, member)->signature;
}

static const uint64_t *vector_of(const struct sim_node_op *op, uint32_t member) {
    const struct sim_cluster *cluster = op->node->cluster;
    if (!op->in_record)
        return sim_shape_vector(cluster, op->op, rank_of(op, member));
    return sim_payload_vector(cluster, op->op, &op->node->pages[op->op->job],
                              occl_line_at(op->record, member));
}

/* Whether the input of a member of a record lies in the page: what is small enough for a line is
 * never executed here. */
static bool in_page(const struct sim_node_op *op, uint32_t member) {
    return op->in_record && occl_line_at(op->record, member)->u.ref.src.space == OCCL_SPACE_PAYLOAD;
}

static bool in_place(const struct sim_node_op *op) {
    for (uint32_t m = 0; m < op->members; m++) {
        const struct sim_request *request = request_of(op, m);
        if (op->in_record ? occl_line_in_place(occl_line_at(op->record, m))
                          : request->in != NULL && request->in == request->out)
            return true;
    }
    return false;
}

/* The daemon's private copies. */
static bool copy_vectors(struct sim_node_op *op, const struct occl_signature *sig) {
    uint32_t n = op->members;
    op->vector_room = (uint64_t *)sim_allocate((size_t)n * OCCL_VECTOR_PARTS * n, sizeof(uint64_t));
    for (uint32_t m = 0; m < n; m++) {
        uint64_t *mine = op->vector_room + (size_t)m * OCCL_VECTOR_PARTS * n;
        struct occl_kind_sizes sizes;
        memcpy(mine, vector_of(op, m), occl_vector_bytes(n));
        op->vectors.of[m] = mine;
        if (!occl_kind_measure(occl_kind_traits(sig->kind), sig->root, m, n, 0, sizeof(int64_t),
                               mine, &sizes))
            sim_broken(op->node->cluster, "vector refused: job %u op %u rank %u", op->op->job,
                       op->op->number, rank_of(op, m));
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            if (!occl_vector_pair_agrees(op->vectors.of, n, i, j))
                return false;
    return true;
}

int sim_local_start(struct sim_node_op *op) {
    struct occl_signature sig = signature_of(op, 0);
    const struct occl_local_vectors *vectors = NULL;
    bool agree = true;
    for (uint32_t m = 1; m < op->members; m++) {
        struct occl_signature other = signature_of(op, m);
        agree = agree && occl_signature_differ(&sig, &other) == OCCL_FIELD_NONE;
    }
    if (agree && op->op->vectors != NULL) {
        agree = copy_vectors(op, &sig);
        vectors = &op->vectors;
    }
    /* Members of a record have compared before it is executed. */
    if (!agree && (op->in_record || op->op->odd_rank == SIM_NOBODY))
        sim_broken(op->node->cluster, "matching: job %u op %u met another op", op->op->job,
                   op->op->number);
    if (!agree)
        return OCCL_E_MISMATCH;
    if (occl_local_plan_make(&sig, op->members, in_place(op), vectors, &op->plan) != OCCL_OK)
        sim_broken(op->node->cluster, "plan refused: job %u op %u", op->op->job, op->op->number);
    if (op->in_record && op->plan.strand_count == 0) /* no strand's end would tell */
        sim_broken(op->node->cluster, "nothing to execute: job %u op %u", op->op->job,
                   op->op->number);
    return OCCL_OK;
}

/* ---- execution ---- */
static void find_buffers(const struct sim_node_op *op, const void **inputs, void **outputs) {
    for (uint32_t m = 0; m < op->plan.member_count; m++) {
        const struct sim_request *request = request_of(op, m);
        inputs[m] = request->in;
        outputs[m] = request->out;
        if (in_page(op, m))
            inputs[m] =
                op->node->pages[op->op->job].base + occl_line_at(op->record, m)->u.ref.src.offset;
    }
}

enum occl_exec_result sim_local_run(struct sim_node_op *op, struct occl_exec_report *report) {
    struct sim_cluster *cluster = op->node->cluster;
    const void *inputs[OCCL_LOCAL_RANKS_MAX];
    void *outputs[OCCL_LOCAL_RANKS_MAX];
    struct occl_local_buffers buffers = {inputs, outputs, NULL, 0};
    uint32_t index = op->strands_claimed++;
    /* A member has ended the op; whoever waits for its buffers waits for this look. */
    if (op->in_record && occl_rec_kind(occl_look32(&op->record->state)) != OCCL_REC_LOCAL)
        return OCCL_EXEC_DONE;
    find_buffers(op, inputs, outputs);
    report->slices = 1;
    report->traffic_bytes = occl_local_strand_traffic(&op->plan, index);
    if (op->in_record && occl_record_claim_strand(op->record, op->plan.strand_count, 0) != index)
        sim_broken(cluster, "strand claimed twice: job %u op %u", op->op->job, op->op->number);
    if (occl_local_strand_run(&op->plan, index, &MOVERS, &buffers) != OCCL_OK)
        sim_broken(cluster, "strand failed: job %u op %u", op->op->job, op->op->number);
    op->strands_done++;
    op->phi++;
    return op->strands_done == op->plan.strand_count ? OCCL_EXEC_DONE : OCCL_EXEC_BUDGET;
}
