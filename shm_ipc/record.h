/* SPDX-License-Identifier: Apache-2.0 */
/* The arrival record: how the ranks of a communicator on one node meet. Every submit first goes to
 * the record of its op in the communicator's page, whatever its size and path. The page is shared
 * by the communicator's ranks (who trust each other) and the daemon (who believes nothing in it).
 *
 * One op, one slot. The slot of an op is a function of its key, so two ranks never look in
 * different places. The slot's `word` says who owns it:
 *
 *     word = overflow:15 | claimed:1 | fingerprint:48
 *
 *   free, overflow 0     -> the first rank claims it for its key
 *   claimed, same print  -> a later rank joins
 *   anything else        -> the op goes through the ring, and the rank adds 1 to overflow *in the
 *                           same compare-and-swap that saw the slot busy*
 *
 * While overflow is not 0 nobody claims the slot, so all members of an op whose first member went
 * through the ring follow it there: an op is never half in a record and half in the ring. The
 * daemon subtracts 1 for each member whose ring op it has retired, and it retires an op only when
 * *all* its members have submitted it (or the communicator has ended): an op that was withdrawn or
 * timed out before keeps its counts, else its late members would find the slot free and wait there
 * alone.
 *
 * For collectives the fingerprint is exact: tag (31 bits) and the instance bits above the slot
 * number (16 bits); at most 2^22 instances of one tag are alive. For point to point it is a hash of
 * (peers, tag, instance) and the full key is compared when both lines are there (a collision, one
 * in 2^47 pairs that meet in a slot, is reported as a mismatch of the key, never executed).
 *
 * State machine of a claimed record (field `state`, also the futex word):
 *
 *   OPEN --all arrived, equal signatures, payload in the page--> DIRECT    (last arriver)
 *   OPEN --root or sender arrived with payload in the page-----> DIRECT    (root, sender)
 *   OPEN --all arrived, equal signatures, bytes elsewhere------> LOCAL     (last arriver)
 *   OPEN --all arrived, signatures differ----------------------> ABORTED   (last arriver)
 *   OPEN --deadline, abort, revoke, death----------------------> ABORTED   (member, daemon)
 *   LOCAL --last strand done-----------------------------------> DONE      (its executor)
 *   LOCAL --abort, revoke, death, fault------------------------> ABORTED   (member, daemon)
 *
 * The one compare-and-swap on `state` decides every race between completion and abort, so each
 * member ends exactly once and the same way. The record becomes free when all members have left; a
 * member that arrives at an ABORTED record learns the reason, counts itself and leaves.
 *
 * A member may touch a record until it has left, for the record cannot become free before. A lane
 * is no member: the record it was told of may be free, or serve another op, before it gets there.
 * So it enters (occl_record_lane_enter), which holds the record and then checks whose it is. The
 * daemon's control loop does not enter; it decides only what holds for the whole communicator
 * (death, revoke, abort), for which any open record of the page is a right target.
 *
 * Memory order (all accesses through atomics.h; line 0 and 1 of the record, L of a rank):
 *
 * | field        | writer    | reader    | store      | load    | line | why                      |
 * | word         | m, daemon | m, daemon | claim, add | observe | 0    | (1)                      |
 * | state        | m, daemon | m, daemon | claim      | observe | 0    | (2)                      |
 * | arrived      | m         | m, daemon | add        | peek    | 0    | (3)                      |
 * | left         | m, lanes  | m, lanes  | add, claim | look    | 0    | (4)                      |
 * | sleepers     | m         | m, daemon | add        | look    | 0    | Dekker with state        |
 * | strands_next | executors | executors | add        | peek    | 1    | claims a strand          |
 * | strands_done | executors | executors | add        | -       | 1    | (5)                      |
 * | lanes_busy   | lanes     | m         | add        | look    | 1    | Dekker with state (6)    |
 * | line.ready   | the rank  | m, daemon | publish    | observe | L    | line contents before it  |
 * | line.busy    | the rank  | m, daemon | add        | look    | L    | as (6), per rank         |
 * | line.waiters | the rank  | m, daemon | note       | peek    | L    | 1: it sleeps; for `why`  |
 *
 * m: members. (1) Owns the slot; the last one's clear publishes the reset fields to whoever claims
 * the slot next. (2) Decides; observing DONE makes the output of all strands visible, because each
 * executor adds to strands_done before, and observing DIRECT the lines. (3) The last adder sees
 * every line: the adds form a release sequence. (4) left:16, lanes inside << 16; whoever makes it
 * equal the number of members resets. (5) Release of output bytes; the last adder acquires them
 * all. (6) An aborted op's buffers are safe when nobody executes: an executor raises it and then
 * looks at the state, an aborter decides the state and then looks at it. Per rank it can be ignored
 * once the rank is dead.
 */
