/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator page that its members scribble over while the daemon reads, decides, gives counts
 * back and lets lanes in and out. Nothing may loop or leave the page; what the members do to each
 * other's ops is their own affair. */
#include "shm_ipc/record.h"
#include "tests/fuzz/fuzz.h"

#define RANKS 3u

enum step {
    POKE,
    POKE_RECORD,
    ENTER,
    DROP,
    LANE,
    DECIDE,
    MISMATCH,
    LEAVE,
    ARRIVE,
    OPEN,
    ABORT,
    POKE_CLAIM,
    STEPS
};

static struct occl_op_key take_key(struct fuzz_input *in) {
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, 0};
    if (fuzz_take8(in) % 2)
        key.peers = fuzz_take8(in) % RANKS << 16 | fuzz_take8(in) % RANKS;
    key.tag = fuzz_take8(in);
    key.instance = fuzz_take8(in);
    return key;
}

static void poke(void *base, uint64_t bytes, struct fuzz_input *in) {
    uint64_t at = fuzz_take32(in) % bytes / 4 * 4;
    occl_note32((uint32_t *)(void *)((char *)base + at), fuzz_take32(in));
}

static void visit_lane(const struct occl_records *m, struct occl_place at, struct fuzz_input *in) {
    if (!occl_record_lane_enter(m, at.slot, at.print))
        return;
    if (fuzz_take8(in) % 2)
        poke(occl_record_at(m, at.slot), m->record_stride, in);
    if (fuzz_take8(in) % 2)
        poke(occl_claim_of(m, at.slot), sizeof(struct occl_claim), in);
    occl_record_lane_leave(m, at.slot);
}

static struct occl_look look(const struct occl_records *m, struct occl_place at) {
    struct occl_look seen;
    uint32_t members = occl_claim_members(occl_claim_index(at.slot), RANKS);
    occl_record_look(occl_record_at(m, at.slot), at.print, members, &seen);
    fuzz_expect(seen.ready_mask >> members == 0);
    fuzz_expect((seen.source_mask & ~seen.ready_mask) == 0);
    fuzz_expect((seen.blocked_mask & ~seen.ready_mask) == 0);
    fuzz_expect(seen.first_missing <= members);
    fuzz_expect(seen.outcome != OCCL_OUT_OPEN || seen.first_missing < members);
    fuzz_expect(seen.outcome != OCCL_OUT_ALL || seen.ready_mask == (1ull << members) - 1);
    return seen;
}

static void compare(const struct occl_records *m, struct occl_place at, struct fuzz_input *in) {
    struct occl_look seen = look(m, at);
    uint32_t index = 0, mine = fuzz_take8(in) % RANKS;
    enum occl_signature_field field =
        occl_record_mismatch(occl_record_at(m, at.slot), seen.ready_mask, mine, &index);
    fuzz_expect(field <= OCCL_FIELD_KEY);
    fuzz_expect(index < RANKS);
    fuzz_expect(field == OCCL_FIELD_NONE || (seen.ready_mask >> index & 1));
}

static void decide(struct occl_record *rec, struct fuzz_input *in) {
    uint32_t now, to = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_PEER_FAILED, fuzz_take8(in));
    uint32_t from = fuzz_take8(in) % 2 ? OCCL_REC_OPEN : OCCL_REC_LOCAL;
    if (occl_record_decide(rec, from, fuzz_take8(in) % 2 ? to : OCCL_REC_LOCAL, &now))
        fuzz_expect(now == to || now == OCCL_REC_LOCAL);
    else
        fuzz_expect(now != from);
}

