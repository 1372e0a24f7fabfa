/* SPDX-License-Identifier: Apache-2.0 */
/* The lane of a simulated node: the real scheduler decides, the real executor runs, the virtual
 * clock pays. */
#include <string.h>

#include "tools/sim/cluster.h"

#define SLICE_NS 250u /* besides the bytes */
#define BYTES_PER_NS 8u
#define SWITCH_NS 100u
#define VALUES_MAX 1024u /* of a slot: 8192 bytes */

/* ---- surroundings of the executor ---- */
static int has_data(void *env, uint32_t link, uint64_t message) {
    struct sim_node_op *op = (struct sim_node_op *)env;
    return op->links[link].in_slot[message % op->op->depth] == message + 1;
}

static int has_room(void *env, uint32_t link, uint64_t message) {
    struct sim_node_op *op = (struct sim_node_op *)env;
    return message < op->links[link].limit && !op->links[link].busy[message % op->op->depth];
}

static uint64_t progress_of(void *env, uint32_t strand) {
    return ((struct sim_node_op *)env)->published[strand];
}

static int64_t *operand(struct sim_node_op *op, const struct occl_move *move, uint32_t index,
                        bool dst) {
    struct sim_cluster *cluster = op->node->cluster;
    uint32_t member = dst ? move->dst_member + index * move->dst_member_stride
                          : move->src_member + index * move->src_member_stride;
    uint64_t offset = dst ? move->dst_offset + index * move->dst_stride_bytes
                          : move->src_offset + index * move->src_stride_bytes;
    uint32_t rank = sim_op_member_rank(cluster, op->op, op->node->number, member);
    struct sim_request *request = &cluster->jobs[op->op->job].ranks[rank].requests[op->op->number];
    uint32_t buffer = dst ? move->dst_buffer : move->src_buffer;
    int64_t *base = buffer == OCCL_BUFFER_INPUT ? request->in : request->out;
    /* The root of a broadcast has its result where it reads it. */
    if (base == NULL || offset + move->bytes > op->op->signature.count * 8) {
        sim_broken(cluster, "bounds: job %u op %u rank %u offset %llu", op->op->job, op->op->number,
                   rank, (unsigned long long)offset);
        return NULL;
    }
    return base + offset / 8;
}

static int move_data(void *env, const struct occl_move *move) {
    struct sim_node_op *op = (struct sim_node_op *)env;
    int64_t values[VALUES_MAX];
    uint64_t count = move->bytes / 8;
    uint32_t first = 0;
    if (op->state != SIM_RUNNING || move->bytes > op->op->slot_bytes)
        sim_broken(op->node->cluster, "an op that does not run moved data");
    memset(values, 0, sizeof values);
    if (move->bytes == 0)
        return 0;
    if (move->recv_link != OCCL_STEP_NONE) {
        const struct sim_link *link = &op->links[move->recv_link];
        uint32_t slot = (uint32_t)(move->recv_message % op->op->depth);
        if (link->bytes[slot] != move->bytes)
            sim_broken(op->node->cluster, "message of %llu bytes where %llu are due",
                       (unsigned long long)link->bytes[slot], (unsigned long long)move->bytes);
        memcpy(values, link->slots + (size_t)slot * op->op->slot_bytes, move->bytes);
    } else {
        const int64_t *src = operand(op, move, 0, false);
        if (src == NULL)
            return OCCL_E_INTERNAL;
        memcpy(values, src, move->bytes);
        first = 1;
    }
    for (uint32_t i = first; i < move->src_count; i++) {
        const int64_t *src = operand(op, move, i, false);
        for (uint64_t e = 0; src != NULL && e < count; e++)
            values[e] += src[e];
    }
    for (uint32_t i = 0; i < move->dst_count; i++) {
        int64_t *dst = operand(op, move, i, true);
        if (dst != NULL)
            memcpy(dst, values, move->bytes);
    }
    if (move->send_link != OCCL_STEP_NONE)
        memcpy(op->links[move->send_link].slots +
                   (size_t)(move->send_message % op->op->depth) * op->op->slot_bytes,
               values, move->bytes);
    return 0;
}

static void publish_send(void *env, uint32_t number, uint64_t message, uint64_t bytes) {
    struct sim_node_op *op = (struct sim_node_op *)env;
    struct sim_link *link = &op->links[number];
    uint64_t index = (uint64_t)op->op->job * op->node->cluster->options.ops + op->op->number;
    uint32_t slot = (uint32_t)(message % op->op->depth);
    struct occl_fabric_post post;
    if (message >= link->limit || message != link->sent)
        sim_broken(op->node->cluster, "credits: job %u op %u sent message %llu with %llu granted",
                   op->op->job, op->op->number, (unsigned long long)message,
                   (unsigned long long)link->limit);
    if (link->busy[slot])
        sim_broken(op->node->cluster, "job %u op %u reuses bytes that are being sent", op->op->job,
                   op->op->number);
    memset(&post, 0, sizeof post);
    post.peer = link->node;
    post.message = OCCL_FABRIC_DATA;
    post.bytes = link->slots + (size_t)slot * op->op->slot_bytes;
    post.length = bytes;
    post.user = index << 16 | (uint64_t)number << 8 | slot;
    post.immediate = message;
    post.landing_key = link->landing_key;
    post.landing_slot = slot;
    if (OCCL_FABRIC_SIM.post(op->node->fabric, &post) != OCCL_OK) {
        sim_broken(op->node->cluster, "post refused at node %u", op->node->number);
        return;
    }
    op->node->posts++;
    op->posts++;
    link->busy[slot] = 1;
    link->sent++;
}

