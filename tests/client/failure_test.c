/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths, deadlines, stops and the daemon's own end. Bounds are asserted at ten times the stated
 * value (thirty times under sanitizers). */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

static struct world w;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w) == 0 ? 0 : -1;
}
static void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Ranks tell the parent where they are. */
struct stage {
    uint32_t ready[WORLD_RANKS_MAX];
    double event_at; /* when the parent did something */
    double seen_at[WORLD_RANKS_MAX];
    uint32_t go;
};
static void reach(struct stage *s, int rank) {
    __atomic_fetch_add(&s->ready[rank], 1, __ATOMIC_SEQ_CST);
}
static void await_ranks(const struct stage *s, int size, uint32_t count) {
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 6000 && __atomic_load_n(&s->ready[r], __ATOMIC_SEQ_CST) < count; i++)
            pause_ms(5);
}

/* B01: ranks 3 and 6 of 8 never come; everybody else names them. */
static int b01(struct world_rank *me) {
    float v = 1, sum;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = 1000000000;
    for (int i = 0; i < 2; i++)
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    if (me->rank == 3 || me->rank == 6) {
        pause_ms(3000);
        return 0;
    }
    double start = world_now();
    enum occl_result result =
        occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL);
    WORLD_CHECK(result == OCCL_ERROR_TIMEOUT);
    WORLD_CHECK(strstr(occl_last_error(), "missing ranks: 3,6 of 8"));
    WORLD_CHECK(strstr(occl_last_error(), "all_reduce #2"));
    WORLD_CHECK(strstr(occl_last_error(), "communicator"));
    WORLD_CHECK(world_now() - start < 3.0);
    return 0;
}
static void test_B01_timeout_names_missing_ranks(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 8, b01, NULL, 20), 0);
}

/* B03: only the root of a broadcast calls it; large, so that nothing is buffered. Then with peers
 * that leave. */
static int b03(struct world_rank *me) {
    static float big[100000];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = 500000000;
    if (me->rank == 0) {
        enum occl_result result =
            occl_broadcast(big, NULL, 100000, OCCL_FLOAT32, 0, me->comm, &attr, NULL);
        WORLD_CHECK(result == OCCL_ERROR_TIMEOUT);
        WORLD_CHECK(strstr(occl_last_error(), "missing ranks: 1-3 of 4"));
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        result = occl_broadcast(big, NULL, 100000, OCCL_FLOAT32, 0, me->comm, NULL, NULL);
        WORLD_CHECK(result == OCCL_ERROR_TIMEOUT || result == OCCL_ERROR_PEER_FAILED);
        return 0;
    }
    pause_ms(1000);
    /* Late members of the op that gave up learn why, and the communicator goes on. */
    enum occl_result late =
        occl_broadcast(NULL, big, 100000, OCCL_FLOAT32, 0, me->comm, NULL, NULL);
    WORLD_CHECK(late == OCCL_ERROR_TIMEOUT);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0; /* leaves: finalize */
}
static void test_B03_broadcast_root_alone(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, b03, NULL, 20), 0);
}

/* B04: a receive that no one sends to; later traffic goes on. */
static int b04(struct world_rank *me) {
    int value = 41 + me->rank;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = 300000000;
    attr.tag = 9;
    if (me->rank == 0) {
        enum occl_result result = occl_recv(&value, 1, OCCL_INT32, 1, me->comm, &attr, NULL);
        WORLD_CHECK(result == OCCL_ERROR_TIMEOUT);
        WORLD_CHECK(strstr(occl_last_error(), "recv") && strstr(occl_last_error(), "rank 1"));
        WORLD_OK(occl_recv(&value, 1, OCCL_INT32, 1, me->comm, NULL, NULL));
        WORLD_CHECK(value == 42);
        return 0;
    }
    pause_ms(600);
    WORLD_OK(occl_send(&value, 1, OCCL_INT32, 0, me->comm, NULL, NULL));
    return 0;
}
static void test_B04_receive_times_out(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, b04, NULL, 20), 0);
}

