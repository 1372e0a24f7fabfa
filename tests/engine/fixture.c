/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/engine/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void on_fault(void *owner, uint64_t session_id, int status, const char *reason) {
    struct fx *fx = owner;
    (void)reason;
    occl_note64(&fx->faulted_session, session_id);
    occl_note64(&fx->fault_status, (uint64_t)-status);
    (void)occl_add64(&fx->faults, 1);
}

static void on_log(void *self, enum occl_log_level level, const char *line, size_t bytes) {
    struct fx *fx = self;
    (void)level;
    (void)line;
    (void)bytes;
    (void)occl_add64(&fx->log_lines, 1);
}

void fx_open(struct fx *fx, const struct fx_options *options) {
    static const struct occl_engine_events events = {on_fault};
    memset(fx, 0, sizeof *fx);
    pthread_mutex_init(&fx->control, NULL);
    fx->clock = occl_clock_system(occl_ticks_source_probe());
    struct occl_log_config log = {
        .level = OCCL_LOG_LEVEL_WARN, .clock = &fx->clock, .write = on_log, .self = fx};
    occl_log_init(&fx->log, &log);
    struct occl_engine_config config = {.lanes = options->lanes ? options->lanes : 2,
                                        .lane_cpus = options->cpus,
                                        .ordered = options->ordered,
                                        .ageing_ns = options->ageing_ns,
                                        .ops_max = options->ops_max ? options->ops_max : 4096};
    assert_int_equal(occl_engine_create(&config, &fx->clock, &fx->log, &events, fx, &fx->engine),
                     OCCL_OK);
}

void fx_close(struct fx *fx) {
    occl_engine_destroy(fx->engine);
    for (uint32_t i = 0; i < fx->session_count; i++)
        free(fx->sessions[i].memory);
    for (uint32_t i = 0; i < fx->comm_count; i++)
        free(fx->comms[i].memory);
    for (uint32_t i = 0; i < fx->job_count; i++)
        free(fx->jobs[i].page);
    pthread_mutex_destroy(&fx->control);
}

