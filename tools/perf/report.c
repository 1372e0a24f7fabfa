/* SPDX-License-Identifier: Apache-2.0 */
/* Text with the columns of nccl-tests, CSV, JSON lines: the same numbers. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/perf.h"

/* Output is checked once, at the end: no print below looks at its own result. */

static bool is_text(const struct occl_perf_report *report) {
    return !report->options->csv && !report->options->json;
}

static const char *redop_of(const struct occl_perf_report *report,
                            const struct occl_perf_row *row) {
    return report->options->op->has_redop ? occl_perf_redop_name(row->redop) : "none";
}

static const char *type_of(const struct occl_perf_report *report, const struct occl_perf_row *row) {
    return report->options->op->has_data ? occl_perf_type_name(row->type) : "none";
}

/* ---- text ---- */

static void text_columns(const struct occl_perf_report *report) {
    FILE *out = report->out;
    bool spread = report->options->spread;
    const char *extra = spread ? "      min      max      p99    var" : "";
    const char *extra_units = spread ? "     (us)     (us)     (us)       " : "";
    (void)fprintf(out,
                  "#\n# %10s  %12s  %8s  %6s  %6s           out-of-place%s               "
                  "        in-place%s\n",
                  "", "", "", "", "", spread ? "                                  " : "",
                  spread ? "                                  " : "");
    (void)fprintf(out, "# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; i++)
        (void)fprintf(out, "  %7s  %6s  %6s  %6s%s", "time", "algbw", "busbw", "#wrong", extra);
    (void)fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++)
        (void)fprintf(out, "  %7s  %6s  %6s  %6s%s", "(us)", "(GB/s)", "(GB/s)", "", extra_units);
    (void)fputc('\n', out);
}

void occl_perf_report_head(struct occl_perf_report *report, const int64_t *pids) {
    const struct occl_perf_options *o = report->options;
    FILE *out = report->out;
    if (o->csv)
        (void)fprintf(out,
                      "op,bytes,count,type,redop,root,ranks,job,time_us,p50_us,p99_us,min_us,"
                      "max_us,algbw_GBps,busbw_GBps,wrong,in_place_time_us,in_place_p50_us,"
                      "in_place_p99_us,in_place_min_us,in_place_max_us,in_place_algbw_GBps,"
                      "in_place_busbw_GBps,in_place_wrong,device,transport,switches,preemptions,"
                      "daemon_cpu_us\n");
    if (!is_text(report))
        return;
    char step[48];
    if (o->factor > 1)
        (void)snprintf(step, sizeof step, "%g(factor)", o->factor);
    else
        (void)snprintf(step, sizeof step, "%llu(bytes)", (unsigned long long)o->step_bytes);
    (void)fprintf(out,
                  "# occl-perf %s  ranks %d  jobs %d  minBytes %llu  maxBytes %llu  step: %s  "
                  "warmup iters: %d  iters: %d  agg iters: %d  validation: %d  memory: %s  "
                  "calls: %s\n#\n# Using devices\n",
                  o->op->name, report->ranks, o->jobs, (unsigned long long)o->min_bytes,
                  (unsigned long long)o->max_bytes, step, o->warmups, o->iterations, o->aggregate,
                  o->checks, o->any_memory ? "any" : "zero-copy",
                  o->blocking ? "blocking" : "nonblocking");
    char host[65] = "?";
    if (gethostname(host, sizeof host - 1) != 0)
        (void)snprintf(host, sizeof host, "?");
    for (int rank = 0; rank < report->ranks; rank++)
        (void)fprintf(out, "#  Rank %2d Group  0 Pid %6lld on %10s device cpu\n", rank,
                      (long long)pids[rank], host);
    text_columns(report);
}

