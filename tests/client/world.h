/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon and the ranks of a job as real processes, for tests. The parent never attaches: it
 * starts occld, forks ranks, and judges their exit codes. */
#ifndef TESTS_CLIENT_WORLD_H
#define TESTS_CLIENT_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client_lib/occl.h"

#define WORLD_RANKS_MAX 64

struct world {
    pid_t daemon;
    char folder[96];
    char socket[108];
};

struct world_rank {
    int rank, size;
    struct occl_comm comm;
    struct world *world;
    void *arg;
};
/* Runs in a child process that has attached and joined `comm`. 0: fine. */
typedef int (*world_main)(struct world_rank *me);

/* Is this build one with a sanitizer of addresses or threads? */
bool world_sanitized(void);

/* Time scale of this build: sanitizers are slower. Deadlines of tests are multiplied by it. */
int world_slowness(void);

/* Starts occld (environment OCCLD names the binary, else daemon/occld below the working directory)
 * with extra arguments (NULL-terminated or NULL). Aborts the test program when it does not come up.
 */
void world_start(struct world *w, const char *const *extra);
/* Fixtures: daemons that are started between the two take every op through their rings and serve
 * each rank in its order (environment OCCLD_ORDERED, else daemon/occld_ordered). */
int world_use_ordered(void **state);
int world_use_usual(void **state);
/* Fixtures: of daemons that are started between the two the ranks learn that private memory is
 * never copied, so all of it goes by cross-memory attach. */
int world_use_no_copies(void **state);
int world_use_copies(void **state);
/* SIGTERM, waits, removes the folder. Returns the daemon's exit status as of wait, -1 if killed
 * here. */
int world_stop(struct world *w);

/* Forks `size` ranks, waits for all. Returns how many ranks failed (exit code not 0, signal, or
 * killed because timeout_s x slowness passed). Prints what failed. */
int world_run(struct world *w, int size, world_main main_of_rank, void *arg, int timeout_s);

/* As world_run, but leaves the ranks running: for tests that kill some of them. */
void world_spawn(struct world *w, int size, world_main main_of_rank, void *arg, pid_t *out_pids);
/* Waits for one rank; status as of waitpid, -1 when it had to be killed after timeout_s x slowness.
 */
int world_wait(pid_t pid, int timeout_s);

/* A process that only attaches: the callback makes its own communicators. */
int world_attach(struct world *w, const char *job);

/* Shared anonymous memory between the ranks and the parent, zeroed. */
void *world_shared(size_t bytes);

/* Sum of ... deterministic pattern helpers for checks. */
static inline uint32_t world_pattern(uint64_t rank, uint64_t index) {
    uint64_t x = rank * 0x9e3779b97f4a7c15ull + index * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    return (uint32_t)(x & 1023);
}
/* all_reduce sum of float32 patterns, small integers: exact. */
void world_fill(float *buffer, size_t count, int rank, uint64_t salt);
/* How many elements differ from the sum over ranks 0..size-1. */
size_t world_wrong_sum(const float *buffer, size_t count, int size, uint64_t salt);

double world_now(void);

/* Memory that lives as long as the process, as buffers of a training step do. */
void *world_alloc(size_t bytes);

#define WORLD_CHECK(condition)                                                                 \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "rank %d: %s:%d: %s failed; last error: %s\n", me->rank, __FILE__, \
                    __LINE__, #condition, occl_last_error());                                  \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)
#define WORLD_OK(call)                                                                        \
    do {                                                                                      \
        enum occl_result result_ = (call);                                                    \
        if (result_ != OCCL_SUCCESS) {                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s gave %d: %s\n", me->rank, __FILE__, __LINE__, \
                    #call, (int)result_, occl_last_error());                                  \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

#endif
