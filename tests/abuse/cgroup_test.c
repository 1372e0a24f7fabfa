/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on memory accounts. A client under a memory limit allocates until there is no more: what
 * it populates is its own account's, so it may be refused or killed, and the daemon pays nothing. A
 * client that populates nothing lets the daemon do it: then its quota bounds what the daemon pays,
 * below the limit that the daemon knows of. */
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

#include "shm_ipc/atomics.h"
#include "tests/abuse/raw.h"
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

/* ---- the daemon is made to populate ---- */

#define HOLLOW_BYTES (8 * MIB)
#define HOLLOWS_MAX 64

/* A communicator of one rank: raw_attach chooses at random. */
static bool attach_alone(struct raw_client *e) {
    for (int i = 0; i < 50; i++) {
        if (raw_attach(e) && e->comm && e->comm_ranks == 1)
            return true;
        raw_drop(e);
    }
    return false;
}

/* Regions that nobody has touched, as many as the quota allows. */
static uint32_t take_hollows(struct raw_client *e, uint32_t *numbers) {
    char buffer[OCCL_MESSAGE_BYTES_MAX];
    int fds[OCCL_MESSAGE_FDS_MAX];
    for (uint32_t n = 0; n < HOLLOWS_MAX; n++) {
        struct occl_msg_region_alloc alloc;
        memset(&alloc, 0, sizeof alloc);
        alloc.bytes = HOLLOW_BYTES;
        if (!raw_post(e, &alloc, sizeof alloc, OCCL_MSG_REGION_ALLOC) ||
            !raw_answer(e, buffer, fds))
            return 0;
        const struct occl_msg_region *r = (void *)buffer;
        if (r->h.type != OCCL_MSG_REGION)
            return n;
        numbers[n] = r->region;
        occl_fd_close_all(fds);
    }
    return HOLLOWS_MAX;
}

/* Lanes read and write all of them. */
static void fill_hollows(struct raw_client *e, const uint32_t *numbers, uint32_t count) {
    struct occl_msg_plain bell;
    for (uint32_t n = 0; n + 1 < count; n++) {
        struct occl_sqe *s = &e->ring[e->tail++ & (e->entries - 1)];
        memset(s, 0, sizeof *s);
        s->verb = OCCL_SQE_SUBMIT;
        s->priority = 255;
        s->comm = e->comm_number;
        s->key.peers = OCCL_PEERS_ALL;
        s->key.tag = 1;
        s->key.instance = n;
        s->signature.kind = OCCL_OP_ALL_REDUCE;
        s->signature.dtype = OCCL_FLOAT32;
        s->signature.redop = OCCL_SUM;
        s->signature.count = HOLLOW_BYTES / 4;
        s->src = (struct occl_buffer_ref){OCCL_SPACE_REGION, numbers[n], 0};
        s->dst = (struct occl_buffer_ref){OCCL_SPACE_REGION, numbers[n + 1], 0};
        s->user_data = n;
    }
    occl_publish32(&e->page->sq_tail.value, e->tail);
    memset(&bell, 0, sizeof bell);
    (void)raw_post(e, &bell, sizeof bell, OCCL_MSG_DOORBELL);
    for (int i = 0; i < 2000 && occl_observe32(&e->page->cq_tail.value) < e->tail; i++)
        usleep(5000);
}

struct hollow_stage {
    uint32_t regions, completed;
    int done, leave;
};

static _Noreturn void hollow_client(const char *socket, struct hollow_stage *s) {
    struct raw_client e;
    uint32_t numbers[HOLLOWS_MAX];
    scene_become_enemy();
    raw_init(&e, socket, scene_seed());
    if (!attach_alone(&e))
        _exit(2);
    s->regions = take_hollows(&e, numbers);
    fill_hollows(&e, numbers, s->regions);
    s->completed = occl_observe32(&e.page->cq_tail.value);
    __atomic_store_n(&s->done, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&s->leave, __ATOMIC_SEQ_CST))
        usleep(1000);
    _exit(0);
}

static void test_daemon_account_is_bounded_by_quotas(void **state) {
    static const char *const limit[] = {"--set", "memory_limit=256MiB", NULL};
    struct scene scene;
    struct hollow_stage *s = world_shared(sizeof *s);
    struct cages cages;
    (void)state;
    if (!make_cages(&cages)) {
        printf("SKIP test_daemon_account_is_bounded_by_quotas: no memory cgroup can be made: %s\n",
               strerror(errno));
        skip();
    }
    scene_open(&scene, limit);
    bool caged = write_number(cages.daemon, cages.of->limit, 256 * MIB) &&
                 write_number(cages.daemon, "cgroup.procs", (uint64_t)scene.w.daemon);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        hollow_client(scene.w.socket, s);
    for (int i = 0; i < 6000 && kill(pid, 0) == 0 && !__atomic_load_n(&s->done, __ATOMIC_SEQ_CST);
         i++)
        usleep(5000);
    uint64_t during = read_number(cages.daemon, cages.of->usage);
    bool alive = kill(scene.w.daemon, 0) == 0;
    __atomic_store_n(&s->leave, 1, __ATOMIC_SEQ_CST);
    int status = world_wait(pid, 10);
    scene_expect_progress(&scene);
    uint64_t after = UINT64_MAX;
    for (int i = 0; i < 200 && after > DAEMON_BYTES_MAX; i++) {
        usleep(10000);
        after = read_number(cages.daemon, cages.of->usage);
    }
    printf("    %u regions filled by %u ops; the daemon's account: %llu MiB, then %llu KiB\n",
           s->regions, s->completed, (unsigned long long)(during / MIB),
           (unsigned long long)after / 1024);
    scene_close(&scene);
    (void)rmdir(cages.client);
    (void)rmdir(cages.daemon);
    assert_true(caged && alive);
    assert_int_equal(status, 0);
    /* Half of three quarters of the limit, for one tenant. */
    assert_true(s->regions >= 8 && s->regions <= 12);
    assert_int_equal(s->completed, s->regions - 1);
    assert_true(during >= 60 * MIB && during <= 128 * MIB);
    assert_true(after < DAEMON_BYTES_MAX);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_at_its_memory_limit),
        cmocka_unit_test(test_daemon_account_is_bounded_by_quotas),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
