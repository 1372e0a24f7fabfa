/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher behind `occlctl run`: what its files share.
 *
 *   run.c          options, order of events, exit status
 *   run_daemon.c   finds the daemon or starts a private one, and cleans up after it
 *   run_ranks.c    starts the ranks
 *   run_bind.c     gives each a core
 *   run_watch.c    waits for ranks and signals, ends survivors
 *   run_tell.c     tells the daemon of ranks that ended before they attached
 *   run_output.c   prefixes the lines of ranks */
#ifndef TOOLS_OCCLCTL_RUN_H
#define TOOLS_OCCLCTL_RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shm_ipc/limits.h"
#include "tools/occlctl/occlctl.h"

/* The ranks form one communicator, on one node. */
#define OCCL_RUN_RANKS_MAX OCCL_LOCAL_RANKS_MAX
/* Survivors of a failed rank: the daemon tells them at once; then these, counted from the failure.
 */
#define OCCL_RUN_TERM_AFTER_NS 5000000000ull
#define OCCL_RUN_KILL_AFTER_NS 10000000000ull
#define OCCL_RUN_ID_BYTES 128

struct occl_run_options {
    struct occl_ctl_options ctl;
    int ranks;
    bool keep_going; /* --on-death=continue */
    bool label;
    bool bind_core; /* --bind=core */
    const char *job;
    const char *tag;
    const char *occld; /* path of the daemon's program; NULL: beside occlctl, then PATH */
    char **argv;       /* of the program */
};

/* ---- run_daemon.c ---- */

struct occl_run_daemon {
    char socket[OCCL_SOCKET_PATH_BYTES];
    char base[OCCL_SOCKET_PATH_BYTES];   /* of a private daemon; "" otherwise */
    char folder[OCCL_SOCKET_PATH_BYTES]; /* its own */
    pid_t pid;                           /* 0: not ours */
    uint32_t started;                    /* private daemons, for this run */
    struct occl_admin admin; /* held while the ranks run, so that a private daemon stays */
};

/* Finds the daemon, or starts a private one and waits until it listens. The daemon is its own
 * session (no signal of the terminal reaches it) and ends with its last job. OCCL_OK, or an error
 * with its text and nothing left behind. */
int occl_run_daemon_open(const struct occl_run_options *options, struct occl_run_daemon *out_daemon,
                         struct occl_detail *detail) __attribute__((warn_unused_result));
/* Lets go of the daemon. If it is a private one and ends within two seconds, its folder is removed;
 * if others use it, it stays theirs. */
void occl_run_daemon_close(const struct occl_run_options *options, struct occl_run_daemon *daemon);

/* ---- a run ---- */

struct occl_run_pipe {
    int fd; /* -1: closed */
    int to; /* STDOUT_FILENO or STDERR_FILENO */
    int rank;
    char *line; /* the beginning of a line that has not ended */
    size_t line_bytes;
    int error; /* errno of the first line that could not be written, 0: none */
};

struct occl_run_rank {
    pid_t pid;
    bool alive;
    bool told;  /* the daemon knows that it has ended */
    int status; /* of waitpid */
};

struct occl_run {
    const struct occl_run_options *options;
    const char *socket;
    const char *job;
    char unique_id[2 * OCCL_RUN_ID_BYTES + 1];
    struct occl_run_rank *ranks;
    struct occl_run_pipe *pipes; /* two a rank with --label, else NULL */
    int alive;
    int exit_code; /* of the first rank that did not end with 0 */
    bool failed;
    struct hwloc_topology *topology; /* with --bind=core: of what the ranks may use */
    struct occl_admin *admin;        /* the daemon's; NULL: there is nothing more to tell it */
    int output_error;                /* errno: --label could not write a line; 0: all is written */
};

/* ---- run_bind.c ---- */

/* With --bind=core: learns the cores that this process may use. OCCL_OK, or an error. */
int occl_run_bind_open(struct occl_run *run, struct occl_detail *detail)
    __attribute__((warn_unused_result));
/* Binds the calling process, a rank before exec, to its core. 0, or -1 with errno. */
int occl_run_bind(const struct occl_run *run, int rank) __attribute__((warn_unused_result));
void occl_run_bind_close(struct occl_run *run);

/* ---- run_ranks.c, run_watch.c, run_output.c ---- */

/* Starts all ranks. On an error those already started have been killed. */
int occl_run_ranks_start(struct occl_run *run, struct occl_detail *detail)
    __attribute__((warn_unused_result));
/* Blocks the signals that occl_run_watch receives, before any rank exists. OCCL_OK or an error. */
int occl_run_signals_open(int *out_fd, struct occl_detail *detail)
    __attribute__((warn_unused_result));
/* Sets the mask back, in a child before exec. */
void occl_run_signals_default(void);
/* Returns when all ranks have ended. */
int occl_run_watch(struct occl_run *run, int signal_fd, struct occl_detail *detail)
    __attribute__((warn_unused_result));
/* Sends a signal to all ranks that live. */
void occl_run_signal(const struct occl_run *run, int number);

/* Tells the daemon of ranks that have ended, if it may not know. True: again in a while. */
bool occl_run_tell(struct occl_run *run);

/* Reads what has come and writes the complete lines with their rank; waits for an output that takes
 * no more. False when the pipe has ended; it is closed then. An output that fails is noted in
 * pipe->error and takes nothing from the ranks. */
bool occl_run_output_read(struct occl_run_pipe *pipe);

#endif
