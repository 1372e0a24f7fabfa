/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/scribe.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shm_ipc/status.h"

struct occl_scribe {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something to write, or the end */
    pthread_cond_t ended;   /* monotonic */
    char *waiting;          /* filled under the lock */
    char *written;          /* the thread's own */
    size_t room_bytes;
    size_t waiting_bytes;
    uint64_t lost;
    bool stop;
    bool over; /* the thread has ended */
    pthread_t thread;
    occl_scribe_write write;
    void *self;
};

static void *scribe_main(void *argument) {
    struct occl_scribe *scribe = argument;
    pthread_mutex_lock(&scribe->lock);
    for (;;) {
        while (scribe->waiting_bytes == 0 && !scribe->stop)
            pthread_cond_wait(&scribe->changed, &scribe->lock);
        size_t bytes = scribe->waiting_bytes;
        uint64_t lost = scribe->lost;
        if (bytes == 0)
            break;
        char *text = scribe->waiting;
        scribe->waiting = scribe->written;
        scribe->written = text;
        scribe->waiting_bytes = 0;
        scribe->lost = 0;
        pthread_mutex_unlock(&scribe->lock);
        scribe->write(scribe->self, text, bytes, lost);
        pthread_mutex_lock(&scribe->lock);
    }
    scribe->over = true;
    pthread_cond_signal(&scribe->ended);
    pthread_mutex_unlock(&scribe->lock);
    return NULL;
}

/* Signals are for the loop. */
static int start_thread(struct occl_scribe *scribe, const char *name) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&scribe->thread, NULL, scribe_main, scribe);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return OCCL_E_NO_MEMORY;
    (void)pthread_setname_np(scribe->thread, name);
    return OCCL_OK;
}

static void release(struct occl_scribe *scribe) {
    pthread_cond_destroy(&scribe->ended);
    pthread_cond_destroy(&scribe->changed);
    pthread_mutex_destroy(&scribe->lock);
    free(scribe->waiting);
    free(scribe->written);
    free(scribe);
}

int occl_scribe_create(const char *name, size_t room_bytes, occl_scribe_write write, void *self,
                       struct occl_scribe **out_scribe) {
    struct occl_scribe *scribe = calloc(1, sizeof *scribe);
    pthread_condattr_t monotonic;
    if (!scribe)
        return OCCL_E_NO_MEMORY;
    pthread_mutex_init(&scribe->lock, NULL);
    pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&scribe->changed, NULL);
    pthread_cond_init(&scribe->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    scribe->waiting = malloc(room_bytes);
    scribe->written = malloc(room_bytes);
    scribe->room_bytes = room_bytes;
    scribe->write = write;
    scribe->self = self;
    if (!scribe->waiting || !scribe->written || start_thread(scribe, name) != OCCL_OK) {
        release(scribe);
        return OCCL_E_NO_MEMORY;
    }
    *out_scribe = scribe;
    return OCCL_OK;
}

bool occl_scribe_hand(struct occl_scribe *scribe, const char *text, size_t bytes) {
    pthread_mutex_lock(&scribe->lock);
    bool fits = bytes <= scribe->room_bytes - scribe->waiting_bytes;
    if (fits) {
        memcpy(scribe->waiting + scribe->waiting_bytes, text, bytes);
        scribe->waiting_bytes += bytes;
    } else {
        scribe->lost++;
    }
    pthread_cond_signal(&scribe->changed);
    pthread_mutex_unlock(&scribe->lock);
    return fits;
}

bool occl_scribe_destroy(struct occl_scribe *scribe, uint64_t wait_ns) {
    struct timespec until;
    int error = 0;
    if (!scribe)
        return true;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t end_ns = (uint64_t)until.tv_nsec + wait_ns;
    until.tv_sec += (time_t)(end_ns / 1000000000u);
    until.tv_nsec = (long)(end_ns % 1000000000u);
    pthread_mutex_lock(&scribe->lock);
    scribe->stop = true;
    pthread_cond_signal(&scribe->changed);
    while (!scribe->over && error == 0)
        error = pthread_cond_timedwait(&scribe->ended, &scribe->lock, &until);
    bool over = scribe->over;
    pthread_mutex_unlock(&scribe->lock);
    if (!over) {
        (void)pthread_detach(scribe->thread);
        return false;
    }
    pthread_join(scribe->thread, NULL);
    release(scribe);
    return true;
}
