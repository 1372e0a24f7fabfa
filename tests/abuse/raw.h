/* SPDX-License-Identifier: Apache-2.0 */
/* A client that speaks the daemon's messages itself, so that it can break every rule of them. Plain
 * values and no assertions: it runs in children, among them hostile ones. */
#ifndef TESTS_ABUSE_RAW_H
#define TESTS_ABUSE_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "shm_ipc/fdpass.h"
#include "shm_ipc/wire.h"

struct raw_client {
    uint64_t random;
    const char *socket;
    int answer_s; /* how long raw_answer waits */
    int fd;
    uint64_t request;
    struct occl_session_page *page;
    uint64_t page_bytes;
    int page_fd, job_fd;
    struct {
        int fd;
        char *base;
        uint64_t bytes;
        uint32_t number;
    } regions[4];
    int region_count;
    int comm_fd;
    char *comm;
    uint64_t comm_bytes;
    uint32_t comm_number, comm_ranks;
    uint32_t tail;
    struct occl_sqe *ring; /* as it was before we scribbled */
    uint32_t entries;
};

/* Connected, or -1. */
int raw_connect(const char *path);
/* A client without anything; `socket` is the daemon's path. */
void raw_init(struct raw_client *e, const char *socket, uint64_t seed);
/* Connects, says HELLO as a rank of `job`. False: refused, or no answer. */
bool raw_hello(struct raw_client *e, const char *job);
/* raw_hello, then some regions and a communicator whose ranks are all this process. */
bool raw_attach(struct raw_client *e);
/* Closes and unmaps everything; may attach again. */
void raw_drop(struct raw_client *e);

/* Sends a message after its header was filled in; does not wait. */
bool raw_post(struct raw_client *e, void *message, uint32_t bytes, uint32_t type);
/* The answer to the last request, OCCL_MESSAGE_BYTES_MAX long; false when none comes in time. */
bool raw_answer(struct raw_client *e, void *buffer, int fds[OCCL_MESSAGE_FDS_MAX]);

/* Asks the daemon on a connection of its own and measures from connect to answer: seconds, or -1.
 * out_text (may be NULL) receives the JSON. */
double raw_ask(const char *socket, const char *request, char *out_text, uint32_t text_bytes);

#endif
