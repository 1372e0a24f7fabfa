/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory that peers could reach is copied through shared memory where that is quicker: what
 * is copied, how much at once, and what happens when there is no room for copies. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_lib/client.h"
#include "client_lib/inspect.h"
#include "client_lib/memory.h"
#include "tests/client/world.h"

#define MIB ((size_t)1 << 20)
#define HUGE_BYTES (2 * MIB)
/* Room of a process when the largest copy is so large. */
#define ROOM_BYTES(copy_max) (OCCL_ROOM_COPIES * (copy_max))

static uint64_t staging(struct world_rank *me) {
    struct occl_mem_stats stats = {.size = sizeof stats};
    return occl_comm_mem_stats(me->comm, &stats) == OCCL_SUCCESS ? stats.staging_bytes : UINT64_MAX;
}

static int sum(struct world_rank *me, float *in, float *out, size_t count, uint64_t salt) {
    world_fill(in, count, me->rank, salt);
    WORLD_OK(occl_all_reduce(in, out, count, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL));
    WORLD_CHECK(world_wrong_sum(out, count, me->size, salt) == 0);
    return 0;
}

static void run(int ranks, world_main main_of_rank, const char *const *extra) {
    struct world w;
    world_start(&w, extra);
    assert_int_equal(world_run(&w, ranks, main_of_rank, NULL, 60), 0);
    assert_int_equal(world_stop(&w), 0);
}

/* ---- what is copied ---- */

static int small_ones(struct world_rank *me) {
    static float in[50000], out[50000];
    WORLD_CHECK(occl_inspect_cross_memory(me->comm) == 1);
    for (uint64_t i = 0; i < 20; i++)
        if (sum(me, in, out, 50000, i))
            return 1;
    uint64_t bytes = staging(me);
    WORLD_CHECK(bytes > 0 && bytes <= 4 * MIB); /* reused */
    return 0;
}

static int none(struct world_rank *me) {
    static float in[50000], out[50000];
    if (sum(me, in, out, 50000, 1))
        return 1;
    WORLD_CHECK(staging(me) == 0);
    return 0;
}

static int one_too_large(struct world_rank *me) {
    static float in[60000], out[60000];
    if (sum(me, in, out, 60000, 1))
        return 1;
    WORLD_CHECK(staging(me) == 0);
    return sum(me, in, out, 50000, 1) || staging(me) == 0;
}

static void test_small_buffers_are_copied(void **state) {
    (void)state;
    run(3, small_ones, NULL);
}
static void test_copy_max_is_kept(void **state) {
    static const char *const never[] = {"--set", "copy_max=0", NULL};
    static const char *const some[] = {"--set", "copy_max=200000", NULL};
    (void)state;
    run(2, none, never);
    run(2, one_too_large, some);
}

/* ---- pages ---- */

