/* SPDX-License-Identifier: Apache-2.0 */
/* The arrival record: how the ranks of a communicator on one node meet. Every submit first goes to
 * the record of its op in the communicator's page, whatever its size and path. The page is shared
 * by the communicator's ranks (who trust each other) and the daemon (who believes nothing in it).
 *
 * One op, one record. The record of an op (its slot) is a function of its key, so two ranks never
 * look in different places. A record belongs to a *claim*; the claim's `word` says for which ops:
 *
 *     word = overflow:15 | claimed:1 | print:48
 *
 *   free, overflow 0     -> the first rank claims it for its key
 *   claimed, same print  -> a later rank joins
 *   anything else        -> the op goes through the ring, and the rank adds 1 to overflow *in the
 *                           same compare-and-swap that saw the claim busy*
 *
 * The untagged stream of a communicator, which all ranks walk in the same order, claims runs of
 * OCCL_RUN_OPS records at once, so that all but one of its small ops touch no shared word but the
 * lines of their members. Every other op claims a single record.
 *
 * While overflow is not 0 nobody claims, so all members of an op whose first member went through
 * the ring follow it there: an op is never half in a record and half in the ring. The daemon
 * subtracts 1 for each member whose ring op it has retired, and it retires an op only when *all*
 * its members have submitted it (or the communicator has ended): an op that was withdrawn or timed
 * out before keeps its counts, else its late members would find the claim free and wait there
 * alone. In a run the ops that took the ring are always the first ones: once a rank has joined a
 * claim it stays until that rank has left every later op of the run.
 *
 * For collectives the print is exact: tag (31 bits) and the instance bits above the slot number (16
 * bits); at most 2^22 instances of one tag are alive. For point to point it is a hash of (peers,
 * tag, instance) and the full key is compared when both lines are there (a collision, one in 2^47
 * pairs that meet in a slot, is reported as a mismatch of the key, never executed).
 *
 * Arrival. Each member has a line; the line's `flag` holds the print of the last op for which it
 * was used, so nobody has to reset it:
 *
 *     flag = print:48 | bits:16       other print: the member is missing; this op's print: READY
 *                                     (with what it brings) or POISONED
 *
 * A missing member's flag changes once in the op, by compare-and-swap, to READY (by the member) or
 * to POISONED (by whoever ends the op before all have come). So the flags alone decide, and once
 * decided it stays (occl_record_look):
 *
 *   SOURCE with IN_PAGE there ------> DIRECT   whoever else is missing: broadcast root, sender
 *   else some are missing ----------> OPEN     also if others are POISONED: a source may yet come
 *   else some POISONED -------------> ABORTED  for the reason in `state`
 *   else all IN_PAGE ---------------> DIRECT   every member reads the others' payload
 *   else ---------------------------> ALL      the bytes are elsewhere: `state` goes on
 *
 *   state: OPEN --ALL, equal signatures---------------> LOCAL    (a member that saw ALL)
 *          OPEN --ALL, signatures differ--------------> ABORTED  (a member that saw ALL)
 *          OPEN --deadline, abort, revoke, death------> ABORTED  (member, daemon), then poison
 *          LOCAL --last strand done-------------------> DONE     (its executor)
 *          LOCAL --abort, revoke, death, fault--------> ABORTED  (member, daemon)
 *
 * Who ends an op writes the reason first and poisons the missing flags then; whoever sees the
 * reason helps to poison. If all flags became READY meanwhile nothing is poisoned: a DIRECT op is
 * then complete for everybody, whatever `state` says, and an ALL op is aborted for everybody. So
 * each member ends exactly once and the same way. A member that arrives at an aborted op learns the
 * reason and leaves. The claim becomes free when all members have left all its ops.
 *
 * A member may touch a record until it has left, for the claim cannot become free before. A lane is
 * no member: the record it was told of may be free, or serve another op, before it gets there. So
 * it enters (occl_record_lane_enter), which holds the claim and then checks whose it is. The
 * daemon's control loop does not enter: what it reads may belong to a later op than it thinks. When
 * the whole communicator ends, every open record is a right target; when one member has left, it
 * looks at the claim again after it has judged the flags, because an op that needs that member can
 * never end by itself. It poisons a flag only from a value that it saw while the claim was the
 * op's, which is another once the member came.
 *
 * Memory order (all accesses through atomics.h; C the claim, 0 and 1 lines of the record, L of a
 * rank):
 *
 * | field        | writer    | reader    | store      | load    | line | why                      |
 * | word         | m, daemon | m, daemon | claim, add | observe | C    | (1)                      |
 * | left         | m, lanes  | m, lanes  | add, claim | look    | C    | (4)                      |
 * | state        | m, daemon | m, daemon | claim      | look    | 0    | (2)                      |
 * | event        | m, daemon | m         | add        | observe | 0    | futex word, changed only |
 * |              |           |           |            |         |      | when somebody sleeps     |
 * | sleepers     | m         | m, daemon | add        | look    | 0    | Dekker with flags, state |
 * | strands_next | executors | executors | add        | peek    | 1    | claim strands, each of   |
 * |              |           |           |            |         |      | one segment              |
 * | strands_done | executors | executors | add        | -       | 1    | (5)                      |
 * | lanes_busy   | lanes     | m         | add        | look    | 1    | Dekker with state (6)    |
 * | line.flag    | m, daemon | m, daemon | claim      | look    | L    | (3)                      |
 * | line.busy    | the rank  | m, daemon | add        | look    | L    | as (6), per rank         |
 * | line.waiters | the rank  | m, daemon | note       | peek    | L    | 1: it sleeps; for `why`  |
 * | line.after   | the rank  | daemon    | publish    | peek    | L    | held back; for `why`     |
 *
 * m: members. (1) Owns the records; the last one's clear publishes the reset fields to whoever
 * claims next. (2) Decides; seeing DONE makes the output of all strands visible, because each
 * executor adds to strands_done before. (3) READY publishes the line's contents; the last store of
 * an op into its flag, LEFT, says that the member reads nobody's payload any more. (4) left:16,
 * lanes inside << 16; whoever makes it equal the number of members resets. (5) Release of output
 * bytes; the last adder acquires them all. (6) An aborted op's buffers are safe when nobody
 * executes: an executor raises it and then looks at the state, an aborter decides the state and
 * then looks at it. Per rank it can be ignored once the rank is dead.
 */
