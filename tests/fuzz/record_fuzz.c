/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator page that its members scribble over while the daemon reads, decides, gives counts
 * back and lets lanes in and out. Nothing may loop or leave the page; what the members do to each
 * other's ops is their own affair. */
#include "shm_ipc/record.h"
#include "tests/fuzz/fuzz.h"

#define RANKS 2u

enum step { POKE, POKE_RECORD, ENTER, DROP, LANE, DECIDE, MISMATCH, LEAVE, ARRIVE, OPEN, STEPS };

static struct occl_op_key take_key(struct fuzz_input *in) {
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, 0};
    if (fuzz_take8(in) % 2)
        key.peers = fuzz_take8(in) % RANKS << 16 | fuzz_take8(in) % RANKS;
    key.tag = fuzz_take8(in);
    key.instance = fuzz_take8(in);
    return key;
}

static void poke(char *base, uint64_t bytes, struct fuzz_input *in) {
    uint64_t at = fuzz_take32(in) % bytes / 4 * 4;
    occl_note32((uint32_t *)(void *)(base + at), fuzz_take32(in));
}

static void visit_lane(struct occl_record *rec, uint64_t print, struct fuzz_input *in) {
    if (!occl_record_lane_enter(rec, print, RANKS))
        return;
    if (fuzz_take8(in) % 2)
        poke((char *)rec, occl_record_stride(RANKS), in);
    occl_record_lane_leave(rec, RANKS);
}

static void compare(struct occl_record *rec) {
    uint32_t index = 0;
    enum occl_signature_field field = occl_record_mismatch(rec, RANKS, 0, &index);
    fuzz_expect(field <= OCCL_FIELD_KEY);
    fuzz_expect(index < RANKS);
}

static void decide(struct occl_record *rec, struct fuzz_input *in) {
    uint32_t now, to = OCCL_REC_WORD(OCCL_REC_ABORTED, OCCL_E_PEER_FAILED, fuzz_take8(in));
    uint32_t from = fuzz_take8(in) % 2 ? OCCL_REC_OPEN : OCCL_REC_LOCAL;
    if (occl_record_decide(rec, from, to, &now))
        fuzz_expect(now == to);
    else
        fuzz_expect(now != from);
}

static void step(const struct occl_records *m, struct fuzz_input *in) {
    uint32_t kind = fuzz_take8(in) % STEPS;
    struct occl_place at = occl_place_of(take_key(in), m->records);
    fuzz_expect(at.slot < m->records);
    fuzz_expect(at.print <= OCCL_WORD_PRINT_MASK);
    struct occl_record *rec = occl_record_at(m, at.slot);
    struct occl_records opened;
    switch (kind) {
    case POKE:
        poke(m->base, m->page_bytes, in);
        break;
    case POKE_RECORD:
        poke((char *)rec, occl_record_stride(RANKS), in);
        break;
    case ENTER:
        fuzz_expect(occl_record_enter(rec, at.print, fuzz_take8(in) % 2) <= OCCL_ENTER_FULL);
        break;
    case DROP:
        occl_record_overflow_drop(rec);
        break;
    case LANE:
        visit_lane(rec, at.print, in);
        break;
    case DECIDE:
        decide(rec, in);
        break;
    case MISMATCH:
        compare(rec);
        break;
    case LEAVE:
        occl_record_leave(rec, RANKS);
        break;
    case ARRIVE:
        (void)occl_record_arrive(rec, occl_line_at(rec, fuzz_take8(in) % RANKS), OCCL_LINE_ASYNC);
        break;
    case OPEN:
        if (occl_records_open(m->base, m->page_bytes, &opened) == OCCL_OK)
            fuzz_expect(opened.page_bytes <= m->page_bytes);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct fuzz_input in = {data, bytes};
    struct occl_comm_page header;
    struct occl_records m;
    occl_comm_page_layout(RANKS, 1, &header);
    char *page = aligned_alloc(OCCL_PAGE_BYTES, header.page_bytes);
    fuzz_expect(page != NULL);
    memset(page, 0, header.page_bytes);
    memcpy(page, &header, sizeof header);
    fuzz_expect(occl_records_open(page, header.page_bytes, &m) == OCCL_OK);
    while (in.bytes > 0)
        step(&m, &in);
    free(page);
    return 0;
}
