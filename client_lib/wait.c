/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: spin and yield briefly, then sleep in bounded pieces; after each step everything that
 * can end the wait is looked at again: the record, the communicator, the deadline, the daemon. */
#include <sched.h>

#include "client_lib/client.h"
#include "client_lib/waiting.h"

/* An aborted op that somebody still executes: no change of its record will wake the waiter. */
#define SETTLE_SLEEP_NS 1000000ull
#define NAP_NS 200000ull
/* Looks within client_comm.elsewhere_ticks. A look takes the line away from the rank that is about
 * to write it, and what is noticed late makes the next rank late. Measured with 4 ranks, 32 looks
 * against 8: 64 KiB all-gather 7 % faster, 8 B broadcast, where only the source is looked at, 8 %
 * slower. */
#define ELSEWHERE_LOOKS 32u
#define ELSEWHERE_LOOKS_AT_SOURCE 8u

uint64_t client_now_ns(void) {
    return occl_clock_now_ns(&occl_lib.clock);
}

void client_nap(uint32_t round) {
    if (round < CLIENT_NAPS_YIELDED)
        (void)sched_yield(); /* cannot fail on Linux */
    else
        occl_clock_sleep_ns(&occl_lib.clock, NAP_NS);
}

/* Another state than op->look saw, or that member came or was given up. */
static bool record_changed(const void *what) {
    const struct client_wait_target *target = what;
    const struct client_op *op = target->op;
    if (target->missing < op->members) {
        uint64_t flag = occl_look64(&occl_line_at(op->rec, target->missing)->flag);
        if (occl_flag_bits_of(flag, op->place.print))
            return true;
    }
    return occl_look32(&op->rec->state) != op->look.state;
}

void client_wait_before(struct client_op *op, struct client_wait_target *out_target) {
    out_target->op = op;
    out_target->missing = op->members;
    out_target->metered = false;
    if (op->held_back) { /* also one that has no record, because it is alone */
        out_target->bell.word = &op->after_bell;
        out_target->bell.seen = occl_look32(out_target->bell.word);
        out_target->place = occl_wait_on_word(&out_target->bell, &op->after_sleepers);
        return;
    }
    if (op->path == CLIENT_PATH_RING) {
        out_target->bell.word = &occl_lib.page->cq_bell;
        out_target->bell.seen = occl_look32(out_target->bell.word);
        out_target->place = occl_wait_on_word(&out_target->bell, &occl_lib.page->cq_sleepers);
        return;
    }
    out_target->share_token = occl_share_token(occl_lib.job);
    out_target->place =
        (struct occl_wait_place){record_changed, out_target, &op->rec->event, &op->rec->sleepers};
}

struct occl_wait_place client_wait_on_record(struct client_wait_target *target) {
    struct occl_record *rec = target->op->rec;
    target->missing = target->op->members;
    return (struct occl_wait_place){record_changed, target, &rec->event, &rec->sleepers};
}

/* The member whose arrival alone decides the op, or op->members: its source, until it has come. */
static uint32_t awaited_source(const struct client_op *op) {
    uint32_t source = !(op->traits->flags & OCCL_KIND_SOURCE) ? op->members
                      : op->traits->flags & OCCL_KIND_PAIR    ? 0
                                                              : op->sig.root;
    bool awaited = source < op->members && !(op->look.ready_mask >> source & 1) &&
                   op->look.first_missing < op->members;
    return awaited ? source : op->members;
}

/* The member whose arrival may decide the op. */
static uint32_t missing_member(const struct client_op *op) {
    uint32_t source = awaited_source(op);
    return source < op->members ? source : op->look.first_missing;
}

void client_wait_after(const struct client_op *op, struct client_wait_target *target) {
    if (op->held_back)
        return;
    if (op->path == CLIENT_PATH_RING) {
        if (occl_peek32(&op->ring_done) && target->limit_ns > SETTLE_SLEEP_NS)
            target->limit_ns = SETTLE_SLEEP_NS; /* refused: nobody rings when there is room */
        return;
    }
    uint32_t kind = occl_rec_kind(op->look.state);
    target->missing = op->look.outcome == OCCL_OUT_OPEN ? missing_member(op) : op->members;
    if (kind == OCCL_REC_ABORTED && target->limit_ns > SETTLE_SLEEP_NS)
        target->limit_ns = SETTLE_SLEEP_NS;
    target->metered = kind == OCCL_REC_LOCAL && !occl_share_may_run(occl_lib.job);
}

