/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement of a communicator's members on which tags can be forgotten, in the communicator's page.
 * Nobody waits for anybody, and the daemon takes no part: a member that does not come only delays.
 *
 * Each member counts how many ops it has submitted under each (peers, tag). A count can be
 * forgotten when it is equal at all members of these ops: then nobody owes anybody an op. The names
 * are hashed into buckets, half of them for collectives, half for point to point. A count does not
 * begin at 0 but at its bucket's *start*. When the counts of a bucket are forgotten its start
 * advances beyond all of them, by the same number at all members. So (peers, tag, instance) never
 * names two ops, and nothing that is left of an op that has ended (a record, a flag, a claim, a
 * submission in the daemon) can meet an op of the tag's next life.
 *
 * A *batch* looks at OCCL_TAG_CELLS cells of equal width (a power of two) of neighbouring buckets.
 * Each member publishes for each cell a digest of its counts and their reach (how far they are
 * beyond their starts). Digests are weighted so that their sum over all members is 0 when all
 * counts are equal, and by chance once in 2^58 looks else.
 *
 *     word = number:25 | widest level:4 | first bucket:13 | level:4 | phase:2 | cells:16
 *
 *   DECIDED, all members have acted on it --propose--> OPEN (number + 1)
 *   OPEN, all members have voted ---------evaluate---> CLOSED  whoever closes it evaluates it
 *   CLOSED ------------------------------------------> DECIDED cells: what everybody forgets
 *
 * A member that has voted marks a cell before it changes a count in it:
 *
 *   OPEN    it sets the cell's bit in `stale` of its own vote, then looks at the word: if the word
 *           is still OPEN, whoever closes it sees the bit. A later renewal publishes the new digest
 *           and then takes the bit back, so a member that comes often may vote long before one that
 *           comes rarely.
 *   CLOSED  it sets the cell's bit in the word by compare-and-swap; the evaluator's last
 *           compare-and-swap leaves out these cells.
 *   DECIDED it forgets first what is to be forgotten.
 *
 * So in the moment of the decision the counts of a cell that is forgotten are, at every member,
 * those of the digest that was evaluated; and no member uses a count of it before it has acted on
 * the decision. A collective's record is told apart from later ones by 23 bits of the instance: a
 * cell with a collective that somebody has not left (its claim shows the tag) is not forgotten.
 *
 * Memory order (all accesses through atomics.h):
 *
 * | field   | writer      | reader    | store   | load | why                                      |
 * | word    | m           | m         | claim   | look | peek where a member looks for news: it   |
 * |         |             |           |         |      | owes nothing before it has voted         |
 * | voted   | m           | m         | or      | look | publishes the vote                       |
 * | acted   | m           | m         | or      | look | all: the next batch may begin            |
 * | advance | evaluator   | m         | note    | peek | before DECIDED, read after it            |
 * | stale   | the member  | evaluator | or      | look | Dekker with CLOSED; taken back by        |
 * |         |             |           | publish |      | publish, after the digest                |
 * | digest  | the member  | evaluator | note    | peek | before voted or stale, read after them   |
 * | reach   | the member  | evaluator | note    | peek | as digest                                |
 *
 * m: members. `voted` and `acted` are set back by the evaluator: all have voted, none has acted.
 *
 * What members write here is believed by the members of the communicator only, who trust each
 * other: a scribbled word makes counts differ, so that ops of that job wait for their deadline. No
 * index comes from it unchecked, and no loop depends on it. */
#ifndef SHM_IPC_TAG_BATCH_H
#define SHM_IPC_TAG_BATCH_H

#include "shm_ipc/record.h"

#define OCCL_TAG_CELLS 16u
#define OCCL_TAG_CELLS_ALL 0xffffu
/* A tag whose bucket is stuck (counts that stay different, or change all the time) keeps one
 * fresh tag in 4096 from being forgotten. A member keeps 4 bytes a bucket. */
#define OCCL_TAG_BUCKETS 8192
#define OCCL_TAG_LEVEL_MAX 8
/* Where fewer cells agree, the same buckets are looked at again in narrower cells. */
#define OCCL_TAG_CELLS_ENOUGH 13

