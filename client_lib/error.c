/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a thread's last error. Thread-local, so that two threads never mix theirs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client_lib/client.h"

static _Thread_local char last_text[OCCL_DETAIL_BYTES + 64];
static _Thread_local int last_status;

int client_fail(int status, const char *fmt, ...) {
    char text[sizeof last_text]; /* an argument may be the last text itself */
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* a cut text is still a text */
    va_end(args);
    memcpy(last_text, text, sizeof text);
    last_status = status;
    return status;
}

int client_fail_detail(const struct occl_detail *detail) {
    (void)snprintf(last_text, sizeof last_text, "%s", detail->text);
    last_status = detail->status;
    return detail->status;
}

int client_error_status(void) {
    return last_status;
}

void client_error_save(char *out_text, size_t bytes) {
    (void)snprintf(out_text, bytes, "%s", last_text);
}

OCCL_PUBLIC const char *occl_last_error(void) {
    return last_text;
}

OCCL_PUBLIC const char *occl_result_string(enum occl_result result) {
    return occl_status_text((int)result);
}
