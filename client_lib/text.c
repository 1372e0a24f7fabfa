/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of errors: which op, what is wrong, which ranks are concerned, with what each side said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_lib/client.h"

/* The daemon reports a death within 10 ms; on a loaded machine it takes longer. */
#define EVENT_WAIT_NS 100000000ull
/* Until a peer has written a few words: it may have lost its core in between, or died. */
#define LATE_ROUNDS_MAX 100

static const char *kind_name(uint32_t kind) {
    const struct occl_kind_traits *traits = occl_kind_traits(kind);
    return traits ? traits->name : "op";
}

/* "all_reduce #3 of tag 7 on communicator x" */
static int op_name(const struct client_op *op, char *out, size_t bytes) {
    char tag[32] = "untagged", number[16] = "";
    if (op->path != CLIENT_PATH_NONE) /* else it was not submitted and has none */
        (void)snprintf(number, sizeof number, " #%u", op->key.instance);
    if (op->tag)
        (void)snprintf(tag, sizeof tag, "tag %u", op->tag);
    if (op->sig.kind == OCCL_OP_SEND || op->sig.kind == OCCL_OP_RECV)
        return snprintf(out, bytes, "%s%s (%s, rank %u to rank %u, %llu bytes) on communicator %s",
                        kind_name(op->sig.kind), number, tag, op->peers >> 16, op->peers & 0xffff,
                        (unsigned long long)(op->vector ? op->send_bytes : op->block_bytes),
                        op->comm->name);
    return snprintf(
        out, bytes, "%s%s (%s, %llu bytes) on communicator %s", kind_name(op->sig.kind), number,
        tag, (unsigned long long)(op->vector ? op->send_bytes : op->block_bytes), op->comm->name);
}

/* "3,6-8 of 16": ranks whose bit is clear in arrived. */
static void list_missing(const struct client_op *op, uint64_t arrived, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < op->members && used + 24 < bytes; i++) {
        if (arrived >> i & 1)
            continue;
        uint32_t last = i;
        while (last + 1 < op->members && !(arrived >> (last + 1) & 1))
            last++;
        used += (size_t)snprintf(out + used, bytes - used, "%s%u", used ? "," : "",
                                 client_member_rank(op, i));
        if (last > i)
            used += (size_t)snprintf(out + used, bytes - used, "-%u", client_member_rank(op, last));
        i = last;
    }
    if (used == 0)
        (void)snprintf(out, bytes, "none any more");
}

static int explain_timeout(struct client_op *op, const char *name) {
    char missing[160];
    struct occl_look look = {.ready_mask = op->ring_detail}; /* what the daemon saw */
    double seconds =
        (double)(op->timeout_ns ? op->timeout_ns : (int64_t)op->comm->default_timeout_ns) / 1e9;
    if (op->path == CLIENT_PATH_RECORD)
        occl_record_look(op->rec, op->place.print, op->members, &look);
    list_missing(op, look.ready_mask, missing, sizeof missing);
    /* This rank had come to the daemon too late, or not at all. */
    if (op->path != CLIENT_PATH_RECORD && look.ready_mask == 0)
        (void)snprintf(missing, sizeof missing, "unknown");
    if (op->about_rank == op->comm->rank || op->about_rank == OCCL_RANK_NONE)
        return client_fail(op->status, "%s: the deadline of %.3f s passed; missing ranks: %s of %u",
                           name, seconds, missing, op->comm->ranks);
    return client_fail(op->status, "%s: rank %u gave up at its deadline; missing ranks: %s of %u",
                       name, op->about_rank, missing, op->comm->ranks);
}

static void field_value(const struct occl_signature *sig, uint32_t field, char *out, size_t bytes) {
    const char *text = NULL;
    switch (field) {
    case OCCL_FIELD_KIND:
        text = kind_name(sig->kind);
        break;
    case OCCL_FIELD_DTYPE:
        text = occl_dtype_name(sig->dtype);
        break;
    case OCCL_FIELD_REDOP:
        text = occl_redop_name(sig->redop);
        break;
    case OCCL_FIELD_ROOT:
        (void)snprintf(out, bytes, "%u", sig->root);
        return;
    case OCCL_FIELD_COUNT:
        (void)snprintf(out, bytes, "%llu", (unsigned long long)sig->count);
        return;
    default:
        (void)snprintf(out, bytes, "%u", sig->program_id);
        return;
    }
    (void)snprintf(out, bytes, "%s", text ? text : "unknown");
}

