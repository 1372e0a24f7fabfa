#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes known mistakes in executor, scheduler, pool, fabric, daemon and simulator, one at a time, and
demands that a test notices each. A mistake is a text to find in a file and what to put there instead; a text
that is not found is an error, so that the list follows the code.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FOLDERS = ["gpu", "daemon", "fabric", "tools/sim", "shm_ipc", "tests/gpu", "tests/sched",
           "tests/fabric", "tests/sim"]


def sources_in(folder, *others):
    """All C sources of a folder but these."""
    names = sorted(glob.glob(os.path.join(ROOT, folder, "*.c")))
    return [os.path.relpath(name, ROOT) for name in names
            if os.path.basename(name) not in others]


SIM = ["tools/sim/%s.c" % name for name in
       ("check", "cluster", "lane", "local", "member", "node", "options", "payload", "programs",
        "rank", "shape", "workload")]
SCHED = ["daemon/sched/%s.c" % name for name in ("sched", "share", "pool")]
BASE = ["shm_ipc/record.c", "shm_ipc/datatype.c", "shm_ipc/op_kind.c", "gpu/local_program.c",
        "gpu/local_run.c", "fabric/sim.c"]
HOST = (["tools/sim/options.c", "gpu/local_program.c", "gpu/local_run.c"] +
        [name for name in sources_in("tools/sim") if os.path.basename(name).startswith("host")] +
        sources_in("daemon", "main.c") + sources_in("daemon/engine") + sources_in("daemon/sched") +
        sources_in("shm_ipc") + sources_in("gpu/host"))
TESTS = {
    "exec": (["tests/gpu/exec_test.c", "tests/gpu/mesh.c", "tools/sim/programs.c"], []),
    "sched": (["tests/sched/sched_test.c", "tests/sched/fixture.c"] + SCHED[:2],
              ["-Wl,--wrap=malloc,--wrap=calloc"]),
    "patience": (["tests/sched/patience_test.c", "tests/sched/fixture.c"] + SCHED[:2], []),
    "pool": (["tests/sched/pool_test.c", "daemon/sched/pool.c"], []),
    "fabric": (["tests/fabric/sim_test.c", "tests/fabric/conformance.c", "fabric/sim.c"], []),
    "cluster": (["tests/sim/cluster_test.c"] + SIM + SCHED + BASE, []),
    "sessions": (["tests/sim/sessions_test.c"] + HOST,
                 ["-luring", "-ljansson", "-linih", "-lhwloc", "-lsystemd", "-lpthread"]),
}
SECONDS = 120
# What one source needs beyond the others.
SOURCE_FLAGS = {
    "gpu/host/movers_avx2.c": ["-mavx2", "-mf16c"],
    "gpu/host/movers_avx512.c": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
                                    "-mavx512vbmi"],
}

