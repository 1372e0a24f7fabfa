/* SPDX-License-Identifier: Apache-2.0 */
/* Containers and limits: ranks that may not read each other's memory, ranks in namespaces of their
 * own, other users, tiny /dev/shm, no network, one processor; and what the daemon costs when idle.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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

/* Ops of all sizes on private memory, with values of every rank checked. */
static int ops_on_private_memory(struct world_rank *me, struct occl_comm comm) {
    static const size_t counts[] = {1, 20, 700, 5000, 200000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        float *a = malloc(counts[i] * 4), *b = malloc(counts[i] * 4);
        struct occl_request request;
        for (uint64_t round = 0; round < 5; round++) {
            world_fill(a, counts[i], me->rank, round);
            memset(b, 0, counts[i] * 4);
            if (round % 2) {
                WORLD_OK(
                    occl_all_reduce(a, b, counts[i], OCCL_FLOAT32, OCCL_SUM, comm, NULL, &request));
                WORLD_OK(occl_wait(request));
            } else {
                WORLD_OK(
                    occl_all_reduce(a, b, counts[i], OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL));
            }
            WORLD_CHECK(world_wrong_sum(b, counts[i], me->size, round) == 0);
        }
        WORLD_OK(occl_broadcast(a, a, counts[i], OCCL_FLOAT32, me->size - 1, comm, NULL, NULL));
        for (size_t k = 0; k < counts[i]; k++)
            WORLD_CHECK(a[k] == (float)world_pattern((uint64_t)me->size - 1, k + 4));
        free(a);
        free(b);
    }
    return 0;
}

/* ---- H02: cross-memory attach is denied ---- */

static int deny_cross_memory(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
static int h02(struct world_rank *me) {
    struct occl_comm comm;
    WORLD_CHECK(occl_inspect_cross_memory(me->comm) == 1);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    /* On one rank is enough: all agree on the path. */
    if (me->rank == 1)
        WORLD_CHECK(deny_cross_memory() == 0);
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
    WORLD_CHECK(occl_inspect_cross_memory(comm) == 0);
    return ops_on_private_memory(me, comm);
}
static void test_H02_cross_memory_attach_denied(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 3, h02, NULL, 60), 0);
}

/* ---- H03, H01, I11: nothing in common but the directory of the socket ---- */

struct apart {
    struct occl_unique_id id;
    int size;
};
static int in_namespaces(struct world_rank *me) {
    const struct apart *apart = me->arg;
    struct occl_comm comm;
    WORLD_CHECK(world_attach(me->world, "apart") == OCCL_SUCCESS);
    WORLD_OK(occl_comm_create(&apart->id, me->rank, apart->size, NULL, &comm));
    if (ops_on_private_memory(me, comm))
        return 1;
    WORLD_OK(occl_finalize());
    return 0;
}
static int rank_apart(struct world *world, const struct apart *apart, int rank) {
    int status;
    if (unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWNET) ||
        sethostname("apart", 5) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, rank % 2 ? "size=1m" : "size=64k"))
        return 77;
    if (rank == 2 && mount(NULL, "/dev/shm", NULL, MS_REMOUNT | MS_RDONLY, NULL))
        return 77;
    pid_t pid = fork();
    if (pid == 0) {
        struct world_rank me = {rank, apart->size, {0}, world, (void *)(uintptr_t)apart};
        exit(in_namespaces(&me));
    }
    if (waitpid(pid, &status, 0) != pid)
        return 78;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 79;
}
static void test_H01_H03_I11_namespaces_of_their_own(void **state) {
    struct apart *apart = world_shared(sizeof *apart);
    pid_t pids[4];
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP test_H01_H03_I11_namespaces_of_their_own: needs root\n");
        skip();
    }
    apart->size = 4;
    assert_int_equal(occl_get_unique_id(&apart->id), OCCL_SUCCESS);
    for (int r = 0; r < 4; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            _exit(rank_apart(&w, apart, r));
    }
    int failed = 0, refused = 0;
    for (int r = 0; r < 4; r++) {
        int status = world_wait(pids[r], 60);
        refused += WIFEXITED(status) && WEXITSTATUS(status) == 77;
        failed += status != 0;
    }
    if (refused == 4) {
        print_message("SKIP test_H01_H03_I11_namespaces_of_their_own: namespaces are not allowed "
                      "here\n");
        skip();
    }
    assert_int_equal(failed, 0);
}

/* ---- I09: jobs of different users ---- */

