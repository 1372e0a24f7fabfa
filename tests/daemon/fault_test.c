/* SPDX-License-Identifier: Apache-2.0 */
/* Fault sweep: the n-th allocation, then the n-th system call, of a whole life of two clients
 * fails, for all n until none is left to fail. Whatever happens to these two, nothing stays behind
 * and another client is served. The linker puts the functions below in front of the real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

enum sweep { SWEEP_NOTHING, SWEEP_MEMORY, SWEEP_SYSTEM };

/* Counts down only while the daemon runs a round. */
static struct {
    enum sweep kind;
    bool armed;
    uint32_t left; /* calls until the one that fails */
    bool failed;
} fault;

static bool strikes(enum sweep kind) {
    if (!fault.armed || fault.kind != kind || fault.failed)
        return false;
    if (fault.left > 0) {
        fault.left--;
        return false;
    }
    fault.failed = true;
    return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t bytes);
int __real_fcntl(int fd, int command, ...);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_fcntl(int fd, int command, long arg);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);

static int fail_with(int error) {
    errno = error;
    return -1;
}

void *__wrap_malloc(size_t bytes) {
    return strikes(SWEEP_MEMORY) ? NULL : __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    return strikes(SWEEP_MEMORY) ? NULL : __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
    return strikes(SWEEP_MEMORY) ? NULL : __real_realloc(old, bytes);
}
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    if (strikes(SWEEP_SYSTEM)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(at, bytes, prot, flags, fd, offset);
}
int __wrap_memfd_create(const char *name, unsigned flags) {
    return strikes(SWEEP_SYSTEM) ? fail_with(EMFILE) : __real_memfd_create(name, flags);
}
int __wrap_ftruncate(int fd, off_t bytes) {
    return strikes(SWEEP_SYSTEM) ? fail_with(ENOMEM) : __real_ftruncate(fd, bytes);
}
int __wrap_fcntl(int fd, int command, long arg) {
    return strikes(SWEEP_SYSTEM) ? fail_with(EMFILE) : __real_fcntl(fd, command, arg);
}
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags) {
    return strikes(SWEEP_SYSTEM) ? fail_with(ENOBUFS) : __real_sendmsg(fd, msg, flags);
}
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags) {
    return strikes(SWEEP_SYSTEM) ? fail_with(ENOMEM) : __real_recvmsg(fd, msg, flags);
}
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes) {
    return strikes(SWEEP_SYSTEM) ? fail_with(ENOBUFS)
                                 : __real_getsockopt(fd, level, name, value, bytes);
}
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    return strikes(SWEEP_SYSTEM) ? fail_with(EMFILE) : __real_accept4(fd, address, bytes, flags);
}

/* ---- the life ---- */

static void rounds(struct fixture *f) {
    fault.armed = true;
    for (int i = 0; i < 3; i++)
        (void)occl_daemon_step(f->daemon, 0);
    fault.armed = false;
}

/* Sends, lets the daemon work, and drops whatever comes back: every answer is right here. */
static void say(struct fixture *f, struct client *c, void *msg, uint32_t bytes) {
    struct occl_msg_header *header = msg;
    header->request = ++c->request;
    client_send(c, msg, bytes, -1);
    rounds(f);
    struct fixture *pumped = c->fixture;
    c->fixture = NULL;
    while (client_receive(c, 0))
        continue;
    c->fixture = pumped;
}

static void live(struct fixture *f, struct client *c) {
    struct occl_msg_hello hello;
    struct occl_msg_region_alloc alloc;
    struct occl_msg_region_map map;
    struct occl_msg_comm_create create;
    struct occl_msg_comm_split split;
    struct occl_msg_plain bye;
    for (int i = 0; i < 2; i++) {
        client_connect(&c[i], f, NULL);
        rounds(f);
        client_hello_fill(&hello, "job", "");
        say(f, &c[i], &hello, sizeof hello);
    }
    memset(&alloc, 0, sizeof alloc);
    occl_msg_init(&alloc.h, OCCL_MSG_REGION_ALLOC, 0);
    alloc.bytes = 4096;
    say(f, &c[0], &alloc, sizeof alloc);
    memset(&map, 0, sizeof map);
    occl_msg_init(&map.h, OCCL_MSG_REGION_MAP, 0);
    map.region = 1;
    say(f, &c[1], &map, sizeof map);
    memset(&create, 0, sizeof create);
    occl_msg_init(&create.h, OCCL_MSG_COMM_CREATE, 0);
    client_unique_id(3, &create.unique_id);
    create.ranks = 2;
    create.priority = 255;
    create.timeout_ns = 3600000000000ull;
    for (uint32_t i = 0; i < 2; i++) {
        create.rank = i;
        say(f, &c[i], &create, sizeof create);
    }
    memset(&split, 0, sizeof split);
    occl_msg_init(&split.h, OCCL_MSG_COMM_SPLIT, 0);
    split.comm = 1;
    split.priority = 255;
    split.timeout_ns = 3600000000000ull;
    for (int i = 0; i < 2; i++)
        say(f, &c[i], &split, sizeof split);
    memset(&bye, 0, sizeof bye);
    occl_msg_init(&bye.h, OCCL_MSG_DETACH, 0);
    say(f, &c[0], &bye, sizeof bye);
    for (int i = 0; i < 2; i++)
        client_close(&c[i]);
    rounds(f);
}

static bool nobody_is_left(void *arg) {
    const struct fixture *f = arg;
    return f->daemon->rank_sessions == 0 && f->daemon->stray_count == 0;
}

static void sweep(enum sweep kind) {
    struct fixture f;
    struct client c[2];
    uint32_t n = 0;
    uint32_t level = 0;
    fixture_prepare(&f);
    fixture_start(&f);
    do {
        struct client after;
        memset(&fault, 0, sizeof fault);
        fault.kind = kind;
        fault.left = n;
        live(&f, c);
        bool struck = fault.failed;
        fault.kind = SWEEP_NOTHING;
        if (!fixture_pump(&f, 3000, nobody_is_left, &f))
            fail_msg("call %u: %u sessions and %u strays stay", n, f.daemon->rank_sessions,
                     f.daemon->stray_count);
        assert_int_equal(f.daemon->charge.used_bytes, 0);
        assert_int_equal(fake_engine_counts().comms, 0);
        assert_int_equal(fake_engine_counts().regions, 0);
        assert_null(f.daemon->tenants);
        client_attach(&after, &f, "after", "");
        client_close(&after);
        assert_true(fixture_pump(&f, 3000, nobody_is_left, &f));
        if (n == 0)
            level = open_descriptors();
        if (open_descriptors() != level)
            fail_msg("call %u: %u descriptors open, expected %u", n, open_descriptors(), level);
        n++;
        if (!struck)
            break;
    } while (n < 2000);
    assert_in_range(n, 20, 1999);
    fixture_stop(&f);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    sweep(SWEEP_MEMORY);
}

static void every_system_call_may_fail(void **state) {
    (void)state;
    sweep(SWEEP_SYSTEM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_system_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
