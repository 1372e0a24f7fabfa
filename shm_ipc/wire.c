/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/wire.h"

#include <string.h>

struct kind {
    const char *name;
    uint32_t bytes;
};

#define KIND(type, body) [OCCL_MSG_##type] = {#type, sizeof(struct occl_msg_##body)}
static const struct kind kinds[] = {
    KIND(HELLO, hello),
    KIND(WELCOME, welcome),
    KIND(REPLY, reply),
    KIND(REGION_ALLOC, region_alloc),
    KIND(REGION_MAP, region_map),
    KIND(REGION_FREE, region_map),
    KIND(REGION, region),
    KIND(COMM_CREATE, comm_create),
    KIND(COMM_SPLIT, comm_split),
    KIND(COMM, comm),
    KIND(COMM_END, comm_end),
    KIND(MEMBERS, members),
    KIND(MEMBERS_REPLY, members_reply),
    KIND(DOORBELL, plain),
    KIND(DETACH, plain),
    KIND(ADMIN, admin),
    KIND(ADMIN_REPLY, admin_reply),
    KIND(EVENT, event),
    KIND(ROOMS, rooms),
    KIND(ROOMS_REPLY, rooms_reply),
};
_Static_assert(sizeof kinds / sizeof *kinds == OCCL_MSG_ROOMS_REPLY + 1,
               "a row for every message type");
_Static_assert(sizeof(struct occl_msg_admin) <= OCCL_MESSAGE_BYTES_MAX, "fits a message");

uint32_t occl_msg_bytes(uint32_t type) {
    return type < sizeof kinds / sizeof *kinds ? kinds[type].bytes : 0;
}

const char *occl_msg_name(uint32_t type) {
    return occl_msg_bytes(type) ? kinds[type].name : "UNKNOWN";
}

void occl_msg_init(struct occl_msg_header *h, uint32_t type, uint64_t request) {
    memset(h, 0, sizeof *h);
    h->magic = OCCL_WIRE_MAGIC;
    h->type = (uint16_t)type;
    h->abi_version = OCCL_ABI_VERSION;
    h->bytes = occl_msg_bytes(type);
    h->request = request;
}

int occl_msg_check(const void *datagram, uint32_t bytes, struct occl_detail *detail) {
    struct occl_msg_header h;
    if (bytes < sizeof h)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "message of %u bytes: shorter than its header of %zu", bytes,
                               sizeof h);
    memcpy(&h, datagram, sizeof h);
    if (h.magic != OCCL_WIRE_MAGIC)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "message magic %#x: expected %#x",
                               h.magic, OCCL_WIRE_MAGIC);
    uint32_t expected = occl_msg_bytes(h.type);
    if (expected == 0)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "message type %u: unknown", h.type);
    if (h.bytes != bytes || bytes != expected)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                               "message %s: received %u bytes, header says %u, expected %u",
                               kinds[h.type].name, bytes, h.bytes, expected);
    if (h.reserved != 0)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "message %s: reserved field %#x, not 0",
                               kinds[h.type].name, h.reserved);
    return OCCL_OK;
}

static int is_name_character(unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._:@/-", c) != NULL);
}

int occl_name_check(const char *name, uint32_t bytes, const char *what,
                    struct occl_detail *detail) {
    uint32_t length = (uint32_t)strnlen(name, bytes);
    if (length == bytes)
        return occl_detail_set(detail, OCCL_E_PROTOCOL, 0, "%s: not terminated within %u bytes",
                               what, bytes);
    for (uint32_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (!is_name_character(c))
            return occl_detail_set(detail, OCCL_E_PROTOCOL, 0,
                                   "%s: byte %#x at position %u is not of A-Za-z0-9._:@/-", what, c,
                                   i);
    }
    return OCCL_OK;
}
