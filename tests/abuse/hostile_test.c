/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that speak the raw protocol and write what they like into every page they get, in orders
 * that a seed decides. Meanwhile the ranks of another tenant check every result. */
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_ipc/op_kind.h"
#include "shm_ipc/record.h"
#include "tests/abuse/raw.h"
#include "tests/abuse/scene.h"

static void scribble(struct raw_client *e, char *base, uint64_t bytes, uint64_t within) {
    if (!base)
        return;
    for (int i = 0; i < 64; i++) {
        uint64_t x = scene_random(&e->random),
                 at = scene_random(&e->random) % (within < bytes ? within : bytes);
        uint64_t value = x & 3 ? scene_random(&e->random) & 7 : scene_random(&e->random);
        if (at + 8 <= bytes)
            memcpy(base + at, &value, 1u << (x >> 2 & 3));
    }
}

static struct occl_buffer_ref some_buffer(struct raw_client *e, uint64_t bytes) {
    uint64_t x = scene_random(&e->random);
    struct occl_buffer_ref ref = {(uint32_t)(x % 5), (uint32_t)(x >> 8 & 15), x >> 32};
    int i = e->region_count ? (int)(x >> 16 & 3) % e->region_count : 0;
    if (e->region_count && x >> 20 & 3) {
        ref = (struct occl_buffer_ref){OCCL_SPACE_REGION, e->regions[i].number, 0};
        if (bytes < e->regions[i].bytes)
            ref.offset = (x >> 32) % (e->regions[i].bytes - bytes + 64);
    }
    if ((x >> 22 & 31) == 0)
        ref.offset = ~(x >> 40);
    return ref;
}

/* A vector somewhere in a region: with some luck of the kind's form, and of blocks that agree. */
static struct occl_buffer_ref some_vector(struct raw_client *e, const struct occl_sqe *s) {
    uint64_t x = scene_random(&e->random);
    struct occl_buffer_ref ref = some_buffer(e, sizeof(uint64_t) * OCCL_VECTOR_NUMBERS_MAX);
    uint32_t n = e->comm_ranks, i = e->region_count ? (uint32_t)(x % (uint64_t)e->region_count) : 0;
    if (!e->region_count || !e->regions[i].base || n < 1 || n > 3)
        return ref;
    const struct occl_kind_traits *t = occl_kind_traits(s->signature.kind);
    uint64_t *v = (uint64_t *)(void *)(e->regions[i].base + (x >> 8 & 7) * 512);
    for (uint32_t part = 0; part < OCCL_VECTOR_PARTS; part += 2) {
        bool send = part == OCCL_VECTOR_SEND_COUNT;
        uint32_t extent = send ? t->send_other : t->recv_other;
        for (uint32_t k = 0; k < n; k++) {
            occl_note64(&v[part * n + k], extent == OCCL_EXTENT_NONE ? 0 : 4);
            occl_note64(&v[(part + 1) * n + k], extent == OCCL_EXTENT_ALL ? 4 * k : 0);
        }
    }
    if ((x >> 16 & 3) == 0)
        occl_note64(&v[(x >> 20) % (OCCL_VECTOR_PARTS * n)], x >> (x >> 32 & 63));
    return (struct occl_buffer_ref){OCCL_SPACE_REGION, e->regions[i].number, (x >> 8 & 7) * 512};
}

/* Fields that the kind does not have are 0, else nothing behind the first check would be seen. */
static void make_plausible(struct raw_client *e, struct occl_sqe *s) {
    const struct occl_kind_traits *t = occl_kind_traits(s->signature.kind);
    if (!t)
        return;
    if (!(t->flags & OCCL_KIND_TYPED))
        s->signature.dtype = 0;
    if (!(t->flags & OCCL_KIND_REDUCES))
        s->signature.redop = 0;
    if (!(t->flags & (OCCL_KIND_ROOTED | OCCL_KIND_PAIR)))
        s->signature.root = 0;
    if (!(t->flags & OCCL_KIND_TYPED) || t->flags & OCCL_KIND_VECTOR)
        s->signature.count = 0;
    if (!(t->flags & OCCL_KIND_PAIR))
        s->key.peers = OCCL_PEERS_ALL;
    if (t->flags & OCCL_KIND_VECTOR)
        s->vector = some_vector(e, s);
    if (s->signature.redop == OCCL_PREMULSUM)
        s->factor = scene_random(&e->random);
}

