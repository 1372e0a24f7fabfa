/* SPDX-License-Identifier: Apache-2.0 */
/* The table of instance counters against a plain list: what was put in is found, what was taken out
 * is not, and a walk comes by all counters of its buckets, also around the table's end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client_lib/tag_table.h"

#define NAMES 3000
#define PREFIXES (OCCL_TAG_BUCKETS / 2)

static uint64_t seed = 1;
static uint32_t noise(void) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33);
}

struct entry {
    uint64_t name, hash;
    bool there, seen;
};
static struct entry list[NAMES];
static struct client_tags tags;

static void add(struct entry *e) {
    if (e->there)
        return;
    if (tags.used * 2 >= tags.capacity)
        assert_int_equal(client_tag_table_resize(&tags, tags.capacity * 2), OCCL_OK);
    struct client_tag *slot = client_tag_find(&tags, e->name, e->hash);
    assert_int_equal(slot->name, 0);
    *slot = (struct client_tag){e->name, (uint32_t)(e - list)};
    tags.used++;
    e->there = true;
}

static void check(void) {
    uint32_t there = 0;
    for (uint32_t i = 0; i < NAMES; i++) {
        const struct client_tag *slot = client_tag_find(&tags, list[i].name, list[i].hash);
        assert_int_equal(slot->name, list[i].there ? list[i].name : 0);
        if (list[i].there)
            assert_int_equal(slot->next_instance, i);
        there += list[i].there;
    }
    assert_int_equal(tags.used, there);
}

static bool in_range(const struct entry *e, uint32_t first, uint32_t span) {
    return (uint32_t)(e->hash >> OCCL_TAG_BUCKET_SHIFT) - first < span;
}

/* Takes out each counter whose number this divides. */
static bool keeps(void *arg, uint64_t hash, const struct client_tag *tag) {
    struct entry *e = &list[tag->next_instance];
    assert_int_equal(e->hash, hash);
    assert_true(e->there);
    assert_false(e->seen && *(const uint32_t *)arg == UINT32_MAX); /* nothing moves */
    e->seen = true;
    e->there = (tag->next_instance + 1) % *(const uint32_t *)arg != 0;
    return e->there;
}

static void walk(uint32_t first, uint32_t span, uint32_t every) {
    bool before[NAMES];
    for (uint32_t i = 0; i < NAMES; i++) {
        before[i] = list[i].there;
        list[i].seen = false;
    }
    client_tag_table_walk(&tags, first, span, keeps, &every);
    for (uint32_t i = 0; i < NAMES; i++)
        assert_int_equal(list[i].seen, before[i] && in_range(&list[i], first, span));
}

static void table_is_as_good_as_a_list(void **state) {
    (void)state;
    for (uint32_t i = 0; i < NAMES; i++) {
        /* Some names differ in their direction alone: they have one home. */
        list[i].name = client_tag_name(i % 3 ? OCCL_PEERS_ALL : i << 16, i / 2, i % 6 == 3);
        list[i].hash = occl_tag_hash(i % 3 ? OCCL_PEERS_ALL : i << 16, i / 2);
        if (i % 3 == 2) { /* the name of a send and of its receive */
            list[i].name = client_tag_name(77, i, false);
            list[i].hash = occl_tag_hash(77, i);
            list[i - 1].name = client_tag_name(77, i, true);
            list[i - 1].hash = list[i].hash;
        }
    }
    assert_int_equal(client_tag_table_resize(&tags, CLIENT_TAGS_SLOTS_MIN), OCCL_OK);
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t more = noise() % (round % 50 ? 60 : NAMES);
        for (uint32_t i = 0; i < more; i++)
            add(&list[noise() % NAMES]);
        uint32_t span = OCCL_TAG_CELLS << noise() % (OCCL_TAG_LEVEL_MAX + 1);
        uint32_t first = noise() % (PREFIXES / span) * span;
        walk(first, span, UINT32_MAX);
        walk(first, span, 1 + noise() % 3);
        check();
        uint32_t capacity = tags.capacity;
        while (capacity > CLIENT_TAGS_SLOTS_MIN && capacity / 4 >= tags.used)
            capacity /= 2;
        if (round % 7 == 0)
            assert_int_equal(client_tag_table_resize(&tags, capacity), OCCL_OK);
    }
    walk(0, PREFIXES, 1);
    assert_int_equal(tags.used, 0);
    free(tags.slots);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_as_good_as_a_list),
    };
    return cmocka_run_group_tests_name("tag_table", tests, NULL, NULL);
}
