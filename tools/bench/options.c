/* SPDX-License-Identifier: Apache-2.0 */
/* The command line that all programs of the benchmark share. */
#include "tools/bench/harness.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Some 50 ms of timed calls a point: thousands of short calls, a handful of long ones. */
#define BUDGET_DEFAULT_MS 50u
/* A longer budget would be a typing mistake. */
#define BUDGET_MAX_MS 600000u

static void usage(const char *program) {
    (void)fprintf(stderr,
                  "usage: %s --control FILE --points OP:BYTES[:sync],... [--out FILE]\n"
                  "          [--setting NAME] [--backend WORD] [--round N] [--ranks N]\n"
                  "          [--budget-ms MS] [--check-stride N] [--pin 0|1] [--line-cores A,B]\n",
                  program);
}

/* Reads a whole decimal number of at most `most`. */
static bool number_of(const char *text, size_t length, uint64_t most, uint64_t *out_number) {
    char digits[24];
    char *end = NULL;
    if (length == 0 || length >= sizeof digits || text[0] < '0' || text[0] > '9') {
        return false;
    }
    memcpy(digits, text, length);
    digits[length] = '\0';
    errno = 0;
    unsigned long long number = strtoull(digits, &end, 10);
    if (errno != 0 || *end != '\0' || number > most) {
        return false;
    }
    *out_number = number;
    return true;
}

static bool point_of(const char *text, size_t length, struct occl_bench_point *out_point) {
    const char *end = text + length;
    const char *bytes = memchr(text, ':', length);
    if (bytes == NULL || !occl_bench_op_find(text, (size_t)(bytes - text), &out_point->op)) {
        return false;
    }
    bytes++;
    const char *mode = memchr(bytes, ':', (size_t)(end - bytes));
    const char *bytes_end = mode != NULL ? mode : end;
    uint64_t number = 0;
    if (!number_of(bytes, (size_t)(bytes_end - bytes), (uint64_t)1 << 40, &number)) {
        return false;
    }
    out_point->bytes = (size_t)number;
    out_point->sync = mode != NULL;
    return mode == NULL || (end - mode == 5 && memcmp(mode, ":sync", 5) == 0);
}

static bool points_of(const char *text, struct occl_bench_options *options) {
    options->point_count = 0;
    while (options->point_count < OCCL_BENCH_POINTS_MAX) {
        size_t length = strcspn(text, ",");
        if (!point_of(text, length, &options->points[options->point_count])) {
            return false;
        }
        options->point_count++;
        if (text[length] == '\0') {
            return true;
        }
        text += length + 1;
    }
    return false;
}

/* Two core numbers, between which the distance is to be measured. */
static bool cores_of(const char *text, int *out_cores) {
    const char *comma = strchr(text, ',');
    uint64_t first = 0;
    uint64_t second = 0;
    if (comma == NULL || !number_of(text, (size_t)(comma - text), INT_MAX, &first) ||
        !number_of(comma + 1, strlen(comma + 1), INT_MAX, &second)) {
        return false;
    }
    out_cores[0] = (int)first;
    out_cores[1] = (int)second;
    return true;
}

static bool option_of(const char *name, const char *value, struct occl_bench_options *options) {
    uint64_t number = 0;
    if (strcmp(name, "--control") == 0) {
        options->control_path = value;
    } else if (strcmp(name, "--out") == 0) {
        options->out_path = value;
    } else if (strcmp(name, "--setting") == 0) {
        options->setting = value;
    } else if (strcmp(name, "--backend") == 0) {
        options->backend = value;
    } else if (strcmp(name, "--points") == 0) {
        return points_of(value, options);
    } else if (strcmp(name, "--line-cores") == 0) {
        return cores_of(value, options->line_cores);
    } else if (!number_of(value, strlen(value), UINT32_MAX, &number)) {
        return false;
    } else if (strcmp(name, "--round") == 0) {
        options->round = (uint32_t)number;
    } else if (strcmp(name, "--ranks") == 0) {
        options->ranks = (uint32_t)number;
    } else if (strcmp(name, "--budget-ms") == 0 && number <= BUDGET_MAX_MS) {
        options->budget_ns = number * 1000000u;
    } else if (strcmp(name, "--check-stride") == 0) {
        options->check_stride = (size_t)number;
    } else if (strcmp(name, "--pin") == 0) {
        options->pin = number != 0;
    } else {
        return false;
    }
    return true;
}

int occl_bench_parse(int argc, char **argv, struct occl_bench_options *out_options) {
    struct occl_bench_options options;
    memset(&options, 0, sizeof options);
    options.setting = "default";
    options.budget_ns = (uint64_t)BUDGET_DEFAULT_MS * 1000000u;
    options.check_stride = 1;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc || !option_of(argv[i], argv[i + 1], &options)) {
            (void)fprintf(stderr, "%s: cannot use %s %s\n", argv[0], argv[i],
                          i + 1 < argc ? argv[i + 1] : "(no value)");
            usage(argv[0]);
            return 2;
        }
    }
    if (options.control_path == NULL || options.point_count == 0) {
        (void)fprintf(stderr, "%s: --control and --points are needed\n", argv[0]);
        usage(argv[0]);
        return 2;
    }
    *out_options = options;
    return 0;
}
