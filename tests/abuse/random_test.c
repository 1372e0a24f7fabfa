/* SPDX-License-Identifier: Apache-2.0 */
/* Everything at once, in orders that a seed decides: several threads a rank, several communicators,
 * all kinds, types and operators, blocking, grouped, asynchronous, persistent and watched ops, zero
 * to some MiB, zero-copy and private memory chosen by each rank for itself. Every result is
 * compared with a naive reference. ABUSE_SEEDS and ABUSE_SEED in the environment run more of it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/client/world.h"

#define THREADS 3 /* 0: blocking calls in one order; the others: any order */
#define STREAMS 5 /* tags of a thread */
#define OPS 24    /* of a thread in one round */
#define ROUNDS 3
#define COMMS 4
#define ARENA (96u << 20)

struct comm_view {
    struct occl_comm comm;
    int rank, size;
    int world_of[WORLD_RANKS_MAX]; /* member -> world rank */
};

enum kind { ALL_REDUCE, BROADCAST, BARRIER, SEND_RECV };

struct plan {
    int comm, tag;
    enum kind kind;
    enum occl_type type;
    enum occl_redop op;
    int root, peer;
    size_t count;
    uint64_t salt;
};

struct run {
    const struct plan *plan;
    char *send, *recv;
    size_t bytes;
    struct occl_request request;
    int role; /* 0: not a member, 1: sends (or root), 2: receives, 3: both */
    bool done, persistent, has_callback, in_place;
    int called; /* by the callback */
};

struct job {
    struct world_rank *me;
    struct comm_view *views;
    int thread;
    uint64_t seed;
    uint64_t random;
    int failed;
    char *arena; /* zero-copy */
};

static uint64_t next(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static const enum occl_type types[] = {OCCL_INT32,   OCCL_INT64,   OCCL_FLOAT16,
                                       OCCL_FLOAT32, OCCL_FLOAT64, OCCL_BFLOAT16};

static size_t width(enum occl_type type) {
    return type == OCCL_INT64 || type == OCCL_FLOAT64      ? 8
           : type == OCCL_FLOAT16 || type == OCCL_BFLOAT16 ? 2
                                                           : 4;
}

static int value_of(uint64_t salt, int rank, size_t i) {
    uint64_t x = salt + (uint64_t)rank * 0x9e3779b97f4a7c15ull + i * 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    return (int)(x % 16) - 5;
}

static uint16_t bfloat(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Of zero and of numbers between 2^-14 and 65504. */
static uint16_t half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest == 0)
        return (uint16_t)sign;
    rest -= 112u << 23;
    return (uint16_t)(sign | (rest + 0xfff + (rest >> 13 & 1)) >> 13);
}

static void store(enum occl_type type, char *to, size_t i, double value) {
    int32_t i32 = (int32_t)value;
    int64_t i64 = (int64_t)value;
    float f = (float)value;
    uint16_t h = half(f);
    uint16_t b = bfloat(f);
    switch (type) {
    case OCCL_INT32:
        memcpy(to + i * 4, &i32, 4);
        break;
    case OCCL_INT64:
        memcpy(to + i * 8, &i64, 8);
        break;
    case OCCL_FLOAT16:
        memcpy(to + i * 2, &h, 2);
        break;
    case OCCL_BFLOAT16:
        memcpy(to + i * 2, &b, 2);
        break;
    case OCCL_FLOAT32:
        memcpy(to + i * 4, &f, 4);
        break;
    default:
        memcpy(to + i * 8, &value, 8);
    }
}

static double expected(const struct run *r, const struct comm_view *v, size_t i) {
    const struct plan *p = r->plan;
    if (p->kind != ALL_REDUCE)
        return value_of(p->salt, v->world_of[p->root], i);
    double acc = 0;
    for (int m = 0; m < v->size; m++) {
        double x = value_of(p->salt, v->world_of[m], i);
        if (m == 0)
            acc = x;
        else if (p->op == OCCL_MAX)
            acc = x > acc ? x : acc;
        else if (p->op == OCCL_MIN)
            acc = x < acc ? x : acc;
        else
            acc += x;
    }
    if (p->op != OCCL_AVG)
        return acc;
    if (p->type == OCCL_INT32 || p->type == OCCL_INT64)
        return (double)((int)acc / v->size);
    return p->type == OCCL_FLOAT64 ? acc / v->size : (double)((float)acc / (float)v->size);
}

