/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fabric/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#define SLOTS 4u
#define SLOT_BYTES 64u
#define POSTS_MAX 512u
#define QUIET_POLLS 400u

static const struct conformance_harness *harness;
static struct occl_fabric *pair[2];
static uint32_t peer_of[2];

/* What happened at both ends. */
static struct {
    uint32_t sent[POSTS_MAX]; /* SENT events by user number */
    int32_t status[POSTS_MAX];
    uint32_t landed, messages, down[2];
    uint64_t last_immediate;
    uint8_t control[POSTS_MAX][OCCL_FABRIC_CONTROL_BYTES];
} seen;

static char landing_bytes[SLOTS * SLOT_BYTES];
static char source[POSTS_MAX][SLOT_BYTES];

static void start(uint64_t seed) {
    memset(&seen, 0, sizeof seen);
    memset(landing_bytes, 0, sizeof landing_bytes);
    for (uint32_t i = 0; i < POSTS_MAX; i++)
        memset(source[i], (int)(1 + i % 250), SLOT_BYTES);
    harness->open_pair(harness->self, seed, pair);
    for (uint32_t n = 0; n < 2; n++)
        assert_int_equal(harness->ops->connect(pair[n], 1 - n, &peer_of[n]), OCCL_OK);
}

static void take(uint32_t end, const struct occl_fabric_event *e) {
    switch (e->kind) {
    case OCCL_FABRIC_SENT:
        assert_true(e->user < POSTS_MAX);
        seen.sent[e->user]++;
        seen.status[e->user] = e->status;
        break;
    case OCCL_FABRIC_LANDED:
        seen.landed++;
        seen.last_immediate = e->immediate;
        break;
    case OCCL_FABRIC_MESSAGE:
        memcpy(seen.control[seen.messages++ % POSTS_MAX], e->control, sizeof e->control);
        break;
    case OCCL_FABRIC_DOWN:
        seen.down[end]++;
        break;
    default:
        fail_msg("event of unknown kind %u", e->kind);
    }
}

/* Polls one end until it has been silent for a while. */
static void drain(uint32_t end) {
    for (uint32_t quiet = 0; quiet < QUIET_POLLS && pair[end] != NULL; quiet++) {
        struct occl_fabric_event events[8];
        uint32_t count = harness->ops->poll(pair[end], harness->pass(harness->self), events, 8);
        for (uint32_t i = 0; i < count; i++)
            take(end, &events[i]);
        quiet = count > 0 ? 0 : quiet;
    }
}

static void drain_both(void) {
    for (uint32_t round = 0; round < 3; round++) {
        drain(0);
        drain(1);
    }
}

static void close_end(uint32_t end) {
    static struct occl_fabric_event events[2 * POSTS_MAX];
    uint32_t count = harness->ops->close(pair[end], events, 2 * POSTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        take(end, &events[i]);
    pair[end] = NULL;
}

static void finish(void) {
    for (uint32_t n = 0; n < 2; n++)
        if (pair[n] != NULL)
            close_end(n);
    harness->end_pair(harness->self);
}

static struct occl_fabric_landing open_landing(uint32_t end) {
    struct occl_fabric_landing landing;
    assert_int_equal(
        harness->ops->landing_open(pair[end], landing_bytes, SLOTS, SLOT_BYTES, 77, &landing),
        OCCL_OK);
    return landing;
}

static int post_data(uint32_t end, uint64_t key, uint32_t slot, uint64_t length, uint64_t user) {
    struct occl_fabric_post post;
    memset(&post, 0, sizeof post);
    post.peer = peer_of[end];
    post.message = OCCL_FABRIC_DATA;
    post.bytes = source[user];
    post.length = length;
    post.user = user;
    post.immediate = 1000 + user;
    post.landing_key = key;
    post.landing_slot = slot;
    return harness->ops->post(pair[end], &post);
}

static int post_control(uint32_t end, const void *bytes, uint64_t length, uint64_t user) {
    struct occl_fabric_post post;
    memset(&post, 0, sizeof post);
    post.peer = peer_of[end];
    post.message = OCCL_FABRIC_CONTROL;
    post.bytes = bytes;
    post.length = length;
    post.user = user;
    return harness->ops->post(pair[end], &post);
}

/* Each accepted post has exactly one completion. */
static void check_sent(uint32_t posts) {
    for (uint32_t i = 0; i < POSTS_MAX; i++)
        assert_int_equal(seen.sent[i], i < posts ? 1 : 0);
}

static void no_slot_is_empty(void **state) {
    const struct occl_fabric_ops *o = harness->ops;
    (void)state;
    assert_non_null(o->name);
    assert_non_null(o->open);
    assert_non_null(o->close);
    assert_non_null(o->connect);
    assert_non_null(o->landing_open);
    assert_non_null(o->landing_close);
    assert_non_null(o->post);
    assert_non_null(o->flush);
    assert_non_null(o->poll);
}

static void data_land_where_they_were_credited(void **state) {
    (void)state;
    start(1);
    struct occl_fabric_landing landing = open_landing(1);
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(post_data(0, landing.key, i, SLOT_BYTES - i, i), OCCL_OK);
    drain_both();
    check_sent(SLOTS);
    assert_int_equal(seen.landed, SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(seen.status[i], OCCL_OK);
        assert_memory_equal(landing_bytes + i * SLOT_BYTES, source[i], SLOT_BYTES - i);
    }
    assert_int_equal(post_data(0, landing.key, 2, 0, 4), OCCL_OK); /* no bytes: only the event */
    drain_both();
    assert_int_equal(seen.landed, SLOTS + 1);
    assert_int_equal(seen.last_immediate, 1004);
    finish();
}

static void control_keeps_its_order(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        start(seed);
        struct occl_fabric_landing landing = open_landing(1);
        for (uint32_t i = 0; i < 60; i++) {
            uint32_t bytes = i;
            assert_int_equal(post_control(0, &bytes, sizeof bytes, 2 * i), OCCL_OK);
            bytes = 0xdead; /* copied at post */
            assert_int_equal(post_data(0, landing.key, i % SLOTS, 8, 2 * i + 1), OCCL_OK);
        }
        drain_both();
        check_sent(120);
        assert_int_equal(seen.messages, 60);
        for (uint32_t i = 0; i < 60; i++)
            assert_memory_equal(seen.control[i], &i, sizeof i);
        finish();
    }
}