#ifndef SHM_IPC_RECORD_H
#define SHM_IPC_RECORD_H

#include <stdbool.h>

#include "shm_ipc/abi.h"
#include "shm_ipc/atomics.h"
#include "shm_ipc/status.h"

enum occl_record_state {
    OCCL_REC_OPEN = 0,
    OCCL_REC_DIRECT = 1,
    OCCL_REC_LOCAL = 2,
    OCCL_REC_DONE = 3,
    OCCL_REC_ABORTED = 4,
};
/* state word = kind:8 | negated status:8 | about_rank:16, decided in one compare-and-swap. The rank
 * is the one the status is about: who died, revoked, let the deadline pass or described the op
 * differently. OPEN, DIRECT, LOCAL and DONE carry neither. */
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

enum occl_line_ready {
    OCCL_LINE_ASYNC = 1,   /* arrived; nobody of this rank promised to wait */
    OCCL_LINE_BLOCKED = 2, /* arrived, and its thread stays until the op is decided and helps */
};

/* A rank's part of a record: 256 bytes. The first line is all that a tiny op touches. */
struct occl_line {
    uint32_t ready; /* 0, or enum occl_line_ready once the line is valid for this op */
    uint32_t peers; /* full key, compared for point to point and read by `why` */
    uint32_t tag;
    uint32_t instance;
    uint32_t count_low; /* signature, packed: see occl_line_signature */
    uint32_t count_high;
    uint8_t kind;
    uint8_t dtype;
    uint8_t redop;
    uint8_t selection_version;
    uint16_t root;
    uint16_t program_id;
    union {
        struct {
            struct occl_buffer_ref src;
            struct occl_buffer_ref dst;
        } ref;
        uint8_t tiny[OCCL_TINY_BYTES]; /* payload of a tiny op, in place of ref */
    } u;
    /* cache line 1: written only when the op is not complete at once; the rank sets what it wrote
     * back to 0 before it leaves */
    uint64_t submit_ticks;
    uint64_t wait_since_ticks; /* 0: nobody of this rank sleeps on the op */
    uint32_t waiters;
    uint32_t busy;
    uint32_t reserved[10];
    /* cache lines 2, 3 */
    uint8_t inlined[OCCL_INLINE_BYTES];
};
OCCL_ABI_SIZE(occl_line, 256);
OCCL_ABI_AT(occl_line, u, 32);
OCCL_ABI_AT(occl_line, submit_ticks, 64);
OCCL_ABI_AT(occl_line, inlined, 128);

struct occl_record {
    uint64_t word;
    uint32_t state;
    uint32_t arrived;
    uint32_t left;
    uint32_t sleepers;
    uint32_t reserved0[10];
    /* cache line 1: only LOCAL ops */
    uint32_t strands_next;
    uint32_t strands_done;
    uint32_t lanes_busy;
    uint32_t reserved1[13];
    /* struct occl_line lines[ranks] follows */
};
OCCL_ABI_SIZE(occl_record, 128);
OCCL_ABI_AT(occl_record, strands_next, 64);

/* What a rank did last, and its counters: one per rank, single writer (the rank, relaxed). */
struct occl_rank_note {
    struct occl_op_key last_key; /* last op that completed on this rank */
    uint32_t last_kind;
    uint64_t last_ticks;
    uint64_t ops_done;
    uint64_t bytes_done;     /* payload bytes of completed ops */
    uint64_t bytes_executed; /* bytes this rank's threads moved in strands: charged to the job */
    uint64_t errors;
    uint64_t probe_address; /* the rank's address of its own probe word, for cross-memory attach */
    /* An error of an op that had completed here before its peers' mismatch was known (broadcast
     * root, buffered send): OCCL_REC_WORD(field, status, rank), set once by the peer that found it.
     */
    uint32_t async_error;
    uint32_t async_kind; /* enum occl_op_kind */
    /* Core on which the rank last arrived at an op: a waiter on the same core gives it up, one on
     * another core does not gain by that. A hint. */
    uint32_t cpu;
    uint32_t reserved0;
    uint64_t reserved[6];
};
OCCL_ABI_SIZE(occl_rank_note, 128);

enum occl_comm_state {
    OCCL_COMM_LIVE = 0,
    OCCL_COMM_FAILED = 1,  /* a member died: about_rank */
    OCCL_COMM_REVOKED = 2, /* by about_rank */
    OCCL_COMM_ABORTED = 3,
};

