/* SPDX-License-Identifier: Apache-2.0 */
/* Regions and what protects them: seals, verification by the receiver, holes, and the guard that
 * turns a bus error of a lane into a status. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/guard.h"
#include "shm_ipc/limits.h"
#include "shm_ipc/region.h"

#define BYTES (64ull << 10)
static const uint64_t PAGE = OCCL_PAGE_BYTES;

static struct occl_memfd make(uint32_t flags) {
    struct occl_memfd memfd;
    struct occl_detail detail;
    assert_int_equal(occl_memfd_create("occl-test", BYTES, flags, &memfd, &detail), OCCL_OK);
    return memfd;
}

static char *map(const struct occl_memfd *memfd, uint32_t flags) {
    void *base = NULL;
    struct occl_detail detail;
    assert_int_equal(occl_memfd_map(memfd->fd, memfd->bytes, flags, &base, &detail), OCCL_OK);
    return base;
}

static void size_is_sealed(void **state) {
    (void)state;
    struct occl_memfd memfd = make(0);
    assert_int_equal(memfd.bytes, BYTES);
    assert_int_equal(memfd.huge, 0);
    assert_int_equal(fcntl(memfd.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(ftruncate(memfd.fd, 0), -1);
    assert_int_equal(ftruncate(memfd.fd, 2 * BYTES), -1);
    assert_int_equal(fcntl(memfd.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(occl_memfd_verify(memfd.fd, BYTES, false, NULL), OCCL_OK);
    occl_memfd_close(&memfd);
    occl_memfd_close(&memfd);
    assert_int_equal(memfd.fd, -1);
}

static void sizes_are_rounded_and_checked(void **state) {
    (void)state;
    struct occl_memfd memfd = {-1, 0, 0};
    struct occl_detail detail;
    assert_int_equal(occl_memfd_create("occl-test", 1, 0, &memfd, &detail), OCCL_OK);
    assert_int_equal(memfd.bytes, OCCL_PAGE_BYTES);
    occl_memfd_close(&memfd);
    assert_int_equal(occl_memfd_create("occl-test", 0, 0, &memfd, &detail), OCCL_E_INVALID);
    assert_int_equal(occl_memfd_create("occl-test", UINT64_MAX, 0, &memfd, &detail),
                     OCCL_E_INVALID);
    assert_non_null(strstr(detail.text, "expected"));
    assert_int_equal(memfd.fd, -1);
}

static void mappings_share_bytes(void **state) {
    (void)state;
    struct occl_memfd memfd = make(0);
    char *a = map(&memfd, OCCL_MAP_WRITE);
    char *b = map(&memfd, OCCL_MAP_WRITE | OCCL_MAP_POPULATE);
    char *c = map(&memfd, OCCL_MAP_WRITE | OCCL_MAP_POPULATE | OCCL_MAP_LARGE);
    unsigned char resident[BYTES / OCCL_PAGE_BYTES];
    assert_int_equal(mincore(b, BYTES, resident), 0);
    for (size_t i = 0; i < sizeof resident; i++)
        assert_int_equal(resident[i] & 1, 1);
    memset(a, 7, BYTES);
    assert_memory_equal(a, b, BYTES);
    assert_memory_equal(a, c, BYTES);
    occl_memfd_unmap(a, BYTES);
    occl_memfd_unmap(b, BYTES);
    occl_memfd_unmap(c, BYTES);
    occl_memfd_unmap(NULL, BYTES);
    occl_memfd_close(&memfd);
}

static void one_way_page_has_one_writer(void **state) {
    (void)state;
    struct occl_memfd memfd;
    struct occl_detail detail;
    void *base = NULL, *refused = NULL;
    assert_int_equal(occl_memfd_create_one_way("occl-job", 100, &memfd, &base, &detail), OCCL_OK);
    assert_int_equal(occl_memfd_verify(memfd.fd, OCCL_PAGE_BYTES, true, &detail), OCCL_OK);
    assert_int_equal(occl_memfd_map(memfd.fd, OCCL_PAGE_BYTES, OCCL_MAP_WRITE, &refused, &detail),
                     OCCL_E_PERMISSION);
    assert_null(refused);
    char *reader = map(&memfd, 0);
    assert_int_equal(mprotect(reader, OCCL_PAGE_BYTES, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(pwrite(memfd.fd, "x", 1, 0), -1);
    memcpy(base, "grant", 6);
    assert_string_equal(reader, "grant");
    occl_memfd_unmap(reader, OCCL_PAGE_BYTES);
    occl_memfd_unmap(base, OCCL_PAGE_BYTES);
    occl_memfd_close(&memfd);
}

static void expect_refused(int fd, uint64_t bytes, bool one_way, const char *word) {
    struct occl_detail detail;
    assert_int_equal(occl_memfd_verify(fd, bytes, one_way, &detail), OCCL_E_PROTOCOL);
    if (strstr(detail.text, word) == NULL)
        fail_msg("'%s' lacks '%s'", detail.text, word);
}

static void received_descriptors_are_verified(void **state) {
    (void)state;
    struct occl_memfd memfd = make(0);
    int pipes[2], plain;
    char path[] = "/tmp/occl-region-XXXXXX";
    expect_refused(memfd.fd, BYTES + OCCL_PAGE_BYTES, false, "expected");
    expect_refused(memfd.fd, BYTES - OCCL_PAGE_BYTES, false, "expected");
    expect_refused(memfd.fd, BYTES, true, "seals");
    assert_int_equal(pipe(pipes), 0);
    expect_refused(pipes[0], BYTES, false, "not a memfd");
    expect_refused(-1, BYTES, false, "descriptor");
    plain = mkstemp(path);
    assert_true(plain >= 0);
    assert_int_equal(ftruncate(plain, BYTES), 0);
    expect_refused(plain, BYTES, false, "memfd");
    assert_int_equal(unlink(path), 0);
    expect_refused(plain, BYTES, false, "memfd");
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, BYTES), 0);
    expect_refused(unsealed, BYTES, false, "seals");
    /* Shrinking forbidden, but more seals possible: somebody could still take our write access. */
    assert_int_equal(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    expect_refused(unsealed, BYTES, false, "seals");
    (void)close(unsealed);
    (void)close(plain);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    occl_memfd_close(&memfd);
}

