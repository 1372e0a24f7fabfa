/* SPDX-License-Identifier: Apache-2.0 */
/* Completion of requests: wait, test, wait for any, start and free persistent ones. */
#include "client_lib/client.h"
#include "client_lib/group.h"
#include "client_lib/waiting.h"

/* Ends a complete request and returns the op's result. The caller holds the op; the hold ends. */
static int finish_request(struct client_op *op) {
    int status = op->status;
    if (status < 0 && op->text)
        (void)client_fail(status, "%s", op->text);
    client_watch_consumed(op);
    op->counted = false;
    if (op->persistent) {
        occl_publish32(&op->phase, CLIENT_OP_INACTIVE);
        client_op_unhold(op);
    } else {
        client_op_free(op);
    }
    return status;
}

/* This thread waits to have the op in hand: its watcher says to the peers that the rank waits, and
 * who holds it for the sake of another op lets it go. */
static void want(struct client_op *op, struct client_op **wanted) {
    if (*wanted)
        return;
    *wanted = op;
    occl_add32(&op->wanted, 1);
    if (occl_look32(&op->come_after))
        client_after_nudge(op);
}

/* The watcher wakes who sleeps on what it has completed. */
static uint64_t time_left(uint64_t give_up_ns) {
    uint64_t now_ns = give_up_ns ? client_now_ns() : 0;
    uint64_t left_ns = give_up_ns > now_ns ? give_up_ns - now_ns : 0;
    return give_up_ns && left_ns < OCCL_SLEEP_MAX_NS ? left_ns : OCCL_SLEEP_MAX_NS;
}

/* Holds the op of a handle once more checked: it may have been finished meanwhile. */
static struct client_op *hold(struct occl_request request, bool wait, uint64_t give_up_ns,
                              int *out_status) {
    struct client_op *op = client_op_get(request), *wanted = NULL;
    *out_status = OCCL_E_HANDLE;
    for (uint32_t round = 0; op; round++) {
        bool watched = occl_observe32(&op->watched) != 0;
        if (!watched && client_op_try_hold(op)) {
            if (client_op_get(request) == op && !occl_observe32(&op->watched))
                break;
            client_op_unhold(op);
        } else if (!wait || (give_up_ns && client_now_ns() >= give_up_ns)) {
            *out_status = OCCL_PENDING;
            op = NULL;
            break;
        } else if (watched) {
            want(op, &wanted);
            (void)occl_word_sleep(&op->watched, 1, &op->phase_sleepers, time_left(give_up_ns));
        } else {
            want(op, &wanted);
            client_nap(round);
        }
        op = client_op_get(request);
    }
    if (wanted)
        occl_add32(&wanted->wanted, UINT32_MAX);
    if (wanted && !op && occl_look32(&wanted->come_after))
        client_after_nudge(wanted); /* who made way for this thread takes it again */
    return op;
}

/* The caller holds the op. Advances it until complete or the time is over. */
static int wait_held(struct client_op *op, uint64_t give_up_ns, bool wait) {
    uint32_t phase = occl_observe32(&op->phase);
    if (phase == CLIENT_OP_INACTIVE) {
        client_op_unhold(op);
        return OCCL_OK;
    }
    bool done = phase == CLIENT_OP_COMPLETE;
    if (!done) {
        struct client_comm *comm = client_comm_of_op(op);
        if (!comm) { /* being destroyed: its end completes the op */
            client_op_unhold(op);
            client_nap(0);
            return OCCL_PENDING;
        }
        op->brief = !wait; /* whoever only asks has something else to do */
        done = wait ? client_wait_complete(op, give_up_ns) : client_advance(op, true);
        op->brief = false;
        client_comm_put(comm);
    }
    if (done)
        return finish_request(op);
    client_op_unhold(op);
    if (occl_peek32(&op->come_after)) /* whoever needs it for another op takes it over */
        client_after_nudge(op);
    return OCCL_PENDING;
}

static int wait_until(struct occl_request request, uint64_t give_up_ns, bool wait) {
    if (wait && client_in_callback())
        return client_fail(OCCL_E_USAGE, "a callback must not wait: it runs on the thread that "
                                         "completes requests");
    /* A lost daemon must not keep results from being collected. */
    int status = client_begin(true);
    if (status)
        return status;
    client_thread_uses();
    do {
        struct client_op *op = hold(request, wait, give_up_ns, &status);
        if (op)
            status = wait_held(op, give_up_ns, wait);
    } while (status == OCCL_PENDING && wait && !(give_up_ns && client_now_ns() >= give_up_ns));
    client_end();
    return status;
}

