/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric door: how daemons of several nodes exchange bytes. One const ops table per backend;
 * this text is the contract and tests/fabric/conformance is its definition, run on every backend.
 *
 * Two kinds of messages:
 *
 *   control  up to OCCL_FABRIC_CONTROL_BYTES, copied at post. In order between two nodes. Always
 *            drained: the receiver needs no credit for it and data can never hold it up.
 *   data     up to one connector slot, written straight into a landing place that the receiver has
 *            opened and named to the sender (its credit). Data messages may overtake each other and
 *            control messages. The sender's bytes are read until the SENT event.
 *
 * The law: each accepted post yields exactly one SENT event, also after failure, flush, cut or
 * close (close returns the last ones before it ends). A refused post yields none.
 *
 * Threads: an endpoint is used by one thread at a time. No call blocks but open and close. Nothing
 * allocates but open, connect and landing_open. Time: backends that need it take it in poll. */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <stdint.h>

#include "shm_ipc/status.h"

#define OCCL_FABRIC_CONTROL_BYTES 128u
#define OCCL_FABRIC_PEER_NONE 0xffffffffu

/* One node's endpoint; its content belongs to the backend. */
struct occl_fabric;

enum occl_fabric_message { OCCL_FABRIC_CONTROL = 0, OCCL_FABRIC_DATA = 1 };

/* A landing place as its owner names it to the peer that may send into it. */
struct occl_fabric_landing {
    uint64_t key; /* never reused by an endpoint */
    uint32_t slot_count;
    uint32_t slot_bytes;
};

struct occl_fabric_post {
    uint32_t peer;      /* number from connect */
    uint32_t message;   /* enum occl_fabric_message */
    const void *bytes;  /* data: must stay until SENT; control: copied */
    uint64_t length;    /* bytes, above 0 for control */
    uint64_t user;      /* comes back in SENT */
    uint64_t immediate; /* data: comes with LANDED */
    uint64_t landing_key;
    uint32_t landing_slot;
    uint32_t reserved; /* 0 */
};

enum occl_fabric_event_kind {
    OCCL_FABRIC_SENT =
        0, /* user, status: OCCL_OK (landed), or the post had no effect that counts */
    OCCL_FABRIC_LANDED = 1,  /* landing_user, slot, length, immediate; the bytes are in place */
    OCCL_FABRIC_MESSAGE = 2, /* control, length */
    OCCL_FABRIC_DOWN = 3     /* the connection to peer is lost; its posts have all completed */
};

struct occl_fabric_event {
    uint32_t kind; /* enum occl_fabric_event_kind */
    uint32_t peer;
    int32_t status;
    uint32_t slot;
    uint64_t user;
    uint64_t length;
    uint64_t immediate;
    uint8_t control[OCCL_FABRIC_CONTROL_BYTES];
};

/* Capability bits: optional abilities, never optional slots. */
#define OCCL_FABRIC_CAP_ORDERED_DATA 1u /* data messages do not overtake each other */

struct occl_fabric_ops {
    const char *name; /* as in occl-perf's transport column, after "net:" */
    uint32_t capabilities;
    /* Opens the endpoint of one node. config is the backend's own struct and is not kept. */
    int (*open)(const void *config, struct occl_fabric **out_fabric);
    /* Completes every accepted post; writes the events that nobody has polled, at most max of them
     * (room for all posts in flight suffices), and returns their number. Then frees. */
    uint32_t (*close)(struct occl_fabric *fabric, struct occl_fabric_event *out_events,
                      uint32_t max);
    /* Connects to the node with this number. OCCL_OK: *out_peer names it in posts and events; the
     * same number again for the same node. OCCL_E_INVALID, OCCL_E_PEER_FAILED, OCCL_E_NO_MEMORY. */
    int (*connect)(struct occl_fabric *fabric, uint32_t node, uint32_t *out_peer);
    /* Opens slot_count x slot_bytes at base, owned by the caller until landing_close. LANDED
     * carries landing_user as `user`. OCCL_E_INVALID, OCCL_E_NO_MEMORY. */
    int (*landing_open)(struct occl_fabric *fabric, void *base, uint32_t slot_count,
                        uint32_t slot_bytes, uint64_t landing_user,
                        struct occl_fabric_landing *out_landing);
    /* After the return nothing is written there any more; what was in flight completes at its
     * sender with OCCL_E_CANCELED. Events already polled may name it. OCCL_E_NOT_FOUND. */
    int (*landing_close)(struct occl_fabric *fabric, uint64_t key);
    /* Accepts a message (OCCL_OK), or OCCL_WOULD_BLOCK (too much in flight: poll first),
     * OCCL_E_INVALID (peer, kind, length), OCCL_E_PEER_FAILED (connection lost). */
    int (*post)(struct occl_fabric *fabric, const struct occl_fabric_post *post);
    /* Every accepted post to the peer completes at once, with OCCL_E_CANCELED unless it has landed.
     */
    int (*flush)(struct occl_fabric *fabric, uint32_t peer);
    /* Takes up to max events; now_ns never decreases. Returns their number; 0 is no statement about
     * the future. */
    uint32_t (*poll)(struct occl_fabric *fabric, uint64_t now_ns,
                     struct occl_fabric_event *out_events, uint32_t max);
};

#endif