enum occl_tag_phase {
    OCCL_TAG_NEW = 0, /* no batch yet: the page is new */
    OCCL_TAG_OPEN = 1,
    OCCL_TAG_CLOSED = 2,
    OCCL_TAG_DECIDED = 3,
};

/* A rank's vote. */
struct occl_tag_vote {
    uint64_t stale;
    uint64_t reserved[7];
    uint64_t digest[OCCL_TAG_CELLS];
    uint32_t reach[OCCL_TAG_CELLS];
};
OCCL_ABI_SIZE(occl_tag_vote, 256);
OCCL_ABI_AT(occl_tag_vote, digest, 64);
OCCL_ABI_AT(occl_tag_vote, reach, 192);

/* At occl_comm_page.tags_offset; struct occl_tag_vote votes[ranks] follows. */
struct occl_tag_batch {
    uint64_t word;
    uint64_t reserved0[7];
    uint64_t voted; /* bit r: rank r has voted in the batch that is OPEN */
    uint64_t acted; /* bit r: rank r has acted on the batch that is DECIDED */
    uint64_t reserved1[6];
    uint32_t advance[OCCL_TAG_CELLS];
};
OCCL_ABI_SIZE(occl_tag_batch, OCCL_TAG_BATCH_BYTES);
OCCL_ABI_AT(occl_tag_batch, voted, 64);
OCCL_ABI_AT(occl_tag_batch, advance, 128);
OCCL_STATIC_ASSERT(sizeof(struct occl_tag_vote) == OCCL_TAG_VOTE_BYTES, "as the page has it");

/* ---- the word ---- */
static inline uint64_t occl_tag_word(uint64_t number, uint32_t widest, uint32_t first,
                                     uint32_t level) {
    return number << 39 | (uint64_t)(widest & 15) << 35 |
           (uint64_t)(first & (OCCL_TAG_BUCKETS - 1)) << 22 | (uint64_t)(level & 15) << 18;
}
/* The same batch, farther on. */
static inline uint64_t occl_tag_word_with(uint64_t word, enum occl_tag_phase phase,
                                          uint32_t cells) {
    return word >> 18 << 18 | (uint64_t)phase << 16 | (cells & OCCL_TAG_CELLS_ALL);
}
static inline uint64_t occl_tag_number(uint64_t word) {
    return word >> 39;
}
static inline uint32_t occl_tag_widest(uint64_t word) {
    return (uint32_t)(word >> 35) & 15;
}
static inline uint32_t occl_tag_first(uint64_t word) {
    return (uint32_t)(word >> 22) & (OCCL_TAG_BUCKETS - 1);
}
/* Whatever the word says, a cell has at most 2^OCCL_TAG_LEVEL_MAX buckets. */
static inline uint32_t occl_tag_level(uint64_t word) {
    uint32_t level = (uint32_t)(word >> 18) & 15;
    return level < OCCL_TAG_LEVEL_MAX ? level : OCCL_TAG_LEVEL_MAX;
}
static inline enum occl_tag_phase occl_tag_phase_of(uint64_t word) {
    return (enum occl_tag_phase)((word >> 16) & 3);
}
static inline uint32_t occl_tag_cells(uint64_t word) {
    return (uint32_t)word & OCCL_TAG_CELLS_ALL;
}
/* Buckets that the batch looks at, from its first on. */
static inline uint32_t occl_tag_span(uint64_t word) {
    return OCCL_TAG_CELLS << occl_tag_level(word);
}
/* The cell of a bucket, OCCL_TAG_CELLS: the batch does not look at it. */
static inline uint32_t occl_tag_cell(uint64_t word, uint32_t bucket) {
    uint32_t cell = (bucket - occl_tag_first(word)) >> occl_tag_level(word);
    return bucket >= occl_tag_first(word) && cell < OCCL_TAG_CELLS ? cell : OCCL_TAG_CELLS;
}
/* After a decided batch the same buckets come again, in narrower cells. */
static inline bool occl_tag_comes_again(uint64_t word) {
    return occl_tag_level(word) > 0 &&
           __builtin_popcount(occl_tag_cells(word)) < OCCL_TAG_CELLS_ENOUGH;
}
/* The decided batch is the last one of its sweep over all buckets. */
static inline bool occl_tag_sweep_ends(uint64_t word) {
    return !occl_tag_comes_again(word) &&
           occl_tag_first(word) + occl_tag_span(word) >= OCCL_TAG_BUCKETS;
}