static void make_plan(uint64_t *shared, int thread, const struct comm_view *views, int comm,
                      struct plan *p) {
    uint64_t r = next(shared);
    uint64_t s = next(shared);
    (void)views;
    p->comm = comm;
    p->tag = 1 + thread * 100 + (int)(r % STREAMS);
    p->kind = (enum kind)(r >> 8 & 15);
    p->kind = p->kind < 8    ? ALL_REDUCE
              : p->kind < 12 ? BROADCAST
              : p->kind < 15 ? SEND_RECV
                             : BARRIER;
    p->type = types[(r >> 16) % 6];
    p->op = (enum occl_redop[]){OCCL_SUM, OCCL_MAX, OCCL_MIN, OCCL_AVG}[(r >> 24) % 4];
    p->root = (int)(r >> 32 & 0xff);
    p->peer = (int)(r >> 40 & 0xff);
    p->salt = s;
    switch (s % 16) {
    case 0:
        p->count = 0;
        break;
    case 1:
        p->count = 1 + (s >> 8) % (1u << 20);
        break;
    case 2:
    case 3:
        p->count = 1 + (s >> 8) % (1u << 17);
        break;
    case 4:
    case 5:
    case 6:
        p->count = 1 + (s >> 8) % 4000;
        break;
    case 7:
        p->count = 4096 / width(p->type) + (s >> 8) % 3 - 1;
        break;
    case 8:
        p->count = 128 / width(p->type) + (s >> 8) % 3 - 1;
        break;
    case 9:
        p->count = 32 / width(p->type) + (s >> 8) % 3 - 1;
        break;
    default:
        p->count = 1 + (s >> 8) % 300;
    }
}

static char *take(char **arena, char *end, size_t bytes, uint64_t random) {
    size_t want = ((bytes + 63) & ~(size_t)63) + 64;
    if ((random & 1) && (size_t)(end - *arena) > want) {
        char *p = *arena + (random >> 1 & 7) * 8; /* now and then not on a cache line */
        *arena += want;
        return p;
    }
    return NULL;
}

/* Buffers of one op; private ones come from malloc and are freed with `owned`. */
static void prepare(struct job *j, struct run *r, const struct plan *p, char **arena, char *end,
                    char **owned, int *owned_count) {
    const struct comm_view *v = &j->views[p->comm];
    memset(r, 0, sizeof *r);
    r->plan = p;
    r->bytes = p->count * width(p->type);
    r->role = 3;
    if (p->kind == SEND_RECV)
        r->role = (v->rank == p->root ? 1 : 0) | (v->rank == p->peer ? 2 : 0);
    if (p->kind == BARRIER)
        r->bytes = 0;
    uint64_t x = next(&j->random);
    r->in_place = (x >> 20 & 3) == 0 && p->kind != SEND_RECV;
    r->send = take(&arena[0], end, r->bytes, x);
    if (!r->send)
        owned[(*owned_count)++] = r->send = malloc(r->bytes + 1);
    r->recv = r->in_place ? r->send : take(&arena[0], end, r->bytes, x >> 10);
    if (!r->recv)
        owned[(*owned_count)++] = r->recv = malloc(r->bytes + 1);
    r->persistent = (x >> 24 & 7) == 0;
    r->has_callback = (x >> 28 & 7) == 0;
}

static void fill_buffers(struct job *j, struct run *r) {
    const struct comm_view *v = &j->views[r->plan->comm];
    memset(r->recv, 0x5a, r->bytes);
    size_t count = r->plan->kind == BARRIER ? 0 : r->plan->count;
    for (size_t i = 0; i < count; i++)
        store(r->plan->type, r->send, i, value_of(r->plan->salt, v->world_of[v->rank], i));
}

