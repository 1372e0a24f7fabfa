/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of ranks with their rank in front. A line is written whole, so that ranks do not mix inside
 * a line; one that never ends is cut at LINE_BYTES_MAX. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tools/occlctl/run.h"

#define LINE_BYTES_MAX 65536

/* Writes all of it; an output that is gone takes nothing from the ranks, so errors end the attempt
 * and the rank goes on. */
static void write_line(int fd, int rank, const char *text, size_t bytes) {
    char prefix[16];
    int prefix_bytes = snprintf(prefix, sizeof prefix, "%d: ", rank);
    struct iovec parts[3] = {{prefix, (size_t)prefix_bytes},
                             {(void *)(uintptr_t)text, bytes},
                             {(void *)(uintptr_t) "\n", 1}};
    int first = 0;
    while (first < 3) {
        ssize_t wrote = writev(fd, parts + first, 3 - first);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return;
        while (first < 3 && (size_t)wrote >= parts[first].iov_len)
            wrote -= (ssize_t)parts[first++].iov_len;
        if (first < 3) {
            parts[first].iov_base = (char *)parts[first].iov_base + wrote;
            parts[first].iov_len -= (size_t)wrote;
        }
    }
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
            write_line(pipe->to, pipe->rank, pipe->line, pipe->line_bytes);
            pipe->line_bytes = 0;
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
        write_line(pipe->to, pipe->rank, pipe->line, pipe->line_bytes);
    free(pipe->line);
    pipe->line = NULL;
    pipe->line_bytes = 0;
    (void)close(pipe->fd); /* read to its end */
    pipe->fd = -1;
    return false;
}
