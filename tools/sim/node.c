/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon of a simulated node, without its lane: local arrival, tickets, the pool, credits of
 * connectors, failure of a job. */
#include <stdlib.h>
#include <string.h>

#include "tools/sim/cluster.h"

#define WAKE_NS 300u
#define CONTROL_USER UINT64_MAX
#define SENT_UNKNOWN UINT64_MAX
#define EVENTS_AT_ONCE 16u
#define CLOSE_EVENTS 65536u
/* More units than ops: nobody ever waits for a slot. */
#define SLOTS_ENOUGH (SIM_JOBS_MAX * SIM_OPS_MAX)

enum control_kind {
    CONTROL_ARRIVE = 1,    /* to the issuer: all members of my node have submitted */
    CONTROL_TICKET = 2,    /* value: ticket */
    CONTROL_CREDIT = 3,    /* value: send messages below this; landing_key */
    CONTROL_WITHDRAW = 4,  /* stop sending */
    CONTROL_WITHDRAWN = 5, /* value: messages sent in all */
    CONTROL_FAIL = 6,      /* rank died */
};
struct control {
    uint32_t kind;
    uint32_t job;
    struct occl_op_key key;
    uint32_t rank;
    uint64_t value;
    uint64_t landing_key;
};

static void pump(struct sim_node *node);

/* ---- sending ---- */
static void send_control(struct sim_node *node, uint32_t to, const struct control *control) {
    struct occl_fabric_post post;
    memset(&post, 0, sizeof post);
    post.peer = to;
    post.message = OCCL_FABRIC_CONTROL;
    post.bytes = control;
    post.length = sizeof *control;
    post.user = CONTROL_USER;
    if (OCCL_FABRIC_SIM.post(node->fabric, &post) == OCCL_OK)
        node->posts++;
    else
        sim_broken(node->cluster, "control message refused by node %u", node->number);
}

static void send_op_control(struct sim_node_op *op, uint32_t to, enum control_kind kind,
                            uint64_t value, uint64_t landing_key) {
    struct control control;
    memset(&control, 0, sizeof control);
    control.kind = kind;
    control.job = op->op->job;
    control.key = op->op->key;
    control.value = value;
    control.landing_key = landing_key;
    send_control(op->node, to, &control);
}

void sim_node_send_credit(struct sim_node_op *op, struct sim_link *link) {
    if (!link->open)
        return;
    link->limit = link->received + op->op->depth;
    send_op_control(op, link->node, CONTROL_CREDIT, link->limit, link->landing.key);
}

/* ---- ops of a node ---- */
static uint32_t index_of(const struct sim_node *node, const struct sim_op *op) {
    return op->job * node->cluster->options.ops + op->number;
}

static void make_links(struct sim_node_op *op) {
    const struct occl_program *program = &op->program.program;
    op->link_count = program->link_count;
    for (uint32_t i = 0; i < program->link_count; i++) {
        struct sim_link *link = &op->links[i];
        link->node = op->nodes[program->links[i].peer];
        link->sends = program->links[i].direction == OCCL_LINK_SEND;
        link->expected = SENT_UNKNOWN;
        link->slots = (char *)sim_allocate(op->op->depth, op->op->slot_bytes);
    }
}

static void make_program(struct sim_node_op *op) {
    const struct sim_op *what = op->op;
    const struct sim_job *job = &op->node->cluster->jobs[what->job];
    struct occl_sim_spec spec = {.shape = what->shape,
                                 .nodes = op->node_count,
                                 .me = op->me,
                                 .members = op->members,
                                 .chunks = what->chunks,
                                 .depth_slots = what->depth};
    uint32_t root = what->shape == OCCL_SIM_PAIR ? what->source : what->signature.root;
    if (what->shape == OCCL_SIM_PAIR || what->shape == OCCL_SIM_CHAIN_BROADCAST) {
        for (uint32_t i = 0; i < op->node_count; i++)
            if (op->nodes[i] == job->ranks[root].node)
                spec.root_node = i;
        if (what->shape == OCCL_SIM_CHAIN_BROADCAST && spec.root_node == op->me)
            spec.root_member = job->ranks[root].local;
    }
    occl_sim_program_build(&spec, &op->program);
    if (!occl_geometry_make(what->signature.count * 8, 8, op->program.program.chunks,
                            what->slot_bytes, 1, &op->geometry))
        sim_broken(op->node->cluster, "geometry: job %u op %u", what->job, what->number);
    for (uint32_t s = 0; s < op->program.program.strand_count; s++)
        occl_exec_start(&op->contexts[s], s);
    make_links(op);
}

