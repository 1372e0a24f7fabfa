/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of ranks with their rank in front. A line is written whole, so that ranks do not mix inside
 * a line; one that never ends is cut at LINE_BYTES_MAX. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tools/occlctl/run.h"

#define LINE_BYTES_MAX 65536

/* Waits until an output that does not block by itself takes more. */
static void wait_writable(int fd) {
    struct pollfd output = {.fd = fd, .events = POLLOUT};
    (void)poll(&output, 1, -1); /* an error shows at the next write */
}

/* Writes all of it; an output that is gone takes nothing from the ranks, so errors end the attempt
 * and the rank goes on. Returns 0 or an errno. */
static int write_line(int fd, int rank, const char *text, size_t bytes) {
    char prefix[16];
    int prefix_bytes = snprintf(prefix, sizeof prefix, "%d: ", rank);
    struct iovec parts[3] = {{prefix, (size_t)prefix_bytes},
                             {(void *)(uintptr_t)text, bytes},
                             {(void *)(uintptr_t) "\n", 1}};
    int first = 0;
    while (first < 3) {
        ssize_t wrote = writev(fd, parts + first, 3 - first);
        if (wrote < 0 && errno == EAGAIN)
            wait_writable(fd);
        if (wrote < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (wrote < 0)
            return errno;
        while (first < 3 && (size_t)wrote >= parts[first].iov_len)
            wrote -= (ssize_t)parts[first++].iov_len;
        if (first < 3) {
            parts[first].iov_base = (char *)parts[first].iov_base + wrote;
            parts[first].iov_len -= (size_t)wrote;
        }
    }
    return 0;
}

static void flush_line(struct occl_run_pipe *pipe) {
    int error = write_line(pipe->to, pipe->rank, pipe->line, pipe->line_bytes);
    if (error && !pipe->error)
        pipe->error = error;
    pipe->line_bytes = 0;
}

static void take_text(struct occl_run_pipe *pipe, const char *text, size_t bytes) {
    while (bytes > 0) {
        const char *end = memchr(text, '\n', bytes);
        size_t part = end ? (size_t)(end - text) : bytes;
        size_t room = LINE_BYTES_MAX - pipe->line_bytes;
        bool cut = part > room;
        if (cut)
            part = room;
        memcpy(pipe->line + pipe->line_bytes, text, part);
        pipe->line_bytes += part;
        bool whole = end && !cut;
        text += part + whole;
        bytes -= part + whole;
        if (whole || pipe->line_bytes == LINE_BYTES_MAX) {
            flush_line(pipe);
        }
    }
}

bool occl_run_output_read(struct occl_run_pipe *pipe) {
    char chunk[16384];
    if (!pipe->line)
        pipe->line = malloc(LINE_BYTES_MAX);
    ssize_t got = pipe->line ? read(pipe->fd, chunk, sizeof chunk) : 0;
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got > 0) {
        take_text(pipe, chunk, (size_t)got);
        return true;
    }
    if (pipe->line_bytes > 0)
        flush_line(pipe);
    free(pipe->line);
    pipe->line = NULL;
    (void)close(pipe->fd); /* read to its end */
    pipe->fd = -1;
    return false;
}