/* Mistake 2 of daemon/sched/README.md: credits behind data. However much data is in flight, control
 * passes. */
static void data_never_hold_up_control(void **state) {
    uint32_t data = 0, status;
    (void)state;
    start(5);
    struct occl_fabric_landing landing = open_landing(1);
    while (data < POSTS_MAX - 1 &&
           (status = (uint32_t)post_data(0, landing.key, data % SLOTS, 8, data)) == OCCL_OK)
        data++;
    assert_int_equal(post_control(0, "credit", 6, POSTS_MAX - 1), OCCL_OK);
    drain(1);
    assert_int_equal(seen.messages, 1);
    drain(0);
    assert_int_equal(seen.sent[POSTS_MAX - 1], 1);
    finish();
}

static void wrong_posts_are_refused(void **state) {
    struct occl_fabric_post post;
    struct occl_fabric_landing landing;
    uint32_t none;
    (void)state;
    start(2);
    landing = open_landing(1);
    memset(&post, 0, sizeof post);
    post.peer = 12345;
    post.message = OCCL_FABRIC_DATA;
    assert_int_equal(harness->ops->post(pair[0], &post), OCCL_E_INVALID);
    post.peer = peer_of[0];
    post.message = 9;
    assert_int_equal(harness->ops->post(pair[0], &post), OCCL_E_INVALID);
    assert_int_equal(post_control(0, "x", 0, 0), OCCL_E_INVALID);
    assert_int_equal(post_control(0, source, OCCL_FABRIC_CONTROL_BYTES + 1, 0), OCCL_E_INVALID);
    assert_int_equal(harness->ops->connect(pair[0], 4000, &none), OCCL_E_INVALID);
    assert_int_equal(harness->ops->landing_open(pair[0], NULL, 1, 1, 0, &landing), OCCL_E_INVALID);
    assert_int_equal(harness->ops->landing_close(pair[0], 999), OCCL_E_NOT_FOUND);
    drain_both();
    check_sent(0);
    finish();
}