static void test_I09_jobs_of_five_users(void **state) {
    pid_t pids[5][2];
    static struct apart *apart[5];
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP test_I09_jobs_of_five_users: needs root\n");
        skip();
    }
    for (int user = 0; user < 5; user++) {
        apart[user] = world_shared(sizeof **apart);
        apart[user]->size = 2;
        assert_int_equal(occl_get_unique_id(&apart[user]->id), OCCL_SUCCESS);
        for (int r = 0; r < 2; r++) {
            pids[user][r] = fork();
            if (pids[user][r] == 0) {
                struct world_rank me = {r, 2, {0}, &w, apart[user]};
                if (setresgid(60000 + (gid_t)user, 60000 + (gid_t)user, 60000 + (gid_t)user) ||
                    setresuid(60000 + (uid_t)user, 60000 + (uid_t)user, 60000 + (uid_t)user))
                    _exit(77);
                exit(in_namespaces(&me));
            }
        }
    }
    int failed = 0, refused = 0;
    for (int user = 0; user < 5; user++)
        for (int r = 0; r < 2; r++) {
            int status = world_wait(pids[user][r], 60);
            refused += WIFEXITED(status) && WEXITSTATUS(status) == 77;
            failed += status != 0;
        }
    if (refused) {
        print_message("SKIP test_I09_jobs_of_five_users: other users are not allowed here\n");
        skip();
    }
    assert_int_equal(failed, 0);
}

/* ---- M02, M03: nothing listens on the network ---- */

static bool is_socket_of(pid_t pid, unsigned long inode) {
    char path[64], link[128], expected[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    (void)snprintf(expected, sizeof expected, "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%.32s", (int)pid, e->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        if (n > 0) {
            link[n] = 0;
            found = strcmp(link, expected) == 0;
        }
    }
    if (dir)
        closedir(dir);
    return found;
}
static int network_sockets_of(pid_t pid) {
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp",
                                         "/proc/net/udp6"};
    int count = 0;
    for (int i = 0; i < 4; i++) {
        FILE *f = fopen(tables[i], "r");
        char line[512];
        unsigned long inode;
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %lu", &inode) == 1 && inode)
                count += is_socket_of(pid, inode);
        if (f)
            fclose(f);
    }
    return count;
}
static int m03(struct world_rank *me) {
    if (ops_on_private_memory(me, me->comm))
        return 1;
    WORLD_CHECK(network_sockets_of(getpid()) == 0);
    return 0;
}
static void test_M02_M03_no_network_socket(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, m03, NULL, 30), 0);
    assert_int_equal(network_sockets_of(w.daemon), 0);
}

/* ---- K02: idle and waiting cost nothing ---- */

static double cpu_of(pid_t pid) {
    char path[64];
    unsigned long user = 0, system = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                    &system) != 2)
        user = system = 0;
    if (f)
        fclose(f);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}
static double own_cpu(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}
static int k02(struct world_rank *me) {
    float v = 1, sum;
    WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    double before = own_cpu();
    if (me->rank == 1)
        pause_ms(4000);
    WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_CHECK(own_cpu() - before < 0.02 * 4 * world_slowness());
    return 0;
}
static void test_K02_waiting_and_idle_use_no_processor(void **state) {
    (void)state;
    double before = cpu_of(w.daemon);
    assert_int_equal(world_run(&w, 2, k02, NULL, 30), 0);
    double waiting = cpu_of(w.daemon) - before;
    assert_true(waiting < 0.02 * 4 * 2 * world_slowness());
    pause_ms(200);
    before = cpu_of(w.daemon);
    pause_ms(5000);
    /* Nobody is attached: one clock tick at most. */
    assert_true(cpu_of(w.daemon) - before <= 1.01 / (double)sysconf(_SC_CLK_TCK));
}

/* ---- K05: one processor that is not number 0 ---- */

static int k05(struct world_rank *me) {
    cpu_set_t set;
    WORLD_CHECK(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1);
    return ops_on_private_memory(me, me->comm);
}
static void test_K05_one_processor(void **state) {
    cpu_set_t all, one;
    struct world own;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int last = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all))
            last = cpu;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    world_start(&own, NULL);
    int failed = world_run(&own, 4, k05, NULL, 60);
    int ended = world_stop(&own);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(failed, 0);
    assert_int_equal(ended, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H02_cross_memory_attach_denied),
        cmocka_unit_test(test_H01_H03_I11_namespaces_of_their_own),
        cmocka_unit_test(test_I09_jobs_of_five_users),
        cmocka_unit_test(test_M02_M03_no_network_socket),
        cmocka_unit_test(test_K02_waiting_and_idle_use_no_processor),
        cmocka_unit_test(test_K05_one_processor),
    };
    return cmocka_run_group_tests_name("client_container", tests, setup, teardown);
}