#ifndef SHM_IPC_RECORD_H
#define SHM_IPC_RECORD_H

#include <stdbool.h>

#include "shm_ipc/abi.h"
#include "shm_ipc/atomics.h"
#include "shm_ipc/status.h"

enum occl_record_state {
    OCCL_REC_OPEN = 0,
    OCCL_REC_LOCAL = 2,
    OCCL_REC_DONE = 3,
    OCCL_REC_ABORTED = 4,
};
/* state word = kind:8 | negated status:8 | about_rank:16, decided in one compare-and-swap. The rank
 * is the one the status is about: who died, revoked, let the deadline pass or described the op
 * differently. OPEN, LOCAL and DONE carry neither. */
#define OCCL_REC_WORD(kind, status, rank) \
    ((uint32_t)(kind) | ((uint32_t)(uint8_t)(-(status)) << 8) | ((uint32_t)(uint16_t)(rank) << 16))
static inline uint32_t occl_rec_kind(uint32_t state) {
    return state & 0xffu;
}
static inline int occl_rec_status(uint32_t state) {
    return -(int)((state >> 8) & 0xffu);
}
static inline uint32_t occl_rec_rank(uint32_t state) {
    return state >> 16;
}

/* Low bits of a flag. */
enum occl_flag_bits {
    OCCL_FLAG_READY = 1,    /* arrived: the line is valid */
    OCCL_FLAG_POISONED = 2, /* the op ended before the member came */
    OCCL_FLAG_BLOCKED = 4,  /* its thread stays until the op is decided, and helps */
    OCCL_FLAG_IN_PAGE = 8,  /* what it contributes is in the page, or it contributes nothing */
    OCCL_FLAG_SOURCE = 16,  /* its payload is all that the others need */
    OCCL_FLAG_LEFT = 32,    /* it has left an op whose payload lies in chunks */
    OCCL_FLAG_CLEAN = 64,   /* it has left all ops of the untagged stream before this one */
    OCCL_FLAG_GIVES = 128,  /* it waits for nobody, but others need its payload */
    /* From here on: the member's version of the selection table; the lowest wins. */
    OCCL_FLAG_SELECTION_SHIFT = 8,
};
static inline uint64_t occl_flag_make(uint64_t print, uint32_t bits) {
    return print << 16 | bits;
}
/* Bits of a flag in the op with this print; 0: the member is missing. */
static inline uint32_t occl_flag_bits_of(uint64_t flag, uint64_t print) {
    return flag >> 16 == print ? (uint32_t)flag & 0xffffu : 0;
}

