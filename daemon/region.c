/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: memory of a job that its processes and the lanes share. The daemon makes and seals the
 * memfd, charges it, and never touches its pages: the owner populates it. (Some are rooms, room.c.)
 * A region ends when its owner frees it or ends; then lanes forget it, those who mapped it are told
 * to unmap, and its pages are given back at once by a hole, so that a peer which keeps its mapping
 * keeps nothing of ours (huge pages are spared the hole: a later touch there would be a bus error
 * in an innocent peer). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/occld.h"

#define MAPPERS_FIRST 8

static struct occl_region *find_region(struct occl_job *job, uint32_t number) {
    struct occl_region *region;
    HASH_FIND(in_job, job->regions, &number, sizeof number, region);
    return region;
}

static void send_region(struct occl_session *session, uint64_t request,
                        const struct occl_region *region) {
    struct occl_msg_region msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION, request);
    msg.bytes = region->memfd.bytes;
    msg.region = region->number;
    msg.huge = region->memfd.huge;
    occl_session_send(session, &msg, sizeof msg, &region->memfd.fd, 1);
}

/* Makes memfd, mapping and engine part. The size is charged before anything is made. */
static int furnish(struct occl_region *region, uint64_t bytes, uint32_t flags,
                   struct occl_detail *detail) {
    struct occl_tenant *tenant = region->job->tenant;
    char name[32];
    int status = occl_tenant_charge(tenant, bytes, "a memory region", detail);
    if (status != OCCL_OK)
        return status;
    (void)snprintf(name, sizeof name, "occl-region-%u", region->number);
    status = occl_memfd_create(name, bytes, flags, &region->memfd, detail);
    if (status != OCCL_OK)
        goto give_charge;
    /* Whole huge pages may be more than was charged. */
    if (region->memfd.bytes > bytes) {
        status = occl_tenant_charge(tenant, region->memfd.bytes - bytes, "a memory region", detail);
        if (status != OCCL_OK)
            goto close_memfd;
        bytes = region->memfd.bytes;
    }
    status = occl_memfd_map(region->memfd.fd, bytes, OCCL_MAP_WRITE, &region->base, detail);
    if (status != OCCL_OK)
        goto close_memfd;
    status = occl_engine_region_add(tenant->daemon->engine, region->job->id, region->number,
                                    region->base, bytes);
    if (status == OCCL_OK)
        return OCCL_OK;
    (void)occl_detail_set(detail, status, 0, "the engine has no room for a region");
    occl_memfd_unmap(region->base, bytes);
close_memfd:
    occl_memfd_close(&region->memfd);
give_charge:
    occl_tenant_uncharge(tenant, bytes);
    return status;
}

int occl_region_make(struct occl_session *owner, uint64_t bytes, uint32_t flags,
                     struct occl_region **out_region, struct occl_detail *detail) {
    struct occl_job *job = owner->job;
    struct occl_region *region = calloc(1, sizeof *region);
    if (!region)
        return occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a region");
    region->job = job;
    region->owner = owner;
    region->number = ++job->next_region;
    bool listed = occl_table_add_region(job, region);
    int status = listed ? furnish(region, bytes, flags, detail)
                        : occl_detail_set(detail, OCCL_E_NO_MEMORY, 0, "no memory for a region");
    if (status != OCCL_OK) {
        if (listed)
            HASH_DELETE(in_job, job->regions, region);
        free(region);
        return status;
    }
    job->registered_bytes += region->memfd.bytes;
    *out_region = region;
    return OCCL_OK;
}

void occl_region_handle_alloc(struct occl_session *session,
                              const struct occl_msg_region_alloc *msg) {
    struct occl_tenant *tenant = session->job->tenant;
    struct occl_detail detail;
    uint64_t request = msg->h.request;
    uint64_t bytes = (msg->bytes + OCCL_PAGE_BYTES - 1) / OCCL_PAGE_BYTES * OCCL_PAGE_BYTES;
    if (msg->bytes == 0 || bytes < msg->bytes) {
        occl_session_reply(session, request, OCCL_E_INVALID,
                           "region of %llu bytes: expected at least 1 byte and less than 2^64",
                           (unsigned long long)msg->bytes);
        return;
    }
    if ((msg->flags & ~(uint32_t)OCCL_REGION_HUGE) || msg->reserved) {
        occl_session_reply(session, request, OCCL_E_INVALID,
                           "region flags: expected 0 or 1, found %#x", msg->flags);
        return;
    }
    if (session->daemon->draining) {
        occl_session_reply(session, request, OCCL_E_SHUTTING_DOWN, "the daemon is shutting down");
        return;
    }
    if (tenant->regions >= tenant->quota_regions) {
        occl_session_reply(session, request, OCCL_E_QUOTA,
                           "tenant %s has %llu of at most %llu regions (quota_regions)",
                           tenant->text, (unsigned long long)tenant->regions,
                           (unsigned long long)tenant->quota_regions);
        return;
    }
    struct occl_region *region;
    uint32_t flags = msg->flags & OCCL_REGION_HUGE ? OCCL_MEMFD_HUGE : 0;
    if (occl_region_make(session, bytes, flags, &region, &detail) != OCCL_OK) {
        occl_session_reply_detail(session, request, &detail);
        return;
    }
    tenant->regions++;
    send_region(session, request, region);
}

