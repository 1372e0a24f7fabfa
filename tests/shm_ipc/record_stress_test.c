/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival records under load, between threads (also under the thread sanitizer) and processes.
 *
 * direct   every op meets in its record, a random member may abort it; all members see the same
 * end, and with success the right sum. Line contents are plain memory, so a missing barrier shows
 *          as a wrong sum or as a race.
 * strands  members and a lane execute the strands of an op; the lane is told of ops late and in
 *          random order; each strand of each op runs exactly once and for the right op.
 *
 * The overflow rule has a file of its own: overflow_stress_test.c. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/record.h"
#include "shm_ipc/wake.h"
#include "tests/shm_ipc/stress.h"

#define MEMBERS 4u
#define OPS (60000ull / STRESS_DIVISOR)
#define STRANDS 5u

struct shared {
    struct occl_comm_page header; /* copied to the start of the communicator page */
    struct occl_records records;
    uint32_t *outcome; /* per op: 0, or state word + 1 of who finished first */
    uint64_t *output;  /* per op and strand: written by its executor */
    uint32_t wrong;
    uint32_t members_done;
    uint32_t announced; /* strands: ops the lane may look for */
    uint32_t aborted;
};

struct member {
    struct shared *shared;
    uint32_t rank;
    bool with_aborts;
    uint64_t noise;
    struct occl_wait_policy policy;
};

static struct shared *set_up(void) {
    struct shared *s = stress_shared(sizeof *s);
    occl_comm_page_layout(MEMBERS, 1, &s->header);
    char *page = stress_shared(s->header.page_bytes);
    memcpy(page, &s->header, sizeof s->header);
    assert_int_equal(occl_records_open(page, s->header.page_bytes, &s->records), OCCL_OK);
    s->outcome = stress_shared(OPS * sizeof *s->outcome);
    s->output = stress_shared(OPS * STRANDS * sizeof *s->output);
    return s;
}

static void tear_down(struct shared *s) {
    (void)munmap(s->outcome, OPS * sizeof *s->outcome);
    (void)munmap(s->output, OPS * STRANDS * sizeof *s->output);
    (void)munmap(s->records.base, s->header.page_bytes);
    (void)munmap(s, sizeof *s);
}

static void complain(struct shared *s) {
    (void)occl_add32(&s->wrong, 1);
}

/* Every member has to see the same end. */
static void note_outcome(struct shared *s, uint32_t op, uint32_t state) {
    uint32_t first = 0;
    if (!occl_claim32(&s->outcome[op], &first, state + 1) && first != state + 1)
        complain(s);
}

static struct occl_place place_of(const struct shared *s, uint32_t op) {
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, op};
    return occl_place_of(key, s->records.records);
}

/* Enters the record of op; ops of one tag come in order here, so a slot is busy only while the
 * members of an op 128 instances ago are leaving it. */
static struct occl_record *enter(struct shared *s, uint32_t op) {
    struct occl_place at = place_of(s, op);
    struct occl_record *rec = occl_record_at(&s->records, at.slot);
    uint64_t since = stress_now_ns();
    while (occl_record_enter(rec, at.print, false) == OCCL_ENTER_RING) {
        (void)sched_yield();
        stress_watch(since, "enter");
    }
    return rec;
}

static uint32_t decide(struct occl_record *rec, uint32_t from, uint32_t to) {
    uint32_t now;
    if (occl_record_decide(rec, from, to, &now))
        (void)occl_word_wake(&rec->state, &rec->sleepers, UINT32_MAX);
    return now;
}

/* Waits until state is no longer `from`; gives up (aborts the op) after `steps` steps. */
static uint32_t wait_out(struct member *m, struct occl_record *rec, uint32_t from, uint32_t steps) {
    struct occl_waiter waiter;
    uint64_t since = stress_now_ns();
    occl_waiter_start(&waiter);
    for (;;) {
        enum occl_wait_step step =
            occl_waiter_step(&waiter, &m->policy, &rec->state, from, &rec->sleepers, UINT64_MAX);
        if (step == OCCL_WAIT_CHANGED)
            return occl_observe32(&rec->state);
        if (steps-- == 0)
            return decide(rec, from, OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_TIMEOUT, m->rank));
        stress_watch(since, "member");
    }
}

static uint64_t contribution(uint32_t op, uint32_t rank) {
    return (uint64_t)op * 1000 + rank * 7ull + 1;
}

