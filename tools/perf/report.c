/* SPDX-License-Identifier: Apache-2.0 */
/* Text with the columns of nccl-tests or of OSU's programs, and CSV: the same numbers. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/perf.h"

/* Output is checked once, at the end: no print below looks at its own result. */

static bool is_text(const struct occl_perf_report *report) {
    return !report->options->csv && !report->options->json;
}

const struct occl_perf_field occl_perf_fields[] = {
#define FIELD(name, member) \
    { name, offsetof(struct occl_perf_timing, member), false }
#define LATE(name, member) \
    { name, offsetof(struct occl_perf_timing, member), true }
    FIELD("time_us", time_us),
    FIELD("p50_us", percentiles_us[0]),
    FIELD("p99_us", percentiles_us[2]),
    FIELD("min_us", min_us),
    FIELD("max_us", max_us),
    FIELD("algbw_GBps", algbw_gbps),
    FIELD("busbw_GBps", busbw_gbps),
    LATE("variation", variation),
    LATE("p90_us", percentiles_us[1]),
    LATE("p999_us", percentiles_us[3]),
    LATE("median_low_us", low_us),
    LATE("median_high_us", high_us),
    LATE("quickest_rank_us", quickest_us),
    LATE("slowest_rank_us", slowest_us),
    {NULL, 0, false},
#undef FIELD
#undef LATE
};

const char *occl_perf_row_redop(const struct occl_perf_report *report,
                                const struct occl_perf_row *row) {
    return report->options->op->has_redop ? occl_perf_redop_name(row->redop) : "none";
}

const char *occl_perf_row_type(const struct occl_perf_report *report,
                               const struct occl_perf_row *row) {
    return occl_perf_op_has_data(report->options->op) ? occl_perf_type_name(row->type) : "none";
}

/* ---- text ---- */

struct column {
    const char *name, *unit;
    size_t offset; /* of a double in struct occl_perf_timing */
};
#define COLUMNS_MAX 12

/* The columns that were asked for beside those of nccl-tests. */
static int columns_of(const struct occl_perf_options *options, struct column *out_columns) {
    int count = 0;
    if (options->spread) {
        out_columns[count++] =
            (struct column){"min", "(us)", offsetof(struct occl_perf_timing, min_us)};
        out_columns[count++] =
            (struct column){"max", "(us)", offsetof(struct occl_perf_timing, max_us)};
    }
    for (int i = 0; i < OCCL_PERF_PERCENTILES; i++)
        if (options->percentiles[i] || (options->spread && i == 2))
            out_columns[count++] = (struct column){
                occl_perf_percentile_names[i], "(us)",
                offsetof(struct occl_perf_timing, percentiles_us) + (size_t)i * sizeof(double)};
    if (options->spread || options->interval)
        out_columns[count++] =
            (struct column){"var", "", offsetof(struct occl_perf_timing, variation)};
    if (options->interval) {
        out_columns[count++] =
            (struct column){"low95", "(us)", offsetof(struct occl_perf_timing, low_us)};
        out_columns[count++] =
            (struct column){"high95", "(us)", offsetof(struct occl_perf_timing, high_us)};
    }
    return count;
}

static double value_of(const struct occl_perf_timing *timing, const struct column *column) {
    const struct occl_perf_field field = {column->name, column->offset, false};
    return occl_perf_field_of(timing, &field);
}

