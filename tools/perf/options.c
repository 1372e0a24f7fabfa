/* SPDX-License-Identifier: Apache-2.0 */
/* Flags: those of nccl-tests under their letters, ours under long names. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"

enum { KEY_CSV = 256, KEY_JSON, KEY_MEMORY, KEY_JOBS, KEY_BLOCKING, KEY_NONBLOCKING, KEY_EXPECT };

static const struct argp_option flags[] = {
    {"minbytes", 'b', "SIZE", 0, "Smallest size (default 32M)", 0},
    {"maxbytes", 'e', "SIZE", 0, "Largest size (default: the smallest)", 0},
    {"stepbytes", 'i', "SIZE", 0, "Step between sizes (default 1M)", 0},
    {"stepfactor", 'f', "FACTOR", 0, "Factor between sizes, instead of a step", 0},
    {"iters", 'n', "N", 0, "Timed iterations (default 20)", 0},
    {"warmup_iters", 'w', "N", 0, "Iterations before (default 5)", 0},
    {"agg_iters", 'm', "N", 0, "Operations in one group an iteration (default 1)", 0},
    {"check", 'c', "N", 0, "Check the result so often a size, 0: never (default 1)", 0},
    {"op", 'o', "sum|min|max|avg|all", 0, "Reduction (default sum)", 0},
    {"datatype", 'd', "int32|int64|half|bfloat16|float|double|all", 0, "Type (default float)", 0},
    {"root", 'r', "RANK", 0, "Root; -1: each in turn (default 0)", 0},
    {"run_cycles", 'N', "N", 0, "Repeat the sweep so often, 0: for ever (default 1)", 0},
    {"report_spread", 'I', NULL, 0, "Also print minimum, maximum, 99th percentile, variation", 0},
    {"timeout", 'T', "SECONDS", 0, "Give up after so long (default: never)", 0},
    {NULL, 'z', "0|1", 0, "1: blocking calls (default), 0: submit, then wait", 0},
    {"output_file", 'J', "FILE", 0, "Write the JSON objects into FILE as well", 0},
    {"csv", KEY_CSV, NULL, 0, "Print CSV", 1},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object a row", 1},
    {"memory", KEY_MEMORY, "zero-copy|any", 0, "Memory of occl_mem_alloc (default), or of malloc",
     1},
    {"jobs", KEY_JOBS, "N", 0, "So many jobs at once, each with all ranks, 1 to 16 (default 1)", 1},
    {"blocking", KEY_BLOCKING, NULL, 0, "As -z 1", 1},
    {"nonblocking", KEY_NONBLOCKING, NULL, 0, "As -z 0", 1},
    {"priority", 'p', "CLASS[,CLASS...]", 0,
     "Class of the operations: bulk, normal, high or urgent; one for all jobs, or one for each "
     "(default: the job's)",
     1},
    {"expect-busbw", KEY_EXPECT, "GB/S", 0,
     "Fail when the average bus bandwidth is below 90 % of this", 1},
    {0},
};

static const struct {
    enum occl_type type;
    const char *names[3]; /* the first is printed */
} types[OCCL_PERF_TYPES] = {
    {OCCL_INT32, {"int32", "int", NULL}},         {OCCL_INT64, {"int64", "long", NULL}},
    {OCCL_FLOAT16, {"half", "float16", "fp16"}},  {OCCL_BFLOAT16, {"bfloat16", "bf16", NULL}},
    {OCCL_FLOAT32, {"float", "float32", "fp32"}}, {OCCL_FLOAT64, {"double", "float64", "fp64"}},
};

static const struct {
    enum occl_redop redop;
    const char *name;
} redops[OCCL_PERF_REDOPS] = {
    {OCCL_SUM, "sum"}, {OCCL_MIN, "min"}, {OCCL_MAX, "max"}, {OCCL_AVG, "avg"}};

static const char *const classes[] = {"bulk", "normal", "high", "urgent"};

const char *occl_perf_priority_name(const struct occl_perf_options *options, int job) {
    int class = options->priorities[job];
    return class == OCCL_PRIORITY_DEFAULT ? NULL : classes[class];
}

const char *occl_perf_type_name(enum occl_type type) {
    for (int i = 0; i < OCCL_PERF_TYPES; i++)
        if (types[i].type == type)
            return types[i].names[0];
    return "?";
}

