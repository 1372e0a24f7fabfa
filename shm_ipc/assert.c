/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void occl_assert_fail(const char *condition, const char *file, int line) {
    char text[512];
    int length =
        snprintf(text, sizeof text, "occl: assertion failed: %s (%s:%d)\n", condition, file, line);
    if (length > (int)sizeof text - 1)
        length = (int)sizeof text - 1;
    /* Nobody can act on a failed write any more. */
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0)
        abort();
    abort();
}