/* The op as this node knows it; first heard of by a local member or by a peer's message. */
static struct sim_node_op *op_get(struct sim_node *node, struct sim_op *what) {
    struct sim_node_op **slot = &node->ops[index_of(node, what)];
    struct sim_node_op *op = *slot;
    if (op != NULL)
        return op;
    op = *slot = (struct sim_node_op *)sim_allocate(1, sizeof *op);
    op->op = what;
    op->node = node;
    op->members = sim_op_members(node->cluster, what, node->number);
    for (uint32_t n = 0; n < node->cluster->options.nodes; n++) {
        if (sim_op_members(node->cluster, what, n) == 0)
            continue;
        if (n == node->number)
            op->me = op->node_count;
        op->nodes[op->node_count++] = n;
    }
    if (op->node_count > 1)
        make_program(op);
    return op;
}

/* ---- completion ---- */
static void close_landings(struct sim_node_op *op) {
    for (uint32_t i = 0; i < op->link_count; i++)
        if (op->links[i].open) {
            (void)OCCL_FABRIC_SIM.landing_close(op->node->fabric, op->links[i].landing.key);
            op->links[i].open = false;
        }
}

/* A member that took the ring was counted, unless it is half of a pair. */
static void drop_overflow(struct sim_node *node, const struct sim_op *op) {
    if (op->key.peers == OCCL_PEERS_ALL || sim_op_members(node->cluster, op, node->number) == 2)
        occl_claim_overflow_drop(occl_claim_of(&node->pages[op->job], occl_place_of(op->key).slot));
}

static bool all_in_ring(const struct sim_node_op *op) {
    return (uint32_t)__builtin_popcountll(op->ring_members) == op->members;
}

static void end_members(struct sim_node_op *op, int32_t status) {
    struct sim_cluster *cluster = op->node->cluster;
    struct sim_job *job = &cluster->jobs[op->op->job];
    struct occl_records *page = &op->node->pages[op->op->job];
    struct occl_place place = occl_place_of(op->op->key);
    uint32_t now;
    /* An op that ends before all have come keeps its counts: else those would meet in a record. */
    bool counted = all_in_ring(op) || op->node->job_failed[op->op->job];
    if (op->ring_members != 0 && status == OCCL_OK)
        cluster->ring_kinds |= 1u << op->op->signature.kind;
    if (op->in_record) {
        if (status == OCCL_OK &&
            !occl_record_decide(op->record, OCCL_REC_LOCAL, OCCL_REC_DONE, &now) &&
            op->op->aborted_ns == 0)
            sim_broken(cluster, "record decided twice: job %u op %u", op->op->job, op->op->number);
        for (uint32_t m = 0; m < op->members; m++) {
            uint32_t rank = sim_op_member_rank(cluster, op->op, op->node->number, m);
            const struct sim_request *request = &job->ranks[rank].requests[op->op->number];
            /* What a giver that has ended alone had was in the page: it is not touched. */
            if (request->completions > 0 && !request->alone)
                sim_broken(cluster, "buffers: job %u op %u ended at rank %u with a lane inside",
                           op->op->job, op->op->number, rank);
        }
        occl_record_lane_leave(page, place.slot);
        op->in_record = false;
    }
    for (uint32_t m = 0; m < op->members; m++) {
        uint32_t rank = sim_op_member_rank(cluster, op->op, op->node->number, m);
        if (op->ring_members >> m & 1) {
            if (counted)
                drop_overflow(op->node, op->op);
            sim_rank_complete(cluster, &job->ranks[rank], op->op->number, status);
        } else {
            sim_schedule(cluster, cluster->now_ns + WAKE_NS, SIM_EVENT_DONE, op->op->job, rank,
                         op->op->number);
        }
    }
}

static void end_op(struct sim_node_op *op, int32_t status) {
    sim_lane_dequeue(op);
    close_landings(op);
    if (op->pooled)
        (void)occl_pool_release(op->node->pool, op->pool_id);
    op->pooled = false;
    op->state = SIM_ENDED;
    op->status = status;
    end_members(op, status);
}