uint64_t client_sleep_limit(const struct client_op *op, uint64_t give_up_ns) {
    uint64_t until = op->deadline_ns;
    if (give_up_ns && (!until || give_up_ns < until))
        until = give_up_ns;
    if (!until)
        return OCCL_SLEEP_MAX_NS;
    uint64_t now_ns = client_now_ns();
    if (until <= now_ns) /* it settles, or the daemon is about to answer */
        return SETTLE_SLEEP_NS;
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

static struct occl_wait_policy policy_now(const struct client_comm *comm) {
    struct occl_wait_policy policy = comm->policy;
    if (!client_spins(comm))
        policy.spin_steps = 0;
    return policy;
}

/* The op ends as soon as its source has come, with the bytes in the page. */
static bool source_decides(const struct client_op *op) {
    return op->payload_bytes <= client_direct_max() && awaited_source(op) < op->members;
}

/* The first member that an OPEN record waits for and that was last seen on this core, or
 * op->members. */
static uint32_t missing_here(const struct client_op *op) {
    uint32_t here = (uint32_t)sched_getcpu();
    uint64_t missing = source_decides(op) ? 1ull << awaited_source(op) : ~op->look.ready_mask;
    for (uint32_t i = 0; i < op->members; i++) {
        uint32_t rank = client_member_rank(op, i);
        if ((missing >> i & 1) && occl_peek32(&occl_note_at(&op->comm->m, rank)->cpu) == here)
            return i;
    }
    return op->members;
}

/* A rank that needs this core has not come, as in the op before: until it has, nothing is decided.
 * The lines of the others, which are about to be written on other cores, then stay there. */
static bool neighbour_missing(const struct client_op *op) {
    const struct client_comm *comm = op->comm;
    uint32_t member = occl_peek32(&comm->neighbour);
    if (member >= op->members || op->path != CLIENT_PATH_RECORD || op->held_back ||
        op->key.peers != OCCL_PEERS_ALL || (op->traits->flags & OCCL_KIND_SOURCE))
        return false;
    uint64_t flag = occl_look64(&occl_line_at(op->rec, member)->flag);
    return !occl_flag_bits_of(flag, op->place.print) &&
           occl_peek32(&occl_note_at(&comm->m, member)->cpu) == (uint32_t)sched_getcpu();
}

/* All strands are claimed. Executors give their core up between two of them, not inside (but for
 * long copies between private buffers, and then this rank looks for a moment in vain). */
static bool executed_elsewhere(const struct client_op *op) {
    return occl_rec_kind(op->look.state) == OCCL_REC_LOCAL && op->planned &&
           !occl_record_strands_left(op->rec, op->strand_count);
}

/* Whoever this rank waits for is on another core: giving this one up would bring nobody sooner,
 * only a switch there and one back. */
static bool awaits_other_cores(const struct client_op *op) {
    struct client_comm *comm = op->comm;
    if (op->path != CLIENT_PATH_RECORD)
        return false;
    if (op->look.outcome == OCCL_OUT_OPEN) {
        uint32_t here = missing_here(op);
        if (here < op->members && op->key.peers == OCCL_PEERS_ALL)
            occl_note32(&comm->neighbour, here);
        return comm->elsewhere_ticks != 0 && here == op->members;
    }
    return comm->elsewhere_ticks != 0 && op->look.outcome == OCCL_OUT_ALL && executed_elsewhere(op);
}

/* Looks now and then for a moment. */
static bool watch_place(const struct client_op *op, const struct occl_wait_place *place) {
    uint64_t ticks = op->comm->elsewhere_ticks, end = occl_ticks(occl_lib.ticks) + ticks;
    bool at_source = op->look.outcome == OCCL_OUT_OPEN && source_decides(op);
    uint64_t pause = ticks / (at_source ? ELSEWHERE_LOOKS_AT_SOURCE : ELSEWHERE_LOOKS);
    do {
        uint64_t next = occl_ticks(occl_lib.ticks) + pause;
        while (occl_ticks(occl_lib.ticks) < next)
            occl_relax();
        if (place->changed(place->what))
            return true;
    } while (occl_ticks(occl_lib.ticks) < end);
    return false;
}

/* Apart, for its room on the stack. */
static __attribute__((noinline)) void sleep_held_back(struct client_op *op, uint64_t give_up_ns) {
    struct client_sleep sleep;
    client_sleep_start(&sleep, client_sleep_limit(op, give_up_ns));
    (void)client_sleep_add(&sleep, op); /* the caller looks again */
    client_sleep_end(&sleep);
}

bool client_wait_complete(struct client_op *op, uint64_t give_up_ns) {
    if (occl_observe32(&op->phase) != CLIENT_OP_ACTIVE)
        return true; /* most givers and sources end with their arrival */
    struct occl_wait_policy policy = policy_now(op->comm);
    struct occl_waiter waiter;
    occl_waiter_start(&waiter);
    if (policy.spin_steps == 0 && policy.yields > 0 && neighbour_missing(op)) {
        waiter.yields = 1;
        op->seen_ticks = 0;
        (void)sched_yield(); /* cannot fail on Linux */
    }
    bool done = client_advance(op, true);
    if (done)
        return true;
    while (!done) {
        struct client_wait_target target;
        bool about_to_sleep = waiter.spins >= policy.spin_steps && waiter.yields >= policy.yields;
        target.limit_ns = about_to_sleep ? client_sleep_limit(op, give_up_ns) : OCCL_SLEEP_MAX_NS;
        bool was_held_back = op->held_back;
        client_wait_before(op, &target);
        done = client_advance(op, true);
        if (done || (give_up_ns && about_to_sleep && client_now_ns() >= give_up_ns))
            break;
        if (was_held_back && !op->held_back)
            continue; /* it has just arrived: what is to be waited for is another place */
        client_wait_after(op, &target);
        if (about_to_sleep)
            client_announce(op, true);
        /* Once the core has been given up, and before it is for long: a rank that never gets to
         * sleep, because its waits are short, must not hold up those that use tags. */
        if (about_to_sleep || waiter.yields == 1)
            client_tags_visit(op->comm);
        if (about_to_sleep && op->held_back) {
            sleep_held_back(op, give_up_ns);
            continue;
        }
        if (target.metered) {
            occl_share_wait(occl_lib.job, target.share_token, target.limit_ns);
            if (give_up_ns && client_now_ns() >= give_up_ns)
                break;
            continue;
        }
        if (policy.spin_steps == 0 && !about_to_sleep && awaits_other_cores(op) &&
            watch_place(op, &target.place))
            continue;
        (void)occl_waiter_step(&waiter, &policy, &target.place, target.limit_ns);
        if (waiter.spins > 1 || waiter.yields > 0 || about_to_sleep)
            op->seen_ticks = 0;
    }
    if (!done)
        client_announce(op, false);
    return done;
}
