/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `ops`, and an op as JSON. */
#include <stdio.h>

#include "daemon/admin.h"
#include "shm_ipc/datatype.h"
#include "shm_ipc/op_kind.h"

/* Of a kind: a number that is none, from a scribbled page, has no flags. */
static uint32_t flags_of(const struct occl_op_view *op) {
    const struct occl_kind_traits *traits = occl_kind_traits(op->signature.kind);
    return traits ? traits->flags : 0;
}

static void put_pair(json_t *object, const struct occl_op_view *op) {
    bool pair = op->key.peers != OCCL_PEERS_ALL;
    occl_admin_put(object, "root",
                   flags_of(op) & OCCL_KIND_ROOTED ? json_integer(op->signature.root)
                                                   : json_null());
    occl_admin_put(object, "source", pair ? json_integer(op->key.peers >> 16) : json_null());
    occl_admin_put(object, "destination",
                   pair ? json_integer(op->key.peers & 0xffffu) : json_null());
}

static void put_masks(json_t *object, const struct occl_op_view *op) {
    char text[200];
    uint64_t missing = op->members_mask & ~op->arrived_mask;
    occl_admin_put(object, "arrived", occl_admin_ranks(op->arrived_mask));
    occl_opview_ranges(op->arrived_mask, text, sizeof text);
    occl_admin_put_text(object, "arrived_text", text);
    occl_admin_put(object, "missing", occl_admin_ranks(missing));
    occl_opview_ranges(missing, text, sizeof text);
    occl_admin_put_text(object, "missing_text", text);
    occl_admin_put(object, "waiting", occl_admin_ranks(op->waiting_mask));
}

static const char *state_word(const struct occl_op_view *op) {
    static const char *const words[] = {"waiting", "runnable", "running"};
    /* All have come and nobody has taken it up yet. */
    if (op->state == 0 && !(op->members_mask & ~op->arrived_mask))
        return "runnable";
    return op->state < 3 ? words[op->state] : "";
}

static void step_text(const struct occl_op_view *op, char *out_text, uint32_t bytes) {
    char ranks[200];
    occl_opview_ranges(op->held_mask, ranks, sizeof ranks);
    if (op->state == 0 && op->held_mask)
        (void)snprintf(out_text, bytes, "waits for members; held back: %s", ranks);
    else if (op->state == 0)
        (void)snprintf(out_text, bytes, "waits for members");
    else
        (void)snprintf(out_text, bytes, "strands %u done, %u taken", op->strands_done, op->strands);
}

/* Members that have submitted it, after another op of theirs that is not complete. */
static json_t *held_back(const struct occl_admin_request *request, const struct occl_op_view *op) {
    const struct occl_op_list *list = &request->view.list;
    json_t *array = json_array();
    for (uint32_t i = 0; i < op->held_count; i++) {
        const struct occl_held_view *held = &list->helds[op->held_first + i];
        json_t *object = json_object();
        json_t *after = held->after_comm ? json_object() : json_null();
        char text[720];
        if (held->after_comm) {
            bool known = held->after != OCCL_OP_UNKNOWN;
            occl_admin_put_text(after, "comm", held->after_comm->name);
            occl_admin_put_number(after, "comm_uid", held->after_comm->uid);
            occl_admin_put_number(after, "tag", held->after_key.tag);
            occl_admin_put_number(after, "instance", held->after_key.instance);
            occl_admin_put_text(after, "kind",
                                known ? occl_opview_kind(list->ops[held->after].signature.kind)
                                      : "");
        }
        occl_why_held_text(list, op, held, text, sizeof text);
        occl_admin_put_number(object, "rank", held->rank);
        occl_admin_put_number(object, "age_ns", occl_admin_age(request->daemon, held->since_ns));
        occl_admin_put_number(object, "ops", held->count);
        occl_admin_put(object, "after", after);
        occl_admin_put_text(object, "text", text);
        (void)json_array_append_new(array, object);
    }
    return array;
}

json_t *occl_admin_op(const struct occl_admin_request *request, const struct occl_op_view *op) {
    const struct occl_signature *sig = &op->signature;
    char step[256];
    uint64_t bytes = 0;
    json_t *object = json_object();
    uint64_t age = occl_admin_age(request->daemon, op->since_ns);
    if (__builtin_mul_overflow(sig->count, (uint64_t)occl_dtype_bytes(sig->dtype), &bytes))
        bytes = INT64_MAX;
    step_text(op, step, sizeof step);
    occl_admin_put_text(object, "job", op->comm->job->name);
    occl_admin_put_text(object, "tenant", op->comm->job->tenant->text);
    occl_admin_put_text(object, "comm", op->comm->name);
    occl_admin_put_number(object, "comm_uid", op->comm->uid);
    occl_admin_put_number(object, "tag", op->key.tag);
    occl_admin_put_number(object, "instance", op->key.instance);
    occl_admin_put_text(object, "kind", occl_opview_kind(sig->kind));
    occl_admin_put_text(object, "dtype",
                        flags_of(op) & OCCL_KIND_TYPED ? occl_dtype_name(sig->dtype) : "");
    occl_admin_put_text(object, "redop",
                        flags_of(op) & OCCL_KIND_REDUCES ? occl_redop_name(sig->redop) : "");
    occl_admin_put_number(object, "count", sig->count);
    occl_admin_put_number(object, "bytes", bytes);
    put_pair(object, op);
    occl_admin_put_text(object, "state", state_word(op));
    occl_admin_put_text(object, "path", op->in_record ? "record" : "daemon");
    put_masks(object, op);
    occl_admin_put(object, "held_back", held_back(request, op));
    occl_admin_put_number(object, "age_ns", age);
    occl_admin_put_number(object, "since_ns", occl_clock_wall_ns(request->daemon->clock) - age);
    occl_admin_put_number(object, "preemptions", op->preemptions);
    occl_admin_put_number(object, "attempts", op->attempts);
    occl_admin_put_number(object, "strands", op->strands);
    occl_admin_put_number(object, "strands_done", op->strands_done);
    occl_admin_put_text(object, "step", step);
    return object;
}

static bool ops_item(struct occl_admin_request *request) {
    const struct occl_op_list *list = &request->view.list;
    if (request->at == list->count)
        return false;
    const struct occl_op_view *op = &list->ops[request->at++];
    if (!occl_admin_wants_op(request, op))
        return true;
    if (occl_admin_room(request, OCCL_ADMIN_LIST_MAIN))
        occl_admin_add(request, OCCL_ADMIN_LIST_MAIN, occl_admin_op(request, op));
    else
        request->cut[OCCL_ADMIN_CUT_OPS]++;
    return true;
}

static void ops_finish(struct occl_admin_request *request) {
    occl_admin_put_bool(request->answer, "truncated", request->cut_total > 0);
}

const struct occl_admin_verb occl_admin_verb_ops = {
    .name = "ops",
    .only_comms = true,
    .wants = OCCL_VIEW_WANT_OPS,
    .lists = {[OCCL_ADMIN_LIST_MAIN] = "ops", [OCCL_ADMIN_LIST_CUT] = "cut"},
    .item = ops_item,
    .finish = ops_finish,
};
