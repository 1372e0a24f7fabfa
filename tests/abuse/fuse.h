/* SPDX-License-Identifier: Apache-2.0 */
/* A file system whose server answers what it likes: reads never, so that a mapping of its files has
 * pages which do not come, and for one file the flush of a close never, so that whoever closes it
 * hangs. Speaks the kernel's protocol itself; needs the right to mount. */
#ifndef TESTS_ABUSE_FUSE_H
#define TESTS_ABUSE_FUSE_H

#include <stdbool.h>
#include <sys/types.h>

#define FUSE_FILE_BYTES (1u << 20)

struct fuse {
    char folder[64];
    pid_t server;
};

/* Moves this process to a mount namespace of its own and mounts. False: out_why says what the
 * system does not allow. */
bool fuse_start(struct fuse *f, const char **out_why);
/* Open descriptors, or -1. A close of the first one returns; one of the second one does not, while
 * the server lives. */
int fuse_open_unread(const struct fuse *f);
int fuse_open_unclosed(const struct fuse *f);
/* Ends the server, which ends all that waits for it. */
void fuse_stop(struct fuse *f);

#endif