static void holes_read_as_zeros(void **state) {
    (void)state;
    struct occl_memfd memfd = make(0);
    char *base = map(&memfd, OCCL_MAP_WRITE | OCCL_MAP_POPULATE);
    memset(base, 9, BYTES);
    assert_int_equal(
        fallocate(memfd.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, OCCL_PAGE_BYTES), 0);
    assert_int_equal(base[0], 0);
    assert_int_equal(base[OCCL_PAGE_BYTES - 1], 0);
    assert_int_equal(base[OCCL_PAGE_BYTES], 9);
    occl_memfd_unmap(base, BYTES);
    occl_memfd_close(&memfd);
}

static void huge_falls_back_to_ordinary(void **state) {
    (void)state;
    struct occl_memfd memfd = make(OCCL_MEMFD_HUGE);
    assert_true(memfd.bytes >= BYTES);
    assert_int_equal(memfd.bytes % (memfd.huge ? OCCL_HUGE_PAGE_BYTES : OCCL_PAGE_BYTES), 0);
    assert_int_equal(occl_memfd_verify(memfd.fd, memfd.bytes, false, NULL), OCCL_OK);
    /* More than any pool holds. */
    struct occl_memfd large;
    uint64_t bytes = (occl_huge_pages_free() + 1) * OCCL_HUGE_PAGE_BYTES;
    assert_int_equal(occl_memfd_create("occl-test", bytes, OCCL_MEMFD_HUGE, &large, NULL), OCCL_OK);
    assert_int_equal(large.huge, 0);
    occl_memfd_close(&large);
    occl_memfd_close(&memfd);
}

/* ---- the guard ---- */

struct access {
    volatile char *from;
    char got;
    int reached_end;
};

static void touch(void *arg) {
    struct access *a = arg;
    a->got = *a->from;
    a->reached_end = 1;
}

static void guarded_run_without_fault(void **state) {
    (void)state;
    char bytes[] = "ok";
    struct access a = {bytes, 0, 0};
    assert_int_equal(occl_guard_install(), OCCL_OK);
    assert_int_equal(occl_guard_run(NULL, 0, touch, &a, NULL), OCCL_OK);
    assert_int_equal(a.got, 'o');
    assert_int_equal(a.reached_end, 1);
}

/* A page behind the end of its file: the same bus error as a hole in exhausted huge pages. */
static char *map_beyond_end(void) {
    int fd = memfd_create("short", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, OCCL_PAGE_BYTES), 0);
    char *base = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    (void)close(fd);
    return base;
}

static void bus_error_becomes_a_status(void **state) {
    (void)state;
    char *base = map_beyond_end();
    struct occl_guard_range ranges[] = {{&base, sizeof base}, {base, 2 * PAGE}};
    assert_int_equal(occl_guard_install(), OCCL_OK);
    for (int i = 0; i < 100; i++) {
        struct access a = {base + OCCL_PAGE_BYTES + 5, 0, 0};
        uint64_t address = 0;
        assert_int_equal(occl_guard_run(ranges, 2, touch, &a, &address), OCCL_E_FAULT);
        assert_int_equal(address, (uint64_t)(uintptr_t)a.from);
        assert_int_equal(a.reached_end, 0);
        a.from = base;
        assert_int_equal(occl_guard_run(ranges, 2, touch, &a, NULL), OCCL_OK);
    }
    (void)munmap(base, 2 * PAGE);
}

