/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/record.h"

#include <string.h>

static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 32);
}

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

void occl_comm_page_layout(uint32_t ranks, uint64_t comm_uid, struct occl_comm_page *out_header) {
    struct occl_comm_page h;
    memset(&h, 0, sizeof h);
    h.magic = OCCL_MAGIC_COMM;
    h.abi_version = OCCL_ABI_VERSION;
    h.ranks = ranks;
    h.comm_uid = comm_uid;
    h.records = OCCL_RECORDS;
    h.record_stride = (uint32_t)occl_record_stride(ranks);
    h.notes_offset = sizeof h;
    h.records_offset = round_up(h.notes_offset + ranks * sizeof(struct occl_rank_note), 4096);
    h.payload_offset = round_up(h.records_offset + (uint64_t)h.records * h.record_stride, 4096);
    h.payload_chunk_bytes = OCCL_DIRECT_MAX_BYTES;
    /* One extra cache line per chunk row keeps the ranks' chunks out of one cache set. */
    h.payload_stride = OCCL_PAYLOAD_CHUNKS * OCCL_DIRECT_MAX_BYTES + OCCL_CACHE_LINE_BYTES * 3;
    h.page_bytes = round_up(h.payload_offset + (uint64_t)ranks * h.payload_stride, 4096);
    *out_header = h;
}

int occl_records_open(void *base, uint64_t mapped_bytes, struct occl_records *out) {
    struct occl_comm_page found, expected;
    if (mapped_bytes < sizeof found)
        return OCCL_E_PROTOCOL;
    memcpy(&found, base, sizeof found);
    if (found.magic != OCCL_MAGIC_COMM || found.abi_version != OCCL_ABI_VERSION)
        return OCCL_E_VERSION;
    if (found.ranks < 1 || found.ranks > OCCL_LOCAL_RANKS_MAX)
        return OCCL_E_PROTOCOL;
    occl_comm_page_layout(found.ranks, found.comm_uid, &expected);
    if (expected.page_bytes > mapped_bytes || expected.page_bytes != found.page_bytes ||
        expected.record_stride != found.record_stride || expected.records != found.records ||
        expected.records_offset != found.records_offset ||
        expected.notes_offset != found.notes_offset ||
        expected.payload_offset != found.payload_offset ||
        expected.payload_stride != found.payload_stride ||
        expected.payload_chunk_bytes != found.payload_chunk_bytes)
        return OCCL_E_PROTOCOL;
    out->base = base;
    out->page_bytes = expected.page_bytes;
    out->ranks = expected.ranks;
    out->records = expected.records;
    out->record_stride = expected.record_stride;
    out->records_offset = expected.records_offset;
    out->notes_offset = expected.notes_offset;
    out->payload_offset = expected.payload_offset;
    out->payload_stride = expected.payload_stride;
    out->payload_chunk_bytes = expected.payload_chunk_bytes;
    return OCCL_OK;
}

struct occl_place occl_place_of(struct occl_op_key key, uint32_t records) {
    struct occl_place p;
    uint32_t bits = (uint32_t)__builtin_ctz(records);
    if (key.peers == OCCL_PEERS_ALL) {
        /* Untagged streams walk the slots in order; tags start at scattered slots. */
        uint64_t start = key.tag ? mix(key.tag) : 0;
        uint32_t upper = (key.instance >> bits) & 0xffffu;
        p.slot = (uint32_t)(start + key.instance) & (records - 1);
        p.print = ((uint64_t)key.tag << 16) | upper;
        return p;
    }
    uint64_t h = mix(mix(((uint64_t)key.peers << 32) | key.tag) ^ key.instance);
    p.slot = (uint32_t)(h >> 48) & (records - 1);
    /* Tags have 31 bits, so the top bit of a print tells point to point from collectives. */
    p.print = (h & (OCCL_WORD_PRINT_MASK >> 1)) | (1ull << 47);
    return p;
}

enum occl_enter occl_record_enter(struct occl_record *rec, uint64_t print, bool count_overflow) {
    uint64_t word = occl_observe64(&rec->word);
    for (;;) {
        if (word == 0) {
            if (occl_claim64(&rec->word, &word, OCCL_WORD_CLAIMED | print))
                return OCCL_ENTER_CLAIMED;
            continue;
        }
        if ((word & OCCL_WORD_CLAIMED) && (word & OCCL_WORD_PRINT_MASK) == print)
            return OCCL_ENTER_JOINED;
        if (!count_overflow)
            return OCCL_ENTER_RING;
        if (word >> OCCL_WORD_OVERFLOW_SHIFT == OCCL_WORD_OVERFLOW_MAX)
            return OCCL_ENTER_FULL;
        if (occl_claim64(&rec->word, &word, word + OCCL_WORD_OVERFLOW_ONE))
            return OCCL_ENTER_RING;
    }
}

void occl_record_overflow_drop(struct occl_record *rec) {
    /* A count that was scribbled to 0 wraps: the slot then stays closed and the job's ops take the
     * ring. The page belongs to the job, its damage stays there. */
    (void)occl_add64(&rec->word, 0 - OCCL_WORD_OVERFLOW_ONE);
}

