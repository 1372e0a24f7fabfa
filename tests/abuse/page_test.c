/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that never come and descriptors whose close never ends: file systems and fault handlers of
 * a client's choice. Whoever touches such a page hangs until its maker dies, so only the threads of
 * its own job may come near one, and the daemon never. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/abuse/fuse.h"
#include "tests/abuse/raw.h"
#include "tests/abuse/scene.h"

#define BUFFER_BYTES (1u << 20)

#define PINGS 21
#define PING_S 0.1 /* median: one answer may be late on a busy machine */

static int compare(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The control loop answers, and the other tenant's ops go on. */
static void expect_service(const struct scene *scene) {
    double took[PINGS];
    for (int i = 0; i < PINGS; i++) {
        took[i] = raw_ask(scene->w.socket, "{\"verb\": \"ping\"}", NULL, 0);
        assert_true(took[i] >= 0);
        usleep(20000);
    }
    qsort(took, PINGS, sizeof took[0], compare);
    if (took[PINGS / 2] > PING_S * world_slowness())
        print_error("of %d pings half took more than %.3f s\n", PINGS, took[PINGS / 2]);
    assert_true(took[PINGS / 2] < PING_S * world_slowness());
    scene_expect_progress(scene);
}

/* ---- descriptors ---- */

static bool send_with_fd(struct raw_client *e, void *message, uint32_t bytes, uint32_t type,
                         int fd) {
    struct occl_detail detail;
    int fds[2] = {fd, fd};
    occl_msg_init(message, type, ++e->request);
    return occl_fd_send(e->fd, message, bytes, fds, 2, true, &detail) == OCCL_OK;
}

/* With HELLO, as the pidfd that may come with it; with a request of a session; with a datagram that
 * is no message. Nothing is closed here: that would hang. */
static _Noreturn void send_descriptors(const struct fuse *f, const char *socket, int *sent) {
    struct raw_client e;
    struct occl_msg_hello hello;
    struct occl_msg_members members;
    char junk[100];
    scene_become_enemy();
    int fd = fuse_open_unclosed(f);
    for (int i = 0; i < 3 && fd >= 0; i++) {
        raw_init(&e, socket, 1);
        e.fd = raw_connect(socket);
        memset(&hello, 0, sizeof hello);
        hello.abi_min = OCCL_ABI_VERSION_MIN;
        hello.abi_max = OCCL_ABI_VERSION;
        hello.role = i == 0 ? OCCL_ROLE_RANK : OCCL_ROLE_ADMIN;
        hello.rank_hint = -1;
        (void)send_with_fd(&e, &hello, sizeof hello, OCCL_MSG_HELLO, fd);
        raw_init(&e, socket, 1);
        (void)raw_hello(&e, "enemy");
        memset(&members, 0, sizeof members);
        (void)send_with_fd(&e, &members, sizeof members, OCCL_MSG_MEMBERS, fd);
        memset(junk, i, sizeof junk);
        (void)send_with_fd(&e, junk, sizeof junk, 77, fd);
        __atomic_add_fetch(sent, 1, __ATOMIC_SEQ_CST);
    }
    for (;;)
        (void)pause();
}

static void test_descriptors_whose_close_never_ends(void **state) {
    struct scene scene;
    struct fuse f;
    const char *why = "";
    (void)state;
    if (!fuse_start(&f, &why)) {
        printf("SKIP test_descriptors_whose_close_never_ends: no FUSE mount: %s\n", why);
        skip();
    }
    int *sent = world_shared(sizeof *sent);
    scene_open(&scene, NULL);
    scene_expect_progress(&scene);
    (void)fflush(NULL);
    pid_t enemy = fork();
    if (enemy == 0)
        send_descriptors(&f, scene.w.socket, sent);
    for (int i = 0; i < 500 && __atomic_load_n(sent, __ATOMIC_SEQ_CST) < 3; i++)
        usleep(10000);
    double took = raw_ask(scene.w.socket, "{\"verb\": \"ping\"}", NULL, 0);
    bool alive = took >= 0;
    if (alive)
        expect_service(&scene);
    /* Only the end of the server lets the enemy, and a daemon that was caught, go on. */
    fuse_stop(&f);
    (void)kill(enemy, SIGKILL);
    (void)world_wait(enemy, 10);
    assert_int_equal(*sent, 3);
    assert_true(alive);
    scene_close(&scene);
}

/* ---- buffers ---- */

struct hang {
    bool fuse; /* else pages are withheld by userfaultfd */
    struct fuse f;
    size_t bytes;
    enum { HANG_ALL_REDUCE, HANG_SOURCE, HANG_TARGET } kind;
    int entered, returned; /* ranks in the op that hangs */
    uint64_t others;       /* ops beside it, completed with right results */
};

struct hang_op {
    struct world_rank *me;
    struct hang *h;
    char *buffer;
    enum occl_result result;
};

static enum occl_result do_op(struct hang_op *o, int64_t timeout_ns) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = 5;
    attr.timeout_ns = timeout_ns;
    if (o->h->kind == HANG_ALL_REDUCE)
        return occl_all_reduce(o->buffer, o->buffer, o->h->bytes / 4, OCCL_FLOAT32, OCCL_SUM,
                               o->me->comm, &attr, NULL);
    int root = o->h->kind == HANG_SOURCE ? 1 : 0; /* rank 1 owns the page */
    return occl_broadcast(o->buffer, o->buffer, o->h->bytes / 4, OCCL_FLOAT32, root, o->me->comm,
                          &attr, NULL);
}

