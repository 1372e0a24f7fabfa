/* SPDX-License-Identifier: Apache-2.0 */
/* A lane that touches client memory survives a bus error there: a hole that a client punched into
 * huge pages, or a page the system cannot deliver. The fault becomes OCCL_E_FAULT of the op; a
 * fault anywhere else is a bug of ours and ends the process as if there were no guard.
 *
 * Cost when nothing happens: two stores and a sigsetjmp without signal mask (about 10 ns), once per
 * slice. The handler is installed once per process; which guard is active is a thread-local
 * pointer, the only way for a signal handler to find its thread's state (see README, decisions). */
#ifndef SHM_IPC_GUARD_H
#define SHM_IPC_GUARD_H

#include <stdint.h>

struct occl_guard_range {
    const void *base;
    uint64_t bytes;
};

/* Installs the handlers of SIGBUS and SIGSEGV for the process. At start, before lanes exist; again
 * is harmless. OCCL_E_INTERNAL when the system refuses. */
int occl_guard_install(void) __attribute__((warn_unused_result));

/* Calls fn(arg). When an access of fn to one of the ranges faults, abandons fn where it stands and
 * returns OCCL_E_FAULT with the address in *out_address (may be NULL); else OCCL_OK. fn must be a
 * data mover: it holds no lock and owns nothing, because it may never return. Lanes; nests. */
int occl_guard_run(const struct occl_guard_range *ranges, uint32_t range_count,
                   void (*fn)(void *arg), void *arg, uint64_t *out_address)
    __attribute__((warn_unused_result));

#endif
