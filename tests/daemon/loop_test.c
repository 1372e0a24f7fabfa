/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance test of the control loop, on each backend, and what happens where io_uring is
 * forbidden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/loop.h"

#define MS 1000000ull

struct bench {
    struct occl_clock clock;
    struct occl_loop *loop;
};

static struct bench *open_bench(const struct occl_loop_ops *ops) {
    static struct bench bench;
    int refused;
    bench.clock = occl_clock_system(occl_ticks_source_probe());
    if (occl_loop_create(&bench.clock, ops, &bench.loop, &refused) != OCCL_OK)
        return NULL;
    return &bench;
}

static struct bench *bench_or_skip(const struct occl_loop_ops *ops, const char *name) {
    struct bench *bench = open_bench(ops);
    if (!bench) {
        print_message("SKIP %s: %s is forbidden here\n", name, ops->name);
        skip();
    }
    return bench;
}

/* A watch that counts its calls and does what the test asks. */
struct probe {
    struct occl_watch watch;
    struct occl_loop *loop;
    struct probe *remove; /* another one to remove when called */
    int calls;
    uint32_t events;
    bool drain;
};

static void probe_ready(struct occl_watch *watch, uint32_t events) {
    struct probe *probe = watch->owner;
    char bytes[64];
    probe->calls++;
    probe->events = events;
    if (probe->drain && read(watch->fd, bytes, sizeof bytes) < 0)
        probe->drain = false;
    if (probe->remove)
        occl_loop_watch_remove(probe->loop, &probe->remove->watch);
}

static void probe_open(struct probe *probe, struct occl_loop *loop, int fd, uint32_t events) {
    memset(probe, 0, sizeof *probe);
    probe->loop = loop;
    probe->watch = (struct occl_watch){fd, probe_ready, probe, 0};
    assert_int_equal(occl_loop_watch_add(loop, &probe->watch, events), OCCL_OK);
}

static void pair(int fds[2]) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static void check_level_triggered(const struct occl_loop_ops *ops, const char *name) {
    struct bench *b = bench_or_skip(ops, name);
    struct probe p;
    int fds[2];
    pair(fds);
    probe_open(&p, b->loop, fds[0], OCCL_LOOP_READABLE);
    assert_int_equal(occl_loop_run_once(b->loop, 0), OCCL_OK);
    assert_int_equal(p.calls, 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    /* Unread bytes report again and again. */
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(occl_loop_run_once(b->loop, 100 * MS), OCCL_OK);
        assert_int_equal(p.calls, i);
    }
    p.drain = true;
    assert_int_equal(occl_loop_run_once(b->loop, 100 * MS), OCCL_OK);
    assert_int_equal(p.calls, 4);
    assert_int_equal(occl_loop_run_once(b->loop, 5 * MS), OCCL_OK);
    assert_int_equal(p.calls, 4);
    close(fds[1]);
    assert_int_equal(occl_loop_run_once(b->loop, 100 * MS), OCCL_OK);
    assert_true(p.events & OCCL_LOOP_HANGUP);
    occl_loop_watch_remove(b->loop, &p.watch);
    close(fds[0]);
    occl_loop_destroy(b->loop);
}

static void check_writable(const struct occl_loop_ops *ops, const char *name) {
    struct bench *b = bench_or_skip(ops, name);
    struct probe p;
    int fds[2];
    pair(fds);
    probe_open(&p, b->loop, fds[0], OCCL_LOOP_READABLE);
    assert_int_equal(
        occl_loop_watch_set(b->loop, &p.watch, OCCL_LOOP_READABLE | OCCL_LOOP_WRITABLE), OCCL_OK);
    assert_int_equal(occl_loop_run_once(b->loop, 100 * MS), OCCL_OK);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.events, OCCL_LOOP_WRITABLE);
    assert_int_equal(occl_loop_watch_set(b->loop, &p.watch, OCCL_LOOP_READABLE), OCCL_OK);
    assert_int_equal(occl_loop_run_once(b->loop, 5 * MS), OCCL_OK);
    assert_int_equal(p.calls, 1);
    occl_loop_watch_remove(b->loop, &p.watch);
    close(fds[0]);
    close(fds[1]);
    occl_loop_destroy(b->loop);
}

/* A report that was reaped before its watch was removed is dropped, also when the memory of the
 * watch and the number of the descriptor are in use again. */
