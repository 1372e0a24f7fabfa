/* SPDX-License-Identifier: Apache-2.0 */
/* A training-like loop. The arguments of its all-reduce never change, so they are given and checked
 * once; each step starts the same request again. Memory of occl_mem_alloc is shared between the
 * ranks, so nothing is copied on the way. */
#include <occl.h>
#include <stdio.h>

#define STEPS 100
#define VALUES (1 << 16)

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, occl_last_error());
    return 1;
}

/* What a backward pass would do: this rank's part of the gradient. */
static void fill(float *gradient, int rank, int step) {
    for (int i = 0; i < VALUES; i++)
        gradient[i] = (float)(rank + step);
}

int main(void) {
    struct occl_comm world;
    struct occl_request reduction;
    float weight = 0;
    void *memory;
    int rank;
    if (occl_init_env(&world) != OCCL_SUCCESS || occl_comm_rank(world, &rank) != OCCL_SUCCESS)
        return failed("occl_init_env");
    if (occl_mem_alloc(VALUES * sizeof(float), &memory) != OCCL_SUCCESS)
        return failed("occl_mem_alloc");
    float *gradient = memory;

    /* In place: the sum over the ranks, divided by their number, replaces the gradient. */
    if (occl_all_reduce_init(gradient, gradient, VALUES, OCCL_FLOAT32, OCCL_AVG, world, NULL,
                             &reduction) != OCCL_SUCCESS)
        return failed("occl_all_reduce_init");
    for (int step = 0; step < STEPS; step++) {
        fill(gradient, rank, step);
        if (occl_start(reduction) != OCCL_SUCCESS)
            return failed("occl_start");
        /* Work that does not need the result goes here. */
        if (occl_wait(reduction) != OCCL_SUCCESS)
            return failed("occl_wait");
        weight += gradient[VALUES - 1];
    }
    printf("rank %d: after %d steps the weight is %g\n", rank, STEPS, (double)weight);

    if (occl_request_free(reduction) != OCCL_SUCCESS || occl_mem_free(memory) != OCCL_SUCCESS)
        return failed("release");
    return occl_finalize() == OCCL_SUCCESS ? 0 : failed("occl_finalize");
}
