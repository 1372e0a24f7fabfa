/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions about our own invariants. Bytes that a tenant or a peer daemon wrote are never
 * asserted: they get a status (README, failure reactions).
 *
 * OCCL_ASSERT is always on and cheap: it stands where continuing could hand one tenant's bytes to
 * another. OCCL_DCHECK may be expensive; debug, sanitizer and simulation builds define OCCL_DEBUG.
 */
#ifndef SHM_IPC_ASSERT_H
#define SHM_IPC_ASSERT_H

/* Prints the condition with its place to stderr and aborts. Any thread; allocates nothing. */
void occl_assert_fail(const char *condition, const char *file, int line)
    __attribute__((noreturn, cold));

#define OCCL_ASSERT(condition) \
    ((condition) ? (void)0 : occl_assert_fail(#condition, __FILE__, __LINE__))

#if defined(OCCL_DEBUG) && OCCL_DEBUG
#define OCCL_DCHECK(condition) OCCL_ASSERT(condition)
#else
/* Compiled, so that it cannot rot, and never run. */
#define OCCL_DCHECK(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

#endif
