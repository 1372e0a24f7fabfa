/* SPDX-License-Identifier: Apache-2.0 */
/* The clock door (system and virtual), calibration of ticks, arenas and charges. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/arena.h"
#include "shm_ipc/assert.h"
#include "shm_ipc/clock.h"
#include "shm_ipc/limits.h"
#include "shm_ipc/status.h"

static const uint64_t PAGE = OCCL_PAGE_BYTES;

/* ---- clock ---- */

static void system_clock_moves_forward(void **state) {
    (void)state;
    struct occl_clock clock = occl_clock_system(OCCL_TICKS_NS);
    uint64_t before = occl_clock_now_ns(&clock), wall = occl_clock_wall_ns(&clock);
    occl_clock_sleep_ns(&clock, 3000000);
    assert_true(occl_clock_now_ns(&clock) - before >= 3000000);
    assert_true(occl_clock_wall_ns(&clock) > wall);
    assert_true(wall > 1600000000ull * 1000000000ull);
    assert_int_equal(clock.ticks_source, OCCL_TICKS_NS);
    assert_true(occl_clock_ticks(&clock) - before < 60000000000ull);
}

static void system_random_differs(void **state) {
    (void)state;
    struct occl_clock clock = occl_clock_system(OCCL_TICKS_NS);
    unsigned char a[1000], b[1000];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    occl_clock_random(&clock, a, sizeof a - 1);
    occl_clock_random(&clock, b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a - 1);
    assert_int_equal(a[sizeof a - 1], 0); /* not beyond the end */
}

static void calibrated_ticks_agree_with_the_clock(void **state) {
    (void)state;
    enum occl_ticks_source source = occl_ticks_source_probe();
    if (source != OCCL_TICKS_TSC) {
        (void)printf("SKIP calibrated_ticks_agree_with_the_clock: no invariant TSC\n");
        skip();
    }
    struct occl_clock clock = occl_clock_system(source);
    struct occl_ticks_scale scale;
    occl_ticks_calibrate(&clock, 5000000, &scale);
    occl_clock_sleep_ns(&clock, 20000000);
    /* The reading in the middle of two clock readings must convert to something between them. The
     * margin is for calibration on a disturbed machine; a wrong scale is off by much more. */
    int good = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t low = occl_clock_now_ns(&clock);
        uint64_t ns = occl_ticks_to_ns(&scale, occl_ticks(source));
        uint64_t high = occl_clock_now_ns(&clock);
        good += ns + 2000000 >= low && ns <= high + 2000000;
    }
    assert_true(good >= 90);
    uint64_t ticks = occl_ticks_of_ns(&scale, 1000000);
    assert_in_range(occl_ticks_span_ns(&scale, ticks), 999900, 1000100);
}

static void conversion_saturates(void **state) {
    (void)state;
    struct occl_ticks_scale scale = {1000, 5000, 3ull << 31}; /* 1.5 ns a tick */
    assert_int_equal(occl_ticks_to_ns(&scale, 1000), 5000);
    assert_int_equal(occl_ticks_to_ns(&scale, 1100), 5150);
    assert_int_equal(occl_ticks_to_ns(&scale, 900), 4850);
    scale.base_ns = 100;
    assert_int_equal(occl_ticks_to_ns(&scale, 0), 0);
    assert_int_equal(occl_ticks_to_ns(&scale, UINT64_MAX), UINT64_MAX);
    assert_int_equal(occl_ticks_span_ns(&scale, UINT64_MAX), UINT64_MAX);
    assert_int_equal(occl_ticks_of_ns(&scale, 150), 100);
    scale.ns_per_tick_q32 = 1;
    assert_int_equal(occl_ticks_of_ns(&scale, UINT64_MAX), UINT64_MAX);
}

static void nanosecond_ticks_need_no_scale(void **state) {
    (void)state;
    struct occl_clock clock = occl_clock_system(OCCL_TICKS_NS);
    struct occl_ticks_scale scale;
    occl_ticks_calibrate(&clock, UINT64_MAX, &scale); /* returns at once */
    assert_int_equal(occl_ticks_to_ns(&scale, 123456789), 123456789);
    /* An unknown source, as a scribbled page may hold, reads as nanoseconds. */
    uint64_t now = occl_clock_now_ns(&clock);
    assert_true(occl_ticks((enum occl_ticks_source)99) - now < 60000000000ull);
}