static void try_end(struct sim_node_op *op) {
    if (op->state != SIM_DRAINING || op->posts > 0)
        return;
    end_op(op, OCCL_OK);
    pump(op->node);
}

void sim_node_strands_done(struct sim_node_op *op) {
    op->state = SIM_DRAINING;
    try_end(op);
}

/* ---- the pool ---- */
static void grant(struct sim_node_op *op) {
    uint64_t base = (uint64_t)index_of(op->node, op->op) << 8;
    for (uint32_t i = 0; i < op->link_count; i++) {
        struct sim_link *link = &op->links[i];
        if (link->sends)
            continue;
        if (OCCL_FABRIC_SIM.landing_open(op->node->fabric, link->slots, op->op->depth,
                                         op->op->slot_bytes, base | i, &link->landing) != OCCL_OK)
            sim_broken(op->node->cluster, "landing refused");
        link->open = true;
        link->expected = SENT_UNKNOWN;
        sim_node_send_credit(op, link);
    }
    op->state = SIM_RUNNING;
    sim_lane_enqueue(op);
}

/* A revocation ends when the senders have stopped, what they sent has landed, and nothing of ours
 * is being read any more. What has landed and is not consumed stays in the op's own memory. */
static void try_return(struct sim_node_op *op) {
    if (op->state != SIM_REVOKING || op->posts > 0)
        return;
    for (uint32_t i = 0; i < op->link_count; i++)
        if (!op->links[i].sends && op->links[i].landed != op->links[i].expected)
            return;
    close_landings(op);
    op->state = SIM_WAITING;
    if (occl_pool_returned(op->node->pool, op->pool_id) != OCCL_OK)
        sim_broken(op->node->cluster, "slots: returned what was not revoked");
    pump(op->node);
}

static void revoke(struct sim_node_op *op) {
    op->node->cluster->revocations++;
    if (op->state == SIM_DRAINING) /* its strands are done: the slot is free in a moment */
        return;
    sim_lane_dequeue(op);
    op->state = SIM_REVOKING;
    for (uint32_t i = 0; i < op->link_count; i++)
        if (!op->links[i].sends)
            send_op_control(op, op->links[i].node, CONTROL_WITHDRAW, 0, 0);
    try_return(op);
}

static void pump(struct sim_node *node) {
    enum occl_pool_action action;
    uint64_t id, user;
    while ((action = occl_pool_step(node->pool, &id, &user)) != OCCL_POOL_NONE) {
        struct sim_node_op *op = node->ops[user];
        struct occl_pool_stats stats;
        if (action == OCCL_POOL_GRANT)
            grant(op);
        else
            revoke(op);
        occl_pool_stats(node->pool, &stats);
        if (node->cluster->options.slots > 0 &&
            stats.holding + stats.revoking >
                node->cluster->options.slots + node->cluster->options.jobs)
            sim_broken(node->cluster, "slots: %u are held at node %u", stats.holding, node->number);
    }
}

/* ---- arrival ---- */
static void take_ticket(struct sim_node_op *op, uint64_t ticket) {
    struct sim_node *node = op->node;
    if (ticket >> 16 > node->ticket_clock)
        node->ticket_clock = ticket >> 16;
    op->arrived = true;
    if (op->pooled && occl_pool_arrived(node->pool, op->pool_id, ticket) != OCCL_OK)
        sim_broken(node->cluster, "ticket refused: job %u op %u", op->op->job, op->op->number);
    pump(node);
}

static void count_arrival(struct sim_node_op *op) {
    if (++op->arrivals != op->node_count)
        return;
    uint64_t ticket = OCCL_POOL_TICKET(++op->node->ticket_clock, op->node->number);
    for (uint32_t i = 0; i < op->node_count; i++)
        if (i != op->me)
            send_op_control(op, op->nodes[i], CONTROL_TICKET, ticket, 0);
    take_ticket(op, ticket);
}

static void start_local(struct sim_node_op *op) {
    int status = sim_local_start(op);
    if (status == OCCL_OK)
        op->state = SIM_RUNNING;
    if (status != OCCL_OK)
        end_op(op, status);
    else if (op->plan.strand_count > 0)
        sim_lane_enqueue(op);
    else
        sim_node_strands_done(op);
}

