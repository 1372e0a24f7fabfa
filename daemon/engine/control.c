/* SPDX-License-Identifier: Apache-2.0 */
/* Calls from the control loop into lanes. The control loop publishes one call to a lane, the lane
 * runs it between two slices, the control loop waits: at most a slice, plus what the system takes
 * to give the lane a core. The lane never waits for the control loop. */
#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

#define LOOKS_BEFORE_SLEEP 64u

void occl_eng_nudge(struct occl_eng_lane *lane) {
    (void)occl_parker_wake(&lane->parker);
}

int occl_eng_call(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    uint64_t expected = 0;
    occl_note32(&call->done, 0);
    call->rounds = 0;
    call->status = OCCL_OK;
    /* One control loop, one call at a time. */
    OCCL_ASSERT(occl_claim64(&lane->call, &expected, (uint64_t)(uintptr_t)call));
    occl_eng_nudge(lane);
    while (lane->engine->config.driven && !occl_observe32(&call->done))
        (void)occl_eng_lane_turn(lane);
    for (uint32_t i = 0; i < LOOKS_BEFORE_SLEEP && !occl_observe32(&call->done); i++)
        occl_relax();
    /* The word is on this thread's stack: no client can reach it. */
    while (!occl_observe32(&call->done))
        occl_futex_sleep(&call->done, 0, OCCL_SLEEP_MAX_NS);
    return call->status;
}

bool occl_eng_call_serve(struct occl_eng_lane *lane) {
    struct occl_eng_call *call = (struct occl_eng_call *)(uintptr_t)occl_observe64(&lane->call);
    if (!call)
        return false;
    if (!call->step(lane, call)) {
        call->rounds++;
        return false;
    }
    occl_publish64(&lane->call, 0);
    /* With done set the caller's stack frame may be gone; a wake of a word that is something else
     * by now is harmless, because every sleeper looks again. */
    occl_publish32(&call->done, 1);
    (void)occl_futex_wake(&call->done, 1); /* nobody sleeping is fine */
    return true;
}
