/* SPDX-License-Identifier: Apache-2.0 */
/* Administration: schemas, permission, changes while running, metrics, drain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/fake_client.h"
#include "tests/daemon/fake_engine.h"

static void admin_attach(struct client *c, struct fixture *f) {
    struct occl_msg_hello hello;
    client_connect(c, f, NULL);
    client_hello_fill(&hello, "", "");
    hello.role = OCCL_ROLE_ADMIN;
    client_hello_raw(c, &hello);
    assert_int_equal(c->in.h.type, OCCL_MSG_WELCOME);
    assert_int_equal(c->fd_count, 0);
}

/* Keys that ADMIN.md promises; the first word is the type. */
static void has_keys(const json_t *object, const char *keys) {
    char copy[2048];
    char *rest = NULL;
    (void)snprintf(copy, sizeof copy, "%s", keys);
    for (char *key = strtok_r(copy, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
        if (!json_object_get(object, key))
            fail_msg("key %s is missing", key);
}

static void answers_hold_the_promised_keys(void **state) {
    static const struct {
        const char *verb, *keys, *list, *item_keys;
    } cases[] = {
        {"ping", "", NULL, NULL},
        {"version", "version abi_version abi_version_min", NULL, NULL},
        {"status",
         "state uptime_ns socket loop loop_refused lanes lane_cpus ordered sessions tenants jobs "
         "comms regions ops_waiting oldest_op_age_ns registered_bytes registered_max_bytes "
         "memory_limit_bytes sessions_total strays_total refused_total quarantined_total "
         "peer_failures_total log_suppressed_total engine problems",
         NULL, NULL},
        {"jobs", "", "jobs",
         "job job_id tenant uid tag state class weight tenant_weight stall_interval_ns origins "
         "sessions comms regions registered_bytes ops_total errors_total ops_waiting "
         "oldest_op_age_ns age_ns processes"},
        {"comms", "", "comms",
         "comm comm_uid job tenant state cause about_rank ranks class class_origin "
         "default_deadline_ns default_deadline_origin page_bytes resident_bytes ops_waiting age_ns "
         "members"},
        {"ops", "truncated", "ops",
         "job tenant comm comm_uid tag instance kind dtype redop count bytes root source "
         "destination state path arrived arrived_text missing missing_text waiting age_ns since_ns "
         "preemptions attempts strands strands_done step"},
        {"why", "forming cycles failures culprits problem cut cut_total", "waits", "late"},
        {"usage", "cut cut_total", "tenants",
         "tenant uid tag weight sessions comms regions registered_bytes registered_peak_bytes "
         "quota jobs"},
        {"config", "", "config", "name value origin reloadable accepts help"},
        {"doctor", "", "facts", "name value ok hint"},
    };
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct client admin;
    struct occl_op_key key = {OCCL_PEERS_ALL, 1, 0};
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    for (int i = 0; i < 2; i++)
        client_attach(&c[i], &f, "job", "");
    clients_make_comm(c, 2, 1, comms);
    (void)client_arrive(&c[0], &comms[0], key, OCCL_OP_ALL_REDUCE, true, 0);
    admin_attach(&admin, &f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[64];
        int status;
        (void)snprintf(request, sizeof request, "{\"verb\":\"%s\"}", cases[i].verb);
        json_t *answer = client_admin(&admin, request, &status);
        assert_int_equal(status, OCCL_OK);
        has_keys(answer, "schema verb daemon time_ns");
        has_keys(json_object_get(answer, "daemon"), "pid epoch host version");
        assert_int_equal(json_integer_value(json_object_get(answer, "schema")), 1);
        has_keys(answer, cases[i].keys);
        if (cases[i].list) {
            const json_t *list = json_object_get(answer, cases[i].list);
            assert_true(json_array_size(list) > 0);
            has_keys(json_array_get(list, 0), cases[i].item_keys);
        }
        json_decref(answer);
    }
    for (int i = 0; i < 2; i++) {
        client_comm_unmap(&comms[i]);
        client_close(&c[i]);
    }
    client_close(&admin);
    fixture_stop(&f);
}

static void bad_requests_say_what(void **state) {
    static const struct {
        const char *request;
        int status;
        const char *text;
    } cases[] = {
        {"", OCCL_E_INVALID, "JSON"},
        {"[1]", OCCL_E_INVALID, "expected a JSON object"},
        {"{\"verb\":\"dance\"}", OCCL_E_UNSUPPORTED, "'dance'"},
        {"{}", OCCL_E_UNSUPPORTED, "verb"},
        {"{\"verb\":\"ops\",\"rank\":64}", OCCL_E_INVALID, "0 to 63"},
        {"{\"verb\":\"ops\",\"rank\":\"1\"}", OCCL_E_INVALID, "0 to 63"},
        {"{\"verb\":\"ops\",\"job\":5}", OCCL_E_INVALID, "job: expected a text"},
        {"{\"verb\":[]}", OCCL_E_INVALID, "verb: expected a text"},
        {"{\"verb\":\"set\"}", OCCL_E_INVALID, "kind, name, key and value"},
        {"{\"verb\":\"set\",\"kind\":\"job\",\"name\":\"none\",\"key\":\"class\",\"value\":\"1\"}",
         OCCL_E_NOT_FOUND, "no job is named none"},
        {"{\"verb\":\"set\",\"kind\":\"job\",\"name\":\"job\",\"key\":\"class\",\"value\":\"4\"}",
         OCCL_E_INVALID, "expected bulk, normal, high or urgent (or 0 to 3), found '4'"},
        {"{\"verb\":\"set\",\"kind\":\"job\",\"name\":\"job\",\"key\":\"color\",\"value\":\"4\"}",
         OCCL_E_NOT_FOUND, "class, weight, stall_interval"},
        {"{\"verb\":\"set\",\"kind\":\"daemon\",\"name\":\"occld\",\"key\":\"lanes\",\"value\":"
         "\"2\"}",
         OCCL_E_USAGE, "needs a restart"},
    };
    struct fixture f;
    struct client c;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        assert_null(client_admin(&c, cases[i].request, &status));
        assert_int_equal(status, cases[i].status);
        if (!strstr(c.in.admin.detail.text, cases[i].text))
            fail_msg("case %zu: %s", i, c.in.admin.detail.text);
    }
    client_close(&c);
    fixture_stop(&f);
}

static void set_changes_a_running_job(void **state) {
    struct fixture f;
    struct client c;
    int status;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    json_t *answer = client_admin(&c,
                                  "{\"verb\":\"set\",\"kind\":\"job\",\"name\":\"job\",\"key\":"
                                  "\"weight\",\"value\":\"300\"}",
                                  &status);
    assert_int_equal(status, OCCL_OK);
    const json_t *changed = json_object_get(answer, "changed");
    assert_string_equal(json_string_value(json_object_get(changed, "from")), "100");
    assert_string_equal(json_string_value(json_object_get(changed, "to")), "300");
    json_decref(answer);
    assert_int_equal(fake_engine_counts().last_weight, 300);
    answer = client_admin(&c,
                          "{\"verb\":\"set\",\"kind\":\"job\",\"name\":\"job\",\"key\":\"class\","
                          "\"value\":\"3\"}",
                          &status);
    assert_int_equal(status, OCCL_OK);
    json_decref(answer);
    assert_int_equal(c.job->job_class, 3);
    assert_int_equal(fake_engine_counts().last_class, 3);
    answer = client_admin(&c,
                          "{\"verb\":\"set\",\"kind\":\"daemon\",\"name\":\"occld\",\"key\":"
                          "\"quota_sessions\",\"value\":\"1\"}",
                          &status);
    assert_int_equal(status, OCCL_OK);
    json_decref(answer);
    assert_int_equal(f.daemon->config.quota_sessions, 1);
    assert_int_equal(fixture_log_count(&f, "set job job weight from 100 to 300"), 1);
    client_close(&c);
    fixture_stop(&f);
}

static json_t *try_set(struct client *c, const char *kind, const char *name, const char *key,
                       const char *value, int *out_status) {
    char request[256];
    (void)snprintf(request, sizeof request,
                   "{\"verb\":\"set\",\"kind\":\"%s\",\"name\":\"%s\",\"key\":\"%s\","
                   "\"value\":\"%s\"}",
                   kind, name, key, value);
    return client_admin(c, request, out_status);
}

/* Names and numbers, units and plain numbers are taken; the answer has names and units. */
static void set_speaks_in_names_and_units(void **state) {
    static const struct {
        const char *kind, *name, *key, *value, *from, *to;
    } cases[] = {
        {"job", "job", "class", "high", "normal", "high"},
        {"job", "job", "class", "0", "high", "bulk"},
        {"job", "job", "stall_interval", "1500000000", "10s", "1500ms"},
        {"job", "job", "weight", "7", "100", "7"},
        {"tenant", "%u", "quota_ops", "1048576", "65536", "1048576"},
        {"tenant", "%u", "quota_registered", "8192", NULL, "8KiB"},
        {"daemon", "occld", "job_class", "urgent", "normal", "urgent"},
        {"daemon", "occld", "job_class", "2", "urgent", "high"},
        {"daemon", "occld", "stall_interval", "120s", "10s", "2min"},
    };
    struct fixture f;
    struct client c;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[32];
        int status;
        if (strcmp(cases[i].name, "%u") == 0)
            (void)snprintf(name, sizeof name, "%u", (unsigned)geteuid());
        else
            (void)snprintf(name, sizeof name, "%s", cases[i].name);
        json_t *answer = try_set(&c, cases[i].kind, name, cases[i].key, cases[i].value, &status);
        if (status != OCCL_OK)
            fail_msg("case %zu: %s", i, c.in.admin.detail.text);
        const json_t *changed = json_object_get(answer, "changed");
        if (cases[i].from)
            assert_string_equal(json_string_value(json_object_get(changed, "from")), cases[i].from);
        assert_string_equal(json_string_value(json_object_get(changed, "to")), cases[i].to);
        json_decref(answer);
    }
    assert_int_equal(fixture_log_count(&f, "set job job class from normal to high"), 1);
    client_close(&c);
    fixture_stop(&f);
}

