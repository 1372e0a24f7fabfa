/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that describe an op differently (classes B and C of the reports from the field), for every
 * kind: each kind against each other one, each field of the signature, ranks that do not come. Who
 * depends on a rank that disagrees gets the mismatch with the field's name, unchanged buffers, and
 * never a success with wrong bytes; who had completed alone hears of it afterwards; nobody hangs,
 * and the communicator goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/call.h"

#define SMALL 3u
#define LARGE 40000u /* not in the page */
#define RANKS_MAX 4
#define UNTOUCHED 0x5a

static struct world w;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w) == 0 ? 0 : -1;
}

struct buffers {
    int32_t *send, *recv;
};
/* The asynchronous error tells as much as a result would; word: the field. */
static bool late_is_whole(const char *word) {
    const char *text = occl_last_error(), *first = strstr(text, " on ranks ");
    return strstr(text, "had completed here before rank ") && strstr(text, word) && first &&
           strstr(first + 1, " on ranks ");
}
static struct buffers buffers_get(void) {
    size_t bytes = (size_t)RANKS_MAX * (LARGE + 8) * 4;
    return (struct buffers){world_alloc(bytes), world_alloc(bytes)};
}

static bool untouched(const struct buffers *b, size_t elements) {
    const unsigned char *bytes = (const void *)b->recv;
    for (size_t i = 0; i < elements * 4; i++)
        if (bytes[i] != UNTOUCHED)
            return false;
    return true;
}

static void prepare(struct call *c, const struct buffers *b, size_t count) {
    memset(b->send, 1, RANKS_MAX * count * 4);
    memset(b->recv, UNTOUCHED, RANKS_MAX * (count + 8) * 4);
    c->type = OCCL_INT32;
    c->count = c->kind < CALL_MOVERS ? count : 0;
    c->send = b->send;
    c->recv = b->recv;
}

/* Blocking; a hang ends as a time-out, which no test here takes for right. */
static enum occl_result run(const struct call *c, struct world_rank *me, struct occl_comm comm) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = 10000000000;
    return call_submit(c, me->rank, me->size, comm, &attr, NULL);
}

/* Whether everything that this rank needs was in its line or page: it had not to wait. */
static bool alone(const struct call *c, int rank, size_t count) {
    return call_ends_alone(c, rank) && (c->kind >= CALL_MOVERS || count == SMALL);
}

static int fail_case(struct world_rank *me, const char *what, const struct call *mine,
                     const char *other, enum occl_result result, enum occl_result late) {
    fprintf(stderr,
            "rank %d of %d: %s: %s (root %d, count %zu) against %s: result %d, later %d: %s\n",
            me->rank, me->size, what, call_traits[mine->kind].name, mine->root, mine->count, other,
            (int)result, (int)late, occl_last_error());
    return 1;
}

/* ---- every kind against every other ---- */

struct matrix {
    size_t count;
    int odd; /* the rank with the other kind */
};