/* A loop of all-reduces of one size until an error; checks every result on the way. */
struct loop_arg {
    struct stage *stage;
    size_t count;
    bool zero_copy, async;
    int victim;
};
static int loop_until_error(struct world_rank *me, const struct loop_arg *arg,
                            enum occl_result *out_result) {
    void *p = NULL, *q = NULL;
    if (arg->zero_copy) {
        WORLD_OK(occl_mem_alloc(arg->count * 4, &p));
        WORLD_OK(occl_mem_alloc(arg->count * 4, &q));
    } else {
        p = world_alloc(arg->count * 4);
        q = world_alloc(arg->count * 4);
    }
    for (uint64_t i = 0;; i++) {
        if (i < 3)
            world_fill(p, arg->count, me->rank, i);
        struct occl_request request;
        enum occl_result result = occl_all_reduce(p, q, arg->count, OCCL_FLOAT32, OCCL_SUM,
                                                  me->comm, NULL, arg->async ? &request : NULL);
        if (arg->async && result == OCCL_SUCCESS)
            result = occl_wait(request);
        if (result != OCCL_SUCCESS) {
            *out_result = result;
            arg->stage->seen_at[me->rank] = world_now();
            return 0;
        }
        if (i < 3)
            WORLD_CHECK(world_wrong_sum(q, arg->count, me->size, i) == 0);
        if (i == 3)
            reach(arg->stage, me->rank);
    }
}
static int survivor(struct world_rank *me) {
    const struct loop_arg *arg = me->arg;
    enum occl_result result, error;
    char expected[32];
    if (loop_until_error(me, arg, &result))
        return 1;
    (void)snprintf(expected, sizeof expected, "rank %d", arg->victim);
    WORLD_CHECK(result == OCCL_ERROR_PEER_FAILED);
    WORLD_CHECK(strstr(occl_last_error(), expected));
    WORLD_CHECK(strstr(occl_last_error(), "pid"));
    WORLD_OK(occl_comm_get_async_error(me->comm, &error));
    WORLD_CHECK(error == OCCL_ERROR_PEER_FAILED);
    /* New ops fail at once. */
    double start = world_now();
    WORLD_CHECK(occl_barrier(me->comm, NULL, NULL) == OCCL_ERROR_PEER_FAILED);
    WORLD_CHECK(world_now() - start < 1.0);
    WORLD_OK(occl_comm_destroy(me->comm));
    return 0;
}
static void kill_one(size_t count, bool zero_copy, bool async, int size, int victim) {
    struct stage *s = world_shared(sizeof *s);
    struct loop_arg arg = {s, count, zero_copy, async, victim};
    pid_t pids[WORLD_RANKS_MAX];
    int failed = 0;
    world_spawn(&w, size, survivor, &arg, pids);
    await_ranks(s, size, 1);
    double killed_at = world_now();
    assert_int_equal(kill(pids[victim], SIGKILL), 0);
    for (int r = 0; r < size; r++) {
        int status = world_wait(pids[r], 20);
        if (r == victim)
            continue;
        failed += status != 0;
        double took = s->seen_at[r] - killed_at;
        if (took > 0.5 * world_slowness()) {
            print_error("rank %d saw the death after %.3f s\n", r, took);
            failed++;
        }
    }
    assert_int_equal(failed, 0);
}
static void test_kill_during_tiny_ops(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++)
        kill_one(2, true, false, 4, i % 4);
}
static void test_kill_during_local_ops(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++)
        kill_one(1000000, true, false, 4, i % 4);
}
static void test_kill_during_any_pointer_ops(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++)
        kill_one(500000, false, false, 3, i % 3);
}
static void test_kill_during_async_ops(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++)
        kill_one(300000, true, true, 4, i % 4);
}

