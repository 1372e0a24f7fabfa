/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abuse/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NODE_UNREAD = 2, NODE_UNCLOSED = 3 };
static const char *const names[] = {[NODE_UNREAD] = "unread", [NODE_UNCLOSED] = "unclosed"};

static void reply(int fd, const struct fuse_in_header *in, int error, const void *body,
                  size_t bytes) {
    struct fuse_out_header out = {
        .len = (uint32_t)(sizeof out + bytes), .error = -error, .unique = in->unique};
    struct iovec parts[2] = {{&out, sizeof out}, {(void *)(uintptr_t)body, bytes}};
    (void)!writev(fd, parts, bytes ? 2 : 1); /* whoever asked may be gone */
}

static void attributes_of(uint64_t node, struct fuse_attr *out) {
    memset(out, 0, sizeof *out);
    out->ino = node;
    out->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666;
    out->nlink = 1;
    out->size = node == FUSE_ROOT_ID ? 0 : FUSE_FILE_BYTES;
    out->blksize = 4096;
}

static void look_up(int fd, const struct fuse_in_header *in, const char *name) {
    struct fuse_entry_out entry;
    memset(&entry, 0, sizeof entry);
    for (uint64_t node = NODE_UNREAD; node <= NODE_UNCLOSED; node++)
        if (strcmp(name, names[node]) == 0)
            entry.nodeid = node;
    attributes_of(entry.nodeid, &entry.attr);
    entry.entry_valid = entry.attr_valid = 3600;
    reply(fd, in, entry.nodeid ? 0 : ENOENT, &entry, entry.nodeid ? sizeof entry : 0);
}

static void serve_one(int fd, const struct fuse_in_header *in) {
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
    struct fuse_attr_out attr = {.attr_valid = 3600};
    struct fuse_open_out opened = {0};
    switch (in->opcode) {
    case FUSE_INIT:
        reply(fd, in, 0, &init, sizeof init);
        break;
    case FUSE_LOOKUP:
        look_up(fd, in, (const char *)(in + 1));
        break;
    case FUSE_GETATTR:
        attributes_of(in->nodeid, &attr.attr);
        reply(fd, in, 0, &attr, sizeof attr);
        break;
    case FUSE_OPEN:
        reply(fd, in, 0, &opened, sizeof opened);
        break;
    case FUSE_FLUSH:
        if (in->nodeid != NODE_UNCLOSED)
            reply(fd, in, 0, NULL, 0);
        break;
    case FUSE_RELEASE:
        reply(fd, in, 0, NULL, 0);
        break;
    case FUSE_READ:
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        reply(fd, in, ENOSYS, NULL, 0);
    }
}

static _Noreturn void serve(const struct fuse *f, int ready) {
    static _Alignas(8) char request[(1 << 20) + 8192];
    char options[96];
    int result = 0, fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(options, sizeof options,
                   "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other", fd, geteuid(),
                   getegid());
    if (fd < 0 || mount("occl-test", f->folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0)
        result = errno;
    (void)!write(ready, &result, sizeof result);
    (void)close(ready);
    while (result == 0) {
        ssize_t got = read(fd, request, sizeof request - 1);
        if (got < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT)
            break;
        if (got >= (ssize_t)sizeof(struct fuse_in_header)) {
            request[got] = 0;
            serve_one(fd, (const struct fuse_in_header *)(const void *)request);
        }
    }
    _exit(0);
}

bool fuse_start(struct fuse *f, const char **out_why) {
    int ready[2], result = EIO;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
        *out_why = "no mount namespace of its own";
        return false;
    }
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/occl-fuse-XXXXXX");
    if (!mkdtemp(f->folder) || pipe(ready))
        abort();
    (void)fflush(NULL);
    pid_t server = fork(); /* *f may be shared: only the parent writes it */
    if (server == 0) {
        (void)close(ready[0]);
        serve(f, ready[1]);
    }
    f->server = server;
    (void)close(ready[1]);
    if (read(ready[0], &result, sizeof result) != sizeof result)
        result = EIO;
    (void)close(ready[0]);
    if (result == 0)
        return true;
    *out_why = strerror(result);
    fuse_stop(f);
    return false;
}

static int open_file(const struct fuse *f, const char *name) {
    char path[96];
    (void)snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return open(path, O_RDWR | O_CLOEXEC);
}

int fuse_open_unread(const struct fuse *f) {
    return open_file(f, names[NODE_UNREAD]);
}

int fuse_open_unclosed(const struct fuse *f) {
    return open_file(f, names[NODE_UNCLOSED]);
}

void fuse_stop(struct fuse *f) {
    (void)kill(f->server, SIGKILL);
    (void)waitpid(f->server, NULL, 0);
    (void)umount2(f->folder, MNT_DETACH);
    (void)rmdir(f->folder);
}
