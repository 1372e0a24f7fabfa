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

/* Key and signature of a line. */
#define LINE_HEAD_BYTES (offsetof(struct occl_line, u) - offsetof(struct occl_line, count))

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
    h.tags_offset = h.notes_offset + ranks * sizeof(struct occl_rank_note);
    h.claims_offset =
        round_up(h.tags_offset + OCCL_TAG_BATCH_BYTES + ranks * OCCL_TAG_VOTE_BYTES, 4096);
    h.records_offset =
        round_up(h.claims_offset + (uint64_t)OCCL_CLAIMS * sizeof(struct occl_claim), 4096);
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
        expected.claims_offset != found.claims_offset ||
        expected.notes_offset != found.notes_offset || expected.tags_offset != found.tags_offset ||
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
    out->claims_offset = expected.claims_offset;
    out->notes_offset = expected.notes_offset;
    out->tags_offset = expected.tags_offset;
    out->payload_offset = expected.payload_offset;
    out->payload_stride = expected.payload_stride;
    out->payload_chunk_bytes = expected.payload_chunk_bytes;
    return OCCL_OK;
}

struct occl_place occl_place_of(struct occl_op_key key) {
    struct occl_place p;
    if (key.peers != OCCL_PEERS_ALL) {
        uint64_t h = mix(mix(((uint64_t)key.peers << 32) | key.tag) ^ key.instance);
        p.slot = (uint32_t)(h >> 48) & (OCCL_PAIRS - 1);
        p.print = (h & (OCCL_WORD_PRINT_MASK >> 1)) | (1ull << 47);
        return p;
    }
    uint32_t upper;
    if (key.tag) {
        p.slot = OCCL_PAIRS + ((uint32_t)(mix(key.tag) + key.instance) & (OCCL_SINGLES - 1));
        upper = key.instance / OCCL_SINGLES;
    } else {
        p.slot = OCCL_CLAIM_RUN_FIRST + key.instance % (OCCL_RUNS * OCCL_RUN_OPS);
        upper = key.instance / (OCCL_RUNS * OCCL_RUN_OPS);
    }
    p.print = ((uint64_t)key.tag << 16) | (upper & 0xffffu);
    return p;
}

enum occl_enter occl_claim_enter(struct occl_claim *claim, uint64_t print, bool count_overflow) {
    uint64_t word = occl_observe64(&claim->word);
    /* Whoever freed the claim saw all members leave and cleared the word then. Where that was
     * another process, a thread sanitizer sees the order among our own threads only here. */
    (void)occl_observe32(&claim->left);
    for (;;) {
        if ((word & OCCL_WORD_CLAIMED) && (word & OCCL_WORD_PRINT_MASK) == print)
            return OCCL_ENTER_JOINED;
        if (word == 0) {
            if (occl_claim64(&claim->word, &word, OCCL_WORD_CLAIMED | print))
                return OCCL_ENTER_CLAIMED;
            continue;
        }
        if (!count_overflow)
            return OCCL_ENTER_RING;
        if (word >> OCCL_WORD_OVERFLOW_SHIFT == OCCL_WORD_OVERFLOW_MAX)
            return OCCL_ENTER_FULL;
        if (occl_claim64(&claim->word, &word, word + OCCL_WORD_OVERFLOW_ONE))
            return OCCL_ENTER_RING;
    }
}

void occl_claim_overflow_drop(struct occl_claim *claim) {
    /* A count that was scribbled to 0 wraps: the claim then stays closed and the job's ops take the
     * ring. The page belongs to the job, its damage stays there. */
    (void)occl_add64(&claim->word, 0 - OCCL_WORD_OVERFLOW_ONE);
}

void occl_line_fill(struct occl_line *line, struct occl_op_key key,
                    const struct occl_signature *sig) {
    line->count = sig->count;
    line->tag = key.tag;
    line->instance = key.instance;
    line->kind = sig->kind;
    line->dtype = sig->dtype;
    line->redop = sig->redop;
    line->root = (uint8_t)sig->root;
    line->peers = occl_peers_pack(key.peers);
    line->program_id = (uint16_t)sig->program_id;
}

bool occl_record_arrive(struct occl_line *line, uint64_t print, uint32_t bits) {
    uint64_t flag = occl_observe64(&line->flag);
    while (!(occl_flag_bits_of(flag, print) & OCCL_FLAG_POISONED))
        if (occl_claim64(&line->flag, &flag, occl_flag_make(print, bits | OCCL_FLAG_READY)))
            return true;
    return false;
}

