/* SPDX-License-Identifier: Apache-2.0 */
/* What occl-perf prints, and how it ends; the library below it is a fake of one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/tools/shell.h"

static const char *folder;
static const char *perf;

static int set_up(void **state) {
    (void)state;
    folder = shell_enter();
    perf = shell_file("tests/tools/fake_perf");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    shell_leave();
    return 0;
}

#define HAS(text, part) assert_non_null(strstr((text), (part)))

/* The n-th line, counted from 0, that begins neither with # nor is empty. */
static const char *data_line(const char *text, int n) {
    static char line[2048];
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (length && text[0] != '#' && n-- == 0) {
            assert_true(length < sizeof line);
            memcpy(line, text, length);
            line[length] = '\0';
            return line;
        }
        text += length + (text[length] == '\n');
    }
    return NULL;
}

static double number(const json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void text_has_the_shape_of_nccl_tests(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s -b 8 -e 64K -f 8 all_reduce", perf);
    HAS(r->out, "minBytes 8  maxBytes 65536  step: 8(factor)  warmup iters: 5  iters: 20");
    HAS(r->out, "# Using devices\n#  Rank  0 Group  0 Pid ");
    HAS(r->out, "out-of-place");
    HAS(r->out, "size         count      type   redop    root     time   algbw   busbw  #wrong");
    HAS(r->out, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : ");
    static const int sizes[] = {8, 64, 512, 4096, 32768};
    for (int i = 0; i < 5; i++) {
        unsigned long long bytes, count;
        char type[16], redop[16];
        int root;
        double time, algbw, busbw, in_time, in_algbw, in_busbw;
        int wrong, in_wrong;
        assert_int_equal(sscanf(data_line(r->out, i),
                                "%llu %llu %15s %15s %d %lf %lf %lf %d %lf %lf %lf %d", &bytes,
                                &count, type, redop, &root, &time, &algbw, &busbw, &wrong, &in_time,
                                &in_algbw, &in_busbw, &in_wrong),
                         13);
        assert_int_equal(bytes, sizes[i]);
        assert_int_equal(count, sizes[i] / 4);
        assert_string_equal(type, "float");
        assert_string_equal(redop, "sum");
        assert_int_equal(root, -1);
        assert_int_equal(wrong + in_wrong, 0);
    }
    assert_null(data_line(r->out, 5));
}

/* Report L03: the same run as text and as JSON. */
static void l03_text_and_json_are_the_same_numbers(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0, "%s -b 1M -e 4M -f 2 -d double -o max -J %s/rows all_reduce", perf, folder);
    char *text = strdup(r->out);
    for (int i = 0; i < 3; i++) {
        json_t *row = shell_json(shell_expect(0, "sed -n %dp %s/rows", i + 1, folder));
        char expected[2][200];
        for (int place = 0; place < 2; place++) {
            const json_t *of = place ? json_object_get(row, "in_place") : row;
            double time = number(of, "time_us");
            int digits = time >= 9999.5 ? 0 : time >= 99.995 ? 1 : 2;
            char time_text[32];
            (void)snprintf(time_text, sizeof time_text, "%.*f", digits, time);
            (void)snprintf(expected[place], sizeof expected[place], "  %7s  %6.2f  %6.2f  %6d",
                           time_text, number(of, "algbw_GBps"), number(of, "busbw_GBps"),
                           (int)number(of, "wrong"));
            HAS(data_line(text, i), expected[place]);
            double bytes = number(row, "bytes");
            assert_true(fabs(number(of, "algbw_GBps") - bytes / time / 1e3) < 1e-3);
        }
        assert_string_equal(json_string_value(json_object_get(row, "type")), "double");
        assert_string_equal(json_string_value(json_object_get(row, "redop")), "max");
        json_decref(row);
    }
    free(text);
}

static void l03_csv_has_the_keys_of_json(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --csv -b 8 -e 8 all_reduce", perf);
    const char *head = "op,bytes,count,type,redop,root,ranks,job,time_us,p50_us,p99_us,min_us,"
                       "max_us,algbw_GBps,busbw_GBps,wrong,";
    assert_int_equal(strncmp(r->out, head, strlen(head)), 0);
    const char *row = data_line(r->out, 1);
    assert_int_equal(strncmp(row, "all_reduce,8,2,float,sum,-1,1,0,", 32), 0);
    HAS(row, ",cpu,direct,");
    /* As many fields as the heading has. */
    int commas[2] = {0, 0};
    for (const char *c = data_line(r->out, 0); *c; c++)
        commas[0] += *c == ',';
    for (const char *c = data_line(r->out, 1); *c; c++)
        commas[1] += *c == ',';
    assert_int_equal(commas[0], commas[1]);
    assert_null(strchr(r->out, '#'));
}

static void json_is_one_object_a_row_with_all_keys(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --json -b 8 -e 64 -f 8 all_reduce", perf);
    static const char *const keys[] = {"op",         "bytes",      "count",        "type",
                                       "redop",      "time_us",    "p50_us",       "p99_us",
                                       "algbw_GBps", "busbw_GBps", "wrong",        "device",
                                       "transport",  "switches",   "daemon_cpu_us"};
    char *text = strdup(r->out);
    char *rest = text;
    for (int i = 0; i < 2; i++) {
        char *line = strsep(&rest, "\n");
        json_t *row = json_loads(line, 0, NULL);
        assert_true(json_is_object(row));
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            assert_non_null(json_object_get(row, keys[k]));
        assert_true(number(row, "p50_us") <= number(row, "p99_us"));
        json_decref(row);
    }
    assert_string_equal(rest, "");
    free(text);
}

static void l03_a_wrong_value_is_counted_and_ends_with_1(void **state) {
    (void)state;
    static const char *const forms[] = {"", "--csv", "--json", "--nonblocking -m 4"};
    for (size_t i = 0; i < 4; i++) {
        const struct shell_result *r =
            shell_expect(1, "FAKE_WRONG=1 %s %s -b 1K -e 1K all_reduce", perf, forms[i]);
        HAS(r->err, "wrong values");
    }
    const struct shell_result *r = shell_expect(1, "FAKE_WRONG=1 %s -b 1K all_reduce", perf);
    HAS(r->out, "# Out of bounds values : 2 FAILED");
    r = shell_expect(1, "FAKE_WRONG=1 %s --json -b 1K all_reduce", perf);
    json_t *row = shell_json(r);
    assert_true(number(row, "wrong") == 1);
    assert_true(number(json_object_get(row, "in_place"), "wrong") == 1);
    json_decref(row);
    /* Unchecked, nothing is known. */
    r = shell_expect(0, "FAKE_WRONG=1 %s -c 0 -b 1K all_reduce", perf);
    HAS(data_line(r->out, 0), "N/A");
    row = shell_json(shell_expect(0, "%s -c 0 --json -b 1K all_reduce", perf));
    assert_true(json_is_null(json_object_get(row, "wrong")));
    json_decref(row);
}

/* The fake moves nothing in send and receive: the check must notice. */
static void data_that_never_arrived_is_noticed(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(1, "%s -b 1K sendrecv", perf);
    HAS(r->out, "# Out of bounds values : 256 FAILED");
}

static void an_error_of_the_library_is_3(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(3, "FAKE_ERROR=1 %s -b 1K all_reduce", perf);
    HAS(r->err, "rank 0: all_reduce: a fake error: the fake said so");
}

/* Each says what it wants and what it found. */
static void wrong_flags_are_2(void **state) {
    (void)state;
    static const struct {
        const char *flags, *said;
    } rows[] = {
        {"", "an operation is expected, found none"},
        {"all_gather_not_there", "no operation 'all_gather_not_there'"},
        {"all_reduce broadcast", "one operation at a time, found 'broadcast' too"},
        {"-b x all_reduce", "-b wants a size such as 8, 64K or 1M, found 'x'"},
        {"-b 8 -e 4 all_reduce", "-e wants a size of at least that of -b, 8, found 4"},
        {"-f 1 all_reduce", "-f wants a number above 1, found '1'"},
        {"-n 0 all_reduce", "-n wants a number from 1 to 100000000, found '0'"},
        {"-d float128 all_reduce", "or all, found 'float128'"},
        {"-d float,,half all_reduce", "or all, found ''"},
        {"-d float,quad,half all_reduce", "or all, found 'quad'"},
        {"-o prodsum all_reduce", "-o wants sum, prod, min, max, avg, premulsum, band, bor, bxor, "
                                  "land, lor, lxor, minloc, maxloc or all, found 'prodsum'"},
        {"-d float -o minloc all_reduce", "-o minloc is not defined for -d float"},
        {"-d int_int -o sum reduce", "-o sum is not defined for -d int_int"},
        {"-d float,half -o sum,bxor scan", "-o bxor is not defined for -d float"},
        {"-M 2 all_reduce", "-M wants MOD, DIV, AND or OR and a number up to 65535, found '2'"},
        {"-M MOD0 all_reduce", "-M wants MOD, DIV, AND or OR and a number"},
        {"-M %2x all_reduce", "-M wants MOD, DIV, AND or OR and a number"},
        {"-M %2 --jobs 2 all_reduce", "--jobs is expected without -M and --background"},
        {"-M %2 --background all_reduce,1K all_reduce", "-M is expected without --background"},
        {"--style mpi all_reduce", "--style wants nccl or osu, found 'mpi'"},
        {"--style osu --json all_reduce", "--style osu is a form of text"},
        {"--style osu -I all_reduce", "--style osu has no columns of -I and --interval"},
        {"--percentiles p50,p75 all_reduce", "--percentiles wants p50, p90, p99 or p999, found "
                                             "'p75'"},
        {"--background barrier,8 all_reduce", "--background wants a collective operation with "
                                              "data, found 'barrier'"},
        {"--background all_reduce all_reduce", "--background wants OP,SIZE[,CLASS[,N]], found"},
        {"--background all_reduce,1M,low all_reduce", "--background wants bulk, normal, high or "
                                                      "urgent, found 'low'"},
        {"--background all_reduce,1M,bulk,0 all_reduce", "--background wants a number from 1"},
        {"--report picture.png all_reduce", "--report wants a name that ends with .svg or .html, "
                                            "found 'picture.png'"},
        {"-r 1 -b 8 broadcast", "root 1, but there are 1 ranks"},
        {"--csv --json all_reduce", "one form of output is expected, found --csv and --json"},
        {"--memory both all_reduce", "--memory wants zero-copy or any, found 'both'"},
        {"-i 0 -b 8 -e 16 all_reduce", "-i wants a step above 0"},
        {"-z 2 all_reduce", "-z wants a number from 0 to 1, found '2'"},
        {"--jobs 0 all_reduce", "--jobs wants a number from 1 to 16, found '0'"},
        {"--jobs 17 all_reduce", "--jobs wants a number from 1 to 16, found '17'"},
        {"--jobs two all_reduce", "--jobs wants a number from 1 to 16, found 'two'"},
        {"-p highest all_reduce", "-p wants bulk, normal, high or urgent, found 'highest'"},
        {"-p 4 all_reduce", "-p wants bulk, normal, high or urgent, found '4'"},
        {"-p hig all_reduce", "-p wants bulk, normal, high or urgent, found 'hig'"},
        {"-p '' all_reduce", "-p wants bulk, normal, high or urgent, found ''"},
        {"--jobs 2 -p high, all_reduce", "-p wants bulk, normal, high or urgent, found ''"},
        {"--jobs 2 -p high,low all_reduce", "-p wants bulk, normal, high or urgent, found 'low'"},
        {"-p high,bulk all_reduce", "-p wants one class, or one for each of 1 jobs, found 2"},
        {"--jobs 3 -p high,bulk all_reduce", "-p wants one class, or one for each of 3 jobs, "
                                             "found 2"},
        {"-p 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 all_reduce", "-p wants at most 16 classes"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct shell_result *r = shell_expect(2, "%s %s", perf, rows[i].flags);
        if (!strstr(r->err, rows[i].said))
            fail_msg("%s: expected '%s' in: %s", rows[i].flags, rows[i].said, r->err);
        assert_string_equal(r->out, "");
    }
}

static void help_names_every_flag_and_its_values(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --help | tr -s ' \\n' ' '", perf);
    HAS(r->out, "--jobs=N So many jobs at once, each with all ranks, 1 to 16 (default 1)");
    HAS(r->out, "-p, --priority=CLASS[,CLASS...] Class of the operations: bulk, normal, high or "
                "urgent; one for all jobs, or one for each (default: the job's)");
    HAS(r->out, "-z 0|1");
    HAS(r->out, "--memory=zero-copy|any");
    HAS(r->out, "f8e4m3, f8e5m2, float_int, double_long, int_int, long_long or all");
    HAS(r->out, "land, lor, lxor, minloc, maxloc or all");
    HAS(r->out, "-M, --split=RULE");
    HAS(r->out, "--style=nccl|osu");
    HAS(r->out, "--percentiles=p50,p90,p99,p999");
    HAS(r->out, "--interval");
    HAS(r->out, "--background=OP,SIZE[,CLASS[,N]]");
    HAS(r->out, "--report=FILE.svg|FILE.html");
    HAS(r->out, "fan_out every rank waits for the root");
    HAS(r->out, "Operations: all_reduce");
    HAS(r->out, "Exit status: 0 fine");
}

static void sweeps_cover_types_reductions_and_steps(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(0, "%s --json -d all -o all -b 8 -e 24 -i 8 all_reduce | wc -l", perf);
    assert_string_equal(r->out, "420\n"); /* 140 pairs that are defined x 3 sizes */
    r = shell_expect(0, "%s --json -d all -o sum -b 8 all_reduce | wc -l", perf);
    assert_string_equal(r->out, "14\n");
    r = shell_expect(0, "%s --json -d float,int_int -o all -b 8 reduce | wc -l", perf);
    assert_string_equal(r->out, "8\n");
    r = shell_expect(0, "%s --json -d all -b 8 -e 8 gather | wc -l", perf);
    assert_string_equal(r->out, "18\n"); /* nothing is reduced: all types, once each */
    r = shell_expect(0, "%s --json -N 3 -b 8 all_reduce | wc -l", perf);
    assert_string_equal(r->out, "3\n");
    r = shell_expect(0, "%s --json -b 8 -e 1M -f 2 barrier | wc -l", perf);
    assert_string_equal(r->out, "1\n"); /* it has no size */
    r = shell_expect(0, "%s -b 10 -d double all_reduce", perf);
    HAS(data_line(r->out, 0), "           8             1    double"); /* rounded down, visibly */
}

/* Every operation with every type and operator that it has, in both placements: no value is wrong,
 * and none is said to be right that is not. */
static void all_operations_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *op;
        int rows;
    } ops[] = {{"all_reduce", 140},  {"broadcast", 18},       {"reduce", 140},
               {"all_gather", 18},   {"reduce_scatter", 140}, {"all_to_all", 18},
               {"gather", 18},       {"scatter", 18},         {"scan", 140},
               {"exscan", 140},      {"barrier", 1},          {"fan_in", 1},
               {"fan_out", 1},       {"all_gather_v", 18},    {"reduce_scatter_v", 140},
               {"all_to_all_v", 18}, {"gather_v", 18},        {"scatter_v", 18}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const struct shell_result *r =
            shell_expect(0, "%s --json -d all -o all -b 240 -n 1 -w 0 %s | grep -c '\"wrong\":0,'",
                         perf, ops[i].op);
        assert_int_equal(atoi(r->out), ops[i].rows);
        if (ops[i].rows > 1 && strcmp(ops[i].op, "exscan") != 0)
            (void)shell_expect(1, "FAKE_WRONG=1 %s -b 240 -n 1 %s", perf, ops[i].op);
    }
}

