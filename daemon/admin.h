/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the administration verbs share. Schemas: ADMIN.md.
 *
 * An answer is made in steps, between which the control loop serves everybody else. Plain verbs are
 * answered in one step. The others walk over the jobs that the asker may see and wants to see, and
 * over nothing else: for each job a view is taken (view.h), then the verb adds its items to the
 * text of the answer, one small piece a call.
 *
 * Shares. The text of an answer is divided among its tenants, and a tenant's part among its jobs,
 * so that nobody's data crowds out that of others. What did not fit is told under `cut`. */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include <jansson.h>

#include "daemon/rendezvous.h"
#include "daemon/view.h"

#define OCCL_ADMIN_SCHEMA 1
/* Text of one list for one tenant, and of one list for all of them. */
#define OCCL_ADMIN_TENANT_BYTES (4u << 20)
#define OCCL_ADMIN_LIST_BYTES (64u << 20)
/* What the jobs of a tenant that come first leave to each of the others. */
#define OCCL_ADMIN_JOB_BYTES (16u << 10)
/* Lines looked at for one tenant, for all of them, and at least for a job. */
#define OCCL_ADMIN_TENANT_LINES (1u << 19)
#define OCCL_ADMIN_ALL_LINES (1u << 22)
#define OCCL_ADMIN_JOB_LINES (1u << 12)

/* In pieces that never move: a text may be long, and a turn is short. */
#define OCCL_ADMIN_PIECE_BYTES (64u << 10)
struct occl_admin_text {
    char **pieces; /* each of OCCL_ADMIN_PIECE_BYTES, all but the last one full */
    uint32_t piece_count, piece_room;
    size_t used; /* bytes; what is behind them was taken back */
    bool failed; /* no memory: the answer will be that */
};

/* Lists of an answer; each verb has its own names for them. */
enum occl_admin_list {
    OCCL_ADMIN_LIST_MAIN = 0, /* jobs, comms, ops, tenants, problems; why: waits */
    OCCL_ADMIN_LIST_FORMING = 1,
    OCCL_ADMIN_LIST_CYCLES = 2,
    OCCL_ADMIN_LIST_FAILURES = 3,
    OCCL_ADMIN_LIST_CULPRITS = 4,
    OCCL_ADMIN_LIST_CUT = 5,
    OCCL_ADMIN_LISTS = 6,
};
enum occl_admin_cut {
    OCCL_ADMIN_CUT_OPS = 0,
    OCCL_ADMIN_CUT_WAITS = 1, /* without edges in the graph, or not listed */
    OCCL_ADMIN_CUT_COMMS = 2,
    OCCL_ADMIN_CUT_PROCESSES = 3,
    OCCL_ADMIN_CUT_FORMING = 4,
    OCCL_ADMIN_CUT_CYCLES = 5,
    OCCL_ADMIN_CUT_CULPRITS = 6,
    OCCL_ADMIN_CUT_JOBS = 7, /* members come and go too fast, or no room */
    OCCL_ADMIN_CUTS = 8,
};

/* A job of the walk. */
struct occl_admin_stop {
    uint64_t job_id;
    uint32_t lines;
    uint32_t jobs_left; /* of its tenant, behind it */
};

/* What `status` sums up. */
struct occl_admin_sums {
    uint64_t tenants, jobs, sessions, comms, regions, ops_waiting, oldest_age_ns, registered_bytes;
};

#define OCCL_ADMIN_GONE_MAX 64
/* Where `why` is in a job. */
struct occl_admin_why {
    const struct occl_comm *comm;       /* whose ranks are in `late` */
    json_t *late[OCCL_LOCAL_RANKS_MAX]; /* made once, for all ops of the communicator */
    struct occl_cycle_walk cycles;
    const struct occl_rendezvous *meeting;
    struct occl_wait_node *by_hint[OCCL_LOCAL_RANKS_MAX];
    /* Processes that are gone and have been named. */
    struct {
        uint64_t session_id;
        const char *verdict;
    } gone[OCCL_ADMIN_GONE_MAX];
    uint32_t gone_count;
};

/* What a job's items changed, for the case that they are made again. */
struct occl_admin_mark {
    size_t used[OCCL_ADMIN_LISTS];
    bool problem;
    uint64_t open_tenant;
    struct occl_admin_sums sums;
};

struct occl_admin_verb;
struct occl_admin_meter;

/* What a session has asked; one at a time. Strings are borrowed from `json`. */
struct occl_admin_request {
    struct occl_session *asker;
    struct occl_daemon *daemon;
    struct occl_admin_meter *meter;
    bool operator_rights;
    uint64_t number; /* of the message */
    json_t *json;
    const struct occl_admin_verb *verb;
    const char *job, *comm, *tenant; /* NULL: all */
    int64_t rank;                    /* -1: all */
    struct occl_detail detail;       /* of a failure */
    uint32_t phase;
    json_t *answer; /* keys that are no lists */
    struct occl_admin_text lists[OCCL_ADMIN_LISTS];
    /* The walk. */
    struct occl_admin_stop *stops;
    uint32_t stop_count, stop;
    uint32_t tenant_bytes; /* of one list */
    uint64_t tenant_id;    /* whose jobs are walked over */
    bool viewing, emitting;
    struct occl_view view;
    struct occl_admin_mark mark;
    size_t tenant_used[OCCL_ADMIN_LISTS]; /* when its jobs began */
    uint64_t cut[OCCL_ADMIN_CUTS];        /* of this job */
    uint64_t cut_total;                   /* of all */
    /* Where the verb is in the job. */
    uint32_t stage, at;
    const struct occl_session *session;
    const struct occl_comm *at_comm;
    struct occl_admin_why why;
    struct occl_admin_sums sums;
    bool problem;
    uint64_t open_tenant; /* usage: whose object is open; status: who has been added */
    /* What comes before the lists. All of it is then copied into the descriptor. */
    struct occl_admin_text head;
    size_t text_bytes; /* of head and lists together */
    struct occl_memfd memfd;
    void *mapped;
    uint64_t mapped_bytes;
    size_t copied;         /* in all */
    uint32_t copied_texts; /* completely; the head is the first */
    size_t copied_of_text;
    TAILQ_ENTRY(occl_admin_request) in_meter;
    char text[]; /* as it came */
};

