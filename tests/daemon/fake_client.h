/* SPDX-License-Identifier: Apache-2.0 */
/* A client of raw messages, and a daemon to talk to, for tests of the control side. The daemon runs
 * either in this process, one round whenever a client waits (fake_pump), or in a child of its own.
 */
#ifndef TESTS_DAEMON_FAKE_CLIENT_H
#define TESTS_DAEMON_FAKE_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/occld.h"
#include "shm_ipc/wire.h"

/* ---- the daemon under test ---- */
struct fixture {
    char folder[64];
    char socket[96];
    struct occl_clock clock;
    struct occl_log log;
    struct occl_config config;
    struct occl_config_origins origins;
    struct occl_daemon *daemon; /* NULL: it runs elsewhere */
    char log_text[65536];       /* what the in-process daemon logged */
    uint32_t log_used;
    bool supervised; /* looks at the environment for a service manager */
};
/* Makes the folder and the default configuration with a socket in it; change fixture->config, then
 * start. All of these fail the test when something goes wrong. */
void fixture_prepare(struct fixture *fixture);
void fixture_start(struct fixture *fixture);
/* Ends the daemon, and checks that nothing is left in the folder. */
void fixture_stop(struct fixture *fixture);
/* Rounds for at most ms milliseconds, or until the condition holds (NULL: all the time). */
bool fixture_pump(struct fixture *fixture, int ms, bool (*done)(void *arg), void *arg);
uint32_t fixture_log_count(const struct fixture *fixture, const char *text);

/* ---- a client ---- */
struct client {
    struct fixture *fixture; /* pumped while this client waits; NULL: block */
    int fd;
    uint64_t request;
    struct occl_msg_welcome welcome;
    struct occl_session_page *page;
    const struct occl_job_page *job;
    /* The last message received, with its descriptors. */
    union {
        struct occl_msg_header h;
        struct occl_msg_reply reply;
        struct occl_msg_region region;
        struct occl_msg_comm comm;
        struct occl_msg_members_reply members;
        struct occl_msg_admin_reply admin;
        struct occl_msg_event event;
        struct occl_msg_welcome welcome;
        unsigned char bytes[OCCL_MESSAGE_BYTES_MAX];
    } in;
    int fds[OCCL_MESSAGE_FDS_MAX];
    uint32_t fd_count;
};
/* A communicator as a client sees it. */
struct client_comm {
    uint32_t number, rank, ranks;
    uint64_t uid;
    struct occl_records records;
    uint64_t bytes;
};

void client_connect(struct client *client, struct fixture *fixture, const char *path);
void client_close(struct client *client);
/* Sends the bytes as they are. */
void client_send(struct client *client, const void *data, uint32_t bytes, int fd);
/* Next message within ms; false: none came or the connection ended (in.h.type is 0 then). */
bool client_receive(struct client *client, int ms);
/* True when the daemon has closed the connection within ms; messages before that are dropped. */
bool client_sees_end(struct client *client, int ms);
/* Sends a request (its number is filled in) and waits for its answer; events before it are dropped.
 */
void client_call(struct client *client, void *msg, uint32_t bytes);
/* HELLO as given; in holds the answer. */
void client_hello_raw(struct client *client, const struct occl_msg_hello *hello);
void client_hello_fill(struct occl_msg_hello *out_hello, const char *job, const char *tag);
/* connect, HELLO, map the pages. */
void client_attach(struct client *client, struct fixture *fixture, const char *job,
                   const char *tag);
/* All of them, to the job "job". */
void clients_attach(struct client *clients, uint32_t count, struct fixture *fixture);
void clients_close(struct client *clients, uint32_t count);
/* Status of a REPLY, 0 for any other answer. */
int client_status(const struct client *client);
/* Waits for an event of this kind, dropping other messages. */
bool client_event(struct client *client, uint32_t kind, int ms);

void client_unique_id(uint64_t seed, struct occl_unique_id_wire *out_id);
/* Sends COMM_CREATE and does not wait. Returns the request number. */
uint64_t client_comm_ask(struct client *client, const struct occl_unique_id_wire *id, uint32_t rank,
                         uint32_t ranks, uint64_t timeout_ns);
/* Takes the COMM answer that in holds. */
void client_comm_take(struct client *client, struct client_comm *out_comm);
void client_comm_unmap(struct client_comm *comm);
/* All of clients[] become ranks of one communicator. */
void clients_make_comm(struct client *clients, uint32_t ranks, uint64_t seed,
                       struct client_comm *out_comms);
int client_comm_end(struct client *client, uint32_t number, uint32_t how);

/* Arrives in the record of a collective and, when waits, marks itself asleep since `ago` ns. */
struct occl_record *client_arrive(struct client *client, struct client_comm *comm,
                                  struct occl_op_key key, uint8_t kind, bool waits,
                                  uint64_t ago_ns);
/* The same with bits of the flag that say what it brings. */
struct occl_record *client_arrive_with(struct client *client, struct client_comm *comm,
                                       struct occl_op_key key, uint8_t kind, bool waits,
                                       uint64_t ago_ns, uint32_t bits);
/* Has its place in the op, and says that it comes after another of its own, `after` of the
 * communicator with that number. */
struct occl_line *client_hold_back(struct client *client, struct client_comm *comm,
                                   struct occl_op_key key, uint8_t kind, uint64_t ago_ns,
                                   uint32_t number, struct occl_op_key after);
/* The same in the session page, for an op whose way is the ring. */
void client_hold_back_ring(struct client *client, const struct client_comm *comm,
                           struct occl_op_key key, uint64_t ago_ns, uint32_t number,
                           struct occl_op_key after);
/* What the flags of the op say. */
enum occl_outcome client_outcome(const struct client_comm *comm, struct occl_op_key key);

/* ADMIN: the JSON object, to be released with json_decref; NULL with *out_status otherwise. */
json_t *client_admin(struct client *client, const char *request, int *out_status);

/* ---- this process ---- */
uint32_t open_descriptors(void);
uint64_t now_ms(void);

#endif
