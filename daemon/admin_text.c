/* SPDX-License-Identifier: Apache-2.0 */
/* The text of an answer: lists that grow item by item, each within the share of its tenant and job,
 * and what was left out of them. */
#include <stdlib.h>
#include <string.h>

#include "daemon/admin.h"

/* Entries of `cut`, all tenants together; the sum is told in any case. */
#define CUT_BYTES (256u << 10)

/* Room for one more piece. */
static bool add_piece(struct occl_admin_text *text) {
    if (text->piece_count == text->piece_room) {
        uint32_t room = text->piece_room ? text->piece_room * 2 : 4;
        char **grown = realloc(text->pieces, room * sizeof *grown);
        if (!grown)
            return false;
        text->pieces = grown;
        text->piece_room = room;
    }
    char *piece = malloc(OCCL_ADMIN_PIECE_BYTES);
    if (piece)
        text->pieces[text->piece_count++] = piece;
    return piece != NULL;
}

static void append(struct occl_admin_text *text, const char *bytes, size_t count) {
    while (count && !text->failed) {
        size_t piece = text->used / OCCL_ADMIN_PIECE_BYTES;
        size_t at = text->used % OCCL_ADMIN_PIECE_BYTES;
        size_t room = OCCL_ADMIN_PIECE_BYTES - at;
        size_t part = count < room ? count : room;
        if (piece == text->piece_count && !add_piece(text)) {
            text->failed = true;
            return;
        }
        memcpy(text->pieces[piece] + at, bytes, part);
        text->used += part;
        bytes += part;
        count -= part;
    }
}

size_t occl_admin_text_copy(const struct occl_admin_text *text, size_t from, char *out_bytes) {
    size_t at = from % OCCL_ADMIN_PIECE_BYTES;
    size_t left = text->used - from;
    size_t bytes = OCCL_ADMIN_PIECE_BYTES - at < left ? OCCL_ADMIN_PIECE_BYTES - at : left;
    if (bytes)
        memcpy(out_bytes, text->pieces[from / OCCL_ADMIN_PIECE_BYTES] + at, bytes);
    return bytes;
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
    size_t last = text->used - 1;
    if (text->used &&
        text->pieces[last / OCCL_ADMIN_PIECE_BYTES][last % OCCL_ADMIN_PIECE_BYTES] != '[')
        append(text, ",", 1);
}

void occl_admin_text_free(struct occl_admin_text *text) {
    for (uint32_t i = 0; i < text->piece_count; i++)
        free(text->pieces[i]);
    free(text->pieces);
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

bool occl_admin_join(struct occl_admin_request *request) {
    const char *const *names = request->verb->lists;
    struct occl_admin_text *last = &request->head;
    const char *closing = "";
    append_object(last, request->answer);
    request->answer = NULL;
    if (last->failed)
        return false;
    last->used--; /* the brace; the answer holds the common keys */
    for (uint32_t i = 0; i < OCCL_ADMIN_LISTS; i++) {
        if (!names[i])
            continue;
        append_text(last, closing);
        append_text(last, ",\"");
        append_text(last, names[i]);
        append_text(last, "\":[");
        last = &request->lists[i];
        closing = "]";
    }
    append_text(last, closing);
    append_text(last, "}");
    bool failed = request->head.failed;
    request->text_bytes = request->head.used;
    for (uint32_t i = 0; i < OCCL_ADMIN_LISTS; i++) {
        failed = failed || request->lists[i].failed;
        request->text_bytes += request->lists[i].used;
    }
    return !failed;
}