static int check(struct job *j, struct run *r) {
    const struct plan *p = r->plan;
    const struct comm_view *v = &j->views[p->comm];
    char want[8];
    size_t w = width(p->type);
    if (p->kind == BARRIER || !(r->role & 2))
        return 0;
    for (size_t i = 0; i < p->count; i++) {
        store(p->type, want, 0, expected(r, v, i));
        if (memcmp(want, r->recv + i * w, w) == 0)
            continue;
        fprintf(stderr,
                "rank %d thread %d seed %llu: kind %d type %d op %d count %zu comm %d tag %d: "
                "element %zu is wrong (root %d, %s%s)\n",
                j->me->rank, j->thread, (unsigned long long)j->seed, p->kind, p->type, p->op,
                p->count, p->comm, p->tag, i, p->root, r->in_place ? "in place" : "apart",
                r->persistent ? ", persistent" : "");
        return 1;
    }
    return 0;
}

static void on_done(enum occl_result result, void *arg) {
    struct run *r = arg;
    __atomic_add_fetch(&r->called, result == OCCL_SUCCESS ? 1 : 100, __ATOMIC_SEQ_CST);
}

static enum occl_result issue(struct job *j, struct run *r, bool receives,
                              struct occl_request *out) {
    const struct plan *p = r->plan;
    struct comm_view *v = &j->views[p->comm];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = (uint32_t)p->tag;
    if (r->has_callback && out) {
        attr.callback = on_done;
        attr.callback_arg = r;
    }
    bool keep = r->persistent && out;
    switch (p->kind) {
    case ALL_REDUCE:
        return keep ? occl_all_reduce_init(r->send, r->recv, p->count, p->type, p->op, v->comm,
                                           &attr, out)
                    : occl_all_reduce(r->send, r->recv, p->count, p->type, p->op, v->comm, &attr,
                                      out);
    case BROADCAST:
        return keep ? occl_broadcast_init(r->send, r->recv, p->count, p->type, p->root, v->comm,
                                          &attr, out)
                    : occl_broadcast(r->send, r->recv, p->count, p->type, p->root, v->comm, &attr,
                                     out);
    case BARRIER:
        return keep ? occl_barrier_init(v->comm, &attr, out) : occl_barrier(v->comm, &attr, out);
    default:
        if (receives)
            return keep ? occl_recv_init(r->recv, p->count, p->type, p->root, v->comm, &attr, out)
                        : occl_recv(r->recv, p->count, p->type, p->root, v->comm, &attr, out);
        return keep ? occl_send_init(r->send, p->count, p->type, p->peer, v->comm, &attr, out)
                    : occl_send(r->send, p->count, p->type, p->peer, v->comm, &attr, out);
    }
}

static int bad(struct job *j, const char *what, enum occl_result result) {
    fprintf(stderr, "rank %d thread %d seed %llu: %s gave %d: %s\n", j->me->rank, j->thread,
            (unsigned long long)j->seed, what, (int)result, occl_last_error());
    return 1;
}

/* One order for all ranks, so blocking is allowed; now and then a group. */
static int in_order(struct job *j, struct run *runs, int count) {
    bool grouped = false;
    for (int i = 0; i < count; i++) {
        struct run *r = &runs[i];
        enum occl_result result = OCCL_SUCCESS;
        if (!grouped && next(&j->random) % 4 == 0)
            grouped = occl_group_start() == OCCL_SUCCESS;
        if (r->role == 3 && r->plan->kind == SEND_RECV) { /* to itself: the send must not block */
            struct occl_request request;
            r->persistent = r->has_callback = false;
            result = issue(j, r, false, &request);
            if (result == OCCL_SUCCESS && !grouped)
                result = issue(j, r, true, NULL);
            else if (result == OCCL_SUCCESS) {
                struct occl_request second;
                result = issue(j, r, true, &second);
                if (result == OCCL_SUCCESS)
                    result = occl_wait(second);
            }
            if (result == OCCL_SUCCESS)
                result = occl_wait(request);
        } else if (r->role) {
            result = issue(j, r, r->role == 2, NULL);
        }
        if (result != OCCL_SUCCESS)
            return bad(j, "blocking call", result);
        if (grouped && (next(&j->random) % 4 == 0 || i + 1 == count)) {
            grouped = false;
            result = occl_group_end();
            if (result != OCCL_SUCCESS)
                return bad(j, "group_end", result);
        }
    }
    return 0;
}

struct pending {
    struct run *run;
    struct occl_request request;
};