static void check_removed_is_silent(const struct occl_loop_ops *ops, const char *name) {
    struct bench *b = bench_or_skip(ops, name);
    struct probe p[2];
    int a[2];
    int c[2];
    pair(a);
    pair(c);
    probe_open(&p[0], b->loop, a[0], OCCL_LOOP_READABLE);
    probe_open(&p[1], b->loop, c[0], OCCL_LOOP_READABLE);
    p[0].remove = &p[1];
    p[1].remove = &p[0];
    assert_int_equal(write(a[1], "x", 1), 1);
    assert_int_equal(write(c[1], "x", 1), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(occl_loop_run_once(b->loop, 20 * MS), OCCL_OK);
    /* Whoever came first removed the other. */
    assert_true((p[0].calls > 0) != (p[1].calls > 0));
    assert_int_equal(occl_loop_watches(b->loop), 1);
    occl_loop_watch_remove(b->loop, &p[0].watch);
    occl_loop_watch_remove(b->loop, &p[1].watch);
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(c[i]);
    }
    for (int round = 0; round < 200; round++) {
        struct probe q;
        pair(a);
        probe_open(&q, b->loop, a[0], OCCL_LOOP_READABLE);
        assert_int_equal(write(a[1], "x", 1), 1);
        if (round & 1)
            assert_int_equal(occl_loop_run_once(b->loop, 20 * MS), OCCL_OK);
        assert_int_equal(q.calls, round & 1);
        occl_loop_watch_remove(b->loop, &q.watch);
        close(a[0]);
        close(a[1]);
    }
    occl_loop_destroy(b->loop);
}

/* The loop must not keep a removed descriptor open. */
static void check_peer_sees_close(const struct occl_loop_ops *ops, const char *name) {
    struct bench *b = bench_or_skip(ops, name);
    struct probe p;
    int fds[2];
    char byte;
    pair(fds);
    probe_open(&p, b->loop, fds[0], OCCL_LOOP_READABLE);
    assert_int_equal(occl_loop_run_once(b->loop, 0), OCCL_OK);
    occl_loop_watch_remove(b->loop, &p.watch);
    close(fds[0]);
    assert_int_equal(occl_loop_run_once(b->loop, 5 * MS), OCCL_OK);
    assert_int_equal(read(fds[1], &byte, 1), 0);
    close(fds[1]);
    occl_loop_destroy(b->loop);
}

static void check_many(const struct occl_loop_ops *ops, const char *name) {
    enum { COUNT = 400 };
    struct bench *b = bench_or_skip(ops, name);
    static struct probe p[COUNT];
    static int fds[COUNT][2];
    for (int i = 0; i < COUNT; i++) {
        pair(fds[i]);
        probe_open(&p[i], b->loop, fds[i][0], OCCL_LOOP_READABLE);
        p[i].drain = true;
        assert_int_equal(write(fds[i][1], "x", 1), 1);
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(occl_loop_run_once(b->loop, 2 * MS), OCCL_OK);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(p[i].calls, 1);
        occl_loop_watch_remove(b->loop, &p[i].watch);
        close(fds[i][0]);
        close(fds[i][1]);
    }
    assert_int_equal(occl_loop_watches(b->loop), 0);
    occl_loop_destroy(b->loop);
}

/* ---- timers ---- */

struct alarm {
    struct occl_timer timer;
    struct occl_loop *loop;
    int *order;
    int number;
    int *next;
    struct alarm *cancel;
};

static void alarm_fired(struct occl_timer *timer) {
    struct alarm *alarm = timer->owner;
    alarm->order[(*alarm->next)++] = alarm->number;
    if (alarm->cancel)
        occl_loop_timer_cancel(alarm->loop, &alarm->cancel->timer);
}

static void check_timers(const struct occl_loop_ops *ops, const char *name) {
    enum { COUNT = 100 };
    struct bench *b = bench_or_skip(ops, name);
    static struct alarm alarms[COUNT];
    int order[COUNT];
    int next = 0;
    uint64_t start = occl_loop_now_ns(b->loop);
    for (int i = 0; i < COUNT; i++) {
        /* A permutation of 0..99, so that the heap is exercised. */
        int number = i * 37 % COUNT;
        alarms[i] =
            (struct alarm){.loop = b->loop, .order = order, .number = number, .next = &next};
        alarms[i].timer = (struct occl_timer){.fired = alarm_fired, .owner = &alarms[i]};
        assert_int_equal(occl_loop_timer_set(b->loop, &alarms[i].timer,
                                             start + 10 * MS + (uint64_t)number * 10000),
                         OCCL_OK);
    }
    /* Moved, cancelled, cancelled by another. */
    assert_int_equal(occl_loop_timer_set(b->loop, &alarms[0].timer, start + 12 * MS), OCCL_OK);
    occl_loop_timer_cancel(b->loop, &alarms[1].timer);
    occl_loop_timer_cancel(b->loop, &alarms[1].timer);
    alarms[2].cancel = &alarms[3];
    bool cancels = alarms[2].number < alarms[3].number;
    while (occl_loop_now_ns(b->loop) < start + 20 * MS)
        assert_int_equal(occl_loop_run_once(b->loop, 30 * MS), OCCL_OK);
    assert_int_equal(next, COUNT - 1 - cancels);
    for (int i = 0; i + 2 < next; i++)
        assert_true(order[i] < order[i + 1]);
    assert_int_equal(order[next - 1], 0);
    occl_loop_destroy(b->loop);
}

