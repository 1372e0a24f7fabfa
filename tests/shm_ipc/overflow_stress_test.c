/* SPDX-License-Identifier: Apache-2.0 */
/* The overflow rule: with far fewer slots than ops, members that submit in different orders, and
 * withdraw some ops, never take an op half into its record and half into the ring. A thread plays
 * the daemon: it matches what comes through the ring and gives the counts back when all members of
 * an op have submitted it. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "shm_ipc/record.h"
#include "tests/shm_ipc/stress.h"

#define MEMBERS 3u
#define SLOTS 4u
#define TAGS 16u
#define INSTANCES (10000u / STRESS_DIVISOR)
#define OPS (TAGS * INSTANCES)
#define QUEUE (MEMBERS * TAGS * 4u)

enum path { PATH_NONE = 0, PATH_RECORD = 1, PATH_RING = 2 };

struct request {
    uint32_t op;
    uint32_t rank;
    bool cancel;
};

struct ring_op {
    uint32_t submitted; /* members */
};

struct shared {
    char *slots;
    uint8_t path[OPS][MEMBERS];   /* written by the member, read after the join */
    uint32_t ended[OPS][MEMBERS]; /* ring ops: set by the daemon */
    struct ring_op ring_ops[OPS]; /* the daemon's */
    pthread_mutex_t lock;         /* protects queue, head, tail */
    struct request queue[QUEUE];
    uint32_t head, tail;
    uint32_t members_done;
    uint32_t wrong;
};

struct member {
    struct shared *shared;
    uint32_t rank;
};

/* An op outstanding on one tag of one member. */
struct pending {
    struct occl_record *rec; /* NULL: through the ring */
    uint32_t op;
    bool active;
    bool canceled;
};

static struct occl_record *record_of(struct shared *s, uint32_t slot) {
    return (struct occl_record *)(void *)(s->slots + slot * occl_record_stride(MEMBERS));
}

static struct occl_op_key key_of(uint32_t op) {
    struct occl_op_key key = {OCCL_PEERS_ALL, op % TAGS, op / TAGS};
    return key;
}

static void send_to_daemon(struct shared *s, uint32_t op, uint32_t rank, bool cancel) {
    uint64_t since = stress_now_ns();
    for (bool sent = false; !sent; stress_watch(since, "queue")) {
        (void)pthread_mutex_lock(&s->lock);
        if (s->tail - s->head < QUEUE) {
            struct request r = {op, rank, cancel};
            s->queue[s->tail++ % QUEUE] = r;
            sent = true;
        }
        (void)pthread_mutex_unlock(&s->lock);
        if (!sent)
            (void)sched_yield();
    }
}

static void submit(struct shared *s, uint32_t rank, uint32_t op, struct pending *p) {
    struct occl_place at = occl_place_of(key_of(op), SLOTS);
    struct occl_record *rec = record_of(s, at.slot);
    struct occl_signature signature = {OCCL_OP_BARRIER, 0, 0, 0, 0, 0, 0, 0};
    uint32_t now;
    p->op = op;
    p->active = true;
    p->canceled = false;
    p->rec = NULL;
    switch (occl_record_enter(rec, at.print, true)) {
    case OCCL_ENTER_CLAIMED:
    case OCCL_ENTER_JOINED:
        s->path[op][rank] = PATH_RECORD;
        p->rec = rec;
        occl_line_fill(occl_line_at(rec, rank), key_of(op), &signature);
        if (occl_record_arrive(rec, occl_line_at(rec, rank), OCCL_LINE_ASYNC) == MEMBERS)
            (void)occl_record_decide(rec, OCCL_REC_OPEN, OCCL_REC_DIRECT, &now);
        break;
    case OCCL_ENTER_RING:
        s->path[op][rank] = PATH_RING;
        send_to_daemon(s, op, rank, false);
        break;
    case OCCL_ENTER_FULL:
        (void)occl_add32(&s->wrong, 1);
        break;
    }
}

/* Withdraws the op, or finds that it has been decided. */
static void withdraw(struct shared *s, uint32_t rank, struct pending *p) {
    uint32_t now, aborted = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_CANCELED, rank);
    if (p->rec != NULL) {
        (void)occl_record_decide(p->rec, OCCL_REC_OPEN, aborted, &now);
    } else if (!p->canceled) {
        p->canceled = true;
        send_to_daemon(s, p->op, rank, true);
    }
}

