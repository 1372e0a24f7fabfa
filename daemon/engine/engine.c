/* SPDX-License-Identifier: Apache-2.0 */
/* Creation and end of the engine and its lanes. */
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

#define OPS_MAX_LIMIT (1u << 22)
#define CALIBRATION_NS 2000000u
#define DRAIN_ROUNDS_MAX 1000u

static uint64_t arena_bytes(uint32_t ops, uint32_t blocks, uint32_t buckets) {
    return (uint64_t)ops * sizeof(struct occl_eng_op) +
           (uint64_t)blocks * sizeof(struct occl_eng_block) +
           (uint64_t)OCCL_ENG_RUNS * sizeof(struct occl_eng_run) +
           (uint64_t)OCCL_ENG_HELPS * sizeof(struct occl_eng_task) + 8ull * buckets +
           (OCCL_ENG_RUNS + 1) * OCCL_ENG_VECTOR_ROOM * sizeof(uint64_t) +
           4ull * OCCL_ENG_JOBS_MAX + 16 * OCCL_CACHE_LINE_BYTES;
}

/* All memory a lane will ever use. Untouched parts cost address space only, so each lane can hold
 * all ops of the engine. */
static int allocate_lane(struct occl_eng_lane *lane, uint32_t ops_max) {
    uint32_t buckets = 64, blocks = 2 * ops_max;
    while (buckets < 2 * ops_max)
        buckets *= 2;
    int status = occl_arena_create(arena_bytes(ops_max, blocks, buckets), NULL, &lane->arena);
    if (status != OCCL_OK)
        return status;
    struct occl_arena *arena = &lane->arena;
    if (occl_eng_pool_init(&lane->ops, arena, ops_max, sizeof(struct occl_eng_op)) != OCCL_OK ||
        occl_eng_pool_init(&lane->blocks, arena, blocks, sizeof(struct occl_eng_block)) !=
            OCCL_OK ||
        occl_eng_pool_init(&lane->runs, arena, OCCL_ENG_RUNS, sizeof(struct occl_eng_run)) !=
            OCCL_OK ||
        occl_eng_pool_init(&lane->helps, arena, OCCL_ENG_HELPS, sizeof(struct occl_eng_task)) !=
            OCCL_OK)
        return OCCL_E_NO_MEMORY;
    lane->buckets = occl_arena_array(arena, buckets, sizeof *lane->buckets, 64);
    lane->bucket_mask = buckets - 1;
    lane->sched_jobs = occl_arena_array(arena, OCCL_ENG_JOBS_MAX, sizeof *lane->sched_jobs, 64);
    lane->vector_rooms = occl_arena_array(arena, OCCL_ENG_RUNS + 1,
                                          OCCL_ENG_VECTOR_ROOM * sizeof *lane->vector_rooms, 64);
    if (!lane->buckets || !lane->sched_jobs || !lane->vector_rooms)
        return OCCL_E_NO_MEMORY;
    lane->scratch.vector_room = lane->vector_rooms + OCCL_ENG_RUNS * OCCL_ENG_VECTOR_ROOM;
    occl_arena_seal(arena);
    return OCCL_OK;
}

static int init_lane(struct occl_engine *engine, uint32_t index) {
    struct occl_eng_lane *lane = &engine->lanes[index];
    lane->engine = engine;
    lane->index = index;
    lane->bound = engine->config.lane_cpus != NULL;
    if (lane->bound)
        lane->cpu = engine->config.lane_cpus[index];
    occl_parker_init(&lane->parker);
    struct occl_eng_link *lists[] = {&lane->sessions,  &lane->dirty, &lane->wanted,
                                     &lane->running,   &lane->gated, &lane->helping,
                                     &lane->ready_jobs};
    for (uint32_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        occl_eng_list_init(lists[i]);
    int status = allocate_lane(lane, (uint32_t)engine->config.ops_max);
    if (status != OCCL_OK)
        return status;
    struct occl_sched_config sched = {.ops_max = OCCL_ENG_RUNS + OCCL_ENG_HELPS,
                                      .jobs_max = OCCL_ENG_JOBS_MAX,
                                      .ageing_ns = engine->config.ageing_ns,
                                      .patience_min_ns = engine->config.patience_min_ns,
                                      .patience_max_ns = engine->config.patience_max_ns,
                                      .visit_slices_max = 1};
    return occl_sched_create(&sched, &lane->sched);
}

static bool stop_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    (void)call;
    lane->stopping = true;
    return true;
}

/* Submissions that are in the rings already get their completion, too. Bounded, should a client go
 * on submitting. */
static bool drain_step(struct occl_eng_lane *lane, struct occl_eng_call *call) {
    return !occl_eng_intake_pending(lane) || call->rounds == DRAIN_ROUNDS_MAX;
}

