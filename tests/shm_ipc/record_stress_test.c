/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that are decided by the flags of their record, under load: between threads (also under the
 * thread sanitizer) and processes; in runs, single records and pairs; with and without a source
 * whose arrival decides alone; with members that give up at random, before or after they arrive.
 * All members of an op see the same end, and with success the right data. Line contents are plain
 * memory, so a missing barrier shows as wrong data or as a race. Who does not give up sleeps
 * without limit, so a lost wake-up shows as a stand-still.
 *
 * Ops that go on to LOCAL, and lanes: record_lane_stress_test.c. The overflow rule:
 * overflow_stress_test.c. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/wake.h"
#include "tests/shm_ipc/records.h"

#define RANKS 4u
#define OPS (30000u / STRESS_DIVISOR)
#define NO_LIMIT UINT64_MAX
#define ALARM_S 240

enum where { IN_RUNS, IN_SINGLES, IN_PAIRS };

struct mode {
    enum where where;
    bool rooted;
    bool aborts;
};

struct shared {
    struct occl_records records;
    struct mode mode;
    uint32_t wrong;
    uint32_t ranks_done;
    uint32_t aborted;                 /* members of aborted ops */
    uint32_t completed;               /* members of complete ops */
    uint32_t early;                   /* ops that a source completed before the others were there */
    uint32_t poisoned_but_done;       /* members that came after an abort and had their data */
    uint32_t outcome[OPS][RANKS / 2]; /* 0, or 1 + the end that was seen first; per pair */
};

struct member {
    struct shared *shared;
    uint32_t rank;
    uint64_t noise;
    struct occl_wait_policy policy;
    uint32_t run_left; /* ops of the current run that this rank has not left */
    uint64_t slept;
};

/* One op as one member sees it. */
struct view {
    struct occl_op_key key;
    struct occl_place place;
    struct occl_record *rec;
    uint32_t op, members, index, root; /* root: index of the source, or `members` */
    uint32_t missing;                  /* the member that is waited for */
    struct occl_look look;
};

static void complain(struct shared *s) {
    (void)occl_add32(&s->wrong, 1);
}

static struct view view_of(const struct member *m, uint32_t op) {
    const struct shared *s = m->shared;
    struct view v;
    memset(&v, 0, sizeof v);
    v.op = op;
    v.members = s->mode.where == IN_PAIRS ? 2 : RANKS;
    v.index = m->rank;
    if (s->mode.where == IN_PAIRS) { /* ranks 0 and 1, 2 and 3; they send in turns */
        uint32_t base = m->rank & ~1u, sender = base + op % 2;
        v.index = m->rank != sender;
        v.root = s->mode.rooted ? 0 : 2;
        v.key = records_pair(sender, sender ^ 1u, 3, op);
    } else {
        v.root = s->mode.rooted ? op % RANKS : RANKS;
        v.key = records_collective(s->mode.where == IN_SINGLES ? 1 + op % 3 : 0,
                                   s->mode.where == IN_SINGLES ? op / 3 : op);
    }
    v.place = occl_place_of(v.key);
    v.rec = occl_record_at(&s->records, v.place.slot);
    return v;
}

static void enter(struct member *m, struct view *v) {
    uint64_t since = stress_now_ns();
    uint32_t index = occl_claim_index(v->place.slot);
    while (occl_claim_enter(occl_claim_at(&m->shared->records, index), v->place.print, false) ==
           OCCL_ENTER_RING) {
        (void)sched_yield();
        stress_watch(since, "enter");
    }
    if (m->run_left == 0)
        m->run_left = occl_claim_records(index);
}

static void leave(struct member *m, const struct view *v) {
    if (--m->run_left == 0)
        occl_claim_leave(&m->shared->records, occl_claim_index(v->place.slot));
}

/* ---- payload ---- */

static uint64_t contribution(const struct view *v, uint32_t index) {
    return (uint64_t)v->op * 1000 + index * 7ull + 1;
}

static void fill_line(const struct view *v) {
    struct occl_signature signature = {OCCL_OP_ALL_REDUCE, 4, 0, 0, 0, 0, 0, 1};
    uint64_t value = contribution(v, v->index);
    occl_line_fill(occl_line_at(v->rec, v->index), v->key, &signature);
    memcpy(occl_line_at(v->rec, v->index)->u.tiny, &value, sizeof value);
}

static void check_payload(struct shared *s, const struct view *v) {
    uint64_t readable = v->root < v->members ? 1ull << v->root : (1ull << v->members) - 1;
    uint32_t other;
    if ((v->look.ready_mask & readable) != readable)
        complain(s);
    if (occl_record_mismatch(v->rec, readable, v->index, &other) != OCCL_FIELD_NONE)
        complain(s);
    for (uint32_t i = 0; i < v->members; i++) {
        uint64_t value;
        if (!(readable >> i & 1))
            continue;
        memcpy(&value, occl_line_at(v->rec, i)->u.tiny, sizeof value);
        if (value != contribution(v, i))
            complain(s);
    }
}

