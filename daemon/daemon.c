/* SPDX-License-Identifier: Apache-2.0 */
/* The composition root: creates the parts, runs rounds, and ends them in order. Ending has two
 * steps: draining (no new work is taken, what runs may finish, bounded by drain_timeout), then the
 * end of every communicator and session. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/occld.h"
#include "shm_ipc/guard.h"

#define MAILBOX_ENTRIES 8192
#define CALIBRATION_NS 2000000ull
#define DRAIN_LOOK_NS 20000000ull
/* Two looks apart in time: an op between two records of one rank is not missed. */
#define DRAIN_QUIET_LOOKS 3
/* A private daemon that nobody attaches to. */
#define PRIVATE_ALONE_NS 60000000000ull

/* ---- from lanes ---- */

static void lane_fault(void *owner, uint64_t session_id, int status, const char *reason) {
    struct occl_daemon *daemon = owner;
    struct occl_mail mail = {session_id, status, reason};
    if (!occl_mailbox_post(daemon->mailbox, &mail))
        OCCL_LOG_ERROR(daemon->log, "daemon", "session %llu: its fault (%s) found no room",
                       (unsigned long long)(session_id >> 16), reason);
}

static void mail_ready(struct occl_watch *watch, uint32_t events) {
    struct occl_daemon *daemon = watch->owner;
    struct occl_mail mail;
    (void)events;
    occl_mailbox_open(daemon->mailbox);
    for (uint32_t i = 0; i < MAILBOX_ENTRIES && occl_mailbox_take(daemon->mailbox, &mail); i++) {
        struct occl_session *session = occl_session_find(daemon, mail.session_id);
        if (session)
            occl_session_end(session, OCCL_CAUSE_QUARANTINED, "%s: %s",
                             occl_status_name(mail.status), mail.reason);
    }
}

/* ---- the end ---- */

static void end_everything(struct occl_daemon *daemon) {
    struct occl_session *session;
    struct occl_session *next;
    occl_supervise_ending(daemon, 0);
    occl_rendezvous_refuse_all(daemon);
    occl_comm_end_all(daemon);
    HASH_ITER (in_daemon, daemon->sessions, session, next) {
        occl_session_end(session, OCCL_CAUSE_SHUTDOWN, "the daemon shuts down");
    }
    daemon->stopping = true;
}

static bool job_has_work(struct occl_job *job) {
    struct occl_daemon *daemon = job->tenant->daemon;
    struct occl_engine_op_view view;
    struct occl_comm *comm;
    uint64_t uid = 1;
    while (uid)
        if (occl_engine_job_ops(daemon->engine, job->id, &uid, 1, &view, 1))
            return true;
    TAILQ_FOREACH(comm, &job->comms, in_job)
    if (comm->state == OCCL_COMM_LIVE && occl_opview_any(comm))
        return true;
    return false;
}

static bool work_is_left(struct occl_daemon *daemon) {
    struct occl_job *job;
    struct occl_job *next;
    HASH_ITER (in_daemon, daemon->jobs, job, next) {
        if (job_has_work(job))
            return true;
    }
    return false;
}

static void drain_look(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    uint64_t now = occl_loop_now_ns(daemon->loop);
    if (work_is_left(daemon))
        daemon->quiet_looks = 0;
    else
        daemon->quiet_looks++;
    if (daemon->quiet_looks >= DRAIN_QUIET_LOOKS || now >= daemon->drain_deadline_ns ||
        daemon->rank_sessions == 0 ||
        occl_loop_timer_set(daemon->loop, timer, now + DRAIN_LOOK_NS) != OCCL_OK)
        end_everything(daemon);
}

