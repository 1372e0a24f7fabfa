/* SPDX-License-Identifier: Apache-2.0 */
/* Instance counters: how often this rank has submitted an op under (peers, tag); and forgetting
 * them once all ranks agree (shm_ipc/tag_batch.h), so that a program may use a new tag for each op.
 * The untagged collective stream has a counter of its own, because it is what most programs use and
 * then nothing is hashed. */
#include <stdlib.h>

#include "client_lib/tag_table.h"

/* Below it a table is not worth a sweep: 32 KiB. */
#define LIMIT_MIN 1024u

void client_tags_init(struct client_comm *comm) {
    comm->tags.limit = LIMIT_MIN;
    comm->tags.widest = OCCL_TAG_LEVEL_MAX;
    comm->tags.kept = 0;
    occl_tag_member_init(&comm->tags.member, &comm->m, comm->rank);
}

void client_tags_in_child(struct client_comm *comm) {
    comm->tags.slots = NULL;
    comm->tags.starts = NULL;
    comm->tags.capacity = comm->tags.used = 0;
}

void client_tags_free(struct client_comm *comm) {
    free(comm->tags.slots);
    free(comm->tags.starts);
    client_tags_in_child(comm);
}

static uint32_t start_of(const struct client_tags *tags, uint32_t bucket) {
    return tags->starts ? tags->starts[bucket] : 0;
}

/* ---- this rank's digests ---- */

/* A counter that is where it would start again is as good as none: other ranks may have none. */
static uint64_t term(const struct client_tags *tags, uint32_t bucket, uint64_t hash,
                     uint32_t count) {
    return count == start_of(tags, bucket) ? 0 : occl_tag_term(hash, count);
}

/* The digest of the bucket's cell, after it was touched: a counter goes from one value to another.
 */
static void recount(struct client_tags *tags, uint64_t name, uint64_t hash, uint32_t from,
                    uint32_t to) {
    struct occl_tag_member *member = &tags->member;
    uint32_t bucket = occl_tag_bucket(client_tag_peers(name), hash);
    uint32_t cell = occl_tag_cell(member->word, bucket), reach = to - start_of(tags, bucket);
    if (!member->voted || cell == OCCL_TAG_CELLS)
        return;
    member->digest[cell] +=
        (term(tags, bucket, hash, to) - term(tags, bucket, hash, from)) *
        occl_tag_weight(member, client_tag_peers(name), !client_tag_receives(name));
    if (reach > member->reach[cell])
        member->reach[cell] = reach;
}

static bool add_to_digest(void *arg, uint64_t hash, const struct client_tag *tag) {
    struct client_tags *tags = arg;
    struct occl_tag_member *member = &tags->member;
    uint32_t bucket = occl_tag_bucket(client_tag_peers(tag->name), hash);
    uint32_t cell = occl_tag_cell(member->word, bucket);
    uint32_t reach = tag->next_instance - start_of(tags, bucket);
    if (cell == OCCL_TAG_CELLS)
        return true; /* of the other half of the buckets */
    member->digest[cell] +=
        term(tags, bucket, hash, tag->next_instance) *
        occl_tag_weight(member, client_tag_peers(tag->name), !client_tag_receives(tag->name));
    if (reach > member->reach[cell])
        member->reach[cell] = reach;
    return true;
}

/* The upper bits of the hashes that a batch looks at. */
static uint32_t first_of(uint64_t word) {
    return occl_tag_first(word) % (OCCL_TAG_BUCKETS / 2);
}

static void vote(struct client_tags *tags) {
    struct occl_tag_member *member = &tags->member;
    if (!tags->starts)
        tags->starts = calloc(OCCL_TAG_BUCKETS, sizeof *tags->starts);
    if (!tags->starts) {
        member->word = 0; /* a later visit tries again; the others go on without forgetting */
        return;
    }
    for (uint32_t cell = 0; cell < OCCL_TAG_CELLS; cell++) {
        member->digest[cell] = 0;
        member->reach[cell] = 0;
    }
    client_tag_table_walk(tags, first_of(member->word), occl_tag_span(member->word), add_to_digest,
                          tags);
    occl_tag_cast_vote(member);
}

/* ---- acting on a decision ---- */

static bool not_agreed(void *arg, uint64_t hash, const struct client_tag *tag) {
    struct client_tags *tags = arg;
    uint64_t word = tags->member.word;
    uint32_t cell = occl_tag_cell(word, occl_tag_bucket(client_tag_peers(tag->name), hash));
    bool looked_at = cell < OCCL_TAG_CELLS;
    if (looked_at && (occl_tag_cells(word) >> cell & 1))
        return false;
    tags->kept += looked_at && !occl_tag_comes_again(word);
    return true;
}

/* After a sweep. What it has kept is in use: the next one comes when as much has been added, but no
 * later than half way to the end. Or it was kept because it shares a cell with what is in use: then
 * the next one's cells are narrower. */
