/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher: one thread of the library that looks after ops which nobody may be waiting for: ops
 * with a callback, all ops once the completion descriptor is in use, and local ops that nobody else
 * can execute. A watched op is advanced by the watcher alone; who waits for it sleeps on its phase.
 * The thread starts with the first watched op and sleeps when there is none. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client_lib/client.h"
#include "client_lib/waiting.h"

/* Rounds without progress before the watcher sleeps; then it looks again every WATCH_SLEEP_NS, or
 * at once when an op is added. Ops that come after others wake it: while it has no others, it
 * sleeps as long as anybody. */
#define EAGER_ROUNDS 32u
#define WATCH_SLEEP_NS 1000000ull

struct client_watcher {
    pthread_mutex_t lock; /* the list */
    struct client_op *list;
    pthread_t thread;
    uint32_t bell; /* changes with each op that is added, and all that it does not see */
    uint32_t bell_sleepers;
    uint32_t stop;
    int fd; /* completion descriptor, -1: not asked for */
};

static CLIENT_THREAD_HOT bool in_callback;

bool client_in_callback(void) {
    return in_callback;
}

void client_watch_in_child(void) {
    in_callback = false; /* a callback that forks: in the child this thread watches nothing */
    occl_note32(&occl_lib.watch_wanted, 0);
}

/* The descriptor is the application's too and never waited for: it may have made it blocking, and
 * filled or emptied it. Then the count is wrong, and nobody hangs. */
static bool is_ready(int fd, short event) {
    struct pollfd poll_fd = {fd, event, 0};
    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & event);
}

static void complete(struct client_watcher *watcher, struct client_op *op) {
    if (op->withdrawn) { /* nobody has a handle of it */
        occl_publish32(&op->watched, 0);
        client_op_free(op);
        return;
    }
    void (*callback)(enum occl_result, void *) = op->callback;
    void *arg = op->callback_arg;
    enum occl_result result = (enum occl_result)op->status;
    if (callback) {
        in_callback = true;
        callback(result, arg);
        in_callback = false;
    }
    if (client_watch_wanted()) {
        uint64_t one = 1;
        if (is_ready(watcher->fd, POLLOUT)) /* a full counter is readable just as well */
            (void)!write(watcher->fd, &one, sizeof one);
        op->counted = true;
    }
    client_op_unhold(op);
    (void)occl_swap32(&op->watched, 0); /* Dekker with phase_sleepers */
    (void)occl_word_wake(&op->watched, &op->phase_sleepers, INT32_MAX);
}

static void unlink_op(struct client_watcher *watcher, struct client_op *op) {
    pthread_mutex_lock(&watcher->lock);
    struct client_op **link = &watcher->list;
    while (*link && *link != op)
        link = &(*link)->next_watched;
    if (*link)
        *link = op->next_watched;
    pthread_mutex_unlock(&watcher->lock);
}

/* One look at one op; true when it is complete. Somebody else who holds it (a communicator that is
 * being destroyed) completes it. */
static bool look_at(struct client_watcher *watcher, struct client_op *op) {
    if (!client_op_try_hold(op))
        return false;
    if (occl_observe32(&op->phase) == CLIENT_OP_ACTIVE) {
        struct client_comm *comm = client_comm_of_op(op);
        if (comm) {
            (void)client_advance(op, true); /* the phase tells */
            client_comm_put(comm);
        }
    }
    if (occl_observe32(&op->phase) == CLIENT_OP_ACTIVE) {
        client_announce(op, occl_observe32(&op->wanted) > 0);
        client_op_unhold(op);
        return false;
    }
    unlink_op(watcher, op);
    complete(watcher, op);
    return true;
}

/* Looks at every op once. True when one of them completed. */
static bool look(struct client_watcher *watcher) {
    bool progress = false;
    pthread_mutex_lock(&watcher->lock);
    struct client_op *op = watcher->list;
    pthread_mutex_unlock(&watcher->lock);
    while (op) {
        struct client_op *next = op->next_watched; /* only this thread takes ops out */
        progress |= look_at(watcher, op);
        op = next;
    }
    return progress;
}

static void ring(struct client_watcher *watcher) {
    (void)occl_add32(&watcher->bell, 1);
    (void)occl_word_wake(&watcher->bell, &watcher->bell_sleepers, INT32_MAX);
}

/* Adds the op to what the watcher sleeps on. False: it is not to be slept on, or cannot be. */
static bool sleep_on(struct client_sleep *sleep, struct client_op *op) {
    if (op->after_count == 0 || !client_op_try_hold(op))
        return false;
    struct client_comm *comm =
        occl_observe32(&op->phase) == CLIENT_OP_ACTIVE ? client_comm_of_op(op) : NULL;
    if (comm && client_sleep_keep(sleep, op, comm)) {
        (void)client_sleep_add(sleep, op); /* if it is complete, the next look finds it */
        return true;
    }
    if (comm)
        client_comm_put(comm);
    client_op_unhold(op);
    return false;
}

