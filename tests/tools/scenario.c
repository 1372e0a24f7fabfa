/* SPDX-License-Identifier: Apache-2.0 */
/* A job with a fault in it, for tests of what inspection says of it; started by `occlctl run`.
 *
 *   scenario late|stopped|dead|cycle|after|fine RANK [SECONDS]
 *
 * Each rank does three all-reduces; then RANK is late (sleeps), stops itself, kills itself, or does
 * as the others; these wait in a fourth. `cycle`: rank 0 waits in op A before it submits B, rank 1
 * waits in B before A. `after`: rank 0 submits B, and A after B; rank 1 A, and B after A. The
 * others wait SECONDS (default 20) at most and then end with 0 (of `dead` after another SECONDS).
 * Each rank writes its process number to scenario.RANK in the current folder. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client_lib/occl.h"

static int rank;

static void must(enum occl_result result, const char *what) {
    if (result == OCCL_SUCCESS)
        return;
    (void)fprintf(stderr, "rank %d: %s: %s: %s\n", rank, what, occl_result_string(result),
                  occl_last_error());
    exit(5);
}

static void note_process(void) {
    char name[32];
    (void)snprintf(name, sizeof name, "scenario.%d", rank);
    FILE *file = fopen(name, "we");
    if (!file)
        exit(6);
    (void)fprintf(file, "%ld\n", (long)getpid());
    (void)fclose(file);
}

/* One all-reduce with a tag, waited for; a time-out and a dead peer are what the test wants. */
static void wait_in(struct occl_comm comm, uint32_t tag, int seconds) {
    static float values[256];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.tag = tag;
    attr.timeout_ns = seconds * 1000000000ll;
    enum occl_result result =
        occl_all_reduce(values, values, 256, OCCL_FLOAT32, OCCL_SUM, comm, &attr, NULL);
    (void)fprintf(stderr, "rank %d: tag %u: %s: %s\n", rank, tag, occl_result_string(result),
                  result == OCCL_SUCCESS ? "" : occl_last_error());
}

/* One op, and another that comes after it. */
static void submit_both(struct occl_comm comm, uint32_t tag, uint32_t tag_behind, int seconds) {
    static float values[2][256];
    struct occl_request requests[2];
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    attr.timeout_ns = seconds * 1000000000ll;
    attr.tag = tag;
    must(occl_all_reduce(values[0], values[0], 256, OCCL_FLOAT32, OCCL_SUM, comm, &attr,
                         &requests[0]),
         "first");
    attr.tag = tag_behind;
    attr.after = requests;
    attr.after_count = 1;
    must(occl_all_reduce(values[1], values[1], 256, OCCL_FLOAT32, OCCL_SUM, comm, &attr,
                         &requests[1]),
         "second");
    enum occl_result result = occl_wait_all(requests, 2);
    (void)fprintf(stderr, "rank %d: %s: %s\n", rank, occl_result_string(result),
                  result == OCCL_SUCCESS ? "" : occl_last_error());
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "fine";
    int who = argc > 2 ? atoi(argv[2]) : 0;
    int seconds = argc > 3 ? atoi(argv[3]) : 20;
    struct occl_comm comm;
    float value = 1;
    must(occl_init_env(&comm), "joining");
    must(occl_comm_rank(comm, &rank), "rank");
    for (int i = 0; i < 3; i++)
        must(occl_all_reduce(&value, &value, 1, OCCL_FLOAT32, OCCL_SUM, comm, NULL, NULL),
             "all_reduce");
    note_process();
    if (strcmp(what, "cycle") == 0) {
        wait_in(comm, rank == 0 ? 11 : 22, seconds);
        wait_in(comm, rank == 0 ? 22 : 11, seconds);
        return 0;
    }
    if (strcmp(what, "after") == 0) {
        submit_both(comm, rank == 0 ? 11 : 22, rank == 0 ? 22 : 11, seconds);
        return 0;
    }
    if (rank == who && strcmp(what, "late") == 0) {
        struct timespec span = {.tv_sec = seconds};
        (void)nanosleep(&span, NULL);
    } else if (rank == who && strcmp(what, "stopped") == 0) {
        (void)raise(SIGSTOP);
    } else if (rank == who && strcmp(what, "dead") == 0) {
        (void)raise(SIGKILL);
    }
    wait_in(comm, 7, seconds);
    if (strcmp(what, "dead") == 0) {
        struct timespec span = {.tv_sec = seconds};
        (void)nanosleep(&span, NULL);
    }
    return 0;
}