static void text_columns(const struct occl_perf_report *report) {
    FILE *out = report->out;
    struct column extra[COLUMNS_MAX];
    int count = columns_of(report->options, extra);
    (void)fprintf(out,
                  "#\n# %10s  %12s  %8s  %6s  %6s           out-of-place%*s"
                  "                       in-place\n",
                  "", "", "", "", "", 9 * count, "");
    (void)fprintf(out, "# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int place = 0; place < 2; place++) {
        (void)fprintf(out, "  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
        for (int i = 0; i < count; i++)
            (void)fprintf(out, "  %7s", extra[i].name);
    }
    (void)fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int place = 0; place < 2; place++) {
        (void)fprintf(out, "  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
        for (int i = 0; i < count; i++)
            (void)fprintf(out, "  %7s", extra[i].unit);
    }
    (void)fputc('\n', out);
}

static void csv_names(FILE *out, const char *prefix, bool late) {
    for (const struct occl_perf_field *f = occl_perf_fields; f->name; f++)
        if (f->is_late == late)
            (void)fprintf(out, ",%s%s", prefix, f->name);
    if (!late)
        (void)fprintf(out, ",%swrong", prefix);
}

static void csv_head(FILE *out) {
    (void)fprintf(out, "op,bytes,count,type,redop,root,ranks,job");
    csv_names(out, "", false);
    csv_names(out, "in_place_", false);
    (void)fprintf(out, ",device,transport,switches,preemptions,daemon_cpu_us,group,groups");
    csv_names(out, "", true);
    csv_names(out, "in_place_", true);
    csv_names(out, "loaded_", false);
    csv_names(out, "loaded_", true);
    (void)fprintf(out, ",background_bytes,background_ops,background_busbw_GBps,"
                       "background_wrong\n");
}

void occl_perf_report_head(struct occl_perf_report *report, const int64_t *pids) {
    const struct occl_perf_options *o = report->options;
    FILE *out = report->out;
    if (o->csv)
        csv_head(out);
    if (!is_text(report) || o->style == OCCL_PERF_STYLE_OSU)
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
    for (int rank = 0; rank < report->ranks; rank++) {
        int groups;
        int group = occl_perf_group_of(o, rank, report->ranks, &groups);
        (void)fprintf(out, "#  Rank %2d Group %2d Pid %6lld on %10s device cpu\n", rank, group,
                      (long long)pids[rank], host);
    }
    text_columns(report);
}

static void text_timing(FILE *out, const struct occl_perf_timing *timing,
                        const struct column *extra, int count) {
    char time[24], wrong[24] = "N/A";
    if (!timing->valid) {
        (void)fprintf(out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        for (int i = 0; i < count; i++)
            (void)fprintf(out, "  %7s", "N/A");
        return;
    }
    int digits = timing->time_us >= 9999.5 ? 0 : timing->time_us >= 99.995 ? 1 : 2;
    (void)snprintf(time, sizeof time, "%.*f", digits, timing->time_us);
    if (timing->wrong >= 0)
        (void)snprintf(wrong, sizeof wrong, "%lld", (long long)timing->wrong);
    (void)fprintf(out, "  %7s  %6.2f  %6.2f  %6s", time, timing->algbw_gbps, timing->busbw_gbps,
                  wrong);
    for (int i = 0; i < count; i++)
        (void)fprintf(out, "  %7.2f", value_of(timing, &extra[i]));
}

/* The same op beside the load. */
static void text_loaded(const struct occl_perf_report *report, const struct occl_perf_row *row) {
    const struct occl_perf_load *load = &report->options->load;
    const struct occl_perf_timing *quiet = &row->out_of_place, *loaded = &row->loaded;
    (void)fprintf(
        report->out,
        "# beside %s of %llu B, %s, %d in flight: time %.2f -> %.2f us, p50 %.2f -> %.2f, "
        "p99 %.2f -> %.2f, #wrong %lld; load: %.0f ended, busbw %.2f GB/s, #wrong %lld\n",
        load->op->name, (unsigned long long)row->background.bytes,
        occl_perf_class_name(load->priority), load->in_flight, quiet->time_us, loaded->time_us,
        quiet->percentiles_us[0], loaded->percentiles_us[0], quiet->percentiles_us[2],
        loaded->percentiles_us[2], (long long)(loaded->wrong > 0 ? loaded->wrong : 0),
        row->background.ops, row->background.busbw_gbps,
        (long long)(row->background.wrong > 0 ? row->background.wrong : 0));
}

static void text_row(const struct occl_perf_report *report, const struct occl_perf_row *row) {
    struct column extra[COLUMNS_MAX];
    int count = columns_of(report->options, extra);
    (void)fprintf(report->out, "%12llu  %12llu  %8s  %6s  %6d", (unsigned long long)row->bytes,
                  (unsigned long long)row->count, occl_perf_row_type(report, row),
                  occl_perf_row_redop(report, row), row->root);
    text_timing(report->out, &row->out_of_place, extra, count);
    text_timing(report->out, &row->in_place, extra, count);
    const char *class = occl_perf_priority_name(report->options, row->job);
    if (report->options->jobs > 1)
        (void)fprintf(report->out, "  job %d%s%s", row->job, class ? " " : "", class ? class : "");
    if (report->groups > 1)
        (void)fprintf(report->out, "  group %d of %d ranks", row->group, row->ranks);
    (void)fputc('\n', report->out);
    if (row->loaded.valid)
        text_loaded(report, row);
}

/* ---- OSU ---- */

static void osu_head(const struct occl_perf_report *report, const struct occl_perf_row *row) {
    FILE *out = report->out;
    bool sized = occl_perf_op_has_data(report->options->op);
    (void)fprintf(out, "\n# OSU-style %s Latency Test of occl-perf: %d ranks, datatype %s, op %s",
                  report->options->op->name, row->ranks, occl_perf_row_type(report, row),
                  occl_perf_row_redop(report, row));
    if (row->root >= 0)
        (void)fprintf(out, ", root %d", row->root);
    (void)fprintf(out, "\n%-10s%18s%18s%18s%12s", sized ? "# Size" : "#", "Avg Latency(us)",
                  "Min Latency(us)", "Max Latency(us)", "Iterations");
    for (int i = 0; i < OCCL_PERF_PERCENTILES; i++)
        if (report->options->percentiles[i])
            (void)fprintf(out, "%12s(us)", occl_perf_percentile_names[i]);
    (void)fputc('\n', out);
}

/* One table for each group, type, operator and root; in_out: the row before, for all of these. */
static void osu_row(struct occl_perf_report *report, const struct occl_perf_row *row) {
    const struct occl_perf_options *o = report->options;
    const struct occl_perf_row *before = &report->last;
    uint64_t blocks = (uint64_t)occl_perf_op_blocks(o->op, row->ranks);
    uint64_t size = occl_perf_op_is_osu_block(o->op) ? row->bytes / blocks : row->bytes;
    if (!report->has_last || before->type != row->type || before->redop != row->redop ||
        before->root != row->root)
        osu_head(report, row);
    report->last = *row;
    report->has_last = true;
    if (occl_perf_op_has_data(o->op))
        (void)fprintf(report->out, "%-10llu", (unsigned long long)size);
    else
        (void)fprintf(report->out, "%-10s", "");
    (void)fprintf(report->out, "%18.2f%18.2f%18.2f%12d", row->out_of_place.time_us,
                  row->out_of_place.quickest_us, row->out_of_place.slowest_us, o->iterations);
    for (int i = 0; i < OCCL_PERF_PERCENTILES; i++)
        if (o->percentiles[i])
            (void)fprintf(report->out, "%16.2f", row->out_of_place.percentiles_us[i]);
    if (report->groups > 1)
        (void)fprintf(report->out, "  group %d", row->group);
    if (o->jobs > 1)
        (void)fprintf(report->out, "  job %d", row->job);
    (void)fputc('\n', report->out);
    if (row->loaded.valid)
        text_loaded(report, row);
}

/* ---- CSV ---- */

static void csv_number(FILE *out, bool known, double value) {
    if (known)
        (void)fprintf(out, ",%.9g", value);
    else
        (void)fputc(',', out);
}

static void csv_timing(FILE *out, const struct occl_perf_timing *timing, bool late) {
    for (const struct occl_perf_field *f = occl_perf_fields; f->name; f++)
        if (f->is_late == late)
            csv_number(out, timing->valid, occl_perf_field_of(timing, f));
    if (!late)
        csv_number(out, timing->valid && timing->wrong >= 0, (double)timing->wrong);
}

static void csv_row(const struct occl_perf_report *report, const struct occl_perf_row *row) {
    FILE *out = report->out;
    const struct occl_perf_background *load = &row->background;
    bool loaded = row->loaded.valid;
    (void)fprintf(out, "%s,%llu,%llu,%s,%s,%d,%d,%d", report->options->op->name,
                  (unsigned long long)row->bytes, (unsigned long long)row->count,
                  occl_perf_row_type(report, row), occl_perf_row_redop(report, row), row->root,
                  row->ranks, row->job);
    csv_timing(out, &row->out_of_place, false);
    csv_timing(out, &row->in_place, false);
    (void)fprintf(out, ",cpu,%s", row->transport);
    csv_number(out, row->switches >= 0, row->switches);
    csv_number(out, row->preemptions >= 0, row->preemptions);
    csv_number(out, row->daemon_cpu_us >= 0, row->daemon_cpu_us);
    (void)fprintf(out, ",%d,%d", row->group, report->groups);
    csv_timing(out, &row->out_of_place, true);
    csv_timing(out, &row->in_place, true);
    csv_timing(out, &row->loaded, false);
    csv_timing(out, &row->loaded, true);
    csv_number(out, loaded, (double)load->bytes);
    csv_number(out, loaded, load->ops);
    csv_number(out, loaded, load->busbw_gbps);
    csv_number(out, loaded && load->wrong >= 0, (double)load->wrong);
    (void)fputc('\n', out);
}

/* ---- all ---- */

static void take_wrong(struct occl_perf_report *report, int64_t wrong) {
    if (wrong > 0)
        report->wrong += wrong;
}

static void take_timing(struct occl_perf_report *report, const struct occl_perf_timing *timing) {
    if (!timing->valid)
        return;
    report->busbw_sum += timing->busbw_gbps;
    report->busbw_count++;
    take_wrong(report, timing->wrong);
}

static void keep(struct occl_perf_report *report, const struct occl_perf_row *row) {
    if (report->kept_count == report->kept_room) {
        size_t room = report->kept_room ? 2 * report->kept_room : 64;
        struct occl_perf_row *grown = realloc(report->kept, room * sizeof *grown);
        if (!grown)
            return; /* the picture lacks a row; the numbers themselves are printed */
        report->kept = grown;
        report->kept_room = room;
    }
    report->kept[report->kept_count++] = *row;
}

void occl_perf_report_rows(struct occl_perf_report *report, const struct occl_perf_row *rows,
                           int count) {
    const struct occl_perf_options *o = report->options;
    double total = 0;
    for (int i = 0; i < count; i++) {
        const struct occl_perf_row *row = &rows[i];
        take_timing(report, &row->out_of_place);
        take_timing(report, &row->in_place);
        if (row->loaded.valid) {
            take_wrong(report, row->loaded.wrong);
            take_wrong(report, row->background.wrong);
        }
        total += row->out_of_place.busbw_gbps;
        if (o->csv)
            csv_row(report, row);
        else if (o->json)
            occl_perf_json_row(report, row, report->out);
        else if (o->style == OCCL_PERF_STYLE_OSU)
            osu_row(report, row);
        else
            text_row(report, row);
        if (report->json_file)
            occl_perf_json_row(report, row, report->json_file);
        if (o->report_file)
            keep(report, row);
    }
    if (count > 1 && is_text(report))
        (void)fprintf(report->out, "# total of %d %s: busbw %.2f GB/s out of place\n", count,
                      report->groups > 1 ? "groups" : "jobs", total);
    (void)fflush(report->out);
}

int occl_perf_report_foot(struct occl_perf_report *report) {
    double average = report->busbw_count ? report->busbw_sum / report->busbw_count : 0;
    double expected = report->options->expected_gbps;
    bool slow = expected > 0 && average < 0.9 * expected;
    if (is_text(report) && report->options->style == OCCL_PERF_STYLE_NCCL) {
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
        written = !ferror(report->json_file) && written;
    if (report->json_file)
        written = fclose(report->json_file) == 0 && written;
    if (report->options->report_file)
        written = occl_perf_write_report(report) && written;
    if (!written)
        (void)fprintf(stderr, "occl-perf: the output could not be written\n");
    return report->wrong || slow || !written ? OCCL_PERF_WRONG : OCCL_PERF_FINE;
}
