/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/demo_job/resnet50.h"

struct list {
    uint32_t *elements;
    int count;
};

static void add(struct list *list, uint32_t elements) {
    if (list->count < OCCL_RESNET50_TENSORS)
        list->elements[list->count] = elements;
    list->count++;
}

/* A convolution without bias, and its normalisation's weight and bias. */
static void add_convolution(struct list *list, uint32_t in, uint32_t out, uint32_t side) {
    add(list, out * in * side * side);
    add(list, out);
    add(list, out);
}

/* 1x1 down to width, 3x3, 1x1 up to four times the width. */
static void add_bottleneck(struct list *list, uint32_t in, uint32_t width, int projects) {
    add_convolution(list, in, width, 1);
    add_convolution(list, width, width, 3);
    add_convolution(list, width, 4 * width, 1);
    if (projects)
        add_convolution(list, in, 4 * width, 1);
}

int occl_resnet50_shapes(uint32_t out_elements[OCCL_RESNET50_TENSORS]) {
    static const uint32_t blocks[4] = {3, 4, 6, 3};
    struct list list = {out_elements, 0};
    uint32_t channels = 64;
    add_convolution(&list, 3, channels, 7);
    for (int stage = 0; stage < 4; stage++) {
        uint32_t width = 64u << stage;
        for (uint32_t block = 0; block < blocks[stage]; block++) {
            add_bottleneck(&list, channels, width, block == 0);
            channels = 4 * width;
        }
    }
    add(&list, 1000 * channels);
    add(&list, 1000);
    return list.count;
}
