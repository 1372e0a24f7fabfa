/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the administration verbs share. Schemas: ADMIN.md. Answers are built on the
 * control loop in one go; every list in them is bounded by a quota or by OCCL_ADMIN_OPS_MAX. */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include <jansson.h>

#include "daemon/why.h"

#define OCCL_ADMIN_SCHEMA 1
#define OCCL_ADMIN_OPS_MAX 4096

/* Who asks and what for; strings are borrowed from the request. */
struct occl_admin_query {
    struct occl_session *asker;
    struct occl_daemon *daemon;
    bool operator_rights;
    json_t *request;
    const char *job, *comm, *tenant; /* NULL: all */
    int64_t rank;                    /* -1: all */
    struct occl_detail detail;       /* of a failure */
};

bool occl_admin_sees(const struct occl_admin_query *query, const struct occl_job *job);
bool occl_admin_wants_comm(const struct occl_admin_query *query, const struct occl_comm *comm);
bool occl_admin_wants_op(const struct occl_admin_query *query, const struct occl_op_view *op);
/* Value of a text key of the request; NULL when there is none. */

const char *occl_admin_text(const struct occl_admin_query *query, const char *key);

/* Each verb adds its keys to `answer`. On failure query->detail holds status and text. */
int occl_admin_status(struct occl_admin_query *query, json_t *answer);
int occl_admin_jobs(struct occl_admin_query *query, json_t *answer);
int occl_admin_comms(struct occl_admin_query *query, json_t *answer);
int occl_admin_ops(struct occl_admin_query *query, json_t *answer);
int occl_admin_why(struct occl_admin_query *query, json_t *answer);
int occl_admin_usage(struct occl_admin_query *query, json_t *answer);
int occl_admin_config(struct occl_admin_query *query, json_t *answer);
int occl_admin_set(struct occl_admin_query *query, json_t *answer);
int occl_admin_doctor(struct occl_admin_query *query, json_t *answer);
int occl_admin_version(struct occl_admin_query *query, json_t *answer);
int occl_admin_ping(struct occl_admin_query *query, json_t *answer);

/* Building blocks. Ownership of what they return is the caller's. */
json_t *occl_admin_ranks(uint64_t mask);
json_t *occl_admin_op(const struct occl_admin_query *query, const struct occl_op_view *op);
/* A process of the job is in a certain cycle of application waits. */
bool occl_admin_in_cycle(const struct occl_wait_graph *graph, const struct occl_job *job);
json_t *occl_admin_last_op(const struct occl_note_view *note);
/* Adds `value` (its reference is taken) under key; memory trouble shows as a missing key. */
void occl_admin_put(json_t *object, const char *key, json_t *value);
void occl_admin_put_number(json_t *object, const char *key, uint64_t value);
void occl_admin_put_text(json_t *object, const char *key, const char *value);
void occl_admin_put_bool(json_t *object, const char *key, bool value);
uint64_t occl_admin_age(const struct occl_daemon *daemon, uint64_t since_ns);

#endif