static void set_refuses_what_its_table_does_not_hold(void **state) {
    static const struct {
        const char *kind, *key, *value, *text;
        int status;
    } cases[] = {
        {"job", "class", "4", "bulk, normal, high or urgent (or 0 to 3)", OCCL_E_INVALID},
        {"job", "class", "High", "found 'High'", OCCL_E_INVALID},
        {"job", "weight", "0", "1 to 1000", OCCL_E_INVALID},
        {"job", "weight", "1001", "1 to 1000", OCCL_E_INVALID},
        {"job", "weight", "99999999999999999999", "1 to 1000", OCCL_E_INVALID},
        {"job", "stall_interval", "9ms", "10ms to 24h", OCCL_E_INVALID},
        {"job", "stall_interval", "25h", "10ms to 24h", OCCL_E_INVALID},
        {"job", "quota_ops", "1", "class, weight, stall_interval", OCCL_E_NOT_FOUND},
        {"tenant", "quota_registered", "0", "4KiB to", OCCL_E_INVALID},
        {"tenant", "quota_registered", "1000TiB", "registered_max", OCCL_E_INVALID},
        {"tenant", "class", "1", "weight, quota_sessions", OCCL_E_NOT_FOUND},
        {"daemon", "nothing", "1", "'nothing'", OCCL_E_NOT_FOUND},
    };
    struct fixture f;
    struct client c;
    char tenant[32];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    (void)snprintf(tenant, sizeof tenant, "%u", (unsigned)geteuid());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        assert_null(try_set(&c, cases[i].kind,
                            strcmp(cases[i].kind, "tenant") == 0 ? tenant : "job", cases[i].key,
                            cases[i].value, &status));
        assert_int_equal(status, cases[i].status);
        if (!strstr(c.in.admin.detail.text, cases[i].text))
            fail_msg("case %zu: %s", i, c.in.admin.detail.text);
    }
    client_close(&c);
    fixture_stop(&f);
}

