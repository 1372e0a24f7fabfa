/* SPDX-License-Identifier: Apache-2.0 */
/* The view: what is not complete in one job, taken in steps. No process is in two jobs, so waits
 * never lead from one job to another: a job's view is all that a verdict over it needs, and what
 * one job's pages hold can neither enter nor crowd the view of another.
 *
 * Steps. A page may be written at full speed while it is read, and may claim more than an honest
 * one ever does; so a view does its work piece by piece until a given time, and goes on where it
 * stopped. The pieces: claims of the communicator pages, ops of the engine, states of processes,
 * the graph of waits. A piece takes tens of microseconds, the largest (the graph) a millisecond.
 *
 * Pointers into the job are held between steps. They stay good while job->shape is unchanged; a
 * step that finds another shape begins again, and gives up at the fourth time.
 *
 * Shares. What a view may cost and hold is divided among the communicators of the job, so that one
 * of them leaves room for the others. What did not fit is counted in `cut`. */
#ifndef DAEMON_VIEW_H
#define DAEMON_VIEW_H

#include "daemon/why.h"

/* Ops of a view; each communicator may always show OCCL_VIEW_COMM_OPS_MIN of them. */
#define OCCL_VIEW_OPS 4096u
#define OCCL_VIEW_OPS_MAX 16384u
#define OCCL_VIEW_COMM_OPS_MIN 16u
/* Lines of records looked at, about 0.1 us each; each communicator may always have as many as all
 * records of eight ranks. */
#define OCCL_VIEW_LINES (1u << 19)
#define OCCL_VIEW_COMM_LINES_MIN (OCCL_RECORDS * 8u)

enum occl_view_want {
    OCCL_VIEW_WANT_OPS = 1,
    OCCL_VIEW_WANT_NOTES = 2,   /* comm->noted is refreshed */
    OCCL_VIEW_WANT_HOLDERS = 4, /* states of processes that hold an op up */
    OCCL_VIEW_WANT_STATES = 8,  /* states of all processes, without pending kills */
    OCCL_VIEW_WANT_ABSENT = 16, /* states of processes that a communicator being formed may lack */
    OCCL_VIEW_WANT_GRAPH = 32,
};
struct occl_view_request {
    uint32_t wants;      /* enum occl_view_want */
    uint32_t lines;      /* at most; OCCL_VIEW_LINES */
    uint64_t holders_ns; /* younger ops do not count as held up */
    /* Which communicators; NULL: all. */
    bool (*takes)(const void *arg, const struct occl_comm *comm);
    const void *arg;
};

enum occl_view_state {
    OCCL_VIEW_MORE = 0,
    OCCL_VIEW_DONE = 1,
    OCCL_VIEW_GONE = 2,     /* the job has ended */
    OCCL_VIEW_RESTLESS = 3, /* its members come and go too fast for a picture */
    OCCL_VIEW_FAILED = 4,   /* no memory */
};
struct occl_view {
    struct occl_daemon *daemon;
    struct occl_view_request request;
    struct occl_job *job; /* good in the step that returned DONE and while occl_view_holds */
    uint64_t job_id, shape, now_ns;
    struct occl_op_list list;
    struct occl_wait_graph graph; /* nodes: every process of the job, by session->place */
    uint32_t *comm_ops;           /* ops that were found, by comm->place */
    uint32_t comm_count;
    uint64_t cut;      /* ops left out, and claimed records that were not looked at */
    uint64_t spent_ns; /* in steps so far */
    /* Where the next step goes on. */
    uint32_t phase, begun;
    uint32_t per_comm_ops, per_comm_lines;
    struct occl_comm *comm;
    uint32_t claim, lines, of_comm;
    uint64_t engine_uid;
    uint32_t at;
};

void occl_view_open(struct occl_view *view, struct occl_job *job,
                    const struct occl_view_request *request);
/* Works until until_ns on the loop's clock, but at least one piece. */
enum occl_view_state occl_view_step(struct occl_view *view, uint64_t until_ns);
/* The job is there and as the view has it: pointers of the view may be followed. */
bool occl_view_holds(struct occl_view *view);
/* From the beginning, at most three times; false: that was often enough. */
bool occl_view_again(struct occl_view *view);
/* A zeroed view may be closed. */
void occl_view_close(struct occl_view *view);

#endif
