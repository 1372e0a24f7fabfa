/* SPDX-License-Identifier: Apache-2.0 */
/* Where lanes run and how much memory there is: from the affinity mask, hwloc and the cgroup. */
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/occld.h"

#define LANES_BY_DEFAULT 4
#define CPUS_MAX 4096

static uint32_t allowed_cpus(cpu_set_t *set, size_t bytes) {
    CPU_ZERO_S(bytes, set);
    if (sched_getaffinity(0, bytes, set) < 0)
        return 1;
    int count = CPU_COUNT_S(bytes, set);
    return count > 0 ? (uint32_t)count : 1;
}

/* Spreads lanes over the caches and nodes of the allowed CPUs. False: hwloc cannot tell. */
static bool spread(struct occl_daemon *daemon, const cpu_set_t *set, size_t bytes) {
    hwloc_topology_t topology;
    hwloc_bitmap_t parts[64];
    bool good = false;
    if (hwloc_topology_init(&topology) < 0)
        return false;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (!allowed || hwloc_topology_load(topology) < 0)
        goto destroy;
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++)
        if (CPU_ISSET_S(cpu, bytes, set))
            hwloc_bitmap_set(allowed, cpu);
    if (hwloc_topology_restrict(topology, allowed, 0) < 0)
        goto destroy;
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    if (hwloc_distrib(topology, &root, 1, parts, daemon->lanes, INT32_MAX, 0) < 0)
        goto destroy;
    good = true;
    for (uint32_t lane = 0; lane < daemon->lanes; lane++) {
        int cpu = hwloc_bitmap_first(parts[lane]);
        good = good && cpu >= 0;
        daemon->lane_cpus[lane] = cpu >= 0 ? (uint32_t)cpu : 0;
        hwloc_bitmap_free(parts[lane]);
    }
destroy:
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
    return good;
}

void occl_placement_choose(struct occl_daemon *daemon) {
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    uint32_t cpus = set ? allowed_cpus(set, bytes) : 1;
    uint32_t lanes = (uint32_t)daemon->config.lanes;
    if (lanes == 0)
        lanes = cpus < LANES_BY_DEFAULT ? cpus : LANES_BY_DEFAULT;
    daemon->lanes = lanes;
    /* A lane for every CPU is inside the set already, and a bound one could not make way for a rank
     * that is awake on its CPU. */
    daemon->lanes_bound = set && lanes < cpus && spread(daemon, set, bytes);
    CPU_FREE(set);
}

/* ---- memory ---- */

static uint64_t read_number(const char *path) {
    char text[64];
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    size_t got = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[got] = '\0';
    /* "max" means no limit. */
    return text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : UINT64_MAX;
}

static uint64_t smallest_on_path(const char *root, char *folder, const char *file) {
    uint64_t smallest = UINT64_MAX;
    for (;;) {
        char path[1200];
        (void)snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
        uint64_t value = read_number(path);
        if (value < smallest)
            smallest = value;
        char *slash = strrchr(folder, '/');
        if (!slash)
            return smallest;
        *slash = '\0';
    }
}

static uint64_t cgroup_limit(void) {
    char line[1024];
    uint64_t limit = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return limit;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *folder = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!folder)
            continue;
        *folder++ = '\0';
        uint64_t found = UINT64_MAX;
        if (strcmp(controllers, ":") == 0)
            found = smallest_on_path("/sys/fs/cgroup", folder, "memory.max");
        else if (strstr(controllers + 1, "memory"))
            found = smallest_on_path("/sys/fs/cgroup/memory", folder, "memory.limit_in_bytes");
        if (found < limit)
            limit = found;
    }
    (void)fclose(file);
    return limit;
}

uint64_t occl_placement_memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t machine =
        pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 1ull << 30;
    uint64_t limit = cgroup_limit();
    return limit < machine ? limit : machine;
}