static void some_sqe(struct raw_client *e, struct occl_sqe *s) {
    uint64_t x = scene_random(&e->random);
    memset(s, 0, sizeof *s);
    s->verb = (uint8_t)(x % 128 ? 1 + x % 3 : x >> 8);
    s->priority = x >> 16 & 3 ? 255 : (uint8_t)(x >> 20);
    s->slot = (uint16_t)(x >> 24 & 127);
    s->comm = x >> 32 & 7 ? e->comm_number - (uint32_t)(x >> 35 & 1) : (uint32_t)(x >> 40);
    s->key.peers = x >> 36 & 3 ? OCCL_PEERS_ALL : (uint32_t)(x >> 40 & 3) << 16 | (x >> 44 & 3);
    s->key.tag = (uint32_t)(x >> 46 & 3);
    s->key.instance = (uint32_t)(x >> 48 & 7);
    s->signature.kind = (uint8_t)(1 + (x >> 50) % OCCL_OP_LIMIT);
    s->signature.dtype = (uint8_t)(x >> 53 & 15);
    s->signature.redop = (uint8_t)(x >> 57 & 7);
    s->signature.count = scene_random(&e->random) >> (scene_random(&e->random) % 64);
    s->signature.root = (uint32_t)(x >> 60 & 3);
    s->src = some_buffer(e, s->signature.count * 4);
    s->dst = some_buffer(e, s->signature.count * 4);
    s->user_data = scene_random(&e->random) & 31;
    s->deadline_ns = x & 64 ? scene_random(&e->random) >> 20 : 0;
    if (scene_random(&e->random) & 7)
        make_plausible(e, s);
    if ((scene_random(&e->random) & 15) == 0)
        scribble(e, (char *)s, sizeof *s, sizeof *s);
}

static void submit(struct raw_client *e) {
    struct occl_msg_plain bell;
    for (uint64_t n = 1 + scene_random(&e->random) % 40; n > 0; n--)
        some_sqe(e, &e->ring[e->tail++ & (e->entries - 1)]);
    occl_publish32(&e->page->sq_tail.value, e->tail);
    memset(&bell, 0, sizeof bell);
    (void)raw_post(e, &bell, sizeof bell, OCCL_MSG_DOORBELL);
}

/* A record that looks decided and complete, with buffers of our choice, and a call for lanes. */
static void forge_record(struct raw_client *e) {
    struct occl_records m;
    if (!e->comm || occl_records_open(e->comm, e->comm_bytes, &m) != OCCL_OK)
        return;
    struct occl_sqe s;
    some_sqe(e, &s);
    s.key.peers = OCCL_PEERS_ALL;
    struct occl_place place = occl_place_of(s.key);
    struct occl_record *rec = occl_record_at(&m, place.slot);
    uint32_t bits = OCCL_FLAG_READY | (uint32_t)(scene_random(&e->random) & 0x3e);
    for (uint32_t i = 0; i < m.ranks; i++) {
        struct occl_line *line = occl_line_at(rec, i);
        occl_line_fill(line, s.key, &s.signature);
        line->u.ref.src = some_buffer(e, s.signature.count * 4);
        line->u.ref.dst = some_buffer(e, s.signature.count * 4);
        line->vector = s.vector;
        occl_publish64(&line->flag, occl_flag_make(place.print, bits));
    }
    occl_note32(&rec->strands_next[scene_random(&e->random) % OCCL_STRAND_SEGMENTS],
                (uint32_t)(scene_random(&e->random) & 1));
    occl_publish32(&rec->state, OCCL_REC_LOCAL);
    occl_publish64(&occl_claim_of(&m, place.slot)->word, OCCL_WORD_CLAIMED | place.print);
    s.verb = OCCL_SQE_EXECUTE;
    s.slot = (uint16_t)place.slot;
    s.comm = e->comm_number;
    s.src = s.dst = (struct occl_buffer_ref){0, 0, 0};
    e->ring[e->tail++ & (e->entries - 1)] = s;
    occl_publish32(&e->page->sq_tail.value, e->tail);
    struct occl_msg_plain bell;
    memset(&bell, 0, sizeof bell);
    (void)raw_post(e, &bell, sizeof bell, OCCL_MSG_DOORBELL);
}

static void punch(struct raw_client *e) {
    int all[8], count = 0;
    for (int i = 0; i < e->region_count; i++)
        all[count++] = e->regions[i].fd;
    all[count++] = e->page_fd;
    all[count++] = e->comm_fd;
    all[count++] = e->job_fd;
    int fd = all[scene_random(&e->random) % (uint64_t)count];
    switch (scene_random(&e->random) % 4) {
    case 0:
        (void)!ftruncate(fd, (off_t)(scene_random(&e->random) % 8192));
        break;
    case 1:
        (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
        break;
    case 2:
        (void)fallocate(fd, 0, 0, 64 << 20);
        break;
    default:
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK);
    }
}

static void random_message(struct raw_client *e) {
    char message[OCCL_MESSAGE_BYTES_MAX];
    struct occl_detail detail;
    uint32_t type = 1 + (uint32_t)(scene_random(&e->random) % 19), bytes = occl_msg_bytes(type);
    memset(message, 0, sizeof message);
    for (uint32_t i = 0; i < sizeof message && scene_random(&e->random) % 4; i += 8) {
        uint64_t value = scene_random(&e->random) & (scene_random(&e->random) & 1 ? 7 : ~0ull);
        memcpy(message + i, &value, 8);
    }
    occl_msg_init((void *)message, type, scene_random(&e->random) % 3);
    if (bytes == 0 || scene_random(&e->random) % 8 == 0)
        bytes = (uint32_t)(scene_random(&e->random) % sizeof message);
    if (scene_random(&e->random) % 8 == 0)
        scribble(e, message, 32, 24);
    int fds[2] = {0, e->fd};
    (void)!occl_fd_send(e->fd, message, bytes, fds, (uint32_t)(scene_random(&e->random) % 3), false,
                        &detail);
}