/* A rank's part of a record: 256 bytes. The first line is all that a tiny op touches. */
struct occl_line {
    uint64_t flag;
    /* key and signature, packed: occl_line_key, occl_line_signature. Equal in all members' lines
     * but for `kind` of a send and a receive, and compared as a whole first. */
    uint64_t count;
    uint32_t tag;
    uint32_t instance;
    uint8_t kind;
    uint8_t dtype;
    uint8_t redop;
    uint8_t root;
    uint16_t peers; /* source << 8 | destination; OCCL_LINE_PEERS_ALL */
    uint16_t program_id;
    union {
        struct {
            struct occl_buffer_ref src;
            struct occl_buffer_ref dst;
        } ref;
        uint8_t tiny[OCCL_TINY_BYTES]; /* payload of a tiny op, in place of ref */
    } u;
    /* cache line 1: written only when the op is not complete at once, or has more to describe. The
     * rank sets what it wrote back to 0 before it leaves, but for factor and vector, which mean
     * something only for the ops that have them. */
    uint64_t submit_ticks;
    uint64_t wait_since_ticks; /* 0: nobody of this rank sleeps on the op */
    uint32_t waiters;
    uint32_t busy;
    uint64_t factor;               /* of a premultiplied sum (reduce.h) */
    struct occl_buffer_ref vector; /* of a kind whose blocks differ (vector.h) */
    /* Held back: the rank has its place in the op, with key and signature in this line, but arrives
     * only after another op of its own, possibly of another communicator. */
    uint32_t after;     /* how many are left, 0: it is not held back | peers of one of them << 16 */
    uint32_t after_tag; /* and its tag, its instance */
    uint32_t after_instance;
    uint32_t after_comm; /* number of that op's communicator in the rank's session */
    /* cache lines 2, 3 */
    uint8_t inlined[OCCL_INLINE_BYTES];
};
OCCL_ABI_SIZE(occl_line, 256);
OCCL_ABI_AT(occl_line, u, 32);
OCCL_ABI_AT(occl_line, submit_ticks, 64);
OCCL_ABI_AT(occl_line, factor, 88);
OCCL_ABI_AT(occl_line, vector, 96);
OCCL_ABI_AT(occl_line, after, 112);
OCCL_ABI_AT(occl_line, inlined, 128);
#define OCCL_LINE_PEERS_ALL 0xffffu
OCCL_STATIC_ASSERT(OCCL_LOCAL_RANKS_MAX <= 255, "a rank fits into a byte of a line");

struct occl_record {
    uint32_t state;
    uint32_t event;
    uint32_t sleepers;
    uint32_t reserved0[13];
    /* cache line 1: only LOCAL ops */
    uint32_t strands_next[OCCL_STRAND_SEGMENTS];
    uint32_t strands_done;
    uint32_t lanes_busy;
    uint32_t reserved1[6];
    /* struct occl_line lines[ranks] follows */
};
OCCL_ABI_SIZE(occl_record, 128);
OCCL_ABI_AT(occl_record, strands_next, 64);

struct occl_claim {
    uint64_t word;
    uint32_t left;
    uint32_t reserved[13];
};
OCCL_ABI_SIZE(occl_claim, OCCL_CACHE_LINE_BYTES);

