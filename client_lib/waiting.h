/* SPDX-License-Identifier: Apache-2.0 */
/* How threads of the library wait: for one op, for several at once, for what an op comes after; and
 * the watcher, which does it for nobody in particular. */
#ifndef CLIENT_LIB_WAITING_H
#define CLIENT_LIB_WAITING_H

#include "client_lib/client.h"

/* after.c: ops that come after others of this process. */
struct client_after {
    struct client_op *op;      /* that waits */
    struct client_op *of;      /* for this one; NULL: complete */
    struct client_after *next; /* of the same `of` */
};
/* Before the op is submitted. It is held back if something is left to wait for, or has failed. */
int client_after_begin(struct client_op *op);
/* It will not wait any more. */
void client_after_end(struct client_op *op);
/* A pool op has completed: those that come after it may go on. */
void client_after_done(struct client_op *op);
/* Advances what a held-back op waits for. True when it may arrive, or has to end. */
bool client_after_look(struct client_op *op, bool may_execute);
/* The op that the node waits for, held; NULL: none, or somebody else has it in hand. */
struct client_op *client_after_hold(struct client_after *node);
/* Whoever sleeps until this op completes looks again who has it in hand. */
void client_after_nudge(struct client_op *op);

/* held.c: what `why` is told. Once the op has its place, if it is held back. */
void client_held_note(struct client_op *op);
/* Something that it comes after has completed, others are left. after_lock is held. */
void client_held_next(struct client_op *op);
/* Its turn has come, or it ends; before its record is left. */
void client_held_forget(struct client_op *op);

/* sleep.c: sleeping until any of several ops can go on, and what they come after. */
#define CLIENT_SLEEP_OPS 48
struct client_sleep {
    struct client_wait_target {
        struct occl_wait_place place;
        const struct client_op *op;
        uint32_t missing;           /* record: the member to come first; op->members: none */
        struct occl_word_seen bell; /* ring */
        uint64_t limit_ns;
        uint32_t share_token;
        bool metered; /* strands are left, but the job's share is used up */
    } targets[CLIENT_SLEEP_OPS];
    struct occl_word_seen bells[2 * CLIENT_SLEEP_OPS]; /* of a target each, and of watched ops */
    struct occl_wait_place places[OCCL_PLACES_MAX];
    /* Held for the time of the sleep, with a reference on their communicators. */
    struct client_op *ops[CLIENT_SLEEP_OPS];
    struct client_comm *comms[CLIENT_SLEEP_OPS];
    uint32_t target_count, bell_count, place_count, op_count;
    uint64_t limit_ns;
    bool moved; /* something completed or went on: do not sleep */
};
void client_sleep_start(struct client_sleep *sleep, uint64_t limit_ns);
/* No longer than that. */
void client_sleep_shorten(struct client_sleep *sleep, uint64_t limit_ns);
/* Sleeps on an op that only the watcher advances. False: it is none, or there is no room. */
bool client_sleep_watched(struct client_sleep *sleep, struct client_op *op);
/* Advances the op, which the caller holds, and what it comes after; what is not complete is slept
 * on. False: the op is complete. */
bool client_sleep_add(struct client_sleep *sleep, struct client_op *op);
/* Takes over a hold, and a reference, until the sleep is over. False: there is no room. */
bool client_sleep_keep(struct client_sleep *sleep, struct client_op *op, struct client_comm *comm);
void client_sleep_place(struct client_sleep *sleep, const struct occl_wait_place *place);
/* Sleeps, unless something moved, and gives back what it holds. */
void client_sleep_end(struct client_sleep *sleep);

/* wait.c: until the op is complete or give_up_ns (0: no limit) has passed. The caller owns or holds
 * the op. True when complete. */
bool client_wait_complete(struct client_op *op, uint64_t give_up_ns);
/* Before the op is advanced, so that what is seen afterwards is seen as a change; and after. */
void client_wait_before(struct client_op *op, struct client_wait_target *out_target);
void client_wait_after(const struct client_op *op, struct client_wait_target *target);
/* The end of the record of a held-back op, whoever else arrives there. */
struct occl_wait_place client_wait_on_record(struct client_wait_target *target);
/* How long a thread that waits for the op may sleep: its deadline, give_up_ns (0: none), and
 * OCCL_SLEEP_MAX_NS at most. */
uint64_t client_sleep_limit(const struct client_op *op, uint64_t give_up_ns);
/* Says in the record that this rank waits in the op, or no longer; the caller holds the op. */
void client_announce(struct client_op *op, bool waiting);

/* watch.c: the watcher looks after ops with a callback, ops nobody waits for, and the descriptor.
 */
int client_watch_ready(void); /* starts the thread: after it client_watch cannot fail */
int client_watch(struct client_op *op);
bool client_in_callback(void); /* this is the watcher's thread, which must not wait for itself */
void client_watch_in_child(void);
bool client_watch_wanted(void); /* the completion descriptor is in use: every request is watched */
void client_watch_consumed(struct client_op *op);
void client_watch_look(void); /* something that it did not see has changed */
void client_watch_stop(void);

#endif
