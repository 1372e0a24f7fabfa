/* SPDX-License-Identifier: Apache-2.0 */
/* Payload chunks: 4 KiB pieces of the communicator's page that this rank owns. A chunk is in use
 * until all members have left its op; the rank that takes one finds that out, nobody gives it back.
 *
 * Ops of the untagged stream use the chunks in turn, so each has its own and takes it without a
 * lock. Most programs have one op at a time: then a member's flag says that it has left all earlier
 * ones (OCCL_FLAG_CLEAN), and once all flags of an op have said so, the chunks of all ops before
 * it are free and no line of theirs has to be fetched. Such a member says the same in its note when
 * an op ends (stream_done), for those that run ahead; it touches the flag, which its peers have
 * read, no more. Other members end each op of theirs with OCCL_FLAG_LEFT. All other ops share a few
 * chunks. */
#include "client_lib/client.h"

static uint64_t offset_of(const struct client_comm *comm, uint32_t chunk) {
    return comm->m.payload_offset + (uint64_t)comm->rank * comm->m.payload_stride +
           (uint64_t)chunk * comm->m.payload_chunk_bytes;
}

/* Instances of the stream wrap. Those alive are less than this apart (abi.h), so a number that is
 * further behind says no more than that its op is over; `clean` follows before it is ambiguous. */
#define APART_MAX (1u << 22)
#define CLEAN_BEHIND_MAX (1u << 30)

/* The rank's note says that it reads no payload of this op of the stream; *out_done: of none before
 * that one. */
static bool note_tells(const struct client_comm *comm, uint32_t rank, uint32_t instance,
                       uint32_t *out_done) {
    uint64_t word = occl_observe64(&occl_note_at(&comm->m, rank)->stream_done);
    uint32_t done = (uint32_t)word;
    if (word == 0 || done - instance - 1 >= 2 * APART_MAX)
        return false;
    *out_done = done;
    return true;
}

/* The claim serves another op, or all members have left this one. instance: of an op of the stream,
 * of which a rank tells in its flag or in its note; NULL: it is none. */
static bool all_left(const struct client_comm *comm, struct occl_place place, uint32_t members,
                     const uint32_t *instance) {
    struct occl_claim *claim = occl_claim_of(&comm->m, place.slot);
    uint64_t word = occl_observe64(&claim->word);
    /* Where another process has freed the claim, a thread sanitizer sees the order among our own
     * threads, which have left before, only here. */
    (void)occl_observe32(&claim->left);
    if ((word & (OCCL_WORD_CLAIMED | OCCL_WORD_PRINT_MASK)) != (OCCL_WORD_CLAIMED | place.print))
        return true;
    struct occl_record *rec = occl_record_at(&comm->m, place.slot);
    bool given_up = false, source = false;
    for (uint32_t i = 0; i < members; i++) {
        uint64_t flag = occl_observe64(&occl_line_at(rec, i)->flag);
        uint32_t bits = occl_flag_bits_of(flag, place.print), done;
        source = source || (bits & OCCL_FLAG_SOURCE);
        if ((bits & OCCL_FLAG_LEFT) || (instance && note_tells(comm, i, *instance, &done)))
            continue;
        if (!(bits & OCCL_FLAG_POISONED))
            return false;
        given_up = true;
    }
    /* Whom the others did not wait for reads nothing, if it ever comes, but what a source brought.
     */
    return !given_up || !source;
}

static bool all_left_stream(const struct client_comm *comm, uint32_t instance) {
    struct occl_op_key key = {OCCL_PEERS_ALL, 0, instance};
    return all_left(comm, occl_place_of(key), comm->ranks, &instance);
}

static uint32_t clean_instance(struct client_comm *comm, uint32_t instance) {
    uint32_t clean = occl_observe32(&comm->clean_instance), behind = instance - clean;
    if (behind < CLEAN_BEHIND_MAX || behind > 0u - APART_MAX) /* a little ahead: other threads */
        return clean;
    occl_publish32(&comm->clean_instance, instance - CLEAN_BEHIND_MAX / 2);
    return instance - CLEAN_BEHIND_MAX / 2;
}

/* What the members' notes say is as good as all their flags. Read only where no look at an op has
 * told as much (client_chunks_clean), so once in OCCL_STREAM_CHUNKS ops of a rank that runs ahead.
 */
