/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

/* ---- one assignment ---- */

static const struct occl_config_key *find_key(const char *name, uint32_t *out_index) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            *out_index = i;
            return &keys[i];
        }
    }
    return NULL;
}

static void *value_of(const struct occl_config_key *key, struct occl_config *config) {
    return (char *)config + key->place;
}

static bool is_choice(const char *choices, const char *word) {
    size_t length = strchr(word, '|') ? 0 : strlen(word);
    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (length && strncmp(at, word, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
}

static int assign_text(const struct occl_config_key *key, const char *value, const char *origin,
                       struct occl_config *config, struct occl_detail *detail) {
    if (key->type == OCCL_CONFIG_CHOICE && !is_choice(key->choices, value))
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "%s: %s: expected one of %s, found '%s'",
                               origin, key->name, key->choices, value);
    if (strlen(value) >= key->text_bytes)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "%s: %s: expected at most %u bytes, found %zu", origin, key->name,
                               key->text_bytes - 1, strlen(value));
    char *text = value_of(key, config);
    /* Zeroed behind the text, so that whole values can be compared. */
    memset(text, 0, key->text_bytes);
    (void)snprintf(text, key->text_bytes, "%s", value);
    return OCCL_OK;
}

static int assign_number(const struct occl_config_key *key, const char *value, const char *origin,
                         struct occl_config *config, struct occl_detail *detail) {
    uint64_t number = 0;
    char range[OCCL_CONFIG_RANGE_BYTES];
    if (occl_config_parse_value(key->type, value, &number) != OCCL_OK || number < key->min ||
        number > key->max) {
        occl_config_range_text(key->type, key->min, key->max, NULL, range, sizeof range);
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "%s: %s: expected %s, found '%s'", origin,
                               key->name, range, value);
    }
    *(uint64_t *)value_of(key, config) = number;
    return OCCL_OK;
}

int occl_config_assign(const char *name, const char *value, const char *origin,
                       struct occl_config *config, struct occl_config_origins *origins,
                       struct occl_detail *detail) {
    uint32_t index;
    const struct occl_config_key *key = find_key(name, &index);
    if (!key)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "%s: unknown key '%s'; `occld --keys` lists all", origin, name);
    int status = key->type == OCCL_CONFIG_TEXT || key->type == OCCL_CONFIG_CHOICE
                     ? assign_text(key, value, origin, config, detail)
                     : assign_number(key, value, origin, config, detail);
    if (status == OCCL_OK && origins)
        (void)snprintf(origins->text[index], OCCL_CONFIG_ORIGIN_BYTES, "%s", origin);
    return status;
}

void occl_config_defaults(struct occl_config *config, struct occl_config_origins *origins) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    memset(config, 0, sizeof *config);
    for (uint32_t i = 0; i < count; i++) {
        /* The built-in values are ours; that each passes its own check is a test. */
        (void)occl_config_assign(keys[i].name, keys[i].standard, "built-in", config, origins, NULL);
    }
}

/* ---- files ---- */

struct reading {
    const char *path;
    struct occl_config *config;
    struct occl_config_origins *origins;
    struct occl_detail *detail;
    FILE *file;
    int line;
    int status;
};

/* libinih calls with section, name and value but without the line (that is a build option of it),
 * so the reader below counts. */
static char *read_line(char *out, int bytes, void *stream) {
    struct reading *reading = stream;
    char *line = fgets(out, bytes, reading->file);
    if (line)
        reading->line++;
    return line;
}

static int take_pair(void *user, const char *section, const char *name, const char *value) {
    struct reading *reading = user;
    char origin[OCCL_CONFIG_ORIGIN_BYTES];
    /* libinih goes on behind an error; the first one is reported. */
    if (reading->status != OCCL_OK)
        return 0;
    (void)snprintf(origin, sizeof origin, "%s:%d", reading->path, reading->line);
    if (section[0] && strcmp(section, "occld") != 0) {
        reading->status =
            occl_detail_set(reading->detail, OCCL_E_INVALID, 0,
                            "%s: unknown section [%s], expected [occld] or none", origin, section);
        return 0;
    }
    reading->status = occl_config_assign(name, value ? value : "", origin, reading->config,
                                         reading->origins, reading->detail);
    return reading->status == OCCL_OK;
}

static int load_file(const char *path, bool required, struct occl_config *config,
                     struct occl_config_origins *origins, struct occl_detail *detail) {
    struct reading reading = {path, config, origins, detail, NULL, 0, OCCL_OK};
    reading.file = fopen(path, "re");
    if (!reading.file) {
        if (errno == ENOENT && !required)
            return OCCL_OK;
        return occl_detail_set(detail, OCCL_E_INVALID, errno, "%s: cannot be read", path);
    }
    int rc = ini_parse_stream(read_line, &reading, take_pair, &reading);
    (void)fclose(reading.file);
    if (reading.status != OCCL_OK)
        return reading.status;
    if (rc != 0)
        return occl_detail_set(detail, rc > 0 ? OCCL_E_INVALID : OCCL_E_NO_MEMORY, 0,
                               "%s:%d: expected `key = value`, [occld] or a comment", path,
                               rc > 0 ? rc : 0);
    return OCCL_OK;
}

static int is_drop_in(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 5 &&
           strcmp(entry->d_name + length - 5, ".conf") == 0;
}