/* What a rank did last, and its counters: one per rank, single writer (the rank, relaxed). */
struct occl_rank_note {
    struct occl_op_key last_key; /* last op that completed on this rank */
    uint32_t last_kind;
    uint64_t last_ticks;
    uint64_t ops_done;
    uint64_t bytes_done;     /* payload bytes of completed ops */
    uint64_t bytes_executed; /* bytes this rank's threads moved in strands: charged to the job */
    uint64_t errors;
    /* 1 << 32 | instance: the rank reads no payload of the untagged stream's ops before that one;
     * 0: their flags tell. Published by the rank while it has one op at a time. */
    uint64_t stream_done;
    /* cache line 1: seldom written, for next to it in memory is what another rank writes often, and
     * a processor that sees two lines written fetches the third */
    /* An error of an op that had completed here before its peers' mismatch was known (broadcast
     * root, buffered send): OCCL_REC_WORD(field, status, rank), set once by the peer that found it.
     */
    uint32_t async_error;
    uint32_t async_kind; /* enum occl_op_kind */
    /* Core on which the rank last arrived at an op: a waiter on the same core gives it up, one on
     * another core does not gain by that. A hint. */
    uint32_t cpu;
    uint32_t async_told;    /* 1: what follows of the error is there, published after async_error */
    uint64_t probe_address; /* the rank's address of its own probe word, for cross-memory attach */
    /* The field's value as this rank and as the peer described the op; of a block, its elements as
     * one sends and the other expects it. */
    uint64_t async_mine, async_theirs;
    struct occl_op_key async_key;
    uint32_t reserved[3];
};
OCCL_ABI_SIZE(occl_rank_note, 128);

enum occl_comm_state {
    OCCL_COMM_LIVE = 0,
    OCCL_COMM_FAILED = 1,  /* a member died: about_rank */
    OCCL_COMM_REVOKED = 2, /* by about_rank */
    OCCL_COMM_ABORTED = 3,
};

/* Start of a communicator page. Written by the daemon before it hands the page out; later only
 * comm_state and the masks change (by the daemon; members may also set comm_state). */
struct occl_comm_page {
    uint64_t magic;
    uint32_t abi_version;
    uint32_t ranks;
    uint64_t page_bytes;
    uint64_t comm_uid; /* node-wide number, for messages and tools */
    uint32_t records;
    uint32_t record_stride; /* bytes */
    uint64_t records_offset;
    uint64_t notes_offset;
    uint64_t payload_offset; /* rank r's chunks start at payload_offset + r * payload_stride */
    uint32_t payload_stride;
    uint32_t payload_chunk_bytes;
    /* cache line 1 .. */
    uint64_t claims_offset; /* OCCL_CLAIMS of them */
    uint64_t tags_offset;   /* struct occl_tag_batch (tag_batch.h) */
    uint32_t reserved0[10];
    /* cache line 2 */
    uint32_t comm_state; /* kind:8 | status:8 | rank:16, built with OCCL_REC_WORD */
    uint32_t reserved1;
    uint64_t dead_mask; /* bit r: rank r has left, or its session has ended: it comes no more */
    uint64_t gone_mask; /* of these: its process has exited, and executes nothing any more */
    uint32_t reserved2[10];
    /* cache line 3: the nonces that prove cross-memory attach works (daemon-chosen) */
    uint64_t probe_nonce;
    uint64_t reserved3[7];
};
OCCL_ABI_SIZE(occl_comm_page, 256);
OCCL_ABI_AT(occl_comm_page, comm_state, 128);
/* What members agree with on tags to forget: the batch, then a vote for each rank (tag_batch.h). */
#define OCCL_TAG_BATCH_BYTES (3 * OCCL_CACHE_LINE_BYTES)
#define OCCL_TAG_VOTE_BYTES (4 * OCCL_CACHE_LINE_BYTES)

