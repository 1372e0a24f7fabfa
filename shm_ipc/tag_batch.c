/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/tag_batch.h"

/* When all have voted, but too many cells are marked, others get so many chances to renew theirs.
 */
#define TRIES_MAX 8
/* Each member can add one bit for each cell while the batch is CLOSED; more is an attack. */
#define DECIDE_TRIES (2 * OCCL_TAG_CELLS)
/* Counts that are farther than this from their start cannot be told from those behind it. */
#define REACH_MAX 0x7fffffffu

void occl_tag_member_init(struct occl_tag_member *t, const struct occl_records *m, uint32_t rank) {
    *t = (struct occl_tag_member){
        .batch = (struct occl_tag_batch *)(void *)(m->base + m->tags_offset),
        .votes = (struct occl_tag_vote *)(void *)(m->base + m->tags_offset +
                                                  sizeof(struct occl_tag_batch)),
        .rank = rank,
        .ranks = m->ranks,
        .everybody = m->ranks == 64 ? UINT64_MAX : (1ull << m->ranks) - 1,
    };
}

static bool same_batch(uint64_t a, uint64_t b) {
    return a >> 18 == b >> 18;
}

static void publish(struct occl_tag_member *t, uint32_t cells) {
    struct occl_tag_vote *vote = &t->votes[t->rank];
    for (; cells; cells &= cells - 1) {
        uint32_t cell = (uint32_t)__builtin_ctz(cells);
        occl_note64(&vote->digest[cell], t->digest[cell]);
        occl_note32(&vote->reach[cell], t->reach[cell]);
    }
    occl_publish64(&vote->stale, 0);
    t->marked = 0;
}

void occl_tag_cast_vote(struct occl_tag_member *t) {
    publish(t, OCCL_TAG_CELLS_ALL);
    t->voted = true;
    t->tries = 0;
    (void)occl_or64(&t->batch->voted, 1ull << t->rank);
}

static uint32_t stale_cells(const struct occl_tag_member *t) {
    uint64_t stale = 0;
    for (uint32_t r = 0; r < t->ranks; r++)
        stale |= occl_look64(&t->votes[r].stale);
    return (uint32_t)stale & OCCL_TAG_CELLS_ALL;
}

/* Cells with a collective whose record somebody has not left. All its members have entered it: they
 * had submitted as many ops of its tag. */
static uint32_t cells_in_records(uint64_t word, const struct occl_records *m) {
    uint32_t cells = 0;
    for (uint32_t i = OCCL_PAIRS; i < OCCL_CLAIM_RUN_FIRST; i++) {
        uint64_t claim = occl_observe64(&occl_claim_at(m, i)->word);
        if (!(claim & OCCL_WORD_CLAIMED))
            continue;
        uint64_t hash = occl_tag_hash(OCCL_PEERS_ALL, occl_print_tag(claim));
        uint32_t cell = occl_tag_cell(word, occl_tag_bucket(OCCL_PEERS_ALL, hash));
        if (cell < OCCL_TAG_CELLS)
            cells |= 1u << cell;
    }
    return cells;
}

/* Of these cells the ones in which all members' counts agree; their advance is noted. */
static uint32_t cells_agreed(const struct occl_tag_member *t, uint32_t cells) {
    uint32_t agreed = 0;
    for (; cells; cells &= cells - 1) {
        uint32_t cell = (uint32_t)__builtin_ctz(cells), reach = 0;
        uint64_t sum = 0;
        for (uint32_t r = 0; r < t->ranks; r++) {
            uint32_t theirs = occl_peek32(&t->votes[r].reach[cell]);
            sum += occl_peek64(&t->votes[r].digest[cell]);
            reach = theirs > reach ? theirs : reach;
        }
        if (sum != 0 || reach > REACH_MAX)
            continue;
        agreed |= 1u << cell;
        occl_note32(&t->batch->advance[cell], reach);
    }
    return agreed;
}

/* The batch is OPEN and all have voted. True: this call has decided it. */
static bool evaluate(struct occl_tag_member *t, const struct occl_records *m, uint64_t word) {
    uint32_t stale = stale_cells(t);
    if ((uint32_t)__builtin_popcount(stale) > OCCL_TAG_CELLS / 2 && t->tries++ < TRIES_MAX)
        return false;
    uint64_t closed = occl_tag_word_with(word, OCCL_TAG_CLOSED, 0);
    if (!occl_claim64(&t->batch->word, &word, closed))
        return false;
    uint32_t cells = cells_agreed(t, OCCL_TAG_CELLS_ALL & ~stale_cells(t));
    if (cells)
        cells &= ~cells_in_records(closed, m);
    occl_note64(&t->batch->voted, 0);
    occl_note64(&t->batch->acted, 0);
    word = closed;
    for (uint32_t i = 0; i < DECIDE_TRIES; i++) {
        uint64_t decided =
            occl_tag_word_with(closed, OCCL_TAG_DECIDED, cells & ~occl_tag_cells(word));
        if (occl_claim64(&t->batch->word, &word, decided))
            return true;
        if (!same_batch(word, closed) || occl_tag_phase_of(word) != OCCL_TAG_CLOSED)
            return false; /* scribbled */
    }
    return false;
}

