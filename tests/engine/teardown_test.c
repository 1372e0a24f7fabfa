/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions, communicators, regions and jobs that go while ops wait or run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "tests/engine/fixture.h"

#define RANKS 3
#define BIG_COUNT (8u << 20) /* int32: 32 MiB a buffer, hundreds of strands */

struct stage {
    struct fx fx;
    struct fx_comm *comm;
    uint32_t region;
    char *data;
    uint64_t bytes;
};

static void open_stage(struct stage *s, uint32_t lanes) {
    fx_open(&s->fx, &(struct fx_options){.lanes = lanes});
    s->comm = fx_simple(&s->fx, RANKS);
    s->bytes = 2ull * RANKS * BIG_COUNT * 4;
    s->data = fx_region(&s->fx, 1, s->bytes, &s->region);
}

static void close_stage(struct stage *s) {
    fx_close(&s->fx);
    free(s->data);
}

static void submit(struct stage *s, uint32_t rank, uint32_t tag, uint64_t count) {
    struct occl_sqe sqe = fx_all_reduce(s->comm, rank, fx_key(tag, 0), count, s->region,
                                        4ull * rank * BIG_COUNT, 4ull * (RANKS + rank) * BIG_COUNT);
    fx_submit(&s->fx, s->comm, rank, &sqe);
}

static bool runs(struct fx *fx) {
    struct occl_engine_op_view views[8];
    uint32_t count = occl_engine_ops(fx->engine, views, 8);
    for (uint32_t i = 0; i < count; i++) {
        if (views[i].state == 2 && views[i].strands_done > 0)
            return true;
    }
    return count == 0; /* over before anybody could look */
}

/* All members of a big op have come and strands are being executed. */
static void start_big(struct stage *s, uint32_t tag) {
    for (uint32_t r = 0; r < RANKS; r++)
        submit(s, r, tag, BIG_COUNT);
    assert_true(fx_until(&s->fx, runs));
}

static uint64_t depth(struct stage *s) {
    struct occl_engine_job_usage usage;
    assert_true(occl_engine_job_usage(s->fx.engine, 1, &usage));
    return usage.queue_depth;
}

/* On a machine that is taken away for long enough, a big op may have completed before. */
static void expect_big(struct stage *s, uint32_t rank, uint32_t tag, int status, uint32_t about) {
    struct occl_cqe cqe = {0};
    assert_true(fx_wait(&s->fx, s->comm->sessions[rank], fx_patience_ns(), &cqe));
    assert_int_equal(cqe.user_data, (uint64_t)tag << 32);
    if (cqe.status == OCCL_OK)
        return;
    assert_int_equal(cqe.status, status);
    assert_int_equal(cqe.about_rank, about);
}

static void death_in_the_middle_of_strands(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        struct stage s;
        open_stage(&s, lanes);
        start_big(&s, 1);
        submit(&s, 0, 2, 16); /* waits for the others */
        uint64_t before = fx_now_ns();
        occl_engine_session_remove(s.fx.engine, s.fx.sessions[1].id);
        assert_true(fx_now_ns() - before < FX_SECOND);
        memset(s.fx.sessions[1].memory, 0x5a, 4096); /* the page may be anything now */
        expect_big(&s, 0, 1, OCCL_E_PEER_FAILED, 1);
        expect_big(&s, 2, 1, OCCL_E_PEER_FAILED, 1);
        occl_engine_comm_fail(s.fx.engine, s.comm->uid, OCCL_E_PEER_FAILED, 1);
        fx_expect(&s.fx, s.comm, 0, 2ull << 32, OCCL_E_PEER_FAILED, 1);
        assert_int_equal(depth(&s), 0);
        const unsigned char *page = s.fx.sessions[1].memory;
        for (uint32_t i = 0; i < 4096; i++)
            assert_int_equal(page[i], 0x5a);
        close_stage(&s);
    }
}