/* ---- geometry ---- */
/* A rank may send to itself, also in a communicator of one: a record has at least two lines. */
static inline uint32_t occl_record_lines(uint32_t ranks) {
    return ranks < 2 ? 2 : ranks;
}
static inline uint64_t occl_record_stride(uint32_t ranks) {
    return sizeof(struct occl_record) +
           (uint64_t)occl_record_lines(ranks) * sizeof(struct occl_line);
}
/* Fills the constant part of a page header. ranks in 1..OCCL_LOCAL_RANKS_MAX. */
void occl_comm_page_layout(uint32_t ranks, uint64_t comm_uid, struct occl_comm_page *out_header);

/* A mapping of a communicator page with the geometry its holder believes: copied out of the header
 * once (client: after checking it; daemon: its own layout), never read from the page again. */
struct occl_records {
    char *base;
    uint64_t page_bytes;
    uint32_t ranks;
    uint32_t records;
    uint64_t record_stride;
    uint64_t records_offset;
    uint64_t claims_offset;
    uint64_t notes_offset;
    uint64_t tags_offset;
    uint64_t payload_offset;
    uint32_t payload_stride;
    uint32_t payload_chunk_bytes;
};
/* Checks the header of a mapping of mapped_bytes and fills *out. OCCL_E_VERSION, OCCL_E_PROTOCOL.
 */
int occl_records_open(void *base, uint64_t mapped_bytes, struct occl_records *out);

static inline struct occl_comm_page *occl_records_header(const struct occl_records *m) {
    return (struct occl_comm_page *)(void *)m->base;
}
static inline struct occl_record *occl_record_at(const struct occl_records *m, uint32_t slot) {
    return (struct occl_record *)(void *)(m->base + m->records_offset + slot * m->record_stride);
}
/* Claims: one for each record of a pair or a tagged collective, then one for each run. A claim
 * always has the same number of members, which a lane relies on: it holds a claim before it knows
 * whose it is. */
#define OCCL_CLAIM_RUN_FIRST (OCCL_PAIRS + OCCL_SINGLES)
static inline uint32_t occl_claim_index(uint32_t slot) {
    return slot < OCCL_CLAIM_RUN_FIRST
               ? slot
               : OCCL_CLAIM_RUN_FIRST + (slot - OCCL_CLAIM_RUN_FIRST) / OCCL_RUN_OPS;
}
static inline struct occl_claim *occl_claim_at(const struct occl_records *m, uint32_t index) {
    return (struct occl_claim *)(void *)(m->base + m->claims_offset) + index;
}
static inline struct occl_claim *occl_claim_of(const struct occl_records *m, uint32_t slot) {
    return occl_claim_at(m, occl_claim_index(slot));
}
/* First record of a claim, how many, and the members of their ops. */
static inline uint32_t occl_claim_first(uint32_t index) {
    return index < OCCL_CLAIM_RUN_FIRST
               ? index
               : OCCL_CLAIM_RUN_FIRST + (index - OCCL_CLAIM_RUN_FIRST) * OCCL_RUN_OPS;
}
static inline uint32_t occl_claim_records(uint32_t index) {
    return index < OCCL_CLAIM_RUN_FIRST ? 1 : OCCL_RUN_OPS;
}
static inline uint32_t occl_claim_members(uint32_t index, uint32_t ranks) {
    return index < OCCL_PAIRS ? 2 : ranks;
}
static inline struct occl_line *occl_line_at(struct occl_record *rec, uint32_t index) {
    return (struct occl_line *)(void *)((char *)rec + sizeof *rec) + index;
}
static inline struct occl_rank_note *occl_note_at(const struct occl_records *m, uint32_t rank) {
    return (struct occl_rank_note *)(void *)(m->base + m->notes_offset) + rank;
}

/* ---- slots and prints ---- */
#define OCCL_WORD_PRINT_MASK 0x0000ffffffffffffull
#define OCCL_WORD_CLAIMED (1ull << 48)
#define OCCL_WORD_OVERFLOW_ONE (1ull << 49)
#define OCCL_WORD_OVERFLOW_SHIFT 49
#define OCCL_WORD_OVERFLOW_MAX 0x7fffu

