/* SPDX-License-Identifier: Apache-2.0 */
/* Loop backend on io_uring: one poll request per watch and round, so that readiness stays
 * level-triggered (the kernel looks at the descriptor when the request arrives). Requests collect
 * in the submission queue and are handed over together with the next wait: one system call a round.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>

#include "daemon/loop.h"

#define ENTRIES 256u
/* Completions of removals; no slot has generation and number zero. */
#define COOKIE_NONE 0u

static int uring_open(const struct occl_loop_ops *ops, void **out_state) {
    (void)ops;
    struct io_uring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return -ENOMEM;
    /* One thread submits, and completions are processed only where it waits: no interrupts of other
     * work. Kernels before 6.1 refuse the flags, hence the second try. */
    int rc =
        io_uring_queue_init(ENTRIES, ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (rc == -EINVAL)
        rc = io_uring_queue_init(ENTRIES, ring, 0);
    if (rc < 0) {
        free(ring);
        return rc;
    }
    *out_state = ring;
    return 0;
}

static void uring_close(void *state) {
    struct io_uring *ring = state;
    io_uring_queue_exit(ring);
    free(ring);
}

static struct io_uring_sqe *next_entry(struct io_uring *ring) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (sqe)
        return sqe;
    if (io_uring_submit(ring) < 0)
        return NULL;
    return io_uring_get_sqe(ring);
}

static int uring_arm(void *state, int fd, uint32_t events, uint64_t cookie) {
    struct io_uring_sqe *sqe = next_entry(state);
    if (!sqe)
        return -EBUSY;
    unsigned mask = POLLRDHUP;
    if (events & OCCL_LOOP_READABLE)
        mask |= POLLIN;
    if (events & OCCL_LOOP_WRITABLE)
        mask |= POLLOUT;
    io_uring_prep_poll_add(sqe, fd, mask);
    sqe->user_data = cookie;
    return 0;
}

static void uring_disarm(void *state, int fd, uint64_t cookie) {
    (void)fd;
    struct io_uring_sqe *sqe = next_entry(state);
    /* Without an entry the request stays until its descriptor reports; the cookie is stale then. */
    if (!sqe)
        return;
    io_uring_prep_poll_remove(sqe, cookie);
    sqe->user_data = COOKIE_NONE;
    /* The request holds the file open: hand the removal over and let it be carried out now, so that
     * a peer sees the close that follows. */
    (void)io_uring_submit_and_get_events(state);
}

static uint32_t events_of(int32_t result) {
    if (result < 0)
        return OCCL_LOOP_HANGUP;
    uint32_t events = 0;
    if (result & POLLIN)
        events |= OCCL_LOOP_READABLE;
    if (result & POLLOUT)
        events |= OCCL_LOOP_WRITABLE;
    if (result & (POLLHUP | POLLERR | POLLNVAL | POLLRDHUP))
        events |= OCCL_LOOP_HANGUP;
    return events;
}

static int uring_wait(void *state, uint64_t timeout_ns, struct occl_loop_report *out_reports,
                      uint32_t max) {
    struct io_uring *ring = state;
    struct io_uring_cqe *cqe;
    struct __kernel_timespec ts = {(long long)(timeout_ns / 1000000000u),
                                   (long long)(timeout_ns % 1000000000u)};
    int rc;
    if (timeout_ns == UINT64_MAX)
        rc = io_uring_submit_and_wait(ring, 1);
    else
        rc = io_uring_submit_and_wait_timeout(ring, &cqe, 1, &ts, NULL);
    if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EBUSY && rc != -EAGAIN)
        return rc;
    unsigned head;
    unsigned seen = 0;
    uint32_t count = 0;
    io_uring_for_each_cqe(ring, head, cqe) {
        if (count == max)
            break;
        seen++;
        if (cqe->user_data == COOKIE_NONE || cqe->res == -ECANCELED)
            continue;
        out_reports[count].cookie = cqe->user_data;
        out_reports[count].events = events_of(cqe->res);
        count++;
    }
    io_uring_cq_advance(ring, seen);
    return (int)count;
}

const struct occl_loop_ops *occl_loop_uring(void) {
    static const struct occl_loop_ops ops = {
        .name = "io_uring",
        .open = uring_open,
        .close = uring_close,
        .arm = uring_arm,
        .disarm = uring_disarm,
        .wait = uring_wait,
    };
    return &ops;
}
