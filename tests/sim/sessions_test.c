/* SPDX-License-Identifier: Apache-2.0 */
/* Whole daemons from seeds: sessions, communicators, splits and ops of several jobs, while
 * processes end in every way at every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "tools/sim/host.h"

/* Seeds of each sweep are multiplied by this: --full. */
static uint64_t scale = 1;
/* Where sockets are made: --in=FOLDER. */
static const char *folder;

static struct sim_options base(void) {
    return (struct sim_options){.ranks = 4, .nodes = 1, .jobs = 3, .ops = 16, .folder = folder};
}

static struct sim_host_result sweep(const struct sim_options *options, uint64_t seed,
                                    uint64_t count) {
    struct sim_host_result sum;
    memset(&sum, 0, sizeof sum);
    for (uint64_t i = 0; i < count; i++) {
        struct sim_host_result r;
        if (!sim_host_run(options, seed + i, &r))
            fail_msg("seed %llu, %u ranks, %u jobs, faults %u: %s", (unsigned long long)(seed + i),
                     options->ranks, options->jobs, options->faults, r.broken);
        sum.messages += r.messages;
        sum.deaths += r.deaths;
        sum.comms += r.comms;
        sum.refusals += r.refusals;
        sum.ring_ops += r.ring_ops;
        sum.record_ops += r.record_ops;
        sum.ops_failed += r.ops_failed;
    }
    return sum;
}

/* Without faults every request and every op succeeds, through records and through rings. */
static void all_goes_well_without_faults(void **state) {
    uint64_t ring_ops = 0, record_ops = 0;
    (void)state;
    for (uint32_t ranks = 1; ranks <= 8; ranks++) {
        struct sim_options o = base();
        o.ranks = ranks;
        o.jobs = 1 + ranks % 3;
        struct sim_host_result sum = sweep(&o, 1000 * ranks, 15 * scale);
        assert_int_equal(sum.ops_failed, 0);
        ring_ops += sum.ring_ops;
        record_ops += sum.record_ops;
    }
    assert_true(ring_ops > 500 && record_ops > 500);
}

/* One kind of fault at a time: the first job, in which nothing happens, notices nothing. */
static void each_fault_is_survived(void **state) {
    static const uint32_t faults[] = {
        SIM_FAULT_DELAY,   SIM_FAULT_REORDER, SIM_FAULT_SLOW,   SIM_FAULT_KILL,  SIM_FAULT_STOP,
        SIM_FAULT_TIMEOUT, SIM_FAULT_EXEC,    SIM_FAULT_GARBLE, SIM_FAULT_QUOTA, SIM_FAULT_DRAIN};
    (void)state;
    for (uint32_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        struct sim_options o = base();
        o.faults = faults[f];
        o.ranks = 2 + f % 7;
        (void)sweep(&o, 20000 + 1000 * f, 20 * scale);
    }
}

/* Deaths that the kernel reports late, early, and in any order with the ends of sockets. */
static void deaths_are_told_in_time(void **state) {
    struct sim_options o = base();
    (void)state;
    o.faults = SIM_FAULT_KILL | SIM_FAULT_EXEC | SIM_FAULT_DELAY | SIM_FAULT_REORDER;
    struct sim_host_result sum = sweep(&o, 30000, 80 * scale);
    assert_true(sum.deaths > 100 && sum.ops_failed > 100);
}

/* SIGTERM comes while processes attach, also in one round with a HELLO that is refused. */
static void a_drain_meets_everything(void **state) {
    struct sim_options o = base();
    (void)state;
    o.faults = SIM_FAULT_DRAIN | SIM_FAULT_QUOTA | SIM_FAULT_REORDER;
    o.ranks = 8;
    o.jobs = 1;
    (void)sweep(&o, 40000, 200 * scale);
    o.jobs = 3;
    o.ranks = 6;
    o.faults = SIM_FAULT_DRAIN;
    (void)sweep(&o, 1, 100 * scale);
    o.ranks = 4;
    o.faults = SIM_FAULT_DRAIN | SIM_FAULT_KILL;
    (void)sweep(&o, 40000, 100 * scale);
}

static void all_faults_together(void **state) {
    struct sim_options o = base();
    (void)state;
    o.faults = SIM_FAULT_ALL;
    struct sim_host_result sum = sweep(&o, 50000, 80 * scale);
    assert_true(sum.deaths > 100 && sum.refusals > 100 && sum.ops_failed > 50);
    o.ranks = 8;
    o.jobs = 1;
    (void)sweep(&o, 51000, 40 * scale);
}

static void many_processes(void **state) {
    struct sim_options o = base();
    (void)state;
    o.faults = SIM_FAULT_ALL;
    o.ranks = 32;
    o.jobs = 4;
    (void)sweep(&o, 60000, 3 * scale);
}

/* Same seed, same run: what was said and done, when, and in which order. */
static void a_seed_decides_everything(void **state) {
    struct sim_options o = base();
    struct sim_host_result a, b;
    uint64_t last = 0;
    (void)state;
    o.faults = SIM_FAULT_ALL;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_true(sim_host_run(&o, seed, &a));
        assert_true(sim_host_run(&o, seed, &b));
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_not_equal(a.trace, last);
        last = a.trace;
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_goes_well_without_faults), cmocka_unit_test(each_fault_is_survived),
        cmocka_unit_test(deaths_are_told_in_time),      cmocka_unit_test(a_drain_meets_everything),
        cmocka_unit_test(all_faults_together),          cmocka_unit_test(many_processes),
        cmocka_unit_test(a_seed_decides_everything),
    };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--full") == 0)
            scale = 10;
        if (strncmp(argv[i], "--in=", 5) == 0)
            folder = argv[i] + 5;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