/* What was decided stays, who was there stays, and whose claim it is not stays out. */
static void abort_op(const struct occl_records *m, struct occl_place at) {
    struct occl_look before = look(m, at);
    uint64_t word = occl_claim_of(m, at.slot)->word;
    bool here =
        (word & (OCCL_WORD_CLAIMED | OCCL_WORD_PRINT_MASK)) == (OCCL_WORD_CLAIMED | at.print);
    (void)occl_record_abort(m, at.slot, at.print, OCCL_E_ABORTED, 1);
    struct occl_look after = look(m, at);
    fuzz_expect(occl_claim_of(m, at.slot)->word == word);
    fuzz_expect(after.ready_mask == before.ready_mask);
    if (before.outcome != OCCL_OUT_OPEN || !here)
        fuzz_expect(after.outcome == before.outcome);
    else if (occl_rec_kind(after.state) == OCCL_REC_ABORTED)
        fuzz_expect(after.outcome == OCCL_OUT_ABORTED);
    if (before.outcome == OCCL_OUT_DIRECT)
        fuzz_expect(after.state == before.state);
}

static void arrive(const struct occl_records *m, struct occl_place at, struct occl_op_key key,
                   struct fuzz_input *in) {
    uint32_t members = occl_claim_members(occl_claim_index(at.slot), RANKS);
    struct occl_line *line = occl_line_at(occl_record_at(m, at.slot), fuzz_take8(in) % members);
    struct occl_signature sig = {(uint8_t)fuzz_take8(in), 1, 1, 0,
                                 fuzz_take8(in) % RANKS,  0, 0, fuzz_take8(in)};
    uint32_t bits = fuzz_take8(in) & (OCCL_FLAG_BLOCKED | OCCL_FLAG_IN_PAGE | OCCL_FLAG_SOURCE);
    occl_line_fill(line, key, &sig);
    bool came = occl_record_arrive(line, at.print, bits);
    uint32_t now = occl_flag_bits_of(line->flag, at.print);
    fuzz_expect(came ? now == (bits | OCCL_FLAG_READY) : (now & OCCL_FLAG_POISONED) != 0);
}

static void step(const struct occl_records *m, struct fuzz_input *in) {
    uint32_t kind = fuzz_take8(in) % STEPS;
    struct occl_op_key key = take_key(in);
    struct occl_place at = occl_place_of(key);
    fuzz_expect(at.slot < m->records);
    fuzz_expect(at.print <= OCCL_WORD_PRINT_MASK);
    struct occl_record *rec = occl_record_at(m, at.slot);
    struct occl_claim *claim = occl_claim_of(m, at.slot);
    struct occl_records opened;
    switch (kind) {
    case POKE:
        poke(m->base, m->page_bytes, in);
        break;
    case POKE_RECORD:
        poke(rec, m->record_stride, in);
        break;
    case POKE_CLAIM:
        poke(claim, sizeof *claim, in);
        break;
    case ENTER:
        fuzz_expect(occl_claim_enter(claim, at.print, fuzz_take8(in) % 2) <= OCCL_ENTER_FULL);
        break;
    case DROP:
        occl_claim_overflow_drop(claim);
        break;
    case LANE:
        visit_lane(m, at, in);
        break;
    case DECIDE:
        decide(rec, in);
        break;
    case MISMATCH:
        compare(m, at, in);
        break;
    case LEAVE:
        occl_claim_leave(m, occl_claim_index(at.slot));
        break;
    case ARRIVE:
        arrive(m, at, key, in);
        break;
    case ABORT:
        abort_op(m, at);
        break;
    case OPEN:
        if (occl_records_open(m->base, m->page_bytes, &opened) == OCCL_OK)
            fuzz_expect(opened.page_bytes <= m->page_bytes);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static char *page; /* one for all inputs: a new one costs more than the input */
    struct fuzz_input in = {data, bytes};
    struct occl_comm_page header;
    struct occl_records m;
    occl_comm_page_layout(RANKS, 1, &header);
    if (page == NULL)
        page = aligned_alloc(OCCL_PAGE_BYTES, header.page_bytes);
    fuzz_expect(page != NULL);
    memset(page, 0, header.page_bytes);
    memcpy(page, &header, sizeof header);
    fuzz_expect(occl_records_open(page, header.page_bytes, &m) == OCCL_OK);
    while (in.bytes > 0)
        step(&m, &in);
    return 0;
}
