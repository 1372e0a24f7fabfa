/* SPDX-License-Identifier: Apache-2.0 */
/* `occlctl status`: the daemon in a few lines, problems last so that they stay on the screen. */
#include "tools/occlctl/human.h"
#include "tools/occlctl/occlctl.h"
#include "tools/occlctl/table.h"

static void print_field(FILE *out, const char *name, const char *text) {
    (void)fprintf(out, "%-12s ", name); /* stdout is checked at exit */
    occl_table_safe_text(out, text);
    (void)fputc('\n', out); /* as above */
}

static void print_engine(FILE *out, const json_t *engine) {
    char start[OCCL_HUMAN_BYTES], change[OCCL_HUMAN_BYTES];
    (void)fprintf(
        out,
        "%-12s %lld completed, %lld failed, %lld preemptions, %lld switches\n"
        "%-12s start %s, switch %s (median)\n",
        "ops", occl_table_integer(engine, "ops_completed_total"),
        occl_table_integer(engine, "ops_failed_total"),
        occl_table_integer(engine, "preemptions_total"),
        occl_table_integer(engine, "switches_total"), "latency",
        occl_human_duration((uint64_t)occl_table_integer(engine, "submit_to_start_ns_p50"), start,
                            sizeof start),
        occl_human_duration((uint64_t)occl_table_integer(engine, "switch_ns_p50"), change,
                            sizeof change)); /* stdout is checked at exit */
}

static int show_status(FILE *out, const struct occl_ctl_options *options, const json_t *reply) {
    (void)options;
    const json_t *problems = json_object_get(reply, "problems");
    int code = json_array_size(problems) ? OCCL_CTL_PROBLEM : OCCL_CTL_FINE;
    if (!out)
        return code;
    char text[512], age[OCCL_HUMAN_BYTES], used[OCCL_HUMAN_BYTES], most[OCCL_HUMAN_BYTES];
    const json_t *daemon = json_object_get(reply, "daemon");
    (void)snprintf(text, sizeof text, "%s, version %s, pid %lld on %s, up %s",
                   occl_table_string(reply, "state"), occl_table_string(daemon, "version"),
                   occl_table_integer(daemon, "pid"), occl_table_string(daemon, "host"),
                   occl_human_duration((uint64_t)occl_table_integer(reply, "uptime_ns"), age,
                                       sizeof age)); /* cut is fine */
    print_field(out, "daemon", text);
    print_field(out, "socket", occl_table_string(reply, "socket"));
    const char *refused = occl_table_string(reply, "loop_refused");
    (void)snprintf(text, sizeof text, "%lld, loop %s%s%s%s", occl_table_integer(reply, "lanes"),
                   occl_table_string(reply, "loop"), refused[0] ? " (" : "", refused,
                   refused[0] ? ")" : ""); /* cut is fine */
    print_field(out, "lanes", text);
    (void)snprintf(text, sizeof text, "%lld tenants, %lld jobs, %lld processes, %lld communicators",
                   occl_table_integer(reply, "tenants"), occl_table_integer(reply, "jobs"),
                   occl_table_integer(reply, "sessions"),
                   occl_table_integer(reply, "comms")); /* fits */
    print_field(out, "in use", text);
    (void)snprintf(text, sizeof text, "%lld, the oldest for %s",
                   occl_table_integer(reply, "ops_waiting"),
                   occl_human_duration((uint64_t)occl_table_integer(reply, "oldest_op_age_ns"), age,
                                       sizeof age)); /* fits */
    print_field(out, "ops waiting", text);
    (void)snprintf(
        text, sizeof text, "%s registered of at most %s",
        occl_human_size((uint64_t)occl_table_integer(reply, "registered_bytes"), used, sizeof used),
        occl_human_size((uint64_t)occl_table_integer(reply, "registered_max_bytes"), most,
                        sizeof most)); /* fits */
    print_field(out, "memory", text);
    print_engine(out, json_object_get(reply, "engine"));
    size_t index;
    json_t *problem;
    json_array_foreach(problems, index, problem)
        print_field(out, "problem", json_string_value(problem) ? json_string_value(problem) : "?");
    if (code == OCCL_CTL_FINE)
        print_field(out, "problems", "none");
    return code;
}

int occl_ctl_status(const struct occl_ctl_options *options, int argc, char **argv) {
    (void)argc;
    (void)argv;
    return occl_ctl_query(options, "status", show_status);
}
