/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon core on one screen. One thread, the control loop, owns everything here; lanes reach
 * nothing of it but what engine.h was given.
 *
 *   occl_daemon
 *    +- loop, clock, log, engine, mailbox (from lanes)
 *    +- listeners[]             one per socket path
 *    +- strays                  connections that have not said HELLO; oldest first
 *    +- tenants                 (listener, uid, tag): quotas, charge
 *    |   +- jobs                by name: class, weight, job page
 *    |       +- sessions        attached processes: socket, pidfd, session page, send queue
 *    |       +- regions         sealed memfds by job-wide number; owned by one session
 *    |       +- communicators   page, seats[rank] -> session; splits under way
 *    +- rendezvous              by secret of the unique id; the waiting ones and, for a while, used
 * ones
 *    +- admins                  sessions of role ADMIN: no job
 *    +- ending                  sessions whose end was decided; taken down after the handlers
 *
 * Lives. A tenant and a job live while something is in them; a communicator while a seat is taken;
 * a rendezvous while a waiter is in it or its id must be refused. References go up the tree and
 * from seat to session; a session's end clears every reference to it (session.c lists them). */
#ifndef DAEMON_OCCLD_H
#define DAEMON_OCCLD_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

/* A table that cannot grow refuses the element (its tbl stays NULL) instead of ending the process.
 */
#define HASH_NONFATAL_OOM 1
/* The default falls through between switch labels, which clang refuses to take unannotated. */
#define HASH_FUNCTION(key_, bytes_, out_hash_) HASH_FNV(key_, bytes_, out_hash_)
#include <uthash.h>

#include "daemon/config.h"
#include "daemon/engine/engine.h"
#include "daemon/loop.h"
#include "daemon/mailbox.h"
#include "daemon/supervise.h"
#include "shm_ipc/arena.h"
#include "shm_ipc/assert.h"
#include "shm_ipc/log.h"
#include "shm_ipc/region.h"
#include "shm_ipc/session.h"
#include "shm_ipc/unique_id.h"

#define OCCL_DAEMON_VERSION "0.1.0"
#define OCCL_TENANT_TEXT_BYTES 96
#define OCCL_CAUSE_BYTES 96
#define OCCL_LISTENERS_MAX 64
/* Says hello under this name: it holds a private daemon for the ranks it is about to start. */
#define OCCL_LAUNCHER_PROGRAM "occlctl-run"

struct occl_session;
struct occl_rendezvous;

/* The identity door: what the kernel says of a process. identity.c holds the system's side, behind
 * the functions of the same names there; the simulator passes processes of its own. A pidfd is a
 * descriptor that becomes readable when the process has exited, on both sides. */
struct occl_identity_ops {
    int (*read)(void *self, struct occl_session *session, struct occl_detail *detail);
    int (*finish)(void *self, struct occl_session *session, struct occl_detail *detail);
    void (*exit_cause)(void *self, const struct occl_session *session, char *out_text,
                       uint32_t bytes);
    bool (*is_exiting)(void *self, const struct occl_session *session);
    char (*process_state)(void *self, const struct occl_session *session, bool *out_killed);
};
struct occl_identity {
    const struct occl_identity_ops *ops;
    void *self;
};

struct occl_listener {
    struct occl_daemon *daemon;
    struct occl_watch watch;
    uint32_t index;
    bool made_folder;       /* remove it again */
    uint64_t device, inode; /* of the socket file: only our own is removed */
    char path[108];
};

struct occl_tenant {
    struct occl_daemon *daemon;
    char text[OCCL_TENANT_TEXT_BYTES]; /* UID, UID:TAG, with @N on further listeners; the key */
    uint64_t id;
    uint32_t uid;
    uint32_t listener;
    char tag[OCCL_NAME_BYTES];
    struct occl_charge charge; /* shared memory: pages of sessions and communicators, regions */
    uint64_t weight;
    uint64_t quota_sessions, quota_communicators, quota_ops, quota_regions;
    bool weight_set, quota_set;                /* by `set`: a reload leaves them alone */
    uint64_t sessions, communicators, regions; /* in use */
    uint64_t room_bytes;                       /* of what is charged */
    TAILQ_HEAD(, occl_job) jobs;
    struct occl_tenant_scan *scan; /* stall.c; NULL until it has a communicator */
    UT_hash_handle in_daemon;
};