struct occl_place {
    uint32_t slot; /* number of the record */
    uint64_t print;
};
/* Slot and print of a key. */
struct occl_place occl_place_of(struct occl_op_key key);
/* Tag of the print of a collective with a tag. */
static inline uint32_t occl_print_tag(uint64_t print) {
    return (uint32_t)(print >> 16) & (OCCL_TAG_LIMIT - 1);
}

enum occl_enter {
    OCCL_ENTER_CLAIMED = 0, /* first of its op here */
    OCCL_ENTER_JOINED = 1,
    OCCL_ENTER_RING = 2, /* overflow was counted: this rank must submit through the ring */
    OCCL_ENTER_FULL = 3, /* nothing was counted, the counter is at its end: OCCL_WOULD_BLOCK */
};
/* One attempt, wait-free but for contention on the word. With count_overflow false a busy claim
 * returns OCCL_ENTER_RING without counting, so that the caller may look again first. */
enum occl_enter occl_claim_enter(struct occl_claim *claim, uint64_t print, bool count_overflow);
/* Takes back one overflow count: a member whose ring op was retired (daemon), or that could not
 * submit after all (client). Wait-free: a member that scribbles the word cannot hold up a lane. */
void occl_claim_overflow_drop(struct occl_claim *claim);

/* ---- arrival ---- */
static inline struct occl_signature occl_line_signature(const struct occl_line *l) {
    struct occl_signature s = {
        l->kind, l->dtype,      l->redop, (uint8_t)(l->flag >> OCCL_FLAG_SELECTION_SHIFT),
        l->root, l->program_id, 0,        l->count};
    return s;
}
static inline uint32_t occl_peers_unpack(uint16_t packed) {
    return packed == OCCL_LINE_PEERS_ALL ? OCCL_PEERS_ALL
                                         : (uint32_t)(packed >> 8) << 16 | (packed & 0xffu);
}
static inline uint16_t occl_peers_pack(uint32_t peers) {
    return peers == OCCL_PEERS_ALL ? OCCL_LINE_PEERS_ALL
                                   : (uint16_t)((peers >> 16 & 0xffu) << 8 | (peers & 0xffu));
}
static inline struct occl_op_key occl_line_key(const struct occl_line *l) {
    struct occl_op_key key = {occl_peers_unpack(l->peers), l->tag, l->instance};
    return key;
}
static inline struct occl_op_key occl_line_after(const struct occl_line *l) {
    struct occl_op_key key = {occl_peers_unpack((uint16_t)(l->after >> 16)), l->after_tag,
                              l->after_instance};
    return key;
}
static inline uint32_t occl_line_after_count(const struct occl_line *l) {
    return l->after & 0xffffu;
}
/* A line that names its buffers: they are one. All executors of an op ask the same lines. */
static inline bool occl_line_in_place(const struct occl_line *l) {
    const struct occl_buffer_ref *src = &l->u.ref.src, *dst = &l->u.ref.dst;
    return src->space != OCCL_SPACE_NONE && src->space == dst->space &&
           src->region == dst->region && src->offset == dst->offset;
}
/* Ranks of the key and the signature are below OCCL_LOCAL_RANKS_MAX. */
void occl_line_fill(struct occl_line *line, struct occl_op_key key,
                    const struct occl_signature *sig);

/* Publishes the filled line. False: the op was ended before, the line was not published. */
bool occl_record_arrive(struct occl_line *line, uint64_t print, uint32_t bits);

enum occl_outcome {
    OCCL_OUT_OPEN = 0,
    OCCL_OUT_DIRECT = 1,
    OCCL_OUT_ALL = 2,
    OCCL_OUT_ABORTED = 3,
};
struct occl_look {
    enum occl_outcome outcome;
    uint32_t first_missing; /* first member that is neither READY nor POISONED; else `members` */
    uint64_t ready_mask, source_mask, blocked_mask; /* bit i: line i */
    uint64_t alone_mask; /* sources and givers: those that may have ended already */
    bool all_clean;      /* all members are READY and CLEAN */
    uint32_t state;      /* seen after the flags */
};
/* What the flags say of the op with this print: see the table at the top. Bounded. */
void occl_record_look(struct occl_record *rec, uint64_t print, uint32_t members,
                      struct occl_look *out_look);

