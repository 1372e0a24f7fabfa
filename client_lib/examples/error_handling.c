/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong, and how a program goes on. The last rank is late, then dies; the others get a
 * time-out, then an error that names it, and continue in a communicator without it.
 *
 *     occlctl run -n 4 --on-death=continue ./error_handling      # the exit status is that of the
 * dead
 */
#include <occl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define LATE_TAG 1
#define TIMEOUT_NS 100000000 /* 0.1 s */

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, occl_last_error());
    return 1;
}

/* The ranks that will live: one colour. The one that will not takes part, without a communicator:
 * a split needs all. Made before anything fails; a broken communicator cannot be split. */
static enum occl_result make_survivors(struct occl_comm world, int rank, int size,
                                       struct occl_comm *out_comm) {
    return occl_comm_split(world, rank == size - 1 ? -1 : 0, rank, NULL, out_comm);
}

int main(void) {
    struct occl_comm world, survivors;
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    enum occl_result result;
    int rank, size;
    if (occl_init_env(&world) != OCCL_SUCCESS || occl_comm_rank(world, &rank) != OCCL_SUCCESS ||
        occl_comm_size(world, &size) != OCCL_SUCCESS)
        return failed("occl_init_env");
    if (make_survivors(world, rank, size, &survivors) != OCCL_SUCCESS)
        return failed("occl_comm_split");

    /* A deadline ends this one operation; the communicator goes on. The text names who is missing.
     */
    if (rank != size - 1) {
        attr.tag = LATE_TAG;
        attr.timeout_ns = TIMEOUT_NS;
        result = occl_barrier(world, &attr, NULL);
        printf("rank %d: %s: %s\n", rank, occl_result_string(result), occl_last_error());
    }
    if (occl_barrier(world, NULL, NULL) != OCCL_SUCCESS)
        return failed("occl_barrier");

    if (rank == size - 1)
        (void)kill(getpid(), SIGKILL);

    /* Nobody waits for the dead: the error comes within milliseconds, to every rank. */
    int one = 1, count = 0;
    result = occl_all_reduce(&one, &count, 1, OCCL_INT32, OCCL_SUM, world, NULL, NULL);
    printf("rank %d: %s: %s\n", rank, occl_result_string(result), occl_last_error());
    if (result != OCCL_ERROR_PEER_FAILED)
        return 1;
    if (occl_comm_destroy(world) != OCCL_SUCCESS)
        return failed("occl_comm_destroy");

    /* Other communicators are not touched by it. */
    if (occl_all_reduce(&one, &count, 1, OCCL_INT32, OCCL_SUM, survivors, NULL, NULL) !=
        OCCL_SUCCESS)
        return failed("survivors");
    printf("rank %d: %d of %d ranks go on\n", rank, count, size);
    return occl_finalize() == OCCL_SUCCESS ? 0 : failed("occl_finalize");
}
