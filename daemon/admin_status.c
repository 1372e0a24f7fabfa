/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about the daemon as a whole: ping, version, status, config, doctor. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/admin.h"

int occl_admin_ping(struct occl_admin_query *query, json_t *answer) {
    (void)query;
    (void)answer;
    return OCCL_OK;
}

int occl_admin_version(struct occl_admin_query *query, json_t *answer) {
    (void)query;
    occl_admin_put_text(answer, "version", OCCL_DAEMON_VERSION);
    occl_admin_put_number(answer, "abi_version", OCCL_ABI_VERSION);
    occl_admin_put_number(answer, "abi_version_min", OCCL_ABI_VERSION_MIN);
    return OCCL_OK;
}

/* ---- status ---- */

static json_t *engine_counters(const struct occl_daemon *daemon) {
    struct occl_engine_counters c;
    json_t *object = json_object();
    occl_engine_counters(daemon->engine, &c);
    occl_admin_put_number(object, "ops_completed_total", c.ops_completed);
    occl_admin_put_number(object, "ops_failed_total", c.ops_failed);
    occl_admin_put_number(object, "preemptions_total", c.preemptions);
    occl_admin_put_number(object, "switches_total", c.switches);
    occl_admin_put_number(object, "doorbells_total", c.doorbells);
    occl_admin_put_number(object, "ring_full_total", c.ring_full);
    occl_admin_put_number(object, "lane_sleeps_total", c.lane_sleeps);
    occl_admin_put_number(object, "lane_wakeups_total", c.lane_wakeups);
    occl_admin_put_number(object, "faults_total", c.faults);
    occl_admin_put_number(object, "submit_to_start_ns_p50", c.submit_to_start_ns_p50);
    occl_admin_put_number(object, "switch_ns_p50", c.switch_ns_p50);
    return object;
}

static void put_counters(const struct occl_daemon *daemon, json_t *answer) {
    const struct occl_counters *c = &daemon->counters;
    occl_admin_put_number(answer, "sessions_total", c->sessions_total);
    occl_admin_put_number(answer, "strays_total", c->strays_total);
    occl_admin_put_number(answer, "refused_total", c->refused_total);
    occl_admin_put_number(answer, "quarantined_total", c->quarantined_total);
    occl_admin_put_number(answer, "peer_failures_total", c->peer_failures_total);
    occl_admin_put_number(answer, "protocol_errors_total", c->protocol_total);
    occl_admin_put_number(answer, "slow_clients_total", c->slow_total);
    occl_admin_put_number(answer, "unkillable_total", c->unkillable_total);
    occl_admin_put_number(answer, "log_suppressed_total",
                          daemon->log ? occl_peek64(&daemon->log->suppressed_total) : 0);
}

struct sums {
    uint64_t comms, regions, ops_waiting, oldest_age_ns;
    json_t *problems;
};

static void add_problem(struct sums *sums, const struct occl_job *job, const char *state) {
    char text[OCCL_TENANT_TEXT_BYTES + OCCL_NAME_BYTES + 64];
    if (strcmp(state, "stuck") != 0 && strcmp(state, "failed") != 0 && strcmp(state, "dead") != 0 &&
        strcmp(state, "slow") != 0)
        return;
    (void)snprintf(text, sizeof text, "job %s of tenant %s is %s", job->name, job->tenant->text,
                   state);
    (void)json_array_append_new(sums->problems, json_string(text));
}

static void sum_jobs(struct occl_admin_query *query, struct sums *sums) {
    struct occl_op_list list;
    struct occl_wait_graph graph;
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    struct occl_job *job;
    occl_totals_scan(query->daemon, &list);
    if (occl_why_graph_build(query->daemon, &list, &graph) != OCCL_OK)
        graph = (struct occl_wait_graph){&list, 0, NULL, 0};
    HASH_ITER (in_daemon, query->daemon->tenants, tenant, next) {
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant) {
            struct occl_job_totals totals;
            occl_totals_job(job, &list, &totals);
            totals.cycle = occl_admin_in_cycle(&graph, job);
            sums->comms += job->comm_count;
            sums->regions += HASH_CNT(in_job, job->regions);
            sums->ops_waiting += totals.ops_waiting;
            if (totals.oldest_age_ns > sums->oldest_age_ns)
                sums->oldest_age_ns = totals.oldest_age_ns;
            if (occl_admin_sees(query, job))
                add_problem(sums, job, occl_totals_state(job, &totals));
        }
    }
    occl_why_graph_free(&graph);
    occl_opview_free(&list);
}

static void put_placement(const struct occl_daemon *daemon, json_t *answer) {
    json_t *cpus = json_array();
    for (uint32_t lane = 0; daemon->lanes_bound && lane < daemon->lanes; lane++)
        (void)json_array_append_new(cpus, json_integer(daemon->lane_cpus[lane]));
    occl_admin_put_text(answer, "loop", occl_loop_name(daemon->loop));
    occl_admin_put_text(answer, "loop_refused",
                        daemon->loop_refused ? strerrorname_np(daemon->loop_refused) : "");
    occl_admin_put_number(answer, "lanes", daemon->lanes);
    occl_admin_put(answer, "lane_cpus", cpus);
    occl_admin_put_bool(answer, "ordered", daemon->ordered);
    occl_admin_put_bool(answer, "private", daemon->private_mode);
}

