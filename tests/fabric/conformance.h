/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of the fabric contract: the same cases for every backend. A backend's test
 * supplies the harness and runs occl_fabric_conformance. */
#ifndef TESTS_FABRIC_CONFORMANCE_H
#define TESTS_FABRIC_CONFORMANCE_H

#include <stdbool.h>

#include "fabric/fabric.h"

struct conformance_harness {
    const struct occl_fabric_ops *ops;
    /* Opens two endpoints, numbered 0 and 1, in a world of their own. */
    void (*open_pair)(void *self, uint64_t seed, struct occl_fabric **out_pair);
    /* The pair's endpoints are closed (those that were not before). */
    void (*end_pair)(void *self);
    /* Loses the connection between the two. */
    void (*cut)(void *self);
    /* The time to hand to the next poll; lets time pass, virtual or real. */
    uint64_t (*pass)(void *self);
    void *self;
};

/* Runs all cases as one cmocka group; returns the number of failures. */
int occl_fabric_conformance(const struct conformance_harness *harness);

#endif
