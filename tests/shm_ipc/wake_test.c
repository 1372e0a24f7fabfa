/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking. The stress tests sleep without limit, so that a lost wake-up hangs instead
 * of being healed by a time-out; an alarm then ends the process. Also under the thread sanitizer.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/ring.h"
#include "shm_ipc/session.h"
#include "shm_ipc/wake.h"
#include "tests/shm_ipc/stress.h"

#define ROUNDS (40000u / STRESS_DIVISOR)
#define NO_LIMIT UINT64_MAX

/* Some work between two looks, so that the windows of the races move. */
static void dawdle(uint64_t *noise) {
    uint32_t n = stress_noise(noise) % 256;
    if (n == 0)
        (void)sched_yield();
    for (uint32_t i = 0; i < n; i++)
        occl_relax();
}

/* ---- ring and doorbell ---- */

struct link {
    struct occl_session_page *page;
    struct occl_session_shape shape;
    struct occl_parker lane;
    uint64_t bells;
    uint64_t lane_sleeps;
    uint32_t wrong;
};

/* A lane: serve until the ring is empty, arm the doorbell, look once more, park without limit. */
static void *run_lane(void *arg) {
    struct link *l = arg;
    struct occl_session_page *page = l->page;
    struct occl_ring_place sq_at = occl_sq_place(page, l->shape.sq_offset, l->shape.sq_entries);
    struct occl_ring_place cq_at = occl_cq_place(page, l->shape.cq_offset, l->shape.cq_entries);
    struct occl_ring_consumer sq;
    struct occl_ring_producer cq;
    uint64_t noise = 1;
    occl_ring_consumer_init(&sq, &sq_at);
    occl_ring_producer_init(&cq, &cq_at);
    for (uint32_t served = 0; served < ROUNDS;) {
        struct occl_sqe entry;
        struct occl_cqe answer;
        uint32_t freed = 0;
        if (occl_sq_pop(&sq, &entry) == OCCL_OK) {
            memset(&answer, 0, sizeof answer);
            answer.user_data = entry.user_data;
            occl_ring_release(&sq);
            l->wrong += occl_ring_producer_refresh(&cq, &freed) != OCCL_OK;
            l->wrong += occl_cq_push(&cq, &answer) != OCCL_OK;
            occl_ring_publish(&cq);
            (void)occl_cq_wake(&page->cq_bell, &page->cq_sleepers);
            served++;
            dawdle(&noise);
            continue;
        }
        uint32_t token = occl_parker_prepare(&l->lane);
        occl_doorbell_arm(&page->daemon_sleeping);
        dawdle(&noise);
        if (occl_ring_consumer_refresh(&sq) == OCCL_WOULD_BLOCK) {
            occl_parker_park(&l->lane, token, NO_LIMIT);
            l->lane_sleeps++;
        }
        occl_doorbell_disarm(&page->daemon_sleeping);
    }
    return NULL;
}

/* As a client waits: the bell is read before the look at the ring, and slept on as it was. */
static void wait_for_completion(struct link *l, struct occl_ring_consumer *cq, uint64_t *noise) {
    static const struct occl_wait_policy policy = {OCCL_TICKS_NS, 0, 0, 0, NO_LIMIT};
    struct occl_session_page *page = l->page;
    struct occl_waiter waiter;
    occl_waiter_start(&waiter);
    for (;;) {
        struct occl_word_seen bell = {&page->cq_bell, occl_look32(&page->cq_bell)};
        struct occl_wait_place place = occl_wait_on_word(&bell, &page->cq_sleepers);
        if (occl_ring_consumer_refresh(cq) == OCCL_OK)
            return;
        dawdle(noise);
        (void)occl_waiter_step(&waiter, &policy, &place, NO_LIMIT);
    }
}

