/* SPDX-License-Identifier: Apache-2.0 */
/* The client library's ownership tree on one screen.
 *
 *   library (one per process, static)
 *    +- attachment: socket, session page, rings, reader thread, watcher thread
 *    +- regions: own (occl_mem_alloc, staging) and mapped ones of the job's other processes
 *    +- communicators (table; a slot is reused, its memory never freed)
 *    |   +- page mapping, members, tag counters, payload chunks
 *    +- ops (pool; each active one holds a reference on its communicator)
 *
 * Locks, in the order in which they may be nested:
 *    lib.lifecycle        init and finalize, whole
 *    lib.control          table of communicators: control path only
 *    comm.lock            tag counters, runs, payload chunks, list of ops; on the hot path of
 *                         tagged ops and the first op of a run: an uncontended lock is 20 ns, and
 *                         the instance number and the slot must be taken together; tried once in
 *                         a wait that has given up the core (client_tags_visit)
 *    lib.ops_lock         free list of the op pool
 *    lib.after_lock       which ops come after which: only ops that do, or are come after
 *    lib.memory           region tables: only new buffers, and strands, look there
 *    ring.cq_lock, ring.sq_lock, rpc.lock
 *
 * Threads: callers; the reader (socket: replies, events, the daemon's end); the watcher (callbacks,
 * completion descriptor, strands of ops nobody waits for), started on first need. */
#ifndef CLIENT_LIB_CLIENT_H
#define CLIENT_LIB_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client_lib/occl.h"
#include "client_lib/share.h"
#include "gpu/local_program.h"
#include "shm_ipc/clock.h"
#include "shm_ipc/op_kind.h"
#include "shm_ipc/record.h"
#include "shm_ipc/ring.h"
#include "shm_ipc/session.h"
#include "shm_ipc/tag_batch.h"
#include "shm_ipc/wake.h"
#include "shm_ipc/wire.h"

#define OCCL_PUBLIC __attribute__((visibility("default")))
/* What each thread looks at in every call: found without a call, but in a room that all libraries
 * loaded late share and that is small. A library that has such a variable has all its thread-local
 * ones there, so all of them are of this kind; together they stay below 512 bytes. */
#define CLIENT_THREAD_HOT _Thread_local __attribute__((tls_model("initial-exec")))

struct client_comm;
struct client_op;

/* ---- regions ---- */
struct client_region {
    uint32_t number; /* job-wide */
    uint32_t own;    /* 1: ours to free */
    char *base;
    uint64_t bytes;
    uint32_t users;             /* ops and executing strands that refer to it */
    uint32_t gone;              /* not 0: the owner freed it: unmap when unused */
    struct client_region *next; /* of one hash bucket, or of lib.retired; lib.memory */
};

/* ---- ops ---- */
enum client_op_phase {
    CLIENT_OP_FREE = 0,
    CLIENT_OP_INACTIVE = 1, /* persistent, not started */
    CLIENT_OP_ACTIVE = 2,
    CLIENT_OP_COMPLETE = 3, /* status is final; the request has not been waited for */
};
/* How the last op went, for inspection; values as in inspect.h. */
enum client_way {
    CLIENT_WAY_NONE = 0,
    CLIENT_WAY_DIRECT = 1,
    CLIENT_WAY_LOCAL = 2,
    CLIENT_WAY_DAEMON = 3,
};
enum client_op_path { CLIENT_PATH_NONE = 0, CLIENT_PATH_RECORD = 1, CLIENT_PATH_RING = 2 };

/* An op of a blocking call lives on the caller's stack and is not cleared: fill() (operations.c)
 * and start_run() (submit.c) set every field of the first two parts. */
