/* SPDX-License-Identifier: Apache-2.0 */
/* One request, step by step: parse, walk over the jobs, join the text, hand it over. Jobs are known
 * by number between steps, so whatever ends meanwhile is looked up and not found. */
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"

enum phase { PHASE_BEGIN, PHASE_WALK, PHASE_JOIN, PHASE_COPY };

static uint64_t now_of(const struct occl_admin_request *request) {
    return occl_loop_now_ns(request->daemon->loop);
}

/* ---- which jobs ---- */

static bool visits(const struct occl_admin_request *request, const struct occl_job *job) {
    return request->verb->all_jobs ? occl_admin_may_see(request, job)
                                   : occl_admin_sees(request, job);
}

static uint32_t at_least(uint32_t value, uint32_t least) {
    return value > least ? value : least;
}

/* Adds the jobs of one tenant. */
static uint32_t add_stops(struct occl_admin_request *request, const struct occl_tenant *tenant) {
    uint32_t first = request->stop_count;
    const struct occl_job *job;
    TAILQ_FOREACH(job, &tenant->jobs, in_tenant) {
        if (visits(request, job))
            request->stops[request->stop_count++].job_id = job->id;
    }
    uint32_t count = request->stop_count - first;
    for (uint32_t i = 0; i < count; i++)
        request->stops[first + i].jobs_left = count - 1 - i;
    return count;
}

/* What the tenant may cost, divided among its jobs. */
static void share_lines(struct occl_admin_request *request, uint32_t tenants) {
    uint32_t lines = OCCL_ADMIN_ALL_LINES / at_least(tenants, 1);
    if (lines > OCCL_ADMIN_TENANT_LINES)
        lines = OCCL_ADMIN_TENANT_LINES;
    for (uint32_t i = 0; i < request->stop_count;) {
        uint32_t jobs = request->stops[i].jobs_left + 1;
        for (uint32_t end = i + jobs; i < end; i++)
            request->stops[i].lines = at_least(lines / jobs, OCCL_ADMIN_JOB_LINES);
    }
}

static int choose_jobs(struct occl_admin_request *request) {
    struct occl_daemon *daemon = request->daemon;
    struct occl_tenant *tenant;
    struct occl_tenant *next;
    uint32_t tenants = 0;
    request->stops = calloc(daemon->job_count + 1, sizeof *request->stops);
    if (!request->stops)
        return occl_detail_set(&request->detail, OCCL_E_NO_MEMORY, 0, "no memory for the answer");
    HASH_ITER (in_daemon, daemon->tenants, tenant, next) {
        tenants += add_stops(request, tenant) > 0;
    }
    share_lines(request, tenants);
    request->tenant_bytes = OCCL_ADMIN_LIST_BYTES / at_least(tenants, 1);
    if (request->tenant_bytes > OCCL_ADMIN_TENANT_BYTES)
        request->tenant_bytes = OCCL_ADMIN_TENANT_BYTES;
    return OCCL_OK;
}

/* ---- the walk ---- */

static bool takes_comm(const void *arg, const struct occl_comm *comm) {
    return occl_admin_wants_comm(arg, comm);
}

static void open_view(struct occl_admin_request *request, struct occl_job *job) {
    struct occl_view_request wanted = {
        .wants = request->verb->wants,
        .lines = request->stops[request->stop].lines,
        .takes = request->verb->only_comms ? takes_comm : NULL,
        .arg = request,
    };
    if (request->tenant_id != job->tenant->id) {
        request->tenant_id = job->tenant->id;
        for (uint32_t i = 0; i < OCCL_ADMIN_LISTS; i++)
            request->tenant_used[i] = request->lists[i].used;
    }
    occl_view_open(&request->view, job, &wanted);
    request->viewing = true;
    request->emitting = false;
}

static void begin_items(struct occl_admin_request *request) {
    request->emitting = true;
    request->stage = request->at = 0;
    request->session = NULL;
    request->at_comm = NULL;
    occl_admin_mark(request);
    request->cut[OCCL_ADMIN_CUT_OPS] = request->view.cut;
    occl_admin_why_begin(request);
}

static void end_job(struct occl_admin_request *request) {
    occl_admin_why_end(request);
    occl_admin_tell_cut(request);
    occl_view_close(&request->view);
    request->viewing = request->emitting = false;
    request->stop++;
}

/* The job is left out, as a whole. */
static void give_up(struct occl_admin_request *request) {
    memset(request->cut, 0, sizeof request->cut);
    request->cut[OCCL_ADMIN_CUT_JOBS] = 1;
    end_job(request);
}

/* Items that were made of what has changed since are made again. */
static void look_again(struct occl_admin_request *request) {
    occl_admin_why_end(request);
    occl_admin_unwind(request);
    request->emitting = false;
    if (!request->view.job)
        end_job(request);
    else if (!occl_view_again(&request->view))
        give_up(request);
}