static bool notes_tell(struct client_comm *comm, uint32_t instance) {
    uint32_t least = instance + APART_MAX;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        uint32_t done;
        if (!note_tells(comm, rank, instance, &done))
            return false;
        least = done - instance < least - instance ? done : least;
    }
    occl_publish32(&comm->clean_instance, least);
    return true;
}

/* user = used << 32 | instance. Two threads of a rank may come with numbers OCCL_STREAM_CHUNKS
 * apart in any order: one gets the chunk, the other says where its buffer is. */
static uint64_t take_of_stream(struct client_op *op) {
    struct client_comm *comm = op->comm;
    uint32_t instance = op->key.instance, chunk = instance % OCCL_STREAM_CHUNKS;
    uint64_t *user = &comm->stream_users[chunk], before = occl_observe64(user);
    uint32_t last = (uint32_t)before;
    if (before && last - instance < APART_MAX)
        return 0;
    bool is_free = !before || instance - last >= APART_MAX ||
                   (int32_t)(clean_instance(comm, instance) - last) > 0 || notes_tell(comm, last) ||
                   all_left_stream(comm, last);
    if (!is_free || !occl_claim64(user, &before, 1ull << 32 | instance))
        return 0;
    return offset_of(comm, chunk);
}

/* The chunk that was taken longest ago comes first: it is the likeliest to be free. */
static uint64_t take_of_pool(struct client_op *op) {
    struct client_comm *comm = op->comm;
    uint64_t offset = 0;
    pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < OCCL_POOL_CHUNKS && !offset; i++) {
        uint32_t at = (comm->chunk_next + i) % OCCL_POOL_CHUNKS;
        struct client_chunk *chunk = &comm->chunks[at];
        if (chunk->members && !all_left(comm, chunk->place, chunk->members, NULL))
            continue;
        *chunk = (struct client_chunk){op->place, op->members};
        comm->chunk_next = at + 1;
        offset = offset_of(comm, OCCL_STREAM_CHUNKS + at);
    }
    pthread_mutex_unlock(&comm->lock);
    return offset;
}

uint64_t client_chunk_take(struct client_op *op) {
    return client_in_stream(op) ? take_of_stream(op) : take_of_pool(op);
}

/* comm->lock is held, and no op of this rank is under way. */
bool client_chunks_reset(struct client_comm *comm) {
    for (uint32_t i = 0; i < OCCL_STREAM_CHUNKS; i++) {
        uint64_t user = occl_observe64(&comm->stream_users[i]);
        if (user && !all_left_stream(comm, (uint32_t)user))
            return false;
    }
    for (uint32_t i = 0; i < OCCL_POOL_CHUNKS; i++)
        if (comm->chunks[i].members &&
            !all_left(comm, comm->chunks[i].place, comm->chunks[i].members, NULL))
            return false;
    for (uint32_t i = 0; i < OCCL_STREAM_CHUNKS; i++)
        occl_publish64(&comm->stream_users[i], 0);
    for (uint32_t i = 0; i < OCCL_POOL_CHUNKS; i++)
        comm->chunks[i].members = 0;
    return true;
}

bool client_is_clean(const struct client_op *op) {
    const struct client_comm *comm = op->comm;
    /* Who came before this op has taken its number before, and so is seen to be inside. */
    return op->blocking && client_in_stream(op) && client_comm_users_seen(comm) == 1 &&
           occl_observe32(&comm->pool_ops) == 0;
}

bool client_chunks_done(const struct client_op *op) {
    uint64_t *done = &occl_note_at(&op->comm->m, op->comm->rank)->stream_done;
    if (client_is_clean(op)) {
        occl_publish64(done, 1ull << 32 | (op->key.instance + 1));
        return true;
    }
    /* What it says of earlier ops stays true, and they have no other word of it, until so many ops
     * later it could be taken for one of the future. */
    uint64_t word = occl_peek64(done);
    uint32_t behind = op->key.instance - (uint32_t)word;
    if (word && behind > CLEAN_BEHIND_MAX && (int32_t)behind > 0)
        occl_publish64(done, 0);
    return false;
}

void client_chunks_clean(const struct client_op *op) {
    struct client_comm *comm = op->comm;
    uint32_t known = occl_peek32(&comm->clean_instance), instance = op->key.instance;
    if (!client_in_stream(op))
        return;
    if (!op->look.all_clean)
        (void)clean_instance(comm, instance); /* it follows also where no op needs a chunk */
    else if ((int32_t)(instance - known) > 0)
        occl_publish32(&comm->clean_instance, instance);
}
