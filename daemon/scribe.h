/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that writes for others what may block: log lines (main.c), the metrics file (metrics.c).
 * Nobody else in the daemon waits for a disk, a full pipe or a journal that stands still.
 *
 * Who hands text over copies it under a lock that is never held during a write; when the room is
 * used up the text is lost, and the next write is told how often that happened. */
#ifndef DAEMON_SCRIBE_H
#define DAEMON_SCRIBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct occl_scribe;

/* On the scribe's thread; may block. text: whole texts in the order in which they were handed over,
 * bytes > 0; lost: texts for which there was no room before these. */
typedef void (*occl_scribe_write)(void *self, const char *text, size_t bytes, uint64_t lost);

/* room_bytes: what may wait for one write; twice that is reserved, and touched only as it is used.
 * name: of the thread, 15 characters. `self` outlives the scribe. NO_MEMORY. */
int occl_scribe_create(const char *name, size_t room_bytes, occl_scribe_write write, void *self,
                       struct occl_scribe **out_scribe);

/* Any thread; never blocks and never allocates. False: there was no room. */
bool occl_scribe_hand(struct occl_scribe *scribe, const char *text, size_t bytes);

/* Waits until everything is written, but no longer than wait_ns: a write that stands still is left
 * to the end of the process, with its thread and its room. False: it was. NULL: nothing to do.
 * Nobody may hand anything over any more. */
bool occl_scribe_destroy(struct occl_scribe *scribe, uint64_t wait_ns);

#endif