/* Start of a communicator page. Written by the daemon before it hands the page out; later only
 * comm_state and dead_mask change (by the daemon; members may also set comm_state). */
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
    uint32_t reserved0[14];
    /* cache line 2 */
    uint32_t comm_state; /* kind:8 | status:8 | rank:16, built with OCCL_REC_WORD */
    uint32_t reserved1;
    uint64_t dead_mask; /* bit r: rank r's process is gone and executes nothing any more */
    uint32_t reserved2[12];
    /* cache line 3: the nonces that prove cross-memory attach works (daemon-chosen) */
    uint64_t probe_nonce;
    uint64_t reserved3[7];
};
OCCL_ABI_SIZE(occl_comm_page, 256);
OCCL_ABI_AT(occl_comm_page, comm_state, 128);

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
    uint64_t notes_offset;
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
static inline struct occl_line *occl_line_at(struct occl_record *rec, uint32_t index) {
    return (struct occl_line *)(void *)((char *)rec + sizeof *rec) + index;
}
static inline struct occl_rank_note *occl_note_at(const struct occl_records *m, uint32_t rank) {
    return (struct occl_rank_note *)(void *)(m->base + m->notes_offset) + rank;
}

/* ---- slots and fingerprints ---- */
#define OCCL_WORD_PRINT_MASK 0x0000ffffffffffffull
#define OCCL_WORD_CLAIMED (1ull << 48)
#define OCCL_WORD_OVERFLOW_ONE (1ull << 49)
#define OCCL_WORD_OVERFLOW_SHIFT 49
#define OCCL_WORD_OVERFLOW_MAX 0x7fffu

struct occl_place {
    uint32_t slot;
    uint64_t print;
};
/* Slot and fingerprint of a key among `records` (a power of two) slots. */
struct occl_place occl_place_of(struct occl_op_key key, uint32_t records);

enum occl_enter {
    OCCL_ENTER_CLAIMED = 0, /* first of its op here */
    OCCL_ENTER_JOINED = 1,
    OCCL_ENTER_RING = 2, /* overflow was counted: this rank must submit through the ring */
    OCCL_ENTER_FULL = 3, /* nothing was counted, the counter is at its end: OCCL_WOULD_BLOCK */
};
/* One attempt, wait-free but for contention on the word. With count_overflow false a busy slot
 * returns OCCL_ENTER_RING without counting, so that the caller may look again first. */
enum occl_enter occl_record_enter(struct occl_record *rec, uint64_t print, bool count_overflow);
/* Takes back one overflow count: a member whose ring op was retired (daemon), or that could not
 * submit after all (client). Wait-free: a member that scribbles the word cannot hold up a lane. */
void occl_record_overflow_drop(struct occl_record *rec);

/* ---- arrival ---- */
static inline struct occl_signature occl_line_signature(const struct occl_line *l) {
    struct occl_signature s = {
        l->kind, l->dtype,      l->redop, l->selection_version,
        l->root, l->program_id, 0,        ((uint64_t)l->count_high << 32) | l->count_low};
    return s;
}
void occl_line_fill(struct occl_line *line, struct occl_op_key key,
                    const struct occl_signature *sig);

/* Publishes the line and counts the arrival. Returns how many members have arrived, this one
 * included. The caller has filled line->u and inlined. */
static inline uint32_t occl_record_arrive(struct occl_record *rec, struct occl_line *line,
                                          enum occl_line_ready how) {
    occl_publish32(&line->ready, how);
    return occl_add32(&rec->arrived, 1) + 1;
}

/* First field in which two signatures differ; send and recv of one message agree. */
enum occl_signature_field occl_signature_differ(const struct occl_signature *a,
                                                const struct occl_signature *b);
/* Compares every arrived line with line `mine`; *out_index gets the first line that differs. */
enum occl_signature_field occl_record_mismatch(struct occl_record *rec, uint32_t members,
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

/* A member is finished with the record: its threads execute nothing of it any more. The last one
 * out, member or lane, resets it and frees the slot. */
void occl_record_leave(struct occl_record *rec, uint32_t members);

/* A lane wants to execute strands of the op with this print. True: the record is LOCAL, belongs to
 * that op, and stays so or becomes DONE or ABORTED of the same op until occl_record_lane_leave;
 * lanes_busy is raised. False: nothing is held. Bounded, whatever members write meanwhile. */
bool occl_record_lane_enter(struct occl_record *rec, uint64_t print, uint32_t members);
void occl_record_lane_leave(struct occl_record *rec, uint32_t members);

#endif