static void free_engine(struct occl_engine *engine, uint32_t started) {
    for (uint32_t i = 0; i < started; i++) {
        struct occl_eng_call call = {.step = stop_step};
        (void)occl_eng_call(&engine->lanes[i], &call);
        OCCL_ASSERT(engine->config.driven || pthread_join(engine->lanes[i].thread, NULL) == 0);
    }
    for (uint32_t i = 0; engine->lanes && i < engine->lane_count; i++) {
        occl_sched_destroy(engine->lanes[i].sched);
        occl_arena_destroy(&engine->lanes[i].arena);
    }
    free(engine->lanes);
    free(engine->tenants);
    free(engine->jobs);
    free(engine);
}

static int check_config(const struct occl_engine_config *config) {
    if (config->lanes < 1 || config->lanes > OCCL_ENG_LANES_MAX || config->ops_max > OPS_MAX_LIMIT)
        return OCCL_E_INVALID;
    return OCCL_OK;
}

static int allocate(struct occl_engine *engine) {
    engine->tenants = calloc(OCCL_ENG_JOBS_MAX, sizeof *engine->tenants);
    engine->jobs = calloc(OCCL_ENG_JOBS_MAX, sizeof *engine->jobs);
    engine->lanes =
        aligned_alloc(OCCL_CACHE_LINE_BYTES, engine->lane_count * sizeof *engine->lanes);
    if (!engine->tenants || !engine->jobs || !engine->lanes)
        return OCCL_E_NO_MEMORY;
    memset(engine->lanes, 0, engine->lane_count * sizeof *engine->lanes);
    for (uint32_t i = 0; i < OCCL_ENG_JOBS_MAX; i++)
        engine->jobs[i].slot = i;
    for (uint32_t i = 0; i < engine->lane_count; i++) {
        int status = init_lane(engine, i);
        if (status != OCCL_OK)
            return status;
    }
    return OCCL_OK;
}

int occl_engine_create(const struct occl_engine_config *config, const struct occl_clock *clock,
                       struct occl_log *log, const struct occl_engine_events *events, void *owner,
                       struct occl_engine **out_engine) {
    int status = check_config(config);
    if (status == OCCL_OK)
        status = occl_guard_install();
    if (status != OCCL_OK)
        return status;
    struct occl_engine *engine = aligned_alloc(OCCL_CACHE_LINE_BYTES, sizeof *engine);
    if (!engine)
        return OCCL_E_NO_MEMORY;
    memset(engine, 0, sizeof *engine);
    engine->config = *config;
    engine->clock = clock;
    engine->log = log;
    engine->events = *events;
    engine->owner = owner;
    occl_eng_list_init(&engine->live_jobs);
    engine->lane_count = config->lanes;
    engine->movers = occl_movers_select(0);
    engine->cache_bytes = occl_movers_cache_bytes();
    engine->cores = occl_cores_allowed();
    if (engine->config.ageing_ns == 0)
        engine->config.ageing_ns = 10000000;
    if (engine->config.ops_max == 0)
        engine->config.ops_max = OCCL_QUOTA_OPS;
    occl_ticks_calibrate(clock, CALIBRATION_NS, &engine->scale);
    status = allocate(engine);
    uint32_t started = 0;
    while (status == OCCL_OK && started < engine->lane_count) {
        struct occl_eng_lane *lane = &engine->lanes[started];
        if (!config->driven && pthread_create(&lane->thread, NULL, occl_eng_lane_main, lane) != 0)
            status = OCCL_E_NO_MEMORY;
        else
            started++;
    }
    if (status != OCCL_OK) {
        free_engine(engine, started);
        return status;
    }
    engine->config.lane_cpus = NULL; /* the caller's array; copied into the lanes */
    *out_engine = engine;
    return OCCL_OK;
}

bool occl_engine_turn(struct occl_engine *engine, uint32_t lane) {
    OCCL_ASSERT(engine->config.driven && lane < engine->lane_count);
    return occl_eng_lane_turn(&engine->lanes[lane]);
}

void occl_engine_destroy(struct occl_engine *engine) {
    if (!engine)
        return;
    struct occl_eng_comm *comm, *next_comm;
    HASH_ITER (hh, engine->comm_table, comm, next_comm) {
        occl_engine_comm_fail(engine, comm->uid, OCCL_E_SHUTTING_DOWN, OCCL_RANK_NONE);
    }
    for (uint32_t i = 0; i < engine->lane_count; i++) {
        struct occl_eng_call call = {.step = drain_step};
        (void)occl_eng_call(&engine->lanes[i], &call);
    }
    for (uint32_t i = 0; i < OCCL_ENG_JOBS_MAX; i++) {
        if (engine->jobs[i].used)
            occl_engine_job_remove(engine, engine->jobs[i].id);
    }
    free_engine(engine, engine->lane_count);
}