struct client_op {
    /* what is to be done: fixed at creation */
    struct client_comm *comm;
    uint32_t comm_generation; /* the communicator this op was made for */
    struct occl_signature sig;
    uint32_t peers; /* of the key */
    uint32_t tag;
    uint32_t line_index; /* this rank's line in the record */
    uint32_t members;
    const struct occl_kind_traits *traits;
    const void *send; /* NULL: this rank has no such buffer, or it is in place */
    void *recv;
    uint64_t block_bytes; /* count x element size (op_kind.h) */
    uint64_t send_bytes, recv_bytes;
    uint64_t payload_bytes; /* what each rank that sends brings: the same for all of them */
    uint32_t alone_bits;    /* OCCL_FLAG_SOURCE, OCCL_FLAG_GIVES or neither (alone.c) */
    uint32_t flags;         /* enum occl_op_flags */
    uint64_t factor;        /* of a premultiplied sum */
    uint64_t *vector;   /* of a kind that has one: this rank's, in vector_room or of the caller */
    int64_t timeout_ns; /* < 0: none, 0: the communicator's */
    struct occl_request *after; /* what it comes after (after.c); of malloc for a pool op */
    uint32_t after_count;
    uint8_t priority; /* class, 255: the communicator's */
    bool persistent;
    bool blocking;
    bool on_stack; /* not from the pool: a blocking call's own */
    void (*callback)(enum occl_result result, void *arg);
    void *callback_arg;
    /* one run */
    struct occl_op_key key;
    struct occl_place place;
    struct occl_record *rec;
    struct occl_look look; /* what the record said when the op was advanced last */
    struct occl_buffer_ref src, dst;
    struct client_region *src_region, *dst_region;
    struct client_stage *stage_in, *stage_out, *stage_vector;
    struct occl_buffer_ref vector_ref;
    uint32_t strand_count; /* of the plan, once it is known */
    bool planned;
    bool brief;                 /* the holder executes one strand at most */
    bool held_back;             /* it has its place, but arrives only after others of this rank */
    bool announced;             /* the record says that this rank waits */
    bool owes_look;             /* it ended alone, in a row (alone.c), and stays in the record */
    bool counted;               /* the completion descriptor counts it */
    bool cancel_sent;           /* to the daemon */
    bool executed;              /* this rank may have executed strands of it */
    bool collected;             /* the result is in the caller's buffer already (collect.c) */
    struct client_after *nodes; /* after_count of them, while it is held back */
    bool held_noted;            /* a line or the session page tells of it (held.c); after_lock */
    uint64_t held_ticks;        /* since when, where the session page tells */
    uint32_t after_pending;     /* of them, not complete; after_lock, read without */
    int32_t after_status;       /* the first error of one, or why it has ended before its turn */
    int32_t failed_status;      /* the first error of one, for its text; after_lock */
    uint32_t failed_kind, failed_tag; /* whose error that is */
    uint32_t why_not;                 /* OCCL_SQE_*: what the daemon is told instead of the op */
    uint32_t withdrawn; /* OCCL_SQE_*: stands for an op that ended before the daemon had room */
    uint64_t aborted_since_ns; /* 0, or when this rank saw the abort while others still executed */
    uint64_t deadline_ns;      /* 0: none */
    uint64_t seen_ticks;       /* a moment of the run shortly before now; 0: read the counter */
    uint64_t again_ns;         /* a submission that was refused is repeated no sooner */
    enum client_op_path path;
    uint32_t may_write_rank; /* OCCL_RANK_NONE, or who is stopped inside a strand of the op */
    uint32_t ring_slot;      /* index in the ring table */
    uint32_t ring_done;      /* 1: the completion was taken out; ring_status, about_* hold it */
    int32_t ring_status;
    uint32_t about_rank;
    uint32_t about_field;
    int32_t status;       /* of the completed op */
    uint64_t ring_detail; /* occl_cqe.detail */
    /* pool */
    char *text; /* of the error, or NULL; from malloc */
    struct client_op *next_free;
    struct client_op *next_in_comm, **prev_in_comm;
    struct client_op *next_watched;
    struct client_op *next_held; /* after_lock */
    /* what a thread with an old handle or pointer may look at any time: from here on an op of the
     * pool is never cleared as a whole */
    uint32_t hold;    /* 1 while one thread advances the op */
    uint32_t phase;   /* enum client_op_phase: published after status */
    uint32_t watched; /* 1: only the watcher advances it */
    uint32_t phase_sleepers;
    uint32_t index;
    uint32_t generation;
    uint32_t wanted;                 /* threads that wait to have it in hand: others leave it */
    uint32_t after_bell;             /* changes when something that it comes after has completed */
    uint32_t after_sleepers;         /* on that */
    uint32_t come_after;             /* ops that come after this one: length of the list */
    struct client_after *dependents; /* after_lock */
    uint64_t *vector_room; /* NULL, or OCCL_VECTOR_NUMBERS_MAX numbers: kept for later ops */
};

