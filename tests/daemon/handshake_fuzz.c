/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what a client may send, from the first byte on. The input is a list of datagrams,
 * each with two bytes of length before it; the daemon must neither crash nor keep anything of the
 * client. The first byte of the input says whether the client has attached before. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/occld.h"
#include "shm_ipc/wire.h"

#define DATAGRAMS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Made once: a daemon on a socket in a folder of its own. */
struct bench {
    struct occl_clock clock;
    struct occl_config config;
    struct occl_daemon *daemon;
    char folder[64];
};

static void leave(void);

static struct bench *bench(void) {
    static struct bench b;
    struct occl_detail detail;
    if (b.daemon)
        return &b;
    const char *base = getenv("TEST_TMPDIR");
    (void)snprintf(b.folder, sizeof b.folder, "%s/occl-fuzz-XXXXXX",
                   base && strlen(base) < 40 ? base : "/tmp");
    if (!mkdtemp(b.folder))
        abort();
    b.clock = occl_clock_system(OCCL_TICKS_NS);
    occl_config_defaults(&b.config, NULL);
    (void)snprintf(b.config.socket, sizeof b.config.socket, "%s/s", b.folder);
    b.config.lanes = 1;
    struct occl_daemon_options options = {.config = &b.config, .clock = &b.clock};
    if (occl_config_settle(1ull << 30, &b.config, &detail) != OCCL_OK ||
        occl_daemon_create(&options, &b.daemon, &detail) != OCCL_OK) {
        (void)fprintf(stderr, "%s\n", detail.text);
        abort();
    }
    (void)atexit(leave);
    return &b;
}

/* At exit: neither socket nor folder stays. */
static void leave(void) {
    struct bench *b = bench();
    occl_daemon_destroy(b->daemon);
    (void)rmdir(b->folder);
}

static void drain(int fd) {
    char bytes[OCCL_MESSAGE_BYTES_MAX];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        continue;
}

static void say_hello(int fd, struct occl_daemon *daemon) {
    struct occl_msg_hello hello;
    memset(&hello, 0, sizeof hello);
    occl_msg_init(&hello.h, OCCL_MSG_HELLO, 1);
    hello.abi_min = hello.abi_max = OCCL_ABI_VERSION;
    hello.role = OCCL_ROLE_RANK;
    hello.rank_hint = -1;
    (void)send(fd, &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)occl_daemon_step(daemon, 0);
    (void)occl_daemon_step(daemon, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bench *b = bench();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%.107s", b->config.socket);
    if (size < 1 || fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    (void)occl_daemon_step(b->daemon, 0);
    if (data[0] & 1)
        say_hello(fd, b->daemon);
    data++;
    size--;
    for (int i = 0; i < DATAGRAMS_MAX && size >= 2; i++) {
        size_t bytes = ((size_t)data[0] << 8 | data[1]) % (OCCL_MESSAGE_BYTES_MAX + 32);
        data += 2;
        size -= 2;
        if (bytes > size)
            bytes = size;
        if (bytes)
            (void)send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        data += bytes;
        size -= bytes;
        (void)occl_daemon_step(b->daemon, 0);
        drain(fd);
    }
    close(fd);
    for (int i = 0; i < 100 && b->daemon->sessions; i++)
        (void)occl_daemon_step(b->daemon, 1000000);
    /* Whatever was sent, its session and what it was charged are gone. */
    if (b->daemon->sessions || b->daemon->tenants || b->daemon->charge.used_bytes)
        abort();
    return 0;
}