static void begin_drain(struct occl_daemon *daemon) {
    struct occl_session *session;
    struct occl_session *next;
    uint64_t now = occl_loop_now_ns(daemon->loop);
    occl_supervise_ending(daemon, daemon->config.drain_timeout_ns);
    OCCL_LOG_INFO(daemon->log, "daemon", "draining: %u processes are attached",
                  daemon->rank_sessions);
    daemon->draining = true;
    daemon->drain_deadline_ns = now + daemon->config.drain_timeout_ns;
    occl_rendezvous_refuse_all(daemon);
    HASH_ITER (in_daemon, daemon->sessions, session, next) {
        /* Without a page: its HELLO was refused in this round. */
        if (!session->job || !session->page)
            continue;
        occl_publish32(&session->page->session_state, OCCL_SESSION_DRAINING);
        occl_session_event(session, OCCL_EVENT_SHUTDOWN, 0, OCCL_RANK_NONE, (uint32_t)getpid(),
                           OCCL_E_SHUTTING_DOWN, "the daemon is shutting down");
    }
    drain_look(&daemon->drain_timer);
}

void occl_daemon_stop(struct occl_daemon *daemon) {
    if (!daemon->draining)
        begin_drain(daemon);
    else
        end_everything(daemon);
}

/* A connected launcher stands for a job that has not attached yet: two launchers share a private
 * daemon, and the job of one may end while the other starts its ranks. */
static bool has_launcher(const struct occl_daemon *daemon) {
    const struct occl_session *session;
    TAILQ_FOREACH(session, &daemon->admins, in_list)
    if (strcmp(session->program, OCCL_LAUNCHER_PROGRAM) == 0)
        return true;
    return false;
}

void occl_daemon_check_end(struct occl_daemon *daemon) {
    if (daemon->draining && daemon->rank_sessions == 0 && !daemon->stopping)
        end_everything(daemon);
    if (daemon->private_mode && (daemon->next_job || daemon->launcher_seen) &&
        daemon->job_count == 0 && !has_launcher(daemon) && !daemon->stopping) {
        OCCL_LOG_INFO(daemon->log, "daemon", "the last job has ended: a private daemon ends too");
        end_everything(daemon);
    }
}

static void private_alone(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    if (daemon->next_job == 0 && !has_launcher(daemon))
        end_everything(daemon);
}

/* ---- signals and reload ---- */

void occl_daemon_reload(struct occl_daemon *daemon) {
    struct occl_config *fresh = malloc(sizeof *fresh);
    struct occl_config_origins *origins = malloc(sizeof *origins);
    struct occl_detail detail;
    uint32_t changed = 0;
    uint32_t fixed = 0;
    enum occl_log_level level;
    if (!fresh || !origins)
        goto done;
    occl_supervise_reloading(daemon);
    occl_config_defaults(fresh, origins);
    if (occl_config_load(&daemon->sources, fresh, origins, &detail) != OCCL_OK ||
        occl_config_settle(occl_placement_memory_bytes(), fresh, &detail) != OCCL_OK) {
        OCCL_LOG_ERROR(daemon->log, "daemon", "reload: %s; the old values stay", detail.text);
        goto reloaded;
    }
    occl_config_reload(fresh, origins, &daemon->config, &daemon->origins, &changed, &fixed);
    if (occl_log_level_parse(daemon->config.log_level, &level) == OCCL_OK)
        occl_log_set_level(daemon->log, level);
    occl_identity_find_operators(daemon);
    occl_tenant_reload(daemon);
    occl_metrics_wake(daemon);
    OCCL_LOG_INFO(daemon->log, "daemon", "reloaded: %u values changed, %u others need a restart",
                  changed, fixed);
reloaded:
    occl_supervise_reloaded(daemon);
done:
    free(fresh);
    free(origins);
}

static void signal_ready(struct occl_watch *watch, uint32_t events) {
    struct occl_daemon *daemon = watch->owner;
    struct signalfd_siginfo info;
    (void)events;
    while (read(watch->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP)
            occl_daemon_reload(daemon);
        else
            occl_daemon_stop(daemon);
    }
}

static int take_signals(struct occl_daemon *daemon, struct occl_detail *detail) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    daemon->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    daemon->signal_watch = (struct occl_watch){daemon->signal_fd, signal_ready, daemon, 0};
    if (daemon->signal_fd < 0 ||
        occl_loop_watch_add(daemon->loop, &daemon->signal_watch, OCCL_LOOP_READABLE) != OCCL_OK)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "signals cannot be taken");
    return OCCL_OK;
}

