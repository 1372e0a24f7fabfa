/* SPDX-License-Identifier: Apache-2.0 */
/* `why` beside a tenant that does its worst against it: pages full of invented ops that it writes
 * at full speed, and as many questions as it can send. The rank that an honest job waits for is
 * named within a second all the time, to the operator and to the job's owner: late, then stopped.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/record.h"
#include "tests/abuse/raw.h"
#include "tests/abuse/scene.h"

#define OWNER_UID 60003
#define ENEMY_RANKS 8
#define ENEMY_COMMS 100 /* their ops are more than any answer holds */
#define FLOODS 4
#define ANSWER_BYTES (64u << 20)
#define WHY_S 1.0
#define PING_S 0.1

/* ---- the enemy ---- */

struct enemy {
    int ready;
    uint64_t written, asked; /* words; answers it got */
    int refused;
};

static struct invented {
    struct occl_op_key key;
    uint64_t print;
    bool known;
} inventions[OCCL_RECORDS];

/* A key for each record, so that no look at the page can tell the op from a true one. */
static void invent(void) {
    for (uint32_t i = 0, known = 0; known < OCCL_RECORDS; i++) {
        const struct occl_op_key keys[] = {
            {0u << 16 | 1u, 1 + i, 0},
            {OCCL_PEERS_ALL, 1 + i, 0},
            {OCCL_PEERS_ALL, 0, i % (OCCL_RUNS * OCCL_RUN_OPS)},
        };
        for (size_t k = 0; k < 3; k++) {
            struct occl_place place = occl_place_of(keys[k]);
            known += !inventions[place.slot].known;
            inventions[place.slot] = (struct invented){keys[k], place.print, true};
        }
    }
}

static void invent_op(const struct occl_records *page, uint32_t slot, uint32_t index) {
    const struct invented *op = &inventions[slot];
    struct occl_signature sig = {
        .kind = slot < OCCL_PAIRS ? OCCL_OP_SEND : OCCL_OP_ALL_REDUCE, .dtype = 7, .count = 4};
    struct occl_line *line = occl_line_at(occl_record_at(page, slot), index);
    occl_line_fill(line, op->key, &sig);
    line->submit_ticks = line->wait_since_ticks = 1;
    occl_publish64(&line->flag, occl_flag_make(op->print, OCCL_FLAG_READY | OCCL_FLAG_BLOCKED));
    occl_publish64(&occl_claim_of(page, slot)->word, OCCL_WORD_CLAIMED | op->print);
}

/* One communicator over all sessions. */
static bool make_comm(struct raw_client *sessions, struct occl_records *out_page) {
    char buffer[OCCL_MESSAGE_BYTES_MAX];
    struct occl_msg_comm_create create;
    struct occl_unique_id id;
    int fds[OCCL_MESSAGE_FDS_MAX];
    memset(&create, 0, sizeof create);
    (void)occl_get_unique_id(&id);
    memcpy(create.unique_id.bytes, id.bytes, sizeof id.bytes);
    create.ranks = ENEMY_RANKS;
    create.priority = 255;
    for (uint32_t rank = 0; rank < ENEMY_RANKS; rank++) {
        create.rank = rank;
        if (!raw_post(&sessions[rank], &create, sizeof create, OCCL_MSG_COMM_CREATE))
            return false;
    }
    for (uint32_t rank = 0; rank < ENEMY_RANKS; rank++) {
        const struct occl_msg_comm *comm = (void *)buffer;
        if (!raw_answer(&sessions[rank], buffer, fds) || comm->h.type != OCCL_MSG_COMM)
            return false;
        void *base =
            rank == 0 ? mmap(NULL, comm->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0)
                      : NULL;
        (void)close(fds[0]);
        if (rank == 0 &&
            (base == MAP_FAILED || occl_records_open(base, comm->page_bytes, out_page) != OCCL_OK))
            return false;
    }
    return true;
}

