/* SPDX-License-Identifier: Apache-2.0 */
/* Rings one step at a time: order, back-pressure, wrap of the free-running indices, completion
 * credits, and every kind of index that a hostile other side can write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "shm_ipc/ring.h"

#define ENTRIES 8u

struct bench {
    uint32_t tail;
    uint32_t head;
    struct occl_sqe entries[ENTRIES];
    struct occl_ring_producer p;
    struct occl_ring_consumer c;
};

static void set_up(struct bench *b) {
    memset(b, 0, sizeof *b);
    struct occl_ring_place at = {&b->tail, &b->head, (char *)b->entries, ENTRIES,
                                 sizeof(struct occl_sqe)};
    occl_ring_producer_init(&b->p, &at);
    occl_ring_consumer_init(&b->c, &at);
}

/* Both indices as if `count` entries had passed before. */
static void start_at(struct bench *b, uint32_t count) {
    b->tail = b->head = count;
    b->p.own = b->p.published = b->p.peer_seen = count;
    b->c.own = b->c.published = b->c.peer_seen = count;
}

static int push(struct bench *b, uint64_t value) {
    struct occl_sqe entry;
    memset(&entry, 0, sizeof entry);
    entry.user_data = value;
    entry.vector.offset = ~value;
    return occl_sq_push(&b->p, &entry);
}

static void pop_expect(struct bench *b, uint64_t value) {
    struct occl_sqe entry;
    memset(&entry, 0, sizeof entry);
    assert_int_equal(occl_sq_pop(&b->c, &entry), OCCL_OK);
    assert_int_equal(entry.user_data, value);
    assert_int_equal(entry.vector.offset, ~value);
}

static void entries_keep_their_order(void **state) {
    (void)state;
    struct bench b;
    struct occl_sqe entry;
    set_up(&b);
    assert_int_equal(occl_sq_pop(&b.c, &entry), OCCL_WOULD_BLOCK);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(push(&b, i), OCCL_OK);
    /* Not published: not there. */
    assert_int_equal(occl_sq_pop(&b.c, &entry), OCCL_WOULD_BLOCK);
    occl_ring_publish(&b.p);
    for (uint64_t i = 0; i < 5; i++)
        pop_expect(&b, i);
    assert_int_equal(occl_sq_pop(&b.c, &entry), OCCL_WOULD_BLOCK);
}

static void full_ring_blocks_until_release(void **state) {
    (void)state;
    struct bench b;
    uint32_t freed = 99;
    set_up(&b);
    for (uint64_t i = 0; i < ENTRIES; i++)
        assert_int_equal(push(&b, i), OCCL_OK);
    assert_int_equal(push(&b, 99), OCCL_WOULD_BLOCK);
    occl_ring_publish(&b.p);
    pop_expect(&b, 0);
    pop_expect(&b, 1);
    /* Copied out, but not given back yet. */
    assert_int_equal(occl_ring_producer_refresh(&b.p, &freed), OCCL_OK);
    assert_int_equal(freed, 0);
    assert_int_equal(push(&b, 99), OCCL_WOULD_BLOCK);
    occl_ring_release(&b.c);
    assert_int_equal(occl_ring_producer_refresh(&b.p, &freed), OCCL_OK);
    assert_int_equal(freed, 2);
    assert_int_equal(occl_ring_room(&b.p), 2);
    assert_int_equal(push(&b, 8), OCCL_OK);
    assert_int_equal(push(&b, 9), OCCL_OK);
    assert_int_equal(push(&b, 10), OCCL_WOULD_BLOCK);
    occl_ring_publish(&b.p);
    for (uint64_t i = 2; i < 10; i++)
        pop_expect(&b, i);
}

static void indices_wrap(void **state) {
    (void)state;
    struct bench b;
    uint32_t freed = 0;
    set_up(&b);
    start_at(&b, UINT32_MAX - 11);
    for (uint64_t i = 0; i < 40; i++) {
        assert_int_equal(push(&b, i), OCCL_OK);
        occl_ring_publish(&b.p);
        pop_expect(&b, i);
        occl_ring_release(&b.c);
        assert_int_equal(occl_ring_producer_refresh(&b.p, &freed), OCCL_OK);
        assert_int_equal(freed, 1);
    }
    assert_int_equal(b.tail, 28);
}

static void forged_tail_is_a_fault(void **state) {
    (void)state;
    static const uint32_t forged[] = {ENTRIES + 1, ENTRIES + 2, 1u << 31, UINT32_MAX, 0x12345678};
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        for (uint32_t base = 0; base < 3; base++) {
            struct bench b;
            struct occl_sqe entry;
            set_up(&b);
            start_at(&b, base * 0x7fffffffu);
            b.tail = b.c.own + forged[i];
            memset(&entry, 0x5a, sizeof entry);
            assert_int_equal(occl_sq_pop(&b.c, &entry), OCCL_E_QUARANTINED);
            assert_int_equal(entry.verb, 0x5a); /* nothing was copied */
            assert_int_equal(b.c.own, base * 0x7fffffffu);
        }
    }
}

