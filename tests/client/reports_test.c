/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that users met elsewhere and that need the operator's view besides the ranks': what a
 * blocked op shows, interference of two jobs, settings by group and job, ranks that reach each
 * other differently. `occlctl` runs as a user would run it. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_lib/inspect.h"
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

/* Output of one command, without white space. */
static void ask(const char *arguments, char *out, size_t bytes) {
    const char *binary = getenv("OCCLCTL") ? getenv("OCCLCTL") : "tools/occlctl/occlctl";
    char command[512];
    size_t used = 0;
    (void)snprintf(command, sizeof command, "%s --socket %s %s", binary, w.socket, arguments);
    FILE *pipe = popen(command, "r");
    for (int c; pipe && (c = fgetc(pipe)) != EOF && used + 1 < bytes;)
        if (c != ' ' && c != '\n')
            out[used++] = (char)c;
    out[used] = 0;
    if (pipe)
        (void)pclose(pipe); /* a problem that was found is an answer, too */
}

struct stage {
    uint32_t ready;
    uint32_t go;
};
static void await(const uint32_t *word, uint32_t value) {
    for (int i = 0; i < 4000 && __atomic_load_n(word, __ATOMIC_SEQ_CST) < value; i++)
        pause_ms(5);
}

/* B06: one rank holds an op back; the verbose view shows what the op is and where it stands. */
static int b06(struct world_rank *me) {
    struct stage *s = me->arg;
    static double in[3000], out[3000];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = 77;
    __atomic_fetch_add(&s->ready, 1, __ATOMIC_SEQ_CST);
    if (me->rank == 1)
        await(&s->go, 1);
    WORLD_OK(occl_all_reduce(in, out, 3000, OCCL_FLOAT64, OCCL_MIN, me->comm, &attr, NULL));
    return 0;
}
static void test_B06_a_blocked_op_is_shown_whole(void **state) {
    struct stage *s = world_shared(sizeof *s);
    pid_t pids[3];
    static char text[20000];
    (void)state;
    world_spawn(&w, 3, b06, s, pids);
    await(&s->ready, 3);
    pause_ms(300);
    ask("ops --json", text, sizeof text);
    __atomic_store_n(&s->go, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < 3; r++)
        assert_int_equal(world_wait(pids[r], 20), 0);
    static const char *const wanted[] = {
        "\"kind\":\"all_reduce\"",
        "\"dtype\":\"float64\"",
        "\"redop\":\"min\"",
        "\"count\":3000",
        "\"bytes\":24000",
        "\"tag\":77",
        "\"instance\":0",
        "\"missing\":[1]",
        "\"arrived\":[0,2]",
        "\"state\":\"waiting\"",
        "\"step\":\"waitsformembers\"",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!strstr(text, wanted[i])) {
            print_error("%s is not in %s\n", wanted[i], text);
            fail();
        }
}

/* K01: 256 KiB ops of one job beside 64 MiB ops of another: late, but never by much; both move on.
 */