# name, test, file, text, replacement
MISTAKES = [
    # executor
    ("resume_restarts_the_step", "exec", "gpu/exec.h",
     "    report->slices = 0;\n", "    report->slices = 0;\n    context->message = 0;\n"),
    ("published_before_the_data", "exec", "gpu/exec.h",
     "    status = ops->move(env, &move);",
     "    if (move.send_link != OCCL_STEP_NONE)\n"
     "        ops->publish_send(env, move.send_link, context->sent, move.bytes);\n"
     "    status = ops->move(env, &move);"),
    ("room_is_not_asked_for", "exec", "gpu/exec.h",
     "if (occl_step_sends(step->kind) && !ops->has_room", "if (0 && !ops->has_room"),
    ("waits_inside", "exec", "gpu/exec.h",
     "        if (wait != OCCL_WAIT_NONE) {",
     "        for (int i = 0; i < 100; i++)\n"
     "            wait = occl_exec_guard(context, program, strand, step, ops, env);\n"
     "        if (wait != OCCL_WAIT_NONE) {"),
    ("iterations_do_not_count", "exec", "gpu/exec.h",
     "context->iteration * steps + step->dep_step + 1", "step->dep_step + 1 + 0 * steps"),
    ("nops_are_free", "exec", "gpu/exec.h",
     "        report->slices++;\n", "        report->slices += step->kind != OCCL_STEP_NOP;\n"),
    # scheduler
    ("urgent_classes_starve_others", "sched", "daemon/sched/sched.c",
     "bool by_time = top != OCCL_SCHED_NONE && c < top &&", "bool by_time = 0 && c < top &&"),
    ("floods_starve_others", "sched", "daemon/sched/sched.c",
     "bool by_count = s->stats.decisions", "bool by_count = 0 && s->stats.decisions"),
    ("last_in_first_out", "sched", "daemon/sched/sched.c",
     "link_age(op), OCCL_SCHED_NONE);\n    if (report->result == OCCL_SCHED_BLOCKED)",
     "link_age(op),\n                           sched->classes[o->op_class].age.head);\n"
     "    if (report->result == OCCL_SCHED_BLOCKED)"),
    ("ageing_takes_over", "sched", "daemon/sched/sched.c",
     "if (s->stats.decisions >= s->aged_decision + OCCL_SCHED_AGED_EVERY)", "if (1)"),
    ("patience_without_cap", "patience", "daemon/sched/sched.c",
     "ns > s->config.patience_max_ns ? s->config.patience_max_ns : ns", "ns"),
    ("progress_is_not_judged_per_visit", "patience", "daemon/sched/sched.c",
     "    if (report->slices > 0) {\n        learn", "    if (1) {\n        learn"),
    ("bytes_are_not_charged", "sched", "daemon/sched/share.c",
     "    share->deficit_bytes -= amount;\n", ""),
    ("blocked_ops_are_forgotten", "sched", "daemon/sched/sched.c",
     "count < OCCL_SCHED_LOOKS ? count : OCCL_SCHED_LOOKS", "0 * count"),
    # pool
    ("unarrived_ops_hold_for_good", "pool", "daemon/sched/pool.c",
     "h->state != HOLDER_HOLDING ||", "h->state != HOLDER_HOLDING || !h->arrived ||"),
    ("unarrived_ops_hold_for_good_in_a_cluster", "cluster", "daemon/sched/pool.c",
     "h->state != HOLDER_HOLDING ||", "h->state != HOLDER_HOLDING || !h->arrived ||"),
    ("older_ops_are_wounded", "pool", "daemon/sched/pool.c",
     "(h->arrived && !older(p, need, h))", "0"),
    ("units_are_lost", "pool", "daemon/sched/pool.c",
     "        p->stats.shared_free += h->units;", "        p->stats.shared_free += 0;"),
    ("tickets_are_not_distinct", "cluster", "tools/sim/node.c",
     "OCCL_POOL_TICKET(++op->node->ticket_clock, op->node->number)",
     "OCCL_POOL_TICKET(++op->node->ticket_clock, 0)"),
    # fabric
    ("control_waits_for_data", "fabric", "fabric/sim.c",
     "w->config.posts_max * (data ? 1 : 2)", "w->config.posts_max"),
    ("control_is_reordered", "fabric", "fabric/sim.c",
     "        if (flight.due_ns < f->control_due_ns[post->peer])", "        if (0)"),
    ("a_cut_loses_completions", "fabric", "fabric/sim.c",
     "    fail_between(world, a, b, OCCL_E_PEER_FAILED);\n",
     "    world->queues[b].count = 0;\n"),
    ("a_closed_landing_is_written", "fabric", "fabric/sim.c", "    l->open = 0;\n", ""),
    # a cluster's node and lane
    ("more_credits_than_places", "cluster", "tools/sim/node.c",
     "link->limit = link->received + op->op->depth;",
     "link->limit = link->received + op->op->depth + 1;"),
    ("revoked_before_all_has_landed", "cluster", "tools/sim/node.c",
     "op->links[i].landed != op->links[i].expected", "0"),
    ("a_sleeping_lane_misses_a_wake", "cluster", "tools/sim/lane.c",
     "void sim_lane_wake(struct sim_node *node) {\n    look_again(&node->lane);",
     "void sim_lane_wake(struct sim_node *node) {"),
    ("a_death_ends_nothing", "cluster", "tools/sim/node.c",
     "            end_op(op, OCCL_E_PEER_FAILED);", "            (void)op;"),
    ("a_slot_is_overwritten", "cluster", "tools/sim/lane.c",
     "&& !op->links[link].busy[message % op->op->depth]", ""),
    # records
    ("poison_alone_ends_an_op", "cluster", "shm_ipc/record.c",
     "    else if (out_look->first_missing < members)\n        out_look->outcome = OCCL_OUT_OPEN;",
     "    else if (poisoned)\n        out_look->outcome = OCCL_OUT_ABORTED;\n"
     "    else if (out_look->first_missing < members)\n        out_look->outcome = OCCL_OUT_OPEN;"),
    ("only_the_first_aborter_poisons", "cluster", "shm_ipc/record.c",
     "    if (occl_rec_kind(now) == OCCL_REC_ABORTED)\n        poison(", "    if (ours)\n        poison("),
    ("the_poisoned_arrive", "cluster", "shm_ipc/record.c",
     "while (!(occl_flag_bits_of(flag, print) & OCCL_FLAG_POISONED))", "while (1)"),
    ("a_run_is_reset_in_part", "cluster", "shm_ipc/record.c",
     "for (uint32_t i = 0; i < count; i++) {\n        struct occl_record *rec = occl_record_at(m,",
     "for (uint32_t i = 0; i < 1; i++) {\n        struct occl_record *rec = occl_record_at(m,"),
    ("a_chunk_is_taken_again_too_early", "cluster", "tools/sim/payload.c",
     "              OCCL_FLAG_LEFT))\n            return false;",
     "              OCCL_FLAG_LEFT))\n            return true;"),
    ("a_run_is_left_too_early", "cluster", "tools/sim/member.c",
     "--m->rank->runs[index - OCCL_CLAIM_RUN_FIRST].remaining > 0)",
     "--m->rank->runs[index - OCCL_CLAIM_RUN_FIRST].remaining > 1)"),
    ("a_lane_is_not_waited_for", "cluster", "tools/sim/member.c",
     "    if (occl_look32(&m->record->lanes_busy) != 0) {", "    if (0) {"),
    ("completed_twice", "cluster", "tools/sim/rank.c",
     "    request->status = status;\n",
     "    request->status = status;\n    if (op == 3 && rank->rank == 0)\n"
     "        sim_rank_complete(cluster, rank, op, status);\n"),
    ("matched_by_place_and_not_by_key", "cluster", "tools/sim/workload.c",
     "op->key.tag == key.tag &&", "1 &&"),
    # kinds of ops
    ("a_block_goes_to_another_place", "cluster", "gpu/local_run.c",
     ".dst_chunk = piece->dst_block,", ".dst_chunk = 0,"),
    ("a_root_does_not_wait_for_givers", "cluster", "shm_ipc/record.c",
     "                if (bits & OCCL_FLAG_SOURCE) {", "                if (1) {"),
    ("a_receiver_does_not_wait_for_its_source", "cluster", "shm_ipc/op_kind.c",
     '{"scatter",        TYPED | SOURCE,', '{"scatter",        TYPED | ROOTED,'),
    ("a_taken_place_is_off_by_one", "cluster", "gpu/local_program.h",
     "OCCL_VECTOR_RECV_AT, block)", "OCCL_VECTOR_RECV_AT, block) + 8"),
    ("a_given_place_is_off_by_one", "cluster", "gpu/local_program.h",
     "OCCL_VECTOR_SEND_AT, block)", "OCCL_VECTOR_SEND_AT, block) + 8"),
    ("a_scan_is_exclusive", "cluster", "gpu/local_program.c",
     "        piece->flags |= OCCL_STEP_PREFIX;\n",
     "        piece->flags |= OCCL_STEP_PREFIX | OCCL_STEP_EXCLUSIVE;\n"),
    ("nobody_is_in_place", "cluster", "gpu/local_program.c",
     "plan.exchanges = in_place && shape == OCCL_OP_ALL_TO_ALL;", "plan.exchanges = 0;"),
    ("what_comes_back_is_not_saved", "cluster", "gpu/local_run.c",
     "        steps[count++] = save;\n    if (piece->bytes > 0)\n"
     "        steps[count++] = there;\n",
     "        (void)0;\n    if (piece->bytes > 0)\n        steps[count++] = there;\n"
     "    if (piece->back_bytes > 0)\n        steps[count++] = save;\n"),
    ("a_way_without_bytes_needs_a_buffer", "cluster", "gpu/local_run.c",
     "    if (piece->back_bytes > 0)\n        steps[count++] = save;",
     "    steps[count++] = save;"),
    ("vectors_that_differ_are_executed", "cluster", "tools/sim/member.c",
     "    if (!differ && m->op->vectors != NULL)\n", "    if (0)\n"),
    ("the_daemon_compares_no_descriptions", "cluster", "tools/sim/local.c",
     "        agree = agree && occl_signature_differ(", "        agree = agree || occl_signature_differ("),
    ("a_giver_is_read_where_it_was", "cluster", "tools/sim/local.c",
     "        if (in_page(op, m))\n", "        if (0)\n"),
    ("nothing_is_left_to_lanes", "cluster", "tools/sim/member.c",
     "    if (nothing && !differ &&", "    if (0 &&"),
    ("who_ended_alone_never_looks_back", "cluster", "tools/sim/member.c",
     "    rank->owed = SIM_NOBODY;\n    look_at(&m, &look);\n",
     "    rank->owed = SIM_NOBODY;\n    leave_place(&m);\n    return;\n    look_at(&m, &look);\n"),
    ("who_owes_a_look_stays_for_ever", "cluster", "tools/sim/rank.c",
     "        if (!rank->dead)\n            sim_member_settle(cluster, rank);\n", ""),
    ("those_who_ended_alone_are_not_told", "cluster", "tools/sim/payload.c",
     "(bits & OCCL_FLAG_IN_PAGE))\n            tell(m, index);", "0)\n            tell(m, index);"),
    ("a_time_out_in_the_ring_frees_the_claim", "cluster", "tools/sim/node.c",
     "            if (counted)\n", "            if (1)\n"),
    ("a_time_out_in_the_ring_ends_one_member", "cluster", "tools/sim/node.c",
     "    what->aborted_ns = node->cluster->now_ns;\n    end_op(op, OCCL_E_TIMEOUT);\n",
     "    what->aborted_ns = node->cluster->now_ns;\n"
     "    sim_rank_complete(node->cluster, &node->cluster->jobs[what->job].ranks[rank],\n"
     "                      what->number, OCCL_E_TIMEOUT);\n"),
    # sessions of a daemon
    ("a_waiter_that_ends_is_kept", "sessions", "daemon/rendezvous.c",
     "    if (session->meetings == 0)\n        return;\n", "    if (1)\n        return;\n"),
    ("time_outs_of_creation_are_lost", "sessions", "daemon/rendezvous.c",
     "    if (timeout_ns == 0 ||", "    if (1 || timeout_ns == 0 ||"),
    ("a_drain_leaves_waiters_alone", "sessions", "daemon/daemon.c",
     "daemon->config.drain_timeout_ns;\n    occl_rendezvous_refuse_all(daemon);\n",
     "daemon->config.drain_timeout_ns;\n"),
    ("a_drain_trusts_a_refused_hello", "sessions", "daemon/daemon.c",
     "if (!session->job || !session->page)", "if (!session->job)"),
    ("splits_outlive_a_leaver", "sessions", "daemon/comm.c",
     "    occl_split_fail_all(comm, OCCL_E_PEER_FAILED, text);\n", ""),
    ("time_outs_of_splits_are_lost", "sessions", "daemon/split.c",
     "    if (msg->timeout_ns == 0 ||", "    if (1 || msg->timeout_ns == 0 ||"),
    ("a_split_sorts_by_rank_alone", "sessions", "daemon/split.c",
     "    if (a->key != b->key)\n        return a->key < b->key ? -1 : 1;\n", ""),
    ("members_are_not_told", "sessions", "daemon/comm_fail.c", "    tell_members(comm);\n", ""),
    ("ring_ops_wait_for_a_leaver", "sessions", "daemon/comm_fail.c",
     "        occl_engine_comm_fail(daemon->engine, comm->uid, OCCL_E_PEER_FAILED, leaver);\n", ""),
    ("a_death_leaves_the_communicator_alive", "sessions", "daemon/comm.c",
     "    occl_comm_end(comm, OCCL_COMM_FAILED, OCCL_E_PEER_FAILED, rank, text);\n", ""),
    ("a_dead_rank_is_not_marked", "sessions", "daemon/comm.c",
     "    occl_comm_mark_dead(comm, rank);\n    occl_comm_end(comm, OCCL_COMM_FAILED",
     "    occl_comm_end(comm, OCCL_COMM_FAILED"),
    ("a_page_stays_charged", "sessions", "daemon/comm.c",
     "    occl_memfd_close(&comm->memfd);\n"
     "    occl_tenant_uncharge(comm->job->tenant, comm->records.page_bytes);\n",
     "    occl_memfd_close(&comm->memfd);\n"),
    ("a_region_stays_open", "sessions", "daemon/region.c",
     "        tenant->regions--;\n    occl_memfd_close(&region->memfd);\n",
     "        tenant->regions--;\n"),
    ("a_region_outlives_its_owner", "sessions", "daemon/region.c",
     "    tell_mappers(region);\n", "    (void)tell_mappers;\n"),
    ("a_stopping_daemon_takes_memory_along", "sessions", "daemon/region.c",
     " && region->owner->cause != OCCL_CAUSE_SHUTDOWN", ""),
    ("a_room_is_sent_again_and_again", "sessions", "daemon/room.c",
     "occl_region_mapped_by(room, session->id) ||", ""),
    ("a_process_gets_room_after_room", "sessions", "daemon/room.c",
     "!session || session->room;", "!session;"),
    ("rooms_use_up_the_quota_of_regions", "sessions", "daemon/region.c",
     "        occl_room_gone(region->owner);\n    else\n",
     "        occl_room_gone(region->owner);\n"),
    ("the_handshake_goes_on_for_ever", "sessions", "daemon/hello.c",
     "    occl_loop_timer_cancel(daemon->loop, &session->deadline);\n"
     "    session->phase = OCCL_PHASE_LIVE;\n    daemon->counters.sessions_total++;\n"
     "    session->own_pid",
     "    session->phase = OCCL_PHASE_LIVE;\n    daemon->counters.sessions_total++;\n"
     "    session->own_pid"),
    ("last_words_are_not_read", "sessions", "daemon/session.c",
     "i < LAST_ROUNDS && session->socket_watch.slot", "0"),
    ("a_reset_is_an_end", "sessions", "daemon/session.c",
     "    if (got < 0 && errno == ECONNRESET)\n", "    if (0)\n"),
    ("an_exit_is_waited_for_too_long", "sessions", "daemon/session.c",
     "#define EXIT_GRACE_NS 5000000ull", "#define EXIT_GRACE_NS 50000000ull"),
    ("a_full_socket_loses_messages", "sessions", "daemon/session_send.c",
     "    if (status == OCCL_WOULD_BLOCK || status == OCCL_E_NO_MEMORY)\n        enqueue(",
     "    if (status == OCCL_E_NO_MEMORY)\n        enqueue("),
    ("a_queue_is_not_flushed", "sessions", "daemon/session_send.c",
     "fd_count);\n    watch_for_room(session, true);\n", "fd_count);\n"),
    ("doorbells_are_not_answered", "sessions", "daemon/dispatch.c",
     "        occl_engine_kick(session->daemon->engine, session->id);\n", ""),
    ("the_sessions_of_a_tenant_are_not_counted_down", "sessions", "daemon/tenant.c",
     "    tenant->daemon->rank_sessions--;\n", ""),
    ("a_quarantine_is_forgotten", "sessions", "daemon/daemon.c",
     "        if (session)\n            occl_session_end(session, OCCL_CAUSE_QUARANTINED",
     "        if (0)\n            occl_session_end(session, OCCL_CAUSE_QUARANTINED"),
    # matching, driven
    ("records_end_with_the_ring", "sessions", "daemon/engine/record_exec.c",
     "    if (place.slot != sqe->slot ||",
     "    if (comm->failed_status != OCCL_OK || place.slot != sqe->slot ||"),
    ("a_member_may_come_twice", "sessions", "daemon/engine/match.c",
     "    if (op->arrived == op->members)\n        all_arrived(lane, op);\n",
     "    if (op->arrived + 1 >= op->members)\n        all_arrived(lane, op);\n"),
    ("a_withdrawal_ends_nothing", "sessions", "daemon/engine/match.c",
     "                occl_eng_op_fail(lane, op, OCCL_E_TIMEOUT, occl_eng_rank_of(op, i));\n", ""),
    ("the_last_member_hears_nothing", "sessions", "daemon/engine/finish.c",
     "    for (uint32_t i = 0; i < op->members; i++) {\n        if (op->arrived_mask >> i & 1)\n"
     "            retire(",
     "    for (uint32_t i = 0; i + 1 < op->members; i++) {\n        if (op->arrived_mask >> i & 1)\n"
     "            retire("),
]