/* The group counts from the moment it is set, not from the next reload. */
static void set_operator_group_takes_effect(void **state) {
    struct fixture f;
    struct client c;
    int status;
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&c, &f, "job", "");
    assert_false(f.daemon->operator_gid_known);
    json_t *answer = try_set(&c, "daemon", "occld", "operator_group", "root", &status);
    assert_int_equal(status, OCCL_OK);
    json_decref(answer);
    assert_true(f.daemon->operator_gid_known);
    assert_int_equal(f.daemon->operator_gid, 0);
    client_close(&c);
    fixture_stop(&f);
}

/* Owners see their own jobs and change nothing. */
static void others_see_only_their_own(void **state) {
    struct fixture f;
    struct client root;
    int status;
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP others_see_only_their_own: needs root to change users\n");
        skip();
    }
    fixture_prepare(&f);
    fixture_start(&f);
    client_attach(&root, &f, "mine", "");
    pid_t pid = fork();
    if (pid == 0) {
        struct fixture elsewhere = f;
        struct client c;
        elsewhere.daemon = NULL;
        if (setgid(5001) != 0 || setuid(5001) != 0)
            _exit(77);
        client_attach(&c, &elsewhere, "theirs", "");
        json_t *answer = client_admin(&c, "{\"verb\":\"jobs\"}", &status);
        const json_t *jobs = json_object_get(answer, "jobs");
        bool good = json_array_size(jobs) == 1 &&
                    strcmp(json_string_value(json_object_get(json_array_get(jobs, 0), "job")),
                           "theirs") == 0;
        good = good &&
               !client_admin(&c,
                             "{\"verb\":\"set\",\"kind\":\"job\",\"name\":\"theirs\",\"key\":"
                             "\"class\",\"value\":\"3\"}",
                             &status) &&
               status == OCCL_E_PERMISSION &&
               strstr(c.in.admin.detail.text,
                      "uid 5001 may not change anything, also not its own jobs; root may "
                      "(operator_group names no group)");
        _exit(good ? 0 : 1);
    }
    int code = -1;
    for (int i = 0; i < 1000 && waitpid(pid, &code, WNOHANG) == 0; i++)
        (void)occl_daemon_step(f.daemon, 5000000);
    assert_true(WIFEXITED(code));
    (void)fixture_pump(&f, 20, NULL, NULL);
    client_close(&root);
    fixture_stop(&f);
    if (WEXITSTATUS(code) == 77) {
        print_message("SKIP others_see_only_their_own: other users are not mapped here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(code), 0);
}

/* L04: one field tells the states apart. */
static void L04_job_states_differ(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct client admin;
    static const struct occl_op_key key = {OCCL_PEERS_ALL, 1, 0};
    static const char *const want[] = {"starting", "idle", "running", "slow", "stuck", "dead"};
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    for (int i = 0; i < 2; i++)
        client_attach(&c[i], &f, "job", "");
    admin_attach(&admin, &f);
    for (int step = 0; step < 6; step++) {
        int status;
        struct occl_rank_note *note = step ? occl_note_at(&comms[0].records, 0) : NULL;
        if (step == 0) {
            /* no communicator yet */
        } else if (step == 2) {
            note->ops_done++;
        } else if (step == 3) {
            note->ops_done++;
            (void)client_arrive(&c[0], &comms[0], key, OCCL_OP_BARRIER, true, 3000000000ull);
        } else if (step == 4) {
            (void)fixture_pump(&f, 2100, NULL, NULL);
        } else if (step == 5) {
            client_close(&c[1]);
            (void)fixture_pump(&f, 20, NULL, NULL);
            /* The process lives, so that counts as failed; a death is a death. */
            f.daemon->tenants->jobs.tqh_first->last_death_ns =
                f.daemon->started_ns + 1000000000000ull;
        }
        json_t *answer = client_admin(&admin, "{\"verb\":\"jobs\"}", &status);
        const json_t *job = json_array_get(json_object_get(answer, "jobs"), 0);
        assert_string_equal(json_string_value(json_object_get(job, "state")), want[step]);
        json_decref(answer);
        if (step == 0)
            clients_make_comm(c, 2, 1, comms);
    }
    for (int i = 0; i < 2; i++)
        client_comm_unmap(&comms[i]);
    client_close(&c[0]);
    client_close(&admin);
    fixture_stop(&f);
}

/* ---- metrics ---- */

static char *read_metrics(const struct fixture *f) {
    static char text[32768];
    FILE *in = fopen(f->config.metrics_file, "r");
    assert_non_null(in);
    size_t got = fread(text, 1, sizeof text - 1, in);
    text[got] = '\0';
    assert_int_equal(fclose(in), 0);
    return text;
}

/* L02: whole files by rename, stale jobs vanish, the format is what Prometheus reads. */
static void L02_metrics_file(void **state) {
    struct fixture f;
    struct client c;
    (void)state;
    fixture_prepare(&f);
    (void)snprintf(f.config.metrics_file, sizeof f.config.metrics_file, "%s/occl.prom", f.folder);
    f.config.metrics_interval_ns = 100000000;
    fixture_start(&f);
    assert_non_null(strstr(read_metrics(&f), "occl_build_info{version="));
    client_attach(&c, &f, "train-7", "blue");
    (void)fixture_pump(&f, 150, NULL, NULL);
    char *text = read_metrics(&f);
    assert_non_null(strstr(text, "tenant=\"0:blue\",job=\"train-7\"} 1"));
    assert_non_null(strstr(text, "# TYPE occl_ops_total counter"));
    assert_non_null(strstr(text, "occl_errors_total{kind=\"peer_failed\"} 0"));
    if (access("/usr/bin/promtool", X_OK) == 0) {
        char command[OCCL_CONFIG_TEXT_BYTES + 64];
        (void)snprintf(command, sizeof command, "/usr/bin/promtool check metrics < %s",
                       f.config.metrics_file);
        assert_int_equal(system(command), 0);
    } else {
        print_message("promtool is not installed: only our own look at the format\n");
    }
    client_close(&c);
    (void)fixture_pump(&f, 250, NULL, NULL);
    assert_null(strstr(read_metrics(&f), "train-7"));
    /* With nobody attached nothing is written any more. */
    assert_int_equal(unlink(f.config.metrics_file), 0);
    (void)fixture_pump(&f, 250, NULL, NULL);
    assert_int_not_equal(access(f.config.metrics_file, F_OK), 0);
    fixture_stop(&f);
}

/* ---- the end ---- */

static void drain_refuses_new_work_and_waits_for_old(void **state) {
    struct fixture f;
    struct client c[2];
    struct client_comm comms[2];
    struct client late;
    struct occl_msg_hello hello;
    struct occl_unique_id_wire id;
    static const struct occl_op_key key = {OCCL_PEERS_ALL, 1, 0};
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    for (int i = 0; i < 2; i++)
        client_attach(&c[i], &f, "job", "");
    clients_make_comm(c, 2, 1, comms);
    (void)client_arrive_with(&c[0], &comms[0], key, OCCL_OP_BARRIER, true, 0, OCCL_FLAG_IN_PAGE);
    client_unique_id(5, &id);
    (void)client_comm_ask(&c[1], &id, 0, 2, 0);
    (void)fixture_pump(&f, 10, NULL, NULL);
    occl_daemon_stop(f.daemon);
    assert_int_equal(occl_observe32(&c[0].page->session_state), OCCL_SESSION_DRAINING);
    assert_true(client_event(&c[0], OCCL_EVENT_SHUTDOWN, 500));
    assert_true(client_receive(&c[1], 500)); /* the rendezvous is refused */
    assert_int_equal(client_status(&c[1]), OCCL_E_SHUTTING_DOWN);
    client_connect(&late, &f, NULL);
    client_hello_fill(&hello, "job", "");
    client_hello_raw(&late, &hello);
    assert_int_equal(client_status(&late), OCCL_E_SHUTTING_DOWN);
    client_close(&late);
    /* The op is not complete: the daemon stays. */
    (void)fixture_pump(&f, 200, NULL, NULL);
    assert_false(f.daemon->stopping);
    (void)client_arrive_with(&c[1], &comms[1], key, OCCL_OP_BARRIER, true, 0, OCCL_FLAG_IN_PAGE);
    assert_int_equal(client_outcome(&comms[0], key), OCCL_OUT_DIRECT);
    (void)fixture_pump(&f, 300, NULL, NULL);
    assert_true(f.daemon->stopping);
    assert_true(client_sees_end(&c[0], 500));
    for (int i = 0; i < 2; i++) {
        client_comm_unmap(&comms[i]);
        client_close(&c[i]);
    }
    fixture_stop(&f);
}

static void drain_is_bounded_and_a_second_stop_aborts(void **state) {
    (void)state;
    for (int second = 0; second < 2; second++) {
        struct fixture f;
        struct client c[2];
        struct client_comm comms[2];
        static const struct occl_op_key key = {OCCL_PEERS_ALL, 1, 0};
        fixture_prepare(&f);
        f.config.drain_timeout_ns = second ? 60000000000ull : 100000000;
        fixture_start(&f);
        for (int i = 0; i < 2; i++)
            client_attach(&c[i], &f, "job", "");
        clients_make_comm(c, 2, 1, comms);
        struct occl_record *rec = client_arrive(&c[0], &comms[0], key, OCCL_OP_BARRIER, true, 0);
        occl_daemon_stop(f.daemon);
        if (second)
            occl_daemon_stop(f.daemon);
        (void)fixture_pump(&f, second ? 10 : 400, NULL, NULL);
        assert_true(f.daemon->stopping);
        assert_int_equal(occl_rec_kind(occl_observe32(&rec->state)), OCCL_REC_ABORTED);
        assert_int_equal(occl_rec_status(occl_observe32(&rec->state)), OCCL_E_SHUTTING_DOWN);
        assert_int_equal(occl_observe32(&c[0].page->session_state), OCCL_SESSION_OVER);
        for (int i = 0; i < 2; i++) {
            client_comm_unmap(&comms[i]);
            client_close(&c[i]);
        }
        fixture_stop(&f);
    }
}

static void private_daemon_ends_with_its_last_job(void **state) {
    struct fixture f;
    struct client c[2];
    (void)state;
    fixture_prepare(&f);
    fixture_start(&f);
    f.daemon->private_mode = true;
    client_attach(&c[0], &f, "one", "");
    client_attach(&c[1], &f, "two", "");
    client_close(&c[0]);
    (void)fixture_pump(&f, 50, NULL, NULL);
    assert_false(f.daemon->stopping);
    client_close(&c[1]);
    (void)fixture_pump(&f, 50, NULL, NULL);
    assert_true(f.daemon->stopping);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_hold_the_promised_keys),
        cmocka_unit_test(bad_requests_say_what),
        cmocka_unit_test(set_changes_a_running_job),
        cmocka_unit_test(set_speaks_in_names_and_units),
        cmocka_unit_test(set_refuses_what_its_table_does_not_hold),
        cmocka_unit_test(set_operator_group_takes_effect),
        cmocka_unit_test(others_see_only_their_own),
        cmocka_unit_test(L04_job_states_differ),
        cmocka_unit_test(L02_metrics_file),
        cmocka_unit_test(drain_refuses_new_work_and_waits_for_old),
        cmocka_unit_test(drain_is_bounded_and_a_second_stop_aborts),
        cmocka_unit_test(private_daemon_ends_with_its_last_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
