/* SPDX-License-Identifier: Apache-2.0 */
/* A ring between two threads (also under the thread sanitizer) and between two processes: order,
 * checksums of whole entries, back-pressure in both directions, credits of a full session. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/ring.h"
#include "shm_ipc/session.h"
#include "tests/shm_ipc/stress.h"

#define OPS (400000u / STRESS_DIVISOR)

struct session {
    struct occl_session_page *page;
    /* Plain memory, one word per entry, that only the indices protect: the thread sanitizer sees a
     * missing release or acquire here, on entries (atomic words) it could not. */
    uint64_t *payload;
    struct occl_session_shape shape;
};

static void set_up(struct session *s) {
    struct occl_session_facts facts = {7 << 16 | 1, 1, OCCL_ABI_VERSION, OCCL_TICKS_NS};
    occl_session_shape_choose(16, &s->shape);
    /* A small completion ring, so that credits run out all the time. */
    s->shape.cq_entries = 32;
    s->page = stress_shared(s->shape.page_bytes);
    s->payload = stress_shared(OCCL_PAGE_BYTES);
    occl_session_format(s->page, &s->shape, &facts);
}

static void tear_down(struct session *s) {
    if (munmap(s->page, s->shape.page_bytes) != 0 || munmap(s->payload, OCCL_PAGE_BYTES) != 0)
        abort();
}

/* Every byte of an entry is a function of its number. */
static void fill(struct occl_sqe *entry, uint64_t number) {
    uint64_t noise = number;
    uint32_t words[sizeof *entry / 4];
    for (size_t i = 0; i < sizeof words / 4; i++)
        words[i] = stress_noise(&noise);
    memcpy(entry, words, sizeof *entry);
    entry->user_data = number;
}

static void give_way(uint64_t since_ns, const char *what) {
    (void)sched_yield();
    stress_watch(since_ns, what);
}

/* Pops submissions, checks them, answers each one; returns how many were wrong. */
static uint64_t serve(const struct session *s) {
    struct occl_ring_place sq_at = occl_sq_place(s->page, s->shape.sq_offset, s->shape.sq_entries);
    struct occl_ring_place cq_at = occl_cq_place(s->page, s->shape.cq_offset, s->shape.cq_entries);
    struct occl_ring_consumer sq;
    struct occl_ring_producer cq;
    struct occl_credits credits;
    uint64_t wrong = 0, last_ns = stress_now_ns();
    occl_ring_consumer_init(&sq, &sq_at);
    occl_ring_producer_init(&cq, &cq_at);
    occl_credits_init(&credits, s->shape.cq_entries);
    for (uint64_t number = 0; number < OPS;) {
        struct occl_sqe entry, expected;
        uint32_t freed = 0;
        wrong += occl_ring_producer_refresh(&cq, &freed) != OCCL_OK;
        occl_credits_put(&credits, freed);
        if (!occl_credits_take(&credits)) {
            give_way(last_ns, "server without credit");
            continue;
        }
        int status = occl_sq_pop(&sq, &entry);
        if (status != OCCL_OK) {
            wrong += status != OCCL_WOULD_BLOCK;
            occl_credits_put(&credits, 1);
            occl_ring_release(&sq);
            give_way(last_ns, "server");
            continue;
        }
        fill(&expected, number);
        wrong += memcmp(&entry, &expected, sizeof entry) != 0;
        wrong += s->payload[number % s->shape.sq_entries] != ~number;
        struct occl_cqe answer = {number, (int32_t)(number % 7), (uint32_t)(number >> 3), 1, 2, 0};
        wrong += occl_cq_push(&cq, &answer) != OCCL_OK; /* a credit means room */
        occl_ring_publish(&cq);
        if (number % 5 == 0)
            occl_ring_release(&sq);
        number++;
        last_ns = stress_now_ns();
    }
    occl_ring_release(&sq);
    return wrong;
}

struct client {
    struct occl_ring_producer sq;
    struct occl_ring_consumer cq;
    struct occl_credits credits;
    uint64_t reaped;
    uint64_t wrong;
};

static void reap(struct client *c) {
    struct occl_cqe answer;
    uint32_t count = 0;
    int status;
    while ((status = occl_cq_pop(&c->cq, &answer)) == OCCL_OK) {
        c->wrong += answer.user_data != c->reaped || answer.status != (int32_t)(c->reaped % 7) ||
                    answer.about_rank != (uint32_t)(c->reaped >> 3);
        c->reaped++;
        count++;
    }
    c->wrong += status != OCCL_WOULD_BLOCK;
    occl_ring_release(&c->cq); /* before the credits: see ring.h */
    occl_credits_put(&c->credits, count);
}

