/* SPDX-License-Identifier: Apache-2.0 */
/* The scene of the tests with enemies: a daemon, the ranks of another tenant that check every
 * result, and what the daemon held before it all began. At the end the daemon lives, the other
 * tenant's ops complete, and the daemon holds what it held before.
 * ABUSE_SECONDS and ABUSE_SEED in the environment make the random tests longer and different. */
#ifndef TESTS_ABUSE_SCENE_H
#define TESTS_ABUSE_SCENE_H

#include <stdint.h>
#include <sys/types.h>

#include "tests/client/world.h"

#define SCENE_BYSTANDERS 2
#define SCENE_ENEMY_UID 60002

/* Shared memory between the test and the other tenant. */
struct scene_shared {
    uint64_t checked[SCENE_BYSTANDERS];
    int stop;
    double slowest; /* of one op, rank 0; seconds */
};

struct scene_holdings {
    int files, mappings; /* open descriptors; mapped memfds */
};

struct scene {
    struct world w;
    struct scene_shared *s;
    pid_t bystanders;
    struct scene_holdings before;
};

/* Starts the daemon with extra arguments (as world_start) and the other tenant. */
void scene_open(struct scene *scene, const char *const *extra);
/* Asserts what the first comment says. */
void scene_close(struct scene *scene);
/* Asserts that the other tenant completes some ops from now on. */
void scene_expect_progress(const struct scene *scene);

struct scene_holdings scene_holdings_of(pid_t pid);
/* Asserts that the process comes back to these holdings within some seconds. */
void scene_expect_holdings(pid_t pid, struct scene_holdings before);

/* In a child: dies with its parent and by its own crashes, and is another user when it may be. */
void scene_become_enemy(void);

uint64_t scene_random(uint64_t *state);
int scene_seconds(void);
uint64_t scene_seed(void);

#endif