static void publish_recv(void *env, uint32_t number, uint64_t message) {
    struct sim_node_op *op = (struct sim_node_op *)env;
    struct sim_link *link = &op->links[number];
    link->in_slot[message % op->op->depth] = 0;
    link->received++;
    sim_node_send_credit(op, link);
}

static void publish_progress(void *env, uint32_t strand, uint64_t progress) {
    ((struct sim_node_op *)env)->published[strand] = progress;
}

static const struct occl_exec_ops OPS = {
    .has_data = has_data,
    .has_room = has_room,
    .progress_of = progress_of,
    .move = move_data,
    .publish_send = publish_send,
    .publish_recv = publish_recv,
    .publish_progress = publish_progress,
};

/* ---- one slice of an op ---- */
static enum occl_exec_result run_net(struct sim_node_op *op, struct occl_exec_report *report) {
    uint32_t strands = op->program.program.strand_count, done = 0;
    uint64_t phi = 0;
    enum occl_exec_result result = OCCL_EXEC_BLOCKED;
    for (uint32_t i = 0; i < strands && report->slices == 0; i++) {
        uint32_t s = (op->next_strand + i) % strands;
        result = occl_exec_run(&op->contexts[s], &op->program.program, &op->geometry, &OPS, op, 1,
                               report);
        /* A strand that moved goes on as long as it can; the others follow when it blocks. */
        if (report->slices > 0)
            op->next_strand = s;
        if (result == OCCL_EXEC_FAULT)
            sim_broken(op->node->cluster, "fault: job %u op %u", op->op->job, op->op->number);
    }
    for (uint32_t s = 0; s < strands; s++) {
        done += op->contexts[s].iteration == op->geometry.iterations;
        phi += op->contexts[s].slices;
    }
    if (phi < op->phi)
        sim_broken(op->node->cluster, "phi fell: job %u op %u", op->op->job, op->op->number);
    op->phi = phi;
    if (done == strands)
        return OCCL_EXEC_DONE;
    return report->slices > 0 ? OCCL_EXEC_BUDGET : OCCL_EXEC_BLOCKED;
}

/* Negative control: an op runs only when it is the oldest of each of its local members. */
static bool in_order(const struct sim_node_op *op) {
    const struct sim_cluster *cluster = op->node->cluster;
    for (uint32_t m = 0; m < op->members; m++) {
        uint32_t number = sim_op_member_rank(cluster, op->op, op->node->number, m);
        const struct sim_rank *rank = &cluster->jobs[op->op->job].ranks[number];
        if (rank->head < rank->submitted_count && rank->submitted[rank->head] != op->op->number)
            return false;
    }
    return true;
}

static enum occl_exec_result run_slice(struct sim_node_op *op, struct occl_exec_report *report) {
    memset(report, 0, sizeof *report);
    if (op->node->cluster->options.ordered && !in_order(op))
        return OCCL_EXEC_BLOCKED;
    return op->node_count == 1 ? sim_local_run(op, report) : run_net(op, report);
}

/* ---- visits ---- */
static void schedule(struct sim_node *node, uint64_t at_ns) {
    if (at_ns >= node->lane.event_ns)
        return;
    node->lane.event_ns = at_ns;
    sim_schedule(node->cluster, at_ns, SIM_EVENT_LANE, node->number, 0, 0);
}

/* What was looked at in vain may have become ready. */
static void look_again(struct sim_lane *lane) {
    lane->vain_round++;
    lane->vain_ops = 0;
}

static void finish(struct sim_node *node, uint32_t result) {
    struct sim_lane *lane = &node->lane;
    uint64_t now = node->cluster->now_ns;
    struct sim_node_op *op = lane->op;
    lane->report.result = result;
    lane->report.elapsed_ns = now - lane->started_ns;
    lane->visiting = false;
    if (lane->report.slices > 0 || result == OCCL_SCHED_DONE) {
        look_again(lane);
    } else if (op->vain_round != lane->vain_round) {
        op->vain_round = lane->vain_round;
        lane->vain_ops++;
    }
    if (occl_sched_report(node->sched, lane->visit.id, &lane->report, now) != OCCL_OK)
        sim_broken(node->cluster, "scheduler lost job %u op %u", op->op->job, op->op->number);
    if (lane->busy_until_ns < now + SWITCH_NS)
        lane->busy_until_ns = now + SWITCH_NS;
    if (result == OCCL_SCHED_DONE) {
        op->queued = false;
        sim_node_strands_done(op);
    }
    schedule(node, lane->busy_until_ns);
}

