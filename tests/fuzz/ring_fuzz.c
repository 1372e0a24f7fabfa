/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of a session page that its client scribbles over between any two steps. The
 * input is a list of steps: write a word anywhere in the page, pop, push, give back, open the
 * header. */
#include "shm_ipc/ring.h"
#include "shm_ipc/session.h"
#include "tests/fuzz/fuzz.h"

enum step { POKE, POKE_INDEX, POP, RELEASE, PUSH, REFRESH, OPEN, STEPS };

struct daemon {
    struct occl_session_page *page;
    struct occl_session_shape shape;
    struct occl_ring_consumer sq;
    struct occl_ring_producer cq;
    struct occl_credits credits;
    int quarantined;
};

static void set_up(struct daemon *d) {
    struct occl_session_facts facts = {1, 1, OCCL_ABI_VERSION, 1};
    memset(d, 0, sizeof *d);
    occl_session_shape_choose(8, &d->shape);
    /* On the heap and exactly as large, so that the sanitizer sees each step beyond it. */
    d->page = aligned_alloc(OCCL_PAGE_BYTES, d->shape.page_bytes);
    fuzz_expect(d->page != NULL);
    memset(d->page, 0, d->shape.page_bytes);
    occl_session_format(d->page, &d->shape, &facts);
    struct occl_ring_place sq = occl_sq_place(d->page, d->shape.sq_offset, d->shape.sq_entries);
    struct occl_ring_place cq = occl_cq_place(d->page, d->shape.cq_offset, d->shape.cq_entries);
    occl_ring_consumer_init(&d->sq, &sq);
    occl_ring_producer_init(&d->cq, &cq);
    occl_credits_init(&d->credits, d->shape.cq_entries);
}

static void pop(struct daemon *d) {
    struct occl_sqe entry;
    uint32_t before = d->sq.own;
    if (!occl_credits_take(&d->credits))
        return;
    int status = occl_sq_pop(&d->sq, &entry);
    fuzz_expect(status == OCCL_OK || status == OCCL_WOULD_BLOCK || status == OCCL_E_QUARANTINED);
    fuzz_expect(d->sq.own - before == (status == OCCL_OK));
    fuzz_expect(d->sq.peer_seen - d->sq.own <= d->shape.sq_entries);
    if (status != OCCL_OK)
        occl_credits_put(&d->credits, 1);
    d->quarantined = status == OCCL_E_QUARANTINED;
}

/* Completions of admitted ops only, as the engine does: then there is always room. */
static void push(struct daemon *d) {
    struct occl_cqe entry;
    uint32_t in_ring = d->cq.own - d->cq.peer_seen;
    memset(&entry, 0, sizeof entry);
    if (in_ring == d->credits.taken)
        return;
    fuzz_expect(occl_cq_push(&d->cq, &entry) == OCCL_OK);
    occl_ring_publish(&d->cq);
}

static void refresh(struct daemon *d) {
    uint32_t freed = 0;
    int status = occl_ring_producer_refresh(&d->cq, &freed);
    fuzz_expect(status == OCCL_OK || status == OCCL_E_QUARANTINED);
    if (status == OCCL_OK)
        occl_credits_put(&d->credits, freed);
    d->quarantined = status == OCCL_E_QUARANTINED;
}

/* The client's own check of a page, should its daemon be the broken one. */
static void open_page(struct daemon *d) {
    struct occl_session_shape shape;
    struct occl_session_facts facts;
    struct occl_detail detail;
    if (occl_session_open(d->page, d->shape.page_bytes, &shape, &facts, &detail) == OCCL_OK)
        fuzz_expect(shape.page_bytes <= d->shape.page_bytes);
}

static void poke(struct daemon *d, struct fuzz_input *in, uint32_t limit_bytes) {
    uint32_t at = fuzz_take32(in) % limit_bytes / 4 * 4;
    occl_note32((uint32_t *)(void *)((char *)d->page + at), fuzz_take32(in));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct fuzz_input in = {data, bytes};
    struct daemon d;
    set_up(&d);
    while (in.bytes > 0 && !d.quarantined) {
        switch (fuzz_take8(&in) % STEPS) {
        case POKE:
            poke(&d, &in, (uint32_t)d.shape.page_bytes);
            break;
        case POKE_INDEX: {
            struct occl_ring_index *index = &d.page->sq_tail + fuzz_take8(&in) % 4;
            index->value += fuzz_take8(&in) % 16;
            break;
        }
        case POP:
            pop(&d);
            break;
        case RELEASE:
            occl_ring_release(&d.sq);
            break;
        case PUSH:
            push(&d);
            break;
        case REFRESH:
            refresh(&d);
            break;
        case OPEN:
            open_page(&d);
            break;
        }
    }
    free(d.page);
    return 0;
}
