/* SPDX-License-Identifier: Apache-2.0 */
/* --report: the picture by itself, or a page that holds it with the table of all rows. */
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "tools/perf/perf.h"

static void cell(FILE *out, const struct occl_perf_timing *timing) {
    if (!timing->valid) {
        (void)fprintf(out, "<td>-<td>-<td>-<td>-<td>-"); /* checked when the file closes */
        return;
    }
    (void)fprintf(out, "<td>%.2f<td>%.2f<td>%.2f<td>%.2f<td>", timing->time_us,
                  timing->percentiles_us[0], timing->percentiles_us[2],
                  timing->busbw_gbps); /* as above */
    if (timing->wrong >= 0)
        (void)fprintf(out, "%lld", (long long)timing->wrong); /* as above */
    else
        (void)fputc('-', out); /* as above */
}

/* All output is checked when the file closes. */
static void page(const struct occl_perf_report *report, FILE *out) {
    static const char *const parts[] = {"out of place", "in place", "beside the load"};
    const struct occl_perf_options *o = report->options;
    struct utsname host;
    if (uname(&host) != 0)
        memset(&host, 0, sizeof host);
    (void)fprintf(out,
                  "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                  "<title>occl-perf %s</title>\n<style>body{font-family:sans-serif;margin:2em}"
                  "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:2px 8px;"
                  "text-align:right}</style></head><body>\n<h1>occl-perf %s</h1>\n"
                  "<p>%d ranks, %d jobs, %d groups; %d iterations after %d; %s memory, %s calls; "
                  "%s %s</p>\n",
                  o->op->name, o->op->name, report->ranks, o->jobs, report->groups, o->iterations,
                  o->warmups, o->any_memory ? "any" : "zero-copy",
                  o->blocking ? "blocking" : "nonblocking", host.sysname, host.release);
    occl_perf_plot(report, out);
    (void)fprintf(out, "<table><tr><th rowspan=2>bytes<th rowspan=2>count<th rowspan=2>type"
                       "<th rowspan=2>redop<th rowspan=2>root<th rowspan=2>job"
                       "<th rowspan=2>group");
    for (int i = 0; i < 3; i++)
        (void)fprintf(out, "<th colspan=5>%s", parts[i]);
    (void)fprintf(out, "<tr>");
    for (int i = 0; i < 3; i++)
        (void)fprintf(out, "<th>us<th>p50<th>p99<th>busbw<th>wrong");
    for (size_t i = 0; i < report->kept_count; i++) {
        const struct occl_perf_row *row = &report->kept[i];
        (void)fprintf(out, "\n<tr><td>%llu<td>%llu<td>%s<td>%s<td>%d<td>%d<td>%d",
                      (unsigned long long)row->bytes, (unsigned long long)row->count,
                      occl_perf_row_type(report, row), occl_perf_row_redop(report, row), row->root,
                      row->job, row->group);
        cell(out, &row->out_of_place);
        cell(out, &row->in_place);
        cell(out, &row->loaded);
    }
    (void)fprintf(out, "\n</table></body></html>\n");
}

bool occl_perf_write_report(const struct occl_perf_report *report) {
    const char *path = report->options->report_file;
    FILE *out = fopen(path, "we");
    if (!out) {
        perror(path);
        return false;
    }
    if (strcmp(path + strlen(path) - 4, ".svg") == 0)
        occl_perf_plot(report, out);
    else
        page(report, out);
    bool failed = ferror(out) != 0;
    return fclose(out) == 0 && !failed;
}
