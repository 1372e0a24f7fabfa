/* SPDX-License-Identifier: Apache-2.0 */
/* More than 31 and 32 bits of elements and of bytes (F03 and F04 of the reports from the field), in
 * every kind with buffers. Memory is untouched but for a few places, which hold numbers that depend
 * on them; two ranks, so that it stays near 8 GiB. Belongs to the full tier. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "tests/client/call.h"

#define GIB ((size_t)1 << 30)
#define PLACES 1000u

static struct world w;

static int setup(void **state) {
    (void)state;
    world_start(&w, NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return world_stop(&w) == 0 ? 0 : -1;
}

static bool has_memory(const char *name, size_t bytes) {
    size_t kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %zu", &kib) == 1)
            break;
    if (file)
        (void)fclose(file);
    if (kib >= bytes >> 10)
        return true;
    print_message("SKIP %s: %zu MiB of memory are available, %zu are needed\n", name, kib >> 10,
                  bytes >> 20);
    return false;
}

static char *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Place number k among `elements`: both ends, both sides of each power of two, random ones. */
static size_t place(size_t elements, uint32_t k) {
    static const size_t borders[] = {(size_t)1 << 28, (size_t)1 << 29, (size_t)1 << 30,
                                     (size_t)1 << 31, (size_t)1 << 32};
    if (k < 2)
        return k ? elements - 1 : 0;
    if (k < 12) {
        size_t at = borders[(k - 2) / 2] - (k % 2);
        return at < elements ? at : elements - 1;
    }
    uint64_t x = (uint64_t)k * 0x9e3779b97f4a7c15ull;
    return (size_t)((unsigned __int128)(x ^ x << 17) * elements >> 64);
}

struct huge {
    enum call_kind kind;
    enum occl_type type;
    size_t count;
};

static int64_t value(int rank, size_t index) {
    return (int64_t)(world_pattern((uint64_t)rank, index) % 50) + 1;
}
static void put(const struct huge *h, char *to, size_t index, int64_t v) {
    if (h->type == OCCL_INT8)
        to[index] = (char)v;
    else
        memcpy(to + index * 8, &v, 8);
}
static int64_t get(const struct huge *h, const char *from, size_t index) {
    int64_t v;
    if (h->type == OCCL_INT8)
        return (signed char)from[index];
    memcpy(&v, from + index * 8, 8);
    return v;
}

/* In place, since one buffer is enough. */
static int f03(struct world_rank *me) {
    const struct huge *h = me->arg;
    const struct call_traits *t = &call_traits[h->kind];
    size_t element = h->type == OCCL_INT8 ? 1 : 8, n = (size_t)me->size;
    size_t elements = h->count * (t->send_all || t->recv_all ? n : 1);
    size_t own = (size_t)me->rank * h->count;
    char *memory = map(elements * element);
    WORLD_CHECK(memory);
    bool gathers = t->recv_all && !t->send_all, scatters = t->send_all && !t->recv_all;
    for (uint32_t k = 0; k < PLACES; k++) {
        size_t at = place(h->count, k);
        for (size_t b = 0; b < (t->send_all ? n : 1); b++)
            put(h, memory, (gathers ? own : b * h->count) + at, value(me->rank, b * h->count + at));
    }
    struct call c = {.kind = h->kind,
                     .type = h->type,
                     .op = OCCL_SUM,
                     .count = h->count,
                     .send = memory + (gathers ? own * element : 0),
                     .recv = memory + (scatters ? own * element : 0)};
    double start = world_now();
    WORLD_OK(call_submit(&c, me->rank, me->size, me->comm, NULL, NULL));
    if (me->rank == 0)
        printf("%s of %zu elements of %zu bytes: %.2f s\n", t->name, h->count, element,
               world_now() - start);
    for (uint32_t k = 0; k < PLACES; k++) {
        size_t at = place(h->count, k);
        for (size_t b = 0; b < (t->recv_all ? n : 1); b++) {
            size_t from = gathers ? at : (size_t)me->rank * (t->send_all ? h->count : 0) + at;
            int64_t want = t->reduces ? value(0, from) + value(1, from) : value((int)b, from);
            size_t to = (scatters ? own : b * h->count) + at;
            if (get(h, memory, to) != want)
                fprintf(stderr, "rank %d: element %zu of block %zu is %lld, expected %lld\n",
                        me->rank, at, b, (long long)get(h, memory, to), (long long)want);
            WORLD_CHECK(get(h, memory, to) == want);
        }
    }
    (void)munmap(memory, elements * element);
    return 0;
}

