/* SPDX-License-Identifier: Apache-2.0 */
/* Explicit-state search over small systems: the real executor and the real pool at 2 or 3 ranks
 * with up to 3 ops, every interleaving of submissions, arrivals, revocations and slices. A system
 * is deadlock-free when from every reachable state the final one can still be reached.
 *
 * Variants are the rules that must fail (negative controls): the same executor under another rule
 * of who may run. */
#ifndef TESTS_SIM_MODEL_H
#define TESTS_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_RANKS_MAX 3u
#define MODEL_OPS_MAX 3u
#define MODEL_SCRIPT_MAX 8u

enum model_rule {
    MODEL_POOL = 0,        /* ours: daemon/sched/pool */
    MODEL_ORDERED = 1,     /* each rank runs its ops strictly in order of submission */
    MODEL_ESCAPE = 2,      /* slots held for good; one is kept for the smallest pending id */
    MODEL_WOUND_WAIT = 3,  /* the smallest submitted id takes a slot from the largest */
    MODEL_FIFO_WINDOW = 4, /* the first W submitted and incomplete ops run */
    MODEL_SHARED_WIRE = 5, /* no slots; one in-order wire of `slots` entries for all ops between two
                              ranks, sent without a credit for the landing place */
    MODEL_CREDITED_WIRE = 6 /* the same wire, sent only with a credit */
};

/* A rank's program: 0x10 + op submits, 0x20 + op waits for the op's completion, 0 ends. */
struct model_script {
    uint8_t items[MODEL_SCRIPT_MAX];
};
#define MODEL_SUBMIT(op) (uint8_t)(0x10 + (op))
#define MODEL_WAIT(op) (uint8_t)(0x20 + (op))

struct model_system {
    enum model_rule rule;
    uint32_t ranks;
    uint32_t ops;
    uint32_t slots;         /* run slots of a rank (units of the pool); wire entries */
    uint32_t reserve;       /* MODEL_POOL: units kept for the communicator on top of slots */
    uint32_t depth_slots;   /* of connectors */
    uint32_t landing_slots; /* wire rules: landing places of an op; else equal to depth_slots */
    uint32_t slices;        /* of one visit */
    bool eager; /* tickets and returned slots are known at once, to keep large systems searchable */
    struct model_script scripts[MODEL_RANKS_MAX];
};

struct model_result {
    uint32_t states;
    uint32_t dead;  /* reachable states from which the final one cannot be reached */
    uint32_t stuck; /* of these, states that no transition leaves */
    bool phi_fell;  /* an executed slice was lost */
    bool complete;  /* false: more states than the search may hold */
};

/* Searches. Allocates; aborts without memory. */
void model_search(const struct model_system *system, struct model_result *out_result);

/* Whether the scripts alone have no cyclic wait: with everything else unbounded all can finish. */
bool model_scripts_acyclic(const struct model_system *system);

#endif