static int pair_of_kinds(struct world_rank *me, const struct buffers *b, const struct matrix *m,
                         int usual, int other) {
    struct occl_comm comm;
    int kind = me->rank == m->odd ? other : usual;
    const char *theirs = call_traits[me->rank == m->odd ? usual : other].name;
    /* Roots that agree, and roots that do not. */
    int root = (usual + other) % 2 ? 0 : (me->rank == m->odd ? 0 : me->size - 1);
    struct call c = {.kind = (enum call_kind)kind, .root = root};
    enum occl_result late = OCCL_SUCCESS;
    char name[64];
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
    prepare(&c, b, m->count);
    enum occl_result result = run(&c, me, comm);
    (void)snprintf(name, sizeof name, "%s", occl_last_error());
    bool may_succeed = alone(&c, me->rank, m->count);
    if (result == OCCL_ERROR_MISMATCH) {
        if (!strstr(occl_last_error(), "kind") || !strstr(occl_last_error(), theirs))
            return fail_case(me, "text", &c, theirs, result, late);
    } else if (result != OCCL_SUCCESS) {
        return fail_case(me, "status", &c, theirs, result, late);
    } else if (!may_succeed) {
        /* It may have needed nobody but a rank of its own kind: the source, if it is one. */
        bool source_agrees = call_traits[c.kind].source && me->rank != m->odd && c.root != m->odd &&
                             (c.kind >= CALL_MOVERS || m->count == SMALL);
        if (!source_agrees)
            return fail_case(me, "success", &c, theirs, result, late);
    }
    if (result != OCCL_SUCCESS && !untouched(b, RANKS_MAX * m->count))
        return fail_case(me, "written", &c, theirs, result, late);
    WORLD_OK(occl_barrier(me->comm, NULL, NULL)); /* now everybody has come */
    WORLD_OK(occl_comm_get_async_error(comm, &late));
    if (late != OCCL_SUCCESS && late != OCCL_ERROR_MISMATCH)
        return fail_case(me, "asynchronous error", &c, theirs, result, late);
    if (late != OCCL_SUCCESS && !late_is_whole("kind: "))
        return fail_case(me, "its text", &c, theirs, result, late);
    int heard = result == OCCL_ERROR_MISMATCH || late == OCCL_ERROR_MISMATCH, all = 0;
    WORLD_OK(occl_all_reduce(&heard, &all, 1, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL));
    /* Somebody always hears; with two ranks both do, since each is what differs from the other. */
    if (all == 0 || (me->size == 2 && all != 2))
        return fail_case(me, "not told", &c, theirs, result, late);
    /* The communicator goes on. */
    WORLD_OK(occl_barrier(comm, NULL, NULL));
    WORLD_OK(occl_comm_destroy(comm));
    return 0;
}

static int every_pair(struct world_rank *me) {
    struct buffers b = buffers_get();
    const struct matrix *m = me->arg;
    for (int usual = 0; usual < CALL_KINDS; usual++)
        for (int other = 0; other < CALL_KINDS; other++)
            if (usual != other && pair_of_kinds(me, &b, m, usual, other))
                return 1;
    return 0;
}

static void test_C02_every_kind_against_every_other(void **state) {
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        struct matrix small = {SMALL, odd};
        assert_int_equal(world_run(&w, 2, every_pair, &small, 60), 0);
    }
    struct matrix three = {SMALL, 1};
    assert_int_equal(world_run(&w, 3, every_pair, &three, 60), 0);
}
static void test_C02_every_large_kind_against_every_other(void **state) {
    (void)state;
    struct matrix two = {LARGE, 0}, three = {LARGE, 1};
    assert_int_equal(world_run(&w, 2, every_pair, &two, 60), 0);
    assert_int_equal(world_run(&w, 3, every_pair, &three, 60), 0);
}

/* ---- each field of the signature, for each kind ---- */

enum field { TYPE, OPERATOR, ROOT, COUNT, FIELDS };
static const char *const field_names[FIELDS] = {"type", "operator", "root", "count"};

static bool has_field(int kind, int field) {
    const struct call_traits *t = &call_traits[kind];
    return field == OPERATOR ? t->reduces : field == ROOT ? t->rooted : kind < CALL_MOVERS;
}