enum occl_tag_task occl_tag_visit(struct occl_tag_member *t, const struct occl_records *m) {
    uint64_t word = occl_look64(&t->batch->word);
    if (!t->voted || !same_batch(word, t->word)) { /* not the same: scribbled */
        t->voted = false;
        t->word = word;
        return occl_tag_phase_of(word) == OCCL_TAG_OPEN ? OCCL_TAG_TASK_VOTE : OCCL_TAG_TASK_NONE;
    }
    if (occl_tag_phase_of(word) == OCCL_TAG_OPEN) {
        if ((occl_look64(&t->batch->voted) & t->everybody) != t->everybody)
            return OCCL_TAG_TASK_NONE;
        if (t->marked)
            publish(t, t->marked);
        if (!evaluate(t, m, word))
            return OCCL_TAG_TASK_NONE;
        word = occl_look64(&t->batch->word);
    }
    if (occl_tag_phase_of(word) != OCCL_TAG_DECIDED)
        return OCCL_TAG_TASK_NONE;
    t->word = word;
    return OCCL_TAG_TASK_ACT;
}

bool occl_tag_touch(struct occl_tag_member *t, uint32_t bucket) {
    uint32_t cell = occl_tag_cell(t->word, bucket);
    if (cell == OCCL_TAG_CELLS || (t->marked >> cell & 1))
        return false;
    uint32_t bit = 1u << cell;
    (void)occl_or64(&t->votes[t->rank].stale, bit);
    uint64_t word = occl_look64(&t->batch->word);
    for (uint32_t i = 0; i < DECIDE_TRIES && same_batch(word, t->word); i++) {
        if (occl_tag_phase_of(word) == OCCL_TAG_DECIDED) {
            t->word = word;
            return true;
        }
        if (occl_tag_phase_of(word) != OCCL_TAG_CLOSED || (word & bit) ||
            occl_claim64(&t->batch->word, &word, word | bit))
            break;
    }
    t->marked |= bit;
    return false;
}

/* Sweeps begin with cells of this level, unless narrower ones are asked for. */
#define LEVEL_FIRST 6u

static void open_batch(struct occl_tag_member *t, uint64_t after, uint32_t widest, uint32_t first,
                       uint32_t level) {
    uint64_t next = occl_tag_word(occl_tag_number(after) + 1, widest, first, level);
    (void)occl_claim64(&t->batch->word, &after, occl_tag_word_with(next, OCCL_TAG_OPEN, 0));
}

/* Cells become narrower where a tag that cannot be forgotten keeps too many others, and wider again
 * from a bucket on where wider ones fit. */
static void open_next(struct occl_tag_member *t, uint64_t word) {
    uint32_t first = occl_tag_first(word), level = occl_tag_level(word);
    uint32_t agreed = (uint32_t)__builtin_popcount(occl_tag_cells(word));
    if (occl_tag_comes_again(word)) {
        level--;
    } else {
        first += occl_tag_span(word);
        if (agreed >= OCCL_TAG_CELLS - 1 && level < OCCL_TAG_LEVEL_MAX &&
            level < occl_tag_widest(word) && first % (OCCL_TAG_CELLS << (level + 1)) == 0)
            level++;
    }
    open_batch(t, word, occl_tag_widest(word), first, level);
}

void occl_tag_acted(struct occl_tag_member *t) {
    uint64_t mine = 1ull << t->rank;
    t->voted = false;
    uint64_t acted = occl_or64(&t->batch->acted, mine) | mine;
    if ((acted & t->everybody) == t->everybody && !occl_tag_sweep_ends(t->word))
        open_next(t, t->word);
}

void occl_tag_propose(struct occl_tag_member *t, uint32_t widest) {
    uint64_t word = occl_look64(&t->batch->word);
    bool is_new = occl_tag_phase_of(word) == OCCL_TAG_NEW;
    bool acted = (occl_look64(&t->batch->acted) & t->everybody) == t->everybody;
    if (!is_new && (occl_tag_phase_of(word) != OCCL_TAG_DECIDED || !acted))
        return;
    if (is_new || occl_tag_sweep_ends(word))
        open_batch(t, word, widest, 0, widest < LEVEL_FIRST ? widest : LEVEL_FIRST);
    else
        open_next(t, word); /* who acted last has not come to it yet */
}
