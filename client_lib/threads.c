/* SPDX-License-Identifier: Apache-2.0 */
/* What the library keeps of each thread that calls it: what every call looks at is thread-local
 * (CLIENT_THREAD_HOT), the rest is allocated with the first need and goes with the thread. And
 * which threads use the library: counted in the session page for `occlctl why`. */
#include <stdlib.h>

#include "client_lib/client.h"
#include "client_lib/group.h"

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static CLIENT_THREAD_HOT uint64_t counted_session;
static CLIENT_THREAD_HOT struct client_thread *mine;
/* The address stands for the thread, which has something to be given back when it ends. */
static CLIENT_THREAD_HOT bool is_known;

static void thread_ends(void *unused) {
    (void)unused;
    is_known = false; /* what is called while the thread ends makes it known again */
    free(mine);
    mine = NULL;
    occl_add32(&occl_lib.inside, 1); /* the page is not unmapped meanwhile */
    if (occl_look32(&occl_lib.attached) && counted_session == occl_lib.welcome.session_id)
        occl_add32(&occl_lib.page->threads_using, UINT32_MAX);
    counted_session = 0;
    client_end();
}

static void make_key(void) {
    (void)pthread_key_create(&exit_key, thread_ends); /* without it ended threads stay counted */
}

static void know(void) {
    if (is_known)
        return;
    pthread_once(&exit_once, make_key);
    is_known = pthread_setspecific(exit_key, &is_known) == 0;
}

struct client_thread *client_thread_own(void) {
    if (!mine) {
        know();
        mine = calloc(1, sizeof *mine);
    }
    return mine;
}

void client_thread_uses(void) {
    if (counted_session == occl_lib.welcome.session_id || !occl_lib.page)
        return;
    know();
    counted_session = occl_lib.welcome.session_id;
    occl_add32(&occl_lib.page->threads_using, 1);
}
