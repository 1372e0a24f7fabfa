/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for whom: verdicts over the ranks that are missing, cycles of application waits, and
 * the memory of communicators that ended. Control loop only. */
#ifndef DAEMON_WHY_H
#define DAEMON_WHY_H

#include <jansson.h>

#include "daemon/occld.h"

/* ---- failures that a job remembers (why_failure.c) ---- */
#define OCCL_FAILURES_KEPT 16
struct occl_job_failure {
    char comm[OCCL_NAME_BYTES];
    uint64_t comm_uid;
    int status;
    uint32_t rank, pid;
    uint64_t session_id; /* 0: it is about nobody */
    char cause[OCCL_DETAIL_BYTES];
    const char *verdict; /* "dead", "left", "unkillable", "revoked", "aborted" */
    uint64_t at_ns;
};
void occl_why_comm_ended(const struct occl_comm *comm);
/* An op was ended because a rank it needs has left; remembered once per rank and communicator. */
void occl_why_member_left(struct occl_comm *comm, uint32_t rank);

/* ---- the wait graph (why_graph.c) ---- */
/* Processes are nodes. A process is blocked when all its threads that use occl wait, or, as a
 * lesser certainty, when one does. Every op it waits in needs one of its missing members to come;
 * so a set of processes is stuck when each waits only in ops that miss a member of the set. A
 * member that is held back comes with the op that it comes after, whatever its process does. */
struct occl_wait_node {
    struct occl_session *session;
    char state; /* as occl_identity_process_state; 0: not read */
    bool killed;
    bool wanted;         /* somebody asks for state and killed */
    bool first_of_hint;  /* the first of its job with this rank hint */
    bool blocked;        /* it waits in at least one op */
    bool fully_blocked;  /* and all its threads that use occl wait */
    bool stuck;          /* in the largest stuck set of blocked processes */
    bool definite;       /* in the largest stuck set of fully blocked ones with settled waits */
    bool in_cycle;       /* definite, and another of them waits for it; or held back in a cycle */
    uint32_t blamed;     /* verdicts under which it has been named */
    uint32_t open_waits; /* its ranks that wait in ops which miss a member */
    /* Its edges: ops in which it waits, and ops that wait for it. */
    uint32_t waits_first, waits_count, misses_first, misses_count;
};
/* A wait counts as certain once it has lasted this long: whoever was about to come has come. */
#define OCCL_WAIT_SETTLED_NS 500000000ull
/* Edges of a graph: it takes a millisecond then. Ops behind the first ops_count have none. */
#define OCCL_WAIT_EDGES_MAX 65536u
/* Who waits until an op goes on: those that wait in it, but for ranks that are held back from it
 * and will not need the others; they wait for what they are held back by. */
struct occl_op_wait {
    uint64_t mask;
    uint64_t since_ns; /* when the last of them began; 0: unknown */
};
struct occl_wait_graph {
    const struct occl_op_list *list;
    uint64_t now_ns;
    struct occl_wait_node *nodes; /* every process of the job, by session->place */
    uint32_t count;
    uint32_t ops_count;
    uint32_t *edges;               /* numbers of ops */
    struct occl_op_wait *op_waits; /* by op */
    unsigned char *op_sets;        /* by op: enum occl_op_set */
    /* Lists of held-back ranks by the op that theirs comes after: head by op, next by held-back
     * rank; one more than the number, 0 ends. */
    uint32_t *after_head, *after_next;
};
enum occl_op_set {
    OCCL_OP_STUCK = 1, /* a member of the stuck set is missing, or an op it comes after is stuck */
    OCCL_OP_DEFINITE = 2, /* the same with the definite set, and all waits settled */
};
/* Over the ops of one job; list, now_ns and nodes are set. OCCL_E_NO_MEMORY. */
int occl_why_graph_build(struct occl_wait_graph *graph);
void occl_why_graph_free(struct occl_wait_graph *graph);
/* Members without which nobody who waits in the op goes on, whether they have come or not. */
uint64_t occl_why_needed(const struct occl_op_view *op);
/* NULL: no process of this graph. */
struct occl_wait_node *occl_why_node(const struct occl_wait_graph *graph,
                                     const struct occl_session *session);

/* ---- cycles (why_cycle.c) ---- */
#define OCCL_CYCLE_MAX 64
struct occl_cycle_step {
    const struct occl_op_view *op;      /* session waits in it for the next step's session, or */
    const struct occl_op_view *held_op; /* has submitted this one, which comes after op; or NULL */
    const struct occl_held_view *held;
    struct occl_session *session;
    uint32_t rank;           /* of the session in op's communicator */
    uint32_t waits_for_rank; /* the next step's session there */
};
struct occl_cycle {
    struct occl_cycle_step steps[OCCL_CYCLE_MAX];
    uint32_t count;
    bool definite;
    uint64_t signature;        /* the same for the same waits, whoever comes first */
    uint64_t waiting_since_ns; /* when the last of its waits began; 0: unknown */
};
/* A walk over all cycles; zeroed but for `seen`, one zeroed byte an op of the graph. */
struct occl_cycle_walk {
    unsigned char *seen;
    uint32_t at;
    bool likely; /* the certain ones have been found */
};
/* Finds a cycle through a stuck op that no earlier call has returned. False: none is left. */
bool occl_why_op_stuck(const struct occl_wait_graph *graph, uint32_t op, bool definite);
bool occl_why_next_cycle(const struct occl_wait_graph *graph, struct occl_cycle_walk *walk,
                         struct occl_cycle *out_cycle);
void occl_why_cycle_text(const struct occl_cycle *cycle, char *out_text, uint32_t bytes);

/* ---- one missing rank (why_rank.c) ---- */
struct occl_late_view {
    const struct occl_comm *comm;
    uint32_t rank;
    struct occl_session *session; /* NULL: gone */
    const char *process;
    const char *verdict;
    struct occl_note_view note;
    uint64_t last_activity_ns;         /* monotonic; 0: none known */
    bool culprit;                      /* the end of a chain of waits */
    const struct occl_op_view *op;     /* NULL, or what it is held back from, */
    const struct occl_held_view *held; /* and how; */
    const struct occl_op_view *after;  /* what that comes after, if it is in the list */
};
void occl_why_rank(const struct occl_wait_graph *graph, const struct occl_comm *comm, uint32_t rank,
                   struct occl_late_view *out_view);
/* A rank that this op of the graph's list misses: it may be held back. */
void occl_why_missing(const struct occl_wait_graph *graph, const struct occl_op_view *op,
                      uint32_t rank, struct occl_late_view *out_view);
/* "it has submitted all_reduce tag 7 #3, which comes after broadcast tag 2 #5, for which rank 0 has
 * not come" */
void occl_why_held_text(const struct occl_op_list *list, const struct occl_op_view *op,
                        const struct occl_held_view *held, char *out_text, uint32_t bytes);
/* "rank 2 (host h, pid 7) has not come: ..." */
/* list: of the graph that the view was made with. */
void occl_why_rank_text(const struct occl_late_view *view, const struct occl_op_list *list,
                        uint64_t now_ns, char *out_text, uint32_t bytes);
/* "all_reduce #5", "broadcast tag 3 #1", "send_recv 0->1 tag 2 #4" */
void occl_why_op_text(const struct occl_op_view *op, char *out_text, uint32_t bytes);

#endif