static void doorbell_is_never_lost(void **state) {
    (void)state;
    struct link l;
    struct occl_session_facts facts = {1, 1, OCCL_ABI_VERSION, OCCL_TICKS_NS};
    struct occl_ring_producer sq;
    struct occl_ring_consumer cq;
    pthread_t lane;
    uint64_t noise = 2;
    memset(&l, 0, sizeof l);
    occl_parker_init(&l.lane);
    occl_session_shape_choose(8, &l.shape);
    l.page = stress_shared(l.shape.page_bytes);
    occl_session_format(l.page, &l.shape, &facts);
    struct occl_ring_place sq_at = occl_sq_place(l.page, l.shape.sq_offset, l.shape.sq_entries);
    struct occl_ring_place cq_at = occl_cq_place(l.page, l.shape.cq_offset, l.shape.cq_entries);
    occl_ring_producer_init(&sq, &sq_at);
    occl_ring_consumer_init(&cq, &cq_at);
    assert_int_equal(pthread_create(&lane, NULL, run_lane, &l), 0);
    (void)alarm(120);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        struct occl_sqe entry;
        struct occl_cqe answer;
        uint32_t freed = 0;
        memset(&entry, 0, sizeof entry);
        memset(&answer, 0, sizeof answer);
        entry.user_data = i;
        assert_int_equal(occl_ring_producer_refresh(&sq, &freed), OCCL_OK);
        assert_int_equal(occl_sq_push(&sq, &entry), OCCL_OK);
        occl_ring_publish(&sq);
        if (occl_doorbell_needed(&l.page->daemon_sleeping)) {
            (void)occl_parker_wake(&l.lane); /* what the loop does with the message */
            l.bells++;
        }
        wait_for_completion(&l, &cq, &noise);
        assert_int_equal(occl_cq_pop(&cq, &answer), OCCL_OK);
        assert_int_equal(answer.user_data, i);
        occl_ring_release(&cq);
        dawdle(&noise);
    }
    assert_int_equal(pthread_join(lane, NULL), 0);
    (void)alarm(0);
    assert_int_equal(l.wrong, 0);
    assert_true(l.lane_sleeps > 0);
    assert_true(l.bells > 0);
    assert_int_equal(l.page->cq_sleepers, 0);
    (void)munmap(l.page, l.shape.page_bytes);
}

/* ---- a state word and its sleepers ---- */

struct pair {
    uint32_t word;
    uint32_t sleepers;
    uint64_t slept;
    uint64_t woken;
    uint64_t payload; /* plain: the word protects it */
    uint32_t wrong;
};

/* Both sides take turns: the word's parity says whose. */
static void take_turns(struct pair *p, uint32_t side, uint64_t *slept, uint64_t *woken) {
    uint64_t noise = 7 + side;
    for (uint32_t turn = side; turn < 2 * ROUNDS; turn += 2) {
        uint32_t now;
        while ((now = occl_observe32(&p->word)) != turn) {
            dawdle(&noise);
            *slept += occl_word_sleep(&p->word, now, &p->sleepers, NO_LIMIT);
        }
        if (p->payload != turn)
            (void)occl_add32(&p->wrong, 1);
        p->payload = turn + 1;
        (void)occl_claim32(&p->word, &now, turn + 1);
        *woken += occl_word_wake(&p->word, &p->sleepers, UINT32_MAX);
    }
}

static void *run_other_side(void *arg) {
    struct pair *p = arg;
    uint64_t slept = 0, woken = 0;
    take_turns(p, 1, &slept, &woken);
    occl_count64(&p->slept, slept);
    occl_count64(&p->woken, woken);
    return NULL;
}

static void word_wake_is_never_lost(void **state) {
    (void)state;
    struct pair *p = stress_shared(sizeof *p);
    pthread_t other;
    uint64_t slept = 0, woken = 0;
    (void)alarm(120);
    assert_int_equal(pthread_create(&other, NULL, run_other_side, p), 0);
    take_turns(p, 0, &slept, &woken);
    assert_int_equal(pthread_join(other, NULL), 0);
    (void)alarm(0);
    assert_int_equal(p->wrong, 0);
    assert_int_equal(p->sleepers, 0);
    assert_int_equal(p->word, 2 * ROUNDS);
    assert_true(slept + p->slept > 0);
    assert_true(woken + p->woken > 0);
    (void)munmap(p, sizeof *p);
}