struct occl_job_failure; /* why.c */

struct occl_job {
    struct occl_tenant *tenant;
    uint64_t id;
    char name[OCCL_NAME_BYTES];
    struct occl_memfd page_memfd;
    struct occl_job_page *page;
    uint32_t job_class, weight;
    bool class_set, weight_set, stall_set; /* by `set`, not by default */
    uint64_t stall_interval_ns;
    uint64_t born_ns;
    uint32_t next_region;
    uint32_t session_count, comm_count;
    uint64_t comms_total, deaths_total, endings_total;    /* endings: revoked, aborted, failed */
    uint64_t last_comm_ns, last_death_ns, last_ending_ns; /* 0: none yet */
    uint64_t ops_gone, errors_gone, bytes_gone, executed_gone_bytes; /* of communicators now gone */
    uint64_t ops_seen, ops_seen_ns; /* last change of the sum, for the job's state */
    uint64_t registered_bytes;
    struct occl_job_failure *failures; /* ring of the last ones */
    uint64_t failures_total;
    /* Changes when a process, communicator or rendezvous goes or comes: who holds pointers to
     * them between two rounds of the loop looks whether they are still good (view.h). */
    uint64_t shape;
    uint64_t scan_due_ns;        /* stall.c */
    uint64_t seen_oldest_age_ns; /* by its last look */
    TAILQ_HEAD(, occl_session) sessions;
    TAILQ_HEAD(, occl_comm) comms;
    TAILQ_HEAD(, occl_rendezvous) meetings; /* those that wait */
    struct occl_region *regions;            /* by number */
    bool room_refusal_logged;
    TAILQ_ENTRY(occl_job) in_tenant;
    UT_hash_handle in_daemon; /* by id */
};

enum occl_session_phase {
    OCCL_PHASE_STRAY = 0,  /* accepted; HELLO or the deadline moves it on */
    OCCL_PHASE_LIVE = 1,   /* HELLO was accepted; occl_session_end moves it on */
    OCCL_PHASE_ENDING = 2, /* on the ending list: no message is read, none is queued */
};
enum occl_session_cause {
    OCCL_CAUSE_NONE = 0,
    OCCL_CAUSE_DETACHED = 1, /* DETACH: polite */
    OCCL_CAUSE_DIED = 2,     /* the process has exited */
    OCCL_CAUSE_CLOSED = 3, /* the socket ended and the process lives: exec, close, finalize lost */
    OCCL_CAUSE_PROTOCOL = 4, /* a malformed message */
    OCCL_CAUSE_QUARANTINED = 5,
    OCCL_CAUSE_SLOW = 6, /* does not read its messages */
    OCCL_CAUSE_UNKILLABLE = 7,
    OCCL_CAUSE_SHUTDOWN = 8,
    OCCL_CAUSE_REFUSED = 9, /* HELLO was refused, or none came */
};

struct occl_outgoing; /* session_send.c */

struct occl_session {
    struct occl_daemon *daemon;
    struct occl_listener *listener;
    struct occl_job *job; /* NULL: stray or admin */
    enum occl_session_phase phase;
    enum occl_session_cause cause;
    char cause_text[OCCL_CAUSE_BYTES];
    uint64_t id;
    uint16_t abi_version;
    bool admin;
    bool goodbye; /* close as soon as the queue is empty */
    /* Identity, from the kernel. */
    pid_t pid; /* 0: in a pid namespace we cannot see */
    uid_t uid;
    gid_t gid;
    int pidfd;       /* -1: none */
    cpu_set_t cores; /* where it may run (cores.c) */
    /* What it says of itself: for texts only. */
    uint32_t own_pid;
    int32_t rank_hint;
    char program[OCCL_NAME_BYTES];
    struct occl_watch socket_watch, pidfd_watch;
    struct occl_timer deadline;
    uint64_t accepted_ns;
    uint64_t kill_seen_ns; /* a pending SIGKILL was first seen; 0: none */
    /* Session page. */
    struct occl_memfd page_memfd;
    struct occl_session_page *page;
    struct occl_session_shape shape;
    bool in_engine;
    /* Seats by the number that this session uses. */
    struct occl_seat *seats;
    uint32_t next_comm;
    struct occl_region *room; /* where it copies private buffers to (room.c); NULL: nowhere */
    uint32_t meetings;        /* rendezvous that it waits in */
    uint32_t place;           /* in the list of its job, for a view */
    struct occl_admin_request *asked; /* what it waits for; NULL: nothing */
    struct occl_memfd answer;         /* the last one it got: its memory is taken back */
    STAILQ_HEAD(, occl_outgoing) queue;
    uint64_t queue_bytes;
    TAILQ_ENTRY(occl_session) in_list; /* strays, admins or job */
    STAILQ_ENTRY(occl_session) in_ending;
    UT_hash_handle in_daemon; /* by id; strays are in it too */
};

