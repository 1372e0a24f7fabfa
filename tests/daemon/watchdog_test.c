/* SPDX-License-Identifier: Apache-2.0 */
/* When the watchdog of the service manager is fed: a datagram socket stands for the manager. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

#define DEADLINE_US "200000"
#define MEAL_MS 50

struct manager {
    struct fixture f;
    int fd;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

static void manager_start(struct manager *m) {
    char pid[32];
    memset(m, 0, sizeof *m);
    fixture_prepare(&m->f);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(m->path, sizeof m->path, "%s/manager", m->f.folder);
    assert_in_range(length, 1, sizeof m->path - 1);
    memcpy(address.sun_path, m->path, sizeof address.sun_path);
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&address, sizeof address), 0);
    (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
    assert_int_equal(setenv("NOTIFY_SOCKET", m->path, 1), 0);
    assert_int_equal(setenv("WATCHDOG_USEC", DEADLINE_US, 1), 0);
    assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
    m->f.supervised = true;
    fixture_start(&m->f);
}

static void manager_stop(struct manager *m) {
    (void)unlink(m->path);
    close(m->fd);
    fixture_stop(&m->f);
}

/* Messages since the last call that feed the watchdog. */
static uint32_t meals(const struct manager *m) {
    char text[512];
    uint32_t count = 0;
    ssize_t got;
    while ((got = recv(m->fd, text, sizeof text - 1, 0)) >= 0) {
        text[got] = '\0';
        count += strstr(text, "WATCHDOG=1") != NULL;
    }
    return count;
}

static void fed_while_the_loop_turns_and_lanes_go_round(void **state) {
    struct manager m;
    (void)state;
    manager_start(&m);
    (void)fixture_pump(&m.f, 6 * MEAL_MS, NULL, NULL);
    assert_in_range(meals(&m), 1, 6);
    manager_stop(&m);
}

static void a_loop_that_does_not_turn_starves_it(void **state) {
    struct manager m;
    (void)state;
    manager_start(&m);
    usleep(4 * MEAL_MS * 1000);
    assert_int_equal(meals(&m), 0);
    (void)fixture_pump(&m.f, MEAL_MS, NULL, NULL);
    assert_true(meals(&m) > 0);
    manager_stop(&m);
}

static void a_lane_that_hangs_starves_it_until_it_goes_on(void **state) {
    struct manager m;
    (void)state;
    manager_start(&m);
    fake_engine_hang(true);
    (void)fixture_pump(&m.f, 6 * MEAL_MS, NULL, NULL);
    assert_int_equal(meals(&m), 0);
    assert_int_equal(fixture_log_count(&m.f, "has not gone round"), m.f.daemon->lanes);
    fake_engine_hang(false);
    (void)fixture_pump(&m.f, 4 * MEAL_MS, NULL, NULL);
    assert_true(meals(&m) > 0);
    manager_stop(&m);
}

static void without_a_deadline_there_is_no_timer(void **state) {
    struct manager m;
    (void)state;
    manager_start(&m);
    assert_int_not_equal(m.f.daemon->supervision.feed_timer.place, 0);
    manager_stop(&m);
    assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
    fixture_prepare(&m.f);
    m.f.supervised = true;
    fixture_start(&m.f);
    assert_int_equal(m.f.daemon->supervision.feed_timer.place, 0);
    fixture_stop(&m.f);
}

static void a_deadline_that_is_no_number_is_an_error(void **state) {
    struct fixture f;
    struct occl_daemon *daemon;
    struct occl_detail detail;
    (void)state;
    fixture_prepare(&f);
    assert_int_equal(setenv("WATCHDOG_USEC", "soon", 1), 0);
    assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
    assert_int_equal(occl_config_settle(1ull << 30, &f.config, &detail), OCCL_OK);
    struct occl_daemon_options options = {.config = &f.config,
                                          .origins = &f.origins,
                                          .clock = &f.clock,
                                          .log = &f.log,
                                          .supervised = true};
    assert_int_equal(occl_daemon_create(&options, &daemon, &detail), OCCL_E_INVALID);
    assert_non_null(strstr(detail.text, "WATCHDOG_USEC"));
    assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
    assert_int_equal(rmdir(f.folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fed_while_the_loop_turns_and_lanes_go_round),
        cmocka_unit_test(a_loop_that_does_not_turn_starves_it),
        cmocka_unit_test(a_lane_that_hangs_starves_it_until_it_goes_on),
        cmocka_unit_test(without_a_deadline_there_is_no_timer),
        cmocka_unit_test(a_deadline_that_is_no_number_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