/* ---- an event: what changes is not what is slept on ---- */

/* Two members of a record: each raises its own flag and waits for the other's; both sleep on one
 * event. */
struct meeting {
    uint64_t flags[2];
    uint32_t event;
    uint32_t sleepers;
    uint64_t payload[2];
    uint64_t slept;
    uint64_t woken;
    uint32_t wrong;
};
struct party {
    struct meeting *meeting;
    uint32_t side;
    uint64_t round;
};

static bool peer_came(const void *what) {
    const struct party *p = what;
    return occl_look64(&p->meeting->flags[!p->side]) >= p->round;
}

static void *run_meeting(void *arg) {
    struct party *p = arg;
    struct meeting *m = p->meeting;
    const struct occl_wait_place place = {peer_came, p, &m->event, &m->sleepers};
    uint64_t noise = 21 + p->side, slept = 0, woken = 0;
    for (p->round = 1; p->round <= ROUNDS; p->round++) {
        uint64_t before = p->round - 1;
        if (p->round % 2 == p->side)
            dawdle(&noise);
        occl_note64(&m->payload[p->side], p->round * 3);
        if (!occl_claim64(&m->flags[p->side], &before, p->round))
            (void)occl_add32(&m->wrong, 1);
        woken += occl_event_wake(&m->event, &m->sleepers, UINT32_MAX);
        while (!peer_came(p)) {
            dawdle(&noise);
            slept += occl_event_sleep(&place, NO_LIMIT);
        }
        if (occl_peek64(&m->payload[!p->side]) < p->round * 3)
            (void)occl_add32(&m->wrong, 1);
    }
    occl_count64(&m->slept, slept);
    occl_count64(&m->woken, woken);
    return NULL;
}

static void event_wake_is_never_lost(void **state) {
    (void)state;
    struct meeting *m = stress_shared(sizeof *m);
    struct party parties[2] = {{m, 0, 0}, {m, 1, 0}};
    pthread_t other;
    (void)alarm(120);
    assert_int_equal(pthread_create(&other, NULL, run_meeting, &parties[1]), 0);
    (void)run_meeting(&parties[0]);
    assert_int_equal(pthread_join(other, NULL), 0);
    (void)alarm(0);
    assert_int_equal(m->wrong, 0);
    assert_int_equal(m->sleepers, 0);
    assert_true(m->slept > 0);
    assert_true(m->woken > 0);
    /* The event changes only for those who sleep. */
    assert_int_equal(m->event, m->woken);
    (void)munmap(m, sizeof *m);
}

static void event_costs_nothing_without_sleepers(void **state) {
    (void)state;
    struct meeting m;
    struct party p = {&m, 0, 1};
    const struct occl_wait_place place = {peer_came, &p, &m.event, &m.sleepers};
    memset(&m, 0, sizeof m);
    m.event = 7;
    assert_false(occl_event_wake(&m.event, &m.sleepers, 1));
    assert_int_equal(m.event, 7);
    m.sleepers = 1;
    assert_true(occl_event_wake(&m.event, &m.sleepers, 1));
    assert_int_equal(m.event, 8);
    m.sleepers = 0;
    /* It came before the sleep: no call, although nobody touched the event. */
    m.flags[1] = 1;
    assert_false(occl_event_sleep(&place, NO_LIMIT));
    assert_int_equal(m.sleepers, 0);
    m.flags[1] = 0;
    uint64_t before = stress_now_ns();
    assert_true(occl_event_sleep(&place, 3000000));
    assert_true(stress_now_ns() - before >= 2900000);
    assert_int_equal(m.sleepers, 0);
    assert_int_equal(m.event, 8);
}

