/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about the daemon as a whole: ping, version, status, config, doctor. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/admin.h"

int occl_admin_ping(struct occl_admin_request *request) {
    (void)request;
    return OCCL_OK;
}

int occl_admin_version(struct occl_admin_request *request) {
    json_t *answer = request->answer;
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

static void add_problem(struct occl_admin_request *request, const struct occl_job *job,
                        const char *state) {
    char text[OCCL_TENANT_TEXT_BYTES + OCCL_NAME_BYTES + 64];
    if (strcmp(state, "stuck") != 0 && strcmp(state, "failed") != 0 && strcmp(state, "dead") != 0 &&
        strcmp(state, "slow") != 0)
        return;
    (void)snprintf(text, sizeof text, "job %s of tenant %s is %s", job->name, job->tenant->text,
                   state);
    if (occl_admin_room(request, OCCL_ADMIN_LIST_MAIN))
        occl_admin_add(request, OCCL_ADMIN_LIST_MAIN, json_string(text));
    else
        request->cut[OCCL_ADMIN_CUT_JOBS]++;
}

/* One item a job: its part of the sums, and a sentence if it has a problem. */
static bool status_item(struct occl_admin_request *request) {
    struct occl_admin_sums *sums = &request->sums;
    struct occl_job *job = request->view.job;
    struct occl_job_totals totals;
    if (request->at++)
        return false;
    occl_totals_view(&request->view, &totals);
    if (request->open_tenant != job->tenant->id) {
        request->open_tenant = job->tenant->id;
        sums->tenants++;
        sums->registered_bytes += job->tenant->charge.used_bytes;
    }
    sums->jobs++;
    sums->sessions += job->session_count;
    sums->comms += job->comm_count;
    sums->regions += HASH_CNT(in_job, job->regions);
    sums->ops_waiting += totals.ops_waiting;
    if (totals.oldest_age_ns > sums->oldest_age_ns)
        sums->oldest_age_ns = totals.oldest_age_ns;
    if (occl_admin_sees(request, job))
        add_problem(request, job, occl_totals_state(job, &totals));
    return true;
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

/* Of the whole node for operators, else of what the asker may see. */
static void put_sums(const struct occl_admin_request *request) {
    const struct occl_daemon *daemon = request->daemon;
    const struct occl_admin_sums *sums = &request->sums;
    bool all = request->operator_rights;
    json_t *answer = request->answer;
    occl_admin_put_number(answer, "sessions", all ? daemon->rank_sessions : sums->sessions);
    occl_admin_put_number(answer, "tenants", all ? daemon->tenant_count : sums->tenants);
    occl_admin_put_number(answer, "jobs", all ? daemon->job_count : sums->jobs);
    occl_admin_put_number(answer, "comms", sums->comms);
    occl_admin_put_number(answer, "regions", sums->regions);
    occl_admin_put_number(answer, "strays", all ? daemon->stray_count : 0);
    occl_admin_put_number(answer, "ops_waiting", sums->ops_waiting);
    occl_admin_put_number(answer, "oldest_op_age_ns", sums->oldest_age_ns);
    occl_admin_put_number(answer, "registered_bytes",
                          all ? daemon->charge.used_bytes : sums->registered_bytes);
}

static void status_finish(struct occl_admin_request *request) {
    struct occl_daemon *daemon = request->daemon;
    json_t *answer = request->answer;
    bool host_paths = request->operator_rights || request->asker->listener->index == 0;
    occl_admin_put_text(answer, "state", daemon->draining ? "draining" : "live");
    occl_admin_put_number(answer, "uptime_ns", occl_admin_age(daemon, daemon->started_ns));
    occl_admin_put_text(answer, "socket", host_paths ? daemon->listeners[0].path : "");
    put_placement(daemon, answer);
    put_sums(request);
    occl_admin_put_number(answer, "registered_max_bytes", daemon->charge.limit_bytes);
    occl_admin_put_number(answer, "memory_limit_bytes", daemon->config.memory_limit_bytes);
    put_counters(daemon, answer);
    occl_admin_put(answer, "engine", engine_counters(daemon));
}

const struct occl_admin_verb occl_admin_verb_status = {
    .name = "status",
    .all_jobs = true,
    .wants = OCCL_VIEW_WANT_OPS | OCCL_VIEW_WANT_NOTES | OCCL_VIEW_WANT_GRAPH,
    .lists = {[OCCL_ADMIN_LIST_MAIN] = "problems", [OCCL_ADMIN_LIST_CUT] = "cut"},
    .item = status_item,
    .finish = status_finish,
};

/* ---- config ---- */

/* Paths of the host and what stands in its files are the operators' business. */
static bool is_private(const struct occl_config_key *key) {
    return strcmp(key->name, "socket") == 0 || strcmp(key->name, "metrics_file") == 0;
}

int occl_admin_config(struct occl_admin_request *request) {
    const struct occl_daemon *daemon = request->daemon;
    json_t *list = json_array();
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        char value[OCCL_CONFIG_TEXT_BYTES], range[OCCL_CONFIG_RANGE_BYTES];
        json_t *entry = json_object();
        occl_config_print(&keys[i], &daemon->config, value, sizeof value);
        if (is_private(&keys[i]) && !request->operator_rights)
            value[0] = '\0';
        occl_admin_put_text(entry, "name", keys[i].name);
        occl_admin_put_text(entry, "value", value);
        occl_admin_put_text(entry, "origin",
                            request->operator_rights ? daemon->origins.text[i] : "");
        occl_admin_put_bool(entry, "reloadable", keys[i].reloadable);
        occl_config_range_text(keys[i].type, keys[i].min, keys[i].max, keys[i].choices, range,
                               sizeof range);
        occl_admin_put_text(entry, "accepts", range);
        occl_admin_put_text(entry, "help", keys[i].help);
        (void)json_array_append_new(list, entry);
    }
    occl_admin_put(request->answer, "config", list);
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

int occl_admin_doctor(struct occl_admin_request *request) {
    const struct occl_daemon *daemon = request->daemon;
    json_t *facts = json_array();
    struct rlimit limit = {0, 0};
    char text[128];
    add_fact(facts, "control loop", occl_loop_name(daemon->loop), daemon->loop_refused == 0,
             "io_uring is forbidden here; epoll is used, which works as well");
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)limit.rlim_cur);
    add_fact(facts, "open files of the daemon", text, limit.rlim_cur >= 4096,
             "raise LimitNOFILE of the service: each process takes four, each region one");
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
    const char *file = request->operator_rights ? daemon->config.metrics_file : "on";
    add_fact(facts, "metrics file", daemon->config.metrics_file[0] ? file : "off", true, "");
    occl_admin_put(request->answer, "facts", facts);
    return OCCL_OK;
}