static int collect(struct job *j, struct pending *list, int count) {
    int left = count;
    while (left > 0) {
        struct occl_request requests[4 * OPS];
        int at = (int)(next(&j->random) % (uint64_t)left), done = 1, index = at;
        enum occl_result result = OCCL_SUCCESS;
        for (int i = 0; i < left; i++)
            requests[i] = list[i].request;
        switch (next(&j->random) % 5) {
        case 0:
            result = occl_wait_any(requests, left, -1, &index);
            break;
        case 1:
            result = occl_wait_any(requests, left, (int64_t)(next(&j->random) % 100000), &index);
            done = index >= 0;
            break;
        case 2:
            result = occl_test(requests[at], &done);
            break;
        case 3:
            result = occl_wait_for(requests[at], (int64_t)(next(&j->random) % 200000));
            done = result != OCCL_IN_PROGRESS;
            break;
        default:
            result = occl_wait(requests[at]);
        }
        if (!done)
            continue;
        if (result != OCCL_SUCCESS || index < 0)
            return bad(j, "completion", result);
        if (list[index].run->has_callback &&
            __atomic_load_n(&list[index].run->called, __ATOMIC_SEQ_CST) == 0)
            return bad(j, "completed before its callback", OCCL_ERROR_INTERNAL);
        list[index] = list[--left];
    }
    return 0;
}

/* Streams in an order of this rank's own; the order inside a stream is kept. */
static int any_order(struct job *j, struct run *runs, int count) {
    struct pending list[4 * OPS], kept[4 * OPS];
    bool used[OPS] = {false};
    int pending = 0, kept_count = 0;
    for (int n = 0; n < count; n++) {
        int pick = (int)(next(&j->random) % (uint64_t)count);
        while (used[pick])
            pick = (pick + 1) % count;
        /* The first one of that stream that is not submitted yet. */
        for (int i = 0; i < count; i++)
            if (!used[i] && runs[i].plan->tag == runs[pick].plan->tag &&
                runs[i].plan->comm == runs[pick].plan->comm) {
                pick = i;
                break;
            }
        used[pick] = true;
        struct run *r = &runs[pick];
        for (int role = 1; role <= 2; role++) {
            struct occl_request request;
            bool collective = r->plan->kind != SEND_RECV;
            if ((collective && role == 2) || !(r->role & role))
                continue;
            enum occl_result result = issue(j, r, role == 2, &request);
            if (result == OCCL_SUCCESS && r->persistent) {
                result = occl_start(request);
                kept[kept_count++] = (struct pending){r, request};
            }
            if (result != OCCL_SUCCESS)
                return bad(j, "submit", result);
            list[pending++] = (struct pending){r, request};
        }
    }
    if (collect(j, list, pending))
        return 1;
    for (int i = 0; i < kept_count; i++) {
        enum occl_result result = occl_request_free(kept[i].request);
        if (result != OCCL_SUCCESS)
            return bad(j, "request_free", result);
    }
    return 0;
}

static void *thread_main(void *arg) {
    struct job *j = arg;
    uint64_t shared = j->seed * 1000 + (uint64_t)j->thread;
    struct plan *plans = calloc(OPS, sizeof *plans);
    struct run *runs = calloc(OPS, sizeof *runs);
    for (int round = 0; round < ROUNDS && !j->failed; round++) {
        char *arena = j->arena, *owned[2 * OPS];
        int owned_count = 0;
        for (int i = 0; i < OPS; i++) {
            /* Members of one communicator know its ops, others take the same numbers. */
            make_plan(&shared, j->thread, j->views, (int)(next(&shared) % COMMS), &plans[i]);
            const struct comm_view *v = &j->views[plans[i].comm];
            plans[i].root %= v->size;
            plans[i].peer %= v->size;
            prepare(j, &runs[i], &plans[i], &arena, j->arena + ARENA / THREADS, owned,
                    &owned_count);
            fill_buffers(j, &runs[i]);
        }
        j->failed = j->thread == 0 ? in_order(j, runs, OPS) : any_order(j, runs, OPS);
        for (int i = 0; i < OPS && !j->failed; i++) {
            int calls = runs[i].called, roles = runs[i].role == 3 ? 1 : 1;
            if (runs[i].plan->kind == SEND_RECV && runs[i].role == 3)
                roles = 2;
            if (j->thread && runs[i].has_callback && runs[i].role && calls != roles)
                j->failed = bad(j, "callbacks", (enum occl_result)calls);
            j->failed |= check(j, &runs[i]);
        }
        for (int i = 0; i < owned_count; i++)
            free(owned[i]);
    }
    free(plans);
    free(runs);
    return NULL;
}

