/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest program: every rank contributes its number, every rank gets the sum.
 *
 *     occlctl run -n 4 ./hello_all_reduce
 *
 * Rank, size and the communicator's id come from the launcher; occl_init_env reads them. */
#include <occl.h>
#include <stdio.h>

/* Errors have a text that says what was expected, what was found and which ranks are concerned. */
static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, occl_last_error());
    return 1;
}

int main(void) {
    struct occl_comm world;
    int rank, size;
    if (occl_init_env(&world) != OCCL_SUCCESS)
        return failed("occl_init_env");
    if (occl_comm_rank(world, &rank) != OCCL_SUCCESS ||
        occl_comm_size(world, &size) != OCCL_SUCCESS)
        return failed("world");

    /* The last argument is a request. NULL: the call returns when the operation has completed. */
    int64_t mine = rank + 1, sum = 0;
    if (occl_all_reduce(&mine, &sum, 1, OCCL_INT64, OCCL_SUM, world, NULL, NULL) != OCCL_SUCCESS)
        return failed("occl_all_reduce");
    printf("rank %d of %d: the sum is %lld\n", rank, size, (long long)sum);

    return occl_finalize() == OCCL_SUCCESS ? 0 : failed("occl_finalize");
}