static const char *field_name(uint32_t field) {
    static const char *const names[] = {"nothing", "kind",    "type", "operator", "root",
                                        "count",   "program", "name", "block"};
    return field < sizeof names / sizeof names[0] ? names[field] : "field";
}

/* "rank 0 sends 100 elements to rank 2, which expects 200". False: no two that are there differ. */
static bool explain_block(struct client_op *op, const struct occl_look *look, const char *name) {
    const struct occl_local_vectors *vectors;
    uint32_t sender, receiver;
    if (!op->vector || client_vectors_get(op, look->ready_mask, &vectors) != OCCL_OK ||
        !client_vectors_differ(op, vectors, look->ready_mask, OCCL_LOCAL_RANKS_MAX, &sender,
                               &receiver))
        return false;
    (void)client_fail(op->status,
                      "%s: the ranks disagree on the size of a block: rank %u sends %llu elements "
                      "to rank %u, which expects %llu",
                      name, sender,
                      (unsigned long long)occl_vector_at(vectors->of[sender], op->members,
                                                         OCCL_VECTOR_SEND_COUNT, receiver),
                      receiver,
                      (unsigned long long)occl_vector_at(vectors->of[receiver], op->members,
                                                         OCCL_VECTOR_RECV_COUNT, sender));
    return true;
}

/* "count: ranks 0,2: 100; ranks 1: 200" over all members that are there. */
static int explain_mismatch(struct client_op *op, const char *name) {
    char groups[320] = "", value[48], other[48];
    size_t used = 0;
    uint64_t listed = 0;
    uint32_t index, field = op->about_field;
    struct occl_look look;
    occl_record_look(op->rec, op->place.print, op->members, &look);
    for (uint32_t i = 0; i < op->members && field == OCCL_FIELD_NONE; i++)
        if (look.ready_mask >> i & 1)
            field = occl_record_mismatch(op->rec, look.ready_mask, i, &index);
    if ((field == OCCL_FIELD_NONE || field == OCCL_FIELD_BLOCK) && explain_block(op, &look, name))
        return op->status;
    for (uint32_t i = 0; i < op->members && used + 80 < sizeof groups; i++) {
        struct occl_line *line = occl_line_at(op->rec, i);
        if (!(look.ready_mask >> i & 1) || (listed >> i & 1))
            continue;
        struct occl_signature sig = occl_line_signature(line);
        field_value(&sig, field, value, sizeof value);
        used += (size_t)snprintf(groups + used, sizeof groups - used, "%s%s on ranks",
                                 used ? "; " : "", value);
        for (uint32_t k = i; k < op->members && used + 16 < sizeof groups; k++) {
            struct occl_line *same = occl_line_at(op->rec, k);
            if (!(look.ready_mask >> k & 1))
                continue;
            struct occl_signature theirs = occl_line_signature(same);
            field_value(&theirs, field, other, sizeof other);
            if (strcmp(value, other) != 0)
                continue;
            listed |= 1ull << k;
            used += (size_t)snprintf(groups + used, sizeof groups - used, " %u",
                                     client_member_rank(op, k));
        }
    }
    return client_fail(op->status, "%s: the ranks disagree on the %s: %s", name, field_name(field),
                       groups);
}

/* One of whose fields has this value. */
static struct occl_signature signature_with(uint64_t value) {
    return (struct occl_signature){.kind = (uint8_t)value,
                                   .dtype = (uint8_t)value,
                                   .redop = (uint8_t)value,
                                   .root = (uint32_t)value,
                                   .program_id = (uint32_t)value,
                                   .count = value};
}

static int explain_ring_mismatch(struct client_op *op, const char *name) {
    char mine[48], other[48];
    if (op->about_field == OCCL_FIELD_BLOCK)
        return client_fail(op->status,
                           "%s: the ranks disagree on the size of a block that rank %u sends", name,
                           op->about_rank);
    struct occl_signature theirs = signature_with(op->ring_detail);
    field_value(&op->sig, op->about_field, mine, sizeof mine);
    field_value(&theirs, op->about_field, other, sizeof other);
    return client_fail(op->status,
                       "%s: the ranks disagree on the %s: %s on ranks %u; %s on ranks %u", name,
                       field_name(op->about_field), mine, op->comm->rank, other, op->about_rank);
}

/* The peer that tells of the difference writes the rest right behind the error. */
static bool late_is_told(const struct occl_rank_note *note) {
    for (uint32_t round = 0; !occl_observe32(&note->async_told); round++) {
        if (round == LATE_ROUNDS_MAX)
            return false;
        client_nap(round);
    }
    return true;
}

