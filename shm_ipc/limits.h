/* SPDX-License-Identifier: Apache-2.0 */
/* Every limit of occl in one place, with its unit in the name and the reason for the number.
 * Dual header (C11, C++, CUDA): only enum constants and macros. */
#ifndef SHM_IPC_LIMITS_H
#define SHM_IPC_LIMITS_H

/* Shape of the machine. */
#define OCCL_CACHE_LINE_BYTES 64
#define OCCL_PAGE_BYTES 4096
#define OCCL_HUGE_PAGE_BYTES (2u << 20)

/* A communicator on one node: the fan-in of the reduction kernels (gpu/host/reduce.h). */
#define OCCL_LOCAL_RANKS_MAX 64

/* Records of one communicator page: for ops of two members (point to point), for collectives with
 * tags, and runs for the untagged stream, which let a rank be 48 to 64 ops ahead of the last one.
 * More outstanding ops go through the ring. 256 x (header + 8 ranks) is 560 KiB; only what is in
 * use takes room in a cache.
 * A run is claimed and left once: 16 ops make that cost a twentieth of an op. */
#define OCCL_PAIRS 64
#define OCCL_SINGLES 128
#define OCCL_RUNS 4
#define OCCL_RUN_OPS 16
/* Stretches of a local op that executors begin with: as many cores work on one op undisturbed. */
#define OCCL_STRAND_SEGMENTS 8
#define OCCL_RECORDS (OCCL_PAIRS + OCCL_SINGLES + OCCL_RUNS * OCCL_RUN_OPS)
#define OCCL_CLAIMS (OCCL_PAIRS + OCCL_SINGLES + OCCL_RUNS)
/* Payload that travels inside a rank's line: 32 bytes share the descriptor's cache line (8-byte
 * all-reduces touch one line per rank), 128 bytes fill the line group. */
#define OCCL_TINY_BYTES 32
#define OCCL_INLINE_BYTES 128
/* Largest direct payload: above it one executor's single pass beats every rank reading all
 * inputs, and copying the payload stops being free. */
#define OCCL_DIRECT_MAX_BYTES 4096
/* Payload chunks of 4 KiB that a rank owns in a communicator page: for the untagged stream, in
 * turn, and for all other ops. They keep an 8-rank page below 1.5 MiB. */
#define OCCL_STREAM_CHUNKS 16
#define OCCL_POOL_CHUNKS 8
#define OCCL_PAYLOAD_CHUNKS (OCCL_STREAM_CHUNKS + OCCL_POOL_CHUNKS)

/* Requests that one op may come after. */
#define OCCL_AFTER_MAX 1024u

/* Session rings. A completion credit is taken at submission, so the completion ring bounds the ring
 * ops a process may have outstanding: beyond it a submission waits for an earlier op, which is an
 * order the application did not ask for, so it must be far away: 32768 x 32 bytes = 1 MiB for each
 * process, half of the ops that the daemon holds for a tenant (OCCL_QUOTA_OPS). */
#define OCCL_SQ_ENTRIES 256
#define OCCL_CQ_ENTRIES 32768
#define OCCL_RING_ENTRIES_MIN 8

/* Text. Names go into logs and metrics labels; they are checked against [A-Za-z0-9._:@/-]. */
#define OCCL_NAME_BYTES 64
#define OCCL_HOST_BYTES 64

/* Control messages: one SEQPACKET datagram each, never more than this. */
#define OCCL_MESSAGE_BYTES_MAX 8192
#define OCCL_MESSAGE_FDS_MAX 8

/* A slice is the unit that is executed whole and then published: at most 100 us of work. 1 MiB of
 * memory traffic takes 50-100 us on one core of the machines measured (research: 11-21 GB/s). */
#define OCCL_SLICE_TRAFFIC_BYTES (1u << 20)
#define OCCL_SLICE_BYTES_MIN (16u << 10)

/* Private buffers that a client copies through shared memory although peers could reach them: the
 * largest, what a process has room for (an input and an output), and in how many pieces that room
 * is given out. */
#define OCCL_COPY_MAX_BYTES (16u << 20)
#define OCCL_ROOM_COPIES 2u
#define OCCL_ROOM_UNITS 64u

/* Bounds of waiting. The daemon-lost bound is 200 ms: a sleeper looks up twice within it. */
#define OCCL_SLEEP_MAX_NS 50000000ll
#define OCCL_DAEMON_LOST_BOUND_NS 200000000ll
#define OCCL_YIELDS_BEFORE_SLEEP 16

/* Largest weight of a job or tenant. A round of the scheduler lasts the sum of all weights times
 * its quantum, so weights are kept small. */
#define OCCL_WEIGHT_MAX 1000
/* Default quotas per tenant (all settable, daemon/config). */
#define OCCL_QUOTA_OPS 65536
/* Tags of a communicator that a rank counts because not all ranks are known to be done with them:
 * 16 to 64 bytes each in the client's own memory. Ranks that are far ahead of one that does not
 * come must be far from the end. */
#define OCCL_QUOTA_LIVE_TAGS (1u << 20)

#ifndef __CUDACC__
#ifndef __cplusplus
_Static_assert(OCCL_CQ_ENTRIES >= OCCL_SQ_ENTRIES, "a completion credit exists for every entry");
_Static_assert((OCCL_PAIRS & (OCCL_PAIRS - 1)) == 0, "slot numbers are masked");
_Static_assert((OCCL_SINGLES & (OCCL_SINGLES - 1)) == 0, "slot numbers are masked");
_Static_assert((OCCL_RUNS & (OCCL_RUNS - 1)) == 0, "run numbers are masked");
_Static_assert((OCCL_RUN_OPS & (OCCL_RUN_OPS - 1)) == 0, "places in a run are masked");
_Static_assert((OCCL_SQ_ENTRIES & (OCCL_SQ_ENTRIES - 1)) == 0, "ring indices are masked");
_Static_assert((OCCL_CQ_ENTRIES & (OCCL_CQ_ENTRIES - 1)) == 0, "ring indices are masked");
_Static_assert(OCCL_TINY_BYTES <= OCCL_INLINE_BYTES, "tiny payload is the smaller one");
_Static_assert(2 * OCCL_SLEEP_MAX_NS <= OCCL_DAEMON_LOST_BOUND_NS, "a sleeper looks up in time");
#endif
#endif

#endif
