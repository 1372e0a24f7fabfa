/* SPDX-License-Identifier: Apache-2.0 */
/* Does private memory consist of huge pages? For another process the kernel finds these at once,
 * and ordinary ones one by one, which takes as long as it takes to copy them. A hint, asked once
 * for a buffer; what changes later costs time only. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

/* The PAGEMAP_SCAN call of Linux 6.7 (include/uapi/linux/fs.h), for older headers. */
struct scan {
    uint64_t size, flags;
    uint64_t start, end, walk_end;
    uint64_t found, found_room, most_pages;
    uint64_t inverted, all_of, any_of, tell;
};
struct scan_part {
    uint64_t start, end, categories;
};
#define SCAN_CALL _IOWR('f', 16, struct scan)
#define SCAN_HUGE (1u << 6)
#define SCAN_PARTS 8u

/* Bytes of the range in huge pages, or -1: the kernel does not tell. */
static int64_t huge_bytes(uintptr_t from, uintptr_t to) {
    struct scan_part parts[SCAN_PARTS];
    union {
        struct scan_part *pointer;
        uintptr_t address;
    } at = {.pointer = parts};
    struct scan scan = {.size = sizeof scan,
                        .start = from,
                        .end = to,
                        .found = at.address,
                        .found_room = SCAN_PARTS,
                        .all_of = SCAN_HUGE,
                        .tell = SCAN_HUGE};
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int count = ioctl(fd, SCAN_CALL, &scan);
    (void)close(fd); /* nothing was written */
    int64_t bytes = count < 0 ? -1 : 0;
    for (int i = 0; i < count; i++)
        bytes += (int64_t)(parts[i].end - parts[i].start);
    return bytes;
}

/* Without an answer: whether anonymous memory gets them unasked. */
static bool huge_by_default(void) {
    char text[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (!file)
        return false;
    bool always = fgets(text, sizeof text, file) && strstr(text, "[always]");
    (void)fclose(file); /* read only */
    return always;
}

bool client_pages_are_huge(uintptr_t from, uintptr_t to) {
    int64_t bytes = huge_bytes(from, to);
    return bytes < 0 ? huge_by_default() : (uint64_t)bytes >= (to - from) / 2;
}
