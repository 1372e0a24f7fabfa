/* SPDX-License-Identifier: Apache-2.0 */
/* A client under a memory limit allocates until there is no more. What it populates is its own
 * account's: it may be refused or killed, the daemon pays nothing and lives. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/abuse/scene.h"

#define MIB (1ull << 20)
#define LIMIT_BYTES (64 * MIB)
#define STEP_BYTES (4 * MIB)
#define DAEMON_BYTES_MAX (16 * MIB) /* tables and pages; far less than what the client takes */

/* Version 2, or the memory controller of version 1. */
struct hierarchy {
    const char *root, *limit, *usage;
};
static const struct hierarchy hierarchies[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current"},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"},
};

static bool write_number(const char *folder, const char *file, uint64_t number) {
    char path[192];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *out = fopen(path, "r+");
    if (!out)
        return false;
    bool good = fprintf(out, "%llu", (unsigned long long)number) > 0;
    return fclose(out) == 0 && good;
}

static uint64_t read_number(const char *folder, const char *file) {
    char path[192];
    unsigned long long number = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *in = fopen(path, "r");
    if (in && fscanf(in, "%llu", &number) != 1)
        number = 0;
    if (in)
        (void)fclose(in);
    return number;
}

struct cages {
    const struct hierarchy *of;
    char client[128], daemon[128];
};

static bool make_cages(struct cages *c) {
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
        c->of = &hierarchies[i];
        (void)snprintf(c->client, sizeof c->client, "%s/occl-test-client-%d", c->of->root,
                       (int)getpid());
        (void)snprintf(c->daemon, sizeof c->daemon, "%s/occl-test-daemon-%d", c->of->root,
                       (int)getpid());
        if (mkdir(c->client, 0755) == 0 && mkdir(c->daemon, 0755) == 0 &&
            write_number(c->client, c->of->limit, LIMIT_BYTES))
            return true;
        (void)rmdir(c->client);
        (void)rmdir(c->daemon);
    }
    return false;
}

struct stage {
    struct cages cages;
    int in_cage, refused;
    uint64_t taken_bytes;
};

static int greedy_rank(struct world_rank *me) {
    struct stage *s = me->arg;
    if (me->rank == 0) { /* not in the cage; waits for the one that is */
        WORLD_CHECK(occl_barrier(me->comm, NULL, NULL) == OCCL_ERROR_PEER_FAILED);
        WORLD_CHECK(strstr(occl_last_error(), "rank 1"));
        return 0;
    }
    s->in_cage = write_number(s->cages.client, "cgroup.procs", (uint64_t)getpid());
    while (s->in_cage && s->taken_bytes < 4 * LIMIT_BYTES) {
        void *memory;
        enum occl_result result = occl_mem_alloc(STEP_BYTES, &memory);
        if (result != OCCL_SUCCESS) {
            s->refused = result;
            _exit(0);
        }
        memset(memory, 1, STEP_BYTES);
        __atomic_add_fetch(&s->taken_bytes, STEP_BYTES, __ATOMIC_SEQ_CST);
        usleep(3000);
    }
    _exit(5);
}

static void test_client_at_its_memory_limit(void **state) {
    struct scene scene;
    struct stage *s = world_shared(sizeof *s);
    pid_t pids[2];
    (void)state;
    if (!make_cages(&s->cages)) {
        printf("SKIP test_client_at_its_memory_limit: no memory cgroup can be made: %s\n",
               strerror(errno));
        skip();
    }
    scene_open(&scene, NULL);
    scene_expect_progress(&scene);
    bool moved = write_number(s->cages.daemon, "cgroup.procs", (uint64_t)scene.w.daemon);
    world_spawn(&scene.w, 2, greedy_rank, s, pids);
    uint64_t most = 0;
    int greedy = -1, waiting;
    for (int i = 0; i < 2000 && kill(pids[1], 0) == 0 && s->taken_bytes < LIMIT_BYTES / 2; i++)
        usleep(2000);
    most = read_number(s->cages.daemon, s->cages.of->usage);
    greedy = world_wait(pids[1], 30);
    waiting = world_wait(pids[0], 10);
    uint64_t after = read_number(s->cages.daemon, s->cages.of->usage);
    if (after > most)
        most = after;
    printf("    the client took %llu MiB, then %s; the daemon's account stands at %llu KiB\n",
           (unsigned long long)(s->taken_bytes / MIB),
           s->refused ? "was refused more" : "was killed", (unsigned long long)most / 1024);
    scene_expect_progress(&scene);
    scene_close(&scene);
    (void)rmdir(s->cages.client);
    (void)rmdir(s->cages.daemon);
    assert_true(moved && s->in_cage);
    assert_int_equal(waiting, 0);
    assert_true(greedy == SIGKILL || (greedy == 0 && s->refused));
    assert_true(s->taken_bytes >= LIMIT_BYTES / 2 && s->taken_bytes <= LIMIT_BYTES);
    assert_true(most < DAEMON_BYTES_MAX);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_at_its_memory_limit),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
