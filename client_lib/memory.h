/* SPDX-License-Identifier: Apache-2.0 */
/* Where bytes are: regions, staging copies, how peers reach this rank's buffers, and how this rank
 * reaches theirs. */
#ifndef CLIENT_LIB_MEMORY_H
#define CLIENT_LIB_MEMORY_H

#include <sys/types.h>

#include "client_lib/client.h"

/* memory.c */
struct client_region *client_region_of(const void *ptr, uint64_t bytes, uint64_t *out_offset);
/* The same without a use: whoever reaches for the place takes one, and may find the region gone. */
bool client_region_place(const void *ptr, uint64_t bytes, struct occl_buffer_ref *out_ref);
/* Takes a use; may ask the daemon. NULL: *out_status is OCCL_E_FAULT if whoever named the region is
 * at fault, else what keeps this process from mapping it. */
struct client_region *client_region_map(uint32_t number, int *out_status);
/* Gives back uses; NULL entries are passed over. */
void client_regions_unuse(struct client_region *const *regions, uint32_t count);
void client_region_gone(uint32_t number);
int client_region_alloc(uint64_t bytes, struct client_region **out_region);
/* Maps a region of the job whose descriptor came unasked, unless it is mapped already or cannot be:
 * then client_region_map has to ask for it. Its pages come into being as they are used. */
void client_region_adopt(uint32_t number, int fd, uint64_t bytes);
/* own_uses: the caller's own, which end. OCCL_E_USAGE: others are left, and the region stays. */
int client_region_release(struct client_region *region, uint32_t own_uses);
/* Bytes of own regions, and of those of others that are mapped. */
void client_regions_measure(uint64_t *out_own, uint64_t *out_mapped);
void client_memory_stop(void);

/* A copy of a private buffer in shared memory: a piece of a region of staging, or of copies.c. */
struct client_stage {
    struct client_region *region;
    uint64_t offset;
    char *base;
    uint32_t class_index;
    uint32_t units;            /* of copies.c; 0: of stage.c */
    struct client_stage *next; /* free list */
};

/* stage.c: room for a copy of at least bytes; NULL with the error text. */
struct client_stage *client_stage_get(uint64_t bytes);
void client_stage_put(struct client_stage *stage);
/* Never used again: somebody who is stopped may still write into it. It goes with the attachment.
 */
void client_stage_quarantine(struct client_stage *stage);
/* Gives large unused copies back to the system. */
void client_stage_trim(void);
uint64_t client_stage_bytes(void); /* of all of these, used and unused */
void client_stage_stop(void);

/* copies.c: the daemon gave this process a room, which is mapped. Again is harmless. False: no
 * memory. */
bool client_copies_open(struct client_region *room);
/* NULL: no room. Never blocks on others. What is not given back is never used again. */
struct client_stage *client_copies_take(uint64_t bytes);
void client_copies_put(struct client_stage *stage);
/* Gives the pages of unused room back to the system. */
void client_copies_trim(void);
uint64_t client_copies_bytes(void); /* that have pages */
uint64_t client_copies_room(void);  /* what it has room for, which is charged to the tenant */
void client_copies_stop(void);

/* buffers.c: where the peers find this rank's buffers; copies when they cannot be reached, or where
 * that is quicker. */
/* input: also the one it reads; a payload chunk stands for it. */
int client_refer(struct client_op *op, bool input, bool must_share);
/* For a blocking call whose payload is in a chunk, and which will most probably get its result from
 * chunks, too: says where its result goes and holds nothing, as the smallest ops do. False: call
 * client_refer. */
bool client_refer_briefly(struct client_op *op);
/* Gives back what client_refer took; with copy_out the staged result goes to the caller first. What
 * it returns is not OCCL_OK if that was no result any more. */
int client_unrefer(struct client_op *op, bool copy_out);
/* There is something to be given back. */
static inline bool client_refers(const struct client_op *op) {
    return op->src_region || op->dst_region || op->stage_in || op->stage_out || op->stage_vector;
}

/* collect.c: the receiver of a copy between two processes brings the result to the caller's buffer
 * while the source executes it. True: the record is decided; false: this rank is to execute. */
bool client_collect(struct client_op *op);
/* This rank is such a source: its own thread is going to execute the op. */
bool client_source_executes(const struct client_op *op);

/* touch.c: is the range mapped and accessible? Cached; a system call on a miss. */
bool client_range_look_up(uintptr_t from, uintptr_t to, bool write);
static inline bool client_range_ok(const void *ptr, uint64_t bytes, bool write) {
    uintptr_t from = (uintptr_t)ptr, to = from + bytes;
    const struct client_range *last = &client_ranges.last[write];
    return (last->from <= from && from <= to && to <= last->to &&
            client_ranges.unmapped == occl_peek32(&occl_lib.unmapped)) ||
           client_range_look_up(from, to, write);
}
/* The same: whether a range that was found accessible consists of huge pages: a hint. */
enum client_pages { CLIENT_PAGES_UNKNOWN = 0, CLIENT_PAGES_SMALL = 1, CLIENT_PAGES_HUGE = 2 };
bool client_range_huge(const void *ptr, uint64_t bytes);
/* pages.c: the same for whole pages, asked of the kernel. */
bool client_pages_are_huge(uintptr_t from, uintptr_t to);

/* reach.c: from (write: to) memory of another process of the job, as process_vm_readv and
 * process_vm_writev do it: how many bytes, or -1 and errno. ESRCH: it has no thread any more;
 * EMFILE: its first thread has ended, and the others could not be listed. */
ssize_t client_reach(pid_t process, void *local, uint64_t address, uint64_t bytes, bool write);
/* remote.c: strands that follow each other, some of whose buffers are in other processes' private
 * memory. */
struct client_side {
    char *ptr;       /* in this address space, or NULL */
    uint64_t remote; /* address in process pid; pid 0: no such buffer */
    uint32_t pid;
    uint32_t member;
};
int client_remote_strands(const struct client_comm *comm, const struct occl_local_plan *plan,
                          uint32_t index, uint32_t strands, const struct client_side *inputs,
                          const struct client_side *outputs, const uint64_t *factors,
                          uint32_t *out_member);

#endif
