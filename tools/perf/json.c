/* SPDX-License-Identifier: Apache-2.0 */
/* A row as one JSON object. */
#include <jansson.h>
#include <stdlib.h>

#include "tools/perf/perf.h"

static json_t *known(bool is_known, double value) {
    return is_known ? json_real(value) : json_null();
}

static json_t *whole(bool is_known, int64_t value) {
    return is_known ? json_integer(value) : json_null();
}

static int put_timing(json_t *into, const struct occl_perf_timing *timing) {
    int failed = 0;
    for (const struct occl_perf_field *f = occl_perf_fields; f->name; f++)
        failed |=
            json_object_set_new(into, f->name, known(timing->valid, occl_perf_field_of(timing, f)));
    return failed | json_object_set_new(into, "wrong",
                                        whole(timing->valid && timing->wrong >= 0, timing->wrong));
}

/* An object with the timing, or null where there is none. */
static json_t *timing_or_null(const struct occl_perf_timing *timing) {
    json_t *object = timing->valid ? json_object() : json_null();
    if (timing->valid && object && put_timing(object, timing) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *background_or_null(const struct occl_perf_load *load,
                                  const struct occl_perf_row *row) {
    const struct occl_perf_background *found = &row->background;
    if (!row->loaded.valid)
        return json_null();
    return json_pack("{s:s, s:I, s:s, s:i, s:f, s:f, s:o}", "op", load->op->name, "bytes",
                     (json_int_t)found->bytes, "priority", occl_perf_class_name(load->priority),
                     "in_flight", load->in_flight, "ops", found->ops, "busbw_GBps",
                     found->busbw_gbps, "wrong", whole(found->wrong >= 0, found->wrong));
}

void occl_perf_json_row(const struct occl_perf_report *report, const struct occl_perf_row *row,
                        FILE *out) {
    const struct occl_perf_options *o = report->options;
    json_t *object =
        json_pack("{s:i, s:s, s:I, s:I, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "schema", 1, "op",
                  o->op->name, "bytes", (json_int_t)row->bytes, "count", (json_int_t)row->count,
                  "type", occl_perf_row_type(report, row), "redop",
                  occl_perf_row_redop(report, row), "root", row->root, "ranks", row->ranks, "job",
                  row->job, "jobs", o->jobs, "group", row->group, "groups", report->groups);
    int failed = !object || put_timing(object, &row->out_of_place) != 0;
    json_t *rest = json_pack(
        "{s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:s?}", "in_place",
        timing_or_null(&row->in_place), "loaded", timing_or_null(&row->loaded), "background",
        background_or_null(&o->load, row), "device", "cpu", "transport", row->transport, "switches",
        known(row->switches >= 0, row->switches), "preemptions",
        known(row->preemptions >= 0, row->preemptions), "daemon_cpu_us",
        known(row->daemon_cpu_us >= 0, row->daemon_cpu_us), "memory",
        o->any_memory ? "any" : "zero-copy", "calls", o->blocking ? "blocking" : "nonblocking",
        "priority", occl_perf_priority_name(o, row->job));
    failed |= !rest || json_object_update(object, rest) != 0;
    if (failed || json_dumpf(object, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0)
        (void)fprintf(stderr, "occl-perf: cannot write JSON\n"); /* nowhere else to report */
    (void)fputc('\n', out);
    json_decref(rest);
    json_decref(object);
}