static void fill_line(struct occl_line *line, uint32_t op, uint32_t rank) {
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, op};
    struct occl_signature signature = {OCCL_OP_ALL_REDUCE, 4, 0, 1, 0, 0, 0, 1};
    uint64_t value = contribution(op, rank);
    occl_line_fill(line, key, &signature);
    memcpy(line->u.tiny, &value, sizeof value);
}

static void check_sum(struct shared *s, struct occl_record *rec, uint32_t op) {
    uint64_t sum = 0, expected = 0;
    for (uint32_t r = 0; r < MEMBERS; r++) {
        uint64_t value;
        memcpy(&value, occl_line_at(rec, r)->u.tiny, sizeof value);
        sum += value;
        expected += contribution(op, r);
    }
    if (sum != expected)
        complain(s);
}

static void *run_direct(void *arg) {
    struct member *m = arg;
    struct shared *s = m->shared;
    for (uint32_t op = 0; op < OPS; op++) {
        struct occl_record *rec = enter(s, op);
        struct occl_line *line = occl_line_at(rec, m->rank);
        uint32_t index, now;
        fill_line(line, op, m->rank);
        if (occl_record_arrive(rec, line, OCCL_LINE_BLOCKED) == MEMBERS) {
            if (occl_record_mismatch(rec, MEMBERS, m->rank, &index) != OCCL_FIELD_NONE)
                complain(s);
            now = decide(rec, OCCL_REC_OPEN, OCCL_REC_DIRECT);
        } else {
            uint32_t patience = UINT32_MAX;
            if (m->with_aborts && stress_noise(&m->noise) % 8 == 0)
                patience = stress_noise(&m->noise) % 4;
            now = patience == 0 ? decide(rec, OCCL_REC_OPEN,
                                         OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_CANCELED, m->rank))
                                : wait_out(m, rec, OCCL_REC_OPEN, patience);
        }
        note_outcome(s, op, now);
        if (occl_rec_kind(now) == OCCL_REC_DIRECT)
            check_sum(s, rec, op);
        else
            (void)occl_add32(&s->aborted, 1);
        occl_record_leave(rec, MEMBERS);
    }
    (void)occl_add32(&s->members_done, 1);
    return NULL;
}

/* ---- strands ---- */

static uint64_t product(uint32_t op, uint32_t strand) {
    return ((uint64_t)op << 8 | strand) + 1;
}

/* Claims and executes strands until none is left. Which op is executed is read from a line, as the
 * descriptors of real strands are. */
static void execute(struct shared *s, struct occl_record *rec) {
    for (;;) {
        uint32_t strand = occl_add32(&rec->strands_next, 1);
        if (strand >= STRANDS)
            return;
        uint32_t op = occl_line_at(rec, 0)->instance;
        uint64_t *out = &s->output[op * STRANDS + strand];
        if (*out != 0)
            complain(s); /* executed twice */
        *out = product(op, strand);
        if (occl_add32(&rec->strands_done, 1) + 1 == STRANDS)
            (void)decide(rec, OCCL_REC_LOCAL, OCCL_REC_DONE);
    }
}

static void check_output(struct shared *s, uint32_t op) {
    for (uint32_t strand = 0; strand < STRANDS; strand++)
        if (s->output[op * STRANDS + strand] != product(op, strand))
            complain(s);
}

static void *run_strands(void *arg) {
    struct member *m = arg;
    struct shared *s = m->shared;
    for (uint32_t op = 0; op < OPS; op++) {
        struct occl_record *rec = enter(s, op);
        struct occl_line *line = occl_line_at(rec, m->rank);
        uint32_t now;
        fill_line(line, op, m->rank);
        if (occl_record_arrive(rec, line, OCCL_LINE_ASYNC) == MEMBERS) {
            now = decide(rec, OCCL_REC_OPEN, OCCL_REC_LOCAL);
            occl_publish32(&s->announced, op + 1);
        } else {
            now = wait_out(m, rec, OCCL_REC_OPEN, UINT32_MAX);
        }
        /* Every 64th op is the lane's alone; of the others each member executes about half, and
         * member 0 all, so that they do not wait for the lane. */
        if (op % 64 != 0 && (m->rank == 0 || stress_noise(&m->noise) % 2))
            execute(s, rec);
        if (now == OCCL_REC_LOCAL)
            now = wait_out(m, rec, OCCL_REC_LOCAL, UINT32_MAX);
        if (now != OCCL_REC_DONE)
            complain(s);
        check_output(s, op);
        occl_record_leave(rec, MEMBERS);
    }
    (void)occl_add32(&s->members_done, 1);
    return NULL;
}

struct lane {
    struct shared *shared;
    uint32_t entered;
};

