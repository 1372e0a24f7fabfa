/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon spent on a job, from its ledger. Nothing here is timed, and nothing fails: where
 * the ledger cannot be read the numbers are unknown. */
#include <stdlib.h>
#include <string.h>

#include "client_lib/locate.h"
#include "tools/perf/perf.h"

#define TIMEOUT_MS 5000

void occl_perf_admin_open(struct occl_perf_bench *bench) {
    char path[OCCL_SOCKET_PATH_BYTES];
    if (occl_locate_socket(NULL, path, sizeof path, NULL) != OCCL_OK ||
        occl_admin_open(path, "occl-perf", TIMEOUT_MS, &bench->admin, NULL) != OCCL_OK)
        bench->admin.fd = -1;
}

static json_t *ask(struct occl_perf_bench *bench, const char *verb) {
    json_t *reply = NULL;
    json_t *request = json_pack("{s:s}", "verb", verb);
    if (!request || occl_admin_call(&bench->admin, request, TIMEOUT_MS, &reply, NULL) != OCCL_OK) {
        occl_admin_close(&bench->admin); /* after a time-out it can only be closed */
        reply = NULL;
    }
    json_decref(request);
    return reply;
}

static double number(const json_t *object, const char *key) {
    return (double)json_integer_value(json_object_get(object, key));
}

/* Adds up the entries of our job: the name is unique inside a tenant only, and other tenants' jobs
 * are in the answer only for operators, who then run beside nobody of that name. */
static void add_job(const json_t *usage, const char *job, struct occl_perf_spent *spent) {
    size_t t, j;
    json_t *tenant, *entry;
    json_array_foreach(json_object_get(usage, "tenants"), t, tenant) {
        json_array_foreach(json_object_get(tenant, "jobs"), j, entry) {
            const char *name = json_string_value(json_object_get(entry, "job"));
            if (!name || strcmp(name, job) != 0)
                continue;
            spent->cpu_us += number(entry, "lane_cpu_ns") / 1000;
            spent->preemptions += number(entry, "preemptions_total");
            spent->valid = true;
        }
    }
}

struct occl_perf_spent occl_perf_spent_now(struct occl_perf_bench *bench) {
    struct occl_perf_spent spent = {.valid = false};
    const char *job = getenv("OCCL_JOB"); /* lint: banned_calls: set by the launcher */
    if (bench->admin.fd < 0 || !job)
        return spent;
    json_t *usage = ask(bench, "usage");
    json_t *status = usage ? ask(bench, "status") : NULL;
    if (usage)
        add_job(usage, job, &spent);
    if (status)
        spent.switches = number(json_object_get(status, "engine"), "switches_total");
    else
        spent.valid = false;
    json_decref(usage);
    json_decref(status);
    return spent;
}
