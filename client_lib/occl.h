/* SPDX-License-Identifier: Apache-2.0 */
/* occl: collective communication through a node daemon.
 *
 * A process attaches to the daemon of its node (occld), joins communicators and enqueues
 * operations. Operations may be submitted in any order, from any thread, on any rank: an op is
 * matched with its peers by (communicator, tag, instance under that tag), so no order can deadlock.
 * Untagged calls (tag 0) of a communicator form one stream in which the k-th call matches the k-th
 * call of the other ranks; calls with a tag form a stream of their own per tag. The order of calls
 * is matching order only: a later op may execute and complete before an earlier one. Data
 * dependencies are expressed by waiting. A program may use a new tag for each op: ranks forget tags
 * that all of them are done with; at most 1048576 of a communicator are alive.
 *
 * Thread safety: every function may be called from any thread. A handle may be used by several
 * threads at once; it is an integer with a generation, and a stale one is an ordinary error
 * (OCCL_ERROR_HANDLE). In a forked child every call fails with OCCL_ERROR_FORKED until the child
 * attaches itself with occl_init; the parent is not disturbed.
 *
 * Blocking: the functions that take an `occl_request *out_request` block until the op has completed
 * when out_request is NULL, and return at once otherwise. Inside occl_group_start/end nothing
 * blocks before occl_group_end.
 *
 * Completion is local and happens exactly once: success means that this rank's output is right and
 * its buffers are free; an error names peer and cause (occl_last_error). Buffers are safe to reuse
 * when the op has completed, also with an error, except where the error's text names a rank that
 * may still write into them. On failure the inputs of out-of-place ops are untouched.
 *
 * Buffers: memory from occl_mem_alloc is shared with the job's ranks and the daemon: zero-copy. Any
 * other pointer works and is slower: ranks copy through shared memory where that is quicker, pull
 * from each other with cross-memory attach else, where the system allows it, and copy where it does
 * not.
 *
 * Determinism: the same communicator, arguments and inputs give the same bits on every rank, in
 * every run, for every message size and position, whoever executes (level D2): operands are
 * combined in ascending rank order. float16 and bfloat16 accumulate in float32 and round once to
 * nearest even; avg divides once, in the accumulation type, after the sum; integer sums wrap modulo
 * 2^n, integer avg is the exact sum divided with truncation toward zero. min and max propagate NaN
 * and order -0 below +0; a NaN result is the canonical quiet NaN.
 *
 * Errors: functions return enum occl_result. occl_last_error() gives the text of the calling
 * thread's last error: what was expected, what was found, which ranks are concerned. */
#ifndef OCCL_H
#define OCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCCL_VERSION_MAJOR 0
#define OCCL_VERSION_MINOR 1
#define OCCL_VERSION_PATCH 0

/* Zero is success, positive values are not errors, negative values are errors. */
enum occl_result {
    OCCL_SUCCESS = 0,
    OCCL_IN_PROGRESS = 1, /* not complete yet (occl_test, occl_comm_get_async_error) */
    OCCL_TRY_AGAIN = 2,   /* a ring or quota is full for the moment; nothing was submitted */

    OCCL_ERROR_INVALID_ARGUMENT = -1,
    OCCL_ERROR_HANDLE = -2, /* stale, destroyed or foreign handle */
    OCCL_ERROR_USAGE = -3,  /* right arguments at a wrong time */
    OCCL_ERROR_NO_MEMORY = -4,
    OCCL_ERROR_UNSUPPORTED = -5,
    OCCL_ERROR_QUOTA = -6,    /* a limit of the tenant; the text names it */
    OCCL_ERROR_TIMEOUT = -7,  /* the deadline passed; the text names the ranks that are missing */
    OCCL_ERROR_MISMATCH = -8, /* the ranks described the op differently; the text names the field */
    OCCL_ERROR_FAULT = -9,    /* a buffer is not mapped or not accessible */
    OCCL_ERROR_CANCELED = -10,
    OCCL_ERROR_FORKED = -11,
    OCCL_ERROR_TRUNCATED = -12,
    OCCL_ERROR_BUSY = -13, /* name, rank or object in use */
    OCCL_ERROR_NOT_FOUND = -14,