static void *run_lane(void *arg) {
    struct lane *lane = arg;
    struct shared *s = lane->shared;
    uint64_t noise = 4711;
    while (occl_observe32(&s->members_done) < MEMBERS) {
        uint32_t announced = occl_observe32(&s->announced);
        uint32_t back = stress_noise(&noise) % 3;
        if (announced <= back) {
            (void)sched_yield();
            continue;
        }
        struct occl_place at = place_of(s, announced - 1 - back);
        struct occl_record *rec = occl_record_at(&s->records, at.slot);
        if (occl_record_lane_enter(rec, at.print, MEMBERS)) {
            lane->entered++;
            /* Members finish the op meanwhile, and must not get the record for another one. */
            for (uint32_t i = stress_noise(&noise) % 8; i > 0; i--)
                (void)sched_yield();
            execute(s, rec);
            occl_record_lane_leave(rec, MEMBERS);
        }
        if (stress_noise(&noise) % 4 == 0)
            (void)sched_yield();
    }
    return NULL;
}

/* ---- running them ---- */

static void prepare(struct member *members, struct shared *s, bool with_aborts) {
    struct occl_ticks_scale scale = {0, 0, 1ull << 32};
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r].shared = s;
        members[r].rank = r;
        members[r].with_aborts = with_aborts;
        members[r].noise = 1000 + r;
        occl_wait_policy_choose(MEMBERS, occl_cores_allowed(), OCCL_TICKS_NS, &scale,
                                &members[r].policy);
        /* Sleep early and often: that is what may go wrong. */
        members[r].policy.yields = r;
    }
}

static void run_threads(struct member *members, void *(*run)(void *)) {
    pthread_t threads[MEMBERS];
    for (uint32_t r = 0; r < MEMBERS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run, &members[r]), 0);
    for (uint32_t r = 0; r < MEMBERS; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
}

static void expect_clean(const struct shared *s) {
    assert_int_equal(s->wrong, 0);
    assert_int_equal(s->members_done, MEMBERS);
    for (uint32_t slot = 0; slot < s->records.records; slot++) {
        const struct occl_record *rec = occl_record_at(&s->records, slot);
        assert_int_equal(rec->word, 0);
        assert_int_equal(rec->state, OCCL_REC_OPEN);
        assert_int_equal(rec->sleepers, 0);
        assert_int_equal(rec->left, 0);
        assert_int_equal(rec->lanes_busy, 0);
    }
}

static void direct_ops_sum_up(void **state) {
    (void)state;
    struct shared *s = set_up();
    struct member members[MEMBERS];
    prepare(members, s, false);
    run_threads(members, run_direct);
    expect_clean(s);
    assert_int_equal(s->aborted, 0);
    tear_down(s);
}

static void aborted_ops_end_alike(void **state) {
    (void)state;
    struct shared *s = set_up();
    struct member members[MEMBERS];
    prepare(members, s, true);
    run_threads(members, run_direct);
    expect_clean(s);
    /* Both ends have to occur, and an abort concerns every member. */
    assert_int_equal(s->aborted % MEMBERS, 0);
    assert_in_range(s->aborted, 1, OPS * MEMBERS - 1);
    tear_down(s);
}

static void strands_run_exactly_once(void **state) {
    (void)state;
    struct shared *s = set_up();
    struct member members[MEMBERS];
    struct lane lane = {s, 0};
    pthread_t lane_thread;
    prepare(members, s, false);
    assert_int_equal(pthread_create(&lane_thread, NULL, run_lane, &lane), 0);
    run_threads(members, run_strands);
    assert_int_equal(pthread_join(lane_thread, NULL), 0);
    expect_clean(s);
    assert_true(lane.entered >= OPS / 64);
    tear_down(s);
}

static void processes_see_the_same(void **state) {
    (void)state;
    struct shared *s = set_up();
    struct member members[MEMBERS];
    pid_t children[MEMBERS];
    prepare(members, s, true);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] == 0) {
            (void)run_direct(&members[r]);
            _exit(0);
        }
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        int exit_status;
        assert_int_equal(waitpid(children[r], &exit_status, 0), children[r]);
        assert_true(WIFEXITED(exit_status));
        assert_int_equal(WEXITSTATUS(exit_status), 0);
    }
    expect_clean(s);
    assert_in_range(s->aborted, 1, OPS * MEMBERS - 1);
    tear_down(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_ops_sum_up),
        cmocka_unit_test(aborted_ops_end_alike),
        cmocka_unit_test(strands_run_exactly_once),
        cmocka_unit_test(processes_see_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