/* 2 MiB of private memory that begins at a huge page's border. */
static float *pages(bool huge) {
    char *p =
        mmap(NULL, 2 * HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    p += HUGE_BYTES - (uintptr_t)p % HUGE_BYTES;
    (void)madvise(p, HUGE_BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(p, 1, HUGE_BYTES);
    return (float *)(void *)p;
}

static bool is_huge(const void *p) {
    FILE *smaps = fopen("/proc/self/smaps", "re");
    char line[256];
    unsigned long from = 0, to = 0, kib = 0;
    bool found = false;
    while (smaps && fgets(line, sizeof line, smaps)) {
        unsigned long low, high;
        if (sscanf(line, "%lx-%lx ", &low, &high) == 2) {
            from = low;
            to = high;
        }
        bool here = (uintptr_t)p >= from && (uintptr_t)p < to;
        found = found || (here && sscanf(line, "AnonHugePages: %lu", &kib) == 1 && kib >= 2048);
    }
    if (smaps)
        (void)fclose(smaps);
    return found;
}

#define NO_HUGE_PAGES 77

static int by_pages(struct world_rank *me) {
    float *in = pages(true), *out = pages(true);
    size_t count = MIB / 2 / sizeof *in;
    WORLD_CHECK(in && out);
    bool huge = is_huge(in) && is_huge(out);
    if (huge && (sum(me, in, out, count, 1) || staging(me) != 0))
        return 1; /* (or the kernel does not tell of them) */
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    in = pages(false);
    out = pages(false);
    WORLD_CHECK(in && out && !is_huge(in));
    if (sum(me, in, out, count, 1))
        return 1;
    WORLD_CHECK(staging(me) > 0);
    return huge ? 0 : NO_HUGE_PAGES;
}

static bool kernel_tells(void) {
    FILE *release = fopen("/proc/sys/kernel/osrelease", "re");
    int major = 0, minor = 0;
    if (release) {
        if (fscanf(release, "%d.%d", &major, &minor) != 2)
            major = 0;
        (void)fclose(release);
    }
    return major > 6 || (major == 6 && minor >= 7);
}

static void test_huge_pages_are_read_in_place(void **state) {
    pid_t pids[2];
    struct world w;
    bool skipped = false;
    (void)state;
    if (!kernel_tells()) {
        print_message("SKIP test_huge_pages_are_read_in_place: the kernel, below 6.7, does not "
                      "tell the pages of a buffer\n");
        skip();
    }
    world_start(&w, NULL);
    world_spawn(&w, 2, by_pages, NULL, pids);
    for (int i = 0; i < 2; i++) {
        int status = world_wait(pids[i], 30);
        skipped = skipped || status == NO_HUGE_PAGES << 8;
        assert_true(status == 0 || status == NO_HUGE_PAGES << 8);
    }
    assert_int_equal(world_stop(&w), 0);
    if (skipped) {
        print_message("SKIP test_huge_pages_are_read_in_place: no transparent huge pages\n");
        skip();
    }
}

/* ---- how much ---- */

/* So few that each finds a record: what goes through the daemon is copied whatever it costs. */
#define MANY 24

/* All of rank 0's ops wait, with their copies, for rank 1. */
static int many_at_once(struct world_rank *me) {
    static float in[MANY][MIB / sizeof(float)], out[MANY][MIB / sizeof(float)];
    size_t count = MIB / sizeof(float);
    struct occl_request requests[MANY];
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < MANY && turn == me->rank; i++) {
            world_fill(in[i], count, me->rank, (uint64_t)i);
            WORLD_OK(occl_all_reduce(in[i], out[i], count, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL,
                                     &requests[i]));
        }
        if (turn == 0 && me->rank == 0)
            WORLD_CHECK(staging(me) > 0 && staging(me) <= ROOM_BYTES(2 * MIB));
        if (turn == 0) {
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            attr.tag = 7; /* does not wait for what is outstanding */
            WORLD_OK(occl_barrier(me->comm, &attr, NULL));
        }
    }
    WORLD_OK(occl_wait_all(requests, MANY));
    for (int i = 0; i < MANY; i++)
        WORLD_CHECK(world_wrong_sum(out[i], count, me->size, (uint64_t)i) == 0);
    /* What was in use can be used again. */
    return sum(me, in[0], out[0], count, 5) || sum(me, in[1], out[1], count, 6);
}
static void test_copies_are_bounded(void **state) {
    (void)state;
    run(2, many_at_once, NULL);
}

/* ---- locked memory ---- */

static int64_t blocks(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 ? (int64_t)file.st_blocks : -1;
}

#define CANNOT_LOCK 77

/* A room is mapped without bringing its pages into being also where a process locks its memory. */
static int locked(struct world_rank *me) {
    int fd = memfd_create("room", MFD_CLOEXEC), control = memfd_create("control", MFD_CLOEXEC),
        status;
    WORLD_CHECK(fd >= 0 && control >= 0 && ftruncate(fd, MIB) == 0 && ftruncate(control, MIB) == 0);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    if (mlockall(MCL_FUTURE) != 0)
        return CANNOT_LOCK;
    client_region_adopt(UINT32_MAX, fd, MIB);
    void *usual = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, control, 0);
    WORLD_CHECK(munlockall() == 0);
    struct client_region *room = client_region_map(UINT32_MAX, &status);
    WORLD_CHECK(room && usual != MAP_FAILED);
    WORLD_CHECK(blocks(control) > 0); /* or the lock had no effect */
    WORLD_CHECK(blocks(fd) == 0);
    memset(room->base, 1, MIB); /* and it can be used */
    WORLD_CHECK(blocks(fd) > 0);
    client_regions_unuse(&room, 1);
    return 0;
}
static void skip_because(const char *reason) {
    print_message("SKIP test_rooms_are_not_locked: %s\n", reason);
    skip();
}