    OCCL_ERROR_NO_DAEMON = -20,
    OCCL_ERROR_PERMISSION = -21,
    OCCL_ERROR_VERSION = -22,
    OCCL_ERROR_DAEMON_LOST = -23,
    OCCL_ERROR_QUARANTINED = -24, /* memory shared with the daemon was corrupt: session ended */
    OCCL_ERROR_PROTOCOL = -25,

    OCCL_ERROR_TENANT_REFUSED = -40,

    OCCL_ERROR_PEER_FAILED = -60, /* a member died; the text names rank, host, pid, cause */
    OCCL_ERROR_REVOKED = -61,
    OCCL_ERROR_ABORTED = -62,

    OCCL_ERROR_SHUTTING_DOWN = -80,
    OCCL_ERROR_INTERNAL = -81
};

/* Element types. Those of NCCL have its numbers. A pair is a value and the index that belongs to
 * it, in this order and without padding. A truth value is an integer: 0 is false, all else is true.
 */
enum occl_type {
    OCCL_INT8 = 0,
    OCCL_UINT8 = 1,
    OCCL_INT32 = 2,
    OCCL_UINT32 = 3,
    OCCL_INT64 = 4,
    OCCL_UINT64 = 5,
    OCCL_FLOAT16 = 6,
    OCCL_FLOAT32 = 7,
    OCCL_FLOAT64 = 8,
    OCCL_BFLOAT16 = 9,
    OCCL_FLOAT8E4M3 = 10, /* OCP: no infinity, largest 448 */
    OCCL_FLOAT8E5M2 = 11,
    OCCL_INT16 = 32,
    OCCL_UINT16 = 33,
    OCCL_FLOAT32_INT32 = 36, /* pairs: for minloc and maxloc only */
    OCCL_FLOAT64_INT64 = 37,
    OCCL_INT32_INT32 = 38,
    OCCL_INT64_INT64 = 39
};

/* Reductions. Those of NCCL have its numbers. The values of all ranks are combined in ascending
 * order of the ranks, so all ranks get the same bits, whatever the size, the place, the path and
 * the number of threads that execute the operation.
 *
 * Integers: sums, products and premultiplied sums wrap modulo 2^bits. The average divides the exact
 * sum by the number of ranks and truncates toward zero.
 * Floats: 8- and 16-bit types are combined in float32 and rounded once, to nearest even, at the
 * end; the others in their own type. Denormals are kept. The average divides once, before that
 * rounding. A result beyond the largest value is an infinity; float8e4m3 has none, there it is a
 * NaN. A NaN result has one bit pattern. minimum and maximum are those of IEEE 754-2019: a NaN of
 * any rank gives NaN, and -0 is less than +0. minloc, maxloc: the pair with the smallest (largest)
 * value in that same order, so -0 is less than +0 whatever the indices; among equal values the one
 * with the lowest index (signed). A NaN value wins over numbers; among NaNs the index decides.
 *
 * sum, prod, max, min, avg, premulsum: all types but pairs. band ... lxor: integers; land, lor and
 * lxor give 0 or 1. minloc, maxloc: pairs. Everything else is INVALID_ARGUMENT. */
enum occl_redop {
    OCCL_SUM = 0,
    OCCL_PROD = 1,
    OCCL_MAX = 2,
    OCCL_MIN = 3,
    OCCL_AVG = 4,
    OCCL_PREMULSUM = 5, /* sum of each rank's value times its occl_op_attr.factor */
    OCCL_BAND = 6,
    OCCL_BOR = 7,
    OCCL_BXOR = 8,
    OCCL_LAND = 9,
    OCCL_LOR = 10,
    OCCL_LXOR = 11,
    OCCL_MINLOC = 12,
    OCCL_MAXLOC = 13
};

/* Scheduling class of a communicator or op: a higher class is served first; every op of a lower
 * class still gets a slice per ageing period, so nothing starves. */
enum occl_priority {
    OCCL_PRIORITY_DEFAULT = -1, /* the next one outward: op, communicator, parent, job */
    OCCL_PRIORITY_BULK = 0,
    OCCL_PRIORITY_NORMAL = 1,
    OCCL_PRIORITY_HIGH = 2,
    OCCL_PRIORITY_URGENT = 3
};

/* Handles: a number with a generation. {0} is never valid. */
struct occl_comm {
    uint64_t handle;
};
struct occl_request {
    uint64_t handle;
};

/* Names a communicator before it exists. Holds a 128-bit secret: whoever knows it may join. */
struct occl_unique_id {
    uint8_t bytes[128];
};

