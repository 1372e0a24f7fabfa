/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about this machine that `occlctl doctor` prints. */
#ifndef TOOLS_OCCLCTL_DOCTOR_H
#define TOOLS_OCCLCTL_DOCTOR_H

#include <stdint.h>

/* How much a fact matters. */
enum occl_doctor_grade {
    OCCL_DOCTOR_GOOD = 0,
    OCCL_DOCTOR_SLOWER = 1, /* occl works without it, by a fallback */
    OCCL_DOCTOR_BAD = 2,    /* occl does not work, or not for this user */
};

struct occl_doctor_fact {
    char name[40];
    char value[160];
    char hint[200];
    uint32_t grade; /* enum occl_doctor_grade */
};

#define OCCL_DOCTOR_FACTS_MAX 40

/* Probes the kernel and this process's limits; returns how many facts it wrote (< FACTS_MAX / 2).
 * Forks one child for the probe of cross-memory attach. */
int occl_doctor_kernel(struct occl_doctor_fact *out_facts);

#endif