static void *flood(void *arg) {
    static const char *const requests[] = {"why", "ops", "jobs", "comms", "status", "usage"};
    struct enemy *e = ((void **)arg)[0];
    const char *socket = ((void **)arg)[1];
    for (uint32_t i = 0;; i++) {
        char request[64];
        (void)snprintf(request, sizeof request, "{\"verb\": \"%s\"}", requests[i % 6]);
        if (raw_ask(socket, request, NULL, 0) >= 0)
            __atomic_add_fetch(&e->asked, 1, __ATOMIC_RELAXED);
        else
            __atomic_add_fetch(&e->refused, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static _Noreturn void do_worst(struct enemy *e, const char *socket) {
    static struct raw_client sessions[ENEMY_RANKS];
    static struct occl_records pages[ENEMY_COMMS];
    void *args[] = {e, (void *)(uintptr_t)socket};
    uint64_t random = scene_seed();
    pthread_t thread;
    scene_become_enemy();
    invent();
    for (uint32_t i = 0; i < ENEMY_RANKS; i++) {
        raw_init(&sessions[i], socket, i);
        sessions[i].answer_s = 20;
        if (!raw_hello(&sessions[i], "enemy"))
            _exit(1);
        sessions[i].page->threads_using = sessions[i].page->threads_waiting = 1;
    }
    for (uint32_t i = 0; i < ENEMY_COMMS; i++) {
        if (!make_comm(sessions, &pages[i]))
            _exit(2);
        for (uint32_t slot = 0; slot < OCCL_RECORDS; slot++)
            for (uint32_t rank = 0; rank < (slot < OCCL_PAIRS ? 1 : ENEMY_RANKS - 1); rank++)
                invent_op(&pages[i], slot, rank);
    }
    __atomic_store_n(&e->ready, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < FLOODS; i++)
        if (pthread_create(&thread, NULL, flood, args))
            _exit(3);
    for (;;) {
        uint64_t x = scene_random(&random);
        const struct occl_records *page = &pages[x % ENEMY_COMMS];
        uint32_t slot = (uint32_t)(x >> 16) % OCCL_RECORDS;
        if (x >> 60)
            invent_op(page, slot, (uint32_t)(x >> 32) & 1);
        else
            ((uint64_t *)(void *)occl_record_at(page, slot))[x >> 40 & 127] = scene_random(&random);
        __atomic_add_fetch(&e->written, 1, __ATOMIC_RELAXED);
    }
}

/* ---- the honest job ---- */

struct honest {
    int joined;
    pid_t pids[3];
    enum occl_result results[3];
};

/* Ranks 0 and 2 wait for rank 1, which never comes. */
static int wait_for_one(struct world_rank *me) {
    struct honest *h = me->arg;
    float value = 1;
    h->pids[me->rank] = getpid();
    __atomic_add_fetch(&h->joined, 1, __ATOMIC_SEQ_CST);
    if (me->rank == 1)
        for (;;)
            (void)pause();
    h->results[me->rank] =
        occl_all_reduce(&value, &value, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
    return h->results[me->rank] != OCCL_ERROR_PEER_FAILED;
}

static void become_owner(void) {
    if (getuid() == 0 && (setgid(OWNER_UID) || setuid(OWNER_UID)))
        _exit(98);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user forgets it */
}

static pid_t start_honest(struct world *w, struct honest *h) {
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    become_owner();
    _exit(world_run(w, 3, wait_for_one, h, 3600) == 1 ? 0 : 1); /* rank 1 is killed */
}

/* ---- questions ---- */

/* The process is among the culprits, with this verdict. */
static bool is_named(const char *answer, pid_t pid, const char *verdict) {
    char wanted[32], word[32];
    const char *list = strstr(answer, "\"culprits\":[");
    (void)snprintf(wanted, sizeof wanted, "\"pid\":%d,", (int)pid);
    (void)snprintf(word, sizeof word, "\"verdict\":\"%s\"", verdict);
    for (const char *at = list ? strstr(list, wanted) : NULL; at; at = strstr(at + 1, wanted)) {
        const char *end = strchr(at, '}');
        const char *found = strstr(at, word);
        if (found && end && found < end)
            return true;
    }
    return false;
}

/* In a child, for the owner's question has to come from the owner. */
static int question(const char *socket, pid_t pid, const char *verdict, bool owner) {
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char *answer = malloc(ANSWER_BYTES);
        if (owner)
            become_owner();
        double took = answer ? raw_ask(socket, "{\"verb\": \"why\"}", answer, ANSWER_BYTES) : -1;
        bool named = took >= 0 && is_named(answer, pid, verdict);
        bool quiet = !owner || took < 0 || !strstr(answer, "enemy");
        if (took < 0 || took > WHY_S * world_slowness() || !named || !quiet)
            fprintf(stderr, "%s: %.3f s, %s is %snamed%s\n", owner ? "owner" : "operator", took,
                    verdict, named ? "" : "not ", quiet ? "" : ", the other tenant is shown");
        _exit(took < 0 ? 2 : !named ? 3 : !quiet ? 4 : took > WHY_S * world_slowness() ? 5 : 0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_named(const struct scene *scene, pid_t pid, const char *verdict) {
    double end = world_now() + (scene_seconds() + 1) / 3.0;
    for (int i = 0; i < 6 || world_now() < end; i++)
        assert_int_equal(question(scene->w.socket, pid, verdict, i & 1), 0);
}

static int compare(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void expect_quick_pings(const struct scene *scene) {
    double took[21];
    for (int i = 0; i < 21; i++) {
        took[i] = raw_ask(scene->w.socket, "{\"verb\": \"ping\"}", NULL, 0);
        assert_true(took[i] >= 0);
        usleep(10000);
    }
    qsort(took, 21, sizeof took[0], compare);
    printf("    pings: median %.1f ms, slowest %.1f ms\n", took[10] * 1e3, took[20] * 1e3);
    assert_true(took[10] < PING_S * world_slowness());
}

static void test_why_beside_a_tenant_that_does_its_worst(void **state) {
    struct scene scene;
    struct enemy *e = world_shared(sizeof *e);
    struct honest *h = world_shared(sizeof *h);
    (void)state;
    if (getuid() != 0) {
        printf("SKIP test_why_beside_a_tenant_that_does_its_worst: needs root for two users\n");
        skip();
    }
    scene_open(&scene, NULL);
    /* The enemy's pages come first wherever anything is walked over in the order of its making. */
    (void)fflush(NULL);
    pid_t enemy = fork();
    if (enemy == 0)
        do_worst(e, scene.w.socket);
    for (int i = 0; i < 2000 && !__atomic_load_n(&e->ready, __ATOMIC_SEQ_CST); i++)
        usleep(10000);
    assert_int_equal(e->ready, 1);
    pid_t honest = start_honest(&scene.w, h);
    for (int i = 0; i < 2000 && __atomic_load_n(&h->joined, __ATOMIC_SEQ_CST) < 3; i++)
        usleep(10000);
    assert_int_equal(h->joined, 3);
    usleep(500000);
    expect_named(&scene, h->pids[1], "late");
    expect_quick_pings(&scene);
    (void)kill(h->pids[1], SIGSTOP);
    usleep(100000);
    expect_named(&scene, h->pids[1], "stopped");
    (void)kill(h->pids[1], SIGKILL);
    assert_int_equal(world_wait(honest, 20), 0);
    assert_int_equal(h->results[0], OCCL_ERROR_PEER_FAILED);
    scene_expect_progress(&scene);
    /* It really did what this test is about. */
    assert_int_equal(kill(enemy, 0), 0);
    printf("    the enemy wrote %llu words, got %llu answers, was refused %d times\n",
           (unsigned long long)e->written, (unsigned long long)e->asked, e->refused);
    assert_true(e->written > 10000 && e->asked > 0);
    (void)kill(enemy, SIGKILL);
    (void)world_wait(enemy, 10);
    scene_close(&scene);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_why_beside_a_tenant_that_does_its_worst),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