static void flood(struct raw_client *e) {
    struct occl_msg_admin admin;
    struct occl_msg_region_alloc alloc;
    struct occl_msg_members members;
    for (int i = 0; i < 300; i++) { /* and never reads an answer */
        memset(&admin, 0, sizeof admin);
        memset(&alloc, 0, sizeof alloc);
        memset(&members, 0, sizeof members);
        (void)snprintf(admin.text, sizeof admin.text, "{\"verb\": \"%s\"}",
                       (const char *[]){"status", "why", "ops", "jobs"}[i % 4]);
        alloc.bytes = 1ull << (12 + scene_random(&e->random) % 24);
        members.comm = e->comm_number;
        bool ok = i % 3 == 0   ? raw_post(e, &admin, sizeof admin, OCCL_MSG_ADMIN)
                  : i % 3 == 1 ? raw_post(e, &alloc, sizeof alloc, OCCL_MSG_REGION_ALLOC)
                               : raw_post(e, &members, sizeof members, OCCL_MSG_MEMBERS);
        if (!ok)
            usleep(200);
    }
}

static void half_handshakes(struct raw_client *e) {
    int fds[60];
    for (int i = 0; i < 60; i++) {
        fds[i] = raw_connect(e->socket);
        if (fds[i] >= 0 && i % 3 == 0)
            (void)!send(fds[i], e, scene_random(&e->random) % 200, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (fds[i] >= 0 && i % 3 == 1)
            (void)shutdown(fds[i], SHUT_WR);
    }
    usleep(2000);
    for (int i = 0; i < 60; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

static void requeue(struct raw_client *e) {
    static uint32_t mine;
    (void)syscall(SYS_futex, &e->page->cq_bell, FUTEX_REQUEUE, 64, 64, &mine, 0);
    (void)syscall(SYS_futex, &e->page->daemon_sleeping, FUTEX_REQUEUE, 64, 64, &mine, 0);
    occl_note32(&e->page->cq_sleepers, 1u << (scene_random(&e->random) % 32));
}

static void attack(struct raw_client *e) {
    switch (scene_random(&e->random) % 12) {
    case 0:
        scribble(e, (char *)e->page, e->page_bytes, 512);
        break;
    case 1:
        scribble(e, e->comm, e->comm_bytes, 256);
        break;
    case 2:
        scribble(e, e->comm, e->comm_bytes, e->comm_bytes);
        break;
    case 3:
        punch(e);
        break;
    case 4:
        random_message(e);
        break;
    case 5:
        if (scene_random(&e->random) % 8 == 0)
            flood(e);
        break;
    case 6:
        if (scene_random(&e->random) % 8 == 0)
            half_handshakes(e);
        break;
    case 7:
        requeue(e);
        break;
    case 8:
    case 9:
        forge_record(e);
        break;
    default:
        submit(e);
    }
}

static _Noreturn void enemy_main(const char *socket_path, uint64_t seed, double until) {
    struct raw_client e;
    uint64_t sessions = 0;
    scene_become_enemy();
    (void)signal(SIGPIPE, SIG_IGN);
    raw_init(&e, socket_path, seed);
    /* On a busy machine some sessions may take longer than the time asked for. */
    while (world_now() < until || (sessions <= 3 && world_now() < until + 10)) {
        if (raw_attach(&e))
            for (uint64_t n = scene_random(&e.random) % 60; n > 0 && world_now() < until; n--) {
                attack(&e);
                if (scene_random(&e.random) % 4 == 0)
                    usleep((useconds_t)(scene_random(&e.random) % 800));
            }
        sessions += e.page != NULL;
        raw_drop(&e);
    }
    _exit(sessions > 3 ? 0 : 97);
}

static void test_enemies_of_raw_messages(void **state) {
    (void)state;
    struct scene scene;
    pid_t enemies[3];
    scene_open(&scene, NULL);
    double until = world_now() + scene_seconds();
    for (int i = 0; i < 3; i++) {
        fflush(stdout);
        enemies[i] = fork();
        if (enemies[i] == 0)
            enemy_main(scene.w.socket, scene_seed() * 100 + (uint64_t)i, until);
    }
    for (int i = 0; i < 3; i++) {
        int status = world_wait(enemies[i], scene_seconds() + 10);
        if (status != 0)
            fprintf(stderr, "enemy %d ended with 0x%x\n", i, (unsigned)status);
        assert_int_equal(status, 0);
    }
    scene_close(&scene);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_enemies_of_raw_messages),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
