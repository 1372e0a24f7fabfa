/* SPDX-License-Identifier: Apache-2.0 */
/* Finds by itself what `why` would answer: waits that last longer than the job's stall interval
 * (one log line, then growing gaps, then a line that it resolved), cycles of application waits (a
 * log line and an event to all concerned within a second), and processes that were killed and do
 * not go away.
 *
 * Cost. The scan runs only while there are communicators: every 250 ms while an op waits, every 500
 * ms otherwise, and never more than a fiftieth of the time. A wait carries the time at which it
 * began, so a cycle that formed between two slow looks is certain at the first: at the latest 750
 * ms after its last wait began. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/why.h"

#define GAP_BUSY_NS 250000000ull
#define GAP_IDLE_NS 500000000ull
#define COST_SHARE 50
#define STALLS_PER_COMM_MAX 16
#define CYCLES_KEPT 32
#define CYCLE_GAP_FIRST_NS 10000000000ull
#define LATE_NAMED_MAX 4

/* A wait that was reported, owned by its communicator. */
struct occl_stall {
    struct occl_op_key key;
    uint64_t since_ns;
    uint64_t next_report_ns, gap_ns;
    bool seen;
    struct occl_stall *next;
};

struct known_cycle {
    uint64_t signature; /* 0: free */
    uint64_t seen_ns, next_report_ns, gap_ns;
};

struct occl_scan {
    struct occl_timer timer;
    struct known_cycle cycles[CYCLES_KEPT];
};

static uint64_t saturating_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* ---- long waits ---- */

static bool same_key(const struct occl_op_key *a, const struct occl_op_key *b) {
    return a->peers == b->peers && a->tag == b->tag && a->instance == b->instance;
}

static struct occl_stall *stall_of(const struct occl_op_view *op) {
    uint32_t count = 0;
    struct occl_stall *stall;
    for (stall = op->comm->stalls; stall; stall = stall->next) {
        if (same_key(&stall->key, &op->key))
            return stall;
        count++;
    }
    stall = count < STALLS_PER_COMM_MAX ? calloc(1, sizeof *stall) : NULL;
    if (!stall)
        return NULL;
    stall->key = op->key;
    stall->since_ns = op->since_ns;
    stall->gap_ns = op->comm->job->stall_interval_ns;
    stall->next = op->comm->stalls;
    op->comm->stalls = stall;
    return stall;
}

static void report_stall(struct occl_daemon *daemon, const struct occl_wait_graph *graph,
                         const struct occl_op_view *op, uint64_t now) {
    char name[96];
    char ranks[192];
    char late[OCCL_DETAIL_BYTES] = "";
    uint32_t used = 0;
    uint32_t named = 0;
    uint64_t missing = occl_opview_holders(op);
    occl_why_op_text(op, name, sizeof name);
    occl_opview_ranges(missing, ranks, sizeof ranks);
    for (uint32_t rank = 0; rank < op->comm->ranks && named < LATE_NAMED_MAX; rank++) {
        struct occl_late_view view;
        char text[256];
        if (!(missing >> rank & 1))
            continue;
        occl_why_rank(graph, op->comm, rank, &view);
        occl_why_rank_text(&view, now, text, sizeof text);
        int length = snprintf(late + used, sizeof late - used, "; %s", text);
        used += length > 0 ? (uint32_t)length : 0;
        if (used >= sizeof late)
            break;
        named++;
    }
    OCCL_LOG_WARN(daemon->log, "stall", "job %s communicator %s: %s %s %.1f s for ranks %s%s",
                  op->comm->job->name, op->comm->name, name,
                  op->state == 0 ? "has waited" : "runs and has waited",
                  (double)(now - op->since_ns) / 1e9, ranks, late);
}

static void look_at_wait(struct occl_daemon *daemon, const struct occl_wait_graph *graph,
                         const struct occl_op_view *op, uint64_t now) {
    if (op->since_ns > now || now - op->since_ns < op->comm->job->stall_interval_ns)
        return;
    struct occl_stall *stall = stall_of(op);
    if (!stall)
        return;
    stall->seen = true;
    if (now < stall->next_report_ns)
        return;
    report_stall(daemon, graph, op, now);
    stall->next_report_ns = saturating_add(now, stall->gap_ns);
    stall->gap_ns = saturating_add(stall->gap_ns, stall->gap_ns);
}

static void settle_stalls(struct occl_daemon *daemon, struct occl_comm *comm, uint64_t now) {
    struct occl_stall **link = &comm->stalls;
    while (*link) {
        struct occl_stall *stall = *link;
        if (stall->seen) {
            stall->seen = false;
            link = &stall->next;
            continue;
        }
        OCCL_LOG_INFO(daemon->log, "stall",
                      "job %s communicator %s: op with tag %u #%u goes on after %.1f s",
                      comm->job->name, comm->name, stall->key.tag, stall->key.instance,
                      (double)(now - stall->since_ns) / 1e9);
        *link = stall->next;
        free(stall);
    }
}

void occl_stall_comm_gone(struct occl_comm *comm) {
    while (comm->stalls) {
        struct occl_stall *stall = comm->stalls;
        comm->stalls = stall->next;
        free(stall);
    }
}

/* ---- cycles ---- */

/* The oldest entry makes room for a new cycle. */
static struct known_cycle *known(struct occl_scan *scan, uint64_t signature) {
    struct known_cycle *oldest = &scan->cycles[0];
    for (uint32_t i = 0; i < CYCLES_KEPT; i++) {
        if (scan->cycles[i].signature == signature)
            return &scan->cycles[i];
        if (scan->cycles[i].seen_ns < oldest->seen_ns)
            oldest = &scan->cycles[i];
    }
    *oldest = (struct known_cycle){signature, 0, 0, CYCLE_GAP_FIRST_NS};
    return oldest;
}