/* All members of this node have submitted. */
static void start_op(struct sim_node_op *op) {
    struct sim_node *node = op->node;
    if (op->node_count == 1) {
        start_local(op);
        return;
    }
    if (occl_pool_request(node->pool, node->pool_comms[op->op->job], 1, index_of(node, op->op),
                          &op->pool_id) != OCCL_OK)
        sim_broken(node->cluster, "pool refused: job %u op %u", op->op->job, op->op->number);
    op->pooled = true;
    op->state = SIM_WAITING;
    if (op->me == 0)
        count_arrival(op);
    else
        send_op_control(op, op->nodes[0], CONTROL_ARRIVE, 0, 0);
    pump(node);
}

void sim_node_execute(struct sim_node *node, struct sim_op *what) {
    struct occl_records *page = &node->pages[what->job];
    struct occl_place place = occl_place_of(what->key);
    /* The op may have been aborted before the daemon looked. */
    if (node->job_failed[what->job])
        return;
    if (!occl_record_lane_enter(page, place.slot, place.print)) {
        if (what->aborted_ns == 0)
            sim_broken(node->cluster, "record of job %u op %u is not local", what->job,
                       what->number);
        return;
    }
    struct sim_node_op *op = op_get(node, what);
    op->record = occl_record_at(page, place.slot);
    op->in_record = true;
    start_op(op);
}

/* A member comes to an op that has ended without it. The last one takes all counts along. */
static void end_late(struct sim_node_op *op, uint32_t rank) {
    for (uint32_t m = 0; all_in_ring(op) && m < op->members; m++)
        drop_overflow(op->node, op->op);
    sim_rank_complete(op->node->cluster, &op->node->cluster->jobs[op->op->job].ranks[rank],
                      op->op->number, op->status);
}

void sim_node_ring(struct sim_node *node, struct sim_op *what, uint32_t rank) {
    struct sim_node_op *op = op_get(node, what);
    uint32_t member = 0;
    while (sim_op_member_rank(node->cluster, what, node->number, member) != rank)
        member++;
    op->ring_members |= 1ull << member;
    if (node->job_failed[what->job]) {
        drop_overflow(node, what);
        sim_rank_complete(node->cluster, &node->cluster->jobs[what->job].ranks[rank], what->number,
                          OCCL_E_PEER_FAILED);
        return;
    }
    if (op->state == SIM_ENDED)
        end_late(op, rank);
    else if (all_in_ring(op))
        start_op(op);
}

void sim_node_cancel(struct sim_node *node, struct sim_op *what, uint32_t rank) {
    struct sim_node_op *op = op_get(node, what);
    const struct sim_job *job = &node->cluster->jobs[what->job];
    if (job->ranks[rank].dead || job->ranks[rank].requests[what->number].completions > 0)
        return;
    what->aborted_ns = node->cluster->now_ns;
    end_op(op, OCCL_E_TIMEOUT);
}

/* ---- failure of a job ---- */
/* As daemon/comm_fail.c does it. */
static void sweep(struct sim_node *node, uint32_t job, uint32_t rank) {
    struct occl_records *page = &node->pages[job];
    occl_publish32(&occl_records_header(page)->comm_state,
                   OCCL_REC_WORD(OCCL_COMM_FAILED, OCCL_E_PEER_FAILED, rank));
    for (uint32_t index = 0; index < OCCL_CLAIMS; index++) {
        uint64_t word = occl_observe64(&occl_claim_at(page, index)->word);
        uint64_t print = word & OCCL_WORD_PRINT_MASK;
        uint32_t first = occl_claim_first(index), count = occl_claim_records(index);
        for (uint32_t i = first; (word & OCCL_WORD_CLAIMED) && i < first + count; i++)
            (void)occl_record_abort(page, i, print, OCCL_E_PEER_FAILED, rank);
    }
}

