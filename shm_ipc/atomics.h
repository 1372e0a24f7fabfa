/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic accessors named for their intent. Shared structs hold plain fixed-width integers (the same
 * headers must compile as C++ and CUDA), so every access that another thread or process can race
 * with goes through one of these. Raw builtins and fences elsewhere are a lint error.
 *
 *   peek      relaxed load: a hint; the caller re-reads before it acts on it
 *   observe   acquire load: pairs with publish
 *   note      relaxed store: statistics, single writer
 *   publish   release store: everything written before is visible to whoever observes it
 *   claim     compare-and-swap, sequentially consistent: decides a race between several writers
 *   add       fetch-and-add, sequentially consistent: counting arrivals, claiming strands
 *   look      sequentially consistent load: the second half of a Dekker pattern
 *   copy_in, copy_out   a struct between private and shared memory, each word exactly once
 *
 * claim, add and look are sequentially consistent because they are the halves of a Dekker pattern
 * with a sleeper's announcement (wake.h): "change the state, then look for sleepers" against
 * "announce sleep, then look at the state". The look has to be as strong as the change: a weaker
 * load may be satisfied before the store half of the change is visible. On x86-64 it costs nothing.
 */
#ifndef SHM_IPC_ATOMICS_H
#define SHM_IPC_ATOMICS_H

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t occl_peek32(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline uint64_t occl_peek64(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline uint32_t occl_observe32(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline uint64_t occl_observe64(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline void occl_note32(uint32_t *p, uint32_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
static inline void occl_note64(uint64_t *p, uint64_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
static inline void occl_publish32(uint32_t *p, uint32_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static inline void occl_publish64(uint64_t *p, uint64_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
/* On failure *expected holds what was found. */
static inline bool occl_claim32(uint32_t *p, uint32_t *expected, uint32_t desired) {
    return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}
static inline bool occl_claim64(uint64_t *p, uint64_t *expected, uint64_t desired) {
    return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}
/* Return the value before the addition. */
static inline uint32_t occl_add32(uint32_t *p, uint32_t v) {
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
static inline uint64_t occl_add64(uint64_t *p, uint64_t v) {
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
static inline uint64_t occl_or64(uint64_t *p, uint64_t v) {
    return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
static inline uint32_t occl_look32(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static inline uint64_t occl_look64(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
/* Statistics with several writers: order does not matter. */
static inline void occl_count64(uint64_t *p, uint64_t v) {
    (void)__atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
/* Full fence between a producer's index store and its look at the consumer's sleep flag. */
static inline void occl_bell_fence(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Between what was copied out of an object and the second look at the word that says whose it is:
 * the look cannot have happened before the copy. */
static inline void occl_read_fence(void) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* Both structs are 8-byte aligned and bytes is a multiple of 8. An atomic access cannot be repeated
 * by the compiler, so whatever a hostile writer does meanwhile, the private copy is one value that
 * validation and use agree on. */
static inline void occl_copy_out(void *out, const void *shared, uint64_t bytes) {
    /* The structs have members of other types: these words may alias them. */
    uint64_t __attribute__((__may_alias__)) *to = (uint64_t __attribute__((__may_alias__)) *)out;
    const uint64_t __attribute__((__may_alias__)) *from =
        (const uint64_t __attribute__((__may_alias__)) *)shared;
    for (uint64_t i = 0; i < bytes / 8; i++)
        to[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
}
static inline void occl_copy_in(void *shared, const void *from_private, uint64_t bytes) {
    uint64_t __attribute__((__may_alias__)) *to = (uint64_t __attribute__((__may_alias__)) *)shared;
    const uint64_t __attribute__((__may_alias__)) *from =
        (const uint64_t __attribute__((__may_alias__)) *)from_private;
    for (uint64_t i = 0; i < bytes / 8; i++)
        __atomic_store_n(to + i, from[i], __ATOMIC_RELAXED);
}

/* Keeps the compiler from moving accesses across; the processor's order is made by another thread,
 * with a barrier in all threads of the process (client_lib/inside.c). */
static inline void occl_light_fence(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Puts `value` there and returns what was there; sequentially consistent. */
static inline uint32_t occl_swap32(uint32_t *p, uint32_t value) {
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);
}
static inline uint64_t occl_swap64(uint64_t *p, uint64_t value) {
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);
}

/* Asks for the cache line of p, to be written soon. A hint: it changes nothing, whatever p is. */
static inline void occl_prefetch_write(const void *p) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p)); /* without the ability: nothing */
#else
    __builtin_prefetch(p, 1);
#endif
}

/* One step of a polite spin: lets a sibling hardware thread run. */
static inline void occl_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