/* No tag or one below OCCL_TAG_MAX. 0 is the untagged stream. */
#define OCCL_TAG_MAX 0x7fffffffu

/* ---- library ---- */

struct occl_init_attr {
    size_t size;        /* sizeof(struct occl_init_attr); fields beyond it keep their defaults */
    const char *socket; /* NULL: $OCCL_SOCKET, /run/occl/occld.sock, this user's private daemon */
    const char *job;    /* NULL: $OCCL_JOB, else the user's default job */
    const char *tag;    /* tenant tag; NULL: $OCCL_TENANT_TAG, else none */
};

/* Attaches this process to the daemon. attr may be NULL. Calls nest: each needs an occl_finalize,
 * only the first one's attributes count. Blocks for the handshake (milliseconds; at most 10 s).
 * NO_DAEMON (the text lists where it looked), PERMISSION, VERSION (both versions), QUOTA,
 * TENANT_REFUSED, NO_MEMORY. */
enum occl_result occl_init(const struct occl_init_attr *attr);

/* occl_init, then the communicator that the launcher described: OCCL_RANK, OCCL_SIZE and
 * OCCL_UNIQUE_ID (set by `occlctl run`). Blocks until all ranks have come. USAGE when a variable is
 * missing or malformed (the text names it), and the errors of occl_init and occl_comm_create. */
enum occl_result occl_init_env(struct occl_comm *out_comm);

/* Undoes one occl_init; the last one destroys what is left and detaches. Outstanding ops end with
 * OCCL_ERROR_CANCELED here and are seen by peers as a closed session. Memory of occl_mem_alloc
 * becomes invalid. USAGE without occl_init. */
enum occl_result occl_finalize(void);

/* *out_version = major * 10000 + minor * 100 + patch. Needs no occl_init. */
enum occl_result occl_get_version(int *out_version);

/* Static text for a result. Needs no occl_init. */
const char *occl_result_string(enum occl_result result);

/* Text of the last error of this thread, "" before the first. Valid until the thread's next call.
 */
const char *occl_last_error(void);

/* ---- communicators ---- */

struct occl_comm_attr {
    size_t size;                /* sizeof(struct occl_comm_attr) */
    const char *name;           /* shown by occlctl; NULL: "comm-N" */
    int priority;               /* enum occl_priority; DEFAULT: the job's, as it is at any time */
    int64_t create_timeout_ns;  /* for the other ranks to come; <= 0: no limit */
    int64_t default_timeout_ns; /* deadline of each op from its submission; <= 0: none */
    /* "key=value,key=value", or NULL; each rank's own. An unknown key or value is INVALID_ARGUMENT.
     *   wait=auto|sleep    how a call waits for its peers: briefly awake, then asleep, or asleep at
     *                      once, which leaves the core to others and costs latency
     *   cross_memory=auto|off   memory that is not of occl_mem_alloc: peers read it where it is, or
     *                      it is copied through shared memory where that is quicker (up to
     *                      copy_max of occld.conf); off on any rank: always copied */
    const char *hints;
};
#define OCCL_COMM_ATTR_INIT \
    { sizeof(struct occl_comm_attr), NULL, OCCL_PRIORITY_DEFAULT, 0, 0, NULL }

/* Makes a new unique id. One rank calls it and gives the id to the others by its own means. Needs
 * no occl_init. */
enum occl_result occl_get_unique_id(struct occl_unique_id *out_id);

/* Joins as rank `rank` of `size` ranks; returns when all have come. All ranks must be processes of
 * the same job; a process may hold several ranks (from different threads). An id names one
 * communicator, once. INVALID_ARGUMENT (rank or size out of range), MISMATCH (sizes that differ),
 * BUSY (rank taken, id used before), TIMEOUT (names the missing ranks), PERMISSION (another job),
 * QUOTA, PEER_FAILED. */
enum occl_result occl_comm_create(const struct occl_unique_id *id, int rank, int size,
                                  const struct occl_comm_attr *attr, struct occl_comm *out_comm);

/* Collective over `comm`: ranks with the same color >= 0 form a new communicator, ordered by key,
 * then by their rank in comm. color < 0: *out_comm becomes {0}. Needs all ranks of comm to call it,
 * in the same order among splits of comm. Name and priority of a new communicator are those in the
 * attributes of its rank 0; OCCL_PRIORITY_DEFAULT, or no attributes, gives it the priority of comm.
 * default_timeout_ns is each rank's own and not that of comm; the shortest create_timeout_ns of all
 * ranks ends the split for all. INVALID_ARGUMENT (priority, name), TIMEOUT (names the missing
 * ranks), QUOTA, PEER_FAILED, REVOKED, ABORTED. */