/* The common case, which is all that a small op costs: everybody is there, everything is in the
 * page, and nobody ends alone. False: look more closely. */
static inline bool look_briefly(struct occl_record *rec, uint64_t print, uint32_t members,
                                struct occl_look *out_look) {
    uint32_t all = ~0u, any = 0;
    uint64_t blocked = 0;
    for (uint32_t i = 0; i < members; i++) {
        uint32_t bits = occl_flag_bits_of(occl_look64(&occl_line_at(rec, i)->flag), print);
        all &= bits;
        any |= bits;
        blocked |= (uint64_t)((bits & OCCL_FLAG_BLOCKED) != 0) << i;
    }
    const uint32_t wanted = OCCL_FLAG_READY | OCCL_FLAG_IN_PAGE;
    if ((all & wanted) != wanted || (any & (OCCL_FLAG_SOURCE | OCCL_FLAG_GIVES)))
        return false;
    out_look->outcome = OCCL_OUT_DIRECT;
    out_look->first_missing = members;
    out_look->ready_mask = ~0ull >> (64 - members);
    out_look->source_mask = out_look->alone_mask = 0;
    out_look->blocked_mask = blocked;
    out_look->all_clean = all & OCCL_FLAG_CLEAN;
    out_look->state = occl_look32(&rec->state);
    return true;
}

static void look_closely(struct occl_record *rec, uint64_t print, uint32_t members,
                         struct occl_look *out_look) {
    uint64_t ready = 0, source = 0, blocked = 0, alone = 0;
    bool in_page = true, clean = true, decisive = false, poisoned = false;
    out_look->first_missing = members;
    for (uint32_t i = 0; i < members; i++) {
        uint64_t flag = occl_look64(&occl_line_at(rec, i)->flag);
        uint32_t bits = occl_flag_bits_of(flag, print);
        uint64_t bit = 1ull << i;
        if (bits & OCCL_FLAG_READY) {
            ready |= bit;
            in_page = in_page && (bits & OCCL_FLAG_IN_PAGE);
            clean = clean && (bits & OCCL_FLAG_CLEAN);
            if (bits & OCCL_FLAG_BLOCKED)
                blocked |= bit;
            if (bits & (OCCL_FLAG_SOURCE | OCCL_FLAG_GIVES)) {
                alone |= bit;
                if (bits & OCCL_FLAG_SOURCE) {
                    source |= bit;
                    decisive = decisive || (bits & OCCL_FLAG_IN_PAGE);
                }
            }
        } else if (bits & OCCL_FLAG_POISONED) {
            poisoned = true;
        } else if (out_look->first_missing == members) {
            out_look->first_missing = i;
        }
    }
    out_look->ready_mask = ready;
    out_look->source_mask = source;
    out_look->blocked_mask = blocked;
    out_look->alone_mask = alone;
    out_look->all_clean = clean && !poisoned && out_look->first_missing == members;
    out_look->state = occl_look32(&rec->state);
    if (decisive)
        out_look->outcome = OCCL_OUT_DIRECT;
    else if (out_look->first_missing < members)
        out_look->outcome = OCCL_OUT_OPEN; /* although one is poisoned: a source may yet come */
    else if (poisoned)
        out_look->outcome = OCCL_OUT_ABORTED;
    else
        out_look->outcome = in_page ? OCCL_OUT_DIRECT : OCCL_OUT_ALL;
}