static void tail_that_goes_back_is_a_fault(void **state) {
    (void)state;
    struct bench b;
    struct occl_sqe entry;
    set_up(&b);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(push(&b, i), OCCL_OK);
    occl_ring_publish(&b.p);
    assert_int_equal(occl_ring_consumer_refresh(&b.c), OCCL_OK);
    b.tail = 2;
    assert_int_equal(occl_ring_consumer_refresh(&b.c), OCCL_E_QUARANTINED);
    pop_expect(&b, 0);
    pop_expect(&b, 1);
    pop_expect(&b, 2);
    pop_expect(&b, 3); /* what was seen stays valid */
    assert_int_equal(occl_sq_pop(&b.c, &entry), OCCL_E_QUARANTINED);
}

static void forged_head_is_a_fault(void **state) {
    (void)state;
    struct bench b;
    uint32_t freed = 7;
    set_up(&b);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(push(&b, i), OCCL_OK);
    occl_ring_publish(&b.p);
    assert_int_equal(push(&b, 4), OCCL_OK); /* written, not published */
    b.head = 5;
    assert_int_equal(occl_ring_producer_refresh(&b.p, &freed), OCCL_E_QUARANTINED);
    b.head = UINT32_MAX;
    assert_int_equal(occl_ring_producer_refresh(&b.p, &freed), OCCL_E_QUARANTINED);
    b.head = 3;
    assert_int_equal(occl_ring_producer_refresh(&b.p, &freed), OCCL_OK);
    assert_int_equal(freed, 3);
    b.head = 2;
    assert_int_equal(occl_ring_producer_refresh(&b.p, &freed), OCCL_E_QUARANTINED);
    assert_int_equal(freed, 3);
}

static void credits_bound_completions(void **state) {
    (void)state;
    struct bench sq;
    uint32_t cq_tail = 0, cq_head = 0, freed = 0;
    struct occl_cqe cqes[ENTRIES], out;
    struct occl_ring_place at = {&cq_tail, &cq_head, (char *)cqes, ENTRIES,
                                 sizeof(struct occl_cqe)};
    struct occl_ring_producer cq;
    struct occl_ring_consumer reaper;
    struct occl_credits daemon;
    set_up(&sq);
    occl_ring_producer_init(&cq, &at);
    occl_ring_consumer_init(&reaper, &at);
    occl_credits_init(&daemon, ENTRIES);
    /* A client that never reaps: each admitted op completes, none finds the ring full, and then
     * nothing is admitted any more. */
    uint32_t admitted = 0;
    struct occl_cqe cqe;
    memset(&cqe, 0, sizeof cqe);
    for (uint64_t i = 0; i < 5ull * ENTRIES; i++) {
        assert_int_equal(occl_ring_producer_refresh(&cq, &freed), OCCL_OK);
        occl_credits_put(&daemon, freed);
        if (!occl_credits_take(&daemon))
            continue;
        admitted++;
        cqe.user_data = i;
        assert_int_equal(occl_cq_push(&cq, &cqe), OCCL_OK);
        occl_ring_publish(&cq);
    }
    assert_int_equal(admitted, ENTRIES);
    /* It reaps three: three more are admitted. */
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(occl_cq_pop(&reaper, &out), OCCL_OK);
        assert_int_equal(out.user_data, i);
    }
    occl_ring_release(&reaper);
    assert_int_equal(occl_ring_producer_refresh(&cq, &freed), OCCL_OK);
    occl_credits_put(&daemon, freed);
    for (int i = 0; i < 3; i++)
        assert_true(occl_credits_take(&daemon));
    assert_false(occl_credits_take(&daemon));
}

static void places_lie_in_the_page(void **state) {
    (void)state;
    static struct occl_session_page page;
    struct occl_ring_place sq = occl_sq_place(&page, 512, 16);
    struct occl_ring_place cq = occl_cq_place(&page, 4096, 32);
    assert_ptr_equal(sq.tail, &page.sq_tail.value);
    assert_ptr_equal(sq.head, &page.sq_head.value);
    assert_int_equal((uintptr_t)sq.entries - (uintptr_t)&page, 512);
    assert_int_equal(sq.entry_bytes, 128);
    assert_ptr_equal(cq.tail, &page.cq_tail.value);
    assert_ptr_equal(cq.head, &page.cq_head.value);
    assert_int_equal((uintptr_t)cq.entries - (uintptr_t)&page, 4096);
    assert_int_equal(cq.entry_bytes, 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_keep_their_order),
        cmocka_unit_test(full_ring_blocks_until_release),
        cmocka_unit_test(indices_wrap),
        cmocka_unit_test(forged_tail_is_a_fault),
        cmocka_unit_test(tail_that_goes_back_is_a_fault),
        cmocka_unit_test(forged_head_is_a_fault),
        cmocka_unit_test(credits_bound_completions),
        cmocka_unit_test(places_lie_in_the_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