enum occl_result occl_comm_split(struct occl_comm comm, int color, int key,
                                 const struct occl_comm_attr *attr, struct occl_comm *out_comm);

/* Local, never waits for other ranks. Ops of this rank that are outstanding end with CANCELED; ops
 * of peers that need this rank end with PEER_FAILED ("destroyed its communicator"). The handle is
 * stale afterwards. */
enum occl_result occl_comm_destroy(struct occl_comm comm);

/* Ends all outstanding and future ops of comm on all ranks with ABORTED and destroys this rank's
 * handle. Independent of the other ranks, callable from any thread while others are blocked in ops
 * of comm (these return). Returns within the slice in progress (< 2 s in any case). */
enum occl_result occl_comm_abort(struct occl_comm comm);

/* Ends all outstanding and future ops of comm on all ranks with REVOKED; the handle stays valid for
 * queries and occl_comm_destroy. Any rank may call it at any time. */
enum occl_result occl_comm_revoke(struct occl_comm comm);

enum occl_result occl_comm_rank(struct occl_comm comm, int *out_rank);
enum occl_result occl_comm_size(struct occl_comm comm, int *out_size);

/* The value of a hint that is in effect, as text of at most `bytes` bytes with its end. Of
 * cross_memory: whether it is used, "auto" or "off". INVALID_ARGUMENT: no such key, or no room. */
enum occl_result occl_comm_get_hint(struct occl_comm comm, const char *key, char *out_value,
                                    size_t bytes);

/* What a communicator and this process hold, in bytes. */
struct occl_mem_stats {
    size_t size;            /* sizeof(struct occl_mem_stats), set by the caller */
    uint64_t page_bytes;    /* the communicator's page: one for all its ranks */
    uint64_t payload_bytes; /* of it, room for this rank's small payloads */
    uint64_t counter_bytes; /* counters of tags; private memory */
    uint64_t region_bytes;  /* process: occl_mem_alloc, and copies; charged to the tenant */
    uint64_t staging_bytes; /* process: of these, for copies of memory not of occl_mem_alloc */
    uint64_t mapped_bytes;  /* process: regions of other processes of the job, mapped here */
};
/* Fills *out_stats, whose size is set. Never blocks for long. INVALID_ARGUMENT. */
enum occl_result occl_comm_mem_stats(struct occl_comm comm, struct occl_mem_stats *out_stats);

/* Gives back the memory that comm needs only while ops are under way: this rank's payload room, and
 * the process's unused copies. Until occl_comm_resume each submission on this rank is USAGE; peers
 * just wait for it. Local. USAGE while ops of this rank are outstanding, TRY_AGAIN while a peer
 * still reads a payload of an earlier op. */
enum occl_result occl_comm_suspend(struct occl_comm comm);
/* Undoes occl_comm_suspend; memory comes back as it is needed. Without suspend it does nothing. */
enum occl_result occl_comm_resume(struct occl_comm comm);

/* *out_error: SUCCESS, or the error that ended the communicator (PEER_FAILED, REVOKED, ABORTED,
 * DAEMON_LOST, QUARANTINED), or the first error of an op that had completed here before its peers'
 * mismatch was known (broadcast root, buffered send). occl_last_error() then holds its text. Never
 * blocks. */
enum occl_result occl_comm_get_async_error(struct occl_comm comm, enum occl_result *out_error);

/* ---- memory ---- */

/* Memory that the ranks of this job and the daemon can reach without a copy. Aligned to 4096 bytes,
 * zeroed, populated by the calling thread, backed by huge pages where the system has them. Charged
 * to the tenant's quota. INVALID_ARGUMENT (0 bytes), QUOTA, NO_MEMORY, DAEMON_LOST. */
enum occl_result occl_mem_alloc(size_t bytes, void **out_ptr);
/* ptr must come from occl_mem_alloc (NULL is allowed). USAGE while a request of this process uses
 * it, or a blocking call of more than 4 KiB; who frees the buffer of a smaller one, which another
 * thread is in, takes it away under that thread's hands. */
enum occl_result occl_mem_free(void *ptr);

