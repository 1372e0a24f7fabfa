/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `rank_ended`: a launcher tells that a rank it started has ended. The daemon sees the end
 * of whoever has attached by itself, but knows nothing of a process that died before: the others
 * would wait for it in their communicator's creation. */
#include <stdio.h>
#include <string.h>

#include "daemon/admin.h"
#include "daemon/rendezvous.h"
#include "shm_ipc/unique_id.h"

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_id(const char *text, struct occl_unique_id_wire *out_id) {
    if (!text || strlen(text) != 2 * sizeof out_id->bytes)
        return false;
    for (size_t i = 0; i < sizeof out_id->bytes; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out_id->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* Whoever knows the id may join, and so may say that a rank will not; and only for own jobs. */
int occl_admin_rank_ended(struct occl_admin_request *request) {
    struct occl_unique_id_wire id;
    uint8_t secret[OCCL_UNIQUE_ID_SECRET_BYTES];
    char cause[OCCL_CAUSE_BYTES];
    const json_t *pid = json_object_get(request->json, "pid");
    const json_t *status = json_object_get(request->json, "status");
    if (!read_id(occl_admin_text(request, "unique_id"), &id) || !occl_unique_id_read(&id, secret) ||
        request->rank < 0 || !json_is_integer(pid) || !json_is_integer(status))
        return occl_detail_set(&request->detail, OCCL_E_INVALID, 0,
                               "rank_ended: expected unique_id (text) and the numbers rank, pid "
                               "and status");
    struct occl_rendezvous *meeting = occl_rendezvous_find(request->daemon, secret);
    if (meeting && !occl_admin_may_see(request, meeting->job))
        return occl_detail_set(&request->detail, OCCL_E_PERMISSION, 0,
                               "rank_ended: the communicator is of another tenant's job");
    occl_identity_describe_exit((int)json_integer_value(status), cause, sizeof cause);
    occl_admin_put_text(request->answer, "state",
                        occl_rendezvous_rank_ended(request->daemon, meeting,
                                                   (uint32_t)request->rank,
                                                   (long)json_integer_value(pid), cause));
    return OCCL_OK;
}
