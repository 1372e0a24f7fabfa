/* SPDX-License-Identifier: Apache-2.0 */
/* Structs shared by a client and the daemon, part 1: what both other parts use, and the session
 * page with its rings. Rules of all ABI structs: fixed-width members, reserved bytes are zero,
 * offsets never pointers, sizes and offsets asserted, append-only, versions exchanged at attach.
 *
 * Versions. OCCL_ABI_VERSION names the layout of every struct in abi*.h and the messages in wire.h.
 * A daemon accepts clients of OCCL_ABI_VERSION and OCCL_ABI_VERSION_MIN and answers with the
 * version that the session will speak; all others are refused with both ranges in the text. */
#ifndef SHM_IPC_ABI_H
#define SHM_IPC_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "shm_ipc/limits.h"

#define OCCL_ABI_VERSION 1u
#define OCCL_ABI_VERSION_MIN 1u
#define OCCL_MAGIC_SESSION 0x6f63636c53455331ull /* "occlSES1" */
#define OCCL_MAGIC_COMM 0x6f63636c434f4d31ull    /* "occlCOM1" */
#define OCCL_MAGIC_JOB 0x6f63636c4a4f4231ull     /* "occlJOB1" */

#ifdef __cplusplus
#define OCCL_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define OCCL_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
#define OCCL_ABI_SIZE(type, bytes) \
    OCCL_STATIC_ASSERT(sizeof(struct type) == (bytes), "ABI: size of " #type)
#define OCCL_ABI_AT(type, member, at) \
    OCCL_STATIC_ASSERT(offsetof(struct type, member) == (at), "ABI: place of " #type "." #member)

/* What an op does. Values are ABI; later releases append. */
enum occl_op_kind {
    OCCL_OP_NONE = 0,
    OCCL_OP_ALL_REDUCE = 1,
    OCCL_OP_BROADCAST = 2,
    OCCL_OP_BARRIER = 3,
    OCCL_OP_SEND = 4, /* matches OCCL_OP_RECV: the record holds two members */
    OCCL_OP_RECV = 5,
    OCCL_OP_REDUCE = 6,
    OCCL_OP_ALL_GATHER = 7,
    OCCL_OP_REDUCE_SCATTER = 8,
    OCCL_OP_ALL_TO_ALL = 9,
    OCCL_OP_GATHER = 10,
    OCCL_OP_SCATTER = 11,
    OCCL_OP_SCAN = 12,
    OCCL_OP_EXSCAN = 13,
    OCCL_OP_FAN_IN = 14,  /* the root waits for all; the others for nobody */
    OCCL_OP_FAN_OUT = 15, /* all wait for the root; it for nobody */
    /* blocks of different sizes (vector.h) */
    OCCL_OP_ALL_GATHER_V = 16,
    OCCL_OP_REDUCE_SCATTER_V = 17,
    OCCL_OP_ALL_TO_ALL_V = 18,
    OCCL_OP_GATHER_V = 19,
    OCCL_OP_SCATTER_V = 20,
};
#define OCCL_OP_LIMIT 21

/* The signature of an op: everything that all members must agree on. Compared field by field
 * before any output byte is written. For send/recv `root` is the destination and the kinds
 * differ by design. Unused fields are zero so that they always agree. */
struct occl_signature {
    uint8_t kind;              /* enum occl_op_kind */
    uint8_t dtype;             /* enum occl_dtype, 0 for a barrier */
    uint8_t redop;             /* enum occl_redop_kind, 0 where nothing is reduced */
    uint8_t selection_version; /* of the algorithm table; the lowest wins */
    uint32_t root;             /* rooted kinds: the root; send, recv: destination rank */
    uint32_t program_id;       /* 0: built in */
    uint32_t reserved;
    uint64_t count; /* elements of a block (op_kind.h); 0 where blocks differ */
};
OCCL_ABI_SIZE(occl_signature, 24);

/* Where a rank's buffer is. */
enum occl_space {
    OCCL_SPACE_NONE = 0,    /* no buffer on this side */
    OCCL_SPACE_REGION = 1,  /* offset into region `region` of the job */
    OCCL_SPACE_PRIVATE = 2, /* offset is an address in the member's own address space */
    OCCL_SPACE_PAYLOAD = 3, /* offset into the communicator page (the member's payload chunks) */
};
struct occl_buffer_ref {
    uint32_t space;  /* enum occl_space */
    uint32_t region; /* job-wide region number; never reused inside a job */
    uint64_t offset; /* bytes */
};
OCCL_ABI_SIZE(occl_buffer_ref, 16);

/* Name of an op inside a communicator. Collectives: peers is OCCL_PEERS_ALL. Point to point:
 * peers = source << 16 | destination. instance counts the ops of this (peers, tag), skips numbers
 * when the tag was forgotten in between (tag_batch.h) and wraps; at most 2^22 instances of one tag
 * are alive, so the wrap is never ambiguous. Tag 0 is the untagged stream; tags are below
 * OCCL_TAG_LIMIT. */
#define OCCL_TAG_LIMIT 0x80000000u
#define OCCL_PEERS_ALL 0xffffffffu
struct occl_op_key {
    uint32_t peers;
    uint32_t tag;
    uint32_t instance;
};
OCCL_ABI_SIZE(occl_op_key, 12);

/* ---- session page: one sealed memfd per session; fixed offsets, negotiated ring sizes ----
 *
 * | field           | writer | reader | store   | load    | pairs with, why                      |
 * | sq.tail         | client | daemon | publish | observe | entry bytes before the index         |
 * | sq.head         | daemon | client | publish | observe | entry may be overwritten             |
 * | cq.tail         | daemon | client | publish | observe | completion bytes before the index    |
 * | cq.head         | client | daemon | publish | observe | completion space is free again       |
 * | daemon_sleeping | daemon | client | note    | peek    | doorbell needed; fences: wake.h      |
 * | cq_sleepers     | client | daemon | add     | look    | wake needed; Dekker with cq_bell     |
 * | cq_bell         | both   | client | add     | observe | changes with each completion; futex  |
 * |                 |        |        |         |         | word that the daemon only wakes      |
 * | held_ticks      | client | daemon | publish | observe | held and held_after before; 0 behind |
 * |                 |        |        |         |         | a fence before they change           |
 * | session_state   | daemon | client | publish | observe | why it ended, before the state       |
 *
 * Each index has a cache line of its own. The daemon believes nothing in this page: it keeps
 * private copies of its own indices and of the geometry, and checks distances every time. */
struct occl_ring_index {
    uint32_t value;
    uint32_t reserved[15];
};
OCCL_ABI_SIZE(occl_ring_index, OCCL_CACHE_LINE_BYTES);

enum occl_session_state {
    OCCL_SESSION_LIVE = 1,
    OCCL_SESSION_DRAINING = 2,    /* the daemon refuses new work */
    OCCL_SESSION_QUARANTINED = 3, /* the daemon found corrupt shared memory and ended the session */
    OCCL_SESSION_CLOSED = 4,      /* and all memory of the session is about to be taken back */
    OCCL_SESSION_OVER = 5,        /* the daemon ends; the memory stays */
};

/* An op as a session names it. */
struct occl_held_op {
    struct occl_op_key key;
    uint32_t comm; /* number of its communicator in the session */
};
OCCL_ABI_SIZE(occl_held_op, 16);

struct occl_session_page {
    uint64_t magic;
    uint32_t abi_version;
    uint32_t page_bytes;
    uint64_t session_id; /* id << 16 | epoch, as in messages */
    uint64_t daemon_epoch;
    uint32_t sq_entries;
    uint32_t cq_entries;
    uint32_t sq_offset; /* bytes from the page's start */
    uint32_t cq_offset;
    uint32_t session_state; /* enum occl_session_state */
    uint32_t ticks_source; /* enum occl_ticks_source (clock.h): how timestamps in pages are taken */
    uint32_t reserved0[2];
    /* cache line 1 */
    struct occl_ring_index sq_tail;
    struct occl_ring_index sq_head;
    struct occl_ring_index cq_tail;
    struct occl_ring_index cq_head;
    /* cache line 5: sleep and wake */
    uint32_t daemon_sleeping;
    uint32_t reserved1[15];
    uint32_t cq_bell;
    uint32_t cq_sleepers;
    uint32_t reserved2[14];
    /* cache line 7: who of this process waits; read by `occlctl why`, believed only as a hint */
    uint32_t threads_using;   /* live threads that have submitted something */
    uint32_t threads_waiting; /* of these, blocked in a wait of ours */
    /* One op whose way is the ring and that waits for its turn there (a record's line tells of one
     * that is held back in a record), and what it comes after. A hint for `why`, too. */
    uint64_t held_ticks; /* since when; 0: the rest means nothing */
    struct occl_held_op held, held_after;
    uint32_t held_total; /* such ops of this process; one of them is described */
    uint32_t reserved3[3];
};
OCCL_ABI_SIZE(occl_session_page, 512);
OCCL_ABI_AT(occl_session_page, sq_tail, 64);
OCCL_ABI_AT(occl_session_page, daemon_sleeping, 320);
OCCL_ABI_AT(occl_session_page, cq_bell, 384);
OCCL_ABI_AT(occl_session_page, threads_using, 448);
OCCL_ABI_AT(occl_session_page, held_ticks, 456);

/* ---- submission entry (client -> daemon), 128 bytes ---- */
enum occl_sqe_verb {
    OCCL_SQE_SUBMIT = 1,  /* the daemon matches and executes this op (no free record) */
    OCCL_SQE_EXECUTE = 2, /* the record in `slot` is LOCAL and nobody waits: run its strands */
    OCCL_SQE_CANCEL = 3,  /* withdraw the SUBMIT with this user_data: deadline passed, abort */
};
/* flags of a SUBMIT: the op has ended at this member before the daemon had room for it. It names no
 * buffers, and the op ends like that for all. At most one. */
#define OCCL_SQE_TIMED_OUT 1u
#define OCCL_SQE_OVER_QUOTA 2u
#define OCCL_SQE_CANCELED 3u /* something that it was to come after has failed */
struct occl_sqe {
    uint8_t verb;
    uint8_t priority; /* class of this op: 0 bulk .. 3 urgent; 255: the communicator's */
    uint16_t slot;
    uint32_t comm; /* number of the communicator in this session */
    struct occl_op_key key;
    uint32_t flags;
    struct occl_signature signature;
    struct occl_buffer_ref src;
    struct occl_buffer_ref dst;
    uint64_t user_data; /* comes back in the completion */
    uint64_t submit_ticks;
    uint64_t deadline_ns;          /* CLOCK_MONOTONIC, 0: none */
    uint64_t factor;               /* of a premultiplied sum, else 0 */
    struct occl_buffer_ref vector; /* of a kind whose blocks differ (vector.h), else all 0 */
};
OCCL_ABI_SIZE(occl_sqe, 128);
OCCL_ABI_AT(occl_sqe, signature, 24);
OCCL_ABI_AT(occl_sqe, src, 48);
OCCL_ABI_AT(occl_sqe, user_data, 80);

/* ---- completion entry (daemon -> client), 32 bytes ---- */
struct occl_cqe {
    uint64_t user_data;
    int32_t status;      /* enum occl_status */
    uint32_t about_rank; /* the rank the status is about, or OCCL_RANK_NONE */
    uint32_t field;      /* mismatch: enum occl_signature_field */
    uint32_t preemptions;
    uint64_t detail; /* TIMEOUT: mask of the members that had come; MISMATCH: what the other rank
                        has in the field; else 0 */
};
OCCL_ABI_SIZE(occl_cqe, 32);
#define OCCL_RANK_NONE 0xffffu

/* Which field of two signatures differs. */
enum occl_signature_field {
    OCCL_FIELD_NONE = 0,
    OCCL_FIELD_KIND = 1,
    OCCL_FIELD_DTYPE = 2,
    OCCL_FIELD_REDOP = 3,
    OCCL_FIELD_ROOT = 4,
    OCCL_FIELD_COUNT = 5,
    OCCL_FIELD_PROGRAM = 6,
    OCCL_FIELD_KEY = 7,
    OCCL_FIELD_BLOCK = 8, /* of two vectors: what one sends the other */
};

/* ---- job page: one sealed memfd per job, written by the daemon, read-only to clients ----
 * While gate is 0 nobody needs permission. While it is 1 a client thread claims its next strand
 * only if the bytes its session has charged are below its grant (see client_lib/share.h). */
struct occl_job_page {
    uint64_t magic;
    uint32_t abi_version;
    uint32_t job_class;          /* 0 bulk .. 3 urgent */
    uint32_t gate;               /* 0 open, 1 metered */
    uint32_t gate_bell;          /* futex word, changes whenever a grant grows or the gate opens */
    uint64_t granted_bytes;      /* grows only; compared with the job's charged bytes */
    uint64_t charged_bytes_seen; /* what the daemon last summed up over the job */
    /* Rank sessions attached to the daemon and the cores that they may use between them, of all
     * jobs and of this one. When ranks outnumber cores, client threads give up the core after each
     * slice and never spin without yielding. Hints. */
    uint32_t node_ranks;
    uint32_t node_cores;
    uint32_t job_ranks;
    uint32_t job_cores;
    uint64_t reserved;
};
OCCL_ABI_SIZE(occl_job_page, 64);

#endif
