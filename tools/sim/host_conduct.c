/* SPDX-License-Identifier: Apache-2.0 */
/* What a process does when its time has come: the next thing of its job's plan, chosen by the seed
 * among those that are possible; now and then something beside the plan; at last it leaves. And
 * what befalls it after so many steps. */
#include <stdio.h>
#include <string.h>

#include "tools/sim/host.h"

#define PAUSE_MAX_NS 60000u
#define STOP_MAX_NS 5000000u
#define DEAF_MAX_NS 30000000u
#define UNKILLABLE_MAX_NS 900000000u
#define ASIDE_PERMILLE 120
#define EARLY_END_PERMILLE 60
#define TERM_WITH_HELLO_PERMILLE 100
#define EARLY_LEAVE_PERMILLE 200
#define CHOICES_MAX 128u

enum deed {
    DEED_ALLOC,
    DEED_CREATE,
    DEED_OP,
    DEED_SPLIT,
    DEED_DESTROY,
    DEED_FREE,
};
struct choice {
    enum deed deed;
    uint32_t meet, rank, which;
    struct sim_hcomm *comm;
};
struct choices {
    struct choice list[CHOICES_MAX];
    uint32_t count;
    bool more; /* something of the plan is left that is not possible yet */
};

static struct sim_hjob *job_of(struct sim_host *host, const struct sim_process *process) {
    return &host->jobs[process->job];
}

static void add(struct choices *c, struct choice choice) {
    if (c->count < CHOICES_MAX)
        c->list[c->count++] = choice;
}

/* ---- requests ---- */

static void say_hello(struct sim_host *host, struct sim_process *process) {
    const struct sim_hjob *job = job_of(host, process);
    struct occl_msg_hello msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_HELLO, 1);
    msg.abi_min = OCCL_ABI_VERSION_MIN;
    msg.abi_max = OCCL_ABI_VERSION;
    msg.role = OCCL_ROLE_RANK;
    msg.sq_entries = SIM_SQ_ENTRIES;
    msg.rank_hint = (int32_t)process->rank;
    msg.own_pid = process->pid;
    (void)snprintf(msg.job, sizeof msg.job, "%s", job->name);
    (void)snprintf(msg.program, sizeof msg.program, "simulated");
    struct sim_ask ask = {0};
    if (!sim_process_ask(host, process, &msg, sizeof msg, &ask))
        return;
    process->phase = SIM_GREETED;
    /* SIGTERM likes to come together with it. */
    if (host->term_ns != SIM_NEVER && seeded_permille(&host->seeded, TERM_WITH_HELLO_PERMILLE))
        host->term_ns = sim_host_now(host);
}

static uint64_t due_of(const struct sim_host *host, uint64_t timeout_ns) {
    return timeout_ns ? sim_host_now(host) + timeout_ns : SIM_NEVER;
}

static void ask_create(struct sim_host *host, struct sim_process *process, uint32_t meet_number,
                       uint32_t rank, uint32_t ranks, bool odd) {
    struct sim_meet *meet = &job_of(host, process)->meets[meet_number];
    struct occl_msg_comm_create msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_CREATE, 1);
    msg.unique_id = meet->id;
    msg.rank = rank;
    msg.ranks = ranks;
    msg.priority = seeded_permille(&host->seeded, 500) ? 255 : seeded_below(&host->seeded, 4);
    msg.timeout_ns = meet->timeout_ns;
    struct sim_ask ask = {
        .meet = meet_number, .rank = rank, .odd = odd, .due_ns = due_of(host, meet->timeout_ns)};
    if (!sim_process_ask(host, process, &msg, sizeof msg, &ask))
        return;
    if (odd)
        return;
    meet->asked[rank] = true;
    uint64_t due = sim_host_now(host) + meet->timeout_ns;
    if (meet->timeout_ns && due < meet->first_due_ns)
        meet->first_due_ns = due;
}

