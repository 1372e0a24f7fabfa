/* SPDX-License-Identifier: Apache-2.0 */
/* Loop backend on epoll, for places where io_uring is forbidden (container profiles, sysctl).
 * One-shot so that both backends arm and report in the same way. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "daemon/loop.h"

struct epoll_state {
    int fd;
};

static int epoll_open(const struct occl_loop_ops *ops, void **out_state) {
    (void)ops;
    struct epoll_state *state = malloc(sizeof *state);
    if (!state)
        return -ENOMEM;
    state->fd = epoll_create1(EPOLL_CLOEXEC);
    if (state->fd < 0) {
        int error = errno;
        free(state);
        return -error;
    }
    *out_state = state;
    return 0;
}

static void epoll_close(void *state) {
    close(((struct epoll_state *)state)->fd);
    free(state);
}

static int epoll_arm(void *state, int fd, uint32_t events, uint64_t cookie) {
    struct epoll_event event = {.events = EPOLLONESHOT | EPOLLRDHUP, .data.u64 = cookie};
    if (events & OCCL_LOOP_READABLE)
        event.events |= EPOLLIN;
    if (events & OCCL_LOOP_WRITABLE)
        event.events |= EPOLLOUT;
    int epoll = ((struct epoll_state *)state)->fd;
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static void epoll_disarm(void *state, int fd, uint64_t cookie) {
    (void)cookie;
    /* Removed entirely, not only disarmed: the number of a closed descriptor is used again. */
    (void)epoll_ctl(((struct epoll_state *)state)->fd, EPOLL_CTL_DEL, fd, NULL);
}

static int epoll_wait_reports(void *state, uint64_t timeout_ns,
                              struct occl_loop_report *out_reports, uint32_t max) {
    struct epoll_event events[64];
    struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    int room = max < 64 ? (int)max : 64;
    int count = epoll_pwait2(((struct epoll_state *)state)->fd, events, room,
                             timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
    if (count < 0)
        return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < count; i++) {
        uint32_t found = events[i].events;
        out_reports[i].cookie = events[i].data.u64;
        out_reports[i].events = 0;
        if (found & EPOLLIN)
            out_reports[i].events |= OCCL_LOOP_READABLE;
        if (found & EPOLLOUT)
            out_reports[i].events |= OCCL_LOOP_WRITABLE;
        if (found & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
            out_reports[i].events |= OCCL_LOOP_HANGUP;
    }
    return count;
}

const struct occl_loop_ops *occl_loop_epoll(void) {
    static const struct occl_loop_ops ops = {
        .name = "epoll",
        .open = epoll_open,
        .close = epoll_close,
        .arm = epoll_arm,
        .disarm = epoll_disarm,
        .wait = epoll_wait_reports,
    };
    return &ops;
}
