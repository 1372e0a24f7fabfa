/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon among enemies: processes that are killed and stopped at any moment, and clients that
 * speak the raw protocol and write what they like into every page they get. Meanwhile the ranks of
 * another tenant check every result; afterwards the daemon lives and holds what it held before.
 * ABUSE_SECONDS and ABUSE_SEED in the environment make it longer and different. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <dirent.h>

#include "shm_ipc/fdpass.h"
#include "shm_ipc/record.h"
#include "shm_ipc/wire.h"
#include "tests/client/world.h"

#define BYSTANDERS 2

static uint64_t next(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static int seconds(void) {
    return getenv("ABUSE_SECONDS") ? atoi(getenv("ABUSE_SECONDS")) : 4;
}

static uint64_t first_seed(void) {
    return getenv("ABUSE_SEED") ? strtoull(getenv("ABUSE_SEED"), NULL, 10) : 1;
}

/* ---- the other tenant ---- */

struct shared {
    uint64_t checked[BYSTANDERS];
    int stop;
    double slowest; /* of one op, rank 0 */
};

static int bystander(struct world_rank *me) {
    struct shared *s = me->arg;
    const size_t most = 60000;
    void *zero_copy;
    float *buffer = malloc(most * sizeof(float));
    WORLD_OK(occl_mem_alloc(most * sizeof(float), &zero_copy));
    for (uint64_t i = 0;; i++) {
        size_t count = (size_t[]){1, 30, 900, most}[i % 4];
        float *b = i & 4 ? zero_copy : buffer, stop = 0;
        struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
        struct occl_request request;
        attr.tag = 1 + (uint32_t)(i % 9);
        world_fill(b, count, me->rank, i);
        double start = world_now();
        WORLD_OK(occl_all_reduce(b, b, count, OCCL_FLOAT32, OCCL_SUM, me->comm, &attr, &request));
        WORLD_OK(occl_wait(request));
        WORLD_CHECK(world_wrong_sum(b, count, me->size, i) == 0);
        if (me->rank == 0 && world_now() - start > s->slowest)
            s->slowest = world_now() - start;
        __atomic_add_fetch(&s->checked[me->rank], 1, __ATOMIC_RELAXED);
        if (i % 16 == 0) {
            stop = (float)__atomic_load_n(&s->stop, __ATOMIC_RELAXED);
            WORLD_OK(occl_broadcast(&stop, &stop, 1, OCCL_FLOAT32, 0, me->comm, NULL, NULL));
        }
        if (stop > 0)
            break;
    }
    free(buffer);
    return 0;
}

/* A process of its own, because the user changes: another tenant, whose processes are not dumpable,
 * so that their private buffers are staged. */
static pid_t start_bystanders(struct world *w, struct shared *s) {
    fflush(stderr);
    pid_t pid = fork();
    if (pid)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getuid() == 0 && (setgid(60001) || setuid(60001)))
        _exit(98);
    _exit(world_run(w, BYSTANDERS, bystander, s, 3600));
}

static void become_enemy(void) {
    (void)signal(SIGSEGV, SIG_DFL);
    (void)signal(SIGBUS, SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getuid() == 0 && (setgid(60002) || setuid(60002)))
        _exit(98);
}

/* ---- what the daemon holds ---- */

struct holdings {
    int files, mappings;
};

static struct holdings holdings_of(pid_t pid) {
    struct holdings h = {0, 0};
    char path[64], line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *e = folder ? readdir(folder) : NULL; e; e = readdir(folder))
        h.files += e->d_name[0] != '.';
    if (folder)
        (void)closedir(folder);
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        h.mappings += strstr(line, "memfd:") != NULL;
    if (maps)
        (void)fclose(maps);
    return h;
}

/* Tear-down follows the kernel's report of the last exit: a moment is granted. */
static void expect_holdings(pid_t pid, struct holdings before) {
    struct holdings now = {0, 0};
    for (int i = 0; i < 200; i++) {
        now = holdings_of(pid);
        if (now.files == before.files && now.mappings == before.mappings)
            return;
        usleep(20000);
    }
    assert_int_equal(now.files, before.files);
    assert_int_equal(now.mappings, before.mappings);
}

struct scene {
    struct world w;
    struct shared *s;
    pid_t bystanders;
    struct holdings before;
};

static void open_scene(struct scene *scene) {
    memset(scene, 0, sizeof *scene);
    world_start(&scene->w, NULL);
    usleep(50000);
    scene->before = holdings_of(scene->w.daemon);
    scene->s = world_shared(sizeof *scene->s);
    scene->bystanders = start_bystanders(&scene->w, scene->s);
}