/* ---- creation ---- */

static int make_loop(struct occl_daemon *daemon, const struct occl_loop_ops *wanted,
                     struct occl_detail *detail) {
    if (!wanted && strcmp(daemon->config.loop, "io_uring") == 0)
        wanted = occl_loop_uring();
    else if (!wanted && strcmp(daemon->config.loop, "epoll") == 0)
        wanted = occl_loop_epoll();
    int status = occl_loop_create(daemon->clock, wanted, &daemon->loop, &daemon->loop_refused);
    if (status != OCCL_OK)
        return occl_detail_set(detail, status, 0, "the control loop (%s) cannot be made",
                               daemon->config.loop);
    if (daemon->loop_refused)
        OCCL_LOG_INFO(daemon->log, "daemon", "io_uring is not available here (%s): epoll is used",
                      strerrorname_np(daemon->loop_refused));
    return OCCL_OK;
}

static int make_engine(struct occl_daemon *daemon, bool driven, struct occl_detail *detail) {
    static const struct occl_engine_events events = {lane_fault};
    struct occl_engine_config config = {
        .lanes = daemon->lanes,
        .lane_cpus = daemon->lanes_bound ? daemon->lane_cpus : NULL,
        .ordered = daemon->ordered,
        .driven = driven,
        .ageing_ns = daemon->config.ageing_ns,
        .patience_min_ns = daemon->config.patience_min_ns,
        .patience_max_ns = daemon->config.patience_max_ns,
        .ops_max = daemon->config.ops_max,
    };
    if (occl_mailbox_create(MAILBOX_ENTRIES, &daemon->mailbox) != OCCL_OK)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "no memory for the mailbox");
    daemon->mailbox_watch =
        (struct occl_watch){occl_mailbox_fd(daemon->mailbox), mail_ready, daemon, 0};
    if (occl_loop_watch_add(daemon->loop, &daemon->mailbox_watch, OCCL_LOOP_READABLE) != OCCL_OK)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "the mailbox cannot be watched");
    int status =
        occl_engine_create(&config, daemon->clock, daemon->log, &events, daemon, &daemon->engine);
    if (status != OCCL_OK)
        return occl_detail_set(detail, status, errno, "the engine with %u lanes cannot be started",
                               daemon->lanes);
    return OCCL_OK;
}

static void adopt(struct occl_daemon *daemon, const struct occl_daemon_options *options) {
    daemon->config = *options->config;
    if (options->origins)
        daemon->origins = *options->origins;
    if (options->sources)
        daemon->sources = *options->sources;
    daemon->clock = options->clock;
    daemon->log = options->log;
    daemon->identity = options->identity ? *options->identity : occl_identity_system();
    daemon->ordered = options->ordered;
    daemon->private_mode = options->private_mode;
    daemon->supervised = options->supervised;
    daemon->signal_fd = -1;
    daemon->spare_fd = -1;
    daemon->started_ns = occl_clock_now_ns(daemon->clock);
    daemon->charge.limit_bytes = daemon->config.registered_max_bytes;
    occl_clock_random(daemon->clock, &daemon->epoch, sizeof daemon->epoch);
    if (gethostname(daemon->host, sizeof daemon->host - 1) < 0)
        memcpy(daemon->host, "localhost", 10);
    daemon->drain_timer = (struct occl_timer){.fired = drain_look, .owner = daemon};
    daemon->private_timer = (struct occl_timer){.fired = private_alone, .owner = daemon};
    TAILQ_INIT(&daemon->strays);
    TAILQ_INIT(&daemon->admins);
    STAILQ_INIT(&daemon->ending);
    occl_ticks_calibrate(daemon->clock, CALIBRATION_NS, &daemon->scale);
    daemon->lanes = options->driven_lanes;
    if (!daemon->lanes)
        occl_placement_choose(daemon);
    occl_identity_find_operators(daemon);
}

