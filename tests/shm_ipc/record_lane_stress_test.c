/* SPDX-License-Identifier: Apache-2.0 */
/* Ops whose bytes lie elsewhere, under load (also under the thread sanitizer): all members arrive,
 * one of them makes the op LOCAL, members and a lane execute its strands. The lane is told of ops
 * late and in random order, of runs, single records and pairs, so most of what it is told of is
 * over. Each strand of each op runs at most once and for the right op; a complete op has them all;
 * after an aborted op has settled nobody writes its output. Outputs are plain memory. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/wake.h"
#include "tests/shm_ipc/records.h"

#define RANKS 4u
#define OPS (30000u / STRESS_DIVISOR)
#define STRANDS 5u
#define SEALED UINT64_MAX
#define ALARM_S 240

/* Op number n of the stream: untagged, tagged, and one between each two ranks, in turns. */
enum kind { IN_RUN, IN_SINGLE, IN_PAIR, KINDS };

struct output {
    uint64_t strands[STRANDS]; /* plain: written by their executors, sealed by member 0 */
    uint32_t end;              /* 0, or 1 + the state that was seen first */
};

struct shared {
    struct occl_records records;
    bool aborts;
    uint32_t wrong;
    uint32_t ranks_done;
    uint32_t announced; /* ops the lane may look for */
    uint32_t aborted;
    struct output outputs[OPS][2]; /* the second one for the second pair */
};

struct member {
    struct shared *shared;
    uint32_t rank;
    uint64_t noise;
    struct occl_wait_policy policy;
    uint32_t run_left;
};

struct view {
    struct occl_op_key key;
    struct occl_place place;
    struct occl_record *rec;
    uint32_t op, members, index;
    struct output *output;
    struct occl_look look;
};

static void complain(struct shared *s) {
    (void)occl_add32(&s->wrong, 1);
}

static struct occl_op_key key_of(uint32_t op, uint32_t pair) {
    uint32_t instance = op / KINDS;
    if (op % KINDS == IN_PAIR)
        return records_pair(2 * pair, 2 * pair + 1, 0, instance);
    return records_collective(op % KINDS == IN_RUN ? 0 : 1, instance);
}

/* The op that a record's first line describes, as real strands find their descriptors. */
static struct output *described(struct shared *s, const struct occl_line *line) {
    struct occl_op_key key = occl_line_key(line);
    uint32_t kind = key.peers != OCCL_PEERS_ALL ? IN_PAIR : key.tag ? IN_SINGLE : IN_RUN;
    uint32_t op = key.instance * KINDS + kind;
    if (op >= OPS) {
        complain(s);
        op = 0;
    }
    return &s->outputs[op][kind == IN_PAIR ? (key.peers & 0xffffu) / 2 : 0];
}

static struct view view_of(struct shared *s, uint32_t rank, uint32_t op) {
    struct view v;
    memset(&v, 0, sizeof v);
    bool is_pair = op % KINDS == IN_PAIR;
    v.op = op;
    v.key = key_of(op, rank / 2);
    v.place = occl_place_of(v.key);
    v.rec = occl_record_at(&s->records, v.place.slot);
    v.members = is_pair ? 2 : RANKS;
    v.index = is_pair ? rank % 2 : rank;
    v.output = &s->outputs[op][is_pair ? rank / 2 : 0];
    return v;
}

static void enter(struct member *m, const struct view *v) {
    uint64_t since = stress_now_ns();
    uint32_t index = occl_claim_index(v->place.slot);
    while (occl_claim_enter(occl_claim_at(&m->shared->records, index), v->place.print, false) ==
           OCCL_ENTER_RING) {
        (void)sched_yield();
        stress_watch(since, "enter");
    }
    if (v->op % KINDS == IN_RUN && m->run_left == 0)
        m->run_left = OCCL_RUN_OPS;
}

static void leave(struct member *m, const struct view *v) {
    if (v->op % KINDS == IN_RUN && --m->run_left > 0)
        return;
    occl_claim_leave(&m->shared->records, occl_claim_index(v->place.slot));
}

static void wake(struct occl_record *rec) {
    (void)occl_event_wake(&rec->event, &rec->sleepers, UINT32_MAX);
}

/* ---- strands ---- */

static uint64_t product(const struct output *output, uint32_t strand) {
    return (uint64_t)(uintptr_t)output << 8 | strand;
}

/* Claims and executes one strand; false when none is left. */
static bool execute_one(struct shared *s, struct occl_record *rec) {
    uint32_t now, strand = occl_record_claim_strand(rec, STRANDS, (uint32_t)sched_getcpu());
    if (strand == STRANDS)
        return false;
    struct output *output = described(s, occl_line_at(rec, 0));
    if (output->strands[strand] != 0)
        complain(s); /* executed twice, or after the op had settled */
    output->strands[strand] = product(output, strand);
    if (occl_add32(&rec->strands_done, 1) + 1 == STRANDS &&
        occl_record_decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE, &now))
        wake(rec);
    return true;
}

