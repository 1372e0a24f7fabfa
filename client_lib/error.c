/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a thread's last error, so that two threads never mix theirs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client_lib/client.h"

static CLIENT_THREAD_HOT int last_status;
static CLIENT_THREAD_HOT bool last_kept; /* what fails now is no error of the call */

int client_fail(int status, const char *fmt, ...) {
    if (last_kept)
        return status;
    struct client_thread *own = client_thread_own();
    last_status = status;
    if (!own)
        return status;
    char text[sizeof own->last_text]; /* an argument may be the last text itself */
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* a cut text is still a text */
    va_end(args);
    memcpy(own->last_text, text, sizeof text);
    return status;
}

int client_fail_detail(const struct occl_detail *detail) {
    return client_fail(detail->status, "%s", detail->text);
}

bool client_error_keep(bool keep) {
    bool kept = last_kept;
    last_kept = keep;
    return kept;
}

int client_error_status(void) {
    return last_status;
}

void client_error_save(char *out_text, size_t bytes) {
    (void)snprintf(out_text, bytes, "%s", occl_last_error());
}

OCCL_PUBLIC const char *occl_last_error(void) {
    if (last_status == OCCL_OK)
        return "";
    const struct client_thread *own = client_thread_own();
    return own ? own->last_text : "no memory for the text of the error";
}

OCCL_PUBLIC const char *occl_result_string(enum occl_result result) {
    return occl_status_text((int)result);
}
