/* SPDX-License-Identifier: Apache-2.0 */
/* The op table of a lane: ops by (communicator, key), in objects that exist since creation. */
#include "daemon/engine/internal.h"
#include "shm_ipc/assert.h"

static struct occl_eng_op **bucket_of(struct occl_eng_lane *lane, const struct occl_eng_comm *comm,
                                      struct occl_op_key key) {
    uint64_t h = ((uint64_t)comm->serial << 32 | key.instance) * 0x9e3779b97f4a7c15ull;
    h ^= (((uint64_t)key.tag << 32 | key.peers) ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
    return &lane->buckets[(h >> 32 ^ h) & lane->bucket_mask];
}

static bool same_key(struct occl_op_key a, struct occl_op_key b) {
    return a.peers == b.peers && a.tag == b.tag && a.instance == b.instance;
}

struct occl_eng_op *occl_eng_op_find(struct occl_eng_lane *lane, const struct occl_eng_comm *comm,
                                     struct occl_op_key key) {
    struct occl_eng_op *op = *bucket_of(lane, comm, key);
    while (op && (op->comm != comm || !same_key(op->key, key)))
        op = op->hash_next;
    return op;
}

/* Takes a place in a counter that several lanes share; the limit may be passed by nobody. */
static bool take_place(uint64_t *live, uint64_t limit) {
    if (occl_add64(live, 1) < limit)
        return true;
    occl_add64(live, (uint64_t)-1);
    return false;
}

static bool take_blocks(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    uint32_t count = (op->members + OCCL_ENG_BLOCK_MEMBERS - 1) / OCCL_ENG_BLOCK_MEMBERS;
    for (uint32_t i = 0; i < count; i++) {
        op->blocks[i] = occl_eng_pool_take(&lane->blocks);
        if (!op->blocks[i])
            return false;
    }
    return true;
}

static void give_blocks(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    for (uint32_t i = 0; i < OCCL_ENG_BLOCKS; i++) {
        if (op->blocks[i])
            occl_eng_pool_give(&lane->blocks, op->blocks[i]);
        op->blocks[i] = NULL;
    }
}

int occl_eng_op_create(struct occl_eng_lane *lane, struct occl_eng_comm *comm,
                       struct occl_op_key key, uint32_t members, struct occl_eng_op **out_op) {
    struct occl_engine *engine = lane->engine;
    struct occl_eng_tenant *tenant = comm->job->tenant;
    int status = OCCL_WOULD_BLOCK;
    if (!take_place(&tenant->ops_live, occl_peek64(&tenant->ops_quota)))
        return OCCL_E_QUOTA;
    if (!take_place(&engine->ops_live, engine->config.ops_max))
        goto put_tenant;
    struct occl_eng_op *op = occl_eng_pool_take(&lane->ops);
    if (!op)
        goto put_engine;
    struct occl_eng_op **bucket = bucket_of(lane, comm, key);
    *op = (struct occl_eng_op){.comm = comm,
                               .key = key,
                               .members = members,
                               .state = OCCL_ENG_OP_WAITING,
                               .about_rank = OCCL_RANK_NONE};
    if (!take_blocks(lane, op))
        goto give_op;
    op->hash_next = *bucket;
    *bucket = op;
    occl_eng_list_append(&comm->ops, &op->comm_link);
    occl_eng_list_init(&op->ready_link);
    occl_count64(&comm->job->ops_live, 1);
    *out_op = op;
    return OCCL_OK;
give_op:
    give_blocks(lane, op);
    op->state = OCCL_ENG_OP_FREE;
    occl_eng_pool_give(&lane->ops, op);
put_engine:
    occl_add64(&engine->ops_live, (uint64_t)-1);
put_tenant:
    occl_add64(&tenant->ops_live, (uint64_t)-1);
    return status;
}

/* Members that went through the ring keep the claim of their key closed (shm_ipc/record.h).
 * They are all counted back when the op leaves the table, not one by one: a claim that opens while
 * members are missing would let these wait in the record alone. */
void occl_eng_drop_overflow(struct occl_eng_comm *comm, struct occl_op_key key, uint32_t count) {
    struct occl_claim *claim = occl_claim_of(&comm->records, occl_place_of(key).slot);
    for (uint32_t i = 0; i < count; i++)
        occl_claim_overflow_drop(claim);
}

void occl_eng_op_free(struct occl_eng_lane *lane, struct occl_eng_op *op) {
    OCCL_ASSERT(op->state != OCCL_ENG_OP_FREE);
    OCCL_ASSERT(!op->run);
    occl_eng_drop_overflow(op->comm, op->key, op->arrived);
    struct occl_eng_op **at = bucket_of(lane, op->comm, op->key);
    while (*at != op)
        at = &(*at)->hash_next;
    *at = op->hash_next;
    occl_eng_list_take(&op->comm_link);
    occl_eng_list_take(&op->ready_link);
    occl_add64(&op->comm->job->tenant->ops_live, (uint64_t)-1);
    occl_add64(&lane->engine->ops_live, (uint64_t)-1);
    occl_count64(&op->comm->job->ops_live, (uint64_t)-1);
    give_blocks(lane, op);
    op->state = OCCL_ENG_OP_FREE;
    occl_eng_pool_give(&lane->ops, op);
}

void occl_eng_op_set_state(struct occl_eng_op *op, enum occl_eng_op_state state) {
    /* Bit t of legal[s]: an op may go from state s to state t. */
    static const uint8_t legal[] = {
        [OCCL_ENG_OP_FREE] = 0,
        [OCCL_ENG_OP_WAITING] =
            1u << OCCL_ENG_OP_HELD | 1u << OCCL_ENG_OP_READY | 1u << OCCL_ENG_OP_ENDED,
        [OCCL_ENG_OP_HELD] = 1u << OCCL_ENG_OP_READY | 1u << OCCL_ENG_OP_ENDED,
        [OCCL_ENG_OP_READY] = 1u << OCCL_ENG_OP_RUNNING | 1u << OCCL_ENG_OP_ENDED,
        [OCCL_ENG_OP_RUNNING] = 1u << OCCL_ENG_OP_ENDED,
        [OCCL_ENG_OP_ENDED] = 0,
    };
    OCCL_ASSERT(legal[op->state] >> state & 1);
    op->state = (uint8_t)state;
}
