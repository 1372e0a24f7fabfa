/* SPDX-License-Identifier: Apache-2.0 */
/* The scribe: whole texts in order; whoever hands over never waits; what finds no room is counted;
 * an end that does not wait for ever. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/scribe.h"
#include "shm_ipc/status.h"

#define ROOM 4096
#define SECOND_NS 1000000000ull

struct sink {
    pthread_mutex_t gate; /* held by the test: the write stands still */
    char text[1 << 20];
    size_t bytes;
    uint64_t lost;
    uint32_t writes;
};

static void swallow(void *self, const char *text, size_t bytes, uint64_t lost) {
    struct sink *sink = self;
    __atomic_add_fetch(&sink->writes, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&sink->gate);
    assert_true(bytes > 0 && bytes <= ROOM && sink->bytes + bytes <= sizeof sink->text);
    memcpy(sink->text + sink->bytes, text, bytes);
    sink->bytes += bytes;
    sink->lost += lost;
    pthread_mutex_unlock(&sink->gate);
}

static struct sink *sink_new(void) {
    struct sink *sink = calloc(1, sizeof *sink);
    assert_non_null(sink);
    pthread_mutex_init(&sink->gate, NULL);
    return sink;
}

static struct occl_scribe *scribe_new(struct sink *sink) {
    struct occl_scribe *scribe;
    assert_int_equal(occl_scribe_create("test", ROOM, swallow, sink, &scribe), OCCL_OK);
    return scribe;
}

static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct author {
    pthread_t thread;
    struct occl_scribe *scribe;
    int number, accepted;
};

static void *author_main(void *argument) {
    struct author *author = argument;
    char text[64];
    for (int i = 0; i < 2000; i++) {
        int length = snprintf(text, sizeof text, "%d %d\n", author->number, author->accepted);
        author->accepted += occl_scribe_hand(author->scribe, text, (size_t)length);
        if (i % 50 == 0)
            (void)usleep(100);
    }
    return NULL;
}

static void texts_of_several_threads_stay_whole_and_in_order(void **state) {
    (void)state;
    struct sink *sink = sink_new();
    struct author authors[3];
    int next[3] = {0, 0, 0}, total = 0;
    struct occl_scribe *scribe = scribe_new(sink);
    for (int i = 0; i < 3; i++) {
        authors[i] = (struct author){.scribe = scribe, .number = i};
        assert_int_equal(pthread_create(&authors[i].thread, NULL, author_main, &authors[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(authors[i].thread, NULL);
    assert_true(occl_scribe_destroy(scribe, 10 * SECOND_NS));
    char *rest = sink->text, *line;
    while ((line = strsep(&rest, "\n")) != NULL && *line) {
        int number, index;
        assert_int_equal(sscanf(line, "%d %d", &number, &index), 2);
        assert_in_range(number, 0, 2);
        assert_int_equal(index, next[number]);
        next[number]++;
        total++;
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(next[i], authors[i].accepted);
    assert_true(total > 0);
    free(sink);
}

static void what_finds_no_room_is_counted(void **state) {
    (void)state;
    struct sink *sink = sink_new();
    struct occl_scribe *scribe = scribe_new(sink);
    char text[100];
    uint64_t accepted = 0, refused = 0;
    memset(text, 'x', sizeof text);
    pthread_mutex_lock(&sink->gate);
    assert_true(occl_scribe_hand(scribe, text, sizeof text));
    while (__atomic_load_n(&sink->writes, __ATOMIC_SEQ_CST) == 0)
        (void)usleep(100); /* the first is being written */
    double start = now_s();
    for (int i = 0; i < 100; i++)
        if (occl_scribe_hand(scribe, text, sizeof text))
            accepted++;
        else
            refused++;
    assert_true(now_s() - start < 1);
    assert_int_equal(accepted, ROOM / sizeof text);
    assert_int_equal(refused, 100 - accepted);
    pthread_mutex_unlock(&sink->gate);
    assert_true(occl_scribe_destroy(scribe, 10 * SECOND_NS));
    assert_int_equal(sink->bytes, (accepted + 1) * sizeof text);
    assert_int_equal(sink->lost, refused);
    assert_int_equal(sink->writes, 2);
    free(sink);
}

static void a_write_that_stands_still_does_not_keep_the_end(void **state) {
    (void)state;
    static struct sink *sink; /* it stays, as does the scribe: found by the leak check, no leak */
    static struct occl_scribe *scribe;
    sink = sink_new();
    scribe = scribe_new(sink);
    pthread_mutex_lock(&sink->gate);
    assert_true(occl_scribe_hand(scribe, "x", 1));
    double start = now_s();
    assert_false(occl_scribe_destroy(scribe, SECOND_NS / 5));
    double took_s = now_s() - start;
    assert_true(took_s >= 0.2 && took_s < 5);
    pthread_mutex_unlock(&sink->gate);
}

static void none_is_no_error(void **state) {
    (void)state;
    assert_true(occl_scribe_destroy(NULL, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_several_threads_stay_whole_and_in_order),
        cmocka_unit_test(what_finds_no_room_is_counted),
        cmocka_unit_test(a_write_that_stands_still_does_not_keep_the_end),
        cmocka_unit_test(none_is_no_error),
    };
    return cmocka_run_group_tests_name("scribe", tests, NULL, NULL);
}
