/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of one thread: between start and end its blocking calls become requests. */
#ifndef CLIENT_LIB_GROUP_H
#define CLIENT_LIB_GROUP_H

#include <stdint.h>

#include "client_lib/occl.h"

uint32_t client_group_depth(void);
/* Remembers a request for the outermost end. NO_MEMORY. */
int client_group_add(struct occl_request request);
/* Counts this thread, once, among those that submit: `why` tells a cycle of application waits from
 * threads that may still come by it. */
void client_thread_uses(void);

#endif