/* What changes between the look and the sleep: here in the look itself, so at the worst moment. */
struct trap {
    uint32_t event;
    uint32_t sleepers;
    uint32_t announced; /* how many slept when `changed` was asked */
    bool woken;
};
static bool wake_at_the_look(const void *what) {
    /* The place's `what` is this test's own struct, which is not const. */
    struct trap *t = *(struct trap *const *)what;
    t->announced = t->sleepers;
    t->woken = occl_event_wake(&t->event, &t->sleepers, 1);
    return false;
}

static void wake_between_look_and_sleep_is_seen(void **state) {
    (void)state;
    struct trap t = {0, 0, 0, false};
    struct trap *pointer = &t;
    const struct occl_wait_place place = {wake_at_the_look, &pointer, &t.event, &t.sleepers};
    (void)alarm(60);
    (void)occl_event_sleep(&place, NO_LIMIT);
    (void)alarm(0);
    assert_int_equal(t.announced, 1);
    assert_true(t.woken);
    assert_int_equal(t.event, 1);
    assert_int_equal(t.sleepers, 0);
}

/* ---- parkers ---- */

struct parked {
    struct occl_parker parker;
    uint32_t items;
    uint64_t parks;
};

static void *run_parked(void *arg) {
    struct parked *w = arg;
    for (uint32_t taken = 0; taken < ROUNDS;) {
        uint32_t token = occl_parker_prepare(&w->parker);
        if (occl_observe32(&w->items) > taken) {
            taken++;
            continue;
        }
        occl_parker_park(&w->parker, token, NO_LIMIT);
        w->parks++;
    }
    return NULL;
}

static void parker_wake_is_never_lost(void **state) {
    (void)state;
    struct parked w;
    pthread_t thread;
    uint64_t noise = 3;
    memset(&w, 0, sizeof w);
    (void)alarm(120);
    assert_int_equal(pthread_create(&thread, NULL, run_parked, &w), 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        occl_publish32(&w.items, i + 1);
        (void)occl_parker_wake(&w.parker);
        dawdle(&noise);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)alarm(0);
    assert_true(w.parks > 0);
}

static void parker_costs_no_call_while_awake(void **state) {
    (void)state;
    struct occl_parker parker;
    occl_parker_init(&parker);
    uint32_t token = occl_parker_prepare(&parker);
    for (int i = 0; i < 100; i++)
        assert_false(occl_parker_wake(&parker));
    /* A wake came after prepare: park returns at once although there is no limit. */
    (void)alarm(60);
    occl_parker_park(&parker, token, NO_LIMIT);
    (void)alarm(0);
    token = occl_parker_prepare(&parker);
    uint64_t before = stress_now_ns();
    occl_parker_park(&parker, token, 2000000);
    assert_true(stress_now_ns() - before >= 1900000);
    assert_false(occl_parker_wake(&parker)); /* the announcement was taken back */
}

/* ---- how a client waits ---- */

static const struct occl_ticks_scale nanoseconds = {0, 0, 1ull << 32};

static void policy_follows_the_cores(void **state) {
    (void)state;
    struct occl_wait_policy policy;
    occl_wait_policy_choose(4, 4, OCCL_TICKS_NS, &nanoseconds, &policy);
    assert_true(policy.spin_steps > 0);
    assert_in_range(policy.spin_steps * policy.spin_step_ticks, 10000, 100000);
    assert_int_equal(policy.yields, OCCL_YIELDS_BEFORE_SLEEP);
    assert_int_equal(policy.sleep_ns_max, OCCL_SLEEP_MAX_NS);
    occl_wait_policy_choose(5, 4, OCCL_TICKS_NS, &nanoseconds, &policy);
    assert_int_equal(policy.spin_steps, 0);
}