static void set_limit(struct client_tags *tags) {
    if (tags->kept > tags->limit / 4 && tags->widest > 0)
        tags->widest--;
    else if (tags->kept < tags->limit / 8 && tags->widest < OCCL_TAG_LEVEL_MAX)
        tags->widest++;
    uint32_t room = tags->kept < OCCL_QUOTA_LIVE_TAGS ? OCCL_QUOTA_LIVE_TAGS - tags->kept : 0;
    uint32_t more = tags->kept < room / 2 ? tags->kept : room / 2;
    tags->limit = tags->kept + more > LIMIT_MIN ? tags->kept + more : LIMIT_MIN;
    tags->kept = 0;
    uint32_t capacity = tags->capacity;
    while (capacity / 4 >= tags->limit && capacity / 4 >= tags->used)
        capacity /= 2;
    if (capacity < tags->capacity)
        (void)client_tag_table_resize(tags, capacity); /* else it stays large */
}

static void act(struct client_tags *tags) {
    struct occl_tag_member *member = &tags->member;
    uint64_t word = member->word;
    client_tag_table_walk(tags, first_of(word), occl_tag_span(word), not_agreed, tags);
    for (uint32_t i = 0; tags->starts && i < occl_tag_span(word); i++) {
        uint32_t bucket = (occl_tag_first(word) + i) % OCCL_TAG_BUCKETS;
        uint32_t cell = i >> occl_tag_level(word);
        if (occl_tag_cells(word) >> cell & 1)
            tags->starts[bucket] += occl_tag_advance(member, cell);
    }
    if (occl_tag_sweep_ends(word))
        set_limit(tags);
    occl_tag_acted(member);
}

/* comm->lock is held. */
static void visit(struct client_comm *comm) {
    enum occl_tag_task task = occl_tag_visit(&comm->tags.member, &comm->m);
    if (task == OCCL_TAG_TASK_VOTE)
        vote(&comm->tags);
    else if (task == OCCL_TAG_TASK_ACT)
        act(&comm->tags);
}

void client_tags_visit(struct client_comm *comm) {
    if (pthread_mutex_trylock(&comm->lock))
        return; /* whoever has it submits, and visits then */
    if (!occl_tag_quiet(&comm->tags.member))
        visit(comm);
    pthread_mutex_unlock(&comm->lock);
}

/* ---- numbers ---- */

static int insert(struct client_comm *comm, uint64_t name, uint64_t hash, struct client_tag **out) {
    struct client_tags *tags = &comm->tags;
    if (tags->used >= tags->limit)
        occl_tag_propose(&tags->member, tags->widest);
    if (tags->used >= OCCL_QUOTA_LIVE_TAGS)
        return client_fail(OCCL_E_QUOTA,
                           "communicator %s: %u live tags, the limit; a tag lives until all its "
                           "ranks have submitted as many operations under it and all ranks of the "
                           "communicator have since called it: use fewer distinct ones",
                           comm->name, tags->used);
    if (tags->used * 2 >= tags->capacity) {
        uint32_t capacity = tags->capacity ? tags->capacity * 2 : CLIENT_TAGS_SLOTS_MIN;
        if (client_tag_table_resize(tags, capacity))
            return client_fail(OCCL_E_NO_MEMORY, "no memory for %u tag counters", capacity);
    }
    struct client_tag *tag = client_tag_find(tags, name, hash);
    tag->name = name;
    tag->next_instance = start_of(tags, occl_tag_bucket(client_tag_peers(name), hash));
    tags->used++;
    *out = tag;
    return OCCL_OK;
}

int client_tag_next(struct client_op *op, uint32_t *out_instance) {
    struct client_comm *comm = op->comm;
    struct client_tags *tags = &comm->tags;
    bool quiet = occl_tag_quiet(&tags->member);
    if (!quiet)
        visit(comm);
    if (op->peers == OCCL_PEERS_ALL && op->tag == 0) {
        *out_instance = occl_add32(&comm->untagged_next, 1); /* enter_joined_run takes no lock */
        return OCCL_OK;
    }
    uint64_t hash = occl_tag_hash(op->peers, op->tag);
    uint64_t name = client_tag_name(op->peers, op->tag, op->sig.kind == OCCL_OP_RECV);
    if (tags->member.voted && occl_tag_touch(&tags->member, occl_tag_bucket(op->peers, hash)))
        act(tags);
    struct client_tag *tag = tags->capacity ? client_tag_find(tags, name, hash) : NULL;
    if (!tag || tag->name == 0) {
        int status = insert(comm, name, hash, &tag);
        if (status)
            return status;
    }
    recount(tags, name, hash, tag->next_instance, tag->next_instance + 1);
    *out_instance = tag->next_instance++;
    return OCCL_OK;
}

void client_tag_back(struct client_op *op, uint32_t instance) {
    struct client_comm *comm = op->comm;
    if (op->peers == OCCL_PEERS_ALL && op->tag == 0) {
        uint32_t after = instance + 1;
        (void)occl_claim32(&comm->untagged_next, &after, instance);
        return;
    }
    uint64_t hash = occl_tag_hash(op->peers, op->tag);
    uint64_t name = client_tag_name(op->peers, op->tag, op->sig.kind == OCCL_OP_RECV);
    struct client_tag *tag = client_tag_find(&comm->tags, name, hash);
    if (tag->next_instance != instance + 1)
        return;
    recount(&comm->tags, name, hash, instance + 1, instance);
    tag->next_instance = instance;
}
