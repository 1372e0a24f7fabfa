/* SPDX-License-Identifier: Apache-2.0 */
/* What the jobs of a host set out to do, and what befalls their processes: decided by the seed
 * before anything runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm_ipc/datatype.h"
#include "tools/sim/host.h"

#define START_SPREAD_NS 300000u
#define MISHAPS_PERMILLE 400
#define STEPS_MAX 30u
#define TIMEOUT_MAX_NS 20000000u
#define TIMEOUTS_PERMILLE 400
#define FIRST_PID 1000u
#define FIRST_UID 20000u
#define TAG 7u
#define LAZY_PERMILLE 40

/* ---- ops ---- */

int64_t sim_plan_value(const struct sim_host *host, const struct sim_meet_op *op, uint32_t rank,
                       uint32_t element) {
    uint64_t mixed = host->seed ^ (uint64_t)op->key.instance << 40 ^ (uint64_t)op->key.tag << 32 ^
                     (uint64_t)(rank + 1) << 16 ^ element;
    return (int64_t)(mixed * 0x9e3779b97f4a7c15ull >> 20);
}

bool sim_plan_lazy(const struct sim_host *host, uint32_t process, enum sim_lazy what, uint32_t meet,
                   uint32_t which) {
    const struct sim_hjob *job = &host->jobs[host->processes[process].job];
    struct seeded s = {host->seed * 31 + process * 4096 + (uint64_t)what * 1024 + meet * 64 +
                       which};
    return !job->innocent && seeded_permille(&s, LAZY_PERMILLE);
}

/* Few tags, and instances that share a record: some ops find its claim busy and take the ring. */
static void plan_key(struct seeded *s, const struct sim_meet *meet, uint32_t number,
                     struct sim_meet_op *op) {
    op->key = (struct occl_op_key){OCCL_PEERS_ALL, TAG + seeded_below(s, 2), 0};
    if (op->signature.kind == OCCL_OP_RECV) {
        uint32_t source = seeded_below(s, meet->ranks);
        uint32_t target = seeded_below(s, meet->ranks);
        op->key.peers = source << 16 | target;
        op->signature.root = target;
    }
    op->key.instance = number * (seeded_permille(s, 700) ? OCCL_SINGLES : 1);
    op->place = occl_place_of(op->key);
}

static void plan_op(struct seeded *s, const struct sim_meet *meet, uint32_t number,
                    struct sim_meet_op *op) {
    uint32_t kind = seeded_below(s, 10);
    op->signature.kind = OCCL_OP_ALL_REDUCE;
    if (kind < 3)
        op->signature.kind = OCCL_OP_BARRIER;
    else if (kind < 5 && meet->ranks > 1)
        op->signature.kind = OCCL_OP_RECV;
    if (op->signature.kind != OCCL_OP_BARRIER) {
        op->signature.dtype = OCCL_DT_INT64;
        op->signature.count = 1 + seeded_below(s, SIM_SLOT_ELEMENTS);
    }
    if (op->signature.kind == OCCL_OP_ALL_REDUCE)
        op->signature.redop = OCCL_RO_SUM;
    /* One rank to itself needs both halves at once: left to the engine's own tests. */
    do
        plan_key(s, meet, number, op);
    while (op->key.peers != OCCL_PEERS_ALL && op->key.peers >> 16 == (op->key.peers & 0xffffu));
    op->parts = sim_host_allocate(meet->ranks, sizeof *op->parts);
}

static bool key_is_taken(const struct sim_meet *meet, const struct occl_op_key *key) {
    for (uint32_t i = 0; i < meet->op_count; i++) {
        const struct occl_op_key *other = &meet->ops[i].key;
        if (other->peers == key->peers && other->tag == key->tag &&
            other->instance == key->instance)
            return true;
    }
    return false;
}

/* ---- communicators ---- */

static void plan_split(struct seeded *s, const struct sim_meet *meet,
                       struct sim_split_plan *split) {
    split->colors = sim_host_allocate(meet->ranks, sizeof *split->colors);
    split->keys = sim_host_allocate(meet->ranks, sizeof *split->keys);
    split->asked = sim_host_allocate(meet->ranks, sizeof *split->asked);
    for (uint32_t rank = 0; rank < meet->ranks; rank++) {
        split->colors[rank] = (int32_t)seeded_below(s, SIM_COLORS + 1) - 1;
        split->keys[rank] = (int32_t)seeded_below(s, 3) - 1;
    }
}

/* All processes of the job in a random order, or some of them; some hold two ranks. */
static void plan_ranks(struct seeded *s, const struct sim_hjob *job, bool all,
                       struct sim_meet *meet) {
    uint32_t order[SIM_RANKS_MAX], count = 0;
    uint32_t wanted = all ? job->ranks : 1 + seeded_below(s, job->ranks);
    for (uint32_t i = 0; i < job->ranks; i++)
        order[i] = i;
    meet->process_of = sim_host_allocate(2 * wanted, sizeof *meet->process_of);
    for (uint32_t i = 0; i < wanted && count < OCCL_LOCAL_RANKS_MAX; i++) {
        uint32_t pick = i + seeded_below(s, job->ranks - i);
        uint32_t swap = order[i];
        order[i] = order[pick];
        order[pick] = swap;
        meet->process_of[count++] = job->first_process + order[i];
        if (seeded_permille(s, 60) && count < OCCL_LOCAL_RANKS_MAX)
            meet->process_of[count++] = job->first_process + order[i];
    }
    meet->ranks = count;
}