static void ask_split(struct sim_host *host, struct sim_process *process,
                      const struct choice *choice) {
    struct sim_split_plan *split =
        &job_of(host, process)->meets[choice->meet].splits[choice->which];
    struct occl_msg_comm_split msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_SPLIT, 1);
    msg.comm = choice->comm->seats[choice->rank].number;
    msg.color = split->colors[choice->rank];
    msg.key = split->keys[choice->rank];
    msg.sequence = choice->which;
    msg.timeout_ns = split->timeout_ns;
    msg.priority = 255;
    struct sim_ask ask = {.meet = choice->meet,
                          .rank = choice->rank,
                          .which = choice->which,
                          .due_ns = due_of(host, split->timeout_ns)};
    if (sim_process_ask(host, process, &msg, sizeof msg, &ask))
        split->asked[choice->rank] = true;
}

static void ask_end(struct sim_host *host, struct sim_process *process, struct sim_hcomm *comm,
                    uint32_t rank, enum occl_comm_end_how how) {
    struct occl_msg_comm_end msg;
    struct sim_seat *seat = &comm->seats[rank];
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_COMM_END, 1);
    msg.comm = seat->number;
    msg.how = how;
    struct sim_ask ask = {.which = seat->number};
    if (!sim_process_ask(host, process, &msg, sizeof msg, &ask))
        return;
    seat->ending = true;
    if (how != OCCL_END_REVOKE)
        seat->left = true;
    if (how != OCCL_END_DESTROY)
        comm->revoked = true;
}

static void ask_alloc(struct sim_host *host, struct sim_process *process) {
    struct occl_msg_region_alloc msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_REGION_ALLOC, 1);
    msg.bytes = SIM_REGION_BYTES;
    struct sim_ask ask = {0};
    if (sim_process_ask(host, process, &msg, sizeof msg, &ask))
        process->region_asked = true;
}

static void ask_region(struct sim_host *host, struct sim_process *process, uint32_t type,
                       uint32_t region) {
    struct occl_msg_region_map msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, type, 1);
    msg.region = region;
    /* Somebody else's may be gone by the time the daemon looks. */
    struct sim_ask ask = {.which = region, .odd = type == OCCL_MSG_REGION_MAP};
    if (!sim_process_ask(host, process, &msg, sizeof msg, &ask))
        return;
    if (type == OCCL_MSG_REGION_FREE)
        process->region_freed = true;
    else
        process->mapped_region = region;
}

static void ask_plain(struct sim_host *host, struct sim_process *process, uint32_t type) {
    struct occl_msg_plain msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, type, 1);
    struct sim_ask ask = {0};
    if (sim_process_ask(host, process, &msg, sizeof msg, &ask))
        process->detaching = true;
}

static void ask_members(struct sim_host *host, struct sim_process *process) {
    struct occl_msg_members msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_MEMBERS, 1);
    msg.comm = seeded_below(&host->seeded, 4);
    struct sim_ask ask = {.odd = true}; /* there may be none of that number */
    (void)sim_process_ask(host, process, &msg, sizeof msg, &ask);
}

static void ask_rooms(struct sim_host *host, struct sim_process *process) {
    struct occl_msg_rooms msg;
    memset(&msg, 0, sizeof msg);
    occl_msg_init(&msg.h, OCCL_MSG_ROOMS, 1);
    msg.comm = seeded_below(&host->seeded, 4);
    struct sim_ask ask = {.which = msg.comm, .odd = true}; /* there may be none of that number */
    (void)sim_process_ask(host, process, &msg, sizeof msg, &ask);
}

/* ---- what is possible ---- */

