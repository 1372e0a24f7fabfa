/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that says where the daemon is: order, stale daemons, several, unsafe folders. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_lib/locate.h"
#include "tests/tools/shell.h"

struct fixture {
    const char *folder;
    char runtime[80];
    char system_socket[96];
    struct occl_locate_places places;
    char found[OCCL_SOCKET_PATH_BYTES];
    struct occl_detail detail;
};

static struct fixture f;

static int set_up(void **state) {
    (void)state;
    memset(&f, 0, sizeof f);
    f.folder = shell_enter();
    (void)snprintf(f.runtime, sizeof f.runtime, "%s/run", f.folder);
    (void)snprintf(f.system_socket, sizeof f.system_socket, "%s/system.sock", f.folder);
    assert_int_equal(mkdir(f.runtime, 0700), 0);
    f.places = (struct occl_locate_places){.system_socket = f.system_socket,
                                           .runtime_dir = f.runtime,
                                           .temp_dir = f.folder,
                                           .uid = geteuid()};
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    shell_leave();
    return 0;
}

static int locate(const char *explicit_path) {
    memset(&f.detail, 0, sizeof f.detail);
    f.found[0] = '\0';
    return occl_locate_among(&f.places, explicit_path, f.found, sizeof f.found, &f.detail);
}

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* Makes the folder of a private daemon below base; returns its socket's path. */
static const char *private_folder(const char *base, const char *name) {
    static char path[OCCL_SOCKET_PATH_BYTES];
    (void)mkdir(base, 0700);
    (void)snprintf(path, sizeof path, "%s/%s", base, name);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/%s/%s", base, name, OCCL_PRIVATE_SOCKET_NAME);
    return path;
}

static const char *base_of(int number) {
    static char base[OCCL_SOCKET_PATH_BYTES];
    assert_true(occl_locate_base(&f.places, number, base, sizeof base));
    return base;
}

static void explicit_path_wins_without_a_look(void **state) {
    (void)state;
    f.places.env_socket = "/from/environment";
    assert_int_equal(locate("/explicit/path"), OCCL_OK);
    assert_string_equal(f.found, "/explicit/path");
}

static void environment_comes_second(void **state) {
    (void)state;
    int fd = listen_at(f.system_socket);
    f.places.env_socket = "/from/environment";
    assert_int_equal(locate(NULL), OCCL_OK);
    assert_string_equal(f.found, "/from/environment");
    f.places.env_socket = ""; /* set but empty is not set */
    assert_int_equal(locate(""), OCCL_OK);
    assert_string_equal(f.found, f.system_socket);
    close(fd);
}

static void system_socket_comes_before_private_ones(void **state) {
    (void)state;
    int private_fd = listen_at(private_folder(base_of(0), "one"));
    int fd = listen_at(f.system_socket);
    assert_int_equal(locate(NULL), OCCL_OK);
    assert_string_equal(f.found, f.system_socket);
    close(fd);
    /* Dead now, its file still there: the private one is found. */
    assert_int_equal(access(f.system_socket, F_OK), 0);
    assert_int_equal(locate(NULL), OCCL_OK);
    assert_non_null(strstr(f.found, "/run/occl/one/occld.sock"));
    close(private_fd);
}

static void private_daemon_is_found_in_either_base(void **state) {
    (void)state;
    for (int number = 0; number < 2; number++) {
        char path[OCCL_SOCKET_PATH_BYTES];
        (void)snprintf(path, sizeof path, "%s", private_folder(base_of(number), "d"));
        int fd = listen_at(path);
        assert_int_equal(locate(NULL), OCCL_OK);
        assert_string_equal(f.found, path);
        close(fd);
        assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    }
}

