/* SPDX-License-Identifier: Apache-2.0 */
#include "client_lib/inspect.h"

#include "client_lib/client.h"

OCCL_PUBLIC int occl_inspect_last_path(struct occl_comm handle) {
    int status;
    struct client_comm *comm = client_comm_get(handle, &status);
    if (!comm)
        return -1;
    int path = (int)occl_peek32(&comm->last_way);
    client_comm_put(comm);
    return path;
}

OCCL_PUBLIC int occl_inspect_cross_memory(struct occl_comm handle) {
    int status;
    struct client_comm *comm = client_comm_get(handle, &status);
    if (!comm)
        return -1;
    int works = (int)comm->cma;
    client_comm_put(comm);
    return works;
}