void sim_node_fail_job(struct sim_node *node, uint32_t job, uint32_t rank) {
    struct sim_cluster *cluster = node->cluster;
    const struct sim_job *j = &cluster->jobs[job];
    if (node->job_failed[job])
        return;
    node->job_failed[job] = true;
    if (j->first_rank[node->number] < j->first_rank[node->number + 1])
        sweep(node, job, rank);
    for (uint32_t i = 0; i < cluster->options.ops; i++) {
        struct sim_node_op *op = node->ops[job * cluster->options.ops + i];
        if (op != NULL && op->state != SIM_ENDED)
            end_op(op, OCCL_E_PEER_FAILED);
        for (uint32_t r = j->first_rank[node->number]; r < j->first_rank[node->number + 1]; r++)
            sim_schedule(cluster, cluster->now_ns + WAKE_NS, SIM_EVENT_DONE, job, r, i);
    }
    struct control control;
    memset(&control, 0, sizeof control);
    control.kind = CONTROL_FAIL;
    control.job = job;
    control.rank = rank;
    for (uint32_t n = 0; n < cluster->options.nodes; n++)
        if (n != node->number && j->first_rank[n] < j->first_rank[n + 1])
            send_control(node, n, &control);
    pump(node);
}

/* ---- events of the fabric ---- */
static struct sim_link *link_with(struct sim_node_op *op, uint32_t node, bool sends) {
    for (uint32_t i = 0; i < op->link_count; i++)
        if (op->links[i].node == node && op->links[i].sends == sends)
            return &op->links[i];
    return NULL;
}

static void take_control(struct sim_node *node, uint32_t from, const struct control *c) {
    if (c->kind == CONTROL_FAIL) {
        sim_node_fail_job(node, c->job, c->rank);
        return;
    }
    struct sim_op *what = sim_op_of_key(node->cluster, c->job, c->key);
    if (what == NULL || node->job_failed[c->job])
        return;
    struct sim_node_op *op = op_get(node, what);
    struct sim_link *in = link_with(op, from, false), *out = link_with(op, from, true);
    switch (c->kind) {
    case CONTROL_ARRIVE:
        count_arrival(op);
        return;
    case CONTROL_TICKET:
        take_ticket(op, c->value);
        return;
    case CONTROL_CREDIT:
        out->limit = c->value;
        out->landing_key = c->landing_key;
        return;
    case CONTROL_WITHDRAW:
        out->limit = out->sent;
        send_op_control(op, from, CONTROL_WITHDRAWN, out->sent, 0);
        return;
    case CONTROL_WITHDRAWN:
        in->expected = c->value;
        try_return(op);
        return;
    default:
        sim_broken(node->cluster, "control message of kind %u", c->kind);
    }
}

static void take_landed(struct sim_node *node, const struct occl_fabric_event *e) {
    struct sim_node_op *op = node->ops[e->user >> 8];
    struct sim_link *link = &op->links[e->user & 0xff];
    uint64_t message = e->immediate;
    if (op->state == SIM_ENDED)
        return;
    if (message >= link->limit || link->landed - link->received >= op->op->depth ||
        e->slot != message % op->op->depth || link->in_slot[e->slot] != 0)
        sim_broken(node->cluster, "credits: job %u op %u message %llu landed without one",
                   op->op->job, op->op->number, (unsigned long long)message);
    link->landed++;
    link->in_slot[e->slot] = message + 1;
    link->bytes[e->slot] = e->length;
    try_return(op);
}

static void take_sent(struct sim_node *node, const struct occl_fabric_event *e) {
    node->completions++;
    if (e->user == CONTROL_USER)
        return;
    struct sim_node_op *op = node->ops[e->user >> 16];
    struct sim_link *link = &op->links[e->user >> 8 & 0xff];
    op->posts--;
    link->busy[e->user & 0xff] = 0;
    if (op->state == SIM_ENDED)
        return;
    if (e->status != OCCL_OK && node->cluster->jobs[op->op->job].dead_rank < 0)
        sim_broken(node->cluster, "post failed with %d though nothing was cut", e->status);
    try_end(op);
    try_return(op);
}