bool occl_region_mapped_by(const struct occl_region *region, uint64_t session_id) {
    for (uint32_t i = 0; i < region->mapper_count; i++)
        if (region->mappers[i] == session_id)
            return true;
    return false;
}

bool occl_region_add_mapper(struct occl_region *region, uint64_t session_id) {
    if (occl_region_mapped_by(region, session_id))
        return true;
    if (region->mapper_count == region->mapper_room) {
        uint32_t room = region->mapper_room ? region->mapper_room * 2 : MAPPERS_FIRST;
        uint64_t *mappers = realloc(region->mappers, room * sizeof *mappers);
        if (!mappers)
            return false;
        region->mappers = mappers;
        region->mapper_room = room;
    }
    region->mappers[region->mapper_count++] = session_id;
    return true;
}

void occl_region_handle_map(struct occl_session *session, const struct occl_msg_region_map *msg) {
    struct occl_region *region = find_region(session->job, msg->region);
    if (!region) {
        occl_session_reply(session, msg->h.request, OCCL_E_NOT_FOUND,
                           "region %u does not exist in job %s: it was freed or its owner is gone",
                           msg->region, session->job->name);
        return;
    }
    if (region->owner != session && !occl_region_add_mapper(region, session->id)) {
        occl_session_reply(session, msg->h.request, OCCL_E_NO_MEMORY,
                           "no memory to share region %u", msg->region);
        return;
    }
    send_region(session, msg->h.request, region);
}

static void tell_mappers(const struct occl_region *region) {
    for (uint32_t i = 0; i < region->mapper_count; i++) {
        struct occl_session *peer =
            occl_session_find(region->job->tenant->daemon, region->mappers[i]);
        if (peer)
            occl_session_event(peer, OCCL_EVENT_REGION_GONE, region->number, OCCL_RANK_NONE,
                               (uint32_t)region->owner->pid, OCCL_OK, "");
    }
}

static void end_region(struct occl_region *region) {
    struct occl_job *job = region->job;
    struct occl_tenant *tenant = job->tenant;
    /* After this no lane reads or writes it. */
    occl_engine_region_remove(tenant->daemon->engine, job->id, region->number);
    occl_memfd_unmap(region->base, region->memfd.bytes);
    tell_mappers(region);
    /* When it is the daemon that ends, its owner lives on with what it has there. */
    if (!region->memfd.huge && region->owner->cause != OCCL_CAUSE_SHUTDOWN)
        (void)fallocate(region->memfd.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        (off_t)region->memfd.bytes);
    job->registered_bytes -= region->memfd.bytes;
    occl_tenant_uncharge(tenant, region->memfd.bytes);
    if (region->owner->room == region)
        occl_room_gone(region->owner);
    else
        tenant->regions--;
    occl_memfd_close(&region->memfd);
    HASH_DELETE(in_job, job->regions, region);
    free(region->mappers);
    free(region);
}

static void drop_mapper(struct occl_region *region, uint64_t session_id) {
    for (uint32_t i = 0; i < region->mapper_count; i++)
        if (region->mappers[i] == session_id)
            region->mappers[i] = region->mappers[--region->mapper_count];
}

void occl_region_handle_free(struct occl_session *session, const struct occl_msg_region_map *msg) {
    struct occl_region *region = find_region(session->job, msg->region);
    if (!region) {
        occl_session_reply(session, msg->h.request, OCCL_E_NOT_FOUND,
                           "region %u does not exist in job %s", msg->region, session->job->name);
        return;
    }
    /* A peer that unmapped it is not told of its end any more. */
    if (region->owner != session)
        drop_mapper(region, session->id);
    else
        end_region(region);
    occl_session_reply(session, msg->h.request, OCCL_OK, "freed");
}

void occl_region_session_gone(struct occl_session *session) {
    struct occl_region *region;
    struct occl_region *next;
    HASH_ITER (in_job, session->job->regions, region, next) {
        if (region->owner == session)
            end_region(region);
        else
            drop_mapper(region, session->id);
    }
}
