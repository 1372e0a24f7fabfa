/* SPDX-License-Identifier: Apache-2.0 */
/* One received datagram: is it what the protocol allows now, and whose is it? The datagram lies in
 * the loop's private inbox: nobody changes it any more. */
#include <string.h>

#include "daemon/occld.h"

static void protocol_error(struct occl_session *session, uint64_t request,
                           const struct occl_detail *detail) {
    session->daemon->counters.protocol_total++;
    occl_session_reply_detail(session, request, detail);
    occl_session_end(session, OCCL_CAUSE_PROTOCOL, "%s", detail->text);
}

/* A HELLO of another version may have another size; both ranges lie behind the header in all of
 * them, so that the refusal can name them. */
static bool refuse_other_version(struct occl_session *session, uint32_t bytes) {
    struct occl_msg_hello hello;
    const size_t common = offsetof(struct occl_msg_hello, role);
    if (bytes < common || bytes == sizeof hello)
        return false;
    memset(&hello, 0, sizeof hello);
    memcpy(&hello, session->daemon->inbox, common);
    if (hello.h.magic != OCCL_WIRE_MAGIC || hello.h.type != OCCL_MSG_HELLO ||
        (hello.abi_min <= OCCL_ABI_VERSION && hello.abi_max >= OCCL_ABI_VERSION_MIN))
        return false;
    occl_hello_handle(session, &hello);
    return true;
}

static void dispatch_stray(struct occl_session *session, uint32_t bytes) {
    const void *inbox = session->daemon->inbox;
    const struct occl_msg_header *header = inbox;
    struct occl_detail detail;
    if (refuse_other_version(session, bytes))
        return;
    if (occl_msg_check(inbox, bytes, &detail) != OCCL_OK) {
        protocol_error(session, 0, &detail);
        return;
    }
    if (header->type != OCCL_MSG_HELLO) {
        (void)occl_detail_set(&detail, OCCL_E_PROTOCOL, 0, "expected HELLO first, found %s",
                              occl_msg_name(header->type));
        protocol_error(session, header->request, &detail);
        return;
    }
    occl_hello_handle(session, inbox);
}

static void dispatch_rank(struct occl_session *session, const struct occl_msg_header *header) {
    const void *msg = header;
    struct occl_detail detail;
    switch (header->type) {
    case OCCL_MSG_REGION_ALLOC:
        occl_region_handle_alloc(session, msg);
        return;
    case OCCL_MSG_REGION_MAP:
        occl_region_handle_map(session, msg);
        return;
    case OCCL_MSG_REGION_FREE:
        occl_region_handle_free(session, msg);
        return;
    case OCCL_MSG_COMM_CREATE:
        occl_rendezvous_handle(session, msg);
        return;
    case OCCL_MSG_COMM_SPLIT:
        occl_split_handle(session, msg);
        return;
    case OCCL_MSG_COMM_END:
        occl_comm_handle_end(session, msg);
        return;
    case OCCL_MSG_MEMBERS:
        occl_comm_handle_members(session, msg);
        return;
    case OCCL_MSG_ROOMS:
        occl_room_handle(session, msg);
        return;
    case OCCL_MSG_DOORBELL:
        occl_engine_kick(session->daemon->engine, session->id);
        return;
    case OCCL_MSG_DETACH:
        occl_session_reply(session, header->request, OCCL_OK, "detached");
        occl_session_end(session, OCCL_CAUSE_DETACHED, "said goodbye");
        return;
    case OCCL_MSG_ADMIN:
        occl_admin_handle(session, msg);
        return;
    default:
        (void)occl_detail_set(&detail, OCCL_E_PROTOCOL, 0, "a client may not send %s",
                              occl_msg_name(header->type));
        protocol_error(session, header->request, &detail);
    }
}

void occl_dispatch(struct occl_session *session, uint32_t bytes) {
    const void *inbox = session->daemon->inbox;
    const struct occl_msg_header *header = inbox;
    struct occl_detail detail;
    if (session->phase == OCCL_PHASE_STRAY) {
        dispatch_stray(session, bytes);
        return;
    }
    if (occl_msg_check(inbox, bytes, &detail) != OCCL_OK) {
        protocol_error(session, 0, &detail);
        return;
    }
    if (header->request == 0 && header->type != OCCL_MSG_DOORBELL) {
        (void)occl_detail_set(&detail, OCCL_E_PROTOCOL, 0, "%s: expected a request number, found 0",
                              occl_msg_name(header->type));
        protocol_error(session, 0, &detail);
        return;
    }
    if (session->admin && header->type != OCCL_MSG_ADMIN && header->type != OCCL_MSG_DETACH) {
        (void)occl_detail_set(&detail, OCCL_E_PROTOCOL, 0,
                              "an administration session may send ADMIN only, found %s",
                              occl_msg_name(header->type));
        protocol_error(session, header->request, &detail);
        return;
    }
    dispatch_rank(session, header);
}