static int find_members(struct world_rank *me, struct comm_view *v, struct occl_comm comm) {
    int32_t *all = calloc(WORLD_RANKS_MAX, sizeof *all);
    v->comm = comm;
    WORLD_OK(occl_comm_rank(comm, &v->rank));
    WORLD_OK(occl_comm_size(comm, &v->size));
    all[v->rank] = me->rank;
    WORLD_OK(occl_all_reduce(all, all, (size_t)v->size, OCCL_INT32, OCCL_SUM, comm, NULL, NULL));
    memcpy(v->world_of, all, (size_t)v->size * sizeof *all);
    free(all);
    return 0;
}

static int random_rank(struct world_rank *me) {
    uint64_t seed = *(uint64_t *)me->arg;
    struct comm_view views[COMMS];
    struct occl_comm halves, reversed, copy;
    void *arena;
    WORLD_OK(occl_comm_split(me->comm, me->rank % 2, 0, NULL, &halves));
    WORLD_OK(occl_comm_split(me->comm, 0, -me->rank, NULL, &reversed));
    WORLD_OK(occl_comm_split(me->comm, 7, 1, NULL, &copy));
    if (find_members(me, &views[0], me->comm) || find_members(me, &views[1], halves) ||
        find_members(me, &views[2], reversed) || find_members(me, &views[3], copy))
        return 1;
    WORLD_CHECK(views[2].rank == me->size - 1 - me->rank);
    WORLD_OK(occl_mem_alloc(ARENA, &arena));
    pthread_t threads[THREADS];
    struct job jobs[THREADS];
    int failed = 0;
    for (int t = 0; t < THREADS; t++) {
        jobs[t] = (struct job){.me = me,
                               .views = views,
                               .thread = t,
                               .seed = seed,
                               .random = seed ^ (uint64_t)(me->rank * 64 + t + 1) << 32,
                               .arena = (char *)arena + (size_t)t * (ARENA / THREADS)};
        WORLD_CHECK(pthread_create(&threads[t], NULL, thread_main, &jobs[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++) {
        (void)pthread_join(threads[t], NULL);
        failed |= jobs[t].failed;
    }
    if (failed)
        return 1;
    WORLD_OK(occl_barrier(me->comm, NULL, NULL));
    WORLD_OK(occl_mem_free(arena));
    WORLD_OK(occl_comm_destroy(copy));
    return 0;
}

static int run_seeds(struct world *w, int seeds) {
    uint64_t first = getenv("ABUSE_SEED") ? strtoull(getenv("ABUSE_SEED"), NULL, 10) : 1;
    for (int i = 0; i < seeds; i++) {
        uint64_t seed = first + (uint64_t)i;
        int ranks = (int[]){2, 3, 4, 2, 5, 8}[seed % 6];
        int failed = world_run(w, ranks, random_rank, &seed, 60);
        if (failed) {
            fprintf(stderr, "seed %llu with %d ranks: %d ranks failed\n", (unsigned long long)seed,
                    ranks, failed);
            return failed;
        }
    }
    return 0;
}

static int seeds_or(int count) {
    return getenv("ABUSE_SEEDS") ? atoi(getenv("ABUSE_SEEDS")) : count;
}

static void test_random_programs(void **state) {
    struct world w = {0};
    (void)state;
    world_start(&w, NULL);
    assert_int_equal(run_seeds(&w, seeds_or(6)), 0);
    assert_int_equal(world_stop(&w), 0);
}

/* A process that has changed its user is not dumpable: nobody reads its memory, so private buffers
 * are copied through shared memory. */
static void test_random_programs_staged(void **state) {
    struct world w = {0};
    (void)state;
    if (getuid() != 0) {
        printf("SKIP test_random_programs_staged: needs to change the user\n");
        skip();
    }
    world_start(&w, NULL);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(setgid(60001) || setuid(60001) ? 98 : run_seeds(&w, seeds_or(3)));
    assert_int_equal(world_wait(pid, 300), 0);
    assert_int_equal(world_stop(&w), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_random_programs_staged),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