/* In a vector kind there are no counts, but blocks: those of rank 1 differ, where it has any. */
static int one_field(struct world_rank *me, const struct buffers *b, size_t count, int kind,
                     int field) {
    struct occl_comm comm;
    const struct call_traits *t = &call_traits[kind];
    struct call c = {.kind = (enum call_kind)kind};
    bool odd = me->rank == 1;
    enum occl_result late = OCCL_SUCCESS;
    const char *word = field == COUNT && t->vector ? "block" : field_names[field];
    WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
    prepare(&c, b, count);
    if (odd && field == TYPE)
        c.type = OCCL_UINT32;
    if (odd && field == OPERATOR)
        c.op = OCCL_BXOR;
    if (odd && field == ROOT)
        c.root = 1;
    if (odd && field == COUNT)
        c.count--;
    enum occl_result result = run(&c, me, comm);
    if (result == OCCL_ERROR_MISMATCH) {
        if (!strstr(occl_last_error(), word))
            return fail_case(me, word, &c, "itself", result, late);
        if (!untouched(b, RANKS_MAX * count))
            return fail_case(me, "written", &c, "itself", result, late);
    } else if (result != OCCL_SUCCESS) {
        return fail_case(me, word, &c, "itself", result, late);
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    WORLD_OK(occl_comm_get_async_error(comm, &late));
    bool heard = result == OCCL_ERROR_MISMATCH || late == OCCL_ERROR_MISMATCH;
    if (late != OCCL_SUCCESS && !late_is_whole(word))
        return fail_case(me, "its text", &c, word, result, late);
    /* Rank 1 differs from all. Of the others only those who meet it in the op have to hear. */
    if (odd && !heard)
        return fail_case(me, word, &c, "itself", result, late);
    bool depends = !t->source && !t->sink && !(t->vector && field == COUNT);
    if (depends && !heard)
        return fail_case(me, word, &c, "itself", result, late);
    /* The root of a sink needs rank 1; so does everybody in an op that is not in the page. */
    bool root_needs = t->sink && me->rank == 0;
    if (root_needs && !heard)
        return fail_case(me, word, &c, "itself", result, late);
    WORLD_OK(occl_barrier(comm, NULL, NULL));
    WORLD_OK(occl_comm_destroy(comm));
    return 0;
}

/* What a sender hears that needed nobody: the op, the field, both values, both ranks. */
static int late_texts(struct world_rank *me) {
    static const char *const told[] = {
        "send #0 (tag 1, rank 0 to rank 1) on communicator ",
        " had completed here before rank 1 came: the ranks disagree on the count: 2 on ranks 0; 3 "
        "on ranks 1",
        "send #0 (tag 2, rank 0 to rank 1) on communicator ",
        " had completed here before rank 1 came: the ranks disagree on the type: uint32 on ranks "
        "0; int32 on ranks 1"};
    int32_t values[4] = {0};
    for (uint32_t round = 0; round < 2; round++) {
        struct occl_comm comm;
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        enum occl_result late;
        attr.tag = round + 1;
        WORLD_OK(occl_comm_split(me->comm, 0, me->rank, NULL, &comm));
        if (me->rank == 0)
            WORLD_OK(occl_send(values, 2, round ? OCCL_UINT32 : OCCL_INT32, 1, comm, &attr, NULL));
        else
            WORLD_CHECK(occl_recv(values, round ? 2 : 3, OCCL_INT32, 0, comm, &attr, NULL) ==
                        OCCL_ERROR_MISMATCH);
        WORLD_OK(occl_barrier(me->comm, NULL, NULL));
        WORLD_OK(occl_comm_get_async_error(comm, &late));
        WORLD_CHECK(late == (me->rank ? OCCL_SUCCESS : OCCL_ERROR_MISMATCH));
        WORLD_CHECK(me->rank || (strstr(occl_last_error(), told[2 * round]) &&
                                 strstr(occl_last_error(), told[2 * round + 1])));
        WORLD_OK(occl_comm_destroy(comm));
    }
    return 0;
}
static void test_C02_late_texts_name_field_and_values(void **state) {
    (void)state;
    assert_int_equal(world_run(&w, 2, late_texts, NULL, 20), 0);
}

static int every_field(struct world_rank *me) {
    struct buffers b = buffers_get();
    const size_t *count = me->arg;
    for (int kind = 0; kind < CALL_KINDS; kind++)
        for (int field = 0; field < FIELDS; field++)
            if (has_field(kind, field) && one_field(me, &b, *count, kind, field))
                return 1;
    return 0;
}
static void test_C01_C02_each_field_of_each_kind(void **state) {
    static const size_t counts[] = {SMALL, 200, LARGE}; /* lines, page, elsewhere */
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        size_t count = counts[i];
        assert_int_equal(world_run(&w, 2, every_field, &count, 60), 0);
        assert_int_equal(world_run(&w, 4, every_field, &count, 60), 0);
    }
}

/* ---- ranks that do not come in time ---- */

struct late {
    size_t count;
    uint32_t over[RANKS_MAX]; /* kinds of which a rank's op has ended */
};

