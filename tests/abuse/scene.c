/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abuse/scene.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

uint64_t scene_random(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

int scene_seconds(void) {
    return getenv("ABUSE_SECONDS") ? atoi(getenv("ABUSE_SECONDS")) : 4;
}

uint64_t scene_seed(void) {
    return getenv("ABUSE_SEED") ? strtoull(getenv("ABUSE_SEED"), NULL, 10) : 1;
}

static int bystander(struct world_rank *me) {
    struct scene_shared *s = me->arg;
    const size_t most = 60000;
    void *zero_copy;
    float *buffer = malloc(most * sizeof(float));
    WORLD_OK(occl_mem_alloc(most * sizeof(float), &zero_copy));
    for (uint64_t i = 0;; i++) {
        size_t count = (size_t[]){1, 30, 900, most}[i % 4];
        float *b = i & 4 ? zero_copy : buffer, stop = 0;
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        struct occl_request request;
        attr.tag = 1 + (uint32_t)(i % 9);
        world_fill(b, count, me->rank, i);
        double start = world_now();
        WORLD_OK(occl_all_reduce(b, b, count, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &request));
        WORLD_OK(occl_wait(request));
        WORLD_CHECK(world_wrong_sum(b, count, me->size, i) == 0);
        if (me->rank == 0 && world_now() - start > s->slowest)
            s->slowest = world_now() - start;
        __atomic_add_fetch(&s->checked[me->rank], 1, __ATOMIC_RELAXED);
        if (i % 16 == 0) {
            stop = (float)__atomic_load_n(&s->stop, __ATOMIC_RELAXED);
            WORLD_OK(occl_broadcast(&stop, &stop, 1, OCCL_FLOAT32, 0, me->comm, NULL, NULL));
        }
        if (stop > 0)
            break;
    }
    free(buffer);
    return 0;
}

/* A process of its own, because the user changes: another tenant, whose processes are not dumpable,
 * so that their private buffers are staged. */
static pid_t start_bystanders(struct world *w, struct scene_shared *s) {
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    if (getuid() == 0 && (setgid(60001) || setuid(60001)))
        _exit(98);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user forgets it */
    _exit(world_run(w, SCENE_BYSTANDERS, bystander, s, 3600));
}

void scene_become_enemy(void) {
    (void)signal(SIGSEGV, SIG_DFL);
    (void)signal(SIGBUS, SIG_DFL);
    if (getuid() == 0 && (setgid(SCENE_ENEMY_UID) || setuid(SCENE_ENEMY_UID)))
        _exit(98);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user forgets it */
}

/* ---- what the daemon holds ---- */

struct scene_holdings scene_holdings_of(pid_t pid) {
    struct scene_holdings h = {0, 0};
    char path[64], line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *e = folder ? readdir(folder) : NULL; e; e = readdir(folder))
        h.files += e->d_name[0] != '.';
    if (folder)
        (void)closedir(folder);
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        h.mappings += strstr(line, "memfd:") != NULL;
    if (maps)
        (void)fclose(maps);
    return h;
}

/* Tear-down follows the kernel's report of the last exit: a moment is granted. */
void scene_expect_holdings(pid_t pid, struct scene_holdings before) {
    struct scene_holdings now = {0, 0};
    for (int i = 0; i < 200; i++) {
        now = scene_holdings_of(pid);
        if (now.files == before.files && now.mappings == before.mappings)
            return;
        usleep(20000);
    }
    assert_int_equal(now.files, before.files);
    assert_int_equal(now.mappings, before.mappings);
}

void scene_open(struct scene *scene, const char *const *extra) {
    memset(scene, 0, sizeof *scene);
    world_start(&scene->w, extra);
    usleep(50000);
    scene->before = scene_holdings_of(scene->w.daemon);
    scene->s = world_shared(sizeof *scene->s);
    scene->bystanders = start_bystanders(&scene->w, scene->s);
}

static uint64_t checked(const struct scene *scene) {
    return __atomic_load_n(&scene->s->checked[0], __ATOMIC_RELAXED);
}

void scene_expect_progress(const struct scene *scene) {
    uint64_t wanted = checked(scene) + 20;
    for (int i = 0; i < 100 && checked(scene) < wanted; i++)
        usleep(50000);
    assert_true(checked(scene) >= wanted);
}

void scene_close(struct scene *scene) {
    scene_expect_progress(scene);
    __atomic_store_n(&scene->s->stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(world_wait(scene->bystanders, 20), 0);
    scene_expect_holdings(scene->w.daemon, scene->before);
    assert_int_equal(world_stop(&scene->w), 0);
    printf("    %llu results checked, the slowest op took %.0f ms\n",
           (unsigned long long)checked(scene), scene->s->slowest * 1e3);
}