/* ---- the way of one op ---- */

static void look(struct view *v) {
    occl_record_look(v->rec, v->place.print, v->members, &v->look);
}

static void wake(struct view *v) {
    (void)occl_event_wake(&v->rec->event, &v->rec->sleepers, UINT32_MAX);
}

static void give_up(struct member *m, struct view *v) {
    (void)occl_record_abort(&m->shared->records, v->place.slot, v->place.print, OCCL_E_TIMEOUT,
                            v->index);
    wake(v);
}

/* As one that is stopped or killed in the middle of an abort: it has written the reason and
 * poisoned one line, or none; the others have to see to the rest. */
static void give_up_halfway(struct member *m, struct view *v) {
    uint32_t now, word = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_PEER_FAILED, v->index);
    uint32_t victim = stress_noise(&m->noise) % v->members;
    if (!occl_record_decide(v->rec, OCCL_REC_OPEN, word, &now))
        return;
    uint64_t *place = &occl_line_at(v->rec, victim)->flag;
    uint64_t flag = occl_look64(place);
    if (occl_flag_bits_of(flag, v->place.print) == 0 && stress_noise(&m->noise) % 2)
        (void)occl_claim64(place, &flag, occl_flag_make(v->place.print, OCCL_FLAG_POISONED));
    (void)sched_yield();
    wake(v);
}

static void arrive(struct member *m, struct view *v) {
    struct shared *s = m->shared;
    uint32_t bits = OCCL_FLAG_IN_PAGE | (v->index == v->root ? OCCL_FLAG_SOURCE : 0);
    fill_line(v);
    if (s->mode.aborts && stress_noise(&m->noise) % 64 == 0) {
        give_up(m, v); /* it could not come */
        return;
    }
    if (!occl_record_arrive(occl_line_at(v->rec, v->index), v->place.print, bits))
        return;
    if (occl_look32(&v->rec->sleepers) == 0)
        return;
    look(v);
    if (v->look.outcome != OCCL_OUT_OPEN)
        wake(v);
}

static bool changed(const void *what) {
    const struct view *v = what;
    uint64_t flag = occl_look64(&occl_line_at(v->rec, v->missing)->flag);
    return occl_flag_bits_of(flag, v->place.print) != 0 ||
           occl_look32(&v->rec->state) != v->look.state;
}

/* Waits until the flags have decided; v->look says how. */
static void wait_out(struct member *m, struct view *v, uint32_t patience) {
    struct occl_wait_place place = {changed, v, &v->rec->event, &v->rec->sleepers};
    struct occl_waiter waiter;
    uint64_t since = stress_now_ns();
    occl_waiter_start(&waiter);
    for (look(v); v->look.outcome == OCCL_OUT_OPEN; look(v)) {
        if (patience == 0 && stress_noise(&m->noise) % 2)
            give_up_halfway(m, v);
        if (patience == 0 || occl_rec_kind(v->look.state) == OCCL_REC_ABORTED) {
            give_up(m, v);
            look(v);
            if (v->look.outcome == OCCL_OUT_OPEN)
                complain(m->shared); /* an abort leaves nothing open */
            break;
        }
        v->missing = v->root < v->members && !(v->look.ready_mask >> v->root & 1)
                         ? v->root
                         : v->look.first_missing;
        (void)occl_waiter_step(&waiter, &m->policy, &place,
                               patience == UINT32_MAX ? NO_LIMIT : 1000000);
        patience -= patience != UINT32_MAX;
        stress_watch(since, "member");
    }
    m->slept += waiter.sleep_calls;
}

/* Every member has to see the same end: complete, or aborted for the same reason. */
static void note_end(struct member *m, const struct view *v) {
    struct shared *s = m->shared;
    bool direct = v->look.outcome == OCCL_OUT_DIRECT;
    uint32_t end = direct ? 1 : 2 + v->look.state, first = 0;
    uint32_t *place = &s->outcome[v->op][s->mode.where == IN_PAIRS ? m->rank / 2 : 0];
    if (!occl_claim32(place, &first, end) && first != end)
        complain(s);
    if (!direct &&
        (v->look.outcome != OCCL_OUT_ABORTED || occl_rec_kind(v->look.state) != OCCL_REC_ABORTED))
        complain(s);
    (void)occl_add32(direct ? &s->completed : &s->aborted, 1);
    if (direct && v->index == v->root && v->look.first_missing < v->members)
        (void)occl_add32(&s->early, 1);
    if (direct && !(v->look.ready_mask >> v->index & 1))
        (void)occl_add32(&s->poisoned_but_done, 1);
}

