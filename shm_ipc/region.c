/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/region.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shm_ipc/assert.h"
#include "shm_ipc/limits.h"

/* Newer than the headers of Debian 12; kernels before 6.3 answer EINVAL. */
#define NOEXEC_SEAL 0x0008u
#define HUGE_2M (21u << 26) /* MFD_HUGE_2MB */

#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW)
/* Nothing larger can be meant; also keeps the rounding below from overflowing. */
#define REGION_BYTES_LIMIT (1ull << 46)

uint64_t occl_huge_pages_free(void) {
    char text[32];
    int fd = open("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    (void)close(fd); /* read-only: nothing can be lost */
    if (got <= 0)
        return 0;
    text[got] = '\0';
    return strtoull(text, NULL, 10);
}

static int open_memfd(const char *name, unsigned flags) {
    flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, flags);
    return fd;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* A memfd of the right size that is not sealed yet. */
static int open_sized(const char *name, uint64_t bytes, uint32_t flags, struct occl_memfd *out,
                      struct occl_detail *detail) {
    struct occl_memfd made = {-1, 0, 0};
    if (bytes == 0 || bytes > REGION_BYTES_LIMIT)
        return occl_detail_set(detail, OCCL_E_INVALID, 0,
                               "memory of %llu bytes: expected 1 to %llu",
                               (unsigned long long)bytes, (unsigned long long)REGION_BYTES_LIMIT);
    if (flags & OCCL_MEMFD_HUGE) {
        uint64_t huge_bytes = round_up(bytes, OCCL_HUGE_PAGE_BYTES);
        if (occl_huge_pages_free() >= huge_bytes / OCCL_HUGE_PAGE_BYTES) {
            made.fd = open_memfd(name, MFD_HUGETLB | HUGE_2M);
            made.huge = made.fd >= 0;
            made.bytes = huge_bytes;
        }
    }
    if (made.fd < 0) {
        made.bytes = round_up(bytes, OCCL_PAGE_BYTES);
        made.fd = open_memfd(name, 0);
    }
    if (made.fd < 0)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, errno, "memfd %s: cannot create: %s", name,
                               strerror(errno));
    if (ftruncate(made.fd, (off_t)made.bytes) != 0) {
        int error = errno;
        occl_memfd_close(&made);
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, error,
                               "memfd %s: cannot grow to %llu bytes: %s", name,
                               (unsigned long long)made.bytes, strerror(error));
    }
    *out = made;
    return OCCL_OK;
}

static int seal(const struct occl_memfd *memfd, int seals, const char *name,
                struct occl_detail *detail) {
    if (fcntl(memfd->fd, F_ADD_SEALS, seals) == 0)
        return OCCL_OK;
    return occl_detail_set(detail, OCCL_E_UNSUPPORTED, errno, "memfd %s: cannot add seals %#x: %s",
                           name, (unsigned)seals, strerror(errno));
}

int occl_memfd_create(const char *name, uint64_t bytes, uint32_t flags,
                      struct occl_memfd *out_memfd, struct occl_detail *detail) {
    struct occl_memfd made = {-1, 0, 0};
    int status = open_sized(name, bytes, flags, &made, detail);
    if (status != OCCL_OK)
        return status;
    status = seal(&made, SEALS_SIZE | F_SEAL_SEAL, name, detail);
    if (status != OCCL_OK) {
        occl_memfd_close(&made);
        return status;
    }
    *out_memfd = made;
    return OCCL_OK;
}

int occl_memfd_create_one_way(const char *name, uint64_t bytes, struct occl_memfd *out_memfd,
                              void **out_base, struct occl_detail *detail) {
    struct occl_memfd made = {-1, 0, 0};
    void *base = NULL;
    int status = open_sized(name, bytes, 0, &made, detail);
    if (status != OCCL_OK)
        return status;
    status = occl_memfd_map(made.fd, made.bytes, OCCL_MAP_WRITE, &base, detail);
    if (status != OCCL_OK)
        goto close_memfd;
    /* The mapping made before the seal stays writable; every later one is refused. */
    status = seal(&made, SEALS_SIZE | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL, name, detail);
    if (status != OCCL_OK)
        goto unmap;
    *out_memfd = made;
    *out_base = base;
    return OCCL_OK;
unmap:
    occl_memfd_unmap(base, made.bytes);
close_memfd:
    occl_memfd_close(&made);
    return status;
}