static void test_F03_more_than_31_bits(void **state) {
    static const size_t counts[] = {((size_t)1 << 31) - 1, (size_t)1 << 31, ((size_t)1 << 31) + 7};
    static const enum call_kind kinds[] = {CALL_ALL_REDUCE, CALL_REDUCE_SCATTER, CALL_ALL_GATHER};
    (void)state;
    if (!has_memory("test_F03_more_than_31_bits", 10 * GIB))
        skip();
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 3; i++) {
            struct huge h = {kinds[k], OCCL_INT8, counts[i]};
            assert_int_equal(world_run(&w, 2, f03, &h, 120), 0);
        }
        struct huge wide = {kinds[k], OCCL_INT64, ((size_t)1 << 28) + 1};
        assert_int_equal(world_run(&w, 2, f03, &wide, 120), 0);
    }
}

/* The other kinds whose buffers can be in place on all ranks; the rooted ones are in F04's way. */
static void test_F03_more_than_31_bits_of_other_kinds(void **state) {
    static const enum call_kind kinds[] = {CALL_ALL_TO_ALL, CALL_REDUCE_SCATTER_V,
                                           CALL_ALL_GATHER_V, CALL_ALL_TO_ALL_V};
    (void)state;
    if (!has_memory("test_F03_more_than_31_bits_of_other_kinds", 10 * GIB))
        skip();
    for (int k = 0; k < 4; k++) {
        struct huge h = {kinds[k], OCCL_INT8, ((size_t)1 << 31) + 7};
        assert_int_equal(world_run(&w, 2, f03, &h, 120), 0);
    }
}

/* One split of 2^31 + 1 bytes beyond the 32nd bit of a 5 GiB buffer, the others tiny. */
#define F04_LONG (((size_t)1 << 31) + 1)
#define F04_AT (((size_t)1 << 32) + 4096)

static int f04(struct world_rank *me) {
    size_t give[2] = {3, 5}, give_at[2] = {0, 100}, get_counts[2] = {3, 5}, get_at[2] = {7, 50};
    char *send = map(F04_AT + F04_LONG), *recv = map(F04_AT + F04_LONG);
    WORLD_CHECK(send && recv);
    /* Rank 0 sends its long block to rank 1, from and to places past 2^32. */
    if (me->rank == 0) {
        give[1] = F04_LONG;
        give_at[1] = F04_AT;
        get_counts[1] = 3;
    } else {
        get_counts[0] = F04_LONG;
        get_at[0] = F04_AT;
    }
    memset(send + give_at[0], 'a' + me->rank, give[0]);
    if (me->rank == 0)
        for (uint32_t k = 0; k < PLACES; k++)
            send[F04_AT + place(F04_LONG, k)] = (char)value(0, place(F04_LONG, k));
    else
        memset(send + give_at[1], 'z', give[1]);
    WORLD_OK(occl_all_to_all_v(send, give, give_at, recv, get_counts, get_at, OCCL_INT8, me->comm,
                               NULL, NULL));
    if (me->rank == 1) {
        for (uint32_t k = 0; k < PLACES; k++)
            WORLD_CHECK(recv[F04_AT + place(F04_LONG, k)] == (char)value(0, place(F04_LONG, k)));
        WORLD_CHECK(memcmp(recv + get_at[1], "zzzzz", 5) == 0 && recv[get_at[1] + 5] == 0);
        WORLD_CHECK(recv[F04_AT - 1] == 0);
    } else {
        WORLD_CHECK(memcmp(recv + get_at[0], "aaa", 4) == 0);
        WORLD_CHECK(memcmp(recv + get_at[1], "bbb", 4) == 0);
    }
    /* What the splits say is compared in 64 bits: these differ by 2^32. */
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = 20000000000;
    size_t none[2] = {0, 0}, far[2] = {0, 0}, from[2] = {1, 0};
    far[1] = ((size_t)1 << 32) + 1;
    enum occl_result result = me->rank == 0 ? occl_all_to_all_v(send, far, NULL, recv, none, NULL,
                                                                OCCL_INT8, me->comm, &attr, NULL)
                                            : occl_all_to_all_v(send, none, NULL, recv, from, NULL,
                                                                OCCL_INT8, me->comm, &attr, NULL);
    WORLD_CHECK(result == OCCL_ERROR_MISMATCH);
    return 0;
}

static void test_F04_a_split_past_32_bits(void **state) {
    (void)state;
    if (!has_memory("test_F04_a_split_past_32_bits", 11 * GIB))
        skip();
    assert_int_equal(world_run(&w, 2, f04, NULL, 120), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_F03_more_than_31_bits),
        cmocka_unit_test(test_F03_more_than_31_bits_of_other_kinds),
        cmocka_unit_test(test_F04_a_split_past_32_bits),
    };
    return cmocka_run_group_tests_name("client_huge", tests, setup, teardown);
}