struct pair {
    uint32_t stop, small_ops, big_ops;
    double worst_s;
};
static int k01_loop(struct world_rank *me, struct pair *pair, size_t bytes, uint32_t *ops) {
    void *in, *out;
    WORLD_OK(occl_mem_alloc(bytes, &in));
    WORLD_OK(occl_mem_alloc(bytes, &out));
    world_fill(in, bytes / 4, me->rank, 0);
    for (;;) {
        int stop = (int)__atomic_load_n(&pair->stop, __ATOMIC_SEQ_CST), all;
        double start = world_now();
        WORLD_OK(occl_all_reduce(in, out, bytes / 4, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
        if (me->rank == 0) {
            double took = world_now() - start;
            (*ops)++;
            if (ops == &pair->small_ops && took > pair->worst_s)
                pair->worst_s = took;
        }
        WORLD_OK(occl_all_reduce(&stop, &all, 1, OCCL_INT32, OCCL_MAX, me->comm, NULL, NULL));
        if (all)
            break;
    }
    WORLD_CHECK(world_wrong_sum(out, bytes / 4, me->size, 0) == 0);
    return 0;
}
static int k01_small(struct world_rank *me) {
    struct pair *pair = me->arg;
    return k01_loop(me, pair, 256 << 10, &pair->small_ops);
}
static int k01_big(struct world_rank *me) {
    struct pair *pair = me->arg;
    return k01_loop(me, pair, 64 << 20, &pair->big_ops);
}
static void test_K01_small_ops_beside_bulk(void **state) {
    struct pair *pair = world_shared(sizeof *pair);
    pid_t small[2], big[2];
    (void)state;
    world_spawn(&w, 2, k01_big, pair, big);
    await(&pair->big_ops, 2);
    world_spawn(&w, 2, k01_small, pair, small);
    await(&pair->small_ops, 2);
    uint32_t big_before = __atomic_load_n(&pair->big_ops, __ATOMIC_SEQ_CST);
    pause_ms(2000L * world_slowness());
    uint32_t big_after = __atomic_load_n(&pair->big_ops, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pair->stop, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(world_wait(small[r], 30), 0);
        assert_int_equal(world_wait(big[r], 30), 0);
    }
    assert_true(pair->small_ops > 50);
    assert_true(big_after > big_before);
    assert_true(pair->worst_s < 0.5 * world_slowness());
}

/* K03: settings by group through the API and by job through occlctl, shown with their origin. */
static int k03(struct world_rank *me) {
    struct stage *s = me->arg;
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    struct occl_comm urgent, plain;
    attr.name = "urgent-group";
    attr.priority = OCCL_PRIORITY_URGENT;
    attr.default_timeout_ns = 5000000000;
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &plain));
    struct occl_unique_id id;
    if (me->rank == 0)
        WORLD_OK(occl_get_unique_id(&id));
    WORLD_OK(occl_broadcast(&id, &id, sizeof id / 4, OCCL_INT32, 0, me->comm, NULL, NULL));
    WORLD_OK(occl_comm_create(&id, me->rank, me->size, &attr, &urgent));
    __atomic_fetch_add(&s->ready, 1, __ATOMIC_SEQ_CST);
    await(&s->go, 1);
    WORLD_OK(occl_barrier(urgent, NULL, NULL));
    return 0;
}
static void test_K03_settings_by_group_and_job(void **state) {
    struct stage *s = world_shared(sizeof *s);
    pid_t pids[2];
    static char comms[20000], jobs[20000], answer[2000];
    (void)state;
    world_spawn(&w, 2, k03, s, pids);
    await(&s->ready, 2);
    ask("set job test weight 250", answer, sizeof answer);
    ask("set job test class high", answer, sizeof answer);
    ask("comms --json", comms, sizeof comms);
    ask("jobs --json", jobs, sizeof jobs);
    __atomic_store_n(&s->go, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < 2; r++)
        assert_int_equal(world_wait(pids[r], 20), 0);
    const char *group = strstr(comms, "\"comm\":\"urgent-group\"");
    assert_non_null(group);
    assert_non_null(strstr(group, "\"class\":3,\"class_origin\":\"api\""));
    assert_non_null(strstr(group, "\"default_deadline_ns\":5000000000"));
    assert_non_null(strstr(jobs, "\"weight\":250"));
    assert_non_null(strstr(comms, "\"class_origin\":\"job\""));
}

/* H10: ranks with and without a common area, one of them denied on its side only: all agree on a
 * path for each communicator, and results are right. */
struct mixed {
    struct occl_unique_id id;
};
static int h10(struct world_rank *me) {
    const struct mixed *mixed = me->arg;
    struct occl_comm comm;
    enum { N = 30000 };
    float *a = world_alloc(N * 4), *b = world_alloc(N * 4);
    WORLD_CHECK(world_attach(me->world, "mixed") == OCCL_SUCCESS);
    WORLD_OK(occl_comm_create(&mixed->id, me->rank, 3, NULL, &comm));
    WORLD_CHECK(occl_inspect_cross_memory(comm) == 0);
    for (uint64_t round = 0; round < 20; round++) {
        world_fill(a, N, me->rank, round);
        WORLD_OK(occl_all_reduce(a, b, N, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL));
        WORLD_CHECK(world_wrong_sum(b, N, 3, round) == 0);
    }
    WORLD_OK(occl_finalize());
    return 0;
}
static int h10_rank(struct world *world, struct mixed *mixed, int rank) {
    struct world_rank me = {rank, 3, {0}, world, mixed};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (rank == 1 && unshare(CLONE_NEWNS | CLONE_NEWIPC))
        return 77;
    if (rank == 2 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
                      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)))
        return 77;
    return h10(&me);
}
static void test_H10_ranks_that_reach_each_other_differently(void **state) {
    struct mixed *mixed = world_shared(sizeof *mixed);
    pid_t pids[3];
    int failed = 0, refused = 0;
    (void)state;
    assert_int_equal(occl_get_unique_id(&mixed->id), OCCL_SUCCESS);
    for (int r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            exit(h10_rank(&w, mixed, r));
    }
    for (int r = 0; r < 3; r++) {
        int status = world_wait(pids[r], 30);
        refused += WIFEXITED(status) && WEXITSTATUS(status) == 77;
        failed += status != 0;
    }
    if (refused) {
        print_message("SKIP test_H10_ranks_that_reach_each_other_differently: namespaces are not "
                      "allowed here\n");
        skip();
    }
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B06_a_blocked_op_is_shown_whole),
        cmocka_unit_test(test_H10_ranks_that_reach_each_other_differently),
        cmocka_unit_test(test_K01_small_ops_beside_bulk),
        cmocka_unit_test(test_K03_settings_by_group_and_job),
    };
    return cmocka_run_group_tests_name("client_reports", tests, setup, teardown);
}
