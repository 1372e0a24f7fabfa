/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/occlctl/base_lock.h"

#define STEP_NS 5000000ull

/* Whoever empties a base removes it under its lock: what we have waited for may be a folder without
 * a name, and another one may be in its place. */
static bool is_at(int fd, const char *base) {
    struct stat locked, named;
    return fstat(fd, &locked) == 0 && lstat(base, &named) == 0 && locked.st_ino == named.st_ino &&
           locked.st_dev == named.st_dev;
}

/* -1 with errno; EWOULDBLOCK: it is locked. */
static int try_lock(const char *base, bool waits) {
    int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || flock(fd, LOCK_EX | (waits ? 0 : LOCK_NB)) == 0)
        return fd;
    int error = errno;
    (void)close(fd); /* nothing is locked */
    errno = error;
    return -1;
}

int occl_base_lock(const struct occl_clock *clock, const char *base, uint64_t wait_ns) {
    const bool for_ever = wait_ns == OCCL_BASE_WAIT;
    uint64_t tries = for_ever ? 0 : wait_ns / STEP_NS;
    for (;;) {
        int fd = try_lock(base, for_ever);
        if (fd >= 0 && is_at(fd, base))
            return fd;
        if (fd >= 0) {
            (void)close(fd); /* unlocks */
            errno = ENOENT;
        }
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK || tries-- == 0)
            return -1;
        occl_clock_sleep_ns(clock, STEP_NS);
    }
}