void occl_memfd_close(struct occl_memfd *memfd) {
    if (memfd == NULL || memfd->bytes == 0 || memfd->fd < 0)
        return;
    (void)close(memfd->fd); /* memory has nothing to flush */
    memfd->fd = -1;
    memfd->bytes = 0;
}

int occl_memfd_map(int fd, uint64_t bytes, uint32_t flags, void **out_base,
                   struct occl_detail *detail) {
    if (bytes == 0 || bytes > REGION_BYTES_LIMIT)
        return occl_detail_set(detail, OCCL_E_INVALID, 0, "mapping of %llu bytes",
                               (unsigned long long)bytes);
    int prot = PROT_READ | (flags & OCCL_MAP_WRITE ? PROT_WRITE : 0);
    /* Transparent huge pages have to be asked for before the first touch. */
    bool populate_now = (flags & OCCL_MAP_POPULATE) && !(flags & OCCL_MAP_LARGE);
    void *base = mmap(NULL, bytes, prot, MAP_SHARED | (populate_now ? MAP_POPULATE : 0), fd, 0);
    if (base == MAP_FAILED) {
        int status = errno == EPERM || errno == EACCES                      ? OCCL_E_PERMISSION
                     : errno == EINVAL || errno == EBADF || errno == ENODEV ? OCCL_E_INVALID
                                                                            : OCCL_E_NO_MEMORY;
        return occl_detail_set(
            detail, status, errno, "cannot map %llu bytes %s: %s", (unsigned long long)bytes,
            flags & OCCL_MAP_WRITE ? "for writing" : "for reading", strerror(errno));
    }
    if (flags & OCCL_MAP_LARGE) {
        /* Both are wishes: a kernel without them serves the same bytes more slowly. */
        (void)madvise(base, bytes, MADV_HUGEPAGE);
        if (flags & OCCL_MAP_POPULATE)
            (void)madvise(base, bytes,
                          flags & OCCL_MAP_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    }
    *out_base = base;
    return OCCL_OK;
}

void occl_memfd_unmap(void *base, uint64_t bytes) {
    if (base == NULL)
        return;
    /* Unmapping a whole mapping of our own cannot fail. */
    OCCL_ASSERT(munmap(base, bytes) == 0);
}

int occl_memfd_verify(int fd, uint64_t bytes, bool one_way, struct occl_detail *detail) {
    struct stat file;
    struct statfs system;
    int needed = SEALS_SIZE | F_SEAL_SEAL | (one_way ? F_SEAL_FUTURE_WRITE : 0);
    if (fstat(fd, &file) != 0 || fstatfs(fd, &system) != 0)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, errno, "received descriptor: %s",
                               strerror(errno));
    /* A file system of the sender's choice could stop our loads for ever. */
    if (!S_ISREG(file.st_mode) || file.st_nlink != 0 ||
        (system.f_type != TMPFS_MAGIC && system.f_type != HUGETLBFS_MAGIC))
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "received descriptor: mode %#o, links %llu, file system %#llx: "
                               "not a memfd",
                               (unsigned)file.st_mode, (unsigned long long)file.st_nlink,
                               (unsigned long long)system.f_type);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & needed) != needed)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, seals < 0 ? errno : 0,
                               "received memfd: seals %#x, needed %#x",
                               seals < 0 ? 0u : (unsigned)seals, (unsigned)needed);
    if ((uint64_t)file.st_size != bytes)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "received memfd: %lld bytes, expected %llu", (long long)file.st_size,
                               (unsigned long long)bytes);
    return OCCL_OK;
}
