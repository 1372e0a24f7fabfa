/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager (systemd): notifications, watchdog, passed sockets. Nothing here happens
 * without one; the environment says whether there is one. Control loop only. */
#ifndef DAEMON_SUPERVISE_H
#define DAEMON_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/loop.h"
#include "shm_ipc/status.h"

struct occl_daemon;

/* Part of the daemon. All zero where nobody supervises. */
struct occl_supervision {
    bool listens; /* READY has reached somebody */
    bool told_ending;
    uint32_t passed_count; /* listening sockets that were handed over, from descriptor 3 on */
    uint64_t meal_gap_ns;  /* between two looks of the watchdog's timer; 0: no watchdog */
    struct occl_timer feed_timer, status_timer;
    uint64_t beats[64]; /* of each lane, at the last look */
    bool lane_told[64]; /* found standing at the last look */
    uint32_t jobs_told, processes_told;
    uint64_t told_ns;
};

/* Takes what was handed over and begins to feed the watchdog. Needs the engine. */
int occl_supervise_create(struct occl_daemon *daemon, struct occl_detail *detail);
void occl_supervise_serving(struct occl_daemon *daemon);
/* After each round: the status text follows, once a second at most. */
void occl_supervise_round(struct occl_daemon *daemon);
void occl_supervise_reloading(struct occl_daemon *daemon);
void occl_supervise_reloaded(struct occl_daemon *daemon);
/* The end has begun and takes so long at most. Told once. */
void occl_supervise_ending(struct occl_daemon *daemon, uint64_t within_ns);
void occl_supervise_destroy(struct occl_daemon *daemon);

#endif