struct occl_region {
    struct occl_job *job;
    struct occl_session *owner;
    uint32_t number;
    struct occl_memfd memfd;
    void *base;
    uint64_t *mappers; /* session ids that got the descriptor; stale ones are harmless */
    uint32_t mapper_count, mapper_room;
    UT_hash_handle in_job;
};

enum occl_seat_state {
    OCCL_SEAT_LIVE = 0,
    OCCL_SEAT_LEFT = 1, /* destroyed, aborted, detached */
    OCCL_SEAT_GONE = 2, /* its session ended otherwise */
};
struct occl_seat {
    struct occl_comm *comm;
    struct occl_session *session; /* NULL unless LIVE */
    uint32_t rank;
    uint32_t number; /* in the session */
    enum occl_seat_state state;
    uint64_t left_ns;
    struct occl_member who; /* kept after the session */
    char cause[OCCL_CAUSE_BYTES];
    UT_hash_handle in_session;
};

struct occl_split;
struct occl_stall; /* stall.c */

/* Sums of the notes of a communicator's ranks, as the last view found them. */
struct occl_comm_noted {
    uint64_t ops, errors, bytes, executed_bytes;
};

struct occl_comm {
    struct occl_job *job;
    uint64_t uid;
    char name[OCCL_NAME_BYTES];
    uint32_t ranks;
    uint32_t priority; /* 0..3, or 255: that of the job at any time, so that `set` reaches it */
    bool priority_set;
    uint32_t seats_taken; /* LIVE */
    uint64_t default_deadline_ns;
    struct occl_memfd memfd;
    struct occl_records records; /* our layout on our mapping */
    enum occl_comm_state state;
    int end_status; /* what incomplete ops end with once state is not LIVE */
    uint32_t about_rank;
    char end_text[OCCL_DETAIL_BYTES];
    uint64_t left_mask;      /* ranks that left politely while the communicator lives */
    uint64_t left_told_mask; /* of these, whose absence has ended an op: the others were told */
    bool ring_ended;         /* a ring op needed one of them, so the engine refuses ring ops */
    uint64_t born_ns, ended_ns;
    struct occl_timer sweep_timer;
    uint64_t sweep_gap_ns;
    bool swept; /* again and again, by sweep_timer */
    TAILQ_HEAD(, occl_split) splits;
    struct occl_stall *stalls;
    uint32_t place; /* in the list of its job, for a view */
    struct occl_comm_noted noted;
    TAILQ_ENTRY(occl_comm) in_job;
    UT_hash_handle in_daemon; /* by uid */
    struct occl_seat seats[];
};

struct occl_scan;          /* stall.c */
struct occl_tenant_scan;   /* stall.c */
struct occl_admin_queue;   /* admin_queue.c */
struct occl_admin_request; /* admin.h */
struct occl_metrics;

struct occl_counters {
    uint64_t sessions_total, strays_total, refused_total, quarantined_total, peer_failures_total;
    uint64_t closed_total, detached_total, protocol_total, slow_total, unkillable_total;
};

TAILQ_HEAD(occl_session_list, occl_session);