/* Ranks 1 and 3 come when the others have given up. */
static int missing_ranks(struct world_rank *me) {
    struct late *late = me->arg;
    struct buffers b = buffers_get();
    bool missing = me->rank % 2 == 1;
    for (int kind = 0; kind < CALL_KINDS; kind++) {
        /* The root is missing where the others wait for it, and waits where it needs them. */
        struct call c = {.kind = (enum call_kind)kind, .root = call_traits[kind].source ? 1 : 0};
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        prepare(&c, &b, late->count);
        attr.timeout_ns = 100000000;
        attr.tag = 1 + (uint32_t)kind;
        for (int r = 0; r < 4 && missing; r += 2)
            while (__atomic_load_n(&late->over[r], __ATOMIC_SEQ_CST) <= (uint32_t)kind)
                usleep(500);
        enum occl_result result = call_submit(&c, me->rank, me->size, me->comm, &attr, NULL);
        if (!missing)
            __atomic_fetch_add(&late->over[me->rank], 1, __ATOMIC_SEQ_CST);
        if (alone(&c, me->rank, late->count) && result == OCCL_SUCCESS)
            continue;
        if (result != OCCL_ERROR_TIMEOUT)
            return fail_case(me, "late", &c, "nobody", result, OCCL_SUCCESS);
        bool names =
            strstr(occl_last_error(), call_traits[kind].name) &&
            (missing || (call_traits[kind].source ? strchr(occl_last_error(), '1') != NULL
                                                  : strstr(occl_last_error(), "1 3") ||
                                                        strstr(occl_last_error(), "1, 3") ||
                                                        strstr(occl_last_error(), "1,3")));
        if (!names || !untouched(&b, RANKS_MAX * late->count))
            return fail_case(me, "text", &c, "nobody", result, OCCL_SUCCESS);
    }
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    return 0;
}
static void test_B01_time_outs_of_each_kind_name_who_is_missing(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct late *late = world_shared(sizeof *late);
        late->count = i ? LARGE : SMALL;
        assert_int_equal(world_run(&w, 4, missing_ranks, late, 60), 0);
    }
}

/* ---- the same from a daemon that takes every op through its ring ---- */

static int texts_of_the_daemon(struct world_rank *me) {
    int32_t in[8] = {0}, out[8];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    size_t count = me->rank == 1 ? 5 : 4;
    const char *mine = me->rank == 1 ? "5 on ranks 1; 4 on ranks" : "4 on ranks";
    const char *other = me->rank == 1 ? "count" : "5 on ranks 1";
    WORLD_CHECK(occl_all_reduce(in, out, count, OCCL_INT32, OCCL_SUM, me->comm, NULL, NULL) ==
                OCCL_ERROR_MISMATCH);
    WORLD_CHECK(strstr(occl_last_error(), mine) && strstr(occl_last_error(), other));
    WORLD_CHECK(occl_all_reduce(in, out, 4, OCCL_INT32, me->rank ? OCCL_MAX : OCCL_SUM, me->comm,
                                NULL, NULL) == OCCL_ERROR_MISMATCH);
    WORLD_CHECK(strstr(occl_last_error(), "sum on ranks 0") &&
                strstr(occl_last_error(), "max on ranks"));
    attr.timeout_ns = 200000000;
    if (me->rank == 2)
        usleep(600000);
    WORLD_CHECK(occl_barrier(me->comm, &attr, NULL) == OCCL_ERROR_TIMEOUT);
    WORLD_CHECK(me->rank == 2 || strstr(occl_last_error(), "missing ranks: 2 of 3"));
    return 0;
}

static void test_texts_of_the_daemon(void **state) {
    struct world other;
    assert_int_equal(world_use_ordered(state), 0);
    world_start(&other, NULL);
    assert_int_equal(world_use_usual(state), 0);
    assert_int_equal(world_run(&other, 3, texts_of_the_daemon, NULL, 30), 0);
    assert_int_equal(world_stop(&other), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_C02_every_kind_against_every_other),
        cmocka_unit_test(test_C02_every_large_kind_against_every_other),
        cmocka_unit_test(test_C01_C02_each_field_of_each_kind),
        cmocka_unit_test(test_C02_late_texts_name_field_and_values),
        cmocka_unit_test(test_B01_time_outs_of_each_kind_name_who_is_missing),
        cmocka_unit_test(test_texts_of_the_daemon),
    };
    return cmocka_run_group_tests_name("client_disagree", tests, setup, teardown);
}