int occl_admin_status(struct occl_admin_query *query, json_t *answer) {
    struct occl_daemon *daemon = query->daemon;
    struct sums sums = {0, 0, 0, 0, json_array()};
    sum_jobs(query, &sums);
    occl_admin_put_text(answer, "state", daemon->draining ? "draining" : "live");
    occl_admin_put_number(answer, "uptime_ns", occl_admin_age(daemon, daemon->started_ns));
    occl_admin_put_text(answer, "socket", daemon->listeners[0].path);
    put_placement(daemon, answer);
    occl_admin_put_number(answer, "sessions", daemon->rank_sessions);
    occl_admin_put_number(answer, "tenants", daemon->tenant_count);
    occl_admin_put_number(answer, "jobs", daemon->job_count);
    occl_admin_put_number(answer, "comms", sums.comms);
    occl_admin_put_number(answer, "regions", sums.regions);
    occl_admin_put_number(answer, "strays", daemon->stray_count);
    occl_admin_put_number(answer, "ops_waiting", sums.ops_waiting);
    occl_admin_put_number(answer, "oldest_op_age_ns", sums.oldest_age_ns);
    occl_admin_put_number(answer, "registered_bytes", daemon->charge.used_bytes);
    occl_admin_put_number(answer, "registered_max_bytes", daemon->charge.limit_bytes);
    occl_admin_put_number(answer, "memory_limit_bytes", daemon->config.memory_limit_bytes);
    put_counters(daemon, answer);
    occl_admin_put(answer, "engine", engine_counters(daemon));
    occl_admin_put(answer, "problems", sums.problems);
    return OCCL_OK;
}

/* ---- config ---- */

int occl_admin_config(struct occl_admin_query *query, json_t *answer) {
    const struct occl_daemon *daemon = query->daemon;
    json_t *list = json_array();
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        char value[OCCL_CONFIG_TEXT_BYTES], range[OCCL_CONFIG_RANGE_BYTES];
        json_t *entry = json_object();
        occl_config_print(&keys[i], &daemon->config, value, sizeof value);
        occl_admin_put_text(entry, "name", keys[i].name);
        occl_admin_put_text(entry, "value", value);
        occl_admin_put_text(entry, "origin", daemon->origins.text[i]);
        occl_admin_put_bool(entry, "reloadable", keys[i].reloadable);
        occl_config_range_text(keys[i].type, keys[i].min, keys[i].max, keys[i].choices, range,
                               sizeof range);
        occl_admin_put_text(entry, "accepts", range);
        occl_admin_put_text(entry, "help", keys[i].help);
        (void)json_array_append_new(list, entry);
    }
    occl_admin_put(answer, "config", list);
    return OCCL_OK;
}

/* ---- doctor ---- */

static void add_fact(json_t *list, const char *name, const char *value, bool ok, const char *hint) {
    json_t *fact = json_object();
    occl_admin_put_text(fact, "name", name);
    occl_admin_put_text(fact, "value", value);
    occl_admin_put_bool(fact, "ok", ok);
    occl_admin_put_text(fact, "hint", ok ? "" : hint);
    (void)json_array_append_new(list, fact);
}

int occl_admin_doctor(struct occl_admin_query *query, json_t *answer) {
    const struct occl_daemon *daemon = query->daemon;
    json_t *facts = json_array();
    struct rlimit limit = {0, 0};
    char text[128];
    add_fact(facts, "control loop", occl_loop_name(daemon->loop), daemon->loop_refused == 0,
             "io_uring is forbidden here; epoll is used, which works as well");
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)limit.rlim_cur);
    add_fact(facts, "open files of the daemon", text, limit.rlim_cur >= 4096,
             "raise LimitNOFILE of the service: each process takes three, each region one");
    (void)snprintf(text, sizeof text, "%llu of %llu bytes",
                   (unsigned long long)daemon->charge.used_bytes,
                   (unsigned long long)daemon->charge.limit_bytes);
    add_fact(facts, "registered memory", text,
             daemon->charge.used_bytes < daemon->charge.limit_bytes / 10 * 9,
             "raise registered_max, or end jobs");
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)occl_huge_pages_free());
    add_fact(facts, "free huge pages", text, true, "");
    (void)snprintf(text, sizeof text, "%u, %s", daemon->lanes,
                   daemon->lanes_bound ? "bound" : "not bound");
    add_fact(facts, "lanes", text, daemon->lanes > 0, "");
    add_fact(facts, "clock of timestamps",
             daemon->clock->ticks_source == OCCL_TICKS_TSC ? "processor counter" : "monotonic",
             true, "");
    add_fact(facts, "metrics file",
             daemon->config.metrics_file[0] ? daemon->config.metrics_file : "off", true, "");
    occl_admin_put(answer, "facts", facts);
    return OCCL_OK;
}
