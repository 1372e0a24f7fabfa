/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of different sizes: each rank publishes its vector (shm_ipc/vector.h) with its line, in
 * front of its payload in a chunk of the page or, where none is free, in a region. Who needs those
 * of others takes copies and checks them: ranks of a job trust each other's data, not their bugs.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

/* ---- this rank's ---- */

/* The payload's blocks follow each other, whatever gaps the caller's buffer has. */
static void pack(const struct client_op *op, uint64_t *vector, char *to) {
    uint64_t element = occl_dtype_bytes(op->sig.dtype), packed = 0;
    uint32_t is_root = occl_kind_is_root(op->traits, op->sig.root, op->line_index);
    bool all = (is_root ? op->traits->send_root : op->traits->send_other) == OCCL_EXTENT_ALL;
    if (!all) { /* one block for everybody, at the start of the buffer */
        memcpy(to, op->send, op->send_bytes);
        return;
    }
    for (uint32_t j = 0; j < op->members; j++) {
        uint64_t count = occl_vector_at(vector, op->members, OCCL_VECTOR_SEND_COUNT, j);
        uint64_t *at = &vector[OCCL_VECTOR_SEND_AT * op->members + j];
        memcpy(to + packed * element, (const char *)op->send + *at * element, count * element);
        *at = packed;
        packed += count;
    }
}

static uint64_t packed_bytes(const struct client_op *op) {
    uint32_t is_root = occl_kind_is_root(op->traits, op->sig.root, op->line_index);
    if ((is_root ? op->traits->send_root : op->traits->send_other) != OCCL_EXTENT_ALL)
        return op->send_bytes;
    uint64_t sum = 0;
    for (uint32_t j = 0; j < op->members; j++)
        sum += occl_vector_at(op->vector, op->members, OCCL_VECTOR_SEND_COUNT, j);
    return sum * occl_dtype_bytes(op->sig.dtype);
}

int client_vector_share(struct client_op *op) {
    uint32_t bytes = occl_vector_bytes(op->members);
    op->vector_ref = (struct occl_buffer_ref){OCCL_SPACE_NONE, 0, 0};
    if (!op->vector)
        return OCCL_OK;
    op->stage_vector = client_stage_get(bytes);
    if (!op->stage_vector)
        return client_error_status();
    memcpy(op->stage_vector->base, op->vector, bytes);
    op->vector_ref = (struct occl_buffer_ref){OCCL_SPACE_REGION, op->stage_vector->region->number,
                                              op->stage_vector->offset};
    return OCCL_OK;
}

void client_vector_unshare(struct client_op *op) {
    client_stage_put(op->stage_vector);
    op->stage_vector = NULL;
}

int client_vector_publish(struct client_op *op, uint64_t direct_max, bool *out_in_page) {
    struct occl_line *line = occl_line_at(op->rec, op->line_index);
    uint32_t bytes = occl_vector_bytes(op->members);
    uint64_t payload = op->send && op->send_bytes ? packed_bytes(op) : 0;
    uint64_t chunk = client_chunk_take(op);
    bool fits =
        chunk && payload <= direct_max && bytes + payload <= op->comm->m.payload_chunk_bytes;
    int status = client_refer(op, !fits, false);
    if (status == OCCL_OK && !chunk)
        status = client_vector_share(op);
    if (status)
        return status;
    if (chunk) {
        char *base = op->comm->m.base + chunk;
        uint64_t copy[OCCL_VECTOR_NUMBERS_MAX];
        memcpy(copy, op->vector, bytes);
        if (fits && payload) {
            pack(op, copy, base + bytes);
            op->src = (struct occl_buffer_ref){OCCL_SPACE_PAYLOAD, 0, chunk + bytes};
        }
        memcpy(base, copy, bytes);
        op->vector_ref = (struct occl_buffer_ref){OCCL_SPACE_PAYLOAD, 0, chunk};
    }
    line->u.ref.src = op->src;
    line->u.ref.dst = op->dst;
    line->vector = op->vector_ref;
    *out_in_page = fits;
    return OCCL_OK;
}

