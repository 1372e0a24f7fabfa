/* SPDX-License-Identifier: Apache-2.0 */
/* One run: the daemon, rounds on a virtual clock, rest, and the end. */
#include "tools/sim/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ROUNDS_MAX 200000u
#define STEP_NS 4000u
/* Longer than every gap of the daemon's own timers: then nothing will come of them. */
#define QUIET_NS 1500000000u
#define SKIP_PERMILLE 250
#define UNREAD_PERMILLE 300
#define JUMP_PERMILLE 3
#define JUMP_MAX_NS 300000000u
/* All jumps together stay below the time that a handshake may take. */
#define JUMPS_TOTAL_NS 900000000u
#define HANDSHAKE_NS 1000000000u
#define DRAIN_NS 60000000u
#define UNKILLABLE_NS 60000000u
#define TERM_MAX_NS 2500000u
#define FOLDER_BASE_MAX 40u
#define TERM_EARLY_NS 350000u
#define SENDQUEUE_BYTES 16384u

void *sim_host_allocate(size_t count, size_t bytes) {
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (!memory)
        abort();
    return memory;
}

void sim_host_broken(struct sim_host *host, const char *format, ...) {
    va_list args;
    if (host->result.broken[0] != '\0')
        return;
    va_start(args, format);
    (void)vsnprintf(host->result.broken, sizeof host->result.broken, format, args);
    va_end(args);
}

static void mix(struct sim_host *host, uint64_t value) {
    host->result.trace = (host->result.trace ^ value) * 0x100000001b3ull;
    host->result.trace ^= host->result.trace >> 29;
}

void sim_host_note(struct sim_host *host, uint32_t what, uint64_t a, uint64_t b) {
    mix(host, sim_host_now(host));
    mix(host, what);
    mix(host, a);
    mix(host, b);
    if (host->options.verbose)
        printf("  %12llu what %u: %llu %llx\n", (unsigned long long)sim_host_now(host), what,
               (unsigned long long)a, (unsigned long long)b);
}

/* ---- creation ---- */

static void drop_line(void *self, enum occl_log_level level, const char *line, size_t bytes) {
    struct sim_host *host = self;
    (void)level;
    if (host->options.verbose)
        printf("  %.*s\n", (int)bytes, line);
}

/* Private buffers up to this, and what each process then has room for: whole units. */
#define COPY_MAX_BYTES (128u << 10)
#define ROOM_BYTES ((uint64_t)OCCL_ROOM_COPIES * COPY_MAX_BYTES)

/* Pages and regions of a job. */
static uint64_t bytes_of_job(const struct sim_host *host, const struct sim_hjob *job) {
    struct occl_session_shape shape;
    struct occl_comm_page page;
    occl_session_shape_choose(SIM_SQ_ENTRIES, &shape);
    uint64_t bytes = OCCL_PAGE_BYTES + host->options.ranks * (shape.page_bytes + SIM_REGION_BYTES);
    for (uint32_t m = 0; m < job->meet_count; m++) {
        occl_comm_page_layout(job->meets[m].ranks, 1, &page);
        bytes += page.page_bytes * (1 + job->meets[m].split_count * SIM_COLORS);
    }
    return bytes;
}

/* Few of everything, so that there is not enough for the jobs with faults; the innocent job's
 * tenant needs no more than this. */
static void narrow_quotas(struct sim_host *host, struct occl_config *config) {
    struct seeded *s = &host->seeded;
    uint32_t ranks = host->options.ranks;
    config->quota_sessions = ranks + seeded_below(s, ranks);
    config->quota_communicators =
        SIM_MEETS_MAX * (1 + SIM_MEET_SPLITS_MAX * SIM_COLORS) + seeded_below(s, 4);
    config->quota_regions = ranks;
    config->quota_ops = SIM_MEETS_MAX * SIM_MEET_OPS_MAX;
    uint64_t bytes = bytes_of_job(host, &host->jobs[0]);
    if (!host->jobs[0].innocent) { /* nobody needs all of it */
        bytes = OCCL_PAGE_BYTES + seeded_next(s) % bytes;
        config->quota_ops = 1 + seeded_below(s, 4);
    } else {
        bytes += ranks * ROOM_BYTES;
    }
    config->quota_registered_bytes = bytes;
}

