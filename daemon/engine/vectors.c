/* SPDX-License-Identifier: Apache-2.0 */
/* Ops with blocks of different sizes. Their vectors lie in a tenant's memory, so each use of one
 * begins with a private copy: one at submission, to find the buffers, and one when the op starts,
 * from which its plan is made. A copy that describes more than what was resolved is refused. */
#include <string.h>

#include "daemon/engine/internal.h"
#include "shm_ipc/datatype.h"

struct copy_job {
    const void *from;
    void *to;
    uint32_t bytes;
};

static void copy(void *arg) {
    const struct copy_job *job = arg;
    occl_copy_out(job->to, job->from, job->bytes);
}

int occl_eng_vector_copy(const void *shared, uint32_t members, uint64_t *out) {
    struct copy_job job = {shared, out, occl_vector_bytes(members)};
    union {
        const void *read;
        void *base; /* the guard's ranges are for reads and writes */
    } at = {shared};
    struct occl_guard_range range = {at.base, job.bytes};
    uint64_t address;
    int status = occl_guard_run(&range, 1, copy, &job, &address);
    __asm__ volatile("" : : "r"(out) : "memory"); /* written as words, used as numbers */
    return status;
}

bool occl_eng_vector_fits(const struct occl_eng_run *run, const struct occl_signature *sig,
                          uint32_t index, uint32_t members, const struct occl_eng_sides *sides) {
    struct occl_kind_sizes sizes;
    return occl_kind_measure(occl_kind_traits(sig->kind), sig->root, index, members, 0,
                             (uint32_t)occl_dtype_bytes(sig->dtype), run->vectors.of[index],
                             &sizes) &&
           sizes.send_bytes <= sides->src_bytes && sizes.recv_bytes <= sides->dst_bytes;
}

int occl_eng_run_vector(struct occl_eng_run *run, const struct occl_signature *sig, uint32_t index,
                        uint32_t members, const struct occl_eng_sides *sides) {
    uint64_t *mine = run->vector_room + (uint64_t)index * OCCL_VECTOR_NUMBERS_MAX;
    int status = occl_eng_vector_copy(sides->vector, members, mine);
    if (status != OCCL_OK)
        return status;
    run->vectors.of[index] = mine;
    return occl_eng_vector_fits(run, sig, index, members, sides) ? OCCL_OK : OCCL_E_INVALID;
}

int occl_eng_op_vectors(struct occl_eng_run *run, struct occl_eng_op *op, uint32_t *out_about) {
    for (uint32_t i = 0; i < op->members; i++) {
        const struct occl_eng_member *m = occl_eng_member_at(op, i);
        int status = occl_eng_run_vector(run, &m->signature, i, op->members, &m->sides);
        *out_about = occl_eng_rank_of(op, i);
        if (status != OCCL_OK)
            return status;
    }
    for (uint32_t i = 0; i < op->members; i++) {
        for (uint32_t j = 0; j < op->members; j++) {
            *out_about = occl_eng_rank_of(op, i);
            if (!occl_vector_pair_agrees(run->vectors.of, op->members, i, j))
                return OCCL_E_MISMATCH;
        }
    }
    return OCCL_OK;
}
