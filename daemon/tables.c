/* SPDX-License-Identifier: Apache-2.0 */
/* The hash tables of the core, in one place because uthash is macros: each of these expands to more
 * statements than a function should have. An insertion that finds no memory leaves the table as it
 * was.
 */
#include <string.h>

#include "daemon/occld.h"
#include "daemon/rendezvous.h"

/* NOLINTBEGIN(readability-function-size): the statements are those of uthash */
bool occl_table_add_tenant(struct occl_daemon *daemon, struct occl_tenant *tenant) {
    HASH_ADD(in_daemon, daemon->tenants, text, strlen(tenant->text), tenant);
    return tenant->in_daemon.tbl != NULL;
}

bool occl_table_add_job(struct occl_daemon *daemon, struct occl_job *job) {
    HASH_ADD(in_daemon, daemon->jobs, id, sizeof job->id, job);
    return job->in_daemon.tbl != NULL;
}

bool occl_table_add_session(struct occl_daemon *daemon, struct occl_session *session) {
    HASH_ADD(in_daemon, daemon->sessions, id, sizeof session->id, session);
    return session->in_daemon.tbl != NULL;
}

bool occl_table_add_comm(struct occl_daemon *daemon, struct occl_comm *comm) {
    HASH_ADD(in_daemon, daemon->comms, uid, sizeof comm->uid, comm);
    return comm->in_daemon.tbl != NULL;
}

bool occl_table_add_meeting(struct occl_daemon *daemon, struct occl_rendezvous *meeting) {
    HASH_ADD(in_daemon, daemon->meetings, secret, sizeof meeting->secret, meeting);
    return meeting->in_daemon.tbl != NULL;
}

bool occl_table_add_seat(struct occl_session *session, struct occl_seat *seat) {
    HASH_ADD(in_session, session->seats, number, sizeof seat->number, seat);
    return seat->in_session.tbl != NULL;
}

bool occl_table_add_region(struct occl_job *job, struct occl_region *region) {
    HASH_ADD(in_job, job->regions, number, sizeof region->number, region);
    return region->in_job.tbl != NULL;
}
/* NOLINTEND(readability-function-size) */
