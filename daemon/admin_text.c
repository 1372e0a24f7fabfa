/* SPDX-License-Identifier: Apache-2.0 */
/* The text of an answer: lists that grow item by item, each within the share of its tenant and job,
 * and what was left out of them. */
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"

/* Entries of `cut`, all tenants together; the sum is told in any case. */
#define CUT_BYTES (256u << 10)

static void append(struct occl_admin_text *text, const char *bytes, size_t count) {
    if (text->used + count > text->room) {
        size_t room = text->room ? text->room * 2 : 4096;
        while (room < text->used + count)
            room *= 2;
        char *grown = realloc(text->bytes, room);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->bytes = grown;
        text->room = room;
    }
    memcpy(text->bytes + text->used, bytes, count);
    text->used += count;
}

static int append_dump(const char *bytes, size_t count, void *arg) {
    append(arg, bytes, count);
    return 0;
}

static void append_text(struct occl_admin_text *text, const char *string) {
    append(text, string, strlen(string));
}

static void append_object(struct occl_admin_text *text, json_t *object) {
    if (!object ||
        json_dump_callback(object, append_dump, text, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        text->failed = true;
    json_decref(object);
}

/* Between two items of a list; none behind the bracket that opened an inner list. */
static void separate(struct occl_admin_text *text) {
    if (text->used && text->bytes[text->used - 1] != '[')
        append(text, ",", 1);
}

void occl_admin_text_free(struct occl_admin_text *text) {
    free(text->bytes);
    memset(text, 0, sizeof *text);
}

/* ---- items ---- */

bool occl_admin_room(const struct occl_admin_request *request, enum occl_admin_list list) {
    size_t used = request->lists[list].used;
    size_t reserved = (size_t)request->stops[request->stop].jobs_left * OCCL_ADMIN_JOB_BYTES;
    size_t of_tenant = used - request->tenant_used[list];
    size_t of_job = used - request->mark.used[list];
    return of_job == 0 || of_tenant + reserved < request->tenant_bytes ||
           (of_job < OCCL_ADMIN_JOB_BYTES && of_tenant < request->tenant_bytes);
}

void occl_admin_add(struct occl_admin_request *request, enum occl_admin_list list, json_t *object) {
    separate(&request->lists[list]);
    append_object(&request->lists[list], object);
}

void occl_admin_open(struct occl_admin_request *request, enum occl_admin_list list, json_t *object,
                     const char *key) {
    struct occl_admin_text *text = &request->lists[list];
    separate(text);
    append_object(text, object);
    if (text->failed || text->used == 0)
        return;
    text->used--; /* the brace */
    append_text(text, ",\"");
    append_text(text, key);
    append_text(text, "\":[");
}

void occl_admin_element(struct occl_admin_request *request, enum occl_admin_list list,
                        json_t *object) {
    occl_admin_add(request, list, object);
}

void occl_admin_close(struct occl_admin_request *request, enum occl_admin_list list) {
    append_text(&request->lists[list], "]}");
}

/* ---- marks ---- */

void occl_admin_mark(struct occl_admin_request *request) {
    struct occl_admin_mark *mark = &request->mark;
    for (uint32_t i = 0; i < OCCL_ADMIN_LISTS; i++)
        mark->used[i] = request->lists[i].used;
    mark->problem = request->problem;
    mark->open_tenant = request->open_tenant;
    mark->sums = request->sums;
    memset(request->cut, 0, sizeof request->cut);
}

void occl_admin_unwind(struct occl_admin_request *request) {
    const struct occl_admin_mark *mark = &request->mark;
    for (uint32_t i = 0; i < OCCL_ADMIN_LISTS; i++)
        request->lists[i].used = mark->used[i];
    request->problem = mark->problem;
    request->open_tenant = mark->open_tenant;
    request->sums = mark->sums;
    memset(request->cut, 0, sizeof request->cut);
}

void occl_admin_tell_cut(struct occl_admin_request *request) {
    static const char *const words[] = {"ops",     "waits",  "communicators", "processes",
                                        "forming", "cycles", "culprits",      "jobs"};
    const struct occl_job *job = request->view.job;
    for (uint32_t i = 0; i < OCCL_ADMIN_CUTS; i++) {
        if (!request->cut[i])
            continue;
        request->cut_total += request->cut[i];
        if (!job || request->lists[OCCL_ADMIN_LIST_CUT].used > CUT_BYTES)
            continue;
        json_t *object = json_object();
        occl_admin_put_text(object, "tenant", job->tenant->text);
        occl_admin_put_text(object, "job", job->name);
        occl_admin_put_text(object, "what", words[i]);
        occl_admin_put_number(object, "count", request->cut[i]);
        occl_admin_add(request, OCCL_ADMIN_LIST_CUT, object);
    }
    memset(request->cut, 0, sizeof request->cut);
}

/* ---- the whole ---- */

void occl_admin_join(struct occl_admin_request *request) {
    struct occl_admin_text *whole = &request->whole;
    const char *const *names = request->verb->lists;
    append_object(whole, request->answer);
    request->answer = NULL;
    if (whole->failed)
        return;
    whole->used--; /* the brace; the answer holds the common keys */
    for (uint32_t i = 0; i < OCCL_ADMIN_LISTS; i++) {
        whole->failed = whole->failed || request->lists[i].failed;
        if (!names[i])
            continue;
        append_text(whole, ",\"");
        append_text(whole, names[i]);
        append_text(whole, "\":[");
        append(whole, request->lists[i].used ? request->lists[i].bytes : "",
               request->lists[i].used);
        append_text(whole, "]");
        occl_admin_text_free(&request->lists[i]);
    }
    append_text(whole, "}");
}