/* Ops and splits of a seat; true when all of it is behind this rank. */
static bool look_at_seat(struct sim_host *host, struct sim_process *process, struct sim_hcomm *comm,
                         uint32_t rank, struct choices *c) {
    const struct sim_meet *meet = &job_of(host, process)->meets[comm->meet];
    bool finished = true;
    if (comm->split >= 0)
        return true;
    for (uint32_t which = 0; which < meet->op_count; which++) {
        const struct sim_meet_op *op = &meet->ops[which];
        const struct sim_part *part = &op->parts[rank];
        if (!(sim_ops_members(meet, op) >> rank & 1) || part->phase == SIM_PART_DONE ||
            part->phase == SIM_PART_REFUSED ||
            sim_plan_lazy(host, process->number, SIM_LAZY_OP, comm->meet, which))
            continue;
        finished = false;
        bool fresh = part->phase == SIM_PART_NONE || part->phase == SIM_PART_AGAIN;
        bool region = !sim_ops_needs_region(op) || (process->region && !process->region_freed);
        if (fresh && (region || part->over_quota))
            add(c, (struct choice){DEED_OP, comm->meet, rank, which, comm});
    }
    for (uint32_t which = 0; which < meet->split_count; which++)
        if (!meet->splits[which].asked[rank] &&
            !sim_plan_lazy(host, process->number, SIM_LAZY_SPLIT, comm->meet, which)) {
            finished = false;
            add(c, (struct choice){DEED_SPLIT, comm->meet, rank, which, comm});
        }
    for (uint32_t i = 0; i < process->ask_count; i++)
        finished = finished && !(process->asks[i].type == OCCL_MSG_COMM_SPLIT &&
                                 process->asks[i].meet == comm->meet);
    return finished;
}

static void find_choices(struct sim_host *host, struct sim_process *process, struct choices *c) {
    struct sim_hjob *job = job_of(host, process);
    c->count = 0;
    c->more = false;
    if (!process->region_asked)
        add(c, (struct choice){.deed = DEED_ALLOC});
    for (uint32_t m = 0; m < job->meet_count; m++)
        for (uint32_t rank = 0; rank < job->meets[m].ranks; rank++)
            if (job->meets[m].process_of[rank] == process->number && !job->meets[m].asked[rank] &&
                !sim_plan_lazy(host, process->number, SIM_LAZY_CREATE, m, 0))
                add(c, (struct choice){.deed = DEED_CREATE, .meet = m, .rank = rank});
    for (uint32_t i = 0; i < host->comm_count; i++)
        for (uint32_t rank = 0; rank < host->comms[i]->ranks; rank++) {
            const struct sim_seat *seat = &host->comms[i]->seats[rank];
            if (!seat->answered || seat->left || seat->process != process->number)
                continue;
            if (look_at_seat(host, process, host->comms[i], rank, c))
                add(c, (struct choice){DEED_DESTROY, 0, rank, 0, host->comms[i]});
            else
                c->more = true;
        }
    c->more = c->more || process->ask_count > 0;
    if (process->region && !process->region_freed && !c->more && c->count == 0)
        add(c, (struct choice){.deed = DEED_FREE});
}

static void do_choice(struct sim_host *host, struct sim_process *process,
                      const struct choice *choice) {
    switch (choice->deed) {
    case DEED_ALLOC:
        ask_alloc(host, process);
        return;
    case DEED_CREATE:
        ask_create(host, process, choice->meet, choice->rank,
                   job_of(host, process)->meets[choice->meet].ranks, false);
        return;
    case DEED_OP:
        if (!sim_ops_submit(host, process, choice->comm, choice->rank, choice->which))
            process->wake_ns = sim_host_now(host) + PAUSE_MAX_NS;
        return;
    case DEED_SPLIT:
        ask_split(host, process, choice);
        return;
    case DEED_DESTROY:
        ask_end(host, process, choice->comm, choice->rank, OCCL_END_DESTROY);
        return;
    case DEED_FREE:
        ask_region(host, process, OCCL_MSG_REGION_FREE, process->region);
        return;
    }
}

/* ---- beside the plan ---- */

