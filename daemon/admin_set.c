/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `set`: changes of jobs, tenants and reloadable settings while they run. Each is logged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"

struct change {
    struct occl_admin_query *query;
    const char *kind, *name, *key, *value;
    char from[OCCL_CONFIG_TEXT_BYTES];
};

static int bad_value(struct change *change, const char *expected) {
    return occl_detail_set(&change->query->detail, OCCL_E_INVALID, 0,
                           "set %s %s %s: expected %s, found '%s'", change->kind, change->name,
                           change->key, expected, change->value);
}

static int unknown_key(struct change *change, const char *expected) {
    return occl_detail_set(&change->query->detail, OCCL_E_NOT_FOUND, 0,
                           "set %s: unknown key '%s', expected one of %s", change->kind,
                           change->key, expected);
}

static int number_of(struct change *change, uint64_t min, uint64_t max, uint64_t *out_value) {
    char expected[64];
    char *end;
    unsigned long long value = strtoull(change->value, &end, 10);
    (void)snprintf(expected, sizeof expected, "%llu to %llu", (unsigned long long)min,
                   (unsigned long long)max);
    if (change->value[0] < '0' || change->value[0] > '9' || *end || value < min || value > max)
        return bad_value(change, expected);
    *out_value = value;
    return OCCL_OK;
}

static void keep_old(struct change *change, uint64_t value) {
    (void)snprintf(change->from, sizeof change->from, "%llu", (unsigned long long)value);
}

/* ---- jobs ---- */

static struct occl_job *find_job(struct change *change) {
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    struct occl_job *job;
    struct occl_job *found = NULL;
    uint32_t count = 0;
    HASH_ITER (in_daemon, change->query->daemon->tenants, tenant, next) {
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant) {
            char full[OCCL_TENANT_TEXT_BYTES + OCCL_NAME_BYTES + 2];
            (void)snprintf(full, sizeof full, "%s/%s", tenant->text, job->name);
            if (strcmp(full, change->name) == 0)
                return job;
            if (strcmp(job->name, change->name) == 0) {
                found = job;
                count++;
            }
        }
    }
    if (count == 0) {
        (void)occl_detail_set(&change->query->detail, OCCL_E_NOT_FOUND, 0,
                              "set job: no job is named %s", change->name);
        return NULL;
    }
    if (count > 1) {
        (void)occl_detail_set(&change->query->detail, OCCL_E_NOT_FOUND, 0,
                              "set job: %u jobs are named %s; use TENANT/%s", count, change->name,
                              change->name);
        return NULL;
    }
    return found;
}

static int set_job(struct change *change) {
    struct occl_job *job = find_job(change);
    uint64_t number = 0;
    int status;
    if (!job)
        return OCCL_E_NOT_FOUND;
    if (strcmp(change->key, "class") == 0) {
        keep_old(change, job->job_class);
        if ((status = number_of(change, 0, 3, &number)) != OCCL_OK)
            return status;
        job->job_class = (uint32_t)number;
        job->class_set = true;
    } else if (strcmp(change->key, "weight") == 0) {
        keep_old(change, job->weight);
        if ((status = number_of(change, 1, 1000000, &number)) != OCCL_OK)
            return status;
        job->weight = (uint32_t)number;
        job->weight_set = true;
    } else if (strcmp(change->key, "stall_interval") == 0) {
        (void)snprintf(change->from, sizeof change->from, "%lluns",
                       (unsigned long long)job->stall_interval_ns);
        if (occl_config_parse_time(change->value, &number) != OCCL_OK || number < 10000000)
            return bad_value(change, "a time of at least 10ms");
        job->stall_interval_ns = number;
        job->stall_set = true;
        return OCCL_OK;
    } else {
        return unknown_key(change, "class, weight, stall_interval");
    }
    occl_tenant_apply(job);
    return OCCL_OK;
}

/* ---- tenants ---- */

static void apply_all(struct occl_tenant *tenant) {
    struct occl_job *job;
    TAILQ_FOREACH(job, &tenant->jobs, in_tenant)
    occl_tenant_apply(job);
}

