/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter tensors of ResNet-50, in the order in which a framework lists them: what
 * data-parallel training reduces after each step.
 *
 * Source: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition" (2015),
 * table 1, the 50-layer column with 1000 classes, as torchvision builds it: convolutions without
 * bias, batch normalisation with weight and bias behind each, the stride in the 3x3 convolution
 * (which does not change a shape), projection shortcuts in the first block of each stage. The
 * shapes are computed from that description; a test compares count and sum with the published
 * 25,557,032 parameters. */
#ifndef TOOLS_DEMO_JOB_RESNET50_H
#define TOOLS_DEMO_JOB_RESNET50_H

#include <stddef.h>
#include <stdint.h>

#define OCCL_RESNET50_TENSORS 161
#define OCCL_RESNET50_PARAMETERS 25557032

/* Writes the number of elements of each tensor; returns how many tensors there are. */
int occl_resnet50_shapes(uint32_t out_elements[OCCL_RESNET50_TENSORS]);

#endif