struct occl_admin_verb {
    const char *name;
    bool changes;
    /* A plain verb: adds its keys to request->answer. On failure detail holds status and text. */
    int (*plain)(struct occl_admin_request *request);
    /* A walk over jobs. */
    bool all_jobs;                       /* filters do not choose jobs */
    bool only_comms;                     /* the filters of communicators choose what is looked at */
    uint32_t wants;                      /* of the view */
    const char *lists[OCCL_ADMIN_LISTS]; /* names; NULL: none */
    /* One item of the job in request->view; false: there is none left. */
    bool (*item)(struct occl_admin_request *request);
    /* Keys that are known at the end. */
    void (*finish)(struct occl_admin_request *request);
};

/* ---- admin.c: request, permission, building blocks ---- */
/* Parses text, finds the verb, checks permission, puts the common keys. Status as in detail. */
int occl_admin_begin(struct occl_admin_request *request);
bool occl_admin_may_see(const struct occl_admin_request *request, const struct occl_job *job);
bool occl_admin_sees(const struct occl_admin_request *request, const struct occl_job *job);
bool occl_admin_wants_comm(const struct occl_admin_request *request, const struct occl_comm *comm);
bool occl_admin_wants_op(const struct occl_admin_request *request, const struct occl_op_view *op);
/* Value of a text key of the request; NULL when there is none. */
const char *occl_admin_text(const struct occl_admin_request *request, const char *key);
/* Building blocks. Ownership of what they return is the caller's. */
json_t *occl_admin_ranks(uint64_t mask);
/* Adds `value` (its reference is taken) under key; memory trouble shows as a missing key. */
void occl_admin_put(json_t *object, const char *key, json_t *value);
void occl_admin_put_number(json_t *object, const char *key, uint64_t value);
void occl_admin_put_text(json_t *object, const char *key, const char *value);
void occl_admin_put_bool(json_t *object, const char *key, bool value);
uint64_t occl_admin_age(const struct occl_daemon *daemon, uint64_t since_ns);

/* ---- admin_text.c: the lists of an answer ---- */
/* A list takes another item of this job: there is room, or it has none of the job yet. */
bool occl_admin_room(const struct occl_admin_request *request, enum occl_admin_list list);
/* Appends an object, whose reference is taken. */
void occl_admin_add(struct occl_admin_request *request, enum occl_admin_list list, json_t *object);
/* Appends an object whose last key is a list, to be filled by occl_admin_element and closed. */
void occl_admin_open(struct occl_admin_request *request, enum occl_admin_list list, json_t *object,
                     const char *key);
void occl_admin_element(struct occl_admin_request *request, enum occl_admin_list list,
                        json_t *object);
void occl_admin_close(struct occl_admin_request *request, enum occl_admin_list list);
/* The job of the view has items from here on; and back to here. */
void occl_admin_mark(struct occl_admin_request *request);
void occl_admin_unwind(struct occl_admin_request *request);
/* Tells what was left out of this job. */
void occl_admin_tell_cut(struct occl_admin_request *request);
/* Writes what is around the lists: head and lists, one behind the other, are then the answer of
 * request->text_bytes. False: no memory. */
bool occl_admin_join(struct occl_admin_request *request);
/* Copies the part of a text that begins at `from` and lies in one piece; its size, 0 at the end. */
size_t occl_admin_text_copy(const struct occl_admin_text *text, size_t from, char *out_bytes);
void occl_admin_text_free(struct occl_admin_text *text);

/* ---- admin_walk.c: one step of a request ---- */
/* Works until until_ns. True: it has been answered. */
bool occl_admin_step(struct occl_admin_request *request, uint64_t until_ns);
/* Releases everything but the request itself. */
void occl_admin_forget(struct occl_admin_request *request);

/* ---- admin_queue.c: whose turn it is ---- */
void occl_admin_send_failure(struct occl_session *session, uint64_t number,
                             const struct occl_detail *detail);

/* ---- verbs ---- */
extern const struct occl_admin_verb occl_admin_verb_status, occl_admin_verb_jobs,
    occl_admin_verb_comms, occl_admin_verb_ops, occl_admin_verb_why, occl_admin_verb_usage;
int occl_admin_config(struct occl_admin_request *request);
int occl_admin_set(struct occl_admin_request *request);
int occl_admin_doctor(struct occl_admin_request *request);
int occl_admin_version(struct occl_admin_request *request);
int occl_admin_rank_ended(struct occl_admin_request *request); /* admin_rank_ended.c */
int occl_admin_ping(struct occl_admin_request *request);
json_t *occl_admin_op(const struct occl_admin_request *request, const struct occl_op_view *op);
json_t *occl_admin_last_op(const struct occl_note_view *note);
/* Before a job's items, and behind them. */
void occl_admin_why_begin(struct occl_admin_request *request);
void occl_admin_why_end(struct occl_admin_request *request);

#endif
