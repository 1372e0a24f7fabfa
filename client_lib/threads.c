/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads of this process use the library: counted in the session page for `occlctl why`. */
#include "client_lib/client.h"
#include "client_lib/group.h"

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static CLIENT_THREAD_HOT uint64_t counted_session;

static void thread_ends(void *session) {
    (void)session;
    occl_add32(&occl_lib.inside, 1); /* the page is not unmapped meanwhile */
    if (occl_look32(&occl_lib.attached) && counted_session == occl_lib.welcome.session_id)
        occl_add32(&occl_lib.page->threads_using, UINT32_MAX);
    client_end();
}

static void make_key(void) {
    (void)pthread_key_create(&exit_key, thread_ends); /* without it ended threads stay counted */
}

void client_thread_uses(void) {
    if (counted_session == occl_lib.welcome.session_id || !occl_lib.page)
        return;
    pthread_once(&exit_once, make_key);
    counted_session = occl_lib.welcome.session_id;
    (void)pthread_setspecific(exit_key, &counted_session);
    occl_add32(&occl_lib.page->threads_using, 1);
}
