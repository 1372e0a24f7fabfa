/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/occlctl/table.h"

#include <stdlib.h>
#include <string.h>

#include "tools/occlctl/human.h"

#define CELL_BYTES 160

const json_t *occl_table_value(const json_t *object, const char *key) {
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_object_get(object, key);
    char outer[64];
    (void)snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key); /* keys are ours */
    return json_object_get(json_object_get(object, outer), dot + 1);
}

const char *occl_table_string(const json_t *object, const char *key) {
    const char *text = json_string_value(occl_table_value(object, key));
    return text ? text : "";
}

long long occl_table_integer(const json_t *object, const char *key) {
    return json_integer_value(occl_table_value(object, key));
}

const char *occl_table_class_name(long long number) {
    static const char *const names[] = {"bulk", "normal", "high", "urgent"};
    return number >= 0 && number < 4 ? names[number] : "?";
}

/* Makes a name harmless for a terminal, in place. */
static void make_safe(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

void occl_table_safe_text(FILE *out, const char *text) {
    for (; *text; text++)
        (void)fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text,
                    out); /* the stream is checked at exit */
}

void occl_table_cell(const json_t *row, const struct occl_table_column *column, char *out_text,
                     size_t bytes) {
    const json_t *value = occl_table_value(row, column->key);
    char number[OCCL_HUMAN_BYTES];
    const char *text = "-";
    if (json_is_string(value) && json_string_value(value)[0])
        text = json_string_value(value);
    else if (json_is_true(value))
        text = "yes";
    else if (json_is_false(value))
        text = "no";
    else if (json_is_array(value)) {
        (void)snprintf(number, sizeof number, "%zu", json_array_size(value)); /* fits */
        text = number;
    } else if (json_is_integer(value)) {
        json_int_t n = json_integer_value(value);
        if (column->format == OCCL_TABLE_SIZE && n >= 0)
            text = occl_human_size((uint64_t)n, number, sizeof number);
        else if (column->format == OCCL_TABLE_AGE && n >= 0)
            text = occl_human_duration((uint64_t)n, number, sizeof number);
        else if (column->format == OCCL_TABLE_CLASS)
            text = occl_table_class_name(n);
        else {
            (void)snprintf(number, sizeof number, "%lld", (long long)n); /* fits */
            text = number;
        }
    }
    (void)snprintf(out_text, bytes, "%s", text); /* a long name is cut */
    make_safe(out_text);
}

static void print_line(FILE *out, const char *cells, const int *widths, const char *right,
                       size_t count) {
    for (size_t c = 0; c < count; c++) {
        const char *cell = cells + c * CELL_BYTES;
        bool last = c + 1 == count;
        if (right[c])
            (void)fprintf(out, "%*s", widths[c], cell); /* the stream is checked at exit */
        else if (last)
            (void)fputs(cell, out); /* as above; no blanks at the end of a line */
        else
            (void)fprintf(out, "%-*s", widths[c], cell); /* as above */
        (void)fputs(last ? "\n" : "  ", out);            /* as above */
    }
}

int occl_table_print(FILE *out, const struct occl_table_column *columns, size_t count,
                     const json_t *rows, bool headings) {
    size_t lines = json_array_size(rows) + 1;
    char *cells = calloc(lines * count, CELL_BYTES);
    int *widths = calloc(count, sizeof *widths);
    char *right = calloc(count, 1);
    int failed = cells && widths && right ? 0 : -1;
    for (size_t line = 0; !failed && line < lines; line++) {
        const json_t *row = line ? json_array_get(rows, line - 1) : NULL;
        for (size_t c = 0; c < count; c++) {
            char *cell = cells + (line * count + c) * CELL_BYTES;
            if (row)
                occl_table_cell(row, &columns[c], cell, CELL_BYTES);
            else
                (void)snprintf(cell, CELL_BYTES, "%s", columns[c].heading); /* fits */
            if ((line || headings) && (int)strlen(cell) > widths[c])
                widths[c] = (int)strlen(cell);
            const json_t *value = row ? occl_table_value(row, columns[c].key) : NULL;
            if (json_is_number(value) && columns[c].format != OCCL_TABLE_CLASS)
                right[c] = 1;
        }
    }
    for (size_t line = headings ? 0 : 1; !failed && line < lines; line++)
        print_line(out, cells + line * count * CELL_BYTES, widths, right, count);
    free(cells);
    free(widths);
    free(right);
    return failed;
}