static void view_job(struct occl_admin_request *request, uint64_t until_ns) {
    switch (occl_view_step(&request->view, until_ns)) {
    case OCCL_VIEW_MORE:
        return;
    case OCCL_VIEW_DONE:
        begin_items(request);
        return;
    case OCCL_VIEW_GONE:
        end_job(request);
        return;
    case OCCL_VIEW_RESTLESS:
    case OCCL_VIEW_FAILED:
        give_up(request);
        return;
    }
}

/* True: all jobs have been walked over. */
static bool walk(struct occl_admin_request *request, uint64_t until_ns) {
    if (request->emitting && !occl_view_holds(&request->view))
        look_again(request);
    do {
        if (request->stop == request->stop_count && !request->viewing)
            return true;
        if (!request->viewing) {
            struct occl_job *job =
                occl_job_find(request->daemon, request->stops[request->stop].job_id);
            if (job)
                open_view(request, job);
            else
                request->stop++;
        } else if (!request->emitting) {
            view_job(request, until_ns);
        } else if (!request->verb->item(request)) {
            end_job(request);
        }
    } while (now_of(request) < until_ns);
    return false;
}

/* ---- the answer ---- */

static bool fail(struct occl_admin_request *request) {
    occl_admin_send_failure(request->asker, request->number, &request->detail);
    return true;
}

static bool begin(struct occl_admin_request *request) {
    int status = occl_admin_begin(request);
    if (status == OCCL_OK)
        status = request->verb->plain ? request->verb->plain(request) : choose_jobs(request);
    request->phase = request->verb && request->verb->plain ? PHASE_JOIN : PHASE_WALK;
    return status == OCCL_OK;
}

static bool join(struct occl_admin_request *request) {
    const bool walked = !request->verb->plain;
    if (walked)
        occl_admin_put_number(request->answer, "cut_total", request->cut_total);
    if (walked && request->verb->finish)
        request->verb->finish(request);
    if (!occl_admin_join(request)) {
        (void)occl_detail_set(&request->detail, OCCL_E_NO_MEMORY, 0, "no memory for the answer");
        return false;
    }
    if (occl_memfd_create("occl-answer", request->text_bytes, 0, &request->memfd,
                          &request->detail) != OCCL_OK)
        return false;
    request->phase = PHASE_COPY;
    request->mapped_bytes = request->memfd.bytes;
    return occl_memfd_map(request->memfd.fd, request->memfd.bytes, OCCL_MAP_WRITE, &request->mapped,
                          &request->detail) == OCCL_OK;
}

/* True: all of it is in the descriptor. */
static bool copy(struct occl_admin_request *request, uint64_t until_ns) {
    do {
        const struct occl_admin_text *text =
            request->copied_texts ? &request->lists[request->copied_texts - 1] : &request->head;
        size_t bytes = occl_admin_text_copy(text, request->copied_of_text,
                                            (char *)request->mapped + request->copied);
        request->copied += bytes;
        request->copied_of_text += bytes;
        if (bytes == 0) {
            request->copied_texts++;
            request->copied_of_text = 0;
        }
        if (request->copied == request->text_bytes)
            return true;
    } while (now_of(request) < until_ns);
    return false;
}

static void send_answer(struct occl_admin_request *request) {
    struct occl_msg_admin_reply reply;
    memset(&reply, 0, sizeof reply);
    occl_msg_init(&reply.h, OCCL_MSG_ADMIN_REPLY, request->number);
    reply.text_bytes = request->text_bytes;
    occl_session_send(request->asker, &reply, sizeof reply, &request->memfd.fd, 1);
    request->asker->answer = request->memfd;
    request->memfd.fd = -1;
}

bool occl_admin_step(struct occl_admin_request *request, uint64_t until_ns) {
    if (request->phase == PHASE_BEGIN && !begin(request))
        return fail(request);
    if (request->phase == PHASE_WALK && now_of(request) < until_ns && walk(request, until_ns))
        request->phase = PHASE_JOIN;
    if (request->phase == PHASE_JOIN && now_of(request) < until_ns && !join(request))
        return fail(request);
    if (request->phase != PHASE_COPY || !copy(request, until_ns))
        return false;
    send_answer(request);
    return true;
}

void occl_admin_forget(struct occl_admin_request *request) {
    occl_admin_why_end(request);
    occl_view_close(&request->view);
    if (request->mapped)
        occl_memfd_unmap(request->mapped, request->mapped_bytes);
    occl_memfd_close(&request->memfd);
    for (uint32_t i = 0; i < OCCL_ADMIN_LISTS; i++)
        occl_admin_text_free(&request->lists[i]);
    occl_admin_text_free(&request->head);
    json_decref(request->answer);
    json_decref(request->json);
    free(request->stops);
}