static bool finished(struct shared *s, uint32_t rank, struct pending *p) {
    if (p->rec == NULL)
        return occl_observe32(&s->ended[p->op][rank]) != 0;
    if (occl_rec_kind(occl_observe32(&p->rec->state)) == OCCL_REC_OPEN)
        return false;
    occl_record_leave(p->rec, MEMBERS);
    return true;
}

static void *run_member(void *arg) {
    struct member *m = arg;
    struct shared *s = m->shared;
    struct pending pending[TAGS];
    uint32_t next[TAGS] = {0}, left = OPS;
    uint64_t noise = 99 + m->rank * 77, since = stress_now_ns();
    memset(pending, 0, sizeof pending);
    while (left > 0) {
        uint32_t tag = stress_noise(&noise) % TAGS;
        struct pending *p = &pending[tag];
        if (p->active && finished(s, m->rank, p)) {
            p->active = false;
            left--;
            since = stress_now_ns();
        } else if (p->active && stress_noise(&noise) % 64 == 0) {
            withdraw(s, m->rank, p);
        } else if (!p->active && next[tag] < INSTANCES) {
            submit(s, m->rank, next[tag]++ * TAGS + tag, p);
        }
        if (stress_noise(&noise) % 8 == 0)
            (void)sched_yield();
        stress_watch(since, "member");
    }
    (void)occl_add32(&s->members_done, 1);
    return NULL;
}

static void daemon_handle(struct shared *s, const struct request *r) {
    struct ring_op *op = &s->ring_ops[r->op];
    struct occl_place at = occl_place_of(key_of(r->op), SLOTS);
    if (r->cancel) {
        /* The member is told; the op keeps its counts until all have come. */
        occl_publish32(&s->ended[r->op][r->rank], 1);
        return;
    }
    if (++op->submitted < MEMBERS)
        return;
    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        occl_publish32(&s->ended[r->op][rank], 1);
        occl_record_overflow_drop(record_of(s, at.slot));
    }
}

static void *run_daemon(void *arg) {
    struct shared *s = arg;
    while (occl_observe32(&s->members_done) < MEMBERS) {
        struct request r;
        bool got = false;
        (void)pthread_mutex_lock(&s->lock);
        if (s->head != s->tail) {
            r = s->queue[s->head++ % QUEUE];
            got = true;
        }
        (void)pthread_mutex_unlock(&s->lock);
        if (got)
            daemon_handle(s, &r);
        else
            (void)sched_yield();
    }
    return NULL;
}

static void ops_are_whole_in_one_place(void **state) {
    (void)state;
    struct shared *s = stress_shared(sizeof *s);
    struct member members[MEMBERS];
    pthread_t threads[MEMBERS + 1];
    uint32_t in_record = 0, in_ring = 0;
    s->slots = stress_shared(SLOTS * occl_record_stride(MEMBERS));
    assert_int_equal(pthread_mutex_init(&s->lock, NULL), 0);
    assert_int_equal(pthread_create(&threads[MEMBERS], NULL, run_daemon, s), 0);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r].shared = s;
        members[r].rank = r;
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    for (uint32_t r = 0; r <= MEMBERS; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    assert_int_equal(s->wrong, 0);
    for (uint32_t op = 0; op < OPS; op++) {
        for (uint32_t r = 1; r < MEMBERS; r++)
            assert_int_equal(s->path[op][r], s->path[op][0]);
        in_record += s->path[op][0] == PATH_RECORD;
        in_ring += s->path[op][0] == PATH_RING;
    }
    /* Both paths are taken, and every slot is free again. */
    assert_int_equal(in_record + in_ring, OPS);
    print_message("in records %u, in the ring %u\n", in_record, in_ring);
    assert_true(in_record > 0);
    assert_true(in_ring > 0);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(record_of(s, slot)->word, 0);
    assert_int_equal(pthread_mutex_destroy(&s->lock), 0);
    (void)munmap(s->slots, SLOTS * occl_record_stride(MEMBERS));
    (void)munmap(s, sizeof *s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_whole_in_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