const char *occl_perf_redop_name(enum occl_redop redop) {
    for (int i = 0; i < OCCL_PERF_REDOPS; i++)
        if (redops[i].redop == redop)
            return redops[i].name;
    return "?";
}

static void parse_type(struct argp_state *state, const char *text,
                       struct occl_perf_options *options) {
    options->type_count = 0;
    for (int i = 0; i < OCCL_PERF_TYPES; i++) {
        bool named = strcmp(text, "all") == 0;
        for (int n = 0; n < 3 && types[i].names[n]; n++)
            named = named || strcmp(text, types[i].names[n]) == 0;
        if (named)
            options->types[options->type_count++] = types[i].type;
    }
    if (options->type_count == 0)
        argp_error(state, "-d wants int32, int64, half, bfloat16, float, double or all, found '%s'",
                   text);
}

static void parse_redop(struct argp_state *state, const char *text,
                        struct occl_perf_options *options) {
    options->redop_count = 0;
    for (int i = 0; i < OCCL_PERF_REDOPS; i++)
        if (strcmp(text, "all") == 0 || strcmp(text, redops[i].name) == 0)
            options->redops[options->redop_count++] = redops[i].redop;
    if (options->redop_count == 0)
        argp_error(state, "-o wants sum, min, max, avg or all, found '%s'", text);
}

static uint64_t parse_size(struct argp_state *state, int key, const char *text) {
    int64_t bytes = occl_perf_parse_size(text);
    if (bytes < 0)
        argp_error(state, "-%c wants a size such as 8, 64K or 1M, found '%s'", key, text);
    return (uint64_t)bytes;
}

static int parse_number(struct argp_state *state, const char *name, const char *text, long least,
                        long most) {
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < least || number > most)
        argp_error(state, "%s wants a number from %ld to %ld, found '%s'", name, least, most, text);
    return (int)number;
}

static double parse_real(struct argp_state *state, const char *name, const char *text,
                         double above) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number > above) || number > 1e9)
        argp_error(state, "%s wants a number above %g, found '%s'", name, above, text);
    return number;
}

static int parse_class(struct argp_state *state, const char *text, size_t length) {
    for (int i = 0; i < 4; i++) {
        bool numbered = length == 1 && text[0] == '0' + i;
        if (numbered || (strlen(classes[i]) == length && memcmp(classes[i], text, length) == 0))
            return i;
    }
    argp_error(state, "-p wants bulk, normal, high or urgent, found '%.*s'", (int)length, text);
    return OCCL_PRIORITY_DEFAULT;
}

static void parse_priorities(struct argp_state *state, const char *text,
                             struct occl_perf_options *options) {
    options->priority_count = 0;
    for (const char *rest = text; rest; rest = strchr(rest, ',')) {
        rest += rest != text; /* the comma */
        if (options->priority_count == OCCL_PERF_JOBS_MAX)
            argp_error(state, "-p wants at most %d classes, found '%s'", OCCL_PERF_JOBS_MAX, text);
        int class = parse_class(state, rest, strcspn(rest, ","));
        options->priorities[options->priority_count++] = class;
    }
}

