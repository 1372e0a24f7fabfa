/* SPDX-License-Identifier: Apache-2.0 */
/* Threads reduce layers in whatever order they get to them, another one on every rank. Operations
 * are matched by tag, so the order of the calls does not matter; with matching by call order this
 * program would hang or mix the layers up. A thread submits all it has before it waits: one that
 * waited after each call would impose the order again that it wants to be rid of. */
#include <occl.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 3
#define LAYERS 8 /* of each thread */
#define VALUES 1000

struct worker {
    pthread_t thread;
    struct occl_comm comm;
    int rank, size, index;
    int wrong;
    float values[LAYERS][VALUES];
    struct occl_request requests[LAYERS];
};

static enum occl_result submit(struct worker *w, int layer) {
    struct occl_op_attr attr = OCCL_OP_ATTR_INIT;
    float *values = w->values[layer];
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)((w->rank + 1) * (layer + 1));

    /* Tag 0 is the stream of calls without a tag, whose order is that of the calls. */
    attr.tag = (uint32_t)(w->index * LAYERS + layer + 1);
    return occl_all_reduce(values, values, VALUES, OCCL_FLOAT32, OCCL_SUM, w->comm, &attr,
                           &w->requests[layer]);
}

static void *work(void *arg) {
    struct worker *w = arg;
    enum occl_result result = OCCL_SUCCESS;
    /* Even ranks go up, odd ones down. */
    for (int i = 0; i < LAYERS && result == OCCL_SUCCESS; i++)
        result = submit(w, w->rank % 2 ? LAYERS - 1 - i : i);
    if (result == OCCL_SUCCESS)
        result = occl_wait_all(w->requests, LAYERS);
    if (result != OCCL_SUCCESS) {
        fprintf(stderr, "rank %d, thread %d: %s\n", w->rank, w->index, occl_last_error());
        w->wrong = LAYERS;
        return NULL;
    }
    for (int layer = 0; layer < LAYERS; layer++)
        w->wrong += w->values[layer][0] != (float)((layer + 1) * w->size * (w->size + 1) / 2);
    return NULL;
}

int main(void) {
    struct worker workers[THREADS];
    struct occl_comm world;
    int rank, size, wrong = 0;
    if (occl_init_env(&world) != OCCL_SUCCESS || occl_comm_rank(world, &rank) != OCCL_SUCCESS ||
        occl_comm_size(world, &size) != OCCL_SUCCESS) {
        fprintf(stderr, "%s\n", occl_last_error());
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.comm = world, .rank = rank, .size = size, .index = i};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        wrong += workers[i].wrong;
    }
    printf("rank %d: %d layers, %d wrong\n", rank, THREADS * LAYERS, wrong);
    return wrong > 0 || occl_finalize() != OCCL_SUCCESS;
}
