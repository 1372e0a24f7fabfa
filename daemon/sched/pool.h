/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: who may hold the units (run slots, connectors, staging) that do not suffice for all ops
 * at once. Pure, like the scheduler, and one block without pointers.
 *
 * The rule. An op that has *arrived* (all its members have submitted it) has a ticket. Only
 * arrived ops hold units for good; whatever the others hold is revocable at any time. An arrived op
 * that finds no free unit takes those of an op that has not arrived, else those of the youngest
 * arrived op if that is younger than itself (wound-wait). Units of one op are granted all at once
 * or not at all, so nobody holds some and waits for more. Each communicator has the units of one op
 * in reserve; among its arrived ops the oldest ticket has the first claim on them.
 *
 * Why every arrived op gets its units: see the README; in short, the oldest incomplete arrived op
 * of all can take units from everybody else at every member, completes, and induction does the
 * rest.
 *
 * Tickets of collectives are issued by the daemon of the communicator's rank 0 when it knows that
 * all members have submitted, those of point-to-point ops by the sender's daemon. A ticket is
 * (counter, number of the issuing node), the counter above every one that this daemon has seen: so
 * no two ops of a communicator have the same ticket. Order is (ticket, comm uid), the same at all
 * members; with equal tickets neither op would be the older one, and two ops could wait for each
 * other for ever (the simulator found it).
 *
 * Use: request, arrived, returned, release as things happen; after each of them call occl_pool_step
 * until it says NONE and do what it says. Calls take time linear in the ops of the pool. */
#ifndef DAEMON_SCHED_POOL_H
#define DAEMON_SCHED_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "shm_ipc/status.h"

struct occl_pool;

struct occl_pool_config {
    uint32_t shared_units;
    uint32_t ops_max;
    uint32_t comms_max;
};

size_t occl_pool_bytes(const struct occl_pool_config *config);
/* Allocates. OCCL_E_INVALID (ops_max or comms_max 0 or above 2^20), OCCL_E_NO_MEMORY. */
int occl_pool_create(const struct occl_pool_config *config, struct occl_pool **out_pool);
void occl_pool_destroy(struct occl_pool *pool); /* NULL is allowed */

/* A communicator with reserve_units on top of the shared ones. OCCL_E_QUOTA. */
int occl_pool_comm_add(struct occl_pool *pool, uint64_t comm_uid, uint32_t reserve_units,
                       uint32_t *out_comm);
/* OCCL_E_BUSY while ops of it are in the pool. */
int occl_pool_comm_remove(struct occl_pool *pool, uint32_t comm);

/* An op that wants `units` (at most the communicator's reserve or, without one, the shared units:
 * OCCL_E_INVALID above). It waits. OCCL_E_QUOTA (ops_max). */
int occl_pool_request(struct occl_pool *pool, uint32_t comm, uint32_t units, uint64_t user,
                      uint64_t *out_id);
/* Counter in the upper bits, the issuer's node number in the lower 16. */
#define OCCL_POOL_TICKET(counter, node) ((uint64_t)(counter) << 16 | ((node)&0xffffu))
/* All members have submitted the op. OCCL_E_HANDLE; OCCL_E_INVALID, and nothing changed: another op
 * of the communicator has this ticket. */
int occl_pool_arrived(struct occl_pool *pool, uint64_t id, uint64_t ticket);
/* A revocation is finished: credits are withdrawn, what was in flight has landed, contents are
 * spilled. The op waits again. OCCL_E_HANDLE, also when it was not being revoked. */
int occl_pool_returned(struct occl_pool *pool, uint64_t id);
/* The op is complete or gone; its units are free. OCCL_E_HANDLE. */
int occl_pool_release(struct occl_pool *pool, uint64_t id);

enum occl_pool_action {
    OCCL_POOL_NONE = 0,
    OCCL_POOL_GRANT = 1,  /* the op holds its units from now on */
    OCCL_POOL_REVOKE = 2, /* take the op's units back, then call occl_pool_returned */
};
/* One decision. The caller carries out each at once or later, but calls until NONE. */
enum occl_pool_action occl_pool_step(struct occl_pool *pool, uint64_t *out_id, uint64_t *out_user);

struct occl_pool_stats {
    uint32_t ops, waiting, holding, revoking;
    uint32_t shared_free;
    uint32_t unarrived_units; /* held by ops that have not arrived */
    uint64_t grants, revocations;
};
void occl_pool_stats(const struct occl_pool *pool, struct occl_pool_stats *out_stats);

#endif