static void test_rooms_are_not_locked(void **state) {
    struct world w;
    pid_t pids[2];
    bool skipped = false;
    (void)state;
    if (world_sanitized())
        skip_because("sanitizers make mlockall do nothing");
    world_start(&w, NULL);
    world_spawn(&w, 2, locked, NULL, pids);
    for (int i = 0; i < 2; i++) {
        int status = world_wait(pids[i], 30);
        skipped = skipped || status == CANNOT_LOCK << 8;
        assert_true(status == 0 || status == CANNOT_LOCK << 8);
    }
    assert_int_equal(world_stop(&w), 0);
    if (skipped)
        skip_because("no memory may be locked here (RLIMIT_MEMLOCK)");
}

/* ---- no room ---- */

/* Fewer bytes than the rooms of two ranks need; their pages do fit. */
#define NO_ROOM "8MiB"
#define NO_ROOM_BYTES (8 * MIB)

static int without_room(struct world_rank *me) {
    static float in[50000], out[50000];
    void *p;
    for (uint64_t i = 0; i < 50; i++)
        if (sum(me, in, out, 50000, i))
            return 1;
    WORLD_CHECK(staging(me) == 0);
    WORLD_CHECK(strcmp(occl_last_error(), "") == 0);
    WORLD_CHECK(occl_mem_alloc(NO_ROOM_BYTES, &p) == OCCL_ERROR_QUOTA); /* the control */
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_without_room_for_copies(void **state) {
    static const char *const extra[] = {"--set", "quota_registered=" NO_ROOM, NULL};
    (void)state;
    run(2, without_room, extra);
}

/* ---- one source, one receiver ---- */

#define TURNS 300

/* Each waits a little, now and then, before it comes, and every byte is another one each time. */
static void fill_bytes(uint64_t *data, size_t count, uint64_t turn) {
    for (size_t i = 0; i < count; i++)
        data[i] = turn * 0x9e3779b97f4a7c15ull + i;
}
static bool right_bytes(const uint64_t *data, size_t count, uint64_t turn) {
    for (size_t i = 0; i < count; i++)
        if (data[i] != turn * 0x9e3779b97f4a7c15ull + i)
            return false;
    return true;
}

static int source_and_receiver(struct world_rank *me) {
    static uint64_t data[MIB / 8];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        size_t count = turn % 7 == 0 ? MIB / 8 : (turn * 7919) % (MIB / 8) + 1;
        bool spare = turn % 3 == 1 && turn % 2 == (uint64_t)me->rank;
        if (me->rank == 0)
            fill_bytes(data, count, turn);
        if (spare)
            (void)usleep(turn % 5 * 20);
        if (turn % 2)
            WORLD_OK(occl_broadcast(data, data, count, OCCL_UINT64, 0, me->comm, NULL, NULL));
        else if (me->rank == 0)
            WORLD_OK(occl_send(data, count, OCCL_UINT64, 1, me->comm, &attr, NULL));
        else
            WORLD_OK(occl_recv(data, count, OCCL_UINT64, 0, me->comm, &attr, NULL));
        WORLD_CHECK(right_bytes(data, count, turn));
    }
    /* The source copies nothing but what it sends, where both have a core. */
    if (occl_lib.job->node_ranks <= occl_lib.job->node_cores)
        WORLD_CHECK(me->rank == 0 ? staging(me) == 0 : staging(me) > 0);
    return 0;
}
static void test_a_receiver_collects(void **state) {
    (void)state;
    run(2, source_and_receiver, NULL);
}

/* ---- memory that is taken away ---- */

/* Rank 0 finds that its session has ended when it has copied its result: the daemon says so before
 * it takes the memory back, from when on it reads as zeros. */
static int when_the_session_ends(struct world_rank *me) {
    static const struct {
        uint32_t state;
        enum occl_result expected;
    } cases[] = {
        {OCCL_SESSION_LIVE, OCCL_SUCCESS},
        {OCCL_SESSION_CLOSED, OCCL_ERROR_DAEMON_LOST},
        {OCCL_SESSION_QUARANTINED, OCCL_ERROR_QUARANTINED},
        {OCCL_SESSION_DRAINING, OCCL_SUCCESS},
        {OCCL_SESSION_OVER, OCCL_SUCCESS},
    };
    static float in[50000], out[50000];
    for (uint64_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_fill(in, 50000, me->rank, i);
        if (me->rank == 0)
            occl_publish32(&occl_lib.page->session_state, cases[i].state);
        enum occl_result result =
            occl_all_reduce(in, out, 50000, OCCL_FLOAT32, OCCL_SUM, me->comm, NULL, NULL);
        occl_publish32(&occl_lib.page->session_state, OCCL_SESSION_LIVE);
        WORLD_CHECK(result == (me->rank == 0 ? cases[i].expected : OCCL_SUCCESS));
        WORLD_CHECK(staging(me) > 0);
    }
    return 0;
}
static void test_no_result_from_memory_that_is_gone(void **state) {
    (void)state;
    run(2, when_the_session_ends, NULL);
}

