/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager: what it is told, what it hands over, and its watchdog.
 *
 * The watchdog is fed from a timer of the control loop and by nobody else, so it starves when a
 * handler does not return. It is fed only if every lane sleeps or has gone round since the last
 * time, so it starves, too, when a lane hangs in a slice. It is fed four times per deadline: one
 * look that comes too early, such as just after the machine was stopped, costs one meal of three.
 *
 * Without a service manager that asks for it there is no timer, and nothing wakes the daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>

#include "daemon/occld.h"

#define MEALS_PER_DEADLINE 4
/* Texts that follow attaching and detaching processes; the service manager has other work. */
#define STATUS_GAP_NS 1000000000ull
/* What the end may take beyond drain_timeout: telling sessions, joining lanes, removing files. */
#define END_NS 10000000000ull

static bool lanes_move(struct occl_daemon *daemon) {
    struct occl_supervision *s = &daemon->supervision;
    bool all = true;
    for (uint32_t i = 0; i < daemon->lanes; i++) {
        bool moves = occl_engine_lane_moves(daemon->engine, i, &s->beats[i]);
        if (!moves && !s->lane_told[i])
            OCCL_LOG_ERROR(daemon->log, "daemon",
                           "lane %u has not gone round for %llu ms: the watchdog is not fed", i,
                           (unsigned long long)(s->meal_gap_ns / 1000000));
        s->lane_told[i] = !moves;
        all = all && moves;
    }
    return all;
}

static void feed(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    uint64_t gap_ns = daemon->supervision.meal_gap_ns;
    if (lanes_move(daemon))
        (void)sd_notify(0, "WATCHDOG=1"); /* there is nobody else to tell */
    if (occl_loop_timer_set(daemon->loop, timer, occl_loop_now_ns(daemon->loop) + gap_ns) !=
        OCCL_OK)
        OCCL_LOG_ERROR(daemon->log, "daemon", "no memory for the timer that feeds the watchdog");
}

static void tell_status(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    struct occl_supervision *s = &daemon->supervision;
    s->jobs_told = daemon->job_count;
    s->processes_told = daemon->rank_sessions;
    s->told_ns = occl_loop_now_ns(daemon->loop);
    (void)sd_notifyf(0, "STATUS=%s: %u jobs, %u processes",
                     daemon->draining ? "draining" : "serving", s->jobs_told, s->processes_told);
}

void occl_supervise_round(struct occl_daemon *daemon) {
    struct occl_supervision *s = &daemon->supervision;
    if (!s->listens || s->status_timer.place || daemon->stopping ||
        (s->jobs_told == daemon->job_count && s->processes_told == daemon->rank_sessions))
        return;
    uint64_t now = occl_loop_now_ns(daemon->loop);
    uint64_t due = s->told_ns + STATUS_GAP_NS;
    if (occl_loop_timer_set(daemon->loop, &s->status_timer, due > now ? due : now) != OCCL_OK)
        s->told_ns = now; /* no memory: the text comes later */
}

int occl_supervise_create(struct occl_daemon *daemon, struct occl_detail *detail) {
    struct occl_supervision *s = &daemon->supervision;
    uint64_t deadline_us = 0;
    s->feed_timer = (struct occl_timer){.fired = feed, .owner = daemon};
    s->status_timer = (struct occl_timer){.fired = tell_status, .owner = daemon};
    /* Unsets the variables: what is handed over is taken once. */
    int count = sd_listen_fds(1);
    if (count < 0)
        return occl_detail_set(detail, OCCL_E_INVALID, -count,
                               "the sockets of the service manager cannot be taken");
    s->passed_count = (uint32_t)count;
    int wanted = sd_watchdog_enabled(0, &deadline_us);
    if (wanted < 0)
        return occl_detail_set(detail, OCCL_E_INVALID, -wanted,
                               "WATCHDOG_USEC: expected microseconds");
    if (wanted == 0)
        return OCCL_OK;
    s->meal_gap_ns = deadline_us * 1000 / MEALS_PER_DEADLINE;
    if (occl_loop_timer_set(daemon->loop, &s->feed_timer,
                            occl_loop_now_ns(daemon->loop) + s->meal_gap_ns) != OCCL_OK)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for the watchdog");
    return OCCL_OK;
}

void occl_supervise_serving(struct occl_daemon *daemon) {
    if (!daemon->supervised)
        return;
    daemon->supervision.listens = sd_notify(0, "READY=1\nSTATUS=serving: no job") > 0;
}

void occl_supervise_reloading(struct occl_daemon *daemon) {
    if (daemon->supervision.listens)
        (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
                         (unsigned long long)(occl_loop_now_ns(daemon->loop) / 1000));
}

void occl_supervise_reloaded(struct occl_daemon *daemon) {
    if (daemon->supervision.listens)
        (void)sd_notify(0, "READY=1");
}

void occl_supervise_ending(struct occl_daemon *daemon, uint64_t within_ns) {
    struct occl_supervision *s = &daemon->supervision;
    if (!s->listens || s->told_ending)
        return;
    s->told_ending = true;
    (void)sd_notifyf(0,
                     "STOPPING=1\nSTATUS=draining: %u jobs, %u processes\n"
                     "EXTEND_TIMEOUT_USEC=%llu",
                     daemon->job_count, daemon->rank_sessions,
                     (unsigned long long)((within_ns + END_NS) / 1000));
}

void occl_supervise_destroy(struct occl_daemon *daemon) {
    occl_loop_timer_cancel(daemon->loop, &daemon->supervision.feed_timer);
    occl_loop_timer_cancel(daemon->loop, &daemon->supervision.status_timer);
}
