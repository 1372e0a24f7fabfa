/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks run, with --bind=core: each may use one core of those that the launcher may use,
 * by turns when there are more ranks. What the launcher itself was bound to (taskset, a cgroup)
 * stays the limit, so two launchers on one node are kept apart by binding them. */
#include <errno.h>
#include <hwloc.h>
#include <string.h>

#include "tools/occlctl/run.h"

static int no_topology(struct occl_detail *detail, int error) {
    return occl_detail_set(detail, OCCL_E_INVALID, error,
                           "--bind=core: hwloc cannot tell the cores of this machine: %s",
                           error ? strerror(error)
                                 : "it finds none of this machine that may be used");
}

/* Of cores, where they are known (not in all virtual machines), else of hardware threads. */
static hwloc_obj_type_t bound_to(hwloc_topology_t topology) {
    return hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

int occl_run_bind_open(struct occl_run *run, struct occl_detail *detail) {
    hwloc_topology_t topology;
    if (!run->options->bind_core)
        return OCCL_OK;
    if (hwloc_topology_init(&topology) != 0)
        return no_topology(detail, errno);
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    errno = 0;
    bool loaded =
        allowed &&
        hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
        hwloc_topology_load(topology) == 0;
    /* The environment may describe another machine, on which nothing can be bound. */
    bool ours = loaded && hwloc_topology_is_thissystem(topology);
    bool known = ours && hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0 &&
                 hwloc_topology_restrict(topology, allowed, 0) == 0 &&
                 hwloc_get_nbobjs_by_type(topology, bound_to(topology)) > 0;
    int error = loaded && !ours ? 0 : errno;
    hwloc_bitmap_free(allowed);
    if (!known) {
        hwloc_topology_destroy(topology);
        return no_topology(detail, error);
    }
    run->topology = topology;
    return OCCL_OK;
}

int occl_run_bind(const struct occl_run *run, int rank) {
    if (!run->topology)
        return 0;
    hwloc_obj_type_t type = bound_to(run->topology);
    unsigned cores = (unsigned)hwloc_get_nbobjs_by_type(run->topology, type);
    hwloc_obj_t core = hwloc_get_obj_by_type(run->topology, type, (unsigned)rank % cores);
    return hwloc_set_cpubind(run->topology, core->cpuset, HWLOC_CPUBIND_PROCESS);
}

void occl_run_bind_close(struct occl_run *run) {
    if (run->topology)
        hwloc_topology_destroy(run->topology);
    run->topology = NULL;
}