void occl_record_look(struct occl_record *rec, uint64_t print, uint32_t members,
                      struct occl_look *out_look) {
    if (!look_briefly(rec, print, members, out_look))
        look_closely(rec, print, members, out_look);
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

enum occl_signature_field occl_line_differ(const struct occl_line *a, const struct occl_line *b) {
    struct occl_signature x = occl_line_signature(a), y = occl_line_signature(b);
    enum occl_signature_field field = occl_signature_differ(&x, &y);
    if (field == OCCL_FIELD_NONE &&
        (a->peers != b->peers || a->tag != b->tag || a->instance != b->instance))
        field = OCCL_FIELD_KEY;
    return field;
}

enum occl_signature_field occl_record_mismatch(struct occl_record *rec, uint64_t mask,
                                               uint32_t mine, uint32_t *out_index) {
    const struct occl_line *me = occl_line_at(rec, mine);
    for (; mask; mask &= mask - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(mask);
        const struct occl_line *other = occl_line_at(rec, i);
        if (memcmp(&other->count, &me->count, LINE_HEAD_BYTES) == 0)
            continue;
        enum occl_signature_field field = occl_line_differ(me, other);
        if (field != OCCL_FIELD_NONE) {
            *out_index = i;
            return field;
        }
    }
    return OCCL_FIELD_NONE;
}

/* Who writes the reason may be gone before it has poisoned, so everybody poisons. The flag is read
 * between two looks at the claim that both found the op there: so it is a value of this op, and a
 * missing member's flag changes only once in an op. What fails has changed: the member came. */
static void poison(const struct occl_claim *claim, struct occl_record *rec, uint64_t print,
                   uint32_t members) {
    for (uint32_t i = 0; i < members; i++) {
        uint64_t *place = &occl_line_at(rec, i)->flag;
        uint64_t flag = occl_look64(place), word = occl_look64(&claim->word);
        if (!(word & OCCL_WORD_CLAIMED) || (word & OCCL_WORD_PRINT_MASK) != print)
            return;
        if (!(occl_flag_bits_of(flag, print) & (OCCL_FLAG_READY | OCCL_FLAG_POISONED)))
            (void)occl_claim64(place, &flag, occl_flag_make(print, OCCL_FLAG_POISONED));
    }
}

/* OPEN may become LOCAL between two looks, and then nothing but an end. */
#define DECIDE_TRIES 3

bool occl_record_abort(const struct occl_records *m, uint32_t slot, uint64_t print, int status,
                       uint32_t about_rank) {
    struct occl_record *rec = occl_record_at(m, slot);
    uint32_t members = occl_claim_members(occl_claim_index(slot), m->ranks);
    struct occl_look look;
    occl_record_look(rec, print, members, &look);
    if (look.outcome == OCCL_OUT_DIRECT)
        return false;
    bool ours = false;
    uint32_t now = look.state;
    for (int i = 0; i < DECIDE_TRIES && !ours; i++) {
        uint32_t kind = occl_rec_kind(now);
        if (kind != OCCL_REC_OPEN && kind != OCCL_REC_LOCAL)
            break;
        ours =
            occl_record_decide(rec, now, OCCL_REC_WORD(OCCL_REC_ABORTED, status, about_rank), &now);
    }
    if (occl_rec_kind(now) == OCCL_REC_ABORTED)
        poison(occl_claim_of(m, slot), rec, print, members);
    return ours;
}

/* Only the one that brought `left` to exactly `members` comes here: nobody else is inside. Flags
 * stay as they are: the next op has another print. */
static void reset(const struct occl_records *m, uint32_t index) {
    struct occl_claim *claim = occl_claim_at(m, index);
    uint32_t first = occl_claim_first(index), count = occl_claim_records(index);
    for (uint32_t i = 0; i < count; i++) {
        struct occl_record *rec = occl_record_at(m, first + i);
        if (occl_peek32(&rec->state) == OCCL_REC_OPEN)
            continue; /* a direct op: nothing was written here */
        for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
            occl_note32(&rec->strands_next[s], 0);
        occl_note32(&rec->strands_done, 0);
        occl_note32(&rec->state, OCCL_REC_OPEN);
    }
    /* While `left` says that all have left no lane enters, so the store cannot lose one. */
    occl_publish32(&claim->left, 0);
    uint64_t mine = occl_peek64(&claim->word) & (OCCL_WORD_PRINT_MASK | OCCL_WORD_CLAIMED);
    (void)occl_add64(&claim->word, 0 - mine); /* leaves the overflow count alone */
}

void occl_claim_leave(const struct occl_records *m, uint32_t index) {
    if (occl_add32(&occl_claim_at(m, index)->left, 1) + 1 == occl_claim_members(index, m->ranks))
        reset(m, index);
}

uint32_t occl_record_segment_first(uint32_t segment, uint32_t count) {
    return (uint32_t)((uint64_t)count * segment / OCCL_STRAND_SEGMENTS);
}

static uint32_t segment_strands(uint32_t segment, uint32_t count) {
    return occl_record_segment_first(segment + 1, count) -
           occl_record_segment_first(segment, count);
}

/* Neighbouring cores start far from each other: the bits of the core's number, reversed. */
static uint32_t segment_of_core(uint32_t core) {
    static const uint8_t reversed[OCCL_STRAND_SEGMENTS] = {0, 4, 2, 6, 1, 5, 3, 7};
    return reversed[core % OCCL_STRAND_SEGMENTS];
}

uint32_t occl_record_claim_strands(struct occl_record *rec, uint32_t count, uint32_t core,
                                   uint32_t wanted, uint32_t *out_claimed) {
    uint32_t start = segment_of_core(core);
    for (uint32_t i = 0; i < OCCL_STRAND_SEGMENTS; i++) {
        uint32_t segment = (start + i) % OCCL_STRAND_SEGMENTS;
        uint32_t strands = segment_strands(segment, count);
        /* A look first: counters of empty segments must not grow with every visit. */
        if (occl_peek32(&rec->strands_next[segment]) >= strands)
            continue;
        uint32_t at = occl_add32(&rec->strands_next[segment], wanted);
        if (at < strands) {
            *out_claimed = strands - at < wanted ? strands - at : wanted;
            return occl_record_segment_first(segment, count) + at;
        }
    }
    *out_claimed = 0;
    return count;
}

uint32_t occl_record_claim_strand(struct occl_record *rec, uint32_t count, uint32_t core) {
    uint32_t claimed;
    return occl_record_claim_strands(rec, count, core, 1, &claimed);
}

bool occl_record_strands_left(const struct occl_record *rec, uint32_t count) {
    for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
        if (occl_peek32(&rec->strands_next[s]) < segment_strands(s, count))
            return true;
    return false;
}

bool occl_record_claims(const struct occl_record *rec, uint32_t count,
                        struct occl_strand_claims *out) {
    out->sum = 0;
    for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++) {
        uint32_t claimed = occl_look32(&rec->strands_next[s]), strands = segment_strands(s, count);
        out->of[s] = claimed < strands ? claimed : strands;
        out->sum += out->of[s];
    }
    for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
        if (out->of[s] < segment_strands(s, count) &&
            out->of[s] != occl_look32(&rec->strands_next[s]))
            return false;
    return true;
}

