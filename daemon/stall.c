/* SPDX-License-Identifier: Apache-2.0 */
/* Finds by itself what `why` would answer: waits that last longer than the job's stall interval
 * (one log line, then growing gaps, then a line that it resolved), cycles of application waits (a
 * log line and an event to all concerned within a second), and processes that were killed and do
 * not go away.
 *
 * Cost. A job is looked at only while it has communicators: every 250 ms while an op waits, every
 * 500 ms otherwise, and never for more than a fiftieth of the time. A wait carries the time at
 * which it began, so a cycle that formed between two slow looks is certain at the first: at the
 * latest 750 ms after its last wait began.
 *
 * Whose pages cost much is looked at less often, and nobody else is: each tenant has a timer and a
 * pass over its jobs of its own, tenants take turns of half a millisecond, and all turns together
 * take at most an eighth of the loop's time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/view.h"

#define GAP_BUSY_NS 250000000ull
#define GAP_IDLE_NS 500000000ull
#define COST_SHARE 50
#define STALLS_PER_COMM_MAX 16
#define CYCLES_KEPT 32
#define CYCLE_GAP_FIRST_NS 10000000000ull
#define LATE_NAMED_MAX 4
#define TURN_NS 500000ull
#define LOOP_SHARE 8
/* Lines of one tenant in a window of the log, which has room for OCCL_LOG_BURST of all of them. */
#define TENANT_LINES 4

/* A wait that was reported, owned by its communicator. */
struct occl_stall {
    struct occl_op_key key;
    bool is_split; /* the key of a split may be that of an op, too */
    uint64_t since_ns;
    uint64_t next_report_ns, gap_ns;
    bool seen;
    struct occl_stall *next;
};

struct known_cycle {
    uint64_t signature; /* 0: free */
    uint64_t seen_ns, next_report_ns, gap_ns;
};

/* A tenant's pass over those of its jobs that are due. */
struct occl_tenant_scan {
    struct occl_tenant *tenant;
    struct occl_timer timer; /* until the next pass */
    bool in_pass;            /* it takes turns */
    uint64_t last_job;       /* jobs up to this number have had their turn in this pass */
    bool looking;            /* at the job of the view */
    struct occl_view view;
    struct known_cycle cycles[CYCLES_KEPT];
    uint64_t window_ns; /* when the log's window of this tenant began */
    uint32_t lines[2];  /* in it: of waits, of their ends */
    uint64_t held_back; /* lines that it had no room for, untold */
    TAILQ_ENTRY(occl_tenant_scan) in_turns;
};

struct occl_scan {
    struct occl_timer timer; /* the next turn */
    TAILQ_HEAD(, occl_tenant_scan) turns;
};

static uint64_t saturating_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* No tenant takes the log's budget from others. Lines that were held back are told with the next
 * one: out_text is empty, or says how many. */
static bool may_log(struct occl_tenant_scan *tenant_scan, bool end, uint64_t now, char *out_text,
                    size_t bytes) {
    out_text[0] = '\0';
    if (now - tenant_scan->window_ns >= OCCL_LOG_WINDOW_NS) {
        tenant_scan->window_ns = now;
        tenant_scan->lines[0] = tenant_scan->lines[1] = 0;
    }
    if (tenant_scan->lines[end] >= TENANT_LINES) {
        tenant_scan->held_back++;
        return false;
    }
    tenant_scan->lines[end]++;
    if (tenant_scan->held_back)
        (void)snprintf(out_text, bytes, " (and %llu more of tenant %s)",
                       (unsigned long long)tenant_scan->held_back, tenant_scan->tenant->text);
    tenant_scan->held_back = 0;
    return true;
}

/* ---- long waits ---- */

static bool same_key(const struct occl_op_key *a, const struct occl_op_key *b) {
    return a->peers == b->peers && a->tag == b->tag && a->instance == b->instance;
}

static struct occl_stall *stall_of(const struct occl_op_view *op) {
    uint32_t count = 0;
    struct occl_stall *stall;
    bool is_split = op->signature.kind == OCCL_OPVIEW_SPLIT;
    for (stall = op->comm->stalls; stall; stall = stall->next) {
        if (same_key(&stall->key, &op->key) && stall->is_split == is_split)
            return stall;
        count++;
    }
    stall = count < STALLS_PER_COMM_MAX ? calloc(1, sizeof *stall) : NULL;
    if (!stall)
        return NULL;
    stall->key = op->key;
    stall->is_split = is_split;
    stall->since_ns = op->since_ns;
    stall->gap_ns = op->comm->job->stall_interval_ns;
    stall->next = op->comm->stalls;
    op->comm->stalls = stall;
    return stall;
}

