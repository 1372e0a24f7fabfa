/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants and jobs: found by name, made on first use, gone with their last session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"

int occl_tenant_charge(struct occl_tenant *tenant, uint64_t bytes, const char *what,
                       struct occl_detail *detail) {
    struct occl_charge *all = &tenant->daemon->charge;
    if (occl_charge_take(&tenant->charge, bytes) != OCCL_OK)
        return occl_detail_set(
            detail, OCCL_E_QUOTA, 0,
            "%s of %llu bytes: tenant %s has registered %llu of at most %llu bytes "
            "(quota_registered)",
            what, (unsigned long long)bytes, tenant->text,
            (unsigned long long)tenant->charge.used_bytes,
            (unsigned long long)tenant->charge.limit_bytes);
    if (occl_charge_take(all, bytes) != OCCL_OK) {
        occl_charge_give(&tenant->charge, bytes);
        return occl_detail_set(
            detail, OCCL_E_QUOTA, 0,
            "%s of %llu bytes: all tenants together have registered %llu of at most "
            "%llu bytes (registered_max)",
            what, (unsigned long long)bytes, (unsigned long long)all->used_bytes,
            (unsigned long long)all->limit_bytes);
    }
    return OCCL_OK;
}

void occl_tenant_uncharge(struct occl_tenant *tenant, uint64_t bytes) {
    occl_charge_give(&tenant->charge, bytes);
    occl_charge_give(&tenant->daemon->charge, bytes);
}

static void take_quotas(struct occl_tenant *tenant) {
    const struct occl_config *config = &tenant->daemon->config;
    tenant->charge.limit_bytes = config->quota_registered_bytes;
    tenant->quota_sessions = config->quota_sessions;
    tenant->quota_communicators = config->quota_communicators;
    tenant->quota_ops = config->quota_ops;
    tenant->quota_regions = config->quota_regions;
}

static struct occl_tenant *find_or_make(struct occl_session *session, const char *tag,
                                        struct occl_detail *detail) {
    struct occl_daemon *daemon = session->daemon;
    struct occl_tenant *tenant;
    char text[OCCL_TENANT_TEXT_BYTES];
    int length =
        snprintf(text, sizeof text, "%u%s%s", (unsigned)session->uid, tag[0] ? ":" : "", tag);
    if (session->listener->index)
        (void)snprintf(text + length, sizeof text - (size_t)length, "@%u",
                       session->listener->index);
    HASH_FIND(in_daemon, daemon->tenants, text, strlen(text), tenant);
    if (tenant)
        return tenant;
    if (daemon->tenant_count >= daemon->config.tenants_max) {
        (void)occl_detail_set(detail, OCCL_E_TENANT_REFUSED, 0,
                              "tenant %s: %u tenants are here already (tenants_max)", text,
                              daemon->tenant_count);
        return NULL;
    }
    tenant = calloc(1, sizeof *tenant);
    if (!tenant) {
        (void)occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a tenant");
        return NULL;
    }
    tenant->daemon = daemon;
    memcpy(tenant->text, text, sizeof text);
    (void)snprintf(tenant->tag, sizeof tenant->tag, "%s", tag);
    tenant->id = ++daemon->next_tenant;
    tenant->uid = session->uid;
    tenant->listener = session->listener->index;
    tenant->weight = daemon->config.tenant_weight;
    take_quotas(tenant);
    TAILQ_INIT(&tenant->jobs);
    if (!occl_table_add_tenant(daemon, tenant)) {
        free(tenant);
        (void)occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a tenant");
        return NULL;
    }
    daemon->tenant_count++;
    return tenant;
}

static void drop_tenant(struct occl_tenant *tenant) {
    if (!TAILQ_EMPTY(&tenant->jobs))
        return;
    /* Everything charged belonged to a job. */
    OCCL_ASSERT(tenant->charge.used_bytes == 0 && tenant->regions == 0 && tenant->room_bytes == 0);
    occl_stall_tenant_gone(tenant);
    tenant->daemon->tenant_count--;
    HASH_DELETE(in_daemon, tenant->daemon->tenants, tenant);
    free(tenant);
}

static void engine_config(const struct occl_job *job, struct occl_engine_job_config *out_config) {
    memset(out_config, 0, sizeof *out_config);
    out_config->job_id = job->id;
    out_config->tenant_id = job->tenant->id;
    out_config->job_class = job->job_class;
    out_config->job_weight = job->weight;
    out_config->tenant_weight = (uint32_t)job->tenant->weight;
    out_config->ops_quota = job->tenant->quota_ops;
    out_config->page = job->page;
}

void occl_tenant_apply(struct occl_job *job) {
    struct occl_engine_job_config config;
    engine_config(job, &config);
    occl_note32(&job->page->job_class, job->job_class);
    if (occl_engine_job_set(job->tenant->daemon->engine, &config) != OCCL_OK)
        OCCL_LOG_WARN(job->tenant->daemon->log, "tenant", "job %s: new weights were refused",
                      job->name);
}

void occl_tenant_reload(struct occl_daemon *daemon) {
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    struct occl_job *job;
    HASH_ITER (in_daemon, daemon->tenants, tenant, next) {
        if (!tenant->quota_set)
            take_quotas(tenant);
        if (!tenant->weight_set)
            tenant->weight = daemon->config.tenant_weight;
        TAILQ_FOREACH(job, &tenant->jobs, in_tenant) {
            if (!job->stall_set)
                job->stall_interval_ns = daemon->config.stall_interval_ns;
            occl_tenant_apply(job);
        }
    }
}