static void unmapped_page_becomes_a_status(void **state) {
    (void)state;
    char *base = mmap(NULL, OCCL_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct occl_guard_range range = {base, OCCL_PAGE_BYTES};
    struct access a = {base, 0, 0};
    assert_int_equal(occl_guard_install(), OCCL_OK);
    assert_int_equal(occl_guard_run(&range, 1, touch, &a, NULL), OCCL_E_FAULT);
    (void)munmap(base, OCCL_PAGE_BYTES);
}

struct nested {
    struct occl_guard_range range;
    struct access access;
    int inner_status;
};

static void run_nested(void *arg) {
    struct nested *n = arg;
    /* The inner guard knows no range: the fault belongs to the outer one. */
    n->inner_status = 77;
    n->inner_status = occl_guard_run(NULL, 0, touch, &n->access, NULL);
}

static void outer_guard_takes_its_faults(void **state) {
    (void)state;
    char *base = map_beyond_end();
    struct nested n = {{base, 2 * PAGE}, {base + OCCL_PAGE_BYTES, 0, 0}, 0};
    assert_int_equal(occl_guard_install(), OCCL_OK);
    assert_int_equal(occl_guard_run(&n.range, 1, run_nested, &n, NULL), OCCL_E_FAULT);
    assert_int_equal(n.inner_status, 77);
    /* And the guard stack is empty again: the same range, unguarded, is fatal (next test). */
    n.access.from = base;
    assert_int_equal(occl_guard_run(&n.range, 1, run_nested, &n, NULL), OCCL_OK);
    assert_int_equal(n.inner_status, OCCL_OK);
    (void)munmap(base, 2 * PAGE);
}

/* Runs in a child; returns the signal that ended it, or 0. */
static int signal_of(void (*run)(void *), void *arg) {
    int exit_status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (occl_guard_install() == OCCL_OK)
            run(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    return WIFSIGNALED(exit_status) ? WTERMSIG(exit_status) : 0;
}

static void fault_outside(void *arg) {
    struct access *a = arg;
    struct occl_guard_range elsewhere = {a, sizeof *a};
    _exit(occl_guard_run(&elsewhere, 1, touch, a, NULL) == OCCL_OK ? 0 : 1);
}

static void raise_bus(void *arg) {
    (void)arg;
    (void)raise(SIGBUS);
}

static void other_faults_stay_fatal(void **state) {
    (void)state;
    char *base = map_beyond_end();
    struct access a = {base + OCCL_PAGE_BYTES, 0, 0};
    assert_int_equal(signal_of(fault_outside, &a), SIGBUS);
    assert_int_equal(signal_of(touch, &a), SIGBUS);
    assert_int_equal(signal_of(raise_bus, NULL), SIGBUS);
    (void)munmap(base, 2 * PAGE);
}

static void hole_in_huge_pages_becomes_a_status(void **state) {
    (void)state;
    struct occl_memfd memfd = {-1, 0, 0};
    if (occl_huge_pages_free() > 0)
        memfd = make(OCCL_MEMFD_HUGE);
    if (!memfd.huge) {
        (void)printf("SKIP hole_in_huge_pages_becomes_a_status: no free huge pages\n");
        occl_memfd_close(&memfd);
        skip();
    }
    char *base = map(&memfd, OCCL_MAP_WRITE);
    base[0] = 1;
    assert_int_equal(
        fallocate(memfd.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, OCCL_HUGE_PAGE_BYTES),
        0);
    /* Somebody takes every page that is left; then the hole cannot be filled. */
    uint64_t bytes = occl_huge_pages_free() * OCCL_HUGE_PAGE_BYTES;
    char *rest = bytes == 0 ? MAP_FAILED
                            : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
    struct occl_guard_range range = {base, memfd.bytes};
    struct access a = {base, 0, 0};
    assert_int_equal(occl_guard_install(), OCCL_OK);
    int status = occl_guard_run(&range, 1, touch, &a, NULL);
    /* The pool may refill by surplus pages; then the hole reads as zero. */
    assert_true(status == OCCL_E_FAULT || (status == OCCL_OK && a.got == 0));
    if (rest != MAP_FAILED)
        (void)munmap(rest, bytes);
    occl_memfd_unmap(base, memfd.bytes);
    occl_memfd_close(&memfd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_is_sealed),
        cmocka_unit_test(sizes_are_rounded_and_checked),
        cmocka_unit_test(mappings_share_bytes),
        cmocka_unit_test(one_way_page_has_one_writer),
        cmocka_unit_test(received_descriptors_are_verified),
        cmocka_unit_test(holes_read_as_zeros),
        cmocka_unit_test(huge_falls_back_to_ordinary),
        cmocka_unit_test(guarded_run_without_fault),
        cmocka_unit_test(bus_error_becomes_a_status),
        cmocka_unit_test(unmapped_page_becomes_a_status),
        cmocka_unit_test(outer_guard_takes_its_faults),
        cmocka_unit_test(other_faults_stay_fatal),
        cmocka_unit_test(hole_in_huge_pages_becomes_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