static int load_folder(const char *folder, struct occl_config *config,
                       struct occl_config_origins *origins, struct occl_detail *detail) {
    struct dirent **names = NULL;
    int count = scandir(folder, &names, is_drop_in, alphasort);
    int status = OCCL_OK;
    if (count < 0)
        return errno == ENOENT
                   ? OCCL_OK
                   : occl_detail_set(detail, OCCL_E_INVALID, errno, "%s: cannot be read", folder);
    for (int i = 0; i < count; i++) {
        char path[OCCL_CONFIG_ORIGIN_BYTES - 16];
        int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (status == OCCL_OK && length >= (int)sizeof path)
            status = occl_detail_set(detail, OCCL_E_INVALID, 0, "%s/%s: the path is too long",
                                     folder, names[i]->d_name);
        if (status == OCCL_OK)
            status = load_file(path, true, config, origins, detail);
        free(names[i]);
    }
    free(names);
    return status;
}

static int load_environment(char *const *environment, struct occl_config *config,
                            struct occl_config_origins *origins, struct occl_detail *detail) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    for (; environment && *environment; environment++) {
        if (strncmp(*environment, "OCCL_", 5) != 0)
            continue;
        for (uint32_t i = 0; i < count; i++) {
            const char *at = *environment + 5;
            const char *name = keys[i].name;
            while (*name && toupper((unsigned char)*name) == *at) {
                name++;
                at++;
            }
            /* Other OCCL_ variables belong to clients and launchers. */
            if (*name || *at != '=')
                continue;
            char origin[OCCL_NAME_BYTES + 16];
            (void)snprintf(origin, sizeof origin, "environment %.*s", (int)(at - *environment),
                           *environment);
            int status = occl_config_assign(keys[i].name, at + 1, origin, config, origins, detail);
            if (status != OCCL_OK)
                return status;
        }
    }
    return OCCL_OK;
}

struct occl_config_sources occl_config_standard_sources(char *const *environment) {
    struct occl_config_sources sources = {"/usr/lib/occl/occld.conf", "/etc/occl/occld.conf",
                                          "/etc/occl/occld.conf.d", NULL, environment};
    return sources;
}

int occl_config_load(const struct occl_config_sources *sources, struct occl_config *config,
                     struct occl_config_origins *origins, struct occl_detail *detail) {
    int status = OCCL_OK;
    if (sources->only_file) {
        status = load_file(sources->only_file, true, config, origins, detail);
    } else {
        if (sources->vendor_file)
            status = load_file(sources->vendor_file, false, config, origins, detail);
        if (status == OCCL_OK && sources->main_file)
            status = load_file(sources->main_file, false, config, origins, detail);
        if (status == OCCL_OK && sources->drop_in_folder)
            status = load_folder(sources->drop_in_folder, config, origins, detail);
    }
    return status == OCCL_OK ? load_environment(sources->environment, config, origins, detail)
                             : status;
}

/* ---- what holds between keys ---- */

int occl_config_settle(uint64_t machine_bytes, struct occl_config *config,
                       struct occl_detail *detail) {
    if (config->memory_limit_bytes == 0)
        config->memory_limit_bytes = machine_bytes;
    uint64_t limit = config->memory_limit_bytes;
    if (config->registered_max_bytes == 0)
        config->registered_max_bytes = limit / 4 * 3;
    if (config->registered_max_bytes > limit)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "registered_max: expected at most memory_limit %llu bytes, found "
                               "%llu",
                               (unsigned long long)limit,
                               (unsigned long long)config->registered_max_bytes);
    if (config->quota_registered_bytes == 0)
        config->quota_registered_bytes = config->registered_max_bytes / 2;
    if (config->quota_registered_bytes > config->registered_max_bytes)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "quota_registered: expected at most registered_max %llu bytes, "
                               "found %llu",
                               (unsigned long long)config->registered_max_bytes,
                               (unsigned long long)config->quota_registered_bytes);
    if (config->patience_min_ns > config->patience_max_ns)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "patience_min: expected at most patience_max %llu ns, found %llu",
                               (unsigned long long)config->patience_max_ns,
                               (unsigned long long)config->patience_min_ns);
    if (config->sq_entries & (config->sq_entries - 1))
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "sq_entries: expected a power of two, found %llu",
                               (unsigned long long)config->sq_entries);
    return OCCL_OK;
}

void occl_config_reload(const struct occl_config *from,
                        const struct occl_config_origins *from_origins, struct occl_config *to,
                        struct occl_config_origins *to_origins, uint32_t *out_changed,
                        uint32_t *out_fixed) {
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    *out_changed = 0;
    *out_fixed = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = keys[i].text_bytes ? keys[i].text_bytes : sizeof(uint64_t);
        const char *source = (const char *)from + keys[i].place;
        char *target = (char *)to + keys[i].place;
        const char *origin = to_origins->text[i];
        /* Stronger than any file. */
        if (strcmp(origin, "flag") == 0 || strcmp(origin, "set") == 0 ||
            strcmp(origin, OCCL_CONFIG_ORIGIN_PASSED) == 0)
            continue;
        if (memcmp(source, target, bytes) == 0)
            continue;
        if (!keys[i].reloadable) {
            ++*out_fixed;
            continue;
        }
        memcpy(target, source, bytes);
        memcpy(to_origins->text[i], from_origins->text[i], OCCL_CONFIG_ORIGIN_BYTES);
        ++*out_changed;
    }
}