uint32_t occl_record_strands_claimed(const struct occl_record *rec) {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < OCCL_STRAND_SEGMENTS; s++)
        sum += occl_peek32(&rec->strands_next[s]);
    return sum;
}

/* A lane inside, in the upper half of `left`. */
#define LANE_INSIDE 0x10000u
/* Members and lanes that come and go at the same moment; more failures than that are an attack. */
#define LANE_ENTER_ATTEMPTS 256

static bool lane_hold(struct occl_claim *claim, uint32_t members) {
    uint32_t left = occl_look32(&claim->left);
    for (int i = 0; i < LANE_ENTER_ATTEMPTS; i++) {
        if ((left & 0xffffu) >= members)
            return false;
        if (occl_claim32(&claim->left, &left, left + LANE_INSIDE))
            return true;
    }
    return false;
}

bool occl_record_lane_enter(const struct occl_records *m, uint32_t slot, uint64_t print) {
    struct occl_record *rec = occl_record_at(m, slot);
    struct occl_claim *claim = occl_claim_of(m, slot);
    if (!lane_hold(claim, occl_claim_members(occl_claim_index(slot), m->ranks)))
        return false;
    /* Raised before the look at the state: a member that aborts the op and then sees 0 here knows
     * that no lane will start on it. */
    (void)occl_add32(&rec->lanes_busy, 1);
    /* The state first: while the last one out resets, the word is still the old op's, and between a
     * look at it and a look at the state the next op could become LOCAL. */
    bool local = occl_rec_kind(occl_look32(&rec->state)) == OCCL_REC_LOCAL;
    uint64_t word = occl_look64(&claim->word);
    if (local && (word & OCCL_WORD_CLAIMED) && (word & OCCL_WORD_PRINT_MASK) == print)
        return true;
    occl_record_lane_leave(m, slot);
    return false;
}

void occl_record_lane_leave(const struct occl_records *m, uint32_t slot) {
    uint32_t index = occl_claim_index(slot), members = occl_claim_members(index, m->ranks);
    (void)occl_add32(&occl_record_at(m, slot)->lanes_busy, 0u - 1u);
    if (occl_add32(&occl_claim_at(m, index)->left, 0u - LANE_INSIDE) - LANE_INSIDE == members)
        reset(m, index);
}
