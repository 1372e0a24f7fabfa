/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cluster: everything on one screen.
 *
 *   cluster ─┬─ jobs: their ops (workload.c), what these bring and give (shape.c), and ranks
 *            │  (rank.c: applications that submit and wait; member.c: what they do in a record)
 *            ├─ nodes: daemon of a node: arrival, tickets, pool, credits (node.c), lane (lane.c),
 *            │  ops that stay on it (local.c)
 *            ├─ fabric world between the nodes
 *            └─ events on a virtual clock (cluster.c)
 *
 * Real are: arrival records (shm_ipc/record.h), executor and local plans (gpu/), scheduler and pool
 * (daemon/sched), fabric backend sim. Modelled are: applications, doorbells, the control messages
 * between daemons, the duration of a slice. One thread; everything follows from the seed. */
#ifndef TOOLS_SIM_CLUSTER_H
#define TOOLS_SIM_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/sched/pool.h"
#include "daemon/sched/sched.h"
#include "fabric/sim.h"
#include "gpu/local_program.h"
#include "shm_ipc/record.h"
#include "tools/sim/options.h"
#include "tools/sim/programs.h"
#include "tools/sim/seeded.h"

#define SIM_STRANDS_MAX 8u
#define SIM_LINKS_MAX 8u
#define SIM_DEPTH_MAX 4u

#define SIM_NOBODY UINT32_MAX

/* ---- jobs and ops ---- */
enum sim_odd {
    SIM_ODD_NONE = 0,
    SIM_ODD_COUNT = 1,
    SIM_ODD_ROOT = 2,
    SIM_ODD_BLOCK = 3, /* one number of its vector */
};
struct sim_op {
    uint32_t number; /* in its job */
    uint32_t job;
    struct occl_op_key key;
    struct occl_signature signature; /* of a receiver: kind RECV */
    uint32_t source, destination;    /* ranks of a pair */
    uint32_t op_class;
    uint32_t order; /* place in the hidden order that keeps waits acyclic */
    /* between nodes */
    enum occl_sim_shape shape;
    uint32_t chunks, depth, slot_bytes;
    uint64_t in_place_mask; /* ranks whose buffers are one, where they have two */
    bool left_out;          /* whose receive buffer is optional has none */
    bool direct;            /* on one node: what is small travels in the page */
    uint64_t *vectors;   /* each rank's (vector.h), one after the other, of a kind that has them */
    uint32_t odd_rank;   /* describes it differently; SIM_NOBODY: all agree */
    enum sim_odd odd;    /* in what */
    uint64_t aborted_ns; /* when a member ended it, 0: none did */
};

struct sim_job {
    uint32_t number;
    uint32_t
        first_rank[SIM_NODES_MAX + 1]; /* ranks of node n: first_rank[n] .. first_rank[n+1]-1 */
    struct sim_op *ops;
    struct sim_rank *ranks;
    uint32_t tenant_weight, job_weight;
    uint32_t untagged_permille; /* of its collectives and messages */
    int32_t dead_rank;          /* -1: nobody was killed */
    uint64_t killed_ns;
};

/* ---- ranks ---- */
enum sim_word { SIM_SUBMIT = 0, SIM_WAIT = 1 };
struct sim_item {
    uint32_t word; /* enum sim_word */
    uint32_t op;
};

/* One op at one rank. */
struct sim_request {
    struct occl_signature signature; /* as this rank describes the op */
    int64_t *in, *out;               /* NULL: it has none */
    int64_t *rooms[2];               /* what they lie in */
    uint64_t sends, receives;        /* elements */
    int64_t shift; /* in place: where `in` begins, in elements counted from the receive buffer */
    bool in_place;
    struct occl_record *record; /* NULL: through the ring, or left */
    uint64_t submitted_ns, deadline_ns;
    uint32_t completions; /* must end at exactly 1 when submitted */
    int32_t status;
    bool submitted;
    bool member;
    bool interrupted; /* while it aborted the op */
    bool refused;     /* its communicator had ended before */
    bool ring;        /* the daemon has it */
    bool alone;       /* it ended before others had come, and waited for nobody */
    bool told;        /* after its end: somebody had described the op differently */
};

