/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/line.h"

/* A waiter with a core of its own looks this often before it gives the core away: some 50 us. */
#define SPINS_BEFORE_YIELD 1000u
/* Yields before sleeping: a late rank then costs no CPU, a near one no system call to wake us. */
#define YIELDS_BEFORE_SLEEP 16u

struct occl_bench_control_page {
    _Alignas(64) uint32_t arrived;
    _Alignas(64) uint32_t generation;
    uint32_t sleepers;
    struct occl_bench_line line;
    _Alignas(64) double values[OCCL_BENCH_RANKS_MAX];
    _Alignas(64) uint64_t stamps_ns[OCCL_BENCH_RANKS_MAX][OCCL_BENCH_STAMPS_MAX];
};

uint64_t occl_bench_now_ns(void) {
    struct timespec now;
    /* CLOCK_MONOTONIC exists on every Linux, so the call cannot fail. */
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int occl_bench_control_open(const char *path, uint32_t rank, uint32_t ranks,
                            struct occl_bench_control *out_control) {
    if (ranks == 0 || ranks > OCCL_BENCH_RANKS_MAX || rank >= ranks) {
        return EINVAL;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno;
    }
    /* Every rank sets the same size, so it does not matter who comes first: new bytes are zero. */
    if (ftruncate(fd, (off_t)sizeof(struct occl_bench_control_page)) != 0) {
        int error = errno;
        close(fd);
        return error;
    }
    /* Populated now: a page fault in the middle of a measurement would be measured. */
    void *page = mmap(NULL, sizeof(struct occl_bench_control_page), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, fd, 0);
    int error = page == MAP_FAILED ? errno : 0;
    close(fd);
    if (error != 0) {
        return error;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    out_control->page = page;
    out_control->rank = rank;
    out_control->ranks = ranks;
    out_control->own_core = cores > 0 && ranks <= (uint32_t)cores;
    return 0;
}

void occl_bench_control_close(struct occl_bench_control *control) {
    if (control->page != NULL) {
        /* Fails only for arguments that mmap did not return. */
        (void)munmap(control->page, sizeof *control->page);
        control->page = NULL;
    }
}

static void wait_for_generation(const struct occl_bench_control *control, uint32_t old) {
    struct occl_bench_control_page *page = control->page;
    uint32_t spins = control->own_core ? SPINS_BEFORE_YIELD : 0;
    for (uint32_t i = 0; i < spins; i++) {
        if (__atomic_load_n(&page->generation, __ATOMIC_ACQUIRE) != old) {
            return;
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    for (uint32_t i = 0; i < YIELDS_BEFORE_SLEEP; i++) {
        if (__atomic_load_n(&page->generation, __ATOMIC_ACQUIRE) != old) {
            return;
        }
        /* Cannot fail on Linux. */
        (void)sched_yield();
    }
    __atomic_add_fetch(&page->sleepers, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&page->generation, __ATOMIC_SEQ_CST) == old) {
        /* Every way back (woken, changed, interrupted) is handled by looking again. */
        (void)syscall(SYS_futex, &page->generation, FUTEX_WAIT, old, NULL, NULL, 0);
    }
    __atomic_sub_fetch(&page->sleepers, 1, __ATOMIC_SEQ_CST);
}

void occl_bench_control_meet(struct occl_bench_control *control) {
    struct occl_bench_control_page *page = control->page;
    uint32_t generation = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&page->arrived, 1, __ATOMIC_ACQ_REL) != control->ranks) {
        wait_for_generation(control, generation);
        return;
    }
    /* Nobody can arrive for the next meeting before the generation moves. */
    __atomic_store_n(&page->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&page->generation, generation + 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&page->sleepers, __ATOMIC_SEQ_CST) != 0) {
        /* Waking nobody is fine: the sleepers may have seen the new generation already. */
        (void)syscall(SYS_futex, &page->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

double occl_bench_control_largest(struct occl_bench_control *control, double value) {
    control->page->values[control->rank] = value;
    occl_bench_control_meet(control);
    double largest = value;
    for (uint32_t r = 0; r < control->ranks; r++) {
        if (control->page->values[r] > largest) {
            largest = control->page->values[r];
        }
    }
    /* Second meeting: a fast rank must not overwrite its value before all have read it. */
    occl_bench_control_meet(control);
    return largest;
}

double occl_bench_control_sum(struct occl_bench_control *control, double value) {
    control->page->values[control->rank] = value;
    occl_bench_control_meet(control);
    double sum = 0;
    for (uint32_t r = 0; r < control->ranks; r++) {
        sum += control->page->values[r];
    }
    occl_bench_control_meet(control);
    return sum;
}

uint64_t *occl_bench_control_stamps_ns(struct occl_bench_control *control, uint32_t rank) {
    return control->page->stamps_ns[rank];
}

struct occl_bench_line *occl_bench_control_line(struct occl_bench_control *control) {
    return &control->page->line;
}

static int exit_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void end_all(const pid_t *pids, uint32_t count) {
    for (uint32_t r = 0; r < count; r++) {
        if (pids[r] > 0) {
            /* One that has ended meanwhile is still ours to wait for, so the number is not reused.
             */
            (void)kill(pids[r], SIGKILL);
        }
    }
}

int occl_bench_fork_ranks(uint32_t ranks, int soft_exit, int (*rank_main)(void *, uint32_t),
                          void *argument) {
    pid_t pids[OCCL_BENCH_RANKS_MAX] = {0};
    int first_failure = 0;
    uint32_t started = 0;
    if (ranks > OCCL_BENCH_RANKS_MAX) {
        return 1;
    }
    /* Whatever is buffered would be written once by every child. */
    (void)fflush(NULL);
    while (started < ranks && first_failure == 0) {
        pids[started] = fork();
        if (pids[started] == 0) {
            /* Fails only for an invalid signal. */
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            int result = rank_main(argument, started);
            (void)fflush(NULL);
            _exit(result);
        }
        first_failure = pids[started] < 0 ? 1 : 0;
        started++;
    }
    if (first_failure != 0) {
        end_all(pids, started);
    }
    for (uint32_t left = started; left > 0; left--) {
        int status = 0;
        pid_t pid = wait(&status);
        if (pid < 0) {
            break;
        }
        for (uint32_t r = 0; r < started; r++) {
            if (pids[r] == pid) {
                pids[r] = 0;
            }
        }
        int result = exit_of(status);
        if (result != 0 && first_failure == 0) {
            first_failure = result;
            if (result != soft_exit) {
                end_all(pids, started);
            }
        }
    }
    return first_failure;
}