struct occl_daemon {
    struct occl_config config;
    struct occl_config_origins origins;
    struct occl_config_sources sources;
    const struct occl_clock *clock;
    struct occl_log *log;
    struct occl_identity identity;
    struct occl_loop *loop;
    int loop_refused; /* errno of io_uring_setup when epoll took its place */
    struct occl_ticks_scale scale;
    struct occl_engine *engine;
    struct occl_mailbox *mailbox;
    struct occl_watch mailbox_watch, signal_watch;
    uint64_t epoch;
    uint64_t started_ns;
    char host[OCCL_HOST_BYTES];
    uint32_t lanes;
    uint32_t lane_cpus[64];
    bool lanes_bound;
    bool supervised; /* by a service manager, if there is one */
    struct occl_supervision supervision;
    bool ordered;      /* negative control: record pages without free records */
    bool private_mode; /* ends with its last job */
    bool draining, stopping;
    bool loop_failed; /* why it is stopping */
    uint64_t drain_deadline_ns;
    uint32_t comms_swept; /* communicators with a sweep timer */
    uint32_t quiet_looks; /* looks in a row that found nothing to wait for */
    int signal_fd;
    struct occl_timer drain_timer, private_timer, meter_timer;
    struct occl_listener listeners[OCCL_LISTENERS_MAX];
    uint32_t listener_count;
    struct occl_session_list strays, admins;
    bool launcher_seen; /* `occlctl run` has been connected */
    uint32_t stray_count;
    bool strays_logged;
    bool operator_gid_known;
    gid_t operator_gid;
    int spare_fd; /* given up for a moment when descriptors run out, so that accept can refuse */
    STAILQ_HEAD(, occl_session) ending;
    struct occl_tenant *tenants;      /* by text */
    struct occl_job *jobs;            /* by id */
    struct occl_session *sessions;    /* by id */
    struct occl_comm *comms;          /* by uid */
    struct occl_rendezvous *meetings; /* by secret */
    struct occl_charge charge;        /* of all tenants */
    uint64_t room_bytes;              /* of it */
    uint64_t next_session, next_tenant, next_job, next_comm;
    uint32_t tenant_count, job_count;
    uint32_t rank_sessions; /* attached processes of all jobs: repeated in every job page */
    struct occl_counters counters;
    struct occl_scan *scan;
    struct occl_admin_queue *admin_queue;
    struct occl_metrics *metrics;
    unsigned char inbox[OCCL_MESSAGE_BYTES_MAX + 8];
};

/* ---- daemon.c: what main and the tests start ---- */
struct occl_daemon_options {
    const struct occl_config *config;
    const struct occl_config_origins *origins;
    const struct occl_config_sources *sources; /* for a reload; NULL: none */
    const struct occl_clock *clock;            /* outlives the daemon, as does the log */
    struct occl_log *log;
    bool ordered, private_mode;
    /* SIGTERM, SIGINT, SIGHUP by signalfd: block them before any thread starts */
    bool take_signals;
    /* A service manager may be there: notifications, watchdog, sockets by descriptor, as its
     * environment variables say. One daemon a process. */
    bool supervised;
    /* For a caller that is the world around the daemon (the simulator). NULL: the kernel's. */
    const struct occl_loop_ops *loop_ops;
    const struct occl_identity *identity;
    /* 0: lanes are threads, placed by configuration and machine. Else this many lanes without
     * threads, which the caller moves on with occl_engine_turn. */
    uint32_t driven_lanes;
};
/* Loop, engine and listening sockets. On failure nothing is left behind and detail says why. */
int occl_daemon_create(const struct occl_daemon_options *options, struct occl_daemon **out_daemon,
                       struct occl_detail *detail);
/* Rounds until the end was decided. False: because the control loop failed. */
bool occl_daemon_run(struct occl_daemon *daemon);
/* One round; false when the daemon has ended. */
bool occl_daemon_step(struct occl_daemon *daemon, uint64_t max_wait_ns);
/* As SIGTERM: the first call drains, the second aborts. */
void occl_daemon_stop(struct occl_daemon *daemon);
/* As SIGHUP. */
void occl_daemon_reload(struct occl_daemon *daemon);
void occl_daemon_destroy(struct occl_daemon *daemon);
/* Called when a job or session has gone: a draining or private daemon may be finished now. */
void occl_daemon_check_end(struct occl_daemon *daemon);

