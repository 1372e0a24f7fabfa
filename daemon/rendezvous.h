/* SPDX-License-Identifier: Apache-2.0 */
/* A rendezvous as rendezvous.c keeps it and the inspection shows it. */
#ifndef DAEMON_RENDEZVOUS_H
#define DAEMON_RENDEZVOUS_H

#include "daemon/occld.h"

struct occl_waiter_seat {
    struct occl_session *session; /* NULL: this rank has not come */
    uint64_t request;
};

/* Owned by the daemon's table, for its job. */
struct occl_rendezvous {
    uint8_t secret[OCCL_UNIQUE_ID_SECRET_BYTES];
    struct occl_job *job;
    struct occl_waiter_seat *waiters; /* [ranks] while waiting, then NULL */
    bool waiting;
    bool named;
    uint32_t ranks, came;
    uint32_t first_rank; /* who said how many ranks there are */
    uint32_t priority;
    uint64_t default_deadline_ns;
    uint64_t born_ns;
    uint64_t comm_uid;
    int status; /* OCCL_OK: became a communicator; else why it failed */
    char name[OCCL_NAME_BYTES];
    char text[OCCL_DETAIL_BYTES];
    struct occl_timer timer;
    TAILQ_ENTRY(occl_rendezvous) in_job; /* while it waits */
    UT_hash_handle in_daemon;
};

/* NULL: nobody has asked for it yet. */
struct occl_rendezvous *occl_rendezvous_find(struct occl_daemon *daemon,
                                             const uint8_t secret[OCCL_UNIQUE_ID_SECRET_BYTES]);
/* This rank's process has ended, says its launcher. If others wait for it, they wait no longer.
 * Returns one word: "unknown" (nobody waits yet; meeting may be NULL), "elsewhere" (nobody waits
 * for this rank here, or it has come, and its end is seen), "settled" (made), "failed" (before, or
 * now: that is forgotten with the job's last session, so a rank that comes later may wait again).
 */
const char *occl_rendezvous_rank_ended(struct occl_daemon *daemon, struct occl_rendezvous *meeting,
                                       uint32_t rank, long pid, const char *cause);
uint64_t occl_rendezvous_arrived_mask(const struct occl_rendezvous *meeting);

#endif
