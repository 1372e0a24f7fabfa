/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/local_program.h"

#include <string.h>

#include "shm_ipc/datatype.h"

/* From this size on an op is worth more than one executor: 32 KiB take about 10 us. */
#define SPLIT_BYTES (32u << 10)
/* With fewer strands than this the executors end at very different times. */
#define STRANDS_WANTED 8u
#define PAGE_ALIGN_FROM_BYTES (64u << 10)

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The shape of the line: a kind with vectors has that of its twin with equal blocks. */
static uint32_t shape_of(uint32_t kind) {
    switch (kind) {
    case OCCL_OP_ALL_GATHER_V:
        return OCCL_OP_ALL_GATHER;
    case OCCL_OP_REDUCE_SCATTER_V:
        return OCCL_OP_REDUCE_SCATTER;
    case OCCL_OP_ALL_TO_ALL_V:
        return OCCL_OP_ALL_TO_ALL;
    case OCCL_OP_GATHER_V:
        return OCCL_OP_GATHER;
    case OCCL_OP_SCATTER_V:
        return OCCL_OP_SCATTER;
    case OCCL_OP_RECV:
        return OCCL_OP_SEND;
    default:
        return kind;
    }
}

/* Blocks of the line, and buffers read and written per byte of it. */
static uint32_t blocks_of(uint32_t shape, uint32_t members, bool exchanges) {
    switch (shape) {
    case OCCL_OP_ALL_GATHER:
    case OCCL_OP_REDUCE_SCATTER:
    case OCCL_OP_GATHER:
    case OCCL_OP_SCATTER:
        return members;
    case OCCL_OP_ALL_TO_ALL:
        return exchanges ? members * (members + 1) / 2 : members * members;
    default:
        return 1;
    }
}

static uint32_t sides_of(uint32_t shape, uint32_t members, bool exchanges) {
    switch (shape) {
    case OCCL_OP_ALL_REDUCE:
    case OCCL_OP_SCAN:
    case OCCL_OP_EXSCAN:
        return 2 * members;
    case OCCL_OP_REDUCE:
    case OCCL_OP_REDUCE_SCATTER:
    case OCCL_OP_ALL_GATHER:
        return members + 1;
    case OCCL_OP_BROADCAST:
        return members;
    default:
        return exchanges ? 4 : 2;
    }
}

static uint64_t slice_bytes_of(uint64_t total, uint64_t sides) {
    uint64_t most = OCCL_SLICE_TRAFFIC_BYTES / sides;
    uint64_t strands, wanted, slice;
    if (most < OCCL_SLICE_BYTES_MIN)
        most = OCCL_SLICE_BYTES_MIN;
    strands = (total + most - 1) / most;
    wanted = total / SPLIT_BYTES;
    if (wanted > STRANDS_WANTED)
        wanted = STRANDS_WANTED;
    if (strands < wanted)
        strands = wanted;
    if (strands > OCCL_LOCAL_STRANDS_MAX)
        strands = OCCL_LOCAL_STRANDS_MAX;
    if (strands == 0)
        strands = 1;
    slice = (total + strands - 1) / strands;
    /* Whole pages where it costs nothing: neighbouring executors then share no page. */
    return round_up(slice, slice >= PAGE_ALIGN_FROM_BYTES ? OCCL_PAGE_BYTES : 64);
}

static bool members_valid(const struct occl_signature *sig, const struct occl_kind_traits *traits,
                          uint32_t members) {
    if (members < 1 || members > OCCL_LOCAL_RANKS_MAX)
        return false;
    if (traits->flags & OCCL_KIND_PAIR)
        return members == 2;
    return !(traits->flags & OCCL_KIND_ROOTED) || sig->root < members;
}

static uint64_t sends(const struct occl_local_plan *plan, uint32_t from, uint32_t to) {
    return plan->element_bytes *
           occl_vector_at(plan->vectors->of[from], plan->member_count, OCCL_VECTOR_SEND_COUNT, to);
}

/* Bytes of the block at `walk`, and of the one that comes back in an exchange. */
static uint64_t block_bytes_at(const struct occl_local_plan *plan,
                               const struct occl_local_walk *walk, uint64_t *out_back) {
    *out_back = plan->exchanges ? plan->block_bytes : 0;
    if (!plan->vectors)
        return plan->block_bytes;
    switch (shape_of(plan->kind)) {
    case OCCL_OP_ALL_TO_ALL:
        *out_back = plan->exchanges ? sends(plan, walk->to, walk->from) : 0;
        return sends(plan, walk->from, walk->to);
    case OCCL_OP_SCATTER:
        return sends(plan, plan->root, walk->block);
    case OCCL_OP_GATHER:
        return sends(plan, walk->block, plan->root);
    case OCCL_OP_REDUCE_SCATTER: /* all members give this one as much as member 0 does */
        return sends(plan, 0, walk->block);
    default:
        return sends(plan, walk->block, 0);
    }
}