/* ---- communicators ---- */
struct client_tag {
    uint64_t name; /* peers << 32 | tag << 1 | receives, + 1 so that 0 is an empty slot */
    uint32_t next_instance;
};
/* Instance counters: an open-addressing table in the order of the names' hashes (tag_table.h), and
 * this rank's part in forgetting what all ranks are done with (tags.c). comm.lock. */
struct client_tags {
    struct client_tag *slots;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t used;
    uint32_t limit;   /* with so many counters this rank asks for a sweep */
    uint32_t widest;  /* the cells it asks for (shm_ipc/tag_batch.h) */
    uint32_t kept;    /* counters that this sweep has not taken out */
    uint32_t *starts; /* first instance of tags without a counter, by bucket; NULL: all 0 */
    struct occl_tag_member member;
};
struct client_chunk {
    struct occl_place place; /* of the op that uses the chunk */
    uint32_t members;        /* of that op; 0: it was never used */
};
enum client_comm_use {
    CLIENT_COMM_IN_USE = 0,
    CLIENT_COMM_DECIDING = 1,  /* for a moment: whether it can be suspended */
    CLIENT_COMM_SUSPENDED = 2, /* this rank submits nothing */
};
/* What a rank wishes for a communicator (hints.c). */
struct client_hints {
    bool sleeps;          /* wait=sleep */
    bool no_cross_memory; /* cross_memory=off */
};
/* This rank in the run it has joined. */
struct client_run {
    uint64_t print;
    uint32_t remaining; /* ops of the run that this rank has not left; 0: it is in none */
};
struct client_comm {
    uint32_t index;
    uint32_t generation; /* odd: live */
    uint32_t asking;     /* threads inside that submit nothing (inside.c) */
    uint32_t refs;       /* others, but for the owner */
    uint32_t owner_refs; /* the owner's own: only it writes */
    uint64_t owner;      /* 0: none; kept with the slot */
    uint32_t ended; /* 0, or the negated status given to this rank's ops after destroy, abort */
    struct occl_records m;
    uint32_t number; /* in this session */
    uint32_t rank, ranks;
    uint64_t uid;
    uint64_t default_timeout_ns;
    char name[OCCL_NAME_BYTES];
    struct occl_wait_policy policy;
    uint64_t elsewhere_ticks; /* how long a rank watches others on other cores before it yields */
    uint32_t cma;             /* 1: cross-memory attach works between all pairs */
    uint64_t probe_word;      /* what peers read by it (probe.c); kept with the slot */
    bool copies; /* all members have room for copies, and have mapped that of all others */
    struct client_hints hints;
    uint32_t suspended; /* enum client_comm_use */
    uint32_t at_door;   /* threads that wait until it is decided */
    struct occl_member *members;
    struct occl_detail event; /* why the communicator ended, as the daemon told */
    uint32_t event_set;
    uint32_t splits;
    uint32_t last_way;  /* enum client_way of the last op */
    uint32_t neighbour; /* one this rank last waited for on its own core, or OCCL_RANK_NONE */
    pthread_mutex_t lock;
    struct client_tags tags;
    uint32_t untagged_next; /* changed with and without the lock: enter_joined_run */
    struct client_chunk chunks[OCCL_POOL_CHUNKS];
    uint32_t chunk_next;
    uint64_t stream_users[OCCL_STREAM_CHUNKS];
    uint32_t clean_instance; /* all members have left all ops of the stream before this one */
    struct client_run runs[OCCL_RUNS];
    uint64_t owed;         /* alone.c */
    uint32_t claim_owed;   /* of a run whose ops this rank has all left; 0: none (submit.c) */
    uint32_t alone_row;    /* 1: this rank ended the last op of the stream alone */
    struct client_op *ops; /* pool ops that are active, persistent or not waited for */
    uint32_t pool_ops;     /* how many; changed under the lock, read without */
};

/* ---- library ---- */
/* How long the end of a communicator waits for members that are stopped inside its ops. */
#define CLIENT_END_BOUND_NS 1000000000ull
/* Above all tags of users, so that the library's own ops meet nobody else's. */
#define CLIENT_LIBRARY_TAG OCCL_TAG_MAX
#define CLIENT_COMMS_MAX 4096
#define CLIENT_OP_CHUNK 256
#define CLIENT_OP_CHUNKS 1024
#define CLIENT_REGION_BUCKETS 256

