/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon writes into things that may stand still: a log that nobody takes, a metrics file on a
 * disk that does not answer. Ranks attach, work and leave meanwhile, and the daemon ends. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

/* More lines than the daemon has room for would be thousands; a full pipe takes none. */
static int work(struct world_rank *me) {
    for (int i = 0; i < 20; i++) {
        struct occl_comm part;
        float v = 1, sum = 0;
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &part));
        WORLD_OK(occl_all_reduce(&v, &sum, 1, OCCL_FLOAT32, OCCL_SUM, part, NULL, NULL));
        WORLD_CHECK(sum == (float)me->size);
        WORLD_OK(occl_comm_destroy(part));
    }
    return 0;
}

static void run_and_stop(struct world *w) {
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_run(w, 3, work, NULL, 20), 0);
    double start = world_now();
    int status = world_stop(w);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(world_now() - start < 5.0 * world_slowness());
}

static void fill(int fd) {
    static const char zeros[4096];
    ssize_t written;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    do
        written = write(fd, zeros, sizeof zeros);
    while (written > 0);
    do
        written = write(fd, zeros, 1);
    while (written > 0);
    assert_int_equal(errno, EAGAIN);
}

static void log_that_nobody_takes(bool blocks) {
    static const char *const extra[] = {"--log-level", "debug", NULL};
    struct world w;
    int ends[2], kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && pipe(ends) == 0);
    fill(ends[1]);
    if (blocks)
        assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    world_start(&w, extra);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    run_and_stop(&w);
    (void)close(kept);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_full_pipe(void **state) {
    (void)state;
    log_that_nobody_takes(true);
}

static void a_full_pipe_that_does_not_block(void **state) {
    (void)state;
    log_that_nobody_takes(false);
}

/* Whoever opens a FIFO for writing waits for a reader. */
static void a_metrics_file_that_stands_still(void **state) {
    (void)state;
    struct world w;
    char folder[] = "/tmp/occl-test-XXXXXX", file[64], temporary[96];
    const char *extra[] = {"--metrics-file", file, "--set", "metrics_interval=100ms", NULL};
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/metrics", folder);
    world_start(&w, extra);
    assert_int_equal(access(file, R_OK), 0);
    (void)snprintf(temporary, sizeof temporary, "%s.%d.tmp", file, (int)w.daemon);
    assert_int_equal(mkfifo(temporary, 0600), 0);
    run_and_stop(&w);
    (void)unlink(file);
    assert_int_equal(unlink(temporary), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_pipe),
        cmocka_unit_test(a_full_pipe_that_does_not_block),
        cmocka_unit_test(a_metrics_file_that_stands_still),
    };
    return cmocka_run_group_tests_name("mute", tests, NULL, NULL);
}