static void osu_style_has_the_columns_of_osu(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --style osu -b 8 -e 32 allreduce", perf);
    HAS(r->out,
        "# OSU-style all_reduce Latency Test of occl-perf: 1 ranks, datatype float, op sum");
    HAS(r->out, "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n");
    for (int i = 0; i < 3; i++) {
        unsigned size;
        double mean, least, most;
        int iterations;
        assert_int_equal(sscanf(data_line(r->out, i), "%u %lf %lf %lf %d", &size, &mean, &least,
                                &most, &iterations),
                         5);
        assert_int_equal(size, 8 << i);
        assert_int_equal(iterations, 100);
        assert_true(mean == least && mean == most); /* of one rank */
    }
    assert_null(data_line(r->out, 3));
    assert_null(strstr(r->out, "Avg bus"));
    r = shell_expect(0, "%s --style osu --percentiles p50,p999 -d all -b 8 -n 3 bcast", perf);
    HAS(r->out, "Iterations         p50(us)        p999(us)");
    HAS(data_line(r->out, 0), "           3  ");
    r = shell_expect(0, "%s --style osu gather | grep -c '^[0-9]'", perf);
    assert_string_equal(r->out, "19\n"); /* 4 to 1M */
    r = shell_expect(0, "%s --style osu barrier", perf);
    HAS(r->out, "         100\n");
    (void)shell_expect(1, "FAKE_WRONG=1 %s --style osu -b 1K allreduce", perf);
}