/* ---- who may still write ---- */

#define LOOK_NS 200000000ll

/* The first op of the communicator, and this rank's copies in it. */
static struct occl_record *first_record(struct occl_comm handle) {
    const struct client_comm *comm = occl_lib.comms[(uint32_t)handle.handle];
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, comm->untagged_next - 1};
    return occl_record_at(&comm->m, occl_place_of(key).slot);
}

enum late_end { ABORTS, KILLED, ABORTS_AND_IS_KILLED, BECOMES_ANOTHER, STOPPED_BESIDE_NO_DAEMON };

/* How rank 1 goes while a thread of it is inside a strand of x, as its line says. */
static int go(struct world_rank *me, enum late_end how, struct occl_comm x) {
    switch (how) {
    case ABORTS:
        WORLD_OK(occl_comm_abort(x));
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        return 0;
    case ABORTS_AND_IS_KILLED:
        WORLD_OK(occl_comm_abort(x));
        raise(SIGKILL);
        return 1;
    case KILLED:
        raise(SIGKILL);
        return 1;
    case BECOMES_ANOTHER:
        (void)execl("/bin/sleep", "sleep", "3", NULL);
        return 1;
    case STOPPED_BESIDE_NO_DAEMON:
        raise(SIGSTOP);
        return 0;
    }
    return 1;
}

/* Rank 0's op ends when rank 1's thread has left it, or is known to be no more: before, the room of
 * the result is not free. */
static int beside_a_late_writer(struct world_rank *me, enum late_end how, const char *hints) {
    static float in[50000], out[50000];
    struct occl_comm x;
    struct occl_request request;
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    attr.hints = hints;
    WORLD_OK(occl_comm_split(me->comm, 1, me->rank, &attr, &x));
    WORLD_OK(occl_barrier(x, NULL, NULL));
    if (me->rank == 1) {
        WORLD_OK(occl_barrier(me->comm, NULL, NULL)); /* rank 0 has submitted */
        WORLD_OK(occl_barrier(me->comm, NULL, NULL)); /* and raised this rank's count */
        return go(me, how, x);
    }
    WORLD_OK(occl_all_reduce(in, out, 50000, OCCL_FLOAT32, OCCL_SUM, x, NULL, &request));
    uint32_t *busy = &occl_line_at(first_record(x), 1)->busy;
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    occl_add32(busy, 1);
    (void)occl_barrier(me->comm, NULL, NULL); /* rank 1 may be gone before it has ended here */
    double start = world_now();
    if (how == ABORTS) {
        WORLD_CHECK(occl_wait_for(request, LOOK_NS) == OCCL_IN_PROGRESS);
        occl_add32(busy, UINT32_MAX);
        WORLD_CHECK(occl_wait(request) == OCCL_ERROR_ABORTED);
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        return 0;
    }
    if (how == STOPPED_BESIDE_NO_DAEMON) {
        (void)usleep(100000); /* it stops */
        start = world_now();
        WORLD_CHECK(kill(me->world->daemon, SIGKILL) == 0);
        WORLD_CHECK(occl_wait(request) == OCCL_ERROR_DAEMON_LOST);
        WORLD_CHECK(world_now() - start < 0.2 * world_slowness());
        WORLD_CHECK(strstr(occl_last_error(), "rank 1 is stopped") != NULL);
        return 0;
    }
    enum occl_result result = occl_wait(request);
    WORLD_CHECK(result == OCCL_ERROR_PEER_FAILED || result == OCCL_ERROR_ABORTED);
    WORLD_CHECK(world_now() - start < 1.0 * world_slowness()); /* not the peer-dead time */
    WORLD_CHECK(strstr(occl_last_error(), "may still write") == NULL);
    return 0;
}
static int late_aborts(struct world_rank *me) {
    return beside_a_late_writer(me, ABORTS, NULL);
}
static int late_killed(struct world_rank *me) {
    return beside_a_late_writer(me, KILLED, NULL);
}
static int late_killed_unreachable(struct world_rank *me) {
    return beside_a_late_writer(me, KILLED, "cross_memory=off");
}
static int late_aborts_killed(struct world_rank *me) {
    return beside_a_late_writer(me, ABORTS_AND_IS_KILLED, NULL);
}
static int late_aborts_killed_unreachable(struct world_rank *me) {
    return beside_a_late_writer(me, ABORTS_AND_IS_KILLED, "cross_memory=off");
}
static int late_becomes_another(struct world_rank *me) {
    return beside_a_late_writer(me, BECOMES_ANOTHER, NULL);
}
static int late_stopped(struct world_rank *me) {
    return beside_a_late_writer(me, STOPPED_BESIDE_NO_DAEMON, NULL);
}

