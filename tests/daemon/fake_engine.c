/* SPDX-License-Identifier: Apache-2.0 */
/* An engine without lanes, for tests of the control side: it takes whatever it is given, counts it,
 * and aborts the test when something is taken back that it does not have. */
#include "tests/daemon/fake_engine.h"

#include <stdlib.h>
#include <string.h>

#include "shm_ipc/assert.h"

#define OBJECTS_MAX 16384

/* One engine a process, as the tests start one daemon at a time. */
struct occl_engine {
    struct occl_engine_events events;
    void *owner;
    struct fake_engine_counts counts;
    uint64_t jobs[OBJECTS_MAX], sessions[OBJECTS_MAX], comms[OBJECTS_MAX];
    uint64_t regions[OBJECTS_MAX]; /* job << 32 | number */
    struct occl_engine_op_view ops[FAKE_OPS_MAX];
    uint32_t ops_count;
    bool hangs;
};

static struct occl_engine *current;

static void add(uint64_t *table, uint64_t id, uint64_t *count) {
    OCCL_ASSERT(id != 0);
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        OCCL_ASSERT(table[i] != id);
        if (table[i] == 0) {
            table[i] = id;
            ++*count;
            return;
        }
    }
    OCCL_ASSERT(!"room in the fake engine");
}

static void take(uint64_t *table, uint64_t id, uint64_t *count) {
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        if (table[i] != id)
            continue;
        --*count;
        /* Kept dense, so that add finds duplicates. */
        for (; i + 1 < OBJECTS_MAX && table[i]; i++)
            table[i] = table[i + 1];
        return;
    }
    OCCL_ASSERT(!"object known to the fake engine");
}

struct fake_engine_counts fake_engine_counts(void) {
    return current->counts;
}

void fake_engine_fault(uint64_t session_id, int status, const char *reason) {
    current->events.session_fault(current->owner, session_id, status, reason);
}

void fake_engine_set_ops(const struct occl_engine_op_view *ops, uint32_t count) {
    OCCL_ASSERT(count <= FAKE_OPS_MAX);
    memcpy(current->ops, ops, count * sizeof *ops);
    current->ops_count = count;
}

void fake_engine_hang(bool hangs) {
    current->hangs = hangs;
}

int occl_engine_create(const struct occl_engine_config *config, const struct occl_clock *clock,
                       struct occl_log *log, const struct occl_engine_events *events, void *owner,
                       struct occl_engine **out_engine) {
    (void)config;
    (void)clock;
    (void)log;
    struct occl_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return OCCL_E_NO_MEMORY;
    engine->events = *events;
    engine->owner = owner;
    current = engine;
    *out_engine = engine;
    return OCCL_OK;
}

void occl_engine_destroy(struct occl_engine *engine) {
    OCCL_ASSERT(engine->counts.jobs == 0);
    OCCL_ASSERT(engine->counts.sessions == 0);
    OCCL_ASSERT(engine->counts.comms == 0);
    OCCL_ASSERT(engine->counts.regions == 0);
    free(engine);
    current = NULL;
}

int occl_engine_job_add(struct occl_engine *engine, const struct occl_engine_job_config *config) {
    add(engine->jobs, config->job_id, &engine->counts.jobs);
    return OCCL_OK;
}

int occl_engine_job_set(struct occl_engine *engine, const struct occl_engine_job_config *config) {
    engine->counts.job_sets++;
    engine->counts.last_weight = config->job_weight;
    engine->counts.last_class = config->job_class;
    return OCCL_OK;
}

void occl_engine_job_remove(struct occl_engine *engine, uint64_t job_id) {
    take(engine->jobs, job_id, &engine->counts.jobs);
}

int occl_engine_region_add(struct occl_engine *engine, uint64_t job_id, uint32_t region, void *base,
                           uint64_t bytes) {
    OCCL_ASSERT(base != NULL);
    OCCL_ASSERT(bytes > 0);
    add(engine->regions, job_id << 32 | region, &engine->counts.regions);
    return OCCL_OK;
}

void occl_engine_region_remove(struct occl_engine *engine, uint64_t job_id, uint32_t region) {
    take(engine->regions, job_id << 32 | region, &engine->counts.regions);
}

int occl_engine_session_add(struct occl_engine *engine,
                            const struct occl_engine_session_config *config) {
    OCCL_ASSERT(config->page != NULL);
    add(engine->sessions, config->session_id, &engine->counts.sessions);
    return OCCL_OK;
}

void occl_engine_session_remove(struct occl_engine *engine, uint64_t session_id) {
    take(engine->sessions, session_id, &engine->counts.sessions);
}

void occl_engine_kick(struct occl_engine *engine, uint64_t session_id) {
    (void)session_id;
    engine->counts.kicks++;
}

int occl_engine_comm_add(struct occl_engine *engine, const struct occl_engine_comm_config *config) {
    OCCL_ASSERT(config->ranks > 0);
    add(engine->comms, config->comm_uid, &engine->counts.comms);
    engine->counts.last_comm_class = config->priority;
    return OCCL_OK;
}

void occl_engine_comm_fail(struct occl_engine *engine, uint64_t comm_uid, int status,
                           uint32_t about_rank) {
    (void)comm_uid;
    engine->counts.fails++;
    engine->counts.last_fail_status = status;
    engine->counts.last_fail_rank = about_rank;
}

void occl_engine_comm_remove(struct occl_engine *engine, uint64_t comm_uid) {
    take(engine->comms, comm_uid, &engine->counts.comms);
}

uint32_t occl_engine_ops(struct occl_engine *engine, struct occl_engine_op_view *out_ops,
                         uint32_t max) {
    uint32_t count = engine->ops_count < max ? engine->ops_count : max;
    memcpy(out_ops, engine->ops, count * sizeof *out_ops);
    return count;
}

/* In order of the communicators' numbers, as the tests set them. */
uint32_t occl_engine_job_ops(struct occl_engine *engine, uint64_t job_id, uint64_t *inout_comm_uid,
                             uint32_t per_comm, struct occl_engine_op_view *out_ops, uint32_t max) {
    uint32_t count = 0;
    (void)job_id;
    (void)per_comm;
    for (uint32_t i = 0; i < engine->ops_count && count < max; i++)
        if (engine->ops[i].comm_uid >= *inout_comm_uid)
            out_ops[count++] = engine->ops[i];
    *inout_comm_uid = 0;
    return count;
}

bool occl_engine_job_usage(struct occl_engine *engine, uint64_t job_id,
                           struct occl_engine_job_usage *out_usage) {
    (void)engine;
    memset(out_usage, 0, sizeof *out_usage);
    out_usage->job_id = job_id;
    return true;
}

void occl_engine_counters(struct occl_engine *engine, struct occl_engine_counters *out_counters) {
    (void)engine;
    memset(out_counters, 0, sizeof *out_counters);
}

uint64_t occl_engine_meter(struct occl_engine *engine, uint64_t now_ns) {
    (void)engine;
    (void)now_ns;
    return 0;
}

bool occl_engine_lane_moves(const struct occl_engine *engine, uint32_t lane, uint64_t *inout_beat) {
    (void)lane;
    *inout_beat += !engine->hangs;
    return !engine->hangs;
}
