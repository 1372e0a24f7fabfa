/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching into the memory of another process of the job (cross-memory attach). The kernel looks
 * for the memory of one thread. That is the first one, whose number is the process's; when it has
 * ended and others go on, any of these stands for the process. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

static ssize_t move(pid_t thread, void *local, uint64_t address, uint64_t bytes, bool write) {
    union {
        uint64_t address;
        void *pointer; /* of the other process: never dereferenced here */
    } at = {.address = address};
    struct iovec here = {local, bytes}, there = {at.pointer, bytes};
    return write ? process_vm_writev(thread, &here, 1, &there, 1, 0)
                 : process_vm_readv(thread, &here, 1, &there, 1, 0);
}

static ssize_t move_by_another(pid_t process, void *local, uint64_t address, uint64_t bytes,
                               bool write) {
    char path[32];
    const struct dirent *entry;
    ssize_t moved = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *threads = opendir(path);
    int error = threads || (kill(process, 0) != 0 && errno == ESRCH) ? ESRCH : EMFILE;
    while (threads && moved < 0 && error == ESRCH && (entry = readdir(threads)) != NULL) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread <= 0 || thread == process)
            continue;
        moved = move(thread, local, address, bytes, write);
        error = errno;
    }
    if (threads)
        (void)closedir(threads);
    errno = error;
    return moved;
}

ssize_t client_reach(pid_t process, void *local, uint64_t address, uint64_t bytes, bool write) {
    ssize_t moved = move(process, local, address, bytes, write);
    return moved < 0 && errno == ESRCH ? move_by_another(process, local, address, bytes, write)
                                       : moved;
}