int occl_daemon_create(const struct occl_daemon_options *options, struct occl_daemon **out_daemon,
                       struct occl_detail *detail) {
    struct occl_daemon *daemon = calloc(1, sizeof *daemon);
    if (!daemon)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "no memory for the daemon");
    adopt(daemon, options);
    int status = make_loop(daemon, options->loop_ops, detail);
    /* Before there are lanes: they inherit the signal mask and the guard. */
    if (status == OCCL_OK && options->take_signals)
        status = take_signals(daemon, detail);
    if (status == OCCL_OK && (status = occl_guard_install()) != OCCL_OK)
        (void)occl_detail_set(detail, status, errno, "bus errors cannot be guarded");
    if (status == OCCL_OK)
        status = make_engine(daemon, options->driven_lanes > 0, detail);
    if (status == OCCL_OK && (status = occl_stall_create(daemon)) != OCCL_OK)
        (void)occl_detail_set(detail, status, 0, "no memory for the stall scan");
    if (status == OCCL_OK && (status = occl_admin_create(daemon)) != OCCL_OK)
        (void)occl_detail_set(detail, status, 0, "no memory for administration");
    if (status == OCCL_OK && (status = occl_metrics_create(daemon)) != OCCL_OK)
        (void)occl_detail_set(detail, status, 0, "no memory for metrics");
    if (status == OCCL_OK && daemon->supervised)
        status = occl_supervise_create(daemon, detail);
    if (status == OCCL_OK)
        status = occl_server_open(daemon, detail);
    if (status == OCCL_OK && daemon->private_mode)
        status = occl_loop_timer_set(daemon->loop, &daemon->private_timer,
                                     daemon->started_ns + PRIVATE_ALONE_NS);
    if (status != OCCL_OK) {
        occl_daemon_destroy(daemon);
        return status;
    }
    *out_daemon = daemon;
    return OCCL_OK;
}

/* ---- rounds ---- */

bool occl_daemon_step(struct occl_daemon *daemon, uint64_t max_wait_ns) {
    if (daemon->stopping) {
        occl_session_reap(daemon);
        return false;
    }
    if (occl_loop_run_once(daemon->loop, max_wait_ns) != OCCL_OK) {
        OCCL_LOG_ERROR(daemon->log, "daemon", "the control loop failed: ending");
        daemon->loop_failed = true;
        end_everything(daemon);
    }
    occl_session_reap(daemon);
    occl_supervise_round(daemon);
    return !daemon->stopping;
}

bool occl_daemon_run(struct occl_daemon *daemon) {
    occl_supervise_serving(daemon);
    while (occl_daemon_step(daemon, UINT64_MAX))
        continue;
    return !daemon->loop_failed;
}

void occl_daemon_destroy(struct occl_daemon *daemon) {
    if (!daemon)
        return;
    if (daemon->loop) {
        /* Stop accepting first: nobody new can come while the others are sent away. */
        occl_server_close(daemon);
        end_everything(daemon);
        occl_session_reap(daemon);
        occl_rendezvous_destroy_all(daemon);
        occl_metering_stop(daemon);
        occl_metrics_destroy(daemon);
        occl_stall_destroy(daemon);
        occl_admin_destroy(daemon);
        occl_supervise_destroy(daemon);
    }
    OCCL_ASSERT(daemon->sessions == NULL);
    OCCL_ASSERT(daemon->tenants == NULL);
    if (daemon->engine)
        occl_engine_destroy(daemon->engine);
    if (daemon->loop) {
        occl_loop_watch_remove(daemon->loop, &daemon->mailbox_watch);
        occl_loop_watch_remove(daemon->loop, &daemon->signal_watch);
    }
    occl_mailbox_destroy(daemon->mailbox);
    if (daemon->signal_fd >= 0)
        close(daemon->signal_fd);
    occl_loop_destroy(daemon->loop);
    free(daemon);
}
