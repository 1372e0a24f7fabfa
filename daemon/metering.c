/* SPDX-License-Identifier: Apache-2.0 */
/* The timer behind the shares between jobs: the engine's meter says when it wants to look again,
 * and wants nothing while fewer than two jobs could compete. */
#include "daemon/occld.h"

static void meter(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    uint64_t next_ns = occl_engine_meter(daemon->engine, occl_loop_now_ns(daemon->loop));
    if (next_ns == 0)
        return;
    if (occl_loop_timer_set(daemon->loop, timer, next_ns) != OCCL_OK)
        OCCL_LOG_ERROR(daemon->log, "metering", "no memory for the timer: shares are not kept");
}

void occl_metering_wake(struct occl_daemon *daemon) {
    daemon->meter_timer.fired = meter;
    daemon->meter_timer.owner = daemon;
    meter(&daemon->meter_timer);
}

void occl_metering_stop(struct occl_daemon *daemon) {
    occl_loop_timer_cancel(daemon->loop, &daemon->meter_timer);
}