/* Letters that nccl-tests have. */
static error_t parse_letter(int key, char *arg, struct argp_state *state,
                            struct occl_perf_options *o) {
    switch (key) {
    case 'b':
        o->min_bytes = parse_size(state, key, arg);
        return 0;
    case 'e':
        o->max_bytes = parse_size(state, key, arg);
        return 0;
    case 'i':
        o->step_bytes = parse_size(state, key, arg);
        return 0;
    case 'f':
        o->factor = parse_real(state, "-f", arg, 1);
        return 0;
    case 'n':
        o->iterations = parse_number(state, "-n", arg, 1, 100000000);
        return 0;
    case 'w':
        o->warmups = parse_number(state, "-w", arg, 0, 100000000);
        return 0;
    case 'm':
        o->aggregate = parse_number(state, "-m", arg, 1, 1024);
        return 0;
    case 'c':
        o->checks = parse_number(state, "-c", arg, 0, 1000000);
        return 0;
    case 'o':
        parse_redop(state, arg, o);
        return 0;
    case 'd':
        parse_type(state, arg, o);
        return 0;
    case 'r':
        o->root = parse_number(state, "-r", arg, -1, 65535);
        return 0;
    case 'N':
        o->cycles = parse_number(state, "-N", arg, 0, 100000000);
        return 0;
    case 'I':
        o->spread = true;
        return 0;
    case 'T':
        o->timeout_s = parse_number(state, "-T", arg, 1, 1000000);
        return 0;
    case 'z':
        o->blocking = parse_number(state, "-z", arg, 0, 1) == 1;
        return 0;
    case 'J':
        o->json_file = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void check_together(struct argp_state *state, struct occl_perf_options *o) {
    if (!o->op)
        argp_error(state, "an operation is expected, found none; `occl-perf --help` lists them");
    if (o->max_bytes == 0)
        o->max_bytes = o->min_bytes;
    if (o->max_bytes < o->min_bytes)
        argp_error(state, "-e wants a size of at least that of -b, %llu, found %llu",
                   (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes);
    if (o->factor <= 1 && o->step_bytes == 0 && o->max_bytes > o->min_bytes)
        argp_error(state, "-i wants a step above 0 where -e is larger than -b, found 0");
    if (o->csv && o->json)
        argp_error(state, "one form of output is expected, found --csv and --json");
    if (o->priority_count != 1 && o->priority_count != o->jobs)
        argp_error(state, "-p wants one class, or one for each of %d jobs, found %d", o->jobs,
                   o->priority_count);
    for (int job = o->priority_count; job < o->jobs; job++)
        o->priorities[job] = o->priorities[0];
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct occl_perf_options *o = state->input;
    switch (key) {
    case KEY_CSV:
        o->csv = true;
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case KEY_MEMORY:
        o->any_memory = strcmp(arg, "any") == 0;
        if (!o->any_memory && strcmp(arg, "zero-copy") != 0)
            argp_error(state, "--memory wants zero-copy or any, found '%s'", arg);
        return 0;
    case KEY_JOBS:
        o->jobs = parse_number(state, "--jobs", arg, 1, OCCL_PERF_JOBS_MAX);
        return 0;
    case KEY_BLOCKING:
        o->blocking = true;
        return 0;
    case KEY_NONBLOCKING:
        o->blocking = false;
        return 0;
    case 'p':
        parse_priorities(state, arg, o);
        return 0;
    case KEY_EXPECT:
        o->expected_gbps = parse_real(state, "--expect-busbw", arg, 0);
        return 0;
    case ARGP_KEY_ARG:
        if (o->op)
            argp_error(state, "one operation at a time, found '%s' too", arg);
        o->op = occl_perf_op_find(arg);
        if (!o->op)
            argp_error(state, "no operation '%s'; `occl-perf --help` lists them", arg);
        return 0;
    case ARGP_KEY_END:
        check_together(state, o);
        return 0;
    default:
        return parse_letter(key, arg, state, o);
    }
}

/* The list of operations for --help, made from the table. */
static char *list_ops(int key, const char *text, void *input) {
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)(uintptr_t)text;
    char *list = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&list, &bytes);
    if (!out)
        return NULL;
    int count;
    const struct occl_perf_op *ops = occl_perf_ops(&count);
    (void)fprintf(out, "Operations:\n"); /* to memory: checked by fclose */
    for (int i = 0; i < count; i++)
        (void)fprintf(out, "  %-11s %s\n", ops[i].name, ops[i].summary); /* as above */
    (void)fprintf(out, "\nExit status: 0 fine, 1 a wrong value or too little bandwidth, 2 usage, "
                       "3 an error of occl or no time left.\n"); /* as above */
    if (fclose(out) != 0) {
        free(list);
        return NULL;
    }
    return list;
}

void occl_perf_parse(int argc, char **argv, struct occl_perf_options *out_options) {
    const struct argp argp = {
        .options = flags,
        .parser = parse,
        .args_doc = "OPERATION",
        .doc = "Measures collective operations with the flags, columns and formulas of "
               "nccl-tests. Start it with `occlctl run -n RANKS occl-perf ...`.\v ",
        .help_filter = list_ops,
    };
    *out_options = (struct occl_perf_options){
        .min_bytes = 32u << 20,
        .step_bytes = 1u << 20,
        .factor = 1,
        .iterations = 20,
        .warmups = 5,
        .aggregate = 1,
        .checks = 1,
        .cycles = 1,
        .types = {OCCL_FLOAT32},
        .type_count = 1,
        .redops = {OCCL_SUM},
        .redop_count = 1,
        .jobs = 1,
        .priorities = {OCCL_PRIORITY_DEFAULT},
        .priority_count = 1,
        .blocking = true,
    };
    argp_err_exit_status = OCCL_PERF_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, out_options) != 0)
        exit(OCCL_PERF_USAGE);
}
