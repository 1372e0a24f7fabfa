/* SPDX-License-Identifier: Apache-2.0 */
/* The rows as a picture: time and bus bandwidth over size, both axes logarithmic, a curve for each
 * thing that was measured. The output is checked by who opened it. */
#include <math.h>

#include "tools/perf/perf.h"

#define PANEL_WIDTH 420
#define PANEL_HEIGHT 300
#define LEFT 80
#define TOP 40
#define GAP 90
#define LEGEND_ROW 18
#define SERIES_MAX 24

/* Colours that differ also in grey and for people who see red and green alike. */
static const char *const colors[] = {"#0b3c8c", "#d9730d", "#2e8b57", "#b0123b",
                                     "#6a3d9a", "#8a6d00", "#008b9a", "#555555"};
#define COLORS (sizeof colors / sizeof colors[0])

enum place { OUT_OF_PLACE, IN_PLACE, LOADED, PLACES };

struct series {
    const struct occl_perf_row *like; /* the first row of it */
    enum place place;
};

struct axis {
    double low, high; /* powers of ten, or of two */
    double start, end;
};

struct picture {
    const struct occl_perf_report *report;
    FILE *out;
    struct series series[SERIES_MAX];
    int series_count;
};

static const struct occl_perf_timing *timing_of(const struct occl_perf_row *row, enum place place) {
    return place == OUT_OF_PLACE ? &row->out_of_place
           : place == IN_PLACE   ? &row->in_place
                                 : &row->loaded;
}

static bool belongs(const struct series *series, const struct occl_perf_row *row) {
    const struct occl_perf_row *like = series->like;
    return like->type == row->type && like->redop == row->redop && like->root == row->root &&
           like->job == row->job && like->group == row->group &&
           timing_of(row, series->place)->valid;
}

/* Beyond SERIES_MAX the eye is lost anyway; the table of a page has all rows. */
static void find_series(struct picture *picture) {
    const struct occl_perf_report *report = picture->report;
    for (size_t i = 0; i < report->kept_count; i++) {
        for (int place = 0; place < PLACES; place++) {
            const struct occl_perf_row *row = &report->kept[i];
            bool found = !timing_of(row, (enum place)place)->valid;
            for (int s = 0; !found && s < picture->series_count; s++)
                found = picture->series[s].place == (enum place)place &&
                        belongs(&picture->series[s], row);
            if (!found && picture->series_count < SERIES_MAX)
                picture->series[picture->series_count++] = (struct series){row, (enum place)place};
        }
    }
}

/* A row without data has no size: it stands where one byte would. */
static double size_of(const struct occl_perf_row *row) {
    return row->bytes ? (double)row->bytes : 1;
}

/* What a panel shows; 0 is left out, since the axis is logarithmic. */
static double value_of(const struct occl_perf_timing *timing, bool is_time) {
    return is_time ? timing->time_us : timing->busbw_gbps;
}

static double at(const struct axis *axis, double logarithm) {
    double part = (logarithm - axis->low) / (axis->high - axis->low);
    return axis->start + part * (axis->end - axis->start);
}

static void widen(struct axis *axis, double logarithm) {
    axis->low = fmin(axis->low, floor(logarithm));
    axis->high = fmax(axis->high, ceil(logarithm));
}

static void finish(struct axis *axis) {
    if (!(axis->low <= axis->high))
        axis->low = axis->high = 0;
    if (axis->high - axis->low < 1)
        axis->high = axis->low + 1;
}

static void scale(const struct picture *picture, bool is_time, int left, struct axis *x,
                  struct axis *y) {
    *x = (struct axis){INFINITY, -INFINITY, left, left + PANEL_WIDTH};
    *y = (struct axis){INFINITY, -INFINITY, TOP + PANEL_HEIGHT, TOP};
    for (size_t i = 0; i < picture->report->kept_count; i++) {
        const struct occl_perf_row *row = &picture->report->kept[i];
        for (int place = 0; place < PLACES; place++) {
            const struct occl_perf_timing *timing = timing_of(row, (enum place)place);
            double value = timing->valid ? value_of(timing, is_time) : 0;
            if (value <= 0)
                continue;
            widen(x, log2(size_of(row)));
            widen(y, log10(value));
            if (is_time)
                widen(y, log10(timing->percentiles_us[2] > 0 ? timing->percentiles_us[2] : value));
        }
    }
    finish(x);
    finish(y);
}

static void size_label(double power, char *out_text, size_t room) {
    static const char *const units[] = {"", "K", "M", "G", "T"};
    int unit = (int)(power / 10);
    (void)snprintf(out_text, room, "%.0f%s", exp2(power - 10 * unit), units[unit > 4 ? 4 : unit]);
}