/* Job page, engine part. On failure nothing is left. */
static int furnish_job(struct occl_job *job, struct occl_detail *detail) {
    struct occl_engine_job_config config;
    void *base;
    int status = occl_tenant_charge(job->tenant, OCCL_PAGE_BYTES, "a job page", detail);
    if (status != OCCL_OK)
        return status;
    status =
        occl_memfd_create_one_way("occl-job", sizeof *job->page, &job->page_memfd, &base, detail);
    if (status != OCCL_OK)
        goto give_charge;
    job->page = base;
    job->page->magic = OCCL_MAGIC_JOB;
    job->page->abi_version = OCCL_ABI_VERSION;
    job->page->job_class = job->job_class;
    engine_config(job, &config);
    status = occl_engine_job_add(job->tenant->daemon->engine, &config);
    if (status == OCCL_OK)
        return OCCL_OK;
    (void)occl_detail_set(detail, status, 0, "job %s: the engine has no room", job->name);
    occl_memfd_unmap(job->page, job->page_memfd.bytes);
    occl_memfd_close(&job->page_memfd);
give_charge:
    occl_tenant_uncharge(job->tenant, OCCL_PAGE_BYTES);
    return status;
}

struct occl_job *occl_job_find(struct occl_daemon *daemon, uint64_t id) {
    struct occl_job *job;
    HASH_FIND(in_daemon, daemon->jobs, &id, sizeof id, job);
    return job;
}

static struct occl_job *job_of(struct occl_tenant *tenant, const char *name,
                               struct occl_detail *detail) {
    struct occl_daemon *daemon = tenant->daemon;
    struct occl_job *job;
    TAILQ_FOREACH(job, &tenant->jobs, in_tenant)
    if (strcmp(job->name, name) == 0)
        return job;
    job = calloc(1, sizeof *job);
    if (!job) {
        (void)occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a job");
        return NULL;
    }
    job->tenant = tenant;
    (void)snprintf(job->name, sizeof job->name, "%s", name);
    job->id = ++daemon->next_job;
    job->page_memfd.fd = -1;
    job->job_class = (uint32_t)daemon->config.job_class;
    job->weight = (uint32_t)daemon->config.job_weight;
    job->stall_interval_ns = daemon->config.stall_interval_ns;
    job->born_ns = occl_loop_now_ns(daemon->loop);
    TAILQ_INIT(&job->sessions);
    TAILQ_INIT(&job->comms);
    TAILQ_INIT(&job->meetings);
    if (!occl_table_add_job(daemon, job)) {
        free(job);
        (void)occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a job");
        return NULL;
    }
    if (furnish_job(job, detail) != OCCL_OK) {
        HASH_DELETE(in_daemon, daemon->jobs, job);
        free(job);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&tenant->jobs, job, in_tenant);
    daemon->job_count++;
    OCCL_LOG_INFO(daemon->log, "tenant", "tenant %s job %s started", tenant->text, job->name);
    return job;
}

static void drop_job(struct occl_job *job) {
    struct occl_tenant *tenant = job->tenant;
    struct occl_daemon *daemon = tenant->daemon;
    if (job->session_count)
        return;
    /* Without sessions there are no seats and no owners. */
    OCCL_ASSERT(TAILQ_EMPTY(&job->comms));
    OCCL_ASSERT(job->regions == NULL);
    occl_rendezvous_job_gone(job);
    occl_engine_job_remove(daemon->engine, job->id);
    occl_memfd_unmap(job->page, job->page_memfd.bytes);
    occl_memfd_close(&job->page_memfd);
    occl_tenant_uncharge(tenant, OCCL_PAGE_BYTES);
    TAILQ_REMOVE(&tenant->jobs, job, in_tenant);
    HASH_DELETE(in_daemon, daemon->jobs, job);
    daemon->job_count--;
    OCCL_LOG_INFO(daemon->log, "tenant", "tenant %s job %s ended", tenant->text, job->name);
    free(job->failures);
    free(job);
}

int occl_tenant_enter(struct occl_session *session, const char *tag, const char *job_name,
                      struct occl_detail *detail) {
    struct occl_tenant *tenant = find_or_make(session, tag, detail);
    if (!tenant)
        return detail->status;
    struct occl_job *job = NULL;
    if (tenant->sessions >= tenant->quota_sessions)
        (void)occl_detail_set(detail, OCCL_E_QUOTA, 0,
                              "tenant %s has %llu of at most %llu sessions (quota_sessions)",
                              tenant->text, (unsigned long long)tenant->sessions,
                              (unsigned long long)tenant->quota_sessions);
    else
        job = job_of(tenant, job_name, detail);
    if (!job) {
        drop_tenant(tenant);
        return detail->status;
    }
    session->job = job;
    tenant->sessions++;
    job->session_count++;
    job->shape++;
    TAILQ_INSERT_TAIL(&job->sessions, session, in_list);
    tenant->daemon->rank_sessions++;
    occl_cores_ask(session);
    occl_cores_tell(tenant->daemon);
    return OCCL_OK;
}

void occl_tenant_leave(struct occl_session *session) {
    struct occl_job *job = session->job;
    struct occl_tenant *tenant = job->tenant;
    TAILQ_REMOVE(&job->sessions, session, in_list);
    tenant->daemon->rank_sessions--;
    job->session_count--;
    occl_cores_tell(tenant->daemon);
    job->shape++;
    tenant->sessions--;
    session->job = NULL;
    drop_job(job);
    drop_tenant(tenant);
}
