/* SPDX-License-Identifier: Apache-2.0 */
/* Values of settings between text and numbers, and what a setting accepts in words. Pure: daemon
 * and occlctl print the same ranges. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"

/* ---- units ---- */

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first: a value is printed in the first unit that divides it. */
static const struct unit time_units[] = {{"h", 3600000000000ull},
                                         {"min", 60000000000ull},
                                         {"s", 1000000000},
                                         {"ms", 1000000},
                                         {"us", 1000},
                                         {"ns", 1},
                                         {NULL, 0}};
static const struct unit size_units[] = {{"TiB", 1ull << 40},
                                         {"GiB", 1ull << 30},
                                         {"MiB", 1ull << 20},
                                         {"KiB", 1ull << 10},
                                         {"B", 1},
                                         {NULL, 0}};
static const char *const class_names[] = {"bulk", "normal", "high", "urgent"};
#define CLASSES (sizeof class_names / sizeof *class_names)

/* ---- from text ---- */

static int parse_number(const char *text, int base, uint64_t *out_value, const char **out_rest) {
    char *end;
    if (!isdigit((unsigned char)*text))
        return OCCL_E_INVALID;
    errno = 0;
    unsigned long long value = strtoull(text, &end, base);
    if (errno || end == text)
        return OCCL_E_INVALID;
    *out_value = value;
    *out_rest = end;
    return OCCL_OK;
}

static int parse_whole(const char *text, int base, uint64_t *out_value) {
    uint64_t value;
    const char *rest;
    if (parse_number(text, base, &value, &rest) != OCCL_OK || *rest != '\0')
        return OCCL_E_INVALID;
    *out_value = value;
    return OCCL_OK;
}

static int parse_units(const char *text, const struct unit *units, uint64_t *out_value) {
    uint64_t value;
    const char *rest;
    if (parse_number(text, 10, &value, &rest) != OCCL_OK)
        return OCCL_E_INVALID;
    while (*rest == ' ')
        rest++;
    if (*rest == '\0') {
        *out_value = value;
        return OCCL_OK;
    }
    for (const struct unit *unit = units; unit->name; unit++) {
        if (strcmp(rest, unit->name) != 0)
            continue;
        if (__builtin_mul_overflow(value, unit->factor, &value))
            return OCCL_E_INVALID;
        *out_value = value;
        return OCCL_OK;
    }
    return OCCL_E_INVALID;
}

int occl_config_parse_time(const char *text, uint64_t *out_ns) {
    return parse_units(text, time_units, out_ns);
}

int occl_config_parse_size(const char *text, uint64_t *out_bytes) {
    return parse_units(text, size_units, out_bytes);
}

int occl_config_parse_value(enum occl_config_type type, const char *text, uint64_t *out_value) {
    switch (type) {
    case OCCL_CONFIG_TIME:
        return occl_config_parse_time(text, out_value);
    case OCCL_CONFIG_SIZE:
        return occl_config_parse_size(text, out_value);
    case OCCL_CONFIG_OCTAL:
        return parse_whole(text, 8, out_value);
    case OCCL_CONFIG_NUMBER:
        return parse_whole(text, 10, out_value);
    case OCCL_CONFIG_CLASS:
        for (uint64_t i = 0; i < CLASSES; i++) {
            if (strcmp(text, class_names[i]) == 0) {
                *out_value = i;
                return OCCL_OK;
            }
        }
        return parse_whole(text, 10, out_value);
    case OCCL_CONFIG_TEXT:
    case OCCL_CONFIG_CHOICE:
        break;
    }
    return OCCL_E_INVALID;
}

/* ---- to text ---- */

static void print_units(const struct unit *units, uint64_t value, char *out_text, size_t bytes) {
    const struct unit *unit = units;
    while (unit->factor > 1 && value % unit->factor != 0)
        unit++;
    if (value == 0)
        (void)snprintf(out_text, bytes, "0"); /* fits: here and below, texts are short */
    else
        (void)snprintf(out_text, bytes, "%llu%s", (unsigned long long)(value / unit->factor),
                       unit->name);
}

void occl_config_value_text(enum occl_config_type type, uint64_t value, char *out_text,
                            size_t bytes) {
    if (type == OCCL_CONFIG_TIME)
        print_units(time_units, value, out_text, bytes);
    else if (type == OCCL_CONFIG_SIZE)
        print_units(size_units, value, out_text, bytes);
    else if (type == OCCL_CONFIG_CLASS && value < CLASSES)
        (void)snprintf(out_text, bytes, "%s", class_names[value]);
    else
        (void)snprintf(out_text, bytes, type == OCCL_CONFIG_OCTAL ? "0%llo" : "%llu",
                       (unsigned long long)value);
}

void occl_config_range_text(enum occl_config_type type, uint64_t min, uint64_t max,
                            const char *choices, char *out_text, size_t bytes) {
    static const char *const kinds[] = {
        [OCCL_CONFIG_NUMBER] = "a whole number",
        [OCCL_CONFIG_TIME] = "a time (ns, us, ms, s, min, h; plain: ns)",
        [OCCL_CONFIG_SIZE] = "a size (B, KiB, MiB, GiB, TiB; plain: bytes)",
        [OCCL_CONFIG_OCTAL] = "an octal number",
    };
    char least[32], most[32];
    if (type == OCCL_CONFIG_TEXT) {
        (void)snprintf(out_text, bytes, "a text");
    } else if (type == OCCL_CONFIG_CHOICE) {
        (void)snprintf(out_text, bytes, "one of %s", choices);
    } else if (type == OCCL_CONFIG_CLASS) {
        (void)snprintf(out_text, bytes, "bulk, normal, high or urgent (or 0 to 3)");
    } else {
        occl_config_value_text(type, min, least, sizeof least);
        occl_config_value_text(type, max, most, sizeof most);
        (void)snprintf(out_text, bytes, "%s, %s to %s", kinds[type], least, most);
    }
}

void occl_config_print(const struct occl_config_key *key, const struct occl_config *config,
                       char *out_text, size_t bytes) {
    const void *value = (const char *)config + key->place;
    uint64_t number = 0;
    if (key->type == OCCL_CONFIG_TEXT || key->type == OCCL_CONFIG_CHOICE) {
        (void)snprintf(out_text, bytes, "%s", (const char *)value);
        return;
    }
    memcpy(&number, value, sizeof number);
    occl_config_value_text(key->type, number, out_text, bytes);
}

const char *occl_config_example(const struct occl_config_key *key) {
    /* The default shows the form, unless it is nothing. */
    if (key->standard[0] && strcmp(key->standard, "0") != 0)
        return key->standard;
    switch (key->type) {
    case OCCL_CONFIG_TIME:
        return "30s";
    case OCCL_CONFIG_SIZE:
        return "1GiB";
    case OCCL_CONFIG_TEXT:
        return strcmp(key->name, "operator_group") == 0 ? "adm" : "/run/occl/file";
    default:
        return "1";
    }
}

void occl_config_help(FILE *out) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        const struct occl_config_key *key = &keys[i];
        char range[OCCL_CONFIG_RANGE_BYTES];
        occl_config_range_text(key->type, key->min, key->max, key->choices, range, sizeof range);
        (void)fprintf(out, "  %-20s %s\n", key->name, key->help); /* checked at exit, as below */
        (void)fprintf(out, "  %-20s %s\n", "", range);
        (void)fprintf(out, "  %-20s default %s%s\n", "", *key->standard ? key->standard : "''",
                      key->reloadable ? "; may change while running" : "");
    }
}
