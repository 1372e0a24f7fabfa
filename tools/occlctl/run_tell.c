/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that dies before it has asked for the communicator is nobody to the daemon, and the others
 * would wait for it: the launcher tells. Ranks that the daemon knows are none of our business, so
 * once the communicator exists (or has failed) there is nothing to tell any more. Before anybody
 * has asked for it there is nobody to tell it to: then again later. */
#include <string.h>

#include "tools/occlctl/run.h"

#define TELL_TIMEOUT_MS 1000

/* NULL: the daemon cannot be told. */
static json_t *tell(const struct occl_run *run, int rank) {
    struct occl_detail detail;
    json_t *reply = NULL;
    json_t *request = json_pack("{s:s, s:s, s:i, s:i, s:i}", "verb", "rank_ended", "unique_id",
                                run->unique_id, "rank", rank, "pid", (int)run->ranks[rank].pid,
                                "status", run->ranks[rank].status);
    int status = request ? occl_admin_call(run->admin, request, TELL_TIMEOUT_MS, &reply, &detail)
                         : OCCL_E_NO_MEMORY;
    json_decref(request);
    if (status == OCCL_E_BUSY) /* others ask too much: later */
        return json_pack("{s:s}", "state", "unknown");
    return status == OCCL_OK ? reply : NULL;
}

bool occl_run_tell(struct occl_run *run) {
    bool again = false;
    for (int rank = 0; run->admin && run->alive > 0 && rank < run->options->ranks; rank++) {
        if (run->ranks[rank].alive || run->ranks[rank].told)
            continue;
        if (run->ranks[rank].status == 0) { /* no failure; a child of its may go on for it */
            run->ranks[rank].told = true;
            continue;
        }
        json_t *reply = tell(run, rank);
        const char *state = json_string_value(json_object_get(reply, "state"));
        if (!state || strcmp(state, "settled") == 0)
            run->admin = NULL; /* a daemon that is older, or gone, cannot be helped */
        else if (strcmp(state, "elsewhere") == 0)
            run->ranks[rank].told = true;
        else /* nobody waits yet; or it has failed, and who comes later may wait again */
            again = true;
        json_decref(reply);
    }
    return again && run->admin;
}