def compile_source(folder, source, target):
    """Empty, or what the compiler said."""
    command = ["gcc", "-std=gnu11", "-O1", "-w", "-D_GNU_SOURCE=", "-ffp-contract=off", "-I."]
    command += SOURCE_FLAGS.get(source, []) + ["-c", source, "-o", target]
    run = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    return run.stderr if run.returncode != 0 else ""


def build(folder, test, mutated):
    """Compiles what the mistake may have changed, and links; empty, or what went wrong. Objects
    without the mistake are kept for the next one; a mistake in a header may be in all of them."""
    sources, extra = TESTS[test]
    objects = []
    for source in sources:
        kept = "objects/" + source.replace("/", "_") + ".o"
        touched = mutated.endswith(".h") or source == mutated
        target = kept + ".mutant" if touched else kept
        if touched or not os.path.exists(os.path.join(folder, kept)):
            said = compile_source(folder, source, target)
            if said:
                return said
        objects.append(target)
    command = ["gcc"] + objects + ["-o", "test"] + extra + ["-lcmocka", "-lm"]
    run = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    return run.stderr if run.returncode != 0 else ""


def notices(folder):
    """Whether the test fails, crashes or does not end."""
    try:
        # Whoever crashes leaves its socket: in our folder.
        run = subprocess.run(["./test", "--in=" + folder], cwd=folder, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return run.returncode != 0


def attempt(folder, name, test, path, text, replacement):
    """An empty string, or why the mistake was not noticed."""
    full = os.path.join(folder, path)
    with open(full, encoding="utf-8") as file:
        right = file.read()
    if right.count(text) != 1:
        return "the text stands %d times in %s" % (right.count(text), path)
    with open(full, "w", encoding="utf-8") as file:
        file.write(right.replace(text, replacement))
    try:
        said = build(folder, test, path)
        if said:
            return "does not compile: " + said[:300]
        return "" if notices(folder) else "the %s test passes" % test
    finally:
        with open(full, "w", encoding="utf-8") as file:
            file.write(right)


def main():
    wanted = sys.argv[1:]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in FOLDERS:
            shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name))
        os.mkdir(os.path.join(folder, "objects"))
        for mistake in MISTAKES:
            if wanted and mistake[0] not in wanted:
                continue
            why = attempt(folder, *mistake)
            failures += why != ""
            print("FAIL %s: %s" % (mistake[0], why) if why else "PASS " + mistake[0], flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
