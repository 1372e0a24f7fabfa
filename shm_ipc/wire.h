/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on the daemon's UNIX socket (SOCK_SEQPACKET: one message, one datagram). Control path
 * only: attach, memory, communicators, events, doorbells, administration. A message is a header and
 * a fixed struct by type; text fields are NUL-terminated and checked; a datagram whose size is not
 * exactly what its type demands is a protocol error that ends the session.
 *
 * Requests carry a request number chosen by the client (not 0); the daemon answers each exactly
 * once, in any order, with OCCL_MSG_REPLY or the reply type named below. Events carry request 0.
 * Descriptors travel with SCM_RIGHTS as listed, from the daemon only: it takes none, because to
 * close one can hang whoever does. Identity comes from SO_PEERCRED and a pidfd, never from a field.
 *
 * | type         | direction | descriptors   | answer                                        |
 * | HELLO        | c -> d    |               | WELCOME {session page, job page}, or REPLY     |
 * | REGION_ALLOC | c -> d    |               | REGION {memfd}                                 |
 * | REGION_MAP   | c -> d    |               | REGION {memfd} of a peer of the same job       |
 * | REGION_FREE  | c -> d    |               | REPLY                                          |
 * | COMM_CREATE  | c -> d    |               | COMM {page} when all ranks came, or REPLY      |
 * | COMM_SPLIT   | c -> d    |               | COMM {page}, or REPLY                          |
 * | COMM_END     | c -> d    |               | REPLY (destroy, revoke, abort)                 |
 * | MEMBERS      | c -> d    |               | MEMBERS_REPLY                                  |
 * | ROOMS        | c -> d    |               | ROOMS_REPLY {rooms that it was not yet sent}   |
 * | DOORBELL     | c -> d    |               | none; request 0                                |
 * | DETACH       | c -> d    |               | REPLY, then the daemon closes                  |
 * | ADMIN        | c -> d    |               | ADMIN_REPLY {memfd with JSON text}             |
 * | EVENT        | d -> c    |               | none                                           |
 */
#ifndef SHM_IPC_WIRE_H
#define SHM_IPC_WIRE_H

#include "shm_ipc/abi.h"
#include "shm_ipc/status.h"

#define OCCL_WIRE_MAGIC 0x6f63636cu /* "occl" */

enum occl_msg_type {
    OCCL_MSG_HELLO = 1,
    OCCL_MSG_WELCOME = 2,
    OCCL_MSG_REPLY = 3,
    OCCL_MSG_REGION_ALLOC = 4,
    OCCL_MSG_REGION_MAP = 5,
    OCCL_MSG_REGION_FREE = 6,
    OCCL_MSG_REGION = 7,
    OCCL_MSG_COMM_CREATE = 8,
    OCCL_MSG_COMM_SPLIT = 9,
    OCCL_MSG_COMM = 10,
    OCCL_MSG_COMM_END = 11,
    OCCL_MSG_MEMBERS = 12,
    OCCL_MSG_MEMBERS_REPLY = 13,
    OCCL_MSG_DOORBELL = 14,
    OCCL_MSG_DETACH = 15,
    OCCL_MSG_ADMIN = 16,
    OCCL_MSG_ADMIN_REPLY = 17,
    OCCL_MSG_EVENT = 18,
    OCCL_MSG_ROOMS = 19,
    OCCL_MSG_ROOMS_REPLY = 20,
};

struct occl_msg_header {
    uint32_t magic;
    uint16_t type;        /* enum occl_msg_type */
    uint16_t abi_version; /* HELLO: highest the sender speaks; later: the agreed one */
    uint32_t bytes;       /* of the whole datagram, header included */
    uint32_t reserved;
    uint64_t request;
};
OCCL_ABI_SIZE(occl_msg_header, 24);