/* ---- operations ---- */

/* A process may have 32768 ops outstanding that find no free record (a communicator has 128 for ops
 * with tags, 64 for the untagged stream and 64 for sends and receives), and a tenant
 * 65536 (its quota) in the daemon. A submission beyond that waits for an earlier op of the process,
 * which is an order that the program did not ask for: ranks that submit more than that in opposite
 * orders may wait for each other. */
enum occl_op_flags {
    OCCL_OP_NO_WAIT_FOR_ROOM = 1 /* return TRY_AGAIN instead of waiting when the ring is full */
};

struct occl_op_attr {
    size_t size;        /* sizeof(struct occl_op_attr) */
    uint32_t tag;       /* 0: the untagged stream; < OCCL_TAG_MAX */
    uint32_t flags;     /* enum occl_op_flags */
    int priority;       /* enum occl_priority; DEFAULT: the communicator's */
    int64_t timeout_ns; /* deadline from submission (persistent: from start); 0: the communicator's
                           default; < 0: none */
    /* Called once on a library thread when the op has completed; must not block: waiting for a
     * request, occl_init and occl_finalize are USAGE there. The request (if any) must still be
     * waited for or tested. NULL: none. Only with out_request. */
    void (*callback)(enum occl_result result, void *arg);
    void *callback_arg;
    /* premulsum, and only there: this rank's factor, read by the call. A float for types of 8, 16
     * and 32 bits that are floats, a double for float64, an int64_t or uint64_t for integers. */
    const void *factor;
    /* The op starts on this rank, and its buffers are not touched before, when these requests of
     * this process have completed: the order of data without a wait. Its place among its peers' ops
     * is that of the call. Requests that have completed already, or are persistent and not active,
     * do not hold it up. If one of them ends with an error the op ends with the same one here, and
     * with ABORTED at its peers. The array is read by the call; persistent: by each start, so
     * occl_request_free of what a persistent op comes after is up to you. */
    const struct occl_request *after;
    size_t after_count;
};
#define OCCL_OP_ATTR_INIT \
    { sizeof(struct occl_op_attr), 0, 0, OCCL_PRIORITY_DEFAULT, 0, NULL, NULL, NULL, NULL, 0 }

/* In all operations: counts are elements (64 bits; 0 is allowed and still meets the peers); attr
 * may be NULL; out_request NULL blocks. send and recv buffers are disjoint, or in place: equal,
 * where nothing else is said; every other overlap is INVALID_ARGUMENT. A buffer that is not used on
 * a rank is ignored there. Ranks that disagree on kind, type, operator, root or count get MISMATCH
 * before any output byte is written. Common errors: INVALID_ARGUMENT, HANDLE, MISMATCH, TIMEOUT,
 * PEER_FAILED, REVOKED, ABORTED, DAEMON_LOST, QUARANTINED, FAULT, QUOTA, TRY_AGAIN, FORKED. */

/* recvbuf[i] on every rank = op over all ranks of sendbuf[i]. */
enum occl_result occl_all_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                 enum occl_type type, enum occl_redop op, struct occl_comm comm,
                                 const struct occl_op_attr *attr, struct occl_request *out_request);

/* recvbuf[i] on every rank = the root's sendbuf[i]. sendbuf is read on the root only (NULL
 * elsewhere is fine). On the root recvbuf may equal sendbuf, or be NULL, which means in place. */
enum occl_result occl_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                enum occl_type type, int root, struct occl_comm comm,
                                const struct occl_op_attr *attr, struct occl_request *out_request);

/* recvbuf[i] on the root = op over all ranks of sendbuf[i]. recvbuf is written on the root only
 * (NULL elsewhere is fine). On the root sendbuf may equal recvbuf, or be NULL, which means in
 * place. Small operations may complete at the others before the root has come. */
enum occl_result occl_reduce(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                             enum occl_redop op, int root, struct occl_comm comm,
                             const struct occl_op_attr *attr, struct occl_request *out_request);

/* recvbuf[k * count + i] on every rank = sendbuf[i] of rank k: recvbuf has size * count elements.
 * In place: sendbuf is the rank's own block in recvbuf. */
enum occl_result occl_all_gather(const void *sendbuf, void *recvbuf, size_t count,
                                 enum occl_type type, struct occl_comm comm,
                                 const struct occl_op_attr *attr, struct occl_request *out_request);

