/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of `why`: two communicators over the same few processes. Include after cmocka.h. */
#ifndef TESTS_DAEMON_WHY_STAGE_H
#define TESTS_DAEMON_WHY_STAGE_H

#include <string.h>

#include "daemon/why.h"
#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

#define MS 1000000ull

struct stage {
    struct fixture f;
    struct client c[8];
    struct client_comm a[8], b[8];
    uint32_t ranks;
};

/* Two communicators over the same processes. */
static inline struct stage *stage_open(uint32_t ranks, uint64_t stall_interval_ns) {
    static struct stage s;
    memset(&s, 0, sizeof s);
    fixture_prepare(&s.f);
    if (stall_interval_ns)
        s.f.config.stall_interval_ns = stall_interval_ns;
    fixture_start(&s.f);
    s.ranks = ranks;
    for (uint32_t i = 0; i < ranks; i++)
        client_attach(&s.c[i], &s.f, "job", "");
    clients_make_comm(s.c, ranks, 1, s.a);
    clients_make_comm(s.c, ranks, 2, s.b);
    return &s;
}

static inline void stage_close(struct stage *s) {
    for (uint32_t i = 0; i < s->ranks; i++) {
        client_comm_unmap(&s->a[i]);
        client_comm_unmap(&s->b[i]);
        client_close(&s->c[i]);
    }
    fixture_stop(&s->f);
}

static inline void threads(struct client *c, uint32_t using, uint32_t waiting) {
    occl_publish32(&c->page->threads_using, using);
    occl_publish32(&c->page->threads_waiting, waiting);
}

static const struct occl_op_key plain = {OCCL_PEERS_ALL, 0, 4};

static inline void wait_in(struct stage *s, struct client_comm *comms, uint32_t rank,
                           uint64_t ago_ns) {
    (void)client_arrive(&s->c[rank], &comms[rank], plain, OCCL_OP_ALL_REDUCE, true, ago_ns);
    threads(&s->c[rank], 1, 1);
}

static inline json_t *ask(struct stage *s, const char *request) {
    int status;
    json_t *answer = client_admin(&s->c[0], request, &status);
    assert_int_equal(status, OCCL_OK);
    return answer;
}

static inline const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    return text;
}

static inline json_int_t number_of(const json_t *object, const char *key) {
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static inline const json_t *item(const json_t *object, const char *key, size_t index) {
    const json_t *list = json_object_get(object, key);
    assert_true(json_is_array(list));
    return json_array_get(list, index);
}

static inline size_t length(const json_t *object, const char *key) {
    assert_true(json_is_array(json_object_get(object, key)));
    return json_array_size(json_object_get(object, key));
}

static inline void expect_nothing(struct stage *s) {
    json_t *answer = ask(s, "{\"verb\":\"ops\"}");
    assert_int_equal(length(answer, "ops"), 0);
    json_decref(answer);
    answer = ask(s, "{\"verb\":\"why\"}");
    assert_true(json_is_false(json_object_get(answer, "problem")));
    assert_int_equal(length(answer, "waits"), 0);
    json_decref(answer);
}

#endif