/* D03: survivors abort, each by itself, twice, and other communicators go on. */
static int d03(struct world_rank *me) {
    const struct loop_arg *arg = me->arg;
    struct occl_comm pair = {0};
    enum occl_result result;
    float v = 1, sum = 0;
    WORLD_OK(occl_comm_split(me->comm, me->rank == 2 ? -1 : 0, me->rank, NULL, &pair));
    if (loop_until_error(me, arg, &result))
        return 1;
    double start = world_now();
    WORLD_OK(occl_comm_abort(me->comm));
    WORLD_CHECK(occl_comm_abort(me->comm) == OCCL_ERROR_HANDLE);
    WORLD_CHECK(world_now() - start < 2.0 * world_slowness());
    for (int i = 0; i < 100; i++) {
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, pair, NULL, NULL));
        WORLD_CHECK(sum == 3);
    }
    return 0;
}
/* Ops of the rank that aborts end at once, however many there are, and say who did it. */
static int aborts_many(struct world_rank *me) {
    struct occl_request ops[60];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    float v[60] = {0}, sum[60];
    struct occl_comm comm;
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
    if (me->rank == 0) {
        for (uint32_t i = 0; i < 60; i++) {
            attr.tag = i + 1;
            WORLD_OK(
                occl_all_reduce(&v[i], &sum[i], 1, OCCL_FLOAT32, OCCL_SUM, comm, &attr, &ops[i]));
        }
        double start = world_now();
        WORLD_OK(occl_comm_abort(comm));
        WORLD_CHECK(world_now() - start < 0.5 * world_slowness());
        for (uint32_t i = 0; i < 60; i++) {
            WORLD_CHECK(occl_wait(ops[i]) == OCCL_ERROR_ABORTED);
            WORLD_CHECK(strstr(occl_last_error(), "this rank aborted the communicator"));
        }
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_abort_with_many_ops(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, aborts_many, NULL, 30), 0);
}
static void test_D03_abort_after_death(void **state) {
    struct stage *s = world_shared(sizeof *s);
    struct loop_arg arg = {s, 1000, true, false, 2};
    pid_t pids[4];
    (void)state;
    world_spawn(&w, 4, d03, &arg, pids);
    await_ranks(s, 4, 1);
    (void)kill(pids[2], SIGKILL);
    for (int r = 0; r < 4; r++)
        if (r != 2)
            assert_int_equal(world_wait(pids[r], 20), 0);
        else
            (void)world_wait(pids[r], 20);
}

