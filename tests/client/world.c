/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED true
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

bool world_sanitized(void) {
    return SANITIZED;
}

int world_slowness(void) {
    return SANITIZED ? 5 : 2;
}

double world_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static bool answers(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool ok = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    (void)close(fd);
    return ok;
}

static char *usual_daemon;

int world_use_ordered(void **state) {
    const char *ordered = getenv("OCCLD_ORDERED"), *usual = getenv("OCCLD");
    (void)state;
    usual_daemon = usual ? strdup(usual) : NULL;
    return setenv("OCCLD", ordered ? ordered : "daemon/occld_ordered", 1);
}

int world_use_usual(void **state) {
    (void)state;
    int status = usual_daemon ? setenv("OCCLD", usual_daemon, 1) : unsetenv("OCCLD");
    free(usual_daemon);
    usual_daemon = NULL;
    return status;
}

static bool no_copies;

int world_use_no_copies(void **state) {
    (void)state;
    no_copies = true;
    return 0;
}

int world_use_copies(void **state) {
    (void)state;
    no_copies = false;
    return 0;
}

void world_start(struct world *w, const char *const *extra) {
    const char *binary = getenv("OCCLD") ? getenv("OCCLD") : "daemon/occld";
    const char *argv[32] = {binary, "--socket", w->socket, "--log-level", "warn"};
    int argc = 5;
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/occl-test-XXXXXX");
    if (!mkdtemp(w->folder) || chmod(w->folder, 0755))
        abort();
    (void)snprintf(w->socket, sizeof w->socket, "%s/s", w->folder);
    if (no_copies) {
        argv[argc++] = "--set";
        argv[argc++] = "copy_max=0";
    }
    for (; extra && *extra && argc < 31; extra++)
        argv[argc++] = *extra;
    argv[argc] = NULL;
    w->daemon = fork();
    if (w->daemon == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv(binary, (char *const *)(uintptr_t)argv);
        fprintf(stderr, "cannot start %s: %s\n", binary, strerror(errno));
        _exit(127);
    }
    for (int i = 0; i < 3000; i++) {
        if (answers(w->socket))
            return;
        if (waitpid(w->daemon, NULL, WNOHANG) == w->daemon)
            break;
        nap_ms(10);
    }
    fprintf(stderr, "the daemon %s did not come up\n", binary);
    abort();
}

int world_stop(struct world *w) {
    char command[200];
    int status = -1;
    if (w->daemon > 0) {
        (void)kill(w->daemon, SIGTERM);
        status = world_wait(w->daemon, 15);
    }
    w->daemon = 0;
    (void)snprintf(command, sizeof command, "rm -rf %s", w->folder);
    if (system(command))
        fprintf(stderr, "cannot remove %s\n", w->folder);
    return status;
}

int world_attach(struct world *w, const char *job) {
    struct occl_init_attr attr = {sizeof attr, w->socket, job, NULL};
    return occl_init(&attr);
}

static _Noreturn void child(struct world *w, const struct occl_unique_id *id, int rank, int size,
                            world_main main_of_rank, void *arg) {
    struct world_rank me = {rank, size, {0}, w, arg};
    /* A crash must end this rank, not go on with the test program's next case in it. */
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        (void)signal(crashes[i], SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    enum occl_result result = world_attach(w, "test");
    if (result == OCCL_SUCCESS)
        result = occl_comm_create(id, rank, size, NULL, &me.comm);
    if (result != OCCL_SUCCESS) {
        fprintf(stderr, "rank %d: attach or create gave %d: %s\n", rank, (int)result,
                occl_last_error());
        _exit(99);
    }
    int code = main_of_rank(&me);
    fflush(stderr);
    if (code == 0)
        (void)occl_finalize(); /* some tests have finalized already */
    exit(code);
}

void world_spawn(struct world *w, int size, world_main main_of_rank, void *arg, pid_t *out_pids) {
    struct occl_unique_id id;
    if (occl_get_unique_id(&id) != OCCL_SUCCESS)
        abort();
    fflush(stdout);
    fflush(stderr);
    for (int rank = 0; rank < size; rank++) {
        out_pids[rank] = fork();
        if (out_pids[rank] == 0)
            child(w, &id, rank, size, main_of_rank, arg);
    }
}

int world_wait(pid_t pid, int timeout_s) {
    double until = world_now() + (double)timeout_s * world_slowness();
    int status;
    for (long ms = 1; world_now() < until; ms = ms < 20 ? ms + 1 : 20) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        nap_ms(ms);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -1;
}

int world_run(struct world *w, int size, world_main main_of_rank, void *arg, int timeout_s) {
    pid_t pids[WORLD_RANKS_MAX];
    int failed = 0;
    double until = world_now() + (double)timeout_s * world_slowness();
    world_spawn(w, size, main_of_rank, arg, pids);
    for (int rank = 0; rank < size; rank++) {
        double left = (until - world_now()) / world_slowness();
        int status = world_wait(pids[rank], left > 1 ? (int)left : 1);
        if (status == 0)
            continue;
        failed++;
        if (status == -1)
            fprintf(stderr, "rank %d did not end in time\n", rank);
        else
            fprintf(stderr, "rank %d ended with status 0x%x\n", rank, (unsigned)status);
    }
    return failed;
}

void *world_shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

void world_fill(float *buffer, size_t count, int rank, uint64_t salt) {
    for (size_t i = 0; i < count; i++)
        buffer[i] = (float)world_pattern((uint64_t)rank, i + salt);
}

size_t world_wrong_sum(const float *buffer, size_t count, int size, uint64_t salt) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < size; r++)
            sum += world_pattern((uint64_t)r, i + salt);
        wrong += buffer[i] != (float)sum;
    }
    return wrong;
}

void *world_alloc(size_t bytes) {
    static void *kept[4096]; /* keeps them reachable for the leak checker */
    static uint32_t used;
    void *p = malloc(bytes);
    uint32_t slot = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
    if (!p || slot >= sizeof kept / sizeof kept[0])
        abort();
    kept[slot] = p;
    return p;
}
