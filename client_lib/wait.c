/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: spin and yield briefly, then sleep in bounded pieces; after each step everything that
 * can end the wait is looked at again: the record, the communicator, the deadline, the daemon. */
#include <sched.h>

#include "client_lib/client.h"

/* An aborted op that somebody still executes: no change of its record will wake the waiter. */
#define SETTLE_SLEEP_NS 1000000ull
#define NAP_NS 200000ull
#define NAPS_YIELDED 64u
/* Looks within client_comm.elsewhere_ticks. */
#define ELSEWHERE_LOOKS 8u

uint64_t client_now_ns(void) {
    return occl_clock_now_ns(&occl_lib.clock);
}

void client_nap(uint32_t round) {
    if (round < NAPS_YIELDED)
        (void)sched_yield(); /* cannot fail on Linux */
    else
        occl_clock_sleep_ns(&occl_lib.clock, NAP_NS);
}

/* What a waiter of an op sleeps on. */
struct sleep_place {
    uint32_t *word;
    uint32_t expected;
    uint32_t *sleepers;
    uint64_t limit_ns;
    uint32_t share_token;
    bool metered; /* strands are left, but the job's share is used up */
};

static void place_of(struct client_op *op, struct sleep_place *out_place) {
    if (op->path == CLIENT_PATH_RING) {
        out_place->word = &occl_lib.page->cq_bell;
        out_place->expected = occl_observe32(out_place->word);
        out_place->sleepers = &occl_lib.page->cq_sleepers;
    } else {
        out_place->word = &op->rec->state;
        out_place->expected = occl_observe32(out_place->word);
        out_place->sleepers = &op->rec->sleepers;
        uint32_t kind = occl_rec_kind(out_place->expected);
        if (kind == OCCL_REC_ABORTED)
            out_place->limit_ns = SETTLE_SLEEP_NS;
        out_place->share_token = occl_share_token(occl_lib.job);
        out_place->metered = kind == OCCL_REC_LOCAL && !occl_share_may_run(occl_lib.job);
    }
}

static uint64_t sleep_limit(const struct client_op *op, uint64_t give_up_ns) {
    uint64_t until = op->deadline_ns;
    if (give_up_ns && (!until || give_up_ns < until))
        until = give_up_ns;
    if (!until)
        return OCCL_SLEEP_MAX_NS;
    uint64_t now_ns = client_now_ns();
    if (until <= now_ns)
        return 1000;
    return until - now_ns < OCCL_SLEEP_MAX_NS ? until - now_ns : OCCL_SLEEP_MAX_NS;
}

/* What `why` reads: that this rank waits in the op, and since when. Taken back before the record is
 * left, so by the thread that advances the op. */
void client_announce(struct client_op *op, bool waiting) {
    if (op->announced == waiting)
        return;
    op->announced = waiting;
    occl_add32(&occl_lib.page->threads_waiting, waiting ? 1 : UINT32_MAX);
    if (op->path != CLIENT_PATH_RECORD)
        return;
    struct occl_line *line = occl_line_at(op->rec, op->line_index);
    occl_note64(&line->wait_since_ticks, waiting ? occl_ticks(occl_lib.ticks) : 0);
    occl_note32(&line->waiters, waiting);
}

/* The policy of this moment: jobs of others may have come or gone since the communicator was made.
 */
static struct occl_wait_policy policy_now(const struct client_comm *comm) {
    struct occl_wait_policy policy = comm->policy;
    if (occl_peek32(&occl_lib.job->node_ranks) > occl_lib.cores)
        policy.spin_steps = 0;
    return policy;
}

/* All ranks that an OPEN record still misses were last seen on other cores: giving this one up
 * would bring none of them sooner, only a switch there and one back. */
static bool missing_elsewhere(const struct client_op *op) {
    if (op->comm->elsewhere_ticks == 0 || op->path != CLIENT_PATH_RECORD ||
        occl_rec_kind(occl_peek32(&op->rec->state)) != OCCL_REC_OPEN)
        return false;
    uint32_t here = (uint32_t)sched_getcpu();
    for (uint32_t i = 0; i < op->members; i++) {
        uint32_t rank = client_member_rank(op, i);
        if (!occl_observe32(&occl_line_at(op->rec, i)->ready) &&
            occl_peek32(&occl_note_at(&op->comm->m, rank)->cpu) == here)
            return false;
    }
    return true;
}

/* Looks at the word now and then for a moment. Rarely, because each look takes the line away from
 * the ranks that are about to write it. */
static void watch_word(const struct client_comm *comm, const uint32_t *word, uint32_t expected) {
    uint64_t end = occl_ticks(occl_lib.ticks) + comm->elsewhere_ticks;
    do {
        uint64_t next = occl_ticks(occl_lib.ticks) + comm->elsewhere_ticks / ELSEWHERE_LOOKS;
        while (occl_ticks(occl_lib.ticks) < next)
            occl_relax();
    } while (occl_observe32(word) == expected && occl_ticks(occl_lib.ticks) < end);
}

bool client_wait_complete(struct client_op *op, uint64_t give_up_ns) {
    struct occl_wait_policy policy = policy_now(op->comm);
    struct occl_waiter waiter;
    bool done = occl_observe32(&op->phase) != CLIENT_OP_ACTIVE;
    occl_waiter_start(&waiter);
    while (!done) {
        struct sleep_place place = {.metered = false};
        bool about_to_sleep = waiter.spins >= policy.spin_steps && waiter.yields >= policy.yields;
        uint64_t limit_ns = about_to_sleep ? sleep_limit(op, give_up_ns) : OCCL_SLEEP_MAX_NS;
        place.limit_ns = limit_ns;
        place_of(op, &place);
        if (place.limit_ns > limit_ns)
            place.limit_ns = limit_ns;
        done = client_advance(op, true);
        if (done || (give_up_ns && about_to_sleep && client_now_ns() >= give_up_ns))
            break;
        if (about_to_sleep)
            client_announce(op, true);
        if (place.metered) {
            occl_share_wait(occl_lib.job, place.share_token, place.limit_ns);
            continue;
        }
        if (policy.spin_steps == 0 && !about_to_sleep && missing_elsewhere(op)) {
            watch_word(op->comm, place.word, place.expected);
            if (occl_observe32(place.word) != place.expected)
                continue;
        }
        (void)occl_waiter_step(&waiter, &policy, place.word, place.expected, place.sleepers,
                               place.limit_ns);
    }
    if (!done)
        client_announce(op, false);
    return done;
}
