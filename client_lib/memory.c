/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: memory that the daemon created and sealed. Own ones come from occl_mem_alloc and from
 * staging (copies of private buffers for peers that cannot pull them); mapped ones belong to other
 * processes of the job and are mapped when a strand first needs them, but for the rooms of
 * copies.c, this process's own among them, which are mapped when a communicator is made. A region
 * is never unmapped while an op refers to it.
 *
 * A thread remembers the regions of its last buffers, so an op of the same buffers takes its uses
 * without the lock: it adds the use, and then looks whether a region has been unmapped since it
 * learned of this one (lib.unmapped). Who unmaps one says so there first and looks at the uses
 * then: so one of the two sees the other. A use that comes too late is taken back at once; it may
 * fall upon a struct that serves another region by then, but always upon a struct of a region: they
 * are not given back to the allocator while the library is attached. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"

/* Buffers that a thread has in use in turn; most have a source and a destination. */
#define REMEMBERED 4
/* How often a late use is waited for before the region counts as used. */
#define LATE_USE_YIELDS 64

struct remembered {
    const char *base;
    uint64_t bytes;
    struct client_region *region;
    uint32_t number;
};
static CLIENT_THREAD_HOT struct remembered remembered[REMEMBERED];
static CLIENT_THREAD_HOT uint32_t remembered_next;
static CLIENT_THREAD_HOT uint32_t remembered_unmapped; /* lib.unmapped then */

static int map_fd(int fd, uint64_t bytes, bool populate, char **out_base) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | (populate ? MAP_POPULATE : 0), fd, 0);
    if (base == MAP_FAILED)
        return client_fail(OCCL_E_NO_MEMORY, "mapping %llu bytes of shared memory failed: %m",
                           (unsigned long long)bytes);
    *out_base = base;
    return OCCL_OK;
}