/* First field in which two signatures differ; send and recv of one message agree. */
enum occl_signature_field occl_signature_differ(const struct occl_signature *a,
                                                const struct occl_signature *b);
/* First field in which two ready lines of one op differ, the key included. */
enum occl_signature_field occl_line_differ(const struct occl_line *a, const struct occl_line *b);
/* Compares every line of mask with line `mine`; *out_index gets the first that differs. */
enum occl_signature_field occl_record_mismatch(struct occl_record *rec, uint64_t mask,
                                               uint32_t mine, uint32_t *out_index);

/* Moves OPEN (from = OCCL_REC_OPEN) or LOCAL to `to_word`. False: somebody else decided; *out_now
 * holds the state found. The caller wakes sleepers (wake.h) when true. */
static inline bool occl_record_decide(struct occl_record *rec, uint32_t from, uint32_t to_word,
                                      uint32_t *out_now) {
    uint32_t expected = from;
    bool won = occl_claim32(&rec->state, &expected, to_word);
    *out_now = won ? to_word : expected;
    return won;
}

/* Ends an op that is OPEN, ALL or LOCAL: writes the reason unless there is one, and poisons who is
 * missing. True when this call wrote the reason; the caller wakes sleepers either way. A DIRECT op
 * stays as it is. Bounded, whatever members write meanwhile. */
bool occl_record_abort(const struct occl_records *m, uint32_t slot, uint64_t print, int status,
                       uint32_t about_rank);

/* A member is finished with all ops that it entered under this claim: its threads execute nothing
 * of them any more. The last one out, member or lane, resets the records and frees the claim. */
void occl_claim_leave(const struct occl_records *m, uint32_t index);

/* Strands are claimed in segments, consecutive stretches of the op's buffers. An executor starts
 * with the segment of its core and goes on to those of others when it is empty: so executors on
 * different cores walk through different stretches, and a core finds what it moved in the op before
 * in its own caches. Returns the strand, or `count` when all are claimed. The caller is inside (a
 * member of the LOCAL record, or a lane that has entered). core: a number of the calling thread's
 * core, a hint. Wait-free; counters that were scribbled end the claiming early or make strands run
 * twice, never a strand outside [0, count). */
uint32_t occl_record_claim_strand(struct occl_record *rec, uint32_t count, uint32_t core);
/* As many as `wanted` strands that follow each other, 1 or more; *out_claimed: how many. */
uint32_t occl_record_claim_strands(struct occl_record *rec, uint32_t count, uint32_t core,
                                   uint32_t wanted, uint32_t *out_claimed);
/* Whether a strand was left a moment ago. */
bool occl_record_strands_left(const struct occl_record *rec, uint32_t count);
/* Claims of each segment, whose first strands they are. */
struct occl_strand_claims {
    uint32_t of[OCCL_STRAND_SEGMENTS];
    uint32_t sum;
};
/* What was claimed at one moment; false: claims went on meanwhile. If one executor claims all
 * strands, one at a time, these are the first `sum` that it executes. Any member. */
bool occl_record_claims(const struct occl_record *rec, uint32_t count,
                        struct occl_strand_claims *out);
/* First strand of a segment; the one behind the last segment is `count`. */
uint32_t occl_record_segment_first(uint32_t segment, uint32_t count);
/* How many were claimed, for inspection; tries that found none may be counted, too. */
uint32_t occl_record_strands_claimed(const struct occl_record *rec);

/* A lane wants to execute strands of the op with this print. True: the record is LOCAL, belongs to
 * that op, and stays so or becomes DONE or ABORTED of the same op until occl_record_lane_leave;
 * lanes_busy is raised. False: nothing is held. Bounded, whatever members write meanwhile. */
bool occl_record_lane_enter(const struct occl_records *m, uint32_t slot, uint64_t print);
void occl_record_lane_leave(const struct occl_records *m, uint32_t slot);

#endif
