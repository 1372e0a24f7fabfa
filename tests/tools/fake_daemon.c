/* SPDX-License-Identifier: Apache-2.0 */
/* Speaks the administrator's side of the socket and answers from a file: what tests of tools need
 * of a daemon, in every state they want to see.
 *
 *   fake_daemon --socket PATH [--private] [--answers FILE] [--requests FILE] [--mute]
 *               [--late-ms N] [--locked] [--other-version]
 *
 * FILE holds one JSON object: verb -> answer; an answer with "status" < 0 is refused with "text".
 * The last request is written to PATH.request. --mute accepts and never answers, --late-ms listens
 * only then, --locked holds a lock on the pid file beside the socket. --private ends when the last
 * of at least one connection has ended. --other-version refuses every HELLO as a daemon of another
 * ABI does. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm_ipc/fdpass.h"
#include "shm_ipc/wire.h"

#define CONNECTIONS_MAX 60

struct options {
    const char *socket;
    const char *answers;
    const char *requests;
    bool private_mode, mute, locked, other_version;
    int late_ms;
};

static void welcome(int fd, const struct occl_msg_header *request) {
    struct occl_msg_welcome message;
    memset(&message, 0, sizeof message);
    occl_msg_init(&message.h, OCCL_MSG_WELCOME, request->request);
    message.daemon_pid = (uint32_t)getpid();
    message.lanes = 2;
    (void)snprintf(message.host, sizeof message.host, "fakehost");
    (void)snprintf(message.version, sizeof message.version, "9.9.9-fake");
    if (occl_fd_send(fd, &message, sizeof message, NULL, 0, true, NULL) != OCCL_OK)
        (void)shutdown(fd, SHUT_RDWR);
}

static void refuse_version(int fd, const struct occl_msg_header *request) {
    struct occl_msg_reply message;
    memset(&message, 0, sizeof message);
    occl_msg_init(&message.h, OCCL_MSG_REPLY, request->request);
    (void)occl_detail_set(&message.detail, OCCL_E_VERSION, 0,
                          "the library speaks ABI versions 1 to 1, this daemon 7 to 8");
    if (occl_fd_send(fd, &message, sizeof message, NULL, 0, true, NULL) != OCCL_OK)
        (void)shutdown(fd, SHUT_RDWR);
}

static json_t *answer_of(const struct options *options, const char *verb) {
    json_t *all = options->answers ? json_load_file(options->answers, 0, NULL) : NULL;
    json_t *one = json_incref(json_object_get(all, verb));
    json_decref(all);
    if (!one)
        one = json_pack("{s:i, s:s}", "schema", 1, "verb", verb);
    return one;
}

static void note_request(const struct options *options, const char *text) {
    FILE *file = options->requests ? fopen(options->requests, "we") : NULL;
    if (!file)
        return;
    (void)fputs(text, file);
    (void)fclose(file);
}

static void answer(const struct options *options, int fd, const struct occl_msg_admin *request) {
    note_request(options, request->text);
    json_t *asked = json_loads(request->text, 0, NULL);
    const char *verb = json_string_value(json_object_get(asked, "verb"));
    json_t *reply = answer_of(options, verb ? verb : "");
    struct occl_msg_admin_reply message;
    memset(&message, 0, sizeof message);
    occl_msg_init(&message.h, OCCL_MSG_ADMIN_REPLY, request->h.request);
    json_int_t status = json_integer_value(json_object_get(reply, "status"));
    int memfd = -1;
    if (status < 0) {
        message.detail.status = (int32_t)status;
        const char *text = json_string_value(json_object_get(reply, "text"));
        (void)snprintf(message.detail.text, sizeof message.detail.text, "%s", text ? text : "");
    } else {
        char *text = json_dumps(reply, JSON_COMPACT);
        memfd = memfd_create("answer", MFD_CLOEXEC);
        message.text_bytes = strlen(text);
        if (write(memfd, text, strlen(text)) != (ssize_t)strlen(text))
            message.text_bytes = 0;
        free(text);
    }
    if (occl_fd_send(fd, &message, sizeof message, &memfd, memfd >= 0, true, NULL) != OCCL_OK)
        (void)shutdown(fd, SHUT_RDWR);
    if (memfd >= 0)
        (void)close(memfd);
    json_decref(reply);
    json_decref(asked);
}

/* False: the connection has ended. */
static bool serve(const struct options *options, int fd) {
    static union {
        struct occl_msg_header h;
        struct occl_msg_admin admin;
        char bytes[OCCL_MESSAGE_BYTES_MAX];
    } message;
    ssize_t got = recv(fd, message.bytes, sizeof message.bytes, 0);
    if (got <= 0)
        return false;
    if (options->mute)
        return true;
    if (occl_msg_check(message.bytes, (uint32_t)got, NULL) != OCCL_OK)
        return false;
    if (message.h.type == OCCL_MSG_HELLO && options->other_version)
        refuse_version(fd, &message.h);
    else if (message.h.type == OCCL_MSG_HELLO)
        welcome(fd, &message.h);
    else if (message.h.type == OCCL_MSG_ADMIN)
        answer(options, fd, &message.admin);
    return true;
}

static int listen_at(const struct options *options) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* It gets its name once it listens: whoever sees it may connect. */
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%.100s.new", options->socket);
    if (options->locked) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s", options->socket);
        (void)snprintf(strrchr(path, '/'), 16, "/occld.pid");
        int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (lock < 0 || flock(lock, LOCK_EX) != 0)
            return -1;
    }
    struct timespec late = {options->late_ms / 1000, options->late_ms % 1000 * 1000000l};
    (void)nanosleep(&late, NULL);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, 16) != 0 || rename(address.sun_path, options->socket) != 0)
        return -1;
    return fd;
}

static void serve_all(const struct options *options, int listener) {
    struct pollfd list[CONNECTIONS_MAX + 1] = {{.fd = listener, .events = POLLIN}};
    nfds_t count = 1;
    bool had_one = false;
    while (!options->private_mode || !had_one || count > 1) {
        if (poll(list, count, -1) < 0)
            continue;
        for (nfds_t i = count - 1; i > 0; i--) {
            if (!list[i].revents || serve(options, list[i].fd))
                continue;
            (void)close(list[i].fd);
            list[i] = list[--count];
        }
        if (list[0].revents && count <= CONNECTIONS_MAX) {
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0)
                list[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
            /* A look of `locate` connects and leaves; only one that talks counts. */
            char one;
            had_one = had_one || (fd >= 0 && recv(fd, &one, 1, MSG_PEEK) > 0);
        }
    }
}

int main(int argc, char **argv) {
    struct options options = {0};
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--private") == 0)
            options.private_mode = true;
        else if (strcmp(argv[i], "--mute") == 0)
            options.mute = true;
        else if (strcmp(argv[i], "--locked") == 0)
            options.locked = true;
        else if (strcmp(argv[i], "--other-version") == 0)
            options.other_version = true;
        else if (strcmp(argv[i], "--socket") == 0)
            options.socket = next;
        else if (strcmp(argv[i], "--answers") == 0)
            options.answers = next;
        else if (strcmp(argv[i], "--requests") == 0)
            options.requests = next;
        else if (strcmp(argv[i], "--late-ms") == 0)
            options.late_ms = atoi(next);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    int listener = options.socket ? listen_at(&options) : -1;
    if (listener < 0) {
        (void)fprintf(stderr, "fake_daemon: cannot listen: %s\n", strerror(errno));
        return 1;
    }
    serve_all(&options, listener);
    (void)unlink(options.socket);
    return 0;
}
