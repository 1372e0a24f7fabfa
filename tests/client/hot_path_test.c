/* SPDX-License-Identifier: Apache-2.0 */
/* What an op costs besides its work: no allocation ever, and no system call while nobody is late;
 * when somebody is, only yielding the core, sleeping and waking, and the doorbell.
 *
 * Allocations are counted by wrapping the allocator. System calls are caught by the kernel's
 * syscall user dispatch: while the selector says BLOCK, the first call raises SIGSYS, the handler
 * notes its number, opens the gate for the rest of the batch and lets the call happen. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

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

/* ---- allocations: the linker sends every call in this binary here (-Wl,--wrap) ---- */

static uint64_t allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes) {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __real_realloc(old, bytes);
}

struct buffers {
    float *a, *b, *c;
};
static int get_buffers(struct world_rank *me, struct buffers *out) {
    void *p[3];
    for (int i = 0; i < 3; i++)
        WORLD_OK(occl_mem_alloc(1 << 20, &p[i]));
    *out = (struct buffers){p[0], p[1], p[2]};
    return 0;
}

/* One op of each kind and path, blocking and not. */
static int mixture(struct world_rank *me, struct buffers *m, struct occl_request persistent) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request r;
    int other = 1 - me->rank;
    attr.tag = 3;
    WORLD_OK(occl_all_reduce(m->a, m->b, 2, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_OK(occl_all_reduce(m->a, m->b, 1000, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL));
    WORLD_OK(occl_all_reduce(m->a, m->b, 100000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_OK(occl_all_reduce(m->a, m->b, 50000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, &r));
    WORLD_OK(occl_wait(r));
    WORLD_OK(occl_broadcast(m->a, m->b, 500, OCCL_FLOAT32, 0, me->comm, NULL, NULL));
    WORLD_OK(occl_broadcast(m->a, m->b, 50000, OCCL_FLOAT32, 1, me->comm, NULL, NULL));
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    WORLD_OK(occl_send(m->a, 100, OCCL_FLOAT32, other, me->comm, NULL, &r));
    WORLD_OK(occl_recv(m->c, 100, OCCL_FLOAT32, other, me->comm, NULL, NULL));
    WORLD_OK(occl_wait(r));
    WORLD_OK(occl_start(persistent));
    WORLD_OK(occl_wait(persistent));
    return 0;
}

static int no_allocation(struct world_rank *me) {
    struct buffers m;
    struct occl_request persistent;
    if (get_buffers(me, &m))
        return 1;
    WORLD_OK(
        occl_all_reduce_init(m.a, m.c, 30, OCCL_FLOAT32, OCCL_MAX, me->comm, NULL, &persistent));
    uint64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        if (i == 200)
            before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
        if (mixture(me, &m, persistent))
            return 1;
    }
    WORLD_CHECK(__atomic_load_n(&allocations, __ATOMIC_RELAXED) == before);
    return 0;
}
static void test_no_allocation_per_op(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, no_allocation, NULL, 60), 0);
}

/* ---- giving the core up ---- */

static unsigned long yields;

/* In place of the C library's. */
int sched_yield(void) {
    yields++;
    return (int)syscall(SYS_sched_yield);
}

/* A giver's op ends with its arrival, whoever else is missing, also of those that share its core
 * and that it has waited for before: it calls nobody. */
static int giving(struct world_rank *me) {
    enum { OPS = 20000 };
    float in[2] = {1, 1}, out[2];
    int *shared = me->arg;
    cpu_set_t one;
    if (me->rank == 0)
        *shared = sched_getcpu();
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    CPU_ZERO(&one);
    CPU_SET(*shared, &one);
    WORLD_CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int i = 0; i < 200; i++)
        WORLD_OK(occl_all_reduce(in, out, 2, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    yields = 0;
    for (int i = 0; i < OPS; i++)
        WORLD_OK(occl_reduce(in, out, 2, OCCL_FLOAT32, OCCL_SUM, 0, me->comm, NULL, NULL));
    WORLD_CHECK(me->rank == 0 || yields < OPS / 4);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_givers_keep_their_core(void **state) {
    int *cpu = world_shared(sizeof *cpu);
    (void)state;
    assert_int_equal(world_run(&w, 4, giving, cpu, 60), 0);
}

/* ---- system calls ---- */

static volatile char selector; /* 0: allow, 1: block */
static volatile int caught;    /* number of the batch's first system call, -1: none */

static void on_sigsys(int signal_number, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    (void)signal_number;
    selector = 0;
    caught = info->si_syscall;
    greg_t *g = uc->uc_mcontext.gregs;
    long result = syscall(info->si_syscall, g[REG_RDI], g[REG_RSI], g[REG_RDX], g[REG_R10],
                          g[REG_R8], g[REG_R9]);
    g[REG_RAX] = result == -1 ? -errno : result;
}

static int system_calls(struct world_rank *me) {
    struct buffers m;
    struct sigaction action;
    enum { BATCHES = 400, OPS = 50 };
    int clean = 0;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigsys;
    action.sa_flags = SA_SIGINFO;
    /* Programs beside the test must not make the ranks late; without the right to it the test only
     * needs a quieter machine. */
    struct sched_param priority = {1};
    (void)sched_setscheduler(0, SCHED_RR, &priority);
    if (get_buffers(me, &m) || sigaction(SIGSYS, &action, NULL))
        return 1;
    for (int i = 0; i < 200; i++) /* everything is mapped and known */
        WORLD_OK(occl_all_reduce(m.a, m.b, i % 2 ? 2 : 50000, OCCL_FLOAT32, OCCL_SUM, me->comm,
                                 NULL, NULL));
    WORLD_CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) == 0);
    for (int batch = 0; batch < BATCHES; batch++) {
        size_t count = batch % 2 ? 2 : 20000;
        enum occl_result result = OCCL_SUCCESS;
        caught = -1;
        selector = 1;
        for (int i = 0; i < OPS && result == OCCL_SUCCESS; i++)
            result = occl_all_reduce(m.a, m.b, count, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
        selector = 0;
        WORLD_CHECK(result == OCCL_SUCCESS);
        clean += caught == -1;
        if (caught != -1 && caught != SYS_sched_yield && caught != SYS_futex &&
            caught != SYS_sendmsg && caught != SYS_sendto) {
            fprintf(stderr, "rank %d: batch %d made system call %d\n", me->rank, batch, caught);
            return 1;
        }
    }
    *(int *)me->arg += clean;
    return 0;
}
static void test_no_system_call_while_nobody_is_late(void **state) {
    int *clean = world_shared(sizeof *clean);
    (void)state;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        print_message("SKIP test_no_system_call_while_nobody_is_late: needs two processors\n");
        skip();
    }
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0)) {
        print_message("SKIP test_no_system_call_while_nobody_is_late: the kernel has no syscall "
                      "user dispatch\n");
        skip();
    }
    assert_int_equal(world_run(&w, 2, system_calls, clean, 60), 0);
    /* Other programs take a core now and then; a batch of 50 ops without any call shows that the
     * op itself makes none. */
    assert_true(*clean > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_allocation_per_op),
        cmocka_unit_test(test_givers_keep_their_core),
        cmocka_unit_test(test_no_system_call_while_nobody_is_late),
    };
    return cmocka_run_group_tests_name("client_hot_path", tests, setup, teardown);
}