static void test_late_writers_are_waited_for(void **state) {
    (void)state;
    run(2, late_aborts, NULL);
}

static void test_those_who_are_gone_are_not_waited_for(void **state) {
    static const struct {
        world_main main_of_rank;
        int status; /* of rank 1 */
    } cases[] = {
        {late_killed, SIGKILL},        {late_killed_unreachable, SIGKILL},
        {late_aborts_killed, SIGKILL}, {late_aborts_killed_unreachable, SIGKILL},
        {late_becomes_another, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world w;
        pid_t pids[2];
        world_start(&w, NULL);
        world_spawn(&w, 2, cases[i].main_of_rank, NULL, pids);
        assert_int_equal(world_wait(pids[0], 30), 0);
        assert_int_equal(world_wait(pids[1], 30), cases[i].status);
        assert_int_equal(world_stop(&w), 0);
    }
}

static void test_who_is_stopped_when_the_daemon_ends(void **state) {
    struct world w;
    pid_t pids[2];
    (void)state;
    world_start(&w, NULL);
    world_spawn(&w, 2, late_stopped, NULL, pids);
    assert_int_equal(world_wait(pids[0], 30), 0);
    assert_int_equal(kill(pids[1], SIGKILL), 0);
    assert_int_equal(world_wait(pids[1], 30), SIGKILL);
    (void)world_stop(&w); /* it was killed */
}

/* ---- nobody is asked ---- */

/* A daemon that stands still holds up no operation that does not need it, also not the first one of
 * its size. */
static int beside_a_stopped_daemon(struct world_rank *me) {
    static float in[200000], out[200000];
    static const size_t counts[] = {2000, 40000, 200000};
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    struct occl_request request;
    attr.timeout_ns = 5000000000ll * world_slowness();
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    if (me->rank == 0)
        WORLD_CHECK(kill(me->world->daemon, SIGSTOP) == 0);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    double start = world_now();
    for (uint64_t i = 0; i < 3; i++) {
        world_fill(in, counts[i], me->rank, i);
        WORLD_OK(
            occl_all_reduce(in, out, counts[i], OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, NULL));
        WORLD_CHECK(world_wrong_sum(out, counts[i], me->size, i) == 0);
    }
    WORLD_CHECK(world_now() - start < 2 * world_slowness());
    WORLD_CHECK(staging(me) > 0);
    world_fill(in, 100000, me->rank, 9);
    WORLD_OK(occl_all_reduce(in, out, 100000, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &request));
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    if (me->rank == 0)
        WORLD_CHECK(kill(me->world->daemon, SIGCONT) == 0);
    WORLD_OK(occl_wait(request));
    WORLD_CHECK(world_wrong_sum(out, 100000, me->size, 9) == 0);
    return 0;
}
static void test_no_operation_asks_the_daemon(void **state) {
    (void)state;
    run(2, beside_a_stopped_daemon, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_buffers_are_copied),
        cmocka_unit_test(test_copy_max_is_kept),
        cmocka_unit_test(test_huge_pages_are_read_in_place),
        cmocka_unit_test(test_copies_are_bounded),
        cmocka_unit_test(test_rooms_are_not_locked),
        cmocka_unit_test(test_without_room_for_copies),
        cmocka_unit_test(test_a_receiver_collects),
        cmocka_unit_test(test_no_result_from_memory_that_is_gone),
        cmocka_unit_test(test_late_writers_are_waited_for),
        cmocka_unit_test(test_those_who_are_gone_are_not_waited_for),
        cmocka_unit_test(test_who_is_stopped_when_the_daemon_ends),
        cmocka_unit_test(test_no_operation_asks_the_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