static void failed_communicator_ends_and_refuses(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, 2);
    start_big(&s, 1);
    submit(&s, 0, 2, 16);
    for (uint32_t round = 0; round < 2; round++) /* idempotent; the first reason stays */
        occl_engine_comm_fail(s.fx.engine, s.comm->uid, round ? OCCL_E_ABORTED : OCCL_E_REVOKED,
                              2 - round);
    /* The small op waits since its submission; the big one ends when its last lane has let go. */
    uint32_t small = 0;
    for (uint32_t i = 0; i < 4; i++) {
        struct occl_cqe cqe = {0};
        assert_true(fx_wait(&s.fx, s.comm->sessions[i % RANKS], fx_patience_ns(), &cqe));
        bool big = cqe.user_data == 1ull << 32;
        small += !big;
        if (big && cqe.status == OCCL_OK)
            continue;
        assert_int_equal(cqe.status, OCCL_E_REVOKED);
        assert_int_equal(cqe.about_rank, 2);
    }
    assert_int_equal(small, 1);
    submit(&s, 1, 3, 16);
    fx_expect(&s.fx, s.comm, 1, 3ull << 32, OCCL_E_REVOKED, 2);
    occl_engine_comm_remove(s.fx.engine, s.comm->uid);
    assert_int_equal(depth(&s), 0);
    submit(&s, 1, 4, 16);
    fx_expect(&s.fx, s.comm, 1, 4ull << 32, OCCL_E_HANDLE, OCCL_RANK_NONE);
    close_stage(&s);
}

static void removed_communicator_page_is_not_touched(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        struct stage s;
        open_stage(&s, lanes);
        start_big(&s, 1);
        occl_engine_comm_remove(s.fx.engine, s.comm->uid);
        memset(s.comm->memory, 0x33, s.comm->records.page_bytes);
        for (uint32_t r = 0; r < RANKS; r++)
            expect_big(&s, r, 1, OCCL_E_ABORTED, OCCL_RANK_NONE);
        const unsigned char *page = s.comm->memory;
        for (uint64_t i = 0; i < s.comm->records.page_bytes; i++)
            assert_int_equal(page[i], 0x33);
        close_stage(&s);
    }
}

/* After the region is removed it is made unreadable: a lane that still touched it would crash. */
static void removed_region_is_not_touched(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        struct stage s;
        open_stage(&s, lanes);
        start_big(&s, 1);
        submit(&s, 0, 2, 16);
        occl_engine_region_remove(s.fx.engine, 1, s.region);
        assert_int_equal(mprotect(s.data, s.bytes, PROT_NONE), 0);
        for (uint32_t i = 0; i < RANKS + 1; i++) {
            struct occl_cqe cqe = {0};
            assert_true(fx_wait(&s.fx, s.comm->sessions[i % RANKS], fx_patience_ns(), &cqe));
            bool big = cqe.user_data == 1ull << 32;
            assert_true(cqe.status == OCCL_E_FAULT || (big && cqe.status == OCCL_OK));
        }
        submit(&s, 1, 3, 16);
        fx_expect(&s.fx, s.comm, 1, 3ull << 32, OCCL_E_FAULT, 1);
        occl_clock_sleep_ns(&s.fx.clock, 2000000);
        assert_int_equal(mprotect(s.data, s.bytes, PROT_READ | PROT_WRITE), 0);
        close_stage(&s);
    }
}

/* Memory that cannot be had: the op fails and names the rank whose buffer it was; the lane lives.
 * One fault an engine: the thread sanitizer leaves signals blocked in a thread that has jumped out
 * of a handler. */
static void fault_of_rank_two(uint64_t count) {
    struct stage s;
    open_stage(&s, 1);
    char *output = s.data + 4ull * (RANKS + 2) * BIG_COUNT;
    assert_int_equal(mprotect(output, OCCL_PAGE_BYTES, PROT_READ), 0);
    for (uint32_t r = 0; r < RANKS; r++)
        submit(&s, r, 1, count);
    for (uint32_t r = 0; r < RANKS; r++)
        fx_expect(&s.fx, s.comm, r, 1ull << 32, OCCL_E_FAULT, 2);
    assert_int_equal(mprotect(output, OCCL_PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
    for (uint32_t r = 0; r < RANKS; r++)
        submit(&s, r, 9, count);
    for (uint32_t r = 0; r < RANKS; r++)
        fx_expect(&s.fx, s.comm, r, 9ull << 32, OCCL_OK, OCCL_RANK_NONE);
    close_stage(&s);
}

static void unreadable_memory_is_a_fault_of_its_op(void **state) {
    (void)state;
    fault_of_rank_two(1000);
    fault_of_rank_two(BIG_COUNT);
}

static void cancel_stops_a_running_op(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, 2);
    for (uint32_t round = 0; round < 5; round++) {
        start_big(&s, round);
        struct occl_sqe cancel = {.verb = OCCL_SQE_CANCEL,
                                  .comm = s.comm->numbers[0],
                                  .user_data = (uint64_t)round << 32};
        fx_submit(&s.fx, s.comm, 0, &cancel);
        struct occl_cqe first = {0}, cqe = {0};
        assert_true(fx_wait(&s.fx, s.comm->sessions[0], fx_patience_ns(), &first));
        assert_true(first.status == OCCL_E_TIMEOUT || first.status == OCCL_OK);
        for (uint32_t r = 1; r < RANKS; r++) {
            assert_true(fx_wait(&s.fx, s.comm->sessions[r], fx_patience_ns(), &cqe));
            assert_int_equal(cqe.status, first.status);
        }
        assert_int_equal(depth(&s), 0);
    }
    close_stage(&s);
}

static void removed_job_takes_everything_along(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, 3);
    start_big(&s, 1);
    occl_engine_job_remove(s.fx.engine, 1);
    struct occl_engine_job_usage usage;
    assert_false(occl_engine_job_usage(s.fx.engine, 1, &usage));
    struct occl_engine_op_view view;
    assert_int_equal(occl_engine_ops(s.fx.engine, &view, 1), 0);
    free(s.data);
    /* The slot serves another job. */
    uint32_t region;
    (void)fx_job(&s.fx, 2, 5, 0, 3, 16);
    uint32_t first = fx_session(&s.fx, 2, 16, 16);
    struct fx_comm *comm = fx_comm(&s.fx, 2, first, 1);
    s.data = fx_region(&s.fx, 2, 8192, &region);
    struct occl_sqe sqe = fx_all_reduce(comm, 0, fx_key(0, 0), 4, region, 0, 4096);
    fx_submit(&s.fx, comm, 0, &sqe);
    fx_expect(&s.fx, comm, 0, 0, OCCL_OK, OCCL_RANK_NONE);
    close_stage(&s);
}

