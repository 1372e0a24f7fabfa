/* SPDX-License-Identifier: Apache-2.0 */
/* The control-loop door: descriptors and timers of one thread. Everything the control side of the
 * daemon does happens in a handler called from occl_loop_run_once, on the thread that created the
 * loop. No function here may be called from another thread, except through a descriptor the other
 * thread makes readable.
 *
 * Pace. One round reaps what the kernel reports into a private queue, then calls the handlers of
 * that queue, then those of the due timers, then the caller's turn begins; what the handlers asked
 * of the kernel is handed over in one batch with the next wait. A handler never blocks and never
 * calls occl_loop_run_once. It may add and remove any watch and any timer, its own included: a
 * report about a watch that has been removed is dropped, also if it was reaped before.
 *
 * Readiness is level-triggered on every backend: a handler may leave bytes unread and is called
 * again. The loop never wakes by itself: without watches that become ready and without timers it
 * sleeps in the kernel for ever.
 *
 * Backends. loop_uring.c and loop_epoll.c. The conformance test of tests/daemon runs on both. The
 * simulator brings a third one (tools/sim/host_kernel.c), which decides what is reported when. */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/clock.h"
#include "shm_ipc/status.h"

struct occl_loop;

enum occl_loop_events {
    OCCL_LOOP_READABLE = 1,
    OCCL_LOOP_WRITABLE = 2,
    OCCL_LOOP_HANGUP = 4, /* error or peer closed: always reported, never asked for */
};

/* Owned by the caller, at a fixed address from _add to _remove. */
struct occl_watch {
    int fd;
    void (*ready)(struct occl_watch *watch, uint32_t events);
    void *owner;
    uint32_t slot; /* the loop's; 0: not added */
};

/* Owned by the caller, at a fixed address while set. Zero it before the first use. */
struct occl_timer {
    uint64_t due_ns; /* on the loop's clock */
    void (*fired)(struct occl_timer *timer);
    void *owner;
    uint32_t place; /* the loop's; 0: not set */
};

struct occl_loop_report {
    uint64_t cookie;
    uint32_t events;
};
/* What a backend does. Slots are numbers of the loop; a cookie is slot and generation, and comes
 * back with each report. All slots of the table are mandatory. */
struct occl_loop_ops {
    const char *name; /* as `occlctl status` prints it */
    /* Negated errno when the kernel refuses. ops is the table itself: a backend with a world of its
     * own (the simulator's) embeds the table and finds the rest around it. */
    int (*open)(const struct occl_loop_ops *ops, void **out_state);
    void (*close)(void *state);
    /* Asks for one report of `events`; the loop arms again after the handler. */
    int (*arm)(void *state, int fd, uint32_t events, uint64_t cookie);
    /* Forgets fd; a report may still come and is dropped by its cookie. */
    void (*disarm)(void *state, int fd, uint64_t cookie);
    /* Hands over what was asked, waits at most timeout_ns (UINT64_MAX: for ever), and fills at most
     * max reports. Returns how many, or a negated errno. */
    int (*wait)(void *state, uint64_t timeout_ns, struct occl_loop_report *out_reports,
                uint32_t max);
};

const struct occl_loop_ops *occl_loop_uring(void);
const struct occl_loop_ops *occl_loop_epoll(void);

/* Creates a loop on `wanted`, or for NULL on io_uring and, where that is forbidden (EPERM, ENOSYS,
 * ENOMEM, EACCES, EINVAL), on epoll; *out_refused is then the errno of io_uring_setup, else 0. */
int occl_loop_create(const struct occl_clock *clock, const struct occl_loop_ops *wanted,
                     struct occl_loop **out_loop, int *out_refused);
/* NULL is allowed. Watches and timers are forgotten, descriptors stay open. */
void occl_loop_destroy(struct occl_loop *loop);
const char *occl_loop_name(const struct occl_loop *loop);

/* OCCL_E_NO_MEMORY when the kernel or the allocator refuses. Allocates. */
int occl_loop_watch_add(struct occl_loop *loop, struct occl_watch *watch, uint32_t events)
    __attribute__((warn_unused_result));
/* Changes what is asked for. Nothing happens when nothing changes. */
int occl_loop_watch_set(struct occl_loop *loop, struct occl_watch *watch, uint32_t events)
    __attribute__((warn_unused_result));
/* Nothing happens for a watch that is not added. Call it before closing the descriptor. */
void occl_loop_watch_remove(struct occl_loop *loop, struct occl_watch *watch);

/* Sets or moves a timer. Allocates only while more timers are set than ever before. */
int occl_loop_timer_set(struct occl_loop *loop, struct occl_timer *timer, uint64_t due_ns)
    __attribute__((warn_unused_result));
void occl_loop_timer_cancel(struct occl_loop *loop, struct occl_timer *timer);
uint64_t occl_loop_now_ns(const struct occl_loop *loop);

/* One round, sleeping at most max_wait_ns (UINT64_MAX: until something happens). */
int occl_loop_run_once(struct occl_loop *loop, uint64_t max_wait_ns);
uint32_t occl_loop_watches(const struct occl_loop *loop);

#endif
