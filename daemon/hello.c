/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: version, names, identity, tenant and job, session page, WELCOME. Every refusal is
 * an answer with a reason, and the connection is closed behind it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/occld.h"

static void refuse(struct occl_session *session, uint64_t request,
                   const struct occl_detail *detail) {
    session->daemon->counters.refused_total++;
    OCCL_LOG_WARN(session->daemon->log, "session", "uid %u process %d refused: %s",
                  (unsigned)session->uid, (int)session->pid, detail->text);
    occl_session_reply_detail(session, request, detail);
    occl_session_end(session, OCCL_CAUSE_REFUSED, "%s", detail->text);
}

static int negotiate(struct occl_session *session, const struct occl_msg_hello *msg,
                     struct occl_detail *detail) {
    uint32_t version = msg->abi_max < OCCL_ABI_VERSION ? msg->abi_max : OCCL_ABI_VERSION;
    if (msg->abi_min > msg->abi_max || version < msg->abi_min || version < OCCL_ABI_VERSION_MIN)
        return occl_detail_set(
            detail, OCCL_E_VERSION, 0,
            "the library speaks ABI versions %u to %u, this daemon (occld %s) %u "
            "to %u: use a matching pair",
            msg->abi_min, msg->abi_max, OCCL_DAEMON_VERSION, OCCL_ABI_VERSION_MIN,
            OCCL_ABI_VERSION);
    session->abi_version = (uint16_t)version;
    return OCCL_OK;
}

static int check_names(const struct occl_msg_hello *msg, struct occl_detail *detail) {
    int status = occl_name_check(msg->job, sizeof msg->job, "job name", detail);
    if (status == OCCL_OK)
        status = occl_name_check(msg->tag, sizeof msg->tag, "tenant tag", detail);
    if (status == OCCL_OK)
        status = occl_name_check(msg->program, sizeof msg->program, "program name", detail);
    /* These two separate the parts of a tenant's text. */
    if (status == OCCL_OK && strpbrk(msg->tag, "@:/"))
        status =
            occl_detail_set(detail, OCCL_E_INVALID, 0,
                            "tenant tag '%s': '@', ':' and '/' are not allowed in it", msg->tag);
    return status;
}

/* Session page and engine part; the session has its job already. */
static int furnish(struct occl_session *session, uint32_t sq_wanted, struct occl_detail *detail) {
    struct occl_daemon *daemon = session->daemon;
    struct occl_session_shape *shape = &session->shape;
    void *base;
    occl_session_shape_choose(sq_wanted ? sq_wanted : (uint32_t)daemon->config.sq_entries, shape);
    int status =
        occl_tenant_charge(session->job->tenant, shape->page_bytes, "a session page", detail);
    if (status != OCCL_OK) {
        shape->page_bytes = 0;
        return status;
    }
    status = occl_memfd_create("occl-session", shape->page_bytes, 0, &session->page_memfd, detail);
    if (status == OCCL_OK)
        status = occl_memfd_map(session->page_memfd.fd, shape->page_bytes, OCCL_MAP_WRITE, &base,
                                detail);
    if (status != OCCL_OK)
        return status;
    session->page = base;
    struct occl_session_facts facts = {
        .session_id = session->id,
        .daemon_epoch = daemon->epoch,
        .abi_version = session->abi_version,
        .ticks_source = daemon->clock->ticks_source,
    };
    occl_session_format(session->page, shape, &facts);
    struct occl_engine_session_config config = {
        .session_id = session->id,
        .job_id = session->job->id,
        .page = session->page,
        .sq_entries = shape->sq_entries,
        .cq_entries = shape->cq_entries,
        .sq_offset = shape->sq_offset,
        .cq_offset = shape->cq_offset,
    };
    status = occl_engine_session_add(daemon->engine, &config);
    if (status != OCCL_OK)
        return occl_detail_set(detail, status, 0, "the engine has no room for a session");
    session->in_engine = true;
    return OCCL_OK;
}

static void welcome(struct occl_session *session, uint64_t request) {
    struct occl_daemon *daemon = session->daemon;
    struct occl_msg_welcome msg;
    int fds[2] = {session->page_memfd.fd, -1};
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_WELCOME, request);
    msg.session_id = session->id;
    msg.daemon_epoch = daemon->epoch;
    msg.peer_dead_ns = daemon->config.peer_dead_ns;
    msg.default_timeout_ns = daemon->config.default_timeout_ns;
    msg.direct_max_bytes = daemon->config.direct_max_bytes;
    msg.copy_max_bytes = (uint32_t)daemon->config.copy_max_bytes;
    msg.daemon_pid = (uint32_t)getpid();
    msg.lanes = daemon->lanes;
    msg.huge_pages = occl_huge_pages_free() > 0;
    (void)snprintf(msg.host, sizeof msg.host, "%s", daemon->host);
    (void)snprintf(msg.version, sizeof msg.version, "%s", OCCL_DAEMON_VERSION);
    if (session->job) {
        msg.page_bytes = session->shape.page_bytes;
        msg.job_page_bytes = session->job->page_memfd.bytes;
        fds[1] = session->job->page_memfd.fd;
    }
    occl_session_send(session, &msg, sizeof msg, fds, session->job ? 2 : 0);
}