/* recvbuf[i] on rank k = op over all ranks of sendbuf[k * count + i]: sendbuf has size * count
 * elements. In place: recvbuf is the rank's own block in sendbuf; the other blocks stay as they
 * are. */
enum occl_result occl_reduce_scatter(const void *sendbuf, void *recvbuf, size_t count,
                                     enum occl_type type, enum occl_redop op, struct occl_comm comm,
                                     const struct occl_op_attr *attr,
                                     struct occl_request *out_request);

/* recvbuf[k * count + i] on rank r = sendbuf[r * count + i] of rank k: both have size * count
 * elements. */
enum occl_result occl_all_to_all(const void *sendbuf, void *recvbuf, size_t count,
                                 enum occl_type type, struct occl_comm comm,
                                 const struct occl_op_attr *attr, struct occl_request *out_request);

/* recvbuf[k * count + i] on the root = sendbuf[i] of rank k: recvbuf has size * count elements
 * there and is not used elsewhere. In place at the root: sendbuf is its own block in recvbuf, or
 * NULL. Small operations may complete at the others before the root has come. */
enum occl_result occl_gather(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                             int root, struct occl_comm comm, const struct occl_op_attr *attr,
                             struct occl_request *out_request);

/* recvbuf[i] on rank k = the root's sendbuf[k * count + i]: sendbuf has size * count elements there
 * and is not used elsewhere. In place at the root: recvbuf is its own block in sendbuf, or NULL. */
enum occl_result occl_scatter(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                              int root, struct occl_comm comm, const struct occl_op_attr *attr,
                              struct occl_request *out_request);

/* recvbuf[i] on rank k = op over ranks 0 .. k of sendbuf[i]; the average divides by k + 1. */
enum occl_result occl_scan(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                           enum occl_redop op, struct occl_comm comm,
                           const struct occl_op_attr *attr, struct occl_request *out_request);

/* recvbuf[i] on rank k = op over ranks 0 .. k - 1 of sendbuf[i]; the average divides by k. On rank
 * 0 recvbuf is not written and may be NULL. */
enum occl_result occl_exscan(const void *sendbuf, void *recvbuf, size_t count, enum occl_type type,
                             enum occl_redop op, struct occl_comm comm,
                             const struct occl_op_attr *attr, struct occl_request *out_request);

/* Completes when all ranks have called it. */
enum occl_result occl_barrier(struct occl_comm comm, const struct occl_op_attr *attr,
                              struct occl_request *out_request);

/* Half a barrier: completes at the root when all ranks have called it, at the others at once. */
enum occl_result occl_fan_in(int root, struct occl_comm comm, const struct occl_op_attr *attr,
                             struct occl_request *out_request);

/* The other half: completes at all ranks when the root has called it, at the root at once. */
enum occl_result occl_fan_out(int root, struct occl_comm comm, const struct occl_op_attr *attr,
                              struct occl_request *out_request);

/* With blocks of different sizes (..._v): arrays have an entry for each rank, counts and
 * displacements are elements, and displs NULL means that the blocks follow each other. Blocks in a
 * receive buffer do not overlap. What a rank sends to another is what the other expects from it,
 * else MISMATCH. A count of 0 is allowed. The arrays are read by the call. In place as without _v;
 * all_to_all_v then needs equal counts and displacements on both sides. */

/* Rank k's sendcount elements go to recvbuf + displs[k] on every rank. */
enum occl_result occl_all_gather_v(const void *sendbuf, size_t sendcount, void *recvbuf,
                                   const size_t *recvcounts, const size_t *displs,
                                   enum occl_type type, struct occl_comm comm,
                                   const struct occl_op_attr *attr,
                                   struct occl_request *out_request);

/* recvbuf on rank k = op over all ranks of the k-th block of sendbuf, which has recvcounts[k]
 * elements; the blocks follow each other. */
enum occl_result occl_reduce_scatter_v(const void *sendbuf, void *recvbuf, const size_t *recvcounts,
                                       enum occl_type type, enum occl_redop op,
                                       struct occl_comm comm, const struct occl_op_attr *attr,
                                       struct occl_request *out_request);

/* sendcounts[r] elements at sendbuf + sdispls[r] go to rank r, as its block of this rank. */
enum occl_result occl_all_to_all_v(const void *sendbuf, const size_t *sendcounts,
                                   const size_t *sdispls, void *recvbuf, const size_t *recvcounts,
                                   const size_t *rdispls, enum occl_type type,
                                   struct occl_comm comm, const struct occl_op_attr *attr,
                                   struct occl_request *out_request);