static void do_aside(struct sim_host *host, struct sim_process *process) {
    struct seeded *s = &host->seeded;
    struct sim_hjob *job = job_of(host, process);
    uint32_t other = job->first_process + seeded_below(s, job->ranks);
    switch (seeded_below(s, 4)) {
    case 0:
        if (process->messages & 1)
            ask_rooms(host, process);
        else
            ask_members(host, process);
        return;
    case 1:
        if (other != process->number && host->processes[other].region && !process->mapped_region)
            ask_region(host, process, OCCL_MSG_REGION_MAP, host->processes[other].region);
        return;
    case 2:
        /* A rank that is its own already: refused alone. */
        if (host->options.faults & SIM_FAULT_GARBLE && !job->innocent)
            for (uint32_t rank = 0; rank < job->meets[0].ranks; rank++)
                if (job->meets[0].process_of[rank] == process->number &&
                    job->meets[0].asked[rank]) {
                    ask_create(host, process, 0, rank, job->meets[0].ranks, true);
                    return;
                }
        return;
    default: {
        struct occl_msg_plain bell;
        memset(&bell, 0, sizeof bell);
        occl_msg_init(&bell.h, OCCL_MSG_DOORBELL, 0);
        (void)sim_process_send(host, process, &bell, sizeof bell);
    }
    }
}

static void leave(struct sim_host *host, struct sim_process *process) {
    struct seeded *s = &host->seeded;
    bool polite = job_of(host, process)->innocent || seeded_permille(s, 600);
    if (process->phase == SIM_ATTACHED && polite && !process->misbehaved) {
        ask_plain(host, process, OCCL_MSG_DETACH);
        if (!process->detaching || seeded_permille(s, 400))
            return;
        /* And exits at once: before it is heard, before it has read what there is. */
        sim_process_die(host, process, SIM_MISHAP_EXITED);
        if (seeded_permille(s, 700))
            process->eof_ns = sim_host_now(host);
        sim_kernel_tick(host, process);
        return;
    }
    sim_process_die(host, process, seeded_permille(s, 500) ? SIM_MISHAP_EXEC : SIM_MISHAP_KILLED);
}

/* Ends a communicator in the middle of whatever it does. */
static bool end_early(struct sim_host *host, struct sim_process *process) {
    struct seeded *s = &host->seeded;
    if (job_of(host, process)->innocent || host->comm_count == 0 ||
        !seeded_permille(s, EARLY_END_PERMILLE))
        return false;
    if (seeded_permille(s, EARLY_LEAVE_PERMILLE)) {
        leave(host, process);
        return true;
    }
    struct sim_hcomm *comm = host->comms[seeded_below(s, host->comm_count)];
    uint32_t rank = seeded_below(s, comm->ranks);
    const struct sim_seat *seat = &comm->seats[rank];
    if (!seat->answered || seat->left || seat->ending || seat->process != process->number)
        return false;
    ask_end(host, process, comm, rank, OCCL_END_DESTROY + seeded_below(s, 3));
    return true;
}

/* ---- mishaps ---- */

/* Half a message, two in one, or no message at all. */
static void send_garbage(struct sim_host *host, struct sim_process *process) {
    struct seeded *s = &host->seeded;
    union {
        struct occl_msg_region_alloc alloc[2];
        char bytes[2 * sizeof(struct occl_msg_region_alloc)];
    } data;
    memset(&data, 0, sizeof data);
    for (int i = 0; i < 2; i++) {
        occl_msg_init(&data.alloc[i].h, OCCL_MSG_REGION_ALLOC, process->next_request + 100);
        data.alloc[i].bytes = OCCL_PAGE_BYTES;
    }
    uint32_t bytes = sizeof data.alloc[0];
    switch (seeded_below(s, 4)) {
    case 0:
        bytes = 1 + seeded_below(s, bytes - 1);
        break;
    case 1:
        bytes = sizeof data;
        break;
    case 2:
        for (uint32_t i = 0; i < bytes; i++)
            data.bytes[i] = (char)seeded_next(s);
        break;
    default:
        data.alloc[0].h.type = OCCL_MSG_WELCOME;
        data.alloc[0].h.bytes = bytes;
    }
    if (sim_process_send(host, process, &data, bytes)) {
        process->misbehaved = true;
        process->mishap = SIM_MISHAP_NONE;
    }
}

