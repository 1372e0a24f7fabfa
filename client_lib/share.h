/* SPDX-License-Identifier: Apache-2.0 */
/* May this thread execute the next strand of a local op? The client's half of the shares between
 * jobs; the daemon's half is daemon/engine/meter.c.
 *
 * Contract. After each strand the rank adds the traffic it moved (occl_local_strand_traffic) to
 * bytes_executed of its note in the communicator's page. Before it claims a strand it asks
 * occl_share_may_run: while the gate is open, one load of a line that rarely changes. While it is
 * closed, the job may go on until what the daemon saw last reaches the grant. The daemon looks
 * about once a millisecond, so a job may overdraw its grant by what it moves in that time; that
 * comes off its next grants, so it does not add up.
 *
 * Asking only before a claim keeps the deadlock law: a claimed strand is always executed, and a
 * thread that may not run holds nothing. Grants never end while somebody waits: the job that is
 * furthest behind always has one, and each job gets one slice per ageing period.
 *
 * The page is mapped read-only. A thread that may not run sleeps on the bell, or on its op's word,
 * for OCCL_SHARE_SLEEP_NS at most, and asks again. */
#ifndef CLIENT_LIB_SHARE_H
#define CLIENT_LIB_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/abi.h"
#include "shm_ipc/atomics.h"
#include "shm_ipc/wake.h"

/* Bound of one wait for a grant: the period of the meter. */
#define OCCL_SHARE_SLEEP_NS 1000000u

/* Any thread; neither blocks nor allocates. */
static inline bool occl_share_may_run(const struct occl_job_page *page) {
    return occl_observe32(&page->gate) == 0 ||
           occl_peek64(&page->charged_bytes_seen) < occl_peek64(&page->granted_bytes);
}

/* Before the last occl_share_may_run in front of a wait. */
static inline uint32_t occl_share_token(const struct occl_job_page *page) {
    return occl_observe32(&page->gate_bell);
}
/* Sleeps until the daemon has granted or opened something since the token, at most
 * min(OCCL_SHARE_SLEEP_NS, timeout_ns). The caller looks at its op and its deadline, then asks
 * again. A system call. */
static inline void occl_share_wait(const struct occl_job_page *page, uint32_t token,
                                   uint64_t timeout_ns) {
    uint32_t *bell = (uint32_t *)(uintptr_t)&page->gate_bell; /* a sleep only reads the word */
    occl_futex_sleep(bell, token,
                     timeout_ns < OCCL_SHARE_SLEEP_NS ? timeout_ns : OCCL_SHARE_SLEEP_NS);
}

#endif