static void end_of_the_engine_completes_what_waits(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, 2);
    submit(&s, 0, 2, 16);
    fx_expect_nothing(&s.fx, s.comm, 0);
    occl_engine_destroy(s.fx.engine);
    s.fx.engine = NULL;
    fx_expect(&s.fx, s.comm, 0, 2ull << 32, OCCL_E_SHUTTING_DOWN, OCCL_RANK_NONE);
    close_stage(&s);
}

static void wrong_calls_have_statuses(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, 1);
    struct occl_engine *engine = s.fx.engine;
    struct occl_engine_job_config job = s.fx.jobs[0].config;
    assert_int_equal(occl_engine_job_add(engine, &job), OCCL_E_BUSY);
    job.job_id = 9;
    assert_int_equal(occl_engine_job_set(engine, &job), OCCL_E_NOT_FOUND);
    job.job_weight = 0;
    assert_int_equal(occl_engine_job_add(engine, &job), OCCL_E_INVALID);
    assert_int_equal(occl_engine_region_add(engine, 1, s.region, s.data, 1), OCCL_E_BUSY);
    assert_int_equal(occl_engine_region_add(engine, 9, 1, s.data, 1), OCCL_E_NOT_FOUND);
    struct occl_engine_session_config session = {.session_id = s.fx.sessions[0].id, .job_id = 1};
    assert_int_equal(occl_engine_session_add(engine, &session), OCCL_E_BUSY);
    session.session_id = 5;
    assert_int_equal(occl_engine_session_add(engine, &session), OCCL_E_INVALID);
    uint64_t ids[1] = {77};
    uint32_t numbers[1] = {1};
    struct occl_engine_comm_config comm = {.comm_uid = 5,
                                           .job_id = 1,
                                           .ranks = 1,
                                           .records = s.comm->records,
                                           .session_ids = ids,
                                           .comm_numbers = numbers};
    assert_int_equal(occl_engine_comm_add(engine, &comm), OCCL_E_INVALID);
    comm.records.ranks = 1;
    assert_int_equal(occl_engine_comm_add(engine, &comm), OCCL_E_NOT_FOUND);
    ids[0] = s.fx.sessions[0].id;
    assert_int_equal(occl_engine_comm_add(engine, &comm), OCCL_E_BUSY);
    occl_engine_comm_remove(engine, 12345);
    occl_engine_session_remove(engine, 12345);
    occl_engine_region_remove(engine, 1, 12345);
    occl_engine_job_remove(engine, 12345);
    close_stage(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_in_the_middle_of_strands),
        cmocka_unit_test(failed_communicator_ends_and_refuses),
        cmocka_unit_test(removed_communicator_page_is_not_touched),
        cmocka_unit_test(removed_region_is_not_touched),
        cmocka_unit_test(unreadable_memory_is_a_fault_of_its_op),
        cmocka_unit_test(cancel_stops_a_running_op),
        cmocka_unit_test(removed_job_takes_everything_along),
        cmocka_unit_test(end_of_the_engine_completes_what_waits),
        cmocka_unit_test(wrong_calls_have_statuses),
    };
    return cmocka_run_group_tests_name("engine_teardown", tests, NULL, NULL);
}
