/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the daemon. One table (config_keys.c) holds name, type, range, unit, default and help
 * of each key; the flags' help, `occld --check-config`, `occlctl config` and the man page come from
 * it.
 *
 * Where a value comes from, strongest first: flag; environment OCCL_<KEY>; drop-ins
 * /etc/occl/occld.conf.d/ *.conf (later names win); /etc/occl/occld.conf; /usr/lib/occl/occld.conf;
 * built-in. --config FILE takes the place of the three files. Every file is optional. An unknown
 * key, a wrong type or a value out of range is an error with file and line, never ignored.
 *
 * Files are INI: `key = value`, in no section or in [occld]. Times take ns, us, ms, s, min, h;
 * sizes take B, KiB, MiB, GiB, TiB; a plain number is in nanoseconds or bytes. */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "shm_ipc/limits.h"
#include "shm_ipc/status.h"

#define OCCL_CONFIG_TEXT_BYTES 512
#define OCCL_CONFIG_ORIGIN_BYTES 300
/* Of `socket`, when the service manager passed listening sockets. */
#define OCCL_CONFIG_ORIGIN_PASSED "service manager"
#define OCCL_CONFIG_RANGE_BYTES 128

/* Effective values. Units are in the names; 0 means what the key's help says. */
struct occl_config {
    char socket[OCCL_CONFIG_TEXT_BYTES]; /* one path, or several separated by commas */
    char operator_group[OCCL_NAME_BYTES];
    char metrics_file[OCCL_CONFIG_TEXT_BYTES];
    char log_level[OCCL_NAME_BYTES];
    char log_format[OCCL_NAME_BYTES];
    char loop[OCCL_NAME_BYTES];
    uint64_t socket_mode;
    uint64_t lanes;
    uint64_t handshake_timeout_ns;
    uint64_t drain_timeout_ns;
    uint64_t default_timeout_ns;
    uint64_t peer_dead_ns;
    uint64_t stall_interval_ns;
    uint64_t unkillable_after_ns;
    uint64_t ageing_ns;
    uint64_t patience_min_ns;
    uint64_t patience_max_ns;
    uint64_t metrics_interval_ns;
    uint64_t direct_max_bytes;
    uint64_t copy_max_bytes; /* at most OCCL_COPY_MAX_BYTES */
    uint64_t memory_limit_bytes;
    uint64_t registered_max_bytes;
    uint64_t send_queue_bytes;
    uint64_t strays_max;
    uint64_t tenants_max;
    uint64_t ops_max;
    uint64_t sq_entries;
    uint64_t quota_sessions;
    uint64_t quota_communicators;
    uint64_t quota_ops;
    uint64_t quota_regions;
    uint64_t quota_registered_bytes;
    uint64_t job_class;
    uint64_t job_weight;
    uint64_t tenant_weight;
};

enum occl_config_type {
    OCCL_CONFIG_TEXT = 1,
    OCCL_CONFIG_NUMBER = 2,
    OCCL_CONFIG_TIME = 3, /* kept in nanoseconds */
    OCCL_CONFIG_SIZE = 4, /* kept in bytes */
    OCCL_CONFIG_OCTAL = 5,
    OCCL_CONFIG_CHOICE = 6, /* one word of `choices` */
    OCCL_CONFIG_CLASS = 7,  /* bulk, normal, high, urgent, or 0 to 3; kept as a number */
};
struct occl_config_key {
    const char *name;
    enum occl_config_type type;
    uint32_t place; /* offset in struct occl_config */
    uint32_t text_bytes;
    uint64_t min, max;
    const char *choices;  /* words separated by '|' */
    const char *standard; /* built-in value, as it would stand in a file */
    bool reloadable;      /* SIGHUP and `occlctl set` change it while running */
    const char *help;
};
/* The table; *out_count entries. */
const struct occl_config_key *occl_config_keys(uint32_t *out_count);

#define OCCL_CONFIG_KEYS_MAX 48
struct occl_config_origins {
    char text[OCCL_CONFIG_KEYS_MAX][OCCL_CONFIG_ORIGIN_BYTES]; /* "FILE:LINE", "flag", "built-in" */
};

/* Where occl_config_load looks. NULL members are left out. */
struct occl_config_sources {
    const char *vendor_file;
    const char *main_file;
    const char *drop_in_folder;
    const char *only_file; /* --config: must exist, and takes the place of the three above */
    char *const *environment;
};
/* The paths of the installed daemon, with `environment` of main. */
struct occl_config_sources occl_config_standard_sources(char *const *environment);

void occl_config_defaults(struct occl_config *config, struct occl_config_origins *origins);
/* Reads files, then the environment, over what is in *config. Stops at the first error:
 * OCCL_E_INVALID with "FILE:LINE: ..." in detail. On error *config holds a mixture and must not be
 * used. */
int occl_config_load(const struct occl_config_sources *sources, struct occl_config *config,
                     struct occl_config_origins *origins, struct occl_detail *detail);
/* One assignment (flag, `set`). Checks name, type and range. */
int occl_config_assign(const char *name, const char *value, const char *origin,
                       struct occl_config *config, struct occl_config_origins *origins,
                       struct occl_detail *detail);
/* What holds between keys: ranges that depend on others, and that what tenants may register fits
 * into memory_limit_bytes. Fills the values whose 0 means "found here" (memory_limit_bytes is the
 * machine's or the cgroup's, found by the caller). */
int occl_config_settle(uint64_t machine_bytes, struct occl_config *config,
                       struct occl_detail *detail);
/* Copies the reloadable keys of `from` with their origins to `to`, except those that a flag or
 * `set` decided; counts in *out_fixed the others that differ. */
void occl_config_reload(const struct occl_config *from,
                        const struct occl_config_origins *from_origins, struct occl_config *to,
                        struct occl_config_origins *to_origins, uint32_t *out_changed,
                        uint32_t *out_fixed);

/* ---- values and their texts (config_text.c) ---- */

/* "250ms", "64MiB" or a plain number. OCCL_E_INVALID. */
int occl_config_parse_time(const char *text, uint64_t *out_ns);
int occl_config_parse_size(const char *text, uint64_t *out_bytes);
/* Any type that is kept as a number. Checks the form, not the range. OCCL_E_INVALID. */
int occl_config_parse_value(enum occl_config_type type, const char *text, uint64_t *out_value);
/* Such a value as it would stand in a file: times and sizes in the largest unit that divides them,
 * classes by name. */
void occl_config_value_text(enum occl_config_type type, uint64_t value, char *out_text,
                            size_t bytes);
/* What is accepted, in words: type, unit, range. `choices` only for OCCL_CONFIG_CHOICE. */
void occl_config_range_text(enum occl_config_type type, uint64_t min, uint64_t max,
                            const char *choices, char *out_text, size_t bytes);
/* Value of a key as it would stand in a file. */
void occl_config_print(const struct occl_config_key *key, const struct occl_config *config,
                       char *out_text, size_t bytes);
/* A value that the key accepts, to show its form. Static. */
const char *occl_config_example(const struct occl_config_key *key);
/* All keys with help, what they accept and default, for --keys and the manual. */
void occl_config_help(FILE *out);

#endif
