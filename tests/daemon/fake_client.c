/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm_ipc/fdpass.h"
#include "tests/daemon/fake_client.h"

uint64_t now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint32_t open_descriptors(void) {
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 3; /* ".", "..", and the folder itself */
}

/* ---- the daemon under test ---- */

static void keep_line(void *self, enum occl_log_level level, const char *line, size_t bytes) {
    struct fixture *fixture = self;
    (void)level;
    if (fixture->log_used + bytes + 2 > sizeof fixture->log_text)
        return;
    memcpy(fixture->log_text + fixture->log_used, line, bytes);
    fixture->log_used += (uint32_t)bytes;
    fixture->log_text[fixture->log_used++] = '\n';
    fixture->log_text[fixture->log_used] = '\0';
}

uint32_t fixture_log_count(const struct fixture *fixture, const char *text) {
    uint32_t count = 0;
    for (const char *at = fixture->log_text; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

void fixture_prepare(struct fixture *fixture) {
    struct occl_detail detail;
    memset(fixture, 0, sizeof *fixture);
    const char *base = getenv("TEST_TMPDIR");
    /* A socket's path has 107 bytes at most. */
    if (!base || strlen(base) > 40)
        base = "/tmp";
    (void)snprintf(fixture->folder, sizeof fixture->folder, "%s/occl-XXXXXX", base);
    assert_non_null(mkdtemp(fixture->folder));
    assert_int_equal(chmod(fixture->folder, 0755), 0);
    (void)snprintf(fixture->socket, sizeof fixture->socket, "%s/s", fixture->folder);
    fixture->clock = occl_clock_system(occl_ticks_source_probe());
    occl_config_defaults(&fixture->config, &fixture->origins);
    assert_int_equal(occl_config_assign("socket", fixture->socket, "flag", &fixture->config,
                                        &fixture->origins, &detail),
                     OCCL_OK);
    fixture->config.lanes = 1;
}

void fixture_start(struct fixture *fixture) {
    struct occl_detail detail = {0};
    struct occl_log_config log_config = {
        .level = OCCL_LOG_LEVEL_INFO,
        .format = OCCL_LOG_FORMAT_TEXT,
        .fd = 2,
        .clock = &fixture->clock,
        .write = keep_line,
        .self = fixture,
    };
    occl_log_init(&fixture->log, &log_config);
    if (occl_config_settle(1ull << 30, &fixture->config, &detail) != OCCL_OK)
        fail_msg("%s", detail.text);
    struct occl_daemon_options options = {
        .config = &fixture->config,
        .origins = &fixture->origins,
        .clock = &fixture->clock,
        .log = &fixture->log,
        .supervised = fixture->supervised,
    };
    if (occl_daemon_create(&options, &fixture->daemon, &detail) != OCCL_OK)
        fail_msg("%s", detail.text);
}

void fixture_stop(struct fixture *fixture) {
    occl_daemon_destroy(fixture->daemon);
    fixture->daemon = NULL;
    if (rmdir(fixture->folder) != 0)
        fail_msg("the daemon left something in %s", fixture->folder);
}

bool fixture_pump(struct fixture *fixture, int ms, bool (*done)(void *arg), void *arg) {
    uint64_t end = now_ms() + (uint64_t)ms;
    for (;;) {
        if (done && done(arg))
            return true;
        uint64_t now = now_ms();
        if (now > end)
            return false;
        (void)occl_daemon_step(fixture->daemon, done ? 1000000 : (end - now + 1) * 1000000);
    }
}

/* ---- a client ---- */

void client_connect(struct client *client, struct fixture *fixture, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memset(client, 0, sizeof *client);
    client->fixture = fixture && fixture->daemon ? fixture : NULL;
    for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++)
        client->fds[i] = -1;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path ? path : fixture->socket);
    client->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(client->fd >= 0);
    if (connect(client->fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail_msg("connect to %s: %s", address.sun_path, strerror(errno));
}

static void drop_fds(struct client *client) {
    for (int i = 0; i < OCCL_MESSAGE_FDS_MAX; i++) {
        if (client->fds[i] >= 0)
            close(client->fds[i]);
        client->fds[i] = -1;
    }
}

void client_close(struct client *client) {
    drop_fds(client);
    if (client->page)
        munmap(client->page, client->welcome.page_bytes);
    if (client->job)
        munmap((void *)(uintptr_t)client->job, client->welcome.job_page_bytes);
    client->page = NULL;
    client->job = NULL;
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

void client_send(struct client *client, const void *data, uint32_t bytes, int fd) {
    struct occl_detail detail = {0};
    int status = occl_fd_send(client->fd, data, bytes, &fd, fd >= 0 ? 1 : 0,
                              client->fixture == NULL, &detail);
    /* Where the kernel can refuse descriptors in the daemon's name, it does. */
    if (status != OCCL_OK && fd >= 0 && detail.system_error == EPERM)
        status = occl_fd_send(client->fd, data, bytes, NULL, 0, client->fixture == NULL, &detail);
    if (status != OCCL_OK && status != OCCL_E_DAEMON_LOST)
        fail_msg("send: %s", detail.text);
}

static bool readable(struct client *client, int ms) {
    struct pollfd poll_fd = {.fd = client->fd, .events = POLLIN};
    uint64_t end = now_ms() + (uint64_t)ms;
    if (!client->fixture)
        return poll(&poll_fd, 1, ms) > 0;
    for (;;) {
        if (poll(&poll_fd, 1, 0) > 0)
            return true;
        if (now_ms() > end)
            return false;
        (void)occl_daemon_step(client->fixture->daemon, 500000);
    }
}

bool client_receive(struct client *client, int ms) {
    struct occl_detail detail;
    uint32_t bytes = 0;
    drop_fds(client);
    memset(&client->in, 0, sizeof client->in.h);
    if (!readable(client, ms))
        return false;
    int status = occl_fd_recv(client->fd, client->in.bytes, sizeof client->in.bytes, false, &bytes,
                              client->fds, &client->fd_count, &detail);
    if (status != OCCL_OK) {
        memset(&client->in, 0, sizeof client->in.h);
        return false;
    }
    assert_int_equal(occl_msg_check(client->in.bytes, bytes, &detail), OCCL_OK);
    return true;
}

bool client_sees_end(struct client *client, int ms) {
    uint64_t end = now_ms() + (uint64_t)ms;
    while (now_ms() <= end) {
        char byte;
        if (client_receive(client, ms) || !readable(client, 1))
            continue;
        ssize_t got = recv(client->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return true;
    }
    return false;
}

void client_call(struct client *client, void *msg, uint32_t bytes) {
    struct occl_msg_header *header = msg;
    header->request = ++client->request;
    client_send(client, msg, bytes, -1);
    do {
        if (!client_receive(client, 5000))
            return;
    } while (client->in.h.request != client->request);
}

void client_hello_fill(struct occl_msg_hello *out_hello, const char *job, const char *tag) {
    memset(out_hello, 0, sizeof *out_hello);
    occl_msg_init(&out_hello->h, OCCL_MSG_HELLO, 1);
    out_hello->abi_min = OCCL_ABI_VERSION_MIN;
    out_hello->abi_max = OCCL_ABI_VERSION;
    out_hello->role = OCCL_ROLE_RANK;
    out_hello->rank_hint = -1;
    out_hello->own_pid = (uint32_t)getpid();
    (void)snprintf(out_hello->job, sizeof out_hello->job, "%s", job);
    (void)snprintf(out_hello->tag, sizeof out_hello->tag, "%s", tag);
    (void)snprintf(out_hello->program, sizeof out_hello->program, "fake");
}

void client_hello_raw(struct client *client, const struct occl_msg_hello *hello) {
    client->request = hello->h.request;
    client_send(client, hello, sizeof *hello, -1);
    (void)client_receive(client, 5000);
}

void client_attach(struct client *client, struct fixture *fixture, const char *job,
                   const char *tag) {
    struct occl_msg_hello hello;
    client_connect(client, fixture, NULL);
    client_hello_fill(&hello, job, tag);
    client_hello_raw(client, &hello);
    if (client->in.h.type == OCCL_MSG_REPLY)
        fail_msg("HELLO: %s", client->in.reply.detail.text);
    assert_int_equal(client->in.h.type, OCCL_MSG_WELCOME);
    assert_int_equal(client->fd_count, 2);
    client->welcome = client->in.welcome;
    client->page = mmap(NULL, client->welcome.page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        client->fds[0], 0);
    client->job =
        mmap(NULL, client->welcome.job_page_bytes, PROT_READ, MAP_SHARED, client->fds[1], 0);
    assert_ptr_not_equal(client->page, MAP_FAILED);
    assert_ptr_not_equal(client->job, MAP_FAILED);
    drop_fds(client);
}

void clients_attach(struct client *clients, uint32_t count, struct fixture *fixture) {
    for (uint32_t i = 0; i < count; i++)
        client_attach(&clients[i], fixture, "job", "");
}

void clients_close(struct client *clients, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        client_close(&clients[i]);
}

int client_status(const struct client *client) {
    return client->in.h.type == OCCL_MSG_REPLY ? client->in.reply.detail.status : 0;
}

bool client_event(struct client *client, uint32_t kind, int ms) {
    uint64_t end = now_ms() + (uint64_t)ms;
    while (now_ms() <= end) {
        if (client_receive(client, (int)(end - now_ms())) && client->in.h.type == OCCL_MSG_EVENT &&
            client->in.event.kind == kind)
            return true;
    }
    return false;
}

/* ---- communicators ---- */

void client_unique_id(uint64_t seed, struct occl_unique_id_wire *out_id) {
    struct occl_clock_virtual v;
    struct occl_clock clock = occl_clock_virtual_init(&v, seed);
    occl_unique_id_make(&clock, out_id);
}

uint64_t client_comm_ask(struct client *client, const struct occl_unique_id_wire *id, uint32_t rank,
                         uint32_t ranks, uint64_t timeout_ns) {
    struct occl_msg_comm_create msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_CREATE, ++client->request);
    msg.unique_id = *id;
    msg.rank = rank;
    msg.ranks = ranks;
    msg.priority = 255;
    msg.timeout_ns = timeout_ns;
    client_send(client, &msg, sizeof msg, -1);
    return client->request;
}

void client_comm_take(struct client *client, struct client_comm *out_comm) {
    if (client->in.h.type == OCCL_MSG_REPLY)
        fail_msg("COMM: %s", client->in.reply.detail.text);
    assert_int_equal(client->in.h.type, OCCL_MSG_COMM);
    out_comm->number = client->in.comm.comm;
    out_comm->rank = client->in.comm.rank;
    out_comm->ranks = client->in.comm.ranks;
    out_comm->uid = client->in.comm.comm_uid;
    out_comm->bytes = client->in.comm.page_bytes;
    assert_int_equal(client->fd_count, 1);
    void *base = mmap(NULL, out_comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, client->fds[0], 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    assert_int_equal(occl_records_open(base, out_comm->bytes, &out_comm->records), OCCL_OK);
    drop_fds(client);
}

void client_comm_unmap(struct client_comm *comm) {
    munmap(comm->records.base, comm->bytes);
}

void clients_make_comm(struct client *clients, uint32_t ranks, uint64_t seed,
                       struct client_comm *out_comms) {
    struct occl_unique_id_wire id;
    client_unique_id(seed, &id);
    for (uint32_t rank = 0; rank < ranks; rank++)
        (void)client_comm_ask(&clients[rank], &id, rank, ranks, 0);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        while (client_receive(&clients[rank], 5000) && clients[rank].in.h.type == OCCL_MSG_EVENT)
            continue;
        client_comm_take(&clients[rank], &out_comms[rank]);
    }
}

int client_comm_end(struct client *client, uint32_t number, uint32_t how) {
    struct occl_msg_comm_end msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_END, 0);
    msg.comm = number;
    msg.how = how;
    client_call(client, &msg, sizeof msg);
    assert_int_equal(client->in.h.type, OCCL_MSG_REPLY);
    return client->in.reply.detail.status;
}

struct occl_record *client_arrive(struct client *client, struct client_comm *comm,
                                  struct occl_op_key key, uint8_t kind, bool waits,
                                  uint64_t ago_ns) {
    return client_arrive_with(client, comm, key, kind, waits, ago_ns, 0);
}

enum occl_outcome client_outcome(const struct client_comm *comm, struct occl_op_key key) {
    struct occl_place place = occl_place_of(key);
    struct occl_look look;
    occl_record_look(occl_record_at(&comm->records, place.slot), place.print,
                     occl_claim_members(occl_claim_index(place.slot), comm->ranks), &look);
    return look.outcome;
}

static uint64_t ticks_ago(const struct client *client, uint64_t ago_ns) {
    struct occl_clock clock = occl_clock_system((enum occl_ticks_source)client->page->ticks_source);
    struct occl_ticks_scale scale;
    occl_ticks_calibrate(&clock, 2000000, &scale);
    return occl_clock_ticks(&clock) - occl_ticks_of_ns(&scale, ago_ns);
}

struct occl_line *client_hold_back(struct client *client, struct client_comm *comm,
                                   struct occl_op_key key, uint8_t kind, uint64_t ago_ns,
                                   uint32_t number, struct occl_op_key after) {
    struct occl_signature sig = {.kind = kind, .dtype = 7, .count = 4};
    struct occl_place place = occl_place_of(key);
    uint32_t index = key.peers == OCCL_PEERS_ALL ? comm->rank : kind == OCCL_OP_RECV;
    struct occl_claim *claim = occl_claim_of(&comm->records, place.slot);
    struct occl_line *line = occl_line_at(occl_record_at(&comm->records, place.slot), index);
    assert_int_not_equal(occl_claim_enter(claim, place.print, false), OCCL_ENTER_RING);
    occl_line_fill(line, key, &sig);
    line->submit_ticks = ticks_ago(client, ago_ns);
    line->after_tag = after.tag;
    line->after_instance = after.instance;
    line->after_comm = number;
    occl_publish32(&line->after, (uint32_t)occl_peers_pack(after.peers) << 16 | 1);
    return line;
}

void client_hold_back_ring(struct client *client, const struct client_comm *comm,
                           struct occl_op_key key, uint64_t ago_ns, uint32_t number,
                           struct occl_op_key after) {
    client->page->held = (struct occl_held_op){key, comm->number};
    client->page->held_after = (struct occl_held_op){after, number};
    occl_note32(&client->page->held_total, 1);
    occl_publish64(&client->page->held_ticks, ticks_ago(client, ago_ns));
}

struct occl_record *client_arrive_with(struct client *client, struct client_comm *comm,
                                       struct occl_op_key key, uint8_t kind, bool waits,
                                       uint64_t ago_ns, uint32_t bits) {
    struct occl_signature sig = {.kind = kind, .dtype = 7, .count = 4};
    struct occl_place place = occl_place_of(key);
    struct occl_record *rec = occl_record_at(&comm->records, place.slot);
    uint32_t index = key.peers == OCCL_PEERS_ALL ? comm->rank : kind == OCCL_OP_RECV;
    uint64_t ticks = ticks_ago(client, ago_ns);
    struct occl_claim *claim = occl_claim_of(&comm->records, place.slot);
    assert_int_not_equal(occl_claim_enter(claim, place.print, false), OCCL_ENTER_RING);
    struct occl_line *line = occl_line_at(rec, index);
    occl_line_fill(line, key, &sig);
    line->submit_ticks = ticks;
    occl_note64(&line->wait_since_ticks, waits ? ticks : 0);
    (void)occl_record_arrive(line, place.print, bits | (waits ? OCCL_FLAG_BLOCKED : 0));
    return rec;
}

/* ---- administration ---- */

json_t *client_admin(struct client *client, const char *request, int *out_status) {
    struct occl_msg_admin msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_ADMIN, 0);
    (void)snprintf(msg.text, sizeof msg.text, "%s", request);
    client_call(client, &msg, sizeof msg);
    assert_int_equal(client->in.h.type, OCCL_MSG_ADMIN_REPLY);
    *out_status = client->in.admin.detail.status;
    if (*out_status != OCCL_OK)
        return NULL;
    assert_int_equal(client->fd_count, 1);
    size_t bytes = client->in.admin.text_bytes;
    char *text = mmap(NULL, bytes, PROT_READ, MAP_SHARED, client->fds[0], 0);
    assert_ptr_not_equal(text, MAP_FAILED);
    json_error_t error;
    json_t *object = json_loadb(text, bytes, 0, &error);
    if (!object)
        fail_msg("answer is not JSON: %s", error.text);
    munmap(text, bytes);
    return object;
}
