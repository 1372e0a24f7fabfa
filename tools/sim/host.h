/* SPDX-License-Identifier: Apache-2.0 */
/* One node with its whole daemon, on a virtual clock: everything on one screen.
 *
 *   host ─┬─ daemon (real: server, sessions, handshake, tenants, regions, rendezvous, splits,
 *         │  communicators, their ends, stall scan, meter, mailbox) and its engine with driven
 * lanes ├─ kernel (host_kernel.c): which descriptor is ready when, who is at the other end, deaths
 *         ├─ jobs: a plan (host_plan.c) of communicators, splits and ops
 *         ├─ processes (host_process.c, host_conduct.c): clients that speak the wire through real
 *         │  sockets, map the real pages and arrive in records or through rings (host_ops.c)
 *         └─ communicators as the processes were told of them (host_answers.c)
 *
 * One thread; everything follows from the seed. The processes keep the rules of the library, unless
 * a fault says otherwise; host_check.c says what must hold. */
#ifndef TOOLS_SIM_HOST_H
#define TOOLS_SIM_HOST_H

#include "daemon/occld.h"
#include "shm_ipc/record.h"
#include "shm_ipc/ring.h"
#include "shm_ipc/wire.h"
#include "tools/sim/options.h"
#include "tools/sim/seeded.h"

#define SIM_MEETS_MAX 3u
#define SIM_MEET_OPS_MAX 8u
#define SIM_MEET_SPLITS_MAX 2u
#define SIM_COLORS 3u
#define SIM_ASKS_MAX 64u
#define SIM_SQ_ENTRIES 16u
#define SIM_HOST_LANES_MAX 2u
/* Room of one op in a process's region: input, then output. */
#define SIM_SLOT_ELEMENTS 64u
#define SIM_SLOT_BYTES (2u * SIM_SLOT_ELEMENTS * 8u)
/* A process holds one or two ranks of a communicator. */
#define SIM_SEATS_MAX 2u
#define SIM_SLOTS_BYTES (SIM_MEETS_MAX * SIM_MEET_OPS_MAX * SIM_SEATS_MAX * SIM_SLOT_BYTES)
/* Behind the slots the process keeps something of its own. */
#define SIM_REGION_BYTES (SIM_SLOTS_BYTES + OCCL_PAGE_BYTES)
#define SIM_OWN_BYTE 0x5a
#define SIM_ROOMS_MAX 64u /* that a process is sent: of the processes of its job */
#define SIM_NEVER UINT64_MAX

/* ---- the plan of a job ---- */
enum sim_part_phase {
    SIM_PART_NONE = 0,
    SIM_PART_RECORD = 1,  /* arrived in the record */
    SIM_PART_RING = 2,    /* submitted, its completion is due */
    SIM_PART_AGAIN = 3,   /* the daemon had no room: it is submitted again */
    SIM_PART_DONE = 4,    /* ended with `status` */
    SIM_PART_REFUSED = 5, /* never submitted: the communicator had ended */
};
struct sim_part {
    enum sim_part_phase phase;
    int32_t status;
    uint32_t about_rank;
    uint32_t life; /* of its ring submissions: part of user_data */
    bool executes; /* has told the lanes that the record is LOCAL */
    bool over_quota;
    bool withdrawn;
    bool looked; /* at the communicator's state, and found it live */
    uint64_t deadline_ns;
};
struct sim_meet_op {
    struct occl_op_key key;
    struct occl_signature signature; /* of a receiver: kind RECV */
    struct occl_place place;
    struct sim_part *parts; /* by rank */
};
struct sim_split_plan {
    int32_t *colors, *keys; /* by rank of the parent */
    uint64_t timeout_ns;    /* 0: none */
    bool *asked;
};
/* A communicator that is made by unique id. */
struct sim_meet {
    struct occl_unique_id_wire id;
    uint32_t ranks;
    uint32_t *process_of; /* by rank */
    bool *asked;
    uint64_t timeout_ns; /* 0: none */
    uint64_t first_due_ns;
    struct sim_meet_op ops[SIM_MEET_OPS_MAX];
    uint32_t op_count;
    struct sim_split_plan splits[SIM_MEET_SPLITS_MAX];
    uint32_t split_count;
    uint64_t uid;          /* 0: nobody has heard of it */
    int32_t failed_status; /* what the first refused one was told */
};
struct sim_hjob {
    uint32_t number;
    uint32_t first_process, ranks;
    bool innocent; /* nothing bad happens in it, so everything must succeed */
    uint32_t uid;
    char name[16];
    struct sim_meet meets[SIM_MEETS_MAX];
    uint32_t meet_count;
    bool known;            /* to the daemon, in the last round */
    uint64_t forgotten_ns; /* when it last went, and with it the unique ids */
};

