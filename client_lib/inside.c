/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads are inside a communicator: its page stays mapped until none is.
 *
 * Each thread counts itself in before it looks whether its handle is still valid, and whoever ends
 * the communicator makes the handle invalid before it looks at the counts: one of the two sees the
 * other. That takes an atomic addition on both ways, which on the hot path is as long as a hundred
 * other instructions. So the thread that first creates a communicator in a slot of the table owns
 * the slot's other count, which only it writes, with plain stores; the order that they lack is made
 * by the one who looks (client_comm_users), with a barrier in all threads of the process
 * (membarrier(2)). Where the system has none, nobody owns anything.
 *
 * A thread that only asks, for a number, an error or a memory statistic, is counted apart: the page
 * stays for it, but it has no op that a suspension, or a payload chunk, would have to mind. */
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client_lib/client.h"

#define FORBIDDEN_NAP_NS 10000000ull

/* No other thread that lives has the same: a thread that is created later, in the memory of one
 * that has ended, may take over what that one owned. */
static uint64_t this_thread(void) {
    return (uintptr_t)&client_ranges;
}

static long barrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0);
}

/* As long as the process has one thread the kernel enters it at once; later it first waits until
 * all processors have passed a point of quiet, 8 to 20 ms. */
void client_inside_start(void) {
    /* Refused: whoever needs it asks again, and does without. */
    (void)barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

void client_comm_adopt(struct client_comm *comm) {
    if (comm->owner == 0 && barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
        occl_publish64(&comm->owner, this_thread());
}

void client_comm_hold(struct client_comm *comm) {
    if (occl_peek64(&comm->owner) == this_thread()) {
        occl_note32(&comm->owner_refs, comm->owner_refs + 1);
        occl_light_fence();
    } else {
        occl_add32(&comm->refs, 1);
    }
}

void client_comm_put(struct client_comm *comm) {
    if (occl_peek64(&comm->owner) == this_thread())
        occl_publish32(&comm->owner_refs, comm->owner_refs - 1);
    else
        occl_add32(&comm->refs, UINT32_MAX);
}

static struct client_comm *entry_at(uint32_t index, uint32_t generation) {
    bool used = (generation & 1) && index < occl_observe32(&occl_lib.comms_used);
    return used ? occl_lib.comms[index] : NULL;
}

struct client_comm *client_comm_ref(uint32_t index, uint32_t generation) {
    struct client_comm *comm = entry_at(index, generation);
    if (!comm)
        return NULL;
    client_comm_hold(comm);
    if (occl_observe32(&comm->generation) == generation)
        return comm;
    client_comm_put(comm);
    return NULL;
}

void client_comm_answered(struct client_comm *comm) {
    occl_add32(&comm->asking, UINT32_MAX);
}

struct client_comm *client_comm_ask_ref(uint32_t index, uint32_t generation) {
    struct client_comm *comm = entry_at(index, generation);
    if (!comm)
        return NULL;
    occl_add32(&comm->asking, 1);
    if (occl_look32(&comm->generation) == generation) /* Dekker with who ends it */
        return comm;
    client_comm_answered(comm);
    return NULL;
}

static int fail_stale(struct occl_comm handle) {
    return client_fail(OCCL_E_HANDLE, "communicator 0x%llx is stale or was never given out",
                       (unsigned long long)handle.handle);
}

struct client_comm *client_comm_get(struct occl_comm handle, int *out_status) {
    *out_status = client_enter();
    if (*out_status)
        return NULL;
    struct client_comm *comm =
        client_comm_ref((uint32_t)handle.handle, (uint32_t)(handle.handle >> 32));
    if (!comm)
        *out_status = fail_stale(handle);
    return comm;
}

struct client_comm *client_comm_ask(struct occl_comm handle, int *out_status) {
    *out_status = client_enter();
    if (*out_status)
        return NULL;
    struct client_comm *comm =
        client_comm_ask_ref((uint32_t)handle.handle, (uint32_t)(handle.handle >> 32));
    if (!comm)
        *out_status = fail_stale(handle);
    return comm;
}

struct client_comm *client_comm_of_op(const struct client_op *op) {
    return client_comm_ref(op->comm->index, op->comm_generation);
}

void client_comm_order(const struct client_comm *comm) {
    /* Registered, so it fails only if it was forbidden since. Stores leave a processor within
     * microseconds. */
    if (occl_peek64(&comm->owner) && barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
        occl_clock_sleep_ns(&occl_lib.clock, FORBIDDEN_NAP_NS);
}

uint32_t client_comm_users(const struct client_comm *comm) {
    client_comm_order(comm);
    return client_comm_users_seen(comm) + occl_look32(&comm->asking);
}
