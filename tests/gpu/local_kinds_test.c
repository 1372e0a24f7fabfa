/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of every kind, executed in process: numbers of members, blocks that are smaller and larger
 * than a strand, some members in place, strands in the worst order; and bytes beyond each buffer
 * stay as they were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/local_program.h"

#define MEMBERS_MAX 9u
#define COUNT_MAX 20011u
#define ROOM (MEMBERS_MAX * COUNT_MAX + 1)
#define GUARD INT32_C(-1234567)

struct world {
    uint32_t kind, members, root;
    size_t count;
    uint32_t in_place_mask;
    int32_t *send[MEMBERS_MAX], *recv[MEMBERS_MAX]; /* rooms */
    const void *inputs[MEMBERS_MAX];
    void *outputs[MEMBERS_MAX];
};

static int32_t input(uint32_t member, size_t index) {
    return (int32_t)(member * 1000003u + index * 7u);
}

static const struct occl_kind_traits *traits_of(const struct world *w) {
    return occl_kind_traits(w->kind);
}

static size_t send_count(const struct world *w, uint32_t m) {
    return occl_kind_send_bytes(traits_of(w), w->root, m, w->members, w->count);
}
static size_t recv_count(const struct world *w, uint32_t m) {
    return occl_kind_recv_bytes(traits_of(w), w->root, m, w->members, w->count);
}

static int32_t sum_of(uint32_t members, size_t index) {
    int32_t sum = 0;
    for (uint32_t m = 0; m < members; m++)
        sum = (int32_t)((uint32_t)sum + (uint32_t)input(m, index));
    return sum;
}

static int32_t expected(const struct world *w, uint32_t m, size_t i) {
    uint32_t block = (uint32_t)(i / w->count);
    size_t inside = i % w->count;
    switch (w->kind) {
    case OCCL_OP_REDUCE_SCATTER:
        return sum_of(w->members, m * w->count + i);
    case OCCL_OP_SCAN:
        return sum_of(m + 1, i);
    case OCCL_OP_EXSCAN:
        return sum_of(m, i);
    case OCCL_OP_BROADCAST:
        return input(w->root, i);
    case OCCL_OP_SEND:
    case OCCL_OP_RECV:
        return input(0, i);
    case OCCL_OP_SCATTER:
        return input(w->root, m * w->count + i);
    case OCCL_OP_ALL_GATHER:
    case OCCL_OP_GATHER:
        return input(block, inside);
    case OCCL_OP_ALL_TO_ALL:
        return input(block, m * w->count + inside);
    default:
        return sum_of(w->members, i);
    }
}

/* Rooms are larger than buffers: an in-place buffer begins inside the other one. */
static void lay_out(struct world *w) {
    for (uint32_t m = 0; m < w->members; m++) {
        size_t sends = send_count(w, m), receives = recv_count(w, m);
        int64_t shift = occl_kind_in_place(traits_of(w), w->root, m, w->count);
        int32_t *send = w->send[m], *recv = w->recv[m];
        for (size_t i = 0; i < ROOM; i++)
            send[i] = recv[i] = GUARD;
        if ((w->in_place_mask >> m & 1) && sends && receives) {
            if (shift >= 0)
                send = recv + shift;
            else
                recv = send - shift;
        }
        for (size_t i = 0; i < sends; i++)
            send[i] = input(m, i);
        w->inputs[m] = sends ? send : NULL;
        bool none = receives == 0 || (w->kind == OCCL_OP_EXSCAN && m == 0);
        w->outputs[m] = none ? NULL : recv;
    }
}

static void check(const struct world *w) {
    for (uint32_t m = 0; m < w->members; m++) {
        const int32_t *recv = w->outputs[m], *send = w->inputs[m];
        size_t receives = recv_count(w, m);
        for (size_t i = 0; i < receives && recv; i++)
            if (recv[i] != expected(w, m, i))
                fail_msg("%s of %u members, count %zu, in place %x: member %u element %zu is %d, "
                         "expected %d",
                         traits_of(w)->name, w->members, w->count, w->in_place_mask, m, i, recv[i],
                         expected(w, m, i));
        bool apart = !(w->in_place_mask >> m & 1) || !recv || !send;
        if (apart && recv)
            assert_int_equal(recv[receives], GUARD);
        for (size_t i = 0; apart && send && i < send_count(w, m); i++)
            assert_int_equal(send[i], input(m, i));
    }
}

static void run(struct world *w) {
    struct occl_signature sig = {.kind = (uint8_t)w->kind,
                                 .dtype = OCCL_DT_INT32,
                                 .redop = OCCL_RO_SUM,
                                 .root = w->root,
                                 .count = w->count};
    struct occl_local_buffers buffers = {w->inputs, w->outputs, NULL, 0};
    struct occl_local_plan plan;
    const struct occl_movers *movers = occl_movers_select(0);
    bool in_place = false;
    lay_out(w);
    for (uint32_t m = 0; m < w->members; m++)
        in_place = in_place || (w->inputs[m] && w->inputs[m] == w->outputs[m]);
    assert_int_equal(occl_local_plan_make(&sig, w->members, in_place, NULL, &plan), OCCL_OK);
    for (uint32_t i = plan.strand_count; i-- > 0;)
        assert_int_equal(occl_local_strand_run(&plan, i, movers, &buffers), OCCL_OK);
    check(w);
}

static void every_kind_gives_what_it_promises(void **state) {
    static const size_t counts[] = {1, 2, 15, 16, 17, 1000, 4097, COUNT_MAX};
    struct world w = {0};
    (void)state;
    for (uint32_t m = 0; m < MEMBERS_MAX; m++) {
        w.send[m] = malloc(ROOM * sizeof(int32_t));
        w.recv[m] = malloc(ROOM * sizeof(int32_t));
    }
    for (w.kind = 1; w.kind < OCCL_OP_LIMIT; w.kind++) {
        if (!(traits_of(&w)->flags & OCCL_KIND_TYPED) || traits_of(&w)->flags & OCCL_KIND_VECTOR)
            continue;
        bool pair = traits_of(&w)->flags & OCCL_KIND_PAIR;
        for (uint32_t members = pair ? 2 : 1; members <= (pair ? 2 : MEMBERS_MAX); members++)
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                w.members = members;
                w.count = counts[c];
                w.root = pair ? 1 : (members + (uint32_t)c) % members;
                for (w.in_place_mask = 0; w.in_place_mask < 4; w.in_place_mask++) {
                    static const uint32_t masks[] = {0, 0x1ff, 0x0aa, 0x001};
                    uint32_t which = w.in_place_mask;
                    w.in_place_mask = pair ? 0 : masks[which];
                    run(&w);
                    w.in_place_mask = which;
                }
            }
    }
    for (uint32_t m = 0; m < MEMBERS_MAX; m++) {
        free(w.send[m]);
        free(w.recv[m]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_gives_what_it_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