static void *run_member(void *arg) {
    struct member *m = arg;
    struct shared *s = m->shared;
    for (uint32_t op = 0; op < OPS; op++) {
        struct view v = view_of(m, op);
        uint32_t patience = UINT32_MAX;
        if (s->mode.aborts && stress_noise(&m->noise) % 8 == 0)
            patience = stress_noise(&m->noise) % 4;
        enter(m, &v);
        arrive(m, &v);
        wait_out(m, &v, patience);
        note_end(m, &v);
        if (v.look.outcome == OCCL_OUT_DIRECT)
            check_payload(s, &v);
        leave(m, &v);
        if (s->mode.rooted && stress_noise(&m->noise) % 16 == 0)
            (void)sched_yield(); /* else they walk in step, and no source comes early */
    }
    /* The last run may be half walked: nobody waits for the rest. */
    if (m->run_left > 0)
        occl_claim_leave(&s->records, occl_claim_index(view_of(m, OPS - 1).place.slot));
    (void)occl_add32(&s->ranks_done, 1);
    return NULL;
}

/* ---- running them ---- */

static struct shared *set_up(struct mode mode, struct member members[RANKS]) {
    struct occl_ticks_scale scale = {0, 0, 1ull << 32};
    struct shared *s = stress_shared(sizeof *s);
    s->records = records_new(RANKS);
    s->mode = mode;
    for (uint32_t r = 0; r < RANKS; r++) {
        struct member member = {s, r, 1000 + r, {0}, 0, 0};
        occl_wait_policy_choose(RANKS, occl_cores_allowed(), OCCL_TICKS_NS, &scale, &member.policy);
        /* Sleep early and often, and without an end: that is what may go wrong. */
        member.policy.yields = r;
        member.policy.sleep_ns_max = NO_LIMIT;
        members[r] = member;
    }
    return s;
}

static void finish(struct shared *s) {
    assert_int_equal(s->wrong, 0);
    assert_int_equal(s->ranks_done, RANKS);
    assert_int_equal(s->aborted + s->completed, OPS * RANKS);
    assert_int_equal(records_in_use(&s->records), 0);
    print_message("aborted %u, early sources %u, done though poisoned %u\n", s->aborted, s->early,
                  s->poisoned_but_done);
    if (s->mode.aborts) { /* both ends have to occur */
        assert_int_equal(s->aborted % (s->mode.where == IN_PAIRS ? 2 : RANKS), 0);
        assert_in_range(s->aborted, 1, OPS * RANKS - 1);
    } else {
        assert_int_equal(s->aborted, 0);
        assert_int_equal(s->poisoned_but_done, 0);
    }
    assert_true(!s->mode.rooted || s->early > 0);
    records_free(&s->records);
    (void)munmap(s, sizeof *s);
}

static void run_threads(struct mode mode) {
    struct member members[RANKS];
    struct shared *s = set_up(mode, members);
    pthread_t threads[RANKS];
    uint64_t slept = 0;
    (void)alarm(ALARM_S);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        slept += members[r].slept;
    }
    (void)alarm(0);
    assert_true(slept > 0);
    finish(s);
}

static void run_processes(struct mode mode) {
    struct member members[RANKS];
    struct shared *s = set_up(mode, members);
    pid_t children[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] == 0) {
            (void)alarm(ALARM_S);
            (void)run_member(&members[r]);
            _exit(0);
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        int exit_status;
        assert_int_equal(waitpid(children[r], &exit_status, 0), children[r]);
        assert_true(WIFEXITED(exit_status));
        assert_int_equal(WEXITSTATUS(exit_status), 0);
    }
    finish(s);
}

static void runs_carry_the_right_data(void **state) {
    (void)state;
    run_threads((struct mode){IN_RUNS, false, false});
}

static void singles_carry_the_right_data(void **state) {
    (void)state;
    run_threads((struct mode){IN_SINGLES, false, false});
}

static void sources_complete_early(void **state) {
    (void)state;
    run_threads((struct mode){IN_RUNS, true, false});
}

static void aborted_ops_end_alike(void **state) {
    (void)state;
    run_threads((struct mode){IN_RUNS, false, true});
    run_threads((struct mode){IN_SINGLES, false, true});
}

static void aborted_rooted_ops_end_alike(void **state) {
    (void)state;
    run_threads((struct mode){IN_RUNS, true, true});
    run_threads((struct mode){IN_SINGLES, true, true});
}

static void aborted_pairs_end_alike(void **state) {
    (void)state;
    run_threads((struct mode){IN_PAIRS, false, true});
    run_threads((struct mode){IN_PAIRS, true, true});
}

static void processes_see_the_same(void **state) {
    (void)state;
    run_processes((struct mode){IN_RUNS, false, true});
    run_processes((struct mode){IN_RUNS, true, true});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_carry_the_right_data),
        cmocka_unit_test(singles_carry_the_right_data),
        cmocka_unit_test(sources_complete_early),
        cmocka_unit_test(aborted_ops_end_alike),
        cmocka_unit_test(aborted_rooted_ops_end_alike),
        cmocka_unit_test(aborted_pairs_end_alike),
        cmocka_unit_test(processes_see_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