static uint64_t use(const struct session *s) {
    struct occl_ring_place sq_at = occl_sq_place(s->page, s->shape.sq_offset, s->shape.sq_entries);
    struct occl_ring_place cq_at = occl_cq_place(s->page, s->shape.cq_offset, s->shape.cq_entries);
    struct client c;
    uint64_t last_ns = stress_now_ns(), seen = 0;
    memset(&c, 0, sizeof c);
    occl_ring_producer_init(&c.sq, &sq_at);
    occl_ring_consumer_init(&c.cq, &cq_at);
    occl_credits_init(&c.credits, s->shape.cq_entries);
    for (uint64_t number = 0; c.reaped < OPS;) {
        uint32_t freed = 0;
        struct occl_sqe entry;
        c.wrong += occl_ring_producer_refresh(&c.sq, &freed) != OCCL_OK;
        if (number < OPS && occl_ring_room(&c.sq) > 0 && occl_credits_take(&c.credits)) {
            fill(&entry, number);
            s->payload[number % s->shape.sq_entries] = ~number;
            c.wrong += occl_sq_push(&c.sq, &entry) != OCCL_OK;
            if (number % 4 == 0 || number + 1 == OPS || c.credits.taken == c.credits.limit)
                occl_ring_publish(&c.sq);
            number++;
        } else {
            occl_ring_publish(&c.sq);
            reap(&c);
            give_way(last_ns, "client");
        }
        if (c.reaped != seen) {
            seen = c.reaped;
            last_ns = stress_now_ns();
        }
    }
    return c.wrong;
}

static void *serve_thread(void *arg) {
    return (void *)(uintptr_t)serve(arg);
}

static void two_threads_exchange_ops(void **state) {
    (void)state;
    struct session s;
    pthread_t server;
    void *server_wrong;
    set_up(&s);
    assert_int_equal(pthread_create(&server, NULL, serve_thread, &s), 0);
    assert_int_equal(use(&s), 0);
    assert_int_equal(pthread_join(server, &server_wrong), 0);
    assert_null(server_wrong);
    tear_down(&s);
}

static void two_processes_exchange_ops(void **state) {
    (void)state;
    struct session s;
    int exit_status;
    set_up(&s);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(serve(&s) == 0 ? 0 : 1);
    assert_int_equal(use(&s), 0);
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_true(WIFEXITED(exit_status));
    assert_int_equal(WEXITSTATUS(exit_status), 0);
    tear_down(&s);
}

/* ---- hostile: indices change while we read ---- */

struct scribbler {
    struct session *session;
    uint32_t stop;
};

static void *scribble(void *arg) {
    struct scribbler *h = arg;
    uint64_t noise = 12345;
    struct occl_session_page *page = h->session->page;
    uint64_t *entries = (uint64_t *)(void *)((char *)page + h->session->shape.sq_offset);
    while (!occl_observe32(&h->stop)) {
        for (int i = 0; i < 64; i++)
            occl_note64(entries + stress_noise(&noise) % 256, stress_noise(&noise));
        occl_publish32(&page->sq_tail.value, stress_noise(&noise) % 40);
        occl_publish32(&page->cq_head.value, stress_noise(&noise) % 40);
        (void)sched_yield();
    }
    return NULL;
}

static void scribbling_client_harms_only_itself(void **state) {
    (void)state;
    struct session s;
    pthread_t thread;
    set_up(&s);
    struct scribbler h = {&s, 0};
    assert_int_equal(pthread_create(&thread, NULL, scribble, &h), 0);
    struct occl_ring_place sq_at = occl_sq_place(s.page, s.shape.sq_offset, s.shape.sq_entries);
    struct occl_ring_place cq_at = occl_cq_place(s.page, s.shape.cq_offset, s.shape.cq_entries);
    uint32_t faults = 0;
    /* On a loaded machine the scribbler may not run between two looks for a long time: until it has
     * been caught at least once, the rounds go on. */
    const uint32_t rounds = 20000 / STRESS_DIVISOR;
    for (uint32_t round = 0; round < rounds || (faults == 0 && round < 500 * rounds); round++) {
        if (round >= rounds)
            (void)sched_yield();
        struct occl_ring_consumer sq;
        struct occl_ring_producer cq;
        struct occl_sqe entry;
        struct occl_cqe answer = {round, 0, 0, 0, 0, 0};
        uint32_t freed = 0;
        int status = OCCL_OK;
        occl_ring_consumer_init(&sq, &sq_at);
        occl_ring_producer_init(&cq, &cq_at);
        for (int i = 0; i < 40 && status >= OCCL_OK; i++) {
            status = occl_sq_pop(&sq, &entry);
            assert_true(sq.own <= 40); /* never more than was ever published */
            if (status >= OCCL_OK && occl_cq_push(&cq, &answer) == OCCL_WOULD_BLOCK)
                status = occl_ring_producer_refresh(&cq, &freed);
        }
        faults += status == OCCL_E_QUARANTINED;
    }
    occl_publish32(&h.stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(faults > 0);
    tear_down(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_exchange_ops),
        cmocka_unit_test(two_processes_exchange_ops),
        cmocka_unit_test(scribbling_client_harms_only_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
