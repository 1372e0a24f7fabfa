/* SPDX-License-Identifier: Apache-2.0 */
/* The lane: one thread that takes submissions, executes slices and sleeps when there is nothing. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "daemon/engine/internal.h"
#include "gpu/host/fp_env.h"
#include "shm_ipc/assert.h"

/* While every rank can have a core, a lane looks on for this long before it gives up its own: twice
 * what a client needs between a completion and its next submission. */
#define SPIN_NS 20000u

struct idle {
    uint64_t since_ns;
    uint32_t yields;
    bool idle;
};

static void bind_to_cpu(const struct occl_eng_lane *lane) {
    cpu_set_t set;
    if (!lane->bound)
        return;
    CPU_ZERO(&set);
    if (lane->cpu < CPU_SETSIZE)
        CPU_SET(lane->cpu, &set);
    int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (error)
        OCCL_LOG_WARN(lane->engine->log, "engine", "lane %u not bound to cpu %u: %s", lane->index,
                      lane->cpu, strerror(error));
}

/* More threads than cores: whoever holds one gives it up at each slice. */
static bool cores_are_short(const struct occl_eng_lane *lane) {
    return occl_peek32(&lane->engine->sessions_live) + lane->engine->lane_count >
           lane->engine->cores;
}

static bool has_work(struct occl_eng_lane *lane) {
    struct occl_engine *engine = lane->engine;
    return occl_look32(&lane->look) || occl_look64(&lane->call) ||
           occl_look32(&engine->board_version) != lane->board_seen ||
           occl_eng_intake_pending(lane) ||
           (!occl_eng_list_empty(&lane->gated) &&
            occl_look32(&engine->grants_version) != lane->grants_seen);
}

/* Announce, look again: see shm_ipc/wake.h. True: the lane may sleep while the parker's word says
 * *out_token. */
static bool lie_down(struct occl_eng_lane *lane, uint32_t *out_token) {
    *out_token = occl_parker_prepare(&lane->parker);
    for (struct occl_eng_link *l = lane->sessions.next; l != &lane->sessions; l = l->next)
        occl_doorbell_arm(
            &OCCL_ENG_ENTRY(l, struct occl_eng_session, lane_link)->page->daemon_sleeping);
    return !has_work(lane);
}

static void get_up(struct occl_eng_lane *lane) {
    for (struct occl_eng_link *l = lane->sessions.next; l != &lane->sessions; l = l->next)
        occl_doorbell_disarm(
            &OCCL_ENG_ENTRY(l, struct occl_eng_session, lane_link)->page->daemon_sleeping);
}

/* Ops that the meter keeps back get their slice by age. */
static uint64_t sleep_limit_ns(const struct occl_eng_lane *lane) {
    return occl_eng_list_empty(&lane->gated) ? UINT64_MAX : lane->engine->config.ageing_ns;
}

static void park(struct occl_eng_lane *lane) {
    uint32_t token;
    if (lie_down(lane, &token)) {
        occl_eng_bump(&lane->counters.lane_sleeps, 1);
        occl_eng_bump(&lane->counters.system_calls, 1);
        occl_parker_park(&lane->parker, token, sleep_limit_ns(lane));
        occl_eng_bump(&lane->counters.lane_wakeups, 1);
    }
    get_up(lane);
}

/* One step of having nothing to do: spin while cores are free, then yield some times, then sleep.
 */
static void rest(struct occl_eng_lane *lane, struct idle *idle) {
    uint64_t now_ns = occl_eng_now_ns(lane);
    if (!idle->idle)
        *idle = (struct idle){.since_ns = now_ns, .idle = true};
    if (!cores_are_short(lane) && now_ns - idle->since_ns < SPIN_NS) {
        occl_relax();
        return;
    }
    if (idle->yields < OCCL_YIELDS_BEFORE_SLEEP) {
        idle->yields++;
        occl_eng_bump(&lane->counters.system_calls, 1);
        (void)sched_yield(); /* cannot fail on Linux */
        return;
    }
    park(lane);
    idle->idle = false;
}

/* Everything but slices and sleeping. True when something happened. */
static bool attend(struct occl_eng_lane *lane) {
    bool busy = occl_eng_call_serve(lane);
    occl_eng_bump(&lane->counters.rounds, 1);
    if (occl_peek32(&lane->look)) {
        occl_note32(&lane->look, 0);
        occl_bell_fence(); /* the look at the runs comes after the flag is down */
        occl_eng_runs_reap(lane);
        busy = true;
    }
    busy |= occl_eng_intake(lane);
    busy |= occl_eng_start_ready(lane);
    busy |= occl_eng_help(lane);
    if (!occl_eng_list_empty(&lane->gated))
        busy |= occl_eng_regate(lane, occl_eng_now_ns(lane));
    occl_eng_flush(lane);
    return busy;
}

bool occl_eng_lane_turn(struct occl_eng_lane *lane) {
    if (lane->asleep && occl_parker_prepare(&lane->parker) == lane->sleep_token &&
        occl_eng_now_ns(lane) - lane->slept_ns < sleep_limit_ns(lane))
        return false;
    if (lane->asleep)
        get_up(lane);
    lane->asleep = false;
    bool busy = attend(lane);
    if (occl_eng_visit(lane) || busy)
        return true;
    lane->asleep = lie_down(lane, &lane->sleep_token);
    lane->slept_ns = occl_eng_now_ns(lane);
    if (!lane->asleep)
        get_up(lane);
    return !lane->asleep;
}

void *occl_eng_lane_main(void *argument) {
    struct occl_eng_lane *lane = argument;
    struct idle idle = {.idle = false};
    bind_to_cpu(lane);
    OCCL_ASSERT(occl_fp_env_is_default());
    while (!lane->stopping) {
        bool busy = attend(lane);
        if (occl_eng_visit(lane)) {
            busy = true;
            if (cores_are_short(lane)) {
                occl_eng_flush(lane);
                occl_eng_bump(&lane->counters.system_calls, 1);
                (void)sched_yield(); /* cannot fail on Linux */
            }
        }
        if (busy)
            idle.idle = false;
        else
            rest(lane, &idle);
    }
    return NULL;
}