/* ---- communicators, as answers tell of them ---- */
struct sim_seat {
    uint32_t process;
    uint32_t number;             /* in its session */
    bool answered, left, ending; /* left: it sent destroy or abort; ending: not answered yet */
    uint32_t end_events;
    uint64_t leavers_told; /* ranks whose leaving it was told of */
};
struct sim_hcomm {
    uint64_t uid;
    uint32_t job, meet;
    int32_t split; /* number of the split of the meet's communicator, -1: made by unique id */
    uint32_t ranks;
    uint64_t inode; /* of its page: all members got the same */
    bool revoked;   /* somebody asked for its end */
    struct occl_records records;
    struct sim_seat *seats;
};

/* ---- processes ---- */
enum sim_process_phase {
    SIM_UNBORN = 0,
    SIM_CONNECTED = 1, /* has not said HELLO */
    SIM_GREETED = 2,   /* waits for WELCOME */
    SIM_ATTACHED = 3,
    SIM_OVER = 4, /* its connection has ended, one way or the other */
};
enum sim_mishap { /* what befalls it after so many steps */
                  SIM_MISHAP_NONE = 0,
                  SIM_MISHAP_KILLED,
                  SIM_MISHAP_EXITED,
                  SIM_MISHAP_EXEC,       /* the socket ends, the process lives */
                  SIM_MISHAP_GARBLED,    /* sends what is no message */
                  SIM_MISHAP_CORRUPTED,  /* scribbles over its ring */
                  SIM_MISHAP_STOPPED,    /* for a while */
                  SIM_MISHAP_UNKILLABLE, /* SIGKILL is pending and it stays */
                  SIM_MISHAP_DEAF,       /* reads nothing for a while */
                  SIM_MISHAP_MUTE,       /* never says HELLO */
};
struct sim_ask {
    uint64_t request;
    uint32_t type; /* of the request */
    uint32_t meet, rank, which;
    uint64_t asked_ns, due_ns; /* due_ns: of a creation or split with a time-out, else SIM_NEVER */
    uint64_t jumped_ns;        /* the host's, when it was asked */
    bool odd;                  /* deliberately wrong: it must be refused */
};
struct sim_process {
    uint32_t number, job, rank;
    uint32_t pid;
    enum sim_process_phase phase;
    /* its side of the door */
    int fd;   /* its end of the connection, -1: none */
    int bell; /* eventfd that a pidfd of it is a duplicate of, -1: a process without pidfd */
    /* The daemon's end and its pidfd, once it has them; -1 when the numbers are used again. */
    int daemon_fd, daemon_pidfd;
    bool exiting, exited, killed_pending;
    uint64_t eof_ns, exit_ns; /* when they are due, SIM_NEVER: not */
    uint64_t shown_ns;        /* when the daemon was shown that it ended, 0: not */
    char cause[64];
    /* what happens to it */
    enum sim_mishap mishap;
    uint32_t mishap_steps, steps;
    uint64_t stopped_until_ns, deaf_until_ns;
    /* what it does */
    uint64_t wake_ns, connected_ns;
    uint64_t next_request;
    struct sim_ask asks[SIM_ASKS_MAX];
    uint32_t ask_count;
    bool detaching, refused, lost; /* lost: the daemon closed the connection */
    bool misbehaved;               /* the daemon may close its connection, and hear nothing more */
    bool slow;                     /* the daemon may close its connection for that */
    bool told_of_shutdown;
    uint64_t messages;
    /* its pages */
    struct occl_msg_welcome welcome;
    struct occl_session_page *page;
    struct occl_ring_producer sq;
    struct occl_ring_consumer cq;
    uint32_t region; /* 0: none */
    bool region_asked, region_freed;
    char *region_base;
    uint32_t mapped_region;        /* of another process; asked for or there */
    bool mapped;                   /* there */
    uint32_t room;                 /* its own for copies, as anybody was told; 0: nobody was */
    uint32_t rooms[SIM_ROOMS_MAX]; /* whose descriptors it was sent; 0: gone again */
    uint32_t room_count;
};

/* ---- the host ---- */
struct sim_arm {
    int fd;
    uint32_t events;
    uint64_t cookie;
    uint64_t visible_ns; /* 0: not ready when last looked at */
};
struct sim_kernel {
    struct occl_loop_ops loop_ops; /* first: the loop's backend finds the host around it */
    struct sim_host *host;
    struct sim_arm *arms;
    uint32_t arm_count, arm_room;
    uint64_t due_ns;      /* when the daemon wants to run again */
    bool reported;        /* something, in the last round */
    uint32_t *connecting; /* processes in the order of their connects */
    uint32_t connecting_first, connecting_count;
};

struct sim_host_result {
    uint64_t trace; /* hash of all that was said and done */
    uint64_t virtual_ns, rounds, messages, deaths, comms, refusals;
    uint64_t ring_ops, record_ops, ops_failed;
    char broken[256];
};

struct sim_host {
    struct sim_options options;
    uint64_t seed;
    struct seeded seeded;
    struct occl_clock_virtual time;
    struct occl_clock clock;
    struct occl_log log;
    struct sim_kernel kernel;
    struct occl_daemon *daemon;
    bool daemon_over;
    char folder[64];
    char socket[80];
    struct sim_hjob *jobs;
    struct sim_process *processes;
    uint32_t process_count;
    struct sim_hcomm **comms;
    uint32_t comm_count, comm_room;
    uint32_t lanes;
    /* SIGTERM by a watch of our own in the daemon's loop */
    int signal_fd;
    struct occl_watch signal_watch;
    uint64_t term_ns, second_term_ns, drained_ns; /* drained_ns: when the first was handled, or 0 */
    uint64_t jumped_ns;                           /* by jumps of the clock */
    bool closing;                                 /* all leave */
    bool progress;
    uint64_t quiet_since_ns;
    struct sim_host_result result;
};

