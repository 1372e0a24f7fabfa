/* SPDX-License-Identifier: Apache-2.0 */
/* Administration requests: parse, permission, verb, answer in a memfd. */
#include "daemon/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*answer)(struct occl_admin_query *query, json_t *answer);
    bool changes;
} verbs[] = {
    {"ping", occl_admin_ping, false},     {"version", occl_admin_version, false},
    {"status", occl_admin_status, false}, {"jobs", occl_admin_jobs, false},
    {"comms", occl_admin_comms, false},   {"ops", occl_admin_ops, false},
    {"why", occl_admin_why, false},       {"usage", occl_admin_usage, false},
    {"config", occl_admin_config, false}, {"doctor", occl_admin_doctor, false},
    {"set", occl_admin_set, true},
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

const char *occl_admin_text(const struct occl_admin_query *query, const char *key) {
    return json_string_value(json_object_get(query->request, key));
}

/* ---- who sees what ---- */

bool occl_admin_sees(const struct occl_admin_query *query, const struct occl_job *job) {
    const struct occl_tenant *tenant = job->tenant;
    if (!query->operator_rights &&
        (tenant->uid != query->asker->uid || tenant->listener != query->asker->listener->index))
        return false;
    if (query->tenant && strcmp(query->tenant, tenant->text) != 0)
        return false;
    return !query->job || strcmp(query->job, job->name) == 0;
}

bool occl_admin_wants_comm(const struct occl_admin_query *query, const struct occl_comm *comm) {
    char number[24];
    if (!occl_admin_sees(query, comm->job))
        return false;
    if (query->rank >= 0 && query->rank >= (int64_t)comm->ranks)
        return false;
    if (!query->comm)
        return true;
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)comm->uid);
    return strcmp(query->comm, comm->name) == 0 || strcmp(query->comm, number) == 0;
}

bool occl_admin_wants_op(const struct occl_admin_query *query, const struct occl_op_view *op) {
    return occl_admin_wants_comm(query, op->comm) &&
           (query->rank < 0 || (op->members_mask >> query->rank & 1));
}

/* ---- the request ---- */

static int parse(struct occl_admin_query *query, const char *text, size_t bytes) {
    json_error_t error;
    size_t length = strnlen(text, bytes);
    if (length == bytes)
        return occl_detail_set(&query->detail, OCCL_E_PROTOCOL, 0,
                               "ADMIN: the text is not terminated");
    query->request = json_loadb(text, length, 0, &error);
    if (!json_is_object(query->request))
        return occl_detail_set(&query->detail, OCCL_E_INVALID, 0,
                               "ADMIN: expected a JSON object, found: %s",
                               query->request ? "another value" : error.text);
    static const char *const texts[] = {"verb", "job", "comm", "tenant"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const json_t *given = json_object_get(query->request, texts[i]);
        if (given && !json_is_string(given))
            return occl_detail_set(&query->detail, OCCL_E_INVALID, 0, "%s: expected a text",
                                   texts[i]);
    }
    query->job = occl_admin_text(query, "job");
    query->comm = occl_admin_text(query, "comm");
    query->tenant = occl_admin_text(query, "tenant");
    const json_t *rank = json_object_get(query->request, "rank");
    query->rank = json_is_integer(rank) ? json_integer_value(rank) : -1;
    if (rank && (query->rank < 0 || query->rank >= OCCL_LOCAL_RANKS_MAX))
        return occl_detail_set(&query->detail, OCCL_E_INVALID, 0,
                               "rank: expected a number from 0 to %d", OCCL_LOCAL_RANKS_MAX - 1);
    return OCCL_OK;
}

