/* SPDX-License-Identifier: Apache-2.0 */
/* Flags: those of nccl-tests under their letters, ours under long names. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"

enum {
    KEY_CSV = 256,
    KEY_JSON,
    KEY_MEMORY,
    KEY_JOBS,
    KEY_BLOCKING,
    KEY_NONBLOCKING,
    KEY_EXPECT,
    KEY_STYLE,
    KEY_PERCENTILES,
    KEY_INTERVAL,
    KEY_BACKGROUND,
    KEY_REPORT,
    KEY_SPECIAL,
};

/* A size that no flag has set yet. */
#define UNSET UINT64_MAX

static const struct argp_option flags[] = {
    {"minbytes", 'b', "SIZE", 0, "Smallest size (default 32M)", 0},
    {"maxbytes", 'e', "SIZE", 0, "Largest size (default: the smallest)", 0},
    {"stepbytes", 'i', "SIZE", 0, "Step between sizes (default 1M)", 0},
    {"stepfactor", 'f', "FACTOR", 0, "Factor between sizes, instead of a step", 0},
    {"iters", 'n', "N", 0, "Timed iterations (default 20)", 0},
    {"warmup_iters", 'w', "N", 0, "Iterations before (default 5)", 0},
    {"agg_iters", 'm', "N", 0, "Operations in one group an iteration (default 1)", 0},
    {"check", 'c', "N", 0, "Check the result so often a size, 0: never (default 1)", 0},
    {"op", 'o', "OP[,OP...]", 0,
     "Reduction: " OCCL_PERF_REDOP_WORDS
     " (default sum). With all, here or in -d, only what is defined for the type is run",
     0},
    {"datatype", 'd', "TYPE[,TYPE...]", 0,
     "Type: " OCCL_PERF_TYPE_WORDS " (default float); the last four are pairs of a value and an "
     "index",
     0},
    {"root", 'r', "RANK", 0, "Root; -1: each in turn (default 0)", 0},
    {"run_cycles", 'N', "N", 0, "Repeat the sweep so often, 0: for ever (default 1)", 0},
    {"report_spread", 'I', NULL, 0, "Also print minimum, maximum, 99th percentile, variation", 0},
    {"timeout", 'T', "SECONDS", 0, "Give up after so long (default: never)", 0},
    {"split", 'M', "RULE", 0,
     "Several groups at once: ranks for which MOD N, DIV N, AND MASK or OR MASK (also %N, /N, &N, "
     "|N) gives the same number form one (default: $NCCL_TESTS_SPLIT, else one group)",
     0},
    {NULL, 'z', "0|1", 0, "1: blocking calls (default), 0: submit, then wait", 0},
    {"output_file", 'J', "FILE", 0, "Write the JSON objects into FILE as well", 0},
    {"csv", KEY_CSV, NULL, 0, "Print CSV", 1},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object a row", 1},
    {"memory", KEY_MEMORY, "zero-copy|any", 0, "Of occl_mem_alloc (default), or of malloc", 1},
    {"jobs", KEY_JOBS, "N", 0, "So many jobs at once, each with all ranks, 1 to 16 (default 1)", 1},
    {"blocking", KEY_BLOCKING, NULL, 0, "As -z 1", 1},
    {"nonblocking", KEY_NONBLOCKING, NULL, 0, "As -z 0", 1},
    {"priority", 'p', "CLASS[,CLASS...]", 0,
     "Class of the operations: bulk, normal, high or urgent; one for all jobs, or one for each "
     "(default: the job's)",
     1},
    {"style", KEY_STYLE, "nccl|osu", 0,
     "Columns of nccl-tests (default), or of the OSU micro-benchmarks: mean, minimum and maximum "
     "over the ranks, sizes those of a block where there are blocks; sizes 4 to 1M by 2 and 100 "
     "iterations where nothing else is said",
     1},
    {"percentiles", KEY_PERCENTILES, "p50,p90,p99,p999", 0,
     "Also print these percentiles of rank 0's iterations", 1},
    {"interval", KEY_INTERVAL, NULL, 0,
     "Also print the variation (standard deviation / mean) and the 95 % interval of the median", 1},
    {"background", KEY_BACKGROUND, "OP,SIZE[,CLASS[,N]]", 0,
     "Measure once more while a second communicator of all ranks keeps N (default 2) of these in "
     "flight, of class CLASS (default bulk); what is measured is of class high unless -p says else",
     1},
    {"report", KEY_REPORT, "FILE.svg|FILE.html", 0, "Write a picture, or a page with it", 1},
    {"special-values", KEY_SPECIAL, NULL, 0,
     "Check with inputs that hold NaNs, infinities, zeros of both signs and the largest number, "
     "where the type has them",
     1},
    {"expect-busbw", KEY_EXPECT, "GB/S", 0,
     "Fail when the average bus bandwidth is below 90 % of this", 1},
    {0},
};

static void parse_type(struct argp_state *state, const char *text,
                       struct occl_perf_options *options) {
    const char *bad;
    if (!occl_perf_parse_types(text, options, &bad))
        argp_error(state, "-d wants " OCCL_PERF_TYPE_WORDS ", found '%.*s'", (int)strcspn(bad, ","),
                   bad);
}