enum occl_hello_role {
    OCCL_ROLE_RANK = 1,  /* gets a session page; may create communicators */
    OCCL_ROLE_ADMIN = 2, /* only ADMIN messages (occlctl) */
};
struct occl_msg_hello {
    struct occl_msg_header h;
    uint32_t abi_min;
    uint32_t abi_max;
    uint32_t role;
    uint32_t sq_entries; /* wanted; 0: the daemon's default */
    int32_t rank_hint;   /* OCCL_RANK of the launcher, -1: unknown; for names in messages only */
    uint32_t own_pid;    /* as the client sees itself; for cross-memory attach inside the job */
    char job[OCCL_NAME_BYTES]; /* "": the tenant's default job */
    char tag[OCCL_NAME_BYTES]; /* tenant tag, "": none */
    char program[OCCL_NAME_BYTES];
};
struct occl_msg_welcome {
    struct occl_msg_header h;
    uint64_t session_id;
    uint64_t daemon_epoch;
    uint64_t page_bytes; /* of the session page */
    uint64_t job_page_bytes;
    uint64_t peer_dead_ns; /* how long an aborted op may wait for a member stopped in a strand */
    uint64_t default_timeout_ns; /* 0: none */
    uint64_t direct_max_bytes;
    uint32_t daemon_pid;
    uint32_t lanes;
    uint32_t huge_pages;     /* 1: regions may be asked for in huge pages */
    uint32_t copy_max_bytes; /* private buffers up to this may be copied where that is quicker */
    char host[OCCL_HOST_BYTES];
    char version[OCCL_NAME_BYTES];
};
/* Generic answer; detail.status OCCL_OK is success. */
struct occl_msg_reply {
    struct occl_msg_header h;
    struct occl_detail detail;
};

enum occl_region_flags {
    OCCL_REGION_HUGE = 1, /* huge pages if the system has them, else ordinary ones */
};
struct occl_msg_region_alloc {
    struct occl_msg_header h;
    uint64_t bytes; /* rounded up to pages by the daemon */
    uint32_t flags;
    uint32_t reserved;
};
struct occl_msg_region_map { /* also REGION_FREE */
    struct occl_msg_header h;
    uint32_t region;
    uint32_t reserved;
};
struct occl_msg_region {
    struct occl_msg_header h;
    uint64_t bytes;
    uint32_t region;
    uint32_t huge; /* 1: the memfd has huge pages */
};

enum occl_comm_flags {
    OCCL_COMM_FLAG_NOT_REPRODUCIBLE = 1, /* the selector may leave the determinism class */
};
struct occl_unique_id_wire {
    uint8_t bytes[128]; /* see daemon/unique id: magic, version, 128-bit secret, zeros */
};
struct occl_msg_comm_create {
    struct occl_msg_header h;
    struct occl_unique_id_wire unique_id;
    uint32_t rank;
    uint32_t ranks;
    uint32_t priority; /* class 0..3; 255: the job's */
    uint32_t flags;
    uint64_t timeout_ns;          /* for the other ranks to come; 0: no limit */
    uint64_t default_deadline_ns; /* of ops; 0: none */
    char name[OCCL_NAME_BYTES];
};
struct occl_msg_comm_split {
    struct occl_msg_header h;
    uint32_t comm;     /* the parent's number in this session */
    int32_t color;     /* < 0: this rank gets no communicator */
    int32_t key;       /* order inside the new one; ties by parent rank */
    uint32_t sequence; /* how many splits of the parent this rank has called before */
    uint64_t timeout_ns;
    char name[OCCL_NAME_BYTES];
    uint32_t priority;            /* class 0..3; 255: the parent's */
    uint32_t reserved;            /* 0 */
    uint64_t default_deadline_ns; /* of ops of the new one; 0: the daemon's default */
};
struct occl_msg_comm {
    struct occl_msg_header h;
    uint64_t comm_uid;
    uint64_t page_bytes;
    uint32_t comm; /* number in this session: what sqe.comm and COMM_END name */
    uint32_t rank;
    uint32_t ranks; /* 0: split with a negative color, no communicator, no page */
    uint32_t reserved;
};

enum occl_comm_end_how { OCCL_END_DESTROY = 1, OCCL_END_REVOKE = 2, OCCL_END_ABORT = 3 };
struct occl_msg_comm_end {
    struct occl_msg_header h;
    uint32_t comm;
    uint32_t how;
};

/* Who a communicator's ranks are, in pages. */
#define OCCL_MEMBERS_PER_MESSAGE 32
struct occl_msg_members {
    struct occl_msg_header h;
    uint32_t comm;
    uint32_t first;
};
struct occl_member {
    uint32_t pid;     /* as the daemon sees it */
    uint32_t own_pid; /* as the process sees itself */
    int32_t rank_hint;
    uint32_t state; /* 0 live, 1 gone */
    uint64_t session_id;
    char host[OCCL_HOST_BYTES]; /* the process's host name (its UTS namespace) is not known: ours */
};
struct occl_msg_members_reply {
    struct occl_msg_header h;
    uint32_t comm;
    uint32_t first;
    uint32_t members; /* in this message */
    uint32_t ranks;
    struct occl_member member[OCCL_MEMBERS_PER_MESSAGE];
};

