/* SPDX-License-Identifier: Apache-2.0 */
/* One op at one rank, for the steps of a member in a record (member.c) and its payload
 * (payload.c). */
#ifndef TOOLS_SIM_MEMBER_H
#define TOOLS_SIM_MEMBER_H

#include "tools/sim/cluster.h"

struct sim_member {
    struct sim_cluster *cluster;
    struct sim_rank *rank;
    struct sim_op *op;
    struct sim_request *request;
    struct occl_records *page;
    struct occl_place place;
    struct occl_record *record;
    const struct occl_kind_traits *traits;
    uint32_t members, line_index; /* on this node */
    uint32_t alone_bits;          /* OCCL_FLAG_SOURCE, OCCL_FLAG_GIVES or neither */
    uint64_t payload_bytes;       /* what each rank that sends brings */
};

static inline struct occl_line *sim_member_line(const struct sim_member *m, uint32_t index) {
    return occl_line_at(m->record, index);
}

/* payload.c */
/* Brings payload and vector. True: all of it is in the page now. */
bool sim_payload_publish(const struct sim_member *m);
/* This rank's result of a DIRECT op: OCCL_OK, or OCCL_E_MISMATCH before anything is written. */
int sim_payload_result(const struct sim_member *m, const struct occl_look *look);
/* Compares the vectors of the members in `mask`; with all those of others, or only what `mine` is
 * concerned in (OCCL_LOCAL_RANKS_MAX: all). *out_nothing: no block has an element. */
bool sim_payload_vectors_differ(const struct sim_member *m, uint64_t mask, uint32_t mine,
                                uint32_t *out_sender, uint32_t *out_receiver, bool *out_nothing);
/* Who has ended alone, and described the op differently, is told. */
void sim_payload_tell(const struct sim_member *m, const struct occl_look *look);

#endif