static void waiter_goes_through_its_phases(void **state) {
    (void)state;
    struct occl_wait_policy policy = {OCCL_TICKS_NS, 3, 1000, 2, 1000000};
    struct occl_waiter waiter;
    uint32_t word = 5, sleepers = 0;
    const struct occl_word_seen seen = {&word, 5};
    const struct occl_wait_place place = occl_wait_on_word(&seen, &sleepers);
    static const enum occl_wait_step expected[] = {
        OCCL_WAIT_SPUN,    OCCL_WAIT_SPUN,  OCCL_WAIT_SPUN, OCCL_WAIT_YIELDED,
        OCCL_WAIT_YIELDED, OCCL_WAIT_SLEPT, OCCL_WAIT_SLEPT};
    occl_waiter_start(&waiter);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(occl_waiter_step(&waiter, &policy, &place, UINT64_MAX), expected[i]);
        /* The first spin costs no system call: a rank that is not late is met there. */
        if (i == 0)
            assert_int_equal(waiter.yield_calls + waiter.sleep_calls, 0);
    }
    assert_int_equal(waiter.yield_calls, 2 + 2);
    assert_int_equal(waiter.sleep_calls, 2);
    assert_int_equal(sleepers, 0);
    word = 6;
    uint64_t calls = waiter.yield_calls + waiter.sleep_calls;
    assert_int_equal(occl_waiter_step(&waiter, &policy, &place, UINT64_MAX), OCCL_WAIT_CHANGED);
    assert_int_equal(waiter.yield_calls + waiter.sleep_calls, calls);
}

static void waiter_sleeps_no_longer_than_allowed(void **state) {
    (void)state;
    struct occl_wait_policy policy = {OCCL_TICKS_NS, 0, 0, 0, 1000000000000ull};
    struct occl_waiter waiter;
    uint32_t word = 5, sleepers = 0;
    const struct occl_word_seen seen = {&word, 5};
    const struct occl_wait_place place = occl_wait_on_word(&seen, &sleepers);
    occl_waiter_start(&waiter);
    uint64_t before = stress_now_ns();
    assert_int_equal(occl_waiter_step(&waiter, &policy, &place, 3000000), OCCL_WAIT_SLEPT);
    assert_true(stress_now_ns() - before >= 2900000);
    for (int i = 0; i < 5; i++)
        assert_int_equal(occl_waiter_step(&waiter, &policy, &place, 0), OCCL_WAIT_YIELDED);
    assert_int_equal(waiter.sleep_calls, 1);
}

static void *change_word_soon(void *arg) {
    struct pair *p = arg;
    uint64_t start = stress_now_ns();
    while (occl_look32(&p->sleepers) == 0 && stress_now_ns() - start < STRESS_PATIENCE_NS)
        (void)sched_yield();
    uint32_t expected = 0;
    (void)occl_claim32(&p->word, &expected, 1);
    (void)occl_word_wake(&p->word, &p->sleepers, UINT32_MAX);
    return NULL;
}

static void waiter_is_woken(void **state) {
    (void)state;
    struct occl_wait_policy policy = {OCCL_TICKS_NS, 0, 0, 1, NO_LIMIT};
    struct occl_waiter waiter;
    struct pair p;
    pthread_t thread;
    enum occl_wait_step step;
    const struct occl_word_seen seen = {&p.word, 0};
    const struct occl_wait_place place = occl_wait_on_word(&seen, &p.sleepers);
    memset(&p, 0, sizeof p);
    (void)alarm(120);
    assert_int_equal(pthread_create(&thread, NULL, change_word_soon, &p), 0);
    occl_waiter_start(&waiter);
    do {
        step = occl_waiter_step(&waiter, &policy, &place, NO_LIMIT);
    } while (step != OCCL_WAIT_CHANGED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)alarm(0);
    assert_true(waiter.sleep_calls > 0);
}