/* ---- placement.c ---- */
/* Fills lanes, lane_cpus, lanes_bound from config.lanes and the affinity mask. */
void occl_placement_choose(struct occl_daemon *daemon);
/* Memory this daemon may use: the smallest of its cgroup's limits and the machine. */
uint64_t occl_placement_memory_bytes(void);

/* ---- tables.c: insertions; false when there is no memory ---- */
bool occl_table_add_job(struct occl_daemon *daemon, struct occl_job *job);
bool occl_table_add_tenant(struct occl_daemon *daemon, struct occl_tenant *tenant);
bool occl_table_add_session(struct occl_daemon *daemon, struct occl_session *session);
bool occl_table_add_comm(struct occl_daemon *daemon, struct occl_comm *comm);
bool occl_table_add_meeting(struct occl_daemon *daemon, struct occl_rendezvous *meeting);
bool occl_table_add_seat(struct occl_session *session, struct occl_seat *seat);
bool occl_table_add_region(struct occl_job *job, struct occl_region *region);

/* ---- server.c ---- */
int occl_server_open(struct occl_daemon *daemon, struct occl_detail *detail);
void occl_server_close(struct occl_daemon *daemon);

/* ---- identity.c: who is at the other end, from the kernel ---- */
/* The system's side of the door. */
struct occl_identity occl_identity_system(void);
/* Fills pid, uid, gid and, where the kernel has SO_PEERPIDFD, pidfd. */
int occl_identity_read(struct occl_session *session, struct occl_detail *detail);
/* Looks the operator group up. At start and reload only: name services may block. */
void occl_identity_find_operators(struct occl_daemon *daemon);
/* Opens a pidfd of the peer and makes sure that it names the peer. */
int occl_identity_finish(struct occl_session *session, struct occl_detail *detail);
bool occl_identity_is_operator(const struct occl_session *session);
/* How the process ended, as far as the kernel tells; "cause unknown" otherwise. */
/* "killed by signal 9 (SIGKILL)", of a status as waitpid gives it. */
void occl_identity_describe_exit(int code, char *out_text, uint32_t bytes);
void occl_identity_exit_cause(const struct occl_session *session, char *out_text, uint32_t bytes);
bool occl_identity_has_exited(const struct occl_session *session);
/* On its way out: its descriptors may be closed before its pidfd reports. */
bool occl_identity_is_exiting(const struct occl_session *session);
/* One letter of /proc/PID/stat, 'G' when the process is gone, '?' when unknown. *out_killed (NULL:
 * nobody asks, which saves half of the cost): a SIGKILL is pending. Some 30 us. */
char occl_identity_process_state(const struct occl_session *session, bool *out_killed);
const char *occl_identity_state_word(char state);

/* ---- cores.c: how many cores the ranks have ---- */
/* Asks the kernel where the session's process may run. */
void occl_cores_ask(struct occl_session *session);
/* Tells all jobs, in their pages, after a session has come or gone. */
void occl_cores_tell(struct occl_daemon *daemon);

/* ---- tenant.c: tenants and jobs ---- */
/* Finds or makes both; counts the session in and checks the quota. */
int occl_tenant_enter(struct occl_session *session, const char *tag, const char *job,
                      struct occl_detail *detail);
/* NULL: it has ended. */
struct occl_job *occl_job_find(struct occl_daemon *daemon, uint64_t id);
/* Undoes it; the job and the tenant go with their last session. */
void occl_tenant_leave(struct occl_session *session);
int occl_tenant_charge(struct occl_tenant *tenant, uint64_t bytes, const char *what,
                       struct occl_detail *detail);
void occl_tenant_uncharge(struct occl_tenant *tenant, uint64_t bytes);
/* The configuration changed: tenants and jobs take over what was not set for them alone. */
void occl_tenant_reload(struct occl_daemon *daemon);
/* Tells the engine about class and weights again. */
void occl_tenant_apply(struct occl_job *job);

/* ---- session.c ---- */
void occl_session_accept(struct occl_listener *listener, int fd);
/* Decides the end; the tear-down follows after the handlers of this round. */
void occl_session_end(struct occl_session *session, enum occl_session_cause cause, const char *fmt,
                      ...) __attribute__((format(printf, 3, 4)));