static void parse_redop(struct argp_state *state, const char *text,
                        struct occl_perf_options *options) {
    const char *bad;
    if (!occl_perf_parse_redops(text, options, &bad))
        argp_error(state, "-o wants " OCCL_PERF_REDOP_WORDS ", found '%.*s'",
                   (int)strcspn(bad, ","), bad);
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

static int parse_class(struct argp_state *state, const char *flag, const char *text,
                       size_t length) {
    int class = occl_perf_parse_class(text, length);
    if (class < 0)
        argp_error(state, "%s wants bulk, normal, high or urgent, found '%.*s'", flag, (int)length,
                   text);
    return class;
}

static void parse_priorities(struct argp_state *state, const char *text,
                             struct occl_perf_options *options) {
    options->priority_count = 0;
    for (const char *rest = text; rest; rest = strchr(rest, ',')) {
        rest += rest != text; /* the comma */
        if (options->priority_count == OCCL_PERF_JOBS_MAX)
            argp_error(state, "-p wants at most %d classes, found '%s'", OCCL_PERF_JOBS_MAX, text);
        int class = parse_class(state, "-p", rest, strcspn(rest, ","));
        options->priorities[options->priority_count++] = class;
    }
}

/* "%2", "MOD 2", "mod2": what nccl-tests take. */
static void parse_split(struct argp_state *state, const char *text, struct occl_perf_options *o) {
    static const struct {
        const char *word;
        enum occl_perf_split split;
    } words[] = {{"AND", OCCL_PERF_SPLIT_AND}, {"OR", OCCL_PERF_SPLIT_OR},
                 {"MOD", OCCL_PERF_SPLIT_MOD}, {"DIV", OCCL_PERF_SPLIT_DIV},
                 {"&", OCCL_PERF_SPLIT_AND},   {"|", OCCL_PERF_SPLIT_OR},
                 {"%", OCCL_PERF_SPLIT_MOD},   {"/", OCCL_PERF_SPLIT_DIV}};
    const char *digits = text;
    for (size_t i = 0; digits == text && i < sizeof words / sizeof words[0]; i++) {
        if (strncasecmp(text, words[i].word, strlen(words[i].word)) == 0) {
            o->split = words[i].split;
            digits += strlen(words[i].word);
        }
    }
    char *end;
    long number = strtol(digits, &end, 0);
    bool divides = o->split == OCCL_PERF_SPLIT_MOD || o->split == OCCL_PERF_SPLIT_DIV;
    if (digits == text || end == digits || *end != '\0' || number < divides || number > 65535)
        argp_error(state, "-M wants MOD, DIV, AND or OR and a number up to 65535, found '%s'",
                   text);
    o->split_number = (int)number;
}

const char *const occl_perf_percentile_names[] = {"p50", "p90", "p99", "p999"};
const double occl_perf_percentile_shares[] = {0.5, 0.9, 0.99, 0.999};

static void parse_percentiles(struct argp_state *state, const char *text,
                              struct occl_perf_options *o) {
    for (;; text++) {
        size_t length = strcspn(text, ",");
        bool found = false;
        for (int i = 0; i < OCCL_PERF_PERCENTILES; i++) {
            const char *name = occl_perf_percentile_names[i];
            if (strlen(name) == length && memcmp(name, text, length) == 0)
                found = o->percentiles[i] = true;
        }
        if (!found)
            argp_error(state, "--percentiles wants p50, p90, p99 or p999, found '%.*s'",
                       (int)length, text);
        text += length;
        if (*text == '\0')
            return;
    }
}

/* OP,SIZE[,CLASS[,N]] */
static void parse_background(struct argp_state *state, const char *text,
                             struct occl_perf_options *o) {
    char *copy = strdup(text);
    char *rest = copy;
    const char *op = strsep(&rest, ",");
    const char *size = strsep(&rest, ",");
    const char *class = strsep(&rest, ",");
    const char *number = strsep(&rest, ",");
    o->load.op = occl_perf_op_find(op);
    if (!o->load.op || !occl_perf_op_has_data(o->load.op) || o->load.op->is_pair)
        argp_error(state, "--background wants a collective operation with data, found '%s'", op);
    int64_t bytes = size ? occl_perf_parse_size(size) : -1;
    if (bytes <= 0 || rest)
        argp_error(state, "--background wants OP,SIZE[,CLASS[,N]], found '%s'", text);
    o->load.bytes = (uint64_t)bytes;
    o->load.priority =
        class ? parse_class(state, "--background", class, strlen(class)) : OCCL_PRIORITY_BULK;
    o->load.in_flight = number ? parse_number(state, "--background", number, 1, 16) : 2;
    free(copy);
}

static void parse_report(struct argp_state *state, const char *text, struct occl_perf_options *o) {
    const char *dot = strrchr(text, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".html") != 0))
        argp_error(state, "--report wants a name that ends with .svg or .html, found '%s'", text);
    o->report_file = text;
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
    case 'M':
        parse_split(state, arg, o);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Flags that were not given get what fits the others. */
