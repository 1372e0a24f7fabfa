/* SPDX-License-Identifier: Apache-2.0 */
/* Is a caller's buffer mapped and accessible? A wrong pointer must be an error of the call, not a
 * crash inside the library or, worse, inside a peer. The kernel is asked once per range: populating
 * the page tables fails for unmapped or protected pages and changes no byte. Answers are kept in a
 * few entries of the thread, so a loop over the same buffers asks nothing. A range that the
 * application unmaps while it is remembered is the application's fault and ends in its own signal.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

CLIENT_THREAD_HOT struct client_ranges client_ranges;

/* Memory of occl_mem_alloc that was freed is not mapped any more, whatever is remembered. */
static void forget(struct client_thread *own, uint32_t unmapped) {
    memset(own->ranges, 0, sizeof own->ranges);
    memset(client_ranges.last, 0, sizeof client_ranges.last);
    client_ranges.unmapped = unmapped;
}

static bool covers(const struct client_range *r, uintptr_t from, uintptr_t to, bool write) {
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

bool client_range_look_up(uintptr_t from, uintptr_t to, bool write) {
    uint32_t unmapped = occl_peek32(&occl_lib.unmapped);
    struct client_thread *own = client_thread_own();
    if (to < from)
        return false;
    if (own && unmapped != client_ranges.unmapped)
        forget(own, unmapped);
    for (uint32_t i = 0; own && i < CLIENT_THREAD_RANGES; i++)
        if (covers(&own->ranges[i], from, to, write)) {
            client_ranges.last[write] = own->ranges[i];
            return true;
        }
    from &= ~(uintptr_t)(OCCL_PAGE_BYTES - 1);
    to = (to + OCCL_PAGE_BYTES - 1) & ~(uintptr_t)(OCCL_PAGE_BYTES - 1);
    if (!ask(from, to, write))
        return false;
    struct client_range range = {from, to, write, CLIENT_PAGES_UNKNOWN};
    if (own)
        own->ranges[own->next_range++ % CLIENT_THREAD_RANGES] = client_ranges.last[write] = range;
    return true;
}

static struct client_range *range_of(struct client_thread *own, uintptr_t from, uintptr_t to) {
    for (uint32_t write = 0; write < 2; write++)
        if (covers(&client_ranges.last[write], from, to, false))
            return &client_ranges.last[write];
    for (uint32_t i = 0; i < CLIENT_THREAD_RANGES; i++)
        if (covers(&own->ranges[i], from, to, false))
            return &own->ranges[i];
    return NULL;
}

/* Of a large range its first buffer tells for all. */
static void note_pages(struct client_thread *own, const struct client_range *range, uint8_t pages) {
    struct client_range known = *range;
    for (uint32_t write = 0; write < 2; write++)
        if (covers(&client_ranges.last[write], known.from, known.to, false))
            client_ranges.last[write].pages = pages;
    for (uint32_t i = 0; i < CLIENT_THREAD_RANGES; i++)
        if (covers(&own->ranges[i], known.from, known.to, false))
            own->ranges[i].pages = pages;
}

bool client_range_huge(const void *ptr, uint64_t bytes) {
    struct client_thread *own = client_thread_own();
    uintptr_t from = (uintptr_t)ptr & ~(uintptr_t)(OCCL_PAGE_BYTES - 1);
    uintptr_t to =
        ((uintptr_t)ptr + bytes + OCCL_PAGE_BYTES - 1) & ~(uintptr_t)(OCCL_PAGE_BYTES - 1);
    const struct client_range *range = own ? range_of(own, from, to) : NULL;
    if (range && range->pages != CLIENT_PAGES_UNKNOWN)
        return range->pages == CLIENT_PAGES_HUGE;
    bool huge = client_pages_are_huge(from, to);
    if (range)
        note_pages(own, range, huge ? CLIENT_PAGES_HUGE : CLIENT_PAGES_SMALL);
    return huge;
}