/* Reads from its socket again, after an answer of ADMIN for which it was left unread. */
void occl_session_listen(struct occl_session *session);
/* Tears down what is on the ending list. */
void occl_session_reap(struct occl_daemon *daemon);
struct occl_session *occl_session_find(struct occl_daemon *daemon, uint64_t id);

/* ---- session_send.c ---- */
/* Queues or sends; never blocks. A client that does not read is ended. msg begins with a header,
 * whose version is filled in; fds stay the caller's and are duplicated when the message must wait.
 */
void occl_session_send(struct occl_session *session, void *msg, uint32_t bytes, const int *fds,
                       uint32_t fd_count);
void occl_session_reply(struct occl_session *session, uint64_t request, int status, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));
void occl_session_reply_detail(struct occl_session *session, uint64_t request,
                               const struct occl_detail *detail);
void occl_session_event(struct occl_session *session, enum occl_event_kind kind, uint32_t number,
                        uint32_t about_rank, uint32_t about_pid, int status, const char *text);
void occl_session_flush(struct occl_session *session);
void occl_session_drop_queue(struct occl_session *session);

/* ---- hello.c, dispatch.c ---- */
void occl_hello_handle(struct occl_session *session, const struct occl_msg_hello *msg);
void occl_dispatch(struct occl_session *session, uint32_t bytes);

/* ---- region.c ---- */
void occl_region_handle_alloc(struct occl_session *session,
                              const struct occl_msg_region_alloc *msg);
void occl_region_handle_map(struct occl_session *session, const struct occl_msg_region_map *msg);
void occl_region_handle_free(struct occl_session *session, const struct occl_msg_region_map *msg);
void occl_region_session_gone(struct occl_session *session);
/* Makes a region of the owner's job and charges it; does not count it against quota_regions. flags:
 * enum occl_memfd_flags. QUOTA, NO_MEMORY. */
int occl_region_make(struct occl_session *owner, uint64_t bytes, uint32_t flags,
                     struct occl_region **out_region, struct occl_detail *detail);
bool occl_region_mapped_by(const struct occl_region *region, uint64_t session_id);
/* The session is sent its descriptor, and so will be told of its end. False: no memory. */
bool occl_region_add_mapper(struct occl_region *region, uint64_t session_id);

/* ---- room.c: where processes copy private buffers to ---- */
void occl_room_handle(struct occl_session *session, const struct occl_msg_rooms *msg);
/* The session's room ends. */
void occl_room_gone(struct occl_session *session);

/* ---- rendezvous.c, split.c: how communicators come to be ---- */
void occl_rendezvous_handle(struct occl_session *session, const struct occl_msg_comm_create *msg);
void occl_rendezvous_session_gone(struct occl_session *session);
void occl_rendezvous_job_gone(struct occl_job *job);
void occl_rendezvous_destroy_all(struct occl_daemon *daemon);
/* Ends every rendezvous that still waits (drain). */
void occl_rendezvous_refuse_all(struct occl_daemon *daemon);
void occl_split_handle(struct occl_session *session, const struct occl_msg_comm_split *msg);
/* The parent lost a seat or ended: its splits cannot complete. */
void occl_split_fail_all(struct occl_comm *parent, int status, const char *text);

/* ---- comm.c ---- */
struct occl_comm_request {
    struct occl_job *job;
    const char *name;
    uint32_t ranks;
    uint32_t priority; /* 0..3, or 255: the job's */
    uint64_t default_deadline_ns;
    /* ranks of each: who sits where, and the request to answer. */
    struct occl_session *const *sessions;
    const uint64_t *requests;
};
/* Makes page, seats and engine part, and answers each member with COMM. On failure nobody has been
 * answered. */
int occl_comm_create(const struct occl_comm_request *request, uint64_t *out_uid,
                     struct occl_detail *detail);
void occl_comm_handle_end(struct occl_session *session, const struct occl_msg_comm_end *msg);
void occl_comm_handle_members(struct occl_session *session, const struct occl_msg_members *msg);
struct occl_seat *occl_comm_seat(struct occl_session *session, uint32_t number);
/* Takes every seat of the session: its death ends the communicators, a polite end leaves them. */
void occl_comm_session_gone(struct occl_session *session);

