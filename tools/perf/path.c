/* SPDX-License-Identifier: Apache-2.0 */
/* The one question that occl-perf asks the library beyond occl.h, apart so that tests can replace
 * the library. */
#include "client_lib/inspect.h"
#include "tools/perf/perf.h"

const char *occl_perf_transport(struct occl_comm comm) {
    /* The daemon's lanes work on this node's memory too: to a user that is the local path. */
    return occl_inspect_last_path(comm) == 1 ? "direct" : "local";
}