/* lib.memory is held. Index of the first own region whose base is above ptr. */
static uint32_t own_above(const char *ptr) {
    uint32_t low = 0, high = occl_lib.own_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (occl_lib.own[middle]->base <= ptr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct client_region *find(uint32_t number) {
    struct client_region *region = occl_lib.by_number[number % CLIENT_REGION_BUCKETS];
    while (region && region->number != number)
        region = region->next;
    return region;
}

static void link_number(struct client_region *region) {
    struct client_region **bucket = &occl_lib.by_number[region->number % CLIENT_REGION_BUCKETS];
    region->next = *bucket;
    *bucket = region;
}

static void unlink_number(struct client_region *region) {
    struct client_region **link = &occl_lib.by_number[region->number % CLIENT_REGION_BUCKETS];
    while (*link && *link != region)
        link = &(*link)->next;
    if (*link)
        *link = region->next;
}

static int own_add(struct client_region *region) {
    if (occl_lib.own_count == occl_lib.own_capacity) {
        uint32_t capacity = occl_lib.own_capacity ? occl_lib.own_capacity * 2 : 16;
        struct client_region **grown = realloc(occl_lib.own, capacity * sizeof *grown);
        if (!grown)
            return client_fail(OCCL_E_NO_MEMORY, "no memory for the table of regions");
        occl_lib.own = grown;
        occl_lib.own_capacity = capacity;
    }
    uint32_t at = own_above(region->base);
    memmove(&occl_lib.own[at + 1], &occl_lib.own[at],
            (occl_lib.own_count - at) * sizeof *occl_lib.own);
    occl_lib.own[at] = region;
    occl_lib.own_count++;
    link_number(region);
    return OCCL_OK;
}

static void own_remove(struct client_region *region) {
    uint32_t at = own_above(region->base);
    if (at == 0 || occl_lib.own[at - 1] != region)
        return;
    memmove(&occl_lib.own[at - 1], &occl_lib.own[at],
            (occl_lib.own_count - at) * sizeof *occl_lib.own);
    occl_lib.own_count--;
    unlink_number(region);
}

/* lib.memory is held, or nobody else is there. */
static void retire(struct client_region *region) {
    region->next = occl_lib.retired;
    occl_lib.retired = region;
}

/* A struct whose `users` may still be touched by a thread that remembers its former life. */
static struct client_region *region_new(void) {
    pthread_mutex_lock(&occl_lib.memory);
    struct client_region *region = occl_lib.retired;
    if (region) {
        occl_lib.retired = region->next;
        region->next = NULL;
        region->own = 0;
        occl_note32(&region->gone, 0);
    }
    pthread_mutex_unlock(&occl_lib.memory);
    return region ? region : calloc(1, sizeof *region);
}

static void region_discard(struct client_region *region) {
    pthread_mutex_lock(&occl_lib.memory);
    retire(region);
    pthread_mutex_unlock(&occl_lib.memory);
}

static const struct remembered *remembered_of(const char *ptr, uint64_t bytes) {
    if (remembered_unmapped != occl_observe32(&occl_lib.unmapped))
        return NULL;
    for (uint32_t i = 0; i < REMEMBERED; i++) {
        const struct remembered *r = &remembered[i];
        uint64_t offset = (uint64_t)(ptr - r->base);
        if (r->region && ptr >= r->base && offset <= r->bytes && bytes <= r->bytes - offset)
            return r;
    }
    return NULL;
}

static struct client_region *use_remembered(const char *ptr, uint64_t bytes, uint64_t *out_offset) {
    const struct remembered *r = remembered_of(ptr, bytes);
    if (!r)
        return NULL;
    occl_add32(&r->region->users, 1);
    if (occl_look32(&occl_lib.unmapped) == remembered_unmapped) {
        *out_offset = (uint64_t)(ptr - r->base);
        return r->region;
    }
    client_regions_unuse(&r->region, 1);
    return NULL;
}

bool client_region_place(const void *ptr, uint64_t bytes, struct occl_buffer_ref *out_ref) {
    const struct remembered *r = remembered_of(ptr, bytes);
    if (r) {
        *out_ref = (struct occl_buffer_ref){OCCL_SPACE_REGION, r->number,
                                            (uint64_t)((const char *)ptr - r->base)};
        return true;
    }
    uint64_t offset;
    struct client_region *region = client_region_of(ptr, bytes, &offset);
    if (region) {
        *out_ref = (struct occl_buffer_ref){OCCL_SPACE_REGION, region->number, offset};
        client_regions_unuse(&region, 1);
    }
    return region != NULL;
}

/* lib.memory is held: no region is unmapped meanwhile. */
static void remember(struct client_region *region) {
    uint32_t unmapped = occl_observe32(&occl_lib.unmapped);
    if (remembered_unmapped != unmapped)
        memset(remembered, 0, sizeof remembered);
    remembered_unmapped = unmapped;
    remembered[remembered_next++ % REMEMBERED] =
        (struct remembered){region->base, region->bytes, region, region->number};
}

struct client_region *client_region_of(const void *ptr, uint64_t bytes, uint64_t *out_offset) {
    struct client_region *found = use_remembered(ptr, bytes, out_offset);
    if (found)
        return found;
    pthread_mutex_lock(&occl_lib.memory);
    uint32_t at = own_above(ptr);
    if (at > 0) {
        struct client_region *region = occl_lib.own[at - 1];
        uint64_t offset = (uint64_t)((const char *)ptr - region->base);
        if (offset <= region->bytes && bytes <= region->bytes - offset) {
            occl_add32(&region->users, 1);
            remember(region);
            *out_offset = offset;
            found = region;
        }
    }
    pthread_mutex_unlock(&occl_lib.memory);
    return found;
}

static int free_in_daemon(uint32_t number) {
    struct occl_msg_region_map msg;
    struct occl_msg_reply reply;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION_FREE, 0);
    msg.region = number;
    int status = client_rpc_call(&msg, sizeof msg, -1, &reply, OCCL_MSG_REPLY, NULL);
    return status ? status : reply.detail.status;
}

int client_region_alloc(uint64_t bytes, struct client_region **out_region) {
    struct occl_msg_region_alloc msg;
    struct occl_msg_region reply;
    int fds[OCCL_MESSAGE_FDS_MAX];
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION_ALLOC, 0);
    msg.bytes = bytes;
    msg.flags = occl_lib.welcome.huge_pages && bytes >= OCCL_HUGE_PAGE_BYTES ? OCCL_REGION_HUGE : 0;
    reply.region = 0;
    int status = client_rpc_call(&msg, sizeof msg, -1, &reply, OCCL_MSG_REGION, fds);
    if (status && reply.region) /* it was made, and its descriptor found no room */
        (void)free_in_daemon(reply.region);
    if (status)
        return status;
    struct client_region *region = region_new();
    char *base = NULL;
    if (!region)
        status = client_fail(OCCL_E_NO_MEMORY, "no memory for a region");
    else
        status = map_fd(fds[0], reply.bytes, true, &base);
    if (fds[0] >= 0)
        (void)close(fds[0]);
    if (status)
        goto give_back;
    occl_note32(&region->number, reply.region);
    region->own = 1;
    region->base = base;
    region->bytes = reply.bytes;
    pthread_mutex_lock(&occl_lib.memory);
    status = own_add(region);
    pthread_mutex_unlock(&occl_lib.memory);
    if (status) {
        (void)munmap(base, reply.bytes);
        goto give_back;
    }
    *out_region = region;
    return OCCL_OK;
give_back:
    if (region)
        region_discard(region);
    (void)free_in_daemon(reply.region); /* the first error is the one to report */
    return status;
}