/* ---- comm_fail.c: the end of communicators ---- */
/* State in the page, then events, then records, then ring ops. The first end counts. */
void occl_comm_end(struct occl_comm *comm, enum occl_comm_state state, int status,
                   uint32_t about_rank, const char *text);
/* A member comes to no op any more; a thread of it may still be inside one. */
void occl_comm_mark_dead(struct occl_comm *comm, uint32_t rank);
/* Its process has exited: nobody waits for what its threads had in hand. Before it is marked dead.
 */
void occl_comm_mark_gone(struct occl_comm *comm, uint32_t rank);
/* Sweeps the records once: all that are undecided (ended communicator), or those that need a rank
 * that has left. Returns how many it aborted. */
uint32_t occl_comm_sweep(struct occl_comm *comm);
/* Sweeps again and again while members are left. */
void occl_comm_sweep_start(struct occl_comm *comm);
/* Ends all communicators: SHUTTING_DOWN. */
void occl_comm_end_all(struct occl_daemon *daemon);

/* ---- opview.c: what is not complete, from pages and engine ---- */
struct occl_op_view {
    struct occl_comm *comm;
    struct occl_op_key key;
    struct occl_signature signature;
    uint64_t members_mask; /* ranks that the op needs */
    uint64_t arrived_mask;
    uint64_t held_mask;    /* not arrived: they have submitted it, and it comes after another */
    uint64_t unsure_mask;  /* not arrived: of these it cannot be told whether they are held back */
    uint64_t waiting_mask; /* arrived or held back, and a thread of theirs waits */
    uint64_t busy_mask;    /* a thread of theirs executes strands of it right now */
    uint64_t since_ns;     /* monotonic; first submission */
    uint64_t waiting_since_ns; /* latest time at which a waiting member began to wait; 0: unknown */
    uint32_t preemptions, attempts, strands, strands_done;
    uint8_t state;                   /* 0 waiting for members, 1 runnable, 2 running */
    bool in_record;                  /* else it is the engine's */
    uint32_t held_first, held_count; /* in a list: its ranks that are held back */
};
/* A rank that has submitted an op of a list, which comes after another op of the same process. */
struct occl_held_view {
    uint32_t op; /* number in the list */
    uint32_t rank;
    uint32_t count;               /* ops that it still comes after; one of them is described */
    uint32_t after;               /* number in the list; OCCL_OP_UNKNOWN: it is not there */
    struct occl_comm *after_comm; /* NULL: what is written names no op of the process */
    uint32_t after_rank;          /* of the process there */
    struct occl_op_key after_key;
    uint64_t since_ns; /* monotonic */
};
#define OCCL_OP_UNKNOWN UINT32_MAX
/* Held-back ranks of one list; those behind are ranks that have not come. */
#define OCCL_HELDS_MAX 16384u
struct occl_op_list {
    struct occl_op_view *ops;
    uint32_t count, room;
    struct occl_held_view *helds;
    uint32_t held_count, held_room;
};
/* The op of a record, if a member has come or is held back, and it is undecided for one of these,
 * and if the claim was that op's all the time. Page bytes are copied once and bounded. out_helds:
 * room for OCCL_LOCAL_RANKS_MAX, of which out_op->held_count are filled. */
bool occl_opview_record(struct occl_comm *comm, uint32_t slot, uint64_t print, uint64_t now_ns,
                        struct occl_op_view *out_op, struct occl_held_view *out_helds);
/* A record of the communicator holds an undecided op. */
bool occl_opview_any(struct occl_comm *comm);
/* An op that only the engine knows of; false: its communicator is gone, or a record has it. */
bool occl_opview_engine(struct occl_daemon *daemon, const struct occl_engine_op_view *view,
                        struct occl_op_view *out_op, struct occl_held_view *out_helds);
/* split.c: the waiting split behind *at (NULL: the first); false: there is none. */
bool occl_split_next(const struct occl_comm *parent, struct occl_split **at,
                     struct occl_op_view *out_op);