static bool start_visit(struct sim_node *node) {
    struct sim_lane *lane = &node->lane;
    struct occl_sched_stats stats;
    occl_sched_stats(node->sched, &stats);
    /* Every op was looked at in vain since the last event: sleep. Level-triggered, because an event
     * starts a new round before the lane can look again. */
    if (lane->vain_ops >= stats.ops)
        return false;
    if (!occl_sched_next(node->sched, node->cluster->now_ns, &lane->visit))
        return false;
    node->cluster->visits++;
    memset(&lane->report, 0, sizeof lane->report);
    lane->visiting = true;
    lane->op = node->ops[lane->visit.user];
    lane->started_ns = node->cluster->now_ns;
    lane->blocked_since_ns = 0;
    lane->slices_left = lane->visit.slices_max;
    return true;
}

static void take_slice(struct sim_node *node, enum occl_exec_result result,
                       const struct occl_exec_report *report) {
    struct sim_lane *lane = &node->lane;
    uint64_t now = node->cluster->now_ns;
    lane->report.slices += report->slices;
    lane->report.bytes += report->traffic_bytes;
    lane->report.received += report->received;
    if (lane->blocked_since_ns > 0)
        lane->report.waited_ns += now - lane->blocked_since_ns;
    lane->blocked_since_ns = 0;
    lane->busy_until_ns =
        now + (SLICE_NS + report->traffic_bytes / BYTES_PER_NS) * node->slow_factor;
    if (result == OCCL_EXEC_DONE)
        finish(node, OCCL_SCHED_DONE);
    else if (--lane->slices_left == 0)
        finish(node, OCCL_SCHED_BUDGET);
    else
        schedule(node, lane->busy_until_ns);
}

static void take_blocked(struct sim_node *node, const struct occl_exec_report *report) {
    struct sim_lane *lane = &node->lane;
    uint64_t now = node->cluster->now_ns;
    if (lane->blocked_since_ns == 0) {
        lane->blocked_since_ns = now;
        lane->deadline_ns =
            now + (lane->report.received > 0 ? lane->visit.sticky_ns : lane->visit.patience_ns);
    }
    if (now < lane->deadline_ns) {
        schedule(node, lane->deadline_ns); /* an event of the node looks earlier */
        return;
    }
    lane->report.wait_kind = report->wait_kind;
    lane->report.step = report->step;
    lane->report.peer = report->wait_link == OCCL_STEP_NONE || report->wait_kind == OCCL_WAIT_NONE
                            ? OCCL_SCHED_NONE
                            : lane->op->links[report->wait_link].node;
    finish(node, OCCL_SCHED_BLOCKED);
}

void sim_lane_run(struct sim_node *node) {
    struct sim_lane *lane = &node->lane;
    struct occl_exec_report report;
    if (lane->event_ns != node->cluster->now_ns) /* replaced by an earlier one */
        return;
    lane->event_ns = UINT64_MAX;
    sim_node_poll(node);
    if (node->cluster->now_ns < lane->busy_until_ns) {
        schedule(node, lane->busy_until_ns);
        return;
    }
    if (!lane->visiting && !start_visit(node))
        return;
    enum occl_exec_result result = run_slice(lane->op, &report);
    if (report.slices > 0 || result == OCCL_EXEC_DONE)
        take_slice(node, result, &report);
    else
        take_blocked(node, &report);
}

void sim_lane_wake(struct sim_node *node) {
    look_again(&node->lane);
    schedule(node, node->lane.busy_until_ns > node->cluster->now_ns ? node->lane.busy_until_ns
                                                                    : node->cluster->now_ns);
}

void sim_lane_enqueue(struct sim_node_op *op) {
    struct sim_node *node = op->node;
    struct occl_sched_stats stats;
    struct occl_sched_op entry = {
        .job = node->sched_jobs[op->op->job],
        .op_class = op->op->op_class,
        .user = (uint64_t)op->op->job * node->cluster->options.ops + op->op->number,
        .cost_bytes = op->node_count == 1 ? op->plan.total_bytes : op->op->signature.count * 8};
    if (occl_sched_add(node->sched, &entry, node->cluster->now_ns, &op->sched_id) != OCCL_OK)
        sim_broken(node->cluster, "scheduler refused job %u op %u", op->op->job, op->op->number);
    op->queued = true;
    occl_sched_stats(node->sched, &stats);
    if (stats.ops > node->most_ops)
        node->most_ops = stats.ops;
    sim_lane_wake(node);
}

void sim_lane_dequeue(struct sim_node_op *op) {
    if (!op->queued)
        return;
    op->queued = false;
    (void)occl_sched_remove(op->node->sched, op->sched_id);
    if (op->node->lane.visiting && op->node->lane.op == op)
        op->node->lane.visiting = false;
    sim_lane_wake(op->node);
}