static void execute(struct shared *s, const struct view *v) {
    struct occl_line *mine = occl_line_at(v->rec, v->index);
    (void)occl_add32(&mine->busy, 1);
    while (occl_look32(&v->rec->state) == OCCL_REC_LOCAL && execute_one(s, v->rec))
        continue;
    (void)occl_add32(&mine->busy, 0u - 1u);
}

/* After an abort: nobody executes any more. */
static void settle(const struct view *v) {
    uint64_t since = stress_now_ns();
    for (uint32_t i = 0; i <= v->members; i++) {
        const uint32_t *busy =
            i == v->members ? &v->rec->lanes_busy : &occl_line_at(v->rec, i)->busy;
        while (occl_look32(busy) != 0) {
            (void)sched_yield();
            stress_watch(since, "settling");
        }
    }
}

static void check_complete(struct shared *s, const struct view *v) {
    for (uint32_t strand = 0; strand < STRANDS; strand++)
        if (v->output->strands[strand] != product(v->output, strand))
            complain(s);
}

/* Member 0 has its buffer back: whatever is written to it from now on is a fault. */
static void seal(const struct view *v) {
    for (uint32_t strand = 0; v->index == 0 && strand < STRANDS; strand++)
        v->output->strands[strand] = SEALED;
}

/* ---- the way of one op ---- */

static bool changed(const void *what) {
    const struct view *v = what;
    if (v->look.first_missing < v->members) {
        uint64_t flag = occl_look64(&occl_line_at(v->rec, v->look.first_missing)->flag);
        if (occl_flag_bits_of(flag, v->place.print) != 0)
            return true;
    }
    return occl_look32(&v->rec->state) != v->look.state;
}

static void decide_all(struct shared *s, const struct view *v) {
    uint32_t now, other;
    if (occl_record_mismatch(v->rec, v->look.ready_mask, v->index, &other) != OCCL_FIELD_NONE)
        complain(s);
    if (!occl_record_decide(v->rec, OCCL_REC_OPEN, OCCL_REC_LOCAL, &now))
        return;
    wake(v->rec);
    uint32_t announced = occl_look32(&s->announced);
    while (announced < v->op + 1 && !occl_claim32(&s->announced, &announced, v->op + 1))
        continue;
}

static void arrive(struct member *m, struct view *v) {
    struct occl_signature signature = {OCCL_OP_ALL_REDUCE, 4, 0, 0, 0, 0, 0, 1};
    struct occl_line *line = occl_line_at(v->rec, v->index);
    /* One member's bytes outside the page are enough. */
    bool in_page = v->index != v->op % v->members && stress_noise(&m->noise) % 2;
    occl_line_fill(line, v->key, &signature);
    if (!occl_record_arrive(line, v->place.print, in_page ? OCCL_FLAG_IN_PAGE : 0))
        return;
    occl_record_look(v->rec, v->place.print, v->members, &v->look);
    if (v->look.outcome == OCCL_OUT_ALL && v->look.state == OCCL_REC_OPEN)
        decide_all(m->shared, v);
    else if (v->look.outcome != OCCL_OUT_OPEN)
        wake(v->rec);
}

static void give_up(struct shared *s, const struct view *v) {
    (void)occl_record_abort(&s->records, v->place.slot, v->place.print, OCCL_E_TIMEOUT, v->index);
    wake(v->rec);
}

/* Until the op is DONE or ABORTED. */
static void wait_out(struct member *m, struct view *v, bool executes, uint32_t patience) {
    struct shared *s = m->shared;
    struct occl_wait_place place = {changed, v, &v->rec->event, &v->rec->sleepers};
    struct occl_waiter waiter;
    uint64_t since = stress_now_ns();
    occl_waiter_start(&waiter);
    for (;;) {
        occl_record_look(v->rec, v->place.print, v->members, &v->look);
        uint32_t kind = occl_rec_kind(v->look.state);
        if (v->look.outcome == OCCL_OUT_DIRECT)
            complain(s);
        if (v->look.outcome == OCCL_OUT_ABORTED)
            return;
        if (v->look.outcome == OCCL_OUT_ALL && (kind == OCCL_REC_DONE || kind == OCCL_REC_ABORTED))
            return;
        if (v->look.outcome == OCCL_OUT_ALL && kind == OCCL_REC_OPEN) {
            decide_all(s, v);
            continue;
        }
        if (patience == 0 || kind == OCCL_REC_ABORTED) {
            give_up(s, v);
            continue;
        }
        if (v->look.outcome == OCCL_OUT_ALL && executes)
            execute(s, v);
        (void)occl_waiter_step(&waiter, &m->policy, &place,
                               patience == UINT32_MAX ? UINT64_MAX : 1000000);
        patience -= patience != UINT32_MAX;
        stress_watch(since, "member");
    }
}

