/* SPDX-License-Identifier: Apache-2.0 */
#include "client_lib/group.h"

#include <stdlib.h>

#include "client_lib/client.h"

static CLIENT_THREAD_HOT uint32_t depth;
static CLIENT_THREAD_HOT struct occl_request *members;
static CLIENT_THREAD_HOT uint32_t used, capacity;

uint32_t client_group_depth(void) {
    return depth;
}

int client_group_add(struct occl_request request) {
    if (used == capacity) {
        uint32_t wanted = capacity ? capacity * 2 : 16;
        struct occl_request *grown = realloc(members, wanted * sizeof *grown);
        if (!grown)
            return client_fail(OCCL_E_NO_MEMORY, "no memory for a group of %u operations", wanted);
        members = grown;
        capacity = wanted;
    }
    members[used++] = request;
    return OCCL_OK;
}

OCCL_PUBLIC enum occl_result occl_group_start(void) {
    int status = client_enter();
    if (status == OCCL_OK)
        depth++;
    return status;
}

OCCL_PUBLIC enum occl_result occl_group_end(void) {
    if (depth == 0)
        return client_fail(OCCL_E_USAGE, "occl_group_end without occl_group_start");
    if (--depth > 0)
        return OCCL_SUCCESS;
    uint32_t count = used;
    used = 0;
    enum occl_result result = occl_wait_all(members, (int)count);
    free(members);
    members = NULL;
    capacity = 0;
    return result;
}