/* Asleep on several places, woken by the last of them. */
static void *sleep_on_three(void *arg) {
    struct pair *pairs = arg; /* three; a fourth: set when awake */
    struct occl_word_seen seen[3];
    struct occl_wait_place places[3];
    for (int i = 0; i < 3; i++) {
        seen[i] = (struct occl_word_seen){&pairs[i].word, 0};
        places[i] = occl_wait_on_word(&seen[i], &pairs[i].sleepers);
    }
    while (occl_look32(&pairs[2].word) == 0) {
        pairs[3].word++;
        (void)occl_events_sleep(places, 3, NO_LIMIT);
    }
    return NULL;
}

static void several_places_are_slept_on_at_once(void **state) {
    (void)state;
    struct pair pairs[4];
    pthread_t thread;
    uint32_t expected = 0;
    (void)alarm(120);
    memset(pairs, 0, sizeof pairs);
    assert_int_equal(pthread_create(&thread, NULL, sleep_on_three, pairs), 0);
    while (occl_look32(&pairs[2].sleepers) == 0)
        (void)sched_yield();
    assert_int_equal(occl_look32(&pairs[0].sleepers), 1);
    assert_true(occl_claim32(&pairs[2].word, &expected, 1));
    (void)occl_word_wake(&pairs[2].word, &pairs[2].sleepers, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)alarm(0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pairs[i].sleepers, 0);
    /* What has changed before is not slept on, and time passes. */
    struct occl_word_seen seen = {&pairs[2].word, 0}, same = {&pairs[1].word, 0};
    struct occl_wait_place places[2] = {occl_wait_on_word(&same, &pairs[1].sleepers),
                                        occl_wait_on_word(&seen, &pairs[2].sleepers)};
    assert_false(occl_events_sleep(places, 2, NO_LIMIT));
    uint64_t start = stress_now_ns();
    assert_true(occl_events_sleep(places, 1, 20000000));
    assert_true(stress_now_ns() - start >= 10000000);
}

/* A filter of this thread's system calls, as a sandbox has one: the kernel knows no such call. */
static void *sleep_in_a_sandbox(void *arg) {
    uint32_t *slept = arg, word = 0, sleepers = 0;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 449, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    struct occl_word_seen seen = {&word, 0};
    struct occl_wait_place place = occl_wait_on_word(&seen, &sleepers);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program))
        return NULL;
    uint64_t start = stress_now_ns();
    for (int i = 0; i < 20; i++)
        *slept += occl_events_sleep(&place, 1, NO_LIMIT);
    return stress_now_ns() - start >= 20 * OCCL_POLL_NS / 2 ? arg : NULL;
}

static void without_the_call_it_looks_often(void **state) {
    (void)state;
    pthread_t thread;
    uint32_t slept = 0;
    void *fine = NULL;
    (void)alarm(60);
    assert_int_equal(pthread_create(&thread, NULL, sleep_in_a_sandbox, &slept), 0);
    assert_int_equal(pthread_join(thread, &fine), 0);
    (void)alarm(0);
    if (slept == 0) {
        print_message("SKIP without_the_call_it_looks_often: no filter of system calls\n");
        skip();
    }
    assert_int_equal(slept, 20);
    assert_non_null(fine);
}

static void allowed_cores_follow_the_affinity(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(occl_cores_allowed(), CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(occl_cores_allowed(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doorbell_is_never_lost),
        cmocka_unit_test(word_wake_is_never_lost),
        cmocka_unit_test(event_wake_is_never_lost),
        cmocka_unit_test(event_costs_nothing_without_sleepers),
        cmocka_unit_test(wake_between_look_and_sleep_is_seen),
        cmocka_unit_test(parker_wake_is_never_lost),
        cmocka_unit_test(parker_costs_no_call_while_awake),
        cmocka_unit_test(policy_follows_the_cores),
        cmocka_unit_test(waiter_goes_through_its_phases),
        cmocka_unit_test(waiter_sleeps_no_longer_than_allowed),
        cmocka_unit_test(waiter_is_woken),
        cmocka_unit_test(several_places_are_slept_on_at_once),
        cmocka_unit_test(without_the_call_it_looks_often),
        cmocka_unit_test(allowed_cores_follow_the_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