static void report_cycle(struct occl_daemon *daemon, const struct occl_cycle *cycle, uint64_t now) {
    char text[OCCL_DETAIL_BYTES];
    struct known_cycle *entry = known(daemon->scan, cycle->signature);
    entry->seen_ns = now;
    if (now < entry->next_report_ns)
        return;
    occl_why_cycle_text(cycle, text, sizeof text);
    OCCL_LOG_WARN(daemon->log, "stall", "job %s: %s; no order of execution can resolve it",
                  cycle->steps[0].op->comm->job->name, text);
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct occl_cycle_step *step = &cycle->steps[i];
        const struct occl_seat *seat = &step->op->comm->seats[step->rank];
        const struct occl_seat *next = &step->op->comm->seats[step->waits_for_rank];
        occl_session_event(step->session, OCCL_EVENT_STALL, seat->number, next->rank, next->who.pid,
                           OCCL_PENDING, text);
    }
    entry->next_report_ns = saturating_add(now, entry->gap_ns);
    entry->gap_ns = saturating_add(entry->gap_ns, entry->gap_ns);
}

static void look_for_cycles(struct occl_daemon *daemon, const struct occl_wait_graph *graph,
                            uint64_t now) {
    unsigned char *seen = graph->count ? calloc(1, graph->count) : NULL;
    struct occl_cycle cycle;
    while (seen && occl_why_next_cycle(graph, seen, &cycle))
        if (cycle.definite)
            report_cycle(daemon, &cycle, now);
    free(seen);
}

/* ---- processes that do not go away ---- */

static void look_at_process(struct occl_daemon *daemon, struct occl_session *session,
                            uint64_t now) {
    bool killed;
    if (!session || session->phase != OCCL_PHASE_LIVE)
        return;
    (void)occl_identity_process_state(session, &killed);
    if (!killed) {
        session->kill_seen_ns = 0;
        return;
    }
    if (session->kill_seen_ns == 0)
        session->kill_seen_ns = now;
    if (now - session->kill_seen_ns < daemon->config.unkillable_after_ns)
        return;
    daemon->counters.unkillable_total++;
    OCCL_LOG_ERROR(daemon->log, "stall", "job %s process %d was killed and is still there: fenced",
                   session->job->name, (int)session->pid);
    occl_session_end(session, OCCL_CAUSE_UNKILLABLE, "killed, but it does not exit (unkillable)");
}

/* ---- the scan ---- */

static bool waits_long(const struct occl_op_view *op, uint64_t now) {
    return occl_opview_holders(op) && op->since_ns < now && now - op->since_ns > GAP_BUSY_NS;
}

/* True while an op waits. */
static bool look(struct occl_daemon *daemon, const struct occl_op_list *list, uint64_t now) {
    struct occl_wait_graph graph;
    bool any = false;
    if (occl_why_graph_build(daemon, list, &graph) != OCCL_OK)
        return true;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct occl_op_view *op = &list->ops[i];
        any = any || op->state == 0;
        if (!waits_long(op, now))
            continue;
        look_at_wait(daemon, &graph, op, now);
        for (uint32_t rank = 0; rank < op->comm->ranks; rank++)
            if (occl_opview_holders(op) >> rank & 1)
                look_at_process(daemon, op->comm->seats[rank].session, now);
    }
    look_for_cycles(daemon, &graph, now);
    occl_why_graph_free(&graph);
    return any;
}

static void scan(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    struct occl_op_list list;
    struct occl_comm *comm;
    struct occl_comm *next;
    uint64_t now = occl_loop_now_ns(daemon->loop);
    if (!daemon->comms)
        return;
    occl_totals_scan(daemon, &list);
    bool waits = look(daemon, &list, now);
    HASH_ITER (in_daemon, daemon->comms, comm, next) {
        settle_stalls(daemon, comm, now);
    }
    occl_opview_free(&list);
    uint64_t end = occl_loop_now_ns(daemon->loop);
    uint64_t gap = waits ? GAP_BUSY_NS : GAP_IDLE_NS;
    if ((end - now) * COST_SHARE > gap)
        gap = (end - now) * COST_SHARE;
    if (occl_loop_timer_set(daemon->loop, timer, end + gap) != OCCL_OK)
        OCCL_LOG_ERROR(daemon->log, "stall", "no memory for the scan timer");
}

void occl_stall_wake(struct occl_daemon *daemon) {
    struct occl_timer *timer = &daemon->scan->timer;
    if (timer->place)
        return;
    if (occl_loop_timer_set(daemon->loop, timer, occl_loop_now_ns(daemon->loop) + GAP_BUSY_NS) !=
        OCCL_OK)
        OCCL_LOG_ERROR(daemon->log, "stall", "no memory for the scan timer");
}

int occl_stall_create(struct occl_daemon *daemon) {
    daemon->scan = calloc(1, sizeof *daemon->scan);
    if (!daemon->scan)
        return OCCL_E_NO_MEMORY;
    daemon->scan->timer = (struct occl_timer){.fired = scan, .owner = daemon};
    return OCCL_OK;
}

void occl_stall_destroy(struct occl_daemon *daemon) {
    if (daemon->scan)
        occl_loop_timer_cancel(daemon->loop, &daemon->scan->timer);
    free(daemon->scan);
    daemon->scan = NULL;
}