static uint64_t longer(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Blocks between all members go by receiver; exchanges by pair (from, to), from <= to. */
static void next_block(const struct occl_local_plan *plan, struct occl_local_walk *walk) {
    uint32_t n = plan->member_count;
    walk->offset = 0;
    walk->block++;
    if (plan->exchanges) {
        if (++walk->to == n)
            walk->to = ++walk->from;
    } else if (++walk->from == n) {
        walk->from = 0;
        walk->to++;
    }
}

static bool vectors_agree(const struct occl_local_plan *plan) {
    for (uint32_t i = 0; i < plan->member_count; i++)
        for (uint32_t j = 0; j < plan->member_count; j++)
            if (!occl_vector_pair_agrees(plan->vectors->of, plan->member_count, i, j))
                return false;
    return true;
}

static uint64_t line_bytes(const struct occl_local_plan *plan) {
    uint32_t blocks = blocks_of(shape_of(plan->kind), plan->member_count, plan->exchanges);
    uint64_t total = 0, back;
    if (!plan->vectors)
        return plan->block_bytes * blocks;
    for (struct occl_local_walk walk = {0}; walk.block < blocks; next_block(plan, &walk)) {
        uint64_t bytes = block_bytes_at(plan, &walk, &back);
        total += longer(bytes, back);
    }
    return total;
}

static int check(const struct occl_signature *sig, const struct occl_kind_traits *traits,
                 uint32_t members, uint64_t *out_element, uint64_t *out_block) {
    uint64_t element = 0;
    if (!traits || !members_valid(sig, traits, members))
        return OCCL_E_INVALID;
    if (traits->flags & OCCL_KIND_TYPED) {
        element = occl_dtype_bytes(sig->dtype);
        if (element == 0)
            return OCCL_E_INVALID;
    }
    if (traits->flags & OCCL_KIND_REDUCES && occl_redop_name(sig->redop) == NULL)
        return OCCL_E_INVALID;
    *out_element = element;
    return occl_kind_block_bytes(traits, sig->count, element, out_block) ? OCCL_OK : OCCL_E_INVALID;
}

int occl_local_plan_make(const struct occl_signature *sig, uint32_t members, bool in_place,
                         const struct occl_local_vectors *vectors, struct occl_local_plan *out) {
    const struct occl_kind_traits *traits = occl_kind_traits(sig->kind);
    struct occl_local_plan plan;
    uint64_t element, block;
    uint32_t shape = shape_of(sig->kind);
    if (check(sig, traits, members, &element, &block) ||
        ((traits->flags & OCCL_KIND_VECTOR) != 0) != (vectors != NULL))
        return OCCL_E_INVALID;
    memset(&plan, 0, sizeof plan);
    plan.kind = sig->kind == OCCL_OP_RECV ? (uint8_t)OCCL_OP_SEND : sig->kind;
    plan.dtype = sig->dtype;
    plan.redop = sig->redop;
    plan.element_bytes = (uint8_t)element;
    plan.member_count = members;
    plan.root = traits->flags & OCCL_KIND_ROOTED ? sig->root : 0;
    plan.exchanges = in_place && shape == OCCL_OP_ALL_TO_ALL;
    plan.vectors = vectors;
    plan.block_bytes = block;
    if (vectors && !vectors_agree(&plan))
        return OCCL_E_INVALID;
    plan.total_bytes = line_bytes(&plan);
    plan.sides = sides_of(shape, members, plan.exchanges);
    /* Saturates instead of wrapping: 2^62 bytes among 64 members are no real op. */
    plan.traffic_bytes =
        plan.total_bytes > UINT64_MAX / plan.sides ? UINT64_MAX : plan.total_bytes * plan.sides;
    if (plan.total_bytes > 0) {
        plan.slice_bytes = slice_bytes_of(plan.total_bytes, plan.sides);
        plan.strand_count =
            (uint32_t)((plan.total_bytes + plan.slice_bytes - 1) / plan.slice_bytes);
    }
    *out = plan;
    return OCCL_OK;
}

bool occl_local_reduces(const struct occl_local_plan *plan) {
    return (occl_kind_traits(plan->kind)->flags & OCCL_KIND_REDUCES) != 0;
}

/* Measured on 2 cores with a cache of 32 MiB, each alone or shared: sums are faster around it from
 * half of it on, since the inputs need room, too; copies only when it cannot hold them all. */
uint32_t occl_local_move_flags(const struct occl_local_plan *plan, uint64_t cache_bytes,
                               bool in_place) {
    uint64_t held = occl_local_reduces(plan) ? cache_bytes / 2 : cache_bytes;
    return !in_place && plan->traffic_bytes > held ? OCCL_MOVE_NONTEMPORAL : 0;
}

/* The pair (i, j), i <= j, of block `index` when all pairs are exchanged: row i has n - i of them.
 */
static void pair_of(uint32_t index, uint32_t members, uint32_t *out_i, uint32_t *out_j) {
    uint32_t i = 0;
    while (index >= members - i)
        index -= members - i++;
    *out_i = i;
    *out_j = i + index;
}

void occl_local_walk_to(const struct occl_local_plan *plan, uint64_t at,
                        struct occl_local_walk *out) {
    struct occl_local_walk walk = {0};
    uint64_t back;
    if (!plan->vectors) {
        walk.block = (uint32_t)(at / plan->block_bytes);
        walk.offset = at % plan->block_bytes;
        walk.from = walk.block % plan->member_count;
        walk.to = walk.block / plan->member_count;
        if (plan->exchanges)
            pair_of(walk.block, plan->member_count, &walk.from, &walk.to);
    } else {
        uint64_t bytes = block_bytes_at(plan, &walk, &back);
        while (at >= longer(bytes, back)) {
            at -= longer(bytes, back);
            next_block(plan, &walk);
            bytes = block_bytes_at(plan, &walk, &back);
        }
        walk.offset = at;
    }
    *out = walk;
}

/* Which members' which blocks the block at `walk` is about. */
static void name_blocks(const struct occl_local_plan *plan, const struct occl_local_walk *walk,
                        struct occl_local_piece *piece) {
    uint32_t block = walk->block, n = plan->member_count;
    piece->src_count = piece->dst_count = 1;
    piece->kind = OCCL_STEP_COPY;
    if (occl_local_reduces(plan)) {
        piece->kind = OCCL_STEP_REDUCE;
        piece->flags = OCCL_STEP_FINISH;
        piece->src_count = n;
    }
    switch (shape_of(plan->kind)) {
    case OCCL_OP_ALL_REDUCE:
        piece->dst_count = n;
        break;
    case OCCL_OP_SCAN:
        piece->dst_count = n;
        piece->flags |= OCCL_STEP_PREFIX;
        break;
    case OCCL_OP_EXSCAN:
        piece->dst_count = n;
        piece->flags |= OCCL_STEP_PREFIX | OCCL_STEP_EXCLUSIVE;
        break;
    case OCCL_OP_REDUCE:
        piece->dst_first = plan->root;
        break;
    case OCCL_OP_REDUCE_SCATTER:
        piece->src_block = piece->dst_first = block;
        break;
    case OCCL_OP_BROADCAST:
        piece->src_first = plan->root;
        piece->dst_count = n;
        break;
    case OCCL_OP_ALL_GATHER:
        piece->src_first = piece->dst_block = block;
        piece->dst_count = n;
        break;
    case OCCL_OP_GATHER:
        piece->src_first = piece->dst_block = block;
        piece->dst_first = plan->root;
        break;
    case OCCL_OP_SCATTER:
        piece->src_first = plan->root;
        piece->src_block = piece->dst_first = block;
        break;
    case OCCL_OP_ALL_TO_ALL:
        piece->src_first = piece->dst_block = walk->from;
        piece->src_block = piece->dst_first = walk->to;
        piece->exchanges = plan->exchanges && walk->from != walk->to;
        break;
    default: /* send, recv */
        piece->dst_first = 1;
        break;
    }
}

static uint64_t part(uint64_t bytes, uint64_t offset, uint64_t most) {
    uint64_t rest = bytes > offset ? bytes - offset : 0;
    return rest < most ? rest : most;
}

uint64_t occl_local_walk_next(const struct occl_local_plan *plan, struct occl_local_walk *walk,
                              uint64_t most, struct occl_local_piece *out) {
    uint64_t back, bytes = block_bytes_at(plan, walk, &back);
    while (walk->offset == longer(bytes, back)) { /* blocks of no bytes are passed over */
        next_block(plan, walk);
        bytes = block_bytes_at(plan, walk, &back);
    }
    *out = (struct occl_local_piece){.offset = walk->offset};
    name_blocks(plan, walk, out);
    if (out->exchanges && most > OCCL_LOCAL_EXCHANGE_BYTES)
        most = OCCL_LOCAL_EXCHANGE_BYTES;
    out->bytes = part(bytes, walk->offset, most);
    out->back_bytes = out->exchanges ? part(back, walk->offset, most) : 0;
    uint64_t length = longer(out->bytes, out->back_bytes);
    walk->offset += length;
    return length;
}