static int set_tenant(struct change *change) {
    struct occl_tenant *tenant;
    uint64_t number = 0;
    int status = OCCL_OK;
    HASH_FIND(in_daemon, change->query->daemon->tenants, change->name, strlen(change->name),
              tenant);
    if (!tenant)
        return occl_detail_set(&change->query->detail, OCCL_E_NOT_FOUND, 0,
                               "set tenant: there is no tenant %s", change->name);
    struct {
        const char *key;
        uint64_t *place;
    } table[] = {
        {"weight", &tenant->weight},
        {"quota_sessions", &tenant->quota_sessions},
        {"quota_communicators", &tenant->quota_communicators},
        {"quota_ops", &tenant->quota_ops},
        {"quota_regions", &tenant->quota_regions},
    };
    if (strcmp(change->key, "quota_registered") == 0) {
        keep_old(change, tenant->charge.limit_bytes);
        if (occl_config_parse_size(change->value, &number) != OCCL_OK ||
            number > change->query->daemon->charge.limit_bytes)
            return bad_value(change, "a size of at most registered_max");
        tenant->charge.limit_bytes = number;
        tenant->quota_set = true;
        return OCCL_OK;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].key, change->key) != 0)
            continue;
        keep_old(change, *table[i].place);
        status = number_of(change, 1, 1000000, &number);
        if (status == OCCL_OK) {
            *table[i].place = number;
            if (i == 0)
                tenant->weight_set = true;
            else
                tenant->quota_set = true;
            apply_all(tenant);
        }
        return status;
    }
    return unknown_key(change, "weight, quota_sessions, quota_communicators, quota_ops, "
                               "quota_regions, quota_registered");
}

/* ---- the daemon's own settings ---- */

static int set_daemon(struct change *change) {
    struct occl_daemon *daemon = change->query->daemon;
    struct occl_detail *detail = &change->query->detail;
    struct occl_config *fresh;
    enum occl_log_level level;
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    const struct occl_config_key *key = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(keys[i].name, change->key) == 0)
            key = &keys[i];
    if (!key)
        return unknown_key(change, "those that `config` lists");
    if (!key->reloadable)
        return occl_detail_set(detail, OCCL_E_USAGE, 0, "set daemon: %s needs a restart",
                               change->key);
    occl_config_print(key, &daemon->config, change->from, sizeof change->from);
    fresh = malloc(sizeof *fresh);
    if (!fresh)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a change");
    *fresh = daemon->config;
    int status = occl_config_assign(change->key, change->value, "set", fresh, NULL, detail);
    if (status == OCCL_OK)
        status = occl_config_settle(daemon->config.memory_limit_bytes, fresh, detail);
    if (status == OCCL_OK) {
        daemon->config = *fresh;
        (void)snprintf(daemon->origins.text[key - keys], OCCL_CONFIG_ORIGIN_BYTES, "set");
        if (occl_log_level_parse(daemon->config.log_level, &level) == OCCL_OK && daemon->log)
            occl_log_set_level(daemon->log, level);
        occl_tenant_reload(daemon);
        occl_metrics_wake(daemon);
    }
    free(fresh);
    return status;
}

int occl_admin_set(struct occl_admin_query *query, json_t *answer) {
    struct change change = {
        .query = query,
        .kind = occl_admin_text(query, "kind"),
        .name = occl_admin_text(query, "name"),
        .key = occl_admin_text(query, "key"),
        .value = occl_admin_text(query, "value"),
    };
    int status;
    if (!change.kind || !change.name || !change.key || !change.value)
        return occl_detail_set(&query->detail, OCCL_E_INVALID, 0,
                               "set: expected the texts kind, name, key and value");
    if (strcmp(change.kind, "job") == 0)
        status = set_job(&change);
    else if (strcmp(change.kind, "tenant") == 0)
        status = set_tenant(&change);
    else if (strcmp(change.kind, "daemon") == 0)
        status = set_daemon(&change);
    else
        return occl_detail_set(&query->detail, OCCL_E_INVALID, 0,
                               "set: expected job, tenant or daemon, found '%s'", change.kind);
    if (status != OCCL_OK)
        return status;
    OCCL_LOG_INFO(query->daemon->log, "admin", "uid %u process %d set %s %s %s from %s to %s",
                  (unsigned)query->asker->uid, (int)query->asker->pid, change.kind, change.name,
                  change.key, change.from, change.value);
    json_t *changed = json_object();
    occl_admin_put_text(changed, "kind", change.kind);
    occl_admin_put_text(changed, "name", change.name);
    occl_admin_put_text(changed, "key", change.key);
    occl_admin_put_text(changed, "from", change.from);
    occl_admin_put_text(changed, "to", change.value);
    occl_admin_put(answer, "changed", changed);
    return OCCL_OK;
}