OCCL_PUBLIC enum occl_result occl_wait(struct occl_request request) {
    return wait_until(request, 0, true);
}

OCCL_PUBLIC enum occl_result occl_wait_for(struct occl_request request, int64_t timeout_ns) {
    if (timeout_ns <= 0)
        return wait_until(request, 0, false);
    return wait_until(request, client_now_ns() + (uint64_t)timeout_ns, true);
}

OCCL_PUBLIC enum occl_result occl_test(struct occl_request request, int *out_done) {
    if (!out_done)
        return client_fail(OCCL_E_INVALID, "out_done is NULL");
    int status = wait_until(request, 0, false);
    *out_done = status != OCCL_PENDING && status != OCCL_E_HANDLE;
    return status;
}

/* One look at all. *out_index: the one that completed, -1: nothing is active, -2: still waiting. */
static int look_at_all(const struct occl_request *requests, int count, int *out_index) {
    *out_index = -1;
    for (int i = 0; i < count; i++) {
        int status;
        if (requests[i].handle == 0)
            continue;
        struct client_op *op = hold(requests[i], false, 0, &status);
        if (op && occl_observe32(&op->phase) == CLIENT_OP_INACTIVE) {
            client_op_unhold(op);
            continue;
        }
        if (op)
            status = wait_held(op, 0, false);
        if (status != OCCL_PENDING) {
            *out_index = i;
            return status;
        }
        *out_index = -2;
    }
    return OCCL_OK;
}

/* The caller holds the op. Places to sleep on while it is active; then it stays held, as the sleep
 * ends. */
static void add_held(struct client_sleep *sleep, struct client_op *op) {
    uint32_t phase = occl_observe32(&op->phase);
    struct client_comm *comm = phase == CLIENT_OP_ACTIVE ? client_comm_of_op(op) : NULL;
    if (comm && client_sleep_keep(sleep, op, comm)) {
        if (!client_sleep_add(sleep, op))
            sleep->moved = true;
        return;
    }
    if (comm)
        client_comm_put(comm);
    client_op_unhold(op);
    if (phase == CLIENT_OP_COMPLETE)
        sleep->moved = true;
    else if (phase == CLIENT_OP_ACTIVE && !comm) /* being destroyed: its end completes the op */
        client_sleep_shorten(sleep, OCCL_POLL_NS);
}

/* Until one of them may have completed. Apart, for its room on the stack. */
static __attribute__((noinline)) void sleep_on_all(const struct occl_request *requests, int count,
                                                   uint64_t limit_ns) {
    struct client_sleep sleep;
    client_sleep_start(&sleep, limit_ns);
    for (int i = 0; i < count && !sleep.moved; i++) {
        int status;
        if (requests[i].handle == 0)
            continue;
        struct client_op *op = hold(requests[i], false, 0, &status);
        if (op)
            add_held(&sleep, op);
        else if (status != OCCL_PENDING)
            sleep.moved = true; /* it has ended in another thread's hands */
        else if ((op = client_op_get(requests[i])) == NULL || !client_sleep_watched(&sleep, op))
            client_sleep_shorten(&sleep, OCCL_POLL_NS); /* another thread advances it */
    }
    client_sleep_end(&sleep);
}

/* Waiting for any of one is waiting for it. *out_index: it, or -1 when it is not active or the time
 * is over. */
static int wait_one(const struct occl_request *requests, int index, uint64_t give_up_ns,
                    int *out_index) {
    int status;
    do {
        struct client_op *op = hold(requests[index], true, give_up_ns, &status);
        if (op && occl_observe32(&op->phase) == CLIENT_OP_INACTIVE) {
            client_op_unhold(op);
            *out_index = -1;
            return OCCL_OK;
        }
        if (op)
            status = wait_held(op, give_up_ns, true);
    } while (status == OCCL_PENDING && !(give_up_ns && client_now_ns() >= give_up_ns));
    *out_index = status == OCCL_PENDING ? -1 : index;
    return status;
}