static void fill_in(struct argp_state *state, struct occl_perf_options *o) {
    const char *split = getenv("NCCL_TESTS_SPLIT"); /* lint: banned_calls: what nccl-tests read */
    if (split && split[0] && o->split == OCCL_PERF_SPLIT_NONE)
        parse_split(state, split, o);
    bool osu = o->style == OCCL_PERF_STYLE_OSU;
    bool sized = o->min_bytes != UNSET || o->max_bytes != UNSET;
    if (o->max_bytes == UNSET)
        o->max_bytes = osu && !sized ? 1u << 20 : o->min_bytes == UNSET ? 32u << 20 : o->min_bytes;
    if (o->min_bytes == UNSET)
        o->min_bytes = osu ? 4 : 32u << 20;
    if (osu && o->factor <= 1 && o->step_bytes == UNSET)
        o->factor = 2;
    if (o->step_bytes == UNSET)
        o->step_bytes = 1u << 20;
    if (o->iterations == 0)
        o->iterations = osu ? 100 : 20;
    if (o->load.op && o->priority_count == 1 && o->priorities[0] == OCCL_PRIORITY_DEFAULT)
        o->priorities[0] = OCCL_PRIORITY_HIGH;
}

/* Every pair of type and operator that was named must exist; of `all` those that do are run. */
static void check_pairs(struct argp_state *state, const struct occl_perf_options *o) {
    int defined = 0;
    for (int t = 0; t < o->type_count; t++) {
        for (int r = 0; r < o->redop_count; r++) {
            if (occl_values_defined(o->types[t], o->redops[r]))
                defined++;
            else if (!o->all_types && !o->all_redops)
                argp_error(state, "-o %s is not defined for -d %s",
                           occl_perf_redop_name(o->redops[r]), occl_perf_type_name(o->types[t]));
        }
    }
    if (defined == 0)
        argp_error(state, "no operator of -o is defined for a type of -d");
}

static void check_together(struct argp_state *state, struct occl_perf_options *o) {
    if (!o->op)
        argp_error(state, "an operation is expected, found none; `occl-perf --help` lists them");
    if (o->max_bytes < o->min_bytes)
        argp_error(state, "-e wants a size of at least that of -b, %llu, found %llu",
                   (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes);
    if (o->factor <= 1 && o->step_bytes == 0 && o->max_bytes > o->min_bytes)
        argp_error(state, "-i wants a step above 0 where -e is larger than -b, found 0");
    if (o->csv && o->json)
        argp_error(state, "one form of output is expected, found --csv and --json");
    if (o->style == OCCL_PERF_STYLE_OSU && (o->csv || o->json))
        argp_error(state, "--style osu is a form of text, found --csv or --json too");
    if (o->style == OCCL_PERF_STYLE_OSU && (o->spread || o->interval))
        argp_error(state, "--style osu has no columns of -I and --interval, found one of them too");
    if (o->jobs > 1 && (o->split != OCCL_PERF_SPLIT_NONE || o->load.op))
        argp_error(state, "--jobs is expected without -M and --background, found both");
    if (o->split != OCCL_PERF_SPLIT_NONE && o->load.op)
        argp_error(state, "-M is expected without --background, found both");
    if (o->priority_count != 1 && o->priority_count != o->jobs)
        argp_error(state, "-p wants one class, or one for each of %d jobs, found %d", o->jobs,
                   o->priority_count);
    for (int job = o->priority_count; job < o->jobs; job++)
        o->priorities[job] = o->priorities[0];
    if (o->op->has_redop)
        check_pairs(state, o);
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
    case KEY_STYLE:
        o->style = strcmp(arg, "osu") == 0 ? OCCL_PERF_STYLE_OSU : OCCL_PERF_STYLE_NCCL;
        if (strcmp(arg, "nccl") != 0 && strcmp(arg, "osu") != 0)
            argp_error(state, "--style wants nccl or osu, found '%s'", arg);
        return 0;
    case KEY_PERCENTILES:
        parse_percentiles(state, arg, o);
        return 0;
    case KEY_INTERVAL:
        o->interval = true;
        return 0;
    case KEY_BACKGROUND:
        parse_background(state, arg, o);
        return 0;
    case KEY_REPORT:
        parse_report(state, arg, o);
        return 0;
    case KEY_SPECIAL:
        o->special_values = true;
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
        fill_in(state, o);
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
        (void)fprintf(out, "  %-16s %s\n", ops[i].name, ops[i].summary); /* as above */
    (void)fprintf(
        out, "\nOf an operation with _v the size is that of all N blocks together. Block K has "
             "weight 0 if K %% 4 is 1, else 1 + K * 7 %% 3; the last one has weight N + 2. It "
             "begins at the share of the elements that the weights before it have of all, "
             "rounded down. In all_to_all_v rank R sends block (R + K) %% N to rank K.\n");
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
        .min_bytes = UNSET,
        .max_bytes = UNSET,
        .step_bytes = UNSET,
        .factor = 1,
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