static void put_common(struct occl_admin_query *query, const char *verb, json_t *answer) {
    struct occl_daemon *daemon = query->daemon;
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
static int refuse_change(struct occl_admin_query *query, const char *verb) {
    const struct occl_daemon *daemon = query->daemon;
    const char *group = daemon->operator_gid_known ? daemon->config.operator_group : "";
    char own[48] = "";
    if (geteuid() != 0)
        (void)snprintf(own, sizeof own, ", uid %u (the daemon's own)", (unsigned)geteuid());
    if (query->asker->listener->index != 0)
        return occl_detail_set(&query->detail, OCCL_E_PERMISSION, 0,
                               "%s: over this socket nobody may change anything, only over the "
                               "daemon's first one, %s",
                               verb, daemon->listeners[0].path);
    return occl_detail_set(&query->detail, OCCL_E_PERMISSION, 0,
                           "%s: uid %u may not change anything, also not its own jobs; root%s%s%s "
                           "may%s",
                           verb, (unsigned)query->asker->uid, own,
                           group[0] ? ", and members of group " : "", group,
                           group[0] ? " (operator_group)" : " (operator_group names no group)");
}

static int answer_verb(struct occl_admin_query *query, json_t *answer) {
    const char *verb = occl_admin_text(query, "verb");
    for (size_t i = 0; verb && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].name, verb) != 0)
            continue;
        if (verbs[i].changes && !query->operator_rights)
            return refuse_change(query, verb);
        put_common(query, verb, answer);
        return verbs[i].answer(query, answer);
    }
    return occl_detail_set(&query->detail, OCCL_E_UNSUPPORTED, 0,
                           "verb '%s' is unknown to this daemon", verb ? verb : "");
}

/* ---- the answer ---- */

static int pack(const char *text, size_t bytes, struct occl_memfd *out_memfd,
                struct occl_detail *detail) {
    void *base;
    int status = occl_memfd_create("occl-answer", bytes, 0, out_memfd, detail);
    if (status != OCCL_OK)
        return status;
    status = occl_memfd_map(out_memfd->fd, out_memfd->bytes, OCCL_MAP_WRITE, &base, detail);
    if (status != OCCL_OK) {
        occl_memfd_close(out_memfd);
        return status;
    }
    memcpy(base, text, bytes);
    occl_memfd_unmap(base, out_memfd->bytes);
    return OCCL_OK;
}

static void send_answer(struct occl_admin_query *query, uint64_t request, const json_t *answer) {
    struct occl_msg_admin_reply reply;
    struct occl_memfd memfd = {-1, 0, 0};
    char *text = json_dumps(answer, JSON_COMPACT);
    memset(&reply, 0, sizeof reply);
    occl_msg_init(&reply.h, OCCL_MSG_ADMIN_REPLY, request);
    if (!text)
        (void)occl_detail_set(&query->detail, OCCL_E_NO_MEMORY, 0, "no memory for the answer");
    if (text && pack(text, strlen(text), &memfd, &query->detail) == OCCL_OK) {
        reply.text_bytes = strlen(text);
        occl_session_send(query->asker, &reply, sizeof reply, &memfd.fd, 1);
        occl_memfd_close(&memfd);
    } else {
        reply.detail = query->detail;
        occl_session_send(query->asker, &reply, sizeof reply, NULL, 0);
    }
    free(text);
}

void occl_admin_handle(struct occl_session *session, const struct occl_msg_admin *msg) {
    struct occl_admin_query query = {
        .asker = session,
        .daemon = session->daemon,
        .operator_rights = occl_identity_is_operator(session),
    };
    json_t *answer = json_object();
    int status = parse(&query, msg->text, sizeof msg->text);
    if (status == OCCL_OK)
        status = answer_verb(&query, answer);
    if (status == OCCL_OK) {
        send_answer(&query, msg->h.request, answer);
    } else {
        struct occl_msg_admin_reply reply;
        memset(&reply, 0, sizeof reply);
        occl_msg_init(&reply.h, OCCL_MSG_ADMIN_REPLY, msg->h.request);
        reply.detail = query.detail;
        occl_session_send(session, &reply, sizeof reply, NULL, 0);
    }
    json_decref(answer);
    json_decref(query.request);
}