void sim_node_poll(struct sim_node *node) {
    struct occl_fabric_event events[EVENTS_AT_ONCE];
    uint32_t count;
    bool any = false;
    do {
        count = OCCL_FABRIC_SIM.poll(node->fabric, node->cluster->now_ns, events, EVENTS_AT_ONCE);
        for (uint32_t i = 0; i < count; i++) {
            struct control control;
            any = true;
            switch (events[i].kind) {
            case OCCL_FABRIC_SENT:
                take_sent(node, &events[i]);
                break;
            case OCCL_FABRIC_LANDED:
                take_landed(node, &events[i]);
                break;
            case OCCL_FABRIC_MESSAGE:
                memcpy(&control, events[i].control, sizeof control);
                take_control(node, events[i].peer, &control);
                break;
            default:
                sim_broken(node->cluster, "connection lost though nothing was cut");
            }
        }
    } while (count > 0);
    if (any)
        sim_lane_wake(node);
}

/* ---- life ---- */
static void open_page(struct sim_node *node, const struct sim_job *job) {
    uint32_t ranks = job->first_rank[node->number + 1] - job->first_rank[node->number];
    struct occl_comm_page header;
    if (ranks == 0)
        return;
    occl_comm_page_layout(ranks, job->number + 1, &header);
    struct occl_comm_page *page =
        (struct occl_comm_page *)sim_allocate(1, (size_t)header.page_bytes);
    *page = header;
    if (occl_records_open(page, header.page_bytes, &node->pages[job->number]) != OCCL_OK)
        sim_broken(node->cluster, "page refused");
    for (uint32_t i = 0; node->cluster->options.ordered && i < OCCL_CLAIMS; i++)
        occl_publish64(&occl_claim_at(&node->pages[job->number], i)->word, SIM_WORD_NEVER_FREE);
}

void sim_node_open(struct sim_cluster *cluster, struct sim_node *node) {
    const struct sim_options *o = &cluster->options;
    struct occl_fabric_sim_open open = {.world = cluster->world, .node = node->number};
    struct occl_sched_config sched = {.ops_max = o->jobs * o->ops,
                                      .jobs_max = o->jobs,
                                      .ageing_attempts = 64u << seeded_below(&cluster->seeded, 6)};
    struct occl_pool_config pool = {.shared_units = o->slots ? o->slots : SLOTS_ENOUGH,
                                    .ops_max = o->jobs * o->ops,
                                    .comms_max = o->jobs};
    /* With few slots one seed in two keeps a unit for each communicator on top. */
    uint32_t reserve = o->slots ? (uint32_t)(o->seed & 1) : 0;
    node->cluster = cluster;
    node->slow_factor = 1;
    node->lane.event_ns = UINT64_MAX;
    node->ops = (struct sim_node_op **)sim_allocate((size_t)o->jobs * o->ops, sizeof *node->ops);
    if (OCCL_FABRIC_SIM.open(&open, &node->fabric) != OCCL_OK ||
        occl_sched_create(&sched, &node->sched) != OCCL_OK ||
        occl_pool_create(&pool, &node->pool) != OCCL_OK)
        abort();
    for (uint32_t j = 0; j < o->jobs; j++) {
        const struct sim_job *job = &cluster->jobs[j];
        open_page(node, job);
        if (occl_pool_comm_add(node->pool, j + 1, reserve, &node->pool_comms[j]) != OCCL_OK ||
            occl_sched_job_add(node->sched, j, j / 2, job->tenant_weight, job->job_weight,
                               &node->sched_jobs[j]) != OCCL_OK)
            abort();
    }
}

static void free_op(struct sim_node_op *op) {
    if (op == NULL)
        return;
    for (uint32_t i = 0; i < op->link_count; i++)
        free(op->links[i].slots);
    occl_sim_program_free(&op->program);
    free(op->vector_room);
    free(op);
}

void sim_node_close(struct sim_node *node) {
    struct occl_fabric_event *events;
    uint32_t count;
    if (node->fabric == NULL)
        return;
    events = (struct occl_fabric_event *)sim_allocate(CLOSE_EVENTS, sizeof *events);
    count = OCCL_FABRIC_SIM.close(node->fabric, events, CLOSE_EVENTS);
    for (uint32_t i = 0; i < count; i++)
        node->completions += events[i].kind == OCCL_FABRIC_SENT;
    free(events);
    occl_sched_destroy(node->sched);
    occl_pool_destroy(node->pool);
    for (uint32_t i = 0; i < node->cluster->options.jobs * node->cluster->options.ops; i++)
        free_op(node->ops[i]);
    free(node->ops);
    for (uint32_t j = 0; j < node->cluster->options.jobs; j++)
        free(node->pages[j].base);
}
