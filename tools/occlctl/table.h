/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned text tables out of arrays of JSON objects. */
#ifndef TOOLS_OCCLCTL_TABLE_H
#define TOOLS_OCCLCTL_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum occl_table_format {
    OCCL_TABLE_TEXT = 0,   /* strings, numbers and booleans as they are; "-" for null and "" */
    OCCL_TABLE_SIZE = 1,   /* bytes, for people */
    OCCL_TABLE_AGE = 2,    /* nanoseconds, for people */
    OCCL_TABLE_LENGTH = 3, /* how many elements an array has */
    OCCL_TABLE_CLASS = 4,  /* 0..3 as bulk, normal, high, urgent */
};

struct occl_table_column {
    const char *heading;
    const char *key; /* "name", or "name.inner" */
    enum occl_table_format format;
};

/* Writes one line a row, columns as wide as their widest cell. Numbers and ages stand to the right.
 * Control characters in cells become '?': names come from tenants. Allocates; returns 0, or -1
 * without having written anything when memory is short. */
int occl_table_print(FILE *out, const struct occl_table_column *columns, size_t count,
                     const json_t *rows, bool headings);

/* One cell as text into out_text. */
void occl_table_cell(const json_t *row, const struct occl_table_column *column, char *out_text,
                     size_t bytes);

/* Value at "name" or "name.inner", NULL if absent. Borrowed. */
const json_t *occl_table_value(const json_t *object, const char *key);

/* Writes text with control characters as '?'. */
void occl_table_safe_text(FILE *out, const char *text);

/* Short access to keys of answers: "" and 0 when absent or of another type. */
const char *occl_table_string(const json_t *object, const char *key);
long long occl_table_integer(const json_t *object, const char *key);
const char *occl_table_class_name(long long number);

#endif