struct client_rpc;     /* rpc.c */
struct client_ring;    /* spill.c */
struct client_watcher; /* watch.c */
struct client_staging; /* stage.c */
struct client_copies;  /* copies.c */

struct client_library {
    pthread_mutex_t lifecycle; /* the outermost: attach and detach as a whole */
    pthread_mutex_t control;
    uint32_t inside;   /* calls that use the attachment without a reference on a communicator */
    uint32_t unmapped; /* changes when a region of this process is unmapped (touch.c) */
    uint32_t depth;    /* nested occl_init */
    uint32_t attached; /* published when usable */
    uint32_t forked;   /* this process is a child of the one that attached */
    uint32_t atfork_set;
    uint32_t lost; /* 0, or the negated status with which the attachment ended */

    int socket_fd;
    struct occl_msg_welcome welcome;
    struct occl_session_page *page;
    const struct occl_job_page *job;
    struct client_rpc *rpc;
    struct client_ring *ring;
    struct client_watcher *watcher;
    struct occl_clock clock;
    enum occl_ticks_source ticks;
    struct occl_ticks_scale scale;
    const struct occl_movers *movers;
    uint64_t cache_bytes; /* the last-level cache, as one core reaches it */

    pthread_mutex_t memory;
    struct client_region *retired; /* structs to be used again */
    struct client_region **own;    /* sorted by base */
    uint32_t own_count, own_capacity;
    struct client_region *by_number[CLIENT_REGION_BUCKETS]; /* own and mapped ones */
    struct client_staging *staging;                         /* stage.c */
    struct client_copies *copies;                           /* copies.c */
    uint32_t copies_open;                                   /* published behind it */

    struct client_comm *comms[CLIENT_COMMS_MAX];
    uint32_t comms_used;

    pthread_mutex_t watch_start;
    uint32_t watch_wanted; /* published when the completion descriptor is there */

    pthread_mutex_t after_lock;
    struct client_op *held; /* ops whose way is the ring, held back (held.c); after_lock */
    pthread_mutex_t ops_lock;
    struct client_op *op_chunks[CLIENT_OP_CHUNKS];
    uint32_t op_chunks_used;
    struct client_op *ops_free;
};
extern struct client_library occl_lib;

/* error.c: the thread's last error text. client_fail stores a text and returns the status. */
int client_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int client_fail_detail(const struct occl_detail *detail);
/* While it is kept, what fails leaves the thread's last error as it is. Returns what held before.
 */
bool client_error_keep(bool keep);
int client_error_status(void); /* of the thread's last error: after a call that returned NULL */
void client_error_save(char *out_text, size_t bytes);

/* attach.c */
/* Around calls that hold no reference on a communicator: between begin and end the attachment
 * stays. On failure nothing is to be ended. collect: a lost daemon is no obstacle. */
int client_begin(bool collect);
void client_end(void);
int client_enter(void); /* status when the library is not attached, forked or the daemon is lost */
void client_mark_lost(int status);
int client_fail_lost(void); /* text and status of an attachment that has ended */
/* rpc.c: one request, one answer. out_fds: its descriptors, -1 where none came. Blocks. */
int client_rpc_call(const void *msg, uint32_t bytes, int send_fd, void *out_reply,
                    uint32_t reply_type, int out_fds[OCCL_MESSAGE_FDS_MAX]);
int client_rpc_send(const void *msg, uint32_t bytes); /* no answer expected */
void client_rpc_interrupt(void); /* callers that wait for an answer return CANCELED */
int client_rpc_start(void);
void client_rpc_stop(void);

/* touch.c: ranges that were found accessible. */
struct client_range {
    uintptr_t from, to;
    bool write;
    uint8_t pages; /* enum client_pages */
};
struct client_ranges {
    struct client_range last[2]; /* asked for last: to be read, to be written */
    uint32_t unmapped;           /* lib.unmapped then */
};
#define CLIENT_THREAD_RANGES 64
extern CLIENT_THREAD_HOT struct client_ranges client_ranges;

/* threads.c: what is allocated for the calling thread; NULL: no memory. */
struct client_thread {
    struct client_range ranges[CLIENT_THREAD_RANGES]; /* touch.c */
    uint32_t next_range;
    char last_text[OCCL_DETAIL_BYTES + 64]; /* error.c */
};
struct client_thread *client_thread_own(void);