static void check_sleeps_until_the_timer(const struct occl_loop_ops *ops, const char *name) {
    struct bench *b = bench_or_skip(ops, name);
    int order[1];
    int next = 0;
    struct alarm alarm = {.loop = b->loop, .order = order, .next = &next};
    alarm.timer = (struct occl_timer){.fired = alarm_fired, .owner = &alarm};
    uint64_t start = occl_loop_now_ns(b->loop);
    assert_int_equal(occl_loop_timer_set(b->loop, &alarm.timer, start + 30 * MS), OCCL_OK);
    int rounds = 0;
    while (next == 0) {
        assert_int_equal(occl_loop_run_once(b->loop, UINT64_MAX), OCCL_OK);
        rounds++;
    }
    assert_true(occl_loop_now_ns(b->loop) >= start + 30 * MS);
    /* No spinning on the way. */
    assert_true(rounds <= 3);
    occl_loop_destroy(b->loop);
}

#define BOTH(check)                                        \
    static void uring_##check(void **state) {              \
        (void)state;                                       \
        check_##check(occl_loop_uring(), "uring_" #check); \
    }                                                      \
    static void epoll_##check(void **state) {              \
        (void)state;                                       \
        check_##check(occl_loop_epoll(), "epoll_" #check); \
    }
BOTH(level_triggered)
BOTH(writable)
BOTH(removed_is_silent)
BOTH(peer_sees_close)
BOTH(many)
BOTH(timers)
BOTH(sleeps_until_the_timer)

static void ops_tables_have_no_empty_slot(void **state) {
    const struct occl_loop_ops *tables[] = {occl_loop_uring(), occl_loop_epoll()};
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_non_null(tables[i]->name);
        assert_non_null(tables[i]->open);
        assert_non_null(tables[i]->close);
        assert_non_null(tables[i]->arm);
        assert_non_null(tables[i]->disarm);
        assert_non_null(tables[i]->wait);
    }
}

/* ---- H07: io_uring_setup is refused ---- */

static int in_forbidden_place(int error) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    struct occl_clock clock = occl_clock_system(OCCL_TICKS_NS);
    struct occl_loop *loop;
    int refused = 0;
    if (!filter ||
        seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)error), SCMP_SYS(io_uring_setup), 0) !=
            0 ||
        seccomp_load(filter) != 0)
        return 77;
    seccomp_release(filter);
    if (occl_loop_create(&clock, NULL, &loop, &refused) != OCCL_OK)
        return 1;
    bool good = refused == error && strcmp(occl_loop_name(loop), "epoll") == 0;
    occl_loop_destroy(loop);
    /* Asked for by name it is an error, not a silent change. */
    good = good && occl_loop_create(&clock, occl_loop_uring(), &loop, &refused) != OCCL_OK;
    return good ? 0 : 2;
}

static void H07_falls_back_to_epoll(void **state) {
    static const int errors[] = {EPERM, ENOSYS, ENOMEM};
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(in_forbidden_place(errors[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            print_message("SKIP H07_falls_back_to_epoll: seccomp filters are forbidden here\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uring_level_triggered),
        cmocka_unit_test(epoll_level_triggered),
        cmocka_unit_test(uring_writable),
        cmocka_unit_test(epoll_writable),
        cmocka_unit_test(uring_removed_is_silent),
        cmocka_unit_test(epoll_removed_is_silent),
        cmocka_unit_test(uring_peer_sees_close),
        cmocka_unit_test(epoll_peer_sees_close),
        cmocka_unit_test(uring_many),
        cmocka_unit_test(epoll_many),
        cmocka_unit_test(uring_timers),
        cmocka_unit_test(epoll_timers),
        cmocka_unit_test(uring_sleeps_until_the_timer),
        cmocka_unit_test(epoll_sleeps_until_the_timer),
        cmocka_unit_test(ops_tables_have_no_empty_slot),
        cmocka_unit_test(H07_falls_back_to_epoll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