/* host.c: runs one seed; true: all invariants held. ranks, jobs, ops and faults of the options
 * count, nodes does not. Allocates; aborts without memory. */
bool sim_host_run(const struct sim_options *options, uint64_t seed,
                  struct sim_host_result *out_result);
/* Notes a broken invariant; only the first is kept. */
void sim_host_broken(struct sim_host *host, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline uint64_t sim_host_now(const struct sim_host *host) {
    return host->time.now_ns;
}
/* Adds to the trace. */
void sim_host_note(struct sim_host *host, uint32_t what, uint64_t a, uint64_t b);
void *sim_host_allocate(size_t count, size_t bytes); /* zeroed */

/* host_plan.c */
void sim_plan_make(struct sim_host *host);
void sim_plan_free(struct sim_host *host);
/* Whether a process of a job with faults never comes to this: a creation (SIM_LAZY_CREATE), split
 * or op of a meet. */
enum sim_lazy { SIM_LAZY_CREATE = 0, SIM_LAZY_SPLIT = 1, SIM_LAZY_OP = 2 };
bool sim_plan_lazy(const struct sim_host *host, uint32_t process, enum sim_lazy what, uint32_t meet,
                   uint32_t which);
int64_t sim_plan_value(const struct sim_host *host, const struct sim_meet_op *op, uint32_t rank,
                       uint32_t element);

/* host_kernel.c: the daemon's doors */
void sim_kernel_open(struct sim_host *host);
void sim_kernel_close(struct sim_host *host);
struct occl_identity sim_kernel_identity(struct sim_host *host);
/* The connect has been done: the daemon will meet this process when it accepts. */
void sim_kernel_connecting(struct sim_host *host, struct sim_process *process);
/* Ends of sockets and processes that are due. */
void sim_kernel_tick(struct sim_host *host, struct sim_process *process);

/* host_process.c */
void sim_process_connect(struct sim_host *host, struct sim_process *process);
/* One datagram. False: nothing was sent: the socket is full, or the connection has ended. */
bool sim_process_send(struct sim_host *host, struct sim_process *process, const void *data,
                      uint32_t bytes);
/* Sends a request and keeps it in the ledger. False: no room for it now. */
bool sim_process_ask(struct sim_host *host, struct sim_process *process, void *msg, uint32_t bytes,
                     const struct sim_ask *ask);
/* Receives what is there. */
void sim_process_receive(struct sim_host *host, struct sim_process *process);
void sim_process_die(struct sim_host *host, struct sim_process *process, enum sim_mishap how);
/* It has no connection any more. */
void sim_process_over(struct sim_host *host, struct sim_process *process);
/* Whether it has given a reason to fail to those who wait for it. */
bool sim_process_gave_reason(const struct sim_process *process);
/* It runs, and its connection stands as far as it knows. */
static inline bool sim_process_lives(const struct sim_process *process) {
    return !process->exiting && process->phase != SIM_UNBORN && process->phase != SIM_OVER;
}
void sim_process_free(struct sim_host *host, struct sim_process *process);

/* host_conduct.c: what a process does when its time has come */
void sim_conduct_act(struct sim_host *host, struct sim_process *process);

/* host_ops.c */
/* Submits op `which` of a meet at one rank. False: not now. */
bool sim_ops_submit(struct sim_host *host, struct sim_process *process, struct sim_hcomm *comm,
                    uint32_t rank, uint32_t which);
/* Looks at everything this process has under way. */
void sim_ops_look(struct sim_host *host, struct sim_process *process);
bool sim_ops_needs_region(const struct sim_meet_op *op);
/* Ranks that take part. */
uint64_t sim_ops_members(const struct sim_meet *meet, const struct sim_meet_op *op);

/* host_answers.c */
void sim_answers_take(struct sim_host *host, struct sim_process *process, const void *datagram,
                      int *fds, uint32_t fd_count);
struct sim_hcomm *sim_answers_comm(struct sim_host *host, uint64_t uid);
/* The seat of a process by its number; NULL. */
struct sim_hcomm *sim_answers_find(struct sim_host *host, const struct sim_process *process,
                                   uint32_t number, uint32_t *out_rank);

/* host_check.c */
/* After each round: deaths are told of within their bound. */
void sim_check_deaths(struct sim_host *host);
/* After each round of the daemon: which jobs it knows. */
void sim_check_jobs(struct sim_host *host);
/* Nothing moves any more. */
void sim_check_rest(struct sim_host *host);
/* All have left; before the daemon goes. */
void sim_check_empty(struct sim_host *host);
uint32_t sim_check_descriptors(void);

#endif