/* inside.c */
void client_inside_start(void); /* with the attachment, before its threads */
/* Takes a reference; NULL with the status when the library or the handle cannot be used. */
struct client_comm *client_comm_get(struct occl_comm handle, int *out_status);
/* The same for the parts of a handle, and for an op's communicator; NULL when it was destroyed. Set
 * no error text. */
struct client_comm *client_comm_ref(uint32_t index, uint32_t generation);
struct client_comm *client_comm_of_op(const struct client_op *op);
void client_comm_put(struct client_comm *comm);
/* The same for a thread that has a question only: it submits nothing, waits for nothing, and is no
 * obstacle where it matters who does. client_comm_answered is its put. */
struct client_comm *client_comm_ask(struct occl_comm handle, int *out_status);
struct client_comm *client_comm_ask_ref(uint32_t index, uint32_t generation);
void client_comm_answered(struct client_comm *comm);
/* Counts this thread in without a look at the generation. */
void client_comm_hold(struct client_comm *comm);
/* After what the caller has changed for threads to see that come in: they see it, or are counted. A
 * system call. */
void client_comm_order(const struct client_comm *comm);
/* That, and then the references of all threads. */
uint32_t client_comm_users(const struct client_comm *comm);
/* Without the order, and without those that only ask: whose coming the caller has seen in another
 * way. */
static inline uint32_t client_comm_users_seen(const struct client_comm *comm) {
    return occl_observe32(&comm->refs) + occl_observe32(&comm->owner_refs);
}
/* The slot gets this thread as its owner, unless it has one. lib.control is held. */
void client_comm_adopt(struct client_comm *comm);

/* comm.c */
/* OCCL_OK while ops may start and go on; else why not, and about which rank. */
int client_comm_state(struct client_comm *comm, uint32_t *out_rank);
void client_comm_event(const struct occl_msg_event *event);
int client_comm_close(struct occl_comm handle, enum occl_comm_end_how how, int status_for_ops);
void client_comms_end(void);      /* closes all that there are; others may come while threads do */
void client_comms_stop(void);     /* as above, and forgets them: nobody is inside any more */
void client_comms_in_child(void); /* fork: every handle becomes stale */
/* comm_memory.c: by a thread that holds a reference. */
bool client_comm_suspended(struct client_comm *comm);
/* hints.c: text NULL: none. INVALID with the error text. */
int client_hints_parse(const char *text, struct client_hints *out_hints);
/* probe.c: does cross-memory attach work between all pairs, and have all of them room for copies?
 * Collective, at creation, whose time-out counts here, not the deadline of ops. timeout_ns < 0:
 * none. */
int client_probe_peers(struct client_comm *comm, int64_t timeout_ns);
/* The rank's process has certainly exited, or become another program, or has left the communicator
 * with all its threads. Some microseconds. */
bool client_rank_vanished(const struct client_comm *comm, uint32_t rank);

/* tags.c: takes the next instance of the op's (peers, tag), or gives the last one back when the op
 * was not submitted after all; comm->lock is held in between, too. */
int client_tag_next(struct client_op *op, uint32_t *out_instance);
void client_tag_back(struct client_op *op, uint32_t instance);
/* Takes part in what members agree on, for a rank that waits. Does not block. */
void client_tags_visit(struct client_comm *comm);
void client_tags_init(struct client_comm *comm); /* its page is mapped */
void client_tags_free(struct client_comm *comm);
void client_tags_in_child(struct client_comm *comm);

/* op.c */
/* A new op of the pool, held by the caller. generation: of the handle that comm was got by; the
 * table's own may have moved on. NO_MEMORY, QUOTA with the error text. */
int client_op_new(struct client_comm *comm, uint32_t generation, struct client_op **out_op);
void client_op_free(struct client_op *op);
/* Room in a pool op for the arrays of `from`; that for a vector stays with it for later ops. */
int client_op_room(struct client_op *op, const struct client_op *from);
/* Copies what fill() decided into a pool op. */
void client_op_describe(struct client_op *op, const struct client_op *from);
struct client_op *client_op_get(struct occl_request handle);
struct occl_request client_op_handle(const struct client_op *op);
/* Ends an active op of a communicator that goes away; does nothing if it has become another's. */
void client_op_end(struct client_comm *comm, uint32_t generation, struct client_op *op, int status,
                   uint64_t give_up_ns);
void client_ops_in_child(void);
bool client_op_try_hold(struct client_op *op);
void client_op_unhold(struct client_op *op);

