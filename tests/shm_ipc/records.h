/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator page in shared memory, as the daemon makes it, for the tests of records. */
#ifndef TESTS_SHM_IPC_RECORDS_H
#define TESTS_SHM_IPC_RECORDS_H

#include <stdlib.h>
#include <string.h>

#include "shm_ipc/record.h"
#include "tests/shm_ipc/stress.h"

static inline struct occl_records records_new(uint32_t ranks) {
    struct occl_comm_page header;
    struct occl_records m;
    occl_comm_page_layout(ranks, 1, &header);
    char *page = stress_shared(header.page_bytes);
    memcpy(page, &header, sizeof header);
    if (occl_records_open(page, header.page_bytes, &m) != OCCL_OK)
        abort();
    return m;
}

static inline void records_free(const struct occl_records *m) {
    (void)munmap(m->base, m->page_bytes);
}

/* Claims that are not as free as they were in the new page. */
static inline uint32_t records_in_use(const struct occl_records *m) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < OCCL_CLAIMS; i++) {
        const struct occl_claim *claim = occl_claim_at(m, i);
        used += claim->word != 0 || claim->left != 0;
    }
    for (uint32_t slot = 0; slot < m->records; slot++) {
        const struct occl_record *rec = occl_record_at(m, slot);
        used += rec->state != OCCL_REC_OPEN || rec->sleepers != 0 || rec->lanes_busy != 0 ||
                occl_record_strands_claimed(rec) != 0 || rec->strands_done != 0;
    }
    return used;
}

static inline struct occl_op_key records_collective(uint32_t tag, uint32_t instance) {
    struct occl_op_key key = {OCCL_PEERS_ALL, tag, instance};
    return key;
}

static inline struct occl_op_key records_pair(uint32_t source, uint32_t destination, uint32_t tag,
                                              uint32_t instance) {
    struct occl_op_key key = {source << 16 | destination, tag, instance};
    return key;
}

#endif