/* A piece of the page that a rank owns: in use until all members have left the op. */
struct sim_chunk {
    uint64_t print;
    uint32_t slot, members;
    bool in_use;
};
/* A rank in the run of records that it has joined. */
struct sim_run {
    uint64_t print;
    uint32_t remaining; /* ops of the run that it has not left */
    bool joined;
};
/* Where a rank that is killed is at that moment. */
enum sim_dies {
    SIM_DIES_OUTSIDE = 0,
    SIM_DIES_ENTERED = 1,  /* has claimed or joined a record, and nothing more */
    SIM_DIES_ARRIVED = 2,  /* has come, and told nobody what that means */
    SIM_DIES_ABORTING = 3, /* has written the reason and poisoned some */
    SIM_DIES_COUNT = 4
};

struct sim_rank {
    uint32_t job, rank, node, local; /* local: number among the job's ranks of its node */
    struct sim_item *script;
    uint32_t script_length, at;
    struct sim_request *requests; /* one for each op of the job */
    uint64_t stop_at_ns, stop_for_ns, kill_at_ns;
    uint32_t kill_how; /* enum sim_dies */
    uint32_t dies;     /* the same, when it is due */
    struct sim_chunk chunks[OCCL_PAYLOAD_CHUNKS];
    struct sim_run runs[OCCL_RUNS];
    uint64_t busy_until_ns; /* thinks, or is stopped */
    uint64_t event_ns;      /* of the pending event, UINT64_MAX: none */
    bool alone_row;         /* its last op of the untagged stream ended alone */
    uint32_t owed;          /* op that it has ended without looking back; SIM_NOBODY: none */
    uint32_t *submitted;    /* op numbers in order of submission */
    uint32_t submitted_count;
    uint32_t head; /* ordered executor: first of these that is not complete */
    bool dead;
};

/* ---- nodes ---- */
enum sim_node_op_state {
    SIM_OPEN = 0,     /* local members are missing */
    SIM_WAITING = 1,  /* for its run slot */
    SIM_RUNNING = 2,  /* in the run queue */
    SIM_REVOKING = 3, /* gives its slot back */
    SIM_DRAINING = 4, /* strands are done, posts are in flight */
    SIM_ENDED = 5
};

/* One end of a connector. Message numbers count from 0 and never fall. */
struct sim_link {
    uint32_t node; /* at the other end */
    bool sends;
    uint64_t limit; /* sender: messages it has credits for; receiver: has granted so far */
    /* sender */
    uint64_t landing_key;
    uint64_t sent;
    uint8_t busy[SIM_DEPTH_MAX]; /* staging slot is being read by the fabric */
    /* receiver */
    struct occl_fabric_landing landing;
    bool open;
    uint64_t landed, received;
    uint64_t in_slot[SIM_DEPTH_MAX]; /* message number + 1, 0: empty */
    uint64_t bytes[SIM_DEPTH_MAX];
    uint64_t expected; /* revoking: the sender stopped after so many, or UINT64_MAX: unknown */
    char *slots;       /* staging or landing, depth x slot_bytes */
};

struct sim_node_op {
    struct sim_op *op;
    struct sim_node *node;
    enum sim_node_op_state state;
    /* local arrival */
    uint32_t members;      /* on this node */
    uint64_t ring_members; /* bit mask of members that arrived through the ring */
    struct occl_record *record;
    bool in_record;
    /* all nodes that take part, in the order in which programs number them */
    uint32_t nodes[SIM_NODES_MAX];
    uint32_t node_count, me;
    uint32_t arrivals; /* at the ticket's issuer */
    bool arrived;      /* has a ticket */
    uint64_t pool_id, sched_id;
    bool pooled, queued;
    /* execution */
    struct occl_local_plan plan; /* one node */
    uint64_t *vector_room;       /* its copies of the members' vectors */
    struct occl_local_vectors vectors;
    uint32_t strands_claimed, strands_done;
    struct occl_sim_program program; /* several nodes */
    struct occl_geometry geometry;
    struct occl_exec_context contexts[SIM_STRANDS_MAX];
    uint64_t published[SIM_STRANDS_MAX];
    struct sim_link links[SIM_LINKS_MAX];
    uint32_t link_count;
    uint32_t next_strand; /* where the next visit starts */
    uint32_t posts;       /* in flight */
    uint64_t phi;         /* slices executed */
    uint64_t vain_round;  /* of the lane, at the last visit in vain */
    int32_t status;
};

