/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abuse/raw.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client_lib/occl.h"
#include "tests/abuse/scene.h"

bool raw_post(struct raw_client *e, void *message, uint32_t bytes, uint32_t type) {
    struct occl_detail detail;
    occl_msg_init(message, type, type == OCCL_MSG_DOORBELL ? 0 : ++e->request);
    return occl_fd_send(e->fd, message, bytes, NULL, 0, false, &detail) == OCCL_OK;
}

/* The answer to the last request into buffer; false when none comes. */
bool raw_answer(struct raw_client *e, void *buffer, int fds[OCCL_MESSAGE_FDS_MAX]) {
    struct timeval limit = {e->answer_s, 0};
    (void)setsockopt(e->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (;;) {
        struct occl_detail detail;
        uint32_t bytes, count;
        if (occl_fd_recv(e->fd, buffer, OCCL_MESSAGE_BYTES_MAX, true, &bytes, fds, &count, &detail))
            return false;
        if (((struct occl_msg_header *)buffer)->request == e->request)
            return true;
        occl_fd_close_all(fds);
    }
}

int raw_connect(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static void *map(int fd, uint64_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

void raw_drop(struct raw_client *e) {
    if (e->page)
        (void)munmap(e->page, e->page_bytes);
    if (e->comm)
        (void)munmap(e->comm, e->comm_bytes);
    for (int i = 0; i < e->region_count; i++) {
        if (e->regions[i].base)
            (void)munmap(e->regions[i].base, e->regions[i].bytes);
        (void)close(e->regions[i].fd);
    }
    int fds[] = {e->fd, e->page_fd, e->job_fd, e->comm_fd};
    for (size_t i = 0; i < 4; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    e->fd = e->page_fd = e->job_fd = e->comm_fd = -1;
    e->page = NULL;
    e->comm = NULL;
    e->region_count = 0;
    e->tail = 0;
}

static bool get_regions(struct raw_client *e, char *buffer) {
    int fds[OCCL_MESSAGE_FDS_MAX];
    for (int i = 0; i < 4; i++) {
        struct occl_msg_region_alloc alloc;
        memset(&alloc, 0, sizeof alloc);
        alloc.bytes = 4096u << (scene_random(&e->random) % 8);
        if (!raw_post(e, &alloc, sizeof alloc, OCCL_MSG_REGION_ALLOC) ||
            !raw_answer(e, buffer, fds))
            return false;
        const struct occl_msg_region *r = (void *)buffer;
        if (r->h.type != OCCL_MSG_REGION)
            continue;
        e->regions[e->region_count].fd = fds[0];
        e->regions[e->region_count].bytes = r->bytes;
        e->regions[e->region_count].number = r->region;
        e->regions[e->region_count++].base = map(fds[0], r->bytes);
    }
    return true;
}

static bool get_comm(struct raw_client *e, char *buffer) {
    int fds[OCCL_MESSAGE_FDS_MAX];
    struct occl_msg_comm_create create;
    struct occl_unique_id id;
    struct occl_detail detail;
    memset(&create, 0, sizeof create);
    (void)occl_get_unique_id(&id);
    memcpy(create.unique_id.bytes, id.bytes, sizeof id.bytes);
    create.ranks = 1 + (uint32_t)(scene_random(&e->random) % 3);
    create.priority = 255;
    for (uint32_t rank = 0; rank < create.ranks; rank++) {
        create.rank = rank;
        occl_msg_init(&create.h, OCCL_MSG_COMM_CREATE, ++e->request);
        if (occl_fd_send(e->fd, &create, sizeof create, NULL, 0, true, &detail))
            return false;
    }
    if (!raw_answer(e, buffer, fds)) /* of the last rank */
        return false;
    const struct occl_msg_comm *c = (void *)buffer;
    if (c->h.type != OCCL_MSG_COMM)
        return true;
    e->comm_fd = fds[0];
    e->comm_number = c->comm;
    e->comm_ranks = c->ranks;
    e->comm_bytes = c->page_bytes;
    e->comm = map(fds[0], c->page_bytes);
    return true;
}

void raw_init(struct raw_client *e, const char *socket, uint64_t seed) {
    memset(e, 0, sizeof *e);
    e->random = seed;
    e->socket = socket;
    e->answer_s = 2;
    e->fd = e->page_fd = e->job_fd = e->comm_fd = -1;
}

static void hello_fill(struct occl_msg_hello *hello, uint32_t role, const char *job) {
    memset(hello, 0, sizeof *hello);
    hello->abi_min = OCCL_ABI_VERSION_MIN;
    hello->abi_max = OCCL_ABI_VERSION;
    hello->role = role;
    hello->rank_hint = -1;
    hello->own_pid = (uint32_t)getpid();
    (void)snprintf(hello->job, sizeof hello->job, "%s", job);
}

bool raw_hello(struct raw_client *e, const char *job) {
    char buffer[OCCL_MESSAGE_BYTES_MAX];
    int fds[OCCL_MESSAGE_FDS_MAX];
    struct occl_msg_hello hello;
    e->fd = raw_connect(e->socket);
    if (e->fd < 0)
        return false;
    hello_fill(&hello, OCCL_ROLE_RANK, job);
    if (!raw_post(e, &hello, sizeof hello, OCCL_MSG_HELLO) || !raw_answer(e, buffer, fds))
        return false;
    const struct occl_msg_welcome *w = (void *)buffer;
    if (w->h.type != OCCL_MSG_WELCOME)
        return false;
    e->page_fd = fds[0];
    e->job_fd = fds[1];
    e->page_bytes = w->page_bytes;
    e->page = map(fds[0], w->page_bytes);
    if (!e->page)
        return false;
    e->ring = (void *)((char *)e->page + e->page->sq_offset);
    e->entries = e->page->sq_entries;
    return true;
}

bool raw_attach(struct raw_client *e) {
    char buffer[OCCL_MESSAGE_BYTES_MAX];
    return raw_hello(e, "enemy") && get_regions(e, buffer) && get_comm(e, buffer);
}

double raw_ask(const char *socket, const char *request, char *out_text, uint32_t text_bytes) {
    char buffer[OCCL_MESSAGE_BYTES_MAX];
    int fds[OCCL_MESSAGE_FDS_MAX] = {-1, -1};
    struct raw_client e;
    struct occl_msg_hello hello;
    struct occl_msg_admin admin;
    double start = world_now(), took = -1;
    raw_init(&e, socket, 0);
    e.answer_s = 20; /* a busy machine; whoever asks judges the time */
    e.fd = raw_connect(socket);
    if (e.fd < 0)
        return -1;
    hello_fill(&hello, OCCL_ROLE_ADMIN, "");
    memset(&admin, 0, sizeof admin);
    (void)snprintf(admin.text, sizeof admin.text, "%s", request);
    if (raw_post(&e, &hello, sizeof hello, OCCL_MSG_HELLO) && raw_answer(&e, buffer, fds) &&
        raw_post(&e, &admin, sizeof admin, OCCL_MSG_ADMIN) && raw_answer(&e, buffer, fds) &&
        ((struct occl_msg_header *)buffer)->type == OCCL_MSG_ADMIN_REPLY && fds[0] >= 0) {
        took = world_now() - start;
        ssize_t got = out_text ? pread(fds[0], out_text, text_bytes - 1, 0) : 0;
        if (out_text)
            out_text[got > 0 ? got : 0] = 0;
    }
    occl_fd_close_all(fds);
    raw_drop(&e);
    return took;
}