static int put_late_name(const struct occl_rank_note *note, char *out, size_t bytes) {
    uint32_t tag = occl_peek32(&note->async_key.tag), peers = occl_peek32(&note->async_key.peers);
    char tagged[32] = "untagged", pair[48] = "";
    if (tag)
        (void)snprintf(tagged, sizeof tagged, "tag %u", tag);
    if (peers != OCCL_PEERS_ALL)
        (void)snprintf(pair, sizeof pair, ", rank %u to rank %u", peers >> 16, peers & 0xffff);
    return snprintf(out, bytes, "%s #%u (%s%s)", kind_name(occl_peek32(&note->async_kind)),
                    occl_peek32(&note->async_key.instance), tagged, pair);
}

int client_explain_late(struct client_comm *comm, uint32_t late) {
    const struct occl_rank_note *note = occl_note_at(&comm->m, comm->rank);
    uint32_t field = occl_rec_kind(late), other = occl_rec_rank(late);
    char name[120], mine[48], theirs[48];
    if (!late_is_told(note))
        return client_fail(occl_rec_status(late),
                           "communicator %s: an op had completed here before rank %u came: the "
                           "ranks disagree on the %s",
                           comm->name, other, field_name(field));
    (void)put_late_name(note, name, sizeof name);
    if (field == OCCL_FIELD_BLOCK) {
        (void)snprintf(mine, sizeof mine, "%llu elements",
                       (unsigned long long)occl_peek64(&note->async_mine));
        (void)snprintf(theirs, sizeof theirs, "%llu",
                       (unsigned long long)occl_peek64(&note->async_theirs));
    } else {
        struct occl_signature sig = signature_with(occl_peek64(&note->async_mine));
        field_value(&sig, field, mine, sizeof mine);
        sig = signature_with(occl_peek64(&note->async_theirs));
        field_value(&sig, field, theirs, sizeof theirs);
    }
    return client_fail(occl_rec_status(late),
                       "%s on communicator %s had completed here before rank %u came: the ranks "
                       "disagree on the %s: %s on ranks %u; %s on ranks %u",
                       name, comm->name, other,
                       field == OCCL_FIELD_BLOCK ? "size of a block" : field_name(field), mine,
                       comm->rank, theirs, other);
}

/* The daemon's own words come a moment after the page tells that the communicator ended. */
static bool event_text(struct client_comm *comm) {
    uint64_t until = client_now_ns() + EVENT_WAIT_NS;
    for (uint32_t round = 0; !occl_observe32(&comm->event_set); round++) {
        if (occl_peek32(&occl_lib.lost) || client_now_ns() > until)
            return false;
        client_nap(round);
    }
    return true;
}

/* The daemon's words without the communicator, which the op's name tells already. */
static const char *without_communicator(const struct client_comm *comm) {
    char prefix[OCCL_NAME_BYTES + 24];
    int length = snprintf(prefix, sizeof prefix, "communicator %s: ", comm->name);
    const char *text = comm->event.text;
    return strncmp(text, prefix, (size_t)length) == 0 ? text + length : text;
}

static int explain_peer(struct client_op *op, const char *name) {
    struct client_comm *comm = op->comm;
    /* The daemon tells the others only. */
    if (op->status == OCCL_E_ABORTED && occl_peek32(&comm->ended))
        return client_fail(op->status, "%s: this rank aborted the communicator", name);
    const struct occl_member *who =
        op->about_rank < comm->ranks ? &comm->members[op->about_rank] : NULL;
    struct occl_comm_page *page = occl_records_header(&comm->m);
    uint32_t state = occl_observe32(&page->comm_state);
    bool left = who && occl_observe64(&page->dead_mask) >> op->about_rank & 1;
    /* The communicator lives: the op has ended because it needed a rank that has left in peace. A
     * rank that has not left either has just died: whoever reached for its memory knew before the
     * daemon could say so. */
    if (left && op->status == OCCL_E_PEER_FAILED && occl_rec_kind(state) == OCCL_COMM_LIVE)
        return client_fail(op->status, "%s: rank %u (host %s, pid %u) destroyed its communicator",
                           name, op->about_rank, who->host, who->pid);
    if (event_text(comm))
        return client_fail(op->status, "%s: %s", name, without_communicator(comm));
    if (!who)
        return client_fail(op->status, "%s: a member failed", name);
    return client_fail(op->status, "%s: rank %u (host %s, pid %u) failed, cause unknown", name,
                       op->about_rank, who->host, who->pid);
}

