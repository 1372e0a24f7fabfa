/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `set`: changes of jobs, tenants and reloadable settings while they run. Each is logged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"
#include "daemon/settings.h"

struct change {
    struct occl_admin_request *request;
    const char *kind, *name, *key, *value;
    /* Both as they would stand in a file: what was said as "2" is told as "high". */
    char from[OCCL_CONFIG_TEXT_BYTES], to[OCCL_CONFIG_TEXT_BYTES];
};

static int bad_value(struct change *change, const char *expected) {
    return occl_detail_set(&change->request->detail, OCCL_E_INVALID, 0,
                           "set %s %s %s: expected %s, found '%s'", change->kind, change->name,
                           change->key, expected, change->value);
}

static int unknown_key(struct change *change) {
    char names[256] = "";
    size_t used = 0;
    uint32_t count;
    const struct occl_setting *settings = occl_settings(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(settings[i].kind, change->kind) != 0 || used >= sizeof names)
            continue;
        int wrote =
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", settings[i].name);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return occl_detail_set(&change->request->detail, OCCL_E_NOT_FOUND, 0,
                           "set %s: unknown key '%s', expected one of %s", change->kind,
                           change->key, names);
}

/* The new value, with the old one noted in the same words. */
static int value_of(struct change *change, const struct occl_setting *setting, uint64_t old,
                    uint64_t *out_value) {
    char range[OCCL_CONFIG_RANGE_BYTES];
    uint64_t value;
    if (occl_config_parse_value(setting->type, change->value, &value) != OCCL_OK ||
        value < setting->min || value > setting->max) {
        occl_config_range_text(setting->type, setting->min, setting->max, NULL, range,
                               sizeof range);
        return bad_value(change, range);
    }
    occl_config_value_text(setting->type, old, change->from, sizeof change->from);
    occl_config_value_text(setting->type, value, change->to, sizeof change->to);
    *out_value = value;
    return OCCL_OK;
}

/* ---- jobs ---- */

static struct occl_job *find_job(struct change *change) {
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    struct occl_job *job;
    struct occl_job *found = NULL;
    uint32_t count = 0;
    HASH_ITER (in_daemon, change->request->daemon->tenants, tenant, next) {
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
        (void)occl_detail_set(&change->request->detail, OCCL_E_NOT_FOUND, 0,
                              "set job: no job is named %s", change->name);
        return NULL;
    }
    if (count > 1) {
        (void)occl_detail_set(&change->request->detail, OCCL_E_NOT_FOUND, 0,
                              "set job: %u jobs are named %s; use TENANT/%s", count, change->name,
                              change->name);
        return NULL;
    }
    return found;
}

static int set_job(struct change *change) {
    struct occl_job *job = find_job(change);
    const struct occl_setting *setting = occl_setting_find("job", change->key);
    uint64_t number = 0;
    int status;
    if (!job)
        return OCCL_E_NOT_FOUND;
    if (!setting)
        return unknown_key(change);
    if (strcmp(setting->name, "class") == 0) {
        if ((status = value_of(change, setting, job->job_class, &number)) != OCCL_OK)
            return status;
        job->job_class = (uint32_t)number;
        job->class_set = true;
    } else if (strcmp(setting->name, "weight") == 0) {
        if ((status = value_of(change, setting, job->weight, &number)) != OCCL_OK)
            return status;
        job->weight = (uint32_t)number;
        job->weight_set = true;
    } else {
        if ((status = value_of(change, setting, job->stall_interval_ns, &number)) != OCCL_OK)
            return status;
        job->stall_interval_ns = number;
        job->stall_set = true;
        return OCCL_OK;
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
    const struct occl_setting *setting = occl_setting_find("tenant", change->key);
    uint64_t number = 0;
    int status;
    HASH_FIND(in_daemon, change->request->daemon->tenants, change->name, strlen(change->name),
              tenant);
    if (!tenant)
        return occl_detail_set(&change->request->detail, OCCL_E_NOT_FOUND, 0,
                               "set tenant: there is no tenant %s", change->name);
    if (!setting)
        return unknown_key(change);
    struct {
        const char *key;
        uint64_t *place;
    } table[] = {
        {"weight", &tenant->weight},
        {"quota_sessions", &tenant->quota_sessions},
        {"quota_communicators", &tenant->quota_communicators},
        {"quota_ops", &tenant->quota_ops},
        {"quota_regions", &tenant->quota_regions},
        {"quota_registered", &tenant->charge.limit_bytes},
    };
    size_t i = 0;
    while (strcmp(table[i].key, setting->name) != 0) {
        i++;
        OCCL_ASSERT(i < sizeof table / sizeof *table); /* the table of settings has no more */
    }
    status = value_of(change, setting, *table[i].place, &number);
    if (status != OCCL_OK)
        return status;
    if (table[i].place == &tenant->charge.limit_bytes &&
        number > change->request->daemon->charge.limit_bytes)
        return bad_value(change, "a size of at most registered_max");
    *table[i].place = number;
    if (table[i].place == &tenant->weight)
        tenant->weight_set = true;
    else
        tenant->quota_set = true;
    apply_all(tenant);
    return OCCL_OK;
}

/* ---- the daemon's own settings ---- */

static int set_daemon(struct change *change) {
    struct occl_daemon *daemon = change->request->daemon;
    struct occl_detail *detail = &change->request->detail;
    struct occl_config *fresh;
    enum occl_log_level level;
    uint32_t count;
    const struct occl_config_key *keys = occl_config_keys(&count);
    const struct occl_config_key *key = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(keys[i].name, change->key) == 0)
            key = &keys[i];
    if (!key)
        return occl_detail_set(detail, OCCL_E_NOT_FOUND, 0,
                               "set daemon: unknown key '%s', expected one that `config` lists",
                               change->key);
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
        occl_config_print(key, &daemon->config, change->to, sizeof change->to);
        occl_identity_find_operators(daemon);
        occl_tenant_reload(daemon);
        occl_metrics_wake(daemon);
    }
    free(fresh);
    return status;
}

int occl_admin_set(struct occl_admin_request *request) {
    struct change change = {
        .request = request,
        .kind = occl_admin_text(request, "kind"),
        .name = occl_admin_text(request, "name"),
        .key = occl_admin_text(request, "key"),
        .value = occl_admin_text(request, "value"),
    };
    int status;
    if (!change.kind || !change.name || !change.key || !change.value)
        return occl_detail_set(&request->detail, OCCL_E_INVALID, 0,
                               "set: expected the texts kind, name, key and value");
    if (strcmp(change.kind, "job") == 0)
        status = set_job(&change);
    else if (strcmp(change.kind, "tenant") == 0)
        status = set_tenant(&change);
    else if (strcmp(change.kind, "daemon") == 0)
        status = set_daemon(&change);
    else
        return occl_detail_set(&request->detail, OCCL_E_INVALID, 0,
                               "set: expected job, tenant or daemon, found '%s'", change.kind);
    if (status != OCCL_OK)
        return status;
    OCCL_LOG_INFO(request->daemon->log, "admin", "uid %u process %d set %s %s %s from %s to %s",
                  (unsigned)request->asker->uid, (int)request->asker->pid, change.kind, change.name,
                  change.key, change.from, change.to);
    json_t *changed = json_object();
    occl_admin_put_text(changed, "kind", change.kind);
    occl_admin_put_text(changed, "name", change.name);
    occl_admin_put_text(changed, "key", change.key);
    occl_admin_put_text(changed, "from", change.from);
    occl_admin_put_text(changed, "to", change.to);
    occl_admin_put(request->answer, "changed", changed);
    return OCCL_OK;
}