static void *hang_in_op(void *arg) {
    struct hang_op *o = arg;
    __atomic_add_fetch(&o->h->entered, 1, __ATOMIC_SEQ_CST);
    o->result = do_op(o, o->me->rank == 0 ? 1000000000 : 0);
    __atomic_add_fetch(&o->h->returned, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* The other thread of the process is not to notice, until rank 1 is killed. */
static int work_beside(struct world_rank *me, struct hang *h) {
    static float b[2000];
    for (uint64_t i = 0;; i++) {
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        attr.tag = 6;
        world_fill(b, 2000, me->rank, i);
        enum occl_result result =
            occl_all_reduce(b, b, 2000, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL);
        if (result == OCCL_ERROR_PEER_FAILED) {
            WORLD_CHECK(strstr(occl_last_error(), "rank 1"));
            return 0;
        }
        WORLD_CHECK(result == OCCL_SUCCESS);
        WORLD_CHECK(world_wrong_sum(b, 2000, me->size, i) == 0);
        __atomic_add_fetch(&h->others, 1, __ATOMIC_SEQ_CST);
    }
}

/* Where the kernel asks a handler that never answers for each page. */
static bool withhold(char *buffer, size_t bytes) {
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {
        .range = {(uintptr_t)buffer, bytes},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    return fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0 &&
           madvise(buffer, bytes, MADV_DONTNEED) == 0;
}

static int hanging_rank(struct world_rank *me) {
    struct hang *h = me->arg;
    struct hang_op o = {me, h, NULL, OCCL_SUCCESS};
    pthread_t thread;
    int fd = h->fuse && me->rank == 1 ? fuse_open_unread(&h->f) : -1;
    o.buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    WORLD_CHECK(o.buffer != MAP_FAILED);
    /* Pages that went away after the library has looked at them. */
    if (!h->fuse)
        WORLD_OK(do_op(&o, 0));
    if (!h->fuse && me->rank == 1)
        WORLD_CHECK(withhold(o.buffer, BUFFER_BYTES));
    WORLD_CHECK(pthread_create(&thread, NULL, hang_in_op, &o) == 0);
    if (work_beside(me, h))
        return 1;
    (void)pthread_join(thread, NULL);
    WORLD_CHECK(o.result == OCCL_ERROR_TIMEOUT || o.result == OCCL_ERROR_PEER_FAILED);
    return 0;
}

static void expect_named(const struct scene *scene, pid_t late) {
    static char text[1 << 16];
    char wanted[32];
    assert_true(raw_ask(scene->w.socket, "{\"verb\": \"why\"}", text, sizeof text) >= 0);
    (void)snprintf(wanted, sizeof wanted, "%d", (int)late);
    if (!strstr(text, wanted))
        print_error("process %s is not in %s\n", wanted, text);
    assert_non_null(strstr(text, wanted));
}

/* h->fuse, bytes and kind are set. at_deadline: rank 0 is to return from the op by itself; else it
 * may have come to read the page for its job, and hangs in the kernel as well. A process that waits
 * for its file system's answer does not die of SIGKILL before that server does; its peer hears of
 * the failure all the same. */
static void hang_and_kill(struct hang *h, bool at_deadline) {
    struct scene scene;
    pid_t pids[2];
    scene_open(&scene, NULL);
    h->entered = h->returned = 0;
    world_spawn(&scene.w, 2, hanging_rank, h, pids);
    for (int i = 0; i < 1000 && __atomic_load_n(&h->entered, __ATOMIC_SEQ_CST) < 2; i++)
        usleep(10000);
    assert_int_equal(h->entered, 2);
    usleep(300000);
    expect_named(&scene, pids[1]);
    expect_service(&scene);
    uint64_t others = __atomic_load_n(&h->others, __ATOMIC_SEQ_CST);
    usleep(1000000);
    assert_true(__atomic_load_n(&h->others, __ATOMIC_SEQ_CST) > others);
    if (at_deadline)
        assert_int_equal(__atomic_load_n(&h->returned, __ATOMIC_SEQ_CST), 1);
    (void)kill(pids[1], SIGKILL);
    assert_int_equal(world_wait(pids[0], 5), 0);
    expect_service(&scene);
    if (h->fuse)
        fuse_stop(&h->f);
    assert_int_not_equal(world_wait(pids[1], 5), -1);
    scene_close(&scene);
}

static void test_buffers_of_a_file_that_never_answers(void **state) {
    static const struct {
        size_t bytes;
        int kind;
    } cases[] = {
        {16, HANG_ALL_REDUCE},
        {2000, HANG_SOURCE},
        {BUFFER_BYTES, HANG_TARGET},
    };
    struct hang *h = world_shared(sizeof *h);
    const char *why = "";
    (void)state;
    h->fuse = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!fuse_start(&h->f, &why)) {
            printf("SKIP test_buffers_of_a_file_that_never_answers: no FUSE mount: %s\n", why);
            skip();
        }
        h->bytes = cases[i].bytes;
        h->kind = cases[i].kind;
        hang_and_kill(h, true);
    }
}

static void test_buffers_whose_pages_are_withheld(void **state) {
    struct hang *h = world_shared(sizeof *h);
    (void)state;
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (fd < 0) {
        printf("SKIP test_buffers_whose_pages_are_withheld: userfaultfd: %s\n", strerror(errno));
        skip();
    }
    (void)close(fd);
    for (int kind = HANG_ALL_REDUCE; kind <= HANG_TARGET; kind++) {
        h->bytes = BUFFER_BYTES;
        h->kind = kind;
        hang_and_kill(h, false);
    }
    h->bytes = 16;
    h->kind = HANG_ALL_REDUCE;
    hang_and_kill(h, true);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors_whose_close_never_ends),
        cmocka_unit_test(test_buffers_of_a_file_that_never_answers),
        cmocka_unit_test(test_buffers_whose_pages_are_withheld),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