static void virtual_clock_repeats(void **state) {
    (void)state;
    struct occl_clock_virtual v, w, x;
    struct occl_clock a = occl_clock_virtual_init(&v, 42), b = occl_clock_virtual_init(&w, 42),
                      c = occl_clock_virtual_init(&x, 43);
    unsigned char p[29], q[29], r[29];
    for (int i = 0; i < 10; i++) {
        occl_clock_random(&a, p, sizeof p);
        occl_clock_random(&b, q, sizeof q);
        occl_clock_random(&c, r, sizeof r);
        assert_memory_equal(p, q, sizeof p);
        assert_memory_not_equal(p, r, sizeof p);
    }
    uint64_t start = occl_clock_now_ns(&a);
    assert_int_equal(start, occl_clock_now_ns(&b));
    assert_int_equal(occl_clock_ticks(&a), start);
    occl_clock_virtual_advance(&v, 5);
    occl_clock_sleep_ns(&a, 1000000000000ull); /* takes no real time */
    assert_int_equal(occl_clock_now_ns(&a), start + 1000000000005ull);
    assert_int_equal(occl_clock_wall_ns(&a) - occl_clock_wall_ns(&b), 1000000000005ull);
}

/* ---- arenas ---- */

static int signal_of(void (*run)(void *), void *arg) {
    int exit_status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(STDERR_FILENO); /* the assertion's text is expected */
        run(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    return WIFSIGNALED(exit_status) ? WTERMSIG(exit_status) : 0;
}

static void arena_hands_out_zeroed_memory(void **state) {
    (void)state;
    struct occl_arena arena;
    assert_int_equal(occl_arena_create(3 * PAGE - 1, NULL, &arena), OCCL_OK);
    assert_int_equal(arena.bytes, 3 * PAGE);
    char *a = occl_arena_alloc(&arena, 3, 1);
    char *b = occl_arena_alloc(&arena, 100, 64);
    char *c = occl_arena_array(&arena, 10, 8, 8);
    assert_non_null(a);
    assert_int_equal((uintptr_t)b % 64, 0);
    assert_true(b >= a + 3);
    assert_true(c >= b + 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(b[i], 0);
    assert_null(occl_arena_alloc(&arena, 3 * PAGE, 1));
    assert_null(occl_arena_array(&arena, 1ull << 33, 1ull << 33, 8));
    assert_null(occl_arena_alloc(&arena, UINT64_MAX, 1));
    assert_non_null(occl_arena_alloc(&arena, 2 * PAGE, OCCL_PAGE_BYTES));
    assert_null(occl_arena_alloc(&arena, 1, 1));
    occl_arena_destroy(&arena);
    occl_arena_destroy(&arena);
    occl_arena_destroy(NULL);
    assert_int_equal(occl_arena_create(0, NULL, &arena), OCCL_E_INVALID);
    assert_int_equal(occl_arena_create(UINT64_MAX, NULL, &arena), OCCL_E_INVALID);
}

static void allocate(void *arg) {
    if (occl_arena_alloc(arg, 8, 8) == NULL)
        _exit(1);
}

static void sealed_arena_aborts(void **state) {
    (void)state;
    struct occl_arena arena;
    assert_int_equal(occl_arena_create(OCCL_PAGE_BYTES, NULL, &arena), OCCL_OK);
    assert_int_equal(signal_of(allocate, &arena), 0);
    occl_arena_seal(&arena);
    assert_int_equal(signal_of(allocate, &arena), SIGABRT);
    occl_arena_destroy(&arena);
}

static void give_too_much(void *arg) {
    occl_charge_give(arg, 1);
}

static void charges_follow_the_arena(void **state) {
    (void)state;
    struct occl_charge charge = {3 * PAGE, 0, 0};
    struct occl_arena a, b;
    assert_int_equal(occl_arena_create(2 * PAGE, &charge, &a), OCCL_OK);
    assert_int_equal(charge.used_bytes, 2 * PAGE);
    assert_int_equal(occl_arena_create(2 * PAGE, &charge, &b), OCCL_E_QUOTA);
    assert_int_equal(charge.used_bytes, 2 * PAGE);
    assert_int_equal(occl_arena_create(1, &charge, &b), OCCL_OK);
    occl_arena_destroy(&a);
    assert_int_equal(charge.used_bytes, OCCL_PAGE_BYTES);
    occl_arena_destroy(&b);
    assert_int_equal(charge.used_bytes, 0);
    assert_int_equal(charge.peak_bytes, 3 * PAGE);
    assert_int_equal(occl_charge_take(&charge, UINT64_MAX), OCCL_E_QUOTA);
    /* Memory that the system refuses is not charged. */
    charge.limit_bytes = UINT64_MAX;
    assert_int_equal(occl_arena_create(1ull << 62, &charge, &a), OCCL_E_NO_MEMORY);
    assert_int_equal(charge.used_bytes, 0);
    assert_int_equal(signal_of(give_too_much, &charge), SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(system_clock_moves_forward),
        cmocka_unit_test(system_random_differs),
        cmocka_unit_test(calibrated_ticks_agree_with_the_clock),
        cmocka_unit_test(conversion_saturates),
        cmocka_unit_test(nanosecond_ticks_need_no_scale),
        cmocka_unit_test(virtual_clock_repeats),
        cmocka_unit_test(arena_hands_out_zeroed_memory),
        cmocka_unit_test(sealed_arena_aborts),
        cmocka_unit_test(charges_follow_the_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
