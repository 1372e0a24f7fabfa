/* SPDX-License-Identifier: Apache-2.0 */
/* Threads inside a communicator that another thread ends: the one that created it, which is counted
 * with plain stores, and others; and processes that may not order such stores. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client_lib/client.h"
#include "tests/client/world.h"

static struct world w;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return world_stop(&w);
}

static struct client_comm *table_entry(struct occl_comm comm) {
    return occl_lib.comms[(uint32_t)comm.handle];
}

/* A communicator of this rank alone. Not 0: failed. */
static int make_alone(struct occl_comm *out_comm) {
    struct occl_unique_id id;
    return occl_get_unique_id(&id) || occl_comm_create(&id, 0, 1, NULL, out_comm);
}

/* ---- ended while threads call ---- */

struct caller {
    struct occl_comm comm;
    uint32_t calls;              /* that succeeded */
    bool calls_wrong, end_wrong; /* ended in another way than they may */
};

/* Until the communicator is gone. The page is unmapped then: who is not counted would crash. */
static void *calls(void *arg) {
    struct caller *c = arg;
    float in = 1, out = 0;
    enum occl_result result, error;
    do {
        result = occl_all_reduce(&in, &out, 1, OCCL_FLOAT32, OCCL_SUM, c->comm, NULL, NULL);
        if (result == OCCL_SUCCESS)
            __atomic_fetch_add(&c->calls, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < 3 && result == OCCL_SUCCESS; i++) /* it reads the page, too */
            result = occl_comm_get_async_error(c->comm, &error);
    } while (result == OCCL_SUCCESS);
    c->calls_wrong = result != OCCL_ERROR_HANDLE && result != OCCL_ERROR_CANCELED;
    return NULL;
}

static void *ends(void *arg) {
    struct caller *c = arg;
    while (__atomic_load_n(&c->calls, __ATOMIC_RELAXED) < 20)
        (void)sched_yield();
    c->end_wrong = occl_comm_destroy(c->comm) != OCCL_SUCCESS;
    return NULL;
}

/* One thread calls, another ends; this thread, the owner, is the first or the second. */
static int one_ends(struct world_rank *me) {
    const bool *owner_calls = me->arg;
    for (int i = 0; i < 300; i++) {
        struct caller c = {.calls = 0};
        pthread_t thread;
        WORLD_CHECK(make_alone(&c.comm) == 0);
        WORLD_CHECK(table_entry(c.comm)->owner != 0);
        WORLD_CHECK(pthread_create(&thread, NULL, *owner_calls ? ends : calls, &c) == 0);
        (void)(*owner_calls ? calls : ends)(&c);
        WORLD_CHECK(pthread_join(thread, NULL) == 0);
        WORLD_CHECK(!c.calls_wrong && !c.end_wrong);
        WORLD_CHECK(table_entry(c.comm)->refs == 0 && table_entry(c.comm)->owner_refs == 0 &&
                    table_entry(c.comm)->asking == 0);
    }
    return 0;
}
static void test_owner_calls_while_another_ends(void **state) {
    static bool owner_calls = true;
    (void)state;
    assert_int_equal(world_run(&w, 1, one_ends, &owner_calls, 60), 0);
}
static void test_another_calls_while_the_owner_ends(void **state) {
    static bool owner_calls = false;
    (void)state;
    assert_int_equal(world_run(&w, 1, one_ends, &owner_calls, 60), 0);
}

/* The slot keeps its owner; a thread that is not it counts in the other way. */
static void *uses_the_slot(void *arg) {
    int *failed = arg;
    struct occl_comm comm;
    *failed = 1;
    if (make_alone(&comm))
        return NULL;
    const struct client_comm *entry = table_entry(comm);
    float in = 1, out = 0;
    *failed = entry->owner_refs != 0 || entry->refs != 0 ||
              occl_all_reduce(&in, &out, 1, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL) ||
              occl_comm_destroy(comm) || entry->owner_refs != 0 || entry->refs != 0;
    return NULL;
}
static int slots(struct world_rank *me) {
    struct occl_comm comm;
    WORLD_CHECK(make_alone(&comm) == 0);
    uint64_t owner = table_entry(comm)->owner;
    WORLD_OK(occl_comm_destroy(comm));
    for (int i = 0; i < 20; i++) {
        int failed;
        pthread_t thread;
        WORLD_CHECK(pthread_create(&thread, NULL, uses_the_slot, &failed) == 0);
        WORLD_CHECK(pthread_join(thread, NULL) == 0);
        WORLD_CHECK(!failed);
        WORLD_CHECK(table_entry(comm)->owner == owner);
    }
    return 0;
}
static void test_slot_keeps_its_owner(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 1, slots, NULL, 30), 0);
}

/* ---- where the barrier is forbidden ---- */

/* From now on membarrier fails with EPERM in this process. */
static int forbid_barriers(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
        return 1;
    return syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == EPERM ? 0 : 1;
}

static int sum_of_ranks(struct world_rank *me, struct occl_comm comm) {
    int32_t in = me->rank + 1, out = 0;
    WORLD_OK(occl_all_reduce(&in, &out, 1, OCCL_INT32, OCCL_SUM, comm, NULL, NULL));
    WORLD_CHECK(out == me->size * (me->size + 1) / 2);
    return 0;
}

static int forbidden_later(struct world_rank *me) {
    WORLD_CHECK(table_entry(me->comm)->owner != 0);
    WORLD_CHECK(forbid_barriers() == 0);
    for (int i = 0; i < 100; i++)
        if (sum_of_ranks(me, me->comm))
            return 1;
    WORLD_OK(occl_comm_destroy(me->comm));
    return 0;
}
static void test_forbidden_later(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, forbidden_later, NULL, 30), 0);
}

static int forbidden_before(struct world_rank *me) {
    struct occl_comm comm;
    WORLD_CHECK(forbid_barriers() == 0);
    WORLD_OK(occl_comm_split(me->comm, 0, 0, NULL, &comm));
    WORLD_CHECK(table_entry(comm)->owner == 0);
    for (int i = 0; i < 100; i++)
        if (sum_of_ranks(me, comm))
            return 1;
    WORLD_OK(occl_comm_destroy(comm));
    return 0;
}
static void test_forbidden_before(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, forbidden_before, NULL, 30), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owner_calls_while_another_ends),
        cmocka_unit_test(test_another_calls_while_the_owner_ends),
        cmocka_unit_test(test_slot_keeps_its_owner),
        cmocka_unit_test(test_forbidden_later),
        cmocka_unit_test(test_forbidden_before),
    };
    return cmocka_run_group_tests_name("client_inside", tests, setup, teardown);
}