/* helds: op->held_count of them. False: no memory. */
bool occl_opview_append(struct occl_op_list *list, const struct occl_op_view *op,
                        const struct occl_held_view *helds);
void occl_opview_free(struct occl_op_list *list);

/* ---- opheld.c: ops that come after others of the same rank ---- */
/* What a line says of an op that it is held back from. False: it does not, or of another op. */
bool occl_opheld_line(const struct occl_comm *comm, uint32_t rank, const struct occl_line *line,
                      struct occl_held_view *out_held);
/* What the process's session page says of this very op, whose way is the ring. False: nothing;
 * *out_unsure: it may be held back nevertheless. */
bool occl_opheld_page(const struct occl_comm *comm, uint32_t rank, const struct occl_op_key *key,
                      struct occl_held_view *out_held, bool *out_unsure);
/* Finds what they come after in the same list. */
void occl_opheld_resolve(struct occl_op_list *list);
/* How the rank is held back; NULL: it is not. */
const struct occl_held_view *occl_opheld_of(const struct occl_op_list *list,
                                            const struct occl_op_view *op, uint32_t rank);
/* Ranks that the op cannot go on without: those that have not come; while it runs, those inside it.
 */
uint64_t occl_opview_holders(const struct occl_op_view *op);
/* Beside the kinds of ops: a split of the communicator that not all ranks have called. Its ranks
 * wait for each other as in an op, so it is shown and judged as one; instance is its number. */
#define OCCL_OPVIEW_SPLIT 255u
const char *occl_opview_kind(uint32_t kind);
struct occl_note_view {
    struct occl_op_key last_key;
    uint32_t last_kind;
    uint64_t last_ns, ops_done, bytes_done, bytes_executed, errors;
};
void occl_opview_note(const struct occl_comm *comm, uint32_t rank, struct occl_note_view *out_note);
/* "0-2,5" */
void occl_opview_ranges(uint64_t mask, char *out_text, uint32_t bytes);

/* ---- totals.c: sums over a job ---- */
struct occl_job_totals {
    uint64_t ops_done, errors, bytes_done, bytes_executed; /* as the ranks count them */
    uint64_t ops_waiting;
    uint64_t oldest_age_ns;
    bool cycle; /* a member of a certain cycle is of this job */
    struct occl_engine_job_usage engine;
};
/* Sums as far as they were noted; nothing of waiting ops. */
void occl_totals_job(struct occl_job *job, struct occl_job_totals *out_totals);
/* All of them, of a complete view with notes and graph. */
struct occl_view;
void occl_totals_view(const struct occl_view *view, struct occl_job_totals *out_totals);
/* One word; see ADMIN.md. */
const char *occl_totals_state(struct occl_job *job, const struct occl_job_totals *totals);

/* ---- stall.c: finds stalls and cycles by itself ---- */
int occl_stall_create(struct occl_daemon *daemon);
void occl_stall_destroy(struct occl_daemon *daemon);
/* A communicator was created: its tenant must be looked at. */
void occl_stall_wake(struct occl_tenant *tenant);
void occl_stall_tenant_gone(struct occl_tenant *tenant);
void occl_stall_comm_gone(struct occl_comm *comm);

/* ---- admin.c, admin_queue.c ---- */
void occl_admin_handle(struct occl_session *session, const struct occl_msg_admin *msg);
int occl_admin_create(struct occl_daemon *daemon);
void occl_admin_destroy(struct occl_daemon *daemon);
/* Takes in an administration session: not too many of one uid. */
int occl_admin_admit(struct occl_session *session, struct occl_detail *detail);
/* Forgets what the session has asked. */
void occl_admin_session_gone(struct occl_session *session);

/* ---- metering.c: shares between jobs ---- */
/* A job or communicator was added: the meter may have something to look at. */
void occl_metering_wake(struct occl_daemon *daemon);
/* Before the engine goes. */
void occl_metering_stop(struct occl_daemon *daemon);

/* ---- metrics.c ---- */
int occl_metrics_create(struct occl_daemon *daemon);
void occl_metrics_destroy(struct occl_daemon *daemon);
/* Something happened that the file should show. */
void occl_metrics_wake(struct occl_daemon *daemon);

#endif