static void configure(struct sim_host *host, struct occl_config *config) {
    struct occl_config_origins origins;
    struct occl_detail detail;
    occl_config_defaults(config, &origins);
    (void)snprintf(config->socket, sizeof config->socket, "%s", host->socket);
    config->handshake_timeout_ns = HANDSHAKE_NS;
    config->drain_timeout_ns = DRAIN_NS;
    config->unkillable_after_ns = UNKILLABLE_NS;
    config->ops_max = 4096;
    config->copy_max_bytes = COPY_MAX_BYTES;
    if (host->options.faults & SIM_FAULT_SLOW)
        config->send_queue_bytes = SENDQUEUE_BYTES;
    if (host->options.faults & SIM_FAULT_QUOTA)
        narrow_quotas(host, config);
    if (occl_config_settle(1ull << 34, config, &detail) != OCCL_OK)
        sim_host_broken(host, "configuration: %s", detail.text);
}

/* SIGTERM reaches the daemon as a readable descriptor in the middle of a round. */
static void term_ready(struct occl_watch *watch, uint32_t events) {
    struct sim_host *host = watch->owner;
    uint64_t count;
    (void)events;
    if (read(watch->fd, &count, sizeof count) != (ssize_t)sizeof count)
        return;
    sim_host_note(host, 12, count, 0);
    if (!host->drained_ns)
        host->drained_ns = sim_host_now(host);
    occl_daemon_stop(host->daemon);
}

static bool start_daemon(struct sim_host *host) {
    struct occl_config config;
    struct occl_detail detail;
    struct occl_identity identity = sim_kernel_identity(host);
    struct occl_log_config log = {.level = host->options.verbose ? OCCL_LOG_LEVEL_DEBUG
                                                                 : OCCL_LOG_LEVEL_ERROR,
                                  .format = OCCL_LOG_FORMAT_TEXT,
                                  .fd = 2,
                                  .clock = &host->clock,
                                  .write = drop_line,
                                  .self = host};
    occl_log_init(&host->log, &log);
    configure(host, &config);
    host->lanes = 1 + seeded_below(&host->seeded, SIM_HOST_LANES_MAX);
    struct occl_daemon_options options = {.config = &config,
                                          .clock = &host->clock,
                                          .log = &host->log,
                                          .loop_ops = &host->kernel.loop_ops,
                                          .identity = &identity,
                                          .driven_lanes = host->lanes};
    if (occl_daemon_create(&options, &host->daemon, &detail) != OCCL_OK) {
        sim_host_broken(host, "start: %s", detail.text);
        return false;
    }
    host->signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    host->signal_watch = (struct occl_watch){host->signal_fd, term_ready, host, 0};
    if (occl_loop_watch_add(host->daemon->loop, &host->signal_watch, OCCL_LOOP_READABLE) != OCCL_OK)
        abort();
    host->term_ns = host->second_term_ns = SIM_NEVER;
    /* With all other faults: not so often that they never come to it. */
    uint32_t permille = host->options.faults == SIM_FAULT_ALL ? 350 : 800;
    if (host->options.faults & SIM_FAULT_DRAIN && seeded_permille(&host->seeded, permille)) {
        /* Half of them while processes attach. */
        uint32_t within = seeded_permille(&host->seeded, 500) ? TERM_MAX_NS : TERM_EARLY_NS;
        host->term_ns = sim_host_now(host) + seeded_below(&host->seeded, within);
        if (seeded_permille(&host->seeded, 500))
            host->second_term_ns = host->term_ns + seeded_below(&host->seeded, TERM_MAX_NS);
    }
    return true;
}

/* ---- one round: each in turn, in a random order ---- */

static void send_terms(struct sim_host *host) {
    uint64_t one = 1, now = sim_host_now(host);
    uint64_t *due[2] = {&host->term_ns, &host->second_term_ns};
    for (int i = 0; i < 2; i++)
        if (*due[i] <= now && !host->daemon_over) {
            *due[i] = SIM_NEVER;
            host->progress = true;
            if (write(host->signal_fd, &one, sizeof one) != (ssize_t)sizeof one)
                abort();
        }
}

static void move_daemon(struct sim_host *host) {
    if (host->daemon_over)
        return;
    bool goes_on = occl_daemon_step(host->daemon, UINT64_MAX);
    if (host->kernel.reported)
        host->progress = true;
    sim_check_jobs(host);
    if (goes_on)
        return;
    (void)occl_daemon_step(host->daemon, 0); /* takes down whom the end has found */
    host->daemon_over = true;
    host->progress = true;
    host->kernel.due_ns = host->term_ns = host->second_term_ns = SIM_NEVER;
    sim_host_note(host, 13, 0, 0);
}