static void *run_member(void *arg) {
    struct member *m = arg;
    struct shared *s = m->shared;
    for (uint32_t op = 0; op < OPS; op++) {
        struct view v = view_of(s, m->rank, op);
        /* Every 64th op is the lane's alone; of the others each member executes about half, and
         * member 0 all, so that they do not wait for the lane. */
        bool lane_only = op % 64 == 0;
        bool executes = !lane_only && (v.index == 0 || stress_noise(&m->noise) % 2);
        uint32_t patience = UINT32_MAX, first = 0;
        if (s->aborts && !lane_only && stress_noise(&m->noise) % 8 == 0)
            patience = stress_noise(&m->noise) % 4;
        enter(m, &v);
        arrive(m, &v);
        wait_out(m, &v, executes, patience);
        if (!occl_claim32(&v.output->end, &first, v.look.state + 1) && first != v.look.state + 1)
            complain(s);
        if (v.look.state == OCCL_REC_DONE) {
            check_complete(s, &v);
        } else {
            (void)occl_add32(&s->aborted, 1);
            settle(&v);
            seal(&v);
        }
        leave(m, &v);
    }
    if (m->run_left > 0)
        occl_claim_leave(&s->records,
                         occl_claim_index(occl_place_of(key_of((OPS - 1) / 3 * 3, 0)).slot));
    (void)occl_add32(&s->ranks_done, 1);
    return NULL;
}

/* ---- the lane ---- */

struct lane {
    struct shared *shared;
    uint32_t entered, refused;
};

static void *run_lane(void *arg) {
    struct lane *lane = arg;
    struct shared *s = lane->shared;
    uint64_t noise = 4711;
    while (occl_observe32(&s->ranks_done) < RANKS) {
        uint32_t announced = occl_look32(&s->announced);
        uint32_t back = stress_noise(&noise) % (stress_noise(&noise) % 8 ? 3 : 400);
        if (announced <= back) {
            (void)sched_yield();
            continue;
        }
        struct occl_place at =
            occl_place_of(key_of(announced - 1 - back, stress_noise(&noise) % 2));
        struct occl_record *rec = occl_record_at(&s->records, at.slot);
        if (occl_record_lane_enter(&s->records, at.slot, at.print)) {
            lane->entered++;
            if (!(occl_flag_bits_of(occl_look64(&occl_line_at(rec, 0)->flag), at.print) &
                  OCCL_FLAG_READY))
                complain(s); /* not the op it was told of */
            /* Members finish the op meanwhile, and must not get the record for another one. */
            for (uint32_t i = stress_noise(&noise) % 8; i > 0; i--)
                (void)sched_yield();
            (void)execute_one(s, rec);
            occl_record_lane_leave(&s->records, at.slot);
        } else {
            lane->refused++;
        }
        if (stress_noise(&noise) % 4 == 0)
            (void)sched_yield();
    }
    return NULL;
}

/* ---- running them ---- */

static void run_all(bool aborts) {
    struct occl_ticks_scale scale = {0, 0, 1ull << 32};
    struct shared *s = stress_shared(sizeof *s);
    struct member members[RANKS];
    struct lane lane = {s, 0, 0};
    pthread_t threads[RANKS], lane_thread;
    s->records = records_new(RANKS);
    s->aborts = aborts;
    (void)alarm(ALARM_S);
    assert_int_equal(pthread_create(&lane_thread, NULL, run_lane, &lane), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        members[r] = (struct member){s, r, 1000 + r, {0}, 0};
        occl_wait_policy_choose(RANKS, occl_cores_allowed(), OCCL_TICKS_NS, &scale,
                                &members[r].policy);
        members[r].policy.yields = r;
        members[r].policy.sleep_ns_max = UINT64_MAX;
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    assert_int_equal(pthread_join(lane_thread, NULL), 0);
    (void)alarm(0);
    print_message("aborted %u, lane entered %u, refused %u\n", s->aborted, lane.entered,
                  lane.refused);
    assert_int_equal(s->wrong, 0);
    assert_int_equal(s->ranks_done, RANKS);
    assert_int_equal(records_in_use(&s->records), 0);
    assert_true(lane.entered >= OPS / 64);
    assert_true(lane.refused > 0);
    assert_true(aborts == (s->aborted > 0));
    for (uint32_t op = 0; op < OPS; op++) {
        for (uint32_t pair = 0; pair < (op % KINDS == IN_PAIR ? 2 : 1); pair++) {
            struct output *output = &s->outputs[op][pair];
            bool done = output->end == OCCL_REC_DONE + 1;
            for (uint32_t strand = 0; strand < STRANDS; strand++)
                assert_true(output->strands[strand] == (done ? product(output, strand) : SEALED));
        }
    }
    records_free(&s->records);
    (void)munmap(s, sizeof *s);
}

static void strands_run_exactly_once(void **state) {
    (void)state;
    run_all(false);
}

static void aborted_ops_settle(void **state) {
    (void)state;
    run_all(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strands_run_exactly_once),
        cmocka_unit_test(aborted_ops_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