struct sim_lane {
    bool visiting;
    struct occl_sched_visit visit;
    struct sim_node_op *op;
    struct occl_sched_report report;
    uint64_t started_ns, deadline_ns, blocked_since_ns, busy_until_ns;
    uint64_t event_ns; /* of the pending lane event, UINT64_MAX: none */
    uint32_t slices_left;
    uint64_t vain_round; /* begins when something happens at the node */
    uint32_t vain_ops;   /* that were visited in vain in this round */
};

struct sim_node {
    struct sim_cluster *cluster;
    uint32_t number;
    struct occl_fabric *fabric;
    struct occl_sched *sched;
    struct occl_pool *pool;
    uint64_t ticket_clock; /* above every ticket seen */
    uint32_t most_ops;     /* in the run queue at once */
    uint32_t slow_factor;
    struct sim_lane lane;
    struct sim_node_op **ops; /* [job x ops + op], NULL until first heard of */
    struct occl_records pages[SIM_JOBS_MAX];
    uint32_t pool_comms[SIM_JOBS_MAX], sched_jobs[SIM_JOBS_MAX];
    bool job_failed[SIM_JOBS_MAX];
    uint64_t posts, completions; /* of the fabric: the law of exactly one */
};

/* ---- events ---- */
enum sim_event_kind {
    SIM_EVENT_RANK = 0,    /* a: job, b: rank: go on */
    SIM_EVENT_KILL = 1,    /* a: job, b: rank */
    SIM_EVENT_REAP = 2,    /* the kernel told the daemon that the process ended */
    SIM_EVENT_DONE = 3,    /* a: job, b: rank, c: op: look whether it is complete */
    SIM_EVENT_EXECUTE = 4, /* a: job, b: node, c: op: all local members are in the record */
    SIM_EVENT_RING = 5,    /* a: job, b: rank, c: op: submitted through the ring */
    SIM_EVENT_LANE = 6,    /* a: node */
    SIM_EVENT_CANCEL = 7   /* a: job, b: rank, c: op: the deadline of a ring op has passed */
};
struct sim_event {
    uint64_t at_ns, number;
    uint32_t kind, a, b, c;
};

struct sim_cluster {
    struct sim_options options;
    struct seeded seeded;
    uint64_t now_ns;
    struct occl_fabric_sim_world *world;
    struct sim_node *nodes;
    struct sim_job *jobs;
    struct sim_event *events; /* heap */
    uint32_t event_count, event_room;
    uint64_t event_number, event_total;
    /* first broken invariant; empty: none */
    char broken[256];
    uint64_t visits, revocations, preemptions, ring_ops, direct_ops, timeouts;
    uint64_t alone_ops, mismatches;
    uint32_t direct_kinds, local_kinds, ring_kinds;
};

/* cluster.c */
struct sim_result {
    uint64_t virtual_ns, events, visits, revocations, preemptions;
    uint64_t ring_ops, direct_ops, timeouts, alone_ops, mismatches; /* completions at members */
    uint32_t direct_kinds, local_kinds, ring_kinds; /* 1 << kind: came to a good end that way */
    char broken[256];
};
/* Runs one seed; true: all invariants held. Allocates; aborts without memory. */
bool sim_cluster_run(const struct sim_options *options, uint64_t seed,
                     struct sim_result *out_result);
void sim_schedule(struct sim_cluster *cluster, uint64_t at_ns, enum sim_event_kind kind, uint32_t a,
                  uint32_t b, uint32_t c);