static void grid(FILE *out, const struct axis *x, const struct axis *y, const char *title) {
    (void)fprintf(out,
                  "<rect x=\"%.0f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
                  "stroke=\"#444\"/>\n"
                  "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\" font-size=\"14\">%s</text>\n",
                  x->start, TOP, PANEL_WIDTH, PANEL_HEIGHT, (x->start + x->end) / 2, TOP - 12,
                  title);
    double step = ceil((x->high - x->low) / 10);
    for (double power = x->low; power <= x->high; power += step) {
        char label[24];
        size_label(power, label, sizeof label);
        (void)fprintf(out,
                      "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#eee\"/>"
                      "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                      at(x, power), TOP, at(x, power), TOP + PANEL_HEIGHT, at(x, power),
                      TOP + PANEL_HEIGHT + 16, label);
    }
    for (double power = y->low; power <= y->high; power++)
        (void)fprintf(out,
                      "<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                      "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                      x->start, at(y, power), x->end, at(y, power), x->start - 6, at(y, power) + 4,
                      pow(10, power));
}

/* p99: the thin curve above that of the mean. */
static void curve(const struct picture *picture, int number, bool is_time, bool is_p99,
                  const struct axis *x, const struct axis *y) {
    static const char *const dashes[PLACES] = {"", "6 3", "2 3"};
    const struct series *series = &picture->series[number];
    FILE *out = picture->out;
    (void)fprintf(out,
                  "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" "
                  "stroke-dasharray=\"%s\" points=\"",
                  colors[(size_t)number % COLORS], is_p99 ? "0.7" : "2", dashes[series->place]);
    for (size_t i = 0; i < picture->report->kept_count; i++) {
        const struct occl_perf_row *row = &picture->report->kept[i];
        const struct occl_perf_timing *timing = timing_of(row, series->place);
        double value = is_p99 ? timing->percentiles_us[2] : value_of(timing, is_time);
        if (belongs(series, row) && value > 0)
            (void)fprintf(out, "%.1f,%.1f ", at(x, log2(size_of(row))), at(y, log10(value)));
    }
    (void)fprintf(out, "\"/>\n");
    for (size_t i = 0; !is_p99 && i < picture->report->kept_count; i++) {
        const struct occl_perf_row *row = &picture->report->kept[i];
        double value = value_of(timing_of(row, series->place), is_time);
        if (belongs(series, row) && value > 0)
            (void)fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
                          at(x, log2(size_of(row))), at(y, log10(value)),
                          colors[(size_t)number % COLORS]);
    }
}

static void panel(const struct picture *picture, bool is_time, int left, const char *title) {
    struct axis x, y;
    scale(picture, is_time, left, &x, &y);
    grid(picture->out, &x, &y, title);
    for (int i = 0; i < picture->series_count; i++) {
        curve(picture, i, is_time, false, &x, &y);
        if (is_time)
            curve(picture, i, is_time, true, &x, &y);
    }
}

static void legend(const struct picture *picture) {
    static const char *const places[PLACES] = {"", ", in place", ", beside the load"};
    for (int i = 0; i < picture->series_count; i++) {
        const struct series *series = &picture->series[i];
        const struct occl_perf_row *row = series->like;
        int y = TOP + PANEL_HEIGHT + 50 + i * LEGEND_ROW;
        (void)fprintf(picture->out,
                      "<rect x=\"%d\" y=\"%d\" width=\"24\" height=\"4\" fill=\"%s\"/>"
                      "<text x=\"%d\" y=\"%d\">%s %s",
                      LEFT, y - 6, colors[(size_t)i % COLORS], LEFT + 32, y,
                      occl_perf_row_type(picture->report, row),
                      occl_perf_row_redop(picture->report, row));
        if (row->root >= 0)
            (void)fprintf(picture->out, ", root %d", row->root);
        if (picture->report->options->jobs > 1)
            (void)fprintf(picture->out, ", job %d", row->job);
        if (picture->report->groups > 1)
            (void)fprintf(picture->out, ", group %d", row->group);
        (void)fprintf(picture->out, "%s</text>\n", places[series->place]);
    }
}

void occl_perf_plot(const struct occl_perf_report *report, FILE *out) {
    struct picture picture = {.report = report, .out = out};
    find_series(&picture);
    int width = LEFT + 2 * PANEL_WIDTH + GAP + 20;
    int height = TOP + PANEL_HEIGHT + 50 + (picture.series_count + 1) * LEGEND_ROW;
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
                  "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
                  width, height, width, height, width, height);
    char title[160];
    (void)snprintf(title, sizeof title, "%s, %d ranks: mean time and (thin) p99, us",
                   report->options->op->name, report->ranks); /* fits */
    panel(&picture, true, LEFT, title);
    panel(&picture, false, LEFT + PANEL_WIDTH + GAP, "bus bandwidth, GB/s");
    legend(&picture);
    (void)fprintf(out, "</svg>\n");
}
