/* SPDX-License-Identifier: Apache-2.0 */
/* From lanes to the control loop: a bounded queue with many producers and one consumer, and an
 * eventfd of the daemon's own that makes the loop look into it. Producers never block and never
 * allocate. When the queue is full, notices are widened: the consumer is told that something was
 * lost and then notifies everybody, which is safe because a notice only says "look again". Faults
 * cannot be widened, so a quarter of the queue is kept for them: a session faults once, and more of
 * them than that do not fault in one round of the loop. */
#ifndef DAEMON_MAILBOX_H
#define DAEMON_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

struct occl_mailbox;

enum occl_mail_kind {
    OCCL_MAIL_FAULT = 1,  /* id: session, status, reason */
    OCCL_MAIL_NOTIFY = 2, /* id: communicator, mask: ranks */
};
struct occl_mail {
    uint32_t kind; /* enum occl_mail_kind */
    int32_t status;
    uint64_t id;
    uint64_t mask;
    const char *reason; /* static string */
};

/* entries is a power of two. OCCL_E_NO_MEMORY. */
int occl_mailbox_create(uint32_t entries, struct occl_mailbox **out_mailbox);
void occl_mailbox_destroy(struct occl_mailbox *mailbox);
/* The descriptor that is readable while there is mail. Owned by the mailbox. */
int occl_mailbox_fd(const struct occl_mailbox *mailbox);
/* Any thread. False: full; the consumer learns it by occl_mailbox_lost. */
bool occl_mailbox_post(struct occl_mailbox *mailbox, const struct occl_mail *mail);
/* Loop thread only: clears the descriptor before looking, so that no mail is missed. */
void occl_mailbox_open(struct occl_mailbox *mailbox);
bool occl_mailbox_take(struct occl_mailbox *mailbox, struct occl_mail *out_mail);
/* Whether a post was refused since the last call. */
bool occl_mailbox_lost(struct occl_mailbox *mailbox);

#endif
