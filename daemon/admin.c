/* SPDX-License-Identifier: Apache-2.0 */
/* Administration requests: parse, permission, verb, building blocks of answers. */
#include "daemon/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLAIN(name_, function_, changes_) \
    { .name = (name_), .changes = (changes_), .plain = (function_) }

static const struct occl_admin_verb plain_verbs[] = {
    PLAIN("ping", occl_admin_ping, false),     PLAIN("version", occl_admin_version, false),
    PLAIN("config", occl_admin_config, false), PLAIN("doctor", occl_admin_doctor, false),
    PLAIN("set", occl_admin_set, true),        PLAIN("rank_ended", occl_admin_rank_ended, false),
};
static const struct occl_admin_verb *const walks[] = {
    &occl_admin_verb_status, &occl_admin_verb_jobs, &occl_admin_verb_comms,
    &occl_admin_verb_ops,    &occl_admin_verb_why,  &occl_admin_verb_usage,
};

/* ---- building blocks ---- */

void occl_admin_put(json_t *object, const char *key, json_t *value) {
    (void)json_object_set_new(object, key, value);
}

void occl_admin_put_number(json_t *object, const char *key, uint64_t value) {
    occl_admin_put(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

void occl_admin_put_text(json_t *object, const char *key, const char *value) {
    occl_admin_put(object, key, json_string(value ? value : ""));
}

void occl_admin_put_bool(json_t *object, const char *key, bool value) {
    occl_admin_put(object, key, json_boolean(value));
}

uint64_t occl_admin_age(const struct occl_daemon *daemon, uint64_t since_ns) {
    uint64_t now = occl_loop_now_ns(daemon->loop);
    return since_ns < now ? now - since_ns : 0;
}

json_t *occl_admin_ranks(uint64_t mask) {
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < 64; rank++)
        if (mask >> rank & 1)
            (void)json_array_append_new(list, json_integer(rank));
    return list;
}

const char *occl_admin_text(const struct occl_admin_request *request, const char *key) {
    return json_string_value(json_object_get(request->json, key));
}

/* ---- who sees what ---- */

bool occl_admin_may_see(const struct occl_admin_request *request, const struct occl_job *job) {
    const struct occl_tenant *tenant = job->tenant;
    return request->operator_rights || (tenant->uid == request->asker->uid &&
                                        tenant->listener == request->asker->listener->index);
}

bool occl_admin_sees(const struct occl_admin_request *request, const struct occl_job *job) {
    if (!occl_admin_may_see(request, job))
        return false;
    if (request->tenant && strcmp(request->tenant, job->tenant->text) != 0)
        return false;
    return !request->job || strcmp(request->job, job->name) == 0;
}

bool occl_admin_wants_comm(const struct occl_admin_request *request, const struct occl_comm *comm) {
    char number[24];
    if (!occl_admin_sees(request, comm->job))
        return false;
    if (request->rank >= 0 && request->rank >= (int64_t)comm->ranks)
        return false;
    if (!request->comm)
        return true;
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)comm->uid);
    return strcmp(request->comm, comm->name) == 0 || strcmp(request->comm, number) == 0;
}

bool occl_admin_wants_op(const struct occl_admin_request *request, const struct occl_op_view *op) {
    return occl_admin_wants_comm(request, op->comm) &&
           (request->rank < 0 || (op->members_mask >> request->rank & 1));
}

/* ---- the request ---- */

static int parse(struct occl_admin_request *request) {
    json_error_t error;
    request->json = json_loads(request->text, 0, &error);
    if (!json_is_object(request->json))
        return occl_detail_set(&request->detail, OCCL_E_INVALID, 0,
                               "ADMIN: expected a JSON object, found: %s",
                               request->json ? "another value" : error.text);
    static const char *const texts[] = {"verb", "job", "comm", "tenant"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const json_t *given = json_object_get(request->json, texts[i]);
        if (given && !json_is_string(given))
            return occl_detail_set(&request->detail, OCCL_E_INVALID, 0, "%s: expected a text",
                                   texts[i]);
    }
    request->job = occl_admin_text(request, "job");
    request->comm = occl_admin_text(request, "comm");
    request->tenant = occl_admin_text(request, "tenant");
    const json_t *rank = json_object_get(request->json, "rank");
    request->rank = json_is_integer(rank) ? json_integer_value(rank) : -1;
    if (rank && (request->rank < 0 || request->rank >= OCCL_LOCAL_RANKS_MAX))
        return occl_detail_set(&request->detail, OCCL_E_INVALID, 0,
                               "rank: expected a number from 0 to %d", OCCL_LOCAL_RANKS_MAX - 1);
    return OCCL_OK;
}

static void put_common(struct occl_admin_request *request, const char *verb, json_t *answer) {
    struct occl_daemon *daemon = request->daemon;
    json_t *self = json_object();
    occl_admin_put_number(self, "pid", (uint64_t)getpid());
    occl_admin_put_number(self, "epoch", daemon->epoch & INT64_MAX);
    occl_admin_put_text(self, "host", daemon->host);
    occl_admin_put_text(self, "version", OCCL_DAEMON_VERSION);
    occl_admin_put_number(answer, "schema", OCCL_ADMIN_SCHEMA);
    occl_admin_put_text(answer, "verb", verb);
    occl_admin_put(answer, "daemon", self);
    occl_admin_put_number(answer, "time_ns", occl_clock_wall_ns(daemon->clock));
}

/* Names who may: the rule of occl_identity_is_operator. */
static int refuse_change(struct occl_admin_request *request, const char *verb) {
    const struct occl_daemon *daemon = request->daemon;
    const char *group = daemon->operator_gid_known ? daemon->config.operator_group : "";
    char own[48] = "";
    if (geteuid() != 0)
        (void)snprintf(own, sizeof own, ", uid %u (the daemon's own)", (unsigned)geteuid());
    if (request->asker->listener->index != 0)
        return occl_detail_set(&request->detail, OCCL_E_PERMISSION, 0,
                               "%s: over this socket nobody may change anything, only over the "
                               "daemon's first one",
                               verb);
    return occl_detail_set(&request->detail, OCCL_E_PERMISSION, 0,
                           "%s: uid %u may not change anything, also not its own jobs; root%s%s%s "
                           "may%s",
                           verb, (unsigned)request->asker->uid, own,
                           group[0] ? ", and members of group " : "", group,
                           group[0] ? " (operator_group)" : " (operator_group names no group)");
}

static const struct occl_admin_verb *find_verb(const char *name) {
    for (size_t i = 0; i < sizeof plain_verbs / sizeof *plain_verbs; i++)
        if (strcmp(plain_verbs[i].name, name) == 0)
            return &plain_verbs[i];
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++)
        if (strcmp(walks[i]->name, name) == 0)
            return walks[i];
    return NULL;
}

int occl_admin_begin(struct occl_admin_request *request) {
    int status = parse(request);
    if (status != OCCL_OK)
        return status;
    const char *verb = occl_admin_text(request, "verb");
    request->verb = verb ? find_verb(verb) : NULL;
    if (!request->verb)
        return occl_detail_set(&request->detail, OCCL_E_UNSUPPORTED, 0,
                               "verb '%s' is unknown to this daemon", verb ? verb : "");
    if (request->verb->changes && !request->operator_rights)
        return refuse_change(request, verb);
    request->answer = json_object();
    put_common(request, verb, request->answer);
    return OCCL_OK;
}