/* Where the members of a communicator copy private buffers to; asked for after its creation. */
#define OCCL_ROOMS_PER_MESSAGE OCCL_MESSAGE_FDS_MAX
struct occl_msg_rooms {
    struct occl_msg_header h;
    uint32_t comm;
    uint32_t first; /* rank; the answer is about this one and those behind */
};
struct occl_member_room {
    uint32_t region; /* of the member's process; 0: it has none */
    uint32_t sent;   /* 1: its descriptor comes along, in the order of the members */
};
struct occl_msg_rooms_reply {
    struct occl_msg_header h;
    uint64_t bytes; /* of each */
    uint32_t comm;
    uint32_t first;
    uint32_t members; /* in this message */
    uint32_t reserved;
    struct occl_member_room member[OCCL_ROOMS_PER_MESSAGE];
};

struct occl_msg_plain { /* DOORBELL, DETACH */
    struct occl_msg_header h;
};

/* ADMIN: a JSON object {"verb": "status", ...} as text after the header; the answer's memfd holds
 * {"schema": 1, "status": ..., ...}. Verbs and schemas: daemon/README.md. */
struct occl_msg_admin {
    struct occl_msg_header h;
    char text[4096];
};
struct occl_msg_admin_reply {
    struct occl_msg_header h;
    struct occl_detail detail;
    uint64_t text_bytes;
};

enum occl_event_kind {
    OCCL_EVENT_COMM = 1,        /* a communicator ended: detail says why */
    OCCL_EVENT_REGION_GONE = 3, /* unmap region `number` when nothing uses it */
    OCCL_EVENT_STALL = 4,       /* a cycle of application waits: detail prints it */
    OCCL_EVENT_SHUTDOWN = 5,    /* the daemon drains */
};
struct occl_msg_event {
    struct occl_msg_header h;
    uint32_t kind;
    uint32_t number; /* communicator of this session, or region */
    uint32_t about_rank;
    uint32_t about_pid;
    struct occl_detail detail;
};

OCCL_ABI_SIZE(occl_msg_hello, 240);
OCCL_ABI_SIZE(occl_msg_welcome, 224);
OCCL_ABI_SIZE(occl_msg_reply, 512);
OCCL_ABI_SIZE(occl_msg_region_alloc, 40);
OCCL_ABI_SIZE(occl_msg_region_map, 32);
OCCL_ABI_SIZE(occl_msg_region, 40);
OCCL_ABI_SIZE(occl_msg_comm_create, 248);
OCCL_ABI_SIZE(occl_msg_comm_split, 128);
OCCL_ABI_SIZE(occl_msg_comm, 56);
OCCL_ABI_SIZE(occl_msg_comm_end, 32);
OCCL_ABI_SIZE(occl_msg_members_reply, 40 + 32 * 88);
OCCL_ABI_SIZE(occl_msg_rooms, 32);
OCCL_ABI_SIZE(occl_msg_rooms_reply, 48 + 8 * OCCL_ROOMS_PER_MESSAGE);
OCCL_ABI_SIZE(occl_msg_admin_reply, 520);
OCCL_ABI_SIZE(occl_msg_event, 528);
OCCL_STATIC_ASSERT(sizeof(struct occl_msg_members_reply) <= OCCL_MESSAGE_BYTES_MAX,
                   "fits a message");

/* Size that a datagram of this type must have, 0 for an unknown type. */
uint32_t occl_msg_bytes(uint32_t type);
const char *occl_msg_name(uint32_t type);
/* Fills the header. */
void occl_msg_init(struct occl_msg_header *h, uint32_t type, uint64_t request);
/* Checks magic, type, size of a received datagram. OCCL_E_PROTOCOL with a text that says what. */
int occl_msg_check(const void *datagram, uint32_t bytes, struct occl_detail *detail);
/* A name field must be NUL-terminated and made of [A-Za-z0-9._:@/-]. */
int occl_name_check(const char *name, uint32_t bytes, const char *what, struct occl_detail *detail);

#endif