/* Leaves the list of strays. The deadline of the handshake ends here. */
static void promote(struct occl_session *session) {
    struct occl_daemon *daemon = session->daemon;
    TAILQ_REMOVE(&daemon->strays, session, in_list);
    daemon->stray_count--;
    occl_loop_timer_cancel(daemon->loop, &session->deadline);
    session->phase = OCCL_PHASE_LIVE;
    daemon->counters.sessions_total++;
}

static void admit_admin(struct occl_session *session, const struct occl_msg_hello *msg) {
    struct occl_detail detail;
    if (occl_admin_admit(session, &detail) != OCCL_OK) {
        refuse(session, msg->h.request, &detail);
        return;
    }
    promote(session);
    session->admin = true;
    memcpy(session->program, msg->program, sizeof session->program);
    if (strcmp(session->program, OCCL_LAUNCHER_PROGRAM) == 0)
        session->daemon->launcher_seen = true;
    TAILQ_INSERT_TAIL(&session->daemon->admins, session, in_list);
    welcome(session, msg->h.request);
}

static void admit_rank(struct occl_session *session, const struct occl_msg_hello *msg) {
    struct occl_daemon *daemon = session->daemon;
    struct occl_detail detail;
    int status = occl_identity_finish(session, &detail);
    if (status != OCCL_OK) {
        refuse(session, msg->h.request, &detail);
        return;
    }
    TAILQ_REMOVE(&daemon->strays, session, in_list);
    daemon->stray_count--;
    status = occl_tenant_enter(session, msg->tag, msg->job[0] ? msg->job : "default", &detail);
    if (status != OCCL_OK) {
        TAILQ_INSERT_TAIL(&daemon->strays, session, in_list);
        daemon->stray_count++;
        refuse(session, msg->h.request, &detail);
        return;
    }
    /* From here on the session is the job's, and its end takes back whatever it got. */
    occl_loop_timer_cancel(daemon->loop, &session->deadline);
    session->phase = OCCL_PHASE_LIVE;
    daemon->counters.sessions_total++;
    session->own_pid = msg->own_pid;
    session->rank_hint = msg->rank_hint;
    memcpy(session->program, msg->program, sizeof session->program);
    status = furnish(session, msg->sq_entries, &detail);
    if (status == OCCL_OK && session->pidfd >= 0) {
        session->pidfd_watch.fd = session->pidfd;
        if (occl_loop_watch_add(daemon->loop, &session->pidfd_watch, OCCL_LOOP_READABLE) != OCCL_OK)
            status = occl_detail_set(&detail, OCCL_E_NO_MEMORY, 0, "its process cannot be watched");
    }
    if (status != OCCL_OK) {
        refuse(session, msg->h.request, &detail);
        return;
    }
    OCCL_LOG_INFO(daemon->log, "session", "session %llu tenant %s job %s process %d (%s) attached",
                  (unsigned long long)(session->id >> 16), session->job->tenant->text,
                  session->job->name, (int)session->pid, session->program);
    welcome(session, msg->h.request);
    occl_metrics_wake(daemon);
}

void occl_hello_handle(struct occl_session *session, const struct occl_msg_hello *msg) {
    struct occl_detail detail;
    memset(&detail, 0, sizeof detail);
    int status = negotiate(session, msg, &detail);
    if (status == OCCL_OK)
        status = check_names(msg, &detail);
    if (status == OCCL_OK && msg->role != OCCL_ROLE_RANK && msg->role != OCCL_ROLE_ADMIN)
        status = occl_detail_set(&detail, OCCL_E_INVALID, 0,
                                 "HELLO: expected role 1 (rank) or 2 (admin), found %u", msg->role);
    if (status == OCCL_OK && session->daemon->draining && msg->role == OCCL_ROLE_RANK)
        status = occl_detail_set(&detail, OCCL_E_SHUTTING_DOWN, 0,
                                 "the daemon is shutting down and takes no new process");
    if (status != OCCL_OK) {
        refuse(session, msg->h.request, &detail);
        return;
    }
    if (msg->role == OCCL_ROLE_ADMIN)
        admit_admin(session, msg);
    else
        admit_rank(session, msg);
}
