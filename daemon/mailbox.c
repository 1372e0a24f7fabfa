/* SPDX-License-Identifier: Apache-2.0 */
/* Each cell carries a turn number: equal to the position, the cell may be written for it; one more,
 * it may be read. Producers race for positions with one compare-and-swap.
 *
 * | field | writer    | reader    | store   | load    | why                                     |
 * | next  | producers | producers | claim   | peek    | hands out positions                     |
 * | turn  | both      | both      | publish | observe | the mail before the turn, and back      |
 * | rung  | both      | both      | claim   | claim   | one eventfd write per round of the loop |
 */
#include "daemon/mailbox.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shm_ipc/atomics.h"
#include "shm_ipc/limits.h"
#include "shm_ipc/status.h"

struct cell {
    uint64_t turn;
    struct occl_mail mail;
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): producers and consumer apart */
struct occl_mailbox {
    struct cell *cells;
    uint64_t mask;
    int fd;
    _Alignas(OCCL_CACHE_LINE_BYTES) uint64_t next;
    uint32_t rung;
    _Alignas(OCCL_CACHE_LINE_BYTES) uint64_t taken;
};

int occl_mailbox_create(uint32_t entries, struct occl_mailbox **out_mailbox) {
    struct occl_mailbox *mailbox = aligned_alloc(OCCL_CACHE_LINE_BYTES, sizeof *mailbox);
    struct cell *cells = calloc(entries, sizeof *cells);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!mailbox || !cells || fd < 0) {
        free(mailbox);
        free(cells);
        if (fd >= 0)
            close(fd);
        return OCCL_E_NO_MEMORY;
    }
    *mailbox = (struct occl_mailbox){.cells = cells, .mask = entries - 1, .fd = fd};
    for (uint32_t i = 0; i < entries; i++)
        cells[i].turn = i;
    *out_mailbox = mailbox;
    return OCCL_OK;
}

void occl_mailbox_destroy(struct occl_mailbox *mailbox) {
    if (!mailbox)
        return;
    close(mailbox->fd);
    free(mailbox->cells);
    free(mailbox);
}

int occl_mailbox_fd(const struct occl_mailbox *mailbox) {
    return mailbox->fd;
}

static void ring_bell(struct occl_mailbox *mailbox) {
    uint32_t expected = 0;
    if (!occl_claim32(&mailbox->rung, &expected, 1))
        return;
    uint64_t one = 1;
    /* Only the loop can have rung it before, and that leaves the descriptor readable too. */
    ssize_t written = write(mailbox->fd, &one, sizeof one);
    (void)written;
}

bool occl_mailbox_post(struct occl_mailbox *mailbox, const struct occl_mail *mail) {
    uint64_t at = occl_peek64(&mailbox->next);
    for (;;) {
        struct cell *cell = &mailbox->cells[at & mailbox->mask];
        uint64_t turn = occl_observe64(&cell->turn);
        if (turn == at) {
            if (!occl_claim64(&mailbox->next, &at, at + 1))
                continue;
            cell->mail = *mail;
            occl_publish64(&cell->turn, at + 1);
            ring_bell(mailbox);
            return true;
        }
        if (turn < at)
            return false;
        at = occl_peek64(&mailbox->next);
    }
}

void occl_mailbox_open(struct occl_mailbox *mailbox) {
    uint64_t count;
    ssize_t got = read(mailbox->fd, &count, sizeof count);
    (void)got;
    uint32_t expected = 1;
    /* Before looking: mail posted from here on rings again. */
    (void)occl_claim32(&mailbox->rung, &expected, 0);
}

bool occl_mailbox_take(struct occl_mailbox *mailbox, struct occl_mail *out_mail) {
    struct cell *cell = &mailbox->cells[mailbox->taken & mailbox->mask];
    if (occl_observe64(&cell->turn) != mailbox->taken + 1)
        return false;
    *out_mail = cell->mail;
    occl_publish64(&cell->turn, mailbox->taken + mailbox->mask + 1);
    mailbox->taken++;
    return true;
}
