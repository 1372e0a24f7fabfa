/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/session.h"

#include <string.h>

static void lay_out(uint32_t sq_entries, uint32_t cq_entries, struct occl_session_shape *out) {
    uint64_t end;
    out->sq_entries = sq_entries;
    out->cq_entries = cq_entries;
    out->sq_offset = (uint32_t)sizeof(struct occl_session_page);
    out->cq_offset = out->sq_offset + sq_entries * (uint32_t)sizeof(struct occl_sqe);
    end = out->cq_offset + (uint64_t)cq_entries * sizeof(struct occl_cqe);
    out->page_bytes = (end + OCCL_PAGE_BYTES - 1) / OCCL_PAGE_BYTES * OCCL_PAGE_BYTES;
}

void occl_session_shape_choose(uint32_t sq_wanted, struct occl_session_shape *out_shape) {
    if (sq_wanted == 0)
        sq_wanted = OCCL_SQ_ENTRIES;
    uint32_t sq_entries = OCCL_RING_ENTRIES_MIN;
    while (sq_entries < sq_wanted && sq_entries < OCCL_CQ_ENTRIES)
        sq_entries *= 2;
    lay_out(sq_entries, OCCL_CQ_ENTRIES, out_shape);
}

void occl_session_format(struct occl_session_page *page, const struct occl_session_shape *shape,
                         const struct occl_session_facts *facts) {
    page->abi_version = facts->abi_version;
    page->page_bytes = (uint32_t)shape->page_bytes;
    page->session_id = facts->session_id;
    page->daemon_epoch = facts->daemon_epoch;
    page->sq_entries = shape->sq_entries;
    page->cq_entries = shape->cq_entries;
    page->sq_offset = shape->sq_offset;
    page->cq_offset = shape->cq_offset;
    page->session_state = OCCL_SESSION_LIVE;
    page->ticks_source = facts->ticks_source;
    page->magic = OCCL_MAGIC_SESSION;
}

static int entries_are_sound(uint32_t entries) {
    return entries >= OCCL_RING_ENTRIES_MIN && entries <= OCCL_CQ_ENTRIES &&
           (entries & (entries - 1)) == 0;
}

int occl_session_open(const struct occl_session_page *page, uint64_t mapped_bytes,
                      struct occl_session_shape *out_shape, struct occl_session_facts *out_facts,
                      struct occl_detail *detail) {
    struct occl_session_page h;
    struct occl_session_shape shape;
    if (mapped_bytes < sizeof h)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "session page of %llu bytes: shorter than its header",
                               (unsigned long long)mapped_bytes);
    memcpy(&h, page, sizeof h);
    if (h.magic != OCCL_MAGIC_SESSION)
        return occl_detail_set(detail, OCCL_E_VERSION, 0,
                               "session page magic %#llx: expected %#llx",
                               (unsigned long long)h.magic, (unsigned long long)OCCL_MAGIC_SESSION);
    if (h.abi_version < OCCL_ABI_VERSION_MIN || h.abi_version > OCCL_ABI_VERSION)
        return occl_detail_set(detail, OCCL_E_VERSION, 0,
                               "session page ABI version %u: this library speaks %u to %u",
                               h.abi_version, OCCL_ABI_VERSION_MIN, OCCL_ABI_VERSION);
    if (!entries_are_sound(h.sq_entries) || !entries_are_sound(h.cq_entries) ||
        h.cq_entries < h.sq_entries)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "session rings of %u and %u entries: not two powers of two of "
                               "%u to %u with the second not below the first",
                               h.sq_entries, h.cq_entries, OCCL_RING_ENTRIES_MIN, OCCL_CQ_ENTRIES);
    lay_out(h.sq_entries, h.cq_entries, &shape);
    if (h.sq_offset != shape.sq_offset || h.cq_offset != shape.cq_offset ||
        h.page_bytes != shape.page_bytes || shape.page_bytes > mapped_bytes)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "session page of %u bytes (%llu mapped), rings at %u and %u: "
                               "expected %llu, %u and %u",
                               h.page_bytes, (unsigned long long)mapped_bytes, h.sq_offset,
                               h.cq_offset, (unsigned long long)shape.page_bytes, shape.sq_offset,
                               shape.cq_offset);
    *out_shape = shape;
    out_facts->session_id = h.session_id;
    out_facts->daemon_epoch = h.daemon_epoch;
    out_facts->abi_version = h.abi_version;
    out_facts->ticks_source = h.ticks_source;
    return OCCL_OK;
}