/* The root's recvbuf + displs[k] = rank k's sendcount elements. recvcounts and displs are read on
 * the root only. */
enum occl_result occl_gather_v(const void *sendbuf, size_t sendcount, void *recvbuf,
                               const size_t *recvcounts, const size_t *displs, enum occl_type type,
                               int root, struct occl_comm comm, const struct occl_op_attr *attr,
                               struct occl_request *out_request);

/* recvbuf on rank k = the root's sendcounts[k] elements at sendbuf + displs[k]. sendcounts and
 * displs are read on the root only. */
enum occl_result occl_scatter_v(const void *sendbuf, const size_t *sendcounts, const size_t *displs,
                                void *recvbuf, size_t recvcount, enum occl_type type, int root,
                                struct occl_comm comm, const struct occl_op_attr *attr,
                                struct occl_request *out_request);

/* Point to point: the k-th send from a to b with a tag meets the k-th receive of b from a with that
 * tag. Small messages may complete at the sender before the receiver came. peer may be the own rank
 * if send or receive does not block. */
enum occl_result occl_send(const void *sendbuf, size_t count, enum occl_type type, int peer,
                           struct occl_comm comm, const struct occl_op_attr *attr,
                           struct occl_request *out_request);
enum occl_result occl_recv(void *recvbuf, size_t count, enum occl_type type, int peer,
                           struct occl_comm comm, const struct occl_op_attr *attr,
                           struct occl_request *out_request);

/* Persistent operations: the arguments are fixed and checked once; occl_start submits the op
 * (again). The request stays until occl_request_free. Starting an active request is USAGE. */
enum occl_result occl_all_reduce_init(const void *sendbuf, void *recvbuf, size_t count,
                                      enum occl_type type, enum occl_redop op,
                                      struct occl_comm comm, const struct occl_op_attr *attr,
                                      struct occl_request *out_request);
enum occl_result occl_broadcast_init(const void *sendbuf, void *recvbuf, size_t count,
                                     enum occl_type type, int root, struct occl_comm comm,
                                     const struct occl_op_attr *attr,
                                     struct occl_request *out_request);
enum occl_result occl_reduce_init(const void *sendbuf, void *recvbuf, size_t count,
                                  enum occl_type type, enum occl_redop op, int root,
                                  struct occl_comm comm, const struct occl_op_attr *attr,
                                  struct occl_request *out_request);
enum occl_result occl_all_gather_init(const void *sendbuf, void *recvbuf, size_t count,
                                      enum occl_type type, struct occl_comm comm,
                                      const struct occl_op_attr *attr,
                                      struct occl_request *out_request);
enum occl_result occl_reduce_scatter_init(const void *sendbuf, void *recvbuf, size_t count,
                                          enum occl_type type, enum occl_redop op,
                                          struct occl_comm comm, const struct occl_op_attr *attr,
                                          struct occl_request *out_request);
enum occl_result occl_all_to_all_init(const void *sendbuf, void *recvbuf, size_t count,
                                      enum occl_type type, struct occl_comm comm,
                                      const struct occl_op_attr *attr,
                                      struct occl_request *out_request);
enum occl_result occl_gather_init(const void *sendbuf, void *recvbuf, size_t count,
                                  enum occl_type type, int root, struct occl_comm comm,
                                  const struct occl_op_attr *attr,
                                  struct occl_request *out_request);
enum occl_result occl_scatter_init(const void *sendbuf, void *recvbuf, size_t count,
                                   enum occl_type type, int root, struct occl_comm comm,
                                   const struct occl_op_attr *attr,
                                   struct occl_request *out_request);
enum occl_result occl_scan_init(const void *sendbuf, void *recvbuf, size_t count,
                                enum occl_type type, enum occl_redop op, struct occl_comm comm,
                                const struct occl_op_attr *attr, struct occl_request *out_request);
enum occl_result occl_exscan_init(const void *sendbuf, void *recvbuf, size_t count,
                                  enum occl_type type, enum occl_redop op, struct occl_comm comm,
                                  const struct occl_op_attr *attr,
                                  struct occl_request *out_request);
enum occl_result occl_barrier_init(struct occl_comm comm, const struct occl_op_attr *attr,
                                   struct occl_request *out_request);
