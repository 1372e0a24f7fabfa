/* SPDX-License-Identifier: Apache-2.0 */
/* Several jobs at once: each rank becomes one process a job. The processes of a rank meet at a
 * barrier in shared memory before and after each row, so that all jobs measure the same row at the
 * same time, and job 0 prints for all. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_ipc/unique_id.h"
#include "tools/perf/perf.h"

struct occl_perf_shared {
    pthread_barrier_t barrier;
    int jobs;
    pid_t pids[OCCL_PERF_JOBS_MAX];
    struct occl_perf_row rows[OCCL_PERF_JOBS_MAX];
};

/* A job that failed never reaches the barrier; then waiting for it is pointless. Only calls that
 * are safe in a handler. */
static void on_child(int number) {
    (void)number;
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        return;
    if (info.si_code != CLD_EXITED || info.si_status >= OCCL_PERF_FAILED)
        _exit(OCCL_PERF_FAILED);
}

static uint8_t from_hex(const char *two) {
    char text[3] = {two[0], two[1], '\0'};
    return (uint8_t)strtoul(text, NULL, 16);
}

/* Another job needs another name and another unique id, the same on all ranks: made from the
 * launcher's by counting up the secret's first byte. */
static int become_job(int job) {
    const char *name = getenv("OCCL_JOB");     /* lint: banned_calls: set by the launcher */
    const char *id = getenv("OCCL_UNIQUE_ID"); /* lint: banned_calls: set by the launcher */
    size_t at = 2 * offsetof(struct occl_unique_id_layout, secret);
    char own_name[OCCL_NAME_BYTES], own_id[2 * sizeof(struct occl_unique_id_layout) + 1];
    if (!id || strlen(id) != sizeof own_id - 1)
        return 0; /* occl_init_env explains what is missing */
    (void)snprintf(own_name, sizeof own_name, "%.56s.%d", name ? name : "perf", job); /* fits */
    memcpy(own_id, id, sizeof own_id);
    (void)snprintf(own_id + at, 3, "%02x",
                   (unsigned)(uint8_t)(from_hex(id + at) + job)); /* two digits */
    own_id[at + 2] = id[at + 2];
    return setenv("OCCL_JOB", own_name, 1) | setenv("OCCL_UNIQUE_ID", own_id, 1);
}

int occl_perf_jobs_fork(const struct occl_perf_options *options,
                        struct occl_perf_shared **out_shared) {
    struct occl_perf_shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    if (shared == MAP_FAILED || pthread_barrierattr_init(&attr) != 0 ||
        pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_barrier_init(&shared->barrier, &attr, (unsigned)options->jobs) != 0) {
        (void)fprintf(stderr, "occl-perf: out of memory\n"); /* nowhere else to report */
        exit(OCCL_PERF_FAILED);
    }
    shared->jobs = options->jobs;
    *out_shared = shared;
    if (options->jobs > 1)
        (void)signal(SIGCHLD, on_child); /* a valid number */
    pid_t parent = getpid();
    for (int job = 1; job < options->jobs; job++) {
        pid_t pid = fork();
        if (pid < 0) {
            (void)fprintf(stderr, "occl-perf: cannot fork\n"); /* nowhere else to report */
            exit(OCCL_PERF_FAILED);
        }
        if (pid == 0) {
            (void)signal(SIGCHLD, SIG_DFL); /* a valid number */
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
                become_job(job) != 0)
                _exit(OCCL_PERF_FAILED);
            return job;
        }
        shared->pids[job] = pid;
    }
    return 0;
}

void occl_perf_jobs_meet(struct occl_perf_shared *shared) {
    if (shared->jobs > 1)
        (void)pthread_barrier_wait(&shared->barrier); /* fails only for a broken barrier */
}

struct occl_perf_row *occl_perf_jobs_row(struct occl_perf_shared *shared, int job) {
    return &shared->rows[job];
}

int occl_perf_jobs_join(struct occl_perf_shared *shared, int code) {
    (void)signal(SIGCHLD, SIG_DFL); /* a valid number */
    for (int job = 1; job < shared->jobs; job++) {
        int status = 0;
        if (waitpid(shared->pids[job], &status, 0) != shared->pids[job])
            continue;
        int theirs = WIFEXITED(status) ? WEXITSTATUS(status) : OCCL_PERF_FAILED;
        code = theirs > code ? theirs : code;
    }
    return code;
}