static void plan_meet(struct sim_host *host, struct sim_hjob *job, struct sim_meet *meet) {
    struct seeded *s = &host->seeded;
    uint32_t ops_max = host->options.ops < SIM_MEET_OPS_MAX ? host->options.ops : SIM_MEET_OPS_MAX;
    bool timed = !job->innocent && (host->options.faults & SIM_FAULT_TIMEOUT);
    plan_ranks(s, job, meet == job->meets, meet);
    occl_unique_id_make(&host->clock, &meet->id);
    meet->asked = sim_host_allocate(meet->ranks, sizeof *meet->asked);
    meet->first_due_ns = SIM_NEVER;
    if (timed && seeded_permille(s, TIMEOUTS_PERMILLE))
        meet->timeout_ns = 1 + seeded_below(s, TIMEOUT_MAX_NS);
    uint32_t ops = seeded_below(s, ops_max + 1);
    for (uint32_t i = 0; i < ops; i++) {
        struct sim_meet_op *op = &meet->ops[meet->op_count];
        memset(op, 0, sizeof *op);
        plan_op(s, meet, i, op);
        if (key_is_taken(meet, &op->key))
            free(op->parts);
        else
            meet->op_count++;
    }
    meet->split_count = seeded_below(s, SIM_MEET_SPLITS_MAX + 1);
    for (uint32_t i = 0; i < meet->split_count; i++) {
        plan_split(s, meet, &meet->splits[i]);
        if (timed && seeded_permille(s, TIMEOUTS_PERMILLE))
            meet->splits[i].timeout_ns = 1 + seeded_below(s, TIMEOUT_MAX_NS);
    }
}

/* ---- mishaps ---- */

static enum sim_mishap choose_mishap(struct seeded *s, uint32_t faults) {
    static const struct {
        uint32_t fault;
        enum sim_mishap mishap;
    } all[] = {
        {SIM_FAULT_KILL, SIM_MISHAP_KILLED},  {SIM_FAULT_KILL, SIM_MISHAP_EXITED},
        {SIM_FAULT_EXEC, SIM_MISHAP_EXEC},    {SIM_FAULT_GARBLE, SIM_MISHAP_GARBLED},
        {SIM_FAULT_GARBLE, SIM_MISHAP_MUTE},  {SIM_FAULT_GARBLE, SIM_MISHAP_CORRUPTED},
        {SIM_FAULT_STOP, SIM_MISHAP_STOPPED}, {SIM_FAULT_STOP, SIM_MISHAP_UNKILLABLE},
        {SIM_FAULT_SLOW, SIM_MISHAP_DEAF},
    };
    enum sim_mishap possible[sizeof all / sizeof *all];
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (faults & all[i].fault)
            possible[count++] = all[i].mishap;
    return count && seeded_permille(s, MISHAPS_PERMILLE) ? possible[seeded_below(s, count)]
                                                         : SIM_MISHAP_NONE;
}

static void plan_process(struct sim_host *host, const struct sim_hjob *job,
                         struct sim_process *process, uint32_t rank) {
    struct seeded *s = &host->seeded;
    *process = (struct sim_process){
        .number = job->first_process + rank,
        .job = job->number,
        .rank = rank,
        .fd = -1,
        .bell = -1,
        .daemon_fd = -1,
        .daemon_pidfd = -1,
        .eof_ns = SIM_NEVER,
        .exit_ns = SIM_NEVER,
        .next_request = 1,
        .wake_ns = sim_host_now(host) + seeded_below(s, START_SPREAD_NS),
    };
    process->pid = FIRST_PID + process->number;
    if (!job->innocent) {
        process->mishap = choose_mishap(s, host->options.faults);
        process->mishap_steps = seeded_below(s, STEPS_MAX);
    }
}

/* ---- all of it ---- */

static void plan_job(struct sim_host *host, uint32_t number) {
    struct sim_hjob *job = &host->jobs[number];
    job->number = number;
    job->ranks = host->options.ranks;
    job->first_process = number * job->ranks;
    /* The first of several jobs must notice nothing of what befalls the others. */
    job->innocent = host->options.faults == 0 || (number == 0 && host->options.jobs > 1);
    /* Two jobs of a tenant; the innocent one has a tenant of its own. */
    job->uid = FIRST_UID + (number + 1) / 2;
    (void)snprintf(job->name, sizeof job->name, "job%u", number);
    job->meet_count = 1 + seeded_below(&host->seeded, SIM_MEETS_MAX);
    for (uint32_t i = 0; i < job->meet_count; i++)
        plan_meet(host, job, &job->meets[i]);
    for (uint32_t rank = 0; rank < job->ranks; rank++)
        plan_process(host, job, &host->processes[job->first_process + rank], rank);
}

void sim_plan_make(struct sim_host *host) {
    host->jobs = sim_host_allocate(host->options.jobs, sizeof *host->jobs);
    host->process_count = host->options.jobs * host->options.ranks;
    host->processes = sim_host_allocate(host->process_count, sizeof *host->processes);
    for (uint32_t i = 0; i < host->options.jobs; i++)
        plan_job(host, i);
}

static void free_meet(struct sim_meet *meet) {
    free(meet->process_of);
    free(meet->asked);
    for (uint32_t i = 0; i < meet->op_count; i++)
        free(meet->ops[i].parts);
    for (uint32_t i = 0; i < meet->split_count; i++) {
        free(meet->splits[i].colors);
        free(meet->splits[i].keys);
        free(meet->splits[i].asked);
    }
}

void sim_plan_free(struct sim_host *host) {
    for (uint32_t i = 0; i < host->options.jobs; i++)
        for (uint32_t m = 0; m < host->jobs[i].meet_count; m++)
            free_meet(&host->jobs[i].meets[m]);
    free(host->jobs);
    free(host->processes);
}