static void report_stall(struct occl_tenant_scan *tenant_scan, const struct occl_wait_graph *graph,
                         const struct occl_op_view *op, uint64_t now) {
    char name[96];
    char more[64 + OCCL_TENANT_TEXT_BYTES];
    char ranks[192];
    char late[OCCL_DETAIL_BYTES] = "";
    uint32_t used = 0;
    uint32_t named = 0;
    uint64_t missing = occl_opview_holders(op);
    if (!may_log(tenant_scan, false, now, more, sizeof more))
        return;
    occl_why_op_text(op, name, sizeof name);
    occl_opview_ranges(missing, ranks, sizeof ranks);
    for (uint32_t rank = 0; rank < op->comm->ranks && named < LATE_NAMED_MAX; rank++) {
        struct occl_late_view view;
        char text[OCCL_DETAIL_BYTES];
        if (!(missing >> rank & 1))
            continue;
        occl_why_missing(graph, op, rank, &view);
        occl_why_rank_text(&view, graph->list, now, text, sizeof text);
        int length = snprintf(late + used, sizeof late - used, "; %s", text);
        used += length > 0 ? (uint32_t)length : 0;
        if (used >= sizeof late)
            break;
        named++;
    }
    OCCL_LOG_WARN(tenant_scan->tenant->daemon->log, "stall",
                  "job %s communicator %s: %s %s %.1f s for ranks %s%s%s", op->comm->job->name,
                  op->comm->name, name, op->state == 0 ? "has waited" : "runs and has waited",
                  (double)(now - op->since_ns) / 1e9, ranks, late, more);
}

static void look_at_wait(struct occl_tenant_scan *tenant_scan, const struct occl_wait_graph *graph,
                         const struct occl_op_view *op, uint64_t now) {
    if (op->since_ns > now || now - op->since_ns < op->comm->job->stall_interval_ns)
        return;
    struct occl_stall *stall = stall_of(op);
    if (!stall)
        return;
    stall->seen = true;
    if (now < stall->next_report_ns)
        return;
    report_stall(tenant_scan, graph, op, now);
    stall->next_report_ns = saturating_add(now, stall->gap_ns);
    stall->gap_ns = saturating_add(stall->gap_ns, stall->gap_ns);
}