enum occl_result occl_fan_in_init(int root, struct occl_comm comm, const struct occl_op_attr *attr,
                                  struct occl_request *out_request);
enum occl_result occl_fan_out_init(int root, struct occl_comm comm, const struct occl_op_attr *attr,
                                   struct occl_request *out_request);
enum occl_result occl_send_init(const void *sendbuf, size_t count, enum occl_type type, int peer,
                                struct occl_comm comm, const struct occl_op_attr *attr,
                                struct occl_request *out_request);
enum occl_result occl_recv_init(void *recvbuf, size_t count, enum occl_type type, int peer,
                                struct occl_comm comm, const struct occl_op_attr *attr,
                                struct occl_request *out_request);
enum occl_result occl_all_gather_v_init(const void *sendbuf, size_t sendcount, void *recvbuf,
                                        const size_t *recvcounts, const size_t *displs,
                                        enum occl_type type, struct occl_comm comm,
                                        const struct occl_op_attr *attr,
                                        struct occl_request *out_request);
enum occl_result occl_reduce_scatter_v_init(const void *sendbuf, void *recvbuf,
                                            const size_t *recvcounts, enum occl_type type,
                                            enum occl_redop op, struct occl_comm comm,
                                            const struct occl_op_attr *attr,
                                            struct occl_request *out_request);
enum occl_result occl_all_to_all_v_init(const void *sendbuf, const size_t *sendcounts,
                                        const size_t *sdispls, void *recvbuf,
                                        const size_t *recvcounts, const size_t *rdispls,
                                        enum occl_type type, struct occl_comm comm,
                                        const struct occl_op_attr *attr,
                                        struct occl_request *out_request);
enum occl_result occl_gather_v_init(const void *sendbuf, size_t sendcount, void *recvbuf,
                                    const size_t *recvcounts, const size_t *displs,
                                    enum occl_type type, int root, struct occl_comm comm,
                                    const struct occl_op_attr *attr,
                                    struct occl_request *out_request);
enum occl_result occl_scatter_v_init(const void *sendbuf, const size_t *sendcounts,
                                     const size_t *displs, void *recvbuf, size_t recvcount,
                                     enum occl_type type, int root, struct occl_comm comm,
                                     const struct occl_op_attr *attr,
                                     struct occl_request *out_request);
enum occl_result occl_start(struct occl_request request);

/* ---- completion ---- */

/* Blocks until the op has completed; returns its result. A one-shot request is freed and its handle
 * becomes stale; a persistent one becomes inactive (waiting on an inactive one returns at once).
 * Several threads may wait for one request: one of them gets the result, the others HANDLE. */
enum occl_result occl_wait(struct occl_request request);

/* As occl_wait, but gives up after timeout_ns (0: at once) with IN_PROGRESS: the op goes on. */
enum occl_result occl_wait_for(struct occl_request request, int64_t timeout_ns);

/* *out_done = 1 when the op has completed: then the request is finished as by occl_wait and the
 * op's result is returned. Otherwise *out_done = 0 and IN_PROGRESS. Does a bounded amount of
 * progress. */
enum occl_result occl_test(struct occl_request request, int *out_done);

/* Waits until one of count requests has completed, finishes it as occl_wait does, and stores its
 * index. Entries with handle 0 and inactive persistent ones are passed over; with none left the
 * result is SUCCESS and *out_index = -1. timeout_ns < 0: no limit. */
enum occl_result occl_wait_any(const struct occl_request *requests, int count, int64_t timeout_ns,
                               int *out_index);
/* Waits for all; returns the first error in the order of the array. */
enum occl_result occl_wait_all(const struct occl_request *requests, int count);

/* Frees a persistent request (USAGE while it is active), or a completed one-shot one. */
enum occl_result occl_request_free(struct occl_request request);

/* A descriptor that polls readable while at least one op of this process that was submitted with a
 * request has completed and not been waited for since. Owned by the library, valid until
 * occl_finalize; do not read or close it. The first call makes the library watch completions. */
enum occl_result occl_completion_fd(int *out_fd);

/* Between start and end of one thread, the operations of that thread without out_request do not
 * block; end waits for all of them and returns the first error. Groups nest; the outermost end
 * counts. occl_group_end without start is USAGE. */
enum occl_result occl_group_start(void);
enum occl_result occl_group_end(void);

#ifdef __cplusplus
}
#endif

#endif