/* D04: a stopped rank is late, not dead; the others use little processor time meanwhile. */
static int d04(struct world_rank *me) {
    struct stage *s = me->arg;
    float v = (float)me->rank, sum;
    struct rusage before, after;
    for (int i = 0; i < 100; i++) {
        if (i == 50) {
            reach(s, me->rank);
            while (!__atomic_load_n(&s->go, __ATOMIC_SEQ_CST))
                pause_ms(1);
            (void)getrusage(RUSAGE_SELF, &before);
        }
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
        WORLD_CHECK(sum == 6);
        if (i == 50) {
            (void)getrusage(RUSAGE_SELF, &after);
            double cpu = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                         (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                         (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6 +
                         (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
            WORLD_CHECK(cpu < 0.2 * world_slowness());
        }
    }
    return 0;
}
static void test_D04_stopped_is_late_not_dead(void **state) {
    struct stage *s = world_shared(sizeof *s);
    pid_t pids[4];
    (void)state;
    world_spawn(&w, 4, d04, s, pids);
    await_ranks(s, 4, 1);
    (void)kill(pids[2], SIGSTOP);
    __atomic_store_n(&s->go, 1, __ATOMIC_SEQ_CST);
    pause_ms(2000);
    (void)kill(pids[2], SIGCONT);
    for (int r = 0; r < 4; r++)
        assert_int_equal(world_wait(pids[r], 20), 0);
}

/* D06: one rank exits without destroying anything; the others destroy and leave. */
static int d06(struct world_rank *me) {
    float v = 1, sum;
    WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    if (me->rank == 1)
        _exit(0);
    double start = world_now();
    WORLD_OK(occl_comm_destroy(me->comm));
    WORLD_CHECK(world_now() - start < 2.0 * world_slowness());
    return 0;
}
static void test_D06_destroy_is_local(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 4, d06, NULL, 20), 0);
}

/* The other tenant of the daemon: checks its results while everything else is killed. */
static int bystander(struct world_rank *me) {
    struct stage *s = me->arg;
    static float in[5000], out[5000];
    for (uint64_t i = 0;; i++) {
        int stop = (int)__atomic_load_n(&s->go, __ATOMIC_SEQ_CST), all;
        world_fill(in, 5000, me->rank, i);
        WORLD_OK(occl_all_reduce(in, out, 5000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
        WORLD_CHECK(world_wrong_sum(out, 5000, me->size, i) == 0);
        WORLD_OK(occl_all_reduce(&stop, &all, 1, OCCL_INT32, OCCL_MIN, me->comm, NULL, NULL));
        if (all)
            return 0;
    }
}
static int victim_main(struct world_rank *me) {
    const struct loop_arg *arg = me->arg;
    enum occl_result result;
    (void)loop_until_error(me, arg, &result);
    return 0;
}
static void test_D01_kill_all_again_and_again(void **state) {
    struct stage *s = world_shared(sizeof *s), *t = world_shared(sizeof *t);
    struct loop_arg arg = {t, 40000, true, false, 0};
    pid_t pids[4], others[2];
    (void)state;
    world_spawn(&w, 2, bystander, s, others);
    for (int cycle = 0; cycle < 15; cycle++) {
        memset(t, 0, sizeof *t);
        world_spawn(&w, 4, victim_main, &arg, pids);
        await_ranks(t, 4, 1);
        for (int r = 0; r < 4; r++)
            (void)kill(pids[r], SIGKILL);
        for (int r = 0; r < 4; r++)
            (void)world_wait(pids[r], 10);
    }
    __atomic_store_n(&s->go, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < 2; r++)
        assert_int_equal(world_wait(others[r], 20), 0);
}

/* The daemon is killed while ranks are in all sorts of calls: everybody returns DAEMON_LOST soon.
 */
struct lost_arg {
    struct stage *stage;
    int what;
};
static int lost_rank(struct world_rank *me) {
    const struct lost_arg *arg = me->arg;
    static float big[200000];
    float v = 1, sum;
    struct occl_request request;
    enum occl_result result = OCCL_SUCCESS;
    reach(arg->stage, me->rank);
    if (me->rank == 0 && arg->what == 0) { /* blocked in an op whose peer does not come */
        result = occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
    } else if (me->rank == 0 && arg->what == 1) { /* waiting for a request */
        WORLD_OK(
            occl_all_reduce(big, big, 200000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, &request));
        result = occl_wait(request);
    } else if (me->rank == 0 && arg->what == 2) { /* in the creation of a communicator */
        struct occl_comm comm;
        result = occl_comm_split(me->comm, 0, 0, NULL, &comm);
    } else {
        while (arg->stage->event_at == 0)
            pause_ms(1);
        pause_ms(100);
        void *p;
        for (int i = 0; i < 100 && result == OCCL_SUCCESS; i++) {
            pause_ms(2);
            result = occl_mem_alloc(4096, &p);
        }
    }
    arg->stage->seen_at[me->rank] = world_now();
    WORLD_CHECK(result == OCCL_ERROR_DAEMON_LOST);
    double start = world_now();
    WORLD_CHECK(occl_barrier(me->comm, NULL, NULL) == OCCL_ERROR_DAEMON_LOST);
    WORLD_CHECK(world_now() - start < 0.1);
    WORLD_OK(occl_comm_destroy(me->comm));
    WORLD_OK(occl_finalize());
    return 0;
}
static int daemon_kills = 9; /* --full: 100 */
static void test_daemon_killed(void **state) {
    (void)state;
    for (int i = 0; i < daemon_kills; i++) {
        struct world own;
        struct stage *s = world_shared(sizeof *s);
        struct lost_arg arg = {s, i % 3};
        pid_t pids[2];
        int failed = 0;
        world_start(&own, NULL);
        world_spawn(&own, 2, lost_rank, &arg, pids);
        await_ranks(s, 2, 1);
        pause_ms(20);
        (void)kill(own.daemon, SIGKILL);
        s->event_at = world_now();
        for (int r = 0; r < 2; r++)
            failed += world_wait(pids[r], 10) != 0;
        double took = s->seen_at[0] - s->event_at;
        if (took > 0.2 * 10)
            failed++;
        (void)world_stop(&own);
        assert_int_equal(failed, 0);
    }
}

/* E07: barrier, then finalize at once, many times: no peer-left error. */
static int e07(struct world_rank *me) {
    const char *job = "e07";
    (void)job;
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    if (me->rank % 2)
        pause_ms(me->rank);
    return 0;
}
static void test_E07_barrier_then_finalize(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(world_run(&w, 4, e07, NULL, 20), 0);
}

/* ---- soak: kills and stops at random moments beside a job that checks its results ---- */

static int open_files_of(pid_t pid) {
    char path[64];
    int count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* A daemon lets go of what a process had once it has heard of its end and its lanes are out of it:
 * a moment, longer on a busy machine. What does not go within seconds is lost. */
static void await_open_files(pid_t pid, int expected) {
    char path[64], name[64], target[128];
    double until = world_now() + 5.0 * world_slowness();
    while (open_files_of(pid) != expected && world_now() < until)
        pause_ms(5);
    if (open_files_of(pid) == expected)
        return;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        (void)snprintf(name, sizeof name, "/proc/%d/fd/%.16s", (int)pid, entry->d_name);
        ssize_t length = readlink(name, target, sizeof target - 1);
        if (length > 0)
            print_message("open: %s -> %.*s\n", entry->d_name, (int)length, target);
    }
    if (dir)
        closedir(dir);
    fail_msg("the daemon has %d open files, expected %d", open_files_of(pid), expected);
}

/* Comes to its exit only when the parent sends no more signals: there a sanitizer's leak check
 * attaches by ptrace and waits for the stop of the attachment, which a SIGCONT would discard. */
static int soak_victim(struct world_rank *me) {
    const struct loop_arg *arg = me->arg;
    enum occl_result result;
    int code = loop_until_error(me, arg, &result);
    for (int ms = 0; ms < 20000 && !__atomic_load_n(&arg->stage->go, __ATOMIC_SEQ_CST); ms++)
        pause_ms(1);
    return code || result != OCCL_ERROR_PEER_FAILED;
}

static void test_soak_kills_beside_a_checking_job(void **state) {
    const char *minutes = getenv("OCCL_SOAK_MINUTES");
    double until = world_now() + 60.0 * (minutes ? atof(minutes) : 60.0);
    struct stage *s = world_shared(sizeof *s), *t = world_shared(sizeof *t);
    static const size_t counts[] = {2, 900, 40000, 1000000};
    pid_t pids[4], others[2];
    uint64_t random = 20261129;
    int cycles = 0;
    (void)state;
    world_spawn(&w, 2, bystander, s, others);
    pause_ms(1000L * world_slowness()); /* they have come */
    int files = open_files_of(w.daemon);
    for (; world_now() < until; cycles++) {
        int failed = 0;
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        uint32_t draw = (uint32_t)(random >> 33);
        struct loop_arg arg = {t, counts[draw % 4], draw / 4 % 2, draw / 8 % 2, 0};
        memset(t, 0, sizeof *t);
        world_spawn(&w, 4, soak_victim, &arg, pids);
        await_ranks(t, 4, 1);
        pause_ms((long)(draw / 16 % 50));
        if (draw / 1024 % 3 == 0) {
            (void)kill(pids[draw % 4], SIGSTOP);
            pause_ms(30);
        }
        (void)kill(pids[(draw / 2) % 4], SIGKILL);
        for (int r = 0; r < 4; r++)
            (void)kill(pids[r], SIGCONT);
        __atomic_store_n(&t->go, 1, __ATOMIC_SEQ_CST);
        for (uint32_t r = 0; r < 4; r++)
            failed += world_wait(pids[r], 30) != 0 && r != (draw / 2) % 4;
        assert_int_equal(failed, 0);
        await_open_files(w.daemon, files);
        assert_int_equal(waitpid(others[0], NULL, WNOHANG), 0);
    }
    __atomic_store_n(&s->go, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < 2; r++)
        assert_int_equal(world_wait(others[r], 20), 0);
    print_message("%d cycles\n", cycles);
}

int main(int argc, char **argv) {
    const struct CMUnitTest soak[] = {cmocka_unit_test(test_soak_kills_beside_a_checking_job)};
    if (argc > 1 && strcmp(argv[1], "--soak") == 0)
        return cmocka_run_group_tests_name("client_soak", soak, setup, teardown);
    if (argc > 1 && strcmp(argv[1], "--full") == 0)
        daemon_kills = 100;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B01_timeout_names_missing_ranks),
        cmocka_unit_test(test_B03_broadcast_root_alone),
        cmocka_unit_test(test_B04_receive_times_out),
        cmocka_unit_test(test_kill_during_tiny_ops),
        cmocka_unit_test(test_kill_during_local_ops),
        cmocka_unit_test(test_kill_during_any_pointer_ops),
        cmocka_unit_test(test_kill_during_async_ops),
        cmocka_unit_test(test_D01_kill_all_again_and_again),
        cmocka_unit_test(test_D03_abort_after_death),
        cmocka_unit_test(test_abort_with_many_ops),
        cmocka_unit_test(test_D04_stopped_is_late_not_dead),
        cmocka_unit_test(test_D06_destroy_is_local),
        cmocka_unit_test(test_daemon_killed),
        cmocka_unit_test(test_E07_barrier_then_finalize),
    };
    return cmocka_run_group_tests_name("client_failure", tests, setup, teardown);
}