static void sleep_once(struct client_watcher *watcher, const struct occl_word_seen *seen) {
    struct client_sleep sleep;
    struct occl_wait_place place = occl_wait_on_word(seen, &watcher->bell_sleepers);
    pthread_mutex_lock(&watcher->lock);
    struct client_op *op = watcher->list;
    pthread_mutex_unlock(&watcher->lock);
    client_sleep_start(&sleep, op ? OCCL_SLEEP_MAX_NS : UINT64_MAX);
    client_sleep_place(&sleep, &place);
    for (; op; op = op->next_watched) /* only this thread takes ops out */
        if (!sleep_on(&sleep, op) && sleep.limit_ns > WATCH_SLEEP_NS)
            sleep.limit_ns = WATCH_SLEEP_NS;
    client_sleep_end(&sleep);
}

static void *watch(void *arg) {
    struct client_watcher *watcher = arg;
    uint32_t idle = 0;
    while (!occl_observe32(&watcher->stop)) {
        struct occl_word_seen seen = {&watcher->bell, occl_look32(&watcher->bell)};
        if (occl_observe32(&watcher->stop)) /* its bell may have been rung before this look */
            break;
        if (look(watcher)) {
            idle = 0;
            continue;
        }
        pthread_mutex_lock(&watcher->lock);
        bool empty = watcher->list == NULL;
        pthread_mutex_unlock(&watcher->lock);
        if (!empty && idle++ < EAGER_ROUNDS)
            client_nap(0);
        else
            sleep_once(watcher, &seen);
    }
    /* All communicators are closed, so every op is complete: their callbacks are still due. */
    while (look(watcher))
        continue;
    return NULL;
}

/* lib.control is held. */
static int start(struct client_watcher **out_watcher) {
    struct client_watcher *watcher = calloc(1, sizeof *watcher);
    if (!watcher)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for the watcher");
    pthread_mutex_init(&watcher->lock, NULL);
    watcher->fd = -1;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&watcher->thread, NULL, watch, watcher);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(watcher);
        return client_fail(OCCL_E_NO_MEMORY, "cannot start a thread: %s", strerror(failed));
    }
    (void)pthread_setname_np(watcher->thread, "occl-watcher");
    *out_watcher = watcher;
    return OCCL_OK;
}

static int need(struct client_watcher **out_watcher) {
    int status = OCCL_OK;
    pthread_mutex_lock(&occl_lib.watch_start);
    if (!occl_lib.watcher)
        status = start(&occl_lib.watcher);
    *out_watcher = occl_lib.watcher;
    pthread_mutex_unlock(&occl_lib.watch_start);
    return status;
}

int client_watch_ready(void) {
    struct client_watcher *watcher;
    return need(&watcher);
}

int client_watch(struct client_op *op) {
    struct client_watcher *watcher;
    if (occl_peek32(&op->watched) || op->on_stack)
        return OCCL_OK;
    int status = need(&watcher);
    if (status)
        return status;
    occl_publish32(&op->watched, 1);
    pthread_mutex_lock(&watcher->lock);
    op->next_watched = watcher->list;
    watcher->list = op;
    pthread_mutex_unlock(&watcher->lock);
    ring(watcher);
    return OCCL_OK;
}

bool client_watch_wanted(void) {
    return occl_observe32(&occl_lib.watch_wanted) != 0;
}

void client_watch_consumed(struct client_op *op) {
    uint64_t one;
    /* The descriptor counts completions that were not waited for: a semaphore. */
    if (op->counted && client_watch_wanted() && is_ready(occl_lib.watcher->fd, POLLIN))
        (void)!read(occl_lib.watcher->fd, &one, sizeof one);
}

void client_watch_look(void) {
    pthread_mutex_lock(&occl_lib.watch_start);
    if (occl_lib.watcher)
        ring(occl_lib.watcher);
    pthread_mutex_unlock(&occl_lib.watch_start);
}

void client_watch_stop(void) {
    struct client_watcher *watcher = occl_lib.watcher;
    if (!watcher)
        return;
    occl_publish32(&watcher->stop, 1);
    ring(watcher);
    pthread_join(watcher->thread, NULL);
    if (watcher->fd >= 0)
        (void)close(watcher->fd);
    pthread_mutex_destroy(&watcher->lock);
    free(watcher);
    occl_lib.watcher = NULL;
    occl_note32(&occl_lib.watch_wanted, 0);
}

OCCL_PUBLIC enum occl_result occl_completion_fd(int *out_fd) {
    struct client_watcher *watcher;
    if (!out_fd)
        return client_fail(OCCL_E_INVALID, "out_fd is NULL");
    int status = client_begin(false);
    if (status)
        return status;
    status = need(&watcher);
    if (status) {
        client_end();
        return status;
    }
    pthread_mutex_lock(&occl_lib.watch_start);
    if (watcher->fd < 0)
        watcher->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (watcher->fd < 0)
        status = client_fail(OCCL_E_NO_MEMORY, "eventfd: %m");
    else
        *out_fd = watcher->fd;
    occl_publish32(&occl_lib.watch_wanted, watcher->fd >= 0);
    pthread_mutex_unlock(&occl_lib.watch_start);
    client_end();
    return status;
}