/* ---- names ---- */
static inline uint64_t occl_tag_mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ (x >> 32);
}
/* Each name has a hash of its own. Its upper bits are even for tags that are counted up. One is
 * made for each op, so it is cheap. */
static inline uint64_t occl_tag_hash(uint32_t peers, uint32_t tag) {
    return ((uint64_t)peers << 32 | (peers ^ tag)) * 0x9e3779b97f4a7c15ull;
}
/* The upper 12 bits of the hash choose the bucket: buckets are neighbours in a table in its order.
 */
#define OCCL_TAG_BUCKET_SHIFT 52
static inline uint32_t occl_tag_bucket(uint32_t peers, uint64_t hash) {
    return (uint32_t)(hash >> OCCL_TAG_BUCKET_SHIFT) |
           (peers == OCCL_PEERS_ALL ? 0 : OCCL_TAG_BUCKETS / 2);
}
/* Part of a digest: a count under the name with that hash. Hashes and counts are both regular, so
 * neither may make up for the other. */
static inline uint64_t occl_tag_term(uint64_t hash, uint32_t count) {
    return occl_tag_mix(hash + occl_tag_mix((uint64_t)count + 1));
}

/* ---- a member's side; one thread at a time ---- */
struct occl_tag_member {
    struct occl_tag_batch *batch;
    struct occl_tag_vote *votes;
    uint32_t rank, ranks;
    uint64_t everybody; /* mask of the ranks */
    uint64_t word;      /* of the batch in which the member has voted, or that it acted on last */
    bool voted;         /* and has not acted on it */
    uint32_t marked;    /* cells in which a count may have changed since the digest was published */
    uint32_t tries;     /* looks at others' votes in this batch */
    /* of the counts as they are */
    uint64_t digest[OCCL_TAG_CELLS];
    uint32_t reach[OCCL_TAG_CELLS];
};

/* The page is new, or the member joins none of its batches. */
void occl_tag_member_init(struct occl_tag_member *t, const struct occl_records *m, uint32_t rank);

/* A count under a name goes into this rank's digests with this weight. sends: of a point-to-point
 * op. */
static inline uint64_t occl_tag_weight(const struct occl_tag_member *t, uint32_t peers,
                                       bool sends) {
    if (peers == OCCL_PEERS_ALL)
        return t->rank == 0 ? t->ranks - 1 : (uint64_t)0 - 1;
    return sends ? 1 : (uint64_t)0 - 1;
}

/* Nothing is to be done: true nearly always, at the price of one load. */
static inline bool occl_tag_quiet(const struct occl_tag_member *t) {
    return !t->voted && occl_peek64(&t->batch->word) == t->word;
}

enum occl_tag_task {
    OCCL_TAG_TASK_NONE = 0,
    OCCL_TAG_TASK_VOTE =
        1, /* fill digest and reach for the batch of `word`, then occl_tag_cast_vote */
    OCCL_TAG_TASK_ACT = 2, /* forget and advance as `word` says, then occl_tag_acted */
};
/* What the member has to do; renews its vote and evaluates the batch where it can. Bounded. */
enum occl_tag_task occl_tag_visit(struct occl_tag_member *t, const struct occl_records *m);
/* The member's digests are those of its counts in the batch of `word`. */
void occl_tag_cast_vote(struct occl_tag_member *t);
/* The member, which has voted, is about to change a count of this bucket. True: the batch has been
 * decided, act on it first. Bounded. */
bool occl_tag_touch(struct occl_tag_member *t, uint32_t bucket);
/* By how much the starts of a cell of the decided batch advance. */
static inline uint32_t occl_tag_advance(const struct occl_tag_member *t, uint32_t cell) {
    return occl_peek32(&t->batch->advance[cell]);
}
/* The member has forgotten and advanced. Who comes last goes on with the sweep. */
void occl_tag_acted(struct occl_tag_member *t);
/* Asks for a sweep over all buckets, unless one is under way. widest: no cell of it has more than
 * 2^widest buckets; at most OCCL_TAG_LEVEL_MAX. */
void occl_tag_propose(struct occl_tag_member *t, uint32_t widest);

#endif