static void percentiles_and_interval_are_columns(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(
        0, "%s --percentiles p90,p999 --interval -n 100 -b 8 -J %s/rows all_reduce", perf, folder);
    HAS(r->out, "#wrong      p90     p999      var    low95   high95     time");
    char *text = strdup(data_line(r->out, 0));
    json_t *row = shell_json(shell_expect(0, "cat %s/rows", folder));
    static const char *const order[] = {"min_us", "p50_us",  "p90_us",
                                        "p99_us", "p999_us", "max_us"};
    for (size_t i = 1; i < sizeof order / sizeof order[0]; i++)
        assert_true(number(row, order[i - 1]) <= number(row, order[i]));
    assert_true(number(row, "median_low_us") <= number(row, "p50_us"));
    assert_true(number(row, "median_high_us") >= number(row, "p50_us"));
    assert_true(number(row, "variation") >= 0);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "  %7.2f  %7.2f  %7.2f", number(row, "p90_us"),
                   number(row, "p999_us"), number(row, "variation"));
    HAS(text, expected);
    json_decref(row);
    free(text);
    HAS(shell_expect(0, "%s --percentiles p99 -I -b 8 barrier", perf)->out,
        "#wrong      min      max      p99      var     time");
}

/* The fake has one rank: one group, but all that a split does is done. */
static void a_split_and_a_load_are_reported(void **state) {
    (void)state;
    json_t *row = shell_json(shell_expect(0, "%s --json -M %%2 -b 1K all_reduce", perf));
    assert_int_equal(number(row, "group"), 0);
    assert_int_equal(number(row, "groups"), 1);
    assert_true(json_is_null(json_object_get(row, "loaded")));
    assert_true(json_is_null(json_object_get(row, "background")));
    json_decref(row);
    (void)shell_expect(0, "NCCL_TESTS_SPLIT='div 4' %s -b 1K all_reduce", perf);
    (void)shell_expect(2, "NCCL_TESTS_SPLIT='div' %s -b 1K all_reduce", perf);
    row = shell_json(
        shell_expect(0, "%s --json --background reduce,64K,normal,3 -b 1K all_reduce", perf));
    const json_t *load = json_object_get(row, "background");
    assert_string_equal(json_string_value(json_object_get(load, "op")), "reduce");
    assert_string_equal(json_string_value(json_object_get(load, "priority")), "normal");
    assert_int_equal(number(load, "bytes"), 65536);
    assert_int_equal(number(load, "in_flight"), 3);
    assert_int_equal(number(load, "wrong"), 0);
    assert_true(number(load, "ops") >= 20);
    assert_int_equal(number(json_object_get(row, "loaded"), "wrong"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "priority")), "high");
    json_decref(row);
    const struct shell_result *r =
        shell_expect(0, "%s --background all_gather,64K -b 1K -p urgent all_reduce", perf);
    HAS(r->out, "# beside all_gather of 65536 B, bulk, 2 in flight: time ");
    /* A wrong value in the load is a wrong value. */
    row = shell_json(
        shell_expect(1, "FAKE_WRONG=1 %s --json --background broadcast,1K -b 8 barrier", perf));
    assert_int_equal(number(json_object_get(row, "background"), "wrong"), 2);
    assert_int_equal(number(row, "wrong"), 0);
    json_decref(row);
}