void occl_line_fill(struct occl_line *line, struct occl_op_key key,
                    const struct occl_signature *sig) {
    line->peers = key.peers;
    line->tag = key.tag;
    line->instance = key.instance;
    line->count_low = (uint32_t)sig->count;
    line->count_high = (uint32_t)(sig->count >> 32);
    line->kind = sig->kind;
    line->dtype = sig->dtype;
    line->redop = sig->redop;
    line->selection_version = sig->selection_version;
    line->root = (uint16_t)sig->root;
    line->program_id = (uint16_t)sig->program_id;
}

enum occl_signature_field occl_signature_differ(const struct occl_signature *a,
                                                const struct occl_signature *b) {
    bool pair = (a->kind == OCCL_OP_SEND && b->kind == OCCL_OP_RECV) ||
                (a->kind == OCCL_OP_RECV && b->kind == OCCL_OP_SEND);
    if (a->kind != b->kind && !pair)
        return OCCL_FIELD_KIND;
    if (a->dtype != b->dtype)
        return OCCL_FIELD_DTYPE;
    if (a->redop != b->redop)
        return OCCL_FIELD_REDOP;
    if (a->root != b->root)
        return OCCL_FIELD_ROOT;
    if (a->count != b->count)
        return OCCL_FIELD_COUNT;
    if (a->program_id != b->program_id)
        return OCCL_FIELD_PROGRAM;
    return OCCL_FIELD_NONE;
}

enum occl_signature_field occl_record_mismatch(struct occl_record *rec, uint32_t members,
                                               uint32_t mine, uint32_t *out_index) {
    const struct occl_line *me = occl_line_at(rec, mine);
    struct occl_signature ours = occl_line_signature(me);
    for (uint32_t i = 0; i < members; i++) {
        struct occl_line *other = occl_line_at(rec, i);
        if (i == mine || !occl_observe32(&other->ready))
            continue;
        struct occl_signature theirs = occl_line_signature(other);
        enum occl_signature_field field = occl_signature_differ(&ours, &theirs);
        if (field == OCCL_FIELD_NONE &&
            (other->peers != me->peers || other->tag != me->tag || other->instance != me->instance))
            field = OCCL_FIELD_KEY;
        if (field != OCCL_FIELD_NONE) {
            *out_index = i;
            return field;
        }
    }
    return OCCL_FIELD_NONE;
}

/* Only the one that brought `left` to exactly `members` comes here: nobody else is inside. */
static void reset(struct occl_record *rec, uint32_t members) {
    /* One store per rank: what else a rank has written into its line it has taken back before it
     * left, because only it knows whether it wrote anything. */
    for (uint32_t i = 0; i < members; i++)
        occl_note32(&occl_line_at(rec, i)->ready, 0);
    occl_note32(&rec->arrived, 0);
    occl_note32(&rec->strands_next, 0);
    occl_note32(&rec->strands_done, 0);
    occl_note32(&rec->state, OCCL_REC_OPEN);
    /* While `left` says that all have left no lane enters, so the store cannot lose one. */
    occl_publish32(&rec->left, 0);
    uint64_t mine = occl_peek64(&rec->word) & (OCCL_WORD_PRINT_MASK | OCCL_WORD_CLAIMED);
    (void)occl_add64(&rec->word, 0 - mine); /* leaves the overflow count alone */
}

void occl_record_leave(struct occl_record *rec, uint32_t members) {
    if (occl_add32(&rec->left, 1) + 1 == members)
        reset(rec, members);
}

/* A lane inside, in the upper half of `left`. */
#define LANE_INSIDE 0x10000u
/* Members and lanes that come and go at the same moment; more failures than that are an attack. */
#define LANE_ENTER_ATTEMPTS 256

static bool lane_hold(struct occl_record *rec, uint32_t members) {
    uint32_t left = occl_look32(&rec->left);
    for (int i = 0; i < LANE_ENTER_ATTEMPTS; i++) {
        if ((left & 0xffffu) >= members)
            return false;
        if (occl_claim32(&rec->left, &left, left + LANE_INSIDE))
            return true;
    }
    return false;
}

bool occl_record_lane_enter(struct occl_record *rec, uint64_t print, uint32_t members) {
    if (!lane_hold(rec, members))
        return false;
    /* Raised before the look at the state: a member that aborts the op and then sees 0 here knows
     * that no lane will start on it. */
    (void)occl_add32(&rec->lanes_busy, 1);
    uint64_t word = occl_look64(&rec->word);
    bool ours = (word & OCCL_WORD_CLAIMED) && (word & OCCL_WORD_PRINT_MASK) == print;
    if (ours && occl_rec_kind(occl_look32(&rec->state)) == OCCL_REC_LOCAL)
        return true;
    occl_record_lane_leave(rec, members);
    return false;
}

void occl_record_lane_leave(struct occl_record *rec, uint32_t members) {
    (void)occl_add32(&rec->lanes_busy, 0u - 1u);
    if (occl_add32(&rec->left, 0u - LANE_INSIDE) - LANE_INSIDE == members)
        reset(rec, members);
}
