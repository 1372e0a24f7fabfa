/* SPDX-License-Identifier: Apache-2.0 */
/* From lanes to the control loop: which sessions have faulted. A bounded queue with many producers
 * and one consumer, and an eventfd of the daemon's own that makes the loop look into it. Producers
 * never block and never allocate. A session faults once, so the queue is full only when more of
 * them fault in one round of the loop than it has entries. */
#ifndef DAEMON_MAILBOX_H
#define DAEMON_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

struct occl_mailbox;

struct occl_mail {
    uint64_t session_id;
    int32_t status;
    const char *reason; /* static string */
};

/* entries is a power of two. OCCL_E_NO_MEMORY. */
int occl_mailbox_create(uint32_t entries, struct occl_mailbox **out_mailbox);
void occl_mailbox_destroy(struct occl_mailbox *mailbox);
/* The descriptor that is readable while there is mail. Owned by the mailbox. */
int occl_mailbox_fd(const struct occl_mailbox *mailbox);
/* Any thread. False: full. */
bool occl_mailbox_post(struct occl_mailbox *mailbox, const struct occl_mail *mail);
/* Loop thread only: clears the descriptor before looking, so that no mail is missed. */
void occl_mailbox_open(struct occl_mailbox *mailbox);
bool occl_mailbox_take(struct occl_mailbox *mailbox, struct occl_mail *out_mail);

#endif