/* ---- those of all ---- */

struct room {
    struct occl_local_vectors vectors;
    uint64_t values[OCCL_LOCAL_RANKS_MAX][OCCL_VECTOR_NUMBERS_MAX];
};

static pthread_key_t room_key;
static pthread_once_t room_once = PTHREAD_ONCE_INIT;

static void room_make(void) {
    (void)pthread_key_create(&room_key, free); /* without a key each call allocates */
}

static struct room *room(void) {
    pthread_once(&room_once, room_make);
    struct room *mine = pthread_getspecific(room_key);
    if (!mine) {
        mine = malloc(sizeof *mine); /* once a thread; touched as far as there are ranks */
        (void)pthread_setspecific(room_key, mine);
    }
    return mine;
}

static int copy_one(struct client_op *op, uint32_t member, uint64_t *out) {
    const struct occl_records *m = &op->comm->m;
    struct occl_buffer_ref ref = occl_line_at(op->rec, member)->vector;
    uint32_t bytes = occl_vector_bytes(op->members);
    struct occl_kind_sizes sizes;
    if (ref.offset % sizeof(uint64_t))
        return OCCL_E_FAULT;
    if (ref.space == OCCL_SPACE_PAYLOAD) {
        if (ref.offset > m->page_bytes || bytes > m->page_bytes - ref.offset)
            return OCCL_E_FAULT;
        memcpy(out, m->base + ref.offset, bytes);
    } else {
        int status = OCCL_E_FAULT;
        struct client_region *region =
            ref.space == OCCL_SPACE_REGION ? client_region_map(ref.region, &status) : NULL;
        if (!region)
            return status;
        bool inside = ref.offset <= region->bytes && bytes <= region->bytes - ref.offset;
        if (inside)
            memcpy(out, region->base + ref.offset, bytes);
        client_regions_unuse(&region, 1);
        if (!inside)
            return OCCL_E_FAULT;
    }
    return occl_kind_measure(op->traits, op->sig.root, member, op->members, 0,
                             (uint32_t)occl_dtype_bytes(op->sig.dtype), out, &sizes)
               ? OCCL_OK
               : OCCL_E_FAULT;
}

int client_vectors_get(struct client_op *op, uint64_t mask,
                       const struct occl_local_vectors **out_vectors) {
    struct room *mine = room();
    if (!mine)
        return client_fail(OCCL_E_NO_MEMORY, "no memory for the vectors of %u ranks", op->members);
    for (uint32_t i = 0; i < op->members; i++) {
        mine->vectors.of[i] = NULL;
        if (!(mask >> i & 1))
            continue;
        int status = copy_one(op, i, mine->values[i]);
        if (status)
            return status;
        mine->vectors.of[i] = mine->values[i];
    }
    *out_vectors = &mine->vectors;
    return OCCL_OK;
}

bool client_vectors_differ(const struct client_op *op, const struct occl_local_vectors *vectors,
                           uint64_t mask, uint32_t mine, uint32_t *out_sender,
                           uint32_t *out_receiver) {
    for (uint32_t i = 0; i < op->members; i++) {
        for (uint32_t j = 0; j < op->members; j++) {
            bool asked = (mask >> i & 1) && (mask >> j & 1) &&
                         (mine == OCCL_LOCAL_RANKS_MAX || i == mine || j == mine);
            if (!asked || occl_vector_pair_agrees(vectors->of, op->members, i, j))
                continue;
            *out_sender = i;
            *out_receiver = j;
            return true;
        }
    }
    return false;
}

bool client_vectors_empty(const struct client_op *op, const struct occl_local_vectors *vectors) {
    for (uint32_t i = 0; i < op->members; i++)
        for (uint32_t j = 0; j < op->members; j++)
            if (occl_vector_at(vectors->of[i], op->members, OCCL_VECTOR_SEND_COUNT, j))
                return false;
    return true;
}