int client_region_release(struct client_region *region, uint32_t own_uses) {
    pthread_mutex_lock(&occl_lib.memory);
    occl_add32(&region->users, 0 - own_uses);
    occl_add32(&occl_lib.unmapped, 1);
    uint32_t users = occl_look32(&region->users);
    for (uint32_t i = 0; users && i < LATE_USE_YIELDS; i++) {
        (void)sched_yield(); /* cannot fail on Linux */
        users = occl_look32(&region->users);
    }
    void *base = region->base;
    if (users == 0)
        own_remove(region);
    pthread_mutex_unlock(&occl_lib.memory);
    if (users)
        return client_fail(OCCL_E_USAGE, "memory %p is in use by %u operations", base, users);
    (void)munmap(region->base, region->bytes);
    int status = free_in_daemon(region->number);
    region_discard(region);
    return status;
}

/* ---- regions of the job's other processes ---- */

static struct client_region *find_and_use(uint32_t number) {
    pthread_mutex_lock(&occl_lib.memory);
    struct client_region *region = find(number);
    if (region)
        occl_add32(&region->users, 1);
    pthread_mutex_unlock(&occl_lib.memory);
    return region;
}

/* Why the daemon did not hand it out: if there is no such region, the member that named it is at
 * fault, else this process. */
static int why_not_mapped(int status) {
    bool own = status == OCCL_E_NO_MEMORY || status == OCCL_E_DAEMON_LOST ||
               status == OCCL_E_QUARANTINED || status == OCCL_E_CANCELED;
    return own ? status : OCCL_E_FAULT;
}

static struct client_region *map_peer(uint32_t number, int *out_status) {
    struct occl_msg_region_map msg;
    struct occl_msg_region reply;
    int fds[OCCL_MESSAGE_FDS_MAX];
    char *base = NULL;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION_MAP, 0);
    msg.region = number;
    int status = client_rpc_call(&msg, sizeof msg, -1, &reply, OCCL_MSG_REGION, fds);
    if (status) {
        *out_status = why_not_mapped(status);
        return NULL;
    }
    struct client_region *region = region_new();
    status = region ? map_fd(fds[0], reply.bytes, true, &base)
                    : client_fail(OCCL_E_NO_MEMORY, "no memory for a region");
    if (fds[0] >= 0)
        (void)close(fds[0]);
    if (status) {
        if (region)
            region_discard(region);
        *out_status = status;
        return NULL;
    }
    occl_note32(&region->number, number);
    region->base = base;
    region->bytes = reply.bytes;
    return region;
}

/* Mapped without access at first: a process that locks its future mappings (mlockall) would bring
 * all pages of all rooms into being with the mapping, and could not give them back. */