static void text_timing(FILE *out, const struct occl_perf_timing *timing, bool spread) {
    char time[24], wrong[24] = "N/A";
    if (!timing->valid) {
        (void)fprintf(out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        if (spread)
            (void)fprintf(out, "  %7s  %7s  %7s  %5s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    int digits = timing->time_us >= 9999.5 ? 0 : timing->time_us >= 99.995 ? 1 : 2;
    (void)snprintf(time, sizeof time, "%.*f", digits, timing->time_us);
    if (timing->wrong >= 0)
        (void)snprintf(wrong, sizeof wrong, "%lld", (long long)timing->wrong);
    (void)fprintf(out, "  %7s  %6.2f  %6.2f  %6s", time, timing->algbw_gbps, timing->busbw_gbps,
                  wrong);
    if (spread)
        (void)fprintf(out, "  %7.2f  %7.2f  %7.2f  %5.2f", timing->min_us, timing->max_us,
                      timing->p99_us, timing->variation);
}

static void text_row(const struct occl_perf_report *report, const struct occl_perf_row *row) {
    (void)fprintf(report->out, "%12llu  %12llu  %8s  %6s  %6d", (unsigned long long)row->bytes,
                  (unsigned long long)row->count, type_of(report, row), redop_of(report, row),
                  row->root);
    text_timing(report->out, &row->out_of_place, report->options->spread);
    text_timing(report->out, &row->in_place, report->options->spread);
    const char *class = occl_perf_priority_name(report->options, row->job);
    if (report->options->jobs > 1)
        (void)fprintf(report->out, "  job %d%s%s", row->job, class ? " " : "", class ? class : "");
    (void)fputc('\n', report->out);
}

/* ---- CSV ---- */

static void csv_number(FILE *out, bool known, double value) {
    if (known)
        (void)fprintf(out, ",%.9g", value);
    else
        (void)fputc(',', out);
}

static void csv_timing(FILE *out, const struct occl_perf_timing *timing) {
    const double values[] = {timing->time_us, timing->p50_us,     timing->p99_us,    timing->min_us,
                             timing->max_us,  timing->algbw_gbps, timing->busbw_gbps};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        csv_number(out, timing->valid, values[i]);
    csv_number(out, timing->valid && timing->wrong >= 0, (double)timing->wrong);
}

static void csv_row(const struct occl_perf_report *report, const struct occl_perf_row *row) {
    FILE *out = report->out;
    (void)fprintf(out, "%s,%llu,%llu,%s,%s,%d,%d,%d", report->options->op->name,
                  (unsigned long long)row->bytes, (unsigned long long)row->count,
                  type_of(report, row), redop_of(report, row), row->root, report->ranks, row->job);
    csv_timing(out, &row->out_of_place);
    csv_timing(out, &row->in_place);
    (void)fprintf(out, ",cpu,%s", row->transport);
    csv_number(out, row->switches >= 0, row->switches);
    csv_number(out, row->preemptions >= 0, row->preemptions);
    csv_number(out, row->daemon_cpu_us >= 0, row->daemon_cpu_us);
    (void)fputc('\n', out);
}

/* ---- JSON ---- */

static json_t *json_known(bool known, double value) {
    return known ? json_real(value) : json_null();
}

static int json_timing(json_t *into, const struct occl_perf_timing *timing) {
    bool known = timing->valid;
    json_t *wrong = known && timing->wrong >= 0 ? json_integer(timing->wrong) : json_null();
    return json_object_set_new(into, "time_us", json_known(known, timing->time_us)) |
           json_object_set_new(into, "p50_us", json_known(known, timing->p50_us)) |
           json_object_set_new(into, "p99_us", json_known(known, timing->p99_us)) |
           json_object_set_new(into, "min_us", json_known(known, timing->min_us)) |
           json_object_set_new(into, "max_us", json_known(known, timing->max_us)) |
           json_object_set_new(into, "variation", json_known(known, timing->variation)) |
           json_object_set_new(into, "algbw_GBps", json_known(known, timing->algbw_gbps)) |
           json_object_set_new(into, "busbw_GBps", json_known(known, timing->busbw_gbps)) |
           json_object_set_new(into, "wrong", wrong);
}

static void json_row(const struct occl_perf_report *report, const struct occl_perf_row *row,
                     FILE *out) {
    const struct occl_perf_options *o = report->options;
    json_t *object =
        json_pack("{s:i, s:s, s:I, s:I, s:s, s:s, s:i, s:i, s:i, s:i}", "schema", 1, "op",
                  o->op->name, "bytes", (json_int_t)row->bytes, "count", (json_int_t)row->count,
                  "type", type_of(report, row), "redop", redop_of(report, row), "root", row->root,
                  "ranks", report->ranks, "job", row->job, "jobs", o->jobs);
    json_t *in_place = row->in_place.valid ? json_object() : json_null();
    int failed = !object || json_timing(object, &row->out_of_place);
    if (row->in_place.valid)
        failed |= json_timing(in_place, &row->in_place);
    failed |= json_object_set_new(object, "in_place", in_place);
    json_t *rest = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:s?}", "device", "cpu", "transport", row->transport,
        "switches", json_known(row->switches >= 0, row->switches), "preemptions",
        json_known(row->preemptions >= 0, row->preemptions), "daemon_cpu_us",
        json_known(row->daemon_cpu_us >= 0, row->daemon_cpu_us), "memory",
        o->any_memory ? "any" : "zero-copy", "calls", o->blocking ? "blocking" : "nonblocking",
        "priority", occl_perf_priority_name(o, row->job));
    failed |= !rest || json_object_update(object, rest);
    if (failed || json_dumpf(object, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0)
        (void)fprintf(stderr, "occl-perf: cannot write JSON\n"); /* nowhere else to report */
    (void)fputc('\n', out);
    json_decref(rest);
    json_decref(object);
}

/* ---- all ---- */

static void take_timing(struct occl_perf_report *report, const struct occl_perf_timing *timing) {
    if (!timing->valid)
        return;
    report->busbw_sum += timing->busbw_gbps;
    report->busbw_count++;
    if (timing->wrong > 0)
        report->wrong += timing->wrong;
}

void occl_perf_report_rows(struct occl_perf_report *report, const struct occl_perf_row *rows,
                           int jobs) {
    double total = 0;
    for (int job = 0; job < jobs; job++) {
        const struct occl_perf_row *row = &rows[job];
        take_timing(report, &row->out_of_place);
        take_timing(report, &row->in_place);
        total += row->out_of_place.busbw_gbps;
        if (report->options->csv)
            csv_row(report, row);
        else if (report->options->json)
            json_row(report, row, report->out);
        else
            text_row(report, row);
        if (report->json_file)
            json_row(report, row, report->json_file);
    }
    if (jobs > 1 && is_text(report))
        (void)fprintf(report->out, "# total of %d jobs: busbw %.2f GB/s out of place\n", jobs,
                      total);
    (void)fflush(report->out);
}

int occl_perf_report_foot(struct occl_perf_report *report) {
    double average = report->busbw_count ? report->busbw_sum / report->busbw_count : 0;
    double expected = report->options->expected_gbps;
    bool slow = expected > 0 && average < 0.9 * expected;
    if (is_text(report)) {
        if (report->options->checks > 0)
            (void)fprintf(report->out, "# Out of bounds values : %lld %s\n",
                          (long long)report->wrong, report->wrong ? "FAILED" : "OK");
        (void)fprintf(report->out, "# Avg bus bandwidth    : %g%s\n#\n", average,
                      expected > 0 ? slow ? " FAILED" : " OK" : "");
    }
    if (report->wrong)
        (void)fprintf(stderr, "occl-perf: %lld wrong values\n", (long long)report->wrong);
    if (slow)
        (void)fprintf(stderr, "occl-perf: average bus bandwidth %g GB/s, expected %g\n", average,
                      expected);
    bool written = fflush(report->out) == 0 && !ferror(report->out);
    if (report->json_file)
        written = fclose(report->json_file) == 0 && written;
    if (!written)
        (void)fprintf(stderr, "occl-perf: the output could not be written\n");
    return report->wrong || slow || !written ? OCCL_PERF_WRONG : OCCL_PERF_FINE;
}