static void corrupt_ring(struct sim_host *host, struct sim_process *process) {
    struct occl_msg_plain bell;
    if (!process->page)
        return;
    process->misbehaved = true;
    process->mishap = SIM_MISHAP_NONE;
    occl_publish32(&process->page->sq_tail.value,
                   (uint32_t)seeded_next(&host->seeded) | 0x80000000u);
    memset(&bell, 0, sizeof bell);
    occl_msg_init(&bell.h, OCCL_MSG_DOORBELL, 0);
    (void)sim_process_send(host, process, &bell, sizeof bell);
}

/* True: it did something else than act. */
static bool suffer(struct sim_host *host, struct sim_process *process) {
    struct seeded *s = &host->seeded;
    uint64_t now = sim_host_now(host);
    enum sim_mishap mishap = process->mishap;
    if (mishap == SIM_MISHAP_NONE || process->steps < process->mishap_steps)
        return false;
    switch (mishap) {
    case SIM_MISHAP_KILLED:
    case SIM_MISHAP_EXITED:
    case SIM_MISHAP_EXEC:
        sim_process_die(host, process, mishap);
        return true;
    case SIM_MISHAP_GARBLED:
        send_garbage(host, process);
        return true;
    case SIM_MISHAP_CORRUPTED:
        corrupt_ring(host, process);
        return process->misbehaved;
    case SIM_MISHAP_STOPPED:
        process->stopped_until_ns = now + seeded_below(s, STOP_MAX_NS);
        break;
    case SIM_MISHAP_UNKILLABLE:
        process->killed_pending = process->misbehaved = true;
        process->stopped_until_ns = now + seeded_below(s, UNKILLABLE_MAX_NS);
        break;
    case SIM_MISHAP_DEAF:
        process->deaf_until_ns = now + seeded_below(s, DEAF_MAX_NS);
        process->slow = true;
        break;
    default:
        return false;
    }
    process->mishap = SIM_MISHAP_NONE;
    sim_host_note(host, 10, process->number, mishap);
    return true;
}

/* ---- its turn ---- */

static void act_attached(struct sim_host *host, struct sim_process *process) {
    struct seeded *s = &host->seeded;
    struct choices choices;
    if (process->detaching)
        return;
    if (seeded_permille(s, ASIDE_PERMILLE)) {
        do_aside(host, process);
        return;
    }
    if (end_early(host, process))
        return;
    find_choices(host, process, &choices);
    if (choices.count) {
        do_choice(host, process, &choices.list[seeded_below(s, choices.count)]);
        return;
    }
    if (choices.more)
        process->wake_ns = SIM_NEVER; /* until it hears something */
    else
        leave(host, process);
}

void sim_conduct_act(struct sim_host *host, struct sim_process *process) {
    process->wake_ns = sim_host_now(host) + 1 + seeded_below(&host->seeded, PAUSE_MAX_NS);
    process->steps++;
    sim_host_note(host, 11, process->number, process->phase);
    if (process->phase != SIM_UNBORN && suffer(host, process))
        return;
    if (host->closing && process->phase != SIM_UNBORN && !process->detaching) {
        leave(host, process);
        return;
    }
    switch (process->phase) {
    case SIM_UNBORN:
        sim_process_connect(host, process);
        host->progress = true;
        return;
    case SIM_CONNECTED:
        if (process->mishap != SIM_MISHAP_MUTE)
            say_hello(host, process);
        else
            process->wake_ns = SIM_NEVER;
        return;
    case SIM_GREETED:
        process->wake_ns = SIM_NEVER;
        return;
    case SIM_ATTACHED:
        act_attached(host, process);
        return;
    case SIM_OVER:
        process->wake_ns = SIM_NEVER;
    }
}
