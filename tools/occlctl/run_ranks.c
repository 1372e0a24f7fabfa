/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks: environment, core, standard streams, death with the launcher. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/occlctl/run.h"

/* What a rank gets from us; the child's ends of its pipes are -1 without --label. */
struct child {
    int rank;
    int out;
    int err;
    int report; /* a struct report goes here if the start fails; closed by exec */
};

struct report {
    int rank;
    int error; /* errno; negative: the rank could not be bound */
};

static int set_number(const char *name, long number) {
    char text[24];
    (void)snprintf(text, sizeof text, "%ld", number); /* fits */
    return setenv(name, text, 1);
}

static int set_environment(const struct occl_run *run, int rank) {
    int failed = set_number("OCCL_RANK", rank) | set_number("OCCL_SIZE", run->options->ranks) |
                 set_number("OCCL_LOCAL_RANK", rank) | setenv("OCCL_JOB", run->job, 1) |
                 setenv("OCCL_UNIQUE_ID", run->unique_id, 1) |
                 setenv("OCCL_SOCKET", run->socket, 1);
    if (run->options->tag)
        failed |= setenv("OCCL_TENANT_TAG", run->options->tag, 1);
    return failed;
}

/* Standard input belongs to rank 0: several readers would tear it into pieces. */
static int set_streams(const struct child *child) {
    if (child->rank != 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0)
            return -1;
    }
    if (child->out >= 0 &&
        (dup2(child->out, STDOUT_FILENO) < 0 || dup2(child->err, STDERR_FILENO) < 0))
        return -1;
    return 0;
}

__attribute__((noreturn)) static void become_rank(const struct occl_run *run,
                                                  const struct child *child, pid_t launcher) {
    /* The launcher may have died between fork and prctl; its successor as parent tells. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher)
        _exit(OCCL_CTL_LAUNCHER);
    occl_run_signals_default();
    bool bound = occl_run_bind(run, child->rank) == 0;
    if (bound && set_environment(run, child->rank) == 0 && set_streams(child) == 0)
        (void)execvp(run->options->argv[0], run->options->argv); /* returns only with an error */
    struct report report = {child->rank, bound ? errno : -errno};
    (void)!write(child->report, &report, sizeof report); /* whole, or the launcher reads the end */
    _exit(OCCL_CTL_LAUNCHER);
}

static int open_pipe(struct occl_run_pipe *pipe_end, int rank, int to, int *out_write) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    *pipe_end = (struct occl_run_pipe){.fd = ends[0], .to = to, .rank = rank};
    *out_write = ends[1];
    return 0;
}

static void close_if_open(int fd) {
    if (fd >= 0)
        (void)close(fd); /* the child has its own copy */
}

/* Forks one rank, which reports on `report`. Returns 0 or an errno. */
static int fork_rank(struct occl_run *run, int rank, int report) {
    struct child child = {.rank = rank, .out = -1, .err = -1, .report = report};
    int error = 0;
    if (run->pipes) {
        error = open_pipe(&run->pipes[2 * rank], rank, STDOUT_FILENO, &child.out);
        if (!error)
            error = open_pipe(&run->pipes[2 * rank + 1], rank, STDERR_FILENO, &child.err);
    }
    pid_t launcher = getpid();
    pid_t pid = error ? -1 : fork();
    if (pid == 0)
        become_rank(run, &child, launcher);
    if (pid < 0 && !error)
        error = errno;
    close_if_open(child.out);
    close_if_open(child.err);
    if (pid > 0) {
        run->ranks[rank] = (struct occl_run_rank){.pid = pid, .alive = true};
        run->alive++;
    }
    return error;
}

/* Waits until each rank has become the program, which closes its end, or has said why not. */
static struct report read_reports(int reports) {
    struct report first = {.error = 0}, next;
    for (;;) {
        ssize_t got = read(reports, &next, sizeof next);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof next)
            return first;
        if (!first.error || next.rank < first.rank)
            first = next;
    }
}

/* All are forked before any is waited for: a rank that is there first waits for the last one, and
 * on a busy machine each has to wait for its turn. */
static struct report start_ranks(struct occl_run *run) {
    int ends[2];
    struct report failed = {.error = 0};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return (struct report){.error = errno};
    for (int rank = 0; rank < run->options->ranks && !failed.error; rank++)
        failed = (struct report){rank, fork_rank(run, rank, ends[1])};
    (void)close(ends[1]); /* the ranks have their own */
    if (failed.error)
        occl_run_signal(run, SIGKILL); /* whoever is there already has no use */
    struct report reported = read_reports(ends[0]);
    (void)close(ends[0]); /* read to its end */
    return failed.error ? failed : reported;
}

void occl_run_signal(const struct occl_run *run, int number) {
    for (int rank = 0; rank < run->options->ranks; rank++)
        if (run->ranks[rank].alive)
            (void)kill(run->ranks[rank].pid, number); /* not reaped yet, so the number is his */
}

static void kill_all(struct occl_run *run) {
    occl_run_signal(run, SIGKILL);
    for (int rank = 0; rank < run->options->ranks; rank++)
        if (run->ranks[rank].alive)
            (void)waitpid(run->ranks[rank].pid, NULL, 0); /* killed: ends */
}

int occl_run_ranks_start(struct occl_run *run, struct occl_detail *detail) {
    int count = run->options->ranks;
    run->ranks = calloc((size_t)count, sizeof *run->ranks);
    if (run->options->label) {
        run->pipes = calloc(2 * (size_t)count, sizeof *run->pipes);
        for (int i = 0; run->pipes && i < 2 * count; i++)
            run->pipes[i].fd = -1;
    }
    if (!run->ranks || (run->options->label && !run->pipes))
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, ENOMEM, "out of memory");
    struct report failed = start_ranks(run);
    if (!failed.error)
        return OCCL_OK;
    kill_all(run);
    if (failed.error < 0)
        return occl_detail_set(detail, OCCL_E_INVALID, -failed.error,
                               "--bind=core: cannot bind rank %d to its core: %s", failed.rank,
                               strerror(-failed.error));
    return occl_detail_set(detail, OCCL_E_INVALID, failed.error, "cannot start rank %d, %.200s: %s",
                           failed.rank, run->options->argv[0], strerror(failed.error));
}