/* A post outside the credit completes with an error, and no byte is written anywhere. */
static void posts_without_a_credit_do_nothing(void **state) {
    (void)state;
    start(3);
    struct occl_fabric_landing landing = open_landing(1);
    assert_int_equal(post_data(0, landing.key + 1, 0, 8, 0), OCCL_OK);
    assert_int_equal(post_data(0, landing.key, SLOTS, 8, 1), OCCL_OK);
    assert_int_equal(post_data(0, landing.key, SLOTS - 1, SLOT_BYTES + 1, 2), OCCL_OK);
    drain_both();
    check_sent(3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(seen.status[i] < 0);
    assert_int_equal(seen.landed, 0);
    for (uint32_t i = 0; i < sizeof landing_bytes; i++)
        assert_int_equal(landing_bytes[i], 0);
    finish();
}

static void a_closed_landing_is_not_written(void **state) {
    char before[sizeof landing_bytes];
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        start(seed);
        struct occl_fabric_landing landing = open_landing(1);
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(post_data(0, landing.key, i % SLOTS, SLOT_BYTES, i), OCCL_OK);
        struct occl_fabric_event event;
        for (uint64_t polls = 0; polls < seed; polls++)
            if (harness->ops->poll(pair[1], harness->pass(harness->self), &event, 1))
                take(1, &event);
        assert_int_equal(harness->ops->landing_close(pair[1], landing.key), OCCL_OK);
        memcpy(before, landing_bytes, sizeof before);
        assert_int_equal(post_data(0, landing.key, 0, SLOT_BYTES, 8), OCCL_OK); /* late */
        drain_both();
        check_sent(9);
        assert_int_equal(seen.status[8], OCCL_E_CANCELED);
        assert_memory_equal(before, landing_bytes, sizeof before);
        finish();
    }
}

/* The law, over failure, flush and close: exactly one completion per accepted post. */
static void a_cut_completes_everything(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t posts = 0, none;
        start(seed);
        struct occl_fabric_landing landing = open_landing(1);
        for (uint32_t i = 0; i < 50; i++)
            posts += post_data(0, landing.key, i % SLOTS, 8, posts) == OCCL_OK;
        for (uint32_t i = 0; i < 9; i++)
            posts += post_control(1, "hello", 5, posts) == OCCL_OK;
        if (seed % 2)
            drain(0);
        harness->cut(harness->self);
        drain_both();
        check_sent(posts);
        assert_int_equal(seen.down[0], 1);
        assert_int_equal(seen.down[1], 1);
        assert_int_equal(post_control(0, "x", 1, 0), OCCL_E_PEER_FAILED);
        assert_int_equal(harness->ops->connect(pair[0], 1, &none), OCCL_E_PEER_FAILED);
        finish();
        check_sent(posts);
    }
}

static void a_flush_completes_everything(void **state) {
    (void)state;
    start(9);
    struct occl_fabric_landing landing = open_landing(1);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(post_data(0, landing.key, i % SLOTS, 8, i), OCCL_OK);
    assert_int_equal(harness->ops->flush(pair[0], peer_of[0]), OCCL_OK);
    drain(0);
    check_sent(50);
    assert_int_equal(post_control(0, "still up", 8, 50), OCCL_OK);
    drain_both();
    check_sent(51);
    assert_int_equal(seen.status[50], OCCL_OK);
    finish();
}

static void a_close_completes_everything(void **state) {
    (void)state;
    start(11);
    struct occl_fabric_landing landing = open_landing(1);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(post_data(0, landing.key, i % SLOTS, 8, i), OCCL_OK);
    assert_int_equal(post_control(1, "bye", 3, 50), OCCL_OK);
    close_end(0);
    drain(1);
    check_sent(51);
    assert_int_equal(seen.down[1], 1);
    finish();
}

static void too_much_in_flight_is_back_pressure(void **state) {
    uint32_t posts = 0;
    int status = OCCL_OK;
    (void)state;
    start(13);
    struct occl_fabric_landing landing = open_landing(1);
    while (posts < POSTS_MAX &&
           (status = post_data(0, landing.key, posts % SLOTS, 8, posts)) == OCCL_OK)
        posts++;
    assert_int_equal(status, OCCL_WOULD_BLOCK);
    drain_both();
    check_sent(posts);
    assert_int_equal(post_data(0, landing.key, 0, 8, posts), OCCL_OK);
    drain_both();
    check_sent(posts + 1);
    finish();
}

int occl_fabric_conformance(const struct conformance_harness *h) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_slot_is_empty),
        cmocka_unit_test(data_land_where_they_were_credited),
        cmocka_unit_test(control_keeps_its_order),
        cmocka_unit_test(data_never_hold_up_control),
        cmocka_unit_test(wrong_posts_are_refused),
        cmocka_unit_test(posts_without_a_credit_do_nothing),
        cmocka_unit_test(a_closed_landing_is_not_written),
        cmocka_unit_test(a_cut_completes_everything),
        cmocka_unit_test(a_flush_completes_everything),
        cmocka_unit_test(a_close_completes_everything),
        cmocka_unit_test(too_much_in_flight_is_back_pressure),
    };
    harness = h;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