static bool lives(const struct client_comm *comm) {
    return occl_rec_kind(occl_observe32(&occl_records_header(&comm->m)->comm_state)) ==
           OCCL_COMM_LIVE;
}

/* What it came after has failed: that one's own text tells the rest. */
static int explain_after(struct client_op *op, const char *name) {
    char tag[32] = "untagged";
    if (op->failed_tag)
        (void)snprintf(tag, sizeof tag, "tag %u", op->failed_tag);
    return client_fail(op->status, "%s: it comes after %s (%s) of this rank, which failed: %s",
                       name, kind_name(op->failed_kind), tag, occl_status_text(op->status));
}

/* The communicator lives: that rank alone has given the op up, since what it comes after there has
 * failed. The daemon has no words for it. */
static int explain_given_up(struct client_op *op, const char *name) {
    const struct occl_member *who = &op->comm->members[op->about_rank];
    return client_fail(op->status,
                       "%s: rank %u (host %s, pid %u) gave it up: what it comes after there failed",
                       name, op->about_rank, who->host, who->pid);
}

/* The rank that the status is about ended the op before its turn there came. (A member that aborts
 * the communicator has arrived in its ops: then the daemon's words are on their way.) */
static bool ended_before_its_turn(const struct client_op *op) {
    for (uint32_t i = 0; op->path == CLIENT_PATH_RECORD && i < op->members; i++)
        if (client_member_rank(op, i) == op->about_rank) {
            uint64_t flag = occl_look64(&occl_line_at(op->rec, i)->flag);
            return !(occl_flag_bits_of(flag, op->place.print) & OCCL_FLAG_READY);
        }
    return true;
}

static bool is_given_up(const struct client_op *op) {
    return op->status == OCCL_E_ABORTED && op->about_rank < op->comm->ranks &&
           !occl_peek32(&op->comm->ended) && lives(op->comm) && ended_before_its_turn(op);
}

static int explain_fault(struct client_op *op, const char *name) {
    return client_fail(op->status, "%s: a buffer of rank %u is not mapped or not accessible", name,
                       op->about_rank);
}

static int explain_other(struct client_op *op, const char *name) {
    const char *what = occl_status_text(op->status);
    if (op->status == OCCL_E_NO_MEMORY && op->path == CLIENT_PATH_RECORD &&
        op->about_rank < op->comm->ranks)
        return client_fail(op->status, "%s: rank %u cannot map the memory of its peers: %s", name,
                           op->about_rank, what);
    return client_fail(op->status, "%s: %s", name, what);
}

static int explain_status(struct client_op *op, const char *name) {
    int status = op->status;
    switch (status) {
    case OCCL_E_TIMEOUT:
        return explain_timeout(op, name);
    case OCCL_E_MISMATCH:
        return op->path == CLIENT_PATH_RECORD ? explain_mismatch(op, name)
                                              : explain_ring_mismatch(op, name);
    case OCCL_E_PEER_FAILED:
    case OCCL_E_REVOKED:
    case OCCL_E_ABORTED:
        return is_given_up(op) ? explain_given_up(op, name) : explain_peer(op, name);
    case OCCL_E_FAULT:
        return explain_fault(op, name);
    case OCCL_E_DAEMON_LOST:
        return client_fail(status, "%s: the daemon (pid %u) ended", name,
                           occl_lib.welcome.daemon_pid);
    default:
        return explain_other(op, name);
    }
}

int client_explain(struct client_op *op) {
    char name[200];
    (void)op_name(op, name, sizeof name);
    bool after = op->failed_status < 0 && op->failed_status == op->status &&
                 occl_observe32(&op->after_pending) == 0 && op->status != OCCL_E_DAEMON_LOST &&
                 lives(op->comm);
    int status = after ? explain_after(op, name) : explain_status(op, name);
    if (op->may_write_rank != OCCL_RANK_NONE) {
        char text[OCCL_DETAIL_BYTES];
        (void)snprintf(text, sizeof text, "%s", occl_last_error());
        status = client_fail(status,
                             "%s; rank %u is stopped inside the op and may still write into "
                             "its buffers",
                             text, op->may_write_rank);
    }
    /* The request may be waited for by another thread than the one that finishes it. */
    if (!op->on_stack) {
        free(op->text);
        op->text = strdup(occl_last_error());
    }
    return status;
}