static void settle_stalls(struct occl_tenant_scan *tenant_scan, struct occl_comm *comm,
                          uint64_t now) {
    const struct occl_daemon *daemon = tenant_scan->tenant->daemon;
    char more[64 + OCCL_TENANT_TEXT_BYTES];
    struct occl_stall **link = &comm->stalls;
    while (*link) {
        struct occl_stall *stall = *link;
        if (stall->seen) {
            stall->seen = false;
            link = &stall->next;
            continue;
        }
        if (may_log(tenant_scan, true, now, more, sizeof more))
            OCCL_LOG_INFO(daemon->log, "stall",
                          "job %s communicator %s: %s with tag %u #%u goes on after %.1f s%s",
                          comm->job->name, comm->name, stall->is_split ? "split" : "op",
                          stall->key.tag, stall->key.instance,
                          (double)(now - stall->since_ns) / 1e9, more);
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
static struct known_cycle *known(struct occl_tenant_scan *scan, uint64_t signature) {
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

static void report_cycle(struct occl_tenant_scan *tenant_scan, const struct occl_cycle *cycle,
                         uint64_t now) {
    struct occl_daemon *daemon = tenant_scan->tenant->daemon;
    char text[OCCL_DETAIL_BYTES];
    char more[64 + OCCL_TENANT_TEXT_BYTES];
    struct known_cycle *entry = known(tenant_scan, cycle->signature);
    entry->seen_ns = now;
    if (now < entry->next_report_ns)
        return;
    occl_why_cycle_text(cycle, text, sizeof text);
    if (may_log(tenant_scan, false, now, more, sizeof more))
        OCCL_LOG_WARN(daemon->log, "stall", "job %s: %s; no order of execution can resolve it%s",
                      cycle->steps[0].op->comm->job->name, text, more);
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

static void look_for_cycles(struct occl_tenant_scan *tenant_scan,
                            const struct occl_wait_graph *graph, uint64_t now) {
    struct occl_cycle_walk walk = {.seen = graph->ops_count ? calloc(1, graph->ops_count) : NULL};
    struct occl_cycle cycle;
    while (walk.seen && occl_why_next_cycle(graph, &walk, &cycle) && cycle.definite)
        report_cycle(tenant_scan, &cycle, now);
    free(walk.seen);
}

/* ---- processes that do not go away ---- */

static void look_at_process(struct occl_daemon *daemon, const struct occl_wait_node *node,
                            uint64_t now) {
    struct occl_session *session = node->session;
    if (session->phase != OCCL_PHASE_LIVE)
        return;
    if (!node->killed) {
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

/* ---- one job ---- */

static bool waits_long(const struct occl_op_view *op, uint64_t now) {
    return occl_opview_holders(op) && op->since_ns < now && now - op->since_ns > GAP_BUSY_NS;
}

/* Logs and events for a few ops; the rest of the work is linear and small. */
static void judge(struct occl_tenant_scan *tenant_scan) {
    struct occl_daemon *daemon = tenant_scan->tenant->daemon;
    struct occl_view *view = &tenant_scan->view;
    struct occl_job *job = view->job;
    struct occl_comm *comm;
    uint64_t now = occl_loop_now_ns(daemon->loop);
    uint64_t gap_ns = GAP_IDLE_NS, oldest_ns = 0;
    for (uint32_t i = 0; i < view->list.count; i++) {
        const struct occl_op_view *op = &view->list.ops[i];
        if (op->state == 0)
            gap_ns = GAP_BUSY_NS;
        if (op->since_ns < now && now - op->since_ns > oldest_ns)
            oldest_ns = now - op->since_ns;
        if (waits_long(op, now))
            look_at_wait(tenant_scan, &view->graph, op, now);
    }
    for (uint32_t i = 0; i < view->graph.count; i++)
        if (view->graph.nodes[i].wanted)
            look_at_process(daemon, &view->graph.nodes[i], now);
    look_for_cycles(tenant_scan, &view->graph, now);
    TAILQ_FOREACH(comm, &job->comms, in_job)
    settle_stalls(tenant_scan, comm, now);
    job->seen_oldest_age_ns = oldest_ns;
    uint64_t cost_gap_ns = view->spent_ns * COST_SHARE;
    job->scan_due_ns = now + (cost_gap_ns > gap_ns ? cost_gap_ns : gap_ns);
}

/* ---- passes and turns ---- */

static void set_timer(struct occl_daemon *daemon, struct occl_timer *timer, uint64_t due_ns) {
    if (occl_loop_timer_set(daemon->loop, timer, due_ns) != OCCL_OK)
        OCCL_LOG_ERROR(daemon->log, "stall", "no memory for the scan timer");
}

/* The next job of the pass that is due; NULL: none is left. *out_next_ns: when one will be. */
static struct occl_job *next_job(struct occl_tenant_scan *tenant_scan, uint64_t now,
                                 uint64_t *out_next_ns) {
    struct occl_job *job;
    *out_next_ns = UINT64_MAX;
    TAILQ_FOREACH(job, &tenant_scan->tenant->jobs, in_tenant) {
        if (TAILQ_EMPTY(&job->comms))
            continue;
        if (job->scan_due_ns <= now && job->id > tenant_scan->last_job)
            return job;
        if (job->scan_due_ns < *out_next_ns)
            *out_next_ns = job->scan_due_ns;
    }
    return NULL;
}

static void begin_look(struct occl_tenant_scan *tenant_scan, struct occl_job *job) {
    const struct occl_daemon *daemon = tenant_scan->tenant->daemon;
    struct occl_view_request request = {
        .wants = OCCL_VIEW_WANT_OPS | OCCL_VIEW_WANT_HOLDERS | OCCL_VIEW_WANT_GRAPH |
                 (daemon->config.metrics_file[0] ? OCCL_VIEW_WANT_NOTES : 0),
        .lines = OCCL_VIEW_LINES,
        .holders_ns = GAP_BUSY_NS,
    };
    tenant_scan->last_job = job->id;
    tenant_scan->looking = true;
    occl_view_open(&tenant_scan->view, job, &request);
}

/* False: the pass is over, and the timer of the next one is set if there will be any. */
static bool take_turn(struct occl_tenant_scan *tenant_scan) {
    struct occl_daemon *daemon = tenant_scan->tenant->daemon;
    uint64_t until_ns = occl_loop_now_ns(daemon->loop) + TURN_NS;
    do {
        uint64_t now = occl_loop_now_ns(daemon->loop);
        uint64_t next_ns;
        struct occl_job *job = NULL;
        if (!tenant_scan->looking && !(job = next_job(tenant_scan, now, &next_ns))) {
            tenant_scan->last_job = 0;
            if (next_ns != UINT64_MAX)
                set_timer(daemon, &tenant_scan->timer, next_ns > now ? next_ns : now);
            return false;
        }
        if (job)
            begin_look(tenant_scan, job);
        enum occl_view_state state = occl_view_step(&tenant_scan->view, until_ns);
        if (state == OCCL_VIEW_MORE)
            continue;
        if (state == OCCL_VIEW_DONE)
            judge(tenant_scan);
        else if (tenant_scan->view.job)
            tenant_scan->view.job->scan_due_ns = now + GAP_BUSY_NS;
        occl_view_close(&tenant_scan->view);
        tenant_scan->looking = false;
    } while (occl_loop_now_ns(daemon->loop) < until_ns);
    return true;
}

static void turn(struct occl_timer *timer) {
    struct occl_daemon *daemon = timer->owner;
    struct occl_scan *scan = daemon->scan;
    struct occl_tenant_scan *tenant_scan = TAILQ_FIRST(&scan->turns);
    uint64_t start_ns = occl_loop_now_ns(daemon->loop);
    if (!tenant_scan)
        return;
    TAILQ_REMOVE(&scan->turns, tenant_scan, in_turns);
    tenant_scan->in_pass = take_turn(tenant_scan);
    if (tenant_scan->in_pass)
        TAILQ_INSERT_TAIL(&scan->turns, tenant_scan, in_turns);
    uint64_t end_ns = occl_loop_now_ns(daemon->loop);
    if (!TAILQ_EMPTY(&scan->turns))
        set_timer(daemon, timer, end_ns + (end_ns - start_ns) * (LOOP_SHARE - 1));
}

static void begin_pass(struct occl_timer *timer) {
    struct occl_tenant_scan *tenant_scan = timer->owner;
    struct occl_daemon *daemon = tenant_scan->tenant->daemon;
    if (tenant_scan->in_pass)
        return;
    tenant_scan->in_pass = true;
    TAILQ_INSERT_TAIL(&daemon->scan->turns, tenant_scan, in_turns);
    if (!daemon->scan->timer.place)
        set_timer(daemon, &daemon->scan->timer, occl_loop_now_ns(daemon->loop));
}

void occl_stall_wake(struct occl_tenant *tenant) {
    struct occl_daemon *daemon = tenant->daemon;
    uint64_t due_ns = occl_loop_now_ns(daemon->loop) + GAP_BUSY_NS;
    if (!tenant->scan && (tenant->scan = calloc(1, sizeof *tenant->scan)) == NULL) {
        OCCL_LOG_ERROR(daemon->log, "stall", "no memory to look for stalls");
        return;
    }
    struct occl_tenant_scan *tenant_scan = tenant->scan;
    tenant_scan->tenant = tenant;
    tenant_scan->timer.fired = begin_pass;
    tenant_scan->timer.owner = tenant_scan;
    if (!tenant_scan->in_pass && (!tenant_scan->timer.place || tenant_scan->timer.due_ns > due_ns))
        set_timer(daemon, &tenant_scan->timer, due_ns);
}

void occl_stall_tenant_gone(struct occl_tenant *tenant) {
    struct occl_tenant_scan *tenant_scan = tenant->scan;
    if (!tenant_scan)
        return;
    occl_loop_timer_cancel(tenant->daemon->loop, &tenant_scan->timer);
    if (tenant_scan->in_pass)
        TAILQ_REMOVE(&tenant->daemon->scan->turns, tenant_scan, in_turns);
    occl_view_close(&tenant_scan->view);
    free(tenant_scan);
    tenant->scan = NULL;
}

int occl_stall_create(struct occl_daemon *daemon) {
    daemon->scan = calloc(1, sizeof *daemon->scan);
    if (!daemon->scan)
        return OCCL_E_NO_MEMORY;
    daemon->scan->timer = (struct occl_timer){.fired = turn, .owner = daemon};
    TAILQ_INIT(&daemon->scan->turns);
    return OCCL_OK;
}

void occl_stall_destroy(struct occl_daemon *daemon) {
    if (daemon->scan)
        occl_loop_timer_cancel(daemon->loop, &daemon->scan->timer);
    free(daemon->scan);
    daemon->scan = NULL;
}