/* submit.c: largest payload that every rank computes for itself, bytes: the daemon's setting, the
 * same for all. (What fits into a line is always direct.) */
uint64_t client_direct_max(void);

/* chunks.c: offset in the page of a chunk for the op's payload, or 0. */
uint64_t client_chunk_take(struct client_op *op);
/* This rank has left all ops that it entered before this one of the stream. */
bool client_is_clean(const struct client_op *op);
/* No peer reads a payload of this rank any more; then the chunks are as never used. */
bool client_chunks_reset(struct client_comm *comm);
/* This rank reads no payload of an op of the stream any more. True: it has told so for all ops up
 * to this one, in its note; else each of them is to be told of by OCCL_FLAG_LEFT. */
bool client_chunks_done(const struct client_op *op);
/* After the last look at a record that this rank completes. */
void client_chunks_clean(const struct client_op *op);
/* The op belongs to the untagged stream of collectives; after its place is known. */
static inline bool client_in_stream(const struct client_op *op) {
    return op->place.slot >= OCCL_CLAIM_RUN_FIRST;
}

/* submit.c: starts one run of a filled op. With OCCL_OK the op is ACTIVE or COMPLETE; else nothing
 * was submitted. The caller holds the op and a reference on its communicator. */
int client_submit(struct client_op *op);
/* All members are there and bytes lie outside the page (op->look): LOCAL, or a mismatch. True when
 * it became LOCAL by this call. */
bool client_decide_all(struct client_op *op);
/* What this rank has put off until it comes back to the communicator: looks (alone.c) and leaving a
 * run. The caller holds a reference. */
void client_settle(struct client_comm *comm);
/* After a change of the op's record that may end a wait. */
void client_wake(struct client_op *op);
/* This rank is finished with the op's record; the second: with one op of that record. */
void client_leave(struct client_op *op);
void client_leave_place(struct client_comm *comm, uint32_t slot);

/* submit.c: a held-back op's turn. why_not: OCCL_SQE_..., what the peers are told if after_status
 * is an error. */
void client_submit_now(struct client_op *op, uint32_t why_not);

/* operations.c: submit, and watch what nobody may wait for. The caller holds the op. */
int client_start(struct client_op *op);

/* advance.c: the caller holds the op and a reference on its communicator. True when the op is
 * complete. may_execute: run strands on this thread. */
bool client_advance(struct client_op *op, bool may_execute);
/* A rank that still executes strands of this aborted op, or OCCL_RANK_NONE. */
uint32_t client_busy_rank(struct client_op *op);
/* Ends the run. result_is_staged: executors wrote the result into the staging copy, if there is
 * one. */
void client_finish(struct client_op *op, int status, bool result_is_staged);

/* alone.c: ops that this rank ends without its peers: it brings what they need, and needs nothing.
 */
/* This rank's payload of such an op is in the page and has been published: ends it. in_row: the op
 * before it in the stream was such a one, too, so the look at the peers may come later. */
void client_alone_finish(struct client_op *op, bool in_row);
bool client_alone_in_row(const struct client_op *op);
/* In place of leaving. */
void client_alone_owe(struct client_op *op);
/* The look that is owed, if any. The caller holds a reference on the communicator. */
void client_alone_settle(struct client_comm *comm);

/* How the descriptions of one op by two ranks differ. */
struct client_difference {
    enum occl_signature_field field;
    const struct occl_line *line; /* of the rank that is told */
    uint64_t mine, theirs;        /* the field's values, as that rank and as the other one has it */
};
/* direct.c: sets the asynchronous error of rank `to`, unless it has one: what `about` submitted
 * does not agree with an op that had completed there. */
void client_tell_mismatch(struct client_comm *comm, uint32_t to, uint32_t about,
                          const struct client_difference *difference);
/* The same for a field of the signature; line, about_line: theirs. */
void client_tell_field(struct client_comm *comm, uint32_t to, const struct occl_line *line,
                       uint32_t about, const struct occl_line *about_line,
                       enum occl_signature_field field);
/* And for the block that sender has for receiver; one of them is `to`, the other is named. */
void client_tell_block(struct client_op *op, uint32_t to, const struct occl_local_vectors *vectors,
                       uint32_t sender, uint32_t receiver);