static char *map_unlocked(int fd, uint64_t bytes) {
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return NULL;
    (void)munlock(base, bytes); /* cannot fail for what was just mapped */
    if (mprotect(base, bytes, PROT_READ | PROT_WRITE) == 0)
        return base;
    (void)munmap(base, bytes);
    return NULL;
}

void client_region_adopt(uint32_t number, int fd, uint64_t bytes) {
    struct client_region *region = region_new();
    char *base = region ? map_unlocked(fd, bytes) : NULL;
    if (!base) {
        if (region)
            region_discard(region);
        return;
    }
    occl_note32(&region->number, number);
    region->base = base;
    region->bytes = bytes;
    pthread_mutex_lock(&occl_lib.memory);
    bool known = find(number) != NULL;
    if (!known)
        link_number(region);
    pthread_mutex_unlock(&occl_lib.memory);
    if (known) {
        (void)munmap(base, bytes);
        region_discard(region);
    }
}

struct client_region *client_region_map(uint32_t number, int *out_status) {
    struct client_region *region = find_and_use(number);
    if (region)
        return region;
    struct client_region *fresh = map_peer(number, out_status);
    if (!fresh)
        return NULL;
    pthread_mutex_lock(&occl_lib.memory);
    region = find(number); /* another thread may have been faster */
    if (!region) {
        region = fresh;
        link_number(fresh);
        fresh = NULL;
    }
    occl_add32(&region->users, 1);
    pthread_mutex_unlock(&occl_lib.memory);
    if (fresh) {
        (void)munmap(fresh->base, fresh->bytes);
        region_discard(fresh);
    }
    return region;
}

/* lib.memory is held, or nobody else is there. */
static void mapped_drop(struct client_region *region) {
    unlink_number(region);
    (void)munmap(region->base, region->bytes);
    retire(region);
}

/* Whoever sees the last use of a region end that is gone drops it: a user or, here, the reader
 * thread that hears of its end. */
static void drop_unused(uint32_t number) {
    pthread_mutex_lock(&occl_lib.memory);
    struct client_region *region = find(number);
    if (region && occl_look32(&region->gone) && occl_look32(&region->users) == 0)
        mapped_drop(region);
    pthread_mutex_unlock(&occl_lib.memory);
}

void client_regions_unuse(struct client_region *const *regions, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!regions[i])
            continue;
        uint32_t number = occl_peek32(&regions[i]->number);
        if (occl_add32(&regions[i]->users, UINT32_MAX) == 1 && occl_look32(&regions[i]->gone))
            drop_unused(number);
    }
}

void client_region_gone(uint32_t number) {
    pthread_mutex_lock(&occl_lib.memory);
    struct client_region *region = find(number);
    if (region)
        occl_add32(&region->gone, 1);
    pthread_mutex_unlock(&occl_lib.memory);
    drop_unused(number);
}

void client_regions_measure(uint64_t *out_own, uint64_t *out_mapped) {
    *out_own = *out_mapped = 0;
    pthread_mutex_lock(&occl_lib.memory);
    for (uint32_t b = 0; b < CLIENT_REGION_BUCKETS; b++)
        for (const struct client_region *r = occl_lib.by_number[b]; r; r = r->next)
            *(r->own ? out_own : out_mapped) += r->bytes;
    pthread_mutex_unlock(&occl_lib.memory);
}

/* The daemon frees everything with the session; here only the mappings go. */
void client_memory_stop(void) {
    free(occl_lib.own);
    occl_lib.own = NULL;
    occl_lib.own_count = occl_lib.own_capacity = 0;
    client_stage_stop();
    client_copies_stop();
    for (uint32_t b = 0; b < CLIENT_REGION_BUCKETS; b++)
        while (occl_lib.by_number[b])
            mapped_drop(occl_lib.by_number[b]);
    occl_add32(&occl_lib.unmapped, 1); /* threads remember nothing of what follows */
    while (occl_lib.retired) {
        struct client_region *region = occl_lib.retired;
        occl_lib.retired = region->next;
        free(region);
    }
}
