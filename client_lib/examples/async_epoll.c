/* SPDX-License-Identifier: Apache-2.0 */
/* An event loop that never blocks in occl: operations are submitted with requests, and the
 * completion descriptor stands in epoll beside the program's own descriptors, here a timer. */
#include <occl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define OPS 8
#define TICK_NS 1000000

struct work {
    struct occl_request requests[OPS]; /* {0}: nothing to wait for */
    int64_t values[OPS];
};

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, occl_last_error());
    return 1;
}

static int submit(struct work *work, struct occl_comm world, uint32_t op) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = op + 1;
    int64_t *value = &work->values[op];
    *value = op;
    return occl_all_reduce(value, value, 1, OCCL_INT64, OCCL_SUM, world, &attr,
                           &work->requests[op]) == OCCL_SUCCESS;
}

/* Takes all that have completed; returns how many, or -1. Do not read the descriptor: it falls
 * silent when every completed request has been tested or waited for. */
static int take_completed(struct work *work) {
    int taken = 0, index = -1, done;
    do {
        /* 0 ns: a look. Entries that are {0} are passed over. */
        enum occl_result result = occl_wait_any(work->requests, OPS, 0, &index);
        done = result != OCCL_IN_PROGRESS && index >= 0;
        if (result < 0)
            return -1;
        if (done) {
            work->requests[index].handle = 0;
            taken++;
        }
    } while (done);
    return taken;
}

static int add(int epoll_fd, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int main(void) {
    struct work work = {{{0}}, {0}};
    struct occl_comm world;
    struct itimerspec every = {{0, TICK_NS}, {0, TICK_NS}};
    int completion_fd, rank, completed = 0, submitted = 0;
    if (occl_init_env(&world) != OCCL_SUCCESS || occl_comm_rank(world, &rank) != OCCL_SUCCESS ||
        occl_completion_fd(&completion_fd) != OCCL_SUCCESS)
        return failed("occl_init_env");
    int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0 || timer_fd < 0 || timerfd_settime(timer_fd, 0, &every, NULL) != 0 ||
        add(epoll_fd, timer_fd) != 0 || add(epoll_fd, completion_fd) != 0)
        return 1;

    while (completed < OPS) {
        struct epoll_event event;
        uint64_t ticks;
        if (epoll_wait(epoll_fd, &event, 1, -1) != 1)
            continue; /* interrupted */
        if (event.data.fd == completion_fd) {
            int taken = take_completed(&work);
            if (taken < 0)
                return failed("operation");
            completed += taken;
        } else if (read(timer_fd, &ticks, sizeof ticks) == sizeof ticks && submitted < OPS &&
                   !submit(&work, world, (uint32_t)submitted++)) {
            return failed("occl_all_reduce");
        }
    }
    printf("rank %d: %d operations, the last sum is %lld\n", rank, completed,
           (long long)work.values[OPS - 1]);
    close(epoll_fd);
    close(timer_fd);
    return occl_finalize() == OCCL_SUCCESS ? 0 : failed("occl_finalize");
}