/* text.c: the text of that error, which `late` tells the short form of; returns its status. */
int client_explain_late(struct client_comm *comm, uint32_t late);
/* This rank's op fails by mismatch: members that have ended already, with another description than
 * this rank's, are told. */
void client_tell_alone(struct client_op *op);
/* As op->look says that the op is DIRECT: the status of this rank. */
int client_direct_result(struct client_op *op);
/* One block of n_src inputs to the output, on this thread. factors: of a premultiplied sum. */
void client_reduce(const struct occl_signature *sig, uint32_t n_src, const void *const *inputs,
                   const uint64_t *factors, void *output);
/* One member's bytes to itself: communicators of one rank. */
void client_single_result(struct client_op *op);

/* The member is a rank of this very process. Process ids do not tell: two ranks in pid namespaces
 * of their own may both be process 2. */
static inline bool client_same_process(const struct occl_member *member) {
    return member->session_id == occl_lib.welcome.session_id;
}
/* Rank of a member of an op's record. */
uint32_t client_member_rank(const struct client_op *op, uint32_t member);
/* vectors.c: what ranks say of blocks of different sizes. */
/* Copies of the vectors of the members in mask, checked: valid until this thread's next call.
 * OCCL_E_FAULT: a scribbled page. OCCL_E_NO_MEMORY. */
int client_vectors_get(struct client_op *op, uint64_t mask,
                       const struct occl_local_vectors **out_vectors);
/* First pair that disagrees among those that concern member `mine`; OCCL_LOCAL_RANKS_MAX for it:
 * any pair. Ranks that only give are not asked what they get. True: there is one. */
bool client_vectors_differ(const struct client_op *op, const struct occl_local_vectors *vectors,
                           uint64_t mask, uint32_t mine, uint32_t *out_sender,
                           uint32_t *out_receiver);
/* No member sends anything. vectors: of all members. */
bool client_vectors_empty(const struct client_op *op, const struct occl_local_vectors *vectors);
/* Puts this rank's vector and, if it fits, what it sends, into the page or a region. *out_in_page:
 * all of it is in the page. */
int client_vector_publish(struct client_op *op, uint64_t direct_max, bool *out_in_page);
/* So that the daemon can read it. */
int client_vector_share(struct client_op *op);
void client_vector_unshare(struct client_op *op);

/* local.c: what is to be done for the op, as its members' lines tell; all have arrived. */
int client_local_plan(struct client_op *op, struct occl_local_plan *out);
/* What this rank's threads moved, bytes read and written, is charged to its job. */
void client_charge(const struct client_op *op, uint64_t traffic);
/* Claims and runs strands of a LOCAL record until none is left. */
void client_local_execute(struct client_op *op);
/* All members' buffers are where the daemon's lanes can reach them. */
bool client_local_lanes_can(struct client_op *op);
/* The core goes to somebody else when there are more runnable ranks than cores: this, not niceness,
 * keeps a small urgent op short beside bulk. Once for a full slice's bytes: strands of smaller ops
 * take less time than a switch. traffic: just moved; *moved_bytes: since the core was given away.
 */
void client_give_way(const struct client_comm *comm, uint64_t traffic, uint64_t *moved_bytes);

/* spill.c: the ring. Reserve takes a completion credit; WOULD_BLOCK when none is free. */
int client_ring_start(const struct occl_session_shape *shape);
void client_ring_stop(void);
int client_ring_reserve(void);
void client_ring_unreserve(void);
int client_ring_submit(struct client_op *op);
int client_ring_execute(struct client_op *op);
void client_ring_cancel(struct client_op *op);
void client_ring_reap(void);
void client_ring_abandon(struct client_op *op);

/* wait.c */
/* Its waits spin, because every rank of the node, and of the job, can have a core at this moment:
 * others may have come or gone since the communicator was made. */
static inline bool client_spins(const struct client_comm *comm) {
    const struct occl_job_page *job = occl_lib.job;
    return comm->policy.spin_steps > 0 &&
           occl_peek32(&job->node_ranks) <= occl_peek32(&job->node_cores) &&
           occl_peek32(&job->job_ranks) <= occl_peek32(&job->job_cores);
}
/* One step of patient polling where there is no word to sleep on; the first rounds only yield. */
#define CLIENT_NAPS_YIELDED 64u
void client_nap(uint32_t round);
uint64_t client_now_ns(void);

/* text.c: stores the text of an op's error and returns its status. */
int client_explain(struct client_op *op);

#endif
