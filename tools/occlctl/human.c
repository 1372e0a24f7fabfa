/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/occlctl/human.h"

#include <stdio.h>

const char *occl_human_size(uint64_t size_bytes, char *out_text, size_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (size_bytes < 1024) {
        (void)snprintf(out_text, bytes, "%u B", (unsigned)size_bytes); /* cut is the caller's */
        return out_text;
    }
    double value = (double)size_bytes / 1024;
    size_t unit = 0;
    /* 1023.95 would print as 1024.0. */
    for (; value >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        value /= 1024;
    (void)snprintf(out_text, bytes, "%.1f %s", value, units[unit]); /* cut is the caller's */
    return out_text;
}

static void print_scaled(double value, const char *unit, char *out_text, size_t bytes) {
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    (void)snprintf(out_text, bytes, "%.*f %s", digits, value, unit); /* cut is the caller's */
}

static void print_pair(uint64_t major, const char *major_unit, uint64_t minor,
                       const char *minor_unit, char *out_text, size_t bytes) {
    (void)snprintf(out_text, bytes, "%llu %s %02u %s", (unsigned long long)major, major_unit,
                   (unsigned)minor, minor_unit); /* cut is the caller's */
}

const char *occl_human_duration(uint64_t duration_ns, char *out_text, size_t bytes) {
    uint64_t s = duration_ns / 1000000000u;
    if (duration_ns < 1000)
        (void)snprintf(out_text, bytes, "%u ns", (unsigned)duration_ns); /* as above */
    else if (duration_ns < 999500)
        print_scaled((double)duration_ns / 1e3, "us", out_text, bytes);
    else if (duration_ns < 999500000)
        print_scaled((double)duration_ns / 1e6, "ms", out_text, bytes);
    else if (s < 60)
        print_scaled((double)duration_ns / 1e9, "s", out_text, bytes);
    else if (s < 3600)
        print_pair(s / 60, "min", s % 60, "s", out_text, bytes);
    else if (s < 86400)
        print_pair(s / 3600, "h", s % 3600 / 60, "min", out_text, bytes);
    else
        print_pair(s / 86400, "d", s % 86400 / 3600, "h", out_text, bytes);
    return out_text;
}