static void move_lane(struct sim_host *host, uint32_t lane) {
    if (occl_engine_turn(host->daemon->engine, lane))
        host->progress = true;
}

static void move_process(struct sim_host *host, struct sim_process *process, bool all) {
    uint64_t now = sim_host_now(host);
    sim_kernel_tick(host, process);
    if (process->exiting || process->phase == SIM_OVER || process->stopped_until_ns > now)
        return;
    /* Its reader may not have come to it. */
    if (process->fd >= 0 && (all || !seeded_permille(&host->seeded, UNREAD_PERMILLE)))
        sim_process_receive(host, process);
    if (process->phase == SIM_ATTACHED && !process->exiting)
        sim_ops_look(host, process);
    if (process->wake_ns <= now && process->phase != SIM_OVER && !process->exiting) {
        sim_conduct_act(host, process);
        host->progress = true;
    }
}

static void round_once(struct sim_host *host, uint32_t *order, bool all) {
    struct seeded *s = &host->seeded;
    uint32_t actors = host->process_count + 1 + host->lanes;
    send_terms(host);
    for (uint32_t i = actors - 1; i > 0; i--) {
        uint32_t other = seeded_below(s, i + 1), swap = order[i];
        order[i] = order[other];
        order[other] = swap;
    }
    for (uint32_t i = 0; i < actors; i++) {
        uint32_t actor = order[i];
        if (!all && seeded_permille(s, SKIP_PERMILLE))
            continue;
        if (actor < host->process_count)
            move_process(host, &host->processes[actor], all);
        else if (actor == host->process_count)
            move_daemon(host);
        else
            move_lane(host, actor - host->process_count - 1);
    }
    host->result.rounds++;
}

/* ---- time ---- */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t next_due(const struct sim_host *host) {
    uint64_t now = sim_host_now(host);
    uint64_t due = least(host->term_ns, host->second_term_ns);
    if (!host->daemon_over)
        due = least(due, host->kernel.due_ns);
    for (uint32_t i = 0; i < host->process_count; i++) {
        const struct sim_process *p = &host->processes[i];
        due = least(due, least(p->eof_ns, p->exit_ns));
        if (p->phase == SIM_OVER || p->exiting)
            continue;
        due = least(due, p->wake_ns > p->stopped_until_ns ? p->wake_ns : p->stopped_until_ns);
        if (p->deaf_until_ns > now)
            due = least(due, p->deaf_until_ns);
        if (p->stopped_until_ns > now)
            due = least(due, p->stopped_until_ns);
    }
    return due;
}

/* Deadlines of ops are looked at by their processes. */
static uint64_t next_deadline(const struct sim_host *host) {
    uint64_t due = SIM_NEVER;
    for (uint32_t j = 0; j < host->options.jobs; j++)
        for (uint32_t m = 0; m < host->jobs[j].meet_count; m++) {
            const struct sim_meet *meet = &host->jobs[j].meets[m];
            for (uint32_t o = 0; o < meet->op_count; o++)
                for (uint32_t rank = 0; rank < meet->ranks; rank++) {
                    const struct sim_part *part = &meet->ops[o].parts[rank];
                    if ((part->phase == SIM_PART_RECORD || part->phase == SIM_PART_RING) &&
                        part->deadline_ns > sim_host_now(host))
                        due = least(due, part->deadline_ns);
                }
        }
    return due;
}

static void advance_to(struct sim_host *host, uint64_t due_ns) {
    uint64_t now = sim_host_now(host);
    if (due_ns > now)
        occl_clock_virtual_advance(&host->time, due_ns - now);
}

/* Time goes on: a little while something happens, else to what is due next. False: at rest. */
static bool pass_time(struct sim_host *host, bool all) {
    struct seeded *s = &host->seeded;
    uint64_t now = sim_host_now(host);
    if (host->progress) {
        host->quiet_since_ns = now;
        occl_clock_virtual_advance(&host->time, seeded_below(s, STEP_NS));
        uint64_t jump = seeded_below(s, JUMP_MAX_NS);
        if (host->options.faults & SIM_FAULT_TIMEOUT && seeded_permille(s, JUMP_PERMILLE) &&
            host->jumped_ns + jump < JUMPS_TOTAL_NS) {
            host->jumped_ns += jump;
            occl_clock_virtual_advance(&host->time, jump);
        }
        return true;
    }
    if (!all)
        return true;
    uint64_t due = least(next_due(host), next_deadline(host));
    if (due == SIM_NEVER || due > host->quiet_since_ns + QUIET_NS)
        return false;
    advance_to(host, due);
    return true;
}