static void close_scene(struct scene *scene) {
    uint64_t checked = scene->s->checked[0];
    for (int i = 0; i < 100 && scene->s->checked[0] < checked + 20; i++)
        usleep(50000);
    assert_true(scene->s->checked[0] >= checked + 20); /* it still works */
    __atomic_store_n(&scene->s->stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(world_wait(scene->bystanders, 20), 0);
    expect_holdings(scene->w.daemon, scene->before);
    assert_int_equal(world_stop(&scene->w), 0);
    printf("    %llu results checked, the slowest op took %.0f ms\n", (unsigned long long)checked,
           scene->s->slowest * 1e3);
}

/* ---- ranks that are killed and stopped at any moment ---- */

struct stage {
    int joined; /* ranks */
    int quiet;  /* the parent sends no more signals */
};

static int victim_ops(struct world_rank *me) {
    struct stage *stage = me->arg;
    uint64_t random = first_seed() + (uint64_t)me->rank;
    const size_t most = 300000;
    float *private = world_alloc(most * sizeof(float));
    void *zero_copy;
    struct occl_comm half;
    __atomic_add_fetch(&stage->joined, 1, __ATOMIC_SEQ_CST);
    if (occl_mem_alloc(most * sizeof(float), &zero_copy) ||
        occl_comm_split(me->comm, me->rank / 2, 0, NULL, &half))
        return 0; /* a peer was killed before */
    for (uint64_t i = 0;; i++) {
        struct occl_request requests[8];
        enum occl_result result = OCCL_SUCCESS;
        for (int k = 0; k < 8; k++) {
            int n = me->rank % 2 ? 7 - k : k;
            size_t count = (size_t[]){1, 20, 700, 5000, 0, 40, 37000, 1}[n];
            struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
            float *b = (next(&random) & 1 ? private : (float *)zero_copy) + n * 37000;
            attr.tag = (uint32_t)n + 1;
            result = occl_all_reduce(b, b, count, OCCL_FLOAT32, OCCL_MAX, n % 3 ? me->comm : half,
                                     &attr, &requests[k]);
            if (result)
                break;
        }
        if (result == OCCL_SUCCESS)
            result = occl_wait_all(requests, 8);
        if (result == OCCL_SUCCESS && i % 8 == 0)
            result = occl_barrier(me->comm, NULL, NULL);
        if (result == OCCL_ERROR_PEER_FAILED)
            return 0;
        if (result != OCCL_SUCCESS) {
            fprintf(stderr, "victim rank %d: %d: %s\n", me->rank, (int)result, occl_last_error());
            return 3;
        }
    }
}

/* No survivor comes to its exit before the parent has sent its last signal. At exit a sanitizer's
 * leak check attaches to the process by ptrace and waits for the stop which the kernel makes of the
 * attachment: a SIGCONT in that moment discards the stop, and both then wait for ever. */
static int victim(struct world_rank *me) {
    const struct stage *stage = me->arg;
    int code = victim_ops(me);
    for (int ms = 0; ms < 20000 && !__atomic_load_n(&stage->quiet, __ATOMIC_SEQ_CST); ms++)
        usleep(1000);
    return code;
}

static void test_kill_and_stop_at_any_moment(void **state) {
    (void)state;
    struct scene scene;
    uint64_t random = first_seed();
    struct stage *stage = world_shared(sizeof *stage);
    open_scene(&scene);
    double until = world_now() + seconds();
    int rounds = 0;
    while (world_now() < until) {
        int size = 2 + (int)(next(&random) % 3), last = (int)(next(&random) % (uint64_t)size);
        pid_t pids[WORLD_RANKS_MAX];
        __atomic_store_n(&stage->joined, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&stage->quiet, 0, __ATOMIC_SEQ_CST);
        world_spawn(&scene.w, size, victim, stage, pids);
        /* Who never came is not missed by anybody: without a limit its peers wait for it. */
        while (__atomic_load_n(&stage->joined, __ATOMIC_SEQ_CST) < size)
            usleep(500);
        usleep((useconds_t)(next(&random) % 60000));
        for (int k = (int)(next(&random) % 4); k > 0; k--) {
            pid_t pid = pids[next(&random) % (uint64_t)size];
            (void)kill(pid, SIGSTOP);
            usleep((useconds_t)(next(&random) % 20000));
            if (next(&random) % 3)
                (void)kill(pid, SIGCONT);
        }
        (void)kill(pids[last], SIGKILL);
        usleep((useconds_t)(next(&random) % 2000));
        for (int r = 0; r < size; r++)
            (void)kill(pids[r], SIGCONT);
        __atomic_store_n(&stage->quiet, 1, __ATOMIC_SEQ_CST);
        for (int r = 0; r < size; r++) {
            int status = world_wait(pids[r], 10);
            if (r != last && status != 0) {
                fprintf(stderr, "round %d: rank %d of %d ended with 0x%x\n", rounds, r, size,
                        (unsigned)status);
                assert_int_equal(status, 0);
            }
        }
        rounds++;
    }
    printf("    %d rounds\n", rounds);
    close_scene(&scene);
}

/* ---- clients of raw messages ---- */

struct enemy {
    uint64_t random;
    const char *socket;
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

static bool post(struct enemy *e, void *message, uint32_t bytes, uint32_t type) {
    struct occl_detail detail;
    occl_msg_init(message, type, type == OCCL_MSG_DOORBELL ? 0 : ++e->request);
    return occl_fd_send(e->fd, message, bytes, NULL, 0, false, &detail) == OCCL_OK;
}

/* The answer to the last request into buffer; false when none comes. */
static bool answer(struct enemy *e, void *buffer, int fds[OCCL_MESSAGE_FDS_MAX]) {
    struct timeval limit = {2, 0};
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

static int connect_enemy(const char *path) {
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

static void drop(struct enemy *e) {
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

static bool get_regions(struct enemy *e, char *buffer) {
    int fds[OCCL_MESSAGE_FDS_MAX];
    for (int i = 0; i < 4; i++) {
        struct occl_msg_region_alloc alloc;
        memset(&alloc, 0, sizeof alloc);
        alloc.bytes = 4096u << (next(&e->random) % 8);
        if (!post(e, &alloc, sizeof alloc, OCCL_MSG_REGION_ALLOC) || !answer(e, buffer, fds))
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

static bool get_comm(struct enemy *e, char *buffer) {
    int fds[OCCL_MESSAGE_FDS_MAX];
    struct occl_msg_comm_create create;
    struct occl_unique_id id;
    struct occl_detail detail;
    memset(&create, 0, sizeof create);
    (void)occl_get_unique_id(&id);
    memcpy(create.unique_id.bytes, id.bytes, sizeof id.bytes);
    create.ranks = 1 + (uint32_t)(next(&e->random) % 3);
    create.priority = 255;
    for (uint32_t rank = 0; rank < create.ranks; rank++) {
        create.rank = rank;
        occl_msg_init(&create.h, OCCL_MSG_COMM_CREATE, ++e->request);
        if (occl_fd_send(e->fd, &create, sizeof create, NULL, 0, true, &detail))
            return false;
    }
    if (!answer(e, buffer, fds)) /* of the last rank */
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

static bool attach_enemy(struct enemy *e) {
    char buffer[OCCL_MESSAGE_BYTES_MAX];
    int fds[OCCL_MESSAGE_FDS_MAX];
    struct occl_msg_hello hello;
    memset(&hello, 0, sizeof hello);
    e->fd = connect_enemy(e->socket);
    if (e->fd < 0)
        return false;
    hello.abi_min = OCCL_ABI_VERSION_MIN;
    hello.abi_max = OCCL_ABI_VERSION;
    hello.role = OCCL_ROLE_RANK;
    hello.rank_hint = -1;
    hello.own_pid = (uint32_t)getpid();
    (void)snprintf(hello.job, sizeof hello.job, "enemy");
    if (!post(e, &hello, sizeof hello, OCCL_MSG_HELLO) || !answer(e, buffer, fds))
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
    return get_regions(e, buffer) && get_comm(e, buffer);
}

static void scribble(struct enemy *e, char *base, uint64_t bytes, uint64_t within) {
    if (!base)
        return;
    for (int i = 0; i < 64; i++) {
        uint64_t x = next(&e->random), at = next(&e->random) % (within < bytes ? within : bytes);
        uint64_t value = x & 3 ? next(&e->random) & 7 : next(&e->random);
        if (at + 8 <= bytes)
            memcpy(base + at, &value, 1u << (x >> 2 & 3));
    }
}

static struct occl_buffer_ref some_buffer(struct enemy *e, uint64_t bytes) {
    uint64_t x = next(&e->random);
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

static void some_sqe(struct enemy *e, struct occl_sqe *s) {
    uint64_t x = next(&e->random);
    memset(s, 0, sizeof *s);
    s->verb = (uint8_t)(x % 128 ? 1 + x % 3 : x >> 8);
    s->priority = x >> 16 & 3 ? 255 : (uint8_t)(x >> 20);
    s->slot = (uint16_t)(x >> 24 & 127);
    s->comm = x >> 32 & 7 ? e->comm_number - (uint32_t)(x >> 35 & 1) : (uint32_t)(x >> 40);
    s->key.peers = x >> 36 & 3 ? OCCL_PEERS_ALL : (uint32_t)(x >> 40 & 3) << 16 | (x >> 44 & 3);
    s->key.tag = (uint32_t)(x >> 46 & 3);
    s->key.instance = (uint32_t)(x >> 48 & 7);
    s->signature.kind = (uint8_t)(1 + (x >> 50) % 6);
    s->signature.dtype = (uint8_t)(x >> 53 & 15);
    s->signature.redop = (uint8_t)(x >> 57 & 7);
    s->signature.count = next(&e->random) >> (next(&e->random) % 64);
    s->signature.root = (uint32_t)(x >> 60 & 3);
    s->src = some_buffer(e, s->signature.count * 4);
    s->dst = some_buffer(e, s->signature.count * 4);
    s->user_data = next(&e->random) & 31;
    s->deadline_ns = x & 64 ? next(&e->random) >> 20 : 0;
    if ((next(&e->random) & 15) == 0)
        scribble(e, (char *)s, sizeof *s, sizeof *s);
}

static void submit(struct enemy *e) {
    struct occl_msg_plain bell;
    for (uint64_t n = 1 + next(&e->random) % 40; n > 0; n--)
        some_sqe(e, &e->ring[e->tail++ & (e->entries - 1)]);
    occl_publish32(&e->page->sq_tail.value, e->tail);
    memset(&bell, 0, sizeof bell);
    (void)post(e, &bell, sizeof bell, OCCL_MSG_DOORBELL);
}

/* A record that looks decided and complete, with buffers of our choice, and a call for lanes. */
static void forge_record(struct enemy *e) {
    struct occl_records m;
    if (!e->comm || occl_records_open(e->comm, e->comm_bytes, &m) != OCCL_OK)
        return;
    struct occl_sqe s;
    some_sqe(e, &s);
    s.key.peers = OCCL_PEERS_ALL;
    struct occl_place place = occl_place_of(s.key, m.records);
    struct occl_record *rec = occl_record_at(&m, place.slot);
    for (uint32_t i = 0; i < m.ranks; i++) {
        struct occl_line *line = occl_line_at(rec, i);
        occl_line_fill(line, s.key, &s.signature);
        line->u.ref.src = some_buffer(e, s.signature.count * 4);
        line->u.ref.dst = some_buffer(e, s.signature.count * 4);
        occl_publish32(&line->ready, 1);
    }
    occl_note32(&rec->arrived, m.ranks);
    occl_note32(&rec->strands_next, (uint32_t)(next(&e->random) & 1));
    occl_publish32(&rec->state, OCCL_REC_LOCAL);
    occl_publish64(&rec->word, OCCL_WORD_CLAIMED | place.print);
    s.verb = OCCL_SQE_EXECUTE;
    s.slot = (uint16_t)place.slot;
    s.comm = e->comm_number;
    s.src = s.dst = (struct occl_buffer_ref){0, 0, 0};
    e->ring[e->tail++ & (e->entries - 1)] = s;
    occl_publish32(&e->page->sq_tail.value, e->tail);
    struct occl_msg_plain bell;
    memset(&bell, 0, sizeof bell);
    (void)post(e, &bell, sizeof bell, OCCL_MSG_DOORBELL);
}

static void punch(struct enemy *e) {
    int all[8], count = 0;
    for (int i = 0; i < e->region_count; i++)
        all[count++] = e->regions[i].fd;
    all[count++] = e->page_fd;
    all[count++] = e->comm_fd;
    all[count++] = e->job_fd;
    int fd = all[next(&e->random) % (uint64_t)count];
    switch (next(&e->random) % 4) {
    case 0:
        (void)!ftruncate(fd, (off_t)(next(&e->random) % 8192));
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

static void random_message(struct enemy *e) {
    char message[OCCL_MESSAGE_BYTES_MAX];
    struct occl_detail detail;
    uint32_t type = 1 + (uint32_t)(next(&e->random) % 19), bytes = occl_msg_bytes(type);
    memset(message, 0, sizeof message);
    for (uint32_t i = 0; i < sizeof message && next(&e->random) % 4; i += 8) {
        uint64_t value = next(&e->random) & (next(&e->random) & 1 ? 7 : ~0ull);
        memcpy(message + i, &value, 8);
    }
    occl_msg_init((void *)message, type, next(&e->random) % 3);
    if (bytes == 0 || next(&e->random) % 8 == 0)
        bytes = (uint32_t)(next(&e->random) % sizeof message);
    if (next(&e->random) % 8 == 0)
        scribble(e, message, 32, 24);
    int fds[2] = {0, e->fd};
    (void)!occl_fd_send(e->fd, message, bytes, fds, (uint32_t)(next(&e->random) % 3), false,
                        &detail);
}

static void flood(struct enemy *e) {
    struct occl_msg_admin admin;
    struct occl_msg_region_alloc alloc;
    struct occl_msg_members members;
    for (int i = 0; i < 300; i++) { /* and never reads an answer */
        memset(&admin, 0, sizeof admin);
        memset(&alloc, 0, sizeof alloc);
        memset(&members, 0, sizeof members);
        (void)snprintf(admin.text, sizeof admin.text, "{\"verb\": \"%s\"}",
                       (const char *[]){"status", "why", "ops", "jobs"}[i % 4]);
        alloc.bytes = 1ull << (12 + next(&e->random) % 24);
        members.comm = e->comm_number;
        bool ok = i % 3 == 0   ? post(e, &admin, sizeof admin, OCCL_MSG_ADMIN)
                  : i % 3 == 1 ? post(e, &alloc, sizeof alloc, OCCL_MSG_REGION_ALLOC)
                               : post(e, &members, sizeof members, OCCL_MSG_MEMBERS);
        if (!ok)
            usleep(200);
    }
}

static void half_handshakes(struct enemy *e) {
    int fds[60];
    for (int i = 0; i < 60; i++) {
        fds[i] = connect_enemy(e->socket);
        if (fds[i] >= 0 && i % 3 == 0)
            (void)!send(fds[i], e, next(&e->random) % 200, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (fds[i] >= 0 && i % 3 == 1)
            (void)shutdown(fds[i], SHUT_WR);
    }
    usleep(2000);
    for (int i = 0; i < 60; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

static void requeue(struct enemy *e) {
    static uint32_t mine;
    (void)syscall(SYS_futex, &e->page->cq_bell, FUTEX_REQUEUE, 64, 64, &mine, 0);
    (void)syscall(SYS_futex, &e->page->daemon_sleeping, FUTEX_REQUEUE, 64, 64, &mine, 0);
    occl_note32(&e->page->cq_sleepers, 1u << (next(&e->random) % 32));
}

static void attack(struct enemy *e) {
    switch (next(&e->random) % 12) {
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
        if (next(&e->random) % 8 == 0)
            flood(e);
        break;
    case 6:
        if (next(&e->random) % 8 == 0)
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
    struct enemy e;
    uint64_t sessions = 0;
    become_enemy();
    (void)signal(SIGPIPE, SIG_IGN);
    memset(&e, 0, sizeof e);
    e.random = seed;
    e.socket = socket_path;
    e.fd = e.page_fd = e.job_fd = e.comm_fd = -1;
    while (world_now() < until) {
        if (attach_enemy(&e))
            for (uint64_t n = next(&e.random) % 60; n > 0 && world_now() < until; n--) {
                attack(&e);
                if (next(&e.random) % 4 == 0)
                    usleep((useconds_t)(next(&e.random) % 800));
            }
        sessions += e.page != NULL;
        drop(&e);
    }
    _exit(sessions > 3 ? 0 : 97);
}

static void test_enemies_of_raw_messages(void **state) {
    (void)state;
    struct scene scene;
    pid_t enemies[3];
    open_scene(&scene);
    double until = world_now() + seconds();
    for (int i = 0; i < 3; i++) {
        fflush(stdout);
        enemies[i] = fork();
        if (enemies[i] == 0)
            enemy_main(scene.w.socket, first_seed() * 100 + (uint64_t)i, until);
    }
    for (int i = 0; i < 3; i++) {
        int status = world_wait(enemies[i], seconds() + 10);
        if (status != 0)
            fprintf(stderr, "enemy %d ended with 0x%x\n", i, (unsigned)status);
        assert_int_equal(status, 0);
    }
    close_scene(&scene);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_and_stop_at_any_moment),
        cmocka_unit_test(test_enemies_of_raw_messages),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