static void stale_private_daemons_are_passed_over(void **state) {
    (void)state;
    close(listen_at(private_folder(base_of(0), "dead")));
    (void)private_folder(base_of(0), "empty");
    assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    char path[OCCL_SOCKET_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s", private_folder(base_of(1), "live"));
    int fd = listen_at(path);
    assert_int_equal(locate(NULL), OCCL_OK);
    assert_string_equal(f.found, path);
    close(fd);
}

static void several_private_daemons_are_listed(void **state) {
    (void)state;
    int one = listen_at(private_folder(base_of(0), "one"));
    int two = listen_at(private_folder(base_of(1), "two"));
    assert_int_equal(locate(NULL), OCCL_E_USAGE);
    assert_non_null(strstr(f.detail.text, "2 private daemons"));
    assert_non_null(strstr(f.detail.text, "/one/occld.sock"));
    assert_non_null(strstr(f.detail.text, "/two/occld.sock"));
    assert_string_equal(f.found, "");
    close(one);
    close(two);
}

static void a_locked_pid_file_or_folder_is_a_live_daemon(void **state) {
    (void)state;
    char path[OCCL_SOCKET_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s", private_folder(base_of(0), "starting"));
    assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    char other[OCCL_SOCKET_PATH_BYTES + 16];
    (void)snprintf(other, sizeof other, "%.*s/occld.pid", (int)(strrchr(path, '/') - path), path);
    int fd = open(other, O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(locate(NULL), OCCL_OK);
    assert_string_equal(f.found, path);
    close(fd); /* the file stays, the lock ends */
    assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    *strrchr(other, '/') = '\0';
    fd = open(other, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(locate(NULL), OCCL_OK);
    close(fd);
}

static void a_folder_open_to_others_is_ignored(void **state) {
    (void)state;
    int fd = listen_at(private_folder(base_of(1), "one"));
    assert_int_equal(locate(NULL), OCCL_OK);
    assert_int_equal(chmod(base_of(1), 0755), 0);
    assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    assert_non_null(strstr(f.detail.text, "not a folder of this user alone"));
    assert_int_equal(chmod(base_of(1), 0700), 0);
    f.places.uid = geteuid() + 1; /* then also the path names another user */
    assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    close(fd);
}

static void a_link_instead_of_a_base_is_ignored(void **state) {
    (void)state;
    char real[OCCL_SOCKET_PATH_BYTES];
    (void)snprintf(real, sizeof real, "%s/real", f.folder);
    int fd = listen_at(private_folder(real, "one"));
    assert_int_equal(symlink(real, base_of(1)), 0);
    assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    close(fd);
}

static void nothing_found_lists_where_it_looked(void **state) {
    (void)state;
    assert_int_equal(locate(NULL), OCCL_E_NO_DAEMON);
    assert_non_null(strstr(f.detail.text, "$OCCL_SOCKET"));
    assert_non_null(strstr(f.detail.text, f.system_socket));
    assert_non_null(strstr(f.detail.text, "/run/occl/*"));
    assert_non_null(strstr(f.detail.text, "/occl-"));
}

static void a_path_too_long_is_refused(void **state) {
    (void)state;
    char path[300];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(locate(path), OCCL_E_INVALID);
    path[OCCL_SOCKET_PATH_BYTES] = '\0';
    assert_int_equal(locate(path), OCCL_E_INVALID);
    path[OCCL_SOCKET_PATH_BYTES - 1] = '\0';
    assert_int_equal(locate(path), OCCL_OK);
    char small[8];
    assert_int_equal(occl_locate_among(&f.places, "/longer/than/8", small, sizeof small, NULL),
                     OCCL_E_INVALID);
}

static void probing_tells_states_apart(void **state) {
    (void)state;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/a", f.folder);
    assert_int_equal(occl_locate_probe(path), OCCL_SOCKET_ABSENT);
    int fd = listen_at(path);
    assert_int_equal(occl_locate_probe(path), OCCL_SOCKET_LIVE);
    for (int i = 0; i < 20; i++) /* a full queue is somebody who listens */
        assert_int_equal(occl_locate_probe(path), OCCL_SOCKET_LIVE);
    close(fd);
    assert_int_equal(occl_locate_probe(path), OCCL_SOCKET_DEAD);
    assert_int_equal(unlink(path), 0);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(occl_locate_probe(path), OCCL_SOCKET_FOREIGN);
}

static void environment_is_read_as_documented(void **state) {
    (void)state;
    struct occl_locate_places places;
    occl_locate_places_from_env(&places);
    assert_null(places.env_socket);
    assert_null(places.runtime_dir);
    assert_string_equal(places.temp_dir, f.folder);
    assert_string_equal(places.system_socket, "/run/occl/occld.sock");
    assert_int_equal(setenv("TMPDIR", "relative", 1), 0);
    assert_int_equal(setenv("OCCL_SOCKET", "/x", 1), 0);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", "/y", 1), 0);
    occl_locate_places_from_env(&places);
    assert_string_equal(places.temp_dir, "/tmp");
    assert_string_equal(places.env_socket, "/x");
    assert_string_equal(places.runtime_dir, "/y");
    char path[OCCL_SOCKET_PATH_BYTES];
    assert_int_equal(occl_locate_socket(NULL, path, sizeof path, NULL), OCCL_OK);
    assert_string_equal(path, "/x");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(explicit_path_wins_without_a_look),
        CASE(environment_comes_second),
        CASE(system_socket_comes_before_private_ones),
        CASE(private_daemon_is_found_in_either_base),
        CASE(stale_private_daemons_are_passed_over),
        CASE(several_private_daemons_are_listed),
        CASE(a_locked_pid_file_or_folder_is_a_live_daemon),
        CASE(a_folder_open_to_others_is_ignored),
        CASE(a_link_instead_of_a_base_is_ignored),
        CASE(nothing_found_lists_where_it_looked),
        CASE(a_path_too_long_is_refused),
        CASE(probing_tells_states_apart),
        CASE(environment_is_read_as_documented),
    };
    return cmocka_run_group_tests_name("locate", tests, NULL, NULL);
}