static void a_report_is_a_picture_or_a_page(void **state) {
    (void)state;
    static const char *const names[] = {"r.svg", "r.html"};
    for (int i = 0; i < 2; i++) {
        (void)shell_expect(0,
                           "%s --report %s/%s -b 8 -e 1M -f 8 -d float,double --background "
                           "broadcast,1K all_reduce",
                           perf, folder, names[i]);
        const struct shell_result *r = shell_expect(0, "cat %s/%s", folder, names[i]);
        HAS(r->out, "all_reduce, 1 ranks: mean time and (thin) p99, us");
        HAS(r->out, ">float sum</text>");
        HAS(r->out, ">double sum, in place</text>");
        HAS(r->out, ">double sum, beside the load</text>");
        assert_null(strstr(r->out, "nan"));
        assert_null(strstr(r->out, "inf\""));
        /* Two types, three placements, mean and 99th percentile, and the bandwidth (1 rank: 0). */
        r = shell_expect(0, "grep -c '<polyline' %s/%s", folder, names[i]);
        assert_string_equal(r->out, "18\n");
        r = shell_expect(0, "grep -c '<circle' %s/%s", folder, names[i]);
        assert_string_equal(r->out, "36\n"); /* six sizes */
    }
    HAS(shell_expect(0, "cat %s/r.html", folder)->out, "<tr><td>8<td>2<td>float<td>sum<td>-1");
    (void)shell_expect(0, "%s --report %s/b.svg barrier", perf, folder);
    HAS(shell_expect(1, "%s --report %s/none/r.svg -b 8 all_reduce", perf, folder)->err,
        "none/r.svg: No such file or directory");
}