/* The only request of the array, or -1 when there are several, or none. */
static int only_request(const struct occl_request *requests, int count) {
    int only = -1;
    for (int i = 0; i < count; i++) {
        if (requests[i].handle == 0)
            continue;
        if (only >= 0)
            return -1;
        only = i;
    }
    return only;
}

static int wait_any(const struct occl_request *requests, int count, uint64_t give_up_ns,
                    int *out_index) {
    for (uint32_t round = 0;; round++) {
        int status = look_at_all(requests, count, out_index);
        if (*out_index != -2)
            return status;
        if (give_up_ns && client_now_ns() >= give_up_ns) {
            *out_index = -1;
            return OCCL_PENDING;
        }
        if (round < CLIENT_NAPS_YIELDED)
            client_nap(round);
        else
            sleep_on_all(requests, count, time_left(give_up_ns));
    }
}

OCCL_PUBLIC enum occl_result occl_wait_any(const struct occl_request *requests, int count,
                                           int64_t timeout_ns, int *out_index) {
    if (!out_index || (count > 0 && !requests) || count < 0)
        return client_fail(OCCL_E_INVALID, "occl_wait_any: %s",
                           count < 0 ? "count is negative" : "requests or out_index is NULL");
    if (timeout_ns && client_in_callback())
        return client_fail(OCCL_E_USAGE, "a callback must not wait");
    int status = client_begin(true);
    if (status)
        return status;
    uint64_t give_up_ns = timeout_ns >= 0 ? client_now_ns() + (uint64_t)timeout_ns : 0;
    int index = -1, only = timeout_ns ? only_request(requests, count) : -1;
    client_thread_uses();
    status = only >= 0 ? wait_one(requests, only, give_up_ns, &index)
                       : wait_any(requests, count, give_up_ns, &index);
    *out_index = index;
    client_end();
    return status;
}

OCCL_PUBLIC enum occl_result occl_wait_all(const struct occl_request *requests, int count) {
    if (count < 0 || (count > 0 && !requests))
        return client_fail(OCCL_E_INVALID, "occl_wait_all: %s",
                           count < 0 ? "count is negative" : "requests is NULL");
    int first = OCCL_OK;
    char text[OCCL_DETAIL_BYTES];
    for (int i = 0; i < count; i++) {
        if (requests[i].handle == 0)
            continue;
        int status = wait_until(requests[i], 0, true);
        if (status < 0 && first == OCCL_OK) {
            first = status;
            client_error_save(text, sizeof text);
        }
    }
    return first ? client_fail(first, "%s", text) : OCCL_SUCCESS;
}

static int start(struct occl_request request) {
    int status;
    struct client_op *op = hold(request, false, 0, &status);
    if (!op)
        return status == OCCL_PENDING ? client_fail(OCCL_E_USAGE, "the request is active") : status;
    struct client_comm *comm = client_comm_of_op(op);
    if (!comm)
        status = client_fail(OCCL_E_HANDLE, "the request's communicator was destroyed");
    else if (!op->persistent)
        status = client_fail(OCCL_E_USAGE, "the request is not persistent");
    else if (occl_observe32(&op->phase) != CLIENT_OP_INACTIVE)
        status = client_fail(OCCL_E_USAGE, "the request is active: wait for it first");
    else
        status = client_start(op);
    if (comm)
        client_comm_put(comm);
    client_op_unhold(op);
    return status;
}

OCCL_PUBLIC enum occl_result occl_start(struct occl_request request) {
    int status = client_begin(false);
    if (status)
        return status;
    status = start(request);
    client_end();
    return status;
}

static int request_free(struct occl_request request) {
    int status;
    struct client_op *op = hold(request, false, 0, &status);
    if (!op)
        return status == OCCL_PENDING ? client_fail(OCCL_E_USAGE, "the request is active") : status;
    if (occl_observe32(&op->phase) == CLIENT_OP_ACTIVE) {
        client_op_unhold(op);
        return client_fail(OCCL_E_USAGE, "the request is active: wait for it first");
    }
    client_watch_consumed(op);
    client_op_free(op);
    return OCCL_SUCCESS;
}

OCCL_PUBLIC enum occl_result occl_request_free(struct occl_request request) {
    int status = client_begin(true);
    if (status)
        return status;
    status = request_free(request);
    client_end();
    return status;
}