/* Until nothing moves any more. */
static void run_to_rest(struct sim_host *host, uint32_t *order) {
    uint64_t first = host->result.rounds;
    bool all = false, goes_on = true;
    host->quiet_since_ns = sim_host_now(host);
    while (goes_on && host->result.broken[0] == '\0') {
        host->progress = false;
        round_once(host, order, all);
        if (!host->daemon_over)
            sim_check_deaths(host);
        goes_on = pass_time(host, all);
        all = !host->progress;
        if (host->result.rounds - first > ROUNDS_MAX)
            sim_host_broken(host, "no rest after %u rounds", ROUNDS_MAX);
    }
}

/* ---- the end ---- */

static void close_all(struct sim_host *host) {
    host->closing = true;
    for (uint32_t i = 0; i < host->process_count; i++) {
        struct sim_process *p = &host->processes[i];
        if (!sim_process_lives(p))
            continue;
        p->mishap = SIM_MISHAP_NONE;
        p->wake_ns = sim_host_now(host) + seeded_below(&host->seeded, TERM_MAX_NS);
    }
}

static void release_processes(struct sim_host *host) {
    for (uint32_t i = 0; i < host->process_count; i++)
        sim_process_free(host, &host->processes[i]);
    for (uint32_t i = 0; i < host->comm_count; i++) {
        if (host->comms[i]->records.base)
            occl_memfd_unmap(host->comms[i]->records.base, host->comms[i]->records.page_bytes);
        free(host->comms[i]->seats);
        free(host->comms[i]);
    }
    free(host->comms);
    host->comm_count = 0;
}

static void check_descriptors(struct sim_host *host, uint32_t before) {
    uint32_t now = sim_check_descriptors();
    if (host->result.broken[0] == '\0' && now != before)
        sim_host_broken(host, "left behind: %d descriptors", (int)now - (int)before);
}

static void live(struct sim_host *host) {
    uint32_t actors = host->process_count + 1 + host->lanes;
    uint32_t *order = sim_host_allocate(actors, sizeof *order);
    uint32_t descriptors = sim_check_descriptors();
    for (uint32_t i = 0; i < actors; i++)
        order[i] = i;
    run_to_rest(host, order);
    if (host->result.broken[0] == '\0')
        sim_check_rest(host);
    if (host->result.broken[0] == '\0') {
        close_all(host);
        run_to_rest(host, order);
    }
    free(order);
    for (uint32_t i = 0; i < host->process_count && host->result.broken[0] == '\0'; i++)
        if (host->processes[i].phase != SIM_OVER)
            sim_host_broken(host, "no progress: process %u does not come to its end", i);
    if (host->result.broken[0] == '\0')
        sim_check_empty(host);
    release_processes(host);
    /* Whoever connected in its last round is sent away when it is destroyed. */
    if (!host->daemon_over)
        check_descriptors(host, descriptors);
}

bool sim_host_run(const struct sim_options *options, uint64_t seed,
                  struct sim_host_result *out_result) {
    struct sim_host *host = sim_host_allocate(1, sizeof *host);
    host->options = *options;
    host->seed = seed;
    host->seeded.state = seed * 0x9e3779b97f4a7c15ull + 1;
    host->clock = occl_clock_virtual_init(&host->time, seed);
    host->result.trace = 0xcbf29ce484222325ull;
    /* A socket's path has 107 bytes at most. */
    const char *base = options->folder;
    (void)snprintf(host->folder, sizeof host->folder, "%s/occl-sim-XXXXXX",
                   base && strlen(base) <= FOLDER_BASE_MAX ? base : "/tmp");
    if (!mkdtemp(host->folder))
        abort();
    (void)snprintf(host->socket, sizeof host->socket, "%s/s", host->folder);
    uint64_t started_ns = sim_host_now(host);
    uint32_t descriptors = sim_check_descriptors();
    sim_plan_make(host);
    sim_kernel_open(host);
    if (start_daemon(host)) {
        live(host);
        occl_loop_watch_remove(host->daemon->loop, &host->signal_watch);
        (void)close(host->signal_fd);
        occl_daemon_destroy(host->daemon);
    }
    check_descriptors(host, descriptors);
    if (rmdir(host->folder) < 0)
        sim_host_broken(host, "left behind: something in %s", host->folder);
    host->result.virtual_ns = sim_host_now(host) - started_ns;
    sim_kernel_close(host);
    sim_plan_free(host);
    *out_result = host->result;
    free(host);
    return out_result->broken[0] == '\0';
}