static void *zeroed_pages(uint64_t bytes) {
    void *memory = aligned_alloc(OCCL_PAGE_BYTES,
                                 (bytes + OCCL_PAGE_BYTES - 1) & ~(uint64_t)(OCCL_PAGE_BYTES - 1));
    assert_non_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

struct fx_job *fx_job(struct fx *fx, uint64_t id, uint64_t tenant, uint32_t job_class,
                      uint32_t weight, uint64_t quota) {
    assert_true(fx->job_count < FX_JOBS);
    struct fx_job *job = &fx->jobs[fx->job_count++];
    job->id = id;
    job->next_region = 1;
    job->page = zeroed_pages(sizeof *job->page);
    job->config = (struct occl_engine_job_config){.job_id = id,
                                                  .tenant_id = tenant,
                                                  .job_class = job_class,
                                                  .job_weight = weight,
                                                  .tenant_weight = 1,
                                                  .ops_quota = quota,
                                                  .page = job->page};
    assert_int_equal(occl_engine_job_add(fx->engine, &job->config), OCCL_OK);
    return job;
}

uint32_t fx_session(struct fx *fx, uint64_t job_id, uint32_t sq_entries, uint32_t cq_entries) {
    assert_true(fx->session_count < FX_SESSIONS);
    uint32_t index = fx->session_count++;
    struct fx_session *s = &fx->sessions[index];
    struct occl_engine_session_config config = {.session_id = 1000 + index,
                                                .job_id = job_id,
                                                .sq_entries = sq_entries,
                                                .cq_entries = cq_entries};
    config.sq_offset = sizeof(struct occl_session_page);
    config.cq_offset = config.sq_offset + sq_entries * (uint32_t)sizeof(struct occl_sqe);
    uint64_t bytes = config.cq_offset + (uint64_t)cq_entries * sizeof(struct occl_cqe);
    s->memory = zeroed_pages(bytes);
    s->page = s->memory;
    s->id = config.session_id;
    s->job_id = job_id;
    config.page = s->page;
    struct occl_ring_place sq = occl_sq_place(s->page, config.sq_offset, sq_entries);
    struct occl_ring_place cq = occl_cq_place(s->page, config.cq_offset, cq_entries);
    occl_ring_producer_init(&s->sq, &sq);
    occl_ring_consumer_init(&s->cq, &cq);
    assert_int_equal(occl_engine_session_add(fx->engine, &config), OCCL_OK);
    return index;
}

struct fx_comm *fx_comm(struct fx *fx, uint64_t job_id, uint32_t first, uint32_t ranks) {
    assert_true(fx->comm_count < FX_COMMS);
    struct fx_comm *comm = &fx->comms[fx->comm_count++];
    struct occl_comm_page header;
    uint64_t ids[64];
    comm->uid = 100 + fx->comm_count;
    comm->job_id = job_id;
    comm->ranks = ranks;
    occl_comm_page_layout(ranks, comm->uid, &header);
    comm->memory = zeroed_pages(header.page_bytes);
    memcpy(comm->memory, &header, sizeof header);
    assert_int_equal(occl_records_open(comm->memory, header.page_bytes, &comm->records), OCCL_OK);
    for (uint32_t r = 0; r < ranks; r++) {
        comm->sessions[r] = first + r;
        comm->numbers[r] = ++fx->sessions[first + r].next_comm;
        ids[r] = fx->sessions[first + r].id;
    }
    struct occl_engine_comm_config config = {.comm_uid = comm->uid,
                                             .job_id = job_id,
                                             .ranks = ranks,
                                             .priority = 255,
                                             .records = comm->records,
                                             .session_ids = ids,
                                             .comm_numbers = comm->numbers};
    assert_int_equal(occl_engine_comm_add(fx->engine, &config), OCCL_OK);
    return comm;
}

struct fx_comm *fx_simple(struct fx *fx, uint32_t ranks) {
    (void)fx_job(fx, 1, 1, 1, 1, 4096);
    uint32_t first = fx->session_count;
    for (uint32_t r = 0; r < ranks; r++)
        (void)fx_session(fx, 1, 64, 1024);
    return fx_comm(fx, 1, first, ranks);
}

void *fx_region(struct fx *fx, uint64_t job_id, uint64_t bytes, uint32_t *out_region) {
    struct fx_job *job = fx->jobs;
    while (job->id != job_id)
        job++;
    void *memory = zeroed_pages(bytes);
    *out_region = job->next_region++;
    assert_int_equal(occl_engine_region_add(fx->engine, job_id, *out_region, memory, bytes),
                     OCCL_OK);
    return memory;
}

struct occl_op_key fx_key(uint32_t tag, uint32_t instance) {
    return (struct occl_op_key){OCCL_PEERS_ALL, tag, instance};
}

struct occl_sqe fx_all_reduce(const struct fx_comm *comm, uint32_t rank, struct occl_op_key key,
                              uint64_t count, uint32_t region, uint64_t src, uint64_t dst) {
    return (struct occl_sqe){
        .verb = OCCL_SQE_SUBMIT,
        .priority = 255,
        .comm = comm->numbers[rank],
        .key = key,
        .signature = {.kind = OCCL_OP_ALL_REDUCE,
                      .dtype = OCCL_DT_INT32,
                      .redop = OCCL_RO_SUM,
                      .count = count},
        .src = {OCCL_SPACE_REGION, region, src},
        .dst = {OCCL_SPACE_REGION, region, dst},
        .user_data = ((uint64_t)key.tag << 32) + key.instance,
    };
}

void fx_push(struct fx *fx, uint32_t session, const struct occl_sqe *sqe) {
    struct fx_session *s = &fx->sessions[session];
    struct occl_sqe entry = *sqe;
    uint32_t freed;
    entry.submit_ticks = occl_ticks(fx->clock.ticks_source);
    while (occl_sq_push(&s->sq, &entry) != OCCL_OK) {
        assert_int_equal(occl_ring_producer_refresh(&s->sq, &freed), OCCL_OK);
        if (!freed)
            occl_clock_sleep_ns(&fx->clock, 10000);
    }
    occl_ring_publish(&s->sq);
    if (!occl_doorbell_needed(&s->page->daemon_sleeping))
        return;
    pthread_mutex_lock(&fx->control);
    occl_engine_kick(fx->engine, s->id);
    pthread_mutex_unlock(&fx->control);
}

void fx_submit(struct fx *fx, const struct fx_comm *comm, uint32_t rank,
               const struct occl_sqe *sqe) {
    fx_push(fx, comm->sessions[rank], sqe);
}

bool fx_poll(struct fx *fx, uint32_t session, struct occl_cqe *out_cqe) {
    struct fx_session *s = &fx->sessions[session];
    if (occl_cq_pop(&s->cq, out_cqe) != OCCL_OK)
        return false;
    occl_ring_release(&s->cq);
    return true;
}

bool fx_wait(struct fx *fx, uint32_t session, uint64_t timeout_ns, struct occl_cqe *out_cqe) {
    uint64_t until = fx_now_ns() + timeout_ns;
    struct occl_session_page *page = fx->sessions[session].page;
    for (;;) {
        uint32_t bell = occl_observe32(&page->cq_bell);
        if (fx_poll(fx, session, out_cqe))
            return true;
        if (fx_now_ns() > until)
            return false;
        (void)occl_word_sleep(&page->cq_bell, bell, &page->cq_sleepers, 1000000);
    }
}

void fx_expect(struct fx *fx, const struct fx_comm *comm, uint32_t rank, uint64_t user_data,
               int status, uint32_t about_rank) {
    struct occl_cqe cqe = {0};
    assert_true(fx_wait(fx, comm->sessions[rank], fx_patience_ns(), &cqe));
    assert_int_equal(cqe.user_data, user_data);
    assert_int_equal(cqe.status, status);
    assert_int_equal(cqe.about_rank, about_rank);
}

void fx_expect_nothing(struct fx *fx, const struct fx_comm *comm, uint32_t rank) {
    struct occl_cqe cqe;
    assert_false(fx_wait(fx, comm->sessions[rank], 20000000, &cqe));
}

uint64_t fx_now_ns(void) {
    return occl_ticks_monotonic_ns();
}

uint64_t fx_patience_ns(void) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return 60 * FX_SECOND;
#else
    return 20 * FX_SECOND;
#endif
}

bool fx_until(struct fx *fx, bool (*cond)(struct fx *fx)) {
    uint64_t until = fx_now_ns() + fx_patience_ns();
    while (!cond(fx)) {
        if (fx_now_ns() > until)
            return false;
        occl_clock_sleep_ns(&fx->clock, 100000);
    }
    return true;
}

uint64_t fx_random(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}