/* Found before anything is measured, and the same status as where the disk is full. */
static void a_file_of_objects_that_cannot_be_written(void **state) {
    (void)state;
    HAS(shell_expect(1, "%s -J %s/none/rows -b 8 all_reduce", perf, folder)->err, "occl-perf: -J ");
    HAS(shell_expect(1, "%s -J %s/none/rows -b 8 all_reduce", perf, folder)->err,
        "none/rows: No such file or directory");
    HAS(shell_expect(1, "%s -J /dev/full -b 8 all_reduce", perf)->err, "could not be written");
}

static void several_jobs_have_a_row_each_and_a_total(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --jobs 3 -b 1K -e 2K -f 2 all_reduce", perf);
    HAS(data_line(r->out, 0), "  job 0");
    HAS(data_line(r->out, 2), "  job 2");
    HAS(data_line(r->out, 5), "  job 2");
    assert_null(data_line(r->out, 6));
    HAS(r->out, "# total of 3 jobs: busbw ");
    r = shell_expect(3, "FAKE_ERROR=1 %s --jobs 3 -b 1K all_reduce", perf);
}

static void each_job_has_the_class_it_was_given(void **state) {
    (void)state;
    const struct shell_result *r = shell_expect(0, "%s --jobs 2 -p high,0 -b 1K all_reduce", perf);
    HAS(data_line(r->out, 0), "  job 0 high");
    HAS(data_line(r->out, 1), "  job 1 bulk");
    /* What the operations are given, not only what is said of them. */
    static const struct {
        int refused, code;
        const char *classes;
    } rows[] = {{2, 3, "high,bulk"},
                {0, 3, "high,bulk"},
                {1, 0, "high,bulk"},
                {3, 3, "urgent"},
                {-1, 0, "urgent,urgent"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        (void)shell_expect(rows[i].code, "FAKE_REFUSED=%d %s --jobs 2 -p %s -b 1K all_reduce",
                           rows[i].refused, perf, rows[i].classes);
    (void)shell_expect(3, "FAKE_REFUSED=-1 %s --jobs 2 -b 1K all_reduce", perf);
    for (int job = 0; job < 2; job++) {
        json_t *row = shell_json(shell_expect(
            0, "%s --json --jobs 2 -p urgent -b 1K all_reduce >%s/rows && sed -n %dp %s/rows", perf,
            folder, job + 1, folder));
        assert_string_equal(json_string_value(json_object_get(row, "priority")), "urgent");
        json_decref(row);
    }
    json_t *row = shell_json(shell_expect(0, "%s --json -b 1K all_reduce", perf));
    assert_true(json_is_null(json_object_get(row, "priority")));
    json_decref(row);
}

static void time_limit_and_expected_bandwidth(void **state) {
    (void)state;
    const struct shell_result *r =
        shell_expect(3, "%s -T 1 -N 0 --json -b 8 all_reduce >/dev/null", perf);
    HAS(r->err, "the time limit passed");
    r = shell_expect(1, "%s -b 1K --expect-busbw 1e8 all_reduce", perf);
    HAS(r->out, " FAILED\n");
    HAS(r->err, "expected 1e+08");
}

static void a_full_disk_is_no_success(void **state) {
    (void)state;
    HAS(shell_expect(1, "%s --json -b 8 all_reduce >/dev/full", perf)->err, "could not be written");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(text_has_the_shape_of_nccl_tests),
        CASE(l03_text_and_json_are_the_same_numbers),
        CASE(l03_csv_has_the_keys_of_json),
        CASE(json_is_one_object_a_row_with_all_keys),
        CASE(l03_a_wrong_value_is_counted_and_ends_with_1),
        CASE(data_that_never_arrived_is_noticed),
        CASE(an_error_of_the_library_is_3),
        CASE(wrong_flags_are_2),
        CASE(help_names_every_flag_and_its_values),
        CASE(sweeps_cover_types_reductions_and_steps),
        CASE(all_operations_are_checked),
        CASE(osu_style_has_the_columns_of_osu),
        CASE(percentiles_and_interval_are_columns),
        CASE(a_split_and_a_load_are_reported),
        CASE(a_report_is_a_picture_or_a_page),
        CASE(several_jobs_have_a_row_each_and_a_total),
        CASE(each_job_has_the_class_it_was_given),
        CASE(time_limit_and_expected_bandwidth),
        CASE(a_full_disk_is_no_success),
        CASE(a_file_of_objects_that_cannot_be_written),
    };
    return cmocka_run_group_tests_name("perf_output", tests, NULL, NULL);
}
