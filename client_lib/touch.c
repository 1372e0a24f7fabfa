/* SPDX-License-Identifier: Apache-2.0 */
/* Is a caller's buffer mapped and accessible? A wrong pointer must be an error of the call, not a
 * crash inside the library or, worse, inside a peer. The kernel is asked once per range: populating
 * the page tables fails for unmapped or protected pages and changes no byte. Answers are kept in a
 * few thread-local entries, so a loop over the same buffers asks nothing. A range that the
 * application unmaps while it is remembered is the application's fault and ends in its own signal.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client_lib/client.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define REMEMBERED 64
struct range {
    uintptr_t from, to;
    bool write;
};
static _Thread_local struct range known[REMEMBERED];
static _Thread_local uint32_t known_next;
static _Thread_local struct range *known_last;
static _Thread_local uint32_t known_unmapped;

/* Memory of occl_mem_alloc that was freed is not mapped any more, whatever is remembered. */
static void forget_freed(void) {
    uint32_t unmapped = occl_peek32(&occl_lib.unmapped);
    if (unmapped == known_unmapped)
        return;
    memset(known, 0, sizeof known);
    known_last = NULL;
    known_unmapped = unmapped;
}

static bool covers(const struct range *r, uintptr_t from, uintptr_t to, bool write) {
    return r->from <= from && to <= r->to && (r->write || !write);
}

/* What the kernel lists as this process's mappings: the slow answer, for mappings that cannot be
 * populated (device memory) as for those with the wrong protection. */
static bool listed(uintptr_t from, uintptr_t to, bool write) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], read_flag, write_flag;
    unsigned long low, high;
    if (!maps)
        return false;
    while (from < to && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %c%c", &low, &high, &read_flag, &write_flag) != 4 || high <= from)
            continue;
        if (low > from || read_flag != 'r' || (write && write_flag != 'w'))
            break;
        from = high;
    }
    (void)fclose(maps);
    return from >= to;
}

static bool ask(uintptr_t from, uintptr_t to, bool write) {
    union {
        uintptr_t address;
        void *pointer;
    } at = {.address = from};
    for (int tries = 0; tries < 3; tries++) {
        if (madvise(at.pointer, to - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
            return true;
        if (errno == EINVAL)
            return listed(from, to, write);
        if (errno != EAGAIN && errno != EINTR)
            return false;
    }
    return listed(from, to, write);
}

bool client_range_ok(const void *ptr, uint64_t bytes, bool write) {
    uintptr_t from = (uintptr_t)ptr, to = from + bytes;
    if (to < from)
        return false;
    forget_freed();
    if (known_last && covers(known_last, from, to, write))
        return true;
    for (uint32_t i = 0; i < REMEMBERED; i++)
        if (covers(&known[i], from, to, write)) {
            known_last = &known[i];
            return true;
        }
    from &= ~(uintptr_t)(OCCL_PAGE_BYTES - 1);
    to = (to + OCCL_PAGE_BYTES - 1) & ~(uintptr_t)(OCCL_PAGE_BYTES - 1);
    if (!ask(from, to, write))
        return false;
    struct range *slot = &known[known_next++ % REMEMBERED];
    *slot = (struct range){from, to, write};
    known_last = slot;
    return true;
}