/* Notes a broken invariant; only the first is kept. */
void sim_broken(struct sim_cluster *cluster, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *sim_allocate(size_t count, size_t bytes); /* zeroed */

/* workload.c */
void sim_workload_make(struct sim_cluster *cluster);
void sim_workload_free(struct sim_cluster *cluster);
uint32_t sim_op_members(const struct sim_cluster *cluster, const struct sim_op *op, uint32_t node);
/* Nodes on which it has members. */
uint32_t sim_op_nodes(const struct sim_cluster *cluster, const struct sim_op *op);
/* Rank of local member `member` of the op on this node. */
uint32_t sim_op_member_rank(const struct sim_cluster *cluster, const struct sim_op *op,
                            uint32_t node, uint32_t member);
/* Finds the op that a key names in a job; matching is by key alone. */
struct sim_op *sim_op_of_key(struct sim_cluster *cluster, uint32_t job, struct occl_op_key key);

/* shape.c: what the ranks of an op bring and get. Sizes and places are those of op_kind.h; what is
 * right is told by a text of its own. */
/* Draws the vectors of an op of a kind that has them, and what an odd rank describes otherwise. */
void sim_shape_draw(struct sim_cluster *cluster, struct sim_op *op);
/* Number of the rank in the op's kind, and of how many. */
uint32_t sim_shape_member(const struct sim_op *op, uint32_t rank);
uint32_t sim_shape_members(const struct sim_cluster *cluster, const struct sim_op *op);
uint64_t *sim_shape_vector(const struct sim_cluster *cluster, const struct sim_op *op,
                           uint32_t rank);
/* Makes the buffers of a request and fills them. */
void sim_shape_open(struct sim_cluster *cluster, const struct sim_op *op, struct sim_rank *rank);
/* The op has ended at the rank with this status: looks at each element of its buffers, which are
 * the application's from here on. */
void sim_shape_check(struct sim_cluster *cluster, const struct sim_op *op, struct sim_rank *rank,
                     int32_t status);

/* rank.c */
void sim_rank_start(struct sim_cluster *cluster, struct sim_rank *rank, uint64_t at_ns);
void sim_rank_go_on(struct sim_cluster *cluster, struct sim_rank *rank);
void sim_rank_kill(struct sim_cluster *cluster, struct sim_rank *rank);
/* Notes the end of an op at a rank: from the record, the ring, or at once. */
void sim_rank_complete(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t op,
                       int32_t status);

/* member.c */
void sim_member_submit(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t op);
/* Looks whether the op is decided, and does what a member has to do then. */
void sim_member_look(struct sim_cluster *cluster, struct sim_rank *rank, uint32_t op);
/* Vector named by a line of a record: in the page, or in memory that the rank shares (payload.c).
 */
const uint64_t *sim_payload_vector(const struct sim_cluster *cluster, const struct sim_op *op,
                                   const struct occl_records *page, const struct occl_line *line);
/* Looks at an op that it has ended alone without a look at its peers, and leaves it. */
void sim_member_settle(struct sim_cluster *cluster, struct sim_rank *rank);
/* Dies in the middle of aborting an op, if it is in one that is open. */
void sim_member_die_aborting(struct sim_cluster *cluster, struct sim_rank *rank);

/* node.c */
/* The words of an ordered daemon's claims: all ops take the ring, as in daemon/comm.c. */
#define SIM_WORD_NEVER_FREE (OCCL_WORD_OVERFLOW_ONE << 13)
void sim_node_open(struct sim_cluster *cluster, struct sim_node *node);
/* Takes the last completions of the fabric; before it, the end is checked. */
void sim_node_close(struct sim_node *node);
void sim_node_execute(struct sim_node *node, struct sim_op *op);
void sim_node_ring(struct sim_node *node, struct sim_op *op, uint32_t rank);
/* The deadline of a rank's ring op has passed. */
void sim_node_cancel(struct sim_node *node, struct sim_op *op, uint32_t rank);
void sim_node_poll(struct sim_node *node);
void sim_node_fail_job(struct sim_node *node, uint32_t job, uint32_t rank);
void sim_node_strands_done(struct sim_node_op *op);
/* Tells the sender on this link how far it may send. */
void sim_node_send_credit(struct sim_node_op *op, struct sim_link *link);

/* local.c: an op whose members are all on this node, as a daemon takes it in and executes it */
/* Makes the plan from what the members have said, in the record or through the ring. OCCL_OK, or
 * OCCL_E_MISMATCH. */
int sim_local_start(struct sim_node_op *op);
/* One strand. */
enum occl_exec_result sim_local_run(struct sim_node_op *op, struct occl_exec_report *report);

/* lane.c */
void sim_lane_run(struct sim_node *node);
void sim_lane_wake(struct sim_node *node);
void sim_lane_enqueue(struct sim_node_op *op);
void sim_lane_dequeue(struct sim_node_op *op);

/* check.c: what must hold when nothing moves any more, and after the nodes are closed */
void sim_check_end(struct sim_cluster *cluster);
void sim_check_posts(struct sim_cluster *cluster);

#endif
