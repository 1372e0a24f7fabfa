/* SPDX-License-Identifier: Apache-2.0 */
/* The mailbox from lanes to the loop: nothing lost or doubled with many producers, refusal when
 * full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "daemon/mailbox.h"

static void keeps_order_and_refuses_when_full(void **state) {
    struct occl_mailbox *box;
    struct occl_mail mail = {.status = -1};
    (void)state;
    assert_int_equal(occl_mailbox_create(8, &box), 0);
    for (uint64_t round = 0; round < 5; round++) {
        for (mail.session_id = 0; mail.session_id < 8; mail.session_id++)
            assert_true(occl_mailbox_post(box, &mail));
        assert_false(occl_mailbox_post(box, &mail));
        occl_mailbox_open(box);
        for (uint64_t i = 0; i < 8; i++) {
            assert_true(occl_mailbox_take(box, &mail));
            assert_int_equal(mail.session_id, i);
        }
        assert_false(occl_mailbox_take(box, &mail));
    }
    occl_mailbox_destroy(box);
}

static bool readable(struct occl_mailbox *box) {
    struct pollfd fd = {.fd = occl_mailbox_fd(box), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static void descriptor_is_readable_while_there_is_mail(void **state) {
    struct occl_mailbox *box;
    struct occl_mail mail = {.status = -1};
    (void)state;
    assert_int_equal(occl_mailbox_create(8, &box), 0);
    assert_false(readable(box));
    assert_true(occl_mailbox_post(box, &mail));
    assert_true(readable(box));
    occl_mailbox_open(box);
    assert_true(occl_mailbox_take(box, &mail));
    assert_false(readable(box));
    assert_true(occl_mailbox_post(box, &mail));
    assert_true(readable(box));
    occl_mailbox_destroy(box);
}

#define PRODUCERS 4
#define MAILS 20000

struct producer {
    struct occl_mailbox *box;
    uint64_t number;
    uint64_t refused;
};

static void *produce(void *arg) {
    struct producer *p = arg;
    for (uint64_t i = 0; i < MAILS;) {
        struct occl_mail mail = {p->number, (int32_t)i, NULL};
        if (occl_mailbox_post(p->box, &mail))
            i++;
        else
            p->refused++;
    }
    return NULL;
}

static void many_producers_one_consumer(void **state) {
    struct occl_mailbox *box;
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    uint64_t next[PRODUCERS] = {0};
    (void)state;
    assert_int_equal(occl_mailbox_create(64, &box), 0);
    for (uint64_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){box, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (uint64_t total = 0; total < (uint64_t)PRODUCERS * MAILS;) {
        struct pollfd fd = {.fd = occl_mailbox_fd(box), .events = POLLIN};
        struct occl_mail mail;
        /* A lost bell would hang here. */
        assert_int_equal(poll(&fd, 1, 20000), 1);
        occl_mailbox_open(box);
        while (occl_mailbox_take(box, &mail)) {
            assert_int_equal(mail.status, next[mail.session_id]);
            next[mail.session_id]++;
            total++;
        }
    }
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    occl_mailbox_destroy(box);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_order_and_refuses_when_full),
        cmocka_unit_test(descriptor_is_readable_while_there_is_mail),
        cmocka_unit_test(many_producers_one_consumer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
