/* SPDX-License-Identifier: Apache-2.0 */
/* Names of types, operators and classes: ours first, then those of others. */
#include <string.h>

#include "tools/perf/perf.h"

static const struct {
    enum occl_type type;
    const char *names[4]; /* the first is printed */
} types[OCCL_PERF_TYPES] = {
    {OCCL_INT8, {"int8", "char"}},
    {OCCL_UINT8, {"uint8", "byte"}},
    {OCCL_INT16, {"int16", "short"}},
    {OCCL_UINT16, {"uint16", "ushort"}},
    {OCCL_INT32, {"int32", "int"}},
    {OCCL_UINT32, {"uint32", "uint"}},
    {OCCL_INT64, {"int64", "long"}},
    {OCCL_UINT64, {"uint64", "ulong"}},
    {OCCL_FLOAT16, {"half", "float16", "fp16"}},
    {OCCL_BFLOAT16, {"bfloat16", "bf16"}},
    {OCCL_FLOAT32, {"float", "float32", "fp32"}},
    {OCCL_FLOAT64, {"double", "float64", "fp64"}},
    {OCCL_FLOAT8E4M3, {"f8e4m3", "float8e4m3", "fp8e4m3"}},
    {OCCL_FLOAT8E5M2, {"f8e5m2", "float8e5m2", "fp8e5m2"}},
    {OCCL_FLOAT32_INT32, {"float_int", "float32_int32"}},
    {OCCL_FLOAT64_INT64, {"double_long", "float64_int64"}},
    {OCCL_INT32_INT32, {"int_int", "int32_int32", "2int"}},
    {OCCL_INT64_INT64, {"long_long", "int64_int64"}},
};

static const struct {
    enum occl_redop redop;
    const char *names[2];
} redops[OCCL_PERF_REDOPS] = {
    {OCCL_SUM, {"sum"}},       {OCCL_PROD, {"prod"}},     {OCCL_MIN, {"min"}},
    {OCCL_MAX, {"max"}},       {OCCL_AVG, {"avg"}},       {OCCL_PREMULSUM, {"premulsum", "mulsum"}},
    {OCCL_BAND, {"band"}},     {OCCL_BOR, {"bor"}},       {OCCL_BXOR, {"bxor"}},
    {OCCL_LAND, {"land"}},     {OCCL_LOR, {"lor"}},       {OCCL_LXOR, {"lxor"}},
    {OCCL_MINLOC, {"minloc"}}, {OCCL_MAXLOC, {"maxloc"}},
};

static const char *const classes[] = {"bulk", "normal", "high", "urgent"};

const char *occl_perf_class_name(int priority) {
    return priority < 0 ? NULL : classes[priority];
}

const char *occl_perf_priority_name(const struct occl_perf_options *options, int job) {
    return occl_perf_class_name(options->priorities[job]);
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
            return redops[i].names[0];
    return "?";
}

static bool is_name(const char *const *names, size_t most, const char *text, size_t length) {
    for (size_t n = 0; n < most && names[n]; n++)
        if (strlen(names[n]) == length && memcmp(names[n], text, length) == 0)
            return true;
    return false;
}

static bool type_named(const char *text, size_t length, enum occl_type *out_type) {
    for (int i = 0; i < OCCL_PERF_TYPES; i++) {
        *out_type = types[i].type;
        if (is_name(types[i].names, 4, text, length))
            return true;
    }
    return false;
}

static bool redop_named(const char *text, size_t length, enum occl_redop *out_redop) {
    for (int i = 0; i < OCCL_PERF_REDOPS; i++) {
        *out_redop = redops[i].redop;
        if (is_name(redops[i].names, 2, text, length))
            return true;
    }
    return false;
}

bool occl_perf_parse_types(const char *text, struct occl_perf_options *options,
                           const char **out_bad) {
    options->type_count = 0;
    options->all_types = strcmp(text, "all") == 0;
    for (int i = 0; options->all_types && i < OCCL_PERF_TYPES; i++)
        options->types[options->type_count++] = types[i].type;
    for (*out_bad = text; !options->all_types; ++*out_bad) {
        size_t length = strcspn(*out_bad, ",");
        enum occl_type type;
        if (!type_named(*out_bad, length, &type) || options->type_count == OCCL_PERF_TYPES)
            return false;
        options->types[options->type_count++] = type;
        *out_bad += length;
        if (**out_bad == '\0')
            break;
    }
    return true;
}

bool occl_perf_parse_redops(const char *text, struct occl_perf_options *options,
                            const char **out_bad) {
    options->redop_count = 0;
    options->all_redops = strcmp(text, "all") == 0;
    for (int i = 0; options->all_redops && i < OCCL_PERF_REDOPS; i++)
        options->redops[options->redop_count++] = redops[i].redop;
    for (*out_bad = text; !options->all_redops; ++*out_bad) {
        size_t length = strcspn(*out_bad, ",");
        enum occl_redop redop;
        if (!redop_named(*out_bad, length, &redop) || options->redop_count == OCCL_PERF_REDOPS)
            return false;
        options->redops[options->redop_count++] = redop;
        *out_bad += length;
        if (**out_bad == '\0')
            break;
    }
    return true;
}

int occl_perf_parse_class(const char *text, size_t length) {
    for (int i = 0; i < 4; i++) {
        bool numbered = length == 1 && text[0] == '0' + i;
        if (numbered || is_name(&classes[i], 1, text, length))
            return i;
    }
    return -2;
}
