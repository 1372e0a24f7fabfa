/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors over the socket: what arrives is ours and close-on-exec; whatever is wrong with a
 * datagram, no descriptor stays open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/fdpass.h"
#include "shm_ipc/wire.h"

static int open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    assert_int_equal(closedir(folder), 0);
    return count;
}

struct bench {
    int sockets[2];
    int pipes[2];
    int before; /* descriptors open at the start of the test proper */
    int fds[OCCL_MESSAGE_FDS_MAX];
    uint32_t fd_count;
    uint32_t bytes;
    char buffer[256];
    struct occl_detail detail;
};

static void set_up(struct bench *b) {
    memset(b, 0, sizeof *b);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, b->sockets), 0);
    assert_int_equal(pipe2(b->pipes, O_CLOEXEC), 0);
    b->before = open_descriptors();
}

static void tear_down(struct bench *b) {
    assert_int_equal(open_descriptors(), b->before);
    for (int i = 0; i < 2; i++) {
        (void)close(b->sockets[i]);
        (void)close(b->pipes[i]);
    }
}

static int receive(struct bench *b, uint32_t capacity) {
    b->fd_count = 77;
    b->bytes = 77;
    return occl_fd_recv(b->sockets[1], b->buffer, capacity, false, &b->bytes, b->fds, &b->fd_count,
                        &b->detail);
}

/* Sends any number of descriptors, also more than occl_fd_send allows. */
static void send_raw(struct bench *b, uint32_t bytes, uint32_t fd_count) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(16 * sizeof(int))];
    } control;
    char data[512] = "data";
    struct iovec iov = {data, bytes};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (fd_count > 0) {
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        for (uint32_t i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(c) + i * sizeof(int), &b->pipes[i % 2], sizeof(int));
    }
    assert_int_equal(sendmsg(b->sockets[0], &header, 0), bytes);
}

static void descriptors_arrive_close_on_exec(void **state) {
    (void)state;
    for (uint32_t count = 0; count <= OCCL_MESSAGE_FDS_MAX; count++) {
        struct bench b;
        int sent_fds[OCCL_MESSAGE_FDS_MAX];
        set_up(&b);
        for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++)
            sent_fds[i] = b.pipes[i % 2];
        assert_int_equal(occl_fd_send(b.sockets[0], "hello", 6, sent_fds, count, false, &b.detail),
                         OCCL_OK);
        assert_int_equal(receive(&b, sizeof b.buffer), OCCL_OK);
        assert_int_equal(b.bytes, 6);
        assert_string_equal(b.buffer, "hello");
        assert_int_equal(b.fd_count, count);
        for (uint32_t i = 0; i < OCCL_MESSAGE_FDS_MAX; i++) {
            struct stat sent, got;
            if (i >= count) {
                assert_int_equal(b.fds[i], -1);
                continue;
            }
            assert_int_equal(fcntl(b.fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
            assert_int_equal(fstat(sent_fds[i], &sent), 0);
            assert_int_equal(fstat(b.fds[i], &got), 0);
            assert_int_equal(sent.st_ino, got.st_ino);
        }
        occl_fd_close_all(b.fds);
        occl_fd_close_all(b.fds); /* again is harmless */
        tear_down(&b);
    }
}

static void surplus_descriptors_are_closed(void **state) {
    (void)state;
    for (uint32_t count = OCCL_MESSAGE_FDS_MAX + 1; count <= 16; count++) {
        struct bench b;
        set_up(&b);
        send_raw(&b, 10, count);
        int status = receive(&b, sizeof b.buffer);
        assert_true(status == OCCL_E_PROTOCOL || status == OCCL_E_TRUNCATED);
        char most[32];
        (void)snprintf(most, sizeof most, "at most %d", OCCL_MESSAGE_FDS_MAX);
        assert_non_null(strstr(b.detail.text, most));
        for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++)
            assert_int_equal(b.fds[i], -1);
        tear_down(&b);
    }
}

static void long_datagram_is_refused(void **state) {
    (void)state;
    struct bench b;
    set_up(&b);
    send_raw(&b, 100, 2);
    assert_int_equal(receive(&b, 99), OCCL_E_TRUNCATED);
    assert_int_equal(b.fds[0], -1);
    send_raw(&b, 100, 2);
    assert_int_equal(receive(&b, 100), OCCL_OK);
    occl_fd_close_all(b.fds);
    tear_down(&b);
}

static void full_descriptor_table_is_survived(void **state) {
    (void)state;
    struct bench b;
    struct rlimit limit, tight;
    set_up(&b);
    send_raw(&b, 10, 2);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = limit;
    /* Room for one descriptor of two: the lowest free number is the next one to be used. */
    int next = dup(b.pipes[0]);
    assert_true(next >= 0);
    (void)close(next);
    tight.rlim_cur = (rlim_t)next + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    int status = receive(&b, sizeof b.buffer);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, OCCL_E_NO_MEMORY);
    assert_int_equal(b.bytes, 10); /* the words are there */
    assert_int_equal(b.fds[0], -1);
    tear_down(&b);
}

static void empty_socket_would_block(void **state) {
    (void)state;
    struct bench b;
    set_up(&b);
    assert_int_equal(receive(&b, sizeof b.buffer), OCCL_WOULD_BLOCK);
    assert_int_equal(b.bytes, 77); /* outputs only on success */
    tear_down(&b);
}

static void full_socket_would_block(void **state) {
    (void)state;
    struct bench b;
    int status = OCCL_OK;
    set_up(&b);
    for (int i = 0; i < 100000 && status == OCCL_OK; i++)
        status = occl_fd_send(b.sockets[0], b.buffer, sizeof b.buffer, NULL, 0, false, &b.detail);
    assert_int_equal(status, OCCL_WOULD_BLOCK);
    tear_down(&b);
}

static void closed_peer_is_lost(void **state) {
    (void)state;
    struct bench b;
    set_up(&b);
    (void)close(b.sockets[0]);
    b.before--;
    assert_int_equal(receive(&b, sizeof b.buffer), OCCL_E_DAEMON_LOST);
    /* No SIGPIPE either. */
    assert_int_equal(occl_fd_send(b.sockets[1], "x", 1, NULL, 0, true, &b.detail),
                     OCCL_E_DAEMON_LOST);
    assert_int_equal(b.detail.system_error, EPIPE);
    b.sockets[0] = dup(b.sockets[1]);
    b.before++;
    tear_down(&b);
}

static void wrong_descriptor_is_internal(void **state) {
    (void)state;
    struct bench b;
    set_up(&b);
    assert_int_equal(occl_fd_send(b.pipes[1], "x", 1, NULL, 0, false, &b.detail), OCCL_E_INTERNAL);
    assert_int_equal(b.detail.system_error, ENOTSOCK);
    tear_down(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_arrive_close_on_exec),
        cmocka_unit_test(surplus_descriptors_are_closed),
        cmocka_unit_test(long_datagram_is_refused),
        cmocka_unit_test(full_descriptor_table_is_survived),
        cmocka_unit_test(empty_socket_would_block),
        cmocka_unit_test(full_socket_would_block),
        cmocka_unit_test(closed_peer_is_lost),
        cmocka_unit_test(wrong_descriptor_is_internal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
